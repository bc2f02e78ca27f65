"""The list of things that a kernel can be compared with, for the author to choose from."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import field
from pathlib import Path
from typing import Literal

from orbit_lsp.history import git
from orbit_lsp.history.history_store import HistoryEntry
from orbit_lsp.history.version_groups import grouped, when
from orbit_lsp.state import harness, units
from orbit_lsp.state.kernel_ids import KernelId
from orbit_lsp.state.session import Session
from orbit_remote.common import limits, regular_files
from orbit_remote.common.lazy_dataclass import dataclass

_MOST = 6
"""Of a kind that a list shows."""
_LOOKED_AT = 200
"""Files of a folder."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """What a kernel can be compared with.

    That is the version before, one of the history (by the start of its digest), a revision, another file, a kernel of
    the same file, a GPU on Modal, or another text of the same file, which the file `name` holds. `about` is its line
    in a list, where its name says too little.
    """

    kind: Literal["last", "version", "revision", "file", "kernel", "gpu", "text"]
    name: str = ""
    about: str = field(default="", compare=False)

    @property
    def title(self) -> str:
        if self.about:
            return self.about
        match self.kind:
            case "last":
                return "the version before"
            case "gpu":
                return f"{self.name} on Modal"
            case _:
                return self.name

    @property
    def word(self) -> str:
        """Return the candidate as a command's argument names it."""
        return f"{self.kind}:{self.name}" if self.name else self.kind


def other(word: str) -> Candidate | None:
    """Parse what `word` returns. Return None for anything else."""
    kind, _, name = word.partition(":")
    match kind:
        case "last":
            return Candidate("last")
        case "version" | "revision" | "file" | "kernel" | "gpu" if name:
            return Candidate(kind, name)
        case _:
            return None


def in_git(path: str) -> bool:
    """Say whether a file lies in a working tree of git. Blocking."""
    return any((folder / ".git").exists() for folder in Path(path).absolute().parents)


def _has_another_version(session: Session, target: KernelId) -> bool:
    """Say whether the history has a text of this kernel that is not its present one."""
    present = next((digest for known, _, digest in session.kernels(target.uri) if known == target), None)
    if present is None and target.uri in session.files:  # a contract
        present = harness.digest(session.files[target.uri].document.text)
    ran = session.results.runs.get(target)
    known = {*session.results.versions.get(target, ()), *([ran.digest] if ran else [])}
    return bool(known - {present})


def choices(session: Session, target: KernelId) -> list[Candidate]:
    """Return what an editor offers, the most likely first."""
    candidates = [Candidate("last")] if _has_another_version(session, target) else []
    if (file := session.files.get(target.uri)) and file.in_git:
        candidates.append(Candidate("revision", "HEAD"))
    if not harness.named(target):
        candidates += [
            Candidate("kernel", other.key)
            for other, kernel, _ in session.kernels(target.uri)
            if other != target and kernel.launchable
        ][:3]
    if session.setup.modal_account:
        settings = session.setup.settings
        here = settings.gpu if session.setup.place() == "modal" else ""
        candidates += [Candidate("gpu", gpu) for gpu in settings.gpus if gpu != here][:4]
    return candidates


def versions(entries: Sequence[HistoryEntry], present: str | None) -> list[Candidate]:
    """Return the versions of a kernel, the newest first, by their numbers in its history. The present one is left
    out, and the newest other one, which is `last`.
    """
    newest: dict[str, Candidate] = {}
    for number, version in enumerate(grouped(entries), 1):
        entry = version.runs[-1]
        if entry.text and entry.digest != present:
            launches = entry.result.launches
            took = f" · {units.time(sum(launch.timing.median for launch in launches))}" if launches else ""
            newest.pop(entry.digest, None)
            title = f"version {number}, of {when(entry)}{took}"
            newest[entry.digest] = Candidate("version", entry.digest[:12], title)
    return list(reversed(newest.values()))[1 : _MOST + 1]


def revisions(path: str) -> list[Candidate] | None:
    """Return the commits that changed a file, the newest first. Return None if git does not say. Blocking."""
    try:
        logged = git.log(path, _MOST)
    except git.GitError:
        return None
    return [
        Candidate("revision", commit.commit, f"{commit.commit} · {commit.ago} · {commit.subject[:60]}")
        for commit in logged
    ]


def files(path: str, kernel: str) -> list[Candidate]:
    """Sources in the same folder that have the kernel's name in them. Blocking."""
    here = Path(path)
    name = kernel.rpartition("::")[2].partition("<")[0]
    candidates: list[Candidate] = []
    try:
        beside = sorted(here.parent.iterdir())[:_LOOKED_AT]
    except OSError:
        return []
    for file in beside:
        if file.suffix != here.suffix or file.name == here.name or len(candidates) == _MOST:
            continue
        try:
            text = regular_files.text(file, limits.SOURCE)
        except OSError:
            continue
        if re.search(rf"\b{re.escape(name)}\b", text):
            candidates.append(Candidate("file", str(file), file.name))
    return candidates
