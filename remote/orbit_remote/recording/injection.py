"""Builds the launch recorder (cupti/injection.cpp), loads it into programs, reads what it wrote.

The recorder is compiled where it is used, against the CUPTI that is there. Activity records change their layout
between versions of CUPTI, so a ready-made recorder would be right for only one of them. It takes under a second, once
per machine.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import importlib.util
import itertools
import os
import re
import subprocess
import sys
import tempfile
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from itertools import islice
from operator import gt
from pathlib import Path
from typing import Any, cast

from orbit_remote import PACKAGE
from orbit_remote.common import codec, limits, regular_files
from orbit_remote.common.launch_records import (
    TICK_NS,
    Added,
    CudaError,
    LaunchRecord,
    LaunchSeries,
    clock_label,
)
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.packages import installing
from orbit_remote.process import client_environment, disk_space, tool_output

SOURCE = PACKAGE / "cupti" / "injection.cpp"
PROFILER = PACKAGE / "cupti" / "profiler.cpp"
"""Counts launches, for profiles; `counters.profiler` uses it."""
_FLAGS = [
    *["-std=c++17", "-O2", "-fPIC", "-shared", "-Wall", "-Wextra", "-fvisibility=hidden", "-fno-gnu-unique"],
    # a program may bring an older C++ library than the compiler's
    *["-static-libstdc++", "-static-libgcc", "-Wl,--exclude-libs,ALL"],
]
_BUILD_TIMEOUT_S = 120.0
_NUMBERED_AS_CUDA = 130000
_OWN_HEADER = re.compile(rb'^#include "([\w.]+)"', re.MULTILINE)

_RUNTIME_NAMES = {
    9: "cudaErrorInvalidConfiguration",
    13: "cudaErrorInvalidSymbol",
    35: "cudaErrorInsufficientDriver",
    46: "cudaErrorDevicesUnavailable",
    52: "cudaErrorMissingConfiguration",
    98: "cudaErrorInvalidDeviceFunction",
}
"""Runtime errors that have no equal in the driver; all others share the driver's numbers and names."""


class RecorderUnavailableError(Exception):
    """Launches cannot be recorded on this machine. `remedy` says what is missing."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class Cupti:
    """A CUPTI to build against: its headers (the folders that hold cupti.h and cuda.h) and library."""

    includes: tuple[Path, ...]
    library: Path
    version: int
    record: str

    @property
    def has_range_profiler(self) -> bool:
        """Say whether its headers are of CUDA 12.6 or newer."""
        wanted = ("cupti_range_profiler.h", "cupti_profiler_host.h")
        return any(all((folder / name).is_file() for name in wanted) for folder in self.includes)

    @property
    def release(self) -> str:
        """Return the release, such as `13.0`. NVIDIA numbers CUPTI's interface like CUDA from 13 on; before it
        counted from 1.
        """
        if self.version >= _NUMBERED_AS_CUDA:
            return f"{self.version // 10000}.{self.version // 100 % 100}"
        return f"API version {self.version}"


@dataclass(frozen=True, slots=True)
class Overhead:
    """What each kind of record adds to the time of a launch. None if it is not known."""

    serial: Added | None = None
    concurrent: Added | None = None


UNKNOWN = Overhead()


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """What the processes of one run did. `unfinished` counts the launches of each kernel that never ended; the kernel
    that was launched last comes last.
    """

    series: tuple[LaunchSeries, ...] = ()
    errors: tuple[CudaError, ...] = ()
    unfinished: Mapping[str, int] = field(default_factory=dict[str, int])
    remarks: tuple[str, ...] = ()
    overlap: str = ""
    """Why kernels of the program can overlap; empty where they cannot."""

    @property
    def records(self) -> tuple[LaunchRecord, ...]:
        """Return every launch by itself, in order of start. Use it for few launches."""
        single = (record for launches in self.series for record in launches.records())
        return tuple(sorted(single, key=lambda r: r.start_ns))

    def before(self, time_ns: int) -> RecordedRun:
        """Return the run without the launches from that time on: they were not the program's."""
        earlier = (launches.where(lambda start: start < time_ns) for launches in self.series)
        return replace(self, series=tuple(launches for launches in earlier if launches.count))

    def since(self, time_ns: int) -> RecordedRun:
        """Return the run without what was before: it belongs to another job. Remarks have no time and are left out."""
        later = (launches.where(lambda start: start >= time_ns) for launches in self.series)
        kept = tuple(launches for launches in later if launches.starts)
        errors = tuple(error for error in self.errors if error.time_ns >= time_ns)
        return RecordedRun(kept, errors, remarks=_of_overlap(self.overlap, kept), overlap=self.overlap)


def _of_overlap(why: str, series: Iterable[LaunchSeries]) -> tuple[str, ...]:
    if not why or all(launches.serial for launches in series):
        return ()
    recorded = (
        "so they are recorded without being serialized: kernels of many blocks can take up to 10 % longer"
    )
    return (f"kernels of this program can overlap ({why}), {recorded}",)


# -- finding CUPTI ----------------------------------------------------------------------------------


def find(*, nvcc: str | None = None, in_this_process: bool = False) -> Cupti:
    """Return the CUPTI of the toolkit that `nvcc` belongs to, else of another toolkit, else of a wheel.

    `in_this_process` is for recording a Python process. It prefers the CUPTI that torch has loaded, because a second
    CUPTI would get no records; then torch's wheels before toolkits. Raises RecorderUnavailableError.
    """
    toolkits, wheels, triton = _toolkits(nvcc), _wheels(), _triton()
    order = (wheels, toolkits, triton) if in_this_process else (toolkits, wheels, triton)
    candidates = [cupti for place in itertools.chain(*order) if (cupti := _cupti_at(*place)) is not None]
    for library, version in _loaded().items() if in_this_process else ():
        # its headers may come from elsewhere, as long as they are of its version
        if fitting := next((cupti for cupti in candidates if cupti.version == version), None):
            return replace(fitting, library=library)
    if candidates:
        return candidates[0]
    raise RecorderUnavailableError(
        "launches cannot be measured: there is no CUPTI on this machine (cupti.h and libcupti.so)",
        f"install the CUDA toolkit, or: {installing.remedy(sys.executable, 'nvidia-cuda-cupti')}",
    )


def _loaded() -> dict[Path, int]:
    """Return the CUPTI libraries that this process has loaded, with their versions."""
    lines = _text(Path("/proc/self/maps")).splitlines()
    libraries: dict[Path, int] = {}
    for path in {Path(line.split(maxsplit=5)[5]).resolve() for line in lines if "/libcupti.so" in line}:
        version = ctypes.c_uint32()
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(str(path)).cuptiGetVersion(ctypes.byref(version))
            libraries[path] = version.value
    return libraries


_Place = tuple[list[Path], list[Path]]
"""Folders of headers and folders of libraries that belong together."""


def _toolkits(nvcc: str | None) -> Iterator[_Place]:
    roots = [
        *map(client_environment.current().get, ("CUDA_HOME", "CUDA_PATH")),
        "/usr/local/cuda",
        "/opt/cuda",
    ]
    compiler = client_environment.which(nvcc or "nvcc")
    if compiler is not None:
        roots.insert(0, str(Path(compiler).resolve().parent.parent))
    for root in dict.fromkeys(Path(r) for r in roots if r):
        folders = [root, root / "extras" / "CUPTI", *sorted(root.glob("targets/*-linux"))]
        yield [f / "include" for f in folders], [f / lib for f in folders for lib in ("lib64", "lib")]


def _wheels() -> Iterator[_Place]:
    spec = importlib.util.find_spec("nvidia")
    for root in map(Path, (spec.submodule_search_locations or ()) if spec else ()):
        for whole in sorted(root.glob("cu[0-9]*"), reverse=True):  # CUDA 13: one tree for all wheels
            yield [whole / "include"], [whole / "lib"]
        apart = [root / part / "include" for part in ("cuda_cupti", "cuda_runtime")]
        yield apart, [root / "cuda_cupti" / "lib"]


def _triton() -> Iterator[_Place]:
    """Yield the places of Triton's package: it brings headers and a CUPTI for its own profiler."""
    spec = importlib.util.find_spec("triton")
    for root in map(Path, (spec.submodule_search_locations or ()) if spec else ()):
        vendor = root / "backends" / "nvidia"
        yield [vendor / "include"], [vendor / "lib" / "cupti"]


_HEADERS = ("cupti.h", "cuda.h", "crt/host_defines.h")
"""What the recorder's source comes to; the wheels that torch brings have the first two alone."""


def _cupti_at(includes: list[Path], libraries: list[Path]) -> Cupti | None:
    headers = [next((i for i in includes if (i / h).is_file()), None) for h in _HEADERS]
    library = next(
        (f for folder in libraries for f in sorted(folder.glob("libcupti.so*"), reverse=True)), None
    )
    if library is None or None in headers:
        return None
    known = tuple(dict.fromkeys(h for h in headers if h is not None))
    version = re.search(r"#define\s+CUPTI_API_VERSION\s+(\d+)", _text(known[0] / "cupti_version.h"))
    layouts = re.findall(r"}\s*CUpti_ActivityKernel(\d+)\s*;", _text(known[0] / "cupti_activity.h"))
    if version is None or not layouts or max(map(int, layouts)) < 9:
        return None  # older than CUDA 12
    return Cupti(known, library.resolve(), int(version[1]), f"CUpti_ActivityKernel{max(map(int, layouts))}")


def _text(path: Path) -> str:
    try:
        return regular_files.text(path, limits.SOURCE)
    except OSError:
        return ""


# -- building ---------------------------------------------------------------------------------------


def build(cache: Path, cupti: Cupti, *, compiler: str = "g++", source: Path | None = None) -> Path:
    """Return the recorder for this CUPTI, or another library of `source`. It is compiled unless `cache` has it.
    Raises RecorderUnavailableError.
    """
    source = source or SOURCE
    gxx = client_environment.which(compiler)
    if gxx is None:
        raise RecorderUnavailableError(
            "launches cannot be measured: there is no C++ compiler (g++)", "install g++"
        )
    defines = [f"-DORBIT_KERNEL_RECORD={cupti.record}", f'-DORBIT_CUPTI_LIBRARY="{cupti.library}"']
    options = [*_FLAGS, *defines, *(f"-I{folder}" for folder in cupti.includes)]
    key = hashlib.sha256()
    for part in (
        *_texts(source),
        str(cupti.version).encode(),
        *(o.encode() for o in options),
    ):
        key.update(part + b"\0")
    target = cache / f"{source.stem}-{key.hexdigest()[:20]}.so"
    if target.is_file():
        return target
    cache.mkdir(parents=True, exist_ok=True)
    # a name of our own and then a rename: another process may build or load the same at this moment
    handle, name = tempfile.mkstemp(prefix=f"{source.stem}-", suffix=".tmp", dir=cache)
    os.close(handle)
    try:
        done = tool_output.ask(
            [gxx, *options, str(source), "-o", name, "-ldl", "-lpthread"], timeout_s=_BUILD_TIMEOUT_S
        )
        if done.status != 0 or not Path(name).stat().st_size:
            if disk_space.SAID.search(done.stderr):
                full = cache if disk_space.full(cache) else disk_space.temporary()
                raise RecorderUnavailableError(
                    f"launches cannot be measured: there is no space left in {full} to compile the launch recorder",
                    "free some space there and try again",
                )
            raise RecorderUnavailableError(
                "launches cannot be measured: the launch recorder did not compile: "
                + next((line for line in done.stderr.splitlines() if "error" in line), done.stderr[-300:]),
                f"check that {gxx} works and that the headers in {cupti.includes[0]} are whole",
            )
        Path(name).chmod(0o755)
        Path(name).replace(target)
    except subprocess.TimeoutExpired:
        raise RecorderUnavailableError(
            "launches cannot be measured: compiling the launch recorder hung", ""
        ) from None
    finally:
        Path(name).unlink(missing_ok=True)
    return target


def _texts(source: Path) -> list[bytes]:
    """Return a source and our headers that it includes."""
    text = regular_files.read(source, limits.SOURCE)
    own = (source.parent / name.decode() for name in _OWN_HEADER.findall(text))
    return [text, *itertools.chain.from_iterable(map(_texts, own))]


def environment(
    directory: Path, *, cache: Path, nvcc: str | None = None, compiler: str = "g++"
) -> dict[str, str]:
    """Return the environment with which a CUDA program writes its launches to `directory`.

    The first call on a machine compiles for a second; call it off the event loop. Raises RecorderUnavailableError.
    """
    if sys.platform != "linux":
        raise RecorderUnavailableError("launches can be measured on Linux only", "run it on a Linux machine")
    library = build(cache, find(nvcc=nvcc), compiler=compiler)
    directory.mkdir(parents=True, exist_ok=True)
    return {"CUDA_INJECTION64_PATH": str(library), "ORBIT_LAUNCHES": str(directory)}


# -- reading ----------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Process:
    """What a file recorded of one process image, which has names and an end of its own."""

    pid: int
    names: dict[int, str] = field(default_factory=dict[int, str])
    recording: bool = True
    came_to_exit: bool = False


@dataclass(slots=True)
class _RecordReader:
    """What the lines of one or several files have recorded so far."""

    overhead: Overhead
    series: dict[tuple[int | str, ...], LaunchSeries] = field(
        default_factory=dict[tuple[int | str, ...], LaunchSeries]
    )
    errors: list[CudaError] = field(default_factory=list["CudaError"])
    remarks: list[str] = field(default_factory=list[str])
    processes: list[_Process] = field(default_factory=list[_Process])
    unfinished: dict[str, int] = field(default_factory=dict[str, int])
    overlap: str = ""
    dropped: int = 0

    def line(self, line: bytes, process: _Process | None) -> _Process | None:
        """Return the process that this line and those after it are about."""
        item = _parse(line)
        if isinstance(item, dict):
            process = _begin(item)
            self.processes += [process] if process else []
        elif isinstance(item, list) and item and process is not None:
            with contextlib.suppress(KeyError, TypeError, ValueError, OverflowError):  # torn
                self._item(item, process)
        return process

    def _item(self, item: list[Any], process: _Process) -> None:
        match item:
            case ["n", int(key), str(name)]:
                process.names[key] = name
            case ["k", *fields]:
                self._launches(fields, process)
            case ["e", *fields]:
                self.errors.append(_error(fields, process))
            case ["o", str(reason)]:
                self.overlap = reason
            case ["r", str(text)]:
                self.remarks.append(text)
                process.recording = False
            case ["d", int(count)]:
                self.dropped += count
            case ["x"]:
                process.came_to_exit = True
            case _:
                pass

    def _launches(self, fields: list[Any], process: _Process) -> None:
        *configuration, untimed, base, offsets, durations = fields
        if len(configuration) != _CONFIGURATION or not all(
            isinstance(n, int) for n in (*configuration, untimed, base)
        ):
            raise ValueError("not a launch")
        symbol = process.names[configuration[0]]
        serial = configuration[-1] == 1
        added = self.overhead.serial if serial else self.overhead.concurrent
        share = round(added.ns) if added else 0
        # there may be a million launches, too many for a loop in Python
        starts = array("q", map(base.__add__, offsets))
        if share and durations:
            if min(durations) < share + TICK_NS:
                durations = [max(duration, share + TICK_NS) for duration in durations]
            durations = map((-share).__add__, durations)
        durations = array("q", durations)
        if len(starts) != len(durations):
            raise ValueError("not as many ends as starts")
        key = (process.pid, symbol, *configuration[1:])
        if (series := self.series.get(key)) is None:
            launch = replace(
                _launch(symbol, configuration, process.pid),
                clock=clock_label("serial" if serial else "concurrent", added),
                least_ns=added.least_ns if added else None,
            )
            series = self.series[key] = LaunchSeries(launch, serial=serial)
        series.starts += starts
        series.durations += durations
        series.untimed += untimed
        if untimed:
            self.unfinished[symbol] = self.unfinished.pop(symbol, 0) + untimed

    def launches(self) -> list[LaunchSeries]:
        """Return the series by their first start, each in order of start."""
        for series in self.series.values():
            _sort(series)
        return sorted(self.series.values(), key=lambda s: s.starts[0] if s.starts else 0)


def _sort(series: LaunchSeries) -> None:
    """Sort a series. Buffers of several streams may come out of order."""
    if any(map(gt, series.starts, islice(series.starts, 1, None))):
        pairs = sorted(zip(series.starts, series.durations, strict=True))
        series.starts = array("q", (start for start, _ in pairs))
        series.durations = array("q", (duration for _, duration in pairs))


def has_context(directory: Path) -> bool:
    """Say whether a process that is recorded into `directory` has opened CUDA, and has not begun to end."""
    with contextlib.suppress(FileNotFoundError):
        return any(path.suffix == ".context" for path in directory.iterdir())
    return False


def read(directory: Path, overhead: Overhead = UNKNOWN) -> RecordedRun:
    """Return everything that the processes of a run wrote. Torn and foreign lines are left out. `overhead` is
    subtracted.
    """
    reader = _RecordReader(overhead)
    for path in sorted(directory.glob("*.jsonl")):
        process: _Process | None = None
        try:
            content = regular_files.head(path, limits.LAUNCHES)
        except OSError:  # of the program's own making
            continue
        for line in content.splitlines():
            process = reader.line(line, process)
    remarks = reader.remarks
    if any(p.recording and not p.came_to_exit for p in reader.processes):
        remarks.append(
            "the program ended without exit: launches after its last synchronising call may be missing"
        )
    if unfinished := sum(reader.unfinished.values()):
        remarks.append(f"{unfinished} launches had not ended when the program did, and have no time")
    if reader.dropped:
        remarks.append(f"{reader.dropped} launches were too many to record")
    reader.errors.sort(key=lambda e: e.time_ns)
    timed = [replace(series, untimed=0) for series in reader.launches() if series.starts]
    remarks += _of_overlap(reader.overlap, timed)
    return RecordedRun(
        tuple(timed),
        tuple(reader.errors),
        reader.unfinished,
        tuple(dict.fromkeys(remarks)),
        reader.overlap,
    )


class Follower:
    """Reads the file of one process that is still being written, from where it stopped."""

    def __init__(self, directory: Path, pid: int) -> None:
        self._path = directory / f"{pid}.jsonl"
        self._at = 0
        self._process: _Process | None = None

    def fresh(self) -> list[LaunchSeries]:
        """Return the launches that were written since the last call, also those without time stamps."""
        reader = _RecordReader(UNKNOWN)
        try:
            with regular_files.opened(self._path) as file:
                if file.seek(0, os.SEEK_END) < self._at:  # the recorder has emptied it
                    self._at, self._process = 0, None
                file.seek(self._at)
                lines = regular_files.upto(file, limits.LAUNCHES.most).splitlines(keepends=True)
                for line in lines:
                    if not line.endswith(b"\n"):  # being written in this moment
                        break
                    self._at += len(line)
                    self._process = reader.line(line, self._process)
        except OSError:  # nothing was recorded
            return []
        return reader.launches()


def _begin(header: dict[str, Any]) -> _Process | None:
    pid = header.get("pid")
    return _Process(pid) if header.get("orbit") == 1 and isinstance(pid, int) else None


def _parse(line: bytes) -> dict[str, Any] | list[Any] | None:
    try:
        return cast("dict[str, Any] | list[Any] | None", codec.read_json(line))
    except ValueError:
        return None


_CONFIGURATION = 17
"""Numbers that a line of launches begins with: injection.cpp, `Configuration`."""


def _launch(symbol: str, numbers: list[int], pid: int) -> LaunchRecord:
    gx, gy, gz, bx, by, bz, cx, cy, cz, registers, static, dynamic, local, stream, device, _serial = numbers[
        1:
    ]
    return LaunchRecord(
        symbol=symbol,
        start_ns=0,
        end_ns=0,
        grid=(gx, gy, gz),
        block=(bx, by, bz),
        cluster=(cx, cy, cz) if cx * cy * cz > 1 else None,
        registers=registers,
        static_shared=static,
        dynamic_shared=dynamic,
        local_per_thread=local,
        stream=stream,
        device=device,
        process=pid,
    )


def _error(fields: list[Any], process: _Process) -> CudaError:
    time, api, function, code, name, kernel = fields
    if api == "runtime":
        name = _RUNTIME_NAMES.get(code, name)
    return CudaError(
        int(time), api, function, int(code), name or f"CUDA error {code}", kernel or None, process.pid
    )
