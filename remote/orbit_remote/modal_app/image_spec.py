"""What both sides know of an app on Modal without importing `modal`: its parts, its name, its messages."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import zlib
from pathlib import Path
from typing import Any

from orbit_remote import PACKAGE
from orbit_remote.common import codec, limits, regular_files
from orbit_remote.common.lazy_dataclass import dataclass

PREFIX = "orbit-"
"""Every app of ours begins with it: `orbit-<version>-<hash>`."""

VOLUME = "orbit-files"
"""The volume of all our apps: builds, and the files that runs have sent."""
QUEUE = "orbit-events"
"""The queue through which runs tell their events."""
QUEUED_S = 3600
"""How long what nobody fetches stays in it."""

CORES = 2.0
MEMORY_MIB = 4096
"""What a container asks for beside its GPU: it is billed for them whether it uses them or not."""

_SOURCES = (".py", ".cpp", ".h")


@dataclass(frozen=True, slots=True)
class ImageSpec:
    """The parts of an image. Versions are exact, except `cuda_bindings`: some versions of torch want one of their
    own. `idle_s` and `timeout_s` are whole seconds, as Modal takes them.

    The defaults are the versions with which the figures in docs/dev/results/measurements.md were taken. Nsight
    Compute is held back: on Modal 2025.2.1 reads counters where 2026.2 answers NaN for many (gpu-mode/kernelbot, pull
    request 530).
    """

    version: str
    python: str = "3.12"
    torch: str = "2.11.0"
    triton: str = "3.6.0"
    nvml: str = "13.615.71"
    cuda_core: str = "1.2.0"
    cuda_bindings: str = ">=12.9.4,<14"
    ipykernel: str = "7.4.0"
    cuda: str = "13.0.1"
    nsight_compute: str = "2025.2.1"
    pip: tuple[str, ...] = ()
    apt: tuple[str, ...] = ()
    idle_s: int = 300
    timeout_s: int = 600


def app_name(spec: ImageSpec) -> str:
    """Return the app's name. Another version, another line of the remote code or another image makes another app.

    How long a container idles and may work is said with each call, so it is not in the name.
    """
    image = dataclasses.asdict(spec)
    del image["idle_s"], image["timeout_s"]
    digest = hashlib.blake2b(json.dumps(image, sort_keys=True).encode(), digest_size=5)
    home = PACKAGE
    for path in sources():
        digest.update(f"\0{path.relative_to(home).as_posix()}\0".encode())
        digest.update(regular_files.read(path, limits.SOURCE))
    return f"{PREFIX}{spec.version}-{digest.hexdigest()}"


def sources() -> list[Path]:
    """Return the files of this package that are sent to the container."""
    return sorted(path for path in PACKAGE.rglob("*") if path.suffix in _SOURCES)


def pack(message: dict[str, Any]) -> bytes:
    """Return a message as compressed JSON. A call of up to 8 KiB does not go through Modal's blob store."""
    return zlib.compress(json.dumps(message, ensure_ascii=False).encode("utf-8", "surrogatepass"))


def unpack(message: bytes) -> dict[str, Any]:
    """Raises ValueError."""
    return codec.read_json(codec.inflate(message, limits.EVENTS).decode("utf-8", "surrogatepass"))
