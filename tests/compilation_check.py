"""A project's files in; the flags with which one of them is compiled, and their reasons, out."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping
from pathlib import Path

from orbit_lsp.compilation.finder import CompilationFinder, CompilationQuestion
from orbit_lsp.state.compilation import Compilation

SETUP = "from torch.utils.cpp_extension import CUDAExtension\nCUDAExtension('k', ['k.cu'], extra_compile_args={'nvcc': [%s]})\n"
"""A setup.py whose flags of nvcc are to be filled in."""


def project(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("ROOT", str(folder)))


def find(folder: Path, name: str, **question: object) -> Compilation:
    path = folder / name
    text = path.read_text() if path.exists() else ""
    return CompilationFinder().find(CompilationQuestion(str(path), text, (str(folder),), **question))  # type: ignore[arg-type]


def check(
    folder: Path, files: Mapping[str, str], expected: str, name: str = "src/k.cu", **question: object
) -> None:
    """`expected`: the flags, then where they come from, then a line for each that was inferred, and what is missing."""
    project(folder, files)
    made = find(folder, name, **question)
    lines = [" ".join(made.flags), made.source]
    lines += [f"{reason.what}: {reason.why}" for reason in made.reasons]
    lines += [f"missing {header}: {why}" for header, why in made.missing.items()]
    text = "\n".join(lines).replace(f"{folder}/", "").replace(str(folder), "ROOT")
    assert text == textwrap.dedent(expected).strip("\n")


def entry(
    file: str, command: str = "nvcc -DA -I../include -c k.cu", directory: str = "ROOT/build"
) -> dict[str, str]:
    return {"directory": directory, "file": file, "command": command}


def database(*entries: dict[str, str]) -> str:
    return json.dumps(list(entries))
