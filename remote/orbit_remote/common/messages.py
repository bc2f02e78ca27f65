"""Every message between the author's side and the GPU side.

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
import shlex
from dataclasses import KW_ONLY, field
from pathlib import Path
from typing import Any, Literal

from orbit_remote.common.lazy_dataclass import dataclass

VERSION = 2
"""Raised when a field of a request changes; the worker and the app on Modal refuse requests of another version."""
RESULT_VERSION = 1
"""Raised when a field of what comes back changes its meaning: files that have it are kept, and published as schemas."""

State = Literal["queued", "syncing", "starting", "building", "running", "profiling", "finishing", "done"]
"""`syncing`: files go to the machine of the job; `finishing`: its program has ended, and what it made comes back."""
Outcome = Literal[
    "ok", "compile error", "runtime error", "wrong answer", "timed out", "infrastructure", "cancelled"
]
Severity = Literal["error", "warning", "information"]
Action = Literal[
    "compile", "disassemble", "report", "build", "run", "debug", "profile", "sanitize", "calibrate"
]
Level = Literal["ttir", "ttgir", "llir", "ptx", "sass"]
"""What a compiler makes of a kernel, one after the other: Triton's IR, its IR for GPUs, LLVM's, PTX, and machine code."""
Grade = Literal["author", "referee"]
"""How far a measurement can be trusted: an author's shares the process with the code that it measures."""
Through = Literal["program", "spec", "contract", "exec", "driver"]
"""What starts a kernel, in a word: the tag of each `Start`."""
BY_AUTHOR: frozenset[Through] = frozenset(("program", "driver"))
"""The author's own code launches kernels, as often as it likes."""
Source = Literal["measured", "compiler", "derived", "device"]
"""Where a number comes from: a counter or clock, the compiler, a formula, the driver."""

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


# -- requests ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Definition:
    """Where the kernel that is to be launched stands in the text. Lines and columns count from 0.

    `start_line` is the first line of the whole definition (template header, first decorator), `line`
    that of `__global__` or `def`; (`name_line`, `name_end`) is where its name ends, `end_line` the last line of all.
    """

    name: str
    qualified: str
    start_line: int
    line: int
    name_line: int
    name_end: int
    end_line: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class HostLaunch:
    """A launch in a Python file's own code, in the words of launch specs. `line` counts from 1.

    `guessed` are the names whose values the file does not tell; `unknown` those of them that decide a constant of
    the kernel. Of the kernel's parameters, `assumed` are those whose types follow from a guess, as a guessed tensor's does, and
    `sized` those of which a guess decides only the value, as `x.shape[0]` is an integer whatever `x` is.
    """

    kernel: str
    line: int
    statements: tuple[str, ...]
    guessed: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    sized: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OtherKernel:
    """A kernel of a Python file in a language other than Triton, at the line of its name (from 1). Nobody but its language
    knows it while it runs: its launches are recognized by their names (`symbols`).
    """

    language: str
    name: str
    qualified: str
    line: int


@dataclass(frozen=True, slots=True)
class Driver:
    """A test function, a script or a program of a project that launches kernels.

    `file` is relative to the project's folder, with `/`. `name` is the function in it, as pytest writes it
    (`TestSoftmax::test_forward`), empty for a script that runs as a whole. `keyword` selects tests whose names are made when
    they are collected, as pytest's `-k` does.

    Of a program `file` has its `main`, and `name` is what `tool` is asked to build, empty for nvcc, which compiles the file alone.
    `folder`, relative to the project's, is where CMake's or Meson's project or the Makefile lies, and where the program runs, with `arguments`.
    `output` is the executable that make writes, relative to that; CMake and Meson say where they write.
    """

    kind: Literal["pytest", "script", "program"]
    file: str
    name: str = ""
    keyword: str = ""
    tool: Literal["", "cmake", "make", "meson", "nvcc"] = ""
    folder: str = ""
    output: str = ""
    arguments: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """Return what one types behind `pytest` or `python`, or the file and what is built and run."""
        if self.kind == "program":
            words = shlex.join((*((self.name,) if self.name else ()), *self.arguments))
            return f"{self.file} ({words})" if words else self.file
        node = f"{self.file}::{self.name}" if self.name and self.kind == "pytest" else self.file
        if self.keyword:
            return f"{node} -k {self.keyword}"
        return f"{node} ({self.name})" if self.name and self.kind == "script" else node

    @property
    def short(self) -> str:
        """Return its name alone: the test's, the program's, or the script's file."""
        if self.kind == "program" and (self.output or self.name):
            return (self.output or self.name).rpartition("/")[2]
        name = self.name.rpartition("::")[2] if self.kind == "pytest" else ""
        return name or self.file.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class ProgramStart:
    """The file's own way in launches the kernel. A `traced` run of a Python file is recorded by torch.profiler."""

    traced: bool = False
    through: Literal["program"] = "program"


@dataclass(frozen=True, slots=True)
class SpecStart:
    """The launch spec above `definition` launches the kernel."""

    definition: Definition
    through: Literal["spec"] = "spec"


@dataclass(frozen=True, slots=True)
class ContractStart:
    """A contract that the file keeps launches kernels: KernelBench's `ModelNew`, popcorn's `custom_kernel`. `grade` is the
    one asked for: a `referee` runs the file's code in a process of its own (`orbit_remote.judge`).
    """

    grade: Grade = "author"
    through: Literal["contract"] = "contract"


@dataclass(frozen=True, slots=True)
class ExecStart:
    """A script or any program runs, as the name of the job's `path` says (`Job.is_script`); `text` is the script's.

    `mount` is the author's folder of which the job's `directory` is a copy; on the same machine the worker makes it, of
    `files`, paths relative to `mount`. Files that the patterns `bring` match come back as `Finished.brought`.
    """

    mount: str = ""
    files: tuple[str, ...] = ()
    bring: tuple[str, ...] = ()
    through: Literal["exec"] = "exec"


@dataclass(frozen=True, slots=True)
class DriverStart:
    """A test, a script or a program of the project in the job's `directory` launches the kernel, which is in the file at `path`.

    `texts` are the texts of open Python files by path, which count in place of what is saved, or for a program those of open
    C++ files, which have to be saved. Of a test only the parameter `sets` that are named run, if it has them: pytest's ids.
    A `repeated` test or script runs several times, until its kernels have been launched often enough for a median.
    `sources` are those of a program as far as texts tell, paths in `directory`.
    """

    driver: Driver
    texts: dict[str, str] = field(default_factory=dict[str, str])
    sets: tuple[str, ...] = ()
    repeated: bool = False
    sources: tuple[str, ...] = ()
    through: Literal["driver"] = "driver"


Start = ProgramStart | SpecStart | ContractStart | ExecStart | DriverStart
"""What starts a kernel, with all that only this way needs."""


@dataclass(frozen=True, slots=True)
class Job:
    """Compile a file for what the compiler says of it, or build it and run it, or build it so that a
    later run finds it built (CUDA alone), or run it under a tool: `profile` under Nsight Compute, which
    counts one launch of `kernel` in each of its configurations; `sanitize` under compute-sanitizer, with each of `tools`
    (memcheck, racecheck, initcheck, synccheck) in turn. `disassemble` is of compiled code: `text` is then the file in
    base64. `calibrate` is the worker's own: what the GPU reaches. `debug` interprets a Triton kernel on the CPU, stopped in
    the program instance that `instance` names: the first, or the one that writes the first wrong element.

    `path` is where the author knows the file to be and `text` what stands in the editor, which may
    not be saved. `flags` are compiler flags that have already passed the author's trust rule.
    `architecture` is nvcc's spelling (`sm_90a`) or None for the GPU that will run it. `gpu` is the one
    asked for elsewhere (`H100`, `H100:2`), None for this machine's own: of those it has `gpus`, from number `device` on. `roots` are folders in which
    imports are looked up last, as an editable install's are. `restricted` says that the code is not the
    author's: it runs on Modal, in a container for it alone, or not at all.

    `start` says what starts the kernel, and has all that only this way needs. `tool_kernel` is the kernel that a tool or a
    debugger is for, where no launch spec stands above it. The program runs in `directory`, with `arguments` and `stdin`;
    `variables` (`NAME=value`) are added to its environment. `templates` are kernels
    whose launch specs say of which instances a compilation is to tell. `host_launches` are launches in a Python file's
    own code, for the kernels that have no launch spec. `levels` are those of the compiler's output that a compilation sends
    back, as `Finished.dumps`. A `batch` waits for the GPU behind jobs that somebody has clicked. A compilation that is to
    `keep` its own files - command line, log, intermediate code - sends them as `Finished.report`. `other_kernels` are
    those of a Python file. A compilation of a Triton file makes its kernels with each of `warps` as `num_warps` too.
    `sections` of Nsight Compute are what a profile collects, in place of those of its `detail`.
    """

    run: str
    action: Action
    language: Literal["cuda", "triton"]
    path: str
    text: str
    kernel: str | None = None
    directory: str | None = None
    arguments: tuple[str, ...] = ()
    stdin: str = ""
    flags: tuple[str, ...] = ()
    nvcc: str | None = None
    architecture: str | None = None
    device: int = 0
    build_timeout_s: float = 120.0
    run_timeout_s: float = 60.0
    gpu: str | None = None
    roots: tuple[str, ...] = ()
    restricted: bool = False
    start: Start = field(default_factory=ProgramStart)
    tool_kernel: Definition | None = None
    templates: tuple[Definition, ...] = ()
    host_launches: tuple[HostLaunch, ...] = ()
    detail: Literal["click", "full"] = "click"
    tools: tuple[str, ...] = ()
    sections: tuple[str, ...] = ()
    batch: bool = False
    levels: tuple[Level, ...] = ()
    gpus: int = 1
    variables: tuple[str, ...] = ()
    instance: Literal["first", "wrong"] = "first"
    keep: bool = False
    other_kernels: tuple[OtherKernel, ...] = ()
    warps: tuple[int, ...] = ()
    version: int = VERSION

    @property
    def definition(self) -> Definition | None:
        """Return where the kernel stands that is asked for; None where none is, or only its name is known."""
        return self.start.definition if isinstance(self.start, SpecStart) else self.tool_kernel

    @property
    def driver(self) -> Driver | None:
        """Return the driver that launches the kernel; None where something else does."""
        return self.start.driver if isinstance(self.start, DriverStart) else None

    @property
    def project_program(self) -> Driver | None:
        """Return the program of the project that launches the kernel; None where something else does."""
        return self.driver if self.driver and self.driver.kind == "program" else None

    @property
    def is_program(self) -> bool:
        """Whether it is about a program that is built of C++ and CUDA: the file's own, or one of its project."""
        by_file = isinstance(self.start, ProgramStart)
        return self.language == "cuda" and (by_file or self.project_program is not None)

    @property
    def is_traced(self) -> bool:
        """Whether torch.profiler records it."""
        return isinstance(self.start, ProgramStart) and self.start.traced

    @property
    def working_folder(self) -> str:
        """Where its program runs."""
        folder = self.directory or str(Path(self.path).parent)
        return str(Path(folder, self.driver.folder)) if self.driver and self.driver.folder else folder

    @property
    def is_script(self) -> bool:
        """Whether Python runs it, and not the system."""
        return self.path.lower().endswith(".py")


@dataclass(frozen=True, slots=True)
class Cancel:
    run: str


@dataclass(frozen=True, slots=True)
class Locate:
    """End a run as if it had reached its limit, and see where the warps of its kernel stand."""

    run: str


@dataclass(frozen=True, slots=True)
class Probe:
    """Ask what this machine has; answered by `Machine`."""

    run: str
    nvcc: str | None = None


@dataclass(frozen=True, slots=True)
class Warm:
    """Prepare for jobs of this language before the first one; no code of the user is run."""

    run: str
    language: Literal["cuda", "triton"]


@dataclass(frozen=True, slots=True)
class Typing:
    """What the device front end says of a CUDA file that is typed, quickly; answered by one `Built`, not `complete` where that
    is not known. With `start` the front end is made to wait with the file's headers parsed, which takes seconds.
    """

    run: str
    job: Job
    start: bool = False


Request = Job | Cancel | Locate | Probe | Warm | Typing


@dataclass(frozen=True, slots=True)
class Manifest:
    """The files that a job needs, as a tree: what `orbit_lsp.closure` found, what `files.Store` writes.

    `root` names the tree: the content hash of the author's folder. `files` maps paths relative to it,
    with `/` between their parts, to the content hash (`content_hash`) of each file.
    """

    root: str
    files: dict[str, str] = field(default_factory=dict[str, str])


DEBUGGING = ("numpy", "debugpy")
"""Distributions that debugging a Triton kernel needs beside torch and triton."""

NOT_LAUNCHED = "not launched"
"""`Problem.code` of a memory check where the kernel that was asked for never ran: nothing of it was checked."""

STANDS = "stands here"
"""`Problem.code` of a line on which warps stood when their kernel was ended."""


# -- what comes back --------------------------------------------------------------------------------


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
class Timing:
    """Device time of several launches of one configuration, in nanoseconds.

    `low` and `high` are the 20 % and 80 % quantiles and `spread` half their distance over the
    median, `deviation` the standard deviation of the launches; they are None where `n` is under five. `p95` is None
    under 20 launches and `p99` under 100, where they would be the longest launch. `label` says what kind of launches
    these were. `under`, in nanoseconds, is set where the median is shorter than what the recording can tell from
    nothing: the numbers are then its noise, and all that is known is that the kernel takes less than this.
    `sm_clock_mhz` is the mean SM clock while such launches ran, by the multiprocessors' own counters.
    """

    n: int
    median: float
    label: str
    low: float | None = None
    high: float | None = None
    spread: float | None = None
    minimum: float | None = None
    maximum: float | None = None
    first: float | None = None
    samples: tuple[int, ...] = ()
    clock: str = "CUPTI activity records"
    error: float | None = None
    stopped: Literal["", "precise", "cap"] = ""
    dropped: int = 0
    sm_clock_mhz: float | None = None
    mean: float | None = None
    deviation: float | None = None
    p95: float | None = None
    p99: float | None = None
    under: float | None = None


@dataclass(frozen=True, slots=True)
class Tried:
    """A configuration that autotuning tried: the language's own median in nanoseconds, None where it did not run."""

    configuration: str
    median: float | None = None
    chosen: bool = False


@dataclass(frozen=True, slots=True)
class Resident:
    """Theoretical occupancy of a launch: how many of its blocks, and warps, one multiprocessor holds at once. `fraction` is
    of the most warps that it can hold, `limited_by` what keeps it from holding more; empty where it holds all.
    """

    fraction: float
    blocks: int
    warps: int
    limited_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Launches:
    """Every launch of one kernel instance with one launch configuration, in one run.

    Of launches of ours, `timing` is with a cold L2 and `warm` with one that holds what fits in it.

    `kernels` is set where this is a whole call of the author's function (`ModelNew`, `custom_kernel`), from its
    first kernel's start to its last one's end: how many kernels one call launches. Grid and block are then
    of the one that takes longest, (0, 0, 0) where there is none or it could not be recorded.
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
    """One `expect` or `reference` of a launch spec, or one output of a contract, compared.

    `differing` of `elements` were outside `atol + rtol * |expected|` (+ `chain` for long sums, see
    `dtypes.Tolerance`); `index`, `actual` and `expected` are of the first of them, numbers as
    Python writes them. `error` is the largest |actual - expected| of all finite elements. `when` says
    which launch it was: before timing, or once more with other data after it. `message` is what a
    contract's own check said; nothing is counted then, and `elements` is 0.
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
class AgainstReference:
    """One version against another, their calls timed in turn with a cold L2 (`measure.compare`).

    `ratio` is this version's time over that of the one it is `against`; it lies from `low` to `high` at 99 %.
    """

    against: str
    verdict: Literal["faster", "slower", "inconclusive"]
    ratio: float
    low: float | None = None
    high: float | None = None
    pairs: int = 0


@dataclass(frozen=True, slots=True)
class Point:
    """A launch spec run with one set of values: timed, or only checked where it is a `case`.

    `values` are those of the swept (or the case's) names, as a reader writes them. `bytes` and `flops`
    are what the author declares of all launches together; `footprint` is the memory, in bytes, that
    their arguments name. Of a contract there is a point for each version, which `values["version"]` names, and
    a case for each of its tests.
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
class Metric:
    """A counter under NVIDIA's own name and in the unit that the report gives (`ns`, `%`, `byte/second`, ``)."""

    name: str
    value: float
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Advice:
    """What one of NVIDIA's rules found. `speedup` is its estimate in per cent, of the whole kernel
    (`global`) or of the part it speaks of (`local`); None where the rule gives none.
    """

    rule: str
    section: str
    title: str
    message: str
    speedup: float | None = None
    scope: Literal["global", "local", ""] = ""


@dataclass(frozen=True, slots=True)
class Line:
    """What was counted of one line of the author's.

    `samples` are warp samples, `stalls` the same by reason (`long_scoreboard`, `selected` where the warp issued).
    Code that was inlined from elsewhere (headers, Triton's library) is charged to the author's line that
    called it; `inside` has that part's samples by the line they were taken in (`standard.py:170`).
    `instructions` are warp instructions executed. `sectors` of 32 bytes were moved between L1 and L2 by its global
    accesses where `ideal_sectors` would do; `wavefronts` were its passes over shared memory where
    `ideal_wavefronts` would do; `local_sectors` are of local memory (spills, arrays). None where the report
    does not say.
    """

    file: str
    line: int
    samples: int = 0
    stalls: dict[str, int] = field(default_factory=dict[str, int])
    inside: dict[str, int] = field(default_factory=dict[str, int])
    instructions: int | None = None
    sectors: int | None = None
    ideal_sectors: int | None = None
    wavefronts: int | None = None
    ideal_wavefronts: int | None = None
    local_sectors: int | None = None


@dataclass(frozen=True, slots=True)
class Profile:
    """One launch as the GPU's counters saw it, replayed as often as they needed.

    `launch` is which profiled launch of its kernel with its configuration it was, from 0. `tier` is `counters`
    where Nsight Compute was permitted them; `times` where it was not: metrics and lines are then empty, `why` says
    what refused and what would enable them, and times and resources stand in the run's `launches`. `metrics` are by
    NVIDIA's names; one that is missing or not a number is not there. `samples` counts all warp samples, those
    without a line too. `tool` is ncu's version.
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


@dataclass(frozen=True, slots=True)
class Dump:
    """What the compiler made, at one level, of an instance of a kernel that was profiled, or compiled for its `levels`.

    `instance` counts those of one symbol from 0: a JIT gives several one name; `constants` tell them apart. The one of
    the longest profiled launch comes first. `text` is compressed by zlib and in base64; of a profile, the author's side
    keeps it as a file and empties the field.
    """

    symbol: str
    name: str
    level: Level
    instance: int = 0
    constants: dict[str, str] = field(default_factory=dict[str, str])
    text: str = ""


@dataclass(frozen=True, slots=True)
class Device:
    """The GPU as NVML and the driver name it.

    `reached` are rates per second that a short calibration on this very GPU and driver came to, by the keys of
    `calibration.SOURCES` (`dram` in bytes, `fp32` and `fp16 tensor` in operations); empty where there was none yet.
    `exclusive`: one process at a time may use it (its compute mode).
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


@dataclass(frozen=True, slots=True)
class TelemetrySeries:
    """NVML over time: of each moment, in seconds from the first, what it said then; None where it said nothing.

    `utilization` is the share of the time, in per cent, in which any kernel ran: NVML's own mean over its last period.
    """

    at_s: tuple[float, ...]
    sm_clock_mhz: tuple[float | None, ...] = ()
    power_w: tuple[float | None, ...] = ()
    utilization: tuple[float | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Telemetry:
    """NVML while the kernels ran; each triple is [lowest, median, highest] of the samples.

    `throttle_reasons` is None where the GPU does not report them, empty where it reported none. `utilization` as in
    `TelemetrySeries`. `energy_j` is what the whole GPU used from the first sample to the last, by its own counter, which
    advances in steps of `energy_step_j`; None where it has none, or did not advance. `busy` is the share of that time
    in which kernels that were recorded ran.
    """

    samples: int
    sm_clock_mhz: tuple[float, float, float] | None = None
    memory_clock_mhz: tuple[float, float, float] | None = None
    temperature_c: tuple[float, float, float] | None = None
    power_w: tuple[float, float, float] | None = None
    memory_used: int | None = None
    throttle_reasons: tuple[str, ...] | None = None
    default_sm_clock_mhz: int | None = None
    utilization: tuple[float, float, float] | None = None
    energy_j: float | None = None
    energy_step_j: float | None = None
    busy: float | None = None
    series: TelemetrySeries | None = None


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
    """Kernels of one name in a call; `library` is whose they are, empty for the candidate's own. `ns` is of all of them."""

    name: str
    library: str
    count: int
    ns: int


@dataclass(frozen=True, slots=True)
class Judged:
    """What the judge knows beside the answers and the times. `suspicious` is why there is no score, empty where there is one.

    `flag_ns` is by the clock that is the score, whose name is `clock`: the time between two flags of the candidate's stream, that from the
    judge's gate to the second, or with the host's part included. `verified_ns` is by the one that ends with right values in the judge's hands;
    the two agree within `resolution_ns`. What the recorder in the candidate's process says of one call: `recorded_ns`, the time in which
    at least one kernel ran, `own_share`, `streams` and `kernels`. `kept_bytes` are GPU memory that its calls did not give back. Errors
    are against the reference in double precision, relative. `locks` held the candidate's process, `unlocked` did not.
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


@dataclass(frozen=True, slots=True)
class Cost:
    """What a run on a rented GPU is charged for, as far as the author's side saw it.

    `seconds` are its container's during the run, its start included where the run started it. `usd` are
    dollars for them at `rates`, in words whose prices these are; None where a price is not known.
    `idle_usd` is what the container costs if it waits for another run as long as it may; None where
    that is not known, or it does not wait.
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
    """A debugger's end of a session waits on this machine, for a client that speaks the debug adapter protocol. It is for
    one program instance of a kernel; `why` says why this one, empty for the first.
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
    """What a program that still runs has launched until now: all of it, not what is new. Its timings have no samples."""

    run: str
    launches: tuple[Launches, ...]
    kind: Literal["launched"] = "launched"


@dataclass(frozen=True, slots=True)
class Built:
    """The compiler is done. `files` are the sources it read (headers included), by content hash."""

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
    """A file that a program left in its folder: its path relative to it, with `/` between the parts, and its size in bytes.
    `content` is compressed by zlib and in base64; the author's side writes the file and empties the field.
    """

    path: str
    size: int
    content: str = ""


@dataclass(frozen=True, slots=True)
class RanSet:
    """One parameter set of a test that was a driver. `id` is pytest's, `launches` how many launches of each kernel, by
    symbol, began in it; `why` is the reason for which it was skipped.
    """

    id: str
    outcome: Literal["passed", "failed", "skipped"]
    seconds: float
    launches: dict[str, int] = field(default_factory=dict[str, int])
    why: str = ""


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of a run, always the last event with its id.

    `files` are the user's own files that were read besides the main one, by content hash. `points` are
    what a launch spec was run with; `launches` are then those of the first one. `report` is the profiler's own
    file, or a tar of the files that a compilation was to keep, compressed by zlib and in base64; the author's side keeps
    it as a file and empties the field. `dumps` are of
    the kernels of `profiles`, or of those that were compiled. `judged` is the judge's word, where it was asked for.
    `brought` are files that `exec` brings back. Of a traced run `report` is the trace, and `operators` are those that took longest.
    `sets` are the parameter sets of a driver that ran, in pytest's order, and `sets_left` counts those that did not.
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
    kind: Literal["finished"] = "finished"


@dataclass(frozen=True, slots=True)
class Profiler:
    """The `ncu` of a machine. `permitted` says whether it may read the GPU's counters, None where nothing has been
    tried and the driver does not say. Where it may not, `why` is the sentence who refuses and what would enable it.
    """

    path: str
    version: str
    permitted: bool | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Machine:
    """What this machine has. `packages` maps a name to its version or None where it is missing; `sanitizer` is the
    version of compute-sanitizer, looked for where there is a GPU.

    `python_path` are the folders that its Python looks for modules in besides its own installation's:
    of PYTHONPATH and of packages installed for editing.
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
    kind: Literal["machine"] = "machine"


def ok(run: str, **known: Any) -> Finished:
    """A run that did what was asked; `known` are fields of `Finished`."""
    return Finished(run, "ok", **known)


def failed(run: str, failure: Failure, **known: Any) -> Finished:
    """A run that failed for this reason; `known` are fields of `Finished`."""
    return Finished(run, failure.category, failure, **known)


Event = Stage | Output | Debugger | Launched | Built | Group | Finished | Machine


# -- on the wire (`wire` reads what this writes) ----------------------------------------------------


def encode(message: Event | Request) -> str:
    """One line of JSON; requests gain the `kind` that names them."""
    data = _values(message)
    data.setdefault("kind", type(message).__name__.lower())
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"), default=_values)


def _values(record: object) -> dict[str, Any]:
    """A message's fields: `dataclasses.asdict` would copy each time of thousands of launches."""
    return {name: getattr(record, name) for name in _names(type(record))}


@functools.cache
def _names(cls: Any) -> tuple[str, ...]:
    """Raises TypeError for a class that is no dataclass."""
    return tuple(field.name for field in dataclasses.fields(cls))


def content_hash(content: bytes) -> str:
    """The hash by which both sides name a file's content."""
    return hashlib.blake2b(content, digest_size=16).hexdigest()
