"""From the descriptors of Modal's protocol to handlers: an RPC `AppCreate` is answered by a method
`app_create` of one of the parts, and recorded as missing where no part has it."""

from __future__ import annotations

import asyncio
import functools
import re
import traceback
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from grpclib import GRPCError, Status
from grpclib.const import Cardinality, Handler
from grpclib.protocol import H2Protocol
from grpclib.server import Server, Stream
from modal._utils.grpc_utils import custom_detail_codec
from modal_proto import api_pb2 as pb

from tests.modal_loopback.world import World

SERVICE = pb.DESCRIPTOR.services_by_name["ModalClient"]
CARDINALITY = {
    (False, False): Cardinality.UNARY_UNARY,
    (False, True): Cardinality.UNARY_STREAM,
    (True, False): Cardinality.STREAM_UNARY,
    (True, True): Cardinality.STREAM_STREAM,
}


def snake(rpc: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", rpc).lower()


@functools.cache
def rpcs() -> list[tuple[MethodDescriptor, str, Cardinality, type[Message], type[Message]]]:
    """Each RPC, its name as a method, its cardinality, its request, its response; there are hundreds, and services come and go."""
    return [
        (
            method,
            snake(method.name),
            CARDINALITY[method.client_streaming, method.server_streaming],
            GetMessageClass(method.input_type),
            GetMessageClass(method.output_type),
        )
        for method in SERVICE.methods
    ]


class Service:
    """One peer's view of the control plane: a client (tokens are checked) or one container."""

    def __init__(
        self, world: World, parts: Sequence[object], *, tokens: bool, only: Iterable[str] | None = None
    ) -> None:
        self.world = world
        self.parts = parts
        self.tokens = tokens
        self.only = None if only is None else frozenset(only)

    def __mapping__(self) -> dict[str, Handler]:
        return {
            f"/{SERVICE.full_name}/{method.name}": Handler(
                self._handler(method, name), cardinality, request, response
            )
            for method, name, cardinality, request, response in rpcs()
        }

    def _handler(self, method: MethodDescriptor, name: str) -> Any:
        world, rpc = self.world, method.name
        results = [part for part in self.parts if hasattr(part, name)]
        # the method's type differs from RPC to RPC
        answer: Any = getattr(results[0], name) if results and not method.client_streaming else None

        async def handle(stream: Stream[Any, Any]) -> None:
            world.calls_of[rpc] += 1
            try:
                self._admit(rpc, stream, known=answer is not None)
                request = await stream.recv_message()
                if request is None:
                    return
                world.requests.append((rpc, request))
                if slow := world.faults.slowed(rpc):
                    slow.waiting += 1
                    world.ring()
                    await world.until(slow.done, None)
                if method.server_streaming:
                    async for part in answer(request):
                        await stream.send_message(part)
                else:
                    await stream.send_message(await answer(request))
            except GRPCError:
                raise
            except Exception:
                world.errors.append(f"{rpc}: {traceback.format_exc()}")
                raise
            finally:
                world.ring()

        return handle

    def _admit(self, rpc: str, stream: Stream[Any, Any], *, known: bool) -> None:
        if self.tokens and not rpc.startswith("TokenFlow"):
            self._check_token(stream)
        self.world.faults.strike(rpc)
        if self.only is not None and rpc not in self.only:
            raise GRPCError(Status.PERMISSION_DENIED, f"A function with restricted access may not call {rpc}")
        if not known:
            self.world.missing.add(rpc)
            raise GRPCError(Status.UNIMPLEMENTED, f"The loopback control plane has no {rpc}")

    def _check_token(self, stream: Stream[Any, Any]) -> None:
        given: Mapping[str, str | bytes] = stream.metadata if stream.metadata is not None else {}
        token, secret = given.get("x-modal-token-id"), given.get("x-modal-token-secret")
        if not token or self.world.tokens.get(str(token)) != secret:
            raise GRPCError(Status.UNAUTHENTICATED, "Token ID is malformed or unknown")


class _Connection(H2Protocol):
    silent = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if not self.silent:
            super().data_received(data)

    def silence(self) -> None:
        self.silent = True

        def swallow(_: object) -> None: ...

        transport: Any = self.transport
        transport.write = transport.writelines = swallow


class Listener(Server):
    """A gRPC server that can also die as a machine does: without a word to its peers."""

    def __init__(self, service: Service) -> None:
        super().__init__([service], status_details_codec=custom_detail_codec)
        self._connections: list[_Connection] = []

    def _protocol_factory(self) -> H2Protocol:
        made = super()._protocol_factory()
        connection = _Connection(made.handler, self._config, self._h2_config)
        self._connections.append(connection)
        return connection

    def silence(self) -> None:
        """As a machine in between that has forgotten its connections: what comes on them is swallowed, and new ones are
        taken."""
        for connection in self._connections:
            connection.silence()

    def drop(self) -> None:
        self.close()
        for connection in self._connections:
            transport = getattr(connection, "transport", None)
            if isinstance(transport, asyncio.WriteTransport):
                transport.abort()
        self._connections.clear()
