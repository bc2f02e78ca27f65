"""The commands of the command line by task, with their examples, and their parser."""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NoReturn

from orbit_lsp import __version__
from orbit_lsp.cli import command_options
from orbit_lsp.cli.doors import door_options
from orbit_remote.common.lazy_dataclass import dataclass

USAGE = 64
_CHOICE = re.compile(
    r"argument (?P<option>[\w-]+): invalid choice: (?P<word>.+) \(choose from (?P<known>.+)\)"
)
_PLACE = re.compile(r"argument (?P<option>[\w-]+): (?P<word>'.*') is not one of (?P<known>.+)", re.DOTALL)
_MISSING = "the following arguments are required: "
"""argparse's own sentences, which name positional arguments by our variables."""


def _any_of(words: list[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"


class CommandParser(argparse.ArgumentParser):
    """A parser that reports errors in one form, with the nearest command or option, and exit code 64."""

    def error(self, message: str) -> NoReturn:
        """Raises _WrongError, which `parse` prints."""
        if choice := _CHOICE.fullmatch(message):
            words = choice["known"].replace("'", "").split(", ")
            of = choice["option"] if choice["option"].startswith("-") else self.prog
            message = f"{of} does not take {choice['word']}; choose {_any_of(words)}"
        elif place := _PLACE.fullmatch(message):
            message = f"{place['option']} does not take {place['word']}; choose {_any_of(place['known'].split(', '))}"
        elif message.startswith(_MISSING):
            choices = {
                action.dest: _any_of(list(action.choices)) for action in self._actions if action.choices
            }
            names = message.removeprefix(_MISSING).split(", ")
            message = f"{self.prog} needs {' and '.join(choices.get(name, name) for name in names)}"
        raise _WrongError(message, f"see `{self.prog} --help`")


_SUMMARY = 16
"""The column of a command's summary in the help."""


class _WrongError(Exception):
    """A command line that cannot be parsed: why, and where its help is."""


class Help(argparse.RawDescriptionHelpFormatter):
    """Formats help texts. No line ends within an option such as `--with-gpu`."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        import textwrap  # help texts alone need it

        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        """Line ends of a text stay. A summary goes on below itself; an example is one line, to be copied."""
        return "\n".join(self._fitted(indent + line, min(width, 100)) for line in text.splitlines())

    @staticmethod
    def _fitted(line: str, width: int) -> str:
        import textwrap

        if line.startswith("  orbit-lsp"):
            return line
        below = " " * _SUMMARY if line.startswith(" ") else ""
        return textwrap.fill(line, max(width, 2 * _SUMMARY), subsequent_indent=below, break_on_hyphens=False)


@dataclass(frozen=True, slots=True)
class CliCommand:
    """A command. `options` adds the command's own options; `examples` are command lines without `orbit-lsp`."""

    name: str
    summary: str
    examples: tuple[str, ...]
    options: Callable[[argparse.ArgumentParser], None] = lambda _: None
    description: str = ""


GROUPS = {
    "Measure a kernel (on a GPU: this machine's, or one rented from the cloud service Modal)": (
        CliCommand(
            "run", "build a file, run it, time its kernels and check their results",
            ("run k.cu --kernel saxpy --sweep", "run pkg/softmax.py --through auto", "run bench.py --on H100,L4 -- --size 4096"), command_options.run_options,
        ),
        CliCommand(
            "capture", "write a launch spec from a launch that a test, script or program makes",
            ("capture pkg/softmax.py --kernel softmax_kernel", "capture softmax.py --through bench.py --launch 3", "capture saxpy.cu"),
            command_options.capture_options,
            "Run a test or script that launches a Triton kernel, take one of its launches, and write a launch spec above the kernel "
            "that replays it, with the kernel's present outputs as what is expected. Tensors whose values matter are stored beside the file. The launch "
            "spec is run first: if it does not replay the launch, nothing is written, and the exit code is that of the failure.",
        ),
        CliCommand(
            "exec", "run any Python code or program, and time its kernels",
            ("exec bench.py --bring 'out/**'", "exec -c 'import torch; print(torch.cuda.get_device_name())' --on H100 --budget 5", "exec train.py --limit candidate -- --size 4096"),
            command_options.exec_options,
            "Run any Python code or program in a copy of the current folder, on this machine's GPU or a rented one, and time its kernels. "
            "Standard output and the exit code are the program's; 124: it reached its limit.",
        ),
        CliCommand(
            "trace", "record a Python file's run with torch.profiler, as a trace for Perfetto",
            ("trace train.py", "trace softmax.py --json", "trace bench.py --gpu H100 --runner modal -- --size 4096"), command_options.trace_options,
            "Run a Python file under torch.profiler, print its kernels and operators, and keep the trace as a file. Needs torch. "
            "Without a GPU, the trace has what the CPU does.",
        ),
        CliCommand(
            "profile", "count what the hardware does in one launch, line by line",
            ("profile k.cu --kernel saxpy", "profile k.cu --full --json", "profile softmax.py --dump ir"), command_options.profile_options,
            "Count what the GPU does in a launch of a kernel and report its bottleneck and its hot lines: by CUPTI for a launch spec and for a Triton kernel through a driver, else under "
            "Nsight Compute. Without permission to read the GPU's hardware counters, it reports times only, and how to enable counters.",
        ),
        CliCommand(
            "check", "find memory faults with compute-sanitizer",
            ("check k.cu", "check k.cu --kernel saxpy --tool racecheck", "check k.cu --timeout 300 --json"), command_options.check_options,
            "Run a kernel under compute-sanitizer and report each memory fault at its line. Exit code 2: faults were found, or the "
            "program itself failed. 4: a tool exceeded --timeout. 5: no GPU, or no working compute-sanitizer.",
        ),
        CliCommand(
            "compare", "run two versions, kernels or GPUs in turn: which is faster?",
            ("compare k.cu --with HEAD~1", "compare k.cu --kernel new --with-kernel old", "compare k.cu --with-gpu L4 --json"), command_options.compare_options,
            "Run the kernel of FILE in turn with another version of it, with another kernel, or with itself on another GPU: at most twelve pairs of runs. The verdict is inconclusive "
            "unless a difference is shown. The exit code is 0 for each verdict. Use at most one of --with, "
            "--with-kernel and --with-gpu.",
        ),
        CliCommand(
            "gate", "in CI: is any kernel of a change slower than before?",
            ("gate", "gate --base origin/main --markdown report.md", "gate kernels/ --junit gate.xml --fail-inconclusive"), command_options.gate_options,
            "Compare the kernels of a change with the base of the change, in pairs of runs on the same GPU. Kernels run by their launch specs, their "
            "harnesses, their own programs, or tests and scripts that launch them. A kernel is called slower only if the chance of one such false alarm in the "
            "whole gate is at most --false-alarm. The exit code is 0 if none is slower, 6 if one is, 7 if the gate is inconclusive and --fail-inconclusive "
            "is given, and that of `run` if the change does not compile, fails or computes a wrong answer.",
        ),
    ),
    "Look at a file (needs no GPU)": (
        CliCommand(
            "show", "print a file with errors, registers, occupancy and times at its lines, as an editor shows it",
            ("show k.cu", "show k.cu --gpu B200", "show --run --color always k.cu"), command_options.show_options,
        ),
        CliCommand(
            "draft", "print a launch spec (comments that say how to run a kernel) for each kernel without one",
            ("draft k.cu", "draft k.cu --kernel saxpy", "draft softmax.py --json"), command_options.draft_options,
            "Print a launch spec for each kernel without one: comments to put above the kernel, which say how to run it. A draft is "
            "made from the kernel's launch in the file, or, if there is none, from its signature. Guesses are marked. Nothing is run.",
        ),
        CliCommand(
            "drivers", "list the tests, scripts and programs that launch each kernel",
            ("drivers softmax.py", "drivers softmax.py --kernel softmax_kernel", "drivers . --json"), command_options.drivers_options,
            "List the tests, benchmarks and scripts of the project that lead to each kernel of a file, the best guess first, each with its way and "
            "its cost; for a folder, list the best one of each kernel. Files are read, and nothing is run.",
        ),
        CliCommand(
            "compile", "report compiler errors, registers, shared memory and occupancy",
            ("compile k.cu", "compile k.cu --gpu B200 --flag=-DN=4", "compile softmax.py --json"), command_options.compile_options,
            "Report compiler errors, registers, shared memory and occupancy. No GPU is needed or rented. A Triton file is imported, so its top-level code runs.",
        ),
        CliCommand(
            "disassemble", "print a kernel's SASS with its source lines, its PTX or Triton IR",
            ("disassemble k.cu --kernel saxpy", "disassemble softmax.py --level ttgir --arch sm_100", "disassemble k.cu --against HEAD~1"), command_options.disassemble_options,
            "Print a kernel's SASS with its source lines, or its PTX or Triton IR. No kernel is run, and no GPU is needed. SASS needs "
            "NVIDIA's nvdisasm, which comes with the CUDA toolkit and with Triton.",
        ),
        CliCommand(
            "debug-compile", "collect all that a compilation made, to debug it or to report it",
            ("debug-compile gemm.cu --arch sm_90a", "debug-compile k.cu --flag=-Icutlass/include --zip", "debug-compile add.py --output bundle"),
            command_options.debug_compile_options,
            "Compile a CUDA, CUTLASS, Triton or CuTe DSL file, and list errors at the lines of your code. Write a folder with the errors "
            "and their stacks, command line, log, intermediate code, PTX, machine code, SASS and versions. A Triton file is "
            "imported; a CuTe DSL file is run, because its kernels are compiled only then.",
        ),
    ),
    "Submit": (
        CliCommand(
            "submit", "test a file against its reference, and submit it to a GPU MODE leaderboard with popcorn-cli",
            ("submit submission.py --mode test", "submit submission.py --mode leaderboard --yes", "submit submission.py --mode benchmark --dry-run"),
            command_options.submit_options,
            "Test a file that has custom_kernel against its problem's reference.py, then submit it to a GPU MODE leaderboard with "
            "popcorn-cli. If the test fails, nothing is submitted, and the exit code is that of the test. Before a ranked "
            "submission (--mode leaderboard) it asks you to confirm; without a terminal, it needs --yes. It keeps a record: the "
            "file, the git commit, the diff, the command and the output. The exit code is that of popcorn-cli, or 4 if "
            "popcorn-cli exceeded --timeout, or 130 if you do not confirm.",
        ),
    ),
    "Optimise again and again": (
        CliCommand(
            "loop", "let an agent, a script or a person change a kernel; keep a change only if it is faster",
            ("loop k.cu --kernel saxpy", "loop k.cu --mode command --worker 'agent {prompt}' --max-iterations 10",
             "loop --kernel-path k.cu --target-metric-name time_us --target-metric-threshold 250 --mode dry-run"),
            door_options.loop_options,
            "Let a worker (a coding agent, a script or you) change a kernel again and again. The loop measures each change against the best "
            "version so far, by running both alternately, and keeps it only if it is faster beyond noise. A reviewer (a second agent, script or person) can revert it too. The loop changes no file but the kernel file and its own folder. To continue a loop that "
            "was stopped or killed, give the same command again. The exit code is 0 when the target or a limit is reached, and 5 after "
            "--infra-failure-limit infrastructure failures in a row or when the budget is used up. An infrastructure failure is a "
            "fault of the machine, or a missing or malformed answer of the worker or the reviewer.",
        ),
    ),
    "Earlier results": (
        CliCommand(
            "history", "list the versions of a file's kernels and their times",
            ("history k.cu", "history k.cu --kernel saxpy --json", "history k.cu --text 3"), command_options.history_options,
        ),
        CliCommand(
            "report", "write the last profile of a kernel as a page for a browser",
            ("report k.cu", "report k.cu --kernel saxpy --output saxpy.html", "report k.cu --from other.ncu-rep"), command_options.report_options,
            "Write the last profile of a kernel as an HTML page, and print the page's path. The profile can come from the command "
            "line or from an editor. With --from, read a profile that another program made; editors show it on FILE. Nothing is run.",
        ),
    ),
    "Many files, coding agents and servers": (
        CliCommand(
            "jobs", "run files on a pool of GPUs; list, show, cancel and prune jobs",
            ("jobs submit a.cu b.py --pool local:0,local:1", "jobs list --under-way", "jobs cancel 3f2a91c0"), door_options.jobs_options,
            "Run files on a pool of GPUs, and list, show, cancel or prune jobs. Jobs are recorded in ~/.local/state/orbit-lsp/jobs.sqlite.",
        ),
        CliCommand(
            "mcp", "serve coding agents: run, profile, check and compare as MCP tools",
            ("mcp", "mcp --pool local:0 --trust", "mcp --pool modal:H100 --budget 5"), door_options.mcp_options,
            "Serve MCP on standard input and output. Your coding agent starts this command, as its configuration says (command: "
            "orbit-lsp, args: mcp), and gets tools to run, profile, check and compare kernels. An agent cannot raise --budget. Needs the extra `mcp` of orbit-lsp.",
        ),
        CliCommand(
            "api", "accept jobs over HTTP, for teams and graders",
            ("api", "api --pool local:0,local:1 --port 9000", "api --host 0.0.0.0 --name gpu7.example.org"), door_options.api_options,
            "Accept jobs over HTTP, also from KernelBench, FlashInfer-Bench and popcorn-cli. By default the server listens only on "
            "127.0.0.1 and needs no token: every user of this machine can submit code that runs as you. If you set ORBIT_API_TOKEN, "
            "a program must send it in the header `Authorization: Bearer TOKEN`, except for GET /health; a browser asks its user for it. With another --host a token is always "
            "needed; without the variable, the server makes one and prints it. ENABLE_DEVICE_METRICS=true adds the GPU's counters to the answers of "
            "evaluations; NCU_SECTIONS=A,B limits them to these sections of Nsight Compute. Needs the extra `serve` of "
            "orbit-lsp.",
        ),
        CliCommand(
            "watch", "run the files that appear in a folder, and write results into another",
            ("watch drop --results results", "watch drop --results results --once", "watch in --results out --pool local:0,local:1"),
            door_options.watch_options,
            "Run each file that appears in one folder, write its result into another, and delete the file: put copies there, not your "
            "only source. A file is taken when it has not changed for a second. "
            "Needs the extra `watch` of orbit-lsp, except with --once.",
        ),
    ),
    "Notebooks": (
        CliCommand(
            "kernel", "add a Jupyter kernel, which also builds, runs and times %%cuda cells",
            ("kernel install", "kernel install --on modal:H100 --budget 20", "kernel remove orbit-local"), door_options.kernel_options,
            "Add a Jupyter kernel to the kernel menus of JupyterLab and VS Code. Its cells run on this machine "
            "in your own Python, on a GPU rented from Modal, or on the machine of an `orbit-lsp api`. A %%cuda cell is built, run and timed. Needs the extra `notebook` of "
            "orbit-lsp, and ipykernel in the Python that runs the cells.",
        ),
        CliCommand(
            "sessions", "list running notebook kernels and rented GPUs, or end a kernel",
            ("sessions list", "sessions end all", "sessions list --json"), command_options.sessions_options,
            "List the notebook kernels that run and the GPUs that are rented, with what they cost so far, or end kernels. A rented "
            "GPU is released when its kernel or its editor ends, even if it was kept warm.",
        ),
    ),
    "Set up and help": (
        CliCommand(
            "doctor", "show what works on this machine, and how to fix the rest",
            ("doctor", "doctor saxpy.cu", "doctor --json"), command_options.doctor_options,
        ),
        CliCommand(
            "stop", "end orbit-lsp's background processes (workers) and their jobs",
            ("stop", "stop --yes", "stop --json | jq ."), command_options.stop,
            "List this installation's workers on this machine (the background processes that compile and run files), end them and cancel "
            "their jobs. At a terminal it asks before it ends them. The next run starts a new worker.",
        ),
        CliCommand(
            "trust", "use the Python, the compilers, the flags and the settings of a folder",
            ("trust", "trust ~/kernels", "trust --list"), command_options.trust_options,
            "Trust a folder and all folders in it: from now on, use its Python, the compilers and flags that its build files name, and in "
            "editors all of its settings. These can run any code as you. In other folders, only flags and settings that can do no harm "
            "are used. This holds for the command line, and for editors without workspace trust of their own.",
        ),
        CliCommand(
            "explain", "explain a word that orbit-lsp shows, such as an outcome, counter, stall reason or setting",
            ("explain long scoreboard", "explain 5", "explain orbit.gpu --json"), command_options.explain_options,
        ),
        CliCommand(
            "modal", "show, deploy and remove the apps on Modal, and show costs",
            ("modal status", "modal deploy --python .venv/bin/python", "modal prune"), command_options.modal_options,
        ),
        CliCommand(
            "skills", "list or install pages that teach a coding agent these commands",
            ("skills list", "skills install --to .claude/skills", "skills install --to ~/.codex/skills"), door_options.skills_options,
        ),
        CliCommand(
            "completion", "print a script that completes commands, options and files in bash, zsh or fish",
            ("completion bash > ~/.local/share/bash-completion/completions/orbit-lsp", "completion zsh > ~/.zfunc/_orbit-lsp",
             "completion fish > ~/.config/fish/completions/orbit-lsp.fish"),
            command_options.completion_options,
        ),
        CliCommand("settings", "print every setting with its default and meaning, as Markdown", ("settings", "settings | grep modal", "settings > settings.md")),
        CliCommand(
            "schema", "print the JSON schema of a command's --json output, or of the files that a loop reads",
            ("schema", "schema compared", "schema history"), command_options.schema_options,
        ),
        CliCommand(
            "serve", "start the language server (LSP on standard input and output); `orbit-lsp` alone does the same",
            ("serve", "serve --stdio", "serve 2> orbit.log"), command_options.serve_options,
        ),
    ),
}  # fmt: skip
"""By task, in the order of --help."""
COMMANDS = {command.name: command for group in GROUPS.values() for command in group}


def parser(
    only: str | None = None, *, listed: bool = False
) -> tuple[CommandParser, dict[str, argparse.ArgumentParser]]:
    """Return the parser of the whole command line, and of each command. If a command's name is given, only its parser
    is made, because making all takes 10 ms. `listed`: argparse lists the commands too, which the help does in groups.
    """
    wanted = [COMMANDS[only]] if only in COMMANDS else COMMANDS.values()
    root = CommandParser(
        prog="orbit-lsp",
        usage="orbit-lsp COMMAND [OPTIONS]",
        formatter_class=Help,
        description="Run, measure and profile CUDA and Triton kernels, from an editor or from the command line.\n\n"
        + _overview(),
        epilog=_examples(("run k.cu", "compare k.cu --with HEAD~1", "explain long scoreboard"))
        + "\n\n`orbit-lsp COMMAND --help` has the options and examples of a command.",
    )
    root.add_argument("--version", action="version", version=f"orbit-lsp {__version__}")
    commands = root.add_subparsers(
        dest="command",
        metavar="COMMAND",
        parser_class=CommandParser,
        prog="orbit-lsp",
        help="command" if listed else argparse.SUPPRESS,
    )
    parsers = dict[str, argparse.ArgumentParser]()
    for command in wanted:
        parsers[command.name] = commands.add_parser(
            command.name,
            help=command.summary,  # which completions of shells show
            description=command.description or command.summary[0].upper() + command.summary[1:] + ".",
            epilog=_examples(command.examples),
            formatter_class=Help,
        )
        command.options(parsers[command.name])
    return root, parsers


def parse(given: list[str]) -> argparse.Namespace:
    """Parse the command line. What cannot be parsed is printed, with --json as an object too, and raises SystemExit
    with code 64; with 0 after --help and --version.
    """
    if given[:1] == ["help"]:  # as of git and cargo
        given = [*given[1:2], "--help"]
    try:
        return _parsed(given)
    except _WrongError as wrong:
        message, remedy = wrong.args
        if "--json" in given[: given.index("--") if "--" in given else None]:
            from orbit_lsp.cli import json_results  # of mistakes alone

            print(json_results.failure("usage", message, remedy))
        print(f"orbit-lsp: error: {message}\n  {remedy}", file=sys.stderr)
        raise SystemExit(USAGE) from None


def _parsed(given: list[str]) -> argparse.Namespace:
    root, parsers = parser(given[0] if given else None)
    if given and not given[0].startswith("-") and given[0] not in COMMANDS:
        if Path(given[0]).exists():
            root.error(
                f"say what to do with {given[0]}: show, compile, run or profile, as in `orbit-lsp show {shlex.quote(given[0])}`"
            )
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
    """Return the end of a sentence about an unknown word, or "" if no known word is similar."""
    import difflib  # of mistakes alone

    bare = {name.lstrip("-"): name for name in known}  # of `--bogus` and `--gpu` the dashes alone are alike
    nearest = difflib.get_close_matches(word.lstrip("-"), bare, n=1, cutoff=0.6)
    return f"; did you mean {bare[nearest[0]]}?" if nearest else ""


def _overview() -> str:
    parts = [
        "\n".join([f"{title}:", *(f"  {command.name:<{_SUMMARY - 2}}{command.summary}" for command in group)])
        for title, group in GROUPS.items()
    ]
    return "\n\n".join(parts)


def _examples(lines: Iterable[str]) -> str:
    return "\n".join(["examples:", *(f"  orbit-lsp {line}" for line in lines)])
