"""A driver's job in a process of its own, with a real pytest: which text runs, which parameter sets, and how it ends."""

from __future__ import annotations

import json
import os
import py_compile
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orbit_remote.common import codec
from orbit_remote.common import messages as c
from orbit_remote.common.requests import Driver, DriverStart, Job

RUN = """
import sys
from orbit_remote.child import python_job
from orbit_remote.common import codec, messages
job = codec.decode_request(sys.stdin.read())
finished = python_job.run_file(job, lambda event: None)
print()
print(messages.encode(finished))
"""


def run(
    folder: Path, driver: Driver, *, plugins: bool = False, job: Mapping[str, Any] | None = None, **more: Any
) -> tuple[c.Finished, str]:
    """Return what became of a driver of a project, and what it printed. `plugins`: with all that are installed here, which takes
    two seconds of the processor. `job` are fields of the job, `more` those of its `DriverStart`.
    """
    kernel = folder / "k.py"
    kernel.touch()
    start = DriverStart(driver, **more)
    wanted = Job("r1", "run", "triton", str(kernel), "", directory=str(folder), start=start)
    wanted = replace(wanted, **job or {})
    done = subprocess.run(
        [sys.executable, "-P", "-c", RUN], input=c.encode(wanted), capture_output=True, text=True,
        cwd="/", check=False, env=os.environ | ({} if plugins else {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}),
    )  # fmt: skip
    printed, _, last = done.stdout.rstrip().rpartition("\n")
    finished = codec.decode_event(json.loads(last)) if last.startswith("{") else None
    assert isinstance(finished, c.Finished), done.stderr
    return finished, printed


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


SAVED = "import inspect\n\ndef which():\n    return 'saved'\n"
UNSAVED = SAVED.replace("saved", "unsaved")
SEEN = "raise ValueError(f\"{which()} {'unsaved' in inspect.getsource(which)}\")\n"
TEST = f"import inspect\nfrom FROM import which\n\ndef test_it():\n    {SEEN}"
PYTEST = Driver("pytest", "tests/test_it.py", "test_it")


def compiled(folder: Path) -> None:
    py_compile.compile(str(folder / "m.py"))


def linked(folder: Path) -> None:
    (folder / "real").mkdir()
    (folder / "m.py").rename(folder / "real" / "m.py")
    (folder / "m.py").symlink_to("real/m.py")


def nothing(folder: Path) -> None:
    del folder


@pytest.mark.parametrize(
    ("place", "files", "driver", "prepare", "unsaved"),
    [
        pytest.param("m.py", {}, PYTEST, nothing, False, marks=pytest.mark.slow),
        ("m.py", {}, PYTEST, nothing, True),
        pytest.param("pkg/m.py", {"pkg/__init__.py": ""}, PYTEST, nothing, True, marks=pytest.mark.slow),
        pytest.param("pkg/__init__.py", {"pkg/other.py": ""}, PYTEST, nothing, True, marks=pytest.mark.slow),
        pytest.param("src/pkg/m.py", {"src/pkg/__init__.py": "", "pyproject.toml": ""}, PYTEST, nothing, True, marks=pytest.mark.slow),
        ("space/inner/m.py", {}, PYTEST, nothing, True),
        ("m.py", {}, PYTEST, compiled, True),
        ("m.py", {}, PYTEST, linked, True),
        pytest.param("tests/m.py", {}, PYTEST, nothing, True, marks=pytest.mark.slow),
        ("m.py", {}, Driver("script", "tests/test_it.py", "test_it"), nothing, True),
    ],
    ids=["saved", "module", "package", "init", "src", "namespace", "byte code", "link", "beside", "script"],
)  # fmt: skip
def test_the_text_that_runs_is_the_one_in_the_editor(
    place: str, files: dict[str, str], driver: Driver, prepare: Any, unsaved: bool, tmp_path: Path
) -> None:
    name = place.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    name = name.removeprefix("src.").removeprefix("tests.")
    write(tmp_path, files | {place: SAVED, "tests/test_it.py": TEST.replace("FROM", name)})
    prepare(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    texts = {place: UNSAVED if unsaved else SAVED}
    finished, _ = run(tmp_path, driver, texts=texts)
    assert finished.failure
    assert finished.failure.message == f"ValueError: {'unsaved True' if unsaved else 'saved False'}"
    (tmp_path / "k.py").unlink()
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("of", ["test", "conftest"])
def test_unsaved_texts_that_pytest_reads_by_itself(of: str, tmp_path: Path) -> None:
    test, conftest = (
        "def test_it(n):\n    assert n == 1\n",
        "import pytest\n\n@pytest.fixture\ndef n():\n    return 1\n",
    )
    write(tmp_path, {"tests/test_it.py": test, "tests/conftest.py": conftest})
    texts = (
        {"tests/test_it.py": test.replace("== 1", "== 2")}
        if of == "test"
        else {"tests/conftest.py": conftest.replace("return 1", "return 3")}
    )
    finished, _ = run(tmp_path, PYTEST, texts=texts)
    assert finished.failure
    assert finished.outcome == "wrong answer"
    assert finished.failure.message == f"AssertionError: assert {'1 == 2' if of == 'test' else '3 == 1'}"


SETS = """import pytest

@pytest.mark.parametrize("n", [1, 2, 3])
def test_it(n):
    if n == 2:
        pytest.skip("needs two GPUs")
"""


def test_each_parameter_set_is_told(tmp_path: Path) -> None:
    write(tmp_path, {"tests/test_it.py": SETS})
    finished, _ = run(tmp_path, PYTEST)
    told = [(each.id.rpartition("::")[2], each.outcome, each.why) for each in finished.sets]
    assert told == [
        ("test_it[1]", "passed", ""),
        ("test_it[2]", "skipped", "needs two GPUs"),
        ("test_it[3]", "passed", ""),
    ]
    assert finished.sets_left == 0


def test_only_the_wanted_sets_run(tmp_path: Path) -> None:
    write(tmp_path, {"tests/test_it.py": SETS})
    finished, _ = run(tmp_path, PYTEST, sets=("tests/test_it.py::test_it[3]",))
    assert [each.id for each in finished.sets] == ["tests/test_it.py::test_it[3]"]
    assert finished.sets_left == 2


def test_sets_that_are_no_more_are_as_none(tmp_path: Path) -> None:
    write(tmp_path, {"tests/test_it.py": SETS})
    finished, _ = run(tmp_path, PYTEST, sets=("tests/test_it.py::test_it[9]",))
    assert len(finished.sets) == 3


COUNTED = """import pathlib
import pytest

HERE = pathlib.Path(__file__).parent

@pytest.fixture
def fresh():
    with (HERE / "made").open("a") as file:
        file.write("x")

@pytest.mark.parametrize("n", [1, 2])
def test_it(n, fresh):
    with (HERE / f"ran{n}").open("a") as file:
        assert file.tell() < FAILS_AT
        file.write("x")
"""


@pytest.mark.parametrize(("fails_at", "ran"), [(99, 20), (7, 7)], ids=["passes", "fails"])
def test_a_repeated_test_runs_twenty_times_or_until_it_fails(fails_at: int, ran: int, tmp_path: Path) -> None:
    write(tmp_path, {"tests/test_it.py": COUNTED.replace("FAILS_AT", str(fails_at))})
    finished, _ = run(tmp_path, PYTEST, sets=("tests/test_it.py::test_it[2]",), repeated=True)
    assert [(each.id, each.outcome) for each in finished.sets] == [
        ("tests/test_it.py::test_it[2]", "passed" if ran == 20 else "failed")
    ]
    assert finished.outcome == ("ok" if ran == 20 else "wrong answer")
    assert (tmp_path / "tests/ran2").read_text() == ran * "x"
    assert len((tmp_path / "tests/made").read_text()) == ran + (ran < 20)
    assert not (tmp_path / "tests/ran1").exists()


@pytest.mark.parametrize("ends", ["", "raise SystemExit(0)\n", "raise SystemExit(3)\n"])
def test_a_repeated_script_runs_twenty_times_unless_it_fails(ends: str, tmp_path: Path) -> None:
    write(tmp_path, {"bench.py": "print('once more')\n" + ends})
    finished, printed = run(tmp_path, Driver("script", "bench.py"), repeated=True)
    assert printed.count("once more") == (1 if "3" in ends else 20)
    assert finished.exit_code == (3 if "3" in ends else 0)


def test_a_test_that_is_skipped_says_why_nothing_was_launched(tmp_path: Path) -> None:
    write(tmp_path, {"tests/test_it.py": SETS.replace("n == 2", "n")})
    finished, _ = run(tmp_path, PYTEST)
    assert "tests/test_it.py::test_it was skipped: needs two GPUs" in finished.remarks


def test_an_interpreted_kernel_is_no_launch(tmp_path: Path) -> None:
    write(
        tmp_path,
        {"tests/conftest.py": "import os\nos.environ['TRITON_INTERPRET'] = '1'\n", "tests/test_it.py": SETS},
    )
    finished, _ = run(tmp_path, PYTEST)
    why = "tests/test_it.py::test_it sets TRITON_INTERPRET=1, so Triton's kernels ran on the CPU"
    assert why in finished.remarks


@pytest.mark.parametrize(
    ("files", "driver", "says"),
    [
        (
            {"tests/test_it.py": "import gone\n\ndef test_it(): ...\n"},
            PYTEST,
            "tests/test_it.py could not be collected: ModuleNotFoundError: No module named 'gone'",
        ),
        (
            {"tests/test_it.py": "import sys\n\nsys.exit('build me first\\nwith pip')\n"},
            PYTEST,
            "tests/test_it.py ended pytest: build me first",
        ),
        (
            {"tests/test_it.py": "def test_other(): ...\n"},
            PYTEST,
            "pytest found no tests/test_it.py::test_it: it may have another name now",
        ),
        (
            {},
            PYTEST,
            "pytest found no tests/test_it.py::test_it: it may have another name now",
        ),
        (
            {"tests/test_it.py": SETS, "tests/conftest.py": "raise RuntimeError('mine')\n"},
            PYTEST,
            "tests/conftest.py failed: RuntimeError: mine",
        ),
        (
            {"tests/test_it.py": SETS, "pytest.ini": "[pytest]\naddopts = --no-such-option\n"},
            PYTEST,
            "pytest refuses its configuration: unrecognized arguments: --no-such-option",
        ),
        (
            {"tests/test_it.py": SETS, "pytest.ini": "[pytest]\nrequired_plugins = pytest-absent\n"},
            PYTEST,
            "pytest refuses its configuration: Missing required plugins: pytest-absent",
        ),
        (
            {"tests/test_it.py": SETS, "pytest.ini": "[pytest]\naddopts = -k other\n"},
            PYTEST,
            "pytest selected no test of tests/test_it.py::test_it, which options of the project (addopts) may leave out",
        ),
        ({}, Driver("script", "bench.py"), "bench.py cannot be read: "),
        (
            {"tests/test_it.py": "def test_it():\n    raise RuntimeError('Found no NVIDIA driver on your system.')\n"},
            PYTEST,
            "there is no NVIDIA GPU in this machine to run it on: Found no NVIDIA driver",
        ),
    ],
    ids=["import", "exit", "no such test", "no such test file", "conftest", "options", "plug-in", "left out", "no such file", "no GPU"],
)  # fmt: skip
def test_what_says_nothing_of_the_kernel(
    files: dict[str, str], driver: Driver, says: str, tmp_path: Path
) -> None:
    write(tmp_path, files)
    finished, _ = run(tmp_path, driver)
    assert finished.failure
    assert finished.outcome == "infrastructure"
    assert finished.failure.message.startswith(says)


@pytest.mark.parametrize("spread", ["-n 2", pytest.param("-p no:xdist", marks=pytest.mark.slow)])
def test_the_projects_own_options_hold_but_those_that_spread_a_test(spread: str, tmp_path: Path) -> None:
    """xdist is installed here, and switched on or off by the project."""
    options = f"[pytest]\naddopts = {spread} -p no:randomly --strict-markers -k 'test_it and not 3'\n"
    write(tmp_path, {"tests/test_it.py": SETS, "pytest.ini": options})
    finished, _ = run(tmp_path, PYTEST, plugins=True)
    assert [each.id.rpartition("[")[2] for each in finished.sets] == ["1]", "2]"]
