"""How a CUDA file is compiled, and why"""

from __future__ import annotations

from dataclasses import field
from typing import NamedTuple

from orbit_remote.common.lazy_dataclass import dataclass


class Reason(NamedTuple):
    """A flag or an include folder, and why it is used."""

    what: str
    why: str


@dataclass(frozen=True, slots=True)
class Compilation:
    """`flags` have passed the trust rule. `source` is the sentence that says where they come from, `reasons` are of
    what was inferred, `refused` has a sentence for each flag that is not used. `missing` has, for a header that was
    looked for and is nowhere, what is near it and what provides it. `nvcc` is the project's own compiler, if it names
    one by its path and is trusted.
    """

    flags: tuple[str, ...] = ()
    source: str = ""
    reasons: tuple[Reason, ...] = ()
    refused: tuple[str, ...] = ()
    missing: dict[str, str] = field(default_factory=dict[str, str])
    filled: dict[str, str] = field(default_factory=dict[str, str])
    """Names that a script puts something in for before it has the file compiled, each with the script."""
    made: tuple[str, ...] = ()
    """Headers that were made from templates, because the project is not configured."""
    architectures: tuple[str, ...] = ()
    """`86`: what build files that were read as text name. The figures are for one of them; a run is for its GPU."""
    left_out: tuple[Reason, ...] = ()
    """What build files give the compiler, and is not known without running them."""
    nvcc: str | None = None
    nvcc_not_started: str = ""
    """That compiler, where it is another than ours and the workspace is not trusted."""
    python: str = ""
    """The Python whose packages were looked into first."""
    is_source: bool = False
    """The build compiles the file by itself: a database or a build file says so."""
    named: bool = True
    """A database, a build file or a script names the file, or may compile it without."""
    root: str = ""
    """The workspace folder that was searched."""
    database: str = ""
    """The compile_commands.json that was used; "" where flags were inferred."""
    database_command: str = ""
    """What writes a compile_commands.json for this project, where there is none and its build system can."""

    @property
    def remarks(self) -> tuple[str, ...]:
        """Return a sentence for each flag of the build that is not used, for readers without the table of how the
        file is compiled.
        """
        return tuple(f"{each.what} is left out, so figures may differ: {each.why}" for each in self.left_out)
