"""Loads extensions of torch that were built before the job: `torch.utils.cpp_extension` stores them in one process
and loads them in another.

Only what a text builds from its own strings is stored: the content of folders to include may change.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import json
import os
import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from orbit_remote.common import limits, regular_files
from orbit_remote.common import messages as c
from orbit_remote.common.contracts import harness_files

_OF_THE_PLACE: Final = ("build_directory", "sources", "verbose")
_kept: dict[str, ModuleType] = {}
"""Setuptools and what it imports, by name: imported, and in no job's sight but those with extensions."""
_kept_path: list[str] = []


def keep_setuptools() -> None:
    """Import what takes most of the 0.2 s that torch's builder takes (which itself starts CUDA), and hide it.
    setuptools replaces distutils, and makes its own copies of other packages importable.
    """
    before, path, finders = dict(sys.modules), sys.path[:], sys.meta_path[:]
    with contextlib.suppress(Exception):
        importlib.import_module("setuptools")
    new = {name: module for name, module in sys.modules.items() if before.get(name) is not module}
    _kept.update({name: module for name, module in new.items() if not _is_of_python(name)})
    _kept_path[:] = [place for place in sys.path if place not in path]
    for name in _kept:
        del sys.modules[name]
    sys.modules.update(before)
    sys.path[:], sys.meta_path[:] = path, finders


def _is_of_python(name: str) -> bool:
    """Say whether a module is of the standard library, and not distutils, which setuptools replaces."""
    package = name.partition(".")[0]
    return package in sys.stdlib_module_names and package != "distutils"


def load_from_named() -> None:
    """Load from the folder that the job's environment names, if it does."""
    if folder := os.environ.get(harness_files.EXTENSIONS):
        sys.modules.update({name: module for name, module in _kept.items() if name not in sys.modules})
        sys.path += _kept_path
        install(Path(folder), store=False)


def install(folder: Path, *, store: bool) -> None:
    """Copy every extension that is built from now on to `folder`, or load it from there if it is there. A torch that
    builds in another way is not changed.
    """
    with contextlib.suppress(Exception):
        extension: Any = importlib.import_module("torch.utils.cpp_extension")
        original, load = extension._jit_compile, extension._import_module_from_library  # noqa: SLF001
        signature = inspect.signature(original)
        named: set[str] = set()

        def built(*args: Any, **kwargs: Any) -> Any:
            given = signature.bind(*args, **kwargs)
            given.apply_defaults()
            values: dict[str, Any] = given.arguments
            name = str(values["name"])
            key = "" if name in named else _key(extension.torch.__version__, values)
            named.add(name)  # torch gives the second of a name another one
            kept = folder / key / f"{name}.so"
            if key and not store and kept.is_file():
                return load(name, str(kept.parent), values["is_python_module"])
            module = original(*args, **kwargs)
            if key and store:
                with contextlib.suppress(OSError):
                    kept.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(Path(values["build_directory"]) / kept.name, kept)
            return module

        extension._jit_compile = built  # noqa: SLF001


def _key(version: str, values: dict[str, Any]) -> str:
    """Return a key of everything that the library is made of. Return "" if that cannot be told."""
    try:
        if values["extra_include_paths"] or values["is_standalone"]:
            return ""
        sources = [regular_files.text(source, limits.SOURCE) for source in values["sources"]]
    except (OSError, KeyError):
        return ""
    flags = [(name, str(values[name])) for name in sorted(values) if name not in _OF_THE_PLACE]
    key = json.dumps([version, sys.version, flags, sources])
    return c.content_hash(key.encode("utf-8", "surrogatepass"))[:32]
