"""Reads a Makefile as make does: variables, conditions, what it includes, and its rules as they are written. Neither make nor a shell is run.

It assumes a plain call of make: a variable that nothing sets is empty, and conditions are evaluated so.
"""

from __future__ import annotations

import fnmatch
import os
import platform
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

from orbit_lsp.compilation.build_systems import make_functions
from orbit_lsp.compilation.build_systems.make_functions import MOST_WORDS

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
_BRACKETED = re.compile(r"\((.*),(.*)\)")
_QUOTED = re.compile(r"([\"'])(.*?)\1[ \t]+([\"'])(.*)\3")
_EVALUATED = re.compile(r"\$\(eval[ \t]+([\w.-]{1,200})")
DECIDES = re.compile(
    r"-D|-U|fast_math|arch|gencode|generate-code|-ftz|-fmad|-prec-|maxrregcount|std[= ]|-rdc|-dc\b|-expt|lambda|-Xptxas|\$"
)
"""Flags that may change the measured code. A doubt about one is shown."""
OF_LINKER = re.compile(r"LD|LIB|INC", re.IGNORECASE)
PART = re.compile(r"\ue000(\d+)\ue001")
_BRACKET = {"(": re.compile(r"[()]"), "{": re.compile(r"[{}]")}
UNKNOWN = "\ue000"
"""A need that is not known."""
_MOST_STEPS = 5_000
"""References that are followed: a few lines can repeat one without end."""
_SHORT = 1_000
_MOST_CHARACTERS = 64 << 10
"""A longer value is cut here."""
_MOST_EXPANDED = 256 << 10
"""Characters of all values that references are replaced by."""
_MOST_DEPTH = 20
_MOST_FOLDERS = 500
"""Folders that one `$(shell find …)` looks into."""
_MOST_CONDITIONS = 64
"""Conditions that may be nested around one line."""
_LONGEST_REFERENCE = 2_000
"""`$(shell …)` takes some hundred."""
_MOST_BRACKETS = 64
"""Brackets that one reference may contain."""
_MOST_INCLUDED = 20
_MOST_LINES = 20_000
"""Lines of a Makefile and its included files together."""
_MOST_TEXT = 1 << 20
"""Characters of these lines."""
LONGEST_SHOWN = 200
MOST_LEFT_OUT = 12
_LONGEST_CONDITION = 500
_CLOSING = {"(": ")", "{": "}"}
_ASKED: dict[str, Callable[[], str]] = {
    "pwd": str,
    "uname": platform.system,
    "uname -s": platform.system,
    "uname -m": platform.machine,
}
"""Commands whose output is known without a shell."""
_OF_PATHS = frozenset(("abspath", "realpath", "wildcard"))
_GOES = re.compile(r"cd[ \t]+(\S[^;&|]{0,499}?)[ \t]*(?:&&|;)[ \t]*pwd(?:[ \t]+-[LP])?")
_FINDS = re.compile(
    r"find[ \t]+([\w./ -]{1,500}?)[ \t]+(?:-type[ \t]+f[ \t]+)?-name[ \t]+[\"']?([\w.*\\-]{1,100})[\"']?[ \t]*"
)
_OF_SETTINGS = re.compile(r"\.(?:mk|make|inc|mak|rules|opts?)$|onfig|ommon|akefile", re.IGNORECASE)
"""Names of files that set variables; others hold dependencies."""
_AUTOMATIC = "@<^+*?%|"


class WrittenRule(NamedTuple):
    targets: str
    needs: str
    recipe: list[str]
    doubts: list[tuple[str, str]]
    """Recipe lines under a condition that is not known, each behind that condition."""


class TargetVariable(NamedTuple):
    """A variable that is set for some targets only."""

    targets: tuple[str, ...]
    name: str
    operator: str
    value: str
    doubt: str
    shown: str


def _is_configured(folder: str) -> bool:
    return any(os.path.isfile(os.path.join(folder, name)) for name in ("configure.ac", "configure.in"))


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


class MakefileReader:
    """The variables, rules and conditions of a Makefile in `folder`, as far as they have been read. `path` is the file whose
    compilation is asked for.
    """

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
        self.rules: list[WrittenRule] = []
        self.edges: list[tuple[str, str]] = []
        """Targets and what they need, also where that is not known."""
        self.of_targets: list[TargetVariable] = []
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
        rule: WrittenRule | None = None
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
                self.of_targets.append(TargetVariable(of, name, operator, value, doubt, words))
            elif match := _RULE.match(words):
                recipe = [match[3]] if match[3] else []
                doubts = [(doubt, each) for each in recipe if doubt]
                rule = WrittenRule(
                    self.expanded(match[1]), self.expanded(match[2]), [] if doubt else recipe, doubts
                )
                self.rules.append(rule)
                self.edges.append((rule.targets, rule.needs))
            else:
                rule = WrittenRule(
                    "", "", [], []
                )  # what this line is make alone knows, and whose recipe follows
                if ":" in words:
                    self.edges.append((words.partition(":")[0], UNKNOWN))

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
            text = "" if UNKNOWN in name else include(name)
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
        left, right = (PART.sub(self._unset, self.expanded(side.strip(), doubtful)) for side in sides)
        if doubtful or PART.search(left + right):
            return None
        return (left.strip() == right.strip()) == (kind == "ifeq")

    def _unset(self, match: re.Match[str]) -> str:
        """Replace a variable that nothing sets by an empty text. Any other part stays."""
        return "" if re.fullmatch(r"\$.[\w.-]+.|\$\w", self.parts[int(match[1])]) else match[0]

    def _assign(self, name: str, operator: str, value: str, doubt: str) -> None:
        if doubt:
            if DECIDES.search(value) and not OF_LINKER.search(name):
                self.doubtful[name] = doubt
        elif operator == "!=":
            self.values[name] = f"$(shell {value})"
        elif operator == "+=":
            before = self.values.get(name, "")
            if len(before) + len(value) < _MOST_CHARACTERS:
                self.values[name] = f"{before} {value}".strip()
            elif len(self.unread) < MOST_LEFT_OUT:
                self.unread[f"the end of {name}, which is too long to be read"] = None
        elif operator == "?=":
            self.values.setdefault(name, value)
        elif operator == "=":
            self.values[name] = value.replace(f"$({name})", "").replace(f"${{{name}}}", "")
        else:
            self.values[name] = self._kept(self.expanded(value))

    def _kept(self, value: str) -> str:
        """Return a value that was expanded at once, with its unknown parts as references again."""
        return PART.sub(lambda match: self.parts[int(match[1])], value)[:_MOST_CHARACTERS]

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
            return self._unknown(reference) if UNKNOWN in value else self._of_paths(function, value)
        if function == "shell" and (finds := _FINDS.fullmatch(self.expanded(arguments, None, depth + 1))):
            return " ".join(self._found(finds[1].split(), finds[2]))
        if function == "shell" and (goes := _GOES.fullmatch(arguments.strip())):
            way = self.expanded(goes[1], doubtful, depth + 1)
            return self._unknown(reference) if UNKNOWN in way else self._of_paths("abspath", way)
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
        if any(UNKNOWN in part for part in parts) and function not in ("strip", "addprefix", "addsuffix"):
            return self._unknown(reference)
        made = make_functions.applied(function, parts, _MOST_CHARACTERS)
        return self._unknown(reference) if made is None else made

    def _foreach(self, arguments: str, reference: str, doubtful: list[str] | None, depth: int) -> str:
        name, _, rest = arguments.partition(",")
        listed, _, body = rest.partition(",")
        name, words = name.strip(), self.expanded(listed, doubtful, depth + 1)
        if UNKNOWN in words + name or not body:
            return self._unknown(reference)
        before = self.values.get(name)
        made: list[str] = []
        for self.values[name] in words.split()[:MOST_WORDS]:
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
        words = value.split()[:MOST_WORDS]
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

    def _shown(self, text: str) -> str:
        text = self._kept(text)
        return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"
