"""The commands that open compiler output: of a profiled kernel, and of one that is compiled for it. They are answered
at once, like those of `commands`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from lsprotocol import types as lsp

from orbit_lsp.profile import dump_files, listing, report_store
from orbit_lsp.runners.modal.spending import CannotAskError
from orbit_lsp.runs import listings
from orbit_lsp.runs.scheduler import Run
from orbit_lsp.server import shown_files
from orbit_lsp.server.commands import CommandArgument, kernel_command, once_configured
from orbit_lsp.server.language_server import OrbitServer
from orbit_lsp.state import user_folders
from orbit_lsp.state.kernel_ids import KernelId
from orbit_lsp.state.results import Profiled
from orbit_lsp.state.session import path_of
from orbit_remote.common.messages import Dump
from orbit_remote.common.requests import Level


@kernel_command("orbit.openIr")
def open_ir(ls: OrbitServer, target: KernelId, argument: CommandArgument) -> None:
    """Open what the compiler made of a kernel, {uri, kernel, kind}, when it was profiled: `kind` is `ttir`, `ttgir`,
    `llir`, `ptx` or `sass`; the author is asked where it is not given.
    """
    ls.spawn(show(ls, target, argument.kind), "open IR")


@kernel_command("orbit.disassemble")
def disassemble(ls: OrbitServer, target: KernelId, argument: CommandArgument) -> dict[str, str] | None:
    """Compile a kernel's file, {uri, kernel, kind, line}, and open what the compiler made, without a run: `kind` is `ttir`, `ttgir`,
    `llir`, `ptx` or `sass`, the default. SASS is opened at what line `line`, from 0, became. A CUDA file's is made again at
    each save.
    """
    levels: dict[str, Level] = {level: level for level in dump_files.TITLES}
    if (level := levels.get(argument.kind or "sass")) is None:
        text = f"orbit: what the compiler made is {', '.join(levels)}; there is no {argument.kind!r:.60}"
        ls.watcher.message(text, lsp.MessageType.Warning)
        return None
    key = target, level
    if not ls.follows_listings:
        ls.follows_listings = True
        ls.runs.when_ended(lambda run: ls.spawn(compiled(ls, run), "listings") if run.job.levels else None)
    ls.to_show[key] = argument.line
    ls.session.results.listings.setdefault(key, None)

    def start() -> Run | None:
        return ls.runs.start("compile", target.uri, levels=ls.session.results.levels(target.uri))

    return once_configured(ls, start)


async def compiled(ls: OrbitServer, run: Run) -> None:
    """Write the listings of a compilation that has ended, and open those that somebody waits for."""
    finished, uri = run.finished, run.frozen.uri
    if finished is None or finished.outcome == "cancelled":
        return
    made: set[tuple[KernelId, Level]] = set()
    if finished.outcome == "ok":
        try:
            made = await asyncio.to_thread(listings.file, ls.session, run, user_folders.listing_folder())
        except OSError as error:
            text = f"orbit: what the compiler made cannot be written: {error.strerror or error}"
            ls.watcher.message(text, lsp.MessageType.Warning)
            return
        ls.watcher.changed({uri})  # its lines have how many instructions they became
    for target, level in sorted(key for key in ls.to_show if key[0].uri == uri):
        shown = ls.session.results.listings.get((target, level))
        if level not in run.job.levels:
            continue
        line = ls.to_show.pop((target, level))
        if (target, level) in made and shown:
            await _show(ls, target, level, shown.path, line)
        else:
            ls.session.results.listings.pop((target, level), None)
            why = (
                finished.failure.message if finished.failure else "; ".join(finished.remarks) or _NO_INSTANCE
            )
            text = f"orbit: there is no {dump_files.TITLES[level]} of {target.key}: {why}"
            ls.watcher.message(text, lsp.MessageType.Warning)


_NO_INSTANCE = "the compiler generated no code for it; a template needs a launch spec or an instantiation"


async def show(ls: OrbitServer, target: KernelId, kind: str | None) -> None:
    profiled = ls.session.results.profiles.get(target)
    dumps = dump_files.of(profiled)
    if profiled is None or not dumps:
        why = (
            "profile it first" if profiled is None else "its profile has none, but `Show SASS` makes it anew"
        )
        text = f"orbit: there is no compiler output of {target.key}: {why}"
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
        opened = await _instance(ls, [(dump, name) for dump, name in dumps if dump.level == kind])
    except CannotAskError:
        kinds = ", ".join(f"`Open {title}`" for title in have)
        text = f"orbit: this editor cannot show a choice: use one of the code actions {kinds} on {target.key}"
        ls.watcher.message(text, lsp.MessageType.Warning)
        return
    if opened is not None:
        await _open(ls, target, profiled, *opened)


async def _instance(ls: OrbitServer, dumps: list[tuple[Dump, str]]) -> tuple[Dump, str] | None:
    """Return the dump on the kernel's line if there is no other, or the author cannot be asked. Return None if the
    author chooses none.
    """
    if len(dumps) == 1 or not ls.session.client.can_ask:
        return dumps[0]
    choices = {
        f"{number}: {dump_files.instance(dump)}": (dump, name) for number, (dump, name) in enumerate(dumps, 1)
    }
    answer = await ls.watcher.ask("orbit: which instance? The first is the one on the line", tuple(choices))
    return choices.get(answer or "")


async def _open(ls: OrbitServer, target: KernelId, profiled: Profiled, dump: Dump, name: str) -> None:
    folder = profiled.dumps or await asyncio.to_thread(_kept, user_folders.profile_folder(), target, profiled)
    path = folder / name if folder else None
    if path is None or not path.is_file():
        text = f"orbit: what the compiler made of {target.key} is no longer kept; profile it again"
        ls.watcher.message(text, lsp.MessageType.Warning)
        return
    await _show(ls, target, dump.level, path)


async def _show(ls: OrbitServer, target: KernelId, level: Level, path: Path, line: int | None = None) -> None:
    at = None
    if line is not None and level == "sass":
        text = await asyncio.to_thread(path.read_text, "utf-8", "replace")
        at = listing.line_of(text, listings.shown_name(target.uri), line + 1)
    await shown_files.text(ls, path, f"the {dump_files.TITLES[level]} of {target.key}", at, beside=True)


def _kept(folder: Path, target: KernelId, profiled: Profiled) -> Path | None:
    """Return the folder of a profile that was made before the server started."""
    kept = report_store.of_time(folder, path_of(target.uri), target.key, profiled.at)
    return kept.dumps if kept else None
