"""The command that captures a launch: its driver runs, and the launch spec that replays it is written into the editor's text"""

from __future__ import annotations

import asyncio

from lsprotocol import types as lsp

from orbit_lsp.runs import capture
from orbit_lsp.runs.capture import LaunchCapture, WrittenSpec
from orbit_lsp.runs.scheduler import RunFailedError
from orbit_lsp.server import trust_questions
from orbit_lsp.server.commands import CommandArgument, kernel_command
from orbit_lsp.server.language_server import OrbitServer
from orbit_lsp.specs import driver_choice
from orbit_lsp.state.kernel_ids import KernelId
from orbit_lsp.state.session import path_of
from orbit_lsp.views import positions
from orbit_remote.common.requests import Capture, Driver


@kernel_command("orbit.capture")
def capture_launch(ls: OrbitServer, target: KernelId, argument: CommandArgument) -> None:
    """Run a test, script or program that launches a kernel, {uri, kernel, through, launch}, and write a launch spec above the kernel that replays
    one launch: number `launch`, from 1, else the first of the configuration that takes most time.
    """
    kernel = ls.session.find(target)
    why = capture.refusal(ls.session, target, kernel) if kernel else ""
    ranked = driver_choice.ranked(ls.session, target)
    own = capture.own_program(ls.session, target)
    driver = driver_choice.named(ls.session, target, argument.through or "")
    if own and argument.through in (None, "", own.id):
        driver = own
    if argument.through and driver is None:
        why = why or f"{argument.through} is not known to launch {target.key}"
    elif driver is None and not ranked:
        why = (
            why
            or f"nothing that launches {target.key} is known: name it to `orbit-lsp capture` with --through"
        )
    if argument.launch is not None and argument.launch < 1:
        why = why or "launches are counted from 1"
    if why:
        ls.watcher.message(f"orbit: {why}", lsp.MessageType.Warning)
        return
    chosen = driver or driver_choice.chosen(ls.session, target) or ranked[0].driver
    folder = ls.session.setup.directory(path_of(target.uri))

    def start() -> None:
        ls.spawn(_capture(ls, target, chosen, argument.launch), "capture")

    if ls.session.setup.trusts(folder):
        start()
    else:
        ls.spawn(trust_questions.before_driver(ls, folder, chosen.id, start), "trust")


async def _capture(ls: OrbitServer, target: KernelId, driver: Driver, launch: int | None) -> None:
    await ls.places.settings.configured.wait()
    tools = LaunchCapture(ls.session, ls.places.runner_of, ls.runs, ls.watcher)
    taking, sets = Capture(launch), ()
    if launch is None:
        try:
            launches, sets = await tools.launches(target, driver, ())
        except RunFailedError:
            return  # the run's own message said it
        if not launches:
            text = f"orbit: {capture.not_launched(target, driver)}"
            ls.watcher.message(text, lsp.MessageType.Warning)
            return
        taking = capture.wanted(launches)
    made: list[WrittenSpec] = []
    started = tools.start(target, driver, sets, taking, made.append)
    if started is None:
        return
    await ls.runs.result(started)
    if made:
        await _write(ls, made[0])


async def _write(ls: OrbitServer, written: WrittenSpec) -> None:
    """Put the launch spec above the kernel's present place, and write its tensors into their file."""
    edit = capture.edit_now(ls.session, written)
    file = ls.session.files.get(written.target.uri)
    workspace = ls.client_capabilities.workspace
    why = ""
    if edit is None or file is None:
        why = "the kernel was edited while its launch was captured; capture it again"
    elif not (workspace and workspace.apply_edit):
        why = f"this editor does not support edits from a server; `orbit-lsp capture {path_of(written.target.uri)}` writes the file"
    if why or edit is None or file is None:
        ls.watcher.message(f"orbit: {why}", lsp.MessageType.Warning)
        return
    try:
        await asyncio.to_thread(capture.store, written)
    except (OSError, ValueError) as error:
        text = f"orbit: {written.stored} cannot be written: {error}"
        ls.watcher.message(text, lsp.MessageType.Warning)
        return
    (first, last), text = edit
    begin, end = (positions.position(ls.session, file.document, line, 0) for line in (first, last))
    made = positions.edit_of(
        file.document, [lsp.TextEdit(lsp.Range(begin, end), text)], versioned=ls.takes_versions
    )
    answer = await ls.workspace_apply_edit_async(
        lsp.ApplyWorkspaceEditParams(made, f"Capture {written.target.key}")
    )
    if not answer.applied:
        ls.watcher.message(
            f"orbit: the editor rejected the launch spec: {answer.failure_reason or 'no reason given'}"
        )
