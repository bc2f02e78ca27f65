"""The launch recorder without a GPU: it builds, loads and does no harm; and what it wrote is read back."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from orbit_remote.common.launch_records import Added, CudaError
from orbit_remote.recording import injection
from orbit_remote.worker import jobs


def find_or_skip() -> injection.Cupti:
    try:
        return injection.find()
    except injection.RecorderUnavailableError as missing:
        pytest.skip(missing.message)


needs_compiler = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("g++") is None, reason="needs Linux and g++"
)


@pytest.fixture
def library(kept):
    return injection.build(kept / "cupti", find_or_skip())


@pytest.fixture
def short(tmp_path, monkeypatch):
    """A recorder of a few lines, which is compiled in a moment, in the real one's place."""
    source = tmp_path / "injection.cpp"
    source.write_text("#include <cupti.h>\n")
    monkeypatch.setattr(injection, "SOURCE", source)
    return source


# -- building ----------------------------------------------------------------------------------------


def everywhere() -> list[injection.Cupti]:
    places = [*injection._toolkits(None), *injection._wheels(), *injection._triton()]
    return [cupti for place in places if (cupti := injection._cupti_at(*place)) is not None]


@pytest.mark.slow
@needs_compiler
def test_compiles_without_a_warning_against_every_cupti_here(tmp_path, monkeypatch):
    """Against the one that is used as the product compiles; for the others without optimizing, which their headers do not change."""
    used, real, said = find_or_skip(), injection.tool_output.ask, []

    def ask(*command, **limits):
        answer = real(*command, **limits)
        said.append(answer.stderr)
        return answer

    monkeypatch.setattr(injection.tool_output, "ask", ask)
    every = list(dict.fromkeys(everywhere()))
    wanted = [
        (cupti, source)
        for cupti in sorted(every, key=lambda cupti: cupti != used)
        for source in (injection.SOURCE, injection.PROFILER)
        if source == injection.SOURCE or cupti.has_range_profiler
    ]
    libraries = set()
    for cupti, source in wanted:
        with monkeypatch.context() as patch:
            if cupti != used:
                patch.setattr(injection, "_FLAGS", [*injection._FLAGS, "-O0"])
            library = injection.build(tmp_path, cupti, source=source)
        assert library.stem.startswith(f"{source.stem}-")
        libraries.add(library)
    assert said == [""] * len(wanted)
    assert set(tmp_path.iterdir()) == libraries
    assert len(libraries) == len(wanted)


def test_the_cupti_that_the_process_has_is_preferred(monkeypatch):
    find_or_skip()
    *_, last = everywhere()
    monkeypatch.setattr(injection, "_loaded", lambda: {last.library: last.version})
    assert injection.find(in_this_process=True).library == last.library


@needs_compiler
def test_is_built_once_for_a_source_and_a_cupti(tmp_path, short):
    cupti = find_or_skip()
    first = injection.build(tmp_path, cupti)
    stamp = first.stat().st_mtime_ns
    assert injection.build(tmp_path, cupti) == first
    assert first.stat().st_mtime_ns == stamp
    short.write_text(short.read_text() + "\n// another source\n")
    assert injection.build(tmp_path, cupti) != first


def test_no_compiler_says_what_to_install(tmp_path):
    cupti = injection.Cupti((tmp_path,), tmp_path / "libcupti.so", 130000, "CUpti_ActivityKernel10")
    with pytest.raises(injection.RecorderUnavailableError) as caught:
        injection.build(tmp_path, cupti, compiler="no-such-compiler")
    assert caught.value.remedy == "install g++"


@needs_compiler
def test_headers_that_do_not_compile_are_no_crash_and_leave_no_file(tmp_path, short):
    (tmp_path / "cupti.h").write_text("#error broken on purpose\n")
    cupti = injection.Cupti((tmp_path,), tmp_path / "libcupti.so", 130000, "CUpti_ActivityKernel10")
    with pytest.raises(injection.RecorderUnavailableError, match="broken on purpose"):
        injection.build(tmp_path / "cache", cupti)
    assert list((tmp_path / "cache").iterdir()) == []


def test_no_cupti_says_what_to_install(monkeypatch):
    monkeypatch.setattr(injection, "_toolkits", lambda _: iter(()))
    monkeypatch.setattr(injection, "_wheels", lambda: iter(()))
    monkeypatch.setattr(injection, "_triton", lambda: iter(()))
    with pytest.raises(injection.RecorderUnavailableError) as caught:
        injection.find()
    assert "pip install nvidia-cuda-cupti" in caught.value.remedy


@pytest.mark.parametrize(
    ("newest", "record"), [(8, None), (9, "CUpti_ActivityKernel9"), (10, "CUpti_ActivityKernel10")]
)
def test_the_newest_record_of_the_headers_is_used(newest, record, tmp_path, monkeypatch):
    include, lib = tmp_path / "include", tmp_path / "lib"
    (include / "crt").mkdir(parents=True)
    lib.mkdir()
    for name in ("cupti.h", "cuda.h", "crt/host_defines.h"):
        (include / name).touch()
    (include / "cupti_version.h").write_text("#define CUPTI_API_VERSION 26\n")
    (include / "cupti_activity.h").write_text(
        f"}} CUpti_ActivityKernel4;\n}} CUpti_ActivityKernel{newest};\n"
    )
    (lib / "libcupti.so.12").touch()
    monkeypatch.setattr(injection, "_toolkits", lambda _: iter([([include], [lib])]))
    monkeypatch.setattr(injection, "_wheels", lambda: iter(()))
    monkeypatch.setattr(injection, "_triton", lambda: iter(()))
    if record is None:
        with pytest.raises(injection.RecorderUnavailableError):
            injection.find()
    else:
        assert injection.find() == injection.Cupti((include,), lib / "libcupti.so.12", 26, record)


# -- loading without a driver ------------------------------------------------------------------------

LOAD = """
import ctypes, os, sys
library = ctypes.CDLL(sys.argv[1])
print(library.InitializeInjection(), library.InitializeInjection(), flush=True)
library.orbit_flush()
library.orbit_end(b"")
if os.fork() == 0:
    sys.exit(3)
print(os.waitstatus_to_exitcode(os.wait()[1]))
"""


def load(library: Path, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", LOAD, str(library)]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | env, check=False)


@needs_compiler
@pytest.mark.slow
def test_loads_and_does_no_harm_without_a_driver(library, tmp_path):
    done = load(library, ORBIT_LAUNCHES=str(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (0, "1 1\n3\n", "")
    recorded = injection.read(tmp_path)
    assert recorded.records == ()


@needs_compiler
@pytest.mark.parametrize("directory", [None, "/no/such/folder"])
def test_loads_and_does_no_harm_without_a_folder(directory, library):
    done = load(library, **({"ORBIT_LAUNCHES": directory} if directory else {}))
    assert (done.returncode, done.stdout, done.stderr) == (0, "1 1\n3\n", "")


@needs_compiler
def test_a_cupti_that_is_not_there_is_a_remark(tmp_path, monkeypatch):
    real = find_or_skip()
    # a recorder of its own, by its library's name: no other test has compiled it
    monkeypatch.setattr(injection, "_FLAGS", [*injection._FLAGS, "-O0"])
    gone = injection.Cupti(real.includes, tmp_path / "libcupti.so", real.version, real.record)
    done = load(injection.build(tmp_path / "cache", gone), ORBIT_LAUNCHES=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    [remark] = injection.read(tmp_path).remarks
    assert remark.startswith("CUPTI could not be loaded")


# -- reading -----------------------------------------------------------------------------------------

HEADER = {"orbit": 1, "pid": 42, "cupti": 130000}
NAME = ["n", 0, "_Z4workPfi"]


def kernels(
    *times: tuple[int, int], untimed: int = 0, serial: int = 1, cluster: tuple[int, int, int] = (0, 0, 0)
):
    """A line of launches of one configuration."""
    base = times[0][0] if times else 0
    shape = [64, 2, 1, 256, 1, 1, *cluster]
    starts, durations = [start - base for start, _ in times], [end - start for start, end in times]
    return ["k", 0, *shape, 32, 1024, 2048, 16, 7, 1, serial, untimed, base, starts, durations]


def kernel(start: int, end: int, **fields) -> list:
    return kernels((start, end), **fields)


def write(folder: Path, *lines: object, name: str = "42.jsonl", tail: bytes = b"") -> Path:
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    (folder / name).write_bytes(text.encode() + tail)
    return folder


def test_a_launch_is_read_whole(tmp_path):
    recorded = injection.read(write(tmp_path, HEADER, NAME, kernel(100, 250, cluster=(2, 1, 1)), ["x"]))
    [record] = recorded.records
    assert record == injection.LaunchRecord(
        symbol="_Z4workPfi", start_ns=100, end_ns=250, grid=(64, 2, 1), block=(256, 1, 1), cluster=(2, 1, 1),
        registers=32, static_shared=1024, dynamic_shared=2048, local_per_thread=16,
        stream=7, device=1, process=42, clock="CUPTI serial records",
    )  # fmt: skip
    assert recorded.remarks == ()


WRITER = """
#include "injection.cpp"
int main(int, char** argv) {
  State& s = state();
  if (!open_file(s, argv[1])) return 1;
  KernelRecord k{};
  k.start = 100; k.end = 250;
  k.gridX = 64; k.gridY = 2; k.gridZ = 1; k.blockX = 256; k.blockY = k.blockZ = 1;
  k.clusterX = 2; k.clusterY = k.clusterZ = 1;
  k.registersPerThread = 32; k.staticSharedMemory = 1024; k.dynamicSharedMemory = 2048;
  k.localMemoryPerThread = 16; k.streamId = 7; k.correlationId = 5; k.deviceId = 1;
  k.name = "a \\"name\\"\\n";
  k.kind = CUPTI_ACTIVITY_KIND_KERNEL;
  Batches batches;
  for (int i = 0; i < 3; ++i, k.start += 1000, k.end += 1000) add_kernel(s, batches, k);
  k.start = k.end = 0;
  add_kernel(s, batches, k);
  add_batches(s, batches);
  write_pending(s);
}
"""


@needs_compiler
def test_the_reader_reads_what_the_recorder_writes(tmp_path):
    cupti = find_or_skip()
    (tmp_path / "writer.cpp").write_text(WRITER)
    defines = [f"-DORBIT_KERNEL_RECORD={cupti.record}", '-DORBIT_CUPTI_LIBRARY=""', "-std=c++17"]
    includes = [f"-I{folder}" for folder in (injection.SOURCE.parent, *cupti.includes)]
    command = ["g++", *defines, *includes, str(tmp_path / "writer.cpp"), "-o", str(tmp_path / "writer")]
    subprocess.run([*command, "-ldl", "-lpthread"], check=True)
    subprocess.run([tmp_path / "writer", tmp_path], check=True)
    recorded = injection.read(tmp_path)
    records = recorded.records
    assert [record.start_ns for record in records] == [100, 1100, 2100]
    assert recorded.unfinished == {records[0].symbol: 1}
    assert records[0] == injection.LaunchRecord(
        symbol='a "name"\n', start_ns=100, end_ns=250, grid=(64, 2, 1), block=(256, 1, 1), cluster=(2, 1, 1),
        registers=32, static_shared=1024, dynamic_shared=2048, local_per_thread=16,
        stream=7, device=1, process=records[0].process, clock="CUPTI serial records",
    )  # fmt: skip


def durations(recorded: injection.RecordedRun) -> list[list[int]]:
    return [list(launches.durations) for launches in recorded.series]


def test_what_recording_adds_is_taken_off_by_the_kind_of_record(tmp_path):
    write(tmp_path, HEADER, NAME, kernel(10_000, 30_000), kernel(50_000, 70_000, serial=0), ["x"])
    assert durations(injection.read(tmp_path)) == [[20_000], [20_000]]
    recorded = injection.read(tmp_path, injection.Overhead(Added(2140.4, 200), Added(768, 200)))
    assert durations(recorded) == [[17_860], [19_232]]
    assert [launches.launch.clock for launches in recorded.series] == [
        "CUPTI serial records, less the 2.14 µs that recording adds here",
        "CUPTI concurrent records, less the 0.77 µs that recording adds here",
    ]


def test_no_launch_is_shorter_than_a_tick_of_the_gpus_clock(tmp_path):
    write(tmp_path, HEADER, NAME, kernels((1000, 3000), (5000, 8000)), ["x"])
    assert durations(injection.read(tmp_path, injection.Overhead(Added(2500, 200)))) == [[32, 500]]


def test_buffers_of_several_streams_come_in_any_order(tmp_path):
    write(tmp_path, HEADER, NAME, kernels((500, 510), (700, 720)), kernels((100, 130), (600, 640)), ["x"])
    [launches] = injection.read(tmp_path).series
    assert list(launches.starts) == [100, 500, 600, 700]
    assert list(launches.durations) == [30, 10, 40, 20]


def test_a_program_whose_kernels_can_overlap_says_why(tmp_path):
    write(
        tmp_path,
        HEADER,
        NAME,
        kernel(100, 150),
        ["o", "it makes a CUDA graph"],
        kernel(200, 250, serial=0),
        ["x"],
    )
    recorded = injection.read(tmp_path)
    [remark] = recorded.remarks
    assert remark.startswith("kernels of this program can overlap (it makes a CUDA graph)")
    assert recorded.since(160).remarks == recorded.remarks
    assert injection.read(write(tmp_path, HEADER, ["o", "it makes a CUDA graph"], ["x"])).remarks == ()


def test_launches_of_several_processes_come_in_order_of_time(tmp_path):
    write(tmp_path, HEADER, NAME, kernel(300, 350), ["x"])
    write(tmp_path, {**HEADER, "pid": 43}, ["n", 0, "other"], kernel(100, 150), ["x"], name="43.jsonl")
    records = injection.read(tmp_path).records
    assert [(r.process, r.symbol, r.start_ns) for r in records] == [
        (43, "other", 100),
        (42, "_Z4workPfi", 300),
    ]


def test_a_process_that_becomes_another_program_starts_its_names_anew(tmp_path):
    write(tmp_path, HEADER, NAME, kernel(100, 150), HEADER, ["n", 0, "other"], kernel(200, 250), ["x"])
    assert [r.symbol for r in injection.read(tmp_path).records] == ["_Z4workPfi", "other"]


def test_a_follower_reads_on_where_the_recorder_has_emptied_its_file(tmp_path):
    write(tmp_path, HEADER, NAME, kernel(100, 150), kernel(200, 250))
    follower = injection.Follower(tmp_path, 42)
    assert [list(s.starts) for s in follower.fresh()] == [[100, 200]]
    write(tmp_path, HEADER, ["n", 0, "other"], kernel(300, 350))
    assert [(s.launch.symbol, list(s.starts)) for s in follower.fresh()] == [("other", [300])]
    assert follower.fresh() == []


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_torn_last_line_costs_itself_alone(cut, tmp_path):
    whole = json.dumps(kernel(200, 250), separators=(",", ":")).encode()
    recorded = injection.read(write(tmp_path, HEADER, NAME, kernel(100, 150), tail=whole[:cut]))
    assert [r.start_ns for r in recorded.records] == [100]
    assert recorded.remarks == (
        "the program ended without exit: launches after its last synchronising call may be missing",
    )


@pytest.mark.parametrize(
    "strange",
    [
        ["k", 0, 1],
        ["k"],
        [],
        ["k", 9, *range(18), [0], [5]],
        ["k", 0, *"x" * 18, [0], [5]],
        ["k", 0, *range(18), [0, 1], [5]],
        ["k", 0, *range(18), ["a"], ["b"]],
        ["k", 0, *range(18), [2**70], [5]],
        ["e", 1],
        ["n", "a", "b"],
        5,
        "k",
        None,
    ],
)
def test_lines_of_another_shape_are_left_out(strange, tmp_path):
    recorded = injection.read(write(tmp_path, HEADER, NAME, strange, kernel(100, 150), ["x"]))
    assert [r.start_ns for r in recorded.records] == [100]


def test_foreign_files_are_left_out(tmp_path):
    (tmp_path / "core").write_bytes(b"\x7fELF")
    (tmp_path / "7.jsonl").write_bytes(b"\xff\xfe\x00\n[]\n{}\n" + json.dumps(kernel(1, 2)).encode())
    assert injection.read(tmp_path) == injection.RecordedRun()


def test_no_folder_and_no_file_are_nothing_recorded(tmp_path):
    assert injection.read(tmp_path) == injection.RecordedRun()
    assert injection.read(tmp_path / "none") == injection.RecordedRun()


def test_a_kernel_that_never_ended_has_no_time_and_is_told_apart(tmp_path):
    recorded = injection.read(
        write(tmp_path, HEADER, NAME, kernels((100, 150), untimed=1), kernels(untimed=1), ["x"])
    )
    assert [r.start_ns for r in recorded.records] == [100]
    assert recorded.unfinished == {"_Z4workPfi": 2}
    assert recorded.remarks == ("2 launches had not ended when the program did, and have no time",)


def test_errors_are_named(tmp_path):
    driver = ["e", 20, "driver", "cuCtxSynchronize", 700, "CUDA_ERROR_ILLEGAL_ADDRESS", "_Z6straysPi"]
    runtime = ["e", 10, "runtime", "cudaLaunchKernel", 9, "", ""]
    recorded = injection.read(write(tmp_path, HEADER, driver, runtime, ["x"]))
    assert recorded.errors == (
        CudaError(10, "runtime", "cudaLaunchKernel", 9, "cudaErrorInvalidConfiguration", None, 42),
        CudaError(20, "driver", "cuCtxSynchronize", 700, "CUDA_ERROR_ILLEGAL_ADDRESS", "_Z6straysPi", 42),
    )


def test_what_was_not_recorded_is_said_once(tmp_path):
    write(tmp_path, HEADER, ["r", "the program uses CUPTI itself"], ["d", 3])
    write(tmp_path, HEADER, ["r", "the program uses CUPTI itself"], ["d", 4], name="43.jsonl")
    assert injection.read(tmp_path).remarks == (
        "the program uses CUPTI itself",
        "7 launches were too many to record",
    )


@pytest.mark.parametrize("gpu", [True, False])
def test_it_is_compiled_ahead_where_a_gpu_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, gpu: bool
) -> None:
    asked: list[Path] = []
    monkeypatch.setattr(jobs, "has_gpu", lambda: gpu)
    monkeypatch.setattr(injection, "environment", lambda folder, **_: asked.append(folder))
    jobs._prepare_recorder(tmp_path)
    assert asked == [tmp_path / "cupti"] * gpu
