"""The warm process that reads reports, and the worker's end of it.

It is a separate process because NVIDIA's reader is a C++ library that a damaged file may crash, and because the
reader need not fit the worker's Python. It is kept warm because loading takes longer than reading a report.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import importlib
import json
import os
import select
import sys
from asyncio.subprocess import Process
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from orbit_remote import MAIN
from orbit_remote.common import codec
from orbit_remote.common.packages import installing
from orbit_remote.ncu.report_reader import ReportAnswer, ReportRequest, read
from orbit_remote.process import process_groups

_LINE = 64 << 20
_READ_S = 60.0
_IDLE_S = 600.0

MISSING = (
    "the report cannot be read: NVIDIA's `ncu_report` is neither beside ncu nor installed; to read it: "
    "{install}"
)


class ReportReader:
    """Reads reports. It is used on one event loop, for one report at a time."""

    def __init__(self) -> None:
        self._process: Process | None = None
        self._folders: tuple[str, ...] = ()
        self._busy = asyncio.Lock()

    async def prepare(self, folders: Sequence[str]) -> None:
        """Start a process that has loaded the reader's module, from the first of these folders whose module loads."""
        async with self._busy:
            await self._start(tuple(folders))

    async def read(self, folders: Sequence[str], request: ReportRequest) -> ReportAnswer:
        """Read a report. Any failure is in the answer, also the end of the process."""
        async with self._busy:
            try:
                process = await self._start(tuple(folders))
                return await self._ask(process, request)
            except TimeoutError:
                problem = f"reading the report took longer than {_READ_S:g} s"
            except (OSError, ValueError) as error:
                problem = f"the report could not be read: {error}"
            except BaseException:
                await self._end()
                raise
            await self._end()
            return ReportAnswer(problem=problem)

    async def close(self) -> None:
        async with self._busy:
            await self._end()

    async def _start(self, folders: tuple[str, ...]) -> Process:
        if self._process is not None and self._process.returncode is None and self._folders == folders:
            return self._process
        await self._end()
        command = [sys.executable, "-P", MAIN, "reports", *folders]
        self._process = await process_groups.start(
            command, stdin=asyncio.subprocess.PIPE, stderr=None, limit=_LINE
        )
        self._folders = folders
        return self._process

    async def _ask(self, process: Process, request: ReportRequest) -> ReportAnswer:
        assert process.stdin is not None
        assert process.stdout is not None
        line = json.dumps(dataclasses.asdict(request)).encode("utf-8", "surrogatepass") + b"\n"
        async with asyncio.timeout(_READ_S):
            with contextlib.suppress(ConnectionError):
                process.stdin.write(line)
                await process.stdin.drain()
            answer = await process.stdout.readline()
        if not answer:
            status = await process_groups.exit_status(process)
            what = f"signal {-status}" if status < 0 else f"exit code {status}"
            raise ValueError(f"NVIDIA's reader ended with {what}: the file is damaged or of another version")
        return codec.build(ReportAnswer, codec.read_json(answer.decode("utf-8", "surrogatepass")))

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            await asyncio.shield(process_groups.finish(process))


# -- the process ------------------------------------------------------------------------------------


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="orbit_remote reports")
    parser.add_argument("folders", nargs="*", help="where `ncu_report` may be, the best first")
    options = parser.parse_args(arguments)
    # what the library prints is for the log
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="surrogatepass")
    os.dup2(2, 1)
    module, why = _load(options.folders)
    while line := _next_line():
        request = codec.build(ReportRequest, codec.read_json(line))
        answer = _answer(module, why, request)
        answers.write(
            json.dumps(dataclasses.asdict(answer), ensure_ascii=False, separators=(",", ":")) + "\n"
        )
        answers.flush()
    return 0


def _next_line() -> str:
    """Return the next request. Return "" at the end, and if none has come for a while."""
    ready, _, _ = select.select([sys.stdin], [], [], _IDLE_S)
    return sys.stdin.readline() if ready else ""


def _load(folders: Sequence[str]) -> tuple[Any, str]:
    """Return the module, or None and why."""
    why = ""
    for folder in (*folders, ""):
        sys.path[:0] = [folder] if folder else []
        try:
            return importlib.import_module("ncu_report"), ""
        except Exception as error:  # noqa: BLE001 - built for another Python, or a part of it is missing
            if folder or not isinstance(error, ModuleNotFoundError):
                why = why or f" (the one in {folder or 'this Python'} does not load: {error})"
        finally:
            if folder:
                sys.path.remove(folder)
        for name in ("ncu_report", "_ncu_report"):
            sys.modules.pop(name, None)
    return None, MISSING.format(install=installing.remedy(sys.executable, "ncu-report")) + why


def _answer(module: Any, why: str, request: ReportRequest) -> ReportAnswer:
    if module is None:
        return ReportAnswer(problem=why)
    if not Path(request.report).is_file():
        return ReportAnswer(problem="there is no report")
    try:
        return read(module, request)
    except Exception as error:  # noqa: BLE001 - whatever it raises for a damaged file
        what = f"the report could not be read: it is damaged, or of a version that this reader does not know ({error})"
        return ReportAnswer(problem=what.rstrip(".: "))
