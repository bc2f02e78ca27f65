"""Include folders and flags of build files, read as text; no build file is run"""

from __future__ import annotations

import ast
import contextlib
import os
import re
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from orbit_lsp.compilation.lazy_pattern import lazy_pattern
from orbit_lsp.compilation.projects import BUILD_FILES
from orbit_remote.common import regular_files
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.limits import BUILD_FILE, OUTLINED

_SWITCHES = lazy_pattern(
    r"(?<![\w-])--?(?:expt-relaxed-constexpr|expt-extended-lambda|extended-lambda)(?![\w-])"
)
_STANDARD = lazy_pattern(
    r"(?<![\w-])-{1,2}std[= ](?:gnu|c)\+\+(\d\w)|CMAKE_CUDA_STANDARD\s+(\d\d)|CUDA_STANDARD\s+(\d\d)|cuda_std_(\d\d)|"
    r"(?:cpp|cuda)_std=c\+\+(\d\d)"
)
_RELOCATABLE = lazy_pattern(
    r"CUDA_SEPARABLE_COMPILATION\s+(?:ON|TRUE|1)|(?<![\w-])-{1,2}(?:rdc|relocatable-device-code)[ =]true|(?<![\w-])-dc(?![\w-])",
    re.IGNORECASE,
)
# a pattern of these that looked far ahead from each of a text's characters would keep the interpreter for minutes
_CMAKE_INCLUDES = lazy_pattern(r"\b(?:target_)?include_directories\s*\(([^()]*)\)", re.IGNORECASE)
_MAKE_INCLUDES = lazy_pattern(r"(?<![\w-])-(?:I|isystem)\s*(\"[^\"]+\"|[^\s\"',;)\]]+)")
_NAME = lazy_pattern(r"\w+")
_DEFINES = {"ADD_DEFINITIONS", "ADD_COMPILE_DEFINITIONS"}
_DEFINITION = lazy_pattern(r"(?<![\w-])-D\s?([A-Za-z_]\w*(?:=[\w.:+-]+)?)(?=[\s\"';)]|$)")
_OF_CUDA = lazy_pattern(
    r"(?<![\w-])-D\s?((?:[A-Za-z]\w*_)?(?:USE|WITH|HAVE|HAS|ENABLE|BUILD)_CUDA(?:=1|=ON)?)(?=[\s\"';)]|$)",
    re.MULTILINE,
)
"""What a build defines where it compiles CUDA at all."""
_OPENS = lazy_pattern(r"(?:if|function|macro|foreach|while)\s*\(|if(?:n?eq|n?def)\b", re.IGNORECASE)
_CLOSES = lazy_pattern(r"end(?:if|function|macro|foreach|while)\b", re.IGNORECASE)
_INCLUDED = lazy_pattern(r"^[ \t]*(?:-?include[ \t]+([^\s#(]+)|include\s*\(\s*\"?([^)\s\"]+))", re.MULTILINE)
_MODULES = ("cmake", "cmake/modules", "cmake/Modules")
_MOST_INCLUDED = 20
_COMMENT = lazy_pattern(r"^[ \t]*#.*$", re.MULTILINE)
_WORD = lazy_pattern(r'"([^"]*)"|(\S+)')
_KEYWORDS = {"PUBLIC", "PRIVATE", "INTERFACE", "SYSTEM", "BEFORE", "AFTER"}
_EXTENSIONS = {"CUDAExtension", "CppExtension", "Extension", "BuildExtension", "Pybind11Extension", "load"}
_CERTAIN = lazy_pattern(r"cuda|gpu|__name__", re.IGNORECASE)
"""Conditions under which a setup.py builds extensions of CUDA."""
_AMD = lazy_pattern(r"(?<![a-z])(?:hip|rocm)(?![a-z])", re.IGNORECASE)
_OLDEST = 17
"""nvcc compiles C++17 by itself, and CUDA's own headers need it: an older standard was named for an older nvcc."""
_MOST = 400
"""Values that one list of a setup.py may come to, and folders that another build file may name."""
_MOST_PARTS = 20_000
"""Expressions of a setup.py that are looked at for them: a few lines can repeat one without end."""
_MOST_FILES = 32
"""Build files above one source file."""
_LONGEST = 4096
"""Characters of a path or a flag."""
_INTERFACE = lazy_pattern(r"\$<(?:BUILD_INTERFACE|INSTALL_INTERFACE):([^<>]*)>")
_TOP = lazy_pattern(
    r"\$[{(](?:CMAKE_SOURCE_DIR|PROJECT_SOURCE_DIR|\w+_SOURCE_DIR|SRC_?DIR|TOP_?DIR|ROOT_?DIR)[})]",
    re.IGNORECASE,
)
_LOCAL = lazy_pattern(
    r"\$[{(](?:CMAKE_CURRENT_SOURCE_DIR|CMAKE_CURRENT_LIST_DIR|CURDIR|PWD)[})]|\$\$PWD", re.IGNORECASE
)


class Folder(NamedTuple):
    """An include folder that a build file names."""

    path: str
    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Declared:
    """What the build files above a source file say: include folders in their order, and flags with the file that
    names each. `nearest` is the build file nearest to the source; "" where there is none.
    """

    folders: tuple[Folder, ...] = ()
    flags: tuple[tuple[str, str], ...] = ()
    nearest: str = ""

    @property
    def torch_builds(self) -> bool:
        """Whether torch's own builder may compile the file: by a setup.py, or when a program runs."""
        return not self.nearest or self.nearest.endswith(".py")

    @property
    def database_command(self) -> str:
        """How the project writes a compile_commands.json; "" where its build system has no command for that."""
        name = os.path.basename(self.nearest)
        if name == "CMakeLists.txt":
            return "`cmake -S . -B build -DCMAKE_EXPORT_COMPILE_COMMANDS=ON`"
        if name == "meson.build":
            return "`meson setup build`"
        return "`bear -- make`" if name.lower().endswith("makefile") else ""


def declared(path: str, root: str) -> Declared:
    """From the build files of the file's folder and of those above it, up to the root; the nearest first. Reads files."""
    folders: list[Folder] = []
    flags: dict[str, str] = {}
    nearest = ""
    for file in islice(_above(Path(path).parent, root), _MOST_FILES):
        nearest = nearest or file
        try:
            text = regular_files.text(file, BUILD_FILE)
        except (OSError, ValueError):
            continue
        if file.endswith(".py"):
            setup = _setup(file, text, path)
            folders += setup.folders
            named = dict(setup.flags)
        else:
            text = _COMMENT.sub("", text)
            for included in _included(file, text, root):
                if len(text) + len(included) < BUILD_FILE.most:
                    text += "\n" + _COMMENT.sub("", included)
            folders += _folders(file, text, root)
            # CMake's folders inherit macros from those above; another build system above is another project's
            same = os.path.basename(file) == os.path.basename(nearest)
            named = dict.fromkeys(islice(_definitions(text), _MOST) if same else (), file)
            of_cuda = dict.fromkeys(_OF_CUDA.findall(text) if same else ())
            named |= dict.fromkeys((f"-D{definition}" for definition in islice(of_cuda, _MOST)), file)
        named |= dict.fromkeys(_SWITCHES.findall(text), file)
        if _RELOCATABLE.search(text):
            named["-rdc=true"] = file
        standards = [next(filter(None, match.groups())) for match in _STANDARD.finditer(text)]
        if standards:
            named[f"-std=c++{max(standards, key=_year)}"] = file
        for flag, where in named.items():
            asked = year(flag)
            standard = asked is not None and (asked < _OLDEST or any(map(year, flags)))
            if flag not in flags and not standard:
                flags[flag] = where
    return Declared(tuple(dict.fromkeys(folders)), tuple(flags.items()), nearest)


def _included(file: str, text: str, root: str) -> Iterator[str]:
    """The texts of the workspace's files that a Makefile or CMakeLists.txt without its comments includes, one deep."""
    here = os.path.dirname(file)
    for include in islice(_INCLUDED.finditer(text), _MOST_INCLUDED):
        word = include[1] or include[2]
        names = [word] if os.path.splitext(word)[1] else [f"{at}/{word}.cmake" for at in _MODULES]
        for name in names:
            for value in _substituted(name, here, root):
                path = os.path.normpath(os.path.join(here, value))
                if Path(path).is_relative_to(root):
                    with contextlib.suppress(OSError, ValueError):
                        yield regular_files.text(path, BUILD_FILE)


def definition_of(name: str, path: str, root: str) -> tuple[str, str]:
    """How the nearest build file above a file defines a macro, the first of several ways, and that build file."""
    pattern = re.compile(rf"(?<![\w-])-D\s?({name}(?:=[\w.:+-]+)?)(?=[\s\"';)]|$)", re.MULTILINE)
    for file in islice(_above(Path(path).parent, root), _MOST_FILES):
        with contextlib.suppress(OSError, ValueError):
            if match := pattern.search(_COMMENT.sub("", regular_files.text(file, BUILD_FILE))):
                return f"-D{match[1]}", file
    return "", ""


def _definitions(text: str) -> Iterator[str]:
    """`-D…` among nvcc's flags, where no condition of CMake or make stands around them."""
    depth = 0
    for each in text.replace("\\\n", " ").split("\n"):
        line = each.strip()
        depth += bool(_OPENS.match(line)) - bool(_CLOSES.match(line))
        if depth == 0 and "-D" in line and any(map(_names_nvcc_flags, _NAME.findall(line))):
            yield from (f"-D{definition}" for definition in _DEFINITION.findall(line))


def _names_nvcc_flags(name: str) -> bool:
    """`CUDA_NVCC_FLAGS`, `CUFLAGS`; CXXFLAGS are another compiler's."""
    rest, flags, behind = name.upper().rpartition("FLAGS")
    return (bool(flags) and not behind and ("CU" in rest or "NVCC" in rest)) or behind in _DEFINES


def year(flag: str) -> int | None:
    """The standard that `-std=c++17` asks for, 17; None for any other flag."""
    match = re.fullmatch(r"-{1,2}std[= ](?:gnu|c)\+\+(\d\w)", flag)
    return _year(match[1]) if match else None


def _year(standard: str) -> int:
    """c++98 is older than c++11; `2a` is a draft of 20."""
    number = int({"0x": "11", "1y": "14", "1z": "17", "2a": "20", "2b": "23"}.get(standard, standard))
    return number if number < 90 else 0


def _above(folder: Path, root: str) -> Iterator[str]:
    while True:
        yield from (str(folder / name) for name in BUILD_FILES if (folder / name).is_file())
        if str(folder) == root or folder == folder.parent or not folder.is_relative_to(root):
            return
        folder = folder.parent


def _folders(file: str, text: str, root: str) -> Iterator[Folder]:
    """`include_directories(…)` of CMake, `-I…` of Makefiles, where all variables in them are known folders."""
    here = os.path.dirname(file)
    if file.endswith("CMakeLists.txt"):
        every = (
            (match.start(), word[0] or word[1])
            for match in _CMAKE_INCLUDES.finditer(text)
            for word in _WORD.findall(match[1])
        )
    else:
        every = ((match.start(), match[1].strip('"')) for match in _MAKE_INCLUDES.finditer(text))
    starts: dict[str, int] = {}
    for start, word in every:
        if word not in _KEYWORDS:
            starts.setdefault(word, start)
        if len(starts) >= _MOST:
            break
    for word, start in starts.items():
        for value in _substituted(word, here, root):
            path = os.path.normpath(os.path.join(here, value))
            if os.path.isdir(path):
                yield Folder(path, file, text.count("\n", 0, start) + 1)


def _substituted(word: str, here: str, root: str) -> Iterator[str]:
    """A word of CMake or make with its variables replaced by folders; those of a project's own are guessed: its
    `${PROJECT_SOURCE_DIR}` may be this folder or the workspace.
    """
    if len(word) > _LONGEST:
        return
    word = _LOCAL.sub(lambda _: here, _INTERFACE.sub(r"\1", word))
    for folder in dict.fromkeys((root, here)) if _TOP.search(word) else (here,):
        value = _TOP.sub(lambda _, folder=folder: folder, word)
        if "$" not in value and value:
            yield value


# -- setup.py ---------------------------------------------------------------------------------------


def _setup(file: str, text: str, path: str) -> Declared:
    """The `include_dirs`, `define_macros` and nvcc's `extra_compile_args` of the extensions of a setup.py: of the one
    whose sources name the file, if one does. Expressions that cannot be read without running it are passed over.
    """
    if len(text) > OUTLINED.most:
        return Declared()
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return Declared()
    values = _Values(file)
    values.doubtful = _doubtful(tree)
    nodes = list(_for_nvidia(tree))
    for node in nodes:
        values.learn(node)
    calls = [
        node for node in nodes if isinstance(node, ast.Call) and values.functions(node.func) & _EXTENSIONS
    ]
    name = os.path.basename(path)
    own = [
        call
        for call in calls
        if any(os.path.basename(s) == name for s in values.texts(_keyword(call, "sources")))
    ]
    folders: list[Folder] = []
    flags: dict[str, str] = {}
    for call in own or calls:
        for keyword in ("include_dirs", "extra_include_paths"):
            node = _keyword(call, keyword)
            for text_of in values.texts(node):
                place = os.path.normpath(os.path.join(os.path.dirname(file), text_of))
                if os.path.isdir(place) and node is not None:
                    folders.append(Folder(place, file, node.lineno))
        for keyword in ("extra_compile_args", "extra_cuda_cflags"):
            node = _keyword(call, keyword)
            added = ast.Name(f"{node.id}[nvcc]") if isinstance(node, ast.Name) else None
            for flag in (*values.texts(_nvcc_part(values.meaning(node))), *values.texts(added)):
                if re.fullmatch(r"-[DU]\w.*|--?std=.*|--?use_fast_math", flag):
                    flags[flag] = file
        if (
            own or len(calls) == 1
        ):  # the sources of the only extension may be a pattern, as `glob("csrc/*.cu")`
            for macro in values.pairs(_keyword(call, "define_macros")):
                flags[macro] = file
    if any("CUDAExtension" in values.functions(call.func) for call in calls):
        flags["--expt-relaxed-constexpr"] = file  # torch's builder adds it
    return Declared(tuple(folders), tuple(flags.items()))


def _for_nvidia(tree: ast.AST) -> Iterator[ast.AST]:
    """As ast.walk, without the branches that a setup.py takes where torch is built for AMD."""
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
    """The ids of expressions in branches of which it is not known whether the build takes them: of other platforms, and
    of what a variable of the environment chooses.
    """
    return {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If)
        and not _CERTAIN.search(ast.unparse(node.test))
        and not _AMD.search(ast.unparse(node.test))
        for statement in (*node.body, *node.orelse)
        for inner in ast.walk(statement)
        if isinstance(inner, ast.expr)
    }


def _asks_for_amd(test: ast.expr) -> bool:
    match test:
        case ast.BoolOp(op=ast.And()):
            return any(map(_asks_for_amd, test.values))
        case ast.BoolOp():
            return all(map(_asks_for_amd, test.values))
        case ast.UnaryOp(op=ast.Not()) | ast.Compare(ops=[ast.Is() | ast.NotEq() | ast.NotIn()]):
            return False
        case _:
            return bool(_AMD.search(ast.unparse(test)))


def _called(call: ast.Call) -> str:
    return _function(call.func)


def _function(function: ast.expr) -> str:
    match function:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
        case _:
            return ""


def _keyword(call: ast.Call, name: str) -> ast.expr | None:
    if node := next((keyword.value for keyword in call.keywords if keyword.arg == name), None):
        return node
    return call.args[1] if name == "sources" and len(call.args) > 1 else None


def _nvcc_part(node: ast.expr | None) -> ast.expr | None:
    """The value of `"nvcc"` in a dict of flags by compiler."""
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and key.value == "nvcc":
                return value
        return None
    return node


def _assigned(target: ast.expr) -> str:
    """`flags`, or `flags[nvcc]` for `flags["nvcc"]`."""
    match target:
        case ast.Name(id=name):
            return name
        case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value="nvcc")):
            return f"{name}[nvcc]"
        case _:
            return ""


class _Values:
    """What names of a setup.py stand for, as far as its text says without being run."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.names: dict[str, list[ast.expr]] = {}
        self.doubtful: set[int] = set()
        self.left = _MOST
        self.parts = _MOST_PARTS

    def learn(self, node: ast.AST) -> None:
        """An assignment, `name += …`, `name.append(…)` or `name.extend(…)`."""
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

    def functions(self, node: ast.expr) -> set[str]:
        """The names of the functions that a call may mean: `extension = CUDAExtension` gives one another name."""
        name = _function(node)
        return {name, *map(_function, self.names.get(name, ()))}

    def meaning(self, node: ast.expr | None) -> ast.expr | None:
        """The last expression that a name stands for."""
        for _ in range(8):
            if not isinstance(node, ast.Name) or not self.names.get(node.id):
                break
            node = self.names[node.id][-1]
        return node

    def texts(self, node: ast.expr | None, depth: int = 0) -> list[str]:
        """Every text in a list, however it is put together."""
        if node is None or depth > 12 or self.left <= 0:
            return []
        self.left -= 1
        match node:
            case ast.List() | ast.Tuple() | ast.Set():
                return [text for item in node.elts for text in self.texts(item, depth + 1)]
            case ast.Starred():
                return self.texts(node.value, depth + 1)
            case ast.BinOp(op=ast.Add()):
                whole = self.text(node, depth + 1)
                both = self.texts(node.left, depth + 1) + self.texts(node.right, depth + 1)
                return [whole] if whole is not None else both
            case ast.IfExp():
                return self.texts(node.body, depth + 1) + self.texts(node.orelse, depth + 1)
            case ast.Name():
                return [
                    text for value in self.names.get(node.id, ()) for text in self.texts(value, depth + 1)
                ]
            case ast.ListComp():
                return self.texts(node.generators[0].iter, depth + 1)
            case ast.Call(func=ast.Name()) if (
                self.text(node, depth + 1) is None
            ):  # with_threads(flags), sorted(sources)
                return [text for item in node.args for text in self.texts(item, depth + 1)]
            case _:
                text = self.text(node, depth + 1)
                return [] if text is None else [text]

    def text(self, node: ast.expr | None, depth: int = 0) -> str | None:
        """One text: paths are joined as `os.path` and `pathlib` join them."""
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

    def _joined(self, parts: Sequence[str | None], by: str) -> str | None:
        known = [part for part in parts if part is not None]
        if len(known) != len(parts) or sum(map(len, known)) > _LONGEST:
            return None
        return by.join(known)

    def pairs(self, node: ast.expr | None, depth: int = 0) -> list[str]:
        """`define_macros=[("NAME", None), ("N", "4")]` as flags, however the list is put together."""
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
