"""Every word that the product shows has an explanation, every command its examples, and what is documented parses."""

from __future__ import annotations

import argparse
import ast
import html
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import get_args, get_type_hints

import ncu_report
import pytest

from orbit_lsp.cli import arguments, source_listing
from orbit_lsp.profile import bottleneck
from orbit_lsp.server import handlers
from orbit_lsp.state import config
from orbit_lsp.views.compiler import kernel_costs
from orbit_lsp.views.explain import explanations
from orbit_lsp.views.explain.explanations import explain, suggestions
from orbit_remote.common import messages as c
from orbit_remote.spec.comment_scanner import PARTS, WORDS
from tests import recorded_profiles
from tests.cli_check import orbit
from tests.recordings.profiled import FOLDER
from tests.remote.nvcc_check import COMPILER, needs_nvcc

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "examples" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
COUNTER = re.compile(
    r"(gpu|sm|smsp|lts|l1tex|dram|gpc|launch|derived)__\w+(\.[\w.]+)?|memory_l\w+|inst_executed"
)


def calls(*folders: str, having: tuple[str, ...] = ("",)) -> Iterator[ast.Call]:
    for node in nodes(*folders, having=having):
        if isinstance(node, ast.Call):
            yield node


def nodes(*folders: str, having: tuple[str, ...] = ("",)) -> Iterator[ast.AST]:
    """Of the files that have one of these words: to parse all takes a second."""
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            if any(word in text for word in having):
                yield from ast.walk(ast.parse(text))


# -- explanations ---------------------------------------------------------------------------------------


def test_outcomes_and_exit_codes() -> None:
    assert set(get_args(c.Outcome)) | {"usage"} == set(explanations.OUTCOMES) == set(c.EXIT_CODES)
    for name, code in c.EXIT_CODES.items():
        assert explain(str(code)) == explain(f"exit code {code}")
        assert [explanation.names[0] for explanation in explain(str(code))] == [name]


def test_the_readme_names_each_exit_code_by_its_outcome() -> None:
    """The words of `--json`, of the log and of `explain`."""
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").partition("The exit code is")[2].split())
    listed = re.findall(r"(\d+) ([a-z ]+)[,.]", text.partition("130 cancelled.")[0] + "130 cancelled.")
    assert {name: int(code) for code, name in listed} == c.EXIT_CODES


def test_diagnostics_of_our_own() -> None:
    codes = set[str]()
    makers = ("Problem", "Diagnostic")
    for call in calls("orbit_lsp", "remote", having=makers):
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if name not in makers:
            continue
        if "orbit" in [node.value for node in ast.walk(call) if isinstance(node, ast.Constant)]:
            for code in (keyword.value for keyword in call.keywords if keyword.arg == "code"):
                match code:
                    case ast.Constant():
                        codes.add(code.value)
                    case ast.Attribute():
                        codes.add(getattr(c, code.attr))
                    case _:  # costs: the code is a variable of this type
                        codes.update(get_args(kernel_costs.Kind))
    assert codes | {c.STANDS} == set(
        explanations.DIAGNOSTICS
    )  # that one is told of a run, as CUDA's errors are


def test_counters() -> None:
    shown = {
        node.value
        for node in nodes("orbit_lsp/views", "orbit_lsp/report", "orbit_lsp/profile", "orbit_lsp/history")
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and COUNTER.fullmatch(node.value)
    }
    assert len(shown) > 40
    assert {name for name in shown if not name.endswith("_")} - set(explanations.COUNTERS) == set()


def test_stall_reasons() -> None:
    report = ncu_report.load_report(str(FOLDER / "memory_bound.full.ncu-rep"))
    counters = report.range_by_idx(0).action_by_idx(0).metric_names()
    stalls = [name for name in counters if re.search(r"(issue_stalled|warps_issue_stalled)_[a-z]", name)]
    assert len(stalls) > 40
    for name in stalls:
        assert [explanation.kind for explanation in explain(name)] == ["stall reason"], name


def test_labels_on_the_lines_of_every_recorded_profile() -> None:
    """`◔ 143 µs · occ 50% of 50% · 40 regs`: each part has an explained sign, label, bottleneck or stall reason in it."""
    known = [*explanations.LABELS, *explanations.BOTTLENECKS, *explanations.STALLS]
    shown = set[str]()
    for name in recorded_profiles.NAMES:
        bench = recorded_profiles.profiled(name)
        for line in source_listing.lines(bench.session, bench.uri, color=False):
            for part in re.findall(r" {3}([⏱◔◂✓✗⚠].*)$", line):
                shown |= set(part.split(" · "))
    assert len(shown) > 40
    assert [part for part in shown if not any(word in part for word in known)] == []


def test_labels_on_the_lines_of_a_recorded_run() -> None:
    """The lines are those of README's picture, which the code draws."""
    picture = (ROOT / "docs" / "pictures" / "measured.svg").read_text(encoding="utf-8")
    text = html.unescape(re.sub(r"<[^>]+>", "", picture)).replace("\xa0", " ")
    shown = {part for hint in re.findall(r"⏱[^|\n]*", text) for part in hint.strip().split(" · ")}
    assert len(shown) > 4
    assert [part for part in shown if not any(word in part for word in explanations.LABELS)] == []


def test_the_views_beside_the_text_are_described() -> None:
    manifest = json.loads((ROOT / "editors" / "vscode" / "package.json").read_text(encoding="utf-8"))
    views = [view["id"] for group in manifest["contributes"]["views"].values() for view in group]
    text = (ROOT / "docs" / "dev" / "clients.md").read_text(encoding="utf-8")
    assert [view for view in views if f"`{view.removeprefix('orbit.')}`" not in text] == []
    assert "The view *Orbit*" in (ROOT / "docs" / "guide" / "editors.md").read_text(encoding="utf-8")


def test_bottlenecks_settings_and_words_of_launch_specs() -> None:
    kinds = get_args(get_type_hints(bottleneck.BottleneckVerdict)["kind"])
    assert set(kinds) == set(explanations.BOTTLENECKS)
    for name in (*kinds, *(f"orbit.{name}" for name, _, _ in config.rows()), *WORDS, *PARTS):
        assert any(explanation.text.endswith(".") for explanation in explain(name)), name


@needs_nvcc
def test_cuda_errors_are_all_explained() -> None:
    """Those of the toolkit's headers, by the names of the driver and of the runtime."""
    assert not isinstance(COMPILER, c.Failure)
    headers = Path(COMPILER.root) / "include"
    for header, name in (("cuda.h", r"CUDA_ERROR_\w+"), ("driver_types.h", r"cudaError[A-Z]\w+")):
        text = (headers / header).read_text(encoding="utf-8", errors="replace")
        names = re.findall(rf"^\s+({name})\s*=\s*\d+,?", text, re.MULTILINE)
        assert len(names) > 90
        assert [name for name in names if [entry.kind for entry in explain(name)] != ["CUDA error"]] == []


@pytest.mark.parametrize(
    ("word", "name", "says"),
    [
        ("cudaErrorIllegalAddress", "CUDA_ERROR_ILLEGAL_ADDRESS", "memory that is not the program's"),
        ("700", "CUDA_ERROR_ILLEGAL_ADDRESS", "memory that is not the program's"),
        ("CUDA error: 209", "CUDA_ERROR_NO_BINARY_FOR_GPU", "-arch=native"),
        ("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "512 KiB"),
        ("ERR_NVGPUCTRPERM", "ERR_NVGPUCTRPERM", "NVreg_RestrictProfilingToAdminUsers=0"),
        ("C7511", "C7511", "accumulators"),
        ("ptxas C7519", "C7519", "wgmma.fence"),
        (
            (
                "ptxas info    : (C7517) warpgroup.wait is injected in around line 73 by compiler to allow use of registers defined "
                "by GMMA in function '_Z6serialPfmmi'"
            ),
            "C7517", "wgmma.wait_group",
        ),
        ("Unresolved extern function 'elsewhere'", "Unresolved extern function", "-rdc=true"),
        ("local-limit", "local-limit", "512 KiB"),
    ],
)  # fmt: skip
def test_what_cuda_and_ptxas_say(word: str, name: str, says: str) -> None:
    (entry,) = explain(word)
    assert entry.names[0] == name
    assert says in entry.text


@pytest.mark.parametrize(
    ("word", "nearest"),
    [
        ("long scorebord", "long scoreboard"),
        ("time out", "timed out"),
        ("orbit.gpuu", "orbit.gpu"),
        ("throttle", "tex throttle"),
        ("qqqq", ""),
    ],
)
def test_a_word_that_is_not_known(word: str, nearest: str) -> None:
    assert explain(word) == []
    assert nearest in suggestions(word) or (nearest, suggestions(word)) == ("", [])


# -- the command line -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "code", "out", "message"),
    [
        (["rn", "k.cu"], 64, "", "orbit-lsp: error: unknown command 'rn'; did you mean run?\n  see `orbit-lsp --help`\n"),
        (
            ["run", "--kernl=x", "k.cu"], 64, "",
            "orbit-lsp: error: unknown option '--kernl'; did you mean --kernel?\n  see `orbit-lsp run --help`\n",
        ),
        (["run"], 64, "", "orbit-lsp: error: orbit-lsp run needs FILE\n  see `orbit-lsp run --help`\n"),
        (
            ["jobs"], 64, "",
            "orbit-lsp: error: orbit-lsp jobs needs submit, list, show, cancel or prune\n  see `orbit-lsp jobs --help`\n",
        ),
        (
            ["jobs", "run", "k.cu"], 64, "",
            "orbit-lsp: error: orbit-lsp jobs does not take 'run'; choose submit, list, show, cancel or prune\n  see `orbit-lsp jobs --help`\n",
        ),
        (
            ["run", "--runner", "here", "k.cu"], 64, "",
            "orbit-lsp: error: --runner does not take 'here'; choose auto, local, modal or ssh:HOST\n  see `orbit-lsp run --help`\n",
        ),
        (
            ["explain", "mio", "throtle"], 64, "",
            ("orbit-lsp: error: 'mio throtle' is not a word that can be explained. "
             "Did you mean mio throttle, lg throttle, tex throttle, math pipe throttle?\n"),
        ),
        (["explain", "130"], 0, "cancelled (outcome: exit code 130)\n  The user cancelled the job. All processes that it started have ended.\n", ""),
        (["explain", "drain"], 0, "drain (stall reason)\n  The warp waits at its end for its stores to finish.\n", ""),
    ],
)  # fmt: skip
def test_what_is_mistyped(tmp_path: Path, words: list[str], code: int, out: str, message: str) -> None:
    assert orbit(tmp_path, *words) == (code, out, message)


def test_each_command_of_the_shell_and_of_an_editor_has_a_line_in_the_guide() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert [name for name in arguments.COMMANDS if f"orbit-lsp {name}" not in text] == []
    assert [
        name for name in handlers.COMMANDS if f"| `{name}` |" not in text and f"`{name}` |" not in text
    ] == []


@pytest.mark.parametrize("command", arguments.COMMANDS.values(), ids=lambda command: command.name)
def test_a_command_has_three_examples(command: arguments.CliCommand, tmp_path: Path) -> None:
    assert len(command.examples) == 3
    code, out, _ = orbit(tmp_path, command.name, "--help")
    assert (code, [example for example in command.examples if f"  orbit-lsp {example}\n" not in out]) == (
        0,
        [],
    )
    assert f"  {command.name} " in orbit(tmp_path, "--help")[1]


@pytest.mark.parametrize("command", arguments.COMMANDS.values(), ids=lambda command: command.name)
def test_every_option_has_a_line(command: arguments.CliCommand) -> None:
    parser = argparse.ArgumentParser(conflict_handler="resolve", epilog="")
    command.options(parser)
    assert [action.dest for action in parser._actions if not action.help] == []


def test_every_variable_that_is_read_is_named_in_help_or_on_a_page(tmp_path: Path) -> None:
    """By the author's side; `orbit_remote` has more, which processes of orbit-lsp set for each other."""
    read = {
        name
        for node in nodes("orbit_lsp", having=("ORBIT_",))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        for name in re.findall(r"\bORBIT_[A-Z_]+\b", node.value)
    }
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    text += "".join(orbit(tmp_path, name, "--help")[1] for name in arguments.COMMANDS)
    assert len(read) > 8
    assert read - set(re.findall(r"ORBIT_[A-Z_]+", text)) == set()


@pytest.mark.parametrize(
    "words",
    [
        "--json --kernel k k.cu -- 3",
        "--json k.cu --kernel k -- 3",
        "k.cu --json --kernel=k -- 3",
        "k.cu --kernel k --json -- 3",
    ],
)
def test_options_stand_before_or_after_the_file(words: str) -> None:
    options = arguments.parse(["run", *words.split()])
    assert (options.file, options.json, options.kernel, options.arguments) == ("k.cu", True, "k", ["3"])


def test_the_programs_own_arguments_follow_two_dashes(tmp_path: Path) -> None:
    options = arguments.parse(["run", "k.cu", "--gpu", "L4", "--", "--size", "4", "--", "x"])
    assert options.arguments == ["--size", "4", "--", "x"]
    message = "orbit-lsp: error: history takes no program arguments: x\n  see `orbit-lsp history --help`\n"
    assert orbit(tmp_path, "history", "k.cu", "--", "x") == (64, "", message)


@pytest.mark.parametrize(
    ("variable", "option", "value"),
    [
        ("ORBIT_GPU", "gpu", "B200"),
        ("ORBIT_RUNNER", "runner", "modal"),
        ("ORBIT_DEVICE", "device", 1),
        ("ORBIT_PYTHON", "python", "/p"),
        ("ORBIT_NVCC", "nvcc", "/n"),
        ("ORBIT_RUN_TIMEOUT_S", "run_timeout_s", 2.5),
        ("ORBIT_BUILD_TIMEOUT_S", "build_timeout_s", 2.5),
    ],
)
def test_a_variable_gives_an_options_value(
    monkeypatch: pytest.MonkeyPatch, variable: str, option: str, value: object
) -> None:
    monkeypatch.setenv(variable, str(value))
    assert getattr(arguments.parse(["run", "k.cu"]), option) == value


def test_a_variable_with_a_relative_path_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORBIT_NVCC", "bin/nvcc")
    assert arguments.parse(["run", "k.cu"]).nvcc is None
    assert "the variable ORBIT_NVCC is ignored" in orbit(tmp_path, "explain", "5")[2]


def documented() -> Iterator[tuple[str, str]]:
    """(page, command line) of every `orbit-lsp …` in a ```sh block, an indented block or a code span, and each example of --help."""
    for command in arguments.COMMANDS.values():
        yield from (("--help", f"orbit-lsp {example}") for example in command.examples)
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
        lines = [line for block in blocks for line in block.splitlines()]
        prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
        lines += re.findall(r"^ {4,}(?:\$ )?(orbit-lsp .*)$", prose, re.MULTILINE)
        lines += re.findall(r"`(orbit-lsp [^`\n]+)`", prose)
        yield from ((page.name, line.strip()) for line in lines if line.strip().startswith("orbit-lsp "))


@pytest.mark.parametrize(("page", "line"), sorted(set(documented())))
def test_a_documented_command_line_parses(page: str, line: str) -> None:
    command = re.split(r"\s+(?:&&|[#|>])\s|\s2>\s|\s{3,}", line)[
        0
    ]  # what follows is a comment, another program or a file
    words = shlex.split(re.sub(r"\[(.*?)\]", r"\1", command).replace("…", "x"))[1:]
    named = len(words) == 1 and words[0] in arguments.COMMANDS  # a command that prose names
    if not named and words not in (["COMMAND", "--help"], ["--help"], ["--version"]):
        arguments.parse([{"N": "1", "S": "1", "USD": "1"}.get(word, word) for word in words])
