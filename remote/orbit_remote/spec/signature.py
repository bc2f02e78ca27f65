"""Reads a kernel's parameters from the text of its signature: what an argument must be, what may be an output.

The text alone is enough for help while typing; the compiler's result replaces it later. What is not clear is left
open rather than guessed.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Literal

from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.spec import dtypes, launch_bounds
from orbit_remote.spec.comment_scanner import SpecTarget
from orbit_remote.spec.cpp_expressions import canonical
from orbit_remote.spec.file_context import Surroundings, bracketed
from orbit_remote.spec.syntax_tree import Language

Kind = Literal["pointer", "scalar", "tensor map", "constexpr", "any", "refused"]
_FURTHEST = 20_000
_MOST_PARAMETERS = 256
_MADE_OF = re.compile(r"\(\s*([A-Za-z_]\w*)\s*[,)][^(]*\Z")


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter. `type` is as written. `element` and `lanes` say what a pointer points to (`float4` is 4 of
    float32).

    `element` is "" if it depends on a template parameter or is not known. `any` is a parameter of Python without an
    annotation. `refused` says why nothing can be passed.
    """

    name: str
    type: str
    kind: Kind
    element: str = ""
    lanes: int = 1
    const: bool = False
    optional: bool = False
    refused: str = ""
    pack: bool = False
    """Whether it stands for any number of parameters: `Ts*... x`."""

    @property
    def writable(self) -> bool:
        return self.kind in ("pointer", "any", "tensor map") and not self.const


@dataclass(frozen=True, slots=True)
class TemplateParameter:
    name: str
    kind: Literal["type", "value"]
    optional: bool = False
    pack: bool = False
    type: str = ""
    """Of a value `int`, `bool`; of a type the concept that constrains it."""
    default: str = ""
    """As it is written."""


@dataclass(frozen=True, slots=True)
class Signature:
    """The parameters of a kernel. `tuned` says that `triton.autotune` or `triton.heuristics` gives constexprs that a
    launch leaves out. `attributes` are what limits launches in CUDA.
    """

    language: Language
    name: str
    parameters: tuple[Parameter, ...]
    templates: tuple[TemplateParameter, ...] = ()
    tuned: bool = False
    text: str = ""
    attributes: launch_bounds.Attributes = launch_bounds.Attributes()

    def lacking(self, given: int) -> list[TemplateParameter]:
        """Return template parameters that neither the first `given` arguments nor a default choose, and that C++
        cannot deduce, because no parameter's type mentions them.
        """
        if any(each.pack for each in self.templates):
            return []
        return [
            each
            for each in self.templates[given:]
            if not each.optional
            and each.name
            and not any(re.search(rf"\b{each.name}\b", parameter.type) for parameter in self.parameters)
        ]


def signature(lines: list[str], target: SpecTarget, around: Surroundings | None = None) -> Signature | None:
    """Return the parameters. Return None if no parameter list follows the kernel's name, as for a kernel that a macro
    makes.
    """
    around = around or Surroundings(lines, target.language)
    header = _header(lines, target)
    rest = [lines[target.name_line][target.name_end :], *lines[target.name_line + 1 : target.name_line + 400]]
    text = "\n".join(rest)[:_FURTHEST]
    text = _without_comments(text, target.language).lstrip()
    if target.language == "cuda":
        if text.startswith(")") and re.search(r"\(\s*\w+\s*\Z", header):  # void (k)(int* a)
            text = text[1:].lstrip()
        inner = bracketed(_after_template_arguments(text).lstrip())
    elif text.startswith("=") and (made := _MADE_OF.search(text.partition("\n")[0])):  # k = triton.jit(f)
        function = around.function(made[1])
        inner = function.parameters if function else None
        header += text
    else:
        inner = bracketed(text)
    if inner is None:
        return None
    parts = [part for part in split(inner) if part.strip()]
    if len(parts) > _MOST_PARAMETERS:
        return None
    if target.language == "triton":
        named = [python_parameter(part) for part in parts if part.strip() not in ("*", "/")]
        return Signature(
            "triton",
            target.name,
            tuple(named),
            tuned=bool(re.search(r"\b(?:autotune|heuristics)\b", header)),
            text=" ".join(inner.split()),
        )
    templates = _templates(header, around)
    if re.search(r"\btemplate\s*<\s*>", header):  # a specialisation: which one, its arguments say
        templates = (TemplateParameter("", "value", optional=True, pack=True),)
    unknown = {template.name for template in templates if template.kind == "type"}
    parameters = tuple(_cpp_parameter(part, around, unknown) for part in parts if part.strip() != "void")
    attributes = launch_bounds.attributes(header, [template.name for template in templates], around)
    return Signature(
        "cuda", target.name, parameters, templates, text=" ".join(inner.split()), attributes=attributes
    )


def with_packs_for(header: Signature, count: int) -> Signature:
    """Return the header with as many parameters in place of a pack as `count` arguments need."""
    packs = [at for at, parameter in enumerate(header.parameters) if parameter.pack]
    if len(packs) != 1:
        return header
    (at,) = packs
    pack = header.parameters[at]
    number = max(0, count - len(header.parameters) + 1)
    made = tuple(replace(pack, name=f"{pack.name}{index}", pack=False) for index in range(number))
    return replace(header, parameters=(*header.parameters[:at], *made, *header.parameters[at + 1 :]))


def compiled(header: Signature, types: str) -> Signature:
    """Return the same kernel with the types that a compiler gave its parameters: `int, float const*`."""
    parts = [part for part in split(types) if part.strip() not in ("", "void")]
    parameters = tuple(
        _cpp_parameter(f"{part} p{at}", Surroundings([], "cuda"), set()) for at, part in enumerate(parts)
    )
    names = [parameter.name for parameter in header.parameters]
    if len(names) == len(parameters):
        parameters = tuple(
            replace(
                parameter, name=name, refused=parameter.refused.replace(f"'{parameter.name}'", f"'{name}'")
            )
            for parameter, name in zip(parameters, names, strict=True)
        )
    return replace(header, parameters=parameters)


def element_of(parameter: Parameter, types: dict[str, str]) -> tuple[dtypes.DType, int] | None:
    """Return the element type and lanes once the template's types are chosen."""
    if parameter.element:
        return dtypes.DTYPES[parameter.element], parameter.lanes
    for name, text in types.items():
        if re.search(rf"\b{re.escape(name)}\b", parameter.type):
            return dtypes.cpp(canonical(text.split()) or text)
    return None


def plain_type(text: str) -> str:
    """Return a type without the words that do not change its values: `const T*` for `const T* __restrict__`."""
    return " ".join(re.sub(r"\b(?:__restrict__|__restrict|restrict|volatile)\b", " ", text).split())


def _header(lines: list[str], target: SpecTarget) -> str:
    first, last = target.start_line, target.name_line
    kept = (
        [*lines[max(first, last - 200) : last], lines[last][: target.name_end]] if last < len(lines) else []
    )
    return _without_comments("\n".join(kept), target.language)


def _without_comments(text: str, language: Language) -> str:
    if language == "cuda":
        return re.sub(r"/\*.*?(?:\*/|\Z)|//[^\n]*", " ", text, flags=re.DOTALL)
    return re.sub(r"#[^\n]*", " ", text)


def _after_template_arguments(text: str) -> str:
    """Return what follows `k<int>` in an explicit specialisation."""
    inner = bracketed(text.lstrip(), "<", ">")
    return text if inner is None else text.lstrip()[len(inner) + 2 :]


def split(text: str) -> list[str]:
    """Return the parts between commas that stand in no bracket."""
    parts: list[str] = []
    depth = start = 0
    for at, character in enumerate(text):
        before = text[at - 1] if at else ""
        if character in "([{<":
            depth += 1
        elif character in ")]}" or (character == ">" and before not in "-="):
            depth = max(0, depth - 1)
        elif character == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    return [*parts, text[start:]]


def _without_default(text: str) -> tuple[str, bool]:
    depth = 0
    for at, character in enumerate(text):
        depth += (character in "([{") - (character in ")]}")
        if character == "=" and depth == 0:
            return text[:at].strip(), True
    return text.strip(), False


def _refused(name: str, type_: str, why: str) -> Parameter:
    return Parameter(name, type_, "refused", refused=why)


# -- Python -----------------------------------------------------------------------------------------


def python_parameter(part: str) -> Parameter:
    text, optional = _without_default(part)
    name, _, annotation = (word.strip() for word in text.partition(":"))
    if name.startswith("*"):
        return _refused(name, annotation, f"'{name}' takes any number of arguments, which a kernel cannot.")
    kind: Kind = "constexpr" if "constexpr" in annotation else "any"
    return Parameter(name, annotation, kind, optional=optional)


# -- C++ --------------------------------------------------------------------------------------------

_NOISE = re.compile(
    r"\[\[.*?\]\]|__attribute__\s*\(\(.*?\)\)|__align__\s*\(.*?\)|"
    r"\b(?:__restrict__|__restrict|restrict|RESTRICT|__grid_constant__|volatile|struct|typename|register)\b"
)
_NAMED = re.compile(r"(.*?[\s*&>])?([A-Za-z_]\w*)?\s*((?:\[[^\]]*\]\s*)*)", re.DOTALL)


def _cpp_parameter(part: str, around: Surroundings, unknown: set[str]) -> Parameter:
    text, _ = _without_default(_NOISE.sub(" ", part))
    if "..." in text:
        return replace(_cpp_parameter(text.replace("...", " "), around, unknown), pack=True)
    match = _NAMED.fullmatch(text)
    if not match or "(" in text:
        shown = " ".join(text.split())
        what = "a pointer to arrays" if re.search(r"\)\s*\[", text) else "a function pointer"
        return _refused("", shown, f"'{shown}' is {what}, which launch specs cannot pass.")
    before, name, brackets = match[1] or "", match[2] or "", match[3]
    if not before.strip() or name in dtypes.CPP or name == "const":
        before, name = text, ""  # a type without a name
    shown = " ".join((before + brackets).split())
    if "&" in before:
        return _refused(name, shown, f"'{name}' is a reference; a kernel takes pointers and values.")
    stars = before.count("*") + (1 if brackets else 0)
    base, _, after = before.partition("*")
    words = [word for word in base.replace("::", " :: ").split() if word != "const"]
    plain = "".join(words) if "::" in words else canonical(words) or " ".join(words)
    plain = plain.removeprefix("std::").removeprefix("cuda::std::").removeprefix("::")
    element_type = _element(plain)
    if element_type is None and plain not in unknown and plain not in ("void", "CUtensorMap"):
        plain = around.alias(plain)
        element_type = _element(plain)
    const = bool(re.search(r"\bconst\b", base))
    if stars > 1 or "*" in after:
        return _refused(name, shown, f"'{name}' points to pointers, which launch specs cannot make.")
    if plain in ("CUtensorMap", "CUtensorMap_st"):
        return Parameter(name, shown, "tensor map", const=False)
    element, lanes = (element_type[0].name, element_type[1]) if element_type else ("", 1)
    if stars:
        return Parameter(name, shown, "pointer", element, lanes, const=const)
    if element_type and lanes == 1:
        return Parameter(name, shown, "scalar", element)
    if plain in unknown:
        return Parameter(name, shown, "scalar")
    return _refused(name, shown, f"'{name}' is a {plain} by value; launch specs pass numbers and pointers.")


def _element(plain: str) -> tuple[dtypes.DType, int] | None:
    return dtypes.cpp(canonical(plain.split()) or plain)


_STANDARD_CONCEPT = re.compile(
    r"(?:::)?(?:cuda::)?std::(?:integral|signed_integral|unsigned_integral|floating_point|same_as|convertible_to|copyable|movable|regular"
    r"|semiregular|totally_ordered|default_initializable|derived_from|constructible_from|equality_comparable)\b"
)


def _is_concept(text: str, around: Surroundings) -> bool:
    """Say whether a template parameter is a type that a concept constrains: `Num T`, `std::integral T`."""
    constraint = re.match(
        r"(?:::)?(?:\w+::)*(\w+)\s*(?:<.*>)?\s*(?:\.\.\.)?\s+\w+\Z", text.strip(), re.DOTALL
    )
    if constraint is None or dtypes.cpp(constraint[1]) is not None:
        return False
    if _STANDARD_CONCEPT.match(text.strip()):
        return True
    return re.search(rf"\bconcept\s+{re.escape(constraint[1])}\b", around.text) is not None


def _templates(header: str, around: Surroundings) -> tuple[TemplateParameter, ...]:
    starts = [match.end() for match in re.finditer(r"\btemplate\s*<", header)]
    if not starts:
        return ()
    inner = bracketed(header[starts[0] - 1 :], "<(", ">)")
    template_parameters: list[TemplateParameter] = []
    for part in split(header[starts[0] : -1] if inner is None else inner):
        text, optional = _without_default(part)
        default = part.strip()[len(text) :].strip().removeprefix("=").strip()
        words = re.findall(r"[A-Za-z_]\w*", text)
        if not words:
            continue
        name = words[-1] if len(words) > 1 else ""
        plain = words[0] in ("typename", "class", "template")
        shown = "" if plain else " ".join(words[:-1])
        kind: Literal["type", "value"] = "type" if plain or _is_concept(text, around) else "value"
        template_parameters.append(TemplateParameter(name, kind, optional, "..." in text, shown, default))
    return tuple(template_parameters)
