"""Drafts a spec from the `<<<…>>>` in a file's host code, with its expressions as far as launch specs support them."""

from __future__ import annotations

import re
from dataclasses import field
from itertools import islice

from orbit_lsp.drafts import cuda
from orbit_lsp.drafts.guesses import DraftStatement, DraftSubject, guessed
from orbit_lsp.kernels.cuda import launch_sites
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.spec import dtypes
from orbit_remote.spec.cpp_expressions import CppParser
from orbit_remote.spec.file_context import bracketed
from orbit_remote.spec.functions.function_table import function
from orbit_remote.spec.signature import Parameter, element_of
from orbit_remote.spec.syntax_tree import Attribute, Call, Index, Name, walk

_ALLOCATION = r"\bcuda\w*(?:Malloc|MallocManaged|MallocAsync|MallocHost|HostAlloc)\s*\(\s*(?:\([^()]*\)\s*)?&\s*{name}\s*,"
_GIVEN = (
    r"(?<![\w.>]){name}\s*=(?!=)\s*([^;]{{0,400}});",
    r"^[ \t]*#[ \t]*define[ \t]+{name}[ \t]+([^\n]+)",
    r"\b(?:int|unsigned|size_t|long|float|double|auto|u?int\d+_t)\s+{name}\s*\{{([^;{{}}]{{0,400}})\}}\s*;",
)
_MEMBER = re.compile(r"(?<![\w.>])([A-Za-z_]\w*)\s*\.\s*([xyz])\b(?!\s*\()")
_ROUNDED_UP = re.compile(r"\b(?:\w+::)?(?:ceil_?div|div_?ceil|i?div_?up|div_?round_?up)\s*\(", re.IGNORECASE)
"""What authors call their macro or function for a quotient that is rounded up."""
_DIM3 = re.compile(r"(?:dim3\s*\(|(?:dim3\s*)?\{)(.*)[)}]", re.DOTALL)
_SIZEOF = re.compile(r"\bsizeof\s*\([^()]*\)\s*\*\s*|\s*\*\s*sizeof\s*\([^()]*\)")
_KNOWN = frozenset(
    ("true", "false", "nullptr", "INFINITY", "NAN", "M_PI", "INT_MAX", "FLT_MAX", *dtypes.VECTORS)
)
_DIRECTIVE = re.compile(r"^[ \t]*#[^\n]*$", re.MULTILINE)
_CALLED = ("dim3", "sizeof")
_DEEPEST = 12
_MOST_SITES = 50


def draft(subject: DraftSubject) -> list[DraftStatement] | None:
    """Draft a spec. Return None if the file launches the kernel nowhere, or in no way that a spec can express."""
    header, text = subject.header, subject.around.text
    if any(parameter.refused for parameter in header.parameters):
        return None
    sites = re.finditer(rf"\b{re.escape(subject.name)}\b\s*(<(?!<)[^;{{}}]{{0,200}}?>)?\s*<<<", text)
    for site in islice(sites, _MOST_SITES):
        launch = launch_sites.find(text, site.end() - 3)
        behind = text.find(">>>", site.end())
        inner = bracketed(text[behind + 3 : behind + 8000].lstrip()) if behind > 0 else None
        if launch is None or inner is None:
            continue
        arguments = _parts(inner)
        if len(arguments) == len(header.parameters) and 2 <= len(launch.arguments) <= 4:
            host = _CudaHostCode(subject, _before(text, site.start()), _parts((site[1] or "")[1:-1]))
            if statements := host.statements(launch.arguments, arguments):
                return statements
    return None


def _before(text: str, place: int) -> str:
    """Return the text before a place that is in its scope. The bodies of other functions are left out, but not their
    directives.
    """
    kept: list[str] = []
    at = 0
    for start, end in cuda.bodies(text):
        if end <= place:
            directives = _DIRECTIVE.findall(text, start, end)
            kept += [text[at:start], "{;\n", *(f"{directive}\n" for directive in directives), "}"]
            at = end
    return "".join([*kept, text[at:place]])


@dataclass
class _CudaHostCode:
    """The text before a launch that is in its scope. Names are looked up in it from its end. `chosen` are the
    launch's template arguments, `passed` the expressions of its numbers by parameter.
    """

    subject: DraftSubject
    before: str
    chosen: list[str]
    assigned: dict[str, DraftStatement] = field(default_factory=dict[str, DraftStatement])
    passed: dict[str, str] = field(default_factory=dict[str, str])

    def statements(self, configuration: tuple[str, ...], arguments: list[str]) -> list[DraftStatement] | None:
        header = self.subject.header
        if header.lacking(len(self.chosen)):
            return None
        if not all(
            dtypes.cpp(" ".join(argument.split())) or self.expression(argument) for argument in self.chosen
        ):
            return None  # `k<T>` in a template of its own
        pairs = list(zip(cuda.named(header.parameters), arguments, strict=True))
        for parameter, text in pairs:  # numbers first: what is allocated is made of them
            if parameter.kind == "scalar":
                self.passed[parameter.name] = self.argument(parameter, text)
        passed = [
            self.passed.get(parameter.name) or self.argument(parameter, text) for parameter, text in pairs
        ]
        known = [text for part in configuration[:3] if (text := self.expression(part)) is not None]
        if len(known) < len(configuration[:3]):
            return None
        known = known[:2] if known[2:] == ["0"] else known
        instance = f"{self.subject.name}<{', '.join(self.chosen)}>" if self.chosen else self.subject.name
        launch = f"launch {instance}<<<{', '.join(known)}>>>({', '.join(passed)})"
        return [*self.assigned.values(), DraftStatement(launch)]

    def argument(self, parameter: Parameter, text: str) -> str:
        """Return a parameter's expression, or a name with an assignment to it."""
        if parameter.kind == "pointer" and text in ("nullptr", "NULL", "0"):
            return "nullptr"
        if parameter.kind == "scalar" and (known := self.expression(text)) is not None:
            return known
        name = text if text.isidentifier() else parameter.name
        while name in self.assigned and name != text:
            name += "_"
        if name not in self.assigned:
            allocated = (
                self.allocated(parameter, name) if parameter.kind == "pointer" and name == text else None
            )
            value = allocated or self.guess(parameter).named(name)
            self.assigned[name] = value  # below the sizes that it is made of
        return name

    def guess(self, parameter: Parameter) -> DraftStatement:
        """Guess a value from the signature alone, with the sizes that the launch passes."""
        sizes = cuda.sizes_of(self.subject)
        if parameter.kind == "scalar" and parameter.name in sizes.values:
            return guessed(parameter.name, sizes.values[parameter.name])
        for name, value in sizes.values.items():
            if name not in self.passed:
                self.assigned.setdefault(name, guessed(name, value))
        texts = {
            name: text if re.fullmatch(r"\w+", text) else f"({text})" for name, text in self.passed.items()
        }
        return cuda.value_of(parameter, sizes.renamed(texts), self.types, self.subject)

    @property
    def types(self) -> dict[str, str]:
        return dict(
            zip((parameter.name for parameter in self.subject.header.templates), self.chosen, strict=False)
        )

    def allocated(self, parameter: Parameter, name: str) -> DraftStatement | None:
        """Return the assignment for a pointer with allocated memory, as far as known names give its size."""
        calls = list(re.finditer(_ALLOCATION.format(name=re.escape(name)), self.before))
        inner = bracketed("(" + self.before[calls[-1].end() : calls[-1].end() + 2000]) if calls else None
        element = element_of(parameter, self.types)
        lanes = element[1] if element else 1
        count = self.elements(_parts(inner)[0], element[0].size * lanes if element else 4) if inner else None
        if count is None:
            return None
        made = cuda.contents(parameter, (f"({count})" if lanes > 1 else count,), element, self.subject.body)
        # what integers are good for, an allocation does not tell
        return guessed(name, made) if "randint" in made else DraftStatement(f"{name} = {made}")

    def elements(self, size: str, itemsize: int, depth: int = 0) -> str | None:
        """Return the elements of a size in bytes: `n` of `n * sizeof(float)`, through names, else the bytes divided."""
        plain = size[1:-1] if bracketed(size) == size[1:-1] else size
        stripped, count = _SIZEOF.subn("", plain)
        if count == 1:
            return self.expression(stripped)
        if plain.isidentifier() and depth < _DEEPEST and (value := self.defined(plain)):
            return self.elements(value, itemsize, depth + 1)
        known = self.expression(plain)
        return f"({known}) / {itemsize}" if known else None

    # -- expressions -------------------------------------------------------------------------------

    def expression(self, text: str, depth: int = 0) -> str | None:
        """Return the same text if specs can compute it, and assign its names before. Return None if they cannot.

        `block.x` becomes what the host code made it, because specs have no members.
        """
        text = _ROUNDED_UP.sub("cdiv(", text).strip()
        alone = _MEMBER.fullmatch(text) is not None
        text = _MEMBER.sub(lambda member: self.extent(member[1], member[2], depth) or member[0], text)
        text = text[1:-1] if alone and text.startswith("(") else text
        node = CppParser.parsed(text)
        for each in walk(node) if node else ():
            match each:
                case Attribute() | Index():
                    return None
                case Call(name=name) if each.receiver or (name not in _CALLED and not function(name, "cuda")):
                    return None
                case Name(name=name) if not (
                    name in _KNOWN or self.resolve(name, depth) or dtypes.named(name, "cuda")
                ):
                    return None
                case _:
                    pass
        return " ".join(text.split()) if node else None

    def extent(self, name: str, axis: str, depth: int) -> str | None:
        """Return one extent of a `dim3` of the host code. Return None if its text does not give it."""
        inner = _DIM3.fullmatch(self.defined(name) or "")
        if depth > _DEEPEST or inner is None:
            return None
        extents = [*_parts(inner[1]), "1", "1", "1"]
        known = self.expression(extents["xyz".index(axis)], depth + 1)
        return known if known is None or re.fullmatch(r"\w+", known) else f"({known})"

    def resolve(self, name: str, depth: int) -> bool:
        """Assign a name of the host code, after the names in its value."""
        if name not in self.assigned and depth <= _DEEPEST and (value := self.defined(name)):
            known = self.expression(value, depth + 1)
            if known is not None:
                self.assigned[name] = DraftStatement(f"{name} = {known}")
        return name in self.assigned

    def defined(self, name: str) -> str | None:
        """Return the last value that a variable or macro was given before the launch."""
        escaped = re.escape(name)
        values = {
            given.start(): (_parts(given[1]) or [""])[0]
            for pattern in _GIVEN
            for given in re.finditer(pattern.format(name=escaped), self.before, re.MULTILINE)
        }
        for declaration in re.finditer(r"\bdim3\s+(?:const\s+)?([^;]{1,400});", self.before):
            if bracketed(f"({declaration[1]})") != declaration[1]:
                continue  # a function's parameter
            for part in _parts(declaration[1]):
                if made := re.fullmatch(rf"{escaped}\b\s*=?\s*(?:dim3)?\s*(\S.*)", part, re.DOTALL):
                    listed = made[1].startswith(("(", "{")) and made[1].endswith((")", "}"))
                    at = declaration.start(1) + declaration[1].index(part)
                    values[at] = f"dim3{made[1]}" if listed else f"dim3({made[1]})"
        return values[max(values)] if values else None


def _parts(text: str) -> list[str]:
    """Return the parts between commas that stand in no bracket. `<` is a comparison or a shift here."""
    return [part.strip() for part in launch_sites.top_level(text)] if text.strip() else []
