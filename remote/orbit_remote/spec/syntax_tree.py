"""A launch spec as frozen data: one tree for both expression languages, and the directives.

Lines and columns count from 0, columns in Unicode code points. The end of a span is exclusive.
"""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.messages import Place
from orbit_remote.common.plain_text import visible

Language = Literal["cuda", "triton"]
Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class SpecSpan:
    line: int
    column: int
    end_line: int
    end_column: int

    def to(self, other: SpecSpan) -> SpecSpan:
        return SpecSpan(self.line, self.column, other.end_line, other.end_column)

    def place(self, file: str) -> Place:
        """Return the place, counted from 1. A span of several lines has no end."""
        end = self.end_column + 1 if self.end_line == self.line else None
        return Place(file, self.line + 1, self.column + 1, end)

    def holds(self, line: int, column: int) -> bool:
        """Say whether the place lies in the span. Its end counts, because a cursor stands there after typing."""
        return (self.line, self.column) <= (line, column) <= (self.end_line, self.end_column)


@dataclass(frozen=True, slots=True)
class Fault:
    """One sentence about one place of a spec. A spec with an error is not run."""

    span: SpecSpan
    message: str
    severity: Severity = "error"

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", visible(self.message))  # it quotes the author's file

    def moved(self, lines: int) -> Fault:
        at = self.span
        span = SpecSpan(at.line + lines, at.column, at.end_line + lines, at.end_column)
        return Fault(span, self.message, self.severity)


class SpecError(Exception):
    """A fault as an exception. It is raised only inside the spec modules; a caller gets its `fault` in a list."""

    def __init__(self, span: SpecSpan, message: str) -> None:
        super().__init__(message)
        self.fault = Fault(span, message)


# -- expressions ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Number:
    """A number. `type` is a dtype's name in C++ (`1u` is uint32) and `int` or `float` in Python."""

    span: SpecSpan
    value: int | float
    type: str


@dataclass(frozen=True, slots=True)
class Text:
    span: SpecSpan
    value: str


@dataclass(frozen=True, slots=True)
class Name:
    """A name without its qualification (`torch.`, `triton.`, `std::`). C++ types of several words are one name."""

    span: SpecSpan
    name: str


@dataclass(frozen=True, slots=True)
class Unary:
    """An operator of one operand: `-`, `+`, `~` or `not`."""

    span: SpecSpan
    operator: str
    operand: Expression


@dataclass(frozen=True, slots=True)
class Binary:
    """An operator of two operands: arithmetic, bits, comparisons, `and`, `or`. `operator_span` is the operator's
    place.
    """

    span: SpecSpan
    operator: str
    left: Expression
    right: Expression
    operator_span: SpecSpan


@dataclass(frozen=True, slots=True)
class Conditional:
    span: SpecSpan
    condition: Expression
    then: Expression
    otherwise: Expression


@dataclass(frozen=True, slots=True)
class Keyword:
    span: SpecSpan
    name: str
    value: Expression


@dataclass(frozen=True, slots=True)
class Call:
    """A call. `receiver` is the `x` of `x.sum(1)`. `name_span` is the place of the function's name."""

    span: SpecSpan
    name: str
    name_span: SpecSpan
    arguments: tuple[Expression, ...]
    keywords: tuple[Keyword, ...] = ()
    receiver: Expression | None = None


@dataclass(frozen=True, slots=True)
class Attribute:
    span: SpecSpan
    value: Expression
    name: str
    name_span: SpecSpan


@dataclass(frozen=True, slots=True)
class Slice:
    span: SpecSpan
    start: Expression | None
    stop: Expression | None
    step: Expression | None


@dataclass(frozen=True, slots=True)
class Index:
    span: SpecSpan
    value: Expression
    items: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Sequence:
    """A list: `(a, b)`, `[a, b]` or `{a, b}`."""

    span: SpecSpan
    items: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Cast:
    """A cast: `(float)x` or `static_cast<float>(x)`."""

    span: SpecSpan
    type: Name
    operand: Expression


@dataclass(frozen=True, slots=True)
class Lambda:
    """A function: `lambda META: …`, the grid of a Triton launch."""

    span: SpecSpan
    parameter: str
    body: Expression


Expression = (
    Number | Text | Name | Unary | Binary | Conditional | Call | Attribute | Slice | Index | Sequence | Cast | Lambda
)  # fmt: skip


def children(node: Expression) -> tuple[Expression, ...]:
    match node:
        case Unary() | Cast():
            return (node.operand,)
        case Binary():
            return (node.left, node.right)
        case Conditional():
            return (node.condition, node.then, node.otherwise)
        case Call():
            first = () if node.receiver is None else (node.receiver,)
            return (*first, *node.arguments, *(keyword.value for keyword in node.keywords))
        case Attribute():
            return (node.value,)
        case Slice():
            return tuple(part for part in (node.start, node.stop, node.step) if part is not None)
        case Index():
            return (node.value, *node.items)
        case Sequence():
            return node.items
        case Lambda():
            return (node.body,)
        case _:
            return ()


def walk(node: Expression) -> list[Expression]:
    """Return the node and everything in it, from left to right."""
    expressions: list[Expression] = []
    waiting = [node]
    while waiting:
        expression = waiting.pop()
        expressions.append(expression)
        waiting.extend(reversed(children(expression)))
    return expressions


# -- directives -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Assignment:
    span: SpecSpan
    name: Name
    value: Expression


@dataclass(frozen=True, slots=True)
class TemplateArgument:
    """A template argument. `value` is None if the text is no expression; a type need not be one (`Policy<8>`)."""

    span: SpecSpan
    text: str
    value: Expression | None


@dataclass(frozen=True, slots=True)
class SpecLaunch:
    """One launch as it is written. `grid` and `block` are None in a `reference` that only names a kernel.

    `block`, `shared` and `cluster` are CUDA's; `keywords` are Triton's (constexprs and options).
    """

    span: SpecSpan
    kernel: Name
    grid: Expression | None = None
    block: Expression | None = None
    shared: Expression | None = None
    templates: tuple[TemplateArgument, ...] = ()
    arguments: tuple[Expression, ...] = ()
    keywords: tuple[Keyword, ...] = ()
    cooperative: bool = False
    cluster: Expression | None = None


@dataclass(frozen=True, slots=True)
class Within:
    """A tolerance that the author gives: |actual - expected| <= atol + rtol * |expected|."""

    span: SpecSpan
    rtol: Expression
    atol: Expression | None


@dataclass(frozen=True, slots=True)
class Expect:
    """An expectation. `captured` says that `expected` is a `load` of what the kernel wrote when it was captured, all
    of it or a sample.
    """

    span: SpecSpan
    actual: Expression
    expected: Expression
    within: Within | None = None
    captured: bool = False


@dataclass(frozen=True, slots=True)
class Reference:
    """What the outputs must equal: a Python function's results, or what another kernel leaves.

    `call` is `f` or `f(x, y)` (a function), `launch` is another kernel with a launch of its own. `outputs` are the
    names before `==`; empty means every tensor that the kernel may write.
    """

    span: SpecSpan
    call: Name | Call | None
    launch: SpecLaunch | None
    outputs: tuple[Name, ...] = ()
    within: Within | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """Values that replace the assigned ones. They are checked, not timed."""

    span: SpecSpan
    name: Name
    values: tuple[Assignment, ...]


@dataclass(frozen=True, slots=True)
class Amount:
    """The expression of `bytes`, `flops`, `seed`, `iterations`, `warmup` or `timeout`."""

    span: SpecSpan
    word: str
    value: Expression


@dataclass(frozen=True, slots=True)
class Words:
    """The words of `gpu`, `flags` or `args` without quotes, or the one text of `stdin`."""

    span: SpecSpan
    word: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """Everything above one kernel. Of a directive that can stand only once, the first counts."""

    language: Language
    assignments: tuple[Assignment, ...] = ()
    launches: tuple[SpecLaunch, ...] = ()
    expects: tuple[Expect, ...] = ()
    references: tuple[Reference, ...] = ()
    cases: tuple[Case, ...] = ()
    symbols: tuple[Assignment, ...] = ()
    """Of `__constant__` and `__device__` variables."""
    amounts: dict[str, Amount] = field(default_factory=dict[str, Amount])
    words: dict[str, Words] = field(default_factory=dict[str, Words])
    broken: tuple[str, ...] = ()
    """Names whose assignment is malformed: what depends on them is not faulted again."""
    lines: tuple[int, ...] = ()
    """The lines of the file that hold it; empty where the kernel has no spec."""
