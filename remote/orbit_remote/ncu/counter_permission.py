"""Finds out whether this machine lets Nsight Compute read counters. The first profile determines it, and it is
remembered.

The answer is kept in the worker's cache, by the GPU, the driver, the tool's version and everything else that decides
about the permission. So it is forgotten when an administrator changes the permission.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import time
from dataclasses import field
from pathlib import Path

from orbit_remote.common import codec, limits, regular_files
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.messages import Device, content_hash
from orbit_remote.ncu.ncu_log import PERMISSION
from orbit_remote.ncu.ncu_options import Tool

_PARAMETERS = Path("/proc/driver/nvidia/params")
_REFUSED_S = 86400.0
"""A refusal is tried again after a day: what has been installed since is not among what decides."""
_CAP_SYS_ADMIN = 21
_CAP_PERFMON = 38


@dataclass(frozen=True, slots=True)
class CounterPermission:
    """The permission to read counters. `permitted` is None if nothing has been tried yet. `why` is the sentence of
    the refusal, `at` when it was stored.
    """

    permitted: bool | None = None
    why: str = ""
    at: float = field(default=0.0, compare=False)


def expected(folder: Path, device: Device, tool: Tool) -> CounterPermission:
    """Return what a profile found out, else what the driver's settings suggest."""
    remembered = known(folder, device, tool)
    if remembered.permitted is None and restricted() and not _capable():
        return CounterPermission(False, PERMISSION.sentence)
    return remembered


def known(folder: Path, device: Device, tool: Tool) -> CounterPermission:
    try:
        known = codec.build(
            CounterPermission, codec.read_json(regular_files.read(_file(folder, device, tool), limits.STATE))
        )
        return known if known.permitted or 0 <= time.time() - known.at < _REFUSED_S else CounterPermission()
    except (OSError, ValueError):
        return CounterPermission()


def remember(folder: Path, device: Device, tool: Tool, outcome: CounterPermission) -> None:
    """Remember an outcome. If the cache cannot be written, that costs one more try."""
    with contextlib.suppress(OSError):
        record = dataclasses.asdict(dataclasses.replace(outcome, at=time.time()))
        regular_files.replace(_file(folder, device, tool), json.dumps(record).encode())


def _file(folder: Path, device: Device, tool: Tool) -> Path:
    parts = [
        device.uuid or device.name,
        device.driver,
        tool.path,
        tool.version,
        restricted(),
        *_rights(),
        _boot(),
    ]
    return folder / f"{content_hash(repr(parts).encode())}.json"


def restricted() -> bool | None:
    """Return whether the driver reserves counters for administrators. Return None if it does not say."""
    with contextlib.suppress(OSError):
        match = re.search(
            r"^RmProfilingAdminOnly:\s*(\d)", regular_files.text(_PARAMETERS, limits.STATE), re.MULTILINE
        )
        return match[1] == "1" if match else None
    return None


def _capable() -> bool:
    wanted = 1 << _CAP_SYS_ADMIN | 1 << _CAP_PERFMON
    return any(int(mask, 16) & wanted for mask in _rights()[1:])


def _rights() -> tuple[str, ...]:
    """Return the user of this process and what it may do."""
    user = str(os.geteuid()) if hasattr(os, "geteuid") else ""
    with contextlib.suppress(OSError):
        match = re.search(
            r"^CapEff:\s*(\w+)", regular_files.text("/proc/self/status", limits.STATE), re.MULTILINE
        )
        return (user, match[1]) if match else (user,)
    return (user,)


def _boot() -> str:
    with contextlib.suppress(OSError):
        return regular_files.text("/proc/sys/kernel/random/boot_id", limits.STATE).strip()
    return ""
