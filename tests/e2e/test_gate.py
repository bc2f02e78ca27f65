"""`orbit-lsp gate`. The GPU side is recorded (recorded_worker.py): these machines have none."""

from __future__ import annotations

import json
import re
from xml.etree import ElementTree as ET

import pytest

from tests.e2e.test_ab_compare import committed, git
from tests.e2e.test_history import FASTER, SAXPY
from tests.e2e.test_history_cli import Author, author, valid

__all__ = ["author"]  # a fixture
OTHER = SAXPY.replace("saxpy", "other")


def write(author: Author, **files: str) -> None:
    for name, text in files.items():
        (author.folder / name.replace("_", ".")).write_text(text)


def gate(author: Author, *words: str, code: int) -> tuple[dict, str]:
    """The JSON, and what was said meanwhile."""
    got, out, message = author.orbit("gate", *words, "--json")
    assert got == code, (out, message)
    return valid("gate", out), message


def verdicts(result: dict) -> dict[str, str]:
    return {kernel["kernel"]: kernel["verdict"] for kernel in result["kernels"]}


def test_a_slower_kernel_is_found_and_its_verdict_is_carried(author: Author) -> None:
    short = committed(author.folder, saxpy_cu=FASTER, other_cu=OTHER)
    write(author, saxpy_cu=SAXPY)
    reports = ("--markdown", "r.md", "--junit", "r.xml", "--sarif", "r.sarif")
    code, out, message = author.orbit("gate", *reports)
    assert (code, out.splitlines()[0]) == (6, f"saxpy takes 7.5% more time than in main ({short})."), message
    assert f"gate: 1 kernel to compare with main ({short}) on NVIDIA H100 80GB HBM3; false alarms" in message
    assert "the noise of 1 of them is unknown" in message
    assert message.count("gate: running: the base running\n") == 1, "a log has it once for all runs"
    text = (author.folder / "r.md").read_text()
    assert text.startswith(f"🔴 **saxpy takes 7.5% more time than in main ({short}).**\n\n|  | kernel |")
    assert (
        "| 🔴 | `saxpy` saxpy.cu:6 | 268\xa0µs | 288\xa0µs | +7.5% (+7.5%\xa0to\xa0+7.5%) | 9 | **slower** |"
        in text
    )
    (case,) = ET.parse(author.folder / "r.xml").iter("testcase")
    assert (case.get("name"), case.get("line"), [child.tag for child in case]) == ("saxpy", "6", ["failure"])
    (finding,) = json.loads((author.folder / "r.sarif").read_text())["runs"][0]["results"]
    place = finding["locations"][0]["physicalLocation"]
    assert (finding["ruleId"], finding["level"]) == ("orbit/slower", "error")
    assert (place["artifactLocation"]["uri"], place["region"]["startLine"]) == ("saxpy.cu", 6)
    again, message = gate(author, code=6)
    assert (again["carried"] is not None, message) == (True, "")
    anew, message = gate(author, "--again", code=6)
    assert anew["carried"] is None
    assert anew["forecast"] == {
        "finds": pytest.approx(0.02),
        "unknown": 0,
        "seconds": anew["forecast"]["seconds"],
    }


def test_the_counters_of_a_slower_kernel_are_shown_on_demand(author: Author) -> None:
    """The verdict is that of the earlier gate; only the profiles are made."""
    counted = SAXPY.replace("{", "{/*COUNTED*/")
    committed(author.folder, saxpy_cu=FASTER.replace("{", "{/*COUNTED*/", 1), other_cu=FASTER)
    write(author, saxpy_cu=counted, other_cu=SAXPY)
    assert gate(author, code=6)[0]["kernels"][1]["counters"] == []
    result, _ = gate(author, "--profile", code=6)
    other, saxpy = result["kernels"]
    assert result["carried"] is not None
    assert [counter["name"] for counter in saxpy["counters"]] == ["instructions"]
    assert other["remarks"] == ["saxpy has no counters: no launch of it was counted"]
    _, out, _ = author.orbit("gate", "--profile", "--markdown", "r.md")
    assert re.search(
        r"Counters of saxpy .saxpy.cu. that differ\n +counter +base +now +change\n +instructions .* \+100%\n",
        out,
    )
    text = (author.folder / "r.md").read_text()
    assert "<details><summary>Counters of saxpy (saxpy.cu) that differ</summary>" in text
    rows = text.partition("<summary>")[2].splitlines()[2:5]
    assert (rows[0], rows[1]) == ("| counter | base | now | change |", "|---|---|---|---|")
    assert rows[2].endswith("| +100% |")


def test_a_clone_without_the_contents_of_the_base_is_no_pass(author: Author) -> None:
    committed(author.folder, saxpy_cu=FASTER)
    blob = git(author.folder, "rev-parse", "HEAD:saxpy.cu")
    write(author, saxpy_cu=SAXPY)
    (author.folder / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    code, _, message = author.orbit("gate")
    assert (
        code,
        "git does not have the content of that revision here: clone without --filter" in message,
    ) == (5, True)


def test_what_is_the_same_is_not_run_unless_all_is_asked_for(author: Author) -> None:
    committed(author.folder, saxpy_cu=SAXPY, other_cu=OTHER)
    result, message = gate(author, code=0)
    assert (result["kernels"], message) == ([], "")
    assert "nothing has changed: name another base, as in --base HEAD~1" in author.orbit("gate")[1]
    write(author, saxpy_cu=SAXPY.replace("{\n", "{  // a comment\n"))
    result, _ = gate(author, code=0)
    assert (result["kernels"], result["unchanged"]) == ([], 1)
    result, _ = gate(author, "--all", "--base", "HEAD", code=0)
    assert verdicts(result) == {"other": "not slower", "saxpy": "not slower"}
    assert [kernel["pairs"] for kernel in result["kernels"]] == [8, 8]
    assert [(control["red"], control["pairs"]) for control in result["controls"]] == [(False, 8)]


def test_a_change_within_the_margin_and_a_new_kernel_pass(author: Author) -> None:
    committed(author.folder, saxpy_cu=SAXPY.replace("{", "{/*NOISE*/ int noise;"))
    write(author, saxpy_cu=SAXPY, other_cu=OTHER)
    result, _ = gate(author, code=0)
    assert verdicts(result) == {"saxpy": "not slower", "other": "not compared"}
    assert "other.cu is not in " in result["kernels"][0]["reason"]


@pytest.mark.parametrize(
    ("text", "code", "sentence"),
    [
        ("{BUG", 1, "saxpy: compile error. does not compile: 1 error: identifier"),
        ("{ // WRONG", 3, "saxpy: wrong answer. y[7] is 0.5 and not 2.5"),
    ],
)
def test_a_change_that_does_not_build_or_compute_is_said(
    author: Author, text: str, code: int, sentence: str
) -> None:
    committed(author.folder, saxpy_cu=SAXPY)
    write(
        author, saxpy_cu=SAXPY.replace("{", text + " int now;" if "//" not in text else text + "\n int now;")
    )
    result, _ = gate(author, code=code)
    assert result["sentence"].startswith(sentence)
    assert (result["verdict"], verdicts(result)) == ("failed", {"saxpy": "failed"})


def test_a_base_that_does_not_build_is_no_fault_of_the_change(author: Author) -> None:
    committed(author.folder, saxpy_cu=SAXPY.replace("{", "{BUG"))
    write(author, saxpy_cu=SAXPY)
    result, _ = gate(author, code=0)
    (kernel,) = result["kernels"]
    assert kernel["verdict"] == "not compared"
    assert kernel["reason"].startswith("it cannot be compared, because the base: does not compile")


def test_the_kernels_of_a_program_share_its_runs(author: Author) -> None:
    program = "// SHEET saxpy other\n__global__ void saxpy() {}\n__global__ void other() {}\nint main() {}\n"
    committed(author.folder, k_cu=program)
    write(author, k_cu=program.replace("{}", "{ int a; }"))
    result, _ = gate(author, code=0)
    assert verdicts(result) == {"saxpy": "not slower", "other": "not slower"}
    assert [kernel["through"] for kernel in result["kernels"]] == ["its program"] * 2


def test_a_renamed_file_is_compared_and_a_moved_kernel_is_said(author: Author) -> None:
    short = committed(author.folder, saxpy_cu=FASTER, a_cu=OTHER, b_cu="// none\n")
    git(author.folder, "mv", "saxpy.cu", "moved.cu")
    write(author, moved_cu=SAXPY, a_cu="// none\n", b_cu=OTHER)
    result, _ = gate(author, code=6)
    assert verdicts(result) == {"saxpy": "slower", "other": "not compared"}
    other, saxpy = result["kernels"]
    assert other["reason"] == f"there is no kernel other in b.cu of {short}; it has: none"
    assert saxpy["remarks"] == [f"moved.cu was saxpy.cu in {short}"]


def test_a_submodule_that_changed_is_not_passed_in_silence(author: Author) -> None:
    lib = author.folder / "origin"
    lib.mkdir()
    committed(lib, a_cuh="// then\n")
    (author.folder / ".gitignore").write_text("origin\n.cache\n.state\n")
    committed(author.folder, saxpy_cu=SAXPY)
    git(author.folder, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(lib), "lib")
    committed(author.folder)
    committed(author.folder / "lib", a_cuh="// now\n")
    result, _ = gate(author, code=0)
    assert result["remarks"] == [
        "the submodule lib is at another commit in the base, and what that changes is not compared"
    ]
    assert "\nthe submodule lib is at another commit in the base" in author.orbit("gate")[1]


def test_a_header_that_changed_reaches_the_kernels_that_include_it(author: Author) -> None:
    committed(author.folder, saxpy_cu='#include "a.cuh"\n' + SAXPY, other_cu=OTHER, a_cuh="// then\n")
    write(author, a_cuh="// now\n")
    result, _ = gate(author, code=0)
    assert verdicts(result) == {"saxpy": "not slower"}


def test_a_limit_leaves_it_inconclusive_and_the_pairs_count_on(author: Author) -> None:
    committed(author.folder, saxpy_cu=FASTER)
    write(author, saxpy_cu=SAXPY)
    result, _ = gate(author, "--limit", "0.000001", code=0)
    assert result["sentence"].startswith("Inconclusive for saxpy: the limit of 1e-06 s was reached")
    assert gate(author, "--limit", "0.000001", "--fail-inconclusive", code=7)[0]["verdict"] == "inconclusive"


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("--base", "nowhere"), 5, "git knows no revision nowhere of "),
        (("--base", ""), 5, "'' is not a git revision"),
        (("--markdown", "."), 64, ". cannot be written: it is a folder"),
        (("--find", "0.3%"), 64, "--find must be more than --margin, 0.5%"),
        (("--false-alarm", "lots"), 64, "'lots' is not a share such as 1% or 0.01"),
        (("absent.cu",), 64, "there is no file or folder absent.cu"),
        (("--markdown", "no/r.md"), 64, "no/r.md cannot be written: its folder does not exist"),
        (("--markdown", "-", "--junit", "-"), 64, "standard output takes one report"),
    ],
)
def test_a_command_line_that_cannot_be_obeyed(
    author: Author, words: tuple[str, ...], code: int, text: str
) -> None:
    committed(author.folder, saxpy_cu=SAXPY)
    result, out, message = author.orbit("gate", *words)
    assert (result, out) == (code, "")
    assert text in message


def test_the_base_is_where_the_branch_began(author: Author) -> None:
    short = committed(author.folder, saxpy_cu=FASTER)
    git(author.folder, "checkout", "-q", "-b", "change")
    committed(author.folder, saxpy_cu=SAXPY)
    result, _ = gate(author, code=6)
    assert (result["base_name"], result["edited"]) == (f"main ({short})", False)


def test_the_gates_of_a_repository_are_a_page(author: Author) -> None:
    short = committed(author.folder, saxpy_cu=FASTER, other_cu=OTHER)
    assert author.orbit("gate", "--history", "gates.html")[0] == 5, "there is none yet"
    gate(author, "--all", "--base", "HEAD", code=0)
    write(author, saxpy_cu=SAXPY)
    gate(author, code=6)
    code, out, message = author.orbit("gate", "--history", "gates.html")
    assert (code, out, message) == (0, "2 gates in gates.html\n", "")
    page = (author.folder / "gates.html").read_text()
    assert "<title>gate 2: saxpy 288 µs, +7.5%, slower</title>" in page
    assert f"saxpy takes 7.5% more time than in main ({short})." in page
    elsewhere = author.folder / "elsewhere"
    elsewhere.mkdir()
    git(elsewhere, "init", "-q")
    code, _, message = author.orbit("gate", "elsewhere", "--history", "gates.html")
    assert (code, "no gate of the repository of " in message) == (5, True)


def test_outside_of_a_repository_there_is_no_base(author: Author) -> None:
    write(author, saxpy_cu=SAXPY)
    code, _, message = author.orbit("gate")
    assert (code, "is not in a git repository" in message) == (5, True)
