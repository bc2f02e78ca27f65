"""Ends what runs on a host because of us, and removes what it left there."""

from __future__ import annotations

from dataclasses import field

from orbit_lsp.runners.ssh import command_line, trouble
from orbit_lsp.runners.ssh.connection import Login, SshPlace, leave_master
from orbit_lsp.runners.ssh.trouble import SshError
from orbit_remote.common import codec
from orbit_remote.common.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Left:
    """The process ids that were ended on a host. If there were `busy` jobs under way, none was."""

    ended: tuple[int, ...] = field(default_factory=tuple[int, ...])
    busy: int = 0


async def leave(host: str, python: str = "", *, busy_too: bool) -> Left:
    """End the host's processes, and return what was ended. `busy_too` cancels the jobs that are under way. Raises
    SshError.
    """
    login = await Login.start(SshPlace(host, python), "leave", ["--yes"] if busy_too else [])
    try:
        line = await login.read_line()
        if not line:
            raise trouble.of_exit(host, await login.exited(), login.said(), begun=True)
        return codec.build(Left, codec.read_json(line), lenient=True)
    except ValueError:
        raise SshError(f"{host} gave an answer that was not understood", "run it again") from None
    finally:
        await login.end()
        if command_line.leave_master(host):
            await leave_master(host)
