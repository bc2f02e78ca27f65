"""Where a job runs: on this machine's GPU or on a rented one, in which folder, compiled for which architecture."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from orbit_lsp.state.session import Session
from orbit_remote.common import architectures
from orbit_remote.common import messages as c

if TYPE_CHECKING:
    from orbit_lsp.state.config import Settings


def settings_of(session: Session) -> Settings:
    if session.settings is None:
        from orbit_lsp.state.config import Settings

        session.settings = Settings()
    return session.settings


def place(session: Session) -> Literal["local", "modal"]:
    """Where runs go: as the settings say, or as what this machine has lets them."""
    wanted = settings_of(session).runner
    if wanted != "auto":
        return wanted
    return "local" if own_gpu(session) or not session.modal_account else "modal"


def own_gpu(session: Session) -> c.Device | None:
    """The GPU of this machine that runs go to, None where it has none."""
    devices = session.machine.devices if session.machine else ()
    wanted = session.settings.device if session.settings else 0
    return next((device for device in devices if device.index == wanted), None)


def architecture(session: Session) -> str:
    """What static figures are compiled for: this machine's own GPU where runs go there, else the one of
    the settings.
    """
    own = own_gpu(session) if place(session) == "local" else None
    if own and own.capability:
        return architectures.architecture_of(own.capability)
    return architectures.architecture_for(own.name if own else settings_of(session).gpu) or "sm_90a"


def rented(name: str) -> str:
    """`A100-80GB:2` for `a100-80gb:2`, `RTX PRO 6000` for `RTX-PRO-6000`; empty for what is not known."""
    kind, colon, count = name.rstrip("!").replace("!:", ":").partition(":")
    if colon and not re.fullmatch(r"[1-8]", count):
        return ""
    spelled = next((one for one in gpus() if one.replace(" ", "-").lower() == kind.lower()), "")
    return spelled and spelled + (colon + count if count != "1" else "")


def gpus() -> tuple[str, ...]:
    """What Modal has, as the settings spell it."""
    from orbit_lsp.state.config import GPUS

    return GPUS


def directory(session: Session, path: str) -> str:
    """Where a program runs: the innermost workspace folder that holds the file, else its own folder."""
    holding = [folder for folder in session.folders if Path(path).is_relative_to(folder)]
    return max(holding, key=len, default=str(Path(path).parent))
