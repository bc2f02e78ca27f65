"""A gate as a report: a table for the terminal, Markdown for a pull request, JUnit's XML, and SARIF."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from orbit_lsp import __version__
from orbit_lsp.gate import gate
from orbit_lsp.gate.results import GatedKernel, GateResult, name_of
from orbit_lsp.state import units
from orbit_lsp.views import ab_table, tables
from orbit_lsp.views.tables import Table
from orbit_remote.common.plain_text import in_a_line

_ROWS = 30
"""Of a pull request's table: decided kernels that are not slower are counted below it."""
_MARKS = {"slower": "🔴", "failed": "🔴", "inconclusive": "⚪", "not compared": "⚪", "not slower": "🟢"}
_HEAD = ("kernel", "base", "now", "change, 95 %", "pairs", "verdict")
_COUNTERS = ("counter", "base", "now", "change")
_ORDER = ("failed", "slower", "inconclusive", "not compared", "not slower")


def text(result: GateResult) -> str:
    """Write a gate for a terminal."""
    rows = tuple((name_of(kernel, result.kernels), *_row(kernel)[1:]) for kernel in _ordered(result))
    lines = [in_a_line(result.sentence)]
    lines += [tables.render([Table("", _HEAD, rows)], markdown=False).strip("\n")] if rows else []
    counted = [Table(title, _COUNTERS, rows) for title, rows in _counters(result)]
    lines += [tables.render(counted, markdown=False).strip("\n")] if counted else []
    return "\n".join([*lines, *_notes(result)])


def _counters(result: GateResult) -> list[tuple[str, tuple[tuple[str, ...], ...]]]:
    """Return a title and rows for each kernel that became slower and was profiled."""
    return [
        (
            f"Counters of {name_of(kernel, result.kernels)} that differ",
            tuple(
                (
                    each.name,
                    ab_table.value(each, each.before),
                    ab_table.value(each, each.after),
                    ab_table.change(each),
                )
                for each in kernel.counters
            ),
        )
        for kernel in _ordered(result)
        if kernel.counters
    ]


def markdown(result: GateResult) -> str:
    """Write a gate for a pull request: a sentence, a small table, and how it was measured."""
    mark = {"passed": "🟢", "inconclusive": "⚪"}.get(result.verdict, "🔴")
    parts = [f"{mark} **{_escaped(result.sentence)}**", ""]
    listed = _ordered(result)
    if listed:
        parts += [f"| {' | '.join(['', *_HEAD])} |", f"|{'---|' * (len(_HEAD) + 1)}"]
        for kernel in listed[:_ROWS]:
            name, *cells = _row(kernel)
            last = _escaped(cells[-1])
            cells[-1] = f"**{last}**" if kernel.verdict in ("slower", "failed") else last
            cells[:3] = [_unbroken(cell) for cell in cells[:3]]
            code = in_a_line(name).replace("`", "'").replace("|", "\\|")
            place = f"`{code}` {_escaped(f'{kernel.file}:{kernel.line}')}"
            parts.append(f"| {_MARKS[kernel.verdict]} | {place} | {' | '.join(cells)} |")
        if len(listed) > _ROWS:
            parts.append(f"\n… and {len(listed) - _ROWS} more kernels.")
        parts.append("")
    for title, rows in _counters(result):
        head, *body = [f"| {' | '.join(map(_escaped, row))} |" for row in (_COUNTERS, *rows)]
        parts += [f"<details><summary>{escape(in_a_line(title))}</summary>", ""]
        parts += [head, f"|{'---|' * len(_COUNTERS)}", *body, "", "</details>", ""]
    parts += [f"<sub>{_escaped('. '.join(_notes(result)))}.</sub>", ""]
    return "\n".join(parts)


def _unbroken(cell: str) -> str:
    """Return a cell of times which a narrow table breaks only before its bracket."""
    return cell.replace(" ", "\N{NO-BREAK SPACE}").replace("\N{NO-BREAK SPACE}(", " (")


def _ordered(result: GateResult) -> list[GatedKernel]:
    return sorted(result.kernels, key=lambda kernel: _ORDER.index(kernel.verdict))


def _row(kernel: GatedKernel) -> tuple[str, ...]:
    why = in_a_line(kernel.failure.message if kernel.failure else kernel.reason)
    verdict = kernel.failure.category if kernel.failure else kernel.verdict
    return (
        kernel.kernel,
        units.time(kernel.then_ns) if kernel.then_ns else "",
        units.time(kernel.now_ns) if kernel.now_ns else "",
        _change(kernel),
        str(kernel.pairs) + (f" (+{kernel.discarded} discarded)" if kernel.discarded else ""),
        f"{verdict}: {why}" if why else verdict,
    )


def _change(kernel: GatedKernel) -> str:
    if kernel.ratio is None:
        return ""
    if kernel.low is None or kernel.high is None:
        return _signed(kernel.ratio)
    return f"{_signed(kernel.ratio)} ({_signed(kernel.low)} to {_signed(kernel.high)})"


def _signed(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f}%"


def _notes(result: GateResult) -> list[str]:
    head = f"{result.head[:7]}{' with edits' if result.edited else ''}"
    notes = [f"{head} against {result.base_name} on {result.gpu or 'no GPU'}, {gate.time_text(result)}"]
    if result.head == result.base and not result.edited and not result.kernels:
        notes.append(
            "nothing has changed: name another base, as in --base HEAD~1, or compare every kernel with --all"
        )
    elif not result.kernels and not result.unchanged:
        notes.append("no kernel that is looked at uses a file that changed")
    if result.carried is not None:
        notes.append("carried from an earlier gate of the same code: --again measures anew")
    if result.unchanged:
        notes.append(
            f"{result.unchanged} kernel{'s' if result.unchanged > 1 else ''} of changed files {'are' if result.unchanged > 1 else 'is'} the same in the base"
        )
    if any(kernel.pairs for kernel in result.kernels):
        notes.append(
            f"false alarms: at most {100 * result.false_alarm:g}% of gates, margin {100 * result.margin:g}%"
        )
        finds = [kernel.finds for kernel in result.kernels if kernel.finds is not None]
        if finds:
            notes.append(f"slow-downs of {100 * max(finds):.1f}% are found with 95%")
    if any(control.pairs for control in result.controls):
        red = sum(control.red for control in result.controls)
        count = len(result.controls)
        notes.append(
            f"{red or 'no'} control{'s' if count > 1 else ''} of {count} differed from {'themselves' if count > 1 else 'itself'}"
        )
    notes += [
        f"{count} pair{'s' if count > 1 else ''} discarded: {why}" for why, count in result.discarded.items()
    ]
    remarks = dict.fromkeys(remark for kernel in result.kernels for remark in kernel.remarks)
    return notes + [in_a_line(remark) for remark in [*result.remarks, *list(remarks)[:5]]]


def _escaped(text: str) -> str:
    """Escape text for Markdown that may hold HTML."""
    return "".join(
        f"\\{mark}" if mark in "\\`*_[]|~" else mark
        for mark in escape(in_a_line(text))
    )  # fmt: skip


# -- for programs -----------------------------------------------------------------------------------


def junit(result: GateResult) -> str:
    """Write a gate in the form that CI systems read: a test case for each kernel."""
    bad = [kernel for kernel in result.kernels if kernel.verdict in ("slower", "failed")]
    skipped = [kernel for kernel in result.kernels if kernel.verdict in ("inconclusive", "not compared")]
    counts = f'tests="{len(result.kernels)}" failures="{len(bad)}" errors="0" skipped="{len(skipped)}"'
    suite = f'<testsuite name="orbit-lsp gate" {counts} time="{result.seconds:.3f}">'
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', f"<testsuites>{suite}"]
    for kernel in result.kernels:
        seconds = (kernel.pair_s or 0.0) * (kernel.pairs + kernel.discarded)
        case = f"<testcase classname={_quoted(kernel.file)} name={_quoted(kernel.kernel)} file={_quoted(kernel.file)}"
        case += f' line="{kernel.line}" time="{seconds:.3f}"'
        message = _quoted(_finding(kernel, result))
        if kernel in bad:
            lines.append(f'{case}><failure type="{kernel.verdict}" message={message}/></testcase>')
        elif kernel in skipped:
            lines.append(f"{case}><skipped message={message}/></testcase>")
        else:
            lines.append(f"{case}/>")
    return "\n".join([*lines, "</testsuite></testsuites>", ""])


def _quoted(text: str) -> str:
    """Quote an attribute of XML 1.0, which allows no control characters."""
    return quoteattr("".join(mark for mark in in_a_line(text) if mark >= " " and mark < "\ufffe"))


def _finding(kernel: GatedKernel, result: GateResult) -> str:
    """Return a sentence about one kernel."""
    if kernel.failure:
        return f"{kernel.kernel}: {kernel.failure.category}: {kernel.failure.message}"
    if kernel.verdict == "slower":
        return f"{kernel.kernel} takes more time than in {result.base_name}: {_change(kernel)}, {kernel.pairs} pairs"
    return f"{kernel.kernel} is {kernel.verdict}" + (f": {kernel.reason}" if kernel.reason else "")


_RULES = {
    "slower": ("error", "A kernel takes more time than in the base."),
    "failed": ("error", "A kernel does not compile, fails, or computes a wrong answer."),
    "inconclusive": ("note", "A kernel could not be decided."),
}


def sarif(result: GateResult) -> str:
    """Write a gate as SARIF 2.1.0 (OASIS). Slower, failed and inconclusive kernels are results at their lines."""
    found = [kernel for kernel in result.kernels if kernel.verdict in _RULES]
    driver: dict[str, Any] = {
        "name": "orbit-lsp gate",
        "version": __version__,
        "rules": [
            {"id": f"orbit/{name}", "shortDescription": {"text": about}}
            for name, (_, about) in _RULES.items()
        ],
    }
    run: dict[str, Any] = {
        "tool": {"driver": driver},
        "results": [_sarif_result(kernel, result) for kernel in found],
        "originalUriBaseIds": {"SRCROOT": {"description": {"text": "the repository"}}},
    }
    log = {"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0", "runs": [run]}
    return json.dumps(log, indent=2, ensure_ascii=False) + "\n"


def _sarif_result(kernel: GatedKernel, result: GateResult) -> dict[str, Any]:
    from urllib.parse import quote

    place = {"uri": quote(kernel.file, errors="surrogateescape"), "uriBaseId": "SRCROOT"}
    location = {"artifactLocation": place, "region": {"startLine": kernel.line}}
    return {
        "ruleId": f"orbit/{kernel.verdict}",
        "level": _RULES[kernel.verdict][0],
        "message": {"text": _finding(kernel, result)},
        "locations": [{"physicalLocation": location}],
        "partialFingerprints": {"kernel/v1": f"{kernel.file}:{kernel.kernel}"},
        "properties": {"ratio": kernel.ratio, "pairs": kernel.pairs, "evidence": _finite(kernel.evidence)},
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def written(result: GateResult, forms: Sequence[str]) -> dict[str, str]:
    """Return the result in each of these forms."""
    makers = {"markdown": markdown, "junit": junit, "sarif": sarif}
    return {form: makers[form](result) for form in forms}
