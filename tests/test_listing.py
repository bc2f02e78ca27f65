"""Listings of compiled code as text: read back, compared, shown beside their source."""

from __future__ import annotations

import pytest

from orbit_lsp.profile import listing
from orbit_lsp.views.explain import sass_instructions
from orbit_lsp.views.explain.explanations import explain

BEFORE = """\
// saxpy(float*)
// /src/k.cu:2
        /*0000*/  B------:R-:W0:-:S07  S2R R0, SR_TID.X
// /src/k.cu:3, in half.h:9
        /*0010*/  B0-----:R-:W-:-:S05  FMUL R1, R0, R0
        /*0020*/  B------:R-:W-:Y:S05  @!P0 BRA 0x0040
        /*0030*/  B------:R-:W-:-:S05  EXIT
"""
NOW = BEFORE.replace("FMUL R1, R0, R0", "FFMA R1, R0, R0, R2").replace("0x0040", "0x0050")


def test_a_listing_is_read_back() -> None:
    first, second, third, _ = listing.read(BEFORE)
    assert (first.offset, first.control, first.text, first.line) == (
        0,
        "B------:R-:W0:-:S07",
        "S2R R0, SR_TID.X",
        2,
    )
    assert (second.file, second.line, second.inner) == ("/src/k.cu", 3, ", in half.h:9")
    assert [first.mnemonic, third.mnemonic] == ["S2R", "BRA"]


def test_a_profiles_listing_has_no_control_codes() -> None:
    (only,) = listing.read("// k, as it ran\n        /*0010*/  @P0 LDG.E R0, [R2]\n")
    assert (only.control, only.mnemonic, only.line) == ("", "LDG.E", None)


@pytest.mark.parametrize("text", ["", ".version 9.0\n.target sm_90\n", "        /*zz*/  FADD\n"])
def test_other_text_has_no_instructions(text: str) -> None:
    assert listing.read(text) == ()


def test_what_differs_is_marked_and_where_a_jump_leads_is_not() -> None:
    before, now = listing.read(BEFORE), listing.read(NOW)
    changes = listing.compare(before, now)
    assert [change.mark for change in changes] == [" ", "-", "+", " ", " "]
    assert listing.counts(before, now) == [("FFMA", 0, 1), ("FMUL", 1, 0)]
    assert listing.text(
        listing.near(changes, 0),
        {"/src/k.cu": ["", "", " y[i] = a;\n"]},
        marked=True,
        measured={("/src/k.cu", 3): "◂ 74%"},
    ) == (
        "-       /*0010*/  B0-----:R-:W-:-:S05  FMUL R1, R0, R0\n"
        "// /src/k.cu:3, in half.h:9    y[i] = a;    ◂ 74%\n"
        "+       /*0010*/  B0-----:R-:W-:-:S05  FFMA R1, R0, R0, R2"
    )


def test_the_instructions_of_a_source_line() -> None:
    assert [
        instruction.mnemonic for instruction in listing.of_line(listing.read(BEFORE), "/src/k.cu", 3)
    ] == [
        "FMUL",
        "BRA",
        "EXIT",
    ]
    assert listing.of_line(listing.read(BEFORE), "/src/other.cu", 3) == []


def test_an_instruction_is_explained_with_and_without_its_modifiers() -> None:
    assert sass_instructions.meaning("LDG.E.128") == "loads from global memory"
    for word in ("LDG", "ldg.e.128"):
        assert [(explanation.kind, explanation.text) for explanation in explain(word)] == [
            ("instruction", "Loads from global memory.")
        ]
    assert sass_instructions.meaning("FROBNICATE") == ""
