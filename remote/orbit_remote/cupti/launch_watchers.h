// What else looks at a run's CUDA calls. CUPTI serves one subscriber a process, and the recorder is it: its callback passes each call on to
// the parts that were added here, each in a file of its own. A part enables what it wants to be told of itself.
#pragma once

#include <cupti.h>

namespace orbit {

// Before and after a call, on its thread; of a resource what CUPTI says of it. Returns whether the call is the part's own, of which neither
// the recorder nor another part is to know.
using Watcher = bool (*)(CUpti_CallbackDomain domain, CUpti_CallbackId id, const void* data);

class Watchers {
 public:
  // Before the first call, and for good.
  void add(Watcher watcher) {
    if (count_ < kMost) all_[count_++] = watcher;
  }

  bool pass_on(CUpti_CallbackDomain domain, CUpti_CallbackId id, const void* data) const {
    bool own = false;
    for (int i = 0; i < count_ && !own; ++i) own = all_[i](domain, id, data);
    return own;
  }

 private:
  static constexpr int kMost = 4;
  Watcher all_[kMost] = {};
  int count_ = 0;
};

}  // namespace orbit
