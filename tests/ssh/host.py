"""A machine that is reached by ssh: an OpenSSH server of this user's own, on the loopback, with keys and folders of its own."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests import processes_check

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
RECORDED = Path(__file__).with_name("recorded_socket.py")
SLOW_LINK = Path(__file__).with_name("slow_link.py")
_BEGIN_S = 60.0


class Host:
    """`name` is its alias in the configuration of `ssh`, which `folder / "bin" / "ssh"` reads in place of the user's own. `user` logs in
    there, or else whoever runs the tests.
    """

    def __init__(self, folder: Path, name: str = "gpu1", user: str = "") -> None:
        self.folder, self.name, self.user = folder, name, user
        self.cache, self.run = folder / "cache", folder / "run"
        self.python = folder / "python"
        self._server: subprocess.Popen[bytes] | None = None
        self._network: subprocess.Popen[str] | None = None
        for key in ("host", "id"):
            self._key(key)
        shutil.copy(folder / "id.pub", folder / "allowed")
        if user:
            folder.chmod(0o711)
            for place in (self.cache, self.run):
                place.mkdir(mode=0o700)
                shutil.chown(place, user)
        self.port = self._entrance = _free_port()
        self.login()
        self.answers(gpu=False)
        (folder / "bin").mkdir()
        _script(folder / "bin" / "ssh", f'exec {shutil.which("ssh")} -F {folder}/config "$@"')
        self.configure()

    def _key(self, name: str) -> None:
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / name)]
        subprocess.run(words, check=True, stdin=subprocess.DEVNULL)

    def configure(self, *more: str, known: bool = True) -> None:
        """Write the client's configuration, in which `more` are further lines; `known`: the host key is."""
        key = (self.folder / "host.pub").read_text()
        (self.folder / "known").write_text(f"[127.0.0.1]:{self._entrance} {key}" if known else "")
        lines = [
            *more, f"Host {self.name}", *([f"User {self.user}"] if self.user else []), "HostName 127.0.0.1", f"Port {self._entrance}", f"IdentityFile {self.folder}/id",
            "IdentitiesOnly yes", f"UserKnownHostsFile {self.folder}/known", "GlobalKnownHostsFile /dev/null",
        ]  # fmt: skip
        (self.folder / "config").write_text("\n".join(lines) + "\n")

    def login(self, *lines: str, shell: str = "/bin/sh") -> None:
        """What a login runs before the command, and the shell that reads the command."""
        _script(self.folder / "login", *lines, f'exec {shell} -c "$SSH_ORIGINAL_COMMAND"')

    def answers(self, *, gpu: bool) -> None:
        """The Python there; with `gpu` its worker answers as it answered on an H100."""
        python = shlex.quote(sys.executable)
        recorded = f'case "$*" in *" worker "*) exec {python} {shlex.quote(str(RECORDED))} "$@";; esac'
        _script(self.python, *([recorded] if gpu else []), f'exec {python} "$@"')

    def start(self) -> None:
        assert SSHD
        (self.folder / "sshd").write_text(
            f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {self.folder}/host\n"
            f"AuthorizedKeysFile {self.folder}/allowed\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n"
            f"UsePAM no\nStrictModes no\nPidFile none\nForceCommand {self.folder}/login\nMaxStartups 100\n"
            f"SetEnv XDG_CACHE_HOME={self.cache} ORBIT_SSH_RUNTIME={self.run}\n"
        )
        with (self.folder / "sshd.log").open("ab") as log:
            self._server = subprocess.Popen(
                [SSHD, "-D", "-e", "-f", str(self.folder / "sshd")], stderr=log, stdin=subprocess.DEVNULL
            )
        until = time.monotonic() + _BEGIN_S
        while not _listens(self.port):
            assert self._server.poll() is None, (self.folder / "sshd.log").read_text()
            assert time.monotonic() < until
            time.sleep(0.02)

    def far_away(self, round_trip_ms: float) -> None:
        """From now on connections go through a network of that delay."""
        words = [sys.executable, str(SLOW_LINK), str(self.port), str(round_trip_ms / 2)]
        self._network = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert self._network.stdout
        self._entrance = int(self._network.stdout.readline())
        self.configure()

    def stop(self) -> None:
        """No further connections; those that are there stay."""
        if self._server:
            self._server.terminate()
            self._server.wait()
            self._server = None

    def processes(self, word: str = "") -> list[int]:
        """The processes there that were started through the package, whose command has `word`."""
        return [
            number
            for number in _numbers()
            if str(self.cache) in (command := processes_check.command(number)) and word in command
        ]

    def drop_links(self) -> None:
        """End what carries every connection: the processes of sshd, and our ssh."""
        for number in _numbers():
            command = processes_check.command(number)
            ours = f"{self.folder}/config" in command or (
                command.startswith("ssh: ") and str(self.folder) in command
            )
            if ours or (self._server and _parent(number) == self._server.pid):
                with suppress(ProcessLookupError):
                    os.kill(number, signal.SIGKILL)

    def close(self) -> None:
        self.drop_links()
        self.stop()
        if self._network:
            self._network.kill()
            self._network.communicate()
        for number in self.processes():
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)


def _numbers() -> list[int]:
    return [int(path.name) for path in Path("/proc").glob("[0-9]*")]


def _parent(number: int) -> int:
    with suppress(OSError, IndexError, ValueError):
        return int(Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def _script(path: Path, *lines: str) -> None:
    path.write_text("\n".join(["#!/bin/sh", *lines]) + "\n")
    path.chmod(0o755)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def until(condition: Callable[[], object], what: str) -> None:
    """Look again and again until it holds."""
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.02)
