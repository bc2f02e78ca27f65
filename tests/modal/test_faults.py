"""Every row of faults.py on the control plane of this machine, with Modal's own client and entrypoint."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from orbit_lsp.runners.modal.deploy import Account, app_spec
from orbit_lsp.state.config import Settings
from tests.modal.conftest import container
from tests.modal.desk import Desk
from tests.modal.faults import BEGIN, END, FAULTS, OFFLINE, PAGE, Fault, markdown
from tests.modal_loopback.fixture import started
from tests.modal_loopback.loopback import Loopback


@pytest.fixture(scope="session")
def builds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("builds")


@pytest.fixture(scope="session")
def app_there(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The app was put there by a run before, unless a test forgets it."""
    folder = tmp_path_factory.mktemp("before")
    with (
        pytest.MonkeyPatch.context() as patch,
        started(patch, folder, container(folder, recorded=True), kept=True),
    ):
        asyncio.run(Account(app_spec(Settings(), None)).deploy())


@pytest.fixture
async def desk(
    app_there: None, h100s: Loopback, tmp_path: Path, builds: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Desk]:
    made = Desk(h100s, tmp_path / "kernels", monkeypatch, builds)
    yield made
    await made.close()
    await made.until_gone(made.processes)


ALWAYS_TRIED = {
    "bad_token",
    "cancelled_building",
    "cancelled_queued",
    "image_fails",
    "internal_failure",
    "no_name",
    "no_token",
    "refused",
    "throttled",
    "worker_dies",
}
"""The faults that users meet most and that take least; the rest need seconds each, and run with `--slow`."""


def row(fault: Fault) -> Any:
    name = fault.act.__name__
    return pytest.param(fault, id=name, marks=[] if name in ALWAYS_TRIED else [pytest.mark.slow])


@pytest.mark.parametrize("fault", [row(fault) for fault in FAULTS])
async def test_a_fault_is_survived(fault: Fault, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    # nobody ever answers: 5 s else, of Modal's own client 56 s; a busy machine is not a Modal that does not answer
    unreachable = OFFLINE in fault.sees and not fault.warm
    monkeypatch.setattr("orbit_lsp.runners.modal.deploy.CONTACT_S", 0.5 if unreachable else 60.0)
    if not unreachable:  # containers are released at the end, however long a busy machine takes
        monkeypatch.setattr("orbit_lsp.runners.modal.runner._CLOSE_S", 60.0)
        monkeypatch.setattr("orbit_lsp.runners.modal.runner._LEAVE_S", 60.0)
    await fault.act(desk)
    shown = "\n".join(desk.shown)
    for sentence in fault.sees:
        assert re.search(".+".join(map(re.escape, sentence.split("…"))), shown), (
            f"{sentence!r} is not in\n{shown}"
        )
    assert [finished.outcome for _, finished in desk.ends][-1:] == [fault.outcome] * bool(fault.outcome)
    ended = [run for run, _ in desk.ends]
    assert len(ended) == len(set(ended)), "a run ended twice"
    assert not desk.session.running
    await desk.until_gone(desk.work)
    await desk.there(desk.modal.until, lambda world: desk.rented() == fault.warm)
    assert desk.warm() == fault.warm, "what the lens says is not what is rented"


def test_the_page_has_the_table_as_it_is_tested() -> None:
    table = PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    assert table == markdown(), "run python -m tests.modal.faults --write"
