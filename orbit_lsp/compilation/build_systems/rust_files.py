"""Reads how a Rust crate's build.rs compiles a CUDA file: the builders of the crates `cc`, `bindgen_cuda` and
`cudaforge`, and calls of nvcc. It is read as text; nothing of it is run.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from orbit_lsp.compilation import command_line
from orbit_lsp.compilation.build_systems.makefiles import DECIDES, without_option_files
from orbit_lsp.compilation.build_systems.reading import Reading

_TOKEN = re.compile(
    r"(\"(?:[^\"\\]|\\.)*\"|r#\"(?:[^\"]|\"(?!#))*\"#|'(?:[^'\\\n]|\\.)')|//[^\n]*|/\*(?:[^*]|\*(?!/))*\*/",
    re.DOTALL,
)
"""A text or a character, which stays, or a comment."""
_BRACKET = re.compile(r"\"(?:[^\"\\]|\\.)*\"|[()\[\]{}]", re.DOTALL)
_BUILDER = re.compile(
    r"(?:\blet\s+(?:mut\s+)?(\w+)\s*(?::[^=;]{0,100})?=\s*)?"
    r"(?:\w+::){0,3}?(Build::new|(?:Kernel)?Builder::(?:default|new)|KernelBuild::new|Command::new)\s*\("
    r"|\blet\s+(?:mut\s+)?(\w+)\s*:\s*(?:cc::)?Build\s*=[^;(]{0,200}\("
)
"""Where a builder is made, or a function of the project's own makes it."""
_CALL = re.compile(r"\s*\??\s*\.\s*(\w+)(?:::<[^>]{0,100}>)?\s*\(")
_NAMED = re.compile(r"\b(?:let|const|static)\s+(?:mut\s+)?(\w+)\s*(?::[^=;]{0,200})?=(?!=)\s*")
_AGAIN = re.compile(r"^\s*(\w+)\s*=(?!=)\s*", re.MULTILINE)
_LOOP = re.compile(r"\bfor\s+(\w+)\s+in\s+([^{]{1,1000})")
_TEXT = re.compile(r"\"((?:[^\"\\]|\\.)*)\"", re.DOTALL)
_OF_MANIFEST = re.compile(r"env(?:::var(?:_os)?|!)\s*\(\s*\"CARGO_MANIFEST_DIR\"")
_DEFAULT = re.compile(
    r"unwrap_or(?:_else)?\s*\(\s*(?:\|[^|]{0,20}\|\s*)?(?:\w+::\w+\s*\(\s*)?(\"(?:[^\"\\]|\\.)*\")"
)
_CONDITION = re.compile(r"(?:\b(?:if|match|else)\b[^;{}]{0,300}|=>\s*)$")
_CONVERTED = re.compile(
    r"\.(?:(?:to_string|to_owned|into|as_str|as_ref|clone|display|unwrap|as_path|to_str|to_string_lossy|iter|as_os_str|into_owned|into_iter|"
    r"unwrap_or_default)\(\)|expect\([^()]*\))$"
)
"""What makes the same text of another type."""
_LONGEST_END = 200
_PLACE = re.compile(r"\{[^{}]{0,60}\}")
_FLAGS = {"flag", "flags", "arg", "args", "nvcc_flag", "flag_if_supported"}
_FOLDERS = {"include", "includes", "include_path", "include_paths"}
_SOURCES = {
    "file", "files", "source_files", "kernel_paths", "kernel_paths_glob", "kernel_glob", "source_glob", "source_file", "kernel_file",
    "kernel_files",
}  # fmt: skip
_UNKNOWN = "\ue000"
"""In the place of what only a run of the build knows."""
_LONGEST = 64 << 10
"""Characters of a build.rs: what each bracket closes is looked for."""
_MOST_BUILDERS = 64
_MOST_CALLS = 500
_MOST_WORDS = 1_000
_MOST_DEPTH = 8
_LONGEST_EXPRESSION = 20_000
_LONGEST_SHOWN = 200


class _RustWord(NamedTuple):
    text: str
    shown: str
    """As the build file has it."""


def read(text: str, path: str, folder: str) -> Reading | None:
    """Return what the build.rs of `folder` gives nvcc for `path`. Return None if it does not compile that."""
    if len(text) > _LONGEST:
        return None
    program = _RustProgram(_TOKEN.sub(lambda match: match[1] or " ", text), folder)
    builders = [(each, each.fits(path, folder)) for each in program.builders()]
    best = max((fits for _, fits in builders), default=0)
    if not best:
        return None
    return next(each for each, fits in builders if fits == best).result(path, folder)


class _RustProgram:
    def __init__(self, text: str, folder: str) -> None:
        self.text = text
        self.folder = folder
        self.names: dict[str, list[str]] = {}
        for match in islice(_NAMED.finditer(text), _MOST_CALLS):
            self.names.setdefault(match[1], []).append(_expression(text, match.end()))
        for match in islice(_AGAIN.finditer(text), _MOST_CALLS):
            if match[1] in self.names:
                self.names[match[1]].append(_expression(text, match.end()))
        for match in islice(_LOOP.finditer(text), _MOST_CALLS):
            self.names.setdefault(match[1], []).append(match[2])
        self.left = _MOST_WORDS
        self.calls = _MOST_CALLS

    def builders(self) -> Iterator[_Builder]:
        for match in islice(_BUILDER.finditer(self.text), _MOST_BUILDERS):
            end = _closing(self.text, match.end())
            builder = _Builder(self)
            if match[2] == "Command::new":
                if "nvcc" not in self._whole(self.text[match.end() : end]).lower():
                    continue
                builder.is_command = builder.by_cuda = True
            elif match[2] and "Builder" in match[2]:
                builder.by_cuda = True
                builder.takes_all = True
            builder.chain(end + 1, match.start())
            if name := match[1] or match[3]:
                block = self.text[end + 1 : _closing(self.text, end + 1, "}")]
                for use in islice(re.finditer(rf"(?<![\w.]){name}\b(?=\s*\.)", block), _MOST_CALLS):
                    builder.chain(end + 1 + use.end(), match.start())
            if builder.by_cuda or any(each.text.endswith(".cu") for each in builder.sources):
                yield builder

    def _whole(self, expression: str) -> str:
        """Return an expression with those that its names stand for."""
        names = (each for name in re.findall(r"\w+", expression) for each in self.names.get(name, ())[:2])
        return " ".join([expression, *names])

    def words(self, expression: str, depth: int = 0) -> list[_RustWord]:
        """Return the texts that an expression stands for, each with `_UNKNOWN` for its unknown parts."""
        self.left -= 1
        shown = " ".join(expression[:_LONGEST_EXPRESSION].split())
        expression = expression.strip().lstrip("&*").strip().removeprefix("mut ")
        for _ in range(_MOST_DEPTH):  # `.to_str().unwrap()`
            if (match := _CONVERTED.search(expression, max(0, len(expression) - _LONGEST_END))) is None:
                break
            expression = expression[: match.start()]
        if self.left <= 0 or depth > _MOST_DEPTH or len(expression) > _LONGEST_EXPRESSION:
            return [_RustWord(_UNKNOWN, shown)]
        if _OF_MANIFEST.search(expression) and ".join" not in expression and "format!" not in expression:
            return [_RustWord(self.folder, shown)]
        if match := _TEXT.fullmatch(expression):
            return [_RustWord(match[1].replace('\\"', '"').replace("\\\\", "\\"), shown)]
        if match := re.match(r"(?:vec!\s*)?\[", expression):
            inner = expression[match.end() : _closing(expression, match.end())]
            return [word for each in _parts(inner) for word in self.words(each, depth + 1)]
        if match := re.match(r"(?:format|concat)!\s*\(", expression):
            return [
                self._formatted(expression[match.end() : _closing(expression, match.end())], shown, depth)
            ]
        if re.match(r"(?:\w+::)*(?:env::var|var)\(|option_env!", expression):
            default = _DEFAULT.search(expression)
            return self.words(default[1], depth + 1) if default else [_RustWord(_UNKNOWN, shown)]
        if match := re.match(
            r"(?:\w+::)*(?:PathBuf|Path|String|OsStr|OsString)::(?:from|new)\s*\(", expression
        ):
            end = _closing(expression, match.end())
            begins = self.words(expression[match.end() : end], depth + 1)
            return [self._joined(begins, expression[end + 1 :], shown, depth)]
        if match := re.match(r"([A-Za-z_]\w*)((?:\.join\(.*)?)$", expression, re.DOTALL):
            known = self.names.get(match[1], ())
            values = [word for each in known for word in self.words(each, depth + 1)] if known else []
            if match[2]:
                return [self._joined(values[:1], match[2], shown, depth)]
            return values or [_RustWord(_UNKNOWN, shown)]
        if match := re.match(
            r"\w+\((\"[^\"]*\.cu\")\)$", expression
        ):  # a function of the project's own that lists files
            return self.words(match[1], depth + 1)
        return [_RustWord(_UNKNOWN, shown)]

    def holds(self, begin: int, position: int) -> bool | None:
        """Return whether a plain build on Linux meets the conditions around this place that are not around `begin`.
        None means not known.
        """
        opened: list[int] = []
        for match in _BRACKET.finditer(self.text, begin, position):
            if match[0] == "{":
                opened.append(match.start())
            elif match[0] == "}" and opened:
                opened.pop()
        conditions = [
            match[0] for at in opened if (match := _CONDITION.search(self.text, max(0, at - 320), at))
        ]
        start = max(self.text.rfind(each, begin, position) for each in ";{}")
        conditions += re.findall(r"#\[cfg\((.*)\)\]", self.text[max(start, begin) : position])
        met = [_is_met(self._whole(each) if " let " in each else each) for each in conditions]
        return False if False in met else None if None in met else True

    def _joined(self, begins: Sequence[_RustWord], rest: str, shown: str, depth: int) -> _RustWord:
        path = begins[0].text if begins else _UNKNOWN
        position = 0
        while match := re.compile(r"\s*\.join\(").match(rest, position):
            end = _closing(rest, match.end())
            (part, *_) = self.words(rest[match.end() : end], depth + 1)
            path = os.path.join(path, part.text)
            position = end + 1
        return _RustWord(path, shown)

    def _formatted(self, inner: str, shown: str, depth: int) -> _RustWord:
        parts = _parts(inner)
        template = _TEXT.fullmatch(parts[0].strip()) if parts else None
        if template is None:
            return _RustWord(_UNKNOWN, shown)
        values = iter(parts[1:])

        def value(match: re.Match[str]) -> str:
            name = match[0][1:-1].partition(":")[0].strip()
            words = self.words(name or next(values, ""), depth + 1)
            return words[0].text if len(words) == 1 else _UNKNOWN

        return _RustWord(_PLACE.sub(value, template[1]), shown)


class _Builder:
    def __init__(self, program: _RustProgram) -> None:
        self.program = program
        self.by_cuda = False
        self.is_command = False
        self.takes_all = False
        """Where it is given no sources it compiles those below `src`."""
        self.words: list[_RustWord] = []
        self.folders: list[_RustWord] = []
        self.sources: list[_RustWord] = []
        self.left_out: dict[str, None] = {}

    def chain(self, position: int, begin: int) -> None:
        """Take the method calls that follow a position. `begin` is where the builder was made."""
        text = self.program.text
        while (match := _CALL.match(text, position)) and self.program.calls > 0:
            self.program.calls -= 1
            end = _closing(text, match.end())
            self._call(match[1], text[match.end() : end], holds=self.program.holds(begin, match.start()))
            position = end + 1

    def _call(self, name: str, arguments: str, *, holds: bool | None) -> None:
        if name == "cuda" and not self.is_command:
            self.by_cuda = self.by_cuda or arguments.strip() == "true"
            return
        if name in _SOURCES and not self.is_command:
            self.sources += self.program.words(arguments)
        elif name == "source_dir":
            self.sources += [
                _RustWord(f"{each.text}/*", each.shown) for each in self.program.words(arguments)
            ]
        elif name in _FOLDERS:
            self.folders += self.program.words(arguments)
        elif name in _FLAGS:
            self._take(self.program.words(arguments), holds=holds)
        elif name == "std":
            standards = self.program.words(arguments)
            self._take([_RustWord(f"-std={each.text}", each.shown) for each in standards], holds=holds)
        elif name == "define":
            macro, _, value = (each.strip() for each in _partition(arguments))
            (of, *others) = self.program.words(macro)
            if others:  # which one a condition decides
                several = " or ".join(filter(None, dict.fromkeys(each.text for each in (of, *others))))
                of = _RustWord(_UNKNOWN, several)
            given = "" if value in ("None", "") else value.removeprefix("Some(").removesuffix(")")
            (to, *_) = self.program.words(given) if given else (_RustWord("", ""),)
            shown = f"-D{of.text}" if _UNKNOWN not in of.text else f"-D<{of.shown.lstrip('&')}>"
            self._take([_RustWord(f"-D{of.text}" + (f"={to.text}" if given else ""), shown)], holds=holds)

    def _take(self, words: Sequence[_RustWord], *, holds: bool | None) -> None:
        for word in words if holds is not False else ():
            valued = bool(self.words) and self.words[-1].text in _VALUED
            if (
                self.is_command
                and not valued
                and not word.text.startswith("-")
                and (_UNKNOWN in word.text or word.text.endswith(".cu"))
            ):
                self.sources.append(word)
            elif holds is None and DECIDES.search(word.text.replace(_UNKNOWN, "$")):
                self.left_out[f"{word.shown}, which a condition adds"[:_LONGEST_SHOWN]] = None
            elif holds:
                self.words.append(word)

    def fits(self, path: str, folder: str) -> int:
        """Rank a builder. 3: it names the source; 2: a pattern or a part of a name fits it; 1: it is not known what
        it compiles.
        """
        sources = [each.text for each in self.sources]
        if self.takes_all and not sources:
            sources = ["src/*.cu"]
        here = os.path.relpath(path, folder)
        best = 0
        for source in sources:
            name = os.path.normpath(os.path.relpath(source, folder) if os.path.isabs(source) else source)
            if name == here:
                return 3
            pattern = re.sub(r"\*+(?:/\*+)*", "*", name.replace(_UNKNOWN, "*"))
            if pattern.strip("*"):
                best = max(best, 2 if fnmatch.fnmatchcase(here, pattern) else 0)
            elif not here.startswith(".."):
                best = max(best, 1)
        if best == 1 and not re.search(r"[.\"]cu\"", self.program.text):
            return 0
        return best if sources or not self.is_command else 0

    def result(self, path: str, folder: str) -> Reading:
        known: list[str] = []
        left_out = dict(self.left_out)
        for word in self.words:
            if _UNKNOWN not in word.text:
                known.append(word.text)
                continue
            option = known.pop() + " " if known and known[-1] in _VALUED else ""
            if not re.match(r"-[oO]|-ccbin|--compiler-bindir|--output|-Xcompiler|-odir", option):
                left_out[f"{option}{word.shown}"[:_LONGEST_SHOWN]] = None
        folders = [f"-I{each.text}" for each in self.folders if each.text and _UNKNOWN not in each.text]
        known, option_files = without_option_files(known)
        command = command_line.parse(["nvcc", *known, *folders], folder, path)
        return Reading(command.flags, (*left_out, *option_files, *command.left_out))


_VALUED = {
    "-gencode", "--generate-code", "-arch", "--gpu-architecture", "-code", "--gpu-code", "-D", "-U", "-I", "-isystem", "-std", "--std",
    "-o", "--output-file", "-ccbin", "--compiler-bindir", "-Xcompiler", "-odir",
}  # fmt: skip


def _expression(text: str, start: int) -> str:
    """Return the text up to the `;` that ends a statement."""
    depth = 0
    for match in re.compile(r"\"(?:[^\"\\]|\\.)*\"|[()\[\]{};]", re.DOTALL).finditer(
        text, start, start + _LONGEST_EXPRESSION
    ):
        if match[0] in "([{":
            depth += 1
        elif match[0] in ")]}":
            depth -= 1
        elif match[0] == ";" and depth <= 0:
            return text[start : match.start()]
        if depth < 0:
            return text[start : match.start()]
    return text[start : start + _LONGEST_EXPRESSION]


def _closing(text: str, start: int, closes: str = "") -> int:
    """Return the place of the bracket that closes one before `start`. Return the end of the text if none does."""
    depth = 0
    for match in _BRACKET.finditer(text, start):
        if match[0] in "([{":
            depth += 1
        elif match[0] in ")]}":
            depth -= 1
            if depth < 0 and (not closes or match[0] == closes):
                return match.start()
            depth = max(depth, 0) if closes else depth
    return len(text)


def _parts(text: str) -> list[str]:
    """Return the parts between commas that stand in no bracket."""
    parts: list[str] = []
    depth = start = 0
    for match in re.compile(r"\"(?:[^\"\\]|\\.)*\"|[()\[\]{},]", re.DOTALL).finditer(text):
        depth += (match[0] in "([{") - (match[0] in ")]}")
        if match[0] == "," and depth == 0:
            parts.append(text[start : match.start()])
            start = match.end()
    return [each for each in (*parts, text[start:]) if each.strip()]


def _partition(arguments: str) -> tuple[str, str, str]:
    parts = _parts(arguments)
    return (parts[0] if parts else "", ",", parts[1] if len(parts) > 1 else "")


def _is_met(condition: str) -> bool | None:
    if (
        re.search(r"\blet\s+(?:Some|Ok)\b.*\benv(?:::|!)|\boption_env!", condition)
        or "debug_assertions" in condition
    ):
        return False  # nothing is set in the environment
    if condition.startswith("else") or "&&" in condition or "||" in condition or "any(" in condition:
        return None
    negated = bool(re.search(r"\bnot\(|!\s*cfg!", condition))
    if re.search(r"\bwindows\b|msvc|macos", condition):
        return negated
    if re.search(r"\bunix\b|linux|feature\s*=\s*\"(?:cuda|gpu|nvcc)\"", condition):
        return not negated
    return None
