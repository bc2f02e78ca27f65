"""Imports point one way, and heavy packages load only where they are used."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SPEC = {f"orbit_remote.{path.stem}" for path in (ROOT / "remote/orbit_remote").glob("spec*.py")}
SHARED = {
    f"orbit_remote.{name}"
    for name in ("contracts", "occupancy", "nvcc_flags", "architectures", "contract_files", "popcorn_task")
}
HEAVY = {
    "pygls",
    "lsprotocol",
    "pydantic",
    "modal",
    "torch",
    "triton",
    "pynvml",
    "cupti",
    "tree_sitter",
    "pathspec",
}
KERNELS = {"orbit_lsp.kernels", "orbit_lsp.kernels.model"}

# what a module of the author's side may import: ours, and of the heavy packages
MAY: dict[str, set[str]] = {
    "__init__": set(),
    "__main__": {"orbit_lsp.cli"},
    "cli": {"orbit_lsp", "orbit_lsp.server", "orbit_lsp.config", "orbit_lsp.schema", "orbit_lsp.terminal", "orbit_lsp.modal_terminal", "orbit_lsp.report_terminal"},
    "server": {
        "orbit_lsp", "orbit_lsp.commands", "orbit_lsp.dump_commands", "orbit_lsp.history_commands", "orbit_lsp.others", "orbit_lsp.contract", "orbit_lsp.documents", "orbit_lsp.language_server",
        "orbit_lsp.session", "orbit_lsp.views", "lsprotocol",
    },
    "commands": {
        "orbit_lsp", "orbit_lsp.contract", "orbit_lsp.language_server", "orbit_lsp.renting", "orbit_lsp.report", "orbit_lsp.runs",
        "orbit_lsp.session", "orbit_lsp.views", "lsprotocol",
    },
    "language_server": {
        "orbit_lsp", "orbit_lsp.comparisons", "orbit_lsp.editor", "orbit_lsp.launch_specs", "orbit_lsp.live", "orbit_lsp.protocol",
        "orbit_lsp.recheck", "orbit_lsp.runs", "orbit_lsp.session", "orbit_lsp.startup", "orbit_lsp.turns", "orbit_lsp.versions", "pygls", "lsprotocol",
    },
    "pauses": set(),
    "recheck": {"orbit_lsp", "orbit_lsp.pauses", "orbit_lsp.session"} | KERNELS,
    "protocol": {"pygls", "lsprotocol"},
    "editor": {"orbit_lsp", "orbit_lsp.live", "orbit_lsp.comparisons", "orbit_lsp.turns", "orbit_lsp.renting", "orbit_lsp.summary", "orbit_lsp.runs", "orbit_lsp.session", "orbit_lsp.views", "pygls", "lsprotocol"} | SHARED,
    "terminal": {"orbit_lsp.contract", "orbit_lsp.dumps",
        "orbit_lsp", "orbit_lsp.comparison_terminal", "orbit_lsp.history_terminal", "orbit_lsp.doctor", "orbit_lsp.launch_specs", "orbit_lsp.listing", "orbit_lsp.startup", "orbit_lsp.summary", "orbit_lsp.runs",
        "orbit_lsp.session", "orbit_lsp.versions", "orbit_lsp.views",
    } | KERNELS | SHARED,
    "doctor": {"orbit_lsp", "orbit_lsp.jobs", "orbit_lsp.runners", "orbit_lsp.session"} | SHARED,
    "comparison_terminal": {
        "orbit_lsp", "orbit_lsp.comparisons", "orbit_lsp.listing", "orbit_lsp.runs", "orbit_lsp.session", "orbit_lsp.startup",
        "orbit_lsp.summary", "orbit_lsp.views",
    } | SHARED,
    "modal_terminal": {"orbit_lsp", "orbit_lsp.renting", "orbit_lsp.startup", "orbit_lsp.runners", "orbit_lsp.session"} | SHARED,
    "listing": {"orbit_lsp", "orbit_lsp.launch_specs", "orbit_lsp.documents", "orbit_lsp.session", "orbit_lsp.views", "lsprotocol"},
    "startup": {
        "orbit_lsp", "orbit_lsp.bundle", "orbit_lsp.jobs", "orbit_lsp.renting", "orbit_lsp.session", "orbit_lsp.config",
        "orbit_lsp.runners", "orbit_remote.modal_spec",
    } | SHARED,
    "joint": {"orbit_lsp.runs", "orbit_lsp.session"},
    "comparisons": {"orbit_lsp", "orbit_lsp.filing", "orbit_lsp.jobs", "orbit_lsp.joint", "orbit_lsp.renting", "orbit_lsp.runs", "orbit_lsp.session", "orbit_lsp.startup"} | SHARED,
    "renting": {"orbit_lsp", "orbit_lsp.runners", "orbit_lsp.units"} | SHARED,
    "runs": {"orbit_lsp.contract", "orbit_lsp", "orbit_lsp.filing", "orbit_lsp.memory_filing", "orbit_lsp.profile_filing", "orbit_lsp.report", "orbit_lsp.jobs", "orbit_lsp.recipes", "orbit_lsp.runners", "orbit_lsp.session"} | SHARED,
    "filing": {"orbit_lsp.contract", "orbit_lsp", "orbit_lsp.bundle", "orbit_lsp.recipes", "orbit_lsp.session", "orbit_remote", "orbit_remote.measure"} | KERNELS | SHARED,
    "jobs": {"orbit_lsp.contract", "orbit_lsp", "orbit_lsp.recipes", "orbit_lsp.session", "orbit_lsp.config", "orbit_lsp.runs"} | SHARED,
    "live": {"orbit_lsp", "orbit_lsp.jobs", "orbit_lsp.pauses", "orbit_lsp.units", "orbit_lsp.runs", "orbit_lsp.session"} | SHARED,
    "report": {"orbit_lsp", "orbit_lsp.dumps", "orbit_lsp.bottleneck", "orbit_lsp.roofline", "orbit_lsp.history", "orbit_lsp.report", "orbit_lsp.session", "orbit_lsp.units", "orbit_lsp.views"} | SHARED,
    "contract": {"orbit_lsp.session", "orbit_remote", "orbit_remote.contract_files"} | KERNELS,
    "recipes": {"orbit_lsp", "orbit_lsp.launch_specs", "orbit_lsp.session"} | KERNELS | SHARED | SPEC,
    "bundle": {"orbit_lsp.session"} | SHARED,
    "closure": {"orbit_lsp", "orbit_lsp.closure", "orbit_lsp.units", "orbit_remote", "orbit_remote.contract_files", "orbit_remote.files", "pathspec", "tree_sitter", "tree_sitter_python"} | KERNELS | SHARED,
    "session": {"orbit_lsp", "orbit_lsp.documents", "orbit_lsp.config", "orbit_lsp.launch_specs", "orbit_remote.measure"} | KERNELS | SHARED,
    "launch_specs": {"orbit_lsp", "orbit_lsp.jobs", "orbit_lsp.pauses", "orbit_lsp.session", "orbit_remote"} | KERNELS | SHARED | SPEC,
    "drafts": {"orbit_lsp.drafts"} | KERNELS | SHARED | SPEC,
    "documents": KERNELS,
    "bottleneck": SHARED,
    "roofline": {"orbit_lsp.bottleneck"} | SHARED,
    "text_lines": set(),
    "memory_filing": {"orbit_lsp", "orbit_lsp.bundle", "orbit_lsp.session"} | SHARED,
    "profile_filing": {"orbit_lsp", "orbit_lsp.bottleneck", "orbit_lsp.contract", "orbit_lsp.bundle", "orbit_lsp.documents", "orbit_lsp.filing", "orbit_lsp.session"} | SHARED,
    "summary": {"orbit_lsp", "orbit_lsp.bottleneck", "orbit_lsp.units"} | SHARED,
    "report_terminal": {"orbit_lsp", "orbit_lsp.bottleneck", "orbit_lsp.documents", "orbit_lsp.report", "orbit_lsp.runners", "orbit_lsp.session", "orbit_lsp.views", "pydantic"} | SHARED,
    "schema": {"orbit_lsp", "orbit_lsp.published", "pydantic"} | SHARED,
    "history": {"pydantic"} | SHARED,
    "git": set(),
    "lineage": {"orbit_lsp.history", "orbit_remote", "orbit_remote.measure"},
    "others": {"orbit_lsp", "orbit_lsp.contract", "orbit_lsp.jobs", "orbit_lsp.session"},
    "moved": {"orbit_lsp.bottleneck", "orbit_lsp.session"} | SHARED,
    "sides": {
        "orbit_lsp", "orbit_lsp.bundle", "orbit_lsp.closure", "orbit_lsp.contract", "orbit_lsp.documents", "orbit_lsp.git", "orbit_lsp.history", "orbit_lsp.jobs",
        "orbit_lsp.others", "orbit_lsp.recipes", "orbit_lsp.session", "orbit_lsp.versions", "orbit_remote",
    } | KERNELS | SHARED,
    "turns": {
        "orbit_lsp.joint", "orbit_lsp", "orbit_lsp.contract", "orbit_lsp.filing", "orbit_lsp.jobs", "orbit_lsp.moved", "orbit_lsp.others", "orbit_lsp.renting",
        "orbit_lsp.runners", "orbit_lsp.runs", "orbit_lsp.session", "orbit_lsp.sides", "orbit_lsp.startup", "orbit_lsp.versions", "orbit_remote", "orbit_remote.measure",
    } | SHARED,
    "dumps": {"orbit_lsp", "orbit_lsp.filing", "orbit_lsp.session"} | SHARED,
    "dump_commands": {
        "orbit_lsp", "orbit_lsp.dumps", "orbit_lsp.commands", "orbit_lsp.language_server", "orbit_lsp.renting", "orbit_lsp.report",
        "orbit_lsp.session", "lsprotocol",
    } | SHARED,
    "history_commands": {
        "orbit_lsp", "orbit_lsp.commands", "orbit_lsp.contract", "orbit_lsp.language_server", "orbit_lsp.lineage", "orbit_lsp.others",
        "orbit_lsp.renting", "orbit_lsp.report", "orbit_lsp.runs", "orbit_lsp.session", "orbit_lsp.views", "lsprotocol",
    },
    "published": {"orbit_lsp", "orbit_lsp.history", "orbit_lsp.lineage", "orbit_lsp.moved", "orbit_lsp.session", "orbit_lsp.views"} | SHARED,
    "history_terminal": {
        "orbit_lsp", "orbit_lsp.contract", "orbit_lsp.history", "orbit_lsp.kernels", "orbit_lsp.lineage", "orbit_lsp.listing", "orbit_lsp.others", "orbit_lsp.published", "orbit_lsp.renting", "orbit_lsp.runs", "orbit_lsp.session", "orbit_lsp.startup",
        "orbit_lsp.summary", "orbit_lsp.turns", "orbit_lsp.versions", "orbit_lsp.views", "pydantic",
    } | SHARED,
    "versions": {"orbit_lsp", "orbit_lsp.documents", "orbit_lsp.contract", "orbit_lsp.history", "orbit_lsp.jobs", "orbit_lsp.lineage", "orbit_lsp.profile_filing", "orbit_lsp.runs", "orbit_lsp.session", "orbit_remote", "orbit_remote.measure"} | SHARED,
    "config": {"pydantic"},
    "units": set(),
    "kernels": KERNELS | {"tree_sitter", "tree_sitter_python"},
    "views": {"orbit_lsp.dumps", "orbit_lsp.contract", "orbit_lsp.bottleneck", "orbit_lsp.roofline", "orbit_lsp.text_lines", "orbit_lsp.history", "orbit_lsp.lineage", "orbit_lsp.moved", "orbit_lsp.others", "orbit_lsp", "orbit_lsp.bundle", "orbit_lsp.config", "orbit_lsp.drafts", "orbit_lsp.jobs", "orbit_lsp.launch_specs", "orbit_lsp.recipes", "orbit_lsp.units", "orbit_remote", "orbit_remote.peaks", "orbit_remote.measure", "orbit_lsp.documents", "orbit_lsp.session", "orbit_lsp.views", "lsprotocol"} | KERNELS | SHARED | SPEC,
    "runners": {"orbit_lsp", "orbit_lsp.runners", "orbit_lsp.closure", "orbit_lsp.units", "pydantic", "modal"} | SHARED | {
        "orbit_remote", "orbit_remote.processes", "orbit_remote.modal_spec", "orbit_remote.modal_app", "orbit_remote.triton_errors",
    },
}  # fmt: skip


def imported(path: Path) -> set[str]:
    """Modules a file imports anywhere in it, ours in full and others by their top-level name."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                is_module = (
                    (ROOT / (inner.replace(".", "/") + ".py")).exists()
                    or (ROOT / "remote" / (inner.replace(".", "/") + ".py")).exists()
                    or (ROOT / inner.replace(".", "/")).is_dir()
                )
                found.add(inner if is_module else node.module)
    ours = {name for name in found if name.split(".")[0] in ("orbit_lsp", "orbit_remote")}
    return ours | ({name.split(".")[0] for name in found} & HEAVY)


def package_of(path: Path) -> str:
    parts = path.relative_to(ROOT / "orbit_lsp").with_suffix("").parts
    return parts[0]


@pytest.mark.parametrize(
    "path",
    sorted((ROOT / "orbit_lsp").rglob("*.py")),
    ids=lambda p: str(p.relative_to(ROOT)).removesuffix(".py"),
)
def test_the_authors_side_imports_only_what_it_may(path: Path) -> None:
    may = MAY[package_of(path)]
    for name in imported(path):
        allowed = name in may or any(
            name.startswith(f"orbit_lsp.{inner}.") and f"orbit_lsp.{inner}" in may
            for inner in ("views", "kernels", "runners", "closure", "drafts", "report")
        )
        assert allowed, f"{path.name} imports {name}"


@pytest.mark.parametrize("path", sorted((ROOT / "remote/orbit_remote").glob("*.py")), ids=lambda p: p.stem)
def test_the_gpu_side_never_imports_the_authors(path: Path) -> None:
    assert not {name for name in imported(path) if name.startswith("orbit_lsp")}
    assert not imported(path) & {"pygls", "lsprotocol", "pydantic"}
    assert "modal" not in imported(path) or path.stem == "modal_app"


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("orbit_remote.contracts", {"asyncio", "pydantic", "torch", "orbit_lsp"}),
        ("orbit_remote.worker", {"pydantic", "torch", "triton", "orbit_lsp", "pygls"}),
        ("orbit_remote.modal_container", {"modal", "pydantic", "torch", "triton", "orbit_lsp", "pygls"}),
        ("orbit_lsp.runners.modal", {"modal", "torch", "triton", "pygls", "tenacity"}),
        (
            "orbit_lsp.server",
            {"modal", "torch", "triton", "pydantic", "tree_sitter", "orbit_remote.spec_text"},
        ),
        ("orbit_lsp.cli", {"pygls", "lsprotocol", "pydantic", "asyncio"}),
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
        "import orbit_lsp.server, orbit_lsp.terminal, orbit_lsp.runners.local, orbit_remote.worker\n"
    )
    path = {"PYTHONPATH": f"{ROOT}:{ROOT / 'remote'}"}
    run = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False, env=path
    )
    assert run.returncode == 0, run.stderr
