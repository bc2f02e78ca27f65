"""Modal's prices, in dollars: those of this account, else those of a dated table.

`Workspace.billing.rates()` (modal 1.5.4 and newer) gives dollars an hour under names such as
`gpu_hour_cost_a100_80gb`, `cpu_hour_cost` (a core) and `mem_gib_hour_cost`. The meaning of the names is not
documented. The table is such an answer, published with a reading of `modal billing rates --json` on the date it has.
A container is billed for what it asks for, or for what it uses if that is more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orbit_lsp.state import modal_gpus, units
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.modal_app.image_spec import CORES, MEMORY_MIB

MODALS = "Modal's rates"
TABLE_DATE = "2026-09-20"
TABLES = f"rates of {TABLE_DATE}"
TABLE = {
    "gpu_hour_cost_t4": 0.59,
    "gpu_hour_cost_l4": 0.80,
    "gpu_hour_cost_a10g": 1.10,
    "gpu_hour_cost_l40s": 1.95,
    "gpu_hour_cost_a100_40gb": 2.10,
    "gpu_hour_cost_a100_80gb": 2.50,
    "gpu_hour_cost_rtx6000": 3.03,
    "gpu_hour_cost_h100": 3.95,
    "gpu_hour_cost_h200": 4.54,
    "gpu_hour_cost_b200": 6.25,
    "cpu_hour_cost": 0.0473,
    "mem_gib_hour_cost": 0.008,
}
"""For containers of functions; those of sandboxes cost three times as much for cores and memory."""

_SECONDS = 3600


@dataclass(frozen=True, slots=True)
class Price:
    """The price of a whole container: its GPUs, and the cores and the memory that it asks for. `rates` says whose
    prices these are.
    """

    usd_per_s: float
    rates: str

    @property
    def hourly(self) -> str:
        return f"{units.money(self.usd_per_s * _SECONDS)}/h"


class Rates:
    """Modal's own prices once they are known, the table's until then."""

    def __init__(self) -> None:
        self._modals: dict[str, float] = {}

    def take(self, answer: Mapping[str, Any]) -> None:
        """Take Modal's answer. Entries that are not prices count as absent."""
        self._modals = {name: price for name, value in answer.items() if (price := _price(value)) is not None}

    def of(self, gpu: str) -> Price | None:
        """Return the price of a container with `gpu` (as in the settings, `H100:2`; "" for none). Return None if it
        is not known.

        All of it is Modal's or all of it the table's: a sum of the two would be neither.
        """
        for prices, rates in ((self._modals, MODALS), (TABLE, TABLES)):
            if (hourly := _hourly(prices, gpu)) is not None:
                return Price(hourly / _SECONDS, rates)
        return None


def _hourly(prices: Mapping[str, float], gpu: str) -> float | None:
    kind, _, count = gpu.partition(":")
    parts = [("cpu_hour_cost", CORES), ("mem_gib_hour_cost", MEMORY_MIB / 1024)]
    if kind:
        parts.append((f"gpu_hour_cost_{modal_gpus.rate_name(kind)}", int(count or 1)))
    total = 0.0
    for name, amount in parts:
        if (price := prices.get(name)) is None:
            return None
        total += price * amount
    return total


def _price(value: Any) -> float | None:
    try:
        price = float(value)
    except (TypeError, ValueError, ArithmeticError):
        return None
    return price if 0 <= price < float("inf") else None
