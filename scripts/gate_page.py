"""Draw docs/pictures/gate-*.png: a gate's report as a pull request shows it, and the page of some gates.

.venv/bin/python scripts/gate_page.py    # needs chromium, and a font with emoji

The gates are examples. Their runs are those that bench/gate_runs.json has of unchanged code, on an H200. The present side of a kernel that is to
be slower has its times multiplied. The statistics and verdicts are the product's.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
for folder in (ROOT, ROOT / "remote", ROOT / "bench", ROOT / "scripts"):
    sys.path.insert(0, str(folder))

import gate as figures  # noqa: E402
from markdown_it import MarkdownIt  # noqa: E402
from profile_page import pictured  # noqa: E402

from orbit_lsp.gate import gate, results  # noqa: E402
from orbit_lsp.gate.results import GateControl, GatedKernel, GateResult  # noqa: E402
from orbit_lsp.report import gate_history, gate_report, page  # noqa: E402
from orbit_remote.common.evidence import sign_bets  # noqa: E402
from orbit_remote.common.evidence.sign_bets import GateQuestion  # noqa: E402
from orbit_remote.common.measure import median  # noqa: E402

GPU, RUNS = figures.recorded(str(ROOT / "bench" / "gate_runs.json"))
LINES = {"convolution.cu/convolve": 15, "histogram.cu/histogram": 9, "layer_norm.cu/layer_norm": 21, "softmax.cu/softmax": 25, "stencil.cu/heat": 11, "transpose.cu/transpose": 10}  # fmt: skip
"""The kernels, and the lines on which they stand in examples/."""
COMMITS = ("9a1c2f0", "8f3e1d2", "41d07ac", "c2b9e55", "e07f613")
STEPS = ({}, {"transpose.cu/transpose": 1.034}, {}, {"histogram.cu/histogram": 0.957}, {"transpose.cu/transpose": 1 / 1.034})  # fmt: skip
"""What each commit changes."""
SECONDS = 0.12
"""Of a run, in these recordings."""
_COMMENT = """<!doctype html><meta charset="utf-8"><style>{style}
body {{ max-width: 60rem; }} .comment {{ border: 1px solid var(--line); border-radius: 6px; padding: 1rem; }}
.comment p {{ margin: 0 0 1rem; }} .comment table {{ margin-bottom: 1rem; }} sub {{ line-height: 1.6; }}
.comment th, .comment td, .comment td:first-child:not(.number) {{ border: 1px solid var(--line); padding: .35rem .75rem; min-width: 0; }}
code {{ background: var(--soft); padding: .1rem .3rem; border-radius: 4px; }}</style><div class="comment">{text}</div>"""


def gates() -> list[GateResult]:
    """Return a gate of each commit, the oldest first."""
    made: list[GateResult] = []
    factors = dict.fromkeys(LINES, 1.0)
    for number, step in enumerate(STEPS):
        made.append(drawn(number, factors, step))
        factors |= {name: factors[name] * change for name, change in step.items()}
    return made


def drawn(number: int, before: Mapping[str, float], step: Mapping[str, float]) -> GateResult:
    """Return the gate of a commit, whose pairs begin at another place of the recording for each number."""
    question = GateQuestion(len(LINES))
    kernels = tuple(
        _kernel(name, 16 * number, before[name], step.get(name, 1.0), question) for name in sorted(LINES)
    )
    verdict = gate.verdict_of(kernels, red_control=False, failure=False)
    base, head = COMMITS[max(0, number - 1)], COMMITS[number]
    called = f"origin/main ({base})"
    said = results.sentence(
        verdict, kernels, base=called, find=question.find, false_alarm=question.false_alarm, red_control=False, failure=None
    )  # fmt: skip
    pairs = sum(kernel.pairs for kernel in kernels)
    at = time.mktime((2026, 12, 1, 9 + number, 0, 0, 0, 0, -1))
    controls = (GateControl(kernels[0].file, kernels[0].kernel, 8, 1.0, False),)
    return GateResult(
        verdict, said, 0, base, called, head, False, GPU, question.false_alarm, question.find, question.margin, kernels,
        controls, seconds=2 * SECONDS * (pairs + 8), at=at,
    )  # fmt: skip


def _kernel(name: str, start: int, before: float, change: float, question: GateQuestion) -> GatedKernel:
    """Return what a gate says of a kernel whose time was `before` times the recorded one, and has changed since."""
    runs, then_ns, now_ns = RUNS[name], list[float](), list[float]()
    ratios: list[float] = []
    verdict: results.KernelVerdict = "inconclusive"
    for at in range(start, start + 2 * question.most_pairs, 2):
        then_ns.append(before * runs[at % len(runs)])
        now_ns.append(before * change * runs[(at + 1) % len(runs)])
        ratios.append(now_ns[-1] / then_ns[-1])
        if sign_bets.log_evidence(ratios, question.margin) >= question.log_goal():
            verdict = "slower"
        elif question.is_clear(ratios):
            verdict = "not slower"
        if verdict != "inconclusive":
            break
    known = sign_bets.noise(ratios)
    file, _, kernel = name.partition("/")
    return GatedKernel(
        file, kernel, LINES[name], verdict, "launch spec", median(ratios), sign_bets.lower_bound(ratios, 0.025),
        sign_bets.upper_bound(ratios, 0.025), median(then_ns), median(now_ns), pairs=len(ratios), noise=known,
        finds=sign_bets.effect_found(known, question) if known is not None else None,
    )  # fmt: skip


def comment(result: GateResult) -> str:
    """Return the report for a pull request as a page."""
    text = MarkdownIt("commonmark", {"html": True}).enable("table").render(gate_report.markdown(result))
    return _COMMENT.format(style=page.STYLE, text=text)


def main() -> None:
    every = gates()
    pictured("gate-comment", comment(every[1]), "960,420")
    pictured("gate-history", page.html(gate_history.page(every, "kernels")), "1000,900")


if __name__ == "__main__":
    main()
