"""compute-sanitizer's records of one run.

Its XML (`--xml --save`) names every part and comes at the end of a run; a run that was ended leaves its log alone. The
log is read by this grammar, each line behind its prefix `=========`, records ended by an empty line:

    HEADLINE
        at FUNCTION+0xPC [in FILE:LINE]
        by thread (X,Y,Z) in block (X,Y,Z)
        DETAIL…                                     where the address lies
        Device Frame: FUNCTION+0xPC [in FILE:LINE]  callers, those of inlined code too
        Saved host backtrace up to driver entry point at …
            Host Frame: FUNCTION [in FILE:LINE] [0xPC]
                       in MODULE
    Error: Race reported between DIRECTION access at FUNCTION+0xPC [in FILE:LINE]
        and DIRECTION access at FUNCTION+0xPC [in FILE:LINE] [N hazards]

The log alone says how far from which allocation an address lies: that is taken from it also where there is XML.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from xml.etree import ElementTree as ET

from orbit_remote.common import symbols
from orbit_remote.common.lazy_dataclass import dataclass

_PREFIX = re.compile(r"^={9} ?", re.MULTILINE)
_WHERE = r"(?P<function>.*?)\+?(?P<pc>0x[0-9a-f]+)?(?: in (?P<file>.+):(?P<line>\d+))?"
_AT = re.compile(rf"^ {{4,}}at {_WHERE}$")
_BY = re.compile(r"^ {4,}by thread \((?P<thread>\d+,\d+,\d+)\) in block \((?P<block>\d+,\d+,\d+)\)")
_DEVICE = re.compile(rf"^ {{4,}}Device Frame: ?{_WHERE}$")
_HOST = re.compile(
    r"^ {4,}Host Frame: ?(?P<function>.*?)(?: in (?P<file>.+):(?P<line>\d+))?(?: \[0x[0-9a-f]+\])?$"
)
_RACE = re.compile(rf"^(?P<level>\w+): Race reported between (?P<direction>\w+) access at {_WHERE}$")
_AND = re.compile(rf"^ {{4,}}and (?P<direction>\w+) access at {_WHERE} \[(?P<count>\d+) hazards?\]$")
_NEAREST = re.compile(
    r"^ {4,}and is (?:(?P<far>[\d,]+) bytes (?P<side>before|after)|(?P<inside>inside)) the nearest allocation at 0x[0-9a-f]+ "
    r"of size (?P<size>[\d,]+) bytes$"
)
_ADDRESS = re.compile(r"^ {4,}(?:Access to|Address) (?P<address>0x[0-9a-f]+)(?: is (?P<error>.*))?$")
_API = re.compile(r"^Program hit (?P<error>\w+) \(error \d+\)")
_BARRIER = re.compile(r"^Barrier error detected\. (?P<why>.*?)\.?$")
_LEAK = re.compile(r"^Leaked (?P<size>[\d,]+) bytes at (?P<address>0x[0-9a-f]+)")
_NO_RECORD = re.compile(
    r"COMPUTE-SANITIZER|(?:LEAK|ERROR|RACECHECK) SUMMARY|Error: (?!Race)|Target application|Internal Sanitizer"
)
_KINDS = (
    ("Invalid ", "Precise"), ("Program hit ", "Api"), ("Leaked ", "Leak"), ("Uninitialized ", "Initcheck"),
    ("Barrier error", "Synccheck"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SanitizerFrame:
    """A place in code. `file` and `line` are None without line information."""

    function: str
    file: str | None = None
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Access:
    """One side of a race. `hazards` counts its collisions with the first side; the first side itself has none."""

    direction: str
    frames: tuple[SanitizerFrame, ...]
    hazards: int = 0


@dataclass(frozen=True, slots=True)
class Record:
    """One finding in the tool's own words. `kind` is that of its XML. Frames begin with the innermost.

    `nearest` says how an address lies to the nearest allocation.
    """

    kind: str
    level: str
    text: str
    frames: tuple[SanitizerFrame, ...] = ()
    host: tuple[SanitizerFrame, ...] = ()
    thread: str = ""
    block: str = ""
    address: str = ""
    nearest: str = ""
    accesses: tuple[Access, ...] = ()
    error: str = ""


def read(xml: str, log: str) -> tuple[Record, ...]:
    """Read both forms together. Either may be empty or cut off."""
    records = tuple(_from_log(log))
    try:
        # written by NVIDIA's tool into a folder of ours; an entity would need a document type, which it has none of
        root = ET.fromstring(xml) if xml.strip() and "<!DOCTYPE" not in xml else None  # noqa: S314
    except ET.ParseError:
        root = None
    if root is None:
        return records
    nearest = {
        (record.address, record.thread, record.block): record.nearest for record in records if record.nearest
    }
    return tuple(
        replace(record, nearest=nearest.get((record.address, record.thread, record.block), ""))
        for record in map(_from_xml, root.iterfind("record"))
    )


# -- XML --------------------------------------------------------------------------------------------


def _from_xml(record: ET.Element) -> Record:
    where = record.find("where")
    frames = (
        *(() if where is None else (_frame(where),)),
        *map(_frame, record.iterfind("deviceStack/frame")),
    )
    accesses = tuple(
        Access(
            frame.findtext("direction", ""), _access_frames(frame), _number(frame.findtext("count", "")) or 0
        )
        for tag in ("source", "destination")
        for frame in record.iterfind(f"what/{tag}")
    )
    return Record(
        kind=record.findtext("kind", ""),
        level=record.findtext("level", "Error"),
        text=_text(record),
        frames=frames,
        host=tuple(map(_frame, record.iterfind("hostStack/frame"))),
        thread=_triple(record.find("who/threadIdx")),
        block=_triple(record.find("who/blockIdx")),
        address=record.findtext("what/address", ""),
        accesses=accesses,
        error=record.findtext("what/error", ""),
    )


def _text(record: ET.Element) -> str:
    sentence = (
        record.findtext("what/text") or record.findtext("what/exception") or record.findtext("kind", "")
    )
    kind = record.findtext("what/type", "") if record.findtext("kind") == "Synccheck" else ""
    return f"{sentence}: {kind.lower()}" if kind else sentence


def _access_frames(access: ET.Element) -> tuple[SanitizerFrame, ...]:
    return (*map(_frame, access.iterfind("where")), *map(_frame, access.iterfind("deviceStack/frame")))


def _frame(element: ET.Element) -> SanitizerFrame:
    line = _number(element.findtext("line", ""))
    return SanitizerFrame(element.findtext("func", ""), element.findtext("path") or None, line)


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def _triple(element: ET.Element | None) -> str:
    return "" if element is None else ",".join(element.findtext(axis, "") for axis in "xyz")


# -- the log ----------------------------------------------------------------------------------------


def _from_log(log: str) -> Iterator[Record]:
    lines = [
        _PREFIX.sub("", line, count=1).rstrip() for line in log.splitlines() if line.startswith("=========")
    ]
    block: list[str] = []
    for line in [*lines, ""]:
        if line and not (block and not line.startswith(" ")):
            block.append(line)
            continue
        if block and not _NO_RECORD.match(block[0]):
            made = _record(block)
            if made.kind or made.frames:  # else it is what the tool says of itself
                yield made
        block = [line] if line else []


def _record(block: Sequence[str]) -> Record:
    head = block[0]
    if race := _RACE.match(head):
        sides = [Access(race["direction"], (_matched(race),))]
        sides += [
            Access(matched["direction"], (_matched(matched),), _number(matched["count"]) or 0)
            for matched in map(_AND.match, block[1:])
            if matched
        ]
        return Record("Analysis", race["level"], "Race condition", accesses=tuple(sides))
    kind = next((kind for begin, kind in _KINDS if head.startswith(begin)), "")
    made = Record(kind, "Error", head)
    if match := _API.match(head):
        made = replace(made, error=match["error"])
    elif match := _BARRIER.match(head):
        made = replace(made, text=f"Barrier error: {match['why'].lower()}")
    elif match := _LEAK.match(head):
        text = f"Leaked {match['size'].replace(',', '')} bytes"
        made = replace(made, text=text, address=match["address"])
    frames: list[SanitizerFrame] = []
    host: list[SanitizerFrame] = []
    for line in block[1:]:
        if match := _AT.match(line) or _DEVICE.match(line):
            frames.append(_matched(match))
        elif match := _HOST.match(line):
            host.append(_matched(match))
        elif match := _BY.match(line):
            made = replace(made, thread=match["thread"], block=match["block"])
        elif match := _ADDRESS.match(line):
            error = match["error"] or ""
            text = f"{head} is {error}" if error else head
            made = replace(made, address=match["address"], text=text, error=error)
        elif match := _NEAREST.match(line):
            far = f"{match['far']} bytes {match['side']}" if match["far"] else match["inside"]
            made = replace(made, nearest=f"{far} the nearest allocation, of {match['size']} bytes")
    # an exception of the hardware has no words of the tool's own
    return replace(made, kind=kind or ("Imprecise" if frames else ""), frames=tuple(frames), host=tuple(host))


def _matched(match: re.Match[str]) -> SanitizerFrame:
    return SanitizerFrame(_simple(match["function"]), match["file"], _number(match["line"] or ""))


def _simple(function: str) -> str:
    """Return the simple name in the XML's form: `[clone k(int)] float ns::shifted<(int)1>(const float *, int)` ->
    `shifted`.
    """
    name = re.sub(r"^\[clone .*\] ", "", function).rstrip()
    for close, bracket in (")", "("), (">", "<"):
        if name.endswith(close):
            name = name[: symbols.opening(name, bracket)]
    match = re.search(r"[\w$~]+$", name)
    return match[0] if match else name
