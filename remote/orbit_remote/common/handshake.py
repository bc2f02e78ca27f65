"""The first line of each side on the socket of a shared worker. After them it is requests and events, as over pipes.

    client: {"kind": "hello", …}          worker: {"kind": "welcome", …}, or {"kind": "refused", "why": …}
            {"kind": "status"}                    {"kind": "status", …}, and the connection ends
            {"kind": "stop"}                      {"kind": "stopping"}, and the connection ends with the worker

`status` and `stop` are understood by every version: a command has to find and end the workers of another one.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, TypeVar, cast

from orbit_remote import PACKAGE
from orbit_remote.common import codec
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.requests import VERSION

T = TypeVar("T")

_LOADED = ("LD_LIBRARY_PATH", "PYTHONPATH", "ORBIT_RECORD")
_LOADED_PREFIXES = (
    "CUDA_", "NVIDIA_", "NV_", "CUDNN_", "CUBLAS_", "NCCL_", "TRITON_", "TORCH_", "PYTORCH_", "TORCHINDUCTOR_",
    "OMP_", "MKL_", "OPENBLAS_",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Hello:
    """Who connects. `environment` are the client's variables. `passed` names those that its programs see besides the
    allow-list of `process.program`. `author_python` is the client's own Python: compiler wheels may be beside it.
    """

    key: str
    client: str
    environment: dict[str, str] = field(repr=False)
    passed: tuple[str, ...] = ()
    author_python: str = ""
    cache_bytes: int = 2 << 30
    spare_idle_s: float = 300.0
    version: int = VERSION


@dataclass(frozen=True, slots=True)
class Welcome:
    """A worker's answer. `mark` is what the environment of its programs has (`process_groups.MARK`), `log` is its log
    file.
    """

    pid: int
    mark: str
    log: str


@dataclass(frozen=True, slots=True)
class Status:
    """A worker that runs. `since` is in seconds of the wall clock, `memory` is bytes of it and all below it.
    `clients` are their names; `jobs` is how many of their jobs run or wait. `warm` says that a prepared Python holds
    GPU memory. `cache` is the cache folder that they share, "" if the worker does not say.
    """

    pid: int
    python: str
    python_version: str
    release: str
    since: float
    clients: tuple[str, ...] = ()
    jobs: int = 0
    memory: int | None = None
    warm: bool = False
    cache: str = ""


def loaded(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that count when a process starts, or loads CUDA and torch: a prepared process cannot be
    given others. All others are given to a job when it begins.
    """
    return {
        name: value
        for name, value in environment.items()
        if name in _LOADED or name.startswith(_LOADED_PREFIXES)
    }


def key(python: str, cache: str, environment: Mapping[str, str], release: str) -> str:
    """Return the name of the worker that these can share: 16 hexadecimal digits.

    Its code counts too, by its last change: a worker must not outlive an upgrade, or an edit of ours.
    """
    parts = [
        python,
        cache,
        sorted(loaded(environment).items()),
        release,
        VERSION,
        str(PACKAGE),
        _changed(PACKAGE),
    ]
    text = json.dumps(parts).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=8).hexdigest()


def _changed(package: Path) -> int:
    newest, folders = 0, [os.fspath(package)]
    for folder in folders:  # a third of the time that Path.rglob takes
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith(".py"):
                    newest = max(newest, entry.stat().st_mtime_ns)
                elif entry.is_dir() and entry.name != "__pycache__":
                    folders.append(entry.path)
    return newest


def encode(kind: str, message: Any = None) -> bytes:
    """Encode a message as one line of JSON, with its line end."""
    data = dataclasses.asdict(message) if message is not None else {}
    text = json.dumps({"kind": kind} | data, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass") + b"\n"


def decode(line: bytes) -> tuple[str, dict[str, Any]]:
    """Return the kind of a message, and the rest of it. Raises ValueError, with one sentence."""
    data: Any = codec.read_json(line.decode("utf-8", "surrogatepass"))
    record = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
    kind = record.pop("kind", None)
    if not isinstance(kind, str):
        raise ValueError("not the first line of a client or a worker: it has no kind")  # noqa: TRY004
    return kind, record


def build(cls: type[T], record: dict[str, Any]) -> T:
    """Build a dataclass of this module from a record. Fields of another version are passed over. Raises ValueError if
    the record is no such dataclass.
    """
    return codec.build(cls, record, lenient=True)
