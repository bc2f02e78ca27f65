"""Python's other kernel languages on a real GPU: launches under their kernel, times at its line, mistakes at theirs.

What is expected stands in the programs: `expect: 6 launches` on the line of a kernel's name, `expect: line` on a line that a
profile shows, `expect: problem` on the line of a mistake.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal

import pytest
from _pytest.mark import ParameterSet

from orbit_lsp.runs.scheduler import Run
from orbit_lsp.state.kernel_ids import identify
from orbit_lsp.state.session import uri_of
from orbit_lsp.views import sweep_tables
from orbit_remote.common import messages as c
from tests.gpu.test_run_gpu import Bench

pytestmark = pytest.mark.gpu
PROGRAMS = Path(__file__).parent / "programs" / "languages"
FIRST = ("_saxpy", "_add", "_raw")
PACKAGES = {
    "numba": ("numba_cuda",), "warp": ("warp",), "cupy": ("cupy",), "inline": ("torch", "ninja"),
    "triton": ("triton", "torch"), "cute": ("cutlass",), "cutile": ("cuda.tile", "torch"), "helion": ("helion",), "tilelang": ("tilelang",),
}  # fmt: skip
"""Of a language, by the beginning of its programs' names: what has to be installed."""


def _lacks(language: str) -> str:
    def there(module: str) -> bool:
        try:
            return importlib.util.find_spec(module) is not None
        except ModuleNotFoundError:  # of the package around it
            return False

    return ", ".join(module for module in PACKAGES[language] if not there(module))


def programs(*endings: str) -> list[ParameterSet]:
    names = sorted(path.stem for path in PROGRAMS.glob("*.py") if path.stem.endswith(endings))
    return [
        pytest.param(
            name, marks=pytest.mark.skipif(bool(lacking), reason=f"this Python has no {lacking}"), id=name
        )
        for name in names
        for lacking in [_lacks(name.partition("_")[0])]
    ]


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    result = Bench(tmp_path)
    result.places.settings.options |= {"run_timeout_s": 300}
    assert not result.places.settings.configure(None)
    await result.places.look_around()
    yield result
    await result.runs.close()
    await result.places.close()


async def follow(
    bench: Bench, name: str, action: Literal["run", "profile"] = "run"
) -> tuple[c.Finished, str]:
    """Click on the first kernel of a program; what the run ended with, and the program's uri."""
    text = (PROGRAMS / f"{name}.py").read_text()
    path = bench.folder / f"{name}.py"
    path.write_text(text)
    uri = uri_of(str(path))
    bench.session.open(uri, 1, text)
    kernels = identify(uri, bench.session.files[uri].scan)
    run: Run | None = bench.runs.start(action, uri, kernels[0][0])
    assert run
    assert run.task
    finished = await run.task
    print(name, finished.outcome, finished.failure, finished.remarks)
    for launches in finished.launches:
        print(" ", launches.symbol, launches.count, launches.place, launches.timing.median)
    return finished, uri


@pytest.mark.parametrize("name", programs(*FIRST, "_names"))
async def test_launches_are_filed_and_shown_at_their_kernel(bench: Bench, name: str) -> None:
    finished, uri = await follow(bench, name)
    assert finished.outcome == "ok", (finished, bench.watcher.printed)
    expected = _expected(uri, bench, r"expect: (\d+) launches")
    filed = {
        target: sum(launches.count for launches in result.launches)
        for target, result in bench.session.results.runs.items()
    }
    names = {
        kernel.name_span.line: target for target, kernel, _ in identify(uri, bench.session.files[uri].scan)
    }
    assert {names[line]: int(count) for line, count in expected.items()} == filed, finished.remarks
    shown = bench.shown(f"{name}.py").splitlines()
    for line in expected:
        source = bench.session.files[uri].document.line(line).rstrip()
        [hint] = [text for text in shown if source in text]
        assert re.search(r"⏱ [\d.,]+ [nµm]?s", hint), hint
    assert all(launches.registers and launches.timing.median > 0 for launches in finished.launches)


def _expected(uri: str, bench: Bench, pattern: str) -> dict[int, str]:
    lines = bench.session.files[uri].document.text.splitlines()
    return {
        number: match[match.lastindex or 0]
        for number, line in enumerate(lines)
        if (match := re.search(pattern, line))
    }


@pytest.mark.parametrize("name", programs("_mistake"))
async def test_a_mistake_is_a_problem_at_its_line(bench: Bench, name: str) -> None:
    finished, uri = await follow(bench, name)
    assert finished.outcome in ("compile error", "runtime error"), finished
    [line] = _expected(uri, bench, "expect: problem")
    problems = [
        problem
        for (_, of_uri), kept in bench.session.results.problems.items()
        if of_uri == uri
        for problem in kept.items
    ]
    print([(problem.place, problem.message[:300]) for problem in problems])
    assert line + 1 in [problem.place.line for problem in problems if problem.place]


@pytest.mark.parametrize("name", programs(*FIRST))
async def test_a_profile_has_counters_and_lines_of_the_kernel(bench: Bench, name: str) -> None:
    finished, uri = await follow(bench, name, "profile")
    assert finished.outcome == "ok", (finished, bench.watcher.printed)
    assert [profile.tier for profile in finished.profiles][:1] == ["counters"], finished.remarks
    profile = finished.profiles[0]
    print(profile.symbol, profile.name, profile.place, sorted({line.line for line in profile.lines}))
    assert profile.place
    assert profile.metrics["gpu__time_duration.sum"].value > 0
    assert [target.uri for target in bench.session.results.profiles] == [uri]
    [expected] = _expected(uri, bench, "expect: line")
    path = str(bench.folder / f"{name}.py")
    shown = {line.line for line in profile.lines if line.file == path}
    assert expected + 1 in shown
    assert min(shown) >= profile.place.line - 1  # numba has code of the decorator's line


@pytest.mark.parametrize("name", programs("_tuned"))
async def test_what_tuning_tried_is_a_table(bench: Bench, name: str) -> None:
    finished, uri = await follow(bench, name)
    assert finished.outcome == "ok", (finished, bench.watcher.printed)
    [(_, expected)] = _expected(uri, bench, r"expect: (\d) tried").items()
    [launches] = finished.launches
    assert launches.count == 6
    assert [trial.chosen for trial in launches.tuning] == [True] + [False] * (int(expected) - 1)
    table = sweep_tables.tuning(launches)
    assert table
    print(table)
    assert all(re.search(r"[\d.]+ [nµm]s", row[-1]) for row in table.rows)
