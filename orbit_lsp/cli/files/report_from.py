"""`orbit-lsp report --from X.ncu-rep`: shows a profile that Nsight Compute made elsewhere as a table, a page and
JSON, and in editors.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import sys
import time
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path, PurePath

from orbit_lsp.cli import json_results, relative_places, terminal_text
from orbit_lsp.cli.terminal_text import UsageError
from orbit_lsp.compilation import headers
from orbit_lsp.engine.engine import Engine, Unwatched
from orbit_lsp.kernels import HEADER_SUFFIXES, language_of
from orbit_lsp.profile import bottleneck, ncu_csv, report_store
from orbit_lsp.report import opening, profile_report
from orbit_lsp.runs import profile_filing, result_filing
from orbit_lsp.runs.scheduler import Run, Scheduler
from orbit_lsp.specs import job_builder
from orbit_lsp.state import user_folders
from orbit_lsp.state.placement import RunSetup
from orbit_lsp.state.results import Profiled
from orbit_lsp.state.session import ClientAbilities, Session, uri_of
from orbit_lsp.state.user_folders import cache_folder
from orbit_lsp.views import tables
from orbit_lsp.views.profile import profile_hover
from orbit_remote.common import limits, regular_files, symbols
from orbit_remote.common import messages as c
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.measurements import Line
from orbit_remote.common.plain_text import visible
from orbit_remote.common.requests import Job

_MOST_KEPT = 24 << 20
"""Bytes of a packed report that are kept for Nsight Compute; of a larger one the author has the file."""


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The launches that are shown, the longest first. `name` is their kernel, `path` its file, or the report."""

    name: str
    path: str
    profiled: Profiled


def main(options: argparse.Namespace) -> int:
    try:
        return asyncio.run(_main(options))
    except UsageError as error:
        return terminal_text.refused(str(error), as_json=options.json)
    except KeyboardInterrupt:
        print("orbit-lsp: cancelled", file=sys.stderr)
        return c.EXIT_CODES["cancelled"]


async def _main(options: argparse.Namespace) -> int:
    report, given = _source(options.source), _given(options.file)
    is_csv = report.suffix.lower() == ".csv"
    session = Session(setup=RunSetup(folders=_folders()), client=ClientAbilities(name="orbit-lsp report"))
    engine = Engine(session, Unwatched(), terminal_text.warn)
    places, runs = engine.places, engine.runs
    python = {"python": relative_places.program(options.python)} if options.python else {}
    places.settings.options = {"every_gpu": "off"} | python
    places.settings.configure(None)
    try:
        finished = _page(report) if is_csv else await _report(report, runs)
        if finished.failure:
            return _failed(options, finished.failure)
        finished, main_file = _at_home(finished, given, session)
        finished = replace(finished, profiles=_longest_first(finished.profiles))
        if options.kernel and not _of(finished.profiles, options.kernel):
            names = ", ".join(dict.fromkeys(profile.name for profile in finished.profiles))
            raise UsageError(f"there is no kernel {options.kernel} in {options.source}; it has: {names}")
        chosen = None
        if main_file is not None:
            chosen = await _filed(options, engine, main_file, finished, report, is_csv=is_csv)
        return _shown(options, finished, chosen or _unfiled(options, finished, report, is_csv=is_csv))
    finally:
        await engine.close()


def _source(name: str) -> Path:
    """Raises UsageError."""
    path = Path(name).absolute()
    if path.suffix.lower() not in (".ncu-rep", ".csv"):
        raise UsageError(f"{name} is neither a .ncu-rep nor a .csv file")
    if not path.exists():
        raise UsageError(f"there is no file {name}")
    return path


def _given(name: str | None) -> Path | None:
    """Raises UsageError."""
    if name is None:
        return None
    path = Path(name).absolute()
    if not path.is_file():
        raise UsageError(f"there is no file {name}")
    if language_of(str(path)) is None and not str(path).lower().endswith(HEADER_SUFFIXES):
        raise UsageError(f"{name} is not a .cu, .cuh or .py file")
    return path.resolve()


def _folders() -> list[str]:
    """The current folder, unless it has been deleted."""
    with suppress(FileNotFoundError):
        return [str(Path.cwd())]
    return []


# -- reading ----------------------------------------------------------------------------------------


def _page(report: Path) -> c.Finished:
    try:
        page = ncu_csv.read(regular_files.text(report, limits.NCU_CSV), limits.IMPORTED_LAUNCHES.most)
    except OSError as error:
        raise UsageError(f"{report.name} cannot be read: {error.strerror}") from None
    except ncu_csv.UnreadableError as error:
        raise UsageError(f"{report.name} cannot be used: {error}") from None
    remarks: list[str] = []
    if page.left_out:
        remarks.append(f"{page.left_out} launches beyond the first {len(page.profiles)} are left out")
    if page.is_cut:
        remarks.append(f"{report.name} ends within a row: that row, and what should follow it, is absent")
    return c.ok(
        "report",
        profiles=page.profiles,
        device=c.Device(page.device) if page.device else None,
        remarks=tuple(remarks),
    )


async def _report(report: Path, runs: Scheduler) -> c.Finished:
    return await runs.outcome(Job(runs.new_id(), "report", "cuda", str(report), ""))


def _failed(options: argparse.Namespace, failure: c.Failure) -> int:
    if options.json:
        print(json_results.failure(failure.category, failure.message, failure.remedy))
    print(visible(f"orbit-lsp: error: {failure.message}"), file=sys.stderr)
    if failure.remedy:
        print(terminal_text.indented(failure.remedy), file=sys.stderr)
    return c.EXIT_CODES[failure.category]


# -- the source file --------------------------------------------------------------------------------


def _at_home(
    finished: c.Finished, given: Path | None, session: Session
) -> tuple[c.Finished, tuple[Path, bool] | None]:
    """Return the profiles with their lines in this machine's files, and the file of the kernels with whether it has
    changed since. That is None if no file of the workspace has them. Lines of a file that has changed are left out.
    """
    remarks = list(finished.remarks)
    homes: dict[str, Path] = {}
    changed: set[Path] = set()
    for named, known in finished.files.items():
        if (home := _home(named, known, given, session.setup.folders)) is None:
            continue
        homes[named] = home
        if not known:
            remarks.append(
                f"the report has no text of {home.name}: its lines are shown on the file as it is now"
            )
        elif known != regular_files.file_hash(home):
            changed.add(home)
            remarks.append(
                f"{home.name} has changed since the report was made: its lines are not shown, and its numbers are marked"
            )

    def at_home(line: Line) -> Line | None:
        home = homes.get(line.file)
        if home in changed:
            return None
        return replace(line, file=str(home)) if home else line

    profiles = tuple(
        replace(profile, lines=tuple(moved for line in profile.lines if (moved := at_home(line))))
        for profile in finished.profiles
    )
    main = given or next((home for home in homes.values() if _kernels(home, profiles)), None)
    files = {str(home): finished.files[named] for named, home in homes.items() if finished.files[named]}
    placed = tuple(replace(profile, place=_place(profile, main)) for profile in profiles)
    whole = replace(finished, profiles=placed, files=files, remarks=tuple(dict.fromkeys(remarks)))
    return whole, None if main is None else (main, main in changed)


def _home(named: str, known: str, given: Path | None, folders: Sequence[str]) -> Path | None:
    """Return where a file of the report lies here. The path itself is another machine's, and is not looked up.

    It is the file that was given, if that has the same name. Otherwise it is the file of the workspace whose path
    ends in most of the same folders, or the only one with its name or its text.
    """
    parts = PurePath(named.replace("\\", "/")).parts
    if given and parts and parts[-1] == given.name:
        return given
    for folder in folders:
        root = Path(folder).resolve()
        for start in range(1, len(parts)):
            with suppress(OSError, ValueError):  # a name that no file can have
                resolved = root.joinpath(*parts[start:]).resolve()
                if resolved.is_file() and resolved.is_relative_to(root):
                    return resolved
        candidates = [root / name for name in headers.search(str(root)).named("/".join(parts))]
        same = [path for path in candidates if known and regular_files.file_hash(path) == known]
        if same or len(candidates) == 1:
            return (same or candidates)[0]
    return None


def _kernels(path: Path, profiles: Sequence[c.Profile]) -> bool:
    """Say whether the file has a kernel of one of the profiles."""
    session = Session(setup=RunSetup())
    with suppress(OSError, UnicodeEncodeError):
        uri = uri_of(str(path))
        if session.open(uri, 0, regular_files.text(path, limits.SOURCE)):
            names = {kernel.name for _, kernel, _ in session.kernels(uri)}
            return any(symbols.base_name(profile.name) in names for profile in profiles)
    return False


def _place(profile: c.Profile, main: Path | None) -> c.Place | None:
    lines = [line.line for line in profile.lines if line.file == str(main)]
    return c.Place(str(main), min(lines)) if lines else None


async def _filed(
    options: argparse.Namespace,
    engine: Engine,
    main_file: tuple[Path, bool],
    finished: c.Finished,
    report: Path,
    *,
    is_csv: bool,
) -> _Chosen | None:
    """Store the profiles under the kernels of the file, like our own profiles, in the history and the folder of
    reports: an editor then shows them. Return None if the file has none of the kernels.
    """
    session, (path, changed) = engine.session, main_file
    uri = uri_of(str(path))
    try:
        text = regular_files.text(path, limits.SOURCE)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    session.open(uri, 0, text)
    frozen = session.freeze(uri)
    shown = _of(finished.profiles, options.kernel)
    find = result_filing.kernel_of(session, frozen) if frozen else None
    if frozen is None or find is None or (kernel := find(shown[0].place, shown[0].name)) is None:
        names = ", ".join(dict.fromkeys(profile.name for profile in shown))
        print(
            visible(f"note: {path.name} has no kernel {names}, so editors do not show the profile"),
            file=sys.stderr,
        )
        return None
    job = job_builder.make(session, frozen, "profile", finished.run)
    kept, remarks = _kept(session, frozen.text, str(path), kernel.key, finished, report, is_csv=is_csv)
    for remark in remarks:
        terminal_text.warn(remark)
    profile_filing.finished(session, frozen, job, set(), None, finished, kept)
    for target, profiled in session.results.profiles.items():
        digest = "" if changed else profiled.digest
        session.results.profiles[target] = replace(profiled, detail="imported", digest=digest)
    engine.history.filed(Run(finished.run, "profile", frozen, job))
    profiled = session.results.profiles.get(kernel)
    return _Chosen(kernel.key, str(path), profiled) if profiled else None


def _kept(
    session: Session,
    text: str,
    path: str,
    kernel: str,
    finished: c.Finished,
    report: Path,
    *,
    is_csv: bool,
) -> tuple[Path | None, tuple[str, ...]]:
    """Return where Nsight Compute's own file lies now, and what could not be kept."""
    settings = session.setup.settings.profile
    packed = b"" if is_csv else zlib.compress(regular_files.read(report, limits.IMPORTED), 1)
    whole = replace(
        finished, report=base64.b64encode(packed).decode("ascii") if 0 < len(packed) <= _MOST_KEPT else ""
    )
    try:
        files = report_store.keep(
            user_folders.profile_folder(), path, kernel, text, whole,
            detail="imported", reports=settings.reports, mib=settings.reports_mib,
        )  # fmt: skip
    except report_store.NotKeptError as why:
        return None, (str(why),)
    return files.report or (None if is_csv else report), ()


# -- what is shown ----------------------------------------------------------------------------------


def _longest_first(profiles: Sequence[c.Profile]) -> tuple[c.Profile, ...]:
    return tuple(sorted(profiles, key=lambda of: bottleneck.value(of, bottleneck.TIME) or 0.0, reverse=True))


def _of(profiles: Sequence[c.Profile], kernel: str | None) -> list[c.Profile]:
    """Return the launches of the kernel that is named, else of the first launch's kernel."""
    name = kernel or symbols.qualified_name(profiles[0].name)
    return [
        profile
        for profile in profiles
        if name in (profile.name, symbols.qualified_name(profile.name), symbols.base_name(profile.name))
    ]


def _unfiled(options: argparse.Namespace, finished: c.Finished, report: Path, *, is_csv: bool) -> _Chosen:
    profiles = tuple(_of(finished.profiles, options.kernel))
    profiled = Profiled(
        digest="", at=time.time(), finished=finished, profiles=profiles, inputs="", files={}, detail="imported",
        report=None if is_csv else report,
    )  # fmt: skip
    return _Chosen(profiles[0].name, str(report), profiled)


def _shown(options: argparse.Namespace, finished: c.Finished, chosen: _Chosen) -> int:
    for remark in finished.remarks:
        print(visible(f"note: {remark}"), file=sys.stderr)
    if options.json:
        print(json_results.text(finished))
        return 0
    sections: list[tables.Section] = []
    if len(finished.profiles) > 1:
        every = profile_report.launches(finished.profiles)
        sections.append(tables.Table(every.title, tuple(every.header), tuple(map(tuple, every.rows))))
    sections += profile_hover.sections(chosen.name, chosen.profiled, time.time(), stale=False)
    print(visible(tables.render(sections, markdown=False)), end="\n\n")
    made = profile_report.page(chosen.profiled, chosen.name, chosen.path)
    try:
        print(
            opening.write_to(
                options.output, made, cache_folder() / "reports", f"{Path(chosen.path).stem}-{chosen.name}"
            )
        )
    except opening.NoReportError as why:
        print(str(why).replace("orbit:", "orbit-lsp:", 1), file=sys.stderr)
        return c.EXIT_CODES["infrastructure"]
    return 0
