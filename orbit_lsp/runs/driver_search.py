"""Looks in a kernel's project for what launches it: with a finder for each project, or by the name that somebody
gives.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from orbit_lsp.closure.tree import below, is_private
from orbit_lsp.kernels.model import RUNNABLE
from orbit_lsp.specs import driver_choice
from orbit_lsp.state import daemon_thread
from orbit_lsp.state.kernel_ids import KernelId
from orbit_lsp.state.results import Routes
from orbit_lsp.state.session import Session, path_of
from orbit_remote.common.requests import Driver

if TYPE_CHECKING:
    from orbit_lsp.drivers.finder import DriverFinder

AUTO = "auto"
"""What one names to get the best driver."""


class UnknownDriverError(ValueError):
    """Nothing launches the kernel, or nothing is known of the named driver. The text is the sentence to show."""


def folder_of(session: Session, uri: str) -> str | None:
    """Return the folder in which the drivers of an open file's kernels are looked for, and in which they run. Return
    None if the file has no kernel that could be launched, or the folder is somebody's home.
    """
    file, root = session.files.get(uri), session.setup.directory(path_of(uri))
    if file is None or not file.builds or is_private(root) or not os.path.normpath(root).strip(os.sep):
        return None
    launchable = any(kernel.launchable and kernel.dsl in RUNNABLE for kernel in file.scan.kernels)
    return root if launchable else None


async def look(
    session: Session, uri: str, cache: Callable[[], Path], learn: Callable[[KernelId], Awaitable[None]]
) -> None:
    """Find the drivers of all kernels of an open file, once and completely. `learn` recalls what earlier runs showed
    of a kernel.
    """
    if (root := folder_of(session, uri)) is None:
        return
    targets = [target for target, kernel, _ in session.kernels(uri) if kernel.launchable]
    keys, path = [target.key for target in targets], path_of(uri)

    def found() -> dict[str, Routes]:
        finder = finder_of(root, cache)
        finder.refresh(path)
        return finder.routes_of(path, keys)

    routes = await daemon_thread.call(found)
    for target in targets:
        session.routes[target] = routes[target.key]
        await learn(target)


async def asked_for(
    session: Session,
    target: KernelId,
    wanted: str,
    cache: Callable[[], Path],
    learn: Callable[[KernelId], Awaitable[None]],
) -> tuple[Driver, tuple[str, ...]]:
    """Return the driver of a kernel that is `wanted` (its id, its file, its name, or `AUTO`), and the parameter sets
    named with it, as in `test_softmax.py::test_softmax[4096]`. It reads the project's files. `learn` recalls what
    earlier runs showed. Raises UnknownDriverError.
    """
    path = path_of(target.uri)
    routes = await daemon_thread.call(
        partial(_all_routes, session.setup.directory(path), cache, path, target)
    )
    session.routes[target] = routes
    await learn(target)
    ranked = driver_choice.ranked(session, target)
    named = wanted.partition("[")[0]
    if wanted == AUTO and ranked:
        return ranked[0].driver, ()
    for route in ranked:
        driver = route.driver
        if named in (driver.id, driver.file, driver.name):
            return driver, ((wanted,) if wanted.startswith(f"{driver.id}[") else ())
    if driver := await asyncio.to_thread(_by_its_author, session.setup.directory(path), named):
        return driver, ((wanted,) if "[" in wanted else ())
    if not ranked:
        raise UnknownDriverError(f"nothing that runs {target.key} was found: {routes.reason}")
    listed = "\n".join(f"  {route.driver.id}" for route in ranked)
    raise UnknownDriverError(f"{wanted} is not known to run {target.key}; known are\n{listed}")


def _by_its_author(root: str, named: str) -> Driver | None:
    """Return the test `tests/test_softmax.py::test_softmax`, or the script `bench.py`, of a project by its name. No
    text may lead from it to the kernel, as when it computes the name of an import. Reads the disk.
    """
    file, _, test = named.partition("::")
    path = Path(root, file)
    place = below(str(path), root)
    if place is None or path.suffix != ".py" or not path.is_file():
        return None
    by_pytest = test or path.name.startswith("test_") or path.stem.endswith("_test")
    return Driver("pytest" if by_pytest else "script", place, test)


def _all_routes(root: str, cache: Callable[[], Path], path: str, target: KernelId) -> Routes:
    finder = finder_of(root, cache)
    finder.refresh(path)
    return finder.routes(path, target.key)


def finder_of(root: str, cache: Callable[[], Path]) -> DriverFinder:
    """Return the finder of a project's drivers, which reads its build files too. Reads the disk."""
    from orbit_lsp.compilation.build_systems import registry
    from orbit_lsp.drivers.finder import DriverFinder  # importing it takes longer than an event may

    return DriverFinder(root, cache, registry.build_files())
