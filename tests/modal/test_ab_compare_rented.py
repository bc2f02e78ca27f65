"""Comparisons in turn on rented GPUs, in a whole server over stdio: the same runner, prices and budget as a click.

The GPU in every container is a recorded H100: whoever asks for another kind gets the error that says so.
"""

from __future__ import annotations

import re

import pytest

from tests.e2e.conftest import Editor
from tests.e2e.test_ab_compare import committed
from tests.e2e.test_history import FASTER, SAXPY
from tests.modal.test_rented_in_editor import answering, opened, rented_before
from tests.modal_loopback.loopback import Loopback

SLOWER = "orbit: saxpy takes 7.5% more time than HEAD ("


async def comparing(start, **settings: object) -> Editor:
    editor = await opened(start, text=SAXPY, **settings)
    committed(editor.folder, saxpy_cu=FASTER)
    return editor


async def compare(editor: Editor, what: str = "revision:HEAD") -> str:
    """The words in which it ends."""
    count = len(editor.ended())
    await editor.command("orbit.compareWith", {"uri": editor.uri, "kernel": "saxpy", "with": what})
    await editor.until(lambda: len(editor.ended()) > count)
    return editor.ended()[-1]


@pytest.mark.slow
async def test_all_jobs_of_a_comparison_share_one_container_and_its_price_is_told(
    h100s: Loopback, start
) -> None:
    editor = await comparing(start)
    ended = await compare(editor)
    match = re.search(r"268 µs, now 288 µs · ([\d.]+) s of H100, \$[\d.]+ at rates of", ended)
    assert match, ended
    await editor.until(lambda: [message for message in editor.messages() if message.startswith(SLOWER)])
    (rented,) = await editor.command("orbit.sessions")
    assert rented["runs"] >= 14


@pytest.mark.slow
async def test_another_gpu_that_is_not_what_was_asked_for_ends_it(h100s: Loopback, start) -> None:
    editor = await comparing(start)
    await compare(editor, "gpu:L4")
    why = "L4 on Modal: L4 was asked for, and Modal gave a container with NVIDIA H100 80GB HBM3"
    await editor.until(lambda: [text for text in editor.messages() if why in text])


@pytest.mark.slow
@pytest.mark.parametrize("answer", ["Run once", "Run, and"])
async def test_the_budget_is_asked_about_once_for_all_jobs(h100s: Loopback, start, answer: str) -> None:
    rented_before(4.90)
    editor = await comparing(start, modal={"budget_usd": 5})
    asked = answering(editor, answer)
    assert "now 288 µs" in await compare(editor)
    assert len(asked) == 1


@pytest.mark.slow
async def test_a_budget_that_may_not_be_passed_ends_it_before_anything_is_rented(
    h100s: Loopback, start
) -> None:
    rented_before(4.90)
    editor = await comparing(start, modal={"budget_usd": 5})
    asked = answering(editor, None)
    assert (await compare(editor)).startswith("cancelled: not run: this may take the month's spending")
    assert len(asked) == 1
    assert h100s.world.containers == {}


@pytest.mark.slow
async def test_cancelling_keeps_the_container_for_the_next_click(h100s: Loopback, start) -> None:
    editor = await opened(start, text=SAXPY)
    committed(editor.folder, saxpy_cu=SAXPY.replace("{", "{/*SLOW*/ int slow;"))
    await editor.command("orbit.compareWith", {"uri": editor.uri, "kernel": "saxpy", "with": "revision:HEAD"})
    bars = editor.progress
    await editor.until(lambda: any(") running" in str(step.message) for bar in bars() for step in bar))
    await editor.command("orbit.cancel", {"uri": editor.uri, "kernel": "saxpy"})
    assert (await editor.until(editor.ended))[0].startswith("cancelled")
    assert len(await editor.command("orbit.sessions")) == 1
