"""Runs a gate from the change to its result: what changed, an earlier verdict, the forecast, the loop, and the
record.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import os
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from pathlib import Path

from orbit_lsp.engine.engine import Engine
from orbit_lsp.gate import changes, results, slower_profiles
from orbit_lsp.gate.changes import ChangedKernel, GateChange
from orbit_lsp.gate.gate_loop import KERNELS_PER_CONTROL, GateLoop
from orbit_lsp.gate.gate_store import GateStore, Noise
from orbit_lsp.gate.results import GatedKernel, GateForecast, GateResult, GateVerdict
from orbit_lsp.history import git
from orbit_lsp.history.history_store import HistoryEntry
from orbit_lsp.history.variant_runs import VariantRuns
from orbit_lsp.history.version_groups import setup
from orbit_lsp.runners.modal import spending
from orbit_lsp.state import staleness, units
from orbit_lsp.state.session import path_of
from orbit_remote.common import messages as c
from orbit_remote.common.evidence import sign_bets
from orbit_remote.common.evidence.sign_bets import GateQuestion
from orbit_remote.common.lazy_dataclass import dataclass

_RUNS_FOR_NOISE = 5
"""With fewer runs of the same code in the history, its noise is unknown."""


@dataclass(slots=True)
class GateOptions:
    """Options of a gate. `base` is a revision, None for the merge base. `paths` are absolute. `strict`: inconclusive
    is a failure. `again`: measure, even if there is a verdict. `profile`: show the counters of slower kernels.
    `limit_s` bounds the loop.
    """

    paths: Sequence[str]
    base: str | None = None
    every: bool = False
    question: GateQuestion = field(default_factory=lambda: GateQuestion(1))
    strict: bool = False
    again: bool = False
    profile: bool = False
    limit_s: float | None = None
    coin: random.Random = field(default_factory=random.SystemRandom)


async def perform(
    engine: Engine,
    store: GateStore,
    options: GateOptions,
    say: Callable[[str], object],
    show: Callable[[str], object],
    warn: Callable[[str], object],
) -> GateResult:
    """Run a gate, once the machine has been looked at. `say` gets lines that stay, `show` gets what one waits for.
    Raises GitError and NoBaseError, and NoVariantError if the base cannot be read.
    """
    folder = await asyncio.to_thread(_folder, options.paths[0])
    base, base_name = await asyncio.to_thread(changes.base_of, folder, options.base, os.environ)
    tree = await asyncio.to_thread(git.checkout, folder, base)
    changes.check_inside(tree.root, options.paths)
    head = await asyncio.to_thread(git.commit_of, folder, "HEAD")
    with tempfile.TemporaryDirectory(prefix="orbit-gate-") as beside:
        change = await changes.find(
            engine, tree, base_name, options.paths, Path(beside), every=options.every, warn=warn
        )
        question = replace(options.question, kernels=max(1, len(change.compared)))
        edited = bool((await asyncio.to_thread(git.checkout, folder, head)).changed)
        blank = GateResult(
            "passed", "", 0, base, base_name, head, edited, _gpu(engine),
            question.false_alarm, question.find, question.margin, at=time.time(), unchanged=change.unchanged,
            remarks=tuple(f"the submodule {place} is at another commit in the base, and what that changes is not compared" for place in tree.submodules),
        )  # fmt: skip
        result = await _measured(engine, store, options, change, question, blank, say, show)
        if options.profile and result.verdict == "slower":
            runs = VariantRuns(engine.session, engine.places, show)
            result = await slower_profiles.explained(result, change, runs, engine.runs.new_id("gate"))
        return result


def _folder(path: str) -> str:
    """Return the folder of a path. Blocking."""
    return path if Path(path).is_dir() else str(Path(path).parent)


async def _measured(
    engine: Engine,
    store: GateStore,
    options: GateOptions,
    change: GateChange,
    question: GateQuestion,
    blank: GateResult,
    say: Callable[[str], object],
    show: Callable[[str], object],
) -> GateResult:
    key = _key(change, question, blank.gpu)
    earlier = await asyncio.to_thread(store.earlier, key) if change.units and not options.again else None
    if earlier and earlier.verdict in ("passed", "slower"):
        code = results.exit_code(earlier.kernels, earlier.verdict, earlier.failure, strict=options.strict)
        return replace(earlier, carried=earlier.at, exit_code=code, head=blank.head, edited=blank.edited)
    kept = [kernel for kernel in earlier.kernels if kernel.pairs] if earlier else []
    runs = {(kernel.file, kernel.kernel): kernel.runs for kernel in kept}
    known = await _noises(engine, store, change, blank.gpu)
    forecast = _forecast(change, question, known)
    for line in _announced(change, question, blank, forecast, continued=bool(runs)):
        say(line)
    loop = GateLoop(
        change.units,
        question,
        VariantRuns(engine.session, engine.places, show),
        run_id=engine.runs.new_id("gate"),
        coin=options.coin,
        limit_s=options.limit_s,
    )
    for row in loop.rows:
        for then_ns, now_ns in zip(*runs.get((row.kernel.file, row.kernel.name), ((), ())), strict=True):
            row.add(then_ns, now_ns)
        if noise := known.get((row.kernel.file, row.kernel.name)):
            row.noise, row.pair_s = noise.deviation, noise.pair_s

    def timed(left_s: float) -> None:
        nonlocal forecast
        if forecast.seconds is None:
            forecast = replace(forecast, seconds=loop.seconds + left_s)
            say(f"after its first pairs: it takes about {left_s:.0f} s more if no kernel is slower")

    await loop.run(timed)
    result = _result(loop, change, question, replace(blank, gpu=loop.device or blank.gpu), options, forecast)
    red = any(control.red for control in result.controls)
    if result.verdict != "failed" and not red and any(row.then_ns for row in loop.rows):
        await asyncio.to_thread(store.keep, key, change.tree.root, result)
    return result


def _gpu(engine: Engine) -> str:
    """Return the GPU for the runs, by the name that is known before any has run."""
    place = engine.session.setup
    if place.place() == "modal":
        return place.settings.gpu
    own = place.own_gpu()
    return own.name if own else ""


def _key(change: GateChange, question: GateQuestion, gpu: str) -> str:
    """Return a key that differs as soon as something differs that the verdict depends on."""
    made = hashlib.sha256(f"{change.tree.identity}\n{gpu}\n{question}".encode())
    for kernel in change.kernels:
        assert kernel.now
        sides = f"{kernel.now.digest} {kernel.base.digest if kernel.base else ''} {staleness.job_key(kernel.now.job)}"
        made.update(f"\n{kernel.file} {kernel.name} {sides}".encode("utf-8", "surrogateescape"))
    return made.hexdigest()


# -- before -----------------------------------------------------------------------------------------


async def _noises(
    engine: Engine, store: GateStore, change: GateChange, gpu: str
) -> dict[tuple[str, str], Noise]:
    """Return how much pairs of each kernel differ: by earlier gates, else by runs of the same code in the history."""
    known: dict[tuple[str, str], Noise] = {}
    for kernel in change.compared:
        noise = await asyncio.to_thread(store.noise, change.tree.root, kernel.file, kernel.name, gpu)
        noise = noise or _of_history(
            await engine.history.entries(path_of(kernel.target.uri), kernel.target.key), gpu
        )
        if noise:
            known[kernel.file, kernel.name] = noise
    return known


def _of_history(entries: Sequence[HistoryEntry], gpu: str) -> Noise | None:
    """Return the noise from the history. The deviation of a pair is that of a run times the square root of two. How
    long a pair takes is not known from it.
    """
    groups: dict[object, list[float]] = {}
    for entry in entries:
        device = entry.result.finished.device
        if device and device.name == gpu and (same := setup(entry)) is not None:
            total = sum(launch.timing.median for launch in entry.result.launches)
            groups.setdefault((entry.digest, same), []).append(total)
    times = max(groups.values(), key=len, default=list[float]())
    if len(times) < _RUNS_FOR_NOISE or min(times) <= 0:
        return None
    deviation = sign_bets.noise(times)
    return Noise(math.sqrt(2) * deviation) if deviation is not None else None


def _forecast(
    change: GateChange, question: GateQuestion, known: dict[tuple[str, str], Noise]
) -> GateForecast:
    """Forecast the gate before anything runs."""
    finds, unknown, first_s, pairs_s = 0.0, 0, 0.0, 0.0
    units = [unit for unit in change.units if unit.jobs[1]]
    for unit in units:
        of_unit = [known.get((kernel.file, kernel.name)) for kernel in unit.kernels]
        noises = [noise for noise in of_unit if noise]
        unknown += len(of_unit) - len(noises)
        for noise in noises:
            effect = sign_bets.effect_found(noise.deviation, question)
            finds = math.inf if effect is None else max(finds, effect)
        pairs = max((sign_bets.pairs_expected(noise.deviation, question) for noise in noises), default=0.0)
        timed = [(noise.pair_s, noise.first_s) for noise in noises if noise.pair_s and noise.first_s]
        pairs_s += pairs * max((pair_s for pair_s, _ in timed), default=0.0)
        first_s += max((first_s for _, first_s in timed), default=math.inf)
    controls = math.ceil(len(change.compared) / KERNELS_PER_CONTROL) / max(1, len(units))
    seconds = first_s + pairs_s * (1 + controls)
    return GateForecast(
        finds if known and finds < math.inf else None,
        unknown,
        seconds if units and seconds < math.inf else None,
    )


def _announced(
    change: GateChange, question: GateQuestion, blank: GateResult, forecast: GateForecast, *, continued: bool
) -> list[str]:
    compared = len(change.compared)
    if not compared:
        return []
    share = f"false alarms: at most {100 * question.false_alarm:g}% of gates"
    count = f"{compared} kernel{'s' if compared > 1 else ''}"
    lines = [f"{count} to compare with {change.base_name} on {blank.gpu or 'the GPU'}; {share}"]
    if forecast.finds is not None:
        lines.append(
            f"by the noise of earlier gates, a slow-down of {100 * forecast.finds:.1f}% is found with 95%, in at most {question.most_pairs} pairs a kernel"
        )
    if forecast.seconds is not None:
        lines.append(f"that takes about {forecast.seconds:.0f} s")
    if forecast.unknown:
        lines.append(
            f"the noise of {forecast.unknown} of them is unknown, because no gate has run them on this GPU"
        )
    if continued:
        lines.append("the pairs of an earlier gate of the same code count on")
    return lines


# -- after ------------------------------------------------------------------------------------------


def _result(
    loop: GateLoop,
    change: GateChange,
    question: GateQuestion,
    blank: GateResult,
    options: GateOptions,
    forecast: GateForecast,
) -> GateResult:
    kernels = (*loop.kernels(), *(_left_out(kernel) for kernel in change.left_out))
    kernels = tuple(sorted(kernels, key=lambda kernel: (kernel.file, kernel.line)))
    controls = loop.controls()
    red = any(control.red for control in controls)
    verdict = verdict_of(kernels, red_control=red, failure=loop.is_blind or loop.failure is not None)
    sentence = results.sentence(
        verdict, kernels, base=change.base_name, find=question.find, false_alarm=question.false_alarm,
        red_control=red, failure=loop.failure,
    )  # fmt: skip
    return replace(
        blank,
        verdict=verdict,
        sentence=sentence,
        exit_code=results.exit_code(kernels, verdict, _machines(loop), strict=options.strict),
        kernels=kernels,
        controls=controls,
        discarded=dict(loop.discarded),
        forecast=forecast if change.compared else None,
        seconds=loop.seconds,
        failure=loop.failure,
        cost=spending.total([ended.cost for ended in loop.ended]),
    )


def _machines(loop: GateLoop) -> c.Failure | None:
    """Return the failure that has an exit code of its own. The limit of time is the author's, and makes the gate
    inconclusive.
    """
    return loop.failure if loop.failure and loop.failure.category != "timed out" else None


def verdict_of(kernels: Sequence[GatedKernel], *, red_control: bool, failure: bool) -> GateVerdict:
    """Return the verdict. A red control invalidates all verdicts on times, but not a wrong answer."""
    which = {kernel.verdict for kernel in kernels}
    if "failed" in which:
        return "failed"
    if red_control:
        return "inconclusive"
    if "slower" in which:
        return "slower"
    return "inconclusive" if "inconclusive" in which or failure else "passed"


def _left_out(kernel: ChangedKernel) -> GatedKernel:
    return GatedKernel(kernel.file, kernel.name, kernel.line, "not compared", reason=kernel.reason)


def time_text(result: GateResult) -> str:
    """Return `74 s, $0.12`."""
    cost = result.cost.usd if result.cost else None
    return f"{result.seconds:.0f} s" + (f", {units.money(cost)}" if cost is not None else "")
