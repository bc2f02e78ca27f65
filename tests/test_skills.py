"""The skills: each a page that an agent can load, whose command lines parse."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from orbit_lsp.cli import arguments
from orbit_lsp.cli.doors.skills_command import FOLDER
from tests.cli_check import orbit

PAGES = sorted(FOLDER.glob("*/SKILL.md"))
TRANSLATED = Path(__file__).parents[1] / "docs" / "dev" / "kernel-agents.md"
LINES = [
    (page.parent.name, line)
    for page in (*PAGES, TRANSLATED)
    for text in [page.read_text(encoding="utf-8")]
    for line in [
        *(line for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) for line in block.splitlines()),
        *re.findall(r"`(orbit-lsp [^`\n]+)`", text),
    ]
]


@pytest.mark.parametrize(("page", "line"), LINES)
def test_a_command_line_of_a_skill_parses(page: str, line: str) -> None:
    words = shlex.split(line)[1:]
    if len(words) > 1:
        arguments.parse(words)
    else:
        assert words[0] in arguments.COMMANDS


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name)
def test_a_skill_says_what_it_is_for_and_shows_its_command(page: Path) -> None:
    name = page.parent.name
    text = page.read_text(encoding="utf-8")
    assert text.startswith(f"---\nname: orbit-{name}\ndescription: ")
    assert f"```sh\norbit-lsp {name} " in text
    assert len(text) < 4_000


def test_they_are_installed_where_the_agent_looks(tmp_path: Path) -> None:
    code, out, _ = orbit(tmp_path, "skills", "install", "--to", "agent/skills")
    assert (code, out.count("\n")) == (0, len(PAGES))
    for page in PAGES:
        there = tmp_path / "agent" / "skills" / f"orbit-{page.parent.name}" / "SKILL.md"
        assert there.read_text() == page.read_text()
    assert orbit(tmp_path, "skills", "install") == (
        64, "", "orbit-lsp: error: --to is missing: give the folder, as in --to .claude/skills\n",
    )  # fmt: skip
    assert "orbit-run: Build, run and time a CUDA or Triton kernel" in orbit(tmp_path, "skills", "list")[1]


@pytest.mark.parametrize(
    ("theirs", "ours"),
    re.findall(
        r"^\| `(popcorn-cli [^`]+)` \| `(orbit-lsp [^`]+)` \|$", TRANSLATED.read_text("utf-8"), re.MULTILINE
    ),
)
def test_a_command_of_kernel_agents_has_its_own_here(tmp_path: Path, theirs: str, ours: str) -> None:
    (tmp_path / "k.py").write_text("def custom_kernel(data):\n    return data\n")
    code, out, _ = orbit(tmp_path, *shlex.split(ours)[1:], "--no-check", "--dry-run")
    assert code == 0
    assert sorted(out.replace(f"{tmp_path}/", "").split()) == sorted(theirs.split())
