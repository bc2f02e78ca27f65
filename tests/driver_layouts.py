"""The small projects of tests/projects/drivers: each a text of files, and what is listed for its kernels"""

from __future__ import annotations

from pathlib import Path

LAYOUTS = Path(__file__).parent / "projects" / "drivers"


def files_of(text: str) -> dict[str, str]:
    """`=== path` begins a file."""
    parts = ("\n" + text).split("\n=== ")[1:]
    return {name: content for name, _, content in (part.partition("\n") for part in parts)}


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("ROOT", str(folder)))


def written(name: str, folder: Path) -> str:
    """Write a project into a folder; returns what is to be listed for it."""
    files = files_of((LAYOUTS / f"{name}.txt").read_text())
    expected = files.pop("drivers")
    write(folder, files)
    return expected
