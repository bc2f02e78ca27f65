"""The evaluation server under many clients: how long `GET /health` takes, and what 10,000 jobs that wait cost in memory.

    python -P bench/api.py [--clients 64] [--requests 50] [--jobs 10000]

The server is a process of its own, as `orbit-lsp api` sets it up, but without a rate limit and with an engine that never ends a job,
so that the others wait. Clients keep their connection. They ask once every 100 ms each, and then as fast as they are answered, which
is what the server can do at most. The client's own processor time is in the times: it shares the machine. On a busy machine the
server's processor time for each request is the number to compare.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "remote")]
EACH_S = 0.1
BATCH = 1_000


class Never:
    async def ready(self) -> str:
        return ""

    async def prepare(self, *_: Any) -> None: ...

    async def perform(self, *_: Any) -> Any:
        await asyncio.Event().wait()

    async def close(self) -> None: ...


async def serve(folder: Path) -> None:
    """Prints its port, and ends with its standard input."""
    import uvicorn

    from orbit_lsp.agents import mcp_server
    from orbit_lsp.api import connections, http_app
    from orbit_lsp.api.guard import RequestLimits
    from orbit_lsp.queue import pool
    from orbit_lsp.queue.job_queue import JobQueue
    from orbit_lsp.queue.job_store import JobStore

    queue = JobQueue(JobStore(folder / "jobs.sqlite"), pool.parse("local:0"), lambda _: Never(), "api")
    await queue.start()
    agents = mcp_server.over_http(queue, budget_usd=0.0)
    app = http_app.app(queue, RequestLimits(rate=1e9, burst=1e9), ["127.0.0.1"], agents)
    config = uvicorn.Config(
        app, port=0, access_log=False, log_level="warning", http=connections.BoundedConnection, ws="none"
    )
    server = uvicorn.Server(config)
    with config.bind_socket() as socket:
        socket.listen(1024)
        print(socket.getsockname()[1], flush=True)
        serving = asyncio.create_task(server.serve([socket]))
        await asyncio.to_thread(sys.stdin.read)
        server.should_exit = True
        await serving
    await queue.close()


async def answered(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    return await reader.readexactly(int(length.partition(b":")[2]))


async def client(port: int, requests: int, each_s: float) -> list[float]:
    """Milliseconds of each request; the first is not counted."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    taken: list[float] = []
    for _ in range(requests + 1):
        began = time.perf_counter()
        writer.write(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        await answered(reader)
        taken.append((time.perf_counter() - began) * 1e3)
        await asyncio.sleep(max(0.0, each_s - taken[-1] / 1e3))
    writer.close()
    return taken[1:]


async def clients(server: psutil.Process, port: int, count: int, requests: int, each_s: float) -> str:
    async def one(number: int) -> list[float]:
        await asyncio.sleep(each_s * number / count)  # they do not all ask at the same moment
        return await client(port, requests, each_s)

    began, used = time.perf_counter(), sum(server.cpu_times()[:2])
    every = await asyncio.gather(*map(one, range(count)))
    taken = sorted(milliseconds for each in every for milliseconds in each)
    rate = len(taken) / (time.perf_counter() - began)
    cost = (sum(server.cpu_times()[:2]) - used) / len(taken) * 1e3
    p50, p99 = (taken[math.ceil(share * len(taken)) - 1] for share in (0.5, 0.99))
    return f"p50 {p50:.1f} ms, p99 {p99:.1f} ms, {rate:.0f} requests/s, {cost:.2f} ms of processor time each"


async def queued(port: int, jobs: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for start in range(0, jobs, BATCH):
        batch = [
            {"name": "k.cu", "text": f"__global__ void k{at}() {{}}\n" * 20}
            for at in range(start, min(start + BATCH, jobs))
        ]
        body = json.dumps({"jobs": batch}).encode()
        writer.write(
            b"POST /v1/jobs/batch HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            + f"Content-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        await answered(reader)
    writer.close()


async def measure(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as ends:
        command = [sys.executable, "-P", __file__, "--serve", folder]
        environment = {**os.environ, "XDG_CACHE_HOME": folder, "XDG_STATE_HOME": folder}
        server = subprocess.Popen(  # noqa: ASYNC220 - nothing else runs yet
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        ends.callback(server.wait)
        assert server.stdin
        assert server.stdout
        ends.callback(server.stdin.close)
        port = int(server.stdout.readline())
        process = psutil.Process(server.pid)
        for name, each_s in (("every 100 ms each", EACH_S), ("as fast as answered", 0.0)):
            print(
                f"{options.clients} clients, {name}: {await clients(process, port, options.clients, options.requests, each_s)}"
            )
        before = process.memory_info().rss
        began = time.perf_counter()
        await queued(port, options.jobs)
        took, after = time.perf_counter() - began, process.memory_info().rss
        print(
            f"{options.jobs} jobs queued in {took:.1f} s: {before / 1e6:.0f} MB before, {after / 1e6:.0f} MB with them"
        )
        print(
            f"{options.clients} clients, every 100 ms each: {await clients(process, port, options.clients, options.requests, EACH_S)}"
        )
        server.kill()  # it would cancel 10,000 jobs first


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--requests", type=int, default=50)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    asyncio.run(serve(options.serve) if options.serve else measure(options))


if __name__ == "__main__":
    main()
