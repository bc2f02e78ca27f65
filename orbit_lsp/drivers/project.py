"""Resolves the names in a project's Python files through imports, packages, re-exports and aliases."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator
from typing import NamedTuple

from orbit_lsp.closure.imports import Import, look_up
from orbit_lsp.drivers import module as modules
from orbit_lsp.drivers.index import WordIndex
from orbit_lsp.drivers.module import Chain, CodeUnit, Module

_MOST_CHARACTERS = 7 << 20
"""Of the texts whose modules are kept: a module takes two to three bytes for each."""
_MANY = 50
_MOST_READ = 400
_MOST_USED = 2_000
"""Symbols whose uses are remembered: these keep units of modules that are not."""
_DEPTH = 50
"""Of re-exports one behind the other."""


class Symbol(NamedTuple):
    """A definition in a file; without a name it is the module itself. A place that ends with `/` is a package that
    makes its names at run time: the symbol is somewhere in it.
    """

    place: str
    name: str


class Use(NamedTuple):
    """A unit that refers to a symbol, with the methods that do. `calls` are names that the unit gives to the symbol."""

    place: str
    unit: CodeUnit
    methods: frozenset[str]
    calls: tuple[str, ...] = ()
    sure: bool = True


class Project:
    """The modules of a project. They are read on demand. What names mean is remembered until a file of the index
    changes.
    """

    def __init__(self, index: WordIndex, tests: Callable[[str], Callable[[str], bool]]) -> None:
        """Make a project. `tests` returns, for a file, a function that says whether a class of a name holds tests."""
        self.index = index
        self._tests = tests
        self.roots: tuple[str, ...] = ("", "src")
        """Folders in which Python looks, as far as the project says it."""
        self.renamed: dict[str, str] = {}
        """Packages whose folder has another name, or that are installed for editing -> the folder."""
        self.characters_read = 0
        """Of all modules that were made so far: what searches cost."""
        self._modules: dict[str, tuple[Module, int]] = {}
        self._characters = 0
        self._found: dict[tuple[str, int, tuple[str, ...]], list[str]] = {}
        self._symbols: dict[tuple[str, str], Symbol | None] = {}
        self._depth = 0
        self._uses: dict[Symbol, list[Use]] = {}
        self._tops: dict[str, list[str]] = {}

    def forget(self) -> bool:
        """Forget what may no longer hold. Return whether anything changed."""
        changed = self.index.changed_places
        if not changed:
            return False
        for place in changed & self._modules.keys():
            self._characters -= self._modules.pop(place)[1]
        for remembered in (self._found, self._symbols, self._uses, self._tops):
            remembered.clear()
        changed.clear()
        return True

    def module(self, place: str) -> Module | None:
        """Return a file's module, or None for a file that was not indexed."""
        if place not in self.index.files:
            return None
        known = self._modules.pop(place, None)
        if known is None:
            text = self.index.text(place)
            known = modules.read(text, self._tests(place)), len(text)
            self._characters += len(text)
            self.characters_read += len(text)
            while self._characters > _MOST_CHARACTERS and self._modules:
                oldest = next(iter(self._modules))
                self._characters -= self._modules.pop(oldest)[1]
        self._modules[place] = known  # the last one used is the last
        return known[0]

    def package(self, place: str) -> str:
        """Return the outermost package that holds a file, or the file's folder."""
        folder = posixpath.dirname(place)
        while folder and self._is_file(posixpath.join(posixpath.dirname(folder), "__init__.py")):
            folder = posixpath.dirname(folder)
        return folder

    # -- imports ------------------------------------------------------------------------------------

    def imported(self, importer: str, level: int, dotted: tuple[str, ...]) -> list[str]:
        """Return the files that an import may mean, and the folders of namespace packages, the likeliest first.

        Where Python looks depends on how it is started and what is installed. So every folder of the project that has
        the name is tried, the nearest to the importer first.
        """
        here = posixpath.dirname(importer)
        key = (here, level, dotted)
        if key not in self._found:
            for _ in range(level - 1):
                here = posixpath.dirname(here)
            starts = [(here, dotted)] if level else []
            if dotted and not level:
                starts = [(folder, dotted) for folder in self._folders_of(dotted[0], here)]
                if dotted[0] in self.renamed:
                    starts.append((self.renamed[dotted[0]], dotted[1:]))
            files: list[str] = []
            spaces: list[str] = []
            for folder, parts in starts:
                file, found = "", (folder,)
                if not parts and self._is_file(init := posixpath.join(folder, "__init__.py")):
                    file = init
                for part in parts:
                    file, found = look_up(found, part, self._is_file, self._is_folder)
                files += [file] if file else []
                spaces += [] if file else found
            self._found[key] = list(dict.fromkeys([*files, *spaces]))
        return self._found[key]

    def _folders_of(self, name: str, here: str) -> list[str]:
        if name not in self._tops:
            self._tops[name] = [
                folder
                for folder in self.index.folders
                if self._is_file(file := posixpath.join(folder, f"{name}.py"))
                or self._is_folder(file[: -len(".py")])
            ]

        def far(folder: str) -> tuple[bool, bool, int, bool, int]:
            inside_own_package = folder == here and self._is_file(posixpath.join(here, "__init__.py"))
            in_package = self._is_file(posixpath.join(folder, "__init__.py")) and folder != here
            known = folder in self.roots
            return inside_own_package, in_package, -_common(folder, here), not known, folder.count("/")

        return sorted(self._tops[name], key=far)

    def _is_file(self, place: str) -> bool:
        return place in self.index.files

    def _is_folder(self, place: str) -> bool:
        return place in self.index.folders

    # -- names --------------------------------------------------------------------------------------

    def symbol(self, place: str, name: str) -> Symbol | None:
        """Return the place where a name of a module is really defined."""
        key = (place, name)
        if key not in self._symbols:
            if self._depth == _DEPTH:
                return None
            self._symbols[key] = None  # a circle of re-exports ends here
            self._depth += 1
            try:
                self._symbols[key] = self._defined(place, name)
            finally:
                self._depth -= 1
        return self._symbols[key]

    def _defined(self, place: str, name: str) -> Symbol | None:
        module = self.module(place)
        if module:
            unit = module.units.get(name) or module.classes.get(name)
            if unit and not (name in module.binds and unit.kind == "assignment"):
                return Symbol(place, name)
            if name in module.binds and (found := self.meaning(place, module.binds[name])):
                return found
            if unit:
                return Symbol(place, name)
            for star in module.stars:
                for target in self.imported(place, star.level, star.module)[:1]:
                    other = self.module(target)
                    if other and other.exports is not None and name not in other.exports:
                        continue
                    if found := self.symbol(target, name):
                        return found
        inside = None if module and not place.endswith("__init__.py") else place
        if inside is not None:
            folder = posixpath.dirname(place) if module else place
            file, spaces = look_up((folder,), name, self._is_file, self._is_folder)
            if file or spaces:
                return Symbol(file or spaces[0], "")
            if module and module.lazy:
                return Symbol(f"{folder}/", name)
        return None

    def meaning(self, place: str, bind: Import) -> Symbol | None:
        """Return what an import of a file binds. If several folders have the module's name, one that has the symbol
        is meant.
        """
        guess: Symbol | None = None
        for target in self.imported(place, bind.level, bind.module):
            if not bind.names:
                return Symbol(target, "")
            if found := self.symbol(target, bind.names[0]):
                if not found.place.endswith("/"):
                    return found
                guess = guess or found
        return guess

    def resolve(self, place: str, unit: CodeUnit, chain: Chain) -> Symbol | None:
        """Return the symbol that a name in a unit means. An attribute of a class or function means that class or
        function.
        """
        bind = unit.binds.get(chain[0])
        at = self.meaning(place, bind) if bind else self.symbol(place, chain[0])
        for attribute in chain[1:]:
            if at is None or at.name:
                break
            at = self.symbol(at.place, attribute)
        return at

    # -- uses ---------------------------------------------------------------------------------------

    def uses(self, target: Symbol) -> list[Use]:
        """Return the units of all files that refer to a symbol."""
        if target not in self._uses:
            if len(self._uses) >= _MOST_USED:
                self._uses.clear()
            self._uses[target] = list(self._refer(target))
        return self._uses[target]

    def _refer(self, target: Symbol) -> Iterator[Use]:
        own, _, last = target.name.rpartition("::")
        if own:  # other methods of the test class call it
            module = self.module(target.place)
            for unit in module.units.values() if module else ():
                if (
                    unit.name.startswith(f"{own}::")
                    and unit.name != target.name
                    and last in unit.own.get("", ())
                ):
                    yield Use(target.place, unit, frozenset(("",)))
            return
        done: set[tuple[str, str]] = set()
        words, looked = [last], {last}
        while words:
            word = words.pop()
            for place in self._candidates(word, target):
                module = self.module(place)
                if module is None:
                    continue
                here = {word}
                for binds in (module.binds, *(unit.binds for unit in module.units.values() if unit.binds)):
                    for alias, bind in binds.items():
                        if (
                            bind.names == (word,)
                            and alias not in here
                            and self._is(target, self.meaning(place, bind))
                        ):
                            here.add(alias)
                words += here - looked
                looked |= here
                for unit in module.units.values():
                    key = (place, unit.name)
                    if key not in done and key != target and (use := self._use(target, place, unit, here)):
                        done.add(key)
                        yield use

    def _use(self, target: Symbol, place: str, unit: CodeUnit, words: set[str]) -> Use | None:
        hits: list[Chain] = []
        sure = False
        for chain in unit.refs:
            if (
                not words.isdisjoint(chain)
                and (at := self.resolve(place, unit, chain))
                and self._is(target, at)
            ):
                hits.append(chain)
                sure |= at == target
        methods = {method for chain in hits for method in unit.refs[chain]}
        if unit.dynamic and not words.isdisjoint(texts := self._texts(place, unit)):
            for chain in unit.dynamic:
                for word in words & texts:
                    if self._is(target, self.resolve(place, unit, (*chain, word))):
                        hits.append(chain)
                        sure = True
                        methods |= unit.refs.get(chain, frozenset())
        if not hits:
            return None
        calls = tuple(text for text, chain in unit.pairs if chain in hits)
        return Use(place, unit, frozenset(methods), calls, sure)

    def _texts(self, place: str, unit: CodeUnit) -> set[str]:
        """Return the strings that `getattr` may get: the unit's own, and those of the module's lists that it names."""
        module = self.module(place)
        lists = [
            u
            for chain in unit.refs
            if module and (u := module.units.get(chain[0])) and u.kind == "assignment"
        ]
        return unit.strings.union(*(each.strings for each in lists))

    @staticmethod
    def _is(target: Symbol, at: Symbol | None) -> bool:
        if at is None or at.name != target.name:
            return False
        return at.place == target.place or (at.place.endswith("/") and target.place.startswith(at.place))

    def _candidates(self, word: str, target: Symbol) -> list[str]:
        """Return files that may mean the target by a word. If many have the word, return only those that also name a
        part of the target's path.
        """
        places = self.index.mention(word)
        if target.place not in places:
            places.append(target.place)
        if len(places) > _MANY:
            parts = [p for p in target.place.removesuffix(".py").split("/") if p not in ("__init__", "src")]
            parts += [name for name, folder in self.renamed.items() if target.place.startswith(folder)]
            folder = posixpath.dirname(target.place)
            naming = {place for part in parts[-2:] for place in self.index.mention(part)}
            near = [p for p in places if p in naming or p.startswith(folder)]
            rest = [p for p in places if p not in naming and not p.startswith(folder)]
            near.sort(key=lambda p: -_common(p, target.place))
            rest.sort(key=lambda p: -_common(p, target.place))
            places = (near + rest)[:_MOST_READ] if len(near) < _MANY else near[:_MOST_READ]
        return places


def _common(one: str, other: str) -> int:
    """Return how many leading folders two places share."""
    count = 0
    for a, b in zip(one.split("/"), other.split("/"), strict=False):
        if a != b or not a:
            break
        count += 1
    return count
