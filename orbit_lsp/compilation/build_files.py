"""Reads include folders and flags from the text of build files. No build file is run."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from orbit_lsp.compilation import command_line
from orbit_lsp.compilation.build_systems import (
    build_scripts,
    elsewhere,
    makefiles,
    other_makefiles,
    registry,
    setup_files,
)
from orbit_lsp.compilation.build_systems.reading import (
    RELOCATABLE,
    SWITCHES,
    BuildFile,
    BuildSystem,
    Folder,
    Reading,
    option_folders,
    substituted,
    without_comments,
)
from orbit_lsp.compilation.folders import folders_above
from orbit_remote.common import regular_files
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.limits import BUILD_FILE

_STANDARD = re.compile(
    r"(?<![\w-])-{1,2}std[= ](?:gnu|c)\+\+(\d\w)|CMAKE_CUDA_STANDARD\s+(\d\d)|CUDA_STANDARD\s+(\d\d)|cuda_std_(\d\d)|"
    r"(?:cpp|cuda)_std=c\+\+(\d\d)"
)
_NAME = re.compile(r"\w+")
_DEFINES = {"ADD_DEFINITIONS", "ADD_COMPILE_DEFINITIONS"}
_DEFINITION = re.compile(r"(?<![\w-])-D\s?([A-Za-z_]\w*(?:=[\w.:+-]+)?)(?=[\s\"';)]|$)")
_OF_CUDA = re.compile(
    r"(?<![\w-])-D\s?((?:[A-Za-z]\w*_)?(?:USE|WITH|HAVE|HAS|ENABLE|BUILD)_CUDA(?:=1|=ON)?)(?=[\s\"';)]|$)",
    re.MULTILINE,
)
"""What a build defines where it compiles CUDA at all."""
_OPENS = re.compile(r"(?:if|function|macro|foreach|while)\s*\(|if(?:n?eq|n?def)\b", re.IGNORECASE)
_CLOSES = re.compile(r"end(?:if|function|macro|foreach|while)\b", re.IGNORECASE)
_INCLUDED = re.compile(r"^[ \t]*(?:-?include[ \t]+([^\s#(]+)|include\s*\(\s*\"?([^)\s\"]+))", re.MULTILINE)
_MODULES = ("cmake", "cmake/modules", "cmake/Modules")
_MOST_INCLUDED = 20
_AS_CUDA = re.compile(r"(?<![\w-])-{1,2}x[ =]?cu(?![\w-])|\bLANGUAGE\s+CUDA\b")
"""What makes CUDA of sources that their names call C++."""
_OF_HOST = re.compile(r"\w[)}]?\.(?:cpp|cc|cxx)\b")
_OLDEST = 17
"""nvcc compiles C++17 by itself, and CUDA's own headers need it: an older standard was named for an older nvcc."""
_NEWEST = 20
"""nvcc 13 knows no newer standard: one that a text has anywhere is for host code."""
_MOST = 400
"""Macros that one build file may define."""
_MOST_FILES = 32
"""Build files above one source file."""
_UNREADABLE = (RecursionError, ValueError, OSError, MemoryError)
"""What the readers raise for texts that no build has: a project's files may hold anything."""
_NOT_FOLLOWED = "what it says: it is nested too deeply, or has a number or a path that is too long"
_LONGEST_SHOWN = 200
_TARGET = re.compile(r"code=sm_(\d{1,3}[af]?)")
_MARKS = re.compile("[\ue000\ue001]")
"""Characters that no build file needs, and between which its readers put what they cannot follow."""


@dataclass(frozen=True, slots=True)
class Declared:
    """What the build files above a source file say: include folders in their order, and flags with the file that
    names each. `nearest` is the build file nearest to the source, or "". `extension` is the name of torch's extension
    that the source is part of, and the file that says so.
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
    """Macros of targets, none of which is known to have the source, each with the file that names it."""
    named: bool = False
    """A build file or a script names the source, or may compile it without."""
    recordable: bool = False
    """The source is compiled by a command of the nearest build file's that can be written down."""
    configured_by: str = ""
    """The script that makes a Makefile of the nearest build file, a template."""
    scripts: tuple[str, ...] = ()
    """Files that name the source and are not understood: programs that may put something into it."""
    switches: tuple[str, ...] = ()
    """The build's own options without which it compiles no CUDA."""
    packages: tuple[tuple[str, str], ...] = ()
    """The packages that the build looks for on the machine, each with the file that says so."""

    @property
    def torch_builds(self) -> bool:
        """Say whether torch's own builder may compile the file: by a setup.py, or when a program runs."""
        return self.by_torch or not self.nearest or self.nearest.endswith(".py")

    def database_command(self, path: str, root: str, standing: str) -> str:
        """Return the command that writes a compile_commands.json for the project of the file `path`, or the Makefile
        that it lacks, when it is typed in the folder `standing`. Return "" if the build system has no such command.
        """
        name = os.path.basename(self.nearest)
        if self.configured_by:
            folder, script = os.path.split(os.path.relpath(self.configured_by, standing))
            there = f"cd {shlex.quote(folder)} && " if folder else ""
            start = "python" if script.endswith(".py") else "sh" if script.endswith(".sh") else ""
            return f"`{there}{f'{start} {shlex.quote(script)}' if start else f'./{script}'}`"
        if not self.recordable:
            return ""
        system = registry.system_of(self.nearest)
        if system is None or not system.database_command or name not in system.names:
            return ""
        files = islice(_above(path, root), _MOST_FILES)
        same = [file for file in files if os.path.basename(file) == name]
        at = same[-1] if same and system.from_top else self.nearest
        return f"`{system.database_command(os.path.relpath(os.path.dirname(at), standing), self.switches)}`"


def declared(path: str, root: str, listed: elsewhere.Listed | None = None) -> Declared:
    """Return what the build files of the file's folder and of the folders above it, up to the root, say; the nearest
    file first.

    If none of them compiles the file, use the workspace's other build files and scripts (`listed`) that name it.
    Reads files.
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
    for system, files in collected.together.items():
        collected.read_together(system, files)
    if not collected.is_source:
        collected.read_others(listed or {})
    return collected.result()


class _Collected:
    """Collects what the build files above a source file say. What is nearer to the source counts more."""

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
        self.together: dict[BuildSystem, list[BuildFile]] = {}
        """The files of systems that are read together, the highest first."""
        self.packages: dict[str, str] = {}
        self.naming: list[str] = []
        """Build files that name the source."""
        self.by_make = False
        self.configured_by = ""
        self.macros: dict[str, str] = {}
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
            tuple(self.macros.items()),
            bool(
                self.is_source
                or self.certain
                or self.by_torch
                or self.by_make
                or self.naming
                or self.scripts
                or self.scripted
                or self.together
            ),
            self.by_make or any(map(makefiles.is_makefile, self.naming)) or self._is_recorded(),
            self.configured_by,
            tuple(self.scripts),
            tuple(self.switches),
            tuple(self.packages.items()),
        )

    def _is_recorded(self) -> bool:
        """Return whether the build system of the nearest build file writes a database that has the source."""
        system = registry.system_of(self.nearest)
        by_itself = system and system.database_command and not makefiles.is_makefile(self.nearest)
        return bool(by_itself) and not self.by_command

    def read(self, file: str, text: str) -> None:
        """Take what one build file says by itself. What it says only together with other files is read later."""
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
            text = without_comments(text)
        else:
            text = self._whole(file, text)
            if not known or makefiles.is_makefile(file):
                named |= self._of_text(file, text)
        self._understood(file, text)
        self._of_any(file, text, named, known=known)
        self._take(named)

    def _reading(self, file: str, text: str, nearest: str = "") -> Reading | None:
        """Return what a file's build system makes of the source. Return None if it is read later, or has no source of
        this kind.
        """
        system = registry.system_of(file)
        if system is None or system.read is None or (self.certain and not file.endswith(".py")):
            return None
        return system.read(self._build_file(file, text, nearest or self.nearest))

    def _build_file(self, file: str, text: str, nearest: str) -> BuildFile:
        def included(name: str) -> str:
            return _text(os.path.join(os.path.dirname(file), name), self.root)

        return BuildFile(file, text, self.path, self.root, nearest, bool(self.configured_by), included)

    def _of_reading(
        self, reading: Reading, file: str, text: str, *, together: bool = False
    ) -> dict[str, str]:
        """Note everything except nvcc's flags that a build file says. Return the flags, without folders and
        architectures. Files that are read `together` add up.
        """
        self.certain = self.certain or reading.certain
        self.by_command = self.by_command or reading.by_command
        self.is_source = self.is_source or reading.is_source
        self.by_make = self.by_make or reading.of_any or (reading.certain and makefiles.is_makefile(file))
        if reading.extension and not self.extension[0]:
            self.extension = (reading.extension, file)
        made = _parted(reading.flags)
        lines = {each.path: each.line for each in option_folders(file, without_comments(text), self.root)}
        self.folders += reading.folders
        self.folders += (Folder(folder, file, lines.get(folder, 1)) for folder in made.folders)
        for architecture in (
            () if self.architectures and not together else (*reading.architectures, *made.architectures)
        ):
            self.architectures.setdefault(architecture, file)
        self.left_out |= dict.fromkeys(reading.left_out, file)
        self.macros |= dict.fromkeys(reading.macros, file)
        self.switches |= dict.fromkeys(reading.switches)
        self.packages = self.packages | {each: file for each in reading.packages if each not in self.packages}
        return dict.fromkeys(made.flags, file)

    def _whole(self, file: str, text: str) -> str:
        """Return a build file without comments, with the files that it includes."""
        system = registry.system_of(file)
        shortened = system.without_comments if system else without_comments
        text = shortened(text)
        for included in _included(file, text, self.root):
            if len(text) + len(included) < BUILD_FILE.most:
                text += "\n" + shortened(_MARKS.sub("", included))
        return text

    def _of_text(self, file: str, text: str) -> dict[str, str]:
        """Return folders and macros that stand in the text of a build file, whichever part of the project they are
        for.
        """
        system = registry.system_of(file)
        together = system is not None and system.read_together is not None
        if system and system.read_together:
            self.together.setdefault(system, []).insert(0, self._build_file(file, text, self.nearest))
        else:
            self.folders += option_folders(file, text, self.root)
        # folders that are read together inherit macros from those above; another build system above is another project's
        same = os.path.basename(file) == os.path.basename(self.nearest)
        plain = same and not together and not makefiles.is_makefile(file)
        named = dict.fromkeys(islice(_definitions(text), _MOST) if plain else (), file)
        of_cuda = dict.fromkeys(_OF_CUDA.findall(text) if same else ())
        return named | dict.fromkeys((f"-D{definition}" for definition in islice(of_cuda, _MOST)), file)

    def _understood(self, file: str, text: str) -> None:
        """Note a build file that names the source, where no reader found out what it gives the compiler for it."""
        name = os.path.basename(self.path)
        if re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-]|\.\w)", text):
            self.naming.append(file)

    def _of_any(self, file: str, text: str, named: dict[str, str], *, known: bool) -> None:
        """Add what lets a file compile, whichever part of the text it is for. If the file's own command is `known`,
        add only what changes no figure.
        """
        named |= dict.fromkeys(SWITCHES.findall(text), file)
        if known:
            return
        system = registry.system_of(file)
        if RELOCATABLE.search(text) and not (system and system.read_together):
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

    def read_together(self, system: BuildSystem, files: Sequence[BuildFile]) -> None:
        """Take what the files of one build system say together, the highest first. If the nearest build file is
        another system's, they belong to another project, which at most has headers for this one.
        """
        readings = _together(system, files)
        if registry.system_of(self.nearest) is not system:
            readings = [
                (file, Reading(folders=each.folders, switches=each.switches, packages=each.packages))
                for file, each in readings
            ]
        if any(command_line.year(flag) is not None for _, reading in readings for flag in reading.flags):
            self.flags = {  # the text may have the standards of other targets
                flag: file
                for flag, file in self.flags.items()
                if command_line.year(flag) is None or registry.system_of(file) is not system
            }
        for file, reading in readings:
            self._take(self._of_reading(reading, file, "", together=True))
        if named := {each: file for file, reading in readings for each in reading.architectures}:
            self.architectures = named  # these replace the architectures that options name

    def read_others(self, listed: elsewhere.Listed) -> None:
        """Take what other files say: calls of torch's `load`, and scripts; then build files and scripts in other
        folders. If they are not understood, note that they name the source.
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
        """Take what a build file or a script in another folder says, if it compiles the source. Return whether it
        does.
        """
        system = registry.system_of(file)
        if system and system.read_together:
            files = [
                self._build_file(each, self._whole(each, _text(each, self.root)), file)
                for each in _of_system(system, file, self.root)
            ]
            is_source = any(reading.is_source for _, reading in _together(system, files))
            if is_source:
                self.nearest = file
                self.together[system] = files
                self.read_together(system, files)
            return is_source
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


def _together(system: BuildSystem, files: Sequence[BuildFile]) -> list[tuple[str, Reading]]:
    """Return what the files of a build system that has `read_together` say together, by the file that says it."""
    try:
        return system.read_together(files) if system.read_together else []
    except _UNREADABLE:
        return [(files[0].path, Reading(left_out=(_NOT_FOLLOWED,)))]


def _of_system(system: BuildSystem, file: str, root: str) -> list[str]:
    """Return the files of a build system in the folder of one of them and above it, the highest first."""
    beside = (str(folder / name) for folder in folders_above(file, root) for name in system.names)
    return [each for each in beside if os.path.isfile(each)][::-1]


class _Parted(NamedTuple):
    """A command's flags: single words, include folders, and architectures."""

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
    """Return the text of a file of the workspace that a build file includes. Return "" for any other file."""
    path = os.path.normpath(path)
    try:
        return _MARKS.sub("", regular_files.text(path, BUILD_FILE)) if Path(path).is_relative_to(root) else ""
    except (OSError, ValueError):
        return ""


def _included(file: str, text: str, root: str) -> Iterator[str]:
    """Yield the texts of the workspace's files that a Makefile or CMakeLists.txt (without comments) includes, one
    level deep.
    """
    here = os.path.dirname(file)
    for include in islice(_INCLUDED.finditer(text), _MOST_INCLUDED):
        word = include[1] or include[2]
        names = [word] if os.path.splitext(word)[1] else [f"{at}/{word}.cmake" for at in _MODULES]
        for name in names:
            for value in substituted(name, here, root):
                path = os.path.normpath(os.path.join(here, value))
                if Path(path).is_relative_to(root):
                    with contextlib.suppress(OSError, ValueError):
                        yield regular_files.text(path, BUILD_FILE)


def compiles_host_sources(path: str, root: str, listed: elsewhere.Listed | None = None) -> bool:
    """Return whether nvcc compiles C++ sources as CUDA: all, by a build file above the file, or those that a Makefile
    among `listed` names. Reads files.
    """
    for file in islice(_above(path, root), _MOST_FILES):
        if _AS_CUDA.search(_without_remarks(file)):
            return True
    others = filter(makefiles.is_makefile, elsewhere.nearest(path, root, listed or {}, _MOST_FILES))
    lines = (line for file in others for line in _without_remarks(file).replace("\\\n", " ").split("\n"))
    return any("cu" in line and _AS_CUDA.search(line) and _OF_HOST.search(line) for line in lines)


def _without_remarks(file: str) -> str:
    """Return the text of a build file without its comments, or "" if it cannot be read."""
    try:
        return without_comments(regular_files.text(file, BUILD_FILE))
    except (OSError, ValueError):
        return ""


def definition_of(name: str, path: str, root: str) -> tuple[str, str]:
    """Return how the nearest build file above a file defines a macro (the first of several ways), and that build
    file.
    """
    pattern = re.compile(rf"(?<![\w-])-D\s?({name}(?:=[\w.:+-]+)?)(?=[\s\"';)]|$)", re.MULTILINE)
    for file in islice(_above(path, root), _MOST_FILES):
        with contextlib.suppress(OSError, ValueError):
            if match := pattern.search(without_comments(regular_files.text(file, BUILD_FILE))):
                return f"-D{match[1]}", file
    return "", ""


def _definitions(text: str) -> Iterator[str]:
    """Yield each `-D…` among nvcc's flags that stands in no condition of CMake or make."""
    depth = 0
    for each in text.replace("\\\n", " ").split("\n"):
        line = each.strip()
        depth += bool(_OPENS.match(line)) - bool(_CLOSES.match(line))
        if depth == 0 and "-D" in line and any(map(_names_nvcc_flags, _NAME.findall(line))):
            yield from (f"-D{definition}" for definition in _DEFINITION.findall(line))


def _names_nvcc_flags(name: str) -> bool:
    """Say whether a variable holds nvcc's flags: `CUDA_NVCC_FLAGS`, `CUFLAGS`. CXXFLAGS are another compiler's."""
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
