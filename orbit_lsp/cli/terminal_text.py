"""Makes text safe to print: diagnostics as lines, without control characters."""

from __future__ import annotations

import os
import re
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from orbit_lsp.cli import json_results
from orbit_lsp.runs import summary
from orbit_lsp.specs import spec_cache
from orbit_lsp.state.kernel_ids import KernelId
from orbit_lsp.state.session import Session, path_of
from orbit_remote.common.messages import EXIT_CODES, Failure, Place, Problem
from orbit_remote.common.plain_text import in_a_line, visible


class UsageError(Exception):
    """The command line, or the file it names, is wrong. The text is the sentence to print."""


def escapes(stream: TextIO) -> bool:
    """Say whether escape sequences, such as colors, may be written to a stream: it is a terminal that knows them, and
    the user wants them.
    """
    return stream.isatty() and os.environ.get("TERM") != "dumb" and not os.environ.get("NO_COLOR")


def refused(text: str, *, as_json: bool) -> int:
    """Print why a command line cannot be carried out, with --json as an object too. Return the exit code."""
    if as_json:
        print(json_results.failure("usage", text))
    print(visible(f"orbit-lsp: error: {text}"), file=sys.stderr)
    return EXIT_CODES["usage"]


def warn(text: str) -> None:
    print(in_a_line(f"orbit-lsp: warning: {text}"), file=sys.stderr)


def indented(remedy: str) -> str:
    """Return what to do with each line indented by two columns, for printing below an error."""
    return textwrap.indent(visible(remedy), "  ")


def only_kernel(kernels: Sequence[KernelId]) -> KernelId:
    """Return the only kernel, for a command that names none. Raises UsageError."""
    if not kernels:
        raise UsageError("no kernel in this file can be launched")
    if len(kernels) > 1:
        have = ", ".join(kernel.key for kernel in kernels)
        raise UsageError(f"which kernel? Add --kernel; this file has: {have}")
    return kernels[0]


def problems(session: Session, uri: str) -> list[tuple[str, Problem]]:
    """Return every diagnostic with its file, those of the launch specs of `uri` last. They are printed, and --json
    has them.
    """
    filed = [
        (path_of(of), problem) for (_, of), kept in session.results.problems.items() for problem in kept.items
    ]
    path = path_of(uri)
    faults = [
        (
            path,
            Problem(
                fault.severity,
                fault.message,
                "launch spec",
                Place(path, fault.span.line + 1, fault.span.column + 1),
            ),
        )
        for fault in spec_cache.faults(session, uri)
    ]
    return filed + faults


def problem_lines(session: Session, uri: str) -> list[str]:
    """Return every diagnostic as one line, `file:line:column: error: … [nvcc #20]`, with its notes indented."""
    return [
        relative(with_options(line))
        for path, problem in problems(session, uri)
        for line in summary.problem_lines(problem, path)
    ]


def unrepeated(session: Session, uri: str, failure: Failure) -> str:
    """Return a failure's sentence without the error that is printed above it."""
    counted = re.match(r".* does not compile \(\d+ errors?\)(?=: )", failure.message)
    errors = [problem.message for _, problem in problems(session, uri) if problem.severity == "error"]
    printed = any(failure.message.endswith(error.partition("\n")[0]) for error in errors)
    return counted[0] if counted and printed else with_options(failure.message)


def with_options(text: str) -> str:
    """Rewrite a sentence for the command line: `--flag=-DN=4` in place of the setting `nvcc_flags`."""

    def typed(match: re.Match[str]) -> str:
        flags = " ".join(f"--flag={flag}" for flag in re.findall(r'"([^"]*)"', match["flags"]))
        return {"set ": "add ", "Set ": "Add "}.get(match["set"], "") + flags

    return re.sub(r"(?P<set>[sS]et |)nvcc_flags = \[(?P<flags>[^\]]*)\]", typed, text)


def relative(text: str) -> str:
    """Name files in or below the current folder relative to it, as compilers do, at the beginning of a line or in a
    comment.
    """
    try:
        here = Path.cwd()
    except OSError:  # it has been removed
        return text
    return re.sub(rf"^( *|// ){re.escape(str(here))}/", r"\1", text, flags=re.MULTILINE)


def check_gpu(session: Session, named: str | None) -> None:
    """Check that a run can have the GPU of `--gpu`, once it is known what this machine has. Raises UsageError."""
    if named and (why := session.setup.gpu_refusal(named)):
        raise UsageError(f"--gpu: {why}")
