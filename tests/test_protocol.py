"""The server on messages that are not what the protocol says: each request has an answer."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from lsprotocol import types as lsp

from orbit_lsp.server.protocol import converter

COMMAND = [sys.executable, "-P", "-m", "orbit_lsp"]


class Server:
    """A server on pipes that has been initialized."""

    def __init__(self) -> None:
        self.numbers = itertools.count()
        self._process = subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.ask("initialize", {"capabilities": {}})

    def send(self, message: Any) -> None:
        assert self._process.stdin
        self._process.stdin.write(packed(message))
        self._process.stdin.flush()

    def ask(self, method: str, params: Any) -> Any:
        """The result of a request, or its error."""
        number = next(self.numbers)
        self.send(request(number, method, params))
        return self.answer(number)

    def answer(self, number: int) -> Any:
        """Of a request that was sent before; what comes before it is passed over."""
        while (message := self._next()).get("id") != number or "method" in message:
            pass
        return message.get("error", message.get("result"))

    def _next(self) -> dict[str, Any]:
        assert self._process.stdout
        length = 0
        while line := self._process.stdout.readline().strip():
            name, _, value = line.partition(b":")
            length = int(value) if name == b"Content-Length" else length
        assert length, f"the server has left with status {self._process.wait()}"
        return json.loads(self._process.stdout.read(length))

    def close(self) -> None:
        self.send(notification("exit", None))
        self._process.communicate()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """One for all these messages: after each it goes on."""
    server = Server()
    yield server
    server.close()


def packed(message: Any) -> bytes:
    body = message if isinstance(message, bytes) else json.dumps({"jsonrpc": "2.0", **message}).encode()
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


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
def test_a_request_that_cannot_be_read_is_answered(server: Server, params: dict[str, Any]) -> None:
    answer = server.ask("textDocument/hover", params)
    assert (answer["code"], answer["message"]) == (-32602, "Invalid Params")


@pytest.mark.parametrize(
    "message",
    [b"no JSON", b"[]", b"5", b"{}", b"\xff", notification("foo/bar", {}), {"method": "foo/bar"}],
    ids=repr,
)
def test_after_a_message_that_is_none_the_next_is_answered(server: Server, message: Any) -> None:
    hover = {"textDocument": {"uri": "file:///k.cu"}, "position": {"line": 0, "character": 0}}
    server.send(message)
    assert server.ask("textDocument/hover", hover) is None


def test_a_long_answer_is_of_one_text(server: Server) -> None:
    """Its lenses are made and sent in steps, between which the text is edited."""
    uri = "file:///nowhere/many.cu"
    document, start = {"uri": uri, "version": 1}, {"line": 0, "character": 0}
    text = "".join(f"__global__ void k{number}() {{}}\n" for number in range(600))
    server.send(
        notification(
            "textDocument/didOpen", {"textDocument": document | {"languageId": "cuda-cpp", "text": text}}
        )
    )
    ask = {"textDocument": {"uri": uri}}
    edits = [{"range": {"start": start, "end": start}, "text": "\n"}]
    first = next(server.numbers)
    server.send(request(first, "textDocument/codeLens", ask))
    for version in range(2, 7):
        changed = {"textDocument": document | {"version": version}, "contentChanges": edits}
        server.send(notification("textDocument/didChange", changed))
    answer = server.answer(first)
    lines = [lens["range"]["start"]["line"] for lens in answer]
    assert lines == list(range(lines[0], lines[0] + 600))
    names = [lens["command"]["arguments"][0]["kernel"] for lens in answer]
    assert names == [f"k{number}" for number in range(600)]
    server.send(notification("textDocument/didClose", ask))
    assert server.ask("textDocument/codeLens", ask) == []


def test_shutdown_and_exit_end_the_server_well() -> None:
    messages = (
        request(0, "initialize", {"capabilities": {}}),
        request(7, "shutdown", None),
        notification("exit", None),
    )
    given = b"".join(map(packed, messages))
    done = subprocess.run(COMMAND, input=given, capture_output=True, check=False)
    assert (done.returncode, b"Traceback" in done.stderr) == (0, False)


def wrong_tags(count: int) -> dict[str, Any]:
    start = {"line": 0, "character": 0}
    place = {"start": start, "end": start}
    diagnostic = {"range": place, "message": "x", "tags": [99] * count}
    return {"textDocument": {"uri": "file:///k.cu"}, "range": place, "context": {"diagnostics": [diagnostic]}}


def test_a_message_is_refused_at_its_first_fault(server: Server) -> None:
    """Naming each of 100,000 wrong tags took 8 s, in which the server answered nothing."""
    assert server.ask("textDocument/codeAction", wrong_tags(100_000))["code"] == -32602
    message = request(1, "textDocument/codeAction", wrong_tags(3))
    with pytest.raises(ValueError, match="99 is not a valid DiagnosticTag"):  # not a group of three
        converter().structure(message, lsp.CodeActionRequest)
