"""Text of compilers, programs and files, without the control sequences that a terminal would obey."""

from __future__ import annotations

import re

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_SEQUENCE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?")
"""Colours and movements, and titles of windows (ECMA-48)."""


def visible(text: str) -> str:
    """Each control character but tab and line end as a replacement character."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def in_a_line(text: str) -> str:
    """As `visible`, line ends too: a name of somebody's file does not begin a line of ours."""
    return visible(text).replace("\n", "\N{REPLACEMENT CHARACTER}")


def plain(text: str) -> str:
    """Colours taken out, and control characters with them."""
    return _CONTROL.sub("", _SEQUENCE.sub("", text.replace("\r\n", "\n")))
