"""An error deep in CUTLASS, in nvcc's own words (recordings/cutlass_gemm.log), stands at the author's line."""

from __future__ import annotations

from pathlib import Path

from orbit_lsp.compilation import compiler_messages
from orbit_lsp.state.compilation import Compilation
from orbit_remote.toolchain import diagnostics

LOG = (Path(__file__).parent / "recordings" / "cutlass_gemm.log").read_text()


def test_an_error_of_a_template_library_stands_at_the_line_that_uses_it() -> None:
    parsed = diagnostics.parse(
        LOG, diagnostics.DiagnosticContext("/src/gemm.cu", lambda _: None), failed=True
    )
    problems = compiler_messages.explained(parsed, "/src/gemm.cu", "", Compilation())
    errors = [problem for problem in problems if problem.severity == "error"]
    assert [(error.place.file, error.place.line) for error in errors if error.place] == [
        ("/src/gemm.cu", 17),
        ("/src/gemm.cu", 19),
    ]
    first = errors[0]
    assert first.message == (
        'static assertion failed with "Threadblock-scoped GEMM should be divisible by warp-scoped GEMM size."'
    )
    steps = [f"{Path(note.place.file).name}:{note.place.line}" for note in first.notes if note.place]
    assert steps == [
        "default_mma_core_sm80.h:1413", "default_mma.h:541", "default_gemm.h:368", "gemm.h:289", "gemm.cu:17",
        "default_thread_map_tensor_op.h:76",
    ]  # fmt: skip
