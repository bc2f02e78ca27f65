"""Drafts a spec for a CUDA kernel from its signature. The body shows what the kernel writes and how its threads are
laid out.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace

from orbit_lsp.drafts import guesses
from orbit_lsp.drafts.guesses import DraftStatement, DraftSubject, Sizes, guessed
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.spec import dtypes, launch_bounds
from orbit_remote.spec.rules import MOST_THREADS
from orbit_remote.spec.signature import Parameter, TemplateParameter, element_of, plain_type
from orbit_remote.spec.values import Scalar

_LINEAR_INDEX = re.compile(
    r"blockIdx\.x\s*\*\s*(?:\(\w+\)\s*)?blockDim|blockDim\.x\s*\*\s*(?:\(\w+\)\s*)?blockIdx"
)
_COOPERATIVE = re.compile(r"\bthis_grid\s*\(|\bgrid_group\b")
_ALL_AT_ONCE = "64"
"""Blocks that every data-centre GPU can run at the same time, whatever their resources."""
_SQUARE_TILE = re.compile(
    r"__shared__\s+[\w:]{1,60}(?:\s+[\w:]{1,60}){1,5}?\s*\[\s*(\w{1,60})\b[^\[\]]{0,200}\]\s*\["
)


def draft(subject: DraftSubject) -> list[DraftStatement] | None:
    """Draft a spec. Return None if a launch spec cannot pass a parameter, or a type cannot be chosen."""
    header = subject.header
    instance = template_arguments(subject)
    if instance is None or any(parameter.refused for parameter in header.parameters):
        return None
    parameters = named(header.parameters)
    sizes = sizes_of(subject)
    templates = [
        guessed(template.name, _template_value(template, subject.body), template.type)
        for template in header.templates
        if template.name in instance and template.kind == "value"
    ]
    statements = [
        *(guessed(name, value) for name, value in sizes.values.items()), *templates,
        *(value_of(parameter, sizes, {}, subject) for parameter in parameters if parameter.name not in sizes.values),
    ]  # fmt: skip
    chosen = {name: value for name, _, value in (statement.text.partition(" = ") for statement in templates)}
    configuration = _Threads(subject, sizes, chosen).configuration()
    together = " cooperative" if _COOPERATIVE.search(subject.body) else ""
    of = f"{subject.name}<{', '.join(instance)}>" if instance else subject.name
    launch = f"launch {of}<<<{', '.join(configuration)}>>>({', '.join(parameter.name for parameter in parameters)}){together}"
    remark = "guessed: grid, block" + ", shared memory" * (len(configuration) > 2)
    return [*statements, DraftStatement(launch, remark)]


def named(parameters: tuple[Parameter, ...]) -> list[Parameter]:
    """Return the parameters, each with a name that can be assigned. A missing name is made up."""
    known: dict[str, Parameter] = {}
    for at, parameter in enumerate(parameters):
        plain = parameter.name and parameter.name.isascii() and parameter.name not in known
        name = parameter.name if plain else f"argument_{at + 1}"
        known[name] = replace(parameter, name=name)
    return list(known.values())


# -- template arguments ------------------------------------------------------------------------------


def template_arguments(subject: DraftSubject) -> list[str] | None:
    """Return the template arguments up to the last that is needed: a value by its name, `float` for a type. Return
    None if a type cannot be chosen.
    """

    def types(template: TemplateParameter) -> list[str]:
        """Return the types of the parameters that mention the template parameter."""
        every = (plain_type(each.type) for each in subject.header.parameters)
        return [
            each for each in every if template.name and re.search(rf"\b{re.escape(template.name)}\b", each)
        ]

    wanted = [template for template in subject.header.templates if not template.pack]
    while wanted and wanted[-1].optional and not types(wanted[-1]):
        wanted.pop()
    for template in wanted:
        element = re.compile(rf"(?:const\s+)?{re.escape(template.name)}(?:\s+const)?\s*\**")
        numbers = any("*" in each for each in types(template)) and all(
            map(element.fullmatch, types(template))
        )
        if not template.name or (
            template.kind == "type" and (not numbers or "integral" in template.type)
        ):  # it may be a function or a structure
            return None
    return [template.name if template.kind == "value" else "float" for template in wanted]


def _template_value(template: TemplateParameter, body: str) -> str:
    if template.type == "bool":
        return "true"
    if re.search("block|thread", template.name, re.IGNORECASE):
        return "64" if template.name.lower().endswith(("_m", "_n", "_k")) else "256"
    if re.search(rf"\+=\s*{re.escape(template.name)}\b", body):
        return "8"
    square = re.search(rf"\[\s*{template.name}\s*(?:\*|\]\s*\[)\s*{template.name}\b", body)
    return "16" if square or "tile" in template.name.lower() else ""


# -- arguments ---------------------------------------------------------------------------------------


def sizes_of(subject: DraftSubject) -> Sizes:
    parameters = named(subject.header.parameters)
    wide = {dtype.name for dtype in dtypes.DTYPES.values() if dtype.kind == "integer" and dtype.size >= 4}
    counts = [
        parameter.name for parameter in parameters if parameter.kind == "scalar" and parameter.element in wide
    ]
    square = re.search(r"\b(?:threadIdx|blockIdx)\.y\b", subject.body) is not None
    row = _row_length(subject.body) in counts
    return guesses.sizes(counts, [parameter.name for parameter in parameters], row=row, square=square)


def _row_length(body: str) -> str:
    """Return the `n` of `x + blockIdx.x * n`, if a block takes a row. Return "" if it takes as many elements as it
    has threads.
    """
    if _LINEAR_INDEX.search(body):
        return ""
    rows = "|".join(["blockIdx\\.x", *re.findall(r"\b(\w+)\s*=\s*blockIdx\.x\s*;", body)])
    product = re.search(rf"\b(?:{rows})\s*\*\s*(?:\(\w+\)\s*)?([A-Za-z_]\w*)", body)
    return product[1] if product else ""


def value_of(
    parameter: Parameter, sizes: Sizes, types: dict[str, str], subject: DraftSubject
) -> DraftStatement:
    """Return the assignment of a parameter that is no size."""
    element = element_of(parameter, types)
    shown = f"{parameter.type} {parameter.name}"
    if parameter.kind == "pointer":
        known = {"void", *(each.name for each in subject.header.templates)}
        if element is None and not known & set(re.findall(r"\w+", parameter.type)):
            return guessed(parameter.name, None, shown)
        pointers = [each for each in subject.header.parameters if sizes.matrices and each.kind == "pointer"]
        inputs = [each.name for each in pointers if each.const or not _written(each.name, subject.body)]
        shape = (
            _single(parameter.name, subject.body)
            or _counted(parameter.name, subject)
            or sizes.operand(parameter.name, inputs)
        )
        return guessed(parameter.name, contents(parameter, shape, element, subject.body))
    dtype = element[0] if element else dtypes.DTYPES["float32"]
    if parameter.kind == "scalar" and dtype.kind == "bool":
        return guessed(parameter.name, "true")
    if parameter.kind == "scalar" and dtype.kind == "floating":
        return guessed(parameter.name, guesses.real(parameter.name) + "f" * (dtype.name != "float64"))
    return guessed(parameter.name, guesses.stride(parameter.name, subject.names, sizes), shown)


def _single(name: str, body: str) -> tuple[str, ...]:
    """Return the shape of one element if a pointer is used for nothing but atomics on its first element or `*out = …`,
    as a reduction uses that of its result.
    """
    own = re.escape(name)
    uses = re.findall(rf"(?<![\w.]){own}\b", body)
    atomic = rf"\batomic\w+\s*\(\s*(?:{own}|&\s*{own}\s*\[\s*0\s*\])\s*,"
    firsts = re.findall(rf"{atomic}|[;{{}})]\s*\*\s*{own}\s*=(?!=)", body)
    return ("1",) if uses and len(uses) == len(firsts) else ()


def _counted(name: str, subject: DraftSubject) -> tuple[str, ...]:
    """Return the constant of the file that bounds every index of a pointer, as `BINS` of `bins[b]` after `b < BINS`.
    Return "" if no constant does.
    """
    indices = set(re.findall(rf"(?<![\w.]){re.escape(name)}\s*\[([^][]*)\]", subject.body))
    bounds: set[str] = set()
    for index in indices:
        bound = (
            re.search(rf"\b{re.escape(index.strip())}\s*<\s*(\w+)\s*[;&|)]", subject.body)
            if index.strip().isidentifier()
            else None
        )
        bounds.add(bound[1] if bound else "")
    is_constant = len(bounds) == 1 and launch_bounds.constant(next(iter(bounds)), subject.around) is not None
    return tuple(bounds) if is_constant else ()


def contents(
    parameter: Parameter, shape: tuple[str, ...], element: tuple[dtypes.DType, int] | None, body: str
) -> str:
    """Return the contents of a tensor: empty if it is only written, zeros if atomics add to it, else random."""
    dtype, lanes = element or (None, 1)
    extents = [*shape[:-1], f"{lanes} * {shape[-1]}" if lanes > 1 else shape[-1]]
    size = ", ".join(extents)
    if not parameter.const and re.search(
        rf"\batomic\w+\s*\(\s*(?:&\s*)?\(?\s*{re.escape(parameter.name)}\b", body
    ):
        return f"zeros({size})"
    if not parameter.const and _written(parameter.name, body) and not _read(parameter.name, body):
        return f"empty({size})"
    if dtype is None or dtype.kind == "floating":
        return f"randn({size})"
    if dtype.kind == "bool":
        return f"zeros({size})"
    # integers may be indices into other tensors; bytes are often data that takes all values
    high = shape[-1] if dtype.size >= 4 else "256" if dtype.name == "uint8" else "100"
    return f"randint(0, {high}, {f'({size})' if len(extents) > 1 else size})"


def _written(name: str, body: str) -> bool:
    return re.search(_write(name), body) is not None


def _read(name: str, body: str) -> bool:
    """Say whether a pointer is used in any way except to write single elements through it."""
    rest = re.sub(_write(name), lambda write: write[0].replace(name, "", 1), body)
    return bool(re.search(rf"(?<![\w.]){re.escape(name)}\b", rest))  # not the x of threadIdx.x


def _write(name: str) -> str:
    return rf"\b{re.escape(name)}\s*\[[^;=]{{0,200}}\]\s*=(?!=)|\*\s*{re.escape(name)}\s*=(?!=)"


# -- the launch --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Threads:
    """How the body numbers its threads. `chosen` are the template arguments."""

    subject: DraftSubject
    sizes: Sizes
    chosen: dict[str, str]

    def configuration(self) -> list[str]:
        """Return grid, block and, if the kernel has it, dynamic shared memory."""
        body, shape = self.subject.body, list(self.sizes.shape)
        down = shape[-2] if len(shape) > 1 else "1"
        most = self.allowed()
        if "threadIdx.y" in body:
            side, rows = self.tile()
            rows = min(rows, max(1, (most or MOST_THREADS) // side))
            block, threads = f"dim3({side}, {rows})", f"{side} * {rows}"
            grid = [_over(shape[-1], side), _over(down, side)]
        else:
            wide = min(most or 256, MOST_THREADS)
            threads = block = str(wide)
            grid = [_over(" * ".join(shape), wide)]
            if "blockIdx.y" in body and len(shape) > 1:
                grid = [self.blocks("x", shape[-1], wide), self.blocks("y", down, 1)]
            elif not re.search("blockIdx|blockDim|gridDim", body) and "threadIdx" in body:
                grid = ["1"]
            elif len(shape) > 1 and "blockIdx" in body and not _LINEAR_INDEX.search(body):
                grid = [" * ".join(shape[:-1])]  # a block for every row
        if "blockIdx.z" in body and len(shape) > 2:
            grid.append(shape[0])
        text = f"dim3({', '.join(grid)})" if len(grid) > 1 else grid[0]
        kind = shared_element(self.subject)
        shared = [f"{threads} * sizeof({kind})"] if kind else []
        return [_ALL_AT_ONCE if _COOPERATIVE.search(body) else text, block, *shared]

    def constant(self, text: str) -> int | None:
        """Return the value of a number, of a template argument, or of a constant or macro of the file."""
        text = self.chosen.get(text, text)
        known = launch_bounds.constant(text, self.subject.around) if text.isidentifier() else None
        return int(text) if text.isdigit() else int(known.value) if known else None

    def allowed(self) -> int | None:
        """Return the threads that `__launch_bounds__` or `__block_size__` allows, with these template arguments or
        else the defaults.
        """
        header = self.subject.header
        defaults = {each.name: each.default for each in header.templates if each.kind == "value"}
        texts = {**defaults, **self.chosen}
        values = {name: Scalar(int(text), "int32") for name, text in texts.items() if text.isdigit()}
        size = header.attributes.block.values(values) if header.attributes.block else None
        if size:
            return math.prod(size)
        bound = header.attributes.bound
        return bound.threads(values) if bound else None

    def blocks(self, axis: str, extent: str, width: int) -> str:
        """Return the number of blocks along one axis of the grid. Their width is the factor by which the body
        multiplies their number (`BM`).
        """
        factor = re.search(rf"\bblockIdx\.{axis}\s*\*\s*([A-Za-z]\w*)\b", self.subject.body)
        return _over(extent, (factor and self.constant(factor[1])) or width)

    def tile(self) -> tuple[int, int]:
        """Return the side of a square tile in shared memory, and the rows that are copied at once: the 8 of `for (j =
        0; j < 32; j += 8) … threadIdx.y + j`.
        """
        body = self.subject.body
        array = _SQUARE_TILE.search(body)
        side = self.constant(array[1]) if array else None
        side = side if side in (8, 16, 32) else 16
        for loop in re.finditer(
            r"\bfor\s*\([^;]{0,80}\b(\w+)\s*=\s*0\s*;[^;]{0,200};\s*\1\s*\+=\s*(\w+)\s*\)", body
        ):
            step = self.constant(loop[2])
            if step and step < side and re.search(rf"threadIdx\.y\s*\+\s*{loop[1]}\b", body):
                return side, step
        return side, side


def _over(count: str, block: int) -> str:
    return f"({count} + {block - 1}) / {block}" if block > 1 else count


# -- dynamic shared memory ---------------------------------------------------------------------------

_ALIGNED = r"(?:(?:__align__|alignas)\s*\([^()]*(?:\([^()]*\))?[^()]*\)\s*)?"
_DYNAMIC = re.compile(
    rf"\bextern\s+{_ALIGNED}__shared__\s+{_ALIGNED}((?:[\w:]+\s+){{0,6}}?[\w:]+)\s+{_ALIGNED}(\w+)\s*\[\s*\]"
)
_BODY = re.compile(r"\)\s*+(?:(?:const|noexcept|override|final|mutable|try|->[\s\w:<>*&]*+)\s*+)*+$")


def shared_element(subject: DraftSubject) -> str:
    """Return the type of the `extern __shared__` array that a kernel's body declares or names. Return "" if it has
    none.
    """
    outside = text = subject.around.text
    for start, end in reversed(bodies(text) if _DYNAMIC.search(text) else []):
        outside = outside[:start] + outside[end:]
    in_file = [array for array in _DYNAMIC.finditer(outside) if re.search(rf"\b{array[2]}\b", subject.body)]
    for array in (*_DYNAMIC.finditer(subject.body), *in_file):
        known = dtypes.cpp(array[1].strip())  # an array of bytes is room for something else
        return array[1].strip() if known and known[0].size > 1 else "float"
    return ""


def bodies(text: str) -> list[tuple[int, int]]:
    """Return the outermost functions of a text without comments: from `{` to behind `}`, or to the end."""
    spans: list[tuple[int, int]] = []
    depth = start = 0  # braces that are open within a function
    for brace in re.finditer(r"[{}]", text):
        if depth:
            depth += 1 if brace[0] == "{" else -1
            if not depth:
                spans.append((start, brace.end()))
        elif brace[0] == "{" and _BODY.search(text, max(0, brace.start() - 300), brace.start()):
            depth, start = 1, brace.start()
    return [*spans, (start, len(text))] if depth else spans
