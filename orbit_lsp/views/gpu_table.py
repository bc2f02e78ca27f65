"""Shows one kernel on several GPUs, and what GPUs cost, as tables."""

from __future__ import annotations

from typing import Any

from orbit_lsp.runners.modal.costs import RentalCosts
from orbit_lsp.runners.modal.rates import Price
from orbit_lsp.runners.modal.spending import FIRST_S
from orbit_lsp.state import modal_gpus, ssh_hosts, units
from orbit_lsp.state.results import GpuResult, MultiGpuResult
from orbit_lsp.views import kernel_status, rates, sweep_tables
from orbit_lsp.views.tables import Table
from orbit_remote.common.messages import Launches

_HEADER = ("GPU", "time", "rate", "occupancy", "an hour", "a million launches", "")


def table(comparison: MultiGpuResult, name: str, now: float, *, stale: bool) -> Table:
    """Return a row for each GPU by NVML's name, without the columns that no GPU fills. Dollars are for the whole
    container; a launch costs only its device time.
    """
    rows = [_row(comparison, row) for row in comparison.rows]
    filled = [number for number in range(len(_HEADER)) if number < 2 or any(row[number] for row in rows)]
    prices = sorted({row.rates for row in comparison.rows if row.rates})
    gpus = "1 GPU" if len(rows) == 1 else f"{len(rows)} GPUs"
    title = f"{name} on {gpus}, {kernel_status.ago(now - comparison.at)}{', edited since' if stale else ''}"
    if prices:
        title += f"; dollars at {' and '.join(prices)}"
    return Table(
        title,
        tuple(_HEADER[number] for number in filled),
        tuple(tuple(row[number] for number in filled) for row in rows),
    )


def priced(costs: RentalCosts) -> dict[str, Price]:
    """Return the price of each of Modal's GPUs that has one."""
    return {gpu: price for gpu in modal_gpus.NAMES if (price := costs.price(gpu))}


def prices(costs: RentalCosts, idle_s: float) -> Table:
    """Return what each GPU on Modal costs: by the hour, in a first run, and while an editor keeps it warm after a
    run.
    """
    known = priced(costs)
    rows = tuple(
        (gpu, price.hourly, *(units.money(price.usd_per_s * seconds) for seconds in (FIRST_S, idle_s)))
        for gpu, price in known.items()
    )
    whose = " and ".join(sorted({price.rates for price in known.values()}))
    header = ("GPU", "an hour", f"a first run ({FIRST_S} s)", f"{idle_s:g} s idle")
    return Table(f"Modal, {whose}", header, rows)


def _row(comparison: MultiGpuResult, gpu_result: GpuResult) -> tuple[str, ...]:
    finished = gpu_result.finished
    host = ssh_hosts.host_of(gpu_result.gpu)
    name = finished.device.name if finished.device else host or gpu_result.gpu
    name = f"{host}: {name}" if host and finished.device else name
    price = "" if gpu_result.usd_per_s is None else f"{units.money(gpu_result.usd_per_s * 3600)}/h"
    chosen = launches(gpu_result)
    if not chosen:
        why = finished.failure.message if finished.failure else "the program did not launch it"
        return name, "", "", "", price, "", why.splitlines()[0]
    per_million = usd_per_million(gpu_result)
    held = (
        kernel_status.launch_occupancy(chosen[0], _capability(gpu_result), finished.resources)
        if len(chosen) == 1
        else None
    )
    return (
        name,
        sweep_tables.time_text(chosen),
        _rate(comparison, gpu_result),
        f"≤{units.occupancy(held.fraction)}{kernel_status.limited_by(held)}" if held else "",
        price,
        "" if per_million is None else units.money(per_million),
        "" if finished.outcome == "ok" else f"then {finished.outcome}",
    )


def launches(gpu_result: GpuResult) -> tuple[Launches, ...]:
    """Return the launches that a GPU's time is about: all that a launch spec makes with its first values, else the
    configuration that took most of the program's time.
    """
    if every := sweep_tables.timed(gpu_result.finished.points):
        return every[0].launches
    main = kernel_status.main_launch(gpu_result.launches)
    return (main,) if main else ()


def usd_per_million(gpu_result: GpuResult) -> float | None:
    """Return the dollars for the device time of a million launches. Return None if the time or the price is not
    known.
    """
    total = sweep_tables.total_ns(launches(gpu_result))
    return (
        None if total is None or gpu_result.usd_per_s is None else total * 1e-9 * gpu_result.usd_per_s * 1e6
    )


def _rate(comparison: MultiGpuResult, gpu_result: GpuResult) -> str:
    every = sweep_tables.timed(gpu_result.finished.points)
    if not every:
        return ""
    reached_rates = rates.of(
        every[0], sweep_tables.rated_ns(every[0].launches), gpu_result.finished.device, comparison.elements
    )
    return next(iter(rates.short(reached_rates)), "")


def _capability(gpu_result: GpuResult) -> str:
    device = gpu_result.finished.device
    return (device.capability if device else None) or ""


def as_json(name: str, comparison: MultiGpuResult) -> dict[str, Any]:
    """Return the comparison for the command line's `--json`. Unknown numbers are null."""
    import dataclasses

    return {
        "kernel": name,
        "gpus": [
            {
                "gpu": row.gpu,
                "device": row.finished.device.name if row.finished.device else None,
                "outcome": row.finished.outcome,
                "time_ns": sweep_tables.total_ns(launches(row)),
                "usd_per_s": row.usd_per_s,
                "rates": row.rates or None,
                "usd_per_million_launches": usd_per_million(row),
                "finished": dataclasses.asdict(row.finished),
            }
            for row in comparison.rows
        ],
    }
