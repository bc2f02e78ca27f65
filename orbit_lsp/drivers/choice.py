"""Decides which functions and files are drivers, and how good a guess each is."""

from __future__ import annotations

import math
import posixpath
import re
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

from orbit_lsp.drivers.module import STATEMENTS, CodeUnit, Module
from orbit_lsp.drivers.project import Project, Symbol
from orbit_lsp.drivers.pytest_files import Pytest
from orbit_lsp.kernels.python.reader import ENTRIES, MAIN_GUARD
from orbit_lsp.state.results import Route
from orbit_remote.common.requests import Driver

_FIXTURES = frozenset(
    (
        "request", "tmp_path", "tmp_path_factory", "tmpdir", "monkeypatch", "capsys", "capfd", "caplog", "recwarn",
        "benchmark", "subtests", "mocker", "self", "cls",
    )
)  # fmt: skip
"""Those that come with pytest and with its most common plug-ins; `self` and `cls` are no fixtures."""
_SKIPPED = re.compile(r"(?:mark|unittest)\.skip$|(?:^|\.)skip$")
_GENERATES = re.compile(r"(?:^|\.)(?:expand|parameters|named_parameters)$|^parameterized\.")
"""Decorators of `parameterized` and absl that make methods of other names."""
_COMPILES = frozenset(("compile", "aot", "export", "codegen"))
"""Words of a script that makes code ahead of its use, and may launch nothing."""
_ELSEWHERE = frozenset(("fallback", "cpu", "raises", "invalid", "error", "errors", "unsupported", "mock"))
"""Words of names of tests that take another path than the kernel's."""
_RANKS = re.compile(r"world_size|multi_?gpu|distributed|skip_if_lt_x_gpu")
_WORDS = re.compile(r"[a-z]+|\d+")
_PLAIN = frozenset(
    (
        "test", "tests", "testing", "kernel", "kernels", "triton", "gluon", "jit", "fused", "torch", "ops",
        "bench", "benchmark", "benchmarks",
    )
)  # fmt: skip


class Step(NamedTuple):
    """A symbol on the way, with the step before it. `backward`: only backward passes lead from here to the kernel.
    `names` are the names for what leads to the kernel in the last table on the way.
    """

    symbol: Symbol
    before: Step | None
    cost: float
    backward: bool
    label: str
    names: frozenset[str] = frozenset()

    def steps(self) -> list[Step]:
        """Return the steps from the kernel to this one."""
        return [*(self.before.steps() if self.before else ()), self]

    def way(self) -> tuple[str, ...]:
        return tuple(step.label for step in self.steps())


class DriverChoice:
    """The drivers of one kernel. `pytest` gives a folder's configuration."""

    def __init__(self, project: Project, pytest: Callable[[str], Pytest], place: str, kernel: str) -> None:
        self._project, self._pytest = project, pytest
        self._place, self._kernel = place, kernel
        self._package = project.package(place)

    def route(self, step: Step, module: Module, unit: CodeUnit) -> Route | None:
        """Return the route to a unit at the end of a way, or None if the unit is no driver."""
        kind: Literal["pytest", "script"] = "pytest"
        place = step.symbol.place
        pytest = self._pytest(posixpath.dirname(place))
        name, keyword = "" if unit.kind == "statements" else unit.name, ""
        against = self._against_test(place, module, unit, pytest)
        if against is None and (
            heir := self._heir(step.symbol, unit)
        ):  # a test of a class that others inherit
            place, name, against = heir.place, f"{heir.name}::{unit.name.rpartition('::')[2]}", 0.5
        if against is not None:
            if module.generates or any(_GENERATES.search(each) for each in unit.decorators):
                name, _, keyword = name.rpartition("::")
                if "instantiate_device_type_tests" in self._project.index.text(place):
                    name = ""  # the class is replaced, too
            against += 0.1 * math.log2(unit.cases)
        else:
            kind, against = "script", self._against_script(place, module, unit, pytest)
            if against is None:
                return None
        cost = round(against + self._rank(step, unit, kind), 2)
        return Route(Driver(kind, place, name, keyword), step.way(), cost, unit.cases)

    def _against_test(self, place: str, module: Module, unit: CodeUnit, pytest: Pytest) -> float | None:
        """Return how much speaks against a unit as a test. Return None if it is no test."""
        owner, _, name = unit.name.rpartition("::")
        holder = module.classes.get(owner)
        unittest = holder is not None and self._is_unittest(place, holder)
        if unit.kind != "function" or unit.fixture:
            return None
        if unittest:
            if not name.startswith("test"):
                return None
        elif (
            not pytest.is_function(name)
            or (owner and not all(map(pytest.is_class, owner.split("::"))))
            or (holder and "__init__" in holder.methods)
        ):
            return None
        collected = pytest.is_file(place)
        if not collected and not owner and name in ENTRIES:
            return None
        against = 0.0
        given = {each[1:] for each in unit.decorators if each.startswith("=")}
        if not unittest and set(unit.required) - given - _FIXTURES - self._fixtures(place):
            if not collected or not self._generates_arguments(place):
                return None  # somebody calls it, and it is only named as tests are
            against += 2.0
        if not collected:  # pytest takes a file that is named on its command line
            against += 1.0
        elif not pytest.in_testpaths(place):
            against += 0.5
        marks = [*unit.decorators, *(holder.decorators if holder else ())]
        if any(_SKIPPED.search(each) for each in marks):
            against += 6.0
        if module.wants_ranks or any(_RANKS.search(each) for each in (*marks, name)):
            against += 3.0
        return against

    def _heir(self, symbol: Symbol, unit: CodeUnit) -> Symbol | None:
        """Return the first test class that inherits a method from a class that pytest does not collect."""
        owner, _, name = unit.name.rpartition("::")
        if not owner or not name.startswith("test"):
            return None
        for use in self._project.uses(Symbol(symbol.place, owner)):
            pytest = self._pytest(posixpath.dirname(use.place))
            if use.unit.bases and (pytest.is_class(use.unit.name) or self._is_unittest(use.place, use.unit)):
                return Symbol(use.place, use.unit.name)
        return None

    def _is_unittest(self, place: str, unit: CodeUnit, depth: int = 4) -> bool:
        for base in unit.bases:
            if base[-1].endswith("TestCase"):
                return True
            at = self._project.resolve(place, unit, base)
            module = self._project.module(at.place) if at and depth else None
            holder = (module.classes.get(at.name) or module.units.get(at.name)) if module and at else None
            if holder and at and self._is_unittest(at.place, holder, depth - 1):
                return True
        return False

    def _fixtures(self, place: str) -> set[str]:
        """Return the fixtures that a test of a file may take: those of these files, and those that they import."""
        return {name for at, module in self._conftests(place) for name in self._fixtures_in(at, module)}

    def _fixtures_in(self, place: str, module: Module) -> Iterator[str]:
        yield from (unit.name.rpartition("::")[2] for unit in module.units.values() if unit.fixture)
        for alias, bind in module.binds.items():
            at = self._project.meaning(place, bind)
            holder = self._project.module(at.place) if at and at.name else None
            unit = holder.units.get(at.name) if holder and at else None
            if unit and unit.fixture:
                yield alias

    def _generates_arguments(self, place: str) -> bool:
        """Say whether a hook or a plug-in may give tests of a file arguments that are no fixtures of the project."""
        return any(
            "pytest_generate_tests" in module.units or "pytest_plugins" in module.units or module.stars
            for _, module in self._conftests(place)
        )

    def _conftests(self, place: str) -> Iterator[tuple[str, Module]]:
        """Yield the file itself, and each conftest.py that pytest reads for it."""
        folder: str = posixpath.dirname(place)
        places = [place]
        while True:
            places.append(posixpath.join(folder, "conftest.py"))
            if not folder:
                break
            folder = posixpath.dirname(folder)
        for each in places:
            if module := self._project.module(each):
                yield each, module

    def _against_script(self, place: str, module: Module, unit: CodeUnit, pytest: Pytest) -> float | None:
        name = posixpath.basename(place)
        if name in ("conftest.py", "setup.py", "__init__.py", "conf.py", "noxfile.py"):
            return None
        against = 3.0 * module.wants_input + 3.0 * module.wants_ranks
        if unit.name == MAIN_GUARD:
            return against
        if unit.name == STATEMENTS:
            packaged = posixpath.join(posixpath.dirname(place), "__init__.py") in self._project.index.files
            if not module.runs or pytest.is_file(place) or (packaged and not module.reports):
                return None  # importing it runs it, and its package's users do
            return against + 1.0 + packaged
        if unit.name == module.entry and not pytest.is_file(place):
            return against + (2.0 if place == self._place else 4.0)
        return None

    def _rank(self, step: Step, unit: CodeUnit, kind: str) -> float:
        """Return the way's cost, corrected by names: `test_softmax` in test_softmax.py is for the kernel of
        softmax.py.
        """
        place, way = step.symbol.place, step.way()
        stem, own = posixpath.basename(place)[:-3], posixpath.basename(self._place)[:-3]
        wanted = tokens(self._kernel, own, *(label.rpartition(".")[2] for label in way[1:-1]))
        named = tokens(unit.name, stem)
        near = len(wanted & named) + 0.5 * len((wanted - named) & tokens(*unit.strings))
        extra = len(tokens(unit.name) - wanted)
        cost = step.cost + 0.4 * (4 - min(near, 4)) + 0.1 * extra
        same = (f"test_{own}", f"{own}_test", f"bench_{own}", f"benchmark_{own}", f"{own}_benchmark")
        if stem not in same and place != self._place:
            cost += 1.5
        if _ELSEWHERE & tokens(unit.name):
            cost += 1.5
        if step.backward and not self._goes_back(step, place, unit):
            cost += 3.0
        if step.names and not step.names & (unit.attributes | unit.strings):
            cost += 3.0
        if kind == "script":
            cost += 1.5 + 3.0 * bool(_COMPILES & tokens(stem))
        if "bench" in place or "profile" in stem or "tune" in stem:
            cost += 0.5
        return cost

    def _goes_back(self, step: Step, place: str, unit: CodeUnit, depth: int = 2) -> bool:
        """Say whether a driver runs backward passes, by itself, by what it calls beside the way, or by a fixture that
        it takes.
        """
        if unit.backward:
            return True
        if not depth:
            return False
        on_way = {each.symbol for each in step.steps()}
        for chain in unit.refs:
            at = self._project.resolve(place, unit, chain)
            if at and at.name and at not in on_way and not at.place.startswith(self._package):
                module = self._project.module(at.place)
                called = module.units.get(at.name) if module else None
                if called and self._goes_back(step, at.place, called, depth - 1):
                    return True
        for where, module in self._conftests(place):
            for name in unit.required:
                given = module.units.get(name)
                if given and given.fixture and self._goes_back(step, where, given, depth - 1):
                    return True
        return False


def tokens(*names: str) -> set[str]:
    return {
        word
        for name in names
        for word in _WORDS.findall(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower())
        if len(word) > 2 and word not in _PLAIN
    }
