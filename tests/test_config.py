"""Settings: what is valid holds, what is not is named, and trust is the user's to give."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from orbit_lsp.places.places import Places
from orbit_lsp.state import config, user_folders
from orbit_lsp.state.placement import RunSetup
from orbit_lsp.state.session import Session
from orbit_remote.process import program


@pytest.mark.parametrize(
    ("raw", "complaint"),
    [
        ({"gpu": "H1000"}, "orbit setting `gpu`: 'H1000' is not one of the GPUs on Modal: T4, "),
        (
            {"gpu": "H100:9"},
            "orbit setting `gpu`: 'H100:9' is not rented: a container has 1 to 8 H100, ",
        ),
        ({"device": -1}, "orbit setting `device`: -1 is less than 0; its default is used"),
        ({"device": 64}, "orbit setting `device`: 64 is more than 63; its default is used"),
        ({"device": 0.5}, "orbit setting `device`: 0.5 is not a whole number; its default is used"),
        ({"device": True}, "orbit setting `device`: True is not a whole number; its default is used"),
        (
            {"build_timeout_s": 0},
            "orbit setting `build_timeout_s`: 0 is not more than 0; its default is used",
        ),
        (
            {"device": 10**400},
            "orbit setting `device`: it is not finite, or too large; its default is used",
        ),
        (
            {"device": float("inf")},
            "orbit setting `device`: it is not finite, or too large; its default is used",
        ),
        (
            {"build_timeout_s": 10**400},
            "orbit setting `build_timeout_s`: it is not finite, or too large; ",
        ),
        (
            {"build_timeout_s": float("nan")},
            "orbit setting `build_timeout_s`: it is not finite, or too large; ",
        ),
        ({"python": 3}, "orbit setting `python`: 3 is not text; its default is used"),
        ({"arguments": "a"}, "orbit setting `arguments`: 'a' is not a list; its default is used"),
        (
            {"runner": "cloud"},
            "orbit setting `runner`: 'cloud' is not one of auto, local, modal, ssh:HOST; until it is corrected, no GPU is rented",
        ),
        (
            {"check_memory": {"tools": []}},
            "orbit setting `check_memory.tools`: it is empty; its default is used",
        ),
        ({"hints": {"static": "perhaps"}}, "orbit setting `hints.static`: 'perhaps' is not true or false; "),
        ({"hints": True}, "orbit setting `hints`: True is not an object; its default is used"),
        ({"gpuu": "H100"}, "orbit setting `gpuu` is not known"),
        (["H100"], "orbit settings are not an object"),
        ("H100", "orbit settings are not an object"),
    ],
)
def test_a_bad_value_is_named_and_the_rest_holds(raw: Any, complaint: str) -> None:
    if isinstance(raw, dict):
        raw = raw | {"run_timeout_s": 7}
    settings, complaints = config.parse(raw)
    assert complaints[0].startswith(complaint)
    assert len(complaints) == 1
    assert settings.gpu == ("" if complaint.startswith("orbit setting `gpu`") else "H100")
    assert settings.run_timeout_s == (7 if isinstance(raw, dict) else 60)


def test_a_bad_value_in_a_group_leaves_the_rest_of_the_group() -> None:
    settings, (_,) = config.parse({"hints": {"static": "perhaps", "measured": False}})
    assert settings.hints == config.Hints(measured=False)


@pytest.mark.parametrize(("sent", "meant"), [(3.0, 3), (7, 7)])
def test_a_whole_number_may_be_written_as_a_fraction(sent: float, meant: int) -> None:
    settings, complaints = config.parse({"device": sent, "run_timeout_s": sent})
    assert (settings.device, settings.run_timeout_s, complaints) == (meant, float(meant), ())


@pytest.mark.parametrize("words", ["a\0b", "\ud800"])
@pytest.mark.parametrize(
    "name", ["python", "nvcc", "nvcc_flags", "arguments", "environment", "kernel_macros"]
)
def test_words_that_no_system_call_takes(name: str, words: str) -> None:
    value = words if name in config.EXECUTABLES else ["fine", words]
    settings, (complaint,) = config.parse({name: value, "device": 3})
    assert complaint == (
        f"orbit setting `{name}` holds a NUL character or half a surrogate pair, which no path, argument or "
        "name of a variable can; its default is used"
    )
    assert settings == config.Settings(device=3)


def test_a_name_that_cannot_be_written() -> None:
    _, (complaint,) = config.parse({"\ud800\0": 1})
    assert complaint == "orbit setting `\\ud800\\x00` is not known; docs/guide/settings.md lists the names"


@pytest.mark.parametrize("raw", [None, {}, {"orbit": {"gpu": "B200"}}, {"gpu": "B200"}])
def test_inside_or_outside_its_own_section(raw: Any) -> None:
    settings, complaints = config.parse(raw)
    assert complaints == ()
    assert settings.gpu == ("B200" if raw else "H100")


def places() -> Places:
    return Places(Session(), print, lambda uris: None)


REMEDY = "if you trust the authors of DIR, run `orbit-lsp trust DIR` for all that follow"


@pytest.mark.parametrize(
    ("user", "workspace", "effect", "ignored"),
    [
        ({}, {"python": "./evil", "compile_on_save": False}, {"compile_on_save": False}, "setting `python` is"),
        ({}, {"nvcc": "./evil", "runner": "modal"}, {}, "settings `nvcc`, `runner` are"),
        ({}, {"gpu": "B200:8", "run_timeout_s": 8e4}, {}, "settings `gpu`, `run_timeout_s` are"),
        ({}, {"environment": ["AWS_SECRET_ACCESS_KEY"]}, {}, "setting `environment` is"),
        ({}, {"history": {"mib": 1}}, {}, "setting `history.mib` is"),
        ({}, {"hints": {"static": False}, "live": {"on": "pause"}}, {"hints.static": False}, "setting `live.on` is"),
        ({}, {"modal": {"pip": ["evil"], "budget_usd": 9}}, {}, "settings `modal.pip`, `modal.budget_usd` are"),
        ({}, {"trusted": True}, {"trusted": False}, "setting `trusted` is"),
        ({}, {"kernel_macros": ["K"], "nvcc_flags": ["-DN=1"]}, {"kernel_macros": ("K",), "nvcc_flags": ("-DN=1",)}, ""),
        ({"gpu": "L4"}, {"gpu": "B200"}, {"gpu": "L4"}, "setting `gpu` is"),
        ({"gpu": "L4"}, {"gpu": "L4"}, {"gpu": "L4"}, ""),
        ({"hints": {"static": True}}, {"hints": {"static": False, "measured": False}},
         {"hints.static": True, "hints.measured": False}, ""),
        ({"trusted": True}, {"gpu": "B200", "history": {"mib": 1}}, {"gpu": "B200", "history.mib": 1}, ""),
        ({"trusted": True, "gpu": "L4"}, {"gpu": "B200", "device": 1}, {"gpu": "L4", "device": 1}, ""),
        ({"trusted": True}, {"trusted": False}, {"trusted": True}, ""),
        ({"separates_user": True, "gpu": "L4"}, {"user": {"gpu": "T4"}, "gpu": "B200"}, {"gpu": "T4"}, "setting `gpu` is"),
    ],
)  # fmt: skip
def test_what_a_workspace_may_set(user: Any, workspace: Any, effect: dict[str, Any], ignored: str) -> None:
    result = places()
    result.settings.options = user
    complaints = result.settings.configure(workspace)
    for name, value in effect.items():
        held: Any = result.settings.now
        for part in name.split("."):
            held = getattr(held, part)
        assert held == value, name
    untouched = {name.partition(".")[0] for name in effect} | {"trusted"}
    for name in set(workspace) - untouched - {"user"}:
        assert getattr(result.settings.now, name) == getattr(config.Settings(), name)
    assert [complaint.partition(" ignored, because")[0] for complaint in complaints] == (
        [f"orbit: the workspace's {ignored}"] if ignored else []
    )


def test_what_is_ignored_comes_with_what_to_do() -> None:
    result = places()
    (complaint,) = result.settings.configure({"nvcc": "./evil"})
    assert complaint == (
        "orbit: the workspace's setting `nvcc` is ignored, because the workspace is not trusted. Set it in your own "
        f"settings, or {REMEDY}"
    )


def test_no_client_speaks_for_the_user_unless_the_user_says_so() -> None:
    result = places()
    result.settings.options = {}
    result.settings.configure({"user": {"nvcc": "./evil", "trusted": True}})
    assert (result.settings.now.nvcc, result.settings.now.trusted) == ("", False)


def test_a_new_setting_is_refused_to_a_workspace_by_default() -> None:
    assert not config.setting(1, "new").metadata["workspace"]
    allowed = {name for name, _, field in config.rows() if field.metadata["workspace"]}
    assert allowed == {
        "nvcc_flags", "compile_commands", "kernel_macros", "compile_on_save", "compile_on_idle", "doubled_errors", "hints.static", "hints.measured",
        "hints.profile", "hints.instructions", "lens.parts", "profile.line_percent", "profile.excess_percent", "check_memory.lens", "costs.spills", "every_gpu",
        "costs.local_memory", "costs.shared_memory", "costs.block_size", "costs.occupancy", "report.open",
    }  # fmt: skip


def test_the_users_own_setting_that_a_client_sends_back_is_no_complaint() -> None:
    result = places()
    result.settings.options = {"nvcc": "/opt/nvcc"}
    assert result.settings.configure({"nvcc": "/opt/nvcc"}) == ()
    assert result.settings.now.nvcc == "/opt/nvcc"


def test_the_user_may_name_programs_and_give_trust() -> None:
    result = places()
    result.settings.options = {"python": "/opt/python", "trusted": True}
    assert result.settings.configure({"nvcc": "/opt/nvcc"}) == ()
    assert (result.settings.now.python, result.settings.now.nvcc, result.settings.now.trusted) == (
        "/opt/python",
        "/opt/nvcc",
        True,
    )


def test_the_workspaces_own_environment_is_used_only_where_it_is_trusted(tmp_path) -> None:
    python = tmp_path / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.touch()
    session = Session(setup=RunSetup(folders=[str(tmp_path)]))
    result = Places(session, print, lambda uris: None)
    result.settings.configure(None)
    assert result.python.path != str(python)
    result.settings.options = {"trusted": True}
    result.settings.configure(None)
    assert result.python.path == str(python)


@pytest.mark.skipif(sys.platform != "linux", reason="XDG's variables are read on Linux")
@pytest.mark.parametrize(
    ("value", "folder"), [("/c", "/c"), ("relative", "~/.cache"), ("./c", "~/.cache"), ("", "~/.cache")]
)
def test_a_relative_cache_folder_is_ignored(value: str, folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", value)
    assert user_folders.cache_folder() == Path(folder).expanduser() / "orbit-lsp"


WINDOWS = {
    "SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATHEXT", "APPDATA", "LOCALAPPDATA", "USERPROFILE",
    "NUMBER_OF_PROCESSORS", "PROGRAMFILES", "PROGRAMDATA",
}  # fmt: skip


def test_the_page_lists_the_variables_that_a_program_gets() -> None:
    page = config.markdown().partition("## Environment variables")[2]
    listed = set(re.findall(r"`([A-Z_]+)`", page))
    passed = {*program.PASSED, *program.PASSED_PREFIXES}
    assert listed == passed - WINDOWS


@pytest.mark.parametrize(("held", "refused"), [(None, False), (0o700, False), (0o777, True), ("link", True)])
def test_a_user_without_a_home_gets_one_that_nobody_else_can_write(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, held: int | str | None, refused: bool
) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("HOME", "")
    assert user_folders.lend_home() == ""
    monkeypatch.setattr(Path, "home", homeless)
    lent = tmp_path / f"orbit-lsp-{os.getuid()}"
    if held == "link":
        lent.symlink_to(tmp_path)
    elif isinstance(held, int):
        lent.mkdir()
        lent.chmod(held)
    if refused:
        with pytest.raises(PermissionError, match="set HOME to a folder of your own"):
            user_folders.lend_home()
    else:
        assert user_folders.lend_home() == os.environ["HOME"] == str(lent)
        assert lent.stat().st_mode & 0o077 == 0
