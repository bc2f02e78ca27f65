"""Listings of compiled code (`sass_listing` writes them): reads the instructions with their source lines, and
compares two.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from orbit_remote.common.lazy_dataclass import dataclass

_LINE = re.compile(r"// (?P<file>.*?):(?P<line>\d+)(?P<inner>(?:, in [^,]+:\d+)*)")
_INSTRUCTION = re.compile(
    r" +/\*(?P<at>[0-9a-f]{4,})\*/  (?:(?P<control>B[\d-]{6}:R[\d-]:W[\d-]:[Y-]:S\d\d)  )?(?P<text>.*)"
)
_PREDICATE = re.compile(r"@!?U?P\w+ +")
_JUMP = re.compile(r"\b(BRA|BSSY|CALL|JMP|WARPSYNC|BRX)\b(.*?)0x[0-9a-f]+")


@dataclass(frozen=True, slots=True)
class ListedInstruction:
    """An instruction of a listing. `offset` is in bytes. `line`, from 1, is its source line in `file`; None if that
    is not known. `inner` names where it was inlined from (`, in half.h:12`).
    """

    offset: int
    control: str
    text: str
    file: str = ""
    line: int | None = None
    inner: str = ""

    @property
    def mnemonic(self) -> str:
        """Return the mnemonic, such as `LDG.E` for `@P0 LDG.E R0, [R2]`."""
        return _PREDICATE.sub("", self.text).partition(" ")[0]


def read(listing: str) -> tuple[ListedInstruction, ...]:
    """Read the instructions of a listing. Other text has none."""
    file, line, inner = "", None, ""
    instructions: list[ListedInstruction] = []
    for text in listing.splitlines():
        if code := _INSTRUCTION.fullmatch(text):
            instructions.append(
                ListedInstruction(int(code["at"], 16), code["control"] or "", code["text"], file, line, inner)
            )
        elif place := _LINE.fullmatch(text):
            file, line, inner = place["file"], int(place["line"]), place["inner"]
    return tuple(instructions)


@dataclass(frozen=True, slots=True)
class ListingChange:
    """An instruction with its change. `mark` is `+` if only the newer listing has it, `-` if only the older has it,
    else a space.
    """

    mark: str
    instruction: ListedInstruction


def compare(before: Sequence[ListedInstruction], now: Sequence[ListedInstruction]) -> list[ListingChange]:
    """Compare two listings, in the order of the newer one. The target of a jump does not count, since every offset
    behind a change moves.
    """
    old, new = (
        [_counted(instruction) for instruction in before],
        [_counted(instruction) for instruction in now],
    )
    first = next(
        (at for at, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new))
    )
    changes = [ListingChange(" ", instruction) for instruction in now[:first]]
    matcher = difflib.SequenceMatcher(None, old[first:], new[first:])
    for kind, a, b, c, d in matcher.get_opcodes():
        if kind == "equal":
            changes += [ListingChange(" ", instruction) for instruction in now[first + c : first + d]]
        else:
            changes += [ListingChange("-", instruction) for instruction in before[first + a : first + b]]
            changes += [ListingChange("+", instruction) for instruction in now[first + c : first + d]]
    return changes


def _counted(instruction: ListedInstruction) -> str:
    return _JUMP.sub(r"\1\2", instruction.text)


def counts(
    before: Sequence[ListedInstruction], now: Sequence[ListedInstruction]
) -> list[tuple[str, int, int]]:
    """Return (mnemonic, how many before, how many now) for the mnemonics whose number differs, the largest difference
    first.
    """
    old, new = (
        Counter(instruction.mnemonic for instruction in before),
        Counter(instruction.mnemonic for instruction in now),
    )
    changed = [(name, old[name], new[name]) for name in {*old, *new} if old[name] != new[name]]
    return sorted(changed, key=lambda row: (-abs(row[1] - row[2]), row[0]))


def text(
    changes: Sequence[ListingChange],
    sources: Mapping[str, Sequence[str]],
    *,
    marked: bool,
    measured: Mapping[tuple[str, int], str] | None = None,
    names: Mapping[str, str] | None = None,
) -> str:
    """Write a listing for people. Above instructions stands their source line, with its text if `sources` (lines by
    path) has it, and with what was `measured` of it, by file and line. `marked` puts the mark of each change at the
    margin. `names` has what to show for a path.
    """
    lines: list[str] = []
    shown: tuple[str, int | None, str] = ("", None, "")
    for change in changes:
        instruction = change.instruction
        place = instruction.file, instruction.line, instruction.inner
        if place != shown and instruction.line is not None and change.mark != "-":
            shown = place
            own = sources.get(instruction.file, ())
            quoted = own[instruction.line - 1].strip() if 0 < instruction.line <= len(own) else ""
            stalls = (measured or {}).get((instruction.file, instruction.line), "")
            file = (names or {}).get(instruction.file, instruction.file)
            head = f"// {file}:{instruction.line}{instruction.inner}"
            lines.append("    ".join(part for part in (head, quoted, stalls) if part))
        control = f"{instruction.control}  " if instruction.control else ""
        margin = f"{change.mark}       " if marked else "        "
        lines.append(f"{margin}/*{instruction.offset:04x}*/  {control}{instruction.text}".rstrip())
    return "\n".join(lines)


def near(changes: Sequence[ListingChange], context: int = 3) -> list[ListingChange]:
    """Return the instructions that differ, with `context` instructions around each."""
    kept: set[int] = set()
    for at, change in enumerate(changes):
        if change.mark != " ":
            kept.update(range(at - context, at + context + 1))
    return [change for at, change in enumerate(changes) if at in kept]


def of_line(instructions: Sequence[ListedInstruction], path: str, line: int) -> list[ListedInstruction]:
    """Return the instructions that were compiled from line `line`, from 1, of the file at `path`, inlined ones
    included.
    """
    return [
        instruction
        for instruction in instructions
        if instruction.line == line and Path(instruction.file) == Path(path)
    ]


def line_of(shown: str, path: str, line: int) -> int | None:
    """Return the first line, from 0, of a listing for people that shows what line `line`, from 1, of the file at
    `path` was compiled to.
    """
    head = re.compile(rf"// {re.escape(path)}:{line}\b(?!:)")
    return next((at for at, text in enumerate(shown.splitlines()) if head.match(text)), None)
