"""The rest of the file, as far as a launch spec refers to it: other kernels, functions, variables, type aliases.

They are found in the text by name, so names from other files are not known. If a name could come from there, nothing
is denied.
"""

from __future__ import annotations

import re

from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.spec.syntax_tree import Language

_READ = 1 << 20
"""Characters of a file: the rest of a larger one is not known."""
# each of these keeps what it has read: one that read on from every place of a text would need minutes for it
_COMMENT = {
    "cuda": re.compile(r"/\*.*?(?:\*/|\Z)|//[^\n]*+|\"(?:\\.|[^\"\\\n]++)*+\"?+", re.DOTALL),
    "triton": re.compile(r"#[^\n]*"),
}
_ALIAS = re.compile(
    r"^[ \t]*(?:using\s+(\w+)\s*=\s*([\w:\s]{1,60}?)\s*;|typedef\s+([\w:\s]{1,60}?)\s+(\w+)\s*;)",
    re.MULTILINE,
)
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"', re.MULTILINE)
_STAR = re.compile(r"^[ \t]*from[ \t]+[\w.]+[ \t]+import[ \t]+\*", re.MULTILINE)
_DECLARATION = re.compile(r"([^;{}=]++)([;={]?)")
_OF_DEVICE = re.compile(r"\b(?:__constant__|__device__|__managed__)\s")
_LAST_NAME = re.compile(r"[A-Za-z_]\w*\Z")
_ASSIGNED = r"^{name}[ \t]*(?::[^=\n]++)?=(?!=)[ \t]*([^\n]*?)[ \t]*$"
_NUMBER = re.compile(r"(?:(?:tl|triton\.language)\.constexpr\()?(\d{1,18})\)?")
_DEF = re.compile(r"^[ \t]*(?:async[ \t]+)?def[ \t]+([A-Za-z_]\w*)[ \t]*\(", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class FunctionHeader:
    """A Python function's header. `parameters` is the text between its brackets."""

    name: str
    parameters: str


class Surroundings:
    """What surrounds a spec. `asked` says whether anything was looked up: then the answers depend on more than the
    kernel's own lines.
    """

    def __init__(self, lines: list[str], language: Language) -> None:
        self._lines = lines
        self.language: Language = language
        self._text: str | None = None
        self._small = sum(map(len, lines)) + len(lines) <= _READ
        self.asked = False

    @property
    def text(self) -> str:
        """Return the file without its comments. Line ends stay in place."""
        self.asked = True
        if self._text is None:
            text = "\n".join(self._lines) if self._small else ""
            self._text = _COMMENT[self.language].sub(lambda match: "\n" * match[0].count("\n") or " ", text)
        return self._text

    @property
    def complete(self) -> bool:
        """Say whether every name that the file uses unqualified is defined in it, as far as its text says."""
        open_ended = _INCLUDE if self.language == "cuda" else _STAR
        # quoted includes are strings, which the text above leaves out
        return self._small and not open_ended.search("\n".join(self._lines))

    def alias(self, name: str) -> str:
        """Return the type that `using name = …` or a typedef stands for, else the name."""
        for match in _ALIAS.finditer(self.text):
            if (match[1] or match[4]) == name:
                return match[2] or match[3]
        return name

    def variables(self) -> list[str]:
        """Return the names of `__constant__`, `__device__` and `__managed__` variables."""
        if not _OF_DEVICE.search(self.text):
            return []
        names = (_variable(match[1]) for match in _DECLARATION.finditer(self.text) if match[2])
        return list(dict.fromkeys(name for name in names if name))

    def knows(self, name: str) -> bool:
        """Say whether the name is written anywhere in the file's code. Otherwise the file cannot define it."""
        return re.search(rf"\b{re.escape(name)}\b", self.text) is not None

    def number(self, name: str) -> int | None:
        """Return the integer that a Python file assigns to a name at its top level. The file has to assign it exactly
        once.
        """
        assigned = re.findall(_ASSIGNED.format(name=re.escape(name)), self.text, re.MULTILINE)
        number = _NUMBER.fullmatch(assigned[0]) if len(assigned) == 1 else None
        return int(number[1]) if number else None

    def function(self, name: str) -> FunctionHeader | None:
        """Return the last `def` of this name."""
        last = None
        for match in _DEF.finditer(self.text):
            if match[1] == name:
                last = match
        if last is None or (inner := bracketed(self.text[last.end() - 1 : last.end() + 20_000])) is None:
            return None
        return FunctionHeader(name, inner)

    def functions(self) -> list[str]:
        return list(dict.fromkeys(match[1] for match in _DEF.finditer(self.text)))


def _variable(declaration: str) -> str:
    """Return the name that `… __device__ float a[2]` declares, "" if it is no variable of a device."""
    if not (mark := _OF_DEVICE.search(declaration)):
        return ""
    declared = declaration[mark.end() :][-1_000:].rstrip()
    while declared.endswith("]"):
        declared = declared.rpartition("[")[0].rstrip()
    name = _LAST_NAME.search(declared)
    return name[0] if name and not set("()") & set(declared) else ""


def bracketed(text: str, opening: str = "([{", closing: str = ")]}") -> str | None:
    """Return what stands between the bracket that begins `text` (the first of `opening`) and the one that closes it."""
    if not text.startswith(opening[0]):
        return None
    depth = 0
    for at, character in enumerate(text):
        depth += (character in opening) - (character in closing)
        if depth == 0:
            return text[1:at]
    return None
