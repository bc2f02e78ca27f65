"""Checks a file by compute-sanitizer: it is built, run once alone, and once under each tool.

A CUDA program first runs unchanged, with the launch recorder. So a kernel that is never launched is reported, and not
called clean. For Python, and for the kernels of a launch spec, a fresh child process runs under the tool each time.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path

from orbit_remote.child import child_main
from orbit_remote.child.spec import spec_sanitize
from orbit_remote.common import messages as c
from orbit_remote.common import symbols
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.requests import Job, SpecStart
from orbit_remote.process import program
from orbit_remote.recording import run_outcome
from orbit_remote.sanitizer import sanitizer_findings, sanitizer_records, sanitizer_tool
from orbit_remote.spec import launch_spec
from orbit_remote.toolchain.spec_instances import Image
from orbit_remote.worker import gpu, own_files
from orbit_remote.worker.actions import builds, cuda_action
from orbit_remote.worker.context import WorkerContext

_PADDING = 64 << 10
"""Bytes behind each allocation that nothing may touch: allocations lie side by side, and an index that is off by one meets
the next. More would not fit for programs that make many thousands of small ones.
"""
_LATE = "raise the setting `orbit.check_memory.timeout_s`, take smaller inputs, or fewer of `orbit.check_memory.tools`"


async def check_memory(job: Job, context: WorkerContext) -> c.Finished:
    device = await asyncio.to_thread(gpu.of, job)
    if device is None:
        return gpu.no_gpu(job)
    if job.start.through == "contract":
        text = "KernelBench and popcorn files are not checked themselves: check their kernels, by a launch spec or a program"
        return c.failed(job.run, c.Failure("infrastructure", text))
    tool = await asyncio.to_thread(sanitizer_tool.find, job.nvcc)
    if isinstance(tool, c.Failure):
        return c.failed(job.run, tool)
    async with context.scratch() as scratch:
        target = await _target(job, device, context, scratch)
        if isinstance(target, c.Finished):
            return target
        async with context.gpu(job):
            finished = await _Checking(target.job or job, context, tool, target, scratch).finished()
    return replace(
        finished,
        device=device,
        toolchain={**target.toolchain, **finished.toolchain, "compute-sanitizer": tool.version},
        resources=finished.resources or target.resources,
        build_s=target.build_s,
        remarks=(*target.remarks, *finished.remarks),
    )


# -- what is checked --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _CheckedTarget:
    """What is checked. `events` is the file in which a child of ours reports how its job went; None if the program is
    the user's own. `job` is that of a program whose project says how it runs.
    """

    command: Sequence[str]
    stdin: str
    own: sanitizer_findings.Own
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    events: Path | None = None
    kernels: tuple[str, ...] = ()
    toolchain: dict[str, str] = field(default_factory=dict[str, str])
    resources: tuple[c.Resources, ...] = ()
    build_s: float | None = None
    remarks: tuple[str, ...] = ()
    job: Job | None = None


async def _target(
    job: Job, device: c.Device, context: WorkerContext, scratch: Path
) -> _CheckedTarget | c.Finished:
    if job.language == "triton" or (job.start.through == "driver" and not job.is_program):
        return _child(job, context, scratch)
    if job.start.through == "spec":
        from orbit_remote.worker.actions import spec_action

        made = await spec_action.build_kernels(job, device, context, scratch)
        if isinstance(made, c.Finished):
            return made
        return replace(
            _child(job, context, scratch, made.image),
            own=own_files.of_build(job, made.build.built),
            toolchain=made.build.toolchain,
            resources=made.build.built.resources,
            build_s=made.build.built.seconds,
            remarks=made.build.remarks,
        )
    # with the lines of host code, the only lines that leaks and refused launches have
    wanted = replace(job, flags=(*job.flags, "-Xcompiler=-g")) if os.name == "posix" else job
    made = await builds.build_file(wanted, device, context, scratch)
    if isinstance(made, c.Finished):
        return made
    job = made.job or job
    return _CheckedTarget(
        (str(made.executable), *job.arguments), job.stdin, own_files.of_build(job, made.built), gpu.visible_gpu(job), None, (),
        made.toolchain, made.built.resources, made.built.seconds, made.remarks, made.job,
    )  # fmt: skip


def _child(job: Job, context: WorkerContext, scratch: Path, image: Image | None = None) -> _CheckedTarget:
    command = child_main.command(scratch, context.home / "cupti", job, image)
    return _CheckedTarget(
        command, "", own_files.of_python(job), spec_sanitize.CACHE, scratch / "events", _launched_by(job)
    )


def _launched_by(job: Job) -> tuple[str, ...]:
    """Return the kernels that a launch spec launches, by their bare names. Return none for a program, which launches
    what it likes.
    """
    if not isinstance(job.start, SpecStart):
        return ()
    definition = job.start.definition
    checked = launch_spec.check(job.text, launch_spec.target_of(definition, job.language))
    names = [launch.kernel.name.rpartition("::")[2] for launch in checked.spec.launches]
    return tuple(dict.fromkeys([*names, definition.name]))


# -- checking ---------------------------------------------------------------------------------------


class _Checking:
    def __init__(
        self,
        job: Job,
        context: WorkerContext,
        tool: sanitizer_tool.Sanitizer,
        target: _CheckedTarget,
        scratch: Path,
    ) -> None:
        self._job = job
        self._context = context
        self._sanitizer = tool
        self._target = target
        self._scratch = scratch
        self._environment = {**context.environment(job), **target.environment}
        self._directory = job.working_folder
        self._output_shown = False
        self._plain: program.EndedProgram | None = None
        self._child: c.Finished | None = None
        self._remarks: list[str] = []

    async def finished(self) -> c.Finished:
        problems: list[c.Problem] = []
        if self._target.events is None:
            launched = await self._as_it_is()
            if self._plain is not None and self._plain.status is None:
                return self._outcome([], ())
            if launched is not None and (missing := _missing(self._job, launched, self._target.resources)):
                problems.append(missing)
        done: list[sanitizer_tool.CheckedProgram] = []
        tools = self._job.tools or sanitizer_tool.TOOLS
        for at, tool in enumerate(tools):
            self._context.stage(self._job, "running", f"{tool}, {at + 1} of {len(tools)}")
            checked = await self._check(tool)
            done.append(checked)
            if checked.ended.status is None:
                limit = f"its limit of {self._job.run_timeout_s:g} s"
                self._remarks.append(f"{tool} was ended at {limit}: it may have found more")
            records = sanitizer_records.read(checked.records, checked.log)
            assertion = run_outcome.assertion(self._job, checked.ended.stderr)
            problems += sanitizer_findings.problems(tool, records, self._target.own, assertion)
            if checked.refused:  # the next would say the same
                break
        if missing := self._never_compiled():
            problems.append(missing)
        return self._outcome(done, self._authors(problems))

    def _authors(self, problems: Sequence[c.Problem]) -> tuple[c.Problem, ...]:
        """Return the problems without those in kernels of libraries, which have neither a line nor a name in the
        author's files.
        """
        resources = (*self._target.resources, *(self._child.resources if self._child else ()))
        known = {
            name for resource in resources for name in (resource.name, symbols.base_name(resource.symbol))
        }
        known |= {*self._target.kernels, self._job.kernel or ""}
        own = [
            problem
            for problem in problems
            if problem.place or problem.symbol is None or problem.symbol in known
        ]
        for fault in problems:
            if fault not in own:
                self._remarks.append(f"{fault.tool}, in {fault.symbol}, which is not yours: {fault.message}")
        return tuple(own)

    def _never_compiled(self) -> c.Problem | None:
        """Return a problem if Triton never compiled the kernel. Triton compiles a kernel when it is launched, so then
        nothing was checked.
        """
        job, child = self._job, self._child
        if job.language != "triton" or job.kernel is None or child is None or child.outcome != "ok":
            return None
        if (
            any(resource.name.rpartition(".")[2] == job.kernel for resource in child.resources)
            or job.start.through == "spec"
        ):
            return None
        return _not_launched(Path(job.path).name, job.kernel)

    async def _as_it_is(self) -> frozenset[str] | None:
        """Run the program without a tool. Return the symbols of the kernels that it launches, or None if they cannot
        be recorded.
        """
        self._context.stage(self._job, "running", "as it is")
        self._plain, recorded, why = await cuda_action.run_recorded(
            self._job, self._context, self._target.command, self._target.environment, self._scratch
        )
        self._output_shown = True
        return (
            None
            if why
            else frozenset((*(launches.launch.symbol for launches in recorded.series), *recorded.unfinished))
        )

    async def _check(self, tool: str) -> sanitizer_tool.CheckedProgram:
        target, answered = self._target, self._output_shown
        if target.events:
            target.events.unlink(missing_ok=True)
        checked = await sanitizer_tool.check(
            self._sanitizer,
            tool,
            target.command,
            scratch=self._scratch,
            cwd=self._directory,
            env=self._environment,
            stdin=target.stdin,
            timeout_s=self._job.run_timeout_s,
            started=self._context.groups(self._job),
            output=(lambda _stream, _text: None) if answered else self._context.output(self._job),
            options=self._options(tool),
        )
        if not answered:
            self._output_shown, self._plain = True, checked.ended
        # of several the first that went wrong
        if target.events and (self._child is None or self._child.outcome == "ok"):
            self._child = child_main.outcome(target.events.parent) or self._child
        return checked

    def _options(self, tool: str) -> list[str]:
        """Return a tool's options. Everything that a launch spec does besides its kernels is torch's. Only the
        kernels are checked, but the tool must see what torch writes to know that it is written.
        """
        words: list[str] = []
        own = self._target.events is None
        if tool != "initcheck":
            words += [part for kernel in self._target.kernels for part in ("--kernel-name", f"kns={kernel}")]
        if tool == "memcheck":
            words += ["--padding", str(_PADDING), "--destroy-on-device-error", "kernel"]
            # what torch and cuda-core ask in vain, and keep, is not the author's
            words += (
                ["--report-api-errors", "explicit", "--leak-check", "full"]
                if own
                else ["--report-api-errors", "no"]
            )
        if not own:  # Python's own frames are fifty a finding
            words += ["--show-backtrace", "device"]
        return words

    # -- how it went --------------------------------------------------------------------------------

    def _outcome(
        self, done: Sequence[sanitizer_tool.CheckedProgram], problems: tuple[c.Problem, ...]
    ) -> c.Finished:
        failure = self._failure(done, problems)
        plain, child = self._plain, self._child
        if child and not problems:
            problems = child.problems
        if (
            failure
            and failure.category == "runtime error"
            and all(problem.severity != "error" for problem in problems)
        ):
            problems = (*problems, c.Problem("error", failure.message, "orbit", failure.place))
        return c.Finished(
            self._job.run,
            failure.category if failure else "ok",
            failure,
            problems=problems,
            resources=child.resources if child else (),
            toolchain=child.toolchain if child else {},
            exit_code=plain.status if plain else None,
            run_s=sum(checked.ended.seconds for checked in done),
            stdout=plain.stdout if plain else "",
            stderr=plain.stderr if plain else "",
            truncated=plain.truncated if plain else False,
            files=child.files if child else {},
            remarks=(*self._remarks, *(child.remarks if child else ())),
        )

    def _failure(
        self, done: Sequence[sanitizer_tool.CheckedProgram], problems: tuple[c.Problem, ...]
    ) -> c.Failure | None:
        job = self._job
        errors = [problem for problem in problems if problem.severity == "error"]
        if errors:
            counts = {error.tool: sum(other.tool == error.tool for other in errors) for error in errors}
            counted = ", ".join(f"{tool} {count}" for tool, count in counts.items())
            what = "1 fault was found" if len(errors) == 1 else f"{len(errors)} faults were found"
            return c.Failure(
                "runtime error", f"{what} ({counted})", place=errors[0].place, symbol=errors[0].symbol
            )
        if not done:
            message = f"the program alone reached the limit of {job.run_timeout_s:g} s; no tool was started"
            return c.Failure("timed out", message, _LATE)
        if refused := next((checked.refused for checked in done if checked.refused), None):
            return refused
        if late := [checked.tool for checked in done if checked.ended.status is None]:
            clean = [checked.tool for checked in done if checked.complete]
            also = f"; {', '.join(clean)} found nothing" if clean else ""
            return c.Failure(
                "timed out",
                f"{', '.join(late)} was ended at the limit of {job.run_timeout_s:g} s{also}",
                _LATE,
            )
        if self._child is not None and self._child.outcome != "ok":
            return self._child.failure
        name = "main" if job.language == "cuda" else Path(job.path).name
        if not done[0].uses_cuda and not (self._plain and self._plain.status):
            return c.Failure("runtime error", f"{name} makes no call of CUDA, so there was nothing to check")
        if self._target.events is not None and self._child is None:
            how = run_outcome.how_it_ended(done[0].ended.status or 0, name)
            return c.Failure("runtime error", f"{how} under {done[0].tool}; no fault was found until then")
        if self._plain is not None and self._plain.status:
            how = run_outcome.how_it_ended(self._plain.status, name)
            return c.Failure("runtime error", f"{how}; no memory fault was found until then")
        return None


def _missing(job: Job, launched: frozenset[str], resources: Sequence[c.Resources]) -> c.Problem | None:
    """Return the problem that the requested kernel is never launched."""
    if job.project_program and job.kernel:  # its build does not say which kernels it has
        names = set(map(symbols.base_name, launched))
        return None if job.kernel in names else _not_launched(job.project_program.short, job.kernel)
    of_kernel = {
        resource.symbol for resource in resources if symbols.base_name(resource.symbol) == job.kernel
    }
    if job.kernel is None or not of_kernel or of_kernel & launched:
        return None
    return _not_launched("main", job.kernel)


def _not_launched(program: str, kernel: str) -> c.Problem:
    text = f"{program} did not launch {kernel}, so nothing in it was checked"
    return c.Problem("information", text, "orbit", code=c.NOT_LAUNCHED)
