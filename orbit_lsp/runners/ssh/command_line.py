"""Makes the command line of ssh, and the command that it starts on the host. That is a word that sh, fish and csh
read alike.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import io
import os
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

from orbit_lsp.state import user_folders
from orbit_remote import PACKAGE
from orbit_remote.common import limits, regular_files
from orbit_remote.modal_app import image_spec

_FIRST = PACKAGE / "ssh_host" / "bootstrap.py"
_LOADER = "import base64,sys,zlib;exec(zlib.decompress(base64.b64decode(sys.argv[1])))"
_LONGEST_SOCKET = 104 if sys.platform == "darwin" else 108
"""Bytes of a socket's path, its end included."""
_NAME = 40 + 17
"""Of a socket: ssh's hash of the connection, and what ssh adds while it makes it."""
PERSIST_S = 45
"""How long the connection of a host stays when the last program that uses it has ended."""
_TIMES = {"ConnectTimeout": "15", "ServerAliveInterval": "5", "ServerAliveCountMax": "3"}


def ssh(host: str, remote: str) -> list[str]:
    """Return the arguments of an ssh to `host`, whose name has been checked. Reads ssh's own configuration of the host."""
    options = {
        "BatchMode": "yes",
        "ClearAllForwardings": "yes",
        "PermitLocalCommand": "no",
        "RemoteCommand": "none",
        "RequestTTY": "no",
        **_TIMES,
        **sharing(host),
    }
    words = [f"-o{name}={value}" for name, value in options.items()]
    return ["ssh", "-T", *words, "--", host, remote]


def leave_master(host: str) -> list[str]:
    """Return the command that closes the connection which our programs share. Return none if the connection is the
    user's, or there is none.
    """
    path = sharing(host).get("ControlPath")
    return ["ssh", f"-oControlPath={path}", "-O", "exit", "--", host] if path else []


@functools.cache
def sharing(host: str) -> dict[str, str]:
    """Return options that give all our programs one connection, unless the user's configuration has one."""
    if os.name != "posix":
        return {}
    if _configured(host):
        return {}
    folder = user_folders.cache_folder() / "ssh-links"
    too_long = len(os.fsencode(folder)) + 1 + _NAME >= _LONGEST_SOCKET
    if too_long or {'"', "\\", "\n", "$"} & set(str(folder)):
        folder = Path(f"/tmp/orbit-lsp-{os.getuid()}")  # noqa: S108 - who owns it is looked at
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.lstat()
    except OSError:
        return {}
    if status.st_uid != os.getuid() or status.st_mode & 0o077 or not folder.is_dir():
        return {}
    path = f'"{folder}/%C"'.replace("%", "%%").replace("%%C", "%C")
    return {"ControlMaster": "auto", "ControlPath": path, "ControlPersist": str(PERSIST_S)}


def _configured(host: str) -> bool:
    """Say whether the user's own configuration shares connections to the host."""
    try:
        known = subprocess.run(
            ["ssh", "-G", "--", host],
            capture_output=True,
            text=True,
            timeout=10,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    values = dict(line.split(" ", 1) for line in known.stdout.splitlines() if " " in line)
    return values.get("controlmaster", "false") != "false" or values.get("controlpath", "none") != "none"


def remote(mark: str, python: str, role: str, arguments: Sequence[str]) -> str:
    """Return what the host's shell has to run. It has nothing between its quotes that shells read differently: no
    quote, no `!`, no backslash, no line end.
    """
    code = base64.b64encode(zlib.compress(_first().encode(), 9)).decode()
    names = _word(python) if python else "python3 python3.14 python3.13 python3.12 python3.11"
    chosen = "chosen" if python else "found"
    words = " ".join(f'"{_quoted(word)}"' for word in arguments)
    script = (
        f'for p in {names}; do if command -v "$p" >/dev/null 2>&1; then '
        f'exec "$p" -I -c "{_LOADER}" {code} {mark} {chosen} "$p" {digest()} {role} {words}; fi; done; '
        f'echo "{mark} {{}}"'
    )
    return f"exec /bin/sh -c '{script}'"


def _word(path: str) -> str:
    return f'"$HOME"/"{path[2:]}"' if path.startswith("~/") else f'"{path}"'


def _quoted(word: str) -> str:
    """Quote one of our own arguments. Characters that could end the word are left out."""
    return "".join(letter for letter in word if letter.isalnum() or letter in " ._,:/=+@()-")


@functools.cache
def _first() -> str:
    return regular_files.text(_FIRST, limits.SOURCE)


@functools.cache
def archive() -> bytes:
    """Return our package for the host as a zip. The same package always makes the same archive."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        for path in image_spec.sources():
            name = zipfile.ZipInfo(f"orbit_remote/{path.relative_to(PACKAGE).as_posix()}")
            file.writestr(name, regular_files.read(path, limits.SOURCE), zipfile.ZIP_DEFLATED)
    return packed.getvalue()


@functools.cache
def digest() -> str:
    return hashlib.blake2b(archive(), digest_size=10).hexdigest()
