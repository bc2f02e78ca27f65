"""What a click does on a machine without a GPU: it shows ways to get one, and does what the author picks."""

from __future__ import annotations

import asyncio
import os
import re

from lsprotocol import types as lsp

from orbit_lsp.runners.modal import account
from orbit_lsp.runners.modal.spending import CannotAskError
from orbit_lsp.server.language_server import OrbitServer
from orbit_remote.common.plain_text import plain

TOKEN = "Make a Modal token"  # noqa: S105 - not a password
CHOOSE = "Choose a GPU"
SILENT_S = 8.0
"""Modal's command says nothing for a minute where it reaches nobody."""
SILENT = "orbit: Modal does not answer yet; check this machine's network connection, and status.modal.com"


async def offer(ls: OrbitServer, text: str) -> None:
    """Show the ways to a GPU in one message, with buttons for those that the editor can start."""
    makes = account.makes_token() and not account.configured()
    try:
        answer = await ls.watcher.ask(text, [TOKEN, CHOOSE] if makes else [CHOOSE])
    except CannotAskError:
        ls.watcher.message(text, lsp.MessageType.Error)
        return
    if answer == TOKEN:
        await make_token(ls)
    elif answer == CHOOSE:
        from orbit_lsp.server import commands

        await commands.choose(ls)


async def make_token(ls: OrbitServer) -> None:
    """Start the command of Modal's that opens its page in a browser and waits until the author has signed in there."""
    from orbit_lsp.runners.modal import deploy

    if refused := await asyncio.to_thread(deploy.proxy_refusal):
        text = f"orbit: no token was made: {refused.message}. {refused.remedy}"
        ls.watcher.message(text, lsp.MessageType.Warning)
        return
    pipe, output = asyncio.subprocess.PIPE, asyncio.subprocess.STDOUT
    process = await asyncio.create_subprocess_exec(
        *account.new_token(), stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=output,
        env=os.environ | {"COLUMNS": "500"},
    )  # fmt: skip
    assert process.stdout
    last = page = ""
    slow = asyncio.get_running_loop().call_later(SILENT_S, ls.watcher.message, SILENT)
    try:
        async for raw in process.stdout:
            line = plain(raw.decode(errors="replace")).strip()
            last = line or last
            ls.watcher.log(f"[modal token new] {line}")
            if not page and (found := re.search(r"https?://\S+", line)):
                page = found[0]
                slow.cancel()
                ls.watcher.message(f"orbit: sign in on Modal's page; if no browser opened, open {page}")
            elif line.startswith("Enter this code"):  # Modal's page asks for it
                ls.watcher.message(f"orbit: {line}")
        await process.wait()
    finally:
        slow.cancel()
        if process.returncode is None:  # the server ends
            process.kill()
    ls.look_for_account()
    if account.configured():
        ls.rents_unsaid = False
        ls.watcher.message(ls.places.gpu_text())
    else:
        ls.watcher.message(
            f"orbit: no token was made: {last or 'Modal said nothing'}", lsp.MessageType.Warning
        )
