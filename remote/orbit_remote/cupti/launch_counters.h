// The GPU's counters of launches by CUPTI's range profiler. Which counters are read in which passes is a Plan; it depends on
// the chip and what of it may be counted, not on a launch. Counters reads them: the caller launches once for each pass, and
// restores memory in between.
#pragma once

#include "profiler_cupti.h"

#include <cmath>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace orbit {

template <typename T>
T parameters(size_t size) {
  T value{};
  value.structSize = size;
  return value;
}
#define ORBIT_PARAMETERS(type) ::orbit::parameters<type>(type##_STRUCT_SIZE)

class Plan {
 public:
  std::vector<const char*> names;  // of the chip; they live as long as the plan
  size_t passes = 0;
  std::vector<uint8_t> image;
  std::string chip;

  explicit Plan(const ProfilerCupti& cupti) : cupti_(cupti) {}
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;
  ~Plan() { close(); }

  // For the device of a context; without one for `chip_name`, as if all of its counters were available. Of `wanted`, what the chip
  // does not have is left out.
  void make(CUcontext context, const std::string& chip_name, const std::vector<std::string>& wanted) {
    chip = chip_name;
    if (context != nullptr) ask_device(context);
    choose(wanted);
  }

  // The part of `make` that asks the device: warps cannot be sampled meanwhile.
  void ask_device(CUcontext context) {
    auto initialize = ORBIT_PARAMETERS(CUpti_Profiler_Initialize_Params);
    ORBIT_CHECK(cupti_, cuptiProfilerInitialize, &initialize);
    auto named = ORBIT_PARAMETERS(CUpti_Device_GetChipName_Params);
    ORBIT_CHECK(cupti_, cuptiDeviceGetChipName, &named);
    chip = named.pChipName;
    auto available = ORBIT_PARAMETERS(CUpti_Profiler_GetCounterAvailability_Params);
    available.ctx = context;
    ORBIT_CHECK(cupti_, cuptiProfilerGetCounterAvailability, &available);
    availability_.resize(available.counterAvailabilityImageSize);
    available.pCounterAvailabilityImage = availability_.data();
    ORBIT_CHECK(cupti_, cuptiProfilerGetCounterAvailability, &available);
  }

  // The rest of `make`.
  void choose(const std::vector<std::string>& wanted) {
    open();
    kept_ = wanted;
    if (add(kept_) != CUPTI_SUCCESS) leave_out_unknown();
    for (const std::string& name : kept_) names.push_back(name.c_str());
    if (names.empty()) throw Failed{"CUPTI knows none of the counters on " + chip};
    auto size = ORBIT_PARAMETERS(CUpti_Profiler_Host_GetConfigImageSize_Params);
    size.pHostObject = host_;
    ORBIT_CHECK(cupti_, cuptiProfilerHostGetConfigImageSize, &size);
    image.resize(size.configImageSize);
    auto get = ORBIT_PARAMETERS(CUpti_Profiler_Host_GetConfigImage_Params);
    get.pHostObject = host_;
    get.configImageSize = image.size();
    get.pConfigImage = image.data();
    ORBIT_CHECK(cupti_, cuptiProfilerHostGetConfigImage, &get);
    auto count = ORBIT_PARAMETERS(CUpti_Profiler_Host_GetNumOfPasses_Params);
    count.configImageSize = image.size();
    count.pConfigImage = image.data();
    ORBIT_CHECK(cupti_, cuptiProfilerHostGetNumOfPasses, &count);
    passes = count.numOfPasses;
  }

  CUpti_Profiler_Host_Object* host() const { return host_; }

 private:
  void open() {
    auto initialize = ORBIT_PARAMETERS(CUpti_Profiler_Host_Initialize_Params);
    initialize.profilerType = CUPTI_PROFILER_TYPE_RANGE_PROFILER;
    initialize.pChipName = chip.c_str();
    initialize.pCounterAvailabilityImage = availability_.empty() ? nullptr : availability_.data();
    ORBIT_CHECK(cupti_, cuptiProfilerHostInitialize, &initialize);
    host_ = initialize.pHostObject;
  }

  void close() {
    if (host_ == nullptr) return;
    auto end = ORBIT_PARAMETERS(CUpti_Profiler_Host_Deinitialize_Params);
    end.pHostObject = host_;
    cupti_.cuptiProfilerHostDeinitialize(&end);
    host_ = nullptr;
  }

  std::set<std::string> base_metrics() {
    std::set<std::string> known;
    for (const auto type : {CUPTI_METRIC_TYPE_COUNTER, CUPTI_METRIC_TYPE_RATIO, CUPTI_METRIC_TYPE_THROUGHPUT}) {
      auto list = ORBIT_PARAMETERS(CUpti_Profiler_Host_GetBaseMetrics_Params);
      list.pHostObject = host_;
      list.metricType = type;
      ORBIT_CHECK(cupti_, cuptiProfilerHostGetBaseMetrics, &list);
      for (size_t i = 0; i < list.numMetrics; ++i) known.insert(list.ppMetricNames[i]);
    }
    return known;
  }

  // All in one call: CUPTI makes passes for the counters of each call by themselves (GH100: 511 counters in 31 passes, in 579 if
  // they are added one by one).
  CUptiResult add(const std::vector<std::string>& added) {
    std::vector<const char*> pointers;
    for (const std::string& name : added) pointers.push_back(name.c_str());
    auto config = ORBIT_PARAMETERS(CUpti_Profiler_Host_ConfigAddMetrics_Params);
    config.pHostObject = host_;
    config.ppMetricNames = pointers.data();
    config.numMetrics = pointers.size();
    return cupti_.cuptiProfilerHostConfigAddMetrics(&config);
  }

  // CUPTI does not say which of the counters it rejects.
  void leave_out_unknown() {
    const std::set<std::string> known = base_metrics();
    const auto keep = [&](const auto& is_good) {
      std::vector<std::string> good;
      for (const std::string& name : kept_) {
        if (is_good(name)) good.push_back(name);
      }
      kept_ = good;
      reopen();
    };
    keep([&](const std::string& name) { return known.count(name.substr(0, name.find('.'))) != 0; });
    if (add(kept_) == CUPTI_SUCCESS) return;
    keep([&](const std::string& name) {
      reopen();
      return add({name}) == CUPTI_SUCCESS;
    });
    cupti_.check(add(kept_), "cuptiProfilerHostConfigAddMetrics");
  }

  void reopen() {
    close();
    open();
  }

  const ProfilerCupti& cupti_;
  CUpti_Profiler_Host_Object* host_ = nullptr;
  std::vector<uint8_t> availability_;
  std::vector<std::string> kept_;
};

// The passes of up to `ranges` launches; each pass has the same ones in the same order. A range is one kernel: one that the caller
// begins and ends also has the time that the host takes to launch.
class Counters {
 public:
  Counters(const ProfilerCupti& cupti, Plan& plan) : cupti_(cupti), plan_(plan) {}
  Counters(const Counters&) = delete;
  Counters& operator=(const Counters&) = delete;
  ~Counters() { end(); }

  // With `user_replay` the caller launches once for each pass; else CUPTI replays the one launch, and restores its memory.
  void begin(CUcontext context, size_t ranges, bool user_replay) {
    auto enable = ORBIT_PARAMETERS(CUpti_RangeProfiler_Enable_Params);
    enable.ctx = context;
    ORBIT_CHECK(cupti_, cuptiRangeProfilerEnable, &enable);
    object_ = enable.pRangeProfilerObject;
    auto size = ORBIT_PARAMETERS(CUpti_RangeProfiler_GetCounterDataSize_Params);
    size.pRangeProfilerObject = object_;
    size.pMetricNames = plan_.names.data();
    size.numMetrics = plan_.names.size();
    size.maxNumOfRanges = ranges;
    size.maxNumRangeTreeNodes = static_cast<uint32_t>(ranges + 1);
    ORBIT_CHECK(cupti_, cuptiRangeProfilerGetCounterDataSize, &size);
    data_.assign(size.counterDataSize, 0);
    auto initialize = ORBIT_PARAMETERS(CUpti_RangeProfiler_CounterDataImage_Initialize_Params);
    initialize.pRangeProfilerObject = object_;
    initialize.counterDataSize = data_.size();
    initialize.pCounterData = data_.data();
    ORBIT_CHECK(cupti_, cuptiRangeProfilerCounterDataImageInitialize, &initialize);
    auto config = ORBIT_PARAMETERS(CUpti_RangeProfiler_SetConfig_Params);
    config.pRangeProfilerObject = object_;
    config.configSize = plan_.image.size();
    config.pConfig = plan_.image.data();
    config.counterDataImageSize = data_.size();
    config.pCounterDataImage = data_.data();
    config.range = CUPTI_AutoRange;
    config.replayMode = user_replay ? CUPTI_UserReplay : CUPTI_KernelReplay;
    config.maxRangesPerPass = ranges;
    config.numNestingLevels = 1;
    config.minNestingLevel = 1;
    config.targetNestingLevel = 1;
    ORBIT_CHECK(cupti_, cuptiRangeProfilerSetConfig, &config);
  }

  void start() { of_object<CUpti_RangeProfiler_Start_Params>(cupti_.cuptiRangeProfilerStart, CUpti_RangeProfiler_Start_Params_STRUCT_SIZE, "cuptiRangeProfilerStart"); }

  // Returns whether all passes have been made.
  bool stop() {
    return of_object<CUpti_RangeProfiler_Stop_Params>(cupti_.cuptiRangeProfilerStop, CUpti_RangeProfiler_Stop_Params_STRUCT_SIZE, "cuptiRangeProfilerStop")
               .isAllPassSubmitted != 0;
  }

  // For each range the values of the plan's names; what is not finite was not counted.
  std::vector<std::vector<double>> values() {
    const auto decoded = of_object<CUpti_RangeProfiler_DecodeData_Params>(cupti_.cuptiRangeProfilerDecodeData, CUpti_RangeProfiler_DecodeData_Params_STRUCT_SIZE, "cuptiRangeProfilerDecodeData");
    if (decoded.numOfRangeDropped > 0) throw Failed{"CUPTI dropped the counters of a launch"};
    auto info = ORBIT_PARAMETERS(CUpti_RangeProfiler_GetCounterDataInfo_Params);
    info.pCounterDataImage = data_.data();
    info.counterDataImageSize = data_.size();
    ORBIT_CHECK(cupti_, cuptiRangeProfilerGetCounterDataInfo, &info);
    std::vector<std::vector<double>> all(info.numTotalRanges, std::vector<double>(plan_.names.size()));
    for (size_t range = 0; range < all.size(); ++range) {
      auto evaluate = ORBIT_PARAMETERS(CUpti_Profiler_Host_EvaluateToGpuValues_Params);
      evaluate.pHostObject = plan_.host();
      evaluate.pCounterDataImage = data_.data();
      evaluate.counterDataImageSize = data_.size();
      evaluate.rangeIndex = range;
      evaluate.ppMetricNames = plan_.names.data();
      evaluate.numMetrics = plan_.names.size();
      evaluate.pMetricValues = all[range].data();
      ORBIT_CHECK(cupti_, cuptiProfilerHostEvaluateToGpuValues, &evaluate);
    }
    return all;
  }

  void end() {
    if (object_ == nullptr) return;
    auto disable = ORBIT_PARAMETERS(CUpti_RangeProfiler_Disable_Params);
    disable.pRangeProfilerObject = object_;
    object_ = nullptr;
    cupti_.cuptiRangeProfilerDisable(&disable);
  }

 private:
  template <typename T>
  T of_object(CUptiResult (*call)(T*), size_t size, const char* name) {
    auto given = parameters<T>(size);
    given.pRangeProfilerObject = object_;
    cupti_.check(call(&given), name);
    return given;
  }

  const ProfilerCupti& cupti_;
  Plan& plan_;
  CUpti_RangeProfiler_Object* object_ = nullptr;
  std::vector<uint8_t> data_;
};

}  // namespace orbit
