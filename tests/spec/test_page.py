"""docs/guide/launch-specs.md: its examples have no fault, it names every word."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from orbit_remote.spec.comment_scanner import WORDS
from tests.spec.spec_check import faults

PAGE = (Path(__file__).parent.parent.parent / "docs" / "guide" / "launch-specs.md").read_text(
    encoding="utf-8"
)
EXAMPLES = re.findall(r"```(cuda|triton)\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize(("language", "source"), EXAMPLES)
def test_its_examples_have_no_fault(language: str, source: str) -> None:
    assert faults(source, language) == ""


def test_it_names_every_word() -> None:
    assert len(EXAMPLES) == 2
    for word in WORDS:
        assert re.search(rf"`{word}\b|\b{word}\(", PAGE), word
