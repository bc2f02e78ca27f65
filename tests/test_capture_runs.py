"""What a capture writes into an author's file, and where; and what it refuses before anything is run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orbit_lsp.runs import capture
from orbit_lsp.runs.capture import WrittenSpec
from orbit_lsp.state.kernel_ids import KernelId
from orbit_lsp.state.session import Session, uri_of
from orbit_remote.common import messages as c
from orbit_remote.common.measurements import Timing
from orbit_remote.common.requests import Capture
from orbit_remote.spec import stored_tensors
from orbit_remote.spec.stored_tensors import StoredTensor

HEAD = "import triton\nimport triton.language as tl\n\n"
KERNEL = "@triton.jit\ndef k(x, n, B: tl.constexpr):\n    pass\n"
OLD = '# captured: launch 1 of 1 of bench.py\n# orbit: n = 4; x = zeros(n)\n# orbit: launch k[(1,)](x, n, B=4)\n# orbit: expect x == load("k.orbit.safetensors", "k.x") as captured\n'
CAPTURED = c.Captured(
    "k",
    (
        "n = 8",
        "x = randn(n)",
        "launch k[(1,)](x, n, B=8)",
        'expect x == load("k.orbit.safetensors", "k.x") as captured',
    ),
    file="k.orbit.safetensors",
    launch=2,
    seen=9,
    random=("x",),
)
NEW = (
    "# captured: launch 2 of 9 of tests/test_k.py::test_k; x is random of the same scale (control flow not checked)\n"
    "# orbit: n = 8; x = randn(n)\n"
    "# orbit: launch k[(1,)](x, n, B=8)\n"
    '# orbit: expect x == load("k.orbit.safetensors", "k.x") as captured\n'
)


def opened(text: str, folder: Path = Path("/project")) -> tuple[Session, KernelId]:
    session = Session()
    target = KernelId(uri_of(str(folder / "k.py")), "k")
    session.open(target.uri, 1, text)
    return session, target


def written(session: Session, target: KernelId) -> WrittenSpec:
    frozen, kernel = session.freeze(target.uri), session.find(target)
    assert frozen
    assert kernel
    (_, added, _), definition, at, old = capture.with_spec(
        frozen, kernel, CAPTURED, "tests/test_k.py::test_k"
    )
    assert definition.line == kernel.line + len(added) - len(old)
    text = "".join(f"{line}\n" for line in added)
    content = stored_tensors.written({"k.x": StoredTensor("bool", (1,), b"\1")}, {})
    return WrittenSpec(target, frozen, at, old, text, CAPTURED.file, content, CAPTURED, c.ok("r"))


@pytest.mark.parametrize("above", ["", "# softmax of rows\n", OLD, "# rows\n" + OLD])
def test_the_spec_stands_above_its_kernel_in_place_of_an_earlier_capture(above: str) -> None:
    session, target = opened(HEAD + above + KERNEL)
    kept = above.removesuffix(OLD)
    assert capture.with_lines(HEAD + above + KERNEL, written(session, target)) == HEAD + kept + NEW + KERNEL


def test_line_ends_stay_those_of_the_file() -> None:
    text = (HEAD + KERNEL).replace("\n", "\r\n")
    session, target = opened(text)
    assert capture.with_lines(text, written(session, target)) == (HEAD + NEW + KERNEL).replace("\n", "\r\n")


def test_what_is_typed_elsewhere_meanwhile_stays_and_a_kernel_that_was_edited_gets_nothing() -> None:
    text = HEAD + OLD + KERNEL
    session, target = opened(text)
    made = written(session, target)
    session.open(target.uri, 2, "import torch\n" + text + "x = 1\n")
    assert capture.edit_now(session, made) == ((4, 8), NEW)
    for edited in (
        text.replace("pass", "return"),
        text.replace("zeros(n)", "ones(n)"),
        text.replace("captured: ", ""),
    ):
        session.open(target.uri, 3, edited)
        assert capture.edit_now(session, made) is None, edited


def test_the_tensors_of_other_kernels_stay_in_the_file(tmp_path: Path) -> None:
    session, target = opened(HEAD + KERNEL, tmp_path)
    theirs = {"other.x": StoredTensor("uint8", (2,), b"\1\2"), "k.old": StoredTensor("uint8", (1,), b"\3")}
    (tmp_path / CAPTURED.file).write_bytes(stored_tensors.written(theirs, {}))
    path = capture.store(written(session, target))
    assert sorted(stored_tensors.of_bytes(path.read_bytes()).entries) == ["k.x", "other.x"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (HEAD + KERNEL, ""),
        (HEAD + OLD + KERNEL, ""),
        (HEAD + "# orbit: x = zeros(4)\n# orbit: launch k[(1,)](x, 4, B=4)\n" + KERNEL, "k has a launch spec that its author wrote"),
        (HEAD + KERNEL + "@triton.jit\ndef f(y):\n    k(y, 1, 2)\n", "k is called by other kernels"),
        (HEAD + "class A:\n" + "".join(f"    {line}\n" for line in KERNEL.splitlines()), "A.k is defined in a class or function"),
        (HEAD.replace("import triton\n", "import triton\nfrom numba import cuda\n") + "@cuda.jit\ndef k(x):\n    pass\n", "k is a kernel of numba"),
    ],
)  # fmt: skip
def test_what_is_refused_before_anything_runs(text: str, why: str) -> None:
    session, _ = opened(text)
    target, kernel, _ = session.kernels(uri_of("/project/k.py"))[0]
    assert capture.refusal(session, target, kernel).startswith(why)
    assert bool(capture.refusal(session, target, kernel)) == bool(why)


CUDA = "__global__ void k(float* x) { x[0] = 1; }\n"


@pytest.mark.parametrize(("more", "file"), [("int main() { return 0; }\n", "k.cu"), ("", "")])
def test_a_cuda_file_that_has_a_main_is_the_driver_of_its_kernels(
    tmp_path: Path, more: str, file: str
) -> None:
    session = Session()
    target = KernelId(uri_of(str(tmp_path / "k.cu")), "k")
    session.open(target.uri, 1, CUDA + more)
    kernel = session.find(target)
    assert kernel
    assert capture.refusal(session, target, kernel) == ""
    driver = capture.own_program(session, target)
    assert (driver.file if driver else "") == file


def test_the_configuration_that_took_most_time_is_wanted() -> None:
    one = c.Launches("k", "k", (1, 1, 1), (128, 1, 1), Timing(9, 1000.0, ""), 9, constants={"B": "8"})
    other = replace(one, grid=(2, 1, 1), timing=Timing(2, 9000.0, ""), count=2)
    assert capture.wanted((one, other)) == Capture(None, (2, 1, 1), {"B": "8"}, (128, 1, 1), "k")
