"""Finds what provides a module that a file cannot import: the project itself, or a package, which often has another
name.
"""

from __future__ import annotations

import ast
import contextlib
import linecache
import os
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

from orbit_remote.common.packages import installing

_MOST_FOLDERS = 12
"""How far up a file's own project is looked for."""

_PACKAGES = {
    "OpenGL": "PyOpenGL", "PIL": "pillow", "attr": "attrs", "bs4": "beautifulsoup4", "cuda": "cuda-python", "cuda.bindings": "cuda-bindings",
    "cuda.cccl": "cuda-cccl[cu13]", "cuda.compute": "cuda-cccl[cu13]", "cuda.coop": "cuda-cccl[cu13]", "cuda.core": "cuda-core",
    "cuda.tile": "cuda-tile[tileiras]", "cudnn": "nvidia-cudnn-frontend", "cupy": "cupy-cuda13x", "cupyx": "cupy-cuda13x",
    "cutlass": "nvidia-cutlass-dsl", "cv2": "opencv-python", "dotenv": "python-dotenv", "fla": "flash-linear-attention",
    "flash_attn": "flash-attn", "flashinfer": "flashinfer-python", "git": "GitPython", "google.protobuf": "protobuf", "mpl_toolkits": "matplotlib",
    "numba.cuda": "numba-cuda", "nvmath": "nvmath-python[cu13]", "pynvml": "nvidia-ml-py", "skimage": "scikit-image", "sklearn": "scikit-learn",
    "tvm_ffi": "apache-tvm-ffi", "warp": "warp-lang", "yaml": "pyyaml",
}  # fmt: skip
"""Modules that files of kernels import and that come in packages of other names."""


def install(package: str, condition: str = "") -> str:
    """Return how this Python gets a package, if `condition` holds."""
    remedy = installing.remedy(sys.executable, package)
    if installing.INSTEAD not in os.environ:
        return f"{remedy}{condition}, or set `orbit.python` to the Python that has it"
    return f"{remedy}{condition}" if package in remedy else remedy


def remedy(error: ImportError, path: str) -> str:
    """Return what would provide what a file imports. That is the project itself if it is a package of it, else a
    package of that name, else another version of the one that is there. Looks into the folders above the file.
    """
    module = error.name or ""
    top = module.partition(".")[0]
    if not top:
        return ""
    known = getattr(sys.modules.get(top), "__file__", None) or ""
    for folder in list(Path(path).parents)[:_MOST_FOLDERS]:
        if known and not Path(known).is_relative_to(folder):
            continue  # what is imported under that name is installed elsewhere
        if not any((folder / name).is_file() for name in ("pyproject.toml", "setup.py")):
            continue
        if any(
            (folder / under / top).is_dir() or (folder / under / f"{top}.py").is_file()
            for under in ("", "src")
        ):
            return f"{top} is a package of this project: {installing.installer(sys.executable)} -e {installing.quoted(str(folder))} builds and installs it"
    wanted = next((name for name in _imported(error) if name in _PACKAGES), module)
    if isinstance(error, ModuleNotFoundError) and (top == module or wanted in _PACKAGES):
        return install(
            _PACKAGES.get(wanted, top), "" if wanted in _PACKAGES else ", if that is the package's name"
        )
    return f"this file needs another version of {top} than {sys.executable} has"


def _imported(error: ImportError) -> Iterator[str]:
    """Yield the names that the failed statement imports, the longest form of each first: for `import cuda.tile` the
    exception names only `cuda`.
    """
    module = error.name or ""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith("<frozen")]
    names: list[str] = []
    with contextlib.suppress(ValueError, RecursionError):
        text = "".join(linecache.getlines(frames[-1].filename)) if frames else ""
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.Import | ast.ImportFrom) or frames[-1].lineno != node.lineno:
                continue
            above = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            names += [f"{above}{alias.name}" for alias in node.names]
    for name in names:
        while name == module or name.startswith(f"{module}."):
            yield name
            name = name.rpartition(".")[0]  # noqa: PLW2901 - one shorter
    yield module
