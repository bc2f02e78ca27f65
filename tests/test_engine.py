"""One engine for every door."""

from __future__ import annotations

import ast
from pathlib import Path

from orbit_lsp.engine.engine import Engine, Unwatched
from orbit_lsp.state.session import Session

ROOT = Path(__file__).parent.parent / "orbit_lsp"


def test_the_engine_alone_makes_schedulers_places_and_histories() -> None:
    made = {
        (name, path.relative_to(ROOT).as_posix())
        for path in ROOT.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and (name := ast.unparse(node.func)) in ("Scheduler", "Places", "HistoryTracker")
    }
    assert made == {(name, "engine/engine.py") for name in ("Scheduler", "Places", "HistoryTracker")}


async def test_engines_of_one_session_share_its_places_and_end_their_own_runs() -> None:
    engine = Engine(Session(), Unwatched(), print)
    job = Engine(engine.session, Unwatched(), print, places=engine.places)
    assert job.places is engine.places
    assert job.runs is not engine.runs
    await job.end_runs()
    await engine.close()
