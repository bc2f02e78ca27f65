"""Finds headers that are installed: the CUDA toolkit's, the system's, and those of packages of the chosen Python.

Nothing is started: a Python's packages are seen in its folders, so this may be done for a Python that is not trusted.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import field
from functools import lru_cache
from pathlib import Path

from orbit_lsp.compilation.folders import folders_above
from orbit_remote.common import regular_files
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.limits import BUILD_FILE

_OF_TORCH = re.compile(r"(?:torch|ATen|c10|caffe2)/.*")
_SYSTEM = ("/usr/local/include", "/usr/include")
_STANDARD_FLAG = re.compile(r"['\"]-std=(c\+\+\d\w)['\"]")
INCOMPATIBLE = (
    "-D__CUDA_NO_HALF_OPERATORS__", "-D__CUDA_NO_HALF_CONVERSIONS__", "-D__CUDA_NO_BFLOAT16_CONVERSIONS__",
    "-D__CUDA_NO_HALF2_OPERATORS__",
)  # fmt: skip
"""With these `half` has no operators: torch's headers have their own."""
_TORCH_FLAGS = (*INCOMPATIBLE, "--expt-relaxed-constexpr", "-DTORCH_API_INCLUDE_EXTENSION_H")
"""What torch.utils.cpp_extension gives nvcc for every extension (COMMON_NVCC_FLAGS)."""


@dataclass(frozen=True, slots=True)
class Package:
    """A package. `folders` are its include folders; a file that uses it needs all of them. `flags` come with them."""

    name: str
    folders: tuple[str, ...]
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _PackageFolder:
    """A folder with packages, and the include folders of those that are not known by name."""

    folder: str
    prefix: str
    others: tuple[str, ...]


@dataclass(slots=True)
class InstalledHeaders:
    """What can be included on this machine besides the workspace. `pythons` are the prefixes of the Pythons whose
    packages count, the chosen one first. `nvcc` is the compiler's path, if it is known. Folders are listed once.
    """

    pythons: tuple[str, ...] = ()
    nvcc: str | None = None
    _has: dict[str, bool] = field(default_factory=dict[str, bool])
    _sites: list[_PackageFolder] | None = None
    _places: list[str] | None = None

    def toolkit_or_system(self, name: str) -> bool:
        """Say whether nvcc finds `#include <name>` without flags. Reads folders."""
        if name not in self._has:
            self._has[name] = _is_standard(name) or any(
                os.path.isfile(os.path.join(folder, name))
                for folder in (*_toolkits(self.nvcc), *_compiler_folders())
            )
        return self._has[name]

    def has_toolkit(self) -> bool:
        """Say whether a CUDA toolkit is on this machine. If so, its folders show what it has."""
        return any(os.path.isfile(os.path.join(folder, "cuda_runtime.h")) for folder in _toolkits(self.nvcc))

    def package(self, name: str) -> Package | None:
        """Return the installed package that has the header `name`. Reads folders."""
        if self._sites is None or self._places is None:
            self._sites = [_site(each, prefix) for prefix in self.pythons for each in _site_packages(prefix)]
            self._places = _common_places()
        for site in self._sites:
            if package := _of_site(site, name):
                return package
        if name == "Python.h" and (folder := python_headers(self.pythons)):
            return Package("Python", (folder,))
        return next(
            (
                Package(os.path.basename(folder) or folder, (folder,))
                for folder in self._places
                if os.path.isfile(os.path.join(folder, name))
            ),
            None,
        )


def prefixes(pythons: Sequence[str]) -> tuple[str, ...]:
    """Return the folders that hold these Pythons' packages, those of the server's own Python last."""
    folders = [os.path.dirname(os.path.dirname(python)) for python in pythons if os.path.dirname(python)]
    return tuple(dict.fromkeys(each for each in (*folders, sys.prefix) if os.path.isdir(each)))


def folders_outside(pythons: Sequence[str]) -> tuple[str, ...]:
    """Return the folders that change when a package is installed. Reads folders."""
    sites = [site for prefix in pythons for site in _site_packages(prefix)]
    return tuple(dict.fromkeys((*sites, *_SYSTEM, *_common_places())))


def venvs(path: str, root: str) -> Iterator[str]:
    """Yield the Pythons of virtual environments in the folders above a file, up to the root; the nearest first."""
    for folder in folders_above(path, root):
        for name in (".venv", "venv"):
            python = os.path.join(folder, name, "bin", "python")
            if os.path.isfile(os.path.join(folder, name, "pyvenv.cfg")) or os.path.isfile(python):
                yield python


def python_headers(pythons: Sequence[str]) -> str | None:
    """Return the folder of Python.h of the first of these Pythons that has one. A virtual environment has that of its
    base.
    """
    for prefix in pythons:
        for base in (prefix, *_base(prefix)):
            for pattern in ("include/python3*", "include", "Include"):
                for folder in sorted(glob.glob(os.path.join(glob.escape(base), pattern)), reverse=True):
                    if os.path.isfile(os.path.join(folder, "Python.h")):
                        return folder
    return next((os.path.dirname(each) for each in sorted(glob.glob("/usr/include/python3*/Python.h"))), None)


def _base(prefix: str) -> Iterator[str]:
    if match := re.search(r"^home[ \t]*=(.+)$", _venv(prefix), re.MULTILINE):
        home = match[1].strip()
        yield os.path.dirname(home)
        yield os.path.dirname(os.path.dirname(os.path.realpath(os.path.join(home, "python3"))))


def _venv(prefix: str) -> str:
    """Return the text of pyvenv.cfg. Return "" if the folder is no virtual environment."""
    try:
        return regular_files.text(os.path.join(prefix, "pyvenv.cfg"), BUILD_FILE)
    except (OSError, ValueError):
        return ""


def _site_packages(prefix: str) -> list[str]:
    """Return the folders from which the Python of `prefix` imports packages: its own, those that a `.pth` of them
    names, and its base's and the user's. An isolated virtual environment does not have the last two.
    """
    configured = _venv(prefix)
    inherits = re.search(
        r"^include-system-site-packages[ \t]*=[ \t]*true", configured, re.IGNORECASE | re.MULTILINE
    )
    bases = dict.fromkeys((prefix, *(_base(prefix) if inherits else ())))
    patterns = [f"{glob.escape(base)}/{each}" for base in bases for each in _SITES]
    if inherits or not configured:
        patterns.append(f"{glob.escape(os.path.expanduser('~'))}/.local/lib/python3*/site-packages")
    sites = [site for pattern in patterns for site in sorted(glob.glob(pattern))]
    return list(dict.fromkeys(each for site in sites for each in (site, *_named_by_pth(site))))


_SITES = ("lib/python3*/site-packages", "Lib/site-packages", "local/lib/python3*/dist-packages", "lib/python3*/dist-packages")  # fmt: skip
"""dist-packages are Debian's, and those of NVIDIA's containers."""


def _named_by_pth(site: str) -> Iterator[str]:
    for file in sorted(glob.glob(f"{glob.escape(site)}/*.pth")):
        try:
            lines = regular_files.text(file, BUILD_FILE).splitlines()
        except (OSError, ValueError):
            continue
        for line in lines:
            folder = os.path.join(site, line.strip())
            if line.strip() and not line.startswith(("#", "import ")) and os.path.isdir(folder):
                yield folder


def _site(folder: str, prefix: str) -> _PackageFolder:
    patterns = ("nvidia/cu1*/include", "nvidia/*/include", "cutlass_library/source/include", "*/include")
    listed = (glob.glob(os.path.join(glob.escape(folder), pattern)) for pattern in patterns)
    return _PackageFolder(
        folder, prefix, tuple(each for found in listed for each in sorted(found, reverse=True))
    )


def _of_site(place: _PackageFolder, name: str) -> Package | None:
    site, prefix = place.folder, place.prefix

    def has(folder: str) -> bool:
        return os.path.isfile(os.path.join(site, folder, name))

    torch = "torch/include"
    api = f"{torch}/torch/csrc/api/include"
    if (_OF_TORCH.fullmatch(name) or name.startswith("pybind11/")) and (has(torch) or has(api)):
        flags = torch_flags(site) if _OF_TORCH.fullmatch(name) else ()
        folders = [os.path.join(site, torch), os.path.join(site, api)]
        headers = python_headers((prefix,)) or python_headers(())
        return Package("torch", (*folders, *([headers] if headers else [])), flags)
    for folder in ("pybind11/include", "nanobind/include", "numpy/_core/include", "numpy/core/include"):
        if has(folder):
            headers = python_headers((prefix,))
            more = [headers] if headers else []
            return Package(folder.partition("/")[0], (os.path.join(site, folder), *more))
    for folder in place.others:
        if os.path.isfile(os.path.join(folder, name)):
            brought = sorted(
                glob.glob(f"{glob.escape(os.path.dirname(folder))}/external/*/include")
            )  # MathDx: CUTLASS
            return Package(os.path.relpath(folder, site).replace(os.sep, "/"), (folder, *brought))
    return None


def nvidia_folders(pythons: Sequence[str]) -> tuple[str, ...]:
    """Return the include folders of NVIDIA's wheels. They come with torch from PyPI, with the headers of the
    libraries that it uses.
    """
    folders: list[str] = []
    for prefix in pythons:
        for site in _site_packages(prefix):
            folders += sorted(glob.glob(os.path.join(glob.escape(site), "nvidia/*/include")), reverse=True)
    return tuple(folders)


@lru_cache(maxsize=8)
def torch_flags(site: str) -> tuple[str, ...]:
    """Return what torch's own extension builder gives nvcc. Its standard is read from the file that says it."""
    try:
        text = regular_files.text(os.path.join(site, "torch/utils/cpp_extension.py"), BUILD_FILE)
    except (OSError, ValueError):
        return (*_TORCH_FLAGS, "-std=c++17")
    named = _STANDARD_FLAG.findall(text)
    return (*_TORCH_FLAGS, f"-std={max(set(named), key=named.count) if named else 'c++17'}")


def _common_places() -> list[str]:
    """Return where headers of CUTLASS, CUDA's samples and the like are, and those of Debian's packages that no
    compiler looks in.
    """
    named = [os.environ.get(name, "") for name in ("CUTLASS_PATH", "CUTLASS_HOME", "CUTLASS_DIR")]
    places = [
        os.path.join(each, under) for each in named if each for under in ("include", "tools/util/include")
    ]
    for root in ("/usr/local", "/opt"):
        places += [
            f"{root}/cutlass/include",
            f"{root}/cuda/samples/common/inc",
            f"{root}/cuda-samples/Common",
        ]
    for system in _SYSTEM:
        places += [f"{system}/{each}" for each in ("eigen3", "opencv4", "hdf5/serial")]
    return [*places, *sorted(glob.glob("/usr/lib/*-linux-gnu*/openmpi/include"))]


def default_nvcc() -> str | None:
    """Return the nvcc that compiles if no setting names one, as far as that is known before a worker says it."""
    roots = (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"))
    placed = [os.path.join(root, "bin", "nvcc") for root in roots if root]
    on_path = shutil.which("nvcc")
    candidates = (*placed, *([on_path] if on_path else ()), "/usr/local/cuda/bin/nvcc")
    return next(filter(os.path.isfile, candidates), None)


@lru_cache(maxsize=4)
def _toolkits(nvcc: str | None) -> tuple[str, ...]:
    """Return the include folders that nvcc itself looks in."""
    named = [os.environ.get(name, "") for name in ("CUDA_HOME", "CUDA_PATH")]
    roots = [*named, "/usr/local/cuda", "/usr/lib/cuda"]
    if path := nvcc or shutil.which("nvcc"):
        roots.insert(0, str(Path(os.path.realpath(path)).parent.parent))
    toolkits: list[str] = []
    for root in filter(None, dict.fromkeys(roots)):
        toolkits += [os.path.join(root, "include"), os.path.join(root, "include", "cccl")]
        toolkits += glob.glob(os.path.join(glob.escape(root), "targets/*/include"))
    return tuple(toolkits)


@lru_cache(maxsize=1)
def _compiler_folders() -> tuple[str, ...]:
    """Return the folders in which GCC and the C library keep their headers."""
    patterns = (
        "/usr/include/c++/*", "/usr/include/*-linux-gnu*", "/usr/include/*-linux-gnu*/c++/*",
        "/usr/lib/gcc/*/*/include", "/usr/lib64/gcc/*/*/include",
    )  # fmt: skip
    return (*_SYSTEM, *(folder for pattern in patterns for folder in sorted(glob.glob(pattern))))


STANDARD = frozenset(
    [
        "assert",
        "complex",
        "ctype",
        "errno",
        "fenv",
        "float",
        "inttypes",
        "iso646",
        "limits",
        "locale",
        "math",
        "setjmp",
        "signal",
        "stdalign",
        "stdarg",
        "stdatomic",
        "stdbool",
        "stddef",
        "stdint",
        "stdio",
        "stdlib",
        "stdnoreturn",
        "string",
        "tgmath",
        "threads",
        "time",
        "uchar",
        "wchar",
        "wctype",
        "unistd",
        "memory",
        "malloc",
        "alloca",
        "process",
        "io",
        "strings",
        "search",
        "sched",
        "dirent",
        "fcntl",
        "semaphore",
        "poll",
        "pthread",
        "dlfcn",
    ]
)
"""The headers `name.h` of C and POSIX."""


def _is_standard(name: str) -> bool:
    """Say whether a header belongs to C or C++. Every compiler has it, wherever it keeps it."""
    return ("." not in name and "/" not in name) or (name.endswith(".h") and name[:-2] in STANDARD)
