"""The shapes that projects have (projects/): each compiles in place, with default settings, from the terminal and the editor.

Databases are as CMake wrote them, with ROOT for the project's folder.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.cli_check import orbit
from tests.e2e.conftest import Editor, of_the_run, recorded_python, shared_cache, start  # noqa: F401 - fixtures of a whole server
from tests.remote.nvcc_check import needs_nvcc

PROJECTS = Path(__file__).parent / "projects"
SHAPES = [
    ("cmake_one", "src/saxpy.cu", "as build/compile_commands.json says", "-DSCALE=3"),
    ("cmake_many", "src/scale.cu", "as made/release/compile_commands.json says", "-gencode arch=compute_80,code=sm_80"),
    ("cmake_generated", "src/fill.cu", "as build/compile_commands.json says of src/main.cu", "-I ROOT/build/gen"),
    ("makefile", "src/scan.cu", "Makefile names it", "-std c++20"),
    ("torch_setuptools", "csrc/cuda/relu.cu", "setup.py:14 names it", "-DRELU_MAX=6"),
    ("load_inline", "kernels/ops.cu", "it has shared/vec.cuh, which kernels/ops.cu includes", "-IROOT/csrc"),
    ("header_only", "tests/test_reduce.cu", "it has reduce/reduce.cuh", "-IROOT/include"),
    ("header_only", "include/reduce/reduce.cuh", "it has reduce/detail/warp.cuh", "-IROOT/include"),
    ("bazel", "pkg/kernels/copy.cu", "it has absent_lib/span.h", "-IROOT/external/absent_lib/include"),
    ("two_toolkits", "old/k.cu", "as old/build/compile_commands.json says", "-DPART=1"),
    ("two_toolkits", "new/k.cu", "as new/build/compile_commands.json says", "-DPART=2"),
]  # fmt: skip
"""(project, file, a reason that `doctor FILE` gives, a flag)"""


@pytest.fixture(scope="module")
def projects(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("projects")
    check_out(folder)
    return folder


def check_out(folder: Path) -> None:
    """The projects as they lie on an author's disk."""
    for project in PROJECTS.iterdir():
        shutil.copytree(project, folder / project.name)
    for path in folder.rglob("*"):
        if path.suffix in (".json", ".rsp"):
            path.write_text(path.read_text().replace("ROOT", str(folder / path.relative_to(folder).parts[0])))
    site = folder / "torch_setuptools" / ".venv" / "lib" / "python3.11"
    site.mkdir(parents=True)
    (folder / "torch_setuptools" / "site-packages").rename(site / "site-packages")
    python = folder / "torch_setuptools" / ".venv" / "bin" / "python"
    python.parent.mkdir()
    python.write_text("#!/bin/sh\ntouch started\n")
    python.chmod(0o755)


@needs_nvcc
@pytest.mark.parametrize(
    ("project", "file", "reason", "flag"), SHAPES, ids=[f"{one[0]}-{one[1]}" for one in SHAPES]
)
def test_a_shape_in_the_terminal(projects: Path, project: str, file: str, reason: str, flag: str) -> None:
    folder = projects / project
    code, out, err = orbit(folder, "doctor", file)
    said = out.replace(str(folder), "ROOT").replace("ROOT/.", ".")
    assert (code, reason in said, flag in said) == (0, True, True), out + err
    code, out, err = orbit(folder, "compile", file, "--json")
    finished = json.loads(out)
    assert (code, finished["outcome"]) == (0, "ok"), out + err
    assert not list(projects.rglob("started"))


def test_a_trusted_project_is_compiled_by_the_nvcc_that_it_names(projects: Path) -> None:
    _, out, _ = orbit(projects / "two_toolkits", "doctor", "old/k.cu", "--trust")
    assert f"compiler: {projects}/two_toolkits/toolkits/old/bin/nvcc, as the project names it" in out


@needs_nvcc
async def test_every_shape_in_one_server(start) -> None:  # noqa: F811
    """One workspace that holds all of them."""
    editor: Editor = await start("vscode")
    check_out(editor.folder)
    for project, file, *_ in SHAPES:
        name = f"{project}/{file}"
        text = (editor.folder / name).read_text()
        editor.open(name, text)
        if "template" not in text:  # a template has no figures where it is defined
            await editor.asked_until(editor.hints, bool)
        assert editor.diagnostics() == []


@needs_nvcc
@pytest.mark.parametrize("json_too", [False, True])
def test_link_errors_are_said_not_to_be_looked_for(projects: Path, json_too: bool) -> None:
    _, out, err = orbit(projects / "makefile", "compile", "src/scan.cu", *(["--json"] if json_too else []))
    remark = "link errors are not looked for by compile: orbit-lsp run links the program"
    assert remark in (json.loads(out)["remarks"] if json_too else err.replace("note: ", "").splitlines())
