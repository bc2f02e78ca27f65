"""Finds the source line of each instruction of compiled code, and the calls through which it was inlined there.

It reads the code's own `.debug_line`, which is DWARF's with two opcodes of NVIDIA's: a row can name another row as
the call through which it was inlined (LLVM's NVPTX back end writes the same as `.loc … inlined_at`). Reports of
Nsight Compute only give the innermost line. nvdisasm, which prints the rest, is not on every machine with a GPU.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Collection, Sequence
from dataclasses import field

from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.toolchain.elf import Cubin
from orbit_remote.toolchain.ptx import with_letters

Frame = tuple[str, int]
"""File and line."""

_INLINED_CALL = 0x90  # elfutils calls it DW_LNE_NVIDIA_inlined_call
_END_SEQUENCE, _SET_ADDRESS = 1, 2
_DEPTH = 64
"""Frames of one instruction beyond this are a damaged table."""


@dataclass(frozen=True, slots=True)
class _Row:
    address: int
    file: int
    line: int
    context: int


@dataclass(frozen=True, slots=True)
class FunctionLines:
    """The rows of one function in order of address. Addresses count from its first instruction."""

    frames: tuple[tuple[int, tuple[Frame, ...]], ...] = ()

    def at(self, offset: int) -> tuple[Frame, ...]:
        """Return the lines from that of the instruction itself to that of the outermost function. Return () if they
        are not known.
        """
        after = bisect_right(self.frames, offset, key=lambda row: row[0])
        return self.frames[after - 1][1] if after else ()


def read(content: bytes, wanted: Collection[str] | None = None) -> dict[str, FunctionLines]:
    """Return the lines by mangled name, of all functions or of those that are `wanted`, because libraries have
    thousands. Raises ValueError for a file that is no compiled code, or a table of another kind.
    """
    if wanted is not None and not set(wanted).intersection(Cubin(content).functions()):
        return {}
    by_symbol: dict[str, FunctionLines] = {}
    for unit in _units(content, ".debug_line"):
        for name, span in unit.spans.items():
            if wanted is None or name in wanted:
                by_symbol[name] = FunctionLines(unit.frames(*span))
    return by_symbol


def rows(content: bytes, section: str) -> dict[str, tuple[tuple[int, int], ...]]:
    """Return (address, line) by function, from another table of the same form, which names no files."""
    by_file: dict[str, tuple[tuple[int, int], ...]] = {}
    for unit in _units(content, section):
        for name, (begin, end) in unit.spans.items():
            by_file[name] = tuple((row.address, row.line) for row in unit.rows[begin:end])
    return by_file


def _units(content: bytes, section: str) -> list[_Unit]:
    code = Cubin(content)
    table = code.section(section)
    symbols = code.relocations(section)
    units: list[_Unit] = []
    at = 0
    try:
        while at < len(table):
            (length,) = struct.unpack_from("<I", table, at)
            units.append(_Unit(table, at, at + 4 + length, symbols))
            at += 4 + length
    except (struct.error, IndexError, ZeroDivisionError) as error:
        raise ValueError(f"the line table is not understood: {error}") from None
    return units


@dataclass(slots=True)
class _State:
    address: int = 0
    file: int = 1
    line: int = 1
    context: int = 0


@dataclass(slots=True)
class _Unit:
    """One line number program: DWARF 4, section 6.2, in its versions 2 to 4."""

    table: bytes
    begin: int
    end: int
    symbols: dict[int, str]
    at: int = 0
    files: list[str] = field(default_factory=list[str])
    rows: list[_Row] = field(default_factory=list["_Row"])
    """Of all functions."""
    spans: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    """Of each function, by mangled name: from which row to before which."""

    def __post_init__(self) -> None:
        version, header = struct.unpack_from("<HI", self.table, self.begin + 4)
        if version not in (2, 3, 4):
            raise ValueError(f"a line table of version {version} is not understood")
        program = self.begin + 10 + header
        self.at = self.begin + 10
        shortest = self._byte()
        if version == 4:
            self._byte()  # instructions a bundle; NVIDIA's have one
        self._byte()
        base, reach, first = self._signed_byte(), self._byte(), self._byte()
        operands = [self._byte() for _ in range(first - 1)]
        self._read_files()
        self.at = program
        self._run(shortest, base, reach, first, operands)

    def _run(self, shortest: int, base: int, reach: int, first: int, operands: Sequence[int]) -> None:
        rows = self.rows
        begun, name, state = 0, "", _State()
        while self.at < self.end:
            opcode = self._byte()
            if opcode >= first:
                step = opcode - first
                state.address += step // reach * shortest
                state.line += base + step % reach
                rows.append(_Row(state.address, state.file, state.line, state.context))
            elif opcode == 0:
                length = self._uleb()
                over = self.at + length
                extended = self._byte()
                if extended == _END_SEQUENCE:
                    rows.append(_Row(state.address, state.file, state.line, state.context))
                    if name:
                        self.spans[name] = begun, len(rows) - 1
                    begun, name, state = len(rows), "", _State()
                elif extended == _SET_ADDRESS:
                    name = self.symbols.get(self.at, "")
                elif extended == _INLINED_CALL:
                    state.context = self._uleb()
                self.at = over
            else:
                self._standard(opcode, state, shortest, reach, first, operands)

    def _standard(
        self, opcode: int, state: _State, shortest: int, reach: int, first: int, operands: Sequence[int]
    ) -> None:
        match opcode:
            case 1:
                self.rows.append(_Row(state.address, state.file, state.line, state.context))
            case 2:
                state.address += self._uleb() * shortest
            case 3:
                state.line += self._uleb(signed=True)
            case 4:
                state.file = self._uleb()
            case 8:
                state.address += (255 - first) // reach * shortest
            case 9:
                (step,) = struct.unpack_from("<H", self.table, self.at)
                self.at += 2
                state.address += step
            case _:
                for _ in range(operands[opcode - 1]):
                    self._uleb()

    def frames(self, begin: int, end: int) -> tuple[tuple[int, tuple[Frame, ...]], ...]:
        """Return the frames of a function's rows. Contexts count a function's own rows, from 1."""
        own = self.rows[begin:end]
        return tuple((row.address, self._chain(own, row)) for row in own)

    def _chain(self, own: list[_Row], row: _Row) -> tuple[Frame, ...]:
        frames = [self._frame(row)]
        while 0 < row.context <= len(own) and len(frames) < _DEPTH:
            row = own[row.context - 1]
            frames.append(self._frame(row))
        return tuple(frames)

    def _frame(self, row: _Row) -> Frame:
        name = self.files[row.file - 1] if 0 < row.file <= len(self.files) else ""
        return name, row.line

    def _read_files(self) -> None:
        folders = [""]
        while text := self._text():
            folders.append(text)
        while text := self._text():
            folder = self._uleb()
            self._uleb()  # the time of its last change
            self._uleb()  # its size
            place = folders[folder] if folder < len(folders) else ""
            self.files.append(f"{place}/{text}" if place and not text.startswith("/") else text)

    def _text(self) -> str:
        end = self.table.index(b"\0", self.at)
        text = self.table[self.at : end].decode("utf-8", "surrogateescape")
        self.at = end + 1
        return with_letters(text)

    def _byte(self) -> int:
        self.at += 1
        return self.table[self.at - 1]

    def _signed_byte(self) -> int:
        byte = self._byte()
        return byte - 256 if byte > 127 else byte

    def _uleb(self, *, signed: bool = False) -> int:
        value, shift = 0, 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value - (1 << shift) if signed and byte & 64 else value
