"""Decides where a job runs: on this machine's GPU or on a rented one, in which folder, compiled for which
architecture.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from orbit_lsp.state import modal_gpus, ssh_hosts
from orbit_remote.common import architectures
from orbit_remote.common import messages as c
from orbit_remote.common.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from orbit_lsp.state.config import Settings


@dataclass(frozen=True, slots=True)
class WarmGpu:
    """A rented GPU that waits for a run, until a time on the wall clock. The time is None if the GPU is at work or
    `kept`.

    `idle_usd` is the cost of all of its idle time, `hourly` the cost while it is kept (`$4.08/h`), by the prices that
    `rates` names. They are None and "" if not known.
    """

    until: float | None
    kept: bool = False
    idle_usd: float | None = None
    hourly: str = ""
    rates: str = ""


def _nobody(folder: str) -> bool:
    del folder
    return False


class RunSetup:
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
        """Of the workspace; of a command, the folder that it stands in or the project of its file."""
        self.standing = ""
        """The folder that a command stands in; empty in an editor."""
        self.project = ""
        """The project of a command's file, whose Python is taken before that of `folders`; empty in an editor."""
        self.machine = machine
        self.modal_account = modal_account
        """Whether this machine has a token for Modal."""
        self.figures_for = ""
        """The architecture that static figures were asked for, whatever GPU runs get."""
        self.variables: tuple[str, ...] = ()
        """`NAME=value`, which jobs have in their environment besides the user's own."""
        self.gpu_chosen = False
        """Whether the author chose the GPU of the settings by a command of this session."""
        self.warm: dict[str, WarmGpu] = {}
        """Rented GPUs whose containers are warm."""
        self.trusts: Callable[[str], bool] = _nobody
        """Whether the author trusts what a folder brings along."""

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
        """Return whether runs go to a GPU of the author's own (of this machine or of `host`), or to a rented one. The
        settings decide, or else what this machine has.
        """
        if self.host:
            return "local"
        if self.settings.runner != "auto":
            return "modal" if self.settings.runner == "modal" else "local"
        return "local" if self.own_gpu() or not self.modal_account else "modal"

    @property
    def host(self) -> str:
        """Return the machine to which runs go by ssh; `machine` then describes it. Return "" if they do not go by
        ssh.
        """
        return ssh_hosts.host_of(self.settings.runner)

    @property
    def owner(self) -> str:
        """Return the machine that has the author's own GPU, for a sentence."""
        return self.host or "this machine"

    @property
    def gpu_is_named(self) -> bool:
        """Say whether the author chose a GPU. A client may send the default as if it had been chosen."""
        return bool(
            self.figures_for or self.gpu_chosen or self.settings.gpu not in ("", type(self.settings).gpu)
        )

    def own_gpu(self) -> c.Device | None:
        """Return the GPU of this machine for runs. Return None if it has none."""
        if self.machine is None or not self.machine.devices:
            return None
        return next((device for device in self.machine.devices if device.index == self.settings.device), None)

    def lacks_gpu(self) -> bool:
        """Return whether runs are known to have no GPU: this machine has none, and no other place is set."""
        return (
            self.machine is not None
            and not self.machine.devices
            and not self.host
            and self.place() == "local"
        )

    def rents(self) -> str:
        """Return the GPU of the settings, if Modal has it. Return "" if runs on Modal are refused."""
        return modal_gpus.rented(self.settings.gpu)

    def gpu_refusal(self, name: str) -> str:
        """Return why a run cannot have a GPU that somebody names. Return "" if it can, and if there is no GPU at all."""
        own = self.own_gpu()
        if modal_gpus.rented(name) or (self.place() == "local" and own is None):
            return ""
        if self.place() == "modal" or own is None:
            return modal_gpus.refusal(name)
        ours = architectures.architecture_of(own.capability) if own.capability else ""
        same = (architectures.named(name) or "").rstrip("af") == ours.rstrip("af")
        if modal_gpus.means(name, own.name) or (ours and same):
            return ""
        return f"{self.owner} has no {name:.60}, but {own.name}, and {modal_gpus.refusal(name)}"

    def architecture(self) -> str:
        """Return the architecture for static figures: that of this machine's own GPU if runs go there, else of the
        one in the settings.
        """
        if self.figures_for:
            return self.figures_for
        own = self.own_gpu() if self.place() == "local" else None
        if own and own.capability:
            return architectures.architecture_of(own.capability)
        return architectures.architecture_for(own.name if own else self.settings.gpu) or "sm_90a"

    def directory(self, path: str) -> str:
        """Return the innermost workspace folder that holds a file, else its own folder."""
        holding = [folder for folder in self.folders if Path(path).is_relative_to(folder)]
        return max(holding, key=len, default=str(Path(path).parent))

    def working_folder(self, path: str) -> str:
        """Return where a file's program runs. As in a shell, that is the folder in which a command was started, if it
        holds the file.
        """
        here = self.standing
        return here if here and Path(path).is_relative_to(here) else self.directory(path)
