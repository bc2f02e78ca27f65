"""A draft from the `<<<…>>>` in a file's host code: its expressions in their own words, as far as specs know them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from orbit_lsp.drafts import Subject, cuda, scopes
from orbit_lsp.kernels.cuda import launch_sites
from orbit_remote.spec import dtypes
from orbit_remote.spec.cpp_expressions import parsed
from orbit_remote.spec.file_context import bracketed
from orbit_remote.spec.functions.function_table import function
from orbit_remote.spec.signature import Parameter, element_of
from orbit_remote.spec.syntax_tree import Attribute, Call, Index, Name, walk

_ALLOCATION = r"\bcuda\w*(?:Malloc|MallocManaged|MallocAsync|MallocHost|HostAlloc)\s*\(\s*(?:\([^()]*\)\s*)?&\s*{name}\s*,"
_VECTOR = r"\bdevice_vector\s*<[^;<>]*>\s*{name}\s*\(([^;]*?)\)\s*;"
_WRAPPED = re.compile(r"(?:thrust\s*::\s*)?raw_pointer_cast\s*\(\s*(?:&\s*)?(\w+)(?:\.data\s*\(\s*\)|\[0\]|\.begin\s*\(\s*\))?\s*\)|(\w+)\s*\.\s*(?:data|data_ptr|get)\s*(?:<[^<>]*>)?\s*\(\s*\)")  # fmt: skip
_GIVEN = r"(?<![\w.>]){name}\s*=(?!=)\s*([^;]*);"
_DEFINED = r"^[ \t]*#[ \t]*define[ \t]+{name}[ \t]+([^\n]+)"
_BRACED = r"\b(?:int|unsigned|size_t|long|float|double|auto|u?int\d+_t)\s+{name}\s*\{{([^;{{}}]*)\}}\s*;"
_MEMBER = re.compile(r"(?<![\w.>])([A-Za-z_]\w*)\s*\.\s*([xyz])\b(?!\s*\()")
_ROUNDED_UP = re.compile(r"\b(?:\w+::)?(?:ceil_?div|div_?ceil|i?div_?up|div_?round_?up)\s*\(", re.IGNORECASE)
"""What authors call their macro or function for a quotient that is rounded up."""
_DIM3 = re.compile(r"(?:dim3\s*\(|(?:dim3\s*)?\{)(.*)[)}]", re.DOTALL)
_KNOWN_CONSTANTS = frozenset(("true", "false", "nullptr", "INFINITY", "NAN", "M_PI", "INT_MAX", "FLT_MAX"))
_DEEPEST = 12


def draft(subject: Subject) -> list[str] | None:
    """None where the file launches the kernel nowhere, or in no way that a spec can say."""
    header = subject.header
    if any(one.refused for one in header.parameters):
        return None
    for found in re.finditer(rf"\b{re.escape(subject.name)}\b\s*(<(?!<)[^;{{}}]*?>)?\s*<<<", subject.text):
        launch = launch_sites.find(subject.text, found.end() - 3)
        behind = subject.text.find(">>>", found.end())
        inner = bracketed(subject.text[behind + 3 : behind + 8000].lstrip()) if behind > 0 else None
        if launch is None or inner is None:
            continue
        arguments = [part.strip() for part in _parts(inner)] if inner.strip() else []
        if len(arguments) == len(header.parameters) and 2 <= len(launch.arguments) <= 4:
            host = _Host(
                subject, scopes.before(subject.text, found.start()), templates=(found[1] or "")[1:-1].strip()
            )
            if statements := host.statements(launch.arguments, arguments):
                return statements
    return None


@dataclass
class _Host:
    """The text before a launch that is in its scope; names are looked up in it from its end."""

    subject: Subject
    before: str
    templates: str
    assigned: dict[str, str] = field(default_factory=dict[str, str])

    def statements(self, configuration: tuple[str, ...], arguments: list[str]) -> list[str] | None:
        subject = self.subject
        chosen = [part.strip() for part in _parts(self.templates)] if self.templates else []
        types = dict(zip((one.name for one in subject.header.templates), chosen, strict=False))
        parameters = cuda.named(subject.header.parameters)
        if subject.header.lacking(len(chosen)):
            return None
        if not all(dtypes.cpp(" ".join(one.split())) or self.expression(one) is not None for one in chosen):
            return None  # `k<T>` in a template of its own
        pairs = list(zip(parameters, arguments, strict=True))
        numbers = [one.kind == "scalar" for one in parameters]
        # numbers first: what is allocated is made of them
        by_name = {
            one.name: self.argument(one, text, types)
            for wanted in (True, False)
            for (one, text), number in zip(pairs, numbers, strict=True)
            if number == wanted
        }
        passed = [by_name[one.name] for one in parameters]
        grid = self.expression(configuration[0])
        block = self.expression(configuration[1])
        shared = self.expression(configuration[2]) if len(configuration) > 2 else "0"
        if grid is None or block is None or shared is None or None in passed:
            return None
        instance = f"{subject.name}<{', '.join(chosen)}>" if chosen else subject.name
        last = f", {shared}" if shared != "0" else ""
        launch = f"launch {instance}<<<{grid}, {block}{last}>>>({', '.join(filter(None, passed))})"
        return [*(f"{name} = {value}" for name, value in self.assigned.items()), launch]

    # -- arguments ---------------------------------------------------------------------------------

    def argument(self, one: Parameter, text: str, types: dict[str, str]) -> str | None:
        if one.kind == "pointer":
            return self.pointer(one, text, types)
        if one.kind == "tensor map":
            self.assigned[one.name] = "tensor_map(randn(1024, 1024, dtype=half), (64, 64))"
            return one.name
        if (found := self.expression(text)) is not None:
            return found
        name = text if text.isidentifier() else one.name
        sizes = cuda.sizes_of(cuda.named(self.subject.header.parameters), self.subject)
        value = sizes.named.get(one.name) or cuda.value_of(one, sizes, types, self.subject)
        if self.expression(value) is None:
            return None
        self.assigned.setdefault(name, value)
        return name

    def pointer(self, one: Parameter, text: str, types: dict[str, str]) -> str | None:
        if text in ("nullptr", "NULL", "0"):
            return "nullptr"
        wrapped = _WRAPPED.fullmatch(text)
        name = (wrapped[1] or wrapped[2]) if wrapped else text
        if not name.isidentifier():
            name = one.name
        if name in self.assigned:
            return name
        element = element_of(one, types)
        size = self.allocated(name, element[0].size * element[1] if element else 4)
        if size is None:
            return self.made_up(name, one, types)
        self.assigned[name] = cuda.tensor(one, (f"{element[1]} * ({size})" if element and element[1] > 1 else size,), types, self.subject)  # fmt: skip
        return name

    def made_up(self, name: str, one: Parameter, types: dict[str, str]) -> str | None:
        """A tensor as the signature alone suggests it, its sizes those of the host code where it has them."""
        sizes = cuda.sizes_of(cuda.named(self.subject.header.parameters), self.subject)
        for size, value in sizes.named.items():
            if size not in self.assigned and self.resolve(size, 0) is None:
                self.assigned[size] = value
        self.assigned[name] = cuda.value_of(one, sizes, types, self.subject)
        return name

    def allocated(self, name: str, itemsize: int) -> str | None:
        """How many elements were allocated under a name, as an expression of known names."""
        if found := list(re.finditer(_ALLOCATION.format(name=re.escape(name)), self.before)):
            inner = bracketed("(" + self.before[found[-1].end() : found[-1].end() + 2000])
            return self.elements(_parts(inner)[0].strip(), itemsize) if inner else None
        if found := list(re.finditer(_VECTOR.format(name=re.escape(name)), self.before)):
            return self.expression(_parts(found[-1][1])[0])
        alias = self.defined(name)  # float* x = d_x.data(), or another pointer
        wrapped = _WRAPPED.fullmatch(alias) if alias else None
        other = (wrapped[1] or wrapped[2]) if wrapped else alias
        return self.allocated(other, itemsize) if other and other.isidentifier() and other != name else None

    def elements(self, size: str, itemsize: int, depth: int = 0) -> str | None:
        """`n` of `n * sizeof(float)`, through names; else the bytes divided."""
        plain = re.sub(r"^\((.*)\)$", r"\1", size) if bracketed(size) == size[1:-1] else size
        stripped, count = re.subn(r"\bsizeof\s*\([^()]*\)\s*\*\s*|\s*\*\s*sizeof\s*\([^()]*\)", "", plain)
        if count == 1:
            return self.expression(stripped)
        if plain.isidentifier() and depth < _DEEPEST and (value := self.defined(plain)):
            return self.elements(value, itemsize, depth + 1)
        found = self.expression(plain)
        return f"({found}) / {itemsize}" if found else None

    # -- expressions -------------------------------------------------------------------------------

    def expression(self, text: str, depth: int = 0) -> str | None:
        """The same text where specs can compute it, its names assigned before; None where they cannot.

        `block.x` becomes what the host code made it: specs have no members.
        """
        text = _ROUNDED_UP.sub("cdiv(", text)
        alone = _MEMBER.fullmatch(text.strip()) is not None
        text = _MEMBER.sub(lambda found: self.extent(found[1], found[2], depth) or found[0], text)
        text = text.strip()[1:-1] if alone and text.strip().startswith("(") else text
        node = parsed(text)
        if node is None:
            return None
        called = {one.name for one in walk(node) if isinstance(one, Call)}
        if any(
            isinstance(one, Attribute | Index) or (isinstance(one, Call) and one.receiver)
            for one in walk(node)
        ) or not all(_computes(one) for one in called):
            return None
        for one in walk(node):
            if isinstance(one, Name) and not self.resolve_known(one.name, depth):
                return None
        return " ".join(text.split())

    def extent(self, name: str, axis: str, depth: int) -> str | None:
        """One extent of a `dim3` of the host code; None where its text does not tell."""
        if depth > _DEEPEST:
            return None
        made = self.defined(name)
        inner = _DIM3.fullmatch(made) if made else None
        if inner is None:
            return None
        extents = _extents(inner[1])
        value = extents["xyz".index(axis)] if "xyz".index(axis) < len(extents) else "1"
        found = self.expression(value, depth + 1)
        return found if found is None or re.fullmatch(r"\w+", found) else f"({found})"

    def resolve_known(self, name: str, depth: int) -> bool:
        from orbit_remote.spec.dtypes import VECTORS, named

        if name in self.assigned or name in _KNOWN_CONSTANTS:
            return True
        return self.resolve(name, depth) is not None or named(name, "cuda") is not None or name in VECTORS

    def resolve(self, name: str, depth: int) -> str | None:
        """Assigns a name of the host code, after those it is made of."""
        if depth > _DEEPEST or name in self.assigned:
            return self.assigned.get(name)
        value = self.defined(name)
        found = self.expression(value, depth + 1) if value else None
        if found is not None:
            self.assigned[name] = found
        return found

    def defined(self, name: str) -> str | None:
        """What a variable or macro was last given before the launch."""
        escaped = re.escape(name)
        found = {
            one.start(): _parts(one[1])[0].strip()
            for pattern in (_GIVEN, _DEFINED, _BRACED)
            for one in re.finditer(pattern.format(name=escaped), self.before, re.MULTILINE)
        }
        for statement in re.finditer(r"\bdim3\s+(?:const\s+)?([^;]{1,400});", self.before):
            if bracketed(f"({statement[1]})") != statement[1]:
                continue  # a function's parameter
            for part in _parts(statement[1]):
                if one := re.fullmatch(rf"\s*{escaped}\b\s*=?\s*(.*?)\s*", part, re.DOTALL):
                    at = statement.start(1) + statement[1].index(part) + part.index(name)
                    found |= {at: made} if (made := self.dim3(name, one[1], at)) else {}
        return found[max(found)] if found else None

    def dim3(self, name: str, given: str, at: int) -> str | None:
        """A `dim3` that is made of the text behind its name, with what is assigned to its members after that."""
        inner = _DIM3.fullmatch(f"dim3{given}" if given.startswith(("(", "{")) else given)
        extents = _extents(inner[1]) if inner else [given] if given else ["1"]
        pattern = rf"(?<![\w.>]){re.escape(name)}\s*\.\s*([xyz])\s*=(?!=)\s*([^;]*);"
        if members := {one[1]: one[2].strip() for one in re.finditer(pattern, self.before[at:])}:
            extents = [members.get(axis, (extents[place:] or ["1"])[0]) for place, axis in enumerate("xyz")]
        return f"dim3({', '.join(extents)})" if given or members else None


def _extents(text: str) -> list[str]:
    return [one.strip() for one in _parts(text)] if text.strip() else ["1"]


def _parts(text: str) -> list[str]:
    """The parts between commas that stand in no bracket; `<` is a comparison or a shift here."""
    found: list[str] = []
    depth = start = 0
    for at, character in enumerate(text):
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            found.append(text[start:at])
            start = at + 1
    return [*found, text[start:]]


def _computes(name: str) -> bool:
    return name in ("dim3", "sizeof") or function(name, "cuda") is not None
