"""How packages get into a Python: the command for each kind of environment, and every remedy that is printed, executed there."""

from __future__ import annotations

import importlib.metadata
import os
import re
import runpy
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

from orbit_lsp.compilation import missing
from orbit_remote.common import python_errors
from orbit_remote.common.packages import installing, missing_modules

NOTHING = {"PATH": "/nowhere", "HOME": "/nowhere"}
PIP = "lib/python3.12/site-packages/pip/__init__.py"
OS = "lib/python3.12/os.py"


def check(root: Path, files: str, expected: str, *, environment: dict[str, str] | None = None) -> None:
    """`files` of which `env/bin/python` is the Python, and the installer for it. A file may have a content: `name=content`."""
    for name, _, content in (each.partition("=") for each in ["env/bin/python", *files.split()]):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content.replace("ROOT", str(root)).replace(":", "=") if content else "")
        path.chmod(0o755)
    known = {name: value.replace("ROOT", str(root)) for name, value in (environment or NOTHING).items()}
    command = installing.installer(str(root / "env/bin/python"), known)
    assert command.replace(str(root), "ROOT") == expected


VENV = f"env/pyvenv.cfg=home:ROOT/base/bin base/{OS}"
PYTHON = "ROOT/env/bin/python"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ("", f"{PYTHON} -m pip install"),
        (f"{VENV} env/{PIP}", f"{PYTHON} -m pip install"),
        (f"{VENV} env/lib/python3.12/site-packages/pipx_shared.pth", f"{PYTHON} -m pip install"),
        (f"{VENV} base/lib/python3.12/ensurepip/__init__.py", f"{PYTHON} -m ensurepip && {PYTHON} -m pip install"),
        (f"{VENV} base/{PIP} base/lib/python3.12/ensurepip/__init__.py", f"{PYTHON} -m ensurepip && {PYTHON} -m pip install"),
        (VENV, f"install uv (https://docs.astral.sh/uv), then: uv pip install --python {PYTHON}"),
        (f"{VENV} env/bin/uv", f"ROOT/env/bin/uv pip install --python {PYTHON}"),
        (f"env/{OS} env/conda-meta/history env/{PIP}", f"{PYTHON} -m pip install"),
        (f"env/{OS} env/conda-meta/history", f"conda install -p ROOT/env pip && {PYTHON} -m pip install"),
        (f"env/{OS} env/{PIP} env/lib/python3.12/EXTERNALLY-MANAGED", "python3 -m venv .venv && .venv/bin/python -m pip install"),
        (f"{VENV} env/{PIP} base/lib/python3.12/EXTERNALLY-MANAGED", f"{PYTHON} -m pip install"),
    ],
)  # fmt: skip
def test_the_installer_of_each_kind_of_environment(tmp_path: Path, files: str, expected: str) -> None:
    check(tmp_path, files, expected)


def test_packages_of_the_base_count_where_the_environment_sees_them(tmp_path: Path) -> None:
    base = tmp_path / "base" / PIP
    base.parent.mkdir(parents=True)
    base.write_text("")
    (tmp_path / "env").mkdir()
    (tmp_path / "env/pyvenv.cfg").write_text(
        f"home = {tmp_path}/base/bin\ninclude-system-site-packages = true\n"
    )
    check(tmp_path, "", f"{PYTHON} -m pip install")


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"PATH": "ROOT/tools"}, f"uv pip install --python {PYTHON}"),
        ({"PATH": "/nowhere", "HOME": "ROOT/home"}, f"ROOT/home/.local/bin/uv pip install --python {PYTHON}"),
    ],
)
def test_uv_is_typed_as_it_is_found(tmp_path: Path, environment: dict[str, str], expected: str) -> None:
    check(tmp_path, f"{VENV} tools/uv home/.local/bin/uv", expected, environment=environment)


def test_words_are_quoted_for_the_shell() -> None:
    command = installing.command("/my envs/bin/python", "a[b]>=1", environment=NOTHING)
    assert command == "'/my envs/bin/python' -m pip install 'a[b]>=1'"


def test_where_installing_is_not_the_way_the_client_says_what_is() -> None:
    environment = {installing.INSTEAD: "add {} to the setting `orbit.modal.pip`"}
    assert (
        installing.remedy("/py", "a", "b", environment=environment)
        == "add a, b to the setting `orbit.modal.pip`"
    )


def test_the_compiler_of_remedies_is_that_of_the_extra() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    extra = project["project"]["optional-dependencies"]["cuda"]
    assert installing.CUDA in [each.partition(";")[0] for each in extra]


def test_an_extra_is_installed_by_its_packages() -> None:
    packages = installing.optional("serve").partition(" install ")[2]
    assert "fastapi" in packages
    assert "orbit-lsp" not in packages


@pytest.mark.parametrize(
    ("path", "expected"),
    [("BESIDE", "see `orbit-lsp doctor`"), ("/nowhere", "see `BESIDE/orbit-lsp doctor`")],
)
def test_a_command_of_ours_is_typed_as_it_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, expected: str
) -> None:
    (tmp_path / "orbit-lsp").write_text("")
    (tmp_path / "orbit-lsp").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    text = installing.located("see `orbit-lsp doctor`", {"PATH": path.replace("BESIDE", str(tmp_path))})
    assert text.replace(str(tmp_path), "BESIDE") == expected


# -- what a file imports in vain --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "package"),
    [
        ("import nocuda.tile as ct", "cuda-tile[tileiras]"),
        ("from nocuda import tile as ct", "cuda-tile[tileiras]"),
        ("from nocuda.tile import kernel", "cuda-tile[tileiras]"),
        ("import nocuda.core.experimental", "cuda-core"),
        ("from nocuda.bindings import driver", "cuda-bindings"),
        ("import nocuda", "cuda-python"),
        ("from nocuda import nvrtc", "cuda-python"),
        ("import json, nocuda.tile", "cuda-tile[tileiras]"),
        ("def f():\n    import nocuda.tile\nf()", "cuda-tile[tileiras]"),
    ],
)
def test_the_package_is_that_of_what_the_statement_imports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, package: str
) -> None:
    """Of `import cuda.tile` Python's exception names `cuda` alone. `nocuda` stands for it: it is installed nowhere."""
    known = {
        re.sub("^cuda", "nocuda", name): value for name, value in vars(missing_modules)["_PACKAGES"].items()
    }
    monkeypatch.setattr(missing_modules, "_PACKAGES", known)
    monkeypatch.setenv(installing.INSTEAD, "install {}")
    file = tmp_path / "k.py"
    file.write_text(f"{text}\n")
    with pytest.raises(ModuleNotFoundError) as caught:
        runpy.run_path(str(file))
    assert missing_modules.remedy(caught.value, str(file)) == f"install {package}"


@pytest.mark.parametrize(
    ("instead", "remedy"),
    [
        ("trust this folder", "trust this folder"),
        ("add {} to the image", "add rarely to the image, if that is the package's name"),
    ],
)
@pytest.mark.parametrize("module", ["torch", "rarely"])
def test_the_client_says_what_to_do_where_installing_is_not_the_way(
    monkeypatch: pytest.MonkeyPatch, module: str, instead: str, remedy: str
) -> None:
    monkeypatch.setenv(installing.INSTEAD, instead)
    explained = python_errors.explain(ModuleNotFoundError("no", name=module), "/k.py")
    if module == "torch":
        remedy = remedy.replace("rarely", "torch").partition(", if")[0]
    assert explained.failure.remedy == remedy


# -- every remedy, executed -------------------------------------------------------------------------


def packages() -> list[str]:
    """Of all remedies for packages, as they are printed."""
    found = [re.sub(r"^-U ", "", each) for _, text in missing.PROVIDERS for each in re.findall(r"\{pip\} ([^,()]+)", text)]  # fmt: skip
    return [*found, *vars(missing_modules)["_PACKAGES"].values(), installing.CUDA, "modal[api-proxy-support]"]


def index(folder: Path) -> dict[str, str]:
    """Variables for pip and uv: an index in `folder` that has these packages, without anything in them."""
    for name in dict.fromkeys(name for each in packages() for name in each.split()):
        project = re.split(r"[\[<>=]", name)[0]
        extras = re.findall(r"[\w-]+", name[name.find("[") : name.find("]")] if "[" in name else "")
        stem = f"{project.replace('-', '_')}-13.0.2"
        with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as wheel:
            provided = "".join(f"Provides-Extra: {extra}\n" for extra in extras)
            metadata = f"Metadata-Version: 2.1\nName: {project}\nVersion: 13.0.2\n{provided}"
            wheel.writestr(f"{stem}.dist-info/METADATA", metadata)
            wheel.writestr(
                f"{stem}.dist-info/WHEEL",
                "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            )
            wheel.writestr(f"{stem}.dist-info/RECORD", "")
    return {
        "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder), "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_CONFIG_FILE": os.devnull,
        "UV_NO_INDEX": "1", "UV_FIND_LINKS": str(folder), "UV_OFFLINE": "1", "UV_NO_CONFIG": "1",
        "UV_CACHE_DIR": str(folder / "uv-cache"), "UV_TOOL_DIR": str(folder / "tools"), "UV_TOOL_BIN_DIR": str(folder / "bin"),
    }  # fmt: skip


UV = shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent)) or ""
needs_uv = pytest.mark.skipif(not UV, reason="uv is not installed: pip install uv")


def with_pip(env: Path) -> None:
    """Put our pip into an environment. What `ensurepip` does, 4 s, is tried where it is part of a remedy."""
    packages = Path(sysconfig.get_path("purelib", "venv", {"base": str(env)}))
    found = importlib.metadata.files("pip") or []
    for each in found:
        if ".." not in each.parts:  # what lies in bin
            target = packages / each
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(each.locate(), target)


def made(kind: str, folder: Path, environment: dict[str, str]) -> Path:
    """The Python of a new environment."""
    env = folder / "env"
    match kind:
        case "venv":
            venv.create(env, with_pip=False)
            with_pip(env)
        case "venv without pip":
            venv.create(env, with_pip=False)
        case "uv venv":
            subprocess.run([UV, "venv", "-q", "--python", sys.executable, env], check=True, env=environment)
        case _:
            source = folder / "source"
            source.mkdir()
            (source / "tool.py").write_text("def main(): ...\n")
            stem = "tool-1"
            with zipfile.ZipFile(source / f"{stem}-py3-none-any.whl", "w") as wheel:
                wheel.write(source / "tool.py", "tool.py")
                wheel.writestr(
                    f"{stem}.dist-info/METADATA", "Metadata-Version: 2.1\nName: tool\nVersion: 1\n"
                )
                wheel.writestr(
                    f"{stem}.dist-info/WHEEL",
                    "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
                )
                wheel.writestr(f"{stem}.dist-info/entry_points.txt", "[console_scripts]\ntool = tool:main\n")
                wheel.writestr(f"{stem}.dist-info/RECORD", "")
            wheel_file = str(source / f"{stem}-py3-none-any.whl")
            command = [UV, "tool", "install", "-q", "--python", sys.executable, wheel_file]
            subprocess.run(command, check=True, env=environment)
            env = Path(environment["UV_TOOL_DIR"], "tool")
    return env / "bin" / "python"


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    [
        "venv",
        "venv without pip",
        pytest.param("uv venv", marks=needs_uv),
        pytest.param("uv tool", marks=needs_uv),
    ],
)
def test_every_remedy_for_a_package_runs_where_it_is_printed(tmp_path: Path, kind: str) -> None:
    """pip and uv are the real ones; the index is one of empty packages."""
    folder = tmp_path / "index"
    folder.mkdir()
    uv = [] if not UV or kind == "venv without pip" else [str(Path(UV).parent)]
    environment = {"HOME": str(tmp_path), "PATH": os.pathsep.join([*uv, "/usr/bin", "/bin"])} | index(folder)
    python = str(made(kind, tmp_path, environment))
    wanted = sorted({name for each in packages() for name in each.split()})
    command = installing.command(python, *wanted, environment=environment)
    done = subprocess.run(
        ["sh", "-c", command.replace("pip install", "pip install --dry-run")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
