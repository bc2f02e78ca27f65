"""Random inputs for each target until the time is up: `scripts/fuzz`.

A process for each target. What crashes it, takes more CPU time or more memory than the bounds, or ends the process
becomes the smallest such input that hypothesis finds, a file in tests/hostile/cases/, which the tests replay.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import psutil
from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.hostile.targets import CPU_S, TARGETS

CASES = Path(__file__).parent / "cases"
MEMORY = 1 << 30
"""Of the process of a target."""
_ROUND = 100
_STUCK_S = 120.0
"""A target that takes no processor time in so long hangs."""


class Meter:
    """Runs a target on inputs, and keeps count."""

    def __init__(self, target: str, current: Path) -> None:
        self._run, self._target, self._current = TARGETS[target], target, current
        self.inputs, self.longest = 0, 0.0
        self.until = float("inf")
        """Of `time.monotonic`: what comes later is passed over, so that the last round ends at once."""
        self.crashes: dict[str, tuple[bytes, str]] = {}
        self._known: set[str] = set()

    def try_one(self, case: bytes) -> None:
        if time.monotonic() >= self.until:
            return
        self._current.write_bytes(case)
        signal.setitimer(signal.ITIMER_PROF, CPU_S)
        before = time.process_time()
        try:
            self._run(case)
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            kind = f"{type(error).__name__} at {Path(last.filename).name}:{last.lineno}"
            if kind in self._known:
                return
            self.crashes[kind] = (case, "".join(traceback.format_exception(error)))
            raise
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            self.inputs += 1
            self.longest = max(self.longest, time.process_time() - before)

    def round(self, number: int, count: int = _ROUND) -> None:
        """A hundred inputs; after a crash hypothesis makes it smaller, and it is known from then on."""
        from tests.hostile.inputs import INPUTS

        chosen = settings(
            max_examples=count, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much, HealthCheck.large_base_example],
            phases=(Phase.generate, Phase.shrink), report_multiple_bugs=False,
        )  # fmt: skip
        try:
            seed(number)(chosen(given(INPUTS[self._target])(self.try_one)))()
        except Exception:  # noqa: BLE001 - it is among the crashes
            self._known |= set(self.crashes)

    def report(self) -> dict[str, object]:
        memory = max(
            resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        )
        crashes = {kind: [case.hex(), text] for kind, (case, text) in self.crashes.items()}
        return {"inputs": self.inputs, "longest": self.longest, "mib": memory >> 10, "crashes": crashes}


def _too_long(number: int, frame: FrameType | None) -> None:
    del number, frame
    raise TimeoutError(f"more than {CPU_S:g} s of CPU time")


def _target(name: str, minutes: float, folder: Path, first: int) -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    signal.signal(signal.SIGPROF, _too_long)
    meter = Meter(name, folder / f"{name}.case")
    meter.until = until = time.monotonic() + minutes * 60
    number = first
    while time.monotonic() < until:
        meter.round(number)
        number += 1
        (folder / f"{name}.json").write_text(json.dumps(meter.report()))


def _save(target: str, case: bytes) -> Path:
    path = CASES / target / hashlib.sha256(case).hexdigest()[:12]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(case)
    return path


def _ended(process: subprocess.Popen[bytes]) -> int:
    """Its status. It is killed where it waits for nothing: on a busy machine it may be slow, but takes processor time."""
    taken: list[object] = []
    while True:
        try:
            return process.wait(_STUCK_S)
        except subprocess.TimeoutExpired:
            with suppress(psutil.Error):  # a child ends meanwhile
                target = psutil.Process(process.pid)
                now = [each.cpu_times() for each in (target, *target.children(recursive=True))]
                if now == taken:
                    process.kill()
                taken = now


def main() -> int:
    from tests.hostile.inputs import INPUTS

    parser = argparse.ArgumentParser(prog="scripts/fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=2)
    parser.add_argument("--seed", type=int, help="of the first round; default: another one each time")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(INPUTS)}; default: all")
    options = parser.parse_args()
    if unknown := set(options.targets) - set(INPUTS):
        parser.error(f"there is no target {', '.join(unknown)}")
    first = options.seed if options.seed is not None else int.from_bytes(os.urandom(4), "big")
    failed = False
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = [sys.executable, "-m", "tests.hostile.fuzz", "--one"]
        running = {
            target: subprocess.Popen(
                [*command, target, str(options.minutes), name, str(first)],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=os.environ | {"TMPDIR": name},
            )
            for target in options.targets or INPUTS
        }
        print(f"seed {first}\n{'target':16} {'inputs':>8} {'crashes':>8} {'longest':>9} {'memory':>9}")
        for target, process in running.items():
            status = _ended(process)
            result = folder / f"{target}.json"
            report: dict[str, Any] = (
                json.loads(result.read_text())
                if result.exists()
                else {"inputs": 0, "longest": 0, "mib": 0, "crashes": {}}
            )
            if status:
                report["crashes"]["the process ended or hung"] = [
                    (folder / f"{target}.case").read_bytes().hex(),
                    f"status {status}",
                ]
            print(
                f"{target:16} {report['inputs']:8,} {len(report['crashes']):8} {report['longest']:7.2f} s {report['mib']:5} MiB",
                flush=True,
            )
            for kind, (case, text) in report["crashes"].items():
                failed = True
                print(f"  {kind}\n  saved as {_save(target, bytes.fromhex(case))}\n{text[-1500:]}")
    return int(failed)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        _target(sys.argv[2], float(sys.argv[3]), Path(sys.argv[4]), int(sys.argv[5]))
    else:
        raise SystemExit(main())
