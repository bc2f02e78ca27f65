"""A launch that the recorder took out of a program (cupti/launch_capture.h): the request, and the recorder's files.
They are read as data that may be damaged or hostile, because the program could write there too.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Final, cast

from orbit_remote.common import codec, regular_files
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.limits import CAPTURED
from orbit_remote.common.requests import Capture

VARIABLE: Final = "ORBIT_CAPTURE"
"""The environment variable that names the folder of a launch which is to be taken."""
_RECORD: Final = "launch.json"
_LONGEST_RECORD: Final = 1 << 20
_GLOBAL: Final = re.compile(r"\b__(?:constant__|device__)\b([^;(){}=]{1,300})[;=]")
_NAMED: Final = re.compile(r"(\w+)\s*(?:\[[^\]]*\]\s*)*$")
_MOST_VARIABLES: Final = 64
_SYMBOL: Final = re.compile(r"[\w.$]{1,4096}")
IN_GRAPH: Final = (
    "it is launched inside a CUDA graph, which is recorded then and runs later",
    "capture a program that launches it without a graph",
)
_REASONS: Final = {
    "graph": IN_GRAPH,
    "large": (f"its arguments lie in more than {CAPTURED.size} of memory", "name a smaller launch with --launch"),
    "memory": ("the GPU has no memory left for a copy of its arguments", "name a smaller launch with --launch"),
    "driver": ("this NVIDIA driver does not tell what its parameters are: that takes the driver of CUDA 12.4", "update the driver"),
    "peer": ("one of its arguments is memory of another GPU", "capture a program that uses one GPU"),
    "failed": ("the driver rejected this launch", "run the program by itself to see why"),
    "fault": ("the program failed on the GPU after this launch", "`orbit-lsp check` finds accesses out of bounds"),
    "ended": ("the program ended before the GPU had finished this launch", "have it wait: cudaDeviceSynchronize()"),
}  # fmt: skip
_UNREADABLE: Final = ("its arguments could not be copied", "")
_DAMAGED: Final = "what was recorded of it is damaged"


class NotTakenError(Exception):
    """No launch was taken. The text is a sentence that follows the kernel's name. `remedy` is what to do."""

    def __init__(self, why: str, remedy: str = "") -> None:
        super().__init__(why)
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class TakenRange:
    """Memory from an address on, with `size` bytes, in an allocation that begins at `base`. `kind` is `device`,
    `managed`, `host` or `variable`. `changed` says that the launch, or another at the same time, wrote there.
    """

    base: int
    begin: int
    size: int
    kind: str
    changed: bool

    @property
    def end(self) -> int:
        return self.begin + self.size


@dataclass(frozen=True, slots=True)
class TakenLaunch:
    """A launch. `parameters` are (offset, bytes) in `arguments`. `pointers` are (parameter, offset in it, range).
    `variables` are the ranges of the program's variables by mangled name.
    """

    folder: str
    symbol: str
    number: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    cooperative: bool
    cluster: tuple[int, int, int] | None
    parameters: tuple[tuple[int, int], ...]
    arguments: bytes
    pointers: tuple[tuple[int, int, int], ...]
    ranges: tuple[TakenRange, ...]
    variables: dict[str, int]

    def argument(self, at: int) -> bytes:
        """Return the bytes of an argument."""
        offset, size = self.parameters[at]
        return self.arguments[offset : offset + size]

    def memory(self, at: int, *, after: bool = False) -> bytes:
        """Return the bytes of a range before the launch or after it. Raises NotTakenError if the file does not have
        its size.
        """
        known = self.ranges[at]
        name = f"{'after' if after and known.changed else 'before'}-{at}"
        try:
            content = _read(self.folder, name, known.size + 1)
        except OSError:
            content = b""
        if len(content) != known.size:
            raise NotTakenError(_DAMAGED)
        return content


def ask(folder: Path, kernel: str, text: str, wanted: Capture) -> None:
    """Write into a folder which launch is to be taken of a kernel, whose file has this text. Raises OSError."""
    lines = [f"name {kernel}", f"most {CAPTURED.most}"]
    if _SYMBOL.fullmatch(wanted.symbol):
        lines.append(f"symbol {wanted.symbol}")
    lines += [f"launch {wanted.launch}"] if wanted.launch else []
    for word, extents in (("grid", wanted.grid), ("block", wanted.block)):
        if extents:
            lines.append(f"{word} {' '.join(str(each) for each in (*extents, 1, 1)[:3])}")
    lines += [f"variable {each}" for name in declared(text) for each in mangled(name)]
    (folder / "wanted").write_text("\n".join(lines) + "\n", encoding="utf-8")


def declared(text: str) -> dict[str, str]:
    """Return the `__constant__` and `__device__` variables of a text, each with what stands in front of its name.
    Variables of a named namespace have other mangled names than `mangled` knows.
    """
    found: dict[str, str] = {}
    for declaration in _GLOBAL.findall(text):
        if (match := _NAMED.search(declaration.rstrip())) and len(found) < _MOST_VARIABLES:
            found[match[1]] = declaration[: match.start()]
    return found


def mangled(name: str) -> tuple[str, ...]:
    """Return the names that a variable may have in compiled code: outside of namespaces, `static`, in a namespace
    without a name.
    """
    return name, f"_ZL{len(name)}{name}", f"_ZN12_GLOBAL__N_1{len(name)}{name}E"


def _read(folder: str, name: str, most: int) -> bytes:
    """Raises OSError, for a link too."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with regular_files.opened(name, within=descriptor) as file:
            return regular_files.upto(file, most)
    finally:
        os.close(descriptor)


def read(folder: Path) -> TakenLaunch | None:
    """Return what the recorder wrote into a folder. Return None if the launch was not made. Raises NotTakenError."""
    try:
        content = _read(str(folder), _RECORD, _LONGEST_RECORD + 1)
    except OSError:
        if not (folder / "claimed").exists():
            return None
        raise NotTakenError(*_REASONS["ended"]) from None
    try:
        record: Any = codec.read_json(content) if len(content) <= _LONGEST_RECORD else None
    except ValueError:
        record = None
    if not isinstance(record, dict):
        raise NotTakenError(_DAMAGED)
    known = cast("dict[str, Any]", record)
    if why := known.get("why"):
        raise NotTakenError(*_REASONS.get(str(why), _UNREADABLE))
    try:
        return _taken(str(folder), known)
    except (KeyError, TypeError, ValueError):
        raise NotTakenError(_DAMAGED) from None


def _taken(folder: str, record: dict[str, Any]) -> TakenLaunch:
    """Raises KeyError, TypeError and ValueError."""
    arguments = bytes.fromhex(record["bytes"])
    parameters = tuple(_whole(each, 2) for each in record["parameters"])
    ranges = tuple(_range(each) for each in record["ranges"])
    pointers = tuple(_whole(each, 3) for each in record["pointers"])
    named = {str(name): int(at) for name, at in record["variables"].items()}
    if any(offset + size > len(arguments) for offset, size in parameters):
        raise ValueError("parameters")
    if any(
        at >= len(parameters) or to >= len(ranges) or offset + 8 > parameters[at][1]
        for at, offset, to in pointers
    ):
        raise ValueError("pointers")
    if any(not 0 <= at < len(ranges) for at in named.values()):
        raise ValueError("variables")
    if sum(each.size for each in ranges) > CAPTURED.most or not _SYMBOL.fullmatch(record["symbol"]):
        raise ValueError("sizes")
    return TakenLaunch(
        folder, record["symbol"], _whole([record["number"]], 1)[0], _three(record["grid"]), _three(record["block"]),
        _whole([record["shared"]], 1)[0], record["cooperative"] is True, _three(record["cluster"]) if "cluster" in record else None,
        cast("tuple[tuple[int, int], ...]", parameters), arguments, cast("tuple[tuple[int, int, int], ...]", pointers), ranges, named,
    )  # fmt: skip


def _range(entry: dict[str, Any]) -> TakenRange:
    base, begin, size = _whole([entry["base"], entry["begin"], entry["bytes"]], 3)
    if not (base <= begin and 0 < size <= CAPTURED.most):
        raise ValueError("range")
    return TakenRange(base, begin, size, str(entry["kind"]), entry["changed"] is True)


def _three(extents: Any) -> tuple[int, int, int]:
    x, y, z = _whole(extents, 3)
    if min(x, y, z) < 1:
        raise ValueError("extents")
    return x, y, z


def _whole(numbers: Any, count: int) -> tuple[int, ...]:
    """Return this many integers that are not negative. Raises ValueError and TypeError."""
    if len(numbers) != count or any(type(each) is not int or not 0 <= each < 1 << 64 for each in numbers):
        raise ValueError("numbers")
    return tuple(numbers)
