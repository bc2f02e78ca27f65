"""An A/B comparison: the verdict in a sentence, and as a table."""

from __future__ import annotations

from orbit_lsp.state import units
from orbit_lsp.state.results import AbResult, Moved
from orbit_lsp.views import kernel_status
from orbit_lsp.views.tables import Table
from orbit_remote.common.messages import Timing

_SIZES = {"byte": units.size, "byte/second": units.bandwidth, "ns": units.time}


def sentence(name: str, versus: AbResult) -> str:
    """`saxpy takes 7.0% less time than HEAD~1 (6.6% to 7.4% less, 6 pairs of runs)`; its failure where it came to none."""
    found = versus.comparison
    if found is None:
        why = versus.failure.message if versus.failure else "it was cancelled"
        return f"{name} was not compared with {versus.against}: {why}"
    pairs = f"{found.pairs} pairs of runs"
    low, high = found.low or found.ratio, found.high or found.ratio
    if found.verdict == "inconclusive":
        return (
            f"{name} and {versus.against}: no measurable difference "
            f"({_signed(low)} to {_signed(high)}, {pairs})"
        )
    less = found.verdict == "faster"
    ends = sorted((abs(low - 1), abs(high - 1)))
    word = "less" if less else "more"
    return (
        f"{name} takes {units.percent(abs(found.ratio - 1))} {word} time than {versus.against} "
        f"({units.percent(ends[0])} to {units.percent(ends[1])} {word}, {pairs})"
    )


def _signed(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f}%"


def tables(name: str, versus: AbResult, now: float, *, stale: bool) -> list[Table]:
    """Both sides' times and what moved, then what a reader has to know. None of it where there is no verdict."""
    if versus.comparison is None:
        return []
    first, second = versus.devices
    then_name = f"{versus.against} on {first}" if first != second else versus.against
    now_name = f"now on {second}" if first != second else "now"
    rows = [("time, median", _time(versus.then), _time(versus.now), _change(versus))]
    rows += [("launches", _count(versus.then), _count(versus.now), "")]
    rows += [(one.name, _value(one, one.before), _value(one, one.after), change(one)) for one in versus.moved]
    mark = ", edited since" if stale else ""
    title = f"{sentence(name, versus)}; {kernel_status.ago(now - versus.at)}{mark}"
    found = [Table(title, ("", then_name, now_name, "change, 95 %"), tuple(rows))]
    if versus.remarks:
        found.append(Table("Beside it", ("remark",), tuple((one,) for one in versus.remarks)))
    return found


def _time(timing: Timing | None) -> str:
    return "" if timing is None else f"{units.time(timing.median)} {units.spread(timing.spread)}".strip()


def _count(timing: Timing | None) -> str:
    return "" if timing is None else f"{timing.n} ({timing.label})"


def _change(versus: AbResult) -> str:
    found = versus.comparison
    if found is None or found.low is None or found.high is None:
        return ""
    return f"{_signed(found.ratio)} ({_signed(found.low)} to {_signed(found.high)}): {found.verdict}"


def _value(one: Moved, value: float) -> str:
    if one.unit in _SIZES:
        return _SIZES[one.unit](value)
    if one.unit == "%":
        return f"{value:.1f}%"
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"


def change(one: Moved) -> str:
    """In points where it is a share, else relative to what it was."""
    if one.unit == "%":
        return f"{one.after - one.before:+.1f} points"
    return f"{100 * (one.after / one.before - 1):+.0f}%" if one.before else ""
