"""Turns what ssh says when it reaches nobody into a sentence with the next step."""

from __future__ import annotations

import re
from collections.abc import Sequence

from orbit_remote.common import messages as c
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.plain_text import plain

AGAIN = "run it again"


class SshError(Exception):
    """A connection was not made, or broke. `passes`: another try later may succeed."""

    def __init__(self, message: str, remedy: str, *, passes: bool = False) -> None:
        super().__init__(f"{message}; {remedy}")
        self.message, self.remedy, self.passes = message, remedy, passes

    def failure(self) -> c.Failure:
        return c.Failure("infrastructure", self.message, self.remedy, retryable=self.passes)


@dataclass(frozen=True, slots=True)
class _SshComplaint:
    pattern: str
    message: str
    remedy: str
    passes: bool = False


_CHECK = "check that the machine is on and that `ssh {host}` works in a terminal"
_WORDS = (
    _SshComplaint(
        "REMOTE HOST IDENTIFICATION HAS CHANGED",
        "the host key of {host} is not the one that ssh knows: it is another machine, or somebody stands between",
        "find out why it changed; if it is right, run `ssh-keygen -R {host}`, then `ssh {host}` once",
    ),
    _SshComplaint(
        "Host key verification failed|No .* host key is known",
        "ssh does not know the host key of {host}",
        "run `ssh {host}` once in a terminal and accept the key after comparing it",
    ),
    _SshComplaint(
        r"Permission denied \(|Too many authentication failures|No more authentication methods|sign_and_send_pubkey",
        "{host} did not let ssh in ({said})",
        "nobody can be asked for a password here: make `ssh {host}` work without one, by a key in ssh-agent",
    ),
    _SshComplaint(
        "Could not resolve hostname",
        "there is no host {host}",
        "check the name; an alias has to be in ~/.ssh/config",
    ),
    _SshComplaint("Connection refused", "{host} takes no ssh connections", _CHECK, True),
    _SshComplaint("No route to host|Network is unreachable", "there is no way to {host}", _CHECK, True),
    _SshComplaint("timed out|Timeout, server", "{host} does not answer", _CHECK, True),
    _SshComplaint(
        "Bad owner or permissions|Bad configuration option|terminating, .* bad configuration",
        "ssh does not accept its configuration: {said}",
        "correct it",
    ),
    _SshComplaint(
        "[Pp]assword change required|password has expired",
        "the password of the account on {host} has expired",
        "run `ssh {host}` in a terminal and change it",
    ),
    _SshComplaint(
        "account is currently not available|This account is|nologin",
        "the account on {host} may not start programs",
        "use an account with a shell",
    ),
    _SshComplaint(
        "ControlPath too long|unix_listener: ",
        "ssh cannot share its connection to {host} ({said})",
        "correct ControlPath in ~/.ssh/config, or make its folder one that can be written",
    ),
    _SshComplaint(
        "UNKNOWN port 65535",  # what ssh says of a connection that a program carries
        "the ProxyCommand or ProxyJump of {host} ended before it reached it",
        "`ssh {host}` in a terminal shows what it says",
        True,
    ),
    _SshComplaint(
        "Connection closed|Connection reset|Broken pipe|kex_exchange",
        "{host} closed the connection",
        _CHECK,
        True,
    ),
)


def no_ssh() -> SshError:
    return SshError("this machine has no ssh", "install the OpenSSH client")


def no_temporary_file(error: OSError) -> SshError:
    why = error.strerror or str(error)
    return SshError(f"this machine takes no temporary file ({why})", "free some space in /tmp, or set TMPDIR")


def of_exit(
    host: str, status: int, stderr: str, noise: Sequence[str] = (), *, begun: bool = False
) -> SshError:
    """Return what ended an ssh before our program on the host spoke. `noise` are the last lines that came in its
    place. `begun`: our program had been started.
    """
    text = plain(stderr)
    for word in _WORDS:
        if match := re.search(word.pattern, text):
            line = next((line for line in text.splitlines() if match[0] in line), match[0])
            said = line.strip()[:200]
            return SshError(
                word.message.format(host=host, said=said), word.remedy.format(host=host), passes=word.passes
            )
    last = next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")
    last = last or next((plain(line).strip() for line in reversed(noise) if line.strip()), "")
    said = f": {last[:200]}" if last else ""
    if status == 255:
        return SshError(f"ssh did not reach {host}{said}", _CHECK.format(host=host), passes=True)
    if status < 0:
        return SshError(f"the connection to {host} was ended here (signal {-status})", AGAIN, passes=True)
    if begun:
        return SshError(
            f"orbit-lsp cannot run on {host}{said or f': exit code {status}'}", "correct it there"
        )
    return SshError(
        f"the login on {host} ended before orbit-lsp's program began (exit code {status}){said}",
        f"check that `ssh {host} echo` works in a terminal and prints an empty line",
    )


def of_host(host: str, record: dict[str, object]) -> SshError | None:
    """Return why our first program cannot go on there, or None if it can."""
    if "old" in record:
        return SshError(
            f"the Python of {host} is {record['old']!s:.20} ({record.get('python')!s:.200}), and 3.11 or newer is needed",
            f"install a newer one on {host}, or set `orbit.ssh.python` to its path there",
        )
    if "none" in record:
        return SshError(
            f"{host} has no Python that can be started ({record['none']!s:.200})",
            f"install Python 3.11 or newer on {host}, or set `orbit.ssh.python` to its path there",
        )
    if "platform" in record:
        return SshError(f"{host} is not a Linux machine ({record['platform']!s:.20})", "use one that is")
    if "error" in record:
        where = f" ({record.get('path')!s:.200})"
        full = "free some space there" if record.get("number") in (28, 122) else "correct it there"
        return SshError(f"orbit-lsp cannot write its files on {host}{where}: {record['error']!s:.200}", full)
    return None
