"""A real Neovim without a terminal, driven over its RPC socket, with the plug-in installed as by hand.

Each question is one `nvim --server … --remote-expr`, so nothing but Neovim itself is needed. What is compared
is the screen as Neovim composed it: lenses, hints and messages are in it because they are drawn.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.editors.home import ROOT, Home

LIMIT_S = 300

CONFIG = """\
vim.o.swapfile, vim.o.undofile = false, false
vim.o.shortmess = vim.o.shortmess .. 'FWI'
vim.diagnostic.config({ virtual_text = true, signs = false })
if vim.env.TMUX then
  vim.o.number = true
  vim.cmd('highlight Normal guibg=NONE | highlight NonText guifg=#9b9ea4')
else
  vim.o.columns, vim.o.lines, vim.o.statusline = 240, 24, '%t%m'
  vim.api.nvim_create_autocmd('VimEnter', { callback = function() io.stdout:write('ready\\n') io.stdout:flush() end })
end
"""

PRELUDE = """\
function _G.screen()
  vim.cmd.redraw()
  local rows = {}
  for row = 1, vim.o.lines do
    local cells = {}
    for column = 1, vim.o.columns do
      cells[column] = vim.fn.screenstring(row, column)
    end
    rows[row] = (table.concat(cells):gsub('%s+$', ''))
  end
  return table.concat(rows, '\\n')
end
function _G.float()
  for _, window in ipairs(vim.api.nvim_list_wins()) do
    if vim.api.nvim_win_get_config(window).relative ~= '' then
      return table.concat(vim.api.nvim_buf_get_lines(vim.api.nvim_win_get_buf(window), 0, -1, false), '\\n')
    end
  end
end
"""


class Neovim:
    """One Neovim whose home is `folder`.

    `plugin` is False for a user who copied the single file; `home` is what Home takes.
    """

    def __init__(
        self, binary: str, folder: Path, *, config: str = "", plugin: bool = True, **home: Any
    ) -> None:
        self.binary = binary
        self.home = Home(folder, **home)
        self.folder, self.workspace = folder, self.home.workspace
        start = folder / "data" / "nvim" / "site" / "pack" / "orbit" / "start"
        start.mkdir(parents=True)
        if plugin:
            (start / "orbit").symlink_to(ROOT / "editors" / "nvim")
        else:
            self.home.configure(
                "nvim/plugin/orbit.lua", (ROOT / "editors" / "nvim" / "orbit.lua").read_text()
            )
        options = f"{{ init_options = {{ python = '{self.home.python}', gpu = 'H100' }} }}"
        self.home.configure(
            "nvim/init.lua", f"vim.lsp.config('orbit', {options})\n" + config + CONFIG + PRELUDE
        )
        self.process: subprocess.Popen[str] | None = None
        self.began = 0.0
        self._sockets = tempfile.mkdtemp(prefix="orbit-nvim-")  # a path of at most 107 bytes
        self._environment = self.home.environment

    @property
    def _socket(self) -> str:
        return str(Path(self._sockets) / "socket")

    def open(self, name: str, text: str) -> None:
        """Write a file of the workspace and edit it; the first one starts Neovim."""
        path = self.workspace / name
        path.write_text(text, encoding="utf-8")
        if self.process is not None:
            self.command(f"edit {path}")
            return
        self.began = time.monotonic()
        self.process = subprocess.Popen(
            [self.binary, "--headless", "--listen", self._socket, str(path)],
            cwd=self.workspace, env=self._environment, text=True, encoding="utf-8",
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        assert self.process.stdout
        assert self.process.stdout.readline() == "ready\n"

    def lua(self, code: str) -> Any:
        """What a chunk of Lua returns, through JSON. Raises AssertionError with Neovim's own words."""
        quoted = json.dumps(code, ensure_ascii=False).replace("'", "''")
        asked = f"json_encode(luaeval('assert(loadstring(_A))()', json_decode('{quoted}')))"
        done = self._ask(asked)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def _ask(self, expression: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.binary, "--server", self._socket, "--remote-expr", expression],
            env=self._environment, capture_output=True, text=True, encoding="utf-8", timeout=2 * LIMIT_S, check=False,
        )  # fmt: skip

    def command(self, text: str) -> None:
        self.lua(f"vim.cmd({json.dumps(text)})")

    def until(self, condition: str) -> Any:
        """Wait, Neovim's loop running, until a Lua expression is true; its value."""
        waited = (
            f"local found; vim.wait({LIMIT_S}000, function() found = {condition}; return found end, 20); "
        )
        result = self.lua(waited + "return found or false")
        assert result, f"not within {LIMIT_S} s: {condition}\n{self.screen()}\n{self.messages()}"
        return result

    def until_shown(self, text: str) -> str:
        self.until(f"screen():find({json.dumps(text, ensure_ascii=False)}, 1, true)")
        return self.screen()

    def until_gone(self, text: str) -> str:
        self.until(f"not screen():find({json.dumps(text, ensure_ascii=False)}, 1, true)")
        return self.screen()

    def until_said(self, text: str) -> None:
        """Among the messages, shown still or not."""
        self.until(f"vim.fn.execute('messages'):find({json.dumps(text, ensure_ascii=False)}, 1, true)")

    def screen(self) -> str:
        """The screen without the rows below the text; seconds that pass are written as N."""
        rows = [row for row in self.lua("return screen()").split("\n") if row not in ("", "~")]
        return re.sub(r"(⏳ \w+) \d+ s", r"\1 N s", "\n".join(rows))

    def messages(self) -> str:
        return self.lua("return vim.fn.execute('messages')")

    def close(self) -> None:
        if self.process is not None:
            self._ask("timer_start(0, {-> execute('qall!')})")
            try:
                self.process.wait(LIMIT_S)
            finally:
                self.process.kill()
                assert self.process.stdout
                self.process.stdout.close()
        shutil.rmtree(self._sockets)
