"""Reads flags that a project's author has given clangd for a source: compile_flags.txt, and CompileFlags of .clangd.

They say what the author's editor shows. nvcc needs only macros, folders of headers and the language's standard from
them.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from typing import NamedTuple

from orbit_lsp.compilation.build_systems.reading import Folder
from orbit_lsp.compilation.folders import folders_above
from orbit_remote.common import regular_files
from orbit_remote.common.limits import QUOTED

_WHOLE = re.compile(r"-D\w.*|-U\w+|-std=\S+")
_FOLDER = re.compile(r"-(?:I|isystem|iquote)(.*)")
_FRAGMENTS = re.compile(r"^---[ \t]*$", re.MULTILINE)
_ADD = re.compile(
    r"^[ \t]*Add:[ \t]*(?:\[(?P<list>[^\]]*)\]|(?P<one>[^\s#][^\n]*))?[ \t]*(?P<block>(?:\n[ \t]*-[ \t][^\n]*)*)",
    re.MULTILINE,
)
_MATCH = re.compile(
    r"^[ \t]*(?P<key>PathMatch|PathExclude):[ \t]*(?:\[(?P<list>[^\]]*)\]|(?P<one>[^\n]*))", re.MULTILINE
)
_QUICK = re.compile(r"(?:[\w/|()^$ -]|\\[\w./+-]|\.[*+]?|\(\?:|\w\?)*")
"""An expression in which only `.*` and `.+` repeat anything."""
_MOST_REPEATED = 3
_LONGEST_PATH = 400
_ITEM = re.compile(r"\"[^\"\n]*\"|'[^'\n]*'|[^\s,'\"][^,\n]*")


class ClangdFlags(NamedTuple):
    """A source's flags, each with the file that names it, and its folders of headers."""

    flags: tuple[tuple[str, str], ...] = ()
    folders: tuple[Folder, ...] = ()


def of(path: str, root: str) -> ClangdFlags:
    """Return what the nearest compile_flags.txt and .clangd above a source say of it. Reads files."""
    flags: dict[str, str] = {}
    folders: list[Folder] = []
    for name, words_of in (("compile_flags.txt", _of_lines), (".clangd", _of_fragments)):
        files = (os.path.join(folder, name) for folder in folders_above(path, root))
        file = next((each for each in files if os.path.isfile(each)), "")
        words = (
            words_of(_text(file), os.path.relpath(path, os.path.dirname(file)).replace(os.sep, "/"))
            if file
            else iter(())
        )
        for word in words:
            if _WHOLE.fullmatch(word):
                flags.setdefault(word, file)
            elif match := _FOLDER.fullmatch(word):
                folder = os.path.normpath(os.path.join(os.path.dirname(file), match[1] or next(words, "")))
                folders += [Folder(folder, file, 1)] if os.path.isdir(folder) else []
    return ClangdFlags(tuple(flags.items()), tuple(folders))


def _of_lines(text: str, _place: str) -> Iterator[str]:
    """Yield the arguments: one stands on each line."""
    return (line.strip() for line in text.splitlines() if line.strip())


def _of_fragments(text: str, place: str) -> Iterator[str]:
    """Yield the arguments of each fragment of YAML whose `If` matches the file."""
    for fragment in _FRAGMENTS.split(text):
        if all(_holds(condition, place) for condition in _MATCH.finditer(fragment)):
            for added in _ADD.finditer(fragment):
                for item in _items(added["list"] or added["one"] or "") + _items(
                    re.sub(r"\n[ \t]*-[ \t]", "\n", added["block"])
                ):
                    yield from _split(item)


def _holds(condition: re.Match[str], place: str) -> bool:
    """Return whether a condition of paths holds. An expression that could take time without a bound counts as not
    matching.
    """
    for pattern in _items(condition["list"] or condition["one"]):
        repeated = len(re.findall(r"\.[*+]", pattern))
        if repeated > _MOST_REPEATED or len(place) > _LONGEST_PATH or not _QUICK.fullmatch(pattern):
            continue
        try:
            if re.fullmatch(pattern, place):
                return condition["key"] == "PathMatch"
        except re.error:
            continue
    return condition["key"] == "PathExclude"


def _items(text: str) -> list[str]:
    """Return the scalars of a list."""
    return [re.sub(r"\s+#.*", "", item).strip().strip("\"'") for item in _ITEM.findall(text)]


def _split(item: str) -> list[str]:
    try:
        return shlex.split(item)
    except ValueError:
        return []


def _text(file: str) -> str:
    try:
        return regular_files.head(file, QUOTED).decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""
