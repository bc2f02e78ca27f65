"""Follows what the body of a kernel computes from the indices of its thread through the names of its variables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from orbit_lsp.kernels.cuda.functions import closings
from orbit_lsp.kernels.cuda.lexer import IDENTIFIER, CudaToken

ASSIGNS: Final = frozenset(["=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="])
_PASSES: Final = 3
"""Over the assignments: as far as a value is followed against their order."""
_THREAD: Final = 1
_BLOCK: Final = 2
_BLOCK_SIZE: Final = 4
_INDICES: Final = {"threadIdx": _THREAD, "blockIdx": _BLOCK, "blockDim": _BLOCK_SIZE}
_MOST_READ: Final = 1 << 19
"""How many words are read of expressions, which may stand in one another."""
_COMPARE: Final = frozenset(["if", "while", "switch", "min", "max", "clamp", "assert"])


class ThreadValues:
    def __init__(self, tokens: Sequence[CudaToken]) -> None:
        self.words = [token.text for token in tokens]
        self.closing = closings(self.words)
        self._opening = {closing: opening for opening, closing in self.closing.items()}
        self._left = _MOST_READ
        self._of: dict[str, int] = {}
        """What a variable depends on, in whatever way."""
        self._index: dict[str, int] = {}
        """What it is by arithmetic alone: neither read from memory nor returned by a function."""
        assignments = [
            (self.words[at - 1], self.words[at + 1 : end], [*self._outside(at + 1, end)])
            for at, end in self._assigning()
        ]
        self.assigned = {name for name, _, _ in assignments}
        for _ in range(_PASSES):
            for name, every, outside in assignments:
                self._of[name] = self._of.get(name, 0) | _depends(every, self._of)
                self._index[name] = self._index.get(name, 0) | _depends(outside, self._index)

    def _assigning(self) -> Iterator[tuple[int, int]]:
        """Yield where a variable is assigned, and where the expression ends."""
        for at, word in enumerate(self.words):
            if word in ASSIGNS and at and IDENTIFIER.match(self.words[at - 1]):
                end = at + 1
                while (
                    end < len(self.words)
                    and self.words[end] not in {";", ",", ")", "}", "]"}
                    and self._left > 0
                ):
                    self._left -= 1
                    end = self.closing.get(end, end) + 1
                self._left -= end - at
                yield at, end

    def _outside(self, start: int, end: int) -> Iterator[str]:
        """Yield the words that stand neither between [ and ] nor in the arguments of a function."""
        at = start
        while at < end:
            word = self.words[at]
            called = word == "(" and at > start and IDENTIFIER.match(self.words[at - 1])
            if word == "[" or called:
                at = self.closing.get(at, at)
            else:
                yield word
            at += 1

    def are_compared(self) -> bool:
        """Say whether a condition, a minimum or a remainder has a value that depends on the thread's indices."""
        for part in self._conditions():
            self._left -= len(part)
            if self._left < 0 or _depends(part, self._of) & (_THREAD | _BLOCK):
                return True
        return False

    def _conditions(self) -> Iterator[Sequence[str]]:
        words = self.words
        start = 0
        """Of the expression, up to a `?`."""
        for at, word in enumerate(words):
            if word in {";", "{", "}"}:
                start = at + 1
            elif word == "?":
                yield words[start:at]
                start = at + 1
            elif word in _COMPARE or (word == "for" and words[at + 1 : at + 2] == ["("]):
                part = words[at + 1 : self.closing.get(at + 1, at + 1)]
                if word == "for":
                    first = part.index(";") if ";" in part else 0
                    part = part[first : part.index(";", first + 1) if ";" in part[first + 1 :] else None]
                yield part
            elif word in {"%", "&", "%=", "&="}:
                before = self._opening.get(at - 1, at - 1)
                yield words[max(0, before) : at]

    def writes(self) -> Iterator[tuple[int, str, Sequence[str]]]:
        """Yield where `name[index] =` stands, with the name and the words of the index."""
        for at in range(1, len(self.words)):
            name = self.words[at - 1]
            if (
                self.words[at] == "["
                and IDENTIFIER.match(name)
                and self.words[max(0, at - 2)] not in {".", "->"}
            ):
                end = self.closing.get(at, at)
                self._left -= end - at
                if self._left < 0:
                    return
                if self.words[end + 1 : end + 2] and self.words[end + 1] in ASSIGNS:
                    yield at, name, [*self._outside(at + 1, end)]

    def is_global(self, index: Iterable[str]) -> bool:
        """Say whether an index is computed as blockIdx · blockDim + threadIdx. With other indices a block has a row
        of its own, and fits.
        """
        return _depends(index, self._index) == _BLOCK | _THREAD | _BLOCK_SIZE

    def of_thread(self, words: Iterable[str]) -> bool:
        return bool(_depends(words, self._of) & _THREAD)


def _depends(words: Iterable[str], known: Mapping[str, int]) -> int:
    on = 0
    for word in words:
        on |= _INDICES.get(word, 0) or known.get(word, 0)
    return on
