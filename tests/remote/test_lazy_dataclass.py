"""The lazy `dataclass` beside the standard library's: the same classes, made by both, behave alike."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from orbit_remote.common import lazy_dataclass
from orbit_remote.common.lazy_dataclass import dataclass

Decorator = Callable[..., Any]
FORMS: list[dict[str, bool]] = [
    {},
    {"slots": True},
    {"frozen": True},
    {"frozen": True, "slots": True},
    {"slots": True, "eq": False},
    {"frozen": True, "kw_only": True},
]


def both(options: dict[str, bool]) -> list[Any]:
    """A base and what inherits from it, by the standard library's decorator and by ours."""
    made: list[Any] = []
    for decorator in (dataclasses.dataclass, dataclass):
        decorate: Decorator = decorator

        @decorate(**options)
        class Point:
            kinds: ClassVar[int] = 2
            x: float
            y: float = 0.0
            tags: list[str] = dataclasses.field(default_factory=list[str], repr=False)
            serial: int = dataclasses.field(default=7, compare=False)
            norm: float = dataclasses.field(init=False)

            def __post_init__(self) -> None:
                object.__setattr__(self, "norm", self.x * self.x)

        @decorate(**options)
        class Named(Point):  # type: ignore[valid-type, misc]  # pyright: ignore[reportGeneralTypeIssues]
            name: str = "origin"

        made.append(Named)
    return made


@pytest.mark.parametrize("options", FORMS, ids=str)
def test_a_class_is_as_the_standard_librarys(options: dict[str, bool]) -> None:
    expected, lazy = both(options)
    values: dict[str, Any] = {"x": 2.0, "tags": ["a"], "name": "p"}
    plain, same = expected(**values), lazy(**values)
    assert repr(same) == repr(plain)
    assert dataclasses.asdict(same) == dataclasses.asdict(plain)
    assert [field.name for field in dataclasses.fields(same)] == [
        field.name for field in dataclasses.fields(plain)
    ]
    assert lazy.__match_args__ == expected.__match_args__
    assert getattr(lazy, "__slots__", None) == getattr(expected, "__slots__", None)
    for changes in ({}, {"y": 1.0}, {"serial": 8}, {"x": float("nan")}):
        changed, changed_too = dataclasses.replace(plain, **changes), dataclasses.replace(same, **changes)
        assert (changed_too == same) == (changed == plain)
        assert (changed_too == changed_too) == (changed == changed)  # noqa: PLR0124 - what NaN is
    assert same != plain
    assert (lazy.__hash__ is None) == (expected.__hash__ is None)
    assert lazy(1.0) is not lazy(1.0) if not options.get("kw_only") else True


@pytest.mark.parametrize("options", FORMS, ids=str)
def test_a_wrong_call_and_a_forbidden_change_raise_what_the_standard_librarys_do(
    options: dict[str, bool],
) -> None:
    for made in both(options):
        with pytest.raises(TypeError, match=r"__init__\(\).*'x'"):
            made()
        with pytest.raises(TypeError, match=r"unexpected keyword argument 'no'"):
            made(x=1.0, no=1)
        point = made(x=1.0)
        if options.get("frozen"):
            with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'x'"):
                point.x = 2.0
            with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'x'"):
                del point.x
        else:
            point.x = 2.0
            assert point.x == 2.0


@dataclass(frozen=True, slots=True)
class Kept:
    """At module level: pickle finds a class by its name."""

    number: int
    words: tuple[str, ...] = ()


def test_a_frozen_one_is_hashed_copied_and_pickled() -> None:
    kept = Kept(3, ("a", "b"))
    assert {kept: 1}[Kept(3, ("a", "b"))] == 1
    assert copy.deepcopy(kept) == kept
    assert pickle.loads(pickle.dumps(kept)) == kept
    match kept:
        case Kept(number, words):
            assert (number, words) == (3, ("a", "b"))


def test_methods_of_the_class_itself_stay() -> None:
    @dataclass(frozen=True, slots=True)
    class Named:
        name: str

        def __repr__(self) -> str:
            return self.name

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Named) and self.name.lower() == other.name.lower()

        def __hash__(self) -> int:
            return hash(self.name.lower())

    assert repr(Named("A")) == "A"
    assert {Named("A"), Named("a")} == {Named("A")}


def test_a_constructor_is_compiled_on_its_first_call_or_for_all_at_once() -> None:
    @dataclass(slots=True)
    class Later:
        x: int

    first: Any = Later.__init__
    assert Later(1).x == 1
    assert Later.__init__ is not first

    @dataclass(slots=True)
    class Completed:
        x: int

    @dataclass(slots=True)
    class Alone:
        x: int

    first, other = Alone.__init__, Completed.__init__
    lazy_dataclass.complete(Alone)
    lazy_dataclass.complete(Alone)
    assert (Alone.__init__ is first, Completed.__init__ is other) == (False, True)
    lazy_dataclass.complete()
    assert Completed.__init__ is not other
    assert (Alone(2).x, Completed(2).x) == (2, 2)


def test_a_constructor_that_was_kept_before_the_first_call_still_makes_one() -> None:
    @dataclass(frozen=True, slots=True)
    class Early:
        x: int
        y: tuple[int, ...] = ()

    early: Any = Early.__init__
    Early(1)
    again: Any = object.__new__(Early)
    early(again, 2, (3,))
    assert again == Early(2, (3,))


def test_fields_are_made_when_somebody_asks() -> None:
    @dataclass
    class Base:
        x: int
        y: list[int] = dataclasses.field(default_factory=list[int])

    @dataclass
    class Below(Base):
        z: int = dataclasses.field(default=3, kw_only=True)
        _: dataclasses.KW_ONLY
        w: int = 4

    assert isinstance(vars(Below)["__dataclass_fields__"], lazy_dataclass._Fields)
    assert repr(Below(1, z=5)) == f"{Below.__qualname__}(x=1, y=[], z=5, w=4)"
    assert Below.__match_args__ == ("x", "y")
    assert [field.kw_only for field in dataclasses.fields(Below)] == [False, False, True, True]
    assert (Below.z, Below.w, hasattr(Base, "y")) == (3, 4, False)
    assert isinstance(vars(Below)["__dataclass_fields__"], dict)

    @dataclasses.dataclass
    class Standard(Base):
        v: int = 0

    assert [field.name for field in dataclasses.fields(Standard)] == ["x", "y", "v"]
