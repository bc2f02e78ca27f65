"""The life of a call as its caller sees it: inputs in, outputs and logs out, cancelling."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

from google.protobuf.empty_pb2 import Empty
from grpclib import GRPCError, Status
from modal_proto import api_pb2 as pb

from tests.modal_loopback.world import FINAL, Call, Input, LogLine, World

# ends that `retries=` of a function runs again
RETRIED = frozenset(
    {
        FINAL.GENERIC_STATUS_FAILURE,
        FINAL.GENERIC_STATUS_TIMEOUT,
        FINAL.GENERIC_STATUS_INTERNAL_FAILURE,
    }
)
INLINE_LIMIT = 2 << 20  # bytes of one input or output in a message (MAX_OBJECT_SIZE_BYTES of the client)
SPAWNED_LIMIT = 8 << 10  # the same of a call that is spawned (MAX_ASYNC_OBJECT_SIZE_BYTES)
FOLLOW_S = 55  # how long a stream of logs or data is held open at most


def finish(world: World, item: Input, result: pb.GenericResult, data_format: int = 0) -> None:
    """The input's output, unless it has one or its function's `retries=` allow another attempt (made at
    once: back-off is not emulated)."""
    if item.result is not None:
        return
    call = item.call
    item.container = None
    if result.status in RETRIED and item.retries < call.function.definition.retry_policy.retries:
        item.retries += 1
        call.function.pending.append(item)
    else:
        item.result = result
        call.outputs.append(
            pb.FunctionGetOutputsItem(
                result=result,
                idx=item.index,
                input_id=item.id,
                data_format=pb.DataFormat.ValueType(data_format),
                output_created_at=world.now(),
                retry_count=item.retries,
            )
        )
    world.ring()


class Calls:
    def __init__(self, world: World) -> None:
        self._world = world

    def _call(self, key: str) -> Call:
        return self._world.find(self._world.function_calls, key, "Function call")

    async def function_map(self, request: pb.FunctionMapRequest) -> pb.FunctionMapResponse:
        function = self._world.find(self._world.functions, request.function_id, "Function")
        if function.app.over:
            raise GRPCError(Status.NOT_FOUND, f"Function {function.id} not found: its app is stopped")
        call = Call(
            self._world.new_id("fc"), function, request.function_call_invocation_type, self._world.now()
        )
        self._world.function_calls[call.id] = call
        return pb.FunctionMapResponse(
            function_call_id=call.id,
            pipelined_inputs=[self._put(call, item) for item in request.pipelined_inputs],
            function_call_jwt=call.id,
            retry_policy=function.definition.retry_policy,
        )

    async def function_put_inputs(self, request: pb.FunctionPutInputsRequest) -> pb.FunctionPutInputsResponse:
        call = self._call(request.function_call_id)
        return pb.FunctionPutInputsResponse(inputs=[self._put(call, item) for item in request.inputs])

    async def function_finish_inputs(self, request: pb.FunctionFinishInputsRequest) -> Empty:
        self._call(request.function_call_id)
        return Empty()

    def _put(self, call: Call, given: pb.FunctionPutInputsItem) -> pb.FunctionPutInputsResponseItem:
        called = call.invocation == pb.FUNCTION_CALL_INVOCATION_TYPE_ASYNC
        if len(given.input.args) > (SPAWNED_LIMIT if called else INLINE_LIMIT):
            raise GRPCError(Status.INVALID_ARGUMENT, f"An input is larger than {INLINE_LIMIT} bytes")
        item = Input(self._world.new_id("in"), call, given.idx, given.input)
        self._world.inputs[item.id] = item
        call.inputs.append(item)
        if self._world.faults.results:
            finish(self._world, item, self._world.faults.results.popleft())
        else:
            call.function.pending.append(item)
        return pb.FunctionPutInputsResponseItem(idx=item.index, input_id=item.id, input_jwt=item.id)

    async def function_get_outputs(
        self, request: pb.FunctionGetOutputsRequest
    ) -> pb.FunctionGetOutputsResponse:
        call = self._call(request.function_call_id)
        seen = int(request.last_entry_id.partition("-")[0] or 0)

        def chosen() -> list[pb.FunctionGetOutputsItem]:
            if request.HasField("start_idx"):
                return [out for out in call.outputs[seen:] if request.start_idx <= out.idx <= request.end_idx]
            return call.outputs[seen:]

        await self._world.until(chosen, request.timeout)
        return pb.FunctionGetOutputsResponse(
            outputs=chosen(),
            last_entry_id=f"{len(call.outputs)}-0",
            num_unfinished_inputs=len(call.inputs) - len(call.outputs),
        )

    async def function_call_get_data_out(
        self, request: pb.FunctionCallGetDataRequest
    ) -> AsyncIterator[pb.DataChunk]:
        call = self._call(request.function_call_id)
        sent, end = request.last_index, time.monotonic() + FOLLOW_S

        def more() -> bool:
            return len(call.data) > sent

        while await self._world.until(lambda: more() or call.over, end - time.monotonic()) and more():
            yield call.data[sent]
            sent += 1

    async def function_call_cancel(self, request: pb.FunctionCallCancelRequest) -> Empty:
        """Waiting inputs end at once; running ones are interrupted in their container, or it is killed."""
        for item in self._call(request.function_call_id).inputs:
            if item.result is not None:
                continue
            container = item.container
            if container and not request.terminate_containers:
                container.cancelled.append(item.id)
                continue
            if container:
                container.kill()
            elif item in item.call.function.pending:
                item.call.function.pending.remove(item)
            terminated = FINAL(
                status=FINAL.GENERIC_STATUS_TERMINATED, exception="Input was cancelled by user"
            )
            finish(self._world, item, terminated)
        return Empty()

    async def function_call_from_id(
        self, request: pb.FunctionCallFromIdRequest
    ) -> pb.FunctionCallFromIdResponse:
        call = self._call(request.function_call_id)
        return pb.FunctionCallFromIdResponse(
            function_call_id=call.id,
            num_inputs=len(call.inputs),
            metadata=pb.FunctionCallHandleMetadata(app_id=call.function.app.id, function_id=call.function.id),
        )

    async def function_call_get_info(
        self, request: pb.FunctionCallGetInfoRequest
    ) -> pb.FunctionCallGetInfoResponse:
        call = self._call(request.function_call_id)

        def having(*statuses: int) -> pb.InputCategoryInfo:
            return pb.InputCategoryInfo(total=sum(out.result.status in statuses for out in call.outputs))

        return pb.FunctionCallGetInfoResponse(
            info=pb.FunctionCallInfo(
                function_call_id=call.id,
                created_at=call.created,
                total_inputs=len(call.inputs),
                pending_inputs=pb.InputCategoryInfo(total=len(call.inputs) - len(call.outputs)),
                succeeded_inputs=having(FINAL.GENERIC_STATUS_SUCCESS),
                failed_inputs=having(
                    FINAL.GENERIC_STATUS_FAILURE,
                    FINAL.GENERIC_STATUS_INIT_FAILURE,
                    FINAL.GENERIC_STATUS_INTERNAL_FAILURE,
                ),
                timeout_inputs=having(FINAL.GENERIC_STATUS_TIMEOUT),
                cancelled_inputs=having(FINAL.GENERIC_STATUS_TERMINATED),
            )
        )

    async def app_get_logs(self, request: pb.AppGetLogsRequest) -> AsyncIterator[pb.TaskLogsBatch]:
        app = self._world.find(self._world.apps, request.app_id, "App")
        logs = self._world.logs
        seen = int(request.last_entry_id.partition("-")[0] or 0)
        end = time.monotonic() + (request.timeout or FOLLOW_S)

        def more() -> bool:
            return len(logs) > seen

        while await self._world.until(lambda: more() or app.over, end - time.monotonic()) and more():
            line = logs[seen]
            seen += 1
            if line.app == app.id and request.function_call_id in {"", line.call}:
                yield _batch(line, seen)
        if app.over:
            yield pb.TaskLogsBatch(app_done=True, entry_id=f"{seen}-0")

    async def app_fetch_logs(self, request: pb.AppFetchLogsRequest) -> pb.AppFetchLogsResponse:
        """The last `limit` lines of an app, or of one of its functions."""
        since, until = (moment.ToNanoseconds() / 1e9 for moment in (request.since, request.until))
        chosen = [
            (number, line)
            for number, line in enumerate(self._world.logs, 1)
            if line.app == request.app_id
            and request.function_id in {"", line.function}
            and since <= line.time <= until
        ]
        return pb.AppFetchLogsResponse(
            batches=[_batch(line, number) for number, line in chosen[-request.limit :]]
        )


def _batch(line: LogLine, number: int) -> pb.TaskLogsBatch:
    text = pb.TaskLogs(
        data=line.text,
        file_descriptor=line.descriptor,
        timestamp=line.time,
        function_call_id=line.call,
        container_id=line.container,
    )
    return pb.TaskLogsBatch(
        task_id=line.container, function_id=line.function, entry_id=f"{number}-0", items=[text]
    )
