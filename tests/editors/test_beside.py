"""orbit-lsp beside the servers that authors have anyway: clangd on the same .cu, basedpyright and ruff on the same .py."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from tests.editors.conftest import CAPTURES, Captures, Saw
from tests.editors.home import SAXPY, TIME
from tests.editors.neovim import Neovim

Start = Callable[..., Neovim]

BIN = Path(sys.executable).parent
CLANGD = """\
vim.lsp.config('clangd', { cmd = { 'clangd' }, filetypes = { 'cuda', 'cpp' }, root_markers = { '.git' },
  on_init = function(client) client.server_capabilities.inlayHintProvider = nil end })
vim.lsp.enable('clangd')
"""
"""Without clangd's own hints: Neovim asks for them once, and a busy machine's clangd has none then."""
PYTHON = """\
local types = { cmd = { 'basedpyright-langserver', '--stdio' }, filetypes = { 'python' }, root_markers = { '.git' } }
vim.lsp.config('basedpyright', types)
vim.lsp.config('ruff', { cmd = { 'ruff', 'server' }, filetypes = { 'python' }, root_markers = { '.git' } })
vim.lsp.enable({ 'basedpyright', 'ruff' })
"""
ADD = """\
# pyright: basic
import os

import triton
import triton.language as tl


# orbit: n = 1 << 20; x = randn(n); y = empty(n)
# orbit: launch double[(triton.cdiv(n, 1024),)](x, y, n, BLOCK=1024)
@triton.jit
def double(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)


def sizes() -> int:
    return "1024"
"""
SAID = """\
vim.fn.sort(vim.tbl_map(function(one) return ('%s:%d'):format(one.source, one.lnum + 1) end, vim.diagnostic.get(0)))"""
FORMATS = """\
vim.fn.sort(vim.tbl_map(function(one) return one.name end, vim.tbl_filter(function(one)
  return one:supports_method('textDocument/formatting') end, vim.lsp.get_clients({ bufnr = 0 }))))"""

BEFORE = "     ■ "
"""What Neovim puts before a message behind a line."""


def test_clangd_and_orbit_say_an_error_once(neovim: Start, nvim: str, saw: Saw) -> None:
    captures = Captures(CAPTURES / f"clangd-{nvim}.txt")
    editor = neovim(config=CLANGD, beside=(BIN / "clangd",))
    broken = SAXPY.replace("a * x", "BUG * x")
    editor.open("saxpy.cu", broken)
    editor.until_shown("▶ Run on H100 80GB HBM3")
    editor.until("vim.diagnostic.get(0)[1]")
    editor.until(f"vim.deep_equal({SAID}, {{ 'clang:2' }})")
    captures.check("an error that both see", editor.screen)
    saw("doubled")

    editor.command("silent %s/BUG/a/ | silent write")
    editor.until(f"#{SAID} == 0")
    editor.command("Orbit run")
    editor.until_shown(TIME)
    editor.lua("vim.api.nvim_win_set_cursor(0, {1, 17}); vim.lsp.buf.hover()")
    captures.check("both hovers", editor.until("float()"))
    assert editor.lua(f"return {FORMATS}") == ["clangd"]

    editor.command("fclose!")
    editor.command("silent %s/a \\* x/BUG * x/ | silent write")
    editor.until(f"vim.deep_equal({SAID}, {{ 'clang:2' }})")
    editor.lua("vim.lsp.enable('clangd', false); vim.lsp.get_clients({ name = 'clangd' })[1]:stop(true)")
    editor.until(f"vim.deep_equal({SAID}, {{ 'nvcc:2' }})")


def test_a_file_gets_another_name_beside_clangd(neovim: Start) -> None:
    """Neovim 0.11 tells only one of the servers."""
    editor = neovim(config=CLANGD, beside=(BIN / "clangd",))
    editor.open("saxpy.cu", SAXPY)
    editor.until_shown("▶ Run on H100 80GB HBM3")
    editor.until("#vim.lsp.get_clients({ bufnr = 0 }) == 2")
    editor.command("silent saveas renamed.cu")
    editor.command("Orbit run")
    editor.until_said("Run saxpy: 288 µs")


def test_who_wants_both_errors_gets_both(neovim: Start) -> None:
    both = CLANGD + "vim.lsp.config('orbit', { init_options = { doubled_errors = 'show' } })\n"
    editor = neovim(config=both, beside=(BIN / "clangd",))
    editor.open("saxpy.cu", SAXPY.replace("a * x", "BUG * x"))
    editor.until(f"vim.deep_equal({SAID}, {{ 'clang:2', 'nvcc:2' }})")


def test_basedpyright_and_ruff_keep_what_is_theirs(neovim: Start, nvim: str) -> None:
    captures = Captures(CAPTURES / f"python-{nvim}.txt")
    editor = neovim(config=PYTHON, beside=(BIN / "basedpyright-langserver", BIN / "ruff"))
    editor.open("double.py", ADD)
    editor.until_shown("▶ Run on H100 80GB HBM3")
    editor.until(
        f"#{SAID} >= 2 and vim.list_contains({SAID}, 'basedpyright:17') and vim.list_contains({SAID}, 'Ruff:2')"
    )
    editor.lua("vim.api.nvim_win_set_cursor(0, {11, 5}); vim.cmd('Orbit run')")
    editor.until_shown(TIME)
    captures.check("after a run", lambda: in_order(editor.screen()))
    editor.lua("vim.lsp.buf.hover()")
    captures.check("hovers", editor.until("float()"))
    assert editor.lua(f"return {FORMATS}") == ["ruff"]


def in_order(screen: str) -> str:
    """Messages of two servers about one line stand in the order in which they came: here, by their first letters."""
    rows: list[str] = []
    for row in screen.split("\n"):
        text, *messages = row.rstrip().split(BEFORE)
        rows.append(BEFORE.join([text, *sorted(messages)]))
    return "\n".join(rows)
