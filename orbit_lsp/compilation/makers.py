"""Finds what a project makes by itself and a checkout lacks: headers that a script or a rule of make writes, or that
CMake downloads, and values that a program puts into a source.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator, Sequence

from orbit_lsp.compilation.build_systems import elsewhere
from orbit_lsp.compilation.build_systems.cmake.language import options_off
from orbit_lsp.compilation.folders import folders_above
from orbit_remote.common import regular_files
from orbit_remote.common.limits import BUILD_FILE

_MOST_FILES = 256
_MOST_TEXT = 8 << 20
_MOST_NAMED = 3
_WRITES = re.compile(r"\bopen\s*\(|\bwrite|>|\btee\b|\bprint|\bcp\b|\bmv\b|\bsed\b|-o\b|Set-Content|Out-File")
_DOWNLOADS = re.compile(
    r"\b(?:CPMAddPackage|CPMFindPackage|FetchContent_Declare|ExternalProject_Add)\s*\(\s*(?:NAME\s+)?\"?([\w./:#@-]+)",
    re.IGNORECASE,
)
_LOOKS_FOR = re.compile(
    r"-I[ \t]?\$[({](\w{3,60})[)}]|(?<![\w-])-l(\w{3,60})|\bpkg_check_modules[ \t]*\([ \t]*(\w{3,60})|\bPKG_CHECK_MODULES\(\[?(\w{3,60})"
)
"""Where a build file takes a library from: a folder that a variable names, a library that is linked, a package."""
_OF_NVIDIA = re.compile(r"cu[a-z]|nv[a-z]", re.IGNORECASE)
"""Headers of NVIDIA's libraries, which no download of a project has."""
_PUT_IN = re.compile(
    r"[\"'`](?:\$\{?|\{\{\s*|@|<|%)?([A-Za-z_]\w+)|-D\s?([A-Za-z_]\w+)|#\s*define\s+([A-Za-z_]\w+)"
)
_WORD = re.compile(r"\b[A-Za-z_]\w+")
_DEFINED = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", re.MULTILINE)


def of_header(name: str, source: str, root: str, listed: elsewhere.Listed) -> str:
    """Return what of the project makes the header `name`, which `source` includes and the workspace lacks, and what
    to do. Return "" if nothing names it. `listed` are the workspace's build files and scripts. Reads files.
    """
    last = posixpath.basename(name)
    named = re.compile(rf"(?<![\w.-]){re.escape(last)}(?![\w-]|\.\w)")
    if configured := _by_configure(last, source, root):
        return configured
    downloads: list[tuple[str, list[str]]] = []
    options: list[str] = []
    for file, text in _texts(source, root, listed):
        shown = os.path.relpath(file, root)
        if last in text and named.search(text):
            how = _how(shown, text, last)
            if how:
                return how
        if package := _looked_for(name, text):
            return f"it comes with {package}, as {shown} says: install that"
        if packages := _DOWNLOADS.findall(text) if file.endswith(("CMakeLists.txt", ".cmake")) else []:
            downloads.append((shown, packages))
            options += options_off(text)
    words = [each for each in re.split(r"\W|_", name.lower()) if len(each) > 3]
    for file, packages in downloads:
        if near := next((each for each in packages if any(word in each.lower() for word in words)), ""):
            return f"the project's build downloads {_with_option(near, options)}, as {file} says"
    if downloads and not _OF_NVIDIA.match(last):
        file, packages = downloads[0]
        which = ", ".join(_with_option(each, options) for each in dict.fromkeys(packages[:_MOST_NAMED]))
        return f"it may come with what the project's build downloads, as {file} says ({which})"
    return ""


def _with_option(package: str, options: Sequence[str]) -> str:
    """Return a package that a build downloads, with the option of the same name that is off by default."""
    word = re.sub(r"\W|_", "", package.lower())
    named = [each for each in options if len(word) > 2 and word in each.lower().replace("_", "")]
    option = min(named, key=len, default="")
    return f"{package} with -D{option}=ON" if option else package


def _looked_for(name: str, text: str) -> str:
    """Return the library that a build file links or looks for with the name of a header, and where. Return "" for
    none.
    """
    stems = {
        re.sub(r"\W|_", "", each.lower()) for each in (name.partition("/")[0], posixpath.splitext(name)[0])
    }
    for match in _LOOKS_FOR.finditer(text):
        written = next(filter(None, match.groups()))
        plain = re.sub(
            r"\W|_",
            "",
            re.sub(r"_?(?:DIR|PATH|HOME|ROOT|PREFIX|INC|INCLUDE|INCLUDES)+$", "", written).lower(),
        )
        if plain in stems and len(plain) > 2:
            return f"{plain} ({match[0].strip()}{')' * match[0].count('(') if match[0][0] in 'pP' else ''})"
    return ""


def _by_configure(header: str, source: str, root: str) -> str:
    """Return the sentence about a header that autotools' `configure` writes, as in `AC_CONFIG_HEADERS([config.h])`.
    Return "" for any other.
    """
    for folder in folders_above(source, root):
        for name in ("configure.ac", "configure.in"):
            try:
                text = regular_files.text(folder / name, BUILD_FILE)
            except (OSError, ValueError):
                continue
            if re.search(rf"AC_CONFIG_HEADERS?\([^)]*(?<![\w.-]){re.escape(header)}(?![\w.-])", text):
                scripts = ("autogen.sh", "bootstrap", "bootstrap.sh")
                script = next((each for each in scripts if (folder / each).is_file()), "")
                step = f"./{script}" if script else "autoreconf -i"
                return f"configure writes it, as {os.path.relpath(folder / name, root)} says: {step} && ./configure there"
    return ""


def _how(file: str, text: str, header: str) -> str:
    """Return the sentence about a file that names the header, by the kind of the file."""
    name = os.path.basename(file)
    if name.lower().endswith(("makefile", ".mk", ".make", "makefile.am", "makefile.in")):
        asked_for = rf"^[^\t#:\n]*:(?!=).*(?<![\w.-]){re.escape(header)}(?![\w.-])"
        made = rf"^(?:[^\t#:\n]*(?<![\w.-]))?{re.escape(header)}[^:\n]*:(?!=)|>\s*\S*{re.escape(header)}"
        if re.search(asked_for, text, re.MULTILINE) and not re.search(made, text, re.MULTILINE):
            return ""
        return f"make writes it, as {file} says: build the project once"
    if name.endswith((".txt", ".cmake")):
        return f"the project's build makes it, as {file} says: build the project once"
    if name == "meson.build":
        makes = re.search(r"\b(?:configure_file|custom_target|generator)\s*\(", text)
        return f"Meson writes it, as {file} says: meson setup build, ninja -C build" if makes else ""
    return f"{file} writes it: run that" if _WRITES.search(text) else ""


def values(text: str, scripts: Sequence[str], root: str) -> dict[str, str]:
    """Return the names that scripts put into a source: strings, macros or `-D…` in the scripts that name it, without
    names that it defines itself. Each comes with its script. Reads files.
    """
    words = set(_WORD.findall(text)) - set(_DEFINED.findall(text))
    filled: dict[str, str] = {}
    for file in scripts[:_MOST_NAMED]:
        try:
            script = regular_files.text(file, BUILD_FILE)
        except (OSError, ValueError):
            continue
        for match in _PUT_IN.finditer(script):
            word = match[1] or match[2] or match[3]
            if word in words:
                filled.setdefault(word, os.path.relpath(file, root))
    return filled


def _texts(source: str, root: str, listed: elsewhere.Listed) -> Iterator[tuple[str, str]]:
    size = 0
    for file in elsewhere.nearest(source, root, listed, _MOST_FILES):
        try:
            text = regular_files.text(file, BUILD_FILE)
        except (OSError, ValueError):
            continue
        size += len(text)
        if size > _MOST_TEXT:
            return
        yield file, text
