"""`orbit-lsp mcp`, `watch` and `api`: they serve the queue of jobs until the client ends or Ctrl-C."""

from __future__ import annotations

import argparse
import asyncio
import errno
import os
import secrets
import socket
import sys
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from orbit_lsp.cli.doors import pool_options
from orbit_lsp.cli.terminal_text import UsageError, refused
from orbit_remote.common import messages as c
from orbit_remote.common.packages import installing
from orbit_remote.common.plain_text import visible


def main(options: argparse.Namespace) -> int:
    """Run the command. Return the exit code."""
    serve: Callable[[argparse.Namespace], Coroutine[Any, Any, int]] = {
        "mcp": _mcp,
        "watch": _watch,
        "api": _api,
    }[options.command]
    try:
        return asyncio.run(serve(options))
    except UsageError as error:
        return refused(str(error), as_json=False)
    except ModuleNotFoundError as error:
        return _lacking(options.command, error)
    except KeyboardInterrupt:
        print("orbit-lsp: cancelled", file=sys.stderr)
        return c.EXIT_CODES["cancelled"]


_EXTRAS = {"mcp": "mcp", "watch": "watch", "api": "serve"}


def _lacking(command: str, error: ModuleNotFoundError) -> int:
    """Return a package of an extra that is not installed."""
    print(
        f"orbit-lsp: error: orbit-lsp {command} needs the package {error.name}\n"
        f"  {installing.optional(_EXTRAS[command])}",
        file=sys.stderr,
    )
    return c.EXIT_CODES["infrastructure"]


async def _mcp(options: argparse.Namespace) -> int:
    from orbit_lsp.agents import mcp_server

    async with pool_options.queue(options, "mcp", trusted=options.trust) as queue:
        await mcp_server.over_stdio(queue, budget_usd=pool_options.budget(options))
    return 0


async def _watch(options: argparse.Namespace) -> int:
    """Watch a folder. With --once, return the exit code of the first file that did not end well. Raises UsageError."""
    from orbit_lsp.agents.drop_folder import DropFolder
    from orbit_lsp.queue.request import MOST_TIMEOUT_S

    dropped, results = Path(options.folder), Path(options.results)
    if not await asyncio.to_thread(dropped.is_dir):
        raise UsageError(f"{options.folder} is not a folder")
    keep_s = pool_options.seconds(options.keep, "--keep")
    if options.timeout_s is not None and not 0 < options.timeout_s <= MOST_TIMEOUT_S:
        raise UsageError(
            f"--timeout is {options.timeout_s:g}; a run may take more than 0 and at most {MOST_TIMEOUT_S:g} seconds"
        )
    make = partial(DropFolder, timeout_s=options.timeout_s)
    async with pool_options.queue(options, "watch", trusted=False) as queue:
        folder = await asyncio.to_thread(make, queue, dropped, results, _tell)
        try:
            await asyncio.to_thread(folder.clean, keep_s)
            if options.once:
                await folder.once()
                bad = [outcome for outcome in folder.outcomes if outcome != "ok"]
                return c.EXIT_CODES[bad[0]] if bad else 0
            import watchfiles

            changes = watchfiles.awatch(  # pyright: ignore[reportUnknownMemberType]
                dropped, recursive=False, rust_timeout=1000, yield_on_timeout=True, debounce=200
            )
            _tell(f"watching {dropped}; results go to {results}; Ctrl-C ends")
            await _until_cancelled(folder.follow(changes, keep_s))
        finally:
            await folder.close()
    return 0


def _tell(line: str) -> None:
    print(visible(line).replace("\n", "\\n"), file=sys.stderr, flush=True)


async def _until_cancelled(work: Coroutine[Any, Any, None]) -> None:
    """Run work as a task, and end it at Ctrl-C. The work may swallow a cancellation, as a task group of anyio does
    that ends at that moment.
    """
    task = asyncio.create_task(work)
    try:
        await asyncio.wait([task])
        await task
    finally:
        while not task.done():
            task.cancel()
            await asyncio.wait([task], timeout=0.5)


# -- api --------------------------------------------------------------------------------------------

_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def token(host: str, own: str) -> str:
    """Return the token that requests have to bring: the user's own, or a new one if the server can be reached from
    elsewhere.
    """
    return own if own or host in _LOOPBACK else secrets.token_urlsafe(32)


def hosts(host: str, more: Sequence[str]) -> list[str]:
    """Return the names under which the server may be addressed."""
    own = [] if host in (*_LOOPBACK, "0.0.0.0", "::") else [host]  # noqa: S104 - compared, not bound
    return ["127.0.0.1", "localhost", "[::1]", *own, *more]


_PORTS = 65_535
_BEFORE_USERS = 1_024
"""The first port that users may listen on, where the system keeps those below for itself."""


def listener(host: str, port: int) -> socket.socket:
    """Return a socket that listens at the server's address. A client that connects before the server is ready waits.
    Raises UsageError.
    """
    if not 0 <= port <= _PORTS:
        raise UsageError(f"--port is {port}; a port is a number from 1 to {_PORTS}, or 0 for any free one")
    made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
        made.listen()  # at once: two servers that only bind could have the same port
    except (OSError, ValueError) as error:
        made.close()
        raise UsageError(f"orbit-lsp api cannot listen on {host} port {port}: {_why(error)}") from None
    return made


def _why(error: OSError | ValueError) -> str:
    """Return what is wrong, and what to do."""
    if isinstance(error, (socket.gaierror, ValueError)):
        return "there is no such host; --host is an address of this machine, as in 127.0.0.1, or 0.0.0.0 for all of them"
    match error.errno:
        case errno.EADDRINUSE:
            return "another program has that port; choose another --port"
        case errno.EADDRNOTAVAIL:
            return "this machine has no such address; choose another --host, as in 127.0.0.1, or 0.0.0.0 for all of its addresses"
        case errno.EACCES | errno.EPERM:
            return f"you may not use that port; choose a --port from {_BEFORE_USERS} to {_PORTS}"
        case _:
            return f"{error.strerror}; choose another --host or --port"


async def _api(options: argparse.Namespace) -> int:
    """Raises UsageError."""
    import uvicorn

    from orbit_lsp.agents import mcp_server
    from orbit_lsp.api import connections, guard, http_app, metric_jobs, notebook_routes, popcorn
    from orbit_lsp.queue.request import RequestRefusedError

    own = os.environ.get("ORBIT_API_TOKEN", "").strip()
    secret = token(options.host, own)
    problems = await asyncio.to_thread(popcorn.problems, Path(options.problems)) if options.problems else []
    if options.problems and not problems:
        raise UsageError(f"{options.problems} has no folder with a task.yml")
    try:
        metrics = metric_jobs.settings(os.environ)
    except RequestRefusedError as why:
        raise UsageError(str(why)) from None
    with listener(options.host, options.port) as listening:
        async with pool_options.queue(options, "api", trusted=False) as queue:
            agents = mcp_server.over_http(queue, budget_usd=pool_options.budget(options))
            own_python = pool_options.settings(options).get("python", "")
            notebooks = notebook_routes.Notebooks(queue.slots, own_python)
            app = http_app.app(
                queue,
                guard.RequestLimits(token=secret),
                hosts(options.host, options.names),
                agents,
                problems,
                notebooks,
                metrics,
            )
            connections.BoundedConnection.most = connections.most_connections()
            config = uvicorn.Config(
                app, options.host, options.port, access_log=False, log_level="warning", timeout_graceful_shutdown=5,
                http=connections.BoundedConnection, ws="none", lifespan="off", backlog=connections.AT_ONCE,
            )  # fmt: skip
            host = f"[{options.host}]" if ":" in options.host else options.host
            _tell(f"listening on http://{host}:{listening.getsockname()[1]}; Ctrl-C ends")
            if secret and not own:
                _tell(f"token, printed once: {secret}")
            # uvicorn would begin it in a task of its own, and print a traceback where Ctrl-C comes meanwhile
            async with app.router.lifespan_context(app):
                await connections.NotebookEndingServer(config, notebooks).serve([listening])
    return 0
