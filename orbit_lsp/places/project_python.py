"""Chooses the Python that runs an author's code, by settings, folders and trust. It looks again beside the event
loop.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from orbit_lsp.places import python_choice
from orbit_lsp.places.client_settings import ClientSettings
from orbit_lsp.state.session import Session
from orbit_remote.common.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from orbit_lsp.places import trust


@dataclass(frozen=True)
class _ChoiceInputs:
    """What the choice of a Python depends on besides the disk and this process's environment."""

    setting: str
    folders: tuple[str, ...]
    trusted: trust.Trust

    def choose(self) -> python_choice.PythonChoice:
        """Choose a Python. Reads folders and files."""
        return python_choice.choose(self.setting, self.folders, self.trusted.covers)


class ProjectPython:
    def __init__(self, session: Session, settings: ClientSettings) -> None:
        self._session = session
        self._settings = settings
        self._known: tuple[_ChoiceInputs, python_choice.PythonChoice] | None = None
        """The Python that was chosen last, and what was asked then."""

    @property
    def path(self) -> str:
        return self.choice().python

    def choice(self) -> python_choice.PythonChoice:
        """Return the choice of the last look. A keystroke asks for it, and a look takes dozens of calls to the disk."""
        asked = self._asked()
        if self._known is None or self._known[0] != asked:
            self._known = asked, asked.choose()
        return self._known[1]

    async def look(self) -> None:
        """Choose again, beside the event loop, before anything starts a Python: an environment may have been made or
        removed. A command does not: it ends before that matters.
        """
        if not self._settings.of_command:
            asked = self._asked()
            self._known = asked, await asyncio.to_thread(asked.choose)

    def forget(self) -> None:
        """Forget the choice: whoever asks next may have made an environment just now."""
        self._known = None

    def ignored(self) -> str | None:
        """Return one sentence about Pythons in folders that are not used, or None if there are none."""
        choice = self.choice()
        if not choice.ignored:
            return None
        return (
            f"{', '.join(choice.ignored)} {'is' if len(choice.ignored) == 1 else 'are'} not started, because the folder "
            f"is not trusted: {self._settings.trust.remedy(self._settings.trust_once, choice.untrusted)}"
        )

    def remedy(self) -> str:
        """Return what to do to get the project's Python, if only trust is missing. Return "" otherwise."""
        choice = self.choice()
        if not choice.untrusted:
            return ""
        remedy = self._settings.trust.remedy(self._settings.trust_once, choice.untrusted)
        return f"the project's own Python is {choice.ignored[0]}: {remedy}"

    def _asked(self) -> _ChoiceInputs:
        setup = self._session.setup
        folders = (*filter(None, (setup.project,)), *setup.folders)
        return _ChoiceInputs(setup.settings.python, folders, self._settings.trust)
