"""Where a kernel's hint stands: on the line of its signature that leaves most room."""

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
_BODY = 3
"""Lines of the body that may carry the answer where an editor draws no lens."""
_CPP = ("cuda", "embedded")
_COMMENT = (re.compile(r"\s*(#|$)"), re.compile(r"\s*(//|/\*|$)"))
"""An empty line or one that begins a comment, in Python and in CUDA."""
_TOKEN = re.compile(r"""//|\#|/\*|\*/|"[^"\\]*+(?:\\.[^"\\]*+)*"?|'(?:\\.|[^'\\])'|[()\[\]{}:]""")


def line(document: Document, kernel: Kernel, *, has_lens: bool) -> int:
    """Of several lines of a signature the shortest, of equals the last. `has_lens`: the editor draws the answer above
    the kernel too; else a line around a signature that fills the window is taken.
    """
    end = signature_end(document, kernel)
    best = _shortest(document, range(kernel.line, end + 1))
    above = [*range(kernel.line - 1, kernel.whole.line - 1, -1)]
    over = kernel.whole.line - 1
    if over >= 0 and re.match(_COMMENT[kernel.dsl in _CPP], positions.shown(document, over)):
        above.append(over)  # the line over the kernel, where it is empty or a comment
    below = range(end + 1, min(end + _BODY, kernel.whole.end_line - 1) + 1)
    around = (
        []
        if has_lens
        else [*above, *(number for number in below if positions.shown(document, number).strip())]
    )
    fitting_lines = (
        number for number in (best, *around) if width(document, number) + 1 + fitting.HINT <= _WINDOW
    )
    return next(fitting_lines, _shortest(document, [best, *around]))


def width(document: Document, number: int) -> int:
    """Columns of a line as editors draw it, a tab up to the next multiple of 8."""
    return len(positions.shown(document, number).rstrip().expandtabs(8))


def signature_end(document: Document, kernel: Kernel) -> int:
    """The line of the `{`, or in Python of the `:`, that ends the signature; the kernel's own line where there is none."""
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
    return kernel.line


def _shortest(document: Document, lines: range | list[int]) -> int:
    return min(lines, key=lambda number: (width(document, number), -number))
