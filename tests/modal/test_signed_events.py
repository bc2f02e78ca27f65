"""Somebody else writes to the queue that a job's events come through: no word of theirs is believed."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable

import pytest

from orbit_remote.common import messages as c
from orbit_remote.modal_app.signed_stream import Signer, Verifier
from tests.modal.conftest import Author, states

FORGED = f'\n{c.encode(c.Finished("r1", "ok", stdout="forged"))}\n{{"kind":"done"}}\n'.encode()


@pytest.mark.parametrize(
    ("attack", "why"),
    [
        pytest.param(lambda first, second: [FORGED, first, second], "a wrong signature", id="forged"),
        pytest.param(lambda first, second: [first, first, second], "piece 0 came in the place of piece 1", id="replayed"),
        pytest.param(lambda first, second: [second, first], "piece 1 came in the place of piece 0", id="reordered"),
        pytest.param(lambda first, second: [second], "piece 1 came in the place of piece 0", id="missing"),
    ],
)  # fmt: skip
async def test_a_piece_that_is_not_the_next_one_ends_the_stream_and_the_run_is_answered(
    h100s, author, caplog: pytest.LogCaptureFixture, attack: Callable[[bytes, bytes], list[bytes]], why: str
) -> None:
    held: list[bytes] = []

    def change(partition: bytes, items: list[bytes]) -> list[bytes]:
        """The first two pieces as the attack has them."""
        if partition.endswith(b"/alive") or len(held) == 2:
            return items
        held.extend(pickle.loads(item) for item in items)
        return [pickle.dumps(piece) for piece in attack(*held)] if len(held) == 2 else []

    h100s.tamper(change)
    entry: Author = author()
    with caplog.at_level(logging.WARNING, "orbit.modal"):
        events = await entry.events(entry.job())
    finished = events[-1]
    assert isinstance(finished, c.Finished)
    assert (finished.outcome, [each.name for each in finished.launches], finished.stdout) == (
        "ok", ["saxpy(int, float, const float *, float *)"], "no error\n"
    )  # fmt: skip
    assert "forged" not in str(events)
    (line,) = [line for line in caplog.messages if "not believed" in line]
    assert why in line


async def test_events_that_nobody_touched_are_told_as_they_come(
    h100s, author, caplog: pytest.LogCaptureFixture
) -> None:
    item: Author = author()
    with caplog.at_level(logging.WARNING, "orbit.modal"):
        events = await item.events(item.job())
    assert "running" in states(events)
    assert [event.text for event in events if isinstance(event, c.Output)] == ["no error\n"]
    assert "not believed" not in caplog.text


@pytest.mark.parametrize(
    ("change", "why"),
    [
        pytest.param(lambda piece: "forged", "too short", id="no bytes"),
        pytest.param(lambda piece: piece[:55], "too short", id="cut in its signature"),
        pytest.param(lambda piece: piece[:-1], "a wrong signature", id="cut"),
        pytest.param(lambda piece: piece[:56] + FORGED, "a wrong signature", id="another payload"),
        pytest.param(lambda piece: bytes(16) + piece[16:], "a wrong signature", id="another stream"),
        pytest.param(lambda piece: piece[:16] + bytes(7) + b"\1" + piece[24:], "a wrong signature", id="another number"),
        pytest.param(lambda piece: Signer("of another job").sign(FORGED), "a wrong signature", id="another secret"),
    ],
)  # fmt: skip
def test_a_piece_that_is_not_as_it_was_signed(change: Callable[[bytes], object], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Verifier("s").open(change(Signer("s").sign(b"as it was")))


def test_a_job_that_starts_again_has_another_stream() -> None:
    """Pieces of a container that died and of the next one may come mixed; each stream keeps its own order."""
    verifier, before, after = Verifier("s"), Signer("s"), Signer("s")
    pieces = [before.sign(b"a"), after.sign(b"b"), before.sign(b"c"), after.sign(b"d")]
    assert [verifier.open(piece)[1] for piece in pieces] == [b"a", b"b", b"c", b"d"]
    with pytest.raises(ValueError, match="piece 0 came in the place of piece 2"):
        verifier.open(pieces[0])
