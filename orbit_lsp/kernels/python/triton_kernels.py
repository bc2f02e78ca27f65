"""Triton (and its neighbours in Python) -> kernels: the file's text says, nothing is imported or run.

A file is a row of top-level statements. Each is reduced to an `Outline` that is kept while its text
stands; a keystroke makes one new outline. Names are resolved over all of them, anew only where what
the changed one offers to the others is different.

While the text has a syntax error, the parser loses what is near it. A `TritonTracker` then keeps the
last good result of every kernel whose header, from the first decorator through the name, was not
touched: lenses do not blink while someone types. On error-free text it says what a fresh scan says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from hashlib import blake2b
from itertools import accumulate

from orbit_lsp.kernels.model import Edit, Kernel, Scan, Span
from orbit_lsp.kernels.python.outline import Outline
from orbit_lsp.kernels.python.reader import ENTRIES, MAIN_GUARD, Reader
from orbit_lsp.kernels.python.regions import Change, Split, resplit, split
from orbit_lsp.kernels.python.walk import outline


def scan(text: str) -> Scan:
    """Every kernel of a Python file; never raises."""
    return TritonTracker(text).scan


class TritonTracker:
    """The scan of a text that is being edited."""

    def __init__(self, text: str) -> None:
        self._text = clean(text)
        self._split = split(self._text)
        self._outlines: list[Outline] = []
        self._reader = Reader()
        self._replace(0, 0, self._split.starts)
        self._scan = self._reader.scan(self._outlines, self._rows())

    @property
    def scan(self) -> Scan:
        return self._scan

    def update(self, edits: Sequence[Edit], text: str) -> Scan:
        """What `edits` changed is found by comparing: that is right for any edits, and cheap."""
        del edits
        text = clean(text)
        if text == self._text:
            return self._scan
        before, self._text = self._text, text
        change = difference(before, text)
        by = change.new_end - change.old_end
        first, found, after = resplit(self._split, text, change)
        starts = self._split.starts
        kept = [start + by for start in starts[after:]]
        self._split = Split([*starts[:first], *found.starts, *kept], found.recovered)
        self._replace(first, len(kept), found.starts)
        fresh = self._reader.scan(self._outlines, self._rows())
        if any(one.has_error for one in self._outlines):
            fresh = keep(self._scan, fresh, before, text, change)
        self._scan = fresh
        return fresh

    def _replace(self, first: int, kept: int, found: Sequence[int]) -> None:
        """Outline the regions that begin at `found`; `first` regions before them and `kept` after stay."""
        last = len(self._outlines) - kept
        known = {one.text: one for one in self._outlines[first:last]}
        ends = self._split.starts[first + 1 : first + len(found) + 1]
        if len(ends) < len(found):
            ends.append(len(self._text))
        texts = [self._text[start:end] for start, end in zip(found, ends, strict=True)]
        self._outlines[first:last] = [known.get(text) or outline(text) for text in texts]

    def _rows(self) -> list[int]:
        """The line at which each region begins."""
        return list(accumulate((one.lines for one in self._outlines), initial=0))


# -- texts and edits -----------------------------------------------------------------------------

_SURROGATE = re.compile("[\ud800-\udfff]")
_UNUSUAL = re.compile("\r(?!\n)|[\0\ud800-\udfff]")


_LONG = 1 << 16
"""A line of so many characters is data: no kernel is written in it, and an edit must not parse it again."""
_TARGET = re.compile(r"\s*+(?:[^\W\d]\w*+\s*=(?!=))?")


def clean(text: str) -> str:
    """What the parser can read, character for character: lone CRs end lines, NULs are blanks.

    A long line becomes a string that stands for its content, assigned to what it was assigned to.
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
    """Where they start and end. Each holds a whole window of half its length, so only those are looked at."""
    end = 0
    for window in range(0, len(text), _LONG // 2):
        if window >= end and text.find("\n", window, window + _LONG // 2) < 0:
            start = text.rfind("\n", 0, window) + 1
            end = text.find("\n", window)
            end = len(text) if end < 0 else end
            if end - start >= _LONG:
                yield start, end


def difference(old: str, new: str) -> Change:
    """The one change that leads from `old` to `new`."""
    start = _common(old, new, min(len(old), len(new)), from_end=False)
    same = _common(old, new, min(len(old), len(new)) - start, from_end=True)
    return Change(start, len(old) - same, len(new) - same)


def _common(a: str, b: str, limit: int, *, from_end: bool) -> int:
    """How many characters two texts share at one end, at most `limit`; by halving, which slices fast."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        if (
            a[len(a) - middle : len(a) - low] == b[len(b) - middle : len(b) - low]
            if from_end
            else a[low:middle] == b[low:middle]
        ):
            low = middle
        else:
            high = middle - 1
    return low


# -- what stays through a syntax error ----------------------------------------------------------


def keep(old: Scan, fresh: Scan, before: str, after: str, change: Change) -> Scan:
    """`fresh`, with the kernels of `old` that vanished though nobody touched their headers."""
    first_touched = before.count("\n", 0, change.start)
    last_touched = before.count("\n", 0, change.old_end)
    old_lines, new_lines = before.split("\n"), after.split("\n")
    by = len(new_lines) - len(old_lines)
    entries = tuple(
        name
        for name in (*ENTRIES, MAIN_GUARD)
        if name in fresh.entries or (name in old.entries and _still_there(name, after))
    )
    there = {(kernel.line, kernel.name) for kernel in fresh.kernels}
    kept: list[tuple[Kernel, str]] = []
    for kernel, digest in zip(old.kernels, old.digests, strict=True):
        first, column = kernel.line, kernel.name_span.end_column
        shift = 0 if first <= first_touched else by if kernel.whole.line > last_touched else None
        if shift is None or (first + shift, kernel.name) in there:
            continue
        top = kernel.whole.line
        if (
            old_lines[top:first] == new_lines[top + shift : first + shift]
            and first + shift < len(new_lines)
            and old_lines[first][:column] == new_lines[first + shift][:column]
        ):
            kept.append(
                (
                    _moved(
                        kernel, shift, by if kernel.whole.end_line > last_touched else shift, len(new_lines)
                    ),
                    digest,
                )
            )
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
