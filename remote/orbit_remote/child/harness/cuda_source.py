"""Makes a function of tensors from a CUDA source without host code: NVRTC compiles it in this process, and cuda.core
launches its kernel.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence
from typing import Any, Final

from orbit_remote.child.spec import cuda_backend
from orbit_remote.child.spec.helper_kernels import Stream, opt_in
from orbit_remote.common import architectures
from orbit_remote.common import messages as c
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.spec.dtypes import DTYPES
from orbit_remote.spec.values import Scalar

_ERROR: Final = re.compile(
    r"^(?P<file>[^\n(]+)\((?P<line>\d+)\): (?:catastrophic )?error(?: #\S+)?: (?P<words>.+)", re.MULTILINE
)
_NAMES: Final = "__nv_name_map"
_OF_NVCC: Final = re.compile(r"-O[0-3]|--?(?:expt-[a-z-]+|extended-lambda)")
_OF_NVCC_WITH_VALUE: Final = ("-arch", "-gencode", "-rdc", "-default-stream")
"""What says nothing to NVRTC, which refuses most of it: it always optimises, has no host code to share with, and compiles for the GPU
that it has.
"""
_FOLDERS: Final = ("-I", "-isystem")
_STANDARD: Final = (
    "array", "bit", "cmath", "complex", "concepts", "cstddef", "cstdint", "cstdlib", "cstring", "functional", "initializer_list", "iterator",
    "limits", "numeric", "optional", "tuple", "type_traits", "utility",
)  # fmt: skip
"""Headers of C++ that libcu++ has for a GPU, as <cuda/std/...>."""
_OF_C: Final = ("cassert", "cfloat", "climits", "cmath", "cstddef", "cstdint", "cstdio", "cstdlib", "cstring")
_IN_STD: Final = "namespace std { using namespace ::cuda::std; }\n"
_FLOATS: Final = """
#define FLT_MAX 3.40282346638528859812e+38F
#define FLT_MIN 1.17549435082228750797e-38F
#define FLT_EPSILON 1.1920928955078125e-7F
#define DBL_MAX 1.79769313486231570815e+308
#define DBL_MIN 2.22507385850720138309e-308
#define DBL_EPSILON 2.2204460492503130808e-16
"""
"""Limits of IEEE 754's binary32 and binary64: libcu++ defines none of these macros for NVRTC."""
_OPTED_IN: Final = 48 << 10
"""Dynamic shared memory beyond this has to be opted into (CUDA C++ Programming Guide, "Shared Memory")."""


class NotCompiledError(Exception):
    """NVRTC refused the source. The text is its log."""

    def failure(self) -> tuple[c.Failure, tuple[c.Problem, ...]]:
        """Return the first error, and all of them at the lines of the source."""
        problems = tuple(
            c.Problem("error", match["words"], "nvrtc", _place(match)) for match in _ERROR.finditer(str(self))
        )
        lines = [line for line in str(self).splitlines() if line.strip()]
        first = problems[0].message if problems else (lines or ["NVRTC gives no reason"])[0]
        text = f"the CUDA source does not compile: {first}"
        if first.startswith("cannot open source file"):
            text += "; NVRTC has CUDA's headers, <cuda/std/...>, and those of C++ and C that kernels use"
        place = problems[0].place if problems else None
        return c.Failure("compile error", text, place=place), problems or (c.Problem("error", text, "nvrtc"),)


def _place(match: re.Match[str]) -> c.Place | None:
    """Return a place, or None for NVRTC's own file, in which it looks for the kernel's name."""
    return None if match["file"] == _NAMES else c.Place(match["file"], int(match["line"]))


@dataclass(frozen=True, slots=True)
class SourceParameter:
    """A parameter. `element` is a name of `DTYPES`: the type of a scalar, or of a tensor's elements."""

    name: str
    element: str
    pointer: bool


class SourceKernel:
    """A kernel on torch's current device. `name` may have name spaces. `file` is the source's name in the compiler's
    messages. `flags` are in the spelling of `nvcc_flags.allowed_flags`.
    """

    def __init__(
        self, file: str, source: str, name: str, flags: Sequence[str], parameters: Sequence[SourceParameter]
    ) -> None:
        """Compile the kernel. Raises NotCompiledError, ImportError without cuda-core, and what cuda.core raises if
        the driver does not take the code.
        """
        torch = self._torch = importlib.import_module("torch")
        core = self._core = importlib.import_module("cuda.core")
        self._device: Any = core.Device(torch.cuda.current_device())
        self._device.set_current()
        capability = self._device.compute_capability
        architecture = architectures.architecture_of(f"{capability.major}.{capability.minor}")
        code, symbol = compiled(file, source, name, architecture, flags)
        self._kernel: Any = core.ObjectCode.from_cubin(code).get_kernel(symbol)
        self._parameters = parameters
        self._handle: int | None = None
        self._stream: Any = None
        self._allowed = _OPTED_IN

    def launch(self, grid: Sequence[int], block: Sequence[int], shared: int, values: Sequence[Any]) -> None:
        """Launch the kernel on torch's current stream. `shared` is in bytes. Raises TypeError for a value that does
        not fit its parameter.
        """
        current = int(self._torch.cuda.current_stream().cuda_stream)
        if current != self._handle:
            self._handle, self._stream = current, self._device.create_stream(Stream(self._torch))
        if shared > self._allowed:
            opt_in(self._kernel, self._device, shared)
            self._allowed = shared
        passed = [self._passed(*pair) for pair in zip(self._parameters, values, strict=True)]
        config = self._core.LaunchConfig(grid=tuple(grid), block=tuple(block), shmem_size=shared)
        self._core.launch(self._stream, config, self._kernel, *passed)

    def _passed(self, parameter: SourceParameter, value: Any) -> Any:
        dtype = DTYPES[parameter.element]
        if not parameter.pointer:
            return cuda_backend.number(self._torch, Scalar(value, dtype.name), dtype)
        if value.dtype is not getattr(self._torch, dtype.name) or not value.is_cuda:
            raise TypeError(
                f"{parameter.name} is a {value.dtype} on the {value.device.type}; the kernel takes {dtype.name} on the GPU"
            )
        return int(value.data_ptr())


def compiled(file: str, source: str, name: str, architecture: str, flags: Sequence[str]) -> tuple[bytes, str]:
    """Return the machine code, and the kernel's symbol in it. Raises NotCompiledError, and ImportError without
    cuda-bindings.
    """
    nvrtc: Any = importlib.import_module("cuda.bindings.nvrtc")

    def done(result: Any) -> Any:
        status, *values = result
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise NotCompiledError(f"NVRTC: {status.name}")
        return values[0] if values else None

    standard = _standard_headers()
    texts, names = ([word.encode() for word in words] for words in (standard.values(), standard))
    program = done(nvrtc.nvrtcCreateProgram(_read(source), file.encode(), len(standard), texts, names))
    try:
        done(nvrtc.nvrtcAddNameExpression(program, name.encode()))
        options = [f"--gpu-architecture={architecture}", *(f"-I{folder}" for folder in _headers())]
        options += _options(flags)
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            log = bytes(done(nvrtc.nvrtcGetProgramLogSize(program)))
            done(nvrtc.nvrtcGetProgramLog(program, log))
            raise NotCompiledError(
                log.rstrip(b"\0").decode(errors="replace").strip() or f"NVRTC: {status.name}"
            )
        code = bytes(done(nvrtc.nvrtcGetCUBINSize(program)))
        done(nvrtc.nvrtcGetCUBIN(program, code))
        return code, done(nvrtc.nvrtcGetLoweredName(program, name.encode())).decode()
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _read(source: str) -> bytes:
    """Return the source as nvcc reads it: without a byte order mark, and with NUL as a blank, because NVRTC's text
    would end there.
    """
    return source.removeprefix("\ufeff").replace("\0", " ").encode("utf-8", "surrogatepass")


def _options(flags: Sequence[str]) -> list[str]:
    """Return the flags as NVRTC takes them: each with its value in one word."""
    options: list[str] = []
    words = iter(flags)
    for flag in words:
        if _OF_NVCC.fullmatch(flag):
            continue
        if flag.startswith("--") or flag[:2] in ("-D", "-U") or flag == "-use_fast_math":
            options.append(flag)
            continue
        value = next(words, "")
        if flag in _FOLDERS:
            options += [f"-I{folder}" for folder in value.split(",")]
        elif flag == "-std":
            options.append(f"-std={value.replace('gnu', 'c')}")
        elif flag not in _OF_NVCC_WITH_VALUE:
            options.append(f"{flag}={value}")
    return options


def _headers() -> list[str]:
    """Return CUDA's own header folders, of wheels or of a toolkit, with those of CCCL and of cuRAND. NVRTC looks
    nowhere by itself.
    """
    pathfinder: Any = importlib.import_module("cuda.pathfinder")
    folders = [pathfinder.find_nvidia_header_directory(part) for part in ("cudart", "cccl", "curand")]
    return [folder for folder in dict.fromkeys(folders) if folder]


def _standard_headers() -> dict[str, str]:
    """Return texts by the names under which a source that is written for nvcc includes them: NVRTC has none of the
    host's headers.
    """
    headers = {name: f"#include <cuda/std/{name}>\n{_IN_STD}" for name in _STANDARD}
    headers["cmath"] += "#ifndef M_PI\n#define M_PI 3.14159265358979323846\n#endif\n"
    headers |= {"cassert": "#include <cuda/std/cassert>\n", "climits": "#include <cuda/std/climits>\n"}
    headers |= {"cfloat": _FLOATS, "cstdio": ""}  # NVRTC knows printf
    headers |= {f"{name[1:]}.h": text for name, text in headers.items() if name in _OF_C}
    return {name: f"#pragma once\n{text}" for name, text in headers.items()}
