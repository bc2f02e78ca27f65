"""What the GPU side sends back, and how every message is written.

Frozen standard-library dataclasses, sent as one JSON object a line with a `kind` field. Times are
integer nanoseconds on the GPU's clock unless the name says `_s` (seconds); sizes are bytes; lines
count from 1 as compilers count them, columns from 1 in Unicode code points of the source line.
`None` always means "not known": a missing number is never 0.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from dataclasses import KW_ONLY, field
from typing import Any, Final, Literal

from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.measurements import (
    Advice,
    AgainstReference,
    Digests,
    Line,
    Metric,
    Resident,
    SameCode,
    Telemetry,
    Timing,
    Tried,
)
from orbit_remote.common.requests import Grade, Level, Policy, Request

RESULT_VERSION = 1
"""Raised when a field of what comes back changes its meaning: files that have it are kept, and published as schemas."""

State = Literal["queued", "syncing", "starting", "building", "running", "profiling", "finishing", "done"]
"""`syncing`: files go to the machine of the job; `finishing`: its program has ended, and what it made comes back."""
Outcome = Literal[
    "ok", "compile error", "runtime error", "wrong answer", "timed out", "infrastructure", "cancelled"
]
Severity = Literal["error", "warning", "information"]

EXIT_CODES: dict[str, int] = {
    "ok": 0,
    "compile error": 1,
    "runtime error": 2,
    "wrong answer": 3,
    "timed out": 4,
    "infrastructure": 5,
    "usage": 64,
    "cancelled": 130,
}


DEBUGGING = ("numpy", "debugpy")
"""Distributions that debugging a Triton kernel needs beside torch and triton."""

NOT_LAUNCHED = "not launched"
"""`Problem.code` of a memory check where the kernel that was asked for never ran: nothing of it was checked."""

STANDS = "stands here"
"""`Problem.code` of a line on which warps stood when their kernel was ended."""


@dataclass(frozen=True, slots=True)
class Place:
    """A position in a file; `column` None underlines the whole line, `end_column` is exclusive."""

    file: str
    line: int
    column: int | None = None
    end_column: int | None = None


@dataclass(frozen=True, slots=True)
class Note:
    """One step of a compiler's explanation: an instantiation, an include, a candidate."""

    message: str
    place: Place | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """One message of a compiler or of the run, in its own words.

    `tool` is its source: nvcc, ptxas, nvlink, ld, the host compiler, triton, cuda, program.
    `symbol` is the kernel's mangled name where the message names a kernel but no line.
    """

    severity: Severity
    message: str
    tool: str
    place: Place | None = None
    code: str | None = None
    symbol: str | None = None
    notes: tuple[Note, ...] = ()


@dataclass(frozen=True, slots=True)
class Resources:
    """What the compiler says one kernel instance uses, for one architecture."""

    symbol: str
    name: str
    architecture: str
    registers: int | None = None
    static_shared: int | None = None
    dynamic_shared: int | None = None
    stack: int | None = None
    spill_stores: int | None = None
    spill_loads: int | None = None
    barriers: int | None = None
    max_threads: int | None = None
    threads: int | None = None
    place: Place | None = None
    constants: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Launches:
    """Every launch of one kernel instance with one launch configuration, in one run.

    For launches of ours, `timing` is with a cold L2 and `warm` with an L2 that holds what fits in it.

    `kernels` is set if this is a whole call of the author's function (`ModelNew`, `custom_kernel`), from its first
    kernel's start to its last one's end: how many kernels one call launches. Grid and block are then of the kernel
    that takes longest; (0, 0, 0) if there is none or it could not be recorded.
    """

    symbol: str
    name: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    timing: Timing
    count: int
    cluster: tuple[int, int, int] | None = None
    registers: int | None = None
    static_shared: int | None = None
    dynamic_shared: int | None = None
    local_per_thread: int | None = None
    constants: dict[str, str] = field(default_factory=dict[str, str])
    place: Place | None = None
    warm: Timing | None = None
    tuning: tuple[Tried, ...] = ()
    kernels: int | None = None
    occupancy: Resident | None = None


@dataclass(frozen=True, slots=True)
class Check:
    """One comparison: an `expect` or `reference` of a launch spec, or one output of a contract.

    `differing` of `elements` were outside `atol + rtol * |expected|` (+ `chain` for long sums, see
    `dtypes.Tolerance`). `index`, `actual` and `expected` are of the first of them, numbers as Python writes them.
    `error` is the largest |actual - expected| of all finite elements. `when` says which launch it was: before timing,
    or once more with other data after it. `message` is what a contract's own check said; nothing is counted then, and
    `elements` is 0.
    """

    what: str
    passed: bool
    place: Place | None = None
    elements: int = 0
    differing: int = 0
    index: tuple[int, ...] = ()
    actual: str = ""
    expected: str = ""
    error: float | None = None
    rtol: float | None = None
    atol: float | None = None
    when: Literal["first", "again"] = "first"
    message: str = ""


@dataclass(frozen=True, slots=True)
class Point:
    """A launch spec run with one set of values: timed, or only checked if it is a `case`.

    `values` are those of the swept (or the case's) names, as a reader writes them. `bytes` and `flops` are what the
    author declares for all launches together. `footprint` is the memory, in bytes, that their arguments name. A
    contract has a point for each version, which `values["version"]` names, and a case for each of its tests.
    """

    values: dict[str, str] = field(default_factory=dict[str, str])
    case: str = ""
    launches: tuple[Launches, ...] = ()
    checks: tuple[Check, ...] = ()
    bytes: float | None = None
    flops: float | None = None
    footprint: int | None = None
    versus: AgainstReference | None = None


@dataclass(frozen=True, slots=True)
class Profile:
    """One launch as the GPU's counters saw it, replayed as often as they needed.

    `launch` says which profiled launch of its kernel with its configuration it was, from 0. `tier` is `counters` if
    the GPU's counters were read. If not, it is `times`: then metrics and lines are empty, `why` says what refused and
    what would enable them, and times and resources are in the run's `launches`. `metrics` are by NVIDIA's names; one
    that is missing or not a number is left out. `samples` counts all warp samples, also those without a line. `tool`
    is the version of what `counted_by` names.
    """

    symbol: str
    name: str
    tier: Literal["counters", "times"]
    why: str = ""
    launch: int = 0
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    metrics: dict[str, Metric] = field(default_factory=dict[str, Metric])
    lines: tuple[Line, ...] = ()
    samples: int | None = None
    advice: tuple[Advice, ...] = ()
    place: Place | None = None
    tool: str = ""
    counted_by: Literal["Nsight Compute", "CUPTI"] = "Nsight Compute"

    @property
    def source(self) -> str:
        """Return the source of the counters, such as `CUPTI 13.0`."""
        return f"{self.counted_by} {self.tool}".strip()


@dataclass(frozen=True, slots=True)
class Dump:
    """What the compiler made, at one level, of a kernel instance that was profiled, or compiled for its `levels`.

    `instance` counts those of one symbol from 0: a JIT gives several instances one name, and `constants` distinguish
    them. The instance of the longest profiled launch comes first. `text` is compressed by zlib and in base64; for a
    profile, the author's side keeps it as a file and empties the field.
    """

    symbol: str
    name: str
    level: Level
    instance: int = 0
    constants: dict[str, str] = field(default_factory=dict[str, str])
    text: str = ""


@dataclass(frozen=True, slots=True)
class Device:
    """The GPU with NVML's and the driver's facts.

    `reached` are rates per second that a short calibration reached on exactly this GPU and driver, by the keys of
    `calibration.SOURCES` (`dram` in bytes, `fp32` and `fp16 tensor` in operations); empty if there was none yet.
    `exclusive`: only one process at a time may use it (its compute mode).
    """

    name: str
    index: int = 0
    capability: str | None = None
    uuid: str | None = None
    driver: str | None = None
    multiprocessors: int | None = None
    memory: int | None = None
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    bus_width_bits: int | None = None
    l2_bytes: int | None = None
    reached: dict[str, float] = field(default_factory=dict[str, float], compare=False)
    exclusive: bool = False


NO_GPU = "there is no NVIDIA GPU in this machine to run it on"
"""The message of the failure of a run that needs one."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a run did not end well, in one sentence, and what to do about it."""

    category: Outcome
    message: str
    remedy: str = ""
    retryable: bool = False
    place: Place | None = None
    symbol: str | None = None


@dataclass(frozen=True, slots=True)
class Ran:
    """Kernels of one name in a call. `library` is the library that they belong to, "" for the candidate's own. `ns`
    is the time of all of them.
    """

    name: str
    library: str
    count: int
    ns: int


@dataclass(frozen=True, slots=True)
class PolicyFinding:
    """What a policy is about, found in a candidate whose answers are right. `why` has the share or the error. If it
    is not `allowed` there is no score.
    """

    name: Policy
    why: str
    allowed: bool = False


RIGHT: Final = "right"


@dataclass(frozen=True, slots=True)
class Attempt:
    """Arguments beyond those that a problem draws: of which family, in place of which argument. `answer` is `right`,
    `wrong`, or why it was left out.
    """

    family: str
    argument: str
    answer: str


@dataclass(frozen=True, slots=True)
class Judged:
    """What the judge knows beside the answers and the times. `suspicious` is why there is no score, empty where there is one;
    `policies` are no suspicion. `beyond` lists what was tried of arguments beyond those that the problem draws.

    `flag_ns` is by the clock that is the score, whose name is `clock`: the time between two flags of the candidate's stream, that from the
    judge's gate to the second, or with the host's part included. `verified_ns` is by the one that ends with right values in the judge's hands;
    the two agree within `resolution_ns`. What the recorder in the candidate's process says of one call: `recorded_ns`, the time in which
    at least one kernel ran, `own_share`, `streams` and `kernels`. `kept_bytes` are GPU memory that its calls did not give back. Errors
    are against the reference in double precision, relative. `locks` held the candidate's process, `unlocked` did not. `stages` are seconds
    of the judge's own by what it did. `control` is the reference against itself: in the same rounds, its calls after the candidate's against
    those before.
    """

    grade: Grade
    why: str
    suspicious: str = ""
    locks: tuple[str, ...] = ()
    unlocked: tuple[str, ...] = ()
    rounds: int = 0
    flag_ns: float | None = None
    verified_ns: float | None = None
    resolution_ns: float | None = None
    host_included: bool = False
    clock: Literal["", "flags", "gate", "host"] = ""
    recorded_ns: int | None = None
    own_share: float | None = None
    streams: int | None = None
    kernels: tuple[Ran, ...] = ()
    kept_bytes: int | None = None
    error: float | None = None
    reference_error: float | None = None
    policies: tuple[PolicyFinding, ...] = ()
    beyond: tuple[Attempt, ...] = ()
    stages: dict[str, float] = field(default_factory=dict[str, float])
    control: SameCode | None = None
    digests: Digests | None = None

    @property
    def policy(self) -> PolicyFinding | None:
        """Return the first finding that forbids a score. Return None if none does."""
        return next((finding for finding in self.policies if not finding.allowed), None)


@dataclass(frozen=True, slots=True)
class Cost:
    """What a run on a rented GPU is charged, as far as the author's side saw it.

    `seconds` are its container's during the run, with its start if the run started it. `usd` is the cost in dollars
    at `rates`, which says whose prices these are; None if a price is not known. `idle_usd` is what the container
    costs if it waits for another run as long as it may; None if that is not known, or it does not wait.
    """

    gpu: str
    seconds: float
    usd: float | None = None
    idle_usd: float | None = None
    rates: str = ""


@dataclass(frozen=True, slots=True)
class Stage:
    """The run entered a state; `why` says what it waits for."""

    run: str
    state: State
    at: float
    why: str = ""
    kind: Literal["stage"] = "stage"


@dataclass(frozen=True, slots=True)
class Output:
    run: str
    stream: Literal["stdout", "stderr"]
    text: str
    kind: Literal["output"] = "output"


@dataclass(frozen=True, slots=True)
class Debugger:
    """A debugger's end of a session waits on this machine, for a client that speaks the debug adapter protocol. It is
    for one program instance of a kernel. `why` says why this one, "" for the first.
    """

    run: str
    host: str
    port: int
    kernel: str
    program: tuple[int, int, int]
    why: str = ""
    kind: Literal["debugger"] = "debugger"


@dataclass(frozen=True, slots=True)
class Launched:
    """What a program that still runs has launched until now: all of it, not only what is new. Its timings have no
    samples.
    """

    run: str
    launches: tuple[Launches, ...]
    kind: Literal["launched"] = "launched"


@dataclass(frozen=True, slots=True)
class Built:
    """The compiler is done. `files` are the sources that it read (headers included), by content hash."""

    run: str
    problems: tuple[Problem, ...] = ()
    resources: tuple[Resources, ...] = ()
    files: dict[str, str] = field(default_factory=dict[str, str])
    seconds: float = 0.0
    cached: bool = False
    complete: bool = True
    kind: Literal["built"] = "built"


@dataclass(frozen=True, slots=True)
class Group:
    """A process group the worker started or saw end, so that its owner can end it for the worker."""

    run: str
    pgid: int
    alive: bool
    kind: Literal["group"] = "group"


@dataclass(frozen=True, slots=True)
class Operator:
    """A function of torch in a traced run: its calls, and the time on the CPU in it without those that it calls, in nanoseconds."""

    name: str
    calls: int
    self_ns: int


@dataclass(frozen=True, slots=True)
class Brought:
    """A file that a program left in its folder: its relative path, with `/` between the parts, and its size in bytes.
    `content` is compressed by zlib and in base64; the author's side writes the file and empties the field.
    """

    path: str
    size: int
    content: str = ""


@dataclass(frozen=True, slots=True)
class RanSet:
    """One parameter set of a test that was a driver. `id` is pytest's. `launches` is how many launches of each
    kernel, by symbol, began in it. `why` is why it was skipped.
    """

    id: str
    outcome: Literal["passed", "failed", "skipped"]
    seconds: float
    launches: dict[str, int] = field(default_factory=dict[str, int])
    why: str = ""


@dataclass(frozen=True, slots=True)
class Captured:
    """A launch that a driver made, as a launch spec: its `statements` in order, or `why` there are none, and what to
    do.

    `data` is the content of the file that they load from, compressed by zlib and in base64; `file` is its name.
    `launch` is the launch's number, from 1, of the `seen` ones of this kernel. `random` are the tensors whose values
    are random in the spec, `kept` those that are stored as they were. `orderly` says that launching it again gave the
    same bytes. `relaunched_ns` is the median of 20 launches, one after the other, on what was captured; in
    nanoseconds.
    """

    kernel: str
    statements: tuple[str, ...] = ()
    why: str = ""
    remedy: str = ""
    file: str = ""
    data: str = ""
    launch: int = 0
    seen: int = 0
    random: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    orderly: bool = True
    relaunched_ns: float | None = None
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of a run, always the last event with its id.

    `files` are the user's own files that were read besides the main one, by content hash. `points` are the sets of
    values of a launch spec; `launches` are then those of the first one. `report` is the profiler's own file, or a tar
    of the files that a compilation was asked to keep, compressed by zlib and in base64; the author's side keeps it as
    a file and empties the field. `dumps` are of the kernels of `profiles`, or of those that were compiled. `judged`
    is the judge's result, if it was asked for. `brought` are files that `exec` brings back. For a traced run `report`
    is the trace, and `operators` are those that took longest. `sets` are the parameter sets of a driver that ran, in
    pytest's order; `sets_left` counts those that did not. `captured` is a driver's launch, if one was to be captured.
    """

    run: str
    outcome: Outcome
    failure: Failure | None = None
    _: KW_ONLY
    problems: tuple[Problem, ...] = ()
    launches: tuple[Launches, ...] = ()
    resources: tuple[Resources, ...] = ()
    device: Device | None = None
    telemetry: Telemetry | None = None
    toolchain: dict[str, str] = field(default_factory=dict[str, str])
    exit_code: int | None = None
    build_s: float | None = None
    run_s: float | None = None
    stdout: str = ""
    stderr: str = ""
    truncated: bool = False
    files: dict[str, str] = field(default_factory=dict[str, str])
    remarks: tuple[str, ...] = ()
    points: tuple[Point, ...] = ()
    cost: Cost | None = None
    profiles: tuple[Profile, ...] = ()
    report: str = ""
    dumps: tuple[Dump, ...] = ()
    judged: Judged | None = None
    brought: tuple[Brought, ...] = ()
    operators: tuple[Operator, ...] = ()
    sets: tuple[RanSet, ...] = ()
    sets_left: int = 0
    captured: Captured | None = None
    kind: Literal["finished"] = "finished"


@dataclass(frozen=True, slots=True)
class Profiler:
    """The `ncu` of a machine. `permitted` says whether it may read the GPU's counters; None if nothing has been tried
    and the driver does not say. If it may not, `why` is the sentence that says who refuses and what would enable it.
    """

    path: str
    version: str
    permitted: bool | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Machine:
    """What this machine has. `packages` has each package's version, None if it is missing. `sanitizer` is the version
    of compute-sanitizer, looked for if there is a GPU, and `cupti` that of the CUPTI that counts launch specs.

    `python_path` are the folders in which its Python looks for modules besides its own installation's: of PYTHONPATH
    and of packages installed for editing.
    """

    run: str
    version: int
    python: str
    python_version: str
    packages: dict[str, str | None] = field(default_factory=dict[str, "str | None"])
    devices: tuple[Device, ...] = ()
    nvcc: str | None = None
    nvcc_version: str | None = None
    host_compiler: str | None = None
    problems: tuple[Failure, ...] = ()
    python_path: tuple[str, ...] = ()
    profiler: Profiler | None = None
    sanitizer: str | None = None
    cupti: str | None = None
    kind: Literal["machine"] = "machine"


def ok(run: str, **known: Any) -> Finished:
    """Return the end of a run that did what was asked. `known` are fields of `Finished`."""
    return Finished(run, "ok", **known)


def failed(run: str, failure: Failure, **known: Any) -> Finished:
    """Return the end of a run that failed for this reason. `known` are fields of `Finished`."""
    return Finished(run, failure.category, failure, **known)


Event = Stage | Output | Debugger | Launched | Built | Group | Finished | Machine


# -- on the wire (`wire` reads what this writes) ----------------------------------------------------


def encode(message: Event | Request) -> str:
    """Encode a message as one line of JSON. Requests gain the `kind` that names them."""
    data = _values(message)
    data.setdefault("kind", type(message).__name__.lower())
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"), default=_values)


def _values(record: object) -> dict[str, Any]:
    """Return a message's fields. `dataclasses.asdict` would copy each time of thousands of launches."""
    return {name: getattr(record, name) for name in _names(type(record))}


@functools.cache
def _names(cls: Any) -> tuple[str, ...]:
    """Raises TypeError for a class that is no dataclass."""
    return tuple(field.name for field in dataclasses.fields(cls))


def content_hash(content: bytes) -> str:
    """Return the hash by which both sides name a file's content."""
    return hashlib.blake2b(content, digest_size=16).hexdigest()
