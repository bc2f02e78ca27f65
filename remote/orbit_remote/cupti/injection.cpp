// Records every kernel launch of an unmodified CUDA program, and the first CUDA calls that failed.
//
// The CUDA driver loads this library while it initialises, because CUDA_INJECTION64_PATH names it,
// and calls InitializeInjection(). Why this way: LD_PRELOAD would miss a statically linked runtime
// and meddle with the symbols of programs that never use CUDA; loading the program into a process of
// ours would change what exit(), signals and static destructors do to it. Here the program is itself.
//
// Rules: no output but the file, no signal handler, no exception out of a callback, and nothing that
// changes an exit code. A program that uses CUPTI itself has the first right to it: then the file
// says so and records nothing (CUPTI serves one client a process).
//
// The file, <ORBIT_LAUNCHES>/<pid>.jsonl, is JSON lines, and not a binary log, because a crash may
// cut it anywhere: a torn line is seen at once and costs itself alone. Names are written once.
//     {"orbit": 1, "pid": …, "cupti": …}                      a process image begins (again after exec)
//     ["n", id, name]                                         a kernel's mangled name
//     ["k", id, grid×3, block×3, cluster×3, registers, static shared, dynamic shared, local per thread,
//      stream, device, serial, untimed, base, [starts - base, …], [durations, …]]
//                        launches of one configuration; `serial` is 1 or 0, `untimed` counts those without times
//     ["e", time, domain, function, code, name, last kernel]  a failed call
//     ["o", reason]                                           concurrent records from here on
//     ["r", text] remark, ["d", count] records CUPTI dropped, ["x"] the process came to its exit
//
// CUPTI is loaded by path and not linked: where it is missing this library still loads and says so,
// and the program's own libcupti, if it has one, can be seen before ours joins it.

#include <cupti.h>

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "launch_capture.h"
#include "launch_watchers.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using KernelRecord = ORBIT_KERNEL_RECORD;  // the newest CUpti_ActivityKernelN of the headers

constexpr size_t kBufferBytes = 256 << 10;  // about 1,000 records: a full buffer is delivered on its own
constexpr uint32_t kDeliveryPeriodMs = 100;
constexpr long kMostRecords = 1'000'000;
constexpr int kMostErrors = 8;
// A flush at a synchronising call makes a later crash lose nothing. It may take this much of the
// run: a fixed part, so that a short program is flushed at every one, and a share of a long one.
constexpr int64_t kFlushAllowanceNs = 100'000'000;
constexpr int64_t kFlushShare = 20;  // one part in …

#define CUPTI_FUNCTIONS(X)                                                                  \
  X(cuptiGetVersion) X(cuptiGetTimestamp) X(cuptiSubscribe) X(cuptiUnsubscribe)              \
  X(cuptiEnableCallback) X(cuptiActivityRegisterCallbacks) X(cuptiActivityEnable)            \
  X(cuptiActivityDisable) X(cuptiActivityFlushAll) X(cuptiActivityFlushPeriod)               \
  X(cuptiActivityGetNextRecord) X(cuptiActivityGetNumDroppedRecords)

struct Cupti {
#define DECLARE(f) decltype(&::f) f = nullptr;
  CUPTI_FUNCTIONS(DECLARE)
#undef DECLARE

  bool load(const char* path) {
    void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return false;
#define FIND(f)                                                            \
  if ((f = reinterpret_cast<decltype(f)>(dlsym(library, #f))) == nullptr) \
    return false;
    CUPTI_FUNCTIONS(FIND)
#undef FIND
    return true;
  }
};

// Never destroyed: CUPTI's own thread may deliver after the program's static destructors ran.
struct State {
  Cupti cupti;
  CUpti_SubscriberHandle subscriber = nullptr;
  CUpti_ActivityKind kind = CUPTI_ACTIVITY_KIND_KERNEL;
  bool recording = true;  // whether records of that kind are enabled
  bool automatic = true;  // serial records until the program can overlap kernels
  const char* overlaps = nullptr;  // why it can, once it can
  std::atomic<int> streams{0};
  std::atomic<int> contexts{0};
  std::mutex switching;  // kind, recording, automatic, overlaps
  std::mutex writing;   // the file, names, counts
  std::mutex flushing;  // one flush at a time; a second thread does not wait for it
  int file = -1;
  std::string context_mark;  // a file that lies there from the first context to the end (telemetry.Sampler)
  std::string pending;
  std::unordered_map<std::string, long> names;
  long records = 0;
  long beyond = 0;
  std::string last_kernel;
  int errors = 0;
  int64_t started = 0;
  int64_t flush_spent = 0;
  std::string folder;
  std::mutex leasing;  // leased
  bool leased = false;
  std::atomic<int64_t> waited{0};  // for the lease, in ns
  orbit::Watchers watchers;
};

State& state() {
  static State* const instance = new State;
  return *instance;
}

std::atomic<bool> active{false};  // false again in a forked child, whose CUDA is gone

int64_t now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

// -- writing; the caller holds `writing` -------------------------------------------------------------

__attribute__((format(printf, 2, 3))) void add(State& s, const char* format, ...) {
  char line[512];
  va_list arguments;
  va_start(arguments, format);
  const int length = vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  if (length > 0) s.pending.append(line, std::min(static_cast<size_t>(length), sizeof line - 1));
}

void add_text(State& s, const char* text) {
  s.pending += '"';
  for (const char* c = text; *c != '\0'; ++c) {
    const auto byte = static_cast<unsigned char>(*c);
    if (byte == '"' || byte == '\\') {
      s.pending += '\\';
      s.pending += *c;
    } else if (byte < 0x20) {
      add(s, "\\u%04x", byte);
    } else {
      s.pending += *c;
    }
  }
  s.pending += '"';
}

// One write for many lines; a full disk loses records, never the program.
void write_pending(State& s) {
  const char* at = s.pending.data();
  size_t left = s.pending.size();
  while (left > 0) {
    const ssize_t done = write(s.file, at, left);
    if (done <= 0) break;
    at += done;
    left -= static_cast<size_t>(done);
  }
  s.pending.clear();
}

void remark(State& s, const char* text) {
  s.pending += "[\"r\",";
  add_text(s, text);
  s.pending += "]\n";
  write_pending(s);
}

long name_id(State& s, const char* name) {
  const auto [entry, fresh] = s.names.try_emplace(name == nullptr ? "" : name, static_cast<long>(s.names.size()));
  if (fresh) {
    add(s, "[\"n\",%ld,", entry->second);
    add_text(s, entry->first.c_str());
    s.pending += "]\n";
  }
  return entry->second;
}

// The launches of one configuration in one buffer.
struct Batch {
  long untimed = 0;
  std::vector<uint64_t> starts;
  std::vector<uint64_t> durations;
};

// Name, grid, block, cluster, registers, shared memory (static, dynamic), local memory, stream, device, serial.
using Configuration = std::array<long, 17>;
using Batches = std::map<Configuration, Batch>;

void add_kernel(State& s, Batches& batches, const KernelRecord& k) {
  if (++s.records > kMostRecords) {
    ++s.beyond;
    return;
  }
  const Configuration configuration = {
      name_id(s, k.name), k.gridX, k.gridY, k.gridZ, k.blockX, k.blockY, k.blockZ,
      static_cast<long>(k.clusterX), static_cast<long>(k.clusterY), static_cast<long>(k.clusterZ),
      k.registersPerThread, k.staticSharedMemory, k.dynamicSharedMemory,
      static_cast<long>(k.localMemoryPerThread), static_cast<long>(k.streamId), static_cast<long>(k.deviceId),
      k.kind == CUPTI_ACTIVITY_KIND_KERNEL};
  Batch& batch = batches[configuration];
  if (k.start == 0 || k.end <= k.start) {  // CUPTI leaves both stamps 0 where it could not take them
    ++batch.untimed;
    return;
  }
  batch.starts.push_back(k.start);
  batch.durations.push_back(k.end - k.start);
}

void add_numbers(State& s, const std::vector<uint64_t>& numbers, uint64_t base) {
  s.pending += '[';
  char text[24];
  for (size_t i = 0; i < numbers.size(); ++i) {
    const int length = snprintf(text, sizeof text, i == 0 ? "%lld" : ",%lld", static_cast<long long>(numbers[i] - base));
    s.pending.append(text, static_cast<size_t>(length));
  }
  s.pending += ']';
}

void add_batches(State& s, const Batches& batches) {
  for (const auto& [configuration, batch] : batches) {
    s.pending += "[\"k\"";
    for (const long number : configuration) add(s, ",%ld", number);
    const uint64_t base = batch.starts.empty() ? 0 : batch.starts.front();
    add(s, ",%ld,%llu,", batch.untimed, static_cast<unsigned long long>(base));
    add_numbers(s, batch.starts, base);
    s.pending += ',';
    add_numbers(s, batch.durations, 0);
    s.pending += "]\n";
  }
}

// -- what CUPTI calls --------------------------------------------------------------------------------

void CUPTIAPI buffer_requested(uint8_t** buffer, size_t* size, size_t* most) {
  *buffer = static_cast<uint8_t*>(aligned_alloc(8, kBufferBytes));
  *size = *buffer == nullptr ? 0 : kBufferBytes;
  *most = 0;
}

void CUPTIAPI buffer_completed(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  State& s = state();
  if (active.load(std::memory_order_acquire)) {
    const std::lock_guard<std::mutex> hold(s.writing);
    CUpti_Activity* record = nullptr;
    Batches batches;
    while (valid > 0 && s.cupti.cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
      if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL || record->kind == CUPTI_ACTIVITY_KIND_KERNEL) {
        add_kernel(s, batches, *reinterpret_cast<const KernelRecord*>(record));
      }
    }
    add_batches(s, batches);
    size_t dropped = 0;
    if (s.cupti.cuptiActivityGetNumDroppedRecords(nullptr, 0, &dropped) == CUPTI_SUCCESS && dropped > 0) {
      add(s, "[\"d\",%zu]\n", dropped);
    }
    write_pending(s);
  }
  free(buffer);
}

void flush(State& s, bool whatever_it_takes, uint32_t flag) {
  std::unique_lock<std::mutex> hold(s.flushing, std::defer_lock);
  if (whatever_it_takes) {
    hold.lock();
  } else if (!hold.try_lock() || s.flush_spent > kFlushAllowanceNs + (now() - s.started) / kFlushShare) {
    return;
  }
  const int64_t began = now();
  s.cupti.cuptiActivityFlushAll(flag);
  s.flush_spent += now() - began;
}

void note_error(State& s, CUpti_CallbackDomain domain, const char* function, int code) {
  const char* name = nullptr;
  if (void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD)) {
    if (auto naming = reinterpret_cast<CUresult (*)(CUresult, const char**)>(dlsym(driver, "cuGetErrorName"))) {
      naming(static_cast<CUresult>(code), &name);
    }
    dlclose(driver);
  }
  uint64_t time = 0;
  s.cupti.cuptiGetTimestamp(&time);
  {
    const std::lock_guard<std::mutex> hold(s.writing);
    if (++s.errors > kMostErrors) return;
    add(s, "[\"e\",%llu,\"%s\",\"%s\",%d,", static_cast<unsigned long long>(time),
        domain == CUPTI_CB_DOMAIN_DRIVER_API ? "driver" : "runtime", function, code);
    add_text(s, name == nullptr ? "" : name);
    s.pending += ',';
    add_text(s, s.last_kernel.c_str());
    s.pending += "]\n";
    write_pending(s);
  }
  // The program may be about to abort. Not forced: what has ended but has no end time yet would be
  // delivered without one.
  flush(s, true, 0);
}

// -- the lease --------------------------------------------------------------------------------------

// Before the first context, where the worker holds contexts back until it has the GPU's lease (recording/first_context.py).
// A second thread waits for the first. Nothing else of ours is locked meanwhile, and the lock ends with the worker. Whatever is wrong with the files, the program goes on.
void wait_for_lease(State& s) {
  const std::lock_guard<std::mutex> hold(s.leasing);
  if (s.leased) return;
  s.leased = true;
  const int64_t began = now();
  const int asked = open((s.folder + "/lease.asked").c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
  if (asked < 0) return;
  const bool told = write(asked, "\n", 1) == 1;
  close(asked);
  const int lock = told ? open((s.folder + "/lease.lock").c_str(), O_RDONLY | O_CLOEXEC) : -1;
  if (lock < 0) return;
  while (flock(lock, LOCK_SH) != 0 && errno == EINTR) {
  }
  close(lock);
  s.waited = now() - began;
}

// -- which records ----------------------------------------------------------------------------------

// Records of `wanted` from here on, or none. Launches that are under way stay as they are. The caller holds `switching`.
bool enable(State& s, bool recording, CUpti_ActivityKind wanted) {
  if (s.recording && (!recording || wanted != s.kind)) {
    if (s.cupti.cuptiActivityDisable(s.kind) != CUPTI_SUCCESS) return false;
    s.recording = false;
  }
  if (recording && !s.recording) {
    if (s.cupti.cuptiActivityEnable(wanted) != CUPTI_SUCCESS) return false;
    s.kind = wanted;
    s.recording = true;
  }
  return true;
}

// From now on the program can have two kernels on the GPU at once, and may count on it: serial records would make the
// second wait for the end of the first, for ever if that waits for the second. To be called before the first launch
// that can overlap another: what was launched under serial records keeps the GPU to itself.
void overlap(State& s, const char* why) {
  const std::lock_guard<std::mutex> hold(s.switching);
  if (s.overlaps != nullptr) return;
  s.overlaps = why;
  if (!s.automatic || !s.recording || s.kind != CUPTI_ACTIVITY_KIND_KERNEL) return;
  enable(s, true, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  const std::lock_guard<std::mutex> write(s.writing);
  s.pending += "[\"o\",";
  add_text(s, why);
  s.pending += "]\n";
  write_pending(s);
}

// A stream that does not wait for the default stream can overlap it; two streams can overlap each other.
void stream_created(State& s, unsigned flags) {
  if (flags & CU_STREAM_NON_BLOCKING) overlap(s, "it creates a stream that does not wait for the default stream");
  else if (++s.streams > 1) overlap(s, "it creates several streams");
}

bool launches_early(const CUlaunchConfig* config) {
  for (unsigned i = 0; config != nullptr && i < config->numAttrs; ++i) {
    const CUlaunchAttributeID id = config->attrs[i].id;
    if (id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION || id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT) return true;
  }
  return false;
}

enum class Role { context, launch, launch_extended, launch_per_thread, graph, stream, stream_priority, synchronise, allocate, reset };

// The calls we are told about. The runtime's own and the driver's below it: some failures (a launch
// with too many threads) never reach the driver, and Triton has no runtime.
struct Watched {
  CUpti_CallbackDomain domain;
  CUpti_CallbackId id;
  Role role;
};

#define DRIVER(name, role) {CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_##name, Role::role},
#define RUNTIME(name, role) {CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_RUNTIME_TRACE_CBID_##name, Role::role},

constexpr Watched kWatched[] = {
    DRIVER(cuDevicePrimaryCtxRetain, context)  // the runtime comes here too
    DRIVER(cuCtxCreate, context) DRIVER(cuCtxCreate_v2, context) DRIVER(cuCtxCreate_v3, context)
#if CUPTI_API_VERSION >= 24
    DRIVER(cuCtxCreate_v4, context)
#endif
    DRIVER(cuLaunchKernel, launch) DRIVER(cuLaunchKernel_ptsz, launch_per_thread)
    DRIVER(cuLaunchKernelEx, launch_extended) DRIVER(cuLaunchKernelEx_ptsz, launch_per_thread)
    DRIVER(cuLaunchCooperativeKernel, launch) DRIVER(cuLaunchCooperativeKernel_ptsz, launch_per_thread)
    DRIVER(cuGraphLaunch, graph) DRIVER(cuGraphLaunch_ptsz, graph)
    DRIVER(cuStreamBeginCapture, graph) DRIVER(cuStreamBeginCapture_v2, graph) DRIVER(cuStreamBeginCapture_v2_ptsz, graph)
    DRIVER(cuGraphInstantiate, graph) DRIVER(cuGraphInstantiate_v2, graph)
    DRIVER(cuGraphInstantiateWithFlags, graph) DRIVER(cuGraphInstantiateWithParams, graph)
    DRIVER(cuGraphInstantiateWithParams_ptsz, graph)
    DRIVER(cuStreamCreate, stream) DRIVER(cuStreamCreateWithPriority, stream_priority)
    DRIVER(cuCtxSynchronize, synchronise)
    DRIVER(cuStreamSynchronize, synchronise) DRIVER(cuStreamSynchronize_ptsz, synchronise)
    DRIVER(cuEventSynchronize, synchronise)
    DRIVER(cuMemcpy, synchronise) DRIVER(cuMemcpy_ptds, synchronise)
    DRIVER(cuMemcpyDtoH_v2, synchronise) DRIVER(cuMemcpyDtoH_v2_ptds, synchronise)
    DRIVER(cuMemAlloc_v2, allocate) DRIVER(cuMemAllocManaged, allocate)
    DRIVER(cuMemAllocAsync, allocate) DRIVER(cuMemAllocAsync_ptsz, allocate)
    RUNTIME(cudaLaunchKernel_v7000, launch) RUNTIME(cudaLaunchKernel_ptsz_v7000, launch)
    RUNTIME(cudaLaunchKernelExC_v11060, launch) RUNTIME(cudaLaunchKernelExC_ptsz_v11060, launch)
    RUNTIME(cudaLaunchCooperativeKernel_v9000, launch) RUNTIME(cudaLaunchCooperativeKernel_ptsz_v9000, launch)
    RUNTIME(cudaGraphLaunch_v10000, launch) RUNTIME(cudaGraphLaunch_ptsz_v10000, launch)
    RUNTIME(cudaDeviceSynchronize_v3020, synchronise)
    RUNTIME(cudaStreamSynchronize_v3020, synchronise) RUNTIME(cudaStreamSynchronize_ptsz_v7000, synchronise)
    RUNTIME(cudaEventSynchronize_v3020, synchronise)
    RUNTIME(cudaMemcpy_v3020, synchronise) RUNTIME(cudaMemcpy_ptds_v7000, synchronise)
    RUNTIME(cudaMalloc_v3020, allocate) RUNTIME(cudaMallocManaged_v6000, allocate)
    RUNTIME(cudaFree_v3020, allocate)
    RUNTIME(cudaDeviceReset_v3020, reset)
#if CUPTI_API_VERSION >= 130000
    DRIVER(cuCtxSynchronize_v2, synchronise)
    RUNTIME(__cudaLaunchKernel_v13000, launch) RUNTIME(__cudaLaunchKernel_ptsz_v13000, launch)
#endif
};

#undef DRIVER
#undef RUNTIME

Role role_of(CUpti_CallbackDomain domain, CUpti_CallbackId id) {
  for (const Watched& w : kWatched) {
    if (w.domain == domain && w.id == id) return w.role;
  }
  return Role::allocate;
}

bool is_launch(Role role) {
  return role == Role::launch || role == Role::launch_extended || role == Role::launch_per_thread || role == Role::graph;
}

constexpr const char* kPerThread = "it uses a default stream per thread";

void entered(State& s, CUpti_CallbackDomain domain, Role role, const void* parameters) {
  switch (role) {
    case Role::context:
      wait_for_lease(s);
      break;
    case Role::reset:
      flush(s, true, 0);
      break;
    case Role::graph:
      overlap(s, "it makes a CUDA graph");
      break;
    case Role::launch_per_thread:
      overlap(s, kPerThread);
      break;
    case Role::launch:  // cuLaunchCooperativeKernel's parameters begin with the same
      if (domain == CUPTI_CB_DOMAIN_DRIVER_API &&
          static_cast<const cuLaunchKernel_params*>(parameters)->hStream == CU_STREAM_PER_THREAD) {
        overlap(s, kPerThread);
      }
      break;
    case Role::launch_extended: {
      const CUlaunchConfig* config = static_cast<const cuLaunchKernelEx_params*>(parameters)->config;
      if (launches_early(config)) overlap(s, "it launches a kernel before the one ahead of it has ended");
      if (config != nullptr && config->hStream == CU_STREAM_PER_THREAD) overlap(s, kPerThread);
      break;
    }
    case Role::stream:
      stream_created(s, static_cast<const cuStreamCreate_params*>(parameters)->Flags);
      break;
    case Role::stream_priority:
      stream_created(s, static_cast<const cuStreamCreateWithPriority_params*>(parameters)->flags);
      break;
    default:
      break;
  }
}

void CUPTIAPI called(void*, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void* data) {
  if (!active.load(std::memory_order_acquire)) return;
  State& s = state();
  if (s.watchers.pass_on(domain, id, data)) return;
  if (domain == CUPTI_CB_DOMAIN_RESOURCE) {
    if (id == CUPTI_CBID_RESOURCE_CONTEXT_CREATED) {
      wait_for_lease(s);  // by a call that we do not know
      const int mark = open(s.context_mark.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
      if (mark >= 0) close(mark);
      if (++s.contexts > 1) overlap(s, "it uses several GPUs or contexts");
    } else {  // a context is about to go, and its records with it
      flush(s, true, 0);
    }
    return;
  }
  const auto& call = *static_cast<const CUpti_CallbackData*>(data);
  const Role role = role_of(domain, id);
  if (call.callbackSite == CUPTI_API_ENTER) {
    entered(s, domain, role, call.functionParams);
    return;
  }
  if (role == Role::context) return;
  if (is_launch(role) && call.symbolName != nullptr) {
    const std::lock_guard<std::mutex> hold(s.writing);
    if (s.last_kernel != call.symbolName) s.last_kernel = call.symbolName;
  }
  const int code = call.functionReturnValue == nullptr ? 0 : *static_cast<const int*>(call.functionReturnValue);
  if (code != 0) {
    note_error(s, domain, call.functionName, code);
  } else if (role == Role::synchronise) {
    flush(s, false, 0);
  }
}

// -- profiles ---------------------------------------------------------------------------------------

// ORBIT_PROFILER counts launches as ORBIT_PROFILE says (program_profile.h). It is a library of its own, so that a run that is not profiled has
// nothing of it.
void begin_profile(State& s) {
  const char* path = getenv("ORBIT_PROFILER");
  const char* order = getenv("ORBIT_PROFILE");
  if (path == nullptr || order == nullptr) return;
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return;
  const auto profile =
      reinterpret_cast<orbit::Watcher (*)(CUpti_SubscriberHandle, const char*, const char*)>(dlsym(library, "orbit_profile"));
  if (profile == nullptr) return;
  if (const orbit::Watcher watcher = profile(s.subscriber, order, s.folder.c_str())) s.watchers.add(watcher);
}

// -- beginning and end -------------------------------------------------------------------------------

// A forked child has neither our CUDA context nor CUPTI's thread, and perhaps a lock held by a
// thread that is not here: it must not even look.
void in_forked_child() { active.store(false, std::memory_order_release); }

void at_exit() {
  if (!active.load(std::memory_order_acquire)) return;
  State& s = state();
  flush(s, true, CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  unlink(s.context_mark.c_str());
  const std::lock_guard<std::mutex> hold(s.writing);
  if (s.beyond > 0) add(s, "[\"d\",%ld]\n", s.beyond);
  s.pending += "[\"x\"]\n";
  write_pending(s);
}

// Whether the program has a CUPTI, beside `ours` if that is given.
bool has_cupti(const char* ours) {
  struct Looked {
    const char* ours;
    bool found;
  } looked{ours, false};
  const auto look = [](dl_phdr_info* library, size_t, void* data) {
    Looked& looked = *static_cast<Looked*>(data);
    char path[PATH_MAX];
    if (strstr(library->dlpi_name, "libcupti.so") == nullptr) return 0;
    if (looked.ours != nullptr && realpath(library->dlpi_name, path) != nullptr && strcmp(path, looked.ours) == 0) return 0;
    looked.found = true;
    return 1;
  };
  dl_iterate_phdr(look, &looked);
  return looked.found;
}

void add_header(State& s) {
  add(s, "{\"orbit\":1,\"pid\":%d,\"cupti\":%d}\n", static_cast<int>(getpid()), CUPTI_API_VERSION);
}

bool open_file(State& s, const char* directory) {
  s.folder = directory;
  const std::string path = s.folder + "/" + std::to_string(getpid());
  s.context_mark = path + ".context";
  s.file = open((path + ".jsonl").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (s.file < 0) return false;
  add_header(s);
  write_pending(s);
  return true;
}

bool begin(State& s) {
  if (!s.cupti.load(ORBIT_CUPTI_LIBRARY)) {
    remark(s, "CUPTI could not be loaded from " ORBIT_CUPTI_LIBRARY "; launches were not recorded");
    return false;
  }
  uint32_t version = 0;
  s.cupti.cuptiGetVersion(&version);
  if (version != CUPTI_API_VERSION) {  // its records would have another layout
    remark(s, "CUPTI changed since the recorder was built; launches were not recorded");
    return false;
  }
  if (s.cupti.cuptiSubscribe(&s.subscriber, called, nullptr) != CUPTI_SUCCESS) {
    remark(s, "another CUPTI client (a profiler or a debugger) holds this process; launches were not recorded");
    return false;
  }
  // Serial records change no kernel, but let no two overlap; concurrent records let kernels overlap as they do without
  // us, and lengthen some kernels of many blocks by up to 10 % (docs/measuring.md). Both add a constant.
  const char* wanted = getenv("ORBIT_RECORD");
  if (wanted != nullptr && strcmp(wanted, "concurrent") == 0) s.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  const bool nothing = wanted != nullptr && strcmp(wanted, "nothing") == 0;
  s.recording = !nothing;
  s.automatic = wanted == nullptr || (!nothing && strcmp(wanted, "serial") != 0 && strcmp(wanted, "concurrent") != 0);
  s.started = now();
  if (orbit::captures_a_launch()) s.watchers.add(orbit::capture_watcher);
  active.store(true, std::memory_order_release);
  if (s.cupti.cuptiActivityRegisterCallbacks(buffer_requested, buffer_completed) != CUPTI_SUCCESS ||
      (s.recording && s.cupti.cuptiActivityEnable(s.kind) != CUPTI_SUCCESS)) {
    active.store(false, std::memory_order_release);
    s.cupti.cuptiUnsubscribe(s.subscriber);
    remark(s, "CUPTI refused to record kernels on this machine; launches were not recorded");
    return false;
  }
  s.cupti.cuptiActivityFlushPeriod(kDeliveryPeriodMs);
  begin_profile(s);
  for (const Watched& w : kWatched) s.cupti.cuptiEnableCallback(1, s.subscriber, w.domain, w.id);
  for (const auto id : {CUPTI_CBID_RESOURCE_CONTEXT_CREATED, CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING}) {
    s.cupti.cuptiEnableCallback(1, s.subscriber, CUPTI_CB_DOMAIN_RESOURCE, id);
  }
  pthread_atfork(nullptr, nullptr, in_forked_child);
  atexit(at_exit);
  return true;
}

}  // namespace

// Called by the driver. Whatever it finds, the program goes on as if it had not been called.
EXPORT int InitializeInjection() {
  const char* directory = getenv("ORBIT_LAUNCHES");
  State& s = state();
  if (directory == nullptr || s.file >= 0 || !open_file(s, directory)) return 1;
  // torch brings a CUPTI into every process, which it uses only for its profiler
  const bool shares = getenv("ORBIT_SHARES_CUPTI") != nullptr;
  if (has_cupti(shares ? ORBIT_CUPTI_LIBRARY : nullptr)) {
    remark(s, "the program uses CUPTI itself; launches were not recorded");
  } else if (begin(s)) {
    return 1;
  }
  wait_for_lease(s);  // nobody tells us of the first context
  return 1;
}

// For a process of ours (the child that runs Python): the same recorder, begun and ended on purpose,
// so that a profiler the user's code starts can have CUPTI. All but the first do nothing unless it
// returned 1.
EXPORT int orbit_begin(const char* directory) {
  State& s = state();
  if (s.file >= 0 || !open_file(s, directory)) return 0;
  return begin(s) ? 1 : 0;
}

// How long this process has waited for the GPU's lease, in ns.
EXPORT long long orbit_waited() { return state().waited.load(); }

EXPORT unsigned long long orbit_timestamp() {
  uint64_t time = 0;
  if (active.load(std::memory_order_acquire)) state().cupti.cuptiGetTimestamp(&time);
  return time;
}

// What is recorded from here on: 0 nothing, 1 concurrent records, 2 serial ones, 3 whichever suits what the process has
// done so far. No kernel may be under way.
EXPORT int orbit_record(int wanted) {
  if (!active.load(std::memory_order_acquire)) return 0;
  State& s = state();
  const std::lock_guard<std::mutex> hold(s.switching);
  const bool serial = wanted == 2 || (wanted == 3 && s.overlaps == nullptr);
  const CUpti_ActivityKind kind = serial ? CUPTI_ACTIVITY_KIND_KERNEL : CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  s.automatic = wanted == 3;
  if (s.recording && (wanted == 0 || kind != s.kind)) flush(s, true, CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  return enable(s, wanted != 0, kind) ? 1 : 0;
}

// Everything that has ended is in the file when it returns.
EXPORT void orbit_flush() {
  if (active.load(std::memory_order_acquire)) flush(state(), true, CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
}

// Empties the file, so that as many launches can be recorded again: for a process that lives for hours.
EXPORT void orbit_forget() {
  if (!active.load(std::memory_order_acquire)) return;
  State& s = state();
  flush(s, true, CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  const std::lock_guard<std::mutex> hold(s.switching);
  const std::lock_guard<std::mutex> write(s.writing);
  if (ftruncate(s.file, 0) != 0) return;
  s.names.clear();
  s.records = s.beyond = 0;
  s.errors = 0;
  add_header(s);
  if (s.overlaps != nullptr) {
    s.pending += "[\"o\",";
    add_text(s, s.overlaps);
    s.pending += "]\n";
  }
  write_pending(s);
}

// With a reason, another client gets CUPTI, and nobody will tell us of the first context: so the GPU's lease is waited for here.
EXPORT void orbit_end(const char* why) {
  State& s = state();
  const bool yields = why != nullptr && *why != '\0';
  if (yields && s.file < 0) {  // before CUDA began: InitializeInjection then finds a file, and begins nothing
    const char* directory = getenv("ORBIT_LAUNCHES");
    if (directory != nullptr && open_file(s, directory)) remark(s, why);
  }
  if (yields && s.file >= 0) wait_for_lease(s);
  if (!active.load(std::memory_order_acquire)) return;
  if (s.recording) s.cupti.cuptiActivityDisable(s.kind);
  at_exit();
  active.store(false, std::memory_order_release);
  s.cupti.cuptiUnsubscribe(s.subscriber);
  if (yields) {
    const std::lock_guard<std::mutex> hold(s.writing);
    remark(s, why);
  }
}
