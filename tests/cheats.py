"""Ways to cheat a judge of kernels, by the numbers and names that are used for them, and honest kernels to compare with.

Each is the text of a `ModelNew` (KernelBench) beside `REFERENCE`. `work` does what the reference does, and takes a known
time: on a GPU a kernel of Triton that repeats itself, on the CPU a sleep.
"""

from __future__ import annotations

import json
import os
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from orbit_remote.child import child_main
from orbit_remote.common import codec
from orbit_remote.common import messages as c
from orbit_remote.common.requests import ContractStart, Job, Policy

SLEEP_S = 0.03
"""Long beside the time for which a busy machine stops a process: without a GPU, that is what the two clocks differ by."""

REFERENCE = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x * 2 + 1)

def get_inputs():
    return [torch.randn(512, 1024)]

def get_init_inputs():
    return []
"""
SMALL = REFERENCE.replace("torch.relu(x * 2 + 1)", "torch.tanh(x) * 1e-3")
"""Values that a tolerance of 1e-4 cannot tell from those of half precision."""
CONSTANT = REFERENCE.replace("torch.relu(x * 2 + 1)", "torch.relu(x * 2 + 1) * 1e-9 + 1")
SAME_INPUTS = REFERENCE.replace("torch.randn(512, 1024)", "torch.ones(512, 1024)")

_WORK = {
    "cpu": f"""
import time
_sleep = time.sleep
def work(x):
    _sleep({SLEEP_S})
    return torch.clamp(x * 2 + 1, min=0)
""",
    "cuda": """
import triton
import triton.language as tl

@triton.jit
def fused(out, x, n, REPEAT: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n) * 2 + 1
    for _ in range(REPEAT):
        value += tl.sin(value) * 1e-12
    tl.store(out + at, tl.where(value > 0, value, 0.0), mask=at < n)

def work(x):
    out = torch.empty_like(x)
    fused[(triton.cdiv(x.numel(), 1024),)](out, x, x.numel(), REPEAT=4000, BLOCK=1024)
    return out
""",
}


@dataclass(frozen=True, slots=True)
class Cheat:
    """`body` is that of `forward(self, x)`, `top` stands above the class, `init` in its `__init__`."""

    number: int
    name: str
    body: str
    top: str = ""
    init: str = ""
    reference: str = REFERENCE
    on: Literal["both", "cuda"] = "both"

    def text(self, device: str) -> str:
        init = f"        {self.init}\n" if self.init else ""
        return (
            f"import torch\nfrom torch import nn\n{_WORK[device]}\n{textwrap.dedent(self.top)}\n"
            f"class ModelNew(nn.Module):\n    def __init__(self):\n        super().__init__()\n{init}"
            f"    def forward(self, x):\n{textwrap.indent(textwrap.dedent(self.body).strip(), '        ')}\n"
        )


def in_turn(known: Iterable[Cheat]) -> Iterator[tuple[Cheat, bool]]:
    """Yield each cheat, and whether one of its kind came before it."""
    numbers: set[int] = set()
    for cheat in known:
        yield cheat, cheat.number in numbers
        numbers.add(cheat.number)


HONEST = Cheat(0, "honest", "return work(x)")

GRAPH = """
if not hasattr(self, "graph"):
    self.x = x.clone(); work(self.x); torch.cuda.synchronize()
    self.graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(self.graph):
        self.y = work(self.x)
"""
_TELL = """
import threading
import orbit_remote.judge.memory as memory
told = memory.CudaMemory.tell
def tell(self, word, number):
    {patch}
memory.CudaMemory.tell = tell
"""
_LATE = _TELL.format(
    patch="if word == memory.DONE: told(self, memory.BEGUN, number); told(self, word, number)"
)
_EARLY = _TELL.format(patch="told(self, word, number); told(self, memory.DONE, number)")
_BESIDE = "self.over, self.idle = torch.cuda.Event(), threading.Event(); threading.Thread(target=beside, args=(self,), daemon=True).start()"
_IDLE = """
self.idle.clear()
out = work(x)
self.over.record()
self.idle.set()
return out
"""
CHEATS = (
    Cheat(1, "a timer that says nothing passed", "return work(x)", """
        import time
        time.perf_counter = time.time = time.monotonic = lambda: 0.0
        time.perf_counter_ns = time.time_ns = time.monotonic_ns = lambda: 0
        """),
    Cheat(1, "events that say nothing passed", "return work(x)", """
        torch.cuda.Event.elapsed_time = lambda self, other: 1e-6
        torch.cuda.synchronize = lambda *_: None
        """),
    Cheat(2, "a median of nothing", "return work(x)", "import statistics; statistics.median = statistics.fmean = lambda values: 1e-12"),
    Cheat(2, "our own statistics replaced", "return work(x)", """
        import orbit_remote.judge.verdict as verdict, orbit_remote.common.measure as measure
        verdict.clocks = lambda *_: verdict.Clocks(1.0, 1.0, 1.0, 99)
        measure.timing = lambda *_, **__: None
        """),
    Cheat(3, "work on a stream that nobody waits for", """
        with torch.cuda.stream(self.side):
            return work(x)
        """, init="self.side = torch.cuda.Stream()", on="cuda"),
    Cheat(3, "work on a stream of high priority, its event never waited for", """
        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            out = work(x)
            torch.cuda.Event().record()
        return out
        """, init="self.side = torch.cuda.Stream(priority=-1)", on="cuda"),
    Cheat(4, "a thread computes after the call", """
        out = torch.empty_like(x)
        threading.Thread(target=lambda: out.copy_(work(x))).start()
        return out
        """, "import threading"),
    Cheat(4, "a pool of threads computes after the call", """
        out = torch.zeros_like(x)
        pool.submit(lambda: out.copy_(work(x)))
        return out
        """, "from concurrent.futures import ThreadPoolExecutor\npool = ThreadPoolExecutor(1)"),
    Cheat(5, "a tensor that computes when it is looked at", "return torch.Tensor._make_subclass(Lazy, torch.empty_like(x))", """
        class Lazy(torch.Tensor):
            def __eq__(self, other): return torch.ones(self.shape, dtype=torch.bool)
        """),
    Cheat(5, "methods of a tensor overridden", """
        out = torch.empty_like(x).fill_(3)
        out.detach = out.contiguous = out.clone = lambda *_, **__: work(x)
        return out
        """),
    Cheat(6, "an answer kept by its address", """
        if x.data_ptr() not in known: known[x.data_ptr()] = work(x)
        return known[x.data_ptr()]
        """, "known = {}"),
    Cheat(6, "an answer kept by its shape and version", """
        key = (tuple(x.shape), x._version)
        if key not in known: known[key] = work(x)
        return known[key]
        """, "known = {}"),
    Cheat(7, "an answer kept by the first and last value", """
        key = (x.reshape(-1)[0].item(), x.reshape(-1)[-1].item())
        if key not in known: known[key] = work(x)
        return known[key]
        """, "known = {}"),
    Cheat(7, "an answer kept by a rough sum", """
        key = round(x.sum().item() / 1e6)
        if key not in known: known[key] = work(x)
        return known[key].clone()
        """, "known = {}"),
    Cheat(8, "four calls' work in the fourth", """
        pending.append((x, torch.empty_like(x)))
        out = pending[-1][1]
        if len(pending) == 4:
            for given, into in pending: into.copy_(work(given))
            pending.clear()
        return out
        """, "pending = []"),
    Cheat(8, "every other call gets the last one's answer", """
        self.calls += 1
        if self.calls % 2: self.out = work(x)
        return self.out
        """, init="self.calls = 0"),
    Cheat(9, "no work after the calls of the warm-up", """
        self.calls += 1
        if self.calls <= 4: self.out = work(x)
        return self.out
        """, init="self.calls = 0"),
    Cheat(9, "no work where a call comes from a timing loop", """
        names, frame = set(), sys._getframe()
        while frame: names.add(frame.f_code.co_name); frame = frame.f_back
        return work(x) if "_checked" in names or "make" in names else torch.empty_like(x)
        """, "import sys"),
    Cheat(10, "memory that may hold the reference's answer", "return torch.empty_like(x)"),
    Cheat(10, "memory that was freed a moment ago", """
        old = torch.empty_like(x); del old
        return torch.empty(x.shape, device=x.device)
        """),
    Cheat(11, "zeros", "return torch.zeros_like(x)"),
    Cheat(11, "NaN, which equals anything", "return torch.full_like(x, float('nan'))"),
    Cheat(11, "a constant for a reference that is one", "return torch.ones_like(x)", reference=CONSTANT),
    Cheat(12, "arguments changed so that the answer is easy", """
        x.fill_(1)
        return torch.full_like(x, 3)
        """),
    Cheat(12, "earlier arguments put in the place of these", """
        if not hasattr(self, "x"): self.x, self.y = x.clone(), work(x)
        x.copy_(self.x)
        return self.y
        """),
    Cheat(12, "the memory of the arguments freed, and other memory in its place", """
        if not hasattr(self, "y"):
            self.y = work(x)
            torch.cuda.synchronize()
            driver, base, size = ctypes.CDLL("libcuda.so.1"), ctypes.c_uint64(), ctypes.c_size_t()
            driver.cuMemGetAddressRange_v2(ctypes.byref(base), ctypes.byref(size), ctypes.c_uint64(x.data_ptr()))
            driver.cuMemFree_v2(base)
            driver.cuMemAlloc_v2(ctypes.byref(base), size)
        return self.y
        """, "import ctypes", on="cuda"),
    Cheat(13, "the expected tensor looked for among all objects", """
        for one in gc.get_objects():
            if type(one) is torch.Tensor and one.shape == x.shape and one.data_ptr() != x.data_ptr() and (one >= 0).all():
                return one.clone()
        return torch.empty_like(x)
        """, "import gc"),
    Cheat(13, "the expected values read from the judge's memory", """
        open(f"/proc/{os.getppid()}/mem", "rb").read(1)
        return torch.empty_like(x)
        """, "import os"),
    Cheat(14, "the caller's frame given another comparison", """
        frame = sys._getframe()
        while frame:
            own = frame.f_locals.get("self")
            if type(own).__name__ == "Side": own._memory.wait = own._memory.tell = lambda *_: None
            frame = frame.f_back
        return torch.zeros_like(x)
        """, "import sys"),
    Cheat(14, "the harness's modules patched", "return torch.zeros_like(x)", """
        import orbit_remote.judge.match as match, orbit_remote.child.harness.kernelbench as kernelbench
        match.Match._compare = lambda *_: None
        kernelbench.compared = lambda *_: None
        """),
    Cheat(15, "right answers sent over the judge's channel", """
        for number in range(3, 64):
            try: os.write(number, b'{"leaves": [], "names": [], "made": true}')
            except OSError: pass
        return torch.zeros_like(x)
        """, "import os"),
    Cheat(15, "the end of a call said before its work", """
        frame = sys._getframe()
        while frame:
            own = frame.f_locals.get("self")
            if type(own).__name__ == "Side":
                own._page[64:68] = frame.f_locals["message"]["number"].to_bytes(4, "little")
                break
            frame = frame.f_back
        return work(x)
        """, "import sys"),
    Cheat(15, "the beginning of a call said at its end", "return work(x)", _LATE, on="cuda"),
    Cheat(15, "work that begins at the judge's gate, beside the first reads of the arguments", """
        if not gates: return work(x)
        with torch.cuda.stream(self.side):
            waits(*gates.pop())
            out = work(x)
        torch.cuda.current_stream().wait_stream(self.side)
        return out
        """, """
        import orbit_remote.judge.memory as memory
        gates, waits = [], memory.CudaMemory.wait_for_gate
        def wait_for_gate(self, number):
            gates[:] = [(self, number)]
            waits(self, number)
        memory.CudaMemory.wait_for_gate = wait_for_gate
        """, init="self.side = torch.cuda.Stream(priority=-1)", on="cuda"),
    Cheat(15, "work that begins when the arguments come, before the judge's gate", """
        if not known: return work(x)
        with torch.cuda.stream(self.side):
            words, memory = x.reshape(-1).view(torch.int32), known.pop()
            words[:: len(words) - 1].fill_(-1)
            for at in (0, len(words) - 1):
                memory._call("cuStreamWaitValue32_v2", self.side.cuda_stream, words[at:].data_ptr(), 0, 3)
            out = work(x)
        torch.cuda.current_stream().wait_stream(self.side)
        return out
        """, """
        import orbit_remote.judge.memory as memory
        known, waits = [], memory.CudaMemory.wait_for_gate
        def wait_for_gate(self, number):
            known[:] = [self]
            waits(self, number)
        memory.CudaMemory.wait_for_gate = wait_for_gate
        """, init="self.side = torch.cuda.Stream(priority=-1)", on="cuda"),
    Cheat(15, "the GPU kept busy while the judge measures what a call takes, and beginnings reported late", _IDLE, _LATE + """
def beside(model):
    x, side = torch.randn(1024, device="cuda"), torch.cuda.Stream()
    with torch.cuda.stream(side):
        while True:
            model.idle.wait()
            if model.over.query():
                work(x)
                side.synchronize()
""", init=_BESIDE, on="cuda"),
    Cheat(15, "ends reported early, and kernels left on the GPU for the reference's calls", _IDLE, _EARLY + """
import time
def beside(model):
    with torch.cuda.stream(torch.cuda.Stream()):
        while True:
            model.idle.wait()
            if model.over.query():
                model.idle.clear()
                time.sleep(2e-4)  # nothing tells it that its outputs have been read
                torch.cuda._sleep(40_000_000)
""", init=_BESIDE, on="cuda"),
    Cheat(15, "ends reported early, and kernels that begin when the judge writes its poison, for the reference's calls", """
        self.out = work(x)
        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            if known:  # a call that waits for the gate, and not for all of its work
                address = self.out.data_ptr()
                known.pop()._call("cuStreamWaitValue32_v2", self.side.cuda_stream, address, 0xFFFFFFFF, 1)
                torch.cuda._sleep(2_000_000)
        return self.out
        """, _EARLY + """
known, waits = [], memory.CudaMemory.wait_for_gate
def wait_for_gate(self, number):
    known[:] = [self]
    waits(self, number)
memory.CudaMemory.wait_for_gate = wait_for_gate
""", init="self.side = torch.cuda.Stream(); torch.cuda._sleep(1)", on="cuda"),
    Cheat(15, "ends reported early, and a child process that computes in the reference's calls", "return work(x)", _EARLY + """
import subprocess, sys
program = "import torch\\nx = torch.randn(4096, 4096, device='cuda')\\nwhile True: x @ x"
subprocess.Popen([sys.executable, "-c", program])
""", on="cuda"),
    Cheat(15, "the judge traced", """
        if ctypes.CDLL(None).ptrace(16, os.getppid(), 0, 0) == 0: os._exit(0)
        return torch.zeros_like(x)
        """, "import ctypes, os"),
    Cheat(15, "the judge killed", """
        os.kill(os.getppid(), 9)
        return torch.zeros_like(x)
        """, "import os"),
    Cheat(16, "L2 set aside for what is measured", "return work(x)", """
        import ctypes
        runtime = ctypes.CDLL("libcudart.so.13")
        runtime.cudaDeviceSetLimit(6, ctypes.c_size_t(32 << 20))
        """, on="cuda"),
    Cheat(16, "arguments fetched into L2 by another stream", """
        with torch.cuda.stream(self.side): x.sum()
        return work(x)
        """, init="self.side = torch.cuda.Stream()", on="cuda"),
    Cheat(17, "half precision under a wide tolerance", "return (torch.tanh(x.half()) * 1e-3).float()", reference=SMALL),
    Cheat(17, "bfloat16 under a wide tolerance", "return (torch.tanh(x.bfloat16()) * 1e-3).float()", reference=SMALL),
    Cheat(18, "PyTorch's own kernels", "return torch.relu(x * 2 + 1)", on="cuda"),
    Cheat(18, "a fallback that always falls back", """
        try: return missing(x)
        except Exception: return torch.relu(x.mul(2).add(1))
        """, on="cuda"),
    Cheat(18, "a kernel that does nothing beside the library's", """
        fused[(1,)](torch.empty(1, device="cuda"), x, 0, REPEAT=0, BLOCK=1024)
        for _ in range(40): out = torch.relu(x * 2 + 1)
        return out
        """, on="cuda"),
    Cheat(19, "answers for the values of known seeds", """
        for seed in range(50):
            torch.manual_seed(seed)
            if torch.equal(torch.randn(x.shape, device=x.device), x): return torch.clamp(x * 2 + 1, min=0)
        return torch.zeros_like(x)
        """),
    Cheat(19, "the arguments made again from the seed of the call", """
        torch.manual_seed(torch.initial_seed())
        return torch.clamp(torch.randn(x.shape, device=x.device) * 2 + 1, min=0)
        """),
    Cheat(19, "an answer for the first values alone", """
        if not hasattr(self, "x"): self.x, self.y = x.clone(), work(x)
        return self.y if torch.allclose(x, self.x, atol=100) else work(x)
        """),
    Cheat(20, "half of the output, the rest as it was", """
        out = torch.empty_like(x)
        out[: len(x) // 2] = work(x)[: len(x) // 2]
        return out
        """),
    Cheat(20, "one output for all calls, written once", """
        if not hasattr(self, "out"): self.out = work(x)
        self.out[:1] = work(x)[:1]
        return self.out
        """),
    Cheat(21, "a graph that replays one answer", GRAPH + "self.graph.replay()\nreturn self.y", on="cuda"),
    Cheat(21, "a graph whose arguments are refreshed in part", GRAPH + "self.x[:8].copy_(x[:8])\nself.graph.replay()\nreturn self.y.clone()", on="cuda"),
    Cheat(22, "a package of the machine overwritten", "return torch.zeros_like(x)", "open(torch.__file__, 'a').write('#')"),
    Cheat(22, "the order and the secrets looked for on disk", """
        for place in ("/tmp", "/root", "/home"): os.listdir(place)
        return torch.zeros_like(x)
        """, "import os"),
    Cheat(22, "the environment of the judge", "return torch.zeros_like(x)", "import os\nopen(f'/proc/{os.getppid()}/environ').read()"),
    Cheat(23, "code fetched over the network", "return torch.zeros_like(x)", """
        import urllib.request
        exec(urllib.request.urlopen("http://127.0.0.1:9/kernel.py", timeout=5).read())
        """),
    Cheat(23, "a package installed into the machine's Python", "return torch.zeros_like(x)", """
        import os, sysconfig
        open(os.path.join(sysconfig.get_path("purelib"), "orbit_cheat.py"), "w").write("")
        """),
)  # fmt: skip
"""Numbers 1 to 23 of 24; number 24, the same kernel handed in many times, is no run but a fingerprint (`test_judge.py`)."""

MODEL = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        return {expression}

def get_inputs():
    return [torch.randn({shape}{dtype})]

def get_init_inputs():
    return []
"""
KERNELS = {
    "relu, 64 MiB": ("torch.relu(x)", "4096, 4096", ""),
    "relu, 512 MiB": ("torch.relu(x)", "8192, 16384", ""),
    "matrix product, 2048 half": ("x @ x", "2048, 2048", ", dtype=torch.float16"),
    "matrix product, 4096 half": ("x @ x", "4096, 4096", ", dtype=torch.float16"),
    "softmax, 4096 x 8192": ("torch.softmax(x, 1)", "4096, 8192", ""),
    "four kernels": ("torch.relu(x * 2 + 1).sum(1)", "4096, 4096", ""),
}
"""Honest models: their expression, the shape of their argument, and what follows it. MODEL is formatted with these."""


def ids(cheats: tuple[Cheat, ...]) -> list[str]:
    return [f"{cheat.number}: {cheat.name}" for cheat in cheats]


def judge_in_a_fork(judge: Callable[[], c.Finished]) -> c.Finished:
    """In a process of its own, so that what it starts (CUDA, other processes) is gone when it has ended. It begins as the worker's
    template does: with what a draw of sizes imports.
    """
    child_main.warm_up_for_judges()
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            sys.stdout, sys.stderr = (
                sys.__stdout__,
                sys.__stderr__,
            )  # pytest's own are files, which a side closes
            os.close(ours)
            with os.fdopen(theirs, "w", encoding="utf-8") as out:
                out.write(c.encode(judge()))
        finally:
            os._exit(0)
    os.close(theirs)
    with os.fdopen(ours, encoding="utf-8") as written:
        text = written.read()
    os.waitpid(pid, 0)
    finished = codec.decode_event(json.loads(text))
    assert isinstance(finished, c.Finished)
    return finished


def job_of(
    folder: Path,
    text: str,
    reference: str = REFERENCE,
    *,
    device: str = "cpu",
    limit_s: float = 120.0,
    allow: tuple[Policy, ...] = (),
) -> Job:
    if device == "cpu":
        reference = reference.replace("512, 1024", "64, 256")
    (folder / "candidate.py").write_text(reference)
    path = folder / "candidate_new.py"
    path.write_text(text)
    return Job(
        "1", "run", "triton", str(path), text, start=ContractStart("referee", allow), run_timeout_s=limit_s
    )
