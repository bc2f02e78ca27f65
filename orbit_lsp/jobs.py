"""From a frozen file and the settings to a job for a runner."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from orbit_lsp.session import Frozen, Session, path_of
from orbit_remote import architectures
from orbit_remote import contracts as c

if TYPE_CHECKING:
    from orbit_lsp.config import Settings
    from orbit_lsp.runs import Action


def place(session: Session) -> Literal["local", "modal"]:
    """Where runs go: as the settings say, or as what this machine has lets them."""
    wanted = settings_of(session).runner
    if wanted != "auto":
        return wanted
    return "local" if own_gpu(session) or not session.modal_account else "modal"


def architecture(session: Session) -> str:
    """What static figures are compiled for: this machine's own GPU where runs go there, else the one of
    the settings.
    """
    own = own_gpu(session) if place(session) == "local" else None
    if own and own.capability:
        return architectures.architecture_of(own.capability)
    return architectures.architecture_for(own.name if own else settings_of(session).gpu) or "sm_90a"


def own_gpu(session: Session) -> c.Device | None:
    """The GPU of this machine that runs go to, None where it has none."""
    devices = session.machine.devices if session.machine else ()
    wanted = session.settings.device if session.settings else 0
    return next((device for device in devices if device.index == wanted), None)


def make(session: Session, frozen: Frozen, action: Action, run: str) -> c.Job:
    settings = settings_of(session)
    path = path_of(frozen.uri)
    return c.Job(
        run=run,
        action=action,
        language=frozen.scan.language,
        path=path,
        text=frozen.text,
        directory=directory(session, path),
        arguments=tuple(settings.arguments),
        flags=session.flags_for(path),
        nvcc=settings.nvcc or None,
        architecture=architecture(session),
        device=settings.device,
        build_timeout_s=settings.build_timeout_s,
        run_timeout_s=settings.run_timeout_s,
        gpu=settings.gpu if place(session) == "modal" else None,
    )


def settings_of(session: Session) -> Settings:
    if session.settings is None:
        from orbit_lsp.config import Settings

        session.settings = Settings()
    return session.settings


def directory(session: Session, path: str) -> str:
    """Where a program runs: the innermost workspace folder that holds the file, else its own folder."""
    holding = [folder for folder in session.folders if Path(path).is_relative_to(folder)]
    return max(holding, key=len, default=str(Path(path).parent))


def is_compiled(session: Session, job: c.Job) -> bool:
    """Whether a compiler has found no mistake in just this text, with these flags and headers."""
    if job.path not in session.compiled:
        return False
    compiled, disk = session.compiled[job.path]
    same = all(getattr(job, name) == getattr(compiled, name) for name in ("text", "flags", "directory"))
    return same and disk == session.disk
