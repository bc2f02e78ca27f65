"""What is open at one place of a file: braces, and branches of `#if`."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from orbit_lsp.kernels.cuda.lexer import IDENTIFIER, tokenize

SCOPE_WORD: Final = re.compile(r"\b(?:namespace|struct|class|union|extern)\b")
_REQUIRES_END: Final = re.compile(r"\brequires\s*(?:\([^(){}]*\)\s*)?\Z")
_ANGLE: Final = re.compile(r"(?<!-)[<>]")
_LONGEST_TEMPLATE_HEAD = 4_000


class CudaScope:
    """One open brace, or (without parent) the file.

    Namespaces are one object per name and place, so that equal states are identical. `interrupted` is the start of
    the declaration that goes on after the brace closes; -1 if it ends there.
    """

    __slots__ = ("children", "depth", "interrupted", "name", "namespace", "parens", "parent", "type_body")

    def __init__(
        self,
        parent: CudaScope | None,
        name: str,
        *,
        namespace: bool,
        type_body: bool = False,
        parens: int = 0,
        interrupted: int = -1,
    ) -> None:
        self.parent = parent
        self.name = name
        self.namespace = namespace
        self.type_body = type_body
        self.parens = parens
        self.interrupted = interrupted
        self.depth: int = parent.depth + 1 if parent else 0
        self.children: dict[str, CudaScope] = {}

    def inner_namespace(self, name: str) -> CudaScope:
        if (scope := self.children.get(name)) is None:
            scope = self.children[name] = CudaScope(self, name, namespace=True)
        return scope

    def path(self) -> list[str]:
        names: list[str] = []
        scope: CudaScope | None = self
        while scope:
            if scope.name:
                names.append(scope.name)
            scope = scope.parent
        return names[::-1]


class OpenConditional(NamedTuple):
    """An open `#if`: the state in which it began, and the state in which its first branch ended.

    Every branch starts in the former. After `#endif` the latter counts, so that branches which open and close
    different braces do no harm.
    """

    outer: OpenConditional | None
    scope: CudaScope
    parens: int
    after: tuple[CudaScope, int] | None
    taken: bool
    """A branch under `#if 1` was found: the other branches are dead."""
    dead: bool
    neutral: bool
    """Nothing but namespaces is open in what any branch starts from or ended in."""


def same_conditionals(conditional: OpenConditional | None, other: OpenConditional | None) -> bool:
    while conditional is not other:
        if conditional is None or other is None or conditional[1:] != other[1:]:
            return False
        conditional, other = conditional.outer, other.outer
    return True


def expects_expression(head: str) -> bool:
    """Say whether the brace after `head` belongs to an expression in the head of a template."""
    stripped = head.lstrip()
    if not stripped.startswith("template"):
        return False
    if _REQUIRES_END.search(head):
        return True
    depth = 0
    for match in _ANGLE.finditer(stripped[:_LONGEST_TEMPLATE_HEAD]):
        depth += 1 if match[0] == "<" else -1
        if depth == 0:
            return False
    return depth > 0


def scope_kind(head: str) -> tuple[str, str] | None:
    """Return ("namespace", its name) or ("type", its name) if `head` opens one. An `extern "C"` has no name."""
    tokens = [token.text for token in tokenize(head)]
    if tokens[-2:-1] == ["extern"] and tokens[-1].startswith('"'):
        return "namespace", ""
    keyword = _scope_keyword(tokens)
    name = _scope_name(tokens[keyword + 1 :]) if keyword >= 0 else None
    if name is None:
        return None
    return ("namespace" if tokens[keyword] == "namespace" else "type"), name


def _scope_keyword(tokens: list[str]) -> int:
    """Return where the last `namespace`, `struct` and the like stands outside of brackets. Return -1 if none does, or
    it is an `enum`.
    """
    depth = angle = 0
    keyword = -1
    for index, text in enumerate(tokens):
        if text in {"(", "["}:
            depth += 1
        elif text in {")", "]"}:
            depth -= 1
        elif depth == 0 and text == "<" and keyword < 0:
            angle += 1
        elif depth == 0 and text == ">" and keyword < 0:
            angle = max(0, angle - 1)
        elif depth == 0 and angle == 0 and text in {"namespace", "struct", "class", "union", "enum"}:
            if text == "enum":
                return -1
            keyword = index
    return keyword


def _scope_name(tokens: list[str]) -> str | None:
    """Return the name after a scope's keyword, "" if it has none. Return None if no scope opens."""
    names: list[str] = []
    depth = 0
    for text in tokens:
        if text == "(" and depth == 0 and names and not _is_attribute(names[-1]):
            return None  # a function that returns a struct
        if text in {"(", "[", "<"}:
            depth += 1
        elif text in {")", "]", ">"}:
            depth -= 1
        elif depth:
            continue
        elif text == ":":
            break
        elif text == "=":
            return None
        elif text == "::" and names:
            names[-1] += "::"
        elif IDENTIFIER.match(text) and text != "final":
            if names and names[-1].endswith("::"):
                names[-1] += text
            else:
                names.append(text)
    return names[-1] if names else ""


def _is_attribute(name: str) -> bool:
    return name in {"alignas", "__align__", "__attribute__", "__declspec"} or name.isupper()
