"""Cleans text of compilers, programs and files of the control sequences that a terminal would obey."""

from __future__ import annotations

import re

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_DIRECTION = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Characters that change the order in which others are shown."""
_SEQUENCE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?")
"""Colours and movements, and titles of windows (ECMA-48)."""


def visible(text: str) -> str:
    """Return a text with each control character except tab and line end as a replacement character. A character that
    changes the order of others becomes `<U+202E>`.
    """
    shown = _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)
    return shown if shown.isascii() else _DIRECTION.sub(lambda sign: f"<U+{ord(sign[0]):04X}>", shown)


def in_a_line(text: str) -> str:
    """Return a text as `visible` does, with line ends replaced too: a name of somebody's file does not begin a line
    of ours.
    """
    return visible(text).replace("\n", "\N{REPLACEMENT CHARACTER}")


def plain(text: str) -> str:
    """Remove colours and control characters."""
    return _CONTROL.sub("", _SEQUENCE.sub("", text.replace("\r\n", "\n")))
