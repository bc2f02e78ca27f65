"""Our apps on Modal: reaching the account, putting this version's app there, listing, stopping.

Imports `modal` inside its functions: so its import costs nothing before a first run on Modal.
"""

from __future__ import annotations

import asyncio
import dataclasses
import math
import os
import re
import time
from collections.abc import Coroutine
from dataclasses import field
from typing import TYPE_CHECKING, Any, TypeVar

from orbit_lsp import __version__
from orbit_lsp.runners.modal import account
from orbit_lsp.runners.modal.errors import TOKEN, ModalError, Trouble
from orbit_remote.common import messages as c
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.modal_app.image_spec import PREFIX, Spec, app_name

if TYPE_CHECKING:
    import modal

    from orbit_lsp.state.config import Settings

T = TypeVar("T")

CONTACT_S = 5.0
"""How long a first answer may take; Modal's client alone would try for 56 s."""
_FRESH_S = 2.0
"""How long an answer counts as a sign that the next one will come."""
_THROTTLED_S = 10
"""How long Modal's client itself waits where Modal throttles it, as its setting `max_throttle_wait` has it: for
ever, if nobody says otherwise."""
_LOG_LINES = 12
_OURS = re.compile(re.escape(PREFIX) + r"[\w.]+-[0-9a-f]{10}")


@dataclass(frozen=True, slots=True)
class App:
    """One of our apps as it stands on Modal; `present` is the one that this version uses."""

    name: str
    id: str
    present: bool
    handle: Any = field(default=None, repr=False, compare=False)


class Account:
    """One account, and one app on it: that of `spec`."""

    def __init__(self, spec: Spec, environment: str | None = None) -> None:
        self.spec = spec
        self.environment = environment or None
        self._name: str | None = None
        self._client: modal.Client | None = None
        self._heard = 0.0
        self._deploying: asyncio.Task[None] | None = None

    async def name(self) -> str:
        """Of the app; the first time it reads our remote code."""
        if self._name is None:
            self._name = await asyncio.to_thread(app_name, self.spec)
        return self._name

    async def client(self) -> modal.Client:
        """Raises ModalError, within about 5 s, where Modal cannot be used, as by a laptop that was closed
        meanwhile: its connections look as they did, and Modal's client alone would try them for a minute.
        """
        if self._client is not None and not self._client.is_closed():
            if time.monotonic() - self._heard > _FRESH_S:
                client: Any = self._client
                await within(CONTACT_S, client.hello.aio())
                self._heard = time.monotonic()
            return self._client
        if not account.installed():
            raise ModalError(
                Trouble(
                    "infrastructure", "the package modal is not installed", "install it: `pip install modal`"
                )
            )
        if not account.configured():
            raise ModalError(Trouble("auth", "there is no Modal token on this machine", TOKEN))
        modal = await asyncio.to_thread(_modal)
        client = await within(CONTACT_S, modal.Client.from_env.aio())
        await within(CONTACT_S, client.hello.aio())
        self._client, self._heard = client, time.monotonic()
        return client

    @property
    def deploying(self) -> bool:
        return self._deploying is not None and not self._deploying.done()

    async def deploy(self) -> None:
        """Put the app there; whoever asks while it is being put there waits for the same.

        Raises ModalError. A caller that is cancelled leaves the others, and Modal, at work.
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
            await app.deploy.aio(name=await self.name(), client=client, environment_name=self.environment)
        except exception.ImageBuildError as error:
            raise ModalError(await self._build_failed(error, client)) from None

    async def _build_failed(self, error: Any, client: modal.Client) -> Trouble:
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
        return Trouble(
            "infrastructure",
            "\n".join([sentence, *tail]),
            "check the settings `orbit.modal.pip` and `orbit.modal.apt`, which add packages to the image",
        )

    async def apps(self) -> list[App]:
        """Our apps that are deployed, of every version."""
        client = await self.client()
        import modal

        if self.environment:
            environment = modal.Environment.from_name(self.environment, client=client)
        else:
            environment = modal.Environment.from_context(client=client)
        present = await self.name()
        deployed = await environment.apps.list.aio()
        return [
            App(str(app.name), str(app.app_id), app.name == present, app)
            for app in deployed
            if app.name and _OURS.fullmatch(app.name)
        ]

    async def stop(self, app: App) -> None:
        """End an app and every container of it."""
        await app.handle.stop.aio(client=await self.client())


async def within(seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """Raises ModalError (transport) where it takes longer."""
    try:
        async with asyncio.timeout(seconds):
            return await work
    except TimeoutError:
        text = f"Modal did not answer within {seconds:g} s"
        raise ModalError(
            Trouble(
                "transport", text, "check this machine's network connection, and status.modal.com", again=True
            )
        ) from None


def _modal() -> Any:
    os.environ.setdefault("MODAL_MAX_THROTTLE_WAIT", str(_THROTTLED_S))
    import modal

    return modal


def app_spec(settings: Settings, machine: c.Machine | None) -> Spec:
    """The app for these settings. Its image has the author's own torch and Triton where the author's Python has
    released versions of both.
    """
    spec = Spec(
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
    """`2.11.0` for `2.11.0+cu130`; None for a version that no index has, as of a build of one's own."""
    match = re.match(r"\d+(\.\d+)+(?=\+|$)", version or "")
    return match[0] if match else None
