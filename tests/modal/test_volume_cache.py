"""Builds and Triton's cache on the volume: what one container leaves there, another finds."""

from __future__ import annotations

import os
import shutil
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
import triton

from orbit_remote.common import messages as c
from orbit_remote.common.requests import Job
from orbit_remote.modal_app.volume_cache import Kind, VolumeCache
from tests.modal.conftest import SAXPY, Author
from tests.modal_loopback.loopback import Loopback

FILE = "f" * 32


class There:
    """One container's caches beside the volume that it shares."""

    def __init__(self, folder: Path, name: str, **bounds: int) -> None:
        self.caches = folder / name
        for kind in ("builds", "triton"):
            (self.caches / kind).mkdir(parents=True)
        self.kept = VolumeCache(folder / "volume", self.caches, None, **bounds)

    def made(self, *names: str, content: bytes = b"machine code") -> There:
        for name in names:
            path = self.caches / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)
        return self

    def keep(self, kind: Kind = "builds") -> None:
        self.kept.keep(FILE, kind, time.time() - 60)

    def has(self, kind: Kind = "builds", *, again: bool = False) -> dict[str, bytes]:
        self.kept.bring(FILE, kind, again=again)
        paths = (path for path in (self.caches / kind).rglob("*") if path.is_file())
        return {str(path.relative_to(self.caches / kind)): path.read_bytes() for path in paths}


def test_another_container_finds_what_one_made(tmp_path: Path) -> None:
    There(tmp_path, "a").made("builds/1.build", "builds/2.paths").keep()
    assert There(tmp_path, "b").has() == {"1.build": b"machine code", "2.paths": b"machine code"}


def test_a_folder_of_triton_s_comes_whole_and_without_its_rest(tmp_path: Path) -> None:
    there = There(tmp_path, "a").made("triton/ABC/add.cubin", "triton/ABC/__grp__add.json")
    there.made("triton/ABC/lock", content=b"")
    (there.caches / "triton/ABC/tmp.pid_1").mkdir()
    there.keep("triton")
    assert set(There(tmp_path, "b").has("triton")) == {"ABC/add.cubin", "ABC/__grp__add.json"}


def test_a_container_that_is_there_already_is_told_to_look_again(tmp_path: Path) -> None:
    early = There(tmp_path, "a")
    assert early.has() == {}
    There(tmp_path, "b").made("builds/1.build").keep()
    assert early.has() == {}
    assert set(early.has(again=True)) == {"1.build"}


@pytest.mark.parametrize("harm", ["cut", "flipped", "empty", "foreign"])
def test_what_is_not_whole_is_a_miss_and_goes(tmp_path: Path, harm: str) -> None:
    There(tmp_path, "a").made("builds/1.build").keep()
    (entry,) = (tmp_path / "volume/builds" / FILE).iterdir()
    content = entry.read_bytes()
    flipped = content[:60] + bytes([content[60] ^ 1]) + content[61:]
    entry.write_bytes({"cut": content[:-1], "flipped": flipped, "empty": b"", "foreign": b"x" * 99}[harm])
    other = There(tmp_path, "b")
    assert other.has() == {}
    assert not entry.exists()
    other.made("builds/1.build").keep()  # built again, kept again
    assert set(There(tmp_path, "c").has()) == {"1.build"}


def test_a_name_that_leads_out_of_the_cache_is_a_miss(tmp_path: Path) -> None:
    from orbit_remote.modal_app.volume_cache import _pack

    folder = tmp_path / "volume/triton" / FILE
    folder.mkdir(parents=True)
    (folder / "ABC").write_bytes(_pack({"../../escaped": b"x"}))
    assert There(tmp_path, "a").has("triton") == {}
    assert not list(tmp_path.rglob("escaped*"))


def test_a_link_that_a_job_put_in_place_of_its_cache_is_not_followed(tmp_path: Path) -> None:
    There(tmp_path, "a").made("builds/1.build").keep()
    other = There(tmp_path, "b")
    (tmp_path / "precious").mkdir()
    (other.caches / "builds").rmdir()
    (other.caches / "builds").symlink_to(tmp_path / "precious")
    other.kept.bring(FILE, "builds")
    assert not list((tmp_path / "precious").iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of two users")
def test_what_is_not_the_worker_s_own_does_not_leave_its_container(tmp_path: Path) -> None:
    there = There(tmp_path, "a").made("builds/1.build", "builds/secret")
    there.kept = VolumeCache(tmp_path / "volume", there.caches, 65534)
    os.chown(there.caches / "builds/1.build", 65534, 65534)  # the other is root's, linked to by a job
    there.keep()
    other = There(tmp_path, "b")
    other.kept = VolumeCache(tmp_path / "volume", other.caches, 65534)
    assert set(other.has()) == {"1.build"}
    assert (other.caches / "builds/1.build").stat().st_uid == 65534


def test_it_is_bounded_in_entries_of_a_file_and_in_bytes(tmp_path: Path) -> None:
    there = There(tmp_path, "a", limit=3000)
    for number in range(20):
        path = there.caches / "builds" / f"{number:02}.build"
        path.write_bytes(os.urandom(1000))
        there.keep()
        kept = tmp_path / "volume/builds" / FILE / path.name
        os.utime(kept, (number, number))
    names = sorted(path.name for path in kept.parent.iterdir())
    assert names == [f"{number:02}.build" for number in range(4, 20)]
    There(tmp_path, "b", limit=3000).made("builds/x.build").keep()  # another container's first look
    assert sum(path.stat().st_size for path in kept.parent.iterdir()) <= 3000


def test_several_write_and_read_at_once(tmp_path: Path) -> None:
    """Whatever a reader finds is whole, and in the end everything is there."""
    names = [f"builds/{number}.build" for number in range(8)]
    content = os.urandom(200_000)
    writers = [There(tmp_path, f"w{number}").made(*names, content=content) for number in range(4)]
    reader, seen = There(tmp_path, "r"), list[dict[str, bytes]]()
    together = threading.Barrier(len(writers) + 1)

    def write(there: There) -> None:
        together.wait()
        there.keep()

    threads = [threading.Thread(target=write, args=(writer,)) for writer in writers]
    for thread in threads:
        thread.start()
    together.wait()
    while any(thread.is_alive() for thread in threads):
        seen.append(reader.has(again=True))
    for result in (*seen, reader.has(again=True)):
        assert set(result.values()) <= {content}
    assert len(reader.has()) == 8
    assert not list((tmp_path / "volume").rglob("*.tmp"))


# -- between containers, each with Modal's own entrypoint ---------------------------------------------


def entries(loopback: Loopback, kind: str) -> list[Path]:
    return [path for path in (loopback.folder / "volumes").glob(f"*/{kind}/*/*") if path.is_file()]


def next_container(loopback: Loopback, cache: Path) -> None:
    """End what there is; the next container has this cache, which is empty."""
    loopback.idle_out()
    loopback.do(lambda world: world.container_env.update({"ORBIT_CACHE": str(cache)}))


async def is_cached(author: Author, job: Job) -> bool:
    (built,) = [event for event in await author.events(job) if isinstance(event, c.Built)]
    assert built.resources
    return built.cached


@pytest.mark.slow
async def test_a_build_outlives_its_container(modal, author, tmp_path: Path) -> None:
    item: Author = author()
    assert not await is_cached(item, item.job("compile"))
    next_container(modal, tmp_path / "second")
    assert await is_cached(item, item.job("compile"))
    next_container(modal, tmp_path / "third")
    (item.folder / "scale.cuh").write_text("#define SCALE 3.0f\n")  # a header that went into it
    assert not await is_cached(item, item.job("compile"))
    assert len(modal.world.but_for("hello")) == 3


@pytest.mark.slow
async def test_a_damaged_build_is_built_again(modal, author, tmp_path: Path) -> None:
    item: Author = author()
    assert not await is_cached(item, item.job("compile"))
    for path in entries(modal, "builds"):
        path.write_bytes(path.read_bytes()[:-3])
    next_container(modal, tmp_path / "second")
    assert not await is_cached(item, item.job("compile"))
    next_container(modal, tmp_path / "third")
    assert await is_cached(item, item.job("compile"))


@pytest.mark.slow
async def test_a_volume_that_does_not_work_costs_no_run(modal, author, tmp_path: Path) -> None:
    from grpclib import Status

    modal.fail("VolumeCommit", Status.FAILED_PRECONDITION, "the volume is busy", times=None)
    item: Author = author(compiled=False)
    events = await item.events(item.job(text=SAXPY))
    assert [event.complete for event in events if isinstance(event, c.Built)] == [True]
    assert "the volume could not be synchronised" in "".join(line.text for line in modal.world.logs)


ADD = """\
import triton
import triton.language as tl


@triton.jit
def add(x: "*fp32", y: "*fp32", n: "i32", BLOCK: tl.constexpr = 128):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, at < n) + 1, at < n)
"""


@pytest.mark.slow
async def test_what_triton_compiled_outlives_its_container(modal, author, tmp_path: Path) -> None:
    """The second container's ptxas says its version and assembles nothing: the kernel comes from the volume. What only an
    assembler's log says is not known there.
    """
    ptxas = Path(triton.__file__).parent / "backends/nvidia/bin/ptxas"
    idle = tmp_path / "ptxas"
    idle.write_text(f'#!/bin/sh\ncase "$*" in *--version*) exec "{ptxas}" "$@";; esac\nexit 1\n')
    idle.chmod(0o755)
    item: Author = author()
    job = item.job("compile", path="add.py", text=ADD, language="triton")
    first = await item.finished(job)
    assert first.outcome == "ok", first.failure
    assert [resources.name for resources in first.resources] == ["add"]
    modal.idle_out()
    shutil.rmtree(tmp_path / "orbit/cache")  # in each container it is the same path, which Triton notes
    modal.do(lambda world: world.container_env.update({"TRITON_PTXAS_PATH": str(idle)}))
    second = await item.finished(job)
    assert second.outcome == "ok", second.failure
    (kernel,) = first.resources
    of_the_log = dict.fromkeys(("registers", "stack", "spill_stores", "spill_loads", "barriers"))
    assert second.resources == (replace(kernel, **of_the_log),)
    assert kernel.registers
    other = await item.finished(replace(job, text=ADD.replace("+", "-")))  # which it has to assemble
    assert other.resources == ()
