"""The judge's locks where Linux has no Landlock, as gVisor has none."""

from __future__ import annotations

import errno
import os

import pytest

from orbit_remote.judge import locks


def test_without_landlock_the_files_count_as_not_locked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "_call", lambda *_: (-1, os.strerror(errno.ENOSYS)))
    held = locks.Locks()
    locks.confine(held, ["/usr"], [])
    assert held.missing == [f"{locks.FILES} (no Landlock: Function not implemented)"]
    assert held.missing[0].startswith(
        locks.NEEDED
    )  # by which the grade is author, and nothing is built ahead
    assert not held.held
