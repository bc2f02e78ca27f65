"""Modal's queues, with the limits that its guide names (modal.com/docs/guide/queues)."""

from __future__ import annotations

import asyncio
import collections

from google.protobuf.empty_pb2 import Empty
from grpclib import GRPCError, Status
from modal_proto import api_pb2 as pb

from tests.modal_loopback.world import ENVIRONMENT, World

ITEM_LIMIT = 1 << 20  # bytes
PARTITION_LIMIT = 5_000  # items
CREATES = frozenset(
    {pb.OBJECT_CREATION_TYPE_CREATE_IF_MISSING, pb.OBJECT_CREATION_TYPE_CREATE_FAIL_IF_EXISTS}
)


class Queue:
    def __init__(self, name: str, environment: str) -> None:
        self.name, self.environment = name, environment
        # entries are (number, item): the number is what iterating clients go on from
        self.partitions = collections.defaultdict[bytes, collections.deque[tuple[int, bytes]]](
            collections.deque[tuple[int, bytes]]
        )
        self.count = 0


class Queues:
    """The time to live of a partition is ignored: nothing here lives a day."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._queues: dict[str, Queue] = {}

    def expire(self, *, named: bool) -> None:
        for key in [key for key, queue in self._queues.items() if named or not queue.name]:
            del self._queues[key]

    def _queue(self, key: str) -> Queue:
        return self._world.find(self._queues, key, "Queue")

    async def queue_get_or_create(self, request: pb.QueueGetOrCreateRequest) -> pb.QueueGetOrCreateResponse:
        name, environment = request.deployment_name, request.environment_name or ENVIRONMENT
        known = [
            key
            for key, queue in self._queues.items()
            if name and (queue.name, queue.environment) == (name, environment)
        ]
        creation = request.object_creation_type
        if known and creation == pb.OBJECT_CREATION_TYPE_CREATE_FAIL_IF_EXISTS:
            raise GRPCError(Status.ALREADY_EXISTS, f"Queue '{name}' exists already")
        if not known and name and creation not in CREATES:
            raise GRPCError(Status.NOT_FOUND, f"Queue '{name}' not found in environment '{environment}'")
        key = known[0] if known else self._world.new_id("qu")
        self._queues.setdefault(key, Queue(name, environment))
        return pb.QueueGetOrCreateResponse(queue_id=key, metadata=pb.QueueMetadata(name=name))

    async def queue_get_by_id(self, request: pb.QueueGetByIdRequest) -> pb.QueueGetByIdResponse:
        queue = self._queue(request.queue_id)
        return pb.QueueGetByIdResponse(queue_id=request.queue_id, metadata=pb.QueueMetadata(name=queue.name))

    async def queue_heartbeat(self, request: pb.QueueHeartbeatRequest) -> Empty:
        self._queue(request.queue_id)
        return Empty()

    async def queue_delete(self, request: pb.QueueDeleteRequest) -> Empty:
        self._queue(request.queue_id)
        del self._queues[request.queue_id]
        return Empty()

    async def queue_put(self, request: pb.QueuePutRequest) -> Empty:
        queue = self._queue(request.queue_id)
        partition = queue.partitions[request.partition_key]
        values = self._world.tamper(request.partition_key, list(request.values))
        if any(len(value) > ITEM_LIMIT for value in values):
            raise GRPCError(Status.INVALID_ARGUMENT, f"An item is larger than {ITEM_LIMIT} bytes")
        if len(partition) + len(values) > PARTITION_LIMIT:
            raise GRPCError(Status.RESOURCE_EXHAUSTED, f"A partition holds at most {PARTITION_LIMIT} items")
        for value in values:
            queue.count += 1
            partition.append((queue.count, value))
        return Empty()

    async def queue_get(self, request: pb.QueueGetRequest) -> pb.QueueGetResponse:
        partition = self._queue(request.queue_id).partitions[request.partition_key]
        if self._world.silent_queues:
            await asyncio.sleep(request.timeout)
            return pb.QueueGetResponse()
        await self._world.until(lambda: partition, request.timeout)
        results = [partition.popleft()[1] for _ in range(min(request.n_values or 1, len(partition)))]
        return pb.QueueGetResponse(values=results)

    async def queue_next_items(self, request: pb.QueueNextItemsRequest) -> pb.QueueNextItemsResponse:
        partition = self._queue(request.queue_id).partitions[request.partition_key]
        after = int(request.last_entry_id or 0)

        def newer() -> list[tuple[int, bytes]]:
            return [entry for entry in partition if entry[0] > after]

        if self._world.silent_queues:
            await asyncio.sleep(request.item_poll_timeout)
            return pb.QueueNextItemsResponse()
        await self._world.until(newer, request.item_poll_timeout)
        return pb.QueueNextItemsResponse(
            items=[pb.QueueItem(value=value, entry_id=str(number)) for number, value in newer()]
        )

    async def queue_len(self, request: pb.QueueLenRequest) -> pb.QueueLenResponse:
        partitions = self._queue(request.queue_id).partitions
        chosen = partitions.values() if request.total else [partitions[request.partition_key]]
        return pb.QueueLenResponse(len=sum(len(partition) for partition in chosen))

    async def queue_clear(self, request: pb.QueueClearRequest) -> Empty:
        partitions = self._queue(request.queue_id).partitions
        if request.all_partitions:
            partitions.clear()
        else:
            partitions.pop(request.partition_key, None)
        return Empty()
