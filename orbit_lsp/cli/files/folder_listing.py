"""`orbit-lsp show FOLDER`: lists the kernels of a folder, each with the lenses that an editor shows above it."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from orbit_lsp.cli.files import drivers_command
from orbit_lsp.cli.terminal_text import UsageError
from orbit_lsp.closure.tree import below, is_private
from orbit_lsp.engine.engine import Engine
from orbit_lsp.runs import driver_search
from orbit_lsp.state import user_folders
from orbit_lsp.state.session import Session, uri_of
from orbit_lsp.views import lenses
from orbit_remote.common.plain_text import visible

if TYPE_CHECKING:
    from orbit_lsp.drivers.finder import DriverFinder


async def show(folder: str, engine: Engine, *, as_json: bool) -> int:
    """Print the kernels of a folder. Files are read, and nothing is compiled or run. Returns the exit code. Raises UsageError."""
    if as_json:
        raise UsageError(
            f"show has no JSON of a folder; `orbit-lsp drivers {shlex.quote(folder)} --json` lists its kernels"
        )
    session, root = engine.session, engine.session.setup.folders[0]
    if is_private(root):
        raise UsageError(f"{root} is a home folder, or holds one; name a folder of a project")
    await engine.places.look_around()
    path = _absolute(folder)
    finder = driver_search.finder_of(root, user_folders.driver_index)
    finder.refresh(path)
    count = 0
    for place, scan in drivers_command.scans(finder, path, folder=True):
        if not any(kernel.launchable for kernel in scan.kernels):
            continue
        file = finder.index.path(place)
        session.open(uri_of(file), 1, finder.index.text(place))
        lines = _lines(session, uri_of(file), finder, file)
        count += len(lines)
        print(visible("\n".join([_typed(session.setup.standing, file), *lines])))
        session.close(uri_of(file))
    if not count:
        raise UsageError(f"{folder} has no kernels")
    return 0


def _typed(standing: str, file: str) -> str:
    """Return the path of a file as it can be typed in the folder `standing`, "" for a folder that is gone."""
    return (below(file, standing) if standing else None) or file


def _absolute(folder: str) -> str:
    return os.path.normpath(Path(folder).absolute())


def _lines(session: Session, uri: str, finder: DriverFinder, file: str) -> list[str]:
    """Return a line for each kernel that can be launched: its number, its name, its lenses."""
    targets = {target: kernel for target, kernel, _ in session.kernels(uri) if kernel.launchable}
    routes = finder.routes_of(file, [target.key for target in targets])
    session.routes |= {target: routes[target.key] for target in targets}
    above: dict[int, list[str]] = {}
    for lens in lenses.lenses(session, uri):
        if lens.command:
            above.setdefault(lens.range.start.line, []).append(lens.command.title)
    return [
        f"  {kernel.line + 1}: {kernel.name}   {' | '.join(above.get(kernel.line, []))}"
        for kernel in targets.values()
    ]
