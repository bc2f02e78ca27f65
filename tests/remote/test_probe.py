"""What `probe` reports of this machine."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from pathlib import Path

import pytest

from orbit_remote.common.requests import Probe
from orbit_remote.worker import probe


def test_a_package_that_is_installed_or_removed_while_the_worker_runs_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(tmp_path / "missing"), *sys.path])
    before = asyncio.run(probe.probe(Probe("p"))).packages
    assert asyncio.run(probe.probe(Probe("p"))).packages == before
    installed = tmp_path / "cuda_core-99.1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: cuda-core\nVersion: 99.1\n")
    os.utime(tmp_path, ns=(1, 1))  # whatever the file system's clock ticks in
    assert asyncio.run(probe.probe(Probe("p"))).packages == before | {"cuda-core": "99.1"}
    shutil.rmtree(installed)
    os.utime(tmp_path, ns=(2, 2))
    assert asyncio.run(probe.probe(Probe("p"))).packages == before
