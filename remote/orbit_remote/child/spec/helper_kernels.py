"""Our own kernels that launch specs need. They are compiled once for an architecture and kept."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
from pathlib import Path
from typing import Any, Final

from orbit_remote.common import limits, regular_files

_SOURCE: Final = r"""
// waits for `wanted` nanoseconds of the GPU's own clock and tells how long it was
extern "C" __global__ void orbit_clock(unsigned long long* length, unsigned long long wanted) {
  unsigned long long begin, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin)::"memory");
  do {
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)::"memory");
  } while (now - begin < wanted);
  *length = now - begin;
}

// what the block's multiprocessor counts, nanoseconds and cycles, at its multiprocessor's place
extern "C" __global__ void orbit_note_cycles(ulonglong2* notes, unsigned places) {
  unsigned at;
  asm volatile("mov.u32 %0, %smid;" : "=r"(at));
  if (at >= places) return;  // the numbers of multiprocessors may have gaps, says the PTX manual
  // the second time these instructions are in the cache, and the two readings close together
#pragma unroll 1
  for (int turn = 0; turn < 2; ++turn) {
    unsigned long long now, cycles;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)::"memory");
    asm volatile("mov.u64 %0, %clock64;" : "=l"(cycles)::"memory");
    notes[at] = make_ulonglong2(now, cycles);
  }
}

// fills the block's dynamic shared memory
extern "C" __global__ void orbit_fill_shared(unsigned pattern, unsigned words) {
  extern __shared__ unsigned memory[];
  for (unsigned at = threadIdx.x; at < words; at += blockDim.x)
    asm volatile("st.shared.u32 [%0], %1;" ::"r"((unsigned)__cvta_generic_to_shared(memory + at)), "r"(pattern));
}
"""


class Kernels:
    """The kernels on torch's current device and stream. Raises what cuda.core raises if the driver does not take
    them.
    """

    def __init__(self, torch: Any, cache: Path | None) -> None:
        self.core: Any = importlib.import_module("cuda.core")
        self.device: Any = self.core.Device(torch.cuda.current_device())
        self.device.set_current()
        self.stream: Any = self.device.create_stream(Stream(torch))
        self._code = self.core.ObjectCode.from_cubin(_code(self.core, self.device.arch, cache))

    def get(self, name: str) -> Any:
        return self._code.get_kernel(name)


class Stream:
    """torch's current stream, in the form in which cuda.core takes the streams of others."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, int(self._torch.cuda.current_stream().cuda_stream)


def load(torch: Any, cache: Path | None) -> Kernels | str:
    """Return the kernels, or in a few words why there are none."""
    try:
        return Kernels(torch, cache)
    except Exception as error:  # noqa: BLE001 - whatever cuda.core raises: a run does without
        return why(error)


def why(error: BaseException) -> str:
    """Describe an exception of cuda.core's in a few words."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]


def opt_in(kernel: Any, device: Any, shared: int) -> None:
    """Let the blocks of a kernel have more than 48 KB of dynamic shared memory. Raises RuntimeError."""
    driver: Any = importlib.import_module("cuda.bindings.driver")
    attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    (status,) = driver.cuKernelSetAttribute(
        attribute, shared, driver.CUkernel(int(kernel.handle)), driver.CUdevice(device.device_id)
    )
    if int(status) != 0:
        raise RuntimeError(f"the driver refuses {shared} bytes of dynamic shared memory: {status.name}")


def _code(core: Any, arch: str, cache: Path | None) -> bytes:
    """Return the code. Compiling takes 70 ms, once."""
    digest = hashlib.blake2b(_SOURCE.encode(), digest_size=6).hexdigest()
    kept = cache / f"kernels-{digest}-{arch}.cubin" if cache else None
    if kept is not None and kept.is_file():
        return regular_files.read(kept, limits.BUILD)
    made: bytes = core.Program(_SOURCE, "c++", core.ProgramOptions(arch=f"sm_{arch}")).compile("cubin").code
    if kept is not None:
        with contextlib.suppress(OSError):
            regular_files.replace(kept, made)
    return made
