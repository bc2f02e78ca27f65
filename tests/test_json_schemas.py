"""What commands print with `--json` is what their published schemas say; each command with `--json` has one."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

import jsonschema
import pytest

from orbit_lsp.cli import arguments, command_options
from orbit_lsp.cli.reference import schema
from orbit_lsp.drivers.index import WordIndex
from orbit_lsp.runners import shared_worker
from orbit_remote.common.handshake import Status
from orbit_remote.common.messages import RESULT_VERSION
from tests.cli_check import orbit
from tests.remote.nvcc_check import needs_nvcc
from tests.schema_check import valid

KERNEL = "__global__ void k(int n, float* x) { if (n) x[threadIdx.x] = n; }\n"


def test_each_kind_can_be_chosen_and_is_named_in_the_help(tmp_path: Path) -> None:
    assert set(command_options.SCHEMAS) == set(schema.KINDS)
    help_text = " ".join(orbit(tmp_path, "schema", "--help")[1].split())
    assert [kind for kind in schema.KINDS if kind not in help_text.partition("options:")[0]] == []


@pytest.mark.parametrize("command", arguments.COMMANDS.values(), ids=lambda command: command.name)
def test_the_help_of_schema_names_each_command_with_json(
    command: arguments.CliCommand, tmp_path: Path
) -> None:
    parser = argparse.ArgumentParser(conflict_handler="resolve", epilog="")
    command.options(parser)
    if "--json" in parser.format_help():
        help_text = orbit(tmp_path, "schema", "--help")[1].partition("OUTPUT ")[2]
        assert f" {command.name}" in help_text.replace(",", "").replace(";", "")


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("drafts", ["draft", "k.cu"]),
        ("drivers", ["drivers"]),
        ("explanations", ["explain", "5"]),
        pytest.param("machine", ["doctor"], marks=pytest.mark.slow),
        ("compilation", ["doctor", "k.cu"]),
        pytest.param("disassembly", ["disassemble", "k.cu", "--gpu", "H100", "--against", "b.cu"], marks=[needs_nvcc, pytest.mark.slow]),
        pytest.param("disassembly", ["disassemble", "k.cu", "--gpu", "H100", "--level", "ptx"], marks=needs_nvcc),
        ("pruned", ["jobs", "prune"]),
        ("kernel", ["kernel", "install"]),
        ("ended", ["sessions", "end", "all"]),
        ("stopped", ["stop"]),
        pytest.param("bundle", ["debug-compile", "k.cu", "--gpu", "H100", "--zip"], marks=[needs_nvcc, pytest.mark.slow]),
    ],
)  # fmt: skip
def test_what_a_command_prints(
    kind: str, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The output of `jobs`, `kernel list`, `sessions list` and `modal status` is checked where a job, a notebook kernel and an app are made."""
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))  # stop ends no worker of whoever runs this test
    (tmp_path / "k.cu").write_text(KERNEL)
    (tmp_path / "b.cu").write_text(KERNEL.replace("= n;", "+= n;"))
    code, out, message = orbit(tmp_path, *words, "--json")
    assert code == 0, message
    assert valid(kind, out)


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["run", "absent.cu"], 64),
        (["run", "--bogus"], 64),
        (["disassemble", "absent.cu"], 64),
        (["doctor", "--python", "/absent"], 5),
        (["report", "--from", "absent.csv"], 64),
        (["loop", "status", "--folder", "absent"], 64),
    ],
)
def test_what_fails_before_it_has_a_result_is_a_failure(
    words: list[str], status: int, tmp_path: Path
) -> None:
    code, out, message = orbit(tmp_path, *words, "--json")
    assert code == status, message
    failed = valid("failure", out)
    assert (failed["version"], failed["failure"]["message"] in message) == (RESULT_VERSION, True)


@pytest.mark.parametrize(("command", "kind"), command_options.SCHEMA_OF.items())
def test_a_command_stands_for_its_output(command: str, kind: str, tmp_path: Path) -> None:
    assert command in arguments.COMMANDS
    code, out, _ = orbit(tmp_path, "schema", command)
    told, own = json.loads(out), json.loads(schema.text(kind))
    assert (
        code,
        (own.get("title") or own["items"]["$ref"].rpartition("/")[2]) in out,
        "Failed" in told["$defs"],
    ) == (0, True, True)
    failed = orbit(tmp_path, command, "--bogus", "--json")[1]
    jsonschema.validate(json.loads(failed), told)


@pytest.mark.parametrize(
    "words", [["run", "--on", "H100,L4", "k.cu"], ["compile", "k.cu"], ["doctor", "k.cu"], ["draft", "k.cu"], ["explain", "5"], ["run", "no.cu"]]
)  # fmt: skip
def test_what_a_command_prints_is_as_its_own_schema_says_and_has_the_version(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MODAL_TOKEN_ID", raising=False)
    monkeypatch.setenv("MODAL_CONFIG_PATH", str(tmp_path / "none"))
    (tmp_path / "k.cu").write_text(KERNEL)
    printed = json.loads(orbit(tmp_path, *words, "--json")[1])
    jsonschema.validate(printed, json.loads(schema.text(words[0])))
    assert {each["version"] for each in (printed if isinstance(printed, list) else [printed])} == {
        RESULT_VERSION
    }


def test_stop_cancels_no_jobs_of_others_unasked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stands in for the workers: one with two jobs."""
    busy = Status(7, "/usr/bin/python3", "3.12", "0.1.0", 0.0, ("Neovim", "orbit-lsp api"), 2)
    stopped: list[int] = []

    async def running() -> list[Status]:
        return [busy]

    async def stop(spared: object) -> list[int]:
        del spared
        stopped.append(busy.pid)
        return [busy.pid]

    monkeypatch.setattr(shared_worker, "running", running)
    monkeypatch.setattr(shared_worker, "stop", stop)
    why = "2 jobs of Neovim, orbit-lsp api would be cancelled; --yes stops all the same"
    assert orbit(tmp_path, "stop") == (64, "", f"orbit-lsp: error: {why}\n")
    code, out, _ = orbit(tmp_path, "stop", "--json")
    assert (code, valid("failure", out)["failure"]["message"], stopped) == (64, why, [])
    code, out, _ = orbit(tmp_path, "stop", "--json", "--yes")
    assert (code, valid("stopped", out), stopped) == (0, {"stopped": [7], "version": RESULT_VERSION}, [7])


def test_a_path_that_is_not_utf8(tmp_path: Path) -> None:
    """An editor may open it all the same: the index of drivers then keeps nothing."""
    folder = tmp_path / os.fsdecode(b"d\xff")
    folder.mkdir()
    (folder / "k.cu").write_text(KERNEL)
    (bad := tmp_path / os.fsdecode(b"bad\xff.cu")).write_text(KERNEL)
    for words in (
        ["compile", str(bad)],
        ["drivers", str(folder)],
        ["drivers", str(folder / "k.cu")],
        ["draft", str(folder / "k.cu")],
    ):
        code, out, message = orbit(tmp_path, *words, "--json")
        assert (code, message.count("\n")) == (64, 1), message
        assert (
            "udcff: the path is" in (said := valid("failure", out)["failure"]["message"])
            or "bad\\udcff.cu" in said
            or "k.cu: the path is" in said
        )
    (folder / "test_k.py").write_text("def test_k(): pass\n")
    index = WordIndex(str(folder), lambda: tmp_path / "drivers.sqlite")
    assert index.read()
    assert list(index.files) == ["test_k.py"]
