"""`orbit-lsp kernel`: notebook kernels in Jupyter's pickers: install, list, remove; and the process that they start."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

from orbit_lsp.cli.terminal_text import UsageError, refused
from orbit_lsp.runs import python_choice, trust
from orbit_remote.common import limits, regular_files
from orbit_remote.common import messages as c


def main(options: argparse.Namespace) -> int:
    if os.name != "posix":
        return refused("notebook kernels run on Linux and macOS; on Windows use WSL", as_json=False)
    try:
        return {"install": _install, "list": _list, "remove": _remove, "run": _run}[options.what](options)
    except UsageError as error:
        return refused(str(error), as_json=options.json)
    except ModuleNotFoundError as error:
        print(
            f"orbit-lsp: error: orbit-lsp kernel needs the package {error.name}\n  pip install 'orbit-lsp[notebook]'",
            file=sys.stderr,
        )
        return c.EXIT_CODES["infrastructure"]


def _install(options: argparse.Namespace) -> int:
    """Raises UsageError."""
    from orbit_lsp.notebook import kernelspecs

    if options.on != "local":
        raise UsageError(
            f"--on {options.on!r:.40}: kernels run on this machine only, so far; "
            "`orbit-lsp run FILE --on GPU` rents a GPU for a file"
        )
    more: list[str] = []
    if options.python:
        more += ["--python", str(_program(options.python))]
    if options.idle_minutes:
        more += ["--idle-minutes", f"{_minutes(options.idle_minutes):g}"]
    try:
        made = kernelspecs.install(options.name or "", more)
    except kernelspecs.Refused as error:
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
        print(json.dumps([_plain(each) for each in ours], ensure_ascii=False, indent=2))
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
    except kernelspecs.Refused as error:
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
    try:
        connection: Any = json.loads(regular_files.text(options.connection_file, limits.STATE))
        ports = [int(connection[f"{each}_port"]) for each in ("shell", "iopub", "stdin", "control", "hb")]
        assert connection["ip"]
    except (OSError, ValueError, KeyError, TypeError, AssertionError):
        raise UsageError(f"{options.connection_file} is no connection file of Jupyter") from None
    del ports
    try:
        asyncio.run(_relay(options, connection))
    except zmq.ZMQError as error:
        print(f"orbit-lsp: error: the kernel's port cannot be opened: {error}", file=sys.stderr)
        return c.EXIT_CODES["infrastructure"]
    return 0


async def _relay(options: argparse.Namespace, connection: dict[str, Any]) -> None:
    """Raises ZMQError and OSError."""
    from orbit_lsp.cli.doors import pool_options
    from orbit_lsp.notebook.cell_commands import CellCommands
    from orbit_lsp.notebook.kernel_link import KernelLink
    from orbit_lsp.notebook.relay import Relay

    folders = [str(Path.cwd())]
    choice = python_choice.choose(options.python or "", folders, trust.current(None, folders).covers)
    engine = argparse.Namespace(pool=None, python=choice.python, nvcc=None, budget=None, trust=False)
    commands = CellCommands(
        lambda: pool_options.queue(engine, "kernel", trusted=True), choice.python, choice.why
    )
    key, scheme = str(connection.get("key", "")), str(connection.get("signature_scheme", "hmac-sha256"))
    idle_s = 60 * _minutes(options.idle_minutes) if options.idle_minutes else 0.0
    try:
        commands.relay = Relay(
            connection,
            lambda context: KernelLink.start(choice.python, key, scheme, commands.socket, context),
            idle_s=idle_s,
        )
        await commands.start()
        await commands.relay.run()
    finally:
        await commands.close()


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
    return {"name": installed.name, "title": installed.title, "folder": installed.folder}


def _print_json(installed: Any) -> None:
    print(json.dumps(_plain(installed), ensure_ascii=False, indent=2))
