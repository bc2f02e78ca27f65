"""Nsight Compute found, asked, and its log read; the logs are of 2025.3.1 on an H100."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from orbit_remote.ncu import ncu_options
from orbit_remote.ncu.ncu_log import Log
from orbit_remote.ncu.ncu_options import CLICK, ProfileOrder, Tool

SAXPY = """\
==WARNING== Note: Running with unmodified GPU clocks. If not controlled otherwise, profiling results may be inconsistent.
==PROF== Connected to process 4192 (/src/memory_bound)
==WARNING== Unable to access the following 6 metrics: ctc__rx_bytes_data_user.sum, ctc__tx_bytes_data_user.sum.

==PROF== Profiling "saxpy" - 0 (1/1): 0%....50%....100% - 34 passes
==PROF== Disconnected from process 4192
==PROF== Report: /tmp/rec/memory_bound.ncu-rep
"""
SOFTMAX = '==PROF== Profiling "softmax": 0%....50%....100% - 34 passes\n'
ENDED = """\
==PROF== Trying to shutdown target application
==ERROR== The application returned an error code (9).
"""
UNDER_WAY = '==PROF== Profiling "saxpy" - 1 (2/2): 0%....50%..'


@pytest.mark.parametrize(
    ("text", "profiled", "status", "ended"),
    [
        ("", 0, None, False),
        (SAXPY, 1, None, False),
        (SAXPY + UNDER_WAY, 1, None, False),
        (SOFTMAX * 3, 3, None, False),
        (SAXPY + "==ERROR== The application returned an error code (3).\n", 1, 3, False),
        (
            ENDED,
            0,
            9,
            True,
        ),
    ],
)
def test_a_log(text: str, profiled: int, status: int | None, ended: bool) -> None:
    log = Log(text)
    assert (log.profiled, log.status, log.ended_it, log.refusal) == (profiled, status, ended, None)


def test_warnings_and_a_programs_failure_are_no_refusal() -> None:
    message = SAXPY + "==WARNING== ERR_NVGPUCTRPERM\n==ERROR== The application returned an error code (1).\n"
    assert Log(message).refusal is None


def test_every_refusal_says_what_would_enable_counters() -> None:
    for words in ("ERR_NVGPUCTRPERM - The user", "LibraryNotLoaded", "Unknown Error on device 0."):
        refusal = Log(f"==ERROR== {words}\n").refusal
        assert refusal
        assert refusal.sentence == f"{refusal.message}; to enable counters: {refusal.remedy}"


# -- finding it -------------------------------------------------------------------------------------


def install(folder: Path, version: str) -> Path:
    """As NVIDIA's package lies: the program, and its reader two folders below."""
    reader = folder / "extras" / "python" / "ncu_report.py"
    reader.parent.mkdir(parents=True)
    reader.touch()
    program = folder / "ncu"
    program.write_text(
        f"#!/bin/sh\necho 'NVIDIA (R) Nsight Compute Command Line Profiler'\necho 'Version {version}'\n"
    )
    program.chmod(0o755)
    return program


def test_the_reader_beside_it_is_found_through_a_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = install(tmp_path / "nsight-compute" / "2025.3.1", "2025.3.1.0 (build 36398880) (public-release)")
    link = tmp_path / "bin" / "ncu"
    link.parent.mkdir()
    link.symlink_to(real)
    monkeypatch.setenv("PATH", f"{link.parent}:/usr/bin:/bin")
    tool = ncu_options.find()
    assert tool
    assert (tool.path, tool.version) == (str(link), "2025.3.1.0")
    assert tool.readers[0] == str(real.parent / "extras" / "python")


def test_one_that_does_not_start_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "ncu"
    broken.write_text("#!/nowhere\n")
    broken.chmod(0o755)
    monkeypatch.setattr(ncu_options, "_candidates", lambda: [broken])
    assert ncu_options.find() is None


@pytest.mark.parametrize(
    ("version", "old"),
    [("2023.2.1.0", True), ("2023.3.0.0", False), ("2025.2.1.0", False), ("2030.1.0.0", False), ("", False)],
)
def test_how_old_it_may_be(version: str, old: bool) -> None:
    assert bool(Tool("/ncu", version).too_old) == old


# -- asking it --------------------------------------------------------------------------------------


def asked(**wanted: object) -> list[str]:
    order = ProfileOrder(Path("/s/report.ncu-rep"), Path("/s/log.txt"), **wanted)  # pyright: ignore[reportArgumentType]
    return ncu_options.command(Tool("/ncu", "2025.3.1.0"), order, ["./program", "--set", "x"])


def test_the_programs_own_words_come_last() -> None:
    assert asked()[-3:] == ["./program", "--set", "x"]
    assert asked().count("--section") == len(CLICK)
    assert "--kernel-name" not in asked()


def test_sections_that_are_named_are_all_that_is_collected() -> None:
    for detail in ("click", "full"):
        words = asked(sections=("Occupancy", "LaunchStats"), detail=detail)
        asking = ("--section", "--set", "--metrics")
        pairs = [pair for pair in itertools.pairwise(words) if pair[0] in asking]
        sections = [("--section", "Occupancy"), ("--section", "LaunchStats")]
        programs_own = ("--set", "x")
        assert pairs == [*sections, ("--metrics", "gpu__time_duration.sum"), programs_own]


def matched(words: list[str], symbols: list[str]) -> list[str]:
    """By the rule of `ncu`: a pattern is looked for in the name."""
    pattern = words[words.index("--kernel-name") + 1].removeprefix("regex:")
    return [symbol for symbol in symbols if re.search(pattern, symbol)]


def test_symbols_are_matched_whole_and_literally() -> None:
    every = ["_Z1kPf", "_Z1kPfi", "_Z1k$Pf", "_Z1kxPf", "k.1"]
    assert matched(asked(symbols=("_Z1kPf", "k.1")), every) == ["_Z1kPf", "k.1"]
    assert matched(asked(symbols=("_Z1k$Pf",)), every) == ["_Z1k$Pf"]


def test_many_instances_are_asked_for_by_the_kernels_name() -> None:
    from orbit_remote.common.requests import Job
    from orbit_remote.counters import kernel_selection

    job = Job("r", "profile", "cuda", "/k.cu", "", kernel="ns::k")
    instances = [f"_ZN2ns1kILi{n}EEvPf" for n in range(100)]
    words = asked(symbols=tuple(instances), pattern=kernel_selection.pattern(job))
    assert matched(words, [*instances, "_Z2kkPf", "_Z11another_onePf", "k"]) == [*instances, "k"]
    triton = Job("r", "profile", "triton", "/k.py", "", kernel="k")
    words = asked(pattern=kernel_selection.pattern(triton), marked=True)
    assert matched(words, ["k", "kk", "k_fused"]) == ["k"]
    assert ("--profile-from-start", "off") in itertools.pairwise(words)
