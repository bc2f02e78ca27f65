"""What a kernel can be compared with: an earlier version, a git revision, another file or kernel, another GPU.

A side is the job that a click on another text would make. If its headers differ too, the text is written to a
folder of its own, with those headers.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from dataclasses import replace
from pathlib import Path

from orbit_lsp import closure, kernels
from orbit_lsp.closure import includes
from orbit_lsp.history import git
from orbit_lsp.history.compare_candidates import Candidate
from orbit_lsp.history.history_store import HistoryEntry
from orbit_lsp.history.history_tracker import HistoryTracker
from orbit_lsp.history.version_groups import when
from orbit_lsp.kernels import Kernel
from orbit_lsp.runners.modal import spending
from orbit_lsp.specs import job_builder, launch_plan
from orbit_lsp.specs.launch_plan import LaunchPlan
from orbit_lsp.state import harness, modal_gpus
from orbit_lsp.state.documents import split_lines
from orbit_lsp.state.kernel_ids import KernelId, identify
from orbit_lsp.state.session import Frozen, Session, header_reader, path_of, uri_of
from orbit_remote.common import architectures, limits, regular_files
from orbit_remote.common import messages as c
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.requests import Action, DriverStart, Job, ProgramStart

_CLOSURE_BYTES = 256 << 20
_NOW = "now"


class NoVariantError(Exception):
    """There is nothing to compare with of the kind that was asked for, or it cannot be run. The text is the sentence
    to show.
    """

    category: c.Outcome = "infrastructure"
    remedy = "nothing was compared"


class UnfitVariantError(NoVariantError):
    """The text of a variant is at fault. `remedy` is what its author can do."""

    category: c.Outcome = "compile error"

    def __init__(self, text: str, remedy: str = NoVariantError.remedy) -> None:
        super().__init__(text)
        self.remedy = remedy


class NotFetchedVariantError(NoVariantError):
    """The content of the revision is not on this machine."""


class UnchangedVariantError(NoVariantError):
    """The two sides are the same. That is an answer, not a failure."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One side of a comparison. `session` has only the text that runs, under the name of the file. `remarks` are
    sentences that a reader of the verdict has to know.
    """

    name: str
    target: KernelId
    session: Session
    frozen: Frozen
    job: Job
    plan: LaunchPlan
    digest: str
    remarks: tuple[str, ...] = ()


def now(session: Session, target: KernelId, action: Action = "run") -> Variant:
    """Return the kernel in the editor's text, to run or to compile. Raises NoVariantError."""
    return _side(session, target, session.files[target.uri].document.text, _NOW, action=action)


async def against(
    session: Session, versions: HistoryTracker, side: Variant, wanted: Candidate, folder: Path
) -> Variant:
    """Return the other side. `folder` is for the files of a revision, and exists as long as the comparison. Raises
    NoVariantError.
    """
    target = side.target
    match wanted.kind:
        case "last" | "version":
            return await _earlier(session, versions, side, wanted.name)
        case "revision":
            return await asyncio.to_thread(_revision, session, side, wanted.name, folder)
        case "file":
            return await asyncio.to_thread(_file, session, target, wanted.name, side.job.action)
        case "kernel":
            here = Path(path_of(target.uri)).name
            return _side(
                session, KernelId(target.uri, wanted.name), side.frozen.text, wanted.name, file_name=here
            )
        case "gpu":
            return _gpu(session, side, wanted.name)
        case "text":
            return await asyncio.to_thread(_text, session, side, wanted.name)


def _side(
    session: Session,
    target: KernelId,
    text: str,
    name: str,
    spec: str = "",
    file_name: str = "",
    action: Action = "run",
) -> Variant:
    """Make a side from a text. `spec` is the present launch spec as `LaunchPlan.lines` has it, for a kernel without
    one of its own. `file_name` is where the kernel is looked for, if that is not the side's name.
    """
    scratch = Session(setup=session.setup, client=session.client)
    remarks: tuple[str, ...] = ()
    file = scratch.open(target.uri, 0, text)
    which = (
        f"the present text of {Path(path_of(target.uri)).name}"
        if name == _NOW
        else f"the other text, {name},"
    )
    if file is None:
        raise UnfitVariantError(f"{path_of(target.uri)} is not a .cu, .cuh or .py file")
    if beside := session.files.get(target.uri):
        file.compilation = beside.compilation
    if not harness.named(target):
        kernel = _kernel(scratch, target, file_name or name)
        scratch.routes, scratch.results = (
            session.routes,
            replace(
                scratch.results,
                runs=session.results.runs,
                learned=session.results.learned,
                pinned=session.results.pinned,
            ),
        )
        plan = launch_plan.of(scratch, target.uri, kernel, target)
        if plan.driver and plan.driver.kind == "program" and beside and text != beside.document.text:
            raise UnfitVariantError(
                f"{which} cannot be run: {target.key} runs through {plan.driver.short}, which is built of the saved files",
                f"write a launch spec above {target.key} (`orbit-lsp draft` proposes one), or measure a second worktree",
            )
        if spec and plan is launch_plan.PROGRAM:
            lines = split_lines(text)
            at = kernel.whole.line
            mark = "//" if file.scan.language == "cuda" else "#"
            lines[at:at] = [f"{mark} orbit:{line}\n" for line in spec.splitlines()]
            return replace(
                _side(session, target, "".join(lines), name, action=action),
                remarks=(f"{name} has no launch spec: the present one is used",),
            )
        if action == "run" and plan is launch_plan.PROGRAM and not file.scan.entries:
            host = "a main" if file.scan.language == "cuda" else "an entry point"
            raise UnfitVariantError(
                f"{which} has neither a launch spec above {target.key} nor {host}, so it cannot be run",
                f"write a launch spec above {target.key} (`orbit-lsp draft` proposes one), or add {host} that launches it",
            )
        if action == "run" and plan.swept:
            remarks = ("of a sweep, the first values are compared",)
        if action == "run" and spec and spec != plan.lines:
            remarks += (f"{name} has another launch spec, so the times may be of other work",)
    elif not harness.holds(scratch, target):
        raise UnfitVariantError(f"{which} has no {harness.named(target)} that can be checked")
    plan = job_builder.plan_of(scratch, target)
    frozen = scratch.freeze(target.uri)
    assert frozen
    job = job_builder.make(scratch, frozen, action, "", plan if action == "run" else launch_plan.PROGRAM)
    if job.project_program:
        job = job_builder.through_driver(scratch, job, target, (), repeated=False)
    if action == "run" and (why := job_builder.refusal(job, plan)):
        raise UnfitVariantError(f"{which} cannot be run: {why}", "correct it, and compare again")
    digests = {kernel: digest for kernel, _, digest in scratch.kernels(target.uri)}
    digest = digests.get(target) or harness.digest(text)
    return Variant(
        name,
        target,
        scratch,
        frozen,
        job,
        plan,
        digest,
        remarks,
    )


def _kernel(session: Session, target: KernelId, name: str) -> Kernel:
    kernel = session.find(target)
    if kernel is None:
        have = ", ".join(kernel.key for kernel, _, _ in session.kernels(target.uri)) or "none"
        raise UnfitVariantError(f"there is no kernel {target.key} in {name}; it has: {have}")
    if not kernel.launchable:
        raise UnfitVariantError(f"{target.key} is called by other kernels and cannot be launched by itself")
    return kernel


# -- from the history -------------------------------------------------------------------------------


async def _earlier(session: Session, versions: HistoryTracker, side: Variant, digest: str) -> Variant:
    """Return the side of the last run of another version of the kernel, or of the version whose digest begins with
    `digest`.
    """
    target = side.target
    entries = await versions.entries(path_of(target.uri), target.key)
    earlier = (entry for entry in reversed(entries) if entry.digest != side.digest and entry.text)
    chosen = next((entry for entry in earlier if entry.digest.startswith(digest)), None)
    text = await versions.text(chosen.text) if chosen else None
    if chosen is None or text is None:
        raise NoVariantError(f"the history has no run of another version of {target.key} to compare with")
    name = f"the version of {when(chosen)}"
    made = _side(session, target, text, name, side.plan.lines)
    changed = _changed_files(chosen)
    if not changed:
        return made
    remark = f"{', '.join(changed[:3])} changed since that run and is taken as it is now"
    return replace(made, remarks=(*made.remarks, remark))


def _changed_files(entry: HistoryEntry) -> list[str]:

    files = entry.result.files or {}
    return [
        Path(path).name
        for path, known in files.items()
        if path != entry.path and regular_files.file_hash(path) != known
    ]


# -- from git ---------------------------------------------------------------------------------------


def _revision(session: Session, side: Variant, name: str, folder: Path) -> Variant:
    target = side.target
    path, folder = path_of(target.uri), folder.resolve()
    try:
        revision = git.revision(path, name)
        if side.job.project_program:
            return _program_of(session, side, revision, folder)
        made = _side(
            session, target, revision.text, revision.title, side.plan.lines,
            f"{Path(revision.main).name} of {revision.title}", side.job.action,
        )  # fmt: skip
        made = replace(made, remarks=(*made.remarks, *revision.remarks))
        whole = _with_its_files(session, made, revision, path, folder) if revision.changed_sources else made
        if whole is made and made.digest == side.digest:
            raise UnchangedVariantError(
                f"{target.key} is the same in {revision.title}: nothing has changed since"
            )
        return whole
    except git.NotFetchedError as error:
        raise NotFetchedVariantError(str(error)) from None
    except git.GitError as error:
        raise NoVariantError(str(error)) from None
    except OSError as error:
        raise NoVariantError(f"the files of {name} cannot be written beside: {error.strerror}") from None


def _with_its_files(
    session: Session, made: Variant, revision: git.Revision, path: str, folder: Path
) -> Variant:
    """Return the same side in a folder of its own, if a file that it needs differs in that revision."""
    root = _real(revision.root)
    places, differ = _differing(session, made.job, revision)
    if not differ:
        return made
    remarks = git.write(revision, str(folder))
    for place in places:  # what is made by a build and not in git
        if place != revision.main and place not in revision.sources:
            copy = Path(folder, *place.split("/"))
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(Path(root, *place.split("/")), copy)
    there = Path(folder, *revision.main.split("/"))
    moved_target = KernelId(uri_of(str(there)), made.target.key)
    moved = _side(session, moved_target, made.frozen.text, made.name, action=made.job.action)
    directory = _real(session.setup.directory(path))
    inside = directory.relative_to(root) if directory.is_relative_to(root) else Path()
    job = replace(moved.job, flags=_flags(made.job, root, folder), directory=str(folder / inside))
    names = ", ".join(Path(path).name for path in differ[:3]) + (
        f" and {len(differ) - 3} more" if differ[3:] else ""
    )
    remark = f"{names} {'is' if len(differ) == 1 else 'are'} taken from {revision.short} too, so that version runs in a folder without data files"
    return replace(moved, job=job, remarks=(*made.remarks, *remarks, remark))


def _differing(session: Session, job: Job, revision: git.Revision) -> tuple[list[str], list[str]]:
    """Return the files of the repository that a job needs, and those of them that differ in a revision."""
    root = _real(revision.root)
    tree = closure.closure(job, session.setup.folders, data=(), limit=_CLOSURE_BYTES)
    needed = [_real(tree.root, *place.split("/")) for place in tree.manifest.files]
    places = [path.relative_to(root).as_posix() for path in needed if path.is_relative_to(root)]
    gone = [
        changed
        for changed in revision.changed_sources
        if not Path(root, *changed.split("/")).exists() and _named(changed, revision.text)
    ]
    return places, [*sorted(revision.changed_sources & set(places)), *gone]


def _program_of(session: Session, side: Variant, revision: git.Revision, folder: Path) -> Variant:
    """Return the side whose program is built in a tree that has all files of the revision. Raises NoVariantError, GitError and OSError."""
    root, start, title = _real(revision.root), side.job.start, revision.title
    assert isinstance(start, DriverStart)
    project = _real(side.job.directory or "")
    if not project.is_relative_to(root):
        raise UnfitVariantError(
            f"{start.driver.short} is built in {project}, which is not in the repository {root}",
            "open the repository as the project's folder",
        )
    tree = folder / revision.commit
    there = Path(tree, *revision.main.split("/"))
    target = KernelId(uri_of(str(there)), side.target.key)
    scratch = Session(setup=session.setup, client=session.client)
    scratch.open(target.uri, 0, revision.text)
    _kernel(scratch, target, f"{Path(revision.main).name} of {title}")
    digest = next(digest for kernel, _, digest in scratch.kernels(target.uri) if kernel == target)
    alone = replace(side.job, start=ProgramStart())  # what the kernel's file includes
    if digest == side.digest and not _differing(session, alone, revision)[1]:
        raise UnchangedVariantError(f"{target.key} is the same in {title}: nothing has changed since")
    if start.driver.tool == "meson":
        raise UnfitVariantError(
            f"{start.driver.short} of {title} cannot be built, because Meson builds it: write a launch spec above {target.key}",
            f"`orbit-lsp draft` proposes one for {target.key}",
        )
    remarks = () if tree.exists() else git.write_tree(revision.root, revision.commit, str(tree))
    directory = tree / project.relative_to(root)
    if not Path(directory, *start.driver.file.split("/")).is_file():
        raise UnfitVariantError(f"{start.driver.file}, which launches {target.key}, is not in {title}")
    frozen = scratch.freeze(target.uri)
    assert frozen
    job = replace(
        side.job, path=str(there), text=revision.text, directory=str(directory),
        flags=_flags(side.job, root, tree), start=replace(start, texts={}, built_as=str(project)),
    )  # fmt: skip
    return Variant(title, target, scratch, frozen, job, side.plan, digest, remarks)


def _real(*parts: str) -> Path:
    """Return the path with its links resolved. Git names files so; an editor may have opened them through links."""
    return Path(os.path.realpath(Path(*parts)))


def _named(place: str, text: str) -> bool:
    """Say whether the text includes or imports a source that was deleted since."""
    name = Path(place)
    return (name.stem if name.suffix == ".py" else name.name) in text


def _flags(job: Job, root: Path, folder: Path) -> tuple[str, ...]:
    """Return the job's compiler flags. Folders of the repository that the new folder has too are replaced by those
    there.
    """
    directory = job.directory or str(Path(job.path).parent)

    def change(kind: str, value: str) -> str:
        path = Path(os.path.normpath(Path(directory, value)))
        if kind == "define":
            return value
        real = _real(str(path))
        if real.is_relative_to(root):
            copy = folder / real.relative_to(root)
            return str(copy if copy.exists() else path)
        return str(path) if path.exists() else value

    return includes.rewrite(job.flags, change)


# -- elsewhere --------------------------------------------------------------------------------------


def _file(session: Session, target: KernelId, name: str, action: Action) -> Variant:
    """Return the kernel of the same name in another file, or that file's only kernel."""
    path = str(Path(name).resolve())
    if (language := kernels.language_of(path)) is None:
        raise UnfitVariantError(f"{name} is not a .cu, .cuh or .py file")
    try:
        text = regular_files.text(path, limits.SOURCE)
    except OSError as error:
        raise UnfitVariantError(f"{name} cannot be read: {error.strerror}") from None
    uri = uri_of(path)
    known = [target for target, kernel, _ in identify(uri, kernels.tracker(language, macros=session.macros(), headers=header_reader(path)).scan(text)) if kernel.launchable]  # fmt: skip
    same = KernelId(uri, target.key)
    only = known[0] if len(known) == 1 and same not in known and not harness.named(target) else same
    return _side(session, only, text, Path(path).name, action=action)


def _text(session: Session, side: Variant, name: str) -> Variant:
    """Return the side of another text of the same file. The text is in `name`, and runs with the file's own headers
    beside it.
    """
    try:
        text = regular_files.text(name, limits.SOURCE)
        return _side(session, side.target, text, Path(name).name, side.plan.lines, action=side.job.action)
    except (OSError, NoVariantError):  # the kernel may have another name there
        return _file(session, side.target, name, side.job.action)


def _gpu(session: Session, side: Variant, name: str) -> Variant:
    if not session.setup.modal_account:
        raise NoVariantError(f"another GPU must be rented from Modal: {spending.steps(session.setup)}")
    gpu = modal_gpus.rented(name)
    if not gpu:
        raise UnfitVariantError(modal_gpus.refusal(name))
    architecture = architectures.architecture_for(gpu) or side.job.architecture
    return replace(side, name=f"{gpu} on Modal", job=replace(side.job, gpu=gpu, architecture=architecture))
