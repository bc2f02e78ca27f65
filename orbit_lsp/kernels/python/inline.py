"""Finds CUDA C++ in string literals of a Python file: what `load_inline` and CuPy compile, as far as the text says
it.

Nothing is run. If the text does not say a call's source or headers, the call is left to the program.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import PurePath

from orbit_remote.common import limits
from orbit_remote.common.lazy_dataclass import dataclass

_TORCH = "#include <torch/types.h>\n#include <cuda.h>\n#include <cuda_runtime.h>\n"
"""What torch.utils.cpp_extension.load_inline writes before `cuda_sources`."""
_OF_CUPY = frozenset(("RawKernel", "RawModule"))
_DECLARES = re.compile(r"\b(?:__device__|struct|class|enum|template|typedef|using|constexpr|define|static)\b")
"""Words of declarations that two sources, each compiled by itself, may both have."""


@dataclass(frozen=True, slots=True)
class Inline:
    """CUDA C++ of a Python file. `text` has `#line` directives, so that errors and figures refer to the Python file's
    lines. `path` leads to that file in another spelling, because this text is in no file.
    """

    path: str
    text: str
    flags: tuple[str, ...] = ()


def may_have(text: str) -> bool:
    return "__global__" in text and any(word in text for word in ("load_inline", *_OF_CUPY))


@lru_cache(maxsize=8)
def of(text: str, path: str) -> Inline | None:
    """Return the CUDA C++ of a file. Return None if the text says no source, or not all of several."""
    if not may_have(text) or len(text) > limits.OUTLINED.most:
        return None
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    known = _constants(tree)
    parts: list[str] = []
    flags: dict[str, None] = {}
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        name = _name(call.func)
        if name != "load_inline" and name not in _OF_CUPY:
            continue
        given = {keyword.arg: keyword.value for keyword in call.keywords}
        if name == "load_inline":
            node = given.get("cuda_sources") or next(iter(call.args[2:3]), None)
            if node is None:
                continue
            own = list(_flags(given, known))
        else:
            node = given.get("code") or next(iter(call.args[:1]), None)
            own = [
                flag
                for flag in _texts(given.get("options"), known)
                if flag.startswith(("-D", "-std", "--std"))
            ]
        texts = [_placed(literal, path) for literal in _literals(node, known)]
        if not texts or None in texts:
            return None
        headers = name == "load_inline" and not _is_true(given.get("no_implicit_headers"))
        if headers and not any("torch/types.h" in part for part in parts):
            # an error of these headers is of the call
            of_call = _line(call.lineno, path)
            parts.insert(0, "".join(f"{of_call}{include}" for include in _TORCH.splitlines(keepends=True)))
        parts += [part for part in texts if part is not None and part not in parts]
        flags |= dict.fromkeys(own)
    sources = [part for part in parts if "__global__" in part]
    if not sources or (len(sources) > 1 and sum(bool(_DECLARES.search(part)) for part in parts) > 1):
        return None
    folder, name = PurePath(path).parent, PurePath(path).name
    return Inline(str(folder / ".." / folder.name / name), "\n".join(parts), tuple(flags))


def _constants(tree: ast.Module) -> dict[str, ast.expr]:
    """Return the names that are assigned once in the file, with their values."""
    values: dict[str, ast.expr] = {}
    twice: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                if name in values:
                    twice.add(name)
                values[name] = value
            case ast.AugAssign(target=ast.Name(id=name)) | ast.arg(arg=name):
                twice.add(name)
            case _:
                pass
    return {name: value for name, value in values.items() if name not in twice}


def _name(function: ast.expr) -> str:
    match function:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
        case _:
            return ""


def _literals(
    node: ast.expr | None, known: dict[str, ast.expr], depth: int = 0
) -> Iterator[ast.Constant | None]:
    """Yield the string literals of a source or a list of them, and None for what is not a literal."""
    match node:
        case ast.Constant(value=str()):
            yield node
        case ast.List() | ast.Tuple() if depth < 4:
            for item in node.elts:
                yield from _literals(item, known, depth + 1)
        case ast.Name(id=name) if depth < 4:
            yield from _literals(known.get(name), known, depth + 1)
        case _:
            yield None


def _placed(literal: ast.Constant | None, path: str) -> str | None:
    """Return a literal's text behind a directive for the line where it begins. Return None if its lines are not lines
    of the file.
    """
    if literal is None or literal.end_lineno is None:
        return None
    text = str(literal.value)
    # a backslash behind the quotes leaves out the first line end
    hidden = literal.end_lineno - literal.lineno - text.count("\n")
    if hidden not in (0, 1):
        return None
    return f"{_line(literal.lineno + hidden, path)}{text}"


def _line(number: int, path: str) -> str:
    name = path.replace("\\", "\\\\").replace('"', '\\"')
    return f'#line {number} "{name}"\n'


def _texts(node: ast.expr | None, known: dict[str, ast.expr]) -> Sequence[str]:
    return [str(each.value) for each in _literals(node, known) if each] if node else ()


def _flags(given: dict[str | None, ast.expr], known: dict[str, ast.expr]) -> Iterator[str]:
    for name in _texts(given.get("name"), known):
        if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
            yield f"-DTORCH_EXTENSION_NAME={name}"
    yield from _texts(given.get("extra_cuda_cflags"), known)
    yield from (f"-I{folder}" for folder in _texts(given.get("extra_include_paths"), known))


def _is_true(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is True
