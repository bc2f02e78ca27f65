"""How a Makefile compiles a CUDA file: its variables and rules, read as text; neither make nor a shell is run

A plain call of make is meant: a variable that nothing sets is empty, and a condition counts as it is then.
"""

from __future__ import annotations

import fnmatch
import os
import platform
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from orbit_lsp.compilation import command_line
from orbit_lsp.compilation.lazy_pattern import lazy_pattern

_ASSIGNMENT = lazy_pattern(
    r"(?:(?:export|override)[ \t]+){0,2}([\w.-]{1,200})[ \t]{0,200}(=|:{1,3}=|\?=|\+=|!=)[ \t]*(.*)"
)
_RULE = lazy_pattern(r"([^:=#&]+)&?::?(?![=:])([^=;]*)(?:;(.*))?$")
_INCLUDE = lazy_pattern(r"[-s]?include[ \t]+(.+)")
_CONDITION = lazy_pattern(r"(ifn?eq|ifn?def)\b[ \t]*(.*)")
_BRACKETED = lazy_pattern(r"\((.*),(.*)\)")
_QUOTED = lazy_pattern(r"([\"'])(.*?)\1[ \t]+([\"'])(.*)\3")
_COMPILER = lazy_pattern(r"nvcc(?:[-.][\w.]+)?|clang\+\+(?:-\d+)?")
_COMPILERS_NAME = lazy_pattern(r"\w*(?:NVCC|CUDACC|CUDA_COMPILER|CUCC)", re.IGNORECASE)
_FLAGS_NAME = lazy_pattern(r"\w{0,100}?(?:CU|NVCC|GENCODE)\w{0,100}?FLAGS", re.IGNORECASE)
_EVALUATED = lazy_pattern(r"\$\(eval[ \t]+([\w.-]{1,200})")
_DECIDES = lazy_pattern(
    r"-D|-U|fast_math|arch|gencode|generate-code|-ftz|-fmad|-prec-|maxrregcount|std[= ]|-rdc|-dc\b|-expt|lambda|\$"
)
"""What may decide about a figure."""
_OF_LINKER = lazy_pattern(r"LD|LIB|INC", re.IGNORECASE)
_PART = lazy_pattern(r"\ue000(\d+)\ue001")
_MOST_STEPS = 5_000
"""References that are followed: a few lines can repeat one without end."""
_MOST_CHARACTERS = 50_000
"""Of one value."""
_MOST_DEPTH = 20
_MOST_LEFT_OUT = 12
_LONGEST_CONDITION = 500
_CLOSING = {"(": ")", "{": "}"}
_VALUED = {
    "-gencode", "--generate-code", "-arch", "--gpu-architecture", "-code", "--gpu-code", "-D", "-U", "-I", "-isystem",
    "-std", "--std", "-L", "-l", "-ccbin", "--compiler-bindir", "-Xcompiler", "-Xlinker", "-Xptxas", "-o", "-odir",
}  # fmt: skip
_SILENT = ("-I", "-L", "-l", "-isystem", "-ccbin", "--compiler-bindir", "-X", "-o", "-M", "-O")
"""What decides about no figure; a folder that is not known is of no header, or of one that is then missing."""
_ASKED: dict[str, Callable[[], str]] = {
    "pwd": str,
    "uname": platform.system,
    "uname -s": platform.system,
    "uname -m": platform.machine,
}
"""What is known without the shell."""
_AUTOMATIC = "@<^+*?%|"


class Recipe(NamedTuple):
    """`flags` are nvcc's, as a database's command would have them; `left_out` are words of the recipe that are not known
    without running it. `certain`: a rule of the Makefile compiles the file by them.
    """

    flags: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    certain: bool = False


class _Rule(NamedTuple):
    targets: str
    needs: str
    recipe: list[str]


def read(file: str, text: str, path: str, include: Callable[[str], str]) -> Recipe:
    """How the Makefile `file` compiles `path`. `include` gives the text of a file that it includes, "" for none. Reads option
    files that the recipe names.
    """
    makefile = _Makefile(os.path.dirname(file))
    makefile.take(text, include)
    return makefile.recipe(path)


class _Makefile:
    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.values = {"CURDIR": folder, "PWD": folder}
        self.rules: list[_Rule] = []
        self.doubtful: dict[str, str] = {}
        """Variables that are set under a condition which is not known, and the condition."""
        self.parts: list[str] = []
        """References that cannot be followed, each a character's number in the values that have it."""
        self.steps = 0

    def take(self, text: str, include: Callable[[str], str] | None) -> None:
        """Each line as make reads it. Conditions: whether a branch is taken, None for not known."""
        around: list[tuple[bool | None, bool, str]] = []  # whether taken, whether one was, and the condition
        rule: _Rule | None = None
        defining = False
        for line in re.sub(r"\\\r?\n", " ", text).split("\n"):
            if line.startswith("\t"):
                if rule and all(taken for taken, _, _ in around):
                    rule.recipe.append(line)
                continue
            words = line.partition("#")[0].strip()
            defining = (defining or words.startswith("define ")) and words != "endef"
            if defining or not words:
                continue
            for name in _EVALUATED.findall(words):
                self.doubtful[name] = "$(eval …)"
            if self._branches(words, around):
                continue
            if any(taken is False for taken, _, _ in around):
                continue
            doubt = next((why for taken, _, why in around if taken is None), "")
            if match := _ASSIGNMENT.fullmatch(words):
                rule = None
                self._assign(match[1], match[2], match[3], doubt)
            elif match := _INCLUDE.fullmatch(words):
                rule = None
                for name in self.expanded(match[1]).split()[:20] if include and not doubt else ():
                    self.take(include(name) if include else "", None)
            elif not doubt and (match := _RULE.match(words)):
                rule = _Rule(self.expanded(match[1]), self.expanded(match[2]), [match[3]] if match[3] else [])
                self.rules.append(rule)
            else:
                rule = None

    def _branches(self, words: str, around: list[tuple[bool | None, bool, str]]) -> bool:
        """Whether the line begins, divides or ends a condition; `around` are those it stands in."""
        if match := _CONDITION.match(words):
            holds = self._holds(match[1], match[2].strip())
            around.append((holds, bool(holds), words))
        elif words == "endif" and around:
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
        """A variable that nothing sets is empty; any other part stays."""
        return "" if re.fullmatch(r"\$.[\w.-]+.|\$\w", self.parts[int(match[1])]) else match[0]

    def _assign(self, name: str, operator: str, value: str, doubt: str) -> None:
        if doubt:
            if _DECIDES.search(value) and not _OF_LINKER.search(name):
                self.doubtful[name] = doubt
        elif operator == "!=":
            self.values[name] = f"$(shell {value})"
        elif operator == "+=":
            self.values[name] = f"{self.values.get(name, '')} {value}"[:_MOST_CHARACTERS].strip()
        elif operator == "?=":
            self.values.setdefault(name, value)
        elif operator == "=":
            self.values[name] = re.sub(rf"\$[({{]{re.escape(name)}[)}}]", "", value)
        else:
            self.values[name] = self._kept(self.expanded(value))

    def _kept(self, value: str) -> str:
        """What was expanded at once: its parts that were not known are references again."""
        return _PART.sub(lambda match: self.parts[int(match[1])], value)[:_MOST_CHARACTERS]

    def expanded(self, text: str, doubtful: list[str] | None = None, depth: int = 0) -> str:
        """The text with the values of its references; what is not known becomes one character sequence of `parts`. `doubtful`
        gets the names of variables that a condition which is not known sets.
        """
        made: list[str] = []
        size = position = 0
        while (at := text.find("$", position)) >= 0 and size < _MOST_CHARACTERS:
            end = _reference_end(text, at)
            value = self._value(text[at:end], doubtful, depth)
            made += [text[position:at], value]
            size += at - position + len(value)
            position = end
        return "".join([*made, text[position:]])[:_MOST_CHARACTERS]

    def _value(self, reference: str, doubtful: list[str] | None, depth: int) -> str:
        self.steps += 1
        inner = reference[2:-1] if reference[1:2] in _CLOSING else reference[1:]
        if reference == "$$":
            return self._unknown("$$")
        if self.steps > _MOST_STEPS or depth > _MOST_DEPTH:
            return self._unknown(reference)
        if reference[1:2] and (reference[1] in _AUTOMATIC or inner[:1] in tuple(_AUTOMATIC)):
            return "orbit-input"
        function, _, arguments = inner.partition(" ")
        if function == "shell" and (asked := arguments.partition("2>")[0].strip()) in _ASKED:
            return _ASKED[asked]() or self.folder
        if function in ("strip", "addprefix"):
            prefix, comma, values = arguments.partition(",")
            if function == "strip":
                return " ".join(self.expanded(arguments, doubtful, depth + 1).split())
            prefix = self.expanded(prefix.strip(), doubtful, depth + 1) if comma else ""
            return " ".join(prefix + word for word in self.expanded(values, doubtful, depth + 1).split())
        if not re.fullmatch(r"[\w.-]+", inner):
            return self._unknown(reference)
        if doubtful is not None and inner in self.doubtful and inner not in doubtful:
            doubtful.append(inner)
        if inner not in self.values:
            return self._unknown(reference)
        return self.expanded(self.values[inner], doubtful, depth + 1)

    def _unknown(self, reference: str) -> str:
        self.parts.append(reference)
        return f"\ue000{len(self.parts) - 1}\ue001"

    # -- what compiles a file -----------------------------------------------------------------------

    def recipe(self, path: str) -> Recipe:
        """Of the rule that fits the file best; without one of nvcc, the variables that are called as its flags."""
        rules = [(self._fits(rule, path), at) for at, rule in enumerate(self.rules)]
        for fits, at in sorted(rules, key=lambda each: (-each[0], each[1])):
            for line in self.rules[at].recipe if fits else ():
                for words, doubtful in self._commands(line):
                    return self._read(words, doubtful, path, certain=fits > 1)
        words: list[str] = []
        doubtful: list[str] = []
        for name in [*self.values, *self.doubtful]:
            if _FLAGS_NAME.fullmatch(name):
                words += self.expanded(f"$({name})", doubtful).split()
        return self._read(words, doubtful, path, certain=False)

    def _fits(self, rule: _Rule, path: str) -> int:
        """3: the rule names the file; 2: its pattern fits the file; 1: another rule, which may link what others compile."""
        here = os.path.relpath(path, self.folder)
        extension = os.path.splitext(path)[1]
        best = 1
        for need in rule.needs.replace("|", " ").split():
            name = os.path.normpath(need)
            if name == here or (name == os.path.basename(path) and os.path.dirname(path) == self.folder):
                return 3
            if need.endswith(extension) and "%" in need:
                fits = fnmatch.fnmatchcase(here, name.replace("[", "[[]").replace("%", "*"))
                best = max(best, 2 if fits else 0)
            elif need.endswith(extension) and os.path.basename(name) == os.path.basename(path):
                best = 3
        if not rule.needs.strip() and rule.targets.startswith(f"{extension}.") and best < 2:
            best = 2  # a suffix rule: `.cu.o:`
        return best

    def _commands(self, line: str) -> Iterator[tuple[list[str], list[str]]]:
        """Each call of nvcc in a line of a recipe, its words behind the compiler."""
        doubtful: list[str] = []
        text = self.expanded(line.strip().lstrip("@-+ \t"), doubtful)
        for command in re.split(r"&&|\|\||;", text):
            words = command_line.split(command)[:2_000]
            for at, word in enumerate(words[:8]):
                shown = self._kept(word)
                reference = shown.strip("${}()")
                if _COMPILER.fullmatch(shown.rpartition("/")[2]) or (
                    shown.startswith("$") and _COMPILERS_NAME.fullmatch(reference)
                ) or (shown.startswith("$(shell") and "nvcc" in shown):  # fmt: skip
                    yield words[at + 1 :], doubtful
                    break

    def _read(self, words: Sequence[str], doubtful: Sequence[str], path: str, *, certain: bool) -> Recipe:
        known: list[str] = []
        left_out: dict[str, None] = {}
        for word in words:
            unset = _PART.sub(self._unset, word)
            if not _PART.search(word):
                known.append(word)
                continue
            option = known.pop() + " " if known and known[-1] in _VALUED else ""
            if not unset and not option:
                continue  # a variable that is for the command line, as `$(EXTRA)`
            if not (option or word).startswith(_SILENT) and re.match(r"[-\ue000]", option or word):
                left_out[option + self._kept(word)] = None
        for name in doubtful:
            left_out[f"what `{self.doubtful[name]}` adds to {name}"] = None
        if "orbit-input" not in known:
            known.append(path)
        command = command_line.parse(["nvcc", *known], self.folder, path)
        return Recipe(command.flags, tuple(left_out)[:_MOST_LEFT_OUT], certain)


def _reference_end(text: str, at: int) -> int:
    """Behind `$(…)`, `${…}` or `$x`."""
    closing = _CLOSING.get(text[at + 1 : at + 2])
    if closing is None:
        return min(at + 2, len(text))
    opening, depth = text[at + 1], 0
    for position in range(at + 1, min(len(text), at + _MOST_CHARACTERS)):
        depth += (text[position] == opening) - (text[position] == closing)
        if depth == 0:
            return position + 1
    return len(text)
