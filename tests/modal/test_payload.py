"""What travels with a run, and what stays on Modal after it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.modal.conftest import SAXPY, Author
from tests.modal.desk import Desk
from tests.modal_loopback.loopback import Loopback


def large(letters: int) -> str:
    """SAXPY with a comment that does not compress to less than some five eighths."""
    chosen = random.Random(letters).choices("abcdefghijklmnopqrstuvwxyz0123456789 ()+*;", k=letters)
    return SAXPY + "// " + "".join(chosen)


@pytest.mark.parametrize("letters", [20_000, 1_000_000])
async def test_a_restricted_run_reaches_a_container_that_can_fetch_nothing(
    h100s, author, letters: int
) -> None:
    item: Author = author(restricted=True)
    finished = await item.finished(item.job(text=large(letters)))
    assert finished.outcome == "ok"
    assert not h100s.world.calls_of["BlobGet"]


async def test_a_restricted_run_that_is_too_large_rents_nothing(h100s, author) -> None:
    item: Author = author(restricted=True)
    finished = await item.finished(item.job(text=large(4_000_000)))
    assert finished.failure is not None
    text = "a restricted run may send 1.94 MiB of compressed files, and these are 5.41 MiB"
    assert finished.failure.message == text
    assert not [each for each in h100s.world.containers.values() if each.function.gpu]


async def test_a_restricted_run_is_cancelled_while_it_waits(h100s, author) -> None:
    item: Author = author(restricted=True)
    await item.runner.pool.account.deploy()
    h100s.until(lambda world: not world.alive())
    h100s.limit_capacity(0)
    async with item.until(item.job(text=large(20_000)), "waiting for an H100"):
        pass
    h100s.until(lambda world: all(call.over for call in world.function_calls.values()))
    h100s.grant_capacity()


@pytest.mark.slow
async def test_deleting_the_volume_costs_one_click(
    modal: Loopback, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk(modal, tmp_path / "ws", monkeypatch, tmp_path / "cache")
    desk.runs_programs()
    try:
        assert (await desk.run()).outcome == "ok"
        await desk.places.rental.runner().close()
        modal.idle_out()
        modal.do(lambda world: world.volumes.clear())
        failed = await desk.run()
        assert failed.failure is not None
        assert "Volume vo-orbit-files not found" in failed.failure.message
        assert (await desk.run()).outcome == "ok"
    finally:
        await desk.close()


async def test_a_proxy_without_its_packages_is_named_at_once(
    h100s, author, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MODAL_DISABLE_API_PROXY")
    monkeypatch.setenv("MODAL_SERVER_URL", "https://api.modal.com")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.lab:3128")
    item: Author = author()
    finished = await item.finished(item.job())
    assert finished.failure is not None
    assert finished.failure.message.endswith("through the proxy that the environment names, proxy.lab")
    assert "modal[api-proxy-support]" in finished.failure.remedy
