"""Reads diagnostics of the host compiler (GCC, Clang) and the host linker.

GCC runs twice. As preprocessor of the author's own text, its columns are right. As compiler of the C++ that the CUDA
front end wrote, only its lines are.
"""

from __future__ import annotations

import re

from orbit_remote.common.messages import Place, Problem
from orbit_remote.toolchain import carets
from orbit_remote.toolchain.diagnostic_context import DiagnosticContext

COMPILER = re.compile(
    r"^(?P<file>(?:[A-Za-z]:)?[^\s:][^:]*):(?P<line>\d{1,9})(?::(?P<column>\d{1,9}))?: "
    r"(?P<kind>fatal error|[Ee]rror|[Ww]arning|note|sorry, unimplemented): (?P<message>.*)$"
)
COMPILER_ITSELF = re.compile(
    r"^(?P<who>cc1plus|cc1|<command-line>|(?:[\w.-]*-)?(?:gcc|g\+\+|c\+\+|clang|clang\+\+)(?:-[\d.]+)?): "
    r"(?P<kind>fatal error|error|warning): (?P<message>.*)$"
)
INCLUDED = re.compile(r"^(?:In file included from|\s+from) (?P<file>.+?):(?P<line>\d{1,9})(?::\d+)?[,:]$")
EXCERPT = re.compile(r"^\s+\d* *\|")
LINKER = re.compile(
    r"^(?:\S*\b(?:ld(?:\.\w+)?|gold|mold): )?(?:error: )?(?:(?P<file>\S[^:]*):)?"
    r"(?:(?P<line>\d{1,9}):|\([^()]+\+0x[0-9a-f]+\):)? ?"
    r"(?P<message>(?:undefined reference to|multiple definition of|undefined symbol:|duplicate symbol:|cannot find)"
    r" .*)$"
)
LINKER_IN = re.compile(r"in function [`'](?P<function>.+)':$")
_ENDS = re.compile(r"^collect2: error: ", re.MULTILINE)
_NOT_FOUND = re.compile(r"undefined (?:reference to [`']|symbol: )(\w+)")
_LIBRARIES = (
    (re.compile(r"cublasLt[A-Z]\w*"), ("-lcublasLt",)),
    (re.compile(r"cublas[A-Z]\w*"), ("-lcublas",)),
    (re.compile(r"cufft[A-Z]\w*"), ("-lcufft",)),
    (re.compile(r"curand[A-Z]\w*"), ("-lcurand",)),
    (re.compile(r"cusparse[A-Z]\w*"), ("-lcusparse",)),
    (re.compile(r"cusolver[A-Z]\w*"), ("-lcusolver",)),
    (re.compile(r"cudnn[A-Z]\w*"), ("-lcudnn",)),
    (re.compile(r"nccl[A-Z]\w*"), ("-lnccl",)),
    (re.compile(r"nvrtc[A-Z]\w*"), ("-lnvrtc",)),
    (re.compile(r"nvml[A-Z]\w*"), ("-lnvidia-ml",)),
    (re.compile(r"cu[A-Z]\w*"), ("-lcuda",)),
    (re.compile(r"omp_\w+|GOMP_\w+"), ("-Xcompiler", "-fopenmp")),
)
"""Functions, as each library's own manual names them, and what links with the library."""
_OPTION = re.compile(r" \[(-W[\w=+-]+)\]$")
_QUOTED_NAME = re.compile(r"[`'‘]([A-Za-z_]\w*)(?:\(.*?\))?['’]")
_UNDEFINED = re.compile(r"(?:symbol: |[`'])([^`'\n]+?)'?(?:; .*)?$")


def compiler_message(match: re.Match[str]) -> tuple[str, str | None]:
    """Return (words, `-Wname`) of a message."""
    option = _OPTION.search(match["message"])
    return (match["message"][: option.start()], option[1]) if option else (match["message"], None)


def compiler_place(match: re.Match[str], context: DiagnosticContext) -> Place | None:
    place, column = context.place(match["file"], int(match["line"])), match["column"]
    source = context.text(place.file) if place else None
    if place is None or source is None:
        return place
    file, line = place.file, place.line
    text = source.line(line)
    if column and text.lstrip("\ufeff \t").startswith("#"):  # only the preprocessor speaks of directives
        at = carets.from_display(text, int(column))
        header = re.search(r'["<][^">]+[">]', text)
        if header and at == header.start() + 1:
            return Place(file, line, at, header.end() + 1)
        span = source.token_at(line, at) if at else None
        return Place(file, span.line, span.column, span.end_column) if span else Place(file, line)
    for name in _QUOTED_NAME.findall(match["message"]):
        if span := source.named(line, name):
            return Place(file, span.line, span.column, span.end_column)
    return Place(file, line)


def linker_problem(match: re.Match[str], context: DiagnosticContext, caller: str) -> Problem:
    """Return the problem of a linker's message. `caller` is the function that the linker names."""
    name = _UNDEFINED.search(match["message"])
    base = _bare(name[1]) if name else ""
    if match["line"] and match["file"]:
        place = context.named(context.place(match["file"], int(match["line"])), base)
    else:
        place = _first_use(base, context, _bare(caller)) if base and base != "main" else None
    return Problem("error", context.words(match["message"]), "ld", place)


def _first_use(name: str, context: DiagnosticContext, caller: str) -> Place | None:
    """Return the first use of the name in the function that uses it: an object file has no lines."""
    source = context.text(context.main)
    if source is None or not (uses := source.uses(name)):
        return None
    start = min((span.line for span in source.uses(caller)), default=1) if caller else 1
    span = next((span for span in uses if span.line >= start), uses[0])
    return Place(context.main, span.line, span.column, span.end_column)


def missing_libraries(output: str) -> tuple[str, ...]:
    """Return the flags of the libraries that have the functions which the linker did not find. Return none if one of
    them is in no library.
    """
    flags: dict[tuple[str, ...], None] = {}
    for name in dict.fromkeys(_NOT_FOUND.findall(output)):
        library = next((words for functions, words in _LIBRARIES if functions.fullmatch(name)), None)
        if library is None:
            return ()
        flags[library] = None
    return tuple(word for words in flags for word in words)


def without_linker(output: str) -> str:
    """Return the compilers' messages without those of the linker, which was called again."""
    lines = output.split("\n")
    return "\n".join(
        line for line in lines if not (LINKER.match(line) or LINKER_IN.search(line) or _ENDS.match(line))
    )


def _bare(function: str) -> str:
    return re.sub(r"[(<].*", "", function).rsplit("::", 1)[-1]
