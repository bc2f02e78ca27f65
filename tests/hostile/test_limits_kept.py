"""Limits of what is not a file: something exactly as long is taken whole, something longer by one is not.

Files are tried in `tests/remote/test_limits.py`. Each limit of the table is tried in one of these ways, or by a test that
is named here.
"""

from __future__ import annotations

import asyncio
import base64
import re
import tarfile
import zlib
from collections.abc import Callable
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace

import pytest

from orbit_lsp.agents import message_lines
from orbit_lsp.api import tensors
from orbit_lsp.compilation import build_files
from orbit_lsp.history.history_store import HistoryStore
from orbit_lsp.kernels.cuda.cuda_kernels import scan
from orbit_lsp.kernels.python import triton_kernels
from orbit_lsp.queue import request
from orbit_lsp.queue.request import Request, RequestRefusedError
from orbit_lsp.server.frames import Frames
from orbit_lsp.state.documents import Document, TextChange, TooLongError
from orbit_lsp.state.session import Session
from orbit_remote.common import codec, limits
from orbit_remote.common.contracts import harness_files
from orbit_remote.process import process_groups
from orbit_remote.toolchain import diagnostics, kept_files
from tests.hostile.hostile_texts import JIT
from tests.hostile.test_doors import client
from tests.test_history import TEXT, entry

ROOT = Path(__file__).resolve().parents[2]


def _at_once(size: int, folder: Path) -> bool:
    file = Session().open("file:///nowhere/k.cu", 1, " " * size)
    return file is not None and file.scanned


def _opened(size: int, folder: Path) -> bool:
    return _fits(" " * size)


def _opened_lines(count: int, folder: Path) -> bool:
    return _fits("\r\n" * (count - 1))


def _fits(text: str) -> bool:
    document = Document("file:///nowhere/k.cu", "/nowhere/k.cu", 1, "")
    try:
        document.apply(2, [TextChange((0, 0), (0, 0), text)], "utf-16")
    except TooLongError:
        return False
    return True


def _statement(size: int, folder: Path) -> bool:
    return bool(triton_kernels.scan("import triton\n" + JIT.format(0).ljust(size, "#")).kernels)


def _declarations(count: int, folder: Path) -> bool:
    return bool(scan("void f() {}\n" * (count - 1) + "__global__ void k() {}\n").kernels)


def _kernels(count: int, folder: Path) -> bool:
    return scan("__global__ void k() {}\n" * count).left_out is None


def _kernel_line(size: int, folder: Path) -> bool:
    return len(scan("__global__ void k() {}".rjust(size + len("() {}"))).kernels) == 1


def _meanings(count: int, folder: Path) -> bool:
    before = "".join(f"#define K {number}\n" for number in range(count - 1))
    return len(scan(f"{before}#define K __global__ void\nK k() {{}}\n").kernels) == 1


def _contract(size: int, folder: Path) -> bool:
    return harness_files.kept("class ModelNew:\n    pass\n#".ljust(size, "x")) is not None


def _outlined(size: int, folder: Path) -> bool:
    (folder / "include").mkdir(exist_ok=True)
    text = "CUDAExtension('a', ['k.cu'], include_dirs=['include'])\n#"
    (folder / "setup.py").write_text(text.ljust(size, "x"))
    return bool(build_files.declared(str(folder / "k.cu"), str(folder)).folders)


def _output_line(size: int, folder: Path) -> bool:
    start = "/src/k.cu(1): error: "
    context = diagnostics.DiagnosticContext("/src/k.cu", lambda _: "", "/src", scratch="/tmp/orbit-x")
    return "end" in diagnostics.parse(start + "end".rjust(size - len(start), "a"), context)[0].message


def _output(size: int, folder: Path) -> bool:
    command = ["head", "-c", str(size), "/dev/zero"]
    _, out, _ = asyncio.run(process_groups.communicate(command, timeout_s=150))
    return len(out) == size


def _job_files(count: int, folder: Path) -> bool:
    files = {f"f{number}": "" for number in range(count)}
    try:
        request.check(Request(name="k.cu", text="x", files=files), trusted=True)
    except RequestRefusedError:
        return False
    return True


def _body(size: int, folder: Path) -> bool:
    async def status() -> int:
        async with client(folder) as (http, _):
            return (await http.post("/v1/jobs", content=b" " * size)).status_code

    return asyncio.run(status()) != 413


def _message(size: int, folder: Path) -> bool:
    complaints: list[str] = []
    frames = Frames(BytesIO(b"Content-Length: %d\r\n\r\n%b" % (size, b"x" * size)), complaints.append)
    return frames.body() != b"" and not complaints


def _agent_message(size: int, folder: Path) -> bool:
    message = b'{"jsonrpc":"2.0","id":7,"method":"ping","x":"' + b"x" * (size - 48) + b'"}\n'
    lines = message_lines.MessageLines(BytesIO(message + b'{"id":8}\n'))
    answered = codec.read_json(lines.readline())
    assert lines.readline() == '{"id":8}\n'
    assert answered["id"] == 7
    return answered["method"] == "ping"


def _tensor(size: int, folder: Path) -> bool:
    try:
        return tensors._size("uint8", [size], "x") == size  # pyright: ignore[reportPrivateUsage]
    except RequestRefusedError:
        return False


def _history_text(size: int, folder: Path) -> bool:
    store = HistoryStore(lambda: folder / "history.sqlite")
    store.keep(entry(1), TEXT.ljust(size, "x"))
    return store.entries("/src/saxpy.cu")[0].text is not None


TRIED: dict[str, Callable[[int, Path], bool]] = {
    "OPENED": _opened,
    "OPENED_LINES": _opened_lines,
    "STATEMENT": _statement,
    "DECLARATIONS": _declarations,
    "AT_ONCE": _at_once,
    "KERNELS": _kernels,
    "KERNEL_LINE": _kernel_line,
    "MEANINGS": _meanings,
    "CONTRACT": _contract,
    "OUTLINED": _outlined,
    "OUTPUT_LINE": _output_line,
    "OUTPUT": _output,
    "JOB_FILES": _job_files,
    "BODY": _body,
    "MESSAGE": _message,
    "AGENT_MESSAGE": _agent_message,
    "HISTORY_TEXT": _history_text,
    "TENSOR": _tensor,
}
ELSEWHERE = {
    "STORED": "tests/hostile/test_limits_kept.py::test_a_file_of_captured_tensors_has_a_limit",
    "CAPTURED": "tests/hostile/test_limits_kept.py::test_a_launch_with_more_arguments_than_a_capture_may_have",
    "GPU_DUMP": "tests/remote/test_gpu_dump.py::test_a_dump_that_is_larger_than_the_limit",
    "STATEMENTS": "tests/hostile/test_limits_kept.py::test_kernels_behind_so_many_statements_are_left_out",
    "HASHED": "tests/remote/test_regular_files.py::test_what_is_no_regular_file_of_that_size_is_refused_at_once",
    "BROUGHT_FILES": "tests/remote/test_brought_files.py::test_files_and_bytes_are_bounded",
    "CELL_OUTPUT": "tests/test_notebook.py::test_what_a_cell_prints_without_end_is_bounded",
    "AGENT_SESSIONS": "tests/e2e/test_mcp.py::test_sessions_over_http_are_bounded",
    "COMPILER_MEMORY": "tests/remote/test_worker_limits.py::test_a_compiler_gets_no_more_memory_than_its_limit",
    "COMPILER_FILE": "tests/remote/test_worker_limits.py::test_a_compiler_writes_no_larger_file_than_its_limit",
    "HISTORY_RUN": "tests/hostile/test_tools.py::test_a_row_that_cannot_be_read_is_left_out_once",
    "KEPT": "tests/hostile/test_limits_kept.py::test_a_bundle_has_the_files_before_its_limit",
    "JOB": "tests/hostile/test_left_behind.py::test_a_row_that_another_program_wrote_stops_no_command",
    "NOTEBOOKS": "tests/test_notebook_served.py::test_kernels_beyond_the_limit_are_refused",
    "FRONT_ENDS": "tests/remote/test_front_end.py::test_so_many_files_are_kept_parsed",
    "VALUES": "tests/hostile/test_doors.py::test_values_are_counted_before_they_are_read",
    "BODIES": "tests/hostile/test_doors.py::test_a_body_that_does_not_arrive_and_too_many_at_once",
}


@pytest.mark.parametrize("beyond", [0, 1])
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name == "DECLARATIONS" else name for name in TRIED]
)
def test_at_the_limit_and_one_past_it(name: str, beyond: int, tmp_path: Path) -> None:
    assert TRIED[name](limits.table()[name].most + beyond, tmp_path) is not bool(beyond)


def test_a_bundle_has_the_files_before_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "KEPT", replace(limits.KEPT, most=20))
    files = [tmp_path / name for name in ("a.cubin", "b.ptx", "c.ii", "d.gpu")]
    for file in files:
        file.write_bytes(b"x" * 10)
    bundle = kept_files.packed({}, files)
    with tarfile.open(fileobj=BytesIO(zlib.decompress(base64.b64decode(bundle.archive)))) as archive:
        assert archive.getnames() == ["compiler/a.cubin", "compiler/b.ptx"]
    assert [remark.partition(":")[0] for remark in bundle.remarks] == [
        "c.ii and the files after it are left out"
    ]


@pytest.mark.parametrize(("size", "fits"), [(100, True), (101, False)])
def test_a_file_of_captured_tensors_has_a_limit(size: int, fits: bool) -> None:
    limit = replace(limits.STORED, most=100)
    if fits:
        assert len(codec.unpacked(codec.packed(b"x" * size), limit)) == size
    else:
        with pytest.raises(ValueError):
            codec.unpacked(codec.packed(b"x" * size), limit)


@pytest.mark.parametrize(("most", "taken"), [(256, True), (255, False)])
def test_a_launch_with_more_arguments_than_a_capture_may_have(
    most: int, taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    from orbit_remote.child.capture import launch_watch
    from orbit_remote.common.requests import Capture

    monkeypatch.setattr(launch_watch, "CAPTURED", replace(limits.CAPTURED, most=most))
    watch = launch_watch.LaunchWatch("k", __file__, Capture())
    kernel = SimpleNamespace(arg_names=["x"])
    watch.see(kernel, (torch.zeros(64),), (1,), {})
    assert (watch.taken is not None) is taken
    assert taken or "its arguments are 256 B" in str(watch.why)


@pytest.mark.parametrize("fill", ["import a\n", "def f(): x = 1\n", "class C:\n  def f(): pass\n"])
def test_kernels_behind_so_many_statements_are_left_out(fill: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STATEMENTS", replace(limits.STATEMENTS, most=10))
    own = 1 if "import a" in fill else 2
    tracker, results = triton_kernels.TritonTracker(), [set[int | None]()] * 2
    for again in (False, True):  # the same text as in the beginning, after edits
        for fills in range(12):
            scanned = tracker.scan(f"import triton\n{fill * fills}{JIT.format(0)}")
            results[again] = results[again] | {fills} if scanned.kernels else results[again]
            assert (scanned.unread is None) is bool(scanned.kernels)
    assert results == [set(range(9 // own + (own > 1)))] * 2


def test_each_limit_of_the_table_is_tried() -> None:
    code = " ".join(
        path.read_text(encoding="utf-8")
        for folder in ("orbit_lsp", "remote/orbit_remote")
        for path in (ROOT / folder).rglob("*.py")
    )
    calls = re.findall(r"regular_files\.\w+(?:\(|, )[^\n]*(?:\n[^\n]*)?", code)
    files = set(re.findall(r"\b[A-Z_]{3,}\b", " ".join(calls)))
    untried = limits.table().keys() - files - TRIED.keys() - ELSEWHERE.keys()
    assert not untried
    for test in ELSEWHERE.values():
        path, _, name = test.partition("::")
        assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8")


@pytest.mark.parametrize("shape", [[10**4_000] * 4_000, [1 << 62, 1 << 62], [10**4_000, 0]])
def test_the_size_of_a_tensor_is_not_computed_beyond_its_limit(shape: list[int]) -> None:
    with pytest.raises(RequestRefusedError, match="x is larger than 256 MiB"):
        tensors._size("uint8", shape, "x")  # pyright: ignore[reportPrivateUsage]
