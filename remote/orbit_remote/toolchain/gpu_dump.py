"""Reads a GPU core dump, which the CUDA driver writes when a kernel fails: where each warp stands, and which one
failed.

NVIDIA describes the layout in `cudacoredump.h` (in the toolkit's `extras/Debugger/include`, 13.0): an ELF file whose
sections are tables, each below an entry of another. cuda-gdb reads the same file. This reader exists because pip
installs no cuda-gdb, and that of CUDA 13.0 ends if the warp that failed has left its SM.
"""

from __future__ import annotations

import mmap
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from pathlib import Path

from orbit_remote.common import limits, regular_files
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.toolchain import dwarf_lines
from orbit_remote.toolchain.dwarf_lines import Frame, FunctionLines
from orbit_remote.toolchain.elf import HEADER, SECTION, Cubin, Located

Three = tuple[int, int, int]

_CORE, _EM_CUDA = 4, 190
_USER = 0x80000000
_IMAGE, _CALLS, _DEVICES, _SMS, _GRIDS, _BLOCKS, _WARPS, _LANES = (
    _USER + number for number in (7, 8, 9, 11, 12, 13, 14, 15)
)
"""Types of sections (`CudbgSectionHeaderTypes`); an entry may be longer than the part of it that is read here."""
_DEVICE = struct.Struct("<QQQIIII")
_SM = struct.Struct("<IIIIQ")
_GRID = struct.Struct("<QQQQQQQIIIIIIIIII")
_BLOCK = struct.Struct("<QIII")
_WARP = struct.Struct("<QIIIII")
_LANE = struct.Struct("<QQIIIIIII")
_CALL = struct.Struct("<QQ")

_INSTRUCTION = 16
"""Bytes of an instruction since Volta."""
_EXCEPTIONS = {
    1: "CUDA_ERROR_ILLEGAL_ADDRESS", 2: "CUDA_ERROR_HARDWARE_STACK_ERROR", 3: "CUDA_ERROR_HARDWARE_STACK_ERROR",
    4: "CUDA_ERROR_ILLEGAL_INSTRUCTION", 5: "CUDA_ERROR_ILLEGAL_ADDRESS", 6: "CUDA_ERROR_MISALIGNED_ADDRESS",
    7: "CUDA_ERROR_INVALID_ADDRESS_SPACE", 8: "CUDA_ERROR_INVALID_PC", 9: "CUDA_ERROR_HARDWARE_STACK_ERROR",
    10: "CUDA_ERROR_ILLEGAL_ADDRESS", 11: "CUDA_ERROR_MISALIGNED_ADDRESS", 12: "CUDA_ERROR_ASSERT",
    14: "CUDA_ERROR_ILLEGAL_ADDRESS", 17: "CUDA_ERROR_ILLEGAL_ADDRESS", 18: "CUDA_ERROR_ILLEGAL_ADDRESS",
    19: "CUDA_ERROR_HARDWARE_STACK_ERROR",
}  # fmt: skip
"""`CUDBGException_t` (cudadebugger.h), by the error that the driver then answers."""
EXCEPTION_WORDS = {
    1: "illegal address", 2: "stack overflow", 3: "stack overflow", 4: "illegal instruction", 5: "address out of range",
    6: "misaligned address", 7: "address of the wrong memory space", 8: "jump to an address without code",
    9: "stack overflow", 10: "illegal address", 11: "misaligned address", 12: "failed assertion", 13: "failed system call",
    14: "illegal address", 15: "system-wide atomic on memory that cannot migrate", 16: "invalid system-wide atomic",
    17: "address outside the shared memory of a block of the cluster", 18: "access to a block of the cluster that has ended",
    19: "stack corruption", 20: "invalid access to tensor memory", 21: "tensor memory that was not freed",
    22: "a call that needs a newer driver",
}  # fmt: skip
TRAP = -1
"""In the place of an exception: the warp stands behind a trap instruction, of which the driver writes no exception."""

_OPCODES = {
    0x180: "load", 0x181: "load", 0x183: "load", 0x184: "load", 0x03B: "load", 0x185: "store", 0x186: "store", 0x187: "store",
    0x188: "store", 0x18A: "atomic", 0x18B: "atomic", 0x18C: "atomic", 0x18D: "atomic", 0x18E: "atomic", 0x1A8: "atomic",
    0x1A9: "atomic", 0x1AE: "copy", 0x11D: "barrier", 0x148: "warp", 0x141: "warp", 0x15D: "sleep", 0x15C: "trap",
}  # fmt: skip
"""What an instruction does, by the low 9 bits of its first word, as nvdisasm shows them for sm_80 to sm_120: LD, LDG, LDL, LDS,
LDSM, ST, STG, STL, STS, ATOM, ATOMS, RED, ATOMG, LDGSTS, BAR, WARPSYNC, BSYNC, NANOSLEEP, BPT.
"""
_LONG_OPCODES = {0x5A7: "mbarrier", 0xDC7: "cluster"}
"""By the low 12 bits, where the operands decide: SYNCS.PHASECHK, UCGABAR_WAIT."""


@dataclass(frozen=True, slots=True)
class Site:
    """An instruction of a kernel. `frames` are its lines from the innermost to the kernel's, `offset` counts bytes
    from the kernel's first instruction. `does` is what it does, "" if that says nothing.
    """

    kernel: str = ""
    function: str = ""
    offset: int = 0
    frames: tuple[Frame, ...] = ()
    does: str = ""


@dataclass(slots=True)
class Standing:
    """Warps of a grid that stand at the same instruction. `first` is the block and thread of their first lane.
    `lanes` counts threads. `partly` counts warps whose other lanes stand elsewhere. `calls` are the lines of the
    calls that led there, the innermost first.
    """

    grid: int
    site: Site
    exception: int
    first: tuple[Three, Three]
    last: tuple[Three, Three]
    calls: tuple[Site, ...] = ()
    warps: int = 0
    partly: int = 0
    lanes: int = 0
    blocks: set[Three] = field(default_factory=set[Three])


@dataclass(frozen=True, slots=True)
class Grid:
    """A kernel that was running. `resident` blocks of `warps` warps were on the GPU. At least `ended` blocks had
    ended; `waiting` blocks had not begun.
    """

    kernel: str
    grid: Three
    block: Three
    resident: int = 0
    warps: int = 0
    ended: int = 0
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class CoreDump:
    """A dump. `faults` are the warps that failed, `standing` are all others. `grids` are by their number."""

    grids: dict[int, Grid]
    faults: tuple[Standing, ...]
    standing: tuple[Standing, ...]

    def error(self) -> str:
        """Return the CUDA error of the first fault, by the driver's name."""
        return _EXCEPTIONS.get(self.faults[0].exception, "CUDA_ERROR_LAUNCH_FAILED") if self.faults else ""


def read(path: Path) -> CoreDump:
    """Raises OSError, and ValueError for what is no whole GPU core dump."""
    with (
        regular_files.opened(path) as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        if len(content) > limits.GPU_DUMP.most:
            raise ValueError(limits.GPU_DUMP.exceeded)
        try:
            return _CoreDumpReader(content).dump()
        except (struct.error, IndexError, KeyError) as error:
            raise ValueError(f"the GPU core dump is cut or damaged: {error}") from None


@dataclass(frozen=True, slots=True)
class _Table:
    number: int
    offset: int
    size: int
    link: int
    info: int
    entry: int


class _Code:
    """The loaded code of all modules, by address."""

    def __init__(self, images: Sequence[bytes]) -> None:
        self._placed = [(located, image) for image in images for located in _located(image)]
        self._lines: dict[int, dict[str, FunctionLines]] = {}
        self._sites: dict[int, Site] = {}

    def site(self, address: int) -> Site:
        if address not in self._sites:
            self._sites[address] = self._site(address)
        return self._sites[address]

    def _site(self, address: int) -> Site:
        placed = next((p for p in self._placed if p[0].address <= address < p[0].address + p[0].size), None)
        if placed is None:
            return Site()
        located, image = placed
        offset = address - located.address
        function = next((name for at, name in reversed(located.functions) if at <= offset), located.kernel)
        return Site(
            located.kernel,
            function,
            offset,
            self._frames(located, image, offset),
            _does(image, located, offset),
        )

    def _frames(self, located: Located, image: bytes, offset: int) -> tuple[Frame, ...]:
        if id(image) not in self._lines:
            try:
                self._lines[id(image)] = dwarf_lines.read(image, {other.kernel for other, _ in self._placed})
            except ValueError:
                self._lines[id(image)] = {}
        lines = self._lines[id(image)].get(located.kernel, FunctionLines())
        # some instructions of a barrier have line 0: the one before them is what the author wrote
        for at in range(offset, max(offset - 8 * _INSTRUCTION, -1), -_INSTRUCTION):
            if frames := tuple(frame for frame in lines.at(at) if frame[1]):
                return frames
        return ()


def _located(image: bytes) -> list[Located]:
    try:
        return Cubin(image).located()
    except ValueError:  # a module of the driver's own may be of another kind
        return []


def _does(image: bytes, located: Located, offset: int) -> str:
    at = located.offset + offset
    (word,) = struct.unpack_from("<H", image, at) if at + 2 <= len(image) else (0,)
    return _LONG_OPCODES.get(word & 0xFFF) or _OPCODES.get(word & 0x1FF, "")


class _CoreDumpReader:
    def __init__(self, content: mmap.mmap) -> None:
        self._content = content
        header = HEADER.unpack_from(content)
        if header[0][:4] != b"\x7fELF" or header[1:3] != (_CORE, _EM_CUDA):
            raise ValueError("this is no GPU core dump")
        self._tables: dict[int, list[_Table]] = {}
        begin, size, count = int(header[6]), int(header[11]), int(header[12])
        if size != SECTION.size:
            raise ValueError("this is no GPU core dump: its section headers are of another size")
        if (
            not count and begin
        ):  # more sections than 16 bits count: the first header has their number (System V ABI)
            count = int(SECTION.unpack_from(content, begin)[5])
        wanted = {_IMAGE, _CALLS, _DEVICES, _SMS, _GRIDS, _BLOCKS, _WARPS, _LANES}
        if begin + size * count > len(content):
            raise ValueError("the GPU core dump is cut")
        headers = memoryview(content)[begin : begin + size * count]
        try:
            for number, raw in enumerate(SECTION.iter_unpack(headers)):
                if raw[1] in wanted:
                    table = _Table(number, raw[4], raw[5], raw[6], raw[7], raw[9])
                    self._tables.setdefault(raw[1], []).append(table)
        finally:
            headers.release()
        self._code = _Code(
            [bytes(content[t.offset : t.offset + t.size]) for t in self._tables.get(_IMAGE, [])]
        )
        self._calls = {(t.link, t.info): t for t in self._tables.get(_CALLS, [])}
        devices = [entry for t in self._tables.get(_DEVICES, []) for entry in self._entries(t, _DEVICE)]
        self._sms = {number: entry[6] for number, entry in enumerate(devices)}

    def _entries(self, table: _Table, layout: struct.Struct) -> Iterator[tuple[int, ...]]:
        step = table.entry or layout.size
        if step < layout.size:
            raise ValueError("the GPU core dump is of a driver that writes shorter tables than are known")
        for at in range(table.offset, table.offset + table.size - step + 1, step):
            yield layout.unpack_from(self._content, at)

    def dump(self) -> CoreDump:
        grids, ids = self._grids()
        blocks: dict[tuple[int, int], tuple[int, Three]] = {}
        resident: dict[int, set[Three]] = {number: set() for number in grids}
        busy: Counter[int] = Counter()
        sms = {t.number: t.info for t in self._tables.get(_SMS, [])}
        for table in self._tables.get(_BLOCKS, []):
            device = sms.get(table.link, 0)
            busy[device] += table.size > 0
            for at, (grid, x, y, z) in enumerate(self._entries(table, _BLOCK)):
                number = ids[device, grid]
                blocks[table.number, at] = number, (x, y, z)
                resident[number].add((x, y, z))
        warps = {
            (table.number, at): (warp, *blocks[table.link, table.info])
            for table in self._tables.get(_WARPS, [])
            for at, warp in enumerate(self._entries(table, _WARP))
        }
        found: dict[tuple[int, int, int], Standing] = {}
        for table in self._tables.get(_LANES, []):
            self._warp(table, *warps[table.link, table.info], found)
        standing = sorted(found.values(), key=lambda each: -each.lanes)
        faults = [each for each in standing if each.exception]
        if not faults and (lost := self._left(grids)):
            faults = [lost]
        of_grid = Counter(number for _, number, _ in warps.values())
        device_of = {number: device for (device, _), number in ids.items()}
        counted = {
            number: _counted(grid, resident[number], of_grid[number], full=busy[at] >= self._sms.get(at, 0))
            for number, grid in grids.items()
            for at in (device_of[number],)
        }
        others = tuple(each for each in standing if not each.exception)
        return CoreDump(counted, tuple(faults), others)

    def _grids(self) -> tuple[dict[int, Grid], dict[tuple[int, int], int]]:
        grids: dict[int, Grid] = {}
        ids: dict[tuple[int, int], int] = {}
        for table in self._tables.get(_GRIDS, []):
            for raw in self._entries(table, _GRID):
                number = len(grids)
                ids[table.info, raw[0]] = number
                x, y, z, bx, by, bz = raw[11:17]
                grids[number] = Grid(self._code.site(raw[3]).kernel, (x, y, z), (bx, by, bz))
        return grids, ids

    def _warp(
        self,
        table: _Table,
        warp: tuple[int, ...],
        grid: int,
        block: Three,
        found: dict[tuple[int, int, int], Standing],
    ) -> None:
        valid = warp[2]
        here: dict[tuple[int, int], list[tuple[int, Three]]] = {}
        for pc, _, lane, x, y, z, exception, depth, _ in self._entries(table, _LANE):
            if valid >> lane & 1:
                place = self._failed(warp, lane, pc, exception)
                here.setdefault(place, []).append((lane if depth else -1, (x, y, z)))
        for (pc, exception), lanes in here.items():
            threads = [thread for _, thread in lanes]
            entry = found.get((grid, pc, exception))
            if entry is None:
                calls = self._called(table.number, lanes[0][0])
                entry = Standing(
                    grid,
                    self._waits(pc, exception),
                    exception,
                    (block, threads[0]),
                    (block, threads[-1]),
                    calls,
                )
                found[grid, pc, exception] = entry
            entry.first = min(entry.first, (block, threads[0]), key=_order)
            entry.last = max(entry.last, (block, threads[-1]), key=_order)
            entry.warps += 1
            entry.partly += len(here) > 1
            entry.lanes += len(lanes)
            entry.blocks.add(block)

    def _failed(self, warp: tuple[int, ...], lane: int, pc: int, exception: int) -> tuple[int, int]:
        """Return where a lane failed, and how. A lane that failed stands behind the instruction."""
        error_pc, _, _, active, broken, has_error = warp
        if exception:
            return (error_pc if has_error else pc), exception
        before = pc - _INSTRUCTION
        trapped = broken and active >> lane & 1 and self._code.site(before).does == "trap"
        return (before, TRAP) if trapped else (pc, 0)

    def _waits(self, pc: int, exception: int) -> Site:
        """Return the instruction of a waiting warp: at a barrier it stands at the instruction behind it."""
        before = self._code.site(pc - _INSTRUCTION)
        return before if not exception and before.does == "barrier" else self._code.site(pc)

    def _called(self, lanes: int, lane: int) -> tuple[Site, ...]:
        table = self._calls.get((lanes, lane))
        if table is None:
            return ()
        # the return address is behind the call
        return tuple(
            site
            for _, address in self._entries(table, _CALL)
            if (site := self._code.site(address - _INSTRUCTION)).kernel
        )

    def _left(self, grids: dict[int, Grid]) -> Standing | None:
        """Return a fault whose warps have left their SM. The SM still has the exception and its address."""
        for table in self._tables.get(_SMS, []):
            if table.entry < _SM.size:
                continue
            for _, _, exception, valid, pc in self._entries(table, _SM):
                if exception and valid:
                    site = self._code.site(pc)
                    grid = next((n for n, each in grids.items() if each.kernel == site.kernel), -1)
                    nowhere = (0, 0, 0), (0, 0, 0)
                    return Standing(grid, site, exception, nowhere, nowhere)
        return None


def _order(place: tuple[Three, Three]) -> tuple[Three, Three]:
    """Return an order as the GPU counts: x first."""
    block, thread = place
    (x, y, z), (i, j, k) = block, thread
    return (z, y, x), (k, j, i)


def _counted(grid: Grid, resident: set[Three], warps: int, *, full: bool) -> Grid:
    """Return how far a grid has come. Blocks begin in the order of their indices, and none waits while an SM has
    nothing to do. If all are busy (`full`), the blocks behind the last resident one may wait.
    """
    gx, gy, gz = grid.grid
    begun = total = gx * gy * gz
    if full and resident:
        begun = max(x + gx * (y + gy * z) for x, y, z in resident) + 1
    ended = max(begun - len(resident), 0)
    return replace(grid, resident=len(resident), warps=warps, ended=ended, waiting=total - begun)
