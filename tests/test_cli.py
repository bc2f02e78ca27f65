"""The command line on bad input and bad surroundings: what is said, and the exit code.

What only a process can show - streams that are closed, a folder that is gone, bytes as an argument - is shown by one.
"""

from __future__ import annotations

import io
import json
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from orbit_lsp.cli import command_options, terminal_text
from orbit_lsp.cli import main as cli_main
from orbit_lsp.state import placement
from orbit_lsp.state.config import Settings
from tests.cli_check import orbit
from tests.e2e.recorded_worker import DEVICE
from tests.remote.nvcc_check import needs_nvcc

pytestmark = pytest.mark.skipif(os.name != "posix", reason="files and streams as Unix has them")


def in_shell(folder: Path, words: str, redirection: str = "", before: str = "") -> tuple[int, str, str]:
    """`orbit-lsp WORDS` in `folder`, through a shell for the redirection: (exit code, stdout, stderr)."""
    done = subprocess.run(
        f"{before} '{sys.executable}' -P -m orbit_lsp {words} {redirection}",
        shell=True,
        cwd=folder,
        capture_output=True,
        timeout=600,
        check=False,
        env={**os.environ, "XDG_CACHE_HOME": str(folder / ".cache")},
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "loop.cu").symlink_to("loop.cu")
    (tmp_path / "folder.cu").mkdir()
    os.mkfifo(tmp_path / "pipe.cu")
    (tmp_path / "k.cu").write_text("__global__ void k() {}\n")
    Path(os.fsdecode(bytes(tmp_path) + b"/\xff.cu")).write_text("")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("absent.cu", "there is no file absent.cu"),
        ("k.txt", "k.txt is not a .cu, .cuh or .py file"),
        ("folder.cu", "folder.cu cannot be read: it is a folder, not a regular file"),
        ("pipe.cu", "pipe.cu cannot be read: it is a FIFO, not a regular file"),
        ("\udcff.cu", "\\udcff.cu: the path is not valid UTF-8, which a job's path has to be"),
    ],
)
def test_a_file_that_cannot_be_used(folder: Path, name: str, message: str) -> None:
    assert orbit(folder, "compile", name) == (64, "", f"orbit-lsp: error: {message}\n")


def test_an_argument_that_is_not_utf8(folder: Path) -> None:
    code, out, message = in_shell(folder, "run k.cu -- $(printf '\\377')")
    assert (code, out) == (64, "")
    assert message.startswith("orbit-lsp: error: orbit setting `arguments` holds ")


def test_a_link_to_itself(folder: Path) -> None:
    code, out, message = orbit(folder, "compile", "loop.cu")
    assert (code, out) == (64, "")
    assert message.startswith("orbit-lsp: error: loop.cu cannot be read: ")
    assert message.count("\n") == 1


def test_at_a_terminal_orbit_lsp_alone_prints_its_help(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdin", Terminal())
    with pytest.raises(SystemExit) as end:
        cli_main.main([])
    assert end.value.code == 0
    assert capsys.readouterr().out.startswith("usage: orbit-lsp")


@pytest.mark.parametrize(
    ("words", "redirection", "code", "message"),
    [
        ("settings", ">/dev/full", 5, "orbit-lsp: error: No space left on device\n"),
        ("schema", "| true", 0, ""),
        ("settings", ">&-", 0, ""),
        ("show k.py", "<&- 2>&-", 0, ""),
        ("serve", "<&-", 0, ""),
    ],
)
def test_streams_that_are_not_there(
    folder: Path, words: str, redirection: str, code: int, message: str
) -> None:
    (folder / "k.py").write_text("pass\n")
    result, _, err = in_shell(folder, words, redirection)
    assert (result, err) == (code, message)


def test_a_current_folder_that_is_gone(folder: Path) -> None:
    (folder / "k.py").write_text("pass\n")
    (folder / "gone").mkdir()
    before = "cd gone && rmdir ../gone &&"
    assert in_shell(folder, f"show '{folder}/k.py'", before=before) == (0, "1 pass\n", "")


@needs_nvcc
def test_an_error_where_the_current_folder_is_gone(folder: Path) -> None:
    (folder / "t.cu").write_text("int x = wrong;\n")
    (folder / "gone").mkdir()
    code, out, _ = in_shell(folder, f"compile '{folder}/t.cu'", before="cd gone && rmdir ../gone &&")
    assert (code, out) == (1, f'{folder}/t.cu:1:9: error: identifier "wrong" is undefined [nvcc]\n')


@pytest.mark.parametrize("here", ["elsewhere", ".", "attn/tests", "/"])
def test_the_project_is_that_of_the_file(folder: Path, here: str) -> None:
    own = folder / "attn" / ".venv" / "bin" / "python"
    for made in (own.parent, folder / "elsewhere", folder / "attn" / "tests"):
        made.mkdir(parents=True)
    own.symlink_to(sys.executable)
    (folder / "attn" / "pyproject.toml").touch()
    (folder / "attn" / "ops.py").write_text("import triton\n\n\n@triton.jit\ndef k(x):\n    pass\n")
    name = os.path.relpath(folder / "attn" / "ops.py", folder / here)
    place = {"XDG_CACHE_HOME": str(folder / ".cache")}
    said = orbit(folder / here, "show", name, environment=place)[2]
    assert f"{own} is not started, because the folder is not trusted" in said


def test_a_kernel_that_nothing_launches_is_not_run(folder: Path) -> None:
    why = "nothing launches k: k.cu has no main and no launch spec; `orbit-lsp draft k.cu` prints a launch spec to put above it"
    assert orbit(folder, "run", "k.cu") == (64, "", f"orbit-lsp: error: {why}\n")
    (folder / "m.cu").write_text('#include "main.h"\n__global__ void k() {}\n')
    assert why.replace("k.cu", "m.cu") not in orbit(folder, "run", "m.cu")[2]  # the header may have one


def test_show_of_a_folder_lists_its_kernels_with_their_lenses(folder: Path) -> None:
    (folder / "src").mkdir()
    (folder / "src" / "p.cu").write_text("\n__global__ void scale() {}\nint main() { scale<<<1, 1>>>(); }\n")
    (folder / "src" / "empty.cu").write_text("int x;\n")
    lines = orbit(folder, "show", ".")[1].splitlines()
    assert [line.partition("   ")[0] for line in lines] == ["k.cu", "  1: k", "src/p.cu", "  2: scale"]
    assert lines[1].endswith("✎ Draft a launch spec: this file has no main")
    assert "▶ Run" in lines[3]
    (folder / "none").mkdir()
    assert orbit(folder, "show", "none") == (64, "", "orbit-lsp: error: none has no kernels\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("compile k.cu --bogus", "unknown option '--bogus'"),
        ("compile k.cu --gup L4", "unknown option '--gup'; did you mean --gpu?"),
        ("modal deploy", "there is no Modal token on this machine"),
        ("rnu k.cu", "unknown command 'rnu'; did you mean run?"),
    ],
)
def test_what_is_wrong_is_the_first_line(folder: Path, words: str, said: str) -> None:
    line = orbit(folder, *words.split(), environment={"HOME": str(folder)})[2].splitlines()[0]
    assert line.removeprefix("orbit-lsp: error: ").removeprefix("✗ ") == said


@pytest.mark.parametrize("columns", [60, 100])
def test_help_fits_the_terminal_and_examples_stay_whole(folder: Path, columns: int) -> None:
    for words in (["help"], ["help", "compare"]):
        code, out, _ = orbit(folder, *words, environment={"COLUMNS": str(columns)})
        lines = [line for line in out.splitlines() if not line.startswith("  orbit-lsp")]
        assert code == 0
        assert max(map(len, lines)) <= columns
        assert "  orbit-lsp compare k.cu --with HEAD~1" in out.splitlines()
    assert orbit(folder, "help", "compare") == orbit(folder, "compare", "--help")


def test_show_of_a_folder_is_of_that_folder_wherever_it_is_asked(folder: Path) -> None:
    for made in (folder / "src" / "deep", folder / "elsewhere"):
        made.mkdir(parents=True)
    (folder / "elsewhere" / "other.cu").write_text("__global__ void other() {}\n")
    (folder / "src" / "p.cu").write_text("__global__ void scale() {}\n")
    for here, typed in {
        ".": "src/p.cu",
        "src": "p.cu",
        "elsewhere": f"{folder}/src/p.cu",
        "src/deep": f"{folder}/src/p.cu",
    }.items():
        name = os.path.relpath(folder / "src", folder / here)
        assert orbit(folder / here, "show", name)[1].splitlines()[0] == typed
        assert "other" not in orbit(folder / here, "show", name)[1]


def test_trust_that_cannot_be_written_down(folder: Path) -> None:
    (folder / "state").touch()
    code, out, said = orbit(folder, "trust", environment={"XDG_STATE_HOME": str(folder / "state")})
    assert (code, out) == (5, "")
    assert said.startswith("orbit-lsp: error: the list of trusted folders, ")
    assert said.endswith("cannot be written: Not a directory; set XDG_STATE_HOME to a folder of your own\n")
    assert orbit(folder, "trust", "none")[0::2] == (64, f"orbit-lsp: there is no folder {folder}/none\n")


def test_show_names_a_syntax_error(folder: Path) -> None:
    (folder / "k.py").write_text("import triton\n\n\n@triton.jit\ndef k(x):\n    y = (x\n")
    assert "SyntaxError: '(' was never closed" in orbit(folder, "show", "k.py")[1]


def test_no_worker_is_in_the_json_and_in_the_text(folder: Path) -> None:
    code, out, message = orbit(folder, "doctor", "--json", "--python", "./absent")
    assert code == 5
    assert json.loads(out)["failure"]["message"] == f"{folder}/absent cannot be started as a worker"
    assert f"{folder}/absent cannot be started" in message


def test_doctor_ends_alike_in_text_and_json(folder: Path) -> None:
    codes = [orbit(folder, "doctor", "--nvcc", "/bin/false", *words)[0] for words in ([], ["--json"])]
    assert codes == [5, 5]


def test_what_is_wrong_is_said_once(folder: Path) -> None:
    code, out, message = orbit(folder, "compile", "k.cu", "--python", "./absent")
    assert (code, out) == (5, "")
    assert message.count("cannot be started") == 1
    state = folder / "state" / "orbit-lsp"
    state.mkdir(parents=True)
    (state / "history.sqlite").write_bytes(b"no database" * 1000)
    code, _, message = orbit(folder, "history", "k.cu", environment={"XDG_STATE_HOME": f"{folder}/state"})
    assert (code, message.count("\n")) == (0, 1)
    assert message.startswith(
        "orbit-lsp: warning: the history of kernels was damaged (file is not a database)"
    )


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_json_is_utf8_whatever_the_terminal_is(folder: Path, encoding: str) -> None:
    (folder / "µ核.cu").write_text("")
    code, out, _ = orbit(folder, "history", "µ核.cu", "--json", encoding=encoding)
    assert (code, json.loads(out)["file"]) == (0, f"{folder}/µ核.cu")


def test_a_limit_that_is_none(folder: Path) -> None:
    message = "orbit-lsp: error: orbit setting `run_timeout_s`: 0 is not more than 0\n"
    assert orbit(folder, "run", "k.cu", "--timeout", "0") == (64, "", message)
    message = "orbit-lsp: error: orbit setting `build_timeout_s`: 0 is not more than 0\n"
    assert orbit(folder, "run", "k.cu", "--build-timeout", "0") == (64, "", message)


def test_cancelled_before_it_began(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(options: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli_main, "_obey", interrupted)
    assert cli_main.main(["run", "k.cu"]) == 130
    assert capsys.readouterr().err == "orbit-lsp: cancelled\n"


def test_an_error_in_the_log_is_a_sentence_without_a_stack(capsys: pytest.CaptureFixture[str]) -> None:
    with cli_main.log_sentences():
        logging.getLogger("orbit.x").warning("said elsewhere")
        try:
            int("1x")
        except ValueError:
            logging.getLogger("orbit.x").exception("it failed\nin detail")
    assert capsys.readouterr().err == (
        "orbit-lsp: error: it failed (ValueError: invalid literal for int() with base 10: '1x')\n"
    )


def test_a_command_leaves_its_process_as_it_was(folder: Path) -> None:
    def state() -> tuple[object, ...]:
        streams = sys.stdin, sys.stdout, sys.stderr
        return logging.getLogger().handlers[:], signal.getsignal(signal.SIGINT), streams, Path.cwd()

    before = state()
    assert orbit(folder, "compile", "absent.cu")[0] == 64
    assert orbit(folder, "no-such-command")[0] == 64
    assert state() == before


@needs_nvcc
def test_the_doctor_says_what_works_without_torch(folder: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "bare"], cwd=folder, check=True)
    no_token = {"MODAL_TOKEN_ID": "", "MODAL_CONFIG_PATH": "absent"}
    code, out, message = orbit(folder, "doctor", "--python", "bare/bin/python", environment=no_token)
    assert (code, message) == (0, "")
    assert "works now\n  ✓ CUDA files: compiler errors, registers, occupancy\n" in out
    assert (
        f"  ✗ Triton files (.cu files need no torch on this machine): {folder}/bare/bin/python has no torch"
        in out
    )


def test_the_budget_is_that_of_the_variable_and_its_default_that_of_the_setting(folder: Path) -> None:
    nothing = {"MODAL_TOKEN_ID": "", "MODAL_CONFIG_PATH": "absent"}
    out = orbit(folder, "modal", "status", environment=nothing | {"ORBIT_BUDGET_USD": "50"})[1]
    assert "The budget is $50.00 a month: ORBIT_BUDGET_USD or run's --budget" in out
    assert orbit(folder, "modal", "status", environment={"ORBIT_BUDGET_USD": "much"})[0] == 64
    assert command_options.BUDGET.endswith(f"default: {Settings().modal.budget_usd:g}")


def test_a_program_named_from_the_current_folder(folder: Path) -> None:
    (folder / "nvcc").write_text("#!/bin/sh\necho no compiler; exit 3\n")
    (folder / "nvcc").chmod(0o755)
    code, out, _ = orbit(folder, "compile", "--json", "--nvcc", "./nvcc", "k.cu")
    assert code == 5
    assert (
        json.loads(out)["failure"]["message"] == f"{folder}/nvcc --version failed with status 3: no compiler"
    )


TEMPLATE = "template <int N> __global__ void t(int* x) { *x = N; }\n"


@needs_nvcc
@pytest.mark.parametrize(
    ("launches", "message"),
    [
        ("t<1><<<1, 1>>>(0); t<2><<<1, 1>>>(0);", "ok: 2 kernels compiled for sm_90a\n"),
        ("", "instantiates it or a launch spec launches it\nno kernel was compiled\n"),
    ],
)
def test_a_compile_ends_with_what_was_compiled(folder: Path, launches: str, message: str) -> None:
    (folder / "k.cu").write_text(f"{TEMPLATE}int main() {{ {launches} }}\n")
    code, _, end = orbit(folder, "compile", "--gpu", "H100", "k.cu")
    assert code == 0
    assert end.endswith(message)


@needs_nvcc
def test_a_build_that_exceeds_the_limit_of_the_command_line(folder: Path) -> None:
    code, _, message = orbit(folder, "compile", "k.cu", "--build-timeout", "0.001")
    assert (code, "took longer than the limit of 0.001 s [timed out]\n" in message) == (4, True), message
    assert "raise the setting `orbit.build_timeout_s` (option --build-timeout)" in message


@needs_nvcc
def test_a_template_is_compiled_as_its_launch_spec_launches_it(folder: Path) -> None:
    (folder / "t.cu").write_text(
        "namespace ns {\n"
        "// orbit: T = sweep(2, 4); x = randn(256)\n"
        "// orbit: launch k<T><<<1, 256>>>(x)\n"
        "template <int T> __global__ void k(float* x) { x[threadIdx.x] *= T; }\n"
        "}\n"
    )
    code, out, message = orbit(folder, "compile", "t.cu", "--json")
    finished = json.loads(out)
    assert (code, finished["problems"]) == (0, []), message
    assert sorted(item["name"] for item in finished["resources"]) == ["ns::k<2>", "ns::k<4>"]


@needs_nvcc
def test_a_mistake_in_an_instance_is_told_at_its_line_and_one_that_cannot_be_made_at_its_launch(
    folder: Path,
) -> None:
    spec = "// orbit: x = randn(256)\n// orbit: launch k<{}><<<1, 256>>>(x)\n"
    kernel = (
        'template <typename T> __global__ void k(T* x) { static_assert(sizeof(T) == 8, "doubles only"); }\n'
    )
    (folder / "t.cu").write_text(spec.format("float") + kernel)
    code, out, _ = orbit(folder, "compile", "t.cu")
    assert (code, 't.cu:3:49: error: static assertion failed with "doubles only" [nvcc]' in out) == (1, True)
    (folder / "t.cu").write_text(spec.format("float") + "template <int T> __global__ void k(float* x) {}\n")
    code, out, _ = orbit(folder, "compile", "t.cu")
    assert (code, out.startswith("t.cu:2:18: error: ")) == (1, True)
    (folder / "elsewhere").mkdir()
    assert orbit(folder / "elsewhere", "compile", "../t.cu")[1].startswith(f"{folder}/t.cu:2:18: error: ")


@needs_nvcc
def test_json_has_the_problems_of_the_text_and_nothing_is_printed_twice(folder: Path) -> None:
    (folder / "two.cu").write_text(
        "#include <cstdio>\n__global__ void k(int* x) {\n  int unused;\n  x[0] = nowhere;\n  x[1] = elsewhere;\n}\n"
        "// orbit: x = nothing(3)\n// orbit: launch l<<<1, 1>>>(x)\n__global__ void l(int* x) {}\n"
    )
    code, out, message = orbit(folder, "compile", "two.cu")
    shown = [
        line.partition(": ")[0].rpartition("/")[2]
        for line in out.splitlines()
        if " error: " in line or " warning: " in line
    ]
    assert (code, len(shown) >= 4) == (1, True)
    assert message.splitlines()[-1] == "orbit-lsp: error: two.cu does not compile (2 errors) [compile error]"
    code, out, _ = orbit(folder, "compile", "two.cu", "--json")
    places = [problem["place"] for problem in json.loads(out)["problems"]]
    assert (code, [f"two.cu:{problem['line']}:{problem['column']}" for problem in places]) == (1, shown)


@needs_nvcc
@pytest.mark.parametrize("words", ["compile", "disassemble", "debug-compile --output made"])
def test_an_error_is_printed_once(folder: Path, words: str) -> None:
    (folder / "t.cu").write_text("__global__ void k(int* x) { x[0] = wrong; }\n")
    command, *more = words.split()
    code, out, message = orbit(folder, command, "t.cu", *more)
    assert (code, (out + message).count("is undefined")) == (1, 1)
    assert message.splitlines()[-1] == "orbit-lsp: error: t.cu does not compile (1 error) [compile error]"


@needs_nvcc
def test_disassemble_has_every_problem_in_its_json(folder: Path) -> None:
    (folder / "t.cu").write_text("__global__ void k(int* x) { int unused; x[0] = wrong; }\n")
    code, out, _ = orbit(folder, "disassemble", "t.cu", "--json")
    answer = json.loads(out)
    assert (code, answer["failure"]["category"]) == (1, "compile error")
    assert sorted(problem["severity"] for problem in answer["problems"]) == ["error", "warning"]


@needs_nvcc
def test_a_gpu_may_be_named_as_its_owner_does(folder: Path) -> None:
    """tests/test_gpu_names.py has the names."""
    code, out, message = orbit(folder, "compile", "k.cu", "--gpu", "NVIDIA GeForce RTX 4090")
    assert (code, message.splitlines()[-1]) == (0, "ok: 1 kernel compiled for sm_89")
    assert "hover" not in out


@needs_nvcc
def test_a_named_gpu_is_compiled_for_on_a_machine_with_another(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placement.RunSetup, "own_gpu", lambda _: DEVICE)
    for words, architecture in (("", "sm_90a"), ("--gpu L4", "sm_89"), ("--gpu B200:2", "sm_100a")):
        _, _, errors = orbit(folder, "compile", "k.cu", *words.split())
        assert errors.splitlines()[-1] == f"ok: 1 kernel compiled for {architecture}"


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ("report k.cu --json", 64, "no profile of k.cu is kept"),
        ("compile absent.cu --json", 64, "there is no file absent.cu"),
        ("run k.cu --json --kernel kk", 64, "there is no kernel kk in this file; it has: k; did you mean k?"),
        ("run k.cu --json --kernel l", 64, "there is no kernel l in this file; it has: k"),
        ("compile k.cu --json --gpu X1000", 64, "'X1000' is not a known GPU"),
        ("history absent.cu --json", 64, "there is no file absent.cu"),
        ("modal status --json", 5, "there is no Modal token on this machine"),
        ("compile --json", 64, "orbit-lsp compile needs FILE"),
        ("compile k.cu --jsn --json", 64, "unknown option '--jsn'; did you mean --json?"),
        ("compil k.cu --json", 64, "unknown command 'compil'; did you mean compile?"),
        ("explain xyzzy --json", 64, "'xyzzy' is not a word that can be explained"),
        ("compare k.cu --with-gpu X1000 --json", 64, "'X1000' is not one of the GPUs on Modal"),
        ("run k.cu --json --gpu X1000", 64, "--gpu: 'X1000' is not one of the GPUs on Modal: T4, L4, A10, "),
        (
            "run k.cu --json --gpu L40 --runner modal",
            64,
            "--gpu: 'L40' is not one of the GPUs on Modal: T4, ",
        ),
        (
            "check k.cu --json --gpu H100:9",
            64,
            "--gpu: 'H100:9' is not rented: a container has 1 to 8 H100, ",
        ),
        (
            "profile k.cu --json --gpu A10:8 --runner modal",
            64,
            "--gpu: 'A10:8' is not rented: a container has 1 to 4 A10, ",
        ),
        ("exec k.cu --json --on L40", 64, "--on: 'L40' is not one of the GPUs on Modal: T4, "),
    ],
)
def test_a_failure_is_in_the_json_and_in_the_text(folder: Path, words: str, code: int, message: str) -> None:
    nowhere = {"HOME": str(folder), "MODAL_CONFIG_PATH": str(folder / "none.toml")}
    ended, out, text = orbit(folder, *words.split(), environment=nowhere)
    assert ended == code
    assert json.loads(out)["failure"]["message"].startswith(message)
    assert message in text


def test_a_comparison_with_a_kernel_that_is_not_there_is_a_mistake_of_the_command_line(folder: Path) -> None:
    assert orbit(folder, "compare", "k.cu", "--with-kernel", "l") == (
        64,
        "",
        "orbit-lsp: error: there is no kernel l in this file; it has: k\n",
    )


def test_a_gpu_that_nobody_knows(folder: Path) -> None:
    code, _, message = orbit(folder, "compile", "k.cu", "--gpu", "X1000")
    assert (code, message) == (
        64,
        "orbit-lsp: error: 'X1000' is not a known GPU; give its architecture, as in --gpu sm_89\n",
    )


def test_drafts_of_a_file(folder: Path) -> None:
    (folder / "k.py").write_text(
        "import torch, triton\n\n@triton.jit\ndef k(x_ptr, n):\n    pass\n\n\n"
        "def main():\n    x = torch.ones(64)\n    k[(1,)](x, 64)\n"
    )
    assert orbit(folder, "draft", "k.py")[:2] == (
        0,
        "# orbit: x = torch.ones(64)\n# orbit: launch k[(1,)](x, 64)\n@triton.jit\n\n",
    )
    code, out, _ = orbit(folder, "draft", "k.py", "--json", "--kernel", "k")
    assert (code, [load["kernel"] for load in json.loads(out)]) == (0, ["k"])


@needs_nvcc
def test_a_header_is_compiled_through_the_source_that_includes_it(folder: Path) -> None:
    (folder / "include" / "project").mkdir(parents=True)
    (folder / "src").mkdir()
    (folder / "include/project/scale.hpp").write_text(
        "#pragma once\ntemplate <class T> __global__ void scale(T* x, Real by) {\n  x[threadIdx.x] *= by;\n}\n"
    )
    (folder / "include/project/all.h").write_text('#include "scale.hpp"\n')
    (folder / "src/main.cu").write_text(
        'using Real = float;\n#include "../include/project/all.h"\ntemplate __global__ void scale(double*, Real);\n'
    )
    code, out, message = orbit(folder, "compile", "--gpu", "H100", "include/project/scale.hpp")
    assert (code, message.splitlines()[-1]) == (0, "ok: 1 kernel compiled for sm_90a")
    assert "scale<double>" in out
    assert orbit(folder, "compile", "include/project/all.h")[2] == (
        "orbit-lsp: error: include/project/all.h is a header without a kernel\n"
    )


TESTED = (
    "#pragma once\n#include <lib/config.hpp>\ntemplate <class T> __global__ void scale(T* x) {\n"
    "  x[threadIdx.x] *= 2;\n}\n"
)
BY_MACRO = (
    '#pragma once\n#include "config.hpp"\nLIB_KERNEL static void negate(float* x) { x[threadIdx.x] *= -1; }\n'
)


@pytest.fixture
def header_library(folder: Path) -> Path:
    """Of headers alone: tests instantiate its kernels, of which one carries a macro of the library."""
    for name, text in {
        "include/lib/config.hpp": "#pragma once\n#define LIB_KERNEL __global__\n",
        "include/lib/scale.cuh": TESTED,
        "include/lib/negate.hpp": BY_MACRO,
        "include/lib/unused.cuh": TESTED.replace("scale", "unused"),
        "tests/all.cu": "#include <lib/negate.hpp>\n#include <lib/scale.cuh>\n#include <lib/unused.cuh>\n"
        "int main() { scale<<<1, 64>>>((float*)0); scale<<<1, 64>>>((double*)0); negate<<<1, 64>>>(0); }\n",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@needs_nvcc
@pytest.mark.parametrize(
    ("name", "shown", "count"),
    [("scale.cuh", "scale<double>", 2), pytest.param("negate.hpp", "negate", 1, marks=pytest.mark.slow)],
)
def test_a_header_of_templates_and_one_whose_macro_names_kernels_are_compiled_through_a_test(
    header_library: Path, name: str, shown: str, count: int
) -> None:
    code, out, message = orbit(header_library, "compile", "--gpu", "H100", f"include/lib/{name}")
    assert (code, f"{shown}, compiled for sm_90a" in out, out.count("registers per thread")) == (
        0,
        True,
        count,
    )
    assert "note: compiled through tests/all.cu, which includes it\n" in message
    assert f", {3 - count} of them in headers that are not shown" in message
    assert "  through" in out
    assert "regs" in orbit(header_library, "show", "--gpu", "H100", f"include/lib/{name}")[1]


@needs_nvcc
def test_a_test_without_kernels_shows_those_of_the_projects_headers_that_it_instantiates(
    header_library: Path,
) -> None:
    code, out, message = orbit(header_library, "compile", "--gpu", "H100", "tests/all.cu")
    assert (code, message.splitlines()[-1]) == (0, "ok: 3 kernels compiled for sm_90a")
    assert [line for line in out.splitlines() if line.startswith("in ")] == [
        "in include/lib/scale.cuh:3:",
        "in include/lib/negate.hpp:3:",
    ]
    assert "scale<double>, compiled for sm_90a" in out
    shown = orbit(header_library, "show", "--gpu", "H100", "tests/all.cu")[2].splitlines()
    assert shown[-1].startswith("note: with it, include/lib/negate.hpp:3 is compiled: negate   occ ")


@needs_nvcc
def test_a_template_that_the_including_file_does_not_instantiate_is_said_with_that_file(
    header_library: Path,
) -> None:
    assert (
        "not compiled: a template is compiled only if all.cu instantiates it"
        in (orbit(header_library, "compile", "--gpu", "H100", "include/lib/unused.cuh")[2])
    )


SPILLS = """\
template <int N> __global__ void never(float* y) { y[0] = N; }
template <int N> __global__ void once(float* y) { y[0] = N; }
template __global__ void once<2>(float*);
__global__ void __launch_bounds__(1024, 2) spills(float* y) {
  float a[128];
#pragma unroll
  for (int i = 0; i < 128; i++) a[i] = y[i * 1024 + threadIdx.x];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 128; i++) y[i * 1024 + threadIdx.x] = a[127 - i] * a[i];
}
"""


@needs_nvcc
def test_compile_and_show_have_the_warnings_of_an_editor(folder: Path) -> None:
    (folder / "k.cu").write_text(SPILLS)
    spills = "registers spill to local memory: "
    template = "note: never: not compiled: a template is compiled only if k.cu instantiates it or a launch spec launches it"
    for command, beginning in (("compile", "note: spills: "), ("show", "warning orbit register-spills: ")):
        _, out, errors = orbit(folder, command, "--gpu", "H100", "k.cu")
        assert beginning + spills in out + errors
        assert template in errors.splitlines()
        assert "once: not compiled" not in errors


INLINE = """\
import cupy as cp

saxpy = cp.RawKernel(r'''
extern "C" __global__
void saxpy(float a, const float* x, float* y) {
  y[threadIdx.x] += a * x[threadIdx.x];
}
''', "saxpy")
"""


@needs_nvcc
def test_cuda_in_a_string_has_figures_and_errors_at_its_lines_and_nothing_is_imported(folder: Path) -> None:
    (folder / "inline.py").write_text(INLINE)
    code, out, message = orbit(folder, "compile", "--gpu", "H100", "inline.py")
    assert (code, message.splitlines()[-1]) == (0, "ok: 1 kernel compiled for sm_90a")
    assert "saxpy, compiled for sm_90a\n  registers per thread" in out
    assert "[ptxas]" in out
    shown = orbit(folder, "show", "--gpu", "H100", "inline.py")[1].splitlines()
    assert " regs" in next(line for line in shown if "void saxpy" in line)
    assert "edited since" not in "".join(shown)
    assert orbit(folder, "doctor", "inline.py")[1].startswith("inline.py is compiled with no flags,")
    assert ".visible .entry saxpy(" in orbit(folder, "disassemble", "inline.py", "--level", "ptx")[1]
    (folder / "inline.py").write_text(INLINE.replace("+=", "+= wrong *"))
    code, out, message = orbit(folder, "compile", "inline.py")
    assert (code, out) == (1, 'inline.py:6:21: error: identifier "wrong" is undefined [nvcc]\n')
    assert "orbit-lsp: error: inline.py does not compile (1 error) [compile error]" in message


@needs_nvcc
def test_an_extensions_own_headers_are_left_out_if_it_says_so(folder: Path) -> None:
    (folder / "e.py").write_text(
        "from torch.utils.cpp_extension import load_inline\n"
        "load_inline(name='e', cpp_sources='', cuda_sources='__global__ void k(float* x) { *x = N; }',\n"
        "            no_implicit_headers=True, extra_cuda_cflags=['-DN=4'])\n"
    )
    assert orbit(folder, "compile", "--gpu", "H100", "e.py")[2].endswith("ok: 1 kernel compiled for sm_90a\n")


@pytest.mark.parametrize("command", ["compile", "doctor", "show"])
def test_cuda_that_a_program_puts_together_has_one_sentence_everywhere(folder: Path, command: str) -> None:
    (folder / "made.py").write_text(INLINE.replace("r'''", "HEAD + r'''"))
    assert orbit(folder, command, "made.py")[2].partition(": ")[2].removeprefix("error: ") == (
        "saxpy: compiled only while the program runs, because its text is put together there; "
        "Run, or `orbit-lsp run made.py`, measures it\n"
    )


def test_show_says_why_a_triton_kernel_has_no_figures(folder: Path) -> None:
    (folder / "t.py").write_text("import triton\n\n@triton.jit\ndef k(x):\n    pass\n")
    code, _, message = orbit(folder, "show", "t.py")
    assert code == 0
    assert (
        "note: show has no figures and no compiler errors of Triton kernels, because compiling them imports the file. They are printed by"
        in message
    )


def test_a_remedy_names_the_option_where_an_editor_names_the_setting() -> None:
    for said, typed in {
        '; set nvcc_flags = ["-rdc=true"]': "; add --flag=-rdc=true",
        ' Set nvcc_flags = ["--a"].': " Add --flag=--a.",
        'or name its folder: nvcc_flags = ["-I<folder>"]': "or name its folder: --flag=-I<folder>",
        'set nvcc_flags = ["-UA", "-UB"]': "add --flag=-UA --flag=-UB",
    }.items():
        assert terminal_text.with_options(said) == typed
