"""Notices containers that fail as they start, or in a run, one after another.

Modal begins another in the place of each as long as a call waits, and bills every one: "for deployed apps, container
crashes will be retried indefinitely" (modal.com/docs/guide/troubleshooting). Nothing tells the caller. The caller can
ask for Modal's counts of a function's containers; the documentation does not say how late those are.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import time
from contextlib import suppress
from typing import Any

from orbit_lsp.runners.modal import errors
from orbit_lsp.runners.modal.errors import ModalError, ModalTrouble
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.modal_app.image_spec import unpack

log = logging.getLogger("orbit.modal")

MOST = 3
"""So many containers of one call may fail."""
LOOK_S = 2.0
_QUICK_S = 0.5
"""Once one more is one too many: Modal begins it within seconds."""
_ASK_S = 5.0
_HELLO_S = 600.0
_LOG_LINES = 12
_DAY = dt.timedelta(days=1)


@dataclass(slots=True)
class Heard:
    """What the containers of a call have said: whether one has spoken, and how many were lost after they had. `told`
    is set at each.
    """

    told: asyncio.Event
    spoken: bool = False
    lost: int = 0

    def word(self, *, lost: bool) -> None:
        self.spoken = True
        self.lost += lost
        self.told.set()


async def until_failing(function: Any, heard: Heard, *, soon: bool = True) -> None:
    """Return once `MOST` containers of `function` have failed since this was called. It asks Modal while none has
    spoken, and when one more failure would be too many. `soon` is false if a container is known to be warm.
    """
    begun, pause, before = time.monotonic(), 0.0 if soon else LOOK_S, None
    while heard.lost < MOST:
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await heard.told.wait()
        heard.told.clear()
        last = heard.lost == MOST - 1
        if not heard.spoken or last:
            failed = await _failed(function)
            if failed is not None:
                before = failed - heard.lost if before is None else min(before, failed)
                if failed - before >= MOST:
                    return
        pause = _QUICK_S if last else max(LOOK_S, (time.monotonic() - begun) / 10)


async def _failed(function: Any) -> int | None:
    """Return how many containers of a function have failed. Return None if Modal does not say."""
    now = dt.datetime.now(dt.UTC)  # of this machine, whose clock may be wrong: only differences count
    for until in (now + _DAY, now):
        try:
            async with asyncio.timeout(_ASK_S):
                return (await function.stats.aio(since=now - _DAY, until=until)).container_error_count
        except Exception as error:  # noqa: BLE001 - of Modal's client: the call goes on without
            log.info("Modal does not count containers: %s: %s", type(error).__name__, error)
    return None


async def trouble(function: Any, app: str, heard: Heard) -> ModalTrouble:
    """Return the trouble of a call whose containers failed."""
    if heard.lost:
        text = f"its container was lost {MOST} times, so the run was ended: did it run out of memory?"
        return ModalTrouble(
            "infrastructure", text, f"use less of the machine's memory; `modal app logs {app}` has its output"
        )
    tail = await _log(function)
    text = f"{MOST} containers on Modal failed as they started, so no more are rented"
    return ModalTrouble("infrastructure", "\n".join([text, *tail]), _report(app))


def broken(answer: dict[str, Any], app: str) -> ModalTrouble:
    """Return the trouble of a container that answered that it can do nothing."""
    trace = str(answer.get("trace", "")).rstrip().splitlines()[-_LOG_LINES:]
    return ModalTrouble("infrastructure", "\n".join([str(answer["broken"]), *trace]), _report(app))


async def hello(worker: Any, app: str) -> None:
    """Return once a container without a GPU has said that the image starts. Raises ModalError if it does not start."""
    heard = Heard(asyncio.Event())
    call = await worker.hello.spawn.aio()
    answered = asyncio.ensure_future(call.get.aio())
    failing = asyncio.ensure_future(until_failing(worker.hello, heard))
    try:
        async with asyncio.timeout(_HELLO_S):
            await asyncio.wait([answered, failing], return_when=asyncio.FIRST_COMPLETED)
        if answered.done():
            answer = unpack(answered.result())
            if "broken" in answer:
                raise ModalError(broken(answer, app))
            return
    except TimeoutError:
        text = f"Modal started no container without a GPU within {_HELLO_S:g} s"
        raise ModalError(
            ModalTrouble("infrastructure", text, "run it again; see also status.modal.com")
        ) from None
    finally:
        waits = not answered.done()
        for task in (answered, failing):
            task.cancel()
        await asyncio.gather(answered, failing, return_exceptions=True)
        if waits:
            with suppress(Exception):  # else a container would be begun for it again and again
                async with asyncio.timeout(_ASK_S):
                    await call.cancel.aio(terminate_containers=True)
    raise ModalError(await trouble(worker.hello, app, heard))


def _report(app: str) -> str:
    return f"`modal app logs {app}` has all of it; report it with that text"


async def _log(function: Any) -> list[str]:
    """Return the last lines that the function's containers have printed."""
    text = ""
    try:
        async with asyncio.timeout(_ASK_S):
            async for entry in function.logs.tail.aio(100):
                text += entry.message
    except Exception as error:  # noqa: BLE001 - the log is an extra; the failure is said without it
        log.info("the log cannot be read: %s", errors.trouble(error).message)
    return [line for line in text.splitlines() if line.strip()][-_LOG_LINES:]
