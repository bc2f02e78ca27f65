"""`dataclass` for classes that every command defines and few use: a constructor is compiled when its class is first made.

The standard library compiles up to six functions for each class, half a millisecond: a third of the processor time of a short
command, which imports 120 of them. Here equality, hash and text are closures that need no compiler, and `__init__` is compiled
on its first call. Everything else is the standard library's own: `fields`, `replace`, `asdict`, slots, pattern matching.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass  # noqa: PLC0414 - to type checkers it is the same one
else:

    def dataclass(
        cls: type | None = None,
        *,
        frozen: bool = False,
        slots: bool = False,
        eq: bool = True,
        kw_only: bool = False,
    ) -> Any:
        """As `dataclasses.dataclass`, with the options that we use, and without `InitVar`."""

        def make(plain: type) -> type:
            return _made(plain, frozen=frozen, slots=slots, eq=eq, kw_only=kw_only)

        return make if cls is None else make(cls)


_unfinished: dict[type, Callable[[], object]] = {}
"""Classes whose constructor is not compiled yet -> what compiles it."""


def complete() -> None:
    """Compile all constructors now: before a process is forked, so that its children need not."""
    for compiled in list(_unfinished.values()):
        compiled()


def _made(plain: type, *, frozen: bool, slots: bool, eq: bool, kw_only: bool) -> Any:
    own = set(vars(plain))
    hashes = vars(plain).get("__hash__")
    if plain.__doc__ is None:
        # else `dataclasses` makes one of the signature, which takes longer than all else
        plain.__doc__ = plain.__name__
    standard: Any = dataclasses.dataclass
    made = standard(init=False, repr=False, eq=False, slots=slots, kw_only=kw_only)(plain)
    fields = dataclasses.fields(made)
    if "__init__" not in own:
        made.__init__ = _first_call(made, fields, frozen=frozen)
    if "__repr__" not in own:
        made.__repr__ = _text(tuple(field.name for field in fields if field.repr))
    if eq:
        compared = _values(tuple(field.name for field in fields if field.compare))
        if "__eq__" not in own:
            made.__eq__ = _equality(compared)
        if "__hash__" not in own or (hashes is None and "__eq__" in own):
            made.__hash__ = _hash(_values(_hashed(fields))) if frozen else None
    if frozen:
        made.__setattr__, made.__delattr__ = _set, _delete
        if slots:
            names = tuple(field.name for field in fields)
            made.__getstate__, made.__setstate__ = _getstate(_values(names)), _setstate(names)
    return made


def _hashed(fields: tuple[dataclasses.Field[Any], ...]) -> tuple[str, ...]:
    return tuple(field.name for field in fields if (field.compare if field.hash is None else field.hash))


def _values(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) > 1:
        return attrgetter(*names)
    return lambda record: tuple(getattr(record, name) for name in names)


def _first_call(cls: Any, fields: tuple[dataclasses.Field[Any], ...], *, frozen: bool) -> Callable[..., None]:
    """A constructor that puts the compiled one into its place, and passes the call on."""

    def compiled() -> Callable[..., None]:
        cls.__init__ = made = _constructor(cls, fields, frozen=frozen)
        _unfinished.pop(cls, None)
        return made

    def __init__(self: Any, /, *arguments: Any, **named: Any) -> None:  # noqa: N807
        compiled()(self, *arguments, **named)

    _unfinished[cls] = compiled
    return __init__


def _constructor(
    cls: Any, fields: tuple[dataclasses.Field[Any], ...], *, frozen: bool
) -> Callable[..., None]:
    known: dict[str, Any] = {"_dataclass_absent": dataclasses.MISSING, "_dataclass_set": object.__setattr__}
    parameters: dict[bool, list[str]] = {False: [], True: []}
    lines: list[str] = []
    for field in fields:
        name, default, factory = (
            field.name,
            f"_dataclass_default_{field.name}",
            f"_dataclass_factory_{field.name}",
        )
        value = name
        if field.default_factory is not dataclasses.MISSING:
            known[factory] = field.default_factory
            value = (
                f"{factory}() if {name} is _dataclass_absent else {name}" if field.init else f"{factory}()"
            )
            shown = f"{name}=_dataclass_absent"
        elif field.default is not dataclasses.MISSING:
            known[default] = field.default
            value = name if field.init else default
            shown = f"{name}={default}"
        elif field.init:
            shown = name
        else:  # `__post_init__` sets it
            continue
        if field.init:
            parameters[bool(field.kw_only)].append(shown)
        lines.append(
            f" _dataclass_set(_dataclass_self, {name!r}, {value})"
            if frozen
            else f" _dataclass_self.{name} = {value}"
        )
    if hasattr(cls, "__post_init__"):
        lines.append(" _dataclass_self.__post_init__()")
    keywords = ["*", *parameters[True]] if parameters[True] else []
    head = ", ".join(["_dataclass_self", *parameters[False], *keywords])
    exec(f"def __init__({head}):\n" + "\n".join(lines or [" pass"]), known)  # noqa: S102 - names of fields alone
    made = known["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    made.__module__ = cls.__module__
    return made


def _text(names: tuple[str, ...]) -> Callable[[Any], str]:
    @recursive_repr()
    def __repr__(self: Any) -> str:  # noqa: N807
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__qualname__}({values})"

    return __repr__


def _equality(compared: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any, object], bool]:
    def __eq__(self: Any, other: object) -> bool:  # noqa: N807
        return compared(self) == compared(other) if other.__class__ is self.__class__ else NotImplemented

    return __eq__


def _hash(hashed: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any], int]:
    def __hash__(self: Any) -> int:  # noqa: N807
        return hash(hashed(self))

    return __hash__


def _set(_self: object, name: str, _value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _delete(_self: object, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _getstate(values: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any], tuple[Any, ...]]:
    def __getstate__(self: Any) -> tuple[Any, ...]:  # noqa: N807
        return values(self)

    return __getstate__


def _setstate(names: tuple[str, ...]) -> Callable[[Any, tuple[Any, ...]], None]:
    def __setstate__(self: Any, state: tuple[Any, ...]) -> None:  # noqa: N807
        for name, value in zip(names, state, strict=True):
            object.__setattr__(self, name, value)

    return __setstate__
