"""The kernel of a notebook: the user's ipykernel with our magics. They ask the process that relays its messages."""

from __future__ import annotations

import importlib
import json
import os
import resource
import socket
import sys
from pathlib import Path
from typing import Any

from orbit_remote.child import shell_commands
from orbit_remote.child.measured_cells import MeasuredCells
from orbit_remote.common import codec
from orbit_remote.process.client_environment import NOTEBOOK_CELLS

SOCKET = "ORBIT_NOTEBOOK"
"""The variable that names the socket on which magics are answered."""


def main(arguments: list[str]) -> int:
    # of the user's Python
    zmq: Any = importlib.import_module("zmq")
    zmqshell: Any = importlib.import_module("ipykernel.zmqshell")
    kernel_app: Any = importlib.import_module("ipykernel.kernelapp").IPKernelApp

    zmqshell.system = shell_commands.system  # the name under which ipykernel calls it for `!command`

    class App(kernel_app):
        def init_iopub(self, context: Any) -> None:
            """Let a cell wait that prints faster than it is read; ZeroMQ would drop what it prints."""
            context.setsockopt(zmq.XPUB_NODROP, 1)  # of the sockets that are made now
            made: Any = super()
            made.init_iopub(context)
            del context.sockopts[zmq.XPUB_NODROP]

    app: Any = App.instance()
    app.initialize(arguments)
    if "" not in sys.path:  # IPython leaves it out under -P, which is for our own start
        installed = (
            at for at, path in enumerate(sys.path) if Path(path).name in ("site-packages", "dist-packages")
        )
        sys.path.insert(next(installed, len(sys.path)), "")
    _register(app.shell)
    app.start()
    return 0


def _register(shell: Any) -> None:
    from IPython.core.error import UsageError  # pyright: ignore  # noqa: PGH003
    from IPython.display import display  # pyright: ignore  # noqa: PGH003

    def shown(answer: dict[str, Any]) -> None:
        if text := answer.get("text"):
            display({"text/plain": text, "text/html": answer.get("html", text)}, raw=True)

    def asked(**request: Any) -> dict[str, Any]:
        """Return the request with the notebook's path, if VS Code has told it."""
        return ask(notebook=str(shell.user_ns.get("__vsc_ipynb_file__") or ""), **request)

    def show(**request: Any) -> None:
        answer = asked(**request)
        shown(answer)
        if answer.get("error"):
            raise UsageError(answer["error"])

    def orbit(line: str, cell: str | None = None) -> None:
        """%orbit status|gpu|cost|bring|measure|locate|end: about this kernel. %%orbit run|profile|check|compile [--kernel K]: a job of the
        cell's kernels, by their launch specs.
        """
        if cell is None and line.split() in (["measure", "on"], ["measure", "off"]):
            if located:
                raise UsageError("orbit: after `%orbit locate` nothing is timed; run `%orbit end` first")
            measured.on = line.split()[1] == "on"
        elif cell is None:
            show(do="orbit", words=line.split())
        else:
            show(do="cell", words=line.split(), text=cell)

    def cuda(line: str, cell: str) -> None:
        """%%cuda [--compile] [--kernel K]: build the cell, run its kernels by their launch specs and time them."""
        show(do="cuda", words=line.split(), text=cell)

    measured = MeasuredCells(Path(os.environ[SOCKET]).parent, asked, shown)
    located = os.environ.get(NOTEBOOK_CELLS)
    if located:
        _note_cells(shell, Path(located))
    else:
        measured.register(shell)
    shell.register_magic_function(orbit, "line_cell", "orbit")
    shell.register_magic_function(cuda, "cell", "cuda")


def _note_cells(shell: Any, file: Path) -> None:
    """Write each cell into `file` before it runs, by the name that Python has for it: a fault ends this process at
    once.
    """
    # the driver aborts the process after its dump, which is not to leave a core file beside the notebook
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))

    def note(info: Any) -> None:
        raw = str(info.raw_cell)
        text = shell.transform_cell(raw)  # lines count in this, in tracebacks too
        number = len(
            shell.history_manager.input_hist_parsed
        )  # IPython 9 has counted this cell already, 8 has not
        name = shell.compile.get_code_name(raw, text, number)
        with file.open("a") as cells:
            cells.write(json.dumps({"file": name, "number": number, "text": text}) + "\n")

    shell.events.register("pre_run_cell", note)


def ask(**request: Any) -> dict[str, Any]:
    """Return the answer of the relaying process. An interrupt closes the connection, which cancels the request.

    Raises OSError if that process does not answer.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(os.environ[SOCKET])
        connection.sendall(json.dumps(request).encode() + b"\n")
        with connection.makefile("rb") as answers:
            return codec.read_json(answers.readline() or b'{"error": "orbit-lsp ended before it answered"}')
