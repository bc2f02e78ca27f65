"""Which tests, scripts and programs lead to a kernel: projects/drivers has small projects of every layout, each with what is listed for it"""

from __future__ import annotations

import os
import sqlite3
import sys
import textwrap
from pathlib import Path

import pytest

from orbit_lsp.compilation.build_systems import registry
from orbit_lsp.drivers import extension
from orbit_lsp.drivers.finder import DriverFinder
from orbit_lsp.drivers.module import read
from orbit_lsp.kernels import tracker
from orbit_lsp.kernels.cuda.functions import CudaText
from orbit_lsp.state.results import Routes
from tests.driver_layouts import LAYOUTS, write, written


def listed(folder: Path) -> str:
    """The drivers of all kernels of a folder, as text."""
    finder = DriverFinder(str(folder), build_files=registry.build_files())
    finder.refresh()
    lines: list[str] = []
    for place in sorted((*finder.index.files, *finder.index.places("", (".cu", ".cuh", ".h")))):
        language = "triton" if place.endswith(".py") else "cuda"
        for kernel in tracker(language).scan(finder.index.text(place)).kernels:
            found = finder.routes(str(folder / place), kernel.qualified)
            lines.append(f"{place}: {kernel.qualified}{' (helper)' if found.helper else ''}")
            lines += shown(found)
    return "\n".join(lines) + "\n"


def shown(found: Routes) -> list[str]:
    if not found.routes:
        return [f"    none: {found.reason}"]
    return [
        f"    {each.driver.kind} {each.driver.id}: {' <- '.join(each.way)}"
        + (
            f" [with {' '.join(others)}]"
            if (others := each.sources[1:]) and each.driver.tool == "nvcc"
            else ""
        )
        for each in found.routes
    ]


@pytest.mark.parametrize("layout", sorted(path.stem for path in LAYOUTS.iterdir()))
def test_layouts(layout: str, tmp_path: Path) -> None:
    expected = written(layout, tmp_path)
    assert listed(tmp_path) == expected


SOFTMAX = """import triton

@triton.jit
def softmax_kernel(x): ...

def softmax(x):
    softmax_kernel[(1,)](x)
"""
TEST = "from softmax import softmax\n\ndef test_softmax():\n    softmax(1)\n"


def check(
    folder: Path, files: dict[str, str], expected: list[str], finder: DriverFinder | None = None
) -> DriverFinder:
    """What is found for `softmax_kernel` of softmax.py in a folder with these files."""
    write(folder, {"softmax.py": SOFTMAX} | files)
    finder = finder or DriverFinder(str(folder))
    finder.refresh()
    found = finder.routes(str(folder / "softmax.py"), "softmax_kernel")
    assert [each.driver.id for each in found.routes] == expected, found.reason
    return finder


def test_a_launcher_whose_name_is_one_letter(tmp_path: Path) -> None:
    text = SOFTMAX.replace("def softmax(", "def f(")
    test = TEST.replace("import softmax", "import f").replace("softmax(1)", "f(1)")
    check(tmp_path, {"softmax.py": text, "test_softmax.py": test}, ["test_softmax.py::test_softmax"])


def test_a_test_that_was_renamed(tmp_path: Path) -> None:
    finder = check(tmp_path, {"test_softmax.py": TEST}, ["test_softmax.py::test_softmax"])
    (tmp_path / "test_softmax.py").rename(tmp_path / "test_rows.py")
    check(tmp_path, {}, ["test_rows.py::test_softmax"], finder)
    renamed = {"test_rows.py": TEST.replace("test_softmax", "test_all_rows")}
    check(tmp_path, renamed, ["test_rows.py::test_all_rows"], finder)


def test_one_file_is_read_again_when_it_is_written_or_removed(tmp_path: Path) -> None:
    finder = check(tmp_path, {}, [])
    test = tmp_path / "test_softmax.py"
    kernel = str(tmp_path / "softmax.py")
    test.write_text(TEST)
    finder.changed(str(test))
    assert [each.driver.id for each in finder.routes(kernel, "softmax_kernel").routes] == [
        "test_softmax.py::test_softmax"
    ]
    test.unlink()
    finder.changed(str(test))
    assert not finder.routes(kernel, "softmax_kernel").routes


def test_what_an_editor_has_not_saved_counts(tmp_path: Path) -> None:
    finder = check(tmp_path, {"test_softmax.py": TEST}, ["test_softmax.py::test_softmax"])
    test, kernel = str(tmp_path / "test_softmax.py"), str(tmp_path / "softmax.py")
    finder.edit(test, TEST.replace("def test_softmax", "def test_typed"))
    assert [each.driver.name for each in finder.routes(kernel, "softmax_kernel").routes] == ["test_typed"]
    finder.refresh()
    assert [each.driver.name for each in finder.routes(kernel, "softmax_kernel").routes] == ["test_typed"]
    finder.edit(test, None)
    assert [each.driver.name for each in finder.routes(kernel, "softmax_kernel").routes] == ["test_softmax"]


def test_the_text_that_calls_the_launcher_comes_with_the_routes(tmp_path: Path) -> None:
    finder = check(tmp_path, {"test_softmax.py": TEST}, ["test_softmax.py::test_softmax"])
    test, kernel = tmp_path / "test_softmax.py", str(tmp_path / "softmax.py")
    assert finder.routes(kernel, "softmax_kernel").caller == (str(test), TEST)
    test.write_text(later := TEST.replace("softmax(1)", "softmax(2)"))
    finder.changed(str(test))
    assert finder.routes(kernel, "softmax_kernel").caller == (str(test), later)
    test.unlink()
    finder.changed(str(test))
    assert finder.routes(kernel, "softmax_kernel").caller is None


@pytest.mark.parametrize(
    "broken",
    [
        TEST + "\ndef test_other(:\n    softmax(2)\n",
        "def half(\n\n" + TEST,
        TEST + "\nx = " + "(" * 5000 + ")" * 5000 + "\n",
        TEST + "\ny = " + "+".join("1" * 3000) + "\n",
        "\ufeff" + TEST,
        TEST.replace("\n", "\r\n"),
    ],
    ids=[
        "a header being typed",
        "an open bracket above",
        "deep brackets",
        "a long sum",
        "a byte order mark",
        "CRLF",
    ],
)
def test_a_syntax_error_costs_its_own_statement_only(tmp_path: Path, broken: str) -> None:
    check(tmp_path, {"test_softmax.py": broken}, ["test_softmax.py::test_softmax"])


@pytest.mark.skipif(sys.platform != "linux", reason="names that are no Unicode")
def test_no_file_is_too_strange_to_be_passed_over(tmp_path: Path) -> None:
    (tmp_path / "nul.py").write_bytes(b"softmax\0" * 100)
    (tmp_path / "binary.py").write_bytes(bytes(range(256)) * 100 + b" softmax ")
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "gone.py").symlink_to("nowhere.py")
    os.mkfifo(tmp_path / "pipe.py")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.py")).write_text("softmax = 1\n")
    (tmp_path / "large.py").write_text("softmax = 1\n" * 300_000)
    for name, text in {
        "pytest.ini": "[pytest\nx",
        "pyproject.toml": "pytest = [",
        "setup.cfg": "\0",
        "setup.py": "package_dir={",
    }.items():
        (tmp_path / name).write_text(text)
    finder = DriverFinder(str(tmp_path), lambda: tmp_path / "drivers.sqlite")
    check(tmp_path, {"test_softmax.py": TEST}, ["test_softmax.py::test_softmax"], finder)


def test_a_search_that_would_read_everything_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orbit_lsp.drivers.search._MOST_CHARACTERS", 1000)
    users = {
        f"user{i}.py": "from softmax import softmax\n" + "#" * 1000 + f"\ndef f{i}(): softmax()\n"
        for i in range(3)
    }
    finder = check(tmp_path, users, [])
    assert finder.routes(str(tmp_path / "softmax.py"), "softmax_kernel").reason == (
        "too many files use the names that lead on from softmax_kernel: the search ended at softmax_kernel <- softmax <- user0.f0"
    )


def test_what_refers_to_itself(tmp_path: Path) -> None:
    """Re-exports in a circle and in a long row, a fixture that takes its own name, classes that inherit from each other."""
    row = {f"row{i}.py": f"from row{i + 1} import softmax\n" for i in range(350)}
    files = row | {
        "row350.py": "from softmax import softmax\n",
        "circle_a.py": "from circle_b import softmax\nfrom circle_b import *\n",
        "circle_b.py": "from circle_a import softmax\nfrom circle_a import *\n",
        "softmax.py": SOFTMAX.replace("softmax_kernel", "softmax_bwd_kernel"),
        "conftest.py": "import pytest\n@pytest.fixture\ndef x(x): return x\n",
        "test_a.py": "from circle_a import softmax\nclass TestA(B):\n    def test_a(self): softmax(1)\nclass B(TestA): ...\n",
        "test_row.py": "from row0 import softmax\n\ndef test_row():\n    softmax(1)\n",
        "test_x.py": "from row330 import softmax\n\ndef test_x(x):\n    softmax(x)\n",
    }
    write(tmp_path, files)
    finder = DriverFinder(str(tmp_path))
    finder.refresh()
    found = finder.routes(str(tmp_path / "softmax.py"), "softmax_bwd_kernel")
    assert [each.driver.id for each in found.routes] == ["test_x.py::test_x"]


def test_links_that_loop(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "again").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "self").symlink_to("self")
    finder = check(tmp_path, {"a/test_softmax.py": TEST}, ["a/test_softmax.py::test_softmax"])
    assert sorted(finder.index.files) == ["a/test_softmax.py", "softmax.py"]


def test_what_is_no_part_of_the_project_is_not_read(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    outside = (
        "env/lib/test_a.py",
        "node_modules/test_b.py",
        ".hidden/test_c.py",
        "made/test_d.py",
        "site-packages/test_e.py",
        "build/lib/test_f.py",
    )
    files = dict.fromkeys(outside, TEST) | {"env/pyvenv.cfg": "", ".gitignore": "made/\n"}
    check(tmp_path, files, [])


def test_a_kernel_in_a_file_that_git_does_not_keep_has_drivers_too(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    check(
        tmp_path, {".gitignore": "softmax.py\n", "test_softmax.py": TEST}, ["test_softmax.py::test_softmax"]
    )


def test_a_name_that_300_tests_use_leads_nowhere(tmp_path: Path) -> None:
    """An operator of a registry, called through PyTorch: no import leads to it."""
    package = {
        "lib/__init__.py": "",
        "lib/softmax.py": SOFTMAX + "\nREGISTRY.register('softmax', softmax)\n",
    }
    user = "import torch, lib\n\ndef test_{0}():\n    torch.softmax({0})\n"
    write(tmp_path, package | {"test_one.py": user.format("one")})
    finder = DriverFinder(str(tmp_path))
    finder.refresh()
    place = str(tmp_path / "lib" / "softmax.py")
    assert [each.driver.id for each in finder.routes(place, "softmax_kernel").routes] == [
        "test_one.py::test_one"
    ]
    write(tmp_path, {f"test_{i}.py": user.format(i) for i in range(300)})
    finder.refresh()
    assert finder.routes(place, "softmax_kernel").reason == (
        "no test and no script leads to softmax_kernel: the way ends at softmax_kernel <- softmax"
    )


def test_51072_parameter_sets(tmp_path: Path) -> None:
    marks = "".join(
        f"@pytest.mark.parametrize('{name}', {values})\n"
        for name, values in (
            ("a", "range(56)"),
            ("b", "[1, 2, 3]"),
            ("c", "itertools.product([1] * 2, 'ab', range(304))"),
        )
    )
    marks = marks.replace("[1] * 2", "[1, 2]").replace("'ab'", "[0]").replace("range(304)", "range(152)")
    test = TEST.replace("def test_softmax()", f"{marks}def test_softmax(a, b, c)")
    finder = check(tmp_path, {"test_softmax.py": test}, ["test_softmax.py::test_softmax"])
    (driver,) = finder.routes(str(tmp_path / "softmax.py"), "softmax_kernel").routes
    assert driver.cases == 51_072


def test_a_test_of_one_parameter_set_comes_before_one_of_a_thousand(tmp_path: Path) -> None:
    many = "\n@pytest.mark.parametrize('n', range(1000))\ndef test_softmax_n(n):\n    softmax(n)\n"
    expected = ["test_softmax.py::test_softmax", "test_softmax.py::test_softmax_n"]
    check(tmp_path, {"test_softmax.py": many.lstrip() + TEST}, expected)


def test_at_most_eight_are_listed(tmp_path: Path) -> None:
    tests = "\n".join(TEST.replace("test_softmax", f"test_softmax_{i}") for i in range(20))
    check(
        tmp_path,
        {"test_softmax.py": tests},
        [f"test_softmax.py::test_softmax_{i}" for i in (0, 1, 10, 11, 12, 13, 14, 15)],
    )


def test_a_keystroke_costs_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finder = check(tmp_path, {"test_softmax.py": TEST}, ["test_softmax.py::test_softmax"])
    made: list[str] = []
    monkeypatch.setattr(
        "orbit_lsp.drivers.module.read", lambda text, tests: made.append(text) or read(text, tests)
    )
    typed = SOFTMAX + "\n# typed\n"
    finder.edit(str(tmp_path / "softmax.py"), typed)
    assert finder.routes(str(tmp_path / "softmax.py"), "softmax_kernel").routes
    assert made == [typed]


def test_a_cuda_text_that_is_not_saved_counts(tmp_path: Path) -> None:
    files = {
        "setup.py": "CUDAExtension('fast_ext', ['k.cu'])\n",
        "test_k.py": "import fast_ext\n\ndef test_k():\n    fast_ext.scale(1)\n",
    }
    bound = 'void host() { k<<<1, 1>>>(); }\nPYBIND11_MODULE(fast_ext, m) { m.def("scale", &host); }\n'
    write(tmp_path, files | {"k.cu": "__global__ void k() {}\n"})
    finder = DriverFinder(str(tmp_path))
    finder.refresh()
    path = str(tmp_path / "k.cu")
    assert (
        finder.routes(path, "k").reason
        == "no program launches k as far as texts tell, and no Python code calls a binding that leads to it"
    )
    finder.edit(path, "__global__ void k() {}\n" + bound)
    assert [each.driver.id for each in finder.routes(path, "k").routes] == ["test_k.py::test_k"]


EXPORTED = """
__global__ void k(float *x) { *x = 1; }
static void host(float *x) { k<<<1, 1>>>(x); }
extern "C" void fill(float *x) { host(x); }
"""


@pytest.mark.parametrize(
    ("driver", "files"),
    [
        ("test_k.py::test_k", {"test_k.py": """
            import ctypes
            lib = ctypes.CDLL("./libk.so")
            lib.fill.argtypes = [ctypes.c_void_p]

            def test_other():
                assert lib

            def test_k():
                lib.fill(None)
            """}),
        ("test_k.py::test_k", {"test_k.py": """
            from ctypes import cdll

            def test_k():
                lib = cdll.LoadLibrary("libk.so")
                getattr(lib, "fill")(None)
            """}),
        ("test_k.py::test_k", {"library.py": "import ctypes\nlib = ctypes.CDLL('libk.so')\n", "test_k.py": """
            from library import lib

            def test_k():
                lib.fill(None)
            """}),
        ("test_k.py::test_k", {"ops.py": """
            import numpy as np

            class Ops:
                def __init__(self):
                    self.lib = np.ctypeslib.load_library("libk", ".")

                def fill_all(self, x):
                    self.lib.fill(x)
            """, "test_k.py": """
            from ops import Ops

            def test_k():
                Ops().fill_all(None)
            """}),
        ("bench.py", {"bench.py": """
            from cffi import FFI
            ffi = FFI()
            ffi.cdef("void fill(float *);")
            lib = ffi.dlopen("libk.so")
            print(lib.fill(ffi.NULL))
            """}),
        ("", {"test_k.py": """
            import colours

            def test_k():
                colours.pen.fill(1)
            """}),
        ("", {"test_k.py": """
            import ctypes
            lib = ctypes.CDLL("libother.so")

            def test_k():
                lib.draw(1)
                fill = 1
            """}),
    ],
    ids=["an attribute", "getattr", "another module's", "of an object", "cffi", "no library", "another function"],
)  # fmt: skip
def test_a_c_function_that_python_calls_in_a_shared_library(
    driver: str, files: dict[str, str], tmp_path: Path
) -> None:
    write(tmp_path, {name: textwrap.dedent(text) for name, text in files.items()} | {"k.cu": EXPORTED})
    finder = DriverFinder(str(tmp_path))
    finder.refresh()
    routes = finder.routes(str(tmp_path / "k.cu"), "k").routes
    assert [each.driver.id for each in routes] == ([driver] if driver else [])


BY_PYTHON = """
template <class T> __global__ void twice(T *x) { *x *= 2; }
void host(float *x) { twice<float><<<1, 1>>>(x); }
"""


@pytest.mark.parametrize(
    ("more", "driver", "files"),
    [
        ("", "run.py", {"run.py": """
            import cupy as cp
            from pathlib import Path
            module = cp.RawModule(code=Path("k.cu").read_text(), name_expressions=["twice<float>"])
            module.get_function("twice<float>")((1,), (1,), (cp.ones(1),))
            """}),
        ("", "test_k.py::test_k", {"test_k.py": """
            from pycuda.compiler import SourceModule

            def kernel():
                return SourceModule(open("k.cu").read()).get_function("twice")

            def test_k():
                kernel()(None)
            """}),
        ("", "test_k.py::test_k", {"ops.py": """
            from torch.utils.cpp_extension import load_inline
            module = load_inline("m", "void host(float *);", open("k.cu").read(), functions=["host"])
            """, "test_k.py": """
            from ops import module

            def test_k():
                module.host(None)
            """}),
        ("", "main.py", {"bind.cpp": """
            PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("doubled", &host); }
            """, "main.py": """
            from torch.utils.cpp_extension import load

            def build():
                return load(name="m", sources=["k.cu", "bind.cpp"])

            if __name__ == "__main__":
                module = build()
                module.doubled(None)
            """}),
        ("""
            static PyObject *call(PyObject *, PyObject *x) { host(data(x)); return x; }
            static PyMethodDef methods[] = {{"doubled", (PyCFunction)call, METH_O, ""}, {nullptr}};
            """, "test_k.py::test_k", {"setup.py": "Extension('fast', ['k.cu'])", "test_k.py": """
            import fast

            def test_k():
                fast.doubled(1)
            """}),
        ("""
            ffi::Error call(float *x) { host(x); return {}; }
            XLA_FFI_DEFINE_HANDLER_SYMBOL(Doubled, call, ffi::Ffi::Bind());
            """, "test_k.py::test_k", {"test_k.py": """
            import ctypes

            def test_k():
                library = ctypes.CDLL("k.so")
                jax.ffi.register_ffi_target("doubled", jax.ffi.pycapsule(library.Doubled))
            """}),
        ("", "test_k.py::test_k", {"setup.py": "Extension('fast', ['fast.pyx', 'k.cu'])", "fast.pyx": """
            cdef extern from "k.h":
                void host(float *x)

            def unrelated(x):
                return x

            def doubled(float[:] x):
                host(&x[0])
            """, "test_k.py": """
            import fast

            def test_other():
                fast.unrelated(1)

            def test_k():
                fast.doubled(1)
            """}),
        ("", "", {"test_k.py": """
            def test_k():
                host = connect("twice")
                assert host.host
            """}),
    ],
    ids=["CuPy", "PyCUDA", "load_inline of a file", "load", "PyMethodDef", "XLA", "Cython", "no CUDA"],
)  # fmt: skip
def test_ways_from_python_to_a_kernel_of_a_cuda_file(
    more: str, driver: str, files: dict[str, str], tmp_path: Path
) -> None:
    write(
        tmp_path, {name: textwrap.dedent(text) for name, text in files.items()} | {"k.cu": BY_PYTHON + more}
    )
    finder = DriverFinder(str(tmp_path))
    finder.refresh()
    routes = finder.routes(str(tmp_path / "k.cu"), "twice").routes
    assert [each.driver.id for each in routes] == ([driver] if driver else [])


# -- the index ------------------------------------------------------------------------------------------


def test_a_cpp_text_is_split_into_tokens_once_until_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    split: list[str] = []
    monkeypatch.setattr(extension, "CudaText", lambda text: (split.append(text), CudaText(text))[1])
    kernel, main = "__global__ void k() {}\n", '#include "k.cu"\nint main() { k<<<1, 1>>>(); }\n'
    write(tmp_path, {"k.cu": kernel, "main.cu": main})
    finder = DriverFinder(str(tmp_path))
    for _ in range(2):
        assert [each.driver.file for each in finder.routes(str(tmp_path / "k.cu"), "k").routes] == ["main.cu"]
    assert sorted(split) == sorted([kernel, main])
    split.clear()
    write(tmp_path, {"main.cu": main.replace("main", "other")})
    assert not finder.routes(str(tmp_path / "k.cu"), "k").routes
    assert split == [main.replace("main", "other")]


def test_the_nearest_folders_are_read_first(tmp_path: Path) -> None:
    far = {f"other/deep/er/m{i}.py": "" for i in range(40)}
    write(tmp_path, {"pkg/ops/softmax.py": SOFTMAX, "tests/test_softmax.py": TEST} | far)
    finder = DriverFinder(str(tmp_path))
    kernel = str(tmp_path / "pkg/ops/softmax.py")
    steps = 1
    while not finder.refresh(kernel, within=0):
        steps += 1
        assert not finder.complete
    order = list(finder.index.files)
    assert (steps, order[:2]) == (43, ["pkg/ops/softmax.py", "tests/test_softmax.py"])
    assert finder.complete


def test_before_all_is_read_the_reason_says_so(tmp_path: Path) -> None:
    write(tmp_path, {"softmax.py": SOFTMAX, "tests/test_softmax.py": TEST})
    finder = DriverFinder(str(tmp_path))
    kernel = str(tmp_path / "softmax.py")
    finder.refresh(kernel, within=0)
    assert finder.routes(kernel, "softmax_kernel").reason == "the project's files are still being read"


def test_the_next_process_reads_only_what_has_changed(tmp_path: Path) -> None:
    """What is kept of a file counts as long as its size and time are the same: here its text is another, unnoticed."""
    project, cache = tmp_path / "project", tmp_path / "drivers.sqlite"
    write(project, {"softmax.py": SOFTMAX, "test_softmax.py": TEST})
    DriverFinder(str(project), lambda: cache).refresh()
    status = (project / "test_softmax.py").stat()
    (project / "test_softmax.py").write_text(TEST.replace("softmax", "xamtfos"))
    os.utime(project / "test_softmax.py", ns=(status.st_atime_ns, status.st_mtime_ns))
    second = DriverFinder(str(project), lambda: cache)
    second.refresh()
    assert second.index.mention("softmax") == ["softmax.py", "test_softmax.py"]
    os.utime(project / "test_softmax.py", ns=(0, 0))
    second.refresh()
    assert second.index.mention("softmax") == ["softmax.py"]
    with sqlite3.connect(cache) as file:
        assert file.execute("select count(*) from files").fetchone() == (2,)
    (project / "test_softmax.py").unlink()
    DriverFinder(str(project), lambda: cache).refresh()
    with sqlite3.connect(cache) as file:
        assert file.execute("select place from files").fetchall() == [("softmax.py",)]


def test_the_index_keeps_the_last_20_projects(tmp_path: Path) -> None:
    for i in range(22):
        write(tmp_path, {f"{i}/softmax.py": SOFTMAX})
        DriverFinder(str(tmp_path / str(i)), lambda: tmp_path / "drivers.sqlite").refresh()
    with sqlite3.connect(tmp_path / "drivers.sqlite") as file:
        kept = {Path(root).name for (root,) in file.execute("select root from files")}
    assert kept == {str(i) for i in range(2, 22)}


def test_an_index_that_is_damaged_or_cannot_be_written_costs_nothing(tmp_path: Path) -> None:
    project, cache = tmp_path / "project", tmp_path / "drivers.sqlite"
    cache.write_bytes(b"not a database" * 100)
    for where in (cache, tmp_path / "softmax.py" / "drivers.sqlite", tmp_path):
        check(
            project,
            {"test_softmax.py": TEST},
            ["test_softmax.py::test_softmax"],
            DriverFinder(str(project), lambda where=where: where),
        )
    with sqlite3.connect(cache) as file:  # a new one
        assert file.execute("select count(*) from files").fetchone() == (2,)
