"""CMake's language: the commands of a text, and the values of conditions and generator expressions. Nothing is run.

A value that only a configured build knows is None: a condition is true, false or not known.
"""

from __future__ import annotations

import ast
import os
import platform
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

LONGEST = 20_000
"""Characters of a command, and of a value."""
MOST_COMMANDS = 5_000
"""Commands that are read of one file."""
_COMMAND = re.compile(r"^[ \t]*([A-Za-z_]\w{0,100})[ \t]{0,100}\(", re.MULTILINE)
_MARK = re.compile(r'\\.|"|#\[(=*)\[|#', re.DOTALL)
_BRACKET = re.compile(r'\\.|"(?:[^"\\]|\\.)*"|[()]', re.DOTALL)
_TOKEN = re.compile(r'"((?:[^"\\]|\\.)*)"|([()])|((?:\\.|[^\s()";\\])+)', re.DOTALL)
_SWITCH = re.compile(
    r"(?:\w*_)?CUDA|(?:\w*_)?(?:USE|WITH|ENABLE|BUILD)_CUDA_?TOOLKIT|\w*CUDA(?:TOOLKIT)?_(?:FOUND|ENABLED?|SUPPORT|BACKEND|BUILD|COMPILER\w*)|"
    r"(?:\w*_)?(?:USE|WITH|ENABLE|BUILD|HAVE|HAS|COMPILE)_GPU|GPU_(?:ENABLED?|SUPPORT|BUILD)",
    re.IGNORECASE,
)
"""Variables that say whether a build has CUDA. The file is compiled, so its build has."""
_ASKED_FOR = re.compile(
    r"\bif[ \t]*\([ \t]*((?:\w{1,40}_)?(?:USE|WITH|ENABLE|BUILD)_CUDA\w{0,20})[ \t]*\)", re.IGNORECASE
)
_GIVEN = re.compile(r"\b(?:set|option|cmake_dependent_option)[ \t]*\([ \t\n]*(\w{1,100})", re.IGNORECASE)
_OPTION_OFF = re.compile(
    r"^[ \t]*option[ \t]*\([ \t]*([\w.+-]{1,100})(?:\s+(?:\"[^\"\n]{0,300}\"|[^\s()\"]{1,100}))?(?:\s+(?:OFF|FALSE|NO|0))?\s*\)",
    re.IGNORECASE | re.MULTILINE,
)
OFF = re.compile(r"|0|OFF|NO|FALSE|N|IGNORE|(?:.*-)?NOTFOUND", re.IGNORECASE)
_ON = re.compile(r"1|ON|YES|TRUE|Y|-?0*[1-9]\d*", re.IGNORECASE)
_ELSEWHERE = {"WIN32", "MSVC", "APPLE", "ANDROID", "IOS", "MINGW", "XCODE", "CYGWIN", "HIP_FOUND", "USE_ROCM"}
_UNSET = {"CMAKE_BUILD_TYPE", "CMAKE_CONFIGURATION_TYPES"}
"""What a first configuration without options has not set: a project that asks for it sets a default."""
_CUDA_VERSION = re.compile(
    r"CMAKE_CUDA_COMPILER_VERSION|CUDA_VERSION(?:_STRING)?|CUDAToolkit_VERSION(?:_MAJOR)?|CUDA_VERSION_MAJOR|CUDACXX_VERSION"
)
_OLD_CMAKE = (3, 18)
"""A comparison of CMake's own version with one up to this is known."""
_OLDEST_CUDA = 12
"""orbit-lsp's releases of CUDA begin here: what an older one decides is known."""
_COMPARISONS = {
    "STREQUAL", "STRLESS", "STRGREATER", "EQUAL", "LESS", "GREATER", "LESS_EQUAL", "GREATER_EQUAL", "VERSION_EQUAL",
    "VERSION_LESS", "VERSION_GREATER", "VERSION_LESS_EQUAL", "VERSION_GREATER_EQUAL", "MATCHES", "IN_LIST", "PATH_EQUAL",
}  # fmt: skip
_TESTS = {"DEFINED", "TARGET", "EXISTS", "IS_DIRECTORY", "COMMAND", "POLICY", "IS_ABSOLUTE", "TEST"}
_MOST_TOKENS = 5_000
_DEEPEST = 30


class CMakeCommand(NamedTuple):
    """A command. `name` is in small letters, `arguments` is their text. `line` counts from 1."""

    name: str
    arguments: str
    line: int


class CMakeToken(NamedTuple):
    text: str
    quoted: bool = False


def without_comments(text: str) -> str:
    """Return a CMakeLists.txt without its comments, of a line and in brackets. Its lines keep their numbers."""
    made: list[str] = []
    position = 0
    while match := _MARK.search(text, position):
        if match[0][0] == "\\":
            made.append(text[position : match.end()])
            position = match.end()
            continue
        if match[0] == '"':
            end = match.end()
            while (end := text.find('"', end) + 1) and text[end - 2] == "\\":
                pass
            made.append(text[position : end or len(text)])
            position = end or len(text)
            continue
        made.append(text[position : match.start()])
        if match[0] == "#":
            end = text.find("\n", match.start())
        else:
            end = text.find(f"]{match[1]}]", match.end())
            made.append("\n" * text.count("\n", match.start(), end if end >= 0 else len(text)))
            end = end + 2 + len(match[1]) if end >= 0 else end
        position = end if end >= 0 else len(text)
    return "".join([*made, text[position:]])


def commands(text: str) -> Iterator[CMakeCommand]:
    """Yield the commands of a text without comments."""
    position = 0
    line, counted = 1, 0
    for _ in range(MOST_COMMANDS):
        if (match := _COMMAND.search(text, position)) is None:
            return
        depth, end = 1, match.end()
        for bracket in _BRACKET.finditer(text, end):
            depth += (bracket[0] == "(") - (bracket[0] == ")")
            if depth == 0:
                position = bracket.end()
                break
        if depth:
            return
        line += text.count("\n", counted, match.start(1))
        counted = match.start(1)
        yield CMakeCommand(match[1].lower(), text[end : position - 1], line)


def tokens(text: str) -> list[CMakeToken]:
    """Return the words and brackets of a condition."""
    listed: list[CMakeToken] = []
    for match in _TOKEN.finditer(text):
        quoted, bracket, plain = match.groups()
        listed.append(
            CMakeToken(bracket or plain or "") if quoted is None else CMakeToken(quoted, quoted=True)
        )
        if len(listed) > _MOST_TOKENS:
            break
    return listed


class CMakeKnown(NamedTuple):
    """What a condition can ask for: variables with their values, variables without known values, targets, and the
    folder.
    """

    values: Mapping[str, str]
    doubtful: Mapping[str, object]
    targets: Mapping[str, object]
    folder: str


def holds(words: Sequence[CMakeToken], known: CMakeKnown) -> bool | None:
    """Return whether a condition holds. Return None if that is not known. `words` have the values of the variables
    that are referred to.
    """
    return _Condition(words, known).whole()


class _Condition:
    """Reads a condition by CMake's precedence: brackets, tests, comparisons, NOT, AND, OR."""

    def __init__(self, words: Sequence[CMakeToken], known: CMakeKnown) -> None:
        self.words = list(words)
        self.known = known
        self.at = 0
        self.depth = 0

    def whole(self) -> bool | None:
        result = self._either()
        return result if self.at == len(self.words) else None

    def _next(self, *names: str) -> str:
        """Take the next word if it is one of these, and return it."""
        if self.at < len(self.words):
            word = self.words[self.at]
            if not word.quoted and word.text in names:
                self.at += 1
                return word.text
        return ""

    def _either(self) -> bool | None:
        result = self._both()
        while self._next("OR"):
            other = self._both()
            result = True if True in (result, other) else None if None in (result, other) else False
        return result

    def _both(self) -> bool | None:
        result = self._negated()
        while self._next("AND"):
            other = self._negated()
            result = False if False in (result, other) else None if None in (result, other) else True
        return result

    def _negated(self) -> bool | None:
        negations = 0
        while self._next("NOT"):
            negations += 1
        result = self._term()
        return result if result is None or negations % 2 == 0 else not result

    def _term(self) -> bool | None:
        if self._next("("):
            self.depth += 1
            result = self._either() if self.depth < _DEEPEST else None
            self.depth -= 1
            return result if self._next(")") else None
        if self.at >= len(self.words):
            return None
        word = self.words[self.at]
        self.at += 1
        if not word.quoted and word.text in _TESTS and self.at < len(self.words):
            self.at += 1
            return self._test(word.text, self.words[self.at - 1].text)
        if (how := self._next(*_COMPARISONS)) and self.at < len(self.words):
            self.at += 1
            return self._compared(word, how, self.words[self.at - 1])
        return self._is_true(word)

    def _test(self, what: str, name: str) -> bool | None:
        if "$" in name or "{" in name or "\ue000" in name:
            return None
        if what == "DEFINED":
            if name in self.known.values or _SWITCH.fullmatch(name):
                return True
            return None if name in self.known.doubtful or name.endswith("_FOUND") else False
        if what == "TARGET":
            return True if name in self.known.targets else None
        if what in ("EXISTS", "IS_DIRECTORY"):
            place = os.path.join(self.known.folder, name)
            return os.path.exists(place) if what == "EXISTS" else os.path.isdir(place)
        return None

    def _is_true(self, word: CMakeToken) -> bool | None:
        name = word.text
        if "$" in name or "\ue000" in name:
            unset = re.fullmatch(r"\$\{([\w.+-]+)\}", name)
            return False if unset and unset[1] in _UNSET else None
        if _ON.fullmatch(name):
            return True
        if OFF.fullmatch(name):
            return False
        if word.quoted:
            return False
        if name in _ELSEWHERE:
            return False
        if name in self.known.doubtful:
            return None
        value = self.known.values.get(name)
        if name == "CMAKE_CUDA_ARCHITECTURES" or (name in _UNSET and value is None):
            return bool(value)
        if _SWITCH.fullmatch(name) or name == "UNIX":
            return True
        return None if value is None or "$" in value or "\ue000" in value else not OFF.fullmatch(value)

    def _compared(self, left: CMakeToken, how: str, right: CMakeToken) -> bool | None:
        if how == "IN_LIST":
            listed = self.known.values.get(right.text)
            given = self._value(left)
            if listed is None or given is None or right.text in self.known.doubtful:
                return None
            return given in listed.split(";")
        if (version := _CUDA_VERSION.fullmatch(left.text.strip("${}"))) and version[
            0
        ] not in self.known.values:
            return _of_cuda(how, right.text)
        if left.text.strip("${}") == "CMAKE_VERSION":
            return _of_cmake(how, right.text)
        empty = right.quoted and not right.text
        if how == "STREQUAL" and empty and left.text.strip("${}") in _UNSET - self.known.values.keys():
            return True
        one, other = self._value(left), self._value(right)
        if one is None or other is None:
            return None
        if how == "MATCHES":
            return _matches(other, one)
        if how in ("STREQUAL", "PATH_EQUAL"):
            return one == other
        return _ordered(how, one, other)

    def _value(self, word: CMakeToken) -> str | None:
        """Return what a comparison uses for a word: the value if the word names a variable, otherwise the word
        itself.
        """
        if "$" in word.text or "\ue000" in word.text:
            return None
        if word.quoted:
            return word.text
        if word.text in self.known.doubtful:
            return None
        if (value := self.known.values.get(word.text)) is not None:
            return None if "$" in value or "\ue000" in value else value
        # a name that the build may have set, and the text that it else stands for itself
        return None if re.fullmatch(r"[A-Z][A-Z0-9]*_\w+", word.text) else word.text


def options_off(text: str) -> list[str]:
    """Return the options of a CMakeLists.txt (without comments) that are off by default, and those that only its
    conditions mention.
    """
    asked = dict.fromkeys(_ASKED_FOR.findall(text))
    given = set(_GIVEN.findall(text)) if asked else set[str]()
    return [*_OPTION_OFF.findall(text), *(name for name in asked if name not in given)]


def is_switch(name: str) -> bool:
    """Say whether the name of a variable suggests that it turns CUDA on in a build."""
    return bool(_SWITCH.fullmatch(name))


def _of_cuda(how: str, number: str) -> bool | None:
    """Return the result of comparing the CUDA release with `number`, if that is older than any release that we
    support.
    """
    major = re.match(r"\d{1,9}", number)
    return _of_newer(how) if major and int(major[0]) < _OLDEST_CUDA else None


def _of_cmake(how: str, number: str) -> bool | None:
    """Return the result of comparing CMake's own version with a version that is older than all that know CUDA 13."""
    version = re.match(r"(\d{1,9})(?:\.(\d{1,9}))?", number)
    is_old = version and (int(version[1]), int(version[2] or 0)) <= _OLD_CMAKE
    return _of_newer(how) if is_old else None


def _of_newer(how: str) -> bool | None:
    return {"GREATER": True, "GREATER_EQUAL": True, "LESS": False, "LESS_EQUAL": False, "EQUAL": False}.get(
        how.removeprefix("VERSION_")
    )


def _matches(pattern: str, text: str) -> bool | None:
    """Match a pattern of CMake, which is nearly one of Python. A long one could take for ever, so it is not tried."""
    if len(pattern) > 100 or len(text) > 1000 or re.search(r"[*+?]\)?[*+?]|\([^)]*[*+][^)]*\)[*+]", pattern):
        return None
    try:
        return bool(re.search(pattern, text))
    except re.error:
        return None


def _ordered(how: str, one: str, other: str) -> bool | None:
    if how.startswith("STR"):
        order = (one > other) - (one < other)
    elif how.startswith("VERSION_"):
        left, right = ([int(part) for part in re.findall(r"\d{1,9}", each)[:8]] for each in (one, other))
        length = max(len(left), len(right))
        left, right = (each + [0] * (length - len(each)) for each in (left, right))
        order = (left > right) - (left < right)
    else:
        try:
            order = (float(one) > float(other)) - (float(one) < float(other))
        except ValueError:
            return None
    allowed = {"EQUAL": (0,), "LESS": (-1,), "GREATER": (1,), "LESS_EQUAL": (-1, 0), "GREATER_EQUAL": (0, 1)}
    return order in allowed.get(how.removeprefix("VERSION_").removeprefix("STR"), ())


def computed(text: str) -> int | None:
    """Return the value of a `math(EXPR …)` of whole numbers. Return None for one that is not understood."""
    if len(text) > 200 or not re.fullmatch(r"[\d\s()+*/%<>&|^~-]+", text):
        return None
    try:
        return _computed(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, ZeroDivisionError, OverflowError):
        return None


def _computed(node: ast.expr) -> int:
    """Return the value of an expression. Raises ValueError if it is no arithmetic."""
    match node:
        case ast.Constant(value=int() as value):
            return value
        case ast.UnaryOp(op=ast.USub()):
            return -_computed(node.operand)
        case ast.BinOp():
            left, right = _computed(node.left), _computed(node.right)
            match node.op:
                case ast.Add():
                    return left + right
                case ast.Sub():
                    return left - right
                case ast.Mult():
                    return left * right
                case ast.Div():
                    return int(left / right)
                case ast.Mod():
                    return left % right
                case ast.LShift() if right < 63:
                    return left << right
                case ast.RShift():
                    return left >> right
                case ast.BitAnd():
                    return left & right
                case ast.BitOr():
                    return left | right
                case _:
                    pass
        case _:
            pass
    raise ValueError


def closing(text: str, start: int) -> int:
    """Return the place behind the `>` that closes the `$<` at `start`, or -1 if there is none."""
    depth = 0
    for match in re.finditer(r"\$<|>", text[start : start + LONGEST]):
        depth += 1 if match[0] == "$<" else -1
        if depth == 0:
            return start + match.end()
    return -1


def expression(head: str, rest: str, configuration: str, is_part: Callable[[str], bool]) -> str | None:
    """Return the value of a generator expression where CUDA is compiled. Return None if it is not known.
    `configuration` is the build type, "" if none is known. `is_part` says whether a text contains something unknown.
    """
    options = rest.split(",")
    match head:
        case "0" | "INSTALL_INTERFACE":
            return ""
        case "1" | "BUILD_INTERFACE" | "BUILD_LOCAL_INTERFACE":
            return rest
        case "COMPILE_LANGUAGE":
            return str(int("CUDA" in options))
        case "COMPILE_LANG_AND_ID":
            return str(int(options[0] == "CUDA" and "NVIDIA" in options))
        case "CUDA_COMPILER_ID":
            return str(int("NVIDIA" in options))
        case "CONFIG" if configuration:
            return str(int(configuration.upper() in (option.upper() for option in options)))
        case "CONFIG" if options == ["Debug"]:
            return "0"
        case "PLATFORM_ID":
            return str(int(platform.system() in options))
        case "CXX_COMPILER_ID" | "C_COMPILER_ID" if options in (["Windows"], ["MSVC"]):
            return "0"
        case "NOT" if rest in ("0", "1"):
            return str(1 - int(rest))
        case "BOOL" if "$" not in rest and not is_part(rest):
            return str(int(not OFF.fullmatch(rest)))
        case "AND" | "OR" if set(options) <= {"0", "1"}:
            return str(int(all(each == "1" for each in options) if head == "AND" else "1" in options))
        case "AND" if "0" in options:
            return "0"
        case "OR" if "1" in options:
            return "1"
        case "IF" if len(options) == 3 and options[0] in ("0", "1"):
            return options[1] if options[0] == "1" else options[2]
        case "STREQUAL" if len(options) == 2 and "$" not in rest and not is_part(rest):
            return str(int(options[0] == options[1]))
        case "COMMA":
            return ","
        case "SEMICOLON":
            return ";"
        case "VERSION_GREATER" | "VERSION_GREATER_EQUAL" | "VERSION_LESS" | "VERSION_LESS_EQUAL" if len(
            options
        ) == 2 and not is_part(rest):
            result = None if "$" in rest else _ordered(head, *options)
            return None if result is None else str(int(result))
        case _:
            return None
