"""Arguments as references draw them: seeds of authors, slow draws, sizes; files beside a reference; parameters that fit."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orbit_remote.child.harness import kernelbench
from orbit_remote.judge import beside, draws, side
from orbit_remote.judge.match import Match
from tests.later import Later

torch: Any = Later("torch")
pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="no torch here")

SEEDED = """
import json, random, sys, torch
import numpy as np
from orbit_remote.judge import draws
seeds = draws.Seeds(torch)
from torch import manual_seed

def said(body):
    scope = dict(globals())
    exec("def get_inputs():\\n    " + body, scope)
    made = draws.Draws(torch, seeds, scope["get_inputs"], "cpu")
    first, again, other = (str(made.draw(seed)) for seed in (1, 1, 2))
    return "differs" if first == again != other else "does not"

print(json.dumps([said(body) for body in json.load(sys.stdin)]))
"""
BODIES = [
    "torch.manual_seed(3); return [torch.randn(4)]",
    "manual_seed(3); return [torch.randn(4)]",
    "torch.random.manual_seed(3); return [torch.randn(4)]",
    "return [torch.randn(4, generator=torch.Generator().manual_seed(5))]",
    "return [torch.randn(4, generator=torch.Generator(device='cpu'))]",
    "np.random.seed(1); return [torch.from_numpy(np.random.randn(2))]",
    "return [torch.from_numpy(np.random.default_rng(7).standard_normal(2))]",
    "return [torch.from_numpy(np.random.RandomState(7).randn(2))]",
    "return [torch.from_numpy(np.random.Generator(np.random.PCG64(7)).standard_normal(2))]",
    "random.seed(9); return [random.random()]",
    "return [random.Random(9).random()]",
    "return [np.random.rand(), random.random()]",
]


@pytest.mark.skipif(importlib.util.find_spec("numpy") is None, reason="no numpy here")
def test_a_seed_inside_get_inputs_is_laid_aside() -> None:
    """In a process of its own: the functions that seed are replaced."""
    ran = subprocess.run(
        [sys.executable, "-c", SEEDED], input=json.dumps(BODIES), capture_output=True, text=True, timeout=300, check=False
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert dict(zip(BODIES, json.loads(ran.stdout), strict=True)) == dict.fromkeys(BODIES, "differs")


class Plain:
    """Seeds of no author."""

    def of(self, seed: int, _device: str) -> Any:
        torch.manual_seed(seed)
        return contextlib.nullcontext()


def drawn(get: Any, monkeypatch: pytest.MonkeyPatch, count: int) -> tuple[list[Any], draws.Draws]:
    monkeypatch.setattr(draws, "SLOW_S", -1.0)
    seeds: Any = Plain()
    made = draws.Draws(torch, seeds, get, "cpu")
    return [made.draw(seed) for seed in range(count)], made


def test_a_slow_draw_is_made_twice_and_mixed(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def get() -> list[Any]:
        calls.append(1)
        return [torch.rand(64) + 1, {"mask": torch.tril(torch.ones(8, 8))}, torch.randperm(9)]

    made, draws_made = drawn(get, monkeypatch, 5)
    first, second, *mixed = made
    assert len(calls) == 2
    assert draws_made.how.startswith("draws take long on the CPU")
    for draw in mixed:
        assert bool(((draw[0] == first[0]) | (draw[0] == second[0])).all())
        assert torch.equal(draw[1]["mask"], first[1]["mask"])
        assert sorted(draw[2].tolist()) == [*range(9)]
    assert not torch.equal(mixed[0][0], mixed[1][0])


def test_arguments_are_summed_before_they_are_drawn() -> None:
    seeds: Any = Plain()
    get = lambda: [torch.randn(1 << 17, 1 << 17, device="cpu"), [torch.zeros(1 << 32, dtype=torch.half)]]  # noqa: E731
    sizes = draws.Draws(torch, seeds, get, "cpu").sizes()
    assert side._too_large(sizes, 14 << 30) == (
        "the arguments of a call take 72.0 GiB (64.0 + 8.0), and there is room for 14.0 GiB"
    )
    assert side._too_large(sizes, 72 << 30) == ""
    values = lambda: [torch.ones(int(torch.randn(3).abs().sum()))]  # noqa: E731
    assert draws.Draws(torch, seeds, values, "cpu").sizes() == []


@pytest.mark.parametrize(
    ("known", "size"),
    [
        (0, 14 << 30),  # a draw whose sizes are not known may need all that there is
        (1 << 20, 1 << 30),
        (1 << 30, 4 << 30),
        (8 << 30, 14 << 30),
    ],
)
def test_memory_for_arguments_leaves_room_for_larger_draws(known: int, size: int) -> None:
    reference: Any = SimpleNamespace(ask=lambda _: ({"bytes": known}, []))
    own: Any = SimpleNamespace(gates=True, free=lambda: 140 << 30)
    job: Any = SimpleNamespace(run_timeout_s=60)
    candidate: Any = SimpleNamespace()
    assert Match(None, own, candidate, reference, job, print)._size() == size


@pytest.mark.parametrize(
    ("text", "brought"),
    [
        ("import shapes\n", ["shapes.py", "sizes.json"]),
        ("from data import tables", ["data/__init__.py"]),
        ("torch.load(HERE / 'x.pt')", ["x.pt"]),
        ("import torch", []),
        ("import candidate_new", []),
    ],
)
def test_files_that_a_reference_names_come_with_it(tmp_path: Path, text: str, brought: list[str]) -> None:
    (tmp_path / "data").mkdir()
    for name, content in (
        ("shapes.py", "open('sizes.json')"), ("sizes.json", "[]"), ("x.pt", "x"), ("data/__init__.py", ""),
        ("candidate_new.py", ""), ("secret.txt", "?"),
    ):  # fmt: skip
        (tmp_path / name).write_text(content)
    own = tmp_path / "own"
    own.mkdir()
    assert sorted(beside.bring(tmp_path / "candidate.py", text, {"candidate_new.py"}, own)) == brought
    assert all((own / name).is_file() for name in brought)


@pytest.mark.parametrize(
    ("mine", "theirs", "how"),
    [
        ({"a": (2, 3), "b": (3,)}, {"a": (2, 3), "b": (3,)}, "names"),
        ({"b": (3,), "a": (2, 3)}, {"a": (2, 3), "b": (3,)}, "names"),
        ({"w": (2, 3), "c": (3,)}, {"a": (2, 3), "b": (3,)}, "order"),
        ({"c": (3,), "w": (2, 3)}, {"a": (2, 3), "b": (3,)}, ""),
        ({"a": (2, 3)}, {"a": (2, 3), "b": (3,)}, ""),
        ({}, {}, ""),
    ],
)
def test_parameters_of_other_names_are_loaded_where_they_fit(
    mine: dict[str, Any], theirs: dict[str, Any], how: str
) -> None:
    def model(shapes: dict[str, Any]) -> Any:
        made = torch.nn.Module()
        for name, shape in shapes.items():
            made.register_parameter(name, torch.nn.Parameter(torch.randn(shape)))
        return made

    one, other = model(mine), model(theirs)
    assert kernelbench.adopted(torch, one, other) == how
    if how:
        assert kernelbench.adopted(torch, one, other) == ""
        assert sorted(float(p.detach().sum()) for p in one.parameters()) == sorted(
            float(p.detach().sum()) for p in other.parameters()
        )
