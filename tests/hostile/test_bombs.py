"""What unpacks to more than the memory: messages of a container, caches, profiles."""

from __future__ import annotations

import base64
import time
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from orbit_lsp.profile import report_store
from orbit_lsp.runners.events import EventLines
from orbit_remote.common import codec, limits
from orbit_remote.common import messages as c
from orbit_remote.modal_app import image_spec, volume_cache

FEW = replace(limits.EVENTS, most=1_000)


@pytest.mark.parametrize(
    ("packed", "why"),
    [
        (zlib.compress(bytes(1_001)), "it is larger than 1,000 bytes"),
        (zlib.compress(bytes(1_000))[:-1], "its end is missing"),
        (b"x", "it is damaged"),
        (b"", "its end is missing"),
        (None, "a packed value is not one"),
        ("text", "a packed value is not one"),
    ],
)
def test_what_is_not_unpacked(packed: object, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        codec.inflate(packed, FEW)


def test_what_is_as_large_as_may_be_is_unpacked() -> None:
    assert codec.inflate(zlib.compress(bytes(1_000)), FEW) == bytes(1_000)


def test_a_line_of_events_without_an_end_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "EVENTS", FEW)
    lines = EventLines()
    assert [lines.feed(piece) for piece in (b"a", b"b\n\nc\nd", b"e\n", b"x" * 1_000)] == [
        [],
        [b"ab", b"c"],
        [b"de"],
        [],
    ]
    with pytest.raises(ValueError, match="larger than 1,000 bytes"):
        lines.feed(b"x")


def test_a_long_line_of_events_is_joined_once() -> None:
    lines, piece = EventLines(), bytes(1 << 16)
    began = time.process_time()
    for _ in range(3_000):
        lines.feed(piece)
    assert [len(line) for line in lines.feed(b"\n")] == [3_000 << 16]
    assert time.process_time() - began < 10  # joined at each piece: a minute


def _answer(tmp_path: Path) -> None:
    image_spec.unpack(image_spec.pack({"finished": "x" * 2_000}))


def _entry(tmp_path: Path) -> None:
    content = volume_cache._pack({"a": bytes(2_000)})  # pyright: ignore[reportPrivateUsage]
    if volume_cache._unpack(content) is None:  # pyright: ignore[reportPrivateUsage]
        raise ValueError("it is larger, and a miss")


def _dumps(tmp_path: Path) -> None:
    text = base64.b64encode(zlib.compress(bytes(600))).decode()
    dumps = tuple(c.Dump("k", "k", "ptx", number, text=text) for number in range(4))
    try:
        report_store.keep(
            tmp_path,
            "/src/k.cu",
            "k",
            "",
            c.Finished("r1", "ok", dumps=dumps),
            detail="click",
            reports=5,
            mib=5,
        )
    except report_store.NotKeptError as error:
        raise ValueError(str(error)) from None


@pytest.mark.parametrize("unpacked", [_answer, _entry, _dumps])
def test_an_answer_a_cache_and_the_dumps_of_a_profile_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unpacked: Callable[[Path], None]
) -> None:
    for name in ("EVENTS", "BUILD"):
        monkeypatch.setattr(limits, name, replace(getattr(limits, name), most=1_000))
    monkeypatch.setattr(report_store, "MOST_BYTES", 1_000)
    with pytest.raises(ValueError, match="larger"):
        unpacked(tmp_path)
