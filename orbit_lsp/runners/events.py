"""Events of another process or machine, checked before they are used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from orbit_remote import contracts as c


def validator() -> Callable[[Any], c.Event]:
    """Raises ValueError (pydantic's) for decoded JSON that is no event."""
    from pydantic import Discriminator, TypeAdapter

    adapter: TypeAdapter[Any] = TypeAdapter(Annotated[c.Event, Discriminator("kind")])
    return adapter.validate_python


class Lines:
    """Event lines out of a stream that comes in pieces."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, piece: bytes) -> list[bytes]:
        *lines, self._rest = (self._rest + piece).split(b"\n")
        return [line for line in lines if line]
