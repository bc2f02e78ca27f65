"""A server that a test starts as an editor starts it, or with code before it, and speaks to in plain JSON."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.e2e.forks import LIMIT_S

Message = dict[str, Any]


class StdioServer:
    def __init__(self, words: Sequence[str], folder: Path, errors: int | None = None) -> None:
        """Start the program `words` in `folder`. `errors` goes to Popen as `stderr`."""
        self.process = subprocess.Popen(
            words, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
        )

    def send(self, method: str, params: Any = None, **more: Any) -> None:
        body = json.dumps({"jsonrpc": "2.0", "method": method, "params": params, **more}).encode()
        assert self.process.stdin
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self.process.stdin.flush()

    def until(self, holds: Callable[[Message], Any]) -> Message:
        """The next message of the server of which that holds."""
        assert self.process.stdout
        while True:
            length = 0
            while line := self.process.stdout.readline().strip():
                name, _, value = line.partition(b":")
                length = int(value) if name == b"Content-Length" else length
            assert length, "the server has ended"
            message = json.loads(self.process.stdout.read(length))
            if holds(message):
                return message

    def ask(self, method: str, params: Any = None) -> Any:
        self.send(method, params, id=method)
        return self.until(lambda message: message.get("id") == method).get("result")

    def open(self, root: str | None, uri: str, text: str) -> None:
        self.ask("initialize", {"processId": None, "rootUri": root, "capabilities": {}})
        self.send("initialized", {})
        document = {"uri": uri, "languageId": "", "version": 1, "text": text}
        self.send("textDocument/didOpen", {"textDocument": document})

    def leave(self) -> int:
        """Its exit status."""
        self.ask("shutdown")
        self.send("exit")
        try:
            return self.process.wait(LIMIT_S)
        finally:
            self.process.kill()
