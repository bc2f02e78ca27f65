"""Decodes messages from JSON, nested ones too. What another process sends is checked before it is used."""

from __future__ import annotations

import base64
import dataclasses
import functools
import itertools
import json
import math
import re
import types
import typing
import zlib
from collections.abc import Callable
from typing import Any, Literal, TypeVar, Union

from orbit_remote.common import lazy_dataclass
from orbit_remote.common.limits import VALUES, Limit
from orbit_remote.common.messages import Event
from orbit_remote.common.requests import VERSION, Request

T = TypeVar("T")

_INTEGER = 1 << 63
_MEMBER = re.compile(rb'(?:\A|,)(?:[^",]++|"(?:[^"\\]++|\\.)*+"?)*+', re.DOTALL)
"""One of several names or values, from its comma on: commas in strings do not count."""

REQUESTS: dict[str, type[Request]] = {
    message_type.__name__.lower(): message_type for message_type in typing.get_args(Request)
}
EVENTS: dict[str, type[Event]] = {
    message_type.__name__.lower(): message_type for message_type in typing.get_args(Event)
}


def read_json(text: str | bytes) -> Any:
    """Read JSON that somebody else has written. Raises ValueError for a text that is no JSON, and for one that Python
    cannot read: nested too deeply, numbers too long.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def is_crowded(text: bytes) -> bool:
    """Say whether JSON has more names and values than VALUES. Reading such a text takes up to 100 times its size, so
    they are counted first.
    """
    return next(itertools.islice(_MEMBER.finditer(text), VALUES.most, None), None) is not None


def inflate(packed: object, limit: Limit) -> bytes:
    """Unpack what zlib packed: some KB may unpack to more than the memory. Raises ValueError, with a sentence, if it
    is damaged or unpacks to more than the limit.
    """
    if not isinstance(packed, bytes):
        raise ValueError("a packed value is not one")  # noqa: TRY004 - of somebody's message
    unpacking = zlib.decompressobj()
    try:
        content = unpacking.decompress(packed, limit.most + 1)
    except zlib.error as error:
        raise ValueError(f"it is damaged: {error}") from None
    if len(content) > limit.most:
        raise ValueError(limit.exceeded)
    if not unpacking.eof:
        raise ValueError("it is damaged: its end is missing")
    return content


def packed(content: bytes) -> str:
    """Pack bytes as a text of a message."""
    return base64.b64encode(zlib.compress(content, 1)).decode()


def unpacked(text: str, limit: Limit) -> bytes:
    """Unpack a text of `packed`. Raises ValueError, with a sentence, for any other text and for more than the limit."""
    return inflate(base64.b64decode(text), limit)


def decode_request(line: str) -> Request:
    """Return the request of a line. Raises ValueError, with one sentence, if it is no request of this version."""
    try:
        data = read_json(line)
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from None
    record = typing.cast("dict[str, Any]", data) if isinstance(data, dict) else {}
    kind = record.pop("kind", None)
    if not isinstance(kind, str) or kind not in REQUESTS:
        raise ValueError("not a request: its kind is not one of " + ", ".join(REQUESTS))
    version = record.get("version", VERSION)
    if version != VERSION:
        raise ValueError(
            f"the request speaks version {version} of the messages, this worker version {VERSION}"
        )
    return build(REQUESTS[kind], record)


def decode_event(data: Any) -> Event:
    """Return an event from decoded JSON. Raises ValueError, with one sentence, for anything else."""
    record = typing.cast("dict[str, Any]", data) if isinstance(data, dict) else {}
    kind = record.get("kind")
    if not isinstance(kind, str) or kind not in EVENTS:
        raise ValueError("not an event: its kind is not one of " + ", ".join(EVENTS))
    return build(EVENTS[kind], record)


def build(cls: type[T], data: Any, *, lenient: bool = False) -> T:
    """Build a dataclass of `messages` from decoded JSON. Raises ValueError if the data is not one. `lenient` skips
    unknown fields, as in a file that another version has written.
    """
    return _converter(cls, lenient)(data)


@functools.cache
def prepare(hint: Any) -> None:
    """Do now, while there is time, what `build` does once for a type of message and all types in it."""
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        lazy_dataclass.complete(hint)
        _fields(hint, False)
        for part in typing.get_type_hints(hint).values():
            prepare(part)
    for part in typing.get_args(hint):
        prepare(part)


@functools.cache
def _converter(hint: Any, lenient: bool) -> Callable[[Any], Any]:
    """Return a converter for one type. Its parts are inspected only once, because an event may hold thousands of
    values.
    """
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint in (str, int, bool, float):
        return functools.partial(_plain, hint)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return functools.partial(_object, hint, lenient)
    if origin in (Union, types.UnionType):
        parts = [part for part in arguments if part is not type(None)]
        inner = _converter(parts[0], lenient) if len(parts) == 1 else _tagged(parts, lenient)
        return functools.partial(_optional, inner) if type(None) in arguments else inner

    def convert(value: Any) -> Any:
        if hint is Any or (origin is Literal and value in arguments):
            return value
        if origin is tuple and isinstance(value, list):
            items = typing.cast("list[Any]", value)
            if arguments == (int, ...) and _are_integers(items):
                return tuple(items)
            if arguments[-1] is Ellipsis:
                return tuple(map(_converter(arguments[0], lenient), items))
            if len(items) == len(arguments):
                pairs = zip(arguments, items, strict=True)
                return tuple(_converter(inner, lenient)(item) for inner, item in pairs)
        if origin is dict and isinstance(value, dict):
            key_of, value_of = (_converter(argument, lenient) for argument in arguments)
            return {key_of(key): value_of(item) for key, item in typing.cast("dict[Any, Any]", value).items()}
        raise ValueError(f"{value!r} is not {hint}")

    return convert


def _tagged(classes: list[Any], lenient: bool) -> Callable[[Any], Any]:
    """Return a converter for one of several dataclasses. They have one common field, the tag, whose only value
    differs in each.
    """
    hints = [typing.get_type_hints(cls) for cls in classes]
    name = next(
        name for name in hints[0] if all(typing.get_origin(each.get(name)) is Literal for each in hints)
    )
    tagged = {typing.get_args(each[name])[0]: cls for cls, each in zip(classes, hints, strict=True)}

    def convert(value: object) -> object:
        tag = typing.cast("dict[str, Any]", value).get(name) if isinstance(value, dict) else None
        if not isinstance(tag, str) or tag not in tagged:
            raise ValueError(f"{tag!r:.100} is not a {name}: it is one of {', '.join(tagged)}")
        return _converter(tagged[tag], lenient)(value)

    return convert


@functools.cache
def _fields(cls: type[Any], lenient: bool) -> dict[str, Callable[[Any], Any]]:
    return {name: _converter(hint, lenient) for name, hint in typing.get_type_hints(cls).items()}


def _object(cls: type[Any], lenient: bool, value: object) -> object:
    if not isinstance(value, dict):
        raise ValueError(f"{value!r} is not {cls}")  # noqa: TRY004 - of somebody's message
    fields = _fields(cls, lenient)
    try:
        return cls(
            **{
                name: fields[name](item)
                for name, item in typing.cast("dict[str, Any]", value).items()
                if not lenient or name in fields
            }
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a {cls.__name__}: {error}") from None


def _optional(inner: Callable[[Any], Any], value: object) -> object:
    """Return a value or None. A number that is not finite becomes None too: it is unavailable."""
    if value is None or (type(value) is float and not math.isfinite(value)):
        return None
    return inner(value)


def _are_integers(items: list[Any]) -> bool:
    """Say whether each item is an integer that `_plain` accepts. Some results have thousands of times."""
    return set(map(type, items)) == {int} and min(items) >= -_INTEGER and max(items) < _INTEGER


def _plain(hint: type[Any], value: object) -> object:
    """Return a plain value. A number is finite and has at most 64 bits, because everything that is shown of it is
    computed with it.
    """
    if type(value) is int and hint in (int, float) and -_INTEGER <= value < _INTEGER:
        return hint(value)
    if type(value) is hint and (hint in (str, bool) or (type(value) is float and math.isfinite(value))):
        return value  # a bool is no int here
    raise ValueError(f"{value!r:.100} is not {hint.__name__}")
