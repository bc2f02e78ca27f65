"""Launch specs: the text above a kernel -> its statements, its faults, and every set of values it runs with.

Nothing of the file is executed, and nothing here loads torch. A process with torch passes it to `compute` in a
`World`, and gets the same values with data.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import field, replace
from itertools import islice, product
from typing import Final

from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.requests import KernelDefinition
from orbit_remote.spec import dtypes, launch_bounds, references, rules
from orbit_remote.spec.comment_scanner import SpecTarget, lines_of
from orbit_remote.spec.directives import nearest, read
from orbit_remote.spec.dtypes import DType
from orbit_remote.spec.file_context import Surroundings
from orbit_remote.spec.interpreter import SpecScope, UntunedError, evaluate, is_known
from orbit_remote.spec.rules import LaunchLimits
from orbit_remote.spec.signature import Signature, element_of, plain_type, signature, with_packs_for
from orbit_remote.spec.syntax_tree import (
    Assignment,
    Call,
    Expression,
    Fault,
    Language,
    LaunchSpec,
    Name,
    Number,
    SpecError,
    SpecLaunch,
    TemplateArgument,
    children,
    walk,
)
from orbit_remote.spec.values import NodeBudget, Scalar, Tensor, Value, World

MOST_POINTS: Final = 64


@dataclass(frozen=True, slots=True)
class SpecPoint:
    """One set of values to run with. `case` is "" for those that are timed. Cases are only checked."""

    case: str = ""
    replaced: Mapping[str, Expression] = field(default_factory=dict[str, Expression])


@dataclass(frozen=True, slots=True)
class EvaluatedSpec:
    """A spec with its values. `values` are those of the first point, as descriptions without data; faulty ones are
    left out. The launches of `spec` have the template arguments that C++ would deduce from these values.
    """

    spec: LaunchSpec
    signature: Signature | None
    faults: tuple[Fault, ...]
    values: Mapping[str, Value]
    asked: bool = False
    """Whether the rest of the file had a say: other functions, variables, aliases of types."""


def target_of(definition: KernelDefinition, language: Language, moved: int = 0) -> SpecTarget:
    """Return the kernel of a job, or of discovery, in the form of the spec modules, `moved` lines further down."""
    parsed = definition
    return SpecTarget(
        parsed.name, language, parsed.start_line + moved, parsed.line + moved, parsed.name_line + moved, parsed.name_end
    )  # fmt: skip


def check(text: str, target: SpecTarget, limits: LaunchLimits | None = None) -> EvaluatedSpec:
    """Read the spec above a kernel and check every point of it, in bounded time. Never raises.

    `limits` are those of the GPU for which it is meant, if that is known.
    """
    return check_lines(lines_of(text), target, limits)


def check_lines(lines: list[str], target: SpecTarget, limits: LaunchLimits | None = None) -> EvaluatedSpec:
    """Check a text that is split already, by its lines without their ends."""
    spec, malformed = read(lines, target)
    around = Surroundings(lines, target.language)
    spec = _with_constants(spec, around)
    header = signature(lines, target, around)
    if not spec.lines:
        return EvaluatedSpec(spec, header, tuple(malformed), {}, around.asked)
    own = [launch for launch in spec.launches if launch.kernel.name == target.name]
    if header and own:
        header = with_packs_for(header, len(own[0].arguments))
    faults = [*malformed, *references.static(spec, target, header, around)]
    every, surplus = points(spec)
    faults += surplus
    work = NodeBudget()
    first: Mapping[str, Value] = {}
    whole = spec.launches
    for at, point in enumerate(every):
        world = World(spec.language, work=work)
        values, more_faults = compute(spec, header, point, world)
        faults += more_faults
        faults += rules.launches(spec, header, values, world, limits, partial=bool(malformed or more_faults))
        if at == 0:
            first = values
            faults += [*references.unused(spec), *references.unknown_gpu(spec)]
            whole = tuple(_deduced(launch, header, values, world) for launch in spec.launches)
    unique = {(fault.span, fault.message): fault for fault in faults}
    ordered = sorted(unique.values(), key=lambda fault: (fault.span.line, fault.span.column))
    return EvaluatedSpec(replace(spec, launches=whole), header, tuple(ordered), first, around.asked)


def _with_constants(spec: LaunchSpec, around: Surroundings) -> LaunchSpec:
    """Return the spec with an assignment for each integer constant of the file that it uses and does not assign."""
    assigned = {*spec.broken, *(assignment.name.name for assignment in spec.assignments)}
    constants: dict[str, Assignment] = {}
    for name in references.names(spec):
        if name.name in assigned or name.name in constants or is_known(name.name, spec.language):
            continue
        if (value := launch_bounds.constant(name.name, around)) is not None:
            constants[name.name] = Assignment(name.span, name, Number(name.span, value.value, value.type))
    return replace(spec, assignments=(*constants.values(), *spec.assignments)) if constants else spec


def _deduced(
    launch: SpecLaunch, header: Signature | None, values: Mapping[str, Value], world: World
) -> SpecLaunch:
    """Return the launch with the template arguments that C++ would deduce. An address of a kernel deduces none."""
    if header is None or launch.kernel.name != header.name:
        return launch
    chosen = list(launch.templates)
    needed = len(chosen)
    names = {template.name for template in header.templates}
    span = launch.kernel.span
    for wanted in header.templates[len(chosen) :]:
        if wanted.pack and wanted.kind != "type":
            break
        types = _types_for(wanted.name, header, launch, values, world) if wanted.kind == "type" else []
        if wanted.pack:
            chosen += [TemplateArgument(span, each, None) for each in types or [""] * (not chosen)]
            needed = len(chosen)
            break
        if types:
            chosen.append(TemplateArgument(span, types[0], None))
            needed = len(chosen)
        elif wanted.default and not names.intersection(re.findall(r"\w+", wanted.default)):
            chosen.append(TemplateArgument(span, wanted.default, None))  # to get to one behind it
        else:
            break
    if not needed and chosen:
        needed = 1  # C++ names an instance of a template by `k<…>` only
    return replace(launch, templates=tuple(chosen[:needed]))


def _types_for(
    name: str, header: Signature, launch: SpecLaunch, values: Mapping[str, Value], world: World
) -> list[str]:
    """Return what `T` is in C++ for each argument whose parameter is `T`, `T*` or `const T*`."""
    exactly = re.compile(rf"(?:const\s+)?{re.escape(name)}(?:\s+const)?\s*\*?")
    types: list[str] = []
    for parameter, argument in zip(header.parameters, launch.arguments, strict=False):
        if name and exactly.fullmatch(plain_type(parameter.type)):
            try:
                value = evaluate(argument, world, SpecScope(values))
            except (SpecError, UntunedError):
                continue
            if isinstance(value, Tensor | Scalar):
                pointer = "*" if isinstance(value, Tensor) and "*" not in parameter.type else ""
                types.append(dtypes.spelled(value.dtype) + pointer)
    return types


def points(spec: LaunchSpec) -> tuple[list[SpecPoint], list[Fault]]:
    """Return every combination of swept values, then the cases, which take the first value of every sweep."""
    sweeps = {
        assignment.name.name: values for assignment in spec.assignments if (values := swept(assignment))
    }
    combinations = product(*sweeps.values())
    listed = [
        SpecPoint("", dict(zip(sweeps, combination, strict=True)))
        for combination in islice(combinations, MOST_POINTS + 1)
    ]
    faults: list[Fault] = []
    if len(listed) > MOST_POINTS:
        last = next(assignment for assignment in reversed(spec.assignments) if assignment.name.name in sweeps)
        faults.append(Fault(last.span, f"The sweeps have more than {MOST_POINTS} combinations together."))
        listed.pop()
    known = {assignment.name.name for assignment in spec.assignments}
    for case in spec.cases:
        for value in case.values:
            name = value.name
            if name.name not in known:
                message = f"'{name.name}' is assigned nowhere above, and a case replaces values{nearest(name.name, known, '.')}"
                faults.append(Fault(name.span, message))
        given = {value.name.name: value.value for value in case.values}
        listed.append(SpecPoint(case.name.name, {**listed[0].replaced, **given}))
    return listed, faults


def swept(assignment: Assignment) -> tuple[Expression, ...]:
    """Return the values that `sweep(…)` gives a name one after another."""
    call = assignment.value
    return call.arguments if isinstance(call, Call) and call.name == "sweep" and call.receiver is None else ()


def compute(
    spec: LaunchSpec, header: Signature | None, point: SpecPoint, world: World
) -> tuple[dict[str, Value], list[Fault]]:
    """Compute the values of the assigned names, in order. A name whose expression is faulty has none.

    A tensor that is passed to a CUDA kernel takes the element type of the parameter, if the expression names none.
    Raises only what torch raises when memory runs out.
    """
    hints = _hints(spec, header)
    values: dict[str, Value] = {}
    faults: list[Fault] = []
    names = [assignment.name.name for assignment in spec.assignments]
    failed = set(spec.broken)
    for at, named in enumerate(spec.assignments):
        name = named.name.name
        expression = point.replaced.get(name, named.value)
        if any(isinstance(node, Name) and node.name in failed for node in walk(expression)):
            failed.add(name)
            continue
        own = replace(world, hint=hints.get(name), owner=name, made=0)
        scope = SpecScope(values, frozenset(names[at:]))
        try:
            value = evaluate(expression, own, scope)
        except SpecError as error:
            faults.append(error.fault)
            failed.add(name)
            continue
        except UntunedError:  # only a grid asks for tuned constants
            failed.add(name)
            continue
        if isinstance(value, Tensor) and not value.storage:
            value = replace(value, storage=name)
        values[name] = value
    return values, faults


def is_captured(spec: LaunchSpec) -> bool:
    """Say whether something is expected as it was captured. Then random inputs are always those of the capture."""
    return any(expect.captured for expect in spec.expects)


def inputs(spec: LaunchSpec, point: SpecPoint, values: Mapping[str, Value]) -> str:
    """Return a hash of what decides the tensors of a spec before its launch: their expressions, sizes and types, the
    numbers in them, the seed. A file of captured outputs has the hash of its spec. How a kernel is launched does not
    count.
    """
    known: list[object] = []
    if seed := spec.amounts.get("seed"):
        known.append(_form(seed.value))
    for assignment in spec.assignments:
        name = assignment.name.name
        value = values.get(name)
        if not isinstance(value, Tensor):
            continue
        form = _form(point.replaced.get(name, assignment.value))
        numbers = [
            (part, scalar.value)
            for part in sorted({part[1] for part in form if part[0] == "Name"})
            if isinstance(scalar := values.get(part), Scalar)
        ]
        known.append((name, form, value.shape, value.strides, value.dtype.name, numbers))
    return hashlib.blake2b(repr(known).encode(), digest_size=16).hexdigest()


def _form(expression: Expression) -> list[tuple[str, str]]:
    """Return the content of an expression without its place. Every kind of node has a fixed or stated number of
    parts, so the list is unambiguous.
    """
    told: list[tuple[str, str]] = []
    for node in walk(expression):
        texts = [getattr(node, each, "") for each in ("name", "value", "operator", "type")]
        plain = " ".join(str(each) for each in texts if isinstance(each, str | int | float) and each != "")
        more = [keyword.name for keyword in node.keywords] if isinstance(node, Call) else []
        count = len(children(node))
        told.append((type(node).__name__, " ".join([plain, *more]) if more else plain))
        told[-1] = told[-1] if isinstance(node, Name) else (told[-1][0], f"{told[-1][1]} {count}")
    return told


def _hints(spec: LaunchSpec, header: Signature | None) -> dict[str, DType]:
    """Return the element type of the parameter that each name is passed to."""
    hints: dict[str, DType] = {}
    if header is None or spec.language != "cuda":
        return hints
    for launch in spec.launches:
        if launch.kernel.name != header.name:
            continue
        types = rules.chosen_types(header, launch)
        for parameter, argument in zip(header.parameters, launch.arguments, strict=False):
            if isinstance(argument, Name) and parameter.kind == "pointer":
                element = element_of(parameter, types)
                if element:
                    hints.setdefault(argument.name, element[0])
    return hints
