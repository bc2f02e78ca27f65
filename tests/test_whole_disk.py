"""A workspace or a working folder that is all of the disk, `/`, which containers and services begin in: every look ends.

So do looks at folders that vanish, that cannot be read or that hold themselves, and the server at `exit`, whatever its threads do.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orbit_lsp.closure import includers
from orbit_lsp.compilation import build_files, database, headers, installed, projects
from orbit_lsp.compilation.build_systems import setup_files
from orbit_lsp.compilation.finder import CompilationFinder, CompilationQuestion
from orbit_lsp.compilation.folders import folders_above
from orbit_remote.child.user_module import UserFile
from tests.cli_check import orbit
from tests.remote.nvcc_check import needs_nvcc
from tests.stdio_server import StdioServer

pytestmark = pytest.mark.skipif(os.name != "posix", reason="there is no / that holds all")

KERNEL = "__global__ void k(int *p) { *p = 1; }\n"


@pytest.mark.parametrize(
    ("path", "root", "folders"),
    [
        ("/a/b/k.cu", "/a", ["/a/b", "/a"]),
        ("/a/b/k.cu", "/a/", ["/a/b", "/a"]),
        ("/a/k.cu", "/", ["/a", "/"]),
        ("/k.cu", "/", ["/"]),
        ("//a/k.cu", "//", ["//a", "//"]),
        ("/a/k.cu", "//", []),
        ("/a/k.cu", "/b", []),
        ("a/k.cu", ".", ["a", "."]),
        ("k.cu", ".", ["."]),
        ("k.cu", "", ["."]),
    ],
)
def test_the_folders_above_a_file_up_to_a_root(path: str, root: str, folders: list[str]) -> None:
    assert list(map(str, folders_above(path, root))) == folders


def _declared(path: str, root: str) -> Iterable[object]:
    return build_files.declared(path, root).flags


@pytest.mark.parametrize("root", ["/", "//", ".", "", "link", "gone"])
@pytest.mark.parametrize(
    "climb",
    [
        installed.venvs,
        database.candidates,
        _declared,
        setup_files.loaded,
    ],
    ids=["environments", "databases", "build files", "extensions"],
)
def test_every_climb_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, climb: Callable[[str, str], Iterable[object]], root: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to("/")
    path = {"link": "link/k.cu", "gone": "gone/k.cu"}.get(root, f"{root.rstrip('.')}k.cu")
    assert [each for each in climb(path, root) if "k.cu" in str(each)] == []


@pytest.mark.parametrize("folder", ["/", "//", "/.", "link"])
@needs_nvcc
def test_a_command_in_the_folder_of_all_answers_as_in_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    def no_walk(root: str) -> headers.Headers:
        walked.append(root)
        return headers.Headers(root)

    walked: list[str] = []
    monkeypatch.setattr(headers, "search", no_walk)
    (tmp_path / "link").symlink_to("/")
    (tmp_path / "k.cu").write_text(KERNEL)
    environment = {"XDG_CACHE_HOME": str(tmp_path / ".cache")}
    code, _, remarks = orbit(
        Path(tmp_path, folder), "compile", str(tmp_path / "k.cu"), environment=environment
    )
    assert (code, remarks.splitlines()[1:]) == (0, ["ok: 1 kernel compiled for sm_90a"])
    assert walked == [str(tmp_path)]  # and not all of the disk


def test_headers_are_looked_for_beside_a_folder_that_cannot_be_listed_and_one_that_vanishes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "hidden", "z"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.h").touch()
    (tmp_path / "a" / "again").symlink_to(tmp_path)
    scandir = os.scandir

    class Hidden:
        """As /proc/1/map_files: it opens, and has no first entry."""

        def __enter__(self) -> Iterator[Any]:
            return self

        def __exit__(self, *error: object) -> None: ...

        def __iter__(self) -> Iterator[Any]:
            return self

        def __next__(self) -> Any:
            raise PermissionError

    class Vanishes:
        """Its entry is gone when it is asked what it is."""

        def __enter__(self) -> list[Any]:
            return [SimpleNamespace(name="gone", is_dir=self._gone)]

        def __exit__(self, *error: object) -> None: ...

        def _gone(self, *, follow_symlinks: bool) -> bool:
            raise FileNotFoundError

    def listed(path: str) -> Any:
        kind = {"hidden": Hidden, "z": Vanishes}.get(Path(path).name)
        return kind() if kind else scandir(path)

    monkeypatch.setattr(headers.os, "scandir", listed)
    found = headers.search(str(tmp_path))
    assert [found.named(f"{name}.h") for name in ("a", "hidden", "z")] == [["a/a.h"], [], []]
    assert found.complete


def test_a_search_for_what_includes_a_header_ends_where_no_folder_has_a_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def endless(root: str) -> Iterator[tuple[str, list[str], list[str]]]:
        while True:
            yield root, [], ["notes.txt"]

    monkeypatch.setattr(includers.os, "walk", endless)
    monkeypatch.setattr(includers, "_SECONDS", 0.0)
    assert includers.read(str(tmp_path / "k.h"), "", ["/"]) is None


def test_a_package_that_is_all_of_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def every(path: Path) -> bool:
        del path
        return True

    monkeypatch.setattr(Path, "is_file", every)
    monkeypatch.setattr(sys, "path", ["/"])
    assert UserFile("/a/b/k.py", "from . import x\n").empty("k").__package__ == "a.b"


def test_an_environment_that_may_not_be_looked_into_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pathlib raises for it, and root, who may run this, may look into all."""
    stat = os.stat

    def guarded(path: Any, *arguments: Any, **names: Any) -> os.stat_result:
        if "/.venv/" in os.fspath(path):
            raise PermissionError(13, "Permission denied", path)
        return stat(path, *arguments, **names)

    monkeypatch.setattr(os, "stat", guarded)
    path = str(tmp_path / "k.cu")
    assert list(installed.venvs(path, str(tmp_path))) == []
    assert projects.project_of(str(tmp_path))
    assert CompilationFinder().find(CompilationQuestion(path, KERNEL, (str(tmp_path),))).root == str(tmp_path)


def _server(folder: Path, code: str = "", errors: int | None = None) -> StdioServer:
    """`orbit-lsp serve`, started as an editor starts it, after `code`; `errors` as Popen's `stderr`."""
    start = "import sys; sys.argv = ['orbit-lsp', 'serve']; from orbit_lsp.cli.main import main; raise SystemExit(main())"
    return StdioServer([sys.executable, "-P", "-c", f"{textwrap.dedent(code)}\n{start}"], folder, errors)


@pytest.mark.parametrize(
    ("root", "uri"),
    [
        ("file:///", "FILE"),
        pytest.param("file:////", "FILE", marks=pytest.mark.slow),
        pytest.param("file://", "FILE", marks=pytest.mark.slow),
        pytest.param("file:FOLDER/", "FILE", marks=pytest.mark.slow),
        pytest.param("file:FOLDER/link", "file:FOLDER/linkFOLDER/k.cu", marks=pytest.mark.slow),
        pytest.param("file:FOLDER/gone", "FILE", marks=pytest.mark.slow),
        pytest.param("file:FOLDER", "untitled:Untitled-1.cu", marks=pytest.mark.slow),
        pytest.param(None, "untitled:Untitled-1.cu", marks=pytest.mark.slow),
    ],
)
@needs_nvcc
def test_a_server_whose_workspace_is_all_of_the_disk_compiles_and_ends(
    tmp_path: Path, root: str | None, uri: str
) -> None:
    (tmp_path / "k.cu").write_text(KERNEL)
    (tmp_path / "link").symlink_to("/")
    server = _server(tmp_path)
    known = uri.replace("FILE", (tmp_path / "k.cu").as_uri()).replace("FOLDER", str(tmp_path))
    server.open(root and root.replace("FOLDER", str(tmp_path)), known, KERNEL)
    server.until(lambda message: " regs" in str(message.get("params")))  # the kernel's figures
    assert server.leave() == 0


def test_a_server_ends_at_exit_though_a_thread_of_it_does_not(tmp_path: Path) -> None:
    hangs = """
        import sys, threading
        from orbit_lsp.closure import includers
        from orbit_lsp.state import daemon_thread
        daemon_thread.ENDING_S = 0.01
        def read(*arguments, **names):
            print("it hangs", file=sys.stderr, flush=True)
            threading.Event().wait()
        includers.read = read
    """
    server = _server(tmp_path, hangs, subprocess.PIPE)
    assert server.process.stderr
    server.open(tmp_path.as_uri(), (tmp_path / "k.cu").as_uri(), KERNEL)
    assert b"it hangs\n" in server.process.stderr
    assert server.leave() == 0
