"""Compiler output of profiled kernels: Triton's levels of IR, PTX, and the code that ran.

An instance is recognised by its machine code in the report, byte for byte.
"""

from __future__ import annotations

import math
import sys
from dataclasses import field
from pathlib import Path
from typing import get_args

from orbit_remote.common import codec, limits, regular_files
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.messages import Dump, Profile, Resources
from orbit_remote.common.requests import Level
from orbit_remote.ncu.ncu_options import DURATION
from orbit_remote.ncu.report_reader import ReportAnswer
from orbit_remote.toolchain import dumps, elf, sass_listing
from orbit_remote.toolchain.elf import Cubin

_MOST_INSTANCES = 8
_REGISTERS = "launch__registers_per_thread"


@dataclass(frozen=True, slots=True)
class Collected:
    dumps: tuple[Dump, ...] = ()
    remarks: tuple[str, ...] = ()


@dataclass(slots=True)
class _Instance:
    symbol: str
    name: str
    code: bytes = b""
    constants: dict[str, str] = field(default_factory=dict[str, str])
    threads: int | None = None
    registers: int | None = None
    texts: dict[Level, bytes] = field(default_factory=dict["Level", bytes])

    def fits(self, profile: Profile, sass: str) -> bool:
        """Say whether the profiled launch can be of this instance, and not of another with its name."""
        if profile.block and self.threads not in (None, math.prod(profile.block)):
            return False
        if sass and self.code and sass_listing.size(sass) != self._size():
            return False
        counted = profile.metrics.get(_REGISTERS)
        if counted is None or self.registers is None:
            return True
        # they are allocated in steps of eight a thread
        return (self.registers + 7) // 8 == (int(counted.value) + 7) // 8

    def _size(self) -> int:
        try:
            return len(Cubin(self.code).section(f".text.{self.symbol}"))
        except ValueError:
            return 0


def collect(answer: ReportAnswer, report: Path | None, compiled: Path, ptx: str = "") -> Collected:
    """Collect the output. `compiled` is the folder in which `triton_instances.keep_compiled` left its files. `ptx` is
    the text that a CUDA file was compiled to. What is too large is left out, and a remark says so.
    """
    if report is None or not answer.profiles:
        return Collected()
    instances = _instances(answer, report, compiled, ptx)
    remarks: list[str] = []
    if len(instances) > _MOST_INSTANCES:
        remarks.append(f"what the compiler made is kept of {_MOST_INSTANCES} of {len(instances)} instances")
    made = [
        dumps.DumpedInstance(instance.symbol, instance.name, instance.constants, instance.texts)
        for instance in instances[:_MOST_INSTANCES]
    ]
    return Collected(dumps.packed(made, remarks), tuple(remarks))


# -- which they are ---------------------------------------------------------------------------------


def _instances(answer: ReportAnswer, report: Path, compiled: Path, ptx: str) -> list[_Instance]:
    """Return the instances by symbol. The symbol of the longest launch is first; the instances of a symbol have the
    same order.
    """
    images = set(elf.images(regular_files.read(report, limits.REPORT)))
    kept = [instance for file in sorted(compiled.glob("*.json"), key=_number) if (instance := _kept(file))]
    sass = answer.sass or ("",) * len(answer.profiles)
    launches = sorted(zip(answer.profiles, sass, strict=True), key=_duration, reverse=True)
    instances: list[_Instance] = []
    for symbol in dict.fromkeys(launch.symbol for launch, _ in launches):
        launched = [(launch, text) for launch, text in launches if launch.symbol == symbol]
        known = [kept_instance for kept_instance in kept if kept_instance.symbol == symbol]
        ran = [kept_instance for kept_instance in known if kept_instance.code in images] or known
        if not ran:
            ran = [_Instance(symbol, launched[0][0].name)]
            ran[0].texts |= {"ptx": ptx.encode("utf-8", "surrogateescape")} if ptx else {}
        ordered: list[_Instance] = []
        for profile, text in launched:
            if text:
                fitting = (
                    kept_instance
                    for kept_instance in ran
                    if kept_instance not in ordered and kept_instance.fits(profile, text)
                )
                instance = next(fitting, None) or _Instance(
                    symbol, profile.name
                )  # code that nobody here compiled
                instance.texts["sass"] = text.encode("utf-8", "replace")
                ordered.append(instance)
        instances += [*ordered, *(kept_instance for kept_instance in ran if kept_instance not in ordered)]
    return instances


def _kept(file: Path) -> _Instance | None:
    try:
        resources = codec.build(Resources, codec.read_json(regular_files.read(file, limits.DUMP)))
        texts: dict[Level, bytes] = {}
        for level in get_args(Level):
            if content := _content(file.with_suffix(f".{level}")):
                texts[level] = content
        code = _content(file.with_suffix(".cubin"))
        return _Instance(
            resources.symbol,
            resources.name,
            code,
            resources.constants,
            resources.threads,
            resources.registers,
            texts,
        )
    except (OSError, ValueError):
        return None


def _content(file: Path) -> bytes:
    try:
        return regular_files.read(file, limits.DUMP)
    except OSError:
        return b""


def _number(file: Path) -> int:
    head = file.name.partition("-")[0]
    return int(head) if head.isdecimal() else sys.maxsize


def _duration(launch: tuple[Profile, str]) -> float:
    metric = launch[0].metrics.get(DURATION)
    return metric.value if metric else 0.0
