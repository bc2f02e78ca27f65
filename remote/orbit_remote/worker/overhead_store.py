"""Keeps what recording adds to a launch, by GPU and driver. It is measured once, before a first program is timed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from orbit_remote import PACKAGE
from orbit_remote.common import codec, limits, regular_files
from orbit_remote.common import messages as c
from orbit_remote.recording.injection import UNKNOWN, Overhead

_LIMIT_S: Final = 20.0
"""It takes 0.5 s; the recorder may have to be compiled first."""


class OverheadStore:
    def __init__(self, folder: Path) -> None:
        """Make the store. `folder` holds the recorder's builds, and a file with what was measured."""
        self._folder = folder
        self._tried: dict[str, Overhead] = {}

    async def overhead(self, device: c.Device | None, env: dict[str, str]) -> Overhead:
        """Return the overhead on this GPU, which the caller has for itself. It is unknown if it cannot be measured; a
        process tries once.
        """
        if device is None:
            return UNKNOWN
        key = _key(device)
        if key not in self._tried:
            known = self.known(device)
            self._tried[key] = known if known != UNKNOWN else await self._measure(device.index, env)
            if self._tried[key] not in (known, UNKNOWN):
                self._keep(key, self._tried[key])
        return self._tried[key]

    def settled(self, device: c.Device) -> bool:
        """Return whether `overhead` answers without the GPU."""
        return _key(device) in self._tried or self.known(device) != UNKNOWN

    def known(self, device: c.Device) -> Overhead:
        """Return what was measured before."""
        return self._read().get(_key(device), UNKNOWN)

    async def _measure(self, device: int, env: dict[str, str]) -> Overhead:
        command = [
            sys.executable,
            "-P",
            str(PACKAGE / "__main__.py"),
            "overhead",
            str(self._folder),
            str(device),
        ]
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *command,
            env=env,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=pipe,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            async with asyncio.timeout(_LIMIT_S):
                out, _ = await process.communicate()
            return codec.build(Overhead, codec.read_json(out))
        except (TimeoutError, ValueError, TypeError):
            return UNKNOWN
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    def _read(self) -> dict[str, Overhead]:
        try:
            known: Any = codec.read_json(regular_files.read(self._folder / "overhead.json", limits.STATE))
            return {str(key): codec.build(Overhead, value, lenient=True) for key, value in known.items()}
        except (OSError, ValueError, TypeError, AttributeError):
            return {}

    def _keep(self, key: str, overhead: Overhead) -> None:
        known = self._read() | {key: overhead}
        data = {key: asdict(value) for key, value in known.items()}
        with contextlib.suppress(OSError):  # then it is measured again some time
            self._folder.mkdir(parents=True, exist_ok=True)
            new = self._folder / f"overhead-{os.getpid()}.tmp"
            new.write_text(json.dumps(data, indent=1), encoding="utf-8")
            new.replace(self._folder / "overhead.json")


def _key(device: c.Device) -> str:
    return f"{device.uuid or device.name} {device.driver}"
