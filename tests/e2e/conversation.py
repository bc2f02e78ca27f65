"""What an editor and its server said to each other, for the report of a test that fails."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

LAST = 300
"""Messages of a conversation that are kept."""
BODY = 300
"""Characters of a message."""
LOG = 8_000
"""Characters of the end of a server's log."""
CONVERSATIONS = pytest.StashKey["list[Conversation]"]()
"""Of the servers that a test has started."""


class Conversation:
    def __init__(self, title: str, log: Path) -> None:
        self.title, self.log = title, log
        self._began = time.monotonic()
        self._messages: deque[tuple[float, str, Any]] = deque(maxlen=LAST)
        self._count = 0
        self._numbers: dict[Any, int] = {}

    def add(self, direction: str, message: Any) -> None:
        """The object as it is: it is written out where a test fails, and nowhere else."""
        self._count += 1
        self._messages.append((time.monotonic() - self._began, direction, message))

    def text(self) -> str:
        left_out = self._count - len(self._messages)
        lines = [f"... {left_out} messages before these"] if left_out else []
        lines += [f"{at:8.3f} {direction} {self._line(message)}" for at, direction, message in self._messages]
        return "\n".join(lines)

    def _line(self, message: Any) -> str:
        """`initialize #1: InitializeParams(...)`, `answer to #1: InitializeResult(...)`."""
        method, name = getattr(message, "method", None), getattr(message, "id", None)
        number = "" if name is None else f"#{self._numbers.setdefault(name, len(self._numbers) + 1)}"
        parts = (getattr(message, part, None) for part in ("params", "result", "error"))
        body = " ".join(repr(next((part for part in parts if part is not None), None)).split())
        if len(body) > BODY:
            body = f"{body[:BODY]}... ({len(body)} characters)"
        return f"{method} {number}".rstrip() + f": {body}" if method else f"answer to {number}: {body}"

    def log_end(self) -> str:
        try:
            text = self.log.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            return f"the log cannot be read: {error}"
        return text if len(text) <= LOG else f"... {len(text) - LOG} characters before these\n{text[-LOG:]}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A conftest that imports this name has failures of its folder reported with their conversations."""
    report = yield
    if report.failed:
        for conversation in item.stash.get(CONVERSATIONS, []):
            report.sections.append(
                (f"conversation with {conversation.title} ({report.when})", conversation.text())
            )
            report.sections.append(
                (f"log of the server of {conversation.title} ({report.when})", conversation.log_end())
            )
    return report
