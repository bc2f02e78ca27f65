"""Asks a tool something (its version, the devices it sees) in a blocking call, with limits of time and memory."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import BinaryIO

from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.limits import TOOL_OUTPUT
from orbit_remote.process import client_environment, process_groups

_DRAIN_S = 1.0
"""How long a pipe may be held open by what the tool has left behind."""


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """A tool's answer. `status` is the exit code, or minus the signal. The first part of each stream is kept."""

    status: int
    stdout: str
    stderr: str


def ask(
    command: Sequence[str | os.PathLike[str]],
    *,
    timeout_s: float,
    stdin: str = "",
    limit: int = TOOL_OUTPUT.most,
) -> ToolAnswer:
    """Run a tool to its end, and keep `limit` bytes of each output. Raises OSError if it cannot be started, and
    subprocess.TimeoutExpired after its whole process group was ended.
    """
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=dict(client_environment.current()),
        process_group=0 if os.name == "posix" else None,
    )
    assert process.stdout
    assert process.stderr
    kept = bytearray(), bytearray()
    threads = [
        threading.Thread(target=_keep, args=(*arguments, limit), daemon=True)
        for arguments in zip((process.stdout, process.stderr), kept, strict=True)
    ]
    if process.stdin:
        threads.append(threading.Thread(target=_write, args=(process.stdin, stdin.encode()), daemon=True))
    for thread in threads:
        thread.start()
    try:
        status = process.wait(timeout_s)
    except BaseException:
        process_groups.kill_group(process.pid)
        process.wait()
        raise
    finally:
        for thread in threads:
            thread.join(_DRAIN_S)
    out, err = (bytes(part).decode("utf-8", "replace") for part in kept)
    return ToolAnswer(status, out, err)


def _keep(pipe: BinaryIO, kept: bytearray, limit: int) -> None:
    with suppress(OSError, ValueError), pipe:
        while chunk := os.read(pipe.fileno(), 1 << 16):
            kept += chunk[: max(0, limit - len(kept))]


def _write(pipe: BinaryIO, content: bytes) -> None:
    with suppress(OSError, ValueError), pipe:
        pipe.write(content)
