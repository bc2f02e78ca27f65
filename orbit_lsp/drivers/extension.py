"""Finds the names under which Python calls a CUDA kernel. They stand in C++ texts near it: names of bindings (`m.def("gelu", &gelu)`,
`TORCH_LIBRARY`, `PyMethodDef`, macros that export a function), names of host functions, which a shared library that
ctypes opens or an extension made of the text has, and in Cython's wrappers. The kernel's own name is one, too: CuPy
and others look a kernel up by it.
"""

from __future__ import annotations

import posixpath
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
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
_MOST_WORDS = 1 << 20
"""Of the functions that `TextFunctions` keeps, 8 bytes each."""
DECLARING = ("setup.py", "pyproject.toml")
"""Files that name a module, in the kernel's folder or above."""
_ROUNDS = 4
_BINDS = frozenset(("def", "impl"))
_NAME = re.compile(r'"(?:\w+::)?(\w+)')
_LITERAL = re.compile(r"""["']([\w.]+)["']""")
_BINDING = re.compile(r'\b(?:def|impl)\s*\(\s*"')
_EXPORTING = re.compile(r'\bextern\s+"C"')
_METHOD = re.compile(
    r'\{\s{0,40}"(\w+)"\s{0,40},\s{0,40}(?:\([^()]{0,80}\)\s{0,40})?&?\s{0,40}(\w+)[^{};]{0,200}?\bMETH_'
)
"""A row of CPython's PyMethodDef."""
_EXPORT_MACRO = re.compile(
    r'\b[A-Z][A-Z\d_]{0,40}?(?:DEFINE|EXPORT|REGISTER|BIND)[A-Z\d_]{0,40}\s{0,20}\(\s{0,40}"?(?:\w{1,80}(?:::|\.))?(\w{1,80})"?\s{0,40},\s{0,40}&?(?:\w{1,80}::){0,8}(\w{1,80})'
)
"""A macro that gives a function a name, as XLA_FFI_DEFINE_HANDLER_SYMBOL and TVM_FFI_DLL_EXPORT_TYPED_FUNC."""
_MACRO_WORDS = ("DEFINE", "EXPORT", "REGISTER", "BIND")
_CYTHON = re.compile(r"^(?:def|cpdef)\s[^\n(]{0,200}?(\w+)\s{0,20}\(", re.MULTILINE)
_INLINE = ("load_inline",)
"""Words of Python by which an extension is made of a CUDA text, without a binding in it."""
_WORD = re.compile(r"[A-Za-z_]\w*")
_MODULE = re.compile(r"\b(?:PYBIND11_MODULE|NB_MODULE)\(\s*(\w+)")


@dataclass(frozen=True, slots=True)
class Bindings:
    """`names` are those that Python says, each with the functions from the kernel to it; `modules` are words that may name the
    module that has them. `exported` are names of functions that Python may call by their own names, likewise, and the
    kernel's.
    """

    names: dict[str, tuple[str, ...]]
    modules: frozenset[str]
    exported: dict[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class TextFunctions:
    """The functions of a C++ text, with their words and parameters alone, and its macros, each with the words that it
    stands for.
    """

    functions: tuple[CudaFunction, ...]
    macros: tuple[tuple[str, frozenset[str]], ...]


class TextCache:
    """The functions of the C++ texts of a project. A text is split into tokens once, until it changes: 400 files take
    a second of processor time.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, int, TextFunctions]] = {}
        self._words = 0

    def functions(self, place: str, text: str) -> TextFunctions:
        """Return the functions of the text that a file has now."""
        known = self._known.get(place)
        if known is not None and known[0] == hash(text):
            return known[2]
        self._drop(place)
        code = CudaText(text)
        made = TextFunctions(
            tuple(
                replace(each, head=(), body=(), words=tuple(map(sys.intern, each.words)))
                for each in code.functions()
            ),
            tuple((each.name, frozenset(_WORD.findall(each.body))) for each in code.macros.values()),
        )
        words = sum(len(each.words) for each in made.functions)
        self._known[place] = hash(text), words, made
        self._words += words
        while self._words > _MOST_WORDS and len(self._known) > 1:
            self._drop(next(iter(self._known)))
        return made

    def _drop(self, place: str) -> None:
        if known := self._known.pop(place, None):
            self._words -= known[1]


class NearTexts:
    """The C++ texts near one of them, as they are on the disk now. They are read on demand."""

    def __init__(self, index: WordIndex, place: str, cache: TextCache) -> None:
        self._index, self._place, self._cache = index, place, cache
        self._read: dict[str, TextFunctions] = {}

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
        return bool(self.given or self.cython) or any(
            ("def" in text or "impl" in text) and _BINDING.search(text) for text in self.texts.values()
        )

    @cached_property
    def export(self) -> bool:
        """Say whether Python may call functions of these texts by their own C names."""
        inline = any(self._index.mention(word) for word in _INLINE)
        return inline or any('"C"' in text and _EXPORTING.search(text) for text in self.texts.values())

    @cached_property
    def given(self) -> list[tuple[str, str]]:
        """Return (name, host function) for each name that a table or a macro gives."""
        return [
            pair
            for text in self.texts.values()
            for words, expression in ((("METH_",), _METHOD), (_MACRO_WORDS, _EXPORT_MACRO))
            if any(word in text for word in words)
            for pair in expression.findall(text)
        ]

    @cached_property
    def cython(self) -> dict[str, frozenset[str]]:
        """Return the functions that Cython's texts give Python, with the words of their bodies."""
        functions: dict[str, frozenset[str]] = {}
        for place in islice(self._index.places(self._place, (".pyx",)), _MOST_FILES):
            starts = [*_CYTHON.finditer(text := self._index.text(place))]
            for start, end in zip(starts, [*(each.start() for each in starts[1:]), len(text)], strict=True):
                functions[start[1]] = frozenset(_WORD.findall(text, start.end(), end))
        return functions

    @cached_property
    def modules(self) -> frozenset[str]:
        folders = [*map(str, PurePosixPath(self._place).parents)]
        files = (posixpath.normpath(posixpath.join(each, name)) for each in folders for name in DECLARING)
        declared = "".join(map(self._index.text, files))
        modules = {part for literal in _LITERAL.findall(declared) for part in literal.split(".")}
        modules.update(
            name for text in self.texts.values() if "_MODULE" in text for name in _MODULE.findall(text)
        )
        return frozenset(modules)

    def functions(self, place: str) -> tuple[CudaFunction, ...]:
        return self._functions(place).functions

    def macros(self, place: str) -> tuple[tuple[str, frozenset[str]], ...]:
        """Return the macros that a text defines, each with the words that it stands for."""
        return self._functions(place).macros

    def _functions(self, place: str) -> TextFunctions:
        if place not in self._read:  # the cache may have dropped it by now
            self._read[place] = self._cache.functions(place, self.texts[place])
        return self._read[place]


def bindings(near: NearTexts, kernel: str) -> Bindings:
    """Return the bindings that lead from a kernel of a C++ text to Python."""
    names: dict[str, tuple[str, ...]] = {}
    base = kernel.rpartition("::")[2]
    if not near.bind and not near.export:
        return Bindings(names, frozenset(), {base: ()})
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
    for name, host in near.given:
        if host in ways:
            names.setdefault(name, (*ways[host], host))
    for name, words in near.cython.items():
        if host := next((each for each in ways if each in words), None):
            names.setdefault(name, (*ways[host], host))
    hosts = ways if near.export else (base,)
    exported = {host: (*ways[host], host) if host != base else () for host in hosts}
    return Bindings(names, near.modules, exported)


def _bound(words: Sequence[str], known: dict[str, tuple[str, ...]]) -> Iterator[tuple[str, str]]:
    """Yield (name, what it is bound to) for each `def("name", &f)` in the words of a function."""
    ends = closings(words)
    for at, word in enumerate(words[:-3]):
        if word in _BINDS and words[at + 1] == "(" and (match := _NAME.match(words[at + 2])):
            inside = words[at + 3 : ends.get(at + 1, at)]
            if host := next((each for each in inside if each in known), None):
                yield match[1], host
