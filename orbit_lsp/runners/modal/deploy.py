"""Our apps on Modal: reaches the account, deploys this version's app, lists and stops apps.

It imports `modal` inside its functions, so that the import costs nothing before a first run on Modal.
"""

from __future__ import annotations

import asyncio
import dataclasses
import importlib.util
import logging
import math
import os
import re
import sys
import urllib.parse
from collections.abc import Callable, Coroutine
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from orbit_lsp import __version__
from orbit_lsp.runners.modal import account, errors, starts
from orbit_lsp.runners.modal.errors import IMAGE, ModalError, ModalTrouble, not_installed
from orbit_remote.common import messages as c
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.packages import installing
from orbit_remote.modal_app.image_spec import PREFIX, QUEUE, VOLUME, ImageSpec, app_name

if TYPE_CHECKING:
    import modal
    import tenacity

    from orbit_lsp.state.config import Settings

T = TypeVar("T")
log = logging.getLogger("orbit.modal")

CONTACT_S = 5.0
"""How long a first answer may take; Modal's client alone would try for 56 s."""
_ANSWER_S = 2.0
"""How long an open connection may take to answer before another one is opened in its place."""
_THROTTLED_S = 10
"""How long Modal's client itself waits where Modal throttles it, as its setting `max_throttle_wait` has it: for
ever, if nobody says otherwise."""
TRIES = 3
_LOG_LINES = 12
_OURS = re.compile(re.escape(PREFIX) + r"[\w.]+-[0-9a-f]{10}")


@dataclass(frozen=True, slots=True)
class DeployedApp:
    """One of our apps as it stands on Modal. `present` marks the app of this version."""

    name: str
    id: str
    present: bool
    handle: Any = field(default=None, repr=False, compare=False)


class Account:
    """One account, and one app on it: that of `spec`."""

    read_at: ClassVar[object] = None
    """`account.stamp()` of the file that this process's client of Modal has read."""

    def __init__(self, spec: ImageSpec, environment: str | None = None) -> None:
        self.spec = spec
        self.environment = environment or None
        self._name: str | None = None
        self._client: modal.Client | None = None
        self._checking: asyncio.Task[None] | None = None
        self._deploying: asyncio.Task[None] | None = None
        self.suspect = False
        """Its containers did not start: it is to be put there anew, as where its volume was deleted."""

    async def name(self) -> str:
        """Return the name of the app. The first call reads our remote code."""
        if self._name is None:
            self._name = await asyncio.to_thread(app_name, self.spec)
        return self._name

    async def client(self) -> modal.Client:
        """Return Modal's client. Raises ModalError, within about 5 s, if Modal cannot be used."""
        client = await self.connected()
        if self._checking:
            await asyncio.shield(self._checking)
        return client

    async def connected(self) -> modal.Client:
        """Return the client. If a connection is open, do not wait until it answers: `while_reached` notices if it
        does not.
        """
        if self._client is not None and not self._client.is_closed():
            if self._checking is None or self._checking.done():
                self._checking = asyncio.create_task(
                    within(CONTACT_S, _answered(self._client)), name="modal hello"
                )
                self._checking.add_done_callback(lambda task: task.cancelled() or task.exception())
            return self._client
        if not account.installed():
            raise ModalError(not_installed())
        if not account.configured():
            raise ModalError(ModalTrouble("auth", account.NO_TOKEN, account.remedy()))
        if refused := await asyncio.to_thread(proxy_refusal):
            raise ModalError(refused)
        modal = await asyncio.to_thread(_modal_as_configured)
        client = await within(CONTACT_S, modal.Client.from_env.aio())
        await within(CONTACT_S, client.hello.aio())
        self._client, self._checking = client, None
        return client

    async def while_reached(self, work: asyncio.Future[T]) -> T:
        """Return the result of `work`, which began after `connected`. Raises ModalError if Modal turns out to be out
        of reach first.
        """
        checking = self._checking
        if checking and not work.done():
            await asyncio.wait([work, checking], return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                checking.result()
        return await work

    @property
    def deploying(self) -> bool:
        return self._deploying is not None and not self._deploying.done()

    async def deploy(self) -> None:
        """Deploy the app. A caller that asks meanwhile waits for the same deployment.

        Raises ModalError. If a caller is cancelled, the deployment goes on for the others.
        """
        if self._deploying is None or self._deploying.done():
            self._deploying = asyncio.create_task(self._deploy(), name="modal deploy")
        await asyncio.shield(self._deploying)

    async def _deploy(self) -> None:
        client = await self.client()
        from modal import exception

        from orbit_remote.modal_app import app as modal_app

        try:
            app = await asyncio.to_thread(modal_app.make, self.spec)
            deploying = partial(
                app.deploy.aio, name=await self.name(), client=client, environment_name=self.environment
            )
            await attempts()(deploying)
        except exception.ImageBuildError as error:
            raise ModalError(await self._build_failed(error, client)) from None
        await self._prove(client)
        self.suspect = False

    async def _prove(self, client: modal.Client) -> None:
        """Make one call without a GPU, before a GPU is rented for the first time. An app that does not start is
        removed: an existing app counts as one that starts.
        """
        name = await self.name()
        cls: Any = _modal().Cls.from_name(name, "Worker", client=client, environment_name=self.environment)
        try:
            await starts.hello(cls(), name)
        except ModalError:
            for app in await self.apps():
                if app.present:
                    await self.stop(app)
            raise

    @property
    def known_name(self) -> str:
        """Return the name of the app, or "" before it was asked for."""
        return self._name or ""

    async def _build_failed(self, error: Any, client: modal.Client) -> ModalTrouble:
        modal = _modal()
        from modal_proto.api_pb2 import ImageMetadata

        log: list[str] = []
        try:
            async with asyncio.timeout(CONTACT_S):
                # Modal 1.6.4 makes no handle of an image that failed, nor log of it, in any public way
                image = modal.Image._new_hydrated(error.image_id, client, ImageMetadata())  # noqa: SLF001
                async for text in image._logs.aio():  # noqa: SLF001
                    log += text.splitlines()
        except Exception as unread:  # noqa: BLE001 - the log is an extra; the failure is said without it
            log.append(f"(its log could not be read: {unread})")
        tail = "\n".join(line for line in log if line.strip())[-4000:].splitlines()[-_LOG_LINES:]
        sentence = str(error).strip().splitlines()[0].rstrip(".:")
        return ModalTrouble(
            "infrastructure",
            "\n".join([sentence, *tail]),
            IMAGE,
        )

    async def apps(self) -> list[DeployedApp]:
        """Return our apps that are deployed, of every version."""
        client = await self.client()
        import modal

        if self.environment:
            environment = modal.Environment.from_name(self.environment, client=client)
        else:
            environment = modal.Environment.from_context(client=client)
        present = await self.name()
        deployed = await environment.apps.list.aio()
        return [
            DeployedApp(str(app.name), str(app.app_id), app.name == present, app)
            for app in deployed
            if app.name and _OURS.fullmatch(app.name)
        ]

    async def delete_files(self) -> str:
        """Delete the volume and the queue, and return the volume's name. The apps have to be stopped before, because
        they could not start again.
        """
        client = await self.client()
        import modal

        for kind, name in ((modal.Volume, VOLUME), (modal.Queue, QUEUE)):
            objects: Any = kind.objects
            await objects.delete.aio(
                name, allow_missing=True, environment_name=self.environment, client=client
            )
        return VOLUME

    async def stop(self, app: DeployedApp) -> None:
        """End an app and all its containers."""
        await app.handle.stop.aio(client=await self.client())


async def _answered(client: Any) -> None:
    """Return once Modal answers. After a laptop was closed, connections look open and lead nowhere; Modal's client
    alone takes 40 s to notice.
    """
    try:
        async with asyncio.timeout(_ANSWER_S):
            return await client.hello.aio()
    except TimeoutError:
        _disconnect(client)
    return await client.hello.aio()


def _disconnect(client: Any) -> None:
    """Close the client's connections. It opens others for its next request and for what waits. Modal 1.6.4 has no
    public way except to close the client with all that it has made. With another version nothing is closed.
    """
    try:
        from modal._utils import async_utils

        inner: Any = cast("Any", async_utils).synchronizer._translate_in(client)  # noqa: SLF001
        for channel in list(inner._connection_manager._channels.values()):  # noqa: SLF001
            if channel.done() and not channel.cancelled() and not channel.exception():
                loop = inner._cancellation_context_event_loop  # noqa: SLF001
                loop.call_soon_threadsafe(channel.result().release_connection)
    except (AttributeError, ImportError) as error:
        log.warning("the connection to Modal cannot be opened anew: %s", error)


def attempts(say: Callable[[tenacity.RetryCallState], None] | None = None) -> tenacity.AsyncRetrying:
    """Return what repeats a call that Modal may answer better soon. One of our own errors has waited long enough."""
    import tenacity

    def again(error: BaseException) -> bool:
        return not isinstance(error, ModalError) and errors.retryable(error)

    return tenacity.AsyncRetrying(
        stop=tenacity.stop_after_attempt(TRIES),
        wait=tenacity.wait_exponential_jitter(multiplier=0.5, max=4, jitter=0.5),
        retry=tenacity.retry_if_exception(again),
        before_sleep=say,
        reraise=True,
    )


async def within(seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """Await `work`. Raises ModalError (transport) if it takes longer than allowed."""
    try:
        async with asyncio.timeout(seconds):
            return await work
    except TimeoutError:
        text = f"Modal did not answer within {seconds:g} s"
        raise ModalError(
            ModalTrouble(
                "transport", text, "check this machine's network connection, and status.modal.com", again=True
            )
        ) from None


def proxy_refusal() -> ModalTrouble | None:
    """Return why the client cannot use a proxy. It goes through the proxy that the environment names, with packages
    that not everybody wants. Without them it says after a minute that it cannot connect.
    """
    _modal()
    from modal._utils.proxy_support import get_proxy_url
    from modal.config import config

    server = urllib.parse.urlsplit(str(config.get("server_url")))
    proxy = get_proxy_url(server.hostname, use_ssl=server.scheme == "https")
    if not proxy or all(map(importlib.util.find_spec, ("python_socks", "aiohttp_socks"))):
        return None
    text = f"Modal's client needs two packages to go through the proxy that the environment names, {urllib.parse.urlsplit(proxy).hostname}"
    install = installing.command(sys.executable, "modal[api-proxy-support]")
    return ModalTrouble("transport", text, f"`{install}`, or name Modal in NO_PROXY: `.modal.com`")


def _modal_as_configured() -> Any:
    """Return `modal` with the present configuration. Modal's client reads its file only when it is imported, so a
    newer token is set in it here.
    """
    now, imported = account.stamp(), "modal.config" in sys.modules
    modal = _modal()
    if imported and now != Account.read_at:
        from modal import client, config

        # Modal 1.6.4 has no public way to read its file again
        settings, clients = cast("Any", config), cast("Any", client)
        settings._user_config = settings._read_user_config()  # noqa: SLF001
        settings._profile = os.environ.get("MODAL_PROFILE") or settings._config_active_profile()  # noqa: SLF001
        clients._Client._client_from_env = None  # noqa: SLF001
    Account.read_at = now
    return modal


def _modal() -> Any:
    os.environ.setdefault("MODAL_MAX_THROTTLE_WAIT", str(_THROTTLED_S))
    import modal

    return modal


def app_spec(settings: Settings, machine: c.Machine | None) -> ImageSpec:
    """Return the app for these settings. Its image has the author's own torch and Triton, if the author's Python has
    released versions of both.
    """
    spec = ImageSpec(
        __version__,
        pip=tuple(settings.modal.pip),
        apt=tuple(settings.modal.apt),
        idle_s=settings.modal.idle_s,
        timeout_s=math.ceil(min(settings.build_timeout_s + settings.run_timeout_s, 86_000) + 60),
    )
    if machine is None:
        return spec
    torch, triton = (_released(machine.packages.get(name)) for name in ("torch", "triton"))
    if not (torch and triton):
        return spec
    python = ".".join(machine.python_version.split(".")[:2])
    return dataclasses.replace(spec, torch=torch, triton=triton, python=python)


def _released(version: str | None) -> str | None:
    """Return `2.11.0` for `2.11.0+cu130`. Return None for a version that no index has, such as one's own build."""
    match = re.match(r"\d+(\.\d+)+(?=\+|$)", version or "")
    return match[0] if match else None
