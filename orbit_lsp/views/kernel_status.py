"""What is known of one kernel now, compared with the present text. Hints, hovers and lenses are made from it."""

from __future__ import annotations

import functools
import re
import time
from dataclasses import replace
from pathlib import Path

from orbit_lsp.kernels import Kernel
from orbit_lsp.kernels.model import RUNNABLE, SPECIFIED
from orbit_lsp.specs import job_builder, launch_plan, spec_cache
from orbit_lsp.specs.launch_plan import LaunchPlan
from orbit_lsp.state import harness, staleness, units
from orbit_lsp.state.harness import HarnessEntry
from orbit_lsp.state.kernel_ids import KernelId
from orbit_lsp.state.results import CompilerFigures, FailedRun, Profiled, RunResult
from orbit_lsp.state.session import AwaitedRun, Frozen, Session, path_of
from orbit_remote.common import occupancy
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.messages import Launches, Resources

_MEMORY = re.compile(r"[ -](?:SXM|PCIe|NVL|HBM|\d+ ?GB)")
"""What follows a GPU's name in the driver's."""


@dataclass(frozen=True, slots=True)
class KernelStatus:
    """What is known of one kernel. `stale`, `figures_stale` and `profile_stale` say that the text, a header or a
    setting has changed since.
    """

    target: KernelId
    kernel: Kernel
    figures: CompilerFigures | None
    figures_stale: bool
    result: RunResult | None
    stale: bool
    running: AwaitedRun | None
    plan: LaunchPlan = launch_plan.PROGRAM
    digest: str = ""
    profile: Profiled | None = None
    profile_stale: bool = False
    failed: FailedRun | None = None
    so_far: tuple[Launches, ...] = ()
    """What a program has launched of it that still runs."""


def of(session: Session, uri: str) -> list[KernelStatus]:
    """Return the status of each kernel, in the order of the file."""
    frozen = session.freeze(uri)
    if frozen is None:
        return []
    known = session.kernels(uri)
    made = {target: launch_plan.of(session, uri, kernel, target) for target, kernel, _ in known}
    inputs = _Inputs(session, frozen, made)
    kernel_statuses: list[KernelStatus] = []
    for target, kernel, digest in known:
        figures = session.results.figures.get(target)
        result = session.results.runs.get(target)
        profile = session.results.profiles.get(target)

        def changed(figures: CompilerFigures | RunResult | Profiled, digest: str = digest) -> bool:
            return figures.digest != digest or session.disk.changed(path_of(uri), figures.files)

        # a build for a run has its launch spec's flags, and the figures of all kernels of the file
        figures_stale = figures is not None and (
            changed(figures)
            or (figures.inputs not in inputs.figures and figures.inputs not in inputs.of_builds)
        )
        cell = session.files[uri].cell  # what runs it has its own settings
        stale = result is not None and (
            changed(result)
            or (not cell and result.inputs != inputs.of(result.asked or target, result.through))
        )
        profile_stale = profile is not None and (
            changed(profile)
            or (
                not cell
                and profile.detail != "imported"  # which is of another machine anyway
                and profile.inputs != inputs.of(profile.asked or target, profile.through)
            )
        )
        failed = session.results.failures.get(target)
        if failed and failed.digest != digest and result and not stale:
            failed = None  # the failure is of another text; this text has a result, as after an undo
        running = session.running.get(target)
        plan = inputs.plans[target]
        kernel_statuses.append(
            KernelStatus(
                target, kernel, figures, figures_stale, result, stale, running, plan, digest, profile,
                profile_stale, failed,
                session.results.so_far.get(target, ("", ()))[1],
            )
        )  # fmt: skip
    return kernel_statuses


class _Inputs:
    """Computes `staleness.job_key` for the jobs that would be made now."""

    def __init__(self, session: Session, frozen: Frozen, known: dict[KernelId, LaunchPlan]) -> None:
        self._session = session
        self._frozen = frozen
        self._keys: dict[object, str] = {}
        self.plans = known
        self.compiled = self._key(launch_plan.PROGRAM)
        self.of_program = self.compiled
        if frozen.scan.language == "triton" and job_builder.inline_of(frozen):
            self.compiled = staleness.job_key(job_builder.make(session, frozen, "compile", ""))
        self.figures = {self.compiled, self._inferred()}
        """Of a compile, and of a run, which is for its GPU whatever architectures build files name; a compile of a Python file's
        strings is not what its run is.
        """

    def _inferred(self) -> str:
        file = self._session.files.get(self._frozen.uri)
        architecture = job_builder.figures_for(self._session, file) if file else ""
        if not architecture:
            return self.compiled
        job = job_builder.make(self._session, self._frozen, "run", "", launch_plan.PROGRAM)
        return staleness.job_key(replace(job, architecture=architecture))

    def of(self, asked: KernelId, through: str) -> str:
        """Return the key for a run of the kernel `asked`: by its launch spec, by the program or through a driver."""
        if through == "contract":
            return self._key(launch_plan.CONTRACT)
        if through == "driver":
            return self._key(launch_plan.DRIVER)
        plan = self.plans.get(asked, launch_plan.PROGRAM)
        if plan is launch_plan.PROGRAM or (through == "program" and plan.through != "program"):
            return self.of_program
        return self._key(plan)

    @functools.cached_property
    def of_builds(self) -> set[str]:
        """Return the keys for the runs of all kernels of the file."""
        return {self.of(target, "spec") for target in self.plans}

    def _key(self, plan: LaunchPlan) -> str:
        """Return a plan's key. Plans that differ in nothing that the key depends on share it, because making a job
        takes long for a file of many kernels.
        """
        same = plan.through, plan.gpu, plan.flags, plan.arguments, plan.stdin
        if same not in self._keys:
            job = job_builder.make(self._session, self._frozen, "run", "", plan)
            self._keys[same] = staleness.job_key(job)
        return self._keys[same]


def is_started(session: Session, known: KernelStatus) -> bool:
    """Say whether something launches a kernel: its launch spec, the program that its file is, or a driver."""
    return known.plan.through != "program" or bool(session.files[known.target.uri].scan.entries)


def waits_for_import(session: Session, known: KernelStatus) -> bool:
    """Say whether a kernel that only an import compiles has not been compiled since the last edit. No file is
    imported unasked.
    """
    kernel = known.kernel
    by_import = (
        kernel.dsl in SPECIFIED and kernel.language == "triton" and kernel.launchable and not kernel.generator
    )
    stays_off = session.setup.settings.modal.restricted  # code that stays off this machine
    by_itself = compiled_as_typed(session) and not session.files[known.target.uri].runs_otherwise
    waits = known.figures is None or (known.figures_stale and not by_itself)
    return by_import and waits and not (known.running or stays_off)


def compiled_as_typed(session: Session) -> bool:
    """Say whether a Triton file that was compiled once is compiled again at each pause: in a trusted folder, on a
    machine without a GPU.
    """
    setup = session.setup
    return setup.settings.trusted and setup.machine is not None and not setup.machine.devices


def why_nothing(session: Session, uri: str, known: KernelStatus) -> tuple[str, ...]:
    """Return sentences on why a kernel has no figures, or no lens at all, and what to do. Return none if it has both."""
    kernel, scan = known.kernel, session.files[uri].scan
    if session.is_cell(uri) or not kernel.launchable:
        return ()
    if known.figures is None and waits_for_import(session, known):
        typed = ", then as you type" if compiled_as_typed(session) else ""
        return (
            f"registers, occupancy and errors come with Compile{typed}",
            "only when you ask, because Compile imports this file",
        )
    if is_uninstantiated(session, uri, known):
        source = session.files[uri].source
        file = Path(source[0] if source else path_of(uri)).name
        return (
            f"not compiled: a template is compiled only if {file} instantiates it or a launch spec launches it",
        )
    if kernel.dsl in RUNNABLE - SPECIFIED and not scan.entries:
        return (
            f"no lens: a program runs kernels of {kernel.dsl}, and this file is not a program",
            "a program has main, benchmark, run or test without arguments, or `__main__`",
            "`orbit-lsp drivers` lists the tests and scripts that launch it",
        )
    return ()


def is_uninstantiated(session: Session, uri: str, known: KernelStatus) -> bool:
    """Return whether a kernel is a template without an instance: the file's last compile had no errors and made none,
    and no run did.
    """
    return bool(
        known.kernel.template and not known.figures and not known.result and session.files[uri].compiled
    )


def reasons(session: Session, uri: str) -> list[str]:
    """Return why kernels of a file have no figures or no lens, a line for each reason, with the kernels' names before
    it.
    """
    names: dict[str, list[str]] = {}
    for known in of(session, uri):
        if why := "; ".join(why_nothing(session, uri, known)):
            names.setdefault(why, []).append(known.kernel.name)
    return [f"{', '.join(every[:3])}{', …' if len(every) > 3 else ''}: {why}" for why, every in names.items()]


def launchable(session: Session, uri: str) -> list[KernelId]:
    """Return the kernels of a file that can be run by themselves."""
    return [status.target for status in of(session, uri) if status.kernel.launchable]


def gpu_name(session: Session) -> str:
    """Return the GPU that a run would get: this machine's own, or the one that is rented. Return "" if there is
    neither.
    """
    setup = session.setup
    if setup.place() == "local":
        own = setup.own_gpu()
        name = own.name.removeprefix("NVIDIA ").removeprefix("GeForce ") if own else ""
        return f"{setup.host} ({_MEMORY.split(name)[0]})" if name and setup.host else name
    return setup.rents() if setup.modal_account else ""


def warmth(session: Session, gpu: str) -> str:
    """Return `warm until 14:05, $0.34 if it idles, Modal's rates` for a rented GPU that waits for the next run."""
    if session.setup.place() != "modal":
        return ""
    warm = session.setup.warm.get(gpu)
    if warm is None or (warm.until is not None and time.time() >= warm.until and not warm.kept):
        return ""
    if warm.kept:
        return f"kept warm, {warm.hourly}, {warm.rates}" if warm.hourly else "kept warm"
    if warm.until is None:
        return "warm"
    text = f"warm until {time.strftime('%H:%M', time.localtime(warm.until))}"
    if warm.idle_usd is None:
        return text
    return f"{text}, {units.money(warm.idle_usd)} if it idles, {warm.rates}"


def main_launch(launches: tuple[Launches, ...]) -> Launches | None:
    """Return the configuration that took most of the kernel's time. A single number is about this one."""
    return max(launches, key=lambda launches: launches.timing.median * launches.count, default=None)


def block_of(session: Session, uri: str, kernel: Kernel) -> int | None:
    """Return the threads of a block, if the text says so: by a constant launch in the file."""
    file = session.files.get(uri)
    if file is None:
        return None
    sizes = {
        launch.block[0] * launch.block[1] * launch.block[2]
        for launch in file.scan.launches
        if launch.kernel.rpartition("::")[2] == kernel.name and launch.block
    }
    return sizes.pop() if len(sizes) == 1 else None


def launch_shape(session: Session, uri: str, kernel: Kernel, resources: Resources) -> tuple[int | None, int]:
    """Return (threads of a block, bytes of dynamic shared memory) from the launch spec, host code or launch bounds.
    The threads are None if none of them says.
    """
    shape = spec_cache.shape(session, uri, kernel) or (0, 0)
    launched = block_of(session, uri, kernel)
    threads = resources.threads or shape[0] or launched or resources.max_threads
    of_launch = _shared_of(session, uri, kernel) if launched and threads == launched and not shape[0] else 0
    return threads or None, resources.dynamic_shared or shape[1] or of_launch or 0


def _shared_of(session: Session, uri: str, kernel: Kernel) -> int | None:
    """Return the bytes of dynamic shared memory of a file's launches, the least of several. Return None if the text
    does not say.
    """
    launches = session.files[uri].scan.launches
    sizes = [
        each.shared for each in launches if each.kernel.rpartition("::")[2] == kernel.name and each.block
    ]
    known = [size for size in sizes if size is not None]
    return min(known, default=0) if len(known) == len(sizes) else None


def launched_instance(known: KernelStatus) -> tuple[Resources, bool]:
    """Return the compiler's figures of the instance that the last run or profile launched most, and whether there was
    one. Before any launch they are those of the instance that uses most registers.
    """
    assert known.figures
    resources = known.figures.resources
    main = main_launch(known.result.launches) if known.result else None
    if main is None and known.profile:
        main = main_launch(known.profile.finished.launches)
    if main:
        same = [resource for resource in resources if resource.symbol == main.symbol]
        exact = [
            resources
            for resources in same
            if all(main.constants.get(name) == value for name, value in resources.constants.items())
        ]
        if same:
            return (exact or same)[0], True
    return max(resources, key=lambda resources: resources.registers or 0), False


def static_occupancy(session: Session, uri: str, kernel: Kernel, resources: Resources) -> tuple[str, ...]:
    """Return `occ 75% (registers) at 256 threads` and shorter forms. Without a known block size it is `occ 100% from
    64 threads`: the best occupancy, and the smallest block that reaches it, which the last form leaves out. Return
    none if it is not known.
    """
    if resources.registers is None:
        return ()
    shared = resources.static_shared or 0
    threads, dynamic = launch_shape(session, uri, kernel, resources)
    if threads:
        limits = occupancy.occupancy(
            resources.architecture, resources.registers, threads, shared, dynamic,
            barriers=resources.barriers or 0, max_threads=resources.max_threads,
        )  # fmt: skip
        if limits is None:
            return ()
        if limits.reason:
            cannot = f"cannot launch with {threads} threads"
            return f"{cannot}: {limits.reason}", f"⚠ {cannot}"
        unknown = not (resources.threads or dynamic) and _shared_of(session, uri, kernel) is None
        text = f"occ {'≤' if unknown else ''}{units.occupancy(limits.fraction)}"
        return (
            f"{text}{limited_by(limits)} at {threads} threads",
            f"{text}{_abbreviated(limited_by(limits))}",
            text,
        )
    best = occupancy.best(
        resources.architecture, resources.registers, shared, dynamic, barriers=resources.barriers or 0
    )
    if best is None:
        return ()
    block, limits = best
    share = units.occupancy(limits.fraction)
    text = f"occ {share} from {block} threads"
    return f"{text}{limited_by(limits)}", f"{text}{_abbreviated(limited_by(limits))}", text, f"occ ≤{share}"


def _abbreviated(limit: str) -> str:
    return limit.replace("registers", "regs").replace("shared memory", "shared")


launch_occupancy = occupancy.of_launch


def limited_by(limits: occupancy.Occupancy) -> str:
    return f" ({', '.join(limits.limiters)})" if limits.fraction < 1 and limits.limiters else ""


def ago(seconds: float) -> str:
    """Return `just now`, `5 min ago` or `3 days ago`."""
    if seconds < 60:
        return "just now"
    if seconds < 3600:
        return f"{seconds / 60:.0f} min ago"
    return f"{seconds / 3600:.0f} h ago" if seconds < 48 * 3600 else f"{seconds / 86400:.0f} days ago"


@dataclass(frozen=True, slots=True)
class HarnessStatus:
    entry: HarnessEntry
    result: RunResult | None
    stale: bool
    running: AwaitedRun | None
    profile: Profiled | None = None
    profile_stale: bool = False


def harness_status(session: Session, uri: str) -> HarnessStatus | None:
    """Return what is known of a file's contract, compared with its present text. Return None if it has none."""
    entry, frozen = harness.of(session, uri), session.freeze(uri)
    if entry is None or frozen is None:
        return None
    result, profile = session.results.runs.get(entry.target), session.results.profiles.get(entry.target)

    def stale(figures: RunResult | Profiled | None) -> bool:
        return figures is not None and (
            figures.digest != entry.digest
            or figures.inputs
            != staleness.job_key(job_builder.make(session, frozen, "run", "", launch_plan.CONTRACT))
            or session.disk.changed(path_of(uri), figures.files)
        )

    running = session.running.get(entry.target)
    return HarnessStatus(entry, result, stale(result), running, profile, stale(profile))
