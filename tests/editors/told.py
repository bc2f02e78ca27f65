"""A server's answers passed on, and the messages to its user written down: python told.py FILE COMMAND...

A line of FILE is a message, a question, the end of a progress with its title, or the diagnostics of a file.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any


def main(path: Path, command: list[str]) -> int:
    titles: dict[str, str] = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server, path.open("a", buffering=1) as file:
        signal.signal(signal.SIGTERM, lambda *_: server.terminate())
        assert server.stdout
        while head := server.stdout.readline():
            rest = server.stdout.readline()
            while rest.strip():
                head, rest = head + rest, server.stdout.readline()
            body = server.stdout.read(int(head.lower().partition(b"content-length:")[2].split()[0]))
            sys.stdout.buffer.write(head + rest + body)
            sys.stdout.buffer.flush()
            if line := told(json.loads(body), titles):
                file.write(json.dumps(line) + "\n")
    return server.returncode


def told(message: dict[str, Any], titles: dict[str, str]) -> dict[str, Any] | None:
    params = message.get("params")
    match message.get("method"):
        case "textDocument/publishDiagnostics":
            return {
                "kind": "diagnostics",
                "text": "; ".join(each["message"] for each in params["diagnostics"]),
            }
        case "window/showMessage" | "window/showMessageRequest" as method:
            return {"kind": method.rpartition("/")[2], "type": params["type"], "text": params["message"]}
        case "$/progress":
            token, value = str(params["token"]), params["value"]
            if value["kind"] == "begin":
                titles[token] = value["title"]
            elif value["kind"] == "end":
                return {"kind": "end", "title": titles.pop(token, ""), "text": value.get("message") or ""}
    return None


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
