"""pygls' protocol with its known faults worked around, each named."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, cast

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException
from pygls.protocol import LanguageServerProtocol, lsp_method


class OrbitProtocol(LanguageServerProtocol):
    """Documents are the session's own (see `documents`), so pygls keeps none."""

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
            callback(future)

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
        except JsonRpcException as error:
            if "id" in data and "method" in data:
                self._send_response(data["id"], error=error.to_response_error())
            raise

    @lsp_method(lsp.TEXT_DOCUMENT_DID_OPEN)
    def lsp_text_document__did_open(self, params: lsp.DidOpenTextDocumentParams) -> Any:
        yield from self._users(lsp.TEXT_DOCUMENT_DID_OPEN, params)

    @lsp_method(lsp.TEXT_DOCUMENT_DID_CHANGE)
    def lsp_text_document__did_change(self, params: lsp.DidChangeTextDocumentParams) -> Any:
        yield from self._users(lsp.TEXT_DOCUMENT_DID_CHANGE, params)

    @lsp_method(lsp.TEXT_DOCUMENT_DID_CLOSE)
    def lsp_text_document__did_close(self, params: lsp.DidCloseTextDocumentParams) -> Any:
        yield from self._users(lsp.TEXT_DOCUMENT_DID_CLOSE, params)

    def _users(self, method: str, params: object) -> Generator[Any, Any, None]:
        yield cast("Any", self.fm.features[method]), (params,), None
