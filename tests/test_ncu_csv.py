"""CSV pages of Nsight Compute: real ones (recordings/ncu_csv), against `ncu_report` on the report that they were made of."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from orbit_lsp.profile import bottleneck, ncu_csv
from orbit_lsp.views.profile import counter_rows
from orbit_remote.common.messages import Profile
from tests import recorded_profiles

FOLDER = Path(__file__).parent / "recordings" / "ncu_csv"
SHOWN = [*counter_rows.SPEED, *counter_rows.LAUNCH, *counter_rows.MEMORY, *counter_rows.CLOCKS]


def text(name: str) -> str:
    return (FOLDER / f"{name}.csv").read_text()


def only(page: str) -> Profile:
    (profile,) = ncu_csv.read(page, 9).profiles
    return profile


def test_the_page_raw_has_every_number_of_the_report() -> None:
    page = ncu_csv.read(text("memory_bound.raw"), 9)
    (profile,) = page.profiles
    report = recorded_profiles.profile("memory_bound")
    assert page.device == "NVIDIA H100 80GB HBM3"
    assert (profile.name, profile.grid, profile.block) == ("saxpy", report.grid, report.block)
    assert set(profile.metrics) == set(report.metrics)
    names, _, values = list(csv.reader(text("memory_bound.raw").splitlines()))[1:]
    printed = dict(zip(names, values, strict=True))
    for name, metric in profile.metrics.items():
        true, digits = report.metrics[name].value, len(printed[name].partition(".")[2])
        factor = metric.value / float(printed[name]) if metric.value else 1.0
        assert abs(metric.value - true) <= 0.5001 * 10**-digits * factor + 1e-12 * abs(true), name
    assert counter_rows.rows(profile, SHOWN) == counter_rows.rows(report, SHOWN)
    assert bottleneck.verdict(profile) == bottleneck.verdict(report)
    assert bottleneck.states(profile)[0].name == "long scoreboard"


def test_the_page_details_has_what_its_labels_are_known_for() -> None:
    profile = only(text("memory_bound.details"))
    report = recorded_profiles.profile("memory_bound")
    assert len(profile.metrics) == 24
    for name, metric in profile.metrics.items():
        # two digits behind the point are printed
        assert metric.value == pytest.approx(report.metrics[name].value, rel=5e-3, abs=5e-3), name
        if name != "launch__occupancy_limit_barriers":  # this ncu knew no unit of it
            assert metric.unit == report.metrics[name].unit
    assert {(advice.rule, advice.scope) for advice in profile.advice} <= {
        (advice.rule, advice.scope) for advice in report.advice
    }


def test_thousands_separators_and_lines_before_the_header() -> None:
    """The values that a reader by position made 0 of."""
    profile = only(text("a100.details"))
    values = {name: (metric.value, metric.unit) for name, metric in profile.metrics.items()}
    assert values[bottleneck.TIME] == (10_208, "ns")
    assert values[bottleneck.COMPUTE] == (11.68, "%")
    assert values[bottleneck.DRAM] == (53.13, "%")
    assert values["launch__shared_mem_per_block_static"] == (0, "byte/block")
    assert values["dram__cycles_elapsed.avg.per_second"] == (1_208_777_429.47, "hz")
    assert (profile.name, profile.grid, profile.block) == ("vector_add", (4096, 1, 1), (256, 1, 1))
    assert bottleneck.DRAM in values
    assert "dram__bytes_read.sum" not in values  # which the page does not have


HEAD = '"ID","Process ID","Kernel Name","Block Size","Grid Size",'
LAUNCH = '"{id}","7","{name}","(32, 1, 1)","({id}, 1, 1)",'


def wide(units: str, *rows: str, names: str = '"gpu__time_duration.sum","dram__bytes_read.sum"') -> str:
    table = [HEAD + names, '"","","","","",' + units]
    return (
        "\n".join([*table, *(LAUNCH.format(id=n, name=f"k{n}(int)") + row for n, row in enumerate(rows, 1))])
        + "\n"
    )


def long(*rows: str) -> str:
    head = HEAD + '"Section Name","Metric Name","Metric Unit","Metric Value"'
    return "\n".join([head, *(LAUNCH.format(id=1, name="k(int)") + row for row in rows)]) + "\n"


def told(page: str) -> list[str]:
    """Each launch as `name time dram`, `-` for what is absent."""
    return [
        " ".join(
            [profile.name, *(metric(profile, name) for name in (bottleneck.TIME, "dram__bytes_read.sum"))]
        )
        for profile in ncu_csv.read(page, 9).profiles
    ]


def metric(profile: Profile, name: str) -> str:
    known = profile.metrics.get(name)
    return f"{known.value:g} {known.unit}" if known else "-"


@pytest.mark.parametrize(
    ("page", "launches"),
    [
        (wide('"usecond","Mbyte"', '"70.34","134.2"', '"1","0"'), ["k1 70340 ns 1.342e+08 byte", "k2 1000 ns 0 byte"]),
        (wide('"ms","byte"', '"1,234.5","n/a"'), ["k1 1.2345e+09 ns -"]),
        (wide('"ns","byte"', '"nan","7"', '"inf",""', '"2","all"'), ["k1 - 7 byte", "k3 2 ns -"]),
        (wide('"s","Gbyte"', '"2 (1; 1)","1"'), ["k1 2e+09 ns 1e+09 byte"]),
        (wide('"","byte"', '"70","7"'), ["k1 - 7 byte"]),
        (wide('"ns","byte"', '"5"', '"6","7"'), ["k2 6 ns 7 byte"]),
        (wide('"ns","byte"', '"5","6"') + "==PROF== Disconnected from process 7\ndone\n", ["k1 5 ns 6 byte"]),
        (wide('"ns","byte"', '"5","6"') + '"2","7","k9","(1, 1, 1)","(1, 1, 1)","5","66', ["k1 5 ns 6 byte"]),
        (long('"GPU Speed Of Light Throughput","Duration","usecond","3.5"'), ["k 3500 ns -"]),
        (long('"S","gpu__time_duration.sum","ms","3.5"'), ["k 3.5e+06 ns -"]),
        (long('"S","Bytes (dram__bytes_read.sum)","Kbyte","2"'), ["k - 2000 byte"]),
        (long('"S","Duration","usecond","3.5"', '"S","gpu__time_duration.sum","ns","1"'), ["k 1 ns -"]),
    ],
)  # fmt: skip
def test_units_come_from_the_page_and_what_is_unknown_is_absent(page: str, launches: list[str]) -> None:
    assert told(page) == launches


@pytest.mark.parametrize(
    ("page", "why"),
    [
        ("", "it has no table of Nsight Compute"),
        ("a,b\n1,2\n", "it has no table of Nsight Compute"),
        ("\0" * 99, "it has no table of Nsight Compute"),
        (HEAD, "it holds no number of a launch"),
        (HEAD + '"gpu__time_duration.sum"\n', "it holds no number of a launch"),
        (wide('"ns","byte"', '"70,34","1"'), r"decimal comma \(70,34\); export it again with the variable LC_ALL=C"),
        ('"Process ID","Kernel Name","Invocations","Metric Name"\n', "it is a summary over several launches"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_says_why(page: str, why: str) -> None:
    with pytest.raises(ncu_csv.UnreadableError, match=why):
        ncu_csv.read(page, 9)


def test_launches_are_bounded_and_numbered() -> None:
    page = wide('"ns","byte"', *['"5","6"'] * 12).replace('"(3, 1, 1)"', '"(2, 1, 1)"').replace("k3(", "k2(")
    answer = ncu_csv.read(page, 10)
    assert (len(answer.profiles), answer.left_out) == (10, 2)
    assert [profile.launch for profile in answer.profiles[:4]] == [0, 0, 1, 0]


@pytest.mark.parametrize("name", ["memory_bound.raw", "memory_bound.details", "a100.details"])
def test_a_page_that_is_cut_has_no_other_number(name: str) -> None:
    whole = text(name)
    numbers = only(whole).metrics
    for end in range(0, len(whole), len(whole) // 40):
        try:
            page = ncu_csv.read(whole[:end], 9)
        except ncu_csv.UnreadableError:
            continue
        assert page.profiles[0].metrics.items() <= numbers.items()
