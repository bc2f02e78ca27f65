"""Wrong kernels made from ten correct examples by rule, and how many of them their launch specs find.

    python -P scripts/mutants.py FOLDER          write every mutant and FOLDER/mutants.json, compile each
    python -P scripts/mutants.py FOLDER --run    run each on this machine's GPU, print the table; again with the same
                                                 folder: those that FOLDER/outcomes.json has no outcome of
        --rules "wrong tail" unwritten           only these kinds or rules
        --all                                    the rules beyond the five kinds as well

The five kinds are: off by one, wrong tail, unwritten element, wrong constant, computes once. Every rule is applied
wherever it fits in the text of a kernel and of the device functions that it calls, and every mutant is counted; none
is chosen by hand. Left alone by rule are

- declarations of arrays, whose extents say how much room there is and not what is computed;
- the step of a `for` statement and the masks of warp shuffles: those mutants hang or race, and races are the
  sanitizer's business (no rule removes a barrier either);
- mutants whose text another rule has made already, and those that do not compile, which are listed.

Set aside, counted by category and listed with the reason, is what comparing outputs cannot find: mutants from which
the compiler makes the very same machine code, those that a rule of mutant_reasons.py recognises, and those argued one
by one there. A mutant is found if its run is a wrong answer, a runtime error or a time-out.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import cast

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "bench"))
from mutant_reasons import SAME, reason
from mutant_rules import KINDS, RULES, Change, Source, chosen, source
from spec_job import job, run

from orbit_remote.common import messages as c
from orbit_remote.common.requests import Job

EXAMPLES = Path(__file__).parent.parent / "examples"
KERNELS = (
    ("elementwise.cu", "saxpy"),
    ("transpose.cu", "transpose"),
    ("reduction.cu", "reduce_sum"),
    ("softmax.cu", "softmax"),
    ("layer_norm.cu", "layer_norm"),
    ("histogram.cu", "histogram"),
    ("matmul.cu", "matmul"),
    ("stencil.cu", "heat"),
    ("online_softmax.py", "online_softmax"),
    ("fp8_quantize.py", "quantize"),
)
FOUND = ("wrong answer", "runtime error", "timed out")
LIMIT_S = 6.0
"""Of a mutant's run: some loops of theirs never end. An original takes a quarter of a second."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """`file` is its name in the folder; lines count from 1. `aside` says why comparing outputs need not find it and
    `category` what it is then, `broken` why it does not compile; mostly all three are empty.
    """

    file: str
    example: str
    kernel: str
    rule: str
    line: int
    original: str
    mutated: str
    category: str = ""
    aside: str = ""
    broken: str = ""


def made(mutants: Sequence[Mutant]) -> list[str]:
    """How many each kind and each of its rules made, a line each."""
    counts = Counter(mutant.rule for mutant in mutants)
    lines: list[str] = []
    for kind, rules in (
        KINDS | {"others": tuple(set(RULES) - {r for many in KINDS.values() for r in many})}
    ).items():
        parts = [f"{rule} {counts[rule]}" for rule in RULES if rule in rules and counts[rule]]
        if parts:
            lines.append(
                f"{kind} {sum(counts[rule] for rule in rules)}"
                + (f" ({', '.join(parts)})" if len(rules) > 1 else "")
            )
    return lines


# -- making them ----------------------------------------------------------------------------------------


def make(folder: Path, rules: Sequence[str]) -> list[Mutant]:
    """Writes every mutant of these rules below `folder` and says which of them compile to something else."""
    mutants: list[Mutant] = []
    times: Counter[tuple[str, str, str]] = Counter()
    for example, name in KERNELS:
        of = source(EXAMPLES / example, name)
        seen = {of.text}
        for rule in rules:
            changes = [change for part in RULES[rule] for change in part(of)]
            for change in sorted(changes, key=lambda change: change.start):
                text = of.text[: change.start] + change.text + of.text[change.end :]
                if rule == "computes once":
                    text = _before_kernel(of, text)
                if text in seen:
                    continue
                seen.add(text)
                mutant = _written(folder, of, example, rule, change, text, len(mutants))
                key = mutant.kernel, rule, mutant.mutated
                times[key] += 1
                again = f" #{times[key]}" if times[key] > 1 else ""
                category, aside = reason(mutant.kernel, rule, mutant.mutated + again, of.text, text)
                mutants.append(replace(mutant, category=category, aside=aside))
    originals = {example: _assembled(EXAMPLES / example, name) for example, name in KERNELS}
    with ThreadPoolExecutor() as pool:
        return list(pool.map(partial(_judged, folder, originals), mutants))


def _before_kernel(of: Source, text: str) -> str:
    """The counter of blocks, above the kernel's spec; comments may not be torn from it."""
    lines = text.splitlines(keepends=True)
    at = of.kernel.whole.line
    while at and lines[at - 1].startswith("//"):
        at -= 1
    return "".join([*lines[:at], "__device__ unsigned int orbit_blocks;\n\n", *lines[at:]])


def _written(
    folder: Path, of: Source, example: str, rule: str, change: Change, text: str, number: int
) -> Mutant:
    stem, _, suffix = example.rpartition(".")
    file = f"{stem}_{number:03}.{suffix}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / file).write_text(text, encoding="utf-8")
    line = of.text.count("\n", 0, change.start)
    original = of.text.splitlines()[line].strip()
    first = of.text.rfind("\n", 0, change.start) + 1
    mutated = text[first:].partition("\n")[0].strip() if rule != "computes once" else "(counts its blocks)"
    return Mutant(file, example, of.kernel.name, rule, line + 1, original, mutated)


def _judged(folder: Path, originals: dict[str, bytes | str], mutant: Mutant) -> Mutant:
    made = _assembled(folder / mutant.file, mutant.kernel)
    if isinstance(made, str):
        return replace(mutant, broken=made)
    if mutant.example.endswith(".cu") and made == originals[mutant.example]:
        return replace(mutant, category=SAME, aside="the compiler makes the same machine code")
    return mutant


def _assembled(file: Path, kernel: str) -> bytes | str:
    """The cubin of a CUDA file with its kernel instantiated as its spec does, or the compiler's first error.

    A Python file is only read: what Triton makes of it depends on the launch.
    """
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".py":
        try:
            compile(text, str(file), "exec")
        except SyntaxError as error:
            return f"{error.msg}, line {error.lineno}"
        return text.encode()
    arguments = re.search(rf"// orbit: launch {kernel}(<[^<>]+>)?<<<", text)
    instance = f"\nauto* orbit_instance = &{kernel}{arguments[1]};\n" if arguments and arguments[1] else ""
    with tempfile.TemporaryDirectory() as scratch:
        at = Path(scratch) / "kernel.cu"
        at.write_text(text + instance, encoding="utf-8")
        done = subprocess.run(
            ["nvcc", "-O3", "-arch=sm_90a", "-cubin", "-o", "kernel.cubin", "kernel.cu"],
            cwd=scratch, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            return next((line for line in done.stderr.splitlines() if "error" in line), "nvcc failed")[-120:]
        return (Path(scratch) / "kernel.cubin").read_bytes()


# -- running them ---------------------------------------------------------------------------------------


class Outcomes:
    """How each ended, by file, kept as a run goes on: a GPU may be had for less time than all of them take."""

    def __init__(self, file: Path) -> None:
        self.ended: dict[str, c.Finished] = {}
        self._file = file
        self._texts: dict[str, str] = {}
        self._before: dict[str, list[str]] = {}
        with suppress(OSError, ValueError):
            self._before = json.loads(file.read_text(encoding="utf-8"))

    def known(self, file: str, request: Job) -> bool:
        """Whether this very text was run before."""
        self._texts[file] = c.content_hash(request.text.encode())
        text, outcome, message = self._before.get(file, ("", "", ""))
        if text != self._texts[file]:
            return False
        kind = cast("c.Outcome", outcome)
        self.ended[file] = c.Finished(file, kind, c.Failure(kind, message) if message else None)
        return True

    def add(self, file: str, finished: c.Finished) -> None:
        self.ended[file] = finished
        rows = {
            name: [self._texts[name], finished.outcome, _why(finished)]
            for name, finished in self.ended.items()
        }
        self._file.write_text(json.dumps(rows, indent=0), encoding="utf-8")


async def judge(folder: Path, mutants: list[Mutant], at_once: int) -> dict[str, c.Finished]:
    """How each ended, by file; the originals by their own names. Builds go side by side, runs one by one."""
    from orbit_lsp.runners.local import LocalOptions, LocalRunner

    outcomes = Outcomes(folder / "outcomes.json")
    jobs = {example: job(EXAMPLES / example, kernel, LIMIT_S) for example, kernel in KERNELS}
    jobs |= {
        mutant.file: job(folder / mutant.file, mutant.kernel, LIMIT_S)
        for mutant in mutants
        if not mutant.broken
    }
    runner = LocalRunner(LocalOptions(python=sys.executable))
    places = asyncio.Semaphore(at_once)

    async def one(file: str, request: Job) -> None:
        async with places:
            outcomes.add(file, await run(runner, request))
        message = f"{len(outcomes.ended)}/{len(jobs)} {file}: {outcomes.ended[file].outcome}"
        print(message, file=sys.stderr, flush=True)

    left = {file: request for file, request in jobs.items() if not outcomes.known(file, request)}
    try:
        await asyncio.gather(*(one(file, request) for file, request in left.items()))
    finally:
        await runner.close()
    return outcomes.ended


def report(mutants: list[Mutant], ended: dict[str, c.Finished]) -> tuple[str, bool]:
    """The table in Markdown, and whether all that is not set aside was found, without a false alarm."""
    mutants = [_as_run(mutant, ended) for mutant in mutants]
    judged = [mutant for mutant in mutants if not mutant.broken]
    real = [mutant for mutant in judged if not mutant.aside]
    results = [mutant for mutant in real if ended[mutant.file].outcome in FOUND]
    missed = [mutant for mutant in real if mutant not in results]
    alarms = [example for example, _ in KERNELS if ended[example].outcome != "ok"]
    counts = Counter((mutant.kernel, mutant.rule) for mutant in real)
    caught = Counter((mutant.kernel, mutant.rule) for mutant in results)
    names = [kernel for _, kernel in KERNELS]
    lines = [f"| rule: found of made | {' | '.join(names)} | all |", "|---" * (len(names) + 2) + "|"]
    kinds = {rule: kind for kind, rules in KINDS.items() for rule in rules}
    for rule in (name for name in RULES if any(counts[n, name] for n in names)):
        cells = [f"{caught[n, rule]}/{counts[n, rule]}" if counts[n, rule] else "" for n in names]
        total = sum(counts[n, rule] for n in names)
        label = rule if rule not in kinds or kinds[rule].startswith(rule) else f"{kinds[rule]}: {rule}"
        lines.append(f"| {label} | {' | '.join(cells)} | {sum(caught[n, rule] for n in names)}/{total} |")
    outcomes = Counter(ended[mutant.file].outcome for mutant in results)
    lines.append(
        f"\n{len(results)} of {len(real)} mutants found, {len(missed)} missed; {len(alarms)} false alarms on the "
        f"{len(KERNELS)} originals. Besides: {_aside(judged, ended)}{len(mutants) - len(judged)} that do not compile.\n\n"
        f"Found as: {', '.join(f'{name} {count}' for name, count in outcomes.most_common())}.\n"
    )
    lines += [
        f"- false alarm: {example}: {ended[example].outcome}: {_why(ended[example])}" for example in alarms
    ]
    lines += [f"- missed ({ended[mutant.file].outcome}): {_shown(mutant)}" for mutant in missed]
    same = [mutant for mutant in judged if mutant.aside]
    lines += [f"- {'set aside, and yet found' if ended[mutant.file].outcome in FOUND else 'set aside'}: {_shown(mutant)}: {mutant.category}: {mutant.aside}" for mutant in same]  # fmt: skip
    lines += [f"- does not compile: {_shown(mutant)}: {mutant.broken}" for mutant in mutants if mutant.broken]
    return "\n".join(lines), not (missed or alarms)


def _shown(mutant: Mutant) -> str:
    return f"{mutant.file}, {mutant.kernel}, {mutant.rule}, line {mutant.line}: `{mutant.original}` -> `{mutant.mutated}`"


def _as_run(mutant: Mutant, ended: dict[str, c.Finished]) -> Mutant:
    """What Triton does not compile is known only now."""
    finished = ended.get(mutant.file)
    if finished is None or finished.outcome != "compile error" or mutant.broken:
        return mutant
    return replace(mutant, broken=_why(finished) or "compile error")


def _aside(judged: Sequence[Mutant], ended: dict[str, c.Finished]) -> str:
    """What is set aside, by category, and how much of it was found all the same."""
    counts = Counter(mutant.category for mutant in judged if mutant.aside)
    result = Counter(
        mutant.category for mutant in judged if mutant.aside and ended[mutant.file].outcome in FOUND
    )
    return "".join(f"{counts[name]} {name} ({result[name]} found all the same), " for name in counts)


def _why(finished: c.Finished) -> str:
    return finished.failure.message if finished.failure else ""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--run", action="store_true", help="run them on this machine's GPU")
    parser.add_argument("--at-once", type=int, default=8, help="jobs under way; their runs take turns")
    parser.add_argument(
        "--rules", nargs="+", default=[], metavar="NAME", choices=[*KINDS, *RULES],
        help=f"kinds ({', '.join(KINDS)}; these unless given) or rules ({', '.join(RULES)})",
    )  # fmt: skip
    parser.add_argument("--all", action="store_true", help="every rule")
    options = parser.parse_args()
    mutants = make(options.folder, chosen(options.rules, every=options.all))
    listing = [asdict(mutant) for mutant in mutants]
    (options.folder / "mutants.json").write_text(json.dumps(listing, indent=1), encoding="utf-8")
    broken = [mutant for mutant in mutants if mutant.broken]
    same = [mutant for mutant in mutants if mutant.aside]
    categories = Counter(mutant.category for mutant in same)
    print(*made(mutants), sep="\n", file=sys.stderr)
    print(f"{len(mutants)} made, {len(broken)} do not compile, {len(same)} set aside", file=sys.stderr)
    print(*(f"set aside: {count} {name}" for name, count in categories.items()), sep="\n", file=sys.stderr)
    for item in broken:
        print(f"does not compile: {item.file}: {item.mutated}: {item.broken}", file=sys.stderr)
    if not options.run:
        return 0
    table, passed = report(mutants, asyncio.run(judge(options.folder, mutants, options.at_once)))
    (options.folder / "mutants.md").write_text(table + "\n", encoding="utf-8")
    print(table)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
