"""The engine of a click, without an editor. It does one job after the other in one place of the pool."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from orbit_lsp.engine.engine import Engine, Unwatched
from orbit_lsp.history.ab_compare import AbCompare
from orbit_lsp.history.compare_candidates import Candidate
from orbit_lsp.history.history_tracker import HistoryTracker
from orbit_lsp.profile import bottleneck
from orbit_lsp.queue import compiled_code
from orbit_lsp.queue import request as requests
from orbit_lsp.queue.job_store import Code, Result
from orbit_lsp.queue.pool import Slot
from orbit_lsp.queue.request import Request, RequestRefusedError
from orbit_lsp.report import opening
from orbit_lsp.runners import extension_builds
from orbit_lsp.runs import disassembly, driver_search
from orbit_lsp.runs.scheduler import BY_WORD, Run, RunWatcher
from orbit_lsp.specs import spec_cache
from orbit_lsp.state import config, harness, user_folders
from orbit_lsp.state.kernel_ids import KernelId
from orbit_lsp.state.placement import RunSetup
from orbit_lsp.state.results import Results
from orbit_lsp.state.session import ClientAbilities, Session, path_of, uri_of
from orbit_lsp.state.user_folders import cache_folder
from orbit_lsp.views import ab_table, harness_view, kernel_status, kernel_tables, tables
from orbit_lsp.views.tables import Section
from orbit_remote.common import architectures, codec, content_store
from orbit_remote.common import messages as c
from orbit_remote.common.contracts import harness_files
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.requests import Driver

PACKED = ".tensor"
"""How the names of files end that a launch spec reads with `from_file`."""
_JOBS_FOLDER = re.compile(r"""(?<=["\s])/(?!/)[^"\n]*?/orbit-lsp/jobs/[0-9a-f]{16}(?=/)""")
Stage = Callable[[c.State, str], None]


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Options of an engine. `settings` are the user's own. `folders` are those whose Python and trust count, as a
    command's current folder does. `remedy` names what raises the limit of spending.
    """

    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    folders: tuple[str, ...] = ()
    remedy: str = "raise --budget"
    complain: Callable[[str], None] = lambda _: None


class _Watcher(Unwatched):
    """Passes on what a job waits for."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def stage(self, run: Run, state: c.State, why: str) -> None:
        del run
        self._stage(state, why)


class SlotEngine:
    def __init__(self, slot: Slot, options: EngineOptions) -> None:
        self._options = options
        self._session = Session(
            setup=RunSetup(folders=list(options.folders)),
            client=ClientAbilities(name="orbit-lsp jobs", batch=True),
        )
        self._places = Engine(self._session, Unwatched(), options.complain, remedy=options.remedy).places
        self._base: dict[str, Any] = {
            "every_gpu": "off",  # nobody waits here for figures that come later
            **options.settings,
            **dict(slot.options),
        }
        self._configure({})
        # chosen by the folders of the user, not by a job's own
        self._base["python"] = self._places.python.path
        self._looked = False
        self._slot = slot
        self._builders: list[SlotEngine] = []
        self._idle_builders: list[SlotEngine] = []

    async def ready(self) -> str:
        return ""

    async def machine(self) -> c.Machine | None:
        await self._places.look_around()
        self._looked = True
        return self._session.setup.machine

    def rents(self) -> str:
        """Return the GPU that is rented if this machine has none. Return "" if none is."""
        setup = self._session.setup
        return setup.rents() if setup.place() == "modal" else ""

    async def perform(self, job: str, request: Request, stage: Stage) -> Result:
        """Carry out one job. If the call is cancelled, it ends the work first."""
        folder = _folder(job)
        try:
            path, against = await asyncio.to_thread(requests.place, request, folder)
            result = await self._perform(job, request, path, against, stage)
        except RequestRefusedError as why:
            failure = c.Failure("compile error", str(why), "nothing was run")
            return Result(c.failed(job, failure))
        except OSError as error:
            failure = c.Failure(
                "infrastructure", f"the job's files cannot be written: {error}", "free disk space"
            )
            return Result(c.failed(job, failure))
        finally:
            await asyncio.to_thread(content_store.remove, folder)
        return result if request.path else _relative(result, folder)

    async def prepare(self, job: str, request: Request) -> None:
        """Do what needs no GPU and may come before `perform`, while other jobs run."""
        if not self._looked and self._session.setup.place() == "local":
            await self.machine()
        if devices := self._extends(request):
            passed = tuple(self._session.setup.settings.environment)
            await extension_builds.build(request.text, request.files, self._base["python"], devices, passed)
        elif requests.builds_ahead(request):
            builder = self._idle_builders.pop() if self._idle_builders else self._another_builder()
            try:
                await builder.build(job, request)
            finally:
                self._idle_builders.append(builder)

    def _another_builder(self) -> SlotEngine:
        own = self._options
        quiet = EngineOptions(own.settings, own.folders, own.remedy)  # the run complains
        self._builders.append(SlotEngine(self._slot, quiet))
        return self._builders[-1]

    async def build(self, job: str, request: Request) -> None:
        """Build what the run of a kernel will launch, so that the run finds it. A build is known by the path and the
        content of its source. Raises RequestRefusedError and OSError.
        """
        folder = _folder(job)
        try:
            path, _ = await asyncio.to_thread(requests.place, request, folder)
            uri = self._opened(request, path)
            await self._known(uri)
            target = chosen(self._session, uri, request)
            if target and (building := self._engine(Unwatched()).runs.ahead(target)):
                await building
        finally:
            await asyncio.to_thread(content_store.remove, folder)

    def _extends(self, request: Request) -> tuple[c.Device, ...]:
        """Return the GPUs of this machine if a request's extensions may be built for them before it has one.
        Otherwise return none.
        """
        setup = self._session.setup
        if not requests.builds_extension(request) or setup.place() != "local" or setup.host:
            return ()
        return setup.machine.devices if setup.machine else ()

    async def close(self) -> None:
        for builder in self._builders:
            await builder.close()
        await self._places.close()

    # -- one job ------------------------------------------------------------------------------

    async def _perform(self, job: str, request: Request, path: str, against: str, stage: Stage) -> Result:
        """Raises RequestRefusedError and OSError."""
        session = self._session
        uri = self._opened(request, path)
        watcher = _Watcher(stage)
        engine = self._engine(watcher)
        runs = engine.runs
        if request.path:
            engine.file_runs()
        try:
            refused = await self._known(uri)
            target = chosen(session, uri, request)
            for level in request.levels:
                assert target
                if why := disassembly.refusal(session, target, level):
                    raise RequestRefusedError(why)
            if request.action == "compare":
                assert target
                compare = AbCompare(session, self._places, engine.history, runs, watcher)
                # an earlier text of the same file has the file's headers beside it
                kind = "text" if request.against_text and request.against == request.path else "file"
                run = compare.start(target, Candidate(kind, against))
            else:
                driver, sets = (
                    await self._driver(request, target, engine.history) if request.through else (None, ())
                )
                run = runs.start(
                    BY_WORD[request.action], uri, target, detail=request.detail, tools=request.tools,
                    sections=request.sections, levels=request.levels, only=bool(request.levels), driver=driver, sets=sets,
                )  # fmt: skip
            assert run
            finished = await runs.result(run)
            remarks = (*finished.remarks, *refused)
            finished = dataclasses.replace(finished, run=job, remarks=remarks)
            return self._result(uri, request, run, finished, target)
        finally:
            await engine.end_runs()

    def _engine(self, watcher: RunWatcher) -> Engine:
        """Return an engine for one job. A job's failure is read elsewhere, so it does not name the ways to a GPU on
        this machine.
        """
        return Engine(self._session, watcher, self._options.complain, names_ways=False, places=self._places)

    async def _driver(
        self, request: Request, target: KernelId | None, history: HistoryTracker
    ) -> tuple[Driver, tuple[str, ...]]:
        """Raises RequestRefusedError."""
        session, places = self._session, self._places
        if target is None:
            raise RequestRefusedError(
                f"{request.through} runs a kernel: name it, as {request.name} has several, or none"
            )
        folder = session.setup.directory(path_of(target.uri))
        try:
            found = await driver_search.asked_for(
                session, target, request.through, user_folders.driver_index, history.learn
            )
        except driver_search.UnknownDriverError as error:
            raise RequestRefusedError(str(error)) from None
        if not session.setup.trusts(folder):
            remedy = places.settings.trust.remedy(folder=folder)
            raise RequestRefusedError(
                f"{found[0].id} and what it imports are not run, because {folder} is not trusted: {remedy}"
            )
        return found

    def _opened(self, request: Request, path: str) -> str:
        """Open a job's file in the session, as the only one, and return its URI. Raises RequestRefusedError."""
        session = self._session
        session.files.clear()
        session.running.clear()
        session.results = Results()
        session.setup.folders = list(self._options.folders) if request.path else [str(Path(path).parent)]
        values = _settings(request)
        if any(name.endswith(PACKED) for name in request.files):  # they go to a rented machine too
            values["modal"] = {**self._base.get("modal", {}), "data": [f"*{PACKED}"]}
        self._configure(values)
        session.setup.variables = self._extensions(request)
        compiled_for = architectures.architecture_for(request.gpu) if request.action == "compile" else None
        session.setup.figures_for = compiled_for or ""
        uri = uri_of(path)
        if session.open(uri, 0, request.text) is None:
            raise RequestRefusedError(f"{request.name} has no kernel")
        return uri

    async def _known(self, uri: str) -> Sequence[str]:
        """Find out how the file is compiled, and what the machine has. Return remarks about flags that were refused."""
        refused = await self._places.compilations.find(uri)
        if not self._looked:
            await self.machine()
        return refused

    def _extensions(self, request: Request) -> tuple[str, ...]:
        """Return the variable that says where a request's extensions lie, if they were built."""
        if not (devices := self._extends(request)):
            return ()
        built = extension_builds.folder(request.text, request.files, self._base["python"], devices)
        return (f"{harness_files.EXTENSIONS}={built}",) if built.is_dir() else ()

    def _configure(self, values: Mapping[str, Any]) -> None:
        """Raises RequestRefusedError."""
        self._places.settings.options = {**self._base, **values}
        if complaints := self._places.settings.configure(None):
            raise RequestRefusedError(config.reason(complaints[0]))

    def _result(
        self, uri: str, request: Request, run: Run, finished: c.Finished, target: KernelId | None
    ) -> Result:
        session = self._session
        problems = [problem for kept in session.results.problems.values() for problem in kept.items]
        faults = [
            c.Problem(
                fault.severity, fault.message, "launch spec",
                c.Place(path_of(uri), fault.span.line + 1, fault.span.column + 1),
            )
            for fault in spec_cache.faults(session, uri)
        ]  # fmt: skip
        code: tuple[Code, ...] = ()
        if request.levels:
            architecture = disassembly.architecture_of(finished, run.job)
            code = compiled_code.of(finished, architecture, lambda text: _as_now(text, path_of(uri)))
        if request.levels and finished.outcome == "ok" and not code:
            assert target
            finished = disassembly.none(finished, target, request.levels[0])
        elif request.action == "compile" and not request.levels and finished.outcome == "ok":
            finished = _with_faults(finished, [fault for fault in faults if fault.severity == "error"])
            remarks = session.files[uri].compilation.remarks
            finished = dataclasses.replace(finished, remarks=(*finished.remarks, *remarks))
        versus: dict[str, Any] = {}
        if target and (compared := session.results.ab.get(target)):
            versus = {
                "sentence": ab_table.sentence(harness.named(target) or target.key, compared),
                "against": compared.against,
                "runs": compared.runs,
                "now_first": compared.now_first,
                "remarks": compared.remarks,
                **(dataclasses.asdict(compared.comparison) if compared.comparison else {}),
            }
        return Result(
            dataclasses.replace(finished, report="", dumps=()),
            (*problems, *faults),
            self._tables(uri, target, drawn=not request.levels),
            self._page(request, target),
            str(run.report or ""),
            versus,
            code,
        )

    def _tables(self, uri: str, target: KernelId | None, *, drawn: bool) -> str:
        """Return everything that is known of the kernels that ran. `drawn`: with diagrams."""
        session = self._session
        sections: list[Section] = []
        for known in kernel_status.of(session, uri):
            if target is None or known.target == target:
                sections += kernel_tables.content(session, uri, known, time.time())
        checked = kernel_status.harness_status(session, uri)
        if checked and checked.result:
            rows = harness_view.rows(checked.result) + kernel_tables.run_rows(checked.result.finished)
            sections.append((f"{checked.entry.name}: {harness_view.text(checked.result)}", rows))
        shown = [section for section in sections if drawn or not isinstance(section, tables.Drawing)]
        return tables.render(shown, markdown=False)

    def _page(self, request: Request, target: KernelId | None) -> str:
        """Return the report as a page, or "" if there is nothing to report."""
        if target is None or request.action not in ("run", "profile"):
            return ""
        try:
            return str(opening.write(self._session, target, user_folders.report_folder(), request.action))
        except opening.NoReportError:
            return ""


def _folder(job: str) -> Path:
    return cache_folder() / "jobs" / job


def _as_now(text: str, path: str) -> str:
    """Put a job's present folder into a text. Triton keeps the path that the text had when it was compiled. That was
    in the folder of an earlier job, perhaps in another cache folder.
    """
    return _JOBS_FOLDER.sub(lambda _: str(Path(path).parent), text)


def chosen(session: Session, uri: str, request: Request) -> KernelId | None:
    """Return the kernel of a job. Return None for the file's program, and for compiling. Raises RequestRefusedError."""
    every = kernel_status.of(session, uri)
    contract = None if request.levels else harness.of(session, uri)
    if request.kernel:
        if contract and contract.name == request.kernel:
            return contract.target
        for known in every:
            if request.kernel in (known.target.key, known.target.key.rpartition("::")[2]):
                return known.target
        have = ", ".join(known.target.key for known in every) or "none"
        raise RequestRefusedError(f"there is no kernel {request.kernel} in {request.name}; it has: {have}")
    if request.action == "compile" and not request.levels:
        return None
    if request.levels or request.through or request.action in ("profile", "compare"):
        named = None if request.through else contract
        candidates = [named.target] if named else kernel_status.launchable(session, uri)
    elif session.files[uri].scan.entries:
        return None
    else:
        candidates = (
            [contract.target]
            if contract
            else [status.target for status in every if status.plan.through == "spec"]
        )
        if not candidates:
            return None  # the engine says why there is nothing to run
    if not candidates:
        raise RequestRefusedError(f"no kernel of {request.name} can be launched")
    if len(candidates) > 1:
        have = ", ".join(candidate.key for candidate in candidates)
        raise RequestRefusedError(f"which kernel? Name one: {request.name} has {have}")
    return candidates[0]


def longest(profiles: Sequence[c.Profile]) -> c.Profile | None:
    """Return the profile that a single verdict speaks of."""
    return max(profiles, key=lambda profile: bottleneck.value(profile, bottleneck.TIME) or 0.0, default=None)


def _settings(request: Request) -> dict[str, Any]:
    values: dict[str, Any] = {"grade": request.grade} if request.grade != "author" else {}
    if request.allow:
        values["allow"] = list(request.allow)
    if request.flags:
        values["nvcc_flags"] = list(request.flags)
    if request.arguments:
        values["arguments"] = list(request.arguments)
    if request.timeout_s is not None:
        values["run_timeout_s"] = request.timeout_s
        values["check_memory"] = {"timeout_s": request.timeout_s}
    return values


def _with_faults(finished: c.Finished, errors: Sequence[c.Problem]) -> c.Finished:
    """Let a compilation fail if a launch spec has a mistake. No compiler reads the spec."""
    if not errors:
        return finished
    first = errors[0]
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    text = f"line {first.place.line if first.place else 0}, in the launch spec: {first.message}{more}"
    failure = c.Failure("compile error", text, place=first.place)
    return dataclasses.replace(finished, outcome="compile error", failure=failure)


def _relative(result: Result, folder: Path) -> Result:
    """Replace the job's own folder in a result by the names of files as they were handed in."""
    prefix = json.dumps(str(folder) + "/")[1:-1]
    text = json.dumps(dataclasses.asdict(result)).replace(prefix, "")
    return codec.build(Result, codec.read_json(text), lenient=True)
