"""Notebook sessions on the offline control plane, started and killed at random moments: what is left, unbilled or doubled.

    python -P bench/notebook_kills.py [--sessions 60] [--at-once 4] [--seed 1]

Each session is a front end of its own (jupyter_client), the real relay, Modal's own client and container entrypoint, and a real
ipykernel that runs cell after cell. At a random moment the front end, the relay or a container is killed with SIGKILL, or the
control plane refuses connections, up to half as long again as a session survives. Then the session is ended. `left` are containers
and processes after all have had their time to end; `unbilled` containers that lived longer than the ledger has for them;
`doubled` cells that ran twice, and sessions that the ledger has twice. Linux.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "remote"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import psutil
import pytest

from tests.modal_loopback.fixture import started
from tests.modal_loopback.loopback import Loopback

GONE_S = 6.0
"""How long each side waits for a sign of the other."""
MOMENT_S = 8.0
"""A container is there after about 3 s, with the first cell."""
END_S = 120.0
EXIT_S = 4.0
"""What the ledger has for the end of a container that was not heard of, and a second."""
MARK = "ORBIT_NOTEBOOK_KILLS"
FRONT_END = """
import sys, threading
from jupyter_client.manager import KernelManager
name, folder, log = sys.argv[1:]
manager = KernelManager(kernel_name="orbit-modal-h100")
manager.start_kernel(cwd=folder)
print(manager.provisioner.pid, flush=True)
client = manager.client()
client.start_channels()
def work():
    client.wait_for_ready(timeout=120)
    number = 0
    while True:
        number += 1
        client.execute(f"with open({log!r}, 'a') as file: print('{name}', {number}, file=file)", reply=True, timeout=120)
threading.Thread(target=work, daemon=True).start()
sys.stdin.readline()
manager.shutdown_kernel()
"""


class Kills:
    def __init__(self, folder: Path, modal: Loopback, seed: int) -> None:
        self.folder = folder
        self.modal = modal
        self.log = folder / "cells.log"
        self.did: Counter[str] = Counter()
        self._random = random.Random(seed)
        self._plane = threading.Lock()

    def session(self, number: int) -> None:
        what = ("front end", "relay", "container", "control plane")[number % 4]
        moment, away = self._random.uniform(0, MOMENT_S), self._random.uniform(0, 1.5 * GONE_S)
        command = [
            sys.executable,
            "-P",
            "-c",
            FRONT_END,
            f"s{number}",
            str(self.folder / "work"),
            str(self.log),
        ]
        with (
            (self.folder / f"front-end-{number}.log").open("w") as errors,
            subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            ) as front_end,
        ):
            assert front_end.stdin
            assert front_end.stdout
            relay = int(front_end.stdout.readline())
            time.sleep(moment)
            if what == "front end":
                front_end.kill()
            elif what == "relay":
                with contextlib.suppress(ProcessLookupError):
                    os.kill(relay, signal.SIGKILL)
            elif what == "container":
                if not self._kill_container():
                    what = "container, none was there"
            else:
                self._be_away(away)
            self.did[what] += 1
            with contextlib.suppress(OSError):
                front_end.stdin.close()  # and it ends its session
            try:
                front_end.wait(END_S)
            except subprocess.TimeoutExpired:
                self.did["front end that hung"] += 1
                front_end.kill()

    def _kill_container(self) -> bool:
        alive = self.modal.do(lambda world: list(world.alive()))
        if not alive:
            return False
        chosen = self._random.choice(alive)
        self.modal.do(lambda _: chosen.kill())
        return True

    def _be_away(self, seconds: float) -> None:
        with self._plane:
            self.modal.refuse_connections()
            time.sleep(seconds)
            self.modal.accept_connections()

    # -- what came of it ----------------------------------------------------------------------

    def left(self) -> list[str]:
        with contextlib.suppress(TimeoutError):
            self.modal.until(lambda world: not world.alive(), END_S)
        containers = [each.id for each in self.modal.do(lambda world: list(world.alive()))]
        marked = [process for process in psutil.process_iter() if self._is_ours(process)]
        _, alive = psutil.wait_procs(marked, timeout=END_S)
        return containers + [f"{process.pid} {' '.join(process.cmdline())[:80]}" for process in alive]

    def _is_ours(self, process: psutil.Process) -> bool:
        with contextlib.suppress(psutil.Error, OSError):
            return process.pid != os.getpid() and process.environ().get(MARK) == os.environ[MARK]
        return False

    def ledger(self) -> tuple[list[str], list[str], float, float]:
        """Compare the ledger with the containers that lived. Return the containers whose time in the ledger is too short,
        the sessions that are charged twice (beside their container), the seconds that all containers lived, and the
        seconds in the ledger.
        """
        file = self.folder / "state" / "orbit-lsp" / "rented.sqlite"
        with contextlib.closing(sqlite3.connect(file)) as rows:
            spans: list[tuple[str, str, float, float]] = rows.execute(
                "select id, holder, began, ends from spans where not waits"
            ).fetchall()
        known: dict[str, float] = {}
        for name, _, began, ends in spans:
            known[name] = max(known.get(name, 0.0), min(ends, time.time()) - began)
        lived = {
            each.id: each.finished - each.started
            for each in self.modal.do(lambda world: list(world.containers.values()))
            if each.started
        }
        unbilled = [name for name, seconds in lived.items() if name in known and seconds - 1 > known[name]]
        unknown = [name for name in lived if name not in known]
        keys = [span for span in spans if span[0].startswith("notebook-") and span[3] > span[2]]
        short = sum(lived[name] - 1 for name in unknown) > sum(ends - began for _, _, began, ends in keys)
        unbilled += unknown if short else []
        # a relay has one session at a time: its container's row takes the place of the session's own
        twice = [
            key
            for key, holder, began, ends in keys
            if any(
                holder == other and not name.startswith("notebook-") and began <= start < ends - EXIT_S
                for name, other, start, _ in spans
            )
        ]
        return unbilled, twice, sum(lived.values()), sum(known.values())


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sessions", type=int, default=60)
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kills-") as made, pytest.MonkeyPatch.context() as patch:
        folder = Path(made)
        (folder / "work").mkdir()
        names = {
            "JUPYTER_DATA_DIR": "jupyter",
            "XDG_STATE_HOME": "state",
            "XDG_CACHE_HOME": "cache",
            "IPYTHONDIR": "ipython",
        }
        for name, place in names.items():
            patch.setenv(name, str(folder / place))
        patch.setenv("ORBIT_NOTEBOOK_GONE_S", str(GONE_S))
        patch.setenv(MARK, uuid.uuid4().hex)
        shared = {
            "ORBIT_HOME": str(folder / "orbit-{container}"), "ORBIT_NOTEBOOK_GONE_S": str(GONE_S), MARK: os.environ[MARK],
        }  # fmt: skip
        install = ["kernel", "install", "--on", "modal:H100", "--budget", "5000"]
        with started(patch, folder, shared) as modal:
            subprocess.run(
                [sys.executable, "-P", "-m", "orbit_lsp", *install], check=True, stdout=subprocess.DEVNULL
            )
            kills = Kills(folder, modal, options.seed)
            with ThreadPoolExecutor(options.at_once) as at_once:
                list(at_once.map(kills.session, range(options.sessions)))
            left = kills.left()
            unbilled, twice, lived, recorded = kills.ledger()
        ran = Counter(kills.log.read_text().splitlines() if kills.log.exists() else [])
        again = [line for line, count in ran.items() if count > 1]
    print(f"{options.sessions} sessions: {', '.join(f'{count} {what}' for what, count in kills.did.items())}")
    print(f"containers lived {lived:.0f} s, the ledger has {recorded:.0f} s; {sum(ran.values())} cells ran")
    results = {"left": left, "unbilled": unbilled, "cells doubled": again, "sessions doubled": twice}
    for what, items in results.items():
        print(f"{what}: {len(items)} {' '.join(items[:5])}".rstrip())
    return 1 if any(results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
