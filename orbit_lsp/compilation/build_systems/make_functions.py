"""Evaluates make's functions that only change texts: `$(patsubst %.cu,%.o,a.cu)` and its short form `$(SOURCES:.cu=.o)`."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Sequence

MOST_WORDS = 2_000
"""Words of one value that are read; the others are ignored."""
_MOST_PAIRS = 200_000
"""Words times patterns of a filter."""
SUBSTITUTED = re.compile(r"([\w.-]+):([^=]*)=(.*)", re.DOTALL)
"""A reference that replaces the ends of a variable's words, without its brackets."""


def stem_of(pattern: str, name: str) -> str | None:
    """Return what `%` stands for if the pattern fits the name, "" if it is the name. Return None if it does not fit."""
    head, percent, tail = pattern.partition("%")
    if not percent:
        return "" if pattern == name else None
    fits = len(name) > len(head) + len(tail) and name.startswith(head) and name.endswith(tail)
    return name[len(head) : len(name) - len(tail)] if fits else None


def applied(function: str, arguments: Sequence[str], most: int) -> str | None:
    """Return the result of one of these functions. Return None if the name is unknown, arguments are missing, or the
    result would have more than `most` characters.
    """
    count = count_of(function)
    if not count or len(arguments) < count or _is_longer(function, arguments, most):
        return None
    if count == 1:
        return _OF_ONE[function](arguments[0])
    first, second, *last = arguments
    return _OF_TWO[function](first, second) if count == 2 else _OF_THREE[function](first, second, last[0])


def count_of(function: str) -> int:
    """Return how many arguments one of these functions takes, 0 for any other name. Commas behind the last argument are text."""
    known = (_OF_ONE, _OF_TWO, _OF_THREE)
    return next((count for count, functions in enumerate(known, 1) if function in functions), 0)


def _is_longer(function: str, arguments: Sequence[str], most: int) -> bool:
    """Say whether what is put in could make the value too long: once for each word, or for each place of `subst`."""
    *added, value = arguments
    times = value.count(added[0]) if function == "subst" else len(value.split())
    if function.startswith("filter") and times * len(added[0].split()) > _MOST_PAIRS:
        return True
    return len(value) + times * len(added[-1] if added else "") > most


def _words(value: str) -> list[str]:
    return value.split()[:MOST_WORDS]


def _subst(old: str, new: str, value: str) -> str:
    return value.replace(old, new) if old else value


def _patsubst(pattern: str, made: str, value: str) -> str:
    pattern, made = pattern.strip(), made.strip()
    stems = [(each, stem_of(pattern, each)) for each in _words(value)]
    return " ".join(each if stem is None else made.replace("%", stem, 1) for each, stem in stems)


def _filtered(patterns: str, value: str, *, out: bool) -> str:
    wanted = _words(patterns)
    fits = [(each, any(stem_of(one, each) is not None for one in wanted)) for each in _words(value)]
    return " ".join(each for each, fit in fits if fit != out)


def _each(change: Callable[[str], str]) -> Callable[[str], str]:
    return lambda value: " ".join(filter(None, map(change, _words(value))))


_OF_ONE: dict[str, Callable[[str], str]] = {
    "strip": lambda value: " ".join(_words(value)),
    "sort": lambda value: " ".join(sorted(set(_words(value)))),
    "firstword": lambda value: "".join(_words(value)[:1]),
    "lastword": lambda value: "".join(_words(value)[-1:]),
    "basename": _each(lambda each: posixpath.splitext(each)[0]),
    "suffix": _each(lambda each: posixpath.splitext(each)[1]),
    "dir": _each(lambda each: each[: each.rfind("/") + 1] or "./"),
    "notdir": _each(lambda each: each[each.rfind("/") + 1 :]),
}
_OF_TWO: dict[str, Callable[[str, str], str]] = {
    "filter": lambda patterns, value: _filtered(patterns, value, out=False),
    "filter-out": lambda patterns, value: _filtered(patterns, value, out=True),
    "addprefix": lambda prefix, value: " ".join(prefix.strip() + each for each in _words(value)),
    "addsuffix": lambda suffix, value: " ".join(each + suffix.strip() for each in _words(value)),
}
_OF_THREE: dict[str, Callable[[str, str, str], str]] = {"subst": _subst, "patsubst": _patsubst}
