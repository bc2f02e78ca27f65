"""Builds with the real compiler: what comes out, what is said, and that nothing stays behind."""

from __future__ import annotations

import asyncio
import os
import select
import shutil
import subprocess
from pathlib import Path

import pytest

from orbit_remote.common import messages as c
from orbit_remote.common.requests import Job
from orbit_remote.toolchain import build, host_diagnostics, nvcc
from orbit_remote.toolchain.build_cache import Cache
from tests.processes_check import LIMIT_S
from tests.remote.nvcc_check import COMPILER, built, check, ignore, lines_of, needs_nvcc

pytestmark = needs_nvcc

PROGRAM = """\
#include <cstdio>
namespace ns {
template <int N> __global__ void __launch_bounds__(128) tiled(float* p) {
  __shared__ float s[N];
  s[threadIdx.x] = p[threadIdx.x];
  __syncthreads();
  p[0] = s[N - 1];
}
}
int main() {
  printf("%s %d\\n", __FILE__, __LINE__);
  ns::tiled<32><<<1, 32>>>(nullptr);
}
"""


def output_of(program: Path) -> str:
    return subprocess.run([program], capture_output=True, text=True, check=False).stdout


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


async def test_a_program_with_its_resources(tmp_path):
    result = await built(tmp_path, PROGRAM, action="run")
    assert result.failure is None
    message = await asyncio.to_thread(output_of, result.executable)
    assert message == f"{tmp_path / 'k.cu'} 11\n"
    (tiled,) = result.built.resources
    assert (tiled.name, tiled.architecture, tiled.static_shared) == ("ns::tiled<32>", "sm_90a", 128)
    assert (tiled.max_threads, tiled.threads, tiled.barriers, tiled.stack) == (128, None, 1, 0)
    assert tiled.registers > 0
    assert tiled.place == c.Place(str(tmp_path / "k.cu"), 3, 57, 62)
    assert result.toolchain == {"nvcc": COMPILER.version, "host compiler": COMPILER.host_version}
    assert files_in(tmp_path / ".scratch") == [result.executable.name]


CALLS_CURAND = """\
extern "C" int curandGetVersion(int *version);
__global__ void touch(float *p) { p[threadIdx.x] = 1; }
int main() { int version; touch<<<1, 32>>>(nullptr); return curandGetVersion(&version); }
"""


async def test_the_library_whose_functions_a_program_calls_is_linked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library is a stand-in with one function: the real one has 100 MB."""
    result = await built(tmp_path, CALLS_CURAND, action="run")
    assert result.failure
    assert "undefined reference to `curandGetVersion'" in result.failure.message
    assert result.failure.remedy.startswith(
        "it calls functions of -lcurand: install that library, or name its folder with -L"
    )
    (tmp_path / "libraries").mkdir()
    stand_in = [
        os.environ.get("CXX", "g++"),
        "-shared",
        "-fPIC",
        "-x",
        "c",
        "-",
        "-o",
        tmp_path / "libraries" / "libcurand.so",
    ]
    await asyncio.to_thread(
        subprocess.run, stand_in, input=b"int curandGetVersion(int *v) { return 7; }", check=True
    )
    monkeypatch.setenv("LIBRARY_PATH", str(tmp_path / "libraries"))
    result = await built(tmp_path, CALLS_CURAND, action="run")
    assert result.failure is None
    assert result.built.problems == ()
    assert result.remarks == ("linked with -lcurand, whose functions it calls",)
    assert [each.name for each in result.built.resources] == ["touch"]
    program = {"LD_LIBRARY_PATH": str(tmp_path / "libraries")}
    ended = await asyncio.to_thread(subprocess.run, [result.executable], env=program, check=False)
    assert ended.returncode == 7
    (tmp_path / "more.cu").write_text("int more() { return 2; }\n")
    text = CALLS_CURAND.replace("return curand", "int more(); return more() * curand")
    result = await built(tmp_path, text, action="run", flags=(str(tmp_path / "more.cu"),))
    assert (result.failure, result.remarks) == (None, ("linked with -lcurand, whose functions it calls",))
    ended = await asyncio.to_thread(subprocess.run, [result.executable], env=program, check=False)
    assert ended.returncode == 14


@pytest.mark.parametrize(
    ("said", "flags"),
    [
        ("undefined reference to `cublasSgemm_v2'\nundefined reference to `cublasCreate_v2'", "-lcublas"),
        ("ld.lld: error: undefined symbol: cublasLtMatmul", "-lcublasLt"),
        ("undefined reference to `cuInit'\nundefined reference to `omp_get_wtime'", "-lcuda -Xcompiler -fopenmp"),
        ("undefined reference to `cuInit'\nundefined reference to `launch_scale(float*)'", ""),
        ("undefined reference to `cudaFoo'", ""),
        ("undefined reference to `main'", ""),
    ],
)  # fmt: skip
def test_the_library_that_has_a_function(said: str, flags: str) -> None:
    assert " ".join(host_diagnostics.missing_libraries(said)) == flags


async def test_unsaved_text_is_compiled_as_the_file_itself(tmp_path):
    """Edited text in a folder of its own: places, `__FILE__` and line information are the file's."""
    (tmp_path / "k.cu").write_text("nothing of this")
    (tmp_path / "h.cuh").write_text("#pragma once\n")
    result = await built(tmp_path, '#include "h.cuh"\n' + PROGRAM, action="run", saved=False)
    assert result.failure is None
    message = await asyncio.to_thread(output_of, result.executable)
    assert message == f"{tmp_path / 'k.cu'} 12\n"
    assert result.built.resources[0].place == c.Place(str(tmp_path / "k.cu"), 4, 57, 62)
    assert set(result.built.files) == {str(tmp_path / "k.cu"), str(tmp_path / "h.cuh")}


@pytest.mark.parametrize("folder", ["with space", "it's (1), & more; é"])
@pytest.mark.parametrize("saved", [True, False])
async def test_names_with_odd_characters(folder, saved, tmp_path):
    place = tmp_path / folder
    place.mkdir()
    result = await check(
        place,
        '#include "h.cuh"\n__global__ void k(int* p) { p[0] = value() + foo; }\n',
        'h.cuh:1:33-36 error nvcc identifier "bar" is undefined\n'
        'my kernel, é.cu:2:46-49 error nvcc identifier "foo" is undefined',
        files={"h.cuh": "__device__ int value() { return bar; }\n"},
        name="my kernel, é.cu",
        saved=saved,
        scratch=tmp_path / "scratch",
    )
    assert set(result.built.files) == {str(place / "my kernel, é.cu"), str(place / "h.cuh")}


@pytest.mark.parametrize(
    "name", ["$(touch pwned).cu", 'a";touch pwned;".cu', 'a";touch pwned;#.cu', "b'\";touch pwned #.cu"]
)
async def test_a_name_the_shell_would_execute_is_refused(name, tmp_path):
    result = await built(tmp_path, "__global__ void k() {}\n", name=name)
    assert result.failure.category == "infrastructure"
    assert name in result.failure.message
    assert "rename it" in result.failure.remedy
    assert not list(tmp_path.rglob("pwned"))


async def test_a_header_of_kernels(tmp_path):
    result = await check(tmp_path, "__global__ void k(int* p) { p[0] = 1; }\n", "", name="k.cuh")
    assert [r.name for r in result.built.resources] == ["k"]


async def test_no_main_is_said_once_the_problems_are_known(tmp_path):
    source = "__global__ void k(int* p) { int unused; p[0] = 1; }\n"
    result = await built(tmp_path, source, action="run")
    assert result.failure.message == "k.cu has no main, so there is nothing to run"
    assert [p.code for p in result.built.problems] == ["#177-D"]
    assert [r.name for r in result.built.resources] == ["k"]


async def test_the_architectures_flags_ask_for_win(tmp_path):
    flags = ["-gencode", "arch=compute_80,code=sm_80", "-gencode", "arch=compute_89,code=sm_89"]
    result = await built(tmp_path, "__global__ void k(int* p) { p[0] = 1; }\n", flags=flags)
    assert sorted(r.architecture for r in result.built.resources) == ["sm_80", "sm_89"]
    assert [r.place for r in result.built.resources] == [c.Place(str(tmp_path / "k.cu"), 1, 17, 18)] * 2


LACKED = {
    "-gencode arch=compute_70,code=sm_70 -gencode arch=compute_80,code=sm_80": "sm_80",
    "--generate-code=arch=compute_70,code=[compute_70,sm_70] --generate-code=arch=compute_90a,code=[sm_90a]": "sm_90a",
    "-gencode arch=compute_80,code=[sm_80,sm_70,sm_86]": "sm_80 sm_86",
    "-arch=sm_70": "sm_90a",
    "-arch compute_60 -code sm_60,sm_61": "sm_90a",
}


@pytest.mark.parametrize("flags", LACKED)
async def test_what_the_compiler_has_code_for_is_compiled(tmp_path, flags):
    """One that it lacks is its only message, instead of all those about the file."""
    result = await built(
        tmp_path, "__global__ void k(int* x) { int unused; x[0] = 1; }\n", flags=flags.split()
    )
    made = " ".join(sorted(r.architecture for r in result.built.resources))
    assert (made, result.failure) == (LACKED[flags], None)
    assert result.remarks[0].endswith(f"which the flags name: compiled for {made.replace(' ', ', ')}")
    assert result.built.problems[0].message.startswith('variable "unused"')


async def test_flags_that_choose_the_product_are_left_out_and_named(tmp_path):
    result = await built(tmp_path, "__global__ void k() {}\n", flags=["-c", "-o", "elsewhere.o"])
    assert result.failure is None
    assert [remark.split(" is left out")[0] for remark in result.remarks] == ["-c", "-o elsewhere.o"]
    assert not (tmp_path / "elsewhere.o").exists()


async def test_relative_includes_start_at_the_directory_of_the_job(tmp_path):
    (tmp_path / "include").mkdir()
    (tmp_path / "src").mkdir()
    (tmp_path / "include" / "h.cuh").write_text("__device__ int value() { return foo; }\n")
    (tmp_path / "src" / "k.cu").write_text(source := '#include "h.cuh"\n')
    (tmp_path / "scratch").mkdir()
    job = Job(
        "1", "compile", "cuda", str(tmp_path / "src/k.cu"), source, directory=str(tmp_path), flags=("-Iinclude",)
    )  # fmt: skip
    result = await build.build(
        job, architecture="sm_90a", started=ignore, cache=Cache(tmp_path / "c"), scratch=tmp_path / "scratch"
    )
    assert lines_of(result.built.problems, tmp_path) == [
        'include/h.cuh:1:33-36 error nvcc identifier "foo" is undefined'
    ]


# -- endings ----------------------------------------------------------------------------------------


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """An nvcc that answers what it is as the real one does, and compiles as the test says."""

    def make(script: str) -> str:
        path = tmp_path / "bin" / "nvcc"
        path.parent.mkdir(exist_ok=True)
        path.write_text(
            f'#!/bin/sh\ncase "$*" in\n--version|*--dryrun*) exec {COMPILER.path} "$@" ;;\nesac\n{script}\n'
        )
        path.chmod(0o755)
        return str(path)

    return make


KERNEL = "__global__ void k() {}\n"


async def test_too_slow(tmp_path, stand_in):
    """Whether the limit comes before the compiler has begun or after: what is left and told is the same."""
    result = await built(tmp_path, KERNEL, timeout_s=0.2, compiler=stand_in("exec sleep 600"))
    assert result.failure.category == "timed out"
    assert result.failure.message == "compiling k.cu took longer than the limit of 0.2 s"
    assert result.failure.remedy == "raise the setting `orbit.build_timeout_s` (option --build-timeout)"
    assert not result.built.complete
    assert files_in(tmp_path / ".scratch") == []


async def test_cancelled(tmp_path, stand_in):
    """The compiler and what it started are gone, and so are its files, when the cancellation is done."""
    os.mkfifo(tmp_path / "alive")
    reader = os.open(tmp_path / "alive", os.O_RDONLY | os.O_NONBLOCK)
    compiler = stand_in(f"(echo started; exec /bin/sleep 1000) > {tmp_path / 'alive'} &\nwait")
    task = asyncio.create_task(built(tmp_path, KERNEL, compiler=compiler))
    ready = asyncio.Event()
    asyncio.get_running_loop().add_reader(reader, ready.set)
    await ready.wait()
    asyncio.get_running_loop().remove_reader(reader)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert os.read(reader, 100) == b"started\n"
    assert select.select([reader], [], [], LIMIT_S)[0]  # killed, it is gone as soon as the kernel gets to it
    assert os.read(reader, 100) == b""  # no writer is left
    os.close(reader)
    assert files_in(tmp_path / ".scratch") == []


@pytest.mark.parametrize(
    ("script", "message", "retryable"),
    [
        ("kill -9 $$", "nvcc was killed (signal 9) while it compiled k.cu", True),
        ("sh -c 'kill -9 $$'; exit $?", "a part of nvcc was killed (signal 9) while it compiled k.cu", True),
        (
            "echo \"nvcc error   : 'cicc' died due to signal 11 (Invalid memory reference)\"; exit 139",
            "cicc crashed (signal 11) while it compiled k.cu",
            False,
        ),
        (
            'echo "gcc: fatal error: Killed signal terminated program cc1plus" >&2; exit 1',
            "cc1plus was killed (signal 9) while it compiled k.cu",
            True,
        ),
        (
            'echo "/tmp/x.s: fatal error: error writing: No space left on device" >&2; exit 1',
            "there is no space left in {scratch}, so k.cu could not be compiled",
            False,
        ),
    ],
)
async def test_outages_are_no_compile_errors(script, message, retryable, tmp_path, stand_in):
    result = await built(tmp_path, KERNEL, compiler=stand_in(script))
    message = message.replace("{scratch}", str(tmp_path / ".scratch"))
    assert (result.failure.category, result.failure.message) == ("infrastructure", message)
    assert result.failure.retryable is retryable
    assert result.failure.remedy
    assert result.built.problems == ()
    assert files_in(tmp_path / ".scratch") == []


async def test_nothing_compiled_is_ever_in_the_cache(tmp_path, stand_in):
    cache = Cache(tmp_path / "cache")
    await built(tmp_path, KERNEL, cache=cache, compiler=stand_in("kill -9 $$"))
    await built(tmp_path, "broken", cache=cache)
    assert files_in(tmp_path) == ["bin/nvcc", "k.cu"]


async def test_a_scratch_folder_that_cannot_be_written(tmp_path):
    job = Job("1", "compile", "cuda", str(tmp_path / "k.cu"), KERNEL)
    result = await build.build(
        job, architecture="sm_90a", started=ignore, cache=Cache(tmp_path / "c"), scratch=tmp_path / "gone"
    )
    assert result.failure.category == "infrastructure"
    assert str(tmp_path / "gone") in result.failure.message


async def test_no_compiler(tmp_path):
    result = await built(tmp_path, KERNEL, compiler=str(tmp_path / "nowhere"))
    assert result.failure == nvcc.find(str(tmp_path / "nowhere"))
    assert result.built.problems == ()


async def test_builds_at_once_share_a_cache(tmp_path):
    cache = Cache(tmp_path / "cache")
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        folder.mkdir()
    results = await asyncio.gather(*(built(folder, KERNEL, cache=cache) for folder in folders))
    assert [result.failure for result in results] == [None, None]
    for folder in folders:
        shutil.rmtree(folder / ".scratch")
        assert (await built(folder, KERNEL, cache=cache)).built.cached


@pytest.mark.parametrize("name", ["ü/k.cu", "日本/k.cu", "a b/ö.cu"])
async def test_a_kernel_whose_path_has_letters_beyond_ascii(tmp_path, name):
    """nvcc writes them in octal digits."""
    (tmp_path / name).parent.mkdir()
    result = await built(tmp_path, "\n__global__ void k() {}\n", name=name)
    assert [(each.place.file, each.place.line) for each in result.built.resources] == [
        (str(tmp_path / name), 2)
    ]
