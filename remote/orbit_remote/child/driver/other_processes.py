"""Finds which Triton kernels other processes of a driver launched, such as its ranks. No more is known of these
launches here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from orbit_remote.child import triton_instances
from orbit_remote.common import limits, python_errors, regular_files
from orbit_remote.common.launch_records import LaunchSeries
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.messages import Place, Resources
from orbit_remote.common.requests import Job

_MOST_FILES = 5_000
"""Python files of a project that are looked through."""


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Launches of other processes. `kernels` says which kernel each of the launches in `series` was of. `unclear` are
    names that several kernels have; their launches are left out.
    """

    series: Sequence[LaunchSeries]
    kernels: tuple[Resources, ...] = ()
    unclear: tuple[str, ...] = ()

    def remarks(self) -> Iterator[str]:
        if self.unclear:
            names = ", ".join(self.unclear[:3])
            yield (
                f"other processes of the driver launched {names}, and several kernels of the project have that name, so their times "
                "are not shown"
            )
        if shared := _sharing(self.series):
            yield f"{shared} processes of the driver launched kernels on one GPU at the same time, which can lengthen them"


def told_apart(series: Sequence[LaunchSeries], job: Job) -> tuple[list[LaunchSeries], Elsewhere]:
    """Return the launches of this process, and those of others. A kernel is the function of its name in this process,
    which has imported what its ranks import, else the one in the project.
    """
    here = [each for each in series if each.launch.process == os.getpid()]
    others = [each for each in series if each.launch.process != os.getpid()]
    names = {each.launch.symbol for each in others if each.launch.symbol.isidentifier()}
    names = {name for name in names if not name.startswith("_Z")}  # of CUDA C++
    if not names:
        return here, Elsewhere(others)
    places: dict[str, set[Place]] = {name: set() for name in names}
    for function in triton_instances.jit_functions():
        if function.fn.__name__ in places:
            places[function.fn.__name__].add(Place(*python_errors.definition(function)[:2]))
    missing = {name for name in names if not places[name]}
    for name, place in _in_project(missing, job) if missing else ():
        places[name].add(place)
    kernels = [
        Resources(name, name, "", place=of.copy().pop()) for name, of in places.items() if len(of) == 1
    ]
    unclear = tuple(sorted(name for name, of in places.items() if len(of) > 1))
    known = [each for each in others if each.launch.symbol not in unclear]
    return here, Elsewhere(known, tuple(kernels), unclear)


def _sharing(series: Iterable[LaunchSeries]) -> int:
    """Return how many processes used one GPU while another did, or 0 if none had to share it."""
    spans: dict[tuple[int, int], tuple[int, int]] = {}  # of device and process
    for each in series:
        if each.starts:
            key = each.launch.device or 0, each.launch.process or 0
            first, last = spans.get(key, (each.starts[0], 0))
            spans[key] = min(first, each.starts[0]), max(last, each.starts[-1] + each.durations[-1])
    shared = {
        of
        for of, (begin, end) in spans.items()
        for other, (other_begin, other_end) in spans.items()
        if other != of and other[0] == of[0] and begin < other_end and other_begin < end
    }
    return len({process for _, process in shared})


def _in_project(names: Iterable[str], job: Job) -> Iterator[tuple[str, Place]]:
    """Yield the definitions of kernels of these names in the folder of the project."""
    either = "|".join(map(re.escape, names))
    kernel = re.compile(rf"^[ \t]*@[\w.]*jit\b[^\n]*\n[ \t]*def[ \t]+({either})\(", re.MULTILINE)
    for path in _python_files(job.directory or os.curdir):
        try:
            text = job.text if path == job.path else regular_files.text(path, limits.SOURCE)
        except (OSError, ValueError):
            continue
        for found in kernel.finditer(text):
            yield found[1], Place(path, text.count("\n", 0, found.start(1)) + 1)


def _python_files(folder: str) -> Iterator[str]:
    count = 0
    for parent, folders, names in os.walk(folder):
        own = (
            name
            for name in folders
            if not name.startswith(".") and name not in ("node_modules", "site-packages")
        )
        folders[:] = [name for name in own if not Path(parent, name, "pyvenv.cfg").exists()]
        for name in names:
            if name.endswith(".py"):
                count += 1
                if count > _MOST_FILES:
                    return
                yield os.path.join(parent, name)  # noqa: PTH118 - texts, by the thousand
