"""`orbit-lsp debug-compile`: what is in the bundle, and the author's line first. It compiles with nvcc and Triton."""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path

import pytest

from tests.e2e.conftest import own_cache
from tests.e2e.forks import Ended, command
from tests.remote.nvcc_check import needs_nvcc

pytestmark = needs_nvcc

LIBRARY = """\
#pragma once
namespace tiles {
template <int Rows> struct Layout {
    static_assert(Rows % 8 == 0, "a tile has a multiple of 8 rows");
    static constexpr int rows = Rows;
};
template <int Rows> struct Tile { Layout<Rows> layout; };
}
"""
KERNEL = """\
#include <tiles.h>

__global__ void scale(float *x) {
    x[threadIdx.x] *= tiles::Tile<8>{}.layout.rows;
}
"""
CUTE = """\
import cutlass.cute as cute


def launch(x):
    x.missing()


if __name__ == "__main__":
    cute.compile(launch, 1)
"""
CUTE_DSL = '''\
"""A stand-in for NVIDIA's CuTe DSL 4.8.1: it writes files where that does, and raises as that does."""
import os
import pathlib


class DSLUserCodeError(Exception):
    pass


class Cute:
    @staticmethod
    def compile(function, *arguments):
        folder = pathlib.Path(os.environ["CUTE_DSL_DUMP_DIR"])
        (folder / "cute_dsl_launch.mlir").write_text("module {}")
        assert os.environ["CUTE_DSL_KEEP_PTX"] == os.environ["CUTE_DSL_KEEP_CUBIN"] == "1"
        (folder / f"launch.{os.environ['CUTE_DSL_ARCH']}.ptx").write_text("// PTX")
        try:
            function(*arguments)
        except AttributeError as error:
            raise DSLUserCodeError("\\x1b[91merror:\\x1b[0m in `launch`") from error
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    own_cache(monkeypatch, tmp_path)
    library, workspace = tmp_path / "library", tmp_path / "work"
    library.mkdir()
    workspace.mkdir()
    (library / "tiles.h").write_text(LIBRARY)
    (workspace / "scale.cu").write_text(KERNEL)
    return workspace


def debug(folder: Path, *words: str) -> Ended:
    flags = ("--flag=-I../library",) if words[0].endswith(".cu") else ()
    return command(folder, "debug-compile", *words, *flags, "--arch", "sm_90", "--python", sys.executable)


def names(bundle: Path) -> set[str]:
    return {path.relative_to(bundle).as_posix() for path in bundle.rglob("*") if path.is_file()}


def test_a_bundle_has_everything_of_a_compilation(folder: Path) -> None:
    done = debug(folder, "scale.cu", "--output", "bundle")
    assert (done.returncode, done.stdout) == (0, f"{folder / 'bundle'}\n"), done.stderr
    bundle = folder / "bundle"
    assert names(bundle) >= {
        "summary.md", "result.json", "command.txt", "compiler.log", "source/scale.cu", "compiler/scale.cubin",
        "compiler/scale.ptx", "compiler/scale.cpp1.ii", "kernels/scale.ptx",
    }  # fmt: skip
    assert "-I../library" in (bundle / "command.txt").read_text()
    assert ".target sm_90" in (bundle / "kernels" / "scale.ptx").read_text()
    summary = (bundle / "summary.md").read_text()
    assert summary.startswith("# scale.cu: it compiles\n")
    for text in ("| nvcc | 13.", "| architecture | sm_90 |", "| `scale` |", "| source/scale.cu |"):
        assert text in summary, text
    again = debug(folder, "scale.cu", "--output", "bundle")
    assert (again.returncode, again.stdout) == (64, "")
    assert "bundle is there already; name another place with --output" in again.stderr


def test_a_template_error_stands_at_the_authors_line(folder: Path) -> None:
    (folder / "scale.cu").write_text(KERNEL.replace("Tile<8>", "Tile<12>"))
    done = debug(folder, "scale.cu", "--output", "bundle", "--zip")
    assert done.returncode == 1
    first, *more = done.stdout.splitlines()
    assert first.startswith(f"{folder / 'scale.cu'}:4")
    assert "a tile has a multiple of 8 rows" in first
    assert ">    4 |     x[threadIdx.x] *= tiles::Tile<12>{}.layout.rows;" in more
    assert any("tiles.h:7: detected during instantiation" in line for line in more)
    assert more[-1] == str(folder / "bundle.zip")
    with zipfile.ZipFile(folder / "bundle.zip") as bundle:
        assert {"bundle/summary.md", "bundle/compiler.log", "bundle/compiler/scale.cpp1.ii"} <= set(
            bundle.namelist()
        )
        assert "a tile has a multiple of 8 rows" in bundle.read("bundle/compiler.log").decode()
        assert (
            bundle.read("bundle/summary.md")
            .decode()
            .startswith("# scale.cu: scale.cu does not compile (1 error)")
        )


@pytest.mark.slow
def test_an_error_of_cute_dsl_stands_in_the_kernel_and_its_files_are_kept(folder: Path) -> None:
    (folder / "add.py").write_text(CUTE)
    (folder / "cutlass").mkdir()
    (folder / "cutlass" / "__init__.py").write_text(CUTE_DSL + "\n\ncute = Cute\n")
    (folder / "cutlass" / "cute.py").write_text("from cutlass import Cute\n\ncompile = Cute.compile\n")
    done = debug(folder, "add.py", "--output", "bundle", "--json")
    assert done.returncode == 1, done.stderr
    answer = json.loads(done.stdout)
    (problem,) = answer["problems"]
    assert (problem["place"]["file"], problem["place"]["line"]) == (str(folder / "add.py"), 5)
    assert problem["message"] == "AttributeError: 'int' object has no attribute 'missing'"
    assert answer["bundle"] == str(folder / "bundle")
    made = names(folder / "bundle")
    assert {"compiler/cute_dsl_launch.mlir", "compiler/launch.sm_90.ptx", "output.log", "command.txt"} <= made
