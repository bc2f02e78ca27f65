"""The command that opens compiler output of a profiled kernel. Answered at once, like those of `commands`."""

from __future__ import annotations

import asyncio
from pathlib import Path

from lsprotocol import types as lsp

from orbit_lsp.profile import dump_files, report_store
from orbit_lsp.runners.modal.spending import CannotAsk
from orbit_lsp.server import shown_files
from orbit_lsp.server.commands import Request, kernel_command
from orbit_lsp.server.language_server import OrbitServer
from orbit_lsp.state.kernel_ids import KernelId
from orbit_lsp.state.results import Profiled
from orbit_lsp.state.session import path_of
from orbit_remote.common.messages import Dump


@kernel_command("orbit.openIr")
def open_ir(ls: OrbitServer, target: KernelId, request: Request) -> None:
    """Open what the compiler made of a kernel, {uri, kernel, kind}, when it was profiled: `kind` is `ttir`, `ttgir`,
    `llir`, `ptx` or `sass`; the author is asked where it is not given.
    """
    ls.spawn(show(ls, target, request.kind), "open IR")


async def show(ls: OrbitServer, target: KernelId, kind: str | None) -> None:
    profiled = ls.session.results.profiles.get(target)
    found = dump_files.of(profiled)
    if profiled is None or not found:
        why = "there is no profile of it" if profiled is None else "its profile has none"
        text = f"orbit: there is no compiler output of {target.key}: {why}; profile it first"
        ls.watcher.message(text, lsp.MessageType.Warning)
        return
    have = {dump_files.TITLES[level]: level for level in dump_files.levels(profiled)}
    if kind is not None and kind not in have.values():
        text = f"orbit: there is no {kind} of {target.key}; there is {', '.join(have.values())}"
        ls.watcher.message(text, lsp.MessageType.Warning)
        return
    try:
        if kind is None:
            answer = await ls.watcher.ask(f"orbit: what the compiler made of {target.key}", tuple(have))
            if answer not in have:
                return
            kind = have[answer]
        one = await _instance(ls, [(dump, name) for dump, name in found if dump.level == kind])
    except CannotAsk:
        kinds = ", ".join(f"`Open {title}`" for title in have)
        text = (
            f"orbit: this editor cannot show a choice: take one of the code actions {kinds} on {target.key}"
        )
        ls.watcher.message(text, lsp.MessageType.Warning)
        return
    if one is not None:
        await _open(ls, target, profiled, *one)


async def _instance(ls: OrbitServer, found: list[tuple[Dump, str]]) -> tuple[Dump, str] | None:
    """The one on the kernel's line where there is no other, or the author cannot be asked; None for none of them."""
    if len(found) == 1 or not ls.session.client.can_ask:
        return found[0]
    choices = {
        f"{number}: {dump_files.instance(one)}": (one, name) for number, (one, name) in enumerate(found, 1)
    }
    answer = await ls.watcher.ask(
        "orbit: of which instance? The first is the one on the line", tuple(choices)
    )
    return choices.get(answer or "")


async def _open(ls: OrbitServer, target: KernelId, profiled: Profiled, dump: Dump, name: str) -> None:
    folder = profiled.dumps or await asyncio.to_thread(
        _kept, ls.environment.profile_folder(), target, profiled
    )
    path = folder / name if folder else None
    if path is None or not path.is_file():
        text = f"orbit: what the compiler made of {target.key} is no longer kept; profile it again"
        ls.watcher.message(text, lsp.MessageType.Warning)
        return
    await shown_files.text(ls, path, f"the {dump_files.TITLES[dump.level]} of {target.key}")


def _kept(folder: Path, target: KernelId, profiled: Profiled) -> Path | None:
    """Of a profile that was made before the server started."""
    found = report_store.of_time(folder, path_of(target.uri), target.key, profiled.at)
    return found.dumps if found else None
