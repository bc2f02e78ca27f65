"""Runs a program that the user chose, in a process group of its own that ends with us: a worker or a reviewer of
`orbit-lsp loop`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.process import process_groups, program


@dataclass(frozen=True, slots=True)
class EndedCommand:
    """How a command ended. `status` is the exit code, or minus the signal; None if the time limit ended it. `output`
    is bounded.
    """

    status: int | None
    output: str


async def run(command: Sequence[str], folder: Path, limit_s: float, mark: str) -> EndedCommand:
    """Run a program to its end or the limit, with the user's environment and no input.

    No process of its group is left, cancelled or not. If we are killed, the kernel ends the group's leader, and `end`
    ends what that had started. Raises OSError if the program cannot be started.
    """
    done = await program.run(
        command, cwd=str(folder), env={**os.environ, process_groups.MARK: mark}, stdin="", timeout_s=limit_s,
        started=lambda _pid, _began: None, output=lambda _stream, _text: None,
    )  # fmt: skip
    return EndedCommand(done.status, "\n".join(filter(None, (done.stdout, done.stderr))))


async def end(mark: str) -> None:
    """End what a command with this mark has left after its starter was killed. Linux only."""
    await asyncio.to_thread(process_groups.end_marked, mark)
