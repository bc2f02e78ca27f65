"""Decides which of several kernels with one name a mangled symbol means: the one whose parameters agree best with the
symbol's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from orbit_lsp.kernels import Kernel
from orbit_lsp.kernels.cuda.functions import CudaText, named
from orbit_remote.common import symbols

_WORD = re.compile(r"\w+|[^\w\s]")
_SAYS_NOTHING = frozenset(
    (
        "const",
        "volatile",
        "restrict",
        "__restrict__",
        "__restrict",
        "struct",
        "class",
        "enum",
        "__grid_constant__",
    )
)


def best(symbol: str, candidates: Sequence[tuple[Kernel, str]]) -> int | None:
    """Return the index of the candidate that the symbol means. Each candidate is a kernel with its file's text.
    Return None if several may be meant.
    """
    wanted = _parameters(symbols.demangle(symbol))
    if wanted is None:
        return None
    scores: list[tuple[int, int]] = []
    for at, (kernel, text) in enumerate(candidates):
        function = CudaText(text).kernel(kernel) if not kernel.template else None
        given = [_type(_without_name(part)) for part in function.parameter_list()] if function else None
        if given is not None and len(given) == len(wanted):
            scores.append((sum(one == other for one, other in zip(given, wanted, strict=True)), at))
    scores.sort(reverse=True)
    if not scores or (len(scores) > 1 and scores[0][0] == scores[1][0]):
        return None
    return scores[0][1]


def _parameters(demangled: str) -> list[str] | None:
    """Return the types of `scale(float const*, int)`, or None for a name without parameters."""
    if not demangled.endswith(")"):
        return None
    inside = demangled[symbols.opening(demangled, "(") + 1 : -1]
    parts, depth = [""], 0
    for character in inside:
        depth += (character in "(<[") - (character in ")>]")
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    types = [_type(_WORD.findall(part)) for part in parts]
    return [] if types in ([""], ["void"]) else types


def _type(words: Sequence[str]) -> str:
    """Return the type of a parameter, without the words that do not change how it is passed."""
    return "".join(word for word in words if word not in _SAYS_NOTHING)


def _without_name(words: Sequence[str]) -> Sequence[str]:
    return words[:-1] if named(words) else words
