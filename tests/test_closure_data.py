"""Which data files travel with a job, and which of them ignore files exclude."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orbit_lsp.closure.workspace import workspace
from orbit_remote.common import content_store
from tests.closure_check import find, refusal, remarks, travels, write


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


DATA = {
    "data/a.bin": "a",
    "data/b.txt": "b",
    "data/more/c.bin": "c",
    "data/more/deep/d.bin": "d",
    "data/.key": "hidden",
    "e.bin": "e",
}


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        (("data/*.bin",), ["data/a.bin"]),
        (("**/*.bin",), ["data/a.bin", "data/more/c.bin", "data/more/deep/d.bin", "e.bin"]),
        (("data/**/*.bin",), ["data/a.bin", "data/more/c.bin", "data/more/deep/d.bin"]),
        (("data/more",), ["data/more/c.bin", "data/more/deep/d.bin"]),
        (("./data/more/",), ["data/more/c.bin", "data/more/deep/d.bin"]),
        (("data/**",), ["data/a.bin", "data/b.txt", "data/more/c.bin", "data/more/deep/d.bin"]),
        (("data/?.[bt]*", "e.bin"), ["data/a.bin", "data/b.txt", "e.bin"]),
        (("data/.k*",), ["data/.key"]),
        (("*/*/*/d.bin", "**/d.bin"), ["data/more/deep/d.bin"]),
        ((), []),
    ],
)
def test_patterns_of_data_files(project: Path, patterns: tuple[str, ...], expected: list[str]) -> None:
    write(project, DATA)
    assert travels(project, "k.cu", "", data=patterns) == expected


def test_the_tensors_that_a_launch_spec_loads_travel(project: Path) -> None:
    write(project, {"k.orbit.safetensors": "a", "other.orbit.safetensors": "b", "k.pt": "c"})
    text = '# orbit: x = load("k.orbit.safetensors", "k.x", 3); y = load("../other.orbit.safetensors", "k.y", 3); z = load("k.pt", "z")\n'
    assert travels(project, "k.py", text) == ["k.orbit.safetensors"]


@pytest.mark.parametrize(
    "pattern", ["../*", "/etc/passwd", "data/../../x", "nothing/*.here", "[", "**/**/*.gone", "", "."]
)
def test_a_pattern_that_leads_outside_or_nowhere_is_remarked_on(project: Path, pattern: str) -> None:
    write(project, DATA)
    (message,) = remarks(project, "k.cu", "", data=(pattern,))
    assert message.startswith(f"The setting `data` names {pattern!r}, ")


def test_ignored_files_are_no_data_unless_orbitignore_brings_them_back(project: Path) -> None:
    write(project, DATA | {".gitignore": "*.bin\n!e.bin\n", "data/more/.gitignore": "!c.bin\n"})
    closure = find(project, "k.cu", "", data=("**/*.bin",))
    assert sorted(closure.manifest.files) == ["data/more/c.bin", "e.bin", "k.cu"]
    assert closure.remarks == (
        (
            "data/a.bin and 1 more would match '**/*.bin' of the setting `data` but for .gitignore or .orbitignore; "
            "`!data/a.bin` in .orbitignore sends it."
        ),
    )
    write(project, {".orbitignore": "!data/**/*.bin\ne.bin\n"})
    assert sorted(find(project, "k.cu", "", data=("**/*.bin",)).manifest.files) == [
        "data/a.bin", "data/more/c.bin", "data/more/deep/d.bin", "k.cu",
    ]  # fmt: skip


def test_an_ignored_folder_is_not_looked_into(project: Path) -> None:
    write(project, DATA | {".gitignore": "data/\n"})
    assert remarks(project, "k.cu", "", data=("data/*.bin",)) == [
        (
            "data/ would match 'data/*.bin' of the setting `data` but for .gitignore or .orbitignore; "
            "`!data/` in .orbitignore sends it."
        )
    ]
    write(project, {".orbitignore": "!data/\n"})
    assert travels(project, "k.cu", "", data=("data/*.bin",)) == ["data/a.bin"]


def test_ignore_files_above_a_workspace_hold_up_to_the_top_of_its_repository(
    tmp_path: Path, project: Path
) -> None:
    write(tmp_path, {".gitignore": "*.txt", "project/a.txt": "", "project/b.bin": ""})
    assert travels(project, "k.cu", "", data=("*.*",)) == ["a.txt", "b.bin"]
    (tmp_path / ".git").mkdir()
    assert sorted(find(project, "k.cu", "", data=("*.*",)).manifest.files) == ["b.bin", "k.cu"]


@pytest.mark.parametrize(
    "patterns",
    [
        "*.log\n!keep.log\n/top\nbuild/\ndocs/*.md\n**/cache\na/**/z\n\\#odd\ntrail  \n[ab].c\n",
        "*\n!*.*\n!*/\n!top\n",
        "/*\n!/sub/\n/sub/*\n!/sub/top\n",
        "*/\n!/docs/\n!in/\n",
        "a/*/\n!a/b/\n!b\n",
    ],
    ids=["a list of what is left out", "a list of what is kept", "one file of one folder", "some folders", "folders in folders"],
)  # fmt: skip
def test_gitignore_means_what_git_means(patterns: str, project: Path) -> None:
    texts = dict.fromkeys(
        ["x.log", "keep.log", "top", "sub/top", "build/o", "sub/build/o", "docs/a.md", "docs/in/b.md", "m/cache/f",
         "a/b/c/z", "a/z", "#odd", "trail", "a.c", "c.c", "build2/o", "a/b.d/x.cu"], "x"
    )  # fmt: skip
    write(project, texts | {".gitignore": patterns})
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    listed = subprocess.run(
        ["git", "ls-files", "-o", "--exclude-standard", "-z"],
        cwd=project,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split("\0")
    result = find(project, "k.cu", "", data=("**",)).manifest.files
    assert sorted({*result, "k.cu"}) == sorted({*listed, "k.cu"} - {"", ".gitignore"})


def test_a_header_that_git_ignores_travels_and_one_that_orbitignore_names_does_not(project: Path) -> None:
    write(project, {"build/gen.cuh": "", "big.cuh": "", ".gitignore": "build/", ".orbitignore": "big.cuh"})
    assert travels(project, "k.cu", '#include "build/gen.cuh"') == ["build/gen.cuh"]
    assert remarks(project, "k.cu", '#include "big.cuh"') == [
        "big.cuh is needed, but .orbitignore excludes it, and it is not sent."
    ]


def test_an_ignore_file_that_is_none_does_no_harm(project: Path) -> None:
    write(project, {"a.txt": "", ".gitignore": "!\n\\\n[\n"})
    (project / ".orbitignore").write_bytes(b"\xff\xfe\0*.bin\n")
    assert travels(project, "k.cu", "", data=("a.txt",)) == ["a.txt"]


MOUNTED = {"run.py": "import part", "part.py": "", "data/x.bin": "", ".env": "", "venv/pyvenv.cfg": "", "venv/lib.py": "",
           "__pycache__/part.pyc": "", "build/gen.py": "", ".gitignore": "build/"}  # fmt: skip


def test_all_of_a_mounted_folder_travels_but_what_is_hidden_ignored_or_made_by_python(project: Path) -> None:
    write(project, MOUNTED)
    assert travels(project, "run.py", mount=True) == ["data/x.bin", "part.py"]
    assert travels(project, "run.py", "import build.gen", mount=True) == [
        "build/gen.py", "data/x.bin", "part.py",
    ]  # fmt: skip


def test_a_mounted_folder_sends_no_link_out_of_it_and_waits_for_no_fifo(project: Path) -> None:
    write(project, {"tool": "\x7fELF", "in.txt": "", "folder/x": ""})
    (project / "inside").symlink_to("in.txt")
    (project / "outside").symlink_to("/etc/passwd")
    (project / "broken").symlink_to("gone")
    (project / "looped").symlink_to("looped")
    (project / "linked").symlink_to("folder")
    (project / "etc").symlink_to("/etc")
    os.mkfifo(project / "fifo")
    result = find(project, "tool", "", mount=True)
    assert sorted(result.manifest.files) == ["folder/x", "in.txt", "inside", "tool"]
    assert result.contents[result.manifest.files["tool"]] == b"\x7fELF"
    assert [remark.replace(str(project), "~") for remark in result.remarks] == [
        "broken cannot be read and is not sent: No such file or directory.",
        "etc is a link to a folder and is not sent: put a copy in its place.",
        "linked is a link to a folder and is not sent: put a copy in its place.",
        "looped cannot be read and is not sent: Too many levels of symbolic links.",
        "outside leads out of the workspace folder ~ and is not sent: put a copy in its place.",
    ]


def test_a_mounted_folder_that_is_too_large_is_refused_in_a_sentence(project: Path) -> None:
    write(project, {"run.py": "", "a.bin": "x" * 2000})
    assert refusal(project, "run.py", mount=True, limit=1024) == (
        "~ holds 1.95 KiB in 2 files and perhaps more, and the setting `modal.files_mib` allows 1 KiB; the largest are "
        "a.bin (1.95 KiB), run.py (0 B). Mount a smaller folder, or name files in .orbitignore."
    )


def test_a_folder_that_has_not_changed_is_listed_and_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before each cell of a notebook: no file is opened, and none is asked for its status twice."""
    monkeypatch.setattr(content_store, "_SETTLED_NS", -1)
    write(tmp_path, {f"sub{number % 4}/{number}.txt": f"{number}" for number in range(200)})
    first = workspace(str(tmp_path), 1 << 20).manifest.files
    asked: list[str] = []
    for name in ("stat", "lstat", "open"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, counted(real, asked))
    assert workspace(str(tmp_path), 1 << 20).manifest.files == first
    assert len(first) == 200
    assert [path for path in asked if path.endswith(".txt")] == []
    (tmp_path / "sub1" / "1.txt").write_text("changed")
    changed = workspace(str(tmp_path), 1 << 20).manifest.files
    assert {place for place in first if first[place] != changed[place]} == {"sub1/1.txt"}


def counted(real: Callable[..., Any], asked: list[str]) -> Callable[..., Any]:
    def call(path: Any, *arguments: Any, **options: Any) -> Any:
        asked.append(str(path))
        return real(path, *arguments, **options)

    return call
