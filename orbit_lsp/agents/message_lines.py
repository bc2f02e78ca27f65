"""An agent's messages on standard input, a line each. Their length is limited here, because the MCP package sets no
limit.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import BinaryIO

import pydantic_core

from orbit_remote.common import codec
from orbit_remote.common.limits import AGENT_MESSAGE, VALUES
from orbit_remote.common.plain_text import visible

_HEAD = 4096
_PIECE = 1 << 16
_UNREAD = "it cannot be read as JSON"
_ID = re.compile(rb'"id"\s*:\s*("[\w-]{1,100}"|\d{1,15})')


class MessageLines:
    """The lines that `mcp.server.stdio` iterates. A message that is too long, or cannot be read, is replaced by one
    that no server knows. So the client gets an error as its answer.
    """

    def __init__(self, stdin: BinaryIO) -> None:
        self._stdin = stdin

    def readline(self) -> str:
        """Return the next message, or "" at the end of the input."""
        line = self._stdin.readline(AGENT_MESSAGE.most + 1)
        if len(line) <= AGENT_MESSAGE.most:
            if codec.is_crowded(line):
                return _left_out(f"it has more than {VALUES.size}, the limit for {VALUES.what}", line)
            return line.decode("utf-8", "replace") if not line or _is_json(line) else _left_out(_UNREAD, line)
        head, tail = line[:_HEAD], line[-_HEAD:]
        del line
        while not tail.endswith(b"\n") and (piece := self._stdin.readline(_PIECE)):
            tail = (tail + piece)[-_HEAD:]
        return _left_out(AGENT_MESSAGE.exceeded, head, tail)


def _is_json(line: bytes) -> bool:
    """Say whether the package can read a message. It leaves a message without an answer that has half a surrogate
    pair, or 200 lists within each other.
    """
    try:
        pydantic_core.from_json(line.decode("utf-8", "replace"))
    except ValueError:
        return False
    return True


def _left_out(why: str, head: bytes, tail: bytes = b"") -> str:
    print(visible(f"orbit-lsp: warning: a message is ignored: {why}"), file=sys.stderr)
    match = _ID.search(head) or _ID.search(tail)
    identity = match[1].decode() if match else "null"
    return f'{{"jsonrpc":"2.0","id":{identity},"method":"a message is ignored: {why}"}}\n'


@contextmanager
def standard_input() -> Generator[MessageLines]:
    """Give standard input as messages. Meanwhile it is empty for anything else that reads it."""
    private = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    try:
        with os.fdopen(private, "rb", closefd=False) as stream:
            yield MessageLines(stream)
    finally:
        os.dup2(private, 0)
        os.close(private)
