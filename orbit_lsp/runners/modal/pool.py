"""Containers by GPU, and the queue that carries the events of their jobs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from orbit_lsp.runners.modal.deploy import Account
from orbit_lsp.state import modal_gpus
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.requests import Job
from orbit_remote.modal_app.image_spec import QUEUE, ImageSpec


async def _always(gpu: str) -> bool:
    del gpu
    return True


@dataclass(frozen=True, slots=True)
class AuthorKnowledge:
    """What the author's side knows of a job's file when it is asked.

    `compiled`: its text, with these flags, has just been compiled without an error. `read`: absolute paths that its
    last build read. `python_path`: where the author's Python looks for modules. `may_keep`: whether the budget allows
    to keep a GPU warm.
    """

    compiled: Callable[[Job], bool] = lambda _: False
    read: Callable[[Job], Sequence[str]] = lambda _: ()
    python_path: Callable[[], Sequence[str]] = tuple
    may_keep: Callable[[str], Awaitable[bool]] = _always


@dataclass(frozen=True, slots=True)
class ModalOptions:
    """Options of the runner. `folders` are the workspace's; `environment` is Modal's, "" for the account's own.

    `data` are patterns of data files that are sent too, and `closure_bytes` is the most to send in all. `restricted`
    is for code that is not the author's: it gets a container of its own, without network. `keep_warm`: the container
    of a first run on a GPU is kept until it is released. `released`: a command's containers are released at its end,
    so that none costs anything while it waits for another run.
    """

    spec: ImageSpec
    folders: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    closure_bytes: int = 256 << 20
    environment: str = ""
    restricted: bool = False
    keep_warm: bool = False
    released: bool = False


class ContainerPool:
    def __init__(self, options: ModalOptions, author: AuthorKnowledge | None = None) -> None:
        self.options = options
        self.author = author or AuthorKnowledge()
        self.account = Account(options.spec, options.environment)
        self._handles: dict[tuple[str, bool], Any] = {}
        self._queue: Any = None

    async def handle(self, gpu: str | None, *, restricted: bool = False) -> Any:
        """Return the object whose methods are called in a container of `gpu`; None is a machine without one.
        `restricted`: the container is for code that is not the author's.

        Raises what `Account.client` raises, and ValueError for a GPU that Modal does not have. A missing app only
        shows at the first call.
        """
        client = await self.account.connected()
        name = gpu or "", restricted
        if name not in self._handles:
            import modal

            cls = modal.Cls.from_name(
                await self.account.name(),
                "Stranger" if restricted else "Worker",
                client=client,
                environment_name=self.options.environment or None,
            )
            spec = self.options.spec
            limits: dict[str, Any] = {"timeout": spec.timeout_s}
            if not restricted:
                limits["scaledown_window"] = spec.idle_s
            if gpu:
                limits["gpu"] = modal_gpus.asked(gpu)
            self._handles[name] = cls.with_options(**limits)()
        return self._handles[name]

    def forget(self) -> None:
        """Forget the handles, because the app was not there."""
        self._handles.clear()

    async def queue(self) -> Any:
        """Return the queue. It is the same for every app and editor of the account; each run has its own partitions
        in it. It has a name because Modal forgets a queue without one if its owner gives no sign for minutes, as a
        laptop that sleeps.
        """
        if self._queue is None:
            import modal

            queue: Any = modal.Queue.from_name(
                QUEUE, create_if_missing=True, environment_name=self.options.environment or None
            )
            await queue.hydrate.aio(await self.account.connected())
            self._queue = queue
        return self._queue

    def forget_queue(self, queue: Any) -> None:
        """Forget a queue that somebody has deleted. The next run makes it again."""
        if queue is self._queue:
            self._queue = None
