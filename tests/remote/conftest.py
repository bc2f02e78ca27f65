"""What the tests of one run share, whichever process runs them."""

from __future__ import annotations

import os
import textwrap
from pathlib import Path

import pytest

from orbit_lsp.kernels.python import triton_kernels
from orbit_lsp.specs import job_builder
from tests.remote.python_children import HEAD, Children, Done, job_of


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of this run of pytest: the same one for every process of xdist, and another for every run."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base) / "shared"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def kept(shared: Path) -> Path:
    """A worker's cache that has what earlier tests built: for tests that are not about building."""
    for name in ("builds", "cupti"):
        (shared / "cache" / name).mkdir(parents=True, exist_ok=True)
    return shared / "cache"


@pytest.fixture(scope="session")
def children(tmp_path_factory):
    children = Children(tmp_path_factory.mktemp("children"))
    yield children
    children.close()


@pytest.fixture
def job(tmp_path, children):
    """Carry out a file's text in a process of its own."""

    def carry_out(text: str, *, name: str = "kernels.py", save: str | None = None, **fields) -> Done:
        path = tmp_path / name
        if save is not None:
            path.write_text(save)
        return children.run(job_of(path, text, **fields))

    carry_out.path = lambda name="kernels.py": str(tmp_path / name)
    return carry_out


@pytest.fixture
def check_compiled(job):
    """What each compiled instance holds for, a line each, and what is remarked; no figure is missing."""

    def check(text: str, expected: str) -> None:
        text = HEAD + textwrap.dedent(text)
        launches = job_builder.host_launches(text, triton_kernels.scan(text))
        done = job(text, action="compile", host_launches=launches)
        lines = [f"{problem.tool}: {problem.message.splitlines()[0]}" for problem in done.finished.problems]
        for resource in done.finished.resources:
            assert None not in (
                resource.registers,
                resource.dynamic_shared,
                resource.spill_stores,
                resource.spill_loads,
            ), resource
            shown = {
                name: value
                for name, value in resource.constants.items()
                if name not in ("num_stages", "num_ctas")
            }
            lines.append(f"{resource.name}: {'; '.join(f'{name} {value}' for name, value in shown.items())}")
        lines += [f"({remark})" for remark in done.finished.remarks]
        assert "\n".join(lines) == textwrap.dedent(expected).strip("\n")

    return check
