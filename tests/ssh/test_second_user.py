"""A host on which another user logs in than the one who runs the tests: what a third one can read, enter or connect to there."""

from __future__ import annotations

import asyncio
import os
import pwd
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from orbit_remote.common.requests import ExecStart, Job
from tests.ssh.host import Host, until
from tests.ssh.test_host import Make, finished

pytestmark = pytest.mark.slow
LOOKS = """
import os, socket, sys
for top in sys.argv[1:]:
    for folder, folders, files in os.walk(top, onerror=lambda error: print("closed", error.filename)):
        for path in (os.path.join(folder, name) for name in [*folders, *files]):
            print("open", path)
    link = socket.socket(socket.AF_UNIX)
    try:
        link.connect(top)
        print("open", top)
    except OSError as error:
        print(type(error).__name__, top)
"""
"""What another user sees of some folders and sockets."""


def made(name: str) -> Iterator[str]:
    if os.geteuid() != 0:
        pytest.skip("only root can make the users of this test")
    words = [
        "useradd",
        "--system",
        "--no-create-home",
        "--home-dir",
        "/",
        "--shell",
        "/bin/sh",
        "-p",
        "*",
        name,
    ]
    try:
        subprocess.run(words, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no user can be made here: {error}")
    try:
        yield name
    finally:
        subprocess.run(["userdel", name], check=True, capture_output=True)


@pytest.fixture
def login_user() -> Iterator[str]:
    yield from made(f"orbit-a-{os.getpid()}")


@pytest.fixture
def other_user() -> Iterator[str]:
    yield from made(f"orbit-b-{os.getpid()}")


def python_of(user: str) -> str:
    """Return a Python that another user can start: root's own may be in root's folder."""
    for python in (sys.executable, "/usr/bin/python3"):
        with suppress(OSError):
            words = [python, "-c", "import sys; sys.exit(sys.version_info < (3, 11))"]
            if not subprocess.run(words, user=user, check=False).returncode:
                return python
    pytest.skip("there is no Python here that another user can start")


def seen_by(user: str, *places: Path) -> list[str]:
    words = [python_of(user), "-I", "-c", LOOKS, *map(str, places)]
    return subprocess.run(
        words, check=True, capture_output=True, text=True, user=user, group=user, extra_groups=[]
    ).stdout.splitlines()


async def test_another_user_of_the_host_reads_nothing(
    runner: Make, host: Host, login_user: str, other_user: str, tmp_path: Path
) -> None:
    python = python_of(login_user)
    one = runner(python=python)
    text = "import os, time\nopen('began', 'w')\nprint(os.getuid(), flush=True)\nwhile not os.path.exists('go'): time.sleep(0.01)\n"
    folder = tmp_path / "p"
    folder.mkdir()
    (folder / "waits.py").write_text(text)
    wanted = Job(
        "r1", "run", "triton", str(folder / "waits.py"), text, directory=str(folder), start=ExecStart(str(folder))
    )  # fmt: skip
    task = asyncio.create_task(finished(one, wanted))
    home, runtime = host.cache / "orbit-lsp" / "ssh", host.run / "orbit-lsp"
    await asyncio.to_thread(
        until, lambda: task.done() or list(home.glob("trees/*/began")), "the program begins"
    )
    assert not task.done(), task.result()
    sockets = list(runtime.glob("*.proxy")) + list(runtime.glob("*.sock"))
    assert len(sockets) >= 2, list(runtime.iterdir())
    owners = {path.lstat().st_uid for top in (home, runtime) for path in top.rglob("*")}
    assert owners == {pwd.getpwnam(login_user).pw_uid}
    places = [host.cache, home, host.run, runtime, *sockets]
    assert not [
        line for line in seen_by(other_user, *places) if not line.startswith(("closed", "PermissionError"))
    ]
    assert [line for line in seen_by(login_user, *places) if line == f"open {sockets[0]}"], "its own user can"
    (tree,) = home.glob("trees/*/waits.py")
    (tree.parent / "go").touch()
    last = await task
    assert (last.outcome, last.stdout) == ("ok", f"{pwd.getpwnam(login_user).pw_uid}\n")
    await one.close()
    for number in host.processes():
        with suppress(ProcessLookupError):
            os.kill(number, 9)
    await asyncio.to_thread(until, lambda: not host.processes(), "all end")
