"""Python files with Triton kernels on a real GPU, through the warm spares: launches, errors, crashes."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass

import pytest

from orbit_remote import PACKAGE
from orbit_remote.common import messages as c
from orbit_remote.common.requests import Job
from orbit_remote.process import program
from orbit_remote.recording import injection, recorder
from orbit_remote.worker import prefork

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="no NVIDIA GPU on this machine"),
]

ADD = textwrap.dedent("""
    import torch, triton
    import triton.language as tl

    @triton.jit
    def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        mask = offsets < n
        tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) + tl.load(y_ptr + offsets, mask=mask), mask=mask)

    def vectors(n=1 << 20):
        return torch.rand(n, device="cuda"), torch.rand(n, device="cuda"), torch.empty(n, device="cuda")

    def launch(times=1, BLOCK=1024, **options):
        x, y, out = vectors()
        for _ in range(times):
            add[(triton.cdiv(x.numel(), BLOCK),)](x, y, out, x.numel(), BLOCK=BLOCK, **options)
        return x, y, out
    """)


@dataclass(frozen=True)
class Ended:
    status: int
    finished: c.Finished | None
    stdout: str
    stderr: str
    seconds: float
    recorded: injection.RecordedRun

    @property
    def launches(self) -> tuple[c.Launches, ...]:
        assert self.finished is not None, self
        return self.finished.launches

    @property
    def failure(self) -> c.Failure:
        assert self.finished is not None, self
        assert self.finished.failure is not None, self
        return self.finished.failure


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Runs a file's text in a warm spare; one pool for all, as a worker has it."""
    cache = tmp_path_factory.mktemp("cache")
    environment = program.environment(os.environ) | {"TRITON_CACHE_DIR": str(cache / "triton")}

    with asyncio.Runner() as runner:

        async def make() -> prefork.PreforkPool:
            return prefork.PreforkPool(cache=cache)

        pool = runner.run(make())

        async def one(text: str, fields: dict) -> Ended:
            await pool.prepare(environment)
            job = Job("1", fields.pop("action", "run"), "triton", str(cache / "kernels.py"), text, **fields)
            began = time.perf_counter()
            child = await pool.take(job, environment)
            out, err = asyncio.ensure_future(child.stdout.read()), asyncio.ensure_future(child.stderr.read())
            events = [event async for event in child.events()]
            seconds = time.perf_counter() - began
            status = await child.wait()
            recorded = injection.read(child.launches)
            await child.close()
            last = events[-1] if events and isinstance(events[-1], c.Finished) else None
            return Ended(status, last, (await out).decode(), (await err).decode(), seconds, recorded)

        yield lambda text, **fields: runner.run(one(text, fields))
        runner.run(pool.close())


def test_launches_are_measured_and_filed_under_their_kernel(run):
    text = ADD + "def main():\n    x, y, out = launch(20)\n    print(torch.equal(out, x + y))\n"
    ended = run(text)
    assert (ended.status, ended.stdout) == (0, "True\n"), ended
    [launches] = ended.launches
    assert (launches.name, launches.symbol, launches.count) == ("add", "add", 20)
    assert (launches.grid, launches.block) == ((1024, 1, 1), (128, 1, 1))
    assert launches.constants == {"BLOCK": "1024", "num_warps": "4", "num_stages": "3"}
    assert launches.place is not None
    assert launches.place.line == 1 + text.splitlines().index(
        "def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):"
    )
    assert launches.registers is not None
    assert 2_000 < launches.timing.median < 100_000
    assert ended.finished is not None
    assert any("not Triton's" in remark for remark in ended.finished.remarks)
    [resources] = ended.finished.resources
    assert resources.registers is not None
    print(ended.finished.remarks, launches.timing, resources)


def test_the_second_run_of_a_file_is_warm(run):
    text = ADD + "def main(): launch(20)\n"
    run(text)
    ended = run(text)
    print(f"from click to result {ended.seconds:.3f} s")
    assert ended.seconds < 2.0


def test_nothing_is_lost_without_a_synchronise(run):
    assert run(ADD + "def main(): launch(500)\n").launches[0].count == 500


def test_instances_of_one_kernel_are_told_apart(run):
    ended = run(
        ADD + "def main():\n    launch(3, BLOCK=256, num_warps=2)\n    launch(4, BLOCK=2048, num_warps=8)\n"
    )
    messages = [
        (launch.constants["BLOCK"], launch.constants["num_warps"], launch.count) for launch in ended.launches
    ]
    assert messages == [("256", "2", 3), ("2048", "8", 4)]


def test_launches_made_while_autotuning_are_left_out(run):
    configurations = "[triton.Config({'BLOCK': b}) for b in (256, 1024)]"
    text = ADD.replace("@triton.jit", f"@triton.autotune({configurations}, key=['n'])\n@triton.jit")
    text += "def main():\n    x, y, out = vectors()\n"
    text += (
        "    for _ in range(7): add[lambda m: (triton.cdiv(x.numel(), m['BLOCK']),)](x, y, out, x.numel())\n"
    )
    ended = run(text)
    assert sum(launch.count for launch in ended.launches) == 7
    assert ended.finished is not None
    assert any("autotuning" in remark for remark in ended.finished.remarks), ended.finished.remarks


def test_launches_of_a_cuda_graph_are_measured(run):
    text = ADD + textwrap.dedent("""
        def main():
            x, y, out = launch()
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                add[(1024,)](x, y, out, x.numel(), BLOCK=1024)
            for _ in range(5):
                graph.replay()
        """)
    assert sum(launch.count for launch in run(text).launches) == 6


@pytest.mark.parametrize(
    ("kernel", "code"),
    [
        ("tl.store(x_ptr + 1099511627776 + tl.arange(0, B), 1.0)", "CUDA_ERROR_ILLEGAL_ADDRESS"),
        ("tl.device_assert(tl.program_id(0) > 5, 'too small')", "CUDA_ERROR_ASSERT"),
    ],
)
@pytest.mark.parametrize("handled", [False, True])
def test_a_kernel_that_fails_is_named_whether_the_program_says_so_or_not(kernel, code, handled, run):
    text = ADD + textwrap.dedent(f"""
        @triton.jit(debug=True)
        def bad(x_ptr, B: tl.constexpr):
            {kernel}

        def main():
            x, _, _ = launch(3)
            torch.cuda.synchronize()
            try:
                bad[(1,)](x, B=128)
                torch.cuda.synchronize()
            except Exception:
                if not {handled}:
                    raise
        """)
    ended = run(text)
    print(ended.failure)
    assert ended.failure.category == "runtime error"
    assert code in ended.failure.message
    assert ended.failure.symbol == "bad"
    assert sum(launch.count for launch in ended.launches if launch.name == "add") == 3
    assert ended.status == (0 if handled else 1)


def test_more_shared_memory_than_there_is(run):
    text = """
import torch, triton
import triton.language as tl
@triton.jit
def big(a, b, c, B: tl.constexpr):
    i, j = tl.arange(0, B)[:, None], tl.arange(0, B)[None, :]
    tl.store(c + i * B + j, tl.dot(tl.load(a + i * B + j), tl.load(b + i * B + j)))
def main():
    x = torch.zeros(256 * 256, device="cuda")
    big[(1,)](x, x, x, B=256)
"""
    ended = run(text)
    assert "out of resource: shared memory" in ended.failure.message
    assert ended.failure.place is not None
    assert ended.failure.place.line == 10


def test_out_of_memory_is_named(run):
    ended = run("import torch\ndef main(): torch.empty(1 << 44, device='cuda')\n")
    assert "CUDA_ERROR_OUT_OF_MEMORY" in ended.failure.message
    assert ended.failure.place is not None
    assert ended.failure.place.line == 2


@pytest.mark.parametrize(
    ("end", "status"),
    [
        ("os.abort()", -signal.SIGABRT),
        ("os._exit(4)", 4),
        ("os.kill(os.getpid(), signal.SIGSEGV)", -signal.SIGSEGV),
    ],
)
def test_a_crash_keeps_the_launches_before_it(end, status, run):
    ended = run(
        ADD + f"import os, signal\ndef main():\n    launch(3)\n    torch.cuda.synchronize()\n    {end}\n"
    )
    assert (ended.status, ended.finished) == (status, None)
    assert [r.symbol for r in ended.recorded.records if r.symbol == "add"] == ["add"] * 3


def test_a_profiler_of_the_users_own_has_cupti(run):
    text = ADD + textwrap.dedent("""
        def main():
            launch(3)
            torch.cuda.synchronize()
            from torch.profiler import profile, ProfilerActivity
            with profile(activities=[ProfilerActivity.CUDA]) as found:
                launch(5)
                torch.cuda.synchronize()
            print(sum(event.count for event in found.key_averages() if event.key == "add"))
        """)
    ended = run(text)
    assert ended.stdout == "5\n", ended
    assert [launch.count for launch in ended.launches] == [3]
    assert ended.finished is not None
    assert recorder.YIELDED in ended.finished.remarks


def test_proton_has_cupti(run):
    text = ADD + textwrap.dedent("""
        import json, tempfile, triton.profiler as proton
        def main():
            launch(3)
            torch.cuda.synchronize()
            folder = tempfile.mkdtemp()
            proton.start(folder + "/found")
            launch(5)
            proton.finalize()
            print("add" in open(folder + "/found.hatchet").read())
        """)
    ended = run(text)
    assert ended.stdout == "True\n", ended
    assert [launch.count for launch in ended.launches] == [3]


def test_a_benchmark_with_do_bench_is_measured(run):
    text = ADD + textwrap.dedent("""
        def benchmark():
            x, y, out = vectors()
            print(triton.testing.do_bench(lambda: add[(1024,)](x, y, out, x.numel(), BLOCK=1024)) > 0)
        """)
    ended = run(text)
    assert ended.stdout == "True\n"
    assert ended.launches[0].count > 30
    print(ended.launches[0].timing, ended.launches[0].count)


def test_a_compile_agrees_with_a_run(run):
    text = ADD.replace("BLOCK: tl.constexpr", "BLOCK: tl.constexpr = 1024") + "def main(): launch(3)\n"
    compiled, ended = run(text, action="compile"), run(text)
    assert compiled.finished is not None
    assert ended.finished is not None
    [assumed], [real] = compiled.finished.resources, ended.finished.resources
    assert (assumed.dynamic_shared, assumed.threads, assumed.stack) == (
        real.dynamic_shared,
        real.threads,
        real.stack,
    )
    # a launch knows that n is divisible by 16, the text does not
    assert assumed.registers is not None
    assert real.registers is not None
    assert abs(assumed.registers - real.registers) <= 16


KINETO = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from orbit_remote.recording import injection, recorder
def missing(**_): raise injection.RecorderUnavailableError("no CUPTI here", "")
injection.find = missing
found = recorder.begin(Path(sys.argv[2]), Path(sys.argv[2]) / "launches")
assert type(found).__name__ == "Kineto", found.recorded()
sys.path.insert(0, sys.argv[2])
import kernels, torch
begin = found.timestamp()
kernels.launch(6)
torch.cuda.synchronize()
end = found.timestamp()
found.end()
records = [r for r in found.recorded().records if r.symbol == "add"]
print(len(records), records[0].grid, records[0].block, records[0].registers is not None)
print(all(begin <= r.start_ns < r.end_ns <= end for r in records))
"""


def test_without_a_compiler_torchs_profiler_records(tmp_path):
    (tmp_path / "kernels.py").write_text(ADD)
    remote = str(PACKAGE.parent)
    command = [sys.executable, "-c", KINETO, remote, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "6 (1024, 1, 1) (128, 1, 1) True\nTrue\n", done
