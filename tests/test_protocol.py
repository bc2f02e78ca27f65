"""The server on messages that are not what the protocol says: each request has an answer."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any

import pytest


def conversation(*messages: Any) -> subprocess.CompletedProcess[bytes]:
    """A server that is sent `initialize` (0), these messages and `exit`."""
    given = [request(0, "initialize", {"capabilities": {}}), *messages, notification("exit", None)]
    bodies = [m if isinstance(m, bytes) else json.dumps({"jsonrpc": "2.0", **m}).encode() for m in given]
    return subprocess.run(
        [sys.executable, "-P", "-m", "orbit_lsp"],
        input=b"".join(b"Content-Length: %d\r\n\r\n%b" % (len(body), body) for body in bodies),
        capture_output=True,
        timeout=60,
        check=False,
    )


def answers(*messages: Any) -> dict[int, Any]:
    """What it answers to each request."""
    done = conversation(*messages)
    said = [json.loads(body) for body in re.split(rb"(?:Content-[TL]\w+: [^\r]*\r\n)+\r\n", done.stdout)[1:]]
    return {one["id"]: one.get("error", one.get("result")) for one in said if "id" in one}


def request(number: int, method: str, params: Any) -> dict[str, Any]:
    return {"id": number, "method": method, "params": params}


def notification(method: str, params: Any) -> dict[str, Any]:
    return {"method": method, "params": params}


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"textDocument": {"uri": "file:///k.cu"}, "position": {"line": -1, "character": 0}},
        {"textDocument": {"uri": "file:///k.cu"}, "position": {"line": 1 << 40, "character": 0}},
    ],
)
def test_a_request_that_cannot_be_read_is_answered(params: dict[str, Any]) -> None:
    answer = answers(request(7, "textDocument/hover", params))[7]
    assert (answer["code"], answer["message"]) == (-32602, "Invalid Params")


@pytest.mark.parametrize(
    "message",
    [b"no JSON", b"[]", b"5", b"{}", b"\xff", notification("foo/bar", {}), {"method": "foo/bar"}],
    ids=repr,
)
def test_after_a_message_that_is_none_the_next_is_answered(message: Any) -> None:
    hover = {"textDocument": {"uri": "file:///k.cu"}, "position": {"line": 0, "character": 0}}
    assert answers(message, request(7, "textDocument/hover", hover))[7] is None


def test_shutdown_and_exit_end_the_server_well() -> None:
    done = conversation(request(7, "shutdown", None))
    assert (done.returncode, b"Traceback" in done.stderr) == (0, False)
