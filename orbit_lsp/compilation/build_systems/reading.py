"""What a build file says of one source, and what a build system is: the form that all of them share."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from orbit_lsp.drivers.declared import DeclaredProgram

SHELL = re.compile(r"[|<>&;`$(){}*?\ue000\ue001]|orbit-input")
"""Signs in an argument of a program that only a shell or a build replaces by a value."""
RELOCATABLE = re.compile(
    r"(?i:CUDA_SEPARABLE_COMPILATION\s+(?:ON|TRUE|1))|(?<![\w-])-{1,2}(?:rdc|relocatable-device-code)[ =]true|(?<![\w-])-dc(?![\w-])"
)
SWITCHES = re.compile(
    r"(?<![\w-])--?(?:expt-relaxed-constexpr|expt-extended-lambda|extended-lambda)(?![\w-])"
)
"""Options with which nvcc accepts more: a source that does without is compiled alike."""
_COMMENT = re.compile(r"^[ \t]*#.*$", re.MULTILINE)

# a pattern that looked far ahead from each of a text's characters would keep the interpreter for minutes
_FOLDER_OPTIONS = re.compile(r"(?<![\w-])-(?:I|isystem)\s*(\"[^\"]+\"|[^\s\"',;)\]]+)")
_INTERFACE = re.compile(r"\$<(?:BUILD_INTERFACE|INSTALL_INTERFACE):([^<>]*)>")
_TOP = re.compile(
    r"\$[{(](?:CMAKE_SOURCE_DIR|PROJECT_SOURCE_DIR|\w+_SOURCE_DIR|SRC_?DIR|TOP_?DIR|ROOT_?DIR)[})]",
    re.IGNORECASE,
)
_LOCAL = re.compile(
    r"\$[{(](?:CMAKE_CURRENT_SOURCE_DIR|CMAKE_CURRENT_LIST_DIR|CURDIR|PWD)[})]|\$\$PWD", re.IGNORECASE
)
MOST_FOLDERS = 400
"""Folders that one build file may name."""
_LONGEST = 4096
"""Characters of a path."""


class Folder(NamedTuple):
    """An include folder that a build file names."""

    path: str
    file: str
    line: int


class Reading(NamedTuple):
    """What a build file says of a source. `flags` are nvcc's, as in a database's command. `left_out` are flags that
    are not known without running the build.
    """

    flags: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    folders: tuple[Folder, ...] = ()
    """Include folders that are not among the flags, with the lines that name them."""
    architectures: tuple[str, ...] = ()
    """`86`, where they are not among the flags."""
    is_source: bool = False
    """The file names the source among those that it compiles."""
    certain: bool = False
    """The file compiles the source by these flags: files of the same kind above it are of others."""
    by_command: bool = False
    """A command that the project writes itself compiles the source: no database of its build system has that."""
    whole: bool = False
    """These are all flags of the source: no option that the text has elsewhere is for it."""
    of_any: bool = False
    """The file may compile sources that it does not name."""
    builds_nothing: bool = False
    """The file has to do with no CUDA: it may install what a build file beside it builds."""
    extension: str = ""
    """The name of torch's extension that the source is part of."""
    macros: tuple[str, ...] = ()
    """`-D…` of targets, none of which is known to have the source."""
    switches: tuple[str, ...] = ()
    """The build's own options without which it compiles no CUDA."""
    packages: tuple[str, ...] = ()
    """The packages that the build looks for on the machine."""


class BuildFile(NamedTuple):
    """A build file, its text, the source that is asked about, and the workspace's folder `root`. `nearest` is the
    build file nearest to the source. If a script makes a build file from this file, it is a `template`.
    """

    path: str
    text: str
    source: str
    root: str
    nearest: str
    template: bool
    included: Callable[[str], str]
    """The text of a file that this one includes by this name; "" for none."""


Together = Callable[[Sequence[BuildFile]], list[tuple[str, Reading]]]
"""Given the build files of one system above a source, the highest first, each text without comments and with what it includes: what
they say together, by the file that says it.
"""
DatabaseCommand = Callable[[str, Sequence[str]], str]
"""Given a build file's folder, relative to where somebody stands, and the switches that the project needs: a command line."""
Programs = Callable[[str, Sequence[str], Callable[[str], str]], Iterator[DeclaredProgram]]
"""Given a source, the folders from its own up to the project's, and what reads a file's text: the programs that have the source
among their own.
"""


def without_comments(text: str) -> str:
    """Return a text without the lines that begin with `#`. The other lines keep their numbers."""
    return _COMMENT.sub("", text)


class BuildSystem(NamedTuple):
    """A kind of build file. `names` are the names of its files, the preferred one first. Build systems are asked in
    the order of their `rank`. A module of this package lists its own in `SYSTEMS`, where they are found.
    """

    rank: int
    names: tuple[str, ...]
    read: Callable[[BuildFile], Reading | None] | None = None
    """None where a file says nothing about the source."""
    read_together: Together | None = None
    """Where a file adds to what those above it say."""
    programs: Programs | None = None
    database_command: DatabaseCommand | None = None
    """What makes the build system write a compile_commands.json: a command for the folder of the build file, or for the highest one
    that has such a file (`from_top`).
    """
    from_top: bool = False
    reaches_out: bool = True
    """Whether its files may compile sources of other folders than those below them."""
    fits: Callable[[str], bool] | None = None
    """Whether a file has another name of this build system's."""
    without_comments: Callable[[str], str] = without_comments


def in_folder(command: str) -> DatabaseCommand:
    """Return how a command is given in the folder of a build file."""
    return lambda folder, _: command if folder == "." else f"cd {shlex.quote(folder)} && {command}"


def option_folders(file: str, text: str, root: str) -> Iterator[Folder]:
    """Yield the folders of `-I…` in the text of a build file, if all variables in them stand for known folders."""
    starts: dict[str, int] = {}
    for match in _FOLDER_OPTIONS.finditer(text):
        starts.setdefault(match[1].strip('"'), match.start())
        if len(starts) >= MOST_FOLDERS:
            break
    for word, start in starts.items():
        yield from named_folders(word, file, text.count("\n", 0, start) + 1, root)


def named_folders(word: str, file: str, line: int, root: str) -> Iterator[Folder]:
    """Yield the existing folders that a word in a line of a build file may mean."""
    here = os.path.dirname(file)
    for value in substituted(word, here, root):
        path = os.path.normpath(os.path.join(here, value))
        if os.path.isdir(path):
            yield Folder(path, file, line)


def substituted(word: str, here: str, root: str) -> Iterator[str]:
    """Yield what a word of CMake or make may become once its variables are folders. A project's
    `${PROJECT_SOURCE_DIR}` may be the folder of the build file (`here`), or the workspace. Yield nothing if another
    variable is left.
    """
    if len(word) > _LONGEST:
        return
    word = _LOCAL.sub(lambda _: here, _INTERFACE.sub(r"\1", word))
    for folder in dict.fromkeys((root, here)) if _TOP.search(word) else (here,):
        value = _TOP.sub(lambda _, folder=folder: folder, word)
        if "$" not in value and value:
            yield value
