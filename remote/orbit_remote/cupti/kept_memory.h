// The memory of a launch that is made again: kept and restored, and pushed out of L2.
#pragma once

#include "driver_calls.h"

#include <cupti_checkpoint.h>
#include <elf.h>

#include <cstdint>
#include <cstring>
#include <set>
#include <string>
#include <vector>

namespace orbit {

// The kernels of a cubin that the driver has loaded, and its variables in the GPU's memory (`__device__ int count;`): mangled names. Empty for
// what is no cubin.
class CubinNames {
 public:
  uint64_t checksum = 0;  // CUPTI's
  std::set<std::string> functions;
  std::vector<std::string> variables;

  CubinNames(const char* content, size_t size) : content_(content), size_(size) {
    Elf64_Ehdr header;
    if (!has(0, sizeof header)) return;
    memcpy(&header, content_, sizeof header);
    if (memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_shentsize != sizeof(Elf64_Shdr)) return;
    if (!has(header.e_shoff, size_t{header.e_shnum} * sizeof(Elf64_Shdr))) return;
    sections_.resize(header.e_shnum);
    memcpy(sections_.data(), content_ + header.e_shoff, sections_.size() * sizeof(Elf64_Shdr));
    for (const Elf64_Shdr& section : sections_) {
      if (section.sh_type != SHT_SYMTAB || !has(section.sh_offset, section.sh_size)) continue;
      for (size_t offset = 0; offset + sizeof(Elf64_Sym) <= section.sh_size; offset += sizeof(Elf64_Sym)) {
        Elf64_Sym symbol;
        memcpy(&symbol, content_ + section.sh_offset + offset, sizeof symbol);
        if (symbol.st_shndx != SHN_UNDEF && symbol.st_shndx < sections_.size()) add(symbol, section.sh_link, header.e_shstrndx);
      }
    }
  }

 private:
  void add(const Elf64_Sym& symbol, size_t names, size_t places) {
    const auto type = ELF64_ST_TYPE(symbol.st_info);
    if (type == STT_FUNC) functions.insert(text(names, symbol.st_name));
    if (type != STT_OBJECT || symbol.st_size == 0) return;
    if (text(places, sections_[symbol.st_shndx].sh_name).rfind(".nv.global", 0) == 0) variables.push_back(text(names, symbol.st_name));
  }

  bool has(size_t offset, size_t size) const { return offset <= size_ && size <= size_ - offset; }

  std::string text(size_t table, size_t offset) const {
    if (table >= sections_.size() || offset >= sections_[table].sh_size || !has(sections_[table].sh_offset, sections_[table].sh_size)) return {};
    const char* begin = content_ + sections_[table].sh_offset + offset;
    return std::string(begin, strnlen(begin, sections_[table].sh_size - offset));
  }

  const char* content_;
  size_t size_;
  std::vector<Elf64_Shdr> sections_;
};

// What a context has in its memory, kept on the GPU by CUPTI's checkpoints, which leave out the variables of modules.
class KeptMemory {
 public:
  // Throws Failed. What does not fit beside itself would go to the host, from where each pass would bring it back over the bus.
  KeptMemory(const Driver& driver, CUcontext context) {
    size_t left = 0, all = 0;
    if (driver.cuMemGetInfo(&left, &all) == CUDA_SUCCESS && left < all - left) throw Failed{kNoRoom};
    find();
    kept_.structSize = CUpti_Checkpoint_STRUCT_SIZE;
    kept_.ctx = context;
    const CUptiResult result = save_(&kept_);
    if (result == CUPTI_ERROR_OUT_OF_MEMORY) throw Failed{kNoRoom};
    if (result != CUPTI_SUCCESS) throw Failed{"CUPTI could not keep the program's GPU memory (error " + std::to_string(result) + ")"};
    saved_ = true;
  }
  KeptMemory(const KeptMemory&) = delete;
  KeptMemory& operator=(const KeptMemory&) = delete;
  ~KeptMemory() {
    if (saved_) free_(&kept_);
  }

  // The context is broken: no call of it may be made any more.
  void abandon() { saved_ = false; }

  // Throws Failed.
  void restore() {
    const CUptiResult result = restore_(&kept_);
    if (result != CUPTI_SUCCESS) throw Failed{"CUPTI could not restore the program's GPU memory (error " + std::to_string(result) + ")"};
  }

 private:
  using Work = CUptiResult (*)(NV::Cupti::Checkpoint::CUpti_Checkpoint*);
  using CUpti_Checkpoint = NV::Cupti::Checkpoint::CUpti_Checkpoint;

  void find() {
    const std::string beside = ORBIT_CUPTI_LIBRARY;
    const std::string path = beside.substr(0, beside.rfind('/') + 1) + "libcheckpoint.so";
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) throw Failed{"CUPTI's libcheckpoint.so could not be loaded from " + path};
    save_ = reinterpret_cast<Work>(dlsym(library, "cuptiCheckpointSave"));
    restore_ = reinterpret_cast<Work>(dlsym(library, "cuptiCheckpointRestore"));
    free_ = reinterpret_cast<Work>(dlsym(library, "cuptiCheckpointFree"));
    if (save_ == nullptr || restore_ == nullptr || free_ == nullptr) throw Failed{path + " lacks CUPTI's checkpoints"};
  }

  static constexpr const char* kNoRoom = "there is no room to keep the program's GPU memory while its kernel is launched again";
  CUpti_Checkpoint kept_{};
  Work save_ = nullptr, restore_ = nullptr, free_ = nullptr;
  bool saved_ = false;
};

// Pushes what is in L2 out of it, by reads: lines that a write had left there would have to be written back in the time of the kernel. The
// copies have one small target.
class ColdCache {
 public:
  explicit ColdCache(const Driver& driver) : driver_(driver) {
    CUdevice device = 0;
    int l2 = 0;
    driver_.cuCtxGetDevice(&device);
    driver_.cuDeviceGetAttribute(&l2, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, device);
    parts_ = (kTimes * static_cast<size_t>(l2) + kPart - 1) / kPart;
    if (driver_.cuMemAlloc(&memory_, (parts_ + 1) * kPart) != CUDA_SUCCESS) throw Failed{"there is no GPU memory left to empty L2 with"};
  }
  ColdCache(const ColdCache&) = delete;
  ColdCache& operator=(const ColdCache&) = delete;
  ~ColdCache() {
    if (memory_ != 0) driver_.cuMemFree(memory_);
  }

  void abandon() { memory_ = 0; }

  void flush() {
    for (size_t part = 1; part <= parts_; ++part) driver_.cuMemcpyDtoDAsync(memory_, memory_ + part * kPart, kPart, nullptr);
    driver_.cuCtxSynchronize();
  }

 private:
  static constexpr size_t kTimes = 3;  // as much as L2 holds: measure.FLUSHED
  static constexpr size_t kPart = 1 << 20;
  const Driver& driver_;
  CUdeviceptr memory_ = 0;
  size_t parts_ = 0;
};

// The variables of a kernel's module.
class KeptVariables {
 public:
  // Throws Failed.
  KeptVariables(const Driver& driver, CUmodule module, const std::vector<std::string>& names) : driver_(driver) {
    size_t total = 0;
    for (const std::string& name : names) {
      Variable variable{};
      if (driver_.cuModuleGetGlobal(&variable.address, &variable.size, module, name.c_str()) != CUDA_SUCCESS) {
        throw Failed{"the variable " + name + " beside its kernel cannot be restored"};
      }
      variable.offset = total;
      total += variable.size;
      variables_.push_back(variable);
    }
    if (total > 0 && driver_.cuMemAlloc(&copy_, total) != CUDA_SUCCESS) throw Failed{"there is no GPU memory left to keep the variables beside its kernel in"};
    for (const Variable& each : variables_) driver_.cuMemcpyDtoDAsync(copy_ + each.offset, each.address, each.size, nullptr);
    driver_.cuCtxSynchronize();
  }
  KeptVariables(const KeptVariables&) = delete;
  KeptVariables& operator=(const KeptVariables&) = delete;
  ~KeptVariables() {
    if (copy_ != 0) driver_.cuMemFree(copy_);
  }

  void restore() {
    for (const Variable& each : variables_) driver_.cuMemcpyDtoDAsync(each.address, copy_ + each.offset, each.size, nullptr);
    if (!variables_.empty()) driver_.cuCtxSynchronize();
  }

  // See KeptMemory.
  void abandon() { copy_ = 0; }

 private:
  struct Variable {
    CUdeviceptr address;
    size_t size, offset;
  };
  const Driver& driver_;
  std::vector<Variable> variables_;
  CUdeviceptr copy_ = 0;
};

}  // namespace orbit
