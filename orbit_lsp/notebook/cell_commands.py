"""What the magics of a cell ask for: `%orbit …` is about this kernel, `%%cuda` and `%%orbit …` are jobs of the queue."""

from __future__ import annotations

import asyncio
import html
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from pathlib import Path
from typing import Any

from orbit_lsp.kernels import cells
from orbit_lsp.notebook.cell_history import CellHistory
from orbit_lsp.notebook.on_host import OnHost
from orbit_lsp.notebook.relay import Relay
from orbit_lsp.notebook.rented import Rented
from orbit_lsp.notebook.served import Served
from orbit_lsp.queue import result_text
from orbit_lsp.queue.job_queue import JobQueue
from orbit_lsp.queue.job_store import StoreError
from orbit_lsp.queue.pool import COMPILER
from orbit_lsp.queue.request import Action, Request, RequestRefusedError
from orbit_lsp.state import units
from orbit_lsp.views import kernel_status, labels, tables
from orbit_lsp.views.tables import Table
from orbit_remote.common import codec, limits
from orbit_remote.common import messages as c
from orbit_remote.common.plain_text import visible

_WORDS = "%orbit status, %orbit gpu, %orbit cost, %orbit bring PATTERN, %orbit measure on|off, %orbit locate and %orbit end"
_CUDA = "%%cuda [--compile] [--kernel K]"
_CELL = "%%orbit run, %%orbit profile, %%orbit check or %%orbit compile, each with [--kernel K]"
_LOCATES = (
    "the kernel ends with this cell. Run the notebook from its first cell: the new kernel names the line on which a GPU "
    "kernel fails, and after a second Interrupt the lines on which one hangs. It times nothing; `%orbit end` ends this"
)
_HEADER = ("kernel", "time", "configuration", "occupancy")
_MOST_ROWS = 20
_ACTIONS: dict[str, Action] = {"run": "run", "profile": "profile", "check": "check", "compile": "compile"}

Jobs = Callable[[], AbstractAsyncContextManager[JobQueue]]


class CellCommands:
    """Answers the magics. `jobs` opens the queue for `%%cuda`, at the first one, because that looks at the machine's
    GPUs.
    """

    def __init__(
        self,
        jobs: Jobs,
        python: str,
        folder: Path,
        place: str = "this machine",
        far: Rented | Served | OnHost | None = None,
    ) -> None:
        """Make the commands of a notebook in `folder`. `far` describes `place` if that is not this machine."""
        self._history = CellHistory(folder)
        self._jobs = jobs
        self._python = python
        self._place = place
        self._far = far
        self._queue: JobQueue | None = None
        self._opening = asyncio.Lock()
        self._stack = AsyncExitStack()
        self.relay: Relay | None = None

    async def close(self) -> None:
        await self._stack.aclose()

    async def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer a request of a cell. If the cell is interrupted, this is cancelled."""
        answer = await self._answered(request)
        if text := answer.get("text"):
            # JupyterLab would wrap a table's lines
            style = "white-space: pre; overflow-x: auto"
            answer["html"] = f'<pre style="{style}">{html.escape(text)}</pre>'
        return answer

    async def _answered(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            if request.get("do") == "orbit":
                return {"text": await self._orbit(request["words"])}
            if request.get("do") == "cuda":
                return await self._cuda(request["words"], request["text"], _told(request))
            if request.get("do") == "cell":
                return await self._cell(request["words"], request["text"], _told(request))
            if request.get("do") == "measured":
                finished = codec.build(c.Finished, request["finished"])
                texts = {str(name): str(text) for name, text in request["texts"].items()}
                await self._history.keep("run", finished, texts, _told(request))
                return {"text": measured(finished)}
        except (RequestRefusedError, StoreError, OSError) as error:
            return {"error": f"orbit: {error}"}
        return {"error": f"orbit: the cell is larger than {limits.SOURCE.size}"}

    # -- %orbit -------------------------------------------------------------------------------

    async def _orbit(self, words: list[str]) -> str:
        """Raises RequestRefusedError."""
        assert self.relay
        if words == ["status"]:
            return self._status(self.relay)
        if words == ["gpu"]:
            if isinstance(self._far, Served | OnHost):
                return "\n".join(await self._far.places())
            queue = await self._opened()
            places = [f"{slot.name}  {slot.gpu or 'no GPU'}" for slot in queue.slots if slot.name != COMPILER]
            return "\n".join(places)
        if words == ["cost"]:
            return await self._far.cost() if self._far else "cells run on this machine, and cost nothing"
        if words[:1] == ["bring"] and len(words) == 2:
            return (
                await self._far.bring(words[1])
                if self._far
                else "cells run on this machine, where their files are"
            )
        if words == ["end"]:
            self.relay.end_after_cell()
            return "the kernel ends with this cell, and frees its memory; the next cell starts a new one"
        if words == ["locate"]:
            self.relay.end_after_cell(locate=True)
            return _LOCATES
        raise RequestRefusedError(f"write {_WORDS}")

    def _status(self, relay: Relay) -> str:
        minutes = (time.monotonic() - relay.began) / 60
        idle = f"after {relay.idle_s / 60:g} minutes without a cell" if relay.idle_s else "with its front end"
        pid = relay.kernel.process.pid if relay.kernel else None
        return "\n".join(
            [
                f"place    {self._place}",
                f"python   {self._python}",
                f"kernel   process {pid}, since {minutes:.0f} min, {relay.cells} cells run",
                f"ends     {idle}",
            ]
        )

    # -- %%cuda -------------------------------------------------------------------------------

    async def _opened(self) -> JobQueue:
        async with self._opening:
            if self._queue is None:
                self._queue = await self._stack.enter_async_context(self._jobs())
            return self._queue

    async def _cuda(self, words: list[str], text: str, told: str) -> dict[str, Any]:
        """Raises RequestRefusedError and StoreError."""
        compiles = "--compile" in words
        kernel = _kernel([word for word in words if word != "--compile"], _CUDA)
        return await self._job("compile" if compiles else "run", "cell.cu", kernel, f"%%cuda\n{text}", told)

    async def _cell(self, words: list[str], text: str, told: str) -> dict[str, Any]:
        """Run a cell of CUDA or of Triton. Raises RequestRefusedError and StoreError."""
        action = _ACTIONS.get(words[0]) if words else None
        if action is None:
            raise RequestRefusedError(f"write {_CELL}; without a cell, {_WORDS}")
        name = "cell.py" if await asyncio.to_thread(cells.is_python, text) else "cell.cu"
        return await self._job(action, name, _kernel(words[1:], _CELL), f"%%orbit {action}\n{text}", told)

    async def _job(
        self, action: Action, name: str, kernel: str | None, cell: str, told: str
    ) -> dict[str, Any]:
        """Raises RequestRefusedError and StoreError."""
        text = cell[cell.index("\n") :]  # lines count as in the cell, whose first is the magic
        if isinstance(self._far, Served):
            record = await self._far.job(action, name, kernel, text)
            with suppress(LookupError, TypeError, ValueError):  # a server of another version
                finished = codec.build(c.Finished, record["result"]["finished"], lenient=True)
                await self._keep(action, finished, name, cell, told)
            return _shown(action, record["outcome"], record["summary"], record["text"].splitlines()[1:])
        request = Request(
            action=action,
            name=name,
            text=text,
            kernel=kernel,
            priority="high",
        )
        queue = await self._opened()
        job = await queue.submit(request)
        try:
            done = await queue.wait(job.id)
        except asyncio.CancelledError:
            await queue.cancel(job.id)
            raise
        assert done
        result = await asyncio.to_thread(result_text.result_of, queue.store, done)
        if result:
            await self._keep(action, result.finished, name, cell, told)
        lines = result_text.lines(done, result)[1:]  # without the job's id
        return _shown(action, done.outcome, done.summary, lines)

    async def _keep(self, action: Action, finished: c.Finished, name: str, cell: str, told: str) -> None:
        if action in ("run", "profile"):
            await self._history.keep(action, finished, {name: cell}, told)


def _told(request: dict[str, Any]) -> str:
    """Return the notebook's path, as the front end has said it in a cell. Return "" if it has not."""
    return str(request.get("notebook") or "")[:4096]


def _shown(action: Action, outcome: str | None, summary: str, lines: list[str]) -> dict[str, Any]:
    if outcome == "ok":
        return {"text": "\n".join([summary, *lines] if action == "profile" else lines)}
    return {"text": "\n".join(lines), "error": f"orbit: {summary}"}


def measured(finished: c.Finished) -> str:
    """Return the launches of a cell as a table. The configurations that took most of the time are first."""
    ordered = sorted(finished.launches, key=lambda each: -each.timing.median * each.count)
    on = f" on {finished.device.name}" if finished.device else ""
    rows = tuple(_row(each, finished) for each in ordered[:_MOST_ROWS])
    lines = [tables.render([Table(f"measured{on}", _HEADER, rows)], markdown=False)]
    if more := len(ordered) - _MOST_ROWS:
        lines += [f"and {more} more"] if more > 0 else []
    lines += [f"note: {remark}" for remark in finished.remarks]
    return visible("\n".join(lines))


def _row(launches: c.Launches, finished: c.Finished) -> tuple[str, ...]:
    capability = finished.device.capability if finished.device else None
    held = kernel_status.launch_occupancy(launches, capability, finished.resources) if capability else None
    return (
        launches.name,
        f"{units.timing(launches.timing)} ({launches.timing.label})",
        labels.configuration(launches),
        f"≤{units.occupancy(held.fraction)}" if held else units.UNAVAILABLE,
    )


def _kernel(words: list[str], usage: str) -> str | None:
    """Return the word behind `--kernel`. Raises RequestRefusedError."""
    kernel, left = None, list(words)
    while left:
        word = left.pop(0)
        if word != "--kernel" or not left:
            raise RequestRefusedError(f"{word!r:.40} is no option; write {usage}")
        kernel = left.pop(0)
    return kernel
