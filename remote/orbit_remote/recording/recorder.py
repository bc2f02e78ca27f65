"""Records the kernel launches of this process, in the child that runs a Python file.

The recorder of CUDA programs (injection.cpp) is used here too: one reader, one kind of record, CUDA errors by name,
launches kept up to a crash, and no package beside torch and triton. cupti-python would be one more wheel, tied to one
CUPTI, and calls Python for every buffer. Without a C++ compiler or a CUPTI to build against, torch.profiler reads the
same CUPTI records through Kineto.

CUPTI serves one client in a process. When the user's own code starts a profiler, it gets CUPTI: recording ends there,
and a remark says so.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from orbit_remote.common import codec, limits, regular_files
from orbit_remote.common.launch_records import LaunchRecord, series
from orbit_remote.common.messages import Operator
from orbit_remote.recording import injection
from orbit_remote.recording.injection import RecordedRun

_MOST_OPERATORS = 50
YIELDED = "the program started a profiler of its own: later launches were not recorded"


class Native:
    """Our own library. Raises injection.RecorderUnavailableError, also if CUPTI is taken."""

    def __init__(self, cache: Path, directory: Path, *, at_first_context: bool = False) -> None:
        """Load the library. `at_first_context`: the driver begins it when CUDA begins, here and in every process that
        this one starts. Until then it touches nothing of CUDA, so that the process can fork and choose its GPUs.
        """
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        cupti = injection.find(in_this_process=True)
        path = injection.build(cache, cupti)
        library = ctypes.CDLL(str(path))
        library.orbit_timestamp.restype = ctypes.c_ulonglong
        library.orbit_waited.restype = ctypes.c_longlong
        library.orbit_begin.argtypes = library.orbit_end.argtypes = [ctypes.c_char_p]
        library.orbit_end.restype = library.orbit_flush.restype = library.orbit_forget.restype = None
        if at_first_context:
            os.environ |= {"CUDA_INJECTION64_PATH": str(path), "ORBIT_LAUNCHES": str(directory)}
            os.environ["ORBIT_SHARES_CUPTI"] = "1"  # with torch, which has loaded it
        elif library.orbit_begin(os.fsencode(directory)) != 1:
            why = "; ".join(injection.read(directory).remarks)
            raise injection.RecorderUnavailableError(why or f"{directory} cannot be written", "")
        self._library: Any = library
        self._follower = injection.Follower(directory, os.getpid())
        self._since = 0
        self.cupti = cupti.library
        self.overhead = injection.UNKNOWN
        """What is taken off the times; the worker knows it (`overhead_store`)."""
        self.cache = cache

    def timestamp(self) -> int:
        """Return the present time on the clock of the records. Before CUDA begins it is the system's clock, which
        that one follows.
        """
        return self._library.orbit_timestamp() or time.time_ns()

    @property
    def waited_s(self) -> float:
        """Return how long this process has waited for the GPU's lease."""
        return self._library.orbit_waited() / 1e9

    def record(self, how: Literal["nothing", "concurrent", "serial", "automatic"]) -> bool:
        """Choose what is recorded. Return False if CUPTI cannot be switched. No kernel may be under way. `automatic`
        is serial until kernels of this process can overlap, and concurrent afterwards.
        """
        return self._library.orbit_record(("nothing", "concurrent", "serial", "automatic").index(how)) == 1

    def fresh(self) -> list[LaunchRecord]:
        """Return the launches that have ended since the last call, of all that were begun before this one."""
        self._library.orbit_flush()
        return [record for launches in self._follower.fresh() for record in launches.records()]

    def end(self, why: str = "") -> None:
        """Stop recording for good. More calls do nothing."""
        self._library.orbit_end(why.encode())

    def recorded(self) -> RecordedRun:
        recorded = injection.read(self.directory, self.overhead)
        return recorded.since(self._since) if self._since else recorded

    def again(self) -> None:
        """Begin with another job in this process. Earlier records do not belong to it, and are dropped. A process has
        a limit of records, which the jobs of a day would reach; then no more kernels would count as launched.
        """
        self.record("automatic")
        self.forget()
        self._since = self.timestamp()

    def forget(self) -> None:
        """Drop what was recorded so far, and reset the limited count of launches."""
        self._library.orbit_forget()
        self._follower = injection.Follower(self.directory, os.getpid())


class Kineto:
    """Records by torch.profiler. It knows no CUDA errors, and a crash loses its records."""

    waited_s = 0.0

    def __init__(self, why: str = "", *, traced: bool = False) -> None:
        """Make a recorder. `why` says why our own library could not be used. `traced`: what the CPU does is recorded
        too, and kept as a `trace`.
        """
        profiler: Any = importlib.import_module("torch.profiler")
        kinds: Any = profiler.ProfilerActivity
        on_gpu = [kinds.CUDA] if not traced or kinds.CUDA in profiler.supported_activities() else []
        self._profile = profiler.profile(activities=[*([kinds.CPU] if traced else []), *on_gpu])
        self._profile.start()
        self._traced = traced
        self.trace = b""
        """The trace as Chrome and Perfetto read it, once it has ended."""
        self._events: list[dict[str, Any]] | None = None
        self._offset = 0
        self._remarks: tuple[str, ...] = (f"recorded by torch.profiler: {why}",) if why else ()

    def timestamp(self) -> int:
        return time.time_ns()

    def end(self, why: str = "") -> None:
        if self._events is not None:
            return
        self._events = []
        try:
            self._profile.stop()
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "trace.json"
                self._profile.export_chrome_trace(str(path))
                content = regular_files.read(path, limits.TRACE if self._traced else limits.LAUNCHES)
                trace: dict[str, Any] = codec.read_json(content.decode("utf-8", "replace"))
                self.trace = content if self._traced else b""
        except Exception as error:  # noqa: BLE001 - after a lost CUDA context torch cannot stop it
            trace = {}
            self._remarks += (f"torch.profiler lost its records: {error}",)
        self._events = trace.get("traceEvents", [])
        self._offset = int(trace.get("baseTimeNanoseconds", 0))
        self._remarks += (why,) if why else ()

    def operators(self) -> tuple[Operator, ...]:
        """Return what torch spent its own time in on the CPU, the longest first."""
        averages: list[Any] = list(self._profile.key_averages()) if self.trace else []
        timed = [(each.key, each.count, round(each.self_cpu_time_total * 1000)) for each in averages]
        longest = sorted((each for each in timed if each[2] > 0), key=lambda each: -each[2])
        return tuple(Operator(*each) for each in longest[:_MOST_OPERATORS])

    def recorded(self) -> RecordedRun:
        kernels = [e for e in self._events or () if e.get("cat") == "kernel"]
        return RecordedRun(
            tuple(series(self._record(k["name"], k["ts"], k["dur"], k["args"]) for k in kernels)),
            remarks=self._remarks,
        )

    def _record(self, name: str, begin_us: float, duration_us: float, args: dict[str, Any]) -> LaunchRecord:
        begin = self._offset + round(begin_us * 1000)
        return LaunchRecord(
            symbol=name,
            start_ns=begin,
            end_ns=begin + round(duration_us * 1000),
            grid=_three(args["grid"]),
            block=_three(args["block"]),
            registers=args.get("registers per thread"),
            # one number for static and dynamic shared memory: which is which is not known
            stream=args.get("stream"),
            device=args.get("device", 0),
            process=os.getpid(),
        )


class Nothing:
    """Records nothing: there is no GPU, or no way to record. The run goes on and its remarks say why."""

    waited_s = 0.0

    def __init__(self, *why: str) -> None:
        self._why = why

    def timestamp(self) -> int:
        return time.time_ns()

    def end(self, why: str = "") -> None:
        pass

    def recorded(self) -> RecordedRun:
        return RecordedRun(remarks=self._why)


class UnderTool(Nothing):
    """A tool such as Nsight Compute is in CUPTI's place."""


Recorder = Native | Kineto | Nothing


def begin(cache: Path, directory: Path) -> Recorder:
    """Start recording with what this machine has. It is best called before the first CUDA call."""
    try:
        return begin_native(cache, directory)
    except (injection.RecorderUnavailableError, OSError) as error:
        try:
            recorder = Kineto(str(error))
        except Exception as second:  # noqa: BLE001 - whatever torch raises, the run goes on
            return Nothing(f"launches were not recorded: {error}; torch.profiler: {second}")
    _yield_to_profilers(recorder)
    return recorder


def begin_at_first_context(cache: Path, directory: Path) -> Native | None:
    """Record from the first CUDA context on, for which the worker is asked (`first_context`). Return None if our own
    library cannot be used.
    """
    try:
        return begin_native(cache, directory, at_first_context=True)
    except (injection.RecorderUnavailableError, OSError):
        return None


def begin_native(cache: Path, directory: Path, *, at_first_context: bool = False) -> Native:
    """Begin with our own library or not at all. Raises injection.RecorderUnavailableError and OSError."""
    recorder = Native(cache, directory, at_first_context=at_first_context)
    _yield_to_profilers(recorder)
    _share_with_proton(recorder.cupti, directory)
    return recorder


def _yield_to_profilers(recorder: Recorder) -> None:
    """End ours when the user's code starts torch's profiler or Triton's."""

    def first(original: Callable[..., Any]) -> Callable[..., Any]:
        def start(*args: Any, **kwargs: Any) -> Any:
            recorder.end(YIELDED)
            return original(*args, **kwargs)

        return start

    with contextlib.suppress(ImportError, AttributeError):
        # torch.profiler.profile starts this one
        kineto: Any = importlib.import_module("torch.autograd.profiler").profile
        kineto._prepare_trace = first(kineto._prepare_trace)  # noqa: SLF001
    with contextlib.suppress(ImportError, AttributeError):
        library: Any = importlib.import_module("triton._C.libproton").proton
        library.start = first(library.start)


def _share_with_proton(cupti: Path, directory: Path) -> None:
    """Make Proton use the recorder's CUPTI, under the one name that it looks for.

    Triton brings a CUPTI of its own. The driver keeps the first CUPTI of a process as long as the process lives.
    cuptiUnsubscribe and cuptiFinalize do not change that (H100, driver 580), so cuptiSubscribe of a second one fails
    with error 39.
    """
    link = directory / "proton" / "libcupti.so"
    with contextlib.suppress(OSError):
        link.parent.mkdir(exist_ok=True)
        link.symlink_to(cupti)
        os.environ.setdefault("TRITON_CUPTI_LIB_PATH", str(link.parent))


def _three(sizes: list[int]) -> tuple[int, int, int]:
    x, y, z = sizes
    return x, y, z
