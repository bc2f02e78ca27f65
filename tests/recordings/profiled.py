"""Which programs were profiled on an H100, and where the recordings lie: without what reads them."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent / "profiles"
NAMES = sorted(path.name.removesuffix(".ncu-rep") for path in FOLDER.glob("*.ncu-rep"))


def source_of(name: str) -> Path:
    """Where the recorded program stood when it ran was /src."""
    stem = {"without_lines": "memory_bound"}.get(name, name.partition(".")[0])
    return next(
        FOLDER / f"{stem}{suffix}" for suffix in (".cu", ".py") if (FOLDER / f"{stem}{suffix}").exists()
    )
