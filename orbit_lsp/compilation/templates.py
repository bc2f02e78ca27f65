"""Makes headers that CMake would make from templates (`config.h.in`), as far as the project's text says what they
become.

A project that has not been configured has no such headers. What its CMakeLists.txt sets by itself is known without
running it: options by default, and literal values. All else counts as absent.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from hashlib import sha256
from pathlib import Path

from orbit_lsp.compilation.build_systems.cmake import declarations
from orbit_lsp.compilation.build_systems.cmake.language import OFF, is_switch
from orbit_lsp.state.user_folders import cache_folder
from orbit_remote.common import regular_files
from orbit_remote.common.configured import cmake_folder
from orbit_remote.common.limits import BUILD_FILE

_CONFIGURE = re.compile(r"^[ \t]*configure_file[ \t]*\(([^()]{0,2000})\)", re.IGNORECASE | re.MULTILINE)
_DEFINE = re.compile(r"^([ \t]*#[ \t]*)cmakedefine(01)?[ \t]+(\w+)(.*)$", re.MULTILINE)
_DECIDING = re.compile(r"^(?:[ \t]*#[ \t]*(?:el)?if[^\n@]{0,200}|[ \t]*)@(\w+)@", re.MULTILINE)
"""What decides which code a header has, or is code itself."""
_VALUE = re.compile(r"@(\w+)@|\$\{(\w+)\}")


def make(template: str, name: str, root: str) -> str:
    """Write what the template becomes to the cache. Return the folder from which `name` leads to it, "" if it cannot
    be made.
    """
    try:
        text = regular_files.text(template, BUILD_FILE)
        known, values = _values(template, root)
        if any(name not in known for name in _DECIDING.findall(text)):
            return ""  # a guess would compile another code than the build does
        return _kept(template, name, _filled(text, values))
    except (OSError, ValueError, RuntimeError):  # RuntimeError: there is no home folder
        return ""


def forward(name: str, other: str) -> str:
    """Write a header that includes `other` to the cache. Return the folder from which `name` leads to it, "" if it
    cannot be made.
    """
    try:
        return _kept("", name, f"#include <{other}>\n")
    except (OSError, ValueError, RuntimeError):
        return ""


def _kept(template: str, name: str, content: str) -> str:
    digest = sha256(f"{template}\0{name}\0{content}".encode("utf-8", "replace")).hexdigest()[:16]
    folder = cache_folder() / "headers" / digest
    file = folder / name
    if not file.resolve().is_relative_to(folder.resolve()):
        return ""
    if not file.exists():
        _write(file, content)
    return str(folder)


def project_of(path: str, root: str) -> str:
    """Return the highest folder above a file that has a CMakeLists.txt, up to the root. Return "" if none has."""
    above = [each for each in Path(path).parents if each.is_relative_to(root)]
    return next((str(each) for each in reversed(above) if (each / "CMakeLists.txt").is_file()), "")


def configures(template: str, name: str, project: str) -> bool:
    """Say whether a CMakeLists.txt of the project, beside the template or above it, makes the header `name` from it."""
    wanted = os.path.basename(template), os.path.basename(name)
    for folder in Path(template).parents:
        if not folder.is_relative_to(project):
            return False
        with contextlib.suppress(OSError, ValueError):
            text = regular_files.text(folder / "CMakeLists.txt", BUILD_FILE)
            for words in _CONFIGURE.findall(text):
                if tuple(os.path.basename(word.strip('"')) for word in words.split()[:2]) == wanted:
                    return True
    return False


def is_built_from(file: str, project: str, root: str) -> bool:
    """Say whether a file lies in a build folder of the project, which may be anywhere."""
    for folder in Path(file).parents:
        if not folder.is_relative_to(root):
            break
        if cmake_folder.is_configured(str(folder)):
            return cmake_folder.is_of(str(folder), project)
    return False


def _write(file: Path, content: str) -> None:
    """Write a file in one step: another server may read it."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=".header-")
    with os.fdopen(descriptor, "w", encoding="utf-8") as out:
        out.write(content)
    Path(name).replace(file)


def _filled(text: str, values: dict[str, str]) -> str:
    """Fill in a template as `configure_file` does."""

    def define(match: re.Match[str]) -> str:
        start, number, name, rest = match.groups()
        is_on = not OFF.fullmatch(values.get(name, "")) or (name not in values and is_switch(name))
        if number:
            return f"{start}define {name} {int(is_on)}"
        return f"{start}define {name}{rest}" if is_on else f"/* #undef {name} */"

    def value(match: re.Match[str]) -> str:
        return values.get(match[1] or match[2]) or "0"

    return _VALUE.sub(value, _DEFINE.sub(define, text))


def _values(template: str, root: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the variables of the CMakeLists.txt beside the template and above it, with CMake's values there: those
    that are known, and those with guesses.
    """

    def text_of(file: str) -> str:
        with contextlib.suppress(OSError, ValueError):
            return regular_files.text(file, BUILD_FILE) if Path(file).is_relative_to(root) else ""
        return ""

    above = [each for each in Path(template).parents if each.is_relative_to(root)]
    files = [str(each / "CMakeLists.txt") for each in reversed(above) if (each / "CMakeLists.txt").is_file()]
    return declarations.values(files, text_of)
