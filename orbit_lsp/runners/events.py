"""Events of another process or machine, checked before they are used."""

from __future__ import annotations

import functools
from typing import Annotated, Any

from orbit_remote.common import messages as c


@functools.cache
def event_adapter() -> Any:
    """pydantic's `TypeAdapter` of `c.Event`; what it validates raises ValueError where it is no event. Making it takes
    40 ms, so a process makes it once, and not before its first job.
    """
    from pydantic import Discriminator, TypeAdapter

    return TypeAdapter(Annotated[c.Event, Discriminator("kind")])


class Lines:
    """Event lines out of a stream that comes in pieces."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, piece: bytes) -> list[bytes]:
        *lines, self._rest = (self._rest + piece).split(b"\n")
        return [line for line in lines if line]
