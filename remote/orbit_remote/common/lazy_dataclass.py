"""`dataclass` for classes that every command defines and few use. What the standard library makes of a class is made
at its first use.

The standard library takes half a millisecond for each class. That is a third of the processor time of a short
command, which imports 120 of them. Here a class gets its slots, and closures for equality, hash and text that need no
compiler. Its `fields` are the standard library's own, made on their first use, and so is `__init__`. `replace`,
`asdict`, pattern matching and inheritance work as usual.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, cast

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
        """Decorate like `dataclasses.dataclass`, with the options that we use, without `InitVar`, for modules whose
        annotations are texts.
        """

        def make(plain: type) -> type:
            return _made(plain, frozen=frozen, slots=slots, eq=eq, kw_only=kw_only)

        return make if cls is None else make(cls)


_NO_FIELD = re.compile(r"(?:[a-zA-Z_]\w*\.)?ClassVar\b")
_unfinished: dict[type, Callable[[], object]] = {}
"""Classes whose constructor is not compiled yet -> what compiles it."""


def complete(cls: type | None = None) -> None:
    """Compile the constructor of a class now, or of all: before a process is forked, so that its children need not."""
    for each in list(_unfinished) if cls is None else [cls]:
        if compiled := _unfinished.get(each):
            compiled()


@dataclasses.dataclass(init=False, repr=False, eq=False)
class _Plain:
    """A base class without fields: the standard library looks at the parameters of a base class."""


class _FieldFacts:
    """What a class says of a field without the standard library. `default` is the value in the class, or MISSING."""

    init = repr = compare = True
    hash: bool | None = None

    def __init__(self, name: str, default: Any, kw_only: bool) -> None:
        self.name = name
        self.default: Any = default
        self.kw_only = kw_only
        if isinstance(default, dataclasses.Field):
            field = cast("dataclasses.Field[Any]", default)
            self.init, self.repr, self.compare, self.hash = field.init, field.repr, field.compare, field.hash
            if field.kw_only is not dataclasses.MISSING:
                self.kw_only = bool(field.kw_only)


class _Fields:
    """Stands for `__dataclass_fields__` until its first use."""

    def __init__(self, cls: type, made_of: Callable[[], dict[str, Any]]) -> None:
        self._cls = cls
        self._made_of = made_of

    def __get__(self, record: object, cls: type) -> dict[str, Any]:
        fields = self._made_of()
        type.__setattr__(self._cls, "__dataclass_fields__", fields)
        return fields


_fields: dict[type, tuple[_FieldFacts, ...]] = {}


def _inherited(plain: type) -> dict[str, _FieldFacts]:
    known: dict[str, _FieldFacts] = {}
    for base in plain.__mro__[:0:-1]:
        known |= {field.name: field for field in _fields.get(base, ())}
    return known


def _own(plain: type, *, kw_only: bool) -> dict[str, _FieldFacts]:
    known: dict[str, _FieldFacts] = {}
    values = vars(plain)
    for name, annotation in plain.__annotations__.items():
        if annotation.endswith("KW_ONLY"):
            kw_only = True
        elif not ("ClassVar" in annotation and _NO_FIELD.match(annotation)):
            known[name] = _FieldFacts(name, values.get(name, dataclasses.MISSING), kw_only)
    return known


def _made(plain: type, *, frozen: bool, slots: bool, eq: bool, kw_only: bool) -> Any:
    body = dict(vars(plain))
    hashes = body.get("__hash__")
    own = _own(plain, kw_only=kw_only)
    fields = tuple((_inherited(plain) | own).values())
    names = tuple(field.name for field in fields)

    def standard() -> dict[str, Any]:
        """Return the standard library's fields, from a class that has nothing else."""
        alike = {
            name: field.default for name, field in own.items() if field.default is not dataclasses.MISSING
        }
        alike |= {"__annotations__": plain.__annotations__, "__module__": plain.__module__}
        # without a text the standard library writes one, which takes as long as all the rest
        alike["__doc__"] = plain.__name__
        bare = type(plain.__name__, plain.__bases__, alike)
        decorate: Any = dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=kw_only)
        return decorate(bare).__dataclass_fields__

    made: Any = _with_slots(plain, body, own) if slots else _with_defaults(plain, own)
    _fields[made] = fields
    made.__dataclass_fields__ = _Fields(made, standard)
    made.__dataclass_params__ = vars(_Plain)["__dataclass_params__"]
    if "__match_args__" not in body:
        made.__match_args__ = tuple(field.name for field in fields if field.init and not field.kw_only)
    if "__init__" not in body:
        made.__init__ = _first_call(made, frozen=frozen)
    if "__repr__" not in body:
        made.__repr__ = _text(tuple(field.name for field in fields if field.repr))
    if eq:
        if "__eq__" not in body:
            made.__eq__ = _equality(_values(tuple(field.name for field in fields if field.compare)))
        if "__hash__" not in body or (hashes is None and "__eq__" in body):
            made.__hash__ = _hash(_values(_hashed(fields))) if frozen else None
    if frozen:
        made.__setattr__, made.__delattr__ = _set, _delete
        if slots:
            made.__getstate__, made.__setstate__ = _getstate(_values(names)), _setstate(names)
    return made


def _with_slots(plain: type, body: dict[str, Any], own: dict[str, _FieldFacts]) -> type:
    """Return the class made anew with slots, which cannot be added to an existing class."""
    taken = {name for base in plain.__mro__[1:-1] for name in getattr(base, "__slots__", ())}
    body = {name: value for name, value in body.items() if name not in own}
    body.pop("__dict__", None)
    body.pop("__weakref__", None)
    body["__slots__"] = tuple(name for name in own if name not in taken)
    made = type(plain)(plain.__name__, plain.__bases__, body)
    made.__qualname__ = plain.__qualname__
    return made


def _with_defaults(plain: type, own: dict[str, _FieldFacts]) -> type:
    """Return the class itself, with values in place of `field(…)`."""
    for name, field in own.items():
        if isinstance(field.default, dataclasses.Field):
            standard = cast("dataclasses.Field[Any]", field.default)
            if standard.default is dataclasses.MISSING:
                delattr(plain, name)
            else:
                setattr(plain, name, standard.default)
    return plain


def _hashed(fields: tuple[_FieldFacts, ...]) -> tuple[str, ...]:
    return tuple(field.name for field in fields if (field.compare if field.hash is None else field.hash))


def _values(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) > 1:
        return attrgetter(*names)
    return lambda record: tuple(getattr(record, name) for name in names)


def _first_call(cls: Any, *, frozen: bool) -> Callable[..., None]:
    """Return a constructor that puts the compiled one in its place, and passes the call on."""

    def compiled() -> Callable[..., None]:
        cls.__init__ = made = _constructor(cls, dataclasses.fields(cls), frozen=frozen)
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
