"""Profiles both sides of the kernels that became slower, to show which counters differ."""

from __future__ import annotations

from dataclasses import replace

from orbit_lsp.gate.changes import GateChange
from orbit_lsp.gate.results import GatedKernel, GateResult
from orbit_lsp.history import counter_diff
from orbit_lsp.history.variant_runs import VariantRuns
from orbit_lsp.history.variants import Variant
from orbit_lsp.runners.modal import spending
from orbit_lsp.runs.scheduler import RunFailedError
from orbit_lsp.specs import job_builder
from orbit_remote.common import messages as c

_MOST = 5
"""Kernels that are profiled: those that became slower by most."""


async def explained(result: GateResult, change: GateChange, runs: VariantRuns, run_id: str) -> GateResult:
    """Return the result with the counters that differ between the two sides of each slower kernel. A remark of the
    kernel says why there are none.
    """
    slower = [kernel for kernel in result.kernels if kernel.verdict == "slower"]
    chosen = sorted(slower, key=lambda kernel: kernel.ratio or 0.0, reverse=True)[:_MOST]
    ended: list[c.Finished] = []
    kernels: list[GatedKernel] = []
    for kernel in result.kernels:
        if kernel in chosen:
            kernel = await _explained(kernel, change, runs, f"{run_id}.{len(kernels)}", ended)  # noqa: PLW2901
        kernels.append(kernel)
    costs = [result.cost, *(each.cost for each in ended)]
    return replace(result, kernels=tuple(kernels), cost=spending.total(costs))


async def _explained(
    kernel: GatedKernel, change: GateChange, runs: VariantRuns, run_id: str, ended: list[c.Finished]
) -> GatedKernel:
    changed = next(each for each in change.compared if (each.file, each.name) == (kernel.file, kernel.kernel))
    assert changed.base
    assert changed.now
    profiles: list[c.Profile] = []
    why = ""
    try:
        for side, variant in (("base", changed.base), ("now", changed.now)):
            finished = await runs.perform(_under_profiler(variant), f"{run_id}.{side}", {}, lambda _: None)
            ended.append(finished)
            if profile := counter_diff.main(finished.profiles):
                profiles.append(profile)
            else:
                why = next(
                    (each.why for each in finished.profiles if each.why), "no launch of it was counted"
                )
    except RunFailedError as error:
        why = error.failure.message
    if len(profiles) < 2:
        return replace(kernel, remarks=(*kernel.remarks, f"{kernel.kernel} has no counters: {why}"))
    if counters := counter_diff.moved(*profiles):
        return replace(kernel, counters=counters)
    return replace(kernel, remarks=(*kernel.remarks, f"no counter of {kernel.kernel} differs"))


def _under_profiler(variant: Variant) -> Variant:
    job = replace(variant.job, action="profile")
    return replace(variant, job=job_builder.under_a_tool(variant.session, job, variant.target, "click", ()))
