"""`orbit-lsp trust`: the folders whose Pythons, compilers, flags and settings are used."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from orbit_lsp.places import trust
from orbit_remote.common.messages import EXIT_CODES
from orbit_remote.common.plain_text import in_a_line


def main(options: argparse.Namespace) -> int:
    """Run the command. Return the exit code."""
    if why := trust.foreign():
        print(in_a_line(f"orbit-lsp: error: {why}"), file=sys.stderr)
        return EXIT_CODES["infrastructure"]
    if options.list:
        for folder in trust.remembered():
            print(in_a_line(folder))
        return 0
    folder = str(Path(options.folder).absolute()) if options.folder else str(Path.cwd())
    if options.forget:
        if trust.forget(folder):
            print(in_a_line(f"{folder} is no longer trusted"))
            return 0
        print(
            in_a_line(f"orbit-lsp: {folder} is not among the trusted folders; `--list` prints them"),
            file=sys.stderr,
        )
        return EXIT_CODES["usage"]
    if not Path(folder).is_dir():
        print(in_a_line(f"orbit-lsp: there is no folder {folder}"), file=sys.stderr)
        return EXIT_CODES["usage"]
    try:
        real = trust.remember(folder)
    except OSError as error:
        why = f"the list of trusted folders, {trust.list_file()}, cannot be written: {error.strerror}"
        print(
            in_a_line(f"orbit-lsp: error: {why}; set XDG_STATE_HOME to a folder of your own"), file=sys.stderr
        )
        return EXIT_CODES["infrastructure"]
    print(in_a_line(f"{real} is trusted: restart the server of an open editor to apply this there"))
    return 0
