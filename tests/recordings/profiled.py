"""Which programs were profiled on an H100, and where the recordings lie: without what reads them.

`memory_bound.run.json` is a run and `memory_bound.with_run` a profile of one program in one session (scripts/record_run).
"""

from __future__ import annotations

from pathlib import Path

from orbit_remote.common import codec
from orbit_remote.common import messages as c

FOLDER = Path(__file__).parent / "profiles"
NAMES = sorted(path.name.removesuffix(".ncu-rep") for path in FOLDER.glob("*.ncu-rep"))


RAN = "memory_bound.with_run"
"""The profile of which the run is recorded too."""


def source_of(name: str) -> Path:
    """Where the recorded program stood when it ran was /src."""
    stem = {"without_lines": "memory_bound"}.get(name, name.partition(".")[0])
    return next(
        FOLDER / f"{stem}{suffix}" for suffix in (".cu", ".py") if (FOLDER / f"{stem}{suffix}").exists()
    )


def run(path: str) -> c.Finished:
    """What the recorded run printed with --json, as if the program had stood at `path`."""
    text = (
        (FOLDER / "memory_bound.run.json").read_text(encoding="utf-8").replace("/src/memory_bound.cu", path)
    )
    return codec.build(c.Finished, codec.read_json(text))
