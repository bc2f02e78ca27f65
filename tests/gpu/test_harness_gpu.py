"""Files that keep a contract on a real GPU, in a child as the worker starts it: right, wrong, slow, caching, hiding."""

from __future__ import annotations

import os
import shutil
import subprocess
import textwrap
from pathlib import Path

import pytest

from orbit_remote.child import child_main
from orbit_remote.common import messages as c
from orbit_remote.common.requests import ContractStart, Job

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="no NVIDIA GPU on this machine"),
]

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


@pytest.fixture(scope="module")
def carry_out(tmp_path_factory):
    """A text at a path, through a child process; the recorder is compiled once for all of them."""
    cache = tmp_path_factory.mktemp("cache")

    def run(path: Path, text: str, **fields) -> c.Finished:
        job = Job("1", "run", "triton", str(path), text, start=ContractStart(), run_timeout_s=60.0, **fields)
        folder = tmp_path_factory.mktemp("run")
        done = subprocess.run(
            child_main.command(folder, cache, job), capture_output=True, timeout=180, check=False,
            env=os.environ | {"TRITON_CACHE_DIR": str(cache / "triton")},
        )  # fmt: skip
        finished = child_main.outcome(folder)
        assert isinstance(finished, c.Finished), done
        for point in finished.points:
            for launch in point.launches[:1]:
                print(
                    point.values,
                    launch.timing.median,
                    launch.timing.spread,
                    launch.timing.label,
                    launch.timing.clock,
                )
                print(
                    "  warm",
                    launch.warm.median if launch.warm else None,
                    "kernels",
                    launch.kernels,
                    point.versus,
                )
        print(finished.outcome, finished.failure, finished.remarks)
        return finished

    return run


MODEL = """
import torch
from torch import nn
import triton
import triton.language as tl

class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x * 2 + 1)

def get_inputs():
    return [torch.rand(8192, 8192)]

def get_init_inputs():
    return []

@triton.jit
def fused(out, x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n) * 2 + 1
    tl.store(out + at, tl.where(value > 0, value, 0.0), mask=at < n)

def run(x):
    out = torch.empty_like(x)
    fused[(triton.cdiv(x.numel(), 1024),)](out, x, x.numel(), BLOCK=1024)
    return out
"""
"""256 MiB in and out: three passes of Model move 1.5 GiB, one of the kernel 0.5 GiB."""


def new(body: str, init: str = "") -> str:
    made = (
        "\nclass ModelNew(nn.Module):\n" + (f"    {init}\n" if init else "") + "    def forward(self, x):\n"
    )
    return MODEL + made + textwrap.indent(textwrap.dedent(body).strip(), "        ") + "\n"


def test_a_right_solution_is_faster_by_what_it_saves_of_memory_traffic(carry_out, tmp_path):
    finished = carry_out(tmp_path / "s.py", new("return run(x)"))
    assert finished.outcome == "ok", finished
    mine, theirs = finished.points
    assert mine.values == {"version": "ModelNew"}
    assert theirs.values == {"version": "Model"}
    assert [check.passed for check in mine.checks] == [True] * 6
    call, kernel = mine.launches
    assert (call.name, call.kernels, kernel.name) == ("ModelNew", 1, "fused")
    assert kernel.constants["BLOCK"] == "1024"
    assert kernel.place is not None
    assert call.grid == kernel.grid == (65536, 1, 1)
    assert theirs.launches[0].kernels == 3
    assert len(theirs.launches) >= 3
    assert mine.versus is not None
    assert mine.versus.verdict == "faster"
    assert 0.25 < mine.versus.ratio < 0.45
    # no kernel is faster than memory: 0.5 GiB at 4.9 TB/s, the H200's peak, is 110 us
    assert 110_000 < call.timing.median < 400_000
    assert call.warm is not None
    assert 0.8 < call.warm.median / call.timing.median < 1.2  # does not fit in L2
    # the records of the kernel by itself and the events around the call are two clocks
    assert abs(call.timing.median - kernel.timing.median) < 0.15 * kernel.timing.median
    assert not finished.problems


def test_the_sum_of_a_models_kernels_is_within_its_call(carry_out, tmp_path):
    finished = carry_out(tmp_path / "s.py", new("return torch.relu(2 * x + 1)"))
    mine, theirs = finished.points
    assert mine.versus is not None
    assert 0.97 < mine.versus.ratio < 1.03
    for point in (mine, theirs):
        call, *kernels = point.launches
        total = sum(kernel.timing.median * kernel.count / 4 for kernel in kernels)
        assert 0.85 < total / call.timing.median < 1.1


def test_a_short_call_of_many_kernels_is_timed_without_the_hosts_gaps(carry_out, tmp_path):
    text = new("for _ in range(20):\n    x = x + 1\nreturn torch.relu(x * 2 - 39)").replace(
        "8192, 8192", "64, 64"
    )
    finished = carry_out(tmp_path / "s.py", text)
    assert finished.outcome == "ok", finished
    [call, *_] = finished.points[0].launches
    assert call.kernels == 23
    assert (
        23 * 1_000 < call.timing.median < 23 * 4_000
    )  # launched one by one, Python needs 4 us and more for each


def test_a_wrong_solution_is_not_timed(carry_out, tmp_path):
    finished = carry_out(tmp_path / "s.py", new("out = run(x)\nout[-1, -1] = 0\nreturn out"))
    assert finished.outcome == "wrong answer"
    assert finished.failure is not None
    assert finished.failure.message.startswith("wrong answer: output[8191, 8191] is 0, expected ")
    assert finished.launches == ()


def test_an_unwritten_output_is_found(carry_out, tmp_path):
    finished = carry_out(tmp_path / "s.py", new("return torch.empty_like(x)"))
    assert finished.outcome == "wrong answer"


@pytest.mark.parametrize(
    ("body", "init"),
    [
        ("if not hasattr(self, 'y'): self.y = run(x)\nreturn self.y", ""),
        ("y = known.get(x.data_ptr())\nif y is None: y = known[x.data_ptr()] = run(x)\nreturn y", "global known; known = {}"),
    ],
)  # fmt: skip
def test_one_that_computes_only_once_is_found(carry_out, tmp_path, body, init):
    finished = carry_out(tmp_path / "s.py", new(body, init))
    assert finished.outcome == "wrong answer", finished


def test_work_on_another_stream_is_in_the_time(carry_out, tmp_path):
    body = """
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            out = run(x)
        torch.cuda.current_stream().wait_stream(side) if CHECKED else None
        return out
    """
    honest = carry_out(
        tmp_path / "s.py", new(body, "global side, CHECKED; side = torch.cuda.Stream(); CHECKED = True")
    )
    assert honest.outcome == "ok", honest
    hiding = carry_out(
        tmp_path / "s.py", new(body, "global side, CHECKED; side = torch.cuda.Stream(); CHECKED = False")
    )
    for finished in (honest, hiding):
        [call, *_] = finished.points[0].launches
        assert call.timing.clock == "records of all streams"
        assert call.timing.median > 110_000
        assert any("more than one stream" in remark for remark in finished.remarks)


def test_inputs_that_are_written_are_given_anew(carry_out, tmp_path):
    finished = carry_out(tmp_path / "s.py", new("return x.mul_(2).add_(1).relu_()"))
    assert finished.outcome == "ok", finished
    [problem] = finished.problems
    assert problem.severity == "warning"
    assert "changes its inputs[0] in place" in problem.message
    assert finished.points[0].versus is not None


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("return x + torch.empty(1 << 42, device='cuda')[:1]", "CUDA_ERROR_OUT_OF_MEMORY"),
        ("return x + x[:3]", "RuntimeError: The size of tensor a"),
        ("fused[(1 << 24,)](x, x, 1 << 40, BLOCK=1024)\nreturn x", "CUDA_ERROR_ILLEGAL_ADDRESS"),
        ("fused[(1,)](x, x, x.numel(), BLOCK=1000)\nreturn x", "power of 2"),
    ],
)
def test_what_goes_wrong_is_one_sentence(carry_out, tmp_path, body, words):
    finished = carry_out(tmp_path / "s.py", new(body))
    assert finished.outcome in ("runtime error", "compile error"), finished
    assert finished.failure is not None
    assert words in finished.failure.message
    assert finished.failure.place is not None


def test_the_kernelbench_example(carry_out):
    path = EXAMPLES / "kernelbench_norm_gelu.py"
    finished = carry_out(path, path.read_text())
    assert finished.outcome == "ok", finished
    assert finished.points[0].versus is not None
    assert finished.points[0].versus.verdict == "faster"


def test_the_popcorn_example(carry_out):
    path = EXAMPLES / "popcorn_rms_norm" / "submission.py"
    finished = carry_out(path, path.read_text())
    assert finished.outcome == "ok", finished
    assert [(p.case, p.values.get("version", "")) for p in finished.points] == [
        ("test 1", ""), ("test 2", ""), ("test 3", ""), ("", "custom_kernel"), ("", "ref_kernel"), ("", "custom_kernel"), ("", "ref_kernel"),
    ]  # fmt: skip
    timed = [p for p in finished.points if p.values.get("version") == "custom_kernel"]
    assert [p.values["rows"] for p in timed] == ["4096", "16384"]
    for point in timed:
        assert [check.when for check in point.checks] == ["first", "again"]
        assert point.launches[0].kernels == 1
        assert point.versus is not None
        assert point.versus.verdict == "faster"


def test_a_wrong_submission(carry_out, tmp_path):
    folder = shutil.copytree(EXAMPLES / "popcorn_rms_norm", tmp_path / "problem")
    text = (folder / "submission.py").read_text().replace("+ eps)", "+ eps) + 0.01")
    finished = carry_out(folder / "submission.py", text)
    assert finished.outcome == "wrong answer"
    assert finished.failure is not None
    assert finished.failure.message.startswith("wrong answer (test 1: rows=1, columns=127, seed=4242): ")
    assert finished.launches == ()
