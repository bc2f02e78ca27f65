"""Checks of a spec without its values: what it launches and refers to exists, what it names is used."""

from __future__ import annotations

from orbit_remote.common import architectures
from orbit_remote.spec.comment_scanner import Target
from orbit_remote.spec.directives import nearest
from orbit_remote.spec.file_context import Surroundings
from orbit_remote.spec.signature import Signature, python_parameter, split
from orbit_remote.spec.syntax_tree import Call, Expression, Fault, Launch, Name, Reference, Spec, walk


def static(spec: Spec, target: Target, header: Signature | None, around: Surroundings) -> list[Fault]:
    """What needs no values: whether there is a launch, and of this kernel; whether what it names exists."""
    faults = [fault for launch in all_launches(spec) for fault in _launched(launch, target, header, around)]
    faults += [fault for one in spec.references for fault in _referred(one, spec, target, around)]
    if spec.symbols and around.complete:
        known = around.variables()
        for one in spec.symbols:
            if one.name.name not in known:
                near = nearest(one.name.name, known)
                message = f"There is no __constant__ or __device__ variable '{one.name.name[:40]}' in this file{near}."
                faults.append(Fault(one.name.span, message))
    if not spec.launches:
        measured = [*spec.expects, *spec.references, *spec.cases]
        if measured:
            faults.append(Fault(measured[0].span, f"There is no launch of '{target.name}' to check."))
        return faults
    if any(launch.kernel.name == target.name for launch in spec.launches):
        return faults
    kernel = spec.launches[0].kernel
    near = nearest(kernel.name, [target.name])
    message = f"This launches '{kernel.name[:40]}', and the kernel below is '{target.name}'{near}."
    return [Fault(kernel.span, message), *(fault for fault in faults if fault.span != kernel.span)]


def _launched(one: Launch, target: Target, header: Signature | None, around: Surroundings) -> list[Fault]:
    name = one.kernel.name
    if name != target.name:
        if around.complete and not around.knows(name):
            return [Fault(one.kernel.span, f"There is no kernel '{name[:40]}' in this file.")]
        return []
    if header and (lacking := header.lacking(len(one.templates))):
        message = f"{name} lacks its template argument '{lacking[0].name}', which no argument decides."
        return [Fault(one.kernel.span, message)]
    return []


def _referred(one: Reference, spec: Spec, target: Target, around: Surroundings) -> list[Fault]:
    """Whether what a reference calls is there, and takes so many arguments."""
    faults: list[Fault] = []
    assigned = {each.name.name for each in spec.assignments}
    for output in one.outputs:
        if output.name not in assigned:
            near = nearest(output.name, assigned)
            faults.append(Fault(output.span, f"'{output.name[:40]}' is not known here{near}."))
    if one.call is None:
        return faults
    name = one.call.name
    where = one.call.name_span if isinstance(one.call, Call) else one.call.span
    if name == target.name:
        faults.append(Fault(where, f"'{name}' is the kernel itself; a reference is something else."))
    elif spec.language == "cuda" and isinstance(one.call, Call):
        message = (
            f"A reference in a .cu file is a launch of another kernel: 'reference {name[:40]}<<<…>>>(…)'."
        )
        faults.append(Fault(where, message))
    elif around.complete and not around.knows(name):
        near = nearest(name, around.functions()) if spec.language == "triton" else ""
        what = "kernel" if spec.language == "cuda" else "function"
        faults.append(Fault(where, f"There is no {what} '{name[:40]}' in this file{near}."))
    elif isinstance(one.call, Call) and (function := around.function(name)):
        faults += _bound_to(function.parameters, one.call)
    return faults


def _bound_to(parameters: str, call: Call) -> list[Fault]:
    """Arguments of a call against the parameters of a Python function, given as their text."""
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
                near = nearest(keyword.name, names)
                return [Fault(keyword.span, f"{call.name} has no '{keyword.name}'{near}.")]
    lacking = [
        each.name for each in read if not each.refused and not each.optional and each.name not in given
    ]
    if lacking:
        return [Fault(call.name_span, f"{call.name} lacks '{lacking[0]}': ({parameters[:120]}).")]
    return []


def unused(spec: Spec) -> list[Fault]:
    """A warning at every assigned name that nothing mentions."""
    if not spec.launches:
        return []
    mentioned = {node.name for one in _expressions(spec) for node in walk(one) if isinstance(node, Name)}
    mentioned |= {argument.text for launch in all_launches(spec) for argument in launch.templates}
    mentioned |= {name.name for one in spec.references for name in one.outputs}
    return [
        Fault(one.name.span, f"'{one.name.name}' is used nowhere.", "warning")
        for one in spec.assignments
        if one.name.name not in mentioned
    ]


def unknown_gpu(spec: Spec) -> list[Fault]:
    """A warning where `gpu` names one that no architecture is known of."""
    return [
        Fault(one.span, f"No GPU named {value} is known; it is one such as H100, A100-80GB or L4.", "warning")
        for one in spec.words.values()
        if one.word == "gpu"
        for value in one.values
        if architectures.architecture_for(value) is None
    ]


def all_launches(spec: Spec) -> list[Launch]:
    return [*spec.launches, *(one.launch for one in spec.references if one.launch)]


def _expressions(spec: Spec) -> list[Expression]:
    found: list[Expression | None] = [one.value for one in spec.assignments]
    for launch in all_launches(spec):
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
