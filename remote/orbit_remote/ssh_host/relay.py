"""One connection: it passes what comes from the author's machine to its proxy, and back. The first one starts the
proxy.

The runtime folder of a login ends with the login, and so would the sockets in it. So ours are elsewhere.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

from orbit_remote import MAIN
from orbit_remote.process import file_lock, runtime_folder

_PIECE = 1 << 16


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="orbit_remote relay")
    parser.add_argument("--proxy", required=True)
    options, _ = parser.parse_known_args(arguments)
    try:
        link = _proxy(options.proxy, arguments)
    except (OSError, runtime_folder.RefusedError) as error:
        print(error, file=sys.stderr)
        return 1
    threading.Thread(target=_inward, args=(link,), daemon=True, name="inward").start()
    with suppress(OSError):
        while piece := link.recv(_PIECE):
            view = memoryview(piece)
            while view:
                view = view[os.write(1, view) :]
    os._exit(0)


def _inward(link: socket.socket) -> None:
    with suppress(OSError):
        while piece := os.read(0, _PIECE):
            link.sendall(piece)
    with suppress(OSError):
        link.shutdown(socket.SHUT_WR)


def folder() -> Path:
    """Return the folder of our sockets, apart from those of people at this machine. ORBIT_SSH_RUNTIME names the one
    above it. Raises OSError, RefusedError.
    """
    above = os.environ.get("ORBIT_SSH_RUNTIME") or f"/tmp/orbit-lsp-ssh-{os.getuid()}"  # noqa: S108 - who owns it is looked at
    with suppress(FileExistsError):
        Path(above).mkdir(mode=0o700)
    os.environ["XDG_RUNTIME_DIR"] = above
    return runtime_folder.folder()


def _proxy(name: str, arguments: list[str]) -> socket.socket:
    """Connect to the proxy of that name, which is started if there is none. Raises OSError, RefusedError."""
    path = folder() / f"{name}.proxy"
    if link := connected(path):
        return link
    lock = file_lock.waited_for(path.parent / "proxies.lock")
    try:
        for old in path.parent.glob("*.proxy"):
            if (link := connected(old)) is None:  # left by one that was killed
                forget(old)
            else:
                link.close()
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            path.chmod(0o600)  # before it listens
            listener.listen(8)
            log = os.open(
                path.with_suffix(".proxylog"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600
            )
            try:
                subprocess.Popen(
                    [sys.executable, "-P", str(MAIN), "proxy", *arguments, "--listen", str(listener.fileno())],
                    stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", pass_fds=[listener.fileno()],
                    start_new_session=True,
                )  # fmt: skip
            finally:
                os.close(log)
    finally:
        os.close(lock)
    link = connected(path)
    if link is None:
        raise ConnectionError(
            f"the process behind {path} ended while it started; its log is {path.with_suffix('.proxylog')}"
        )
    return link


def connected(path: Path) -> socket.socket | None:
    """Return a connection, or None if nobody listens."""
    link = socket.socket(socket.AF_UNIX)
    try:
        link.connect(str(path))
    except OSError:
        link.close()
        return None
    return link


def forget(path: Path) -> None:
    """Remove the files that a proxy left in the folder."""
    for name in (path, path.with_suffix(".proxylog")):
        name.unlink(missing_ok=True)
