"""Checks a spec's values: launches against the kernel's parameters and the GPU, expectations, amounts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final

from orbit_remote.common import architectures, occupancy
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.spec.cpp_expressions import CppParser
from orbit_remote.spec.directives import nearest
from orbit_remote.spec.functions.shapes import expected_shape
from orbit_remote.spec.interpreter import SpecScope, UntunedError, evaluate, grid
from orbit_remote.spec.references import all_launches
from orbit_remote.spec.scalars import misfit
from orbit_remote.spec.signature import Parameter, Signature, element_of
from orbit_remote.spec.syntax_tree import (
    Attribute,
    Call,
    Expect,
    Expression,
    Fault,
    Index,
    LaunchSpec,
    Name,
    Reference,
    SpecError,
    SpecLaunch,
    SpecSpan,
    Within,
    children,
    walk,
)
from orbit_remote.spec.values import Dim3, Scalar, Tensor, TensorMap, Value, World, shown

# CUDA C++ Programming Guide, "Compute Capabilities", the same for every one from 5.0 on
MOST_THREADS: Final = 1024
MOST_BLOCK: Final = (1024, 1024, 64)
MOST_GRID: Final = ((1 << 31) - 1, 65535, 65535)
MOST_CLUSTER: Final = 8
"""Blocks of a cluster on every GPU that has clusters ("Thread Block Clusters", ibid.)."""

OPTIONS: Final = {
    "num_warps": "warps of a block",
    "num_stages": "stages of software pipelining",
    "num_ctas": "blocks of a cluster",
    "maxnreg": "registers a thread may use at most",
    "enable_fp_fusion": "whether a * b + c may become one fused operation",
    "launch_cooperative_grid": "whether all blocks run at once",
    "launch_pdl": "programmatic dependent launch",
}
"""What a Triton launch takes beside the kernel's own parameters, each with the line that completion shows."""

_DESCRIBES: Final = frozenset(("shape", "dtype", "ndim", "itemsize"))
_DESCRIBE: Final = frozenset((
    "size", "stride", "numel", "dim", "element_size", "empty_like", "zeros_like", "ones_like", "full_like", "rand_like",
    "randn_like",
))  # fmt: skip
"""Attributes and functions that ask a tensor for its form only."""

_MOST_AMOUNT: Final = {"iterations": 10**9, "warmup": 10**5, "timeout": 86400, "seed": (1 << 63) - 1}


@dataclass(frozen=True, slots=True)
class LaunchLimits:
    """What a spec's launches are checked against. `architecture` is the GPU's (`sm_90a`). `static_shared` of a block
    and `local` memory of a thread are in bytes, as the compiler reports them for the kernel; 0 if it has not
    reported.
    """

    architecture: str
    static_shared: int = 0
    local: int = 0


def chosen_types(header: Signature, launch: SpecLaunch) -> dict[str, str]:
    """Return the template's type parameters with the text of the types that the launch chooses."""
    pairs = zip(header.templates, launch.templates, strict=False)
    return {pair.name: given.text for pair, given in pairs if pair.kind == "type" and not pair.pack}


def launches(
    spec: LaunchSpec,
    header: Signature | None,
    values: Mapping[str, Value],
    world: World,
    limits: LaunchLimits | None = None,
    *,
    partial: bool,
) -> list[Fault]:
    """Return what is wrong with the directives for these values.

    `partial`: some names have no value because of an error that has been reported. Then unknown names are not
    reported if they are assigned.
    """
    checks = _Checks(spec, header, values, world, limits, partial=partial)
    for launch in all_launches(spec):
        checks.run(checks.cuda_launch if spec.language == "cuda" else checks.triton_launch, launch)
    for expect in spec.expects:
        checks.run(checks.expect, expect)
    for reference in spec.references:
        checks.run(checks.reference, reference)
    for symbol in spec.symbols:
        checks.run(checks.value, symbol.value)
    for amount in spec.amounts.values():
        checks.run(checks.amount, amount.word, amount.value)
    return checks.faults


class _UnknownValueError(Exception):
    """A name has no value, for a reason that has been reported."""


class _Checks:
    def __init__(
        self,
        spec: LaunchSpec,
        header: Signature | None,
        values: Mapping[str, Value],
        world: World,
        limits: LaunchLimits | None,
        *,
        partial: bool,
    ) -> None:
        self.spec = spec
        self.architecture = limits.architecture if limits else ""
        if spec.words.get("gpu"):
            self.architecture = architectures.architecture_for(spec.words["gpu"].values[0]) or ""
        self.static_shared = limits.static_shared if limits else 0
        self.local = limits.local if limits else 0
        self.header = header
        self.values = values
        self.world = world
        missing = [
            *spec.broken,
            *(assignment.name.name for assignment in spec.assignments if assignment.name.name not in values),
        ]
        self.missing = frozenset(missing) if partial else frozenset[str]()
        self.faults: list[Fault] = []

    def run(self, check: Callable[..., object], *arguments: object) -> None:
        try:
            check(*arguments)
        except SpecError as error:
            self.faults.append(error.fault)
        except (_UnknownValueError, UntunedError):
            return

    def known(self, *nodes: Expression) -> bool:
        names = {part.name for node in nodes for part in walk(node) if isinstance(part, Name)}
        return not names & self.missing

    def value(self, node: Expression, world: World | None = None) -> Value:
        if not self.known(node):
            raise _UnknownValueError
        return evaluate(node, world or self.world, SpecScope(self.values))

    def own(self, launch: SpecLaunch) -> Signature | None:
        """Return the header of the kernel that is launched, if it is the one below the spec."""
        return self.header if self.header and self.header.name == launch.kernel.name else None

    # -- launches ----------------------------------------------------------------------------------

    def cuda_launch(self, launch: SpecLaunch) -> None:
        own = self.own(launch)
        self.run(self._extents, launch.grid, "grid", MOST_GRID)
        self.run(self._block, launch, own)
        self.run(self._shared, launch, own)
        self.run(self._cluster, launch, own)
        self.run(self._local, launch, own)
        parameters = own.parameters if own else ()
        if own:
            self._templates(launch, own)
            if len(launch.arguments) != len(parameters):
                s = "s" * (len(parameters) != 1)
                surplus = launch.arguments[len(parameters) :]
                where = surplus[0].span if surplus else launch.kernel.span
                message = f"{own.name} takes {len(parameters)} argument{s}, not {len(launch.arguments)}: ({own.text[:120]})."
                self.faults.append(Fault(where, message))
            types = chosen_types(own, launch)
            for parameter, argument in zip(parameters, launch.arguments, strict=False):
                self.run(self._passed, parameter, argument, types)
        for argument in launch.arguments[len(parameters) :]:
            self.run(self.value, argument)

    def _templates(self, launch: SpecLaunch, own: Signature) -> None:
        if any(each.pack for each in own.templates):
            return
        if len(launch.templates) > len(own.templates):
            extra = launch.templates[len(own.templates)]
            count = len(own.templates)
            message = f"{own.name} takes {count or 'no'} template argument{'s' * (count != 1)}."
            self.faults.append(Fault(extra.span, message))

    def _extents(self, node: Expression | None, what: str, most: tuple[int, ...]) -> tuple[int, ...]:
        return () if node is None else extents(self.value(node), node.span, what, most)

    def _block(self, launch: SpecLaunch, own: Signature | None) -> None:
        count = math.prod(self._extents(launch.block, "block", MOST_BLOCK))
        if launch.block is None:
            return
        if count > MOST_THREADS:
            raise SpecError(launch.block.span, f"This block has {count} threads; a block has at most {MOST_THREADS}.")  # fmt: skip
        if own is None:
            return
        values = self._template_values(launch, own)
        bound = own.attributes.bound
        allowed = bound.threads(values) if bound else None
        if bound and allowed and count > allowed:
            text = f"{own.name}'s __launch_bounds__({bound.text})"
            raise SpecError(launch.block.span, f"This block has {count} threads; {text} allows at most {allowed}.")  # fmt: skip
        block = own.attributes.block
        size = block.values(values) if block else None
        threads = triple(self.value(launch.block), launch.block.span, "block")
        if block and size and (*threads, 1, 1)[:3] != size:
            written = _by(threads)
            raise SpecError(launch.block.span, f"This block is {written}; {own.name}'s {block.text} takes {_by(size)} only.")  # fmt: skip

    def _template_values(self, launch: SpecLaunch, own: Signature) -> dict[str, Value]:
        """Return the template arguments that have values. Errors in the others are reported elsewhere."""
        values: dict[str, Value] = {}
        for wanted, given in zip(own.templates, launch.templates, strict=False):
            if wanted.kind == "value" and not wanted.pack and given.value is not None:
                with suppress(SpecError, _UnknownValueError, UntunedError):
                    values[wanted.name] = self.value(given.value)
        for wanted in own.templates[len(launch.templates) :]:
            node = CppParser.parsed(wanted.default) if wanted.kind == "value" and wanted.default else None
            if node:
                with suppress(SpecError, UntunedError):
                    values[wanted.name] = evaluate(node, World("cuda"), SpecScope(values))
        return values

    def _shared(self, launch: SpecLaunch, own: Signature | None) -> None:
        if launch.shared is None:
            return
        size = whole(self.value(launch.shared), launch.shared.span, "Shared memory")
        if size < 0:
            raise SpecError(launch.shared.span, "Shared memory is a number of bytes from 0 on.")
        limits = occupancy.limits(self.architecture) if self.architecture else None
        static = self.static_shared if own else 0
        if limits and size + static > limits.shared_per_block:
            beside = f", {static} beside it are static" if static else ""
            raise SpecError(
                launch.shared.span,
                f"This is {size} bytes of shared memory{beside}; a block has at most {limits.shared_per_block} on "
                f"{self.architecture}.",
            )

    def _local(self, launch: SpecLaunch, own: Signature | None) -> None:
        if own and self.local > occupancy.MAX_LOCAL_PER_THREAD:
            raise SpecError(
                launch.kernel.span,
                f"Each thread needs {self.local} bytes of local memory; CUDA gives one at most {occupancy.MAX_LOCAL_PER_THREAD}.",
            )

    def _cluster(self, launch: SpecLaunch, own: Signature | None) -> None:
        attributes = own.attributes if own else None
        values = self._template_values(launch, own) if own else {}
        fixed = attributes.cluster if attributes else None
        wanted = fixed.values(values) if fixed else None
        node = launch.cluster or launch.grid
        if node is None or (launch.cluster is None and wanted is None):
            return
        given = self._extents(launch.cluster, "cluster", (MOST_CLUSTER,) * 3)
        cluster = given or wanted or ()
        limits = occupancy.limits(self.architecture) if self.architecture else None
        if limits and float(limits.capability) < 9:
            raise SpecError(node.span, f"{self.architecture} has no clusters; they begin with sm_90.")
        if own and fixed and wanted and given and (*given, 1, 1)[:3] != wanted:
            why = f"This cluster is {_by(given)}; {own.name}'s {fixed.text} has {_by(wanted)} always."
            raise SpecError(node.span, why)
        count = math.prod(cluster)
        most = attributes.most_blocks if attributes else None
        allowed = most.threads(values) if most else None
        if own and attributes and attributes.bound and most and allowed and count > allowed:
            why = f"{own.name}'s __launch_bounds__ allows at most {allowed}"
            raise SpecError(node.span, f"This cluster has {count} blocks; {why}.")
        if count > MOST_CLUSTER and given:
            raise SpecError(node.span, f"This cluster has {count} blocks; at most {MOST_CLUSTER} run everywhere.")  # fmt: skip
        blocks = triple(self.value(launch.grid), launch.grid.span, "grid") if launch.grid else ()
        for extent, wide, name in zip(cluster, (*blocks, 1, 1), "xyz", strict=False):
            if wide % extent:
                raise SpecError(
                    node.span, f"The grid is {wide} in {name}, which clusters of {extent} do not divide."
                )

    def _passed(self, parameter: Parameter, node: Expression, types: dict[str, str]) -> None:
        passed(parameter, None if parameter.refused else self.value(node), node.span, types)

    def triton_launch(self, launch: SpecLaunch) -> None:
        own = self.own(launch)
        constants: dict[str, Value] = {}
        names = [parameter.name for parameter in own.parameters] if own else []
        pairs = [(names[at] if at < len(names) else "", node) for at, node in enumerate(launch.arguments)]
        for name, node in [*pairs, *((keyword.name, keyword.value) for keyword in launch.keywords)]:
            self.run(self._given, name, node, constants)
        if own:
            self._bound(launch, own)
        if launch.grid is None or not self.known(launch.grid, *(k.value for k in launch.keywords)):
            return
        value = grid(
            launch.grid, self.world, SpecScope(self.values), constants, tuned=own is None or own.tuned
        )
        extents(value, launch.grid.span, "grid", MOST_GRID)

    def _given(self, name: str, node: Expression, constants: dict[str, Value]) -> None:
        constants[name] = self.value(node)
        if name == "num_warps":
            _warps(constants[name], node.span)

    def _bound(self, launch: SpecLaunch, own: Signature) -> None:
        names = [each.name for each in own.parameters]
        if len(launch.arguments) > len(names):
            message = (
                f"{own.name} takes {len(names)} arguments, not {len(launch.arguments)}: ({own.text[:120]})."
            )
            self.faults.append(Fault(launch.arguments[len(names)].span, message))
        given = set(names[: len(launch.arguments)])
        for keyword in launch.keywords:
            if keyword.name in given:
                self.faults.append(Fault(keyword.span, f"'{keyword.name}' is given twice."))
            elif keyword.name not in names and keyword.name not in OPTIONS:
                near = nearest(keyword.name, [*names, *OPTIONS], ".")
                self.faults.append(Fault(keyword.span, f"{own.name} has no '{keyword.name}'{near}"))
            given.add(keyword.name)
        lacking = [
            each.name
            for each in own.parameters
            if each.name not in given and not each.optional and not (own.tuned and each.kind == "constexpr")
        ]
        if lacking:
            self.faults.append(Fault(launch.kernel.span, f"{own.name} lacks '{lacking[0]}': ({own.text[:120]})."))  # fmt: skip

    # -- expectations and amounts ------------------------------------------------------------------

    def expect(self, expect: Expect) -> None:
        actual = self.value(expect.actual)
        if not isinstance(actual, Tensor):
            raise SpecError(expect.actual.span, f"An output is a tensor, not {shown(actual)}.")
        self._written(expect.actual)
        if expect.captured:
            self._tolerance(expect.within)
            return
        self._set_before(expect.expected)
        expected = self.value(expect.expected, replace(self.world, exact=True))
        if isinstance(expected, Tensor):
            expected_shape(expect.expected.span, actual, expected)
        elif not isinstance(expected, Scalar):
            raise SpecError(expect.expected.span, f"What is expected is a tensor or a number, not {shown(expected)}.")  # fmt: skip
        self._tolerance(expect.within)

    def reference(self, reference: Reference) -> None:
        for output in reference.outputs:
            value = self.values.get(output.name)
            if value is not None and not isinstance(value, Tensor):
                raise SpecError(output.span, f"An output is a tensor, not {shown(value)}.")
            if value is not None:
                self._written(output)
        self._tolerance(reference.within)
        if isinstance(call := reference.call, Call):
            for argument in (*call.arguments, *(keyword.value for keyword in call.keywords)):
                self.run(self.value, argument)

    def _tolerance(self, within: Within | None) -> None:
        for bound in (within.rtol, within.atol) if within else ():
            if bound is not None:
                self.run(self._from_0, bound)

    def _from_0(self, tolerance: Expression) -> None:
        number = self.value(tolerance)
        if not isinstance(number, Scalar) or not 0 <= number.value < math.inf:
            raise SpecError(tolerance.span, "A tolerance is a number from 0 on.")

    def _set_before(self, node: Expression) -> None:
        """Raises SpecError if the contents of `empty(…)` are used, which are not set before the launch."""
        match node:
            case Name() if isinstance(value := self.values.get(node.name), Tensor) and value.unset:
                raise SpecError(node.span, f"Nothing is in '{node.name}' before the launch: it is empty(…).")
            case Attribute() if node.name in _DESCRIBES:
                return
            case Call() if node.name in _DESCRIBE:
                rest = node.arguments if node.receiver is not None else node.arguments[1:]
                for expression in (*rest, *(keyword.value for keyword in node.keywords)):
                    self._set_before(expression)
            case _:
                for child in children(node):
                    self._set_before(child)

    def _written(self, actual: Expression) -> None:
        """Check that some launch can write what is expected, as far as the parameters say."""
        root = _root(actual)
        if root is None:
            raise SpecError(
                actual.span, "The left side of '==' must be an output: a tensor that a launch gets."
            )
        passed = False
        for launch in self.spec.launches:
            own = self.own(launch)
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
        value = self.value(node, replace(self.world, wide=word in ("bytes", "flops")))
        if not isinstance(value, Scalar) or not 0 <= value.value < math.inf:
            raise SpecError(node.span, f"'{word}' is a number from 0 on, not {shown(value)}.")
        if word in ("seed", "iterations", "warmup"):
            whole(value, node.span, f"'{word}'")
        if value.value > _MOST_AMOUNT.get(word, math.inf):
            raise SpecError(node.span, f"'{word}' is at most {_MOST_AMOUNT[word]}.")
        if word in ("iterations", "timeout") and value.value == 0:
            raise SpecError(node.span, f"'{word}' is more than 0.")


def _warps(value: Value, span: SpecSpan) -> None:
    """Check the number of warps by Triton's own rule, and by CUDA's limit of a block at 32 threads a warp."""
    count = whole(value, span, "num_warps")
    most = MOST_THREADS // 32
    if count not in (1 << at for at in range(most.bit_length())):
        raise SpecError(span, f"num_warps is a power of 2 from 1 to {most}, not {count}.")


def passed(parameter: Parameter, value: Value, span: SpecSpan, types: dict[str, str]) -> None:
    """Check a value. Raises SpecError if a parameter of a CUDA kernel does not take it. `types` are those that the
    launch chooses for the template.
    """
    if parameter.refused:
        raise SpecError(span, parameter.refused)
    written = f"'{parameter.name}' is {parameter.type}" if parameter.name else f"This is {parameter.type}"
    element = element_of(parameter, types)
    if parameter.kind == "pointer":
        if value is not None and not isinstance(value, Tensor):
            raise SpecError(span, f"{written}, which takes a tensor, not {shown(value)}.")
        if value is not None and element and value.dtype is not element[0]:
            message = f"{written}, and this tensor has {value.dtype.name}, not {element[0].name}."
            raise SpecError(span, message)
    elif parameter.kind == "scalar":
        if isinstance(value, Tensor) and not parameter.element and not element:
            return  # a template parameter's own type may be a pointer
        if not isinstance(value, Scalar):
            raise SpecError(span, f"{written}, which takes a number, not {shown(value)}.")
        if element and (why := misfit(value, element[0])):
            raise SpecError(span, f"{written}, and {why}.")
    elif not isinstance(value, TensorMap):
        raise SpecError(span, f"{written}, which takes a tensor_map(…), not {shown(value)}.")


def _by(sizes: tuple[int, ...]) -> str:
    """Return sizes as `64 x 1 x 1`."""
    return " x ".join(str(size) for size in (*sizes, 1, 1)[:3])


def extents(value: Value, span: SpecSpan, what: str, most: tuple[int, ...]) -> tuple[int, ...]:
    """Return the 1 to 3 extents that a value gives. Raises SpecError for other values, an empty grid or block, and
    one beyond CUDA's limits.
    """
    sizes = triple(value, span, what)
    for extent, name, limit in zip(sizes, "xyz", most, strict=False):
        if extent < 1:
            raise SpecError(span, f"This {what} is {extent} in {name}; nothing would run.")
        if extent > limit:
            raise SpecError(span, f"This {what} is {extent} in {name}; CUDA takes at most {limit}.")
    return sizes


def triple(value: Value, span: SpecSpan, what: str) -> tuple[int, ...]:
    """Return the 1 to 3 extents that a value gives. Raises SpecError."""
    if isinstance(value, Dim3):
        return (value.x, value.y, value.z)
    items: tuple[Value, ...] = value if isinstance(value, tuple) else (value,)
    if not 1 <= len(items) <= 3:
        raise SpecError(span, f"A {what} has 1 to 3 extents, not {len(items)}.")
    return tuple(whole(item, span, f"A {what}") for item in items)


def whole(value: Value, span: SpecSpan, what: str) -> int:
    """Return an integer. Raises SpecError."""
    if not isinstance(value, Scalar) or not value.integral:
        raise SpecError(span, f"{what} takes integers, not {shown(value)}.")
    return int(value.value)


def _root(node: Expression) -> Name | None:
    """Return the `out` of `out[:n]`, `out.view(m, n)` and `out.T`."""
    while not isinstance(node, Name):
        match node:
            case Index() | Attribute():
                node = node.value
            case Call(receiver=receiver) if receiver is not None:
                node = receiver
            case _:
                return None
    return node
