"""What a command costs beside a warm worker: wall time and processor time of `orbit-lsp`, in turn with workers of its own.

    python -P bench/warm_command.py [--times 15] [FILE]

FILE is a program that `run` runs, on a GPU; with it a launch spec is run, too. The
first line is Python itself with `import asyncio`, which no command can go below. Medians with the quartiles; processor time is
of the command alone, and is what a busy machine disturbs least.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SPEC = """\
// orbit: n = 24000000; a = 2.0f
// orbit: x = randn(n); y = randn(n)
// orbit: launch saxpy<<<(n + 255) / 256, 256>>>(n, a, x, y)
// orbit: expect y == a * x + y
__global__ void saxpy(int n, float a, const float* x, float* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}
"""
KERNEL = "__global__ void k(float* x) { x[threadIdx.x] = 1; }\n"
ORBIT = [sys.executable, "-P", "-m", "orbit_lsp"]


def once(command: list[str], folder: Path, environment: dict[str, str]) -> tuple[float, float]:
    """Seconds on the wall, and of the processor in the command and what it waited for."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def middle(values: list[float]) -> str:
    low, median, high = statistics.quantiles(values, n=4)
    return f"{median * 1e3:5.0f} ms ({low * 1e3:.0f} to {high * 1e3:.0f})"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=15)
    parser.add_argument("file", nargs="?", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="orbit-") as name:
        folder = Path(name)
        (folder / "k.cu").write_text(KERNEL)
        own = {"XDG_RUNTIME_DIR": name, "XDG_CACHE_HOME": f"{name}/cache", "XDG_STATE_HOME": f"{name}/state"}
        shared = os.environ | own
        shared.pop("PYTHONDONTWRITEBYTECODE", None)  # else each command compiles the whole package anew
        alone = shared | {"ORBIT_SHARED_WORKER": "no"}
        cases = {
            "python -c 'import asyncio'": ([sys.executable, "-c", "import asyncio"], shared),
            "compile, cached, shared worker": ([*ORBIT, "compile", "k.cu", "--json"], shared),
            "compile, cached, worker of its own": ([*ORBIT, "compile", "k.cu", "--json"], alone),
            "exec -c 'print(1)', shared worker": ([*ORBIT, "exec", "-c", "print(1)"], shared),
            "doctor, shared worker": ([*ORBIT, "doctor"], shared),
            "doctor, worker of its own": ([*ORBIT, "doctor"], alone),
        }
        if options.file:
            own_file = (
                folder / options.file.name
            )  # not in the project that it comes from, which would be searched
            own_file.write_bytes(options.file.read_bytes())
            run = [*ORBIT, "run", own_file.name, "--json"]
            (folder / "spec.cu").write_text(SPEC)
            program = str(folder / "program")
            subprocess.run(["nvcc", "-O3", own_file, "-o", program], check=True)
            cases |= {
                "the program alone": ([program], shared),
                "run, shared worker": (run, shared),
                "run, worker of its own": (run, alone),
                "run of a launch spec, shared worker": ([*ORBIT, "run", "spec.cu", "--json"], shared),
            }
        for command, environment in cases.values():  # the build is cached, the worker warm
            once(command, folder, environment)
        costs: dict[str, list[tuple[float, float]]] = {}
        for _ in range(options.times):
            for what, (command, environment) in cases.items():
                costs.setdefault(what, []).append(once(command, folder, environment))
        for what, pairs in costs.items():
            print(
                f"{what:36} wall {middle([wall for wall, _ in pairs])}, processor {middle([cpu for _, cpu in pairs])}"
            )
        subprocess.run([*ORBIT, "stop"], cwd=folder, env=shared, check=True)


if __name__ == "__main__":
    main()
