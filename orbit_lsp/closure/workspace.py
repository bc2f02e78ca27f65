"""Collects all files of a folder, for a notebook whose cells run on another machine."""

from __future__ import annotations

import os

from orbit_lsp.closure import Closure, data
from orbit_lsp.closure.tree import SentTree, is_private, shown
from orbit_remote.common.messages import content_hash
from orbit_remote.common.requests import Manifest


def workspace(folder: str, limit: int) -> Closure:
    """Return the files of `folder` without hidden ones and those that ignore files exclude. It never raises. `limit`
    is the bytes of all together. A home folder is not sent: it holds more than a notebook's files.
    """
    name = content_hash(os.fsencode(folder))
    if is_private(folder):
        remark = f"no files are sent: {shown(folder)} is a home folder, or holds or hides more than a notebook's files"
        return Closure(folder, Manifest(name), remarks=(remark,))
    if not os.path.isdir(folder):  # else all files of the other machine would be removed
        return Closure(
            folder, Manifest(name), refusal=f"the notebook's folder {shown(folder)} is gone; make it again"
        )
    tree = SentTree(folder, limit, folder, b"", mounted=True)
    tree.remedy = "Move the notebook into a folder of its own"
    data.mount(tree)
    if refusal := tree.too_large() or " ".join(list(tree.refusals)[:3]):
        return Closure(folder, Manifest(name), refusal=refusal)
    return Closure(folder, Manifest(name, tree.files), tree.contents, tree.bytes, tuple(tree.remarks))
