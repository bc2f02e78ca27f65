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

FOLDER = Path(orbit_lsp.__file__).parent / "skills"


def main(options: argparse.Namespace) -> int:
    pages = sorted(FOLDER.glob("*/SKILL.md"))
    if options.what == "list":
        for page in pages:
            about = re.search(r"^description: (.*)$", regular_files.text(page, limits.STATE), re.MULTILINE)
            print(f"orbit-{page.parent.name}: {about[1] if about else ''}")
        return 0
    if options.to is None:
        print("orbit-lsp: error: where to? Add --to, as in --to .claude/skills", file=sys.stderr)
        return EXIT_CODES["usage"]
    folder = Path(options.to).expanduser()
    for page in pages:
        into = folder / f"orbit-{page.parent.name}"
        into.mkdir(parents=True, exist_ok=True)
        print(report_folder.write(into / "SKILL.md", regular_files.read(page, limits.STATE)))
    return 0
