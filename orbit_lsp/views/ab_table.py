"""Shows an A/B comparison: the verdict in a sentence, and as a table."""

from __future__ import annotations

from orbit_lsp.state import units
from orbit_lsp.state.results import AbResult, Moved
from orbit_lsp.views import kernel_status
from orbit_lsp.views.tables import Table
from orbit_remote.common.measurements import Timing

_SIZES = {"byte": units.size, "byte/second": units.bandwidth, "ns": units.time}


def sentence(name: str, versus: AbResult) -> str:
    """Return `saxpy takes 7.0% less time than HEAD~1 (6.6% to 7.4% less, 7 pairs of runs)`, or the failure if there
    is no verdict.
    """
    ab_verdict = versus.comparison
    if ab_verdict is None:
        why = versus.failure.message if versus.failure else "it was cancelled"
        return f"{name} was not compared with {versus.against}: {why}"
    pairs = f"{ab_verdict.pairs} pairs of runs"
    low, high = ab_verdict.low or ab_verdict.ratio, ab_verdict.high or ab_verdict.ratio
    if ab_verdict.verdict == "inconclusive":
        return (
            f"no measurable difference between {name} and {versus.against} "
            f"({_signed(low)} to {_signed(high)}, {pairs})"
        )
    less = ab_verdict.verdict == "faster"
    ends = sorted((abs(low - 1), abs(high - 1)))
    word = "less" if less else "more"
    return (
        f"{name} takes {units.percent(abs(ab_verdict.ratio - 1))} {word} time than {versus.against} "
        f"({units.percent(ends[0])} to {units.percent(ends[1])} {word}, {pairs})"
    )


def _signed(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f}%"


def tables(name: str, versus: AbResult, now: float, *, stale: bool) -> list[Table]:
    """Return the times of both sides and the counters that differ, then remarks. They are empty if there is no
    verdict.
    """
    if versus.comparison is None:
        return []
    first, second = versus.devices
    then_name = f"{versus.against} on {first}" if first != second else versus.against
    now_name = f"now on {second}" if first != second else "now"
    rows = [("time, median", _time(versus.then), _time(versus.now), _change(versus))]
    rows += [("launches", _count(versus.then), _count(versus.now), "")]
    rows += [
        (figure.name, value(figure, figure.before), value(figure, figure.after), change(figure))
        for figure in versus.moved
    ]
    mark = ", edited since" if stale else ""
    title = f"{sentence(name, versus)}; {kernel_status.ago(now - versus.at)}{mark}"
    sections = [Table(title, ("", then_name, now_name, "change, 95 %"), tuple(rows))]
    if versus.remarks:
        sections.append(Table("Beside it", ("remark",), tuple((remark,) for remark in versus.remarks)))
    return sections


def _time(timing: Timing | None) -> str:
    return "" if timing is None else units.timing(timing)


def _count(timing: Timing | None) -> str:
    return "" if timing is None else f"{timing.n} ({timing.label})"


def _change(versus: AbResult) -> str:
    ab_verdict = versus.comparison
    if ab_verdict is None or ab_verdict.low is None or ab_verdict.high is None:
        return ""
    return f"{_signed(ab_verdict.ratio)} ({_signed(ab_verdict.low)} to {_signed(ab_verdict.high)}): {ab_verdict.verdict}"


def value(figure: Moved, amount: float) -> str:
    """Write a counter with its unit."""
    if figure.unit in _SIZES:
        return _SIZES[figure.unit](amount)
    if figure.unit == "%":
        return f"{amount:.1f}%"
    return f"{amount:,.0f}" if abs(amount) >= 100 or amount == int(amount) else f"{amount:.3g}"


def change(figure: Moved) -> str:
    """Write a change in points for a share, else relative to the old value."""
    if figure.unit == "%":
        return f"{figure.after - figure.before:+.1f} points"
    return f"{100 * (figure.after / figure.before - 1):+.0f}%" if figure.before else ""
