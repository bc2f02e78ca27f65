"""Grade referee with arguments beyond the author's, on this machine's NVIDIA GPU: honest pairs that it accuses, newer cheats that get a score.

    python -P bench/referee_inputs.py [--parts pairs,rate,cheats,open,weights] [--most-s 0.3] [--alone] [--pairs NAME …] [--kinds N …]

A pair is a reference and a candidate that computes the same in another way: other operations of torch, or a kernel of Triton. The tables
are those of docs/dev/results/judge.md.
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "remote"))
sys.path.insert(0, str(Path(__file__).parents[1]))

from orbit_remote.child import child_main
from orbit_remote.common import messages as c
from orbit_remote.judge import judge_main
from tests import cheats
from tests.waiting_judges import WaitingJudges

_X = "torch.randn(512, 1024)"
_HALF = ", dtype=torch.float16"
_BF = ", dtype=torch.bfloat16"
_QKV = ["torch.randn(2, 4, 256, 64)"] * 3
PAIRS: dict[str, tuple[list[str], str, str]] = {
    "affine and relu": ([_X], "torch.relu(x * 2 + 1)", "(x + x + 1).clamp(min=0)"),
    "softmax": ([_X], "torch.softmax(x, 1)", "(x - x.amax(1, True)).exp() / (x - x.amax(1, True)).exp().sum(1, True)"),
    "log softmax": ([_X], "torch.log_softmax(x, 1)", "x - torch.logsumexp(x, 1, True)"),
    "layer norm": ([_X], "F.layer_norm(x, (1024,))", "(x - x.mean(1, True)) * torch.rsqrt((x - x.mean(1, True)).square().mean(1, True) + 1e-5)"),
    "rms norm": ([_X], "x * torch.rsqrt(x.square().mean(1, True) + 1e-6)", "x / (x.norm(dim=1, keepdim=True).square() / 1024 + 1e-6).sqrt()"),
    "group norm": (["torch.randn(8, 32, 16, 16)"], "F.group_norm(x, 8)", "F.layer_norm(x.reshape(8, 8, -1), (1024,)).reshape(x.shape)"),
    "batch norm": (["torch.randn(64, 32, 16, 16)"], "F.batch_norm(x, None, None, training=True)", "(x - x.mean((0, 2, 3), True)) / (x.var((0, 2, 3), unbiased=False, keepdim=True) + 1e-5).sqrt()"),
    "gelu": ([_X], "F.gelu(x)", "0.5 * x * (1 + torch.erf(x * 0.7071067811865476))"),
    "silu": ([_X], "F.silu(x)", "x * torch.sigmoid(x)"),
    "softplus": ([_X], "F.softplus(x)", "torch.clamp(x, min=0) + torch.log1p(torch.exp(-x.abs()))"),
    "matrix product": (["torch.randn(512, 512)", "torch.randn(512, 512)"], "x @ y", "torch.einsum('ik,kj->ij', x, y)"),
    "matrix product, split": (["torch.randn(256, 2048)", "torch.randn(2048, 256)"], "x @ y", "x[:, :1024] @ y[:1024] + x[:, 1024:] @ y[1024:]"),
    "matrix product, half": ([f"torch.randn(512, 512{_HALF})", f"torch.randn(512, 512{_HALF})"], "x @ y", "(x.float() @ y.float()).half()"),
    "matrix product, bfloat16": ([f"torch.randn(512, 512{_BF})", f"torch.randn(512, 512{_BF})"], "x @ y", "(x.float() @ y.float()).bfloat16()"),
    "row sums": ([_X], "x.sum(1)", "x.flip(1).sum(1)"),
    "row sums of squares": ([_X], "x.square().sum(1)", "torch.einsum('ij,ij->i', x, x)"),
    "column means": ([_X], "x.mean(0)", "torch.ones(512, device=x.device) @ x / 512"),
    "running sums": ([_X], "x.cumsum(1)", "x.double().cumsum(1).float()"),
    "variance": ([_X], "x.var(1)", "(x - x.mean(1, True)).square().sum(1) / 1023"),
    "maxima": ([_X], "x.amax(1)", "-((-x).amin(1))"),
    "largest and where": ([_X], "(lambda t: (t.values, t.indices))(x.max(1))", "(x.amax(1), x.argmax(1))"),
    "top 8": ([_X], "x.topk(8, 1).values", "x.sort(1, descending=True).values[:, :8]"),
    "attention": (_QKV, "F.scaled_dot_product_attention(x, y, z)", "torch.softmax(x @ y.transpose(-1, -2) / 8, -1) @ z"),
    "attention, causal, half": ([q[:-1] + _HALF + ")" for q in _QKV], "F.scaled_dot_product_attention(x, y, z, is_causal=True)", "(torch.softmax((x.float() @ y.float().transpose(-1, -2) / 8).masked_fill(torch.ones(256, 256, device=x.device).triu(1).bool(), float('-inf')), -1) @ z.float()).half()"),
    "convolution": (["torch.randn(4, 8, 32, 32)", "torch.randn(16, 8, 3, 3)"], "F.conv2d(x, y, padding=1)", "(y.reshape(16, -1) @ F.unfold(x, 3, padding=1)).reshape(4, 16, 32, 32)"),
    "average pool": (["torch.randn(8, 16, 32, 32)"], "F.avg_pool2d(x, 2)", "x.reshape(8, 16, 16, 2, 16, 2).mean((3, 5))"),
    "mean squared error": ([_X, _X], "F.mse_loss(x, y)", "(x - y).square().sum() / x.numel()"),
    "cross entropy": ([_X, "torch.randint(0, 1024, (512,))"], "F.cross_entropy(x, y)", "-(torch.log_softmax(x, 1).gather(1, y[:, None])).mean()"),
    "cosine similarity": ([_X, _X], "F.cosine_similarity(x, y)", "(x * y).sum(1) / (x.norm(dim=1) * y.norm(dim=1)).clamp(min=1e-8)"),
    "binary cross entropy": (["torch.rand(512, 512)", "torch.rand(512, 512)"], "F.binary_cross_entropy(x, y)", "-(y * x.log().clamp(min=-100) + (1 - y) * (1 - x).log().clamp(min=-100)).mean()"),
    "gated": ([_X, _X], "F.silu(x) * y", "x / (1 + torch.exp(-x)) * y"),
    "rotary": ([_X, "torch.rand(512, 512)"], "torch.cat((x[:, :512] * y.cos() - x[:, 512:] * y.sin(), x[:, 512:] * y.cos() + x[:, :512] * y.sin()), 1)", "torch.cat(torch.view_as_real(torch.complex(x[:, :512], x[:, 512:]) * torch.polar(torch.ones_like(y), y)).unbind(-1), 1)"),
    "quantised to 8 bits": ([_X], "(x / (x.abs().amax(1, True) / 127)).round().clamp(-127, 127) * (x.abs().amax(1, True) / 127)", "(x / (x.abs().amax(1, True) / 127)).round().to(torch.int8).float() * (x.abs().amax(1, True) / 127)"),
}  # fmt: skip
"""Honest pairs: what draws the arguments `x`, `y`, `z`; what the reference computes; and the candidate."""
_MODEL = "import torch\nimport torch.nn.functional as F\nfrom torch import nn\nclass {name}(nn.Module):\n    def forward(self, {arguments}):\n        return {body}\n"
_WEIGHTS = cheats.REFERENCE.replace(
    "    def forward(self, x):\n        return torch.relu(x * 2 + 1)",
    "    def __init__(self):\n        super().__init__()\n        self.w = nn.Parameter(torch.randn(4096, 1024))\n    def forward(self, x):\n        return self.w * x",
).replace("torch.randn(512, 1024)", "torch.randn(1024)")
_STREAMED = """
import torch
from torch import nn
import triton
import triton.language as tl

@triton.jit
def scaled(out, w, x, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(w + at{policy}) * tl.load(x + tl.arange(0, BLOCK))
    tl.store(out + at, value{stored})

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(4096, 1024))
    def forward(self, x):
        out = torch.empty_like(self.w)
        scaled[(4096,)](out, self.w, x, BLOCK=1024)
        return out
"""
_STAYS = ', eviction_policy="evict_last"'
_GOES = ', eviction_policy="evict_first"'


_waiting: list[WaitingJudges] = []
"""With sides that wait, as in a worker; none with `--alone`."""


def judged(
    text: str, reference: str, cache: Path, most_s: float, stage: Callable[[c.Event], None] | None = None
) -> tuple[c.Finished, float]:
    with tempfile.TemporaryDirectory() as folder:
        job = cheats.job_of(Path(folder), text, reference, device="cuda")
        if _waiting and stage is None:
            return _waiting[0].judge(job), _waiting[0].seconds[-1]
        stage = stage or (lambda _: None)
        began = time.perf_counter()
        finished = cheats.judge_in_a_fork(lambda: judge_main.judge(job, stage, cache, "cuda", most_s=most_s))
    return finished, time.perf_counter() - began


def told(finished: c.Finished) -> str:
    """The outcome in the words of a table."""
    if finished.failure:
        return f"{finished.outcome}: {finished.failure.message[:220]}".replace("|", "/").replace("\n", " ")
    if finished.judged and getattr(finished.judged, "policy", None):
        return f"ok, no score by the policy {finished.judged.policy.name}"
    return (
        f"ok, {finished.launches[0].timing.median / 1000:.1f} µs" if finished.launches else finished.outcome
    )


def control(finished: c.Finished) -> str:
    """The reference against itself."""
    found = finished.judged.control if finished.judged else None
    return f"{'red, ' * found.red}{found.ratio:.4f} of {found.pairs}" if found and found.ratio else ""


def families(finished: c.Finished) -> str:
    tried = getattr(finished.judged, "beyond", ())  # an earlier state has none
    right = sum(attempt.answer == c.RIGHT for attempt in tried)
    return f"{right} of {len(tried)}"


def texts(name: str) -> tuple[str, str]:
    """The candidate and the reference of a pair."""
    draws, reference, candidate = PAIRS[name]
    names = ", ".join("xyz"[: len(draws)])
    model = _MODEL.format(name="Model", arguments=names, body=reference)
    model += f"def get_inputs(): return [{', '.join(draws)}]\ndef get_init_inputs(): return []\n"
    return _MODEL.format(name="ModelNew", arguments=names, body=candidate), model


def rate(cache: Path, most_s: float) -> Iterable[str]:
    """One client, no server: seconds of an evaluation by its stages, of an earlier state of the judge too."""
    taken: list[float] = []
    parts: dict[str, list[float]] = {}
    for name in ("affine and relu", "softmax", "layer norm", "gelu", "mean squared error"):
        folder = tempfile.mkdtemp()
        log = Path(folder) / "stages"
        began = time.time()

        def stage(event: c.Event, log: Path = log) -> None:
            if isinstance(event, c.Stage):
                with log.open("a") as file:
                    file.write(f"{time.time()} {event.why}\n")

        _, took = judged(*texts(name), cache, most_s, stage)
        taken.append(took)
        stages = [
            (float(line.split(" ", 1)[0]), line.split(" ", 1)[1]) for line in log.read_text().splitlines()
        ]
        ends = [*(at for at, _ in stages[1:]), began + took]
        parts.setdefault("start of processes", []).append(stages[0][0] - began)
        for (at, why), end in zip(stages, ends, strict=True):
            parts.setdefault(why, []).append(end - at)
    yield f"{len(taken)} evaluations in {sum(taken):.1f} s = {60 * len(taken) / sum(taken):.1f} a minute; {', '.join(f'{each:.2f}' for each in taken)}"
    yield "s in the median: " + ", ".join(
        f"{name} {statistics.median(each):.2f}" for name, each in parts.items()
    )


def pairs(cache: Path, most_s: float, wanted: Sequence[str] = ()) -> Iterable[str]:
    yield "| pair | answer | control | families that counted and were right | s |"
    yield "|---|---|---|---|---|"
    counted: Counter[str] = Counter()
    left: Counter[str] = Counter()
    stages: dict[str, list[float]] = {}
    rounds: list[int] = []
    for name in wanted or PAIRS:
        finished, took = judged(*texts(name), cache, most_s)
        counted["accused" if finished.failure else "right"] += 1
        for stage, took_s in (finished.judged.stages if finished.judged else {}).items():
            stages.setdefault(stage, []).append(took_s)
        rounds += [finished.judged.rounds or 0] if finished.judged else []
        for attempt in getattr(finished.judged, "beyond", ()):
            if attempt.answer != c.RIGHT:
                left[f"{attempt.family}: {attempt.answer[:120]}"] += 1
        yield f"| {name} | {told(finished)} | {control(finished)} | {families(finished)} | {took:.1f} |"
    yield f"\n{dict(counted)}; rounds {sorted(rounds)}\n"
    yield "s of a judge, p50: " + ", ".join(
        f"{name} {statistics.median(each):.3f}" for name, each in stages.items()
    )
    yield from (f"- {count} x {why}" for why, count in left.most_common(40))


def tried(cache: Path, most_s: float, every: tuple[cheats.Cheat, ...]) -> Iterable[str]:
    honest, _ = judged(cheats.HONEST.text("cuda"), cheats.REFERENCE, cache, most_s)
    yield f"The honest work takes {told(honest)}.\n"
    yield "| kind | cheat | answer at grade `referee` | s |"
    yield "|---|---|---|---|"
    for cheat in every:
        finished, took = judged(cheat.text("cuda"), cheat.reference, cache, most_s)
        yield f"| {cheat.number} | {cheat.name} | {told(finished)} | {took:.1f} |"


def weights(cache: Path, most_s: float) -> Iterable[str]:
    """Kind 28: 16 MiB of parameters that load instructions ask L2 to keep; the flush of L2 is by another process."""
    yield "| parameters are loaded | answer |"
    yield "|---|---|"
    for name, policy, stored in (
        ("as usual", "", ""), ("to stay in L2", _STAYS, ""), ("to stay, and outputs written to go", _STAYS, _GOES), ("as usual", "", ""),
    ):  # fmt: skip
        finished, _ = judged(_STREAMED.format(policy=policy, stored=stored), _WEIGHTS, cache, most_s)
        yield f"| {name} | {told(finished)} |"


def newer(name: str, kinds: Sequence[int]) -> tuple[cheats.Cheat, ...]:
    """Of `tests.newer_cheats`, which an earlier state has not."""
    every: tuple[cheats.Cheat, ...] = getattr(importlib.import_module("tests.newer_cheats"), name)
    return tuple(cheat for cheat in every if not kinds or cheat.number in kinds)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", default="pairs,rate,cheats,open,weights")
    parser.add_argument("--most-s", type=float, default=0.3)
    parser.add_argument("--pairs", nargs="*", default=[], help="only these; default: all")
    parser.add_argument("--kinds", nargs="*", type=int, default=[], help="only cheats of these; default: all")
    parser.add_argument("--alone", action="store_true", help="no judge waits with its sides")
    options = parser.parse_args()
    child_main.warm_up()
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder)
        if not options.alone:
            _waiting.append(WaitingJudges(cache, "cuda", options.most_s))
        parts = {
            "pairs": lambda: pairs(cache, options.most_s, options.pairs),
            "rate": lambda: rate(cache, options.most_s),
            "cheats": lambda: tried(cache, options.most_s, newer("NEWER", options.kinds)),
            "open": lambda: tried(cache, options.most_s, newer("OPEN", ())),
            "weights": lambda: weights(cache, options.most_s),
        }
        for part in options.parts.split(","):
            print(f"\n== {part}", flush=True)
            for line in parts[part]():
                print(line, flush=True)
        for judges in _waiting:
            judges.end()


if __name__ == "__main__":
    main()
