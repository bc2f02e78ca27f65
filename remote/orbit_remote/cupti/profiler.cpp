// Counts launches of a process of ours: the GPU's counters by CUPTI's range profiler, and warp samples. Loaded by the child that
// runs a launch spec (counters/profiler.py), which launches the kernel once for each pass, on restored memory.
//
// Apart from the recorder (injection.cpp), which is in every run: a fault here costs a profile alone. Both use one CUPTI; the
// profiler needs no subscription, and the recorder must record nothing meanwhile.
//
// No exception leaves a function: they return nullptr where something failed, and orbit_why() says what, as a clause. Text that is
// returned is JSON and lasts until the next call. One thread at a time.

#include "launch_watchers.h"
#include "profiler_json.h"
#include "program_profile.h"

#include <cstdio>
#include <functional>
#include <memory>
#include <sstream>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using namespace orbit;

struct State {
  ProfilerCupti cupti;
  bool loaded = false;
  std::unique_ptr<Plan> plan;
  std::string planned;  // what the plan was made of
  std::unique_ptr<Counters> counters;
  std::unique_ptr<Samples> samples;
  std::string text;
  std::string why;
};

// Never destroyed: CUPTI may be gone when static destructors run.
State& state() {
  static State* const instance = new State;
  return *instance;
}

const char* done(const std::function<std::string(State&)>& work) {
  State& s = state();
  try {
    if (!s.loaded) s.cupti.load(ORBIT_CUPTI_LIBRARY);
    s.loaded = true;
    s.text = work(s);
    return s.text.c_str();
  } catch (const Failed& failed) {
    s.why = failed.why;
  } catch (const std::exception& error) {
    s.why = error.what();
  }
  s.counters.reset();
  s.samples.reset();
  return nullptr;
}

CUcontext current_context() {
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  CUcontext context = nullptr;
  if (driver != nullptr) {
    if (auto get = reinterpret_cast<CUresult (*)(CUcontext*)>(dlsym(driver, "cuCtxGetCurrent"))) get(&context);
    dlclose(driver);
  }
  if (context == nullptr) throw Failed{"no CUDA context is current"};
  return context;
}

template <typename T>
T& begun(const std::unique_ptr<T>& work) {
  if (work == nullptr) throw Failed{"it was not begun"};
  return *work;
}

std::vector<std::string> lines(const char* text) {
  std::vector<std::string> all;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    if (!line.empty()) all.push_back(line);
  }
  return all;
}

}  // namespace

// Why the last call failed.
EXPORT const char* orbit_why() { return state().why.c_str(); }

// `names` are counters, one a line. For the device of the current context, or for `chip` (GH100) without a GPU. Returns
// {"chip", "passes", "names": those that the chip has}.
EXPORT const char* orbit_plan(const char* names, const char* chip) {
  return done([&](State& s) {
    const CUcontext context = *chip == '\0' ? current_context() : nullptr;
    char of[32];
    snprintf(of, sizeof of, "%p\n", static_cast<void*>(context));
    const std::string planned = of + (chip + ("\n" + std::string(names)));
    if (s.plan == nullptr || s.planned != planned) {  // it takes 0.2 s
      s.counters.reset();
      s.plan.reset();
      auto plan = std::make_unique<Plan>(s.cupti);
      plan->make(context, chip, lines(names));
      s.plan = std::move(plan);
      s.planned = planned;
    }
    return of_plan(*s.plan);
  });
}

// From here on kernels are counted between the beginning and the end of a pass, at most `ranges` in each.
EXPORT const char* orbit_count(int ranges) {
  return done([&](State& s) {
    if (!s.plan) throw Failed{"there is no plan"};
    s.counters = std::make_unique<Counters>(s.cupti, *s.plan);
    s.counters->begin(current_context(), static_cast<size_t>(ranges), true);
    return std::string();
  });
}

EXPORT const char* orbit_pass_begin() {
  return done([](State& s) { return begun(s.counters).start(), std::string(); });
}

// Returns "true" once all passes have been made, else "false".
EXPORT const char* orbit_pass_end() {
  return done([](State& s) { return std::string(begun(s.counters).stop() ? "true" : "false"); });
}

// Returns the values of the plan's names, a list for each kernel of a pass.
EXPORT const char* orbit_counted() {
  return done([](State& s) {
    const std::string json = of_values(begun(s.counters).values());
    s.counters.reset();
    return json;
  });
}

// From here on warps are sampled, every 2^`exponent` cycles.
EXPORT const char* orbit_sample(int exponent) {
  return done([&](State& s) {
    s.samples = std::make_unique<Samples>(s.cupti);
    s.samples->begin(current_context(), static_cast<uint32_t>(exponent));
    return std::string();
  });
}

// Returns {"dropped", "places": [[function, offset, {reason: samples}], …]} of the kernels since the last call. Nothing may be under
// way on the GPU.
EXPORT const char* orbit_samples() {
  return done([](State& s) {
    Samples& samples = begun(s.samples);
    const Samples::Counts counts = samples.take();
    return of_samples(counts, samples.dropped);
  });
}

EXPORT const char* orbit_sampled() {
  return done([](State& s) { return s.samples.reset(), std::string(); });
}

// For the recorder of a program that is profiled: counts its launches from here on. nullptr where it cannot; the results say why.
EXPORT orbit::Watcher orbit_profile(CUpti_SubscriberHandle subscriber, const char* order, const char* folder) {
  static ProgramProfile* profile = nullptr;  // never destroyed
  try {
    profile = new ProgramProfile(order, folder, [] { atexit([] { profile->ended(); }); });
    profile->begin(subscriber);
  } catch (const Failed&) {
    return nullptr;
  } catch (const std::exception&) {
    return nullptr;
  }
  return [](CUpti_CallbackDomain domain, CUpti_CallbackId id, const void* data) {
    try {
      return profile->called(domain, id, data);
    } catch (const std::exception&) {  // of the standard library: no memory, no thread
      return false;
    }
  };
}
