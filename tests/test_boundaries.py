"""Imports point one way, and heavy packages load only where they are used."""

from __future__ import annotations

import ast
import copy
import functools
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import grimp
import pytest
from importlinter.application.use_cases import read_user_options
from importlinter.configuration import configure
from importlinter.contracts.acyclic_siblings import AcyclicSiblingsContract
from importlinter.contracts.forbidden import ForbiddenContract
from importlinter.contracts.layers import LayersContract

from orbit_lsp.server import handlers

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


def test_a_folder_has_at_most_twenty_modules() -> None:
    paths = [*(ROOT / "orbit_lsp").rglob("*.py"), *(ROOT / "remote" / "orbit_remote").rglob("*.py")]
    folders = Counter(path.parent.relative_to(ROOT).as_posix() for path in paths)
    assert not {folder: count for folder, count in folders.items() if count > 20}, "make two folders of it"


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
            {"orbit_lsp.state.session", "orbit_lsp.views.lenses", "orbit_remote.common.messages"},
        ),
        (
            "orbit_lsp.server.handlers; orbit_lsp.server.handlers.load()",
            {
                "modal",
                "torch",
                "triton",
                "pydantic",
                "tree_sitter",
                "orbit_remote.spec.comment_scanner",
                "mcp",
                "fastapi",
            },
        ),
        ("orbit_lsp.cli.run_command", {"pygls", "lsprotocol", "pydantic", "modal", "statistics", "torch"}),
        (
            "orbit_lsp.cli.doors.jobs_command",
            {"pygls", "lsprotocol", "pydantic", "modal", "torch", "mcp", "fastapi", "watchfiles"},
        ),
        ("orbit_lsp.cli.main", {"pygls", "lsprotocol", "pydantic", "asyncio"}),
        ("orbit_remote.worker.main", {"orbit_remote.child.child_main", "orbit_remote.spec.launch_spec"}),
    ],
)
def test_importing_does_not_load(module: str, absent: set[str]) -> None:
    code = f"import sys, {module}; print(*sys.modules)"
    run = [sys.executable, "-P", "-c", code]
    path = {"PYTHONPATH": f"{ROOT}:{ROOT / 'remote'}"}
    loaded = subprocess.run(run, capture_output=True, text=True, check=True, env=path).stdout
    assert not absent & set(loaded.split())


OF_EDITORS = (
    "orbit_lsp.server.handlers", "orbit_lsp.cli.source_listing", "orbit_lsp.cli.draft_command", "orbit_lsp.cli.files.folder_listing", "orbit_lsp.views.spec.spec_drafts",
    "orbit_lsp.views.lenses", "orbit_lsp.views.hints", "orbit_lsp.views.diagnostics",
)  # fmt: skip
"""What the editors' server is, and commands that print what an editor would show."""


def test_no_other_command_asks_for_the_protocol_while_it_runs() -> None:
    """Imports in functions count too: lsprotocol takes longer than a cached compile."""
    named: set[str] = set()
    for path in (ROOT / "orbit_lsp" / "cli").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("orbit_lsp"):
                inner = (f"{node.module}.{each.name}" for each in node.names)
                named.update(each if _is_module(each) else node.module or "" for each in inner)
    code = (
        "import contextlib, importlib, sys\n"
        f"for name in {sorted(named - {*OF_EDITORS})}:\n"
        "    with contextlib.suppress(ImportError):\n"  # an extra that is not installed
        "        importlib.import_module(name)\n"
        "print('lsprotocol' in sys.modules)"
    )
    path = {"PYTHONPATH": f"{ROOT}:{ROOT / 'remote'}"}
    run = [sys.executable, "-P", "-c", code]
    assert subprocess.run(run, capture_output=True, text=True, check=True, env=path).stdout == "False\n"


def _is_module(name: str) -> bool:
    place = ROOT / name.replace(".", "/")
    return place.is_dir() or place.with_suffix(".py").is_file()


def test_the_commands_that_the_client_is_offered_are_those_there_are() -> None:
    assert set(handlers.COMMANDS) == set(handlers.command_functions())


def test_what_a_laptop_with_windows_lacks_is_not_needed_to_import() -> None:
    """fcntl, resource and the process-group calls are missing there."""
    code = (
        "import sys, os\n"
        "for name in ('fcntl', 'resource', 'pwd', 'grp', 'termios'): sys.modules[name] = None\n"
        "for name in ('killpg', 'setsid', 'fork', 'getuid', 'pidfd_open'): hasattr(os, name) and delattr(os, name)\n"
        "import orbit_lsp.server.handlers as handlers, orbit_lsp.cli.run_command, orbit_lsp.runners.local, orbit_remote.worker.main\n"
        "handlers.load(); handlers.command_functions()\n"
    )
    path = {"PYTHONPATH": f"{ROOT}:{ROOT / 'remote'}"}
    run = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False, env=path
    )
    assert run.returncode == 0, run.stderr


# -- files are read in one place ----------------------------------------------------------------------

OPENS = {
    "remote/orbit_remote/common/regular_files.py": (1, "the one place"),
    "remote/orbit_remote/common/content_store.py": (4, "folders, and a file that it creates"),
    "remote/orbit_remote/spec/stored_tensors.py": (1, "a folder, so that a link in it is not followed"),
    "remote/orbit_remote/recording/taken_launch.py": (1, "a folder, so that a link in it is not followed"),
    "remote/orbit_remote/modal_app/mirror.py": (1, "a file that it creates"),
    "remote/orbit_remote/modal_app/volume_cache.py": (4, "folders, and a file that it creates"),
    "remote/orbit_remote/process/process_groups.py": (7, "/proc, for every process of the machine"),
    "remote/orbit_remote/process/host_stack.py": (1, "/proc, for every process of the machine"),
    "remote/orbit_remote/process/python_stack.py": (1, "a file that it writes"),
    "remote/orbit_remote/judge/locks.py": (1, "folders by O_PATH, for Landlock"),
    "remote/orbit_remote/process/file_lock.py": (2, "lock files, which are not read"),
    "remote/orbit_remote/recording/first_context.py": (2, "the ends of a pipe that it makes"),
    "remote/orbit_remote/recording/registered_kernels.py": (1, "a library that is searched in memory"),
    "remote/orbit_remote/worker/programs/extension_build.py": (1, "what Python says of a package"),
    "remote/orbit_remote/worker/actions/exec_action.py": (1, "a copy that it writes"),
    "remote/orbit_remote/ssh_host/bootstrap.py": (
        1,
        "an archive that it writes, before our package is there",
    ),
    "remote/orbit_remote/ssh_host/relay.py": (1, "the log that it gives a proxy"),
    "remote/orbit_remote/process/worker_socket.py": (1, "the log that it gives a worker"),
    "remote/orbit_remote/worker/faults/dump_folder.py": (1, "a pipe that the driver has made"),
    "remote/orbit_remote/worker/zygote.py": (1, "/dev/null"),
    "remote/orbit_remote/toolchain/kept_files.py": (1, "a tar in memory"),
    "orbit_lsp/cli/files/debug_compile.py": (1, "a tar in memory"),
    "remote/orbit_remote/child/notebook_kernel.py": (1, "a file that it appends to"),
    "remote/orbit_remote/child/child_main.py": (3, "its own streams, and a file that it writes"),
    "orbit_lsp/cli/main.py": (3, "its own streams"),
    "orbit_lsp/agents/message_lines.py": (1, "/dev/null"),
    "orbit_lsp/agents/drop_folder.py": (1, "a folder, which it locks"),
    "orbit_lsp/agents/loop/journal.py": (1, "its journal, which it appends to"),
    "orbit_lsp/agents/loop/records.py": (1, "a folder, which files are read within"),
    "orbit_lsp/state/user_folders.py": (1, "lists of the user, which it appends to"),
}
"""Files that may open one without `regular_files`: how often, and what."""


def opens(tree: ast.AST) -> Iterator[ast.Call]:
    """Calls that open a file: `open`, `os.open`, `read_text`, `read_bytes`, and `open` with a mode or without arguments."""
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        of = call.func
        if isinstance(of, ast.Name) and of.id == "open":
            yield call
        if isinstance(of, ast.Attribute):
            opener = of.attr == "open" and (
                not call.args
                or (isinstance(of.value, ast.Name) and of.value.id in ("os", "io", "gzip", "codecs"))
                or (
                    isinstance(at := call.args[0], ast.Constant)
                    and re.fullmatch(r"[rwabxt+]+", str(at.value))
                )
            )
            if opener or of.attr in ("read_text", "read_bytes"):
                yield call


def test_a_file_is_opened_by_regular_files_alone() -> None:
    result: dict[str, int] = {}
    for folder in ("orbit_lsp", "remote/orbit_remote"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if count := sum(1 for _ in opens(ast.parse(path.read_bytes()))):
                result[path.relative_to(ROOT).as_posix()] = count
    assert result == {name: count for name, (count, _) in OPENS.items()}, "use common/regular_files.py"


def test_each_way_to_open_a_file_is_noticed() -> None:
    ways = "open(p)", "os.open(p, 0)", "Path(p).open()", "p.open('rb')", "p.read_text()", "p.read_bytes()"
    assert [sum(1 for _ in opens(ast.parse(way))) for way in ways] == [1] * len(ways)
    assert not list(opens(ast.parse("session.open(uri, 0, text)")))


def test_no_file_of_tests_imports_what_is_large_when_it_is_collected() -> None:
    """Every process of pytest imports every file of tests: tests/later.py."""
    large = re.compile(r"^(?:import|from) +(torch|ray|mcp)\b", re.MULTILINE)
    found = [
        f"{path.relative_to(ROOT)}:{statement.lineno}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        if path.name.startswith(("test_", "conftest")) and large.search(text := path.read_text("utf-8"))
        for statement in ast.parse(text).body
        if large.match(ast.unparse(statement))
    ]
    assert found == []
