"""Extensions of candidates, built while others have the GPU.

nvcc and g++ take half a minute for torch's headers, and a candidate with `load_inline` would hold the GPU meanwhile. Every
text has a folder of its own, which a second evaluation of it finds built.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from weakref import WeakValueDictionary

from orbit_lsp.state.user_folders import cache_folder
from orbit_remote import MAIN
from orbit_remote.common import codec, harness_files
from orbit_remote.common import messages as c
from orbit_remote.process import process_groups, program

_LIMIT_S = 600.0
_ROOTS = Path("/var/cache/orbit-lsp")
_DONE = ".built"
_MOST_FOLDERS = 64
"""About 10 MB each."""
_AT_ONCE = max(1, (os.cpu_count() or 1) // 2)
"""A build is two compilers."""
_MOST_OUTPUT = 1 << 20

_turns = asyncio.Semaphore(_AT_ONCE)
_under_way: WeakValueDictionary[Path, asyncio.Lock] = WeakValueDictionary()


def folder(text: str, python: str) -> Path:
    """Where the extensions of a text are built for a Python."""
    key = c.content_hash(f"{python}\0{text}".encode("utf-8", "surrogatepass"))
    return _root() / "extensions" / key[:32]


def _root() -> Path:
    """The cache; root's often lies in a home that no other user may enter, and a referee's candidate is another user."""
    own = cache_folder()
    if os.name != "posix" or os.getuid() or all(folder.stat().st_mode & 0o001 for folder in _there(own)):
        return own
    return _ROOTS


def _there(path: Path) -> list[Path]:
    return [folder for folder in (path, *path.parents) if folder.is_dir()]


def is_built(place: Path) -> bool:
    return (place / _DONE).is_file()


async def build(text: str, path: str, python: str, devices: Sequence[c.Device]) -> c.Finished | None:
    """Build what a text builds when it is imported, for the GPUs `devices`; `path` is its file. Returns the report of a candidate
    that does not compile. Other failures are left to its run. Raises OSError.
    """
    place = folder(text, python)
    async with _under_way.setdefault(place, asyncio.Lock()), _turns:
        if is_built(place):
            os.utime(place)
            return None
        await asyncio.to_thread(_make_room, place)
        ended = False
        mark = process_groups.new_mark()
        try:
            status, output, _ = await process_groups.communicate(
                [python, "-P", MAIN, "extensions", path, place],
                timeout_s=_LIMIT_S,
                env=_environment(devices) | {process_groups.MARK: mark},
                limit=_MOST_OUTPUT,
            )
            ended = True
        except TimeoutError:
            return None
        finally:
            if not ended:  # torch's lock lies there, and would keep a later build waiting
                await asyncio.shield(asyncio.to_thread(_forget, place, mark))
        if status == 0:
            (place / _DONE).touch()
        return _report(output)


def _forget(place: Path, mark: str) -> None:
    """A build that was killed, with what it had started."""
    process_groups.end_marked(mark)
    shutil.rmtree(place, ignore_errors=True)


def _environment(devices: Sequence[c.Device]) -> dict[str, str]:
    """That of the run, with the GPUs named for which torch would build there, because here it sees none."""
    environment = program.environment(os.environ)
    capabilities = sorted({device.capability for device in devices if device.capability})
    if capabilities:
        environment.setdefault(harness_files.ARCHITECTURES, f"{';'.join(capabilities)}+PTX")
    return environment


def _report(output: str) -> c.Finished | None:
    """The candidate shares the process that writes it: nothing but a failure to compile is believed."""
    if not output.strip():
        return None
    try:
        event = codec.decode_event(codec.read_json(output))
    except ValueError:
        return None
    return event if isinstance(event, c.Finished) and event.outcome == "compile error" else None


def _make_room(place: Path) -> None:
    place.mkdir(parents=True, exist_ok=True)
    place.chmod(0o755)
    others = sorted(place.parent.iterdir(), key=lambda other: other.stat().st_mtime, reverse=True)
    for old in others[_MOST_FOLDERS:]:
        if old != place:
            shutil.rmtree(old, ignore_errors=True)
