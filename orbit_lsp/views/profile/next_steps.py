"""What to try after a profile: at the lines that waste traffic, for the bottleneck, and by NVIDIA's best rule. Pure."""

from __future__ import annotations

import re

from orbit_lsp.profile import bottleneck
from orbit_lsp.profile.bottleneck import BottleneckVerdict
from orbit_lsp.state import units
from orbit_lsp.views.profile import profile_hover, profile_lines
from orbit_remote.common.measurements import Advice
from orbit_remote.common.messages import Profile

_EXCESS = 10.0
"""Per cent of all such traffic of the kernel from which a line is worth a step."""
_MOST = 3
_LONGEST = 150
"""Characters of a sentence of NVIDIA's: a longer one is read among the rules."""
_LINES = {
    "uncoalesced": "let neighbouring threads access neighbouring addresses",
    "bank conflicts": "pad the rows of the shared array by one element, or swizzle its index",
    "local memory": "spend fewer registers a thread, and index arrays with constants only",
}
"""By the warning that stands at a line."""
_BOTTLENECKS = {
    "memory": "move fewer bytes of DRAM: narrower types, values reused in registers or shared memory, kernels fused",
    "L1/shared": "pass through L1 and shared memory less often: wider accesses, values kept in registers",
    "L2": "ask L2 less often: larger tiles, values kept in shared memory",
    "compute": "execute fewer instructions: cheaper operations, work taken out of the loop, tensor cores where they fit",
    "tensor cores": "feed the tensor cores without pauses: larger tiles, loads that run ahead of them",
    "balanced": "do less of both: fewer instructions and fewer bytes for each result",
    "latency": "have more in flight: more warps a block, independent work in each thread, loads issued earlier",
    "small grid": "launch more blocks: smaller ones, or split the work of one over several",
}
"""By the first words of a verdict, or its kind."""
_SENTENCE = re.compile(r"(?<=\.)\s+(?=[A-Z])")
_DOES = re.compile(r"(?:Try|Consider|To increase|To reduce|If you do not)\b|.*\b(?:consider|trying)\b")


def steps(profile: Profile) -> list[str]:
    """Return at most three sentences without a full stop, the most concrete first. Return none without counters."""
    sentences = _of_lines(profile)[: _MOST - 1]
    if verdict := bottleneck.verdict(profile):
        traffic = verdict.kind in ("memory", "balanced", "latency")
        sentences.insert(len(sentences) if traffic else 0, _of_bottleneck(verdict))
    if ruled := _of_rules(profile):
        sentences.append(ruled)
    return sentences[:_MOST]


def _of_lines(profile: Profile) -> list[str]:
    """Return a sentence for the worst line of each kind of waste, by its samples."""
    worst: dict[str, str] = {}
    for line in sorted(profile.lines, key=lambda profiled: -profiled.samples):
        for warning in profile_lines.warnings(line, profile, _EXCESS):
            kind = warning.partition(":")[0]
            place = f"{line.file.replace(chr(92), '/').rpartition('/')[2]}:{line.line}"
            worst.setdefault(kind, f"{place}, {warning}: {_LINES[kind]}")
    return list(worst.values())


def _of_bottleneck(verdict: BottleneckVerdict) -> str:
    level = next((name for name in _BOTTLENECKS if verdict.text.startswith(name)), verdict.kind)
    return _BOTTLENECKS[verdict.kind if verdict.kind == "balanced" else level]


def _of_rules(profile: Profile) -> str:
    """Return the sentence of NVIDIA's best rule that says what to do."""
    for advice in profile_hover.advice(profile):
        if advice.title.startswith("Not Selected"):
            continue  # these warps could issue: nothing is lost
        sentences = (text for text in _SENTENCE.split(advice.message) if len(text) <= _LONGEST)
        does = next(filter(_DOES.match, sentences), None)
        if does:
            return f"{does.strip().rstrip('.')} ({_rule(advice)})"
    return ""


def _rule(advice: Advice) -> str:
    gain = f", up to {units.percent(advice.speedup / 100)}" if advice.speedup else ""
    part = " of that part" if gain and advice.scope == "local" else ""
    return f"NVIDIA's rule {advice.rule}{gain}{part}"
