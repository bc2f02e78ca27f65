"""Shows everything known about a kernel when the pointer rests on its signature or on a line of its profile."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence

from lsprotocol import types as lsp

from orbit_lsp.state.session import Session
from orbit_lsp.views import harness_view, kernel_status, kernel_tables, positions
from orbit_lsp.views.answer import place, summary_lines
from orbit_lsp.views.explain import listing_hover
from orbit_lsp.views.profile import profile_hover
from orbit_lsp.views.tables import Section, render


def hover(
    session: Session, uri: str, line: int, *, markdown: bool, now: float | None = None
) -> lsp.Hover | None:
    """Return a hover for a kernel's signature lines. Return None elsewhere, so that other servers' hovers stand
    alone.
    """
    file = session.files.get(uri)
    if file is None:
        return None
    for known in kernel_status.of(session, uri):
        span = known.kernel.name_span
        last = max(span.end_line, place.signature_end(file.document, known.kernel))
        if known.kernel.whole.line <= line <= last:
            at = time.time() if now is None else now
            sections = kernel_tables.content(session, uri, known, at)
            answer = summary_lines.lines(session, uri, known, at)
            if answer is None and not sections:
                return None
            first: list[Section] = [answer] if answer else []
            text = _rendered([*first, *sections], markdown=markdown)
            kind = lsp.MarkupKind.Markdown if markdown else lsp.MarkupKind.PlainText
            where = positions.of_span(session, file.document, span)
            return lsp.Hover(lsp.MarkupContent(kind, text), where)
    return _of_line(session, uri, line, markdown=markdown) or _of_contract(
        session, uri, line, markdown=markdown, now=time.time() if now is None else now
    )


def _rendered(sections: Sequence[Section], *, markdown: bool) -> str:
    return render(sections, markdown=markdown, columns=summary_lines.COLUMNS)


def _of_line(session: Session, uri: str, line: int, *, markdown: bool) -> lsp.Hover | None:
    """Return what a profile counted on exactly this line, and what it was compiled to."""
    sections = [*profile_hover.of_line(session, uri, line), *listing_hover.of_line(session, uri, line)]
    kind = lsp.MarkupKind.Markdown if markdown else lsp.MarkupKind.PlainText
    return lsp.Hover(lsp.MarkupContent(kind, _rendered(sections, markdown=markdown))) if sections else None


def _of_contract(session: Session, uri: str, line: int, *, markdown: bool, now: float) -> lsp.Hover | None:
    harness_status = kernel_status.harness_status(session, uri)
    if (
        harness_status is None
        or line != harness_status.entry.span.line
        or not (harness_status.result or harness_status.profile)
    ):
        return None
    sections: list[Section] = []
    if harness_status.result:
        mark = ", edited since" if harness_status.stale else ""
        title = (
            f"{harness_status.entry.name}: checked {kernel_status.ago(now - harness_status.result.at)}{mark}"
        )
        sections.append(
            (
                title,
                harness_view.rows(harness_status.result)
                + kernel_tables.run_rows(harness_status.result.finished),
            )
        )
    if harness_status.profile:
        sections += kernel_tables.profile_sections(
            harness_status.entry.name, harness_status.profile, now, stale=harness_status.profile_stale
        )
    kind = lsp.MarkupKind.Markdown if markdown else lsp.MarkupKind.PlainText
    return lsp.Hover(lsp.MarkupContent(kind, _rendered(sections, markdown=markdown)))


def fenced(answer: lsp.Hover) -> lsp.Hover:
    """Return a hover of plain text as a block of code in markdown. Columns stay columns in clients that draw no
    tables.
    """
    assert isinstance(answer.contents, lsp.MarkupContent)
    text = answer.contents.value
    fence = "`" * max([3, *(len(run) + 1 for run in re.findall("`+", text))])
    value = f"{fence}text\n{text}\n{fence}"
    return lsp.Hover(lsp.MarkupContent(lsp.MarkupKind.Markdown, value), answer.range)
