"""Finds the build systems: each module of this package and its packages that has `SYSTEMS`."""

from __future__ import annotations

import functools
import importlib
import os
import pkgutil
from collections.abc import Callable
from itertools import islice

from orbit_lsp.compilation import build_systems
from orbit_lsp.compilation.build_systems.reading import BuildSystem
from orbit_lsp.compilation.folders import folders_above
from orbit_lsp.drivers.declared import BuildFiles, DeclaredProgram

_MOST_FOLDERS = 13


@functools.cache
def systems() -> tuple[BuildSystem, ...]:
    """Return all build systems, by their rank."""
    names = pkgutil.walk_packages(build_systems.__path__, f"{build_systems.__name__}.")
    modules = (importlib.import_module(each.name) for each in names)
    every = (system for module in modules for system in getattr(module, "SYSTEMS", ()))
    return tuple(sorted(every, key=lambda system: system.rank))


@functools.cache
def names() -> tuple[str, ...]:
    """Return the names of build files, in the order in which those of one folder are asked."""
    return tuple(name for system in systems() for name in system.names)


def build_files() -> BuildFiles:
    """Return the build files that the search for a kernel's programs reads."""
    return BuildFiles(names(), programs)


def programs(source: str, root: str, text_of: Callable[[str], str]) -> list[DeclaredProgram]:
    """Return the programs that have a source among their own. They come from build files in its folder and above, up
    to the project's in `root`, the nearest first.
    """
    folders = [str(folder) for folder in islice(folders_above(source, root), _MOST_FOLDERS)]
    asked = [system.programs for system in reversed(systems()) if system.programs]
    return list(dict.fromkeys(program for ask in asked for program in ask(source, folders, text_of)))


def system_of(file: str) -> BuildSystem | None:
    """Return the build system of a file by its name."""
    name = os.path.basename(file)
    exact = (system for system in systems() if name in system.names)
    return next(exact, None) or next((each for each in systems() if each.fits and each.fits(name)), None)
