"""`orbit-lsp kernel`: notebook kernels in Jupyter's pickers: install, list, remove; and the process that they start."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import os
import re
import shutil
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from orbit_lsp.cli import json_results
from orbit_lsp.cli.doors import pool_options
from orbit_lsp.cli.machine.list_results import NotebookKernel
from orbit_lsp.cli.terminal_text import UsageError, refused
from orbit_lsp.places import python_choice, trust
from orbit_lsp.state import modal_gpus, ssh_hosts
from orbit_remote.common import codec, limits, regular_files
from orbit_remote.common import messages as c
from orbit_remote.common.packages import installing

if TYPE_CHECKING:
    from orbit_lsp.runners.api_client import EvaluationServer

_FAR_IDLE = "15"
"""Minutes without a cell after which a GPU elsewhere is given back, where nobody says another number."""
_MOST = 64 << 20
"""Bytes of a message to a kernel elsewhere."""


def main(options: argparse.Namespace) -> int:
    """Run the command. Return the exit code."""
    if os.name != "posix":
        return refused("notebook kernels run on Linux and macOS; on Windows use WSL", as_json=False)
    try:
        return {"install": _install, "list": _list, "remove": _remove, "run": _run, "host": _host}[
            options.what
        ](options)
    except UsageError as error:
        return refused(str(error), as_json=options.json)
    except ModuleNotFoundError as error:
        print(
            f"orbit-lsp: error: orbit-lsp kernel needs the package {error.name}\n  {installing.optional('notebook')}",
            file=sys.stderr,
        )
        return c.EXIT_CODES["infrastructure"]


def _install(options: argparse.Namespace) -> int:
    """Raises UsageError."""
    from orbit_lsp.notebook import kernelspecs
    from orbit_lsp.runners.api_client import label

    gpu, server, host = _gpu(options.on), _server(options.on), ssh_hosts.host_of(options.on)
    on, where = "local", "this GPU"
    more: list[str] = []
    if server and options.python:
        raise UsageError(
            f"--python is of no use with --on {options.on}: the server's own Python runs the cells"
        )
    if server:
        on, where = f"api:{label(server.url)}", label(server.url)
        more += ["--on", options.on]
    if host:
        on, where = options.on, host
        more += ["--on", options.on]
    if gpu:
        on, where = f"modal:{gpu}", f"{gpu} on Modal"
        budget = pool_options.budget(options)
        if budget <= 0:
            raise UsageError(
                f"--on {options.on} rents a GPU: add what it may cost in a month, as in --budget 20 (dollars)"
            )
        more += ["--on", options.on, "--budget", f"{budget:g}"]
    if options.python:
        more += ["--python", _host_python(options) if host else str(_program(options.python))]
    if options.idle_minutes:
        more += ["--idle-minutes", f"{_minutes(options.idle_minutes):g}"]
    if options.lease:
        more += ["--lease", options.lease]
    try:
        made = kernelspecs.install(options.name or "", more, on, where)
    except kernelspecs.KernelspecError as error:
        raise UsageError(str(error)) from None
    if options.json:
        _print_json(made)
    else:
        print(f"{made.title}: {made.folder}\nIn a terminal: jupyter console --kernel {made.name}")
    return 0


def _list(options: argparse.Namespace) -> int:
    from orbit_lsp.notebook import kernelspecs

    ours = kernelspecs.installed()
    if options.json:
        print(json_results.text([_plain(each) for each in ours]))
    else:
        lines = [f"{each.name:<20}  {each.title:<24}  {each.folder}" for each in ours]
        print("\n".join(lines) or "no kernels; `orbit-lsp kernel install` makes one")
    return 0


def _remove(options: argparse.Namespace) -> int:
    """Raises UsageError."""
    from orbit_lsp.notebook import kernelspecs

    name = options.kernel or options.name
    if not name:
        raise UsageError(
            "orbit-lsp kernel remove needs the name of a kernel; `orbit-lsp kernel list` has them"
        )
    try:
        gone = kernelspecs.remove(name)
    except kernelspecs.KernelspecError as error:
        raise UsageError(str(error)) from None
    if options.json:
        _print_json(gone)
    else:
        print(f"{gone.title}: removed")
    return 0


def _run(options: argparse.Namespace) -> int:
    """Raises UsageError."""
    import zmq

    if not options.connection_file:
        raise UsageError("orbit-lsp kernel run is started by Jupyter, with --connection-file")
    connection: Any = None
    with contextlib.suppress(OSError, ValueError, RecursionError):
        connection = codec.read_json(regular_files.text(options.connection_file, limits.STATE))
    if not _usable(connection):
        raise UsageError(f"{options.connection_file} is no connection file of Jupyter")
    try:
        asyncio.run(_relay(options, connection))
    except zmq.ZMQError as error:
        print(f"orbit-lsp: error: the kernel's port cannot be opened: {error}", file=sys.stderr)
        return c.EXIT_CODES["infrastructure"]
    return 0


def _usable(connection: Any) -> bool:
    """Say whether a connection file names what a kernel listens on, and how messages are signed."""
    if not isinstance(connection, dict):
        return False
    known = cast("dict[str, Any]", connection)
    words = (known.get("ip"), known.get("key", ""), known.get("transport", "tcp"))
    scheme = str(known.get("signature_scheme", "hmac-sha256"))
    return (
        all(isinstance(word, str) and word.isprintable() for word in words)
        and bool(words[0])
        and words[2] in ("tcp", "ipc")
        and scheme.startswith("hmac-")
        and scheme.removeprefix("hmac-") in hashlib.algorithms_guaranteed
        and all(
            type(port := known.get(f"{channel}_port")) is int and 0 < port < 1 << 16
            for channel in ("shell", "iopub", "stdin", "control", "hb")
        )
    )


async def _relay(options: argparse.Namespace, connection: dict[str, Any]) -> None:
    """Raises ZMQError and OSError."""
    from orbit_lsp.notebook.cell_commands import CellCommands
    from orbit_lsp.notebook.kernel_link import KernelLink
    from orbit_lsp.notebook.on_host import OnHost
    from orbit_lsp.notebook.relay import Relay
    from orbit_lsp.notebook.rented import Rented
    from orbit_lsp.notebook.served import Served
    from orbit_lsp.queue.notebook_sessions import Registered
    from orbit_lsp.runners.kernel_process import KernelProcess

    gpu, server, host = _gpu(options.on), _server(options.on), ssh_hosts.host_of(options.on)
    there = _host_python(options) if host else ""
    folder = Path.cwd()
    folders = [str(folder)]
    own = "" if host else options.python or ""
    choice = python_choice.choose(own, folders, trust.current(None, folders).covers)
    budget = pool_options.budget(options) if gpu else None
    pool = f"modal:{gpu}" if gpu else options.on if host else None
    engine = argparse.Namespace(
        pool=pool, python=there if host else choice.python, nvcc=None, build_timeout_s=None, budget=budget, trust=False,
    )  # fmt: skip
    key, scheme = str(connection.get("key", "")), str(connection.get("signature_scheme", "hmac-sha256"))
    place, python = "this machine", f"{choice.python} ({choice.why})"
    far: Rented | Served | OnHost | None = None
    if gpu:
        far = Rented(gpu, budget or 0.0, folder, options.python, pool_options.complain)
        place, python = f"{gpu} on Modal", "the image's, with the torch and triton of yours"
    elif server:
        far = Served(server, folder, options.lease or "cell")
        place, python = server.url, "the server's"
    elif host:
        far = OnHost(host, there, folder, options.lease or "cell")
        place, python = options.on, there or f"the python3 of {host}"
    commands = CellCommands(
        lambda: pool_options.queue(engine, "kernel", trusted=True),
        python,
        folder,
        place,
        far,
    )
    idle_s = 60 * _minutes(options.idle_minutes or (_FAR_IDLE if far else "0"))

    async def start(locate: bool) -> KernelLink:
        if far:
            started = await far.start(key, scheme, locate=locate)
            return KernelLink(started, commands.answer, _MOST, locates=locate)
        lease = options.lease or "cell"
        here = await KernelProcess.start(choice.python, folder, key, scheme, lease, locate=locate)
        return KernelLink(here, commands.answer, locates=locate)

    try:
        commands.relay = Relay(connection, start, idle_s=idle_s, at_once=far is None)
        with contextlib.suppress(OSError):  # a state folder that cannot be written costs the list alone
            commands.relay.registered = Registered(place, folder)
        await commands.relay.run()
    finally:
        await commands.close()
        if far:
            await far.close(keep=commands.relay is not None and commands.relay.keep == "container")
        if commands.relay and commands.relay.registered:
            commands.relay.registered.close()


def _host(options: argparse.Namespace) -> int:
    """Run the process of one notebook's kernels on a server. `--on` is the place in its pool, `--name` the client's
    address.
    """
    from orbit_lsp.queue.notebook_sessions import Registered, is_running
    from orbit_lsp.runners import kernel_host
    from orbit_lsp.state.user_folders import cache_folder

    folders = [str(Path.cwd())]
    choice = python_choice.choose(options.python or "", folders, trust.current(None, folders).covers)
    homes = cache_folder() / "notebooks"
    homes.mkdir(mode=0o700, parents=True, exist_ok=True)
    for left in homes.iterdir():  # of processes that were killed
        if not is_running(left.name):
            shutil.rmtree(left, ignore_errors=True)
    cells = 0
    registered = Registered(f"{options.on}, for {options.name}", homes)
    home = homes / registered.id
    registered.move(home)

    def busy(runs: bool) -> None:
        nonlocal cells
        cells += runs
        registered.describe(time.time(), cells, "busy" if runs else "idle")

    try:
        kernel_host.serve(home, choice.python, cache_folder() / "cupti", options.on, busy)
    finally:
        registered.close()
    return 0


def _server(on: str) -> EvaluationServer | None:
    """Return the evaluation server that runs the cells. Raises UsageError."""
    from orbit_lsp.runners.api_client import EvaluationServer

    if not on.startswith("api:"):
        return None
    try:
        return EvaluationServer(on.removeprefix("api:"))
    except ValueError as error:
        raise UsageError(f"--on {on!r:.80}: {error}") from None


def _gpu(on: str) -> str:
    """Return the GPU to rent, or "" if none is. Raises UsageError."""
    if on == "local" or on.startswith("api:"):
        return ""
    if on.startswith(ssh_hosts.PREFIX):
        try:
            ssh_hosts.host(on)
        except ValueError as mistake:
            raise UsageError(f"--on: {mistake}") from None
        return ""
    place, _, gpu = on.partition(":")
    if place == "modal" and (rented := modal_gpus.rented(gpu)):
        return rented
    raise UsageError(
        f"--on {on!r:.40} is no place: write local, ssh:HOST, api: and a server's address, as in api:http://gpu7:8421, or modal: and one of {', '.join(modal_gpus.NAMES)}"
    )


def _host_python(options: argparse.Namespace) -> str:
    """Return the path of a Python on a host; empty where none is given. Raises UsageError."""
    try:
        return ssh_hosts.program(options.python or "")
    except ValueError as mistake:
        raise UsageError(f"--python: {mistake}") from None


def _program(python: str) -> Path:
    """Raises UsageError."""
    path = Path(python).expanduser().absolute()
    if not path.is_file():
        raise UsageError(f"--python {python}: there is no such file")
    return path


def _minutes(text: str) -> float:
    """Raises UsageError."""
    if not re.fullmatch(r"\d{1,5}(\.\d{1,4})?", text):
        raise UsageError(f"--idle-minutes is {text!r:.40}; write a number of minutes, as in 15; 0 is never")
    return float(text)


def _plain(installed: Any) -> dict[str, Any]:
    return asdict(NotebookKernel(installed.name, installed.title, installed.folder))


def _print_json(installed: Any) -> None:
    print(json_results.text(_plain(installed)))
