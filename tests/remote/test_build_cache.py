"""The cache of builds: what is a hit, what a miss, and what damage, company and a full disk do to it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from orbit_remote.common.messages import content_hash
from orbit_remote.common.regular_files import file_hash
from orbit_remote.toolchain.build_cache import Cache, CachedBuild
from tests.remote.nvcc_check import built, needs_nvcc


def entry(files: dict[str, str], artifact: bytes = b"program") -> CachedBuild:
    return CachedBuild({"problems": [], "text": "é\n"}, artifact, files)


def hashed(*paths: Path) -> dict[str, str]:
    return {str(path): file_hash(str(path)) or "" for path in paths}


@pytest.fixture
def header(tmp_path):
    path = tmp_path / "h.cuh"
    path.write_text("one")
    return path


def test_what_was_stored_comes_back(tmp_path, header):
    cache = Cache(tmp_path / "cache")
    assert cache.load("key") is None
    cache.store("key", entry(hashed(header)))
    assert cache.load("key") == entry(hashed(header))
    assert cache.load("other") is None


def test_an_edited_header_is_a_miss_and_the_edit_undone_a_hit(tmp_path, header):
    cache = Cache(tmp_path / "cache")
    cache.store("key", entry(hashed(header), b"first"))
    header.write_text("two")
    assert cache.load("key") is None
    cache.store("key", entry(hashed(header), b"second"))
    header.write_text("one")
    result = cache.load("key")
    assert result is not None
    assert result.artifact == b"first"
    header.unlink()
    assert cache.load("key") is None


@pytest.mark.parametrize("keep", [0, 5, 20, 60, -1])
def test_a_truncated_entry_is_a_miss_and_can_be_replaced(keep, tmp_path, header):
    cache = Cache(tmp_path / "cache")
    cache.store("key", entry(hashed(header)))
    for path in (tmp_path / "cache").iterdir():
        path.write_bytes(path.read_bytes()[:keep])
    assert cache.load("key") is None
    cache.store("key", entry(hashed(header)))
    assert cache.load("key") == entry(hashed(header))


def test_a_changed_byte_is_a_miss(tmp_path, header):
    cache = Cache(tmp_path / "cache")
    cache.store("key", entry(hashed(header)))
    for path in (tmp_path / "cache").glob("*.build"):
        content = bytearray(path.read_bytes())
        content[-3] ^= 1
        path.write_bytes(content)
    assert cache.load("key") is None


def test_stays_under_its_limit_and_forgets_what_was_not_used(tmp_path, header):
    cache = Cache(tmp_path / "cache", limit=12_000)
    for number in range(4):
        cache.store(f"key{number}", entry(hashed(header), bytes(2_000)))
    for path in (tmp_path / "cache").iterdir():
        os.utime(path, (1, 1))
    assert cache.load("key2") is not None  # used: now the youngest
    for number in range(4, 7):
        cache.store(f"key{number}", entry(hashed(header), bytes(2_500)))
        assert sum(path.stat().st_size for path in (tmp_path / "cache").iterdir()) <= 12_000
    assert cache.load("key0") is None
    assert cache.load("key2") is not None
    cache.store("huge", entry({}, bytes(20_000)))
    assert cache.load("huge") is None


def test_what_a_dead_writer_left_is_removed(tmp_path):
    cache = Cache(tmp_path / "cache")
    cache.store("key", entry({}))
    old, young = tmp_path / "cache" / "old.tmp", tmp_path / "cache" / "young.tmp"
    old.write_bytes(b"half")
    young.write_bytes(b"half")
    os.utime(old, (1, 1))
    cache.store("key", entry({}))
    assert not old.exists()
    assert young.exists()  # somebody may still be writing it


def test_many_processes_at_once(tmp_path):
    """Writers of one key with different content, and readers: every load is whole or absent."""
    program = (
        "import sys; from pathlib import Path; from orbit_remote.toolchain.build_cache import Cache, CachedBuild\n"
        "cache = Cache(Path(sys.argv[1]), limit=4_000_000)\n"
        "for round in range(30):\n"
        "    cache.store(f'key{round % 3}', CachedBuild({}, bytes([int(sys.argv[2])]) * 300_000, {}))\n"
        "    found = cache.load(f'key{round % 3}')\n"
        "    assert found is None or (len(found.artifact) == 300_000 and len(set(found.artifact)) == 1), round\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path / "cache"), str(number)], env=environment
        )
        for number in range(3)
    ]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    assert not list((tmp_path / "cache").glob("*.tmp"))


def test_a_write_that_fails_leaves_nothing(tmp_path, monkeypatch):
    cache = Cache(tmp_path / "cache")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space"):
        cache.store("key", entry({}))
    assert list((tmp_path / "cache").iterdir()) == []


# -- with the compiler ------------------------------------------------------------------------------

SOURCE = '#include "h.cuh"\n__global__ void k(int* p) { int unused; p[0] = value(); }\n'


@needs_nvcc
async def test_a_build_is_taken_from_the_cache_warnings_and_all(tmp_path):
    cache = Cache(tmp_path / "cache")
    header = "__device__ int value() { return 1; }\n"
    first = await built(tmp_path, SOURCE, files={"h.cuh": header}, cache=cache)
    assert first.failure is None
    assert not first.built.cached
    assert [p.code for p in first.built.problems] == ["#177-D"]
    assert first.built.files == {
        str(tmp_path / "k.cu"): content_hash(SOURCE.encode()),
        str(tmp_path / "h.cuh"): content_hash(header.encode()),
    }
    cubin = first.cubin.read_bytes()
    first.cubin.unlink()
    again = await built(tmp_path, SOURCE, files={"h.cuh": header}, cache=cache)
    assert again.built.cached
    assert again.cubin.read_bytes() == cubin
    assert (again.built.problems, again.built.resources) == (first.built.problems, first.built.resources)
    assert again.built.files == first.built.files
    # unsaved text that says the same is the same build
    assert (await built(tmp_path, SOURCE, cache=cache, saved=False)).built.cached

    changed = await built(tmp_path, SOURCE, files={"h.cuh": header.replace("1", "x")}, cache=cache)
    assert changed.failure is not None
    assert changed.failure.place.file == str(tmp_path / "h.cuh")
    for how in ({"flags": ("-DX",)}, {"architecture": "sm_80"}, {"name": "other.cu"}):
        assert not (await built(tmp_path, SOURCE, files={"h.cuh": header}, cache=cache, **how)).built.cached
    assert (await built(tmp_path, SOURCE, files={"h.cuh": header}, cache=cache)).built.cached


@needs_nvcc
async def test_a_cache_that_cannot_be_written_costs_nothing_but_time(tmp_path):
    (tmp_path / "cache").write_text("a file where the folder should be")
    result = await built(tmp_path, "__global__ void k() {}\n", cache=Cache(tmp_path / "cache"))
    assert result.failure is None
    assert result.cubin.stat().st_size
    (remark,) = result.remarks
    assert remark.startswith("the build could not be kept for the next time: ")
