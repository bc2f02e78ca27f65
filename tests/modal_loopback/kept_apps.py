"""What an account had before a test: the apps that tests before it, in this process, have put there with the real client.

Putting one there takes the client 400 requests, a third of a second of processor time, and most tests are about what comes
after. An app comes into a world when it is first asked for by its name.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from modal_proto import api_pb2 as pb

from tests.modal_loopback.world import App, Function, Image, World


@dataclass(frozen=True)
class _Kept:
    app: App
    functions: tuple[Function, ...]
    images: tuple[Image, ...]
    mounts: dict[str, list[pb.MountFile]]
    blobs: dict[str, bytes]
    volumes: dict[str, str]


_kept: dict[tuple[str, str], _Kept] = {}


def keep(world: World) -> None:
    """Those of this world that are new and whole."""
    for app in world.apps.values():
        if app.state == pb.APP_STATE_DEPLOYED and app.functions and (app.name, app.environment) not in _kept:
            _kept[app.name, app.environment] = _whole(world, app)


def _whole(world: World, app: App) -> _Kept:
    functions = tuple(world.functions[key] for key in app.functions.values())
    images: dict[str, Image] = {}
    below = [each.definition.image_id for each in functions]
    while below:
        image = world.images.get(below.pop())
        if image and image.id not in images:
            images[image.id] = image
            below += [base.image_id for base in image.message.base_images]
    wanted = [image.message.context_mount_id for image in images.values()]
    wanted += [key for each in functions for key in each.definition.mount_ids]
    mounts = {key: world.mounts[key] for key in wanted if key in world.mounts}
    files = {file.sha256_hex for listed in mounts.values() for file in listed}
    return _Kept(
        app,
        functions,
        tuple(images.values()),
        mounts,
        {digest: world.blobs[digest] for digest in files},
        dict(world.volumes),
    )


def bring(world: World, name: str, environment: str) -> App | None:
    """A copy of the kept app in this world; None where none was kept."""
    kept = _kept.get((name, environment))
    if kept is None:
        return None
    app = dataclasses.replace(
        kept.app,
        functions=dict(kept.app.functions),
        classes=dict(kept.app.classes),
        tags=dict(kept.app.tags),
    )
    world.apps[app.id] = app
    for each in kept.functions:
        world.functions[each.id] = Function(each.id, app, each.definition, each.metadata)
    world.images |= {image.id: dataclasses.replace(image) for image in kept.images}
    world.mounts |= kept.mounts
    world.blobs |= kept.blobs
    for volume in kept.volumes.values():
        world.volume(volume)
    return app
