"""The server's commands: what lenses, code actions and palettes send.

Each is answered at once and works in tasks. `server` registers what `COMMANDS` holds. All take `*arguments`, because
some clients send none.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, cast

from lsprotocol import types as lsp

from orbit_lsp.profile import report_store
from orbit_lsp.runners.modal.spending import CannotAsk
from orbit_lsp.runs.scheduler import Run
from orbit_lsp.server.language_server import OrbitServer
from orbit_lsp.state import harness
from orbit_lsp.state.session import KernelId, path_of
from orbit_lsp.views import gpu_table
from orbit_lsp.views.profile import profile_hover
from orbit_lsp.views.spec import spec_drafts
from orbit_lsp.views.tables import render

Command = Callable[..., Any]
COMMANDS: dict[str, Command] = {}
"""By name; the first argument is the server."""


def command(name: str) -> Callable[[Command], Command]:
    def keep(function: Command) -> Command:
        COMMANDS[name] = function
        return function

    return keep


def once_configured(ls: OrbitServer, start: Callable[[], Run | None]) -> dict[str, str] | None:
    """Start a run at once and name it; None where there is none, or where the settings, which say where it is
    to run, are still on their way: then it starts when they have come.
    """
    if not ls.environment.configured.is_set():
        ls.spawn(start_configured(ls, start), "click before the settings")
        return None
    started = start()
    return {"run": started.id} if started else None


async def start_configured(ls: OrbitServer, start: Callable[[], Run | None]) -> None:
    await ls.environment.configured.wait()
    start()


@command("orbit.run")
def run(ls: OrbitServer, *arguments: Any) -> dict[str, str] | None:
    """Run the program that holds a kernel, {uri, kernel}, and measure every launch."""
    target = targeted(ls, arguments)
    if target is None:
        return None
    program = named(arguments, "through") == "program"
    return once_configured(ls, lambda: ls.runs.start("run", target.uri, target, program=program))


@command("orbit.profile")
def profile(ls: OrbitServer, *arguments: Any) -> dict[str, str] | None:
    """Count what the hardware does in one launch of a kernel, {uri, kernel, detail, through}, line by line; `detail`
    is `click` or `full`.
    """
    target = targeted(ls, arguments)
    if target is None:
        return None
    detail = "full" if named(arguments, "detail") == "full" else "click"
    program = named(arguments, "through") == "program"
    return once_configured(
        ls, lambda: ls.runs.start("profile", target.uri, target, program=program, detail=detail)
    )


@command("orbit.checkMemory")
def check_memory(ls: OrbitServer, *arguments: Any) -> dict[str, str] | None:
    """Run what launches a kernel, {uri, kernel}, under the tools of compute-sanitizer that the settings name."""
    target = targeted(ls, arguments)
    if target is None:
        return None
    program = named(arguments, "through") == "program"
    return once_configured(ls, lambda: ls.runs.start("sanitize", target.uri, target, program=program))


@command("orbit.check")
def check(ls: OrbitServer, *arguments: Any) -> dict[str, str] | None:
    """Check and time what a file, {uri}, offers by KernelBench's or popcorn's contract."""
    uri = named(arguments, "uri") or (ls.session.looked_at.uri if ls.session.looked_at else "")
    entry = harness.of(ls.session, uri)
    if entry is None:
        ls.watcher.message(harness.NONE, lsp.MessageType.Warning)
        return None
    return once_configured(ls, lambda: ls.runs.start("run", uri, entry.target))


@command("orbit.draft")
def draft(ls: OrbitServer, *arguments: Any) -> None:
    """Write a launch spec above a kernel, {uri, kernel}, that has none."""
    target = targeted(ls, arguments)
    kernel = ls.session.find(target) if target else None
    if target and kernel:
        found = spec_drafts.drafts(ls.session, target.uri, kernel, versioned=ls.takes_versions)
        if found:
            ls.spawn(write_draft(ls, found[0]), "draft")
        else:
            ls.watcher.message(spec_drafts.none(kernel), lsp.MessageType.Warning)


async def write_draft(ls: OrbitServer, found: spec_drafts.Draft) -> None:
    workspace = ls.client_capabilities.workspace
    if not (workspace and workspace.apply_edit):
        ls.watcher.message(f"orbit: this editor lets no server edit; take the code action `{found.title}`")
        return
    answer = await ls.workspace_apply_edit_async(lsp.ApplyWorkspaceEditParams(found.edit, found.title))
    if not answer.applied:
        ls.watcher.message(
            f"orbit: the editor did not take the draft: {answer.failure_reason or 'no reason given'}"
        )


@command("orbit.live")
def live(ls: OrbitServer, *arguments: Any) -> bool | None:
    """Run a kernel, {uri, kernel}, again at every save, or stop doing so; whether it does now."""
    target = targeted(ls, arguments)
    return ls.live.toggle(target) if target else None


@command("orbit.openReport")
def open_report(ls: OrbitServer, *arguments: Any) -> None:
    """Show a kernel's last result, {uri, kernel, what}, in a browser: `what` is `run`, of its launch spec, or
    `profile`, default the newer one; `nsight` says where the file for Nsight Compute lies.
    """
    target = targeted(ls, arguments)
    what = named(arguments, "what")
    if target and what == "nsight":
        ls.spawn(tell_nsight(ls, target), "Nsight Compute")
    elif target:
        ls.spawn(show_report(ls, target, what), "report")


async def tell_nsight(ls: OrbitServer, target: KernelId) -> None:
    """The window of Nsight Compute belongs on the author's screen, which need not be this machine's."""
    profiled = ls.session.profiles.get(target)
    report = profiled.report if profiled else None
    if profiled and report is None:  # it was made before the server started
        folder, path = ls.environment.profile_folder(), path_of(target.uri)
        found = await asyncio.to_thread(report_store.of_time, folder, path, target.key, profiled.at)
        report = found.report if found else None
    if report and report.exists():
        ls.watcher.message(
            f"orbit: Nsight Compute opens the profile with: {profile_hover.nsight_command(report)}"
        )
    elif profiled:
        text = f"orbit: the report of this profile of {target.key} is no longer kept; profile it again"
        ls.watcher.message(text, lsp.MessageType.Warning)
    else:
        text = f"orbit: there is no profile of {target.key}; profile it first"
        ls.watcher.message(text, lsp.MessageType.Warning)


async def show_report(ls: OrbitServer, target: KernelId, what: str | None = None) -> None:
    from orbit_lsp.report import opening  # pages cost 10 ms of a start, and few sessions ask for one

    try:
        path = opening.write(ls.session, target, ls.environment.report_folder(), what)
    except opening.NoReport as none:
        ls.watcher.message(str(none), lsp.MessageType.Warning)
        return
    await show_file(ls, path)


async def show_file(ls: OrbitServer, path: Path) -> None:
    """In a browser; where the editor opens none, its place is said."""
    window = ls.client_capabilities.window
    if window and window.show_document and window.show_document.support:
        shown = await ls.window_show_document_async(lsp.ShowDocumentParams(path.as_uri(), external=True))
        if shown.success:
            return
    ls.watcher.message(f"orbit: the report is {path}")


@command("orbit.runRestricted")
def run_restricted(ls: OrbitServer, *arguments: Any) -> dict[str, str] | None:
    """Run code that is not the author's, {uri, kernel}: on Modal, in a container for it alone."""
    target = targeted(ls, arguments)
    return once_configured(ls, lambda: start_restricted(ls, target)) if target else None


def start_restricted(ls: OrbitServer, target: KernelId) -> Run | None:
    if not ls.session.modal_account:
        ls.watcher.message(NO_SANDBOX, lsp.MessageType.Warning)
        return None
    return ls.runs.start("run", target.uri, target, restricted=True)


@command("orbit.cancel")
def cancel(ls: OrbitServer, *arguments: Any) -> bool:
    """Cancel the run of a kernel, {uri, kernel}, or whatever runs where no kernel is named."""
    if not arguments:
        return ls.runs.cancel_all()
    target = targeted(ls, arguments)
    return target is not None and ls.runs.cancel(target)


@command("orbit.compile")
def compile_file(ls: OrbitServer, *arguments: Any) -> dict[str, str] | None:
    """Compile a file, {uri}: for Triton this imports the module, so it is never done unasked."""
    uri = named(arguments, "uri") or (ls.session.looked_at.uri if ls.session.looked_at else None)
    if uri is None or uri not in ls.session.files:
        ls.watcher.message(NO_TARGET.replace("kernel", "file"), lsp.MessageType.Warning)
        return None
    return once_configured(ls, lambda: ls.runs.start("compile", uri))


@command("orbit.runOnAll")
def run_on_all(ls: OrbitServer, *arguments: Any) -> dict[str, str] | None:
    """Run a kernel, {uri, kernel, gpus}, on several GPUs on Modal side by side; default: `orbit.gpus`."""
    target = targeted(ls, arguments)
    if target is None:
        return None
    first: Any = arguments[0] if arguments else None
    asked: Any = cast("dict[str, Any]", first).get("gpus") if isinstance(first, dict) else None
    gpus = [str(one) for one in cast("list[Any]", asked)] if isinstance(asked, list) else None
    if mistake := ls.environment.gpus_mistake(gpus):
        ls.watcher.message(mistake, lsp.MessageType.Warning)
        return None
    return once_configured(ls, lambda: start_on_all(ls, target, gpus))


def start_on_all(ls: OrbitServer, target: KernelId, gpus: list[str] | None) -> Run | None:
    started = ls.multi_gpu.start(target.uri, target, gpus or ls.environment.settings.gpus)
    if started:
        ls.spawn(tell_comparison(ls, started.task, target), "tell comparison")
    return started


async def tell_comparison(ls: OrbitServer, task: asyncio.Task[Any] | None, target: KernelId) -> None:
    """The table in the log; the hover has it too."""
    if task:
        await asyncio.wait([task])
    if comparison := ls.session.comparisons.get(target):
        found = gpu_table.table(comparison, target.key, time.time(), stale=False)
        ls.watcher.log(render([found], markdown=False), lsp.MessageType.Info)


@command("orbit.chooseGpu")
def choose_gpu(ls: OrbitServer, *arguments: Any) -> None:
    """Rent this GPU, {gpu}, for runs from now on; the author is asked where none is named."""
    ls.spawn(choose(ls, named(arguments, "gpu")), "choose GPU")


async def choose(ls: OrbitServer, gpu: str | None) -> None:
    if gpu is None:
        choices = ls.environment.gpu_choices()
        question = (
            f"orbit: which GPU on Modal? Now {ls.environment.settings.gpu}{ls.environment.rates_text()}"
        )
        try:
            answer = await ls.watcher.ask(question, tuple(choices))
        except CannotAsk:
            ls.watcher.message(NO_CHOICE, lsp.MessageType.Warning)
            return
        if answer not in choices:
            return
        gpu = choices[answer]
    if mistake := ls.environment.choose_gpu(gpu):
        ls.watcher.message(mistake, lsp.MessageType.Warning)
        return
    for uri in list(ls.session.files):
        ls.compile_quietly(uri)
    ls.watcher.changed(set(ls.session.files))


NO_CHOICE = (
    "orbit: this editor cannot show a choice: take one of the code actions `Modal GPU: use …` on a kernel, or "
    "set `orbit.gpu`"
)


@command("orbit.sessions")
def sessions(ls: OrbitServer, *arguments: Any) -> list[dict[str, Any]]:
    """The containers on Modal that are warm because of this server, said and returned."""
    del arguments
    found = ls.environment.sessions()
    said = "; ".join(map(ls.environment.session_text, found))
    ls.watcher.message(said or "orbit: no GPU is rented now")
    return [dataclasses.asdict(one) for one in found]


@command("orbit.keepWarm")
def keep_warm(ls: OrbitServer, *arguments: Any) -> None:
    """Keep a container of a GPU, {gpu, keep}, until it is told otherwise; default: the settings' GPU, yes."""
    gpu = named(arguments, "gpu") or ls.environment.settings.gpu
    first: Any = arguments[0] if arguments else None
    keep = not (isinstance(first, dict) and cast("dict[str, Any]", first).get("keep") is False)
    ls.spawn(keep_or_release(ls, ls.environment.keep_warm(gpu, keep=keep)), "keep warm")


@command("orbit.release")
def release(ls: OrbitServer, *arguments: Any) -> None:
    """End the warm container of a GPU, {gpu}, or all of them, at once."""
    ls.spawn(keep_or_release(ls, ls.environment.release(named(arguments, "gpu"))), "release")


async def keep_or_release(ls: OrbitServer, work: Coroutine[Any, Any, str]) -> None:
    ls.watcher.message(await work)


@command("orbit.info")
def info(ls: OrbitServer, *arguments: Any) -> dict[str, Any]:
    """Versions, encoding, capabilities, settings, runner: what a report of a fault should carry."""
    del arguments
    return ls.environment.info(ls.client_capabilities)


NO_SANDBOX = (
    "orbit: code that is not yours is kept apart on Modal alone: `modal token new` makes a token, and "
    "`orbit.runner` must not be `local`"
)
NO_TARGET = "orbit: which kernel? Put the cursor on one, hover or open its code actions, then try again"


def targeted(ls: OrbitServer, arguments: tuple[Any, ...]) -> KernelId | None:
    """The kernel a command is about; Helix sends no arguments: then the one last looked at."""
    uri, kernel = named(arguments, "uri"), named(arguments, "kernel")
    target = KernelId(uri, kernel) if uri and kernel else ls.session.looked_at
    if target is None:
        ls.watcher.message(NO_TARGET, lsp.MessageType.Warning)
    elif ls.session.find(target) is None and not harness.holds(ls.session, target):
        text = f"orbit: {target.key} is no longer in {target.uri.rpartition('/')[2]}"
        ls.watcher.message(text, lsp.MessageType.Warning)
        return None
    ls.session.looked_at = target or ls.session.looked_at  # a click is a look
    return target


def named(arguments: tuple[Any, ...], name: str) -> str | None:
    """A field of the command's one argument, an object; None where it has none."""
    first: Any = arguments[0] if arguments else None
    value = cast("dict[str, Any]", first).get(name) if isinstance(first, dict) else getattr(first, name, None)
    return value if isinstance(value, str) else None
