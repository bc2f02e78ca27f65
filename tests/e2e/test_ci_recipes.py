"""The recipes of docs/ci.md: each is what its service's schema says, and its shell lines run in a clean clone. The GPU side is recorded."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_ab_compare import committed, git
from tests.e2e.test_history import FASTER, SAXPY

yaml = pytest.importorskip("yaml")
ROOT = Path(__file__).parents[2]
RECIPES = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "ci.md").read_text(), re.DOTALL)
JOB = "name: gate\non: pull_request\njobs:\n  gate:\n    runs-on: ubuntu-latest\n    steps:\n      - uses: actions/checkout@v4\n"
"""What is above the steps of a recipe that has only these."""
GITHUB, GITLAB, BUILDKITE, MODAL = RECIPES[0], RECIPES[1], RECIPES[2], JOB + RECIPES[3]
SLOWER = "🔴 **saxpy takes 7.5% more time than in origin/main ("


@pytest.mark.parametrize(
    ("schema", "text", "words"),
    [
        ("github-workflows", GITHUB, ()),
        ("gitlab-ci", GITLAB, ("--data-transform", "gitlab-ci")),
        ("buildkite", BUILDKITE, ()),
        ("github-workflows", MODAL, ()),
    ],
    ids=["github", "gitlab", "buildkite", "modal"],
)
def test_a_recipe_is_what_the_schema_of_its_service_says(
    tmp_path: Path, schema: str, text: str, words: tuple[str, ...]
) -> None:
    pytest.importorskip("check_jsonschema")
    (tmp_path / "recipe.yml").write_text(text)
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", *words]
    done = subprocess.run([*command, "recipe.yml"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


class Service:
    """A clone, in detached state as CI leaves it, of a change whose kernel is slower. `gh` and `buildkite-agent` write down how they were called."""

    def __init__(self, folder: Path, python: str) -> None:
        origin, self.clone, self.said = folder / "origin", folder / "clone", folder / "said.txt"
        origin.mkdir()
        committed(origin, saxpy_cu=FASTER)
        git(origin, "checkout", "-q", "-b", "change")
        committed(origin, saxpy_cu=SAXPY)
        subprocess.run(["git", "clone", "-q", f"file://{origin}", self.clone], check=True)
        git(self.clone, "checkout", "-q", "--detach", "origin/change")
        programs = folder / "bin"
        programs.mkdir()
        ours = f'exec "{sys.executable}" -P -m orbit_lsp "$@" --python "{python}"'
        shims = dict.fromkeys(("gh", "buildkite-agent"), f'{{ echo "${{0##*/}} $@"; cat; }} >> "{self.said}"')
        for name, line in (shims | {"orbit-lsp": ours}).items():
            (programs / name).write_text(f"#!/bin/sh\n{line}\n")
            (programs / name).chmod(0o755)
        places = {f"XDG_{kind}_HOME": str(folder / kind) for kind in ("CACHE", "STATE", "CONFIG")}
        self.environment = os.environ | places | {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHONPATH": f"{ROOT}:{ROOT / 'remote'}",
        }  # fmt: skip

    def run(self, line: str, **more: str) -> int:
        ran = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", line], cwd=self.clone, env=self.environment | more,
            stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        return ran.returncode

    @property
    def report(self) -> str:
        return (self.clone / "gate.md").read_text()


@pytest.fixture
def service(tmp_path: Path, recorded_python: str) -> Service:
    return Service(tmp_path, recorded_python)


def test_github(service: Service, tmp_path: Path) -> None:
    steps: list[dict[str, Any]] = yaml.safe_load(GITHUB)["jobs"]["gate"]["steps"]
    gate, summary, comment = (step["run"] for step in steps if "run" in step)
    shown = tmp_path / "summary.md"
    of_github = {"GITHUB_BASE_REF": "main", "GITHUB_STEP_SUMMARY": str(shown), "NUMBER": "7"}
    assert service.run(gate, **of_github) == 6
    assert service.report.startswith(SLOWER)
    assert service.run(summary, **of_github) == 0
    assert shown.read_text() == service.report
    assert service.run(comment, **of_github) == 0
    assert service.said.read_text() == "gh pr comment 7 --body-file gate.md\n"
    assert (service.clone / "gate.sarif").exists()


def test_gitlab(service: Service) -> None:
    recipe = yaml.safe_load(GITLAB)["gate"]
    git(service.clone, "update-ref", "-d", "refs/remotes/origin/main")  # its clone has no other branches
    lines = "\n".join(recipe["script"])
    assert service.run(lines, CI_MERGE_REQUEST_TARGET_BRANCH_NAME="main") == 6
    assert service.report.startswith(SLOWER)
    assert all(
        (service.clone / name).exists() for name in ("gate.md", recipe["artifacts"]["reports"]["junit"])
    )


def test_buildkite(service: Service) -> None:
    (step,) = yaml.safe_load(BUILDKITE)["steps"]
    lines = "\n".join(step["commands"]).replace("$$", "$")  # as its agent reads a pipeline
    assert service.run(lines, BUILDKITE_PULL_REQUEST_BASE_BRANCH="main") == 6
    said, _, report = service.said.read_text().partition("\n")
    assert said == "buildkite-agent annotate --style info"
    assert report == service.report
    assert report.startswith(SLOWER)


def test_a_gate_without_a_report_keeps_its_exit_code(service: Service) -> None:
    """The base branch was not fetched, so there is nothing to annotate."""
    (step,) = yaml.safe_load(BUILDKITE)["steps"]
    line = step["commands"][-1].replace("$$", "$")
    assert service.run(line, BUILDKITE_PULL_REQUEST_BASE_BRANCH="absent") == 5
    assert not service.said.exists()


def test_the_budget_of_a_rented_gpu(service: Service) -> None:
    """Without an account the gate says so, and spends nothing."""
    steps: list[dict[str, Any]] = yaml.safe_load(MODAL)["jobs"]["gate"]["steps"]
    (line,) = (step["run"] for step in steps if "run" in step)
    assert (
        service.run(line, GITHUB_BASE_REF="main", GITHUB_STEP_SUMMARY="summary.md", HOME=str(service.clone))
        == 5
    )
