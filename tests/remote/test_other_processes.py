"""What a driver's files and its other processes do: variables that they set, kernels that its ranks launch, kernels that are compiled."""

from __future__ import annotations

import importlib
import itertools
import os
import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orbit_remote.child import triton_interpreter
from orbit_remote.child.driver import compilations, driver_run, other_processes
from orbit_remote.child.driver.set_by_driver import SetByDriver
from orbit_remote.common import messages as c
from orbit_remote.common.launch_records import LaunchRecord, LaunchSeries, series
from orbit_remote.common.requests import Driver, DriverStart, Job

KERNEL = "import triton\n\n@triton.jit\ndef {}(x):\n    pass\n"


def launches(name: str, pid: int, *spans: tuple[int, int], device: int = 0) -> LaunchSeries:
    records = [
        LaunchRecord(name, begin, end, (1, 1, 1), (1, 1, 1), device=device, process=pid)
        for begin, end in spans
    ]
    [same] = series(records)
    return same


def told_apart(folder: Path, *launched: LaunchSeries) -> tuple[list[LaunchSeries], other_processes.Elsewhere]:
    job = Job("1", "run", "triton", str(folder / "k.py"), "\n" + KERNEL.format("add"), directory=str(folder))
    return other_processes.told_apart(launched, job)


def test_a_kernel_of_another_process_is_the_one_of_its_name(tmp_path: Path) -> None:
    (tmp_path / "k.py").write_text(KERNEL.format("add"))  # the editor shows one line more
    (tmp_path / "other.py").write_text(KERNEL.format("mul") + "def add(x): ...\n")
    mine = launches("add", os.getpid(), (1, 2))
    ranks = [launches(name, 1, (3, 4)) for name in ("add", "mul", "_Z5scalePf", "at::native<1>")]
    here, elsewhere = told_apart(tmp_path, mine, *ranks)
    assert here == [mine]
    assert elsewhere.series == ranks
    places = {each.name: each.place for each in elsewhere.kernels}
    assert places == {
        "add": c.Place(str(tmp_path / "k.py"), 5),
        "mul": c.Place(str(tmp_path / "other.py"), 4),
    }
    assert not list(elsewhere.remarks())


def test_a_name_that_two_kernels_have_is_shown_at_neither(tmp_path: Path) -> None:
    for name in ("k.py", "pkg/k.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(KERNEL.format("add"))
    (tmp_path / "venv").mkdir()
    (tmp_path / "venv/pyvenv.cfg").touch()
    (tmp_path / "venv/k.py").write_text(KERNEL.format("mul"))
    _, elsewhere = told_apart(tmp_path, launches("add", 1, (3, 4)), launches("mul", 1, (3, 4)))
    assert [each.launch.symbol for each in elsewhere.series] == ["mul"]
    assert elsewhere.kernels == ()
    assert list(elsewhere.remarks()) == [
        "other processes of the driver launched add, and several kernels of the project have that name, so their times are not shown"
    ]


@pytest.mark.parametrize(
    ("second", "device", "shares"), [((15, 30), 0, True), ((20, 30), 0, False), ((15, 30), 1, False)]
)
def test_processes_that_share_a_gpu(
    second: tuple[int, int], device: int, shares: bool, tmp_path: Path
) -> None:
    ranks = [launches("_Z1k", 1, (10, 20)), launches("_Z1k", 2, second, device=device)]
    _, elsewhere = told_apart(tmp_path, *ranks)
    text = "2 processes of the driver launched kernels on one GPU at the same time, which can lengthen them"
    assert list(elsewhere.remarks()) == ([text] if shares else [])


def test_each_parameter_set_has_its_launches_of_every_configuration(tmp_path: Path) -> None:
    driver = Driver("pytest", "test_it.py", "test_it")
    job = Job("1", "run", "triton", "k.py", "", directory=str(tmp_path), start=DriverStart(driver))
    clock = iter([10, 20, 30, 40]).__next__
    ran = driver_run.DriverRun(job, clock, lambda: None)
    watch = ran._watch  # pyright: ignore[reportPrivateUsage]
    watch.pytest_collection_finish(
        SimpleNamespace(items=[SimpleNamespace(nodeid=name) for name in ("t[1]", "t[2]")])
    )
    for name in ("t[1]", "t[2]"):
        watch.pytest_runtest_logstart(name, None)
        watch.pytest_runtest_logfinish(name, None)
    pid = os.getpid()
    configurations = [
        launches("add", pid, (11, 12), (13, 14)),
        launches("add", pid, (31, 32)),
        launches("mul", pid, (33, 34)),
    ]
    told, left = ran.sets(configurations)
    assert [(each.id, each.launches) for each in told] == [
        ("t[1]", {"add": 2}),
        ("t[2]", {"add": 1, "mul": 1}),
    ]
    assert left == 0


def test_of_thousands_of_parameter_sets_those_are_told_that_launch(tmp_path: Path) -> None:
    driver = Driver("pytest", "test_it.py", "test_it")
    job = Job("1", "run", "triton", "k.py", "", directory=str(tmp_path), start=DriverStart(driver))
    ran = driver_run.DriverRun(job, itertools.count().__next__, lambda: None)
    watch, names = ran._watch, [f"t[{number}]" for number in range(1_000)]  # pyright: ignore[reportPrivateUsage]
    watch.pytest_collection_finish(SimpleNamespace(items=[SimpleNamespace(nodeid=name) for name in names]))
    for name in names:
        watch.pytest_runtest_logstart(name, None)
        watch.pytest_runtest_logfinish(name, None)
    told, _ = ran.sets([launches("add", 1, (1_998, 1_999))])  # within the last
    assert [each.id for each in told[:2]] == ["t[999]", "t[0]"]
    assert len(told) == 300


SETS = "t.py::test sets CUDA_VISIBLE_DEVICES to "
BLIND = ", so it sees no GPU"
OTHER = ": the GPU that was kept free of other jobs for it may be another one"


@pytest.mark.parametrize(
    ("given", "device", "value", "says"),
    [
        (None, 0, None, ""),
        (None, 0, "0", ""),
        (None, 0, "1", f"{SETS}1{OTHER}"),
        ("1", 0, "1", ""),
        ("1", 0, "0", f"{SETS}0{OTHER}"),
        (None, 0, "", f'{SETS}""{BLIND}'),
        (None, 0, "-1", f'{SETS}"-1"{BLIND}'),
        ("", 0, "", ""),
    ],
)
def test_gpus_that_a_driver_chooses(
    given: str | None, device: int, value: str | None, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if given is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
    found = SetByDriver("t.py::test", device)
    if value is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    assert list(found.remarks(launched=True)) == ([says] if says else [])
    assert found.hidden == (says if says.endswith(BLIND) else "")


def test_triton_is_imported_anew_once_it_is_to_interpret(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own functions are made when it is imported, and those of a compiled kernel cannot be interpreted."""
    forgotten: list[str] = []
    monkeypatch.setattr(
        triton_interpreter, "forget", lambda: forgotten.append(os.environ["TRITON_INTERPRET"])
    )
    monkeypatch.setenv("TRITON_INTERPRET", "")
    found = SetByDriver("t.py::test", 0)
    with found.heeded():
        os.environ["TRITON_INTERPRET"] = "0"
        assert forgotten == []
        for _ in range(2):
            os.environ["TRITON_INTERPRET"] = "1"
        assert forgotten == ["0"]  # nothing has seen the new value yet
    assert list(found.remarks(launched=True)) == []
    assert list(found.remarks(launched=False)) == [
        "t.py::test sets TRITON_INTERPRET=1, so Triton's kernels ran on the CPU"
    ]


def test_what_is_compiled_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    compiler: Any = importlib.import_module("triton.compiler")
    target = importlib.import_module("triton.backends.compiler").GPUTarget("cuda", 90, 32)
    (tmp_path / "k.py").write_text(KERNEL.format("add"))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    sent: list[c.Event] = []
    kernel = runpy.run_path(str(tmp_path / "k.py"))["add"]
    with compilations.told(sent.append, "r1"):
        for _ in range(2):  # the second is in Triton's cache
            compiler.compile(compiler.ASTSource(kernel, {"x": "*fp32"}, {}), target=target)
    compiler.compile(compiler.ASTSource(kernel, {"x": "*i32"}, {}), target=target)
    told = [(each.state, each.why) for each in sent if isinstance(each, c.Stage)]
    assert told == [("building", "compiling add"), ("running", "")]
