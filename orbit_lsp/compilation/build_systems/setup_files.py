"""Reads what Python files say of torch's extensions, and of sources that CuPy and PyCUDA compile: a setup.py, calls
of `load`, `RawModule` and others. Nothing of them is run.
"""

from __future__ import annotations

import ast
import contextlib
import os
import re
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from orbit_lsp.compilation import command_line
from orbit_lsp.compilation.build_systems.reading import BuildFile, BuildSystem, Folder, Reading
from orbit_lsp.compilation.folders import folders_above
from orbit_remote.common import regular_files
from orbit_remote.common.limits import BUILD_FILE, OUTLINED

_EXTENSIONS = {
    "CUDAExtension",
    "CppExtension",
    "Extension",
    "BuildExtension",
    "Pybind11Extension",
    "load",
    "load_inline",
}
_CERTAIN = re.compile(r"cuda|gpu|__name__", re.IGNORECASE)
"""Conditions under which a setup.py builds extensions of CUDA."""
_AMD = re.compile(r"(?<![a-z])(?:hip|rocm)(?![a-z])", re.IGNORECASE)
_TARGET = re.compile(r"(?:code=|arch=|architecture=)\[?(?:[\w,]{0,100},)?sm_(\d{1,3}[af]?)(?!\d)")
_TAKEN = re.compile(r"-[DU]\w.*|--?std|--?use_fast_math|--?expt-[\w-]+|--?extended-lambda|--?rdc", re.DOTALL)
_OF_FIGURES = re.compile(
    r"--?use_fast_math|--?maxrregcount|--?ftz|--?fmad|--?prec-(?:div|sqrt)|-Xptxas|--?extra-device-vectorization|--?restrict"
)
"""Flags that decide about figures and not about what compiles: one in doubt is left out."""
_ELSEWHERE = re.compile(
    r"(?:platform|system\(\)|os\.name)\b.*(?:win32|darwin|'nt'|Windows|Darwin)|IS_WINDOWS|IS_MACOS",
    re.IGNORECASE,
)
"""Conditions of other systems."""
_LONGEST_SHOWN = 80
_MOST_UNREAD = 4
_OF_EXTENSIONS = re.compile(r"cpp_extension|CUDAExtension|\.cu\b|nvcc", re.IGNORECASE)
_LOADS = {"load", "load_inline"}
_LOAD = re.compile(r"\bload(?:_inline)?\s{0,20}\(")
_RUNTIME = {"RawModule", "RawKernel", "SourceModule"}
"""What compiles the text of a source when a program runs: CuPy by NVRTC, PyCUDA by nvcc."""
_SOURCES = ("sources", "cuda_sources", "cpp_sources")
_MOST = 400
"""Values that one list may come to."""
_MOST_SCRIPTS = 64
"""Python files of one folder that are looked at for calls of `load`."""
_MOST_PARTS = 20_000
"""Expressions of a file that are looked at for them: a few lines can repeat one without end."""
_LONGEST = 4096
"""Characters of a path or a flag."""


def read(file: str, text: str, path: str) -> Reading:
    """Read the `include_dirs`, `define_macros` and nvcc's `extra_compile_args` of the extensions of a setup.py. If
    the sources of one name the file, only that one counts. Expressions that cannot be read without running the file
    are skipped.
    """
    values, calls = _calls(file, text, _EXTENSIONS)
    own = [call for call in calls if _has_source(call, path, values)]
    return _setup(file, calls, own, values)


def _setup(file: str, calls: list[ast.Call], own: list[ast.Call], values: _SetupNames) -> Reading:
    folders: list[Folder] = []
    flags: dict[str, None] = {}
    targets: dict[str, None] = {}
    left_out: dict[str, None] = {}
    for call in own or calls:
        values.doubtful -= {
            id(node) for node in ast.walk(call)
        }  # of a call that is made, its words are certain
        for keyword in ("include_dirs", "extra_include_paths"):
            node = _keyword(call, keyword)
            for text_of in values.texts(node):
                place = os.path.normpath(os.path.join(os.path.dirname(file), text_of))
                if os.path.isdir(place) and node is not None:
                    folders.append(Folder(place, file, node.lineno))
        for keyword in ("extra_compile_args", "extra_cuda_cflags"):
            node = _keyword(call, keyword)
            added = ast.Name(f"{node.id}[nvcc]") if isinstance(node, ast.Name) else None
            by_compiler = values.meaning(node)
            listed = _nvcc_part(by_compiler) if isinstance(by_compiler, ast.Dict | ast.Call) else node
            values.unread.clear()
            words = [*values.texts(listed), *values.texts(added)]
            left_out |= dict.fromkeys(f"{keyword}: {each}" for each in values.unread)
            chosen = [word for word in words if values.is_doubtful(word) and values.is_of_environment(word)]
            left_out |= dict.fromkeys(
                word for word in chosen if _TAKEN.match(word) or _OF_FIGURES.match(word)
            )
            words = [word for word in words if word not in chosen]
            for flag in words:
                targets |= dict.fromkeys(_TARGET.findall(flag))
            command = command_line.parse(["nvcc", *words], os.path.dirname(file), file)
            left_out |= dict.fromkeys(command.left_out)
            for flag in command.flags:
                word = flag.partition("=")[0]
                if flag.startswith("-I") and node is not None and os.path.isdir(flag[2:]):
                    folders.append(Folder(flag[2:], file, node.lineno))
                elif _OF_FIGURES.fullmatch(word) and all(map(values.is_doubtful, _spelled(flag, words))):
                    left_out[flag] = None
                elif _TAKEN.fullmatch(word) or _OF_FIGURES.fullmatch(word):
                    flags[flag] = None
        if (
            own or len(calls) == 1
        ):  # the sources of the only extension may be a pattern, as `glob("csrc/*.cu")`
            for macro in values.pairs(_keyword(call, "define_macros")):
                flags[macro] = None
    if any("CUDAExtension" in values.functions(call.func) for call in calls):
        flags["--expt-relaxed-constexpr"] = None  # torch's builder adds it
    name = _name_of_one(own or calls, values)
    return Reading(
        tuple(flags), tuple(left_out), tuple(folders), tuple(targets), is_source=bool(own), extension=name
    )


def _spelled(flag: str, words: Sequence[str]) -> list[str]:
    """Return the words from which this flag was written: `--maxrregcount=64`, or `-Xptxas`."""
    option = flag.partition("=")[0]
    return [word for word in words if word == flag or word.partition("=")[0] == option]


def loaded(path: str, root: str) -> tuple[Reading, str]:
    """Return what a call of torch's `load` or `load_inline` gives the extension of a source file, and the Python file
    with the call, "" for none. It is looked for beside the source and in the folders above it, up to the root. Reads
    files.
    """
    name = os.path.basename(path)
    for folder in folders_above(path, root):
        for file in islice(sorted(folder.glob("*.py")), _MOST_SCRIPTS):
            with contextlib.suppress(OSError, ValueError):
                text = regular_files.text(file, BUILD_FILE)
                if name not in text or not _LOAD.search(text):
                    continue
                values, calls = _calls(str(file), text, _LOADS)
                calls = [call for call in calls if len(call.args) > 1 or _sources(call)]
                own = [call for call in calls if _has_source(call, path, values)]
                setup = _setup(str(file), calls, own, values)
                if own or setup.extension:
                    return setup, str(file)
    return Reading(), ""


def of_runtime(file: str, text: str) -> Reading | None:
    """Return what CuPy or PyCUDA give the compiler for the sources that a Python file reads. Return None if its calls
    differ, or there are none.
    """
    values, calls = _calls(file, text, _RUNTIME)
    options = {_unparsed(node) if (node := _keyword(call, "options")) else "" for call in calls}
    if len(options) != 1:
        return None
    words = values.texts(_keyword(calls[0], "options"))
    command = command_line.parse(["nvcc", *words], os.path.dirname(file), file)
    unread = [f"options: {each}" for each in values.unread]
    return Reading(flags=command.flags, left_out=(*unread, *command.left_out))


def _calls(file: str, text: str, functions: set[str]) -> tuple[_SetupNames, list[ast.Call]]:
    """Return the calls of these functions in a file, and what its names stand for."""
    values = _SetupNames(file)
    if len(text) > OUTLINED.most:
        return values, []
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return values, []
    values.doubtful = _doubtful(tree)
    values.never, values.environment = _not_taken(tree)
    nodes = list(_for_nvidia(tree))
    for node in nodes:
        values.learn(node)
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    return values, [call for call in calls if values.functions(call.func) & functions]


def _sources(call: ast.Call) -> list[ast.expr]:
    named = [keyword.value for keyword in call.keywords if keyword.arg in _SOURCES]
    return named or call.args[1:2]


def _has_source(call: ast.Call, path: str, values: _SetupNames) -> bool:
    name = os.path.basename(path)
    texts = (text for node in _sources(call) for text in values.texts(node))
    return any(os.path.basename(text) == name for text in texts)


def _name_of_one(calls: list[ast.Call], values: _SetupNames) -> str:
    """Return the last part of an extension's name, as torch's builder gives it to the compiler. Return "" if calls
    differ, or their text does not say it.
    """
    names: set[str] = set()
    for call in calls:
        node = next((keyword.value for keyword in call.keywords if keyword.arg == "name"), None)
        text = values.text(node or next(iter(call.args), None)) or ""
        names.add(text.rpartition(".")[2])
    name = names.pop() if len(names) == 1 else ""
    return name if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) else ""


def _for_nvidia(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield nodes like ast.walk, without the branches that a setup.py takes if torch is built for AMD."""
    waiting = deque([tree])
    while waiting:
        node = waiting.popleft()
        yield node
        if isinstance(node, ast.If) and _asks_for_amd(node.test):
            waiting.extend(node.orelse)
        elif (
            isinstance(node, ast.If)
            and isinstance(node.test, ast.UnaryOp)
            and _asks_for_amd(node.test.operand)
        ):
            waiting.extend(node.body)
        else:
            waiting.extend(ast.iter_child_nodes(node))


def _doubtful(tree: ast.AST) -> set[int]:
    """Return the ids of expressions in branches that the build may not take: those of other platforms, and those that
    a variable of the environment chooses.
    """
    ids: set[int] = set()
    waiting: list[tuple[ast.AST, bool]] = [(tree, False)]
    while waiting:
        node, doubtful = waiting.pop()
        if doubtful and isinstance(node, ast.expr):
            ids.add(id(node))
        if isinstance(node, ast.If) and not doubtful:
            test = _unparsed(node.test)
            doubtful = not _CERTAIN.search(test) and not _AMD.search(test)
            waiting.append((node.test, False))
            waiting += [(statement, doubtful) for statement in (*node.body, *node.orelse)]
        else:
            waiting += [(child, doubtful) for child in ast.iter_child_nodes(node)]
    return ids


def _not_taken(tree: ast.AST) -> tuple[set[int], set[int]]:
    """Return the ids of expressions in branches of other systems than this one, and in those that the environment
    chooses.
    """
    never: set[int] = set()
    environment: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If):
            test = _unparsed(node.test)
            inside = {
                id(each)
                for statement in node.body
                for each in ast.walk(statement)
                if isinstance(each, ast.expr)
            }
            if _ELSEWHERE.search(test) and " or " not in test and "not " not in test and "!=" not in test:
                never |= inside
            elif "environ" in test or "getenv" in test:
                environment |= inside
    return never, environment


def _unparsed(node: ast.expr) -> str:
    """Return the text of a node. Return "" if it is nested too deeply, or has a number of thousands of digits."""
    try:
        return ast.unparse(node)
    except (RecursionError, ValueError):
        return ""


def _asks_for_amd(test: ast.expr) -> bool:
    match test:
        case ast.BoolOp(op=ast.And()):
            return any(map(_asks_for_amd, test.values))
        case ast.BoolOp():
            return all(map(_asks_for_amd, test.values))
        case ast.UnaryOp(op=ast.Not()) | ast.Compare(ops=[ast.Is() | ast.NotEq() | ast.NotIn()]):
            return False
        case _:
            return bool(_AMD.search(_unparsed(test)))


def _called(call: ast.Call) -> str:
    return _function(call.func)


def _function(function: ast.expr) -> str:
    match function:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
        case _:
            return ""


def _keyword(call: ast.Call, name: str) -> ast.expr | None:
    return next((keyword.value for keyword in call.keywords if keyword.arg == name), None)


def _nvcc_part(node: ast.Dict | ast.Call) -> ast.expr | None:
    """Return the value of `"nvcc"` in a dict of flags by compiler, such as `{…}` or `dict(…)`. Any other call is
    returned itself.
    """
    if isinstance(node, ast.Call):
        return _keyword(node, "nvcc") if _called(node) == "dict" else node
    for key, value in zip(node.keys, node.values, strict=True):
        if isinstance(key, ast.Constant) and key.value == "nvcc":
            return value
    return None


def _assigned(target: ast.expr) -> str:
    """Return `flags`, or `flags[nvcc]` for `flags["nvcc"]`."""
    match target:
        case ast.Name(id=name):
            return name
        case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value="nvcc")):
            return f"{name}[nvcc]"
        case _:
            return ""


class _SetupNames:
    """What names of a file stand for, as far as its text says without being run."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.names: dict[str, list[ast.expr]] = {}
        self.doubtful: set[int] = set()
        self.certain_texts: set[str] = set()
        self.never: set[int] = set()
        """The ids of expressions in branches that a build on this system does not take."""
        self.environment: set[int] = set()
        """Those in branches that a variable of the environment chooses."""
        self.of_environment: set[str] = set()
        self.unread: dict[str, None] = {}
        """Parts of lists that are not known without running the file."""
        self.left = _MOST
        self.parts = _MOST_PARTS

    def learn(self, node: ast.AST) -> None:
        """Learn an assignment, `name += …`, `name.append(…)` or `name.extend(…)`."""
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if name := _assigned(target):
                    self.names.setdefault(name, []).append(node.value)
        elif isinstance(node, ast.AugAssign) and (name := _assigned(node.target)):
            self.names.setdefault(name, []).append(node.value)
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and (name := _assigned(node.func.value))
            and node.func.attr in ("append", "extend", "insert")
            and node.args
        ):
            self.names.setdefault(name, []).append(node.args[-1])

    def is_doubtful(self, text: str) -> bool:
        """Say whether every list that was asked for has the text only under an unknown condition."""
        return text not in self.certain_texts

    def is_of_environment(self, text: str) -> bool:
        """Say whether a variable of the environment decides about the text. A plain build has not set it."""
        return text in self.of_environment

    def functions(self, node: ast.expr) -> set[str]:
        """Return the names of the functions that a call may mean: `extension = CUDAExtension` gives one another name."""
        name = _function(node)
        return {name, *map(_function, self.names.get(name, ()))}

    def meaning(self, node: ast.expr | None) -> ast.expr | None:
        """Return the last expression that a name stands for."""
        for _ in range(8):
            if not isinstance(node, ast.Name) or not self.names.get(node.id):
                break
            node = self.names[node.id][-1]
        return node

    def texts(self, node: ast.expr | None, depth: int = 0) -> list[str]:
        """Return every text in a list, however it is put together."""
        if node is None or depth > 12 or self.left <= 0:
            return []
        self.left -= 1
        match node:
            case ast.List() | ast.Tuple() | ast.Set():
                return [text for item in node.elts for text in self.texts(item, depth + 1)]
            case ast.Starred():
                return self.texts(node.value, depth + 1)
            case ast.BinOp(op=ast.Add()):
                if (whole := self.text(node, depth + 1)) is not None:
                    return [whole]
                if isinstance(node.left, ast.Constant) or isinstance(node.right, ast.Constant):
                    self._not_read(node)  # a part of the text is not known
                    return []
                return self.texts(node.left, depth + 1) + self.texts(node.right, depth + 1)
            case ast.IfExp():
                both = (*ast.walk(node.body), *ast.walk(node.orelse))
                self.doubtful.update(id(each) for each in both if isinstance(each, ast.expr))
                return self.texts(node.body, depth + 1) + self.texts(node.orelse, depth + 1)
            case ast.Name():
                return [
                    text for value in self.names.get(node.id, ()) for text in self.texts(value, depth + 1)
                ]
            case ast.Dict():  # of flags by compiler, which an earlier list has the name of
                return []
            case ast.ListComp():
                return self.texts(node.generators[0].iter, depth + 1)
            case ast.Call(func=ast.Name()) if (
                self.text(node, depth + 1) is None
            ):  # with_threads(flags), sorted(sources)
                return [text for item in node.args for text in self.texts(item, depth + 1)]
            case _:
                if id(node) in self.never:
                    return []
                text = self.text(node, depth + 1)
                if text is None:
                    self._not_read(node)
                    return []
                if id(node) not in self.doubtful:
                    self.certain_texts.add(text)
                if id(node) in self.environment:
                    self.of_environment.add(text)
                return [text]

    def _not_read(self, node: ast.expr) -> None:
        shown = _unparsed(node)[:_LONGEST_SHOWN]
        if len(self.unread) < _MOST_UNREAD and shown not in ("None", "[]", "()"):
            self.unread[shown] = None

    def text(self, node: ast.expr | None, depth: int = 0) -> str | None:
        """Return one text. Paths are joined as by `os.path` and `pathlib`."""
        self.parts -= 1
        if node is None or depth > 12 or self.parts < 0:
            return None
        match node:
            case ast.Constant(value=str() as text):
                return text
            case ast.Name(id="__file__"):
                return self.file
            case ast.Name():
                values = self.names.get(node.id, ())
                return self.text(values[0], depth + 1) if values else None
            case ast.JoinedStr():
                return self._joined([self._part(part, depth) for part in node.values], "")
            case ast.BinOp(op=ast.Add() | ast.Div()):
                sides = [self.text(node.left, depth + 1), self.text(node.right, depth + 1)]
                return self._joined(sides, "" if isinstance(node.op, ast.Add) else "/")
            case ast.Attribute(attr="parent"):
                inner = self.text(node.value, depth + 1)
                return os.path.dirname(inner) if inner is not None else None
            case ast.Call():
                return self._call(node, depth)
            case _:
                return None

    def _part(self, part: ast.expr, depth: int) -> str | None:
        return self.text(part.value if isinstance(part, ast.FormattedValue) else part, depth + 1)

    def _call(self, node: ast.Call, depth: int) -> str | None:
        name = _called(node)
        if name == "format" and isinstance(node.func, ast.Attribute):
            return self._formatted(node, depth)
        arguments = [self.text(each, depth + 1) for each in node.args]
        if name == "join" and arguments:
            return self._joined(arguments, "/")
        if name in ("getcwd", "cwd"):
            return os.path.dirname(self.file)
        if name == "dirname" and arguments and arguments[0] is not None:
            return os.path.dirname(arguments[0]) or os.path.dirname(self.file)
        if name in ("abspath", "realpath", "normpath", "Path", "str", "fspath") and len(arguments) == 1:
            return arguments[0]
        if name in ("resolve", "absolute", "as_posix", "expanduser") and isinstance(node.func, ast.Attribute):
            return self.text(node.func.value, depth + 1)
        return None

    def _formatted(self, node: ast.Call, depth: int) -> str | None:
        """Return the text of `"{}/include".format(root)`, if each place is a plain `{}`."""
        template = self.text(node.func.value, depth + 1) if isinstance(node.func, ast.Attribute) else None
        pieces = template.split("{}") if template is not None else []
        if len(pieces) != len(node.args) + 1 or node.keywords or any("{" in piece for piece in pieces):
            return None
        filled = [
            part
            for pair in zip(pieces, node.args, strict=False)
            for part in (pair[0], self.text(pair[1], depth + 1))
        ]
        return self._joined([*filled, pieces[-1]], "")

    def _joined(self, parts: Sequence[str | None], by: str) -> str | None:
        known = [part for part in parts if part is not None]
        if len(known) != len(parts) or sum(map(len, known)) > _LONGEST:
            return None
        return by.join(known)

    def pairs(self, node: ast.expr | None, depth: int = 0) -> list[str]:
        """Return `define_macros=[("NAME", None), ("N", "4")]` as flags, however the list is put together."""
        if depth > 12 or self.left <= 0:
            return []
        self.left -= 1
        match node:
            case ast.Name():
                parts = self.names.get(node.id, [])
            case ast.BinOp(op=ast.Add()):
                parts = [node.left, node.right]
            case ast.List():
                parts = node.elts
            case ast.Tuple(elts=[first, *more]) if (name := self.text(first)) and len(more) < 2:
                value: Any = more[0].value if more and isinstance(more[0], ast.Constant) else None
                return [f"-D{name}" if value is None else f"-D{name}={value}"]
            case ast.Tuple():
                parts = node.elts
            case _:
                parts = []
        return [
            flag for part in parts if id(part) not in self.doubtful for flag in self.pairs(part, depth + 1)
        ]


def _of_file(file: BuildFile) -> Reading:
    reading = read(file.path, file.text, file.source)
    return reading._replace(builds_nothing=not (reading.is_source or _OF_EXTENSIONS.search(file.text)))


SYSTEMS = (BuildSystem(0, ("setup.py",), _of_file),)
