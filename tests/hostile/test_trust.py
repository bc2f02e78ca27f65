"""Folders that would run something if they could: a folder in, and no canary that sings.

Every hostile program is a script that writes a file of its own name into the folder `sang`. All that is started is real:
orbit-lsp, nvcc, g++, git.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from orbit_lsp.cli import relative_places
from orbit_lsp.places import python_choice, trust
from orbit_lsp.places.places import Places
from orbit_lsp.state.placement import RunSetup
from orbit_lsp.state.session import Session, uri_of
from tests.cli_check import orbit
from tests.hostile.canary import canary
from tests.remote.nvcc_check import built, needs_nvcc
from tests.test_git import Repository

Flags = tuple[str, ...]
KERNEL = "__global__ void k(int* p) { *p = 1; }\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "sang").mkdir()
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


def sang(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder.parent / "sang").iterdir())


def opened(folder: Path, *, trusted: bool | None = None) -> Places:
    """What editor and command line begin with in `folder`."""
    session = Session(setup=RunSetup(folders=[str(folder)]))
    places = Places(session, print, lambda uris: None)
    places.settings.options = {} if trusted is None else {"trusted": trusted}
    places.settings.configure(None)
    return places


async def flags_of(
    folder: Path, *, trusted: bool | None = None, **settings: object
) -> tuple[Flags, tuple[str, ...]]:
    """The compiler flags that are used for k.cu, and sentences about those that are not."""
    session = Session(setup=RunSetup(folders=[str(folder)]))
    places = Places(session, print, lambda uris: None)
    places.settings.options = settings if trusted is None else {"trusted": trusted}
    places.settings.configure(None)
    uri = uri_of(str(folder / "k.cu"))
    session.open(uri, 0, KERNEL)
    refused = await places.compilations.find(uri)
    return session.files[uri].compilation.flags, refused


# -- compiler flags ---------------------------------------------------------------------------------

FLAGS: dict[str, list[str]] = {
    "host compiler": ["-ccbin", "./canary"],
    "host compiler, glued": ["-ccbin=./canary"],
    "host compiler, long": ["--compiler-bindir", "{folder}/canary"],
    "compiler in the database": [],
    "plug-in of gcc": ["-Xcompiler", "-fplugin={folder}/evil.so"],
    "plug-in, glued": ["-Xcompiler=-fplugin={folder}/evil.so"],
    "gcc's programs": ["-Xcompiler", "-B{folder}/bin"],
    "gcc's wrapper": ["-Xcompiler", "-wrapper,{folder}/canary"],
    "specs of gcc": ["-Xcompiler", "-specs={folder}/specs"],
    "wrapper without -Xcompiler": ["-wrapper", "{folder}/canary"],
    "option file": ["--options-file", "{folder}/options.txt"],
    "option file, short": ["-optf", "{folder}/options.txt"],
    "response file in -D": ["-D", "N=@{folder}/options.txt"],
    "response file in -I": ["-I", "a,@{folder}/options.txt"],
    "shell in -D": ["-DN=$({folder}/canary)"],
    "shell in -I, backquote": ["-I`{folder}/canary`"],
    "new line in -D": ["-DN=1\n{folder}/canary"],
    "linker's program": ["-Xlinker", "-plugin={folder}/evil.so"],
    "other toolkit": ["-ldir", "{folder}", "--cudart", "none"],
    "other programs of nvcc": ["--dont-use-profile", "-ldir={folder}"],
    "second run": ["-run"],
    "ptxas option": ["-Xptxas", "--output-file={folder}/k.cu"],
    "forwarded to the host compiler": ["-forward-unknown-to-host-compiler", "-fplugin={folder}/evil.so"],
    "output elsewhere": ["-o", "{folder}/overwritten"],
    "dependencies elsewhere": ["-MF", "{folder}/overwritten"],
}


def hostile_flags(folder: Path, flags: list[str]) -> None:
    program = canary(folder / "canary", "canary")
    for name in ("cc1plus", "as", "ld", "collect2", "cicc", "ptxas"):
        canary(folder / "bin" / name, "canary")
    (folder / "options.txt").write_text(f"-ccbin {program}\n")
    (folder / "specs").write_text(f"*cc1plus:\n%(shell {program})\n")
    words = [program, *(flag.format(folder=folder) for flag in flags), "k.cu"]
    (folder / "compile_commands.json").write_text(
        json.dumps([{"directory": str(folder), "file": "k.cu", "arguments": words}])
    )
    (folder / "k.cu").write_text(KERNEL)


@needs_nvcc
@pytest.mark.parametrize("name", FLAGS)
async def test_flags_of_a_folder_run_nothing(folder: Path, name: str) -> None:
    hostile_flags(folder, FLAGS[name])
    kept, _ = await flags_of(folder)
    if kept:  # else there is nothing of the folder's to try
        await built(folder, KERNEL, flags=kept)
    assert (sang(folder), (folder / "overwritten").exists()) == ([], False)


@needs_nvcc
async def test_the_canary_can_sing(folder: Path) -> None:
    hostile_flags(folder, FLAGS["host compiler, long"])
    kept, refused = await flags_of(folder, trusted=True)
    assert refused == ()
    await built(folder, KERNEL, flags=kept)
    assert sang(folder) == ["canary"]


async def test_flags_that_are_left_out_are_one_sentence_with_what_to_do(folder: Path) -> None:
    hostile_flags(folder, ["-ccbin", "./canary", "-lineinfo", "-DN=1"])
    _, (sentence, of_nvcc) = await flags_of(folder)
    assert of_nvcc.startswith(f"{folder}/canary, which the project compiles with, is not started")
    assert sentence == (
        "nvcc flag -ccbin=./canary is left out, because the workspace is not trusted and only flags that cannot run "
        f"a program are used: if you trust the authors of {folder}, run `orbit-lsp trust {folder}` for all that follow"
    )


async def test_the_users_own_flags_need_no_trust(folder: Path) -> None:
    hostile_flags(folder, ["-ccbin", "./canary"])
    kept, _ = await flags_of(folder, nvcc_flags=["-ccbin", "g++"])
    assert kept == ("-ccbin", "g++")


# -- Pythons ----------------------------------------------------------------------------------------


def _environment_yml(folder: Path, home: Path) -> None:
    canary(home / "miniforge3/envs/kernels/bin/python", "python")
    (folder / "environment.yml").write_text("name: kernels\ndependencies: [pytorch]\n")


def _conda_path(folder: Path, home: Path) -> None:
    canary(folder / "evil/bin/python", "python")
    (folder / "environment.yml").write_text(f"name: ../../../project/evil\nprefix: {folder}/evil\n")


def _conda_list(folder: Path, home: Path) -> None:
    canary(folder / "kernels/bin/python", "python")
    (home / ".conda").mkdir()
    (home / ".conda/environments.txt").write_text(f"{folder}/kernels\n")
    (folder / "environment.yml").write_text("name: kernels\n")


def _pyenv(folder: Path, home: Path) -> None:
    canary(home / ".pyenv/versions/3.12.3/bin/python", "python")
    (folder / ".python-version").write_text("3.12.3\n")


def _pyenv_path(folder: Path, home: Path) -> None:
    (home / ".pyenv/versions").mkdir(parents=True)
    canary(folder / "evil/bin/python", "python")
    (folder / ".python-version").write_text(f"../../../project/evil\n{folder}/evil\n..\n")


def _poetry(folder: Path, home: Path, cache: str = ".cache") -> None:
    (folder / "pyproject.toml").write_text('[tool.poetry]\nname = "kernels"\n')
    name = next(iter(poetry_names(folder)))
    canary(home / cache / "pypoetry/virtualenvs" / f"{name}-py3.12" / "bin/python", "python")


def _poetry_path(folder: Path, home: Path) -> None:
    (folder / "pyproject.toml").write_text('[tool.poetry]\nname = "../../../../project/evil"\n')
    canary(folder / "evil/bin/python", "python")


def poetry_names(folder: Path) -> list[str]:
    """As Poetry itself computes it: sha256 of the folder, in base64, cut at 8."""
    import base64
    import hashlib

    digest = base64.urlsafe_b64encode(hashlib.sha256(os.path.realpath(folder).encode()).digest()).decode()
    return [f"kernels-{digest[:8]}"]


def _linked_venv(folder: Path, home: Path) -> None:
    canary(home / "elsewhere/bin/python", "python")
    (folder / ".venv").symlink_to(home / "elsewhere")


def _linked_python(folder: Path, home: Path) -> None:
    (folder / ".venv/bin").mkdir(parents=True)
    (folder / ".venv/bin/python").symlink_to(canary(folder / "evil.sh", "python"))


def _home_of_venv(folder: Path, home: Path) -> None:
    """A real interpreter that a pyvenv.cfg leads to the folder's own standard library."""
    (folder / ".venv/bin").mkdir(parents=True)
    (folder / ".venv/bin/python").symlink_to(sys.executable)
    (folder / ".venv/pyvenv.cfg").write_text(f"home = {folder}/evil\n")


def _pth(folder: Path, home: Path) -> None:
    packages = folder / ".venv/lib/python3.11/site-packages"
    packages.mkdir(parents=True)
    (packages / "evil.pth").write_text("import os; os.system('touch evil')\n")
    (folder / ".venv/bin").mkdir()
    (folder / ".venv/bin/python").symlink_to(sys.executable)


def _above(folder: Path, home: Path) -> None:
    canary(folder.parent / ".venv/bin/python", "python")
    (folder.parent / ".git").mkdir()


def _above_without_repository(folder: Path, home: Path) -> None:
    canary(folder.parent / ".venv/bin/python", "python")
    (folder.parent / "pyproject.toml").touch()


Bring = Callable[[Path, Path], object]
PYTHONS: dict[str, tuple[Bring, dict[str, str]]] = {
    ".venv": (lambda folder, _: canary(folder / ".venv/bin/python", "python"), {}),
    "venv": (lambda folder, _: canary(folder / "venv/bin/python", "python"), {}),
    "Scripts": (lambda folder, _: canary(folder / ".venv/Scripts/python.exe", "python"), {}),
    "linked .venv": (_linked_venv, {}),
    "linked python": (_linked_python, {}),
    "pyvenv.cfg with home": (_home_of_venv, {}),
    ".pth": (_pth, {}),
    "the folder above": (_above, {}),
    "the folder above, without git": (_above_without_repository, {}),
    "uv": (lambda folder, _: ((folder / "pyproject.toml").touch(), canary(folder / "env/bin/python", "python")),
           {"UV_PROJECT_ENVIRONMENT": "env"}),
    "active, but in the folder": (lambda folder, _: canary(folder / "env/bin/python", "python"),
                                  {"VIRTUAL_ENV": "{folder}/env"}),
    "conda, but in the folder": (lambda folder, _: canary(folder / "env/bin/python", "python"),
                                 {"CONDA_PREFIX": "{folder}/env"}),
    "environment.yml": (_environment_yml, {}),
    "pyenv": (_pyenv, {}),
    "Poetry": (_poetry, {}),
    "conda's list": (_conda_list, {}),
}  # fmt: skip
"""Folders that are used where they are trusted, and not where they are not."""
NEVER: dict[str, tuple[Bring, dict[str, str]]] = {
    "environment.yml with a path": (_conda_path, {}),
    ".python-version with a path": (_pyenv_path, {}),
    "Poetry's name with a path": (_poetry_path, {}),
    "relative VIRTUAL_ENV": (lambda folder, _: canary(folder / "env/bin/python", "python"), {"VIRTUAL_ENV": "env"}),
    "relative CONDA_PREFIX": (lambda folder, _: canary(folder / "env/bin/python", "python"), {"CONDA_PREFIX": "./env"}),
    "conda's base": (lambda _, home: canary(home / "conda/bin/python", "python"),
                     {"CONDA_PREFIX": "{home}/conda", "CONDA_DEFAULT_ENV": "base"}),
    "a folder called python": (lambda folder, _: (folder / ".venv/bin/python").mkdir(parents=True), {}),
}  # fmt: skip
"""Folders whose Python is not even used where they are trusted."""


def chosen(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    bring: Bring,
    variables: Mapping[str, str],
    trusted: trust.Trust,
) -> python_choice.PythonChoice:
    home = folder.parent / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(folder)
    bring(folder, home)
    environment = {name: value.format(folder=folder, home=home) for name, value in variables.items()}
    return python_choice.choose("", [str(folder)], trusted.covers, environment)


@pytest.mark.parametrize("name", [*PYTHONS, *NEVER])
def test_a_folder_chooses_no_python(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    bring, variables = (PYTHONS | NEVER)[name]
    choice = chosen(monkeypatch, folder, bring, variables, trust.Trust(folders=(str(folder),)))
    assert (choice.python, choice.why) == (sys.executable, "the Python of orbit-lsp")
    assert bool(choice.ignored) == (name in PYTHONS)


@pytest.mark.parametrize("name", NEVER)
def test_what_is_no_environment_is_not_used_in_a_trusted_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    trusted = trust.Trust(word=True, folders=(str(folder),))
    choice = chosen(monkeypatch, folder, *NEVER[name], trusted)
    assert choice.python == sys.executable


@pytest.mark.parametrize("name", PYTHONS)
def test_a_trusted_folder_does(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    trusted = trust.Trust(remembered=(str(folder.parent),), folders=(str(folder),))
    choice = chosen(monkeypatch, folder, *PYTHONS[name], trusted)
    assert choice.python != sys.executable
    assert choice.ignored == ()


def test_the_python_that_runs_orbit_lsp_needs_no_trust(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for a newcomer, who installs orbit-lsp into `.venv` of the clone and asks `doctor` there."""
    python = folder / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    monkeypatch.setattr(sys, "executable", str(python))
    choice = python_choice.choose("", [str(folder)], trust.Trust(folders=(str(folder),)).covers, {})
    assert choice == python_choice.PythonChoice(str(python), f".venv of {folder}")


def test_trust_in_a_folder_is_not_trust_in_the_one_above(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    choice = chosen(monkeypatch, folder, _above, {}, trust.Trust(word=True, folders=(str(folder),)))
    assert choice.ignored == (str(folder.parent / ".venv/bin/python"),)


@pytest.mark.parametrize("bring", [_above, _above_without_repository], ids=["git", "pyproject"])
def test_trust_of_a_command_is_of_the_project_it_stands_in(folder: Path, bring: Bring) -> None:
    bring(folder, folder)
    above = str(folder.parent / ".venv/bin/python")
    places = Places(Session(setup=RunSetup(folders=[str(folder)])), print, lambda uris: None)
    places.settings.trust_once, places.settings.of_command = "add --trust", True
    places.settings.configure(None)
    assert places.python.ignored() == (
        f"{above} is not started, because the folder is not trusted: if you trust the authors of {folder.parent}, add "
        f"--trust for this command, or run `orbit-lsp trust {folder.parent}` for all that follow"
    )
    assert places.python.remedy().startswith(f"the project's own Python is {above}: if you trust ")
    places.settings.options = {"trusted": True}
    places.settings.configure(None)
    assert (places.python.path, places.python.remedy()) == (above, "")


# -- all that a folder can hold, while orbit-lsp runs in it ---------------------------------------------

PROGRAMS = ("nvcc", "g++", "gcc", "cc1plus", "as", "ld", "git", "ncu", "compute-sanitizer", "nvidia-smi", "python",
            "python3", "cl", "ptxas", "cicc", "bin/nvcc", "bin/g++", ".venv/bin/python", ".venv/bin/nvcc", "orbit-lsp")  # fmt: skip
MODULES = ("sitecustomize", "usercustomize", "conftest", "setup", "torch", "triton", "orbit_lsp", "orbit_remote", "modal",
           "pygls", "json", "asyncio", "numpy")  # fmt: skip
TEXTS = {
    ".env": "CUDA_HOME={folder}\nNVCC_PREPEND_FLAGS=-ccbin {folder}/g++\nPATH={folder}\n",
    ".envrc": "export PATH={folder}\n",
    "nvcc.profile": "TOP = {folder}\nPATH += {folder}:\n",
    ".vscode/settings.json": '{"orbit.python": "{folder}/python", "orbit.nvcc": "{folder}/nvcc", "orbit.trusted": true}',
    ".helix/languages.toml": "[language-server.orbit-lsp.config]\ntrusted = true\npython = '{folder}/python'\n",
    ".nvim.lua": "vim.lsp.config('orbit', { init_options = { trusted = true } })\n",
    "orbit.toml": "trusted = true\npython = '{folder}/python'\n",
    "pyproject.toml": "[tool.orbit]\ntrusted = true\nnvcc = '{folder}/nvcc'\n[tool.uv]\n",
    ".modal.toml": "[default]\ntoken_id = 'x'\n",
    "evil.pth": "import os; os.system('touch {folder}/../sang/pth')\n",
    "pyvenv.cfg": "home = {folder}\n",
    "specs": "*cc1plus:\n%(shell touch {folder}/../sang/specs)\n",
    "k.cu": KERNEL,
}
VARIABLES = {
    "PATH": ".:bin::{PATH}",
    "COMPILER_PATH": ".:",
    "GCC_EXEC_PREFIX": "./",
    "CUDA_HOME": ".",
    "CUDA_PATH": "./",
    "NVCC_CCBIN": "./g++",
    "CC": "./gcc",
    "VIRTUAL_ENV": "./.venv",
}
"""What careless users have in their own environment, and what means the folder they stand in."""


def full_of_traps(folder: Path) -> None:
    for name in PROGRAMS:
        canary(folder / name, name.replace("/", "_"))
    for name in MODULES:
        place = folder / name / "__init__.py" if name in ("torch", "orbit_remote") else folder / f"{name}.py"
        place.parent.mkdir(exist_ok=True)
        place.write_text(f"open({str(folder.parent / 'sang' / name)!r}, 'w')\n")
    for name, text in TEXTS.items():
        place = folder / name
        place.parent.mkdir(exist_ok=True)
        place.write_text(text.replace("{folder}", str(folder)))
    (folder / "compile_commands.json").write_text(
        json.dumps([{"directory": str(folder), "file": "k.cu", "command": "./nvcc -ccbin ./g++ k.cu"}])
    )
    repository = Repository(folder / "inner")
    repository.git("config", "core.fsmonitor", str(folder / "git"))


@needs_nvcc
def test_nothing_in_a_folder_is_started_by_what_is_done_there(folder: Path) -> None:
    full_of_traps(folder)
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "CUDA_HOME", "CUDA_PATH")
    }
    careless = {name: value.format(PATH=kept["PATH"]) for name, value in VARIABLES.items()}
    environment = kept | careless | {"XDG_CACHE_HOME": str(folder.parent / "cache")}

    def done(*words: str) -> tuple[str, str]:
        command = [sys.executable, "-P", "-m", "orbit_lsp", *words]
        ended = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=300
        )
        assert "Traceback" not in ended.stderr
        return ended.stdout, ended.stderr

    assert "`orbit-lsp trust" in done("doctor")[1]
    stdout, stderr = done("compile", "k.cu")
    assert ("registers per thread" in stdout, "ok: 1 kernel compiled" in stderr) == (True, True)
    done("show", "k.cu")
    assert sang(folder) == []


@pytest.mark.parametrize(
    ("variables", "dropped", "left"),
    [
        ({"PATH": ".:/usr/bin::bin"}, (), {"PATH": "/usr/bin"}),
        ({"PYTHONPATH": ":/x"}, (), {"PYTHONPATH": "/x"}),
        ({"LD_LIBRARY_PATH": "/x:"}, (), {"LD_LIBRARY_PATH": "/x"}),
        ({"LD_LIBRARY_PATH": ""}, (), {}),
        ({"CC": "gcc"}, (), {"CC": "gcc"}),
        ({"CC": "./gcc"}, ("CC",), {}),
        ({"NVCC_CCBIN": "bin/g++"}, ("NVCC_CCBIN",), {}),
        ({"CUDA_HOME": "/usr/local/cuda"}, (), {"CUDA_HOME": "/usr/local/cuda"}),
        ({"CUDA_HOME": "."}, ("CUDA_HOME",), {}),
        ({"LD_PRELOAD": "./evil.so"}, ("LD_PRELOAD",), {}),
    ],
)  # fmt: skip
def test_variables_that_mean_another_file_in_each_folder(
    variables: dict[str, str], dropped: tuple[str, ...], left: dict[str, str]
) -> None:
    assert relative_places.drop(variables) == dropped
    assert variables == left


# -- orbit-lsp trust --------------------------------------------------------------------------------


def test_trust_is_remembered_listed_and_forgotten(folder: Path) -> None:
    hostile_flags(folder, ["-ccbin", "./canary"])
    inner = folder / "inner"
    inner.mkdir()
    assert orbit(folder, "trust", "--list") == (0, "", "")
    code, text, _ = orbit(folder, "trust", ".")
    assert (code, text.partition(":")[0]) == (0, f"{folder} is trusted")
    assert orbit(folder, "trust", "--list")[1] == f"{folder}\n"
    for place in (folder, inner):
        assert opened(place).settings.now.trusted
    assert not opened(folder.parent).settings.now.trusted
    assert not opened(folder, trusted=False).settings.now.trusted  # the editor's word wins
    assert orbit(folder, "trust", "--forget", ".")[0] == 0
    assert orbit(folder, "trust", "--forget", ".")[0] == 64
    assert not opened(folder).settings.now.trusted


def test_a_folder_that_is_not_there_cannot_be_trusted(folder: Path) -> None:
    assert orbit(folder, "trust", "nowhere") == (64, "", f"orbit-lsp: there is no folder {folder}/nowhere\n")


def test_trust_follows_the_folder_and_not_a_link_to_it(folder: Path) -> None:
    link = folder.parent / "link"
    link.symlink_to(folder)
    trust.remember(str(link))
    link.unlink()
    link.mkdir()  # another folder under the name that was trusted
    assert (opened(folder).settings.now.trusted, opened(link).settings.now.trusted) == (True, False)


def test_a_broken_list_of_trusted_folders_trusts_nothing_but_what_it_holds(folder: Path) -> None:
    trust.remember(str(folder))
    file = trust.list_file()
    file.write_text(f'"/"x\n{{}}\n"relative"\n"a\\u0000b"\n[["\n{file.read_text()}')
    assert trust.remembered() == (str(folder),)
    assert file.stat().st_mode & 0o077 == 0


def test_the_door_of_every_command_drops_relative_places(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "./gcc")
    code, _, message = orbit(folder, "settings")
    assert (code, message.partition(":")[0]) == (0, "orbit-lsp")
    assert "the variable CC is ignored" in message


@pytest.mark.skipif(os.name != "posix", reason="users and permissions are POSIX's")
def test_a_list_that_others_may_have_written_trusts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / "project"
    folder.mkdir()
    trust.remember(str(folder))
    assert (trust.foreign(), trust.remembered()) == ("", (str(folder),))
    file = trust.list_file()
    file.chmod(0o666)
    assert trust.remembered() == ()
    code, _, message = orbit(tmp_path, "trust", str(folder))
    assert (code, message.count("\n")) == (5, 1)
    assert (
        f"{file} can be written by other users (its permissions are 666), so no folder is trusted" in message
    )
    file.chmod(0o600)
    assert trust.remembered() == (str(folder),)
    with monkeypatch.context() as patch:
        uid = os.getuid()
        patch.setattr(os, "getuid", lambda: uid + 1)
        assert trust.remembered() == ()
        assert trust.foreign().startswith(
            f"{file} belongs to another user (uid {uid}), so no folder is trusted: set"
        )
