"""A job and its files as they are sent to Modal: the request, and the contents that the other side does not have yet."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from orbit_lsp.closure import Closure
from orbit_lsp.runners import sent_files
from orbit_lsp.runners.modal.errors import ModalError, ModalTrouble
from orbit_remote.common import requests
from orbit_remote.common.requests import Job
from orbit_remote.modal_app.image_spec import pack


def request(job: Job, tree: Closure, key: str, secret: str, *, built: bool) -> bytes:
    """Return the request for the container. `key` names the job there, `secret` signs its events, `built` says that
    another container has just built it.
    """
    more = {"secret": secret, "contract": requests.VERSION, "built": built}
    return pack(sent_files.message(job, tree, key) | more)


def read(tree: Closure, digests: Iterable[str]) -> dict[str, bytes]:
    """Return the compressed contents by hash. Raises ModalError if a file was deleted or changed."""
    try:
        return sent_files.read(tree, digests)
    except sent_files.SentFileError as error:
        raise ModalError(
            ModalTrouble("infrastructure", str(error), "run it again", again=error.again)
        ) from None


def size(tree: Closure, digests: Iterable[str]) -> int:
    """Return the bytes of these contents before they are compressed."""
    return sum(_size(tree.contents[digest]) for digest in digests)


def _size(content: bytes | Path) -> int:
    if isinstance(content, bytes):
        return len(content)
    try:
        return content.stat().st_size
    except OSError:
        return 0
