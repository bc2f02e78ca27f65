"""The regions of a Python file -> their outlines. After an edit, most of what was read of a long region is kept.

Its syntax tree is kept and edited. A long class is read member by member. Its first outline ends with its first member. Each other
member has an outline of its own, which is kept while the member's text stands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from orbit_lsp.kernels.python import syntax
from orbit_lsp.kernels.python.outline import Outline
from orbit_lsp.kernels.python.syntax import SyntaxText
from orbit_lsp.kernels.python.walk import SyntaxWalk, class_of, unread
from orbit_remote.common import limits

if TYPE_CHECKING:
    from tree_sitter import Node

LONG = 1 << 14
"""Characters of a region. A shorter one is read in some 5 ms."""


class RegionOutlines(NamedTuple):
    """A region as it was read. `parsed` is kept for a long one. For a long class, `members` are the outlines by their text, and `column` is
    where all of them begin. It is None if they begin in several columns, which the parser lets pass.
    """

    text: str
    outlines: tuple[Outline, ...]
    has_error: bool = False
    parsed: SyntaxText | None = None
    members: dict[bytes, Outline] | None = None
    column: int | None = None

    @property
    def statements(self) -> int:
        """0 if it was not read."""
        return sum(outline.statements for outline in self.outlines)


def is_long(text: str) -> bool:
    """Return whether a region is read by the help of what it was before an edit."""
    return LONG < len(text) <= limits.STATEMENT.most


def not_read(text: str) -> RegionOutlines:
    """Return what is known of a region behind a limit."""
    return RegionOutlines(text, (unread(text),))


def read_region(text: str, before: RegionOutlines | None = None) -> RegionOutlines:
    """Read a region. `before` is the one that it is an edit of. Without it the result comes later; it is the same unless the region is a
    class with a syntax error: then the members that were not touched stay as they were.
    """
    if len(text) > limits.STATEMENT.most:
        return not_read(text)
    if not is_long(text):
        outline = SyntaxWalk(syntax.parsed(text)).finish()
        return RegionOutlines(text, (outline,), outline.has_error)
    around = _around_edit(text, before) if before else None
    if around and before and before.column and (region := _read_valid(text, before, around)):
        return region
    parsed = syntax.parsed(text, before.parsed if before else None)
    has_error = parsed.tree.root_node.has_error
    known = (before.members if before else None) or {}
    class_ = class_of(parsed.tree.root_node)
    if (body := _body(class_)) and (rest := _members(body, parsed.data)):
        first = SyntaxWalk(parsed, 0, rest[0].start).finish()
        members = _read_members(parsed, rest, first.scopes[1].qualified, known)
        kept = {key: outline for key, outline in members if not outline.has_error}
        outlines = (first, *(outline for _, outline in members))
        return RegionOutlines(
            text, outlines, has_error, parsed, kept, None if has_error else _column(body, rest)
        )
    if around and before and has_error:
        return RegionOutlines(text, _read_broken(before, around), has_error, parsed, known)
    return RegionOutlines(text, (SyntaxWalk(parsed).finish(),), has_error, parsed)


# -- the members of a class ------------------------------------------------------------------------


class _Member(NamedTuple):
    """A member of a class: lines of its own, with the comments above it."""

    start: int
    nodes: list[Node]


def _body(class_: Node | None) -> Node | None:
    if class_ is None or any(child.type == "ERROR" for child in class_.children):
        return None
    return class_.child_by_field_name("body")


def _members(body: Node, data: bytes, start: int | None = None) -> list[_Member]:
    """Return the members of a class; without the first where `start` does not say where that begins."""
    members: list[_Member] = []
    end = len(data)
    behind = end if start is None else start
    for node in body.children:
        if node.start_byte >= behind:
            members.append(_Member(behind, []))
            behind = end
        if members:
            members[-1].nodes.append(node)
        if node.type != "comment":
            ends_line = node.end_byte and data[node.end_byte - 1] == ord("\n")
            behind = node.end_byte if ends_line else (data.find(b"\n", node.end_byte) + 1 or end)
    return members


def _column(body: Node, members: list[_Member]) -> int | None:
    groups = (body.children, *(member.nodes for member in members))
    first = (next((node for node in nodes if node.type != "comment"), None) for nodes in groups)
    columns = {node.start_point[1] for node in first if node}
    return columns.pop() if len(columns) == 1 else None


def _read_members(
    parsed: SyntaxText, members: list[_Member], name: str, known: dict[bytes, Outline]
) -> list[tuple[bytes, Outline]]:
    """Return an outline of each member of the class `name`, and its text; those that are `known` are not made again."""
    result: list[tuple[bytes, Outline]] = []
    ends = (*(member.start for member in members[1:]), len(parsed.data))
    for (start, nodes), end in zip(members, ends, strict=True):
        # what stands there, and what the parser was given, which is the same but for comments
        written = {parsed.data[start:end], parsed.readable[start:end]}
        key = b"\0".join((name.encode(), *sorted(written)))
        outline = None if parsed.stands_for else known.get(key)
        result.append((key, outline or SyntaxWalk(parsed, start, end, name).finish_member(nodes)))
    return result


# -- an edit in a class ----------------------------------------------------------------------------


class _AroundEdit(NamedTuple):
    """The members that an edit changed and one on either side, parsed as a class by themselves. They replace the outlines from `first` to
    `last`, which is excluded. `start` is the byte where they begin.
    """

    first: int
    last: int
    parsed: SyntaxText
    start: int


def _around_edit(text: str, before: RegionOutlines) -> _AroundEdit | None:
    """Return None where the edit is not between members of a class."""
    parts = before.outlines
    name = parts[-1].inside
    start = syntax.same_at_start(before.text, text) if name else 0
    first, at = 0, 0
    while first < len(parts) and at + len(parts[first].text) <= start:
        at += len(parts[first].text)
        first += 1
    if first < 2:
        return None
    end = len(text) - syntax.same_at_end(before.text, text, min(len(before.text), len(text)) - start)
    last, behind = len(parts), len(text)
    while last > first and behind - len(parts[last - 1].text) >= end:
        last -= 1
        behind -= len(parts[last].text)
    first -= 1
    at -= len(parts[first].text)
    if last < len(parts):
        behind += len(parts[last].text)
        last += 1
    head = f"class {name}:\n"
    return _AroundEdit(first, last, syntax.parsed(head + text[at:behind]), len(head.encode()))


def _read_valid(text: str, before: RegionOutlines, around: _AroundEdit) -> RegionOutlines | None:
    """Return the region if it has no syntax error, as before the edit. Return None if these members do not show that."""
    parsed = around.parsed
    root = parsed.tree.root_node
    body = _body(class_of(root))
    goes_on = parsed.data.rstrip().endswith(b"\\")
    if body is None or root.has_error or goes_on or parsed.stands_for:
        return None
    found = _members(body, parsed.data, around.start)
    if _column(body, found) != before.column:
        return None
    known = before.members or {}
    members = _read_members(parsed, found, before.outlines[-1].inside, known)
    between = (outline for _, outline in members)
    outlines = (*before.outlines[: around.first], *between, *before.outlines[around.last :])
    stays = set(map(id, outlines))
    kept = {key: outline for key, outline in (*known.items(), *members) if id(outline) in stays}
    return RegionOutlines(text, outlines, False, before.parsed, kept, before.column)


def _read_broken(before: RegionOutlines, around: _AroundEdit) -> tuple[Outline, ...]:
    """Return the outlines of a class whose syntax error hides it from the parser. The members around the edit stay as they were."""
    root = around.parsed.tree.root_node
    body = _body(class_of(root))
    walk = SyntaxWalk(around.parsed, around.start, None, before.outlines[-1].inside)
    between = walk.finish_member((body or root).children)
    return (*before.outlines[: around.first], between, *before.outlines[around.last :])
