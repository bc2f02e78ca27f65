// Counts launches of a program as it is, within its process: the first launch of each configuration of the wanted kernels is made again,
// on the memory that it had, until its counters are read and its warps sampled. Then the program goes on with its own launch.
//
// An order says what is wanted, a line each: "symbol NAME" (a mangled name) or "pattern EXPRESSION" (of mangled names; POSIX, extended), "most N"
// configurations, "longest SECONDS" of the kernel in all passes together, "period EXPONENT" and "long SECONDS" of the sampling, and "counter NAME";
// "set next" begins another set of counters: the first is read that does not take longer, or else the last.
//
// The results, <folder>/<pid>.counted, are JSON lines: {"begun": a kernel, "code"} is being counted; of a launch {"symbol", "grid", …, "values",
// "samples"}; {"why"} one was not counted; {"failed"} the kernel fails, or its launch; {"more"} there are further configurations; {"launched": names}
// at the exit. <folder>/<code>.cubin is code that has a wanted kernel.
#pragma once

#include "kept_memory.h"
#include "profiler_json.h"

#include <fcntl.h>
#include <regex.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace orbit {

struct Order {
  std::set<std::string> symbols;
  std::string pattern;
  std::vector<std::vector<std::string>> sets;
  size_t most = 1;
  double longest_s = 1, long_s = 1;
  uint32_t period = 12;

  explicit Order(const char* path) {
    std::ifstream file(path);
    for (std::string word, rest; file >> word && std::getline(file >> std::ws, rest);) {
      if (word == "symbol") symbols.insert(rest);
      else if (word == "pattern") pattern = rest;
      else if (word == "set") sets.emplace_back();
      else if (word == "counter" && !sets.empty()) sets.back().push_back(rest);
      else if (word == "most") most = std::stoul(rest);
      else if (word == "longest") longest_s = std::stod(rest);
      else if (word == "long") long_s = std::stod(rest);
      else if (word == "period") period = static_cast<uint32_t>(std::stoul(rest));
    }
    if (sets.empty()) throw Failed{"no counters are wanted"};
    if (!pattern.empty() && regcomp(&expression_, pattern.c_str(), REG_EXTENDED | REG_NOSUB) != 0) throw Failed{"the kernel's name is no expression"};
  }
  Order(const Order&) = delete;
  Order& operator=(const Order&) = delete;

  bool wants(const char* symbol) const {
    if (!symbols.empty()) return symbols.count(symbol) != 0;
    return pattern.empty() || regexec(&expression_, symbol, 0, nullptr, 0) == 0;
  }

 private:
  regex_t expression_{};
};

// A launch that can be made again, each time on the memory that it had, and with nothing in L2. Its end restores the memory.
class Replay {
 public:
  // The launch or its kernel fails, and with a kernel its context. The program's own launch fails too, and says how.
  struct Broken {};

  // Throws Failed. `cubins` are those that have the kernel: its module was made of one of them.
  Replay(const Driver& driver, const Relaunch& launch, CUcontext context, const std::vector<const CubinNames*>& cubins)
      : driver_(driver), launch_(launch), memory_(driver, context), cache_(driver) {
    if (cubins.empty()) throw Failed{"the code of its kernel is not known, so what it does to variables cannot be undone"};
    const CUmodule module = launch.module();
    for (size_t i = 0; i < cubins.size() && variables_ == nullptr; ++i) {
      try {
        variables_ = std::make_unique<KeptVariables>(driver, module, cubins[i]->variables);
      } catch (const Failed&) {
        if (i + 1 == cubins.size()) throw;
      }
    }
  }
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;
  ~Replay() {
    if (broken_) return;
    try {
      memory();
    } catch (const Failed&) {
    }
  }

  void restore() {
    memory();
    cache_.flush();
  }

  // Throws Broken.
  void launch() {
    const CUresult result = launch_.again();
    if (result == CUDA_SUCCESS) return;
    if (driver_.cuCtxSynchronize() == CUDA_SUCCESS) throw Broken{};  // the driver did not take it
    broken_ = true;
    memory_.abandon();
    cache_.abandon();
    if (variables_ != nullptr) variables_->abandon();
    throw Broken{};
  }

 private:
  void memory() {
    memory_.restore();
    if (variables_ != nullptr) variables_->restore();
  }

  const Driver& driver_;
  const Relaunch& launch_;
  KeptMemory memory_;
  ColdCache cache_;
  std::unique_ptr<KeptVariables> variables_;
  bool broken_ = false;
};

class ProgramProfile {
 public:
  // Throws Failed. `ends` has `ended` called at the exit. Asked once the driver is there, so that the exit comes to it before it comes to the driver.
  ProgramProfile(const char* order, const std::string& folder, void (*ends)()) : order_(order), folder_(folder), ends_(ends), pid_(getpid()) {
    file_ = open((folder + "/" + std::to_string(pid_) + ".counted").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (file_ < 0) throw Failed{folder + " cannot be written"};
  }
  ProgramProfile(const ProgramProfile&) = delete;
  ProgramProfile& operator=(const ProgramProfile&) = delete;

  // Throws Failed.
  void begin(CUpti_SubscriberHandle subscriber) {
    try {
      cupti_.load(ORBIT_CUPTI_LIBRARY);
      for (const auto id : kUntried) cupti_.cuptiEnableCallback(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API, id);
      cupti_.check(cupti_.cuptiEnableCallback(1, subscriber, CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_MODULE_LOADED), "cuptiEnableCallback");
    } catch (const Failed& failed) {
      say_why(failed.why);
      throw;
    }
  }

  // See Watcher.
  bool called(CUpti_CallbackDomain domain, CUpti_CallbackId id, const void* data) {
    if (domain == CUPTI_CB_DOMAIN_RESOURCE) return of_resource(id, *static_cast<const CUpti_ResourceData*>(data)) || inside();
    if (inside()) return true;
    const auto& call = *static_cast<const CUpti_CallbackData*>(data);
    if (domain != CUPTI_CB_DOMAIN_DRIVER_API || call.callbackSite != CUPTI_API_ENTER) return false;
    if (std::find(std::begin(kUntried), std::end(kUntried), id) != std::end(kUntried)) return refuse(call.functionName);
    LaunchCall launch;
    if (call.symbolName != nullptr && read_launch(id, call.functionParams, call.symbolName, launch)) launches(launch, call.context);
    return false;
  }

  void ended() {
    if (getpid() != pid_) return;  // a forked child has none of our threads
    const std::lock_guard<std::mutex> hold(working_);
    wait_for_plan();
    std::string json = "{\"launched\":[";
    for (const std::string& name : launched_) {
      if (json.back() != '[') json += ',';
      add_text(json, name);
    }
    say(json + "]}");
  }

 private:
  static bool& inside() {
    static thread_local bool is = false;
    return is;
  }
  struct Inside {
    Inside() { inside() = true; }
    ~Inside() { inside() = false; }
  };
  // What a thread that exits the process does first: its own objects are destroyed before those of libraries, of which CUPTI loads some more
  // while it plans.
  struct PlanWait {
    ProgramProfile* profile = nullptr;
    ~PlanWait() {
      if (profile == nullptr || getpid() != profile->pid_) return;
      const std::lock_guard<std::mutex> hold(profile->working_);
      profile->wait_for_plan();
    }
  };

  void wait_for_plan() {
    if (planning_.joinable()) planning_.join();
  }

  // The context of a call made current on its thread.
  struct Current {
    const Driver& driver;
    Current(const Driver& driver, CUcontext context) : driver(driver) { driver.cuCtxPushCurrent(context); }
    ~Current() {
      CUcontext context = nullptr;
      driver.cuCtxPopCurrent(&context);
    }
  };

  bool refuse(const char* function) {
    const std::lock_guard<std::mutex> hold(working_);
    if (!done_) say_why(std::string("it gets memory by ") + function + ", and whether that can be restored is not known");
    stop();
    return false;
  }

  bool of_resource(CUpti_CallbackId id, const CUpti_ResourceData& resource) {
    if (id == CUPTI_CBID_RESOURCE_MODULE_LOADED) {
      keep_code(*static_cast<const CUpti_ModuleResourceData*>(resource.resourceDescriptor));
      return true;
    }
    if (id == CUPTI_CBID_RESOURCE_CONTEXT_CREATED) plan_ahead(resource.context);
    return false;
  }

  // It takes 0.3 s, in which the program does other things.
  void plan_ahead(CUcontext context) {
    static thread_local PlanWait wait;
    if (planning_.joinable()) return;
    wait.profile = this;
    planned_for_ = context;
    ends_();
    planning_ = std::thread([this, context] {
      const Inside own;
      plan_of(context);
      if (!asked_) asked_device_.set_value();
      asked_ = true;
    });
  }

  void plan_of(CUcontext context) {
    plan_.reset();
    try {
      auto plan = std::make_unique<Plan>(cupti_);
      plan->ask_device(context);
      if (!asked_) asked_device_.set_value();
      asked_ = true;
      plan->choose(order_.sets[0]);
      plan_ = std::move(plan);
    } catch (const Failed& failed) {
      unplanned_ = failed.why;
    }
  }

  // Throws Failed.
  Plan& plan_for(CUcontext context) {
    wait_for_plan();
    if (planned_for_ != context) plan_of(context);
    planned_for_ = context;
    if (plan_ == nullptr) throw Failed{unplanned_};
    return *plan_;
  }

  void keep_code(const CUpti_ModuleResourceData& module) {
    if (module.pCubin == nullptr || module.cubinSize == 0) return;
    CubinNames names(module.pCubin, module.cubinSize);
    for (auto name = names.functions.begin(); name != names.functions.end();) {
      name = order_.wants(name->c_str()) ? std::next(name) : names.functions.erase(name);
    }
    if (names.functions.empty()) return;
    CUpti_GetCubinCrcParams checksum{};
    checksum.size = CUpti_GetCubinCrcParamsSize;
    checksum.cubin = module.pCubin;
    checksum.cubinSize = module.cubinSize;
    if (cupti_.cuptiGetCubinCrc(&checksum) != CUPTI_SUCCESS) return;
    names.checksum = checksum.cubinCrc;
    const std::lock_guard<std::mutex> hold(of_code_);
    if (!code_.emplace(checksum.cubinCrc, std::move(names)).second) return;
    std::ofstream file(folder_ + "/" + std::to_string(checksum.cubinCrc) + ".cubin", std::ios::binary);
    file.write(module.pCubin, static_cast<std::streamsize>(module.cubinSize));
  }

  std::vector<const CubinNames*> cubins_with(const char* symbol) {
    const std::lock_guard<std::mutex> hold(of_code_);
    std::vector<const CubinNames*> all;
    for (const auto& [checksum, names] : code_) {
      if (names.functions.count(symbol) != 0) all.push_back(&names);
    }
    return all;
  }

  void launches(const LaunchCall& call, CUcontext context) {
    const std::lock_guard<std::mutex> hold(working_);  // one launch at a time: what others launch would be counted too
    if (launched_.size() < kMostNames) launched_.insert(call.symbol);
    if (done_ || !order_.wants(call.symbol)) return;
    const Inside own;
    std::unique_ptr<Current> current;
    try {
      if (!driver_loaded_) driver_.load();
      driver_loaded_ = true;
      CUstreamCaptureStatus capturing = CU_STREAM_CAPTURE_STATUS_NONE;
      driver_.cuStreamIsCapturing(call.stream, &capturing);
      if (capturing != CU_STREAM_CAPTURE_STATUS_NONE) return say_why("it is launched by a CUDA graph");
      if (!configurations_.insert(configuration(call)).second) return;
      if (configurations_.size() > order_.most) {
        say("{\"more\":true}");
        return stop();
      }
      current = std::make_unique<Current>(driver_, context);
      count(Relaunch(driver_, call), context);
    } catch (const Failed& failed) {
      say_why(failed.why);
      stop();
    } catch (const std::exception& error) {
      say_why(error.what());
      stop();
    }
  }

  void stop() { done_ = true; }

  static std::string configuration(const LaunchCall& call) { return std::string(call.symbol) + of_sizes(call.grid) + of_sizes(call.block); }

  static std::string of_sizes(const unsigned (&sizes)[3]) {
    return "[" + std::to_string(sizes[0]) + "," + std::to_string(sizes[1]) + "," + std::to_string(sizes[2]) + "]";
  }

  // Throws Failed.
  void count(const Relaunch& launch, CUcontext context) {
    if (driver_.cuCtxSynchronize() != CUDA_SUCCESS) {  // an earlier kernel failed
      say("{\"failed\":true}");
      return stop();
    }
    launch.load();
    const auto cubins = cubins_with(launch.call.symbol);
    Replay replay(driver_, launch, context, cubins);
    std::string begun = "{\"begun\":";
    add_text(begun, launch.call.symbol);
    say(begun + ",\"code\":\"" + std::to_string(cubins[0]->checksum) + "\"}");
    try {
      const double began = seconds();
      replay.launch();
      const double took = seconds() - began;
      std::string json = facts(launch, took);
      if (planning_.joinable()) asked_future_.wait();
      replay.restore();
      sample(replay, context, launch.call.symbol, took, json);
      Plan* plan = &plan_for(context);
      std::unique_ptr<Plan> smaller;
      for (size_t set = 1; set < order_.sets.size() && static_cast<double>(plan->passes) * took > order_.longest_s; ++set) {
        smaller = std::make_unique<Plan>(cupti_);
        smaller->make(context, "", order_.sets[set]);
        plan = smaller.get();
      }
      add_counters(replay, context, *plan, json);
      say(json + ",\"complete\":" + (smaller == nullptr ? "true}" : "false}"));
    } catch (const Replay::Broken&) {
      say("{\"failed\":true}");
      wait_for_plan();
      stop();
    }
  }

  void add_counters(Replay& replay, CUcontext context, Plan& plan, std::string& json) {
    Counters counters(cupti_, plan);
    counters.begin(context, 1, true);
    bool whole = false;
    for (size_t pass = 0; !whole; ++pass) {
      if (pass > plan.passes + kMostPasses) throw Failed{"CUPTI asks for more passes than it planned"};
      replay.restore();
      counters.start();
      replay.launch();
      whole = counters.stop();
    }
    const auto values = counters.values();
    if (values.size() != 1) throw Failed{"CUPTI counted " + std::to_string(values.size()) + " kernels in one launch"};
    json += ",\"passes\":" + std::to_string(plan.passes) + ",\"values\":" + of_named(plan.names, values[0]);
  }

  void sample(Replay& replay, CUcontext context, const char* symbol, double took, std::string& json) {
    uint32_t exponent = order_.period;
    for (double span = order_.long_s; span < took && exponent < kLongestPeriod; span *= 2) ++exponent;
    Samples samples(cupti_);
    samples.begin(context, exponent);
    Samples::Counts counts;
    for (int turn = 0; turn < kMostTurns && counts.empty(); ++turn) {  // CUPTI 13.0 at times has none of a launch of microseconds
      if (turn > 0) replay.restore();
      replay.launch();
      counts = samples.take();
    }
    json += ",\"period\":" + std::to_string(uint64_t{1} << exponent) + ",\"samples\":" + of_samples(counts, samples.dropped);
    const auto code = samples.code.find(symbol);
    json += ",\"code\":\"" + (code == samples.code.end() ? "" : std::to_string(code->second)) + "\"";
  }

  // The clusters of a launch; of a kernel that was compiled for clusters of one size also where the launch does not name them.
  static std::string clusters(const Relaunch& launch) {
    constexpr CUfunction_attribute kAxes[] = {CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH};
    unsigned sizes[3];
    for (int axis = 0; axis < 3; ++axis) sizes[axis] = static_cast<unsigned>(std::max(launch.attribute(kAxes[axis]), 0));
    const CUlaunchConfig* config = launch.call.config;
    for (unsigned i = 0; config != nullptr && i < config->numAttrs; ++i) {
      const auto& given = config->attrs[i].value.clusterDim;
      if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) sizes[0] = given.x, sizes[1] = given.y, sizes[2] = given.z;
    }
    return of_sizes(sizes);
  }

  // Of the device: the two numbers of its compute capability, and its multiprocessors.
  std::string chip() const {
    CUdevice device = 0;
    driver_.cuCtxGetDevice(&device);
    std::string json = "[";
    for (const auto wanted : {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT}) {
      int value = 0;
      driver_.cuDeviceGetAttribute(&value, wanted, device);
      json += (json.size() > 1 ? "," : "") + std::to_string(value);
    }
    return json + "]";
  }

  std::string facts(const Relaunch& launch, double took) const {
    const LaunchCall& call = launch.call;
    std::string json = "{\"symbol\":";
    add_text(json, call.symbol);
    json += ",\"grid\":" + of_sizes(call.grid) + ",\"block\":" + of_sizes(call.block) + ",\"cluster\":" + clusters(launch);
    json += ",\"chip\":" + chip() + ",\"seconds\":" + std::to_string(took) + ",\"dynamic\":" + std::to_string(call.shared);
    for (const auto& [name, wanted] : {std::pair{"registers", CU_FUNC_ATTRIBUTE_NUM_REGS}, {"static", CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES}, {"local", CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES}}) {
      json += std::string(",\"") + name + "\":" + std::to_string(launch.attribute(wanted));
    }
    return json;
  }

  static double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

  void say_why(const std::string& why) {
    if (!said_.insert(why).second) return;
    std::string json = "{\"why\":";
    add_text(json, why);
    say(json + "}");
  }

  void say(std::string json) {
    json += '\n';
    if (write(file_, json.data(), json.size()) < 0) done_ = true;
  }

  // What gives a program memory of which was not tried whether CUPTI's checkpoints have it.
  static constexpr CUpti_CallbackId kUntried[] = {CUPTI_DRIVER_TRACE_CBID_cuMemMap, CUPTI_DRIVER_TRACE_CBID_cuIpcOpenMemHandle,
                                                  CUPTI_DRIVER_TRACE_CBID_cuIpcOpenMemHandle_v2};
  static constexpr size_t kMostNames = 64;
  static constexpr size_t kMostPasses = 200;
  static constexpr uint32_t kLongestPeriod = 31;
  static constexpr int kMostTurns = 3;

  const Order order_;
  const std::string folder_;
  void (*const ends_)();
  const pid_t pid_;
  int file_ = -1;
  ProfilerCupti cupti_;
  Driver driver_;
  bool driver_loaded_ = false;
  std::mutex working_, of_code_;
  std::thread planning_;
  std::promise<void> asked_device_;
  std::future<void> asked_future_ = asked_device_.get_future();
  bool asked_ = false;
  std::unique_ptr<Plan> plan_;
  CUcontext planned_for_ = nullptr;
  std::string unplanned_;
  std::map<uint64_t, CubinNames> code_;
  std::set<std::string> launched_, configurations_, said_;
  bool done_ = false;
};

}  // namespace orbit
