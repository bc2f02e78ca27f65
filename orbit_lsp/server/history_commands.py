"""The commands for A/B comparisons and the history of a kernel. They are answered at once, like those of `commands`."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from lsprotocol import types as lsp

from orbit_lsp.history import compare_candidates
from orbit_lsp.history.compare_candidates import Candidate
from orbit_lsp.history.version_groups import regression
from orbit_lsp.runners.modal.spending import CannotAskError
from orbit_lsp.runs.scheduler import Run
from orbit_lsp.server import shown_files
from orbit_lsp.server.commands import CommandArgument, kernel_command, once_configured
from orbit_lsp.server.language_server import OrbitServer
from orbit_lsp.state import harness, user_folders
from orbit_lsp.state.kernel_ids import KernelId
from orbit_lsp.state.session import path_of
from orbit_lsp.views import ab_table, lenses
from orbit_lsp.views.tables import render

if TYPE_CHECKING:
    from orbit_lsp.report.page import Page


@kernel_command("orbit.compareWith")
def compare_with(ls: OrbitServer, target: KernelId, argument: CommandArgument) -> dict[str, str] | None:
    """Run a kernel, {uri, kernel, with}, in turn with something else - `last`, `revision:HEAD~1`, `file:other.cu`,
    `kernel:other`, `gpu:L4` - and say which is faster; the author is asked where `with` is not given. With {show:
    "report"} the last comparison is shown.
    """
    if argument.show == "report":
        show_comparison(ls, target)
        return None
    word = argument.against
    if word is None:
        ls.spawn(choose(ls, target), "choose what to compare with")
        return None
    wanted = compare_candidates.other(word)
    if wanted is None:
        ls.watcher.message(f"orbit: cannot compare with {word!r:.60}; {_WORDS}", lsp.MessageType.Warning)
        return None
    return once_configured(ls, lambda: start(ls, target, wanted))


def start(ls: OrbitServer, target: KernelId, wanted: Candidate) -> Run | None:
    started = ls.ab_compare.start(target, wanted)
    if started:
        ls.spawn(tell(ls, started, target), "tell comparison")
    return started


async def tell(ls: OrbitServer, run: Run, target: KernelId) -> None:
    """Show the verdict as a message and the table in the log; the hover has it too. Failures have been reported
    before.
    """
    if run.task:
        await asyncio.wait([run.task])
    versus = ls.session.results.ab.get(target)
    if versus is None or versus.comparison is None or not run.finished or run.finished.outcome != "ok":
        return
    name = harness.named(target) or target.key
    ls.watcher.message(f"orbit: {ab_table.sentence(name, versus)}")
    tables = ab_table.tables(name, versus, time.time(), stale=False)
    ls.watcher.table(render(tables, markdown=False), titled=False)


async def choose(ls: OrbitServer, target: KernelId) -> None:
    choices = {candidate.title: candidate for candidate in await candidates(ls, target)}
    name = harness.named(target) or target.key
    if not choices:
        ran = target in ls.session.results.runs or target in ls.session.results.profiles
        first = "change it and run it again" if ran else "run it first"
        ls.watcher.message(
            f"orbit: there is nothing to compare {name} with yet: {first}", lsp.MessageType.Warning
        )
        return
    rates = ls.places.rental.rates_text() if any(choice.kind == "gpu" for choice in choices.values()) else ""
    try:
        answer = await ls.watcher.ask(f"orbit: compare {name} with what?{rates}", tuple(choices))
    except CannotAskError:
        ls.watcher.message(_NO_CHOICE, lsp.MessageType.Warning)
        return
    if answer in choices:
        await ls.places.settings.configured.wait()
        start(ls, target, choices[answer])


async def candidates(ls: OrbitServer, target: KernelId) -> list[Candidate]:
    """Return everything that a list offers: what a code action names, then versions, commits and files."""
    first = compare_candidates.choices(ls.session, target)
    path = ls.session.path(target.uri)
    if harness.named(target):
        return first
    present = next((digest for known, _, digest in ls.session.kernels(target.uri) if known == target), None)
    entries = await ls.versions.entries(path, target.key)
    file = ls.session.files.get(target.uri)
    more = compare_candidates.versions(entries, present)
    if file and file.in_git:
        commits = await asyncio.to_thread(compare_candidates.revisions, path)
        if commits == []:  # a new file: HEAD has no version of it
            first = [candidate for candidate in first if candidate.kind != "revision"]
        more += commits or []
    more += await asyncio.to_thread(compare_candidates.files, path, target.key)
    return [*first, *more]


def show_comparison(ls: OrbitServer, target: KernelId) -> None:
    name = harness.named(target) or target.key
    versus = ls.session.results.ab.get(target)
    if versus is None or versus.comparison is None:
        ls.watcher.message(f"orbit: {name} has not been compared with anything yet", lsp.MessageType.Warning)
        return
    from orbit_lsp.report import ab_report  # as in `shown_files.result`

    made = ab_report.page(versus, name, path_of(target.uri))
    ls.spawn(show_page(ls, made, target, "versus"), "comparison")


@kernel_command("orbit.history")
def history(ls: OrbitServer, target: KernelId, _: CommandArgument) -> None:
    """Show a kernel, {uri, kernel}, over its versions, in a browser."""
    ls.spawn(show_history(ls, target), "history")


async def show_history(ls: OrbitServer, target: KernelId) -> None:
    await ls.places.settings.configured.wait()
    name = harness.named(target) or target.key
    path = ls.session.path(target.uri)
    entries = await ls.versions.entries(path, target.key)
    if not entries:
        text = f"orbit: the history has no run of {name}: run or profile it first"
        ls.watcher.message(text, lsp.MessageType.Warning)
        return
    from orbit_lsp.report import history_report

    worse = regression(entries)
    made = history_report.page(entries, name, path, lenses.regression(worse) if worse else "")
    await show_page(ls, made, target, "history")


async def show_page(ls: OrbitServer, made: Page, target: KernelId, what: str) -> None:
    from orbit_lsp.report import opening

    stem = path_of(target.uri).rpartition("/")[2].rpartition(".")[0]
    try:
        path = opening.put(made, user_folders.report_folder(), f"{stem}-{target.key}-{what}")
    except opening.NoReportError as none:
        ls.watcher.message(str(none), lsp.MessageType.Warning)
        return
    await shown_files.report(ls, path)


_WORDS = "use `last`, `revision:HEAD~1`, `file:other.cu`, `kernel:other` or `gpu:L4`"
_NO_CHOICE = (
    "orbit: this editor cannot show a choice: use one of the code actions `Compare with …` on the kernel"
)
