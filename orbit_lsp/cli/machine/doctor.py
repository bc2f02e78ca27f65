"""`orbit-lsp doctor`: what works on this machine, what does not, and how to fix it, as text."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path

from orbit_lsp.cli import terminal_text
from orbit_lsp.compilation.missing import OTHER_PLATFORM
from orbit_lsp.runners import Runner
from orbit_lsp.runners.modal import account
from orbit_lsp.state import modal_gpus, user_folders
from orbit_lsp.state.compilation import Compilation
from orbit_lsp.state.placement import RunSetup
from orbit_remote.common import handshake
from orbit_remote.common import messages as c
from orbit_remote.common.packages import installing
from orbit_remote.common.requests import Job

_TRITON = ("torch", "triton")
_OTHER_PROFILES = " of programs, and in full"
"""The profiles that CUPTI does not count yet."""
_LAUNCHERS = ("cuda-core", "cuda-bindings")
_NVML = "nvidia-ml-py"

_COMPILER_TRIAL = """\
#include <cooperative_groups.h>
#include <thrust/functional.h>
__global__ void trial(int* out) {
  cooperative_groups::this_thread_block().sync();
  out[0] = thrust::maximum<int>()(out[0], 1);
}
"""
"""Fails where the headers do not belong to the compiler: these two check its version, cuda_runtime.h does not."""

_FIX = "    fix it: "
_WHEELS = installing.CUDA.partition(">=")[0]


async def compiler_failure(runner: Runner, machine: c.Machine) -> c.Failure | None:
    """Return why the machine's nvcc does not compile a small file with NVIDIA's own headers. Return None if it does,
    or if there is no nvcc. It takes a second the first time; the build is cached.
    """
    if machine.nvcc is None:
        return None
    job = Job(
        "doctor", "compile", "cuda", str(Path.home() / "orbit-trial.cu"), _COMPILER_TRIAL, nvcc=machine.nvcc
    )
    finished: c.Finished | None = None
    async with aclosing(runner.run(job)) as events:
        async for event in events:
            finished = event if isinstance(event, c.Finished) else finished
    assert finished is not None  # the last event of every job
    if finished.outcome == "ok":
        return None
    if finished.outcome != "compile error":
        return finished.failure
    errors = [problem.message for problem in finished.problems if problem.severity == "error"]
    if not errors and finished.failure:  # in a header of NVIDIA's, which has no place in the file
        errors = [finished.failure.message.partition(": ")[2] or finished.failure.message]
    why = errors[0].partition("\n")[0] if errors else "nvcc gives no reason"
    return c.Failure(
        "infrastructure",
        f"{machine.nvcc} {machine.nvcc_version} does not compile a file that includes cooperative_groups.h and "
        f"thrust/functional.h: {why}",
        _matching_headers(machine),
    )


def _matching_headers(machine: c.Machine) -> str:
    """Return how to get headers of the compiler's own release."""
    assert machine.nvcc is not None
    assert machine.nvcc_version is not None
    if "site-packages" not in Path(machine.nvcc).parts:
        return "reinstall the CUDA toolkit, or set `nvcc` to one that works"
    beside = (
        python
        for python in (machine.python, sys.executable)
        if Path(machine.nvcc).is_relative_to(Path(python).parents[1])
    )
    release = ".".join(machine.nvcc_version.split(".")[:2])
    return installing.command(next(beside, machine.python), f"{_WHEELS}=={release}.*")


def lines(
    setup: RunSetup,
    machine: c.Machine,
    *,
    compiles_on_modal: bool,
    compiler: c.Failure | None = None,
    python_from: str = "",
    workers: Sequence[str] = (),
    conda: str = "",
    untrusted: str = "",
) -> list[str]:
    """Return what there is, what works with it, and what is missing, the most useful first.

    Each missing thing is named once, even if several things need it. Packages that nothing here could use are not
    listed. `compiler` is what `compiler_failure` returned, `python_from` what chose the Python, `workers` what
    `worker_lines` returned. `conda` says that an environment is not created, `untrusted` how to use the project's own
    Python.
    """
    compiles_on_modal = compiles_on_modal and setup.modal_account
    return [
        *([f"host      {setup.host}, reached by ssh: what follows is about it"] if setup.host else []),
        *_inventory(machine, python_from),
        *([f"conda     {conda}"] if conda else []),
        *workers,
        "",
        "works now",
        *([f"  ✓ {work}" for work in _works(setup, machine, compiles_on_modal, compiler)] or ["    nothing"]),
        *_missing(setup, machine, compiles_on_modal, compiler, untrusted),
    ]


def worker_lines(workers: Sequence[handshake.Status], python: str, own: str, now: float) -> list[str]:
    """Return a line for each worker of this installation, those of the project's `python` first, and one for all
    others. `own` is the name of the client that asks, `now` is in seconds.
    """
    ours = [worker for worker in workers if not is_elsewhere(worker)]
    ours.sort(key=lambda worker: worker.python != python)
    shown = [f"worker    {worker_text(worker, own, now)} (orbit-lsp stop ends it)" for worker in ours]
    if others := [str(worker.pid) for worker in workers if is_elsewhere(worker)]:
        one = len(others) == 1
        shown.append(f"workers   of other installations: process{'' if one else 'es'} {', '.join(others)}")
    return shown


def is_elsewhere(worker: handshake.Status) -> bool:
    """Return whether a worker has another cache folder, because it belongs to another installation of orbit-lsp, or
    to another HOME.
    """
    own = user_folders.cache_folder()
    return bool(worker.cache) and os.path.realpath(worker.cache) != os.path.realpath(own)


def worker_text(worker: handshake.Status, own: str, now: float) -> str:
    clients = list(worker.clients)
    if own in clients:
        clients.remove(own)
    age = max(0, round((now - worker.since) / 60))
    parts = [
        f"process {worker.pid}, for {age} min, Python {worker.python_version} {worker.python}",
        f"{worker.memory / (1 << 20):.0f} MiB" if worker.memory else "",
        f"of another installation, with the cache {worker.cache}" if is_elsewhere(worker) else "",
        "a warm process waits, with memory of the GPU where there is one" if worker.warm else "",
        f"clients: {', '.join(clients)}" if clients else "no other client",
        f"{worker.jobs} job{'s' * (worker.jobs != 1)}" if worker.jobs else "",
    ]
    return "; ".join(part for part in parts if part)


def compilation_lines(
    name: str, compilation: Compilation, refused: Sequence[str], through: str = ""
) -> list[str]:
    """Return how a CUDA file is compiled, and why, with the settings that override it. `through` is the file that
    includes a header.
    """
    flags = shlex.join(compilation.flags) if compilation.flags else "no flags"
    lines = [f"{name} is compiled with {flags},", f"  {compilation.source}."]
    if through:
        lines.append(f"  It is compiled through {through}, which includes it.")
    if compilation.nvcc:
        lines.append(f"  compiler: {compilation.nvcc}, as the project names it (setting `nvcc` overrides it)")
    if compilation.reasons:
        lines += ["", "inferred (--flag and the setting `nvcc_flags` go before it)"]
        lines += [f"  {reason.what}: {reason.why}" for reason in compilation.reasons]
    if compilation.left_out:
        lines += ["", "left out (figures may differ from those of the build)"]
        lines += [f"  {reason.what}: {reason.why}" for reason in compilation.left_out]
    elsewhere = [header for header, why in compilation.missing.items() if why.startswith(OTHER_PLATFORM)]
    if needed := [header for header in compilation.missing if header not in elsewhere]:
        lines += [
            "",
            "not found, perhaps only in branches that are not taken: the compiler reports those that it needs",
        ]
        lines += [
            f"  {header}: {terminal_text.with_options(compilation.missing[header])}" for header in needed
        ]
    if elsewhere:
        count = "1 header" if len(elsewhere) == 1 else f"{len(elsewhere)} headers"
        names = ", ".join(elsewhere[:3]) + (", …" if len(elsewhere) > 3 else "")
        lines += [
            "",
            f"left out: {count} of other platforms, in branches that a build for CUDA does not take ({names})",
        ]
    if refused:
        lines += ["", "not used", *(f"  {sentence}" for sentence in refused)]
    return [*lines, "", "To compile by another database, set `compile_commands`; add flags with --flag."]


def _inventory(machine: c.Machine, python_from: str) -> list[str]:
    packages = [f"{name} {version}" for name, version in machine.packages.items() if version]
    why = f" ({python_from})" if python_from else ""
    inventory = [f"Python    {machine.python} {machine.python_version}{why}"]
    if machine.nvcc:
        inventory.append(
            f"compiler  {machine.nvcc} {machine.nvcc_version}, host compiler {machine.host_compiler}"
        )
    for device in machine.devices:
        capability = f", compute capability {device.capability}" if device.capability else ""
        driver = f", driver {device.driver}" if device.driver else ""
        inventory.append(f"GPU {device.index:<5} {device.name}{capability}{driver}")
    if machine.profiler:
        inventory.append(f"profiler  {machine.profiler.path} {machine.profiler.version}")
    return [*inventory, f"packages  {', '.join(packages)}"] if packages else inventory


def _works(
    setup: RunSetup, machine: c.Machine, compiles_on_modal: bool, compiler: c.Failure | None
) -> list[str]:
    rented = setup.place() == "modal"
    own = None if rented else setup.own_gpu()
    triton = not _absent(machine, _TRITON)
    working: list[str] = []
    compiles = bool(machine.nvcc) and compiler is None
    if compiles or compiles_on_modal:
        where = "" if machine.nvcc else ", compiled on Modal"
        working.append(f"CUDA files: compiler errors, registers, occupancy{where}")
    if triton:
        working.append("Triton files: compiler errors, registers, occupancy (on the command Compile)")
    if triton and not _absent(machine, ("torch", *c.DEBUGGING)):
        working.append("Triton kernels: debugged in Triton's interpreter, without a GPU (lens Debug)")
    if rented and setup.modal_account and (gpu := setup.rents()):
        working.append(
            f"CUDA and Triton files: run and timed on {gpu}, rented from Modal (its token is not checked here)"
        )
    if own and compiles:
        working.append(f"CUDA files: run and timed on {own.name}")
        if not _absent(machine, ("torch", *_LAUNCHERS)):
            working.append(f"launch specs of CUDA kernels: checked and timed on {own.name}")
    if own and triton:
        working.append(f"Triton files: run and timed on {own.name}")
    if own:
        working += _counters(machine, own.name)
    if own and machine.sanitizer and (compiles or triton):
        working.append(f"memory checks: compute-sanitizer {machine.sanitizer} on {own.name}")
    return working


def _missing(
    setup: RunSetup, machine: c.Machine, compiles_on_modal: bool, compiler: c.Failure | None, untrusted: str
) -> list[str]:
    problems = iter(machine.problems)
    no_gpu = None if machine.devices else next(problems, None)
    no_compiler = compiler if machine.nvcc else next(problems, None)
    local = setup.place() == "local"
    missing: list[str] = []
    if no_compiler and not compiles_on_modal:
        missing += _fault("CUDA files", no_compiler.message, no_compiler.remedy)
        if machine.nvcc is None and setup.place() == "modal" and setup.modal_account:
            missing.append("    or set `orbit.modal.compile`: Modal compiles, without a GPU")
    if no_gpu and local:
        missing += _fault("running kernels", no_gpu.message, no_gpu.remedy)
        if setup.settings.runner == "auto":
            missing.append(f"    or rent one from Modal (orbit-lsp modal status has the prices): {_token()}")
    elif not local and not setup.modal_account:
        missing += _fault("running kernels", account.NO_TOKEN, _token())
    elif not local and not setup.rents():
        why = modal_gpus.refusal(setup.settings.gpu)
        missing += _fault(
            "running kernels",
            f"the setting `gpu` names none that can be rented: {why}",
            "set `gpu` to one of these",
        )
    elif local and machine.devices and setup.own_gpu() is None:
        wanted = setup.settings.device
        have = ", ".join(str(device.index) for device in machine.devices)
        missing += _fault(
            "running kernels", f"{setup.owner} has no GPU number {wanted}", f"set `device` to one of: {have}"
        )
    if absent := _absent(machine, _TRITON):
        what = "compiler errors and registers of Triton files without a run"
        if local:
            what = (
                "Triton files"
                if machine.devices
                else f"Triton files (.cu files need no torch on {setup.host or 'this machine'})"
            )
        missing += _package(what, machine, absent, untrusted, setup.host)
        if machine.python == sys.executable and not untrusted and not setup.host:
            missing.append(
                "    or, if a project's environment has them, run `orbit-lsp doctor` in its folder"
            )
    if local and machine.devices and (absent := _absent(machine, _LAUNCHERS)):
        missing += _package("launch specs of CUDA kernels", machine, absent, untrusted, setup.host)
    if local and machine.devices and (absent := _absent(machine, (_NVML,))):
        missing += _package(
            "clocks, power and throttling beside the times", machine, absent, untrusted, setup.host
        )
    if local and machine.devices:
        missing += _no_counters(machine)
        if not machine.sanitizer:
            remedy = f"install the CUDA toolkit, or {installing.command(machine.python, 'nvidia-cuda-sanitizer-api')}"
            missing += _fault("memory checks", "there is no compute-sanitizer", remedy)
    if setup.host:
        fix = f"{_FIX}on {setup.host}: "
        missing = [line if line.startswith(fix) else line.replace(_FIX, fix) for line in missing]
    return ["", "does not work yet", *missing] if missing else []


def _token() -> str:
    return shlex.join(account.new_token()) if account.makes_token() else account.remedy()


def _counters(machine: c.Machine, gpu: str) -> list[str]:
    """Return the tools that count launches in a profile."""
    profiler = machine.profiler
    if profiler and profiler.permitted is False:
        return []
    on = f" on {gpu}"
    if profiler is None or profiler.permitted is None:
        on += "; the first profile shows whether the driver permits counters"
    lines = (
        [f"profiles of launch specs and Triton kernels: counters of CUPTI {machine.cupti}{on}"]
        if machine.cupti
        else []
    )
    if profiler:
        what = f"profiles{_OTHER_PROFILES}" if machine.cupti else "profiles"
        lines.append(f"{what}: counters of Nsight Compute{on}")
    return lines


def _no_counters(machine: c.Machine) -> list[str]:
    """Return why a profile has only times and no counters."""
    what, profiler = "counters in profiles (times and resources do not need them)", machine.profiler
    if profiler is None and machine.cupti:
        what = f"counters in profiles{_OTHER_PROFILES}"
    if profiler is None:
        return _fault(
            what, "there is no Nsight Compute (ncu)", "install the CUDA toolkit's package nsight-compute"
        )
    if profiler.permitted is not False:
        return []
    why, _, remedy = profiler.why.partition("; to enable counters: ")
    return _fault(what, why, remedy or "install a newer one")


def _absent(machine: c.Machine, names: tuple[str, ...]) -> list[str]:
    return [name for name in names if not machine.packages.get(name)]


def _package(what: str, machine: c.Machine, absent: list[str], untrusted: str, host: str) -> list[str]:
    why = f"{machine.python} has no {' and no '.join(absent)}"
    if host:  # how its Python gets packages cannot be read from here
        remedy = "install them into it, or into a virtual environment whose Python --python names (in an editor `orbit.ssh.python`)"
        return _fault(what, why, remedy)
    return _fault(what, why, untrusted or installing.command(machine.python, *absent))


def _fault(what: str, why: str, remedy: str) -> list[str]:
    return [f"  ✗ {what}: {why}", f"{_FIX}{remedy}"]
