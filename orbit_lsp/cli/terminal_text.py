"""Text that is safe to print: diagnostics as lines, without control characters."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from orbit_lsp.runs import summary
from orbit_lsp.specs import spec_cache
from orbit_lsp.state.kernel_ids import KernelId
from orbit_lsp.state.session import Session, path_of
from orbit_remote.common.messages import EXIT_CODES
from orbit_remote.common.plain_text import visible


class UsageError(Exception):
    """The command line or the file it names; the text is the sentence to print."""


def refused(text: str, *, as_json: bool) -> int:
    """Print why a command line cannot be carried out, with --json as an object too; its exit code."""
    if as_json:
        print(json.dumps({"failure": {"category": "usage", "message": text}}, ensure_ascii=False, indent=2))
    print(visible(f"orbit-lsp: error: {text}"), file=sys.stderr)
    return EXIT_CODES["usage"]


def only_kernel(kernels: Sequence[KernelId]) -> KernelId:
    """The one that a command is about where it names none. Raises UsageError."""
    if not kernels:
        raise UsageError("no kernel in this file can be launched")
    if len(kernels) > 1:
        have = ", ".join(kernel.key for kernel in kernels)
        raise UsageError(f"which kernel? Add --kernel; this file has: {have}")
    return kernels[0]


def problems(session: Session) -> list[str]:
    """Every diagnostic as one line, `file:line:column: error: … [nvcc #20]`, its notes indented."""
    shown: list[str] = []
    for (_, uri), kept in session.results.problems.items():
        for problem in kept.items:
            shown += summary.problem_lines(problem, path_of(uri))
    return shown


def spec_faults(session: Session, uri: str) -> list[str]:
    """The faults of a file's launch specs, a line each: `file:line:column: error: … [launch spec]`."""
    return [
        f"{path_of(uri)}:{one.span.line + 1}:{one.span.column + 1}: {one.severity}: {one.message} [launch spec]"
        for one in spec_cache.faults(session, uri)
    ]
