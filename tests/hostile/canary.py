"""A program that leaves a file when it is run: the proof that something hostile was started"""

from __future__ import annotations

from pathlib import Path


def canary(path: Path, name: str, *, then: str = "exit 1") -> str:
    """A program at `path` that sings `name`."""
    sang = path.parent
    while not (sang / "sang").is_dir():
        sang = sang.parent
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\ntouch '{sang / 'sang' / name}'\n{then}\n")
    path.chmod(0o755)
    return str(path)
