"""Runs a driver in this process: one test function, as pytest runs it in its project, or a script of the author's."""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from orbit_remote.child import without_gpu
from orbit_remote.child.driver import source_reads, unsaved_texts
from orbit_remote.child.driver.pytest_refusals import Refusals
from orbit_remote.child.driver.set_by_driver import SetByDriver
from orbit_remote.child.user_module import ModuleEntry, UserFile
from orbit_remote.common.launch_records import LaunchSeries
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.measure import REPEATS
from orbit_remote.common.messages import NO_GPU, RanSet
from orbit_remote.common.packages import installing
from orbit_remote.common.requests import Driver, DriverStart, Job
from orbit_remote.process.gpu_nodes import has_gpu

BUDGET_S = 10.0
"""The time for a test's parameter sets; sets that have not begun by then are left out. Also the time for repetitions."""
_MOST_SETS = 300
"""Parameter sets that a result lists; a click runs fewer within its budget."""


class NotRunError(Exception):
    """The driver could not be run, which says nothing about the kernel. `status` is the exit status that its process
    would have had.
    """

    def __init__(self, message: str, remedy: str, status: int) -> None:
        super().__init__(message)
        self.remedy = remedy
        self.status = status


@dataclass(frozen=True, slots=True)
class _Span:
    """One parameter set. `begin` and `end` are on the clock of the records."""

    ran: RanSet
    begin: int
    end: int


class DriverRun:
    """Runs a driver's job. `file` is the script, or a name in the folder from which pytest starts."""

    def __init__(
        self,
        job: Job,
        clock: Callable[[], int],
        synchronise: Callable[[], None],
        waited_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """Make a run. `clock` is that of the records. `synchronise` waits for the kernels under way. `waited_s`
        returns how long this process has waited for the GPU; that time does not count.
        """
        start = job.start
        assert isinstance(start, DriverStart)
        assert job.directory
        self._driver: Driver = start.driver
        self._set = SetByDriver(self._driver.id, job.device)
        self._sets = start.sets
        self._source = job.path if job.language == "cuda" else ""
        self._repeated = start.repeated
        self._texts = unsaved_texts.different(job.directory, start.texts)
        self._spent = lambda: time.perf_counter() - waited_s()
        self._watch = _Watch(clock, self._spent, synchronise, REPEATS if start.repeated else 1)
        path = str(Path(job.directory, self._driver.file))
        if self._driver.kind == "pytest":
            self.file = UserFile(str(Path(job.directory, "_orbit_pytest.py")), "", job.directory)
        else:
            text = self._texts.get(path)
            self.file = UserFile(path, unsaved_texts.saved(path) if text is None else text, job.directory)

    def start(self) -> None:
        """Run it. Raises what it raises; SystemExit is its exit status. Raises NotRunError."""
        with self._set.heeded():
            self._start()

    def _start(self) -> None:
        unsaved_texts.lay_over(self._texts)
        if self._source:
            source_reads.watch(self._source)
        if self._driver.kind == "pytest":
            self._test()
        else:
            # as Python starts a script: its folder comes first, and no byte code is written into the project
            sys.dont_write_bytecode = True
            script = self.file.way_in(ModuleEntry(self._driver.name or None))
            try:
                _several_times(script, REPEATS if self._repeated else 1, self._spent)
            except Exception as error:
                if without_gpu.for_want_of_a_gpu(error):
                    raise self._without_gpu(error, 1) from error
                raise

    def _without_gpu(self, error: BaseException, status: int) -> NotRunError:
        """Return a driver's error with the sentence for it, if it says that there is no GPU."""
        first = str(error).partition("\n")[0]
        if self._set.hidden:
            return NotRunError(
                f"{self._set.hidden}: {first}", "choose another driver, or change that", status
            )
        if has_gpu():
            remedy = "install a torch that has CUDA into the project's Python: `orbit-lsp doctor` shows which that is"
            return NotRunError(f"{sys.executable} cannot use this machine's GPU: {first}", remedy, status)
        remedy = "run it on a machine that has one; `orbit-lsp compile` and `orbit-lsp drivers` need none"
        return NotRunError(f"{NO_GPU}: {first}", remedy, status)

    def sets(self, series: Sequence[LaunchSeries]) -> tuple[tuple[RanSet, ...], int]:
        """Return the parameter sets that ran with their launches, and how many did not run."""
        starts = [(launches.launch.symbol, launches.starts) for launches in series]
        told: list[RanSet] = []
        for span in self._watch.spans:
            counts: Counter[str] = Counter()
            for symbol, of_series in starts:  # several are of one symbol: each configuration is a series
                counts[symbol] += bisect_left(of_series, span.end) - bisect_left(of_series, span.begin)
            told.append(RanSet(span.ran.id, span.ran.outcome, span.ran.seconds, dict(+counts), span.ran.why))
        if len(told) > _MOST_SETS:  # of thousands, those that launch nothing are of least use
            told = sorted(told, key=lambda each: not each.launches)[:_MOST_SETS]
        return tuple(told), self._watch.left

    def remarks(self, *, launched: bool) -> list[str]:
        """Return what to know of a run that has `launched` kernels of Triton, or why it can have launched none."""
        spans = self._watch.spans
        told = list(self._set.remarks(launched=launched))
        if not launched and spans and all(span.ran.outcome == "skipped" for span in spans):
            why = next((span.ran.why for span in spans if span.ran.why), "it gives no reason")
            told.append(f"{self._driver.id} was skipped: {why}")
        if not launched and self._watch.stopped:
            told.append(
                f"the {len(spans)} parameter sets that ran in {BUDGET_S:g} s launched no kernel of Triton, and {self._watch.left} did not run: "
                f"one that does is run by --through '{self._driver.id}[…]'"
            )
        return told

    def _test(self) -> None:
        if importlib.util.find_spec("pytest") is None:
            why = f"pytest is not installed in {sys.executable}"
            raise NotRunError(why, installing.remedy(sys.executable, "pytest"), 1)
        import pytest

        sys.dont_write_bytecode = True
        driver = self._driver
        node = f"{driver.file}::{driver.name}" if driver.name else driver.file
        options = ["-p", "no:cacheprovider", "-rs", *(["-k", driver.keyword] if driver.keyword else [])]
        self._watch.wanted = frozenset(self._sets)
        refusals = Refusals(driver.id, os.getcwd())  # noqa: PTH109 - pytest's own way to name it
        plugins = [self._watch, _in_this_process(pytest), refusals]
        with refusals.noted():
            status = int(pytest.main([node, *options], plugins=plugins))
        watch = self._watch
        if watch.failure is not None and watch.collecting:
            cause = (
                watch.failure.__cause__ or watch.failure
            )  # pytest's own error has it with a traceback as text
            raise NotRunError(
                f"{driver.file} could not be collected: {type(cause).__name__}: {cause}",
                f"run it by itself to see why: python -m pytest {driver.file}",
                status,
            )
        if watch.failure is not None and without_gpu.for_want_of_a_gpu(watch.failure):
            raise self._without_gpu(watch.failure, status)
        if watch.failure is not None:
            raise watch.failure.with_traceback(watch.users_frames())
        if watch.stopped or status == 0:
            return
        raise NotRunError(refusals.sentence(status), "its output says more", status)


def _several_times(script: Callable[[], Any], times: int, spent: Callable[[], float]) -> None:
    """Run a script, and again until its time is over. Raises what it raises; SystemExit only of the last run, or with
    a failure.
    """
    began = spent()
    for left in reversed(range(times)):
        try:
            script()
        except SystemExit as end:
            if end.code or not left:
                raise
        if spent() - began > BUDGET_S:
            break


def _in_this_process(pytest: Any) -> object:
    """Return a plug-in that keeps the tests in this process, which is recorded, and without coverage. It is needed if
    xdist and pytest-cov are loaded: a project may have them installed and switched off.
    """

    class InThisProcess:
        @pytest.hookimpl(hookwrapper=True)
        def pytest_load_initial_conftests(self, early_config: Any, args: list[str]) -> Iterator[None]:
            loaded = early_config.pluginmanager.hasplugin
            args += ["-n0"] if loaded("xdist") else []
            args += ["--no-cov"] if loaded("pytest_cov") else []
            yield

    return InThisProcess()


class _Watch:
    """A plug-in of pytest. It notes what each parameter set did, and ends when their time is over."""

    def __init__(
        self,
        clock: Callable[[], int],
        spent: Callable[[], float],
        synchronise: Callable[[], None],
        times: int,
    ) -> None:
        """Make a watch. Each parameter set runs `times` times. `spent` is the clock of their budget, in seconds."""
        self._clock = clock
        self._spent = spent
        self._synchronise = synchronise
        self._times = times
        self.wanted: frozenset[str] = frozenset()
        self.spans: list[_Span] = []
        self.failure: BaseException | None = None
        self.collecting = False
        """Whether the file of the test failed, and no test began."""
        self.stopped = False
        self.left = 0
        self._file = ""
        self._began: float | None = None
        self._outcome: tuple[Literal["passed", "failed", "skipped"], str] = ("passed", "")
        self._since = (0.0, 0)

    def pytest_collection_modifyitems(self, session: Any, config: Any, items: list[Any]) -> None:
        """Keep the wanted parameter sets, if any are named."""
        del session, config
        kept = [item for item in items if item.nodeid in self.wanted]
        if kept:
            self.left = len(items) - len(kept)
            items[:] = kept

    def pytest_collection_finish(self, session: Any) -> None:
        self._session = session

    def pytest_runtest_protocol(self, item: Any, nextitem: Any) -> bool | None:
        """Run a test again and again, as pytest would run it once, if it is to be repeated. Its fixtures are made
        anew.
        """
        if self._times == 1:
            return None
        from _pytest.runner import (
            runtestprotocol,
        )  # as pytest-rerunfailures does: pytest has no public name for it

        began = self._spent()
        for _ in range(self._times):
            item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
            runtestprotocol(item, nextitem=nextitem)
            item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
            if self._outcome[0] != "passed" or self._spent() - began > BUDGET_S:
                break
        return True

    def pytest_runtest_logstart(self, nodeid: str, location: Any) -> None:
        del nodeid, location
        self._outcome = "passed", ""
        self._since = self._spent(), self._clock()
        self._began = self._began or self._since[0]

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self._outcome = "failed", ""
        elif report.skipped and self._outcome[0] == "passed":
            why: Any = report.longrepr  # (file, line, reason) of a skip
            self._outcome = "skipped", str(why[2]).removeprefix("Skipped: ") if len(why) == 3 else ""

    def pytest_exception_interact(self, node: Any, call: Any, report: Any) -> None:
        """Keep the first failure, of a test or of the collection of its file."""
        del report
        if self.failure is None:
            self.failure, self._file, self.collecting = (
                call.excinfo.value,
                str(node.path),
                call.when == "collect",
            )

    def pytest_runtest_logfinish(self, nodeid: str, location: Any) -> None:
        del location
        with suppress(Exception):  # a kernel failed: the test's own failure, or the next call, says so
            self._synchronise()
        outcome, why = self._outcome
        seconds, began = self._spent() - self._since[0], self._since[1]
        if self.spans and self.spans[-1].ran.id == nodeid:  # once more: what one run of it takes is known
            last = self.spans.pop()
            seconds, began = last.ran.seconds, last.begin
        self.spans.append(_Span(RanSet(nodeid, outcome, seconds, why=why), began, self._clock()))
        items = self._session.items
        done = [item.nodeid for item in items].index(nodeid) + 1
        if done < len(items) and self._began and self._spent() - self._began > BUDGET_S:
            self.stopped = True
            self.left += len(items) - done
            self._session.shouldstop = f"stopped after {done} of {len(items)} parameter sets"

    def users_frames(self) -> Any:
        """Return the failure's traceback without the frames of pytest and its plug-ins."""
        assert self.failure
        at = self.failure.__traceback__
        while at and at.tb_next and at.tb_frame.f_code.co_filename != self._file:
            at = at.tb_next
        return at
