"""How long an editor waits for another file while a hostile text is opened and edited, and what memory that takes.

    python -P bench/hostile.py [WORD …]     the texts of tests/hostile/hostile_texts.py whose names hold a WORD

For each text a server and a worker of its own: a small file is open, its lenses are asked for again and again, and
meanwhile the text is opened and edited at its start, middle and end. `silence` is the longest that an answer about the
small file took by a client's wall clock, for which the machine should be quiet; `cpu` is the most processor time that all
threads of the server took during such an answer, which other programs hardly change; `answer` the time until the lenses
of the hostile file came, `server` and `worker` what each took over idle, at most, and `both` the sum of these two, though
they need not be at the same moment. `inf` stands for no answer in time.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent))
from client import Client

from tests.hostile.hostile_texts import ONE, TEXTS, name_of

ORBIT = [sys.executable, "-P", "-m", "orbit_lsp"]
LIMIT_S = 30


def cpu_s(pid: int) -> float:
    """Of all threads of a process, by the kernel's scheduler; those that ended meanwhile do not count."""
    taken = 0
    for thread in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with contextlib.suppress(OSError):
            taken += int(thread.read_text().split()[0])
    return taken / 1e9


async def ping(client: Client, uri: str, slowest: list[tuple[float, float]]) -> None:
    """Of each answer its seconds by the wall clock, and the server's processor time meanwhile."""
    while True:
        began, before = time.perf_counter(), cpu_s(client.process.pid)
        await client.request("textDocument/codeLens", {"textDocument": {"uri": uri}}, LIMIT_S)
        took = time.perf_counter() - began
        slowest.append((took, min(took, cpu_s(client.process.pid) - before)))
        await asyncio.sleep(0.02)


def workers(private: Path) -> list[int]:
    """The processes that write down their ids beside their sockets, in the runtime folder of this program alone."""
    result: list[int] = []
    for file in private.glob("orbit-lsp/*.pid"):
        with contextlib.suppress(OSError, ValueError):
            result.append(json.loads(file.read_text())["pid"])
    return result


def peak_mib(pid: int) -> float:
    """The most that a process has taken since it began. Compilers are left out: they have a limit of their own."""
    try:
        result = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return 0.0
    return int(result[1]) / 1024 if result else 0.0


async def ready(client: Client, uri: str) -> None:
    """The small file's kernel has been compiled, so there is a worker; or there is no compiler here."""
    everything = {"start": {"line": 0, "character": 0}, "end": {"line": 9, "character": 0}}
    hints = {"textDocument": {"uri": uri}, "range": everything}
    since = 0.0
    with contextlib.suppress(TimeoutError):
        while not await client.request("textDocument/inlayHint", hints, LIMIT_S):
            since, _ = await client.until(
                lambda message: message.get("method") == "workspace/inlayHint/refresh",
                since + 1e-9,
                LIMIT_S,
            )
    await asyncio.sleep(1.0)


async def edit(client: Client, uri: str, text: str, opening: bytes) -> float:
    """Seconds until the lenses were there, after opening and after each of three edits; the longest. `opening` is the message
    that opens the text, made before anything is timed: a client that writes JSON answers nobody either.
    """
    document = {"textDocument": {"uri": uri}}
    longest = 0.0
    client.send(opening)
    last = text.count("\n")
    for version, line in enumerate((None, 0, last // 2, max(0, last - 1)), 1):
        if line is not None:
            at = {"line": line, "character": 0}
            change = {"range": {"start": at, "end": at}, "text": " "}
            client.notify(
                "textDocument/didChange",
                {"textDocument": {"uri": uri, "version": version}, "contentChanges": [change]},
            )
        began = time.perf_counter()
        await client.request("textDocument/codeLens", document, LIMIT_S)
        longest = max(longest, time.perf_counter() - began)
    return longest


async def measured(name: str, text: str, private: Path) -> tuple[float, float, float, float, float]:
    folder = private / "project"
    folder.mkdir()
    small, hostile = folder / "small.cu", folder / name
    small.write_text(ONE)
    options: dict[str, Any] = {"compile_on_save": True, "history": {"on": False}}
    env = os.environ | {"XDG_RUNTIME_DIR": str(private), "XDG_CACHE_HOME": str(private / "cache")}
    client = await Client.start(ORBIT, folder, options, env)
    client.notify("initialized", {})
    client.open(small, "cuda-cpp")
    slowest: list[tuple[float, float]] = []
    await ready(client, small.as_uri())
    server, (worker, *_) = client.process.pid, (*workers(private), 0)
    before = peak_mib(server), peak_mib(worker)
    opened = {"uri": hostile.as_uri(), "languageId": "cuda-cpp", "version": 1, "text": text}
    opening = client.body("textDocument/didOpen", {"textDocument": opened})
    asking = asyncio.create_task(ping(client, small.as_uri(), slowest))
    try:
        answer = await edit(client, hostile.as_uri(), text, opening)
    except TimeoutError:
        answer = float("inf")
    await asyncio.sleep(2.0)  # the compile that an opened file starts
    endless = float("inf"), float("inf")
    silence, cpu = [max(kind) for kind in zip(*(slowest or [endless]), strict=True)]
    silence, cpu = endless if asking.done() else (silence, cpu)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    taken = peak_mib(server) - before[0], peak_mib(worker) - before[1]
    client.process.kill()
    await client.stop()
    for pid in workers(private):
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGTERM)
    return silence, cpu, answer, *taken


async def main(words: list[str]) -> None:
    print(
        f"{'text':44} {'silence':>10} {'cpu':>10} {'answer':>10} {'server':>10} {'worker':>10} {'both':>10}"
    )
    for what, make in TEXTS.items():
        if not words or any(word in what for word in words):
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as private:
                silence, cpu, answer, server, worker = await measured(name_of(what), make(), Path(private))
            figures = f"{silence * 1e3:7.0f} ms {cpu * 1e3:7.0f} ms {answer:8.2f} s {server:6.0f} MiB {worker:6.0f} MiB {server + worker:6.0f} MiB"
            print(f"{what:44} {figures}", flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
