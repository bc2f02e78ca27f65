"""What containers are made of: mounted files, images, secrets, volumes.

Images are recorded, not built: a container runs the Python that runs this. Volumes are folders of the world
that its containers share at once, without Modal's commits and reloads.
"""

from __future__ import annotations

import base64
import hashlib
import shlex
import shutil
import sys
from collections.abc import AsyncIterator

from google.protobuf.empty_pb2 import Empty
from grpclib import GRPCError, Status
from modal_proto import api_pb2 as pb

from tests.modal_loopback.world import FINAL, Image, World


class Images:
    def __init__(self, world: World) -> None:
        self._world = world

    async def mount_batched_check_existence(
        self, request: pb.MountBatchedCheckExistenceRequest
    ) -> pb.MountBatchedCheckExistenceResponse:
        unknown = [digest for digest in request.sha256_hex_hashes if digest not in self._world.blobs]
        return pb.MountBatchedCheckExistenceResponse(missing_sha256_hex_hashes=unknown)

    async def mount_put_file(self, request: pb.MountPutFileRequest) -> pb.MountPutFileResponse:
        blobs = self._world.blobs
        if request.data_blob_id:
            blobs[request.sha256_hex] = self._world.find(blobs, request.data_blob_id, "Blob")
        elif request.data or request.sha256_hex == hashlib.sha256(b"").hexdigest():
            blobs[request.sha256_hex] = request.data
        return pb.MountPutFileResponse(exists=request.sha256_hex in blobs)

    async def mount_get_or_create(self, request: pb.MountGetOrCreateRequest) -> pb.MountGetOrCreateResponse:
        lost = [file.filename for file in request.files if file.sha256_hex not in self._world.blobs]
        if lost:
            raise GRPCError(Status.FAILED_PRECONDITION, f"Mount names files that were not sent: {lost}")
        key = self._world.new_id("mo")
        self._world.mounts[key] = list(request.files)
        digest = hashlib.sha256(b"".join(file.SerializeToString() for file in request.files)).hexdigest()
        return pb.MountGetOrCreateResponse(
            mount_id=key, handle_metadata=pb.MountHandleMetadata(content_checksum_sha256_hex=digest)
        )

    async def image_get_or_create(self, request: pb.ImageGetOrCreateRequest) -> pb.ImageGetOrCreateResponse:
        if request.existing_image_id:
            image = self._world.find(self._world.images, request.existing_image_id, "Image")
            return pb.ImageGetOrCreateResponse(
                image_id=image.id, result=_built(image), metadata=self._metadata()
            )
        content = request.image.SerializeToString(deterministic=True)
        key = "im-" + base64.b32encode(hashlib.sha256(content).digest()).decode()[:22]
        image = self._world.images.get(key)
        if image is None or image.failure or request.force_build or request.ignore_cache:
            image = self._world.images[key] = Image(key, request.image)
            if broken := self._world.faults.broken_build(recipe(self._world, key)):
                image.log, image.failure = broken.log, broken.message
        return pb.ImageGetOrCreateResponse(
            image_id=key, result=_built(image) if image.built else None, metadata=self._metadata()
        )

    async def image_join_streaming(
        self, request: pb.ImageJoinStreamingRequest
    ) -> AsyncIterator[pb.ImageJoinStreamingResponse]:
        image = self._world.find(self._world.images, request.image_id, "Image")
        if not image.built or request.include_logs_for_finished:
            for number, line in enumerate(image.log or (f"Recorded {image.id}, which is never built\n",)):
                text = pb.TaskLogs(
                    data=line,
                    file_descriptor=pb.FILE_DESCRIPTOR_STDOUT,
                    timestamp=self._world.now(),
                )
                yield pb.ImageJoinStreamingResponse(task_logs=[text], entry_id=f"{number + 1}-0")
        image.built = not image.failure
        yield pb.ImageJoinStreamingResponse(result=_built(image), metadata=self._metadata(), eof=True)

    def _metadata(self) -> pb.ImageMetadata:
        return pb.ImageMetadata(
            python_version_info=sys.version, image_builder_version=self._world.image_builder
        )

    async def secret_get_or_create(
        self, request: pb.SecretGetOrCreateRequest
    ) -> pb.SecretGetOrCreateResponse:
        key = f"st-{request.environment_name}-{request.deployment_name}"
        if not request.deployment_name:
            key = self._world.new_id("st")
        elif key not in self._world.secrets and not request.object_creation_type:
            raise GRPCError(Status.NOT_FOUND, f"Secret '{request.deployment_name}' not found")
        self._world.secrets.setdefault(key, {}).update(request.env_dict)
        return pb.SecretGetOrCreateResponse(secret_id=key)

    async def volume_get_or_create(
        self, request: pb.VolumeGetOrCreateRequest
    ) -> pb.VolumeGetOrCreateResponse:
        name = request.deployment_name
        if name and name not in self._world.volumes.values() and not request.object_creation_type:
            raise GRPCError(Status.NOT_FOUND, f"Volume '{name}' not found")
        key = self._world.volume(name)
        version = request.version or self._world.volume_version
        return pb.VolumeGetOrCreateResponse(
            volume_id=key, version=version, metadata=pb.VolumeMetadata(version=version, name=name)
        )

    async def volume_delete(self, request: pb.VolumeDeleteRequest) -> Empty:
        self._world.find(self._world.volumes, request.volume_id, "Volume")
        del self._world.volumes[request.volume_id]
        shutil.rmtree(self._world.folder / "volumes" / request.volume_id)
        return Empty()

    async def volume_heartbeat(self, _: pb.VolumeHeartbeatRequest) -> Empty:
        return Empty()

    async def volume_commit(self, _: pb.VolumeCommitRequest) -> pb.VolumeCommitResponse:
        return pb.VolumeCommitResponse()

    async def volume_reload(self, _: pb.VolumeReloadRequest) -> Empty:
        return Empty()


def _built(image: Image) -> pb.GenericResult:
    if image.failure:
        return FINAL(status=FINAL.GENERIC_STATUS_FAILURE, exception=image.failure)
    return FINAL(status=FINAL.GENERIC_STATUS_SUCCESS)


def _chain(world: World, key: str) -> list[pb.Image]:
    """The image and those it stands on, the first built first."""
    image = world.images.get(key)
    if image is None:
        return []
    below = [item for base in image.message.base_images for item in _chain(world, base.image_id)]
    return [*below, image.message]


def recipe(world: World, key: str) -> str:
    """Every Dockerfile command of an image and of those it stands on, a line each."""
    return "\n".join(command for image in _chain(world, key) for command in image.dockerfile_commands)


def environment(world: World, key: str) -> dict[str, str]:
    """The variables that an image's ENV commands set."""
    result: dict[str, str] = {}
    for line in recipe(world, key).splitlines():
        if line.startswith("ENV "):
            pairs = (word.partition("=") for word in shlex.split(line[4:]))
            result |= {name: value for name, equals, value in pairs if equals}
    return result


def files(world: World, function: pb.Function) -> dict[str, pb.MountFile]:
    """Absolute path in the container -> file: mounts, and what an image's COPY took from its context whole."""
    mount_files: dict[str, pb.MountFile] = {}
    for image in _chain(world, function.image_id):
        context = world.mounts.get(image.context_mount_id, [])
        for command in image.dockerfile_commands:
            words = shlex.split(command)
            if len(words) == 3 and words[0] == "COPY":
                _, source, target = words
                source = source.removeprefix(".").strip("/")
                for file in context:
                    name = file.filename.strip("/")
                    if name == source or name.startswith(f"{source}/" if source else ""):
                        inner = name.removeprefix(source).strip("/")
                        mount_files["/" + f"{target}/{inner}".strip("/")] = file
    for mount in function.mount_ids:
        mount_files |= {file.filename: file for file in world.mounts.get(mount, [])}
    return mount_files


def volume_variable(mount_path: str) -> str:
    """The name of the variable that says where a container's volume really is."""
    return "LOOPBACK_VOLUME_" + mount_path.strip("/").replace("/", "_").upper()
