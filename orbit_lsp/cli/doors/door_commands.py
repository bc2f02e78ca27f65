"""`orbit-lsp mcp`: the queue of jobs, served to others until they are gone or Ctrl-C."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable, Coroutine
from typing import Any

from orbit_lsp.cli.doors import pool_options
from orbit_lsp.cli.terminal_text import UsageError, refused
from orbit_remote.common import messages as c


def main(options: argparse.Namespace) -> int:
    serve: Callable[[argparse.Namespace], Coroutine[Any, Any, int]] = {"mcp": _mcp}[options.command]
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
    """A package of an extra that is not installed."""
    print(
        f"orbit-lsp: error: orbit-lsp {command} needs the package {error.name}\n"
        f"  pip install 'orbit-lsp[{_EXTRAS[command]}]'",
        file=sys.stderr,
    )
    return c.EXIT_CODES["infrastructure"]


async def _mcp(options: argparse.Namespace) -> int:
    from orbit_lsp.agents import mcp_server

    async with pool_options.queue(options, "mcp", trusted=options.trust) as queue:
        await mcp_server.server(queue, budget_usd=pool_options.budget(options)).run_stdio_async()
    return 0
