"""Headers that CMake makes from templates (`config.h.in`), as far as the project's text says what they become

A project that has not been configured has no such headers. What its CMakeLists.txt sets by itself is known without running
it: options by default, and literal values. All else counts as not there.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from orbit_lsp.compilation.lazy_pattern import lazy_pattern
from orbit_lsp.state.user_folders import cache_folder
from orbit_remote.common import regular_files
from orbit_remote.common.limits import BUILD_FILE

_COMMAND = lazy_pattern(
    r"^[ \t]*(if|elseif|else|endif|option|set|string|project)[ \t]*\(([^()\n]{0,2000})\)",
    re.IGNORECASE | re.MULTILINE,
)
_CONFIGURE = lazy_pattern(r"^[ \t]*configure_file[ \t]*\(([^()]{0,2000})\)", re.IGNORECASE | re.MULTILINE)
_HOME = lazy_pattern(r"^CMAKE_HOME_DIRECTORY:INTERNAL=(.+)$", re.MULTILINE)
_VERSION = lazy_pattern(r"VERSION[ \t]+(\d+)\.(\d+)(?:\.(\d+))?")
_OFF = lazy_pattern(r"|0|OFF|NO|FALSE|N|IGNORE|NOTFOUND|.*-NOTFOUND", re.IGNORECASE)
_DEFINE = lazy_pattern(r"^([ \t]*#[ \t]*)cmakedefine(01)?[ \t]+(\w+)(.*)$", re.MULTILINE)
_VALUE = lazy_pattern(r"@(\w+)@|\$\{(\w+)\}")
_REFERENCE = lazy_pattern(r"\$\{(\w+)\}")
_PLAIN = lazy_pattern(r"\^?[\w-]+\$?")
"""A pattern that means itself: others are not read."""


def make(template: str, name: str, root: str) -> str:
    """The folder in the cache from which `name` leads to what the template becomes; "" where it cannot be made."""
    try:
        text = regular_files.text(template, BUILD_FILE)
        values = dict(_values(template, root))
        content = _filled(text, values)
        digest = sha256(f"{template}\0{name}\0{content}".encode("utf-8", "replace")).hexdigest()[:16]
        folder = cache_folder() / "headers" / digest
        file = folder / name
        if not file.resolve().is_relative_to(folder.resolve()):
            return ""
        if not file.exists():
            _write(file, content)
    except (OSError, ValueError, RuntimeError):  # RuntimeError: there is no home folder
        return ""
    return str(folder)


def project_of(path: str, root: str) -> str:
    """The highest folder above a file that has a CMakeLists.txt, up to the root; "" where none has."""
    above = [each for each in Path(path).parents if each.is_relative_to(root)]
    return next((str(each) for each in reversed(above) if (each / "CMakeLists.txt").is_file()), "")


def configures(template: str, name: str, project: str) -> bool:
    """Whether a CMakeLists.txt of the project, beside the template or above it, makes the header `name` from it."""
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
    """Whether a file lies in a build folder of the project, which may be anywhere."""
    for folder in Path(file).parents:
        if not folder.is_relative_to(root):
            break
        with contextlib.suppress(OSError, ValueError):
            cache = regular_files.text(folder / "CMakeCache.txt", BUILD_FILE)
            home = _HOME.search(cache)
            return bool(home) and os.path.realpath(home[1].strip()) == os.path.realpath(project)
    return False


def _write(file: Path, content: str) -> None:
    """At once: another server may read it."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=".header-")
    with os.fdopen(descriptor, "w", encoding="utf-8") as out:
        out.write(content)
    Path(name).replace(file)


def _filled(text: str, values: dict[str, str]) -> str:
    """As `configure_file` does it."""

    def define(match: re.Match[str]) -> str:
        start, number, name, rest = match.groups()
        is_on = not _OFF.fullmatch(values.get(name, ""))
        if number:
            return f"{start}define {name} {int(is_on)}"
        return f"{start}define {name}{rest}" if is_on else f"/* #undef {name} */"

    def value(match: re.Match[str]) -> str:
        return values.get(match[1] or match[2]) or "0"

    return _VALUE.sub(value, _DEFINE.sub(define, text))


def _values(template: str, root: str) -> Iterator[tuple[str, str]]:
    """Variables of the CMakeLists.txt beside the template and above it: those of a folder win over those above."""
    folder = Path(template).parent
    above = [folder, *(each for each in folder.parents if each.is_relative_to(root))]
    for each in reversed(above):
        with contextlib.suppress(OSError, ValueError):
            yield from variables(regular_files.text(each / "CMakeLists.txt", BUILD_FILE)).items()


def variables(text: str) -> dict[str, str]:
    """What a CMakeLists.txt sets. Of branches whose condition is not known the first counts."""
    values: dict[str, str] = {}
    taken: list[bool] = []  # of each `if` around, whether a branch of it has been taken
    active: list[bool] = []
    for match in _COMMAND.finditer(text):
        command, words = match[1].lower(), match[2].split()
        if command == "if":
            taken.append(_holds(words, values))
            active.append(taken[-1])
        elif command in ("elseif", "else") and taken:
            active[-1] = not taken[-1] and (command == "else" or _holds(words, values))
            taken[-1] = taken[-1] or active[-1]
        elif command == "endif" and taken:
            taken.pop()
            active.pop()
        elif words and all(active) and command == "option":
            values.setdefault(words[0], words[-1] if words[-1].upper() in ("ON", "TRUE", "1") else "OFF")
        elif len(words) > 1 and all(active) and command == "set":
            if (known := _known(words[1].strip('"'), values)) is not None:
                values.setdefault(words[0], known)
        elif words and all(active) and command == "string":
            values |= _edited(words, values)
        elif command == "project" and words and (version := _VERSION.search(match[2])):
            for project in (words[0], "PROJECT"):
                parts = zip(("MAJOR", "MINOR", "PATCH"), version.groups("0"), strict=True)
                values |= {f"{project}_VERSION_{part}": number for part, number in parts}
                values[f"{project}_VERSION"] = ".".join(version.groups("0"))
    return values


def _known(text: str, values: dict[str, str]) -> str | None:
    """With the values of the variables in it; None where one is not known."""
    names = _REFERENCE.findall(text)
    filled = _REFERENCE.sub(lambda match: values.get(match[1], ""), text)
    return filled if "$" not in filled and all(name in values for name in names) else None


def _edited(words: list[str], values: dict[str, str]) -> dict[str, str]:
    """What `string(TOLOWER …)`, `string(TOUPPER …)` and `string(REPLACE …)` set."""
    known = [_known(word.strip('"'), values) for word in words]
    match known:
        case ["TOLOWER" | "TOUPPER" as way, str(text), str(name)]:
            return {name: text.lower() if way == "TOLOWER" else text.upper()}
        case ["REPLACE", str(old), str(new), str(name), str(text)] if old:
            return {name: text.replace(old, new)}
        case ["REGEX", "REPLACE", str(pattern), str(new), str(name), str(text)] if _PLAIN.fullmatch(pattern):
            begin, end = "^" * pattern.startswith("^"), "$" * pattern.endswith("$")
            inner = re.escape(pattern.removeprefix("^").removesuffix("$"))
            return {name: re.sub(begin + inner + end, lambda _: new, text)}
        case _:
            return {}


def _holds(words: list[str], values: dict[str, str]) -> bool:
    """An option as it is by default; what is not known holds."""
    negated = bool(words) and words[0] == "NOT"
    name = words[-1] if len(words) == 1 + negated else ""
    if name not in values:
        return not any(word in values and _OFF.fullmatch(values[word]) for word in words) or negated
    return bool(_OFF.fullmatch(values[name])) == negated
