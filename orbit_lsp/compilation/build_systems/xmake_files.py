"""Reads how xmake compiles a CUDA file from the literal arguments of a xmake.lua's targets. It is read as text;
nothing of it is run.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from orbit_lsp.compilation import command_line
from orbit_lsp.compilation.build_systems.reading import BuildFile, BuildSystem, Folder, Reading, in_folder

_TOKEN = re.compile(
    r"(?P<blank>\s+)|(?P<comment>--(?!\[=*\[)[^\n]*)|(?P<long>(?:--)?\[(?P<level>=*)\[)|"
    r"(?P<text>\"(?:[^\"\\\n]|\\.)*\"?|'(?:[^'\\\n]|\\.)*'?)|(?P<name>[A-Za-z_]\w*)|(?P<other>.)",
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_FILES = {"add_files", "remove_files"}
_FLAGS = {"add_cuflags", "add_includedirs", "add_defines", "set_languages", "add_cugencodes"}
_OF_SCRIPT = {"cuflags", "includedirs", "defines", "languages", "cugencodes"}
"""What a function of a target gives it by `target:add` and `target:set`."""
_SCOPES = {"target", "option", "rule", "task", "package", "toolchain", "theme"}
_ENDS = {f"{each}_end" for each in _SCOPES}
_OPENS, _CLOSES = {"if", "function", "do", "repeat"}, {"end", "until"}
_NO_FLAG = re.compile(r"\{(?:(?:public|private|interface|force)=(?:true|false),?)*\}")
"""A last argument that says nothing about the target's own sources."""
_STANDARD = re.compile(r"(?:c|gnu)(?:\+\+|xx|pp)(\d\w)")
_OF_C = re.compile(r"(?:c|gnu|ansi)\d*")
_WILD = re.compile(r"\*\*|\*")
_MOST_TOKENS = 200_000
_MOST_CALLS = 2_000
_MOST_PATTERNS = 500
_MOST_WILD = 16
_LONGEST = 1_000
_LONGEST_SHOWN = 200


class _Token(NamedTuple):
    kind: str
    """`text` of a string, `name`, or `other`."""
    value: str
    start: int
    end: int


class _XmakeCall(NamedTuple):
    """A call. `literal` are the arguments that are strings, or lists of strings. `left_out` has the others, as they
    are written.
    """

    name: str
    literal: tuple[str, ...]
    left_out: tuple[str, ...]
    under_condition: bool
    line: int

    @property
    def shown(self) -> str:
        return f"{self.name}({', '.join((*map(repr, self.literal), *self.left_out))})"


class _Scope(NamedTuple):
    """A target, or what stands outside of all targets. Other scopes, such as an option, are not read."""

    kind: str
    name: str
    calls: list[_XmakeCall]


def read(text: str, path: str, file: str) -> Reading:
    """Read the first target of the xmake.lua `file` that has the source `path`, and what stands outside of targets
    for all.
    """
    folder = os.path.dirname(file)
    scopes = _scopes(text)
    targets = [scope for scope in scopes if scope.kind == "target"]
    own = next((target for target in targets if _has(target, path, folder)), None)
    left_out: dict[str, None] = {}
    words: list[str] = []
    folders: list[Folder] = []
    standard: list[str] = []
    for scope in (scopes[0], *([own] if own else [])):
        for call in scope.calls:
            standard = _take(call, words, left_out) or standard
            if call.name == "add_includedirs" and not call.under_condition:
                literal = (each for each in call.literal if "$(" not in each)
                folders += (Folder(command_line.absolute(each, folder), file, call.line) for each in literal)
    if own is None:
        left_out |= {
            f"what the target {each.name} gives its files, if this is one": None
            for each in targets
            if any(call.left_out and call.name == "add_files" for call in each.calls)
        }
    command = command_line.parse(["nvcc", *standard, *words], folder, path)
    return Reading(
        command.flags, (*left_out, *command.left_out), tuple(folders), is_source=bool(own), whole=True
    )


def _take(call: _XmakeCall, words: list[str], left_out: dict[str, None]) -> list[str]:
    """Add what a call says for nvcc to `words`, or to what is left out. Return the standard that it sets."""
    if call.name in _FILES:
        if call.literal and call.left_out:  # flags for these files alone, maybe
            left_out[_short(call.shown)] = None
        return []
    if call.under_condition:
        left_out[_short(f"{call.shown} under a condition")] = None
        return []
    unknown = list(call.left_out)
    standard: list[str] = []
    for each in call.literal:
        match = _STANDARD.fullmatch(each) if call.name == "set_languages" else None
        if "$(" in each or call.name == "add_cugencodes":
            unknown.append(repr(each))
        elif call.name == "add_cuflags":
            words += command_line.split(each)
        elif call.name == "add_defines":
            words.append(f"-D{each}")
        elif call.name == "add_includedirs":
            continue  # each is noted with its line
        elif match:
            standard = [f"-std=c++{match[1]}"]
        elif not _OF_C.fullmatch(each):
            unknown.append(repr(each))
    if unknown:
        left_out[_short(f"{call.name}({', '.join(unknown)})")] = None
    return standard


def _short(text: str) -> str:
    return text[:_LONGEST_SHOWN]


# -- sources ------------------------------------------------------------------------------------------


def _has(target: _Scope, path: str, folder: str) -> bool:
    """Return whether a target adds the file, and does not remove it."""
    has, left = False, _MOST_PATTERNS
    for call in target.calls:
        for pattern in islice(call.literal if call.name in _FILES else (), left):
            left -= 1
            if _means(pattern, path, folder):
                has = call.name == "add_files"
    return has


def _means(pattern: str, path: str, folder: str) -> bool:
    """Return whether a pattern of xmake means the file. `src/*.cu|main.cu` means all but one, `src/**.cu` those of
    all folders below too.
    """
    if len(pattern) > _LONGEST or len(_WILD.findall(pattern)) > _MOST_WILD:
        return False
    wanted, *excluded = pattern.split("|")
    before = os.path.dirname(wanted.partition("*")[0])
    return _is_in(folder, wanted, path) and not any(
        _is_in(folder, os.path.join(before, each), path) for each in excluded if each
    )


def _is_in(folder: str, pattern: str, path: str) -> bool:
    whole = os.path.normpath(os.path.join(folder, pattern))
    return _fits(whole.replace(os.sep, "/"), path.replace(os.sep, "/"))


def _fits(pattern: str, name: str) -> bool:
    """Return whether a name fits a pattern, in as many steps as a table of both has cells."""
    reached = {0}
    at = 0
    for match in (*_WILD.finditer(pattern), None):
        fixed = pattern[at : match.start() if match else len(pattern)]
        reached = {each + len(fixed) for each in reached if name.startswith(fixed, each)}
        if not match or not reached:
            break
        at = match.end()
        reached = set(_beyond(name, reached, any_folder=match[0] == "**"))
    return len(name) in reached


def _beyond(name: str, reached: set[int], *, any_folder: bool) -> Iterator[int]:
    open_ = False
    for place in range(min(reached), len(name) + 1):
        if place in reached:
            open_ = True
        elif not any_folder and name[place - 1] == "/":
            open_ = False
        if open_:
            yield place


# -- the text -----------------------------------------------------------------------------------------


def _scopes(text: str) -> list[_Scope]:
    """Return the part outside of all targets first, then the targets and other scopes in their order."""
    tokens = list(islice(_tokens(text), _MOST_TOKENS))
    scopes = [_Scope("", "", [])]
    now, depth, base, calls = scopes[0], 0, 0, 0
    at = 0
    while at < len(tokens) and calls < _MOST_CALLS:
        token = tokens[at]
        at += 1
        if token.kind != "name":
            continue
        method = at > 1 and tokens[at - 2].value in (":", ".") and tokens[at - 2].kind == "other"
        if token.value in _OPENS:
            depth += 1
        elif token.value in _CLOSES:
            depth -= 1
        elif token.value in _ENDS and not method:
            now, base = scopes[0], 0
        elif token.value in _SCOPES and not method and _is_call(tokens, at):
            call, _ = _call(
                text, tokens, at, under_condition=False
            )  # a function among its arguments is read on
            now = _Scope(token.value, "".join((*call.literal[:1], *call.left_out[:1])), [])
            scopes.append(now)
            base = depth
            at += 1
            calls += 1
        elif method and token.value in ("add", "set") and _is_call(tokens, at):
            call, at = _call(text, tokens, at, under_condition=False)
            if call.literal[:1] and call.literal[0] in _OF_SCRIPT:
                arguments = (*map(repr, call.literal), *call.left_out)
                now.calls.append(
                    _XmakeCall(f"target:{call.name}", (), arguments, under_condition=False, line=call.line)
                )
            calls += 1
        elif token.value in _FLAGS | _FILES and not method and _is_call(tokens, at):
            call, at = _call(text, tokens, at, under_condition=depth > base)
            now.calls.append(call)
            calls += 1
    return scopes


def _tokens(text: str) -> Iterator[_Token]:
    at = 0
    while match := _TOKEN.match(text, at):
        at = match.end()
        if match["long"]:
            end = text.find(f"]{match['level']}]", at)
            inside = text[at : end if end >= 0 else len(text)]
            at = len(text) if end < 0 else end + len(match["level"]) + 2
            if not match["long"].startswith("--"):
                yield _Token("text", inside, match.start(), at)
        elif match["text"]:
            yield _Token("text", _ESCAPE.sub(r"\1", match["text"][1:-1]), match.start(), at)
        elif not match["blank"] and not match["comment"]:
            yield _Token("name" if match["name"] else "other", match[0], match.start(), at)


def _is_call(tokens: Sequence[_Token], at: int) -> bool:
    return at < len(tokens) and (tokens[at].kind == "text" or tokens[at].value in ("(", "{"))


def _call(text: str, tokens: Sequence[_Token], at: int, *, under_condition: bool) -> tuple[_XmakeCall, int]:
    """Return the call of the name before the token `at`, and the token behind its arguments."""
    name = tokens[at - 1].value
    line = text.count("\n", 0, tokens[at - 1].start) + 1
    if tokens[at].kind == "text":  # add_files "a.cu"
        return _XmakeCall(name, (tokens[at].value,), (), under_condition, line), at + 1
    parts: list[list[_Token]] = [[]]
    table = tokens[at].value == "{"  # add_files {"a.cu"}
    depth = 0 if table else 1
    at += 0 if table else 1
    while at < len(tokens):
        token = tokens[at]
        at += 1
        bracket = token.value if token.kind == "other" else ""
        depth += (bracket in ("(", "{", "[")) - (bracket in (")", "}", "]"))
        if depth == 0:
            parts[-1] += [token] if table else []
            break
        if depth == 1 and bracket == "," and not table:
            parts.append([])
        else:
            parts[-1].append(token)
    literal: list[str] = []
    left_out: list[str] = []
    for part in filter(None, parts):
        written = "".join(token.value for token in part)
        if _NO_FLAG.fullmatch(written):
            continue
        inside = part[1:-1] if part[0].value == "{" and part[0].kind == "other" else part
        texts = [token.value for token in inside if token.kind == "text"]
        commas = [token for token in inside if token.kind == "other" and token.value == ","]
        if inside and len(texts) + len(commas) == len(inside) and len(commas) in (len(texts) - 1, len(texts)):
            literal += texts
        else:
            left_out.append(_short(" ".join(text[part[0].start : part[-1].end].split())))
    return _XmakeCall(name, tuple(literal), tuple(left_out), under_condition, line), at


def _of_file(file: BuildFile) -> Reading:
    return read(file.text, file.source, file.path)


SYSTEMS = (
    BuildSystem(
        6,
        ("xmake.lua",),
        _of_file,
        database_command=in_folder("xmake project -k compile_commands"),
        from_top=True,
    ),
)
