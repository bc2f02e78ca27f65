"""`orbit-lsp serve`, which says on standard error what its event loop asks of the disk from the second edit on.

Each line there is a JSON object: {"event": NAME} once the front end agrees with nvcc (`agrees`) and has checked an edit
(`checked`), and when the file is closed {"reads": [[what, path, functions of ours, the innermost first, whether a handler asks], …]}.
What other threads read is not counted. Neither is the end of starting, which waits for the client's settings, nor what the once-a-second look at the worker's process reads in /proc, which is no disk.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import Any

CALLS = ("stat", "lstat", "open", "scandir", "listdir", "readlink", "access")
loop_thread = threading.main_thread()
edits: list[object] = []
reads: list[tuple[str, str, list[str], bool]] = []


def say(**line: Any) -> None:
    print(json.dumps(line), file=sys.stderr, flush=True)


def note(what: str, path: object) -> None:
    if len(edits) < 2 or threading.current_thread() is not loop_thread or str(path).startswith("/proc/"):
        return
    functions: list[str] = []
    handles = False
    frame = sys._getframe(2)
    while frame:
        code = frame.f_code
        of_handlers = code.co_filename.endswith("server/handlers.py")
        if of_handlers and code.co_name == "initialized":
            return
        handles = handles or (of_handlers and code.co_name != "serve")
        if "orbit_" in frame.f_code.co_filename:
            functions.append(
                frame.f_code.co_qualname if hasattr(frame.f_code, "co_qualname") else frame.f_code.co_name
            )
        frame = frame.f_back
    reads.append((what, str(path), functions[:6], handles))


def watched(name: str) -> Any:
    call = getattr(os, name)

    def watch(*arguments: Any, **names: Any) -> Any:
        note(name, arguments[0] if arguments else None)
        return call(*arguments, **names)

    return watch


def main() -> None:
    from orbit_lsp.cli.main import main as command_line
    from orbit_lsp.features.keystrokes import Keystrokes
    from orbit_lsp.server import handlers

    changed, forget, test, check = (
        handlers.text_changed, handlers.closed, Keystrokes._test, Keystrokes._check
    )  # fmt: skip

    def text_changed(*arguments: Any) -> None:
        edits.append(arguments)
        changed(*arguments)

    def closed(*arguments: Any) -> None:
        edits.clear()
        say(reads=reads)
        forget(*arguments)

    async def tested(self: Keystrokes, *arguments: Any) -> None:
        await test(self, *arguments)
        say(event="agrees" if self._agreed else "differs")

    async def checked(self: Keystrokes, *arguments: Any) -> None:
        await check(self, *arguments)
        say(event="checked")

    handlers.text_changed, handlers.closed = text_changed, closed
    Keystrokes._test, Keystrokes._check = tested, checked
    for name in CALLS:
        setattr(os, name, watched(name))
    sys.addaudithook(lambda event, arguments: note(event, arguments[0]) if event == "open" else None)
    sys.argv = ["orbit-lsp", "serve"]
    raise SystemExit(command_line())


if __name__ == "__main__":
    main()
