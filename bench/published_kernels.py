"""The judge on published, honest Triton kernels, on this machine's NVIDIA GPU: how many does it accuse falsely?

    python -P bench/published_kernels.py CLONE [--most 200] [--grades author,referee] [--within 900] [--pairs FILE]

CLONE is a clone of thunlp/TritonBench, whose data/TritonBench_G_v1 has 184 operators from public repositories, each with calls that test
it. Each file runs once, in a process of its own; the largest call of a function of the file is recorded. The pair that is then
judged has that function on both sides, with new values of the recorded shapes and types (small tensors of integers keep theirs). So
every candidate is right, and as fast as it says. The second grade gets what was right at the first: some do not compute the same
twice, because they read memory that nobody wrote. A file that does not run with this Triton, or whose call cannot be written as text,
is counted as left out.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parent))

from evaluation_gpu import Server, say, server

RECORD: Final = r'''
import functools, json, sys, types
import torch
path, tests, answer = sys.argv[1:]
module = types.ModuleType("kernels")
module.__file__ = path
sys.modules["kernels"] = module
exec(compile(open(path).read(), path, "exec"), module.__dict__)
calls, depth = [], [0]
SMALL = 4096

def spec(value, tensors):
    """Source text that makes the value; raises TypeError for a value that no text makes."""
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return f"_t[{len(tensors) - 1}]"
    if isinstance(value, (list, tuple)):
        inner = "".join(f"{spec(item, tensors)}, " for item in value)
        return f"[{inner}]" if isinstance(value, list) else f"({inner})"
    if value is None or isinstance(value, (bool, int, float, str, torch.dtype)):
        if isinstance(value, float) and value - value != 0:
            return f"float('{value}')"
        return repr(value)
    if isinstance(value, torch.device):
        return f"torch.device({str(value)!r})"
    raise TypeError(type(value).__name__)

def made(tensor):
    """Source text of values of its shape, type, order of dimensions and spread; small integers, which may be offsets, are kept."""
    shape, kind = tuple(tensor.shape), f"dtype={tensor.dtype}"
    if not tensor.is_contiguous() and 0 in tensor.stride():
        raise TypeError("a stride of 0")
    order = sorted(range(tensor.dim()), key=lambda d: -tensor.stride(d))
    stored = tuple(shape[d] for d in order)
    back = tuple(order.index(d) for d in range(tensor.dim()))
    if tensor.is_floating_point():
        if tensor.dtype not in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
            raise TypeError(str(tensor.dtype))
        values = tensor.detach().double()
        finite = values[values.isfinite()]
        if not len(finite):
            raise TypeError("no finite values")
        low, high = float(finite.min()), float(finite.max())
        if low >= 0 or high <= 0:
            text = f"(torch.rand({stored}) * {high - low!r} + {low!r}).to({tensor.dtype})"
        else:
            text = f"(torch.randn({stored}) * {float(finite.std(correction=0))!r} + {float(finite.mean())!r}).to({tensor.dtype})"
    elif tensor.dtype == torch.bool:
        text = f"(torch.rand({stored}) < {float(tensor.double().mean())!r})"
    elif tensor.numel() <= SMALL:
        text = f"torch.tensor({tensor.permute(order).tolist()}, {kind})"
    else:
        text = f"torch.randint({int(tensor.min())}, {int(tensor.max()) + 1}, {stored}, {kind})"
    return text if back == tuple(range(len(back))) else f"{text}.permute({back})"

def flat(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in flat(item)]
    return []

def watched(name, function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        if depth[0]:
            return function(*args, **kwargs)
        tensors = []
        try:
            text = ", ".join([*(spec(value, tensors) for value in args), *(f"{key}={spec(value, tensors)}" for key, value in kwargs.items())])
            before = [tensor.detach().clone() for tensor in tensors]
            texts = [made(tensor) for tensor in tensors]
        except (TypeError, RuntimeError) as error:
            print("not written:", name, error, file=sys.stderr)
            text = None
        depth[0] += 1
        try:
            result = function(*args, **kwargs)
        finally:
            depth[0] -= 1
        if text is not None and all(tensor.is_cuda for tensor in tensors) and tensors:
            changed = [number for number, (tensor, old) in enumerate(zip(tensors, before)) if not torch.equal(tensor.detach().nan_to_num(), old.nan_to_num())]
            size = sum(tensor.numel() for tensor in tensors)
            if changed or flat(result):
                calls.append((size, name, text, texts, changed, bool(flat(result))))
        return result
    return wrapper

for name, value in list(vars(module).items()):
    own = getattr(value, "__module__", None) == "kernels" or (callable(value) and "apply" in getattr(value, "__qualname__", ""))
    if callable(value) and not isinstance(value, type) and own and type(value).__name__ in ("function", "method", "builtin_function_or_method"):
        setattr(module, name, watched(name, value))
try:
    exec(compile(open(tests).read(), tests, "exec"), module.__dict__)
except BaseException as error:
    print("its tests:", type(error).__name__, str(error)[:200], file=sys.stderr)
torch.cuda.synchronize()
if calls:
    with open(answer, "w") as file:
        json.dump(max(calls, key=lambda call: call[0]), file)
'''
PAIR: Final = """{kernels}

import torch

class {model}(torch.nn.Module):
    def forward(self, *_inputs):
        _t = list(_inputs)
{clones}        with torch.no_grad():
            _result = {name}({arguments})
        _outputs = []
{outputs}        return _outputs[0] if len(_outputs) == 1 else tuple(_outputs)

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return []
"""
FLATTENED: Final = """        _left = [_result]
        while _left:
            _value = _left.pop(0)
            if isinstance(_value, (list, tuple)):
                _left[:0] = _value
            elif isinstance(_value, torch.Tensor):
                _outputs.append(_value)
"""


def recorded(path: Path) -> tuple[str, str] | str:
    """The reference's and the candidate's text, or a sentence: why the file gives no pair."""
    text = path.read_text()
    marks = [line for line in text.splitlines() if line.startswith("#" * 30)]
    if not marks:
        return "no tests in it"
    kernels, _, tests = text.partition(marks[0])
    with tempfile.TemporaryDirectory() as folder:
        first, second, answer = (Path(folder, name) for name in ("kernels.py", "tests.py", "answer.json"))
        first.write_text(kernels)
        second.write_text(tests)
        try:
            ran = subprocess.run(
                [sys.executable, "-c", RECORD, first, second, answer],
                capture_output=True,
                text=True,
                timeout=240,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return "its tests take over 240 s"
        if not answer.is_file():
            return (ran.stderr.strip().splitlines() or ["no call of a function of the file"])[-1][:200]
        _, name, arguments, inputs, changed, returns = json.loads(answer.read_text())
    clones = "".join(f"        _t[{number}] = _t[{number}].clone()\n" for number in changed)
    outputs = (FLATTENED if returns else "") + "".join(
        f"        _outputs.append(_t[{number}])\n" for number in changed
    )
    texts = [
        PAIR.format(
            kernels=kernels, model=model, clones=clones, name=name, arguments=arguments, outputs=outputs,
            inputs=", ".join(inputs),
        )
        for model in ("Model", "ModelNew")
    ]  # fmt: skip
    return texts[0], texts[1]


async def judged(
    known: Server, pairs: dict[str, tuple[str, str]], grade: str, within: float, at_once: int
) -> dict[str, tuple[str, str]]:
    """Prints how the judge answered, and how many it called suspicious; returns the pairs that were right."""
    right: dict[str, tuple[str, str]] = {}
    outcomes: Counter[str] = Counter({"called suspicious": 0})
    names = iter(pairs)
    ends = time.monotonic() + within

    async def client() -> None:
        for name in names:
            if time.monotonic() > ends:
                outcomes["not asked, for want of time"] += 1
                continue
            answer = await known.evaluate(*pairs[name], grade=grade, timeout=120, num_correct_trials=2)
            result: dict[str, Any] = answer.get("kernel_exec_result") or {}
            metadata: dict[str, Any] = result.get("metadata") or {}
            outcome = str(metadata.get("outcome") or answer.get("outcome") or answer.get("status"))
            correct = "right" if result.get("correctness") else "not right"
            if correct == "right":
                right[name] = pairs[name]
            outcomes[f"{answer.get('grade')}: {outcome}, {correct}"] += 1
            if outcome != "ok" or not result.get("correctness"):
                outcomes["called suspicious"] += "the result is suspicious" in json.dumps(answer)
                why = answer.get("error") or result.get("validation_error") or result.get("compilation_error")
                say(f"{name}, {grade}: {outcome}, {correct}: {' '.join(str(why).split())[:400]}")

    await asyncio.gather(*(client() for _ in range(at_once)))
    say(f"asked for {grade}: {dict(outcomes)}")
    return right


def recorded_pairs(options: argparse.Namespace) -> dict[str, tuple[str, str]]:
    """By file; those of an earlier call where they were kept."""
    if options.pairs and options.pairs.is_file():
        return json.loads(options.pairs.read_text())
    files = sorted((options.clone / "data" / "TritonBench_G_v1").glob("*.py"))
    began = time.monotonic()
    with ThreadPoolExecutor(options.at_once) as pool:
        every = dict(zip([file.stem for file in files], pool.map(recorded, files), strict=True))
    pairs = {name: texts for name, texts in every.items() if isinstance(texts, tuple)}
    say(f"{len(files)} files, {len(pairs)} with a pair ({time.monotonic() - began:.0f} s)")
    for name, why in every.items():
        if isinstance(why, str):
            say(f"    left out: {name}: {why}")
    if options.pairs:
        options.pairs.write_text(json.dumps(pairs))
    return pairs


async def measure(options: argparse.Namespace) -> None:
    pairs = dict(itertools.islice(recorded_pairs(options).items(), options.most))
    with tempfile.TemporaryDirectory() as folder:
        for grade in options.grades.split(","):
            async with server(Path(folder)) as known:
                pairs = await judged(known, pairs, grade, options.within, 6 if grade == "author" else 2)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("clone", type=Path)
    parser.add_argument("--most", type=int, default=200)
    parser.add_argument("--grades", default="author,referee")
    parser.add_argument("--within", type=float, default=900.0, help="seconds for each grade")
    parser.add_argument("--pairs", type=Path, help="what was recorded: read if there, else written")
    parser.add_argument("--at-once", type=int, default=8, help="processes that record")
    asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    main()
