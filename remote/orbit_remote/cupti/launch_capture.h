// Takes one launch of a kernel out of a program that runs: what it was given, with the memory behind its pointers before it and after it.
//
// ORBIT_CAPTURE names a folder. The file `wanted` in it says which launch; `launch.json` is written there, with the memory in files
// beside it (recording/taken_launch.py reads them). All copies are enqueued on the launch's own stream, into memory that is allocated
// on that stream too, so the callback waits for nothing and changes no order. They are fetched when the program has waited for the GPU
// by itself, on a stream of ours.
#pragma once

#include "launch_calls.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <ctime>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

namespace orbit {

// Calls of the driver that are ours: callbacks leave them alone.
inline thread_local bool own_calls = false;

#define ORBIT_CAPTURE_FUNCTIONS(X)                                                                                      \
  X(cuStreamIsCapturing, "cuStreamIsCapturing") X(cuThreadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode") \
  X(cuPointerGetAttribute, "cuPointerGetAttribute") X(cuMemGetAddressRange, "cuMemGetAddressRange_v2")                 \
  X(cuMemAllocAsync, "cuMemAllocAsync") X(cuMemcpyAsync, "cuMemcpyAsync") X(cuMemFreeAsync, "cuMemFreeAsync")           \
  X(cuMemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2") X(cuStreamCreate, "cuStreamCreate")                                     \
  X(cuStreamSynchronize, "cuStreamSynchronize") X(cuStreamDestroy, "cuStreamDestroy_v2")                               \
  X(cuEventCreate, "cuEventCreate") X(cuEventRecord, "cuEventRecord") X(cuEventQuery, "cuEventQuery")                  \
  X(cuCtxGetCurrent, "cuCtxGetCurrent") X(cuCtxPushCurrent, "cuCtxPushCurrent_v2")                                     \
  X(cuCtxPopCurrent, "cuCtxPopCurrent_v2") X(cuCtxGetDevice, "cuCtxGetDevice")                                         \
  X(cuModuleGetGlobal, "cuModuleGetGlobal_v2") X(cuFuncGetModule, "cuFuncGetModule")
// since CUDA 12.1 to 12.4: found by name, so that older headers will do
using GetParameter = CUresult (*)(void*, size_t, size_t*, size_t*);
using KernelFunction = CUresult (*)(CUfunction*, void*);

// The functions of the driver that a capture calls; a replay has others (driver_calls.h), in a library of its own.
struct CaptureDriver {
#define ORBIT_DECLARE(f, name) decltype(&::f) f = nullptr;
  ORBIT_CAPTURE_FUNCTIONS(ORBIT_DECLARE)
#undef ORBIT_DECLARE
  GetParameter of_function = nullptr, of_kernel = nullptr;
  KernelFunction function_of_kernel = nullptr;

  bool load() {
    void* library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr) return false;
#define ORBIT_FIND(f, name) \
  if ((f = reinterpret_cast<decltype(f)>(dlsym(library, name))) == nullptr) return false;
    ORBIT_CAPTURE_FUNCTIONS(ORBIT_FIND)
#undef ORBIT_FIND
    of_function = reinterpret_cast<GetParameter>(dlsym(library, "cuFuncGetParamInfo"));
    of_kernel = reinterpret_cast<GetParameter>(dlsym(library, "cuKernelGetParamInfo"));
    function_of_kernel = reinterpret_cast<KernelFunction>(dlsym(library, "cuKernelGetFunction"));
    return true;
  }
};

// Why nothing was taken: the words of recording/taken_launch.py.
struct NotTaken {
  const char* why;
};

// Memory that the launch was given: from its lowest pointer to the end of the allocation.
struct MemoryRange {
  CUdeviceptr base = 0, begin = 0, end = 0;
  const char* kind = "device";
  CUdeviceptr before = 0, after = 0;
  bool changed = false;
  size_t bytes() const { return static_cast<size_t>(end - begin); }
};

struct PointerPlace {
  size_t parameter, offset;
  CUdeviceptr address, base;
};

class LaunchCapture {
 public:
  void before(const LaunchCall& call) {
    if (phase_.load(std::memory_order_acquire) == Phase::unread) read_wanted();
    if (phase_.load(std::memory_order_acquire) != Phase::watching || !is_of_kernel(call.symbol)) return;
    const long number = ++seen_;
    if (!is_wanted(call, number)) return;
    const std::lock_guard<std::mutex> hold(taking_);
    if (phase_.load() != Phase::watching) return;
    phase_ = Phase::taken;
    if (!claim()) return;  // another process of the program took one
    mine_ = true;
    number_ = number;
    among_ourselves([&] { take(call); });
  }

  // The launch has been enqueued, with this result; by the same thread.
  void after(int result) {
    if (!mine_) return;
    const std::lock_guard<std::mutex> hold(taking_);
    mine_ = false;
    if (!why_.empty()) return;
    among_ourselves([&] {
      if (result != 0) throw NotTaken{"failed"};
      copy_outputs();
      phase_ = Phase::enqueued;
    });
  }

  // The program has waited for the GPU; with `last` it ends, or its context does.
  void settle(bool last) {
    if (phase_.load(std::memory_order_acquire) != Phase::enqueued || own_calls) return;
    std::unique_lock<std::mutex> hold(taking_, std::try_to_lock);
    if (!hold.owns_lock() || phase_.load() != Phase::enqueued) return;
    among_ourselves([&] { fetch(last); });
  }

 private:
  // Calls of the driver that are ours. Another thread may record a graph, which forbids some calls to all threads.
  template <typename Work>
  void among_ourselves(Work work) {
    own_calls = true;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    const bool relaxed = driver_.cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS;
    try {
      work();
    } catch (const NotTaken& reason) {
      refuse(reason.why);
    } catch (const std::exception&) {  // no memory of the host's left
      refuse("fetch");
    }
    if (relaxed) driver_.cuThreadExchangeStreamCaptureMode(&mode);
    own_calls = false;
  }

  enum class Phase { unread, unwanted, watching, taken, enqueued, over };
  static constexpr size_t kPiece = size_t{64} << 20;
  static constexpr int kLastMs = 10'000;  // a program that ends while its kernel runs is waited for so long

  // -- which launch -----------------------------------------------------------------------------------

  void read_wanted() {
    const std::lock_guard<std::mutex> hold(taking_);
    if (phase_.load() != Phase::unread) return;
    const char* folder = getenv("ORBIT_CAPTURE");
    Phase next = Phase::unwanted;
    if (folder != nullptr && *folder != '\0' && driver_.load()) {
      folder_ = folder;
      std::ifstream file(folder_ + "/wanted");
      std::string line;
      while (std::getline(file, line)) {
        std::istringstream words(line);
        std::string word;
        words >> word;
        if (word == "symbol") words >> symbol_;
        if (word == "name") words >> name_;
        if (word == "launch") words >> launch_;
        if (word == "most") words >> most_;
        if (word == "grid") has_grid_ = static_cast<bool>(words >> grid_[0] >> grid_[1] >> grid_[2]);
        if (word == "block") has_block_ = static_cast<bool>(words >> block_[0] >> block_[1] >> block_[2]);
        if (word == "variable") words >> variables_[variables_.size()];
      }
      sized_ = std::to_string(name_.size()) + name_;
      if (!name_.empty()) next = Phase::watching;
    }
    phase_.store(next, std::memory_order_release);
  }

  // `k` itself, as of extern "C", or a C++ name that has `1k` in it. Which of several kernels it is, the reader decides.
  bool is_of_kernel(const char* symbol) const {
    if (!symbol_.empty()) return symbol_ == symbol;
    if (name_ == symbol) return true;
    const char* at = symbol[0] == '_' && symbol[1] == 'Z' ? strstr(symbol, sized_.c_str()) : nullptr;
    return at != nullptr && (at[-1] < '0' || at[-1] > '9');
  }

  bool is_wanted(const LaunchCall& call, long number) const {
    if (launch_ > 0) return number == launch_;
    return (!has_grid_ || std::equal(grid_, grid_ + 3, call.grid)) && (!has_block_ || std::equal(block_, block_ + 3, call.block));
  }

  bool claim() const {
    const int file = open((folder_ + "/claimed").c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file >= 0) close(file);
    return file >= 0;
  }

  // -- before the launch --------------------------------------------------------------------------------

  void take(const LaunchCall& call) {
    describe(call);
    CUstreamCaptureStatus capturing = CU_STREAM_CAPTURE_STATUS_NONE;
    if (driver_.cuStreamIsCapturing(call.stream, &capturing) != CUDA_SUCCESS || capturing != CU_STREAM_CAPTURE_STATUS_NONE) {
      throw NotTaken{"graph"};
    }
    stream_ = call.stream;
    if (driver_.cuCtxGetCurrent(&context_) != CUDA_SUCCESS) throw NotTaken{"context"};
    read_arguments(call);
    find_pointers();
    find_variables(call);
    make_ranges();
    for (MemoryRange& range : ranges_) range.before = copied(range);
  }

  void describe(const LaunchCall& call) {
    std::ostringstream text;
    text << "\"symbol\":\"" << call.symbol << "\",\"number\":" << number_ << ",\"shared\":" << call.shared
         << ",\"cooperative\":" << (call.cooperative ? "true" : "false");
    const auto three = [&](const char* name, const unsigned* of) {
      text << ",\"" << name << "\":[" << of[0] << ',' << of[1] << ',' << of[2] << ']';
    };
    three("grid", call.grid);
    three("block", call.block);
    for (unsigned i = 0; call.config != nullptr && i < call.config->numAttrs; ++i) {
      const CUlaunchAttribute& attribute = call.config->attrs[i];
      if (attribute.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
        const unsigned cluster[] = {attribute.value.clusterDim.x, attribute.value.clusterDim.y, attribute.value.clusterDim.z};
        three("cluster", cluster);
      }
    }
    described_ = text.str();
  }

  void read_arguments(const LaunchCall& call) {
    if (driver_.of_function == nullptr || driver_.of_kernel == nullptr) throw NotTaken{"driver"};
    void* handle = call.function;
    size_t offset = 0, size = 0;
    GetParameter get = driver_.of_function;
    CUresult known = get(handle, 0, &offset, &size);
    if (known != CUDA_SUCCESS && driver_.of_kernel(handle, 0, &offset, &size) == CUDA_SUCCESS) {
      get = driver_.of_kernel;
      known = CUDA_SUCCESS;
    }
    const auto [buffer, buffer_size] = one_buffer(call.extra);
    for (size_t at = 0; known == CUDA_SUCCESS && (known = get(handle, at, &offset, &size)) == CUDA_SUCCESS; ++at) {
      const unsigned char* from = nullptr;
      if (buffer != nullptr && offset + size <= buffer_size) from = buffer + offset;
      if (call.parameters != nullptr) from = static_cast<const unsigned char*>(call.parameters[at]);
      if (from == nullptr) throw NotTaken{"arguments"};
      layout_.push_back({offset, size});
      if (bytes_.size() < offset + size) bytes_.resize(offset + size);
      memcpy(bytes_.data() + offset, from, size);
    }
  }

  // The form `extra`: one buffer for all arguments, and its size.
  static std::pair<const unsigned char*, size_t> one_buffer(void** extra) {
    const unsigned char* buffer = nullptr;
    size_t size = 0;
    for (; extra != nullptr && *extra != CU_LAUNCH_PARAM_END; extra += 2) {
      if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER) buffer = static_cast<const unsigned char*>(extra[1]);
      if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE) size = *static_cast<size_t*>(extra[1]);
    }
    return {buffer, size};
  }

  void find_pointers() {
    for (size_t at = 0; at < layout_.size(); ++at) {
      const auto [offset, size] = layout_[at];
      for (size_t inner = 0; inner + sizeof(CUdeviceptr) <= size; inner += sizeof(CUdeviceptr)) {
        CUdeviceptr address = 0;
        memcpy(&address, bytes_.data() + offset + inner, sizeof address);
        unsigned kind = 0;
        if (address == 0 || driver_.cuPointerGetAttribute(&kind, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) != CUDA_SUCCESS) continue;
        pointers_.push_back({at, inner, address, 0});
      }
    }
  }

  // Variables of the program that the reader asks about by their mangled names; most names are not there.
  void find_variables(const LaunchCall& call) {
    CUmodule module = nullptr;
    CUfunction function = call.function;
    if (driver_.cuFuncGetModule(&module, function) != CUDA_SUCCESS &&
        (driver_.function_of_kernel == nullptr || driver_.function_of_kernel(&function, call.function) != CUDA_SUCCESS ||
         driver_.cuFuncGetModule(&module, function) != CUDA_SUCCESS)) {
      return;
    }
    for (auto& [at, name] : variables_) {
      CUdeviceptr address = 0;
      size_t size = 0;
      if (driver_.cuModuleGetGlobal(&address, &size, module, name.c_str()) != CUDA_SUCCESS || size == 0) continue;
      MemoryRange range;
      range.base = range.begin = address;
      range.end = address + size;
      range.kind = "variable";
      named_.push_back({name, ranges_.size()});
      ranges_.push_back(range);
    }
  }

  void make_ranges() {
    size_t total = 0;
    CUdevice device = 0;
    driver_.cuCtxGetDevice(&device);
    for (PointerPlace& pointer : pointers_) {
      CUdeviceptr base = 0;
      size_t size = 0;
      if (driver_.cuMemGetAddressRange(&base, &size, pointer.address) != CUDA_SUCCESS) throw NotTaken{"range"};
      pointer.base = base;
      auto known = std::find_if(ranges_.begin(), ranges_.end(), [&](const MemoryRange& r) { return r.base == base; });
      if (known == ranges_.end()) {
        MemoryRange range;
        range.base = base;
        range.begin = pointer.address;
        range.end = base + size;
        range.kind = kind_of(pointer.address, device);
        ranges_.push_back(range);
      } else {
        known->begin = std::min(known->begin, pointer.address);
      }
    }
    for (const MemoryRange& range : ranges_) total += range.bytes();
    if (total > most_) throw NotTaken{"large"};
  }

  const char* kind_of(CUdeviceptr address, CUdevice device) const {
    unsigned kind = 0, managed = 0;
    int ordinal = device;
    driver_.cuPointerGetAttribute(&kind, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address);
    driver_.cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address);
    driver_.cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address);
    if (managed != 0) return "managed";
    if (kind == CU_MEMORYTYPE_HOST) return "host";
    if (ordinal != device) throw NotTaken{"peer"};
    return "device";
  }

  // A copy as of this place in the stream.
  CUdeviceptr copied(const MemoryRange& range) {
    CUdeviceptr copy = 0;
    if (driver_.cuMemAllocAsync(&copy, range.bytes(), stream_) != CUDA_SUCCESS) throw NotTaken{"memory"};
    if (driver_.cuMemcpyAsync(copy, range.begin, range.bytes(), stream_) != CUDA_SUCCESS) throw NotTaken{"copy"};
    return copy;
  }

  // -- after it -----------------------------------------------------------------------------------------

  void copy_outputs() {
    for (MemoryRange& range : ranges_) range.after = copied(range);
    if (driver_.cuEventCreate(&done_, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS || driver_.cuEventRecord(done_, stream_) != CUDA_SUCCESS) {
      throw NotTaken{"copy"};
    }
  }

  void fetch(bool last) {
    if (driver_.cuCtxPushCurrent(context_) != CUDA_SUCCESS) throw NotTaken{"ended"};
    CUcontext popped = nullptr;
    try {
      CUresult state = driver_.cuEventQuery(done_);
      for (int waited = 0; last && state == CUDA_ERROR_NOT_READY && waited < kLastMs; ++waited) {
        const timespec pause{0, 1'000'000};
        nanosleep(&pause, nullptr);
        state = driver_.cuEventQuery(done_);
      }
      if (state == CUDA_ERROR_NOT_READY && last) throw NotTaken{"ended"};
      if (state != CUDA_SUCCESS && state != CUDA_ERROR_NOT_READY) throw NotTaken{"fault"};
      if (state == CUDA_SUCCESS) write_all();
    } catch (...) {
      driver_.cuCtxPopCurrent(&popped);
      throw;
    }
    driver_.cuCtxPopCurrent(&popped);
  }

  void write_all() {
    CUstream own = nullptr;
    if (driver_.cuStreamCreate(&own, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) throw NotTaken{"fetch"};
    std::vector<char> first(kPiece), second(kPiece);
    const auto fetched = [&](CUdeviceptr from, std::vector<char>& to, size_t size) {
      return driver_.cuMemcpyDtoHAsync(to.data(), from, size, own) == CUDA_SUCCESS && driver_.cuStreamSynchronize(own) == CUDA_SUCCESS;
    };
    for (size_t at = 0; at < ranges_.size(); ++at) {
      MemoryRange& range = ranges_[at];
      for (size_t from = 0; !range.changed && from < range.bytes(); from += kPiece) {
        const size_t size = std::min(kPiece, range.bytes() - from);
        if (!fetched(range.before + from, first, size) || !fetched(range.after + from, second, size)) throw NotTaken{"fetch"};
        range.changed = memcmp(first.data(), second.data(), size) != 0;
      }
      for (const bool after : {false, true}) {
        if (after && !range.changed) continue;
        const int file = created(after ? "after" : "before", at);
        bool whole = file >= 0;
        for (size_t from = 0; whole && from < range.bytes(); from += kPiece) {
          const size_t size = std::min(kPiece, range.bytes() - from);
          whole = fetched((after ? range.after : range.before) + from, first, size) && written(file, first.data(), size);
        }
        if (file >= 0) close(file);
        if (!whole) throw NotTaken{"fetch"};
      }
      driver_.cuMemFreeAsync(range.before, own);  // the plain function may wait for all streams
      driver_.cuMemFreeAsync(range.after, own);
    }
    driver_.cuStreamDestroy(own);
    write_header("");
  }

  std::string path_of(const char* what, size_t at) const { return folder_ + "/" + what + "-" + std::to_string(at); }

  int created(const char* what, size_t at) const {
    return open(path_of(what, at).c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  }

  static bool written(int file, const char* from, size_t left) {
    while (left > 0) {
      const ssize_t done = write(file, from, left);
      if (done <= 0) return false;
      from += done;
      left -= static_cast<size_t>(done);
    }
    return true;
  }

  void refuse(const char* why) {
    why_ = why;
    write_header(why);
  }

  // The last thing that is written: the file is there whole or not at all.
  void write_header(const char* why) {
    std::ostringstream text;
    text << "{\"orbit\":1,\"why\":\"" << why << "\"," << described_ << ",\"parameters\":[";
    for (size_t i = 0; i < layout_.size(); ++i) text << (i ? "," : "") << '[' << layout_[i].first << ',' << layout_[i].second << ']';
    text << "],\"bytes\":\"";
    for (const unsigned char byte : bytes_) {
      char two[3];
      snprintf(two, sizeof two, "%02x", byte);
      text << two;
    }
    text << "\",\"pointers\":[";
    for (size_t i = 0; i < pointers_.size(); ++i) {
      const PointerPlace& p = pointers_[i];
      size_t range = 0;
      while (range < ranges_.size() && ranges_[range].base != p.base) ++range;
      text << (i ? "," : "") << '[' << p.parameter << ',' << p.offset << ',' << range << ']';
    }
    text << "],\"ranges\":[";
    for (size_t i = 0; i < ranges_.size(); ++i) {
      const MemoryRange& r = ranges_[i];
      text << (i ? "," : "") << "{\"base\":" << r.base << ",\"begin\":" << r.begin << ",\"bytes\":" << r.bytes() << ",\"kind\":\"" << r.kind
           << "\",\"changed\":" << (r.changed ? "true" : "false") << '}';
    }
    text << "],\"variables\":{";
    for (size_t i = 0; i < named_.size(); ++i) text << (i ? "," : "") << '"' << named_[i].first << "\":" << named_[i].second;
    text << "}}\n";
    const std::string whole = text.str(), temporary = folder_ + "/launch.json.tmp";
    const int file = open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file >= 0 && written(file, whole.data(), whole.size())) rename(temporary.c_str(), (folder_ + "/launch.json").c_str());
    if (file >= 0) close(file);
    phase_ = Phase::over;
  }

  static inline thread_local bool mine_ = false;  // this thread is inside the launch that is taken

  std::atomic<Phase> phase_{Phase::unread};
  std::atomic<long> seen_{0};
  std::mutex taking_;
  CaptureDriver driver_;
  std::string folder_, symbol_, name_, sized_, described_, why_;
  long launch_ = 0, number_ = 0;
  size_t most_ = size_t{4} << 30;
  unsigned grid_[3] = {}, block_[3] = {};
  bool has_grid_ = false, has_block_ = false;
  std::map<size_t, std::string> variables_;
  std::vector<std::pair<size_t, size_t>> layout_;  // offset and size of each parameter
  std::vector<unsigned char> bytes_;
  std::vector<PointerPlace> pointers_;
  std::vector<MemoryRange> ranges_;
  std::vector<std::pair<std::string, size_t>> named_;
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
  CUevent done_ = nullptr;
};

// Never destroyed: callbacks may come after the program's static destructors.
inline LaunchCapture& launch_capture() {
  static LaunchCapture* const instance = new LaunchCapture;
  return *instance;
}

// The recorder's watcher of calls (launch_watchers.h). A call after which the program may have waited for the GPU is any that is no launch.
inline bool capture_watcher(CUpti_CallbackDomain domain, CUpti_CallbackId id, const void* data) {
  if (own_calls) return true;
  LaunchCapture& capture = launch_capture();
  if (domain == CUPTI_CB_DOMAIN_RESOURCE) {
    if (id == CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING) capture.settle(true);
    return false;
  }
  const auto& call = *static_cast<const CUpti_CallbackData*>(data);
  LaunchCall launch;
  if (domain != CUPTI_CB_DOMAIN_DRIVER_API || !read_launch(id, call.functionParams, call.symbolName, launch)) {
    if (call.callbackSite == CUPTI_API_EXIT) capture.settle(false);
  } else if (call.callbackSite == CUPTI_API_ENTER) {
    capture.before(launch);
  } else {
    capture.after(call.functionReturnValue == nullptr ? 0 : *static_cast<const int*>(call.functionReturnValue));
  }
  return false;
}

// Whether a launch is wanted of this process. Registers the last look at one that is under way, for the process's exit.
inline bool captures_a_launch() {
  const char* folder = getenv("ORBIT_CAPTURE");
  if (folder == nullptr || *folder == '\0') return false;
  atexit([] { launch_capture().settle(true); });
  return true;
}

}  // namespace orbit
