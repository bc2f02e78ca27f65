"""`orbit-lsp run FILE --through DRIVER`, whole, with a real pytest: on this machine no kernel is launched."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.driver_layouts import written
from tests.e2e.forks import Ended, command

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers run on Linux")

PACKAGE = """
try:
    import triton
except ImportError:
    class triton:
        jit = staticmethod(lambda function: function)

@triton.jit
def softmax_kernel(x, n):
    pass

def softmax(x):
    if getattr(x, "is_cuda", False):
        softmax_kernel[(1,)](x, 1)
    return x
"""
TESTS = """
import pytest
from pkg import softmax

@pytest.mark.parametrize("n", [1, 2, 3])
def test_wrong(n):
    value = softmax(n)
    assert value == 1, "not one"

def test_right():
    assert softmax(2) == 2

@pytest.mark.skip(reason="no GPU")
def test_skipped():
    softmax(1)
"""
BENCH = """
from pkg import softmax

def benchmark():
    print("sum", softmax(41) + 1)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    files = {
        "pkg/softmax.py": PACKAGE,
        "pkg/__init__.py": "from .softmax import softmax",
        "tests/test_softmax.py": TESTS,
        "bench.py": BENCH,
        "pyproject.toml": "[tool.pytest.ini_options]\n",
    }
    for name, text in files.items():
        (tmp_path / "work" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "work" / name).write_text(text)
    # without these the worker's Python begins in a moment
    (tmp_path / "absent").mkdir()
    for name in ("torch", "triton"):
        (tmp_path / "absent" / f"{name}.py").write_text("raise ImportError")
    return tmp_path / "work"


def run(folder: Path, *words: str) -> Ended:
    place = {"XDG_CACHE_HOME": str(folder.parent / "cache"), "PYTHONPATH": str(folder.parent / "absent")}
    place["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # those that are installed here take two seconds
    line = ["run", "pkg/softmax.py", "--runner", "local", "--python", sys.executable]
    return command(folder, *line, *words, environment=place)


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_a_test_that_passes(folder: Path) -> None:
    before = files(folder)
    done = run(folder, "--through", "tests/test_softmax.py::test_right", "--trust")
    assert done.returncode == 0, done.stderr
    assert "1 passed" in done.stdout
    assert "softmax_kernel: not launched by tests/test_softmax.py::test_right" in done.stderr
    assert files(folder) == before


def test_a_test_that_fails_stands_at_its_line(folder: Path) -> None:
    done = run(folder, "--through", "test_wrong", "--trust", "--json")
    report = json.loads(done.stdout)
    assert (done.returncode, report["outcome"]) == (3, "wrong answer"), done.stderr
    assert report["failure"]["message"].startswith("AssertionError: not one")
    place = report["failure"]["place"]
    assert (Path(place["file"]).name, place["line"]) == ("test_softmax.py", 8)


@pytest.mark.slow
def test_one_parameter_set(folder: Path) -> None:
    done = run(folder, "--through", "tests/test_softmax.py::test_wrong[1]", "--trust")
    assert (done.returncode, "1 passed" in done.stdout) == (0, True), done.stderr


def test_a_function_of_a_script(folder: Path) -> None:
    done = run(folder, "--through", "bench.py", "--trust")
    assert (done.returncode, "sum 42" in done.stdout) == (0, True), done.stderr


@pytest.mark.parametrize(
    "named",
    [
        "tests/test_by_name.py::test_it",
        *(
            pytest.param(named, marks=pytest.mark.slow)
            for named in ("tests/test_by_name.py::test_it[1]", "by_name.py")
        ),
    ],
)
def test_a_driver_that_its_author_names_though_no_text_leads_from_it_to_the_kernel(
    folder: Path, named: str
) -> None:
    text = "import importlib\nimportlib.import_module('.'.join(['pkg', 'softmax'])).softmax(1)\n"
    test = "import pytest\n@pytest.mark.parametrize('n', [1, 2])\ndef test_it(n):\n    "
    (folder / "by_name.py").write_text(text)
    (folder / "tests" / "test_by_name.py").write_text(test + text.replace("\n", "\n    ").rstrip() + "\n")
    done = run(folder, "--through", named, "--trust")
    assert done.returncode == 0, done.stderr
    assert "softmax_kernel: not launched by" in done.stderr


@pytest.mark.slow
def test_a_conftest_that_fails_is_no_fault_of_the_kernel(folder: Path) -> None:
    (folder / "tests" / "conftest.py").write_text("raise RuntimeError('mine')\n")
    done = run(folder, "--through", "auto", "--trust")
    assert done.returncode == 5, done.stderr
    assert "tests/conftest.py failed: RuntimeError: mine [infrastructure]" in done.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--through", "auto"), "is not trusted: if you trust the authors of"),
        (("--through", "test_gone", "--trust"), "test_gone is not known to run softmax_kernel; known are"),
        (("--through", "auto", "--kernel", "sofmax_kernel", "--trust"), "did you mean softmax_kernel"),
    ],
)
def test_what_is_refused(folder: Path, words: tuple[str, ...], says: str) -> None:
    done = run(folder, *words)
    assert done.returncode == 64
    assert says in done.stderr


def test_a_kernel_that_nothing_runs(folder: Path) -> None:
    (folder / "tests" / "test_softmax.py").unlink()
    (folder / "bench.py").unlink()
    done = run(folder, "--through", "auto", "--trust")
    assert done.returncode == 64
    assert "nothing that runs softmax_kernel was found" in done.stderr


@pytest.mark.parametrize(
    ("project", "kernel", "driver", "says"),
    [
        pytest.param("program_make", "src/scale.cu", "bin/bench", "n 2048: ", marks=pytest.mark.slow),
        ("program_include", "histogram/kernel.cuh", "histogram/other.cu", ""),
    ],
)
def test_a_program_of_the_project(project: str, kernel: str, driver: str, says: str, tmp_path: Path) -> None:
    """Built for real; without a GPU it ends with an error of CUDA's, or launches nothing."""
    written(project, tmp_path / "work")
    place = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    words = ["run", kernel, "--runner", "local", "--through", driver, "--trust"]
    done = command(tmp_path / "work", *words, environment=place)
    assert done.returncode in (0, 2), done.stderr
    assert says in done.stdout, done.stderr
    assert "scale_kernel" in done.stderr


def test_a_program_of_an_untrusted_folder(tmp_path: Path) -> None:
    written("program_make", tmp_path / "work")
    place = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = command(tmp_path / "work", "run", "src/scale.cu", "--through", "auto", environment=place)
    assert done.returncode == 64
    assert "is not trusted" in done.stderr
    assert not (tmp_path / "work" / "bin").exists()


def test_a_test_that_is_skipped_where_no_gpu_is_has_not_run_the_kernel(folder: Path) -> None:
    """This machine has none: the ways to one are said, as for a kernel that is run by itself."""
    done = run(folder, "--through", "test_skipped", "--trust")
    assert done.returncode == 5, done.stdout + done.stderr
    assert "no NVIDIA GPU in this machine to run it on: test_skipped was skipped" in done.stderr
    assert "- Rent one from Modal: " in done.stderr


def test_a_script_that_torch_refuses_without_a_gpu(folder: Path) -> None:
    (folder / "bench.py").write_text(
        BENCH + "    raise AssertionError('Torch not compiled with CUDA enabled')\n"
    )
    done = run(folder, "--through", "bench.py", "--trust")
    assert done.returncode == 5, done.stdout + done.stderr
    assert "to run it on: Torch not compiled with CUDA enabled" in done.stderr
