"""`orbit-lsp completion`: what real shells complete behind `orbit-lsp`."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli_check import orbit

SAYS = {
    "bash": """
        source SCRIPT
        COMP_WORDS=(LINE)
        COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
        _shtab_orbit_lsp orbit-lsp "${COMP_WORDS[COMP_CWORD]}"
        printf '%s\\n' "${COMPREPLY[@]}"
    """,
    "fish": "source SCRIPT; complete -C 'LINE'",
}
Complete = Callable[[str], str]


@pytest.fixture(params=sorted(SAYS))
def complete(request: pytest.FixtureRequest, tmp_path: Path) -> Complete:
    shell: str = request.param
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    for name in ("saxpy.cu", "scale.cu", "results"):
        (tmp_path / name).touch()
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    (bin_folder / "orbit-lsp").symlink_to(sys.executable)  # fish completes only what is on PATH
    code, script, _ = orbit(tmp_path, "completion", shell)
    assert code == 0
    (tmp_path / "script").write_text(script)

    def ask(line: str) -> str:
        """What is offered for the last word of a line, sorted."""
        words = line.replace("|", "''") if shell == "bash" else line.replace("|", "")
        asked = SAYS[shell].replace("SCRIPT", "./script").replace("LINE", words)
        environment = {"PATH": f"{bin_folder}:/usr/bin:/bin", "HOME": str(tmp_path)}
        done = subprocess.run(
            [shell, "-c", asked], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        )
        return " ".join(sorted(line.partition("\t")[0] for line in done.stdout.splitlines()))

    return ask


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("orbit-lsp comp", "compare compile completion"),
        ("orbit-lsp run --thr", "--through"),
        ("orbit-lsp run sa", "saxpy.cu"),
        ("orbit-lsp check --tool m", "memcheck"),
        ("orbit-lsp completion |", "bash fish zsh"),
        ("orbit-lsp compile --bud", ""),  # it would have no effect
    ],
)
def test_what_is_offered(complete: Complete, line: str, expected: str) -> None:
    assert complete(line) == expected


def test_zsh_reads_its_script(tmp_path: Path) -> None:
    if shutil.which("zsh") is None:
        pytest.skip("no zsh here")
    (tmp_path / "_orbit-lsp").write_text(orbit(tmp_path, "completion", "zsh")[1])
    asked = "fpath=($PWD $fpath); autoload -Uz compinit && compinit -u -d ./dump; print $_comps[orbit-lsp]; autoload +X _orbit-lsp"
    done = subprocess.run(["zsh", "-fc", asked], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("_orbit-lsp\n", "")


def test_another_shell_is_refused(tmp_path: Path) -> None:
    message = "orbit-lsp: error: orbit-lsp completion does not take 'tcsh'; choose bash, zsh or fish\n"
    assert orbit(tmp_path, "completion", "tcsh") == (
        64,
        "",
        f"{message}  see `orbit-lsp completion --help`\n",
    )
