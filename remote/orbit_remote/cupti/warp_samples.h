// Warp samples by CUPTI's PC sampling: at which instruction the warps stood, and what they waited for.
#pragma once

#include "profiler_cupti.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace orbit {

class Samples {
 public:
  // (mangled name, offset of the instruction in the function) -> stall reason -> samples
  using Place = std::pair<std::string, uint64_t>;
  using Counts = std::map<Place, std::map<std::string, uint64_t>>;
  uint64_t dropped = 0;  // samples of the last launch for which there was no room
  std::map<std::string, uint64_t> code;  // mangled name -> checksum of the cubin that it is of

  explicit Samples(const ProfilerCupti& cupti) : cupti_(cupti) {}
  Samples(const Samples&) = delete;
  Samples& operator=(const Samples&) = delete;
  ~Samples() { end(); }

  // From here on kernels are sampled: each scheduler once every 2^`exponent` cycles.
  void begin(CUcontext context, uint32_t exponent) {
    context_ = context;
    auto enable = sized<CUpti_PCSamplingEnableParams>(CUpti_PCSamplingEnableParamsSize);
    ORBIT_CHECK(cupti_, cuptiPCSamplingEnable, &enable);
    enabled_ = true;
    read_reasons();
    kept_.make(index_.size());
    configure(exponent);
  }

  // What was sampled since the last call. Nothing may be under way on the GPU.
  Counts take() {
    Counts counts;
    dropped = 0;
    Buffer got;
    for (int turn = 0; turn < kMostTurns; ++turn) {
      got.make(index_.size());
      auto get = sized<CUpti_PCSamplingGetDataParams>(CUpti_PCSamplingGetDataParamsSize);
      get.pcSamplingData = &got.data;
      ORBIT_CHECK(cupti_, cuptiPCSamplingGetData, &get);
      dropped += got.data.droppedSamples;
      add(got, counts);
      if (got.data.remainingNumPcs == 0) break;
    }
    return counts;
  }

  void end() {
    if (!enabled_) return;
    enabled_ = false;
    auto disable = sized<CUpti_PCSamplingDisableParams>(CUpti_PCSamplingDisableParamsSize);
    cupti_.cuptiPCSamplingDisable(&disable);
  }

 private:
  static constexpr size_t kPlaces = 4096;  // instructions of a buffer
  static constexpr int kMostTurns = 64;
  static constexpr size_t kHardwareBytes = 64 << 20;  // 512 MiB by default, which take a tenth of a second
  static constexpr size_t kScratchBytes = 4 << 20;
  static constexpr uint32_t kWorkerSleepMs = 1;  // 100 by default: CUPTI's thread would sleep before it reads

  struct Buffer {
    CUpti_PCSamplingData data{};
    std::vector<CUpti_PCSamplingPCData> places;
    std::vector<CUpti_PCSamplingStallReason> stalls;

    void make(size_t reasons) {
      places.assign(kPlaces, CUpti_PCSamplingPCData{});
      stalls.assign(kPlaces * reasons, CUpti_PCSamplingStallReason{});
      for (size_t i = 0; i < kPlaces; ++i) {
        places[i].size = sizeof places[i];
        places[i].stallReason = &stalls[i * reasons];
      }
      data = {};
      data.size = sizeof data;
      data.collectNumPcs = kPlaces;
      data.pPcData = places.data();
    }
  };

  template <typename T>
  T sized(size_t size) const {
    T value{};
    value.size = size;
    value.ctx = context_;
    return value;
  }

  void read_reasons() {
    size_t count = 0;
    auto number = sized<CUpti_PCSamplingGetNumStallReasonsParams>(CUpti_PCSamplingGetNumStallReasonsParamsSize);
    number.numStallReasons = &count;
    ORBIT_CHECK(cupti_, cuptiPCSamplingGetNumStallReasons, &number);
    index_.assign(count, 0);
    std::vector<std::vector<char>> texts(count, std::vector<char>(CUPTI_STALL_REASON_STRING_SIZE));
    std::vector<char*> pointers;
    for (auto& text : texts) pointers.push_back(text.data());
    auto names = sized<CUpti_PCSamplingGetStallReasonsParams>(CUpti_PCSamplingGetStallReasonsParamsSize);
    names.numStallReasons = count;
    names.stallReasonIndex = index_.data();
    names.stallReasons = pointers.data();
    ORBIT_CHECK(cupti_, cuptiPCSamplingGetStallReasons, &names);
    reasons_.clear();
    for (size_t i = 0; i < count; ++i) reasons_[index_[i]] = pointers[i];
  }

  void configure(uint32_t exponent) {
    std::vector<CUpti_PCSamplingConfigurationInfo> all;
    const auto attribute = [&](CUpti_PCSamplingConfigurationAttributeType type) -> CUpti_PCSamplingConfigurationInfo& {
      all.push_back({});
      all.back().attributeType = type;
      return all.back();
    };
    auto& stall = attribute(CUPTI_PC_SAMPLING_CONFIGURATION_ATTR_TYPE_STALL_REASON).attributeData.stallReasonData;
    stall.stallReasonCount = index_.size();
    stall.pStallReasonIndex = index_.data();
    // In the continuous mode CUPTI 13.0 has no sample once its range profiler or a subscriber was at work in the process.
    attribute(CUPTI_PC_SAMPLING_CONFIGURATION_ATTR_TYPE_COLLECTION_MODE).attributeData.collectionModeData.collectionMode = CUPTI_PC_SAMPLING_COLLECTION_MODE_KERNEL_SERIALIZED;
    attribute(CUPTI_PC_SAMPLING_CONFIGURATION_ATTR_TYPE_SAMPLING_PERIOD).attributeData.samplingPeriodData.samplingPeriod = exponent;
    attribute(CUPTI_PC_SAMPLING_CONFIGURATION_ATTR_TYPE_HARDWARE_BUFFER_SIZE).attributeData.hardwareBufferSizeData.hardwareBufferSize = kHardwareBytes;
    attribute(CUPTI_PC_SAMPLING_CONFIGURATION_ATTR_TYPE_SCRATCH_BUFFER_SIZE).attributeData.scratchBufferSizeData.scratchBufferSize = kScratchBytes;
    attribute(CUPTI_PC_SAMPLING_CONFIGURATION_ATTR_TYPE_WORKER_THREAD_PERIODIC_SLEEP_SPAN).attributeData.workerThreadPeriodicSleepSpanData.workerThreadPeriodicSleepSpan = kWorkerSleepMs;
    attribute(CUPTI_PC_SAMPLING_CONFIGURATION_ATTR_TYPE_OUTPUT_DATA_FORMAT).attributeData.outputDataFormatData.outputDataFormat = CUPTI_PC_SAMPLING_OUTPUT_DATA_FORMAT_PARSED;
    attribute(CUPTI_PC_SAMPLING_CONFIGURATION_ATTR_TYPE_SAMPLING_DATA_BUFFER).attributeData.samplingDataBufferData.samplingDataBuffer = &kept_.data;
    auto given = sized<CUpti_PCSamplingConfigurationInfoParams>(CUpti_PCSamplingConfigurationInfoParamsSize);
    given.numAttributes = all.size();
    given.pPCSamplingConfigurationInfo = all.data();
    ORBIT_CHECK(cupti_, cuptiPCSamplingSetConfigurationAttribute, &given);
  }

  void add(const Buffer& got, Counts& counts) {
    const size_t places = std::min<size_t>(got.data.totalNumPcs, got.places.size());
    for (size_t i = 0; i < places; ++i) {
      const CUpti_PCSamplingPCData place = got.places[i];  // copies: the structures are packed
      if (place.functionName == nullptr) continue;
      code[place.functionName] = place.cubinCrc;
      auto& reasons = counts[{place.functionName, place.pcOffset}];
      for (size_t k = 0; k < place.stallReasonCount; ++k) {
        const CUpti_PCSamplingStallReason stall = place.stallReason[k];
        const uint32_t index = stall.pcSamplingStallReasonIndex;
        const auto reason = reasons_.find(index);
        if (stall.samples > 0 && reason != reasons_.end()) reasons[reason->second] += stall.samples;
      }
    }
  }

  const ProfilerCupti& cupti_;
  CUcontext context_ = nullptr;
  bool enabled_ = false;
  std::vector<uint32_t> index_;
  std::map<uint32_t, std::string> reasons_;
  Buffer kept_;
};

}  // namespace orbit
