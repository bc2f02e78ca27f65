"""The action `profile` without a GPU: recorded reports of an H100, and an `ncu` that is a fake.

The fake is a script (fake_ncu.py): it takes the real command line, runs the program as the real one does, and then does
what a test says - copies a report that the real one recorded, or writes a log in the real one's words.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import time
from dataclasses import replace
from pathlib import Path

import pytest

from orbit_lsp import kernels
from orbit_lsp.specs import launch_plan
from orbit_remote.common import messages as c
from orbit_remote.common.measurements import Metric, Timing
from orbit_remote.common.requests import Job, Probe
from orbit_remote.ncu import counter_permission, ncu_options
from orbit_remote.ncu.report_reader import ReportAnswer, ReportRequest
from orbit_remote.worker import probe
from orbit_remote.worker.actions import plain_action, profile_action
from orbit_remote.worker.context import WorkerContext
from tests.remote import fake_ncu
from tests.remote.fake_ncu import PROGRESS, RECORDED
from tests.remote.nvcc_check import needs_nvcc
from tests.remote.profile_fixture import H100, Faked, bench, reader, unpacked
from tests.remote.profiling import hottest

__all__ = ["bench", "reader"]  # fixtures

PERMISSION = (
    "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters on "
    "the target device 0. For instructions on enabling permissions and to get more information see "
    "https://developer.nvidia.com/ERR_NVGPUCTRPERM"
)
PREPARE = """\
==ERROR== Failed to prepare kernel for profiling
==ERROR== Unknown Error on device 0.
==ERROR== Failed to profile "saxpy" in process 7
==PROF== Trying to shutdown target application
==ERROR== The application returned an error code (9).
==ERROR== An error occurred while trying to profile.
==WARNING== No kernels were profiled."""
SAXPY = (RECORDED / "memory_bound.cu").read_text()

pytestmark = [needs_nvcc, pytest.mark.asyncio(loop_scope="module")]


MAIN = """\
#include <cstdio>
#include <cstdlib>
#include <unistd.h>
int main(int count, char** words) {
  if (count > 2) puts(words[2]);
  fflush(stdout);
  if (count > 2 && words[2][0] == 'h') for (;;) pause();
  return count > 1 ? atoi(words[1]) : 0;
}
"""
"""It launches nothing: there is no GPU. The recorded program did."""


def saxpy(bench: Faked, text: str = SAXPY, **fields: object) -> Job:
    """The program of the recording, which was made in /src; its arguments are an exit code, and a word to print."""
    text = text.partition("int main")[0] + MAIN
    job = bench.job("memory_bound.cu", text, "saxpy", **fields)
    return replace(job, path="/src/memory_bound.cu", directory="/")


async def test_a_profile(bench: Faked) -> None:
    bench.ncu("memory_bound")
    finished = await bench.profile(saxpy(bench))
    assert (finished.outcome, finished.exit_code) == ("ok", 0), finished.failure
    (profile,) = finished.profiles
    assert (profile.name, profile.tier, profile.grid) == ("saxpy", "counters", (65536, 1, 1))
    assert hottest(profile).line == 7
    assert bench.report(finished).read_bytes() == (RECORDED / "memory_bound.ncu-rep").read_bytes()
    assert [event.state for event in bench.events if isinstance(event, c.Stage)] == ["building", "profiling"]
    assert finished.toolchain["ncu"] == profile.tool == "2025.3.1.0"


# -- how the program's run goes ---------------------------------------------------------------------


async def test_what_nvcc_made_of_the_kernel(bench: Faked) -> None:
    bench.ncu("memory_bound")
    first = await bench.profile(saxpy(bench))
    ptx, sass = first.dumps
    assert [(dump.name, dump.level) for dump in first.dumps] == [("saxpy", "ptx"), ("saxpy", "sass")]
    assert ".entry _Z5saxpyifPKfPf" in unpacked(ptx)
    assert "/src/memory_bound.cu:7\n" in unpacked(sass)
    assert "FFMA" in unpacked(sass)
    # the build was kept, with its PTX
    assert (await bench.profile(saxpy(bench))).dumps == first.dumps


async def test_a_program_that_fails_after_its_kernel(bench: Faked) -> None:
    bench.ncu("memory_bound")
    finished = await bench.profile(saxpy(bench, arguments=("3",)))
    assert (finished.outcome, finished.exit_code) == ("runtime error", 3)
    assert finished.failure
    assert finished.failure.message == "main ended with exit code 3"
    assert [profile.tier for profile in finished.profiles] == ["counters"]


@pytest.mark.slow
async def test_a_program_that_fails_before_its_kernel(bench: Faked) -> None:
    bench.ncu(log="==WARNING== No kernels were profiled.\n")
    finished = await bench.profile(saxpy(bench, arguments=("3",)))
    assert (finished.outcome, finished.exit_code, finished.profiles) == ("runtime error", 3, ())


async def test_a_kernel_that_is_never_launched(bench: Faked) -> None:
    bench.ncu(log="==WARNING== No kernels were profiled.\n")
    finished = await bench.profile(saxpy(bench))
    assert (finished.outcome, finished.profiles) == ("ok", ())
    message = "nothing was profiled: the program did not launch saxpy; it launched no kernel at all"
    assert message in finished.remarks


async def test_a_program_that_hangs_is_ended_whole(bench: Faked) -> None:
    bench.ncu()
    bench.late_after = "hang"
    finished = await bench.profile(saxpy(bench, arguments=("0", "hang")))
    assert finished.outcome == "timed out"
    assert finished.failure
    assert finished.failure.message == "the run was ended at its limit of 60 s"
    # that nothing is left is looked at by the fixture


async def test_a_program_that_hangs_after_its_kernel_has_a_profile(bench: Faked) -> None:
    bench.ncu("memory_bound", waits=True)
    bench.late_after = fake_ncu.WAITING
    finished = await bench.profile(saxpy(bench))
    assert (finished.outcome, len(finished.profiles)) == ("ok", 1)
    assert "the program was ended at its limit of 60 s, after the launches shown" in finished.remarks


async def test_profiling_ends_when_it_has_seen_enough_configurations(bench: Faked) -> None:
    bench.ncu("memory_bound", PROGRESS * ncu_options.MOST_RESULTS, waits=True)
    finished = await bench.profile(saxpy(bench))
    assert (finished.outcome, len(finished.profiles)) == ("ok", 1)
    assert "profiling was ended after 16 launches, each of another configuration" in finished.remarks


async def test_a_refusal_in_a_run_that_was_ended_at_its_limit_is_none(bench: Faked) -> None:
    bench.ncu(log=f"{PREPARE}\n", waits=True)
    bench.late_after = fake_ncu.WAITING
    finished = await bench.profile(saxpy(bench))
    assert (finished.outcome, finished.profiles) == ("timed out", ())
    assert not [remark for remark in finished.remarks if "counters" in remark]


async def test_a_program_that_the_tool_ended_has_not_failed(bench: Faked) -> None:
    bench.ncu("memory_bound", f"{PREPARE}\n")
    finished = await bench.profile(saxpy(bench))
    assert (finished.outcome, finished.exit_code, len(finished.profiles)) == ("ok", None, 1)
    (message,) = [
        remark for remark in finished.remarks if remark.startswith("Nsight Compute ended the program: ")
    ]
    assert "Failed to prepare kernel for profiling; Unknown Error on device 0" in message


async def test_what_the_program_prints_is_its_own(bench: Faked) -> None:
    bench.ncu("memory_bound")
    finished = await bench.profile(saxpy(bench, arguments=("0", "==ERROR== ERR_NVGPUCTRPERM")))
    assert finished.stdout == "==ERROR== ERR_NVGPUCTRPERM\n"
    assert [profile.tier for profile in finished.profiles] == ["counters"]


async def test_a_file_that_does_not_compile(bench: Faked) -> None:
    bench.ncu()
    finished = await bench.profile(saxpy(bench, SAXPY.replace("float *y)", "flaot *y)")))
    assert finished.outcome == "compile error"
    assert not bench.calls.exists()


# -- what is asked of ncu ---------------------------------------------------------------------------


@pytest.mark.slow
async def test_the_kernel_that_was_clicked_and_no_other(bench: Faked) -> None:
    bench.ncu("memory_bound")
    text = (
        "namespace a { __global__ void k(float* x) { x[0] = 1; } }\n"
        "template <int N> __global__ void k(float* x) {\n"
        "  if constexpr (N == 1)\n"
        "    x[0] = N;\n"
        "  else\n"
        "    x[1] = N;\n"
        "}\n"
        "__global__ void k(int* x) { x[0] = 1; }\n"
        "namespace { __global__ void k(double* x) { x[0] = 1; } }\n"
        "template __global__ void k<1>(float*);\n"
        "template __global__ void k<2>(float*);\n"
        "int main() { a::k<<<1, 1>>>(nullptr); k<<<1, 1>>>((double*)nullptr); return 0; }\n"
    )
    job = bench.job("k.cu", text)
    scan = kernels.tracker("cuda").scan(text)
    asked: list[str] = []
    for kernel in scan.kernels:
        await bench.profile(replace(job, tool_kernel=launch_plan.definition_of(kernel)))
        words = bench.calls.read_text().splitlines()[-1].split()
        asked.append(words[words.index("--kernel-name") + 1])
    assert asked[0] == "regex:^(_ZN1a1kEPf)$"
    assert asked[2] == "regex:^(_Z1kPi)$"
    assert re.fullmatch(r"regex:\^\(_ZN\w*GLOBAL__N_\w*1kEPd\)\$", asked[3])
    assert sorted(asked[1].removeprefix("regex:^(").removesuffix(")$").split("|")) == [
        "_Z1kILi1EEvPf",
        "_Z1kILi2EEvPf",
    ]


async def test_clocks_are_left_alone_and_one_launch_of_each_configuration_is_replayed(bench: Faked) -> None:
    bench.ncu("memory_bound")
    await bench.profile(saxpy(bench))
    words = bench.calls.read_text().split()
    pairs = set(itertools.pairwise(words))
    wanted = {
        "--clock-control": "none", "--filter-mode": "per-launch-config", "--launch-count": "1",
        "--target-processes": "all", "--kernel-name-base": "mangled",
    }  # fmt: skip
    assert wanted.items() <= pairs
    await bench.profile(saxpy(bench, detail="full"))
    assert "--set full" in bench.calls.read_text().splitlines()[-1]
    await bench.profile(saxpy(bench, sections=("Occupancy",)))
    assert bench.calls.read_text().splitlines()[-1].count("--section Occupancy") == 1


@pytest.mark.slow
async def test_a_source_that_is_not_saved_stays_out_of_the_report(bench: Faked) -> None:
    bench.ncu("memory_bound")
    job = bench.job("k.cu", "int main() {}\n", None)
    await bench.profile(job)
    (bench.folder / "k.cu").write_text("int main() { }\n")
    await bench.profile(job)
    saved, edited = bench.calls.read_text().splitlines()
    assert "--import-source yes" in saved
    assert "--import-source no" in edited


# -- where there are no counters --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("log", "says", "lasting"),
    [
        (PERMISSION, "denied this user the GPU's performance counters (ERR_NVGPUCTRPERM)", True),
        ("==ERROR== LibraryNotLoaded", "(LibraryNotLoaded)", True),
        (
            PREPARE,
            "failed to prepare the kernel",
            False,
        ),
        ("==ERROR== Failed to lock GPU's clock frequencies", "failed to control the GPU's clocks", False),
        ("==ERROR== Cuda driver is not compatible with Nsight Compute.", "do not fit together", True),
        ("==ERROR== Error in trying to lock file '/tmp/nsight-compute-lock'.", "another profiler", False),
    ],
)
async def test_refusals(bench: Faked, log: str, says: str, lasting: bool) -> None:
    bench.ncu(log=f"==PROF== Connected to process 7\n{log}\n")
    finished = await bench.profile(saxpy(bench))
    assert finished.outcome == "ok"
    (remark,) = [remark for remark in finished.remarks if remark.startswith("no counters: ")]
    assert says in remark
    assert "; to enable counters: " in remark
    again = await bench.profile(saxpy(bench))
    assert remark in again.remarks
    assert len(bench.calls.read_text().splitlines()) == (1 if lasting else 2)


async def test_a_refusal_is_forgotten_with_another_driver(
    bench: Faked, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.ncu(log=f"{PERMISSION}\n")
    await bench.profile(saxpy(bench))
    monkeypatch.setattr(probe, "all_devices", lambda: (replace(H100, driver="590.1"),))
    bench.ncu("memory_bound")
    finished = await bench.profile(saxpy(bench))
    assert [profile.tier for profile in finished.profiles] == ["counters"]


@pytest.mark.parametrize(
    ("parameters", "capabilities", "permitted"),
    [
        ("RmProfilingAdminOnly: 1\n", "00000000a80425fb", False),
        ("RmProfilingAdminOnly: 1\n", "000001ffffffffff", None),
        ("EnableMSI: 1\nRmProfilingAdminOnly: 0\n", "0000000000000000", None),
        ("", "0000000000000000", None),
    ],
)
async def test_what_a_machine_says_of_counters_before_they_are_tried(
    bench: Faked, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, parameters: str, capabilities: str,
    permitted: bool | None,
) -> None:  # fmt: skip
    bench.ncu(log=f"{PERMISSION}\n")
    (tmp_path / "params").write_text(parameters)
    monkeypatch.setattr(counter_permission, "_PARAMETERS", tmp_path / "params")
    monkeypatch.setattr(counter_permission, "_rights", lambda: ("1000", capabilities))
    monkeypatch.setattr(probe, "all_devices", lambda: (H100,))
    machine = await probe.probe(Probe("p"), counters=bench.context.counters)
    assert machine.profiler
    assert (machine.profiler.version, machine.profiler.permitted) == ("2025.3.1.0", permitted)
    await bench.profile(saxpy(bench))  # now it is known
    machine = await probe.probe(Probe("p"), counters=bench.context.counters)
    assert machine.profiler
    assert machine.profiler.permitted is False
    assert "ERR_NVGPUCTRPERM" in machine.profiler.why


async def test_a_refusal_is_tried_again_after_a_day(bench: Faked, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.ncu(log="==ERROR== LibraryNotLoaded\n")
    await bench.profile(saxpy(bench))
    monkeypatch.setattr(counter_permission, "_REFUSED_S", -1.0)
    bench.ncu("memory_bound")
    assert [profile.tier for profile in (await bench.profile(saxpy(bench))).profiles] == ["counters"]


async def test_a_refusal_of_a_clock_that_was_set_wrong_is_tried_again(bench: Faked) -> None:
    bench.ncu(log="==ERROR== LibraryNotLoaded\n")
    real = time.time
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "time", lambda: real() + 1e9)
        await bench.profile(saxpy(bench))
    bench.ncu("memory_bound")
    assert [profile.tier for profile in (await bench.profile(saxpy(bench))).profiles] == ["counters"]


async def test_the_kernels_that_were_launched_instead_are_named(
    bench: Faked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ordinary run is acted: there is no GPU that could launch any."""
    bench.ncu(log="==WARNING== No kernels were profiled.\n")
    timing = Timing(1, 1000.0, "in program, n=1")
    launches = c.Launches("_Z5otherPf", "other", (1, 1, 1), (32, 1, 1), timing, 1)

    async def ordinary(job: Job, context: WorkerContext) -> c.Finished:
        used = c.Resources("_Z5otherPf", "other", "sm_90a"), c.Resources("_Z5saxpyifPKfPf", "saxpy", "sm_90a")
        return c.Finished(job.run, "ok", launches=(launches,), resources=used)

    monkeypatch.setattr(plain_action, "build_or_run", ordinary)
    finished = await bench.profile(saxpy(bench))
    assert (finished.outcome, finished.profiles) == ("ok", ())
    assert finished.remarks == ("nothing was profiled: the program did not launch saxpy; it launched other",)


async def test_an_ordinary_run_stands_in(bench: Faked, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its launches are acted: there is no GPU to record any."""
    bench.ncu(log=f"{PERMISSION}\n")
    place = c.Place("/src/memory_bound.cu", 5)
    timing = Timing(5, 100_000.0, "in program, n=5")
    launches = c.Launches("_Z5saxpyifPKfPf", "saxpy", (65536, 1, 1), (256, 1, 1), timing, 6, place=place)
    asked: list[Job] = []

    async def ordinary(job: Job, context: WorkerContext) -> c.Finished:
        asked.append(job)
        return c.Finished(job.run, "ok", launches=(launches,))

    monkeypatch.setattr(plain_action, "build_or_run", ordinary)
    finished = await bench.profile(saxpy(bench))
    assert [job.action for job in asked] == ["run"]
    (profile,) = finished.profiles
    assert (profile.name, profile.tier, profile.metrics, profile.lines) == ("saxpy", "times", {}, ())
    assert (profile.grid, profile.place) == ((65536, 1, 1), place)
    assert "NVreg_RestrictProfilingToAdminUsers=0" in profile.why
    assert finished.launches == (launches,)


async def test_no_ncu(bench: Faked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ncu_options, "_candidates", list)
    finished = await bench.profile(saxpy(bench))
    assert finished.outcome == "ok"
    assert any(
        "Nsight Compute is not installed where the kernel runs" in remark for remark in finished.remarks
    )


async def test_an_ncu_that_is_too_old(bench: Faked) -> None:
    bench.ncu("memory_bound", version="2021.3.1.0")
    finished = await bench.profile(saxpy(bench))
    (remark,) = [remark for remark in finished.remarks if remark.startswith("no counters: ")]
    assert "2021.3.1.0" in remark
    assert "older than 2023.3" in remark
    assert not bench.calls.exists()


async def test_counters_that_are_no_numbers(bench: Faked, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader's answer is acted: no report full of NaN could be recorded."""
    bench.ncu("memory_bound")

    async def read(folders: object, request: ReportRequest) -> ReportAnswer:
        metrics = {"launch__registers_per_thread": Metric("launch__registers_per_thread", 16.0)}
        return ReportAnswer((c.Profile("_Z5saxpyifPKfPf", "saxpy", "counters", metrics=metrics),))

    monkeypatch.setattr(bench.context.reports, "read", read)
    finished = await bench.profile(saxpy(bench))
    (remark,) = [remark for remark in finished.remarks if remark.startswith("no counters: ")]
    assert "all of them were NaN" in remark


async def test_a_truncated_report(bench: Faked) -> None:
    bench.ncu("memory_bound", size=90_000)
    finished = await bench.profile(saxpy(bench))
    assert (finished.outcome, finished.profiles) == ("ok", ())
    assert any(remark.startswith("the report is damaged") for remark in finished.remarks)
    # the reader goes on
    bench.ncu("memory_bound")
    assert len((await bench.profile(saxpy(bench))).profiles) == 1


async def test_reports_of_other_programs(bench: Faked) -> None:
    """A report that lies on this machine, whoever made it. A file that is no report is refused in a sentence."""
    bench.ncu("in_library")
    whole = (RECORDED / "in_library.ncu-rep").read_bytes()
    contents = {
        "whole": whole,
        "empty": b"",
        "other": b"PK\3\4" * 99,
        "cut": whole[:1000],
        "half": whole[:100_000],
    }
    answers: list[str] = []
    for name, content in contents.items():
        report = bench.folder / f"{name}.ncu-rep"
        report.write_bytes(content)
        finished = await bench.profile(Job("r1", "report", "cuda", str(report), ""))
        failure = finished.failure
        launches = [(profile.name, profile.tool) for profile in finished.profiles]
        answers.append(
            f"{failure.category}: {failure.message}" if failure else f"{launches} {[*finished.files]}"
        )
    assert answers == [
        "[('sort_blocks<8>', '2025.3.1')] ['/src/in_library.cu']",
        "infrastructure: empty.ncu-rep is no report of Nsight Compute",
        "infrastructure: other.ncu-rep is no report of Nsight Compute",
        "infrastructure: cut.ncu-rep: the report is damaged or of a newer version: no launch is found in it",
        "infrastructure: half.ncu-rep: the report is damaged or of a newer version: no launch is found in it",
    ]


async def test_a_reader_that_crashes(bench: Faked, monkeypatch: pytest.MonkeyPatch) -> None:
    """NVIDIA's module is acted by one that ends its process."""
    module = bench.folder / "extras" / "python" / "ncu_report.py"
    module.parent.mkdir(parents=True)
    module.write_text("import os, signal\ndef load_report(name): os.kill(os.getpid(), signal.SIGSEGV)\n")
    bench.ncu("memory_bound")
    finished = await bench.profile(saxpy(bench))
    assert (finished.outcome, finished.profiles) == ("ok", ())
    (remark,) = [remark for remark in finished.remarks if "NVIDIA's reader" in remark]
    assert "ended with signal 11: the file is damaged or of another version" in remark
    assert bench.report(finished).is_file()


async def test_a_profile_is_cancelled(bench: Faked) -> None:
    bench.ncu()
    task = asyncio.ensure_future(bench.jobs._perform(saxpy(bench, arguments=("0", "hang"))))
    await bench.profiling.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    (finished,) = [event for event in bench.events if isinstance(event, c.Finished)]
    assert finished.outcome == "cancelled"


# -- counted by CUPTI ---------------------------------------------------------------------------------

COUNTED = c.Profile("k", "k", "counters", tool="13.0", counted_by="CUPTI")
UNCOUNTED = c.Profile("k", "k", "times", "another profiler has CUPTI in this process")


def by_cupti(monkeypatch: pytest.MonkeyPatch, finished: c.Finished) -> list[str]:
    """What CUPTI's way answers, and what Nsight Compute's way is then; the ways that were gone are returned."""
    ways: list[str] = []

    async def cupti(*_: object) -> c.Finished:
        ways.append("CUPTI")
        return finished

    async def nsight(*_: object) -> c.Finished:
        ways.append("Nsight Compute")
        return c.ok("r1", profiles=(c.Profile("k", "k", "counters"),))

    monkeypatch.setattr(profile_action, "_counted_by_cupti", cupti)
    monkeypatch.setattr(profile_action, "_build_profiler", lambda *_: None)
    monkeypatch.setattr(profile_action._Attempt, "finished", nsight)
    return ways


async def test_a_launch_spec_is_counted_by_cupti_alone(bench, monkeypatch):
    bench.ncu()
    ways = by_cupti(monkeypatch, c.ok("r1", profiles=(COUNTED,)))
    finished = await bench.profile(bench.job("k.cu", SAXPY, "saxpy", by_spec=True))
    assert (ways, [profile.source for profile in finished.profiles]) == (["CUPTI"], ["CUPTI 13.0"])


@pytest.mark.parametrize(
    ("name", "daemon", "says"),
    [
        ("NVIDIA H100 80GB HBM3", False, ()),
        ("NVIDIA H100 80GB HBM3", True, ("the GPU is shared through MPS: counters can include the work of its other programs",)),
        (
            "NVIDIA H100 80GB HBM3 MIG 1g.10gb", False,
            ("the GPU is a MIG instance: counters of what it shares with other instances are absent or include their work",),
        ),
    ],
    ids=["whole", "MPS", "MIG"],
)  # fmt: skip
async def test_counters_of_a_divided_gpu_say_so(name, daemon, says, bench, monkeypatch, tmp_path):
    bench.ncu()
    monkeypatch.setattr(probe, "devices", lambda *_: (replace(H100, name=name),))
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    if daemon:
        (tmp_path / "control").touch()
    by_cupti(monkeypatch, c.ok("r1", profiles=(COUNTED,)))
    finished = await bench.profile(bench.job("k.cu", SAXPY, "saxpy", by_spec=True))
    assert (finished.profiles, finished.remarks) == ((COUNTED,), says)


async def test_a_launch_spec_needs_no_nsight_compute(bench, monkeypatch):
    monkeypatch.setattr(ncu_options, "find", lambda: None)
    by_cupti(monkeypatch, c.ok("r1", profiles=(COUNTED,)))
    finished = await bench.profile(bench.job("k.cu", SAXPY, "saxpy", by_spec=True))
    assert finished.profiles == (COUNTED,)


async def test_without_nsight_compute_both_reasons_are_told(bench, monkeypatch):
    monkeypatch.setattr(ncu_options, "find", lambda: None)
    by_cupti(monkeypatch, c.ok("r1", profiles=(UNCOUNTED,)))

    async def times(job: Job, context: WorkerContext, why: str) -> c.Finished:
        return c.ok(job.run, remarks=(why,))

    monkeypatch.setattr(profile_action, "_times", times)
    finished = await bench.profile(bench.job("k.cu", SAXPY, "saxpy", by_spec=True))
    assert finished.remarks[0].startswith(f"CUPTI: {UNCOUNTED.why}. Nsight Compute is not installed")


async def test_what_cupti_cannot_count_is_counted_by_nsight_compute_with_the_reason(bench, monkeypatch):
    bench.ncu()
    ways = by_cupti(monkeypatch, c.ok("r1", profiles=(UNCOUNTED,)))
    finished = await bench.profile(bench.job("k.cu", SAXPY, "saxpy", by_spec=True))
    assert ways == ["CUPTI", "Nsight Compute"]
    assert finished.remarks == (
        "counted by Nsight Compute, which takes longer: another profiler has CUPTI in this process",
    )


async def test_a_crash_while_cupti_counts_is_left_to_nsight_compute(bench, monkeypatch):
    bench.ncu()
    crash = c.failed("r1", c.Failure("runtime error", "it crashed"), exit_code=-11)
    ways = by_cupti(monkeypatch, crash)
    await bench.profile(bench.job("k.cu", SAXPY, "saxpy", by_spec=True))
    assert ways == ["CUPTI", "Nsight Compute"]


async def test_a_program_that_crashes_after_its_kernel_was_counted_keeps_its_profile(bench, monkeypatch):
    bench.ncu()
    crash = c.failed("r1", c.Failure("runtime error", "it crashed"), exit_code=-6, profiles=(COUNTED,))
    ways = by_cupti(monkeypatch, crash)
    finished = await bench.profile(bench.job("k.cu", SAXPY, "saxpy"))
    assert (ways, finished.profiles) == (["CUPTI"], (COUNTED,))


async def test_a_launch_that_fails_is_not_launched_again(bench, monkeypatch):
    bench.ncu()
    ways = by_cupti(monkeypatch, c.failed("r1", c.Failure("runtime error", "an illegal address")))
    finished = await bench.profile(bench.job("k.cu", SAXPY, "saxpy", by_spec=True))
    assert (ways, finished.outcome) == (["CUPTI"], "runtime error")


@pytest.mark.parametrize(
    "asked",
    [{"detail": "full"}, {"sections": ("Occupancy",)}, {"detail": "full", "by_spec": False}],
    ids=["in full", "sections", "a program in full"],
)
async def test_what_is_nsight_computes_alone(asked, bench, monkeypatch):
    bench.ncu()
    ways = by_cupti(monkeypatch, c.ok("r1", profiles=(COUNTED,)))
    await bench.profile(bench.job("k.cu", SAXPY, "saxpy", **{"by_spec": True} | asked))
    assert ways == ["Nsight Compute"]
