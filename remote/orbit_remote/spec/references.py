"""Checks a spec without its values: what it launches and refers to exists, what it names is used."""

from __future__ import annotations

from collections.abc import Iterator

from orbit_remote.common import architectures
from orbit_remote.spec.comment_scanner import SpecTarget
from orbit_remote.spec.directives import nearest
from orbit_remote.spec.file_context import Surroundings
from orbit_remote.spec.signature import Signature, python_parameter, split
from orbit_remote.spec.syntax_tree import (
    Call,
    Expression,
    Fault,
    LaunchSpec,
    Name,
    Reference,
    SpecLaunch,
    walk,
)


def static(
    spec: LaunchSpec, target: SpecTarget, header: Signature | None, around: Surroundings
) -> list[Fault]:
    """Check what needs no values: whether there is a launch of this kernel, and whether what it names exists."""
    faults = [fault for launch in all_launches(spec) for fault in _launched(launch, target, header, around)]
    faults += [fault for reference in spec.references for fault in _referred(reference, spec, target, around)]
    if spec.symbols and around.complete:
        known = around.variables()
        for symbol in spec.symbols:
            if symbol.name.name not in known:
                near = nearest(symbol.name.name, known, ".")
                message = f"There is no __constant__ or __device__ variable '{symbol.name.name[:40]}' in this file{near}"
                faults.append(Fault(symbol.name.span, message))
    if not spec.launches:
        measured = [*spec.expects, *spec.references, *spec.cases]
        if measured:
            faults.append(Fault(measured[0].span, f"There is no launch of '{target.name}' to check."))
        return faults
    if any(launch.kernel.name == target.name for launch in spec.launches):
        return faults
    kernel = spec.launches[0].kernel
    near = nearest(kernel.name, [target.name], ".")
    message = f"This launches '{kernel.name[:40]}', and the kernel below is '{target.name}'{near}"
    return [Fault(kernel.span, message), *(fault for fault in faults if fault.span != kernel.span)]


def _launched(
    launch: SpecLaunch, target: SpecTarget, header: Signature | None, around: Surroundings
) -> list[Fault]:
    name = launch.kernel.name
    if name != target.name:
        if around.complete and not around.knows(name):
            return [Fault(launch.kernel.span, f"There is no kernel '{name[:40]}' in this file.")]
        return []
    if header and (lacking := header.lacking(len(launch.templates))):
        message = f"{name} lacks its template argument '{lacking[0].name}', which no argument decides."
        return [Fault(launch.kernel.span, message)]
    return []


def _referred(
    reference: Reference, spec: LaunchSpec, target: SpecTarget, around: Surroundings
) -> list[Fault]:
    """Check that what a reference calls exists, and takes that many arguments."""
    faults: list[Fault] = []
    assigned = {each.name.name for each in spec.assignments}
    for output in reference.outputs:
        if output.name not in assigned:
            near = nearest(output.name, assigned, ".")
            faults.append(Fault(output.span, f"'{output.name[:40]}' is not known here{near}"))
    if reference.call is None:
        return faults
    name = reference.call.name
    where = reference.call.name_span if isinstance(reference.call, Call) else reference.call.span
    if name == target.name:
        faults.append(Fault(where, f"'{name}' is the kernel itself; a reference is something else."))
    elif spec.language == "cuda" and isinstance(reference.call, Call):
        message = (
            f"A reference in a .cu file is a launch of another kernel: 'reference {name[:40]}<<<…>>>(…)'."
        )
        faults.append(Fault(where, message))
    elif around.complete and not around.knows(name):
        near = nearest(name, around.functions(), ".") if spec.language == "triton" else "."
        what = "kernel" if spec.language == "cuda" else "function"
        faults.append(Fault(where, f"There is no {what} '{name[:40]}' in this file{near}"))
    elif isinstance(reference.call, Call) and (function := around.function(name)):
        faults += _bound_to(function.parameters, reference.call)
    return faults


def _bound_to(parameters: str, call: Call) -> list[Fault]:
    """Check the arguments of a call against the parameters of a Python function, given as their text."""
    parts = [part.strip() for part in split(parameters) if part.strip()]
    by_place = parts[: next((at for at, part in enumerate(parts) if part.startswith("*")), len(parts))]
    read = [python_parameter(part) for part in parts if part not in ("*", "/")]
    names = [each.name for each in read if not each.refused]
    places = len([part for part in by_place if part != "/"])
    starred = any(part.startswith("*") and part[1:2] not in ("", "*") for part in parts)
    if len(call.arguments) > places and not starred:
        takes = f"{places} argument{'s' * (places != 1)}"
        return [Fault(call.arguments[places].span, f"{call.name} takes {takes}, not {len(call.arguments)}: ({parameters[:120]}).")]  # fmt: skip
    given = {*names[: len(call.arguments)], *(keyword.name for keyword in call.keywords)}
    if not any(part.startswith("**") for part in parts):
        for keyword in call.keywords:
            if keyword.name not in names:
                near = nearest(keyword.name, names, ".")
                return [Fault(keyword.span, f"{call.name} has no '{keyword.name}'{near}")]
    lacking = [
        each.name for each in read if not each.refused and not each.optional and each.name not in given
    ]
    if lacking:
        return [Fault(call.name_span, f"{call.name} lacks '{lacking[0]}': ({parameters[:120]}).")]
    return []


def unused(spec: LaunchSpec) -> list[Fault]:
    """Return a warning at every assigned name that nothing mentions."""
    if not spec.launches:
        return []
    mentioned = {name.name for name in names(spec)}
    mentioned |= {argument.text for launch in all_launches(spec) for argument in launch.templates}
    mentioned |= {name.name for reference in spec.references for name in reference.outputs}
    return [
        Fault(assignment.name.span, f"'{assignment.name.name}' is used nowhere.", "warning")
        for assignment in spec.assignments
        if assignment.name.name not in mentioned
    ]


def names(spec: LaunchSpec) -> Iterator[Name]:
    """Yield the names that stand in its expressions."""
    for expression in _expressions(spec):
        yield from (node for node in walk(expression) if isinstance(node, Name))


def unknown_gpu(spec: LaunchSpec) -> list[Fault]:
    """Return a warning if `gpu` names a GPU whose architecture is not known."""
    return [
        Fault(
            word.span, f"No GPU named {value} is known; it is one such as H100, A100-80GB or L4.", "warning"
        )
        for word in spec.words.values()
        if word.word == "gpu"
        for value in word.values
        if architectures.architecture_for(value) is None
    ]


def all_launches(spec: LaunchSpec) -> list[SpecLaunch]:
    return [*spec.launches, *(reference.launch for reference in spec.references if reference.launch)]


def _expressions(spec: LaunchSpec) -> list[Expression]:
    expressions: list[Expression | None] = [assignment.value for assignment in spec.assignments]
    for launch in all_launches(spec):
        expressions += [launch.grid, launch.block, launch.shared, launch.cluster, *launch.arguments]
        expressions += [keyword.value for keyword in launch.keywords]
        expressions += [argument.value for argument in launch.templates]
    for expect in spec.expects:
        expressions += [expect.actual, expect.expected]
    for comparison in (*spec.expects, *spec.references):
        expressions += [comparison.within.rtol, comparison.within.atol] if comparison.within else []
    expressions += [reference.call for reference in spec.references]
    expressions += [value.value for case in spec.cases for value in case.values]
    expressions += [symbol.value for symbol in (*spec.symbols, *spec.amounts.values())]
    return [expression for expression in expressions if expression is not None]
