"""Reads calls of nvcc that a person or a shell makes: in shell scripts, batch files, justfiles, Dockerfiles, READMEs
and a source's own comments. They are read as text, with the values of plain assignments.
"""

from __future__ import annotations

import fnmatch
import os
import re
from itertools import islice

from orbit_lsp.compilation import command_line
from orbit_lsp.compilation.build_systems.makefiles import DECIDES, without_option_files
from orbit_lsp.compilation.build_systems.reading import Reading

_CALL = re.compile(r"(?:^|[\s;&|(`$>])((?:[^\s`]{0,1000}[/\\])?nvcc(?:\.exe)?\"?[ \t][^\n;&|`]{0,8000})")
_BY_VARIABLE = re.compile(
    r"\"?\$(?:\{(?:\w+_)?NVCC(?:_(?:BIN|PATH|EXE|COMMAND|CMD))?(?::?-[^}\n]{0,200})?\}|(?:\w+_)?NVCC(?:_(?:BIN|PATH|EXE|COMMAND|CMD))?\b)\"?",
    re.IGNORECASE,
)
"""A variable that has the path of nvcc, by its name."""
_ASSIGNED = re.compile(
    r"^[ \t]*(?:export[ \t]+|readonly[ \t]+)?([A-Za-z_]\w*)=(?:[\"']([^\"'\n]*)[\"']|([^\s;&|]*))",
    re.MULTILINE,
)
_LOOP = re.compile(r"\bfor[ \t]+([A-Za-z_]\w*)[ \t]+in[ \t]+([^\n;$`?(){}]{1,1000})")
_REFERENCE = re.compile(r"\$\{([A-Za-z_]\w*)(?::?-([^}$`]*))?\}|\$([A-Za-z_]\w*)")
_COMMENT = re.compile(r"^[ \t]*#.*$", re.MULTILINE)
_OF_BATCH = re.compile(r"^[ \t]*@?set[ \t]+\"?(\w+)=([^\n\"]*)\"?[ \t]*$", re.IGNORECASE | re.MULTILINE)
_OF_JUST = re.compile(r"^[ \t]*(?:export[ \t]+)?([A-Za-z_]\w*)[ \t]*:=[ \t]*(?=[\"'])", re.MULTILINE)
_OF_SOURCE = re.compile(r"^[ \t]*(?://+|/?\*+)(?!/)[ \t!]*([^\n]*)$", re.MULTILINE)
_MOST_ASSIGNED = 500
_MOST_CALLS = 500
_LONGEST_VALUE = 1_000
_OF_AUTHORS = ("README", "INSTALL", "BUILD")
_READABLE = (".md", ".rst", ".txt", "")


def is_readme(name: str) -> bool:
    """Say whether a file has the name of one that tells people how to build."""
    stem, end = os.path.splitext(name)
    return stem.upper().startswith(_OF_AUTHORS[:2]) and end.lower() in _READABLE


def as_shell(name: str, text: str) -> str:
    """Return the text of a file of this name with a shell's assignments, references and continued lines. Return ""
    for a file that is none of these.
    """
    if name.endswith((".bat", ".cmd")):
        text = re.sub(r"\^\r?\n", " ", re.sub(r"(?im)^[ \t]*(?:rem\b|::).*$", "", text))
        text = _OF_BATCH.sub(r'\1="\2"', text)
        return re.sub(r"%(\w+)%", r"${\1}", text).replace("\\", "/")
    if name.lower() in ("justfile", ".justfile"):
        return re.sub(r"\{\{\s*(\w+)\s*\}\}", r"${\1}", _OF_JUST.sub(r"\1=", _COMMENT.sub("", text)))
    if name == "Dockerfile":
        text = re.sub(r"(?m)^(?:ENV|ARG)[ \t]+(\w+)[ \t]+(?=[^\s=])", r"\1=", _COMMENT.sub("", text))
        return re.sub(r"(?m)^(?:ENV|ARG|RUN)[ \t]+", "", text)
    return _COMMENT.sub("", text) if name.endswith((".sh", ".bash")) or is_readme(name) else ""


def of_comments(text: str) -> str:
    """Return the text of a source's comments."""
    return (
        "\n".join(match[1].removesuffix("*/") for match in _OF_SOURCE.finditer(text))
        if "nvcc" in text
        else ""
    )


def first(text: str, path: str, folder: str, *, own: bool = False) -> Reading | None:
    """Return the first call of nvcc in a shell's text, started in `folder`, that names the source. Return None if
    only a loop or a variable names it. If the script goes to another folder, the source's name alone counts. `own`:
    the text is the source's comments, so it need not name the source.
    """
    text = _BY_VARIABLE.sub("nvcc", re.sub(r"\\\r?\n", " ", text))
    goes = re.search(r"\b(?:cd|pushd|WORKDIR)\b", text) or folder == os.path.dirname(path)
    values: dict[str, str] = {}
    loops: set[str] = set()
    position = 0
    name = os.path.basename(path)
    for match in islice(_CALL.finditer(text), _MOST_CALLS):
        _assign(values, text, position, match.start())
        for loop in _LOOP.finditer(text, position, match.start()):
            each = [word.strip("\"'") for word in loop[2].split()] or [""]
            one = [word for word in each if os.path.basename(word) == name or _fits(word, path, folder)]
            one = [path] if one and "*" in one[0] else one
            values[loop[1]] = (one or each)[0]
            loops |= {loop[1]} if len(each) > 1 and not one else set()
        position = match.start()
        words, option_files = without_option_files(command_line.split(_with_values(match[1], values)))
        sources = [word for word in words if os.path.basename(word) == name]
        if own and not any(word.endswith((".cu", ".cpp", ".cc")) for word in words):
            sources = [path] if any(DECIDES.search(word) for word in words) else []
        if any(goes or own or os.path.normpath(os.path.join(folder, word)) == path for word in sources):
            words = words[1:]  # nvcc, wherever it lies
            known = [word for word in words if "$" not in word and "`" not in word]
            left_out = [word for word in words if word not in known and DECIDES.search(word)]
            left_out += [f"the values of {name} after the first" for name in loops if _uses(match[1], name)]
            command = command_line.parse(["nvcc", *known], folder, path)
            return Reading(command.flags, (*left_out, *option_files, *command.left_out))
    return None


def _fits(pattern: str, path: str, folder: str) -> bool:
    """Say whether a pattern of a loop, `src/*.cu`, matches the source."""
    return "*" in pattern and fnmatch.fnmatchcase(path, os.path.normpath(os.path.join(folder, pattern)))


def _uses(text: str, name: str) -> bool:
    return any(name in (match[1], match[3]) for match in _REFERENCE.finditer(text))


def _assign(values: dict[str, str], text: str, start: int, end: int) -> None:
    """Note what the plain assignments in a part of a shell script set."""
    for match in islice(_ASSIGNED.finditer(text, start, end), _MOST_ASSIGNED):
        name, written = match[1], match[2] or match[3] or ""
        made = _with_values(written, values) if len(written) < _LONGEST_VALUE else "$"
        known = "$" not in made and "`" not in made and len(made) < _LONGEST_VALUE
        values[name] = made if known else f"${{{name}}}"


def _with_values(text: str, values: dict[str, str]) -> str:
    """Return a text with the values of variables, and the defaults of those that nothing sets."""

    def value(match: re.Match[str]) -> str:
        name, default = match[1] or match[3], match[2]
        return values.get(name, default if default is not None else match[0])

    return _REFERENCE.sub(value, text)
