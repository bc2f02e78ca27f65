"""A document after edits is the text a client would have, in every position encoding."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbit_lsp.state import documents
from orbit_lsp.state.documents import Document, TextChange, from_client, split_lines, to_client

ENCODINGS = ("utf-8", "utf-16", "utf-32")
TEXTS = st.text(alphabet="ab \r\n\té𝄞\x0c\u2028\x00", max_size=40)


def units(text: str, encoding: str) -> int:
    if encoding == "utf-32":
        return len(text)
    return len(text.encode("utf-16-le")) // 2 if encoding == "utf-16" else len(text.encode())


def position(text: str, offset: int, encoding: str) -> tuple[int, int]:
    """A client's line and character of an offset, found the slow way."""
    lines = split_lines(text)
    for number, line in enumerate(lines):
        if offset < len(line) or number == len(lines) - 1:
            return number, units(line[:offset], encoding)
        offset -= len(line)
    raise AssertionError


@given(
    TEXTS,
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40), TEXTS), max_size=6),
    st.sampled_from(ENCODINGS),
)
def test_incremental_edits_give_the_clients_text(text: str, edits: list, encoding: str) -> None:
    document, at_once = (Document("file:///a.cu", "/a.cu", 0, text) for _ in range(2))
    changes: list[TextChange] = []
    for number, (item, other, new) in enumerate(edits, 1):
        start, end = sorted((min(item, len(text)), min(other, len(text))))
        # an edit never splits a \r\n: no client has a position inside it
        start -= text[start - 1 : start + 1] == "\r\n"
        end += text[end - 1 : end + 1] == "\r\n"
        change = TextChange(position(text, start, encoding), position(text, end, encoding), new)
        document.apply(number, [change], encoding)
        text = text[:start] + new + text[end:]
        assert document.text == text
        assert document.lines == split_lines(text)
        changes.append(change)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(documents, "_MANY", 0)
        at_once.apply(1, changes, encoding)
    assert (at_once.text, at_once.lines) == (text, split_lines(text))


def test_many_changes_of_one_message_make_the_text_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As *Replace All* of an editor sends them: each of them would copy megabytes."""
    offsets: list[int] = []
    offset = Document._offset  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(Document, "_offset", lambda *args: offsets.append(1) or offset(*args))
    document = Document("file:///a.cu", "/a.cu", 0, "int a;\n" * 100)
    document.apply(1, [TextChange((line, 4), (line, 5), "b") for line in reversed(range(100))], "utf-16")
    assert (document.text, offsets) == ("int b;\n" * 100, [])


@given(TEXTS, st.integers(1, 4))
def test_lines_are_the_same_in_pieces(text: str, size: int) -> None:
    expected = re.split(r"(?<=\n)|(?<=\r)(?!\n)", text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(documents, "_AT_ONCE", size)
        assert split_lines(text) == expected


def test_lines_made_beside_an_edit_are_of_the_edited_text() -> None:
    document = Document("file:///a.cu", "/a.cu", 1, "a\nb")
    document.split()
    assert document.is_split
    document.apply(2, [TextChange(None, None, "c\nd\n")], "utf-16")
    assert not document.is_split
    assert document.lines == ["c\n", "d\n", ""]


def test_lines_end_where_the_protocol_says() -> None:
    rare = "a\vb\fc\x1cd\x85e\u2028f"
    assert split_lines(f"{rare}\n{rare}\r\n{rare}\r") == [f"{rare}\n", f"{rare}\r\n", f"{rare}\r", ""]
    assert split_lines("a\nb\r\nc\rd") == ["a\n", "b\r\n", "c\r", "d"]
    assert split_lines("") == [""]


@pytest.mark.parametrize(("encoding", "units"), [("utf-8", 3), ("utf-16", 2)])
def test_a_place_within_a_character_is_behind_it(encoding: str, units: int) -> None:
    assert from_client("a😀b", units, encoding) == 2


@given(TEXTS, st.integers(0, 40), st.sampled_from(ENCODINGS), st.sampled_from((1, 3, 1 << 16)))
def test_columns_there_and_back(text: str, column: int, encoding: str, size: int) -> None:
    line = split_lines(text)[0]
    body = line.rstrip("\r\n")
    column = min(column, len(body))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(documents, "_AT_ONCE", size)
        assert from_client(line, to_client(line, column, encoding), encoding) == column


@pytest.mark.parametrize(
    ("edit", "was", "now"),
    [
        (((0, 0), (0, 0), "new\n"), 2, 3),  # a line before it
        (((3, 0), (3, 0), "new\n"), 2, 2),  # a line after it
        (((2, 1), (2, 1), "x"), 2, None),  # in it
        (((0, 0), (2, 0), ""), 3, 1),  # lines before it go
        (((1, 0), (3, 0), ""), 2, None),  # it goes
    ],
)
def test_where_a_line_stands_after_an_edit(edit: tuple, was: int, now: int | None) -> None:
    document = Document("file:///a.cu", "/a.cu", 1, "0\n1\n2\n3\n4\n")
    document.apply(2, [TextChange(*edit)], "utf-16")
    assert document.line_since(1, was) == now
    assert document.line_since(2, was) == was


def test_a_whole_new_text_forgets_every_line() -> None:
    document = Document("file:///a.cu", "/a.cu", 1, "0\n1\n")
    document.apply(2, [TextChange(None, None, "0\n1\n")], "utf-16")
    assert document.line_since(1, 0) is None


def test_positions_beyond_the_text_are_clamped() -> None:
    document = Document("file:///a.cu", "/a.cu", 1, "one")
    document.apply(2, [TextChange((9, 9), (99, 99), "!")], "utf-16")
    assert document.text == "one!"
