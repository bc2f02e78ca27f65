"""Messages between the judge and a side: a JSON object each, in one packet, with descriptors of memory if there are
any.

What a side says is a claim. It is bounded, it is read as data, and silence ends at a deadline.
"""

from __future__ import annotations

import json
import os
import select
import socket
from typing import Any, Final, cast

from orbit_remote.common import codec

PACKET: Final = 160 << 10
_DESCRIPTORS: Final = 16

Message = dict[str, Any]


class ChannelLostError(Exception):
    """The other end has gone, said nothing in time, or said what is no message. `why` says which."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class Channel:
    def __init__(self, end: socket.socket) -> None:
        self._end = end

    def send(self, message: Message, descriptors: tuple[int, ...] = ()) -> None:
        """Raises ChannelLostError."""
        packet = json.dumps(message).encode()
        if len(packet) > PACKET:
            raise ChannelLostError(f"a message of {len(packet)} bytes does not fit")
        try:
            socket.send_fds(self._end, [packet], list(descriptors))
        except OSError as error:
            raise ChannelLostError("its process has ended") from error

    def receive(self, timeout_s: float | None = None) -> tuple[Message, list[int]]:
        """Return the next message. The caller closes the descriptors. Raises ChannelLostError, TimeoutError."""
        self._end.settimeout(timeout_s)
        try:
            packet, descriptors, _, _ = socket.recv_fds(self._end, PACKET, _DESCRIPTORS)
        except TimeoutError:
            raise
        except OSError as error:
            raise ChannelLostError("its process has ended") from error
        try:
            message: Any = codec.read_json(packet) if packet else None
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict):
            for descriptor in descriptors:
                os.close(descriptor)
            raise ChannelLostError("it sent what is no message" if packet else "its process has ended")
        return cast("Message", message), descriptors

    def readable(self) -> bool:
        """Say whether the other end has said something, or has gone."""
        return bool(select.select([self._end], [], [], 0)[0])

    def close(self) -> None:
        self._end.close()


def pair() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
