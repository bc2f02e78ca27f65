"""Searches from a kernel back to what its author runs, along imports and names, the cheapest way first."""

from __future__ import annotations

import heapq
import posixpath
import re
from collections.abc import Callable, Iterator
from itertools import count

from orbit_lsp.drivers import extension
from orbit_lsp.drivers.choice import DriverChoice, Step, tokens
from orbit_lsp.drivers.module import STATEMENTS, Chain, CodeUnit
from orbit_lsp.drivers.programs import Programs
from orbit_lsp.drivers.project import Project, Symbol, Use
from orbit_lsp.drivers.pytest_files import Pytest
from orbit_lsp.kernels.python.reader import MAIN_GUARD
from orbit_lsp.state.results import Route, Routes
from orbit_remote.common.requests import Driver

MOST = 8
_BY_NAME = 10.0
_BY_OP = 3.0
_BY_BINDING = 2.0
_PROTOTYPE = frozenset(("argtypes", "restype", "errcheck"))
"""Attributes of a function of ctypes, which are set before it is called."""
_MOST_FILES = 50
"""A name that more files use leads nowhere."""
_SHORT = 5
"""Letters below which a name that nobody registered says nothing."""
_INTERNAL = re.compile(r"^native_|_(?:forward|backward)(?:_data)?$")
"""What PyTorch adds to the name of an operator that people call without it."""
_LEAST = 1.0
"""What a driver usually costs beyond its way: where a few are found, dearer ways are not followed."""
_STEPS = 8
_MOST_NODES = 400
_MOST_CHARACTERS = 8 << 20
"""Of the texts that one search reads: two seconds."""
_IMPLICIT = re.compile(r"__\w+__|forward\w*|backward|apply|setup_context|jvp|vjp|")
"""Methods that run although no text says their names; the empty one is the class body."""
_BACKWARD = re.compile(r"backward|\w*bwd\w*|vjp")
_BACKWARD_NAME = re.compile(r"backward|bwd")


class Search:
    def __init__(
        self,
        project: Project,
        pytest: Callable[[str], Pytest],
        place: str,
        kernel: str,
        near: tuple[extension.NearTexts, Programs] | None = None,
    ) -> None:
        """Make a search. For a kernel of a C++ text, `near` has the C++ texts around it and their programs."""
        self._near = near
        self._project, self._pytest = project, pytest
        self._place, self._kernel = place, kernel
        self._begun = project.characters_read
        self._choice = DriverChoice(project, pytest, place, kernel)
        self._steps: dict[Symbol, Step] = {}
        self._found: dict[Driver, Route] = {}
        self._order = count()
        self._waiting: list[tuple[float, int, Step]] = []

    def run(self) -> Routes:
        starts: list[str] = []
        if self._near:
            near, programs = self._near
            for route in programs.routes(self._kernel):
                if route.driver not in self._found or route.cost < self._found[route.driver].cost:
                    self._found[route.driver] = route
            self._bind(near)
            if not self._waiting and not self._found:
                return Routes(
                    reason=f"no program launches {self._kernel} as far as texts tell, and no Python code calls a binding that leads to it"
                )
        elif not (starts := list(self._starts())):
            return Routes(
                reason=f"{self._kernel} is not found in {self._place}: save the file, or correct its syntax"
            )
        for name in starts:
            backward = bool(_BACKWARD_NAME.search(self._kernel))
            self._reach(Step(Symbol(self._place, name), None, 0.0, backward, self._kernel))
        self._follow(self._by_import)
        if not self._found:
            for step in list(self._steps.values()):
                heapq.heappush(self._waiting, (step.cost, next(self._order), step))
            self._follow(self._by_name)
        whole = {driver.file for driver in self._found if driver.kind == "script" and not driver.name}
        found = [
            route
            for driver, route in self._found.items()
            if driver.kind != "script" or not driver.name or driver.file not in whole
        ]
        best = sorted(found, key=lambda route: (route.cost, route.driver.file, route.driver.name))[:MOST]
        helper = self._is_helper(starts)
        return Routes(tuple(best), "" if best else self._reason(helper), helper)

    def _bind(self, near: extension.NearTexts) -> None:
        """Go on from Python code that calls what a C++ text binds."""
        found = extension.bindings(near, self._kernel)
        calls = [
            *((name, hosts, self._calls(name, found.modules)) for name, hosts in found.names.items()),
            *((name, hosts, self._loaded_calls(name)) for name, hosts in found.exported.items()),
        ]
        for name, hosts, uses in calls:
            step = Step(Symbol(self._place, self._kernel), None, 0.0, False, self._kernel)
            for host in hosts:
                step = (
                    Step(Symbol(self._place, host), step, 0.0, False, host) if host != self._kernel else step
                )
            for use in uses:
                self._take(step, use, _BY_BINDING, f"[{name}] ")
        if not self._waiting and not self._found:
            step = Step(Symbol(self._place, self._kernel), None, 0.0, False, self._kernel)
            file = posixpath.basename(self._place)
            for use in self._naming(file):
                self._take(step, use, _BY_NAME, f"[{file}] ")

    def _naming(self, file: str) -> Iterator[Use]:
        """Yield units that say the name of the kernel's file: they may compile it, by a function of the project's."""
        mentioned = self._project.index.mention(posixpath.splitext(file)[0])
        places = [place for place in mentioned if posixpath.basename(place) not in extension.DECLARING]
        for place in places if len(places) <= _MOST_FILES else ():
            module = self._project.module(place)
            for unit in module.units.values() if module else ():
                if file in unit.strings:
                    yield Use(place, unit, frozenset(("",)), (), sure=False)

    def _calls(self, name: str, modules: frozenset[str]) -> Iterator[Use]:
        """Yield units that call a name of an extension: an attribute of a module that is loaded or built, of
        `torch.ops`, or imported.
        """
        places = self._project.index.mention(name)
        for place in places if len(places) <= _MOST_FILES else ():
            module = self._project.module(place)
            for unit in module.units.values() if module else ():
                chains = [each for each in unit.refs if name in each]
                loaded = (
                    module is not None
                    and module.loads
                    and (self._says(unit, name) or any(name in each[1:] for each in chains))
                )
                if loaded or any(self._is_built(place, unit, each, modules) for each in chains):
                    yield Use(place, unit, frozenset(("",)), (), sure=False)

    def _loaded_calls(self, name: str) -> Iterator[Use]:
        """Yield units that call a function of a library by its own name, or look a kernel up: the module, or the one that
        made the object, opens libraries or compiles texts.
        """
        places = self._project.index.mention(name)
        for place in places if len(places) <= _MOST_FILES else ():
            if (module := self._project.module(place)) is None:
                continue
            for unit in module.units.values():
                chains = [each for each in unit.refs if name in each[1:] and each[-1] not in _PROTOTYPE]
                called = (
                    bool(chains) or name in unit.strings or (unit.kind == "class" and name in unit.attributes)
                )
                if called if module.loads else any(self._is_loaded(place, unit, each) for each in chains):
                    yield Use(place, unit, frozenset(("",)), (), sure=False)

    @staticmethod
    def _says(unit: CodeUnit, name: str) -> bool:
        """Say whether a unit has a name as a string, or as an attribute of something local."""
        return name in unit.strings or (unit.kind in ("function", "class") and name in unit.attributes)

    def _is_loaded(self, place: str, unit: CodeUnit, chain: Chain) -> bool:
        """Say whether a module that opens libraries assigns what a chain begins with."""
        at = self._project.resolve(place, unit, chain)
        made = self._unit(at) if at else None
        module = self._project.module(at.place) if at else None
        return made is not None and made.kind == "assignment" and module is not None and module.loads

    def _is_built(self, place: str, unit: CodeUnit, chain: Chain, modules: frozenset[str]) -> bool:
        """Say whether a name may belong to a compiled module: an import of the project that no text explains, or what
        a call made.
        """
        if "ops" in chain[:-1]:
            return True
        module = self._project.module(place)
        bind = unit.binds.get(chain[0]) or (module.binds.get(chain[0]) if module else None)
        at = self._project.resolve(place, unit, chain)
        if at is not None:
            made = self._unit(at)
            return len(chain) > 1 and made is not None and made.kind == "assignment"
        words = {*bind.module, *bind.names, chain[0]} if bind else set[str]()
        return bind is not None and (bool(bind.level) or bool(words & modules))

    def _unit(self, symbol: Symbol) -> CodeUnit | None:
        module = self._project.module(symbol.place)
        return module.units.get(symbol.name) if module else None

    def _starts(self) -> Iterator[str]:
        """Yield the units of the kernel's file that define the kernel: the function of its name, the unit in which it
        is defined, and the assignment of a text that has its source.
        """
        module = self._project.module(self._place)
        if module is None:
            return
        parts = self._kernel.split(".")
        for size in range(len(parts), 0, -1):
            if "::".join(parts[:size]) in module.units:
                yield "::".join(parts[:size])
                return
        yield from (
            unit.name
            for unit in module.units.values()
            if parts[-1] in unit.embedded or (unit.kind == "statements" and parts[0] in unit.defines)
        )

    def _is_helper(self, starts: list[str]) -> bool:
        uses = [use for name in starts for use in self._project.uses(Symbol(self._place, name))]
        return bool(uses) and all(use.unit.jit for use in uses)

    # -- the search ---------------------------------------------------------------------------------

    def _follow(self, edges: Callable[[Step], Iterator[tuple[Use, float, str]]]) -> None:
        left = _MOST_NODES
        while self._waiting and left and not self._is_too_long():
            cost, _, step = heapq.heappop(self._waiting)
            left -= 1
            if len(self._found) >= MOST // 2 and cost + _LEAST > min(d.cost for d in self._found.values()):
                break
            if len(step.steps()) > _STEPS:
                continue
            for use, edge, how in edges(step):
                self._take(step, use, edge, how)

    def _take(self, step: Step, use: Use, edge: float, how: str) -> None:
        """Go from a step to a unit that uses it."""
        if use.unit.table and not _is_test(use.unit):
            return
        backward = step.backward or _is_backward(use)
        label = use.unit.name if use.place == step.symbol.place else f"{_dotted(use.place)}.{use.unit.name}"
        if use.unit.name in (STATEMENTS, MAIN_GUARD):
            label = posixpath.basename(use.place)
        elif self._pytest(posixpath.dirname(use.place)).is_file(use.place):
            label = use.unit.name
        cost = step.cost + edge + self._unsaid(step, use)
        names = step.names
        if use.calls and use.unit.kind == "assignment" and len(use.unit.pairs) > 1:
            names = frozenset(each for call in use.calls for each in _called(call))
        self._reach(Step(Symbol(use.place, use.unit.name), step, cost, backward, how + label, names))

    def _is_too_long(self) -> bool:
        return self._project.characters_read > self._begun + _MOST_CHARACTERS

    def _reach(self, step: Step) -> None:
        symbol, cost = step.symbol, step.cost
        known = self._steps.get(symbol)
        if known and known.cost <= cost:
            return
        self._steps[symbol] = step
        module = self._project.module(symbol.place)
        unit = module.units.get(symbol.name) if module else None
        if module is None or unit is None:
            return
        route = self._choice.route(step, module, unit)
        if route and (route.driver not in self._found or route.cost < self._found[route.driver].cost):
            self._found[route.driver] = route
        if not route or (route.driver.kind == "script" and route.driver.name):
            heapq.heappush(self._waiting, (cost, next(self._order), step))

    def _by_import(self, step: Step) -> Iterator[tuple[Use, float, str]]:
        symbol = step.symbol
        for use in self._project.uses(symbol):
            same = use.place == symbol.place
            yield use, (0.5 if same else 1.0) + (not use.sure), ""
        unit = self._unit(symbol)
        if unit is None:
            return
        if unit.fixture:
            yield from ((use, 0.5, "") for use in self._takers(symbol))
        for name in self._names(symbol, unit):
            for use in self._attributes(name, ops=True):
                yield use, _BY_OP, f"[torch.ops {name}] "

    def _by_name(self, step: Step) -> Iterator[tuple[Use, float, str]]:
        unit = self._unit(step.symbol)
        if unit is None or unit.kind == "statements":
            return
        for name in self._names(step.symbol, unit):
            for use in self._attributes(name, ops=False):
                yield use, _BY_NAME, f"[{name}] "
        if unit.kind in ("function", "class") and self._is_only(step.symbol):
            words = tokens(unit.name)
            for use in self._attributes(unit.name, ops=False, registered=False):
                if words <= tokens(use.unit.name, posixpath.basename(use.place)[:-3]):
                    yield use, _BY_NAME, f"[{unit.name}] "
        if step.cost >= _BY_NAME:
            yield from self._by_import(step)

    def _is_only(self, symbol: Symbol) -> bool:
        """Say whether no other file defines the name."""
        places = self._project.index.mention(symbol.name)
        if len(symbol.name) < _SHORT or len(places) > _MOST_FILES:
            return False
        return all(
            symbol.name not in module.units
            for place in places
            if place != symbol.place and (module := self._project.module(place))
        )

    def _names(self, symbol: Symbol, unit: CodeUnit) -> Iterator[str]:
        """Yield names under which a unit is registered: by its decorators, and by calls and tables that contain it."""
        names = [*unit.registered, *(name for use in self._project.uses(symbol) for name in use.calls)]
        for name in dict.fromkeys(names):
            yield from _called(name)

    def _attributes(self, name: str, *, ops: bool, registered: bool = True) -> Iterator[Use]:
        """Yield units that read an attribute of this name. With `ops`, that is an attribute of `torch.ops`. Otherwise
        it is one that no import explains, or the unit has the name of a registry as a text; then only tests and
        scripts count.
        """
        places = self._project.index.mention(name)
        if not ops:
            places = [place for place in places if self._drives(place)]
        if len(places) > _MOST_FILES:
            return
        for place in places:
            module = self._project.module(place)
            for unit in module.units.values() if module else ():
                chains = [chain for chain in unit.refs if name in chain]
                if ops:
                    said = any("ops" in chain for chain in chains)
                elif name in unit.attributes:
                    said = not any(
                        registered is False or self._project.resolve(place, unit, c) for c in chains
                    )
                else:
                    said = registered and bool(unit.dynamic) and name in unit.strings
                if said:
                    yield Use(place, unit, frozenset(("",)), (), sure=False)

    def _drives(self, place: str) -> bool:
        """Say whether a file is a test, or a program beside the package, that imports something of the kernel's
        package.
        """
        if not self._pytest(posixpath.dirname(place)).is_file(place) and not any(
            part.startswith(("bench", "example", "script")) for part in place.split("/")
        ):
            return False
        module = self._project.module(place)
        package = self._project.package(self._place)
        return module is not None and any(
            target.startswith(package)
            for bind in (*module.binds.values(), *module.stars)
            for target in self._project.imported(place, bind.level, bind.module)
        )

    def _takers(self, fixture: Symbol) -> Iterator[Use]:
        """Yield tests and fixtures that take a fixture as a parameter."""
        folder = posixpath.dirname(fixture.place)
        everywhere = posixpath.basename(fixture.place) == "conftest.py"
        for place in self._project.index.mention(fixture.name):
            if place != fixture.place and not (
                everywhere and place.startswith(f"{folder}/" if folder else "")
            ):
                continue
            module = self._project.module(place)
            for unit in module.units.values() if module else ():
                if fixture.name in unit.required:
                    yield Use(place, unit, frozenset(("",)))

    def _unsaid(self, step: Step, use: Use) -> float:
        """Return the extra cost if a unit uses a class but names none of the class's methods that lead to the kernel."""
        unit = self._unit(step.symbol)
        if unit is None or unit.kind != "class":
            return 0.0
        if step.before is None:  # the kernel is a function in a class
            return 0.0 if self._kernel.rpartition(".")[2] in use.unit.attributes else 4.0
        before = step.before.symbol
        uses = [use for use in self._project.uses(before) if (use.place, use.unit.name) == step.symbol]
        methods = {method for each in uses for method in each.methods}
        grown = True
        while grown:
            callers = {m for m, own in unit.own.items() if own & methods} - methods
            methods |= callers
            grown = bool(callers)
        if not methods or any(_IMPLICIT.fullmatch(each) for each in methods):
            return 0.0
        return 0.0 if methods & use.unit.attributes else 4.0

    # -- reasons ------------------------------------------------------------------------------------

    def _reason(self, helper: bool) -> str:
        if not self._project.index.complete:
            return "the project's files are still being read"
        if len(self._steps) == 1:
            return f"nothing in this project uses {self._kernel}"
        if helper and all((unit := self._unit(symbol)) and unit.jit for symbol in self._steps):
            return f"other kernels alone call {self._kernel}, and nothing launches those"
        named = [step for step in self._steps.values() if step.symbol.name not in (STATEMENTS, MAIN_GUARD)]
        far = max(named, key=lambda step: (len(step.steps()), -step.cost))
        if self._is_too_long():
            return f"too many files use the names that lead on from {self._kernel}: the search ended at {' <- '.join(far.way())}"
        return f"no test and no script leads to {self._kernel}: the way ends at {' <- '.join(far.way())}"


def _called(registered: str) -> dict[str, None]:
    """Return how people call an operator of a registry: `ns::op(Tensor x)`, `native_op`, `op.Tensor`."""
    last = registered.rsplit("::", maxsplit=1)[-1].split(".", maxsplit=1)[0].strip("_")
    return dict.fromkeys((last, _INTERNAL.sub("", last)))


def _is_backward(use: Use) -> bool:
    return bool(use.methods) and all(_BACKWARD.fullmatch(method) for method in use.methods)


def _dotted(place: str) -> str:
    return place.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _is_test(unit: CodeUnit) -> bool:
    return unit.name.rpartition("::")[2].startswith("test") or unit.name in (STATEMENTS, MAIN_GUARD)
