"""Profiles a driver's launches of one kernel. They are taken while it runs, and counted by CUPTI in its process once
it has ended.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Final

from orbit_remote.child import triton_instances
from orbit_remote.child.capture.launch_watch import (
    Copies,
    LaunchWatch,
    NotCapturedError,
    WatchedLaunch,
    plain,
)
from orbit_remote.child.spec import launch_counting
from orbit_remote.child.spec.launch_counting import Counting
from orbit_remote.child.spec.launches import LaunchFacts
from orbit_remote.child.spec.triton_backend import code_of, facts_of
from orbit_remote.common import messages as c
from orbit_remote.common.limits import CAPTURED
from orbit_remote.common.requests import Capture, Job
from orbit_remote.counters.profiler import UncountedError
from orbit_remote.counters.profiles import LaunchedCode
from orbit_remote.recording.recorder import Recorder
from orbit_remote.toolchain import dumps

_MOST_TAKEN: Final = 16
"""Configurations that are looked at, as many as with Nsight Compute."""
_MOST_COUNTED: Final = 4
"""The longest of them are counted."""


class DriverProfile(LaunchWatch):
    """The profile of a job's Triton kernel. It takes the first launch of each of its configurations while the driver
    runs, as long as their memory together is not more than a capture may have.
    """

    def __init__(self, job: Job, recorder: Recorder) -> None:
        super().__init__(job.kernel or "", job.path, Capture())
        self.every: list[WatchedLaunch] = []
        self._job = job
        self._recorder = recorder
        self._known: set[object] = set()
        self._uncounted = ""
        self._made: tuple[tuple[c.Profile, ...], tuple[c.Dump, ...], list[str], dict[str, str]] | None = None

    @property
    def is_done(self) -> bool:
        return len(self.every) == _MOST_TAKEN

    def is_wanted(self, function: Any, grid: tuple[int, ...], given: Mapping[str, Any]) -> bool:
        fixed = {each.name for each in function.params if each.is_constexpr}
        known = {*function.arg_names} - fixed
        shown = tuple(
            (name, triton_instances.show(plain(value))) for name, value in given.items() if name not in known
        )
        configuration = grid, shown
        is_new = configuration not in self._known
        self._known.add(configuration)
        return is_new

    def keep(self, taken: WatchedLaunch, *, wanted: bool) -> None:
        size = sum(int(block.data.numel()) for each in (*self.every, taken) for block in each.blocks)
        if wanted and (not self.every or size <= CAPTURED.most):
            self.every.append(taken)
            self.taken = self.every[0]

    def relaunch(self, clock: Callable[[], int], synchronise: Callable[[], None]) -> int | None:
        """Count the launches that were taken. The driver has ended, but its process is still recorded."""
        self.over = True
        if not self.every:
            return None
        began: int | None = None
        try:
            synchronise()
            began = clock()
            self._made = self._counted(sys.modules["torch"], self.every)
        except (UncountedError, NotCapturedError) as why:
            self._uncounted = str(why)
        except Exception as error:  # noqa: BLE001 - of CUDA, torch or the kernel, which is launched on copies
            first = (str(error).strip() or type(error).__name__).splitlines()[0]
            self._uncounted = f"launching it again failed: {first[:200]}"
        return began

    def added(self, finished: c.Finished) -> c.Finished:
        """Return the end of the driver with the profile. A profile of the tier `times` says why nothing was counted.
        A kernel that the driver did not launch has no profile.
        """
        if self._made is None:
            refusal = self.refusal() if self.seen else None
            why, name = self._uncounted or (str(refusal) if refusal else ""), self._job.kernel or ""
            return replace(finished, profiles=(c.Profile(name, name, "times", why),) if why else ())
        profiles, packed, remarks, versions = self._made
        return replace(
            finished,
            profiles=profiles,
            dumps=packed,
            remarks=(*finished.remarks, *remarks),
            toolchain=finished.toolchain | versions,
        )

    def _counted(
        self, torch: Any, every: Sequence[WatchedLaunch]
    ) -> tuple[tuple[c.Profile, ...], tuple[c.Dump, ...], list[str], dict[str, str]]:
        """Raises UncountedError, NotCapturedError."""
        if every[0].device is not None:
            torch.cuda.set_device(every[0].device)
        driver = self._job.driver.short if self._job.driver else "the driver"
        remarks = [f"profiled: {_numbers(every)} of {self.seen:,} of {driver}"]
        torch.cuda.synchronize()
        triton_instances.unload()  # see Counting
        with Counting(torch, self._recorder) as counting, ThreadPoolExecutor() as beside:
            planned = beside.submit(counting.plan)
            launches = [_Relaunch(Copies(torch, taken), taken.function) for taken in every]
            for launch in launches:
                launch.launch()
            torch.cuda.synchronize()
            if len(launches) > _MOST_COUNTED:
                launches = sorted(launches, key=counting.seconds, reverse=True)[:_MOST_COUNTED]
                remarks.append(f"of {len(every)} configurations the {_MOST_COUNTED} longest were counted")
            of_each = launch_counting.of_each_kernel(launches)
            made = [beside.submit(launch_counting.made, each) for each in of_each]

            def restore() -> None:
                for launch in launches:
                    launch.copies.restore()

            planned.result()
            counted = counting.profiles(self._job, launches, restore, remarks)
            packed = dumps.packed([each.result() for each in made], remarks)
        return counted, packed, remarks, {"cupti": counting.cupti.release}


def _numbers(every: Sequence[WatchedLaunch]) -> str:
    """Return `launch 3` or `launches 1, 4 and 5`."""
    *most, last = [f"{taken.number:,}" for taken in every]
    return f"launches {', '.join(most)} and {last}" if most else f"launch {last}"


class _Relaunch:
    """Makes the launch once more, on copies of the memory that it had."""

    def __init__(self, copies: Copies, function: Any) -> None:
        self.copies = copies
        self._function = function
        self._compiled: Any = None

    def launch(self) -> None:
        self._compiled = self.copies.launch()

    def facts(self) -> LaunchFacts:
        return facts_of(self._function, self._compiled)

    def code(self) -> LaunchedCode:
        return code_of(self._compiled)
