"""`%orbit locate`: finds the line on which a GPU kernel of a notebook's cell fails or hangs, from the driver's GPU
core dump.

The driver writes a dump only in a process without a recorder, and ends the process with it. So a notebook's kernel is
started only for this, and times nothing.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from orbit_remote.common import codec, limits, python_errors, regular_files
from orbit_remote.common import messages as c
from orbit_remote.process.client_environment import NOTEBOOK_CELLS
from orbit_remote.worker.faults import dump_folder, fault_report

_MOST_LINES = 10
"""Lines on which warps stood that are shown, those with the most warps first."""


class CellFaults:
    def __init__(self, folder: Path) -> None:
        """Prepare a `folder` that is private and new. Dumps and the texts of cells are written into it."""
        self._folder = folder
        folder.mkdir()

    def variables(self) -> dict[str, str]:
        """Return the variables that the notebook's kernel needs in its environment for this."""
        return dump_folder.on_request(self._folder) | {NOTEBOOK_CELLS: str(self._folder / "cells")}

    def ask(self) -> bool:
        """Make the driver write where the warps stand and end the process. Return False if no process has opened a
        GPU.
        """
        return dump_folder.request(self._folder)

    def text(self) -> str:
        """Return the content of the dump as lines. Return nothing if there is no dump, or if it names no kernel."""
        try:
            dump = dump_folder.read_first(self._folder)
        except (OSError, ValueError) as error:
            return f"the driver left no usable GPU core dump: {error}"
        if dump is None:
            return ""
        code = dump.error() or "CUDA_ERROR_LAUNCH_FAILED"
        problem = c.Problem("error", code, "cuda", None, code)
        finished = c.failed("cell", c.Failure("runtime error", code), problems=(problem,))
        cells = self._cells()
        if dump.faults:
            finished = fault_report.with_fault(finished, dump, _own)
            problems = finished.problems
            lines = [problems[0].message]
        elif dump.grids:
            finished = fault_report.with_standing(finished, dump, _own)
            problems = finished.problems[1:]
            lines = [fault_report.progress(dump)]
        else:
            return "no GPU kernel was running"
        for problem in problems[:_MOST_LINES]:
            prefix = "" if dump.faults else f"{problem.message}: "
            if problem.place:
                lines.append(f"{prefix}{_shown(problem.place, cells)}")
            lines += [f"{note.message}: {_shown(note.place, cells)}" for note in problem.notes if note.place]
            if not problem.place and prefix:
                lines.append(problem.message)
        return "\n".join(lines)

    def _cells(self) -> dict[str, tuple[str, list[str]]]:
        """Return name and lines of each cell, by the last part of its file's name in Python, which is a hash of its
        text. The folder there has the id of the process that filled Triton's cache.
        """
        known: dict[str, tuple[str, list[str]]] = {}
        with suppress(OSError):
            for line in regular_files.text(self._folder / "cells", limits.TOOL_OUTPUT).splitlines():
                with suppress(ValueError, KeyError, TypeError):  # cells run in the process that writes it
                    cell = cast("dict[str, Any]", codec.read_json(line.encode()))
                    known[Path(str(cell["file"])).name] = (
                        f"In[{int(cell['number'])}]",
                        str(cell["text"]).split("\n"),
                    )
        return known


def _own(file: str) -> str | None:
    return file if python_errors.is_users(file, "") else None


def _shown(place: c.Place, cells: dict[str, tuple[str, list[str]]]) -> str:
    """Return `In[3], line 7: tl.store(out + i, x)`; for a file, its name."""
    name, lines = cells.get(Path(place.file).name, (place.file, []))
    text = lines[place.line - 1].strip() if 0 < place.line <= len(lines) else ""
    return f"{name}, line {place.line}{f': {text:.200}' if text else ''}"
