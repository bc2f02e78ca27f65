"""What an elementwise kernel makes of each element, read from its body. A draft gets its `expect` and `bytes` from
it.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import field

from orbit_lsp.drafts.guesses import DraftStatement, DraftSubject
from orbit_lsp.kernels.cuda import launch_sites
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.spec.functions.elementwise import ELEMENTWISE
from orbit_remote.spec.functions.function_table import function
from orbit_remote.spec.syntax_tree import Language
from orbit_remote.spec.values import Scalar, Tensor, Value

_REMARK = "read off the body: check it"
_LINEAR = frozenset(
    (
        "blockIdx.x*blockDim.x+threadIdx.x",
        "blockDim.x*blockIdx.x+threadIdx.x",
        "threadIdx.x+blockIdx.x*blockDim.x",
        "threadIdx.x+blockDim.x*blockIdx.x",
    )
)
_LINEAR_Y = frozenset(text.replace(".x", ".y") for text in _LINEAR)
_STRIDE = frozenset(("gridDim.x*blockDim.x", "blockDim.x*gridDim.x"))
_CAST = re.compile(r"\(\s*(?:unsigned|int|long|size_t|unsigned int|u?int\d+_t)\s*\)|static_cast<[^<>]*>")
_TYPE = r"(?:const\s+)?(?:(?:unsigned|signed|long|short)\s+)*[A-Za-z_][\w:]*(?:\s+const)?"
_DECLARED = re.compile(rf"{_TYPE}\s+(\w+)\s*=\s*(.+)", re.DOTALL)
_STORED = re.compile(r"(\w+)\s*\[\s*(\w+)\s*\]\s*([-+*/]?)=(?!=)\s*(.+)", re.DOTALL)
_TO_FLOAT = re.compile(
    r"\(\s*(?:float|double)\s*\)|static_cast<\s*(?:float|double)\s*>|\b(?:__half2float|__float2half|__bfloat162float|"
    r"__float2bfloat16)(?=\s*\()"
)
"""Conversions that an expectation, which is computed in float64, has no need of."""
_SAME = {"fmaxf": "maximum", "fminf": "minimum", "fmax": "maximum", "fmin": "minimum", "powf": "pow"}
_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*")


@dataclass(slots=True)
class _Reading:
    """What was read of a body. `stored` is what each output becomes, in the words of the kernel; `loaded` are the
    inputs that are read before they are written. `bound` is the number of elements, or the number of rows if
    `columns` is not empty.
    """

    bound: str = ""
    columns: str = ""
    stored: dict[str, str] = field(default_factory=dict[str, str])
    loaded: dict[str, None] = field(default_factory=dict[str, None])


def statements(
    subject: DraftSubject,
    draft: Sequence[DraftStatement],
    values: Mapping[str, Value],
    tree: ast.Module | None,
) -> list[DraftStatement]:
    """Return `expect` and `bytes` for a draft whose first values are these. Return none if the body is not
    elementwise, or the draft's tensors do not have the length that it covers.
    """
    reading = _python(subject, tree) if tree else _cuda(subject)
    passed = _passed(subject, draft[-1].text, cuda=tree is None)
    if reading is None or passed is None or not reading.stored:
        return []
    bounds = [name for name in (reading.bound, reading.columns) if name]
    if not all(name in passed for name in bounds):
        return []
    counts = [passed[name] for name in bounds]
    sides = [_number(count, values) for count in counts]
    extent = None if None in sides else math.prod(side for side in sides if side is not None)
    moved: dict[tuple[str, str], int] = {}  # an argument that is passed twice is read once
    for way, names in (("read", reading.loaded), ("written", reading.stored)):
        for name in names:
            tensor = values.get(passed.get(name, ""))
            if not isinstance(tensor, Tensor) or tensor.numel != extent:
                return []
            if tensor.dtype.kind != "floating" and re.search(r"[/%]", " ".join(reading.stored.values())):
                return []  # of integers a quotient is another in each language
            moved[way, passed[name]] = tensor.dtype.size
    expected = [
        DraftStatement(f"expect {passed[name]} == {_renamed(text, passed)}", _REMARK)
        for name, text in reading.stored.items()
    ]
    sizes = list(moved.values())
    amount = f"{len(sizes)} * {sizes[0]}" if len(set(sizes)) == 1 else f"({' + '.join(map(str, sizes))})"
    amount = amount.removeprefix("1 * ")
    return [*expected, DraftStatement(f"bytes {' * '.join([amount, *counts])}", _REMARK)]


def _number(text: str, values: Mapping[str, Value]) -> int | float | None:
    known = values.get(text)
    return known.value if isinstance(known, Scalar) else int(text) if text.isdigit() else None


def _each(name: str, language: Language) -> bool:
    known = function(name, language)
    return known is not None and known in ELEMENTWISE


def _passed(subject: DraftSubject, launch: str, *, cuda: bool) -> dict[str, str] | None:
    """Return what the launch of a draft passes for each parameter."""
    if cuda:
        inner = launch.rpartition(">>>(")[2].removesuffix(" cooperative").removesuffix(")")
        arguments = [part.strip() for part in launch_sites.top_level(inner)]
        return (
            dict(zip(subject.names, arguments, strict=False))
            if len(arguments) == len(subject.names)
            else None
        )
    try:
        call = ast.parse(launch.removeprefix("launch "), mode="eval").body
    except (SyntaxError, ValueError):
        return None
    if not isinstance(call, ast.Call):
        return None
    given = [
        *zip(subject.names, call.args, strict=False),
        *((word.arg, word.value) for word in call.keywords),
    ]
    return {name: ast.unparse(value) for name, value in given if name}


def _renamed(text: str, passed: Mapping[str, str]) -> str:
    def argument(name: re.Match[str]) -> str:
        value = passed.get(name[0], name[0])
        return value if re.fullmatch(r"[\w.]+", value) else f"({value})"

    return _NAME.sub(argument, text)


# -- CUDA --------------------------------------------------------------------------------------------


def _cuda(subject: DraftSubject) -> _Reading | None:
    """Read a body that computes a linear index, or a row and a column, guards it, and stores through it. A loop over
    the grid is read too.
    """
    body = re.sub(r"#\s*pragma\s+unroll[^\n]*", "", subject.body).strip()
    body = re.sub(r"\s+", " ", body.removeprefix("{").removesuffix("}")).strip()
    places: dict[str, str] = {}
    while declared := re.match(rf"{_TYPE} (\w+) ?= ?([^;]+); ?", body):
        text = re.sub(r" ", "", _CAST.sub("", declared[2]))
        if text not in _LINEAR | _LINEAR_Y | _STRIDE:
            break
        places[declared[1]] = "index" if text in _LINEAR else "y" if text in _LINEAR_Y else "stride"
        body = body[declared.end() :]
    index = next((name for name, what in places.items() if what == "index"), "")
    if across := next((name for name, what in places.items() if what == "y"), ""):
        return _plane(subject, index, across, body) if index else None
    if loop := re.match(
        rf"for ?\( ?{_TYPE} (\w+) ?= ?([^;]+); ?\1 ?< ?(\w+) ?; ?\1 ?\+= ?([^;]+?) ?\) ?(.*)$", body
    ):
        start, step = (re.sub(r" ", "", _CAST.sub("", loop[at])) for at in (2, 4))
        if (start not in _LINEAR and start != index) or (
            step not in _STRIDE and places.get(step) != "stride"
        ):
            return None
        return _stored(subject, loop[1], loop[3], loop[5])
    if not index:
        return None
    if guard := re.match(rf"if ?\( ?{index} ?>= ?(\w+) ?\) ?(?:return ?;|{{ ?return ?; ?}}) ?(.*)$", body):
        return _stored(subject, index, guard[1], guard[2])
    if guard := re.match(rf"if ?\( ?{index} ?< ?(\w+) ?\) ?(.*)$", body):
        return _stored(subject, index, guard[1], guard[2])
    return None


def _plane(subject: DraftSubject, x: str, y: str, body: str) -> _Reading | None:
    """Read a body with one thread for each element of a matrix, at the place `row * columns + column`."""
    inside = re.match(rf"if ?\( ?({x}|{y}) ?< ?(\w+) ?&& ?({x}|{y}) ?< ?(\w+) ?\) ?(.*)$", body)
    outside = re.match(
        rf"if ?\( ?({x}|{y}) ?>= ?(\w+) ?\|\| ?({x}|{y}) ?>= ?(\w+) ?\) ?(?:return ?;|{{ ?return ?; ?}}) ?(.*)$",
        body,
    )
    guard = inside or outside
    if guard is None or guard[1] == guard[3]:
        return None
    bounds, block = {guard[1]: guard[2], guard[3]: guard[4]}, guard[5]
    cast = rf"(?:{_CAST.pattern})? ?"
    for row, column in ((y, x), (x, y)):
        product = rf"\(? ?{cast}{row} ?\* ?{cast}{bounds[column]} ?\)?"
        flat = rf"(?:{product} ?\+ ?{column}|{column} ?\+ ?{product})"
        named = re.search(rf"{_TYPE} (\w+) ?= ?{flat} ?; ?", block)
        name = named[1] if named else "place"
        block_of = block.replace(named[0], "", 1) if named else block
        block_of = re.sub(rf"\[ ?{flat} ?\]", f"[{name}]", block_of)
        if f"[{name}]" not in block_of.replace("[ ", "[").replace(" ]", "]") or name in subject.names:
            continue
        reading = _stored(subject, name, bounds[row], block_of)
        if reading:
            reading.columns = bounds[column]
            return reading
    return None


def _stored(subject: DraftSubject, index: str, bound: str, block: str) -> _Reading | None:
    """Read the statements behind the guard. `block` is `{ …; }` or one statement."""
    braced = block.startswith("{") and block.endswith("}")
    inner = block[1:-1] if braced else block
    parts = [part.strip() for part in inner.split(";")]
    if re.search(r"[{}]", inner) or parts[-1] or (not braced and "{" in block):
        return None
    reading = _Reading(bound)
    local: dict[str, str] = {}
    for part in parts[:-1]:
        if stored := _STORED.fullmatch(part):
            name, at, operator, text = stored.groups()
            value = _value(subject, index, text, local, reading)
            if at != index or value is None:
                return None
            if operator:
                before = reading.stored.get(name) or name
                reading.loaded.update({} if name in reading.stored else {name: None})
                value = (
                    f"{before} {operator} ({value})"
                    if re.search(r"[-+*/?]", value)
                    else f"{before} {operator} {value}"
                )
            reading.stored[name] = value
        elif declared := _DECLARED.fullmatch(part):
            value = _value(subject, index, declared[2], local, reading)
            if value is None:
                return None
            local[declared[1]] = value
        else:
            return None
    return reading


def _value(
    subject: DraftSubject, index: str, text: str, local: Mapping[str, str], reading: _Reading
) -> str | None:
    """Turn an expression over elements into one over whole tensors. Return None if it reads another element."""
    pointers = {each.name for each in subject.header.parameters if each.kind == "pointer"}
    scalars = {each.name for each in subject.header.parameters if each.kind == "scalar"}
    text = _TO_FLOAT.sub("", text).strip()
    text = re.sub(r"__ldg\s*\(\s*&?\s*(\w+\s*(?:\[\s*\w+\s*\]|\+\s*\w+))\s*\)", r"\1", text)
    if not re.fullmatch(r"[\w\s.+\-*/()\[\],<>]*", text):
        return None
    bad = False

    def element(access: re.Match[str]) -> str:
        nonlocal bad
        name = access[1]
        bad = bad or access[2] != index or name not in pointers
        if name in reading.stored:
            return f"({reading.stored[name]})"
        reading.loaded[name] = None
        return name

    text = re.sub(r"\b(\w+)\s*\[\s*(\w+)\s*\]", element, text)
    if bad or "[" in text:
        return None

    def word(name: re.Match[str]) -> str:
        nonlocal bad
        if name[0] in local:
            value = local[name[0]]
            return value if re.fullmatch(r"\w+", value) else f"({value})"
        called = text[name.end() :].lstrip().startswith("(")
        known = _SAME.get(name[0], name[0])
        if called and _each(known, "cuda"):
            return known
        bad = bad or called or name[0] not in pointers | scalars
        return name[0]

    text = _NAME.sub(word, text)
    return None if bad else re.sub(r"^\((\w+)\)$", r"\1", text)


# -- Triton ------------------------------------------------------------------------------------------


def _python(subject: DraftSubject, tree: ast.Module) -> _Reading | None:
    """Read a body that loads at `program_id * BLOCK + arange(BLOCK)` under a mask, computes, and stores there."""
    definitions = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        and node.name == subject.name
        and [each.arg for each in node.args.args] == subject.names
    ]
    if len(definitions) != 1:
        return None
    walk = _ElementwiseWalk(set(subject.names))
    for node in definitions[0].body:
        match node:
            case ast.Expr(value=ast.Constant()):
                pass
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ):
                if (known := walk.of(value)) is None:
                    return None
                walk.names[name] = known
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id="tl"), attr="store")) as call):
                if not walk.store(call):
                    return None
            case _:
                return None
    return walk.reading if walk.reading.bound else None


_Known = tuple[str, str]
"""What a name stands for: (kind, text). Kinds: program, start, range, offsets, mask, pointer, value."""


class _ElementwiseWalk:
    def __init__(self, parameters: set[str]) -> None:
        self.parameters = parameters
        self.names: dict[str, _Known] = {}
        self.reading = _Reading()

    def of(self, node: ast.expr) -> _Known | None:
        match node:
            case ast.Name(id=name):
                return self.names.get(name) or (("value", name) if name in self.parameters else None)
            case ast.Constant(value=int() | float()):
                return "value", ast.unparse(node)
            case ast.UnaryOp(op=ast.USub(), operand=operand) if (known := self.value(operand)) is not None:
                return "value", f"-({known})"
            case ast.BinOp(left=left, op=operator, right=right):
                return self.sum(self.of(left), operator, self.of(right))
            case ast.Compare(left=left, ops=[ast.Lt()], comparators=[ast.Name(id=bound)]):
                known = self.of(left)
                return (
                    ("mask", bound) if known and known[0] == "offsets" and bound in self.parameters else None
                )
            case ast.Call(func=ast.Attribute(value=ast.Name(id="tl"), attr=called)):
                return self.call(called, node)
            case ast.Call(func=ast.Attribute(value=value, attr="to"), args=[ast.Attribute(attr=kind)]):
                return self.of(value) if kind.startswith(("float", "bfloat")) else None
            case _:
                return None

    def value(self, node: ast.expr) -> str | None:
        known = self.of(node)
        return known[1] if known and known[0] == "value" else None

    def sum(self, left: _Known | None, operator: ast.operator, right: _Known | None) -> _Known | None:
        if left is None or right is None:
            return None
        kinds = {left[0]: left[1], right[0]: right[1]}
        match operator, sorted(kinds):
            case ast.Mult(), ["program", "value"] if kinds["value"] in self.parameters:
                return "start", kinds["value"]
            case ast.Add(), ["range", "start"] if kinds["start"] == kinds["range"]:
                return "offsets", kinds["start"]
            case ast.Add(), ["offsets", "value"] if kinds["value"] in self.parameters:
                return "pointer", kinds["value"]
            case ((ast.Add() | ast.Sub() | ast.Mult() | ast.Div()), ["value"]):
                sign = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}[type(operator)]
                operands = [
                    text if re.fullmatch(r"[\w.]+(?:\(.*\))?", text) else f"({text})"
                    for _, text in (left, right)
                ]
                return "value", f" {sign} ".join(operands)
            case _:
                return None

    def call(self, called: str, node: ast.Call) -> _Known | None:
        given = {word.arg: word.value for word in node.keywords}
        if called == "program_id":
            axis = node.args[0] if node.args else given.get("axis")
            return ("program", "") if isinstance(axis, ast.Constant) and axis.value == 0 else None
        if called == "arange" and len(node.args) == 2 and isinstance(node.args[1], ast.Name):
            first = node.args[0]
            return (
                ("range", node.args[1].id) if isinstance(first, ast.Constant) and first.value == 0 else None
            )
        if called == "load" and len(node.args) == 1:
            return self.load(self.of(node.args[0]), given.get("mask"))
        parts = [self.value(each) for each in node.args]
        known = [each for each in parts if each is not None]
        if node.keywords or len(known) < len(parts) or not _each(called, "triton"):
            return None
        return "value", f"{called}({', '.join(known)})"

    def load(self, pointer: _Known | None, mask: ast.expr | None) -> _Known | None:
        if pointer is None or pointer[0] != "pointer" or not self.masked(mask):
            return None
        if pointer[1] in self.reading.stored:
            return None
        self.reading.loaded[pointer[1]] = None
        return "value", pointer[1]

    def masked(self, mask: ast.expr | None) -> bool:
        known = self.of(mask) if mask else None
        if known is None or known[0] != "mask":
            return False
        self.reading.bound = self.reading.bound or known[1]
        return self.reading.bound == known[1]

    def store(self, call: ast.Call) -> bool:
        given = {word.arg: word.value for word in call.keywords}
        if len(call.args) != 2 or set(given) != {"mask"} or not self.masked(given["mask"]):
            return False
        pointer, value = self.of(call.args[0]), self.value(call.args[1])
        if pointer is None or pointer[0] != "pointer" or value is None:
            return False
        self.reading.stored[pointer[1]] = value
        return True
