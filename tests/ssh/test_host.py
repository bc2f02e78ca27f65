"""What a host does: the first connection, files by content, compiles and runs; and what is said where a login is not as it should be."""

from __future__ import annotations

import ast
import asyncio
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from orbit_lsp.runners.ssh import connection
from orbit_lsp.runners.ssh import runner as ssh_runner
from orbit_lsp.runners.ssh.runner import SshRunner
from orbit_lsp.runners.ssh.trouble import SshError
from orbit_remote import PACKAGE
from orbit_remote.common import messages as c
from orbit_remote.common.requests import Job
from tests.ssh.host import Host

Make = Callable[..., SshRunner]
KERNEL = '#include "n.cuh"\n__global__ void k(int* x) { x[0] = N; }\n'


def job(folder: Path, text: str = KERNEL, run: str = "r1", **more: Any) -> Job:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "n.cuh").write_text("#define N 3\n")
    path = folder / "k.cu"
    path.write_text(text)
    values = {
        "action": "compile",
        "language": "cuda",
        "directory": str(folder),
        "architecture": "sm_90a",
    } | more
    return Job(run=run, path=str(path), text=text, **values)


async def events(runner: SshRunner, wanted: Job) -> list[c.Event]:
    return [event async for event in runner.run(wanted)]


async def finished(runner: SshRunner, wanted: Job) -> c.Finished:
    last = (await events(runner, wanted))[-1]
    assert isinstance(last, c.Finished)
    return last


def stages(heard: list[c.Event]) -> list[str]:
    return [event.why for event in heard if isinstance(event, c.Stage) and event.why]


@pytest.mark.usefixtures("first_connection")
async def test_a_file_is_compiled_by_the_hosts_nvcc(runner: Make, tmp_path: Path) -> None:
    folder = tmp_path / "pröjekt mit Lücke 項目 a'b\"c"
    heard = await events(runner(), job(folder))
    last = heard[-1]
    assert isinstance(last, c.Finished)
    assert last.outcome == "ok", last.failure
    (built,) = [event for event in heard if isinstance(event, c.Built)]
    assert [each.place.file for each in built.resources if each.place] == [str(folder / "k.cu")]
    assert str(folder / "n.cuh") in built.files
    assert stages(heard) == [
        "on gpu1", "sending 1 file to gpu1",
    ] or stages(heard)[:3] == [
        "on gpu1", "connecting to gpu1; a key that waits for a touch is to be touched now", "setting up orbit-lsp on gpu1",
    ]  # fmt: skip


async def test_an_error_stands_at_the_authors_line(runner: Make, tmp_path: Path) -> None:
    last = await finished(runner(), job(tmp_path / "p", KERNEL.replace("x[0]", "oops")))
    assert last.outcome == "compile error"
    assert last.failure
    assert last.failure.place
    assert (last.failure.place.file, last.failure.place.line) == (str(tmp_path / "p" / "k.cu"), 2)


async def test_only_what_is_missing_is_sent(runner: Make, host: Host, tmp_path: Path) -> None:
    one = runner()
    assert (await finished(one, job(tmp_path / "p"))).outcome == "ok"
    changed = KERNEL.replace("x[0]", "x[1]")
    heard = await events(one, job(tmp_path / "p", changed, "r2"))
    assert stages(heard) == ["on gpu1"], "its text comes with the job"
    heard = await events(runner(laptop="4567"), job(tmp_path / "p", changed, "r3"))
    assert not any("sending" in each for each in stages(heard)), "another laptop's file has the same content"


@pytest.mark.usefixtures("first_connection")
async def test_the_second_connection_brings_no_package(runner: Make, host: Host) -> None:
    assert await runner().reached()
    (package,) = (host.cache / "orbit-lsp" / "ssh" / "package").iterdir()
    before = (package / "orbit_remote" / "__main__.py").stat().st_ino
    assert await runner(laptop="4567").reached()
    assert [path.name for path in package.parent.iterdir()] == [package.name]
    assert (package / "orbit_remote" / "__main__.py").stat().st_ino == before


async def test_a_program_runs_and_its_output_comes(runner: Make, host: Host, tmp_path: Path) -> None:
    host.answers(gpu=True)
    text = KERNEL.replace(" k(", " saxpy(") + "int main() { saxpy<<<1, 1>>>(0); }\n"
    last = await finished(runner(), job(tmp_path / "p", text, action="run"))
    assert last.outcome == "ok"
    assert [each.timing.median for each in last.launches] == [288_032]


async def test_what_the_host_has(runner: Make, host: Host) -> None:
    host.answers(gpu=True)
    machine = await runner().reached()
    assert machine
    assert [device.name for device in machine.devices] == ["NVIDIA H100 80GB HBM3"]


async def test_without_a_gpu_the_message_names_the_host(runner: Make, tmp_path: Path) -> None:
    last = await finished(runner(), job(tmp_path / "p", KERNEL + "int main() {}\n", action="run"))
    assert last.failure
    assert last.failure.message == "there is no NVIDIA GPU in gpu1 to run it on"
    assert last.failure.remedy.startswith("`orbit-lsp doctor --runner ssh:gpu1` shows what is missing")


@pytest.mark.usefixtures("first_connection")
async def test_nothing_of_a_job_is_readable_by_others(runner: Make, host: Host, tmp_path: Path) -> None:
    await finished(runner(), job(tmp_path / "p"))
    home = host.cache / "orbit-lsp" / "ssh"
    assert home.stat().st_mode & 0o777 == 0o700
    assert (host.run / "orbit-lsp").stat().st_mode & 0o777 == 0o700


async def test_closing_leaves_the_worker_alone(runner: Make, host: Host, tmp_path: Path) -> None:
    one = runner()
    await finished(one, job(tmp_path / "p"))
    assert host.processes(" proxy ")
    await one.close()
    assert not host.processes(" relay ")
    assert not list((host.run / "orbit-lsp").glob("*.proxy*"))
    assert host.processes(" worker ")


# -- logins ------------------------------------------------------------------------------------------

NOISE = ("echo Welcome; printf 'no line end'; echo orbit- >&2",)


@pytest.mark.parametrize(
    ("shell", "noise"),
    [
        ("/bin/sh", ()),
        ("/usr/bin/fish", NOISE),
        *(pytest.param(shell, NOISE, marks=pytest.mark.slow) for shell in ("/bin/sh", "/bin/bash", "/bin/tcsh", "/bin/dash", "/bin/zsh")),
    ],
)  # fmt: skip
async def test_any_shell_and_a_login_that_prints(
    runner: Make, host: Host, shell: str, noise: tuple[str, ...]
) -> None:
    if not shutil.which(shell):
        pytest.skip(f"there is no {shell}")
    host.login(*noise, shell=shell)
    assert await runner().reached()


async def refusal(runner: SshRunner) -> tuple[str, str]:
    with pytest.raises(SshError) as raised:
        await runner.reached()
    return raised.value.message, raised.value.remedy


OLD = 'shift 2; load="$1"; shift; exec {python} -I -c "import sys; sys.version_info=(3,8,10,\'final\',0); $load" "$@"'


async def test_an_old_python(runner: Make, host: Host) -> None:
    python = host.python.read_text().rpartition("exec ")[2].partition(" ")[0]
    host.python.write_text("#!/bin/sh\n" + OLD.format(python=python) + "\n")
    message, remedy = await refusal(runner())
    assert message.startswith("the Python of gpu1 is 3.8.10 (")
    assert message.endswith("and 3.11 or newer is needed")
    assert remedy == "install a newer one on gpu1, or set `orbit.ssh.python` to its path there"


def test_any_python_reads_the_first_program() -> None:
    ast.parse((PACKAGE / "ssh_host" / "bootstrap.py").read_text(), feature_version=(3, 6))


async def test_no_python(runner: Make) -> None:
    message, remedy = await refusal(runner(python="/nowhere/python"))
    assert message == "gpu1 has no Python that can be started (/nowhere/python is not there)"
    assert "set `orbit.ssh.python`" in remedy


async def test_an_account_that_may_not_log_in(runner: Make, host: Host) -> None:
    host.login("echo This account is currently not available.", "exit 1")
    message, _ = await refusal(runner())
    assert "This account is currently not available." in message


async def test_an_account_whose_password_has_expired(runner: Make, host: Host) -> None:
    host.login("echo 'Password change required but no TTY available.' >&2", "exit 1")
    assert await refusal(runner()) == (
        "the password of the account on gpu1 has expired", "run `ssh gpu1` in a terminal and change it",
    )  # fmt: skip


async def test_no_room_for_a_temporary_file_here(runner: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    message, remedy = await refusal(runner())
    assert message == "this machine takes no temporary file (No such file or directory)"
    assert remedy == "free some space in /tmp, or set TMPDIR"


async def test_a_login_that_ends(runner: Make, host: Host) -> None:
    host.login("exit 7")
    assert await refusal(runner()) == (
        "the login on gpu1 ended before orbit-lsp's program began (exit code 7)",
        "check that `ssh gpu1 echo` works in a terminal and prints an empty line",
    )


@pytest.mark.slow
async def test_a_login_that_prints_without_end(runner: Make, host: Host) -> None:
    host.login("yes")
    message, _ = await refusal(runner())
    assert message == "the login on gpu1 prints more than 1 MiB before a program begins"


async def test_a_login_that_waits(runner: Make, host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "CONNECT_S", 1.0)
    host.login("exec sleep 60")
    message, remedy = await refusal(runner())
    assert (message, remedy) == (
        "gpu1 has not answered within 1 s",
        "check that `ssh gpu1 echo` works in a terminal and prints an empty line",
    )


async def test_a_key_that_nobody_knows(runner: Make, host: Host) -> None:
    host.configure(known=False)
    assert await refusal(runner()) == (
        "ssh does not know the host key of gpu1",
        "run `ssh gpu1` once in a terminal and accept the key after comparing it",
    )


async def test_a_key_that_changed(runner: Make, host: Host) -> None:
    other = (host.folder / "id.pub").read_text()
    (host.folder / "known").write_text(f"[127.0.0.1]:{host.port} {other}")
    message, remedy = await refusal(runner())
    assert message.startswith("the host key of gpu1 is not the one that ssh knows")
    assert "ssh-keygen -R gpu1" in remedy


async def test_a_user_who_is_not_let_in(runner: Make, host: Host) -> None:
    (host.folder / "allowed").write_text("")
    message, remedy = await refusal(runner())
    assert message.startswith("gpu1 did not let ssh in (")
    assert "Permission denied" in message
    assert "ssh-agent" in remedy


async def test_a_host_that_is_off(runner: Make, host: Host) -> None:
    host.stop()
    message, remedy = await refusal(runner())
    assert message == "gpu1 takes no ssh connections"
    assert remedy == "check that the machine is on and that `ssh gpu1` works in a terminal"


async def test_a_host_that_does_not_exist(runner: Make) -> None:
    assert await refusal(runner(host="no-such-host.invalid")) == (
        "there is no host no-such-host.invalid", "check the name; an alias has to be in ~/.ssh/config",
    )  # fmt: skip


async def test_a_configuration_that_ssh_refuses(runner: Make, host: Host) -> None:
    host.configure("NoSuchWord yes")
    message, remedy = await refusal(runner())
    assert message.startswith("ssh does not accept its configuration: ")
    assert remedy == "correct it"


async def test_no_ssh(runner: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    one = runner()
    monkeypatch.setenv("PATH", "/nowhere")
    assert await refusal(one) == ("this machine has no ssh", "install the OpenSSH client")


async def test_a_program_that_should_carry_the_connection_ends(runner: Make, host: Host) -> None:
    host.configure("Host gpu1", "ProxyCommand sh -c 'echo the VPN is down >&2'")
    assert await refusal(runner()) == (
        "the ProxyCommand or ProxyJump of gpu1 ended before it reached it", "`ssh gpu1` in a terminal shows what it says",
    )  # fmt: skip


async def test_a_path_for_a_shared_connection_in_no_folder(runner: Make, host: Host) -> None:
    host.configure("Host gpu1", "ControlMaster auto", f"ControlPath {host.folder}/nowhere/%C")
    message, remedy = await refusal(runner())
    assert message.startswith("ssh cannot share its connection to gpu1 (")
    assert remedy.startswith("correct ControlPath in ~/.ssh/config")


async def test_a_python_there_that_may_not_be_started(runner: Make, host: Host) -> None:
    host.login("echo 'sh: python3: Permission denied' >&2", "exit 126")
    message, _ = await refusal(runner())
    assert message == (
        "the login on gpu1 ended before orbit-lsp's program began (exit code 126): sh: python3: Permission denied"
    )


@pytest.mark.usefixtures("first_connection")
async def test_a_cache_that_cannot_be_written(runner: Make, host: Host) -> None:
    host.cache.write_text("")
    message, _ = await refusal(runner())
    assert message == f"orbit-lsp cannot write its files on gpu1 ({host.cache}/orbit-lsp): Not a directory"


async def test_a_folder_of_sockets_that_others_may_enter(runner: Make, host: Host) -> None:
    sockets = host.run / "orbit-lsp"
    sockets.mkdir(parents=True)
    sockets.chmod(0o777)
    message, remedy = await refusal(runner())
    assert message.startswith(
        f"orbit-lsp cannot run on gpu1: the runtime folder {sockets} is open to other users"
    )
    assert remedy == "correct it there"


@pytest.mark.slow
async def test_an_nvcc_that_is_not_there(runner: Make, tmp_path: Path) -> None:
    last = await finished(runner(nvcc="/nowhere/nvcc"), job(tmp_path / "p"))
    assert last.failure
    assert last.failure.message == "the setting `ssh.nvcc` names /nowhere/nvcc, and there is no nvcc"


@pytest.mark.slow
async def test_the_users_own_shared_connection_is_used(runner: Make, host: Host) -> None:
    host.configure("ControlMaster auto", f"ControlPath {host.folder}/own-%C", "ControlPersist 60")
    assert await runner().reached()
    assert list(host.folder.glob("own-*"))
    assert not list((host.folder / "a %").rglob("ssh-links/*"))


async def test_one_connection_for_all_programs(runner: Make, host: Host) -> None:
    assert await runner().reached()
    assert len(list((host.folder / "a %" / "orbit-lsp" / "ssh-links").iterdir())) == 1
    (host.folder / "allowed").write_text("")  # a second connection would be refused
    assert await runner(laptop="4567").reached()


@pytest.mark.slow
async def test_a_configuration_made_for_people(runner: Make, host: Host) -> None:
    host.configure("RemoteCommand echo no", "RequestTTY force", "LocalForward 127.0.0.1:1 127.0.0.1:2")
    assert await runner().reached()


@pytest.mark.slow
async def test_two_programs_of_one_laptop_at_once(runner: Make, host: Host, tmp_path: Path) -> None:
    texts = [KERNEL.replace("x[0]", f"x[{number}]") for number in range(4)]
    ended = await asyncio.gather(
        *(finished(runner(), job(tmp_path / "p", text, f"r{at}")) for at, text in enumerate(texts))
    )
    assert [each.outcome for each in ended] == ["ok"] * 4


async def test_what_is_typed_is_checked_by_the_hosts_front_end(
    runner: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh_runner, "TYPED_S", 1000.0)
    one = runner()
    assert (await finished(one, job(tmp_path / "p"))).outcome == "ok"
    typed, tries = None, 0
    wrong = KERNEL.replace("x[0]", "oops")
    while typed is None and tries < 200:  # it takes a while until the front end waits
        tries += 1
        typed = await one.typed(job(tmp_path / "p", wrong, f"t{tries}"), start=True)
    assert typed
    assert [problem.place.line for problem in typed.problems if problem.place] == [2]
    monkeypatch.setattr(ssh_runner, "TYPED_S", 0.0)
    for start in (True, False):
        assert await one.typed(job(tmp_path / "p", wrong, "late"), start=start) is None, "it comes too late"


@pytest.mark.slow
async def test_another_clock_changes_nothing(runner: Make, host: Host, tmp_path: Path) -> None:
    faketime = "import time; time.time = lambda now=time.time: now() - 86400"
    (host.folder / "sitecustomize.py").write_text(faketime)
    host.login(f"export PYTHONPATH={host.folder}")
    before = time.time()
    heard = await events(runner(), job(tmp_path / "p"))
    assert isinstance(heard[-1], c.Finished)
    assert heard[-1].outcome == "ok"
    assert all(before <= event.at <= time.time() for event in heard if isinstance(event, c.Stage))


@pytest.fixture
def small_disk(first_connection: None, host: Host) -> Iterator[None]:
    """The host's cache is on a disk that holds less than our package."""
    host.cache.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=300k", "orbit", str(host.cache)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False).returncode:
        pytest.skip("only root can mount a small disk")
    yield
    subprocess.run(["umount", "-l", str(host.cache)], check=True)


@pytest.mark.usefixtures("small_disk")
async def test_a_disk_that_is_full(runner: Make) -> None:
    message, remedy = await refusal(runner())
    assert message.startswith("orbit-lsp cannot write its files on gpu1 (")
    assert message.endswith("No space left on device")
    assert remedy == "free some space there"
