"""Builds extensions of candidates while other jobs have the GPU.

nvcc and g++ take half a minute for torch's headers, and a candidate with `load_inline` would hold the GPU meanwhile.
The build is copied to a folder of ours, one for each text. Its run and every later evaluation load it from there. If
the build of a text fails, its run says why.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from orbit_lsp.state.user_folders import cache_folder
from orbit_remote import MAIN
from orbit_remote.common import content_store, regular_files
from orbit_remote.common import messages as c
from orbit_remote.common.contracts import harness_files
from orbit_remote.process import process_groups, program

_ROOTS = Path("/var/cache/orbit-lsp")
_LIMIT_S = 300.0
_END_S = 10.0
_MOST_TEXTS = 64
_MOST_LIBRARIES = 16
_MOST_BYTES = 64 << 20
"""Of a library; torch's own examples have 0.1 to 10 MB."""
BUILDS_AT_ONCE = max(1, ((os.cpu_count() or 1) - 2) * 2 // 3)
"""How many builds run at once on this machine. A build of an extension is nvcc for 30 s, and g++ for the first 16 s beside it.
What is measured meanwhile needs a core or two.
"""
_BUILT = "built"

_turns = asyncio.Semaphore(BUILDS_AT_ONCE)


def folder(text: str, files: Mapping[str, str], python: str, devices: Sequence[c.Device]) -> Path:
    """Return the folder for the libraries of a text and the files beside it, for a Python and these GPUs. It exists
    once they were built.
    """
    key = json.dumps([text, sorted(files.items()), python, sorted(_environment(devices, ()).items())])
    return _root() / "extensions" / c.content_hash(key.encode("utf-8", "surrogatepass"))[:32]


def _root() -> Path:
    """Return the cache folder. root's often lies in a home that no other user may enter, and a referee's candidate
    runs as another user.
    """
    own = cache_folder()
    if os.name != "posix" or os.getuid() or all(_is_open(folder) for folder in (own, *own.parents)):
        return own
    return _ROOTS


def _is_open(folder: Path) -> bool:
    return not folder.is_dir() or bool(folder.stat().st_mode & 0o001)


async def build(
    text: str, files: Mapping[str, str], python: str, devices: Sequence[c.Device], passed: Sequence[str]
) -> None:
    """Build what a text builds when it is imported, for the GPUs `devices`. `passed` names variables that the build
    sees besides those of every program. Do nothing if it was built before. Raises OSError.
    """
    place = folder(text, files, python, devices)
    async with _turns:
        if place.is_dir():
            os.utime(place)
            return
        with content_store.temporary("orbit-build-") as scratch:
            await asyncio.to_thread(_write, scratch, {**files, "candidate.py": text})
            await _import(python, scratch, _environment(devices, passed))
            await asyncio.to_thread(_keep, scratch / _BUILT, place)


def _write(scratch: Path, files: Mapping[str, str]) -> None:
    scratch.chmod(0o711)
    for path, content in files.items():
        regular_files.replace(scratch / "source" / path, content.encode("utf-8", "surrogatepass"))


async def _import(python: str, scratch: Path, environment: Mapping[str, str]) -> None:
    """Import the candidate in a process that ends together with everything it has started."""
    process = await process_groups.start(
        [python, "-P", MAIN, "extensions", scratch / "source" / "candidate.py", scratch],
        env=environment,
        stdin=asyncio.subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(_LIMIT_S):
                await process.wait()
    finally:
        await asyncio.shield(_end(process))


async def _end(process: asyncio.subprocess.Process) -> None:
    assert process.stdin
    process.stdin.close()
    with suppress(TimeoutError):
        async with asyncio.timeout(_END_S):
            await process.wait()
    await process_groups.finish(process)


def _environment(devices: Sequence[c.Device], passed: Sequence[str]) -> dict[str, str]:
    """Return the environment of the run. It names the GPUs for which torch would build there, because torch sees none
    here.
    """
    environment = program.environment(os.environ, passed)
    capabilities = sorted({device.capability for device in devices if device.capability})
    if capabilities:
        environment.setdefault(harness_files.ARCHITECTURES, f"{';'.join(capabilities)}+PTX")
    return environment


def _keep(built: Path, place: Path) -> None:
    """Copy the libraries. Other files of the candidate stay, and no link is followed. None of the candidate's
    processes runs any more. Only the texts that were used last are kept.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    place.parent.chmod(0o755)
    if place.parent.parent == _ROOTS:
        _ROOTS.chmod(0o755)
    with tempfile.TemporaryDirectory(prefix=".", dir=place.parent, ignore_cleanup_errors=True) as name:
        made = Path(name) / place.name
        made.mkdir()
        for library in sorted(built.glob("*/*.so"))[:_MOST_LIBRARIES]:
            if any(each.is_symlink() for each in (built, library.parent, library)):
                continue
            with suppress(OSError), regular_files.opened(library) as file:
                content = regular_files.upto(file, _MOST_BYTES + 1)
                if len(content) <= _MOST_BYTES:
                    copy = made / library.parent.name / library.name
                    regular_files.replace(copy, content)
                    copy.parent.chmod(0o755)
                    copy.chmod(0o755)
        made.chmod(0o755)
        with suppress(OSError):  # another process was first
            made.rename(place)
    with suppress(OSError):
        texts = sorted(place.parent.glob("[0-9a-f]*"), key=lambda text: -text.stat().st_mtime)
        for old in texts[_MOST_TEXTS:]:
            shutil.rmtree(old, ignore_errors=True)
