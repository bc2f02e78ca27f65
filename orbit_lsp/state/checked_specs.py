"""The cache of a file's checked launch specs. `specs.spec_cache` reads and writes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any, NamedTuple

from orbit_remote.common import limits
from orbit_remote.common.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from orbit_lsp.kernels.model import Kernel, Scan
    from orbit_lsp.state.results import CompilerFigures
    from orbit_remote.spec.comment_scanner import CommentPiece, SpecTarget
    from orbit_remote.spec.launch_spec import EvaluatedSpec
    from orbit_remote.spec.rules import LaunchLimits
    from orbit_remote.spec.syntax_tree import Fault


class SpecBlock(NamedTuple):
    """What is written above a kernel. Its lines are relative to the kernel's first, so a block that has moved stays
    equal.
    """

    pieces: tuple[CommentPiece, ...]
    faults: tuple[Fault, ...]
    text: str
    """What follows `orbit:` in each line."""
    launches: bool
    """Whether the word `launch` is in it."""
    digest: str
    """Of the text, with that of the definition below it: texts may have many and long ones, and are asked about often."""


class SpecKey(NamedTuple):
    """Everything that a check depends on, except the rest of the file: that is in `Checked.asked`."""

    digest: str
    limits: LaunchLimits | None


class CheckedSpec(NamedTuple):
    start_line: int
    version: int
    checked: EvaluatedSpec


class SpecToCheck(NamedTuple):
    """One spec to check. It does not need the session, so a thread may check it."""

    key: SpecKey
    block: SpecBlock
    target: SpecTarget
    start: int


class Above(NamedTuple):
    """The comment lines above a line, read once for all kernels that begin there. `launched` are the names after
    `launch`.
    """

    pieces: tuple[CommentPiece, ...]
    faults: tuple[Fault, ...]
    text: str
    launches: bool
    launched: frozenset[str]
    digest: str


class BlockOf(NamedTuple):
    """What stands above a kernel of one scan. `block` is None if the kernel has nothing of its own."""

    kernel: Kernel
    target: SpecTarget
    block: SpecBlock | None


@dataclass(slots=True)
class SpecLines:
    """A text cut into lines without their ends (of long lines only the beginning), and what stands or could stand
    above its kernels, read on demand. `says` is whether it mentions specs at all.
    """

    version: int
    text: str
    says: bool
    blocks: dict[int, BlockOf] = field(default_factory=dict[int, BlockOf])
    """By the `id` of the kernel."""
    above: dict[tuple[int, int], Above] = field(default_factory=dict[tuple[int, int], Above])
    """By the first line of a definition, and that of `__global__` or `def`."""
    strays: tuple[Scan, list[Fault]] | None = None
    """Lines that look like a spec and belong to no kernel of one scan."""
    digests: tuple[Scan, Mapping[int, str]] | None = None
    """Of the kernels of one scan, by their `id`."""
    names: tuple[Scan, Mapping[int, set[str]]] | None = None
    """Of the kernels that begin on each line, in one scan."""
    asked: dict[int, tuple[Scan, CompilerFigures | None, str, SpecToCheck]] = field(
        default_factory=dict["int", "tuple[Scan, CompilerFigures | None, str, SpecToCheck]"]
    )
    """By the `id` of the kernel of a scan, with the figures and the architecture that it was made for."""
    plans: dict[int, tuple[Kernel, EvaluatedSpec, Any]] = field(
        default_factory=dict["int", "tuple[Kernel, EvaluatedSpec, Any]"]
    )
    """By the `id` of the kernel; `specs.launch_plan` alone reads and writes them."""
    drafts: dict[tuple[SpecTarget, LaunchLimits | None], list[tuple[str, str]]] = field(
        default_factory=dict["tuple[SpecTarget, LaunchLimits | None]", "list[tuple[str, str]]"]
    )
    _lines: list[str] | None = None

    @property
    def lines(self) -> list[str]:
        if self._lines is None:
            from orbit_remote.spec import comment_scanner

            lines = comment_scanner.lines_of(self.text)
            self._lines = [line[: limits.KERNEL_LINE.most] for line in lines]
        return self._lines
