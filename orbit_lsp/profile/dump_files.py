"""Compiler output of a profiled kernel as files: their names, and which belong to a kernel."""

from __future__ import annotations

import itertools
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from orbit_lsp.state.results import Profiled
from orbit_remote.common import symbols
from orbit_remote.common.messages import Dump, Finished
from orbit_remote.common.requests import Level

TITLES: dict[Level, str] = {
    "ttir": "TTIR", "ttgir": "TTGIR", "llir": "LLVM IR", "ptx": "PTX", "sass": "SASS",
}  # fmt: skip


def file_names(dumps: Sequence[Dump]) -> list[str]:
    """Return a file name for each dump, from its kernel's name: `softmax.ttgir`, for a second instance
    `softmax-2.ttgir`.
    """
    stems: dict[tuple[str, int], str] = {}
    for dump in dumps:
        if (dump.symbol, dump.instance) not in stems:
            base = re.sub(r"[^\w.-]+", "-", symbols.base_name(dump.name))[:80].strip("-.") or "kernel"
            free = (f"{base}-{count}" if count > 1 else base for count in itertools.count(1))
            stems[dump.symbol, dump.instance] = next(stem for stem in free if stem not in stems.values())
    return [f"{stems[entry.symbol, entry.instance]}.{entry.level}" for entry in dumps]


def of(profiled: Profiled | None) -> list[tuple[Dump, str]]:
    """Return the dumps of the kernel with their file names. The instance on its line is first."""
    if profiled is None:
        return []
    rank = {profile.symbol: at for at, profile in reversed(list(enumerate(profiled.profiles)))}
    named = zip(profiled.finished.dumps, file_names(profiled.finished.dumps), strict=True)
    own = [(dump, name) for dump, name in named if dump.symbol in rank]
    return sorted(own, key=lambda pair: (rank[pair[0].symbol], pair[0].instance))


def levels(profiled: Profiled | None) -> list[Level]:
    """Return the levels of output that a profile has, in the order in which a compiler makes them."""
    have = {dump.level for dump, _ in of(profiled)}
    return [level for level in get_args(Level) if level in have]


def instance(dump: Dump) -> str:
    """Return what distinguishes a dump from others of its kernel. A template's name has its arguments, but a JIT's
    name does not have the constants.
    """
    constants = ", ".join(f"{name}={value}" for name, value in dump.constants.items())
    return f"{dump.name}, {constants}" if constants else dump.name


def copy(finished: Finished, folder: Path, to: Path) -> list[str]:
    """Copy the files of a profile from `folder` into `to`, which is made. Raises OSError."""
    to.mkdir(parents=True, exist_ok=True)
    names = file_names(finished.dumps)
    for name in names:
        shutil.copyfile(folder / name, to / name)
    return names
