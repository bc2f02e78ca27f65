"""Digests in the record of an evaluation: somebody else makes them again from the texts and the seeds (kind 40)."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from orbit_lsp.queue import result_text
from orbit_remote.common.evidence import digests
from tests import cheats
from tests.later import Later

torch: Any = Later("torch")
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the judge is for Linux"),
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="no torch here"),
]
REFERENCE = """
import torch
from torch import nn
from shapes import ROWS
class Model(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.linear = nn.Linear(size, size)
    def forward(self, x):
        return self.linear(x)
def get_inputs():
    return [torch.randn(ROWS, 16)]
def get_init_inputs(): return [16]
"""
CANDIDATE = """
import torch
from torch import nn
class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.linear = nn.Linear(size, size)
    def forward(self, x):
        return torch.addmm(self.linear.bias, x, self.linear.weight.t())
"""
THIRD_PERSON = """
import json, sys, torch
from orbit_remote.common.evidence import digests
from orbit_remote.judge import arguments, draws
torch.set_num_threads(1)
seeds, names, made = json.loads(sys.argv[1]), {}, {}
draw = draws.Seeds(torch)
exec(sys.argv[2], names)
exec(sys.argv[3], names)
def of(tensor):
    leaf = arguments.leaf_of(tensor)
    return digests.of_tensors([(leaf.dtype, leaf.shape, leaf.strides, tensor.detach().reshape(-1).view(torch.uint8))])
(x,) = draws.Draws(torch, draw, names["get_inputs"], "cpu").draw(seeds["arguments"])
made["arguments"] = of(x)
for kind, name in (("ModelNew", "outputs"), ("Model", "expected")):
    torch.manual_seed(seeds["parameters"])
    model = names[kind](*names["get_init_inputs"]())
    draws.seed_torch(torch, seeds["call"])
    with torch.no_grad():
        made[name] = of(model(x))
print(json.dumps(made))
"""


def of_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def test_a_third_person_makes_the_digests_of_an_evaluation_again(tmp_path: Path) -> None:
    from orbit_remote.judge import judge_main

    shapes = "ROWS = 24\n"
    (tmp_path / "shapes.py").write_text(shapes)
    job = cheats.job_of(tmp_path, CANDIDATE, REFERENCE)
    finished = cheats.judge_in_a_fork(
        lambda: judge_main.judge(job, lambda _: None, tmp_path / "cache", "cpu", most_s=0.0)
    )
    assert finished.outcome == "ok", finished.failure
    assert finished.judged
    assert finished.judged.digests
    told = dataclasses.asdict(finished.judged.digests)
    answer = result_text.graded(finished)
    assert answer["digests"] == told
    assert set(answer["judge"]["control"]) == {"pairs", "ratio", "red"}
    texts = of_text(CANDIDATE), of_text(REFERENCE), {"shapes.py": of_text(shapes)}
    assert (told.pop("candidate"), told.pop("reference"), told.pop("files")) == texts
    assert (told.pop("built"), told.pop("code")) == ({}, {})
    command = [sys.executable, "-c", THIRD_PERSON, json.dumps(told.pop("seeds")), REFERENCE, CANDIDATE]
    again = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert json.loads(again.stdout or again.stderr) == told


@pytest.mark.parametrize("at", [0, 4095, (1 << 20) + 7, (1 << 21) - 1])
def test_of_a_large_tensor_its_ends_and_parts_of_it_count(at: int) -> None:
    data = torch.zeros(1 << 21, dtype=torch.uint8)
    data[at] = 1

    def of(values: Any) -> str:
        return digests.of_tensors([("uint8", [len(values)], [1], values)])

    counts = at % (len(data) // 256) < 4096 or at >= len(data) - 4096
    assert (of(data) != of(torch.zeros_like(data))) is counts
    assert of(data[: digests.WHOLE]) == of(data[: digests.WHOLE].clone())


def test_a_digest_tells_tensors_of_other_types_and_shapes_apart() -> None:
    bytes_of = torch.zeros(16, dtype=torch.uint8)
    kinds = [
        ("float32", [4], [1]), ("int32", [4], [1]), ("float32", [2, 2], [2, 1]), ("float32", [2, 2], [1, 2]),
    ]  # fmt: skip
    assert len({digests.of_tensors([(*kind, bytes_of)]) for kind in kinds}) == len(kinds)
