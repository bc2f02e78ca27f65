"""The common part of the contracts: cases to check and to time, and the checks of a case's output."""

from __future__ import annotations

from dataclasses import field
from typing import Any, cast

from orbit_remote.common import messages as c
from orbit_remote.common.lazy_dataclass import dataclass


class ContractError(Exception):
    """A file does not keep its contract. If `place` is None, it is that of the function or class that is called."""

    def __init__(self, text: str, remedy: str = "", place: c.Place | None = None) -> None:
        super().__init__(text)
        self.text = text
        self.remedy = remedy
        self.place = place


@dataclass(frozen=True, slots=True)
class ContractCase:
    """One set of arguments. `name` is "" for the only one of a contract that has no names for them."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def shown(self) -> dict[str, str]:
        return {name: str(value) for name, value in self.arguments.items()}


@dataclass(frozen=True, slots=True)
class ExplainedCheck:
    """One comparison. If it failed, it has what a person reads of it, and in `hint` the possible cause. The hint of
    one that passed says what it does not show.
    """

    check: c.Check
    words: str = ""
    hint: str = ""


def described(value: Any) -> str:
    """Describe a value that is not what it should be, in a few words."""
    kind = type(value).__name__
    if isinstance(value, list | tuple):
        return f"a {kind} of {len(cast('list[Any]', value))}"
    return "None" if value is None else f"a {kind}"
