"""What a person sees in Neovim, from opening a file to a number on its kernel's line, and when the server fails.

The server is the real one. Its GPU side is recorded: these machines have no GPU.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from tests.editors.conftest import CAPTURES, Captures, Saw, Seen, program
from tests.editors.home import ALONE, HEADER, PROFILE_TIME, PROFILED, RUN_TIME, SAXPY, SOURCE, TIME
from tests.editors.neovim import Neovim
from tests.editors.terminal import Terminal

Start = Callable[..., Neovim]
ANSWERS = (
    "vim.ui.select = function(items, options, chosen)\n"
    "  for index, item in ipairs(items) do\n"
    "    if options.format_item(item):find('Run') then return chosen(item, index) end\n"
    "  end\n"
    "end\n"
    "vim.ui.open = function(uri) _G.opened = uri; return { wait = function() return { code = 0 } end } end\n"
)


def test_an_author_at_work(neovim: Start, captures: Captures, seen: Seen, nvim: str, saw: Saw) -> None:
    editor = neovim(config=ANSWERS)
    editor.open("saxpy.cu", SAXPY)
    shown = editor.until_shown("▶ Run on H100 80GB HBM3")
    seen.first_lens(nvim.replace("nvim", "neovim"), time.monotonic() - editor.began)
    captures.check("opened", editor.screen)
    assert shown.startswith("▶")
    saw("lens", "above the line")

    editor.lua("vim.api.nvim_win_set_cursor(0, {1, 0}); vim.lsp.codelens.run()")
    editor.until_shown("288 µs ±0.2% | ▶ Run on H100")
    editor.until_shown("Run saxpy: 288 µs")
    editor.until_shown(TIME)
    captures.check("the lens was clicked", editor.screen)
    assert "Run saxpy: 288 µs" in editor.messages()
    saw("result")

    editor.lua("vim.lsp.buf.hover()")
    captures.check("hover", editor.until("float()"))
    editor.command("fclose!")
    saw("hover")

    editor.command("%s/a \\* x/b * x/")
    editor.until_shown("288 µs ±0.2% · edited since | ▶ Run")
    captures.check("edited", editor.screen)
    editor.command("silent undo")
    editor.until_gone("edited since")
    editor.until_shown(TIME)
    captures.check("the edit was undone", editor.screen)
    saw("stale")

    editor.command("silent %s/a \\* x/BUG * x/ | silent write")
    editor.until_shown("is undefined")
    editor.until_shown("edited since · occ")
    editor.until_shown("288 µs ±0.2% · edited since | ▶ Run")
    captures.check("a compile error", editor.screen)
    editor.command("silent undo | silent write")
    editor.until_gone("is undefined")
    editor.until_gone("edited since")
    editor.until_shown(TIME)
    captures.check("and its fix", editor.screen)
    saw("error")

    editor.open("slow.cu", SAXPY + "// SLOW\n")
    editor.until_shown("▶ Run on H100 80GB HBM3")
    editor.command("Orbit run")
    editor.until_shown("⏳ running")
    editor.until_shown("saxpy: running")
    captures.check("progress", editor.screen)
    saw("command", "`:Orbit`")
    saw("progress", "message line")
    editor.command("Orbit cancel")
    editor.until_gone("⏳")
    editor.until_shown("cancelled")
    captures.check("cancelled", editor.screen)
    saw("cancel")

    editor.open("alone.cu", ALONE)
    editor.until_shown("✎ Draft a launch spec")
    editor.lua("vim.lsp.buf.code_action({ apply = true, filter = function(one) return one.edit ~= nil end })")
    editor.until_shown("orbit: launch")
    editor.until_shown("▶ Run on H100 80GB HBM3")
    captures.check("a launch spec drafted by a code action", editor.screen)
    saw("draft")
    editor.lua(
        "vim.lsp.buf.code_action({ apply = true, filter = function(one) return one.title:find('Run on') end })"
    )
    editor.until_shown(TIME)
    saw("action")

    editor.open("memory_bound.cu", PROFILED)
    editor.until_shown("Profile")
    editor.lua("vim.api.nvim_win_set_cursor(0, { 4, 0 }); vim.cmd('Orbit profile')")
    editor.until_shown("memory 79% of peak")
    editor.until_shown("long scoreboard")
    captures.check("a profile", editor.screen)
    saw("profile")
    editor.command("Orbit report")
    assert "/memory_bound-saxpy-" in editor.until("_G.opened")
    saw("report", "browser")


SLOW = """\
vim.lsp.start({ name = 'slow', cmd = function()
  local asked = 0
  local function told() return true end
  return { notify = told, terminate = function() end, is_closing = function() return false end,
    request = function(method, _, answer)
      asked = asked + 1
      local hint = { position = { line = 1, character = 12 }, label = 'of the slow' }
      local result = method == 'initialize' and { capabilities = { inlayHintProvider = true } }
        or method == 'textDocument/inlayHint' and not _G.hinted and { hint }
      _G.hinted = _G.hinted or method == 'textDocument/inlayHint'
      if result then vim.schedule(function() answer(nil, result) end) end
      return true, asked
    end }
end })"""
"""A server that answers once, about the text as it was."""


def test_a_slower_servers_hints_of_a_longer_text_are_no_error(neovim: Start) -> None:
    """Neovim draws them with our answer for the new text."""
    editor = neovim()
    editor.open("saxpy.cu", SAXPY)
    editor.until_shown("▶ Run on H100 80GB HBM3")
    editor.lua(SLOW)
    editor.until("vim.lsp.get_clients({ name = 'slow' })[1].initialized")
    editor.lua("for _, on in ipairs({ false, true }) do vim.lsp.inlay_hint.enable(on, { bufnr = 0 }) end")
    editor.until_shown("of the slow")
    editor.command("silent %s/y.n. = a . x.n.;/;/")
    editor.command("Orbit run")
    editor.until_shown(TIME)
    editor.until_gone("of the slow")
    assert "Decoration provider" not in editor.messages()


def test_a_redraw_between_question_and_answer_loses_no_number(neovim: Start) -> None:
    """Neovim itself draws the old hints then, and the new ones not until the next edit."""
    editor = neovim(
        config="vim.api.nvim_create_autocmd('LspRequest', { callback = function(event)\n"
        "  if event.data.request.method == 'textDocument/inlayHint' then vim.cmd('redraw!') end end })\n"
    )
    editor.open("saxpy.cu", SAXPY)
    editor.until_shown("▶ Run on H100 80GB HBM3")
    editor.command("Orbit run")
    editor.until(
        "(vim.lsp.inlay_hint.get({ bufnr = 0 })[1] or { inlay_hint = { label = '' } }).inlay_hint.label:find('288')"
    )
    assert TIME in editor.screen()


def test_the_commands_act_on_the_kernel_at_the_cursor(neovim: Start) -> None:
    editor = neovim()
    editor.open("two.cu", SAXPY + ALONE.replace("ALONE", "other"))
    editor.until_shown("▶ Run on H100 80GB HBM3")
    editor.lua("vim.api.nvim_win_set_cursor(0, {7, 0}); vim.cmd('Orbit live')")
    editor.until_said("live is on for scale")
    editor.lua("vim.api.nvim_win_set_cursor(0, {2, 0}); vim.cmd('Orbit run')")
    editor.until_shown(TIME)
    editor.lua("vim.api.nvim_win_set_cursor(0, {4, 0}); vim.cmd('Orbit run')")
    editor.until_said("no kernel at the cursor")
    editor.command("Orbit cancel")
    editor.until_said("nothing is running")


def test_a_picker_a_status_line_a_list_of_problems_and_an_export(neovim: Start, saw: Saw) -> None:
    editor = neovim(config=ANSWERS)
    editor.open("saxpy.cu", SAXPY)
    editor.until("require('orbit').statusline() == 'H100 80GB HBM3'")
    editor.lua("vim.api.nvim_win_set_cursor(0, { 2, 0 }); vim.cmd('Orbit')")
    editor.until_shown(TIME)
    editor.command("Orbit problems")
    editor.until_said("orbit: no problems")
    (editor.workspace / "again.cu").write_text(SAXPY)
    editor.command("edit again.cu | Orbit run")  # at once: the server has not yet heard of it
    editor.until_shown("288 µs ±0.2% | ▶ Run")

    editor.command("Orbit export md")
    editor.until("vim.endswith(vim.api.nvim_buf_get_name(0), '.md')")
    assert editor.lua("return vim.fn.search('288 µs')") > 0
    saw("export", "`:Orbit export`")
    editor.command("edit saxpy.cu | silent %s/a \\* x/BUG * x/ | silent write")
    editor.until_shown("is undefined")
    editor.command("Orbit problems")
    listed = "return vim.tbl_map(function(one) return ('%d: %s'):format(one.lnum, one.text) end, vim.fn.getqflist())"
    assert editor.lua(listed) == ['2: identifier "BUG" is undefined']


def test_a_file_that_was_out_of_sight_shows_what_was_measured_meanwhile(neovim: Start) -> None:
    editor = neovim()
    editor.open("saxpy.cu", SAXPY)
    editor.until_shown("▶ Run")
    editor.lua("""
      local client, uri = vim.lsp.get_clients()[1], vim.uri_from_bufnr(0)
      vim.cmd('edit other.cu')
      client:exec_cmd({ title = '', command = 'orbit.run', arguments = { { uri = uri, kernel = 'saxpy' } } })""")
    editor.until_said(TIME)
    editor.command("buffer saxpy.cu")
    editor.until_shown("{ ⏱ 288 µs")


def test_another_servers_hints_for_a_shorter_text_are_drawn_without_ours_for_the_longer_one(
    neovim: Start,
) -> None:
    editor = neovim()
    editor.open("saxpy.cu", SAXPY)
    editor.until_shown("▶ Run")
    editor.command("Orbit run")
    editor.until_shown("{ ⏱ 288 µs")
    editor.lua("""
      local answers = { request = function(method, _, answer)
        if method == 'initialize' then answer(nil, { capabilities = {} }) end
        return true, 1
      end }
      local function yes() return true end
      local function no() end
      local other = vim.lsp.start({ name = 'other', cmd = function()
        return { request = answers.request, notify = yes, is_closing = no, terminate = no }
      end })
      vim.wait(5000, function() return vim.lsp.get_client_by_id(other).initialized end)
      vim.api.nvim_buf_set_lines(0, 0, 1, false, { '//' })
      local method, buf = 'textDocument/inlayHint', vim.api.nvim_get_current_buf()
      local version = vim.lsp.util.buf_versions[buf]
      vim.lsp.handlers[method](nil, {}, { method = method, bufnr = buf, client_id = other, version = version })
      vim.cmd.redraw()""")
    assert "out of range" not in editor.messages()


def test_a_restarted_server_drafts_runs_and_reports(neovim: Start) -> None:
    editor = neovim(config=ANSWERS)
    editor.open("alone.cu", ALONE)
    editor.until_shown("✎ Draft a launch spec")
    first = editor.lua("return vim.lsp.get_clients()[1].id")
    editor.command("Orbit restart")
    editor.until(f"(vim.lsp.get_clients({{ bufnr = 0 }})[1] or {{ id = {first} }}).id ~= {first}")
    editor.until_shown("✎ Draft a launch spec")
    editor.command("Orbit draft")
    editor.until_shown("orbit: launch scale<<<")
    editor.until_shown("▶ Run on H100 80GB HBM3")
    editor.command("Orbit run")
    editor.until_shown(TIME)
    editor.command("Orbit report")
    assert "/alone-scale-" in editor.until("_G.opened")


def test_no_message_asks_for_a_key_press(
    terminal: Callable[..., Terminal], neovim: Start, nvim: str, saw: Saw
) -> None:
    """In a terminal of 80 columns: a run that ends with more than a line to say, and one that prints."""
    editor = neovim(config="vim.o.columns = 80\n")
    path = editor.home.write("crash.cu", SAXPY + "// CRASH\n")
    shown = terminal(editor.home, program(nvim), str(path), columns=80)
    shown.until_shown("▶ Run")
    shown.type(":Orbit run\n")
    shown.until_shown("the worker process ended", "(:Orbit output)")
    shown.type(":%s/CRASH//|silent write|Orbit output\n")
    shown.type("gg:Orbit run\n")
    screen = shown.until_shown("no error", "■ Run saxpy: 288 µs")
    assert "Press ENTER" not in screen
    assert "log. run it again; `orbit-lsp doctor` shows" in screen
    Captures(CAPTURES / f"output-{nvim}.txt").check(
        "what runs have printed", lambda: without_times(shown.screen())
    )
    saw("output", "`:Orbit output`")
    saw("end", "message line")


def test_how_a_compilation_ended_is_whole_in_the_output(neovim: Start) -> None:
    """One that began by itself, and says more than a line."""
    editor = neovim(config="vim.o.columns = 80\n")
    editor.open("saxpy.cu", SAXPY)
    editor.lua("""
      require('orbit.progress').show({ token = 'orbit/compile k.cu r1', value = {
        kind = 'end', title = 'Compile k.cu', message = ('a long error '):rep(60) .. 'with what to do' } })""")
    text = editor.lua(
        "return table.concat(vim.api.nvim_buf_get_lines(require('orbit.output').buffer(), 0, -1, false))"
    )
    assert text.startswith("Compile k.cu: a long error ")
    assert text.endswith("with what to do")


def without_times(screen: str) -> str:
    return re.sub(r"\d\d:\d\d:\d\d", "hh:mm:ss", screen)


def test_every_subcommand_has_its_command_and_its_line_in_the_help(neovim: Start, saw: Saw) -> None:
    editor = neovim()
    editor.open("saxpy.cu", SAXPY)
    editor.until_shown("▶ Run on H100 80GB HBM3")
    offered = editor.lua(
        "return vim.lsp.get_clients()[1].server_capabilities.executeCommandProvider.commands"
    )
    used = editor.lua(
        "return vim.tbl_map(function(one) return one.command or '' end, require('orbit.command').subcommands)"
    )
    assert {name for name, command in used.items() if command and command not in offered} == set()
    text = editor.lua(
        "return table.concat(vim.fn.readfile(vim.api.nvim_get_runtime_file('doc/orbit.txt', false)[1]), '\\n')"
    )
    assert [name for name in used if f"*:Orbit-{name}*" not in text] == []
    assert editor.lua("return vim.fn.getcompletion('Orbit re', 'cmdline')") == [
        "release",
        "report",
        "restart",
    ]
    picked = "vim.ui.select = function(items) _G.picked = items end; vim.cmd('Orbit'); return _G.picked"
    assert sorted(editor.lua(picked)) == sorted(used)
    assert "H100" in editor.lua("return vim.fn.getcompletion('Orbit gpu H', 'cmdline')")
    saw("choose", "`:Orbit gpu <Tab>`")


def test_checkhealth_names_the_server_the_client_and_what_works(neovim: Start) -> None:
    editor = neovim()
    editor.open("saxpy.cu", SAXPY)
    editor.until_shown("▶ Run")
    editor.command("checkhealth orbit")
    answer = editor.lua("return table.concat(vim.api.nvim_buf_get_lines(0, 0, -1, false), '\\n')")
    for words in (
        "bin/orbit-lsp",
        "OK version",
        "positions in utf-8",
        "files: saxpy.cu",
        "CUDA files: compiler",
    ):
        assert words in answer


def test_a_server_that_is_not_there_is_said_once(neovim: Start, saw: Saw) -> None:
    nowhere = "vim.lsp.config('orbit', { cmd = { 'orbit-lsp-of-nowhere' } })\n"
    editor = neovim(config=nowhere)
    editor.open("plain.py", "print(1)\n")
    assert "orbit" not in editor.messages()
    editor.open("saxpy.cu", SAXPY)
    editor.open("again.cu", SAXPY)
    assert editor.messages().count("orbit: there is no program orbit-lsp-of-nowhere. Install orbit-lsp") == 1
    editor.command("Orbit run")
    assert "no server runs; :checkhealth orbit says why" in editor.messages()
    editor.command("checkhealth orbit")
    answer = editor.lua("return table.concat(vim.api.nvim_buf_get_lines(0, 0, -1, false), '\\n')")
    assert "ERROR there is no program orbit-lsp-of-nowhere" in answer
    saw("missing")


def test_a_server_that_ends_at_once_is_tried_four_times_and_then_left_alone(neovim: Start, saw: Saw) -> None:
    editor = neovim(
        config="vim.cmd.packadd('orbit')\nrequire('orbit.server').delays = { 10, 20, 40 }\n"
        "_G.said = {}; vim.notify = function(text) table.insert(_G.said, text) end\n",
        server='echo "started" >> "$HOME/starts"; echo "no such module" >&2; exit 3',
    )
    editor.open("saxpy.cu", SAXPY)
    editor.until("table.concat(said):find('orbit: the server ended', 1, true)")
    messages = [text for text in editor.lua("return said") if text.startswith("orbit")]
    log = editor.folder / "state" / "nvim" / "lsp.log"
    message = "orbit: the server ended 4 times in a row (exit code 3, signal 0). Its last words: "
    assert messages == [f"{message}{log} (:Orbit log). :checkhealth orbit, then :Orbit restart"]
    assert "no such module" in log.read_text()
    assert (editor.folder / "starts").read_text() == "started\n" * 4
    saw("ended")


def test_a_server_that_is_killed_comes_back_with_its_lenses(neovim: Start) -> None:
    editor = neovim()
    editor.open("saxpy.cu", SAXPY)
    editor.until_shown("▶ Run on H100 80GB HBM3")
    first = editor.lua("return vim.lsp.get_clients()[1].id")
    editor.lua("require('orbit.server').delays = { 10 }")
    editor.lua(
        "for _, child in ipairs(vim.api.nvim_get_proc_children(vim.fn.getpid())) do vim.uv.kill(child, 'sigkill') end"
    )
    editor.until(f"(vim.lsp.get_clients({{ bufnr = 0 }})[1] or {{ id = {first} }}).id ~= {first}")
    editor.until_shown("▶ Run on H100 80GB HBM3")


def test_progress_is_left_to_what_else_shows_it(neovim: Start) -> None:
    editor = neovim(
        config="vim.api.nvim_create_autocmd('LspProgress', { callback = function(event)\n"
        "  _G.heard = event.data.params.value.message end })\n"
    )
    editor.open("saxpy.cu", SAXPY)
    editor.until_shown("▶ Run on H100 80GB HBM3")
    editor.command("Orbit run")
    editor.until("_G.heard and _G.heard:find('288 µs', 1, true)")
    assert "288 µs" not in editor.messages()


def test_a_header_with_a_kernel_and_one_without(neovim: Start) -> None:
    """The source lies in another folder; a kernel typed into the other header counts once it is written."""
    editor = neovim()
    (editor.workspace / "src").mkdir()
    (editor.workspace / "src" / "main.cu").write_text(SOURCE)
    editor.open("plain.hpp", "void scale();\n")
    editor.open("scale.hpp", HEADER)
    editor.until_shown("✎ Draft a launch spec")
    attached = "return #vim.lsp.get_clients({ name = 'orbit', bufnr = vim.fn.bufnr('plain.hpp') })"
    assert editor.lua(attached) == 0
    editor.command("edit! plain.hpp | call setline(1, '__global__ void other();') | silent write")
    editor.until(f"(function() {attached} end)() == 1")


def test_a_project_without_a_repository_is_served_whole(neovim: Start) -> None:
    editor = neovim()
    (editor.workspace / ".git").rmdir()
    for name in ("include", "src/gpu"):
        (editor.workspace / name).mkdir(parents=True)
    for name in ("CMakeLists.txt", "src/CMakeLists.txt"):
        (editor.workspace / name).write_text("")
    (editor.workspace / "include" / "count.h").write_text("using Count = int;\n")
    editor.open("src/gpu/scale.cu", "#include <count.h>\n" + HEADER)
    editor.until_shown("✎ Draft a launch spec")
    root = editor.lua("return vim.lsp.get_clients({ name = 'orbit' })[1].root_dir")
    assert root == str(editor.workspace)


def test_the_single_file_shows_lenses_and_numbers_too(neovim: Start) -> None:
    """Its settings are its own: without a Python of ours, the lens is that of a machine without a GPU."""
    editor = neovim(plugin=False)
    editor.open("saxpy.cu", SAXPY)
    editor.until_shown("▶ Run")
    assert editor.lua("return vim.lsp.inlay_hint.is_enabled({ bufnr = 0 })")
    assert editor.lua("return vim.fn.exists(':Orbit')") == 0


def test_in_a_terminal_it_looks_like_this(
    neovim: Start, nvim: str, terminal: Callable[..., Terminal], picture: Callable[[str, Terminal], None]
) -> None:
    home = neovim().home
    shown = terminal(home, program(nvim), str(home.write("memory_bound.cu", PROFILED)), columns=120, rows=24)
    shown.until_shown("▶ Run on H100 80GB HBM3")
    shown.type(":4 | Orbit run")
    shown.keys("Enter")
    shown.until_shown(RUN_TIME)
    shown.type(":Orbit profile")
    shown.keys("Enter")
    shown.until_shown("long scoreboard", f"Profile saxpy: {PROFILE_TIME}")
    picture(nvim.replace("nvim", "neovim"), shown)


def test_the_film(
    neovim: Start, nvim: str, terminal: Callable[..., Terminal], picture: Callable[[str, Terminal], None]
) -> None:
    """Run, profile, an edit and its undo, frame by frame; scripts/picture makes the film of the README of them."""
    home = neovim().home
    file = str(home.write("memory_bound.cu", PROFILED))
    shown = terminal(home, program(nvim), file, columns=110, rows=20)

    def frame(name: str) -> None:
        picture(f"film-{name}-{nvim.replace('nvim', 'neovim')}", shown)

    shown.until_shown("▶ Run on H100 80GB HBM3")
    frame("open")
    shown.type(":4 | Orbit run")
    shown.until_shown(":4 | Orbit run")
    frame("run")
    shown.keys("Enter")
    shown.until_shown(f"⏱ {RUN_TIME}")
    frame("time")
    shown.type(":Orbit profile")
    shown.until_shown(":Orbit profile")
    frame("ask")
    shown.keys("Enter")
    shown.until_shown("long scoreboard", f"Profile saxpy: {PROFILE_TIME}")
    frame("profile")
    shown.type(":7s/a/2*a/")
    shown.keys("Enter")
    shown.until(lambda rows: rows.count("edited since") == 2, "at the lens and at the hint")
    frame("edit")
    shown.keys("u")
    shown.until_gone("edited since")
    frame("undo")
