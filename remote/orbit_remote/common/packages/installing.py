"""How packages get into a Python, as a command that works there: of pip, of uv if there is no pip, of conda."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.machinery import PathFinder
from pathlib import Path

from orbit_remote.common import limits, regular_files

INSTEAD = "ORBIT_PACKAGES"
"""The variable that says to jobs how their Python gets packages, where no command here does: `{}` stands for the packages."""
CUDA = "cuda-toolkit[cccl,crt,cudart,cupti,nvcc,nvvm]>=13.0.2,<14"
"""The compiler of the extra `cuda` in pyproject.toml."""
_PACKAGES = ("lib/python3*/site-packages", "lib/python3/dist-packages", "local/lib/python3*/dist-packages", "Lib/site-packages")  # fmt: skip
_LIBRARIES = ("lib/python3*", "Lib")
_COMMAND = "`orbit-lsp "
_OWN_ENVIRONMENT = "python3 -m venv .venv && .venv/bin/python -m pip install"


def remedy(python: str, *packages: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return how the Python of a job gets these packages, for a sentence. `environment` is that of the job's client."""
    if instead := environment.get(INSTEAD):
        return instead.replace("{}", ", ".join(packages))
    return command(python, *packages, environment=environment)


def command(python: str, *packages: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return the command that installs these packages into that Python. Its programs are those of PATH in
    `environment`.
    """
    return f"{installer(python, environment)} {' '.join(map(quoted, packages))}"


def installer(python: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return the beginning of that command, before the packages. Reads folders, and starts nothing."""
    prefix, base = _prefixes(python)
    if prefix == base and _any_file(base, _LIBRARIES, "EXTERNALLY-MANAGED"):
        return _OWN_ENVIRONMENT  # the system's own Python takes no packages
    starts_another = not _any_file(base, _LIBRARIES, "os.py")  # a script of pyenv's: its folder tells nothing
    if starts_another or _has_pip(python, prefix, base):
        return f"{quoted(python)} -m pip install"
    if uv := _uv(python, environment):
        return f"{quoted(uv)} pip install --python {quoted(python)}"
    if (prefix / "conda-meta").is_dir():
        return f"conda install -p {quoted(str(prefix))} pip && {quoted(python)} -m pip install"
    if _any_file(base, _LIBRARIES, "ensurepip/__init__.py"):
        return f"{quoted(python)} -m ensurepip && {quoted(python)} -m pip install"
    return f"install uv (https://docs.astral.sh/uv), then: uv pip install --python {quoted(python)}"


def optional(name: str) -> str:
    """Return the command that adds the packages of an extra of orbit-lsp to this Python. It has their names, since no
    index may have orbit-lsp.
    """
    from importlib import metadata

    try:
        requirements = metadata.requires("orbit-lsp") or []
    except metadata.PackageNotFoundError:
        requirements = []
    wanted = [
        each.partition(";")[0].strip()
        for each in requirements
        if re.search(rf"""extra == ["']{name}["']""", each)
    ]
    return command(sys.executable, *(wanted or [f"orbit-lsp[{name}]"]))


def located(text: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return a text with `orbit-lsp` as it is typed here: by its path if PATH has none (one on PATH may be a script
    around this one). Only orbit-lsp's own Python can tell.
    """
    if _COMMAND not in text or shutil.which("orbit-lsp", path=environment.get("PATH", os.defpath)):
        return text
    beside = Path(sys.executable).with_name("orbit-lsp.exe" if os.name == "nt" else "orbit-lsp")
    typed = quoted(str(beside)) if beside.exists() else f"{quoted(sys.executable)} -P -m orbit_lsp"
    return text.replace(_COMMAND, f"`{typed} ")


def quoted(word: str) -> str:
    """Quote a word for a shell."""
    return subprocess.list2cmdline([word]) if os.name == "nt" else shlex.quote(word)


def _prefixes(python: str) -> tuple[Path, Path]:
    """Return the folder of a Python's environment, and of the installation that it is made from: the same if it is no
    environment.
    """
    prefix = Path(python).absolute().parent.parent  # not resolved: a virtual environment's Python is a link
    if home := _settings(prefix).get("home"):
        return prefix, Path(home).parent
    resolved = Path(os.path.realpath(python)).parent.parent
    return (prefix, prefix) if _any_file(prefix, _LIBRARIES, "os.py") else (resolved, resolved)


def _settings(prefix: Path) -> dict[str, str]:
    """Return the settings of pyvenv.cfg. Return none if there is no such file."""
    try:
        lines = regular_files.text(prefix / "pyvenv.cfg", limits.STATE).splitlines()
    except (OSError, ValueError):
        return {}
    return {name.strip().lower(): value.strip() for name, _, value in (line.partition("=") for line in lines)}


def _has_pip(python: str, prefix: Path, base: Path) -> bool:
    if python == sys.executable:
        # by the path alone: setuptools' own finder, asked for pip, gives up its distutils for the whole process
        return PathFinder.find_spec("pip") is not None
    sees_base = _settings(prefix).get("include-system-site-packages", "").lower() == "true"
    return (
        _any_file(prefix, _PACKAGES, "pip/__init__.py")
        or _any_file(prefix, _PACKAGES, "pipx_shared.pth")  # pipx shares one pip
        or (sees_base and _any_file(base, _PACKAGES, "pip/__init__.py"))
    )


def _uv(python: str, environment: Mapping[str, str]) -> str | None:
    """Return uv: on PATH, beside the Python, or where its installer puts it."""
    if shutil.which("uv", path=environment.get("PATH", os.defpath)):
        return "uv"
    name = "uv.exe" if os.name == "nt" else "uv"
    home = environment.get("HOME") or environment.get("USERPROFILE") or os.sep
    folders = (Path(python).absolute().parent, Path(home, ".local", "bin"), Path(home, ".cargo", "bin"))
    return next((str(folder / name) for folder in folders if os.access(folder / name, os.X_OK)), None)


def _any_file(prefix: Path, folders: tuple[str, ...], name: str) -> bool:
    return any((folder / name).is_file() for folder in _found(prefix, folders))


def _found(prefix: Path, patterns: tuple[str, ...]) -> Iterator[Path]:
    for pattern in patterns:
        yield from prefix.glob(pattern)
