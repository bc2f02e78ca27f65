"""The command line: the language server, and the same engine without an editor.

Exit codes: 0 ok, 1 compile error, 2 runtime error, 3 wrong answer, 4 timed out, 5 infrastructure,
64 usage, 130 cancelled; of a gate also 6 slower, 7 inconclusive.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import io
import logging
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn, cast

from orbit_lsp.cli.arguments import parse
from orbit_remote.common.plain_text import in_a_line, visible

INFRASTRUCTURE = 5
CANCELLED = 130


def main(arguments: list[str] | None = None) -> int:
    if arguments is None:  # in a process of its own, a start makes hardly any garbage
        gc.disable()  # until `_command` or `handlers.load` enables it
    given = sys.argv[1:] if arguments is None else arguments
    _standard_streams()
    if given in (["--stdio"], []):
        # an editor's server has a pipe; a person at a terminal would wait for an answer that never comes
        given = ["--help"] if not given and sys.stdin.isatty() else ["serve"]
    options = parse(given)
    stdout = sys.stdout
    if getattr(options, "json", False) and isinstance(stdout, io.TextIOWrapper):
        stdout.reconfigure(
            encoding="utf-8", errors="backslashreplace"
        )  # whatever the terminal's is: RFC 8259, section 8.1
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
        print(visible(f"orbit-lsp: error: {what}{error.strerror or error}"), file=sys.stderr)
        return INFRASTRUCTURE
    if arguments is None and options.command in (*_SHORT, *_SERVER):
        _end(code)
    return code


def _end(code: int) -> NoReturn:
    """End this process at once. It does not destroy its modules one by one, which takes 8 ms of a short command (H100
    machine). It does not wait for threads, which may keep a server waiting for ever.
    """
    logging.shutdown()
    with suppress(OSError):
        sys.stderr.flush()
    os._exit(code)


def _standard_streams() -> None:
    """Prepare the standard streams: a closed stream leads nowhere, and a name that cannot be written is escaped."""
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
    """Drop the remaining output, also that of the exit, because nobody reads it."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)


class _Sentence(logging.Formatter):
    """Formats a log record as a sentence, without the stack that a server's log has."""

    def format(self, record: logging.LogRecord) -> str:
        sentence = visible(record.getMessage().partition("\n")[0])
        error = record.exc_info[1] if record.exc_info else None
        return f"orbit-lsp: error: {sentence}" + (f" ({type(error).__name__}: {error})" if error else "")


@contextmanager
def log_sentences() -> Generator[None]:
    """Print errors of the log, a line each. The commands themselves report the log's warnings."""
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
    from orbit_lsp.state import user_folders

    if lent := user_folders.lend_home():
        text = f"orbit-lsp: this user has no home folder: {lent} stands for it; set HOME to keep builds and history"
        print(text, file=sys.stderr)
    for name in relative_places.drop(os.environ):
        print(
            f"orbit-lsp: the variable {name} is ignored, because its path is relative; make it absolute",
            file=sys.stderr,
        )
    if options.command in _SERVER:
        from orbit_lsp.server.handlers import serve

        return serve()
    _expand(options)
    if bad := _misleading(options):
        from orbit_lsp.cli.terminal_text import refused

        text = f"the name {bad!r} has a line end or another control character; rename it"
        return refused(text, as_json=getattr(options, "json", False))
    with log_sentences():
        return _command(options)


_NAMES = (
    "file", "names", "folder", "kernel_path", "source", "mount", "output", "results", "dump", "state", "to", "problems",
    "connection_file", "against", "paths", "markdown", "junit", "sarif",
)  # fmt: skip
"""Options that name files and folders. Each may be relative."""


def _expand(options: argparse.Namespace) -> None:
    """Expand `~` at the beginning of a name: behind a `=`, a shell leaves it alone."""
    for option in _NAMES:
        value: Any = getattr(options, option, None)
        if isinstance(value, str):
            setattr(options, option, str(Path(value).expanduser()) if value.startswith("~") else value)
        elif isinstance(value, list):
            names = cast("list[str]", value)
            expanded = [str(Path(each).expanduser()) if each.startswith("~") else each for each in names]
            setattr(options, option, expanded)


def _misleading(options: argparse.Namespace) -> str | None:
    """Return a name that could print lines of its own among ours."""
    names: list[str] = []
    with suppress(OSError):  # it has been deleted
        names.append(str(Path.cwd()))
    for option in _NAMES:
        value: Any = getattr(options, option, None)
        names += cast("list[str]", value) if isinstance(value, list) else [str(value or "")]
    return next((name for name in names if in_a_line(name) != name), None)


_MODULES = {
    "api": "doors.door_commands",
    "completion": "reference.completion_command",
    "drivers": "files.drivers_command",
    "explain": "reference.explain_command",
    "jobs": "doors.jobs_command",
    "kernel": "doors.kernel_command",
    "loop": "doors.loop_command",
    "mcp": "doors.door_commands",
    "modal": "machine.modal_command",
    "report": "report_command",
    "sessions": "machine.sessions_command",
    "skills": "doors.skills_command",
    "stop": "machine.stop_command",
    "submit": "submit_command",
    "trust": "machine.trust_command",
    "watch": "doors.door_commands",
}
"""Whose `main` a command is; the others are run_command's. Imported when asked for: none pays for all."""
_SHORT = ("check", "compile", "disassemble", "doctor", "exec", "profile", "run", "show")
"""Commands that leave nothing to be done at the end of the process."""
_SERVER = (None, "serve")


def _command(options: argparse.Namespace) -> int:
    if options.command == "settings":
        from orbit_lsp.state.config import markdown

        print(markdown(), end="")
        return 0
    if options.command == "schema":
        from orbit_lsp.cli.reference.schema import text

        print(text(options.what), end="")
        return 0
    module = importlib.import_module(f"orbit_lsp.cli.{_MODULES.get(options.command, 'run_command')}")
    if not gc.isenabled():
        gc.freeze()  # the collector need not visit imported modules
        gc.enable()
    return module.main(options)


if __name__ == "__main__":
    raise SystemExit(main())
