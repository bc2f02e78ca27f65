"""`orbit-lsp completion bash`: what a shell completes behind `orbit-lsp`. shtab makes it from the parser itself."""

from __future__ import annotations

import argparse

import shtab

from orbit_lsp.cli import arguments

_FILES = frozenset(("FILE", "PATH", "REPORT", "file"))
_FOLDERS = frozenset(("DIR", "FOLDER"))
"""The names that the help gives arguments which are files or folders."""


def main(options: argparse.Namespace) -> int:
    print(script(options.shell), end="")
    return 0


def script(shell: str) -> str:
    """Return the script, which completes commands, options and their choices, files and folders."""
    root, parsers = arguments.parser(listed=True)
    for parser in parsers.values():
        for action in parser._actions:  # noqa: SLF001 # argparse has no other list
            if not action.choices and action.metavar in _FILES | _FOLDERS:
                action.complete = shtab.FILE if action.metavar in _FILES else shtab.DIRECTORY  # type: ignore[attr-defined]
    return shtab.complete(root, shell)
