"""The process of a notebook kernel. Its keeper passes its messages on, and ends it and its children when we are gone."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import uuid
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, Protocol

from orbit_lsp.state.user_folders import cache_folder
from orbit_remote import MAIN
from orbit_remote.common import codec, content_store, limits
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.process.process_groups import MARK, alive, end_marked, exit_status
from orbit_remote.process.records import Records, packed

Record = tuple[str, list[bytes]]
Lease = Literal["cell", "session", "never"]
"""When a kernel on this machine has the GPU for itself."""
Keep = Literal["nothing", "container", "session"]
"""What stays for the next kernel, where something is rented: the container for one of another process, or all for one
of this."""


Stage = Literal["queued", "starting"]
"""What is waited for before its first message: a GPU, or the kernel itself."""


@dataclass(frozen=True, slots=True)
class EndedKernel:
    """How a kernel ended. `status` is the exit code, or minus the signal. It is None for a kernel without an exit
    code: `failure` says why, and may be empty for a kernel that was killed. `last_line` is the last line that the
    kernel printed outside of the notebook. `fault` has the lines on which its GPU kernels failed or stood, if it was
    started to name them.
    """

    status: int | None
    failure: str = ""
    last_line: str = ""
    fault: str = ""


class RunningKernel(Protocol):
    """A notebook kernel somewhere, with its keeper."""

    pid: int | None
    ended: asyncio.Future[EndedKernel]

    @property
    def stage(self) -> Stage: ...

    def records(self) -> AsyncGenerator[Record, None]:
        """Yield all that the keeper sends, until the kernel and all its processes have ended. Then `ended` is set."""
        ...

    async def send(self, name: str, parts: Sequence[bytes]) -> None:
        """Send a record. Return at once if the kernel has ended."""
        ...

    async def prepare(self) -> str:
        """Prepare a cell: give the kernel the files that are here, and the GPU for itself. Return why the cell cannot
        be run, if it cannot.
        """
        ...

    async def rest(self) -> None:
        """Take note that no cell runs, and none waits."""
        ...

    async def end(self, keep: Keep = "nothing") -> EndedKernel:
        """Kill the kernel and everything that it started."""
        ...


class KernelProcess:
    """A kernel on this machine. `records` has to be read for anything to happen."""

    stage: Stage = "starting"

    def __init__(self, keeper: asyncio.subprocess.Process, mark: str, log: Any, lease: Lease) -> None:
        self._keeper = keeper
        self._lease: Lease = lease
        self._ready: asyncio.Future[str] | None = None
        self._mark = mark
        self._log = log
        self._folder = ""
        self.pid: int | None = None
        self.ended: asyncio.Future[EndedKernel] = asyncio.get_running_loop().create_future()

    @classmethod
    async def start(
        cls, python: str, folder: Path, key: str, scheme: str, lease: Lease = "cell", *, locate: bool = False
    ) -> KernelProcess:
        """Start an ipykernel of `python` in `folder`, whose messages are signed with `key`. `locate` is as in
        `start_record`. Raises OSError if that Python cannot be started there.
        """
        if not await asyncio.to_thread(folder.is_dir):  # a cell has deleted it
            raise FileNotFoundError(f"the notebook's folder {folder} is gone; make it again")
        mark = uuid.uuid4().hex
        log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the kernel; without a name, so that a kill leaves none
        try:
            keeper = await asyncio.create_subprocess_exec(
                python,
                *("-P", str(MAIN), "keeper"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                cwd=folder,
                start_new_session=True,
                env={**os.environ, MARK: mark},
            )
        except BaseException:
            log.close()
            raise
        process = cls(keeper, mark, log, lease)
        record = start_record(key, scheme, lease, str(cache_folder() / "cupti"), locate=locate)
        await process.send("start", [record])
        return process

    async def records(self) -> AsyncGenerator[Record, None]:
        assert self._keeper.stdout
        records, ended = Records(), None
        while data := await self._keeper.stdout.read(1 << 16):
            for name, parts in records.feed(data):
                if name == "event":
                    ended = self._heard(codec.read_json(parts[0]))
                elif name == "ready":
                    if self._ready and not self._ready.done():
                        self._ready.set_result(parts[0].decode())
                else:
                    yield name, parts
        await exit_status(self._keeper)
        if ended is None:  # the keeper was killed, and its kernel with it; what the kernel started is left
            await asyncio.to_thread(end_marked, self._mark)
            if self._folder:
                content_store.remove(Path(self._folder))
            ended = EndedKernel(
                None, "" if self.pid else f"its Python could not be started{self._last_line()}"
            )
        self._log.close()
        self.ended.set_result(ended)

    def _heard(self, event: dict[str, Any]) -> EndedKernel | None:
        if event["event"] == "started":
            self.pid, self._folder = event["pid"], event["folder"]
            return None
        return ended_of(event)

    def _last_line(self) -> str:
        lines: list[str] = []
        with suppress(OSError):
            text = os.pread(self._log.fileno(), limits.TOOL_OUTPUT.most, 0)
            lines = text.decode("utf-8", "replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return f": {last:.300}" if last else ""

    async def send(self, name: str, parts: Sequence[bytes]) -> None:
        if self._keeper.stdin and not self._keeper.stdin.is_closing():
            with suppress(ConnectionError):
                self._keeper.stdin.write(packed(name, parts))
                await self._keeper.stdin.drain()

    async def prepare(self) -> str:
        if self._lease == "never":
            return ""
        ready = self._ready = asyncio.get_running_loop().create_future()
        await self.send("cell", [])
        if self.pid is None:  # it is being started, and has opened no GPU
            return ""
        await asyncio.wait([ready, self.ended], return_when=asyncio.FIRST_COMPLETED)
        return ready.result() if ready.done() else ""

    async def rest(self) -> None:
        if self._lease != "never":
            await self.send("rest", [])

    async def end(self, keep: Keep = "nothing") -> EndedKernel:
        del keep
        if self._keeper.stdin:
            self._keeper.stdin.close()
        return await asyncio.shield(self.ended)


def front_end_ended() -> bool:
    """Say whether the front end that started us has ended, perhaps before we looked who it is. jupyter_client names
    itself.
    """
    named = os.environ.get("JPY_PARENT_PID", "")
    return named.isdigit() and int(named) > 0 and not alive(int(named))


def start_record(
    key: str, scheme: str, lease: Lease = "never", cache: str = "", *, locate: bool = False
) -> bytes:
    """Return the record that starts a kernel. `cache` is the folder of the launch recorder's builds; without it they
    last as long as the kernel. `locate`: the kernel times nothing, and names the line on which a GPU kernel fails or
    hangs.
    """
    signing = {"key": key, "signature_scheme": scheme, "lease": lease, "cache": cache, "locate": locate}
    return json.dumps(signing).encode()


def ended_of(event: dict[str, Any]) -> EndedKernel:
    words = (str(event.get(name, "")) for name in ("failure", "last_line", "fault"))
    return EndedKernel(event.get("status"), *words)
