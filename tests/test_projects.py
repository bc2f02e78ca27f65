"""The shapes that projects have (projects/): each compiles in place, with default settings, from the terminal and the editor.

Databases are as CMake wrote them, with ROOT for the project's folder.
"""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import sys
import sysconfig
from pathlib import Path

import pytest

from orbit_lsp.places import python_choice
from tests.cli_check import orbit
from tests.e2e.conftest import Editor, recorded_python, start  # noqa: F401 - fixtures of a whole server
from tests.remote.nvcc_check import needs_nvcc

needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="no triton")
PROJECTS = Path(__file__).parent / "projects"
SHAPES = [
    ("cmake_one", "src/saxpy.cu", "as build/compile_commands.json says", "-DSCALE=3"),
    ("cmake_many", "src/scale.cu", "as made/release/compile_commands.json says", "-gencode arch=compute_80,code=sm_80"),
    ("cmake_generated", "src/fill.cu", "as build/compile_commands.json says of src/main.cu", "-I ROOT/build/gen"),
    ("makefile", "src/scan.cu", "Makefile names it", "-std c++20"),
    ("torch_setuptools", "csrc/cuda/relu.cu", "setup.py:14 names it", "-DRELU_MAX=6"),
    ("load_inline", "kernels/ops.cu", "it has shared/vec.cuh, which kernels/ops.cu includes", "-IROOT/csrc"),
    ("header_only", "tests/test_reduce.cu", "it has reduce/reduce.cuh", "-IROOT/include"),
    ("header_only", "include/reduce/reduce.cuh", "compiled through tests/test_reduce.cu", "-IROOT/include"),
    ("bazel", "pkg/kernels/copy.cu", "it has absent_lib/span.h", "-IROOT/external/absent_lib/include"),
    ("two_toolkits", "old/k.cu", "as old/build/compile_commands.json says", "-DPART=1"),
    ("two_toolkits", "new/k.cu", "as new/build/compile_commands.json says", "-DPART=2"),
]  # fmt: skip
"""(project, file, a reason that `doctor FILE` gives, a flag)"""
TRITON = [
    ("triton_uv", "src/fastops/softmax.py", "triton_uv/.venv/bin/python", ".venv of ", "*fp32"),
    ("triton_conda", "kernels/scale.py", "conda/envs/kernels/bin/python", "environment.yml of ", "*fp16"),
]
"""(project, file, its Python, why that is chosen, the type of what its launch passes)"""


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
    for environment in (folder / "triton_uv" / ".venv", folder / "conda" / "envs" / "kernels"):
        _environment(environment)


def _environment(folder: Path) -> None:
    """A virtual environment that has what these tests have: torch and Triton, and nothing of its own."""
    packages = folder / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    packages.mkdir(parents=True)
    (packages / "of_the_tests.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    base = Path(sys.executable).resolve()
    (folder / "pyvenv.cfg").write_text(f"home = {base.parent}\n")
    (folder / "bin").mkdir()
    (folder / "bin" / "python").symlink_to(base)


@needs_nvcc
@pytest.mark.parametrize(
    ("project", "file", "reason", "flag"), SHAPES, ids=[f"{item[0]}-{item[1]}" for item in SHAPES]
)
def test_a_shape_in_the_terminal(projects: Path, project: str, file: str, reason: str, flag: str) -> None:
    folder = projects / project
    code, out, err = orbit(folder, "doctor", file)
    message = out.replace(str(folder), "ROOT").replace("ROOT/.", ".")
    assert (code, reason in message, flag in message) == (0, True, True), out + err
    code, out, err = orbit(folder, "compile", file, "--json")
    finished = json.loads(out)
    assert (code, finished["outcome"]) == (0, "ok"), out + err
    assert not list(projects.rglob("started"))


def test_a_command_in_a_folder_of_a_project(projects: Path) -> None:
    code, out, err = orbit(projects / "cmake_one" / "src", "doctor", "saxpy.cu")
    assert (code, "as build/compile_commands.json says" in out) == (0, True), out + err


@needs_nvcc
def test_a_gpu_that_the_author_names_wins_over_those_of_the_build(projects: Path) -> None:
    _, out, _ = orbit(projects / "cmake_many", "doctor", "src/scale.cu", "--gpu", "RTX 4090")
    assert re.findall(r"sm_\w+", out) == ["sm_89"]
    code, out, err = orbit(projects / "cmake_many", "compile", "src/scale.cu", "--gpu", "RTX 4090", "--json")
    compiled = {each["architecture"] for each in json.loads(out)["resources"]}
    assert (code, compiled) == (0, {"sm_89"}), out + err


@pytest.mark.parametrize(("project", "file", "python", "why", "passed"), TRITON, ids=["uv", "conda"])
def test_the_python_of_a_triton_project(
    projects: Path, project: str, file: str, python: str, why: str, passed: str
) -> None:
    folder = projects / project
    environment = {"MAMBA_ROOT_PREFIX": str(projects / "conda"), "HOME": str(projects)}
    choice = python_choice.choose("", [str(folder)], lambda _: True, environment)
    assert (choice.python, choice.why) == (str(projects / python), why + str(folder))
    choice = python_choice.choose("", [str(folder)], lambda _: False, environment)
    assert (choice.python, choice.ignored) == (sys.executable, (str(projects / python),))


# each environment through one door: the choice, which the test above shows of both, is the same in either
@pytest.mark.slow
@needs_triton
@pytest.mark.parametrize(("project", "file", "python", "why", "passed"), TRITON[1:], ids=["conda"])
def test_a_triton_project_in_the_terminal(
    projects: Path, project: str, file: str, python: str, why: str, passed: str
) -> None:
    environment = {"MAMBA_ROOT_PREFIX": str(projects / "conda")}
    folder = projects / project
    code, out, err = orbit(folder, "doctor", "--trust", environment=environment)
    assert str(projects / python) in out, out + err
    assert why in out
    code, out, err = orbit(folder, "compile", file, "--trust", "--json", environment=environment)
    finished = json.loads(out)
    (kernel,) = finished["resources"]
    assert (code, finished["outcome"], kernel["registers"] > 0) == (0, "ok", True), out + err
    assert kernel["constants"]["x_ptr"].startswith(passed)
    code, _, err = orbit(folder, "compile", file, "--json", environment=environment)
    assert f"{projects / python} is not started, because the folder is not trusted" in err


@pytest.mark.slow
@needs_triton
@pytest.mark.parametrize(("project", "file", "python", "why", "passed"), TRITON[:1], ids=["uv"])
async def test_a_triton_project_in_an_editor(
    start,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    project: str,
    file: str,
    python: str,
    why: str,
    passed: str,
) -> None:
    check_out(tmp_path / "all")
    monkeypatch.setenv("MAMBA_ROOT_PREFIX", str(tmp_path / "all" / "conda"))
    editor: Editor = await start("vscode", trusted=True)
    shutil.copytree(tmp_path / "all" / project, editor.folder, dirs_exist_ok=True, symlinks=True)
    editor.open(file, (editor.folder / file).read_text())
    await editor.command("orbit.compile", {"uri": editor.uri})
    ((line, label),) = await editor.asked_until(editor.hints, bool)
    assert "regs" in label
    assert editor.diagnostics() == []
    assert passed.replace("*", "\\*") in await editor.hover(line)


def test_a_trusted_project_is_compiled_by_the_nvcc_that_it_names(projects: Path) -> None:
    _, out, _ = orbit(projects / "two_toolkits", "doctor", "old/k.cu", "--trust")
    assert f"compiler: {projects}/two_toolkits/toolkits/old/bin/nvcc, as the project names it" in out


@needs_nvcc
def test_an_error_in_a_projects_header_is_shown_at_the_line_that_leads_there(projects: Path) -> None:
    folder = projects / "broken_header"
    folder.mkdir()
    (folder / "scale.h").write_text(
        "__device__ float scaled(float x) { return SCALE * x; }\n__device__ int f() { return N; }\n"
    )
    (folder / "k.cu").write_text(
        '#include <vector>\n#include "all.h"\n__global__ void k(float* x) { *x = scaled(*x); }\n'
    )
    (folder / "all.h").write_text('#include "scale.h"\n')
    _, out, _ = orbit(folder, "show", "k.cu")
    advice = "if the project's build defines it as a macro, name it too: --flag=-DSCALE=<value>"
    assert (
        f"""
2 #include "all.h"
           ~~~~~~~
           error nvcc: identifier "SCALE" is undefined; {advice}
             scale.h:1: identifier "SCALE" is undefined
             scale.h:2: identifier "N" is undefined
"""
        in out
    )


@needs_nvcc
def test_an_untrusted_projects_nvcc_is_not_started_and_that_is_said(projects: Path) -> None:
    folder = projects / "two_toolkits"
    _, told, _ = orbit(folder, "doctor", "old/k.cu")
    code, out, err = orbit(folder, "compile", "old/k.cu")
    assert code == 0, err
    sentence = (
        f"{folder}/toolkits/old/bin/nvcc, which the project compiles with, is not started, because the workspace is not trusted; "
        f"figures are another compiler's: if you trust the authors of {folder}, add --trust for this command, "
        f"or run `orbit-lsp trust {folder}` for all that follow"
    )
    assert f"\n  {sentence}\n" in told
    assert f"{sentence}\n" in err
    assert (
        f"not {folder}/toolkits/old/bin/nvcc, as the project: it is started in a trusted workspace only"
        in out
    )
    *_, err = orbit(folder, "compile", "old/k.cu", "--trust")
    assert "is not started" not in err
    *_, err = orbit(folder, "compile", "old/k.cu", "--nvcc", str(shutil.which("nvcc")))
    assert "is not started" not in err


@needs_nvcc
async def test_an_editor_says_that_a_projects_nvcc_is_not_started(start) -> None:  # noqa: F811
    editor: Editor = await start("vscode")
    check_out(editor.folder)
    name = "two_toolkits/old/k.cu"
    editor.open(name, (editor.folder / name).read_text())
    ((line, _),) = await editor.asked_until(editor.hints, bool)
    assert "it is started in a trusted workspace only" in await editor.hover(line)
    assert any("is not started, because the workspace is not trusted" in each for each in editor.messages())


@pytest.mark.slow
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
    remark = "compile does not look for link errors; orbit-lsp run links the program"
    assert remark in (json.loads(out)["remarks"] if json_too else err.replace("note: ", "").splitlines())
