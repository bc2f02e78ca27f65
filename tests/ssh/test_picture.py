"""What a Neovim in a terminal shows whose kernels run on a host: the lens with its name, the time, and what `doctor` says of it. The GPU is
recorded.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.editors.conftest import neovim, picture, program, terminal, tmux
from tests.editors.home import SAXPY, TIME
from tests.editors.terminal import Terminal
from tests.editors.test_neovim import Start
from tests.ssh.host import Host
from tests.ssh.test_doors import on_path

pytestmark = pytest.mark.slow
__all__ = ["neovim", "picture", "terminal", "tmux"]


@pytest.fixture
def nvim() -> str:
    program("nvim-0.12")
    return "nvim-0.12"


def test_lens_time_and_doctor_of_a_host(
    host: Host,
    neovim: Start,
    nvim: str,
    terminal: Callable[..., Terminal],
    picture: Callable[[str, Terminal], None],
) -> None:
    host.answers(gpu=True)
    on_path(host)
    home = neovim(config="vim.lsp.config('orbit', { init_options = { runner = 'ssh:gpu1' } })\n").home
    file = str(home.write("saxpy.cu", SAXPY))
    shown = terminal(home, program(nvim), file, columns=112, rows=34)
    shown.until_shown("▶ Run on gpu1 (H100)")
    shown.type(":Orbit run")
    shown.keys("Enter")
    shown.until_shown(f"⏱ {TIME}")
    shown.type(":belowright 25split | terminal orbit-lsp doctor --runner ssh:gpu1")
    shown.keys("Enter")
    shown.until_shown("CUDA files: run and timed on NVIDIA H100 80GB HBM3", "Process exited 0")
    picture(f"ssh-{nvim.replace('nvim', 'neovim')}", shown)
