"""*Capture*: a driver runs once more, and one launch of a kernel is taken. The launch spec that replays it is written
above the kernel.

Nothing is written before the spec has run by itself, in its own process, with the same output as the kernel.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from orbit_lsp.closure.tree import below
from orbit_lsp.kernels import Kernel
from orbit_lsp.runs import result_filing
from orbit_lsp.runs.scheduler import NO_ANSWER, Run, RunFailedError, RunWatcher, Scheduler
from orbit_lsp.specs import driver_choice, job_builder, launch_plan, spec_blocks, spec_cache
from orbit_lsp.state.documents import split_lines
from orbit_lsp.state.kernel_ids import KernelId
from orbit_lsp.state.session import Frozen, Session, path_of
from orbit_remote.common import codec, limits, regular_files
from orbit_remote.common import messages as c
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.requests import Capture, Driver, DriverStart, Job, KernelDefinition, SpecStart

if TYPE_CHECKING:
    from orbit_lsp.runners import Runner

_PREFIX = "capture"
NOTE: Final = "captured: "
"""What the comment above a captured spec begins with."""


@dataclass(frozen=True, slots=True)
class WrittenSpec:
    """What a capture writes. `text` replaces the lines `old` of the `frozen` file, in front of line `at`, both from
    0. `content` goes into the file `stored` beside it. `replayed` is how its run ended.
    """

    target: KernelId
    frozen: Frozen
    at: int
    old: tuple[int, ...]
    text: str
    stored: str
    content: bytes
    captured: c.Captured
    replayed: c.Finished


def refusal(session: Session, target: KernelId, kernel: Kernel) -> str:
    """Return why no launch of a kernel can be captured, in a sentence. Return "" if one can."""
    if kernel.dsl not in ("cuda", "triton"):
        what = "CUDA in a Python file" if kernel.dsl == "embedded" else kernel.dsl
        return f"{target.key} is a kernel of {what}: launches of Triton and of CUDA files are captured; `orbit-lsp draft` proposes a launch spec"
    if kernel.dsl == "triton" and kernel.qualified != kernel.name:
        return f"{target.key} is defined in a class or function, so no launch spec can launch it"
    if not kernel.launchable:
        return f"{target.key} is called by other kernels, and never launched"
    spec = spec_cache.spec_of(session, target.uri, kernel)
    if spec is not None and not is_captured(session, target.uri, kernel):
        return f"{target.key} has a launch spec that its author wrote: remove its lines first, or run it as it is"
    return ""


def is_captured(session: Session, uri: str, kernel: Kernel) -> bool:
    """Say whether a capture wrote the launch spec above a kernel. Another capture replaces it."""
    checked = spec_cache.spec_of(session, uri, kernel)
    return checked is not None and any(expect.captured for expect in checked.spec.expects)


def own_program(session: Session, target: KernelId) -> Driver | None:
    """Return the program whose `main` is in a CUDA file as a driver of its kernels: as the project builds it if that
    was found, else compiled alone. Return None if there is none.
    """
    file, path = session.files.get(target.uri), path_of(target.uri)
    place = below(path, session.setup.directory(path))
    if file is None or not place or file.scan.language != "cuda" or not file.scan.entries:
        return None
    alone = Driver("program", place, tool="nvcc", folder=place.rpartition("/")[0])
    found = (route.driver for route in driver_choice.ranked(session, target))
    return next((each for each in found if each.file == place), alone)


def _launching(finished: c.Finished, launches: tuple[c.Launches, ...]) -> tuple[str, ...]:
    """Return the parameter sets of a test's run in which the kernel was launched. Others may launch it differently."""
    symbols = {each.symbol for each in launches}
    return tuple(each.id for each in finished.sets if symbols & each.launches.keys())


def _without_gpu(finished: c.Finished) -> c.Failure | None:
    """Return why a run that ended well launched nothing, if its machine has no GPU."""
    if finished.device:
        return None
    return c.Failure("infrastructure", c.NO_GPU, "capture a launch on a machine that has one")


def not_launched(target: KernelId, driver: Driver) -> str:
    """Return what to say about a driver that does not launch the kernel."""
    return (
        f"{target.key} was not launched by {driver.id}, so there is nothing to capture: name another driver"
    )


def wanted(launches: tuple[c.Launches, ...]) -> Capture:
    """Return the configuration that took most time among those that a run of the driver has shown. There is at least
    one.
    """
    main = max(launches, key=lambda each: each.count * each.timing.median)
    return Capture(None, main.grid, main.constants, main.block, main.symbol)


@dataclass(frozen=True, slots=True)
class LaunchCapture:
    """Starts captures."""

    session: Session
    runner: Callable[[Job], Awaitable[Runner]]
    scheduler: Scheduler
    watcher: RunWatcher

    async def launches(
        self, target: KernelId, driver: Driver, sets: tuple[str, ...]
    ) -> tuple[tuple[c.Launches, ...], tuple[str, ...]]:
        """Return a kernel's launches by a driver, and the parameter sets that launch it. They are those of the
        driver's last run if it ran this text, else of a new run like a click's. Return nothing if it launches none.
        Raises RunFailedError if the run ended badly before.
        """
        session = self.session
        known = session.results.runs.get(target)
        digest = next((digest for each, _, digest in session.kernels(target.uri) if each == target), "")
        if known and known.digest == digest and known.driver == driver and known.launches and not sets:
            return known.launches, _launching(known.finished, known.launches)
        run = self.scheduler.start("run", target.uri, target, driver=driver, sets=sets)
        if run is None:
            return (), ()
        finished = await self.scheduler.result(run)
        launched = result_filing.launched(session, run.frozen, run.job, {target}, finished)
        launches = launched[target][1] if target in launched else ()
        if not launches and (failure := finished.failure or _without_gpu(finished)):
            raise RunFailedError(failure)
        return launches, _launching(finished, launches)

    def start(
        self,
        target: KernelId,
        driver: Driver,
        sets: tuple[str, ...],
        taking: Capture,
        written: Callable[[WrittenSpec], None],
    ) -> Run | None:
        """Capture a launch, and return at once. `written` is called with the launch spec once it has replayed. Return
        None if the file is not open any more.
        """
        session = self.session
        if (frozen := session.freeze(target.uri)) is None or (kernel := session.find(target)) is None:
            return None
        if under_way := self.scheduler.several(target.uri, {target}, _PREFIX):
            return under_way
        plan = launch_plan.driven(session, target.uri, driver)
        job = job_builder.make(session, frozen, "run", self.scheduler.new_id(_PREFIX), plan)
        job = job_builder.through_driver(session, job, target, sets, repeated=False)
        job = job_builder.under_a_tool(session, job, target, "click", ())
        assert isinstance(job.start, DriverStart)
        job = replace(job, start=replace(job.start, capture=taking))
        run = Run(job.run, "run", frozen, job, {target}, session.disk.changes, plan, of_several=True)
        run.named = f"Capture {target.key}"
        if plan.refusal:
            return self.scheduler.refuse(run, plan.refusal)
        self.scheduler.launch(run, _Capture(run, target, kernel, self, written))
        return run


class _Capture:
    """Runs a driver to take a launch, then the launch spec that is made from it."""

    def __init__(
        self,
        run: Run,
        target: KernelId,
        kernel: Kernel,
        tools: LaunchCapture,
        written: Callable[[WrittenSpec], None],
    ) -> None:
        self._run = run
        self._target = target
        self._kernel = kernel
        self._tools = tools
        self._written = written
        self._replayed: c.Finished | None = None

    async def perform(self) -> None:
        """Raises RunFailedError."""
        finished = await self._outcome(self._run.job, "")
        captured = finished.captured
        if captured is None or (captured.why and finished.failure and not captured.launch):
            failure = finished.failure or c.Failure(
                "infrastructure", "the driver ended before its launch was taken"
            )
            raise RunFailedError(
                replace(
                    failure, message=f"{self._driver} failed before the launch was taken: {failure.message}"
                )
            )
        if captured.why:
            text = f"{self._target.key} was not captured: {captured.why}"
            raise RunFailedError(c.Failure("infrastructure", text, captured.remedy or "nothing was written"))
        if finished.failure:
            first = finished.failure.message.partition("\n")[0]
            remark = f"{self._driver} failed after this launch: {first}"
            captured = replace(captured, remarks=(*captured.remarks, remark))
        written = await self._replay(captured)
        self._written(written)

    @property
    def _driver(self) -> str:
        return self._run.job.driver.id if self._run.job.driver else "the driver"

    async def _replay(self, captured: c.Captured) -> WrittenSpec:
        """Run the launch spec in the same way as a click will. Raises RunFailedError if its launch differs from the
        one captured.
        """
        frozen, kernel = self._run.frozen, self._kernel
        text, definition, at, old = with_spec(frozen, kernel, captured, self._driver)
        content = await asyncio.to_thread(codec.unpacked, captured.data, limits.STORED)
        start = SpecStart(definition, {captured.file: captured.data})
        folder = self._tools.session.setup.working_folder(path_of(frozen.uri))
        whole = "\n".join([*text[0], *text[1], *text[2]])
        job = replace(
            self._run.job,
            run=f"{self._run.id}.replay",
            text=whole,
            start=start,
            tool_kernel=None,
            directory=folder,
        )
        finished = await self._outcome(job, "the launch spec is run: ")
        checks = [check for point in finished.points for check in point.checks]
        if finished.outcome != "ok" or not checks:
            failure = finished.failure
            why = failure.message if failure else "nothing could be compared"
            said = f"the launch spec of {self._target.key} does not replay what was captured: {why}"
            raise RunFailedError(
                c.Failure("infrastructure", said, "nothing was written; name another launch with --launch")
            )
        self._replayed = finished
        added = "".join(f"{line}\n" for line in text[1])
        return WrittenSpec(self._target, frozen, at, old, added, captured.file, content, captured, finished)

    async def _outcome(self, job: Job, doing: str) -> c.Finished:
        """Run one job to its end. Raises RunFailedError if its runner reports no end."""
        finished: c.Finished | None = None
        runner = await self._tools.runner(job)
        async with aclosing(runner.run(job)) as events:
            async for event in events:
                match event:
                    case c.Stage(state=state, why=why):
                        self._tools.scheduler.mark(self._run, state, doing + why)
                        self._tools.watcher.stage(self._run, state, doing + why)
                    case c.Output(stream=stream, text=text) if not doing:
                        self._tools.watcher.output(self._run, stream, text)
                    case c.Finished():
                        finished = event
                    case _:
                        pass
        if finished is None:
            raise RunFailedError(NO_ANSWER)
        return finished

    def end(self, failure: c.Failure | None) -> tuple[c.Finished, set[str]]:
        changed = {self._target.uri}
        if failure or self._replayed is None:
            self._run.refused = True  # no line of the file is at fault: a message says it
            return c.failed(self._run.id, failure or NO_ANSWER), changed
        return replace(self._replayed, run=self._run.id), changed


def with_spec(
    frozen: Frozen, kernel: Kernel, captured: c.Captured, driver: str
) -> tuple[tuple[list[str], list[str], list[str]], KernelDefinition, int, tuple[int, ...]]:
    """Return a text with a captured launch spec: the lines above it, its own, and those below. Return also where the
    kernel is then, the line in front of which the spec stands, and the lines of an earlier capture that it replaces,
    both in the present text.
    """
    from orbit_remote.spec.comment_scanner import lines_of

    lines = lines_of(frozen.text)
    at, old = kernel.whole.line, old_lines(lines, kernel)
    above = [line for number, line in enumerate(lines[:at]) if number not in old]
    added = written_lines(lines[at], kernel, captured, driver)
    moved = len(added) - len(old)
    now = spec_blocks.definition(kernel)
    definition = replace(
        now,
        start_line=now.start_line + moved,
        line=now.line + moved,
        name_line=now.name_line + moved,
        end_line=None if now.end_line is None else now.end_line + moved,
    )
    return (above, added, lines[at:]), definition, at, old


def old_lines(lines: list[str], kernel: Kernel) -> tuple[int, ...]:
    """Return the lines of the launch spec above a kernel, and of a capture's remark on it."""
    from orbit_remote.spec import directives

    of = spec_blocks.target(kernel)
    spec, _ = directives.read(lines, of)
    if not spec.lines:
        return ()
    first = min(spec.lines)
    notes = [first - 1] if first and lines[first - 1].lstrip("/# \t").startswith(NOTE) else []
    return (*notes, *spec.lines)


def written_lines(first: str, kernel: Kernel, captured: c.Captured, driver: str) -> list[str]:
    """Return a remark that says what was captured, and the launch spec."""
    from orbit_lsp.drafts import spec_lines
    from orbit_lsp.drafts.guesses import DraftStatement

    mark = "//" if kernel.language == "cuda" else "#"
    indentation = first[: len(first) - len(first.lstrip())]
    statements = [DraftStatement(text) for text in captured.statements]
    spec = spec_lines.above(kernel.language, statements, first)
    parts = [f"launch {captured.launch:,} of {captured.seen:,} of {driver}"]
    if captured.random:
        are = "is" if len(captured.random) == 1 else "are"
        parts.append(
            f"{', '.join(captured.random)} {are} random of the same scale (control flow not checked)"
        )
    if not captured.orderly:
        parts.append("the order of its sums varies")
    parts += captured.remarks
    return [
        f"{indentation}{mark} {NOTE}{'; '.join(' '.join(part.split()) for part in parts)}",
        *spec.split("\n")[:-1],
    ]


def store(written: WrittenSpec) -> Path:
    """Write the tensors of a captured launch spec beside its file. The tensors of other kernels stay. Raises OSError
    and ValueError.
    """
    from orbit_remote.spec import stored_tensors

    path = Path(path_of(written.target.uri)).with_name(written.stored)
    content = stored_tensors.merged(path, written.content, written.captured.kernel)
    if len(content) > limits.STORED.most:
        raise ValueError(f"{path.name} would be larger than {limits.STORED.size}: {limits.STORED.beyond}")
    regular_files.replace(path, content)
    return path


def edit_now(session: Session, written: WrittenSpec) -> tuple[tuple[int, int], str] | None:
    """Return the edit to make in a file that may have been edited since: ((first line, line behind the last), new
    text). Return None if the kernel, or what stands above it, was edited.
    """
    file, kernel = session.files.get(written.target.uri), session.find(written.target)
    if file is None or kernel is None:
        return None
    lines = split_lines(file.document.text)
    then = split_lines(written.frozen.text)
    start, end = kernel.whole.line, kernel.whole.end_line + 1
    moved = start - written.at
    first = min(written.old, default=written.at)
    same = lines[first + moved : end] == then[first : end - moved]
    if not same or old_lines([line.rstrip("\r\n") for line in lines], kernel) != tuple(
        each + moved for each in written.old
    ):
        return None
    kept = [
        line for at, line in enumerate(lines[:start]) if at >= first + moved and at - moved not in written.old
    ]
    text = written.text.replace("\n", "\r\n") if lines[start].endswith("\r\n") else written.text
    return (first + moved, start), "".join([*kept, text])


def with_lines(text: str, written: WrittenSpec) -> str:
    """Return a file's text with the launch spec in it. Its other lines keep their ends."""
    lines = split_lines(text)
    end = "\r\n" if lines and lines[0].endswith("\r\n") else "\n"
    above = [line for number, line in enumerate(lines[: written.at]) if number not in written.old]
    return "".join([*above, written.text.replace("\n", end), *lines[written.at :]])
