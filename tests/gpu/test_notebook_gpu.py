"""Notebook kernels on a real GPU: cells that launch kernels are measured, and a kernel that never ends is interrupted."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbclient
import nbformat
import pytest

from tests.cli_check import orbit
from tests.test_notebook import EXAMPLE, LIMIT_S, Kernel, press_until_over
from tests.test_notebook_served import TOKEN, Served, Server

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="no NVIDIA GPU on this machine"),
]
ADD = """
import time, torch, triton
import triton.language as tl

@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n), mask=at < n)

n = 1 << 26
x, y, out = (torch.rand(n, device="cuda") for _ in range(3))
def launch(times):
    for _ in range(times): add[(triton.cdiv(n, 1024),)](x, y, out, n, BLOCK=1024)
launch(50)
"""
TIMED = """
torch.cuda.synchronize()
began = time.perf_counter()
for _ in range(10_000): add[(1,)](x, y, out, 1024, BLOCK=1024)
torch.cuda.synchronize()
print(f'{(time.perf_counter() - began) * 100:.2f} us a launch')
"""
SPEC = """\
// orbit: n = 1 << 26; x = randn(n); y = empty(n)
// orbit: launch copy<<<n / 256, 256>>>(x, y)
// orbit: expect y == x
__global__ void copy(const float* x, float* y) { int i = blockIdx.x * 256 + threadIdx.x; y[i] = x[i]; }
"""
PAST_THE_END = SPEC.replace("y[i] = x[i]", "y[i + 256] = x[i]").replace("// orbit: expect y == x\n", "")
NEVER_ENDS = "import torch\ntorch.cuda._sleep(1 << 60)\nprint('launched', flush=True)\n"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("notebook")
    with pytest.MonkeyPatch.context() as patch:
        for name, below in [
            ("JUPYTER_DATA_DIR", "jupyter"),
            ("XDG_STATE_HOME", ".state"),
            ("IPYTHONDIR", ".ipython"),
        ]:
            patch.setenv(name, str(folder / below))
        patch.setenv("ORBIT_API_TOKEN", TOKEN)
        yield folder


@pytest.fixture(scope="module")
def kernel(place: Path) -> Iterator[Kernel]:
    made = Kernel(place)
    yield made
    made.close()


@pytest.fixture(scope="module")
def served(place: Path) -> Iterator[Kernel]:
    """A kernel on the machine of an `orbit-lsp api`, here over the loopback."""
    server = Server(place / "server")
    folder = place / "work"
    folder.mkdir()
    made = Served(folder, server.url)
    yield made
    made.close()
    server.end()


def median_us(shown: str) -> float:
    """Of the kernel `add` in a cell's table."""
    match = re.search(r"^ +add +([\d.]+) µs", shown, re.MULTILINE)
    assert match, shown
    return float(match[1])


def test_a_cell_that_launches_triton_kernels_shows_their_times(kernel: Kernel) -> None:
    """768 MiB are moved: 240 µs at the 3.35 TB/s of an H100's data sheet, 168 µs at the 4.8 TB/s of an H200's."""
    first, second = kernel.run(ADD), kernel.run("launch(50)")
    print(first, second, sep="\n")
    assert "in program, n=49" in first
    assert "without exit" not in first
    assert re.search(r"≤\d+%$", first, re.MULTILINE)
    assert median_us(second) == pytest.approx(median_us(first), rel=0.05)
    assert 150 < median_us(first) < 1500
    assert "measured on" not in kernel.run("x.sum().item(); print('no kernel of Triton')")
    recorded = kernel.run(TIMED)
    kernel.run("%orbit measure off")
    print("with recording:", recorded, "\nwithout:", kernel.run(TIMED))
    assert "measured on" not in kernel.run("launch(5)")
    kernel.run("%orbit measure on")
    assert "measured on" in kernel.run("launch(5)")


def test_a_profiler_of_the_cell_is_given_its_place(kernel: Kernel) -> None:
    kernel.run("%orbit end")
    kernel.run(ADD)
    shown = kernel.run(
        "with torch.profiler.profile() as seen: launch(3)\nprint(any('add' in each.name for each in seen.events()))"
    )
    assert "True" in shown
    assert "not measured" in shown
    assert "measured on" not in kernel.run("launch(3)")
    kernel.run("%orbit end")
    assert "measured on" in kernel.run(ADD)


def test_a_cuda_cell_is_checked_and_timed_beside_the_cells(kernel: Kernel) -> None:
    shown = kernel.run(f"%%cuda\n{SPEC}")
    print(shown)
    assert "✓ expect y == x" in shown
    assert "cold L2" in shown


def test_a_cuda_cell_is_profiled(kernel: Kernel) -> None:
    """The kernel is in the cell's fifth line: the magic is the first. A copy is held back by memory."""
    shown = kernel.run(f"%%orbit profile\n{SPEC}")
    print(shown)
    assert re.search(r"bottleneck +memory \d+% of peak", shown)
    assert re.search(r"cell\.cu:5 +\d+%", shown)


def test_a_cuda_cell_is_checked_for_memory_errors(kernel: Kernel) -> None:
    wrong, right = (kernel.run(f"%%orbit check\n{text}") for text in (PAST_THE_END, SPEC))
    print(wrong, right, sep="\n")
    assert "cell.cu:4: error: Invalid __global__ write of size 4" in wrong
    assert "error" not in right


def test_cells_on_the_machine_of_a_server_are_measured(served: Kernel) -> None:
    table, timed, profiled = map(served.run, (ADD, f"%%cuda\n{SPEC}", f"%%orbit profile\n{SPEC}"))
    print(table, timed, profiled, sep="\n")
    assert "in program, n=49" in table
    assert 150 < median_us(table) < 1500
    assert "✓ expect y == x" in timed
    assert re.search(r"bottleneck +memory \d+% of peak", profiled)


def test_the_tutorial_measures_its_kernels(place: Path, kernel: Kernel) -> None:
    kernel.run("%orbit end")  # the GPU's memory is the tutorial's
    notebook = nbformat.read(EXAMPLE, as_version=4)
    for cell in notebook.cells:
        cell.source = cell.source.replace("%%cuda --compile", "%%cuda").replace(
            "%%orbit compile", "%%orbit run"
        )
    nbclient.NotebookClient(
        notebook, timeout=LIMIT_S, kernel_name="orbit-local", resources={"metadata": {"path": str(place)}}
    ).execute()
    shown = [json.dumps(cell.get("outputs", []), ensure_ascii=False) for cell in notebook.cells]
    [cuda, triton] = [each for each in shown if "✓ expect" in each]
    [launched] = [each for each in shown if "in program" in each]
    print(cuda, triton, launched, sep="\n")
    assert "saxpy" in cuda
    assert "add" in triton
    assert "double" in launched


@pytest.mark.parametrize("waits", ["torch.cuda.synchronize()", "import triton"])
def test_the_second_press_ends_a_kernel_that_never_ends(kernel: Kernel, waits: str) -> None:
    """The cell waits for it, or our measuring does. The time is from the first press, the second comes 1.1 s later."""
    kernel.run("%orbit end")
    kernel.run("import torch; torch.ones(1, device='cuda')")
    pressed: list[float] = []
    press: Any = press_until_over(kernel)

    def note(text: str) -> None:
        if "launched" in text:  # before, it may wait for the GPU
            pressed.append(time.monotonic())
            press(text)

    shown = kernel.run(NEVER_ENDS + waits, note)
    took = time.monotonic() - pressed[0]
    print(f"{waits}: over {took:.2f} s after the first press")
    assert "the second ended its kernel" in shown
    assert took < 6
    assert kernel.run("import torch; torch.ones(3, device='cuda').sum().item()") == "[text/plain]\n3.0"


def test_what_cells_measured_is_in_the_history(place: Path, kernel: Kernel) -> None:
    kernel.run(ADD)
    kernel.run(f"%%cuda\n{SPEC}")
    of_the_kernel = {"XDG_STATE_HOME": str(place / ".state")}
    listed = json.loads(orbit(place, "history", "unnamed.ipynb", "--json", environment=of_the_kernel)[1])[
        "kernels"
    ]
    assert {each["kernel"] for each in listed} >= {"add", "copy"}


WRITES_PAST = """
import torch, triton
import triton.language as tl

@triton.jit
def past(out, far):
    at = tl.arange(0, 128)
    tl.store(out + at + far, at)
    tl.store(out + at, at)

out = torch.zeros(128, dtype=torch.int32, device="cuda")
"""
LAUNCHES = "past[(4,)](out, 1 << 40)\ntorch.cuda.synchronize()\n"
SPINS = """
@triton.jit
def spins(flag):
    while tl.load(flag, volatile=True) == 0:
        pass

spins[(1,)](out)
print('launched', flush=True)
torch.cuda.synchronize()
"""


def test_a_cell_names_the_line_on_which_its_kernel_fails_or_hangs(kernel: Kernel) -> None:
    kernel.run(WRITES_PAST)
    assert "orbit: a GPU kernel failed: run `%orbit locate` to find its line" in kernel.run(LAUNCHES)
    kernel.run("%orbit locate")
    kernel.run(WRITES_PAST)
    began = time.monotonic()
    crash = kernel.run(LAUNCHES)
    print(f"{time.monotonic() - began:.2f} s\n{crash}")
    assert re.search(
        r"ILLEGAL_ADDRESS: illegal address in a store, in past\nIn\[1\], line 7: tl.store\(out \+ at \+ far, at\)$",
        crash,
    )
    kernel.run(WRITES_PAST)
    hang = kernel.run(SPINS, press_until_over(kernel))
    print(hang)
    assert "0 of 1 blocks of spins had ended, 1 were running" in hang
    assert re.search(r"4 of 4 warps stood here.*: In\[2\], line 3: while tl.load", hang)
    kernel.run("%orbit end")
