"""The history file: what comes back, how large it grows, and what becomes of one that cannot be used."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from orbit_lsp.history import history_store
from orbit_lsp.history.history_store import HistoryEntry, HistoryStore, StoredResult
from orbit_remote.common import measure
from orbit_remote.common import messages as c
from orbit_remote.common.measurements import Advice, Line, Metric
from tests.e2e import recorded_worker as recorded

TEXT = "__global__ void saxpy() {}\n"


def entry(number: int = 0, kernel: str = "saxpy", **fields: object) -> HistoryEntry:
    """Run `number` of a kernel that gets slower by 1 µs each time."""
    timing = measure.timing([288_000 + 1_000 * number + i for i in range(100)], "cold L2, n=100")
    launches = (replace(recorded.SAXPY, timing=timing, warm=timing),)
    point = c.Point({"n": "1024"}, launches=launches, checks=(c.Check("y == x", True),), bytes=12.0)
    finished = c.Finished(
        "r1", "ok", launches=launches, points=(point,), device=recorded.DEVICE, telemetry=recorded.TELEMETRY,
        toolchain={"nvcc": "13.0.88"}, stdout="no error\n",
    )  # fmt: skip
    stored = StoredResult(
        finished, launches, {"/src/a.cuh": "00"}, "spec", kernel, "// orbit: n = 1024", ("float32",)
    )
    made = HistoryEntry(1_000.0 + number, "/src/saxpy.cu", kernel, "run", f"d{number}", "inputs", stored)
    return replace(made, **fields)


@pytest.fixture
def store(tmp_path: Path) -> HistoryStore:
    return HistoryStore(lambda: tmp_path / "state" / "history.sqlite")


def test_everything_that_was_said_comes_back_with_the_text(store: HistoryStore) -> None:
    store.keep(entry(1), TEXT)
    store.keep(entry(2), TEXT + "// more\n")
    store.keep(entry(3, "other"), TEXT)
    first, second = store.entries("/src/saxpy.cu", "saxpy")
    assert replace(first, id=0, text=None) == entry(1)
    assert [store.text(item.text or "") for item in (first, second)] == [TEXT, TEXT + "// more\n"]
    assert [item.kernel for item in store.entries("/src/saxpy.cu")] == ["saxpy", "saxpy", "other"]
    assert [item.digest for item in store.entries("/src/saxpy.cu", "saxpy", most=1)] == ["d2"]
    assert store.kernels("/src/saxpy.cu") == ["other", "saxpy"]
    assert store.entries("/src/elsewhere.cu") == []
    assert store.text("00") is None
    assert store.complaints() == []


def test_a_file_has_one_history_whatever_path_led_to_it(store: HistoryStore, tmp_path: Path) -> None:
    (tmp_path / "kernels").mkdir()
    (tmp_path / "linked").symlink_to(tmp_path / "kernels")
    real, linked = (tmp_path / folder / "saxpy.cu" for folder in ("kernels", "linked"))
    real.write_text(TEXT)
    store.keep(entry(1, path=str(linked)), TEXT)
    store.keep(entry(2, path=str(real)), TEXT)
    store.keep(entry(3, path="/src/saxpy.cu"), TEXT)
    for path in (str(real), str(linked)):
        assert [item.digest for item in store.entries(path)] == ["d1", "d2"]
        assert store.kernels(path) == ["saxpy"]


def test_a_renamed_file_takes_its_runs_along_with_all_that_they_say_of_it(store: HistoryStore) -> None:
    first = entry(1)
    store.keep(
        replace(first, result=replace(first.result, files={"/src/saxpy.cu": "11", "/src/a.cuh": "00"})), TEXT
    )
    store.keep(entry(2, path="/src/deep/scale.cu"), TEXT)
    store.keep(entry(3, path="/srcs/other.cu"), TEXT)
    store.rename("/src/saxpy.cu", "/src/deep/y.cu")
    store.rename("/src", "/new/place")
    (moved,) = store.entries("/new/place/deep/y.cu")
    assert moved.result.files == {"/new/place/deep/y.cu": "11", "/src/a.cuh": "00"}
    assert [
        len(store.entries(path)) for path in ("/src/saxpy.cu", "/new/place/deep/scale.cu", "/srcs/other.cu")
    ] == [0, 1, 1]
    assert store.complaints() == []


def test_a_row_that_cannot_be_read_is_renamed_and_said_when_it_is_read(
    store: HistoryStore, tmp_path: Path
) -> None:
    store.keep(entry(1), TEXT)
    with closing(sqlite3.connect(tmp_path / "state" / "history.sqlite", isolation_level=None)) as file:
        file.execute("update runs set said = x'00'")
    store.rename("/src/saxpy.cu", "/src/y.cu")
    assert store.kernels("/src/y.cu") == ["saxpy"]
    assert store.entries("/src/y.cu") == store.entries("/src/saxpy.cu") == []


@pytest.mark.parametrize(
    ("there", "kernel", "digest", "same"),
    [
        (False, "saxpy", "d1", True),
        (True, "saxpy", "d1", False),
        (False, "saxpy", "d2", False),
        (False, "axpy", "d1", False),
    ],
    ids=["it is gone", "it is still there", "another text", "another kernel"],
)
def test_a_file_that_is_gone_is_known_again_by_a_kernel(
    store: HistoryStore, tmp_path: Path, there: bool, kernel: str, digest: str, same: bool
) -> None:
    old = tmp_path / "old.cu"
    if there:
        old.write_text(TEXT)
    store.keep(entry(1, path=str(old)), TEXT)
    assert store.moved_from(str(tmp_path / "new.cu"), {kernel: digest}) == (str(old) if same else None)


def test_a_place_that_cannot_be_looked_at_is_a_complaint(tmp_path: Path) -> None:
    store = HistoryStore(lambda: tmp_path / ("long" * 100) / "history.sqlite")
    assert store.entries("/src/saxpy.cu") == []
    (message,) = store.complaints()
    assert message.startswith("the history of kernels cannot be read: ")


def test_looking_makes_no_file(store: HistoryStore) -> None:
    assert (store.entries("/src/saxpy.cu"), store.kernels("/src/saxpy.cu"), store.text("00")) == (
        [],
        [],
        None,
    )
    assert not store._where().parent.exists()


def test_a_profile_comes_back_with_its_counters_and_without_the_report(store: HistoryStore) -> None:
    metric = Metric("gpu__time_duration.sum", 288_032.0, "ns")
    line = Line("/src/saxpy.cu", 3, 120, {"long_scoreboard": 90}, sectors=64, ideal_sectors=64)
    profile = c.Profile(
        "_Z5saxpyv", "saxpy()", "counters", metrics={metric.name: metric}, lines=(line,), samples=130,
        advice=(Advice("rule", "section", "title", "message", 12.5, "global"),),
    )  # fmt: skip
    stored = StoredResult(c.Finished("r1", "ok", profiles=(profile,), report="eJw" * 10_000))
    store.keep(entry(action="profile", result=stored), TEXT)
    (result,) = store.entries("/src/saxpy.cu")
    assert (result.action, result.result.finished.profiles) == ("profile", (profile,))
    assert result.result.finished.report == ""


@pytest.mark.parametrize("text", ["\ud800", "", "é€😀\r\n\0"])
def test_any_text_that_an_editor_can_hold(store: HistoryStore, text: str) -> None:
    store.keep(entry(), text)
    (result,) = store.entries("/src/saxpy.cu")
    assert store.text(result.text or "") == text


def test_a_kernel_keeps_its_newest_runs_and_texts_go_with_the_last_run_that_had_them(
    store: HistoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_store, "MOST_RUNS", 3)
    store.keep(entry(0, "other"), TEXT)
    for number in range(5):
        store.keep(entry(number), f"{TEXT}// {number}\n")
    assert [item.digest for item in store.entries("/src/saxpy.cu", "saxpy")] == ["d2", "d3", "d4"]
    assert len(store.entries("/src/saxpy.cu", "other")) == 1
    with closing(sqlite3.connect(store._where())) as file:
        assert file.execute("select count(*) from texts").fetchone() == (4,)


def test_the_file_stays_within_its_bound_and_keeps_the_newest(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(history_store, "_AT_ONCE", 10)
    store = HistoryStore(lambda: tmp_path / "state" / "history.sqlite", most_bytes=400_000)
    for number in range(60):
        store.keep(entry(number, f"kernel{number}"), os.urandom(8_000).hex())
    kept = store.kernels("/src/saxpy.cu")
    assert kept[0] == "kernel59"
    assert 10 <= len(kept) < 60
    assert (tmp_path / "state" / "history.sqlite").stat().st_size <= 500_000
    assert store.complaints() == []


@pytest.mark.parametrize(
    "content", [b"no database at all" * 100, b"SQLite format 3\0" + bytes(3_000)], ids=["text", "zeros"]
)
def test_a_damaged_file_is_set_aside_with_a_message(
    store: HistoryStore, tmp_path: Path, content: bytes
) -> None:
    path = store._where()
    path.parent.mkdir()
    path.write_bytes(content)
    store.keep(entry(), TEXT)
    (message,) = store.complaints()
    assert message.startswith("the history of kernels was damaged (")
    assert message.endswith(".sqlite, and a new one begins")
    assert len(store.entries("/src/saxpy.cu")) == 1
    (aside,) = path.parent.glob("history.damaged-*.sqlite")
    assert aside.read_bytes() == content


def test_a_page_that_was_overwritten_is_met_later_and_the_rest_is_kept_aside(store: HistoryStore) -> None:
    for number in range(30):
        store.keep(entry(number), TEXT * (number + 1))
    path = store._where()
    content = bytearray(path.read_bytes())
    content[8_192:] = b"\xff" * (len(content) - 8_192)
    path.write_bytes(content)
    assert store.entries("/src/saxpy.cu") == []
    assert "was damaged" in store.complaints()[0]
    store.keep(entry(), TEXT)
    assert len(store.entries("/src/saxpy.cu")) == 1


def test_a_file_of_a_newer_version_is_left_to_it(store: HistoryStore) -> None:
    store.keep(entry(), TEXT)
    with closing(sqlite3.connect(store._where())) as file:
        file.execute("pragma user_version = 9")
        file.commit()
    assert store.entries("/src/saxpy.cu") == []
    (message,) = store.complaints()
    assert message == (
        "the history of kernels cannot be kept: it was written by a newer orbit-lsp (format 9, this one knows 1) "
        f"({store._where()}); update this orbit-lsp, or move the file away"
    )
    assert [path.name for path in store._where().parent.iterdir()] == ["history.sqlite"]


def test_a_file_that_another_editor_has_just_replaced_is_left_in_peace(store: HistoryStore) -> None:
    store.keep(entry(), TEXT)
    store._file.set_aside(store._where(), ValueError("of old"), (0, 0))
    assert len(store.entries("/src/saxpy.cu")) == 1
    assert store.complaints() == []


def test_a_row_that_cannot_be_read_hides_no_other(store: HistoryStore) -> None:
    store.keep(entry(1), TEXT)
    store.keep(entry(2), TEXT)
    with closing(sqlite3.connect(store._where())) as file:
        file.execute("update runs set said = x'00' where digest = 'd1'")
        file.commit()
    assert [item.digest for item in store.entries("/src/saxpy.cu")] == ["d2"]


def test_a_folder_that_cannot_be_made_is_a_complaint_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = HistoryStore(lambda: tmp_path / "file" / "state" / "history.sqlite")
    store.keep(entry(), TEXT)
    assert store.entries("/src/saxpy.cu") == []
    assert all(
        complaint.startswith("the history of kernels cannot be kept: ") for complaint in store.complaints()
    )


def test_no_home_folder_is_a_complaint() -> None:
    def where() -> Path:
        raise RuntimeError("no home folder")

    store = HistoryStore(where)
    store.keep(entry(), TEXT)
    assert store.complaints() == ["the history of kernels cannot be kept: no home folder"]


def test_a_file_of_another_program_is_set_aside(store: HistoryStore) -> None:
    where = store._where()
    where.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(where)) as file:
        file.execute("create table runs (mine)")
    store.keep(entry(), TEXT)
    assert len(store.entries("/src/saxpy.cu")) == 1
    (message,) = store.complaints()
    assert "table runs already exists" in message
    (aside,) = where.parent.glob("history.damaged-*.sqlite")
    with closing(sqlite3.connect(aside)) as file:
        assert file.execute("select count(*) from runs").fetchone() == (0,)


def test_a_run_that_cannot_be_kept_now_is_kept_later(store: HistoryStore) -> None:
    store._file.busy_s = 0.05
    store.keep(entry(1), TEXT)
    with closing(sqlite3.connect(store._where(), isolation_level=None)) as file:
        file.execute("begin immediate")
        store.keep(entry(2), TEXT)
        message = f"the history of kernels cannot be kept: database is locked ({store._where()}); "
        assert store.complaints() == [message + "another process holds it: wait for that process, or end it"]
        assert len(store.entries("/src/saxpy.cu")) == 1  # who reads does not wait for who writes
        file.execute("rollback")
    HistoryStore(store._where).write_again()  # whoever it is in this process
    assert [kept.at for kept in store.entries("/src/saxpy.cu")] == [entry(1).at, entry(2).at]
    assert store.complaints() == []


WRITER = """
import sys
from pathlib import Path
from orbit_lsp.history import history_store
from tests.test_history import TEXT, entry
history_store._BUSY_S = 120  # a busy machine: what is tested is that nothing is lost, not how long an editor waits
store = history_store.HistoryStore(lambda: Path(sys.argv[1]))
for number in range(40):
    store.keep(entry(number, f"kernel{sys.argv[2]}"), f"{TEXT}// {sys.argv[2]} {number}")
assert not store.complaints(), store.complaints()
"""


@pytest.mark.slow
def test_several_editors_write_at_once_from_the_first_moment(store: HistoryStore) -> None:
    path = store._where()
    root = Path(__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": f"{root}:{root / 'remote'}"}
    commands = [[sys.executable, "-c", WRITER, str(path), str(number)] for number in range(4)]
    with ThreadPoolExecutor(4) as pool:
        done = list(
            pool.map(
                lambda item: subprocess.run(
                    item, capture_output=True, text=True, check=False, env=environment
                ),
                commands,
            )
        )
    assert [(item.returncode, item.stderr) for item in done] == [(0, "")] * 4
    assert len(store.entries("/src/saxpy.cu", most=1_000)) == 160
    assert sorted(store.kernels("/src/saxpy.cu")) == [f"kernel{number}" for number in range(4)]
