"""Fixtures of a host that is reached by ssh. Where there is no sshd, these tests are skipped, and say so."""

from __future__ import annotations

import compileall
import io
import os
import shutil
import tempfile
import zipfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orbit_lsp.runners.ssh import command_line
from orbit_lsp.runners.ssh.connection import SshPlace
from orbit_lsp.runners.ssh.runner import SshOptions, SshRunner
from tests.ssh.host import SSHD, Host


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if SSHD:
        return
    skip = pytest.mark.skip(reason="needs OpenSSH's server: apt-get install openssh-server")
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(skip)


@pytest.fixture
def login_user() -> str:
    """Who logs in on the host; empty for whoever runs the tests."""
    return ""


@pytest.fixture(scope="session")
def brought(of_the_run: Path) -> Path:
    """Our package as a first connection leaves it on a host, once Python has compiled it."""
    folder = of_the_run / "brought"
    if not folder.exists():
        own = of_the_run / f"brought-{os.getpid()}"
        with zipfile.ZipFile(io.BytesIO(command_line.archive())) as packed:
            packed.extractall(own)
        compileall.compile_dir(own, quiet=1)
        with suppress(OSError):  # another process was faster
            own.rename(folder)
    return folder


@pytest.fixture
def first_connection() -> None:
    """For tests of a host that has nothing of ours yet: the others need not compile our package again."""


@pytest.fixture
def host(
    monkeypatch: pytest.MonkeyPatch,
    real_starts: None,
    login_user: str,
    brought: Path,
    request: pytest.FixtureRequest,
) -> Iterator[Host]:
    """Short: the folder is part of sockets' paths."""
    del real_starts
    with tempfile.TemporaryDirectory(prefix="orbit-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        if os.getuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        made = Host(folder, user=login_user)
        if not login_user and "first_connection" not in request.fixturenames:
            there = made.cache / "orbit-lsp" / "ssh" / "package" / command_line.digest()
            shutil.copytree(brought, there)  # with its times, which what is compiled is of
        monkeypatch.setenv("PATH", f"{folder}/bin{os.pathsep}{os.environ['PATH']}")
        monkeypatch.setenv("XDG_CACHE_HOME", f"{folder}/a %")
        command_line.sharing.cache_clear()
        made.start()
        yield made
        made.close()
        command_line.sharing.cache_clear()


@pytest.fixture
async def runner(host: Host) -> AsyncIterator[Callable[..., SshRunner]]:
    """runner(**fields of Options and Place): one on the host; they are closed at the end."""
    made: list[SshRunner] = []

    def make(**fields: Any) -> SshRunner:
        of_place = {"host": host.name, "python": str(host.python), "laptop": "0123"} | {
            name: fields.pop(name) for name in list(fields) if name in SshPlace.__dataclass_fields__
        }
        made.append(SshRunner(replace(SshOptions(SshPlace(**of_place)), **fields)))
        return made[-1]

    yield make
    for each in made:
        await each.close()
