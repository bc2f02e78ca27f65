"""Where a job runs: on this machine's GPU or on a rented one, in which folder, compiled for which architecture."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from orbit_remote.common import architectures
from orbit_remote.common import messages as c
from orbit_remote.common.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from orbit_lsp.state.config import Settings


@dataclass(frozen=True, slots=True)
class Warm:
    """A rented GPU that waits for a run: until when on the wall clock, None where it is at work or `kept`.

    `idle_usd` is what all of its idle time costs, `hourly` what it costs while it is kept (`$4.08/h`), by
    the prices that `rates` names; None and "" where they are not known.
    """

    until: float | None
    kept: bool = False
    idle_usd: float | None = None
    hourly: str = ""
    rates: str = ""


class Setup:
    """What decides where and how runs go: the client's settings, the workspace's folders, what this machine has."""

    def __init__(
        self,
        settings: Settings | None = None,
        folders: Sequence[str] = (),
        machine: c.Machine | None = None,
        *,
        modal_account: bool = False,
    ) -> None:
        self._settings = settings
        self.folders = list(folders)
        """Of the workspace."""
        self.machine = machine
        self.modal_account = modal_account
        """Whether this machine has a token for Modal."""
        self.figures_for = ""
        """The architecture that static figures were asked for, whatever GPU runs get."""
        self.figures_elsewhere = ""
        """That of the setting `gpu`, where it names one that cannot be rented: it counts where this machine has no GPU."""
        self.variables: tuple[str, ...] = ()
        """`NAME=value`, which jobs have in their environment besides the user's own."""
        self.warm: dict[str, Warm] = {}
        """Rented GPUs whose containers are warm."""

    @property
    def settings(self) -> Settings:
        if self._settings is None:
            from orbit_lsp.state.config import Settings

            self._settings = Settings()
        return self._settings

    @settings.setter
    def settings(self, settings: Settings) -> None:
        self._settings = settings

    def place(self) -> Literal["local", "modal"]:
        """Where runs go: as the settings say, or as what this machine has lets them."""
        if self.settings.runner != "auto":
            return self.settings.runner
        return "local" if self.own_gpu() or not self.modal_account else "modal"

    @property
    def gpu_is_named(self) -> bool:
        """Whether the author chose a GPU. A client may send the default as if it had been chosen."""
        return bool(
            self.figures_for or self.figures_elsewhere or self.settings.gpu != type(self.settings)().gpu
        )

    def own_gpu(self) -> c.Device | None:
        """The GPU of this machine that runs go to, None where it has none."""
        if self.machine is None or not self.machine.devices:
            return None
        return next((device for device in self.machine.devices if device.index == self.settings.device), None)

    def spelled(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Settings with the GPU as Modal's list spells it; of one that is not in it the figures alone are meant."""
        name = values.get("gpu")
        self.figures_elsewhere = ""
        if not isinstance(name, str):
            return dict(values)
        if known := rented(name):
            return {**values, "gpu": known}
        self.figures_elsewhere = architectures.architecture_for(name) or ""
        return {key: value for key, value in values.items() if key != "gpu" or not self.figures_elsewhere}

    def architecture(self) -> str:
        """What static figures are compiled for: this machine's own GPU where runs go there, else the one of
        the settings.
        """
        if self.figures_for:
            return self.figures_for
        own = self.own_gpu() if self.place() == "local" else None
        if own and own.capability:
            return architectures.architecture_of(own.capability)
        if self.figures_elsewhere and own is None:
            return self.figures_elsewhere
        return architectures.architecture_for(own.name if own else self.settings.gpu) or "sm_90a"

    def directory(self, path: str) -> str:
        """Where a program runs: the innermost workspace folder that holds the file, else its own folder."""
        holding = [folder for folder in self.folders if Path(path).is_relative_to(folder)]
        return max(holding, key=len, default=str(Path(path).parent))


def rented(name: str) -> str:
    """`A100-80GB:2` for `a100-80gb:2`, `RTX PRO 6000` for `RTX-PRO-6000`; empty for what is not known."""
    kind, colon, count = name.rstrip("!").replace("!:", ":").partition(":")
    if colon and not re.fullmatch(r"[1-8]", count):
        return ""
    spelled = next((gpu for gpu in gpus() if gpu.replace(" ", "-").lower() == kind.lower()), "")
    return spelled and spelled + (colon + count if count != "1" else "")


def count(gpu: str) -> int:
    """2 of `H100:2`."""
    several = re.search(r":([1-8])$", gpu)
    return int(several[1]) if several else 1


def gpus() -> tuple[str, ...]:
    """What Modal has, as the settings spell it."""
    from orbit_lsp.state.config import GPUS

    return GPUS
