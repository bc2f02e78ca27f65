"""Finds kernels of Triton and its neighbours in the text of Python files. Nothing is imported or run.

A file is a row of top-level statements. Each is reduced to an `Outline` that is kept while its text stands, so a
keystroke makes one new outline. Names are resolved over all outlines, again only if the changed one offers something
different to the others.

While the text has a syntax error, the parser loses what is near it. A `TritonTracker` then keeps the last good result
of every kernel whose header (from the first decorator through the name) was not touched, so that lenses do not blink
while someone types. On error-free text its result is that of a fresh scan.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from hashlib import blake2b

from orbit_lsp.kernels.model import Kernel, Scan, Span, within_limit
from orbit_lsp.kernels.python.outline import Outline
from orbit_lsp.kernels.python.reader import ENTRIES, MAIN_GUARD, OutlineReader
from orbit_lsp.kernels.python.regions import Split, split
from orbit_lsp.kernels.python.walk import outline, unread
from orbit_remote.common import limits


def scan(text: str) -> Scan:
    """Return every kernel of a Python file; never raises."""
    return TritonTracker().scan(text)


class TritonTracker:
    def __init__(self) -> None:
        self._split: Split | None = None
        self._outlines: list[Outline] = []
        self._reader = OutlineReader()
        self._scanned: tuple[str, Scan] | None = None

    def scan(self, text: str) -> Scan:
        if self._scanned and self._scanned[0] == text:
            return self._scanned[1]
        readable = clean(text)
        self._split = split(readable, self._split)
        known = {region.text: region for region in self._outlines if region.statements}
        self._outlines = list(_within_limit(self._split.regions, known))
        fresh = self._reader.scan(self._outlines)
        if self._scanned and any(region.has_error for region in self._outlines):
            fresh = keep(clean(self._scanned[0]), self._scanned[1], readable, fresh)
        self._scanned = text, within_limit(fresh)
        return self._scanned[1]


def _within_limit(regions: Sequence[str], known: dict[str, Outline]) -> Iterator[Outline]:
    """Yield the outlines of as many regions as a file may have statements. The rest is `unread`."""
    statements = 0
    for region in regions:
        if statements >= limits.STATEMENTS.most:
            yield unread(region)
        else:
            known[region] = fresh = known.get(region) or outline(region)
            statements += fresh.statements
            yield fresh


# -- texts -----------------------------------------------------------------------------

_SURROGATE = re.compile("[\ud800-\udfff]")
_UNUSUAL = re.compile("\r(?!\n)|[\0\ud800-\udfff]")


_LONG = 1 << 16
"""A line of so many characters is data: no kernel is written in it, and an edit must not parse it again."""
_TARGET = re.compile(r"\s*+(?:[^\W\d]\w*+\s*=(?!=))?")


def clean(text: str) -> str:
    """Return a text that the parser can read, with the same number of characters: lone CRs end lines, NULs are
    blanks.

    A long line becomes a string that stands for its content, assigned to the line's own name.
    """
    if "\r" in text or "\0" in text or (not text.isascii() and _SURROGATE.search(text)):
        text = _UNUSUAL.sub(lambda match: {"\r": "\n", "\0": " "}.get(match[0], "\ufffd"), text)
    parts: list[str] = []
    done = 0
    for start, end in _long_lines(text):
        line = text[start:end]
        target = _TARGET.match(line)
        head = target[0] if target else ""
        if line.startswith("#", len(head)):
            continue
        content = f"'{blake2b(line.encode(), digest_size=16).hexdigest()}'"
        parts += (text[done:start], (head + content).ljust(end - start, "#"))
        done = end
    return "".join((*parts, text[done:])) if parts else text


def _long_lines(text: str) -> Iterator[tuple[int, int]]:
    """Yield where long lines start and end. Each holds a whole window of half its length, so only such windows are
    looked at.
    """
    end = 0
    for window in range(0, len(text), _LONG // 2):
        if window >= end and text.find("\n", window, window + _LONG // 2) < 0:
            start = text.rfind("\n", 0, window) + 1
            end = text.find("\n", window)
            end = len(text) if end < 0 else end
            if end - start >= _LONG:
                yield start, end


# -- what stays through a syntax error ----------------------------------------------------------


def keep(before: str, old: Scan, text: str, fresh: Scan) -> Scan:
    """Return `fresh` with the kernels of `old` that vanished although nobody touched their headers."""
    old_lines, new_lines = before.split("\n"), text.split("\n")
    by = len(new_lines) - len(old_lines)
    entries = tuple(
        name
        for name in (*ENTRIES, MAIN_GUARD)
        if name in fresh.entries or (name in old.entries and _still_there(name, text))
    )
    there = {(kernel.line, kernel.name) for kernel in fresh.kernels}
    kept: list[tuple[Kernel, str]] = []
    for kernel, digest in zip(old.kernels, old.digests, strict=True):
        top, first, last = kernel.whole.line, kernel.line, kernel.whole.end_line
        shift = next((n for n in (0, by) if _same_header(kernel, old_lines, new_lines, n)), None)
        if shift is None or (first + shift, kernel.name) in there:
            continue
        there.add((first + shift, kernel.name))
        untouched = old_lines[top : last + 1] == new_lines[top + shift : last + 1 + shift]
        kept.append((_moved(kernel, shift, shift if untouched else by, len(new_lines)), digest))
    if not kept:
        return replace(fresh, entries=entries)
    known = {kernel.qualified: kernel for kernel in old.kernels}
    for kernel, digest in zip(fresh.kernels, fresh.digests, strict=True):
        past = known.get(kernel.qualified, kernel)
        kept.append((replace(kernel, launchable=past.launchable, callers=past.callers), digest))
    kept.sort(key=lambda pair: (pair[0].line, pair[0].name_span.column))
    return replace(
        fresh,
        kernels=tuple(kernel for kernel, _ in kept),
        digests=tuple(digest for _, digest in kept),
        entries=entries,
    )


def _same_header(kernel: Kernel, old: list[str], new: list[str], shift: int) -> bool:
    """Say whether the lines from the first decorator through the name stand `shift` lines below where they stood."""
    top, first, column = kernel.whole.line, kernel.line, kernel.name_span.end_column
    return (
        top + shift >= 0
        and first + shift < len(new)
        and old[top:first] == new[top + shift : first + shift]
        and old[first][:column] == new[first + shift][:column]
    )


def _still_there(entry: str, text: str) -> bool:
    return (entry if entry == MAIN_GUARD else f"def {entry}(") in text


def _moved(kernel: Kernel, by: int, end_by: int, lines: int) -> Kernel:
    name, whole = kernel.name_span, kernel.whole
    end_line = min(max(whole.end_line + end_by, kernel.line + by), lines - 1)
    return replace(
        kernel,
        line=kernel.line + by,
        name_span=Span(name.line + by, name.column, name.end_line + by, name.end_column),
        whole=Span(whole.line + by, whole.column, end_line, whole.end_column),
    )
