"""Runs a program under Nsight Compute. It is interrupted when enough is counted or it takes too long, so that the
report is written, and killed if that does not help.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from orbit_remote.common import limits, plain_text, regular_files
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.ncu import ncu_options
from orbit_remote.ncu.ncu_log import Log
from orbit_remote.ncu.ncu_options import MOST_RESULTS, ProfileOrder, Tool

_LOOK_S = 0.2
_now = time.monotonic
_WRITE_S = 20.0
"""How long writing the report may take after the program was told to end."""

Stopped = Literal["", "enough", "limit"]


@dataclass(slots=True)
class Under:
    """One run under the tool. `stopped` says why it was ended early. `compiled` is the folder in which its child puts
    what Triton made.
    """

    tool: Tool
    order: ProfileOrder
    limit_s: float
    stopped: Stopped = ""

    @classmethod
    def make(cls, tool: Tool, scratch: Path, limit_s: float, **wanted: Any) -> Under:
        """Make a run. `wanted` are the fields of `ProfileOrder` except its files, which lie in `scratch`."""
        folder = scratch / "profile"
        folder.mkdir()
        (folder / "compiled").mkdir()
        order = ProfileOrder(report=folder / "report.ncu-rep", log=folder / "log.txt", **wanted)
        return cls(tool, order, limit_s)

    @property
    def compiled(self) -> Path:
        return self.order.report.parent / "compiled"

    @property
    def limit_with_writing_s(self) -> float:
        return self.limit_s + _WRITE_S

    def command(self, program: Sequence[str | os.PathLike[str]]) -> list[str]:
        return ncu_options.command(self.tool, self.order, program)

    def log(self) -> Log:
        try:
            text = regular_files.head(self.order.log, limits.TOOL_LOG).decode("utf-8", "replace")
            return Log(plain_text.plain(text))
        except OSError:  # it could not even be started
            return Log("")

    @property
    def report(self) -> Path | None:
        return self.order.report if self.order.report.is_file() else None

    async def watch(self, pgid: int) -> None:
        """Interrupt the group, as Ctrl-C does, at the limit of time or of launches. The tool then writes what it has.
        Cancel this when the group has ended.
        """
        began = _now()
        while not self.stopped:
            await asyncio.sleep(_LOOK_S)
            if self.log().profiled >= MOST_RESULTS:
                self.stopped = "enough"
            elif _now() - began >= self.limit_s:
                self.stopped = "limit"
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pgid, signal.SIGINT)
