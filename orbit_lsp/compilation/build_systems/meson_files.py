"""Reads from meson.build how a CUDA file is compiled and which programs there are. Only literal arguments are read;
nothing is run.
"""

from __future__ import annotations

import bisect
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from orbit_lsp.compilation import command_line
from orbit_lsp.compilation.build_systems.reading import (
    SHELL,
    BuildFile,
    BuildSystem,
    Reading,
    in_folder,
)
from orbit_lsp.drivers.declared import DeclaredProgram

_NAME = "meson.build"
_PROJECT = re.compile(r"^[ \t]*project[ \t]*\(", re.MULTILINE)
_SUBDIR = re.compile(r"\bsubdir\(\s*'([^'\n]+)'")
_MOST_FOLDERS = 200
_CALL = re.compile(r"(?<![\w'])([a-z]\w{0,60})[ \t]{0,20}\(")
_ARGUMENTS = re.compile(
    r"\b(cuda_args|c?pp_args|override_options|include_directories|command|input|arguments|sources|link_with|link_whole|dependencies|args)"
    r"\s{0,20}:\s{0,20}"
)
_BRACKET = re.compile(r"'(?:[^'\\\n]|\\.)*'|[()\[\]]")
_WORD = re.compile(r"'((?:[^'\\\n]|\\.)*)'|([A-Za-z_]\w*)")
_FOLDERS = re.compile(r"\bmeson\.(?:(current_source_dir)|(?:project_|global_)?source_root)\(\)")
_TARGETS = {
    "executable", "library", "static_library", "shared_library", "both_libraries", "shared_module", "extension_module", "build_target",
}  # fmt: skip
_FOR_ALL = {"add_project_arguments", "add_global_arguments"}
_RELOCATABLE = "-rdc=true"
_MOST_CALLS = 500
_LONGEST = 20_000
_LONGEST_SHOWN = 200
_MOST_DEPTH = 8
_MOST_WORDS = 5_000
_MOST_SEARCHED = 1 << 20
"""Characters that are looked through for the source."""
_MOST_VALUES = 500
"""Lists that are read, those that a name stands for each time."""


def read(text: str, path: str, folder: str) -> Reading:
    """Read the target that has the source `path` in the meson.build of `folder`. Without one, read what all its
    targets share. Looks for the project's folder.
    """
    text = re.sub(r"#[^\n]*", "", text)
    text = _FOLDERS.sub(lambda match: f"'{folder if match[1] else _top(folder)}'", text)
    calls = list(_calls(text))
    values = _MesonLists(text)
    if command := _command(calls, values, path):
        # relative folders are the build's, which Meson's manual calls `build`
        made = command_line.parse(["nvcc", *command], os.path.join(_top(folder), "build"), path)
        left_out = (*values.left_out, *made.left_out)
        return Reading(made.flags, left_out, is_source=True, certain=True, by_command=True)
    targets = [call for call in calls if call.name in _TARGETS]
    own = [
        call
        for call in targets
        if _has(values.sources(call.arguments.partition(":")[0]), path)
        or f"'{os.path.basename(path)}'" in call.arguments
    ]
    words: list[str] = []
    for call in calls:
        if call.name in _FOR_ALL and re.search(r"language\s*:[^:]*'cuda'", call.arguments):
            words += values.words(call.arguments.partition("language")[0], call.start)
    several = {match: call.start for call in targets for match in _given(call.arguments, "cuda_args")}
    if any(re.search(r"\bkwargs\s*:", call.arguments) for call in own):
        values.left_out["what `kwargs` gives the target"] = None
    if own or len(several) == 1:
        given = dict.fromkeys(_given(own[0].arguments, "cuda_args"), own[0].start) if own else several
        for value, start in given.items():
            words += values.words(value, start)
    elif several:
        values.left_out["the cuda_args of a target, if the file is one of its sources"] = None
    command = command_line.parse(["nvcc", *words], folder, path)
    return Reading(command.flags, (*values.left_out, *command.left_out), is_source=bool(own))


_Branch = tuple[int, ...]
"""The conditions around a place, the outermost first."""


class _MesonCall(NamedTuple):
    name: str
    arguments: str
    start: int
    of: str
    """The name that it gives a value, or whose method it is."""


def _command(calls: Sequence[_MesonCall], values: _MesonLists, path: str) -> list[str]:
    """Return the words behind nvcc in the command of a custom_target that has the file as its input, or of a
    generator that processes it.
    """
    for call in calls:
        if call.name == "custom_target":
            inputs, commands = (list(_given(call.arguments, each)) for each in ("input", "command"))
            sources = [word for each in inputs for word in values.sources(each)]
        elif call.name == "process":
            made_by = next((each for each in calls if each.name == "generator" and each.of == call.of), None)
            sources = values.sources(call.arguments)
            commands = []
            if made_by and _has(sources, path):
                program = made_by.arguments.partition(",")[0]
                given = next(_given(made_by.arguments, "arguments"), "[]")
                commands = [f"[{program}, {given.strip().removeprefix('[')}"]
        else:
            continue
        for command in commands if _has(sources, path) else ():
            if program := values.nvcc(command):
                rest = command[command.index(program) + len(program) :]
                words = values.words(rest.strip().removeprefix(",").strip(), call.start)
                return [word for word in words if word != path and not re.fullmatch(r"@[A-Z_0-9@]+@", word)]
    return []


def _has(words: Sequence[str], path: str) -> bool:
    """Say whether the file is among words that may lack the beginning of their path."""
    wholes = (
        f"/{os.path.normpath(word)}" for word in words if os.path.basename(word) == os.path.basename(path)
    )
    return any(path.endswith("/" + each.lstrip("./")) for each in wholes)


def _top(folder: str) -> str:
    """Return the folder of the project's first meson.build."""
    while (
        os.path.isfile(os.path.join(os.path.dirname(folder), "meson.build"))
        and os.path.dirname(folder) != folder
    ):
        folder = os.path.dirname(folder)
    return folder


def _calls(text: str) -> Iterator[_MesonCall]:
    position = 0
    for _ in range(_MOST_CALLS):
        if (match := _CALL.search(text, position)) is None:
            return
        position = match.end()
        of = re.compile(r"(\w+)[ \t]*(?:=[ \t]*|\.)$").search(text, max(0, match.start() - 80), match.start())
        yield _MesonCall(
            match[1], text[position : _closing(text, position)], match.start(), of[1] if of else ""
        )


def _closing(text: str, start: int) -> int:
    """Return the place of the bracket that closes one before `start`, or the end of the text if none does."""
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
    """Yield the text of a keyword's value."""
    for match in _ARGUMENTS.finditer(arguments):
        if match[1] == keyword:
            end = _closing(arguments, match.end())
            following = re.compile(r",\s*\w+\s*:").search(arguments, match.end(), end)
            yield arguments[match.end() : following.start() if following else end].strip().rstrip(",")


class _MesonLists:
    """The texts of lists, and of the names that stand for lists."""

    def __init__(self, text: str) -> None:
        self.left_out: dict[str, None] = {}
        self.left = _MOST_VALUES
        self.searched = self.made = 0
        self.names: dict[str, list[tuple[_Branch, str]]] = {}
        """What each name is given, and where."""
        self.branches: list[tuple[int, _Branch]] = [(0, ())]
        """Where each branch of a condition begins: the conditions that hold it, and the number of the branch in each."""
        self.taken: _Branch = ()
        """The branch in which nvcc is looked for."""
        divided = re.finditer(r"^[ \t]*(if|elif|else|endif)\b", text, re.MULTILINE)
        for number, match in enumerate(divided, 1):
            around = self.branches[-1][1]
            outer = around if match[1] == "if" else around[:-1]
            self.branches.append((match.start(), (*outer, number) if match[1] != "endif" else outer))
        for match in re.finditer(r"^[ \t]*([A-Za-z_]\w{0,60})[ \t]*\+?=[ \t]*(?!=)", text, re.MULTILINE):
            opening = text[match.end() : match.end() + 1]
            end = (
                _closing(text, match.end() + 1) + 1 if opening in ("[", "{") else text.find("\n", match.end())
            )
            value = text[match.end() : end if end > 0 else len(text)]
            if re.match(r"find_program\s*\(\s*\[?\s*'[^']*nvcc", value):
                self.taken = self._branch(match.start())
            self.names.setdefault(match[1], []).append((self._branch(match.start()), value))
        for match in re.finditer(r"^[ \t]*foreach[ \t]+([\w, ]{1,100}):([^\n]{1,500})", text, re.MULTILINE):
            for name in match[1].replace(",", " ").split():
                self.names.setdefault(name, []).append((self._branch(match.start()), match[2]))

    def _branch(self, position: int) -> _Branch:
        return self.branches[bisect.bisect_right(self.branches, position, key=lambda each: each[0]) - 1][1]

    def nvcc(self, command: str) -> str:
        """Return the first word of a command in its text, if that is nvcc, else ""."""
        match = re.match(r"\[?\s*('[^'\n]*'|\w+\([^()\n]*\)|\w+)", command)
        if match is None:
            return ""
        known = [match[1], *(value for _, value in self.names.get(match[1], ()))]
        return match[1] if any("nvcc" in each for each in known) else ""

    def sources(self, value: str) -> list[str]:
        """Return all texts that a value may stand for, whatever the conditions."""
        texts: list[str] = []
        waiting, seen = [value], {""}
        while waiting and len(seen) < _MOST_VALUES and self.searched < _MOST_SEARCHED:
            one = waiting.pop()
            self.searched += len(one)
            for match in _WORD.finditer(one):
                texts += [match[1]] if match[2] is None else []
                if match[2] and match[2] not in seen:
                    seen.add(match[2])
                    waiting += [each for _, each in self.names.get(match[2], ())]
        return texts

    def words(self, value: str, position: int, depth: int = 0) -> list[str]:
        """Return the literal texts of a value that stands at this place. Its other parts are left out."""
        self.left -= 1
        if self.left <= 0:
            self.left_out[f"what follows the first {_MOST_VALUES} lists"] = None
            return []
        here = self._branch(position)
        words: list[str] = []
        for match in _WORD.finditer(value):
            self.made += 1
            if self.made > _MOST_WORDS:
                self.left_out[f"what follows the first {_MOST_WORDS:,} words of lists"] = None
                return words
            name = match[2]
            if name is None:
                words.append(match[1].replace("\\'", "'"))
                continue
            if name in ("files", "true", "false"):
                continue
            given = self.names.get(name, ()) if depth < _MOST_DEPTH else ()
            known = [
                each for branch, each in given if branch in (here[: len(branch)], self.taken[: len(branch)])
            ]
            for each in known:
                words += self.words(each, position, depth + 1)
            if len(known) < len(given):
                self.left_out[f"what a condition sets of {name}"] = None
            elif not given:
                shown = " ".join(value[:_LONGEST_SHOWN].split())
                self.left_out[f"cuda_args: {shown}"[:_LONGEST_SHOWN]] = None
        return words


def _of_file(file: BuildFile) -> Reading:
    return read(file.text, file.source, os.path.dirname(file.path))


def _programs(
    source: str, folders: Sequence[str], text_of: Callable[[str], str]
) -> Iterator[DeclaredProgram]:
    """Yield the executables of the nearest project above a source that have it among their own sources."""
    top = next((each for each in folders if _PROJECT.search(text_of(os.path.join(each, _NAME)))), None)
    if top is None:
        return
    texts = {folder: re.sub(r"#[^\n]*", "", text) for folder, text in _files(top, text_of)}
    values = _MesonLists("\n".join(texts.values()))
    calls = [(folder, call) for folder, text in texts.items() for call in _calls(text)]
    named = {call.of: (folder, call) for folder, call in calls if call.of}
    for folder, call in calls:
        words = _sources_of(call, values) if call.name == "executable" else []
        made = [_found(word, (folder, *texts), text_of) for word in words[1:]]
        if source not in made:
            continue
        linked = _linked(call, named)
        for place, other in linked:
            made += [_found(word, (place, *texts), text_of) for word in _sources_of(other, values)[1:]]
        tests = (each for _, each in calls if each.name in ("test", "benchmark"))
        given = (
            tuple(values.words(next(_given(each.arguments, "args"), ""), each.start))
            for each in tests
            if call.of and call.of in [match[2] for match in _WORD.finditer(each.arguments)]
        )
        arguments = next((each for each in given if not any(map(SHELL.search, each))), ())
        yield DeclaredProgram(
            "meson", top, words[0], "", frozenset(filter(None, made)), arguments, whole=False
        )


def _files(top: str, text_of: Callable[[str], str]) -> Iterator[tuple[str, str]]:
    """Yield the folders of a project that have a meson.build, each with its text."""
    waiting, seen = [top], {top}
    while waiting and len(seen) < _MOST_FOLDERS:
        folder = waiting.pop(0)
        if not (text := text_of(os.path.join(folder, _NAME))):
            continue
        yield folder, text
        inner = (os.path.normpath(os.path.join(folder, each)) for each in _SUBDIR.findall(text))
        fresh = [each for each in dict.fromkeys(inner) if each not in seen]
        seen.update(fresh)
        waiting += fresh


def _sources_of(call: _MesonCall, values: _MesonLists) -> list[str]:
    """Return the name of a target and its sources, as they are written."""
    first = re.search(r"\b\w+\s*:", call.arguments)
    positional = call.arguments[: first.start()] if first else call.arguments
    return [
        *values.sources(positional),
        *(word for each in _given(call.arguments, "sources") for word in values.sources(each)),
    ]


def _found(word: str, folders: Iterable[str], text_of: Callable[[str], str]) -> str:
    """Return the file that a source's word means, "" for none. Words of another folder's list are relative to that
    folder.
    """
    paths = (os.path.normpath(os.path.join(folder, word)) for folder in folders)
    return next((path for path in paths if text_of(path)), "") if "." in word else ""


def _linked(call: _MesonCall, named: Mapping[str, tuple[str, _MesonCall]]) -> list[tuple[str, _MesonCall]]:
    """Return the libraries that a target links, with those of its dependencies, each with the folder of its file."""
    found: dict[str, tuple[str, _MesonCall]] = {}
    waiting = [call]
    while waiting and len(found) < _MOST_VALUES:
        at = waiting.pop()
        for keyword in ("link_with", "link_whole", "dependencies"):
            for value in _given(at.arguments, keyword):
                for match in _WORD.finditer(value):
                    known = named.get(match[2] or "")
                    if known and match[2] not in found:
                        found[match[2]] = known
                        waiting.append(known[1])
    return list(found.values())


SYSTEMS = (
    BuildSystem(
        3,
        (_NAME,),
        _of_file,
        programs=_programs,
        database_command=in_folder("meson setup build"),
        from_top=True,
    ),
)
