"""One container: the real `modal._container_entrypoint` in a process of its own, and the RPCs that it alone asks for.

It sees what was uploaded for it (under a root folder of its own), the installed distributions of the Python
that runs this, and the environment that Modal would give it.
"""

from __future__ import annotations

import asyncio
import codecs
import os
import signal
import sys
import time
import traceback
from pathlib import Path

from google.protobuf.empty_pb2 import Empty
from grpclib import GRPCError, Status
from modal_proto import api_pb2 as pb

from tests.modal_loopback import images
from tests.modal_loopback.calls import INLINE_LIMIT, finish
from tests.modal_loopback.processes import MODAL, READ_AT_START, SITE, Process
from tests.modal_loopback.service import Listener, Service
from tests.modal_loopback.world import FINAL, Function, Input, LogLine, World

POLL_S = 10  # how long a request for inputs is held open; the client asks again
# how long a heartbeat is held open: it carries cancellations, the client asks every 15 s and gives up after 15.1
HEARTBEAT_S = 14.9
LONGEST_BACKOFF_S = 60.0
NOWHERE = "http://127.0.0.1:9/blob"  # the port is closed
GRACE_S = 5  # from SIGINT to SIGKILL (Modal gives exit handlers 30 s)
# what `restrict_modal_access` leaves a function: to be called
RESTRICTED = frozenset(
    {
        "ClientHello",
        "ContainerHello",
        "ContainerHeartbeat",
        "FunctionGetInputs",
        "FunctionPutOutputs",
        "FunctionCallPutDataOut",
        "TaskResult",
        "BlobCreate",
        "BlobGet",
        "VolumeCommit",
        "VolumeReload",
    }
)


class Container:
    def __init__(self, world: World, function: Function) -> None:
        self.id = world.new_id("ta")
        self.function = function
        self.definition = function.definition  # deploying again gives the function another
        self.enqueued = world.now()
        self.started = self.finished = 0.0  # the server's clock
        self.pid = 0  # of its process 1
        self.exit_code: int | None = None
        self.inputs: dict[str, Input] = {}
        self.cancelled: list[str] = []  # ids of inputs, for its heartbeats
        self.interrupted: list[str] = []  # those that it has been told of
        self.ready = self.stopping = self.gone = False
        self.served = 0
        self.methods: list[str] = []  # of its inputs
        self.idle_since = time.monotonic()
        self._ended_by: str = ""  # "" | "kill" | "preemption" | "time-out"
        self._late: list[Input] = []
        self._world = world
        self._process: Process | None = None
        self.folder = world.folder / "containers" / self.id
        world.containers[self.id] = function.containers[self.id] = self

    @property
    def free(self) -> int:
        """How many more inputs it would take now."""
        if self.gone or self.stopping or (self.definition.single_use_containers and self.served):
            return 0
        return max(1, self.definition.max_concurrent_inputs) - len(self.inputs)

    # how it ends

    def kill(self) -> None:
        """SIGKILL, as for want of memory: its inputs count as crashed, unless they have their outputs."""
        self.stopping = True
        self._send(signal.SIGKILL)

    def stop(self) -> None:
        """No further inputs; exit handlers run; then it is over."""
        self.stopping = True
        self._world.ring()

    def preempt(self) -> None:
        """SIGINT; its inputs start again elsewhere, and that counts as no crash."""
        self._ended_by = "preemption"
        self.stopping = True
        self._send(signal.SIGINT)
        asyncio.get_running_loop().call_later(GRACE_S, self._send, signal.SIGKILL)

    def time_out(self, late: list[Input]) -> None:
        self._ended_by, self._late = "time-out", late
        self.kill()

    def _send(self, number: int) -> None:
        if self._process and not self.gone:
            self._process.send(number)

    # how it runs

    async def run(self) -> None:
        server = Listener(self._service())
        try:
            await self._start(server)
            await self._follow()
        except LookupError as error:  # it fails as it starts
            self._world.logs.append(
                LogLine(
                    self.id,
                    self.function.id,
                    self.function.app.id,
                    "",
                    pb.FILE_DESCRIPTOR_INFO,
                    f"{error}\n",
                    self._world.now(),
                )
            )
        except Exception:  # noqa: BLE001 - the fixture fails the test with it
            self._world.errors.append(traceback.format_exc())
        finally:
            if self._process:
                self.exit_code = await self._process.end()
            self.gone, self.finished = True, self._world.now()
            self.function.containers.pop(self.id, None)
            self._settle()
            server.drop()
            self._world.ring()

    def _service(self) -> Service:
        restricted = self.definition.untrusted
        parts: list[object] = [ContainerCalls(self._world, self)]
        parts += [NoNetwork()] * self.definition.block_network
        parts += self._world.parts
        return Service(self._world, parts, tokens=False, only=RESTRICTED if restricted else None)

    async def _start(self, server: Listener) -> None:
        for mount in self.definition.volume_mounts:
            if mount.volume_id not in self._world.volumes:
                raise LookupError(f"Volume {mount.volume_id} not found")
        root = self.folder / "root"
        for folder in (root, self.folder / "tmp"):
            folder.mkdir(parents=True)
        (self.folder / "tmp").chmod(0o1777)
        for name, file in images.files(self._world, self.definition).items():
            path = self.folder / name.lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self._world.blobs[file.sha256_hex])
            path.chmod(file.mode or 0o644)
        arguments = pb.ContainerArguments(
            task_id=self.id,
            function_id=self.function.id,
            app_id=self.function.app.id,
            function_def=self.definition,
            serialized_params=self.function.parameters,
            app_layout=self._world.layout(self.function.app),
            environment_name=self.function.app.environment,
        )
        (self.folder / "arguments.pb").write_bytes(arguments.SerializeToString())
        await server.start(path=str(self.folder / "modal.sock"))
        fresh = self._world.fresh_processes or any(
            name.startswith(READ_AT_START) for name in self._given() if name != "PYTHONPATH"
        )
        self._process = await Process.start(self.environment(), root, fresh=fresh)
        self.pid, self.started = self._process.pid, self._world.now()
        self.function.begun.append(self.started)
        self._world.ring()

    def _given(self) -> dict[str, str]:
        """The variables of its image, its secrets and the test."""
        world, made = self._world, self.definition
        given = images.environment(world, made.image_id)
        for secret in made.secret_ids:
            given |= world.secrets.get(secret, {})
        return given | {
            name: value.replace("{container}", self.id) for name, value in world.container_env.items()
        }

    def environment(self) -> dict[str, str]:
        """Over those given, the variables that Modal sets itself. Paths under a volume's mount path become paths in
        its folder, never in this machine's."""
        world, made = self._world, self.definition
        path = [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
        result = {"PATH": os.pathsep.join(path), "LANG": "C.UTF-8", "PYTHONUNBUFFERED": "1"}
        if not self.function.gpu:
            result["CUDA_VISIBLE_DEVICES"] = ""  # this machine may have one
        result |= self._given()
        # where another function of the app mounts a volume, this one has a folder of its own
        folders = {
            mount.mount_path.rstrip("/"): str(self.folder / "unmounted" / mount.volume_id)
            for function in world.functions.values()
            for mount in function.definition.volume_mounts
        }
        for mount in made.volume_mounts:
            folder = str(world.folder / "volumes" / mount.volume_id)
            result[images.volume_variable(mount.mount_path)] = folder
            folders[mount.mount_path.rstrip("/")] = folder
        for mounted, folder in folders.items():
            for name, value in result.items():
                if value == mounted or value.startswith(mounted + "/"):
                    result[name] = folder + value.removeprefix(mounted)
        paths = [SITE, str(self.folder / "root"), result.get("PYTHONPATH", ""), *MODAL]
        return result | {
            "HOME": str(self.folder / "root"),
            "TMPDIR": str(self.folder / "tmp"),
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "MODAL_SERVER_URL": f"unix://{self.folder / 'modal.sock'}",
            "MODAL_TASK_ID": self.id,
            "MODAL_IS_REMOTE": "1",
            "MODAL_IMAGE_ID": made.image_id,
            "MODAL_ENVIRONMENT": self.function.app.environment,
            "MODAL_CLOUD_PROVIDER": "CLOUD_PROVIDER_LOOPBACK",
            "MODAL_REGION": "loopback",
            "MODAL_CONTAINER_ARGUMENTS_PATH": str(self.folder / "arguments.pb"),
        }

    async def _follow(self) -> None:
        assert self._process is not None
        if self.stopping and not self.inputs:
            self._send(signal.SIGKILL)  # asked for before there was a process
        await asyncio.gather(
            self._log(self._process.stdout, pb.FILE_DESCRIPTOR_STDOUT),
            self._log(self._process.stderr, pb.FILE_DESCRIPTOR_STDERR),
        )

    async def _log(self, stream: asyncio.StreamReader, descriptor: pb.FileDescriptor.ValueType) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        while content := await stream.read(1 << 16):
            running = [item.call.id for item in self.inputs.values()]
            line = LogLine(
                self.id,
                self.function.id,
                self.function.app.id,
                running[0] if len(running) == 1 else "",
                descriptor,
                decoder.decode(content),
                self._world.now(),
            )
            self._world.logs.append(line)
            self._world.ring()

    def _settle(self) -> None:
        """What becomes of the inputs that it left without an output. Those of a deployed app begin again without end, as
        Modal documents, whether the container failed as it began or later."""
        world, code = self._world, self.exit_code
        deployed = self.function.app.state == pb.APP_STATE_DEPLOYED
        failed_to_start = not self.ready and not self.stopping
        if failed_to_start or (
            not self._ended_by and any(item.result is None for item in self.inputs.values())
        ):
            self.function.crashed.append(world.now())
            self.function.in_a_row += 1
            wait = world.backoff_s * 2 ** (self.function.in_a_row - 2) if self.function.in_a_row > 1 else 0.0
            self.function.not_before = time.monotonic() + min(wait, LONGEST_BACKOFF_S)
        for item in self.inputs.values():
            item.container = None
            if item.result is not None:
                continue
            if item in self._late:
                limit = self.definition.timeout_secs
                text = f"Task's current input hit its timeout of {limit}s"
                finish(world, item, FINAL(status=FINAL.GENERIC_STATUS_TIMEOUT, exception=text))
                continue
            if item.id in self.cancelled:
                text = "Input was cancelled by user"
                finish(world, item, FINAL(status=FINAL.GENERIC_STATUS_TERMINATED, exception=text))
                continue
            if not self._ended_by:
                item.crashes += 1
            if item.crashes > world.crash_limit and not deployed:
                text = f"Runner failed with exit code: {code}"
                finish(world, item, FINAL(status=FINAL.GENERIC_STATUS_FAILURE, exception=text))
            else:
                self.function.pending.appendleft(item)
        self.inputs.clear()
        if failed_to_start and not deployed:
            text = f"Container failed to start, exit code: {code}"
            self._end_all_pending(FINAL(status=FINAL.GENERIC_STATUS_INIT_FAILURE, exception=text))

    def _end_all_pending(self, result: pb.GenericResult) -> None:
        pending = self.function.pending
        while pending:
            finish(self._world, pending.popleft(), result)

    def refuse_work(self, result: pb.GenericResult) -> None:
        """Importing or `@enter` failed: whatever waits for such a container ends with that, unless its app is deployed."""
        if self.function.app.state != pb.APP_STATE_DEPLOYED:
            self._end_all_pending(result)


class NoNetwork:
    """What a container without network gets of the blob store: addresses that it does not reach."""

    async def blob_get(self, _: pb.BlobGetRequest) -> pb.BlobGetResponse:
        return pb.BlobGetResponse(download_url=NOWHERE)

    async def blob_create(self, _: pb.BlobCreateRequest) -> pb.BlobCreateResponse:
        return pb.BlobCreateResponse(blob_id="bl-nowhere", upload_url=NOWHERE)


class ContainerCalls:
    def __init__(self, world: World, container: Container) -> None:
        self._world = world
        self._container = container

    async def container_hello(self, _: Empty) -> Empty:
        return Empty()

    async def container_heartbeat(self, _: pb.ContainerHeartbeatRequest) -> pb.ContainerHeartbeatResponse:
        """Tells of cancelled inputs until they are over: the client drops what it is told of an input that it has
        not begun, and does nothing when it hears it twice."""
        container = self._container

        def open_() -> list[str]:
            return [key for key in container.cancelled if key in container.inputs]

        if not await self._world.until(open_, HEARTBEAT_S if self._world.heartbeats_held else 0):
            return pb.ContainerHeartbeatResponse()
        cancelled = open_()
        container.interrupted += [key for key in cancelled if key not in container.interrupted]
        self._world.ring()
        return pb.ContainerHeartbeatResponse(cancel_input_event=pb.CancelInputEvent(input_ids=cancelled))

    async def function_get_inputs(self, _: pb.FunctionGetInputsRequest) -> pb.FunctionGetInputsResponse:
        container, pending = self._container, self._container.function.pending
        if not container.ready:
            container.ready, container.idle_since = True, time.monotonic()
            self._world.ring()
        await self._world.until(lambda: container.stopping or pending, POLL_S)
        if container.stopping:
            last = pb.FunctionGetInputsItem(kill_switch=True)
            return pb.FunctionGetInputsResponse(inputs=[last])
        if not pending:
            return pb.FunctionGetInputsResponse()
        item = pending.popleft()
        item.container, item.started = container, time.monotonic()
        item.deliveries += 1
        container.inputs[item.id] = item
        container.served += 1
        container.methods.append(item.message.method_name)
        return pb.FunctionGetInputsResponse(
            inputs=[
                pb.FunctionGetInputsItem(
                    input_id=item.id,
                    input=item.message,
                    function_call_id=item.call.id,
                    function_call_invocation_type=item.call.invocation,
                    retry_count=item.retries,
                    function_map_idx=item.index,
                )
            ]
        )

    async def function_put_outputs(self, request: pb.FunctionPutOutputsRequest) -> Empty:
        if any(len(output.result.data) > INLINE_LIMIT for output in request.outputs):
            raise GRPCError(Status.INVALID_ARGUMENT, f"An output is larger than {INLINE_LIMIT} bytes")
        for output in request.outputs:
            if item := self._container.inputs.pop(output.input_id, None):
                finish(self._world, item, output.result, output.data_format)
                self._container.function.in_a_row = 0
        self._container.idle_since = time.monotonic()
        return Empty()

    async def function_call_put_data_out(self, request: pb.FunctionCallPutDataRequest) -> Empty:
        call = self._world.find(self._world.function_calls, request.function_call_id, "Function call")
        call.data.extend(request.data_chunks)
        return Empty()

    async def task_result(self, request: pb.TaskResultRequest) -> Empty:
        self._container.refuse_work(request.result)
        return Empty()
