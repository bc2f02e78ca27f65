"""How many containers there are, and for how long: Modal's autoscaler as its guide describes it, bounded by
what one machine bears and by the capacity that a test grants."""

from __future__ import annotations

import asyncio
import time

from tests.modal_loopback.calls import finish
from tests.modal_loopback.containers import Container
from tests.modal_loopback.world import FINAL, Function, World

MOST = 4  # containers of one function where it names no max_containers
TICK_S = 0.1


class Fleet:
    def __init__(self, world: World) -> None:
        self._world = world
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Bring what is to what should be, after every change."""
        while True:
            for container in self._world.alive():
                self._judge(container)
            for function in list(self._world.functions.values()):
                self._supply(function)
            await self._world.change(TICK_S)

    async def stop(self) -> None:
        for container in self._world.alive():
            container.kill()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def idle_out(self) -> list[Container]:
        """End every idle container now, those kept warm too, as if its window had passed."""
        idle = [container for container in self._world.alive() if container.ready and not container.inputs]
        for container in idle:
            container.stop()
        return idle

    def _judge(self, container: Container) -> None:
        if container.stopping:
            return
        function, now = container.function, time.monotonic()
        limit = container.definition.timeout_secs
        late = [item for item in container.inputs.values() if limit and now - item.started > limit]
        if function.app.over:
            container.kill()
        elif late:
            container.time_out(late)
        elif container.definition is not function.definition:
            container.stop()
        elif container.ready and not container.inputs:
            settings = function.settings
            spare = len(function.containers) > settings.min_containers
            if spare and now - container.idle_since > settings.scaledown_window:
                container.stop()

    def _supply(self, function: Function) -> None:
        if function.app.over:
            while function.pending:
                text = "The app was stopped"
                ended = FINAL(status=FINAL.GENERIC_STATUS_TERMINATED, exception=text)
                finish(self._world, function.pending.popleft(), ended)
            return
        if time.monotonic() < function.not_before:
            return
        settings = function.settings
        alive = [container for container in function.containers.values() if not container.stopping]
        published = function.id in function.app.functions.values() or function.base is not None
        kept = settings.min_containers - len(alive) if published else 0
        wanted = max(kept, len(function.pending) - sum(container.free for container in alive))
        most = settings.max_containers or max(MOST, settings.min_containers)
        for _ in range(min(wanted, most - len(alive))):
            capacity = self._world.capacity
            if capacity is not None and len(self._world.alive()) >= capacity:
                return
            task = asyncio.create_task(Container(self._world, function).run())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
