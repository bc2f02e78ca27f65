"""A stand-in for the GPU side, and only that: it answers as the worker answered on an H100.

The machines that run these tests have no GPU. What it says of `saxpy` and `matmul` are figures
measured on an NVIDIA H100 80GB HBM3 on 2026-11-21; it compiles nothing and runs nothing. Words in the
source choose what happens: SLOW waits until it is cancelled, BUG is a compile error, CRASH ends the
worker, NEVER launches nothing.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "remote"))

from orbit_remote import contracts as c
from orbit_remote import wire

DEVICE = c.Device("NVIDIA H100 80GB HBM3", 0, "9.0", driver="580.159.04", multiprocessors=132)
SAXPY = c.Launches(
    "_Z5saxpyifPKfPf", "saxpy(int, float, const float *, float *)", (262144, 1, 1), (256, 1, 1),
    c.Timing(19, 288_032, "in program, n=19", 287_456, 288_608, 0.002, first=291_200), 20,
    registers=16, static_shared=0, dynamic_shared=0,
)  # fmt: skip
TELEMETRY = c.Telemetry(12, (1980, 1980, 1980), (2619, 2619, 2619), (41, 42, 42), (240, 310, 350))


def say(event: c.Event) -> None:
    sys.stdout.write(c.encode(event) + "\n")
    sys.stdout.flush()


def finished(run: str, outcome: c.Outcome, **fields: object) -> None:
    say(c.Finished(run, outcome, device=DEVICE, telemetry=TELEMETRY, toolchain={"nvcc": "13.0.88"}, **fields))


def job(request: c.Job, waiting: set[str]) -> None:
    run, text = request.run, request.text
    say(c.Stage(run, "building", time.time()))
    if "BUG" in text:
        line = next(number for number, line in enumerate(text.split("\n"), 1) if "BUG" in line)
        column = text.split("\n")[line - 1].index("BUG") + 1
        place = c.Place(request.path, line, column, column + 3)
        problem = c.Problem("error", 'identifier "BUG" is undefined', "nvcc", place, "#20")
        say(c.Built(run, (problem,), complete=True))
        finished(run, "compile error", failure=c.Failure("compile error", "does not compile: 1 error"))
        return
    say(c.Built(run, complete=True))
    if request.action != "run":
        finished(run, "ok")
        return
    say(c.Stage(run, "running", time.time()))
    if "CRASH" in text:
        os._exit(9)
    if "SLOW" in text:
        waiting.add(run)
        return
    say(c.Output(run, "stdout", "no error\n"))
    finished(
        run, "ok", launches=() if "NEVER" in text else (SAXPY,), run_s=0.47, exit_code=0, stdout="no error\n"
    )


def main() -> None:
    waiting: set[str] = set()
    for line in sys.stdin:
        match wire.decode_request(line):
            case c.Probe(run=run):
                packages = {"torch": "2.11.0", "triton": "3.6.0", "nvidia-ml-py": None}
                say(
                    c.Machine(
                        run, c.VERSION, "python", "3.12.3", packages, (DEVICE,), "nvcc", "13.0.88", "g++ 13.3"
                    )
                )
            case c.Cancel(run=run) if run in waiting:
                waiting.discard(run)
                finished(run, "cancelled", failure=c.Failure("cancelled", "cancelled by the user"))
            case c.Job() as request:
                job(request, waiting)
            case _:
                pass


if __name__ == "__main__":
    main()
