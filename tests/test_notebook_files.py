"""The files beside a notebook that runs elsewhere: what is sent, and what becomes of files that change meanwhile.

Both sides are the real ones; only the line between them is a call.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from orbit_lsp.runners.modal import payload
from orbit_lsp.runners.modal.notebook_files import NotebookFiles
from orbit_remote.common import brought_files, codec, limits
from orbit_remote.common import messages as c
from orbit_remote.common.content_store import ContentStore
from orbit_remote.common.requests import Manifest
from orbit_remote.modal_app.mirror import Mirror

MIB = 1 << 20


class Sides:
    """A notebook's folder `here`, and the folder `there` that is kept the same; what was said between them is counted."""

    def __init__(self, folder: Path) -> None:
        self.here, self.there = folder / "here", folder / "there"
        self.here.mkdir()
        self.there.mkdir()
        self._store = ContentStore(folder / "store", 64 * MIB)
        self._mirror = Mirror(self.there)
        self.files = NotebookFiles(str(self.here), MIB, "there", self._say)
        self.records: Counter[str] = Counter()
        self.contents = 0
        self.notices: list[str] = []

    async def sync(self) -> str:
        self.records.clear()
        self.contents = 0
        return await self.files.sync(self.notices.append)

    def texts(self) -> dict[str, str]:
        paths = [path for path in self.there.rglob("*") if path.is_file()]
        return {path.relative_to(self.there).as_posix(): path.read_text() for path in paths}

    def restore(self) -> None:
        """A cell has ended."""
        self._mirror.restore(self._store.read)

    async def _say(self, name: str, *parts: bytes) -> None:
        self.records[name] += 1
        if name == "content":
            for digest, content in zip(parts[::2], parts[1::2], strict=True):
                self._store.put(digest.decode(), codec.inflate(content, limits.TRAVELLING))
                self.contents += 1
        elif name == "bring":
            brought, remarks = brought_files.collect(self.there, [parts[0].decode()])
            answer = {"files": [asdict(each) for each in brought], "remarks": remarks}
            self.files.hear("brought", [json.dumps(answer).encode()])
        else:
            asked: Any = json.loads(parts[0])
            if missing := self._store.missing(Manifest(c.content_hash(b"here"), asked["files"])):
                self.files.hear("missing", [json.dumps(missing).encode()])
                return
            failed = self._mirror.take_over(
                asked["files"],
                whole=asked["whole"],
                gone=asked["gone"],
                read=self._store.read,
                times=asked["times"],
            )
            self.files.hear("synced", [json.dumps(failed).encode()])


@pytest.fixture
def sides(tmp_path: Path) -> Sides:
    return Sides(tmp_path)


async def test_only_what_has_changed_is_sent(sides: Sides) -> None:
    for number in range(50):
        (sides.here / f"{number}.py").write_text(str(number))
    assert (await sides.sync(), sides.contents) == ("", 50)
    assert (await sides.sync(), sides.records) == ("", Counter())
    (sides.here / "7.py").write_text("changed")
    (sides.here / "8.py").unlink()
    assert (await sides.sync(), sides.contents) == ("", 1)
    assert sides.texts() == {f"{n}.py": "changed" if n == 7 else str(n) for n in range(50) if n != 8}
    (sides.here / "7.py").rename(sides.here / "9.py")  # its content is there
    assert (await sides.sync(), sides.texts()["9.py"], "7.py" in sides.texts()) == ("", "changed", False)


@pytest.mark.parametrize(
    ("times", "answer"), [(1, ""), (9, "{here}/a.py changed while it was read")], ids=["once", "always"]
)
async def test_a_file_that_changes_while_it_is_sent(
    sides: Sides, monkeypatch: pytest.MonkeyPatch, times: int, answer: str
) -> None:
    """It is there whole, as it was at some moment, or the cell is not run."""
    file, reads, read = sides.here / "a.py", iter(range(99)), payload.read
    file.write_text("first")

    def changing(*arguments: Any) -> dict[str, bytes]:
        if (number := next(reads)) < times:
            file.write_text(f"changed {number}")
        return read(*arguments)

    monkeypatch.setattr(payload, "read", changing)
    assert await sides.sync() == answer.format(here=sides.here)
    assert sides.texts() == ({} if answer else {"a.py": "changed 0"})


async def test_what_is_no_file_or_leads_elsewhere_stays_here(sides: Sides) -> None:
    (sides.here / "a.py").write_text("a")
    os.mkfifo(sides.here / "pipe")
    (sides.here / "itself").symlink_to("itself")
    (sides.here / "around").symlink_to(sides.here)
    (sides.here / "there").symlink_to("back")
    (sides.here / "back").symlink_to("there")
    (sides.here / "out").symlink_to("/etc")
    assert await sides.sync() == ""
    assert sides.texts() == {"a.py": "a"}


async def test_a_folder_that_is_gone_removes_nothing_there(sides: Sides) -> None:
    """As one of a network drive that is not mounted."""
    (sides.here / "a.py").write_text("a")
    assert await sides.sync() == ""
    moved = sides.here.rename(sides.here.with_name("moved"))
    assert await sides.sync() == f"the notebook's folder {sides.here} is gone; make it again"
    assert sides.texts() == {"a.py": "a"}
    moved.rename(sides.here)
    assert await sides.sync() == ""


async def test_a_program_can_be_executed_there(sides: Sides) -> None:
    (sides.here / "build.sh").write_text("#!/bin/sh\n")
    (sides.here / "a.py").write_text("a")
    assert await sides.sync() == ""
    assert [os.access(sides.there / name, os.X_OK) for name in ("build.sh", "a.py")] == [True, False]


async def test_files_are_as_old_there_as_here(sides: Sides) -> None:
    for name, at in (("old.py", 1_000_000_000_123_456_789), ("sub/new.py", 1_700_000_000_000_000_001)):
        path = sides.here / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(name)
        os.utime(path, ns=(at, at))
    assert await sides.sync() == ""
    (sides.here / "old.py").write_text("newer")
    assert await sides.sync() == ""
    for name in ("old.py", "sub/new.py"):
        assert (sides.there / name).stat().st_mtime_ns == (sides.here / name).stat().st_mtime_ns


async def test_what_a_cell_removes_there_comes_back_and_what_it_writes_stays(sides: Sides) -> None:
    for name in ("a.py", "sub/b.py", "c.txt"):
        (sides.here / name).parent.mkdir(exist_ok=True)
        (sides.here / name).write_text(name)
    assert await sides.sync() == ""
    (sides.there / "a.py").unlink()
    (sides.there / "sub" / "b.py").unlink()
    (sides.there / "sub").rmdir()
    (sides.there / "c.txt").write_text("by the cell")
    (sides.there / "made.txt").write_text("by the cell")
    sides.restore()
    kept = {"c.txt": "by the cell", "made.txt": "by the cell"}
    assert sides.texts() == {"a.py": "a.py", "sub/b.py": "sub/b.py", **kept}
    (sides.here / "a.py").unlink()
    assert await sides.sync() == ""
    sides.restore()
    assert sides.texts() == {"sub/b.py": "sub/b.py", **kept}


@pytest.mark.parametrize(
    "name", ["aux.txt", "a:b.txt", "dot.", "é ☃.txt", 'quote".txt', "back\\slash.txt", "new\nline.txt"]
)
async def test_names_that_other_systems_do_not_have(sides: Sides, name: str) -> None:
    """Each file is there, or the cell names the file that is not."""
    (sides.here / name).write_text("content")
    (sides.here / "a.py").write_text("a")
    why = await sides.sync()
    assert sides.texts().get("a.py") == "a"
    assert sides.texts().get(name) == "content" or name[:4] in why + "".join(sides.notices)


async def test_what_is_edited_here_while_a_cell_runs_is_not_overwritten(sides: Sides) -> None:
    for name in ("edited.py", "written.txt"):
        (sides.here / name).write_text("first")
    assert await sides.sync() == ""
    (sides.here / "edited.py").write_text("edited meanwhile")
    for number in range(2):  # by a cell that brings more than once
        (sides.there / "written.txt").write_text(f"by the cell {number}")
        (sides.there / "new.txt").write_text("by the cell")
        assert (await sides.files.bring("*")).splitlines() == [
            *(["new.txt: 11 B"] if number == 0 else []),
            "written.txt: 13 B",
            "edited.py is not brought: it was edited here while the cell ran",
            *(["new.txt is not brought: it was edited here while the cell ran"] if number else []),
        ]
        assert (sides.here / "edited.py").read_text() == "edited meanwhile"
        assert (sides.here / "written.txt").read_text() == f"by the cell {number}"
        (sides.here / "new.txt").write_text("edited since it was brought")
    assert await sides.sync() == ""
    assert sides.texts()["edited.py"] == "edited meanwhile"
    (sides.there / "edited.py").write_text("by the cell")
    assert await sides.files.bring("edited.py") == "edited.py: 11 B"
