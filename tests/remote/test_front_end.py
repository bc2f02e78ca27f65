"""What the waiting front end says of a text that is typed: what nvcc says of it, or nothing."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from orbit_remote.common import limits
from orbit_remote.common import messages as c
from orbit_remote.common.requests import Job
from orbit_remote.toolchain import front_end
from orbit_remote.toolchain.front_end import FrontEnds, divided
from tests.remote.nvcc_check import built, ignore, needs_nvcc
from tests.remote.test_injected_errors import CUDA, unmarked

linux = pytest.mark.skipif(
    sys.platform != "linux", reason="cicc is loaded with a library of ours on Linux alone"
)


@pytest.mark.parametrize(
    ("text", "head"),
    [
        ("int a;\n", ""),
        ("#include <a>\nint a;\n", "#include <a>\n"),
        ("#include <a>\nint a;\n# include <b>\nint b;", "#include <a>\nint a;\n# include <b>\n"),
        ("#ifdef A\n#include <a>\n#else\n#endif\nint a;", "#ifdef A\n#include <a>\n#else\n#endif\n"),
        ("#if A\n#include <a>\nint a;\n", "#if A\n#include <a>\nint a;\n"),
        ("#include <a>\n#if A\nint a;\n#endif\n", "#include <a>\n"),
    ],
    ids=["no include", "one", "code between", "in a condition", "a condition that never ends", "a condition after it"],
)  # fmt: skip
def test_where_a_file_is_divided(text, head) -> None:
    assert divided(text) == (head, text.removeprefix(head))


_REST = """\
#define TWICE(x) ((x) + (x))
__attribute__((global)) void k(float* x) {
\tfloat  y = x[0] ; // a comment
  x[1] = y / 2;
  x[2] = TWICE(
    y);
  /*
  x[3] = y;
  */
#if 0
  x[4] = y;
#endif
  const char* s = R"(
  x[5] = y;
)";
  x[6] = y + 1.0f;
}
"""


@pytest.mark.parametrize(
    ("old", "new", "known"),
    [
        ("  x[1] = y / 2;", "  x[1] =  wrong / 2", True),
        ("  x[6] = y + 1.0f;", "\tx[6]   = y\t+ 2e5f;", True),
        ("  x[6] = y + 1.0f;", "  x[6] = TWICE(y);", False),
        ("  x[6] = y + 1.0f;", "  x[6] = HEADS;", False),
        ("  x[6] = y + 1.0f;", "  x[6] = __LINE__;", False),
        ("  x[6] = y + 1.0f;", "  x[6] = y; // 1", False),
        ("  x[6] = y + 1.0f;", "  x[6] = 'a';", False),
        ("  x[6] = y + 1.0f;", "  (x[6]) = y;", False),
        ("  x[6] = y + 1.0f;", "  x[6] = y + \\", False),
        ("  x[6] = y + 1.0f;", "  x[6] = ä;", False),
        ("  x[6] = y + 1.0f;", "  x[6] = y;\n  x[7] = y;", False),
        ("\tfloat  y = x[0] ; // a comment", "\tfloat y = x[0];", False),
        ("    y);", "    wrong);", False),
        ("  x[3] = y;", "  x[3] = wrong;", False),
        ("  x[4] = y;", "  x[4] = wrong;", False),
    ],
    ids=[
        "a word", "spaces", "a macro", "a macro of a header", "a built-in macro", "a comment", "a character",
        "perhaps a macro's arguments", "a line that goes on", "not ASCII", "two lines for one", "a comment before",
        "a macro's arguments", "within a comment", "left out by a condition",
    ],
)  # fmt: skip
def test_which_lines_need_no_preprocessor(old, new, known) -> None:
    def expanded(text: str) -> bytes:
        command = ["g++", "-E", "-x", "c++", "-"]
        return subprocess.run(command, input=text.encode(), capture_output=True, check=True).stdout

    edited = _REST.replace(old, new, 1)
    rest = front_end._Rest(_REST, expanded(_REST), 1, frozenset({"HEADS"}))  # pyright: ignore[reportPrivateUsage]
    assert rest.edited(edited) is known
    assert rest.expanded == expanded(edited if known else _REST)


def _job(path: Path, text: str, flags: tuple[str, ...] = ()) -> Job:
    return Job("t", "compile", "cuda", str(path), text, flags=flags)


def _errors(answer: c.Built) -> list[tuple[c.Place | None, str]]:
    return [
        (each.place, each.message)
        for each in answer.problems
        if (each.severity, each.tool) == ("error", "nvcc")
    ]


@needs_nvcc
@linux
@pytest.mark.slow
@pytest.mark.parametrize("file", CUDA, ids=lambda file: file.name)
async def test_errors_are_those_of_nvcc(tmp_path, file) -> None:
    path = tmp_path / file.name
    text, _ = unmarked(file.text, str(path))
    path.write_text(text)
    nvcc = await built(tmp_path, text, name=file.name, flags=file.flags)
    front_ends = FrontEnds(tmp_path / "cache", tmp_path / "work")
    try:
        answer = await front_ends.check(_job(path, text, file.flags), "sm_90a", ignore, start=True)
        errors = _errors(answer)
        assert set(errors) <= set(_errors(nvcc.built))
        assert errors or not answer.complete or not _errors(nvcc.built)
    finally:
        await front_ends.close()
    assert not list((tmp_path / "work").iterdir())


_TYPED = """\
#include "own.h"
#include <cuda_fp16.h>

__global__ void k(float* x) {
  x[threadIdx.x] = OWN;
  x[0] = x[1];
}
"""


@needs_nvcc
@linux
@pytest.mark.slow
async def test_what_is_typed_is_checked_with_the_headers_that_are_there(tmp_path) -> None:
    path, header = tmp_path / "k.cu", tmp_path / "own.h"
    header.write_text("#define OWN 1.0f\n")
    path.write_text(_TYPED)
    front_ends = FrontEnds(tmp_path / "cache", tmp_path / "work")

    async def said(text: str, *, start: bool = False) -> object:
        answer = await front_ends.check(_job(path, text), "sm_90a", ignore, start=start)
        errors = [(place and place.line, place and place.column, words) for place, words in _errors(answer)]
        return errors if answer.complete else None

    try:
        assert await said(_TYPED) is None
        assert await said(_TYPED, start=True) == []
        assert await said(_TYPED.replace("x[1]", "y[1]")) == [(6, 10, 'identifier "y" is undefined')]
        assert await said(_TYPED.replace("x[1]", "OWNS")) == [(6, 10, 'identifier "OWNS" is undefined')]
        assert await said(_TYPED.replace("  x[0] =", "\n\n  x[0] -> y =")) == [
            (8, 3, 'operator -> or ->* applied to "float" instead of to a pointer type')
        ]
        assert await said(_TYPED) == []
        assert await said(_TYPED.replace("fp16", "bf16")) is None  # other headers: not parsed yet
        header.write_text("#define OWN 2.0f + wrong\n")
        assert await said(_TYPED.replace("x[1]", "y[1]")) is None
        assert await said(_TYPED, start=True) is None  # and then they are read anew
        words = await said(_TYPED, start=True)
        assert re.search("wrong", str(words))
    finally:
        await front_ends.close()


@needs_nvcc
@linux
@pytest.mark.slow
async def test_so_many_files_are_kept_parsed(tmp_path) -> None:
    text = "__global__ void k(float* x) { x[0] = wrong; }\n"
    paths = [tmp_path / f"k{at}.cu" for at in range(limits.FRONT_ENDS.most + 1)]
    for path in paths:
        path.write_text(text)
    jobs = [_job(path, text) for path in paths]
    front_ends = FrontEnds(tmp_path / "cache", tmp_path / "work")
    try:
        for job in jobs:
            assert (await front_ends.check(job, "sm_90a", ignore, start=True)).complete
        waiting = [(await front_ends.check(job, "sm_90a", ignore, start=False)).complete for job in jobs]
        assert waiting == [False, *[True] * limits.FRONT_ENDS.most]
    finally:
        await front_ends.close()
