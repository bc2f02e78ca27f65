"""Reads how a Makefile compiles a CUDA file from its variables and rules (`make_reader`). Neither make nor a shell is run."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from orbit_lsp.compilation import command_line
from orbit_lsp.compilation.build_systems.make_functions import MOST_WORDS, stem_of
from orbit_lsp.compilation.build_systems.make_reader import (
    DECIDES,
    LONGEST_SHOWN,
    MOST_LEFT_OUT,
    OF_LINKER,
    PART,
    UNKNOWN,
    MakefileReader,
    TargetVariable,
    WrittenRule,
)
from orbit_lsp.compilation.build_systems.other_makefiles import is_other_makefile
from orbit_lsp.compilation.build_systems.reading import Reading

_SILENCED = re.compile(r"(?:[@+-]|\$[({](?:AM_V_\w+|V_\w+|Q|E|AT|SILENT|QUIET|VERB\w*|HIDE|ECHO\w*)[)}])+")
"""What stands before a command so that make does not print it, or goes on where it fails."""
_COMPILER = re.compile(r"nvcc(?:[-.][\w.]+)?|clang\+\+(?:-\d+)?")
_COMPILERS_NAME = re.compile(r"\w*(?:NVCC|CUDACC|CUDA_COMPILER|CUCC)", re.IGNORECASE)
_MENTIONS_COMPILER = re.compile(r"nvcc|clang\+\+|cudacc|cuda_compiler|cucc", re.IGNORECASE)
_MOST_SPLIT = 64 << 10
"""Characters of all recipes that are divided into words: a shell's rules for that take a microsecond for each."""
_MOST_NEEDS = 20_000
"""Of all rules."""
_MOST_OBJECTS = 64
"""Of one rule."""
_MOST_MATCHED = 50_000
"""Targets of variables that are compared with those of rules."""
_VALUED = {
    "-gencode", "--generate-code", "-arch", "--gpu-architecture", "-code", "--gpu-code", "-D", "-U", "-I", "-isystem",
    "-std", "--std", "-L", "-l", "-ccbin", "--compiler-bindir", "-Xcompiler", "-Xlinker", "-Xptxas", "-o", "-odir",
    "--options-file", "-optf",
}  # fmt: skip
_OPTION_FILES = ("--options-file", "-optf")
_SILENT = ("-I", "-L", "-l", "-isystem", "-ccbin", "--compiler-bindir", "-X", "-o", "-M", "-O")
"""What decides about no figure; a folder that is not known is of no header, or of one that is then missing."""


class MakeRule(NamedTuple):
    """A rule with all variables replaced. Automatic ones become `orbit-input`; unknown references stay."""

    targets: tuple[str, ...]
    needs: tuple[str, ...]
    recipe: tuple[str, ...]


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
    return kept, [each[:LONGEST_SHOWN] for each in named]


class _Makefile(MakefileReader):
    def plain_rules(self) -> Iterator[MakeRule]:
        for rule in self.rules[:MOST_WORDS]:
            recipe = tuple(self._kept(self.expanded(line.strip())) for line in rule.recipe)
            targets = [os.path.normpath(each) for each in rule.targets.split()[:MOST_WORDS]]
            pattern, static, needs = rule.needs.partition(":")
            listed = (needs if static else rule.needs).replace("|", " ").split()[:MOST_WORDS]
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
                if fits > 1 and "$(call" in line and len(self.unread) < MOST_LEFT_OUT:
                    self.unread[f"what `{self._shown(line.strip())}` gives nvcc"] = None
        words: list[str] = []
        doubtful: list[str] = []
        left_out = {}
        of_file = [(self.rules[at], fits) for fits, at in ranked if fits > 1]
        objects = [each for rule, fits in of_file[:MOST_LEFT_OUT] for each in self._objects(rule, fits)]
        self.values = self._values_of(objects or [self._usual_object()], general, left_out)
        self._doubts([rule for rule, _ in of_file], left_out)
        if self.made_by_eval:
            left_out["the rules that `$(eval …)` makes"] = None
        for name in dict.fromkeys([*self.values, *self.doubtful]):
            if _is_flags(name) and len(words) < MOST_WORDS and len(doubtful) < MOST_LEFT_OUT:
                words += self.expanded(f"$({name})", doubtful).split()
        return self._read(words[:MOST_WORDS], doubtful, left_out, certain=False)

    def _is_named(self) -> bool:
        """Say whether a rule has the file among its prerequisites by its path."""
        return any(self.here in map(os.path.normpath, rule.needs.split()) for rule in self.rules)

    def _is_made(self, rule: WrittenRule) -> bool:
        """Say whether a plain call of make may need what the rule makes."""
        if self.graph is None:
            self.graph = self._graph()
        targets = rule.targets.split()[:MOST_WORDS]
        return any(each in self.graph[0] or "%" in each or UNKNOWN in each for each in targets) or not targets

    def _compiles(self, rule: WrittenRule, line: str) -> bool:
        """Say whether a recipe gives nvcc the file. The file may only be among the prerequisites because another one
        includes it.
        """
        extension = os.path.splitext(self.path)[1]
        base = os.path.basename(self.path)
        sources = [
            os.path.basename(need) for need in rule.needs.split()[:MOST_WORDS] if need.endswith(extension)
        ]
        every = re.search(r"\$[\^+]|\$[({][\^+]", line)
        named = base in [os.path.basename(word) for word in self.expanded(line).split()]
        return named or bool(every) or (sources[:1] == [base] and bool(re.search(r"\$<|\$[({]<", line)))

    def _doubts(self, rules: Sequence[WrittenRule], left_out: dict[str, None]) -> None:
        """Note calls of nvcc in recipes of these rules that depend on an unknown condition."""
        for rule in rules:
            for condition, line in rule.doubts:
                if len(left_out) >= MOST_LEFT_OUT:
                    return
                if next(self._commands(line), None):
                    target = self._shown(rule.targets.strip())
                    left_out[f"what `{self._shown(condition)}` adds to the recipe of {target}"] = None

    def _fits(self, rule: WrittenRule) -> int:
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

    def _names(self, rule: WrittenRule, *, by_variable: bool) -> bool:
        """Say whether a call of nvcc in a rule names the file, although it is not a prerequisite."""
        base = os.path.basename(self.path)
        for line in rule.recipe:
            for words, _ in self._commands(line) if base in line or (by_variable and "$" in line) else ():
                own = [os.path.normpath(word) for word in words if os.path.basename(word) == base]
                if self.here in own or (base in own and os.path.dirname(self.path) == self.folder):
                    return True
        return False

    def _follows(self, rule: WrittenRule, stem: str | None) -> bool:
        """Say whether a pattern rule is for the file. A static pattern rule names its targets."""
        if stem is None:
            return False
        pattern, static, _ = rule.needs.partition(":")
        listed = rule.targets.split()[:MOST_WORDS]
        if not static or any(UNKNOWN in each for each in listed):
            return True
        made = {os.path.normpath(each.replace("%", stem, 1)) for each in pattern.split()}
        return any(os.path.normpath(each) in made for each in listed)

    def _usual_object(self) -> str:
        return os.path.splitext(self.here)[0] + ".o"

    def _objects(self, rule: WrittenRule, fits: int) -> list[str]:
        """Return what the rule makes of the file. For a rule that only links, return what it makes too."""
        targets = rule.targets.split()[:MOST_WORDS]
        if fits == 1:
            return [*targets, self._usual_object()]
        if not rule.needs.strip():
            return [os.path.splitext(self.here)[0] + os.path.splitext(targets[0])[1]]
        pattern, static, needs = rule.needs.partition(":")
        targets = pattern.split() if static else targets
        for need in (needs if static else rule.needs).split()[:MOST_WORDS]:
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
        fitting: list[tuple[int, TargetVariable]] = []
        above: set[str] | None = None
        for each in self.of_targets:
            stems = [stem_of(target, name) for target in each.targets for name in names]
            fit = min((len(stem) for stem in stems if stem is not None), default=-1)
            if fit >= 0 and not each.doubt:
                fitting.append((fit, each))
            elif (
                len(left_out) < MOST_LEFT_OUT
                and DECIDES.search(each.value)
                and not OF_LINKER.search(each.name)
            ):
                above = self._above(objects) if above is None else above
                if fit >= 0 or any(UNKNOWN in target or target in above for target in each.targets):
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
        return made & _reached([*objects, UNKNOWN], needed_by) - {*objects}

    def _graph(self) -> tuple[set[str], dict[str, list[str]]]:
        """Return what a plain call of make makes, and which targets need each file."""
        needs: dict[str, list[str]] = {}
        needed_by: dict[str, list[str]] = {}
        phony: set[str] = set()
        first = ""
        edges = 0
        for targets, needed in self.edges:
            words = [UNKNOWN if UNKNOWN in each else each for each in needed.split()]
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
        return (made | (needs.keys() - phony) if UNKNOWN in made else made), needed_by

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
            words = command_line.split(command)[:MOST_WORDS]
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

    def _read(
        self, words: Sequence[str], doubtful: Sequence[str], more: dict[str, None], *, certain: bool
    ) -> Reading:
        """Make a reading of a command's words. `more` is left out too."""
        known: list[str] = []
        left_out = self.unread | more
        for word in words:
            unset = PART.sub(self._unset, word)
            if not PART.search(word):
                known.append(word)
                continue
            option = known.pop() + " " if known and known[-1] in _VALUED else ""
            if not unset and not option:  # a variable that is for the command line, as `$(EXTRA)`
                if self.of_automake and _is_flags(self._kept(word).strip("${}()")):
                    left_out[f"macros and flags of {self._shown(word)}, which configure sets"] = None
                continue
            if not (option or word).startswith(_SILENT) and re.match(r"[-@\ue000]", option or word):
                left_out[option + self._shown(word)] = None
        for name in doubtful[:MOST_LEFT_OUT]:
            left_out[f"what `{self._shown(self.doubtful[name])}` adds to {name}"] = None
        known, option_files = without_option_files(known)
        left_out |= dict.fromkeys(option_files)
        if "orbit-input" not in known:
            known.append(self.path)
        command = command_line.parse(["nvcc", *known], self.folder, self.path)
        left_out |= dict.fromkeys(command.left_out)
        return Reading(command.flags, tuple(left_out)[:MOST_LEFT_OUT], certain=certain)


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
