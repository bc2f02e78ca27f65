"""What a Neovim in a terminal shows whose kernels run on a host: the lens with its name, the time, and what `doctor` says of it. The GPU is recorded."""

from __future__ import annotations

from collections.abc import Callable

from tests.editors import conftest as editors
from tests.editors.conftest import neovim, picture, program, terminal, tmux
from tests.editors.home import SAXPY, TIME
from tests.editors.terminal import Terminal
from tests.editors.test_neovim import Start
from tests.ssh.host import Host

__all__ = ["neovim", "picture", "terminal", "tmux"]


@editors.pytest.fixture
def nvim() -> str:
    program("nvim-0.12")
    return "nvim-0.12"


def test_lens_and_time_of_a_host(
    host: Host,
    neovim: Start,
    nvim: str,
    terminal: Callable[..., Terminal],
    picture: Callable[[str, Terminal], None],
) -> None:
    host.answers(gpu=True)
    options = f"{{ runner = 'ssh:gpu1', ssh = {{ python = '{host.python}' }} }}"
    home = neovim(config=f"vim.lsp.config('orbit', {{ init_options = {options} }})\n").home
    shown = terminal(home, program(nvim), str(home.write("saxpy.cu", SAXPY)), columns=110, rows=30)
    shown.until_shown("▶ Run on gpu1 (H100)")
    shown.type(":Orbit run")
    shown.keys("Enter")
    shown.until_shown(f"⏱ {TIME}")
    shown.type(":belowright 16split | terminal orbit-lsp doctor --runner ssh:gpu1")
    shown.keys("Enter")
    shown.until_shown("works now", "does not work yet")
    picture(f"ssh-{nvim.replace('nvim', 'neovim')}", shown)
    print(shown.screen())
