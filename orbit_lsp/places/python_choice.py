"""Chooses the Python that runs the author's Triton, by one rule for the editor and the command line.

Nothing is started to find it. No name in a file leads out of the folders where the tools keep their environments.
What a folder contains or names is used only if the folder is trusted.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from orbit_remote.common import limits, regular_files
from orbit_remote.common.lazy_dataclass import dataclass

_PROGRAMS = ("bin/python", "Scripts/python.exe", "python.exe")
_NAME = re.compile(r"(?!\.+$)[\w.+-]+")


@dataclass(frozen=True, slots=True)
class PythonChoice:
    """A choice. `why` names what chose it. `ignored` are Pythons in untrusted folders that would have come before;
    `untrusted` is the folder of the first.
    """

    python: str
    why: str
    ignored: tuple[str, ...] = ()
    untrusted: str = ""


@dataclass(frozen=True, slots=True)
class _Candidate:
    python: Path
    why: str
    folder: Path | None
    """The folder that brings it along or names it; None where the user's environment does."""


def choose(
    setting: str,
    folders: Sequence[str],
    trusted: Callable[[str | Path], bool],
    environment: Mapping[str, str] = os.environ,
) -> PythonChoice:
    """Return the first Python that exists, in the order of `docs/guide/settings.md`."""
    if setting:
        return PythonChoice(str(Path(setting).expanduser()), "the setting `python`")
    ignored: dict[str, None] = {}
    untrusted = ""
    for candidate in _candidates(folders, environment):
        source = candidate.folder or _holding(folders, candidate.python)
        if candidate.python.parent == Path(sys.executable).parent:  # it runs already: no question of trust
            return PythonChoice(sys.executable, candidate.why, tuple(ignored), untrusted)
        if source is not None and not trusted(source):
            ignored[str(candidate.python)] = None
            untrusted = untrusted or str(source)
        else:
            return PythonChoice(str(candidate.python), candidate.why, tuple(ignored), untrusted)
    return PythonChoice(sys.executable, "the Python of orbit-lsp", tuple(ignored), untrusted)


def _holding(folders: Sequence[str], python: Path) -> Path | None:
    """Return the workspace folder in which a Python of the user's environment lies."""
    return next((Path(folder) for folder in folders if python.is_relative_to(folder)), None)


def _candidates(folders: Sequence[str], environment: Mapping[str, str]) -> Iterator[_Candidate]:
    places = list(dict.fromkeys(place for folder in folders for place in _project(Path(folder))))
    for place in places:
        yield from _in_folder(place, environment)
    if environment.get("CONDA_DEFAULT_ENV") != "base":
        yield from _active(environment, "CONDA_PREFIX")
    for place in places:
        yield from _named(place, _conda(place, environment), "environment.yml")
    for place in places:
        yield from _named(place, _pyenv(place, environment), ".python-version")
    for place in places:
        yield from _named(place, _poetry(place, environment), "Poetry's environment of pyproject.toml")
    yield from _active(environment, "VIRTUAL_ENV")


def _project(folder: Path) -> Iterator[Path]:
    """Yield a folder, and the folders above it in its project."""
    from orbit_lsp.compilation import projects

    top = Path(projects.project_of(str(folder)))
    yield folder
    yield from (above for above in folder.parents if above.is_relative_to(top))


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # ValueError: a folder of which a URI says what no path can hold
        return False


def _python_in(environment: Path) -> Path | None:
    for name in _PROGRAMS:
        try:
            if (path := environment / name).is_file():
                return path
        except (OSError, ValueError):
            return None
    return None


def _in_folder(place: Path, environment: Mapping[str, str]) -> Iterator[_Candidate]:
    uv = environment.get("UV_PROJECT_ENVIRONMENT", "")
    if uv and _exists(place / "pyproject.toml") and (python := _python_in(place / uv)):
        inside = not Path(uv).is_absolute()
        yield _Candidate(python, "UV_PROJECT_ENVIRONMENT", place if inside else None)
    for name in (".venv", "venv"):
        if python := _python_in(place / name):
            yield _Candidate(python, f"{name} of {place}", place)


def _active(environment: Mapping[str, str], variable: str) -> Iterator[_Candidate]:
    folder = environment.get(variable, "")
    if folder and Path(folder).is_absolute() and (python := _python_in(Path(folder))):
        yield _Candidate(python, f"{variable}, the active environment", None)


def _named(place: Path, environments: Iterator[Path], why: str) -> Iterator[_Candidate]:
    python = next((python for environment in environments if (python := _python_in(environment))), None)
    if python:
        yield _Candidate(python, f"{why} of {place}" if " of " not in why else f"{why} in {place}", place)


def _read(path: Path) -> str:
    try:
        return regular_files.text(path, limits.PROJECT)
    except (OSError, ValueError):
        return ""


def _home() -> Path | None:
    try:
        return Path.home()
    except RuntimeError:
        return None


def _conda(place: Path, environment: Mapping[str, str]) -> Iterator[Path]:
    """Yield where conda keeps the environment that `environment.yml` names."""
    home = _home()
    if home is None or not (name := _conda_name(place)):
        return
    listed = _read(home / ".conda" / "environments.txt").splitlines()  # conda's own list of all
    yield from (Path(line) for line in listed if Path(line).is_absolute() and Path(line).name == name)
    roots = [environment.get("MAMBA_ROOT_PREFIX", "")]
    if (conda := environment.get("CONDA_EXE", "")) and Path(conda).is_absolute():
        roots.append(str(Path(conda).parent.parent))
    yield from (Path(root, "envs", name) for root in roots if root and Path(root).is_absolute())
    yield from (
        home / root / "envs" / name for root in ("miniconda3", "miniforge3", "mambaforge", "anaconda3")
    )


def _conda_name(place: Path) -> str:
    text = _read(place / "environment.yml") or _read(place / "environment.yaml")
    match = re.search(r"^name:[ \t]*(['\"]?)([^\s'\"#]+)\1[ \t]*(?:#.*)?$", text, re.MULTILINE)
    return match[2] if match and _NAME.fullmatch(match[2]) else ""


def not_created(folders: Sequence[str], environment: Mapping[str, str] = os.environ) -> str:
    """Return how to create the conda environment that `environment.yml` names, in a line. Return "" if it exists, or
    none is named.
    """
    for place in dict.fromkeys(place for folder in folders for place in _project(Path(folder))):
        name = _conda_name(place)
        if not name or Path(environment.get("CONDA_PREFIX", "")).name == name:
            continue
        if not any(map(_python_in, _conda(place, environment))):
            file = "environment.yml" if _exists(place / "environment.yml") else "environment.yaml"
            return f"{file} names {name}, which is not on this machine: conda env create -f {place / file} (or mamba) creates it"
    return ""


def _pyenv(place: Path, environment: Mapping[str, str]) -> Iterator[Path]:
    """Yield pyenv's versions and virtual environments that `.python-version` names."""
    root = environment.get("PYENV_ROOT", "")
    home = _home()
    if not root and home is not None:
        root = str(home / ".pyenv")
    for line in _read(place / ".python-version").splitlines():
        if root and Path(root).is_absolute() and _NAME.fullmatch(name := line.strip()):
            yield Path(root, "versions", name)


def _poetry(place: Path, environment: Mapping[str, str]) -> Iterator[Path]:
    """Yield Poetry's virtual environments of a project, the newest Python first (`EnvManager.generate_env_name`)."""
    if not (text := _read(place / "pyproject.toml")):
        return
    import tomllib

    try:
        project: dict[str, Any] = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        return
    poetry, own = _table(_table(project, "tool"), "poetry"), _table(project, "project")
    name = poetry.get("name") or own.get("name")
    if "poetry" not in _table(project, "tool") or not isinstance(name, str):
        return
    if (folder := _poetry_folder(environment)) is None:
        return
    short = re.sub(r'[ $`!*@"\\\r\n\t]', "_", name.lower())[:42]
    where = os.path.normcase(os.path.realpath(place))
    digest = base64.urlsafe_b64encode(hashlib.sha256(where.encode("utf-8", "replace")).digest()).decode()[:8]
    if "/" in short or "\\" in short:
        return
    paths = folder.glob(f"{_literal(short)}-{_literal(digest)}-py3.*")
    yield from sorted(paths, key=lambda path: int((re.findall(r"\d+$", path.name) or ["0"])[0]), reverse=True)


def _table(tables: Mapping[str, Any], name: str) -> dict[str, Any]:
    table = tables.get(name)
    return cast("dict[str, Any]", table) if isinstance(table, dict) else {}


def _literal(text: str) -> str:
    return re.sub(r"([*?[])", r"[\1]", text)


def _poetry_folder(environment: Mapping[str, str]) -> Path | None:
    """Return where Poetry keeps virtual environments, by its variables or by default."""
    if folder := environment.get("POETRY_VIRTUALENVS_PATH", ""):
        return Path(folder) if Path(folder).is_absolute() else None
    cache = environment.get("POETRY_CACHE_DIR", "")
    home = _home()
    if not cache and home is not None:
        if os.name == "nt":
            cache = str(
                Path(environment.get("LOCALAPPDATA") or home / "AppData/Local") / "pypoetry" / "Cache"
            )
        elif sys.platform == "darwin":
            cache = str(home / "Library/Caches/pypoetry")
        else:
            cache = str(Path(environment.get("XDG_CACHE_HOME") or home / ".cache") / "pypoetry")
    return Path(cache, "virtualenvs") if cache and Path(cache).is_absolute() else None
