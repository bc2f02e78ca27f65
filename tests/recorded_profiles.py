"""The recordings of Nsight Compute (tests/recordings/profiles, made on an H100), read and filed as a click's answer."""

from __future__ import annotations

import functools
import time
from dataclasses import replace

import ncu_report

from orbit_lsp.runs import profile_filing
from orbit_lsp.specs import job_builder
from orbit_lsp.state.kernel_ids import KernelId
from orbit_lsp.state.placement import RunSetup
from orbit_lsp.state.results import Profiled
from orbit_lsp.state.session import Session
from orbit_remote.common import messages as c
from orbit_remote.ncu import report_reader
from tests.recordings.profiled import FOLDER, NAMES, source_of
from tests.settings_check import settings_of_values

H100 = c.Device(
    "NVIDIA H100 80GB HBM3", 0, "9.0", driver="580.159.04", multiprocessors=132, sm_clock_mhz=1980,
    memory_clock_mhz=2619, bus_width_bits=5120, l2_bytes=50 << 20,
)  # fmt: skip


@functools.cache
def answer(name: str) -> report_reader.ReportAnswer:
    path = f"/src/{source_of(name).name}"
    request = report_reader.ReportRequest(
        str(FOLDER / f"{name}.ncu-rep"), path, ptx=str(FOLDER), tool="2025.3.1"
    )
    result = report_reader.read(ncu_report, request)
    assert result.profiles, result.problem
    return result


def profiles(name: str) -> tuple[c.Profile, ...]:
    return answer(name).profiles


def sass(name: str) -> str:
    return answer(name).sass[0].replace("/src/", "")


def profile(name: str) -> c.Profile:
    return profiles(name)[0]


def finished(name: str, **fields: object) -> c.Finished:
    return replace(
        c.Finished("r1", "ok", device=H100, toolchain={"ncu": "2025.3.1"}, profiles=profiles(name)), **fields
    )


class Profiling:
    """A session with the recorded program open, and what the click on Profile brought."""

    def __init__(self, name: str, **settings: object) -> None:
        self.session = Session(setup=RunSetup(settings=settings_of_values(settings)))
        source = source_of(name)
        self.uri = f"file:///src/{source.name}"
        self.session.open(self.uri, 1, source.read_text())
        self.kernels = {kernel.key: kernel for kernel, _, _ in self.session.kernels(self.uri)}

    def file(self, event: c.Finished, kernel: str | None = None, detail: str = "click") -> Profiled:
        """File an answer, and where no kernel is named under that of its first profile."""
        frozen = self.session.freeze(self.uri)
        assert frozen
        key = kernel or next(key for key in self.kernels if key in event.profiles[0].name)
        target = self.kernels[key]
        job = job_builder.make(self.session, frozen, "profile", "r1")
        job = job_builder.under_a_tool(self.session, job, target, "full" if detail == "full" else "click", ())
        profile_filing.finished(self.session, frozen, job, {target}, None, event, None)
        profiled = self.session.results.profiles[target]
        self.session.results.profiles[target] = replace(profiled, at=time.time())
        return self.session.results.profiles[target]


def profiled(name: str, **settings: object) -> Profiling:
    bench = Profiling(name, **settings)
    bench.file(finished(name))
    return bench


__all__ = [
    "FOLDER",
    "H100",
    "NAMES",
    "KernelId",
    "Profiling",
    "finished",
    "profile",
    "profiled",
    "profiles",
    "source_of",
]
