"""Shows what a kernel needs on every GPU, and its occupancy over block sizes: the lower part of its hover."""

from __future__ import annotations

from orbit_lsp.state import fitting, units
from orbit_lsp.state.results import CompilerFigures
from orbit_lsp.state.session import Session, path_of
from orbit_lsp.views import kernel_status
from orbit_lsp.views.kernel_status import KernelStatus
from orbit_lsp.views.tables import Drawing, Section, Table
from orbit_remote.common import architectures, occupancy
from orbit_remote.common.messages import Resources

GPUS = ("T4", "A10", "A100", "L4", "L40S", "H100", "H200", "B200", "RTX PRO 6000")
_MOST_INSTANCES = 3
_ROWS = 5
_TYPES = 160
"""Columns of the types and constants in a title; the table of the instance's own figures has all of them."""


def sections(session: Session, uri: str, known: KernelStatus) -> list[Section]:
    """Return the sections of a kernel whose figures are known."""
    if known.figures is None or known.figures_stale:
        return []
    every = compiled(session, uri, known)
    if known.kernel.language == "triton":
        if every:
            return _of_triton(session, uri, known, every)
        machine = session.setup.machine
        if session.setup.settings.every_gpu == "off" or not (machine and machine.packages.get("triton")):
            return []
        how = "in the background, once the machine is idle after a Compile: hover again"
        return [(f"{known.kernel.qualified} on every GPU", [("compiled", how, "Triton")])]
    shown: list[Section] = []
    if every:
        names = list(dict.fromkeys(resource.name for resource in every.resources))
        for name in names[:_MOST_INSTANCES]:
            of_instance = [resource for resource in every.resources if resource.name == name]
            title = f"{name} on every GPU (preview: one front end for all)"
            shown.append(_table(session, uri, known, title, of_instance, {}))
    elif session.setup.settings.every_gpu != "off" and session.setup.machine and session.setup.machine.nvcc:
        shown.append((f"{known.kernel.qualified} on every GPU", [("compiled", "soon: hover again", "nvcc")]))
    drawing = curve(session, uri, known, known.figures.resources[0]) if known.figures.resources else None
    return [*shown, drawing] if drawing else shown


def compiled(session: Session, uri: str, known: KernelStatus) -> CompilerFigures | None:
    """Return the kernel's figures for every architecture. Return None if they are not of its present text."""
    every = session.results.every_gpu.get(known.target)
    if every is None or known.figures is None or known.figures_stale:
        return None
    if (every.digest, every.inputs) != (known.digest, known.figures.inputs):
        return None
    return None if session.disk.changed(path_of(uri), every.files) else every


def _of_triton(session: Session, uri: str, known: KernelStatus, every: CompilerFigures) -> list[Section]:
    """Return each instance on every GPU and over `num_warps`, with the types and constants of its compilation."""
    assert known.figures
    shown: list[Section] = []
    for resources in known.figures.resources[:_MOST_INSTANCES]:
        same = [each for each in every.resources if each.constants == resources.constants]
        types = ", ".join(f"{name} {value}" for name, value in resources.constants.items())
        title = (
            f"{resources.name} on every GPU, compiled by Triton for each with {fitting.cut(types, _TYPES)}"
        )
        shown.append(_table(session, uri, known, title, same, every.not_compiled))
        by_warps = over_warps(every, resources)
        if len(by_warps) > 1:
            shown.append(
                Table(
                    f"{resources.name} over num_warps, compiled with each for {resources.architecture}",
                    ("num_warps", "registers", "shared memory", "blocks per SM", "occupancy", "limited by"),
                    tuple(
                        (
                            f"{number} now" if each.threads == resources.threads else str(number),
                            *_row(session, uri, known, each),
                        )
                        for number, each in by_warps.items()
                    ),
                )
            )
    return shown


def over_warps(every: CompilerFigures, resources: Resources) -> dict[int, Resources]:
    """Return what one instance of a Triton kernel needs on its own architecture, by its `num_warps`, in rising order."""
    architecture = resources.architecture.rstrip("af")

    def constants(of: Resources) -> dict[str, str]:
        return {name: value for name, value in of.constants.items() if name != "num_warps"}

    same = {
        each.threads // occupancy.WARP: each
        for each in every.resources
        if each.threads and each.architecture.rstrip("af") == architecture
        if constants(each) == constants(resources)
    }
    return dict(sorted(same.items()))


def _table(
    session: Session,
    uri: str,
    known: KernelStatus,
    title: str,
    every: list[Resources],
    reasons: dict[str, str],
) -> Table:
    by_architecture = {resources.architecture.rstrip("af"): resources for resources in every}
    rows: list[tuple[str, ...]] = []
    for gpu in GPUS:
        architecture = (architectures.architecture_for(gpu) or "").rstrip("af")
        resources = by_architecture.get(architecture)
        if resources is None:
            why = reasons.get(architecture, "")
            # Triton without a reason: compiled, but with other constants, as a hook of the file may choose them
            refused = why or known.kernel.language == "cuda"
            rows.append(
                (gpu, architecture, "does not compile" if refused else "not compiled", "", "", "", why)
            )
        else:
            rows.append((gpu, architecture, *_row(session, uri, known, resources)))
    return Table(
        title,
        ("GPU", "for", "registers", "shared memory", "blocks per SM", "occupancy", "limited by"),
        tuple(rows),
    )


def _row(session: Session, uri: str, known: KernelStatus, resources: Resources) -> tuple[str, ...]:
    threads, dynamic = kernel_status.launch_shape(session, uri, known.kernel, resources)
    static = resources.static_shared or 0
    spilled = (resources.spill_stores or 0) + (resources.spill_loads or 0)
    registers = "" if resources.registers is None else str(resources.registers)
    registers += f", spills {units.size(spilled)}" if spilled else ""
    best = ""
    if threads is None:
        if (reachable := _best(resources, dynamic)) is None:
            return registers, units.size(static + dynamic), "", "", ""
        threads, best = reachable[0], "≤"
    reached = _occupancy(resources, threads, dynamic)
    if reached is None:
        return registers, units.size(static + dynamic), "", "", ""
    if reached.reason:
        return registers, units.size(static + dynamic), "0", "cannot launch", reached.reason
    return (
        registers,
        units.size(static + dynamic),
        f"{reached.blocks} of {threads} threads",
        f"{best}{units.occupancy(reached.fraction)}",
        ", ".join(reached.limiters) if reached.fraction < 1 else "",
    )


def curve(session: Session, uri: str, known: KernelStatus, resources: Resources) -> Drawing | None:
    """Draw the occupancy over block sizes of whole warps, with the present one marked."""
    threads, dynamic = kernel_status.launch_shape(session, uri, known.kernel, resources)
    sizes = range(occupancy.WARP, occupancy.MAX_THREADS_PER_BLOCK + 1, occupancy.WARP)
    points = [_occupancy(resources, size, dynamic) for size in sizes]
    if resources.registers is None or not any(points):
        return None
    reached = [point.fraction if point else 0.0 for point in points]
    lines = [
        f"{level * 100 // _ROWS:>4}% |"
        + "".join("#" if share > (level - 0.5) / _ROWS else " " for share in reached)
        for level in range(_ROWS, 0, -1)
    ]
    lines.append("      +" + "-" * len(reached))
    ticks = [" "] * (len(reached) + 4)
    for size in (32, 256, 512, 768, 1024):
        at = size // occupancy.WARP - 1
        ticks[at : at + len(str(size))] = str(size)
    lines.append("       " + "".join(ticks).rstrip() + "  threads per block")
    if threads and threads <= occupancy.MAX_THREADS_PER_BLOCK:
        at = -(-threads // occupancy.WARP) - 1
        now = _occupancy(resources, threads, dynamic)
        share = units.occupancy(now.fraction) if now else ""
        lines.append("       " + " " * at + f"^ {threads} now: {share}")
    title = f"occupancy of {resources.name} over block sizes, {resources.architecture}"
    return Drawing(title, tuple(line.rstrip() for line in lines))


def _occupancy(resources: Resources, threads: int, dynamic: int) -> occupancy.Occupancy | None:
    return occupancy.occupancy(
        resources.architecture, resources.registers or 0, threads, resources.static_shared or 0, dynamic,
        barriers=resources.barriers or 0, max_threads=resources.max_threads,
    )  # fmt: skip


def _best(resources: Resources, dynamic: int) -> tuple[int, occupancy.Occupancy] | None:
    return occupancy.best(
        resources.architecture, resources.registers or 0, resources.static_shared or 0, dynamic,
        barriers=resources.barriers or 0, max_threads=resources.max_threads,
    )  # fmt: skip
