"""Finds why pytest ran no test, from pytest itself: it prints its reasons, and ends with a number that several of
them share.
"""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Callable, Generator
from typing import Any

from orbit_remote.child.under_profiler import replaced

_STATUS = {
    2: "pytest could not collect the test, or was interrupted",
    3: "pytest failed itself",
    4: "pytest was started in a way that its configuration or a conftest.py does not allow",
    5: "pytest selected no test of {}, which options of the project (addopts) may leave out",
}
"""The meanings of pytest's exit statuses that no test result gives (pytest's reference, "Exit codes")."""


class Refusals:
    """A plug-in of pytest, and what its errors say while they are `noted`."""

    def __init__(self, driver: str, folder: str) -> None:
        """Make the plug-in. `driver` is the driver's name in messages."""
        self._driver = driver
        self._folder = folder
        self._started = False
        self._conftest = ""
        self._usage = ""
        self._internal = ""

    @contextlib.contextmanager
    def noted(self) -> Generator[None]:
        # pytest catches both and prints them; no hook is called (as of pytest 9)
        config: Any = importlib.import_module("_pytest.config")
        with contextlib.ExitStack() as undo:
            for name, note in (("ConftestImportFailure", self._of_conftest), ("UsageError", self._of_usage)):
                with contextlib.suppress(AttributeError):
                    replaced(undo, getattr(config, name), "__init__", _noting(note))
            yield

    def pytest_sessionstart(self) -> None:
        self._started = True

    def pytest_internalerror(self, excinfo: Any) -> None:
        """Note what ended pytest: an error of a plug-in, or a test file that calls `sys.exit` when it is imported."""
        place = os.path.relpath(str(excinfo.traceback[-1].path), self._folder)
        words = str(excinfo.value).strip().partition("\n")[0]
        kind = "" if isinstance(excinfo.value, SystemExit) else f"{excinfo.type.__name__}: "
        self._internal = f"{place} ended pytest: {kind}{words}"

    def _of_conftest(self, path: Any, *_: Any, cause: Any = None, **__: Any) -> None:
        if not self._conftest:
            place = os.path.relpath(str(path), self._folder)
            self._conftest = f"{place} failed" + (f": {type(cause).__name__}: {cause}" if cause else "")

    def _of_usage(self, *words: Any, **_: Any) -> None:
        lines = str(words[0] if words else "").splitlines()
        said = next((line.partition("error: ")[2] for line in lines if "error: " in line), "")
        self._usage = said or next(iter(lines), "")

    def sentence(self, status: int) -> str:
        """Return why pytest ended with this status."""
        if self._conftest:
            return self._conftest
        if status == 4 and self._started:
            return f"pytest found no {self._driver}: it may have another name now"
        if status == 4 and self._usage:
            return f"pytest refuses its configuration: {self._usage}"
        if status == 3 and self._internal:
            return self._internal
        return _STATUS.get(status, f"pytest ended with status {status}").format(self._driver)


def _noting(note: Callable[..., None]) -> Callable[[Any], Any]:
    def wrap(original: Callable[..., None]) -> Callable[..., None]:
        def __init__(self: Any, *words: Any, **named: Any) -> None:  # noqa: N807
            with contextlib.suppress(Exception):  # another pytest: then its status says less
                note(*words, **named)
            original(self, *words, **named)

        return __init__

    return wrap
