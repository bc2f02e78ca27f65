"""A chart of what moved between the levels of the memory system, as SVG. Each level is a box with an arrow each way;
the numbers are the report's.
"""

from __future__ import annotations

from html import escape

from orbit_lsp.profile import bottleneck
from orbit_lsp.state import units
from orbit_remote.common.messages import Profile

_SECTOR = 32
_WIDTH, _HEIGHT = 760, 104
_BOX, _GAP, _TOP, _HIGH = 128, 82, 6, 90
_BOXES = (
    ("Kernel", None, None),
    ("L1", "l1tex__throughput.avg.pct_of_peak_sustained_active", "l1tex__t_sector_hit_rate.pct"),
    ("L2", "lts__throughput.avg.pct_of_peak_sustained_elapsed", "lts__t_sector_hit_rate.pct"),
    ("DRAM", "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed", None),
)
"""Name, per cent of its peak, hit rate."""
_BETWEEN = (
    (("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum", "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum"),
     ("l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum", "l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum"), _SECTOR),
    (("lts__t_sectors_srcunit_tex_op_read.sum",), ("lts__t_sectors_srcunit_tex_op_write.sum",), _SECTOR),
    (("dram__bytes_read.sum",), ("dram__bytes_write.sum",), 1),
)  # fmt: skip
"""Between a level and the next: the counters of what is read and of what is written, and the bytes of one."""


def svg(profile: Profile) -> str:
    """Draw the chart. It is empty if not even DRAM was counted. Amounts that were not counted are left out."""
    if bottleneck.value(profile, "dram__bytes_read.sum") is None:
        return ""
    middle = _TOP + _HIGH / 2
    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(_description(profile))}">'
    ]
    for number, (name, busy, hits) in enumerate(_BOXES):
        x = _at(number)
        share = bottleneck.value(profile, busy) if busy else None
        parts.append(f'<rect class="box" x="{x}" y="{_TOP}" width="{_BOX}" height="{_HIGH}" rx="6"/>')
        if share is not None:
            high = _HIGH * min(share, 100) / 100
            parts.append(
                f'<rect class="f0 full" x="{x}" y="{_TOP + _HIGH - high:.1f}" width="{_BOX}" height="{high:.1f}" rx="6"/>'
            )
        label = [name]
        if share is not None:
            label.append(f"{units.percent(share / 100)} of peak")
        if hits and (rate := bottleneck.value(profile, hits)) is not None:
            label.append(f"{units.percent(rate / 100)} hits")
        first = middle + 5 - 9 * (len(label) - 1)
        for line, text in enumerate(label):
            parts.append(
                f'<text x="{x + _BOX / 2}" y="{first + 18 * line:.1f}" text-anchor="middle">{escape(text)}</text>'
            )
    for number, (read, written, each) in enumerate(_BETWEEN):
        left, right = _at(number) + _BOX, _at(number + 1)
        parts += _arrow(right, left, middle - 12, _moved(profile, read, each), above=True)
        parts += _arrow(left, right, middle + 12, _moved(profile, written, each), above=False)
    return "\n".join([*parts, "</svg>"])


def _at(number: int) -> float:
    return number * (_BOX + _GAP)


def _moved(profile: Profile, names: tuple[str, ...], each: int) -> float | None:
    known = [counted for name in names if (counted := bottleneck.value(profile, name)) is not None]
    return each * sum(known) if known else None


def _arrow(start: float, end: float, y: float, moved: float | None, *, above: bool) -> list[str]:
    if moved is None:
        return []
    tip = 6 if end > start else -6
    text_y = y - 8 if above else y + 18
    return [
        f'<line class="axis" x1="{start}" y1="{y}" x2="{end - tip}" y2="{y}"/>',
        f'<path class="f7" d="M{end} {y} l{-tip} -4 l0 8 z"/>',
        f'<text x="{(start + end) / 2}" y="{text_y}" text-anchor="middle">{escape(units.bytes_moved(moved))}</text>',
    ]


def _description(profile: Profile) -> str:
    read = units.bytes_moved(bottleneck.value(profile, "dram__bytes_read.sum"))
    written = units.bytes_moved(bottleneck.value(profile, "dram__bytes_write.sum"))
    return f"Memory: {read} read from DRAM, {written} written to it. The table has the values."
