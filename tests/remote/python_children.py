"""Python files carried out by processes forked from the product's own template."""

from __future__ import annotations

import asyncio
import os
import textwrap
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from orbit_remote.common import messages as c
from orbit_remote.common.requests import Job
from orbit_remote.worker import prefork

T = TypeVar("T")


@dataclass(frozen=True)
class Done:
    finished: c.Finished
    status: int
    stdout: str
    stderr: str

    @property
    def failure(self) -> c.Failure:
        assert self.finished.failure is not None, self
        return self.finished.failure

    @property
    def problem(self) -> c.Problem:
        [problem] = self.finished.problems
        return problem


class Children:
    """Processes forked from the product's own template, which has imported Triton once for this process of pytest.

    The pool lives on an event loop in a thread of its own, so that the tests below need no loop.
    """

    def __init__(self, folder: Path) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._pool = self._do(self._make_pool(folder / "cache"))
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH" and not k.startswith("COV")}
        self._environment = environment | {"TRITON_CACHE_DIR": str(folder / "triton")}

    def run(self, request: Job, seen: Callable[[c.Event], Any] = lambda _: None) -> Done:
        """`seen` is called, in a thread of its own, with each event as it comes."""
        return self._do(self._run(request, seen))

    def close(self) -> None:
        self._do(self._pool.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _make_pool(self, cache: Path) -> prefork.PreforkPool:
        scratches = cache / "scratches"
        scratches.mkdir(parents=True)
        return prefork.PreforkPool(cache=cache, scratches=scratches)

    async def _run(self, request: Job, seen: Callable[[c.Event], Any]) -> Done:
        child = await self._pool.take(request, self._environment)
        printed = asyncio.gather(child.stdout.read(), child.stderr.read())
        events: list[c.Event] = []
        async for event in child.events():
            events.append(event)
            await asyncio.to_thread(seen, event)
        status = await child.wait()
        stdout, stderr = (stream.decode(errors="replace") for stream in await printed)
        await child.close()
        assert events, (status, stderr)
        finished = events[-1]
        assert isinstance(finished, c.Finished), (events, status, stderr)
        return Done(finished, status, stdout, stderr)


def job_of(path: Path, text: str, *, action: str = "run", **fields: Any) -> Job:
    return Job("1", action, "triton", str(path), textwrap.dedent(text), **fields)


def at(text: str, name: str, needle: str, line: int | None = None) -> c.Place:
    """Where `needle` stands in the dedented `text`."""
    lines = textwrap.dedent(text).splitlines()
    number = line or next(i for i, text in enumerate(lines, 1) if needle in text)
    column = lines[number - 1].index(needle) + 1
    return c.Place(name, number, column, column + len(needle))


HEAD = "import torch, triton\nimport triton.language as tl\n\n"
ADD = textwrap.dedent("""
    import torch, triton
    import triton.language as tl

    @triton.jit
    def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        mask = offsets < n
        tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) + tl.load(y_ptr + offsets, mask=mask), mask=mask)
    """)


def compile_one(done: Done) -> c.Resources:
    assert done.finished.outcome == "ok", done
    [resources] = done.finished.resources
    return resources
