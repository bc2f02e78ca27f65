"""What kernel discovery needs to know of one region of a Python file, a top-level statement.

An outline depends only on the region's text (positions count from its first character), so it is kept as long as that
text stands in the file. Names are not resolved here, because other regions define them. Expressions are reduced to
the few forms that can make a kernel.
"""

from __future__ import annotations

from dataclasses import field
from typing import Literal, NamedTuple

from orbit_lsp.kernels.model import Span
from orbit_lsp.kernels.python.expressions import Expression
from orbit_remote.common.lazy_dataclass import dataclass

Path = tuple[tuple[int, int, bool], ...]
"""The branches around a statement inside its scope: (which statement, which arm, arms exclude each other)."""


class Binding(NamedTuple):
    """The meaning of a name from the statement number `order` on."""

    order: int
    path: Path
    value: Expression


@dataclass(slots=True)
class PythonScope:
    """A scope. It is known by its place among the outline's scopes: the region itself is 0, and its parent is -1."""

    kind: Literal["module", "function", "class"]
    parent: int
    qualified: str
    parameters: tuple[str, ...] = ()
    bindings: dict[str, list[Binding]] = field(default_factory=dict[str, list[Binding]])
    globals: frozenset[str] = frozenset()


@dataclass(slots=True)
class PythonFunction:
    """A `def`. `pieces` are the outline's pieces that belong to it: its own, then those of the functions in it."""

    name: str
    scope: int
    body_scope: int
    order: int
    path: Path
    decorators: tuple[Expression, ...]
    name_span: Span
    whole: Span
    pieces: range
    comments: tuple[str, ...]
    returns: list[Expression]
    callable_bare: bool
    returns_value: bool = False
    words: frozenset[str] = frozenset()
    """The words in its pieces, less its parameters and variables."""


@dataclass(slots=True)
class Class:
    scope: int
    body_scope: int
    order: int
    path: Path
    bases: tuple[Expression, ...]


@dataclass(slots=True)
class CallAssignment:
    """`name = value` with a call as the value: a kernel can be made in this form."""

    name: str
    value: Expression
    scope: int
    order: int
    path: Path
    name_span: Span
    whole: Span
    comments: tuple[str, ...]
    says_maker: bool
    callees: frozenset[str]
    """The plain names that are called in it."""


class OutlinePiece(NamedTuple):
    """Tokens that belong together: their digest, their words (attributes as `.name`), and the piece around."""

    digest: bytes
    words: frozenset[str]
    parent: int


class LaunchSite(NamedTuple):
    name: str
    line: int
    grid: str
    arguments: tuple[str, ...]


@dataclass(slots=True)
class Outline:
    """What is known of a region. A file may have 200,000 regions, so empty containers are shared: each takes memory,
    and time of the collector.
    """

    scopes: tuple[PythonScope, ...]
    functions: tuple[PythonFunction, ...]
    classes: tuple[Class, ...]
    assignments: tuple[CallAssignment, ...]
    pieces: tuple[OutlinePiece, ...]
    launches: tuple[LaunchSite, ...]
    exported: frozenset[str]
    """The strings of an `__all__`."""
    imports: tuple[str, ...]
    stars: tuple[str, ...]
    """Modules of `from m import *`."""
    main_guard: bool
    calls: bool
    """A statement outside functions is a call, as of a script."""
    embedded: tuple[CallAssignment, ...]
    """The kernels of CUDA C++ in its strings."""
    words: frozenset[str]
    says_maker: bool
    """A kernel maker's own name stands somewhere in the text."""
    trailing: tuple[str, ...]
    """The `# orbit:` lines after the last statement: they speak of the next region."""
    has_error: bool
    text: str
    lines: int
    statements: int = 1
    """0 if it was not read."""
    left_out: bool = False
    """Kernels in it are not looked for."""
    interface: object = None
    """All that the meaning of other regions' names can depend on."""

    def __post_init__(self) -> None:
        if len(self.scopes) == 1 and not self.stars:
            self.interface = self.scopes[0].bindings
            return
        wraps = self.classes or any(function.returns for function in self.functions)
        self.interface = (
            tuple(self.scopes[0].bindings.items()),
            self.stars,
            [
                (function.decorators, function.returns_value, function.pieces,
                 self.scopes[function.body_scope].parameters)
                for function in self.functions
                if function.scope == 0
            ],
            [piece.parent for piece in self.pieces],
            self.text if wraps else "",
        )  # fmt: skip
