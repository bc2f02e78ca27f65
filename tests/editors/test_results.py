"""What a run shows on the lines of a real Neovim where it is more than a time: a crash, a hang, and a test that launched the kernel."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.test_driver_lenses import KERNELS, TESTS
from tests.editors.conftest import program
from tests.editors.home import TIME
from tests.editors.terminal import Terminal
from tests.editors.test_neovim import Start
from tests.recordings import crashed


@pytest.mark.parametrize(
    ("name", "kernel", "shows"),
    [
        (
            "crashed",
            7,
            (
                "■ CUDA_ERROR_INVALID_ADDRESS_SPACE: address of the wrong memory space in a load",
                "✗ invalid address space",
            ),
        ),
        ("hung", 27, ("■ 4 of 8 warps waited here for their cluster", "■ 4 of 8 warps stood here")),
    ],
)
def test_a_failed_kernel_on_its_lines(
    name: str,
    kernel: int,
    shows: tuple[str, ...],
    neovim: Start,
    nvim: str,
    terminal: Callable[..., Terminal],
    picture: Callable[[str, Terminal], None],
) -> None:
    home = neovim().home
    source = crashed.source("scale" if name == "crashed" else "halfcluster")
    file = "crash.cu" if name == "crashed" else "hang.cu"  # as it was called when its dump was recorded
    shown = terminal(home, program(nvim), str(home.write(file, source)), columns=150, rows=16)
    shown.until_shown("▶ Run on H100 80GB HBM3" if kernel < 16 else "#include")
    shown.type(f":{kernel}")
    shown.keys("Enter")
    shown.until_shown("▶ Run on H100 80GB HBM3")
    shown.type(
        ":lua vim.diagnostic.config({ virtual_text = true })"
    )  # Neovim 0.11 marks the line alone unless it is told
    shown.keys("Enter")
    shown.type(":Orbit run")
    shown.keys("Enter")
    shown.until_shown(*shows)
    picture(f"{name}-{nvim.replace('nvim', 'neovim')}", shown)


def test_a_test_of_the_project_gives_the_time(
    neovim: Start, nvim: str, terminal: Callable[..., Terminal], picture: Callable[[str, Terminal], None]
) -> None:
    home = neovim().home
    for path, text in {"pkg/__init__.py": "", "tests/test_softmax.py": TESTS}.items():
        file = Path(home.workspace, path)
        file.parent.mkdir()
        file.write_text(text)
    kernels = Path(home.workspace, "pkg/softmax.py")
    kernels.write_text(KERNELS)
    shown = terminal(home, program(nvim), str(kernels), columns=100, rows=22)
    shown.until_shown("▶ Run: test_softmax (trust this folder)")
    shown.type(":5 | Orbit run")
    shown.keys("Enter")
    shown.until_shown("Trust this folder and run")
    shown.type("1")
    shown.keys("Enter")
    shown.until_shown(f"⏱ {TIME}", "▶ Run: test_softmax")
    shown.keys("Enter")
    picture(f"through-{nvim.replace('nvim', 'neovim')}", shown)
