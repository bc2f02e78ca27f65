"""What is wrong with a spec as a whole: its launches against the kernel's parameters, its values against its use."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from orbit_remote.spec_interpreter import Scope, Untuned, evaluate, grid
from orbit_remote.spec_parameters import Parameter, Signature, element_of
from orbit_remote.spec_scalars import misfit
from orbit_remote.spec_shapes import expected_shape
from orbit_remote.spec_syntax import nearest
from orbit_remote.spec_text import Target
from orbit_remote.spec_tree import (
    Attribute,
    Call,
    Expect,
    Expression,
    Fault,
    Index,
    Launch,
    Name,
    Span,
    Spec,
    SpecError,
    walk,
)
from orbit_remote.spec_values import Dim3, Scalar, Tensor, TensorMap, Value, World, shown

# CUDA C++ Programming Guide, "Compute Capabilities", the same for every one from 5.0 on
MOST_THREADS: Final = 1024
MOST_BLOCK: Final = (1024, 1024, 64)
MOST_GRID: Final = ((1 << 31) - 1, 65535, 65535)

_OPTIONS: Final = ("num_warps", "num_stages", "num_ctas", "maxnreg", "enable_fp_fusion", "launch_cooperative_grid", "launch_pdl")  # fmt: skip
_MOST_AMOUNT: Final = {"iterations": 10**9, "timeout": 86400, "seed": (1 << 63) - 1}


def static(spec: Spec, target: Target) -> list[Fault]:
    """What needs no values: whether there is a launch, and of this kernel."""
    if not spec.launches:
        measured = [*spec.expects, *spec.references, *spec.cases]
        if measured:
            return [Fault(measured[0].span, f"There is no launch of '{target.name}' to check.")]
        return []
    if any(launch.kernel.name == target.name for launch in spec.launches):
        return []
    kernel = spec.launches[0].kernel
    near = nearest(kernel.name, [target.name])
    return [Fault(kernel.span, f"This launches '{kernel.name[:40]}', and the kernel below is '{target.name}'{near}.")]  # fmt: skip


def unused(spec: Spec) -> list[Fault]:
    """A warning at every assigned name that nothing mentions."""
    if not spec.launches:
        return []
    mentioned = {node.name for one in _expressions(spec) for node in walk(one) if isinstance(node, Name)}
    mentioned |= {argument.text for launch in _all_launches(spec) for argument in launch.templates}
    mentioned |= {name.name for one in spec.references for name in one.outputs}
    return [
        Fault(one.name.span, f"'{one.name.name}' is used nowhere.", "warning")
        for one in spec.assignments
        if one.name.name not in mentioned
    ]


def _all_launches(spec: Spec) -> list[Launch]:
    return [*spec.launches, *(one.launch for one in spec.references if one.launch)]


def _expressions(spec: Spec) -> list[Expression]:
    found: list[Expression | None] = [one.value for one in spec.assignments]
    for launch in _all_launches(spec):
        found += [launch.grid, launch.block, launch.shared, launch.cluster, *launch.arguments]
        found += [keyword.value for keyword in launch.keywords]
        found += [argument.value for argument in launch.templates]
    for expect in spec.expects:
        found += [expect.actual, expect.expected]
    for one in (*spec.expects, *spec.references):
        found += [one.within.rtol, one.within.atol] if one.within else []
    found += [one.call for one in spec.references]
    found += [value.value for case in spec.cases for value in case.values]
    found += [one.value for one in (*spec.symbols, *spec.amounts.values())]
    return [one for one in found if one is not None]


def chosen_types(header: Signature, launch: Launch) -> dict[str, str]:
    """The template's type parameters -> the text of the types that the launch chooses."""
    pairs = zip(header.templates, launch.templates, strict=False)
    return {one.name: given.text for one, given in pairs if one.kind == "type" and not one.pack}


def launches(
    spec: Spec, header: Signature | None, values: Mapping[str, Value], world: World, *, partial: bool
) -> list[Fault]:
    """What is wrong with the directives for these values.

    `partial` says that some names have no value because of a fault that is told already: names that
    are not known are then left alone, where they are assigned.
    """
    checks = _Checks(spec, header, values, world, partial=partial)
    for launch in spec.launches:
        checks.run(lambda one=launch: checks.launch(one))
    for one in spec.expects:
        checks.run(lambda each=one: checks.expect(each))
    for one in spec.symbols:
        checks.run(lambda each=one: checks.value(each.value))
    for one in spec.amounts.values():
        checks.run(lambda each=one: checks.amount(each.word, each.value))
    return checks.faults


class _Checks:
    def __init__(
        self,
        spec: Spec,
        header: Signature | None,
        values: Mapping[str, Value],
        world: World,
        *,
        partial: bool,
    ) -> None:
        self.spec = spec
        self.header = header
        self.values = values
        self.world = world
        missing = [*spec.broken, *(one.name.name for one in spec.assignments if one.name.name not in values)]
        self.missing = frozenset(missing) if partial else frozenset[str]()
        self.faults: list[Fault] = []

    def run(self, check: Callable[[], object]) -> None:
        try:
            check()
        except SpecError as error:
            self.faults.append(error.fault)
        except Untuned:
            return

    def known(self, *nodes: Expression | None) -> bool:
        names = {one.name for node in nodes if node for one in walk(node) if isinstance(one, Name)}
        return not names & self.missing

    def value(self, node: Expression, world: World | None = None) -> Value:
        """None where a name has no value for a reason that is told already."""
        return evaluate(node, world or self.world, Scope(self.values)) if self.known(node) else None

    # -- launches ----------------------------------------------------------------------------------

    def launch(self, one: Launch) -> None:
        own = self.header if self.header and self.header.name == one.kernel.name else None
        if self.world.language == "cuda":
            self._cuda(one, own)
        else:
            self._triton(one, own)

    def _cuda(self, one: Launch, own: Signature | None) -> None:
        self.run(lambda: self._extents(one.grid, "grid", MOST_GRID))
        self.run(lambda: self._block(one))
        self.run(lambda: self._shared(one))
        if own is None:
            for argument in one.arguments:
                self.run(lambda node=argument: self.value(node))
            return
        self._templates(one, own)
        if len(one.arguments) != len(own.parameters):
            wanted = f"{len(own.parameters)} argument{'s' * (len(own.parameters) != 1)}"
            where = one.arguments[len(own.parameters)].span if len(one.arguments) > len(own.parameters) else one.kernel.span  # fmt: skip
            message = f"{own.name} takes {wanted}, not {len(one.arguments)}: ({own.text[:120]})."
            self.faults.append(Fault(where, message))
        types = chosen_types(own, one)
        for parameter, argument in zip(own.parameters, one.arguments, strict=False):
            self.run(lambda p=parameter, a=argument: self._passed(p, a, types))
        for argument in one.arguments[len(own.parameters) :]:
            self.run(lambda node=argument: self.value(node))

    def _templates(self, one: Launch, own: Signature) -> None:
        if any(each.pack for each in own.templates):
            return
        if len(one.templates) > len(own.templates):
            extra = one.templates[len(own.templates)]
            count = len(own.templates)
            message = f"{own.name} takes {count or 'no'} template argument{'s' * (count != 1)}."
            self.faults.append(Fault(extra.span, message))

    def _triples(self, node: Expression, what: str) -> tuple[int, ...] | None:
        value = self.value(node)
        if not self.known(node):
            return None
        return _triple(value, node.span, what)

    def _extents(self, node: Expression | None, what: str, most: tuple[int, ...]) -> tuple[int, ...] | None:
        found = self._triples(node, what) if node else None
        if node and found:
            in_range(found, node.span, what, most)
        return found

    def _block(self, one: Launch) -> None:
        found = self._extents(one.block, "block", MOST_BLOCK)
        if one.block and found and (count := math.prod(found)) > MOST_THREADS:
            raise SpecError(one.block.span, f"This block has {count} threads; a block has at most {MOST_THREADS}.")  # fmt: skip

    def _shared(self, one: Launch) -> None:
        value = self.value(one.shared) if one.shared else None
        if one.shared and self.known(one.shared) and _whole(value, one.shared.span, "Shared memory") < 0:
            raise SpecError(one.shared.span, "Shared memory is a number of bytes from 0 on.")

    def _passed(self, parameter: Parameter, node: Expression, types: dict[str, str]) -> None:
        if parameter.refused:
            raise SpecError(node.span, parameter.refused)
        value = self.value(node)
        if not self.known(node):
            return
        written = f"'{parameter.name}' is {parameter.type}" if parameter.name else f"This is {parameter.type}"
        if parameter.kind == "pointer":
            if value is not None and not isinstance(value, Tensor):
                raise SpecError(node.span, f"{written}, which takes a tensor, not {shown(value)}.")
            element = element_of(parameter, types)
            if isinstance(value, Tensor) and element and value.dtype is not element[0]:
                raise SpecError(
                    node.span, f"{written}, and this tensor has {value.dtype.name}, not {element[0].name}."
                )
        elif parameter.kind == "scalar":
            if not isinstance(value, Scalar):
                raise SpecError(node.span, f"{written}, which takes a number, not {shown(value)}.")
            element = element_of(parameter, types)
            if element and (why := misfit(value, element[0])):
                raise SpecError(node.span, f"{written}, and {why}.")
        elif not isinstance(value, TensorMap):
            raise SpecError(node.span, f"{written}, which takes a tensor_map(…), not {shown(value)}.")

    def _triton(self, one: Launch, own: Signature | None) -> None:
        constants: dict[str, Value] = {}
        for keyword in one.keywords:
            self.run(lambda each=keyword: constants.update({each.name: self.value(each.value)}))
        positional = own.parameters if own else ()
        for at, argument in enumerate(one.arguments):
            name = positional[at].name if at < len(positional) else ""
            self.run(lambda each=argument, key=name: constants.update({key: self.value(each)}))
        if own:
            self._bound(one, own)
        if one.grid is None or not self.known(one.grid, *(k.value for k in one.keywords)):
            return
        value = grid(one.grid, self.world, Scope(self.values), constants, tuned=own is None or own.tuned)
        in_range(_triple(value, one.grid.span, "grid"), one.grid.span, "grid", MOST_GRID)

    def _bound(self, one: Launch, own: Signature) -> None:
        names = [each.name for each in own.parameters]
        if len(one.arguments) > len(names):
            message = (
                f"{own.name} takes {len(names)} arguments, not {len(one.arguments)}: ({own.text[:120]})."
            )
            self.faults.append(Fault(one.arguments[len(names)].span, message))
        given = set(names[: len(one.arguments)])
        for keyword in one.keywords:
            if keyword.name in given:
                self.faults.append(Fault(keyword.span, f"'{keyword.name}' is given twice."))
            elif keyword.name not in names and keyword.name not in _OPTIONS:
                near = nearest(keyword.name, [*names, *_OPTIONS])
                self.faults.append(Fault(keyword.span, f"{own.name} has no '{keyword.name}'{near}."))
            given.add(keyword.name)
        lacking = [
            each.name
            for each in own.parameters
            if each.name not in given and not each.optional and not (own.tuned and each.kind == "constexpr")
        ]
        if lacking:
            self.faults.append(Fault(one.kernel.span, f"{own.name} lacks '{lacking[0]}': ({own.text[:120]})."))  # fmt: skip

    # -- expectations and amounts ------------------------------------------------------------------

    def expect(self, one: Expect) -> None:
        if not self.known(one.actual, one.expected):
            return
        actual = self.value(one.actual)
        if not isinstance(actual, Tensor):
            raise SpecError(one.actual.span, f"An output is a tensor, not {shown(actual)}.")
        self._written(one)
        expected = self.value(one.expected, replace(self.world, exact=True))
        if isinstance(expected, Tensor):
            expected_shape(one.expected.span, actual, expected)
        elif not isinstance(expected, Scalar):
            raise SpecError(one.expected.span, f"What is expected is a tensor or a number, not {shown(expected)}.")  # fmt: skip
        for bound in (one.within.rtol, one.within.atol) if one.within else ():
            if bound is not None:
                number = self.value(bound)
                if not isinstance(number, Scalar) or not 0 <= number.value < math.inf:
                    raise SpecError(bound.span, "A tolerance is a number from 0 on.")

    def _written(self, one: Expect) -> None:
        """Whether some launch can write what is expected, as far as the parameters say."""
        root = _root(one.actual)
        if root is None:
            raise SpecError(one.actual.span, "On the left of '==' stands an output: a tensor that a launch gets.")  # fmt: skip
        passed = False
        for launch in self.spec.launches:
            own = self.header if self.header and self.header.name == launch.kernel.name else None
            arguments = [*launch.arguments, *(keyword.value for keyword in launch.keywords)]
            for at, argument in enumerate(arguments):
                if not any(isinstance(node, Name) and node.name == root.name for node in walk(argument)):
                    continue
                passed = True
                by_place = own and at < min(len(own.parameters), len(launch.arguments))
                if not by_place or own is None or own.parameters[at].writable:
                    return
        if passed:
            raise SpecError(root.span, f"The kernel cannot write '{root.name}': its parameter is const.")
        raise SpecError(root.span, f"No launch gets '{root.name}', so the kernel cannot write it.")

    def amount(self, word: str, node: Expression) -> None:
        if not self.known(node):
            return
        value = self.value(node, replace(self.world, wide=word in ("bytes", "flops")))
        if not isinstance(value, Scalar) or not 0 <= value.value < math.inf:
            raise SpecError(node.span, f"'{word}' is a number from 0 on, not {shown(value)}.")
        if word in ("seed", "iterations"):
            _whole(value, node.span, f"'{word}'")
        if value.value > _MOST_AMOUNT.get(word, math.inf):
            raise SpecError(node.span, f"'{word}' is at most {_MOST_AMOUNT[word]}.")
        if word in ("iterations", "timeout") and value.value == 0:
            raise SpecError(node.span, f"'{word}' is more than 0.")


def in_range(found: tuple[int, ...], span: Span, what: str, most: tuple[int, ...]) -> None:
    """Raises SpecError for a grid or block of nothing and for one beyond what CUDA takes."""
    for extent, name, limit in zip(found, "xyz", most, strict=False):
        if extent < 1:
            raise SpecError(span, f"This {what} is {extent} in {name}; nothing would run.")
        if extent > limit:
            raise SpecError(span, f"This {what} is {extent} in {name}; CUDA takes at most {limit}.")


def _triple(value: Value, span: Span, what: str) -> tuple[int, ...]:
    if isinstance(value, Dim3):
        return (value.x, value.y, value.z)
    items: tuple[Value, ...] = value if isinstance(value, tuple) else (value,)
    if not 1 <= len(items) <= 3:
        raise SpecError(span, f"A {what} has 1 to 3 extents, not {len(items)}.")
    return tuple(_whole(item, span, f"A {what}") for item in items)


def _whole(value: Value, span: Span, what: str) -> int:
    if not isinstance(value, Scalar) or not value.integral:
        raise SpecError(span, f"{what} takes integers, not {shown(value)}.")
    return int(value.value)


def _root(node: Expression) -> Name | None:
    """The `out` of `out[:n]`, `out.view(m, n)` and `out.T`."""
    while not isinstance(node, Name):
        match node:
            case Index() | Attribute():
                node = node.value
            case Call(receiver=receiver) if receiver is not None:
                node = receiver
            case _:
                return None
    return node
