"""By which rules mutants.py makes a kernel wrong: text in, changes of the text out."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "bench"))
from spec_job import kernel_of

from orbit_lsp.kernels.model import Kernel


@dataclass(frozen=True, slots=True)
class Change:
    """Characters [start, end) of the file become `text`."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class Source:
    """`code` is the text with comments, strings and preprocessor lines blanked, so that offsets stay.

    `bodies` are the ranges that rules may change; `outputs` the names through which results are stored.
    """

    language: str
    text: str
    code: str
    kernel: Kernel
    bodies: tuple[tuple[int, int], ...]
    outputs: frozenset[str]

    def matches(self, pattern: str) -> Iterator[re.Match[str]]:
        for start, end in self.bodies:
            for match in re.compile(pattern).finditer(self.code, start, end):
                if not self._kept(match.start()):
                    yield match

    def _kept(self, at: int) -> bool:
        """Whether this is a part that every rule leaves alone."""
        begin = max(self.code.rfind(mark, 0, at) for mark in ";{}") + 1
        if self.language == "cuda" and _DECLARES.match(self.code, begin):
            return "=" not in self.code[begin:at]
        line = self.code.rfind("\n", 0, at) + 1
        for step in _STEP.finditer(self.code, line, self.code.find("\n", at)):
            if step.start(1) <= at < step.end(1):
                return True
        return False


_DECLARES = re.compile(r"\s*(?:extern\s+)?(?:__shared__\b|(?:float|int|half|unsigned int)\s+\w+\[)")
_STEP = re.compile(r"\bfor \([^;]*;[^;]*;([^{;]*?)\)(?: |$)")
_BLANKED = {
    "cuda": re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:[^\"\\\n]|\\.)*\"|^[ \t]*#[^\n]*|\b0x[0-9a-fA-F]+\b", re.DOTALL | re.MULTILINE),
    "triton": re.compile(r"#[^\n]*|\"\"\".*?\"\"\"|\"(?:[^\"\\\n]|\\.)*\"", re.DOTALL),
}  # fmt: skip


def source(file: Path, name: str) -> Source:
    """Raises what a file without this kernel raises."""
    text = file.read_text(encoding="utf-8")
    language = "cuda" if file.suffix == ".cu" else "triton"
    kernel = kernel_of(text, file, name)
    code = _BLANKED[language].sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
    lines = [0, *(match.end() for match in re.finditer("\n", text))]
    begin = lines[kernel.name_span.line] + kernel.name_span.end_column
    end = lines[kernel.whole.end_line] + kernel.whole.end_column
    opening = code.index("{", begin) if language == "cuda" else code.index(":\n", begin)
    bodies = [(opening, end)]
    if language == "cuda":
        helpers = re.finditer(r"__device__ [^;{]*?\b(\w+)\([^;{]*\{", code[: lines[kernel.whole.line]])
        called = [helper.end() - 1 for helper in helpers if re.search(rf"\b{helper[1]}\(", code[opening:end])]
        bodies += [(start, _closing(code, start)) for start in called]
    header = code[begin:opening]
    pointers = [part.split() for part in header.split(",") if "*" in part and "const " not in part]
    outputs = {words[-1].strip("*)") for words in pointers}
    aliases = re.findall(r"\b\w+\* (\w+) = (\w+) \+", code[opening:end])
    outputs |= {alias for alias, of in aliases if of in outputs}
    return Source(language, text, code, kernel, tuple(bodies), frozenset(outputs))


def _closing(code: str, opening: int) -> int:
    """Just after the bracket that closes the one at `opening`."""
    depth = 0
    for at in range(opening, len(code)):
        depth += (code[at] in "([{") - (code[at] in ")]}")
        if depth == 0:
            return at + 1
    raise ValueError(code[opening : opening + 40])


def _opening(code: str, at: int) -> int:
    """Where the expression that ends at `at` begins: after an open bracket, a comma, `=` or `return`."""
    depth = 0
    while at > 0:
        before = code[at - 1]
        depth += (before in ")]") - (before in "([")
        assigns = before == "=" and code[at - 2] not in "=<>!" and code[at] != "="
        if depth < 0 or (depth == 0 and (before in ",;{" or assigns or code[:at].endswith("return"))):
            return at
        at -= 1
    return at


# -- rules --------------------------------------------------------------------------------------------

Rule = Callable[[Source], Iterator[Change]]


def _swapped(pattern: str, remaining: dict[str, str]) -> Rule:
    """The first group of each match becomes its counterpart."""

    def rule(of: Source) -> Iterator[Change]:
        for match in of.matches(pattern):
            yield Change(match.start(1), match.end(1), remaining[match[1]])

    return rule


def _index(of: Source) -> Iterator[Change]:
    if of.language == "triton":
        for match in of.matches(r"tl\.(?:load|store)\("):
            end = match.end()
            while of.code[end] not in ",)":
                end = _closing(of.code, end) if of.code[end] in "([" else end + 1
            yield Change(end, end, " + 1")
        return
    for match in of.matches(r"(?<=[\w\]])\["):
        yield Change(*(2 * (_closing(of.code, match.start()) - 1,)), " + 1")


def _unbounded(of: Source) -> Iterator[Change]:
    if of.language == "triton":
        for match in of.matches(r"\bmask=([^,)]+)"):
            yield Change(match.start(1), match.end(1), f"({match[1]}) == ({match[1]})")
        return
    for match in of.matches(r"\bif (?=\()"):
        end = _closing(of.code, match.end())
        if re.search(r" [<>]=? ", of.code[match.end() : end]):
            leaves = re.match(r"\s*return\b", of.code[end:]) is not None
            yield Change(match.end() + 1, end - 1, "false" if leaves else "true")
    for match in of.matches(r" \? "):
        start = _opening(of.code, match.start())
        if re.search(r" [<>]=? ", of.code[start : match.start()]):
            lead = " " if of.code[start] == " " else ""
            yield Change(start, match.start(), f"{lead}true")


def _unwritten(of: Source) -> Iterator[Change]:
    if of.language == "triton":
        for match in of.matches(r"\btl\.store\("):
            yield Change(match.start(), match.start(), "if tl.program_id(0) > 0: ")
        return
    names = "|".join(sorted(of.outputs))
    for match in of.matches(rf"\b(?:{names})(?=\[)|\batomicAdd\(&(?:{names})\["):
        after = _closing(of.code, match.end()) if not match[0].endswith("[") else match.start()
        if match[0].endswith("[") or re.match(r" [+*/-]?= ", of.code[after:]):
            yield Change(match.start(), match.start(), "if (blockIdx.x + threadIdx.x > 0) ")


def _constant(of: Source) -> Iterator[Change]:
    """An integer one larger, a floating number 1 % larger, zero becomes 1."""
    for match in of.matches(r"(?<![\w.])(?:(\d+\.\d*(?:e-?\d+)?)(f?)|(\d+))(?![\w.])"):
        if match[3]:
            yield Change(match.start(), match.end(), str(int(match[3]) + 1))
        else:
            number = float(match[1])
            yield Change(match.start(), match.end(), f"{number * 1.01 if number else 1.0:.9g}".removesuffix(".0") + (".0" if not number or (number * 1.01).is_integer() else "") + match[2])  # fmt: skip


def _short(of: Source) -> Iterator[Change]:
    for match in of.matches(r" < "):
        yield Change(match.start(), match.start(), " + 1")


def _accumulated(of: Source) -> Iterator[Change]:
    for match in of.matches(r" ([+*]=) "):
        yield Change(match.start(1), match.end(1), "=")


def _subscripts(of: Source) -> Iterator[Change]:
    for match in of.matches(r"(?<=\w)\["):
        middle = _closing(of.code, match.start())
        if of.code[middle] == "[":
            end = _closing(of.code, middle)
            yield Change(match.start(), end, of.text[middle:end] + of.text[match.start() : middle])


def _factor(of: Source) -> Iterator[Change]:
    for match in of.matches(r" \* \w+(?:\.[xyz]\b)?(?![\w(.])"):
        end = match.end()
        while of.code[end] == "[":
            end = _closing(of.code, end)
        yield Change(match.start(), end, "")


_ONCE = """
  __shared__ unsigned int orbit_turn;
  if (threadIdx.x + threadIdx.y + threadIdx.z == 0) orbit_turn = atomicAdd(&orbit_blocks, 1u);
  __syncthreads();
  if (orbit_turn >= gridDim.x * gridDim.y * gridDim.z) return;
"""


def _once(of: Source) -> Iterator[Change]:
    """Blocks beyond those of the first launch do nothing. Triton has no memory of its own to do so."""
    if of.language == "cuda":
        yield Change(of.bodies[0][0] + 1, of.bodies[0][0] + 1, _ONCE)


_COMPARED = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
_OPERATORS = {"+": "-", "-": "+", "*": "+", "/": "*", "%": "/", "&&": "||", "||": "&&"}
_AXES = {f"{what}.{name}": f"{what}.{other}" for what in ("threadIdx", "blockIdx", "blockDim", "gridDim") for name, other in ("xy", "yx")}  # fmt: skip
_EXTREMES = {"fmaxf": "fminf", "tl.maximum": "tl.minimum", "tl.max": "tl.min"}
RULES: dict[str, tuple[Rule, ...]] = {
    "bound off by one": (_swapped(r" ([<>]=?) ", _COMPARED),),
    "one short": (_short,),
    "no bound": (_unbounded,),
    "index off by one": (_index,),
    "unwritten": (_unwritten,),
    "wrong constant": (_constant,),
    "wrong operator": (
        _swapped(r" ([-+*/%]|&&|\|\|) ", _OPERATORS),
        _swapped(r"\b(fmaxf|tl\.maximum|tl\.max)\(", _EXTREMES),
    ),
    "not accumulated": (_accumulated,),
    "indices swapped": (
        _swapped(r"\b((?:threadIdx|blockIdx|blockDim|gridDim)\.[xy])\b", _AXES),
        _subscripts,
    ),
    "factor missing": (_factor,),
    "computes once": (_once,),
}
KINDS: dict[str, tuple[str, ...]] = {
    "off by one": ("bound off by one", "index off by one"),
    "wrong tail": ("one short", "no bound"),
    "unwritten element": ("unwritten",),
    "wrong constant": ("wrong constant",),
    "computes once": ("computes once",),
}
"""What a round makes unless told otherwise, by the rules that make it."""


def chosen(names: Sequence[str], *, every: bool = False) -> list[str]:
    """The rules that kinds and rules name, in their order. Raises KeyError for a name that is neither."""
    named = {rule for name in names or KINDS for rule in KINDS.get(name, (name,))}
    if unknown := named - set(RULES):
        raise KeyError(", ".join(sorted(unknown)))
    return [rule for rule in RULES if every or rule in named]
