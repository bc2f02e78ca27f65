"""The recorded worker behind the socket of a shared one: its Python is given as the host's, and everything but the GPU side is real."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import sys
import time
from pathlib import Path

RECORDED = Path(__file__).parents[1] / "e2e" / "recorded_worker.py"


async def main(options: argparse.Namespace) -> None:
    listener = socket.socket(fileno=options.listen)
    over = asyncio.Event()
    known = Path(options.folder) / f"{options.key}.pid"
    known.write_text(json.dumps({"pid": os.getpid(), "mark": ""}))
    clients: set[asyncio.StreamWriter] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        kind = json.loads(await reader.readline() or b"{}").get("kind")
        if kind == "status":
            status = {
                "kind": "status", "pid": os.getpid(), "python": sys.executable, "python_version": "3.12.3", "release": "0",
                "since": time.time(), "jobs": 0,
            }  # fmt: skip
            writer.write(json.dumps(status).encode() + b"\n")
        elif kind == "stop":
            writer.write(b'{"kind": "stopping"}\n')
            await writer.drain()
            over.set()
            await reader.read()
        elif kind == "hello":
            writer.write(
                json.dumps({"kind": "welcome", "pid": os.getpid(), "mark": "", "log": "log"}).encode() + b"\n"
            )
            pipe = asyncio.subprocess.PIPE
            worker = await asyncio.create_subprocess_exec(
                sys.executable,
                str(RECORDED),
                "worker",
                "--read",
                options.folder,
                stdin=pipe,
                stdout=pipe,
                limit=64 << 20,
            )
            clients.add(writer)
            await asyncio.wait(
                [
                    asyncio.create_task(pump(reader, worker.stdin)),
                    asyncio.create_task(pump(worker.stdout, writer)),
                ],
                return_when=asyncio.FIRST_COMPLETED,
            )
            if worker.returncode is None and not reader.at_eof():
                over.set()  # as a worker that has crashed
            if worker.returncode is None:
                worker.kill()
            await worker.wait()
            clients.discard(writer)
        writer.close()

    await asyncio.start_unix_server(serve, sock=listener, limit=64 << 20)
    await over.wait()
    for name in ("sock", "pid", "log", "lock"):
        (Path(options.folder) / f"{options.key}.{name}").unlink(missing_ok=True)


async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while piece := await source.read(1 << 16):
        sink.write(piece)
        await sink.drain()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--listen", type=int)
    parser.add_argument("--folder")
    parser.add_argument("--key")
    given, _ = parser.parse_known_args()
    if os.fork():
        os._exit(0)
    os.setsid()
    asyncio.run(main(given))
    os._exit(0)
