"""A language client for benchmarks: JSON-RPC over stdio, arrival times, nothing else.

Standard library only, so that what is timed is the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Json = dict[str, Any]

CAPABILITIES: Json = {
    "general": {"positionEncodings": ["utf-16"]},
    "window": {"workDoneProgress": True},
    "workspace": {
        "configuration": True,
        "workspaceFolders": True,
        "codeLens": {"refreshSupport": True},
        "inlayHint": {"refreshSupport": True},
    },
    "textDocument": {
        "synchronization": {"didSave": True},
        "publishDiagnostics": {"versionSupport": True, "relatedInformation": True},
        "hover": {"contentFormat": ["markdown", "plaintext"]},
        "codeLens": {},
        "inlayHint": {},
    },
}


class Client:
    """One server process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.capabilities: Json = {}
        self.heard: list[tuple[float, Json]] = []
        """Every notification and request of the server with its arrival (perf_counter seconds)."""
        self._told = asyncio.Condition()
        self._ids = itertools.count(1)
        self._replies: dict[int, asyncio.Future[Any]] = {}
        self._reader = asyncio.create_task(self._read())

    @classmethod
    async def start(
        cls, command: list[str], root: Path, options: Any = None, env: Json | None = None
    ) -> Client:
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=root,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            limit=64 << 20,
            env=env,
        )
        client = cls(process)
        answer = await client.request(
            "initialize",
            {
                "processId": os.getpid(),
                "clientInfo": {"name": "orbit-bench"},
                "rootUri": root.as_uri(),
                "workspaceFolders": [{"uri": root.as_uri(), "name": root.name}],
                "initializationOptions": options,
                "capabilities": CAPABILITIES,
            },
        )
        client.capabilities = answer["capabilities"]
        return client

    def notify(self, method: str, params: Any) -> None:
        self._write({"jsonrpc": "2.0", "method": method, "params": params})

    async def request(self, method: str, params: Any, timeout_s: float = 60) -> Any:
        number = next(self._ids)
        self._replies[number] = asyncio.get_running_loop().create_future()
        self._write({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        async with asyncio.timeout(timeout_s):  # wait_for of Python 3.11 may swallow a cancel
            return await self._replies[number]

    async def until(
        self, wanted: Callable[[Json], bool], since: float, timeout_s: float = 120
    ) -> tuple[float, Json]:
        """The first message after `since` for which `wanted` holds, and when it came."""
        async with asyncio.timeout(timeout_s), self._told:
            while True:
                for arrived, message in self.heard:
                    if arrived >= since and wanted(message):
                        return arrived, message
                await self._told.wait()

    def open(self, path: Path, language: str) -> None:
        document = {"uri": path.as_uri(), "languageId": language, "version": 1, "text": path.read_text()}
        self.notify("textDocument/didOpen", {"textDocument": document})

    async def stop(self) -> None:
        with contextlib.suppress(TimeoutError, ConnectionError, RuntimeError):
            await self.request("shutdown", None, 10)
            self.notify("exit", None)
            async with asyncio.timeout(10):
                await self.process.wait()
        if self.process.returncode is None:
            self.process.kill()
            await self.process.wait()
        self._reader.cancel()

    def memory_mib(self) -> float:
        """Resident memory of the server's own process, without its workers and compilers."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        return float("nan")

    @staticmethod
    def body(method: str, params: Any) -> bytes:
        """A notification that `send` takes later, in UTF-8 as editors write it: escapes would make emoji three times as long."""
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        body = json.dumps(message, ensure_ascii=False).encode()
        return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)

    def send(self, framed: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(framed)

    def _write(self, message: Json) -> None:
        body = json.dumps(message).encode()
        self.send(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))

    async def _read(self) -> None:
        stdout = self.process.stdout
        assert stdout is not None
        try:
            while True:
                length = 0
                while (line := await stdout.readuntil(b"\r\n")) != b"\r\n":
                    name, _, value = line.partition(b":")
                    if name.strip().lower() == b"content-length":
                        length = int(value)
                await self._take(json.loads(await stdout.readexactly(length)))
        except (asyncio.IncompleteReadError, ConnectionError):
            for reply in self._replies.values():
                if not reply.done():
                    reply.set_exception(ConnectionError("the server has left"))

    async def _take(self, message: Json) -> None:
        if "method" not in message:
            reply = self._replies.pop(message["id"], None)
            if reply and not reply.done():
                if "error" in message:
                    reply.set_exception(RuntimeError(str(message["error"])[:300]))
                else:
                    reply.set_result(message.get("result"))
            return
        async with self._told:
            self.heard.append((time.perf_counter(), message))
            self._told.notify_all()
        if "id" in message:
            asked = message["method"] == "workspace/configuration"
            result = [None] * len(message["params"]["items"]) if asked else None
            self._write({"jsonrpc": "2.0", "id": message["id"], "result": result})
