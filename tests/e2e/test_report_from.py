"""`orbit-lsp report --from`: reports and CSV pages of other programs, from the file to the page and into editors."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import ncu_report
import pytest
from pydantic import TypeAdapter

from orbit_remote.common import messages as c
from tests.e2e.conftest import Editor
from tests.e2e.forks import Ended, command
from tests.e2e.test_run import named_gpu

RECORDINGS = Path(__file__).parents[1] / "recordings"
REPORT = RECORDINGS / "profiles" / "memory_bound.ncu-rep"
PAGE = RECORDINGS / "ncu_csv" / "memory_bound.raw.csv"
SOURCE = RECORDINGS / "profiles" / "memory_bound.cu"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace with the source of the recording, in another folder than it was profiled in."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    place = tmp_path / "work" / "kernels"
    place.mkdir(parents=True)
    shutil.copy(SOURCE, place)
    return tmp_path / "work"


def report(folder: Path, *words: str, python: str = sys.executable) -> Ended:
    return command(folder, "report", *words, "--python", python)


def true_values() -> dict[str, float]:
    """Every number of the launch, as NVIDIA's own reader has it."""
    action = ncu_report.load_report(str(REPORT))[0][0]
    kinds = (
        ncu_report.IMetric.ValueKind_FLOAT, ncu_report.IMetric.ValueKind_DOUBLE,
        ncu_report.IMetric.ValueKind_UINT32, ncu_report.IMetric.ValueKind_UINT64,
    )  # fmt: skip
    metrics = {name: action.metric_by_name(name) for name in action.metric_names()}
    return {
        name: metric.as_double()
        for name, metric in metrics.items()
        if metric.kind() in kinds and metric.has_value() and metric.as_double() == metric.as_double()
    }


def test_a_report_of_another_machine_has_ncu_reports_values_and_its_lines_in_this_workspace(
    folder: Path,
) -> None:
    done = report(folder, "--from", str(REPORT), "--json")
    assert done.returncode == 0, done.stderr
    finished = TypeAdapter(c.Finished).validate_json(done.stdout, strict=True)
    (profile,) = finished.profiles
    values = true_values()
    assert len(profile.metrics) == 930
    assert {name: metric.value for name, metric in profile.metrics.items()}.items() <= values.items()
    assert {line.file for line in profile.lines} == {str(folder / "kernels" / "memory_bound.cu")}
    assert finished.device
    assert finished.device.name == "NVIDIA H100 80GB HBM3"
    assert profile.tool == "2025.3.1"
    again = json.loads(
        report(folder, "kernels/memory_bound.cu", "--json").stdout
    )  # which is kept as a profile of ours is
    assert again["profiles"] == json.loads(done.stdout)["profiles"]


def test_the_table_and_the_page(folder: Path) -> None:
    done = report(folder, "--from", str(REPORT), "--output", "page.html")
    assert done.returncode == 0, done.stderr
    for text in (
        "saxpy: a profile imported",
        "memory 79% of peak",
        "70.3 µs",
        "memory_bound.cu:7  92%",
        "page.html",
    ):
        assert text in done.stdout, text
    page = (folder / "page.html").read_text()
    assert "in a profile that another program made" in page
    assert "NVIDIA H100 80GB HBM3" in page


def test_a_source_that_has_changed_shows_no_lines(folder: Path) -> None:
    source = folder / "kernels" / "memory_bound.cu"
    source.write_text("\n" + SOURCE.read_text())
    done = report(folder, "--from", str(REPORT))
    assert "memory_bound.cu has changed since the report was made: its lines are not shown" in done.stderr
    assert "lines by their share" not in done.stdout


async def test_an_editor_shows_an_imported_page_on_its_kernel(
    start, recorded_python: str, folder: Path
) -> None:
    source = folder / "kernels" / "memory_bound.cu"
    done = report(folder, "kernels/memory_bound.cu", "--from", str(PAGE), python=recorded_python)
    assert done.returncode == 0, done.stderr
    editor: Editor = await start("vscode", python=recorded_python, compile_on_save=False)
    editor.uri = source.as_uri()
    editor.open(str(source), source.read_text())
    await named_gpu(editor)
    await editor.asked_until(
        editor.hints, lambda hints: hints == [(3, "◔ 70.3 µs · occ 76% of 100% · 16 regs")]
    )
    assert "a profile imported" in await editor.hover(3, 18)


async def test_an_open_editor_shows_an_imported_profile_at_once(
    start, recorded_python: str, folder: Path
) -> None:
    source = folder / "kernels" / "memory_bound.cu"
    editor: Editor = await start("vscode", python=recorded_python, compile_on_save=False)
    editor.uri = source.as_uri()
    editor.open(str(source), source.read_text())
    await named_gpu(editor)
    assert await editor.hints() == []
    done = report(folder, "kernels/memory_bound.cu", "--from", str(PAGE), python=recorded_python)
    assert done.returncode == 0, done.stderr
    await editor.asked_until(
        editor.hints, lambda hints: hints == [(3, "◔ 70.3 µs · occ 76% of 100% · 16 regs")]
    )
