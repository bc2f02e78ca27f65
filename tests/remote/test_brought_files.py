"""Files that a program leaves and that its author gets back: which ones, and that no link leads elsewhere."""

from __future__ import annotations

import base64
import os
import resource
import zlib
from dataclasses import replace
from pathlib import Path

import pytest

from orbit_remote.common import brought_files, limits
from orbit_remote.common.messages import Brought

BOMB = bytes(100 << 20)


def made(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    return folder


def brought(path: str, content: bytes = b"x", size: int | None = None) -> Brought:
    packed = base64.b64encode(zlib.compress(content)).decode()
    return Brought(path, len(content) if size is None else size, packed)


def check(folder: Path, pattern: str, expected: str, *remarks: str) -> None:
    files, refused = brought_files.collect(folder, [pattern])
    assert (" ".join(file.path for file in files), refused) == (expected, remarks)


NAMES = ("a.txt", "out/b.txt", "out/deep/c.bin", "out/.key", ".git/hooks/x", "other/out/d.txt")


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("out/**", "out/b.txt out/deep/c.bin"),
        ("out", "out/b.txt out/deep/c.bin"),
        ("./out/*", "out/b.txt out/deep/c.bin"),
        ("**/*.txt", "a.txt other/out/d.txt out/b.txt"),
        ("**/**", "a.txt other/out/d.txt out/b.txt out/deep/c.bin"),
        ("*.txt", "a.txt"),
        ("[ab].txt", "a.txt"),
        ("out/.key", "out/.key"),
        (".git/**", ".git/hooks/x"),
    ],
)
def test_a_pattern_is_matched_part_by_part(tmp_path: Path, pattern: str, expected: str) -> None:
    check(made(tmp_path, *NAMES), pattern, expected)


@pytest.mark.parametrize("pattern", ["../out", "/etc/passwd", "out/../..", "", ".", "C:/x", "\\x"])
def test_a_pattern_leads_nowhere_else(pattern: str) -> None:
    with pytest.raises(ValueError, match="is not a pattern of files below the folder"):
        brought_files.parts_of(pattern)


def test_links_and_what_is_no_file_stay_behind(tmp_path: Path) -> None:
    folder = made(tmp_path / "folder", "out/a")
    (folder / "out" / "link").symlink_to("/etc/passwd")
    (folder / "out" / "folder").symlink_to("/etc")
    os.mkfifo(folder / "out" / "fifo")
    check(folder, "out/**", "out/a")
    check(folder, "none/*", "", "no file matches --bring none/*")
    (tmp_path / "other").symlink_to(folder)
    check(tmp_path / "other", "**", "", "no file matches --bring **")
    check(tmp_path / "gone", "**", "", "no file matches --bring **")


def test_files_and_bytes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(tmp_path, "a", "b", "cc")
    monkeypatch.setattr(limits, "BROUGHT_FILES", replace(limits.BROUGHT_FILES, most=2))
    check(tmp_path, "**", "a b", "more than 2 items match; the rest is not brought back")
    monkeypatch.setattr(limits, "BROUGHT", replace(limits.BROUGHT, most=1))
    check(tmp_path, "**", "a", "b and what follows is not brought back: --bring brings at most 1 bytes")
    check(
        tmp_path,
        "cc",
        "",
        "cc is not brought back: it is larger than 1 bytes, the limit for " + limits.BROUGHT.what,
    )


def test_what_was_brought_is_written(tmp_path: Path) -> None:
    folder = made(tmp_path / "there", "out/a", "out/deep/b")
    files, _ = brought_files.collect(folder, ["out/**"])
    made(tmp_path / "here", "out/a").joinpath("out/a").write_text("older and longer")
    written, remarks = brought_files.write(tmp_path / "here", files, ["out/**"])
    assert (written, remarks) == ((Brought("out/a", 5), Brought("out/deep/b", 10)), ())
    assert (tmp_path / "here" / "out" / "a").read_text() == "out/a"
    assert (tmp_path / "here" / "out" / "deep" / "b").read_text() == "out/deep/b"


@pytest.mark.parametrize(
    ("file", "why"),
    [
        (brought("../out/x"), "nobody asked for it"),
        (brought("/out/x"), "nobody asked for it"),
        (brought("out/../../x"), "nobody asked for it"),
        (brought("out\\..\\x"), "nobody asked for it"),
        (brought(".git/hooks/x"), "nobody asked for it"),
        (brought("out/.x"), "nobody asked for it"),
        (brought("out/link/x"), "link is not a folder, and nothing is written through a link"),
        (brought("out/file/x"), "file is not a folder, and nothing is written through a link"),
        (brought("out/folder"), "there is a folder of that name"),
        (brought("out/x", bytes(1 << 20), size=10), "it is not what its size says"),
        (brought("out/x", b"x", size=10), "it is not what its size says"),
        (Brought("out/x", 1, "?"), "Only base64 data is allowed"),
        (Brought("out/x", 9, "eHh4eHh4"), "Error -3 while decompressing data: incorrect header check"),
    ],
)
def test_what_comes_from_elsewhere_is_checked(tmp_path: Path, file: Brought, why: str) -> None:
    here = made(tmp_path / "here", "out/file", "out/folder/y")
    (tmp_path / "elsewhere").mkdir()
    (here / "out" / "link").symlink_to(tmp_path / "elsewhere")
    before = sorted(tmp_path.rglob("*"))
    written, (remark,) = brought_files.write(here, [file], ["out/**"])
    assert written == ()
    assert remark.endswith(f" is not written: {why}")
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("size", [-1, -(1 << 63), 0, 1])
def test_a_file_that_unpacks_to_more_than_its_size_is_not_unpacked(tmp_path: Path, size: int) -> None:
    file = brought("a", BOMB, size)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    written, (remark,) = brought_files.write(tmp_path, [file], ["a"])
    assert (written, remark) == ((), "a is not written: it is not what its size says")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50 << 10  # KiB


def test_a_link_in_the_place_of_a_file_is_replaced_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("kept")
    (tmp_path / "x").symlink_to(tmp_path / "elsewhere")
    brought_files.write(tmp_path, [brought("x", b"new")], ["x"])
    assert ((tmp_path / "x").read_text(), (tmp_path / "elsewhere").read_text()) == ("new", "kept")
