"""How Meson compiles a CUDA file: the literal arguments of a meson.build, read as text; nothing of it is run"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import NamedTuple

from orbit_lsp.compilation import command_line
from orbit_lsp.compilation.lazy_pattern import lazy_pattern

_CALL = lazy_pattern(r"(?<![\w'])([a-z]\w{0,60})[ \t]{0,20}\(")
_ARGUMENTS = lazy_pattern(r"\b(cuda_args|c?pp_args|override_options|include_directories)\s{0,20}:\s{0,20}")
_BRACKET = lazy_pattern(r"'(?:[^'\\\n]|\\.)*'|[()\[\]]")
_TEXT = lazy_pattern(r"'((?:[^'\\\n]|\\.)*)'")
_NAME = lazy_pattern(r"[A-Za-z_]\w*")
_TARGETS = {
    "executable", "library", "static_library", "shared_library", "both_libraries", "shared_module", "extension_module", "build_target",
}  # fmt: skip
_FOR_ALL = {"add_project_arguments", "add_global_arguments"}
_RELOCATABLE = "-rdc=true"
_MOST_CALLS = 500
_LONGEST = 20_000
_LONGEST_SHOWN = 200
_MOST_DEPTH = 8
_MOST_VALUES = 500
"""Lists that are read, those that a name stands for each time."""


class Target(NamedTuple):
    """`flags` are nvcc's, as a database's command would have them; `left_out` is what is not known without running Meson.
    `is_source`: a target names the file.
    """

    flags: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    is_source: bool = False


def read(text: str, path: str, folder: str) -> Target:
    """Read the target that has the source `path` in the meson.build of `folder`; without one, what all its targets share."""
    text = re.sub(r"#[^\n]*", "", text)
    calls = list(_calls(text))
    values = _Values(text)
    name = os.path.basename(path)
    targets = [arguments for called, arguments in calls if called in _TARGETS]
    own = [
        each
        for each in targets
        if name in values.words(each.partition(":")[0], quiet=True) or f"'{name}'" in each
    ]
    words: list[str] = []
    for called, arguments in calls:
        if called in _FOR_ALL and re.search(r"language\s*:[^:]*'cuda'", arguments):
            words += values.words(arguments.partition("language")[0])
    several = {match for each in targets for match in _given(each, "cuda_args")}
    if any(re.search(r"\bkwargs\s*:", each) for each in own):
        values.left_out["what `kwargs` gives the target"] = None
    if own or len(several) == 1:
        for value in _given((own or targets)[0], "cuda_args") if own else several:
            words += values.words(value)
    elif several:
        values.left_out["the cuda_args of a target, if the file is one of its sources"] = None
    command = command_line.parse(["nvcc", *words], folder, path)
    return Target(command.flags, (*values.left_out, *command.left_out), bool(own))


def _calls(text: str) -> Iterator[tuple[str, str]]:
    """Yield the name of each call and the text of its arguments."""
    position = 0
    for _ in range(_MOST_CALLS):
        if (match := _CALL.search(text, position)) is None:
            return
        position = match.end()
        yield match[1], text[position : _closing(text, position)]


def _closing(text: str, start: int) -> int:
    """Return the place of the bracket that closes one before `start`; the end of the text where none does."""
    depth = 0
    for match in _BRACKET.finditer(text, start, start + _LONGEST):
        if match[0] in "([":
            depth += 1
        elif match[0] in ")]":
            depth -= 1
            if depth < 0:
                return match.start()
    return min(len(text), start + _LONGEST)


def _given(arguments: str, keyword: str) -> Iterator[str]:
    """The text of a keyword's value."""
    for match in _ARGUMENTS.finditer(arguments):
        if match[1] == keyword:
            end = _closing(arguments, match.end())
            following = re.compile(r",\s*\w+\s*:").search(arguments, match.end(), end)
            yield arguments[match.end() : following.start() if following else end].strip().rstrip(",")


class _Values:
    """The texts of lists, and of the names that stand for lists."""

    def __init__(self, text: str) -> None:
        self.left_out: dict[str, None] = {}
        self.left = _MOST_VALUES
        self.names: dict[str, list[str]] = {}
        self.in_doubt: set[str] = set()
        """Names that a condition gives a value."""
        inside = [
            (match.start(), -1 if match[1] == "endif" else 1)
            for match in re.finditer(r"^[ \t]*(if|endif)\b", text, re.MULTILINE)
        ]
        for match in re.finditer(r"^[ \t]*([A-Za-z_]\w{0,60})[ \t]*\+?=[ \t]*(?!=)", text, re.MULTILINE):
            opening = text[match.end() : match.end() + 1]
            end = _closing(text, match.end() + 1) + 1 if opening == "[" else text.find("\n", match.end())
            if sum(step for start, step in inside if start < match.start()) > 0:
                self.in_doubt.add(match[1])
                continue
            self.names.setdefault(match[1], []).append(text[match.end() : end if end > 0 else len(text)])

    def words(self, value: str, depth: int = 0, *, quiet: bool = False) -> list[str]:
        """The literal texts of a value; what it has besides is left out, unless `quiet`."""
        self.left -= 1
        if self.left <= 0:
            self.left_out[f"what follows the first {_MOST_VALUES} lists"] = None
            return []
        words = [text.replace("\\'", "'") for text in _TEXT.findall(value)]
        rest = _TEXT.sub(" ", value)
        for name in _NAME.findall(rest):
            if name in self.in_doubt and not quiet:
                self.left_out[f"what a condition sets of {name}"] = None
            if name in self.names and depth < _MOST_DEPTH:
                for each in self.names[name]:
                    words += self.words(each, depth + 1, quiet=quiet)
            elif not quiet and name not in ("files", "true", "false", *self.in_doubt):
                self.left_out[f"cuda_args: {' '.join(value.split())}"[:_LONGEST_SHOWN]] = None
        return words
