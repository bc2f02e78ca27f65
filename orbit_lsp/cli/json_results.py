"""Models of the `--json` output of draft, drivers, trace, disassemble, debug-compile and doctor. Their JSON schemas
are published.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any, cast

from orbit_remote.common import handshake
from orbit_remote.common import messages as c
from orbit_remote.common.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Draft:
    """A launch spec for a kernel without one. `line` is the kernel's first line, counted from 1. `text` is to be
    written above it. `title` says what it was made from.
    """

    kernel: str
    line: int
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class ListedDriver:
    """A test, script or program that leads to a kernel. `id` is what one types behind `pytest` or `python`. `file` is
    relative to the project's folder. `name` is the function in it, empty for a script that runs as a whole. `keyword`
    is for pytest's `-k`, empty if `name` is enough. `cases` is the number of parameter sets that the test has by its
    text. `way` leads from the kernel to the driver. A lower `cost` is a better guess. For a program, `file` has its
    `main`, and `tool` (`cmake`, `make` or `nvcc`) builds its target `name` in `folder`, where it then runs with
    `arguments`.
    """

    kind: str
    id: str
    file: str
    name: str
    keyword: str
    cases: int
    cost: float
    way: tuple[str, ...]
    tool: str = ""
    folder: str = ""
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class KernelDrivers:
    """The drivers of a kernel, best first. `reason` says why there is none. `line` counts from 1. `helper` says that
    only other kernels call it. `own_program` says that its file is a program, which a run starts without a driver.
    """

    file: str
    kernel: str
    line: int
    helper: bool
    own_program: bool
    drivers: tuple[ListedDriver, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class DriverList:
    """`folder` is the project in which drivers were looked for. It has `count` kernels that are no helpers.
    `reachable` of these have a driver, or are in a file that is a program itself.
    """

    folder: str
    count: int
    reachable: int
    helpers: int
    kernels: tuple[KernelDrivers, ...]


@dataclass(frozen=True, slots=True)
class Trace:
    """A run under torch.profiler. `trace` is the path of the trace, or null if none was kept."""

    trace: str | None
    finished: c.Finished


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction of SASS. `offset` is its address in bytes, `control` its control code. `file` and `line` are
    those of the source, or null if the compiler does not name them.
    """

    offset: int
    control: str | None
    text: str
    file: str | None
    line: int | None


@dataclass(frozen=True, slots=True)
class Change:
    """An instruction that only one side has. `mark` is `+` for the file, `-` for what it is compared with."""

    mark: str
    offset: int
    control: str | None
    text: str
    file: str | None
    line: int | None


@dataclass(frozen=True, slots=True)
class Instance:
    """The code of one instance of a kernel. `constants` are its constexprs. `instructions` is empty except for SASS.
    `changes` is null without --against.
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


@dataclass(frozen=True, slots=True)
class OnGpu:
    """A kernel on one of several GPUs. `device` is the name that NVML gives it; `time_ns` is of all its launches together."""

    gpu: str
    device: str | None
    outcome: c.Outcome
    time_ns: float | None
    usd_per_s: float | None
    rates: str | None
    usd_per_million_launches: float | None
    finished: c.Finished


@dataclass(frozen=True, slots=True)
class OnGpus:
    """A kernel on several GPUs, in the order in which they were named."""

    kernel: str
    gpus: tuple[OnGpu, ...]


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a command failed. `category` is `usage` or an outcome; `remedy` says what to do, and may be empty."""

    category: str
    message: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Failed:
    """What any command prints if it ends before it has a result. `problems` are the errors of disassemble at their
    places.
    """

    failure: Reason
    problems: tuple[c.Problem, ...] = ()
    version: int = c.RESULT_VERSION


def text(result: Any) -> str:
    """Return a result, or each of a list, as the JSON text that a command prints, with the version of the contract."""
    if isinstance(result, list | tuple):
        shown: Any = [_versioned(each) for each in cast("Sequence[Any]", result)]
    else:
        shown = _versioned(result)
    return json.dumps(shown, ensure_ascii=False, indent=2)


def _versioned(result: Any) -> dict[str, Any]:
    value: dict[str, Any] = (
        cast("dict[str, Any]", result) if isinstance(result, dict) else dataclasses.asdict(result)
    )
    return value if "version" in value else value | {"version": c.RESULT_VERSION}


def failure(category: str, message: str, remedy: str = "", problems: Sequence[c.Problem] = ()) -> str:
    """Return the JSON text of a command that failed."""
    words = message.encode("utf-8", "backslashreplace").decode()  # a path need not be UTF-8, JSON has to
    return text(Failed(Reason(category, words, remedy), tuple(problems)))
