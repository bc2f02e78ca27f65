"""Include folders and flags of build files, read as text; no build file is run"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from orbit_lsp.compilation import command_line, templates
from orbit_lsp.compilation.build_systems import (
    build_scripts,
    cmake_files,
    cmake_language,
    elsewhere,
    makefiles,
    other_makefiles,
    registry,
    setup_files,
)
from orbit_lsp.compilation.build_systems.reading import BuildFile, Folder, Reading
from orbit_lsp.compilation.folders import folders_above
from orbit_lsp.compilation.lazy_pattern import lazy_pattern
from orbit_remote.common import regular_files
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.limits import BUILD_FILE

_SWITCHES = lazy_pattern(
    r"(?<![\w-])--?(?:expt-relaxed-constexpr|expt-extended-lambda|extended-lambda)(?![\w-])"
)
_STANDARD = lazy_pattern(
    r"(?<![\w-])-{1,2}std[= ](?:gnu|c)\+\+(\d\w)|CMAKE_CUDA_STANDARD\s+(\d\d)|CUDA_STANDARD\s+(\d\d)|cuda_std_(\d\d)|"
    r"(?:cpp|cuda)_std=c\+\+(\d\d)"
)
_RELOCATABLE = lazy_pattern(
    r"(?i:CUDA_SEPARABLE_COMPILATION\s+(?:ON|TRUE|1))|(?<![\w-])-{1,2}(?:rdc|relocatable-device-code)[ =]true|(?<![\w-])-dc(?![\w-])"
)
# a pattern of these that looked far ahead from each of a text's characters would keep the interpreter for minutes
_MAKE_INCLUDES = lazy_pattern(r"(?<![\w-])-(?:I|isystem)\s*(\"[^\"]+\"|[^\s\"',;)\]]+)")
_PACKAGE = lazy_pattern(r"\bfind_package\s{0,20}\(\s{0,20}([\w+-]{2,80})", re.IGNORECASE)
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
_AS_CUDA = lazy_pattern(r"(?<![\w-])-{1,2}x[ =]?cu(?![\w-])|\bLANGUAGE\s+CUDA\b")
"""What makes CUDA of sources that their names call C++."""
_OF_HOST = lazy_pattern(r"\w[)}]?\.(?:cpp|cc|cxx)\b")
_COMMENT = lazy_pattern(r"^[ \t]*#.*$", re.MULTILINE)
_OLDEST = 17
"""nvcc compiles C++17 by itself, and CUDA's own headers need it: an older standard was named for an older nvcc."""
_NEWEST = 20
"""nvcc 13 knows no newer standard: one that a text has anywhere is for host code."""
_MOST = 400
"""Values that one list of a setup.py may come to, and folders that another build file may name."""
_MOST_FILES = 32
"""Build files above one source file."""
_UNREADABLE = (RecursionError, ValueError, OSError, MemoryError)
"""What the readers raise for texts that no build has: a project's files may hold anything."""
_NOT_FOLLOWED = "what it says: it is nested too deeply, or has a number or a path that is too long"
_LONGEST_SHOWN = 200
_LONGEST = 4096
"""Characters of a path or a flag."""
_TARGET = lazy_pattern(r"code=sm_(\d{1,3}[af]?)")
_MARKS = lazy_pattern("[\ue000\ue001]")
"""Characters that no build file needs, and between which its readers put what they cannot follow."""
_INTERFACE = lazy_pattern(r"\$<(?:BUILD_INTERFACE|INSTALL_INTERFACE):([^<>]*)>")
_TOP = lazy_pattern(
    r"\$[{(](?:CMAKE_SOURCE_DIR|PROJECT_SOURCE_DIR|\w+_SOURCE_DIR|SRC_?DIR|TOP_?DIR|ROOT_?DIR)[})]",
    re.IGNORECASE,
)
_LOCAL = lazy_pattern(
    r"\$[{(](?:CMAKE_CURRENT_SOURCE_DIR|CMAKE_CURRENT_LIST_DIR|CURDIR|PWD)[})]|\$\$PWD", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Declared:
    """What the build files above a source file say: include folders in their order, and flags with the file that
    names each. `nearest` is the build file nearest to the source, or "". `extension` is the name of torch's
    extension that the source is part of, and the file that says it.
    """

    folders: tuple[Folder, ...] = ()
    flags: tuple[tuple[str, str], ...] = ()
    nearest: str = ""
    extension: tuple[str, str] = ("", "")
    architectures: tuple[tuple[str, str], ...] = ()
    """`86`, and the file that names it."""
    left_out: tuple[tuple[str, str], ...] = ()
    """What the build gives its compiler and is not known without running it, and the file that says it."""
    is_source: bool = False
    """A build file names the source among those that it compiles."""
    by_torch: bool = False
    """A call of torch's `load` compiles the source."""
    macros: tuple[tuple[str, str], ...] = ()
    """Macros of CMake's targets, none of which is known to have the source, each with the file that names it."""
    named: bool = False
    """A build file or a script names the source, or may compile it without."""
    recordable: bool = False
    """The source is compiled by a command of the nearest build file's that can be written down."""
    configured_by: str = ""
    """The script that makes a Makefile of the nearest build file, a template."""
    scripts: tuple[str, ...] = ()
    """Files that name the source and are not understood: programs that may put something into it."""
    switches: tuple[str, ...] = ()
    """The options of CMake without which the project builds no CUDA."""
    packages: tuple[tuple[str, str], ...] = ()
    """The packages that CMake's `find_package` looks for, each with the file that says so."""

    @property
    def torch_builds(self) -> bool:
        """Whether torch's own builder may compile the file: by a setup.py, or when a program runs."""
        return self.by_torch or not self.nearest or self.nearest.endswith(".py")

    def database_command(self, path: str, root: str, standing: str) -> str:
        """Return how somebody in the folder `standing` makes the project of the file `path` write a compile_commands.json, or the
        Makefile that it lacks; "" where its build system has no command for that.
        """
        name = os.path.basename(self.nearest)
        if self.configured_by:
            folder, script = os.path.split(os.path.relpath(self.configured_by, standing))
            there = f"cd {shlex.quote(folder)} && " if folder else ""
            start = "python" if script.endswith(".py") else "sh" if script.endswith(".sh") else ""
            return f"`{there}{f'{start} {shlex.quote(script)}' if start else f'./{script}'}`"
        if not self.recordable:
            return ""
        if name == "CMakeLists.txt":
            project = os.path.relpath(
                templates.project_of(path, root) or os.path.dirname(self.nearest), standing
            )
            build = os.path.normpath(os.path.join(project, "build"))
            with_cuda = "".join(f" -D{each}=ON" for each in self.switches)
            return f"`cmake -S {shlex.quote(project)} -B {shlex.quote(build)} -DCMAKE_EXPORT_COMPILE_COMMANDS=ON{with_cuda}`"
        system = registry.system_of(self.nearest)
        if system is None or not system.database_command or name not in system.names:
            return ""
        files = islice(_above(path, root), _MOST_FILES)
        same = [file for file in files if os.path.basename(file) == name]
        at = same[-1] if same and system.from_top else self.nearest
        folder = os.path.relpath(os.path.dirname(at), standing)
        there = "" if folder == "." else f"cd {shlex.quote(folder)} && "
        return f"`{there}{system.database_command}`"


def declared(path: str, root: str, listed: elsewhere.Listed | None = None) -> Declared:
    """From the build files of the file's folder and of those above it, up to the root; the nearest first. Where none of them compiles
    the file, from those of the workspace's other build files and scripts, which are `listed`, that name it. Reads files.
    """
    collected = _Collected(path, root)
    for file in islice(_above(path, root), _MOST_FILES):
        collected.nearest = collected.nearest or file
        if file == collected.nearest and os.path.basename(file) not in registry.names():
            collected.configured_by = other_makefiles.configurer(file)
        try:
            text = regular_files.text(file, BUILD_FILE)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
            collected.left_out.setdefault(f"what it says, as it cannot be read ({why})", file)
            continue
        collected.read(file, _MARKS.sub("", text))
    collected.read_cmake()
    if not collected.is_source:
        collected.read_others(listed or {})
    return collected.result()


class _Collected:
    """Collect what the build files above a source file say; what is nearer to it counts more."""

    def __init__(self, path: str, root: str) -> None:
        self.path = path
        self.root = root
        self.nearest = ""
        self.folders: list[Folder] = []
        self.flags: dict[str, str] = {}
        self.architectures: dict[str, str] = {}
        self.left_out: dict[str, str] = {}
        self.extension = ("", "")
        self.by_torch = False
        self.is_source = False
        self.certain = False
        """A build file that compiles the source was read: those of its kind above it are of others."""
        self.by_command = False
        self.cmake: list[str] = []
        self.packages: dict[str, str] = {}
        self.naming: list[str] = []
        """Build files that name the source."""
        self.relocatable = ""
        self.by_make = False
        self.of_find_cuda = False
        self.configured_by = ""
        self.macros: tuple[tuple[str, str], ...] = ()
        self.scripts: list[str] = []
        self.switches: dict[str, None] = {}
        self.scripted = False

    def result(self) -> Declared:
        return Declared(
            tuple(dict.fromkeys(self.folders)),
            tuple(self.flags.items()),
            self.nearest,
            self.extension,
            tuple(self.architectures.items()),
            tuple(
                (what if len(what) <= _LONGEST_SHOWN else f"{what[:_LONGEST_SHOWN]}…", file)
                for what, file in self.left_out.items()
            ),
            self.is_source,
            self.by_torch,
            self.macros,
            bool(
                self.is_source
                or self.certain
                or self.by_torch
                or self.by_make
                or self.naming
                or self.scripts
                or self.scripted
                or self.cmake
            ),
            self.by_make or any(map(makefiles.is_makefile, self.naming)) or self._is_recorded(),
            self.configured_by,
            tuple(self.scripts),
            tuple(self.switches),
            tuple(self.packages.items()),
        )

    def _is_recorded(self) -> bool:
        """Return whether the build system of the nearest build file writes a database that has the source."""
        if os.path.basename(self.nearest) == cmake_files.NAME:
            return not self.of_find_cuda
        system = registry.system_of(self.nearest)
        by_itself = system and system.database_command and not makefiles.is_makefile(self.nearest)
        return bool(by_itself) and not self.by_command

    def read(self, file: str, text: str) -> None:
        """Take what a build file says. The CMakeLists.txt are read together, later."""
        named: dict[str, str] = {}
        known = False
        try:
            if reading := self._reading(file, text):
                named = self._of_reading(reading, file, text)
                known = reading.whole
                if file == self.nearest and reading.builds_nothing and _has_another(file):
                    self.nearest = ""
        except _UNREADABLE:
            self.left_out[_NOT_FOLLOWED] = file
        if file.endswith(".py"):
            text = _COMMENT.sub("", text)
        else:
            text = self._whole(file, text)
            if not known or makefiles.is_makefile(file):
                named |= self._of_text(file, text)
        self._understood(file, text)
        self._of_any(file, text, named, known=known)
        self._take(named)

    def _reading(self, file: str, text: str, nearest: str = "") -> Reading | None:
        """Return what a file's build system makes of it; None where it is read later, or of no source of this kind."""
        system = registry.system_of(file)
        if system is None or system.read is None or (self.certain and not file.endswith(".py")):
            return None
        nearest = nearest or self.nearest

        def included(name: str) -> str:
            return _text(os.path.join(os.path.dirname(file), name), self.root)

        return system.read(
            BuildFile(file, text, self.path, self.root, nearest, bool(self.configured_by), included)
        )

    def _of_reading(self, reading: Reading, file: str, text: str) -> dict[str, str]:
        """Note what a build file says but nvcc's flags, and return those without folders and architectures."""
        self.certain = self.certain or reading.certain
        self.by_command = self.by_command or reading.by_command
        self.is_source = self.is_source or reading.is_source
        self.by_make = self.by_make or reading.of_any or (reading.certain and makefiles.is_makefile(file))
        if reading.extension and not self.extension[0]:
            self.extension = (reading.extension, file)
        made = _parted(reading.flags)
        lines = {each.path: each.line for each in _folders(file, _COMMENT.sub("", text), self.root)}
        self.folders += reading.folders
        self.folders += (Folder(folder, file, lines.get(folder, 1)) for folder in made.folders)
        for architecture in () if self.architectures else (*reading.architectures, *made.architectures):
            self.architectures[architecture] = file
        self.left_out |= dict.fromkeys(reading.left_out, file)
        return dict.fromkeys(made.flags, file)

    def _whole(self, file: str, text: str) -> str:
        """A build file without comments, with those that it includes."""
        by_cmake = os.path.basename(file) == "CMakeLists.txt"
        text = _without_comments(text, by_cmake)
        for included in _included(file, text, self.root):
            if len(text) + len(included) < BUILD_FILE.most:
                text += "\n" + _without_comments(_MARKS.sub("", included), by_cmake)
        return text

    def _of_text(self, file: str, text: str) -> dict[str, str]:
        """Folders and macros that stand in the text of a build file, whichever part of it they are for."""
        by_cmake = os.path.basename(file) == "CMakeLists.txt"
        if by_cmake:
            self.cmake.insert(0, file)
            self.switches |= dict.fromkeys(filter(cmake_language.is_switch, cmake_language.options_off(text)))
            for package in islice(_PACKAGE.findall(text), _MOST):
                self.packages.setdefault(package, file)
        else:
            self.folders += _folders(file, text, self.root)
        # CMake's folders inherit macros from those above; another build system above is another project's
        same = os.path.basename(file) == os.path.basename(self.nearest)
        plain = same and not by_cmake and not makefiles.is_makefile(file)
        named = dict.fromkeys(islice(_definitions(text), _MOST) if plain else (), file)
        of_cuda = dict.fromkeys(_OF_CUDA.findall(text) if same else ())
        return named | dict.fromkeys((f"-D{definition}" for definition in islice(of_cuda, _MOST)), file)

    def _understood(self, file: str, text: str) -> None:
        """Say that a build file names the source, where no reader found out what it gives the compiler for it."""
        name = os.path.basename(self.path)
        if re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-]|\.\w)", text):
            self.naming.append(file)

    def _of_any(self, file: str, text: str, named: dict[str, str], *, known: bool) -> None:
        """Add what lets a file compile, whichever part of the text it is for: where the file's own command is `known`, only what
        changes no figure.
        """
        named |= dict.fromkeys(_SWITCHES.findall(text), file)
        if known:
            return
        if _RELOCATABLE.search(text):
            if os.path.basename(file) == "CMakeLists.txt":
                self.relocatable = self.relocatable or file
            else:
                named["-rdc=true"] = file
        standards = [next(filter(None, match.groups())) for match in _STANDARD.finditer(text)]
        standards = [
            each for each in standards if command_line.age(each) <= _NEWEST
        ]  # the others are for host code
        if standards and not any(map(command_line.year, named)):
            named[f"-std=c++{max(standards, key=command_line.age)}"] = file

    def _take(self, named: dict[str, str]) -> None:
        for flag, where in named.items():
            asked = command_line.year(flag)
            standard = asked is not None and (asked < _OLDEST or any(map(command_line.year, self.flags)))
            if flag not in self.flags and not standard:
                self.flags[flag] = where

    def read_cmake(self) -> None:
        """Take what the CMakeLists.txt say together."""
        try:
            of_cmake = cmake_files.read(self.cmake, self.path, lambda file: _text(file, self.root))
        except _UNREADABLE:
            of_cmake = cmake_files.CMakeFlags(left_out=((_NOT_FOLLOWED, self.cmake[0]),))
        self.folders += _folders_of_cmake(of_cmake.folders, self.root)
        if os.path.basename(self.nearest) != "CMakeLists.txt":
            return  # another build system above is another project's
        self.is_source = self.is_source or of_cmake.is_source
        self.of_find_cuda = of_cmake.of_find_cuda
        self._beside_cmake()
        self.macros = of_cmake.macros
        text_decides = of_cmake.relocatable is None and not of_cmake.is_source
        if relocatable := of_cmake.relocatable or (self.relocatable if text_decides else ""):
            self.flags.setdefault("-rdc=true", relocatable)
        standard, named_by = of_cmake.standard
        if standard.isdecimal():  # the text may have those of other targets
            self.flags = {
                flag: file
                for flag, file in self.flags.items()
                if not command_line.year(flag) or not file.endswith("CMakeLists.txt")
            }
            if _OLDEST <= int(standard) < 90:
                self.flags.setdefault(f"-std=c++{standard}", named_by)
        for file in dict.fromkeys(file for _, file in of_cmake.words):
            words = [word for word, of in of_cmake.words if of == file]
            command = command_line.parse(["nvcc", *words], os.path.dirname(file), self.path)
            made = _parted(command.flags)
            self.left_out |= dict.fromkeys(command.left_out, file)
            self.folders += (Folder(folder, file, 1) for folder in made.folders)
            for flag in made.flags:
                if not command_line.year(flag):  # the newest of the text counts
                    self.flags.setdefault(flag, file)
            for architecture in made.architectures:
                self.architectures.setdefault(architecture, file)
        if of_cmake.architectures:
            self.architectures = dict(of_cmake.architectures)
        self.left_out |= dict(of_cmake.left_out)

    def _beside_cmake(self) -> None:
        """Take what lets a file compile from CMake's files beside the source, which may be included by a name that only a run knows."""
        folder = Path(self.path).parent
        for file in islice(sorted(folder.glob("*.cmake")), _MOST_FILES):
            for switch in _SWITCHES.findall(_without_comments(_text(str(file), self.root), by_cmake=True)):
                self.flags.setdefault(switch, str(file))

    def read_others(self, listed: elsewhere.Listed) -> None:
        """Take what files say that are no build files of the usual kinds: calls of torch's `load`, and scripts; then build files and
        scripts in other folders. Where they are not understood, it is said that they name the source.
        """
        with contextlib.suppress(*_UNREADABLE):
            setup, file = setup_files.loaded(self.path, self.root)
            if file:
                self.by_torch = True
                self._take(self._of_reading(setup, file, ""))
        by_others = self.is_source or self.certain or self.left_out or self.configured_by
        for file in [] if by_others else self.naming[:1]:
            self.left_out[f"what it gives nvcc for {os.path.basename(self.path)}"] = file
        known = self.is_source or self.certain or self.by_torch or bool(self.configured_by)
        for script in () if self.is_source else build_scripts.naming(self.path, self.root):
            known = True
            self._take_script(script)
        for file, text in () if known else elsewhere.naming(self.path, self.root, listed):
            with contextlib.suppress(*_UNREADABLE):
                if self._of_another_folder(file, _MARKS.sub("", text)):
                    return

    def _take_script(self, script: build_scripts.Script) -> None:
        self.scripted = True
        self.scripts += [] if script.flags else [script.file]
        self.left_out |= dict.fromkeys(script.left_out, script.file)
        self._take(self._of_reading(Reading(script.flags), script.file, ""))

    def _of_another_folder(self, file: str, text: str) -> bool:
        """Whether a build file or a script in another folder compiles the source: then what it says is taken."""
        if os.path.basename(file) == cmake_files.NAME:
            above = [str(each / cmake_files.NAME) for each in folders_above(file, self.root)]
            above = [each for each in reversed(above) if os.path.isfile(each)]
            of_cmake = cmake_files.read(above, self.path, lambda each: _text(each, self.root))
            if of_cmake.is_source:
                self.cmake, self.nearest = above, file
                self.read_cmake()
            return of_cmake.is_source
        reading = self._reading(file, text, nearest=file)
        if reading and (reading.certain or reading.is_source):
            self._take(self._of_reading(reading, file, text))
            if not (
                makefiles.is_makefile(file) and makefiles.is_makefile(self.nearest)
            ) and not file.endswith(".py"):
                self.nearest = file
            return True
        if makefiles.is_makefile(file):
            script = build_scripts.of_another_folder(file, text, self.path, self.root)
            self.left_out |= dict.fromkeys(script.left_out if script else (), file)
            return bool(script)
        if file.endswith("setup.py"):
            return False
        script = build_scripts.of_another_folder(file, text, self.path, self.root)
        if script:
            self._take_script(script)
        return bool(script)


def _without_comments(text: str, by_cmake: bool) -> str:
    return cmake_language.without_comments(text) if by_cmake else _COMMENT.sub("", text)


class _Parted(NamedTuple):
    """A command's flags: those of one word, include folders, and architectures."""

    flags: list[str]
    folders: list[str]
    architectures: list[str]


def _parted(command: Sequence[str]) -> _Parted:
    parted = _Parted([], [], [])
    words = iter(command)
    for word in words:
        if word in ("-isystem", "-include", "-gencode"):
            value = next(words, "")
            if word == "-isystem":
                parted.folders.append(value)
            elif target := _TARGET.search(value):
                parted.architectures.append(target[1])
        elif word.startswith("-I"):
            parted.folders.append(word[2:])
        else:
            parted.flags.append(word)
    return parted


def _has_another(file: str) -> bool:
    """Return whether another build file lies beside this one."""
    beside = (Path(file).parent / name for name in registry.names() if name != os.path.basename(file))
    return any(each.is_file() for each in beside)


def _text(path: str, root: str) -> str:
    """Of a file of the workspace that a build file includes; "" for any other file."""
    path = os.path.normpath(path)
    try:
        return _MARKS.sub("", regular_files.text(path, BUILD_FILE)) if Path(path).is_relative_to(root) else ""
    except (OSError, ValueError):
        return ""


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


def compiles_host_sources(path: str, root: str, listed: elsewhere.Listed | None = None) -> bool:
    """Return whether a build file above a file has nvcc compile sources of C++ as CUDA, or a Makefile elsewhere, among those `listed`, some
    that it names. Reads files.
    """
    for file in islice(_above(path, root), _MOST_FILES):
        if _AS_CUDA.search(_without_remarks(file)):
            return True
    others = filter(makefiles.is_makefile, elsewhere.nearest(path, root, listed or {}, _MOST_FILES))
    lines = (line for file in others for line in _without_remarks(file).replace("\\\n", " ").split("\n"))
    return any("cu" in line and _AS_CUDA.search(line) and _OF_HOST.search(line) for line in lines)


def _without_remarks(file: str) -> str:
    """Return the text of a build file without its comments, "" where it cannot be read."""
    try:
        return _COMMENT.sub("", regular_files.text(file, BUILD_FILE))
    except (OSError, ValueError):
        return ""


def definition_of(name: str, path: str, root: str) -> tuple[str, str]:
    """How the nearest build file above a file defines a macro, the first of several ways, and that build file."""
    pattern = re.compile(rf"(?<![\w-])-D\s?({name}(?:=[\w.:+-]+)?)(?=[\s\"';)]|$)", re.MULTILINE)
    for file in islice(_above(path, root), _MOST_FILES):
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


def _above(path: str, root: str) -> Iterator[str]:
    for above in folders_above(path, root):
        makefile = False
        for name in registry.names():
            if (above / name).is_file() and not (makefile and makefiles.is_makefile(name)):
                makefile = makefile or makefiles.is_makefile(name)
                yield str(above / name)
        if not makefile and (other := other_makefiles.other_makefile(above)):
            yield other


def _folders(file: str, text: str, root: str) -> Iterator[Folder]:
    """`-I…` of Makefiles, where all variables in them are known folders."""
    here = os.path.dirname(file)
    starts: dict[str, int] = {}
    for match in _MAKE_INCLUDES.finditer(text):
        starts.setdefault(match[1].strip('"'), match.start())
        if len(starts) >= _MOST:
            break
    for word, start in starts.items():
        for value in _substituted(word, here, root):
            path = os.path.normpath(os.path.join(here, value))
            if os.path.isdir(path):
                yield Folder(path, file, text.count("\n", 0, start) + 1)


def _folders_of_cmake(named: Sequence[cmake_files.NamedFolder], root: str) -> Iterator[Folder]:
    for each in named[:_MOST]:
        here = os.path.dirname(each.file)
        for value in _substituted(each.path, here, root):
            path = os.path.normpath(os.path.join(here, value))
            if os.path.isdir(path):
                yield Folder(path, each.file, each.line)


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
