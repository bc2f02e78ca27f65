"""The settings in force. They join what the client sent with the user's own settings and with later choices, without
what is not trusted.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from orbit_lsp.places import trust
from orbit_lsp.runners.modal import account as modal_account
from orbit_lsp.state.session import Session

if TYPE_CHECKING:
    from orbit_lsp.state.config import Settings


class ClientSettings:
    def __init__(self, session: Session, moved: Callable[[], None]) -> None:
        """Make the settings. `moved` is called when runs go to another machine than before."""
        self._section: Any = None
        """The settings that the client sent last."""
        self.options: Any = None
        """initializationOptions: the user's own word. A client that sets `separates_user` in them sends the user's
        settings again, as they are now, under `user` beside the workspace's.
        """
        self.trust = trust.Trust()
        self.trust_once = ""
        """How a single command is trusted; empty where there is no such thing."""
        self.of_command = False
        """Whether the folder is a command's current one."""
        self.users_flags = False
        """Whether the compiler's flags are the user's own."""
        self.configured = asyncio.Event()
        """Set once the client's settings are known: nothing is started with others before that."""
        self._session = session
        self._moved = moved
        self._chosen: tuple[str, str] | None = None
        """The GPU that was chosen for this session, and the one in the settings at that time."""
        self._chosen_place: tuple[str, str] | None = None
        """The same of where runs go."""
        self._wanted_place = "auto"
        """Where the settings send runs."""
        self._account: object = None
        """The stamp of Modal's file as it was read last."""

    @property
    def now(self) -> Settings:
        """Return the settings in force."""
        return self._session.setup.settings

    def configure(self, section: Any) -> tuple[str, ...]:
        """Take the client's settings. Return what is wrong with them, sentence by sentence."""
        from orbit_lsp.state import config

        self._section = section
        user, workspace = _object(self.options), _object(section)
        word = user.pop("trusted", None)
        if user.pop("separates_user", None) is True:
            user = _object(workspace.pop("user", None) or user)
        folders = self._session.setup.folders
        if self.of_command and word:  # of a command it is about the project in which the command stands
            from orbit_lsp.compilation import projects

            folders = [projects.project_of(folder) for folder in folders]
        self.trust = trust.current(word if isinstance(word, bool) else None, folders)
        self._session.setup.trusts = self.trust.covers
        # a client that merges settings sends the user's own back: those are in force already
        values, ignored = config.combined(user, workspace, trusted=self.trust.whole)
        complaints = [_not_trusted(ignored, self.trust.remedy())] if ignored else []
        self.users_flags = "nvcc_flags" in user
        before, host = self._session.setup.settings.kernel_macros, self._session.setup.host
        settings, mistakes = config.parse(values | {"trusted": self.trust.whole})
        for name in config.EXECUTABLES:
            program, complaint = self._program(name, getattr(settings, name))
            settings = dataclasses.replace(settings, **{name: program})
            complaints += [complaint] if complaint else []
        if self._chosen and self._chosen[1] != settings.gpu:
            self._chosen = None
        self._session.setup.gpu_chosen = self._chosen is not None
        if self._chosen:
            settings = dataclasses.replace(settings, gpu=self._chosen[0])
        wanted = settings.runner
        if self._chosen_place and self._chosen_place[1] == wanted:
            settings = dataclasses.replace(settings, runner=self._chosen_place[0])
        self._session.setup.settings = settings
        self._look_again(host)
        self._wanted_place = wanted
        self._account = modal_account.stamp()
        self._session.setup.modal_account = wanted != "local" and modal_account.configured()
        if before != settings.kernel_macros:
            self._session.rescan()
        return (*complaints, *mistakes)

    def trust_folder(self, folder: str) -> tuple[str, ...]:
        """Trust a folder. Return what is wrong with the settings, because more of them may count now. Raises OSError."""
        trust.remember(folder)
        return self.configure(self._section)

    def choose_gpu(self, rented: str) -> None:
        """Choose the rented GPU for runs, until the server ends or the setting changes."""
        setup = self._session.setup
        setting = self._chosen[1] if self._chosen else setup.settings.gpu
        self._chosen = (rented, setting)
        setup.gpu_chosen = True
        setup.settings = dataclasses.replace(setup.settings, gpu=rented)

    def choose_place(self, place: str) -> None:
        """Choose the place of runs, until the server ends or the setting changes."""
        setup = self._session.setup
        host = setup.host
        if setup.place() != place or host:
            setting = self._chosen_place[1] if self._chosen_place else setup.settings.runner
            self._chosen_place = (place, setting)
            setup.settings = dataclasses.replace(setup.settings, runner=place)
            self._look_again(host)

    def account_changed(self, stamp: object) -> bool:
        """Return whether a token for Modal came, went or changed since the last call. `stamp` is the present stamp of
        Modal's file.
        """
        if not self.configured.is_set() or stamp == self._account:
            return False
        self._account = stamp
        self._session.setup.modal_account = self._wanted_place != "local" and modal_account.configured()
        return True

    def _look_again(self, host: str) -> None:
        """Ask anew what there is, if runs went to another machine before. `host` is the host to which they went, ""
        if they did not go to one.
        """
        if self._session.setup.host != host:
            self._session.setup.machine = None
            self._moved()

    def _program(self, name: str, setting: str) -> tuple[str, str]:
        """Return the path of a setting that names a program, and what is wrong with it. A relative path is looked for
        in the open folders, not in the folder where the server or a worker was started. A name alone is left for
        PATH.
        """
        path = Path(setting).expanduser()
        if path.is_absolute() or not {"/", os.sep} & set(setting):
            return (str(path) if setting else ""), ""
        for folder in self._session.setup.folders:
            if (Path(folder) / path).exists():
                if self.trust.covers(folder):
                    return str(Path(folder) / path), ""
                remedy = self.trust.remedy(self.trust_once, folder)
                return "", (
                    f"orbit: the setting `{name}`, {setting}, is not used: it is relative, and leads into a folder that is not "
                    f"trusted. Make it absolute, or {remedy}"
                )
        folder = next(iter(self._session.setup.folders), "")
        return str(Path(folder).absolute() / path), ""


def _not_trusted(names: Sequence[str], remedy: str) -> str:
    are, them = ("is", "it") if len(names) == 1 else ("are", "them")
    settings = ", ".join(f"`{name}`" for name in names)
    return (
        f"orbit: the workspace's {'setting' if len(names) == 1 else 'settings'} {settings} {are} ignored, because the "
        f"workspace is not trusted. Set {them} in your own settings, or {remedy}"
    )


def _object(value: Any) -> dict[str, Any]:
    """Return a client's settings, whether or not they stand under their own section name. Return an empty object for
    anything else.
    """
    if not isinstance(value, dict):
        return {}
    values = cast("dict[str, Any]", value)
    inner = values.get("orbit")
    return dict(cast("dict[str, Any]", inner)) if isinstance(inner, dict) else dict(values)
