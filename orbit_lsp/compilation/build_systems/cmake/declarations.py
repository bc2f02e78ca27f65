"""Reads how CMake compiles a CUDA file from what its target and the folders above it declare.

The files are read as text; nothing is run. It assumes a first configuration without options: options have their
defaults, and a condition about CUDA holds. This is the only reader of CMake: flags, include folders and the values of
templates come from it.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from pathlib import Path
from typing import NamedTuple

from orbit_lsp.compilation.build_systems.cmake import language, presets
from orbit_lsp.compilation.build_systems.cmake.interpreter import (
    CONFIGURATIONS,
    MOST_WORDS,
    PART,
    CMakeInterpreter,
    CMakeScope,
)
from orbit_remote.common.lazy_dataclass import dataclass

_OPTIONS_FILE = re.compile(r"@|--?options-file|--?optf")
"""Files of options are not followed: they may lie anywhere."""
_REFERENCE = re.compile(r"\$\{[\w.+-]{1,200}\}")
_ARCHITECTURE = re.compile(r"(\d{2,3}[af]?)(?:-real|-virtual)?")
_DECIDES = re.compile(
    r"-D|-U|fast_math|-arch|gencode|gpu-|-ftz|-fmad|-prec-|maxrregcount|-std|-rdc|-dc\b|-expt|lambda|FLAGS|-Xptxas|ptxas-options"
)
_KEYWORDS = {"PUBLIC", "PRIVATE", "INTERFACE", "SYSTEM", "BEFORE", "AFTER"}
_ARCHITECTURES = "CMAKE_CUDA_ARCHITECTURES"
_NO_TARGET = {
    "install", "message", "source_group", "set", "list", "file", "string", "set_source_files_properties", "foreach", "return",
    "get_filename_component", "configure_file", "include", "project", "option", "mark_as_advanced", "unset", "cmake_path",
    "get_source_file_property", "cmake_parse_arguments", "if", "export", "cmake_minimum_required", "find_package", "add_test",
}  # fmt: skip
"""Commands that may name a source and give it no flag."""


NAME = "CMakeLists.txt"
_MOST_KEPT = 64


class NamedFolder(NamedTuple):
    """An include folder as its command names it, with the file and the line. `path` may have variables that are not
    known.
    """

    path: str
    file: str
    line: int


class CMakeFlags(NamedTuple):
    """CMake's flags for a file. `words` are options of nvcc, with the file that names each. `left_out` is what only
    CMake knows. `folders` are those that the file is given, then those of other targets and of conditions that are
    not known. `is_source`: a target names the file.
    """

    words: tuple[tuple[str, str], ...] = ()
    architectures: tuple[tuple[str, str], ...] = ()
    left_out: tuple[tuple[str, str], ...] = ()
    folders: tuple[NamedFolder, ...] = ()
    is_source: bool = False
    standard: tuple[str, str] = ("", "")
    """The C++ standard of the file's target, `17`, and the file that says it; "" where it is not known."""
    macros: tuple[tuple[str, str], ...] = ()
    """Macros of targets where none is known to have the file, with the file that names each; those of one value alone."""
    relocatable: str | None = None
    """The file that says whether device code is linked later, "" where it says that it is not; None for no word about it."""
    of_find_cuda: bool = False
    """The target that has the file is made by `cuda_add_library` and the like, whose commands no database of CMake's has."""


class CMakeTarget(NamedTuple):
    """A target with the sources and the targets that its commands name. `tested` has the arguments of tests that run
    it. `whole`: all of its sources are known.
    """

    name: str
    is_program: bool
    sources: list[str]
    linked: list[str]
    tested: list[tuple[str, ...]]
    whole: bool

    def has(self, path: str) -> bool:
        """Return whether a file is one of its sources."""
        return any(_is_source(each, path) for each in self.sources[:MOST_WORDS])


class _Setting(NamedTuple):
    """Words that one command gives a target, or all targets of a folder. `passed_on`: targets that link it get them
    too. `applies`: the target itself gets them.
    """

    words: tuple[str, ...]
    file: str
    passed_on: bool = False
    applies: bool = True
    folder: NamedFolder | None = None
    macros: bool = False
    """They are definitions, and not options that define something."""
    later: bool = False
    """What a command gives a folder: only targets that are made behind the command get it."""


@dataclass(slots=True)
class _Directory:
    """A folder with a CMakeLists.txt. `settings` are for all its targets."""

    path: str
    settings: list[_Setting] = field(default_factory=list[_Setting])
    linked: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """What `link_libraries` gives the targets that are made behind it."""


@dataclass(slots=True)
class _CMakeTarget:
    sources: list[str] = field(default_factory=list[str])
    settings: list[_Setting] = field(default_factory=list[_Setting])
    linked: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Each with how: `PRIVATE` ones pass nothing on to who links this target."""
    architectures: tuple[str, str] = ("", "")
    standard: tuple[str, str] = ("", "")
    """That of CUDA, else that of C++, which CMake then gives nvcc too."""
    standard_of_cuda: bool = False
    of_find_cuda: bool = False
    """Made by `cuda_add_library` and the like, which take `CUDA_NVCC_FLAGS` and not `CMAKE_CUDA_FLAGS`."""
    relocatable: str | None = None
    directory: _Directory | None = None
    is_program: bool = False
    made_behind: int = 0
    """How many settings its folder had when it was made."""

    def set_standard(self, language_of: str, standard: str, file: str) -> None:
        if language_of == "CUDA":
            self.standard, self.standard_of_cuda = (standard, file), True
        elif not self.standard_of_cuda and not self.of_find_cuda:
            self.standard = standard, file


_known: dict[tuple[tuple[str, ...], str], tuple[dict[str, tuple[int, int]], CMakeFlags]] = {}


def read(files: Sequence[str], path: str, text_of: Callable[[str], str]) -> CMakeFlags:
    """Read the flags of a source file. `files` are the CMakeLists.txt above it, the highest first. `text_of` gives
    the text of a file of the workspace, "" for any other. Reads presets. The last answers are kept while no file
    changes, because a large project takes half a second.
    """
    if not files:
        return CMakeFlags()
    key = (tuple(files), path)
    known = _known.get(key)
    if known is None or any(_state(file) != state for file, state in known[0].items()):
        presets_of_top = [os.path.join(os.path.dirname(files[0]), name) for name in presets.NAMES]
        states = {file: _state(file) for file in presets_of_top}

        def noted(file: str) -> str:
            states.setdefault(file, _state(file))
            return text_of(file)

        known = states, _configured(files, path, noted).result()
        _known.pop(key, None)
        while len(_known) >= _MOST_KEPT:
            _known.pop(next(iter(_known)), None)
        _known[key] = known
    return known[1]


def _state(file: str) -> tuple[int, int]:
    try:
        status = os.stat(file)
    except (OSError, ValueError):
        return 0, 0
    return status.st_mtime_ns, status.st_size


def values(files: Sequence[str], text_of: Callable[[str], str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the variables in the folder of the last of these CMakeLists.txt. Return also the first values of
    variables that only an unknown condition sets.
    """
    if not files:
        return {}, {}
    project = _configured(files, os.path.join(os.path.dirname(files[-1]), "."), text_of)
    scope = project.cmake.scopes.get(files[-1], CMakeScope())
    guesses = {name: scope.guesses[name] for name in scope.doubtful if name in scope.guesses}
    known = {name: value for name, value in scope.values.items() if name not in guesses}
    return _plain(known), _plain(scope.guesses | scope.values)


_targets: dict[str, tuple[dict[str, tuple[int, int]], list[CMakeTarget]]] = {}


def targets(top: str, text_of: Callable[[str], str]) -> list[CMakeTarget]:
    """Return the targets of the project whose CMakeLists.txt is `top`. The last answers are kept while no file
    changes.
    """
    known = _targets.get(top)
    if known is None or any(_state(file) != state for file, state in known[0].items()):
        states: dict[str, tuple[int, int]] = {}

        def noted(file: str) -> str:
            states.setdefault(file, _state(file))
            return text_of(file)

        known = states, list(_targets_of(_configured([top], os.path.dirname(top), noted)))
        while len(_targets) >= _MOST_KEPT:
            _targets.pop(next(iter(_targets)), None)
        _targets[top] = known
    return known[1]


def _targets_of(project: _Project) -> Iterator[CMakeTarget]:
    def shown(source: str) -> str:
        return PART.sub(lambda match: project.cmake.parts[int(match[1])], source)

    for name, target in project.targets.items():
        sources = [shown(each) for each in target.sources]
        whole = not any("$" in each for each in sources)
        linked = [each for each, _ in target.linked]
        yield CMakeTarget(name, target.is_program, sources, linked, project.tests.get(name, []), whole)


def _plain(values: dict[str, str]) -> dict[str, str]:
    """Return the values that have nothing left to expand."""
    return {name: value for name, value in values.items() if "$" not in value and not PART.search(value)}


def _configured(files: Sequence[str], path: str, text_of: Callable[[str], str]) -> _Project:
    project = _Project(os.path.dirname(files[0]), path, text_of)
    above = ""
    for file in files:  # a folder that no command reaches is taken as if the one above it had named it
        if file not in project.cmake.scopes:
            project.cmake.folder(file, above)
        above = file
    return project


class _Project:
    """The targets of a project, and what they and their folders are given."""

    def __init__(self, top: str, path: str, text_of: Callable[[str], str]) -> None:
        self.path = path
        self.targets: dict[str, _CMakeTarget] = {}
        self.directories: dict[str, _Directory] = {}
        """By their CMakeLists.txt."""
        self.tests: dict[str, list[tuple[str, ...]]] = {}
        """The arguments with which tests run a program, by its name."""
        self.of_source: list[_Setting] = []
        self.native = False
        """CUDA is one of CMake's languages here: `CUDA_NVCC_FLAGS` are then FindCUDA's alone."""
        self.cmake = CMakeInterpreter(top, text_of, self._enter, self._command, self.targets)

    def _enter(self) -> None:
        """Begin a folder with what the one above it has until then."""
        lists = self.cmake.lists
        above = self.directories.get(self.cmake.above[lists])
        self.directories[lists] = _Directory(
            self.cmake.here, list(above.settings) if above else [], list(above.linked) if above else []
        )

    @property
    def directory(self) -> _Directory:
        """Return the folder that is configured."""
        return self.directories[self.cmake.lists]

    # -- commands -----------------------------------------------------------------------------------

    def _command(self, command: str, arguments: str, doubt: str) -> None:
        if command in ("add_compile_definitions", "add_definitions"):
            self._apply(
                self.directory.settings, _macros(self.cmake.words(arguments, split=False)), command, doubt
            )
        elif command == "add_compile_options":
            self._apply(self.directory.settings, self.cmake.options(arguments), command, doubt, later=True)
        elif command == "include_directories":
            self._folders(self.directory.settings, self.cmake.words(arguments), doubt)
        elif command == "target_include_directories":
            name, *rest = self.cmake.words(arguments) or [""]
            self._folders(self._target(name).settings, rest, doubt)
        elif command in ("target_compile_definitions", "target_compile_options"):
            self._target_words(command, arguments, doubt)
        elif command in ("set_target_properties", "set_property", "set_source_files_properties"):
            self._properties(command, self.cmake.words(arguments, split=False), doubt)
        elif command in ("target_link_libraries", "cuda_link_libraries"):
            name, *linked = self.cmake.words(arguments) or [""]
            self._target(name).linked += self._linked(linked)
        elif command == "link_libraries":
            self.directory.linked += self._linked(self.cmake.words(arguments))
        elif command == "set_directory_properties":
            words = self.cmake.words(arguments, split=False)
            pairs = dict(zip(words[1::2], words[2::2], strict=False))
            self._property_words(self.directory.settings, pairs, command, doubt)
        elif command == "remove_definitions":
            removed = set(_macros(self.cmake.words(arguments, split=False)))
            listed = self.directory.settings
            listed[:] = [
                each._replace(words=tuple(w for w in each.words if w not in removed)) for each in listed
            ]
        elif command == "target_compile_features":
            name, *rest = self.cmake.words(arguments) or [""]
            for word in rest if not doubt else ():
                if match := re.fullmatch(r"(cuda|cxx)_std_(\d\d)", word):
                    self._target(name).set_standard(match[1].upper(), match[2], self.cmake.file)
        elif command == "add_test":
            self._test(self.cmake.words(arguments))
        elif command == "enable_language":
            self.native = self.native or "CUDA" in self.cmake.words(arguments)
        elif command == "target_sources" or re.search(
            r"add_(?:executable|library|module|extension)$", command
        ):
            self._sources(command, self.cmake.words(arguments), doubt)
        elif command not in _NO_TARGET and any(map(self._is_file, self.cmake.words(arguments))):
            self.cmake.leave_out(f"the flags that `{command}(…)` gives it", self.cmake.file)

    def _test(self, words: list[str]) -> None:
        """Read `add_test(NAME n COMMAND program a b)`, and its old form without the words."""
        command = words[words.index("COMMAND") + 1 :] if "COMMAND" in words else words[1:]
        ends = [
            at
            for at, word in enumerate(command)
            if word in ("WORKING_DIRECTORY", "CONFIGURATIONS", "COMMAND_EXPAND_LISTS")
        ]
        command = command[: min(ends, default=len(command))]
        if command:
            shown = PART.sub(lambda match: self.cmake.parts[int(match[1])], command[0])
            name = shown.removeprefix("$<TARGET_FILE:").removesuffix(">")
            self.tests.setdefault(name, []).append(tuple(command[1:]))

    def _is_file(self, word: str) -> bool:
        return _is_source(os.path.normpath(os.path.join(self.cmake.here, word)), self.path)

    def _target(self, name: str) -> _CMakeTarget:
        if len(self.targets) > language.MOST_COMMANDS:
            return _CMakeTarget()
        return self.targets.setdefault(name, _CMakeTarget())

    def _sources(self, command: str, words: list[str], doubt: str) -> None:
        name, *sources = words or [""]
        if sources[:1] == ["ALIAS"]:
            if len(sources) > 1:
                self.targets[name] = self._target(sources[1])
            return
        target = self._target(name)
        target.is_program = target.is_program or command.endswith("executable")
        if target.directory is None and command != "target_sources":
            target.directory, target.made_behind = self.directory, len(self.directory.settings)
            target.linked += self.directory.linked
            target.of_find_cuda = command.startswith("cuda_")
            for of in ("CXX", "CUDA"):
                if standard := self.cmake.scope.values.get(variable := f"CMAKE_{of}_STANDARD"):
                    target.set_standard(of, standard, self.cmake.scope.set_by.get(variable, self.cmake.file))
            if value := self.cmake.scope.values.get("CMAKE_CUDA_SEPARABLE_COMPILATION"):
                target.relocatable = "" if language.OFF.fullmatch(value) else self.cmake.file
        if "OPTIONS" in sources and command.startswith("cuda_"):  # of FindCUDA
            at = sources.index("OPTIONS")
            options = [each for each in sources[at + 1 :] if each.upper() not in CONFIGURATIONS]
            self._apply(target.settings, options, f"{command}({name})", doubt)
            sources = sources[:at]
        target.sources += [os.path.normpath(os.path.join(self.cmake.here, each)) for each in sources]

    def _linked(self, words: Sequence[str]) -> list[tuple[str, str]]:
        """Return the libraries that words of a link command name, each with how it is linked."""
        linked: list[tuple[str, str]] = []
        scope, skipped = "PUBLIC", False
        for word in words:
            if word in ("debug", "optimized"):
                skipped = (word == "debug") != (self.cmake.configuration() == "DEBUG")
            elif word in _KEYWORDS or word in (
                "general",
                "LINK_PUBLIC",
                "LINK_PRIVATE",
                "LINK_INTERFACE_LIBRARIES",
            ):
                scope = word.removeprefix("LINK_") if word != "general" else scope
            elif skipped:
                skipped = False
            else:
                linked.append((word, scope))
        return linked

    def _target_words(self, command: str, arguments: str, doubt: str) -> None:
        """Note the words of each of `PUBLIC`, `PRIVATE` and `INTERFACE`."""
        macros = command.endswith("definitions")
        words = self.cmake.words(arguments, split=False) if macros else self.cmake.options(arguments)
        name, *rest = words or [""]
        settings = self._target(name).settings
        for scope, group in _scoped(rest):
            self._apply(
                settings,
                _macros(group) if macros else group,
                f"{command}({name})",
                doubt,
                scope,
                macros=macros,
            )

    def _folders(self, settings: list[_Setting], words: list[str], doubt: str) -> None:
        first = "BEFORE" in words
        before = len(settings)
        for scope, group in _scoped(words):
            for word in group[:MOST_WORDS]:
                shown = PART.sub(lambda match: self.cmake.parts[int(match[1])], word)
                path = shown if "$" in shown else os.path.normpath(os.path.join(self.cmake.here, shown))
                folder = NamedFolder(path, self.cmake.file, self.cmake.line)
                passed_on, applies = scope in ("PUBLIC", "INTERFACE"), scope != "INTERFACE" and not doubt
                settings.append(_Setting((), self.cmake.file, passed_on and not doubt, applies, folder))
        if first:
            settings[:0] = settings[before:]
            del settings[len(settings) - (len(settings) - before) // 2 :]

    def _apply(
        self,
        settings: list[_Setting],
        words: Sequence[str],
        command: str,
        doubt: str,
        scope: str = "PRIVATE",
        *,
        macros: bool = False,
        later: bool = False,
    ) -> None:
        if doubt:
            if any(map(_DECIDES.search, words)):
                words = (self.cmake.in_doubt(f"what `{doubt}` adds by {command}"),)
            else:
                return
        settings.append(
            _Setting(
                tuple(words[:MOST_WORDS]),
                self.cmake.file,
                scope in ("PUBLIC", "INTERFACE"),
                scope != "INTERFACE",
                macros=macros,
                later=later,
            )
        )

    def _properties(self, command: str, words: list[str], doubt: str) -> None:
        if command == "set_property":
            if words[:1] == ["DIRECTORY"] and "PROPERTY" in words[:-1]:
                at = words.index("PROPERTY")
                pairs = {words[at + 1]: ";".join(words[at + 2 :])}
                added = any(word.startswith("APPEND") for word in words[:at])
                self._property_words(self.directory.settings, pairs, command, doubt, added=added)
                return
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
        added = any(name.startswith("APPEND") for name in names)
        names = [part for name in names[:MOST_WORDS] for part in name.split(";")]
        if of_source:
            if any(map(self._is_file, names)):
                self._property_words(self.of_source, pairs, command, doubt, added=True)
            return
        for name in names[:MOST_WORDS]:
            if name not in ("APPEND", "APPEND_STRING"):
                target = self._target(name)
                self._property_words(target.settings, pairs, f"{command}({name})", doubt, added=added)
                if (value := pairs.get("CUDA_ARCHITECTURES")) and not doubt:
                    target.architectures = value, self.cmake.file
                for of in ("CXX", "CUDA"):
                    if (value := pairs.get(f"{of}_STANDARD")) and not doubt:
                        target.set_standard(of, value, self.cmake.file)
                if (value := pairs.get("CUDA_SEPARABLE_COMPILATION")) is not None and not doubt:
                    target.relocatable = "" if language.OFF.fullmatch(value) else self.cmake.file

    def _property_words(
        self,
        settings: list[_Setting],
        pairs: dict[str, str],
        command: str,
        doubt: str,
        *,
        added: bool = False,
    ) -> None:
        """Set a property of a target, a folder or a source. It replaces the old value, unless it is `added`."""
        later = settings is self.directory.settings
        for key in ("COMPILE_FLAGS", "COMPILE_OPTIONS", "INTERFACE_COMPILE_OPTIONS"):
            if value := pairs.get(key):
                scope = "INTERFACE" if key.startswith("INTERFACE") else "PRIVATE"
                if key == "COMPILE_OPTIONS" and not added and not doubt:
                    settings[:] = [
                        each if each.macros or each.folder else each._replace(applies=False)
                        for each in settings
                    ]
                self._apply(settings, value.replace(";", " ").split(), command, doubt, scope, later=later)
        for key in ("COMPILE_DEFINITIONS", "INTERFACE_COMPILE_DEFINITIONS"):
            if value := pairs.get(key):
                scope = "INTERFACE" if key.startswith("INTERFACE") else "PRIVATE"
                if key == "COMPILE_DEFINITIONS" and not added and not doubt:
                    settings[:] = [each._replace(applies=False) if each.macros else each for each in settings]
                self._apply(settings, _macros(value.split(";")), command, doubt, scope, macros=True)
        for key in ("INCLUDE_DIRECTORIES", "INTERFACE_INCLUDE_DIRECTORIES"):
            if value := pairs.get(key):
                self._folders(
                    settings,
                    [key.partition("_")[0] if key.startswith("INTERFACE") else "PRIVATE", *value.split(";")],
                    doubt,
                )

    # -- of the file --------------------------------------------------------------------------------

    def _macros_of_targets(self) -> tuple[tuple[str, str], ...]:
        values: dict[str, dict[str, str]] = {}
        for target in self.targets.values():
            for each in target.settings:
                for word in each.words:
                    if word.startswith("-D") and self._is_known(word, each.file):
                        values.setdefault(word.partition("=")[0], {})[word] = each.file
        return tuple(pair for words in values.values() if len(words) == 1 for pair in words.items())

    def result(self) -> CMakeFlags:
        target, named = self._target_of_file()
        files = [file for file in self.cmake.scopes if Path(self.path).is_relative_to(os.path.dirname(file))]
        deepest = max(files, key=len, default="")
        # of a file that does not lie below any of CMake's folders the first one counts
        nearest = self.directories.get(deepest) or next(iter(self.directories.values()))
        directory = (target.directory if target else None) or nearest
        self.cmake.scope = self.cmake.scopes.get(
            os.path.join(directory.path, "CMakeLists.txt"), self.cmake.scope
        )
        behind = target.made_behind if target and target.directory else len(directory.settings)
        settings = [each for at, each in enumerate(directory.settings) if at < behind or not each.later]
        settings += self.of_source
        if target:
            settings = [each for each in settings if each.applies or each.folder]
            settings += [each for each in target.settings if each.applies or each.folder] + list(
                self._passed_on(target)
            )
        elif len([each for each in self.targets.values() if each.sources]) != 1:
            for name, other in self.targets.items():
                for each in other.settings:
                    if any(word.startswith("-D") for word in each.words):
                        self.cmake.leave_out(
                            f"macros of {name}, if the file is one of its sources", each.file
                        )
        words = [(word, each.file) for each in settings for word in each.words]
        if compiler := self.cmake.scope.values.get(
            "CMAKE_CUDA_COMPILER"
        ):  # a database names it, and is asked for it
            self.cmake.leave_out(
                f"set(CMAKE_CUDA_COMPILER {compiler[:200]})",
                self.cmake.scope.set_by.get("CMAKE_CUDA_COMPILER", self.cmake.file),
            )
        words += self._of_variables(target)
        kept = [
            (word, file)
            for word, file in words
            if word and not _OPTIONS_FILE.match(word) and self._is_known(word, file)
        ]
        given = [each.folder for each in settings if each.folder and each.applies]
        every = [each.folder for each in settings if each.folder]
        above = [each for each in self.directories.values() if Path(self.path).is_relative_to(each.path)]
        near = [each.settings for each in above]
        near += [each.settings for each in self.targets.values() if each.directory in (None, *above)]
        others = [each.folder for listed in near for each in listed if each.folder]
        return CMakeFlags(
            tuple(kept),
            tuple(self._architectures(target)),
            tuple(self.cmake.left_out.items()),
            tuple(dict.fromkeys((*given, *every, *others))),
            named,
            target.standard if target and named else ("", ""),
            () if target else self._macros_of_targets(),
            target.relocatable if target else None,
            bool(target and target.of_find_cuda),
        )

    def _of_variables(self, target: _CMakeTarget | None) -> Iterator[tuple[str, str]]:
        """Yield words of `CMAKE_CUDA_FLAGS` and similar variables, for the configuration that is built."""
        configuration, scope = self.cmake.configuration(), self.cmake.scope
        for name, (why, file) in scope.doubtful.items():
            if _is_of_nvcc(name)[0] and _DECIDES.search(scope.guesses.get(name, "")):
                self.cmake.leave_out(f"what `{why}` sets of {name}", file)
        for name in scope.values:
            flags, build_type = _is_of_nvcc(name)
            if (
                flags
                and target
                and target.of_find_cuda != name.startswith("CUDA_NVCC")
                and (target.of_find_cuda or self.native)
            ):
                continue
            if not flags or (build_type and build_type != configuration):
                if flags and not configuration and name in scope.set_by:
                    words = [
                        word for word in re.split(r"[\s;]+", scope.values[name]) if _DECIDES.search(word)
                    ]
                    words = [word for word in words if word not in CONFIGURATIONS[build_type].split()]
                    if words and build_type != "DEBUG":
                        self.cmake.leave_out(f"what {name} adds with that build type: {' '.join(words)}"[:200], scope.set_by[name])  # fmt: skip
                continue
            if build_type and name not in scope.set_by and name.startswith("CUDA_NVCC"):
                continue
            file = scope.set_by.get(name, scope.set_by.get("CMAKE_BUILD_TYPE", self.cmake.file))
            text = self.cmake.expressions(scope.values.get(name, ""))
            yield from ((word, file) for word in re.split(r"[\s;]+", text))

    def _is_known(self, word: str, file: str) -> bool:
        shown = PART.sub(lambda match: self.cmake.parts[int(match[1])], word)
        if shown == word and "$" not in word:
            return True
        shown = shown.removeprefix("-D") if shown.startswith(("-Dwhat `", "-D$<")) else shown
        if (
            shown.startswith("what `")
            or word.startswith("-D\ue000")
            or (not _REFERENCE.fullmatch(word) and _DECIDES.search(shown))
        ):
            self.cmake.leave_out(shown, file)
        return False

    def _target_of_file(self) -> tuple[_CMakeTarget | None, bool]:
        """Return the target that has the file among its sources, else the only target. Say also whether one has it."""
        for target in self.targets.values():
            if any(_is_source(each, self.path) for each in target.sources[:MOST_WORDS]):
                return target, True
        with_sources = [target for target in self.targets.values() if target.sources]
        return (with_sources[0], False) if len(with_sources) == 1 else (None, False)

    def _passed_on(self, target: _CMakeTarget) -> Iterator[_Setting]:
        """Yield what the libraries that a target links give it."""
        waiting = [name for name, scope in target.linked if scope != "INTERFACE"]
        seen = set[str]()
        while waiting and len(seen) < MOST_WORDS:
            name = waiting.pop(0)
            if name in seen or name not in self.targets:
                continue
            seen.add(name)
            passed_on = (each for each in self.targets[name].settings if each.passed_on)
            yield from (each._replace(applies=True) for each in passed_on)
            waiting += [other for other, scope in self.targets[name].linked if scope != "PRIVATE"]

    def _architectures(self, target: _CMakeTarget | None) -> Iterator[tuple[str, str]]:
        value, file = target.architectures if target else ("", "")
        if not value:
            value, file = (
                self.cmake.scope.values.get(_ARCHITECTURES, ""),
                self.cmake.scope.set_by.get(_ARCHITECTURES, self.cmake.file),
            )
        for each in re.split(r"[\s;]+", value)[:MOST_WORDS]:
            if match := _ARCHITECTURE.fullmatch(each):
                yield match[1], file


def _scoped(words: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the words behind each of `PUBLIC`, `PRIVATE` and `INTERFACE`."""
    scope, group = "PUBLIC", list[str]()
    for word in (*words, "PUBLIC"):
        if word not in _KEYWORDS:
            group.append(word)
        elif word not in ("SYSTEM", "BEFORE", "AFTER"):
            if group:
                yield scope, group
            scope, group = word, []


def _macros(words: Sequence[str]) -> list[str]:
    """Return definitions as flags: CMake takes them with `-D` and without. Other flags of add_definitions stay."""
    every = (part for word in words for part in (word.split(";") if "$<" not in word else (word,)))
    return [word if word.startswith(("-", "/")) else f"-D{word}" for word in every if word]


def _is_of_nvcc(name: str) -> tuple[bool, str]:
    """Say whether a variable has nvcc's flags, as `CMAKE_CUDA_FLAGS` or `CUDA_NVCC_FLAGS`, and for which build type;
    "" for all.
    """
    rest, flags, behind = name.upper().rpartition("FLAGS")
    of_cuda = bool(flags) and ("CU" in rest or "NVCC" in rest)
    build_type = behind.removeprefix("_")
    return of_cuda and (not behind or build_type in CONFIGURATIONS), build_type


def _is_source(source: str, path: str) -> bool:
    if "*" not in source:
        return source == path
    if len(source) > 500 or source.count("*") > 6:
        return False
    deep = "**" in source
    return fnmatch.fnmatchcase(path, source.replace("[", "[[]")) and (
        deep or os.path.dirname(source) == os.path.dirname(path)
    )
