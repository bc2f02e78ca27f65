"""Explains a name in a launch spec: a value's shape, type and memory, a function's use, a word's purpose."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from lsprotocol import types as lsp

from orbit_lsp.kernels import Span
from orbit_lsp.specs import spec_cache
from orbit_lsp.state import units
from orbit_lsp.state.session import Session
from orbit_lsp.views import positions
from orbit_lsp.views.spec import spec_place

if TYPE_CHECKING:
    from orbit_lsp.views.spec.spec_place import SpecPlace
    from orbit_remote.spec.comment_scanner import SpecStatement
    from orbit_remote.spec.launch_spec import EvaluatedSpec
    from orbit_remote.spec.lexer import SpecToken
    from orbit_remote.spec.syntax_tree import Expression, SpecLaunch
    from orbit_remote.spec.values import Tensor, Value

Lines = list[str]
"""A title, then facts; code stands in backquotes."""


def hover(session: Session, uri: str, line: int, character: int, *, markdown: bool) -> lsp.Hover | None:
    """Return a hover. Return None outside of launch specs and on what needs no explanation."""
    place = spec_place.of(session, uri, line, character)
    at_cursor = _token(place) if place else None
    if place is None or at_cursor is None:
        return None
    statement, read, at = at_cursor
    checked = spec_cache.spec_of(session, uri, place.kernel) if place.kernel else None
    lines = _explained(place, statement, read, at, checked)
    if not lines:
        return None
    if markdown:
        title, *facts = lines
        text = "\n\n".join([title, *(["\n".join(f"- {fact}" for fact in facts)] if facts else [])])
    else:
        text = "\n".join(lines).replace("`", "")
    kind = lsp.MarkupKind.Markdown if markdown else lsp.MarkupKind.PlainText
    span = read[at].span
    where = Span(span.line, span.column, span.end_line, span.end_column)
    return lsp.Hover(lsp.MarkupContent(kind, text), positions.of_span(session, place.file.document, where))


def _token(place: SpecPlace) -> tuple[SpecStatement, list[SpecToken], int] | None:
    """Return the statement at the cursor, its tokens, and which of them the cursor is on."""
    from orbit_remote.spec.comment_scanner import RAW, statements
    from orbit_remote.spec.lexer import tokens
    from orbit_remote.spec.syntax_tree import SpecError

    parsed, _ = statements(list(place.pieces), place.language)
    for statement in parsed:
        if not statement.span.holds(place.line, place.column):
            continue
        try:
            read = tokens(statement, place.language)
        except SpecError:
            continue
        at = next((i for i, token in enumerate(read) if token.span.holds(place.line, place.column)), None)
        if at is None or read[at].kind == "end" or (statement.word in RAW and at > 0):
            return None
        following = read[at + 1]  # there is always an end
        if read[at].kind != "name" and following.kind == "name" and following.span.column == place.column:
            at += 1
        return statement, read, at
    return None


def _explained(
    place: SpecPlace, statement: SpecStatement, read: list[SpecToken], at: int, checked: EvaluatedSpec | None
) -> Lines | None:
    from orbit_remote.spec import dtypes, interpreter
    from orbit_remote.spec import rules as spec_rules
    from orbit_remote.spec.comment_scanner import PARTS, WORDS
    from orbit_remote.spec.functions import function_table
    from orbit_remote.spec.functions import shapes as functions_shapes

    token = read[at]
    name = token.text
    if token.kind != "name":
        return None
    if at == 0 and statement.word:
        return [f"`{name}`: {WORDS[name]}", *(_launch_lines(place, checked) if name == "launch" else [])]
    before, after = read[at - 1].text if at else "", read[at + 1].text
    function = function_table.function(name, place.language)
    if before == "." and not _qualifies(read, at - 1):
        if after != "(" and name in functions_shapes.ATTRIBUTES:
            return [f"`.{name}`: {functions_shapes.ATTRIBUTES[name]}"]
        return [f"`{function.usage}`", function.doc] if function else None
    if after == "=" and at > 0 and before in ("(", ","):
        return _keyword(name, checked) or (
            [f"`{name}`: {spec_rules.OPTIONS[name]}"] if name in spec_rules.OPTIONS else None
        )
    if checked and name in checked.values:
        return value_lines(name, checked.values[name], checked)
    if checked and checked.signature and name == checked.signature.name:
        return [f"`{name}({checked.signature.text})`"]
    if function:
        return [f"`{function.usage}`", function.doc]
    if name in PARTS:
        return [f"`{name}`: {PARTS[name]}"]
    if dtype := dtypes.named(name, place.language):
        return [
            f"`{dtype.name}`: {dtype.size} byte{'s' * (dtype.size != 1)} an element",
            *([f"`expect` allows rtol {dtype.rtol:.3g}, atol {dtype.atol:.3g}"] if dtype.rtol else []),
        ]
    if name in interpreter.CONSTANTS[place.language]:
        return [f"`{name}` = {interpreter.CONSTANTS[place.language][name]}"]
    return None


def _qualifies(read: list[SpecToken], dot: int) -> bool:
    """Say whether `torch`, `tl` or a similar name stands before a dot."""
    from orbit_remote.spec.python_expressions import PythonParser

    return dot > 0 and read[dot - 1].text in PythonParser.prefixes


def _keyword(name: str, checked: EvaluatedSpec | None) -> Lines | None:
    header = checked.signature if checked else None
    parameter = (
        next((parameter for parameter in header.parameters if parameter.name == name), None)
        if header
        else None
    )
    if header is None or parameter is None:
        return None
    return [f"`{name}`: a {'constexpr ' * (parameter.kind == 'constexpr')}parameter of `{header.name}`"]


# -- values ------------------------------------------------------------------------------------------


def described(value: Value) -> str:
    """Describe a value in a few words: `float32 (1048576,), 4 MiB`, `int32 256`."""
    from orbit_remote.spec.dtypes import DType
    from orbit_remote.spec.syntax_tree import Lambda
    from orbit_remote.spec.values import Dim3, Scalar, Tensor, TensorMap, text_of

    match value:
        case Scalar():
            return f"{value.type} {value.value}"
        case Tensor():
            return f"{value.dtype.name} {text_of(value.shape)}, {units.size(value.bytes)}"
        case TensorMap():
            return f"blocks {text_of(value.box)} of {described(value.tensor)}"
        case Dim3():
            return f"dim3({value.x}, {value.y}, {value.z})"
        case DType():
            return value.name
        case str():
            return f'"{value}"'
        case Lambda():
            return "a function of the constants"
        case None:
            return "None"
        case _:
            return f"a list of {len(value)}"


def value_lines(name: str, value: Value, checked: EvaluatedSpec) -> Lines:
    from orbit_remote.spec.values import Tensor, contiguous, text_of

    lines = [f"`{name}`: {described(value)}"]
    if isinstance(value, Tensor):
        if value.strides != contiguous(value.shape):
            lines.append(f"strides {text_of(value.strides)}, in elements")
        if value.unset:
            lines.append("its contents are not set before the launch")
    lines += _passed(name, checked)
    lines += _replaced(name, checked)
    return lines


def _passed(name: str, checked: EvaluatedSpec) -> Lines:
    """Return `passed as const float* x` for every parameter that gets exactly this name."""
    from orbit_remote.spec.syntax_tree import Name

    header = checked.signature
    names: dict[str, None] = {}
    for launch in checked.spec.launches if header else ():
        if header is None or launch.kernel.name != header.name:
            continue
        for parameter, argument in zip(header.parameters, launch.arguments, strict=False):
            if isinstance(argument, Name) and argument.name == name:
                names[f"passed as `{' '.join(filter(None, (parameter.type, parameter.name)))}`"] = None
    return list(names)


def _replaced(name: str, checked: EvaluatedSpec) -> Lines:
    from orbit_remote.spec.syntax_tree import Call

    for assignment in checked.spec.assignments:
        call = assignment.value
        if (
            assignment.name.name == name
            and isinstance(call, Call)
            and call.name == "sweep"
            and call.receiver is None
        ):
            return [f"this is the first of {len(call.arguments)} values that are run"]
    return []


# -- launches ----------------------------------------------------------------------------------------


def _launch_lines(place: SpecPlace, checked: EvaluatedSpec | None) -> Lines:
    if checked is None:
        return []
    launch = next(
        (launch for launch in checked.spec.launches if launch.span.line <= place.line <= launch.span.end_line and _follows(launch, place)),
        None,
    )  # fmt: skip
    if launch is None:
        return []
    tensors = list(_tensors(launch, checked))
    lines: Lines = []
    if tensors:
        many = f"{len(tensors)} tensors" if len(tensors) > 1 else "1 tensor"
        lines.append(f"its arguments take {units.size(sum(tensor.bytes for tensor in tensors))} in {many}")
    if (grid := _extents(launch.grid, checked)) and (block := _extents(launch.block, checked)):
        threads = math.prod(block)
        lines.append(f"{math.prod(grid)} blocks of {threads} threads")
    return lines


def _follows(launch: SpecLaunch, place: SpecPlace) -> bool:
    """Say whether the cursor is on this launch's word: the launch is the next one on that line."""
    return launch.span.line > place.line or launch.span.column >= place.column


def _tensors(launch: SpecLaunch, checked: EvaluatedSpec) -> Iterable[Tensor]:
    """Return the memory that the arguments name, each once even if several views of it are passed."""
    from orbit_remote.spec.values import Tensor, TensorMap

    tensors: dict[str, Tensor] = {}
    for node in (*launch.arguments, *(keyword.value for keyword in launch.keywords)):
        value = _value(node, checked)
        tensor = value.tensor if isinstance(value, TensorMap) else value
        if isinstance(tensor, Tensor):
            whole = checked.values.get(tensor.storage)
            name = tensor.storage or f"#{len(tensors)}"
            tensors[name] = whole if isinstance(whole, Tensor) else tensor
    return tensors.values()


def _value(node: Expression, checked: EvaluatedSpec) -> Value:
    """Return the value of a node. Return None if it has none, because it is faulty or depends on tuning."""
    from orbit_remote.spec.interpreter import SpecScope, UntunedError, evaluate
    from orbit_remote.spec.syntax_tree import SpecError
    from orbit_remote.spec.values import World

    try:
        return evaluate(node, World(checked.spec.language), SpecScope(checked.values))
    except (SpecError, UntunedError):
        return None


def _extents(node: Expression | None, checked: EvaluatedSpec) -> tuple[int, ...] | None:
    from orbit_remote.spec.values import Dim3, Scalar

    value = _value(node, checked) if node else None
    if isinstance(value, Dim3):
        return value.x, value.y, value.z
    return (int(value.value),) if isinstance(value, Scalar) else None
