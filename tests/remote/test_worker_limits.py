"""A worker whose parent dies while it computes, compilers that take memory without end, lines without end."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from orbit_remote.common import limits
from orbit_remote.process import process_groups
from orbit_remote.toolchain import build, diagnostics

ENDLESS = "import re; re.match(r'(a*)*b', 'a' * 64)"
"""One call that never ends and lets no other thread of its interpreter run."""
WORKER = f"""
import sys
from orbit_remote.worker import jobs, main
def take(self, request):
    print("computing", file=sys.stderr, flush=True)
    {ENDLESS}
assert jobs.Jobs._take
jobs.Jobs._take = take
main.main(["--cache", sys.argv[1], "--ends-with-parent"])
"""
PARENT = """
import subprocess, sys
worker = subprocess.Popen([sys.executable, "-c", sys.argv[1], sys.argv[2]], stdin=subprocess.PIPE)
worker.stdin.write(sys.argv[3].encode() + b"\\n")
worker.stdin.flush()
worker.wait()
"""

pytestmark = pytest.mark.usefixtures("real_starts")


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel tells of a parent's death on Linux")
@pytest.mark.slow
def test_a_worker_ends_after_its_parent_whatever_it_computes(tmp_path: Path) -> None:
    probe = '{"kind": "probe", "run": "1"}'
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, WORKER, str(tmp_path), probe],
        stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert parent.stderr
    assert parent.stdin
    messages = iter(parent.stderr)
    assert any(line == "computing\n" for line in messages)
    parent.kill()
    parent.wait(60)
    os.set_blocking(parent.stderr.fileno(), True)
    _read_to_the_end(parent.stderr.fileno())  # it ends with the worker, which holds its other end
    parent.stdin.close()
    parent.stderr.close()


def _read_to_the_end(descriptor: int) -> None:
    async def read() -> None:
        await asyncio.to_thread(lambda: [None for _ in iter(lambda: os.read(descriptor, 1 << 16), b"")])

    asyncio.run(asyncio.wait_for(read(), 60))


@pytest.mark.skipif(sys.platform != "linux", reason="a process's memory is limited on Linux")
def test_a_compiler_gets_no_more_memory_than_its_limit(tmp_path: Path) -> None:
    source = tmp_path / "endless.cpp"
    source.write_text('#include "/dev/zero"\n')
    command = ["g++", "-c", str(source), "-o", str(tmp_path / "o")]
    status, out, err = asyncio.run(
        process_groups.communicate(command, timeout_s=60, cwd=tmp_path, memory=512 << 20)
    )
    failure = build._out_of_memory(status, out + err, "endless.cu")  # pyright: ignore[reportPrivateUsage]
    assert failure
    assert failure.message.startswith("compiling endless.cu needed more than ")


@pytest.mark.skipif(sys.platform != "linux", reason="a process's files are limited on Linux")
def test_a_compiler_writes_no_larger_file_than_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "COMPILER_FILE", replace(limits.COMPILER_FILE, most=1 << 20))
    source = tmp_path / "endless.cpp"
    doubled = "".join(f"#define M{at} M{at - 1} M{at - 1}\n" for at in range(1, 20))
    source.write_text(f"#define M0 int a;\n{doubled}" + "M12\n" * 1_000)
    command = ["g++", "-E", str(source), "-o", str(tmp_path / "o")]
    status, out, err = asyncio.run(
        process_groups.communicate(command, timeout_s=60, cwd=tmp_path, memory=512 << 20)
    )
    failure = build._too_large(status, out + err, "endless.cu")  # pyright: ignore[reportPrivateUsage]
    assert failure
    assert failure.message == "compiling endless.cu wrote a file larger than 1 MiB, the limit for a compiler"


LINES = {
    "letters": "x",
    "names with dots": "a.b",
    "quotes": '"a',
    "places": "a:1:",
    "names of temporary files": "tmpxft_1_1-1_k.",
    "declarations": "(declared at line 1 of ",
}


@pytest.mark.parametrize("what", LINES)
def test_a_line_of_1_mb_of_compiler_output_is_read_in_linear_time(what: str) -> None:
    def cost(size: int) -> float:
        line = (LINES[what] * size)[:size]
        began = time.thread_time()
        diagnostics.parse(
            f"k.cu(1): error: {line}\n{line}",
            diagnostics.DiagnosticContext("k.cu", scratch="/x"),
            failed=True,
        )
        return time.thread_time() - began

    assert cost(1_000_000) < 100 * (cost(10_000) + 0.02)


def test_a_line_of_compiler_output_is_cut_at_the_limit() -> None:
    most = limits.OUTPUT_LINE.most
    for size, kept in ((most, most), (most + 1, most)):
        (problem,) = diagnostics.parse("y" * size, diagnostics.DiagnosticContext("k.cu"), failed=True)
        assert len(problem.message) == kept
