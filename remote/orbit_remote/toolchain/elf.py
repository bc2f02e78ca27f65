"""Reads the ELF file of compiled kernels without their code: symbols, sections and their relocations.

It reads just the needed parts of ELF-64 (little-endian). The layout is that of the System V ABI, "Object Files",
which NVIDIA's tools follow.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from orbit_remote.common.lazy_dataclass import dataclass

HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
"""The header of a file, whose last fields are of the section headers: size of one, number, number of the names'."""
SECTION = struct.Struct("<IIQQQQIIQQ")
"""A section header: name, type, flags, address, offset, size, link, info, alignment, size of an entry."""
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = {4: struct.Struct("<QQq"), 9: struct.Struct("<QQ")}
"""By the type of the section: SHT_RELA, SHT_REL."""
_SYMTAB = 2
_OBJECT, _FUNCTION = 1, 2  # STT_OBJECT, STT_FUNC


_TEXT = ".text."
_MAGIC = b"\x7fELF\x02\x01"
_EM_CUDA = 190


def images(content: bytes) -> Iterator[bytes]:
    """Yield every cubin in a file that holds some among other things, as a report of Nsight Compute does."""
    at = content.find(_MAGIC)
    while at >= 0:
        header = content[at : at + HEADER.size]
        if len(header) == HEADER.size:
            _, _, machine, _, _, segments, sections, _, _, size, count, wide, many, _ = HEADER.unpack(header)
            if machine == _EM_CUDA:
                yield content[at : at + max(sections + wide * many, segments + size * count)]
        at = content.find(_MAGIC, at + 1)


@dataclass(frozen=True, slots=True)
class Variable:
    """A `__device__` or `__constant__` variable. `symbol` is its mangled name, `size` is in bytes."""

    symbol: str
    size: int


@dataclass(frozen=True, slots=True)
class Located:
    """The code of a kernel where the driver has put it: `size` bytes at `address` on the GPU, at `offset` of the
    file.

    `functions` are the kernel and the functions that it calls, each as (offset in bytes, mangled name).
    """

    kernel: str
    address: int
    offset: int
    size: int
    functions: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class _Section:
    name: str
    type: int
    address: int
    offset: int
    size: int
    link: int


@dataclass(frozen=True, slots=True)
class _Symbol:
    name: str
    type: int
    section: int
    value: int
    size: int


class Cubin:
    """A cubin. Raises ValueError for a file that is no ELF-64 file."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._sections: list[_Section] = []
        self._symbols: list[_Symbol] = []
        try:
            self._sections = self._read_sections()
            self._symbols = self._read_symbols()
        except (struct.error, IndexError) as error:
            raise ValueError(f"this is not a cubin: {error}") from None

    def variables(self) -> list[Variable]:
        return [Variable(s.name, s.size) for s in self._symbols if s.type == _OBJECT and s.section and s.size]

    def functions(self) -> list[str]:
        """Return the mangled names of the functions that have code here."""
        return [s.name for s in self._symbols if s.type == _FUNCTION and s.section]

    def section(self, name: str) -> bytes:
        """Return a section's content, or b"" if there is none with this name."""
        header = next((s for s in self._sections if s.name == name), None)
        return self._content[header.offset : header.offset + header.size] if header else b""

    def located(self) -> list[Located]:
        """Return the code that has been loaded. A file that no driver has loaded has none."""
        found: list[Located] = []
        for number, section in enumerate(self._sections):
            if section.address and section.size and section.name.startswith(_TEXT):
                # symbols of loaded code have addresses; those of functions that it calls may have offsets
                functions = sorted(
                    (s.value - section.address if s.value >= section.address else s.value, s.name)
                    for s in self._symbols
                    if s.type == _FUNCTION and s.section == number
                )
                kernel = section.name.removeprefix(_TEXT)
                found.append(Located(kernel, section.address, section.offset, section.size, tuple(functions)))
        return found

    def relocations(self, name: str) -> dict[int, str]:
        """Return the symbols whose addresses stand in the section `name`, by their place in it."""
        places: dict[int, str] = {}
        for section in self._sections:
            if section.type in _RELOCATION and section.name in (f".rela{name}", f".rel{name}"):
                layout = _RELOCATION[section.type]
                for at in range(section.offset, section.offset + section.size, layout.size):
                    place, info, *_ = layout.unpack_from(self._content, at)
                    places[place] = self._symbols[int(info) >> 32].name
        return places

    def _read_sections(self) -> list[_Section]:
        header = HEADER.unpack_from(self._content)
        identity, table = header[0], int(header[6])
        size, count, names = map(int, header[11:])
        if identity[:6] != _MAGIC or size != SECTION.size:
            raise ValueError("this is not a cubin: it is not a 64-bit ELF file")
        raw = [SECTION.unpack_from(self._content, table + at * size) for at in range(count)]
        strings = int(raw[names][4])
        return [_Section(self._text(strings + r[0]), r[1], *r[3:7]) for r in raw]

    def _read_symbols(self) -> list[_Symbol]:
        table = next((s for s in self._sections if s.type == _SYMTAB), None)
        if table is None:
            return []
        strings = self._sections[table.link].offset
        symbols: list[_Symbol] = []
        for at in range(table.offset, table.offset + table.size, _SYMBOL.size):
            name, info, _, section, value, size = _SYMBOL.unpack_from(self._content, at)
            symbols.append(_Symbol(self._text(strings + name), info & 15, section, value, size))
        return symbols

    def _text(self, at: int) -> str:
        return self._content[at : self._content.index(b"\0", at)].decode("utf-8", "replace")
