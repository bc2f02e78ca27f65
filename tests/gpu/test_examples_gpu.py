"""Every kernel of examples/ that has a launch spec, on a real GPU: it computes what its spec expects, and is timed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbit_lsp import kernels
from orbit_lsp.specs import launch_plan
from orbit_remote.common.requests import KernelDefinition, SpecStart
from orbit_remote.spec import launch_spec
from tests.gpu.clicks import Bench

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="no NVIDIA GPU on this machine"),
]
EXAMPLES = Path(__file__).parents[2] / "examples"


def launched(path: Path) -> Iterator[tuple[Path, str, KernelDefinition]]:
    """Its kernels with a launch spec, by name, and where they are defined."""
    text = path.read_text()
    language = kernels.language_of(path.name)
    assert language
    for kernel in kernels.tracker(language).scan(text).kernels:
        definition = launch_plan.definition_of(kernel)
        if launch_spec.check(text, launch_spec.target_of(definition, language)).spec.launches:
            yield path, kernel.name, definition


SPECS = [item for path in sorted([*EXAMPLES.glob("*.cu"), *EXAMPLES.glob("*.py")]) for item in launched(path)]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    made = Bench(tmp_path_factory.mktemp("examples"))
    yield made
    made.close()


@pytest.mark.parametrize(
    ("path", "kernel", "definition"), SPECS, ids=[f"{path.name}:{kernel}" for path, kernel, _ in SPECS]
)
def test_it_computes_what_it_should(
    bench: Bench, path: Path, kernel: str, definition: KernelDefinition
) -> None:
    finished = bench.run(path.read_text(), path.name, kernel=kernel, start=SpecStart(definition))
    assert finished.outcome == "ok", finished.failure
    assert finished.points
    for point in finished.points:
        assert point.checks
        assert all(check.passed for check in point.checks)
    assert any(launches.timing.median for launches in finished.launches)
