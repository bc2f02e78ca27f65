"""Folders with one trap each, looked at as an editor, `show`, `doctor`, `loop` and an upload look at them: no program of the folder
starts, nothing is rented, no secret leaves, and every look ends.

Where a trap can name a program it names one that sings (`canary`), and where it can name a file it names a secret beside the
folder.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket as sockets
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from orbit_lsp.runners.modal.ledger import ledger_file
from tests.cli_check import orbit
from tests.closure_check import find
from tests.e2e import forks
from tests.hostile.canary import canary
from tests.remote.nvcc_check import needs_nvcc

pytestmark = [
    pytest.mark.skipif(os.name != "posix", reason="FIFOs and links"),
    needs_nvcc,
]

SECRET = "hunter2_is_the_password"
KERNEL = "__global__ void k(int* p) { *p = 1; }\n"
SPEC = "// orbit: p = empty(1)\n// orbit: launch k<<<1, 1>>>(p)\n// orbit: expect p == 1\n"
LOOP = ("loop", "loop.cu", "--mode", "dry-run", "--max-iterations", "1")
LIMIT_S = 300
Trap = Callable[[Path], object]


def text(name: str, content: str) -> Trap:
    """`@` is the folder, `!` a program that sings, `?` the secret."""

    def make(folder: Path) -> None:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        program = canary(folder / "traps" / "canary", "canary")
        secret = folder.parent / "victim" / "secret.h"
        path.write_text(content.replace("!", program).replace("?", str(secret)).replace("@", str(folder)))

    return make


def fifo(name: str) -> Trap:
    return lambda folder: os.mkfifo(_free(folder / name))


def link(name: str, to: str) -> Trap:
    return lambda folder: _free(folder / name).symlink_to(to)


def _free(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    return path


def endless(name: str) -> Trap:
    """A file of 10 GB that takes no room on the disk."""

    def make(folder: Path) -> None:
        with _free(folder / name).open("wb") as file:
            file.truncate(10 << 30)

    return make


def socket(name: str) -> Trap:
    def make(folder: Path) -> None:
        with contextlib.chdir(folder), contextlib.closing(sockets.socket(sockets.AF_UNIX)) as made:
            made.bind(name)

    return make


def repository(**files: Trap) -> Trap:
    """A repository of git, and what stands in the place of one of its files."""
    begun = (
        text(".git/HEAD", "ref: refs/heads/main\n"),
        text(".git/config", "[core]\nrepositoryformatversion = 0\n"),
    )
    return both(*begun, text(".git/refs/x", ""), text(".git/objects/x", ""), *files.values())


def database(**entry: object) -> Trap:
    whole = {"directory": "@", "file": "k.cu", "arguments": ["nvcc", "k.cu"]} | entry
    return text("compile_commands.json", json.dumps([whole]))


def flags(*words: str) -> Trap:
    return database(arguments=["nvcc", *words, "k.cu"])


def both(*traps: Trap) -> Trap:
    return lambda folder: [trap(folder) for trap in traps]


# Of what is no regular file a file that we read has one kind here, mostly a FIFO: tests/remote/test_regular_files.py shows that all
# kinds are refused, and tests/test_boundaries.py that nothing is opened but through `regular_files`.
TRAPS: dict[str, Trap] = {
    # how the file is compiled
    "a database that is a FIFO": fifo("compile_commands.json"),
    "a database of brackets": text("compile_commands.json", "[" * 300_000),
    "a database of numbers": text("compile_commands.json", f"[{'9' * 5_000}]"),
    "a database whose compiler sings": database(arguments=["!", "k.cu"]),
    "a command of a shell": database(command="nvcc k.cu -DN=`!` $(!) ; ! | ! && ! > @/k.cu", arguments=None),
    "a command of variables": database(command="CPATH=? LD_PRELOAD=! NVCC_PREPEND_FLAGS='-ccbin !' nvcc k.cu", arguments=None),
    "a database for a FIFO": both(fifo("pipe.cu"), database(file="pipe.cu")),
    "a database whose folder is a device": database(directory="/dev/zero"),
    "a database of wrong types": text("compile_commands.json", '[{"directory": 1, "file": [], "command": {}, "arguments": "x"}, 3, null]'),
    "a forced include of a secret": flags("-include", "?"),
    "forced macros of a secret": flags("-imacros", "?"),
    "forced include of a FIFO": both(fifo("pipe.h"), flags("-include", "@/pipe.h")),
    "a host compiler": flags("-ccbin", "!"),
    "a plug-in of the host compiler": flags("-Xcompiler", "-fplugin=!"),
    "a wrapper of the host compiler": flags("-Xcompiler", "-wrapper,!"),
    "a file of options": both(text("options.txt", "-ccbin !\n"), flags("-optf", "@/options.txt")),
    "a file of arguments": both(text("options.txt", "-ccbin !\n"), flags("@@/options.txt")),
    "a file of arguments that is a FIFO": both(fifo("options.txt"), flags("@@/options.txt")),
    "a run behind the build": flags("-run", "-run-args", "x"),
    "an output over the source": flags("-o", "@/k.cu"),
    "a dependency file over the secret": flags("-MD", "-MF", "?"),
    "a database of half characters": text("compile_commands.json", '[{"directory": "@", "file": "\\ud800.cu", "arguments": ["\\udfff", "\\u0000"]}, {"directory": "\\u0000", "file": "k.cu", "command": "\\ud800 \'"}]'),
    "a database with half of a string": database(command="nvcc 'k.cu", arguments=None),
    "a database with flags of half characters": flags("-DN=\ud800", "-I\u0000", "-I\ud800"),
    "20,000 folders to include": both(flags(*(f"-Inowhere{number}" for number in range(20_000))), text("k.cu", "".join(f'#include "h{number}.cuh"\n' for number in range(2_000)) + KERNEL)),
    "a folder to include that is the machine": flags("-I/", "-I/proc/self", "-I/dev/fd", "-isystem", "/sys"),
    # build files
    "a folder of builds that is the machine": link("build", "/"),
    "a CMake file that is a FIFO": fifo("CMakeLists.txt"),
    "presets of brackets": text("CMakePresets.json", "[" * 300_000),
    "a setup.py that is a socket": socket("setup.py"),
    "flags of clang of 10 GB": endless("compile_flags.txt"),
    "CMake that runs programs": text("CMakeLists.txt", "execute_process(COMMAND !)\nset(CMAKE_CUDA_COMPILER !)\nadd_executable(k k.cu)\ntarget_compile_options(k PRIVATE -ccbin !)\n"),
    "presets of CMake": text("CMakePresets.json", '{"version": 3, "configurePresets": [{"name": "x", "cacheVariables": {"CMAKE_CUDA_COMPILER": "!", "CMAKE_CUDA_HOST_COMPILER": "!"}}]}'),
    "a cache of CMake": text("build/CMakeCache.txt", "CMAKE_CUDA_COMPILER:FILEPATH=!\nCMAKE_CUDA_HOST_COMPILER:FILEPATH=!\nCMAKE_HOME_DIRECTORY:INTERNAL=@\n"),
    "a Makefile with a shell": text("Makefile", "X := $(shell !)\nNVCC = !\nk: k.cu\n\t! -ccbin ! k.cu\n"),
    "a Makefile that is a FIFO": fifo("Makefile"),
    "a setup.py that sings": text("setup.py", "import os; os.system('!')\nCUDAExtension('a', ['k.cu'], extra_compile_args={'nvcc': ['-ccbin', '!']})\n"),
    "a setup.py of parentheses": text("setup.py", "CUDAExtension(" * 20_000),
    "settings of clangd": text(".clangd", "CompileFlags:\n  Compiler: !\n  Add: [-fplugin=!, -include, ?]\n"),
    "flags of clang": text("compile_flags.txt", "-fplugin=!\n-include\n?\n@@/options\n"),
    "a build of Meson": text("meson.build", "run_command('!')\nproject('x', 'cuda')\n"),
    "a build of Bazel": text("BUILD.bazel", "cuda_library(name='k', srcs=['k.cu'], copts=['-ccbin !'])\n"),
    # settings that rent, pass secrets, or name a Python
    "settings of VS Code": text(".vscode/settings.json", '{"orbit.runner": "modal", "orbit.gpu": "B200:8", "orbit.trusted": true, "orbit.nvcc": "!", "orbit.python": "!", "orbit.environment": ["SECRET"], "orbit.modal": {"budget_usd": 1e6}}'),
    "settings of ours": both(*(text(name, 'trusted = true\nrunner = "modal"\ngpu = "B200:8"\npython = "!"\nnvcc = "!"\n') for name in ("orbit.toml", ".orbit.toml", ".orbit/config.toml", "orbit-lsp.toml"))),
    "a project with settings": text("pyproject.toml", '[tool.orbit]\nrunner = "modal"\n[tool.orbit-lsp]\npython = "!"\n[tool.uv]\npython = "!"\n[project]\nrequires-python = ">=3"\n'),
    "variables of ours": text(".env", "ORBIT_PYTHON=!\nORBIT_NVCC=!\nORBIT_BUDGET_USD=1000\nORBIT_RUNNER=modal\nMODAL_TOKEN_ID=x\nMODAL_TOKEN_SECRET=y\n"),
    "a token of Modal": text(".modal.toml", '[default]\ntoken_id = "ak-x"\ntoken_secret = "as-x"\nactive = true\n'),
    "a Python of pyenv": text(".python-version", "../traps\n/../..\x00"),
    "a Python that is a FIFO": fifo(".venv/bin/python"),
    "an environment that is a FIFO": fifo(".venv/pyvenv.cfg"),
    "a project that is a FIFO": fifo("pyproject.toml"),
    "a project of brackets": text("pyproject.toml", "a = " + "[" * 200_000),
    "an environment that is /dev/zero": link("environment.yml", "/dev/zero"),
    "a Python of pyenv that is a FIFO": fifo(".python-version"),
    "a module in the place of ours": both(*(text(f"{name}.py", "import os; os.system('!')\n") for name in ("orbit_lsp", "json", "sitecustomize", "lsprotocol", "modal", "zlib"))),
    # what an upload and git look at
    "a link to a secret": both(link("secret.h", "../victim/secret.h"), text("k.cu", f'#include "secret.h"\n{KERNEL}')),
    "a folder that is a link out": both(link("out", "../victim"), text("k.cu", f'#include "out/secret.h"\n{KERNEL}')),
    "a loop of folders": both(link("loop", "."), text("k.cu", f'#include "loop/loop/loop/a.h"\n{KERNEL}'), text("a.h", '#include "loop/a.h"\n')),
    "rules to ignore that are a FIFO": fifo(".gitignore"),
    "rules to ignore that are /dev/zero": link(".orbitignore", "/dev/zero"),
    "rules that backtrack": text(".gitignore", "*a" * 3_000 + "\n" + "**/" * 3_000 + "x\n" + "[" * 3_000),
    "a repository elsewhere": text(".git", "gitdir: @/../victim\n"),
    "a repository that is a FIFO": fifo(".git"),
    "a repository that runs programs": both(
        text(".git/config", '[core]\nrepositoryformatversion = 0\nfsmonitor = !\nhooksPath = @/traps\nsshCommand = !\n[diff]\nexternal = !\n[filter "x"]\nsmudge = !\nprocess = !\n[alias]\nshow = "!!"\n[include]\npath = ?\n'),
        text(".git/HEAD", "ref: refs/heads/main\n"), text(".gitattributes", "* filter=x diff=x\n"), lambda folder: (folder / ".git" / "refs").mkdir(), lambda folder: (folder / ".git" / "objects").mkdir(),
    ),
    "a repository whose HEAD is a FIFO": repository(head=fifo(".git/HEAD")),
    "a repository whose configuration is a FIFO": repository(config=fifo(".git/config")),
    "a repository whose configuration includes a FIFO": repository(fifo=fifo("pipe"), config=text(".git/config", "[include]\npath = @/pipe\n")),
    "a repository whose references are /dev/zero": repository(refs=link(".git/packed-refs", "/dev/zero")),
    "a repository whose index is a FIFO": repository(index=fifo(".git/index")),
    "a repository whose objects are elsewhere": repository(alternates=text(".git/objects/info/alternates", "@/../victim\n/dev/zero\n")),
    "a repository that shares a FIFO": repository(common=fifo(".git/commondir")),
    "a header that is this process": text("k.cu", f'#if 0\n#include "/proc/self/environ"\n#include "/proc/self/fd/0"\n#include "/proc/kmsg"\n#endif\n{KERNEL}'),
    "a header that is a FIFO": both(fifo("pipe.cuh"), text("k.cu", f'#if 0\n#include "pipe.cuh"\n#endif\n{KERNEL}')),
    "lines of a FIFO": both(fifo("pipe.cuh"), text("k.cu", f'#line 7 "@/pipe.cuh"\n__device__ int unused;\n{KERNEL}')),
    "a launch spec that reads": text("k.cu", f'// orbit: p = load("?")\n// orbit: launch k<<<1, 1>>>(p)\n// orbit: flags -ccbin !\n{KERNEL}'),
    "a launch spec that computes without end": text("k.cu", f"// orbit: n = 9 ** 9 ** 9 ** 9; p = zeros((1 << 62, 1 << 62))\n// orbit: launch k<<<n, n>>>(p)\n{KERNEL}"),
    "a problem whose task is a FIFO": both(fifo("task.yml"), text("reference.py", "x = 1\n")),
    "a problem whose task grows": text("task.yml", "a: &a [x,x]\n" + "".join(f"{b}: &{b} [*{a},*{a},*{a},*{a}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True))),
    # what a second afternoon of attacks tried
    "a database of 100,000 flags": lambda folder: (folder / "compile_commands.json").write_text(json.dumps([{"directory": str(folder), "file": "k.cu", "arguments": ["nvcc", f"-DN={number}", "k.cu"]} for number in range(100_000)])),
    "a database of long names": lambda folder: (folder / "compile_commands.json").write_text(json.dumps([{"directory": "../" * 200_000, "file": "k.cu", "arguments": ["nvcc", "k.cu"]}, {"directory": str(folder), "file": "./" * 100_000 + "k.cu", "arguments": ["nvcc", "-I" + "a/" * 100_000, "k.cu"]}])),
    "a file of arguments that includes itself": both(text("a.rsp", "@@/a.rsp\n"), flags("@@/a.rsp", "--options-file=@/a.rsp")),
    "an environment that leads to itself": link(".venv/bin", "../.venv/bin"),
    "an environment that is the machine": link(".venv", "/"),
    "presets that include themselves": text("CMakePresets.json", '{"version": 6, "include": ["CMakePresets.json", "/dev/zero", "?"], "configurePresets": [{"name": "a", "inherits": "a", "binaryDir": "${sourceDir}/../../../../dev/$env{HOME}"}]}'),
    "folders in the place of files": lambda folder: [(folder / name).mkdir() for name in ("compile_commands.json", "pyproject.toml", ".gitignore", "CMakeLists.txt", ".python-version", "environment.yml", "setup.py", "task.yml")],
    "a repository that is this process": link(".git", "/proc/self"),
    "a repository with names that are a FIFO": repository(mailmap=fifo(".mailmap"), attributes=fifo(".git/info/attributes"), shallow=fifo(".git/shallow")),
    "includes of terminals": text("k.cu", f'#if 0\n#include "/dev/stdin"\n#include "/dev/tty"\n#include "{"a/" * 2_500}b.h"\n#endif\n{KERNEL}'),
    "a thousand links to nothing": lambda folder: [(folder / f"l{number}.cuh").symlink_to(f"l{number + 1}.cuh") for number in range(1_000)],
    "folders without end": lambda folder: (folder / "/".join("d" * 400)).mkdir(parents=True),
}  # fmt: skip


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """New, and always of the same name: what no trap changes is compiled once, as the cache knows builds by their paths."""
    place = tmp_path_factory.getbasetemp() / "trapped"
    if place.exists():
        shutil.rmtree(place)
    for name in ("sang", "project", "victim", "state"):
        (place / name).mkdir(parents=True)
    (place / "victim" / "secret.h").write_text(f"int {SECRET} = 1;\n")
    (place / "project" / "k.cu").write_text(KERNEL)
    return place / "project"


QUICK = (
    "a database whose compiler sings",
    "a link to a secret",
    "settings of VS Code",
    "a repository that runs programs",
)
STARTED = (*QUICK, "a module in the place of ours", "variables of ours", "a Python of pyenv")
"""Whose commands are real starts of Python: all that a folder may do to one. The others' are forked, half a second less."""


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in TRAPS]
)
def test_a_folder_with_a_trap(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    TRAPS[name](folder)
    before = (folder / "k.cu").read_text()
    monkeypatch.setenv("XDG_STATE_HOME", str(folder.parent / "state"))
    monkeypatch.setenv("SECRET", SECRET)
    looped = before.replace(KERNEL, SPEC + KERNEL)
    (folder / "loop.cu").write_text(looped)
    code, *streams = orbit(folder, *LOOP)
    assert code == (64 if "launch spec" in name else 0), streams
    printed = "".join(streams)
    commands = [["show", "k.cu"], ["doctor", "k.cu"]]
    if name in QUICK or "repository" in name or "ignore" in name:  # what git looks at
        commands += [["history", "k.cu"], ["compare", "k.cu", "--with", "HEAD"]]
    for words in commands:
        if name in STARTED:
            ended = subprocess.run(
                [sys.executable, "-P", "-m", "orbit_lsp", *words], cwd=folder, stdin=subprocess.DEVNULL,
                capture_output=True, text=True, check=False, timeout=LIMIT_S,
            )  # fmt: skip
        else:
            ended = forks.command(folder, *words, limit_s=LIMIT_S)
        printed += ended.stdout + ended.stderr
    travelling = find(folder, "k.cu")
    contents = [
        each if isinstance(each, bytes) else each.read_bytes() for each in travelling.contents.values()
    ]
    assert [path.name for path in (folder.parent / "sang").iterdir()] == []
    assert "Traceback" not in printed
    assert SECRET not in printed
    assert SECRET.encode() not in b"".join(contents)
    assert (folder / "k.cu").read_text() == before
    assert (folder / "loop.cu").read_text() == looped
    assert (folder.parent / "victim" / "secret.h").read_text() == f"int {SECRET} = 1;\n"
    assert not ledger_file().exists()  # nothing was rented


@pytest.mark.parametrize(
    ("trap", "message"),
    [
        (link(".orbit-loop", "../victim"), ".orbit-loop/loop.cu.dry-run leads elsewhere by a link"),
        (link(".orbit-loop/loop.cu.dry-run", "../../victim"), "loop.cu.dry-run leads elsewhere by a link"),
        (link(".orbit-loop/loop.cu.dry-run/best", "../../../victim"), "best is a link"),
        (link(".orbit-loop/loop.cu.dry-run/journal.jsonl", "../../../victim/notes"), "journal.jsonl is a link"),
    ],
)  # fmt: skip
def test_a_loop_writes_to_no_folder_but_its_own(folder: Path, trap: Trap, message: str) -> None:
    notes = folder.parent / "victim" / "notes"
    notes.write_text("a last line without an end")
    before = sorted(notes.parent.iterdir())
    (folder / "loop.cu").write_text(SPEC + KERNEL)
    trap(folder)
    code, _, printed = orbit(folder, *LOOP)
    assert (code, message in printed) == (64, True), printed
    assert (sorted(notes.parent.iterdir()), notes.read_text()) == (before, "a last line without an end")


@pytest.mark.parametrize(
    "content", [f"// ü\n{KERNEL}".encode("utf-16"), b"\xff\xfe\x00\xed\xa0\x80\n" + KERNEL.encode()]
)
@pytest.mark.parametrize("command", ["show", "compile", "history", "draft"])
def test_a_source_that_is_no_text_is_looked_at_all_the_same(
    folder: Path, command: str, content: bytes
) -> None:
    (folder / "k.cu").write_bytes(content)
    code, out, error = orbit(folder, command, "k.cu")
    assert (code in (0, 1, 64), "Traceback" in out + error) == (True, False), error


def test_the_canary_of_these_folders_sings(folder: Path) -> None:
    text("x", "!")(folder)
    subprocess.run([str(folder / "traps" / "canary")], check=False)
    assert [path.name for path in (folder.parent / "sang").iterdir()] == ["canary"]
