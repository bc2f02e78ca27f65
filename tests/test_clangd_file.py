"""`.clangd` for a CUDA file: where it is offered, and that clangd finds no error with it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from orbit_lsp.state.compilation import Compilation
from orbit_lsp.state.placement import RunSetup
from orbit_lsp.state.session import Session, uri_of
from orbit_lsp.views.compiler import clangd_file
from orbit_remote.common import messages as c
from tests.remote.nvcc_check import COMPILER

TEXT = """\
#include <cstdio>
#include <cuda_fp16.h>
__global__ void k(half* x) { x[threadIdx.x] = __float2half(1.0f); __syncthreads(); }
int main() { k<<<1, 32>>>(nullptr); printf("%d", cudaDeviceSynchronize()); }
"""
CLANGD = Path(sys.executable).parent / "clangd"


def session_of(folder: Path, nvcc: str) -> tuple[Session, str]:
    machine = c.Machine("p", 1, "python", "3.11", nvcc=nvcc, nvcc_version="13.0.88")
    session = Session(setup=RunSetup(folders=[str(folder)], machine=machine))
    uri = uri_of(str(folder / "k.cu"))
    session.open(uri, 1, TEXT)
    return session, uri


@pytest.mark.skipif(isinstance(COMPILER, c.Failure) or not CLANGD.exists(), reason="needs nvcc and clangd")
def test_clangd_has_no_error_with_it(tmp_path) -> None:
    assert not isinstance(COMPILER, c.Failure)
    session, uri = session_of(tmp_path, COMPILER.path)
    [action] = clangd_file.actions(session, uri, 0)
    assert action.edit
    assert action.edit.document_changes
    written = action.edit.document_changes[1].edits[0].new_text
    (tmp_path / "k.cu").write_text(TEXT)
    (tmp_path / ".clangd").write_text(written)
    done = subprocess.run(
        [str(CLANGD), "--check=k.cu"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert "All checks completed, 0 errors" in done.stderr, written + done.stderr
    assert clangd_file.actions(session, uri, 0) == []


def toolkit_session(folder: Path) -> tuple[Session, str]:
    toolkit = folder / "cuda"
    (toolkit / "include").mkdir(parents=True)
    (toolkit / "bin").mkdir()
    (toolkit / "include" / "cuda_runtime.h").touch()
    return session_of(folder, str(toolkit / "bin" / "nvcc"))


@pytest.mark.parametrize(
    "make",
    [
        Path.touch,
        Path.mkdir,
        os.mkfifo,
        lambda path: path.symlink_to("/etc/passwd"),
        lambda path: path.symlink_to("gone"),
        lambda path: path.symlink_to(path),
    ],
    ids=["file", "folder", "FIFO", "link", "link to nothing", "link to itself"],
)
def test_nothing_is_written_where_something_is(tmp_path: Path, make: Callable[[Path], object]) -> None:
    session, uri = toolkit_session(tmp_path)
    make(tmp_path / ".clangd")
    assert clangd_file.actions(session, uri, 0) == []


@pytest.mark.parametrize(
    "flag",
    [
        "-DA='x'",
        '-DA="x"',
        "-DA=\n---\nCompileFlags: {Compiler: evil}",
        "-DA=a: b # c",
        "-DA={x}",
        "-I/a\tb",
        "-DA=\u2028",
    ],
)
def test_a_flag_of_the_folder_is_one_word_of_the_file(tmp_path: Path, flag: str) -> None:
    session, uri = toolkit_session(tmp_path)
    session.files[uri].compilation = Compilation(flags=(flag, "-fplugin=evil.so", "-Xclang", "-load"))
    [action] = clangd_file.actions(session, uri, 0)
    assert action.edit
    assert action.edit.document_changes
    [document] = yaml.safe_load_all(action.edit.document_changes[1].edits[0].new_text)
    assert (document["CompileFlags"]["Add"][-1] == flag) is flag.isprintable()
    assert list(document) == ["If", "CompileFlags"]
    assert "evil.so" not in str(document).replace(flag, "")


def test_it_is_offered_on_includes_alone_and_with_a_toolkit(tmp_path: Path) -> None:
    session, uri = toolkit_session(tmp_path)
    assert [len(clangd_file.actions(session, uri, line)) for line in range(4)] == [1, 1, 0, 0]
    session.setup.machine = None
    assert clangd_file.actions(session, uri, 0) == []
