"""A side as the judge sees it: its process, and the messages with it."""

from __future__ import annotations

import contextlib
import math
import mmap
import os
import signal
import time
from collections.abc import Callable, Generator
from typing import Any, Final

from orbit_remote.common import codec
from orbit_remote.common import messages as c
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.judge import memory
from orbit_remote.judge.channel import Channel, ChannelLostError, Message
from orbit_remote.process import process_groups

GATE_S: Final = 2.0
"""A call that waits for its gate is launched in this time."""
_STOPPED_S: Final = 5.0
"""Long for a stop, which takes microseconds: a thread that waits for a vfork's child does not stop."""
_LOOKS: Final = 512
"""At a flag, between two looks at everything else."""
_CATEGORIES: Final = ("compile error", "runtime error")
Times = tuple[int, int, int]
"""Of one call by the three clocks of `verdict`, in nanoseconds: flags, gate, verified."""


class SideFailedError(Exception):
    """A side did not do what was asked. `reference` says which of the two."""

    def __init__(self, failure: c.Failure, reference: bool) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.reference = reference


@dataclass(slots=True)
class Party:
    """A side. `page` has the flags that both processes see. `ends` is when the run's limit is over, by the monotonic
    clock.
    """

    name: str
    channel: Channel
    page: mmap.mmap
    pid: int
    ends: float = math.inf
    arena: Any = None
    """The bytes of its process where the judge puts the arguments of calls."""
    number: int = 0

    @property
    def reference(self) -> bool:
        return self.name == "Model"

    @contextlib.contextmanager
    def still(self) -> Generator[None]:
        """Stop its process and all that it has started during the block, so that none launches kernels in the other
        side's call. Kernels that already wait on the GPU go on. Raises SideFailedError.
        """
        stopped = [self.pid]
        os.kill(self.pid, signal.SIGSTOP)
        try:
            self._until_stopped()
            process_groups.stop_below(self.pid, stopped)
            yield
        finally:
            for pid in stopped:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGCONT)

    def ask(self, message: Message, descriptors: tuple[int, ...] = ()) -> tuple[Message, list[int]]:
        """Raises SideFailedError."""
        self.send(message, descriptors)
        return self.receive()

    def opened(self, what: Message, own: memory.Memory) -> Message:
        """Return its answer to an order that gives it memory for arguments, which is `arena` from then on. Raises
        SideFailedError.
        """
        answer, descriptors = self.ask(what)
        self.arena = own.open(answer["arena"], descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        return answer

    def send(self, message: Message, descriptors: tuple[int, ...] = ()) -> None:
        """Raises SideFailedError."""
        try:
            self.channel.send(message, descriptors)
        except ChannelLostError as error:
            raise self._lost(error) from None

    def receive(self, timeout_s: float | None = None) -> tuple[Message, list[int]]:
        """Raises SideFailedError; TimeoutError where a timeout was given."""
        try:
            answer, descriptors = self.channel.receive(
                max(0.001, self.left() if timeout_s is None else timeout_s)
            )
        except TimeoutError:
            if timeout_s is None or self.left() <= 0:
                raise self._timed_out() from None
            raise
        except ChannelLostError as error:
            raise self._lost(error) from None
        if "unable" in answer and self.number == 0:
            raise OSError(str(answer["unable"]))
        if (failed := answer.get("failed")) is not None:
            raise SideFailedError(_failure(failed), self.reference)
        return answer, descriptors

    def until(self, word: int, pause: Callable[[], None], *, answered: bool) -> int | None:
        """Wait until a flag says that the call has begun or ended, or the side says something else. Return when the
        flag was seen, in nanoseconds. Return None if the end, or something else, was seen without it. Raises
        SideFailedError.
        """
        looks, asked, since = 0, False, time.monotonic()
        while self._flag(word) < self.number:
            if word != memory.DONE and self._flag(memory.DONE) >= self.number:
                break
            pause()
            looks += 1
            if looks % _LOOKS:
                continue
            if self.left() <= 0:
                raise self._timed_out()
            if answered and not asked and time.monotonic() - since > GATE_S:
                self.send({"do": "settle"})  # a kernel that failed writes no flag
                asked = True
            if self.channel.readable():
                if not answered:
                    return None
                self.receive()
                asked = answered = False
        seen = time.perf_counter_ns() if self._flag(word) >= self.number else None
        if asked:
            self.receive()
        return seen

    def _until_stopped(self) -> None:
        """Wait until it has stopped, or ended. The next question reports its end."""
        limit = time.monotonic() + _STOPPED_S
        while os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
            if time.monotonic() > limit:
                text = f"{self.name}: its process cannot be stopped, as it has to be in the reference's calls"
                raise SideFailedError(c.Failure("runtime error", text), self.reference)
            time.sleep(2e-5)

    def left(self) -> float:
        """Return the seconds until the run's limit is over."""
        return self.ends - time.monotonic()

    def _flag(self, word: int) -> int:
        return int.from_bytes(self.page[4 * word : 4 * word + 4], "little")

    def _timed_out(self) -> SideFailedError:
        text = f"{self.name} did not end within the limit of the run"
        return SideFailedError(
            c.Failure("timed out", text, "raise the limit, or look for a wait that never ends"),
            self.reference,
        )

    def _lost(self, error: ChannelLostError) -> SideFailedError:
        status = _status(self.pid)
        why = f"its process ended with {status}" if status else error.why
        return SideFailedError(c.Failure("runtime error", f"{self.name}: {why}"), self.reference)


def _failure(claim: Any) -> c.Failure:
    """Return a side's own account: its words, and a category that it may name."""
    try:
        failure = codec.build(c.Failure, claim)
    except (ValueError, TypeError):
        return c.Failure("runtime error", "it failed without a message")
    if failure.category in _CATEGORIES:
        return failure
    return c.Failure("runtime error", failure.message, failure.remedy, place=failure.place)


def _status(pid: int) -> str:
    """Return how a process ended, in words. Return "" if it has not."""
    try:
        deadline = time.monotonic() + 1
        while (ended := os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is None:
            if time.monotonic() > deadline:
                return ""
            time.sleep(0.01)
    except ChildProcessError:
        return ""
    return f"signal {ended.si_status}" if ended.si_code != os.CLD_EXITED else f"exit code {ended.si_status}"
