"""What the search asks of a project's build files: their names, and the programs that they declare with their
sources.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple


class DeclaredProgram(NamedTuple):
    """A program that a build file makes.

    `folder` is that of CMake's or Meson's project, or of the Makefile. `name` is the target to ask for there, and
    `output` the file that make then writes, relative to the folder. `sources` are absolute, and include those of
    libraries that it links. `arguments` are those with which the build file itself runs it. If `whole` is false,
    there may be more sources.
    """

    tool: Literal["cmake", "make", "meson"]
    folder: str
    name: str
    output: str
    sources: frozenset[str]
    arguments: tuple[str, ...] = ()
    whole: bool = True


def _nothing(_source: str, _root: str, _text_of: Callable[[str], str]) -> list[DeclaredProgram]:
    return []


class BuildFiles(NamedTuple):
    """Reads build files. Without functions it reads none."""

    names: tuple[str, ...] = ()
    """Those of the files, without folders."""
    programs: Callable[[str, str, Callable[[str], str]], list[DeclaredProgram]] = _nothing
    """Takes a source's path, the project's folder and what gives a file's text ("" for none); returns the programs that have the source."""
