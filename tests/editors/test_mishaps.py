"""What a person in Neovim is told when something is not as it should be: one sentence, and the editor goes on."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable

from tests.editors.home import ALONE, SAXPY, TIME
from tests.editors.neovim import Neovim

Start = Callable[..., Neovim]


def test_a_server_that_is_too_old_is_said_and_used(neovim: Start) -> None:
    old = "import orbit_lsp; orbit_lsp.__version__ = '0.0.9'; from orbit_lsp.cli.main import main; main()"
    editor = neovim(server=f"exec {shlex.quote(sys.executable)} -P -c {shlex.quote(old)} serve")
    editor.open("saxpy.cu", SAXPY)
    editor.until_said("orbit-lsp 0.0.9 is older than")
    editor.until_shown("▶ Run on H100 80GB HBM3")


def test_a_python_that_is_not_there_is_said_and_files_are_still_read(neovim: Start) -> None:
    editor = neovim(
        config="vim.lsp.config('orbit', { init_options = { python = '/nowhere/python' } })\n"
        "_G.said = {}; vim.notify = function(text) table.insert(_G.said, text) end\n"
    )
    editor.open("saxpy.cu", SAXPY)
    editor.until("table.concat(said):find('/nowhere/python, cannot be started', 1, true)")
    editor.until_shown("▶ Run")


def test_two_folders_have_each_its_own_server_and_settings(neovim: Start) -> None:
    editor = neovim()
    editor.open("saxpy.cu", SAXPY)
    editor.until_shown("▶ Run on H100 80GB HBM3")
    other = editor.workspace.parent / "other"
    (other / ".git").mkdir(parents=True)
    (other / "alone.cu").write_text(ALONE)
    editor.lua("vim.lsp.config('orbit', { init_options = { arguments = { '--other' } } })")
    editor.command(f"edit {other / 'alone.cu'}")
    editor.until_shown("✎ Draft a launch spec")
    asked = (
        "vim.tbl_map(function(one) local said = one:request_sync('workspace/executeCommand', "
        "{ command = 'orbit.info' }, 5000); return said.result.settings.arguments end, vim.lsp.get_clients())"
    )
    assert editor.lua(f"return {asked}") == [[], ["--other"]]


def test_a_folder_that_is_not_trusted_has_none_of_its_programs_started(neovim: Start) -> None:
    editor = neovim(config="vim.lsp.config('orbit', { init_options = { python = '' } })\n")
    stranger = editor.workspace / ".venv" / "bin" / "python"
    stranger.parent.mkdir(parents=True)
    stranger.write_text('#!/bin/sh\ntouch "$HOME/started"\n')
    stranger.chmod(0o755)
    editor.open("saxpy.cu", SAXPY)
    editor.until_shown("▶ Run")
    editor.until(
        "vim.lsp.get_clients()[1]:request_sync('workspace/executeCommand', { command = 'orbit.info' }, 5000)"
    )
    assert not (editor.folder / "started").exists()


def test_ten_thousand_lines(neovim: Start) -> None:
    name = ALONE + "\n" * 17
    text = "".join(name.replace("scale", f"scale_{number}") for number in range(480)) + SAXPY
    assert text.count("\n") > 10_000
    editor = neovim()
    editor.open("long.cu", text)
    editor.until_shown("▶ Run on H100 80GB HBM3")
    editor.command("normal! G")
    editor.until_shown("saxpy(int n")
    editor.lua("vim.api.nvim_win_set_cursor(0, { vim.fn.line('$') - 3, 0 }); vim.cmd('Orbit run')")
    editor.until_shown(TIME)
    editor.command("silent %s/a \\* x/b * x/")
    editor.until_shown("288 µs ±0.2% · edited since")


def slow_run(neovim: Start) -> Neovim:
    editor = neovim()
    editor.open("slow.cu", SAXPY + "// SLOW\n")
    editor.until_shown("▶ Run on H100 80GB HBM3")
    editor.command("Orbit run")
    editor.until_shown("⏳ running")
    return editor


def test_a_file_that_is_deleted_while_it_runs(neovim: Start) -> None:
    editor = slow_run(neovim)
    (editor.workspace / "slow.cu").unlink()
    editor.command("silent edit! %")
    editor.command("Orbit cancel")
    editor.until_said("Run saxpy: cancelled")


def test_a_file_that_is_renamed_while_it_runs(neovim: Start) -> None:
    editor = slow_run(neovim)
    editor.command("silent file quick.cu | silent write")
    (editor.workspace / "slow.cu").unlink()
    editor.until_shown("▶ Run on H100 80GB HBM3")
    editor.command("Orbit cancel")
    editor.until_said("Run saxpy: cancelled")
    editor.command("silent %s/SLOW/quick/ | silent write")
    editor.lua("vim.api.nvim_win_set_cursor(0, { 1, 0 }); vim.cmd('Orbit run')")
    editor.until_shown(TIME)
