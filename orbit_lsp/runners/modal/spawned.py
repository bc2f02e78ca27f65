"""A call on Modal: it is spawned, watched, ended. What is called, and what comes of it, is in other modules."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from orbit_lsp.runners.modal import errors, starts
from orbit_lsp.runners.modal.deploy import TRIES, attempts, within
from orbit_lsp.runners.modal.errors import ModalError, ModalTrouble
from orbit_lsp.runners.modal.pool import ContainerPool
from orbit_remote.common import messages as c
from orbit_remote.modal_app.image_spec import unpack

if TYPE_CHECKING:
    import tenacity

log = logging.getLogger("orbit.modal")

SIGN_S = 5.0
AWAY_S = 20.0
"""How long Modal may be out of reach while a call is there. The container ends the work of one who has given no
sign for as long; and Modal's own client would ask a connection that is dead for minutes."""
_SOFT_S = 5.0
"""Modal's client in the container takes a second between two cancellations, so of two clicks in a row the second
needs that long before anything ends."""
_HARD_S = 5.0

Sign = Callable[[], Coroutine[Any, Any, object]]
T = TypeVar("T")


class Spawned:
    """One call, which `key` names on Modal. `restricted`: it has code that is not the author's, and no queue."""

    def __init__(self, key: str, gpu: str | None, pool: ContainerPool, *, restricted: bool = False) -> None:
        self.key = key
        self.gpu = gpu
        self.restricted = restricted
        self._pool = pool
        self._spawning: asyncio.Future[Any] | None = None
        self._call: Any = None
        self._function: Any = None
        self.heard = starts.Heard(asyncio.Event())

    @property
    def waited_for_nothing(self) -> bool:
        """Say whether the call was submitted and is over without a container that has spoken. For a call without a
        queue nobody knows.
        """
        return self._call is not None and not self.restricted and not self.heard.spoken

    def _stage(self, state: c.State, why: str = "") -> None:
        """Report that the job has reached this state."""
        raise NotImplementedError

    def _warm(self) -> bool:
        """Say whether a container is there already."""
        return False

    def _container_ends(self) -> None:
        """End its container by force."""

    def _app_gone(self) -> None:
        """Take note that the app was not there, and so no container was."""

    async def _submit(self, method: str, arguments: Sequence[Any]) -> None:
        """Spawn the job on Modal. If the app is not there yet, put it there first."""
        from modal import exception

        if not self._pool.account.suspect:
            with suppress(exception.NotFoundError):
                return await self._spawn(method, arguments)
        self._stage("starting", BUILDING)
        self._pool.forget()
        self._app_gone()
        await self._pool.account.deploy()
        return await self._spawn(method, arguments)

    async def _spawn(self, method: str, arguments: Sequence[Any]) -> None:
        """Spawn the call. Raises what Modal's client raises, once trying again cannot help or has not helped.

        If Modal accepted a submission but reported a failure, there is a second call with the same key. The same
        container answers it from the first; another one would do the work twice.
        """

        def say(state: tenacity.RetryCallState) -> None:
            error = state.outcome.exception() if state.outcome else None
            why = errors.trouble(error).message if error else ""
            self._stage("queued", f"{why}; trying again ({state.attempt_number} of {TRIES - 1})")

        async for attempt in attempts(say):
            with attempt:
                handle = await self._pool.handle(self.gpu, restricted=self.restricted)
                self._function = getattr(handle, method)
                line = () if self.restricted else (await self._pool.queue(), self.key)
                self._stage("queued", self._why_queued())
                # never cancelled: its id would be lost, and with it the way to end what it started
                if self.restricted:
                    spawn = _inline(self._function, arguments, await self._pool.account.connected())
                else:
                    spawn = self._function.spawn.aio(*arguments, *line)
                self._spawning = spawning = asyncio.ensure_future(spawn)
                try:
                    reached = self._pool.account.while_reached(asyncio.shield(spawning))
                    self._call = await self._while_there(reached, await self._hello())
                except ModalError:
                    spawning.cancel()  # it must not begin once Modal is back; what has begun ends by itself
                    raise

    def _why_queued(self) -> str:
        if self.gpu is None:
            return "waiting for a machine without a GPU on Modal"
        if self._warm() and not self.restricted:
            return ""
        article = "an" if self.gpu[0] in "AHL" else "a"
        return f"waiting for {article} {self.gpu} on Modal since {time.strftime('%H:%M:%S')}"

    async def _returned(self) -> dict[str, Any]:
        """Return the call's result. Ask again if the connection was lost, as long as the call is followed: it goes on
        meanwhile.
        """
        import tenacity

        again = tenacity.AsyncRetrying(
            wait=tenacity.wait_exponential_jitter(multiplier=0.5, max=4, jitter=0.5),
            retry=tenacity.retry_if_exception(errors.unreachable),
        )
        return unpack(await again(self._call.get.aio))

    async def _until_failing(self) -> None:
        """Return once containers of the job have failed one after another. The job then has to be ended."""
        await starts.until_failing(self._function, self.heard, soon=not self._warm())
        self._pool.account.suspect = not self.heard.lost

    async def _failure(self) -> ModalTrouble:
        """Return the trouble of a call whose containers fail."""
        return await starts.trouble(self._function, self._pool.account.known_name, self.heard)

    async def _unless_failing(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for `work`, but raise ModalError if containers of the job fail one after another first. The job has
        been ended then.
        """
        doing, failing = asyncio.ensure_future(work), asyncio.ensure_future(self._until_failing())
        try:
            await asyncio.wait([doing, failing], return_when=asyncio.FIRST_COMPLETED)
            if doing.done():
                return doing.result()
        finally:
            for task in (doing, failing):
                task.cancel()
            await asyncio.gather(doing, failing, return_exceptions=True)
        self._container_ends()
        await self._cancelled(
            _HARD_S, terminate=True
        )  # cancelled first, because another container may begin while questions are asked
        raise ModalError(await self._failure())

    async def _hello(self) -> Sign:
        client: Any = await self._pool.account.connected()
        return client.hello.aio

    async def _while_there(self, work: Awaitable[T], sign: Sign) -> T:
        """Do `work` while Modal is reached. Raises ModalError (transport) if Modal is out of reach for `AWAY_S`
        meanwhile.
        """
        doing, watching = asyncio.ensure_future(work), asyncio.ensure_future(self._watch(sign))
        try:
            await asyncio.wait([doing, watching], return_when=asyncio.FIRST_COMPLETED)
            return doing.result() if doing.done() else watching.result()
        finally:
            for task in (doing, watching):
                task.cancel()
            await asyncio.gather(doing, watching, return_exceptions=True)

    async def _watch(self, sign: Sign) -> NoReturn:
        """Give a sign of life every 5 s: without one the other side ends the work within 20 s. Raises ModalError once
        none has come through for that long.
        """
        through, pause = time.monotonic(), SIGN_S
        while True:
            await asyncio.sleep(pause)
            begun = time.monotonic()
            try:
                await within(SIGN_S, sign())
                through = begun
            except Exception as error:  # noqa: BLE001 - the next one may come through
                if not errors.unreachable(error):
                    through = begun
                elif time.monotonic() - through >= AWAY_S:
                    text = f"Modal has not answered for {AWAY_S:g} s"
                    raise ModalError(ModalTrouble("transport", text, _ALONE)) from None
                else:
                    with suppress(ModalError):  # this opens another connection if the present one is dead
                        await self._pool.account.connected()
            pause = max(0.0, begun + SIGN_S - time.monotonic())

    async def end(self) -> None:
        """Cancel, and return when nothing runs any more. First it is done softly, so that the container stays warm.
        If that does not help, the container is ended. The task that followed the call must have been cancelled
        before.
        """
        if self._call is None and self._spawning is not None:
            with suppress(Exception):
                async with asyncio.timeout(_HARD_S):
                    self._call = await asyncio.shield(self._spawning)
        if self._call is None or await self._cancelled(_SOFT_S, terminate=False):
            return
        log.warning("%s was not ended by cancelling it; its container is ended", self.key)
        self._container_ends()
        await self._cancelled(_HARD_S, terminate=True)

    async def _cancelled(self, seconds: float, *, terminate: bool) -> bool:
        """Return whether the call ends in time. Return False if Modal cannot cancel it."""
        try:
            async with asyncio.timeout(seconds):
                await self._call.cancel.aio(terminate_containers=terminate)
                with suppress(Exception):  # how a cancelled call ends is of no interest
                    await self._call.get.aio()
                return True
        except TimeoutError:
            return False
        except Exception as error:  # noqa: BLE001 - the other side notices that nobody is there
            log.warning("the call could not be cancelled: %s", error)
            return False


async def _inline(function: Any, arguments: Sequence[Any], client: Any) -> Any:
    """Spawn a call with its arguments, and later its answer, in messages of up to 2 MiB.

    `spawn` sends what is beyond 8 KiB through Modal's blob store, which a container without network cannot reach.
    Modal 1.6.4 itself calls in this way in `remote`, which gives no id for ending the call.
    """
    from modal import FunctionCall
    from modal_proto import api_pb2

    await function.hydrate.aio()
    call = function._call_function_nowait  # noqa: SLF001
    invocation = await call.aio(tuple(arguments), {}, api_pb2.FUNCTION_CALL_INVOCATION_TYPE_SYNC)
    return FunctionCall.from_id(invocation.function_call_id, client=client)


BUILDING = "building the image on Modal, once: CUDA, torch and Triton are several GB, so some minutes"
_ALONE = "check the network connection; the container ends the run by itself"
