"""Jupyter's messages as frames. They are read, checked and made, and cut if a cell prints too much."""

from __future__ import annotations

import hmac
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, cast

from jupyter_client.session import Session

from orbit_remote.common import codec, limits
from orbit_remote.common.lazy_dataclass import dataclass

_DELIMITER = b"<IDS|MSG>"
_PARTS = 5
"""Signature, header, parent's header, metadata, content; buffers follow."""
_CLEAR = "clear_output"
_UPDATE = "update_display_data"
_OUTPUTS = frozenset({"stream", "display_data", _UPDATE, "execute_result"})
_REPLACED = 8 << 20
"""What replaces what was shown, as each frame of a live plot does, may have so many bytes a second beyond the limit."""
_FAILURES = frozenset({"error", "execute_reply"})
_NAME = re.compile(rb'"ename": ?"(\w+)"')
_COUNT = re.compile(rb'"execution_count": ?(\d+)')
_TEXT = re.compile(rb'\{"name": ?"(\w+)", ?"text": ?"')
_CELLS = 64
"""So many cells' output is counted; one that ended long ago and still prints is counted anew."""


@dataclass(frozen=True, slots=True)
class Message:
    idents: list[bytes]
    header: dict[str, Any]
    parent: dict[str, Any]
    metadata: bytes
    content: bytes | memoryview

    @property
    def kind(self) -> str:
        return str(self.header.get("msg_type", ""))

    @property
    def id(self) -> str:
        return str(self.header.get("msg_id", ""))

    @property
    def parent_id(self) -> str:
        return str(self.parent.get("msg_id", ""))

    def value(self) -> dict[str, Any]:
        """Return the content as an object. Return {} if it is no JSON object."""
        return _object(bytes(self.content))


class Wire:
    """Reads and writes messages. `key` and `scheme` come from the connection file; both sides of a relay use the
    same.
    """

    def __init__(self, key: str, scheme: str) -> None:
        self._session: Any = Session(key=key.encode(), signature_scheme=scheme)

    def read(self, frames: Sequence[Any], *, check: bool = True) -> Message | None:
        """Read a message. Return None if it is not of this protocol, or not signed with our key."""
        head = [bytes(each) if len(each) < 1 << 16 else each for each in frames[:16]]
        if _DELIMITER not in head:
            return None
        at = head.index(_DELIMITER)
        parts = frames[at + 1 : at + 1 + _PARTS]
        if len(parts) < _PARTS:
            return None
        header, parent, metadata = (bytes(part) for part in parts[1:4])
        content = parts[4] if isinstance(parts[4], bytes) else parts[4].buffer
        if check and self._session.auth is not None:
            signature = self._session.sign([header, parent, metadata, content])
            if not hmac.compare_digest(signature, bytes(parts[0])):
                return None
        idents = [bytes(each) for each in frames[:at]]
        return Message(idents, _object(header), _object(parent), metadata, content)

    def make(
        self, kind: str, content: dict[str, Any], parent: dict[str, Any], idents: Sequence[bytes] = ()
    ) -> list[bytes]:
        message = self._session.msg(kind, content, parent={"header": parent})
        return self._session.serialize(message, ident=list(idents) or None)


@dataclass(slots=True)
class _Shown:
    """How much of a cell's output is in view, in bytes, up to one more than is allowed. `at` is when some of it was
    last replaced. `ended`: the cell says that no more is shown.
    """

    at: float
    size: int = 0
    ended: bool = False

    def replace(self, now: float) -> None:
        self.size = max(0, self.size - int((now - self.at) * _REPLACED))
        self.at = now


class OutputLimit:
    """Limits how much each cell shows. What is beyond the limit is dropped, and a line says so."""

    def __init__(
        self,
        wire: Wire,
        most: int = limits.CELL_OUTPUT.most,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wire = wire
        self._most = most
        self._clock = clock
        self._shown: OrderedDict[tuple[str, bool], _Shown] = OrderedDict()
        """By cell, and whether it is updates of displays."""

    def passed(self, message: Message, frames: list[Any]) -> list[list[Any]]:
        """Return the messages to send in place of a kernel's message."""
        if message.kind in _FAILURES and len(message.content) > self._most:
            return [self._failure(message) or frames]
        update = message.kind == _UPDATE
        if message.kind not in _OUTPUTS and message.kind != _CLEAR:
            return [frames]
        shown = self._shown.pop((message.parent_id, update), None) or _Shown(self._clock())
        self._shown[message.parent_id, update] = shown
        if len(self._shown) > _CELLS:
            self._shown.popitem(last=False)
        if update or message.kind == _CLEAR:
            shown.replace(self._clock())
        if message.kind == _CLEAR:
            shown.ended = False
            return [frames]
        sizes = [len(frame) for frame in frames[len(message.idents) + 1 + _PARTS :]]
        left = self._most - shown.size
        shown.size = min(shown.size + len(message.content) + sum(sizes), self._most + 1)
        if shown.size <= self._most:
            return [frames]
        if shown.ended:
            return []
        shown.ended = True
        text = (
            f"\norbit: this cell's output exceeds {limits.CELL_OUTPUT.size}; what follows is not shown. "
            "Write it to a file instead.\n"
        )
        notice = self._make(message, {"name": "stderr", "text": text})
        begin = _beginning(message, left)
        return [*([self._make(message, begin)] if begin else []), notice]

    def _failure(self, message: Message) -> list[bytes] | None:
        """Shorten a failure whose text is too long to what a reader needs, without reading all of it. Return None for
        a success.
        """
        name, count = _NAME.search(message.content), _COUNT.search(message.content)
        if name is None:
            return None
        why = f"the text of this error exceeds {limits.CELL_OUTPUT.size} and is not shown"
        content: dict[str, Any] = {"status": "error", "ename": name[1].decode()}
        content |= {"evalue": why, "traceback": [f"{content['ename']}: orbit: {why}"]}
        if message.kind == "execute_reply":
            content |= {
                "execution_count": int(count[1]) if count else 0,
                "user_expressions": {},
                "payload": [],
            }
        return self._wire.make(message.kind, content, message.parent, message.idents)

    def _make(self, message: Message, content: dict[str, Any]) -> list[bytes]:
        return self._wire.make("stream", content, message.parent, message.idents)


def _beginning(message: Message, most: int) -> dict[str, Any] | None:
    """Return the first bytes of a stream's text. It does not read all of a text, which may be very long."""
    raw = bytes(memoryview(message.content)[: max(0, most)])
    if message.kind != "stream" or not (match := _TEXT.match(raw)):
        return None
    for end in range(len(raw), max(match.end(), len(raw) - 12), -1):  # an escape may be cut in two
        try:
            text = codec.read_json(b'"' + raw[match.end() : end] + b'"')
        except ValueError:
            continue
        return {"name": match[1].decode(), "text": text}
    return None


def _object(text: bytes) -> dict[str, Any]:
    try:
        value: Any = codec.read_json(text)
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
