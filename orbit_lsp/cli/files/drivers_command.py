"""`orbit-lsp drivers`: finds the tests, scripts and programs that launch the kernels of a file or a folder, by
reading only.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from orbit_lsp.cli import json_results
from orbit_lsp.cli.arguments import did_you_mean
from orbit_lsp.cli.json_results import DriverList, KernelDrivers, ListedDriver
from orbit_lsp.cli.terminal_text import UsageError, refused
from orbit_lsp.closure.tree import is_private
from orbit_lsp.compilation.projects import project_of
from orbit_lsp.drivers.finder import DriverFinder
from orbit_lsp.drivers.index import is_text
from orbit_lsp.kernels import CUDA_SUFFIXES, HEADER_SUFFIXES, language_of, tracker
from orbit_lsp.kernels.model import RUNNABLE, Kernel, Scan
from orbit_lsp.kernels.python.dsls import MAKER_WORD
from orbit_lsp.runs import driver_search
from orbit_lsp.state import user_folders
from orbit_lsp.state.kernel_ids import KernelId, identify
from orbit_lsp.state.results import Route, Routes
from orbit_remote.common.plain_text import visible


def main(options: argparse.Namespace) -> int:
    try:
        return _main(options)
    except UsageError as error:
        return refused(str(error), as_json=options.json)


def _main(options: argparse.Namespace) -> int:
    named = Path(options.file or os.curdir).absolute()
    path, folder = os.path.normpath(named), named.is_dir()
    if not named.exists():
        raise UsageError(f"{options.file}: there is no such file or folder")
    if not is_text(path):
        raise UsageError(
            f"{options.file or path}: the path is not valid UTF-8, which a project's path has to be"
        )
    if not folder and not path.lower().endswith((".py", *CUDA_SUFFIXES, *HEADER_SUFFIXES)):
        raise UsageError(
            f"{options.file}: only .py, .cu, .cuh and header files have drivers; name one, or a folder"
        )
    root = project_of(path if folder else str(named.parent))
    if is_private(root):
        raise UsageError(f"{root} is a home folder, or holds one; name a file in a project")
    finder = driver_search.finder_of(root, lambda: user_folders.cache_folder() / "drivers.sqlite")
    finder.refresh(path)
    listed = [
        KernelDrivers(
            target.uri,
            target.key,
            kernel.line + 1,
            not kernel.launchable or found.helper,
            own_program,
            tuple(map(_listed, found.routes)),
            found.reason,
        )
        for target, kernel, own_program, found in _found(finder, path, folder)
    ]
    if options.kernel:
        names = [each.kernel for each in listed]
        listed = [each for each in listed if options.kernel in (each.kernel, each.kernel.rpartition(".")[2])]
        if not listed:
            raise UsageError(f"no kernel {options.kernel!r}{did_you_mean(options.kernel, names)}")
    kernels = [each for each in listed if not each.helper]
    result = DriverList(
        root,
        len(kernels),
        sum(bool(each.drivers or each.own_program) for each in kernels),
        len(listed) - len(kernels),
        tuple(listed),
    )
    if options.json:
        print(json_results.text(result))
    elif folder and not options.kernel:
        _print_summary(result)
    else:
        _print_kernels(result)
    return 0


def _listed(route: Route) -> ListedDriver:
    driver = route.driver
    return ListedDriver(
        driver.kind,
        driver.id,
        driver.file,
        driver.name,
        driver.keyword,
        route.cases,
        route.cost,
        route.way,
        driver.tool,
        driver.folder,
        driver.arguments,
    )


def _found(finder: DriverFinder, path: str, folder: bool) -> Iterator[tuple[KernelId, Kernel, bool, Routes]]:
    """Yield the kernels of one file, or of the files of a folder, each with whether the file is a program and with its drivers."""
    for place, scan in scans(finder, path, folder):
        kernels = [(target, kernel) for target, kernel, _ in identify(place, scan) if kernel.dsl in RUNNABLE]
        routes = finder.routes_of(finder.index.path(place), [target.key for target, _ in kernels])
        for target, kernel in kernels:
            yield target, kernel, bool(scan.entries), routes[target.key]


def scans(finder: DriverFinder, path: str, folder: bool) -> Iterator[tuple[str, Scan]]:
    """Yield the place of a file, or of each file of a folder that may have kernels, with what its text has."""
    index = finder.index
    below = index.place(path) or ""
    if not folder:
        index.changed(path, wanted=True)
        places = [below]
    else:
        every = {*index.files, *index.places(below and f"{below}/", (*CUDA_SUFFIXES, *HEADER_SUFFIXES))}
        places = sorted(each for each in every if not below or each.startswith(f"{below}/"))
    for place in places:
        text = index.text(place)
        if not place.endswith(".py"):
            if language_of(place, text or " ") is None:
                continue
            yield place, tracker("cuda").scan(text)
        elif "__global__" in text or MAKER_WORD.search(text.encode("utf-8", "replace")):
            yield place, tracker("triton").scan(text)


def _print_kernels(result: DriverList) -> None:
    for each in result.kernels:
        print(visible(f"{each.file}:{each.line}: {each.kernel}{' (helper)' if each.helper else ''}"))
        for driver in each.drivers:
            cases = f"  ({driver.cases:,} parameter sets)" if driver.cases > 1 else ""
            print(visible(f"  {_tool(driver)} {driver.id}{cases}"))
            print(visible(f"      {' <- '.join(driver.way)}"))
        if each.own_program:
            print("  its file is a program: orbit-lsp run needs no --through")
        elif not each.drivers:
            print(visible(f"  none: {each.reason}"))
    if not result.kernels:
        print("no kernel in this file", file=sys.stderr)


def _print_summary(result: DriverList) -> None:
    """Print a line for each kernel that other code should launch: its best driver, or why it has none. The count is
    last.
    """
    for each in result.kernels:
        if not each.helper:
            print(visible(f"{each.file}:{each.line}: {each.kernel}: {_best(each)}"))
    nothing = [each for each in result.kernels if not (each.drivers or each.own_program or each.helper)]
    helpers = f"; {_count(result.helpers, 'helper')}, which other kernels call" if result.helpers else ""
    count = _count(result.count, "kernel")
    print(f"{count}: something launches {result.reachable}, nothing is found for {len(nothing)}{helpers}")


def _best(kernel: KernelDrivers) -> str:
    if kernel.own_program:
        return "its own file"
    if not kernel.drivers:
        return f"none: {kernel.reason}"
    best, *dearer = kernel.drivers
    return f"{_tool(best)} {best.id}{f', and {len(dearer)} more' if dearer else ''}"


def _tool(driver: ListedDriver) -> str:
    return driver.tool or ("pytest" if driver.kind == "pytest" else "python")


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
