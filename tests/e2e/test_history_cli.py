"""`orbit-lsp compare` and `history`. The GPU side is recorded (recorded_worker.py): these machines have none."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import SimpleNamespace

import pytest
from pydantic import TypeAdapter

from orbit_lsp.cli.reference import schema
from orbit_remote.common.messages import RESULT_VERSION
from tests.e2e.forks import command
from tests.e2e.test_ab_compare import committed
from tests.e2e.test_history import FASTER, SAXPY
from tests.e2e.test_spec_runs import orbit

SCHEMAS = Path(__file__).parents[2] / "docs" / "schema"


class Author:
    def __init__(self, folder: Path, python: str) -> None:
        self.folder, self.python = folder, python

    def orbit(self, *words: str) -> tuple[int, str, str]:
        code, out, message = orbit(self.folder, self.python, *words)
        return code, re.sub(r"of \d\d:\d\d", "of 14:05", out), message

    def history(self, *words: str) -> tuple[int, str, str]:
        code, out, message = orbit(self.folder, None, "history", *words)
        return code, out, message

    def run(self, text: str) -> None:
        (self.folder / "saxpy.cu").write_text(text)
        code, _, message = self.orbit("run", "saxpy.cu", "--kernel", "saxpy")
        assert code == 0, message


@pytest.fixture
def author(tmp_path: Path, recorded_python: str) -> Author:
    return Author(tmp_path, recorded_python)


def valid(kind: str, text: str) -> dict:
    result = json.loads(text)
    TypeAdapter(schema.KINDS[kind]).validate_json(text, strict=True)
    assert set(result) == set(
        json.loads((SCHEMAS / f"{kind}-{RESULT_VERSION}.json").read_text())["properties"]
    )
    return result


def test_a_comparison_with_the_last_version_and_with_a_revision(author: Author) -> None:
    author.run(FASTER)
    short = committed(author.folder, saxpy_cu=FASTER)
    (author.folder / "saxpy.cu").write_text(SAXPY)
    code, out, message = author.orbit("compare", "saxpy.cu")
    assert (code, out) == (
        0,
        """\
saxpy takes 7.5% more time than the version of 14:05 (7.5% to 7.5% more, 7 pairs of runs); just now
                the version of 14:05   now                    change, 95 %
  time, median  268 µs ±0.1%           288 µs ±0.1%           +7.5% (+7.5% to +7.5%): slower
  launches      350 (cold L2, 7 runs)  350 (cold L2, 7 runs)
""",
    ), message
    assert "pair 7 of 7 to 12: now running" in message
    code, out, message = author.orbit("compare", "saxpy.cu", "--with", "HEAD", "--json")
    result = valid("compared", out)
    assert (code, message) == (0, "")
    assert (result["verdict"], result["pairs"], result["against"]) == ("slower", 7, f"HEAD ({short})")
    assert [type(first) for first in result["now_first"]] == [bool] * 7
    assert result["ratio"] == pytest.approx(288_032 / 267_870, abs=0.0001)


def test_a_comparison_with_another_file_and_kernel(author: Author) -> None:
    (author.folder / "fast.cu").write_text(FASTER.replace("saxpy", "quick"))
    (author.folder / "saxpy.cu").write_text(SAXPY)
    code, out, _ = author.orbit("compare", "saxpy.cu", "--with", "fast.cu", "--json")
    assert (code, valid("compared", out)["against"]) == (0, "fast.cu")
    (author.folder / "both.cu").write_text(SAXPY + SAXPY.replace("saxpy", "other"))
    code, out, message = author.orbit("compare", "both.cu")
    assert (code, out) == (64, "")
    assert message == "orbit-lsp: error: which kernel? Add --kernel; this file has: saxpy, other\n"
    code, out, _ = author.orbit("compare", "both.cu", "--kernel", "saxpy", "--with-kernel", "other", "--json")
    assert (code, valid("compared", out)["verdict"]) == (0, "inconclusive")


def test_a_revision_is_one_though_a_file_has_its_name(author: Author) -> None:
    committed(author.folder, saxpy_cu=FASTER)
    (author.folder / "saxpy.cu").write_text(SAXPY)
    (author.folder / "HEAD").write_text("no kernel")
    assert author.orbit("compare", "saxpy.cu", "--with", "HEAD", "--json")[0] == 0
    (author.folder / "none.cu").write_text("int main() {}\n")
    code, out, message = author.orbit("compare", "none.cu")
    assert (code, out, message) == (64, "", "orbit-lsp: error: no kernel in this file can be launched\n")


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        (("--with", "HEAD"), 5, "not in a git repository"),
        ((), 5, "the history has no run of another version of saxpy to compare with"),
        (
            ("--with", "last", "--with-kernel", "x"),
            64,
            "give only one of --with, --with-kernel and --with-gpu",
        ),
        (("--with-gpu", "L4"), 5, "another GPU must be rented from Modal"),
    ],
)
def test_what_cannot_be_compared(
    author: Author, words: tuple[str, ...], code: int, expected: str, monkeypatch
) -> None:
    monkeypatch.setenv("MODAL_CONFIG_PATH", str(author.folder / "absent"))
    (author.folder / "saxpy.cu").write_text(SAXPY)
    result, out, message = author.orbit("compare", "saxpy.cu", *words)
    assert (result, out) == (code, "")
    assert expected in message


def test_one_side_that_does_not_compile_is_a_sentence_and_valid_json(author: Author) -> None:
    committed(author.folder, saxpy_cu=SAXPY.replace("{", "{BUG"))
    (author.folder / "saxpy.cu").write_text(SAXPY)
    code, out, message = author.orbit("compare", "saxpy.cu", "--with", "HEAD", "--json")
    result = valid("compared", out)
    assert (code, result["verdict"], result["failure"]["category"]) == (1, None, "compile error")
    assert 'does not compile: 1 error: identifier "BUG" is undefined' in message


def test_a_file_to_compare_with_that_is_not_there(author: Author) -> None:
    (author.folder / "saxpy.cu").write_text(SAXPY)
    code, _, message = author.orbit("compare", "saxpy.cu", "--with", "saxpi.cu")
    assert (code, message) == (64, "orbit-lsp: error: there is no file saxpi.cu to compare with\n")


def test_the_history_of_a_file(author: Author) -> None:
    author.run(FASTER)
    author.run(SAXPY)
    author.run(SAXPY)
    code, out, message = author.history("saxpy.cu")
    assert (code, message) == (0, "")
    assert (
        out
        == """\
saxpy: 2 versions, 3 runs
  version  when      time          change  warm    occupancy  launch             GPU             runs
  1        just now  268 µs ±0.2%          268 µs  ≤100%      <<<262144, 256>>>  H100 80GB HBM3  1
  2        just now  288 µs ±0.2%  +7.5%   288 µs  ≤100%      <<<262144, 256>>>  H100 80GB HBM3  2
  +7.5% since 1 edit

"""
    )
    result = valid("history", author.history("saxpy.cu", "--kernel", "saxpy", "--json")[1])
    (kernel,) = result["kernels"]
    assert kernel["regression"] == {"change": pytest.approx(0.0753, abs=0.0001), "edits": 1}
    assert [(item["version"], item["time_ns"]) for item in kernel["runs"]] == [
        (1, 267870),
        (2, 288032),
        (2, 288032),
    ]
    assert author.history("saxpy.cu", "--text", "1") == (0, FASTER, "")


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("saxpy.cu",), 0, "the history has no run of a kernel in "),
        (("saxpy.cu", "--kernel", "other"), 64, "the history has no run of other in "),
        (("absent.cu",), 64, "there is no file absent.cu"),
        (("saxpy.cu", "--text", "1"), 64, "--text needs one kernel: add --kernel"),
    ],
)
def test_a_history_that_is_not_there(author: Author, words: tuple[str, ...], code: int, text: str) -> None:
    (author.folder / "saxpy.cu").write_text(SAXPY)
    result, out, message = author.history(*words)
    assert result == code
    assert text in out + message


def shape(text: str, kernel: str) -> list[str]:
    """Line by line what is said, whatever the kernel, its launch, the revision and the numbers."""
    text = re.sub(r"<<<.*?>>>", "<<<launch>>>", text.replace(kernel, "kernel"))
    text = re.sub(r"\b[0-9a-f]{7}\b", "revision", text)
    return [" ".join(re.sub(r"\d[\d.]*", "0", line).split()) for line in text.splitlines()]


def test_the_example_of_the_page_says_what_the_script_makes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page has the script's output on an H100; here the stand-in answers, of another kernel."""
    root = SCHEMAS.parents[1]
    loader = SourceFileLoader("history_example", str(root / "scripts" / "history_example"))
    script = importlib.util.module_from_spec(importlib.util.spec_from_loader("history_example", loader))
    loader.exec_module(script)

    def run(words: tuple[str, ...], cwd: Path, env: dict[str, str], **how: object) -> object:
        if words[:4] == (sys.executable, "-P", "-m", "orbit_lsp"):
            return command(cwd, *words[4:], environment=env)
        return subprocess.run(words, cwd=cwd, env=env, check=bool(how.pop("check")), **how)

    monkeypatch.setattr(script, "subprocess", SimpleNamespace(run=run))
    made = script.example(tmp_path, stand_in=True)
    page = (root / "docs" / "guide" / "history.md").read_text()
    example = page.partition("<!-- scripts/history_example -->\n\n")[2].partition("\n<!-- end -->")[0]
    assert shape(example, "transpose") == shape(made, "saxpy")
