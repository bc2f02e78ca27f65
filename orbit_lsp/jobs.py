"""From a frozen file and the settings to a job for a runner."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from orbit_lsp.session import Frozen, Session, path_of
from orbit_remote import contracts as c

if TYPE_CHECKING:
    from orbit_lsp.config import Settings
    from orbit_lsp.runs import Action

ARCHITECTURES = {
    "T4": "sm_75",
    "A100-40GB": "sm_80",
    "A100-80GB": "sm_80",
    "A10": "sm_86",
    "L4": "sm_89",
    "L40S": "sm_89",
    "H100": "sm_90a",
    "H200": "sm_90a",
    "B200": "sm_100a",
    "RTX PRO 6000": "sm_120a",
}
"""Compute capability of each GPU that can be asked for, from NVIDIA's list of CUDA GPUs; `a` where the
architecture has features that only its own code may use."""


def architecture(session: Session) -> str:
    """What static figures are compiled for: this machine's own GPU, else the one of the settings."""
    own = own_gpu(session)
    if own and own.capability:
        major, _, minor = own.capability.partition(".")
        return f"sm_{major}{minor}" + ("a" if int(major) >= 9 else "")
    return ARCHITECTURES[session.settings.gpu if session.settings else "H100"]


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
    )


def settings_of(session: Session) -> Settings:
    if session.settings is None:
        from orbit_lsp.config import Settings

        session.settings = Settings()
    return session.settings


def directory(session: Session, path: str) -> str:
    """Where a program runs: the innermost workspace folder that holds the file, else its own folder."""
    holding = [folder for folder in session.folders if Path(path).is_relative_to(folder)]
    return max(holding, key=len, default=os.path.dirname(path) or os.curdir)
