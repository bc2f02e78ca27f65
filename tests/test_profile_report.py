"""A profile's page, and what is kept of it."""

from __future__ import annotations

import base64
import json
import os
import re
import zlib
from dataclasses import replace
from pathlib import Path

import pytest

from orbit_lsp.profile import report_store, roofline
from orbit_lsp.report import memory_chart, opening, page, profile_report
from orbit_lsp.state.results import Profiled
from orbit_remote.common import messages as c
from orbit_remote.common.measurements import Advice
from tests.recorded_profiles import FOLDER, NAMES, Profiling, finished, profiled, profiles
from tests.test_report import Reader


def read(known: Profiled, kernel: str, path: str) -> Reader:
    html = page.html(profile_report.page(known, kernel, path))
    reader = Reader(html)
    assert reader.open == []
    assert not {"script", "img", "link", "iframe"} & set(reader.tags)
    assert not {"src", "href", "style", "onload"} & {name for name, _ in reader.attributes}
    assert not re.search(r"url\(|@import", html)
    return reader


def of(bench: Profiling) -> Profiled:
    (known,) = bench.session.results.profiles.values()
    return known


@pytest.mark.parametrize("name", NAMES)
def test_every_recording_is_a_page(name: str) -> None:
    reader = read(of(profiled(name)), "kernel", "/src/k.cu")
    assert "What to try:" in reader.said
    assert reader.tags.count("details") == reader.tags.count("summary") >= 4
    assert "Where it comes from" in reader.said
    assert ("Roofline" in reader.said) is (roofline.of(profiles(name)[0]) is not None)
    assert any("ines of " in name for name in reader.said) is (
        name not in ("without_lines", "memory_bound.basic")
    )


def test_the_parts_of_a_page() -> None:
    reader = read(of(profiled("memory_bound")), "saxpy", "/src/memory_bound.cu")
    for text in (
        "saxpy: 70.3 µs",
        "memory 79% of peak",
        "compute at 29 %, memory at 79 % of their peaks: memory leads",
        "move fewer bytes of DRAM",
        "occ 76% of 100% · 16 regs · 62 waves",
        "FP32 477 GFLOP/s, 79% of the DRAM roof",
        "DRAM 3.35 TB/s",
        "y[i] = a * x[i] + y[i];",
        "92%",
        "long scoreboard 96%",
        "134 MB",
        "waits for data of global, local, surface or texture memory",
        "gpu__time_duration.sum",
        "NVIDIA H100 80GB HBM3, driver 580.159.04 (NVML)",
        "Nsight Compute 2025.3.1, sections of a click",
    ):
        assert any(text in message for message in reader.said), text
    assert (
        reader.tags.count("svg") == 2 + 5 + 5
    )  # roofline, memory, and bars in the excerpt and among all lines


def test_where_tensor_cores_work_a_page_says_what_its_roofline_leaves_out() -> None:
    reader = read(of(profiled("matmul")), "matmul", "/src/matmul.py")
    message = "tensor cores were at 64 % of their peak; the full profile alone counts their operations"
    assert message in reader.said


def test_against_the_last_profile() -> None:
    bench = Profiling("memory_bound")
    bench.file(finished("memory_bound.detailed"))
    bench.file(finished("memory_bound"))
    reader = read(of(bench), "saxpy", "/src/memory_bound.cu")
    assert any(
        name.startswith("Against the profile of ") and "of the same code" in name for name in reader.said
    )
    assert "+0.4%" in reader.said  # 70.08 µs, now 70.34


def test_times_only_is_a_page_that_says_why() -> None:
    profile = c.Profile("_Z5saxpyifPKfPf", "saxpy", "times", "counters are not permitted here")
    bench = Profiling("memory_bound")
    bench.file(replace(finished("memory_bound"), profiles=(profile,)))
    reader = read(of(bench), "saxpy", "/src/memory_bound.cu")
    assert "none: counters are not permitted here" in reader.said
    assert "svg" not in reader.tags


def test_nothing_of_a_profile_is_markup() -> None:
    evil = "<script>alert(1)</script>\"'&"
    (profile,) = profiles("memory_bound")
    hostile = replace(
        profile, name=evil, advice=(Advice(evil, evil, evil, evil, 5.0, "global"),), tool=evil,
        lines=tuple(replace(line, file=evil, stalls={evil: 3}, inside={evil: 2}) for line in profile.lines),
    )  # fmt: skip
    bench = Profiling("memory_bound")
    bench.file(replace(finished("memory_bound"), profiles=(hostile,)), "saxpy")
    html = page.html(profile_report.page(of(bench), evil, evil))
    assert Reader(html).open == []
    assert "<script" not in html


def test_a_share_below_what_is_written_is_no_markup() -> None:
    lines = [page.Weighed(1, "a", 0.0004), page.Weighed(2, "b", 0.9996)]
    html = page.html(page.Page("k", "", [page.Annotated("Lines", lines)]))
    assert "<span>&lt;0.1%</span>" in html
    assert Reader(html).open == []


def test_a_memory_chart_has_no_amount_that_was_not_counted() -> None:
    (profile,) = profiles("memory_bound")
    svg = memory_chart.svg(profile)
    assert svg.count(" MB<") == 6
    only = {name: metric for name, metric in profile.metrics.items() if name.startswith("dram__")}
    assert memory_chart.svg(replace(profile, metrics=only)).count(" MB<") == 2
    assert memory_chart.svg(replace(profile, metrics={})) == ""


def test_which_report_is_opened(tmp_path: Path) -> None:
    bench = profiled("memory_bound")
    target = bench.kernels["saxpy"]
    written = opening.write(bench.session, target, tmp_path)
    assert "memory 79% of peak" in written.read_text()
    with pytest.raises(opening.NoReportError, match="no run of saxpy to report on"):
        opening.write(bench.session, target, tmp_path, "run")
    bench.session.results.profiles.clear()
    with pytest.raises(opening.NoReportError, match="no profile of saxpy to report on; profile it first"):
        opening.write(bench.session, target, tmp_path, "profile")


# -- what is kept -----------------------------------------------------------------------------------


def packed(content: bytes) -> str:
    return base64.b64encode(zlib.compress(content)).decode()


def keep(folder: Path, content: bytes | None = b"NVR", name: str = "k.cu", **bounds: int) -> Path | None:
    event = c.Finished("r1", "ok", report="" if content is None else packed(content))
    known = {"reports": 20, "mib": 256} | bounds
    return report_store.keep(folder, f"/src/{name}", "k", "text", event, detail="click", **known).report


def test_a_report_is_kept_as_it_came_and_found_again(tmp_path: Path) -> None:
    content = (FOLDER / "memory_bound.ncu-rep").read_bytes()
    event = replace(finished("memory_bound"), report=packed(content))
    path, made = report_store.keep(
        tmp_path, "/src/k.cu", "ns::k<int>", "é", event, detail="full", reports=3, mib=9
    )
    assert path
    assert made is None
    assert path.read_bytes() == content
    (kept,) = report_store.newest(tmp_path, "/src/k.cu", "ns::k<int>")
    assert (kept.text, kept.detail, kept.report) == ("é", "full", path)
    assert kept.finished["report"] == ""
    assert report_store.newest(tmp_path, "/src/other.cu") == []


def test_what_the_compiler_made_is_kept_beside_and_goes_with_it(tmp_path: Path) -> None:
    dumps = tuple(c.Dump("k", "ns::k<int>", level, text=packed(level.encode())) for level in ("ptx", "sass"))
    event = replace(finished("memory_bound"), report=packed(b"NVR"), dumps=dumps)
    files = report_store.keep(tmp_path, "/src/k.cu", "k", "", event, detail="click", reports=1, mib=9)
    assert files.dumps
    assert {path.name: path.read_bytes() for path in files.dumps.iterdir()} == {
        "k.ptx": b"ptx",
        "k.sass": b"sass",
    }
    (kept,) = report_store.newest(tmp_path, "/src/k.cu")
    assert kept.dumps == files.dumps
    assert {item["text"] for item in kept.finished["dumps"]} == {""}
    keep(tmp_path, name="later.cu", reports=1)
    assert {path.name[:5] for path in tmp_path.iterdir()} == {"later"}


def test_only_so_many_are_kept_and_only_so_large(tmp_path: Path) -> None:
    for number in range(4):
        path = keep(tmp_path, reports=3, name=f"k{number}.cu")
        assert path
        for item in (path, path.with_suffix(".json")):
            os.utime(item, (number, number))
    assert sorted(path.name[:2] for path in tmp_path.glob("*.ncu-rep")) == ["k1", "k2", "k3"]
    keep(tmp_path, os.urandom(2 << 20), name="large.cu", mib=1)
    assert {path.name[:5] for path in tmp_path.iterdir()} == {"large"}


def test_a_profile_without_a_report_is_kept_too(tmp_path: Path) -> None:
    assert keep(tmp_path, None) is None
    (kept,) = report_store.newest(tmp_path, "/src/k.cu")
    assert kept.report is None


@pytest.mark.parametrize(
    ("report", "why"),
    [
        ("not base64!", "damaged"),
        (base64.b64encode(b"not zlib").decode(), "damaged"),
        (base64.b64encode(zlib.compress(b"x" * 1000)[:-4]).decode(), "incomplete"),
    ],
)
def test_a_report_that_cannot_be_kept(report: str, why: str) -> None:
    with pytest.raises(report_store.NotKeptError, match=why):
        report_store.unpack(report)


def test_a_report_that_unpacks_to_more_than_there_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_store, "MOST_BYTES", 1000)
    assert len(report_store.unpack(packed(b"0" * 1000))) == 1000
    with pytest.raises(report_store.NotKeptError, match="larger"):
        report_store.unpack(packed(b"0" * 1001))


def test_a_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(report_store.NotKeptError, match="cannot be kept in"):
        keep(tmp_path / "file")
    assert report_store.newest(tmp_path / "file", "/src/k.cu") == []


def test_files_that_are_no_profiles_are_no_trouble(tmp_path: Path) -> None:
    for number, text in enumerate(('{"version": 99}', "[]", "{", '{"version": 1}', "\x00", "[" * 100_000)):
        (tmp_path / f"{number}.json").write_text(text)
    assert report_store.newest(tmp_path, "/src/k.cu") == []
    keep(tmp_path)
    assert len(report_store.newest(tmp_path, "/src/k.cu")) == 1


@pytest.mark.parametrize("at", [1e300, float("nan"), -1e300, "yesterday"])
def test_a_profile_of_a_time_that_no_clock_shows_is_none(tmp_path: Path, at: object) -> None:
    keep(tmp_path)
    (path,) = tmp_path.glob("*.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"at": at}))
    assert report_store.newest(tmp_path, "/src/k.cu") == []


def test_a_file_that_another_server_forgets_meanwhile_is_no_trouble(tmp_path: Path, monkeypatch) -> None:
    keep(tmp_path, name="gone.cu")
    keep(tmp_path, name="k.cu")
    real = Path.stat

    def stat(path: Path, **how: bool) -> os.stat_result:
        if path.name.startswith("gone"):
            raise FileNotFoundError(path)
        return real(path, **how)

    monkeypatch.setattr(Path, "stat", stat)
    assert len(report_store.newest(tmp_path, "/src/k.cu")) == 1
    assert keep(tmp_path, name="later.cu", reports=1)


def test_half_a_file_is_not_left_behind(tmp_path: Path, monkeypatch) -> None:
    keep(tmp_path)
    old, fresh = tmp_path / ".old.json.123", tmp_path / ".fresh.json.124"
    for item in (old, fresh):
        item.write_text("{")
    os.utime(old, (0, 0))
    keep(tmp_path)
    assert (old.exists(), fresh.exists()) == (False, True)
    fresh.unlink()

    def full(path: Path, content: bytes) -> int:
        path.open("wb").write(content[:100])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(report_store.NotKeptError, match="No space left on device"):
        keep(tmp_path, name="later.cu")
    assert not [*tmp_path.glob(".*")]


def test_a_profile_is_found_by_whichever_link_its_file_was_opened(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    event = finished("memory_bound")
    for folder in ("link", "real"):
        path = str(tmp_path / folder / "k.cu")
        report_store.keep(tmp_path / "kept", path, folder, "", event, detail="click", reports=9, mib=9)
    assert {kept.kernel for kept in report_store.newest(tmp_path / "kept", path)} == {"link", "real"}
