"""Asks the author whether a folder is trusted, before a click runs code of it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from lsprotocol import types as lsp

from orbit_lsp.runners.modal.spending import CannotAskError
from orbit_lsp.server.language_server import OrbitServer


async def before_driver(ls: OrbitServer, folder: str, driver: str, start: Callable[[], object]) -> None:
    """Start a driver once its folder is trusted: it imports files that the author may never have opened, so a click alone is no consent."""
    await ls.places.settings.configured.wait()
    why = f"orbit: {driver} runs code of {folder}, which is not trusted"
    trust = ls.places.settings.trust
    if trust.word is False:
        ls.watcher.message(f"{why}: {trust.remedy()}", lsp.MessageType.Warning)
        return
    yes = "Trust this folder and run"
    try:
        answer = await ls.watcher.ask(f"{why}. Do you trust its authors?", (yes, "Cancel"))
    except CannotAskError:
        ls.watcher.message(f"{why}: {trust.remedy(folder=folder)}", lsp.MessageType.Warning)
        return
    if answer == yes and _trust(ls, folder):
        start()


async def before_import(ls: OrbitServer, folder: str, file: str, start: Callable[[], object]) -> None:
    """Start a compile that imports a file. The click is consent to that; trust adds the folder's own Python, and
    errors while typing.
    """
    await ls.places.settings.configured.wait()
    yes, once = "Trust this folder and compile", "Compile without trust"
    python = ls.places.python.choice()
    own = f" Its Python, {python.ignored[0]}, is used only then." if python.untrusted else ""
    question = (
        f"orbit: compiling {file} imports it, and {folder} is not trusted. Do you trust its authors?{own}"
    )
    answer: str | None = once
    if ls.places.settings.trust.word is not False:  # the editor has asked
        with contextlib.suppress(CannotAskError):
            answer = await ls.watcher.ask(question, (yes, once))
    if answer == once or (answer == yes and _trust(ls, folder)):
        start()


def _trust(ls: OrbitServer, folder: str) -> bool:
    """Trust a folder. Return whether that could be recorded."""
    try:
        complaints = ls.places.settings.trust_folder(folder)
    except OSError as error:
        ls.watcher.message(f"orbit: {folder} cannot be trusted: {error}", lsp.MessageType.Warning)
        return False
    for complaint in complaints:
        ls.watcher.message(complaint, lsp.MessageType.Warning)
    ls.watcher.changed(set(ls.session.files))
    return True
