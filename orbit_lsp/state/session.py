"""What the server knows. Read and written only on the event loop, so it has no locks."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from orbit_lsp import kernels
from orbit_lsp.kernels import Kernel, Scan, Tracker
from orbit_lsp.state.documents import Change, Document, Encoding
from orbit_remote.common.messages import (
    Cost,
    Failure,
    Finished,
    Job,
    Launches,
    Machine,
    Problem,
    Profile,
    Resources,
    State,
    Timing,
)

if TYPE_CHECKING:
    from orbit_lsp.state.checked_specs import CheckedSpec, SpecKey, SpecLines
    from orbit_lsp.state.config import Settings
    from orbit_remote.common.measure import AbVerdict, Difference, Regression


class KernelId(NamedTuple):
    """Names a kernel across edits; its place is always looked up in the present text."""

    uri: str
    key: str


@dataclass(slots=True)
class OpenFile:
    document: Document
    tracker: Tracker

    @property
    def scan(self) -> Scan:
        """Of the present text: edits cost nothing until somebody asks."""
        return self.tracker.scan(self.document.text)


@dataclass(frozen=True, slots=True)
class Frozen:
    """A file as it was when a job was made: what its answers' positions refer to."""

    uri: str
    version: int
    text: str
    scan: Scan


@dataclass(frozen=True, slots=True)
class Figures:
    """What the compiler said of a kernel's instances.

    `digest` is of the tokens they were compiled from, `inputs` of the job's settings and `files` maps
    the other files that were read to their content hashes.
    """

    digest: str
    resources: tuple[Resources, ...]
    inputs: str
    files: dict[str, str]


@dataclass(frozen=True, slots=True)
class Result:
    """The last finished run of a kernel. `launches` is empty where the program never launched it.

    `asked` is the kernel that was clicked: its launch spec made the job, in the `lines` that are kept
    here, with tensors of these `elements`. `difference` is to the version before, where Live runs it.
    """

    digest: str
    at: float
    finished: Finished
    launches: tuple[Launches, ...]
    inputs: str
    files: dict[str, str]
    through: Literal["program", "spec", "contract"] = "program"
    asked: KernelId | None = None
    lines: str = ""
    elements: tuple[str, ...] = ()
    difference: Difference | None = None


@dataclass(frozen=True, slots=True)
class Profiled:
    """The last profile of a kernel: `profiles` are of its instances and configurations, the longest launch first;
    empty where the program never launched it.

    `digest`, `inputs`, `files`, `through` and `asked` as in `Result`. `texts` are the files that its lines speak of
    as they were when it ran, cut into lines, by path. `report` is Nsight Compute's own file, as it is kept here,
    `dumps` the folder of what the compiler made; both are None after a restart.
    `before` is the profile before this one, without the one before that.
    """

    digest: str
    at: float
    finished: Finished
    profiles: tuple[Profile, ...]
    inputs: str
    files: dict[str, str]
    through: Literal["program", "spec", "contract"] = "program"
    asked: KernelId | None = None
    detail: Literal["click", "full"] = "click"
    texts: dict[str, tuple[str, ...]] = field(default_factory=dict[str, "tuple[str, ...]"])
    report: Path | None = None
    dumps: Path | None = None
    before: Profiled | None = None

    @property
    def main(self) -> Profile | None:
        """The one that a single number speaks of."""
        return self.profiles[0] if self.profiles else None


@dataclass(frozen=True, slots=True)
class Moved:
    """A counter of two profiles that is another in the second, in NVIDIA's unit; `name` is for people."""

    name: str
    metric: str
    before: float
    after: float
    unit: str


@dataclass(frozen=True, slots=True)
class AbResult:
    """The last time that a kernel was run in turn with something else, by the name `against`.

    `then` and `now` are all launches of all of its counted runs; None where it did not come to one. `runs` are the times
    of those runs in nanoseconds, which the verdict is of, and `devices` the GPUs by NVML's names: the other side's, then
    this one's. `digest` is that of the kernel as it ran. `comparison` is None where it ended before there was a verdict,
    for the reason of `failure`.
    """

    digest: str
    at: float
    against: str
    comparison: AbVerdict | None = None
    then: Timing | None = None
    now: Timing | None = None
    runs: tuple[tuple[float, ...], tuple[float, ...]] = ((), ())
    devices: tuple[str, str] = ("", "")
    moved: tuple[Moved, ...] = ()
    remarks: tuple[str, ...] = ()
    failure: Failure | None = None
    cost: Cost | None = None


@dataclass(frozen=True, slots=True)
class MemoryCheck:
    """The last memory check of a kernel that came to its end: clean where no problem of `finished` is an error.

    `asked` and `through` say what launched it, as in `Result`.
    """

    digest: str
    at: float
    finished: Finished
    tools: tuple[str, ...]
    inputs: str
    files: dict[str, str]
    through: Literal["program", "spec", "contract"]
    asked: KernelId


@dataclass(slots=True)
class Running:
    """A run that a kernel waits for; `began` is on the monotonic clock, when the click came."""

    run: str
    state: State = "queued"
    why: str = ""
    began: float = field(default_factory=time.monotonic)


@dataclass(frozen=True, slots=True)
class GpuResult:
    """A kernel's part of a run on one of several GPUs, `gpu` as it was asked for. `usd_per_s` is of its
    whole container by the prices that `rates` names; None where it is not known.
    """

    gpu: str
    finished: Finished
    launches: tuple[Launches, ...]
    usd_per_s: float | None = None
    rates: str = ""


@dataclass(frozen=True, slots=True)
class MultiGpuResult:
    """The last time a kernel was run on several GPUs side by side; `elements` as in `Result`."""

    digest: str
    at: float
    rows: tuple[GpuResult, ...]
    elements: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Warm:
    """A rented GPU that waits for a run: until when on the wall clock, None where it is at work or `kept`.

    `idle_usd` is what all of its idle time costs, `hourly` what it costs while it is kept (`$4.08/h`), by
    the prices that `rates` names; None and "" where they are not known.
    """

    until: float | None
    kept: bool = False
    idle_usd: float | None = None
    hourly: str = ""
    rates: str = ""


@dataclass(frozen=True, slots=True)
class Problems:
    """Messages of one source about one file, in the lines of text `version`."""

    version: int
    items: tuple[Problem, ...]


@dataclass(slots=True)
class Session:
    settings: Settings | None = None
    encoding: Encoding = "utf-16"
    files: dict[str, OpenFile] = field(default_factory=dict[str, OpenFile])
    figures: dict[KernelId, Figures] = field(default_factory=dict["KernelId", Figures])
    results: dict[KernelId, Result] = field(default_factory=dict["KernelId", Result])
    profiles: dict[KernelId, Profiled] = field(default_factory=dict["KernelId", Profiled])
    memory_checks: dict[KernelId, MemoryCheck] = field(default_factory=dict["KernelId", MemoryCheck])
    multi_gpu_results: dict[KernelId, MultiGpuResult] = field(
        default_factory=dict["KernelId", MultiGpuResult]
    )
    regressions: dict[KernelId, tuple[str, Regression]] = field(
        default_factory=dict["KernelId", "tuple[str, Regression]"]
    )
    """Kernels whose history has a faster version, with the digest of the slower one."""
    ab_results: dict[KernelId, AbResult] = field(default_factory=dict["KernelId", AbResult])
    in_git: set[str] = field(default_factory=set[str])
    """Open files that lie in a working tree of git."""
    running: dict[KernelId, Running] = field(default_factory=dict["KernelId", Running])
    problems: dict[tuple[str, str], Problems] = field(default_factory=dict["tuple[str, str]", Problems])
    reads: dict[str, dict[str, str]] = field(default_factory=dict[str, "dict[str, str]"])
    """The files that the last build of each open file read, by content hash."""
    compiled: dict[str, tuple[Job, int]] = field(default_factory=dict[str, "tuple[Job, int]"])
    """The last compile of each file, by path, if it found no mistake, and `disk` as it was then."""
    hashes: dict[str, str] = field(default_factory=dict[str, str])
    """Content hashes of files seen saved or changed on disk since the server started."""
    disk: int = 0
    """Grows with every such change."""
    flags: dict[str, tuple[str, ...]] = field(default_factory=dict[str, "tuple[str, ...]"])
    folders: list[str] = field(default_factory=list[str])
    machine: Machine | None = None
    modal_account: bool = False
    """Whether this machine has a token for Modal."""
    live: set[KernelId] = field(default_factory=set["KernelId"])
    """Kernels that are run again at every save."""
    warm: dict[str, Warm] = field(default_factory=dict[str, Warm])
    """Rented GPUs whose containers are warm."""
    can_ask: bool = False
    """Whether the client can put a question with answers to choose from."""
    specs: dict[str, dict[SpecKey, CheckedSpec]] = field(
        default_factory=dict[str, "dict[SpecKey, CheckedSpec]"]
    )
    """Launch specs that have been checked, by file; `spec_cache` alone reads and writes them."""
    spec_lines: dict[str, SpecLines] = field(default_factory=dict[str, "SpecLines"])
    looked_at: KernelId | None = None
    mirror_hints: bool = False
    """Publish hints as Hint diagnostics too: the client cannot be told to ask for hints again."""
    draws_lenses: bool = True
    draws_tables: bool = True
    """Whether the client's markdown has tables; elsewhere a person would read their pipes."""

    # -- documents ----------------------------------------------------------------------------

    def open(self, uri: str, version: int, text: str) -> OpenFile | None:
        """None for a file that is neither CUDA nor Python."""
        path = path_of(uri)
        language = kernels.language_of(path)
        if language is None:
            return None
        tracker = kernels.tracker(language, macros=self.macros(), headers=header_reader(path))
        file = OpenFile(Document(uri, path, version, text), tracker)
        self.files[uri] = file
        return file

    def change(self, uri: str, version: int, changes: list[Change]) -> None:
        if file := self.files.get(uri):
            file.document.apply(version, changes, self.encoding)

    def close(self, uri: str) -> None:
        self.files.pop(uri, None)
        self.reads.pop(uri, None)
        self.specs.pop(uri, None)
        self.spec_lines.pop(uri, None)
        self.compiled.pop(path_of(uri), None)
        for source, of in [k for k in self.problems if k[1] == uri]:
            del self.problems[source, of]

    def macros(self) -> tuple[str, ...]:
        return tuple(self.settings.kernel_macros) if self.settings else ()

    def rescan(self) -> None:
        """After a setting that discovery depends on has changed."""
        for file in self.files.values():
            headers = header_reader(file.document.path)
            file.tracker = kernels.tracker(file.scan.language, macros=self.macros(), headers=headers)

    def uri_for(self, path: str) -> str:
        """The uri under which the client has the file open, else a plain one."""
        for uri, file in self.files.items():
            if file.document.path == path:
                return uri
        return uri_of(path)

    def flags_for(self, path: str) -> tuple[str, ...]:
        """Compiler flags for a file, after the trust rule; known since it was opened or saved."""
        return self.flags.get(path, ())

    # -- kernels ------------------------------------------------------------------------------

    def freeze(self, uri: str) -> Frozen | None:
        if (file := self.files.get(uri)) is None:
            return None
        return Frozen(uri, file.document.version, file.document.text, file.scan)

    def kernels(self, uri: str) -> list[tuple[KernelId, Kernel, str]]:
        """(id, kernel, digest of what it depends on in this file) in the order of the file."""
        if (file := self.files.get(uri)) is None:
            return []
        return identify(uri, file.scan)

    def find(self, target: KernelId) -> Kernel | None:
        return next((kernel for found, kernel, _ in self.kernels(target.uri) if found == target), None)

    def at(self, uri: str, line: int) -> KernelId | None:
        """The kernel whose definition holds `line`."""
        for found, kernel, _ in self.kernels(uri):
            if kernel.whole.line <= line <= kernel.whole.end_line:
                return found
        return None

    # -- answers ------------------------------------------------------------------------------

    def keep_problems(self, source: str, about: dict[str, Problems]) -> set[str]:
        """Replace everything `source` said; returns the uris whose diagnostics changed."""
        gone = {uri for known, uri in self.problems if known == source}
        for uri in gone:
            del self.problems[source, uri]
        for uri, problems in about.items():
            self.problems[source, uri] = problems
        return gone | set(about)


def identify(uri: str, scan: Scan) -> list[tuple[KernelId, Kernel, str]]:
    """Every kernel of a scan with its id and digest; several of one name are numbered."""
    seen: dict[str, int] = {}
    found: list[tuple[KernelId, Kernel, str]] = []
    for kernel, digest in zip(scan.kernels, scan.digests, strict=True):
        count = seen[kernel.qualified] = seen.get(kernel.qualified, 0) + 1
        name = kernel.qualified if count == 1 else f"{kernel.qualified}#{count}"
        found.append((KernelId(uri, name), kernel, digest))
    return found


def path_of(uri: str) -> str:
    """The file's path, or the URI's own path for a scheme that is not a file (untitled:, …)."""
    parts = urlsplit(uri)
    path = unquote(parts.path)
    if os.name == "nt" and len(path) > 2 and path[0] == "/" and path[2] == ":":
        path = path[1:]
    return path


def uri_of(path: str) -> str:
    absolute = Path(path).as_posix()
    return "file://" + quote(absolute if absolute.startswith("/") else "/" + absolute)


_HEADER_BYTES = 4 << 20


def header_reader(path: str) -> Callable[[str], str | None]:
    """Reads the headers that a file includes from its own folder, for macros that name kernels."""
    folder = Path(path).parent

    def read(name: str) -> str | None:
        header = folder / name
        try:
            if not header.is_file() or header.stat().st_size > _HEADER_BYTES:
                return None
            return header.read_text(encoding="utf-8", errors="replace")
        except (OSError, ValueError):
            return None

    return read
