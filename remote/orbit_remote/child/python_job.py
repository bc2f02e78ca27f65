"""Does a job on a `.py` in its own process: runs it and records its launches, or compiles its kernels."""

from __future__ import annotations

import base64
import contextlib
import importlib
import linecache
import math
import re
import sys
import tempfile
import time
import traceback
import zlib
from collections.abc import Callable, Container, Generator, Iterable, Iterator, Sequence
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from orbit_remote.child import cute_dsl, triton_compile, triton_instances, under_profiler
from orbit_remote.child.driver import compilations, driver_run, other_processes, source_reads
from orbit_remote.child.driver.unsaved_texts import saved
from orbit_remote.child.user_module import ENTRIES, ModuleEntry, UserFile
from orbit_remote.common import measure, python_errors, symbols
from orbit_remote.common.launch_records import LaunchSeries
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.measurements import Tried
from orbit_remote.common.messages import (
    Event,
    Failure,
    Finished,
    Launches,
    Place,
    Resources,
    Stage,
    content_hash,
    failed,
)
from orbit_remote.common.python_errors import Explained
from orbit_remote.common.regular_files import file_hash
from orbit_remote.common.requests import Capture, DriverStart, Job
from orbit_remote.recording import registered_kernels
from orbit_remote.recording.injection import RecordedRun
from orbit_remote.recording.recorder import Kineto, Nothing, Recorder, UnderTool
from orbit_remote.toolchain import dumps, kept_files

if TYPE_CHECKING:
    from orbit_remote.child.capture.launch_watch import LaunchWatch

Send = Callable[[Event], None]


def run_file(job: Job, send: Send, recorder: Recorder | None = None) -> Finished:
    """Do the whole job, in this process, which is good for no other afterwards.

    `recorder` records already (the CUDA context may be open before there is a job). What the file prints goes to the
    process's output. The result is returned, never printed.
    """
    if job.driver:
        send(Stage(job.run, "running", time.time()))
        with compilations.told(send, job.run):
            return _run_driver(job, recorder or Nothing("launches were not recorded"))
    file = UserFile(job.path, job.text, job.directory, job.arguments, job.roots)
    if job.action == "compile" and job.keep and cute_dsl.is_used(job.text):
        send(Stage(job.run, "building", time.time()))
        return _compiled_by_itself(job, file)
    if job.action == "compile":
        send(Stage(job.run, "building", time.time()))
        began = time.perf_counter()
        compiled = triton_compile.compile_file(
            file,
            job.architecture or _this_gpu(job.device),
            job.kernel,
            job.host_launches,
            job.levels,
            job.warps,
        )
        remarks = list(compiled.remarks)
        return _finished(
            job,
            compiled.explained,
            problems=compiled.problems,
            resources=compiled.resources,
            build_s=time.perf_counter() - began,
            dumps=dumps.packed(compiled.made, remarks),
            remarks=tuple(remarks),
        )
    send(Stage(job.run, "running", time.time()))
    recorder = recorder or Nothing("launches were not recorded")
    return _trace(job, file, recorder) if job.is_traced else _run(job, file, recorder)


def _run_driver(job: Job, recorder: Recorder) -> Finished:
    try:
        driver = driver_run.DriverRun(job, recorder.timestamp, synchronise, lambda: recorder.waited_s)
    except (OSError, ValueError) as error:
        text = f"{job.driver.file if job.driver else ''} cannot be read: {error}"
        return failed(job.run, Failure("infrastructure", text))
    if job.action == "profile" and isinstance(job.start, DriverStart) and not isinstance(recorder, UnderTool):
        return _profiled(job, driver, recorder)
    if isinstance(job.start, DriverStart) and job.start.capture:
        return _captured(job, job.start.capture, driver, recorder)
    return _run(job, driver.file, recorder, driver)


def _captured(job: Job, wanted: Capture, driver: driver_run.DriverRun, recorder: Recorder) -> Finished:
    """Return a driver's run of which one launch is taken."""
    from orbit_remote.child.capture import capturing, launch_watch
    from orbit_remote.child.spec.trial import Gpu

    watch = launch_watch.LaunchWatch(job.kernel or "", job.path, wanted)
    with watch.watching():
        finished = _run(job, driver.file, recorder, driver, watch)
    torch = sys.modules.get("torch")
    return replace(finished, captured=capturing.of_driver(torch, job, watch, Gpu(torch)))


def _profiled(job: Job, driver: driver_run.DriverRun, recorder: Recorder) -> Finished:
    """Run a driver, and count a launch of each configuration."""
    if job.language == "cuda":
        from orbit_remote.child.driver.extension_profile import ExtensionProfile

        of_extension = ExtensionProfile(job, recorder)
        with of_extension.counting():
            finished = _run(replace(job, action="run"), driver.file, recorder, driver)
        return of_extension.added(finished)
    from orbit_remote.child.driver.driver_profile import DriverProfile

    profile = DriverProfile(job, recorder)
    with profile.watching():
        finished = _run(replace(job, action="run"), driver.file, recorder, driver, profile)
    return profile.added(finished)


def _trace(job: Job, file: UserFile, recorder: Recorder) -> Finished:
    """Trace a run. CUPTI has one client: torch.profiler records in place of `recorder`."""
    recorder.end()
    try:
        tracing = Kineto(traced=True)
    except ImportError:
        text = "a trace needs torch.profiler, and this Python has no torch"
        return failed(
            job.run, Failure("infrastructure", text, "install torch there, or choose a Python with --python")
        )
    finished = _run(job, file, tracing)
    report = base64.b64encode(zlib.compress(tracing.trace, 1)).decode() if tracing.trace else ""
    return replace(finished, report=report, operators=tracing.operators())


def _compiled_by_itself(job: Job, file: UserFile) -> Finished:
    """Run a file of CuTe DSL until its own program ends or fails. What was compiled until then is kept."""
    began = time.perf_counter()
    remarks: list[str] = []
    architecture = job.architecture
    if not architecture:
        architecture = cute_dsl.DEFAULT
        remarks.append(
            f"compiled for {architecture}, because neither --arch nor a GPU of this machine names another architecture"
        )
    with tempfile.TemporaryDirectory(prefix="orbit-") as folder:
        with cute_dsl.keeping(Path(folder), architecture):
            _, explained, _ = _execute(file, job.device, lambda: file.execute("__main__"))
        made = cute_dsl.files(Path(folder))
        command = f"CUTE_DSL_ARCH={architecture} {sys.executable} {job.path}\n"
        kept = kept_files.packed({"command.txt": command}, made)
    if explained and explained.failure.category == "runtime error":
        explained = replace(explained, failure=replace(explained.failure, category="compile error"))
    if not made and not explained:
        remarks.append("the program compiled no kernel: `cute.compile` or a launch does")
    finished = _finished(
        job,
        explained,
        build_s=time.perf_counter() - began,
        report=kept.archive,
        remarks=(*remarks, *kept.remarks),
    )
    return replace(finished, toolchain=finished.toolchain | cute_dsl.version())


def _run(
    job: Job,
    file: UserFile,
    recorder: Recorder,
    driver: driver_run.DriverRun | None = None,
    watch: LaunchWatch | None = None,
) -> Finished:
    """Run a file. `watch` takes a driver's launch, and makes it again at the end."""
    start = (
        driver.start if driver else partial(file.execute, "__main__") if job.start.through == "exec" else None
    )
    began = time.perf_counter()
    profiled = job.action == "profile"
    languages = {kernel.language for kernel in job.other_kernels}
    with (
        under_profiler.with_lines(languages if profiled else (), job.path, job.text),
        autotuning(recorder, profiled, languages) as tuning,
        under_profiler.profiled() if profiled else contextlib.nullcontext(),
    ):
        exit_code, explained, certain = _execute(file, job.device, start)
    seconds = time.perf_counter() - began - recorder.waited_s
    instances = triton_instances.instances()
    again_from = watch.relaunch(recorder.timestamp, synchronise) if watch else None
    recorder.end()
    recorded = recorder.recorded()
    if watch and again_from is not None:
        watch.relaunched = recorded.since(again_from).series
        recorded = recorded.before(again_from)

    kept, tuned = tuning.without(recorded.series)
    known = [*_renamed(instances, job), *_other_kernels(kept, instances, job)]
    here, elsewhere = (
        other_processes.told_apart(kept, job) if driver else (kept, other_processes.Elsewhere(()))
    )
    copied = triton_instances.copied(known, job.directory or str(Path(job.path).parent))
    of_copies = [each for each in here if each.launch.symbol in copied]
    here = [each for each in here if each.launch.symbol not in copied]
    matched = triton_instances.match(here, known)
    matched_elsewhere = triton_instances.match(elsewhere.series, elsewhere.kernels)
    of_triton = (*matched.launches, *matched_elsewhere.launches)
    remarks = [
        *recorded.remarks,
        *matched.unclear,
        *elsewhere.remarks(),
        *(
            f"torch.compile launched a copy of {name}, whose times are not shown as the kernel's own"
            for name in sorted({each.launch.symbol for each in of_copies})
        ),
        *measure.remarks([series for series, _ in of_triton]),
    ]
    if tuned:
        remarks.append(f"{launches_text(tuned)} made while autotuning are not in the times")
    of_libraries: tuple[Launches, ...] = ()
    if _lists_every_kernel(job):
        of_libraries = _of_any_kernel(here, {resources.symbol for resources in known})
        of_libraries += _of_any_kernel(
            elsewhere.series, {resources.symbol for resources in elsewhere.kernels}
        )
    elif unclear := _unclear(kept, job):
        remarks.append(unclear)
    elif matched.not_triton:
        whose = "neither Triton's nor this file's" if job.other_kernels else "not Triton's"
        remarks.append(f"{launches_text(matched.not_triton)} of kernels that are {whose} are not listed")
    fatal = next((error for error in recorded.errors if error.fatal), None)
    if explained is None and fatal is not None:
        explained = python_errors.cuda_failure(fatal)
    elif explained is not None and explained.code is not None and recorded.errors:
        explained = python_errors.with_cause(explained, fatal or recorded.errors[0])
    if explained is None and not certain and not known:
        explained = no_entry(file)
    if explained is not None:
        places = {resources.symbol: resources.place for resources in known if resources.place}
        explained = _at_kernel(explained, places, job)
        if driver and explained.failure.message.startswith("AssertionError"):
            explained = replace(explained, failure=replace(explained.failure, category="wrong answer"))
    sets, left = driver.sets(kept) if driver else ((), 0)
    if driver:
        remarks += driver.remarks(launched=bool(of_triton))
    return _finished(
        job,
        explained,
        sets=sets,
        sets_left=left,
        launches=(
            *(replace(launches, tuning=tuning.of(launches.symbol)) for launches in grouped(of_triton)),
            *of_libraries,
        ),
        resources=_distinct(resources for resources in known if resources.architecture),
        exit_code=exit_code,
        run_s=seconds,
        remarks=tuple(dict.fromkeys(remarks)),
    )


def _renamed(instances: Sequence[Resources], job: Job) -> list[Resources]:
    """Rename Helion's instances: Helion makes Triton kernels in its own files, and they belong to the author's
    kernel.
    """
    return [
        replace(instance, name=kernel.qualified, place=Place(job.path, kernel.line))
        if (kernel := symbols.find(instance.symbol, job.other_kernels)) and kernel.language == "helion"
        else instance
        for instance in instances
    ]


def _other_kernels(
    series: Sequence[LaunchSeries], instances: Sequence[Resources], job: Job
) -> Iterator[Resources]:
    """Yield the kernels of other languages that were launched. Only the records of their launches describe them."""
    of_triton = {instance.symbol for instance in instances}
    for symbol in dict.fromkeys(launches.launch.symbol for launches in series):
        kernel = None if symbol in of_triton else symbols.find(symbol, job.other_kernels)
        if kernel:
            yield Resources(symbol, kernel.qualified, "", place=Place(job.path, kernel.line))


def _at_kernel(explained: Explained, places: dict[str, Place], job: Job) -> Explained:
    """Return a failure that names a kernel, at the kernel. A kernel of another language may have no record of its
    launch.
    """
    symbol = explained.failure.symbol or ""
    if kernel := symbols.find(symbol, job.other_kernels):
        places = {symbol: Place(job.path, kernel.line)} | places
    return python_errors.at_kernel(explained, places)


def _unclear(series: Sequence[LaunchSeries], job: Job) -> str:
    """Return a remark on launches of one of several kernels with the same name."""
    for launches in series:
        fitting = symbols.candidates(launches.launch.symbol, job.other_kernels)
        if len(fitting) > 1:
            lines = " and ".join(str(kernel.line) for kernel in fitting)
            return (
                f"the kernels in lines {lines} have one name, {fitting[0].name}: which of them was launched is not known. "
                "Give them names of their own"
            )
    return ""


def _lists_every_kernel(job: Job) -> bool:
    """Say whether the result lists every kernel, not only those of the file: nobody clicked on one."""
    return job.start.through in ("exec", "driver") or job.is_traced


def crashed(job: Job, status: int, recorded: RecordedRun) -> Finished:
    """Return what is known of a job whose process ended without a result: by a signal, or by `os._exit`.

    The process that started it calls this with the records that outlived it. A kernel's constants are lost with the
    process; the file's text says which kernels are its own.
    """
    from orbit_remote.recording import run_outcome  # with asyncio: the worker asks, no child

    places = UserFile(job.path, job.text).kernels()
    known = {name: Resources(name, name, "", place=place) for name, place in places.items()}
    known |= {resources.symbol: resources for resources in _other_kernels(recorded.series, (), job)}
    kept = [launches for launches in recorded.series if launches.launch.symbol in known]
    of_libraries = _of_any_kernel(recorded.series, known.keys()) if _lists_every_kernel(job) else ()
    fatal = next((error for error in recorded.errors if error.fatal), None)
    explained: Explained | None = None
    if fatal is not None:
        explained = python_errors.cuda_failure(fatal)
    elif status != 0:
        explained = Explained(Failure("runtime error", run_outcome.how_it_ended(status, "the program")), ())
    if explained is not None:
        explained = _at_kernel(explained, places, job)
    remarks = [*recorded.remarks, *measure.remarks(kept)]
    if kept:
        remarks.append("the process ended before it reported its kernels' constants")
    return _finished(
        job,
        explained,
        launches=(*measure.group(kept, known), *of_libraries),
        exit_code=status,
        remarks=tuple(dict.fromkeys(remarks)),
    )


def _finished(job: Job, explained: Explained | None, **fields: Any) -> Finished:
    failure = explained.failure if explained else None
    problems = (*(explained.problems if explained else ()), *fields.pop("problems", ()))
    outcome = failure.category if failure else "ok"
    return Finished(
        job.run,
        outcome,
        failure,
        problems=problems,
        toolchain=triton_instances.toolchain(),
        files=modules_read(job.path) | _extensions(job),
        **fields,
    )


def _extensions(job: Job) -> dict[str, str]:
    """Return the libraries that have the kernels of a driver's C++ file, and the file itself if the driver read it, by
    content hash.
    """
    if job.driver is None or job.language != "cuda":
        return {}
    loaded = registered_kernels.loaded(registered_kernels.names(job.text))
    return {path: digest for path in loaded if (digest := file_hash(path))} | source_reads.noted()


def modules_read(path: str) -> dict[str, str]:
    """Return the user's own modules that the file at `path` imported, by content hash."""
    paths: dict[str, str] = {}
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and file != path and python_errors.is_users(file, path):
            digest = _hash_as_read(file)
            if digest:
                paths[file] = digest
    return paths


def _hash_as_read(file: str) -> str | None:
    """Return the hash of a file on the disk. If the disk has another text now, return that of the text from which
    kernels were made.
    """
    if (known := linecache.cache.get(file)) and len(known) > 2:
        text = "".join(known[2])
        try:
            if saved(file) not in (text, text.removesuffix("\n")):
                return content_hash(text.encode("utf-8", "surrogatepass"))
        except (OSError, ValueError):
            return content_hash(text.encode("utf-8", "surrogatepass"))
    return file_hash(file)


def no_entry(file: UserFile) -> Explained:
    name = Path(file.path).name
    return Explained(
        Failure(
            "runtime error",
            f"{name} has no entry point: no function {', '.join(ENTRIES[:-1])} or {ENTRIES[-1]} that takes no "
            f'argument, and no `if __name__ == "__main__":` part',
            f"add one that launches the kernel; `orbit-lsp run {name} --through auto` runs a test or script of the project that does",
        ),
        (),
    )


# -- running ----------------------------------------------------------------------------------------


def _execute(
    file: UserFile, device: int, start: Callable[[], object] | None = None
) -> tuple[int | None, Explained | None, bool]:
    """Execute the file as if it were a process. Return (exit status, what went wrong, whether the file surely has a
    way in). `start` runs in place of the file's way in.
    """
    certain = True
    status: int | None = None
    explained: Explained | None = None
    try:
        entry = ModuleEntry(None) if start else file.entry()
        if entry is None:
            return None, no_entry(file), True
        certain = entry.certain
        file.prepare()
        _choose(device)
        (start or file.way_in(entry))()
        status = 0  # as Python's own would be: what kernels did since then is told apart from it
        explained = _late_error(file.path)
    except SystemExit as error:
        status, explained = python_errors.left(error.code)
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
        explained = explained or _late_error(file.path)
    except driver_run.NotRunError as error:
        status = error.status
        explained = Explained(Failure("infrastructure", str(error), error.remedy), ())
    except BaseException as error:  # noqa: BLE001 - whatever user code raises is its result
        status = 130 if isinstance(error, KeyboardInterrupt) else 1
        explained = python_errors.explain(error, file.path)
        traceback.print_exception(users_part(error, file.path))
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):  # the user's code may have replaced or closed it
                stream.flush()
    return status, explained, certain


def users_part(error: BaseException, path: str) -> BaseException:
    """Return the error with a traceback that has no frames from us to the user's file."""
    at = error.__traceback__
    while at is not None and not python_errors.is_users(at.tb_frame.f_code.co_filename, path):
        at = at.tb_next
    return error.with_traceback(at) if at is not None else error


def _cuda() -> Any:
    """Return torch.cuda if the user's file has used it. The question must not start CUDA."""
    torch = sys.modules.get("torch")
    return torch.cuda if torch is not None and torch.cuda.is_initialized() else None


def _choose(device: int) -> None:
    torch = sys.modules.get("torch")
    if device and torch is not None and torch.cuda.is_available():
        torch.cuda.set_device(device)


def _this_gpu(device: int) -> str | None:
    cuda = _cuda()
    return f"sm_{''.join(map(str, cuda.get_device_capability(device)))}" if cuda is not None else None


def synchronise() -> None:
    """Wait for kernels: errors and records of those that the program did not wait for belong to the run."""
    if (cuda := _cuda()) is not None:
        cuda.synchronize()


def _late_error(path: str) -> Explained | None:
    try:
        synchronise()
    except Exception as error:  # noqa: BLE001
        return python_errors.explain(error, path)
    return None


# -- autotuning -------------------------------------------------------------------------------------


@dataclass(slots=True)
class Tuning:
    """Spans of time in which configurations were tried, and what was tried, by the name of the machine code."""

    spans: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    tried: dict[str, list[Tried]] = field(default_factory=dict[str, list[Tried]])
    tunings: dict[str, list[object]] = field(default_factory=dict[str, list[object]])
    """By the same name, one for each time: `for_`, kept so that no other object gets its identity."""

    def without(self, series: Sequence[LaunchSeries]) -> tuple[Sequence[LaunchSeries], int]:
        """Return the launches outside these spans, and how many were inside."""
        if not self.spans:
            return series, 0

        def outside(start: int) -> bool:
            return not any(begin <= start <= end for begin, end in self.spans)

        kept = [launches.where(outside) for launches in series]
        dropped = sum(launches.count for launches in series) - sum(launches.count for launches in kept)
        return [launches for launches in kept if launches.count], dropped

    def note(self, name: str, configuration: object, milliseconds: float, for_: object = None) -> None:
        """Note a trial. `for_` is an object that identifies this tuning. If a kernel is tuned again, for other
        arguments, only the last tuning is kept.
        """
        trial = Tried(
            _configuration(configuration), milliseconds * 1e6 if math.isfinite(milliseconds) else None
        )
        tunings = self.tunings.setdefault(name, [for_])
        tried = self.tried.setdefault(name, [])
        if tunings[-1] is not for_:
            tunings.append(for_)
            tried.clear()
        tried[:] = [known for known in tried if known.configuration != trial.configuration]
        tried.append(trial)

    def of(self, symbol: str) -> tuple[Tried, ...]:
        """Return what was tried for a kernel, the fastest first. The languages put a number behind a name that they
        use again. If it was tuned for several arguments, none is the chosen one: a launch may be of any of them.
        """
        for name, tried in self.tried.items():
            if re.fullmatch(rf"{re.escape(name)}(_\d+)?", symbol):
                ran = sorted(
                    (trial for trial in tried if trial.median is not None),
                    key=lambda trial: trial.median or 0,
                )
                did_not = [trial for trial in tried if trial.median is None]
                if ran and len(self.tunings[name]) == 1:
                    ran[0] = replace(ran[0], chosen=True)
                return (*ran, *did_not)[:_MOST_TRIED]
        return ()


_MOST_TRIED = 40
"""Configurations that are shown: Helion tries hundreds."""
_TILELANG_TRIED = re.compile(r"Tuned Latency (\S+) with config (.*) at index \d+$", re.DOTALL)


def _configuration(configuration: object) -> str:
    if isinstance(configuration, dict):
        return ", ".join(
            f"{name}: {value}" for name, value in cast("dict[str, object]", configuration).items()
        )
    return str(configuration)


_TUNERS = (
    ("triton", "triton.runtime.autotuner", "Autotuner", "_bench"),
    ("helion", "helion.runtime.kernel", "BoundKernel", "autotune"),
    ("tilelang", "tilelang.autotuner.tuner", "AutoTuner", "run"),
)
"""What benchmarks configurations of each language: module, class, method."""


@contextlib.contextmanager
def autotuning(
    recorder: Recorder, profiled: bool = False, languages: Container[str] = ()
) -> Generator[Tuning]:
    """Note when autotuning benchmarks: its hundreds of launches are not the program's, and not profiled. `languages`
    are those of the file's other kernels.
    """
    tuning = Tuning()

    def noted(original: Callable[..., Any]) -> Callable[..., Any]:
        def bench(*args: Any, **kwargs: Any) -> Any:
            # launches made before must not run inside the span, nor these after it
            with contextlib.suppress(Exception):
                synchronise()
            begin = recorder.timestamp()
            if profiled:
                under_profiler.stop()
            try:
                return original(*args, **kwargs)
            finally:
                with contextlib.suppress(Exception):
                    synchronise()
                if profiled:
                    under_profiler.start()
                tuning.spans.append((begin, recorder.timestamp()))

        return bench

    with contextlib.ExitStack() as undo:
        for language, module, kind, method in _TUNERS:
            if language == "triton" or language in languages:
                with contextlib.suppress(ImportError, AttributeError):
                    tuner: Any = getattr(importlib.import_module(module), kind)
                    under_profiler.replaced(undo, tuner, method, noted)
                    _TRIED[language](undo, tuning)
        yield tuning


def _of_triton(undo: contextlib.ExitStack, tuning: Tuning) -> None:
    tuner: Any = importlib.import_module("triton.runtime.autotuner").Autotuner

    def noting(original: Any) -> Any:
        def bench(self: Any, *args: Any, **kwargs: Any) -> Any:
            times = original(self, *args, **kwargs)
            with contextlib.suppress(Exception):
                milliseconds = float(times[0] if hasattr(times, "__getitem__") else times)
                tuning.note(self.base_fn.__name__, kwargs["config"], milliseconds, self.nargs)
            return times

        return bench

    under_profiler.replaced(undo, tuner, "_bench", noting)


def _of_helion(undo: contextlib.ExitStack, tuning: Tuning) -> None:
    search: Any = importlib.import_module("helion.autotuner.base_search").BaseSearch

    def noting(original: Any) -> Any:
        def batch(self: Any, *args: Any, **kwargs: Any) -> Any:
            results = original(self, *args, **kwargs)
            with contextlib.suppress(Exception):
                for result in results:
                    tuning.note(
                        f"_helion_{self.kernel.kernel.name}", dict(result.config), float(result.perf), self
                    )
            return results

        return batch

    under_profiler.replaced(undo, search, "benchmark_batch", noting)


def _of_tilelang(undo: contextlib.ExitStack, tuning: Tuning) -> None:
    """Listen to TileLang. It only tells each configuration's time to its progress bar, and the kernel's name when all
    were tried.
    """
    module: Any = importlib.import_module("tilelang.autotuner.tuner")
    told: list[tuple[str, float]] = []

    def listening(bar: Any) -> Any:
        write: Any = bar.write

        def writing(text: str, *args: Any, **kwargs: Any) -> None:
            if match := _TILELANG_TRIED.match(text):
                told.append((match[2].strip("{}").replace("'", ""), float(match[1])))
            write(text, *args, **kwargs)

        return type("Bar", (bar,), {"write": staticmethod(writing)})

    def noting(original: Any) -> Any:
        def run(self: Any, *args: Any, **kwargs: Any) -> Any:
            told.clear()
            result = original(self, *args, **kwargs)
            with contextlib.suppress(Exception):
                for configuration, milliseconds in told:
                    tuning.note(
                        f"{result.func.attrs['global_symbol']}_kernel", configuration, milliseconds, result
                    )
            return result

        return run

    under_profiler.replaced(undo, module, "tqdm", listening)
    under_profiler.replaced(undo, module.AutoTuner, "run", noting)


_TRIED = {"triton": _of_triton, "helion": _of_helion, "tilelang": _of_tilelang}


# -- results ----------------------------------------------------------------------------------------


def grouped(launches: Sequence[tuple[LaunchSeries, Resources]]) -> tuple[Launches, ...]:
    """Return launches grouped by instance first: Triton gives instances that differ in their constants one name."""
    by_instance: dict[str, tuple[Resources, list[LaunchSeries]]] = {}
    for series, resources in launches:
        by_instance.setdefault(repr(resources), (resources, []))[1].append(series)
    return tuple(
        grouped
        for resources, same in by_instance.values()
        for grouped in measure.group(same, {resources.symbol: resources})
    )


def _of_any_kernel(series: Sequence[LaunchSeries], known: Container[str]) -> tuple[Launches, ...]:
    """Return the launches of kernels that are not the file's own, such as torch's."""
    names = {launches.launch.symbol for launches in series}
    wanted = {name: Resources(name, symbols.short_name(name), "") for name in names if name not in known}
    return measure.group([each for each in series if each.launch.symbol in wanted], wanted)


def _distinct(by_symbol: Iterable[Resources]) -> tuple[Resources, ...]:
    return tuple({repr(resources): resources for resources in by_symbol}.values())


def launches_text(n: int) -> str:
    return "1 launch" if n == 1 else f"{n} launches"
