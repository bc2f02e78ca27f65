"""Reads how a Makefile compiles a CUDA file from its variables and rules. Neither make nor a shell is run.

It assumes a plain call of make: a variable that nothing sets is empty, and conditions are evaluated so.
"""

from __future__ import annotations

import fnmatch
import os
import platform
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

from orbit_lsp.compilation import command_line
from orbit_lsp.compilation.build_systems import make_functions
from orbit_lsp.compilation.build_systems.make_functions import MOST_WORDS as _MOST_WORDS
from orbit_lsp.compilation.build_systems.make_functions import stem_of
from orbit_lsp.compilation.build_systems.other_makefiles import is_other_makefile
from orbit_lsp.compilation.build_systems.reading import Reading

_ASSIGNMENT = re.compile(
    r"(?:(?:export|override)[ \t]+){0,2}([\w.-]{1,200})[ \t]{0,200}(=|:{1,3}=|\?=|\+=|!=)[ \t]*(.*)"
)
_RULE = re.compile(
    r"([^:=#&]+)&?::?(?![=:])"
    r"((?:\$[({](?:[^(){}]|[({][^(){}]{0,200}+[)}]){0,200}+[)}]|[^=;])*+)(?:;(.*))?$"
)
_OF_TARGET = re.compile(
    r"((?:[^:=#$]|\$[({][^(){}]{0,200}[)}]|\$[^({])+):(?![:=])[ \t]*(?:(?:export|override|private)[ \t]+){0,3}"
    r"([\w.-]{1,200})[ \t]{0,200}(=|:{1,3}=|\?=|\+=|!=)[ \t]*(.*)"
)
_INCLUDE = re.compile(r"([-s]?)include[ \t]+(.+)")
_SEARCHED = re.compile(r"vpath[ \t]+[^ \t]{0,100}%[^ \t]{0,100}[ \t]+(.+)")
_CONDITION = re.compile(r"(ifn?eq|ifn?def)\b[ \t]*(.*)")
_OF_AUTOMAKE = re.compile(r"if[ \t]+(!?)[ \t]*([A-Za-z_]\w{0,100})")
_COMPUTED = re.compile(r"[\w.-]{0,200}\$[({][^(){}]{1,200}[)}][\w.-]{0,200}[ \t]{0,20}(?::{1,3}|\?|\+)?=")
"""A variable whose name another one makes: `FLAGS-$(CONFIG_FAST) += …`."""
_SILENCED = re.compile(r"(?:[@+-]|\$[({](?:AM_V_\w+|V_\w+|Q|E|AT|SILENT|QUIET|VERB\w*|HIDE|ECHO\w*)[)}])+")
"""What stands before a command so that make does not print it, or goes on where it fails."""
_BRACKETED = re.compile(r"\((.*),(.*)\)")
_QUOTED = re.compile(r"([\"'])(.*?)\1[ \t]+([\"'])(.*)\3")
_COMPILER = re.compile(r"nvcc(?:[-.][\w.]+)?|clang\+\+(?:-\d+)?")
_COMPILERS_NAME = re.compile(r"\w*(?:NVCC|CUDACC|CUDA_COMPILER|CUCC)", re.IGNORECASE)
_MENTIONS_COMPILER = re.compile(r"nvcc|clang\+\+|cudacc|cuda_compiler|cucc", re.IGNORECASE)
_EVALUATED = re.compile(r"\$\(eval[ \t]+([\w.-]{1,200})")
DECIDES = re.compile(
    r"-D|-U|fast_math|arch|gencode|generate-code|-ftz|-fmad|-prec-|maxrregcount|std[= ]|-rdc|-dc\b|-expt|lambda|-Xptxas|\$"
)
"""What may decide about a figure."""
_OF_LINKER = re.compile(r"LD|LIB|INC", re.IGNORECASE)
_PART = re.compile(r"\ue000(\d+)\ue001")
_BRACKET = {"(": re.compile(r"[()]"), "{": re.compile(r"[{}]")}
_UNKNOWN = "\ue000"
"""A need that is not known."""
_MOST_STEPS = 5_000
"""References that are followed: a few lines can repeat one without end."""
_SHORT = 1_000
_MOST_CHARACTERS = 64 << 10
"""Of one value."""
_MOST_EXPANDED = 256 << 10
"""Characters of all values that references are replaced by."""
_MOST_SPLIT = 64 << 10
"""Characters of all recipes that are divided into words: a shell's rules for that take a microsecond for each."""
_MOST_DEPTH = 20
_MOST_FOLDERS = 500
"""In which files are looked for, for one `$(shell find …)`."""
_MOST_CONDITIONS = 64
"""Around one line."""
_LONGEST_REFERENCE = 2_000
"""`$(shell …)` takes some hundred."""
_MOST_BRACKETS = 64
"""Of one reference."""
_MOST_INCLUDED = 20
_MOST_LINES = 20_000
"""Of a Makefile and what it includes."""
_MOST_TEXT = 1 << 20
"""Characters of these lines."""
_MOST_NEEDS = 20_000
"""Of all rules."""
_MOST_OBJECTS = 64
"""Of one rule."""
_MOST_MATCHED = 50_000
"""Targets of variables that are compared with those of rules."""
_LONGEST_SHOWN = 200
_MOST_LEFT_OUT = 12
_LONGEST_CONDITION = 500
_CLOSING = {"(": ")", "{": "}"}
_VALUED = {
    "-gencode", "--generate-code", "-arch", "--gpu-architecture", "-code", "--gpu-code", "-D", "-U", "-I", "-isystem",
    "-std", "--std", "-L", "-l", "-ccbin", "--compiler-bindir", "-Xcompiler", "-Xlinker", "-Xptxas", "-o", "-odir",
    "--options-file", "-optf",
}  # fmt: skip
_OPTION_FILES = ("--options-file", "-optf")
_SILENT = ("-I", "-L", "-l", "-isystem", "-ccbin", "--compiler-bindir", "-X", "-o", "-M", "-O")
"""What decides about no figure; a folder that is not known is of no header, or of one that is then missing."""
_ASKED: dict[str, Callable[[], str]] = {
    "pwd": str,
    "uname": platform.system,
    "uname -s": platform.system,
    "uname -m": platform.machine,
}
"""What is known without the shell."""
_OF_PATHS = frozenset(("abspath", "realpath", "wildcard"))
_GOES = re.compile(r"cd[ \t]+(\S[^;&|]{0,499}?)[ \t]*(?:&&|;)[ \t]*pwd(?:[ \t]+-[LP])?")
_FINDS = re.compile(
    r"find[ \t]+([\w./ -]{1,500}?)[ \t]+(?:-type[ \t]+f[ \t]+)?-name[ \t]+[\"']?([\w.*\\-]{1,100})[\"']?[ \t]*"
)
_OF_SETTINGS = re.compile(r"\.(?:mk|make|inc|mak|rules|opts?)$|onfig|ommon|akefile", re.IGNORECASE)
"""Names of files that set variables; others hold dependencies."""
_AUTOMATIC = "@<^+*?%|"


class MakeRule(NamedTuple):
    """A rule with all variables replaced. Automatic ones become `orbit-input`; unknown references stay."""

    targets: tuple[str, ...]
    needs: tuple[str, ...]
    recipe: tuple[str, ...]


class _Rule(NamedTuple):
    targets: str
    needs: str
    recipe: list[str]
    doubts: list[tuple[str, str]]
    """Recipe lines under a condition that is not known, each behind that condition."""


class _OfTarget(NamedTuple):
    """A variable that is set for some targets only."""

    targets: tuple[str, ...]
    name: str
    operator: str
    value: str
    doubt: str
    shown: str


def read(file: str, text: str, path: str, include: Callable[[str], str]) -> Reading:
    """Read how the Makefile `file` compiles `path`. `include` gives the text of a file that it includes, "" for none.
    Option files that the recipe names are left out: somebody else's Makefile could name any file of this machine.
    """
    makefile = _Makefile(os.path.dirname(file), path, of_automake=file.endswith((".am", ".in")))
    makefile.take(text, include)
    return makefile.reading()


def is_makefile(file: str) -> bool:
    """Return whether a file is called as a Makefile, Automake's and others' that make does not look for too."""
    name = os.path.basename(file)
    stem = name.lower().removesuffix(".in").removesuffix(".am")
    return stem.endswith("makefile") or is_other_makefile(name)


def rules(file: str, text: str, include: Callable[[str], str]) -> list[MakeRule]:
    """Return the rules of the Makefile `file`. A static pattern rule gives one rule for each of its targets."""
    makefile = _Makefile(os.path.dirname(file), file)
    makefile.take(text, include)
    return list(makefile.plain_rules())


def without_option_files(words: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return a command's words without those that name files of options, and the latter."""
    kept: list[str] = []
    named: list[str] = []
    waiting = iter(words)
    for word in waiting:
        option, joined, _ = word.partition("=")
        if option in _OPTION_FILES:
            named.append(word if joined else f"{word} {next(waiting, '')}".strip())
        elif word.startswith("@") and len(word) > 1:
            named.append(f"{kept.pop()} {word}" if kept and kept[-1] in _VALUED else word)
        else:
            kept.append(word)
    return kept, [each[:_LONGEST_SHOWN] for each in named]


class _Makefile:
    def __init__(self, folder: str, path: str, *, of_automake: bool = False) -> None:
        self.folder = folder
        self.path = path
        self.here = os.path.relpath(path, folder)
        self.of_automake = of_automake
        self.values = {"CURDIR": folder, "PWD": folder, "MAKEFILE_LIST": "Makefile"}
        if of_automake:
            top = next(
                (each for each in (folder, *map(str, Path(folder).parents)) if _is_configured(each)), folder
            )
            self.values |= {f"{way}{name}": place for way in ("", "abs_") for name, place in (("srcdir", folder), ("builddir", folder), ("top_srcdir", top), ("top_builddir", top))}  # fmt: skip
        self.searched: list[str] = []
        """Folders in which make looks for what a rule needs, where it is called by its name alone."""
        self.rules: list[_Rule] = []
        self.edges: list[tuple[str, str]] = []
        """Targets and what they need, also where that is not known."""
        self.of_targets: list[_OfTarget] = []
        self.doubtful: dict[str, str] = {}
        """Variables that are set under a condition which is not known, and the condition."""
        self.unread: dict[str, None] = {}
        """What was not read of the Makefile, in words."""
        self.parts: list[str] = []
        """References that cannot be followed, each a character's number in the values that have it."""
        self.included: set[str] = set()
        self.made_by_eval = False
        self.graph: tuple[set[str], dict[str, list[str]]] | None = None
        self.lines = self.text = self.steps = self.size = self.split = self.needs = self.matched = (
            self.named
        ) = 0

    def take(self, text: str, include: Callable[[str], str] | None) -> None:
        """Read each line as make does. Conditions say whether a branch is taken; None means not known."""
        around: list[tuple[bool | None, bool, str]] = []  # whether taken, whether one was, and the condition
        rule: _Rule | None = None
        defining = False
        taken, doubt = True, ""
        for line in re.sub(r"\\\r?\n", " ", text).split("\n", _MOST_LINES):
            self.lines += 1
            self.text += len(line)
            if self.lines > _MOST_LINES or self.text > _MOST_TEXT:
                self.unread[f"what follows its first {_MOST_LINES:,} lines or {_MOST_TEXT:,} characters"] = (
                    None
                )
                return
            if len(around) > _MOST_CONDITIONS:
                self.unread[f"what follows more than {_MOST_CONDITIONS} conditions in one another"] = None
                return
            words = line.partition("#")[0].strip()
            # without a rule before them make takes lines that begin with a tab as any other
            if line.startswith("\t") and rule and not defining:
                if taken and doubt:
                    rule.doubts.append((doubt, line))
                elif taken:
                    rule.recipe.append(line)
                continue
            begins = words.startswith("define ")
            defining = (defining or begins) and words != "endef"
            if begins:
                rule = None
            if defining or words in ("", "endef"):
                continue
            self.made_by_eval = self.made_by_eval or "$(eval $(call" in words
            for name in _EVALUATED.findall(words) if "$(eval" in words else ():
                self.doubtful[name] = "$(eval …)"
            if words[0] in "ie" and self._branches(words, around):
                taken = all(each is not False for each, _, _ in around)
                doubt = next((why for each, _, why in around if each is None), "")
            elif not taken:
                continue
            elif match := _ASSIGNMENT.fullmatch(words):
                rule = None
                self._assign(match[1], match[2], match[3], doubt)
            elif match := _SEARCHED.fullmatch(words):
                rule = None
                self.searched += [
                    os.path.normpath(os.path.join(self.folder, each))
                    for each in re.split(r"[\s:]+", self.expanded(match[1]))
                    if each
                ]
            elif match := _INCLUDE.fullmatch(words):
                rule = None
                if include and not doubt:
                    self._include(match[2], include, optional=bool(match[1]))
            elif (match := _COMPUTED.match(words)) and DECIDES.search(words):
                rule = None
                self.unread[f"what `{self._shown(words)}` adds"] = None
            elif match := _OF_TARGET.fullmatch(words):
                rule = None
                targets, name, operator, value = match.groups()
                if operator not in ("=", "+=", "?=", "!="):
                    value = self._kept(self.expanded(value))
                of = tuple(map(os.path.normpath, self.expanded(targets).split()))
                self.named += 1 + len(of)
                self.of_targets.append(_OfTarget(of, name, operator, value, doubt, words))
            elif match := _RULE.match(words):
                recipe = [match[3]] if match[3] else []
                doubts = [(doubt, each) for each in recipe if doubt]
                rule = _Rule(
                    self.expanded(match[1]), self.expanded(match[2]), [] if doubt else recipe, doubts
                )
                self.rules.append(rule)
                self.edges.append((rule.targets, rule.needs))
            else:
                rule = _Rule("", "", [], [])  # what this line is make alone knows, and whose recipe follows
                if ":" in words:
                    self.edges.append((words.partition(":")[0], _UNKNOWN))

    def _include(self, words: str, include: Callable[[str], str], *, optional: bool) -> None:
        for name in chain.from_iterable(
            self._matching(each) if "*" in each else (each,) for each in self.expanded(words).split()
        ):
            file = os.path.normpath(name)
            if file in self.included:
                continue
            full = self.lines >= _MOST_LINES or self.text >= _MOST_TEXT
            if full or len(self.included) >= _MOST_INCLUDED:
                self.unread[f"what `include {self._shown(name)}` adds"] = None
                return
            self.included.add(file)
            text = "" if _UNKNOWN in name else include(name)
            if not text and not optional and _OF_SETTINGS.search(self._kept(name)):
                shown = os.path.relpath(name, self.folder) if os.path.isabs(name) else name
                self.unread[f"what `include {self._shown(shown)}` adds"] = None
            self.values["MAKEFILE_LIST"] += f" {name}"
            self.take(text, include)

    def _matching(self, pattern: str) -> list[str]:
        """Return the files of an `include rules/*.mk`, relative to the Makefile's folder."""
        folder, last = os.path.split(pattern)
        if "*" in folder or os.path.isabs(folder):
            return [pattern]
        try:
            names = os.listdir(os.path.join(self.folder, folder))
        except (OSError, ValueError):
            return []
        return [
            os.path.join(folder, name) for name in sorted(fnmatch.filter(names, last))[: _MOST_INCLUDED + 1]
        ]

    def _branches(self, words: str, around: list[tuple[bool | None, bool, str]]) -> bool:
        """Say whether the line begins, divides or ends a condition. `around` are the conditions in which it stands."""
        if match := _CONDITION.match(words):
            holds = self._holds(match[1], match[2].strip())
            around.append((holds, bool(holds), words))
        elif self.of_automake and (match := _OF_AUTOMAKE.fullmatch(words)):
            holds = True if re.search(r"cuda|nvcc", match[2], re.IGNORECASE) else None
            holds = holds if not match[1] or holds is None else not holds
            around.append((holds, bool(holds), words))
        elif (words == "endif" or (self.of_automake and words.startswith("endif "))) and around:
            around.pop()
        elif re.match(r"else\b", words) and around:
            taken, done, why = around.pop()
            match = _CONDITION.match(words[4:].strip())
            if taken is None:
                around.append((None, done, why))
            elif done:
                around.append((False, True, why))
            else:
                holds = self._holds(match[1], match[2].strip()) if match else True
                around.append((holds, bool(holds), words if match else why))
        else:
            return False
        return True

    def _holds(self, kind: str, words: str) -> bool | None:
        if kind in ("ifdef", "ifndef"):
            name = self.expanded(words)
            return None if name in self.doubtful else bool(self.values.get(name)) == (kind == "ifdef")
        if len(words) > _LONGEST_CONDITION:
            return None
        match = _BRACKETED.fullmatch(words)
        sides = match.groups() if match else ()
        if not match and (match := _QUOTED.fullmatch(words)):
            sides = match[2], match[4]
        if len(sides) != 2:
            return None
        doubtful: list[str] = []
        left, right = (_PART.sub(self._unset, self.expanded(side.strip(), doubtful)) for side in sides)
        if doubtful or _PART.search(left + right):
            return None
        return (left.strip() == right.strip()) == (kind == "ifeq")

    def _unset(self, match: re.Match[str]) -> str:
        """Replace a variable that nothing sets by an empty text. Any other part stays."""
        return "" if re.fullmatch(r"\$.[\w.-]+.|\$\w", self.parts[int(match[1])]) else match[0]

    def _assign(self, name: str, operator: str, value: str, doubt: str) -> None:
        if doubt:
            if DECIDES.search(value) and not _OF_LINKER.search(name):
                self.doubtful[name] = doubt
        elif operator == "!=":
            self.values[name] = f"$(shell {value})"
        elif operator == "+=":
            before = self.values.get(name, "")
            if len(before) + len(value) < _MOST_CHARACTERS:
                self.values[name] = f"{before} {value}".strip()
            elif len(self.unread) < _MOST_LEFT_OUT:
                self.unread[f"the end of {name}, which is too long to be read"] = None
        elif operator == "?=":
            self.values.setdefault(name, value)
        elif operator == "=":
            self.values[name] = value.replace(f"$({name})", "").replace(f"${{{name}}}", "")
        else:
            self.values[name] = self._kept(self.expanded(value))

    def _kept(self, value: str) -> str:
        """Return a value that was expanded at once, with its unknown parts as references again."""
        return _PART.sub(lambda match: self.parts[int(match[1])], value)[:_MOST_CHARACTERS]

    def expanded(self, text: str, doubtful: list[str] | None = None, depth: int = 0) -> str:
        """Return the text with the values of its references. What is not known becomes one character sequence of
        `parts`. `doubtful` gets the names of variables that an unknown condition sets.
        """
        made: list[str] = []
        size = position = 0
        while (at := text.find("$", position)) >= 0 and size < _MOST_CHARACTERS:
            # after the last allowed step, the rest of the text counts as one unknown
            end = _reference_end(text, at) if self.steps < _MOST_STEPS or len(text) < _SHORT else len(text)
            value = self._value(text[at:end], doubtful, depth)
            made += [text[position:at], value]
            size += at - position + len(value)
            position = end
        whole = "".join([*made, text[position:]])
        if len(whole) > _MOST_CHARACTERS:
            self.unread[f"what follows {_MOST_CHARACTERS:,} characters of one line"] = None
        return whole[:_MOST_CHARACTERS]

    def _value(self, reference: str, doubtful: list[str] | None, depth: int) -> str:
        self.steps += 1
        self.size += len(reference)
        inner = reference[2:-1] if reference[1:2] in _CLOSING else reference[1:]
        if reference == "$$":
            return self._unknown("$$")
        if reference[1:2] and (reference[1] in _AUTOMATIC or inner[:1] in tuple(_AUTOMATIC)):
            return "orbit-input"
        if self.steps > _MOST_STEPS or self.size > _MOST_EXPANDED or depth > _MOST_DEPTH:
            return self._unknown(reference)
        function, _, arguments = inner.partition(" ")
        if function == "shell" and (asked := arguments.partition("2>")[0].strip()) in _ASKED:
            return _ASKED[asked]() or self.folder
        if function == "foreach":
            return self._foreach(arguments, reference, doubtful, depth)
        if count := make_functions.count_of(function):
            return self._of_texts(function, arguments.split(",", count - 1), reference, doubtful, depth)
        if function in _OF_PATHS:
            value = self.expanded(arguments, doubtful, depth + 1)
            return self._unknown(reference) if _UNKNOWN in value else self._of_paths(function, value)
        if function == "shell" and (finds := _FINDS.fullmatch(self.expanded(arguments, None, depth + 1))):
            return " ".join(self._found(finds[1].split(), finds[2]))
        if function == "shell" and (goes := _GOES.fullmatch(arguments.strip())):
            way = self.expanded(goes[1], doubtful, depth + 1)
            return self._unknown(reference) if _UNKNOWN in way else self._of_paths("abspath", way)
        if function == "shell" and arguments.strip() == "git rev-parse --show-toplevel":
            above = (self.folder, *map(str, Path(self.folder).parents))
            top = next((each for each in above if os.path.exists(os.path.join(each, ".git"))), "")
            return top or self._unknown(reference)
        if (parts := make_functions.SUBSTITUTED.fullmatch(inner)) and parts[1] in self.values:
            name, old, new = parts.groups()
            ends = (old, new) if "%" in old else (f"%{old}", f"%{new}")
            return self._of_texts("patsubst", [*ends, f"$({name})"], reference, doubtful, depth)
        if not re.fullmatch(r"[\w.-]+", inner):
            return self._unknown(reference)
        if doubtful is not None and inner in self.doubtful and inner not in doubtful:
            doubtful.append(inner)
        if inner not in self.values:
            return self._unknown(reference)
        value = self.expanded(self.values[inner], doubtful, depth + 1)
        self.size += len(value)
        return value

    def _of_texts(
        self, function: str, arguments: list[str], reference: str, doubtful: list[str] | None, depth: int
    ) -> str:
        """Return what one of make's functions of texts gives. Parts that are not known stay where whole words are
        kept or get a prefix; else the whole is not known.
        """
        parts = [self.expanded(each, doubtful, depth + 1) for each in arguments]
        if any(_UNKNOWN in part for part in parts) and function not in ("strip", "addprefix", "addsuffix"):
            return self._unknown(reference)
        made = make_functions.applied(function, parts, _MOST_CHARACTERS)
        return self._unknown(reference) if made is None else made

    def _foreach(self, arguments: str, reference: str, doubtful: list[str] | None, depth: int) -> str:
        name, _, rest = arguments.partition(",")
        listed, _, body = rest.partition(",")
        name, words = name.strip(), self.expanded(listed, doubtful, depth + 1)
        if _UNKNOWN in words + name or not body:
            return self._unknown(reference)
        before = self.values.get(name)
        made: list[str] = []
        for self.values[name] in words.split()[:_MOST_WORDS]:
            made.append(self.expanded(body, doubtful, depth + 1))
            self.steps += 1
            self.size += len(made[-1])
            if self.steps > _MOST_STEPS or self.size > _MOST_EXPANDED:
                made = [self._unknown(reference)]
                break
        self.values.pop(name, None)
        if before is not None:
            self.values[name] = before
        return " ".join(made)

    def _of_paths(self, function: str, value: str) -> str:
        """Return what make's functions for names of files give, which only look in the Makefile's own tree."""
        words = value.split()[:_MOST_WORDS]
        if function == "wildcard":
            return " ".join(name for word in words for name in self._existing(word))
        return " ".join(os.path.normpath(os.path.join(self.folder, each)) for each in words)

    def _found(self, folders: Sequence[str], pattern: str) -> Iterator[str]:
        """Yield the files below some folders of the Makefile's tree whose names fit, as `find` prints them."""
        for folder in folders:
            top = os.path.normpath(os.path.join(self.folder, folder))
            if not f"{top}/".startswith(f"{self.folder}/"):
                continue
            for above, _, names in islice(os.walk(top), _MOST_FOLDERS):
                at = os.path.join(folder, os.path.relpath(above, top)) if above != top else folder
                yield from (os.path.join(at, name) for name in sorted(fnmatch.filter(names, pattern)))

    def _existing(self, word: str) -> list[str]:
        if os.path.isabs(word):
            return [f"$(wildcard {word})"]
        if "*" in word:
            return self._matching(word)
        return [word] if os.path.exists(os.path.join(self.folder, word)) else []

    def _unknown(self, reference: str) -> str:
        self.parts.append(reference)
        return f"\ue000{len(self.parts) - 1}\ue001"

    def plain_rules(self) -> Iterator[MakeRule]:
        for rule in self.rules[:_MOST_WORDS]:
            recipe = tuple(self._kept(self.expanded(line.strip())) for line in rule.recipe)
            targets = [os.path.normpath(each) for each in rule.targets.split()[:_MOST_WORDS]]
            pattern, static, needs = rule.needs.partition(":")
            listed = (needs if static else rule.needs).replace("|", " ").split()[:_MOST_WORDS]
            if not static:
                yield MakeRule(tuple(targets), tuple(listed), recipe)
                continue
            for target in targets:
                if (of := stem_of(os.path.normpath(pattern.strip()), target)) is not None:
                    yield MakeRule((target,), tuple(each.replace("%", of, 1) for each in listed), recipe)

    # -- what compiles a file -----------------------------------------------------------------------

    def reading(self) -> Reading:
        """Return the reading of the rule that fits the file best. Without a rule of nvcc, it is that of the variables
        whose names are those of nvcc's flags.
        """
        for each in re.split(r"[\s:]+", self.expanded(self.values.get("VPATH", ""))):
            self.searched += [os.path.normpath(os.path.join(self.folder, each))] if each else []
        if os.path.dirname(self.path) in self.searched and not self._is_named():
            self.here = os.path.basename(self.path)
        ranked = [(self._fits(rule), at) for at, rule in enumerate(self.rules)]
        best = max((fits for fits, _ in ranked), default=0)
        if best == 1:  # no rule has it among its prerequisites
            base = os.path.basename(self.path)
            by_variable = any(base in value for value in self.values.values())
            ranked = [
                (3 if fits and self._names(self.rules[at], by_variable=by_variable) else fits, at)
                for fits, at in ranked
            ]
            best = max(fits for fits, _ in ranked)
        several = best > 1 and sum(fits == best for fits, _ in ranked) > 1
        ranked.sort(key=lambda each: (-each[0], several and not self._is_made(self.rules[each[1]]), each[1]))
        general = self.values
        for fits, at in ranked:
            rule = self.rules[at]
            if not fits or not rule.recipe:
                continue
            left_out: dict[str, None] = {}
            self.values = self._values_of(self._objects(rule, fits), general, left_out)
            for line in rule.recipe:
                for words, doubtful in self._commands(line):
                    of_file = [self.rules[each] for rank, each in ranked if rank > 1]
                    self._doubts(of_file if fits > 1 else [*of_file, rule], left_out)
                    recipe = self._read(words, doubtful, left_out, certain=fits > 1)
                    return recipe._replace(is_source=fits == 3 and self._compiles(rule, line))
                if fits > 1 and "$(call" in line and len(self.unread) < _MOST_LEFT_OUT:
                    self.unread[f"what `{self._shown(line.strip())}` gives nvcc"] = None
        words: list[str] = []
        doubtful: list[str] = []
        left_out = {}
        of_file = [(self.rules[at], fits) for fits, at in ranked if fits > 1]
        objects = [each for rule, fits in of_file[:_MOST_LEFT_OUT] for each in self._objects(rule, fits)]
        self.values = self._values_of(objects or [self._usual_object()], general, left_out)
        self._doubts([rule for rule, _ in of_file], left_out)
        if self.made_by_eval:
            left_out["the rules that `$(eval …)` makes"] = None
        for name in dict.fromkeys([*self.values, *self.doubtful]):
            if _is_flags(name) and len(words) < _MOST_WORDS and len(doubtful) < _MOST_LEFT_OUT:
                words += self.expanded(f"$({name})", doubtful).split()
        return self._read(words[:_MOST_WORDS], doubtful, left_out, certain=False)

    def _is_named(self) -> bool:
        """Say whether a rule has the file among its prerequisites by its path."""
        return any(self.here in map(os.path.normpath, rule.needs.split()) for rule in self.rules)

    def _is_made(self, rule: _Rule) -> bool:
        """Say whether a plain call of make may need what the rule makes."""
        if self.graph is None:
            self.graph = self._graph()
        targets = rule.targets.split()[:_MOST_WORDS]
        return (
            any(each in self.graph[0] or "%" in each or _UNKNOWN in each for each in targets) or not targets
        )

    def _compiles(self, rule: _Rule, line: str) -> bool:
        """Say whether a recipe gives nvcc the file. The file may only be among the prerequisites because another one
        includes it.
        """
        extension = os.path.splitext(self.path)[1]
        base = os.path.basename(self.path)
        sources = [
            os.path.basename(need) for need in rule.needs.split()[:_MOST_WORDS] if need.endswith(extension)
        ]
        every = re.search(r"\$[\^+]|\$[({][\^+]", line)
        named = base in [os.path.basename(word) for word in self.expanded(line).split()]
        return named or bool(every) or (sources[:1] == [base] and bool(re.search(r"\$<|\$[({]<", line)))

    def _doubts(self, rules: Sequence[_Rule], left_out: dict[str, None]) -> None:
        """Note calls of nvcc in recipes of these rules that depend on an unknown condition."""
        for rule in rules:
            for condition, line in rule.doubts:
                if len(left_out) >= _MOST_LEFT_OUT:
                    return
                if next(self._commands(line), None):
                    target = self._shown(rule.targets.strip())
                    left_out[f"what `{self._shown(condition)}` adds to the recipe of {target}"] = None

    def _fits(self, rule: _Rule) -> int:
        """Rank a rule. 3: it names the file; 2: its pattern fits the file; 1: another rule, which may link what
        others compile.
        """
        extension = os.path.splitext(self.path)[1]
        base = os.path.basename(self.path)
        best = 1
        for need in islice(rule.needs.replace("|", " ").split(), _MOST_NEEDS):
            self.needs += 1
            if self.needs > _MOST_NEEDS:
                self.unread[f"what rules behind the first {_MOST_NEEDS:,} prerequisites add"] = None
                break
            if not need.endswith(extension):
                continue
            name = os.path.normpath(need)
            if name == self.here or (name == base and os.path.dirname(self.path) == self.folder):
                return 3
            if "%" in need:
                best = max(best, 2 if self._follows(rule, stem_of(name, self.here)) else 0)
            elif os.path.basename(name) == base:
                best = 3
        if not rule.needs.strip() and rule.targets.startswith(f"{extension}.") and best < 2:
            best = 2  # a suffix rule: `.cu.o:`
        return best

    def _names(self, rule: _Rule, *, by_variable: bool) -> bool:
        """Say whether a call of nvcc in a rule names the file, although it is not a prerequisite."""
        base = os.path.basename(self.path)
        for line in rule.recipe:
            for words, _ in self._commands(line) if base in line or (by_variable and "$" in line) else ():
                own = [os.path.normpath(word) for word in words if os.path.basename(word) == base]
                if self.here in own or (base in own and os.path.dirname(self.path) == self.folder):
                    return True
        return False

    def _follows(self, rule: _Rule, stem: str | None) -> bool:
        """Say whether a pattern rule is for the file. A static pattern rule names its targets."""
        if stem is None:
            return False
        pattern, static, _ = rule.needs.partition(":")
        listed = rule.targets.split()[:_MOST_WORDS]
        if not static or any(_UNKNOWN in each for each in listed):
            return True
        made = {os.path.normpath(each.replace("%", stem, 1)) for each in pattern.split()}
        return any(os.path.normpath(each) in made for each in listed)

    def _usual_object(self) -> str:
        return os.path.splitext(self.here)[0] + ".o"

    def _objects(self, rule: _Rule, fits: int) -> list[str]:
        """Return what the rule makes of the file. For a rule that only links, return what it makes too."""
        targets = rule.targets.split()[:_MOST_WORDS]
        if fits == 1:
            return [*targets, self._usual_object()]
        if not rule.needs.strip():
            return [os.path.splitext(self.here)[0] + os.path.splitext(targets[0])[1]]
        pattern, static, needs = rule.needs.partition(":")
        targets = pattern.split() if static else targets
        for need in (needs if static else rule.needs).split()[:_MOST_WORDS]:
            stem = stem_of(os.path.normpath(need), self.here) if "%" in need else None
            if stem is not None:
                return [os.path.normpath(each.replace("%", stem, 1)) for each in targets]
        return [os.path.normpath(each) for each in targets]

    def _values_of(
        self, objects: Sequence[str], values: dict[str, str], left_out: dict[str, None]
    ) -> dict[str, str]:
        """Return the variables as they are where these targets are made. `left_out` gets those that may be set there."""
        if not self.of_targets:
            return values
        names = dict.fromkeys(islice(objects, _MOST_OBJECTS))
        self.matched += len(names) * self.named
        if self.matched > _MOST_MATCHED:
            self.unread["what variables of single targets add, which are too many to be read"] = None
            return values
        # of several patterns the one with the shortest stem counts most, and a name more than any
        fitting: list[tuple[int, _OfTarget]] = []
        above: set[str] | None = None
        for each in self.of_targets:
            stems = [stem_of(target, name) for target in each.targets for name in names]
            fit = min((len(stem) for stem in stems if stem is not None), default=-1)
            if fit >= 0 and not each.doubt:
                fitting.append((fit, each))
            elif (
                len(left_out) < _MOST_LEFT_OUT
                and DECIDES.search(each.value)
                and not _OF_LINKER.search(each.name)
            ):
                above = self._above(objects) if above is None else above
                if fit >= 0 or any(_UNKNOWN in target or target in above for target in each.targets):
                    left_out[f"what `{self._shown(each.doubt or each.shown)}` adds to {each.name}"] = None
        if not fitting:
            return values
        self.matched += len(values)
        general, self.values = self.values, dict(values)
        for _, each in sorted(fitting, key=lambda pair: -pair[0]):
            self._assign(each.name, "=" if each.operator.startswith(":") else each.operator, each.value, "")
        made, self.values = self.values, general
        return made

    def _above(self, objects: Sequence[str]) -> set[str]:
        """Return the targets that a plain call of make makes and that need one of these: their variables may be
        passed on.
        """
        if self.graph is None:
            self.graph = self._graph()
        made, needed_by = self.graph
        return made & _reached([*objects, _UNKNOWN], needed_by) - {*objects}

    def _graph(self) -> tuple[set[str], dict[str, list[str]]]:
        """Return what a plain call of make makes, and which targets need each file."""
        needs: dict[str, list[str]] = {}
        needed_by: dict[str, list[str]] = {}
        phony: set[str] = set()
        first = ""
        edges = 0
        for targets, needed in self.edges:
            words = [_UNKNOWN if _UNKNOWN in each else each for each in needed.split()]
            for target in targets.split():
                if target == ".PHONY":
                    phony.update(words)
                if target.startswith(".") or "%" in target:
                    continue
                first = first or target
                for need in words:
                    edges += 1
                    if edges > _MOST_NEEDS:
                        break
                    needs.setdefault(target, []).append(need)
                    needed_by.setdefault(need, []).append(target)
        made = _reached([first], needs)
        return (made | (needs.keys() - phony) if _UNKNOWN in made else made), needed_by

    def _commands(self, line: str) -> Iterator[tuple[list[str], list[str]]]:
        """Yield the words behind the compiler for each call of nvcc in a line of a recipe."""
        doubtful: list[str] = []
        text = self.expanded(line.strip().lstrip("@-+ \t"), doubtful)
        if not _MENTIONS_COMPILER.search(self._kept(text)):
            return
        self.split += len(text)
        if self.split > _MOST_SPLIT:
            self.unread[f"what recipes behind the first {_MOST_SPLIT:,} characters add"] = None
            return
        for command in re.split(r"&&|\|\||;", text):
            words = command_line.split(command)[:_MOST_WORDS]
            for at, word in enumerate(words[:8]):
                shown = self._kept(word)
                if silenced := _SILENCED.match(shown):
                    shown = shown[silenced.end() :]
                reference = shown.strip("${}()")
                if _COMPILER.fullmatch(shown.rpartition("/")[2]) or (
                    (shown.startswith("$") or shown.endswith("@")) and _COMPILERS_NAME.fullmatch(reference.strip("@"))
                ) or (shown.startswith("$(shell") and "nvcc" in shown):  # fmt: skip
                    yield words[at + 1 :], doubtful
                    break

    def _shown(self, text: str) -> str:
        text = self._kept(text)
        return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"

    def _read(
        self, words: Sequence[str], doubtful: Sequence[str], more: dict[str, None], *, certain: bool
    ) -> Reading:
        """Make a reading of a command's words. `more` is left out too."""
        known: list[str] = []
        left_out = self.unread | more
        for word in words:
            unset = _PART.sub(self._unset, word)
            if not _PART.search(word):
                known.append(word)
                continue
            option = known.pop() + " " if known and known[-1] in _VALUED else ""
            if not unset and not option:  # a variable that is for the command line, as `$(EXTRA)`
                if self.of_automake and _is_flags(self._kept(word).strip("${}()")):
                    left_out[f"macros and flags of {self._shown(word)}, which configure sets"] = None
                continue
            if not (option or word).startswith(_SILENT) and re.match(r"[-@\ue000]", option or word):
                left_out[option + self._shown(word)] = None
        for name in doubtful[:_MOST_LEFT_OUT]:
            left_out[f"what `{self._shown(self.doubtful[name])}` adds to {name}"] = None
        known, option_files = without_option_files(known)
        left_out |= dict.fromkeys(option_files)
        if "orbit-input" not in known:
            known.append(self.path)
        command = command_line.parse(["nvcc", *known], self.folder, self.path)
        left_out |= dict.fromkeys(command.left_out)
        return Reading(command.flags, tuple(left_out)[:_MOST_LEFT_OUT], certain=certain)


def _is_configured(folder: str) -> bool:
    return any(os.path.isfile(os.path.join(folder, name)) for name in ("configure.ac", "configure.in"))


def _is_flags(name: str) -> bool:
    """Say whether a variable has the name of one of nvcc's flags."""
    rest, flags, behind = name.upper().rpartition("FLAGS")
    return bool(flags) and not behind and ("CU" in rest or "NVCC" in rest or "GENCODE" in rest)


def _reached(starts: Sequence[str], edges: dict[str, list[str]]) -> set[str]:
    seen = set(starts)
    waiting = list(seen)
    while waiting:
        for each in edges.get(waiting.pop(), ()):
            if each not in seen:
                seen.add(each)
                waiting.append(each)
    return seen


def _reference_end(text: str, at: int) -> int:
    """Return the place behind `$(…)`, `${…}` or `$x`. Return the end of the text if a reference is too long to be
    one.
    """
    opening = text[at + 1 : at + 2]
    if opening not in _CLOSING:
        return min(at + 2, len(text))
    depth = 0
    brackets = _BRACKET[opening].finditer(text, at + 1, at + _LONGEST_REFERENCE)
    for match in islice(brackets, _MOST_BRACKETS):
        depth += 1 if match[0] == opening else -1
        if depth == 0:
            return match.end()
    return len(text)
