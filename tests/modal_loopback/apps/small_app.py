"""What the tests of the control plane deploy."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import modal

cache = modal.Volume.from_name("small-cache", create_if_missing=True)
image = modal.Image.debian_slim().pip_install("numpy").env({"SMALL_CACHE": "/cache/kernels"})
app = modal.App("small", image=image)


@app.cls(gpu="T4", timeout=60, volumes={"/cache": cache}, secrets=[modal.Secret.from_dict({"WORD": "open"})])
class Session:
    @modal.enter()  # pyright: ignore[reportUnknownMemberType] - partly typed in modal
    def begin(self) -> None:
        self.calls = 0

    @modal.exit()  # pyright: ignore[reportUnknownMemberType] - partly typed in modal
    def end(self) -> None:
        print("left in good order", flush=True)

    @modal.method()
    def count(self, payload: Any = None) -> dict[str, Any]:
        self.calls += 1
        return {"calls": self.calls, "payload": payload, "task": os.environ["MODAL_TASK_ID"]}

    @modal.method()
    def about(self) -> dict[str, Any]:
        return {
            "file": __file__,
            "environ": dict(os.environ),
            "path": sys.path,
            "argv": sys.argv,
            "original": sys.orig_argv,
            "interrupted": getattr(signal.getsignal(signal.SIGINT), "__name__", ""),
            "remote": not modal.is_local(),
        }

    @modal.method()
    def note(self, text: str) -> str:
        """Leaves a text in the volume, and gives what was there."""
        path = Path(os.environ["SMALL_CACHE"])
        before = path.read_text() if path.exists() else ""
        path.write_text(text)
        return before

    @modal.method()
    def large(self, size: int) -> bytes:
        return b"x" * size

    @modal.method()
    def follow(self, queue: modal.Queue, steps: int) -> int:
        """Tells its call's id, then counts."""
        queue.put(modal.current_function_call_id(), partition="run")
        for step in range(steps):
            queue.put(step, partition="run")
        return steps

    @modal.method()
    def wait(self, queue: modal.Queue) -> None:
        """Starts a child in a session of its own, says who the two are, and waits for ever."""
        child = subprocess.Popen(["sleep", "3600"], start_new_session=True)
        # in a thread: a cancellation is an exception in this thread, and Modal's client drops those that come in its calls
        threading.Thread(target=queue.put, args=[(os.getpid(), child.pid)]).start()
        while True:
            time.sleep(3600)

    @modal.method()
    def crash(self, queue: modal.Queue, times: int) -> int:
        """Ends its process without a word, the first `times` times."""
        before = queue.len()
        queue.put(before)
        if before < times:
            os.kill(os.getpid(), signal.SIGKILL)
        return before

    @modal.method()
    def fail(self, queue: modal.Queue, times: int) -> int:
        """Raises, the first `times` times."""
        before = queue.len()
        queue.put(before)
        if before < times:
            raise ValueError("not yet")
        return before

    @modal.method()
    def steps(self, count: int) -> Iterator[int]:
        print("counting", flush=True)
        yield from range(count)


@app.function()
def plain(word: str) -> str:
    return f"{word} {os.environ.get('CUDA_VISIBLE_DEVICES')!r}"


@app.function(restrict_modal_access=True, block_network=True, single_use_containers=True)
def restricted(queue: modal.Queue | None) -> str:
    if queue is not None:
        queue.put("out")
    return os.environ["MODAL_TASK_ID"]


@app.cls()
class Broken:
    @modal.enter()  # pyright: ignore[reportUnknownMemberType] - partly typed in modal
    def begin(self) -> None:
        raise RuntimeError("no driver")

    @modal.method()
    def use(self) -> None: ...
