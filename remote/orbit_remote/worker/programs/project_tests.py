"""Finds how a project's own tests run a program: with which arguments, in which folder, with which variables, as
CTest and Meson say.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from orbit_remote.common import codec, limits, regular_files
from orbit_remote.process import client_environment, tool_output

_LISTS = "CTestTestfile.cmake"
_MESON = ("meson-info", "intro-tests.json")
"""Meson's manual, "IDE integration"."""
_LISTING_S = 60.0
"""CTest may start programs of gtest to list their tests (`gtest_discover_tests` with `DISCOVERY_MODE PRE_TEST`)."""


class ProjectTest(NamedTuple):
    """A test that runs a program of the project itself. `variables` are `NAME=value`."""

    name: str
    arguments: tuple[str, ...]
    folder: str
    variables: tuple[str, ...]


def of_cmake(folder: str, configuration: str, executable: str) -> list[ProjectTest]:
    """Return the tests of a build folder that run an executable, in CTest's order. Starts `ctest`; takes time."""
    ctest = client_environment.which("ctest")
    if ctest is None or not os.path.isfile(os.path.join(folder, _LISTS)):
        return []
    command = [ctest, "--test-dir", folder, "--show-only=json-v1"]
    command += ["-C", configuration] if configuration else []
    try:
        said = tool_output.ask(command, timeout_s=_LISTING_S, limit=limits.TOOL_LOG.most)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return _tests(lambda: codec.read_json(said.stdout)["tests"], _of_ctest, folder, executable)


def of_meson(folder: str, executable: str) -> list[ProjectTest]:
    """Return the tests of a build folder that run an executable, in Meson's order. Takes time."""
    path = Path(folder, *_MESON)

    def read() -> Iterable[dict[str, Any]]:
        return codec.read_json(regular_files.read(path, limits.TOOL_LOG))

    return _tests(read, _of_meson, folder, executable)


def chosen(tests: Sequence[ProjectTest], arguments: Sequence[str]) -> ProjectTest | None:
    """Return the test that passes these arguments, and perhaps others. Without arguments, or if no test passes them,
    return the first.
    """
    passing = [test for test in tests if arguments and set(arguments) <= set(test.arguments)]
    return next(iter([*passing, *tests]), None)


def _tests(
    read: Callable[[], Iterable[dict[str, Any]]],
    made: Callable[[dict[str, Any], str], tuple[list[str], ProjectTest] | None],
    folder: str,
    executable: str,
) -> list[ProjectTest]:
    wanted = os.path.realpath(executable)
    try:
        every = [made(each, folder) for each in read()]
        return [test for command, test in filter(None, every) if os.path.realpath(command[0]) == wanted]
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return []  # another version's form of the answer: the program runs as the build files' texts say


def _of_ctest(test: dict[str, Any], folder: str) -> tuple[list[str], ProjectTest] | None:
    said = {each["name"]: each["value"] for each in test.get("properties", ())}
    command = [str(word) for word in test.get("command", ())]  # empty if the program was not built
    if not command or said.get("DISABLED"):
        return None
    variables = tuple(str(each) for each in said.get("ENVIRONMENT", ()))
    where = str(said.get("WORKING_DIRECTORY", folder))
    return command, ProjectTest(str(test["name"]), tuple(command[1:]), where, variables)


def _of_meson(test: dict[str, Any], folder: str) -> tuple[list[str], ProjectTest] | None:
    command = [str(word) for word in test["cmd"]]
    variables = tuple(f"{name}={value}" for name, value in test.get("env", {}).items())
    where = str(test.get("workdir") or folder)
    return (
        (command, ProjectTest(str(test["name"]), tuple(command[1:]), where, variables)) if command else None
    )
