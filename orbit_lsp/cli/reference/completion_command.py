"""`orbit-lsp completion bash`: what a shell completes behind `orbit-lsp`, by shtab from the parser itself"""

from __future__ import annotations

import argparse

import shtab

from orbit_lsp.cli import arguments

_FILES = frozenset(("FILE", "PATH", "REPORT", "file"))
_FOLDERS = frozenset(("DIR", "FOLDER"))
"""What an argument's name in the help says of it."""


def main(options: argparse.Namespace) -> int:
    print(script(options.shell), end="")
    return 0


def script(shell: str) -> str:
    """Return the script, which completes commands, options and their choices, files and folders."""
    root, parsers = arguments.parser()
    for action in root._actions:  # noqa: SLF001 # argparse has no other list
        if action.dest == "command":
            action.help = "command"  # shtab leaves out what the help does
    for parser in parsers.values():
        for action in parser._actions:  # noqa: SLF001
            if not action.choices and action.metavar in _FILES | _FOLDERS:
                action.complete = shtab.FILE if action.metavar in _FILES else shtab.DIRECTORY  # type: ignore[attr-defined]
    return shtab.complete(root, shell)
