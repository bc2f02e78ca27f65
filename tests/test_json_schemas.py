"""What commands print with `--json` is what their published schemas say; each command with `--json` has one."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from orbit_lsp.cli import arguments, command_options, schema
from tests.cli_check import orbit
from tests.remote.nvcc_check import needs_nvcc
from tests.schema_check import valid

KERNEL = "__global__ void k(int n, float* x) { if (n) x[threadIdx.x] = n; }\n"


def test_each_kind_can_be_chosen_and_is_named_in_the_help(tmp_path: Path) -> None:
    assert set(command_options.SCHEMAS) == set(schema.KINDS)
    help_text = " ".join(orbit(tmp_path, "schema", "--help")[1].split())
    assert [kind for kind in schema.KINDS if kind not in help_text.partition("options:")[0]] == []


@pytest.mark.parametrize("command", arguments.COMMANDS.values(), ids=lambda command: command.name)
def test_the_help_of_schema_names_each_command_with_json(command: arguments.Command, tmp_path: Path) -> None:
    parser = argparse.ArgumentParser(conflict_handler="resolve", epilog="")
    command.options(parser)
    if "--json" in parser.format_help():
        help_text = orbit(tmp_path, "schema", "--help")[1].partition("OUTPUT ")[2]
        assert f" {command.name}" in help_text.replace(",", "").replace(";", "")


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("drafts", ["draft", "k.cu"]),
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
