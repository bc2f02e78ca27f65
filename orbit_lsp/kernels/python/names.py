"""Resolves names: which decorators and calls make kernels, through imports, aliases and wrappers.

Flow is followed as a reader follows it: the last binding before a use counts, and so do those in branches that may
have run. If some branch binds a name to a kernel maker, the name is a kernel maker: the other branch is the fall-back
for machines without the package.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from orbit_lsp.kernels.python.dsls import MAKERS, RELATIVE, WRAPPERS
from orbit_lsp.kernels.python.expressions import (
    CallExpression,
    Either,
    Expression,
    ImportedName,
    LambdaExpression,
    Local,
    NameExpression,
    TextExpression,
    Written,
    read,
)
from orbit_lsp.kernels.python.outline import Binding, CallAssignment, Outline, Path, PythonFunction

_PARTIAL = frozenset(("functools.partial", "partial"))
_IMPORTERS = re.compile(r"import|load|lazy", re.IGNORECASE)
_DEPTH = 16
_LATER = 1 << 60


class LookupPlace(NamedTuple):
    """The place from which a name is looked up. The position counts inside its scope."""

    statement: int
    scope: int
    order: int
    path: Path


class Meaning(NamedTuple):
    """The meaning of a name: a dotted path, a maker of kernels of a language, or a kernel of one."""

    kind: str
    text: str


class Decorated(NamedTuple):
    """What decorators make of a `def`. `language` is that of the kernel, "" if it is not a kernel. `tuned` says that other
    kernels cannot call it. `library` is the name of a decorator above that Triton does not know.
    """

    language: str = ""
    tuned: bool = False
    library: str = ""


Meanings = frozenset[Meaning]
_NOTHING: Meanings = frozenset()


class Names:
    """The names of one file. `outlines` are its statements in order."""

    def __init__(self, outlines: Sequence[Outline]) -> None:
        self.outlines = outlines
        self.module: dict[str, list[int]] = {}
        """The statements that bind a name, in order."""
        self.stars: list[str] = []
        for i, outline in enumerate(outlines):
            for name in outline.scopes[0].bindings:
                self.module.setdefault(name, []).append(i)
            self.stars += outline.stars
        self.functions: dict[tuple[int, int], Meanings] = {}
        self.simple: dict[tuple[str, ...], Meanings] = {}
        self.depth = 0
        self.aliases = self._aliases()

    # -- questions -----------------------------------------------------------------------------

    def decorated(self, statement: int, function: PythonFunction) -> Decorated:
        """Return what the decorators of a `def` make of it."""
        place = LookupPlace(statement, function.scope, function.order, function.path)
        language, tuned, library = "", False, ""
        for decorator in function.decorators:
            call = decorator if isinstance(decorator, CallExpression) else None
            named = call.function if call else decorator
            meanings = self.meanings(named, place)
            wraps = any(meaning.kind == "path" and meaning.text in WRAPPERS for meaning in meanings)
            tuned = tuned or wraps
            for meaning in () if language else self.meanings(call, place) if call else meanings:
                if meaning.kind == "maker" or (meaning.kind == "kernel" and call):
                    language = meaning.text
                    break
            if not (language or wraps or library) and isinstance(named, NameExpression):
                library = named.parts[-1]
        return Decorated(language, tuned, library) if language else Decorated()

    def assigned_language(self, statement: int, assignment: CallAssignment) -> str:
        """Return the language of the kernel that `name = call` makes. Return "" if it makes none."""
        if not assignment.says_maker and self.aliases.isdisjoint(assignment.callees):
            scopes = self.outlines[statement].scopes
            scope = assignment.scope
            while scope > 0 and assignment.callees.isdisjoint(scopes[scope].bindings):
                scope = scopes[scope].parent
            if scope <= 0:
                return ""
        place = LookupPlace(statement, assignment.scope, assignment.order, assignment.path)
        language = self._made(assignment.value, place)
        if language and self._of_parameter(assignment.value, place):  # a wrapper's inside
            return ""
        return language

    def target(self, statement: int, assignment: CallAssignment) -> tuple[int, PythonFunction] | None:
        """Return the function of this file that an assignment turns into a kernel."""
        place = LookupPlace(statement, assignment.scope, assignment.order, assignment.path)
        for name in _innermost(_resolve(assignment.value)):
            for where, value in self._lookup(name, place):
                if isinstance(value, Local) and value.kind == "function":
                    return where.statement, self.outlines[where.statement].functions[value.number]
        return None

    def _aliases(self) -> set[str]:
        """Return names of the module that may mean a maker although they contain no maker's word."""
        aliases: set[str] = set()
        for outline in self.outlines:
            if not outline.says_maker and aliases.isdisjoint(outline.words):
                continue
            for name, bindings in outline.scopes[0].bindings.items():
                if any(self._may_make(outline, binding.value) for binding in bindings):
                    aliases.add(name)
        return aliases

    def _may_make(self, outline: Outline, value: Expression) -> bool:
        if isinstance(value, ImportedName):
            return _path(_absolute(value.path)).kind == "maker"
        if isinstance(value, Local) and value.kind == "function":
            return bool(outline.functions[value.number].returns)
        return value is not None

    # -- meanings ------------------------------------------------------------------------------

    def meanings(self, expression: Expression, place: LookupPlace) -> Meanings:
        if self.depth > _DEPTH:
            return _NOTHING
        self.depth += 1
        try:
            return self._meanings(_resolve(expression), place)
        finally:
            self.depth -= 1

    def _meanings(self, expression: Expression, place: LookupPlace) -> Meanings:
        match expression:
            case NameExpression(parts):
                return self._name(parts, place)
            case CallExpression():
                return self._call(expression, place)
            case ImportedName(path):
                return frozenset((_path(_absolute(path)),))
            case Either(options):
                return _NOTHING.union(*(self.meanings(option, place) for option in options))
            case LambdaExpression(parameters, body):
                language = self._wraps(body, place, parameters)
                return frozenset((Meaning("maker", language),)) if language else _NOTHING
            case Local("function", number):
                return self._function(place.statement, number)
            case Local("class", number):
                defined = self.outlines[place.statement].classes[number]
                inside = LookupPlace(place.statement, defined.scope, defined.order, defined.path)
                bases = _NOTHING.union(*(self.meanings(base, inside) for base in defined.bases))
                return frozenset(meaning for meaning in bases if meaning.kind == "maker")
            case _:
                return _NOTHING

    def _name(self, parts: tuple[str, ...], place: LookupPlace) -> Meanings:
        bindings = self._lookup(parts[0], place)
        if not bindings and parts[0] not in self.module:
            return self._starred(parts)
        # most names are those of an import at the top of the file
        only = bindings[0][1] if len(bindings) == 1 else None
        if not isinstance(only, ImportedName):
            return self._bound(parts, bindings)
        key = (only.path, *parts[1:])
        if key not in self.simple:
            self.simple[key] = self._bound(parts, bindings)
        return self.simple[key]

    def _bound(self, parts: tuple[str, ...], bindings: list[tuple[LookupPlace, Expression]]) -> Meanings:
        result: set[Meaning] = set()
        for where, value in bindings:
            if isinstance(value, ImportedName):  # `triton.runtime.jit` is a maker and a module
                result.add(_attribute(_absolute(value.path), parts[1:]))
                continue
            for meaning in self.meanings(value, where):
                if len(parts) == 1:
                    result.add(meaning)
                elif meaning.kind == "path":
                    result.add(_attribute(meaning.text, parts[1:]))
        return frozenset(result)

    def _starred(self, parts: tuple[str, ...]) -> Meanings:
        result: set[Meaning] = set()
        for module in self.stars:
            if module == "triton" or module.startswith("triton."):
                result.add(_path(".".join((module, *parts))))
            elif parts[0] == "triton":  # whatever that module is, this is how such files get triton
                result.add(_path(".".join(parts)))
        return frozenset(result)

    def _call(self, call: CallExpression, place: LookupPlace) -> Meanings:
        result: set[Meaning] = set()
        first = call.arguments[0] if call.arguments else None
        for meaning in self.meanings(call.function, place):
            if meaning.kind == "maker":
                if meaning.text == "numba" and call.device_only:
                    continue
                bare = first is None or isinstance(first, TextExpression)
                result.add(meaning if bare else Meaning("kernel", meaning.text))
            elif meaning.kind != "path":
                continue
            elif meaning.text in _PARTIAL:
                result.update(meaning for meaning in self.meanings(first, place) if meaning.kind == "maker")
            elif isinstance(first, TextExpression) and _IMPORTERS.search(meaning.text.rpartition(".")[2]):
                result.add(_path(first.text))
        if isinstance(call.function, NameExpression):
            last = call.function.parts[-1]
            if (
                last == "getattr"
                and len(call.arguments) > 1
                and isinstance(call.arguments[1], TextExpression)
            ):
                for meaning in self.meanings(first, place):
                    if meaning.kind == "path":
                        result.add(_attribute(meaning.text, (call.arguments[1].text,)))
            elif isinstance(first, TextExpression) and _IMPORTERS.search(last):
                result.add(_path(first.text))
        return frozenset(result)

    def _function(self, statement: int, index: int) -> Meanings:
        """Return the meaning of a function of the file: a kernel, a wrapper that makes kernels, or neither."""
        if (known := self.functions.get((statement, index))) is not None:
            return known
        self.functions[statement, index] = _NOTHING  # while it is being asked: it may name itself
        function = self.outlines[statement].functions[index]
        result = _NOTHING
        if language := self.decorated(statement, function).language:
            result = frozenset((Meaning("kernel", language),))
        elif function.returns:
            place = LookupPlace(statement, function.body_scope, _LATER, ())
            for value in function.returns:
                if language := self._wraps(value, place, self._parameters(statement, function)):
                    result = frozenset((Meaning("maker", language),))
                    break
        self.functions[statement, index] = result
        return result

    def _parameters(self, statement: int, function: PythonFunction) -> tuple[str, ...]:
        """Return the parameters of the function and of the functions inside it, whose returns count as its own."""
        scopes = self.outlines[statement].scopes
        inside = {function.body_scope}
        names = list(scopes[function.body_scope].parameters)
        for i in range(function.body_scope + 1, len(scopes)):
            if scopes[i].parent in inside:
                inside.add(i)
                names += scopes[i].parameters
        return tuple(names)

    def _wraps(self, value: Expression, place: LookupPlace, parameters: tuple[str, ...]) -> str:
        """Return the language if `value` makes a kernel of a parameter, or is a maker itself."""
        value = _resolve(value)
        if self.depth > _DEPTH:
            return ""
        self.depth += 1
        try:
            if isinstance(value, LambdaExpression):
                return self._wraps(value.body, place, (*parameters, *value.parameters))
            if isinstance(value, Either):  # `triton.jit(f) if enabled else f`
                made = (self._wraps(option, place, parameters) for option in value.options)
                return next(filter(None, made), "")
            if (
                isinstance(value, NameExpression)
                and len(value.parts) == 1
                and value.parts[0] not in parameters
            ):
                for where, bound in self._lookup(value.parts[0], place):
                    if isinstance(_resolve(bound), CallExpression) and (
                        language := self._wraps(bound, where, parameters)
                    ):
                        return language
            if isinstance(value, CallExpression):
                first = _resolve(value.arguments[0]) if value.arguments else None
                on_parameter = isinstance(first, NameExpression) and first.parts[0] in parameters
                for meaning in self.meanings(value, place):
                    if meaning.kind == "maker" or (meaning.kind == "kernel" and on_parameter):
                        return meaning.text
                for argument in value.arguments:
                    if isinstance(argument, CallExpression) and (
                        language := self._wraps(argument, place, parameters)
                    ):
                        return language
                return ""
            return next(
                (meaning.text for meaning in self.meanings(value, place) if meaning.kind == "maker"), ""
            )
        finally:
            self.depth -= 1

    def _made(self, value: Expression, place: LookupPlace) -> str:
        """Return the language of the kernel that is made in a call. A kernel that the call only takes does not count.

        `tuned = triton.autotune(...)(kernel)` is the same kernel under another name.
        """
        value = _resolve(value)
        if not isinstance(value, CallExpression):
            return ""
        for meaning in self.meanings(value, place):
            if meaning.kind == "kernel":
                return meaning.text
        return next(filter(None, (self._made(argument, place) for argument in value.arguments)), "")

    def _of_parameter(self, value: Expression, place: LookupPlace) -> bool:
        """Say whether a call works on a parameter of the functions around it, and so on no particular kernel."""
        scopes = self.outlines[place.statement].scopes
        parameters: set[str] = set()
        scope = place.scope
        while scope > 0:
            parameters.update(scopes[scope].parameters)
            scope = scopes[scope].parent
        return bool(parameters) and next(_innermost(_resolve(value)), "") in parameters

    # -- lookup --------------------------------------------------------------------------------

    def _lookup(self, name: str, place: LookupPlace) -> list[tuple[LookupPlace, Expression]]:
        """Return what `name` may be bound to at `place`, each with the place where it was bound."""
        outline = self.outlines[place.statement]
        scope, order, path = place.scope, place.order, place.path
        first = True
        while scope > 0:
            here = outline.scopes[scope]
            if first or here.kind != "class":
                bindings = here.bindings.get(name)
                if bindings:
                    bound = [
                        (LookupPlace(place.statement, scope, binding.order, binding.path), binding.value)
                        for binding in _reaching(bindings, order, path)
                    ]
                    if bound:
                        return bound
                if name in here.parameters:
                    return [(place, None)]
            if here.kind == "function":  # its body runs later than the text around it
                order, path = _LATER, ()
            else:
                order, path = self._class_place(place.statement, scope, order)
            first = False
            scope = here.parent
        return self._global(name, place.statement if order != _LATER else _LATER, order, path)

    def _class_place(self, statement: int, scope: int, order: int) -> tuple[int, Path]:
        if order == _LATER:
            return _LATER, ()
        for class_ in self.outlines[statement].classes:
            if class_.order <= order and class_.body_scope == scope:
                return class_.order, class_.path
        return order, ()

    def _global(
        self, name: str, statement: int, order: int, path: Path
    ) -> list[tuple[LookupPlace, Expression]]:
        result: list[tuple[LookupPlace, Expression]] = []
        binding_statements = self.module.get(name, [])
        for here in reversed(binding_statements[: bisect_right(binding_statements, statement)]):
            for binding in reversed(self.outlines[here].scopes[0].bindings[name]):
                if here == statement and binding.order >= order:
                    continue
                reach = _reach(binding.path, path if here == statement else ())
                if reach != "never":
                    result.append((LookupPlace(here, 0, binding.order, binding.path), binding.value))
                if reach == "always":
                    return result
        return result


def _reaching(bindings: Sequence[Binding], order: int, path: Path) -> Iterator[Binding]:
    for binding in reversed(bindings):
        if binding.order >= order:
            continue
        reach = _reach(binding.path, path)
        if reach != "never":
            yield binding
        if reach == "always":
            return


def _reach(binding: Path, use: Path) -> str:
    """Return whether a binding on one branch is seen from another: always, maybe or never."""
    for i, (statement, arm, exclusive) in enumerate(binding):
        if i >= len(use) or use[i][0] != statement:
            return "maybe"
        if use[i][1] != arm:
            return "never" if exclusive else "maybe"
    return "always"


def _resolve(expression: Expression) -> Expression:
    return read(expression.text) if isinstance(expression, Written) else expression


def _innermost(expression: Expression) -> Iterator[str]:
    """Yield the names that are arguments, those of the most deeply nested call first."""
    if isinstance(expression, CallExpression):
        for argument in expression.arguments:
            yield from _innermost(argument)
        for argument in expression.arguments:
            if isinstance(argument, NameExpression) and len(argument.parts) == 1:
                yield argument.parts[0]


def _path(dotted: str) -> Meaning:
    language = MAKERS.get(dotted)
    return Meaning("maker", language) if language else Meaning("path", dotted)


def _attribute(path: str, names: Sequence[str]) -> Meaning:
    for name in names:
        # `utils.compat.triton`: packages hand triton on, with a fall-back for machines without it
        path = "triton" if name == "triton" else f"{path}.{name}"
    return _path(path)


def _absolute(imported: str) -> str:
    module, _, name = imported.rpartition(".")
    if name == "triton" and module:
        return "triton"
    if imported.startswith("."):
        inner = module.lstrip(".")
        for suffix, absolute in RELATIVE.items():
            if inner == suffix or inner.endswith("." + suffix):
                return f"{absolute}.{name}"
    return imported
