// The functions of CUPTI that the profiler calls, found in the library by name: it is loaded by path and not linked, as for the
// recorder (injection.cpp), so that the process has one CUPTI.
#pragma once

#include <cupti.h>
#include <cupti_pcsampling.h>
#include <cupti_profiler_host.h>
#include <cupti_profiler_target.h>
#include <cupti_range_profiler.h>
#include <cupti_target.h>

#include <dlfcn.h>

#include <string>

namespace orbit {

// Why something cannot be counted, as a clause: "CUPTI: …".
struct Failed {
  std::string why;
};

#define ORBIT_PROFILER_FUNCTIONS(X)                                                                                \
  X(cuptiGetVersion) X(cuptiGetResultString) X(cuptiProfilerInitialize) X(cuptiProfilerDeInitialize)               \
  X(cuptiDeviceGetChipName) X(cuptiProfilerGetCounterAvailability)                                                 \
  X(cuptiProfilerHostInitialize) X(cuptiProfilerHostDeinitialize) X(cuptiProfilerHostGetBaseMetrics)               \
  X(cuptiProfilerHostConfigAddMetrics) X(cuptiProfilerHostGetConfigImageSize) X(cuptiProfilerHostGetConfigImage)   \
  X(cuptiProfilerHostGetNumOfPasses) X(cuptiProfilerHostEvaluateToGpuValues)                                       \
  X(cuptiRangeProfilerEnable) X(cuptiRangeProfilerDisable) X(cuptiRangeProfilerGetCounterDataSize)                 \
  X(cuptiRangeProfilerCounterDataImageInitialize) X(cuptiRangeProfilerSetConfig) X(cuptiRangeProfilerStart)        \
  X(cuptiRangeProfilerStop) X(cuptiRangeProfilerDecodeData) X(cuptiRangeProfilerGetCounterDataInfo)                                          \
  X(cuptiPCSamplingEnable) X(cuptiPCSamplingDisable) X(cuptiPCSamplingGetData) X(cuptiPCSamplingGetNumStallReasons) X(cuptiPCSamplingGetStallReasons)                 \
  X(cuptiPCSamplingSetConfigurationAttribute) X(cuptiGetCubinCrc) X(cuptiEnableCallback)

struct ProfilerCupti {
#define DECLARE(f) decltype(&::f) f = nullptr;
  ORBIT_PROFILER_FUNCTIONS(DECLARE)
#undef DECLARE

  // Throws Failed.
  void load(const char* path) {
    void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) throw Failed{std::string("CUPTI could not be loaded from ") + path};
#define FIND(f)                                                                              \
  if ((f = reinterpret_cast<decltype(f)>(dlsym(library, #f))) == nullptr)                    \
    throw Failed{std::string("the CUPTI at ") + path + " lacks " #f};
    ORBIT_PROFILER_FUNCTIONS(FIND)
#undef FIND
    uint32_t version = 0;
    cuptiGetVersion(&version);
    if (version != CUPTI_API_VERSION) throw Failed{"CUPTI changed since the profiler was built"};
  }

  // Throws Failed unless the call succeeded.
  void check(CUptiResult result, const char* call) const {
    if (result == CUPTI_SUCCESS) return;
    if (result == CUPTI_ERROR_INSUFFICIENT_PRIVILEGES) throw Failed{"the driver keeps the GPU's counters for administrators"};
    if (result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED) throw Failed{"another profiler has CUPTI in this process"};
    const char* text = nullptr;
    cuptiGetResultString(result, &text);
    throw Failed{std::string(call) + " failed: " + (text == nullptr ? "?" : text)};
  }
};

#define ORBIT_CHECK(cupti, call, parameters) (cupti).check((cupti).call(parameters), #call)

}  // namespace orbit
