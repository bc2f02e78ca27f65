"""A code action that writes `.clangd`: the flags that make clangd right about CUDA 13 (docs/guide/clangd.md)."""

from __future__ import annotations

import os
import re
from pathlib import Path

from lsprotocol import types as lsp

from orbit_lsp.kernels import CUDA_SUFFIXES
from orbit_lsp.state.session import OpenFile, Session, uri_of

_REMOVED = (
    "-arch*", "-gencode*", "--generate-code*", "--expt-*", "--extended-lambda", "-Xptxas*", "-Xcompiler*",
    "--use_fast_math", "-rdc*",
)  # fmt: skip
"""Flags that only nvcc knows."""
_TITLE = "Write .clangd for CUDA"


def actions(session: Session, uri: str, line: int) -> list[lsp.CodeAction]:
    """Return the action on an `#include` of a `.cu` file, if its workspace folder has no `.clangd` and the toolkit is
    known.
    """
    file = session.files.get(uri)
    if file is None or not file.document.path.lower().endswith(CUDA_SUFFIXES):
        return []
    if line >= len(file.document.lines) or not re.match(r"\s*#\s*include\b", file.document.line(line)):
        return []
    folder = Path(session.setup.directory(file.document.path))
    toolkit = _toolkit(session)
    if toolkit is None or os.path.lexists(folder / ".clangd"):  # a link to nothing would be written through
        return []
    target = uri_of(str(folder / ".clangd"))
    start = lsp.Position(0, 0)
    edit = lsp.WorkspaceEdit(
        document_changes=[
            lsp.CreateFile(target, options=lsp.CreateFileOptions(ignore_if_exists=True)),
            lsp.TextDocumentEdit(
                lsp.OptionalVersionedTextDocumentIdentifier(target, None),
                [lsp.TextEdit(lsp.Range(start, start), text(session, file, toolkit))],
            ),
        ]
    )
    return [lsp.CodeAction(_TITLE, kind=lsp.CodeActionKind.Empty, edit=edit)]


def text(session: Session, file: OpenFile, toolkit: str) -> str:
    """Return the file's content for this toolkit, with the include folders of one of the project's files."""
    version = session.setup.machine.nvcc_version if session.setup.machine else None
    release = re.match(r"\d+\.\d+", version or "13.0")
    own = [flag for flag in _pairs(file.compilation.flags) if re.match(r"-(?:I|isystem|D|std)", flag[0])]
    standard = () if any(flag[0].startswith("-std") for flag in own) else ("-std=c++17",)
    added = (
        "-xcuda", f"--cuda-path={toolkit}", f"--cuda-gpu-arch={session.setup.architecture().rstrip('af')}",
        "-nocudalib", "-Wno-unknown-cuda-version", *standard, "-Xclang",
        f"-target-sdk-version={release[0] if release else '13.0'}", *(word for flag in own for word in flag),
    )  # fmt: skip
    lines = [
        f"    - {_quoted(flag)}" for flag in added if flag.isprintable()
    ]  # a line end would end the list
    head = ["If:", r"  PathMatch: .*\.cuh?", "CompileFlags:", "  Add:"]
    return "\n".join([*head, *lines, f"  Remove: [{', '.join(_REMOVED)}]", ""])


def _pairs(flags: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Return each flag with its value, if that is a separate word."""
    words = iter(flags)
    valued = ("-I", "-isystem", "-D", "-std")
    return [(flag, next(words, "")) if flag in valued else (flag,) for flag in words]


def _toolkit(session: Session) -> str | None:
    """Return the folder of the compiler's toolkit. `nvcc` on PATH may be a script elsewhere."""
    machine = session.setup.machine
    if machine is None or machine.nvcc is None:
        return None
    places = (
        Path(os.path.realpath(machine.nvcc)).parent.parent, *map(Path, filter(None, (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH")))),
        *sorted(Path("/usr/local").glob("cuda*"), reverse=True),
    )  # fmt: skip
    return next((str(place) for place in places if (place / "include" / "cuda_runtime.h").is_file()), None)


def _quoted(flag: str) -> str:
    """Return a flag as a YAML string."""
    return flag if re.fullmatch(r"[\w./=+-]+", flag) else "'" + flag.replace("'", "''") + "'"
