"""An author without a GPU and without a token: what lenses name, what a click answers, and how a token is noticed."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import textwrap
from pathlib import Path

import psutil
import pytest

from orbit_lsp.runners.modal import account, spending
from orbit_lsp.runners.modal.costs import RentalCosts
from orbit_lsp.state.placement import RunSetup
from orbit_remote.common import messages as c
from tests.cli_check import orbit
from tests.e2e.conftest import Editor
from tests.e2e.test_run import SOURCE
from tests.modal.conftest import click_run, gpus
from tests.modal.test_rented_in_editor import answering
from tests.modal_loopback.loopback import LIMIT_S, Loopback
from tests.remote.nvcc_check import needs_nvcc
from tests.schema_check import valid
from tests.settings_check import settings_of_values

MAKES = f"`{sys.executable} -P -m modal token new` makes a token"
BY_HAND = "make a token at modal.com/settings/tokens, put it into MODAL_TOKEN_ID and MODAL_TOKEN_SECRET"
COSTS = (
    "- H100 costs $4.08/h (rates of 2026-09-20): about $0.068 for a first run of 60 s.\n"
    "- After a run an editor keeps the GPU warm for 300 s, which costs $0.34 more.\n"
    "- The budget is $10.00 a month.\n"
)
WITHOUT = (
    "- Or use another machine's GPU by ssh: the setting `orbit.runner`, on the command line `--runner`, is then `ssh:HOST`.\n"
    "- Without a GPU you get compiler errors, registers and occupancy: a .cu file shows them when it is opened, a .py file after Compile."
)
WAYS = f"- Rent one from Modal: {MAKES}; then run it again.\n{COSTS}{WITHOUT}"


@pytest.fixture
def file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Modal's own, which is not there yet."""
    for name in ("MODAL_TOKEN_ID", "MODAL_TOKEN_SECRET", "MODAL_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "modal.toml"
    monkeypatch.setenv("MODAL_CONFIG_PATH", str(path))
    monkeypatch.setenv("BROWSER", "true")  # Modal's client opens none in such a one
    return path


def token(file: Path, secret: str = "as-loopback", name: str = "ak-loopback") -> None:
    file.write_text(f'[work]\ntoken_id = "{name}"\ntoken_secret = "{secret}"\nactive = true\n')


async def opened(start, name: str = "vscode", **settings: object) -> Editor:
    editor: Editor = await start(name, compile_on_save=False, **settings)
    editor.open("saxpy.cu", SOURCE)
    return editor


async def lens(editor: Editor, title: str) -> None:
    await editor.asked_until(editor.titles, lambda titles: (0, title) in titles)


async def test_from_a_click_without_a_gpu_to_a_rented_one(h100s: Loopback, file: Path, start) -> None:
    editor = await opened(start)
    (editor.folder / "modal.py").write_text("raise SystemExit('not the client of Modal')\n")
    asked = answering(editor, "Make a Modal token")
    await lens(editor, "▶ Run (choose a GPU)")
    await click_run(editor)
    await lens(editor, "▶ Run on H100")
    assert asked == [f"{c.NO_GPU}.\n{WAYS}"]
    page = "https://modal.invalid/token-flow/tf-1"
    assert await editor.until(lambda: len(shown := editor.messages()) == 3 and shown) == [
        f"orbit: sign in on Modal's page; if no browser opened, open {page}",
        "orbit: Enter this code: ABCD",
        "orbit: runs on Modal get H100 from now on, $4.08/h at rates of 2026-09-20",
    ]
    await click_run(editor)
    await editor.until(lambda: any("288 µs" in str(text) for text in editor.ended()))
    assert gpus(h100s) == ["H100!"]


async def test_a_proxy_that_modals_client_cannot_use_is_said_at_once(
    file: Path, start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MODAL_DISABLE_API_PROXY", raising=False)
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.lab:3128")
    monkeypatch.setenv("NO_PROXY", "")
    editor = await opened(start)
    answering(editor, "Make a Modal token")
    await lens(editor, "▶ Run (choose a GPU)")
    await click_run(editor)
    (message,) = await editor.until(editor.messages)
    assert message.startswith(
        "orbit: no token was made: Modal's client needs two packages to go through the proxy"
    )
    assert "modal[api-proxy-support]" in message


async def test_without_a_network_it_is_said_soon_and_no_process_is_left(
    h100s: Loopback, file: Path, start
) -> None:
    h100s.refuse_connections()
    editor: Editor = await start(
        "vscode", compile_on_save=False, constants={"orbit_lsp.server.gpu_ways.SILENT_S": 0.1}
    )
    editor.open("saxpy.cu", SOURCE)
    answering(editor, "Make a Modal token")
    await lens(editor, "▶ Run (choose a GPU)")
    await click_run(editor)
    (message,) = await editor.until(editor.messages)
    assert message.startswith("orbit: Modal does not answer yet; check this machine's network connection")
    left = [process for process in psutil.process_iter(["cmdline"]) if _makes_token(process, file)]
    assert len(left) == 1
    await editor.close()
    await asyncio.to_thread(psutil.wait_procs, left, LIMIT_S)
    assert not any(process.is_running() for process in left)


def _makes_token(process: psutil.Process, file: Path) -> bool:
    with contextlib.suppress(psutil.Error):
        words = process.cmdline()[-3:]
        return words == ["modal", "token", "new"] and process.environ().get("MODAL_CONFIG_PATH") == str(file)
    return False


async def test_a_token_comes_ends_and_another_one_comes_while_the_editor_is_open(
    h100s: Loopback, file: Path, start
) -> None:
    editor = await opened(start)
    await lens(editor, "▶ Run (choose a GPU)")
    token(file, secret="as-ended")
    await lens(editor, "▶ Run on H100")
    await click_run(editor)
    (message,) = await editor.until(editor.messages)
    assert message.startswith("Modal does not accept the token: ")
    assert message.endswith(MAKES)
    token(file)
    await lens(editor, "▶ Run on H100")
    await click_run(editor)
    await editor.until(lambda: any("288 µs" in str(text) for text in editor.ended()))
    file.unlink()  # noqa: ASYNC240
    await editor.asked_until(editor.titles, lambda titles: (3, "▶ Run (choose a GPU)") in titles)
    h100s.until(lambda world: not world.alive())  # what the token had rented is released


async def test_the_next_lenses_know_a_token_and_a_click_on_older_ones_rents_nothing(
    h100s: Loopback, file: Path, start
) -> None:
    editor = await opened(start)
    await lens(editor, "▶ Run (choose a GPU)")
    token(file)
    await editor.command("orbit.run", {"uri": editor.uri, "kernel": "saxpy"})
    assert await editor.until(editor.messages) == [
        "orbit: runs on Modal get H100 from now on, $4.08/h at rates of 2026-09-20: a token was found. Nothing was run yet: click again"
    ]
    file.unlink()  # noqa: ASYNC240
    assert (3, "▶ Run (choose a GPU)") in await editor.titles()
    token(file)
    assert (0, "▶ Run on H100") in await editor.titles()
    assert gpus(h100s) == []


async def test_a_token_is_noticed_while_nobody_asks(h100s: Loopback, file: Path, start) -> None:
    editor: Editor = await start(
        "vscode", compile_on_save=False, constants={"orbit_lsp.server.language_server._WATCHES_S": 0.05}
    )
    editor.open("saxpy.cu", SOURCE)
    await lens(editor, "▶ Run (choose a GPU)")
    editor.refreshed.clear()
    token(file)
    await editor.until(lambda: "workspace/codeLens/refresh" in editor.refreshed)


@needs_nvcc
async def test_what_was_compiled_before_the_token_came_is_not_called_edited(file: Path, start) -> None:
    editor: Editor = await start("vscode")
    editor.open("saxpy.cu", SOURCE)
    before = await editor.asked_until(editor.hints, bool)
    token(file)
    await lens(editor, "▶ Run on H100")
    await editor.asked_until(editor.hints, lambda hints: hints == before)


@pytest.mark.slow
async def test_a_token_of_another_workspace_gets_an_app_of_its_own(
    h100s: Loopback, file: Path, start
) -> None:
    """Nothing of the first workspace is asked for in the second."""
    h100s.do(lambda world: world.tokens.update({"ak-other": "as-other"}))
    token(file)
    editor = await opened(start)
    await lens(editor, "▶ Run on H100")
    await click_run(editor)
    await editor.until(lambda: len(editor.ended()) == 1)
    token(file, "as-other", "ak-other")
    await lens(editor, "▶ Run on H100")
    await click_run(editor)
    await editor.until(lambda: len(editor.ended()) == 2)
    assert [text.partition(" · ")[0] for text in editor.ended()] == ["288 µs", "288 µs"]


async def test_where_the_author_chose_modal_the_lens_says_that_the_token_is_missing(
    file: Path, start
) -> None:
    editor = await opened(start, runner="modal")
    asked = answering(editor, None)
    await lens(editor, "▶ Run (no Modal token)")
    await click_run(editor)
    await editor.until(lambda: asked)
    assert asked == [f"{account.NO_TOKEN}.\n{WAYS}"]


async def test_the_choice_of_a_gpu_has_prices_and_then_the_ways_to_it(file: Path, start) -> None:
    editor = await opened(start)
    answering(editor, "L4, $0.93/h")
    await lens(editor, "▶ Run (choose a GPU)")
    await editor.command("orbit.chooseGpu")
    (message,) = await editor.until(editor.messages)
    assert message.startswith(
        f"orbit: runs will get L4. There is no GPU here yet.\n- Rent one from Modal: {MAKES}; "
    )
    assert "L4 costs $0.93/h (rates of 2026-09-20): " in message
    await lens(editor, "▶ Run on L4 (no Modal token)")


async def test_a_client_that_cannot_be_asked_gets_the_same_in_a_message(file: Path, start) -> None:
    editor = await opened(start, "emacs")
    await editor.command("orbit.run", {"uri": editor.uri, "kernel": "saxpy"})
    assert await editor.until(editor.messages) == [f"{c.NO_GPU}.\n{WAYS}"]


def test_the_command_line_says_the_ways_and_the_prices(file: Path, tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text(SOURCE)
    code, _, errors = orbit(tmp_path, "run", "k.cu")
    assert (code, textwrap.indent(WAYS, "  ") in errors) == (5, True)
    code, out, errors = orbit(tmp_path, "modal", "status")
    assert code == 5
    assert "  H100          $4.08/h  $0.068              $0.34\n" in out
    assert "The budget is $10.00 a month" in out
    assert f"✗ {account.NO_TOKEN}\n  fix it: {MAKES}" in errors
    code, out, _ = orbit(tmp_path, "modal", "status", "--json")
    status = valid("modal", out)
    assert (code, status["token"], status["failure"]["message"]) == (5, None, account.NO_TOKEN)
    (h100,) = [each for each in status["prices"] if each["gpu"] == "H100"]
    assert (round(h100["usd_per_h"], 2), h100["rates"], status["budget_usd"]) == (
        4.08,
        "rates of 2026-09-20",
        10,
    )


SPEC = """\
// orbit: launch scale<<<1, 32>>>(1, empty(1))
__global__ void scale(int n, float* y) {
  y[0] = n
}
"""
PROGRAM = SPEC.replace("orbit:", "") + "int main() { scale<<<1, 1>>>(1, nullptr); }"
MISTAKE = 'k.cu:4:1: error: expected a ";" [nvcc]'


@needs_nvcc
@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("run", SPEC),
        ("profile", SPEC),
        ("check", PROGRAM),
        ("run --runner modal", PROGRAM),
    ],
)
def test_a_compile_error_goes_before_the_ways_to_a_gpu(
    file: Path, tmp_path: Path, words: str, text: str
) -> None:
    (tmp_path / "k.cu").write_text(text)
    command, *options = words.split()
    code, out, errors = orbit(tmp_path, command, "k.cu", *options)
    assert (code, MISTAKE in out + errors, "Modal" in errors) == (1, True, False)


@needs_nvcc
async def test_a_click_shows_a_compile_error_before_the_ways_to_a_gpu(file: Path, start) -> None:
    editor: Editor = await start("vscode", compile_on_save=False)
    asked = answering(editor, None)
    editor.open("k.cu", SPEC)
    await editor.asked_until(editor.titles, lambda titles: (1, "▶ Run (choose a GPU)") in titles)
    await editor.command("orbit.run", {"uri": editor.uri, "kernel": "scale"})
    await editor.until(lambda: any("expected a" in str(shown) for shown in editor.diagnostics()))
    assert asked == []


@pytest.mark.parametrize(
    ("settings", "begins"),
    [
        ({}, f"- Rent one from Modal: {MAKES}; "),
        ({"runner": "local"}, f"- Rent one from Modal: set the runner, which is `local`, to `auto`, and {MAKES}; "),
        ({"gpu": "RTX 4090"}, f"- Rent one from Modal: {MAKES}; then run it again.\n- The GPUs are T4, L4, "),
    ],
)  # fmt: skip
def test_the_ways(file: Path, settings: dict[str, object], begins: str) -> None:
    del file
    assert spending.ways(RunSetup(settings_of_values(settings)), RentalCosts()).startswith(begins)


def test_with_a_token_the_ways_name_no_step_to_it(file: Path) -> None:
    token(file)
    assert spending.ways(RunSetup(settings_of_values({})), RentalCosts()).startswith("- H100 costs $4.08/h ")


@pytest.mark.parametrize("where", ["no home", "read-only", "variables", "a profile"])
def test_the_way_to_a_token_works_there(
    file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, where: str
) -> None:
    expected = BY_HAND
    if where == "no home":
        monkeypatch.delenv("MODAL_CONFIG_PATH")
        monkeypatch.setattr(Path, "home", _homeless)
    elif where == "read-only":
        monkeypatch.setattr("os.access", lambda path, mode: path != tmp_path)
    elif where == "variables":
        monkeypatch.setenv("MODAL_TOKEN_ID", "ak-ended")
    else:
        monkeypatch.setenv("MODAL_PROFILE", "my team")
        expected = f"`{sys.executable} -P -m modal token new --profile 'my team'` makes a token"
    assert account.remedy().startswith(expected)
    assert account.makes_token() == (where == "a profile")
    assert (account.token_place(), account.stamp()) == (None, None)
    assert not file.exists()


def _homeless() -> Path:
    raise RuntimeError("Could not determine home directory.")
