"""`orbit-lsp jobs`, whole. The GPU side is recorded (recorded_worker.py): these machines have none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from orbit_lsp.queue import pool
from orbit_lsp.queue.request import Request
from orbit_lsp.queue.slot_engine import EngineOptions, SlotEngine
from tests.e2e.test_history import SAXPY
from tests.e2e.test_spec_runs import orbit
from tests.schema_check import valid


def jobs(folder: Path, python: str, *words: str) -> tuple[int, str, str]:
    code, out, message = orbit(folder, python, "jobs", *words)
    return code, re.sub(r"\b[0-9a-f]{16}\b", "ID", out), re.sub(r"\b[0-9a-f]{16}\b", "ID", message)


def test_files_become_jobs_with_results_and_a_record(tmp_path: Path, recorded_python: str) -> None:
    (tmp_path / "saxpy.cu").write_text(SAXPY)
    (tmp_path / "bad.cu").write_text("__global__ void k() { BUG; }\n")
    (tmp_path / "two.cu").write_text(SAXPY + SAXPY.replace("saxpy", "other"))
    code, out, message = jobs(
        tmp_path, recorded_python, "submit", "saxpy.cu", "bad.cu", "two.cu", "--pool", "local:0"
    )
    assert code == 1
    assert "ID  queued          run bad.cu\n" in message
    assert "ID  starting        run saxpy.cu: on local:0\n" in message
    assert "ID  ok              run saxpy.cu: saxpy 288 µs, 1 check passed\n" in out
    assert re.search(r"time, median +288 µs ±0.2% .*\[CUPTI activity records\]", out)
    assert f'{tmp_path}/bad.cu:1:23: error: identifier "BUG" is undefined [nvcc #20]\n' in out
    assert "compile error: which kernel? Name one: two.cu has saxpy, other\n" in out

    code, out, _ = jobs(tmp_path, recorded_python, "list")
    assert (code, [line.partition(":")[0] for line in out.splitlines()]) == (
        0,
        [
            "ID  compile error   run two.cu",
            "ID  compile error   run bad.cu",
            "ID  ok              run saxpy.cu",
        ],
    )
    listed = valid("jobs", orbit(tmp_path, None, "jobs", "list", "--json")[1])
    shown = valid("job", orbit(tmp_path, None, "jobs", "show", listed[2]["id"][:6], "--json")[1])
    several = orbit(tmp_path, None, "jobs", "show", *(job["id"] for job in listed), "--json")[1]
    assert [job["id"] for job in valid("job", several)] == [job["id"] for job in listed]
    assert (shown["version"], shown["outcome"], shown["slot"]) == (1, "ok", "local:0")
    assert shown["result"]["finished"]["launches"][0]["timing"]["median"] == 288_032
    assert Path(shown["result"]["report"]).read_text().startswith("<!doctype html>")
    assert jobs(tmp_path, recorded_python, "prune", "--older", "0s")[1] == "3 jobs removed\n"
    assert jobs(tmp_path, recorded_python, "list")[1] == "no jobs\n"


def test_words_that_no_job_has(tmp_path: Path) -> None:
    error = "orbit-lsp: error: "
    (tmp_path / "k.cu").write_text("__global__ void k() {}\n")
    for words, message in [
        (["submit"], "orbit-lsp jobs submit needs a file: a .cu, .cuh or .py file"),
        (["submit", "absent.cu"], "there is no file absent.cu"),
        (["submit", "k.cu", "--pool", "gpu"], "'gpu' is not a place of a pool; write local:0, ssh:HOST:0, modal:H100*4 or ray*8, with commas between"),
        (["submit", "k.cu", "--pool", "local:0", "--gpu", "B200"], "no place of this pool is 'B200'; it has local:0"),
        (["show"], "orbit-lsp jobs show needs the id of a job; `orbit-lsp jobs list` has them"),
        (["cancel", "ffff"], "no job, or more than one, has an id that begins with 'ffff'; `orbit-lsp jobs list` lists the ids"),
        (["prune", "--older", "soon"], "--older is 'soon'; write a number and a unit, as in 7d, 12h, 30m or 0s"),
    ]:  # fmt: skip
        assert orbit(tmp_path, None, "jobs", *words) == (64, "", f"{error}{message}\n")


async def test_a_kernel_is_built_where_its_run_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the real nvcc; what has host code is left to its run."""
    for name in ("XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("ORBIT_SHARED_WORKER", "no")

    def files() -> list[int]:
        """A file that is written anew is another one."""
        return [path.stat().st_ino for path in tmp_path.glob("*/builds/*.build")]

    engine = SlotEngine(pool.parse("local:0")[0], EngineOptions())
    built: list[list[int]] = []
    try:
        for job, text in (("1", SAXPY), ("1", SAXPY), ("2", SAXPY + "int main() {}")):
            await engine.prepare(job, Request(name="k.cu", text=text))
            built.append(files())
    finally:
        await engine.close()
    assert len(built[0]) == 1
    assert built == [built[0]] * 3
    assert list((tmp_path / "orbit-lsp" / "jobs").iterdir()) == []
