"""Drafts a spec for a Triton kernel from its signature. The body shows which parameters are addresses and what
divides them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import field
from itertools import takewhile
from typing import NamedTuple

from orbit_lsp.drafts import guesses
from orbit_lsp.drafts.guesses import DraftStatement, DraftSubject, Sizes, guessed
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.spec.file_context import bracketed
from orbit_remote.spec.signature import Parameter

_REALS = frozenset(("eps", "epsilon", "scale", "alpha", "beta", "p"))
_MOST_PASSES = 8


class Mask(NamedTuple):
    """A mask: `offsets < extent` or `offsets % extent`. `axis` is the axis of the grid from whose program number the
    offsets are computed, None if they begin at 0. `block` is how many offsets there are, "" if that is not known.
    """

    axis: int | None
    extent: str
    block: str


@dataclass
class Body:
    """What a kernel's function does with its parameters, whose names are `names`."""

    names: list[str]
    constants: set[str]
    nodes: list[ast.AST]
    assigned: dict[str, list[ast.expr]] = field(default_factory=dict[str, list[ast.expr]])
    derived: dict[str, set[int | str]] = field(default_factory=dict[str, "set[int | str]"])
    _bases: dict[str, set[str]] = field(default_factory=dict[str, set[str]])

    def __post_init__(self) -> None:
        for node in self.nodes:
            more = list(assignments(node))
            if isinstance(node, ast.AugAssign | ast.For) and isinstance(node.target, ast.Name):
                more.append((node.target.id, node.iter if isinstance(node, ast.For) else node.value))
            for name, value in more:
                self.assigned.setdefault(name, []).append(value)
        self.calls = [(name, node) for node in self.nodes if (name := _called(node))]
        for _ in range(_MOST_PASSES):
            before = sum(map(len, self.derived.values()))
            for name, values in self.assigned.items():
                self.derived[name] = {origin for value in values for origin in self.origins(value)}
            if sum(map(len, self.derived.values())) == before:
                break
        named = {name for name in self.names if re.search(r"(?:^|_)ptr\d*$", name)}
        accessed = (self.accessed(kind) for kind in ("load", "store", "atomic", "make_"))
        self.pointers = named.union(*accessed) - self.constants
        axes = [axis for node in self.nodes if (axis := _axis(node)) is not None]
        self.axes = max(axes, default=-1) + 1
        self.ranges = {_range(node) for node in self.nodes} - {""}
        self.masks = list(dict.fromkeys(mask for node in self.nodes for mask in self._masks(node)))
        self.whole = self.ranges | {mask.extent for mask in self.masks if mask.axis is None}
        """Sizes that a program takes whole."""

    @property
    def blocks(self) -> set[str]:
        """Return the constants that say how much a program handles at once, by their names or because a range has
        that length.
        """
        named = {name for name in self.constants if re.search("block|tile|chunk", name, re.IGNORECASE)}
        divides = {mask.block for mask in self.masks if mask.axis is not None}  # whatever it is called
        ranges = self.ranges & self.constants
        return named | {name for name in ranges if name in divides or not guesses.is_size(name)}

    def origins(self, node: ast.AST) -> set[int | str]:
        """Return what a value is made of: axes of the grid, lengths of ranges, and `*pointer` for what is loaded from
        it.
        """
        origins: set[int | str] = set()
        for each in ast.walk(node):
            axis, name = _axis(each), _range(each)
            origins |= ({axis} if axis is not None else set()) | ({name} if name else set())
            if isinstance(each, ast.Name):
                origins |= self.derived.get(each.id, set())
            elif _called(each) == "load":
                origins |= {f"*{base}" for base in self.bases(_first(each))}
        return origins

    def bases(self, node: ast.expr | None) -> set[str]:
        """Return the parameters that an address begins with."""
        match node:
            case ast.Name(id=name):
                if name not in self._bases:
                    self._bases[name] = {name} & set(self.names)
                    for value in self.assigned.get(name, []):
                        self._bases[name] = self._bases[name] | self.bases(value)
                return self._bases[name]
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub(), right=right):
                return self.bases(left) or self.bases(right)
            case ast.Subscript(value=value):
                return self.bases(value)
            case ast.Call(func=ast.Attribute(value=value)):
                return self.bases(_first(node)) or self.bases(value)
            case _:
                return set()

    def accessed(self, kind: str) -> set[str]:
        """Return the parameters whose addresses functions of this kind get: `load`, `store`, `atomic`."""
        return {
            base for name, call in self.calls if name.startswith(kind) for base in self.bases(_first(call))
        }

    def places(self) -> set[str]:
        """Return the pointers to places in other tensors: what is loaded from them becomes a part of an address."""
        addresses = [_first(call) for name, call in self.calls if name in ("load", "store", "atomic_add")]
        origins = {origin for address in addresses if address for origin in self.origins(address)}
        return {name for name in self.pointers if f"*{name}" in origins}

    def _masks(self, node: ast.AST) -> Iterator[Mask]:
        match node:
            case (
                ast.Compare(left=left, ops=[ast.Lt()], comparators=[ast.Name(id=extent)])
                | ast.BinOp(left=left, op=ast.Mod(), right=ast.Name(id=extent))
            ) if guesses.is_size(extent) and extent in self.names:
                origins = self.origins(left)
                axes = [origin for origin in origins if isinstance(origin, int)]
                ranges = sorted(
                    origin for origin in origins if isinstance(origin, str) and origin in self.ranges
                )
                yield Mask(min(axes, default=None), extent, ranges[0] if ranges else "")
            case _:
                pass

    def factor(self, axis: int) -> str:
        """Return the factor of a program's number along this axis: a block, or the length of a row."""
        for node in self.nodes:
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
                for number, factor in ((node.left, node.right), (node.right, node.left)):
                    if isinstance(factor, ast.Name) and axis in self.origins(number):
                        return factor.id
        return ""


def body_of(subject: DraftSubject, tree: ast.Module) -> Body | None:
    """Return the body of the definition with these parameters. `kernel = triton.jit(function)` may have given it
    another name.
    """
    constants = {parameter.name for parameter in subject.header.parameters if parameter.kind == "constexpr"}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            names = [
                argument.arg for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
            ]
            if names == subject.names and (
                node.name == subject.name or f"({node.name})" in subject.around.text
            ):
                return Body(
                    names, constants, [each for statement in node.body for each in ast.walk(statement)]
                )
    return None


def assignments(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Yield the names that a statement assigns, with their values."""
    match node:
        case ast.Assign(targets=[ast.Tuple(elts=names)], value=value):
            parts = value.elts if isinstance(value, ast.Tuple) and len(value.elts) == len(names) else None
            for at, name in enumerate(names):
                if isinstance(name, ast.Name):
                    yield name.id, parts[at] if parts else ast.Subscript(value, ast.Constant(at), ast.Load())
        case ast.Assign(targets=targets, value=value):
            yield from ((name.id, value) for name in targets if isinstance(name, ast.Name))
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
            yield name, value
        case _:
            pass


def _called(node: ast.AST) -> str:
    """Return the `load` of `tl.load(…)`."""
    return node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else ""


def _first(node: ast.AST) -> ast.expr | None:
    given = [*node.args, *(keyword.value for keyword in node.keywords)] if isinstance(node, ast.Call) else []
    return given[0] if given else None


def _axis(node: ast.AST) -> int | None:
    first = _first(node) if _called(node) == "program_id" else None
    return first.value if isinstance(first, ast.Constant) and isinstance(first.value, int) else None


def _range(node: ast.AST) -> str:
    """Return the `BLOCK` of `tl.arange(0, BLOCK)`."""
    match node:
        case ast.Call(func=ast.Attribute(attr="arange"), args=[_, ast.Name(id=end)]):
            return end
        case _:
            return ""


# -- the draft ---------------------------------------------------------------------------------------


def _by_heuristics(subject: DraftSubject) -> set[str]:
    """Return the constants that `@triton.heuristics` makes: the keys of its dictionary, in the decorators of the
    kernel.
    """
    text = subject.around.text
    own = re.search(rf"^[ \t]*def\s+{re.escape(subject.name)}\s*\(", text, re.MULTILINE)
    if own is None:
        return set()
    decorators = re.split(r"^[ \t]*(?:def|class)\s", text[: own.start()], flags=re.MULTILINE)[-1]
    given = [bracketed(each) or "" for each in re.split(r"\bheuristics\s*(?=\()", decorators)[1:]]
    return set(re.findall(r"['\"](\w+)['\"]\s*:", " ".join(given)))


def draft(subject: DraftSubject, body: Body) -> list[DraftStatement] | None:
    header = subject.header
    if any(parameter.refused for parameter in header.parameters):
        return None
    configurations = re.findall(r"\bConfig\s*\(\s*(?:kwargs\s*=\s*)?\{([^{}]*)\}", subject.around.text)
    tuned = set(re.findall(r"['\"](\w+)['\"]\s*:", " ".join(configurations))) if header.tuned else set[str]()
    tuned |= _by_heuristics(subject) if header.tuned else set()
    sizes = sizes_of(subject, body)
    given = [
        parameter for parameter in header.parameters if parameter.name not in tuned and not parameter.optional
    ]
    statements = [guessed(name, value) for name, value in sizes.values.items()]
    statements += [
        value_of(parameter, body, sizes) for parameter in given if parameter.name not in sizes.values
    ]
    by_place = list(takewhile(lambda pair: pair[0] is pair[1] and pair[0].kind != "constexpr", zip(given, header.parameters, strict=False)))  # fmt: skip
    arguments = [
        parameter.name if at < len(by_place) else f"{parameter.name}={parameter.name}"
        for at, parameter in enumerate(given)
    ]
    programs = grid(subject, body, sizes, tuned)
    statements += [] if programs else [guessed("grid", "")]
    launch = f"launch {subject.name}[{programs or 'grid'}]({', '.join(arguments)})"
    return [*statements, DraftStatement(launch, "guessed: grid" if programs else "")]


def sizes_of(subject: DraftSubject, body: Body) -> Sizes:
    called = (node.value for node in body.nodes if isinstance(node, ast.Attribute))
    objects = {of.id for of in called if isinstance(of, ast.Name)}  # descriptors load and store themselves
    no_sizes = body.pointers | body.blocks | objects
    names = [
        parameter.name
        for parameter in subject.header.parameters
        if parameter.name not in no_sizes and not parameter.optional
    ]
    row = bool(body.whole & set(names)) or bool({body.factor(0)} - body.blocks - {""})
    known = guesses.sizes(names, body.names, row=row, square=body.axes > 1)
    values = {name: "64" if name in body.constants else value for name, value in known.values.items()}
    return Sizes(values, known.shape, known.matrices)


def grid(subject: DraftSubject, body: Body, sizes: Sizes, tuned: set[str]) -> str:
    """Return the grid: a program for every block along the axes that masks divide, a program for every row along the
    others. Return "" if several sizes are possible.
    """
    defaults = dict(re.findall(r"\b(\w+)\s*:\s*[\w.]*constexpr\s*=\s*(\d+)", subject.header.text))

    def over(extent: str, name: str) -> str:
        value = f"META['{name}']" if name in tuned else defaults.get(name, name)
        return f"triton.cdiv({extent}, {value})" if name in body.blocks else extent

    left = [name for name in sizes.shape if name not in {*body.whole, *(mask.extent for mask in body.masks)}]
    parts: list[str] = []
    for axis in range(body.axes):
        divided = {mask.extent: mask.block for mask in reversed(body.masks) if mask.axis == axis}
        if not divided and body.axes == 1 and sizes.matrices:
            letters = {name[-1].lower(): name for name in sorted(body.blocks, reverse=True)}
            divided = {size: letters.get(size.lower(), "") for size in reversed(sizes.shape)}
        if not divided and len(left) > 2:
            return ""
        divided = divided or {left.pop(0) if left else "1": body.factor(axis)}
        parts.append(" * ".join(over(*part) for part in reversed(divided.items())))
    text = f"({', '.join(parts or ['1'])}{',' * (len(parts) < 2)})"
    return f"lambda META: {text}" if "META[" in text else text


def value_of(parameter: Parameter, body: Body, sizes: Sizes) -> DraftStatement:
    """Return the assignment of a parameter that is no size."""
    name = parameter.name
    if name in body.pointers:
        return guessed(name, tensor(name, body, sizes))
    if name in body.blocks:
        return guessed(name, block(name, body))
    if parameter.kind == "constexpr":
        tests = [node.test for node in body.nodes if isinstance(node, ast.If)]
        condition = any(isinstance(test, ast.Name) and test.id == name for test in tests)
        return guessed(name, "8" if "group" in name.lower() else "True" if condition else "")
    real = guesses.real(name) if _REALS & set(guesses.words(name)) else ""
    return guessed(name, real or guesses.stride(name, body.names, sizes))


def tensor(name: str, body: Body, sizes: Sizes) -> str:
    """Return a tensor: empty if it is only written, zeros if atomics add to it."""
    added = body.accessed("atomic")
    written = body.accessed("store") | added
    inputs = [each for each in body.names if each in body.pointers - written]
    shape = ", ".join(sizes.operand(name, inputs))
    narrow = [each.attr for each in body.nodes if isinstance(each, ast.Attribute) and "float16" in each.attr]
    typed = f", dtype={narrow[0]}" if narrow and any(called == "dot" for called, _ in body.calls) else ""
    if name in added:
        return f"zeros({shape})"
    if name in written - body.accessed("load"):
        return f"empty({shape}{typed})"
    return f"randint(0, {sizes.shape[-1]}, ({shape},))" if name in body.places() else f"randn({shape}{typed})"


def block(name: str, body: Body) -> str:
    """Return the size of a block. If it takes a whole row, it is as long as the row. A block that divides two axes is
    smaller than one that divides one.
    """
    masks = [mask for mask in body.masks if mask.block == name]
    if masks and all(mask.axis is None for mask in masks):
        return f"triton.next_power_of_2({masks[0].extent})"
    if len(body.blocks) < 2 and body.axes < 2:
        return "1024"
    return "32" if name.lower().endswith(("_k", "bk")) else "64"
