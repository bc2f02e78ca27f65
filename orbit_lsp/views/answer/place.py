"""Decides where a kernel's hint stands: on the line of its signature that leaves most room, never on a line of
something else.
"""

from __future__ import annotations

import re

from orbit_lsp.kernels import Kernel
from orbit_lsp.state import fitting
from orbit_lsp.state.documents import Document
from orbit_lsp.views import positions

_WINDOW = 80
"""Columns that every window has. A hint that begins later than this allows is out of sight in a narrow one."""
_LONGEST = 200
"""Lines of a signature; a longer one is not read to its end."""
_CPP = ("cuda", "embedded")
_COMMENT = (re.compile(r"\s*(#|$)"), re.compile(r"\s*(//|/\*|$)"))
"""An empty line or one that begins a comment, in Python and in CUDA."""
_SPEC = re.compile(r"\s*(//|/\*|#)[\s/!*]*orbit\b", re.IGNORECASE)
_TOKEN = re.compile(r"""//|\#|/\*|\*/|"[^"\\]*+(?:\\.[^"\\]*+)*"?|'(?:\\.|[^'\\])'|[()\[\]{}:]""")


def line(document: Document, kernel: Kernel, *, has_room: bool) -> tuple[int, str]:
    """Return the line for a hint, and the beginning of its text.

    It is the shortest line of the signature, the last of equal ones. If no line has room, it is the line above the
    signature, and the hint names its kernel. In an editor that draws the answer above the kernel too, or no hint
    behind a line, any line will do (`has_room`). It is never a line of the body, which would seem to cost that much,
    nor of a launch spec, which would seem to have failed.
    """
    best = _shortest(document, range(kernel.line, signature_end(document, kernel) + 1))
    name = f"{kernel.name}: "
    if has_room or _fits(document, best, ""):
        return best, ""
    above = (
        number
        for number in range(kernel.line - 1, kernel.whole.line - 1, -1)
        if not _is_spec(document, number) and _fits(document, number, name)
    )
    over = kernel.whole.line - 1
    while over >= 0 and _is_spec(document, over):
        over -= 1
    if (number := next(above, None)) is not None:
        return number, name
    comment = _COMMENT[kernel.dsl in _CPP]
    if over >= 0 and comment.match(positions.shown(document, over)) and _fits(document, over, name):
        return over, name  # the line over the kernel and its launch spec, where it is empty or a comment
    return best, ""


def _is_spec(document: Document, number: int) -> bool:
    return bool(_SPEC.match(positions.shown(document, number)))


def _fits(document: Document, number: int, name: str) -> bool:
    return width(document, number) + 1 + len(name) + fitting.HINT <= _WINDOW


def width(document: Document, number: int) -> int:
    """Return the columns of a line as editors draw it: a tab goes up to the next multiple of 8."""
    return len(positions.shown(document, number).rstrip().expandtabs(8))


def signature_end(document: Document, kernel: Kernel) -> int:
    """Return the line that ends the signature: that of the `{`, in Python of the `:`, or of the `)` of a macro that
    has all of it. Return the kernel's own line if there is none.
    """
    first, cuda = kernel.name_span.line, kernel.dsl in _CPP
    depth, comment = 0, False
    for number in range(first, min(first + _LONGEST, kernel.whole.end_line + 1)):
        text = positions.shown(document, number)
        for token in _TOKEN.finditer(text, kernel.name_span.end_column if number == first else 0):
            word = token[0]
            if comment:
                comment = word != "*/"
            elif word == ("//" if cuda else "#"):
                break
            elif word == "/*" and cuda:
                comment = True
            elif depth == 0 and word == ("{" if cuda else ":"):
                return number
            elif word in "([{":
                depth += 1
            elif word in ")]}":
                depth -= 1
                if depth < 0:  # of a macro whose call has the whole signature
                    return number
    return kernel.line


def _shortest(document: Document, lines: range) -> int:
    return min(lines, key=lambda number: (width(document, number), -number))
