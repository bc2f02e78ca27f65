"""pygls' protocol, with a workaround for each of its known faults."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Generator
from typing import Any, cast

from cattrs import Converter
from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException, JsonRpcInvalidParams
from pygls.protocol import LanguageServerProtocol, default_converter, lsp_method


def converter() -> Converter:
    """Return pygls' converter without detailed validation. pygls 2.1.1 names every fault of a message, which takes 8
    s for one with 100,000 wrong tags.
    """
    made = default_converter()
    made.detailed_validation = False
    return made


def _by_the_server(method: str) -> Any:
    """Return a method that calls the server's own handler, without what pygls does before."""

    @lsp_method(method)
    def handle(self: OrbitProtocol, params: Any) -> Generator[Any, Any, None]:
        yield cast("Any", self.fm.features[method]), (params,), None

    return handle


class OrbitProtocol(LanguageServerProtocol):
    """The protocol without pygls' documents: the session has its own (see `documents`)."""

    def _execute_handler(
        self,
        msg_id: Any,
        handler: Any,
        callback: Callable[[Any], None],
        args: Any = None,
        kwargs: Any = None,
    ) -> None:
        # pygls 2.1.1 keeps the future of every notification for ever: two kilobytes a keystroke
        def done(future: Any) -> None:
            self._request_futures.pop(msg_id, None)
            if future.cancelled() or future.exception() or not inspect.isawaitable(future.result()):
                callback(future)
                return
            later = asyncio.ensure_future(
                future.result()
            )  # a handler that answers at once where that is quick
            self._request_futures[msg_id] = later
            later.add_done_callback(done)

        super()._execute_handler(msg_id, handler, done, args, kwargs)

    def _handle_request(self, msg_id: Any, method_name: str, params: Any) -> None:
        # a request about a text that takes long to scan waits for that beside the event loop, and alone
        server = cast("Any", self._server)
        uri = server.asked_about(params)
        if uri is None or server.is_settled(uri):
            super()._handle_request(msg_id, method_name, params)
        else:
            server.spawn(self._once_settled(uri, msg_id, method_name, params), "settle")

    async def _once_settled(self, uri: str, msg_id: Any, method_name: str, params: Any) -> None:
        await cast("Any", self._server).settle(uri)
        super()._handle_request(msg_id, method_name, params)

    def structure_message(self, data: dict[str, Any]) -> Any:
        # pygls 2.1.1 leaves a request that it cannot read without an answer, and the client waiting
        try:
            return super().structure_message(data)
        except JsonRpcException:
            error = JsonRpcInvalidParams()
            if "id" in data and "method" in data:
                self._send_response(data["id"], error=error.to_response_error())
            raise error from None

    status = 0
    """Of the process: 1 once a client has left without `shutdown`, as the specification wants."""
    _began = False

    def handle_message(self, message: Any) -> None:
        """Answer every message with an id. An invalid message gets an answer without one."""
        # pygls 2.1.1 raises for an array, and leaves requests after `shutdown` without an answer
        method, number = (getattr(message, name, None) for name in ("method", "id"))
        if method is None and getattr(message, "jsonrpc", None) != self.VERSION:
            self._refuse(None, "this is not a message of JSON-RPC 2.0, or it is several at once")
        elif method is None or method == lsp.EXIT:
            super().handle_message(message)
        elif number is None:
            if self._began and not self._shutdown:
                super().handle_message(message)
        elif not isinstance(number, int | str):
            self._refuse(None, "the id of a request is a number or a text")
        elif message.jsonrpc != self.VERSION:
            self._refuse(number, "only JSON-RPC 2.0 is supported")
        elif self._shutdown:
            self._refuse(number, "the server has been shut down: only `exit` may follow")
        elif self._began and method == lsp.INITIALIZE:
            self._refuse(number, "the server is already initialized")
        elif self._began or method == lsp.INITIALIZE:
            self._began = True
            super().handle_message(message)
        else:
            self._refuse(number, "`initialize` has to come first", lsp.ErrorCodes.ServerNotInitialized)

    def refuse_body(self, error: Exception) -> None:
        """Refuse a body that is no JSON, or no message that can be read."""
        self._refuse(None, f"the message cannot be read: {error!s:.200}", lsp.ErrorCodes.ParseError)

    def _refuse(self, number: Any, why: str, code: int = lsp.ErrorCodes.InvalidRequest) -> None:
        # pygls 2.1.1 leaves an id away that is null
        self._send_data({"jsonrpc": self.VERSION, "id": number, "error": {"code": int(code), "message": why}})

    def _handle_cancel_notification(self, msg_id: Any) -> None:
        # pygls 2.1.1 logs each that comes after the answer, as they do from every client
        if msg_id in self._request_futures:
            super()._handle_cancel_notification(msg_id)

    @lsp_method(lsp.SHUTDOWN)
    def lsp_shutdown(self, *args: Any) -> Generator[Any, Any, None]:
        """Shut down as pygls 2.1.1 does, but also while a request is still being answered. pygls fails then, because
        each cancelled request removes itself from the collection that pygls iterates.
        """
        yield cast("Any", self.fm).features[lsp.SHUTDOWN], args, None
        for number, answer in list(self._request_futures.items()):
            if number != self.msg_id and not answer.done():
                answer.cancel()
        self._shutdown = True

    @lsp_method(lsp.EXIT)
    def lsp_exit(self, *args: Any) -> Generator[Any, Any, None]:
        self.status = 0 if self._shutdown else 1  # pygls 2.1.1 exits with it, and catches that
        yield from cast("Any", super()).lsp_exit(*args)

    lsp_text_document__did_open = _by_the_server(lsp.TEXT_DOCUMENT_DID_OPEN)
    lsp_text_document__did_change = _by_the_server(lsp.TEXT_DOCUMENT_DID_CHANGE)
    lsp_text_document__did_close = _by_the_server(lsp.TEXT_DOCUMENT_DID_CLOSE)
    lsp_notebook_document__did_open = _by_the_server(lsp.NOTEBOOK_DOCUMENT_DID_OPEN)
    lsp_notebook_document__did_change = _by_the_server(lsp.NOTEBOOK_DOCUMENT_DID_CHANGE)
    lsp_notebook_document__did_close = _by_the_server(lsp.NOTEBOOK_DOCUMENT_DID_CLOSE)
