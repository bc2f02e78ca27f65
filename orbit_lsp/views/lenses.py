"""Makes the lenses above kernels, and the same commands as code actions for editors that draw no lens.

Both are sent complete, with everything the command needs: Neovim 0.12 draws no lens that must be resolved first, and
VS Code resolves only a code action's edit.
"""

from __future__ import annotations

import time
from collections import Counter

from lsprotocol import types as lsp

from orbit_lsp.kernels.model import RUNNABLE, SPECIFIED, Kernel
from orbit_lsp.specs import driver_choice, job_builder
from orbit_lsp.state import fitting, modal_gpus
from orbit_lsp.state.fitting import Part
from orbit_lsp.state.session import Session, path_of
from orbit_lsp.views import kernel_commands, kernel_status, positions
from orbit_lsp.views.answer import outcome
from orbit_lsp.views.kernel_status import KernelStatus
from orbit_remote.common.measure import Regression

_JOIN = " | "
"""What VS Code and Neovim draw between two lenses."""
_LONG_S = 5
"""After this many seconds a run's lens offers to show where its kernel is."""
_DRIVER = 24
"""Columns that a driver's name has at least."""
AT_ONCE = 100
"""Kernels whose lenses are made in 3 ms: as long as an event may take that asks for them, and nobody waits."""


def lenses(session: Session, uri: str, now: float | None = None) -> list[lsp.CodeLens]:
    """Return the lenses of a file. `now` is on the monotonic clock."""
    file = session.files.get(uri)
    if file is None:
        return []
    shown: list[lsp.CodeLens] = []
    now = time.monotonic() if now is None else now
    every = kernel_status.of(session, uri)
    callers = _callers(every)
    on_line = Counter(known.kernel.line for known in every)
    for known in every:
        end = positions.line_end(session, file.document, known.kernel.line)
        made = row(session, uri, known, callers, now)
        if made and on_line[known.kernel.line] > 1:  # one macro may make several kernels
            made[0] = replace_title(made[0], f"{known.kernel.name}: {made[0].title}")
        shown += [lsp.CodeLens(lsp.Range(lsp.Position(end.line, 0), end), command) for command in made]
    shown += kernel_commands.harness_lenses(session, uri, now)
    if shown and not file.cell and (command := gpu_command(session)):
        shown.insert(0, lsp.CodeLens(positions.whole_line(session, file.document, 0), command))
    return _in_order(shown)


def answer(session: Session, uri: str) -> list[lsp.CodeLens]:
    """Return the lenses of a file for a client that asked: it draws these until it asks again."""
    shown = lenses(session, uri)
    if file := session.files.get(uri):
        file.drawn_lenses = _drawn(shown)
    return shown


def are_news(session: Session, uri: str) -> bool:
    """Return whether the client draws other lenses of an open file, or none. After this call the client counts as
    having asked for them.
    """
    file = session.files[uri]
    before, file.drawn_lenses = file.drawn_lenses, _drawn(lenses(session, uri))
    return before != file.drawn_lenses


def _drawn(shown: list[lsp.CodeLens]) -> list[tuple[int, object]]:
    """Return the parts of lenses that an editor draws. The ends of their lines are not among them."""
    return [(lens.range.start.line, lens.command) for lens in shown]


def _in_order(shown: list[lsp.CodeLens]) -> list[lsp.CodeLens]:
    """Let each of a line's lenses begin a column later. Neovim sorts them by column, and equal ones come in any
    order.
    """
    counts: Counter[int] = Counter()
    for lens in shown:
        line = lens.range.start.line
        lens.range.start.character = counts[line]
        counts[line] += 1
    return shown


Callers = dict[str, list[KernelStatus]]


def _callers(every: list[KernelStatus]) -> Callers:
    """Return the kernels that can be run, by name."""
    callers: Callers = {}
    for status in every:
        if status.kernel.launchable:
            callers.setdefault(status.kernel.qualified, []).append(status)
    return callers


def row(session: Session, uri: str, known: KernelStatus, callers: Callers, now: float) -> list[lsp.Command]:
    """Return a kernel's lenses: its answer and its commands, in the order of the setting, within `fitting.LENS`
    columns.
    """
    if session.is_cell(uri):
        return _of_cell(session, known, callers, now)
    available = commands(session, known, callers, now)
    more = [*kernel_commands.debug(session, uri, known)[:1], kernel_commands.memory_lens(session, known)]
    more.append(kernel_commands.compile_command(session, known))
    if known.target in session.live:
        more.append(kernel_commands.of_kernel("◉ Live", "orbit.live", known.target))
    if not available or known.running or not kernel_status.is_started(session, known):
        return [_cut(command) for command in available] + [command for command in more if command]
    by_part = {"run": available[:1], "profile": available[1:]}
    wanted = session.setup.settings.lens.parts
    answers = [part for part in wanted if part in ("outcome", "verdict")]
    rest = [command for part in wanted for command in by_part.get(part, [])] + [
        command for command in more if command
    ]
    parts = _answer(session, known, answers)
    if not parts:
        return rest
    whole, text = fitting.fit(parts, fitting.LENS), ""
    for shorten in (_as_it_is, _without_gpu, _briefly):  # the hover has the whole names
        shown = [shorten(command) for command in rest]
        columns = fitting.LENS - sum(len(command.title) + len(_JOIN) for command in shown)
        if (text := fitting.fit(parts, columns)) == whole:
            break
    rest = shown
    if not text:
        return rest
    answer = kernel_commands.answer(known, text)
    first = next((index for index, part in enumerate(wanted) if part in answers), 0)
    before = sum(len(by_part.get(part, [])) for part in wanted[:first])
    return [*rest[:before], answer, *rest[before:]]


def _of_cell(session: Session, known: KernelStatus, callers: Callers, now: float) -> list[lsp.Command]:
    """Return only the answer of a cell, because the notebook runs its cells itself. A cell of CUDA that could not be
    run gets a draft too.
    """
    wanted = [part for part in session.setup.settings.lens.parts if part in ("outcome", "verdict")]
    if text := fitting.fit(_answer(session, known, wanted), fitting.LENS):
        return [kernel_commands.answer(known, text)]
    if known.kernel.language != "cuda":
        return []
    return [each for each in commands(session, known, callers, now) if each.command == "orbit.draft"]


def _answer(session: Session, known: KernelStatus, wanted: list[str]) -> list[Part]:
    parts: list[Part] = []
    for part in wanted:
        if part == "verdict":
            parts += [] if known.failed else outcome.verdict(known)
        else:
            parts += outcome.parts(known) + ([] if known.stale or known.failed else regressed(session, known))
    return parts


def _as_it_is(command: lsp.Command) -> lsp.Command:
    return command


def _without_gpu(command: lsp.Command) -> lsp.Command:
    """Return the driver's name alone, if there is a driver."""
    run, colon, driver = command.title.partition(": ")
    named = command.command == "orbit.run" and colon and run.startswith("▶ Run on ")
    return replace_title(command, f"▶ Run{colon}{driver}") if named else command


def _briefly(command: lsp.Command) -> lsp.Command:
    return replace_title(command, "▶ Run") if command.command == "orbit.run" else command


def _cut(command: lsp.Command) -> lsp.Command:
    return replace_title(command, fitting.cut(command.title, fitting.LENS))


def replace_title(command: lsp.Command, title: str) -> lsp.Command:
    return lsp.Command(title, command.command, command.tooltip, command.arguments)


def gpu_command(session: Session) -> lsp.Command | None:
    """Return the lens that names the rented GPU for runs, if runs go to Modal."""
    if session.setup.place() != "modal":
        return None
    gpu = session.setup.rents()
    warmth = kernel_status.warmth(session, gpu)
    title = f"Modal GPU: {gpu or 'none'}" + (f", {warmth}" if warmth else "") + " (change)"
    return lsp.Command(title, "orbit.chooseGpu", arguments=[{}])


def actions(session: Session, uri: str, first: int, last: int) -> list[lsp.CodeAction]:
    """Return the actions for the kernels whose definition meets the lines `first` to `last`."""
    offered: list[lsp.CodeAction] = []
    together: list[lsp.Command] = []
    every = kernel_status.of(session, uri)
    callers = _callers(every)
    for known in every:
        whole = known.kernel.whole
        if whole.line <= last and first <= whole.end_line:
            if all_kernels := all_command(session, known):
                together.append(all_kernels)
            for command in commands(session, known, callers, time.monotonic()):
                title = f"{command.title} ({known.kernel.name})"
                offered.append(_first(session, title, command))
                if restricted := _restricted(session, command, known):
                    title = f"{restricted.title} ({known.kernel.name})"
                    offered.append(lsp.CodeAction(title, kind=lsp.CodeActionKind.Empty, command=restricted))
    if offered and (command := gpu_command(session)):
        together += [command] if session.client.can_ask else _each_gpu(session)
    return offered + [
        lsp.CodeAction(command.title, kind=lsp.CodeActionKind.Empty, command=command) for command in together
    ]


def _first(session: Session, title: str, command: lsp.Command) -> lsp.CodeAction:
    """Return *Run*, else *Draft* or *Cancel*, as an action that comes before other servers' actions for the line:
    clangd's *Expand macro* rewrites the source. Helix sorts by the kind. Editors that draw lenses may apply a quick
    fix by themselves, so there it has none.
    """
    is_run = command.command == "orbit.run"
    leads = is_run or command.command in ("orbit.draft", "orbit.cancel")
    quick = leads and not session.client.draws_lenses
    kind = lsp.CodeActionKind.QuickFix if quick else lsp.CodeActionKind.Empty
    return lsp.CodeAction(title, kind=kind, command=command, is_preferred=is_run or None)


def all_command(session: Session, known: KernelStatus) -> lsp.Command | None:
    """Return *Run on all* for a kernel that can be run and does not run now, if there is a Modal account."""
    kernel = known.kernel
    gpus = session.setup.settings.gpus
    if not (
        session.setup.modal_account
        and gpus
        and kernel_status.is_started(session, known)
        and not _is_local(known)
        and kernel.launchable
        and kernel.dsl in RUNNABLE
    ):
        return None
    if known.running:
        return None
    return kernel_commands.of_kernel(
        f"▶ Run on all: {', '.join(gpus)} ({kernel.name})", "orbit.runOnAll", known.target
    )


def _each_gpu(session: Session) -> list[lsp.Command]:
    """Return a command for each GPU. A client that cannot be asked lets the author choose in its list of code
    actions.
    """
    settings = session.setup.settings
    other_gpus = [gpu for gpu in settings.gpus if gpu != settings.gpu]
    return [
        lsp.Command(f"Modal GPU: use {gpu}", "orbit.chooseGpu", arguments=[{"gpu": gpu}])
        for gpu in other_gpus
    ]


def commands(session: Session, known: KernelStatus, callers: Callers, now: float) -> list[lsp.Command]:
    """Return the commands of a kernel's lenses. `now` is on the monotonic clock, in seconds."""
    kernel = known.kernel
    if kernel.dsl not in RUNNABLE:
        return []
    target = known.target
    if not kernel.launchable:
        return _of_caller(session, kernel, callers)
    if known.running:
        state = known.running.state
        seconds = int(now - known.running.began)
        why = f": {known.running.why}" if known.running.why else ""
        shown = [kernel_commands.of_kernel(f"⏳ {state} {seconds} s (cancel){why}", "orbit.cancel", target)]
        if state == "running" and seconds >= _LONG_S and session.setup.place() == "local":
            shown.append(kernel_commands.of_kernel("Where is it?", "orbit.locate", target))
        return shown
    if not kernel_status.is_started(session, known):
        if kernel.generator or kernel.dsl not in SPECIFIED:  # no launch spec can launch it
            return []
        return [
            kernel_commands.of_kernel(
                f"✎ Draft a launch spec: {missing_entry(kernel)}", "orbit.draft", target
            )
        ]
    return [
        kernel_commands.of_kernel(_through(session, known, _run_title(session, known)), "orbit.run", target),
        kernel_commands.profile(session, known),
    ]


def _run_title(session: Session, known: KernelStatus) -> str:
    """Return the title of a run with the GPU that a click gets. A rented GPU that waits is called warm."""
    gpu = kernel_status.gpu_name(session)
    rents = session.setup.place() == "modal" and session.setup.modal_account
    if known.plan.gpu and rents:
        gpu = modal_gpus.rented(known.plan.gpu)
    if not gpu and rents:
        return "▶ Run (no such GPU to rent)"
    if not gpu:
        return _without_a_gpu(session)
    return f"▶ Run on {gpu}" + (" (warm)" if kernel_status.warmth(session, gpu) else "")


def _without_a_gpu(session: Session) -> str:
    """Return the title of a run that gets no GPU: what is missing, and the GPU that the author chose."""
    setup = session.setup
    local = setup.place() == "local"
    if local and (setup.machine is None or setup.host):
        return "▶ Run"
    chosen = setup.rents() if setup.gpu_is_named else ""
    if local and not chosen:
        return "▶ Run (choose a GPU)"
    missing = "runner is local" if setup.settings.runner == "local" else "no Modal token"
    return f"▶ Run on {chosen} ({missing})" if chosen else f"▶ Run ({missing})"


def _through(session: Session, known: KernelStatus, run: str) -> str:
    """Return the title of a run with its driver's name. It has a mark while no run has shown that the driver launches
    the kernel.
    """
    driver = known.plan.driver
    if driver is None:
        return run
    if not session.setup.trusts(session.setup.directory(path_of(known.target.uri))):
        return f"▶ Run: {fitting.cut(driver.short, _DRIVER)} (trust this folder)"
    mark = "?" if driver_choice.is_guess(session, known.target, driver) else ""
    room = fitting.LENS - len(f"{run}: {mark}{_JOIN}Profile")
    return f"{run}: {fitting.cut(driver.short, max(room, _DRIVER))}{mark}"


def _is_local(known: KernelStatus) -> bool:
    """Say whether a click runs a program of the project. No rented GPU can."""
    return known.plan.driver is not None and known.plan.driver.kind == "program"


def _restricted(session: Session, command: lsp.Command, known: KernelStatus) -> lsp.Command | None:
    """Return the same run for code that is not the author's. Return None if it is that already, or cannot be."""
    always = session.setup.settings.modal.restricted
    if (
        command.command != "orbit.run"
        or not kernel_status.is_started(session, known)
        or _is_local(known)
        or always
        or not session.setup.modal_account
        or not (gpu := modal_gpus.rented(job_builder.gpu_of(session, known.plan)))
    ):
        return None
    title = f"▶ Run on {gpu}, restricted: the code is not mine"
    return lsp.Command(title, "orbit.runRestricted", arguments=command.arguments)


def regressed(session: Session, known: KernelStatus) -> list[Part]:
    """Return `+12% since 3 edits`, if the history says that the present code was faster before."""
    digest, worse = session.results.regressions.get(known.target, ("", None))
    if worse is None or digest != known.digest:
        return []
    text = regression(worse)
    return Part.of(3, text, text.partition(" ")[0])


def regression(worse: Regression) -> str:
    """Return `+12% since 3 edits`, against the fastest version, that many versions ago."""
    edits = "1 edit" if worse.edits == 1 else f"{worse.edits} edits"
    percent = 100 * worse.change
    return f"{percent:+.0f}% since {edits}" if percent >= 10 else f"{percent:+.1f}% since {edits}"


def missing_entry(kernel: Kernel) -> str:
    if kernel.language == "cuda":
        return "this file has no main"
    return "no main, benchmark or test here"


def _of_caller(session: Session, helper: Kernel, callers: Callers) -> list[lsp.Command]:
    """Return commands that run a caller of a helper: one that can be run as it stands, else the draft of the first
    one.
    """
    available = [caller for name in helper.callers for caller in callers.get(name, ())]
    for caller in available:
        if kernel_status.is_started(session, caller):
            run = kernel_commands.of_kernel(f"▶ Run {caller.target.key}", "orbit.run", caller.target)
            profile = kernel_commands.of_kernel(
                f"Profile {caller.target.key}", "orbit.profile", caller.target
            )
            return [run, profile]
    return [
        kernel_commands.of_kernel(
            f"✎ Draft a launch spec for {caller.target.key}", "orbit.draft", caller.target
        )
        for caller in available[:1]
    ]
