"""Code actions for compiler errors whose text has the remedy: an include, a name that is nearly right, a semicolon."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from typing import NamedTuple

from lsprotocol import types as lsp

from orbit_lsp.kernels import Span
from orbit_lsp.state.documents import Document
from orbit_lsp.state.session import Session
from orbit_lsp.views import positions
from orbit_lsp.views.compiler import problem_view
from orbit_remote.common.messages import Problem

_UNDEFINED = re.compile(r'identifier "(?P<name>\w+)" is undefined')
_NO_MEMBER = re.compile(r'(?P<of>namespace|class|struct) "(?P<scope>[^"]+)" has no member "(?P<name>\w+)"')
_NO_NAMESPACE = 'name followed by "::" must be a class or namespace name'
_SEMICOLON = 'expected a ";"'
_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include\b.*$", re.MULTILINE)
_PASSED = re.compile(
    r"""//[^\n]*|/\*.*?(?:\*/|\Z)|"[^"\\\n]*(?:\\.[^"\\\n]*)*"|'[^'\\\n]*(?:\\.[^'\\\n]*)*'""", re.DOTALL
)  # comments and literals
_NEAR = 0.78
"""Likeness of two names, 0 to 1, from which on one may be meant for the other."""

_HEADERS = {
    "cuda_fp16.h": r"half2?|__half\w*|__float2half\w*|__float22half\w*|__h(?:add|sub|mul|fma|div|max|min|neg|eq|gt|lt)2?",
    "cuda_bf16.h": r"__nv_bfloat16\w*|nv_bfloat16\w*|__(?:float|double)2bfloat16\w*|__bfloat16\w*",
    "cuda_fp8.h": r"__nv_fp8\w*",
    "curand_kernel.h": r"curand(?:State\w*|_\w+)",
    "cstdio": r"f?printf|puts|fopen|fclose|stderr|stdout|FILE",
    "cstdlib": r"malloc|free|exit|abort|rand|srand|atoi|EXIT_SUCCESS|EXIT_FAILURE",
    "cstring": r"mem(?:cpy|set|cmp|move)|str(?:len|cmp|ncmp|cpy)",
    "cstdint": r"u?int(?:8|16|32|64|ptr|max)_t|U?INT\d+_(?:MAX|MIN)",
    "cfloat": r"(?:FLT|DBL)_\w+",
    "climits": r"(?:INT|UINT|LONG|CHAR|SHRT|LLONG|ULLONG|ULONG)_(?:MAX|MIN)|CHAR_BIT",
    "cmath": r"INFINITY|NAN|M_PI",
    "cassert": r"assert",
}
"""By header: the names that only it declares; those of CUDA's own prelude need none."""
_NAMESPACES = {
    "cg": "cooperative_groups.h", "cooperative_groups": "cooperative_groups.h", "nvcuda": "mma.h", "wmma": "mma.h",
    "cub": "cub/cub.cuh",
}  # fmt: skip
_ALIASES = {"cg": "namespace cg = cooperative_groups;", "wmma": "using namespace nvcuda;"}
"""What else a short name needs."""
_STANDARD = {
    "vector": "vector", "string": "string", "to_string": "string", "array": "array", "map": "map", "set": "set",
    "unordered_map": "unordered_map", "tuple": "tuple", "optional": "optional", "function": "functional",
    "cout": "iostream", "cerr": "iostream", "endl": "iostream", "ifstream": "fstream", "ofstream": "fstream",
    "stringstream": "sstream", "setw": "iomanip", "setprecision": "iomanip", "sort": "algorithm", "max_element":
    "algorithm", "min_element": "algorithm", "fill": "algorithm", "generate": "algorithm", "accumulate": "numeric",
    "iota": "numeric", "inner_product": "numeric", "numeric_limits": "limits", "unique_ptr": "memory",
    "shared_ptr": "memory", "make_unique": "memory", "make_shared": "memory", "mt19937": "random",
    "random_device": "random", "normal_distribution": "random", "uniform_real_distribution": "random",
    "uniform_int_distribution": "random", "runtime_error": "stdexcept", "chrono": "chrono", "thread": "thread",
    "mutex": "mutex", "atomic": "atomic", "complex": "complex", "exchange": "utility", "is_same_v": "type_traits",
    "conditional_t": "type_traits", "enable_if_t": "type_traits", "bit_cast": "bit", "span": "span",
}  # fmt: skip
"""By member of `std`: its header."""
_CUDA_NAMES = (
    "threadIdx", "blockIdx", "blockDim", "gridDim", "warpSize", "__syncthreads", "__syncwarp", "__shfl_sync",
    "__shfl_down_sync", "__shfl_up_sync", "__shfl_xor_sync", "__ballot_sync", "__any_sync", "__all_sync", "__activemask",
    "__ldg", "__popc", "__clz", "__threadfence", "__threadfence_block", "atomicAdd", "atomicMax", "atomicMin", "atomicCAS",
    "atomicExch", "cudaMalloc", "cudaMallocManaged", "cudaMallocHost", "cudaFree", "cudaFreeHost", "cudaMemcpy",
    "cudaMemcpyAsync", "cudaMemset", "cudaMemcpyHostToDevice", "cudaMemcpyDeviceToHost", "cudaMemcpyDeviceToDevice",
    "cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaStreamCreate", "cudaStreamDestroy", "cudaEventCreate",
    "cudaEventRecord", "cudaEventSynchronize", "cudaEventElapsedTime", "cudaGetLastError", "cudaGetErrorString",
    "cudaError_t", "cudaSuccess", "cudaStream_t", "cudaEvent_t", "cudaSetDevice", "cudaGetDevice", "cudaFuncSetAttribute",
    "float", "double", "unsigned", "float2", "float4", "int2", "int4", "make_float2", "make_float4", "make_int4", "dim3",
    "fmaxf", "fminf", "expf", "logf", "sqrtf", "rsqrtf", "fabsf", "powf", "tanhf", "nullptr", "sizeof", "return",
)  # fmt: skip
"""What is in scope in every .cu file, as far as it is often misspelt."""


class Fix(NamedTuple):
    title: str
    span: Span
    text: str


def actions(session: Session, uri: str, first: int, last: int, *, versioned: bool) -> list[lsp.CodeAction]:
    """Return the actions for nvcc's errors on the lines `first` to `last` of the present text."""
    file = session.files.get(uri)
    if file is None:
        return []
    document = file.document
    by_place: dict[tuple[str, Span], lsp.CodeAction] = {}
    for problem, line in problem_view.present(session, uri):
        if not (first <= line <= last and problem.severity == "error" and problem.tool == "nvcc"):
            continue
        shown = problem_view.as_shown(session, document, line, problem)
        for fix in fixes(problem, line, document):
            edit = lsp.TextEdit(positions.of_span(session, document, fix.span), fix.text)
            by_place[fix.title, fix.span] = lsp.CodeAction(
                fix.title, kind=lsp.CodeActionKind.QuickFix, diagnostics=[shown],
                edit=positions.edit_of(document, [edit], versioned=versioned),
            )  # fmt: skip
    return list(by_place.values())


def fixes(problem: Problem, line: int, document: Document) -> Iterator[Fix]:
    """Yield what the text of an error at `line` (from 0) asks for, the preferred fix first."""
    place = problem.place
    if place is None or place.column is None or place.end_column is None:
        return
    token = Span(line, place.column - 1, line, place.end_column - 1)
    written = document.line(line)[token.column : token.end_column]
    if problem.message.startswith(_SEMICOLON):
        yield from _semicolon(token, document)
    elif problem.message == _NO_NAMESPACE:
        yield from _included(_NAMESPACES.get(written), document, _ALIASES.get(written, ""))
    elif member := _NO_MEMBER.match(problem.message):
        if member["scope"] == "std":
            yield from _included(_STANDARD.get(member["name"]), document)
    elif (undefined := _UNDEFINED.match(problem.message)) and written == undefined["name"]:
        yield from _included(_header_of(written), document)
        for name in _near(written, token, document):
            yield Fix(f"Change {written} to {name}", token, name)


def _header_of(name: str) -> str | None:
    return next((header for header, names in _HEADERS.items() if re.fullmatch(names, name)), None)


def _included(header: str | None, document: Document, also: str = "") -> Iterator[Fix]:
    """Yield the fix that inserts an include below the last `#include` at the top of the file, else above everything."""
    if header is None or re.search(rf"#[ \t]*include[ \t]*[<\"]{re.escape(header)}[>\"]", document.text):
        return
    text = document.text
    end = next((match.start() for match in re.finditer(r"[{]", text)), len(text))
    last = max((match.end() for match in _INCLUDE.finditer(text, 0, end)), default=None)
    line = 0 if last is None else text.count("\n", 0, last) + 1
    stop = "\r\n" if "\r\n" in text else "\n"
    words = f"#include <{header}>{stop}" + (also + stop if also and also not in text else "")
    missing = "" if line < len(document.lines) else stop  # the include is the last line, without an end
    yield Fix(f"Add #include <{header}>", Span(line, 0, line, 0), missing + words)


def _semicolon(token: Span, document: Document) -> Iterator[Fix]:
    """Yield the fix that inserts a semicolon behind the last token before the place. A line or a block must end
    between them: within a line an unknown type is the likelier mistake.
    """
    lines = [document.line(number).rstrip("\r\n") for number in range(token.line + 1)]
    lines[-1] = lines[-1][: token.column]
    plain = _plain("\n".join(lines)).split("\n")
    for number in range(token.line, -1, -1):
        if code := plain[number].rstrip():
            ends = number < token.line or document.line(token.line)[token.column] == "}"
            if ends and not code.endswith(("{", "}", ";", ",")) and not code.lstrip().startswith("#"):
                at = Span(number, len(code), number, len(code))
                yield Fix("Add the missing ;", at, ";")
            return


def _near(name: str, token: Span, document: Document) -> list[str]:
    """Return names in scope with a similar spelling, the nearest first. They are the file's own outside of functions,
    those of the surrounding function before the place, and CUDA's.
    """
    lines = [document.line(number) for number in range(len(document.lines))]
    text = _plain("".join(lines))
    at = sum(map(len, lines[: token.line])) + token.column
    depth = 0
    scope: set[str] = set(_CUDA_NAMES)
    of_function: list[str] = []
    for match in re.finditer(r"[{};]|[A-Za-z_]\w*", text):
        word = match[0]
        if word == "{":
            depth += 1
        elif word == "}":
            depth = max(0, depth - 1)
        elif depth == 0 and word != ";":
            scope.add(word)
        elif word != ";" and match.start() < at:
            of_function.append(word)
        if match.start() < at and word in ("}", ";") and depth == 0:
            of_function.clear()
    scope |= set(of_function)
    scope.discard(name)
    return difflib.get_close_matches(name, sorted(scope), n=2, cutoff=_NEAR)


def _plain(text: str) -> str:
    """Return the text without comments and literals, in the same length."""
    return _PASSED.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
