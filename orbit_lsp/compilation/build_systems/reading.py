"""What a build file says of one source, and what a build system is: the one form of all of them"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from orbit_lsp.drivers.declared import DeclaredProgram

SHELL = re.compile(r"[|<>&;`$(){}*?\ue000\ue001]|orbit-input")
"""Signs in an argument of a program that only a shell or a build replaces by a value."""


class Folder(NamedTuple):
    """An include folder that a build file names."""

    path: str
    file: str
    line: int


class Reading(NamedTuple):
    """What a build file says of a source: nvcc's `flags`, as a database's command would have them, and in `left_out` what is not known
    of them without running the build.
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


class BuildFile(NamedTuple):
    """A build file, its text, the source that is asked about, and the workspace's folder `root`. `nearest` is the build file nearest to
    the source; a file that a script makes a build file of is a `template`.
    """

    path: str
    text: str
    source: str
    root: str
    nearest: str
    template: bool
    included: Callable[[str], str]
    """The text of a file that this one includes by this name; "" for none."""


Programs = Callable[[str, Sequence[str], Callable[[str], str]], Iterator[DeclaredProgram]]
"""Given a source, the folders from its own up to the project's, and what reads a file's text: the programs that have the source
among their own.
"""


class BuildSystem(NamedTuple):
    """A kind of build file. `names` are the names of its files, the preferred one first. Build systems are asked in the order of their
    `rank`. A module of this package lists its own in `SYSTEMS`, by which it is found.
    """

    rank: int
    names: tuple[str, ...]
    read: Callable[[BuildFile], Reading | None] | None = None
    """None where a file says nothing about the source."""
    programs: Programs | None = None
    database_command: str = ""
    """What makes the build system write a compile_commands.json: a command for the folder of the build file, or for the highest one
    that has such a file (`from_top`).
    """
    from_top: bool = False
    reaches_out: bool = True
    """Whether its files may compile sources of other folders than those below them."""
    fits: Callable[[str], bool] | None = None
    """Whether a file has another name of this build system's."""
