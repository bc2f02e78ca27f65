"""A draft for a CUDA kernel from its signature, its body telling what is written and how threads are laid out."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache

from orbit_lsp.drafts import Subject, dynamic_shared, names
from orbit_lsp.drafts.names import Sizes
from orbit_remote.spec import dtypes
from orbit_remote.spec.rules import MOST_THREADS
from orbit_remote.spec.signature import Parameter, TemplateParameter, element_of, plain_type
from orbit_remote.spec.values import Scalar

_KEPT = 64
"""Answers about bodies that are kept: each launch of a kernel asks the same, and generated bodies have 200 kB."""
_BLOCK = re.compile(r"block|thread|bdim|nthreads", re.IGNORECASE)
_TILE = re.compile(r"tile|^b[mnk]$|^t[mnk]$|dim|radius|size", re.IGNORECASE)
_MATRIX_TILE = re.compile(r"^(?:k?block|tile|[bt])_?(?:size_?)?([mnk])$", re.IGNORECASE)
_FEW = re.compile(r"vec|unroll|per_?thread|items|stages|pack|ilp|^each$|^rows$", re.IGNORECASE)
_FUNCTOR = re.compile(
    r"func|op(?:erator|_t)?$|calc|array|loader|storer|policy|traits|layout|iter|accessor", re.IGNORECASE
)
_ROW_STARTS = re.compile(
    r"^(?:d_|h_)?(?:row_?(?:ptrs?|offsets?|starts?|pointers?)|indptr|crow\w*|cu_?seq\w*)$", re.IGNORECASE
)
_ATOMIC = r"\batomic\w+\s*\(\s*(?:&\s*)?\(?\s*{name}\b"
_COOPERATIVE = re.compile(r"\bthis_grid\s*\(|\bgrid_group\b")
_ALL_AT_ONCE = "64"
"""Blocks that every GPU of a data centre runs at the same time, whatever they use."""
_PLAIN_WRITE = r"\b{name}\s*\[[^;=]*\]\s*=(?!=)"
_TILE_OF = re.compile(r"__shared__\s+[\w:\s]+?\w+\s*\[\s*(\w+)[^\]]*\]\s*\[\s*(\w+)[^\]]*\]")


def draft(subject: Subject) -> list[str] | None:
    """The statements of a spec; None where an argument or template argument cannot be made up."""
    header = subject.header
    chosen = template_arguments(subject)
    if chosen is None or any(one.refused for one in header.parameters):
        return None
    if any(one.kind == "pointer" and not one.element and _unknown(one, chosen) for one in header.parameters):
        return None
    parameters = named(header.parameters)
    found = sizes_of(parameters, subject)
    types = dict(zip((one.name for one in header.templates), chosen, strict=False))
    assigned = [f"{name} = {value}" for name, value in found.named.items()]
    values = {
        one.name: value_of(one, found, types, subject) for one in parameters if one.name not in found.named
    }
    assigned += [f"{name} = {value}" for name, value in values.items()]
    used = f"<{', '.join(chosen)}>" if chosen else ""
    configuration = ", ".join(configured(subject, found))
    arguments = ", ".join(one.name for one in parameters)
    together = " cooperative" if _COOPERATIVE.search(subject.body) else ""
    return [*assigned, f"launch {subject.name}{used}<<<{configuration}>>>({arguments}){together}"]


def named(parameters: tuple[Parameter, ...]) -> list[Parameter]:
    """Every parameter with a name that can be assigned, made up where it has none."""
    taken: set[str] = set()
    found: list[Parameter] = []
    for at, one in enumerate(parameters):
        name = one.name
        if not name or not name.isascii() or name in taken:
            name = f"argument_{at + 1}"
        taken.add(name)
        found.append(replace(one, name=name))
    return found


def _unknown(one: Parameter, chosen: list[str]) -> bool:
    """A pointer to a type of the author's own: how large its elements are is not known here."""
    return not chosen and "void" not in one.type


def sizes_of(parameters: list[Parameter], subject: Subject) -> Sizes:
    integers = [one.name for one in parameters if one.kind == "scalar" and _integral(one)]
    found = names.sizes(integers, [one.name for one in parameters], _row(subject.body))
    return names.squared(found) if re.search(r"\b(?:threadIdx|blockIdx)\.y\b", subject.body) else found


@lru_cache(_KEPT)
def _row(body: str) -> str:
    """The `n` of `x + blockIdx.x * n`, where a block takes a row; empty where it takes as many elements as threads."""
    if re.search(
        r"blockIdx\.x\s*\*\s*(?:\(\w+\)\s*)?blockDim|blockDim\.x\s*\*\s*(?:\(\w+\)\s*)?blockIdx", body
    ):
        return ""
    named = "|".join(re.findall(r"\b(\w+)\s*=\s*blockIdx\.x\s*;", body))
    found = re.search(
        rf"\b(?:blockIdx\.x{'|' + named if named else ''})\s*\*\s*(?:\(\w+\)\s*)?([A-Za-z_]\w*)", body
    )
    return found[1] if found else ""


def _integral(one: Parameter) -> bool:
    """Of at least 4 bytes: what is smaller counts nothing."""
    dtype = dtypes.DTYPES.get(one.element)
    return dtype is not None and dtype.kind == "integer" and dtype.size >= 4


def template_arguments(subject: Subject) -> list[str] | None:
    """Explicit ones up to the last that is needed; None where a type cannot be guessed."""
    wanted = [one for one in subject.header.templates if not one.pack]
    while wanted and wanted[-1].optional and not _passed(wanted[-1], subject):
        wanted.pop()
    found: list[str] = []
    for one in wanted:
        value = _template_argument(one, subject)
        if value is None:
            return None
        found.append(value)
    return found


def _squared(name: str, body: str) -> bool:
    """Whether it is the side of a square tile."""
    escaped = re.escape(name)
    return re.search(rf"\[\s*{escaped}\s*(?:\*|\]\s*\[)\s*{escaped}\b", body) is not None


def _passed(one: TemplateParameter, subject: Subject) -> list[Parameter]:
    """The parameters whose type speaks of it."""
    return [
        each
        for each in subject.header.parameters
        if one.name and re.search(rf"\b{re.escape(one.name)}\b", each.type)
    ]


def _template_argument(one: TemplateParameter, subject: Subject) -> str | None:
    if one.kind == "type":
        exactly = rf"(?:const\s+)?{re.escape(one.name)}(?:\s+const)?\s*\**"
        passed = _passed(one, subject)
        if not passed or not all(re.fullmatch(exactly, plain_type(each.type)) for each in passed):
            return None
        by_value = [each.name for each in passed if "*" not in each.type]
        if _FUNCTOR.search(one.name) or any(
            re.search(rf"\b{re.escape(name)}\s*[(.\[]", subject.body) for name in by_value if name
        ):
            return None
        return "int" if re.match(r"(?:index|idx|int|offset)", one.name, re.IGNORECASE) else "float"
    if one.type == "bool":
        return "true"
    if dtypes.named(one.type.removeprefix("const ").strip(), "cuda") is None:
        return None
    if one.name and _squared(one.name, subject.body):
        return "16"
    if tile := _MATRIX_TILE.search(one.name):
        return "16" if tile[1] in "Kk" else "64"
    if _BLOCK.search(one.name):
        return "256"
    return (
        "8"
        if one.name.lower() == "rows"
        else "4"
        if _FEW.search(one.name)
        else "16"
        if _TILE.search(one.name) or not one.name
        else "32"
    )


# -- arguments ---------------------------------------------------------------------------------------


def value_of(one: Parameter, found: Sizes, types: dict[str, str], subject: Subject) -> str:
    """An expression for a parameter that is no size."""
    if one.kind == "pointer":
        return tensor(one, shape_of(one, found, subject), types, subject)
    if one.kind == "tensor map":
        return "tensor_map(randn(1024, 1024, dtype=half), (64, 64))"
    element = element_of(one, types)
    dtype = element[0] if element else dtypes.DTYPES["float32"]
    if dtype.kind == "bool":
        return "true"
    if dtype.kind == "integer":
        slides = any(re.match("pad|dilation", each.name) for each in subject.header.parameters)
        return "1" if slides and one.name.startswith("stride") else names.integer(one.name, found)
    return names.real(one.name, double=dtype.name == "float64")


def shape_of(one: Parameter, found: Sizes, subject: Subject) -> tuple[str, ...]:
    """A product of matrices takes (m, k) and (k, n), in the order of its inputs."""
    if not found.matrices:
        return found.shape
    m, n, k = found.matrices
    inputs = [each.name for each in subject.header.parameters if each.kind == "pointer" and (each.const or not written(each.name, subject.body))]  # fmt: skip
    place = inputs.index(one.name) if one.name in inputs else -1
    return (m, k) if place == 0 else (k, n) if place == 1 else (m, n)


def tensor(one: Parameter, shape: tuple[str, ...], types: dict[str, str], subject: Subject) -> str:
    """What is only written is empty, what atomics add to is zeros, everything else has random contents."""
    element = element_of(one, types)
    dtype, lanes = element or (None, 1)
    extents = [*shape[:-1], f"{lanes} * {shape[-1]}" if lanes > 1 else shape[-1]]
    size = ", ".join(extents)
    if not one.const and _added_to(one.name, subject.body):
        return f"zeros({size})"
    if not one.const and written(one.name, subject.body) and not read(one.name, subject.body):
        return f"empty({size})"
    if dtype is None or dtype.kind == "floating":
        return f"randn({size})"
    if dtype.kind == "bool":
        return f"zeros({size})"
    if _ROW_STARTS.search(one.name):
        return f"arange({shape[0]} + 1)"
    high: int | str = 2 if re.search("mask|flag", one.name, re.IGNORECASE) else 100
    inside = f"({size})" if len(extents) > 1 else size
    if re.search(
        r"(?:^|_)(?:idx|index|indices|cols?|rows?|ptrs?|offsets?|perm\w*)(?:_|$|\d)", one.name, re.IGNORECASE
    ):
        high = shape[-1] if dtype.size >= 4 else 100
    return f"randint(0, {high}, {inside})"


@lru_cache(_KEPT)
def _added_to(name: str, body: str) -> bool:
    return re.search(_ATOMIC.format(name=re.escape(name)), body) is not None


@lru_cache(_KEPT)
def written(name: str, body: str) -> bool:
    escaped = re.escape(name)
    return bool(
        re.search(_PLAIN_WRITE.format(name=escaped), body) or re.search(rf"\*\s*{escaped}\s*=(?!=)", body)
    )


@lru_cache(_KEPT)
def read(name: str, body: str) -> bool:
    """Whether a pointer is used in any way but to write single elements through it."""
    escaped = re.escape(name)
    rest = re.sub(_PLAIN_WRITE.format(name=escaped), lambda found: re.sub(rf"^{escaped}", "", found[0]), body)
    rest = re.sub(rf"\*\s*{escaped}\s*=(?!=)", "", rest)
    return bool(re.search(rf"(?<![\w.]){escaped}\b", rest))  # not the x of threadIdx.x


# -- the launch --------------------------------------------------------------------------------------


def configured(subject: Subject, found: Sizes) -> list[str]:
    """Grid, block and, where the kernel has it, dynamic shared memory."""
    body = subject.body
    shape = found.shape
    across, down = shape[-1], shape[-2] if len(shape) > 1 else ""
    side = _tile(subject)
    shared = dynamic_shared.element(body, subject.text)
    if "threadIdx.y" in body:
        rows = min(_rows(side, subject), _step_down(side, subject))
        block, threads = f"dim3({side}, {rows})", f"{side} * {rows}"
        grid = (
            f"dim3({_over(across, side)}, {_over(down, side)}" if down else f"dim3({_over(across, side)}, 1"
        )
        grid += f", {shape[0]})" if "blockIdx.z" in body and len(shape) > 2 else ")"
    else:
        threads = block = str(_threads(subject))
        if "blockIdx.y" in body and down:
            grid = f"dim3({_tiled('x', across, down, threads, subject)}, {_tiled('y', down, across, '1', subject)}"
            grid += f", {shape[0]})" if "blockIdx.z" in body and len(shape) > 2 else ")"
        elif down and not re.search(r"blockIdx\.x\s*\*\s*blockDim|blockDim\.x\s*\*\s*blockIdx", body) and "blockIdx" in body:  # fmt: skip
            grid = " * ".join(shape[:-1])  # a block for every row
        elif (
            "blockIdx" not in body
            and "blockDim" not in body
            and "gridDim" not in body
            and "threadIdx" in body
        ):
            grid = "1"
        else:
            grid = _over(found.total, threads)
    if _COOPERATIVE.search(body):
        grid = _ALL_AT_ONCE
    parts = [grid, block]
    if shared:
        known = dtypes.cpp(shared)
        # an array of bytes is room for something else
        parts.append(f"{threads} * sizeof({shared if known and known[0].size > 1 else 'float'})")
    return parts


def _threads(subject: Subject) -> int:
    for one in subject.header.templates:  # the tile's threads in one row
        if one.name and _squared(one.name, subject.body) and re.search(rf"threadIdx\.x\s*[/%]\s*{one.name}\b", subject.body):  # fmt: skip
            return (constant(one.name, subject) or 16) ** 2
    allowed = _allowed(subject)
    return allowed if allowed and allowed <= MOST_THREADS else 256


def _tiled(axis: str, extent: str, other: str, width: str, subject: Subject) -> str:
    """Blocks along one axis of the grid, where the body multiplies its number with how wide they are: `BM`."""
    found = re.search(rf"\bblockIdx\.{axis}\s*\*\s*([A-Z]\w*|k[A-Z]\w*)\b", subject.body)
    value = constant(found[1], subject) if found else None
    if found is None or value is None:
        return extent if width == "1" else _over(extent, width)
    tile = _MATRIX_TILE.search(found[1])
    swapped = tile is not None and extent.lower() in ("m", "n") and tile[1].lower() == other.lower()
    return _over(other if swapped else extent, value)


def _step_down(side: int, subject: Subject) -> int:
    """How many rows of a tile a block copies at once: the 8 of `for (j = 0; j < 32; j += 8) … threadIdx.y + j`."""
    for found in re.finditer(
        r"\bfor\s*\([^;]*\b(\w+)\s*=\s*0\s*;[^;]*;\s*\1\s*\+=\s*(\w+)\s*\)", subject.body
    ):
        step = constant(found[2], subject)
        if step and step < side and re.search(rf"threadIdx\.y\s*\+\s*{found[1]}\b", subject.body):
            return step
    return side


def _rows(side: int, subject: Subject) -> int:
    """The other extent of a block that is `side` wide."""
    return min(side, max(1, (_allowed(subject) or MOST_THREADS) // side))


def _allowed(subject: Subject) -> int | None:
    """What `__launch_bounds__`, or a macro for it, allows with the template arguments that we choose."""
    bound = subject.header.bound
    given = zip(subject.header.templates, template_arguments(subject) or [], strict=False)
    chosen = {one.name: Scalar(int(text), "int32") for one, text in given if text.isdigit()}
    if bound and (threads := bound.threads(chosen)):
        return threads
    return constant(subject.bounds[0], subject) if subject.bounds else None


def _tile(subject: Subject) -> int:
    """The side of a square tile in shared memory, where the body has one."""
    if found := _TILE_OF.search(subject.body):
        value = constant(found[1], subject)
        if value in (8, 16, 32):
            return value
    return 16


def constant(text: str, subject: Subject) -> int | None:
    """The value of a number, or of a constant or macro that the file defines as one, or as we choose it."""
    if text.isdigit():
        return int(text)
    if not text.isidentifier():
        return None
    for one, value in zip(subject.header.templates, template_arguments(subject) or [], strict=False):
        if one.name == text and value.isdigit():
            return int(value)
    found = re.search(rf"\b{re.escape(text)}\s*(?:=\s*|\s)\(?(\d+)\)?\s*(?:;|$)", subject.text, re.MULTILINE)
    return int(found[1]) if found else None


def _over(count: str, block: str | int) -> str:
    return f"({count} + {int(block) - 1}) / {block}"
