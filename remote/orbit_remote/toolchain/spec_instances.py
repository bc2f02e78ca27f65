"""Compiles the kernel instances that a launch spec launches, and reads their resources.

A few declarations after the file's own text name the instances, so that the compiler makes them. Each instance is
also an argument of a kernel template of ours. The symbol of that template then spells which function it is and what
its parameters are. So templates, overloads, name spaces, typedefs and `extern "C"` need not be guessed from the text.
Addresses are taken only in host code: taken in device code, they make ptxas keep a calling convention, and give other
kernels of the file more registers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from orbit_remote.common import symbols
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.messages import Problem, Resources
from orbit_remote.common.requests import KernelDefinition
from orbit_remote.spec import launch_spec
from orbit_remote.spec.interpreter import SpecScope, UntunedError, evaluate
from orbit_remote.spec.syntax_tree import Name, SpecError, SpecLaunch, walk
from orbit_remote.spec.values import Scalar, Value, World
from orbit_remote.toolchain.elf import Cubin

_SPACE = "orbit_spec"
_SPELLED = re.compile(rf"{_SPACE}::kernel<(\d+), void \(\*\)\((.*?)\), &(.*)>\(\)$", re.DOTALL)


@dataclass(frozen=True, slots=True)
class CompiledInstance:
    """A compiled instance. `parameters` are the canonical types of its parameters, as C++ writes them."""

    symbol: str
    parameters: str


@dataclass(frozen=True, slots=True)
class Image:
    """What a child launches: a file of machine code, and its kernels by `instance`."""

    cubin: str
    kernels: dict[str, CompiledInstance] = field(default_factory=dict[str, CompiledInstance])
    resources: tuple[Resources, ...] = ()


def instance(launch: SpecLaunch, values: Mapping[str, Value]) -> str:
    """Return `tiled<32>`: the kernel as a launch names it, with the names of the spec replaced by their values.

    Raises SpecError if a template argument that the spec assigns is no number.
    """
    if not launch.templates:
        return launch.kernel.name
    arguments: list[str] = []
    for template in launch.templates:
        text = template.text
        if template.value and any(
            isinstance(node, Name) and node.name in values for node in walk(template.value)
        ):
            value = evaluate(template.value, World("cuda"), SpecScope(values))
            if not isinstance(value, Scalar):
                raise SpecError(template.span, "A template argument is a type or a number.")
            text = str(value.value).lower() if isinstance(value.value, bool) else str(value.value)
        arguments.append(text)
    return f"{launch.kernel.name}<{', '.join(arguments)}>"


def instances(checked: launch_spec.EvaluatedSpec) -> list[str]:
    """Return every kernel instance that some point launches, in the order of the first mention."""
    names: dict[str, None] = {}
    every, _ = launch_spec.points(checked.spec)
    launches = [
        *checked.spec.launches,
        *(reference.launch for reference in checked.spec.references if reference.launch),
    ]
    for point in every:
        values, _ = launch_spec.compute(checked.spec, checked.signature, point, World("cuda"))
        for launch in launches:
            try:
                names[instance(launch, values)] = None
            except (SpecError, UntunedError):  # told where the spec is checked
                continue
    return list(names)


def source(
    text: str, path: str, line: int, names: Sequence[str], definition: KernelDefinition, overload: str = ""
) -> str:
    """Return `text` with declarations that make the compiler build the instances `names`.

    Their errors appear at `line` (from 1) of the file, which is the spec's launch. `overload` are the types of the
    parameters that distinguish the kernel from others with its name.
    """
    parts = [
        *_using(definition),
        "template <int orbit_number, class orbit_type, orbit_type orbit_function> __global__ void kernel() {}",
    ]
    for at, name in enumerate(names):
        whole = f"&{_expression(name, definition)}"
        if overload and name == definition.name:
            whole = f"static_cast<void (*)({overload})>({whole})"
        parts.append(f"template __global__ void kernel<{at}, decltype({whole}), {whole}>();")
        parts.append(f"void* use_{at}() {{ return (void*)({whole}); }}")
    return text + _appended(path, line, _SPACE, parts)


def used(text: str, path: str, wanted: Sequence[tuple[KernelDefinition, int, Sequence[str]]]) -> str:
    """Return `text` with host code that uses instances, so that a compiler makes them. `wanted` has for each kernel
    its definition, the line (from 1) at which its errors appear, and the instances' names.
    """
    for at, (definition, line, names) in enumerate(wanted):
        uses = [
            f"void* use_{number}() {{ return (void*)(&{_expression(name, definition)}); }}"
            for number, name in enumerate(names)
        ]
        text += _appended(path, line, f"{_SPACE}_{at}", [*_using(definition), *uses])
    return text


def _using(definition: KernelDefinition) -> list[str]:
    space, _, _ = definition.qualified.rpartition("::")
    return [f"using namespace ::{space};"] if space else []


def _appended(path: str, line: int, space: str, parts: Sequence[str]) -> str:
    shown = path.replace("\\", "\\\\").replace('"', '\\"')
    return f'\n#line {line} "{shown}"\nnamespace {space} {{ {" ".join(parts)} }}\n'


def _expression(name: str, definition: KernelDefinition) -> str:
    """Return an instance's name as it is written at the end of the file."""
    base, angle, rest = name.partition("<")
    return f"::{definition.qualified}{angle}{rest}" if base == definition.name else name


def read(cubin: bytes, names: Sequence[str]) -> dict[str, CompiledInstance]:
    """Return the kernels in a cubin made from `source`. Raises ValueError for one that was not."""
    functions = Cubin(cubin).functions()
    spelled = {
        int(match[1]): match
        for function in functions
        if (match := _SPELLED.search(symbols.demangle(function)))
    }
    kernels: dict[str, CompiledInstance] = {}
    for at, name in enumerate(names):
        match = spelled.get(at)
        symbol = _symbol(functions, match[3], match[2]) if match else None
        if match is None or symbol is None:
            raise ValueError(f"the compiler generated no code for {name}")
        kernels[name] = CompiledInstance(symbol, match[2])
    return kernels


def _symbol(functions: Sequence[str], spelled: str, parameters: str) -> str | None:
    """Return the function that a template argument spells: `(void tiled<32>(float*))`, `ns::k`."""
    bracketed = spelled.startswith("(") and spelled.endswith(")")
    inner = spelled[1:-1] if bracketed else spelled
    wanted = symbols.without_parameters(inner)
    for function in functions:
        whole = symbols.demangle(function)
        if symbols.without_parameters(whole) == wanted and whole.endswith((f"({parameters})", wanted)):
            return function
    return None


def is_ours(resources: Resources) -> bool:
    """Say whether the compiler means our kernel template, which only spells names."""
    return f"{_SPACE}::kernel" in resources.name or f"{len(_SPACE)}{_SPACE}6kernel" in resources.symbol


def at_launch(problems: Sequence[Problem], path: str, launch: SpecLaunch) -> tuple[Problem, ...]:
    """Move problems of our declarations to the launch that asked for them. Those about the declarations themselves
    are left out if another says what is wrong.
    """
    place = launch.span.place(path)
    placed = [
        replace(problem, place=place)
        if problem.place and problem.place.file == path and problem.place.line == place.line
        else problem
        for problem in problems
    ]
    about = [problem for problem in placed if f"{_SPACE}::" not in problem.message]
    return tuple(about if any(problem.severity == "error" for problem in about) else placed)
