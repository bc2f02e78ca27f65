"""Launch specs that are drafted for an author: from a kernel's signature, or from the launch in its host code.

A draft is a beginning that runs: sizes, types and a grid that fit together, in the names of the kernel's parameters.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from orbit_remote.spec.signature import Signature


@dataclass(frozen=True, slots=True)
class Subject:
    """The kernel to draft for: its signature, its body and the whole file, both without comments."""

    name: str
    header: Signature
    body: str
    text: str
    bounds: tuple[str, ...] = ()
    """Arguments of `__launch_bounds__`."""


def used(statements: list[str]) -> list[str]:
    """Without assignments of names that nothing below them mentions."""
    kept: list[str] = []
    for one in reversed(statements):
        name = re.match(r"(\w+) = ", one)
        if name is None or any(re.search(rf"\b{name[1]}\b", below) for below in kept):
            kept.append(one)
    return kept[::-1]
