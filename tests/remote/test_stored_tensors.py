"""Files of captured tensors: what a capture writes is read again, and what somebody else wrote is believed in nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from orbit_remote.spec import stored_tensors
from orbit_remote.spec.stored_tensors import StoredTensor

NAME = "k.orbit.safetensors"
ONE = StoredTensor("int32", (3,), bytes(range(12)))
TWO = StoredTensor("float16", (2, 2), bytes(8))


def said(folder: Path, key: str = "k.x", name: str = NAME) -> str:
    """The tensor, or the sentence that says why there is none."""
    try:
        found = stored_tensors.tensor(str(folder), name, key)
    except ValueError as error:
        return str(error)
    return f"{found.dtype} {found.shape} {len(found.data)}"


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(stored_tensors.written({"k.x": ONE, "k.y": TWO}, {"k": "hash"}))
    assert (said(tmp_path), said(tmp_path, "k.y")) == ("int32 (3,) 12", "float16 (2, 2) 8")
    assert stored_tensors.opened(str(tmp_path), NAME).notes == {"k": "hash"}
    assert said(tmp_path, "k.z") == f"{NAME} has no tensor 'k.z'; it has: k.x, k.y"


def test_a_recapture_replaces_the_tensors_of_its_kernel_alone(tmp_path: Path) -> None:
    old = tmp_path / NAME
    old.write_bytes(stored_tensors.written({"k.x": ONE, "k2.x": TWO, "k.old": TWO}, {"k": "1", "k2": "2"}))
    merged = stored_tensors.of_bytes(
        stored_tensors.merged(old, stored_tensors.written({"k.x": TWO}, {"k": "3"}), "k")
    )
    assert {key: merged.tensor(key) for key in merged.entries} == {"k.x": TWO, "k2.x": TWO}
    assert merged.notes == {"k": "3", "k2": "2"}


def test_a_damaged_file_is_written_anew(tmp_path: Path) -> None:
    new = stored_tensors.written({"k.x": ONE}, {})
    for content in (b"", b"no tensors", new[:20]):
        (tmp_path / NAME).write_bytes(content)
        assert stored_tensors.merged(tmp_path / NAME, new, "k") == new
    assert stored_tensors.merged(tmp_path / "none.orbit.safetensors", new, "k") == new


def headed(header: object, body: bytes = bytes(12)) -> bytes:
    text = (header if isinstance(header, str) else json.dumps(header)).encode()
    return len(text).to_bytes(8, "little") + text + body


def entry(dtype: object = "I32", shape: object = (3,), offsets: object = (0, 12)) -> bytes:
    return headed({"k.x": {"dtype": dtype, "shape": shape, "data_offsets": offsets}})


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "is no safetensors file: its header is longer than the file"),
        (b"\xff" * 8 + b"{}", "is no safetensors file: its header is longer than the file"),
        ((1 << 20).to_bytes(8, "little") + b"{}", "is no safetensors file: its header is longer than the file"),
        (headed("[" * 100_000), "is no safetensors file: "),
        (headed("[1]"), "is no safetensors file: its header is no JSON object"),
        (headed({"k.x": 3}), "is no safetensors file: its header and its bytes do not agree"),
        (entry(dtype="C64"), "has the element type 'C64', which is not supported"),
        (entry(shape=[1 << 62, 1 << 62, 1 << 62]), "is no safetensors file: its header and its bytes do not agree"),
        (entry(shape=[-3]), "is no safetensors file: its header and its bytes do not agree"),
        (entry(shape=[3.0]), "is no safetensors file: its header and its bytes do not agree"),
        (entry(offsets=[4, 16]), "is no safetensors file: its header and its bytes do not agree"),
        (entry(offsets=[-4, 8]), "is no safetensors file: its header and its bytes do not agree"),
        (entry()[:-1], "is no safetensors file: its header and its bytes do not agree"),
    ],
)  # fmt: skip
def test_a_hostile_file_is_a_sentence(content: bytes, why: str, tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(content)
    assert said(tmp_path).startswith(f"{NAME} {why}")


def test_a_link_a_pipe_and_a_folder_are_not_opened(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(stored_tensors.written({"k.x": ONE}, {}))
    (tmp_path / NAME).symlink_to(tmp_path / "other")
    os.mkfifo(tmp_path / "pipe.orbit.safetensors")
    (tmp_path / "folder.orbit.safetensors").mkdir()
    for name in (NAME, "pipe.orbit.safetensors", "folder.orbit.safetensors"):
        assert "cannot be read" in said(tmp_path, name=name)
    assert said(tmp_path, name="gone.orbit.safetensors").endswith(
        "is not beside this file: capture the launch again"
    )


@pytest.mark.parametrize(
    "name", ["../k.orbit.safetensors", "/k.orbit.safetensors", ".orbit.safetensors", "k.pt", 3, None]
)
def test_only_a_name_in_the_folder_is_one(name: object) -> None:
    assert not stored_tensors.is_name(name)
