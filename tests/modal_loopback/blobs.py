"""Payloads too large for a message: an RPC for the address, HTTP for the bytes."""

from __future__ import annotations

import hashlib

from aiohttp import web
from grpclib import GRPCError, Status
from modal_proto import api_pb2 as pb

from tests.modal_loopback.world import World


class Blobs:
    def __init__(self, world: World) -> None:
        self._world = world
        self._runner: web.AppRunner | None = None
        self._url = ""

    async def start(self) -> None:
        app = web.Application(client_max_size=self._world.blob_limit)
        app.router.add_put("/blob/{key}", self._put)
        app.router.add_get("/blob/{key}", self._get)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self._url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        if self._runner:
            await self._runner.cleanup()

    async def _put(self, request: web.Request) -> web.Response:
        content = await request.read()
        self._world.blobs[request.match_info["key"]] = content
        self._world.ring()
        # the client compares it with what it sent
        tag = hashlib.md5(content, usedforsecurity=False).hexdigest()
        return web.Response(headers={"ETag": f'"{tag}"'})

    async def _get(self, request: web.Request) -> web.Response:
        content = self._world.blobs.get(request.match_info["key"])
        return web.Response(status=404) if content is None else web.Response(body=content)

    async def blob_create(self, request: pb.BlobCreateRequest) -> pb.BlobCreateResponse:
        if request.content_length > self._world.blob_limit:
            raise GRPCError(
                Status.INVALID_ARGUMENT,
                f"{request.content_length} bytes are more than the {self._world.blob_limit} allowed",
            )
        key = self._world.new_id("bl")
        urls = pb.UploadUrlList(items=[f"{self._url}/blob/{key}"])
        return pb.BlobCreateResponse(blob_id=key, blob_ids=[key], upload_urls=urls)

    async def blob_get(self, request: pb.BlobGetRequest) -> pb.BlobGetResponse:
        self._world.find(self._world.blobs, request.blob_id, "Blob")
        return pb.BlobGetResponse(download_url=f"{self._url}/blob/{request.blob_id}")
