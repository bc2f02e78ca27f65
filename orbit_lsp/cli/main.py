"""The command line: the language server, and the same engine without an editor.

Exit codes: 0 ok, 1 compile error, 2 runtime error, 3 wrong answer, 4 timed out, 5 infrastructure,
64 usage, 130 cancelled.
"""

from __future__ import annotations

import argparse
import gc
import io
import logging
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import NoReturn

from orbit_lsp import __version__

INFRASTRUCTURE = 5
USAGE = 64
CANCELLED = 130


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        print(f"{self.prog}: {message}", file=sys.stderr)
        raise SystemExit(USAGE)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="orbit-lsp",
        description="Run and measure CUDA and Triton kernels, from an editor (LSP on standard input and "
        "output, without a command) or from here.",
    )
    parser.add_argument("--version", action="version", version=f"orbit-lsp {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=_Parser)
    serve = commands.add_parser("serve", help="speak LSP on standard input and output (the default)")
    serve.add_argument("--stdio", action="store_true", help="what some clients add; the only way there is")
    run = commands.add_parser("run", help="build and run a file on a GPU and time its kernels")
    _common(run)
    run.add_argument(
        "--kernel", metavar="K",
        help="the kernel to run by its launch spec, or to report on where the file's program runs; default: all",
    )  # fmt: skip
    run.add_argument("--sweep", action="store_true", help="print the table of a launch spec's sweep alone")
    run.add_argument(
        "--on", metavar="G,G", help="run it on several GPUs on Modal side by side, as in --on H100,L4,B200"
    )
    run.add_argument("arguments", nargs="*", metavar="ARGS", help="after --: the program's own arguments")
    profile = commands.add_parser(
        "profile",
        help="count what the hardware does in one launch of a kernel, line by line",
        description="Run what launches a kernel under Nsight Compute and say what holds it back. Where its counters are "
        "not permitted: times, and what would enable the rest.",
    )
    _common(profile)
    profile.add_argument("--kernel", metavar="K", help="the kernel; needed where the file has several")
    profile.add_argument(
        "--full", action="store_true", help="every section that Nsight Compute has: takes longer"
    )
    profile.add_argument(
        "--dump", metavar="FOLDER",
        help="write what the compiler made of the kernel there: Triton's IR, PTX, SASS, as softmax.ttgir",
    )  # fmt: skip
    profile.add_argument("arguments", nargs="*", metavar="ARGS", help="after --: the program's own arguments")
    report = commands.add_parser(
        "report",
        help="write the last profile of a file's kernel as a page for a browser",
        description="What was profiled before, from an editor or from here, is kept: nothing is run.",
    )
    report.add_argument("file", metavar="FILE", help="a .cu, .cuh or .py file")
    report.add_argument("--kernel", metavar="K", help="the kernel; default: the one that was profiled last")
    report.add_argument(
        "--output", metavar="PATH", help="where the page goes; default: the folder of reports"
    )
    report.add_argument("--json", action="store_true", help="one JSON object on standard output, and no page")
    check = commands.add_parser(
        "check",
        help="look for faults of memory with compute-sanitizer",
        description="Run a file's program, or the launch specs of its kernels, under compute-sanitizer. Exit code 2: faults "
        "were found, or the program fails by itself; 4: a tool came to its limit, which --timeout sets; 5: there is no "
        "compute-sanitizer, or no GPU that it works on.",
    )
    _common(check)
    check.add_argument(
        "--kernel", metavar="K", help="the kernel to check; default: all that the file launches"
    )
    check.add_argument(
        "--tool", action="append", default=[], metavar="T", dest="tools",
        choices=("memcheck", "racecheck", "initcheck", "synccheck"),
        help="memcheck, racecheck, initcheck or synccheck; may be given several times; default: all of them",
    )  # fmt: skip
    check.add_argument("arguments", nargs="*", metavar="ARGS", help="after --: the program's own arguments")
    compare = commands.add_parser(
        "compare",
        help="run a kernel and an earlier version, another kernel or another GPU in turn: which is faster?",
        description="Run a kernel as its file stands and something else in turn, a whole run each, until it is known which "
        "is faster or that no difference can be told. Exit code 0 whichever it is.",
    )
    _common(compare)
    compare.add_argument("--kernel", metavar="K", help="the kernel; needed where the file has several")
    compare.add_argument(
        "--with", metavar="WHAT", dest="against",
        help="a git revision (HEAD~1), another file, or `last`: the version before in the history, the default",
    )  # fmt: skip
    compare.add_argument("--with-kernel", metavar="K", help="another kernel of the same file")
    compare.add_argument("--with-gpu", metavar="G", help="the same kernel on another GPU, rented from Modal")
    compare.add_argument("arguments", nargs="*", metavar="ARGS", help="after --: the program's own arguments")
    history = commands.add_parser("history", help="the versions of a file's kernels and how long they took")
    history.add_argument("file", metavar="FILE", help="a .cu, .cuh or .py file")
    history.add_argument("--kernel", metavar="K", help="of one kernel alone")
    history.add_argument(
        "--text", metavar="N", type=int, help="print the whole file as it was when version N ran"
    )
    history.add_argument("--json", action="store_true", help="one JSON object on standard output")
    compiled = commands.add_parser("compile", help="diagnostics and resources; needs no GPU")
    _common(compiled)
    show = commands.add_parser("show", help="print a file as an editor shows it: lenses, hints, squiggles")
    _common(show)
    show.add_argument("--run", action="store_true", help="run it first, so that times stand on the lines")
    show.add_argument("--color", choices=("auto", "always", "never"), default="auto")
    draft = commands.add_parser(
        "draft",
        help="print launch specs to put above kernels that have none",
        description="Read from the launch in the file, else from the kernel's signature; guesses are marked. Nothing is run.",
    )
    _common(draft)
    draft.add_argument("--kernel", metavar="K", help="the kernel; default: every one without a launch spec")
    doctor = commands.add_parser("doctor", help="what works here now, what does not yet, what mends it")
    _common(doctor, file=False)
    doctor.add_argument(
        "--settings",
        metavar="JSON",
        help="settings as an editor has them, so that doctor judges as its server does",
    )
    trust = commands.add_parser(
        "trust",
        help="use what a folder brings along: its Python, compilers, compiler flags and settings",
        description="Remember that you trust the authors of a folder, and of all in it. It counts on the command line, and "
        "in editors that have no workspace trust of their own.",
    )
    trust.add_argument("folder", metavar="DIR", nargs="?", help="default: the current folder")
    trust.add_argument("--list", action="store_true", help="print the folders that are trusted")
    trust.add_argument("--forget", action="store_true", help="trust DIR no more")
    modal = commands.add_parser("modal", help="our apps on Modal: which are there, put, stop and prune them")
    modal.add_argument(
        "what", choices=("status", "deploy", "stop", "prune"),
        help="status: token, apps and the month's costs; deploy: this version's; stop: this version's; prune: older versions'",
    )  # fmt: skip
    modal.add_argument("--python", metavar="PATH", help="Python whose torch and triton the image is to have")
    modal.add_argument("--json", action="store_true", help="status as one JSON object")
    commands.add_parser("settings", help="print docs/guide/settings.md")
    schema = commands.add_parser("schema", help="print the JSON schema of what --json says")
    schema.add_argument(
        "what", nargs="?", default="finished", choices=("finished", "compared", "history"),
        help="finished: of run, compile, profile and check; compared: of compare; history: of history",
    )  # fmt: skip
    return parser


def _common(parser: argparse.ArgumentParser, *, file: bool = True) -> None:
    if file:
        parser.add_argument("file", metavar="FILE", help="a .cu, .cuh or .py file")
    parser.add_argument(
        "--gpu", metavar="G", help="GPU that runs on Modal get and static figures are for, as in the settings"
    )
    parser.add_argument(
        "--runner", metavar="R", choices=("auto", "local", "modal"),
        help="where it runs: this machine's GPU, or one rented from Modal; default: this machine's if it has one",
    )  # fmt: skip
    parser.add_argument("--device", type=int, metavar="N", help="index of this machine's GPU")
    parser.add_argument("--python", metavar="PATH", help="Python that holds your torch and triton")
    parser.add_argument("--nvcc", metavar="PATH", help="CUDA compiler")
    parser.add_argument(
        "--flag", action="append", default=[], metavar="F", dest="nvcc_flags",
        help="a flag for nvcc, as in --flag=-DN=4; may be given several times",
    )  # fmt: skip
    parser.add_argument("--timeout", type=float, metavar="S", dest="run_timeout_s", help="limit of a run")
    parser.add_argument(
        "--budget", type=float, metavar="USD",
        help="what GPUs on Modal may cost in this calendar month; default: the variable ORBIT_BUDGET_USD",
    )  # fmt: skip
    parser.add_argument(
        "--trust", action="store_true",
        help="trust the current folder in this command: its Python, compilers and compiler flags are used",
    )  # fmt: skip
    parser.add_argument("--over-budget", action="store_true", help="run although that may be passed")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")


def main(arguments: list[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else arguments
    if given in (["--stdio"], []):
        given = ["serve"]
    _standard_streams()
    options = _parser().parse_args(given)
    stdout = sys.stdout
    if getattr(options, "json", False) and isinstance(stdout, io.TextIOWrapper):
        stdout.reconfigure(encoding="utf-8")  # whatever the terminal's is: RFC 8259, section 8.1
    try:
        code = _obey(options)
        if not sys.stdout.closed:  # as a server leaves it
            sys.stdout.flush()
    except KeyboardInterrupt:  # before a command runs, which says so itself
        print("orbit-lsp: cancelled", file=sys.stderr)
        return CANCELLED
    except BrokenPipeError:  # the reader had enough, as `head` does
        _drop_output()
        return 0
    except OSError as error:
        _drop_output()
        what = f"{error.filename}: " if error.filename else ""
        print(f"orbit-lsp: {what}{error.strerror or error}", file=sys.stderr)
        return INFRASTRUCTURE
    return code


def _standard_streams() -> None:
    """Streams that were closed lead nowhere, and a name that cannot be written is written escaped."""
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            flags = os.O_WRONLY if descriptor else os.O_RDONLY
            opened = os.open(os.devnull, flags)
            if opened != descriptor:
                os.dup2(opened, descriptor)
                os.close(opened)
            stream = open(descriptor, "w" if descriptor else "r", encoding="utf-8", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _drop_output() -> None:
    """What is left to write, at exit too, is for nobody."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)


class _Sentence(logging.Formatter):
    """What a log says, without the stack that a server's log has."""

    def format(self, record: logging.LogRecord) -> str:
        said = record.getMessage().partition("\n")[0]
        error = record.exc_info[1] if record.exc_info else None
        return f"orbit-lsp: {said}" + (f" ({type(error).__name__}: {error})" if error else "")


@contextmanager
def log_sentences() -> Generator[None]:
    """Warnings of the log are said by the commands themselves; errors are printed, a line each."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setLevel(logging.ERROR)
    handler.setFormatter(_Sentence())
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)


def _obey(options: argparse.Namespace) -> int:
    from orbit_lsp.cli import relative_places

    for name in relative_places.drop(os.environ):
        print(
            f"orbit-lsp: the variable {name} is ignored: its path is relative, and so is another in each folder; "
            "make it absolute",
            file=sys.stderr,
        )
    if options.command in (None, "serve"):
        gc.disable()  # until `handlers.load` enables it: hardly anything of a start is garbage
        from orbit_lsp.server.handlers import serve

        serve()
        return 0
    with log_sentences():
        return _command(options)


def _command(options: argparse.Namespace) -> int:
    if options.command == "settings":
        from orbit_lsp.state.config import markdown

        print(markdown(), end="")
        return 0
    if options.command == "schema":
        from orbit_lsp.cli.schema import text

        print(text(options.what), end="")
        return 0
    if options.command == "modal":
        from orbit_lsp.cli import modal_command

        return modal_command.main(options)
    if options.command == "trust":
        from orbit_lsp.cli import trust_command

        return trust_command.main(options)
    if options.command == "report":
        from orbit_lsp.cli import report_command

        return report_command.main(options)
    from orbit_lsp.cli import run_command

    return run_command.main(options)


if __name__ == "__main__":
    raise SystemExit(main())
