"""The commands of the command line with their options, examples and environment variables: the argument parser."""

from __future__ import annotations

import argparse
import difflib
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NoReturn

from orbit_lsp import __version__

USAGE = 64
FILE = "a .cu, .cuh or .py file"
_TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")


class Parser(argparse.ArgumentParser):
    """Errors in one form, with the nearest command or option, and exit code 64."""

    def error(self, message: str) -> NoReturn:
        print(f"orbit-lsp: error: {message}\n  see `{self.prog} --help`", file=sys.stderr)
        raise SystemExit(USAGE)


@dataclass(frozen=True, slots=True)
class Command:
    """`options` adds the command's own options; `examples` are command lines without `orbit-lsp`."""

    name: str
    summary: str
    examples: tuple[str, ...]
    options: Callable[[argparse.ArgumentParser], None] = lambda _: None
    description: str = ""


# -- options --------------------------------------------------------------------------------------------


def option(parser: argparse.ArgumentParser, name: str, text: str, env: str = "", **how: Any) -> None:
    """An option; `env` is the variable that gives its value where the option is absent."""
    if env:
        value = os.environ.get(env, "").strip()
        relative = how.get("metavar") == "PATH" and bool(os.path.dirname(value)) and not os.path.isabs(value)  # noqa: PTH120, PTH117
        how["default"] = None if relative else value or None  # a relative path is another file in each folder
        text += f" [env: {env}]"
    parser.add_argument(name, help=text, **how)


def _file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help=FILE)


def _json(parser: argparse.ArgumentParser) -> None:
    option(parser, "--json", "print one JSON object", action="store_true")


def _program_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("arguments", nargs="*", metavar="ARGS", help="after --: the program's own arguments")


def _engine(parser: argparse.ArgumentParser) -> None:
    """What every command that compiles or runs takes."""
    option(
        parser,
        "--gpu",
        "GPU to rent from Modal, and to compile for where this machine has none",
        "ORBIT_GPU",
        metavar="G",
    )
    option(
        parser, "--runner", "auto, local or modal: this machine's GPU, or a rented one; auto: this machine's if it has one",
        "ORBIT_RUNNER", metavar="R", choices=("auto", "local", "modal"),
    )  # fmt: skip
    option(parser, "--device", "index of this machine's GPU", "ORBIT_DEVICE", type=int, metavar="N")
    option(parser, "--python", "Python that has your torch and triton", "ORBIT_PYTHON", metavar="PATH")
    option(parser, "--nvcc", "CUDA compiler", "ORBIT_NVCC", metavar="PATH")
    option(
        parser, "--flag", "a flag for nvcc, as in --flag=-DN=4; repeat it for several",
        action="append", default=[], metavar="F", dest="nvcc_flags",
    )  # fmt: skip
    option(
        parser,
        "--timeout",
        "time limit of a run, in seconds",
        "ORBIT_RUN_TIMEOUT_S",
        type=float,
        metavar="S",
        dest="run_timeout_s",
    )
    option(
        parser, "--budget", "what GPUs on Modal may cost in this calendar month, in dollars [env: ORBIT_BUDGET_USD]",
        type=float, metavar="USD",
    )  # fmt: skip
    option(
        parser, "--trust", "trust the current folder for this command: use its Python, compilers and compiler flags",
        action="store_true",
    )  # fmt: skip
    option(parser, "--over-budget", "run even if the budget may be exceeded", action="store_true")
    _json(parser)


def _run(parser: argparse.ArgumentParser) -> None:
    _file(parser)
    option(
        parser,
        "--kernel",
        "run this kernel by its launch spec, or report on it alone; default: all",
        metavar="K",
    )
    option(parser, "--sweep", "print only the table of a launch spec's sweep", action="store_true")
    option(
        parser, "--on", "run on several GPUs on Modal side by side, as in --on H100,L4,B200", metavar="G,G"
    )
    _engine(parser)
    _program_arguments(parser)


def _profile(parser: argparse.ArgumentParser) -> None:
    _file(parser)
    option(parser, "--kernel", "the kernel; needed if the file has several", metavar="K")
    option(parser, "--full", "collect every section of Nsight Compute; takes longer", action="store_true")
    option(parser, "--dump", "write the compiler's output there: Triton's IR, PTX, SASS", metavar="FOLDER")
    _engine(parser)
    _program_arguments(parser)


def _report(parser: argparse.ArgumentParser) -> None:
    _file(parser)
    option(parser, "--kernel", "the kernel; default: the one that was profiled last", metavar="K")
    option(parser, "--output", "the page's file; default: one in the folder of reports", metavar="PATH")
    option(parser, "--json", "print one JSON object, and write no page", action="store_true")


def _check(parser: argparse.ArgumentParser) -> None:
    _file(parser)
    option(parser, "--kernel", "the kernel to check; default: all that the file launches", metavar="K")
    option(
        parser, "--tool", f"{', '.join(_TOOLS[:-1])} or {_TOOLS[-1]}; repeat it for several; default: all",
        action="append", default=[], metavar="T", dest="tools", choices=_TOOLS,
    )  # fmt: skip
    _engine(parser)
    _program_arguments(parser)


def _compare(parser: argparse.ArgumentParser) -> None:
    _file(parser)
    option(parser, "--kernel", "the kernel; needed if the file has several", metavar="K")
    option(
        parser, "--with", "a git revision (HEAD~1), another file, or last: the previous version in the history, the default",
        metavar="WHAT", dest="against",
    )  # fmt: skip
    option(parser, "--with-kernel", "another kernel of the same file", metavar="K")
    option(parser, "--with-gpu", "the same kernel on another GPU, rented from Modal", metavar="G")
    _engine(parser)
    _program_arguments(parser)


def _history(parser: argparse.ArgumentParser) -> None:
    _file(parser)
    option(parser, "--kernel", "only this kernel", metavar="K")
    option(parser, "--text", "print the whole file as it was in version N", metavar="N", type=int)
    _json(parser)


def _compile(parser: argparse.ArgumentParser) -> None:
    _file(parser)
    _engine(parser)


def _disassemble(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help=f"{FILE}, or a .cubin")
    option(parser, "--kernel", "the kernel; needed if a source file has several", metavar="K")
    option(
        parser, "--level", "sass, ptx, and of Triton ttir, ttgir and llir; default: sass",
        metavar="L", choices=("sass", "ptx", "ttir", "ttgir", "llir"), default="sass",
    )  # fmt: skip
    option(
        parser, "--arch", "architecture to compile for, as in --arch sm_90; default: of --gpu", metavar="A"
    )
    option(
        parser, "--against", "print what differs from a git revision (HEAD~1) or another file", metavar="WHAT"
    )
    option(parser, "--explain", "below, what each instruction does", action="store_true")
    _engine(parser)


def _submit(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="the submission")
    option(
        parser, "--mode", "test, benchmark, leaderboard (ranked) or profile", metavar="M", required=True,
        choices=("test", "benchmark", "leaderboard", "profile"),
    )  # fmt: skip
    option(
        parser, "--leaderboard", "default: of the file's line `#!POPCORN leaderboard NAME`", metavar="NAME"
    )
    option(parser, "--gpu", "default: of the file's line `#!POPCORN gpu NAME`", metavar="G")
    option(parser, "--no-check", "do not check the file against its reference first", action="store_true")
    option(parser, "--yes", "do not ask before a ranked submission", action="store_true")
    option(parser, "--dry-run", "print the command that would be run", action="store_true")
    option(parser, "--output", "folder for the record; default: in the user's state folder", metavar="FOLDER")
    option(
        parser, "--timeout", "seconds that popcorn-cli may take; default: 1800", type=float, default=1800.0,
        metavar="S", dest="timeout_s",
    )  # fmt: skip
    _json(parser)


def _skills(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what", choices=("list", "install"), help="list: names and what each is for; install: copy them"
    )
    option(parser, "--to", "folder of the agent's skills, as in --to .claude/skills", metavar="FOLDER")


def _show(parser: argparse.ArgumentParser) -> None:
    _file(parser)
    option(parser, "--run", "run it first, so that times are on the lines", action="store_true")
    option(
        parser,
        "--color",
        "auto, always or never",
        choices=("auto", "always", "never"),
        default="auto",
        metavar="WHEN",
    )
    _engine(parser)


def _doctor(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", nargs="?", metavar="FILE", help="a .cu or .cuh file: show how it is compiled, and why"
    )
    option(
        parser,
        "--settings",
        "settings as an editor has them, so that doctor judges as its server does",
        metavar="JSON",
    )
    _engine(parser)


def _trust(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", nargs="?", help="default: the current folder")
    option(parser, "--list", "print the trusted folders", action="store_true")
    option(parser, "--forget", "no longer trust DIR", action="store_true")


def _draft(parser: argparse.ArgumentParser) -> None:
    _file(parser)
    option(parser, "--kernel", "the kernel; default: every one without a launch spec", metavar="K")
    _engine(parser)


def _explain(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "word", nargs="*", metavar="WORD", help="any word that orbit-lsp shows; without one: all of them"
    )
    _json(parser)


def _modal(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what", choices=("status", "deploy", "stop", "prune"),
        help="status: token, apps and the month's costs; deploy or stop: this version's app; prune: remove older versions' apps",
    )  # fmt: skip
    option(
        parser,
        "--python",
        "Python whose versions of torch and triton the image gets",
        "ORBIT_PYTHON",
        metavar="PATH",
    )
    option(parser, "--json", "print status as one JSON object", action="store_true")


def _pool(parser: argparse.ArgumentParser) -> None:
    """What every command that takes jobs takes."""
    option(
        parser, "--pool", "where jobs run, as in local:0,local:1 or modal:H100*4; default: every GPU of this machine",
        "ORBIT_POOL", metavar="P",
    )  # fmt: skip
    option(parser, "--python", "Python that has your torch and triton", "ORBIT_PYTHON", metavar="PATH")
    option(parser, "--nvcc", "CUDA compiler", "ORBIT_NVCC", metavar="PATH")
    option(
        parser, "--budget", "what GPUs on Modal may cost in this calendar month, in dollars; default: 0, nothing is rented "
        "[env: ORBIT_BUDGET_USD]",
        type=float, metavar="USD",
    )  # fmt: skip
    option(
        parser, "--trust", "trust the current folder: use its Python, compilers and compiler flags", action="store_true"
    )  # fmt: skip


def _jobs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what", choices=("submit", "list", "show", "cancel", "prune"),
        help="submit: run FILES on the pool and wait for them; list: the newest jobs; show or cancel: the jobs of IDS; "
        "prune: remove the records of jobs that ended some time ago",
    )  # fmt: skip
    parser.add_argument("names", nargs="*", metavar="FILE|ID", help="files to submit, or ids of jobs")
    option(
        parser, "--action", "run, profile, check or compile; default: run",
        choices=("run", "profile", "check", "compile"), default="run", metavar="A",
    )  # fmt: skip
    option(parser, "--kernel", "run this kernel by its launch spec", metavar="K")
    option(parser, "--gpu", "only on this GPU of the pool, as in H100 or local:1", metavar="G")
    option(
        parser, "--flag", "a flag for nvcc; repeat it for several", action="append", default=[], metavar="F",
        dest="nvcc_flags",
    )  # fmt: skip
    option(
        parser, "--timeout", "time limit of a run, in seconds", type=float, metavar="S", dest="run_timeout_s"
    )
    option(
        parser, "--priority", "high, normal or low; default: normal", choices=("high", "normal", "low"), default="normal",
        metavar="P",
    )  # fmt: skip
    option(parser, "--key", "a second submission with the same key is the same job", metavar="KEY")
    option(
        parser, "--wait-limit", "how long a job may wait for a GPU, in seconds; default: 300", type=float, default=300.0,
        metavar="S", dest="wait_limit_s",
    )  # fmt: skip
    option(parser, "--most", "how many jobs list prints; default: 100", type=int, default=100, metavar="N")
    option(parser, "--under-way", "list only jobs that have not ended", action="store_true")
    option(
        parser,
        "--older",
        "prune jobs that ended longer ago than this, as in 12h; default: 7d",
        default="7d",
        metavar="T",
    )
    _pool(parser)
    _json(parser)


def _mcp(parser: argparse.ArgumentParser) -> None:
    _pool(parser)


def _watch(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder", metavar="KERNELS", help="the folder that .cu, .cuh and .py files are dropped into"
    )
    option(parser, "--results", "the folder for results, NAME_result.json", metavar="RESULTS", required=True)
    option(parser, "--once", "answer the files that are there, and end", action="store_true")
    option(
        parser, "--keep", "remove results that are older than this; default: 24h", default="24h", metavar="T"
    )
    _pool(parser)


def _api(parser: argparse.ArgumentParser) -> None:
    option(
        parser,
        "--host",
        "address to listen on; any but the default needs the token that is printed",
        default="127.0.0.1",
        metavar="H",
    )
    option(parser, "--port", "0 for any free one; default: 8421", type=int, default=8421, metavar="N")
    option(
        parser, "--name", "a host name under which the server may be addressed; repeat it for several",
        action="append", default=[], metavar="NAME", dest="names",
    )  # fmt: skip
    _pool(parser)


def _kernel(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what", choices=("install", "list", "remove", "run"),
        help="install: add a kernel to the pickers of Jupyter and VS Code; list: our kernels; remove: KERNEL; run: what Jupyter "
        "starts",
    )  # fmt: skip
    parser.add_argument("kernel", nargs="?", metavar="KERNEL", help="the kernel to remove")
    option(parser, "--on", "where its cells run: local, this machine", default="local", metavar="WHERE")
    option(parser, "--name", "its name in the pickers; default: this GPU", metavar="NAME")
    option(
        parser,
        "--python",
        "Python that runs the cells; default: chosen for the notebook's folder, as for runs",
        metavar="PATH",
    )
    option(
        parser, "--idle-minutes", "end the kernel after so many minutes without a cell, and free its GPU memory; default: 0, "
        "never", metavar="N",
    )  # fmt: skip
    option(parser, "--connection-file", "of Jupyter, for run", metavar="PATH")
    _json(parser)


def _schema(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what", nargs="?", default="finished", choices=("finished", "compared", "history"),
        help="finished: of run, compile, profile and check; compared: of compare; history: of history",
    )  # fmt: skip


def _serve(parser: argparse.ArgumentParser) -> None:
    option(
        parser,
        "--stdio",
        "accepted for clients that add it; LSP is always on standard input and output",
        action="store_true",
    )


# -- commands -------------------------------------------------------------------------------------------

GROUPS = {
    "Measure a kernel (needs a GPU, here or on Modal)": (
        Command(
            "run", "build a file, run it, time its kernels and check their results",
            ("run k.cu", "run k.cu --kernel saxpy --sweep", "run bench.py --on H100,L4 -- --size 4096"), _run,
        ),
        Command(
            "profile", "count what the hardware does in one launch, line by line",
            ("profile k.cu --kernel saxpy", "profile k.cu --full --json", "profile softmax.py --dump ir"), _profile,
            "Run a kernel under Nsight Compute and report its bottleneck. Without permission to read counters: times, and how "
            "to enable the rest.",
        ),
        Command(
            "check", "find memory faults with compute-sanitizer",
            ("check k.cu", "check k.cu --kernel saxpy --tool racecheck", "check k.cu --timeout 300 --json"), _check,
            "Exit code 2: faults were found, or the program itself fails. 4: a tool reached its limit (--timeout). 5: no GPU, "
            "or no working compute-sanitizer.",
        ),
        Command(
            "compare", "run two versions, kernels or GPUs in turn: which is faster?",
            ("compare k.cu --with HEAD~1", "compare k.cu --kernel new --with-kernel old", "compare k.cu --with-gpu L4 --json"), _compare,
            "Runs both sides in turn until one is known to be faster, or no difference can be shown. Exit code 0 either way.",
        ),
    ),
    "Look at a file (needs no GPU)": (
        Command(
            "show", "print a file as an editor shows it: lenses, hints, squiggles",
            ("show k.cu", "show k.cu --gpu B200", "show --run --color always k.cu"), _show,
        ),
        Command(
            "draft", "print launch specs to put above kernels that have none",
            ("draft k.cu", "draft k.cu --kernel saxpy", "draft softmax.py --json"), _draft,
            "Reads the launch in the file, else the kernel's signature; guesses are marked. Nothing is run.",
        ),
        Command(
            "compile", "report compiler errors, registers, shared memory and occupancy",
            ("compile k.cu", "compile k.cu --gpu B200 --flag=-DN=4", "compile softmax.py --json"), _compile,
        ),
        Command(
            "disassemble", "print a kernel's SASS, PTX or Triton IR, beside its source lines",
            ("disassemble k.cu --kernel saxpy", "disassemble softmax.py --level ttgir --arch sm_100", "disassemble k.cu --against HEAD~1"), _disassemble,
            "Compiles, and runs nothing. SASS comes from NVIDIA's nvdisasm, with control codes and the line of each instruction.",
        ),
    ),
    "Hand in": (
        Command(
            "submit", "submit a file to a GPU MODE leaderboard by popcorn-cli, checked first",
            ("submit submission.py --mode test", "submit submission.py --mode leaderboard --yes", "submit submission.py --mode benchmark --dry-run"),
            _submit,
            "Checks the file against its reference, asks before a ranked submission, runs popcorn-cli, and keeps a record: the "
            "file, git's commit, the diff, the command, the output. The exit code is popcorn-cli's; 4: it reached its limit.",
        ),
    ),
    "Earlier results": (
        Command(
            "history", "list the versions of a file's kernels and their times",
            ("history k.cu", "history k.cu --kernel saxpy --json", "history k.cu --text 3"), _history,
        ),
        Command(
            "report", "write the last profile of a kernel as a page for a browser",
            ("report k.cu", "report k.cu --kernel saxpy --output saxpy.html", "report k.cu --json"), _report,
            "Runs nothing: it reads the last profile, from an editor or from here.",
        ),
    ),
    "Jobs without an editor": (
        Command(
            "jobs", "run files on a pool of GPUs; list, show, cancel and prune jobs",
            ("jobs submit a.cu b.py --pool local:0,local:1", "jobs list --under-way", "jobs cancel 3f2a91c0"), _jobs,
            "Every job has a row in one file, jobs.sqlite in the user's state folder, which is written before each of its "
            "phases.",
        ),
        Command(
            "mcp", "serve coding agents: run, profile, check and compare as MCP tools, on standard input and output",
            ("mcp", "mcp --pool local:0 --trust", "mcp --pool modal:H100 --budget 5"), _mcp,
            "The limit of spending is the one that is given here; no agent can raise it. Needs pip install 'orbit-lsp[mcp]'.",
        ),
        Command(
            "api", "serve teams and graders: jobs over HTTP, and the request forms of evaluation servers",
            ("api", "api --pool local:0,local:1 --port 9000", "api --host 0.0.0.0 --name gpu7.example.org"), _api,
            "Listens on this machine alone, unless --host is given; then every request needs a token, ORBIT_API_TOKEN or the one that "
            "is printed. Needs pip install 'orbit-lsp[serve]'.",
        ),
        Command(
            "watch", "run what is dropped into a folder, and put the results into another",
            ("watch kernels --results results", "watch kernels --results results --once", "watch in --results out --pool local:0,local:1"),
            _watch,
            "A file is taken once, whatever number of watchers there are, and only when nobody writes it any more. Needs "
            "pip install 'orbit-lsp[watch]', but for --once.",
        ),
    ),
    "Notebooks": (
        Command(
            "kernel", "add our kernel to Jupyter and VS Code: cells on this GPU, %%cuda cells built, run and timed",
            ("kernel install", "kernel install --name torch-nightly --python ~/nightly/bin/python", "kernel remove orbit-local"), _kernel,
            "The cells run in an ipykernel of your own Python, and end with the notebook. Needs pip install "
            "'orbit-lsp[notebook]'.",
        ),
    ),
    "Set up and help": (
        Command(
            "doctor", "show what works on this machine, and how to fix the rest",
            ("doctor", "doctor saxpy.cu", "doctor --json"), _doctor,
        ),
        Command(
            "stop", "end the worker that editors and commands share, and what it runs",
            ("stop", "stop --json", "stop --json | jq ."), _json,
            "Ends every worker of yours on this machine, of any Python and version; their jobs are cancelled. The next command "
            "or click starts a new one. `orbit-lsp doctor` lists them.",
        ),
        Command(
            "trust", "use what a folder brings along: its Python, compilers, compiler flags and settings",
            ("trust", "trust ~/kernels", "trust --list"), _trust,
            "Remembers that you trust the authors of a folder and of all in it, on the command line and in editors without "
            "workspace trust of their own.",
        ),
        Command(
            "explain", "explain a word: an outcome, exit code, counter, stall reason, setting, …",
            ("explain long scoreboard", "explain 5", "explain orbit.gpu --json"), _explain,
        ),
        Command(
            "modal", "show, deploy and remove our apps on Modal",
            ("modal status", "modal deploy --python .venv/bin/python", "modal prune"), _modal,
        ),
        Command(
            "skills", "list or install pages that teach a coding agent these commands",
            ("skills list", "skills install --to .claude/skills", "skills install --to ~/.codex/skills"), _skills,
        ),
        Command("settings", "print all settings", ("settings", "settings | grep modal", "settings > settings.md")),
        Command(
            "schema", "print the JSON schema of what --json prints",
            ("schema", "schema compared", "schema history"), _schema,
        ),
        Command(
            "serve", "speak LSP on standard input and output; the default without a command",
            ("serve", "serve --stdio", "serve 2> orbit.log"), _serve,
        ),
    ),
}  # fmt: skip
"""By task, in the order of --help."""
COMMANDS = {command.name: command for group in GROUPS.values() for command in group}


def parser() -> tuple[Parser, dict[str, argparse.ArgumentParser]]:
    """The whole command line, and the parser of each command."""
    root = Parser(
        prog="orbit-lsp",
        usage="orbit-lsp COMMAND [OPTIONS]",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Run, measure and profile CUDA and Triton kernels, from an editor or from here.\n\n"
        + _overview(),
        epilog=_examples(("run k.cu", "compare k.cu --with HEAD~1", "explain long scoreboard"))
        + "\n\n`orbit-lsp COMMAND --help` has the options and examples of a command.",
    )
    root.add_argument("--version", action="version", version=f"orbit-lsp {__version__}")
    commands = root.add_subparsers(
        dest="command", metavar="COMMAND", parser_class=Parser, prog="orbit-lsp", help=argparse.SUPPRESS
    )
    parsers = dict[str, argparse.ArgumentParser]()
    for command in COMMANDS.values():
        parsers[command.name] = commands.add_parser(
            command.name,
            description=command.description or command.summary[0].upper() + command.summary[1:] + ".",
            epilog=_examples(command.examples),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.options(parsers[command.name])
    return root, parsers


def parse(given: list[str]) -> argparse.Namespace:
    """Raises SystemExit with code 64 for what cannot be parsed, 0 after --help and --version."""
    root, parsers = parser()
    if given and not given[0].startswith("-") and given[0] not in COMMANDS:
        root.error(f"unknown command {given[0]!r}{did_you_mean(given[0], COMMANDS)}")
    # argparse itself takes what follows `--` only where no option stands between the file and it
    end = given.index("--") if "--" in given else len(given)
    own, of_program = given[:end], given[end + 1 :]
    options, unknown = root.parse_known_args(own)
    command = parsers.get(options.command, root)
    if unknown:
        known = [name for action in command._actions for name in action.option_strings]  # noqa: SLF001  # argparse has no other list
        word = unknown[0].partition("=")[0]
        what = "option" if word.startswith("-") else "argument"
        command.error(f"unknown {what} {word!r}{did_you_mean(word, known)}")
    if of_program:
        if not hasattr(options, "arguments"):
            command.error(f"{options.command} takes no program arguments: {' '.join(of_program)}")
        options.arguments = [*options.arguments, *of_program]
    return options


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown word; empty where none of the known ones is like it."""
    nearest = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"; did you mean {nearest[0]}?" if nearest else ""


def _overview() -> str:
    parts = [
        "\n".join([f"{title}:", *(f"  {command.name:<12}{command.summary}" for command in group)])
        for title, group in GROUPS.items()
    ]
    return "\n\n".join(parts)


def _examples(lines: Iterable[str]) -> str:
    return "\n".join(["examples:", *(f"  orbit-lsp {line}" for line in lines)])
