"""How long an editor waits for another file while a hostile text is opened and edited, and what memory that takes.

    python -P bench/hostile.py [WORD …]     the texts of tests/hostile/hostile_texts.py whose names hold a WORD

For each text a server of its own: a small file is open, its lenses are asked for again and again, and meanwhile the
text is opened and edited at its start, middle and end. Figures are of a client's wall clock, so the machine should be
quiet: `silence` is the longest that an answer about the small file took, `answer` the time until the lenses of the
hostile file came, `memory` what the server and its worker took over idle, at most.
"""

from __future__ import annotations

import asyncio
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


async def ping(client: Client, uri: str, slowest: list[float]) -> None:
    while True:
        began = time.perf_counter()
        await client.request("textDocument/codeLens", {"textDocument": {"uri": uri}}, LIMIT_S)
        slowest.append(time.perf_counter() - began)
        await asyncio.sleep(0.02)


def resident_mib(pid: int) -> float:
    """Of a process and all below it, compilers left out: theirs is bounded by their own limit."""
    total = 0.0
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            said = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
            if int(said["Pid"]) == pid or (
                int(said["PPid"]) == pid and said["Name"].strip().startswith("python")
            ):
                total += int(said["VmRSS"].split()[0]) / 1024
        except (OSError, KeyError):
            continue
    return total


async def memory(pid: int, most: list[float]) -> None:
    while True:
        most.append(resident_mib(pid))
        await asyncio.sleep(0.25)


async def edit(client: Client, uri: str, text: str) -> float:
    """Seconds until the lenses were there, after opening and after each of three edits; the longest."""
    document = {"textDocument": {"uri": uri}}
    longest = 0.0
    opened = {"uri": uri, "languageId": "cuda-cpp", "version": 1, "text": text}
    client.notify("textDocument/didOpen", {"textDocument": opened})
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


async def measured(name: str, text: str, folder: Path) -> tuple[float, float, float]:
    for each in folder.iterdir():  # noqa: ASYNC240
        each.unlink()
    small, hostile = folder / "small.cu", folder / name
    small.write_text(ONE)
    options: dict[str, Any] = {"compile_on_save": False, "history": {"on": False}}
    client = await Client.start(ORBIT, folder, options)
    client.notify("initialized", {})
    client.open(small, "cuda-cpp")
    slowest: list[float] = []
    await asyncio.sleep(1.0)  # the worker starts
    before = resident_mib(client.process.pid)
    most: list[float] = [before]
    tasks = [
        asyncio.create_task(ping(client, small.as_uri(), slowest)),
        asyncio.create_task(memory(client.process.pid, most)),
    ]
    await asyncio.sleep(0.3)
    slowest.clear()
    try:
        answer = await edit(client, hostile.as_uri(), text)
    except TimeoutError:
        answer = float("inf")
    await asyncio.sleep(0.5)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    client.process.kill()
    await client.stop()
    return max(slowest, default=float("inf")), answer, max(most) - before


async def main(words: list[str]) -> None:
    print(f"{'text':44} {'silence':>10} {'answer':>10} {'memory':>10}")
    with tempfile.TemporaryDirectory() as folder:
        for what, make in TEXTS.items():
            if not words or any(word in what for word in words):
                silence, answer, more = await measured(name_of(what), make(), Path(folder))
                print(f"{what:44} {silence * 1e3:7.0f} ms {answer:8.2f} s {more:6.0f} MiB", flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
