"""A client of the debug adapter protocol, as small as tests and benchmarks need one: a socket, requests, events."""

from __future__ import annotations

import json
import socket
from typing import Any

LIMIT_S = 120
"""Of any wait: ten times and more of what it takes."""


class DebuggerClient:
    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), LIMIT_S)
        self._stream = self._socket.makefile("rb")
        self._count = 0
        self.events: list[dict[str, Any]] = []
        self._answers: dict[int, dict[str, Any]] = {}

    def attach(self, path: str, *lines: int) -> None:
        """Attach, set breakpoints on these lines of a file, and let the program go on."""
        self.request("initialize", adapterID="orbit", pathFormat="path")
        attaching = self.send("attach", justMyCode=True)
        self.event("initialized")
        self.request("setBreakpoints", source={"path": path}, breakpoints=[{"line": line} for line in lines])
        self.request("configurationDone")
        self._answer(attaching)

    def stopped(self) -> dict[str, Any]:
        """The frame in which it stops next."""
        thread = self.event("stopped")["threadId"]
        self.thread = thread
        return self.request("stackTrace", threadId=thread)["stackFrames"][0]

    def variables(self, frame: dict[str, Any]) -> dict[str, str]:
        """The local variables of a frame, as a debugger shows them."""
        scopes = self.request("scopes", frameId=frame["id"])["scopes"]
        local = next(scope for scope in scopes if scope["name"] == "Locals")
        shown = self.request("variables", variablesReference=local["variablesReference"])["variables"]
        return {variable["name"]: variable["value"] for variable in shown}

    def proceed(self) -> None:
        self.request("continue", threadId=self.thread)

    def request(self, command: str, **arguments: Any) -> dict[str, Any]:
        return self._answer(self.send(command, **arguments))

    def send(self, command: str, **arguments: Any) -> int:
        self._count += 1
        message = {"seq": self._count, "type": "request", "command": command, "arguments": arguments}
        body = json.dumps(message).encode()
        self._socket.sendall(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        return self._count

    def event(self, name: str) -> dict[str, Any]:
        """The next event of this name; those of other names stay."""
        while not any(event["event"] == name for event in self.events):
            self._read()
        event = next(event for event in self.events if event["event"] == name)
        self.events.remove(event)
        return event.get("body") or {}

    def ended(self) -> None:
        """Until nobody is at the other end."""
        while self._stream.read(1 << 16):
            pass
        self.close()

    def close(self) -> None:
        self._stream.close()
        self._socket.close()

    def _answer(self, number: int) -> dict[str, Any]:
        while number not in self._answers:
            self._read()
        message = self._answers.pop(number)
        assert message["success"], message
        return message.get("body") or {}

    def _read(self) -> None:
        length = 0
        while line := self._stream.readline().strip():
            length = int(line.partition(b":")[2]) if line.startswith(b"Content-Length") else length
        assert length, "the debugger closed the connection"
        message = json.loads(self._stream.read(length))
        if message["type"] == "event":
            self.events.append(message)
        else:
            self._answers[message["request_seq"]] = message
