"""The commands that write a file and open it: what runs have printed, and a kernel's runs for other programs."""

from __future__ import annotations

from lsprotocol import types as lsp

from orbit_lsp.runners.modal.spending import CannotAskError
from orbit_lsp.server import shown_files
from orbit_lsp.server.commands import CommandArgument, command, kernel_command
from orbit_lsp.server.language_server import OrbitServer
from orbit_lsp.state import harness
from orbit_lsp.state.kernel_ids import KernelId
from orbit_lsp.state.session import path_of


@command("orbit.showOutput")
def show_output(ls: OrbitServer, argument: CommandArgument) -> None:
    """Open what the runs of a kernel, {uri, kernel}, have printed, the last of them at the end; of all kernels where none
    is named.
    """
    target = KernelId(argument.uri, argument.kernel) if argument.uri and argument.kernel else ls.looked_at
    runs = ls.watcher.runs.of(target)
    if not runs:
        ls.watcher.message("orbit: nothing has been run yet", lsp.MessageType.Warning)
        return
    text = "\n".join(run.text() for run in runs)
    ls.spawn(shown_files.written(ls, "output", "txt", text, "what runs have printed"), "output")


@kernel_command("orbit.export")
def export(ls: OrbitServer, target: KernelId, argument: CommandArgument) -> None:
    """Open every run that is kept of a kernel, {uri, kernel, kind}, as a file: `kind` is `json`, `csv` or `md`; the author
    is asked where it is not given.
    """
    ls.spawn(_export(ls, target, argument.kind), "export")


async def _export(ls: OrbitServer, target: KernelId, kind: str | None) -> None:
    from orbit_lsp.report import history_text

    await ls.places.settings.configured.wait()
    name = harness.named(target) or target.key
    entries = await ls.versions.entries(path_of(target.uri), target.key)
    if not entries:
        text = f"orbit: the history has no run of {name}: run or profile it first"
        ls.watcher.message(text, lsp.MessageType.Warning)
        return
    if kind is None:
        try:
            answer = await ls.watcher.ask(f"orbit: export the runs of {name} as", tuple(history_text.FORMATS))
        except CannotAskError:
            answer = "CSV"
    else:
        answer = next(
            (title for title, (suffix, _) in history_text.FORMATS.items() if suffix == kind.lower()), ""
        )
        if not answer:
            ls.watcher.message("orbit: an export is `json`, `csv` or `md`", lsp.MessageType.Warning)
    if answer:
        suffix, write = history_text.FORMATS[answer]
        stem = path_of(target.uri).rpartition("/")[2].rpartition(".")[0]
        text = write(name, entries)
        await shown_files.written(ls, f"{stem}-{target.key}", suffix, text, f"the history of {name}")
