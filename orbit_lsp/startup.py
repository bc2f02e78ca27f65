"""The server's surroundings: settings from the client, the runner they choose, what the machine has."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from orbit_lsp import __version__, bundle, jobs
from orbit_lsp.session import Session, path_of
from orbit_remote import nvcc_flags

if TYPE_CHECKING:
    from orbit_lsp.config import Settings
    from orbit_lsp.runners import Runner
    from orbit_lsp.runners.local import LocalRunner

log = logging.getLogger("orbit.startup")

_PYTHONS = (".venv/bin/python", "venv/bin/python", ".venv/Scripts/python.exe", "venv/Scripts/python.exe")


class Environment:
    def __init__(
        self, session: Session, message: Callable[[str], None], changed: Callable[[set[str]], None]
    ) -> None:
        self.options: Any = None
        """initializationOptions: the user's own word, and the only place where trust is given."""
        self._session = session
        self._message = message
        self._changed = changed
        self._runner: LocalRunner | None = None
        self.configured = asyncio.Event()
        """Set once the client's settings are known: nothing is started with others before that."""

    @property
    def settings(self) -> Settings:
        return jobs.settings_of(self._session)

    def configure(self, section: Any) -> tuple[str, ...]:
        """Take the client's settings; returns what is wrong with them, sentence by sentence."""
        from orbit_lsp import config

        user = _object(self.options)
        trusted = user.get("trusted") is True
        workspace = {name: value for name, value in _object(section).items() if value is not None}
        refused = [name for name in (*config.EXECUTABLES, "trusted") if name in workspace]
        # a client that merges settings sends the user's own back: those are in force already
        complaints = [
            _not_trusted(name)
            for name in (() if trusted else refused)
            if (value := workspace.pop(name)) and value != user.get(name)
        ]
        before = self._session.settings
        settings, mistakes = config.parse(user | workspace)
        self._session.settings = settings
        if before and before.kernel_macros != settings.kernel_macros:
            self._session.rescan()
        return (*complaints, *mistakes)

    # -- the runner ---------------------------------------------------------------------------

    def runner(self) -> Runner:
        """The runner of the present settings; another one where they changed."""
        from orbit_lsp.runners.local import LocalRunner, Options

        settings = self.settings
        options = Options(
            python=self.python(),
            cache_bytes=int(min(settings.cache_gib, 1 << 20) * (1 << 30)),  # JSON may say infinity
            spare_idle_s=settings.spare_idle_s,
            environment=tuple(settings.environment),
            nvcc=settings.nvcc or None,
        )
        if self._runner is None or self._runner.options != options:
            self._retire()
            self._runner = LocalRunner(options)
        return self._runner

    def python(self) -> str:
        """Setting, then the workspace's virtual environment (trusted only), then the server's own."""
        settings = self.settings
        if settings.python:
            return str(Path(settings.python).expanduser())
        if settings.trusted:
            for folder in self._session.folders:
                for name in _PYTHONS:
                    if (found := Path(folder) / name).is_file():
                        return str(found)
        return sys.executable

    def _retire(self) -> None:
        """Let the old runner end its jobs, then close it."""
        if self._runner is not None:
            task = asyncio.ensure_future(self._runner.retire())
            _retiring.add(task)
            task.add_done_callback(_retiring.discard)

    async def look_around(self) -> None:
        """Ask the runner what its machine has: lenses name its GPU, static figures are for it."""
        machine = await self.runner().machine()
        if machine is None:
            return
        self._session.machine = machine
        self._changed(set(self._session.files))

    async def warm(self, language: str) -> None:
        await self.runner().warm(language)

    async def close(self) -> None:
        if self._runner is not None:
            await self._runner.close()
        for task in list(_retiring):
            task.cancel()
        await asyncio.gather(*_retiring, return_exceptions=True)

    # -- files --------------------------------------------------------------------------------

    def choose_flags(self, uri: str) -> tuple[str, ...]:
        """Find the compiler flags of a file; returns a sentence for each that is not used."""
        path = path_of(uri)
        from_database = compile_commands(self._session.folders, path)
        wanted = (*from_database, *self.settings.nvcc_flags)
        kept, refused = nvcc_flags.allowed_flags(wanted, self.settings.trusted)
        self._session.flags[path] = kept
        return refused

    def changed_on_disk(self, path: str) -> list[str]:
        """Note a file's new content; returns the open files that were built from it."""
        digest = bundle.file_hash(path)
        self._session.hashes[path] = digest or "gone"
        self._session.disk += 1
        return [uri for uri, read in self._session.reads.items() if path in read]

    def info(self, capabilities: Any) -> dict[str, Any]:
        from importlib.metadata import version

        from orbit_remote.contracts import VERSION

        machine = self._session.machine
        return {
            "orbit-lsp": __version__,
            "contract": VERSION,
            "python": sys.version.split()[0],
            "pygls": version("pygls"),
            "lsprotocol": version("lsprotocol"),
            "encoding": self._session.encoding,
            "settings": self.settings.model_dump(mode="json"),
            "runner": {
                "name": self.runner().name,
                "python": self.python(),
                "nvcc": machine.nvcc if machine else None,
                "nvcc_version": machine.nvcc_version if machine else None,
                "devices": [device.name for device in machine.devices] if machine else [],
                "packages": machine.packages if machine else {},
            },
            "capabilities": {
                "codeLens.refresh": _get(capabilities, "workspace", "code_lens", "refresh_support"),
                "inlayHint.refresh": _get(capabilities, "workspace", "inlay_hint", "refresh_support"),
                "workDoneProgress": _get(capabilities, "window", "work_done_progress"),
                "showDocument": _get(capabilities, "window", "show_document", "support"),
                "configuration": _get(capabilities, "workspace", "configuration"),
            },
        }


_retiring: set[asyncio.Task[None]] = set()
_DATABASES = ("compile_commands.json", "build/compile_commands.json")


def compile_commands(folders: list[str], path: str) -> tuple[str, ...]:
    """Nvcc's flags for a file from the compilation database of its workspace folder, if it has one."""
    for folder in folders:
        if not Path(path).is_relative_to(folder):
            continue
        for name in _DATABASES:
            try:
                text = (Path(folder) / name).read_text(encoding="utf-8", errors="replace")
            except (OSError, ValueError):  # ValueError: a folder of which the URI says what no path can hold
                continue
            if (flags := nvcc_flags.flags_for(path, text)) is not None:
                return flags
    return ()


def _not_trusted(name: str) -> str:
    return (
        f"orbit setting `{name}` is not taken from a workspace that is not trusted; "
        "set it in the client's initializationOptions, or trust the workspace"
    )


def _object(value: Any) -> dict[str, Any]:
    """A client's settings, inside or outside their own section name; empty for anything else."""
    if not isinstance(value, dict):
        return {}
    values = cast("dict[str, Any]", value)
    inner = values.get("orbit")
    return dict(cast("dict[str, Any]", inner)) if isinstance(inner, dict) else dict(values)


def _get(value: Any, *names: str) -> Any:
    for name in names:
        value = getattr(value, name, None)
    return value
