"""Checks and times a KernelBench or popcorn file against its reference, in a job's own process.

Every check has its own inputs. A candidate that fails is not timed. Otherwise its calls and the reference's are timed
in turn. Then it is checked once more, with other inputs in the very memory of the timed calls. So a candidate that
computes only once, and recognises its inputs by their address or shape, is found out.
"""

from __future__ import annotations

import contextlib
import re
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from orbit_remote.child import python_job, triton_instances, under_profiler
from orbit_remote.child.harness import built_extensions, cuda_source, tensor_data
from orbit_remote.child.harness.call_timing import BUDGET_S, CallBench, RecordedLaunches, Timed, TimedSide
from orbit_remote.child.harness.harness_case import ContractCase, ContractError, ExplainedCheck
from orbit_remote.child.harness.kernelbench import KernelBench
from orbit_remote.child.harness.popcorn import Popcorn
from orbit_remote.child.spec.trial import MissingPackageError, load_torch
from orbit_remote.child.user_module import UserFile
from orbit_remote.common import launch_records, measure, python_errors, symbols
from orbit_remote.common import messages as c
from orbit_remote.common.contracts import harness_files
from orbit_remote.common.measurements import AgainstReference
from orbit_remote.common.regular_files import file_hash
from orbit_remote.common.requests import Job
from orbit_remote.recording.recorder import Recorder

Send = Callable[[c.Event], None]
Subject = KernelBench | Popcorn
"""A candidate with what it is checked and timed against."""

_SHARE: Final = 0.3
"""After two trials, no more are made once this share of the run's time has passed."""
_LEAST_S: Final = 0.2
_SHOWN: Final = 12
"""Kernels of a call that are listed, by the time they take."""
_POISON: Final = 0xFF
_WARM_UP: Final = 2
"""Calls before the one that is profiled: what they compile, choose and load does not count."""


def check_and_time(job: Job, send: Send, recorder: Recorder, device: str = "cuda") -> c.Finished:
    """Do the whole job, in this process, which is good for no other afterwards.

    On another `device` than CUDA's, for tests that need no GPU, everything is checked and nothing timed.
    """
    began = time.perf_counter()
    send(c.Stage(job.run, "running", time.time(), "checking"))
    run = _HarnessRun(job, send, recorder, device, began)
    try:
        finished = run.finished()
    except MissingPackageError as error:
        finished = c.failed(job.run, error.failure)
    except ContractError as error:
        place = error.place or run.place
        failure = c.Failure("runtime error", error.text, error.remedy, place=place)
        problem = c.Problem("error", _sentence(error.text, error.remedy), "orbit", place)
        finished = c.failed(job.run, failure, problems=(problem,))
    except SystemExit as error:
        _, explained = python_errors.left(error.code)
        text = explained.failure.message if explained else "the program exited with code 0"
        failure = c.Failure("runtime error", f"{text} before it could be checked", place=run.place)
        finished = c.failed(job.run, failure)
    except BaseException as error:  # noqa: BLE001 - whatever user code raises is its result
        traceback.print_exception(python_job.users_part(error, job.path))
        finished = failed_call(job, error, recorder, run.place)
    timed = next((point.launches for point in run.points if point.launches), ())
    return replace(
        finished,
        points=tuple(run.points),
        launches=timed,
        run_s=time.perf_counter() - began,
        toolchain=triton_instances.toolchain(),
        files=python_job.modules_read(job.path) | _task_hash(job.path),
        remarks=(*finished.remarks, *dict.fromkeys(run.remarks)),
    )


class _HarnessRun:
    def __init__(self, job: Job, send: Send, recorder: Recorder, device: str, began: float) -> None:
        self.job = job
        self.points: list[c.Point] = []
        self.remarks: list[str] = []
        self.place = c.Place(job.path, 1)
        self._send = send
        self._recorder = recorder
        self._device = device
        self._began = began
        self._problems: list[c.Problem] = []
        self._failure: c.Failure | None = None
        self._torch: Any = None
        self._bench: CallBench | None = None
        self._earlier: Any = None  # the last output, still in its memory
        self._poisoned: list[int] = []
        self._written = False  # whether a call writes to its inputs
        self._left = 1  # benchmarks that are not timed yet

    def finished(self) -> c.Finished:
        subject = self._subject()
        if self.job.action == "profile":
            return self._profiled(subject)
        for case in subject.tests:
            self._stage(f"checking {case.name} of {len(subject.tests)}")
            checks = self._checked(subject, case, 0, "first")
            self.points.append(c.Point(case.shown, case.name, (), tuple(checks)))
        if self._failure is None:
            for at, case in enumerate(subject.benchmarks):
                self._left = len(subject.benchmarks) - at
                self._benchmark(subject, case)
        outcome = self._failure.category if self._failure else "ok"
        return c.Finished(self.job.run, outcome, self._failure, problems=tuple(self._problems))

    def _subject(self) -> Subject:
        kept = harness_files.kept(self.job.text)
        if kept is None:
            compile(self.job.text, self.job.path, "exec", dont_inherit=True)  # says what is wrong with it
            raise ContractError(
                "the file has neither a class ModelNew nor a function custom_kernel at its top level"
            )
        self.place = c.Place(self.job.path, kept.line, kept.column, kept.end_column)
        self._torch = load_torch(self.job, "this check needs", self._device)
        if self._device == "cuda" and self.job.action != "profile":
            self._bench = CallBench(self._torch, self._recorder)
        job = self.job
        file = UserFile(job.path, job.text, job.directory, job.arguments, job.roots)
        file.prepare()
        built_extensions.load_from_named()
        if kept.kind == "popcorn":
            return Popcorn(self._torch, file, lambda: file.execute(file.module_name()))
        return KernelBench(self._torch, file, file.execute(file.module_name()), self._device)

    def _profiled(self, subject: Subject) -> c.Finished:
        """Call the candidate once where a profiler sees it, after some calls that it does not see. Nothing is
        compared.
        """
        case = [*subject.benchmarks, *subject.tests][0]
        torch = self._torch
        self._stage(f"one call of {subject.name}")
        with torch.no_grad():
            inputs = subject.inputs(case, 0)
            subject.settle(0)
            for _ in range(_WARM_UP):
                subject.call(tensor_data.cloned(torch, inputs))
            given = tensor_data.cloned(torch, inputs)
            with under_profiler.profiled(torch):
                subject.call(given)
        return c.ok(self.job.run, resources=tuple(triton_instances.instances()))

    def _stage(self, why: str) -> None:
        self._send(c.Stage(self.job.run, "running", time.time(), why))

    # -- one case -----------------------------------------------------------------------------------

    def _benchmark(self, subject: Subject, case: ContractCase) -> None:
        """Check, time, and check again. Add the points of both versions."""
        many = f"{case.name} of {len(subject.benchmarks)}" if case.name else subject.name
        self._stage(f"checking {many}")
        checks: list[c.Check] = []
        for turn in range(subject.trials):
            checks += self._checked(subject, case, turn, "first")
            if not turn and not all(check.passed for check in checks) and (adopted := subject.adopt()):
                self._failure, self.remarks = None, [adopted]
                self._problems.clear()
                checks = self._checked(subject, case, turn, "first")
            if not all(check.passed for check in checks):
                break
            if turn and time.perf_counter() - self._began > _SHARE * self.job.run_timeout_s:
                if turn + 1 < subject.trials:
                    self.remarks.append(f"{turn + 1} of {subject.trials} trials, because they take long")
                break
        inputs = subject.inputs(case, 0)
        mine = c.Point(
            {"version": subject.name, **case.shown},
            "",
            (),
            tuple(checks),
            footprint=tensor_data.size(self._torch, inputs),
        )
        place = len(self.points)
        self.points.append(mine)
        if not all(check.passed for check in checks):
            return
        buffers = tensor_data.cloned(self._torch, inputs)
        with self._torch.no_grad():
            subject.call(buffers)  # the first of the calls in this memory
        timed: Timed | None = None
        if self._bench is not None:
            self._stage(f"timing {many}")
            timed = self._timed(self._bench, subject, case, inputs, buffers)
        del inputs
        checks += self._checked(subject, case, subject.trials + 1, "again", buffers)
        self.points[place] = replace(mine, checks=tuple(checks))
        if timed is None:
            return
        self.remarks += timed.remarks
        versus = _versus(subject, timed)
        self.points[place] = replace(
            self.points[place], launches=self._launches(subject.name, timed, 0, self.place), versus=versus
        )
        if subject.reference is not None:
            launches = self._launches(subject.reference, timed, 1, None)
            shown = {"version": subject.reference, **case.shown}
            self.points.append(c.Point(shown, "", launches, footprint=mine.footprint))

    def _checked(
        self, subject: Subject, case: ContractCase, turn: int, when: str, buffers: Any = None
    ) -> list[c.Check]:
        """Judge one call of the candidate. It runs in the memory of `buffers` if that is given and fits."""
        torch = self._torch
        with torch.no_grad():
            data = subject.inputs(case, turn)
            given = buffers
            if buffers is None or not tensor_data.refill(torch, buffers, data):
                given = tensor_data.cloned(torch, data)
            self._poison()
            subject.settle(turn)
            output = subject.call(given)
            self._synchronize()
            judged = subject.judge(data, output, turn)
            self._synchronize()
            checks = [self._check_of(judgement, case, when) for judgement in judged]
            self._notice(subject, data, given, output)
        self._earlier = output
        self._poisoned = [
            leaf.numel() * leaf.element_size() for _, leaf in tensor_data.leaves(torch, output, "")
        ]
        return checks

    def _check_of(self, judged: ExplainedCheck, case: ContractCase, when: str) -> c.Check:
        check = replace(judged.check, place=self.place, when="again" if when == "again" else "first")
        if not check.passed:
            named = ", ".join(f"{name}={value}" for name, value in case.shown.items())
            where = f" ({case.name}: {named})" if case.name else ""
            late = "only when called again with other inputs: " if when == "again" else ""
            text = f"wrong answer{where}: {late}{judged.words}"
            self._say(c.Problem("error", text, "orbit", self.place))
            if self._failure is None:
                self._failure = c.Failure("wrong answer", text, place=self.place)
        if judged.hint:
            self.remarks.append(judged.hint)
        return check

    def _say(self, problem: c.Problem) -> None:
        if all(known.message != problem.message for known in self._problems):
            self._problems.append(problem)

    def _poison(self) -> None:
        """Poison memory: what a careless candidate gets with `torch.empty` must not hold what it should compute."""
        for size in self._poisoned:
            self._torch.empty(size, dtype=self._torch.uint8, device=self._device).fill_(_POISON)

    def _synchronize(self) -> None:
        if self._bench is not None:
            self._bench.wait()

    def _notice(self, subject: Subject, data: Any, given: Any, output: Any) -> None:
        """Note what a candidate does besides computing: it is allowed, and worth knowing."""
        torch = self._torch
        allowed = subject.changes()
        changed = tensor_data.changed(torch, data, given, "inputs")
        self._written = self._written or bool(changed or allowed)
        if allowed is None:
            if changed:
                self.remarks.append(f"{subject.name} writes to {', '.join(changed)} of its data")
            return
        if extra := [name for name in changed if name not in allowed]:
            text = f"{subject.name} changes its {', '.join(extra)} in place, and {subject.reference} does not"
            self._say(c.Problem("warning", text, "orbit", self.place))
        mine = tensor_data.memory(torch, output)
        if self._earlier is not None and mine & tensor_data.memory(torch, self._earlier):
            text = f"{subject.name} returns the same memory at every call: an earlier result is overwritten by a later one"
            self._say(c.Problem("warning", text, "orbit", self.place))
        if extra == [] and not allowed and mine & tensor_data.memory(torch, given):
            self.remarks.append(f"{subject.name} returns memory of its inputs")

    # -- timing -------------------------------------------------------------------------------------

    def _timed(
        self, bench: CallBench, subject: Subject, case: ContractCase, inputs: Any, buffers: Any
    ) -> Timed:
        torch = self._torch
        self._earlier = None
        sides = [TimedSide(subject.name, subject.call)]
        if subject.reference is not None:
            sides.append(TimedSide(subject.reference, subject.call_reference))
        sets = [inputs]
        room = int(torch.cuda.mem_get_info()[0])
        if 3 * tensor_data.size(torch, inputs) < room:
            other = subject.inputs(case, subject.trials)
            if tensor_data.fits(torch, other, inputs):
                sets.append(other)
        with torch.no_grad():
            return bench.time(sides, sets, buffers, written=self._written, budget_s=self._budget())

    def _budget(self) -> float:
        """Return the seconds for this benchmark's times: half of what is left is for everything else."""
        remaining = self.job.run_timeout_s - (time.perf_counter() - self._began)
        return max(_LEAST_S, min(BUDGET_S, remaining / 2 / self._left))

    def _launches(self, name: str, timed: Timed, at: int, place: c.Place | None) -> tuple[c.Launches, ...]:
        seen = timed.seen[at]
        longest = (
            max(seen.records, key=lambda launch_record: launch_record.duration_ns, default=None)
            if seen
            else None
        )
        cold, warm = timed.cold[at], timed.warm[at]
        call = c.Launches(
            symbol=name,
            name=name,
            grid=longest.grid if longest else (0, 0, 0),
            block=longest.block if longest else (0, 0, 0),
            timing=cold,
            count=cold.n + warm.n,
            place=place,
            warm=warm,
            kernels=len(seen.records) if seen else None,
        )
        return (call, *(_kernels(name, seen) if seen else ()))


def _kernels(name: str, seen: RecordedLaunches) -> tuple[c.Launches, ...]:
    """Return the kernels of the recorded calls, Triton's with their constants and their place."""
    calls = launch_records.series(seen.calls)
    matched = triton_instances.match(calls, triton_instances.instances())
    known = {launch.symbol: launch for _, launch in matched.launches}
    for record in seen.calls:
        known.setdefault(record.symbol, c.Resources(record.symbol, symbols.short_name(record.symbol), ""))
    grouped = sorted(
        measure.group(calls, known),
        key=lambda launches: launches.timing.median * launches.count,
        reverse=True,
    )
    return tuple(
        replace(
            launches, timing=replace(launches.timing, label=f"in {name}, n={launches.timing.n}", first=None)
        )
        for launches in grouped[:_SHOWN]
    )


def _versus(subject: Subject, timed: Timed) -> AgainstReference | None:
    ab_verdict = timed.comparison
    if ab_verdict is None or subject.reference is None:
        return None
    return AgainstReference(
        subject.reference,
        ab_verdict.verdict,
        ab_verdict.ratio,
        ab_verdict.low,
        ab_verdict.high,
        ab_verdict.pairs,
    )


# -- what goes wrong --------------------------------------------------------------------------------


def failed_call(job: Job, error: BaseException, recorder: Recorder, place: c.Place) -> c.Finished:
    """Return an exception of the user's code, or of torch and CUDA under it, at the user's line if it has one."""
    with contextlib.suppress(Exception):
        recorder.end()
    recorded = recorder.recorded()
    fatal = next((record for record in recorded.errors if record.fatal), None)
    cause = _extension(error) or python_errors.explain(error, job.path)
    if cause.code is not None and recorded.errors:
        cause = python_errors.with_cause(cause, fatal or recorded.errors[0])
    known = {record.symbol: record.place for record in triton_instances.instances() if record.place}
    cause = python_errors.at_kernel(cause, known)
    failure = cause.failure if cause.failure.place else replace(cause.failure, place=place)
    if isinstance(error, ModuleNotFoundError) and error.name:
        failure = replace(failure, remedy=_listed_elsewhere(job.path, error.name) or failure.remedy)
    problems = tuple(
        problem if problem.place else replace(problem, place=failure.place) for problem in cause.problems
    )
    return c.failed(job.run, failure, problems=problems)


def _extension(error: BaseException) -> python_errors.Explained | None:
    """Return a source that a compiler refused: for `torch.utils.cpp_extension` its first error, not ninja's whole
    log.
    """
    at: BaseException | None = error
    while at is not None:
        if isinstance(at, cuda_source.NotCompiledError):
            return python_errors.Explained(*at.failure())
        words = str(at)
        if isinstance(at, RuntimeError) and "Error building extension" in words:
            first = next(
                (line.strip() for line in words.splitlines() if re.search(r"\berror\b ?[:#]", line)), ""
            )
            text = f"the extension does not compile: {first}" if first else words.splitlines()[0]
            failure = c.Failure("compile error", text)
            return python_errors.Explained(failure, (c.Problem("error", text, "nvcc"),))
        at = at.__cause__ or at.__context__
    return None


def _listed_elsewhere(path: str, module: str) -> str:
    """Return a message about a module that is not in the place that task.yml gives."""
    from orbit_remote.common.contracts import popcorn_task

    folder = harness_files.problem_folder(Path(path))
    with contextlib.suppress(OSError, ValueError, popcorn_task.TaskError):
        task = popcorn_task.of_file(folder / harness_files.TASK)
        if (source := task.files.get(f"{module}.py")) is not None:
            return f"task.yml takes {module}.py from {source}, which is not there"
    return ""


def _task_hash(path: str) -> dict[str, str]:
    task = harness_files.problem_folder(Path(path)) / harness_files.TASK
    digest = file_hash(str(task)) if task.is_file() else None
    return {str(task): digest} if digest else {}


def _sentence(text: str, remedy: str) -> str:
    return f"{text}: {remedy}" if remedy else text
