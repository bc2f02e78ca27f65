"""Returns compiled code as text without a GPU: SASS by NVIDIA's `nvdisasm`, and a kernel's own part of the PTX of a
build.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path

from orbit_remote.common import symbols
from orbit_remote.common.messages import Failure
from orbit_remote.common.packages import installing
from orbit_remote.process import client_environment, tool_output
from orbit_remote.toolchain import dwarf_lines, nvcc, sass_listing
from orbit_remote.toolchain.dwarf_lines import Frame, FunctionLines
from orbit_remote.toolchain.elf import Cubin
from orbit_remote.toolchain.ptx import unescaped

LIMIT_S = 60.0
"""How long nvdisasm may take; it takes 0.3 s, and 15 s for a library of thousands of kernels."""
MOST_OUTPUT = 64 << 20
_NVDISASM = "nvdisasm.exe" if os.name == "nt" else "nvdisasm"
_FUNCTION = re.compile(r"\.text\.(\S+):")
_LABEL = re.compile(r"(\.L\S*):")
_CODE = re.compile(r"\s+/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;?\s*")
_JUMP = re.compile(r"`\((\.L[^)\s]*)\)")
_ENTRY = re.compile(r"^(?:\.(?:visible|weak|extern)[ \t]+)*\.(?:entry|func)\b[^;{]*", re.MULTILINE)
_LOC = re.compile(r"^([ \t]*\.loc[ \t]+(\d+)[ \t]+(\d+)[ \t][^\n]*)$", re.MULTILINE)
_FILE = re.compile(r'^[ \t]*\.file[ \t]+(\d+)[ \t]+"([^"\\\n]*(?:\\.[^"\\\n]*)*)"', re.MULTILINE)


def find(root: str | None = None, pythons: Collection[str | None] = (None,)) -> str | Failure:
    """Return the path of nvdisasm: of the toolkit at `root`, of PATH, of NVIDIA's wheel or of Triton's in these
    Pythons.
    """
    for path in _candidates(root, pythons):
        if path.is_file() and os.access(path, os.X_OK):
            return str(path)
    python = [sys.executable, *filter(None, pythons)][-1]
    install = installing.command(python, "nvidia-cuda-nvdisasm", environment=client_environment.current())
    return Failure(
        "infrastructure",
        "no nvdisasm was found, which turns compiled code into SASS",
        f"install it with the CUDA toolkit, or: {install} (Triton brings one too)",
    )


def _candidates(root: str | None, pythons: Collection[str | None]) -> Iterator[Path]:
    if root:
        yield Path(root, "bin", _NVDISASM)
    if named := client_environment.which(_NVDISASM):
        yield Path(named)
    yield Path(nvcc.SYSTEM, "bin", _NVDISASM)
    for python in dict.fromkeys(pythons):
        for folder in nvcc.site_packages(python):
            yield from sorted(folder.glob(f"nvidia/cu1[3-9]/bin/{_NVDISASM}"), reverse=True)
            yield folder / "nvidia" / "cuda_nvdisasm" / "bin" / _NVDISASM
            yield folder / "triton" / "backends" / "nvidia" / "bin" / _NVDISASM


def command(nvdisasm: str, cubin: Path) -> list[str]:
    return [nvdisasm, "-c", str(cubin)]


def listing(cubin: bytes, symbol: str) -> str:
    """Return the listing of one function. Return "" if nvdisasm is missing or does not read it. Takes 0.3 s."""
    nvdisasm = find()
    if isinstance(nvdisasm, Failure):
        return ""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        done = tool_output.ask(command(nvdisasm, Path(file.name)), timeout_s=LIMIT_S, limit=MOST_OUTPUT)
    return listings(cubin, done.stdout, {symbol}).get(symbol, "")


def refused(status: int, errors: str, name: str) -> Failure:
    """Return why nvdisasm made nothing of a file."""
    first = next((line for line in errors.splitlines() if line.strip()), f"it ended with status {status}")
    remedy = (
        "it may be damaged, or of an architecture that this nvdisasm does not know: try a newer CUDA toolkit"
    )
    return Failure("compile error", f"nvdisasm cannot read {name}: {first.strip()}", remedy)


def instructions(output: str) -> dict[str, list[str]]:
    """Return the instructions that nvdisasm printed, by mangled name of the function. Jumps go to offsets; padding at
    the end is left out.
    """
    functions: dict[str, list[str]] = {}
    labels: dict[str, int] = {}
    code: list[str] = []
    for line in output.splitlines():
        if match := _FUNCTION.fullmatch(line):
            code = functions.setdefault(match[1], [])
        elif match := _LABEL.fullmatch(line.strip()):
            labels[match[1]] = len(code) * sass_listing.INSTRUCTION
        elif (match := _CODE.fullmatch(line)) and int(match[1], 16) == len(code) * sass_listing.INSTRUCTION:
            code.append(match[2])

    def target(matched: re.Match[str]) -> str:
        return f"0x{labels[matched[1]]:04x}" if matched[1] in labels else matched[0]

    for name, code in functions.items():
        while code and code[-1] == "NOP":
            code.pop()
        functions[name] = [_JUMP.sub(target, text) for text in code]
    return functions


def listings(cubin: bytes, output: str, wanted: Collection[str] | None = None) -> dict[str, str]:
    """Return the listing of each function, by mangled name, of all or of those that are `wanted`. `output` is
    nvdisasm's of `cubin`. Raises ValueError for a file that is no cubin.
    """
    code = Cubin(cubin)
    try:
        lines, missing = dwarf_lines.read(cubin, wanted), ""
    except ValueError as error:
        lines, missing = dict[str, FunctionLines](), f"lines are not known: {error}"
    by_symbol: dict[str, str] = {}
    for symbol, texts in instructions(output).items():
        if wanted is not None and symbol not in wanted:
            continue
        known = lines.get(symbol)
        why = missing or ("" if known else "lines are not known: the code was compiled without -lineinfo")

        def frames(offset: int, known: FunctionLines | None = known) -> tuple[Frame, ...]:
            return known.at(offset) if known else ()

        content = code.section(f".text.{symbol}")
        by_symbol[symbol] = sass_listing.text(symbols.demangle(symbol), texts, frames, content, why)
    return by_symbol


def ptx_of(ptx: str, symbol: str) -> str:
    """Return a kernel's own part of a PTX text, below the text's head. Each `.loc` says its file and line. Return ""
    if the kernel is not in it.
    """
    starts = [match.start() for match in _ENTRY.finditer(ptx)]
    head = ptx[: starts[0]] if starts else ""
    name = re.compile(rf"\.entry[ \t]+{re.escape(symbol)}(?![\w$])")
    for at, start in enumerate(starts):
        end = starts[at + 1] if at + 1 < len(starts) else len(ptx)
        if name.search(ptx, start, min(end, start + 4096)):
            files = {number: unescaped(name) for number, name in _FILE.findall(ptx)}
            body = re.split(r"^[ \t]*\.(?:file|section)\b", ptx[start:end], maxsplit=1, flags=re.MULTILINE)[0]
            return head + _with_lines(body, files)
    return ""


def _with_lines(body: str, files: dict[str, str]) -> str:
    def named(match: re.Match[str]) -> str:
        return f"{match[1]} // {files[match[2]]}:{match[3]}" if match[2] in files else match[1]

    return _LOC.sub(named, body)
