"""What warm spares cost and save on this machine: `python bench/prefork.py [JOBS]`.

Times from a job being handed over to its result, first (the template has to import torch) and warm,
against a fresh process for each; and the memory a template and a spare add, shared pages counted by
share (PSS).
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parents[1] / "remote"))
from orbit_remote.common import messages as c
from orbit_remote.common.requests import Job
from orbit_remote.worker import prefork

JOB = Job("1", "run", "triton", "/kernels.py", "import torch, triton\ndef main(): pass\n")


async def once(pool: prefork.PreforkPool) -> float:
    began = time.perf_counter()
    child = await pool.take(JOB, os.environ)
    events = [event async for event in child.events()]
    took = time.perf_counter() - began
    assert isinstance(events[-1], c.Finished), events
    await child.wait()
    await child.close()
    return took


def memory(pid: int) -> str:
    full = psutil.Process(pid).memory_full_info()
    return f"RSS {full.rss / 2**20:.0f} MB, PSS {full.pss / 2**20:.0f} MB, private {full.uss / 2**20:.0f} MB"


async def main(jobs: int) -> None:
    with tempfile.TemporaryDirectory() as cache:
        pool = prefork.PreforkPool(cache=Path(cache))
        print(f"first job, template started for it   {await once(pool):8.3f} s")
        warm: list[float] = []
        ready: list[float] = []
        for _ in range(jobs):
            began = time.perf_counter()
            await pool.prepare(os.environ)
            ready.append(time.perf_counter() - began)
            warm.append(await once(pool))
        print(
            f"warm job, median of {jobs:3}              {statistics.median(warm):8.3f} s, worst {max(warm):.3f} s"
        )
        print(f"a spare made ready, median           {statistics.median(ready):8.3f} s")
        await pool.prepare(os.environ)
        spare = pool.waiting
        print(f"template  {memory(psutil.Process(spare).ppid())}")
        print(f"spare     {memory(spare)}")
        await pool.close()

        prefork.FORKS = False
        pool = prefork.PreforkPool(cache=Path(cache))
        fresh = [await once(pool) for _ in range(3)]
        print(f"job in a fresh process, best of 3    {min(fresh):8.3f} s")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 20))
