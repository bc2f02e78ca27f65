"""Names under which Python calls a CUDA kernel, in C++ texts near it: those of bindings (`m.def("gelu", &gelu)`, `TORCH_LIBRARY`), and
of C functions (`extern "C"`), which ctypes and cffi call in a shared library
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import islice
from pathlib import PurePosixPath

from orbit_lsp.drivers.index import WordIndex
from orbit_lsp.kernels import CUDA_SUFFIXES, HEADER_SUFFIXES, HOST_SUFFIXES
from orbit_lsp.kernels.cuda.functions import CudaFunction, CudaText, closings
from orbit_remote.common.lazy_dataclass import dataclass

SUFFIXES = (*CUDA_SUFFIXES, ".c", *HOST_SUFFIXES, *HEADER_SUFFIXES)
_MOST_FILES = 400
_MOST_CHARACTERS = 8 << 20
_DECLARING = ("setup.py", "pyproject.toml")
"""Files that name a module, in the kernel's folder or above."""
_ROUNDS = 4
_BINDS = frozenset(("def", "impl"))
_NAME = re.compile(r'"(?:\w+::)?(\w+)')
_LITERAL = re.compile(r"""["']([\w.]+)["']""")
_BINDING = re.compile(r'\b(?:def|impl)\s*\(\s*"')
_EXPORTING = re.compile(r'\bextern\s+"C"')
_WORD = re.compile(r"[A-Za-z_]\w*")
_MODULE = re.compile(r"\b(?:PYBIND11_MODULE|NB_MODULE)\(\s*(\w+)")


@dataclass(frozen=True, slots=True)
class Bindings:
    """`names` are those that Python says, each with the functions from the kernel to it; `modules` are words that may name the
    module that has them. `exported` are C functions of a shared library, likewise.
    """

    names: dict[str, tuple[str, ...]]
    modules: frozenset[str]
    exported: dict[str, tuple[str, ...]]


class NearTexts:
    """The C++ texts near one of them, as they are on the disk now. They are read on demand."""

    def __init__(self, index: WordIndex, place: str) -> None:
        self._index, self._place = index, place
        self._functions: dict[str, list[CudaFunction]] = {}
        self._macros: dict[str, list[tuple[str, frozenset[str]]]] = {}

    @cached_property
    def texts(self) -> dict[str, str]:
        texts: dict[str, str] = {}
        left = _MOST_CHARACTERS
        for near in (self._place, *islice(self._index.places(self._place, SUFFIXES), _MOST_FILES)):
            if near not in texts and left > 0:
                texts[near] = self._index.text(near)
                left -= len(texts[near])
        return texts

    @cached_property
    def bind(self) -> bool:
        """Say whether any of them gives Python names."""
        return any(_BINDING.search(text) for text in self.texts.values())

    @cached_property
    def export(self) -> bool:
        """Say whether any of them has functions that a shared library exports under their own names."""
        return any(_EXPORTING.search(text) for text in self.texts.values())

    @cached_property
    def modules(self) -> frozenset[str]:
        folders = [*map(str, PurePosixPath(self._place).parents)]
        files = (posixpath.normpath(posixpath.join(each, name)) for each in folders for name in _DECLARING)
        declared = "".join(map(self._index.text, files))
        modules = {part for literal in _LITERAL.findall(declared) for part in literal.split(".")}
        modules.update(name for text in self.texts.values() for name in _MODULE.findall(text))
        return frozenset(modules)

    def functions(self, place: str) -> list[CudaFunction]:
        if place not in self._functions:
            text = CudaText(self.texts[place])
            self._functions[place] = list(text.functions())
            self._macros[place] = [
                (each.name, frozenset(_WORD.findall(each.body))) for each in text.macros.values()
            ]
        return self._functions[place]

    def macros(self, place: str) -> list[tuple[str, frozenset[str]]]:
        """Return the macros that a text defines, each with the words that it stands for."""
        self.functions(place)
        return self._macros[place]


def bindings(near: NearTexts, kernel: str) -> Bindings:
    """Return what leads from a kernel of a C++ text to Python."""
    names: dict[str, tuple[str, ...]] = {}
    if not near.bind and not near.export:
        return Bindings(names, frozenset(), {})
    base = kernel.rpartition("::")[2]
    ways: dict[str, tuple[str, ...]] = {base: ()}
    for _ in range(_ROUNDS):
        known = dict(ways)
        for place, text in near.texts.items():
            if not any(name in text for name in known):
                continue
            for function in near.functions(place):
                called = next((name for name in function.words if name in known), None)
                if called is None:
                    continue
                bound = list(_bound(function.words, known))
                for name, host in bound:
                    names.setdefault(name, (*known[host], host) if known[host] or host != kernel else (host,))
                if not bound:
                    ways.setdefault(function.name, (*known[called], called) if called != kernel else ())
        if len(ways) == len(known):
            break
    exported = {host: (*way, host) for host, way in ways.items() if host != base} if near.export else {}
    return Bindings(names, near.modules, exported)


def _bound(words: Sequence[str], known: dict[str, tuple[str, ...]]) -> Iterator[tuple[str, str]]:
    """Yield (name, what it is bound to) for each `def("name", &f)` in the words of a function."""
    ends = closings(words)
    for at, word in enumerate(words[:-3]):
        if word in _BINDS and words[at + 1] == "(" and (match := _NAME.match(words[at + 2])):
            inside = words[at + 3 : ends.get(at + 1, at)]
            if host := next((each for each in inside if each in known), None):
                yield match[1], host
