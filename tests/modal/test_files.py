"""What a container needs of the author's folders besides the file: found where the author's tools found it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from orbit_remote import PACKAGE
from orbit_remote.common import messages as c
from tests.modal.conftest import Author

PASTED = """\
#define TEXT(x) #x
#define NAMED(x) TEXT(x.cuh)
#include NAMED(scale)
__global__ void k(float* x) { x[0] *= SCALE; }
"""
KERNEL = """\
import triton
import triton.language as tl
from {module} import WIDTH


@triton.jit
def add(x: "*fp32", BLOCK: tl.constexpr = WIDTH):
    at = tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at) + 1)
"""


@pytest.mark.slow
async def test_a_header_that_a_build_has_read_travels_though_no_text_names_it(
    modal, author, tmp_path
) -> None:
    header = str(tmp_path / "kernels" / "scale.cuh")
    job = author().job("compile", text=PASTED)
    unknown = await author().finished(job)
    assert unknown.failure is not None
    assert "scale.cuh" in unknown.failure.message
    assert (await author(read=[header]).finished(job)).outcome == "ok"


@pytest.mark.slow
async def test_modules_are_found_where_they_are_at_home(modal, author, tmp_path: Path) -> None:
    """`src` is where an editable install leads; `python` is on the author's own path."""
    item: Author = author(python_path=[str(tmp_path / "kernels" / "python")])
    places = {
        "widths": "widths.py",
        "sizes": "src/sizes/__init__.py",
        "spaced.deep.lengths": "src/spaced/deep/lengths.py",  # without __init__.py
        "heights": "python/heights.py",
    }
    for number, place in enumerate(places.values()):
        path = item.folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"WIDTH = {64 << number}\n")
    modules = list(places)
    imports = "\n".join(f"from {module} import WIDTH as W{at}" for at, module in enumerate(modules))
    text = KERNEL.format(module=modules[0]).replace(
        "@triton.jit", f"{imports}\nWIDTH = W0 + W1 + W2 + W3 + 64\n\n@triton.jit"
    )
    finished = await item.finished(item.job("compile", path="kernels/add.py", text=text, language="triton"))
    assert finished.outcome == "ok", finished.failure
    assert [resources.constants["BLOCK"] for resources in finished.resources] == ["1024"]


@pytest.mark.slow
async def test_what_no_folder_of_the_authors_has_is_not_found_there_either(modal, author) -> None:
    item: Author = author()
    (item.folder / "elsewhere").mkdir()
    (item.folder / "elsewhere" / "sizes.py").write_text("WIDTH = 64\n")
    job = item.job("compile", path="add.py", text=KERNEL.format(module="sizes"), language="triton")
    finished = await item.finished(job)
    assert finished.failure is not None
    assert "No module named 'sizes'" in finished.failure.message
    assert finished.failure.place == c.Place(str(item.folder / "add.py"), 3, 1, 24)


def test_the_authors_own_python_says_where_it_looks(tmp_path: Path) -> None:
    """Of PYTHONPATH and of packages installed for editing, not what every Python has."""
    (tmp_path / "python").mkdir()
    remote = PACKAGE.parent
    paths = f"{remote}:{tmp_path / 'python'}:{tmp_path / 'absent'}:{tmp_path / 'python'}"
    code = "from orbit_remote.worker import probe; print(*probe.python_path(), sep='\\n')"
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path[:0] = {paths.split(':')}; {code}"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    results = done.stdout.splitlines()
    assert results[0] == str(tmp_path / "python")
    assert not [path for path in results if path.startswith(sys.prefix) or path == str(remote)]
