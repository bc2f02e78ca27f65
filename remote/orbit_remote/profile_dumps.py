"""What the compiler made of the kernels that were profiled: Triton's levels of IR, PTX, and SASS of the code that ran.

Of a kernel's instances those are told whose machine code is in the report, byte for byte.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import importlib.util
import json
import os
import shutil
import sys
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from orbit_remote import cubin, processes, symbols
from orbit_remote.contracts import Dump, Level, Profile
from orbit_remote.cubin import Cubin

_MOST_TEXT = 8 << 20
"""Bytes of one level; LLVM IR of large kernels has two million."""
_MOST_PACKED = 6 << 20
"""Characters of all of them as they travel: IR packs to a tenth."""
_MOST_INSTANCES = 8
_DISASSEMBLING_S = 20.0
_DURATION = "gpu__time_duration.sum"
_REGISTERS = "launch__registers_per_thread"


@dataclass(frozen=True, slots=True)
class Collected:
    dumps: tuple[Dump, ...] = ()
    remarks: tuple[str, ...] = ()


@dataclass(slots=True)
class _Instance:
    symbol: str
    name: str
    code: Path
    constants: dict[str, str] = field(default_factory=dict[str, str])
    threads: int | None = None
    registers: int | None = None
    texts: dict[Level, bytes] = field(default_factory=dict["Level", bytes])

    def fits(self, profile: Profile) -> bool:
        """Whether the profiled launch can have been of it, and not of another of its name."""
        if profile.block and self.threads not in (
            None,
            profile.block[0] * profile.block[1] * profile.block[2],
        ):
            return False
        counted = profile.metrics.get(_REGISTERS)
        if counted is None or self.registers is None:
            return True
        return (self.registers + 7) // 8 == (
            int(counted.value) + 7
        ) // 8  # allocated in steps of eight a thread


async def collect(
    profiles: Sequence[Profile],
    report: Path | None,
    compiled: Path,
    *,
    ptx: str = "",
    disassembler: Path | None = None,
) -> Collected:
    """`compiled` is the folder in which `triton_kernels.keep_compiled` left what it has, and has room for more. `ptx`
    is the text that a CUDA file was compiled to. What is too large is left out, and a remark says so.
    """
    if report is None or not profiles:
        return Collected()
    longest = sorted(profiles, key=_duration, reverse=True)
    found = await asyncio.to_thread(_instances, longest, report, compiled, ptx)
    remarks: list[str] = []
    if len(found) > _MOST_INSTANCES:
        remarks.append(f"what the compiler made is kept of {_MOST_INSTANCES} of {len(found)} instances")
    found = found[:_MOST_INSTANCES]
    if disassembler is None:
        remarks.append(
            "there is no SASS of what ran: nvdisasm, a part of the CUDA toolkit, is not installed where the kernel runs"
        )
    else:
        said = await asyncio.gather(*(_disassemble(one, disassembler) for one in found))
        remarks += dict.fromkeys(filter(None, said))
    packed = await asyncio.to_thread(_packed, found, remarks)
    return Collected(packed, tuple(remarks))


def disassembler(nvcc: str | None, *, triton: bool) -> Path | None:
    """nvdisasm: for Triton's code the one that comes with Triton, which knows it best; else the one beside `nvcc`."""
    name = "nvdisasm.exe" if os.name == "nt" else "nvdisasm"
    bundled = [folder / "backends" / "nvidia" / "bin" / name for folder in _triton()]
    on_path = shutil.which(name)
    compiler = nvcc or shutil.which("nvcc")
    installed = [Path(compiler).with_name(name)] if compiler else []
    installed += [Path(on_path)] if on_path else []
    installed.append(Path("/usr/local/cuda/bin", name))
    places = [*bundled, *installed] if triton else [*installed, *bundled]
    return next((one for one in places if one.is_file()), None)


def _triton() -> list[Path]:
    """Without importing it."""
    with contextlib.suppress(ImportError, ValueError):
        if found := importlib.util.find_spec("triton"):
            return [Path(one) for one in found.submodule_search_locations or ()]
    return []


# -- which they are ---------------------------------------------------------------------------------


def _instances(profiles: Sequence[Profile], report: Path, compiled: Path, ptx: str) -> list[_Instance]:
    """By symbol in the order of `profiles`, and of a symbol those first that its profiles can have been of."""
    images = set(cubin.images(report.read_bytes()))
    kept = [one for file in sorted(compiled.glob("*.json"), key=_number) if (one := _kept(file))]
    found: list[_Instance] = []
    for symbol in dict.fromkeys(one.symbol for one in profiles):
        launched = [one for one in profiles if one.symbol == symbol]
        known = [one for one in kept if one.symbol == symbol]
        ran = [one for one in known if _content(one.code) in images] or known
        if not ran:
            ran = _in_images(launched[0], images, compiled)
            for one in ran:
                if ptx:
                    one.texts["ptx"] = ptx.encode("utf-8", "surrogateescape")
        first = next((one for profile in launched for one in ran if one.fits(profile)), None)
        found += sorted(ran, key=lambda one: one is not first)
    return found


def _kept(file: Path) -> _Instance | None:
    try:
        said: dict[str, Any] = json.loads(file.read_text("utf-8"))
        texts: dict[Level, bytes] = {}
        for level in get_args(Level):
            if content := _content(file.with_suffix(f".{level}")):
                texts[level] = content
        return _Instance(
            said["symbol"], said["function"], file.with_suffix(".cubin"), dict(said["constants"]), said["threads"],
            said["registers"], texts,
        )  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _in_images(profile: Profile, images: Iterable[bytes], folder: Path) -> list[_Instance]:
    """What has the kernel's machine code, written where a disassembler finds it."""
    found: list[_Instance] = []
    for image in images:
        with contextlib.suppress(ValueError):
            if profile.symbol in Cubin(image).functions():
                code = folder / f"ran-{len(list(folder.glob('ran-*')))}.cubin"
                code.write_bytes(image)
                found.append(_Instance(profile.symbol, profile.name, code))
    return found


# -- their texts ------------------------------------------------------------------------------------


async def _disassemble(one: _Instance, tool: Path) -> str:
    """Why there is no SASS of it; empty where there is."""
    content = _content(one.code)
    try:
        at = Cubin(content).index(one.symbol)
        if at is None:
            return ""
        # of a whole module this kernel alone, with the lines and the calls that were inlined
        command = [
            tool,
            "--print-code",
            "--print-line-info-inline",
            "--cuda-function-index",
            str(at),
            one.code,
        ]
        status, out, err = await processes.communicate(
            command, timeout_s=_DISASSEMBLING_S, cwd=one.code.parent, limit=_MOST_TEXT + 1
        )
    except ValueError:
        return ""
    except TimeoutError:
        return f"there is no SASS of {symbols.short_name(one.symbol)}: nvdisasm took longer than {_DISASSEMBLING_S:g} s"
    except OSError as error:
        return f"there is no SASS of what ran: {tool} cannot be started: {error.strerror or error}"
    if status or not out:
        said = next(iter(err.strip().splitlines()), f"it ended with exit code {status}")
        return f"there is no SASS of {symbols.short_name(one.symbol)}: nvdisasm: {said}"
    one.texts["sass"] = out.encode("utf-8", "replace")
    return ""


def _packed(found: Sequence[_Instance], remarks: list[str]) -> tuple[Dump, ...]:
    dumps: list[Dump] = []
    left_out: list[str] = []
    room = _MOST_PACKED
    counted: dict[str, int] = {}
    for one in found:
        number = counted[one.symbol] = counted.get(one.symbol, -1) + 1
        for level in get_args(Level):
            if level not in one.texts:
                continue
            text = one.texts[level]
            packed = base64.b64encode(zlib.compress(text)).decode("ascii") if len(text) <= _MOST_TEXT else ""
            if packed and len(packed) <= room:
                room -= len(packed)
                dumps.append(Dump(one.symbol, one.name, level, number, one.constants, packed))
            else:
                left_out.append(f"{level} of {symbols.short_name(one.name)} ({max(1, len(text) >> 20)} MiB)")
    if left_out:
        remarks.append(f"too large to be kept: {', '.join(left_out)}")
    return tuple(dumps)


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""


def _number(file: Path) -> int:
    head = file.name.partition("-")[0]
    return int(head) if head.isdecimal() else sys.maxsize


def _duration(profile: Profile) -> float:
    told = profile.metrics.get(_DURATION)
    return told.value if told else 0.0
