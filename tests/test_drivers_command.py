"""`orbit-lsp drivers`, and what other commands say of the tests, scripts and programs that lead to a kernel."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orbit_lsp.compilation.build_systems import registry
from orbit_lsp.drivers.finder import DriverFinder
from tests.cli_check import orbit
from tests.driver_layouts import write, written
from tests.test_drivers import SOFTMAX, TEST

# -- the command ----------------------------------------------------------------------------------------


@pytest.fixture
def project(tmp_path: Path) -> Path:
    write(
        tmp_path,
        {
            "pyproject.toml": "",
            "pkg/softmax.py": SOFTMAX,
            "tests/test_softmax.py": TEST.replace("from softmax", "from pkg.softmax"),
        },
    )
    helper = "\n@triton.jit\ndef double(x):\n    return x + x\n\n@triton.jit\ndef unused_kernel(x):\n    double(x)\n"
    with (tmp_path / "pkg" / "softmax.py").open("a") as file:
        file.write(helper)
    return tmp_path


def test_the_drivers_of_a_file(project: Path) -> None:
    expected = (
        "pkg/softmax.py:4: softmax_kernel\n"
        "  pytest tests/test_softmax.py::test_softmax\n"
        "      softmax_kernel <- softmax <- test_softmax\n"
        "pkg/softmax.py:10: double (helper)\n"
        "  none: other kernels alone call double, and nothing launches those\n"
        "pkg/softmax.py:14: unused_kernel\n"
        "  none: nothing in this project uses unused_kernel\n"
    )
    assert orbit(project / "pkg", "drivers", "softmax.py") == (0, expected, "")
    assert orbit(project, "drivers", "pkg/softmax.py", "--kernel", "unused_kernel")[1].count("\n") == 2


def test_the_drivers_of_a_folder(project: Path) -> None:
    expected = (
        "pkg/softmax.py:4: softmax_kernel: pytest tests/test_softmax.py::test_softmax\n"
        "pkg/softmax.py:14: unused_kernel: none: nothing in this project uses unused_kernel\n"
        "2 kernels: something launches 1, nothing is found for 1; 1 helper, which other kernels call\n"
    )
    assert orbit(project, "drivers") == (0, expected, "")
    assert orbit(project, "drivers", "pkg") == (0, expected, "")
    assert orbit(project, "drivers", "tests") == (
        0,
        "0 kernels: something launches 0, nothing is found for 0\n",
        "",
    )


def test_a_program_needs_no_driver(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text("__global__ void k() {}\nint main() { k<<<1, 1>>>(); }\n")
    assert orbit(tmp_path, "drivers", "k.cu")[1] == (
        "k.cu:1: k\n  its file is a program: orbit-lsp run needs no --through\n"
    )
    assert (
        orbit(tmp_path, "drivers")[1]
        == "k.cu:1: k: its own file\n1 kernel: something launches 1, nothing is found for 0\n"
    )


def test_show_and_run_know_the_drivers(project: Path) -> None:
    shown = orbit(project, "show", "pkg/softmax.py")[1]
    assert "▶ Run: test_softmax (trust this folder) | Profile" in shown
    assert shown.count("Draft a launch spec: no main") == 1  # of the kernel that has no driver
    code, _, message = orbit(project, "run", "pkg/softmax.py")
    why = "nothing in pkg/softmax.py launches softmax_kernel, but tests/test_softmax.py::test_softmax does"
    assert (code, message) == (
        64,
        f"orbit-lsp: error: {why}: `orbit-lsp run pkg/softmax.py --kernel softmax_kernel --through auto`\n",
    )


def test_the_drivers_as_json(project: Path) -> None:
    code, out, _ = orbit(project, "drivers", "pkg/softmax.py", "--kernel", "softmax_kernel", "--json")
    listing = json.loads(out)
    assert (code, listing["folder"], listing["count"], listing["reachable"]) == (0, str(project), 1, 1)
    assert listing["kernels"][0]["drivers"] == [
        {
            "kind": "pytest", "id": "tests/test_softmax.py::test_softmax", "file": "tests/test_softmax.py", "name": "test_softmax",
            "keyword": "", "cases": 1, "cost": 2.7, "way": ["softmax_kernel", "softmax", "test_softmax"],
            "tool": "", "folder": "", "arguments": [],
        }
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["absent.py"], "absent.py: there is no such file or folder"),
        (
            ["pyproject.toml"],
            "pyproject.toml: only .py, .cu, .cuh and header files have drivers; name one, or a folder",
        ),
        (
            ["pkg/softmax.py", "--kernel", "softmax_kernal"],
            "no kernel 'softmax_kernal'; did you mean softmax_kernel?",
        ),
    ],
)
def test_what_is_refused(project: Path, words: list[str], sentence: str) -> None:
    assert orbit(project, "drivers", *words) == (64, "", f"orbit-lsp: error: {sentence}\n")


def test_a_home_folder_is_not_searched(tmp_path: Path) -> None:
    (tmp_path / "k.py").write_text(SOFTMAX)
    assert orbit(tmp_path, "drivers", "k.py", environment={"HOME": str(tmp_path)}) == (
        64, "", f"orbit-lsp: error: {tmp_path} is a home folder, or holds one; name a file in a project\n"
    )  # fmt: skip


def configured(folder: Path, project: Path) -> None:
    folder.mkdir()
    (folder / "CMakeCache.txt").write_text(
        f"CMAKE_HOME_DIRECTORY:INTERNAL={project}\nCMAKE_CACHEFILE_DIR:INTERNAL={folder}\n"
    )


def test_the_project_in_which_a_program_is_built(tmp_path: Path) -> None:
    """The smallest that has all of it, unless a larger one is configured."""
    written("program_nested", tmp_path)
    finder = DriverFinder(str(tmp_path), build_files=registry.build_files())
    finder.refresh()

    def folder(place: str, kernel: str) -> str:
        return finder.routes(str(tmp_path / place), kernel).routes[0].driver.folder

    assert folder("alone/deep/alone.cu", "alone_kernel") == "alone"
    assert folder("lib/lib.cu", "lib_kernel") == ""
    configured(tmp_path / "alone" / "b", tmp_path)
    assert folder("alone/deep/alone.cu", "alone_kernel") == ""


@pytest.mark.parametrize("build_file", registry.names())
def test_nvcc_alone_counts_less_where_a_build_file_of_any_kind_is(tmp_path: Path, build_file: str) -> None:
    (tmp_path / "k.cuh").write_text("__global__ void scale(float* x) {}\n")
    (tmp_path / "bench.cu").write_text('#include "k.cuh"\nint main() { scale<<<1, 1>>>(nullptr); }\n')

    def cost() -> float:
        finder = DriverFinder(str(tmp_path), build_files=registry.build_files())
        finder.refresh()
        return finder.routes(str(tmp_path / "k.cuh"), "scale").routes[0].cost

    alone = cost()
    (tmp_path / build_file).write_text("# of another program\n")
    assert cost() > alone


MANY = ", ".join(f"const float *__restrict__ argument_{number}" for number in range(30))


@pytest.mark.parametrize(
    ("main", "head"),
    [
        ("main.cpp", "void scale(float *x, int n);"),
        ("main.cpp", "#include <vector>\n#include <cstdio>\nvoid scale(float *x, int n);"),
        ("main.cpp", "// in scale.cu\nvoid scale(float *x, int n);"),
        ("main.cpp", "/* in\n   scale.cu */ extern void\nscale(float *x,\n  int n);"),
        ("main.cc", 'extern "C" {\n  void scale(float *x, int n);\n}'),
        ("main.cxx", "[[nodiscard]] int scale(float *x, int n = 3) noexcept;"),
        ("main.cpp", '__attribute__((visibility("default"))) void scale(float *x);'),
        ("main.cpp", f"auto scale({MANY}) -> void;"),
        ("main.cu", "template <typename T> void scale(T *x, int n);"),
        ("main.c", "#include <stdio.h>\nvoid scale(float *x, int n);"),
    ],
)  # fmt: skip
def test_a_program_declares_what_another_file_defines(tmp_path: Path, main: str, head: str) -> None:
    write(tmp_path, {
        "Makefile": f"bench: {Path(main).stem}.o scale.o\n\tnvcc -o $@ $^\n",
        "scale.cu": "__global__ void k(float *x) {}\nvoid scale(float *x, int n) { k<<<1, 1>>>(x); }\n",
        main: f"{head}\nint main() {{ scale(0, 1); }}\n",
    })  # fmt: skip
    assert (
        orbit(tmp_path, "drivers", "scale.cu")[1]
        == f"scale.cu:1: k\n  make {main} (bench)\n      k <- scale <- main of {main}\n"
    )


def test_programs_on_the_command_line(tmp_path: Path) -> None:
    written("program_cmake", tmp_path / "work")
    code, out, _ = orbit(tmp_path / "work", "drivers", "src/scale.cu")
    way = "      scale_kernel <- launch_scale <- main of bench.cu\n"
    assert (code, out) == (
        0,
        f"src/scale.cu:3: scale_kernel\n  cmake app/bench.cu (bench 4096)\n{way}",
    )
    assert orbit(tmp_path / "work", "drivers")[1].endswith(
        "\n2 kernels: something launches 2, nothing is found for 0\n"
    )
