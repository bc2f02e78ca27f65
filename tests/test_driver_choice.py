"""Which test or script a click takes, and where what it launched is filed."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from orbit_lsp.cli.files import through_command
from orbit_lsp.engine.engine import Engine
from orbit_lsp.runners import refusals
from orbit_lsp.runs import result_filing
from orbit_lsp.specs import driver_choice, job_builder, launch_plan
from orbit_lsp.state.kernel_ids import KernelId
from orbit_lsp.state.results import Learned, Route, Routes
from orbit_lsp.state.session import Session, uri_of
from orbit_remote.common import messages as c
from orbit_remote.common.measurements import Timing
from orbit_remote.common.requests import Driver, DriverStart, Job

KERNEL = "import triton\n\n@triton.jit\ndef k(x):\n    pass\n"
OTHER = KERNEL.replace("def k", "def other")
ONE, TWO, THREE = (Driver("pytest", "tests/test_k.py", f"test_{name}") for name in ("one", "two", "three"))
TIMING = Timing(1, 1000.0, "in program, n=1")


def opened(folder: Path, text: str = KERNEL) -> tuple[Session, KernelId]:
    """A session with k.py of a trusted folder open, whose kernel three tests lead to."""
    session = Session()
    session.setup.folders = [str(folder)]
    session.setup.trusts = lambda folder: True
    (folder / "k.py").write_text(text)
    target = KernelId(uri_of(str(folder / "k.py")), "k")
    session.open(target.uri, 1, text)
    session.routes[target] = Routes(tuple(Route(driver, ("k",), 1.0) for driver in (ONE, TWO, THREE)))
    return session, target


@pytest.mark.parametrize(
    ("learned", "expected"),
    [
        ({}, ONE),
        ({ONE: Learned(0, 0.1)}, TWO),
        ({ONE: Learned(0, 0.1), TWO: Learned(0, 0.1)}, THREE),
        ({ONE: Learned(0, 0.1), TWO: Learned(0, 0.1), THREE: Learned(0, 0.1)}, None),
        ({TWO: Learned(4, 2.0)}, TWO),
        ({ONE: Learned(4, 2.0), THREE: Learned(1, 0.5)}, THREE),
    ],
    ids=["nearest", "did not launch", "nor the next", "none does", "launched", "the quicker one"],
)
def test_what_a_click_takes(learned: dict[Driver, Learned], expected: Driver | None, tmp_path: Path) -> None:
    session, target = opened(tmp_path)
    session.results.learned[target] = learned
    assert driver_choice.chosen(session, target) == expected


def test_the_authors_choice_comes_first(tmp_path: Path) -> None:
    session, target = opened(tmp_path)
    session.results.learned[target] = {ONE: Learned(1, 0.1)}
    session.results.pinned[target] = TWO
    assert driver_choice.chosen(session, target) == TWO


def test_the_files_own_program_comes_first_until_a_run_shows_that_it_does_not_launch_the_kernel(
    tmp_path: Path,
) -> None:
    session, target = opened(tmp_path, KERNEL + "\ndef main():\n    pass\n")
    assert driver_choice.chosen(session, target) is None
    file(session, target, launch_plan.PROGRAM, {})
    assert driver_choice.chosen(session, target) == ONE
    by_one(session, target, {"k": ("k.py", 4)})
    assert driver_choice.chosen(session, target) == ONE


def test_a_test_that_was_renamed_is_not_taken(tmp_path: Path) -> None:
    session, target = opened(tmp_path)
    session.results.pinned[target] = THREE
    session.results.learned[target] = {TWO: Learned(1, 0.1)}
    session.routes[target] = Routes((Route(ONE, ("k",), 1.0),))
    assert driver_choice.chosen(session, target) == ONE
    del session.routes[target]  # nothing is known of the project yet
    assert driver_choice.chosen(session, target) == THREE


def test_a_pinned_driver_goes_before_the_launch_spec(tmp_path: Path) -> None:
    spec = "# orbit: x = empty(1)\n# orbit: launch k[1](x)\n"
    session, target = opened(tmp_path, KERNEL.replace("@triton.jit", f"{spec}@triton.jit"))
    assert job_builder.plan_of(session, target).through == "spec"
    session.results.pinned[target] = TWO
    assert job_builder.plan_of(session, target).driver == TWO


def file(
    session: Session,
    target: KernelId,
    plan: launch_plan.LaunchPlan,
    launches: dict[str, tuple[str, int]],
    **more: object,
) -> Job:
    """File a run that launched kernels at these lines of files of the project; `more` are fields of its end."""
    frozen = session.freeze(target.uri)
    assert frozen
    job = job_builder.make(session, frozen, "run", "r1", plan)
    folder = Path(job.directory or "")
    launched = tuple(
        c.Launches(name, name, (1, 1, 1), (1, 1, 1), TIMING, 1, place=c.Place(str(folder / place), line))
        for name, (place, line) in launches.items()
    )
    finished = c.Finished("r1", "ok", launches=launched, run_s=1.0, device=c.Device("H200", 0))
    finished = result_filing.of_copies(frozen, job, {target}, replace(finished, **more))
    result_filing.finished(session, frozen, job, {target}, None, finished, plan)
    return job


def by_one(session: Session, target: KernelId, launches: dict[str, tuple[str, int]], **more: object) -> Job:
    return file(session, target, launch_plan.driven(session, target.uri, ONE), launches, **more)


def test_every_kernel_that_was_launched_has_its_result(tmp_path: Path) -> None:
    session, target = opened(tmp_path)
    (tmp_path / "other.py").write_text(OTHER)
    by_one(session, target, {"k": ("k.py", 4), "other": ("other.py", 4)})
    other = KernelId(uri_of(str(tmp_path / "other.py")), "other")
    assert {each: session.results.runs[each].driver for each in (target, other)} == {target: ONE, other: ONE}
    assert session.results.learned[other] == {ONE: Learned(1, 1.0)}


def test_a_result_has_the_digest_of_the_text_that_ran(tmp_path: Path) -> None:
    session, target = opened(tmp_path)
    other = KernelId(uri_of(str(tmp_path / "other.py")), "other")
    (tmp_path / "other.py").write_text(OTHER)
    session.open(other.uri, 1, OTHER.replace("pass", "return"))
    unsaved = session.kernels(other.uri)[0][2]
    by_one(session, target, {"other": ("other.py", 4)})
    assert session.results.runs[other].digest == unsaved


def test_a_file_that_was_changed_while_it_ran_has_no_result(tmp_path: Path) -> None:
    session, target = opened(tmp_path)
    (tmp_path / "other.py").write_text(OTHER)
    before = c.content_hash(OTHER.replace("pass", "return").encode())
    by_one(session, target, {"other": ("other.py", 4)}, files={str(tmp_path / "other.py"): before})
    assert KernelId(uri_of(str(tmp_path / "other.py")), "other") not in session.results.runs


def test_a_run_without_a_gpu_shows_nothing(tmp_path: Path) -> None:
    session, target = opened(tmp_path)
    by_one(session, target, {}, device=None)
    assert (session.results.runs, session.results.learned) == ({}, {})


def test_an_installed_copy_is_refused(tmp_path: Path) -> None:
    session, target = opened(tmp_path)
    by_one(session, target, {"k": ("venv/lib/site-packages/k.py", 4)})
    failed = session.results.failures[target]
    assert failed.outcome == "infrastructure"
    assert failed.failure
    assert "launched an installed copy of k.py" in failed.failure.message
    assert failed.failure.remedy.endswith("python -m pip install -e .")


def test_one_parameter_set_is_enough_from_then_on(tmp_path: Path) -> None:
    session, target = opened(tmp_path)
    sets = (
        c.RanSet("t[1]", "passed", 0.1), c.RanSet("t[2]", "passed", 0.9, {"k": 1}),
        c.RanSet("t[3]", "passed", 0.2, {"k": 4}), c.RanSet("t[4]", "passed", 0.1, {"other": 1}),
    )  # fmt: skip
    by_one(session, target, {"k": ("k.py", 4)}, sets=sets)
    assert driver_choice.sets(session, target, ONE) == ("t[3]",)


def test_what_the_editor_shows_travels_with_the_job(tmp_path: Path) -> None:
    session, target = opened(tmp_path)
    session.open(uri_of(str(tmp_path / "tests" / "test_k.py")), 1, "# typed")
    session.open(uri_of("/elsewhere/else.py"), 1, "# not of the project")
    job = by_one(session, target, {})
    texts = {"k.py": KERNEL, "tests/test_k.py": "# typed"}
    assert job.start == DriverStart(ONE, texts)
    assert (job.path, job.directory) == (str(tmp_path / "k.py"), str(tmp_path))


def test_an_installed_copy_is_replaced_by_the_installer_of_the_python_that_has_it(tmp_path: Path) -> None:
    session, target = opened(tmp_path)
    frozen = session.freeze(target.uri)
    assert frozen
    job = job_builder.make(session, frozen, "run", "r1", launch_plan.driven(session, target.uri, ONE))
    copy = c.Place(str(tmp_path / "venv/lib/site-packages/k.py"), 4)
    launch = c.Launches("k", "k", (1, 1, 1), (1, 1, 1), TIMING, 1, place=copy)
    finished = c.Finished("r1", "ok", launches=(launch,), device=c.Device("H200", 0))
    for name in ("env/pyvenv.cfg", "env/bin/uv", "env/bin/python", "base/lib/python3.12/os.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"home = {tmp_path}/base/bin\n")
        (tmp_path / name).chmod(0o755)
    python = str(tmp_path / "env/bin/python")
    failure = result_filing.of_copies(frozen, job, {target}, finished, python).failure
    assert failure
    assert failure.remedy.endswith(f"uv pip install --python {python} -e .")


PROGRAM = Driver("program", "bench.cu", "bench", tool="cmake", arguments=("4096",))
SCALE = "__global__ void scale(float *x) {}\n__global__ void shift(float *x) {}\nvoid launch();\n"


def with_program(folder: Path, text: str = SCALE) -> tuple[Session, KernelId]:
    """A session with scale.cu open, which a program of the project is made of."""
    session = Session()
    session.setup.folders = [str(folder)]
    session.setup.trusts = lambda folder: True
    (folder / "scale.cu").write_text(text)
    target = KernelId(uri_of(str(folder / "scale.cu")), "scale")
    session.open(target.uri, 1, text)
    route = Route(PROGRAM, ("scale", "main of bench.cu"), 1.0, sources=("bench.cu", "scale.cu", "other.cu"))
    session.routes[target] = Routes((route,))
    return session, target


def launched(session: Session, target: KernelId, symbols: dict[str, str], files: dict[str, str]) -> set[str]:
    """Run through the program; the kernels that have a result, with their files. `symbols` have what each is called."""
    frozen = session.freeze(target.uri)
    assert frozen
    plan = launch_plan.driven(session, target.uri, PROGRAM)
    job = job_builder.make(session, frozen, "run", "1", plan)
    job = job_builder.through_driver(session, job, target, (), repeated=False)
    launches = tuple(
        c.Launches(symbol, name, (1, 1, 1), (1, 1, 1), TIMING, 1) for symbol, name in symbols.items()
    )
    read = {path: c.content_hash(text.encode()) for path, text in files.items()}
    finished = c.Finished("1", "ok", launches=launches, files=read, device=c.Device("GPU"), run_s=0.1)
    result_filing.finished(session, frozen, job, {target}, None, finished, plan)
    return {
        f"{Path(known.uri).name}: {known.key}"
        for known, result in session.results.runs.items()
        if result.launches
    }


def test_a_program_is_built_with_what_the_editor_shows_to_compare(tmp_path: Path) -> None:
    session, target = with_program(tmp_path)
    (tmp_path / "notes.py").write_text("")
    session.open(uri_of(str(tmp_path / "notes.py")), 1, "")
    frozen = session.freeze(target.uri)
    assert frozen
    plan = launch_plan.driven(session, target.uri, PROGRAM)
    job = job_builder.make(session, frozen, "run", "1", plan)
    job = job_builder.through_driver(session, job, target, (), repeated=False)
    sources = ("bench.cu", "scale.cu", "other.cu")
    assert job.arguments == ("4096",)
    assert job.start == DriverStart(PROGRAM, {"scale.cu": SCALE}, sources=sources)


def test_launches_of_a_program_are_filed_by_name_in_all_its_files(tmp_path: Path) -> None:
    session, target = with_program(tmp_path)
    other = "__global__ void add(float *x) {}\n__global__ void shift(float *x) {}\n"
    (tmp_path / "other.cu").write_text(other)
    symbols = {"_Z5scalePf": "scale(float *)", "_Z3addPf": "add(float *)", "_Z5shiftPf": "shift(float *)"}
    read = {
        str(tmp_path / "other.cu"): other,
        str(tmp_path / "scale.cuh"): "",
        str(tmp_path / "bench.cpp"): "",
    }
    filed = launched(session, target, symbols, read)
    assert filed == {"scale.cu: scale", "other.cu: add"}  # two kernels are called shift
    depends = {Path(path).name for result in session.results.runs.values() for path in result.files}
    assert depends == {"scale.cuh"}  # an edit of another source makes no result old


def test_a_file_that_has_changed_since_the_program_was_built_has_no_result(tmp_path: Path) -> None:
    session, target = with_program(tmp_path)
    (tmp_path / "other.cu").write_text("__global__ void add(double *x) {}\n")
    filed = launched(session, target, {"_Z3addPf": "add(float *)"}, {str(tmp_path / "other.cu"): "of then"})
    assert filed == set()


def test_a_program_is_not_taken_where_runs_go_to_a_rented_gpu(tmp_path: Path) -> None:
    session, target = with_program(tmp_path)
    assert driver_choice.chosen(session, target) == PROGRAM
    session.setup.settings = replace(session.setup.settings, runner="modal")
    assert driver_choice.chosen(session, target) is None
    plan = launch_plan.driven(session, target.uri, PROGRAM)
    assert "on a machine of your own" in plan.refusal
    frozen = session.freeze(target.uri)
    assert frozen
    refused = refusals.no_sources(job_builder.make(session, frozen, "run", "1", plan))
    assert refused
    assert refused.message == plan.refusal
    assert refusals.no_sources(job_builder.make(session, frozen, "run", "1")) is None


@pytest.mark.parametrize(
    ("driver", "sources", "taken"),
    [
        (Driver("program", "scale.cu", "scale", tool="make", output="scale"), ("scale.cu", "timer.cpp"), True),
        (Driver("program", "scale.cu", tool="nvcc"), ("scale.cu", "timer.cpp"), True),
        (Driver("program", "scale.cu", "scale", tool="cmake"), ("scale.cu",), False),
        (Driver("program", "bench.cu", "bench", tool="cmake"), ("bench.cu", "scale.cu"), False),
    ],
    ids=["of make with another source", "of nvcc with another source", "of that file alone", "another program"],
)  # fmt: skip
def test_a_file_with_main_that_does_not_link_alone(
    driver: Driver, sources: tuple[str, ...], taken: bool, tmp_path: Path
) -> None:
    text = SCALE + "int main() { scale<<<1, 1>>>(nullptr); }\n"
    session, target = with_program(tmp_path, text)
    session.routes[target] = Routes((Route(driver, ("scale", "main"), 1.0, sources=sources),))
    assert driver_choice.chosen(session, target) == (driver if taken else None)


def test_a_program_does_not_run_at_each_pause_in_typing(tmp_path: Path) -> None:
    session, target = with_program(tmp_path)
    session.results.learned[target] = {PROGRAM: Learned(3, 0.5)}
    assert driver_choice.is_quick(session, target, PROGRAM)
    settings = session.setup.settings
    session.setup.settings = replace(settings, live=replace(settings.live, on="pause"))
    assert not driver_choice.is_quick(session, target, PROGRAM)


OVERLOADS = (
    "__global__ void scale(float *x, int n) {}\n__global__ void scale(const double *__restrict__ x, unsigned int n) {}\n"
    "namespace a {\n__global__ void scale(float *x) {}\n}\n"
)


@pytest.mark.parametrize(
    ("symbol", "name", "filed"),
    [
        ("_Z5scalePfi", "scale", "scale.cu: scale"),
        ("_Z5scalePKdj", "scale", "scale.cu: scale#2"),
        ("_ZN1a5scaleEPf", "a::scale", "scale.cu: a::scale"),
        ("_Z5scalePlm", "scale", None),
    ],
)
def test_parameters_tell_overloads_apart(symbol: str, name: str, filed: str | None, tmp_path: Path) -> None:
    session, target = with_program(tmp_path, OVERLOADS)
    assert launched(session, target, {symbol: name}, {}) == ({filed} if filed else set())


def test_a_name_of_several_kernels_is_remarked(tmp_path: Path) -> None:
    session, target = with_program(tmp_path, OVERLOADS)
    frozen = session.freeze(target.uri)
    assert frozen
    job = job_builder.make(session, frozen, "run", "1", launch_plan.driven(session, target.uri, PROGRAM))
    launches = (c.Launches("_Z5scalePlm", "scale", (1, 1, 1), (1, 1, 1), TIMING, 1),)
    told = result_filing.with_unclear(session, frozen, job, c.Finished("1", "ok", launches=launches))
    assert told.remarks == (
        "the program has several kernels that are called scale, so their times are shown at none of them",
    )


def test_a_file_whose_main_needs_other_files_runs_through_the_projects_program(tmp_path: Path) -> None:
    session, target = with_program(tmp_path, SCALE + "int main() { launch(); }\n")
    assert driver_choice.chosen(session, target) is None
    frozen = session.freeze(target.uri)
    assert frozen
    job = job_builder.make(session, frozen, "run", "1")
    for message, expected in (("expected a ;", None), ("undefined reference to `launch()'", PROGRAM)):
        failure = c.Failure("compile error", f"scale.cu does not compile (1 error): {message}")
        result_filing.finished(session, frozen, job, {target}, None, c.failed("1", failure))
        assert driver_choice.chosen(session, target) == expected


KERNEL_CU = "__global__ void k(float *x) {}\n"
LAUNCHES = "int main() { k<<<1, 1>>>(nullptr); }\n"


@pytest.mark.parametrize(
    ("files", "alone"),
    [
        ({"k.cu": KERNEL_CU + LAUNCHES}, True),
        ({"k.cu": "// orbit: x = zeros(4)\n// orbit: launch k<<<1, 1>>>(x)\n" + KERNEL_CU}, True),
        ({"k.cu": KERNEL_CU, "bench.cu": '#include "k.cu"\n' + LAUNCHES}, False),
        ({"k.cu": KERNEL_CU}, False),
        ({"k.py": KERNEL + "\nif __name__ == '__main__':\n    k[(1,)](1)\n"}, False),
    ],
    ids=["a program", "a launch spec", "another program", "nothing", "a script, which has its route"],
)
async def test_auto_means_the_file_itself_where_a_click_would_run_that(
    tmp_path: Path, files: dict[str, str], alone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def learn(_target: KernelId) -> None: ...

    for name, text in files.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    session = Session()
    session.setup.folders = [str(tmp_path)]
    options = Namespace(file=str(tmp_path / next(iter(files))), kernel=None, through="auto")
    engine = cast("Engine", SimpleNamespace(session=session, history=SimpleNamespace(learn=learn)))
    assert await through_command.is_alone(options, engine) == alone
