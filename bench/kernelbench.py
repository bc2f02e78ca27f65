"""KernelBench's own evaluator and ours on the same problems and candidates, on this machine's NVIDIA GPU: where their verdicts differ.

    python -P bench/kernelbench.py CLONE [--problems 20] [--at-once 6]

CLONE is a clone of ScalingIntelligence/KernelBench. Its problems with real candidates are those of its prompts; the rest are of level 1,
made smaller (`SMALLER`), each with candidates that are its own text, changed (`CHANGES`). Both sides get the same two texts and
five trials; ours judges at grade `author`. Where either gives no answer, the pair does not count as the same. KernelBench's evaluator
runs in a process of its own for each pair, as its README asks. What it imports for models' answers (openai, litellm, dotenv, tqdm,
datasets) is replaced by empty modules where it is not installed. Needs torch, Triton, numpy, requests and nvcc.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parent))

from evaluation_gpu import Server, say, server

SMALLER: Final = [
    (r"\b393216\b", "8192"), (r"\b(dim1|dim2) = (4096|4095|512)\b", r"\1 = 256"), (r"\b32768\b", "2048"),
    (r"\b16384 \* 2\b", "2048"), (r"\bK = 4096 \* 2\b", "K = 1024"), (r"\b2048 \* 2\b", "1024"),
]  # fmt: skip
"""The problems as published take up to 6.4 GB each, and two minutes to fill them."""
LEVEL_1: Final = [1, 19, 20, 21, 22, 23, 24, 25, 26, 28, 29, 30, 31, 32, 36, 40, 47, 48, 88, 94, 95, 100]
PROMPTS: Final = {
    "add, load_inline": ("model_ex_add", "model_new_ex_add"),
    "add, Triton": ("model_ex_add", "model_new_ex_add_triton"),
    "few shot, add": ("few_shot/model_ex_add", "few_shot/model_new_ex_add"),
    "few shot, fused GELU": ("few_shot/model_ex_fuse_gelu", "few_shot/model_new_ex_fuse_gelu"),
    "few shot, MNIST": ("few_shot/model_ex_mnist2", "few_shot/model_new_ex_mnist2"),
    "few shot, tiled product": ("few_shot/model_ex_tiled_matmul", "few_shot/model_new_ex_tiled_matmul"),
    "few shot, attention": ("few_shot/model_ex_flash_attn", "few_shot/model_new_ex_flash_attn"),
}
CHANGES: Final = {
    "as it is": "{result}",
    "5 % more": "{result} * 1.05 + 0.05",
    "another shape": "torch.stack([{result}] * 2)",
    "another type": "({result}).double()",
    "NaN": "{result} * float('nan')",
    "raises": "{result}.no_such_method()",
    "half precision": "{result_half}",
}
THEIRS: Final = """
import sys, types, json
for name in ("openai", "litellm", "dotenv", "tqdm", "datasets"):
    try:
        __import__(name)
    except ImportError:
        empty = sys.modules[name] = types.ModuleType(name)
        empty.OpenAI = empty.completion = empty.load_dotenv = empty.tqdm = lambda *a, **k: None
sys.path.insert(0, sys.argv[1] + "/src")
from kernelbench.eval import eval_kernel_against_ref
reference, candidate = (open(path).read() for path in sys.argv[2:4])
backend = "triton" if "import triton" in candidate else "cuda"
result = eval_kernel_against_ref(reference, candidate, num_correct_trials=5, backend=backend, device=0)
metadata = {name: str(value)[:300] for name, value in result.metadata.items()}
print("\\n" + json.dumps([bool(result.compiled), bool(result.correctness), metadata]))
"""


@dataclass(frozen=True)
class Pair:
    problem: str
    candidate: str
    reference_text: str
    candidate_text: str


def pairs(clone: Path, problems: int) -> list[Pair]:
    """The pairs of `problems` problems; those with published candidates first."""
    made: list[Pair] = []
    prompts = clone / "src" / "kernelbench" / "prompts"
    for name, (old, new) in list(PROMPTS.items())[:problems]:
        made.append(Pair(name, "published", *((prompts / f"{part}.py").read_text() for part in (old, new))))
    for number in LEVEL_1[: max(0, problems - len(PROMPTS))]:
        path = next((clone / "KernelBench" / "level1").glob(f"{number}_*.py"))
        text = path.read_text()
        for pattern, smaller in SMALLER:
            text = re.sub(pattern, smaller, text)
        made += [Pair(path.stem, name, text, changed(text, change)) for name, change in CHANGES.items()]
        made.append(
            Pair(
                path.stem,
                "syntax error",
                text,
                changed(text, "{result}").replace("def forward", "def def", 1),
            )
        )
    return made


def changed(text: str, change: str) -> str:
    """The problem's text as a candidate, whose result, or arguments for `{result_half}`, is changed before it is returned."""
    text = re.sub(r"\bModel\b", "ModelNew", text)
    body, forward, tail = text.partition("    def forward(")
    own, end, rest = tail.partition("\n\n")
    for _ in range(3):  # docstrings and bodies have empty lines
        if "return " in own:
            break
        more, end, rest = rest.partition("\n\n")
        own += "\n\n" + more
    head, _, result = own.rpartition("return ")
    if "{result_half}" in change:
        names = re.findall(r"(\w+): torch\.Tensor", own)
        halves = "".join(
            f"{name} = {name}.half().float() if {name}.is_floating_point() else {name}\n        "
            for name in names
        )
        return f"{body}{forward}{head}{halves}return {result}{end}{rest}"
    return f"{body}{forward}{head}return {change.format(result=f'({result.strip()})')}{end}{rest}"


Verdict = tuple[bool, bool] | None
"""Whether it compiled, whether it was right; None without an answer."""


def theirs(clone: Path, pair: Pair) -> tuple[Verdict, str]:
    with tempfile.TemporaryDirectory() as folder:
        old, new = Path(folder, "reference.py"), Path(folder, "candidate.py")
        old.write_text(pair.reference_text)
        new.write_text(pair.candidate_text)
        command = [sys.executable, "-c", THEIRS, clone, old, new]
        own = os.environ | {"TORCH_EXTENSIONS_DIR": folder}  # two pairs may build extensions of one name
        try:
            ran = subprocess.run(command, env=own, capture_output=True, text=True, check=False, timeout=300)
        except subprocess.TimeoutExpired:
            return None, "no answer within 300 s"
    if ran.returncode:
        return None, f"ended with {ran.returncode}: {ran.stderr.strip()[-300:]}"
    compiled, correct, metadata = json.loads(ran.stdout.rsplit("\n", 2)[-2])
    return (compiled, correct), str(metadata)


async def ours(known: Server, pair: Pair) -> tuple[Verdict, str]:
    answer = await known.evaluate(pair.reference_text, pair.candidate_text, num_correct_trials=5)
    result = answer.get("kernel_exec_result")
    verdict = (bool(result["compiled"]), bool(result["correctness"])) if result else None
    return verdict, json.dumps(answer)[:1500]


async def compare(clone: Path, problems: int, at_once: int) -> None:
    every = pairs(clone, problems)
    turns = asyncio.Semaphore(at_once)

    async def their(pair: Pair) -> tuple[Verdict, str]:
        async with turns:
            return await asyncio.to_thread(theirs, clone, pair)

    upstream = await asyncio.gather(*(their(pair) for pair in every))
    same = 0
    with tempfile.TemporaryDirectory() as folder:
        async with server(Path(folder)) as known:
            own = await asyncio.gather(*(ours(known, pair) for pair in every))
    counts: Counter[str] = Counter()
    for pair, (verdict, why), (mine, answer) in zip(every, upstream, own, strict=True):
        counts[str(verdict)] += 1
        if verdict is not None and verdict == mine:
            same += 1
            continue
        say(
            f"{pair.problem}, {pair.candidate}: KernelBench (compiled, right) {verdict}, ours {mine}",
            f"    {why[:500]}",
            f"    {answer[:500]}",
        )
    say(
        f"{len({pair.problem for pair in every})} problems, {len(every)} pairs: {same} with the same verdict; KernelBench's "
        f"(compiled, right): {dict(counts)}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("clone", type=Path)
    parser.add_argument("--problems", type=int, default=20)
    parser.add_argument("--at-once", type=int, default=6)
    options = parser.parse_args()
    asyncio.run(compare(options.clone, options.problems, options.at_once))


if __name__ == "__main__":
    main()
