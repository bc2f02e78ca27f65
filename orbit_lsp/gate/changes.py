"""Finds the kernels of a change: those whose digest differs from the base, each with a job of either side, grouped by
what runs them.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path

from orbit_lsp.closure import includes
from orbit_lsp.engine.engine import Engine
from orbit_lsp.history import git, variants
from orbit_lsp.history.compare_candidates import Candidate
from orbit_lsp.history.variants import (
    NotFetchedVariantError,
    NoVariantError,
    UnchangedVariantError,
    Variant,
)
from orbit_lsp.kernels import language_of
from orbit_lsp.kernels.model import RUNNABLE
from orbit_lsp.kernels.python.dsls import MAKER_WORD
from orbit_lsp.runs import driver_search
from orbit_lsp.state import harness, user_folders
from orbit_lsp.state.kernel_ids import KernelId
from orbit_lsp.state.session import uri_of
from orbit_remote.common import limits, regular_files
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.requests import BY_AUTHOR, Job

_BRANCHES = ("origin/HEAD", "origin/main", "origin/master", "main", "master")
_OF_CI = ("GITHUB_BASE_REF", "BUILDKITE_PULL_REQUEST_BASE_BRANCH", "CI_MERGE_REQUEST_TARGET_BRANCH_NAME")
"""Variables in which GitHub, Buildkite and GitLab name the branch that a change is for."""
_IMPORT = re.compile(r"^[ \t]*(?:from[ \t]+([.\w]+)|import[ \t]+([.\w, \t]+))", re.MULTILINE)


class NoBaseError(ValueError):
    """There is nothing to compare a change with. The text is the sentence to show."""


@dataclass(frozen=True, slots=True)
class ChangedKernel:
    """A kernel in the working tree (`now`) and in the base. `base` is None if the kernel cannot be compared, for
    `reason`; `now` if it cannot be run.
    """

    file: str
    target: KernelId
    name: str
    line: int
    now: Variant | None = None
    base: Variant | None = None
    reason: str = ""


@dataclass(slots=True)
class GateUnit:
    """Kernels that the same two jobs run. The first has the jobs."""

    kernels: list[ChangedKernel]

    @property
    def jobs(self) -> tuple[Variant, Variant | None]:
        now = self.kernels[0].now
        assert now
        return now, self.kernels[0].base


@dataclass(slots=True)
class GateChange:
    """A change. `unchanged` counts the kernels that are the same in the base; `left_out` are those that cannot be
    run.
    """

    tree: git.Checkout
    base_name: str
    units: list[GateUnit] = field(default_factory=list[GateUnit])
    left_out: list[ChangedKernel] = field(default_factory=list[ChangedKernel])
    unchanged: int = 0

    @property
    def kernels(self) -> list[ChangedKernel]:
        """Return the kernels that run."""
        return [kernel for unit in self.units for kernel in unit.kernels]

    @property
    def compared(self) -> list[ChangedKernel]:
        return [kernel for kernel in self.kernels if kernel.base]


def base_of(folder: str, named: str | None, environment: Mapping[str, str]) -> tuple[str, str]:
    """Return the commit to compare with, and its name for people: the one that is named, else the newest that HEAD
    shares with the branch that the change is for. Blocking. Raises GitError and NoBaseError.
    """
    if not git.has_commits(folder):
        raise NoBaseError(
            f"the repository of {folder} has no commit yet, so there is nothing to compare with"
        )
    if named is not None:
        commit = git.commit_of(folder, named)
        return commit, named if commit.startswith(named) else f"{named} ({commit[:7]})"
    of_ci = [f"origin/{branch}" for name in _OF_CI if (branch := environment.get(name, "").strip())]
    for branch in (*of_ci, *_BRANCHES):
        try:
            git.commit_of(folder, branch)
        except git.GitError as error:
            if "knows no revision" not in str(error):
                raise
            if branch in of_ci:
                text = f"the base branch {branch} is not here: fetch it (`fetch-depth: 0`), or name the base with --base"
                raise NoBaseError(text) from None
            continue
        commit = git.merge_base(folder, "HEAD", branch)
        return commit, f"{branch} ({commit[:7]})"
    if git.is_shallow(folder):
        raise NoBaseError(f"this clone is shallow and has no branch main or master: {git.WHOLE_HISTORY}")
    raise NoBaseError("the repository has no branch main or master: name the base, as in --base HEAD~1")


def check_inside(root: str, paths: Sequence[str]) -> None:
    """Check that all paths are in the repository whose top folder is `root`. Raises NoBaseError. Blocking."""
    top = Path(os.path.realpath(root))
    for path in paths:
        if not Path(os.path.realpath(path)).is_relative_to(top):
            raise NoBaseError(f"{path} is not in the repository {root}: run a gate for each repository")


async def find(
    engine: Engine,
    tree: git.Checkout,
    base_name: str,
    paths: Sequence[str],
    folder: Path,
    *,
    every: bool,
    warn: Callable[[str], object],
) -> GateChange:
    """Find the kernels under the absolute `paths`. `folder` is for files of the base, and exists as long as the gate.
    `every`: unchanged kernels too. Raises NoVariantError if the content of the base is not here.
    """
    change = GateChange(tree, base_name)
    if not (tree.changed or every):
        return change
    for place, text in await asyncio.to_thread(_files, tree, paths, every=every):
        uri = uri_of(str(Path(tree.root, *place.split("/"))))
        engine.session.open(uri, 1, text)
        for refused in await engine.places.compilations.find(uri):
            warn(refused)
        await driver_search.look(engine.session, uri, user_folders.driver_index, engine.history.learn)
        for kernel in _kernels(engine, place, uri):
            await _add(engine, change, kernel, folder, every=every)
    return change


def _files(tree: git.Checkout, paths: Sequence[str], *, every: bool) -> list[tuple[str, str]]:
    """Return the place and the text of each file under `paths` that may have kernels that changed. Blocking."""
    texts: dict[str, str] = {}
    for place in tree.sources:
        try:
            texts[place] = regular_files.text(Path(tree.root, *place.split("/")), limits.SOURCE)
        except (OSError, ValueError):
            continue
    reached = set(texts) if every else _reached(tree.changed, texts)
    inside = [os.path.relpath(path, tree.root).replace(os.sep, "/") for path in map(os.path.realpath, paths)]
    return [
        (place, text)
        for place, text in texts.items()
        if place in reached
        and any(each in (".", place) or place.startswith(f"{each}/") for each in inside)
        and _may_have_kernels(place, text)
    ]


def _may_have_kernels(place: str, text: str) -> bool:
    if place.lower().endswith(".py"):
        harnessed = "ModelNew" in text or "custom_kernel" in text
        return harnessed or "__global__" in text or bool(MAKER_WORD.search(text.encode("utf-8", "replace")))
    return language_of(place, text) == "cuda"


def _reached(changed: frozenset[str], texts: Mapping[str, str]) -> set[str]:
    """Return the files that changed, and those that may include or import one of them, also through others. Only
    names count: what differs is decided later, for these few.
    """
    users: dict[str, set[str]] = {}
    for place, text in texts.items():
        for name in _named(place, text):
            users.setdefault(name, set()).add(place)
    reached, waiting = set(changed), list(changed)
    while waiting:
        path = Path(waiting.pop())
        name = (
            path.name if path.suffix != ".py" else path.parent.name if path.stem == "__init__" else path.stem
        )
        for place in users.get(name, set()) - reached:
            reached.add(place)
            waiting.append(place)
    return reached


def _named(place: str, text: str) -> set[str]:
    """Return names of files that a text includes, and of modules that it imports."""
    if not place.endswith(".py"):
        return {Path(each.name).name for each in includes.parse(text.encode("utf-8", "replace")).includes}
    names: set[str] = set()
    for match in _IMPORT.finditer(text):
        line = text[match.start() : text.find("\n", match.start()) + 1 or len(text)]
        names.update(re.findall(r"\w+", line))
    return names


def _kernels(engine: Engine, place: str, uri: str) -> list[ChangedKernel]:
    """Return the kernels of an open file that can be run. A harness's file has the harness, which launches its
    kernels.
    """
    if contract := harness.of(engine.session, uri):
        return [ChangedKernel(place, contract.target, contract.name, contract.span.line + 1)]
    return [
        ChangedKernel(place, target, target.key, kernel.line + 1)
        for target, kernel, _ in engine.session.kernels(uri)
        if kernel.launchable and kernel.dsl in RUNNABLE
    ]


async def _add(
    engine: Engine, change: GateChange, kernel: ChangedKernel, folder: Path, *, every: bool
) -> None:
    session = engine.session
    base = Candidate("revision", change.tree.base)
    try:
        now = variants.now(session, kernel.target)
    except NoVariantError as reason:
        if every or kernel.file in change.tree.changed:
            change.left_out.append(replace(kernel, reason=str(reason)))
        return
    try:
        then = await variants.against(session, engine.history, now, base, folder)
        kernel = replace(kernel, now=now, base=replace(then, name="the base"))
    except UnchangedVariantError:
        if not every:
            change.unchanged += 1
            return
        kernel = replace(kernel, now=now, base=replace(now, name="the base"))
    except NotFetchedVariantError:  # a gate that compares nothing must not look like a pass
        raise
    except NoVariantError as reason:
        kernel = replace(kernel, now=now, reason=str(reason))
    unit = next((unit for unit in change.units if _is_run_by(unit, kernel)), None)
    if unit:
        unit.kernels.append(kernel)
    else:
        change.units.append(GateUnit([kernel]))


def _is_run_by(unit: GateUnit, kernel: ChangedKernel) -> bool:
    """Return whether the jobs of a unit also run this kernel: the same program or driver launches it."""
    now, base = unit.jobs
    if kernel.now is None or now.job.start.through not in BY_AUTHOR:
        return False
    return _same(now.job, kernel.now.job) and (
        base is kernel.base is None
        or (base is not None and kernel.base is not None and _same(base.job, kernel.base.job))
    )


def _same(one: Job, other: Job) -> bool:
    return replace(one, run="", kernel=None) == replace(other, run="", kernel=None)
