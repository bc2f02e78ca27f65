"""Reports: what is drawn and said, that nothing in them is markup, and how many are kept."""

from __future__ import annotations

import os
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from orbit_lsp.profile import report_folder
from orbit_lsp.report import opening, page, plot, sweep_report, telemetry_plot
from orbit_lsp.report.page import FactList, Page, Rows, SourceText
from orbit_lsp.report.plot import Mark, Plot, Series
from orbit_lsp.state.kernel_ids import KernelId
from orbit_remote.common.measurements import Telemetry, TelemetrySeries
from tests.test_spec_views import URI, Spec, point


class Reader(HTMLParser):
    """Tags as a browser sees them, their text, and what is left open at the end."""

    VOID = frozenset(("meta", "line", "circle", "rect", "path", "polyline"))

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.said: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style" and data.strip():
            self.said.append(data.strip())


def us(n: int) -> float:
    return 4 + 284 * n / (1 << 26)


def swept(*exponents: int, **fields: object) -> Spec:
    sizes = [1 << exponent for exponent in exponents]
    return Spec().answered(*(point(us(n), n, values={"n": str(n)}, **fields) for n in sizes))


def report(spec: Spec, path: str = "/src/saxpy.cu") -> Reader:
    html = page.html(sweep_report.page(spec.session.results.runs[spec.key], "saxpy", path))
    reader = Reader(html)
    assert reader.open == []
    return reader


def test_a_sweep_over_decades_has_logarithmic_axes_a_peak_and_its_table() -> None:
    reader = report(swept(*range(16, 27)))
    assert reader.tags.count("svg") == 3
    for text in (
        "2¹⁶",
        "2²⁶",
        "100 µs",
        "peak, 3.35 TB/s of DRAM",
        "Every run",
        "65536",
        "184 GB/s",
        "Launch spec",
    ):
        assert any(text in message for message in reader.said), text
    assert "NVIDIA H100 80GB HBM3, driver 580.159.04 (NVML)" in reader.said
    assert any("// orbit: " in message or "n = 1 << 26" in message for message in reader.said)


def test_a_spec_without_sweep_has_times_and_no_plot() -> None:
    reader = report(Spec().answered(point()))
    assert "svg" not in reader.tags
    assert "2.80 TB/s, 83% of 3.35 TB/s of DRAM" in reader.said


def test_rates_that_cannot_be_true_are_not_drawn() -> None:
    reader = report(swept(24, 25, 26, bytes=1e12, flops=None))
    assert reader.tags.count("svg") == 1
    assert "above: doubtful" in reader.said


def test_a_second_name_makes_series_and_words_make_a_plain_axis() -> None:
    sizes = [(n, block) for n in (1 << 20, 1 << 22) for block in ("64", "256")]
    both = Spec().answered(*(point(us(n), n, values={"n": str(n), "BLOCK": block}) for n, block in sizes))
    assert {"BLOCK = 64", "BLOCK = 256"} <= set(report(both).said)
    words = Spec().answered(*(point(90, values={"dtype": name}) for name in ("float16", "float32")))
    assert {"float16", "float32"} <= set(report(words).said)


def test_what_nvml_said_over_time_is_drawn_where_it_changed() -> None:
    series = TelemetrySeries((0.0, 0.02, 0.04), (1980.0,) * 3, (118.5, None, 640.0), (0.0, 100.0, 98.0))
    power, use = telemetry_plot.plots(Telemetry(3, series=series))
    assert [mark.text for mark in power.series[0].marks] == ["0.00 s: 118 W", "0.04 s: 640 W"]
    assert [mark.text for mark in use.series[0].marks] == ["0.00 s: 0 %", "0.02 s: 100 %", "0.04 s: 98 %"]
    assert Reader(plot.svg(power)).open == []
    assert telemetry_plot.plots(Telemetry(1)) == telemetry_plot.plots(None) == []


def test_nothing_in_a_report_is_markup_and_nothing_is_loaded() -> None:
    evil = "<script>alert(1)</script>\"'&<img src=x onerror=y>"
    marks = Series(evil, [Mark(1, 1, evil), Mark(200, 300, evil, 1, 400)])
    drawn = Plot(evil, evil, evil, [marks, marks], lambda value: evil, limit=200, limit_text=evil)
    named = Plot(evil, evil, evil, [Series(evil, [Mark(0, 1, evil)])], str, ticks=(evil,))
    blocks = [
        FactList(evil, [(evil, evil)]),
        Rows(evil, [evil], [[evil]]),
        SourceText(evil, evil),
        drawn,
        named,
    ]
    html = page.html(Page(evil, evil, blocks))
    reader = Reader(html)
    assert reader.open == []
    assert not {"script", "img", "link", "iframe", "object"} & set(reader.tags)
    assert not {"src", "href", "onerror", "style"} & {name for name, _ in reader.attributes}
    assert not re.search(r"url\(|@import|https?://", html)
    assert "default-src 'none'" in html


@pytest.mark.parametrize(
    ("values", "written"),
    [
        ([3.0, 4.0], ["0", "1", "2", "3", "4"]),
        ([0.0, 0.0], ["0", "1"]),
        ([5.0, 80.0], ["5", "10", "20", "50", "100"]),
        ([2.0, 3e6], ["2", "10", "100", "1000", "10000", "100000", "1e+06", "5e+06"]),
        ([7.0], ["0", "2", "4", "6", "8"]),
    ],
)
def test_the_ticks_of_an_axis(values: list[float], written: list[str]) -> None:
    marks = [Mark(float(x), y, "") for x, y in enumerate(values)]
    html = plot.svg(Plot("t", "x", "y", [Series("", marks)], lambda value: f"{value:g}"))
    assert re.findall(r'text-anchor="end">([^<]*)<', html) == written


def test_only_the_newest_reports_are_kept(tmp_path: Path) -> None:
    for number in range(report_folder.MOST_REPORTS + 5):
        saved = report_folder.save(tmp_path / "reports", f"k{number}/../é", "<p>")
        os.utime(saved, (number, number))
    kept = sorted((tmp_path / "reports").iterdir(), key=lambda path: path.stat().st_mtime)
    assert len(kept) == report_folder.MOST_REPORTS
    assert kept[0].name.startswith("k5-2")


@pytest.mark.skipif(os.name != "posix", reason="what cannot be written as Unix has it")
def test_what_cannot_be_reported_is_a_sentence(tmp_path: Path) -> None:
    spec = Spec()
    with pytest.raises(opening.NoReportError, match="no run of saxpy to report on; run it first"):
        opening.write(spec.session, KernelId(URI, "saxpy"), tmp_path)
    (tmp_path / "file").write_text("")
    spec.answered(point())
    with pytest.raises(opening.NoReportError, match=r"the report cannot be written to .*file: .*[a-z]"):
        opening.write(spec.session, spec.key, tmp_path / "file")
