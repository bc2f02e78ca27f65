"""`python -P -m orbit_lsp WORDS` many times for the price of one start: a process that has imported everything and
forks whenever it is asked to.

A start of Python with all that the server imports takes a second of CPU, a fork 15 ms. What is forked is a process like
any other: its own arguments, folder, environment and streams, and the exit status of `orbit_lsp.cli.main.main`. Nothing
that one of them does is seen by another. What a real start is like besides is shown where it is the subject
(tests/e2e/test_start.py, tests/test_cli.py).

    python -P fork_server.py DESCRIPTOR [MODULE…]

Each MODULE is imported too. DESCRIPTOR is a stream socket. A request on it is a line of JSON, {words, folder, environment, constants}, and comes with four
descriptors: standard input, output and error, and a socket to which the process's id and later its exit status
are written, a line each. The end of the stream ends this process, and no other.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import functools
import gc
import importlib
import json
import os
import pkgutil
import signal
import socket
import sys
import threading
import traceback
from typing import Any, NoReturn, TextIO

BYTES = 1 << 20
STREAMS = 3


EXTRAS = ("orbit_lsp.agents.", "orbit_lsp.api.", "orbit_lsp.notebook.")
"""Doors with packages of their own, a second to import: their tests start them otherwise."""


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    prepare(sys.argv[2:])
    interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)  # who started this ends it, by the stream's end
    while True:
        first, descriptors, _, _ = socket.recv_fds(control, BYTES, STREAMS + 1)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:  # keepers that have done their work
                pass
        if not first:
            return
        while not first.endswith(b"\n"):
            first += control.recv(BYTES)
        if os.fork() == 0:
            control.close()
            keep(json.loads(first), descriptors, interrupt)
        for descriptor in descriptors:
            os.close(descriptor)


def prepare(more: list[str]) -> None:
    """Import what a command or a server imports sooner or later, and `more` modules, and do what is else done when it is first needed: the
    converter's code for every type of a message, the constructors of our classes.
    """
    import asyncio
    import sqlite3

    import attrs
    import tree_sitter_python
    from cattrs.errors import StructureHandlerNotFoundError
    from lsprotocol import types as lsp
    from pygls.protocol import json_rpc

    import orbit_lsp
    from orbit_lsp.cli import arguments
    from orbit_lsp.kernels.cuda import cuda_kernels
    from orbit_lsp.kernels.python import triton_kernels
    from orbit_lsp.server import handlers
    from orbit_lsp.state import config
    from orbit_remote.common import architectures, codec, lazy_dataclass, messages

    for module in pkgutil.walk_packages(orbit_lsp.__path__, "orbit_lsp."):
        if not module.name.endswith("__main__") and not module.name.startswith(EXTRAS):
            importlib.import_module(module.name)
    del asyncio, sqlite3, tree_sitter_python  # imported, and that is all
    assert "modal" not in sys.modules, "a command that needs no Modal must not import it"
    for name in more:
        importlib.import_module(name)
    assert threading.active_count() == 1, "a fork has none of the other threads"
    converter: Any = handlers.server.protocol._converter
    for _ in range(2):  # what is registered in the first round, lists for one, empties the caches
        for plain in (str, int, float, bool, list, tuple, dict, type(None)):
            converter.get_unstructure_hook(plain)
        for kind in filter(attrs.has, (*vars(lsp).values(), *vars(json_rpc).values())):
            for part in (kind, *(field.type for field in attrs.fields(kind))):
                converter.get_unstructure_hook(part)
            with contextlib.suppress(StructureHandlerNotFoundError):  # of two that no client sends
                converter.get_structure_hook(kind)
    lazy_dataclass.complete()
    codec.prepare(messages.Event)
    # patterns and types of settings, which are found once in a process
    cuda_kernels.scan("__global__ void k(float* x) {}\n")
    triton_kernels.scan("import triton\n@triton.jit\ndef k(x):\n    pass\n")
    config.rows()
    architectures.architecture_for("NVIDIA H100 80GB HBM3")
    arguments.parser()
    gc.collect()
    gc.freeze()  # so that collections in the forks do not copy what they share


def keep(request: dict[str, Any], descriptors: list[int], interrupt: Any) -> NoReturn:
    """In a process between the two: fork the one that was asked for, say its id and how it ended."""
    *streams, status = descriptors
    pid = os.fork()
    if pid == 0:
        os.close(status)
        signal.signal(signal.SIGINT, interrupt)
        become(request, streams)
    for descriptor in (*streams, *range(STREAMS)):
        os.close(descriptor)
    with contextlib.suppress(BrokenPipeError):
        os.write(status, b"%d\n" % pid)
    _, end = os.waitpid(pid, 0)
    with contextlib.suppress(BrokenPipeError):
        os.write(status, b"%d\n" % os.waitstatus_to_exitcode(end))
    os._exit(0)


def become(request: dict[str, Any], streams: list[int]) -> NoReturn:
    code = 1
    try:
        for number, descriptor in enumerate(streams):
            os.dup2(descriptor, number)
            os.close(descriptor)
        sys.stdin, sys.stdout, sys.stderr = streams_of_their_own()
        os.chdir(request["folder"])
        os.environ.clear()
        os.environ.update(request["environment"])
        if "modal" in sys.modules:
            configure_modal()
        for name, value in request["constants"].items():
            module, _, constant = name.rpartition(".")
            assert hasattr(sys.modules[module], constant), name
            setattr(sys.modules[module], constant, value)
        faulthandler.register(signal.SIGUSR1, all_threads=True)
        sys.argv = ["orbit-lsp", *request["words"]]
        code = obey()
    except BaseException:  # noqa: BLE001 - a process ends here, whatever it raised
        traceback.print_exc()
    finally:
        # as the interpreter ends, but for the taking apart of every object
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


def configure_modal() -> None:
    """What Modal's client reads of its environment when it is imported, read again."""
    from modal import config

    config.user_config_path = os.environ.get("MODAL_CONFIG_PATH") or os.path.expanduser("~/.modal.toml")  # noqa: PTH111
    config._user_config = config._read_user_config()
    config._profile = os.environ.get("MODAL_PROFILE") or config._config_active_profile()


def streams_of_their_own() -> tuple[TextIO, TextIO, TextIO]:
    """Of the descriptors as they are now: a stream remembers whether its file could be sought in."""
    read, written = (
        functools.partial(open, encoding="utf-8", closefd=False, errors=errors)
        for errors in ("surrogateescape", "backslashreplace")
    )
    return read(0), written(1, "w"), written(2, "w", buffering=1)


def obey() -> int:
    """The exit code of the command line."""
    from orbit_lsp.cli import main as cli_main

    try:
        code = cli_main.main()
    except SystemExit as end:  # of argparse
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    threading._shutdown()
    atexit._run_exitfuncs()
    return code


if __name__ == "__main__":
    main()
