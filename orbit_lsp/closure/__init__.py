"""Collects the files that are sent with a job to another machine: includes, imports and data files.

`state.staleness` says what a result depends on once it exists. This module says, before anything has run, which files
another machine needs. Both name contents by the same hash.

A file that the code names is sent even if `.gitignore` excludes it: a generated header is not kept in the repository,
yet nothing compiles without it. `.orbitignore` decides what is sent, so it is obeyed here too, with a remark. Headers
of the system or of a CUDA toolkit and packages installed with pip are never sent; the other machine has its own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import field
from pathlib import Path

from orbit_lsp.closure.tree import SentTree, below
from orbit_remote.common import limits, regular_files
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.messages import content_hash
from orbit_remote.common.requests import ExecStart, Job, Manifest

Content = bytes | Path
"""A file's content, or the file that holds it."""

_MOST_REMARKS = 20


@dataclass(frozen=True, slots=True)
class Closure:
    """The tree of files that a job needs elsewhere.

    `root` is the author's folder that the tree mirrors: a file at `root/a/b.cuh` is `a/b.cuh` in the manifest.
    `contents` has the bytes of each content hash, or the file to read them from; the edited main file is bytes.
    `bytes` is the size of all files together. `remarks` say in a sentence each what was left out and why. A `refusal`
    replaces a run; then `manifest` has no files. `mapped` has the place in the tree of each folder outside `root`
    that a flag names (absolute, without `..`). `roots` are the author's folders in which imports were found, except
    for the file's own and the one it runs in: Python looks in these anyway.
    """

    root: str
    manifest: Manifest
    contents: dict[str, Content] = field(default_factory=dict[str, "Content"])
    bytes: int = 0
    remarks: tuple[str, ...] = ()
    refusal: str | None = None
    mapped: dict[str, str] = field(default_factory=dict[str, str])
    roots: tuple[str, ...] = ()


def absolute_flags(job: Job) -> tuple[str, ...]:
    """Return the job's compiler flags. Every folder and file in them is absolute and without `..`, as in `mapped`."""
    from orbit_lsp.closure import includes

    return includes.absolute(job)


_CAPTURED = re.compile(r"""\bload\(\s*["']([\w+-][\w.+-]{0,120}\.orbit\.safetensors)["']""")
"""The file of captured tensors that a launch spec loads from, in the folder of its own file."""
_OF_PYTEST = ("pytest.ini", ".pytest.ini", "pytest.toml", "pyproject.toml", "tox.ini", "setup.cfg")
"""The files in which pytest looks for its configuration (pytest's reference, "Configuration file formats")."""


def closure(
    job: Job, folders: Sequence[str], *, data: Sequence[str], limit: int, read: Sequence[str] = (),
    python_path: Sequence[str] = (),
) -> Closure:  # fmt: skip
    """Find what the job's file needs. It never raises.

    `folders` are the workspace's, `data` are patterns of files (see `closure.data`), `limit` is the bytes of all
    files together. `read` are absolute paths that an earlier build read. `python_path` is where the author's Python
    looks for modules. The job's own text is sent in place of its file; every other file is sent as it is saved.
    """
    if "\0" in job.path:
        return Closure(
            "", Manifest(content_hash(b"")), refusal="A path with a NUL in it names no file; save the file."
        )
    path = os.path.abspath(job.path)
    # a file of a revision stands in a folder of its own, which is where it runs
    above = [job.directory] if job.directory and job.directory != os.path.dirname(path) else []
    mount = job.start.mount if isinstance(job.start, ExecStart) else ""
    root = mount or _root(job.language, path, [*folders, *above])
    try:
        content = _content(job)
    except OSError as error:
        return Closure(root, Manifest(content_hash(b"")), refusal=f"{path} cannot be read: {error.strerror}.")
    tree = SentTree(root, limit, path, content, mounted=bool(mount))
    if job.language == "cuda" and job.driver is None:
        from orbit_lsp.closure import includes

        includes.follow(tree, job, read)
    else:
        from orbit_lsp.closure import imports
        from orbit_remote.common.contracts import harness_files

        beside = (
            [str(companion) for companion in harness_files.companions(Path(path), job.text)]
            if job.start.through == "contract"
            else _of_driver(job, root)
        )
        theirs = dict.fromkeys(os.path.dirname(path) for path in beside)
        if job.is_script:
            imports.follow(tree, job, (*read, *beside), (*python_path, *theirs))
        else:
            tree.take(tree.main)
        for name in beside:
            if (spot := tree.spot(name)) and spot.place not in tree.files:
                tree.take(spot, named=True)
    from orbit_lsp.closure import data as data_files

    for name in dict.fromkeys(_CAPTURED.findall(job.text)):
        captured = str(Path(path).with_name(name))
        if tree.is_file(captured) and (spot := tree.spot(captured)):
            tree.take(spot, named=True)
    data_files.follow(tree, data)
    if mount:
        data_files.mount(tree)
    tree.keep_folders()
    return _closure(tree)


def _of_driver(job: Job, root: str) -> list[str]:
    """Return the files that a driver needs besides what it imports: itself, and what pytest reads from its folder up
    to the root.
    """
    if job.driver is None or job.directory is None:
        return []
    path = Path(job.directory, job.driver.file)
    names = (*_OF_PYTEST, "conftest.py", "__init__.py") if job.driver.kind == "pytest" else ()
    folders = [folder for folder in path.parents if folder.is_relative_to(root)]
    beside = (folder / name for folder in folders for name in names)
    return [str(path), *(str(file) for file in beside if file.is_file())]


def _content(job: Job) -> bytes:
    """Return the content of the job's own file: the editor's text, or the program. Raises OSError."""
    if job.start.through == "exec" and not job.is_script:
        return regular_files.read(job.path, limits.TRAVELLING)
    return job.text.encode("utf-8", "replace")


def _root(language: str, path: str, folders: Sequence[str]) -> str:
    """Return the innermost workspace folder that holds the file, else the file's own folder or the one above its
    package.
    """
    holding = [os.path.normpath(folder) for folder in folders if below(path, os.path.abspath(folder))]
    if holding:
        return max(holding, key=len)
    folder = Path(path).parent
    if language == "triton":
        while (folder / "__init__.py").is_file() and folder.parent != folder:
            folder = folder.parent
    return str(folder)


def _closure(tree: SentTree) -> Closure:
    name = content_hash(tree.root.encode("utf-8", "surrogatepass"))
    remarks = list(tree.remarks)
    if len(remarks) > _MOST_REMARKS:
        remarks[_MOST_REMARKS:] = [f"{len(remarks) - _MOST_REMARKS} more remarks of this kind are left out."]
    refusal = tree.too_large() or " ".join(list(tree.refusals)[:3])
    if not refusal and tree.main.place not in tree.files:
        refusal = remarks[0]
    if refusal:
        return Closure(tree.root, Manifest(name), remarks=tuple(remarks), refusal=refusal)
    return Closure(
        tree.root, Manifest(name, tree.files), tree.contents, tree.bytes, tuple(remarks), mapped=tree.mapped,
        roots=tuple(os.path.join(tree.root, *place.split("/")) if place else tree.root for place in tree.roots),
    )  # fmt: skip
