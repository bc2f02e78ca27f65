"""From a launch spec to compiled kernels: the instances it launches, and their resources.

A few declarations after the file's own text name the instances, so that the compiler makes them. Each is
also an argument of a kernel template of ours, whose own symbol then spells which function it is and
what its parameters are: neither templates nor overloads, name spaces, typedefs or `extern "C"` need to be
guessed from the text. Addresses are taken in host code alone: taken in device code, they make ptxas keep to
a calling convention, and give other kernels of the file more registers.
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
    """`tiled<32>`: the kernel as a launch names it, names of the spec replaced by their values.

    Raises SpecError where a template argument that the spec assigns is no number.
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
    """Every kernel instance that some point launches, in order of first mention."""
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
    """`text` with declarations that make the compiler build the instances `names`.

    Their errors appear at `line` (from 1) of the file, which is the spec's launch. `overload` are the
    types of the parameters that tell the kernel from others of its name.
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
    """`text` with host code that uses instances, so that a compiler makes them: for each kernel the line (from 1) at
    which its errors are to appear, and the instances' names.
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
    """An instance as it is named at the end of the file."""
    base, angle, rest = name.partition("<")
    return f"::{definition.qualified}{angle}{rest}" if base == definition.name else name


def read(cubin: bytes, names: Sequence[str]) -> dict[str, CompiledInstance]:
    """The kernels in a cubin made from `source`. Raises ValueError for one that was not."""
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
    """The function that a template argument spells: `(void tiled<32>(float*))`, `ns::k`."""
    bracketed = spelled.startswith("(") and spelled.endswith(")")
    inner = spelled[1:-1] if bracketed else spelled
    wanted = symbols.without_parameters(inner)
    for function in functions:
        whole = symbols.demangle(function)
        if symbols.without_parameters(whole) == wanted and whole.endswith((f"({parameters})", wanted)):
            return function
    return None


def is_ours(resources: Resources) -> bool:
    """Whether the compiler speaks of the kernel template that only spells."""
    return f"{_SPACE}::kernel" in resources.name or f"{len(_SPACE)}{_SPACE}6kernel" in resources.symbol


def at_launch(problems: Sequence[Problem], path: str, launch: SpecLaunch) -> tuple[Problem, ...]:
    """Problems of our declarations stand on the launch that asked for them; those that speak of the
    declarations themselves are left out where another says what is wrong.
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
