"""Finds what a kernel costs by its compiler's figures, each cost with its reason in a sentence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from orbit_lsp.kernels import Kernel
from orbit_lsp.state import units
from orbit_lsp.state.session import Session
from orbit_lsp.views import kernel_status
from orbit_lsp.views.kernel_status import KernelStatus
from orbit_remote.common import occupancy
from orbit_remote.common.messages import Resources

Kind = Literal[
    "register-spills", "local-memory", "local-limit", "shared-memory", "block-size", "occupancy-step"
]
_SETTINGS: dict[Kind, str] = {
    "register-spills": "spills", "local-memory": "local_memory", "shared-memory": "shared_memory",
    "block-size": "block_size", "occupancy-step": "occupancy",
}  # fmt: skip
"""A cost's kind -> its setting in `orbit.costs`; what no launch can have is not a cost, and has none."""
_KIB = 1024


class KernelCost(NamedTuple):
    """A cost of a kernel in its instances. `severity` is that of the settings: *warning*, *hint* or *off*."""

    kernel: Kernel
    kind: Kind
    severity: str
    text: str


def of(session: Session, uri: str) -> Iterator[KernelCost]:
    """Yield the costs of the kernels whose figures are of their present text."""
    settings = session.setup.settings.costs
    for known in kernel_status.of(session, uri):
        if known.figures is None or known.figures_stale:
            continue
        by_kind: dict[Kind, list[str]] = {}
        several = len(known.figures.resources) > 1
        for resources in known.figures.resources:
            for kind, text in costs(session, uri, known, resources):
                instance = ", ".join(f"{name}={value}" for name, value in resources.constants.items())
                by_kind.setdefault(kind, []).append(
                    f"{instance or resources.name}: {text}" if several else text
                )
        for kind, texts in by_kind.items():
            severity = "warning" if kind == "local-limit" else getattr(settings, _SETTINGS[kind])
            yield KernelCost(known.kernel, kind, severity, "\n".join(dict.fromkeys(texts)))


def warnings(session: Session, uri: str) -> list[str]:
    """Return the costs that are warnings, `KERNEL: …`, each once."""
    every = (each for each in of(session, uri) if each.severity == "warning")
    return list(dict.fromkeys(f"{each.kernel.name}: {each.text}" for each in every))


def costs(
    session: Session, uri: str, known: KernelStatus, resources: Resources
) -> Iterator[tuple[Kind, str]]:
    """Yield what one instance costs, each with its reason in a sentence."""
    spilled = (resources.spill_stores or 0) + (resources.spill_loads or 0)
    if (resources.stack or 0) > occupancy.MAX_LOCAL_PER_THREAD:
        yield (
            "local-limit",
            (
                f"each thread needs {units.size(resources.stack or 0)} of local memory, and CUDA gives one at most "
                f"{units.size(occupancy.MAX_LOCAL_PER_THREAD)}: each launch would fail"
            ),
        )
    elif spilled:
        yield "register-spills", _spills(resources)
    elif resources.stack:
        yield (
            "local-memory",
            (
                f"each thread has {units.size(resources.stack)} of local memory, which is in DRAM: an array that is indexed "
                "by a value known only at run time, or whose address is taken, is not kept in registers"
            ),
        )
    sm = occupancy.limits(resources.architecture)
    threads, dynamic = kernel_status.launch_shape(session, uri, known.kernel, resources)
    shared = (resources.static_shared or 0) + dynamic
    if sm is None:
        return
    if shared > sm.shared_per_block:
        yield (
            "shared-memory",
            (
                f"a block needs {units.size(shared)} of shared memory, and {resources.architecture} has "
                f"{units.size(sm.shared_per_block)} for one: the launch would fail"
            ),
        )
    elif threads and resources.registers is not None:
        yield from _of_the_block(resources, threads, dynamic)


def _spills(resources: Resources) -> str:
    bytes_of = f"{resources.spill_stores or 0} bytes stored and {resources.spill_loads or 0} loaded"
    text = f"registers spill to local memory: {bytes_of} by each thread"
    if resources.registers is None:
        return text
    if resources.registers >= occupancy.MAX_REGISTERS_PER_THREAD - 1:
        return f"{text}; it has {resources.registers} registers, the most that a thread can have"
    why = "a launch bound or a limit on registers allows no more"
    if resources.max_threads:
        why = f"its launch bounds ({resources.max_threads} threads) allow no more"
    return f"{text}; it has {resources.registers} registers: {why}"


def _of_the_block(resources: Resources, threads: int, dynamic: int) -> Iterator[tuple[Kind, str]]:
    now = _occupancy(resources, threads, dynamic, max_threads=resources.max_threads)
    if now is None:
        return
    if now.reason:
        yield "block-size", f"a launch with {threads} threads a block would fail: {now.reason}"
        return
    if now.fraction >= 1 or resources.registers is None:
        return
    fewer = _occupancy(resources, threads, dynamic, registers=max(1, resources.registers - 1))
    shared = (resources.static_shared or 0) + dynamic
    less = _occupancy(resources, threads, dynamic, shared=shared - _KIB) if shared >= _KIB else None
    for better, change in (
        (fewer, f"one register less ({resources.registers - 1} a thread)"),
        (less, f"1 KiB less shared memory ({units.size(max(0, shared - _KIB))} a block)"),
    ):
        if better and better.blocks > now.blocks:
            blocks = "block" if better.blocks == 1 else "blocks"
            yield (
                "occupancy-step",
                (
                    f"{change} would let a multiprocessor hold {better.blocks} {blocks} of {threads} threads instead of "
                    f"{now.blocks}: occupancy {units.occupancy(better.fraction)} instead of {units.occupancy(now.fraction)}"
                ),
            )


def _occupancy(
    resources: Resources,
    threads: int,
    dynamic: int,
    *,
    registers: int | None = None,
    shared: int | None = None,
    max_threads: int | None = None,
) -> occupancy.Occupancy | None:
    """Return the occupancy with these registers and this much shared memory in all; without them, with the instance's
    own.
    """
    static = resources.static_shared or 0
    if shared is not None:
        static, dynamic = shared, 0
    return occupancy.occupancy(
        resources.architecture, registers or resources.registers or 0, threads, static, dynamic,
        barriers=resources.barriers or 0, max_threads=max_threads,
    )  # fmt: skip
