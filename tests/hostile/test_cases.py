"""Every input that once did harm, and a few that the fuzzer tries: each target reads them, and goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hostile import fuzz, targets

CASES = sorted(fuzz.CASES.glob("*/*"))


@pytest.mark.parametrize("case", CASES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_what_once_did_harm_does_none(case: Path) -> None:
    targets.TARGETS[case.parent.name](case.read_bytes())


@pytest.mark.parametrize("target", targets.TARGETS)
def test_the_fuzzer_tries_each_target(target: str, tmp_path: Path) -> None:
    meter = fuzz.Meter(target, tmp_path / "case")
    meter.round(0, 5)
    assert meter.inputs >= 5
    assert meter.crashes == {}


def test_the_fuzzer_finds_a_fault_and_makes_it_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def faulty(source: bytes) -> None:
        assert b"sweep" not in source

    monkeypatch.setitem(targets.TARGETS, "specs", faulty)
    meter = fuzz.Meter("specs", tmp_path / "case")
    meter.round(0)
    ((case, text),) = meter.crashes.values()
    assert b"sweep" in case
    assert len(case) < 400
    assert "AssertionError" in text
