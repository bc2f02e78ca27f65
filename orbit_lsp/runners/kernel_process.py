"""The process of a notebook kernel on this machine, with the keeper that ends it and its children when we are gone."""

from __future__ import annotations

import asyncio
import json
import os
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from orbit_remote import MAIN
from orbit_remote.process.process_groups import MARK, end_marked, exit_status


@dataclass(frozen=True, slots=True)
class Ended:
    """`status` is the exit code, or minus the signal; None where the kernel was not started: `failure` is why."""

    status: int | None
    failure: str = ""


class KernelProcess:
    def __init__(self, keeper: asyncio.subprocess.Process, mark: str) -> None:
        self._keeper = keeper
        self._mark = mark
        self.pid: int | None = None
        self.ended = asyncio.ensure_future(self._follow())

    @classmethod
    async def start(
        cls, python: str, connection: Path, log: IO[bytes], environment: dict[str, str]
    ) -> KernelProcess:
        """Start an ipykernel of `python` that reads `connection`; `log` gets what it prints beside the notebook.

        Raises OSError where that Python cannot be started.
        """
        mark = uuid.uuid4().hex
        keeper = await asyncio.create_subprocess_exec(
            python,
            *("-P", str(MAIN), "keeper", str(connection)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            start_new_session=True,
            env={**os.environ, **environment, MARK: mark},
        )
        return cls(keeper, mark)

    async def _follow(self) -> Ended:
        """Until the kernel and all that it started are gone."""
        assert self._keeper.stdout
        ended: Ended | None = None
        while line := await self._keeper.stdout.readline():
            with suppress(ValueError):
                event = json.loads(line)
                if event["event"] == "started":
                    self.pid = event["pid"]
                else:
                    ended = Ended(event.get("status"), event.get("failure", ""))
        await exit_status(self._keeper)
        if ended is None:  # the keeper was killed, and its kernel with it; what the kernel started is left
            await asyncio.to_thread(end_marked, self._mark)
            ended = Ended(None, "" if self.pid else "its Python could not be started")
        return ended

    def interrupt(self) -> None:
        """SIGINT for the kernel and what its cell waits for."""
        if self._keeper.stdin and not self._keeper.stdin.is_closing():
            self._keeper.stdin.write(b'{"do": "interrupt"}\n')

    async def end(self) -> Ended:
        """Kill the kernel and all that it started, and wait for that."""
        if self._keeper.stdin:
            self._keeper.stdin.close()
        return await asyncio.shield(self.ended)
