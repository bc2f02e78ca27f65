"""The files that travel with a job to another machine: includes, imports and data files.

`bundle` says what a result depends on once it exists; this says, before anything has run, which files
another machine needs so that it can run at all. Both name contents by the same hash.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from orbit_remote.contracts import Manifest

Content = bytes | Path
"""A file's content, or the file that holds it."""


@dataclass(frozen=True, slots=True)
class Closure:
    """The tree that a job needs elsewhere.

    `root` is the author's folder that the tree mirrors: a file at `root/a/b.cuh` is `a/b.cuh` in the
    manifest. `contents` has the bytes of each content hash, or the file to read them from: the edited
    main file is bytes. `bytes` is the size of all files together. `remarks` say in a sentence each what
    was left out and why; a `refusal` stands instead of a run, and then `manifest` has no files.
    `mapped` leads from a folder outside `root`, as the flags name it, to its place in the tree.
    """

    root: str
    manifest: Manifest
    contents: dict[str, Content] = field(default_factory=dict[str, "Content"])
    bytes: int = 0
    remarks: tuple[str, ...] = ()
    refusal: str | None = None
    mapped: dict[str, str] = field(default_factory=dict[str, str])
