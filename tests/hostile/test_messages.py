"""Bytes to a server, and what it answers: each request once, or one clear line and an end."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from orbit_remote.common.limits import MESSAGE
from tests.e2e.forks import command

HELLO: dict[str, Any] = {"id": 0, "method": "initialize", "params": {"capabilities": {}}}
ASK: dict[str, Any] = {"id": 1, "method": "textDocument/hover", "params": {"textDocument": {"uri": "file:///k.cu"}, "position": {"line": 0, "character": 0}}}  # fmt: skip
SHUTDOWN: dict[str, Any] = {"id": 2, "method": "shutdown"}
EXIT: dict[str, Any] = {"method": "exit"}


def packed(message: Any, header: str = "Content-Length: %d\r\n\r\n") -> bytes:
    body = message if isinstance(message, bytes) else json.dumps({"jsonrpc": "2.0", **message}).encode()
    return (header % len(body) if "%d" in header else header).encode() + body


def served(*pieces: Any) -> tuple[str, str, int]:
    """The answers as `0 ok, 1 -32600`, the log, and the exit status, of a server that reads these and then the end."""
    stream = b"".join(piece if isinstance(piece, bytes) else packed(piece) for piece in pieces)
    done = command(Path.cwd(), given=stream)
    parts = re.split(r"Content-Length: \d+\r\n(?:Content-Type: [^\r]*\r\n)?\r\n", done.stdout)
    answers = [json.loads(part) for part in parts if part]
    shown = (
        f"{answer['id']} {answer['error']['code'] if 'error' in answer else 'ok'}"
        for answer in answers
        if "id" in answer
    )
    return ", ".join(shown), done.stderr, done.returncode


@pytest.mark.parametrize(
    ("pieces", "answers"),
    [
        ([packed(HELLO, "content-length:%d\r\n\r\n"), packed(ASK, "CONTENT-LENGTH : %d\n\n")], "0 ok, 1 ok"),
        ([packed(HELLO, "Content-Type: x\nContent-Length: %d\n\n"), ASK], "0 ok, 1 ok"),
        ([b"\r\nContent-Length: 0\r\n\r\n", HELLO, ASK], "0 ok, 1 ok"),
        ([HELLO, packed(b"{"), packed(b"[" * 100_000), packed(b"\xff"), ASK], "0 ok, None -32700, None -32700, None -32700, 1 ok"),
        ([HELLO, packed(b"[]"), packed(b"[{}]"), packed(b"3"), packed(b"null"), ASK], "0 ok" + ", None -32600" * 4 + ", 1 ok"),
        ([HELLO, packed(b'{"jsonrpc": "1.0", "id": 5, "method": "x", "params": {}}'), ASK], "0 ok, 5 -32600, 1 ok"),
        ([HELLO, ASK | {"params": {"position": {"line": float("nan"), "character": 0}}}, ASK | {"id": 7}], "0 ok, 1 -32602, 7 ok"),
        ([ASK, HELLO, HELLO | {"id": 3}], "1 -32002, 0 ok, 3 -32600"),
        ([HELLO | {"id": []}, HELLO, ASK | {"id": {}}, ASK | {"id": 1.5}, ASK], "None -32600, 0 ok, None -32600, None -32600, 1 ok"),
        ([HELLO, SHUTDOWN, ASK, EXIT], "0 ok, 2 ok, 1 -32600"),
    ],
    ids=["case", "LF", "empty", "no JSON", "batch", "JSON-RPC 1.0", "NaN", "not initialized", "ids", "after shutdown"],
)  # fmt: skip
def test_it_answers(pieces: list[Any], answers: str) -> None:
    shown, log, status = served(*pieces)
    assert shown == answers
    assert "Traceback" not in log
    assert status == 0


@pytest.mark.parametrize(
    ("header", "why"),
    [
        ("hello\n", "'hello' is not a message header"),
        ("GET / HTTP/1.1\r\nHost: x\r\n\r\n", "'GET / HTTP/1.1' is not a message header"),
        ("X: 1\r\n\r\n", "a message came without its Content-Length"),
        ("Content-Length: -1\r\n\r\n", "Content-Length is '-1', which is not a number of bytes"),
        ("Content-Length: ten\r\n\r\n", "Content-Length is 'ten'"),
        ("Content-Length: 2\r\nContent-Length: 3\r\n\r\n", "a message has two lengths"),
        (
            f"Content-Length: {MESSAGE.most + 1}\r\n\r\n",
            "is larger than 16 MiB, the limit for one LSP message",
        ),
        ("Content-Length: 1" + "0" * 5000 + "\r\n\r\n", "is not a message header"),
    ],
)
def test_what_is_no_message_ends_it_with_one_line(header: str, why: str) -> None:
    shown, log, status = served(HELLO, header.encode(), ASK)
    assert shown == "0 ok"
    assert [why in line for line in log.splitlines()] == [True]
    assert status == 1


def test_a_file_that_no_message_may_bring_is_left_alone() -> None:
    opened = {"uri": "file:///k.cu", "languageId": "cuda-cpp", "version": 1, "text": MESSAGE.most * "x"}
    shown, log, status = served(
        HELLO, {"method": "textDocument/didOpen", "params": {"textDocument": opened}}, ASK
    )
    assert (shown, status) == ("0 ok, 1 ok", 0)
    assert [
        f"{MESSAGE.exceeded}; the file that it opens is left alone" in line for line in log.splitlines()
    ] == [True]


@pytest.mark.parametrize(
    ("pieces", "status"),
    [([HELLO, EXIT], 1), ([EXIT], 1), ([HELLO, SHUTDOWN, EXIT], 0), ([HELLO], 0), ([], 0)],
)
def test_the_exit_status_says_whether_the_client_shut_it_down(pieces: list[Any], status: int) -> None:
    assert served(*pieces)[2] == status


@pytest.mark.slow
def test_what_is_repeated_is_not_logged_each_time() -> None:
    cancel = packed({"method": "$/cancelRequest", "params": {"id": "x" * 900}})
    unknown = packed({"method": "$/x" * 200, "params": {}})
    shown, log, _ = served(HELLO, cancel * 5_000 + unknown * 300, ASK)
    assert shown == "0 ok, 1 ok"
    assert len(log) < 50_000  # one line each would have 5 MB
