"""Memory that two processes see: a GPU's by CUDA IPC, the host's by descriptors of memory files.

On the GPU the driver itself allocates memory for arguments, because not every allocator's memory can be exported.
Both kinds are read and written through a tensor of bytes.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import time
from typing import Any, Final

from orbit_remote.common import measure
from orbit_remote.common.lazy_dataclass import dataclass

ALIGNED: Final = 512
_LAZY_PEER_ACCESS: Final = 1
_DEVICE_MAP: Final = 2
_AT_LEAST: Final = 0  # CU_STREAM_WAIT_VALUE_GEQ
DONE: Final = 16
BEGUN: Final = 32
"""The words of a page of flags that say which call has ended and which has begun; word 0 opens a gate. 64 bytes apart."""


Handle = dict[str, Any]


class HandleError(ValueError):
    """A handle names no memory of its side."""


@dataclass(frozen=True, slots=True)
class MappedMemory:
    """Memory of this process. `handle` and `descriptor` (None on a GPU) are for the other one."""

    data: Any
    size: int
    handle: Handle
    descriptor: int | None = None


class HostMemory:
    """The memory for `device="cpu"`: the judge's logic without a GPU. What a side returns is copied once into a
    memory file.
    """

    device = "cpu"
    gates = False

    def __init__(self, torch: Any) -> None:
        torch.set_num_threads(1)  # two sides and a judge share the cores, and wait for each other
        self._torch = torch

    def allocate(self, size: int) -> MappedMemory:
        descriptor = os.memfd_create("orbit-judge")
        os.ftruncate(descriptor, size)
        return MappedMemory(self._mapped(descriptor, size), size, {"bytes": size}, descriptor)

    def open(self, handle: Handle, descriptors: list[int]) -> Any:
        """Open the other process's region, for as long as this process lives."""
        return self._mapped(descriptors[0], int(handle["bytes"]))

    def _mapped(self, descriptor: int, size: int) -> Any:
        return self._torch.frombuffer(mmap.mmap(descriptor, size), dtype=self._torch.uint8)

    def share(self, tensor: Any, at: int) -> tuple[Handle, int]:
        """Share a tensor without gaps with the other process, in the order of its bytes. `at` counts the tensors of
        one message.
        """
        size = tensor.numel() * tensor.element_size()
        descriptor = os.memfd_create("orbit-output")
        os.ftruncate(descriptor, max(1, size))
        if size:
            mapped = mmap.mmap(descriptor, size)
            flat = self._torch.as_strided(tensor.detach(), (tensor.numel(),), (1,)).view(self._torch.uint8)
            self._torch.frombuffer(mapped, dtype=self._torch.uint8).copy_(flat)
        return {"descriptor": at}, descriptor

    def shared(self, handle: Handle, size: int, descriptors: list[int]) -> Any:
        """Return what the other process shared. It is read once, so that it cannot be changed or cut short while it
        is compared. Raises HandleError.
        """
        at = handle.get("descriptor")
        if not isinstance(at, int) or not 0 <= at < len(descriptors):
            raise HandleError("an output without its memory")
        content = bytearray(os.pread(descriptors[at], size, 0))
        while 0 < len(content) < size and (
            more := os.pread(descriptors[at], size - len(content), len(content))
        ):
            content += more
        if len(content) != size:
            raise HandleError(f"an output of {size} bytes has {len(content)}")
        return (
            self._torch.frombuffer(content, dtype=self._torch.uint8)
            if size
            else self._torch.empty(0, dtype=self._torch.uint8)
        )

    def wait(self) -> None:
        """Do nothing: nothing is under way on a host."""

    def touch(self, data: Any) -> None:
        """A host needs no touch."""

    def known_kernel(self) -> None:
        """Do nothing: nothing of a host's is recorded."""

    def pause(self) -> None:
        """Pause between two looks at a flag: the other process may need this core."""
        time.sleep(2e-5)

    def flush(self) -> None:
        """A host's caches are left as they are."""

    def free(self) -> int:
        return 8 << 30


class _Handle(ctypes.Structure):
    _fields_ = (("reserved", ctypes.c_ubyte * 64),)


class _Bytes:
    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (size,), "typestr": "|u1", "data": (address, False), "strides": None, "version": 3,
        }  # fmt: skip


class CudaMemory:
    """A GPU's memory. This process's CUDA context begins with it. Raises OSError if the driver refuses."""

    device = "cuda"
    gates = True

    def __init__(self, torch: Any, device: int) -> None:
        self._torch = torch
        torch.cuda.set_device(device)
        torch.empty(1, device="cuda")
        torch.cuda.synchronize()
        driver = ctypes.CDLL("libcuda.so.1")
        driver.cuIpcGetMemHandle.argtypes = [ctypes.c_void_p, ctypes.c_uint64]
        driver.cuIpcOpenMemHandle_v2.argtypes = [ctypes.c_void_p, _Handle, ctypes.c_uint]
        driver.cuMemGetAddressRange_v2.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64]
        driver.cuMemAlloc_v2.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        driver.cuMemHostRegister_v2.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint]
        driver.cuMemHostGetDevicePointer_v2.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint]
        for name in ("cuStreamWaitValue32_v2", "cuStreamWriteValue32_v2"):
            getattr(driver, name).argtypes = [
                ctypes.c_void_p,
                ctypes.c_uint64,
                ctypes.c_uint32,
                ctypes.c_uint,
            ]
        self._driver = driver
        self._opened: dict[str, tuple[Any, int]] = {}
        self._kept: Any = None
        self._synchronize = torch.cuda.synchronize
        self._flags = 0
        self._flushed: Any = None
        self._sink: Any = None
        self._touched: Any = None
        self._behind: Any = torch.cuda.Event(enable_timing=True)
        self._few: Any = None
        self._total: Any = None

    def _call(self, name: str, *arguments: object) -> None:
        if code := int(getattr(self._driver, name)(*arguments)):
            raise OSError(f"{name} failed with CUDA error {code}")

    def allocate(self, size: int) -> MappedMemory:
        address = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(address), size)
        return MappedMemory(
            self._bytes(address.value, size), size, {"ipc": self._export(address.value), "bytes": size}
        )

    def open(self, handle: Handle, descriptors: list[int]) -> Any:
        del descriptors
        data, _ = self._mapping(str(handle["ipc"]))
        return data

    def share(self, tensor: Any, at: int) -> tuple[Handle, int | None]:
        del at
        address = int(tensor.data_ptr())
        base, _ = self._range(address)
        try:
            name = self._export(base)  # every time: other memory may have come to the same address
        except OSError:  # managed, pooled or mapped memory: a copy stands for it
            copy = tensor.clone()
            base, _ = self._range(int(copy.data_ptr()))
            self._kept = copy
            return {"ipc": self._export(base), "offset": int(copy.data_ptr()) - base}, None
        return {"ipc": name, "offset": address - base}, None

    def shared(self, handle: Handle, size: int, descriptors: list[int]) -> Any:
        """Return a tensor of `size` bytes over memory that the side exported. Raises HandleError."""
        del descriptors
        name, offset = handle.get("ipc"), handle.get("offset")
        if not isinstance(name, str) or not isinstance(offset, int):
            raise HandleError("an output without its memory")
        try:
            data, whole = self._mapping(name)
        except (OSError, ValueError) as error:
            raise HandleError(f"an output whose memory cannot be opened: {error}") from None
        if not 0 <= offset <= offset + size <= whole:
            raise HandleError("an output that reaches beyond its memory")
        return data[offset : offset + size]

    def _mapping(self, name: str) -> tuple[Any, int]:
        if name not in self._opened:
            handle, address = _Handle(), ctypes.c_uint64()
            content = bytes.fromhex(name)
            if len(content) != 64:
                raise ValueError("no handle")
            ctypes.memmove(handle.reserved, content, 64)
            self._call("cuIpcOpenMemHandle_v2", ctypes.byref(address), handle, _LAZY_PEER_ACCESS)
            _, size = self._range(address.value)
            self._opened[name] = self._bytes(address.value, size), size
        return self._opened[name]

    def _export(self, address: int) -> str:
        handle = _Handle()
        self._call("cuIpcGetMemHandle", ctypes.byref(handle), address)
        return bytes(handle.reserved).hex()

    def _range(self, address: int) -> tuple[int, int]:
        base, size = ctypes.c_uint64(), ctypes.c_size_t()
        self._call("cuMemGetAddressRange_v2", ctypes.byref(base), ctypes.byref(size), address)
        return base.value, size.value

    def _bytes(self, address: int, size: int) -> Any:
        return self._torch.as_tensor(_Bytes(address, size), device="cuda")

    def wait(self) -> None:
        """Wait for all that this process has launched. torch's function takes 40 µs longer, and says what is wrong."""
        if self._driver.cuCtxSynchronize():
            self._synchronize()

    def touch(self, data: Any) -> None:
        """Read a few bytes of `data`. Then the GPU has switched to this process and knows its pages, as in a program
        that runs alone. A timed call knows them before its gate: otherwise work behind the gate that runs during a
        long touch would cost nothing.
        """
        self._touched = self._torch.amax(data[:: 1 << 16])
        self._behind.record()  # else a kernel that may begin before the one before it has ended (PDL) would do so here

    def known_kernel(self) -> None:
        """A short kernel, which is the same at each call."""
        if self._few is None:
            self._few = self._torch.zeros(measure.KNOWN, dtype=self._torch.float32, device="cuda")
            self._total = self._torch.zeros((), dtype=self._torch.float32, device="cuda")
        self._torch.sum(self._few, dim=0, out=self._total)

    def pause(self) -> None:
        """Do not pause between two looks at a flag, because the pause would be in the time."""

    def free(self) -> int:
        return int(self._torch.cuda.mem_get_info()[0])

    # -- gates --------------------------------------------------------------------------------------

    def see_flags(self, page: mmap.mmap) -> None:
        """A page that the GPU reads and writes too."""
        address = ctypes.addressof(ctypes.c_char.from_buffer(page))
        self._call("cuMemHostRegister_v2", address, len(page), _DEVICE_MAP)
        seen = ctypes.c_uint64()
        self._call("cuMemHostGetDevicePointer_v2", ctypes.byref(seen), address, 0)
        self._flags = seen.value

    def wait_for_gate(self, number: int) -> None:
        """Make what is launched from here on wait until word 0 is at least `number`."""
        stream = int(self._torch.cuda.current_stream().cuda_stream)
        self._call("cuStreamWaitValue32_v2", stream, self._flags, number, _AT_LEAST)

    def tell(self, word: int, number: int) -> None:
        """Write `number` to a word of the page of flags, after what has been launched until here."""
        stream = int(self._torch.cuda.current_stream().cuda_stream)
        self._call("cuStreamWriteValue32_v2", stream, self._flags + 4 * word, number, 0)

    def flush(self) -> None:
        """Push out what is in L2 by reads, what was set aside in it too."""
        torch = self._torch
        if self._flushed is None:
            size = measure.FLUSHED * int(
                torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size
            )
            self._flushed = torch.zeros(size // 4, dtype=torch.float32, device="cuda")
            self._sink = torch.zeros((), dtype=torch.float32, device="cuda")
        self._driver.cuCtxResetPersistingL2Cache()
        torch.sum(self._flushed, dim=0, out=self._sink)


Memory = HostMemory | CudaMemory


def of(torch: Any, device: str, index: int) -> Memory:
    """Return memory for tensors on `device` (`cuda` or `cpu`). `index` is the GPU's, from 0."""
    return CudaMemory(torch, index) if device == "cuda" else HostMemory(torch)


def bandwidth(torch: Any, own: Memory) -> float | None:
    """Return the bytes per second that this GPU writes, at best of a few fills."""
    data = torch.empty(min(1 << 30, own.free() // 4), dtype=torch.uint8, device="cuda")
    best = 0.0
    for _ in range(4):
        own.wait()
        began = time.perf_counter_ns()
        data.zero_()
        own.wait()
        best = max(best, data.numel() / (time.perf_counter_ns() - began) * 1e9)
    return best
