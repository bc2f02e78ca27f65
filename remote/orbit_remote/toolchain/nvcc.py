"""Finds a CUDA compiler that works, or what is missing."""

from __future__ import annotations

import os
import re
import shutil
import site
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path

from orbit_remote.common import plain_text
from orbit_remote.common.architectures import architecture_of
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.messages import Failure
from orbit_remote.common.packages import installing
from orbit_remote.process import client_environment, disk_space, tool_output

__all__ = ["PROBE_LIMIT_S", "Nvcc", "architecture_of", "candidates", "examine", "find"]

PROBE_LIMIT_S = 20.0
"""How long `nvcc --version` may take; it takes some milliseconds, more on a cold network drive."""

SYSTEM = Path("/usr/local/cuda")
_NVCC = "nvcc.exe" if os.name == "nt" else "nvcc"
_REINSTALL = "reinstall the CUDA toolkit, or set `nvcc` to one that works"
_Signature = tuple[str, int, int]
_known: dict[tuple[_Signature, str], Nvcc] = {}


@dataclass(frozen=True, slots=True)
class Nvcc:
    """A compiler that works. `root` is its toolkit's folder, even if PATH has a script that starts it."""

    path: str
    version: str
    root: str
    host_compiler: str
    host_version: str

    @property
    def toolchain(self) -> dict[str, str]:
        return {"nvcc": self.version, "host compiler": self.host_version}


def find(setting: str | None = None, *, python: str | None = None) -> Nvcc | Failure:
    """Return the first nvcc of: the setting, CUDA_HOME, CUDA_PATH, PATH, /usr/local/cuda, the PyPI wheels.

    The wheels are looked for beside `python`, then beside this Python. If one is found but does not work, that is a
    failure and no reason to take another: the user would not know which one compiled. It blocks for about 100 ms the
    first time.
    """
    if sys.platform == "darwin":
        return Failure(
            "infrastructure",
            "there is no CUDA compiler for macOS: NVIDIA's support ended with CUDA 10.2",
            "use a machine with Linux or Windows to compile CUDA",
        )
    path = _from_setting(setting) if setting else next(candidates(client_environment.current(), python), None)
    if path:
        return examine(path)
    if setting:
        return Failure(
            "infrastructure",
            f"the setting `nvcc` names {setting}, and there is no nvcc",
            "set it to the path of nvcc or of a CUDA toolkit, or clear it to search the usual places",
        )
    return Failure(
        "infrastructure",
        "no CUDA compiler (nvcc) was found",
        f"{_from_wheels(python)} (or install NVIDIA's CUDA toolkit and set CUDA_HOME)",
    )


def _from_wheels(python: str | None) -> str:
    return installing.command(
        python or sys.executable, installing.CUDA, environment=client_environment.current()
    )


def candidates(environment: Mapping[str, str], python: str | None = None) -> Iterator[Path]:
    """Yield every existing nvcc in the order of preference."""
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if (root := environment.get(name)) and (path := Path(root, "bin", _NVCC)).is_file():
            yield path
    if on_path := shutil.which("nvcc", path=environment.get("PATH", "")):
        yield Path(on_path)
    if (path := Path(SYSTEM, "bin", _NVCC)).is_file():
        yield path
    for folder in site_packages(python):
        for path in sorted(folder.glob(f"nvidia/cu1[3-9]/bin/{_NVCC}"), reverse=True):
            root = path.parent.parent  # other packages bring some of the wheels; nvcc alone compiles nothing
            if (root / "include" / "cuda_runtime.h").is_file() and (root / "nvvm" / "bin").is_dir():
                yield path


def _from_setting(setting: str) -> Path | None:
    path = Path(setting).expanduser()
    if path.is_dir():
        path = path / "bin" / _NVCC
    if path.is_file():
        return path
    on_path = None if "/" in setting or "\\" in setting else client_environment.which(setting)
    return Path(on_path) if on_path else None


def site_packages(python: str | None = None) -> Iterator[Path]:
    if python:
        prefix = Path(python).parent.parent  # not resolved: a virtual environment's python is a link
        yield from prefix.glob("lib/python3*/site-packages")
        yield from prefix.glob("Lib/site-packages")
    folders = [
        sysconfig.get_path("purelib"),
        sysconfig.get_path("platlib"),
        site.getusersitepackages(),
        *sys.path,
    ]
    for folder in dict.fromkeys(f for f in folders if f.endswith("-packages")):
        yield Path(folder)


def examine(path: Path) -> Nvcc | Failure:
    """Ask an nvcc what it is. The answer is kept until the file or the search path changes."""
    try:
        status = path.stat()
    except OSError as error:
        return Failure("infrastructure", f"{path} cannot be used: {error.strerror}", _REINSTALL)
    key = ((str(path), status.st_mtime_ns, status.st_size), client_environment.current().get("PATH", ""))
    if key not in _known:
        answer = _ask(path)
        if isinstance(answer, Failure):
            return answer
        _known[key] = answer
    return _known[key]


def _ask(path: Path) -> Nvcc | Failure:
    if failure := _no_host_compiler():
        return failure
    try:
        status, words = _output_of([str(path), "--version"])
        _, plan = _output_of([str(path), "--dryrun", "-cubin", "-o", "x.cubin", "x.cu"])
        _, host = _output_of(["cl"] if os.name == "nt" else ["g++", "--version"])
    except subprocess.TimeoutExpired as error:
        return Failure(
            "infrastructure",
            f"{' '.join(map(str, error.cmd[:2]))} did not answer within {PROBE_LIMIT_S:g} s",
            "try it in a terminal: a network drive or a wrapper script may be hanging",
        )
    except PermissionError:
        return Failure("infrastructure", f"{path} is not executable", f"chmod +x {path}")
    except OSError as error:
        return Failure("infrastructure", f"{path} cannot be started: {error.strerror or error}", _REINSTALL)
    version = re.search(r"release [\d.]+, V([\d.]+)", words)
    if re.search(r"^nvcc fatal", plan, re.MULTILINE) and disk_space.full(disk_space.temporary()):
        return disk_space.no_temporary()
    if status != 0 or not version:
        lines = words.strip().splitlines()
        return Failure(
            "infrastructure",
            f"{path} --version failed with status {status}: {lines[-1] if lines else 'it said nothing'}",
            _REINSTALL,
        )
    if failed := re.search(r"^nvcc fatal\s+: (.*host compiler.*)$", plan, re.MULTILINE):
        return Failure("infrastructure", f"{path}: {failed[1]}", _host_remedy())
    root = re.search(r"^#\$ TOP=(.*)$", plan, re.MULTILINE)
    return Nvcc(
        str(path),
        version[1],
        os.path.normpath(root[1]) if root else str(path.parent.parent),
        client_environment.which("cl" if os.name == "nt" else "g++") or "",
        next(iter(host.strip().splitlines()), "unknown"),
    )


@lru_cache(maxsize=16)
def numbers(compiler: Nvcc) -> frozenset[str]:
    """Return the numbers of the architectures that a compiler has code for: `90`, also for `sm_90a`. Return none if
    it does not list them, as before CUDA 11. It asks the compiler, which takes about 10 ms.
    """
    try:
        status, words = _output_of([compiler.path, "--list-gpu-code"])
    except (OSError, subprocess.TimeoutExpired):
        return frozenset()
    return frozenset(re.findall(r"^sm_(\d+)", words, re.MULTILINE) if status == 0 else ())


def _output_of(command: list[str]) -> tuple[int, str]:
    """Run to the end: (status, stdout and stderr). Raises OSError and TimeoutExpired, leaving nothing behind."""
    answer = tool_output.ask(command, timeout_s=PROBE_LIMIT_S)
    return answer.status, plain_text.plain(f"{answer.stdout}\n{answer.stderr}")


def _no_host_compiler() -> Failure | None:
    needed = ("cl",) if os.name == "nt" else ("gcc", "g++")
    missing = [name for name in needed if client_environment.which(name) is None]
    if not missing:
        return None
    return Failure(
        "infrastructure",
        f"nvcc needs a C++ compiler beside it, and there is no {missing[-1]} on PATH",
        _host_remedy(),
    )


def _host_remedy() -> str:
    if os.name == "nt":
        return "install Visual Studio's C++ build tools and start the editor from their developer prompt"
    for manager, command in (
        ("apt-get", "sudo apt-get install g++"),
        ("dnf", "sudo dnf install gcc-c++"),
        ("pacman", "sudo pacman -S gcc"),
        ("zypper", "sudo zypper install gcc-c++"),
    ):
        if client_environment.which(manager):
            return command
    return "install GCC's C++ compiler (g++)"
