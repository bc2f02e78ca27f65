"""Runs a user's program unchanged, keeps a bounded part of its output, and ends it as a whole."""

from __future__ import annotations

import asyncio
import codecs
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.messages import Failure
from orbit_remote.process import process_groups

Stream = Literal["stdout", "stderr"]
Output = Callable[[Stream, str], None]

KEPT = 64 << 10
"""Characters kept of the head and, again, of the tail of each stream."""
STREAMED = 1 << 20
"""Characters of each stream that are passed on while the program runs."""
_GRACE_S = 1.0
"""How long a pipe that processes still hold, which cannot be found or ended, may be silent before it is left."""
_GRACES = 10
_limit = asyncio.timeout

PASSED = frozenset((
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TERM", "TZ", "TMPDIR", "TMP", "TEMP",
    "LD_LIBRARY_PATH", "LIBRARY_PATH", "CPATH", "PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX", "SYSTEMROOT",
    "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATHEXT", "APPDATA", "LOCALAPPDATA", "USERPROFILE",
    "NUMBER_OF_PROCESSORS", "PROGRAMFILES", "PROGRAMDATA", "ORBIT_RECORD",
    "ORBIT_PACKAGES",
))  # fmt: skip
PASSED_PREFIXES = (
    "LC_", "XDG_", "CUDA_", "NVIDIA_", "NV_", "CUDNN_", "CUBLAS_", "NCCL_", "TRITON_", "TORCH_", "PYTORCH_",
    "TORCHINDUCTOR_", "OMP_", "MKL_", "OPENBLAS_",
)  # fmt: skip
"""The page of the settings lists both; a test compares them."""


def environment(source: Mapping[str, str], extra: Sequence[str] = ()) -> dict[str, str]:
    """Return the variables that a job may see. They are an allow-list, so that tokens and sockets stay out."""
    wanted = set(extra)
    return {
        name: value
        for name, value in source.items()
        if name.upper() in PASSED or name.upper().startswith(PASSED_PREFIXES) or name in wanted
    }


class HeadAndTail:
    """The beginning and the end of a stream of text."""

    def __init__(self, limit: int = KEPT) -> None:
        self._limit = limit
        self._head = ""
        self._tail = ""
        self.dropped = 0

    def add(self, text: str) -> None:
        room = self._limit - len(self._head)
        self._head += text[:room] if room > 0 else ""
        rest = self._tail + text[max(room, 0) :]
        self.dropped += max(0, len(rest) - self._limit)
        self._tail = rest[-self._limit :] if rest else ""

    @property
    def seen(self) -> int:
        """Return how many characters have come."""
        return len(self._head) + self.dropped + len(self._tail)

    def text(self) -> str:
        if not self.dropped:
            return self._head + self._tail
        return f"{self._head}\n[… {self.dropped} characters not kept …]\n{self._tail}"


@dataclass(frozen=True, slots=True)
class EndedProgram:
    """How a program ended. `status` is the exit code, or minus the signal; None if the time limit ended it. `failure`
    is the other reason why we ended it.
    """

    status: int | None
    stdout: str
    stderr: str
    truncated: bool
    seconds: float
    failure: Failure | None = None


async def run(
    command: Sequence[str],
    *,
    cwd: str,
    env: Mapping[str, str],
    stdin: str,
    timeout_s: float,
    started: process_groups.Started,
    output: Output,
    limit: asyncio.Timeout | None = None,
) -> EndedProgram:
    """Run to the end or the limit, which a caller may pass as `limit` to change it. Cancelled or not, no process of
    its group is left; on Linux, none at all.

    Raises OSError if the program cannot be started.
    """
    began = time.perf_counter()
    mark = {process_groups.MARK: os.environ[process_groups.MARK]} if process_groups.MARK in os.environ else {}
    process = await process_groups.start(
        command,
        cwd=cwd,
        env={**env, **mark},
        stdin=asyncio.subprocess.PIPE if stdin else asyncio.subprocess.DEVNULL,
    )
    started(process.pid, True)
    assert process.stdout is not None
    assert process.stderr is not None
    printed = Printed(process.stdout, process.stderr, output)
    feeding = asyncio.ensure_future(_feed(process, stdin)) if stdin else None
    status: int | None = None
    try:
        async with limit or _limit(timeout_s):
            status = await process_groups.exit_status(process)
    except TimeoutError:
        pass
    finally:
        if feeding:
            feeding.cancel()
        await asyncio.shield(
            process_groups.finish(process)
        )  # the pipes end with the last process that holds them
        await asyncio.shield(printed.read_out())
        started(process.pid, False)
    return printed.ended(status, time.perf_counter() - began)


class Printed:
    """Keeps what a process prints, and passes it on."""

    def __init__(self, stdout: asyncio.StreamReader, stderr: asyncio.StreamReader, output: Output) -> None:
        self._out, self._err = HeadAndTail(), HeadAndTail()
        self._readers = [
            asyncio.ensure_future(_follow(stdout, "stdout", self._out, output)),
            asyncio.ensure_future(_follow(stderr, "stderr", self._err, output)),
        ]

    def stop(self) -> None:
        for reader in self._readers:
            reader.cancel()

    async def read_out(self) -> None:
        """Wait, after the processes have ended, for the ends of the pipes. If somebody holds the pipes open, wait as
        long as more output comes: a busy machine reads late what was written in time.
        """
        for _ in range(_GRACES):
            before = self._out.seen + self._err.seen
            _, late = await asyncio.wait(self._readers, timeout=_GRACE_S)
            if not late or self._out.seen + self._err.seen == before:
                break
        self.stop()

    def ended(self, status: int | None, seconds: float) -> EndedProgram:
        truncated = bool(self._out.dropped or self._err.dropped)
        return EndedProgram(status, self._out.text(), self._err.text(), truncated, seconds)


async def _feed(process: asyncio.subprocess.Process, text: str) -> None:
    assert process.stdin is not None
    try:
        process.stdin.write(text.encode())
        await process.stdin.drain()
        process.stdin.close()
    except (BrokenPipeError, ConnectionResetError):
        pass  # the program did not want it


async def _follow(stream: asyncio.StreamReader, name: Stream, kept: HeadAndTail, output: Output) -> None:
    """Keep and pass on what comes out of a pipe, until its end."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    passed = 0
    while chunk := await stream.read(1 << 16):
        text = decoder.decode(chunk)
        kept.add(text)
        if passed < STREAMED:
            output(name, text[: STREAMED - passed])
            passed += len(text)
            if passed >= STREAMED:
                output(name, "\n[orbit: more output follows and is not shown]\n")
    if rest := decoder.decode(b"", final=True):
        kept.add(rest)
        output(name, rest)
