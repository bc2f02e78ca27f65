"""Copies files beside a reference that its text names (a module that it imports, values that it reads) to where a
locked side can read them.

A side reads nothing of the folder in which the reference lies: another user owns it, or it is an author's whole
project.
"""

from __future__ import annotations

import ast
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, TypeGuard, cast

from orbit_remote.common import limits, regular_files

_MOST_BYTES: Final = 4 << 30
_MOST_SHAPES: Final = 16
_MOST_FILES: Final = 5_000
"""Files of a folder that are looked at."""

Shape = dict[str, int | float | str]


def bring(reference: Path, text: str, leave: set[str], folder: Path) -> list[str]:
    """Copy what `text` names, and what the modules among that name, to the same relative paths below `folder`; never
    the names in `leave`. Return these paths. Raises OSError, also for files that are too large together.
    """
    candidates = dict(_files(reference.parent, leave | {reference.name}))
    brought: list[str] = []
    texts, total = [text], 0
    while texts:
        now = texts.pop()
        for name in [name for name in candidates if _named(name, now)]:
            path = candidates.pop(name)
            total += path.stat().st_size
            if total > _MOST_BYTES:
                raise OSError(f"the files that {reference.name} names take over {_MOST_BYTES >> 30} GiB")
            into = folder / name
            into.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, into)
            brought.append(name)
            if path.suffix == ".py":
                texts.append(regular_files.text(str(path), limits.SOURCE))
    return brought


def stated_shapes(reference: Path) -> list[Shape]:
    """Return the shapes that `SHAPES` in the file `shapes.py` beside a reference states: a list of dictionaries, each with new values
    of variables of the reference's module. Return none if there is no such file, or if the list is not written out.
    """
    try:
        tree = ast.parse(regular_files.text(str(reference.with_name("shapes.py")), limits.SOURCE))
        values = [ast.literal_eval(node.value) for node in tree.body if _states_shapes(node) and node.value]
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return []
    stated = cast("list[Any]", values[-1]) if values and isinstance(values[-1], list) else []
    return [cast("Shape", each) for each in stated if _is_shape(each)][:_MOST_SHAPES]


def _states_shapes(node: ast.stmt) -> TypeGuard[ast.Assign | ast.AnnAssign]:
    if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
        return False
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return any(isinstance(target, ast.Name) and target.id == "SHAPES" for target in targets)


def _is_shape(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(name, str) and name.isidentifier() and isinstance(size, int | float | str)
        for name, size in cast("dict[Any, Any]", value).items()
    )


def _files(folder: Path, leave: set[str]) -> Iterator[tuple[str, Path]]:
    """Yield the files of a folder and the folders in it, by relative path."""
    found = [path for path in (*folder.glob("*"), *folder.glob("*/*")) if not path.name.startswith(".")]
    for path in found[:_MOST_FILES]:
        name = path.relative_to(folder).as_posix()
        if name not in leave and not path.is_symlink() and path.is_file():
            yield name, path


def _named(name: str, text: str) -> bool:
    """Say whether a text reads a file by its name, or imports it."""
    path = Path(name)
    if path.name in text:
        return True
    module = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
    return path.suffix == ".py" and bool(
        re.search(
            rf"^\s*(?:from\s+\.*{re.escape(module)}\b|import\s[^#\n]*\b{re.escape(module)}\b)",
            text,
            re.MULTILINE,
        )
    )
