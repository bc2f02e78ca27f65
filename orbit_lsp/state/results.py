"""The last results of kernels: of compilers, runs, profiles, memory checks and comparisons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from orbit_lsp.state.kernel_ids import KernelId
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.measurements import Timing
from orbit_remote.common.messages import (
    Cost,
    Failure,
    Finished,
    Launches,
    Outcome,
    Problem,
    Profile,
    Resources,
)
from orbit_remote.common.requests import Driver, Level, Through

if TYPE_CHECKING:
    from orbit_remote.common.measure import AbVerdict, Difference, Regression

T = TypeVar("T")


def renamed(value: T, names: Mapping[str, str]) -> T:
    """Return the same value with new names for the texts that are keys of `names`, at any depth. Parts of texts stay."""
    untyped: Any = value
    kinds: Any = type(untyped).__mro__
    made: Any = untyped
    if str in kinds:
        made = names.get(untyped, untyped)
    elif dict in kinds:
        made = {renamed(key, names): renamed(each, names) for key, each in untyped.items()}
    elif tuple in kinds and hasattr(untyped, "_fields"):
        made = kinds[0](*(renamed(each, names) for each in untyped))
    elif any(kind in kinds for kind in (tuple, list, set, frozenset)):
        made = kinds[0](renamed(each, names) for each in untyped)
    elif is_dataclass(kinds[0]):
        parts = {each.name: getattr(untyped, each.name) for each in fields(untyped)}
        made = replace(untyped, **{name: renamed(part, names) for name, part in parts.items()})
    return made if made != untyped else value


@dataclass(frozen=True, slots=True)
class CompilerFigures:
    """What the compiler reported about a kernel's instances.

    `digest` is the hash of the tokens that were compiled, `inputs` of the job's settings. `files` maps the other
    files that were read to their content hashes. If the figures are of several architectures, `not_compiled` says for
    each why it has none.
    """

    digest: str
    resources: tuple[Resources, ...]
    inputs: str
    files: dict[str, str]
    not_compiled: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class RunResult:
    """The last finished run of a kernel. `launches` is empty if the program never launched it.

    `asked` is the kernel that was clicked. Its launch spec made the job: the spec's `lines` are kept here, with the
    types of its tensors (`elements`). `difference` is to the version before, if Live runs the kernel. `driver` is the
    program, the test or script that launched it.
    """

    digest: str
    at: float
    finished: Finished
    launches: tuple[Launches, ...]
    inputs: str
    files: dict[str, str]
    through: Through = "program"
    asked: KernelId | None = None
    lines: str = ""
    elements: tuple[str, ...] = ()
    difference: Difference | None = None
    driver: Driver | None = None


@dataclass(frozen=True, slots=True)
class Route:
    """A driver, and the `way` that leads from the kernel to it. A driver of lower `cost` is a better guess. `cases`
    is how many parameter sets the text says the test has. `sources` are those of a program, relative to the project's
    folder, as far as build files name them.
    """

    driver: Driver
    way: tuple[str, ...]
    cost: float
    cases: int = 1
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Routes:
    """The routes of a kernel, best first. If there are none, `reason` says why in a sentence. `helper`: only other
    kernels call it. `caller` is the path and the text of the first test or script, in another file, that leads to a
    kernel of a Python file.
    """

    routes: tuple[Route, ...] = ()
    reason: str = ""
    helper: bool = False
    caller: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Learned:
    """What a run showed about a driver and a kernel: how many launches there were, in how many seconds. `sets` are
    the parameter sets of a test that are enough to launch it.
    """

    launches: int
    seconds: float
    sets: tuple[str, ...] = ()

    @classmethod
    def of(cls, finished: Finished, launches: tuple[Launches, ...]) -> Learned:
        """Learn from a run. `launches` are those of the kernel. If a test has several sets, the quickest that
        launched the kernel is enough.
        """
        symbols = {each.symbol for each in launches}
        launching = [each for each in finished.sets if symbols & each.launches.keys()]
        quickest = min(launching, key=lambda each: each.seconds, default=None)
        several = len(finished.sets) + finished.sets_left > 1
        sets = (quickest.id,) if quickest and several else ()
        return cls(sum(each.count for each in launches), finished.run_s or 0.0, sets)

    def after(self, earlier: Learned | None) -> Learned:
        """Return this with the time of an earlier run if that was shorter and launched the kernel too: one run may
        have been repeated.
        """
        if earlier is None or not (earlier.launches and self.launches):
            return self
        return replace(self, seconds=min(self.seconds, earlier.seconds))


@dataclass(frozen=True, slots=True)
class FailedRun:
    """The last run or profile of a kernel that failed. It is kept until one of them succeeds.

    `digest` is as in `RunResult`; `at` is in seconds since 1970. `standing` says where the warps of a kernel stood
    that had to be ended.
    """

    digest: str
    at: float
    outcome: Outcome
    failure: Failure | None = None
    standing: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class Profiled:
    """The last profile of a kernel. `profiles` are of its instances and configurations, the longest launch first;
    empty if the program never launched it.

    `digest`, `inputs`, `files`, `through` and `asked` are as in `RunResult`. `texts` has the files that its lines
    mention, as they were when it ran, cut into lines, by path. `report` is our copy of Nsight Compute's own file,
    `dumps` the folder of what the compiler made; both are None after a restart. An `imported` profile was made by
    another program, on any machine. `before` is the profile before this one, without its own `before`.
    """

    digest: str
    at: float
    finished: Finished
    profiles: tuple[Profile, ...]
    inputs: str
    files: dict[str, str]
    through: Through = "program"
    asked: KernelId | None = None
    detail: Literal["click", "full", "imported"] = "click"
    texts: dict[str, tuple[str, ...]] = field(default_factory=dict[str, "tuple[str, ...]"])
    report: Path | None = None
    dumps: Path | None = None
    before: Profiled | None = None

    @property
    def main(self) -> Profile | None:
        """Return the profile that a single number is about."""
        return self.profiles[0] if self.profiles else None


@dataclass(frozen=True, slots=True)
class Moved:
    """A counter that differs between two profiles, in NVIDIA's unit. `name` is for people."""

    name: str
    metric: str
    before: float
    after: float
    unit: str


@dataclass(frozen=True, slots=True)
class AbResult:
    """The last comparison of a kernel with something else, which `against` names.

    `then` and `now` are pooled timings of all counted runs, or None if there were none. `runs` has the times of those
    runs in nanoseconds; the verdict is about them. `now_first` says of each pair whether this side ran first.
    `devices` are the GPUs by NVML's names: the other side's, then this one's. `digest` is that of the kernel as it
    ran. `comparison` is None if it ended before there was a verdict; `failure` has the reason.
    """

    digest: str
    at: float
    against: str
    comparison: AbVerdict | None = None
    then: Timing | None = None
    now: Timing | None = None
    runs: tuple[tuple[float, ...], tuple[float, ...]] = ((), ())
    now_first: tuple[bool, ...] = ()
    devices: tuple[str, str] = ("", "")
    moved: tuple[Moved, ...] = ()
    remarks: tuple[str, ...] = ()
    failure: Failure | None = None
    cost: Cost | None = None


@dataclass(frozen=True, slots=True)
class MemoryCheck:
    """The last memory check of a kernel that was completed. It is clean if no problem of `finished` is an error.

    `asked` and `through` say what launched it, as in `RunResult`.
    """

    digest: str
    at: float
    finished: Finished
    tools: tuple[str, ...]
    inputs: str
    files: dict[str, str]
    through: Through
    asked: KernelId


@dataclass(frozen=True, slots=True)
class Listing:
    """What the compiler made of a kernel at one level, without a run.

    `texts` are by instance (symbol, number). `lines` is the compiled file, cut into lines, and `path` the file that
    shows the texts.
    """

    texts: dict[tuple[str, int], str]
    lines: tuple[str, ...]
    path: Path


@dataclass(frozen=True, slots=True)
class GpuResult:
    """A kernel's part of a run on one of several GPUs. `gpu` is the name that was asked for. `usd_per_s` is the price
    of its whole container, by the prices that `rates` names; None if it is not known.
    """

    gpu: str
    finished: Finished
    launches: tuple[Launches, ...]
    usd_per_s: float | None = None
    rates: str = ""


@dataclass(frozen=True, slots=True)
class MultiGpuResult:
    """The last run of a kernel on several GPUs at the same time. `elements` is as in `RunResult`."""

    digest: str
    at: float
    rows: tuple[GpuResult, ...]
    elements: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Problems:
    """Messages of one source about one file, in the lines of text `version`."""

    version: int
    items: tuple[Problem, ...]


@dataclass(slots=True)
class Results:
    """The last results of each kind, by kernel. `problems` are by source and file."""

    figures: dict[KernelId, CompilerFigures] = field(default_factory=dict[KernelId, CompilerFigures])
    every_gpu: dict[KernelId, CompilerFigures] = field(default_factory=dict[KernelId, CompilerFigures])
    """The same compiled for every architecture, by one front end where that will do."""
    runs: dict[KernelId, RunResult] = field(default_factory=dict[KernelId, RunResult])
    profiles: dict[KernelId, Profiled] = field(default_factory=dict[KernelId, Profiled])
    failures: dict[KernelId, FailedRun] = field(default_factory=dict[KernelId, FailedRun])
    memory_checks: dict[KernelId, MemoryCheck] = field(default_factory=dict[KernelId, MemoryCheck])
    listings: dict[tuple[KernelId, Level], Listing | None] = field(
        default_factory=dict["tuple[KernelId, Level]", "Listing | None"]
    )
    """What somebody looks at, so that a compilation makes it again; None until one has."""
    multi_gpu: dict[KernelId, MultiGpuResult] = field(default_factory=dict[KernelId, MultiGpuResult])
    ab: dict[KernelId, AbResult] = field(default_factory=dict[KernelId, AbResult])
    regressions: dict[KernelId, tuple[str, Regression]] = field(
        default_factory=dict[KernelId, "tuple[str, Regression]"]
    )
    """Kernels whose history has a faster version, with the digest of the slower one."""
    versions: dict[KernelId, frozenset[str]] = field(default_factory=dict[KernelId, "frozenset[str]"])
    """Digests of the versions of a kernel whose text its history keeps."""
    so_far: dict[KernelId, tuple[str, tuple[Launches, ...]]] = field(
        default_factory=dict["KernelId", "tuple[str, tuple[Launches, ...]]"]
    )
    """What a program has launched that still runs, with the id of its run."""
    learned: dict[KernelId, dict[Driver, Learned]] = field(
        default_factory=dict["KernelId", "dict[Driver, Learned]"]
    )
    """What the last run of each driver showed of a kernel, with the time of the shortest one."""
    pinned: dict[KernelId, Driver] = field(default_factory=dict["KernelId", "Driver"])
    """The drivers that the author has chosen for kernels."""
    problems: dict[tuple[str, str], Problems] = field(default_factory=dict["tuple[str, str]", Problems])

    def learn(self, target: KernelId, driver: Driver, learned: Learned) -> None:
        of_kernel = self.learned.setdefault(target, {})
        of_kernel[driver] = learned.after(of_kernel.get(driver))

    def rename(self, names: Mapping[str, str]) -> None:
        """Move what is known about files to their new names; `names` has both the URIs and the paths. What was known
        about a file with the new name is dropped. Problems do not move: their lines are those of a text that was
        closed.
        """
        for each in fields(self):
            known: dict[Any, Any] = getattr(self, each.name)
            mine = {key: known[key] for key in known if renamed(key, names) != key}
            for key, value in mine.items() if known is not self.problems else ():
                del known[key]
                known[renamed(key, names)] = renamed(value, names)

    def uris(self) -> set[str]:
        """Return the URIs of the files about which something is known."""
        known = (
            self.figures,
            self.runs,
            self.profiles,
            self.failures,
            self.memory_checks,
            self.multi_gpu,
            self.ab,
        )
        return {target.uri for targets in known for target in targets}

    def forget_problems(self, uri: str) -> None:
        """Forget the problems of a file that was closed."""
        for source, about in [known for known in self.problems if known[1] == uri]:
            del self.problems[source, about]

    def forget_listings(self, uri: str) -> None:
        """Forget the listings of a file that was closed: they are not made any more."""
        self.listings = {key: listing for key, listing in self.listings.items() if key[0].uri != uri}

    def levels(self, uri: str) -> tuple[Level, ...]:
        """Return which levels a compilation of this file has to send back."""
        return tuple(sorted({level for target, level in self.listings if target.uri == uri}))

    def keep_problems(self, source: str, about: dict[str, Problems]) -> set[str]:
        """Replace everything that `source` reported. Return the uris whose diagnostics changed."""
        gone = {uri for known, uri in self.problems if known == source}
        for uri in gone:
            del self.problems[source, uri]
        for uri, problems in about.items():
            self.problems[source, uri] = problems
        return gone | set(about)
