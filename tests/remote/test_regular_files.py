"""Files that are no files: each is refused at once, with the rest of a sentence."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from orbit_remote.common import regular_files
from orbit_remote.common.limits import Limit
from orbit_remote.common.messages import content_hash

TEN = Limit("a test", 10, "It is refused.")


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as item:
        item.bind(str(path))


def _holes(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(11 << 30)


NO_FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a folder": (Path.mkdir, "it is a folder, not a regular file"),
    "a FIFO that nobody writes to": (os.mkfifo, "it is a FIFO, not a regular file"),
    "a socket": (_socket, "it is a socket, not a regular file"),
    "a link to zeros without end": (
        lambda p: p.symlink_to("/dev/zero"),
        "it is a device, not a regular file",
    ),
    "a link to the terminal": (lambda p: p.symlink_to("/dev/tty"), "it is a device, not a regular file"),
    "a link to itself": (lambda p: p.symlink_to(p), "Too many levels of symbolic links"),
    "a link to nothing": (lambda p: p.symlink_to("gone"), "No such file or directory"),
    "11 bytes where 10 may be": (
        lambda p: p.write_bytes(b"x" * 11),
        "it is larger than 10 bytes, the limit for a test",
    ),
    "11 GiB of holes": (_holes, "it is larger than 10 bytes, the limit for a test"),
}


@pytest.mark.parametrize("name", NO_FILES)
def test_what_is_no_regular_file_of_that_size_is_refused_at_once(name: str, tmp_path: Path) -> None:
    make, sentence = NO_FILES[name]
    path = tmp_path / "k.cu"
    make(path)
    with pytest.raises(OSError, match=r".") as caught:
        regular_files.read(path, TEN)
    assert caught.value.strerror == sentence
    if not name.startswith("11"):
        assert regular_files.file_hash(path) is None


def test_a_file_is_read_to_the_limit_and_its_head_without_one(tmp_path: Path) -> None:
    path = tmp_path / "k.cu"
    path.write_bytes(b"\xef\xbb\xbf1234567")
    assert regular_files.read(path, TEN) == b"\xef\xbb\xbf1234567"
    assert regular_files.text(path, TEN) == "1234567"
    assert regular_files.file_hash(path) == content_hash(path.read_bytes())
    path.write_bytes(b"0123456789more")
    assert regular_files.head(path, TEN) == b"0123456789"


def test_a_file_without_a_size_is_read_too() -> None:
    assert b"Name:" in regular_files.read("/proc/self/status", Limit("a status", 1 << 20, ""))


def test_within_a_folder_no_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("x")
    (tmp_path / "link").symlink_to("real")
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        assert regular_files.read("real", TEN, within=folder) == b"x"
        with pytest.raises(OSError, match="not a regular file"):
            regular_files.read("link", TEN, within=folder)
    finally:
        os.close(folder)
