"""How CMake compiles a CUDA file: macros, options and architectures of its target and of the folders above, read as text

Nothing is run. A first configuration without options is meant: options have their defaults, and a condition that is about CUDA
holds.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import NamedTuple

from orbit_lsp.compilation import presets
from orbit_lsp.compilation.lazy_pattern import lazy_pattern
from orbit_remote.common.lazy_dataclass import dataclass

_COMMAND = lazy_pattern(r"^[ \t]*([A-Za-z_]\w{0,100})[ \t]{0,100}\(", re.MULTILINE)
_ARGUMENT = lazy_pattern(r'"((?:[^"\\]|\\.)*)"|([^\s";]+)', re.DOTALL)
_MARK = lazy_pattern(r'"|#\[(=*)\[|#')
_BRACKET = lazy_pattern(r'"(?:[^"\\]|\\.)*"|[()]', re.DOTALL)
_SWITCH = lazy_pattern(
    r"(?:\w*_)?CUDA|\w*CUDA(?:TOOLKIT)?_(?:FOUND|ENABLED?|SUPPORT|BACKEND|BUILD|COMPILER\w*)", re.IGNORECASE
)
"""Variables that say whether a build has CUDA. The file is compiled, so its build has."""
_OPTIONS_FILE = lazy_pattern(r"@|--?options-file|--?optf")
"""Files of options are not followed: they may lie anywhere."""
_REFERENCE = lazy_pattern(r"\$\{(\w{1,200})\}")
_PART = lazy_pattern(r"\ue000(\d+)\ue001")
_ARCHITECTURE = lazy_pattern(r"(\d{2,3}[af]?)(?:-real|-virtual)?")
_DECIDES = lazy_pattern(
    r"-D|-U|fast_math|-arch|gencode|gpu-|-ftz|-fmad|-prec-|maxrregcount|-std|-rdc|-dc\b|-expt|lambda|FLAGS"
)
_OFF = lazy_pattern(r"|0|OFF|NO|FALSE|N|IGNORE|(?:.*-)?NOTFOUND", re.IGNORECASE)
_KEYWORDS = {"PUBLIC", "PRIVATE", "INTERFACE", "SYSTEM", "BEFORE", "AFTER"}
_SCOPED = {"foreach", "function", "macro", "while"}
_ELSEWHERE = {"WIN32", "MSVC", "APPLE", "ANDROID", "IOS", "MINGW", "XCODE", "CYGWIN"}
_ARCHITECTURES = "CMAKE_CUDA_ARCHITECTURES"
_LONGEST = 20_000
"""Characters of a command, and of a value."""
_MOST_COMMANDS = 5_000
_MOST_WORDS = 2_000
_MOST_LEFT_OUT = 12
_MOST_DEPTH = 8
_MOST_EXPANDED = 1 << 20
"""Characters of all commands together, once variables have their values."""


class CMakeFlags(NamedTuple):
    """`words` are options of nvcc, with the file that names each. `left_out` is what only CMake knows."""

    words: tuple[tuple[str, str], ...] = ()
    architectures: tuple[tuple[str, str], ...] = ()
    left_out: tuple[tuple[str, str], ...] = ()


class _Setting(NamedTuple):
    """Words that one command gives a target, or all targets. `passed_on`: targets that link it get them; `applies`: it gets them."""

    words: tuple[str, ...]
    file: str
    passed_on: bool = False
    applies: bool = True


@dataclass(slots=True)
class _Target:
    sources: list[str] = field(default_factory=list[str])
    settings: list[_Setting] = field(default_factory=list[_Setting])
    linked: list[str] = field(default_factory=list[str])
    architectures: tuple[str, str] = ("", "")


def read(files: Sequence[tuple[str, str]], path: str) -> CMakeFlags:
    """`files` are the CMakeLists.txt above a source file with their texts, the highest first. Reads presets."""
    if not files:
        return CMakeFlags()
    project = _Project(os.path.dirname(files[0][0]), path)
    for file, text in files:
        project.take(file, text)
    return project.result()


class _Project:
    def __init__(self, top: str, path: str) -> None:
        self.path = path
        self.top = top
        self.file = ""
        self.values = {"CMAKE_SOURCE_DIR": top, "PROJECT_SOURCE_DIR": top}
        self.set_by: dict[str, str] = {}
        self.doubtful: dict[str, tuple[str, str]] = {}
        self.targets: dict[str, _Target] = {}
        self.settings: list[_Setting] = []
        self.parts: list[str] = []
        self.left_out: dict[str, str] = {}
        self.left = _MOST_EXPANDED
        file, given = presets.usual_variables(top)
        self.values |= given
        self.set_by |= dict.fromkeys(given, file)

    def take(self, file: str, text: str) -> None:
        self.file = file
        here = os.path.dirname(file)
        self.values |= {"CMAKE_CURRENT_SOURCE_DIR": here, "CMAKE_CURRENT_LIST_DIR": here}
        around: list[tuple[bool | None, bool]] = []
        conditions: list[str] = []
        for command, arguments in _commands(text):
            if len(arguments) > _LONGEST:
                self._leave_out(f"what {command} has after its first {_LONGEST:,} characters", file)
            if command == "if":
                holds = self._holds(arguments.split())
                around.append((holds, bool(holds)))
                conditions.append(f"if({' '.join(arguments.split())})")
            elif command in _SCOPED:
                around.append((False, True))
                conditions.append("")
            elif command in ("else", "elseif") and around:
                taken, done = around.pop()
                holds = None if taken is None else not done and (command == "else" or self._holds(arguments.split()))  # fmt: skip
                around.append((holds, done or bool(holds)))
            elif command.startswith("end") and command[3:] in (*_SCOPED, "if") and around:
                around.pop()
                conditions.pop()
            elif all(taken is not False for taken, _ in around):
                doubts = (why for (taken, _), why in zip(around, conditions, strict=True) if taken is None)
                self._command(command, arguments, next(doubts, ""))

    def _holds(self, words: list[str]) -> bool | None:
        """What is not known is None."""
        negations = next((at for at, word in enumerate(words) if word != "NOT"), len(words))
        holds = self._is_true(words[negations:])
        return holds if holds is None or negations % 2 == 0 else not holds

    def _is_true(self, words: list[str]) -> bool | None:
        if len(words) == 2 and words[0] == "DEFINED":
            return words[1] in self.values
        if len(words) != 1:
            return None
        name = words[0]
        if name in _ELSEWHERE:
            return False
        if name in self.doubtful:
            return None
        if name == _ARCHITECTURES:
            return bool(self.values.get(name))
        if _SWITCH.fullmatch(name) or name == "UNIX":
            return True
        return not _OFF.fullmatch(self.values[name]) if name in self.values else None

    # -- commands -----------------------------------------------------------------------------------

    def _command(self, command: str, arguments: str, doubt: str) -> None:
        if command in ("set", "list", "string", "option", "file"):
            self._variable(command, self._words(arguments, split=False), doubt)
        elif command == "project":
            words = self._words(arguments)
            name = words[0] if words else ""
            here = os.path.dirname(self.file)
            self.values |= {"PROJECT_NAME": name, "PROJECT_SOURCE_DIR": here, f"{name}_SOURCE_DIR": here}
            self.values.setdefault("CMAKE_PROJECT_NAME", name)
        elif command in ("add_compile_definitions", "add_definitions"):
            self._apply(self.settings, _macros(self._words(arguments, split=False)), command, doubt)
        elif command == "add_compile_options":
            self._apply(self.settings, self._options(arguments), command, doubt)
        elif command in ("target_compile_definitions", "target_compile_options"):
            self._target_words(command, arguments, doubt)
        elif command in ("set_target_properties", "set_property", "set_source_files_properties"):
            self._properties(command, self._words(arguments, split=False), doubt)
        elif command == "target_link_libraries":
            name, *linked = self._words(arguments) or [""]
            self._target(name).linked += [each for each in linked if each not in _KEYWORDS]
        elif command == "target_sources" or re.search(
            r"add_(?:executable|library|module|extension)$", command
        ):
            name, *sources = self._words(arguments) or [""]
            here = os.path.dirname(self.file)
            self._target(name).sources += [os.path.normpath(os.path.join(here, each)) for each in sources]

    def _variable(self, command: str, words: list[str], doubt: str) -> None:
        match (command, words):
            case ("option", [name, *rest]):
                if rest:
                    self.values.setdefault(name, "ON" if rest[-1].upper() in ("ON", "TRUE", "1") else "OFF")
                return
            case ("set", [name, *values]):
                cached = "CACHE" in values
                values = values[: values.index("CACHE")] if cached else values
                if cached and name in self.values:
                    return
                value = ";".join(each for each in values if each != "PARENT_SCOPE")
            case ("list", ["APPEND", name, *values]):
                value = ";".join(filter(None, (self.values.get(name, ""), *values)))
            case ("string", ["APPEND", name, *values]):
                value = self.values.get(name, "") + "".join(values)
            case ("file", ["GLOB" | "GLOB_RECURSE" as way, name, *values]):
                values = [each.replace("*", "**") if way == "GLOB_RECURSE" else each for each in values]
                value = ";".join(each for each in values if each != "CONFIGURE_DEPENDS")
            case _:
                return
        if doubt:
            self.doubtful[name] = doubt, self.file
        elif len(value) <= _LONGEST:
            self.values[name], self.set_by[name] = value, self.file

    def _target(self, name: str) -> _Target:
        if len(self.targets) > _MOST_COMMANDS:
            return _Target()
        return self.targets.setdefault(name, _Target())

    def _target_words(self, command: str, arguments: str, doubt: str) -> None:
        """The words of each of `PUBLIC`, `PRIVATE` and `INTERFACE`."""
        macros = command.endswith("definitions")
        words = self._words(arguments, split=False) if macros else self._options(arguments)
        name, *rest = words or [""]
        settings = self._target(name).settings
        scope, group = "PUBLIC", list[str]()
        for word in (*rest, "PUBLIC"):
            if word not in _KEYWORDS:
                group.append(word)
                continue
            if group:
                self._apply(settings, _macros(group) if macros else group, f"{command}({name})", doubt, scope)
            scope, group = word, []

    def _apply(
        self, settings: list[_Setting], words: Sequence[str], command: str, doubt: str, scope: str = "PRIVATE"
    ) -> None:
        if doubt:
            if any(map(_DECIDES.search, words)):
                words = (f"\ue000{self._part(f'what `{doubt}` adds by {command}')}\ue001",)
            else:
                return
        settings.append(
            _Setting(
                tuple(words[:_MOST_WORDS]), self.file, scope in ("PUBLIC", "INTERFACE"), scope != "INTERFACE"
            )
        )

    def _properties(self, command: str, words: list[str], doubt: str) -> None:
        if command == "set_property":
            if words[:1] not in (["TARGET"], ["SOURCE"]) or "PROPERTY" not in words:
                return
            of_source = words[0] == "SOURCE"
            words = words[1:]
            at = words.index("PROPERTY")
            names, pairs = words[:at], {words[at + 1]: ";".join(words[at + 2 :])} if words[at + 1 :] else {}
        else:
            of_source = command == "set_source_files_properties"
            at = words.index("PROPERTIES") if "PROPERTIES" in words else len(words)
            names, rest = words[:at], words[at + 1 :]
            pairs = dict(zip(rest[::2], rest[1::2], strict=False))
            if "CUDA_ARCHITECTURES" in rest:  # a list of several is one word in quotes, and several without
                first = rest.index("CUDA_ARCHITECTURES") + 1
                last = next(
                    (i for i in range(first, len(rest)) if not _ARCHITECTURE.fullmatch(rest[i])), len(rest)
                )
                pairs["CUDA_ARCHITECTURES"] = ";".join(rest[first:last])
        if of_source:
            here = os.path.dirname(self.file)
            if any(os.path.normpath(os.path.join(here, each)) == self.path for each in names):
                for key in ("COMPILE_FLAGS", "COMPILE_OPTIONS"):
                    self._apply(self.settings, pairs.get(key, "").replace(";", " ").split(), command, doubt)
                self._apply(
                    self.settings, _macros(pairs.get("COMPILE_DEFINITIONS", "").split(";")), command, doubt
                )
        elif (value := pairs.get("CUDA_ARCHITECTURES")) and not doubt:
            for name in names[:_MOST_WORDS]:
                self._target(name).architectures = value, self.file

    # -- words --------------------------------------------------------------------------------------

    def _words(self, arguments: str, *, split: bool = True) -> list[str]:
        """A command's words with the values of variables; lists are several. Without `split` a quoted word stays one."""
        words: list[str] = []
        for match in _ARGUMENT.finditer(self._expressions(self._expanded(arguments))):
            quoted, plain = match.groups()
            quoted = quoted if quoted is None else quoted.replace('\\"', '"')
            words += [plain] if quoted is None else quoted.split(";") if split else [quoted]
            if len(words) > _MOST_WORDS:
                break
        return words

    def _options(self, arguments: str) -> list[str]:
        text = self._expressions(self._expanded(arguments)).replace('"', " ").replace("SHELL:", " ")
        return re.split(r"[\s;]+", text.strip())[:_MOST_WORDS]

    def _expanded(self, text: str) -> str:
        def value(match: re.Match[str]) -> str:
            if match[1] in self.doubtful:
                why, file = self.doubtful[match[1]]
                if "FLAGS" in match[1] or "DEF" in match[1].upper() or "OPTIONS" in match[1]:
                    self._leave_out(f"what `{why}` sets of {match[1]}", file)
            known = self.values.get(match[1])
            return match[0] if known is None else known

        expanded = _REFERENCE.sub(value, text[:_LONGEST])[:_LONGEST] if self.left > 0 else ""
        self.left -= len(expanded)
        return expanded

    def _expressions(self, text: str, depth: int = 0) -> str:
        """The text with the values of its generator expressions, as they are where CUDA is compiled; one that is not known
        becomes a character sequence of `parts`.
        """
        made: list[str] = []
        position = 0
        while (start := text.find("$<", position)) >= 0:
            end = _closing(text, start)
            if end < 0 or depth > _MOST_DEPTH:
                break
            whole = text[start:end]
            head, _, rest = self._expressions(whole[2:-1], depth + 1).partition(":")
            value = None if _PART.search(head) else _value(head, rest)
            made += [text[position:start], f"\ue000{self._part(whole)}\ue001" if value is None else value]
            position = end
        return "".join([*made, text[position:]])

    def _part(self, text: str) -> int:
        self.parts.append(text)
        return len(self.parts) - 1

    def _leave_out(self, what: str, file: str) -> None:
        if len(self.left_out) < _MOST_LEFT_OUT:
            self.left_out.setdefault(what, file)

    # -- of the file --------------------------------------------------------------------------------

    def result(self) -> CMakeFlags:
        target, certain = self._target_of_file()
        settings = [*self.settings, *(target.settings if target else ())]
        if target:
            settings = [each for each in settings if each.applies] + list(self._passed_on(target))
        elif not certain:
            for name, other in self.targets.items():
                for each in other.settings:
                    if any(word.startswith("-D") for word in each.words):
                        self._leave_out(f"macros of {name}, if the file is one of its sources", each.file)
        words = [(word, each.file) for each in settings for word in each.words]
        if compiler := self.values.get("CMAKE_CUDA_COMPILER"):  # a database names it, and is asked for it
            self._leave_out(
                f"set(CMAKE_CUDA_COMPILER {compiler[:200]})",
                self.set_by.get("CMAKE_CUDA_COMPILER", self.file),
            )
        for name in self.values:
            if _is_of_nvcc(name):
                file = self.set_by.get(name, self.file)
                text = self._expressions(self.values[name])
                words += [(word, file) for word in re.split(r"[\s;]+", text)]
        kept = [
            (word, file)
            for word, file in words
            if word and not _OPTIONS_FILE.match(word) and self._is_known(word, file)
        ]
        return CMakeFlags(tuple(kept), tuple(self._architectures(target)), tuple(self.left_out.items()))

    def _is_known(self, word: str, file: str) -> bool:
        shown = _PART.sub(lambda match: self.parts[int(match[1])], word)
        if shown == word and "$" not in word:
            return True
        if shown.startswith("what `") or (not _REFERENCE.fullmatch(word) and _DECIDES.search(shown)):
            self._leave_out(shown, file)
        return False

    def _target_of_file(self) -> tuple[_Target | None, bool]:
        """The target that has the file among its sources; else the only one."""
        for target in self.targets.values():
            if any(_is_source(each, self.path) for each in target.sources[:_MOST_WORDS]):
                return target, True
        with_sources = [target for target in self.targets.values() if target.sources]
        return (with_sources[0], True) if len(with_sources) == 1 else (None, False)

    def _passed_on(self, target: _Target) -> Iterator[_Setting]:
        """What the targets that it links give it."""
        waiting, seen = list(target.linked), set[str]()
        while waiting and len(seen) < _MOST_WORDS:
            name = waiting.pop(0)
            if name in seen or name not in self.targets:
                continue
            seen.add(name)
            yield from (each for each in self.targets[name].settings if each.passed_on)
            waiting += self.targets[name].linked

    def _architectures(self, target: _Target | None) -> Iterator[tuple[str, str]]:
        value, file = target.architectures if target else ("", "")
        if not value:
            value, file = self.values.get(_ARCHITECTURES, ""), self.set_by.get(_ARCHITECTURES, self.file)
        for each in re.split(r"[\s;]+", value)[:_MOST_WORDS]:
            if match := _ARCHITECTURE.fullmatch(each):
                yield match[1], file


def without_comments(text: str) -> str:
    """A CMakeLists.txt without its comments, of a line and in brackets; its lines keep their numbers."""
    made: list[str] = []
    position = 0
    while match := _MARK.search(text, position):
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


def _commands(text: str) -> Iterator[tuple[str, str]]:
    """Each command in small letters, with the text of its arguments."""
    position = 0
    for _ in range(_MOST_COMMANDS):
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
        yield match[1].lower(), text[end : position - 1]


def _closing(text: str, start: int) -> int:
    """Behind the `>` that closes the `$<` at `start`; -1 for none."""
    depth = 0
    for match in re.finditer(r"\$<|>", text[start : start + _LONGEST]):
        depth += 1 if match[0] == "$<" else -1
        if depth == 0:
            return start + match.end()
    return -1


def _value(head: str, rest: str) -> str | None:
    """Of a generator expression whose parts are known; None where a configuration decides."""
    options = rest.split(",")
    match head:
        case "0" | "INSTALL_INTERFACE":
            return ""
        case "1" | "BUILD_INTERFACE":
            return rest
        case "COMPILE_LANGUAGE":
            return str(int("CUDA" in options))
        case "COMPILE_LANG_AND_ID":
            return str(int(options[0] == "CUDA" and "NVIDIA" in options))
        case "CUDA_COMPILER_ID":
            return str(int("NVIDIA" in options))
        case "CONFIG" if options == ["Debug"]:
            return "0"
        case "PLATFORM_ID" | "CXX_COMPILER_ID" | "C_COMPILER_ID" if options in (["Windows"], ["MSVC"]):
            return "0"
        case "NOT" if rest in ("0", "1"):
            return str(1 - int(rest))
        case "BOOL" if "$" not in rest and not _PART.search(rest):
            return str(int(not _OFF.fullmatch(rest)))
        case "AND" | "OR" if set(options) <= {"0", "1"}:
            return str(int(all(each == "1" for each in options) if head == "AND" else "1" in options))
        case "AND" if "0" in options:
            return "0"
        case _:
            return None


def _macros(words: Sequence[str]) -> list[str]:
    """As flags: CMake takes them with `-D` and without; what add_definitions takes besides stays."""
    return [word if word.startswith(("-", "/")) else f"-D{word}" for word in words if word]


def _is_of_nvcc(name: str) -> bool:
    """`CMAKE_CUDA_FLAGS`, `CUDA_NVCC_FLAGS`; not those of one configuration, or of another compiler."""
    rest, flags, behind = name.upper().rpartition("FLAGS")
    return bool(flags) and not behind and ("CU" in rest or "NVCC" in rest)


def _is_source(source: str, path: str) -> bool:
    if "*" not in source:
        return source == path
    if len(source) > 500 or source.count("*") > 6:
        return False
    deep = "**" in source
    return fnmatch.fnmatchcase(path, source.replace("[", "[[]")) and (
        deep or os.path.dirname(source) == os.path.dirname(path)
    )
