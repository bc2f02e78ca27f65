"""The gates of a repository as a page: how much the time of each kernel has changed over them, and their verdicts."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Sequence

from orbit_lsp.gate import gate
from orbit_lsp.gate.results import GatedKernel, GateResult
from orbit_lsp.report.page import Block, FactList, Page, Rows
from orbit_lsp.report.plot import MOST_SERIES, Mark, Plot, Series
from orbit_lsp.state import units

_READ = (
    (
        "a point",
        "the median time of a kernel in the change's own version, against the first gate that has it",
    ),
    ("its bar", "the interval of 95 % of that gate's change"),
    ("a line", "gates on one GPU; between two of them the code, the driver or the machine may have changed"),
)
Point = tuple[int, GatedKernel]
"""The number of a gate, and what it says of a kernel."""


def page(gates: Sequence[GateResult], repository: str) -> Page:
    """Return the page of the gates of one repository, which are given with the oldest first."""
    numbered = list(enumerate(gates, 1))
    timed: dict[str, dict[str, list[Point]]] = defaultdict(lambda: defaultdict(list))
    for number, result in numbered:
        for kernel in result.kernels:
            if kernel.now_ns:
                timed[result.gpu][f"{kernel.kernel} ({kernel.file})"].append((number, kernel))
    blocks: list[Block] = [_plot(gpu, kernels) for gpu, kernels in timed.items()]
    blocks.append(
        Rows("Gates", ("gate", "when", "commit", "base", "GPU", "result"), [_row(*each) for each in numbered])
    )
    changes = [
        _change(gpu, name, points) for gpu, kernels in timed.items() for name, points in kernels.items()
    ]
    if changes:
        blocks.append(
            Rows("Kernels", ("kernel", "GPU", "gates", "slower in", "first", "last", "change"), changes)
        )
    blocks.append(FactList("How to read it", _READ))
    count = f"{len(gates)} gate{'' if len(gates) == 1 else 's'}"
    return Page(f"Gates of {repository}", f"{count}, the oldest first", blocks)


def _plot(gpu: str, kernels: dict[str, list[Point]]) -> Plot:
    """Plot the kernels whose time has changed most."""

    def most(points: list[Point]) -> float:
        return max(abs(math.log(_ratio(points, kernel))) for _, kernel in points)

    chosen = sorted(kernels.items(), key=lambda each: -most(each[1]))[:MOST_SERIES]
    series = [
        Series(name.partition(" ")[0], [_mark(points, each) for each in points]) for name, points in chosen
    ]
    left_out = len(kernels) - len(chosen)
    title = f"Time on {gpu}, against each kernel's first gate" + (
        f" ({left_out} kernels are in the table alone)" if left_out else ""
    )
    return Plot(title, "gate", "change of time", series, _signed, closely=True)


def _ratio(points: list[Point], kernel: GatedKernel) -> float:
    first = points[0][1].now_ns
    assert first
    assert kernel.now_ns
    return kernel.now_ns / first


def _mark(points: list[Point], point: Point) -> Mark:
    number, kernel = point
    ratio = _ratio(points, kernel)
    low = high = None
    if kernel.ratio and kernel.low and kernel.high:
        low, high = ratio * kernel.low / kernel.ratio, ratio * kernel.high / kernel.ratio
    text = f"gate {number}: {kernel.kernel} {units.time(kernel.now_ns or 0.0)}, {_signed(ratio)}, {kernel.verdict}"
    return Mark(float(number), ratio, text, low, high)


def _signed(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f}%"


def _row(number: int, result: GateResult) -> tuple[str, ...]:
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(result.at))
    commit = result.head[:7] + (" with edits" if result.edited else "")
    return (
        str(number),
        when,
        commit,
        result.base_name,
        f"{result.gpu}, {gate.time_text(result)}",
        result.sentence,
    )


def _change(gpu: str, name: str, points: list[Point]) -> tuple[str, ...]:
    first, last = points[0][1], points[-1][1]
    slower = sum(kernel.verdict == "slower" for _, kernel in points)
    return (
        name, gpu, str(len(points)), str(slower) if slower else "", units.time(first.now_ns or 0.0), units.time(last.now_ns or 0.0),
        _signed(_ratio(points, last)),
    )  # fmt: skip
