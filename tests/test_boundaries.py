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
    "__main__": {"orbit_lsp.cli.main"},
    "cli": {"orbit_lsp", "orbit_lsp.server.handlers", "orbit_lsp.state.config", "orbit_lsp.cli.schema", "orbit_lsp.cli.run_command", "orbit_lsp.cli.modal_command", "orbit_lsp.cli.report_command"},
    "server": {
        "orbit_lsp", "orbit_lsp.server.commands", "orbit_lsp.server.dump_commands", "orbit_lsp.server.history_commands", "orbit_lsp.history.compare_candidates", "orbit_lsp.state.harness", "orbit_lsp.state.documents", "orbit_lsp.server.language_server",
        "orbit_lsp.state.session", "orbit_lsp.views", "lsprotocol",
    },
    "commands": {
        "orbit_lsp", "orbit_lsp.state.harness", "orbit_lsp.server.language_server", "orbit_lsp.runners.modal.spending", "orbit_lsp.report", "orbit_lsp.runs.scheduler",
        "orbit_lsp.state.session", "orbit_lsp.views", "lsprotocol",
    },
    "language_server": {
        "orbit_lsp", "orbit_lsp.runs.multi_gpu", "orbit_lsp.server.notifier", "orbit_lsp.specs.spec_cache", "orbit_lsp.runs.live", "orbit_lsp.server.protocol",
        "orbit_lsp.server.scan_audit", "orbit_lsp.runs.scheduler", "orbit_lsp.state.session", "orbit_lsp.runs.run_environment", "orbit_lsp.history.ab_compare", "orbit_lsp.history.history_tracker", "pygls", "lsprotocol",
    },
    "pauses": set(),
    "recheck": {"orbit_lsp", "orbit_lsp.state.debounce", "orbit_lsp.state.session"} | KERNELS,
    "protocol": {"pygls", "lsprotocol"},
    "editor": {"orbit_lsp", "orbit_lsp.runs.live", "orbit_lsp.runs.multi_gpu", "orbit_lsp.history.ab_compare", "orbit_lsp.runners.modal.spending", "orbit_lsp.runs.summary", "orbit_lsp.runs.scheduler", "orbit_lsp.state.session", "orbit_lsp.views", "pygls", "lsprotocol"} | SHARED,
    "terminal": {"orbit_lsp.state.harness", "orbit_lsp.profile.dump_files",
        "orbit_lsp", "orbit_lsp.cli.gpus_command", "orbit_lsp.cli.history_command", "orbit_lsp.cli.doctor", "orbit_lsp.specs.spec_cache", "orbit_lsp.cli.source_listing", "orbit_lsp.runs.run_environment", "orbit_lsp.runs.summary", "orbit_lsp.runs.scheduler",
        "orbit_lsp.state.session", "orbit_lsp.history.history_tracker", "orbit_lsp.views",
    } | KERNELS | SHARED,
    "doctor": {"orbit_lsp", "orbit_lsp.specs.job_builder", "orbit_lsp.runners", "orbit_lsp.state.session"} | SHARED,
    "comparison_terminal": {
        "orbit_lsp", "orbit_lsp.runs.multi_gpu", "orbit_lsp.cli.source_listing", "orbit_lsp.runs.scheduler", "orbit_lsp.state.session", "orbit_lsp.runs.run_environment",
        "orbit_lsp.runs.summary", "orbit_lsp.views",
    } | SHARED,
    "modal_terminal": {"orbit_lsp", "orbit_lsp.runners.modal.spending", "orbit_lsp.runs.run_environment", "orbit_lsp.runners", "orbit_lsp.state.session"} | SHARED,
    "listing": {"orbit_lsp", "orbit_lsp.specs.spec_cache", "orbit_lsp.state.documents", "orbit_lsp.state.session", "orbit_lsp.views", "lsprotocol"},
    "startup": {
        "orbit_lsp", "orbit_lsp.state.staleness", "orbit_lsp.specs.job_builder", "orbit_lsp.runners.modal.spending", "orbit_lsp.state.session", "orbit_lsp.state.config",
        "orbit_lsp.runners", "orbit_remote.modal_app.image_spec",
    } | SHARED,
    "joint": {"orbit_lsp.runs.scheduler", "orbit_lsp.state.session"},
    "comparisons": {"orbit_lsp", "orbit_lsp.runs.result_filing", "orbit_lsp.specs.job_builder", "orbit_lsp.runs.run_group", "orbit_lsp.runners.modal.spending", "orbit_lsp.runs.scheduler", "orbit_lsp.state.session", "orbit_lsp.runs.run_environment"} | SHARED,
    "renting": {"orbit_lsp", "orbit_lsp.runners", "orbit_lsp.state.units"} | SHARED,
    "runs": {"orbit_lsp.state.harness", "orbit_lsp", "orbit_lsp.runs.result_filing", "orbit_lsp.runs.memory_filing", "orbit_lsp.runs.profile_filing", "orbit_lsp.report", "orbit_lsp.specs.job_builder", "orbit_lsp.specs.launch_plan", "orbit_lsp.runners", "orbit_lsp.state.session"} | SHARED,
    "filing": {"orbit_lsp.state.harness", "orbit_lsp", "orbit_lsp.state.staleness", "orbit_lsp.specs.launch_plan", "orbit_lsp.state.session", "orbit_remote", "orbit_remote.common.measure"} | KERNELS | SHARED,
    "jobs": {"orbit_lsp.state.harness", "orbit_lsp", "orbit_lsp.specs.launch_plan", "orbit_lsp.state.session", "orbit_lsp.state.config", "orbit_lsp.runs.scheduler"} | SHARED,
    "live": {"orbit_lsp", "orbit_lsp.specs.job_builder", "orbit_lsp.state.debounce", "orbit_lsp.state.units", "orbit_lsp.runs.scheduler", "orbit_lsp.state.session"} | SHARED,
    "report": {"orbit_lsp", "orbit_lsp.profile.dump_files", "orbit_lsp.profile.bottleneck", "orbit_lsp.profile.roofline", "orbit_lsp.history.history_store", "orbit_lsp.report", "orbit_lsp.state.session", "orbit_lsp.state.units", "orbit_lsp.views"} | SHARED,
    "contract": {"orbit_lsp.state.session", "orbit_remote", "orbit_remote.common.harness_files"} | KERNELS,
    "recipes": {"orbit_lsp", "orbit_lsp.specs.spec_cache", "orbit_lsp.state.session"} | KERNELS | SHARED | SPEC,
    "bundle": {"orbit_lsp.state.session"} | SHARED,
    "closure": {"orbit_lsp", "orbit_lsp.closure", "orbit_lsp.state.units", "orbit_remote", "orbit_remote.common.harness_files", "orbit_remote.modal_app.content_store", "pathspec", "tree_sitter", "tree_sitter_python"} | KERNELS | SHARED,
    "session": {"orbit_lsp", "orbit_lsp.state.documents", "orbit_lsp.state.config", "orbit_lsp.specs.spec_cache", "orbit_remote.common.measure"} | KERNELS | SHARED,
    "launch_specs": {"orbit_lsp", "orbit_lsp.specs.job_builder", "orbit_lsp.state.debounce", "orbit_lsp.state.session", "orbit_remote"} | KERNELS | SHARED | SPEC,
    "drafts": {"orbit_lsp.drafts"} | KERNELS | SHARED | SPEC,
    "documents": KERNELS,
    "bottleneck": SHARED,
    "roofline": {"orbit_lsp.profile.bottleneck"} | SHARED,
    "text_lines": set(),
    "memory_filing": {"orbit_lsp", "orbit_lsp.state.staleness", "orbit_lsp.state.session"} | SHARED,
    "profile_filing": {"orbit_lsp", "orbit_lsp.profile.bottleneck", "orbit_lsp.state.harness", "orbit_lsp.state.staleness", "orbit_lsp.state.documents", "orbit_lsp.runs.result_filing", "orbit_lsp.state.session"} | SHARED,
    "summary": {"orbit_lsp", "orbit_lsp.profile.bottleneck", "orbit_lsp.state.units"} | SHARED,
    "report_terminal": {"orbit_lsp", "orbit_lsp.profile.bottleneck", "orbit_lsp.state.documents", "orbit_lsp.report", "orbit_lsp.runners", "orbit_lsp.state.session", "orbit_lsp.views", "pydantic"} | SHARED,
    "schema": {"orbit_lsp", "orbit_lsp.cli.json_output", "pydantic"} | SHARED,
    "history": {"pydantic"} | SHARED,
    "git": set(),
    "lineage": {"orbit_lsp.history.history_store", "orbit_remote", "orbit_remote.common.measure"},
    "others": {"orbit_lsp", "orbit_lsp.state.harness", "orbit_lsp.specs.job_builder", "orbit_lsp.state.session"},
    "moved": {"orbit_lsp.profile.bottleneck", "orbit_lsp.state.session"} | SHARED,
    "sides": {
        "orbit_lsp", "orbit_lsp.state.staleness", "orbit_lsp.closure", "orbit_lsp.state.harness", "orbit_lsp.state.documents", "orbit_lsp.history.git", "orbit_lsp.history.history_store", "orbit_lsp.specs.job_builder",
        "orbit_lsp.history.compare_candidates", "orbit_lsp.specs.launch_plan", "orbit_lsp.state.session", "orbit_lsp.history.history_tracker", "orbit_remote",
    } | KERNELS | SHARED,
    "turns": {
        "orbit_lsp.runs.run_group", "orbit_lsp", "orbit_lsp.state.harness", "orbit_lsp.runs.result_filing", "orbit_lsp.specs.job_builder", "orbit_lsp.history.counter_diff", "orbit_lsp.history.compare_candidates", "orbit_lsp.runners.modal.spending",
        "orbit_lsp.runners", "orbit_lsp.runs.scheduler", "orbit_lsp.state.session", "orbit_lsp.history.variants", "orbit_lsp.runs.run_environment", "orbit_lsp.history.history_tracker", "orbit_remote", "orbit_remote.common.measure",
    } | SHARED,
    "dumps": {"orbit_lsp", "orbit_lsp.runs.result_filing", "orbit_lsp.state.session"} | SHARED,
    "dump_commands": {
        "orbit_lsp", "orbit_lsp.profile.dump_files", "orbit_lsp.server.commands", "orbit_lsp.server.language_server", "orbit_lsp.runners.modal.spending", "orbit_lsp.report",
        "orbit_lsp.state.session", "lsprotocol",
    } | SHARED,
    "history_commands": {
        "orbit_lsp", "orbit_lsp.server.commands", "orbit_lsp.state.harness", "orbit_lsp.server.language_server", "orbit_lsp.history.version_groups", "orbit_lsp.history.compare_candidates",
        "orbit_lsp.runners.modal.spending", "orbit_lsp.report", "orbit_lsp.runs.scheduler", "orbit_lsp.state.session", "orbit_lsp.views", "lsprotocol",
    },
    "published": {"orbit_lsp", "orbit_lsp.history.history_store", "orbit_lsp.history.version_groups", "orbit_lsp.history.counter_diff", "orbit_lsp.state.session", "orbit_lsp.views"} | SHARED,
    "history_terminal": {
        "orbit_lsp", "orbit_lsp.state.harness", "orbit_lsp.history.history_store", "orbit_lsp.kernels", "orbit_lsp.history.version_groups", "orbit_lsp.cli.source_listing", "orbit_lsp.history.compare_candidates", "orbit_lsp.cli.json_output", "orbit_lsp.runners.modal.spending", "orbit_lsp.runs.scheduler", "orbit_lsp.state.session", "orbit_lsp.runs.run_environment",
        "orbit_lsp.runs.summary", "orbit_lsp.history.ab_compare", "orbit_lsp.history.history_tracker", "orbit_lsp.views", "pydantic",
    } | SHARED,
    "versions": {"orbit_lsp", "orbit_lsp.state.documents", "orbit_lsp.state.harness", "orbit_lsp.history.history_store", "orbit_lsp.specs.job_builder", "orbit_lsp.history.version_groups", "orbit_lsp.runs.profile_filing", "orbit_lsp.runs.scheduler", "orbit_lsp.state.session", "orbit_remote", "orbit_remote.common.measure"} | SHARED,
    "config": {"pydantic"},
    "units": set(),
    "kernels": KERNELS | {"tree_sitter", "tree_sitter_python"},
    "views": {"orbit_lsp.profile.dump_files", "orbit_lsp.state.harness", "orbit_lsp.profile.bottleneck", "orbit_lsp.profile.roofline", "orbit_lsp.state.line_map", "orbit_lsp.history.history_store", "orbit_lsp.history.version_groups", "orbit_lsp.history.counter_diff", "orbit_lsp.history.compare_candidates", "orbit_lsp", "orbit_lsp.state.staleness", "orbit_lsp.state.config", "orbit_lsp.drafts", "orbit_lsp.specs.job_builder", "orbit_lsp.specs.spec_cache", "orbit_lsp.specs.launch_plan", "orbit_lsp.state.units", "orbit_remote", "orbit_remote.common.peaks", "orbit_remote.common.measure", "orbit_lsp.state.documents", "orbit_lsp.state.session", "orbit_lsp.views", "lsprotocol"} | KERNELS | SHARED | SPEC,
    "runners": {"orbit_lsp", "orbit_lsp.runners", "orbit_lsp.closure", "orbit_lsp.state.units", "pydantic", "modal"} | SHARED | {
        "orbit_remote", "orbit_remote.process.process_groups", "orbit_remote.modal_app.image_spec", "orbit_remote.modal_app.app", "orbit_remote.common.python_errors",
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
        ("orbit_remote.common.messages", {"asyncio", "pydantic", "torch", "orbit_lsp"}),
        ("orbit_remote.worker.main", {"pydantic", "torch", "triton", "orbit_lsp", "pygls"}),
        ("orbit_remote.modal_app.container", {"modal", "pydantic", "torch", "triton", "orbit_lsp", "pygls"}),
        ("orbit_lsp.runners.modal.runner", {"modal", "torch", "triton", "pygls", "tenacity"}),
        (
            "orbit_lsp.server.handlers",
            {"modal", "torch", "triton", "pydantic", "tree_sitter", "orbit_remote.spec.comment_scanner"},
        ),
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
