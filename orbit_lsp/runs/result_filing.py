"""Stores the results of a job: problems under files, figures and times under kernels."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from orbit_lsp import kernels
from orbit_lsp.closure.tree import below
from orbit_lsp.kernels import SOURCE_SUFFIXES, Kernel
from orbit_lsp.runs import overloads
from orbit_lsp.specs.launch_plan import PROGRAM, LaunchPlan
from orbit_lsp.state import harness, staleness
from orbit_lsp.state.kernel_ids import KernelId, identify
from orbit_lsp.state.results import CompilerFigures, FailedRun, Learned, Problems, RunResult
from orbit_lsp.state.session import Frozen, Session, header_reader, path_of
from orbit_remote.common import limits, measure, regular_files, symbols
from orbit_remote.common import messages as c
from orbit_remote.common.packages import installing
from orbit_remote.common.requests import BY_AUTHOR, DriverStart, Job

_OF_HOST = (".cpp", ".cc", ".cxx", ".c")
_Place = tuple[KernelId, Kernel, str]


def built(session: Session, frozen: Frozen, job: Job, event: c.Built) -> set[str]:
    """File a build's problems and figures, and return the uris whose views changed."""
    known = _Kernels(session, frozen)
    if event.files and (file := session.files.get(frozen.uri)):
        file.reads = event.files
    session.results.figures.update(_figures(known, job, event))
    changed = session.results.keep_problems(
        f"build {frozen.uri}", _by_file(session, frozen, known, event.problems)
    )
    return changed | session.results.keep_problems(f"typed {frozen.uri}", {}) | {frozen.uri}


def typed(session: Session, frozen: Frozen, problems: tuple[c.Problem, ...]) -> set[str]:
    """File what the front end says of a text while it is typed. It replaces what the last build said of the file."""
    uri, build = frozen.uri, (f"build {frozen.uri}", frozen.uri)
    if known := session.results.problems.get(build):
        not_nvccs = tuple(problem for problem in known.items if problem.tool != "nvcc")
        session.results.problems[build] = replace(known, items=not_nvccs)
    by_file = _by_file(session, frozen, _Kernels(session, frozen), problems)
    return {uri} | session.results.keep_problems(f"typed {uri}", by_file)


def syntax(session: Session, frozen: Frozen, problems: tuple[c.Problem, ...]) -> set[str]:
    """File the syntax error of a Python text while it is typed, or that it has none. It replaces the errors from runs
    and compiles.
    """
    for key, known in list(session.results.problems.items()):
        if key[1] == frozen.uri:
            others = tuple(each for each in known.items if not each.message.startswith("SyntaxError"))
            session.results.problems[key] = replace(known, items=others)
    by_file = _by_file(session, frozen, _Kernels(session, frozen), problems)
    return {frozen.uri} | session.results.keep_problems(f"typed {frozen.uri}", by_file)


def figures(session: Session, frozen: Frozen, job: Job, event: c.Built) -> dict[KernelId, CompilerFigures]:
    """Return the figures of a build. It differs from `job` only in its architectures."""
    return _figures(_Kernels(session, frozen), job, event)


def _figures(known: _Kernels, job: Job, event: c.Built) -> dict[KernelId, CompilerFigures]:
    by_kernel: dict[KernelId, list[c.Resources]] = defaultdict(list)
    digests: dict[KernelId, str] = {}
    for resources in event.resources:
        if place := known.find(resources.place, resources.name):
            by_kernel[place[0]].append(resources)
            digests[place[0]] = place[2]
    key = staleness.job_key(job)
    return {
        target: CompilerFigures(digests[target], tuple(items), key, event.files)
        for target, items in by_kernel.items()
    }


def not_compiled(
    session: Session, frozen: Frozen, compiled: Container[KernelId], built: c.Built, finished: c.Finished
) -> dict[KernelId, str]:
    """Return why a compile has no figures of the kernels that are not in `compiled`, in a line each, if it says why."""
    errors = [problem for problem in built.problems if problem.severity == "error"]
    find = kernel_of(session, frozen)
    reasons: dict[KernelId, str] = {}
    for target, kernel, _ in identify(frozen.uri, frozen.scan):
        if target in compiled:
            continue
        prefix = f"{kernel.name} was not compiled: "
        why = [error.message for error in errors if error.place and find(error.place, "") == target]
        why += [text.removeprefix(prefix) for text in finished.remarks if text.startswith(prefix)]
        why += [error.message for error in errors]  # of a helper that it calls
        why += [finished.failure.message] if finished.failure else []
        if why:
            reasons[target] = why[0].splitlines()[0]
    return reasons


def finished(
    session: Session,
    frozen: Frozen,
    job: Job,
    targets: set[KernelId],
    build: c.Built | None,
    event: c.Finished,
    plan: LaunchPlan = PROGRAM,
) -> set[str]:
    """File a finished run's results and problems, and return the uris whose views changed.

    A run that a tool slowed down has no result: only its problems are filed here.
    """
    known = _Kernels(session, frozen, job, event.files)
    changed = {target.uri for target in _keep_failure(session, known, frozen.uri, job, targets, event)}
    if event.outcome != "cancelled":
        problems = list(event.problems)
        answered = job.action == "compile" and build is not None and bool(build.problems)
        if not problems and not answered and event.failure and _has_a_place(event.outcome, build):
            problems = [_problem(event.failure, targets, known, path_of(frozen.uri))]
        # a problem without a place belongs to the kernel that was clicked
        problems = [
            replace(problem, place=known.clicked(targets))
            if problem.place is None and problem.symbol is None
            else problem
            for problem in problems
        ]
        # a profile runs the same program as a run, so its problems replace those of the last run
        source = "run" if job.action == "profile" else job.action
        changed |= session.results.keep_problems(
            f"{source} {frozen.uri}", _by_file(session, frozen, known, problems)
        )
    if job.action != "run" or (job.driver and event.device is None):  # without a GPU nothing is launched
        return changed
    if job.driver and job.language == "cuda" and event.outcome == "infrastructure":  # of an older text
        return changed
    files = build.files if build else _headers(event.files) if job.driver and job.language == "cuda" else {}
    for target, (digest, items) in _launched(session, known, job, targets, event).items():
        before = session.results.runs.get(target)
        result = RunResult(
            digest, time.time(), event, items, staleness.job_key(job), files,
            job.start.through, next(iter(sorted(targets)), None), plan.lines, plan.elements, driver=job.driver,
        )  # fmt: skip
        session.results.runs[target] = replace(
            result, difference=_difference(session, target, before, result)
        )
        if job.driver:
            session.results.learn(target, job.driver, Learned.of(event, items))
        changed.add(target.uri)
    return changed


def _headers(files: Mapping[str, str]) -> dict[str, str]:
    """Return the headers among a driver's files. Its kernels' code depends on them and on each kernel's own file;
    other sources have other kernels.
    """
    return {
        path: known
        for path, known in files.items()
        if not path.lower().endswith((*SOURCE_SUFFIXES, *_OF_HOST, ".py", ".so", ".pyd"))
    }


def _keep_failure(
    session: Session, known: _Kernels, uri: str, job: Job, targets: set[KernelId], event: c.Finished
) -> Iterable[KernelId]:
    """Keep the last failure of the kernels that were asked for. A compile that succeeds ends only failures to
    compile, for any kernel of the file. Return the kernels whose failures changed.
    """
    failures = session.results.failures
    if job.action in ("compile", "build"):
        if event.outcome == "ok":
            compiled = [
                failure
                for failure, what in failures.items()
                if failure.uri == uri and what.outcome == "compile error"
            ]
            for target in compiled:
                del failures[target]
            return compiled
        return ()
    if job.action not in ("run", "profile"):  # what a memory check finds is said as such
        return ()
    digests = {target: digest for target, _, digest in known.of_main}
    for target in targets:
        if event.outcome == "ok" or (event.outcome == "wrong answer" and not job.driver):
            failures.pop(target, None)
        elif event.outcome != "cancelled":
            digest = digests.get(target, harness.digest(known.text))
            standing = tuple(problem for problem in event.problems if problem.code == c.STANDS)
            failures[target] = FailedRun(digest, time.time(), event.outcome, event.failure, standing)
    return ()


def refused(session: Session, frozen: Frozen, job: Job, targets: set[KernelId], event: c.Finished) -> None:
    """File a run that never began as a failure."""
    _keep_failure(session, _Kernels(session, frozen), frozen.uri, job, targets, event)


def so_far(session: Session, frozen: Frozen, job: Job, targets: set[KernelId], event: c.Launched) -> set[str]:
    """File what a program that still runs has launched, and return the uris whose views changed."""
    filed = launched(
        session, frozen, job, targets, c.Finished(event.run, "cancelled", launches=event.launches)
    )
    session.results.so_far |= {target: (event.run, items) for target, (_, items) in filed.items()}
    return {target.uri for target in filed}


def launched(
    session: Session, frozen: Frozen, job: Job, targets: set[KernelId], event: c.Finished
) -> dict[KernelId, tuple[str, tuple[c.Launches, ...]]]:
    """Return (digest, launches) of the kernels for which a run is a result."""
    return _launched(session, _Kernels(session, frozen, job, event.files), job, targets, event)


def with_unclear(session: Session, frozen: Frozen, job: Job, event: c.Finished) -> c.Finished:
    """Return the end of a run of a program of the project. It has a remark on launches that are filed nowhere because
    several kernels have their name.
    """
    if not job.project_program or not event.launches:
        return event
    names = _Kernels(session, frozen, job, event.files).unclear(event.launches)
    text = f"the program has several kernels that are called {', '.join(names[:3])}, so their times are shown at none of them"
    return replace(event, remarks=(*event.remarks, text)) if names else event


def of_copies(
    frozen: Frozen, job: Job, targets: set[KernelId], event: c.Finished, python: str = "python"
) -> c.Finished:
    """Return the end of a driver's run. It is refused if the kernel was launched from an installed copy of its Python
    file. `python` is what imported it. The worker has looked at what was compiled (`programs`).
    """
    names = {kernel.name for target, kernel, _ in identify(frozen.uri, frozen.scan) if target in targets}
    launched = [each for each in event.launches if symbols.base_name(each.symbol) in names]
    named = [each for each in launched if each.place]
    if (
        job.driver is None
        or not named
        or any(_same_file(each.place.file, job.path) for each in named if each.place)
    ):
        return event
    copy = next(
        (each.place.file for each in named if each.place and "site-packages" in each.place.file), None
    )
    if copy is None:
        return event
    text = f"{job.driver.id} launched an installed copy of {Path(job.path).name}, {copy}, so nothing was measured of this text"
    remedy = f"install the project so that Python imports this folder: {installing.installer(python)} -e ."
    return replace(event, outcome="infrastructure", failure=c.Failure("infrastructure", text, remedy))


def _launched(
    session: Session, known: _Kernels, job: Job, targets: set[KernelId], event: c.Finished
) -> dict[KernelId, tuple[str, tuple[c.Launches, ...]]]:
    """Return (digest, launches) of the kernels that have a new result.

    What a launch spec runs is the result of the kernel that was asked for, whatever it launches. The launches of a
    program or a driver belong to many kernels; they do not replace a result of a kernel's own launch spec.
    """
    digests = {target: digest for target, _, digest in known.of_main}
    if job.start.through not in BY_AUTHOR:
        timed = event.outcome in ("ok", "wrong answer") or event.launches
        whole = harness.digest(known.text)
        return {target: (digests.get(target, whole), event.launches) for target in targets} if timed else {}
    launched: dict[KernelId, list[c.Launches]] = defaultdict(list)
    for launches in event.launches:
        if place := known.find(launches.place, launches.name, launches.symbol):
            if place[0] not in targets and _by_spec(session.results.runs.get(place[0])):
                continue
            launched[place[0]].append(launches)
            digests[place[0]] = place[2]
    if job.action == "run" and event.outcome == "ok":
        for target in targets:
            launched.setdefault(target, [])
    return {target: (digests.get(target, ""), tuple(items)) for target, items in launched.items()}


def _by_spec(result: RunResult | None) -> bool:
    return result is not None and result.through == "spec"


def _difference(
    session: Session, target: KernelId, before: RunResult | None, now: RunResult
) -> measure.Difference | None:
    """Return the difference to the version before, for kernels that Live follows. If the code is the same again, its
    earlier difference stays.
    """
    if target not in session.live or before is None or before.through != now.through:
        return None
    if before.digest == now.digest and before.inputs == now.inputs:
        return before.difference
    if before.finished.device != now.finished.device:
        return None
    if now.through in BY_AUTHOR and (len(before.launches) != 1 or len(now.launches) != 1):
        return None  # a program may launch it differently often
    return measure.difference(
        [launch.timing for launch in before.launches], [launch.timing for launch in now.launches]
    )


def kernel_of(
    session: Session, frozen: Frozen, job: Job | None = None, files: Mapping[str, str] | None = None
) -> Callable[[c.Place | None, str], KernelId | None]:
    """Return a function that finds the kernel of a symbol's name and the line of its code, or None if they do not
    decide.
    """
    known = _Kernels(session, frozen, job, files)

    def find(place: c.Place | None, name: str) -> KernelId | None:
        known_place = known.find(place, name)
        return known_place[0] if known_place else None

    return find


def _has_a_place(outcome: c.Outcome, build: c.Built | None) -> bool:
    """Say whether a failure belongs on a line. Outages and time-outs are messages instead.

    A program without main is a compile error for which no compiler's message has a line.
    """
    if outcome == "compile error":
        return build is None or not any(problem.severity == "error" for problem in build.problems)
    return outcome in ("runtime error", "wrong answer")


class _Kernels:
    """Finds the kernel that a line or a name belongs to, in the file that ran and its headers."""

    def __init__(
        self,
        session: Session,
        frozen: Frozen,
        job: Job | None = None,
        files: Mapping[str, str] | None = None,
    ) -> None:
        """Make an index. `files` are those that the job read, by content hash."""
        self._session = session
        self._frozen = frozen
        self._job = job if job and job.driver else None
        self._files = files or {}
        self.text = frozen.text
        self._named: dict[str, list[_Place]] = {}
        self.of_main = identify(frozen.uri, frozen.scan)
        self._of_headers: dict[str, list[_Place]] = {}

    def find(self, place: c.Place | None, name: str, symbol: str = "") -> _Place | None:
        """Return the kernel of a symbol with this name, whose code is at `place`. Return None if several fit, or
        none. Without a place, the mangled `symbol` distinguishes overloads.

        The line distinguishes overloads, but a macro can make other kernels in the lines of a C++ kernel, so the name
        must agree too. In Python the line is that of the instance's own function, which may be a kernel by another
        name.
        """
        if place is None:
            return self._by_name(name, symbol)
        kernels_of_file = self._of(place.file)
        at_line = [known for known in kernels_of_file if _is_at(known[1], place.line - 1)]
        is_other = not _same_file(place.file, path_of(self._frozen.uri))
        if not at_line and is_other and _RENUMBERED.search(self.text):
            return self._by_name(name)  # the compiler numbers the lines of this file by another one
        agreeing = [known for known in at_line if _is_called(known[1], symbols.base_name(name))]
        qualified = symbols.qualified_name(name)
        agrees = _only(agreeing) or _only(known for known in agreeing if known[1].qualified == qualified)
        if agreeing or not at_line:
            return agrees
        if self._frozen.scan.language == "triton" or not name:
            return _only(at_line)
        return _only(known for known in at_line if _is_declared_at(known[1], place.line - 1))

    def _by_name(self, name: str, symbol: str = "") -> _Place | None:
        """Return the kernel by its name alone, if only one has it. Names of `extern "C"` and of Triton have no scope."""
        base, qualified = symbols.base_name(name), symbols.qualified_name(name)
        named = [known for known in self._of_program(base) if _is_called(known[1], base)]
        exact = [known for known in named if known[1].qualified == qualified]
        fitting = exact or (named if qualified == base else [])
        if len(fitting) < 2 or self._job is None or not self._job.project_program:
            return _only(fitting)
        best = overloads.best(symbol, [(known[1], self._text_of(known[0].uri)) for known in fitting])
        return fitting[best] if best is not None else None

    def _text_of(self, uri: str) -> str:
        return self.text if uri == self._frozen.uri else self._ran(path_of(uri)) or ""

    def unclear(self, launches: Iterable[c.Launches]) -> list[str]:
        """Return the names of launched kernels that the program has several times, if it is not known which is meant."""
        names = dict.fromkeys(
            each.name
            for each in launches
            if each.place is None and self.find(None, each.name, each.symbol) is None
        )
        return [name for name in names if self._is_several(symbols.base_name(name))]

    def _is_several(self, base: str) -> bool:
        return sum(_is_called(known[1], base) for known in self._of_program(base)) > 1

    def _of_program(self, base: str) -> list[_Place]:
        """Return the kernels that may be meant by this name: those of the file, and of all files of a program of the
        project.
        """
        if self._job is None or not self._job.project_program or not base:
            return self.of_main
        if base not in self._named:
            main = path_of(self._frozen.uri)
            files = [
                file for file in self._files if not _same_file(file, main) and base in (self._ran(file) or "")
            ]
            self._named[base] = [*self.of_main, *(known for file in files for known in self._of(file))]
        return self._named[base]

    def clicked(self, targets: set[KernelId]) -> c.Place | None:
        """Return the place of the first kernel that a run was asked for."""
        return next((self.place_of(candidate) for candidate in self.of_main if candidate[0] in targets), None)

    def place_of(self, place: _Place) -> c.Place:
        """Return the kernel's name in its definition."""
        span = place[1].name_span
        return c.Place(path_of(place[0].uri), span.line + 1, span.column + 1, span.end_column + 1)

    def _of(self, file: str) -> list[_Place]:
        if _same_file(file, path_of(self._frozen.uri)):
            return self.of_main
        uri = self._session.uri_for(file)
        if uri not in self._of_headers:
            self._of_headers[uri] = self._scan(uri, file)
        return self._of_headers[uri]

    def _scan(self, uri: str, file: str) -> list[_Place]:
        open_file, ran = self._session.files.get(uri), self._ran(file)
        if open_file and (ran is None or ran == open_file.document.text):
            return identify(uri, open_file.scan)
        language = kernels.language_of(file) or "cuda"  # a kernel in a plain header is CUDA
        try:
            text = regular_files.text(file, limits.SCANNED) if ran is None else ran
        except (OSError, ValueError):
            return []
        main = self._session.files.get(self._frozen.uri)
        headers = header_reader(file, main.include_folders if main else ())
        scan = kernels.tracker(language, macros=self._session.macros(), headers=headers).scan(text)
        return identify(uri, scan)

    def _ran(self, file: str) -> str | None:
        """Return the text of another file as a driver's run had it. Return "" if it cannot be had any more, None if
        it is not known.
        """
        if self._job is None:
            return None
        place = below(file, self._job.directory or "")
        if isinstance(start := self._job.start, DriverStart) and place in start.texts:
            return start.texts[place]
        if file not in self._files:
            return None
        return text_of(self._session, file, self._files[file]) or ""


_RENUMBERED = re.compile(r"^[ \t]*#[ \t]*(?:line\b|\d)", re.MULTILINE)


def _is_at(kernel: Kernel, line: int) -> bool:
    """Say whether code in `line`, from 0, can be the kernel's. In CUDA, what stands above `__global__` is not its
    code.
    """
    first = min(kernel.line, kernel.name_span.line) if kernel.dsl == "cuda" else kernel.whole.line
    return first <= line <= kernel.whole.end_line


def _is_called(kernel: Kernel, name: str) -> bool:
    """Say whether the compiler may use this name for the kernel: a macro may put the number of its line into the
    name.
    """
    if "__LINE__" not in kernel.name:
        return kernel.name == name
    first, last = sorted((kernel.line, kernel.name_span.end_line))
    return any(
        kernel.name.replace("__LINE__", str(line + 1)) == name
        for line in range(first, min(last, first + 99) + 1)
    )


def _is_declared_at(kernel: Kernel, line: int) -> bool:
    """Say whether `line` has the kernel's name, and the name is that of a macro that the scanner cannot follow."""
    first, last = sorted((kernel.line, kernel.name_span.end_line))
    return kernel.renamed and first <= line <= last


def _only(known: Iterable[_Place]) -> _Place | None:
    items = list(known)
    return items[0] if len(items) == 1 else None


def _by_file(
    session: Session, frozen: Frozen, known: _Kernels, problems: Iterable[c.Problem]
) -> dict[str, Problems]:
    by_file: dict[str, list[c.Problem]] = defaultdict(list)
    main = path_of(frozen.uri)
    for problem in problems:
        if problem.place is None and problem.symbol and (of := known.find(None, problem.symbol)):
            placed = replace(problem, place=known.place_of(of))
        else:
            placed = problem
        file = placed.place.file if placed.place else main
        uri = frozen.uri if _same_file(file, main) else session.uri_for(file)
        by_file[uri].append(placed)
    versions = {uri: file.document.version for uri, file in session.files.items()} | {
        frozen.uri: frozen.version
    }
    return {uri: Problems(versions.get(uri, 0), tuple(items)) for uri, items in by_file.items()}


def _problem(failure: c.Failure, targets: set[KernelId], known: _Kernels, main: str) -> c.Problem:
    """Return a failure as a diagnostic: on its own line, on its kernel, or on the kernel that was clicked."""
    message = f"{failure.message}. {failure.remedy}".rstrip(". ") if failure.remedy else failure.message
    of = known.find(None, failure.symbol) if failure.symbol else None
    place = failure.place or (known.place_of(of) if of else known.clicked(targets))
    return c.Problem("error", message, "orbit", place or c.Place(main, 1))


def text_of(session: Session, file: str, known: str) -> str | None:
    """Return a file's text if its content has that hash, from the editor or else from the disk."""
    if (open_file := session.files.get(session.uri_for(file))) and (
        c.content_hash(open_file.document.text.encode(errors="replace")) == known
    ):
        return open_file.document.text
    try:
        content = regular_files.read(file, limits.SOURCE)
    except (OSError, ValueError):
        return None
    return content.decode("utf-8", errors="replace") if c.content_hash(content) == known else None


def _same_file(first: str, other: str) -> bool:
    return first == other or Path(first) == Path(other)
