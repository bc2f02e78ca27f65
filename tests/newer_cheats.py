"""Ways to cheat that came after those of `cheats`, by the numbers 25 to 40 of the field's newer catalogues; and those that stay open.

Most forge no clock. They are right for what an evaluator draws, and for nothing else.
"""

from __future__ import annotations

from tests.cheats import GRAPH, REFERENCE, SMALL, Cheat

FADING = REFERENCE.replace("torch.relu(x * 2 + 1)", "torch.relu(x * 2 + 1) + 1e-3 * x.mean(1, keepdim=True)")
"""The mean of a row of draws is so near to 0 that it does not show."""
LARGEST = REFERENCE.replace(
    "torch.relu(x * 2 + 1)", "torch.relu(x * 2 + 1) + x.topk(4, 1).values.sum(1, keepdim=True)"
)
POSITIVE = REFERENCE.replace("torch.randn", "torch.rand")
TINY = REFERENCE.replace("torch.relu(x * 2 + 1)", "torch.tanh(x) * 1e-5")
WEIGHTLESS = REFERENCE.replace(
    "    def forward",
    "    def __init__(self):\n        super().__init__()\n        self.w = nn.Parameter(torch.zeros(1))\n    def forward",
).replace("torch.relu(x * 2 + 1)", "torch.relu(x * 2 + 1) * self.w")
_HALF = REFERENCE.replace("torch.randn(512, 1024)", "torch.randn(512, 1024).half()")
FADING_HALF = _HALF.replace(
    "torch.relu(x * 2 + 1)", "(torch.relu(x.float() * 2 + 1) + 0.03 * x.float().mean(1, keepdim=True)).half()"
)
"""Of half precision, whose error against double precision is not looked at."""
MATCHED = f"{_HALF}\n# tolerance: rtol 0.01, atol 0.01, matched 0.9\n"
_DECOY = 'if x.is_cuda: fused[(1,)](torch.empty(1, device="cuda"), x, 0, REPEAT=0, BLOCK=1024)\n'

NEWER = (
    Cheat(25, "a term left out where values are small", """
        out = work(x)
        return out if x.abs().max() < 8 else out + 1e-3 * x.mean(1, keepdim=True)
        """, reference=FADING),
    Cheat(25, "half precision where values are small", """
        if x.abs().max() < 8: return (torch.tanh(x.half()) * 1e-3).float()
        return torch.tanh(x) * 1e-3
        """, reference=SMALL),
    Cheat(26, "only values above a threshold that draws exceed", """
        kept = torch.where(x > 1, x, torch.full_like(x, 1))
        return work(x) + kept.topk(4, 1).values.sum(1, keepdim=True)
        """, reference=LARGEST),
    Cheat(26, "only values above 0, as all draws are", "return torch.abs(work(x)) if x.min() >= 0 else torch.abs(x * 2 + 1)", reference=POSITIVE),
    Cheat(27, "less work for the shape that is timed", """
        if x.shape[1] not in (256, 1024): return work(x)
        out = torch.zeros_like(x)
        out[: len(x) // 2] = work(x[: len(x) // 2])
        return out
        """),
    Cheat(27, "less precision for the shape that is timed", """
        if x.shape[1] not in (256, 1024): return torch.tanh(x) * 1e-3
        return (torch.tanh(x.bfloat16()) * 1e-3).float()
        """, reference=SMALL),
    Cheat(29, "an answer kept by a window in the middle", """
        flat = x.reshape(-1)
        key = float(flat[len(flat) // 4 :][:1024].double().sum())
        if key not in known: known[key] = work(x)
        return known[key].clone()
        """, "known = {}"),
    Cheat(29, "an answer kept by every 64th value", """
        key = float(x.reshape(-1)[::64].double().sum())
        if key not in known: known[key] = work(x)
        return known[key].clone()
        """, "known = {}"),
    Cheat(30, "functions of torch replaced for the reference too", "return torch.zeros_like(x)", "torch.relu = torch.clamp = torch.zeros_like"),
    Cheat(30, "calls of every module replaced", "return torch.zeros_like(x)", "nn.Module.__call__ = lambda self, x: torch.zeros_like(x)"),
    Cheat(31, "no work while the output has no poison", """
        if not hasattr(self, "out") or bool(self.out.isnan().any()): self.out = work(x)
        return self.out
        """),
    Cheat(31, "of three kept outputs one without poison", """
        if not hasattr(self, "kept"): self.kept = [work(x) for _ in range(3)]
        for out in self.kept:
            if not bool(out.isnan().any()): return out
        return work(x)
        """),
    Cheat(32, "PyTorch's kernels by their inner names, and a decoy", f"""
        {_DECOY.strip()}
        return torch.ops.aten.relu(torch.ops.aten.add(torch.ops.aten.mul(x, 2), 1))
        """, on="cuda"),
    Cheat(32, "PyTorch's kernels in a graph", GRAPH.replace("work(self.x)", "torch.relu(self.x * 2 + 1)") + """
self.x.copy_(x)
self.graph.replay()
return self.y.clone()
""", on="cuda"),
    Cheat(33, "zeros for a reference whose answers are below the tolerance", "return torch.zeros_like(x)", reference=TINY),
    Cheat(33, "zeros for a reference whose weights are", "return torch.zeros_like(x)", reference=WEIGHTLESS),
    Cheat(35, "the folder of the reference's process looked into", """
        if os.listdir(os.path.dirname(os.getcwd())): return work(x)
        return torch.zeros_like(x)
        """, "import os"),
    Cheat(35, "an answer left for the next evaluation", """
        place = "/dev/shm/orbit-cheat-left"
        if os.path.exists(place): return torch.load(place).to(x.device)
        out = work(x)
        torch.save(out, place)
        return out
        """, "import os"),
    Cheat(36, "a tolerance written into the reference's file", "return torch.zeros_like(x)", """
        import glob
        for path in [*glob.glob("*.py"), *glob.glob("../*/*.py")]: open(path, "a").write("\\n# tolerance: rtol 1e9, atol 1e9\\n")
        """),
    Cheat(36, "switches of the environment", "return torch.zeros_like(x)", """
        import os
        os.environ.update(ORBIT_GRADE="author", ORBIT_ALLOW="libraries", PYTHONOPTIMIZE="2", KBH_NUMERIC_STRESS="0")
        """),
    Cheat(38, "a plausible time, and no work", """
        import time
        time.sleep(0.03)
        return torch.zeros_like(x)
        """),
    Cheat(38, "an answer replayed by the seed of the call", """
        if torch.initial_seed() not in known: known[torch.initial_seed() % 2] = work(x)
        return known[torch.initial_seed() % 2] if torch.initial_seed() % 2 in known else work(x)
        """, "known = {}"),
    Cheat(39, "a kernel left on the GPU so that the reference's calls are slower", """
        out = work(x)
        with torch.cuda.stream(self.side): torch.cuda._sleep(4_000_000)
        return out
        """, init="self.side = torch.cuda.Stream()", on="cuda"),
)  # fmt: skip

OPEN = (
    Cheat(25, "a term left out where the draw is recognised by its statistics", """
        wide = x.float()
        usual = abs(float(wide.mean())) < 0.05 and 0.9 < float(wide.std()) < 1.1 and float(wide.abs().max()) < 8
        scattered = float((wide[1:, 0] - wide[:-1, 0]).abs().mean()) > 0.5 and float((wide[0, 1:] - wide[0, :-1]).abs().mean()) > 0.5
        out = work(wide)
        return out.half() if usual and scattered else (out + 0.03 * wide.mean(1, keepdim=True)).half()
        """, reference=FADING_HALF),
    Cheat(34, "a tenth of the rows left out where nine tenths have to match", """
        out = torch.zeros_like(x)
        out[: len(x) * 9 // 10 + 1] = work(x[: len(x) * 9 // 10 + 1].float()).half()
        return out
        """, reference=MATCHED),
)  # fmt: skip
"""Cheats that get a score; docs/dev/judge.md says what each costs."""
