"""Interprets a CMake project: which commands a first configuration calls, and what its variables are. Its texts are
read; nothing is run.

Conditions, loops, functions and other files are followed. What an unknown condition would set is in doubt, and is
marked so.
"""

from __future__ import annotations

import fnmatch
import os
import platform
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import islice, pairwise
from typing import NamedTuple

from orbit_lsp.compilation.build_systems.cmake import language, presets
from orbit_lsp.compilation.build_systems.cmake.language import LONGEST, CMakeCommand, CMakeKnown
from orbit_remote.common.lazy_dataclass import dataclass

PART = re.compile(r"\ue000(\d+)\ue001")
"""A generator expression that is not known, by its place in `Interpreter.parts`."""
MOST_WORDS = 2_000
_PLAIN_PART = r'(?:\\.|[^\s";\\])'
_ARGUMENT = re.compile(
    rf'"((?:[^"\\]|\\.)*)"|({_PLAIN_PART}+(?:"(?:[^"\\]|\\.)*"{_PLAIN_PART}*)*)', re.DOTALL
)
_REFERENCE = re.compile(r"\$\{([\w.+-]{1,200})\}")
_VERSION = re.compile(r"VERSION[ \t\n]+(\d+)\.(\d+)(?:\.(\d+))?")
_PLAIN = re.compile(r"\^?[\w-]+\$?")
"""A pattern that means itself: others are not read."""
CONFIGURATIONS = {
    "DEBUG": "-g", "RELEASE": "-O3 -DNDEBUG", "RELWITHDEBINFO": "-O2 -g -DNDEBUG", "MINSIZEREL": "-O1 -DNDEBUG",
}  # fmt: skip
"""What CMake gives nvcc for each build type (Modules/CMakeCUDAInformation.cmake and CMakeInitializeConfigs, CMake 3.25)."""
_SYSTEM = {
    "CMAKE_SYSTEM_NAME": platform.system(), "CMAKE_HOST_SYSTEM_NAME": platform.system(), "CMAKE_CUDA_COMPILER_ID": "NVIDIA",
    "CMAKE_SYSTEM_PROCESSOR": platform.machine(), "CMAKE_SIZEOF_VOID_P": "8", "PROJECT_IS_TOP_LEVEL": "TRUE",
    **{f"CMAKE_CUDA_FLAGS_{name}": flags for name, flags in CONFIGURATIONS.items()},
}  # fmt: skip
"""What CMake sets by itself."""
_OF_FLAGS = re.compile(r"FLAGS|OPTIONS|DEFIN|_DEFS?$", re.IGNORECASE)
"""Variables whose values are given to compilers."""
_OUTPUTS = {
    "get_target_property": 0, "get_property": 0, "get_directory_property": 0, "get_source_file_property": 0, "find_library": 0,
    "find_path": 0, "find_program": 0, "find_file": 0, "get_filename_component": 0, "try_compile": 0, "site_name": 0,
    "cmake_host_system_information": 1, "cmake_path": 1, "math": 1,
}  # fmt: skip
"""Commands that set a variable, and which of their words names it."""
_OF_STRINGS = {
    "REGEX": 3, "SUBSTRING": 4, "STRIP": 2, "LENGTH": 2, "FIND": 3, "REPEAT": 3, "CONFIGURE": 2, "GENEX_STRIP": 2, "TIMESTAMP": 1,
    "MAKE_C_IDENTIFIER": 2, "UUID": 1, "ASCII": -1, "HEX": 2, "RANDOM": -1, "COMPARE": 4, "MD5": 1, "SHA1": 1, "SHA256": 1, "JSON": 1,
    "REPLACE": 3, "TOLOWER": 2, "TOUPPER": 2,
}  # fmt: skip
_OF_LISTS = {"LENGTH": 2, "GET": -1, "FIND": 3, "SUBLIST": 4}
_OF_FILES = {
    "STRINGS": 2,
    "READ": 2,
    "RELATIVE_PATH": 1,
    "REAL_PATH": 2,
    "TO_CMAKE_PATH": 2,
    "SIZE": 2,
    "TIMESTAMP": 2,
}
_MODULES = ("cmake", "cmake/modules", "cmake/Modules", "CMake", "")
_MOST_STEPS = 10_000
"""Commands that are followed, those of functions and loops each time."""
_MOST_FILES = 64
_MOST_TEXT = 2 << 20
"""Characters of all files."""
_MOST_ITEMS = 200
"""Items of a loop that are followed."""
_MOST_FOLDERS = 2_000
"""Folders that are looked through for one `file(GLOB_RECURSE …)`."""
_MOST_LEFT_OUT = 12
_MOST_DEPTH = 8
_DEEPEST = 32
"""Functions and files that call one another."""
_DEEPEST_BLOCK = 64
_MOST_EXPANDED = 1 << 20
"""Characters of all commands together, once variables have their values."""


@dataclass(slots=True)
class CMakeScope:
    """The variables of a folder or a function. `doubtful` ones are set under an unknown condition; they have that
    condition and the file. `guesses` are the first values that they get there.
    """

    values: dict[str, str] = field(default_factory=dict[str, str])
    set_by: dict[str, str] = field(default_factory=dict[str, str])
    doubtful: dict[str, tuple[str, str]] = field(default_factory=dict[str, "tuple[str, str]"])
    guesses: dict[str, str] = field(default_factory=dict[str, str])

    def inner(self) -> CMakeScope:
        return CMakeScope(dict(self.values), dict(self.set_by), dict(self.doubtful), dict(self.guesses))

    def set(self, name: str, value: str, file: str, doubt: str) -> None:
        if doubt:
            self.doubtful[name] = doubt, file
            self.guesses.setdefault(name, value)
        elif len(value) <= LONGEST:
            self.values[name], self.set_by[name] = value, file
            self.doubtful.pop(name, None)


class _Function(NamedTuple):
    parameters: list[str]
    body: list[CMakeCommand]
    macro: bool
    file: str


class CMakeInterpreter:
    def __init__(
        self,
        top: str,
        text_of: Callable[[str], str],
        entered: Callable[[], None],
        consume: Callable[[str, str, str], None],
        known_targets: Mapping[str, object],
    ) -> None:
        """Make an interpreter. `entered` is called where a CMakeLists.txt begins. `consume` gets the name and the
        arguments of each command that sets no variable, and its doubt: the unknown condition around it, "" for none.
        `known_targets` are those that a condition may ask for.
        """
        self.top = top
        self.text_of = text_of
        self.entered = entered
        self.consume = consume
        self.known_targets = known_targets
        self.file: str = ""
        self.line: int = 0
        self.lists: str = ""
        """The CMakeLists.txt that is followed: `file` may be one that it includes."""
        self.above: dict[str, str] = {}
        """For each CMakeLists.txt, the one that reached it."""
        self.scope: CMakeScope = CMakeScope({"CMAKE_SOURCE_DIR": top, "PROJECT_SOURCE_DIR": top, **_SYSTEM})
        self.outer: list[CMakeScope] = []
        """The scopes of the folders and functions around the current one, the outermost first."""
        self.scopes: dict[str, CMakeScope] = {}
        self.functions: dict[str, _Function] = {}
        self.running: list[str] = []
        """Functions and files that call one another."""
        self.returning = False
        self.leaving = ""
        """`break` or `continue`, until the loop has seen it."""
        self.guarded: set[str] = set()
        self.parts: list[str] = []
        self.left_out: dict[str, str] = {}
        self.left = _MOST_EXPANDED
        self.steps = self.text = self.depth = 0
        file, given = presets.usual_variables(top)
        self.scope.values |= given
        self.scope.set_by |= dict.fromkeys(given, file)

    @property
    def here(self) -> str:
        """Return the folder that is configured."""
        return os.path.dirname(self.lists) or self.top

    # -- files, functions and blocks ----------------------------------------------------------------

    def folder(self, file: str, above: str) -> None:
        """Follow a CMakeLists.txt as the one `above` it reaches it, "" for none."""
        before, lists = self.scope, self.lists
        self.outer.append(before)
        self.scope = self.scopes[file] = self.scopes.get(above, before).inner()
        self.lists, self.above[file] = file, above
        self.scope.values["CMAKE_CURRENT_SOURCE_DIR"] = self.here
        self.entered()
        self._included(file)
        self.outer.pop()
        self.scope, self.lists = before, lists

    def _included(self, file: str, doubt: str = "") -> None:
        """Follow a file in the current scope."""
        text = self.text_of(file)
        self.text += len(text)
        if len(self.running) > _DEEPEST or len(self.scopes) > _MOST_FILES or self.text > _MOST_TEXT:
            self.leave_out(
                f"what {os.path.relpath(file, self.top)} adds, because the project has too many files", file
            )
            return
        before = self.file, self.scope.values.get("CMAKE_CURRENT_LIST_DIR", "")
        self.file, self.scope.values["CMAKE_CURRENT_LIST_DIR"] = file, os.path.dirname(file)
        self.running.append(file)
        listed = list(language.commands(language.without_comments(text)))
        if len(listed) >= language.MOST_COMMANDS:
            self.leave_out(f"what follows its first {len(listed):,} commands", file)
        self.run(listed, doubt)
        self.returning = False
        self.running.pop()
        self.file, self.scope.values["CMAKE_CURRENT_LIST_DIR"] = before

    def run(self, listed: Sequence[CMakeCommand], doubt: str) -> None:
        if self.depth >= _DEEPEST_BLOCK:
            self.leave_out(
                f"what more than {_DEEPEST_BLOCK} conditions and loops in one another add", self.file
            )
            return
        self.depth += 1
        self._run(listed, doubt)
        self.depth -= 1

    def _run(self, listed: Sequence[CMakeCommand], doubt: str) -> None:
        at = 0
        while at < len(listed) and not self.returning and not self.leaving:
            command = listed[at]
            at += 1
            self.steps += 1
            if self.steps > _MOST_STEPS:
                self.leave_out(f"what follows the first {_MOST_STEPS:,} commands", self.file)
                return
            self.line = command.line
            if command.name == "if":
                at = self._if(listed, at - 1, doubt)
            elif command.name in ("foreach", "function", "macro", "while", "block"):
                end = _end(listed, at - 1)
                body = listed[at:end]
                at = end + 1
                if command.name == "foreach":
                    self._foreach(command, body, doubt)
                elif command.name == "while":
                    self.run(body, doubt or f"while({' '.join(command.arguments.split())})")
                    self.leaving = ""
                elif command.name == "block":
                    self._block(command, body, doubt)
                else:
                    words = self.words(command.arguments)
                    if words:
                        self.functions[words[0].lower()] = _Function(
                            words[1:], list(body), command.name == "macro", self.file
                        )
            else:
                self._called(command, doubt)

    def _if(self, listed: Sequence[CMakeCommand], at: int, doubt: str) -> int:
        """Follow the branches that are taken or may be taken. Return the place behind the `endif`."""
        end = _end(listed, at)
        starts = [at, *_branches(listed, at, end), end]
        unknown = ""
        for begin, behind in pairwise(starts):
            command = listed[begin]
            holds = True if command.name == "else" else self._holds(command.arguments)
            if holds is False:
                continue
            if holds is None:
                unknown = unknown or f"if({' '.join(command.arguments.split())})"
            self.run(listed[begin + 1 : behind], doubt or unknown)
            if holds:
                break
        return end + 1

    def _holds(self, arguments: str) -> bool | None:
        words = language.tokens(self.expanded(arguments))
        return language.holds(
            words, CMakeKnown(self.scope.values, self.scope.doubtful, self.known_targets, self.here)
        )

    def _foreach(self, command: CMakeCommand, body: Sequence[CMakeCommand], doubt: str) -> None:
        name, *words = self.words(command.arguments) or [""]
        before = self.scope.values.get(name)
        items = [each for item in self._items(words) for each in self._matching(item)]
        if len(items) > _MOST_ITEMS:
            self.leave_out(f"what `foreach({name} …)` adds behind its first {_MOST_ITEMS} items", self.file)
        for item in items[:_MOST_ITEMS]:
            known = "$" not in item and not PART.search(item)
            self.scope.set(name, item, self.file, "")
            self.run(body, doubt if known else doubt or f"foreach({' '.join(command.arguments.split())})")
            left, self.leaving = self.leaving, ""
            if self.returning or left == "break":
                break
        if before is None:
            self.scope.values.pop(name, None)
        else:
            self.scope.values[name] = before

    def _items(self, words: list[str]) -> list[str]:
        """Return what a `foreach` iterates, as far as it is known."""
        match words:
            case ["RANGE", last]:
                return _range("0", last, "1")
            case ["RANGE", first, last, *step]:
                return _range(first, last, *step[:1] or ["1"])
            case ["IN", "ZIP_LISTS", *_]:
                return ["${ZIP_LISTS}"]
            case ["IN", *listed]:
                items: list[str] = []
                way = "ITEMS"
                for word in listed:
                    if word in ("ITEMS", "LISTS"):
                        way = word
                    elif way == "ITEMS":
                        items.append(word)
                    else:
                        items += filter(None, self.scope.values.get(word, "").split(";"))
                return items
            case _:
                return words

    def _matching(self, item: str) -> Sequence[str]:
        """Return the files that a pattern of `file(GLOB …)` means, in CMake's order. Any other item stays."""
        folder, last = os.path.split(os.path.normpath(os.path.join(self.here, item)))
        if "*" not in item or "*" in folder or not f"{folder}/".startswith(f"{self.top}/"):
            return (item,)
        matching: list[str] = []
        for place, _, names in islice(os.walk(folder), _MOST_FOLDERS if "**" in last else 1):
            matching += (os.path.join(place, name) for name in fnmatch.filter(names, last.replace("**", "*")))
        return sorted(matching) or (item,)

    def _block(self, command: CMakeCommand, body: Sequence[CMakeCommand], doubt: str) -> None:
        """Run a block in a scope of its own. Only the variables that it passes on leave the scope."""
        outer, words = self.scope, self.words(command.arguments)
        if "SCOPE_FOR" in words and "VARIABLES" not in words:
            self.run(body, doubt)
            return
        self.outer.append(outer)
        self.scope = outer.inner()
        self.run(body, doubt)
        for name in words[words.index("PROPAGATE") + 1 :] if "PROPAGATE" in words else ():
            if name in self.scope.values:
                outer.set(name, self.scope.values[name], self.file, doubt)
        self.outer.pop()
        self.scope = outer

    def _called(self, command: CMakeCommand, doubt: str) -> None:
        if len(command.arguments) > LONGEST:
            self.leave_out(f"what {command.name} has after its first {LONGEST:,} characters", self.file)
        function = self.functions.get(command.name)
        if function is None or command.name in self.running:
            self._command(command, doubt)
        elif len(self.running) < _DEEPEST:
            self._function(command.name, function, self.words(command.arguments), doubt)

    def _function(self, name: str, function: _Function, words: list[str], doubt: str) -> None:
        """Call a function or a macro. A function has a scope of its own. A macro's text gets the words; for what is
        read here that makes no difference.
        """
        before, file, line = self.scope, self.file, self.line
        given = dict(zip(function.parameters, words, strict=False))
        given |= {f"ARGV{at}": word for at, word in enumerate(words[:20])}
        given |= {
            "ARGV": ";".join(words),
            "ARGN": ";".join(words[len(function.parameters) :]),
            "ARGC": str(len(words)),
        }
        saved = {key: before.values.get(key) for key in given}
        if not function.macro:
            self.outer.append(before)
            self.scope = before.inner()
        for key, value in given.items():
            self.scope.set(key, value[:LONGEST], file, "")
        self.running.append(name)
        self.file = function.file
        self.run(function.body, doubt)
        self.returning = self.returning and function.macro  # a macro's is that of who calls it
        self.running.pop()
        self.file, self.line = file, line
        if function.macro:
            for key, value in saved.items():
                if value is None:
                    before.values.pop(key, None)
                else:
                    before.values[key] = value
        else:
            self.outer.pop()
            self.scope = before

    def _command(self, command: CMakeCommand, doubt: str) -> None:
        arguments = command.arguments
        if command.name in ("set", "list", "string", "option", "file", "unset", "aux_source_directory"):
            self._variable(command.name, self.words(arguments, split=False), doubt)
        elif command.name == "project":
            self._named_project(arguments)
            self.consume("enable_language", arguments, doubt)
        elif command.name == "add_subdirectory":
            if words := self.words(arguments):
                self._subdirectory(words[0])
        elif command.name == "include":
            if words := self.words(arguments):
                self._module(words[0], doubt)
        elif command.name == "return":
            self.returning = not doubt
        elif command.name in ("break", "continue"):
            self.leaving = "" if doubt else command.name
        elif command.name == "include_guard":
            self.returning = self.file in self.guarded
            self.guarded.add(self.file)
        elif command.name == "separate_arguments":
            if words := self.words(arguments):
                value = self.scope.values.get(words[0], "")
                self.scope.set(words[0], re.sub(r"\s+", ";", value.strip()), self.file, doubt)
        elif command.name == "cmake_language":
            words = self.words(arguments)
            if words[:1] == ["CALL"] and len(words) > 1:
                quoted = " ".join(f'"{word}"' for word in words[2:])
                self._called(CMakeCommand(words[1].lower(), quoted, command.line), doubt)
        elif command.name in _OUTPUTS:
            self._output(command.name, self.words(arguments, split=False), _OUTPUTS[command.name])
        elif command.name == "execute_process":
            words = self.words(arguments, split=False)
            for at, word in enumerate(words[:-1]):
                if word in ("OUTPUT_VARIABLE", "RESULT_VARIABLE", "ERROR_VARIABLE", "RESULTS_VARIABLE"):
                    self._output(command.name, words, at + 1)
        elif command.name == "cmake_parse_arguments":
            self._parse_arguments(self.words(arguments, split=False), doubt)
        else:
            self.consume(command.name, arguments, doubt)

    def _named_project(self, arguments: str) -> None:
        words = self.words(arguments)
        name = words[0] if words else ""
        named = {"PROJECT_NAME": name, "PROJECT_SOURCE_DIR": self.here, f"{name}_SOURCE_DIR": self.here}
        if version := _VERSION.search(self.expanded(arguments)):
            for project in (name, "PROJECT"):
                parts = zip(("MAJOR", "MINOR", "PATCH"), version.groups("0"), strict=True)
                named |= {f"{project}_VERSION_{part}": number for part, number in parts}
                named[f"{project}_VERSION"] = ".".join(each for each in version.groups() if each is not None)
        self.scope.values |= named
        self.scope.values.setdefault("CMAKE_PROJECT_NAME", name)

    def _subdirectory(self, name: str) -> None:
        file = os.path.normpath(os.path.join(self.here, name, "CMakeLists.txt"))
        if "$" not in name and file not in self.scopes and file not in self.running and self.text_of(file):
            self.folder(file, self.lists)

    def _module(self, name: str, doubt: str) -> None:
        paths = self.scope.values.get("CMAKE_MODULE_PATH", "").split(";")
        if os.path.splitext(name)[1]:
            places = [os.path.join(self.here, name)]
        else:
            folders = [*filter(None, paths), *(os.path.join(at, each) for at in (self.here, self.top) for each in _MODULES)]  # fmt: skip
            places = [os.path.join(self.here, folder, f"{name}.cmake") for folder in folders]
        for place in map(os.path.normpath, places):
            if "$" not in place and place not in self.running and self.text_of(place):
                self._included(place, doubt)
                return

    def _parse_arguments(self, words: list[str], doubt: str) -> None:
        """Set A_SHARED, A_NAME and A_SOURCES for `cmake_parse_arguments(A "SHARED" "NAME" "SOURCES" ${ARGN})`."""
        if words[:1] == ["PARSE_ARGV"]:
            first = int(words[1]) if len(words) > 1 and words[1].isdecimal() else 0
            given = self.scope.values.get("ARGV", "").split(";")[first:]
            words = [*words[2:6], *given]
        if len(words) < 4:
            return
        prefix, options, single, many, *given = words
        given = [part for word in given for part in word.split(";")]
        kinds = {
            name: kind
            for kind, names in enumerate((options, single, many))
            for name in names.split(";")
            if name
        }
        made: dict[str, list[str]] = {}
        current = "UNPARSED_ARGUMENTS"
        for word in given[:MOST_WORDS]:
            if word in kinds:
                current = word
                made[word] = ["TRUE"] if kinds[word] == 0 else []
            elif kinds.get(current, 2) == 2 or (kinds[current] == 1 and not made[current]):
                made.setdefault(current, []).append(word)
            else:
                made.setdefault("UNPARSED_ARGUMENTS", []).append(word)
        for name in (*kinds, "UNPARSED_ARGUMENTS"):
            if name in made:
                self.scope.set(f"{prefix}_{name}", ";".join(made[name]), self.file, doubt)
            elif kinds.get(name) == 0:
                self.scope.set(f"{prefix}_{name}", "FALSE", self.file, doubt)
            else:
                self.scope.values.pop(f"{prefix}_{name}", None)

    def _variable(self, command: str, words: list[str], doubt: str) -> None:
        scope = self.scope
        match (command, words):
            case ("option", [name, *rest]):
                if rest and name not in scope.values:
                    on = len(rest) > 1 and not language.OFF.fullmatch(rest[-1])
                    scope.set(name, "ON" if on else "OFF", self.file, doubt)
                return
            case ("unset", [name, *_]):
                if not doubt:
                    scope.values.pop(name, None)
                return
            case ("set", [name, *values]):
                cached = "CACHE" in values
                if cached and name in scope.values and "FORCE" not in values[values.index("CACHE") :]:
                    return
                values = values[: values.index("CACHE")] if cached else values
                if not values and not doubt:
                    scope.values.pop(name, None)
                    return
                if values[-1:] == ["PARENT_SCOPE"]:
                    values = values[:-1]
                    scope = self.outer[-1] if self.outer else scope
                value = ";".join(values)
            case ("list", ["APPEND", name, *values]):
                value = ";".join(filter(None, (scope.values.get(name, ""), *values)))
            case ("list", ["PREPEND", name, *values]):
                value = ";".join(filter(None, (*values, scope.values.get(name, ""))))
            case ("list", ["REMOVE_ITEM", name, *values]):
                value = ";".join(each for each in scope.values.get(name, "").split(";") if each not in values)
            case ("string", ["APPEND", name, *values]):
                value = scope.values.get(name, "") + "".join(values)
            case ("list", ["FILTER" | "TRANSFORM" | "INSERT" | "REMOVE_AT" | "REMOVE_DUPLICATES" | "REVERSE" | "SORT" | "POP_BACK" | "POP_FRONT", name, *_]):  # fmt: skip
                self._output(f"list({words[0]})", words, 1)
                return
            case ("string", ["TOLOWER" | "TOUPPER" as way, text, name]):
                value = text.lower() if way == "TOLOWER" else text.upper()
            case ("string", ["REPLACE", old, new, name, *texts]) if old:
                value = "".join(texts).replace(old, new)
            case ("string", ["REGEX", "REPLACE", pattern, new, name, *texts]) if _PLAIN.fullmatch(pattern):
                begin, end = "^" * pattern.startswith("^"), "$" * pattern.endswith("$")
                inner = re.escape(pattern.removeprefix("^").removesuffix("$"))
                value = re.sub(begin + inner + end, lambda _: new, "".join(texts))
            case ("string", ["CONCAT", name, *values]):
                value = "".join(values)
            case ("string", ["JOIN", by, name, *values]):
                value = by.join(values)
            case ("list", ["JOIN", name, by, output]):
                value, name = scope.values.get(name, "").replace(";", by), output
            case ("file", ["GLOB" | "GLOB_RECURSE" as way, name, *values]):
                values = [each.replace("*", "**") if way == "GLOB_RECURSE" else each for each in values]
                value = ";".join(each for each in values if each != "CONFIGURE_DEPENDS")
            case ("aux_source_directory", [folder, name]):
                added = ";".join(f"{folder}/*{suffix}" for suffix in (".cu", ".cpp", ".cc", ".cxx", ".c"))
                value = ";".join(filter(None, (scope.values.get(name, ""), added)))
            case ("list" | "string" | "file", [way, *_]):
                table = {"list": _OF_LISTS, "string": _OF_STRINGS, "file": _OF_FILES}[command]
                if way in table:
                    self._output(f"{command}({way})", words, table[way])
                return
            case _:
                return
        scope.set(name, value, self.file, doubt)

    def _output(self, command: str, words: Sequence[str], at: int) -> None:
        """Set a variable that the output of a command sets. The command is not run."""
        if not -len(words) <= at < len(words):
            return
        name = words[at]
        match (command, words):
            case (
                "get_filename_component",
                [_, path, "NAME" | "NAME_WE" | "DIRECTORY" | "PATH" | "ABSOLUTE" as way, *_],
            ) if "$" not in path:
                last = os.path.basename(path)
                made = {
                    "NAME": last, "NAME_WE": last.partition(".")[0], "ABSOLUTE": os.path.normpath(os.path.join(self.here, path)),
                }.get(way, os.path.dirname(path))  # fmt: skip
                self.scope.set(name, made, self.file, "")
            case ("math", [_, _, text, *_]) if (value := language.computed(text)) is not None:
                self.scope.set(name, str(value), self.file, "")
            case _:
                self.scope.set(name, "", self.file, f"{command}(…)")

    # -- words --------------------------------------------------------------------------------------

    def words(self, arguments: str, *, split: bool = True) -> list[str]:
        """Return a command's words with the values of variables. A list becomes several words. Without `split` a
        quoted word stays one.
        """
        words: list[str] = []
        for match in _ARGUMENT.finditer(self.expressions(self.expanded(arguments))):
            quoted, plain = match.groups()
            word = (plain if quoted is None else quoted).replace('\\"', '"')
            words += [word] if quoted is None or not split else word.split(";")
            if len(words) > MOST_WORDS:
                break
        return words

    def options(self, arguments: str) -> list[str]:
        text = re.sub(r'(?<!\\)"', " ", self.expressions(self.expanded(arguments))).replace("SHELL:", " ")
        return re.split(r"[\s;]+", text.replace('\\"', '"').strip())[:MOST_WORDS]

    def expanded(self, text: str, depth: int = 0) -> str:
        scope = self.scope

        def value(match: re.Match[str]) -> str:
            known = scope.values.get(match[1])
            if match[1] in scope.doubtful and _OF_FLAGS.search(match[1]):
                why, _ = scope.doubtful[match[1]]
                return f"{known or ''} {self.in_doubt(f'what `{why}` sets of {match[1]}')}".strip()
            return match[0] if known is None or match[1] in scope.doubtful else known

        expanded = _REFERENCE.sub(value, text[:LONGEST])[:LONGEST] if self.left > 0 else ""
        self.left -= len(expanded)
        if "${" in expanded and expanded != text and depth < 2:  # `${${NAME}_SOURCES}`
            return self.expanded(expanded, depth + 1)
        return expanded

    def expressions(self, text: str, depth: int = 0) -> str:
        """Return the text with the values of its generator expressions where CUDA is compiled. An unknown one becomes
        a character sequence of `parts`.
        """
        made: list[str] = []
        position = 0
        while (start := text.find("$<", position)) >= 0:
            end = language.closing(text, start)
            if end < 0 or depth > _MOST_DEPTH:
                break
            whole = text[start:end]
            head, _, rest = self.expressions(whole[2:-1], depth + 1).partition(":")
            value = None if PART.search(head) else language.expression(head, rest, self.configuration(), lambda text: bool(PART.search(text)))  # fmt: skip
            made += [text[position:start], self.in_doubt(whole) if value is None else value]
            position = end
        return "".join([*made, text[position:]])

    def configuration(self) -> str:
        """Return the build type that the project chooses if its user chooses none. Return "" for none."""
        value = self.scope.values.get("CMAKE_BUILD_TYPE", "")
        return "" if "CMAKE_BUILD_TYPE" in self.scope.doubtful or "$" in value else value.upper()

    def part(self, text: str) -> int:
        self.parts.append(text)
        return len(self.parts) - 1

    def in_doubt(self, what: str) -> str:
        """Return a word that stands for something unknown. If it is one of the file's, it is noted as such."""
        return f"\ue000{self.part(what)}\ue001"

    def leave_out(self, what: str, file: str) -> None:
        if len(self.left_out) < _MOST_LEFT_OUT:
            self.left_out.setdefault(what, file)


def _range(first: str, last: str, step: str) -> list[str]:
    """Return the whole numbers of a range as texts. As in CMake, the range includes its end."""
    if not (first.isdecimal() and last.isdecimal() and step.isdecimal() and int(step)):
        return []
    return list(map(str, islice(range(int(first), int(last) + 1, int(step)), _MOST_ITEMS + 1)))


def _end(listed: Sequence[CMakeCommand], at: int) -> int:
    """Return the place of the command that ends the block beginning at `at`. Return the place behind the last command
    if none does.
    """
    name = listed[at].name
    depth = 0
    for place in range(at, len(listed)):
        depth += (listed[place].name == name) - (listed[place].name == f"end{name}")
        if depth == 0:
            return place
    return len(listed)


def _branches(listed: Sequence[CMakeCommand], at: int, end: int) -> Iterator[int]:
    """Yield the `elseif` and `else` of an `if`."""
    depth = 0
    for place in range(at, end):
        name = listed[place].name
        depth += (name == "if") - (name == "endif")
        if depth == 1 and name in ("elseif", "else"):
            yield place
