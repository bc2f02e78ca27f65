"""What draft, trace, disassemble, debug-compile and doctor print with `--json`: published as JSON schemas."""

from __future__ import annotations

from orbit_remote.common import handshake
from orbit_remote.common import messages as c
from orbit_remote.common.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Draft:
    """A launch spec for a kernel without one. `line` is the kernel's first line, counted from 1; `text` is to be written
    above it; `title` says what it was made from.
    """

    kernel: str
    line: int
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Trace:
    """A run under torch.profiler. `trace` is the path of the trace, null where none was kept."""

    trace: str | None
    finished: c.Finished


@dataclass(frozen=True, slots=True)
class Instruction:
    """One of SASS. `offset` is its address in bytes, `control` its control code; `file` and `line` are those of the source,
    null where the compiler does not name them.
    """

    offset: int
    control: str | None
    text: str
    file: str | None
    line: int | None


@dataclass(frozen=True, slots=True)
class Change:
    """An instruction that one side alone has: `mark` is `+` for the file, `-` for what it is compared with."""

    mark: str
    offset: int
    control: str | None
    text: str
    file: str | None
    line: int | None


@dataclass(frozen=True, slots=True)
class Instance:
    """The code of one instance of a kernel. `constants` are its constexprs; `instructions` is empty but for SASS; `changes`
    is null without --against.
    """

    symbol: str
    name: str
    constants: dict[str, str]
    text: str
    instructions: tuple[Instruction, ...]
    changes: tuple[Change, ...] | None = None


@dataclass(frozen=True, slots=True)
class Disassembly:
    """`against` names what the file is compared with. `toolchain` has the versions of the compiler."""

    file: str
    level: str
    architecture: str | None
    against: str | None
    instances: tuple[Instance, ...]
    toolchain: dict[str, str]
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle(c.Finished):
    """A compilation of `debug-compile`; `bundle` is the path of the folder or the .zip file that was written."""

    bundle: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine(c.Machine):
    """What `doctor` found on this machine; `workers` are this user's background processes."""

    workers: tuple[handshake.Status, ...] = ()
