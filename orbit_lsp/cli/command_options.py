"""The options of each command, and the environment variables that replace them."""

from __future__ import annotations

import argparse
import os
from typing import Any, Protocol

from orbit_lsp.state import ssh_hosts

FILE = "a .cu, .cuh or .py file"
LIMITS = {"smoke": 180.0, "candidate": 600.0, "final": 1500.0}
"""Of `exec`, in seconds."""
PYTHON = (
    "Python that has your torch and triton, with ssh:HOST the host's, as in --python '~/venv/bin/python'; default: the "
    "project's environment, if you trust it (`orbit-lsp doctor` shows which), on a host python3"
)
NVCC = "CUDA compiler, with ssh:HOST the host's; default: that of CUDA_HOME, PATH or the PyPI wheels"
TRUST = (
    "trust the project for this command: use its Python, and the compilers and flags that its build files name, which can "
    "run any code; without it, only folders of `orbit-lsp trust` are trusted"
)
SCHEMAS = (
    "finished", "compared", "gate", "history", "worker", "reviewer", "loop", "drafts", "drivers", "trace", "disassembly", "bundle", "submission",
    "explanations", "machine", "compilation", "jobs", "job", "pruned", "kernels", "kernel", "sessions", "ended", "stopped",
    "modal", "failure",
)  # fmt: skip
SCHEMA_OF = {
    "run": "finished", "exec": "finished", "compile": "finished", "profile": "finished", "check": "finished", "show": "finished",
    "report": "finished", "compare": "compared", "draft": "drafts", "disassemble": "disassembly", "debug-compile": "bundle",
    "submit": "submission", "explain": "explanations", "doctor": "machine", "stop": "stopped",
}  # fmt: skip
"""Command -> the schema of its output, where that has another name."""
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
NO_EFFECT = "no effect"
"""The text of an option that changes nothing: a command takes it so that scripts can give all commands the same options."""
WHERE = "where it runs, and how it is compiled"
"""The title, in the help, of the options that commands share; a command's own come before."""


class OptionHolder(Protocol):
    """A parser, or a group of one, that takes options. argparse has no public name for a group."""

    def add_argument(self, *names: str, **how: Any) -> argparse.Action: ...


def option(parser: OptionHolder, name: str, text: str, env: str = "", **how: Any) -> None:
    """Add an option. `env` is the variable that gives its value if the option is absent. An option of NO_EFFECT is
    not in the help.
    """
    if env:
        value = os.environ.get(env, "").strip()
        relative = how.get("metavar") == "PATH" and bool(os.path.dirname(value)) and not os.path.isabs(value)  # noqa: PTH120, PTH117
        how["default"] = None if relative else value or None  # a relative path is another file in each folder
        text += f" [env: {env}]" if text != NO_EFFECT else ""
    parser.add_argument(name, help=argparse.SUPPRESS if text == NO_EFFECT else text, **how)


def file_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help=FILE)


def json_option(parser: argparse.ArgumentParser) -> None:
    option(parser, "--json", "print the result as JSON", action="store_true")


def stop(parser: argparse.ArgumentParser) -> None:
    option(parser, "--yes", "do not ask", action="store_true")
    option(
        parser,
        "--all",
        "also end the workers that other installations of orbit-lsp have started for you",
        action="store_true",
        dest="every",
    )
    option(
        parser, "--on", "stop what runs on a machine of your own instead, as in --on ssh:gpu1, and remove orbit-lsp's files there",
        metavar="HOST",
    )  # fmt: skip
    json_option(parser)


def sessions_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what",
        nargs="?",
        choices=("list", "end"),
        default="list",
        help="list (the default): notebook kernels and rented GPUs; end: end the kernel ID, or all of them",
    )
    parser.add_argument("name", nargs="?", metavar="ID|all", help="the kernel to end, as list prints it")
    json_option(parser)


def program_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "arguments", nargs="*", default=[], metavar="ARGS", help="after --: the program's own arguments"
    )


RENTED = "GPU to rent, if kernels run on Modal; default: H100"
COMPILED_FOR = "GPU to compile for; default: this machine's, else H100"
RUNNERS = (
    "local (this machine's GPU), modal (a rented GPU), ssh:HOST (a machine of your own) or auto; default: auto, which is modal if this machine has a token for "
    "Modal and no GPU, else local"
)
BUILD_LIMIT = "time limit of a build, or of the import of a Triton file, in seconds; default: 120"
BUDGET = "the most that rented GPUs may cost in this calendar month, in dollars; a run that may exceed it is refused; default: 10"


def engine_options(
    parser: argparse.ArgumentParser,
    gpu: str = RENTED,
    timeout: str = "time limit of a run, in seconds, builds not included; default: 60",
    *,
    runs: bool = True,
    nvcc: str = NVCC,
    flag: str = "a flag for nvcc, as in --flag=-DN=4; repeat it for several",
    build: str = BUILD_LIMIT,
    budget: str = BUDGET,
) -> None:
    """Add the options of every command that compiles or runs. `gpu`, `timeout`, `nvcc`, `flag`, `build` and `budget`
    say what these options mean for it. `runs` is False if nothing is run.
    """
    json_option(parser)
    group = parser.add_argument_group(WHERE)
    option(group, "--gpu", gpu, "ORBIT_GPU", metavar="G")
    option(
        group, "--runner",
        f"where kernels run: {RUNNERS}" if runs else "where kernels would run; with modal, the default of --gpu is H100 even if this machine has a GPU",
        "ORBIT_RUNNER", metavar="R", type=_place,
    )  # fmt: skip
    option(
        group, "--device", "index of this machine's GPU; default: 0", "ORBIT_DEVICE", type=int, metavar="N"
    )
    option(group, "--python", PYTHON, "ORBIT_PYTHON", metavar="PATH")
    option(group, "--nvcc", nvcc, "ORBIT_NVCC", metavar="PATH")
    option(
        group, "--flag", flag,
        action="append", default=[], metavar="F", dest="nvcc_flags",
    )  # fmt: skip
    option(
        group,
        "--timeout",
        timeout if runs else NO_EFFECT,
        "ORBIT_RUN_TIMEOUT_S",
        type=float,
        metavar="S",
        dest="run_timeout_s",
    )
    build_timeout_option(group, build)
    option(
        group, "--budget", f"{budget} [env: ORBIT_BUDGET_USD]" if runs else NO_EFFECT,
        type=float, metavar="USD",
    )  # fmt: skip
    option(group, "--trust", TRUST, action="store_true")
    over = "run even if the cost may exceed --budget" if runs else NO_EFFECT
    option(group, "--over-budget", over, action="store_true")


def _place(text: str) -> str:
    try:
        return ssh_hosts.place(text)
    except ValueError as mistake:
        raise argparse.ArgumentTypeError(str(mistake)) from None


def build_timeout_option(parser: OptionHolder, text: str = BUILD_LIMIT) -> None:
    option(
        parser, "--build-timeout", text, "ORBIT_BUILD_TIMEOUT_S", type=float, metavar="S", dest="build_timeout_s",
    )  # fmt: skip


def run_options(parser: argparse.ArgumentParser) -> None:
    file_argument(parser)
    option(
        parser,
        "--kernel",
        "run only this kernel; default: all",
        metavar="K",
    )
    option(
        parser,
        "--sweep",
        "print only the table of times for the values that a launch spec sweeps",
        action="store_true",
    )
    option(
        parser,
        "--on",
        "run on several GPUs at the same time: rented from Modal, or of hosts reached by ssh, as in --on H100,L4,ssh:gpu1",
        metavar="G,G",
    )
    through_option(parser)
    option(
        parser,
        "--repeat",
        "with --through: run the test or script up to 20 times, for the median of a kernel that it launches once",
        action="store_true",
    )
    engine_options(parser)
    program_arguments(parser)


def through_option(parser: argparse.ArgumentParser) -> None:
    option(
        parser,
        "--through",
        "run a kernel by a test, script or program of its project that `orbit-lsp drivers` lists; auto: the best one",
        metavar="D",
    )


def capture_options(parser: argparse.ArgumentParser) -> None:
    file_argument(parser)
    option(parser, "--kernel", "the kernel; needed if the file has several", metavar="K")
    option(
        parser,
        "--through",
        "the test, script or program that launches it, one that `orbit-lsp drivers` lists; default: the best one",
        metavar="D",
        default="auto",
    )
    option(
        parser,
        "--launch",
        "which of the kernel's launches, counted from 1; default: the first of the configuration that takes most time",
        type=_from_1,
        metavar="N",
    )
    engine_options(parser)


def _from_1(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of a launch: they are counted from 1")
    return int(text)


def exec_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file",
        metavar="FILE",
        nargs="?",
        help="a .py file or any program, also one beside the Python or on PATH; -: code from standard input",
    )
    option(parser, "-c", "Python code to run", metavar="CODE", dest="code")
    option(
        parser,
        "--on",
        "where to run: a GPU to rent from Modal, as in --on H100, ssh:HOST, or local; overrides --runner and --gpu",
        metavar="G",
    )
    option(
        parser, "--mount", "folder that is copied, without hidden files and those that .gitignore or .orbitignore excludes; the program runs in the copy; default: the current folder",
        metavar="DIR",
    )  # fmt: skip
    option(
        parser, "--bring", "files to bring back from the copy, as in --bring 'out/**'; repeat it for several",
        action="append", default=[], metavar="PATTERN",
    )  # fmt: skip
    option(
        parser,
        "--in-place",
        "run in the folder itself, not in a copy; on this machine only",
        action="store_true",
    )
    option(
        parser, "--env", "one more environment variable that the program gets, NAME or NAME=VALUE; repeat it for several",
        action="append", default=[], metavar="NAME", dest="variables",
    )  # fmt: skip
    option(
        parser, "--limit", "time limit: smoke (180 s, the default), candidate (600), final (1500), or seconds", "ORBIT_RUN_TIMEOUT_S",
        type=_seconds, metavar="S", dest="run_timeout_s",
    )  # fmt: skip
    engine_options(
        parser,
        timeout="the same as --limit, in seconds",
        nvcc="CUDA compiler; exec compiles nothing, but times kernels with the CUPTI of this compiler's CUDA toolkit",
        flag=NO_EFFECT,
        build=NO_EFFECT,
        budget="needed to rent a GPU, unless --over-budget is given: the most that rented GPUs may cost in this calendar month, in dollars; a run that may exceed it is refused",
    )
    program_arguments(parser)


def trace_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a .py file")
    engine_options(parser)
    program_arguments(parser)


def _seconds(word: str) -> float:
    try:
        seconds = LIMITS.get(word) or float(word)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(
            f"{word!r:.40} is not smoke, candidate, final or a number of seconds"
        )
    return seconds


def profile_options(parser: argparse.ArgumentParser) -> None:
    file_argument(parser)
    option(parser, "--kernel", "the kernel; needed if the file has several", metavar="K")
    option(parser, "--full", "collect every section of Nsight Compute; slower", action="store_true")
    option(
        parser, "--dump", "write the compiler's output to FOLDER: Triton's IR, PTX, SASS", metavar="FOLDER"
    )
    through_option(parser)
    engine_options(parser)
    program_arguments(parser)


def report_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", nargs="?", help=f"{FILE}; may be left out with --from")
    option(
        parser, "--from", "a profile that another program made: a .ncu-rep, or a CSV page of `ncu --csv`",
        metavar="REPORT", dest="source",
    )  # fmt: skip
    option(
        parser, "--kernel", "the kernel; default: the one that was profiled last, with --from the slowest",
        metavar="K",
    )  # fmt: skip
    option(
        parser, "--python", "the Python that reads a .ncu-rep, with NVIDIA's package ncu-report", "ORBIT_PYTHON",
        metavar="PATH",
    )  # fmt: skip
    option(
        parser, "--output", "file to write; default: a new one in ~/.cache/orbit-lsp/reports", metavar="PATH"
    )
    option(parser, "--json", "print the result as JSON, and write no page", action="store_true")


def check_options(parser: argparse.ArgumentParser) -> None:
    file_argument(parser)
    option(parser, "--kernel", "the kernel to check; default: every kernel that runs", metavar="K")
    option(
        parser, "--tool", f"{', '.join(TOOLS[:-1])} or {TOOLS[-1]}; repeat it for several; default: all",
        action="append", default=[], metavar="T", dest="tools", choices=TOOLS,
    )  # fmt: skip
    through_option(parser)
    engine_options(parser, timeout="time limit of each tool, in seconds; default: 120")
    program_arguments(parser)


def compare_options(parser: argparse.ArgumentParser) -> None:
    file_argument(parser)
    option(parser, "--kernel", "the kernel; needed if the file has several", metavar="K")
    option(
        parser, "--with", "what to compare FILE with: a git revision (HEAD~1), another file, or `last`, the newest version in the "
        "history that differs from FILE; default: last",
        metavar="WHAT", dest="against",
    )  # fmt: skip
    option(parser, "--with-kernel", "compare with another kernel of FILE", metavar="K")
    option(
        parser,
        "--with-gpu",
        "compare with the same kernel on a GPU of type G, rented from Modal",
        metavar="G",
    )
    engine_options(parser)
    program_arguments(parser)


def gate_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths", nargs="*", default=[], metavar="PATH", help="files and folders whose kernels count; default: the current folder"
    )  # fmt: skip
    option(
        parser, "--base", "the git revision to compare with; default: the commit that HEAD shares with the branch of the pull request, "
        "else with main or master",
        metavar="REV",
    )  # fmt: skip
    option(parser, "--all", "compare kernels that did not change, too", action="store_true", dest="every")
    option(
        parser, "--false-alarm", "the most that a gate may be wrong when it calls any kernel slower; default: 1%%", type=_share, default=0.01,
        metavar="P",
    )  # fmt: skip
    option(
        parser, "--find", "the slow-down to look for; a kernel that is not slower by this much is not measured further; default: 2%%",
        type=_share, default=0.02, metavar="P",
    )  # fmt: skip
    option(
        parser, "--margin", "how much more time is never called slower; default: 0.5%%", type=_share, default=0.005,
        metavar="P",
    )  # fmt: skip
    option(parser, "--pairs", "the most pairs of runs of a kernel; default: 60", type=int, default=60, metavar="N")  # fmt: skip
    option(
        parser, "--limit", "time limit of the gate, in seconds; kernels that are undecided then are inconclusive", type=float, metavar="S",
    )  # fmt: skip
    option(parser, "--fail-inconclusive", "exit with 7 if the gate is inconclusive", action="store_true")
    option(parser, "--again", "measure, though there is a verdict on the same code", action="store_true")
    option(parser, "--profile", "profile both sides of slower kernels, and show what differs", action="store_true")  # fmt: skip
    option(parser, "--markdown", "write a report for a pull request; -: to standard output", metavar="FILE")
    option(parser, "--junit", "write the result as JUnit's XML", metavar="FILE")
    option(parser, "--sarif", "write the result as SARIF, at the kernels' lines", metavar="FILE")
    option(
        parser,
        "--history",
        "write the earlier gates of this repository as a page (HTML), and run none",
        metavar="FILE",
    )
    engine_options(parser)


def _share(word: str) -> float:
    """Read a share such as `1%` or `0.01`."""
    try:
        value = float(word.removesuffix("%")) / (100 if word.endswith("%") else 1)
    except ValueError:
        value = 0.0
    if not 0 < value <= 0.5:
        raise argparse.ArgumentTypeError(f"{word!r:.40} is not a share such as 1% or 0.01, of at most 50%")
    return value


def history_options(parser: argparse.ArgumentParser) -> None:
    file_argument(parser)
    option(parser, "--kernel", "only this kernel", metavar="K")
    option(
        parser, "--text", "print the whole file as it was in version N of the kernel", metavar="N", type=int
    )
    json_option(parser)


def compile_options(parser: argparse.ArgumentParser) -> None:
    file_argument(parser)
    engine_options(parser, COMPILED_FOR, runs=False)


def disassemble_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", metavar="FILE", help=f"{FILE}, or compiled code: .cubin, .fatbin, .o, .so, .ncu-rep"
    )
    option(parser, "--kernel", "the kernel; needed if a source file has several", metavar="K")
    option(
        parser, "--level", "sass or ptx, or for Triton ttir, ttgir or llir; default: sass",
        metavar="L", choices=("sass", "ptx", "ttir", "ttgir", "llir"), default="sass",
    )  # fmt: skip
    option(
        parser,
        "--arch",
        "architecture to compile for, as in --arch sm_90; default: that of --gpu",
        metavar="A",
    )
    option(
        parser, "--against", "print what differs from a git revision (HEAD~1) or another file", metavar="WHAT"
    )
    option(parser, "--explain", "add what each instruction does", action="store_true")
    engine_options(parser, COMPILED_FOR, runs=False)


def debug_compile_options(parser: argparse.ArgumentParser) -> None:
    file_argument(parser)
    option(
        parser,
        "--arch",
        "architecture to compile for, as in --arch sm_90a; default: that of --gpu",
        metavar="A",
    )
    option(parser, "--output", "folder to write; default: a new one in the current folder", metavar="DIR")
    option(parser, "--zip", "write a .zip file instead of the folder", action="store_true")
    engine_options(parser, COMPILED_FOR, runs=False)


def submit_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="the submission")
    option(
        parser, "--mode", "test, benchmark, leaderboard (ranked) or profile", metavar="M", required=True,
        choices=("test", "benchmark", "leaderboard", "profile"),
    )  # fmt: skip
    option(
        parser,
        "--leaderboard",
        "the leaderboard; default: the file's line `#!POPCORN leaderboard NAME`",
        metavar="NAME",
    )
    option(parser, "--gpu", "the GPU; default: the file's line `#!POPCORN gpu NAME`", metavar="G")
    option(parser, "--no-check", "do not test the file against its reference first", action="store_true")
    option(parser, "--yes", "do not ask for confirmation of a ranked submission", action="store_true")
    option(parser, "--dry-run", "print the command that would be run", action="store_true")
    option(
        parser,
        "--output",
        "folder for the record; default: ~/.local/state/orbit-lsp/submissions",
        metavar="FOLDER",
    )
    option(
        parser, "--timeout", "time limit of popcorn-cli, in seconds; default: 1800", type=float, default=1800.0,
        metavar="S", dest="timeout_s",
    )  # fmt: skip
    json_option(parser)


def show_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", metavar="FILE", help=f"{FILE}; of a folder, its kernels are listed with their lenses"
    )
    option(parser, "--run", "run the file first, to show times on the lines", action="store_true")
    option(
        parser,
        "--color",
        "auto, always or never",
        choices=("auto", "always", "never"),
        default="auto",
        metavar="WHEN",
    )
    engine_options(parser, f"{COMPILED_FOR}; with --run, the {RENTED.partition(';')[0]}")
    parser.epilog = f"{parser.epilog}\n\nWithout --run, nothing is run or rented: --timeout, --budget and --over-budget have no effect."


def doctor_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", nargs="?", metavar="FILE", help="show how this .cu or .cuh file is compiled, and why"
    )
    option(
        parser,
        "--settings",
        "an editor's settings as JSON text, as in '{\"gpu\": \"L4\"}': doctor then reports what that editor's server would use",
        metavar="JSON",
    )
    engine_options(parser, COMPILED_FOR, runs=False)


def trust_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", nargs="?", help="the folder; default: the current one")
    option(parser, "--list", "print the trusted folders", action="store_true")
    option(parser, "--forget", "no longer trust DIR", action="store_true")


def draft_options(parser: argparse.ArgumentParser) -> None:
    file_argument(parser)
    option(parser, "--kernel", "the kernel; default: every kernel without a launch spec", metavar="K")
    engine_options(parser, COMPILED_FOR, runs=False)


def drivers_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file",
        metavar="PATH",
        nargs="?",
        help="a .py, .cu or .cuh file, or a folder, whose Python files count; default: the current folder",
    )
    option(parser, "--kernel", "the kernel; default: every kernel", metavar="K")
    json_option(parser)


def explain_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "word", nargs="*", metavar="WORD", help="any word that orbit-lsp shows; default: print all"
    )
    json_option(parser)


def modal_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what", nargs="?", choices=("status", "deploy", "stop", "prune"), default="status",
        help="status (the default): token, apps and the month's costs; deploy: put the app of this orbit-lsp version on Modal, which the first "
        "run does too; stop: remove it; prune: remove the apps of older versions",
    )  # fmt: skip
    option(
        parser,
        "--python",
        "your Python; the image gets the same versions of torch and triton",
        "ORBIT_PYTHON",
        metavar="PATH",
    )
    option(parser, "--json", "print status as one JSON object", action="store_true")
    option(
        parser, "--files", "with stop: stop the apps of all versions, and delete the volume with your builds and files",
        action="store_true",
    )  # fmt: skip


def schema_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what", nargs="?", default="finished", choices=(*SCHEMAS, *SCHEMA_OF), metavar="OUTPUT",
        help="finished (the default): the output of run, capture, exec, compile, profile, check, show and report; compared: of compare; gate: of gate; history: of history; "
        "loop: of loop; drafts: of draft; drivers: of drivers; trace: of trace; disassembly: of disassemble; bundle: of debug-compile; submission: of submit; "
        "explanations: of explain; machine: of doctor; compilation: of doctor FILE; jobs: of jobs list; job: of jobs submit, show and cancel; "
        "pruned: of jobs prune; kernels: of kernel list; kernel: of kernel install and remove; sessions: of sessions list; "
        "ended: of sessions end; stopped: of stop; modal: of modal status; worker, reviewer: the files that a loop reads; failure: of a command that failed before it had a result. A command's name stands for "
        "its output",
    )  # fmt: skip


def completion_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell that reads the script")


def serve_options(parser: argparse.ArgumentParser) -> None:
    option(
        parser,
        "--stdio",
        "ignored: stdio is the only way; some clients add this option",
        action="store_true",
    )
