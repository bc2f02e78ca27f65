"""What the author's side asks of the GPU side, above all jobs. `messages` has the answers, and says how both are
written.
"""

from __future__ import annotations

import shlex
from dataclasses import field
from pathlib import Path
from typing import Literal

from orbit_remote.common.lazy_dataclass import dataclass

VERSION = 4
"""Raised when a field of a request changes; the worker and the app on Modal refuse requests of another version."""
Action = Literal[
    "compile", "disassemble", "report", "build", "run", "debug", "profile", "sanitize", "calibrate"
]
Level = Literal["ttir", "ttgir", "llir", "ptx", "sass"]
"""What a compiler makes of a kernel, one after the other: Triton's IR, its IR for GPUs, LLVM's, PTX, and machine code."""
Grade = Literal["author", "referee"]
"""How far a measurement can be trusted: an author's shares the process with the code that it measures."""
Policy = Literal["libraries", "precision"]
"""What a problem may forbid though the answer is right: that libraries' kernels do the work, that it is computed in less than the
reference's precision."""
Through = Literal["program", "spec", "contract", "exec", "driver"]
"""What starts a kernel, in a word: the tag of each `Start`."""
BY_AUTHOR: frozenset[Through] = frozenset(("program", "driver"))
"""The author's own code launches kernels, as often as it likes."""


@dataclass(frozen=True, slots=True)
class KernelDefinition:
    """Where the kernel to be launched stands in the text. Lines and columns count from 0.

    `start_line` is the first line of the whole definition (template header, first decorator), `line` that of
    `__global__` or `def`. (`name_line`, `name_end`) is where its name ends, `end_line` is the last line of all.
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

    `guessed` are the names whose values the file does not tell; `unknown` are those of them that decide a constant of
    the kernel. Of the kernel's parameters, `assumed` are those whose types follow from a guess, as a guessed tensor's
    does. `sized` are those of which a guess decides only the value: `x.shape[0]` is an integer whatever `x` is.
    `caller` is the function with which the calls that lead to the launch begin, and whose arguments are taken; "" if
    no call of the launching function is known.
    """

    kernel: str
    line: int
    statements: tuple[str, ...]
    guessed: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    sized: tuple[str, ...] = ()
    caller: str = ""


@dataclass(frozen=True, slots=True)
class OtherKernel:
    """A kernel of a Python file in a language other than Triton, at the line of its name (from 1). While it runs only
    its language knows it: its launches are recognised by their names (`symbols`).
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
    """The file's own way in launches the kernel. torch.profiler records a `traced` run of a Python file."""

    traced: bool = False
    through: Literal["program"] = "program"


@dataclass(frozen=True, slots=True)
class SpecStart:
    """The launch spec above `definition` launches the kernel. `stored` are files of captured tensors that replace
    those in the kernel file's folder, by name: their bytes, compressed by zlib and in base64. `record` is the folder
    of a launch that was taken from a program: the spec only names the kernel, and a spec that replays that launch is
    made.
    """

    definition: KernelDefinition
    stored: dict[str, str] = field(default_factory=dict[str, str])
    record: str = ""
    through: Literal["spec"] = "spec"


@dataclass(frozen=True, slots=True)
class ContractStart:
    """A contract that the file keeps launches kernels: KernelBench's `ModelNew`, popcorn's `custom_kernel`. `grade`
    is the one that was asked for: a `referee` runs the file's code in a process of its own (`orbit_remote.judge`). It
    gives no score to what a policy forbids, unless `allow` has the policy.
    """

    grade: Grade = "author"
    allow: tuple[Policy, ...] = ()
    through: Literal["contract"] = "contract"


@dataclass(frozen=True, slots=True)
class ExecStart:
    """A script or any program runs, as the name of the job's `path` says (`Job.is_script`). `text` is the script's.

    `mount` is the author's folder of which the job's `directory` is a copy. On the same machine the worker makes the
    copy, from `files`, paths relative to `mount`. Files that match the patterns `bring` come back as
    `Finished.brought`.
    """

    mount: str = ""
    files: tuple[str, ...] = ()
    bring: tuple[str, ...] = ()
    through: Literal["exec"] = "exec"


@dataclass(frozen=True, slots=True)
class Capture:
    """One launch of the job's kernel is to be taken. It is number `launch`, counted from 1, else the first with this
    `grid` and with those of these `constants` that the kernel has; else the first of all. For a CUDA kernel it has
    this `block` and this mangled name too.
    """

    launch: int | None = None
    grid: tuple[int, ...] = ()
    constants: dict[str, str] = field(default_factory=dict[str, str])
    block: tuple[int, ...] = ()
    symbol: str = ""


@dataclass(frozen=True, slots=True)
class DriverStart:
    """A test, a script or a program of the project in the job's `directory` launches the kernel, which is in the file
    at `path`.

    `texts` are the texts of open Python files by path, which replace what is saved. For a program they are those of
    open C++ files, which have to be saved. Of a test only the parameter `sets` run (pytest's ids), if any are named.
    A `repeated` test or script runs several times, until its kernels have been launched often enough for a median.
    `sources` are those of a program as far as texts tell, as paths in `directory`. `runs_in` is the folder in which
    it runs, once it is built and the project has said that. With `capture` one launch is taken for a launch spec.
    `built_as` is another copy of the project: where this one was not configured yet, it is configured as that one is.
    """

    driver: Driver
    texts: dict[str, str] = field(default_factory=dict[str, str])
    sets: tuple[str, ...] = ()
    repeated: bool = False
    sources: tuple[str, ...] = ()
    runs_in: str = ""
    capture: Capture | None = None
    built_as: str = ""
    through: Literal["driver"] = "driver"


Start = ProgramStart | SpecStart | ContractStart | ExecStart | DriverStart
"""What starts a kernel, with all that only this way needs."""


@dataclass(frozen=True, slots=True)
class Job:
    """One piece of work for a worker. `action` says what is done with the file. `compile` compiles it, `run` builds
    and runs it, and `build` builds it so that a later run finds it built (CUDA only). `profile` runs it under Nsight
    Compute, which counts one launch of `kernel` in each of its configurations. `sanitize` runs it under
    compute-sanitizer, with each of `tools` (memcheck, racecheck, initcheck, synccheck) in turn. `disassemble` is
    about compiled code, which `text` then holds in base64. `calibrate` measures what the GPU reaches; only the worker
    asks for it. `debug` interprets a Triton kernel on the CPU. It stops in the program instance that `instance`
    names: the first one, or the one that writes the first wrong element.

    `path` is where the author knows the file to be. `text` is what the editor has, which may not be saved. `flags`
    are compiler flags that have already passed the author's trust rule. `architecture` is nvcc's spelling (`sm_90a`),
    or None for that of the GPU that will run it. `gpu` is the GPU that is asked for elsewhere (`H100`, `H100:2`). It
    is None for this machine's own GPUs, of which the job gets `gpus`, from number `device` on. Imports are looked up
    last in the folders `roots`, such as those of an editable install. `restricted` says that the code is not the
    author's. Then it runs on Modal, in a container for it alone, or not at all.

    `start` says what starts the kernel, and has everything that only this way to start it needs. `tool_kernel` is the
    kernel that a tool or a debugger is for, if no launch spec stands above it. The program runs in `directory`, with
    `arguments` and `stdin`; `variables` (`NAME=value`) are added to its environment.

    A compilation reports the instances that the launch specs of `templates` name. `host_launches` are launches in a
    Python file's own code, for the kernels that have no launch spec. `other_kernels` are those of a Python file. A
    compilation sends the compiler's output of each of `levels` back, as `Finished.dumps`. With `keep` it also keeps
    its own files (command line, log, intermediate code), and sends them as `Finished.report`. A Triton file's kernels
    are also compiled with each of `warps` as `num_warps`.

    A `batch` waits for the GPU behind jobs that somebody has clicked. A profile collects `sections` of Nsight
    Compute, if any are named, instead of those of its `detail`.
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
    tool_kernel: KernelDefinition | None = None
    templates: tuple[KernelDefinition, ...] = ()
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
    def definition(self) -> KernelDefinition | None:
        """Return the place of the kernel that is asked for. Return None if no kernel is, or only its name is known."""
        return self.start.definition if isinstance(self.start, SpecStart) else self.tool_kernel

    @property
    def driver(self) -> Driver | None:
        """Return the driver that launches the kernel, or None if something else does."""
        return self.start.driver if isinstance(self.start, DriverStart) else None

    @property
    def project_program(self) -> Driver | None:
        """Return the program of the project that launches the kernel, or None if something else does."""
        return self.driver if self.driver and self.driver.kind == "program" else None

    @property
    def is_program(self) -> bool:
        """Say whether the job is about a program that is built from C++ and CUDA: the file's own, or one of its
        project.
        """
        by_file = isinstance(self.start, ProgramStart)
        return self.language == "cuda" and (by_file or self.project_program is not None)

    @property
    def is_refereed(self) -> bool:
        """Say whether the judge carries it out. The judge begins before CUDA does, and so not in a spare."""
        return (
            isinstance(self.start, ContractStart) and self.start.grade == "referee" and self.action == "run"
        )

    @property
    def is_traced(self) -> bool:
        """Say whether torch.profiler records the job."""
        return isinstance(self.start, ProgramStart) and self.start.traced

    @property
    def working_folder(self) -> str:
        """Return the folder in which the job's program runs."""
        if isinstance(self.start, DriverStart) and self.start.runs_in:
            return self.start.runs_in
        folder = self.directory or str(Path(self.path).parent)
        return str(Path(folder, self.driver.folder)) if self.driver and self.driver.folder else folder

    @property
    def is_script(self) -> bool:
        """Say whether Python runs the file, rather than the system."""
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
    """Ask what the device front end says of a CUDA file that is typed, quickly. The answer is one `Built`; it is not
    `complete` if that is not known. With `start` the front end is made to wait with the file's headers parsed, which
    takes seconds.
    """

    run: str
    job: Job
    start: bool = False


Request = Job | Cancel | Locate | Probe | Warm | Typing


@dataclass(frozen=True, slots=True)
class Manifest:
    """The files that a job needs, as a tree: `orbit_lsp.closure` finds them, `ContentStore` writes them.

    `root` names the tree: the content hash of the author's folder. `files` maps paths relative to it, with `/`
    between their parts, to the content hash (`content_hash`) of each file.
    """

    root: str
    files: dict[str, str] = field(default_factory=dict[str, str])
