"""Finds what this machine has: Python, packages, compiler, GPUs. It also finds what is missing, with how to fix it."""

from __future__ import annotations

import asyncio
import ctypes
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path

from orbit_remote import MAIN, PACKAGE
from orbit_remote.common import codec
from orbit_remote.common.messages import DEBUGGING, RESULT_VERSION, Device, Failure, Machine, Profiler
from orbit_remote.common.requests import Probe
from orbit_remote.process import tool_output
from orbit_remote.recording import telemetry
from orbit_remote.toolchain import nvcc

PACKAGES = ("torch", "triton", "nvidia-ml-py", "cuda-core", "cuda-bindings", *DEBUGGING)
"""Distributions that a GPU machine's Python should have."""

_DRIVER_S = 10.0
_NODES = ("/dev/nvidiactl", "/dev/nvhost-ctrl", "/dev/nvgpu", "/dev/dxg")
"""One of them is there where Linux has a driver of NVIDIA's: of a card, of a Jetson (two), of Windows around it."""
_CU_ATTRIBUTES = {"multiprocessors": 16, "l2_bytes": 38, "major": 75, "minor": 76, "bus_width_bits": 37}


async def probe(request: Probe, author_python: str | None = None, counters: Path | None = None) -> Machine:
    """Look at the machine. Only tools that report their version are started. Never raises.

    Of the problems, the missing GPU comes before the missing compiler. `author_python` is the server's own Python:
    compiler wheels may be installed beside it. `counters` is where profiles keep whether they were permitted the
    GPU's counters.
    """
    problems: list[Failure] = []
    packages = dict(_versions(tuple(map(_changed, sys.path))))
    devices = await asyncio.to_thread(all_devices)
    if not devices:
        problems.append(
            Failure(
                "infrastructure",
                "this machine has no NVIDIA GPU that the driver shows",
                "if it has one, install NVIDIA's driver; `nvidia-smi` then names the GPU",
            )
        )
    compiler = await asyncio.to_thread(nvcc.find, request.nvcc, python=author_python)
    profiler = await asyncio.to_thread(_profiler, devices, counters)
    checker = await asyncio.to_thread(_sanitizer, devices, request.nvcc)
    cupti = await asyncio.to_thread(_cupti, devices)
    machine = Machine(
        request.run, RESULT_VERSION, sys.executable, _python(), packages, devices,
        python_path=python_path(), profiler=profiler, sanitizer=checker, cupti=cupti,
    )  # fmt: skip
    if isinstance(compiler, Failure):
        return replace(machine, problems=(*problems, compiler))
    host = f"{compiler.host_compiler} {compiler.host_version}"
    return replace(
        machine,
        nvcc=compiler.path,
        nvcc_version=compiler.version,
        host_compiler=host,
        problems=tuple(problems),
    )


def _sanitizer(devices: Sequence[Device], compiler: str | None) -> str | None:
    from orbit_remote.sanitizer import sanitizer_tool

    tool = sanitizer_tool.find(compiler) if devices else None
    return None if tool is None or isinstance(tool, Failure) else tool.version


def _cupti(devices: Sequence[Device]) -> str | None:
    """Return the release of the CUPTI that counts launch specs, or None if no CUPTI here can."""
    from orbit_remote.recording import injection

    if not devices:
        return None
    try:
        found = injection.find(in_this_process=True)
    except injection.RecorderUnavailableError:
        return None
    return found.release if found.has_range_profiler else None


def _profiler(devices: Sequence[Device], counters: Path | None) -> Profiler | None:
    from orbit_remote.ncu import counter_permission, ncu_options

    tool = ncu_options.find()
    if tool is None:
        return None
    if tool.too_old:
        return Profiler(tool.path, tool.version, permitted=False, why=tool.too_old)
    if not devices or counters is None:
        return Profiler(tool.path, tool.version)
    known = counter_permission.expected(counters, devices[0], tool)
    return Profiler(tool.path, tool.version, known.permitted, known.why)


def python_path() -> tuple[str, ...]:
    """Return folders in which this Python looks for modules, without its own installation's and ours."""
    ours = PACKAGE.parent
    installed = {Path(prefix) for prefix in (sys.prefix, sys.base_prefix, sys.exec_prefix)}
    paths = [Path(entry) for entry in sys.path if entry and Path(entry).is_dir()]
    return tuple(
        str(folder)
        for folder in dict.fromkeys(paths)
        if folder != ours and not any(folder.is_relative_to(prefix) for prefix in installed - {Path("/")})
    )


def devices(first: int, count: int) -> tuple[Device, ...]:
    """Return this many GPUs of this machine, from number `first` on, as NVML counts. Return none if it has fewer."""
    chosen = tuple(device for device in all_devices() if first <= device.index < first + count)
    return chosen if len(chosen) == count else ()


def device(index: int) -> Device | None:
    """Return the GPU a job runs on."""
    return next((each for each in all_devices() if each.index == index), None)


_devices: tuple[Device, ...] = ()


def all_devices() -> tuple[Device, ...]:
    """Return the GPUs with NVML's names, and what only the driver knows (the L2's size).

    They are kept once there are any: starting NVML costs tens of milliseconds, and a job waits for this.
    """
    global _devices  # noqa: PLW0603 - one machine, one process
    _devices = _devices or _look_for_devices()
    return _devices


def _look_for_devices() -> tuple[Device, ...]:
    driver = driver_devices()
    listed = telemetry.devices()
    if len(listed) != len(driver):  # CUDA_VISIBLE_DEVICES hides some from the driver
        return listed or driver
    return tuple(_completed(of_nvml, of_driver) for of_nvml, of_driver in zip(listed, driver, strict=True))


def _completed(listed: Device, driver: Device) -> Device:
    """Return a GPU of NVML's list with what only the driver knows: its L2, and how much of it an instance (MIG) has."""
    if driver.name == listed.name:
        return replace(listed, l2_bytes=driver.l2_bytes)
    if driver.name.startswith(f"{listed.name} MIG "):
        return replace(
            listed, name=driver.name, multiprocessors=driver.multiprocessors, memory=driver.memory, l2_bytes=driver.l2_bytes,
            bus_width_bits=driver.bus_width_bits,
        )  # fmt: skip
    return listed


@lru_cache
def driver_devices() -> tuple[Device, ...]:
    """Return the GPUs in the driver's own list. It knows what NVML does not, and needs no package.

    A separate process asks once: the worker forks, and CUDA does not survive a fork.
    """
    if sys.platform == "linux" and not any(path.exists() for path in map(Path, _NODES)):
        return ()  # a fifth of a second less where there is no GPU
    command = [sys.executable, "-P", str(MAIN), "devices"]
    try:
        listed = codec.read_json(tool_output.ask(command, timeout_s=_DRIVER_S).stdout)
    except (OSError, subprocess.TimeoutExpired, ValueError):
        return ()
    return tuple(Device(**fields) for fields in listed)


def list_devices(arguments: list[str]) -> int:
    """Ask the driver, as a separate process, and print JSON on standard output."""
    del arguments
    print(json.dumps([asdict(device_listed) for device_listed in _ask_driver()]))
    return 0


def _ask_driver() -> tuple[Device, ...]:
    try:
        driver = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return ()
    count = ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
        return ()
    return tuple(_driver_device(driver, index) for index in range(count.value))


def _driver_device(driver: ctypes.CDLL, index: int) -> Device:
    name = ctypes.create_string_buffer(128)
    memory = ctypes.c_size_t()
    driver.cuDeviceGetName(name, len(name), index)
    driver.cuDeviceTotalMem_v2(ctypes.byref(memory), index)
    values: dict[str, int] = {}
    for what, attribute in _CU_ATTRIBUTES.items():
        value = ctypes.c_int()
        if not driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, index):
            values[what] = value.value
    major, minor = values.pop("major", None), values.pop("minor", None)
    capability = None if major is None or minor is None else f"{major}.{minor}"
    return Device(
        name.value.decode(errors="replace"),
        index,
        capability,
        memory=memory.value or None,
        multiprocessors=values.get("multiprocessors"),
        l2_bytes=values.get("l2_bytes"),
        bus_width_bits=values.get("bus_width_bits"),
    )


@lru_cache(maxsize=1)
def _versions(changed: tuple[int, ...]) -> dict[str, str | None]:
    """Return the versions of our PACKAGES. They are read again when a folder of packages has changed, because each
    command would wait 6 ms for it.
    """
    del changed
    return {name: _version(name) for name in PACKAGES}


def _changed(folder: str) -> int:
    """Return when something was last installed or removed in a folder."""
    try:
        return Path(folder).stat().st_mtime_ns
    except OSError:
        return 0


def _version(distribution: str) -> str | None:
    from importlib import metadata  # a tenth of a worker's start, and few jobs ask for versions

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _python() -> str:
    return ".".join(map(str, sys.version_info[:3]))
