"""A job and its files as they are sent: the request, and the contents that the other side does not have yet."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path

from orbit_lsp.closure import Closure, absolute_flags
from orbit_lsp.runners.modal.errors import ModalError, Trouble
from orbit_remote.common import limits, regular_files
from orbit_remote.common import messages as c
from orbit_remote.modal_app.image_spec import pack


def request(job: c.Job, tree: Closure, key: str, secret: str, *, built: bool) -> bytes:
    """What the container's `Request` is made of; `key` names the job there, `secret` signs its
    events, `built` says that another container has just built it.
    """
    flags = absolute_flags(job) if job.language == "cuda" else job.flags
    message = {
        "job": asdict(replace(job, run=key, flags=flags, roots=tree.roots)),
        "manifest": asdict(tree.manifest),
        "folders": {tree.root: ""} | tree.mapped,
        "secret": secret,
        "contract": c.VERSION,
        "built": built,
    }
    return pack(message)


def read(tree: Closure, digests: Iterable[str]) -> dict[str, bytes]:
    """Contents by hash, compressed. Raises ModalError if a file was deleted or changed."""
    contents: dict[str, bytes] = {}
    for digest in digests:
        content = tree.contents[digest]
        try:
            data = content if isinstance(content, bytes) else regular_files.read(content, limits.TRAVELLING)
        except OSError as error:
            text = f"{error.filename} cannot be read: {error.strerror}"
            raise ModalError(Trouble("infrastructure", text, "run it again")) from None
        if c.content_hash(data) != digest:
            text = f"{content if isinstance(content, Path) else 'a file'} changed while it was read"
            raise ModalError(Trouble("infrastructure", text, "run it again", again=True))
        contents[digest] = zlib.compress(data, 1)
    return contents


def size(tree: Closure, digests: Iterable[str]) -> int:
    """Bytes of these contents, before they are compressed."""
    return sum(_size(tree.contents[digest]) for digest in digests)


def _size(content: bytes | Path) -> int:
    if isinstance(content, bytes):
        return len(content)
    try:
        return content.stat().st_size
    except OSError:
        return 0
