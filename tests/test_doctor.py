"""What `orbit-lsp doctor` says of machines, whole."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path

import pytest

from orbit_lsp.cli.machine import doctor
from orbit_lsp.places import python_choice
from orbit_lsp.state.compilation import Compilation
from orbit_lsp.state.config import Settings
from orbit_lsp.state.placement import RunSetup
from orbit_remote.common import messages as c
from orbit_remote.common.packages import installing
from orbit_remote.common.requests import Job
from orbit_remote.ncu.ncu_log import PERMISSION
from tests.settings_check import settings_of_values

NO_GPU = c.Failure("infrastructure", "this machine has no NVIDIA GPU", "install its driver")
NO_NVCC = c.Failure("infrastructure", "no CUDA compiler (nvcc) was found", "pip install it")
H100 = c.Device("NVIDIA H100 80GB HBM3", 0, "9.0", driver="580.159.04")
PACKAGES = {
    "torch": "2.11.0",
    "triton": "3.6.0",
    "nvidia-ml-py": "13.6",
    "cuda-core": "1.2.0",
    "cuda-bindings": "13.3.1",
}
NONE = dict.fromkeys(PACKAGES)
NCU = c.Profiler("/ncu", "2025.3.1.0", permitted=True)
FULL = c.Machine(
    "p",
    c.RESULT_VERSION,
    "/py",
    "3.12.3",
    PACKAGES,
    (H100,),
    "/nvcc",
    "13.0.88",
    "g++ 13.3",
    profiler=NCU,
    sanitizer="2025.3.1.0",
)
LAPTOP = replace(FULL, devices=(), packages=NONE, problems=(NO_GPU,), profiler=None)


@pytest.fixture(autouse=True)
def with_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    """No Python of these machines is on this one."""
    monkeypatch.setattr(installing, "installer", lambda python, environment: f"{python} -m pip install")


def check(
    machine: c.Machine,
    expected: str,
    *,
    token: bool = False,
    on_modal: bool = False,
    compiler: c.Failure | None = None,
    untrusted: str = "",
    **settings: object,
) -> None:
    setup = RunSetup(settings_of_values(settings), machine=machine, modal_account=token)
    text = doctor.lines(setup, machine, compiles_on_modal=on_modal, compiler=compiler, untrusted=untrusted)
    message = "\n".join(text) + "\n"
    assert message.replace(sys.executable, "PYTHON") == expected


def test_nothing_is_missing() -> None:
    check(FULL, """\
Python    /py 3.12.3
compiler  /nvcc 13.0.88, host compiler g++ 13.3
GPU 0     NVIDIA H100 80GB HBM3, compute capability 9.0, driver 580.159.04
profiler  /ncu 2025.3.1.0
packages  torch 2.11.0, triton 3.6.0, nvidia-ml-py 13.6, cuda-core 1.2.0, cuda-bindings 13.3.1

works now
  ✓ CUDA files: compiler errors, registers, occupancy
  ✓ Triton files: compiler errors, registers, occupancy (on the command Compile)
  ✓ CUDA files: run and timed on NVIDIA H100 80GB HBM3
  ✓ launch specs of CUDA kernels: checked and timed on NVIDIA H100 80GB HBM3
  ✓ Triton files: run and timed on NVIDIA H100 80GB HBM3
  ✓ profiles: counters of Nsight Compute on NVIDIA H100 80GB HBM3
  ✓ memory checks: compute-sanitizer 2025.3.1.0 on NVIDIA H100 80GB HBM3
""")  # fmt: skip


def test_an_author_of_cuda_without_a_gpu_is_told_what_works_and_that_torch_is_for_triton_only() -> None:
    check(LAPTOP, """\
Python    /py 3.12.3
compiler  /nvcc 13.0.88, host compiler g++ 13.3

works now
  ✓ CUDA files: compiler errors, registers, occupancy

does not work yet
  ✗ running kernels: this machine has no NVIDIA GPU
    fix it: install its driver
    or rent one from Modal (orbit-lsp modal status has the prices): PYTHON -P -m modal token new
  ✗ Triton files (.cu files need no torch on this machine): /py has no torch and no triton
    fix it: /py -m pip install torch triton
""")  # fmt: skip


def test_nothing_works_and_the_compiler_comes_first() -> None:
    bare = replace(LAPTOP, nvcc=None, nvcc_version=None, host_compiler=None, problems=(NO_GPU, NO_NVCC))
    check(bare, """\
Python    /py 3.12.3

works now
    nothing

does not work yet
  ✗ CUDA files: no CUDA compiler (nvcc) was found
    fix it: pip install it
  ✗ running kernels: this machine has no NVIDIA GPU
    fix it: install its driver
  ✗ Triton files (.cu files need no torch on this machine): /py has no torch and no triton
    fix it: /py -m pip install torch triton
""", runner="local")  # fmt: skip


def test_a_compiler_that_rejects_its_own_headers_is_not_called_working() -> None:
    compiler = c.Failure("infrastructure", "/nvcc 13.5.37 does not compile", "pip install cuda-toolkit")
    check(replace(LAPTOP, packages=PACKAGES), """\
Python    /py 3.12.3
compiler  /nvcc 13.0.88, host compiler g++ 13.3
packages  torch 2.11.0, triton 3.6.0, nvidia-ml-py 13.6, cuda-core 1.2.0, cuda-bindings 13.3.1

works now
  ✓ Triton files: compiler errors, registers, occupancy (on the command Compile)

does not work yet
  ✗ CUDA files: /nvcc 13.5.37 does not compile
    fix it: pip install cuda-toolkit
  ✗ running kernels: this machine has no NVIDIA GPU
    fix it: install its driver
    or rent one from Modal (orbit-lsp modal status has the prices): PYTHON -P -m modal token new
""", compiler=compiler)  # fmt: skip


class Compiles:
    """A runner that answers every job with one result, which a real nvcc gave (13.5.37 with headers of 13.3)."""

    name = "local"

    def __init__(self, outcome: c.Outcome, failure: c.Failure | None = None) -> None:
        self._outcome: c.Outcome = outcome
        self._failure = failure

    async def run(self, job: Job) -> AsyncGenerator[c.Event, None]:
        assert "cooperative_groups" in job.text
        yield c.Stage(job.run, "building", 0.0)
        yield c.Finished(job.run, self._outcome, self._failure)

    async def machine(self) -> c.Machine | None:
        return None

    async def warm(self, language: str) -> None:
        pass

    async def close(self) -> None:
        pass


MIXED = c.Failure(
    "compile error",
    'orbit-trial.cu does not compile (1 error): cuda_toolkit.h:41: #error "CUDA compiler and CUDA toolkit headers are '
    'incompatible, please check your include paths"',
)
WHEEL = "/venv/lib/python3.12/site-packages/nvidia/cu13/bin/nvcc"


@pytest.mark.parametrize(
    ("nvcc", "remedy"),
    [
        ("/nvcc", "reinstall the CUDA toolkit, or set `nvcc` to one that works"),
        (WHEEL, "/venv/bin/python -m pip install 'cuda-toolkit[cccl,crt,cudart,cupti,nvcc,nvvm]==13.5.*'"),
    ],
)
async def test_headers_of_another_release_are_named_with_what_fixes_them(nvcc: str, remedy: str) -> None:
    machine = replace(LAPTOP, python="/venv/bin/python", nvcc=nvcc, nvcc_version="13.5.37")
    failure = await doctor.compiler_failure(Compiles("compile error", MIXED), machine)
    assert failure == c.Failure(
        "infrastructure",
        f"{nvcc} 13.5.37 does not compile a file that includes cooperative_groups.h and thrust/functional.h: "
        'cuda_toolkit.h:41: #error "CUDA compiler and CUDA toolkit headers are incompatible, please check your '
        'include paths"',
        remedy,
    )


async def test_a_compiler_that_works_and_none_at_all_have_no_failure() -> None:
    assert await doctor.compiler_failure(Compiles("ok"), FULL) is None
    assert await doctor.compiler_failure(Compiles("compile error", MIXED), replace(FULL, nvcc=None)) is None


def test_a_gpu_without_packages() -> None:
    check(replace(FULL, packages=NONE | {"torch": "2.11.0"}), """\
Python    /py 3.12.3
compiler  /nvcc 13.0.88, host compiler g++ 13.3
GPU 0     NVIDIA H100 80GB HBM3, compute capability 9.0, driver 580.159.04
profiler  /ncu 2025.3.1.0
packages  torch 2.11.0

works now
  ✓ CUDA files: compiler errors, registers, occupancy
  ✓ CUDA files: run and timed on NVIDIA H100 80GB HBM3
  ✓ profiles: counters of Nsight Compute on NVIDIA H100 80GB HBM3
  ✓ memory checks: compute-sanitizer 2025.3.1.0 on NVIDIA H100 80GB HBM3

does not work yet
  ✗ Triton files: /py has no triton
    fix it: /py -m pip install triton
  ✗ launch specs of CUDA kernels: /py has no cuda-core and no cuda-bindings
    fix it: /py -m pip install cuda-core cuda-bindings
  ✗ clocks, power and throttling beside the times: /py has no nvidia-ml-py
    fix it: /py -m pip install nvidia-ml-py
""")  # fmt: skip


def test_trust_comes_first_where_only_the_projects_own_python_is_not_used() -> None:
    check(LAPTOP, """\
Python    /py 3.12.3
compiler  /nvcc 13.0.88, host compiler g++ 13.3

works now
  ✓ CUDA files: compiler errors, registers, occupancy

does not work yet
  ✗ running kernels: this machine has no NVIDIA GPU
    fix it: install its driver
    or rent one from Modal (orbit-lsp modal status has the prices): PYTHON -P -m modal token new
  ✗ Triton files (.cu files need no torch on this machine): /py has no torch and no triton
    fix it: trust it
""", untrusted="trust it")  # fmt: skip


def test_modal_may_compile_where_there_is_no_compiler() -> None:
    machine = replace(LAPTOP, nvcc=None, problems=(NO_GPU, NO_NVCC))
    setup = RunSetup(settings=Settings(), machine=machine, modal_account=True)
    lines = doctor.lines(setup, machine, compiles_on_modal=False)
    assert lines[lines.index("    fix it: pip install it") + 1] == (
        "    or set `orbit.modal.compile`: Modal compiles, without a GPU"
    )


def test_a_setting_names_a_gpu_that_is_not_there() -> None:
    check(replace(FULL, packages=PACKAGES), """\
Python    /py 3.12.3
compiler  /nvcc 13.0.88, host compiler g++ 13.3
GPU 0     NVIDIA H100 80GB HBM3, compute capability 9.0, driver 580.159.04
profiler  /ncu 2025.3.1.0
packages  torch 2.11.0, triton 3.6.0, nvidia-ml-py 13.6, cuda-core 1.2.0, cuda-bindings 13.3.1

works now
  ✓ CUDA files: compiler errors, registers, occupancy
  ✓ Triton files: compiler errors, registers, occupancy (on the command Compile)

does not work yet
  ✗ running kernels: this machine has no GPU number 3
    fix it: set `device` to one of: 0
""", device=3)  # fmt: skip


def test_runs_go_to_modal_where_there_is_a_token() -> None:
    check(replace(LAPTOP, nvcc=None, problems=(NO_GPU, NO_NVCC)), """\
Python    /py 3.12.3

works now
  ✓ CUDA files: compiler errors, registers, occupancy, compiled on Modal
  ✓ CUDA and Triton files: run and timed on B200, rented from Modal (its token is not checked here)

does not work yet
  ✗ compiler errors and registers of Triton files without a run: /py has no torch and no triton
    fix it: /py -m pip install torch triton
""", token=True, on_modal=True, gpu="B200")  # fmt: skip


def test_modal_is_wanted_and_there_is_no_token() -> None:
    check(replace(FULL, devices=(), problems=(NO_GPU,)), """\
Python    /py 3.12.3
compiler  /nvcc 13.0.88, host compiler g++ 13.3
profiler  /ncu 2025.3.1.0
packages  torch 2.11.0, triton 3.6.0, nvidia-ml-py 13.6, cuda-core 1.2.0, cuda-bindings 13.3.1

works now
  ✓ CUDA files: compiler errors, registers, occupancy
  ✓ Triton files: compiler errors, registers, occupancy (on the command Compile)

does not work yet
  ✗ running kernels: there is no Modal token on this machine
    fix it: PYTHON -P -m modal token new
""", runner="modal")  # fmt: skip


def test_memory_checks_need_compute_sanitizer() -> None:
    machine = replace(FULL, sanitizer=None)
    messages = doctor.lines(RunSetup(settings=Settings(), machine=machine), machine, compiles_on_modal=False)
    assert messages[-2:] == [
        "  ✗ memory checks: there is no compute-sanitizer",
        "    fix it: install the CUDA toolkit, or /py -m pip install nvidia-cuda-sanitizer-api",
    ]


def said_of_counters(profiler: c.Profiler | None, cupti: str | None = None) -> list[str]:
    machine = replace(FULL, profiler=profiler, cupti=cupti)
    every = doctor.lines(RunSetup(settings=Settings(), machine=machine), machine, compiles_on_modal=False)
    at = next(i for i, line in enumerate(every) if "counters" in line)
    return [line.strip() for line in every[at : at + 2]]


def test_whether_counters_are_permitted() -> None:
    tried, *_ = said_of_counters(replace(NCU, permitted=None))
    assert tried == (
        "✓ profiles: counters of Nsight Compute on NVIDIA H100 80GB HBM3; the first profile shows whether the driver "
        "permits counters"
    )
    what = "✗ counters in profiles (times and resources do not need them):"
    assert said_of_counters(None) == [
        f"{what} there is no Nsight Compute (ncu)",
        "fix it: install the CUDA toolkit's package nsight-compute",
    ]
    assert said_of_counters(NCU, cupti="13.0") == [
        "✓ profiles of launch specs and Triton kernels: counters of CUPTI 13.0 on NVIDIA H100 80GB HBM3",
        "✓ profiles of programs, and in full: counters of Nsight Compute on NVIDIA H100 80GB HBM3",
    ]
    first, *_ = said_of_counters(None, cupti="13.0")
    assert first == (
        "✓ profiles of launch specs and Triton kernels: counters of CUPTI 13.0 on NVIDIA H100 80GB HBM3; the first profile shows whether "
        "the driver permits counters"
    )
    denied, mend = said_of_counters(replace(NCU, permitted=False, why=PERMISSION.sentence))
    assert denied == f"{what} the driver denied this user the GPU's performance counters (ERR_NVGPUCTRPERM)"
    assert mend.startswith(
        "fix it: load the driver with NVreg_RestrictProfilingToAdminUsers=0, or run the worker"
    )


def test_a_conda_environment_that_is_not_created_is_said_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "environment.yml").write_text("name: gemmlab\ndependencies: [pytorch]\n")
    environment = {"MAMBA_ROOT_PREFIX": str(tmp_path / "conda")}
    assert python_choice.not_created([str(tmp_path)], environment) == (
        f"environment.yml names gemmlab, which is not on this machine: "
        f"conda env create -f {tmp_path}/environment.yml (or mamba) creates it"
    )
    python = tmp_path / "conda/envs/gemmlab/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text("")
    assert python_choice.not_created([str(tmp_path)], environment) == ""
    assert python_choice.not_created([str(tmp_path)], {"CONDA_PREFIX": "/opt/envs/gemmlab"}) == ""


def test_headers_of_other_platforms_are_left_out_and_what_to_do_is_an_option() -> None:
    missing = {
        "hip/hip_runtime.h": "it belongs to AMD's ROCm: nvcc compiles CUDA only",
        "intrin.h": "it belongs to Windows: this file compiles only there",
        "gone.h": 'build the project once, or name its folder: nvcc_flags = ["-I<folder>"]',
    }
    lines = doctor.compilation_lines("k.cu", Compilation(source="by guess", missing=missing), ())
    assert lines[2:] == [
        "",
        "not found, perhaps only in branches that are not taken: the compiler reports those that it needs",
        "  gone.h: build the project once, or name its folder: --flag=-I<folder>",
        "",
        f"left out: 2 headers of other platforms, in branches that a build for CUDA does not take ({', '.join(list(missing)[:2])})",
        "",
        "To compile by another database, set `compile_commands`; add flags with --flag.",
    ]
