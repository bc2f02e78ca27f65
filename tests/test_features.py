"""Background features and handlers: every feature is found by its module and told of every event, and no handler waits unsaid."""

from __future__ import annotations

import ast
import asyncio
import inspect
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import pytest
from lsprotocol import types as lsp

from orbit_lsp import features
from orbit_lsp.compilation.build_systems import registry
from orbit_lsp.features import Feature, FeatureContext, Features
from orbit_lsp.places.places import Places
from orbit_lsp.runs.scheduler import Scheduler
from orbit_lsp.server import commands, handlers
from orbit_lsp.state.session import Session

URI = "file:///src/k.cu"
FOLDER = Path(features.__file__).parent
EVENTS = [name for name, function in vars(Feature).items() if inspect.isfunction(function)]


def editor() -> FeatureContext:
    session, ignore = Session(), lambda _: None
    places = Places(session, ignore, ignore)
    watcher: Any = None
    runs = Scheduler(session, places.runner_of, watcher)
    return FeatureContext(session, places, runs, ignore, ignore, ignore, ignore, ignore)


async def test_a_feature_is_one_file_that_no_other_file_has_to_name() -> None:
    """Each class of features is found, and each feature belongs to a module of its own."""
    found = [type(feature).__name__ for feature in Features(editor())]
    trees = {
        path.stem: ast.parse(path.read_text()) for path in FOLDER.glob("*.py") if path.stem != "__init__"
    }
    classes = [
        [
            node.name
            for node in tree.body
            if isinstance(node, ast.ClassDef) and "Feature" in map(ast.unparse, node.bases)
        ]
        for tree in trees.values()
    ]
    assert sorted(classes) == sorted([name] for name in found)


class Noted(Feature):
    """Notes the events that it is told of."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def __getattribute__(self, name: str) -> Any:
        if name in EVENTS:
            return lambda *_: self.told.append(name)
        return super().__getattribute__(name)


async def test_the_handlers_tell_a_feature_they_do_not_know_of_every_event() -> None:
    """All but `finding`, which is the event of the feature that compiles files, and `run_ended`, which is the scheduler's."""
    noted, session = Noted(), Session()
    session.open(URI, 1, "__global__ void k() {}\n")
    ls: Any = MagicMock(session=session, features=[noted])
    ls.places.settings.configured.wait = ls.settle = ls.engine.end_runs = ls.places.close = AsyncMock()
    document = lsp.VersionedTextDocumentIdentifier(version=2, uri=URI)
    here = lsp.TextDocumentIdentifier(URI)
    await handlers.prepare(ls, URI)
    handlers.did_change(ls, lsp.DidChangeTextDocumentParams(document, []))
    handlers.did_save(ls, lsp.DidSaveTextDocumentParams(here))
    handlers.hover(ls, lsp.HoverParams(here, lsp.Position(0, 18)))
    changed = lsp.FileEvent("file:///src/k.h", lsp.FileChangeType.Created)
    handlers.did_change_watched_files(ls, lsp.DidChangeWatchedFilesParams([changed]))
    handlers.did_close(ls, lsp.DidCloseTextDocumentParams(here))
    await handlers.shutdown(ls, None)
    assert noted.told == ["opened", "edited", "saved", "hovered", "changed_on_disk", "closed", "shutdown"]
    assert {*noted.told, "finding", "run_ended"} == {*EVENTS}


async def test_the_end_of_a_run_is_told_once_to_every_feature() -> None:
    made = editor()
    every, noted = Features(made), Noted()
    every._all[:] = [noted, noted]
    for listener in made.runs._listeners:
        listener(MagicMock())
    assert noted.told == ["run_ended", "run_ended"]


def test_an_editor_watches_the_files_of_build_systems_that_make_programs() -> None:
    watched = handlers.PROGRAMS.removeprefix("**/{").removesuffix("}").split(",")
    making = [name for system in registry.systems() if system.programs for name in system.names]
    assert [name for name in making if name not in watched] == []


def test_handlers_name_no_feature() -> None:
    names = {path.stem for path in FOLDER.glob("*.py")} - {"__init__"}
    tree = ast.parse(inspect.getsource(handlers))
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not {f"orbit_lsp.features.{name}" for name in names} & imported


def test_each_handler_says_whether_it_may_wait() -> None:
    protocol = handlers.server.protocol.fm.features
    assert set(handlers.WAITS) <= set(protocol)
    assert sorted(method for method, waits in handlers.WAITS.items() if waits) == [
        lsp.INITIALIZED, "orbit/panel", lsp.SHUTDOWN, lsp.TEXT_DOCUMENT_CODE_ACTION, lsp.TEXT_DOCUMENT_CODE_LENS,
        lsp.WORKSPACE_DID_CHANGE_CONFIGURATION,
    ]  # fmt: skip
    assert "@server.feature(" not in inspect.getsource(handlers)


def test_a_handler_that_does_what_it_does_not_say_is_refused() -> None:
    async def waits(ls: Any) -> None:
        await asyncio.sleep(0)

    def is_over_at_once(ls: Any) -> None: ...

    with pytest.raises(TypeError, match="waits=False"):
        handlers.on("test/waits", waits=False)(waits)
    with pytest.raises(TypeError, match="waits=True"):
        handlers.on("test/at_once", waits=True)(is_over_at_once)
    with pytest.raises(TypeError, match="spawn what takes long"):
        commands.command("test.waits")(waits)
