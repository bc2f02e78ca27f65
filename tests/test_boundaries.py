"""Imports point one way, and heavy packages load only where they are used."""

from __future__ import annotations

import copy
import functools
import subprocess
import sys
from pathlib import Path

import grimp
import pytest
from importlinter.application.use_cases import read_user_options
from importlinter.configuration import configure
from importlinter.contracts.acyclic_siblings import AcyclicSiblingsContract
from importlinter.contracts.forbidden import ForbiddenContract
from importlinter.contracts.layers import LayersContract

ROOT = Path(__file__).parent.parent
configure()
OPTIONS = read_user_options(str(ROOT / "pyproject.toml"))
CONTRACTS = {options["id"]: options for options in OPTIONS.contracts_options}
KINDS = {
    "layers": LayersContract,
    "forbidden": ForbiddenContract,
    "acyclic_siblings": AcyclicSiblingsContract,
}
FORBIDDEN = {
    "author-layers": ("orbit_lsp.kernels.model", "orbit_lsp.views.lenses"),
    "gpu-layers": ("orbit_remote.common.measure", "orbit_remote.child.python_job"),
    "no-circles": ("orbit_lsp.state.documents", "orbit_lsp.state.session"),
    "gpu-standard-library": ("orbit_remote.worker.main", "pydantic"),
    "author-knows-common-and-spec": ("orbit_lsp.views.hints", "orbit_remote.child.python_job"),
    "runners-start-processes": ("orbit_lsp.runners.local", "orbit_remote.worker.main"),
    "torch-in-children": ("orbit_remote.worker.main", "torch"),
    "protocol-in-server": ("orbit_lsp.runs.scheduler", "lsprotocol"),
    "pygls-in-server": ("orbit_lsp.views.hints", "pygls"),
    "modal-in-its-packages": ("orbit_remote.worker.main", "modal"),
}
"""An import that each contract of pyproject.toml forbids."""


@functools.cache
def imports() -> grimp.ImportGraph:
    return grimp.build_graph("orbit_lsp", "orbit_remote", include_external_packages=True)


def broken(name: str, graph: grimp.ImportGraph) -> bool:
    options = CONTRACTS[name]
    contract = KINDS[options["type"]](options["name"], OPTIONS.session_options, options)
    return not contract.check(graph, verbose=False).kept


def test_the_contracts_are_about_every_module() -> None:
    files = [*(ROOT / "orbit_lsp").rglob("*.py"), *(ROOT / "remote" / "orbit_remote").rglob("*.py")]
    names = {path.relative_to(ROOT).as_posix().removeprefix("remote/").removesuffix(".py") for path in files}
    modules = {name.replace("/", ".").removesuffix(".__init__") for name in names}
    assert modules == {name for name in imports().modules if name.startswith(("orbit_lsp", "orbit_remote"))}


@pytest.mark.parametrize("name", CONTRACTS)
def test_imports_point_one_way(name: str) -> None:
    assert not broken(name, imports()), f"run lint-imports: {CONTRACTS[name]['name']}"


@pytest.mark.parametrize("name", CONTRACTS)
def test_each_contract_can_fail(name: str) -> None:
    importer, imported = FORBIDDEN[name]
    graph = copy.deepcopy(imports())
    graph.add_import(importer=importer, imported=imported)
    assert broken(name, graph)


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("orbit_remote.common.messages", {"asyncio", "pydantic", "torch", "orbit_lsp"}),
        ("orbit_remote.worker.main", {"pydantic", "torch", "triton", "orbit_lsp", "pygls"}),
        ("orbit_remote.modal_app.container", {"modal", "pydantic", "torch", "triton", "orbit_lsp", "pygls"}),
        ("orbit_lsp.runners.modal.runner", {"modal", "torch", "triton", "pygls", "tenacity"}),
        (
            "orbit_lsp.server.handlers",
            {"modal", "torch", "triton", "pydantic", "tree_sitter", "orbit_remote.spec.comment_scanner"},
        ),
        ("orbit_lsp.cli.run_command", {"pygls", "lsprotocol", "pydantic", "modal", "statistics", "torch"}),
        ("orbit_lsp.cli.main", {"pygls", "lsprotocol", "pydantic", "asyncio"}),
    ],
)
def test_importing_does_not_load(module: str, absent: set[str]) -> None:
    code = f"import sys, {module}; print(*sys.modules)"
    run = [sys.executable, "-P", "-c", code]
    path = {"PYTHONPATH": f"{ROOT}:{ROOT / 'remote'}"}
    loaded = subprocess.run(run, capture_output=True, text=True, check=True, env=path).stdout
    assert not absent & set(loaded.split())


def test_what_a_laptop_with_windows_lacks_is_not_needed_to_import() -> None:
    """fcntl, resource and the process-group calls are missing there."""
    code = (
        "import sys, os\n"
        "for name in ('fcntl', 'resource', 'pwd', 'grp', 'termios'): sys.modules[name] = None\n"
        "for name in ('killpg', 'setsid', 'fork', 'getuid', 'pidfd_open'): hasattr(os, name) and delattr(os, name)\n"
        "import orbit_lsp.server.handlers, orbit_lsp.cli.run_command, orbit_lsp.runners.local, orbit_remote.worker.main\n"
    )
    path = {"PYTHONPATH": f"{ROOT}:{ROOT / 'remote'}"}
    run = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False, env=path
    )
    assert run.returncode == 0, run.stderr
