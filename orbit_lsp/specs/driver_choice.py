"""Chooses the driver through which a click runs a kernel: the pinned one, else one that runs have shown, else the
nearest in the source text.
"""

from __future__ import annotations

from pathlib import Path

from orbit_lsp.state.kernel_ids import KernelId
from orbit_lsp.state.results import Learned, Route
from orbit_lsp.state.session import Session, path_of
from orbit_remote.common.requests import Driver

LIVE_S = 3.0
"""Seconds within which a driver has to end to run at every save."""


def chosen(session: Session, target: KernelId) -> Driver | None:
    """Return the driver that a click takes. Return None if the kernel has none, or if its file's own program comes
    first.
    """
    if pinned := pin(session, target):
        return pinned
    learned = _learned(session, target)
    launching = [
        driver
        for driver, known in learned.items()
        if known.launches and _is_there(session, target, driver) and _runs_here(session, driver)
    ]
    if launching:
        return min(launching, key=lambda driver: learned[driver].seconds)
    result = session.results.runs.get(target)
    missed = (result is not None and not result.launches) or _is_not_whole(session, target)
    can_run = [
        route
        for route in ranked(session, target)
        if route.driver not in learned and _runs_here(session, route.driver)
    ]
    if session.files[target.uri].scan.entries and not missed:
        can_run = [route for route in can_run if _is_of_several(session, target, route)]
    return can_run[0].driver if can_run else None


def _is_of_several(session: Session, target: KernelId, route: Route) -> bool:
    """Say whether a route is the program of the kernel's own file and needs other sources too. That file alone does
    not link.
    """
    folder = session.setup.directory(path_of(target.uri))
    has_main = Path(folder, route.driver.file) == Path(path_of(target.uri))
    return (
        has_main
        and route.driver.kind == "program"
        and any(each != route.driver.file for each in route.sources)
    )


def _is_not_whole(session: Session, target: KernelId) -> bool:
    """Say whether the last run showed that the file alone is no program, because its `main` is linked with other
    files.
    """
    failed = session.results.failures.get(target)
    failure = failed.failure if failed else None
    return (
        failure is not None
        and failure.category == "compile error"
        and "undefined reference" in failure.message
    )


def _runs_here(session: Session, driver: Driver) -> bool:
    """Say whether a driver can run where runs go. The programs of a project are built on this machine only."""
    return driver.kind != "program" or session.setup.place() == "local"


def pin(session: Session, target: KernelId) -> Driver | None:
    """Return the driver that the author chose for a kernel, if it still exists."""
    pinned = session.results.pinned.get(target)
    return pinned if pinned and _is_there(session, target, pinned) else None


def _is_there(session: Session, target: KernelId, driver: Driver) -> bool:
    """Return whether a driver still leads to the kernel, as far as is known yet: a test may have been renamed. A
    script that launched it needs no way in the source text.
    """
    routes = session.routes.get(target)
    if routes is None or not routes.routes or any(route.driver == driver for route in routes.routes):
        return True
    return _is_whole_script(session, target, driver)


def _is_whole_script(session: Session, target: KernelId, driver: Driver) -> bool:
    folder = session.setup.directory(path_of(target.uri))
    return driver.kind == "script" and not driver.name and Path(folder, driver.file).is_file()


def ranked(session: Session, target: KernelId) -> list[Route]:
    """Return the routes of a kernel. Those that launched it come first, quickest first; those that did not launch it
    come last. A script that launched it has a route even if the source text shows none.
    """
    learned, found = _learned(session, target), session.routes.get(target)
    if found is None:
        return []
    read = {route.driver for route in found.routes}
    seen = [
        Route(driver, (), 0.0)
        for driver, known in learned.items()
        if known.launches and driver not in read and _is_whole_script(session, target, driver)
    ]

    def order(route: Route) -> tuple[int, float]:
        known = learned.get(route.driver)
        if known is None:
            return 1, route.cost
        return (0, known.seconds) if known.launches else (2, route.cost)

    return sorted([*found.routes, *seen], key=order)


def is_guess(session: Session, target: KernelId, driver: Driver) -> bool:
    """Return whether no run has shown yet that a driver launches the kernel."""
    known = _learned(session, target).get(driver)
    return known is None or not known.launches


def is_quick(session: Session, target: KernelId, driver: Driver | None) -> bool:
    """Return whether a click is quick enough to run at every save. Only a driver may not be. A program is built from
    saved files, so it cannot run at every pause in typing.
    """
    if driver is None:
        return True
    if driver.kind == "program" and session.setup.settings.live.on == "pause":
        return False
    known = _learned(session, target).get(driver)
    return known is not None and known.launches > 0 and known.seconds < LIVE_S


def named(session: Session, target: KernelId, name: str) -> Driver | None:
    """Return the driver of a kernel with this id."""
    return next((route.driver for route in ranked(session, target) if route.driver.id == name), None)


def sets(session: Session, target: KernelId, driver: Driver) -> tuple[str, ...]:
    """Return the parameter sets of a test that are enough: the quickest that launched the kernel. Return none if that
    is not known.
    """
    known = _learned(session, target).get(driver)
    return known.sets if known else ()


def sources(session: Session, target: KernelId, driver: Driver) -> tuple[str, ...]:
    """Return the sources of a program, as far as build files name them."""
    routes = session.routes.get(target)
    found = (route.sources for route in routes.routes if route.driver == driver) if routes else iter(())
    return next(found, ())


def _learned(session: Session, target: KernelId) -> dict[Driver, Learned]:
    return session.results.learned.get(target, {})
