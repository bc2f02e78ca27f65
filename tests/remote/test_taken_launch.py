"""What the recorder wrote of a launch, read as data that the program could have written too; and which launch is asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from orbit_remote.common.requests import Capture
from orbit_remote.recording import taken_launch
from orbit_remote.recording.taken_launch import NotTakenError

X, Y = 0x7F0000000000, 0x7F0000100000


def record(**changed: Any) -> dict[str, Any]:
    """`saxpy(n=3, a=2.5, x, y)`, which changed y."""
    arguments = (
        (3).to_bytes(4, "little").hex()
        + "00002040"
        + X.to_bytes(8, "little").hex()
        + Y.to_bytes(8, "little").hex()
    )
    ranges = [
        {"base": X, "begin": X, "bytes": 12, "kind": "device", "changed": False},
        {"base": Y, "begin": Y, "bytes": 12, "kind": "device", "changed": True},
    ]
    whole: dict[str, Any] = {
        "orbit": 1, "why": "", "symbol": "_Z5saxpyifPKfPf", "number": 2, "shared": 0, "cooperative": False, "grid": [1, 1, 1],
        "block": [256, 1, 1], "parameters": [[0, 4], [4, 4], [8, 8], [16, 8]], "bytes": arguments,
        "pointers": [[2, 0, 0], [3, 0, 1]], "ranges": ranges, "variables": {},
    }  # fmt: skip
    return whole | changed


def written(folder: Path, content: dict[str, Any] | str) -> Path:
    (folder / "launch.json").write_text(content if isinstance(content, str) else json.dumps(content))
    (folder / "before-0").write_bytes(b"x" * 12)
    (folder / "before-1").write_bytes(b"y" * 12)
    (folder / "after-1").write_bytes(b"z" * 12)
    return folder


def test_a_record_has_the_arguments_and_the_memory_before_and_after(tmp_path: Path) -> None:
    launch = taken_launch.read(written(tmp_path, record()))
    assert launch
    assert (launch.symbol, launch.number, launch.argument(0)) == ("_Z5saxpyifPKfPf", 2, b"\3\0\0\0")
    assert [launch.memory(0), launch.memory(0, after=True)] == [
        b"x" * 12
    ] * 2  # it was not changed: there is no other file
    assert [launch.memory(1), launch.memory(1, after=True)] == [b"y" * 12, b"z" * 12]


ONE = record()["ranges"][:1]


@pytest.mark.parametrize(
    "damaged",
    [
        "", "[]", '{"why": ""}', json.dumps(record())[:-40],
        record(bytes="zz"), record(bytes="00"), record(parameters=[[0, 4], [4, 400]]), record(parameters=[[0, -4]]),
        record(pointers=[[2, 0, 7]]), record(pointers=[[9, 0, 0]]), record(pointers=[[2, 4, 0]]), record(variables={"c": 5}),
        record(grid=[0, 1, 1]), record(grid=[1, 1]), record(block=[True, 1, 1]), record(symbol="a b"), record(symbol="../x"),
        record(ranges=[ONE[0] | {"bytes": 0}] * 2), record(ranges=[ONE[0] | {"bytes": 5 << 30}] * 2),
        record(ranges=[ONE[0] | {"begin": 0}] * 2), record(ranges=[ONE[0] | {"bytes": 3 << 30}] * 2),
    ],
)  # fmt: skip
def test_a_record_that_is_not_whole_is_damaged(tmp_path: Path, damaged: dict[str, Any] | str) -> None:
    with pytest.raises(NotTakenError, match="is damaged"):
        taken_launch.read(written(tmp_path, damaged))


def test_memory_of_another_size_or_behind_a_link_is_damaged(tmp_path: Path) -> None:
    launch = taken_launch.read(written(tmp_path, record()))
    assert launch
    (tmp_path / "before-0").write_bytes(b"x" * 13)
    (tmp_path / "after-1").unlink()
    (tmp_path / "secret").write_bytes(b"s" * 12)
    (tmp_path / "before-1").unlink()
    (tmp_path / "before-1").symlink_to("secret")
    for at, after in ((0, False), (1, True), (1, False)):
        with pytest.raises(NotTakenError, match="is damaged"):
            launch.memory(at, after=after)


def test_a_record_that_is_a_link_is_none(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text(json.dumps(record()))
    (tmp_path / "launch.json").symlink_to("elsewhere")
    assert taken_launch.read(tmp_path) is None
    (tmp_path / "claimed").touch()
    with pytest.raises(NotTakenError, match="ended before the GPU had finished"):
        taken_launch.read(tmp_path)


@pytest.mark.parametrize(
    ("why", "sentence"),
    [
        ("graph", "it is launched inside a CUDA graph"),
        ("large", "its arguments lie in more than 4 GiB of memory"),
        ("peer", "one of its arguments is memory of another GPU"),
        ("<b>", "its arguments could not be copied"),
    ],
)
def test_why_nothing_was_taken_is_a_sentence_of_ours(tmp_path: Path, why: str, sentence: str) -> None:
    with pytest.raises(NotTakenError, match=sentence):
        taken_launch.read(written(tmp_path, record(why=why)))


def test_what_is_asked_for_is_said_in_lines(tmp_path: Path) -> None:
    text = "__constant__ float coef[3];\nstatic __device__ int total = 0;\n__device__ int f(int x) { return x; }\n"
    taken_launch.ask(tmp_path, "k", text, Capture(None, (4, 2), {}, (256, 1, 1), "_Z1kPf"))
    assert (tmp_path / "wanted").read_text() == (
        "name k\nmost 4294967296\nsymbol _Z1kPf\ngrid 4 2 1\nblock 256 1 1\n"
        "variable coef\nvariable _ZL4coef\nvariable _ZN12_GLOBAL__N_14coefE\n"
        "variable total\nvariable _ZL5total\nvariable _ZN12_GLOBAL__N_15totalE\n"
    )
