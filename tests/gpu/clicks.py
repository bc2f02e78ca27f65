"""A click on the last kernel of a text, carried out by a worker of this machine: text in, `Finished` out."""

from __future__ import annotations

import asyncio
import sys
from contextlib import aclosing
from pathlib import Path
from textwrap import dedent
from typing import Any

from orbit_lsp import kernels
from orbit_lsp.runners.local import LocalOptions, LocalRunner
from orbit_lsp.specs import launch_plan
from orbit_remote.common import messages as c
from orbit_remote.common.requests import Job, ProgramStart, SpecStart


class Bench:
    """One worker for all tests of a module, as an editor has it, on an event loop that outlives each of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.loop = asyncio.Runner()
        self.runner = LocalRunner(LocalOptions(python=sys.executable))
        self.count = 0
        self.stages: list[c.Stage] = []
        """Of the last job."""

    def job(self, source: str, name: str, **fields: Any) -> Job:
        """Through the launch spec above the kernel if it has one, else through the program; `fields` come last."""
        text = dedent(source).lstrip("\n")
        path = self.folder / name
        path.write_text(text)
        language = kernels.language_of(name)
        assert language
        kernel = kernels.tracker(language).scan(text).kernels[-1]
        self.count += 1
        definition = launch_plan.definition_of(kernel)
        values: dict[str, Any] = {
            "run": f"r{self.count}", "action": "run", "language": language, "path": str(path), "text": text,
            "kernel": kernel.name, "directory": str(self.folder), "tool_kernel": definition,
            "start": SpecStart(definition) if "orbit: launch" in text else ProgramStart(),
        }  # fmt: skip
        return Job(**values | fields)

    def run(self, source: str, name: str = "k.cu", **fields: Any) -> c.Finished:
        return self.loop.run(self._finished(self.job(source, name, **fields)))

    async def _finished(self, job: Job) -> c.Finished:
        self.stages = []
        async with aclosing(self.runner.run(job)) as events:
            async for event in events:
                if isinstance(event, c.Stage):
                    self.stages.append(event)
                if isinstance(event, c.Finished):
                    return event
        raise AssertionError("no end")

    def close(self) -> None:
        self.loop.run(self.runner.close())
        self.loop.close()
