"""The list of what a kernel can be compared with, for an author to choose from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from orbit_lsp.state import harness
from orbit_lsp.state.kernel_ids import KernelId
from orbit_lsp.state.session import Session


@dataclass(frozen=True, slots=True)
class Candidate:
    """What to compare with: the version before, a revision, another file, a kernel of the same file, a GPU on Modal."""

    kind: Literal["last", "revision", "file", "kernel", "gpu"]
    name: str = ""

    @property
    def title(self) -> str:
        match self.kind:
            case "last":
                return "the version before"
            case "gpu":
                return f"{self.name} on Modal"
            case _:
                return self.name

    @property
    def word(self) -> str:
        """As a command's argument says it."""
        return f"{self.kind}:{self.name}" if self.name else self.kind


def other(word: str) -> Candidate | None:
    """The reverse of `Other.word`; None for anything else."""
    kind, _, name = word.partition(":")
    match kind:
        case "last":
            return Candidate("last")
        case "revision" | "file" | "kernel" | "gpu" if name:
            return Candidate(kind, name)
        case _:
            return None


def in_git(path: str) -> bool:
    """Whether a file lies in a working tree of git. Blocking."""
    return any((folder / ".git").exists() for folder in Path(path).absolute().parents)


def _has_another_version(session: Session, target: KernelId) -> bool:
    """Whether the history has a text of this kernel that is not its present one."""
    present = next((digest for known, _, digest in session.kernels(target.uri) if known == target), None)
    if present is None and target.uri in session.files:  # a contract
        present = harness.digest(session.files[target.uri].document.text)
    ran = session.results.runs.get(target)
    known = {*session.results.versions.get(target, ()), *([ran.digest] if ran else [])}
    return bool(known - {present})


def choices(session: Session, target: KernelId) -> list[Candidate]:
    """What an editor offers, most likely first."""
    found = [Candidate("last")] if _has_another_version(session, target) else []
    if (file := session.files.get(target.uri)) and file.in_git:
        found.append(Candidate("revision", "HEAD"))
    if not harness.named(target):
        found += [
            Candidate("kernel", other.key)
            for other, kernel, _ in session.kernels(target.uri)
            if other != target and kernel.launchable
        ][:3]
    if session.setup.modal_account:
        settings = session.setup.settings
        here = settings.gpu if session.setup.place() == "modal" else ""
        found += [Candidate("gpu", gpu) for gpu in settings.gpus if gpu != here][:4]
    return found
