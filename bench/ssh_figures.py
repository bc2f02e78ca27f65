"""Figures of runs over ssh, on a real sshd of the loopback: `python bench/ssh_figures.py [--round-trip MS]`. The GPU is recorded, compiling is
real; a small proxy delays what goes to the sshd and comes from it, in the place of a network.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from contextlib import aclosing
from pathlib import Path

from orbit_lsp.runners import shared_worker
from orbit_lsp.runners.local import LocalOptions, LocalRunner
from orbit_lsp.runners.ssh import leaving
from orbit_lsp.runners.ssh import runner as ssh_runner
from orbit_lsp.runners.ssh.connection import SshPlace
from orbit_lsp.runners.ssh.runner import SshOptions, SshRunner
from orbit_remote.common import messages as c
from orbit_remote.common.requests import Action, Job
from tests.ssh.host import Host

TIMES = 20
KERNEL = "__global__ void saxpy(int* x) {{ x[0] = {number}; }}\nint main() {{ saxpy<<<1, 1>>>(0); }}\n"


async def seconds(runner: SshRunner | LocalRunner, job: Job) -> float:
    began = time.perf_counter()
    async with aclosing(runner.run(job)) as events:
        async for event in events:
            if isinstance(event, c.Finished):
                assert event.outcome == "ok", event.failure
    return time.perf_counter() - began


def job(folder: Path, number: int, action: Action) -> Job:
    return Job(
        f"r{number}",
        action,
        "cuda",
        str(folder / "k.cu"),
        KERNEL.format(number=number),
        directory=str(folder),
    )


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--round-trip", type=float, default=0.0, metavar="MS")
    round_trip_ms = parser.parse_args().round_trip
    with tempfile.TemporaryDirectory(prefix="orbit-ssh-") as name:
        folder, project = Path(name), Path(name) / "project"
        (project / "include").mkdir(parents=True)
        (folder / "runtime").mkdir(mode=0o700)
        os.environ["XDG_RUNTIME_DIR"] = f"{folder}/runtime"  # the workers that are stopped are this run's own
        os.environ |= {
            "PATH": f"{folder}/bin{os.pathsep}{os.environ['PATH']}",
            "XDG_CACHE_HOME": f"{folder}/laptop",
        }
        host = Host(folder)
        host.answers(gpu=True)
        host.start()
        if round_trip_ms:
            host.far_away(round_trip_ms)
        try:
            await figures(host, project)
        finally:
            host.close()


async def figures(host: Host, project: Path) -> None:
    place = SshPlace(host.name, str(host.python), "0123")
    far = SshRunner(SshOptions(place))
    print(f"bare host, first run     {await seconds(far, job(project, 0, 'run')):8.3f} s")
    times = [await seconds(far, job(project, number, "run")) for number in range(1, TIMES)]
    print(f"warm run over ssh        {statistics.median(times) * 1e3:8.1f} ms (median of {len(times)})")
    here = LocalRunner(LocalOptions(python=str(host.python), cache=str(host.folder / "near")))
    await seconds(here, job(project, 0, "run"))
    times = [await seconds(here, job(project, number, "run")) for number in range(1, TIMES)]
    print(f"the same on the host     {statistics.median(times) * 1e3:8.1f} ms")
    await here.close()
    await shared_worker.stop()
    await far.close()
    await leaving.leave(host.name, str(host.python), busy_too=True)  # the recorded worker with it
    host.answers(gpu=False)
    for number in range(200):
        (project / "include" / f"h{number}.cuh").write_text(f"#define H{number} {number}\n")
    includes = "".join(f'#include "include/h{number}.cuh"\n' for number in range(200))
    far = SshRunner(SshOptions(SshPlace(host.name, str(host.python), "4567")))
    near = LocalRunner(LocalOptions(shared=False))
    wanted = [job(project, number, "compile") for number in range(100, 106)]
    wanted = [Job(**{**vars_of(each), "text": includes + each.text}) for each in wanted]
    await seconds(far, wanted[0])
    sent = far.bytes_sent
    differences = [await seconds(far, each) for each in wanted[1:]]
    print(
        f"bytes sent, 1 of 200     {(far.bytes_sent - sent) / (len(wanted) - 1):8.0f} (the file has {len(wanted[1].text)})"
    )
    await keystrokes(far, near, wanted[-1])
    here = [await seconds(near, each) for each in wanted]
    print(f"compile over ssh, local  {min(differences):8.3f} s, {min(here[1:]):.3f} s")
    await asyncio.gather(far.close(), near.close())


async def keystrokes(far: SshRunner, near: LocalRunner, wanted: Job) -> None:
    """How long it takes from a text that was typed to the front end's answer, also where it would come too late to be shown."""
    ssh_runner.TYPED_S = 1000.0
    for runner, where in ((far, "over ssh"), (near, "on the host")):
        times: list[float] = []
        for number in range(200):
            typed = Job(
                **vars_of(wanted) | {"run": f"t{number}", "text": f"{wanted.text}int a{number} = oops;\n"}
            )
            began = time.perf_counter()
            if await runner.typed(typed, start=True):
                times.append(time.perf_counter() - began)
            if len(times) == TIMES:
                break
        worst = max(times[1:]) * 1e3
        print(
            f"a keystroke {where:<12} {statistics.median(times[1:]) * 1e3:8.1f} ms (median of {len(times) - 1}; worst {worst:.1f})"
        )


def vars_of(job: Job) -> dict[str, object]:
    return {name: getattr(job, name) for name in Job.__dataclass_fields__}


if __name__ == "__main__":
    asyncio.run(main())
