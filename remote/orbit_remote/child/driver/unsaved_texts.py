"""Replaces files on the disk by texts that an editor shows and has not saved: for imports, tracebacks, Triton and
pytest.
"""

from __future__ import annotations

import ast
import importlib.util
import linecache
import os
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from typing import Any

from orbit_remote.common import limits, regular_files


def saved(path: str) -> str:
    """Return the text of a source file as it is saved. Raises OSError, ValueError."""
    return regular_files.text(path, limits.SOURCE)


def different(folder: str, texts: Mapping[str, str]) -> dict[str, str]:
    """Return those of the texts that differ from what is saved, by absolute path. `texts` has paths in `folder`, with
    `/`.
    """
    changed: dict[str, str] = {}
    for place, text in texts.items():
        path = str(Path(folder, place))
        try:
            same = saved(path) == text
        except (OSError, ValueError):
            same = False  # it was never saved
        if not same:
            changed[path] = text
    return changed


def lay_over(texts: Mapping[str, str]) -> None:
    """Let this process read these texts, by absolute path, in place of the files. Nothing of them reaches the disk."""
    if not texts:
        return
    known = {_real(path): text for path, text in texts.items()}
    _know(texts)
    forget = linecache.clearcache

    def clearcache() -> None:
        forget()
        _know(texts)

    linecache.clearcache = clearcache
    sys.meta_path.insert(0, _Finder(known))
    if importlib.util.find_spec("pytest"):
        _teach_pytest(known)


def _know(texts: Mapping[str, str]) -> None:
    for path, text in texts.items():
        # no time of change: linecache then never asks the disk whether it knows better
        linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)


def _real(path: str) -> str:
    return os.path.realpath(path)


class _UnsavedLoader(SourceFileLoader):
    def __init__(self, name: str, path: str, text: str) -> None:
        super().__init__(name, path)
        self._text = text

    def get_data(self, path: str) -> bytes:
        return self._text.encode("utf-8", "surrogatepass") if path == self.path else super().get_data(path)

    def path_stats(self, path: str) -> Mapping[str, Any]:
        raise OSError(f"{path} is not what is saved")  # so byte code is neither read nor written


class _Finder(MetaPathFinder):
    """Finds what the other finders find, and loads it from the text if there is one."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = texts

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: Any = None) -> ModuleSpec | None:
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec") or _is_pytests(finder):
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is None:
                continue
            text = self._texts.get(_real(spec.origin)) if spec.origin and spec.has_location else None
            if text is None:
                return spec
            return importlib.util.spec_from_file_location(
                fullname,
                spec.origin,
                loader=_UnsavedLoader(fullname, str(spec.origin), text),
                submodule_search_locations=spec.submodule_search_locations,
            )
        return None


def _is_pytests(finder: object) -> bool:
    return type(finder).__module__.startswith("_pytest")


def _teach_pytest(texts: Mapping[str, str]) -> None:
    """Let pytest rewrite the assertions of these texts: it reads test files by itself."""
    rewrite: Any = importlib.import_module("_pytest.assertion.rewrite")
    # pytest reads test files by these two functions and has no public way to give it a text (as of pytest 9)
    of_file, of_cache = rewrite._rewrite_test, rewrite._read_pyc  # noqa: SLF001

    def rewritten(path: Any, config: Any) -> Any:
        text = texts.get(_real(str(path)))
        if text is None:
            return of_file(path, config)
        source = text.encode("utf-8", "surrogatepass")
        tree = ast.parse(source, str(path))
        rewrite.rewrite_asserts(tree, source, str(path), config)
        return None, compile(
            tree, str(path), "exec", dont_inherit=True
        )  # the first is for byte code, which is not kept

    def cached(source: Any, *arguments: Any) -> Any:
        return None if _real(str(source)) in texts else of_cache(source, *arguments)

    rewrite._rewrite_test, rewrite._read_pyc = rewritten, cached  # noqa: SLF001
