"""What commands print with `--json` is what their published schemas say; each command with `--json` has one, or is listed."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from orbit_lsp.cli import arguments, command_options, schema
from orbit_remote.common.messages import VERSION
from tests.cli_check import orbit
from tests.remote.nvcc_check import needs_nvcc

SCHEMAS = Path(__file__).parent.parent / "docs" / "schema"
WITHOUT = {"jobs", "kernel", "modal", "sessions", "stop"}
"""Short lists of what is kept or runs."""
KERNEL = "__global__ void k(int n, float* x) { if (n) x[threadIdx.x] = n; }\n"


def valid(kind: str, text: str) -> object:
    TypeAdapter(schema.KINDS[kind]).validate_json(text, strict=True)
    published = json.loads((SCHEMAS / f"{kind}-{VERSION}.json").read_text())
    result = json.loads(text)
    if isinstance(result, dict):
        assert set(result) == set(published["properties"])
    return result


def test_each_kind_can_be_chosen_and_is_named_in_the_help(tmp_path: Path) -> None:
    assert set(command_options.SCHEMAS) == set(schema.KINDS)
    help_text = " ".join(orbit(tmp_path, "schema", "--help")[1].split())
    assert [kind for kind in schema.KINDS if kind not in help_text.partition("options:")[0]] == []


@pytest.mark.parametrize("command", arguments.COMMANDS.values(), ids=lambda command: command.name)
def test_the_help_of_schema_names_each_command_with_json(command: arguments.Command, tmp_path: Path) -> None:
    parser = argparse.ArgumentParser(conflict_handler="resolve", epilog="")
    command.options(parser)
    if "--json" in parser.format_help() and command.name not in WITHOUT:
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
        pytest.param("bundle", ["debug-compile", "k.cu", "--gpu", "H100", "--zip"], marks=[needs_nvcc, pytest.mark.slow]),
    ],
)  # fmt: skip
def test_what_a_command_prints(kind: str, words: list[str], tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text(KERNEL)
    (tmp_path / "b.cu").write_text(KERNEL.replace("= n;", "+= n;"))
    code, out, message = orbit(tmp_path, *words, "--json")
    assert code == 0, message
    assert valid(kind, out)
