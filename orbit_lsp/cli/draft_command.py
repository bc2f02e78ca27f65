"""`orbit-lsp draft`: launch specs for the kernels of a file that have none, as text or JSON."""

from __future__ import annotations

import sys

from orbit_lsp.cli import json_results
from orbit_lsp.cli.json_results import Draft
from orbit_lsp.cli.terminal_text import UsageError
from orbit_lsp.kernels.model import SPECIFIED
from orbit_lsp.specs import spec_cache
from orbit_lsp.state.kernel_ids import KernelId
from orbit_lsp.state.session import Session
from orbit_lsp.views.spec import spec_drafts
from orbit_remote.common.plain_text import visible


def run(session: Session, uri: str, target: KernelId | None, *, as_json: bool) -> int:
    """Draft specs and print them. Return the exit code. Raises UsageError if the kernel that is named cannot have
    one.
    """
    lines = spec_cache.text_lines(session, uri).lines
    drafted: list[Draft] = []
    reasons: list[str] = []
    for known, kernel, _ in session.kernels(uri):
        if target not in (None, known) or not kernel.launchable or spec_cache.spec_of(session, uri, kernel):
            continue
        without = kernel.generator or kernel.dsl not in SPECIFIED
        if drafts := [] if without else spec_drafts.written(lines, kernel):
            title, text = drafts[0]
            drafted.append(Draft(known.key, kernel.whole.line + 1, title, text))
        elif target:
            raise UsageError(spec_drafts.none(session, uri, kernel))
        elif not without:
            reasons.append(spec_drafts.none(session, uri, kernel).removeprefix("orbit: "))
    if target and not drafted:
        raise UsageError(f"{target.key} has a launch spec, or only other kernels call it")
    for reason in reasons:
        print(visible(f"note: {reason}"), file=sys.stderr)
    if as_json:
        print(json_results.text(drafted))
        return 0
    for each in drafted:
        print(visible(f"{each.text}{lines[each.line - 1]}"), end="\n\n")
    if not (drafted or reasons):
        print("no kernel in this file needs a launch spec", file=sys.stderr)
    return 0
