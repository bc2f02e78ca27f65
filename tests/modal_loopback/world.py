"""What the control plane knows, what a test may turn in it, and the one way to wait for a change.

Everything here is touched on the loop's thread alone; `Loopback` is the way in from another thread.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from google.protobuf.message import Message
from grpclib import GRPCError, Status
from modal_proto import api_pb2 as pb

from tests.modal_loopback.faults import Faults

if TYPE_CHECKING:
    from tests.modal_loopback.containers import Container

Found = TypeVar("Found")
FINAL = pb.GenericResult
ENVIRONMENT = "main"
TOKEN = ("ak-loopback", "as-loopback")
# modal.com/docs/guide/gpu
GPUS = frozenset(
    [
        "T4",
        "L4",
        "A10",
        "A10G",
        "L40S",
        "A100",
        "A100-40GB",
        "A100-80GB",
        "RTX-PRO-6000",
        "H100",
        "H100!",
        "H200",
        "B200",
        "B200+",
        "ANY",
    ]
)


@dataclass(eq=False)
class App:
    id: str
    name: str
    environment: str
    created: float
    state: pb.AppState.ValueType = pb.APP_STATE_INITIALIZING
    version: int = 0
    deployed: float = 0.0
    stopped: float = 0.0
    functions: dict[str, str] = field(default_factory=dict[str, str])
    classes: dict[str, str] = field(default_factory=dict[str, str])
    tags: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def over(self) -> bool:
        return self.state == pb.APP_STATE_STOPPED


@dataclass(eq=False)
class Function:
    """A function, or one option set of it: the unit that has a queue of inputs and a pool of containers."""

    id: str
    app: App
    definition: pb.Function
    metadata: pb.FunctionHandleMetadata
    base: Function | None = None
    parameters: bytes = b""
    options: pb.FunctionOptions = field(default_factory=pb.FunctionOptions)
    pending: collections.deque[Input] = field(default_factory=collections.deque["Input"])
    containers: dict[str, Container] = field(default_factory=dict[str, "Container"])
    # what `autoscaler.update` set
    autoscaler: pb.AutoscalerSettings = field(default_factory=pb.AutoscalerSettings)
    begun: list[float] = field(
        default_factory=list[float]
    )  # when its containers began, by the server's clock
    crashed: list[float] = field(default_factory=list[float])
    in_a_row: int = 0  # crashes since a container last answered an input
    not_before: float = 0.0  # time.monotonic(): the crash-loop back-off

    @property
    def gpu(self) -> str:
        return self.definition.resources.gpu_config.gpu_type

    @property
    def settings(self) -> pb.AutoscalerSettings:
        """The definition's settings, with those of `autoscaler.update` over them."""
        made = self.definition
        settings = pb.AutoscalerSettings(
            min_containers=made.warm_pool_size,
            scaledown_window=made.task_idle_timeout_secs or 60,  # seconds; Modal's default
        )
        if made.concurrency_limit:
            settings.max_containers = made.concurrency_limit
        settings.MergeFrom(made.autoscaler_settings)
        settings.MergeFrom(self.autoscaler)
        return settings


@dataclass(eq=False)
class Call:
    id: str
    function: Function
    invocation: pb.FunctionCallInvocationType.ValueType
    created: float
    inputs: list[Input] = field(default_factory=list["Input"])
    outputs: list[pb.FunctionGetOutputsItem] = field(default_factory=list[pb.FunctionGetOutputsItem])
    data: list[pb.DataChunk] = field(default_factory=list[pb.DataChunk])

    @property
    def over(self) -> bool:
        return len(self.outputs) == len(self.inputs)


@dataclass(eq=False)
class Input:
    id: str
    call: Call
    index: int
    message: pb.FunctionInput
    container: Container | None = None
    started: float = 0.0  # time.monotonic() of this attempt
    deliveries: int = 0
    crashes: int = 0
    retries: int = 0
    result: pb.GenericResult | None = None


@dataclass(frozen=True)
class LogLine:
    container: str
    function: str
    app: str
    call: str
    descriptor: pb.FileDescriptor.ValueType
    text: str
    time: float


@dataclass
class Image:
    id: str
    message: pb.Image
    built: bool = False
    log: tuple[str, ...] = ()
    failure: str = ""


def nothing_before(world: World, name: str, environment: str) -> App | None:
    return None


_numbers = itertools.count(1)
"""Of all worlds: what one has kept may come into another (kept_apps.py)."""


class World:
    def __init__(self, folder: Path, container_env: Mapping[str, str]) -> None:
        self.folder = folder
        self.container_env = dict(container_env)
        self._changed = asyncio.Event()

        # what a test may turn
        self.tokens: dict[str, str] = dict([TOKEN])
        self.workspace = "loopback"
        self.capacity: int | None = None  # containers that may live at once; None: no bound
        self.crash_limit = (
            2  # of an app that is not deployed: a deployed one begins a crashed input again without end
        )
        self.backoff_s = 1.0  # before a third container in a row; then twice as long each time
        self.image_builder = "2026.10"  # of the workspace: the newest that modal 1.6.4 names
        self.volume_version: pb.VolumeFsVersion.ValueType = (
            pb.VOLUME_FS_VERSION_V1
        )  # of one for which nobody asks another
        self.heartbeats_held = True  # until there is something to tell; else they are answered at once
        self.clock_skew_s = 0.0  # how far the server's clock is ahead of this machine's
        self.silent_queues = False
        self.tamper: Callable[[bytes, list[bytes]], list[bytes]] = lambda partition, items: items
        self.fresh_processes = False  # containers are not forked, but started
        self.blob_limit = 1 << 32  # bytes of one input or output
        self.rates: dict[str, str] = {}  # resource -> dollars, as Workspace.billing.rates() gives them
        self.before = nothing_before  # gives an app that was there before the test
        self.faults = Faults()
        self.parts: Sequence[object] = ()  # who answers which RPC

        # what a test may look at
        self.calls_of = collections.Counter[str]()
        self.requests: collections.deque[tuple[str, Message]] = collections.deque(maxlen=2000)
        self.missing: set[str] = set()
        self.errors: list[str] = []
        self.environments = {ENVIRONMENT: self.new_id("en")}
        self.apps: dict[str, App] = {}
        self.functions: dict[str, Function] = {}
        self.variants: dict[tuple[str, bytes, bytes], Function] = {}
        self.function_calls: dict[str, Call] = {}
        self.inputs: dict[str, Input] = {}
        self.containers: dict[str, Container] = {}  # those that ended too
        self.logs: list[LogLine] = []
        self.blobs: dict[str, bytes] = {}
        self.mounts: dict[str, list[pb.MountFile]] = {}
        self.images: dict[str, Image] = {}
        self.secrets: dict[str, dict[str, str]] = {}
        self.volumes: dict[str, str] = {}  # id -> name

    def new_id(self, kind: str) -> str:
        return f"{kind}-{next(_numbers):022d}"

    def now(self) -> float:
        """The server's clock, in seconds since 1970."""
        return time.time() + self.clock_skew_s

    def find(self, table: Mapping[str, Found], key: str, what: str) -> Found:
        result = table.get(key)
        if result is None:
            raise GRPCError(Status.NOT_FOUND, f"{what} {key} not found")
        return result

    def deployed(self, name: str, environment: str) -> App | None:
        for app in self.apps.values():
            if (app.name, app.environment, app.state) == (name, environment, pb.APP_STATE_DEPLOYED):
                return app
        if any((app.name, app.environment) == (name, environment) for app in self.apps.values()):
            return None  # it was there, and was stopped
        return self.before(self, name, environment)

    def volume(self, name: str) -> str:
        """The id of the volume of this name; without one, of a new volume."""
        known = [key for key, other in self.volumes.items() if name and other == name]
        # one name has the same id in every world, as apps that are kept know it
        key = known[0] if known else f"vo-{name}" if name else self.new_id("vo")
        self.volumes[key] = name
        folder = self.folder / "volumes" / key
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o777)  # a volume belongs to whoever mounts it
        return key

    def layout(self, app: App) -> pb.AppLayout:
        """What the app holds, and every object that its functions close over."""
        made = pb.AppLayout(function_ids=app.functions, class_ids=app.classes)
        for key in app.functions.values():
            function = self.find(self.functions, key, "Function")
            made.objects.add(object_id=key, function_handle_metadata=function.metadata)
            for dependency in function.definition.object_dependencies:
                entry = made.objects.add(object_id=dependency.object_id)
                if dependency.object_id in self.volumes:
                    entry.volume_metadata.version = self.volume_version
        for key in app.classes.values():
            made.objects.add(object_id=key, class_handle_metadata=pb.ClassHandleMetadata())
        return made

    def alive(self) -> list[Container]:
        return [container for container in self.containers.values() if not container.gone]

    def but_for(self, method: str) -> list[Container]:
        """The containers that ever were, but for those that had calls of this method only."""
        return [container for container in self.containers.values() if set(container.methods) != {method}]

    def ring(self) -> None:
        """Something changed: whoever waits looks again."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def change(self, limit_s: float) -> None:
        """Wait for the next change."""
        waiting = self._changed
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await waiting.wait()

    async def until(self, holds: Callable[[], object], limit_s: float | None) -> bool:
        """Wait until `holds()`. Nothing else runs between its truth and the return."""
        try:
            async with asyncio.timeout(limit_s):
                while not holds():
                    await self._changed.wait()
                return True
        except TimeoutError:
            return bool(holds())
