"""`orbit-lsp skills`: pages that teach a coding agent the commands, listed or copied to where the agent looks."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

import orbit_lsp
from orbit_lsp.profile import report_folder
from orbit_remote.common import limits, regular_files
from orbit_remote.common.messages import EXIT_CODES
from orbit_remote.common.plain_text import visible

FOLDER = Path(orbit_lsp.__file__).parent / "skills"


def main(options: argparse.Namespace) -> int:
    """Run the command. Return the exit code."""
    pages = sorted(FOLDER.glob("*/SKILL.md"))
    if options.what == "list":
        for page in pages:
            about = re.search(r"^description: (.*)$", regular_files.text(page, limits.STATE), re.MULTILINE)
            print(f"orbit-{page.parent.name}: {about[1] if about else ''}")
        return 0
    if options.to is None:
        print(
            "orbit-lsp: error: --to is missing: give the folder, as in --to .claude/skills", file=sys.stderr
        )
        return EXIT_CODES["usage"]
    folder = Path(options.to)
    if not folder.is_absolute() and ".." not in folder.parts and not _is_here(folder):
        print(
            f"orbit-lsp: error: a link leads from {visible(str(folder))} out of this folder; give the absolute path to mean that",
            file=sys.stderr,
        )
        return EXIT_CODES["usage"]
    for page in pages:
        into = folder / f"orbit-{page.parent.name}"
        if into.is_symlink():
            print(f"orbit-lsp: error: {visible(str(into))} is a link; remove it", file=sys.stderr)
            return EXIT_CODES["usage"]
        into.mkdir(parents=True, exist_ok=True)
        print(report_folder.write(into / "SKILL.md", regular_files.read(page, limits.STATE)))
    return 0


def _is_here(folder: Path) -> bool:
    """Say whether a relative path stays below the current folder, links followed. Raises OSError."""
    try:
        return folder.resolve().is_relative_to(Path.cwd().resolve())
    except RuntimeError:  # a link to itself
        return False
