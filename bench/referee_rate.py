"""Problems of KernelBench at both grades, on this machine's NVIDIA GPU: evaluations a minute, and where a judge's seconds go.

    python -P bench/referee_rate.py CLONE [--clients 8] [--seconds 24] [--parts referee,author,new]

CLONE is a clone of ScalingIntelligence/KernelBench, or its folder KernelBench alone. The problems are of level 1, made smaller as in `kernelbench.py`. Those that go element
by element have a candidate in Triton (`TRITON`), the others their own text. *Built before*: each was judged once. *New*: no two
texts of Triton are alike.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parent))

from evaluation_gpu import Leased, Server, say, server
from kernelbench import SMALLER, changed

from orbit_remote.child import child_main

TRITON: Final = {
    19: "tl.maximum(x, 0.0)",
    20: "tl.where(x > 0, x, 0.01 * x)",
    21: "tl.sigmoid(x)",
    22: "2 * tl.sigmoid(2 * x) - 1",
    25: "x * tl.sigmoid(x)",
    28: "tl.minimum(tl.maximum(x / 6 + 0.5, 0.0), 1.0)",
    29: "tl.where(x > 20, x, tl.log(1 + tl.exp(x)))",
    30: "x / (1 + tl.abs(x))",
    31: "tl.where(x > 0, x, tl.exp(x) - 1)",
    32: "tl.minimum(tl.maximum(x, -1.0), 1.0)",
}
TORCH: Final = (1, 23, 24, 26, 36, 40, 47, 48, 94, 95)
_KERNEL = """
import torch
from torch import nn
import triton
import triton.language as tl

@triton.jit
def mapped(out, given, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(given + at, mask=at < n)
    tl.store(out + at, {body}, mask=at < n + 0 * {number})

class ModelNew(nn.Module):
    def __init__(self, *ignored):
        super().__init__()
    def forward(self, x):
        out = torch.empty_like(x)
        mapped[(triton.cdiv(x.numel(), 1024),)](out, x, x.numel(), BLOCK=1024)
        return out
"""
Pair = tuple[str, str, str]
"""A problem's name, its reference and a candidate."""


def triton(body: str, number: int = 0) -> str:
    return _KERNEL.format(body=body, number=number)


def problems(clone: Path) -> dict[int, tuple[str, str]]:
    """Names and texts by their numbers."""
    level = next(path for path in (clone / "KernelBench" / "level1", clone / "level1") if path.is_dir())
    found: dict[int, tuple[str, str]] = {}
    for number in sorted((*TRITON, *TORCH)):
        path = next(level.glob(f"{number}_*.py"))
        text = path.read_text()
        for pattern, smaller in SMALLER:
            text = re.sub(pattern, smaller, text)
        found[number] = path.stem, text
    return found


def pairs(known: dict[int, tuple[str, str]]) -> list[Pair]:
    return [
        (name, text, triton(TRITON[number]) if number in TRITON else changed(text, "{result}"))
        for number, (name, text) in known.items()
    ]


def new(known: dict[int, tuple[str, str]]) -> Iterator[Pair]:
    for number in itertools.count(1):
        problem = list(TRITON)[number % len(TRITON)]
        yield *known[problem], triton(TRITON[problem], number)


async def phase(known: Server, name: str, count: int, wanted: Iterable[Pair], **more: Any) -> None:
    """`count` clients, each of which submits the next pair when its last was answered."""
    iterator, answers = iter(wanted), list[tuple[str, float, dict[str, Any]]]()
    ended: list[float] = []

    async def client() -> None:
        for problem, reference, candidate in iterator:
            began = time.perf_counter()
            answer = await known.evaluate(reference, candidate, **more)
            answers.append((problem, time.perf_counter() - began, answer))
            ended.append(time.perf_counter() - start)

    before = set(known.seen)
    with Leased() as leased:
        start = time.perf_counter()
        await asyncio.gather(*(client() for _ in range(count)))
        took = time.perf_counter() - start
    scores = [answer.get("kernel_exec_result", {}).get("runtime") for _, _, answer in answers]
    grades = sorted({str(answer.get("grade")) for _, _, answer in answers})
    say(
        f"{name}: {len(answers)} in {took:.1f} s = {60 * len(answers) / took:.0f} a minute, "
        f"{60 * (len(answers) - 1) / (took - min(ended)):.0f} after the first answer; leased {leased.share}; "
        f"grades {', '.join(grades)}; {sum(score is None for score in scores)} without a score"
    )
    for (problem, _, answer), score in zip(answers, scores, strict=True):
        if score is None:
            why = answer.get("kernel_exec_result", {}).get("validation_error") or answer.get("error")
            say(f"    {problem}: {str(why)[:300]} {answer.get('suspicious') or ''}")
    parts = [known.parts(job) for job in known.seen if job not in before and not job.startswith("check-")]
    say(f"    s of a job, p50: {_medians(parts)}")
    seen = [known.seen[job] for job in known.seen if job not in before and not job.startswith("check-")]
    say(f"    s from one to the next, p50: {_medians(list(between(seen)))}")
    say(f"    s of its judge, p50: {_medians([answer.get('stages') or {} for _, _, answer in answers])}")
    rounds = [answer["judge"]["rounds"] for _, _, answer in answers if "judge" in answer]
    if rounds:
        say(f"    rounds: {min(rounds)} to {max(rounds)}, p50 {statistics.median(rounds):.0f}")


_STEPS: Final = ("compiling", "checking", "timing", child_main.TIMED)


def between(seen: Iterable[list[tuple[float, str]]]) -> Iterator[dict[str, float]]:
    """Seconds of judges that follow each other, by the stages that each has told, and from the end of one to the next."""
    ended = 0.0
    known = [{name.removeprefix("running "): at for at, name in stages} for stages in seen]
    for times in sorted((each for each in known if "compiling" in each), key=lambda each: each["compiling"]):
        told = [name for name in (*_STEPS, "end") if name in times]
        steps = {f"{one} to {other}": times[other] - times[one] for one, other in itertools.pairwise(told)}
        yield steps | ({"end to next": times["compiling"] - ended} if ended else {})
        ended = times["end"]


def _medians(each: list[dict[str, float]]) -> str:
    names = dict.fromkeys(name for known in each for name in known)
    medians = (statistics.median(known.get(name, 0.0) for known in each) for name in names)
    return ", ".join(f"{name} {median:.3f}" for name, median in zip(names, medians, strict=True))


def until(every: list[Pair], seconds: float) -> Iterator[Pair]:
    over = time.monotonic() + seconds
    return itertools.takewhile(lambda _: time.monotonic() < over, itertools.cycle(every))


async def measure(options: argparse.Namespace) -> None:
    known = problems(options.clone)
    every = pairs(known)[: options.problems]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for variable in ("XDG_CACHE_HOME", "XDG_STATE_HOME", "TORCH_EXTENSIONS_DIR"):
            os.environ[variable] = str(folder / variable.lower())
        async with server(folder, guarded=True) as own:
            fresh = new(known)
            for part in options.parts.split(","):
                if part == "new":
                    over = time.monotonic() + options.seconds
                    texts = itertools.takewhile(lambda _, over=over: time.monotonic() < over, fresh)
                    await phase(own, "new text of Triton, referee", options.clients, texts, grade="referee")
                    continue
                if options.warm:
                    await phase(own, f"each once, {part}", options.clients, every, grade=part)
                texts = until(every, options.seconds)
                await phase(own, f"built before, {part}", options.clients, texts, grade=part)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("clone", type=Path)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=24.0)
    parser.add_argument("--problems", type=int, default=20)
    parser.add_argument("--parts", default="referee,author,new")
    parser.add_argument("--warm", action=argparse.BooleanOptionalAction, default=True)
    asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    main()
