"""Which line of the author's file the machine code of Python's other languages is of (under_profiler.py, source_lines.py)."""

from __future__ import annotations

import subprocess
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orbit_remote.child import under_profiler
from orbit_remote.counters.source_lines import Authorship

FILE = textwrap.dedent(
    '''\
    import cupy

    N = 4
    CODE = r"""
    #define TWICE(x) \\
      ((x) * 2)
    extern "C" __global__ void k(float* p) {
      p[0] = TWICE(p[1]);
    }
    """
    TAIL = f"""
    extern "C" __global__ void tail(float* p) {{
      p[{N}] = 1;
    }}
    """
    '''
)
CODE, TAIL = FILE.split('"""')[1], 'extern "C" __global__ void tail(float* p) {\n  p[4] = 1;\n}\n'


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        pytest.param(CODE, '\n#line 5 "/src/k.py"' + CODE, id="the whole string"),
        pytest.param("#include <x>\n" + CODE, "#include <x>\n\n" + '#line 5 "/src/k.py"' + CODE, id="after a header"),
        pytest.param("int other;\n", "int other;\n", id="not of this file"),
        pytest.param(
            TAIL,
            TAIL,
            id="no line as in the file, but a brace",
        ),
        pytest.param(
            "int other;\\\n" + CODE.strip(),
            "int other;\\\n" + CODE.strip().replace("\n  ((x)", "\n  ((x)").replace("extern", '#line 7 "/src/k.py"\nextern', 1),
            id="not within a macro",
        ),
    ],
)  # fmt: skip
def test_code_in_a_string_names_its_lines(source: str, expected: str) -> None:
    made = under_profiler.with_places(source, "/src/k.py", [line.rstrip() for line in FILE.split("\n")])
    print(made)
    assert made == expected


def test_the_compiler_reports_the_files_own_line(tmp_path: Path) -> None:
    path = tmp_path / 'a "b" \\c.py'
    lines = FILE.replace("TWICE(p[1])", "missing").split("\n")
    code = "\n".join(lines).split('"""')[1]
    (tmp_path / "k.cu").write_text(
        "#include <stdio.h>\n" + under_profiler.with_places(code, str(path), lines)
    )
    ended = subprocess.run(
        ["nvcc", "-ptx", "-arch=sm_90", "k.cu"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert f'{path}(8): error: identifier "missing" is undefined' in ended.stderr + ended.stdout


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda of: of.load_inline("k", "", CODE, functions=["k"]), id="by place"),
        pytest.param(lambda of: of.load_inline("k", "", cuda_sources=[CODE], extra_cuda_cflags=["-O3"]), id="by name"),
    ],
)  # fmt: skip
def test_torch_builds_with_line_information(
    call: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What torch hands to its compiler; the compiler itself is left out."""
    from torch.utils import cpp_extension

    given: list[Any] = []
    monkeypatch.setattr(cpp_extension, "_jit_compile", lambda *args, **_: given.append(args))
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    with under_profiler.with_lines({"embedded"}, "/src/k.py", FILE + "cpp_extension"):
        call(cpp_extension)
    [(_, sources, _, flags, *_)] = given
    cuda = next(Path(source) for source in sources if source.endswith(".cu"))
    assert flags[-1] == "-lineinfo"
    assert '#line 5 "/src/k.py"' in cuda.read_text()
    assert cuda.is_relative_to(tmp_path / "lineinfo")
    call(cpp_extension)
    assert "-lineinfo" not in (given[-1][3] or [])


def test_a_line_that_helion_made_is_of_the_authors_line(tmp_path: Path) -> None:
    path, generated = tmp_path / "add.py", tmp_path / "made" / "c123.py"
    generated.parent.mkdir()
    generated.write_text(
        textwrap.dedent(
            """\
            @triton.jit
            def _helion_add(x, y, out, _BLOCK_SIZE_0: tl.constexpr):
                # src[add.py:9]: for tile in hl.tile(out.size()):
                # src[add.py:10]:     out[tile] = x[tile] + y[tile]
                pid_0 = tl.program_id(0)
                # src[add.py:10]: out[tile] = x[tile] + y[tile]
                load = tl.load(x + indices_0, None)
                # src[other.py:3]: helper()
                v_0 = load + load_1
            """
        )
    )
    authorship = Authorship(str(path), users=True)
    origins = (authorship.origin(str(generated), line) for line in range(1, 10))
    shown = [(Path(file).name, line) for file, line in origins]
    assert shown == [
        ("c123.py", 1), ("c123.py", 2), ("add.py", 9), ("add.py", 9), ("add.py", 9), ("add.py", 10), ("add.py", 10),
        ("c123.py", 8), ("c123.py", 9),
    ]  # fmt: skip
