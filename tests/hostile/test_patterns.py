"""Texts in which a pattern that reads on from each place would read for minutes, and keep the interpreter meanwhile."""

from __future__ import annotations

import ast
import random
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pathspec import GitIgnoreSpec

from orbit_lsp.closure import ignores
from orbit_lsp.compilation import build_files, command_line, missing
from orbit_lsp.compilation.build_systems import bazel_files, makefiles
from orbit_lsp.compilation.build_systems.cmake import presets
from orbit_lsp.kernels import cells
from orbit_lsp.kernels.cuda import cuda_kernels
from orbit_lsp.views.spec import spec_drafts
from orbit_remote.common import limits
from orbit_remote.spec.file_context import Surroundings
from tests.hostile.hostile_texts import ONE
from tests.loops import in_child

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processor time is limited on Linux")

MOST_S = 10.0
"""Of processor time: none takes a tenth of it now, and each would take a hundred times as long."""
SIZE = 250_000


RULE = "k.o: k.cu\n\tnvcc -DK $<\n"


def full(unit: str, size: int = SIZE) -> str:
    return (unit * (size // len(unit) + 1))[:size]


def ends(work: Callable[[], object]) -> bool:
    """In a forked process, as one call of `re` cannot be interrupted."""

    def limited() -> None:
        signal.setitimer(signal.ITIMER_PROF, MOST_S)
        work()

    return in_child(limited) == 0


BUILD_FILES = {
    "CMakeLists.txt": [
        "\n", "#\n", "a", "include_directories(", "include_directories(/usr ", "$<BUILD_INTERFACE:", "${a", "if(\n", "include(a)\n", "a(\n", "a()\n", "add_library(k k.cu)\n", "set(CUFLAGS ${CUFLAGS} $<)\n", "set(a ${a}${a}b)\n", "add_definitions($<1:$<1:", 'set(a "', "if(a)\n", "target_link_libraries(k k)\n",
    ],
    "Makefile": ["\n", "-I /usr ", '-I"', "-Ia\n", "NVCC_", "CUFLAGS -Da=", "include a\n", "\\\n", "-std=", "$(", "a = $(a) $(b)\n", "CUFLAGS += $(CUFLAGS)\n", "a:", " ", "k.o: k.cu\n\tnvcc $(A)\n", "ifeq (,,", "$(eval ", "CU"],
    "BUILD": ["\n", "cuda_library(srcs = ['k.cu'], copts = ['-Da'])\n", "a = a + a\n", "[", "a + ", "'a' "],
    "xmake.lua": ["\n", "[[", "--[", "--[=", '"\\', "add_files(", "target('k') add_files('*')\n", "add_files('**k**')\n", "{", "target:add("],
    ".gitmodules": ["\n", "[submodule\n", "path = a ", "path =  ", "[submodule\npath = /\n"],
}  # fmt: skip


@pytest.mark.parametrize("name", BUILD_FILES)
def test_a_build_file_of_one_thing(tmp_path: Path, name: str) -> None:
    """In one child: a fork of pytest takes longer than most of them."""
    began = tmp_path / "began"

    def each() -> None:
        for number, unit in enumerate(BUILD_FILES[name]):
            began.write_text(repr(unit))
            signal.setitimer(signal.ITIMER_PROF, MOST_S)
            root = tmp_path / f"{number}"
            root.mkdir()
            (root / name).write_text(full(unit))
            build_files.declared(str(root / "k.cu"), str(root))
            missing.submodules(str(root))

    assert ends(each), began.read_text()


def test_a_setup_that_repeats_a_text_without_end(tmp_path: Path) -> None:
    doubled = "".join(
        f"a{at + 1} = f'{{a{at}}}' + " + " + ".join([f"a{at}"] * 200) + "\n" for at in range(12)
    )
    (tmp_path / "setup.py").write_text(
        f"a0 = 'x' * 2\n{doubled}CUDAExtension('a', ['k.cu'], include_dirs=[a12])\n"
    )
    assert ends(lambda: build_files.declared(str(tmp_path / "k.cu"), str(tmp_path)))


@pytest.mark.parametrize("name", ["Makefile", "CMakeLists.txt"])
def test_a_build_file_with_the_marks_of_its_readers(tmp_path: Path, name: str) -> None:
    text = "CUFLAGS = -DA\ue0009\ue001\n" if name == "Makefile" else "add_definitions(-DA\ue0009\ue001)\n"
    (tmp_path / name).write_text(text)
    assert build_files.declared(str(tmp_path / "k.cu"), str(tmp_path)).flags == (
        ("-DA9", str(tmp_path / name)),
    )


def test_a_makefile_whose_variables_double_without_end(tmp_path: Path) -> None:
    doubled = "".join(f"A{at} = $(A{at - 1}) $(A{at - 1})\n" for at in range(1, 60))
    (tmp_path / "Makefile").write_text(f"A0 = -DA\n{doubled}k.o: k.cu\n" + "\tnvcc $(A59) $<\n" * 50)
    assert ends(lambda: build_files.declared(str(tmp_path / "k.cu"), str(tmp_path)))


def test_a_library_whose_lists_double_without_end(tmp_path: Path) -> None:
    doubled = "".join(f"A{at} = [{', '.join([f'A{at - 1}'] * 300)}]\n" for at in range(1, 12))
    (tmp_path / "BUILD").write_text(
        f"A0 = []\n{doubled}cuda_library(name = 'k', srcs = ['k.cu'], copts = A11, deps = A11)\n"
    )
    assert ends(lambda: build_files.declared(str(tmp_path / "k.cu"), str(tmp_path)))


ENDLESS = {
    "conditions without an end": "if(A)\n" * 5_000,
    "loops in loops": "foreach(a RANGE 200)\n" * 40 + "set(X ${X}y)\n" + "endforeach()\n" * 40,
    "a function that calls itself": "function(f)\nf()\ng()\nendfunction()\nfunction(g)\nf()\nendfunction()\nf()\n"
    * 500,
    "a value that doubles": "set(X abc)\n" + "set(X ${X}${X})\n" * 4_000,
    "a folder that is its own": "add_subdirectory(.)\ninclude(CMakeLists.txt)\n" * 2_000,
    "a condition of brackets": "if(" + "(" * 5_000 + ")" * 5_000 + ")\nendif()\n",
    "a pattern of all of the disk": "file(GLOB_RECURSE A /*.nothing)\nforeach(a ${A} /*/*/*/*/*/*.no ../../../../**.no)\nadd_definitions(-D${a})\nendforeach()\n",
    "a pattern that takes for ever": 'if("'
    + "a" * 900
    + '" MATCHES "^(a+)+$")\nadd_definitions(-DX)\nendif()\n',
}


@pytest.mark.parametrize("name", ENDLESS)
def test_a_cmake_project_without_end(tmp_path: Path, name: str) -> None:
    (tmp_path / "CMakeLists.txt").write_text(ENDLESS[name])
    assert ends(lambda: build_files.declared(str(tmp_path / "k.cu"), str(tmp_path)))


SCRIPTS = {
    "meson.build": "x = ["
    + "[" * 5_000
    + "\n"
    + "library('k', 'k.cu', cuda_args: x + x)\n" * 2_000
    + "a = a + ['-DA']\n" * 500,
    "build.sh": "nvcc " + "a/" * 100_000 + "\n" + "nvcc -DA $X k.cu; " * 20_000,
    "SConstruct": "k.cu" * 200_000,
    "build.rs": "fn main() { let b = cc::Build::new(); b.cuda(true).flag(p"
    + ".to_string()" * 4_000
    + 'x).file("k.cu"); }',
    "k.vcxproj": "<ItemDefinitionGroup><CudaCompile>"
    + "<Defines>%(Defines)%(Defines)a</Defines>" * 400
    + '</CudaCompile></ItemDefinitionGroup><CudaCompile Include="k.cu" />',
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_without_end(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(SCRIPTS[name])
    assert ends(lambda: build_files.declared(str(tmp_path / "k.cu"), str(tmp_path)))


def test_a_makefile_that_includes_without_end() -> None:
    read: list[str] = []

    def include(name: str) -> str:
        read.append(name)
        return "A = 1\n"

    named = "".join(f"include ./{at}.mk {at}.mk\n" * 20 for at in range(21))
    recipe = makefiles.read("/p/Makefile", named + RULE, "/p/k.cu", include)
    assert read == [f"./{at}.mk" for at in range(20)]
    assert (*recipe[:2], recipe.certain) == (("-DK",), ("what `include ./20.mk` adds",), True)


def test_a_makefile_whose_includes_are_long() -> None:
    included = "A = 1\n" * 12_000
    recipe = makefiles.read("/p/Makefile", "include a\ninclude b\n" + RULE, "/p/k.cu", lambda _: included)
    assert recipe.flags == ()
    assert recipe.left_out == ("what follows its first 20,000 lines or 1,048,576 characters",)


@pytest.mark.parametrize(
    "text",
    ["V = $(" + "a" * 49_000, "V = $(" + "()" * 24_000, "W = " + "a " * 20_000 + "\nV = $(W)$(W)$(W)$(W)"],
)
def test_a_makefile_that_repeats_a_long_value(text: str) -> None:
    makefile = makefiles._Makefile("/p", "/p/k.cu")
    makefile.take(text + "\n" + "$(V):\n" * 4_000 + RULE, None)
    assert makefile.reading().flags == ("-DK",)
    assert makefile.size + sum(map(len, makefile.parts)) < 1 << 20


def test_no_pattern_is_compiled_for_each_line_of_a_makefile(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[object] = []
    compile_pattern = re._compiler.compile

    def compile_it(*arguments: object) -> object:
        compiled.append(arguments)
        return compile_pattern(*arguments)

    monkeypatch.setattr("re._compiler.compile", compile_it)
    lines = "".join(f"A{at} = $(A{at})\nx: a%{at}.cu\n\tnvcc $<\n" for at in range(1_000))
    assert makefiles.read("/p/Makefile", lines + RULE, "/p/k.cu", lambda _: "").flags == ("-DK",)
    assert len(compiled) < 50


@pytest.mark.parametrize(
    ("text", "left_out"),
    [
        ("t: F += -DX\n" * 9_000 + "o:\n\tcc\n" * 5_000, "what variables of single targets add, which are too many to be read"),
        ("x:\n" + "\techo nvccs -DX\n" * 18_000, "what recipes behind the first 65,536 characters add"),
        (("x:" + " k.cu.cu" * 5_000 + "\n") * 5, "what rules behind the first 20,000 prerequisites add"),
        ("x:" + " k.cu.cu" * 21_000 + "\n", "what follows 65,536 characters of one line"),
        ("ifeq (1,1)\n" * 66, "what follows more than 64 conditions in one another"),
        ("A = " + "x" * 65_000 + "\n" + "A += " + "y" * 600 + "\n", "the end of A, which is too long to be read"),
    ],
)  # fmt: skip
def test_what_is_too_long_in_a_makefile_is_said(text: str, left_out: str) -> None:
    recipe = makefiles.read("/p/Makefile", text, "/p/k.cu", lambda _: "")
    assert (*recipe[:2], recipe.certain) == ((), (left_out,), False)


def test_an_expression_of_a_library_is_written_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unparse, written = ast.unparse, []
    monkeypatch.setattr(ast, "unparse", lambda node: written.append(node) or unparse(node))
    large = ", ".join(f"'a{at}': {at}" for at in range(3_000))
    (tmp_path / "BUILD").write_text(
        f"C = {{'a': 1}}\nD = {{{large}}}\nL = [{'C, D, ' * 200}]\n"
        "cuda_library(name = 'k', srcs = ['k.cu'], copts = L + L, defines = L)\n"
    )
    library = bazel_files.read(str(tmp_path / "BUILD"), str(tmp_path / "k.cu"), str(tmp_path))
    assert library.left_out == ("copts = {'a': 1}", "copts = …", "defines = {'a': 1}", "defines = …")
    assert len(written) == 1


WORDS = "behind the first 2,000 words or 65,536 characters of lists"
PARTS = "behind the first 20,000 parts of lists"


@pytest.mark.parametrize(
    ("texts", "flags", "left_out"),
    [
        ("L = [" + "'-DA', " * 400 + "]\n", 1, [f"copts {WORDS}"]),
        (f"L = ['-D{'A' * 20_000}']\n", 1, [f"copts {WORDS}"]),
        (f"M = [{'[], ' * 400}]\nL = [{'M, ' * 400}]\n", 0, [f"copts {PARTS}"]),
        ("L = []\n" + "x\n" * 20_000, 0, ["what BUILD adds, which is too long to be read"]),
    ],
)
def test_what_is_too_long_in_a_library_is_said(
    tmp_path: Path, texts: str, flags: int, left_out: list[str]
) -> None:
    (tmp_path / "BUILD").write_text(
        f"{texts}cuda_library(name = 'k', srcs = ['k.cu'], copts = L + L + L + L + L + L)\n"
    )
    library = bazel_files.read(str(tmp_path / "BUILD"), str(tmp_path / "k.cu"), str(tmp_path))
    assert (len(library.flags), list(library.left_out)) == (flags, left_out)


def test_all_build_files_of_a_library_have_one_limit(tmp_path: Path) -> None:
    for at in range(4):
        (tmp_path / f"p{at}").mkdir()
        (tmp_path / f"p{at}" / "BUILD").write_text(
            f"cc_library(name = 'p{at}', defines = ['P{at}'], deps = ['//p{at + 1}'])\n" + "x\n" * 8_000
        )
    (tmp_path / "BUILD").write_text("cuda_library(name = 'k', srcs = ['k.cu'], deps = ['//p0'])\n")
    library = bazel_files.read(str(tmp_path / "BUILD"), str(tmp_path / "k.cu"), str(tmp_path))
    assert library[:2] == (("-DP0", "-DP1"), ("what p2/BUILD adds, which is too long to be read",))


def test_presets_are_read_once_and_up_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[str] = []
    read_json = presets.codec.read_json
    monkeypatch.setattr(presets.codec, "read_json", lambda text: reads.append(text) or read_json(text))
    file = tmp_path / "CMakePresets.json"
    preset = '{"name": "a", "inherits": ["a", "a"], "cacheVariables": {"A": "1", "B": [[]]}}'
    file.write_text(f'{{"configurePresets": [{", ".join([preset] * 8_000)}]}}')
    for _ in range(3):
        assert len(presets.configured(file)) == 200
        assert presets.usual_variables(str(tmp_path)) == (str(file), {"A": "1", "B": ""})
    assert len(reads) == 1
    file.write_text(f'{{"configurePresets": [{preset}]}}')
    assert len(presets.configured(file)) == 1
    assert len(reads) == 2


@pytest.mark.parametrize("text", ["@a.rsp " * 100_000, "-DX " * 1_000 + "@a.rsp " * 1_000])
def test_an_option_file_that_names_itself_many_times(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.rsp").write_text(text)
    words = ["nvcc", "@a.rsp", "-DLAST", "k.cu"]
    command = command_line.parse(words, str(tmp_path), str(tmp_path / "k.cu"))
    assert "-DLAST" in command.flags


def test_all_option_files_of_a_command_have_one_limit(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(f"-D{name} ".ljust(limits.OPTIONS.most // 2 + 1))
    command = command_line.parse(["nvcc", "@a", "@b", "k.cu"], str(tmp_path), str(tmp_path / "k.cu"))
    assert command.flags == ("-Da",)


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("*a" * 40 + "b", "a" * 250),
        ("[a-z]*" * 40 + "!", "a" * 250),
        ("**/a/" * 40 + "b", "a/" * 400 + "c"),
        ("a/" + "**/a*a*a*/" * 20 + "b", "aaaaaaaa/" * 100 + "c"),
    ],
)
def test_a_pattern_of_many_stars(pattern: str, path: str) -> None:
    assert ends(lambda: ignores._compiled(pattern).check_file(path))


def test_patterns_mean_what_git_means_by_them() -> None:
    parts = ("*", "**", "/", "a", "b", "?", "[ab]", "/**/", "**/", "*a", "!")
    chosen = random.Random(16)
    for _ in range(3_000):
        pattern = "".join(chosen.choice(parts) for _ in range(chosen.randint(1, 7)))
        try:
            as_it_was = GitIgnoreSpec.from_lines([pattern])
        except ValueError:
            continue
        made = ignores._compiled(pattern)
        for _ in range(5):
            names = (
                "".join(chosen.choices("abc", k=chosen.randint(1, 4))) for _ in range(chosen.randint(1, 5))
            )
            path = "/".join(names) + chosen.choice(["", "/"])
            if made:
                assert made.check_file(path).include == as_it_was.check_file(path).include, (pattern, path)


SCANNED = ("const ", "const a = ", "dim3 ", "dim3 a(", "constexpr a{", "constexpr a(", "const a const ")


@pytest.mark.parametrize("unit", SCANNED)
def test_host_code_above_a_launch(unit: str) -> None:
    text = f"{ONE}void h() {{ {full(unit)}; k0<<<1, 256>>>(x, n); }}\n"
    assert ends(lambda: cuda_kernels.scan(text))


AROUND = {
    "cuda": ("__device__ ", "__device__ a[", "__device__ a[1] ", "\n", "\nusing a = b", "\ntypedef a b", "/* \n", '"\\', "\n# "),
    "triton": ("\n", "from a ", "\nfrom a.", "\ndef a(", "#"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("language", "unit"), [(language, unit) for language, units in AROUND.items() for unit in units]
)
def test_what_stands_around_a_launch_spec(language: str, unit: str) -> None:
    lines = (full(unit) + "@").split("\n")

    def ask() -> None:
        around = Surroundings(lines, language)
        _ = around.text, around.complete, around.alias("a_type"), around.variables(), around.functions()

    assert ends(ask)


@pytest.mark.parametrize(
    "text", ["tl.a\n" + full("import "), "%%orbit\n# __global__\n" + full("a = [1, 2, 3]\n", 5_000_000)]
)
def test_a_cell_of_a_notebook(text: str) -> None:
    assert ends(lambda: cells.CellTracker().scan(text))


BODIES = ("x[", "for(", "__shared__ a ", "__shared__ aaaa", "x = x; ", "__ldg(x[")
HOSTS = (
    "k0<",
    "k0<<<1, 1>>>(x, n);",
    "n = ",
    "int n{",
    "const ",
    "dim3 n(",
    "cudaMalloc(&x,",
    "\n)" + "->a  " * 55 + "!{",
)


@pytest.mark.parametrize(
    ("body", "host"), [*((body, "") for body in BODIES), *(("", host) for host in HOSTS)]
)
def test_a_draft_of_a_kernel(body: str, host: str) -> None:
    most = limits.OUTLINED.most - 1_000
    inside = full(body, most) if body else "x[n] = 1;"
    around = f"void h() {{ {full(host, most)}; k0<<<n, 256>>>(x, n); }}" if host else ""
    text = f"__global__ void k0(float* x, int n) {{ {inside} }}\n{around}\n"
    assert ends(lambda: spec_drafts.written(text.split("\n"), cuda_kernels.scan(text).kernels[0]))


def test_drafts_of_a_long_file_are_made_of_the_kernel_alone() -> None:
    text = f"{ONE}// {full('word ')}\nvoid h(float* x) {{ k0<<<7, 32>>>(x, 224); }}\n"
    kernel = cuda_kernels.scan(text).kernels[0]
    assert [title.rpartition(" ")[2] for title, _ in spec_drafts.written(text.split("\n"), kernel)] == [
        "signature"
    ]
    assert len(spec_drafts.written(text.replace("word ", "").split("\n"), kernel)) == 2
    long = f"__global__ void k0(float* x, int n) {{ {full('x[n] = 1; ')} }}\n"
    assert spec_drafts.written([*long.split("\n")], cuda_kernels.scan(long).kernels[0]) == []
