"""Finds programs of a project that launch a kernel of a C++ text: their `main` or test includes the kernel's file, or
is linked with it.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from functools import cached_property
from itertools import islice
from typing import NamedTuple

from orbit_lsp.drivers.choice import tokens
from orbit_lsp.drivers.declared import BuildFiles, DeclaredProgram
from orbit_lsp.drivers.extension import NearTexts
from orbit_lsp.drivers.index import WordIndex
from orbit_lsp.kernels import HOST_SUFFIXES
from orbit_lsp.kernels.cuda.functions import CudaFunction
from orbit_lsp.state.results import Route
from orbit_remote.common.requests import Driver

_INCLUDE = re.compile(r'^[ \t]*\#[ \t]*include[ \t]*["<]([^">\n]+)[">]', re.MULTILINE)
_MAIN = re.compile(r"\bmain\s*\(")
_TESTS = frozenset(("TEST", "TEST_F", "TEST_P", "TYPED_TEST", "TYPED_TEST_P"))
_CASES = frozenset(
    ("TEST_CASE", "SCENARIO", "TEST_CASE_METHOD", "C2H_TEST", "TEMPLATE_TEST_CASE", "CATCH_TEST_CASE")
)
_BENCHED_IN_CLASSES = frozenset(("BENCHMARK_F", "BENCHMARK_DEFINE_F"))
_FRAMEWORK = re.compile(r"\b(?:TEST(?:_F|_P|_CASE)?|TYPED_TEST|C2H_TEST|SCENARIO|(?:NVBENCH_)?BENCH\w*)\s*\(")
_TEST_WORDS = ("TEST", "SCENARIO", "BENCH")
"""One of them stands where `_FRAMEWORK` matches. Such a word is found much faster."""
_BENCHED = re.compile(r"\bNVBENCH_BENCH\w*\s*\(\s*(?:NVBENCH_\w+\s*\(\s*)?(\w+)")
_GOOGLE_BENCHED = re.compile(r"\bBENCHMARK(?:_CAPTURE|_TEMPLATE\d?)?\s*\(\s*(\w+)")
_BEHIND = re.compile(r"[;{}]|^[ \t]*#.*$|//.*$|\*/", re.MULTILINE)
"""A declaration begins behind one of these: another declaration, a line of the preprocessor, a comment."""
_ENDS = re.compile(r"[;{}]")
_ATTRIBUTES = r"(?:\[\[[^\]]*\]\]|(?:__attribute__|__declspec)\s*\([^;{}]*\))\s*"
_HEAD = re.compile(rf"(?:{_ATTRIBUTES}|extern\s*\"C\"\s*)*[\w:<>,*&\s]+(?:{_ATTRIBUTES})*")
_STATEMENT = re.compile(r"(?:return|else|throw|new|delete|co_return)\b")
_PROTOTYPE = re.compile(r"\b(\w{1,200})\s{0,9}\((?:[^;{}()]|\([^;{}()]{0,200}\)){0,400}\)[\w\s]{0,40};")
"""With bounds, since any text is searched for it."""
_LONGEST_HEAD = 300
_LONGEST_PARAMETERS = 4_000
_MOST_USES = 200
_MOST_TESTS = 500
"""Of one source."""
_UNITS = (".cu", ".c", *HOST_SUFFIXES)
_ROUNDS = 6
_MOST_WAYS = 400
_SHORT = 3
_OTHER_FILE = 1.0
_SAME_FILE = 0.5
_NOT_SAID = 3.0
"""A program includes the kernel's file, and no function of it is seen to call what leads to the kernel."""
_NO_BUILD = 2.0
"""nvcc alone builds a file for which there are build files that do not name it."""
_EACH_FOLDER = 0.3
"""Between a `main` and the kernel's file, where no build file says that they belong together."""


class _CallWay(NamedTuple):
    """The functions from the kernel to one that calls it. The last of them is in the file `place`."""

    labels: tuple[str, ...]
    place: str
    cost: float


class _Start(NamedTuple):
    """Where a program begins: its `main`, or one of its tests, which `arguments` choose."""

    label: str
    words: frozenset[str]
    arguments: tuple[str, ...] = ()
    wants_arguments: bool = False


class Programs:
    """The programs near a C++ text. What is read for one kernel is kept for the next ones."""

    def __init__(self, index: WordIndex, near: NearTexts, place: str, build_files: BuildFiles) -> None:
        self._index, self._near, self._place, self._build_files = index, near, place, build_files
        self._built: dict[str, list[DeclaredProgram]] = {}
        self._included: dict[str, tuple[str, ...]] = {}
        self._closures: dict[str, set[str]] = {}
        self._seen: dict[tuple[str, str, str], bool] = {}
        self._defined: dict[str, list[str]] = {}
        self._declares_of: dict[str, tuple[str, ...]] = {}

    def routes(self, kernel: str) -> Iterator[Route]:
        """Yield the routes of a kernel of the text: one for each way to start a program that has it."""
        base = kernel.rpartition("::")[2]
        ways = self._ways(base)
        for place in self._mains:
            including = self._place == place or self._place in self._closure(place)
            if not including and not any(name in self._near.texts[place] for name in ways):
                continue
            starts = list(islice(self._starts(place), _MOST_TESTS))
            reached = [(start, way) for start in starts if (way := self._leads(start, place, ways))]
            if not reached and including and place != self._place:
                # how it calls the kernel is hidden, in macros or templates
                reached = [(start, _CallWay((base,), self._place, _NOT_SAID)) for start in starts[:1]]
            builds = (self._builds(place) or self._by_nvcc(place)) if reached else []
            for start, way in reached:
                for driver, cost, sources in builds:
                    arguments = start.arguments or driver.arguments
                    rank = self._rank(kernel, place, driver, way)
                    rank += cost + (1.5 if start.wants_arguments and not arguments else 0.0)
                    yield Route(
                        Driver(
                            "program", place, driver.name, "", driver.tool, driver.folder, driver.output, arguments
                        ),
                        (*way.labels, start.label), round(rank, 2), sources=sources,
                    )  # fmt: skip

    # -- who includes what --------------------------------------------------------------------------

    @cached_property
    def _places(self) -> dict[str, list[str]]:
        """Return the texts by their names without folders."""
        by_name: dict[str, list[str]] = {}
        for place in self._near.texts:
            by_name.setdefault(posixpath.basename(place), []).append(place)
        return by_name

    def _includes(self, place: str) -> tuple[str, ...]:
        """Return the texts that a text includes: beside it, else any with that name."""
        if place not in self._included:
            found: dict[str, None] = {}
            for name in _INCLUDE.findall(self._near.texts.get(place, "")):
                beside = posixpath.normpath(posixpath.join(posixpath.dirname(place), name))
                if beside in self._near.texts:
                    found[beside] = None
                    continue
                tail = "/" + posixpath.normpath(name)
                named = self._places.get(posixpath.basename(name), ())
                found.update(dict.fromkeys(each for each in named if f"/{each}".endswith(tail)))
            self._included[place] = tuple(found)
        return self._included[place]

    def _closure(self, place: str) -> set[str]:
        """Return a text together with every text that it includes."""
        if place not in self._closures:
            seen = self._closures[place] = {place}
            waiting = [place]
            while waiting:
                fresh = [each for each in self._includes(waiting.pop()) if each not in seen]
                seen.update(fresh)
                waiting += fresh
        return self._closures[place]

    # -- programs -----------------------------------------------------------------------------------

    @cached_property
    def _mains(self) -> list[str]:
        """Return the sources that may begin a program, the nearest first."""
        return [
            place
            for place, text in self._near.texts.items()
            if place.endswith(_UNITS)
            and (
                ("main" in text and _MAIN.search(text))
                or (any(word in text for word in _TEST_WORDS) and _FRAMEWORK.search(text))
            )
        ]

    def _builds(self, place: str) -> list[tuple[Driver, float, tuple[str, ...]]]:
        """Return how the project builds a source into a program that also has the kernel's file."""
        if place not in self._built:
            self._built[place] = self._build_files.programs(
                self._index.path(place), self._index.root, self._text_of
            )
        found: list[tuple[Driver, float, tuple[str, ...]]] = []
        for program in self._built[place]:
            sources = tuple(filter(None, map(self._index.place, sorted(program.sources))))
            units = {each for each in sources if each in self._near.texts} | {place}
            if not any(each == self._place or self._place in self._closure(each) for each in units):
                continue
            folder = self._index.place(program.folder)
            if folder is None:
                continue
            driver = Driver(
                "program", place, program.name, "", program.tool, folder, program.output, program.arguments
            )
            found.append((driver, 0.0, sources))
        return found

    def _by_nvcc(self, place: str) -> list[tuple[Driver, float, tuple[str, ...]]]:
        """Return how nvcc makes a program from a file with a `main` and the sources that it needs. Return none if
        they lack the kernel.
        """
        if not self._has_main(place):
            return []
        units = self._units(place)
        has_kernel = any(each == self._place or self._place in self._closure(each) for each in units)
        if not has_kernel or units == (self._place,):  # the kernel's file is a program by itself
            return []
        folder = posixpath.dirname(place)
        cost = _NO_BUILD if self._has_build_files(place) else 0.0
        away = posixpath.relpath(posixpath.dirname(self._place) or ".", folder or ".")
        cost += _EACH_FOLDER * (0 if away == "." else len(away.split("/")))
        return [(Driver("program", place, tool="nvcc", folder=folder), cost, units)]

    def _units(self, place: str) -> tuple[str, ...]:
        """Return a source and those that define what it declares, and so on. If several define it, one is taken."""
        units = [place]
        for unit in units:
            closure = self._closure(unit)
            for name in dict.fromkeys(name for each in sorted(closure) for name in self._declared(each)):
                defining = self._defining(name)
                if not any(each in closure or each in units for each in defining):
                    units.append(defining[0])
        return tuple(units)

    def _declared(self, place: str) -> tuple[str, ...]:
        """Return the functions that a text declares and that another source defines."""
        if place not in self._declares_of:
            names = islice(dict.fromkeys(_PROTOTYPE.findall(self._near.texts[place])), _MOST_USES)
            declared = (name for name in names if self._defining(name) and self._declares(place, name))
            self._declares_of[place] = tuple(declared)
        return self._declares_of[place]

    def _defining(self, name: str) -> list[str]:
        """Return the sources that define a function and are no program, the kernel's own first, then the nearest."""
        if name not in self._defined:
            self._defined[name] = [
                place
                for place, text in self._near.texts.items()
                if place.endswith(_UNITS)
                and name in text
                and any(each.name.rpartition("::")[2] == name for each in self._near.functions(place))
                and not self._has_main(place)
            ]
        return self._defined[name]

    def _has_main(self, place: str) -> bool:
        return any(each.name == "main" for each in self._near.functions(place))

    def _has_build_files(self, place: str) -> bool:
        folder: str = posixpath.dirname(place)
        while True:
            if any(self._index.text(posixpath.join(folder, name)) for name in self._build_files.names):
                return True
            if not folder:
                return False
            folder = posixpath.dirname(folder)

    def _text_of(self, path: str) -> str:
        place = self._index.place(path)
        return self._index.text(place) if place else ""

    def _starts(self, place: str) -> Iterator[_Start]:
        """Yield the `main` of a source, and each test of a framework."""
        text = self._near.texts[place]
        file = posixpath.basename(place)
        benched = set(_BENCHED.findall(text) if "NVBENCH_BENCH" in text else ())
        google = set(_GOOGLE_BENCHED.findall(text) if "BENCHMARK" in text else ())
        for function in self._near.functions(place):
            if function.name not in {"main", *_TESTS, *_CASES, *_BENCHED_IN_CLASSES, *benched, *google}:
                continue
            words = frozenset(function.words)
            if function.name == "main":
                yield _Start(f"main of {file}", words, wants_arguments="argv" in words)
            elif function.name in _TESTS:
                suite, name = (*_arguments(function), "", "")[:2]
                # tests with parameters have a name of their suite's instance before theirs, and a number behind
                pattern = f"{suite}.{name}" if function.name in ("TEST", "TEST_F") else f"*{suite}*.{name}*"
                yield _Start(
                    f"{suite}.{name} of {file}", words, (f"--gtest_filter={pattern}",) if name else ()
                )
            elif function.name in _CASES:
                named = (word.strip('"') for word in _arguments(function) if word.startswith('"'))
                name = next(named, "")
                yield _Start(
                    f"{name or function.name} of {file}",
                    words,
                    (name,) if name and not set(name) & set(',[]*"\\') else (),
                )
            elif function.name in google or function.name in _BENCHED_IN_CLASSES:
                named = _arguments(function) if function.name in _BENCHED_IN_CLASSES else [function.name]
                # the name goes on behind a slash, with the benchmark's arguments
                pattern = f"--benchmark_filter=^{'/'.join(named)}($|[/<])"
                yield _Start(f"{'/'.join(named)} of {file}", words, (pattern,))
            else:
                yield _Start(f"{function.name} of {file}", words)

    # -- ways ---------------------------------------------------------------------------------------

    def _ways(self, kernel: str) -> dict[str, _CallWay]:
        """Return the names of functions and macros that lead to a kernel, each with the cheapest way."""
        ways = {kernel: _CallWay((kernel,), self._place, 0.0)}
        fresh = {kernel}
        for _ in range(_ROUNDS):
            found: dict[str, _CallWay] = {}
            for place, text in self._near.texts.items():
                if not any(name in text for name in fresh):
                    continue
                for name, words in self._callers(place):
                    called = [each for each in words & fresh if self._sees(place, ways[each].place, each)]
                    if not called or name in ways or len(name) < _SHORT:
                        continue
                    way = min((ways[each] for each in called), key=lambda each: each.cost)
                    cost = way.cost + (_SAME_FILE if place == way.place else _OTHER_FILE)
                    if name not in found or cost < found[name].cost:
                        found[name] = _CallWay((*way.labels, name), place, cost)
            ways |= found
            fresh = set(found)
            if not fresh or len(ways) > _MOST_WAYS:
                break
        return ways

    def _callers(self, place: str) -> Iterator[tuple[str, frozenset[str]]]:
        for function in self._near.functions(place):
            if function.name != "main" and function.name not in _TESTS | _CASES | _BENCHED_IN_CLASSES:
                yield function.name, frozenset(function.words)
        yield from self._near.macros(place)

    def _sees(self, place: str, other: str, name: str) -> bool:
        """Say whether a name in one text can be what another one defines: the text includes that one, or a text that
        declares the name.
        """
        key = (place, other, name)
        if key not in self._seen:
            closure = self._closure(place)
            by_include = place == other or other in closure
            said = by_include or any(name in self._near.texts[each] for each in closure if each != place)
            self._seen[key] = said or self._declares(place, name)
        return self._seen[key]

    def _declares(self, place: str, name: str) -> bool:
        """Say whether a text declares a function itself: `void scale(float *, int);`."""
        text = self._near.texts[place]
        for match in islice(re.finditer(rf"\b{re.escape(name)}\b", text), _MOST_USES):
            head = _BEHIND.split(text[max(0, match.start() - _LONGEST_HEAD) : match.start()])[-1]
            after = text[match.end() : match.end() + _LONGEST_PARAMETERS].lstrip()
            end = _ENDS.search(after)
            constructs = not head.strip() and re.search(rf"\b(?:class|struct)\s+{re.escape(name)}\b", text)
            declares = constructs or (_HEAD.fullmatch(head.strip()) and not _STATEMENT.match(head.strip()))
            if declares and after.startswith("(") and end and end[0] == ";":
                return True
        return False

    def _leads(self, start: _Start, place: str, ways: dict[str, _CallWay]) -> _CallWay | None:
        """Return the cheapest way from the kernel to where a program begins."""
        called = [
            ways[each] for each in start.words & ways.keys() if self._sees(place, ways[each].place, each)
        ]
        if not called:
            return None
        way = min(called, key=lambda each: each.cost)
        return way._replace(cost=way.cost + (_SAME_FILE if place == way.place else _OTHER_FILE))

    def _rank(self, kernel: str, place: str, driver: Driver, way: _CallWay) -> float:
        """Return the way's cost, corrected by names: bench_softmax.cu is for the kernel of softmax.cu."""
        own = posixpath.splitext(posixpath.basename(self._place))[0]
        stem = posixpath.splitext(posixpath.basename(place))[0]
        wanted = tokens(kernel, own, *way.labels[1:])
        near = len(wanted & tokens(stem, driver.name, *driver.arguments))
        return way.cost + 0.4 * (4 - min(near, 4))


def _arguments(function: CudaFunction) -> list[str]:
    """Return what stands between the brackets of a test's head."""
    return ["".join(part) for part in function.parameter_list()]
