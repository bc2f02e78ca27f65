"""The messages of an agent on standard input, a line each: bounded, as its own package reads them without a bound"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import BinaryIO

from orbit_remote.common.limits import AGENT_MESSAGE
from orbit_remote.common.plain_text import visible

_HEAD = 4096
_PIECE = 1 << 16
_ID = re.compile(rb'"id"\s*:\s*("[\w-]{1,100}"|\d{1,15})')
_PAIR = re.compile(
    r"\\u[dD][89abAB][\da-fA-F]{2}\\u[dD][c-fC-F][\da-fA-F]{2}|(\\u[dD][89a-fA-F][\da-fA-F]{2})|\\."
)


def _whole(line: str) -> str:
    """With U+FFFD for halves of surrogate pairs, which are JSON; the package drops a message with one, and the agent waits."""
    if "\\ud" not in line and "\\uD" not in line:
        return line
    return _PAIR.sub(lambda match: "\\ufffd" if match[1] else match[0], line)


class MessageLines:
    """What `mcp.server.stdio` iterates. In the place of a message that is too long comes one that no server knows, so that
    the client has an error for an answer.
    """

    def __init__(self, stdin: BinaryIO) -> None:
        self._stdin = stdin

    def readline(self) -> str:
        """The next message, or an empty text at the end of the input."""
        line = self._stdin.readline(AGENT_MESSAGE.most + 1)
        if len(line) <= AGENT_MESSAGE.most:
            return _whole(line.decode("utf-8", "replace"))
        head, tail = line[:_HEAD], line[-_HEAD:]
        del line
        while not tail.endswith(b"\n") and (piece := self._stdin.readline(_PIECE)):
            tail = (tail + piece)[-_HEAD:]
        print(
            visible(f"orbit-lsp: warning: a message is left out: {AGENT_MESSAGE.exceeded}"), file=sys.stderr
        )
        match = _ID.search(head) or _ID.search(tail)
        identity = match[1].decode() if match else "null"
        return f'{{"jsonrpc":"2.0","id":{identity},"method":"a message is left out: {AGENT_MESSAGE.exceeded}"}}\n'


@contextmanager
def standard_input() -> Generator[MessageLines]:
    """Standard input, which is empty meanwhile for whatever else reads it."""
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
