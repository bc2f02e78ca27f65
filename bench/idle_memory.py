"""What three editors and a shell hold when they idle: memory of workers and their processes, and memory of the GPU.

    python -P bench/idle_memory.py [--limit 15]

Each editor opens a Triton file and runs a launch spec; then all of them idle. Once with the shared worker and once with a
worker for each (`ORBIT_SHARED_WORKER=no`), before and after the limit from which on a warm process gives its GPU memory back
(setting `spare_idle_s`, here --limit seconds).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parent))
from client import Client
from spec_latency import SERVER, Editor

EDITORS = 3


def gpu_memory() -> int | None:
    """Bytes in use on the first GPU; None without NVML."""
    try:
        import pynvml

        pynvml.nvmlInit()
        return int(pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(0)).used)
    except Exception:  # noqa: BLE001 - no binding, no driver
        return None


def resident(folder: str) -> tuple[int, int]:
    """Workers, and the bytes that they and what they started have for themselves (proportional set size)."""
    workers = size = 0
    for process in psutil.process_iter(["cmdline"]):
        with contextlib.suppress(psutil.Error):
            words = process.info["cmdline"] or []
            if process.environ().get("XDG_RUNTIME_DIR") == folder and any(
                "orbit_remote" in word for word in words
            ):
                workers += "worker" in words
                size += process.memory_full_info().pss
    return workers, size


def command(environment: dict[str, str], *words: str) -> None:
    subprocess.run([*SERVER, *words], env=environment, stdout=subprocess.DEVNULL, check=False)


async def measure(what: str, limit_s: float, environment: dict[str, str], folder: Path) -> None:
    before = gpu_memory()
    clients = [
        await Client.start(SERVER, folder, {"spare_idle_s": limit_s}, environment) for _ in range(EDITORS)
    ]
    for number, client in enumerate(clients):
        editor = Editor(client)
        uri = editor.open(folder / f"k{number}.cu")
        if before is not None:
            await editor.click(uri)
    await asyncio.to_thread(command, environment, "doctor")
    began = time.monotonic()
    for when in ("warm", f"idle for {limit_s + 10:.0f} s"):
        await asyncio.sleep(0 if when == "warm" else max(0.0, limit_s + 10 - (time.monotonic() - began)))
        workers, size = resident(environment["XDG_RUNTIME_DIR"])
        now = gpu_memory()
        gpu = f"{(now - before) / (1 << 20):.0f} MiB" if now is not None and before is not None else "no GPU"
        print(
            f"{what:22} {when:16} {workers} worker(s), {size / (1 << 20):.0f} MiB; GPU memory {gpu}",
            flush=True,
        )
    for client in clients:
        await client.stop()


async def main(limit_s: float) -> None:
    for what, more in (("shared worker", {}), ("a worker each", {"ORBIT_SHARED_WORKER": "no"})):
        with tempfile.TemporaryDirectory(prefix="orbit-") as name:
            environment = os.environ | {"XDG_RUNTIME_DIR": name, "XDG_STATE_HOME": f"{name}/state"} | more
            await measure(what, limit_s, environment, Path(name))
            await asyncio.to_thread(command, environment, "stop", "--yes")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--limit", type=float, default=15.0)
    asyncio.run(main(parser.parse_args().limit))
