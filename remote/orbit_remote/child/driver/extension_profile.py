"""Profiles a CUDA kernel that a driver in Python launches. CUPTI counts it in the process that launches it, while the
driver goes on.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator
from dataclasses import replace

from orbit_remote.common import messages as c
from orbit_remote.common.requests import Job
from orbit_remote.counters import kernel_selection, program_counts
from orbit_remote.counters.profiler import UncountedError
from orbit_remote.counters.source_lines import Authorship
from orbit_remote.recording import injection
from orbit_remote.recording.recorder import Native, Recorder
from orbit_remote.toolchain import disassembly


class ExtensionProfile:
    """The profile of the job's kernel in each of its configurations. The driver's other processes are counted too."""

    def __init__(self, job: Job, recorder: Recorder) -> None:
        self._job = job
        self._recorder = recorder
        self._uncounted = ""
        self._release = ""

    @contextlib.contextmanager
    def counting(self) -> Generator[None]:
        """Count launches in processes that begin CUDA within the block."""
        variables: dict[str, str] = {}
        try:
            variables = self._variables()
        except (UncountedError, injection.RecorderUnavailableError) as why:
            self._uncounted = str(why)
        os.environ |= variables
        try:
            yield
        finally:
            for name in variables:
                os.environ.pop(name, None)

    def _variables(self) -> dict[str, str]:
        """Raises UncountedError, injection.RecorderUnavailableError."""
        if not isinstance(self._recorder, Native):
            raise UncountedError("launches cannot be recorded here")
        cupti = injection.find(in_this_process=True)
        self._release = cupti.release
        folder, cache = self._recorder.directory, self._recorder.cache
        pattern = kernel_selection.pattern(self._job)
        return program_counts.environment(folder, cache, cupti, (), pattern, self._job.run_timeout_s)

    def added(self, finished: c.Finished) -> c.Finished:
        """Return the end of the driver with the profiles. A profile of the tier `times` says why nothing was counted.
        A kernel that the driver did not launch has no profile.
        """
        counts = program_counts.ProgramCounts(why=self._uncounted)
        if isinstance(self._recorder, Native) and not self._uncounted:
            counts = program_counts.read(self._recorder.directory)
        if not counts.launches:
            name = self._job.kernel or ""
            why = counts.uncounted
            return replace(finished, profiles=(c.Profile(name, name, "times", why),) if why else ())
        remarks = [*finished.remarks, *counts.remarks]
        code = {(each.record.symbol, each.code.cubin) for each in counts.launches if each.code.cubin}
        listings = {(symbol, cubin): disassembly.listing(cubin, symbol) for symbol, cubin in code}
        packed = program_counts.dumps_of(counts, {}, listings, remarks)
        profiles = program_counts.profiles_of(counts, Authorship(self._job.path), self._release, {})
        toolchain = finished.toolchain | {"cupti": self._release}
        return replace(finished, profiles=profiles, dumps=packed, remarks=tuple(remarks), toolchain=toolchain)
