"""KernelBench and popcorn files: which of the two, and the files beside them.

Of both sides, from the text alone. KernelBench: a class `ModelNew` that stands in for the class `Model` of a
reference (github.com/ScalingIntelligence/KernelBench). popcorn: a function `custom_kernel(data)`, with `reference.py`
and `task.yml` beside it (github.com/gpu-mode/reference-kernels).
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from orbit_remote.common import popcorn_task

TASK: Final = "task.yml"
REFERENCE: Final = "reference.py"

Kind = Literal["kernelbench", "popcorn"]
_ENTRIES: Final[tuple[tuple[Kind, str], ...]] = (("kernelbench", "ModelNew"), ("popcorn", "custom_kernel"))


@dataclass(frozen=True, slots=True)
class Kept:
    """The contract that a text keeps, and where the name stands that others call: `line`, `column` from 1,
    `end_column` exclusive, in code points.
    """

    kind: Kind
    name: str
    line: int
    column: int
    end_column: int


def kept(text: str) -> Kept | None:
    """None for a text that keeps none, or has no syntax."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None
    lines = text.split("\n")
    for kind, name in _ENTRIES:
        for node in tree.body:
            if name in _names(node):
                line = lines[node.lineno - 1] if node.lineno <= len(lines) else ""
                found = re.search(rf"\b{name}\b", line)
                column = found.start() + 1 if found else 1
                return Kept(kind, name, node.lineno, column, column + len(name))
    return None


def has_model(text: str) -> bool:
    """Whether a text with `ModelNew` brings its reference along: `Model` and `get_inputs`, defined or imported."""
    names = {name for node in ast.parse(text).body for name in _names(node)}
    return {"Model", "get_inputs"} <= names or "*" in names


def _names(node: ast.stmt) -> set[str]:
    """The names that a top-level statement binds."""
    match node:
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
            return {name}
        case ast.Assign(targets=targets):
            return {target.id for target in targets if isinstance(target, ast.Name)}
        case ast.AnnAssign(target=ast.Name(id=name)):
            return {name}
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            return {alias.asname or alias.name for alias in names}
        case _:
            return set()


def model_files(path: Path) -> tuple[Path, ...]:
    """Where `Model` may lie for a file that has only `ModelNew`, the likeliest first.

    `model_new_ex_add.py` beside `model_ex_add.py` is how KernelBench names its own examples.
    """
    stem = path.stem
    names = [
        stem.replace("model_new", "model", 1) if "model_new" in stem else "",
        re.sub(r"_(new|kernel|solution|optimized|triton|cuda)$", "", stem),
        re.sub(r"_(new|kernel|solution|optimized|triton|cuda)$", "_ref", stem),
        "reference",
        "model",
    ]
    return tuple(path.with_name(f"{name}.py") for name in dict.fromkeys(names) if name and name != stem)


def model_file(path: Path) -> Path | None:
    """The first of `model_files` that is there."""
    return next((one for one in model_files(path) if one.is_file()), None)


def problem_folder(path: Path) -> Path:
    """Where task.yml lies: beside the submission, or up to two folders above it, as in `solutions/correct/`."""
    folders = (path.parent, *path.parent.parents[:2])
    return next((one for one in folders if (one / TASK).is_file()), path.parent)


def listed(folder: Path, task: popcorn_task.Task) -> dict[str, Path]:
    """Modules by the name that they are imported by, as task.yml lists them: `utils` may lie elsewhere."""
    return {
        name.removesuffix(".py"): folder / source
        for name, source in task.files.items()
        if name.endswith(".py") and source != popcorn_task.SUBMISSION and name != "eval.py"
    }


def companions(path: Path, text: str) -> tuple[Path, ...]:
    """The files that a contract needs and no import of `text` need show. Reads task.yml; raises nothing."""
    found = kept(text)
    if found is None:
        return ()
    if found.kind == "kernelbench":
        model = None if has_model(text) else model_file(path)
        return (model,) if model else ()
    folder = problem_folder(path)
    places = [folder / name for name in (TASK, REFERENCE, "task.py", "utils.py")]
    try:
        task = popcorn_task.of_file(folder / TASK)
        places += listed(folder, task).values()
    except (OSError, ValueError, popcorn_task.TaskError):
        pass  # said when it is run
    existing = {one.resolve(): None for one in places if one.is_file()}
    return tuple(existing)
