"""Figures of `orbit-lsp gate`: docs/dev/results/gate.md.

    python -P bench/gate.py untouched --name ten --gates 5 --out DIR   on a GPU: gates of code that did not change
    python -P bench/gate.py planted FOLDER PLANTS --gates 2    on a GPU: gates of kernels that take 2.0 to 2.5 % more time
    python -P bench/gate.py ways --out DIR                     on a GPU: a program, a script, a test and a harness
    python -P bench/gate.py builds --out DIR                   on a GPU: programs that CMake and make build
    python -P bench/gate.py story --out DIR                    on a GPU: a gate of each of some commits, for pictures
    python -P bench/gate.py table DIR...                       the gates that were kept, as tables
    python -P bench/gate.py record RUNS... --name GPU --out bench/gate_runs.json
    python -P bench/gate.py resample bench/gate_runs.json      offline: many gates drawn from the recorded runs
    python -P bench/gate.py plants RUNS.json BOTH.jsonl        offline: the same with slow-downs as they were measured
    python -P bench/gate.py exact                              offline: the bound, and what is found by noise
    python -P bench/gate.py place                              offline: a gate of equal kernels, the second place 1 % slower

FOLDER, PLANTS and RUNS are what `gate_kernels.py` and `gate_long.py` write. `untouched` and `planted` keep what the gate printed in DIR. `resample` draws blocks of consecutive runs, so that drift stays, and asks what the product asks
(`sign_bets.GateQuestion`).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "remote"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import driver_layouts
import gate_kernels
import gate_long
from gate_kernels import CHECKS

from orbit_remote.common.evidence import sign_bets
from orbit_remote.common.evidence.sign_bets import GateQuestion
from orbit_remote.common.measure import median

ROOT = Path(__file__).parents[1]
TEN = (
    "convolution.cu", "elementwise.cu", "histogram.cu", "layer_norm.cu", "reduction.cu", "scan.cu", "softmax.cu", "stencil.cu",
    "transpose.cu",
)  # fmt: skip
"""Files with ten kernels."""
_SOFTMAX = "    values = tl.exp(values - row_max(values, BLOCK))\n"
_MORE = "    values += 0.0 * tl.load(x + ((row + 4096) % 8192) * columns + offsets, mask=inside, other=0.0)\n"
WAYS = {
    "saxpy.cu": ("y[i] = a * x[i] + y[i];", "y[i] = a * x[i] + y[i] + 0.0f * x[i ^ (1 << 22)];"),
    "softmax.py": (_SOFTMAX, _MORE + _SOFTMAX),
    "pkg.py": (_SOFTMAX, _MORE + _SOFTMAX),
    "kernelbench_norm_gelu.py": (
        "    mean = tl.sum(values)",
        "    values += 0.0 * tl.load(x + ((row + 8192) % 16384) * features + columns, mask=inside, other=0.0)\n    mean = tl.sum(values)",
    ),
}
"""A program, a script, a module that a test launches, and a harness: what makes each read more."""
TEST = """\
import torch
from pkg import softmax

def test_softmax():
    x = torch.randn(8192, 4096, device="cuda")
    for _ in range(20):
        out = softmax(x)
    torch.testing.assert_close(out, torch.softmax(x, dim=1))
"""
STORY = (
    ("softmax.cu", "__expf(", "expf("),
    ("transpose.cu", "[TILE][TILE + 1]", "[TILE][TILE]"),
    ("transpose.cu", "[TILE][TILE]", "[TILE][TILE + 1]"),
    ("softmax.cu", "expf(", "__expf("),
)  # fmt: skip
"""Changes, one after the other."""
STEP_NS = 16
"""Of a recording: half a step of the GPU's clock."""
OTHERS = (
    "bitonic_sort.cu", "flash_attention.py", "fp8_quantize.py", "matmul.cu", "matmul_autotuned.py", "matmul_descriptor.py",
    "normalize.cu", "online_softmax.py", "tensor_core_matmul.cu",
)  # fmt: skip


# -- on a GPU ---------------------------------------------------------------------------------------


def repository(
    folder: Path,
    files: Sequence[str],
    source: Path = ROOT / "examples",
    without: re.Pattern[str] | None = None,
) -> None:
    folder.mkdir(parents=True)
    for name in files:
        text = (source / name).read_text()
        (folder / name).write_text(without.sub("", text) if without else text)
    subprocess.run(["git", "init", "-q", "-b", "main"], cwd=folder, check=True)
    commit(folder)


def commit(folder: Path) -> None:
    identity = ("-c", "user.name=bench", "-c", "user.email=bench@localhost", "-c", "commit.gpgsign=false")
    for words in (("add", "-A"), ("commit", "-q", "-m", "examples")):
        subprocess.run(["git", *identity, *words], cwd=folder, check=True)


def gate(folder: Path, out: Path, *words: str) -> dict[str, Any]:
    command = [sys.executable, "-P", "-m", "orbit_lsp", "gate", "--json", "--again", "--trust", *words]
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'remote'}:{os.environ.get('PYTHONPATH', '')}"}
    begin = time.monotonic()
    done = subprocess.run(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=False
    )
    took = time.monotonic() - begin
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(done.stdout)
    result = json.loads(done.stdout)
    print(f"{out.name}: exit code {done.returncode}, {took:.0f} s with its start and its builds", flush=True)
    print(summary(result), flush=True)
    return result


def summary(result: dict[str, Any]) -> str:
    forecast = result["forecast"] or {}
    lines = [
        result["sentence"],
        f"{result['gpu']}: {result['seconds']:.1f} s, named before: {forecast.get('seconds')}; discarded {result['discarded']}",
        f"controls: {[(each['pairs'], each['red']) for each in result['controls']]}",
        "| kernel | time | change | pairs | noise of a pair | a pair takes | verdict |",
        "|---|---|---|---|---|---|---|",
    ]
    for kernel in result["kernels"]:
        if kernel["ratio"] is None:
            lines.append(
                f"| {kernel['kernel']} | | | | | | {kernel['verdict']}: {kernel['reason']} {kernel['failure']} |"
            )
            continue
        noise = "" if kernel["noise"] is None else f"{100 * kernel['noise']:.2f}%"
        lines.append(
            f"| {kernel['kernel']} | {kernel['then_ns'] / 1e3:.1f} µs | {100 * (kernel['ratio'] - 1):+.2f}% | {kernel['pairs']} | {noise} | "
            f"{kernel['pair_s'] or 0:.2f} s | {kernel['verdict']} |"
        )
    return "\n".join(lines)


def untouched(options: argparse.Namespace) -> None:
    files = {"ten": TEN, "others": OTHERS}[options.name or "ten"]
    with tempfile.TemporaryDirectory() as folder:
        repository(Path(folder, "r"), files)
        for number in range(options.gates):
            gate(
                Path(folder, "r"),
                Path(options.out, f"untouched-{options.name}{number}.json"),
                "--all",
                "--base",
                "HEAD",
            )


def ways(options: argparse.Namespace) -> None:
    """Kernels that run by other ways than launch specs, those of `--name` alone where it is given: a change that reads more."""
    chosen = {name: WAYS[name] for name in WAYS if name in options.name or not options.name}
    with tempfile.TemporaryDirectory() as folder:
        there = Path(folder, "r")
        repository(there, [name for name in WAYS if name != "pkg.py"])
        module = (there / "softmax.py").read_text().partition("def benchmark")[0]
        (there / "pkg.py").write_text(module)
        (there / "test_pkg.py").write_text(TEST)
        commit(there)
        for name, (before, after) in chosen.items():
            text = (there / name).read_text()
            assert before in text, name
            (there / name).write_text(text.replace(before, after))
        gate(there, Path(options.out, "ways.json"), "--limit", str(options.limit))


def builds(options: argparse.Namespace) -> None:
    """A kernel of a program that CMake builds, and one that make builds, those of `--name` alone where it is given: a change that reads twice as much."""
    for name in filter(
        lambda name: name.startswith(f"program_{options.name}"), ("program_cmake", "program_make")
    ):
        with tempfile.TemporaryDirectory() as folder:
            there = Path(folder, "r")
            files = driver_layouts.files_of((driver_layouts.LAYOUTS / f"{name}.txt").read_text())
            sizes = {
                text: text.replace("4096", str(1 << 26)).replace("2048", str(1 << 26))
                for text in files.values()
            }
            driver_layouts.write(there, {path: sizes[text] for path, text in files.items()})
            subprocess.run(["git", "init", "-q", "-b", "main"], cwd=there, check=True)
            commit(there)
            source = there / "src/scale.cu"
            text = source.read_text()
            assert "x[i] *= FACTOR" in text
            source.write_text(
                text.replace("x[i] *= FACTOR", "x[i] = x[i] * FACTOR + 0.0f * x[i ^ (1 << 25)]")
            )
            out = Path(options.out, f"builds-{name}.json")
            gate(there, out, "--limit", str(options.limit), *worker(options))


def story(options: argparse.Namespace) -> None:
    """A gate of each of some commits, for the pictures of reports."""
    with tempfile.TemporaryDirectory() as folder:
        there = Path(folder, "r")
        repository(there, sorted({name for name, _, _ in STORY}))
        gate(there, Path(options.out, "story-0.json"), "--all", "--base", "HEAD", *worker(options))
        for number, (name, before, after) in enumerate(STORY, 1):
            text = (there / name).read_text()
            assert before in text, name
            (there / name).write_text(text.replace(before, after))
            commit(there)
            gate(
                there,
                Path(options.out, f"story-{number}.json"),
                "--all",
                "--base",
                "HEAD~1",
                *worker(options),
            )


def worker(options: argparse.Namespace) -> tuple[str, ...]:
    return ("--python", options.python) if options.python else ()


def planted(options: argparse.Namespace) -> None:
    """Gates of kernels that are larger in the present text, as the file of plants says, and were checked before."""
    source, plants = Path(options.folders[0]), json.loads(Path(options.folders[1]).read_text())
    with tempfile.TemporaryDirectory() as folder:
        there = Path(folder, "r")
        repository(there, sorted({key.partition("/")[0] for key in plants}), source, CHECKS)
        for key, size in plants.items():
            name, _, kernel = key.partition("/")
            old = gate_kernels.SIZES[name, kernel][0]
            path = there / name
            path.write_text(with_more_work(path.read_text(), kernel, old, size))
        for number in range(options.gates):
            out = Path(options.out, f"planted-{options.name}{number}.json")
            gate(
                there,
                out,
                "--limit",
                str(options.limit),
                *worker(options),
            )


def with_more_work(text: str, kernel: str, before: str, after: str) -> str:
    """The kernel does more, by its launch spec, and has another statement, as a change of a kernel has."""
    found = re.search(rf"__global__[^;{{]*?\b{kernel}\(", text, re.DOTALL)
    assert found, kernel
    spec = text.rindex(before, 0, found.start())
    end = re.compile(r"\)\s*\{").search(text, found.end())
    assert end, kernel
    text = text[: end.end()] + "\n  int planted = 0; (void)planted;" + text[end.end() :]
    return text[:spec] + after + text[spec + len(before) :]


def table(options: argparse.Namespace) -> None:
    """Print the two tables of the page: the gates of some folders, and each kernel of the gates with planted slow-downs."""
    gates = [
        (path.stem, json.loads(path.read_text()))
        for folder in options.folders
        for path in sorted(Path(folder).glob("*-*.json"))
    ]
    print("| gate | kernels | slower | pairs | discarded | controls: pairs, red | seconds | named before |")
    print("|---|---|---|---|---|---|---|---|")
    for name, result in gates:
        kernels, named = result["kernels"], (result["forecast"] or {}).get("seconds")
        controls = ", ".join(
            f"{each['pairs']} {'red' if each['red'] else 'no'}" for each in result["controls"]
        )
        slower = sum(kernel["verdict"] == "slower" for kernel in kernels)
        pairs, named = sum(kernel["pairs"] for kernel in kernels), "" if named is None else f"{named:.0f}"
        print(
            f"| {name} | {len(kernels)} | {slower} | {pairs} | {sum(result['discarded'].values())} | {controls} | {result['seconds']:.0f} | {named} |"
        )
    print("\n| planted kernel | time | measured | slower in | pairs |\n|---|---|---|---|---|")
    rows: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for name, result in gates:
        for kernel in result["kernels"] if name.startswith("planted") else ():
            rows.setdefault((kernel["file"], kernel["kernel"]), []).append(kernel)
    for (_, name), kernels in sorted(rows.items()):
        changes = ", ".join(f"{100 * (kernel['ratio'] - 1):+.1f}%" for kernel in kernels)
        found = sum(kernel["verdict"] == "slower" for kernel in kernels)
        pairs = ", ".join(str(kernel["pairs"]) for kernel in kernels)
        print(
            f"| {name} | {kernels[0]['then_ns'] / 1e3:.0f} µs | {changes} | {found} of {len(kernels)} | {pairs} |"
        )


# -- the recording ----------------------------------------------------------------------------------


def record(options: argparse.Namespace) -> None:
    """The pairs of `gate_long.py unchanged`, as distances of each run from its kernel's median, in steps of the clock."""
    runs: dict[str, list[float]] = {}
    for file in options.folders:
        for line in Path(file).read_text().splitlines():
            name, pair = json.loads(line)
            runs.setdefault(name, []).extend(pair)
    rows: list[str] = []
    for name, times in sorted(runs.items()):
        middle = round(median(times))
        rows.append(
            f"  {json.dumps(name)}: {json.dumps([middle, [round((each - middle) / STEP_NS) for each in times]])}"
        )
    head = json.dumps({"gpu": options.name, "step_ns": STEP_NS})[1:-1]
    text = f'{{{head}, "runs": {{\n' + ",\n".join(rows).replace(", ", ",") + "\n}}\n"
    Path(options.out).write_text(text)
    print(f"{len(runs)} kernels, {sum(map(len, runs.values()))} runs, {len(text)} bytes")


def recorded(file: str) -> tuple[str, dict[str, list[float]]]:
    """The GPU and the runs of a recording, in nanoseconds: two and two are a pair."""
    read = json.loads(Path(file).read_text())
    return read["gpu"], {
        name: [middle + read["step_ns"] * each for each in steps]
        for name, (middle, steps) in read["runs"].items()
    }


# -- offline ----------------------------------------------------------------------------------------


class Rule:
    """`GateQuestion`'s rule of stopping with its bounds in tables: a gate of thirty kernels in a millisecond."""

    def __init__(self, question: GateQuestion) -> None:
        numbers = range(1, question.most_pairs + 1)
        none = question.most_pairs + 1
        self.slower = [none] + [sign_bets.least_wins(n, question.log_goal()) or none for n in numbers]
        self.clear = [none] + [sign_bets.least_wins(n, -math.log(question.miss)) or none for n in numbers]
        self.question = question

    def decide(self, ratio: Callable[[], float]) -> tuple[str, int]:
        """The verdict on a kernel, and after how many pairs."""
        over = under = 0
        mark, find = 1 + self.question.margin, 1 + self.question.find
        for pairs in range(1, self.question.most_pairs + 1):
            each = ratio()
            over += each > mark
            under += each < find
            if over >= self.slower[pairs]:
                return "slower", pairs
            if under >= self.clear[pairs]:
                return "not slower", pairs
        return "inconclusive", self.question.most_pairs


def pairs_of(runs: Sequence[float], rng: random.Random, effect: float, block: int) -> Callable[[], float]:
    """Pairs of consecutive runs, from blocks drawn at random; a coin decides which run of a pair is the present one's."""
    state = [0, 0]

    def draw() -> float:
        if state[1] == 0:
            state[:] = [2 * rng.randrange(len(runs) // 2), block // 2]
        first, second = runs[state[0] % len(runs)], runs[(state[0] + 1) % len(runs)]
        state[0], state[1] = state[0] + 2, state[1] - 1
        ratio = second / first if rng.random() < 0.5 else first / second
        return ratio * (1 + effect)

    return draw


def upper(count: int, of: int) -> float:
    """The exact upper bound of a share at 95 %, one-sided (Clopper and Pearson, 1934)."""
    low, high = count / of, 1.0
    for _ in range(60):
        share = (low + high) / 2
        below = sum(
            math.exp(
                math.lgamma(of + 1) - math.lgamma(k + 1) - math.lgamma(of - k + 1)
                + k * math.log(share) + (of - k) * math.log1p(-share)
            )
            for k in range(count + 1)
        )  # fmt: skip
        low, high = (share, high) if below > 0.05 else (low, share)
    return high


def resample(options: argparse.Namespace) -> None:
    gpu, runs = recorded(options.file)
    question = GateQuestion(options.kernels)
    rule, rng = Rule(question), random.Random(1)
    noises = {
        name: sign_bets.noise([b / a for a, b in zip(times[::2], times[1::2], strict=False)]) or 0.0
        for name, times in runs.items()
    }
    print(
        f"{gpu}: {len(runs)} kernels, {sum(map(len, runs.values()))} runs; noise of a pair: "
        f"{100 * min(noises.values()):.2f} to {100 * max(noises.values()):.2f} %, median {100 * median(noises.values()):.2f} %"
    )
    print(
        f"gates of {options.kernels} kernels, blocks of {options.block} runs, false alarms at most {question.false_alarm:.0%}"
    )
    print(
        "\n| kernels | gates | red | upper bound, 95 % | inconclusive kernels | pairs of a kernel |\n|---|---|---|---|---|---|"
    )
    for name, effect in (("unchanged", 0.0), (f"{question.margin:.1%} slower: the margin", question.margin)):
        red = undecided = pairs = 0
        for _ in range(options.gates):
            verdicts = []
            for kernel in rng.choices(list(runs), k=options.kernels):
                verdict, took = rule.decide(pairs_of(runs[kernel], rng, effect, options.block))
                verdicts.append(verdict)
                pairs += took
            red += "slower" in verdicts
            undecided += verdicts.count("inconclusive")
        total = options.gates * options.kernels
        print(
            f"| {name} | {options.gates} | {red} | {upper(red, options.gates):.3%} | {undecided / total:.2%} | {pairs / total:.1f} |"
        )
    print("\n| slower by | found | given up as not slower | inconclusive | pairs |\n|---|---|---|---|---|")
    for effect in (0.01, 0.015, 0.02, 0.03):
        verdicts, pairs = [], 0
        for times in runs.values():
            for _ in range(options.planted):
                verdict, took = rule.decide(pairs_of(times, rng, effect, options.block))
                verdicts.append(verdict)
                pairs += took
        shares = [verdicts.count(each) / len(verdicts) for each in ("slower", "not slower", "inconclusive")]
        print(
            f"| {effect:.1%} | {' | '.join(f'{share:.1%}' for share in shares)} | {pairs / len(verdicts):.1f} |"
        )


def plants(options: argparse.Namespace) -> None:
    """Gates drawn from recorded runs, each kernel slower by what `gate_long.py verify` has measured of its plant."""
    (_, runs), ratios = recorded(options.folders[0]), gate_long.ratios(options.folders[1])
    rule, rng = Rule(GateQuestion(len(ratios))), random.Random(3)
    print(
        "| kernel | time | slower by, measured | runs of a side | found | pairs |\n|---|---|---|---|---|---|"
    )
    found: dict[str, list[bool]] = {}
    for key, (ratio, count) in sorted(ratios.items(), key=lambda each: each[1]):
        drawn = [
            rule.decide(pairs_of(runs[key], rng, ratio - 1, options.block)) for _ in range(options.planted)
        ]
        found[key] = [verdict == "slower" for verdict, _ in drawn]
        pairs = sum(took for _, took in drawn) / len(drawn)
        print(
            f"| {key.partition('/')[2]} | {median(runs[key]) / 1e3:.0f} µs | {ratio - 1:.2%} | {count} | "
            f"{sum(found[key]) / len(drawn):.1%} | {pairs:.1f} |"
        )
    chosen = [found[key] for key, (ratio, _) in ratios.items() if ratio >= 1.02]
    sixty = [sum(rng.choice(each) for each in rng.choices(chosen, k=60)) for _ in range(2000)]
    enough = sum(count >= 57 for count in sixty) / len(sixty)
    print(
        f"\nof sixty of the {len(chosen)} plants of 2 % or more: {sum(sixty) / len(sixty):.1f} found; "
        f"57 or more in {enough:.1%} of {len(sixty)} drawings"
    )


def exact(options: argparse.Namespace) -> None:
    """The bound on false alarms, and what is found by noise; nothing is drawn."""
    del options
    print("| kernels | pairs that must agree | within 60 pairs | within 200 pairs |\n|---|---|---|---|")
    for kernels in (1, 10, 30, 100):
        goal = GateQuestion(kernels).log_goal()
        agree = next(pairs for pairs in range(1, 60) if sign_bets.least_wins(pairs, goal))
        chances = [kernels * sign_bets.reaches(0.5, pairs, goal)[0] for pairs in (60, 200)]
        print(f"| {kernels} | {agree} | {chances[0]:.2%} | {chances[1]:.2%} |")
    print("\n| noise of a run | 1 kernel | 10 kernels | 30 kernels | pairs |\n|---|---|---|---|---|")
    for noise in (0.002, 0.005, 0.0066, 0.01, 0.014):
        deviation = math.sqrt(2) * noise
        finds = [
            sign_bets.effect_found(deviation, GateQuestion(kernels, find=sign_bets.MARGIN)) or math.inf
            for kernels in (1, 10, 30)
        ]
        pairs = sign_bets.pairs_expected(deviation, GateQuestion(30))
        print(
            f"| {100 * noise:g} % | {' | '.join(f'{100 * effect:.1f} %' for effect in finds)} | {pairs:.1f} |"
        )


def place(options: argparse.Namespace) -> None:
    """Equal kernels with normal noise, whose second place in a pair takes longer."""
    rng, rule = random.Random(2), Rule(GateQuestion(options.kernels))
    print(
        "| second place slower by | noise of a run | order | red gates | kernels called slower |\n|---|---|---|---|---|"
    )
    for cost in (0.0, 0.003, 0.01):
        for coin in (False, True):

            def ratio(cost: float = cost, coin: bool = coin) -> float:
                now_second = not coin or rng.random() < 0.5
                times = [1 + rng.gauss(0, 0.005), (1 + rng.gauss(0, 0.005)) * (1 + cost)]
                return times[1] / times[0] if now_second else times[0] / times[1]

            verdicts = [[rule.decide(ratio)[0] for _ in range(options.kernels)] for _ in range(options.gates)]
            red = sum("slower" in each for each in verdicts) / options.gates
            slower = sum(each.count("slower") for each in verdicts) / options.gates / options.kernels
            order = "drawn" if coin else "fixed"
            print(f"| {cost:.1%} | 0.5% | {order} | {red:.2%} | {slower:.2%} |")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "what",
        choices=(
            "untouched",
            "planted",
            "ways",
            "builds",
            "story",
            "plants",
            "table",
            "record",
            "resample",
            "exact",
            "place",
        ),
    )
    parser.add_argument("folders", nargs="*", metavar="FILE|DIR")
    parser.add_argument("--out", default="gate-figures")
    parser.add_argument("--name", default="")
    parser.add_argument("--gates", type=int, default=1)
    parser.add_argument("--kernels", type=int, default=30)
    parser.add_argument("--planted", type=int, default=500, help="of each kernel and effect")
    parser.add_argument(
        "--limit", type=float, default=100.0, help="seconds of a gate of `ways` and `planted`"
    )
    parser.add_argument("--python", default="", help="the worker's Python, for `planted`")
    parser.add_argument("--block", type=int, default=10)
    options = parser.parse_args()
    options.file = next(iter(options.folders), "")
    globals()[options.what](options)


if __name__ == "__main__":
    main()
