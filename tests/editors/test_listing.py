"""Source and SASS side by side in Neovim. The compiler and the disassembler are real, and so is the worker: neither needs a GPU."""

from __future__ import annotations

import sys
from collections.abc import Callable

from tests.editors.conftest import Saw, program
from tests.editors.home import ROOT
from tests.editors.neovim import Neovim
from tests.editors.terminal import Terminal

SAXPY = (ROOT / "examples" / "saxpy.cu").read_text()
SUM = "  if (i < n) y[i] = a * x[i] + y[i];"
REAL = f"vim.lsp.config('orbit', {{ init_options = {{ python = '{sys.executable}' }} }})\n"
ACTION = "vim.lsp.buf.code_action({ apply = true, filter = function(one) return one.title == 'Show SASS (saxpy)' end })"
MARKED = """(function()
  local marked, space = {}, vim.api.nvim_get_namespaces()['orbit.listing']
  for _, window in ipairs(vim.api.nvim_list_wins()) do
    local buf = vim.api.nvim_win_get_buf(window)
    for _, mark in ipairs(space and vim.api.nvim_buf_get_extmarks(buf, space, 0, -1, {}) or {}) do
      table.insert(marked, (vim.api.nvim_buf_get_lines(buf, mark[2], mark[2] + 1, false)[1]))
    end
  end
  return table.concat(marked, '\\n')
end)()"""


def test_the_instructions_of_the_line_at_the_cursor_are_marked_beside_it(
    neovim: Callable[..., Neovim], saw: Saw
) -> None:
    editor = neovim(config=REAL)
    editor.open("saxpy.cu", SAXPY)
    editor.until_shown("saxpy(int n")
    editor.until_shown("occ ")
    editor.lua(f"vim.api.nvim_win_set_cursor(0, {{ 7, 0 }}); {ACTION}")
    editor.until_shown("// saxpy.cu:7    if (i < n) y[i] = a * x[i] + y[i];")
    shown = editor.screen()
    assert f"\n{SUM}" in shown
    assert "FFMA R" in shown
    assert editor.lua("return { vim.fn.expand('%:t'), vim.fn.line('.'), vim.fn.winnr('$') }") == [
        "saxpy.cu",
        7,
        2,
    ]
    of_sum = editor.until(MARKED)
    assert "FFMA" in of_sum
    assert "SR_TID.X" not in of_sum

    editor.command("normal! k")
    of_index = editor.until(f"{MARKED}:find('SR_TID.X', 1, true) and {MARKED}")
    assert "FFMA" not in of_index
    editor.command("normal! 2k")
    editor.until(f"{MARKED} == ''")

    editor.command("silent %s/a . x.i. + y.i./a * x[i]/ | silent write")
    editor.until_shown("instructions since the last time")
    editor.command("7")
    editor.until(f"{MARKED}:find('FMUL', 1, true)")
    editor.command("silent normal! ggO// a line")
    editor.command("8")
    editor.until(f"{MARKED} == ''")  # the listing is of the text before
    saw("listing")


def test_in_a_terminal_it_looks_like_this(
    neovim: Callable[..., Neovim],
    nvim: str,
    terminal: Callable[..., Terminal],
    picture: Callable[[str, Terminal], None],
) -> None:
    home = neovim(
        config=REAL
        + "vim.o.cursorline, vim.o.linebreak, vim.o.breakindent, vim.o.laststatus = true, true, true, 3\n"
    ).home
    shown = terminal(home, program(nvim), str(home.write("saxpy.cu", SAXPY)), columns=163, rows=27)
    shown.until_shown("occ ")
    shown.type(":7 | Orbit disassemble")
    shown.keys("Enter")
    shown.until_shown("y[i] = a * x[i] + y[i];", "// saxpy.cu:7    if (i < n)", "FFMA R")
    shown.type(":vertical resize 78 | redraw | echo")
    shown.keys("Enter")
    shown.until_shown("float* x, float* y) {\n")
    picture(f"sass-{nvim.replace('nvim', 'neovim')}", shown)
