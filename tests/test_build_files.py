"""What Makefiles, BUILD files, CMakeLists.txt and setup.py tell of how a file is compiled, without a run of theirs."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from orbit_lsp.cli.machine import doctor
from orbit_lsp.compilation.build_systems import setup_files
from orbit_lsp.specs import job_builder
from orbit_lsp.state.compilation import Compilation, Reason
from orbit_lsp.state.config import Settings
from orbit_lsp.state.placement import RunSetup
from orbit_lsp.state.session import Session
from tests.compilation_check import SETUP, check, find, project

MAKEFILE = """
NVCC ?= nvcc
ARCH ?= sm_86
TILE := 32
DEFS := -DTILE_DIM=$(TILE)
DEFS += -DFAST
INCLUDES = -I${LIB}/inc
LIB = third_party
NVCCFLAGS = -O3 -std=c++20 -arch=$(ARCH) --use_fast_math $(INCLUDES) $(DEFS) $(EXTRA)
build/%.o: src/%.cu | build
\t@mkdir -p build && $(NVCC) $(NVCCFLAGS) --ftz=true -Xcompiler -fPIC -c -o $@ $<
"""


def test_a_makefiles_variables_are_followed_to_its_recipe(tmp_path: Path) -> None:
    files = {
        "Makefile": MAKEFILE,
        "src/k.cu": '#include "vec.h"\n',
        "third_party/inc/vec.h": "",
        "nearer/vec.h": "",
    }
    check(
        tmp_path,
        files,
        """
        -std c++20 --use_fast_math -DTILE_DIM=32 -DFAST -ftz true -Ithird_party/inc
        by what was found in ROOT, because there is no compile_commands.json (`bear -- make -B` writes it)
        -std=c++20: Makefile names it
        --use_fast_math: Makefile names it
        -DTILE_DIM=32: Makefile names it
        -DFAST: Makefile names it
        --ftz=true: Makefile names it
        sm_86: Makefile names it
        third_party/inc: Makefile:1 names it
        """,
    )
    made = find(tmp_path, "src/k.cu")
    assert (made.architectures, made.left_out) == (("86",), ())


RECIPES = {
    "its own rule, not another's": ("k.o: k.cu\n\tnvcc -DK -c k.cu\n", "-DK"),
    "the pattern of its folder": ("%.o: tests/%.cu\n\tnvcc -DTEST -c $<\n%.o: %.cu\n\tnvcc -DK -c $<\n", "-DK"),
    "a static pattern": ("OBJS = k.o\n$(OBJS): %.o: %.cu\n\t$(NVCC) -DK -c $< -o $@\n", "-DK"),
    "a suffix rule": (".cu.o:\n\t$(CUDA_HOME)/bin/nvcc -DK -c $<\n", "-DK"),
    "all in one call": ("app: k.cu main.cu; nvcc -DK $^ -o $@\n", "-DK"),
    "without a rule of nvcc": ("CUFLAGS = -DK\nCXXFLAGS = -DHOST\nk.o: k.cu\n\t$(call compile,$<)\n", "-DK"),
    "what is set first counts": ("D ?= -DK\nD ?= -DOTHER\nk.o: k.cu\n\tnvcc $D $(D) $<\n", "-DK"),
    "set at once, or when it is used": ("N = 1\nA := -DA=$(N)\nB = -DB=$(N)\nN = 2\nk.o: k.cu\n\tnvcc $(A) $(B) $<\n", "-DA=1 -DB=2"),
    "a condition that holds": ("ifeq ($(DEBUG),1)\nD = -DSLOW\nelse ifndef DEBUG\nD = -DK\nendif\nk.o: k.cu\n\tnvcc $(D) $<\n", "-DK"),
    "of another target": ("F = -DK\ndebug: F += -DDEBUG\nk.o: k.cu\n\tnvcc $(F) $<\n", "-DK"),
    "a prefix": ("M = A B=2\nk.o: k.cu\n\tnvcc $(addprefix -D,$(M)) $<\n", "-DA -DB=2"),
    "included": ("include common.mk\nk.o: k.cu\n\tnvcc $(FROM_COMMON) $<\n", "-DK"),
    "a comment": ("F = -DK # -DOLD\nk.o: k.cu\n\tnvcc $(F) $<\n", "-DK"),
    "assigned behind a tab": ("\tF = -DA\nifdef X\n\tF = -DX\nendif\nk.o: k.cu\n\tnvcc $(F) $<\n\tF = -DRECIPE\nG = 1\n\tF += -DK\n", "-DA -DK"),
    "assigned behind a tab and a definition": ("o.o: o.cu\ndefine x\n\tnvcc -DX\nendef\n\tF = -DK\nk.o: k.cu\n\tnvcc $(F) $<\n", "-DK"),
    "of its target": ("F = -DA\nk.o: private F += -DK\no.o: F += -DO\nk.o: k.cu\n\tnvcc $(F) $<\n", "-DA -DK"),
    "of its pattern": ("D = build\n$(D)/%.o: F = -DK\n%.o: F = -DA\nother/%.o: F = -DO\n$(D)/%.o: %.cu\n\tnvcc $(F) $<\n", "-DK"),
    "of what a static pattern makes": ("F = -DA\nout/k.o: F += -DK\nk.o: F += -DO\nout/k.o out/o.o: out/%.o: %.cu\n\tnvcc $(F) $<\n", "-DA -DK"),
    "of its target, without a rule of nvcc": ("CUFLAGS = -DA\nk.o: CUFLAGS += -DK\n", "-DA -DK"),
    "of a target that a plain make does not make": ("F = -DK\nall: k.o\ndebug: all\ndebug: F += -DDEBUG\nk.o: k.cu\n\tnvcc $(F) $<\n", "-DK"),
    "by another text": ("N ?= 7.5\nk.o: k.cu\n\tnvcc -DN=$(subst .,,$(N)) $<\n", "-DN=75"),
    "by patterns": ("F = $(patsubst %.cu,src/%.cu,o.cu k.cu)\nO = $(patsubst src/%.cu,%.o,$(F))\n$(O): %.o: %.cu\n\tnvcc -DK $(patsubst %,-D%,A B) $<\n", "-DK -DA -DB"),
    "in the call alone": ("o:\n\tnvcc -DO o.cu\nk:\n\tnvcc -DK -o k k.cu\n", "-DK"),
    "by a variable in the call": ("S = k.cu\nO = o.cu\no:\n\tnvcc -DO $(O)\nk:\n\tnvcc -DK $(S)\n", "-DK"),
    "itself": ("F = $(F) $(G)\nG = $(F)\nk.o: k.cu\n\tnvcc $(F) -DK $<\n", "-DK"),
}  # fmt: skip


@pytest.mark.parametrize("name", RECIPES)
def test_the_rule_that_compiles_a_file(tmp_path: Path, name: str) -> None:
    text, flags = RECIPES[name]
    other = "other.o: other.cu\n\tnvcc -DOTHERS -c $<\n"
    project(tmp_path, {"Makefile": other * ("own rule" in name) + text, "common.mk": "FROM_COMMON = -DK\n", "k.cu": ""})  # fmt: skip
    made = find(tmp_path, "k.cu")
    assert " ".join(made.flags) == flags
    call = "what `$(call compile,$<)` gives nvcc"
    assert [each.what for each in made.left_out] == [call] * (name == "without a rule of nvcc")


def test_of_two_rules_the_one_that_make_follows(tmp_path: Path) -> None:
    text = "S = src/a.cu src/m.c\nall: prog\nprog: obj/acu.o\n\tg++ -o $@ $^\nverbose: $(S)\n\tnvcc -DVERBOSE $^\nobj/acu.o: src/a.cu\n\tnvcc -DK -c $<\n"
    project(tmp_path, {"Makefile": text, "src/a.cu": ""})
    assert find(tmp_path, "src/a.cu").flags == ("-DK",)


AUTOMAKE = {
    "the file's own rule": (".cu.o:\n\t$(NVCC) -DALL -c $<\nk.o: k.cu\n\t$(NVCC) $(F) --maxrregcount=32 -c $<\nF = -DK\n", "-DK -maxrregcount 32"),
    "a suffix rule of libtool": ("SUFFIXES = .cu\nAM_NVCCFLAGS = -DK\n.cu.lo:\n\t$(AM_V_CU)$(LIBTOOL) --tag=CC --mode=compile $(NVCC) $(AM_NVCCFLAGS) -c -o $@ $<\n", "-DK"),
    "a condition about CUDA": ("if HAVE_CUDA\nF = -DK\nelse\nF = -DNONE\nendif\nk.o: k.cu\n\t$(NVCC) $(F) $<\n", "-DK"),
    "one that is not": ("if !WITH_CUDA\nF = -DNONE\nelse !WITH_CUDA\nF = -DK\nendif !WITH_CUDA\nk.o: k.cu\n\t$(NVCC) $(F) $<\n", "-DK"),
    "a compiler that configure finds": ("k.o: k.cu\n\t@NVCC@ -DK -c $<\n", "-DK"),
    "folders of the source": ("k.o: k.cu\n\t$(NVCC) -I$(top_srcdir)/inc -I$(srcdir) -DK -c $<\n", "-DK -IROOT/inc -IROOT/src"),
}  # fmt: skip


@pytest.mark.parametrize("name", AUTOMAKE)
@pytest.mark.parametrize("file", ["Makefile.am", "Makefile.in"])
def test_a_makefile_that_configure_completes(tmp_path: Path, file: str, name: str) -> None:
    text, flags = AUTOMAKE[name]
    needed = '#include "top.h"\n#include "beside/own.h"\n' if "-I" in flags else ""
    files = {
        "configure.ac": "",
        "inc/top.h": "",
        "src/beside/own.h": "",
        "src/k.cu": needed,
        f"src/{file}": text,
    }
    project(tmp_path, files)
    made = find(tmp_path, "src/k.cu")
    assert " ".join(made.flags).replace(str(tmp_path), "ROOT") == flags.replace(" -IROOT/src", "")
    assert (made.left_out, made.database_command) == ((), "")


def test_a_condition_of_automake_that_is_not_known(tmp_path: Path) -> None:
    text = "if DEBUG\nF = -DDEBUGGING\nendif\nk.o: k.cu\n\t$(NVCC) -DK $(F) $<\n"
    project(tmp_path, {"Makefile.am": text, "k.cu": ""})
    made = find(tmp_path, "k.cu")
    assert (made.flags, [each.what for each in made.left_out]) == (("-DK",), ["what `if DEBUG` adds to F"])


OTHER_RULES = {
    "a static pattern of another target": ("j.o: %.o: %.cu\n\tnvcc -DJ -c $<\nk.o: %.o: %.cu\n\tnvcc -DK -c $<\n", "-DK", []),
    "a rule that eval makes": ("define RULE\n$(1).o: $(1).cu\n\tnvcc -maxrregcount=$(2) -c $$<\nendef\n$(eval $(call RULE,k,48))\n", "", ["the rules that `$(eval …)` makes"]),
    "a variable that another one names": ("FAST = y\nF-$(FAST) += -use_fast_math\nk.o: k.cu\n\tnvcc -DK $(F-y) -c $<\n", "-DK", ["what `F-$(FAST) += -use_fast_math` adds"]),
    "files by a pattern": ("include rules/*.mk\nk.o: k.cu\n\tnvcc $(F) -c $<\n", "-DK", []),
    "a macro called DC": ("F = -DC\nk.o: k.cu\n\t./compile $<\n", "", ["what it gives nvcc for k.cu"]),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHER_RULES)
def test_rules_of_other_shapes(tmp_path: Path, name: str) -> None:
    text, flags, left_out = OTHER_RULES[name]
    project(tmp_path, {"Makefile": text, "k.cu": "", "rules/a.mk": "F = -DK\n"})
    made = find(tmp_path, "k.cu")
    assert (" ".join(made.flags), [each.what for each in made.left_out]) == (flags, left_out)


def test_the_makefile_that_make_prefers(tmp_path: Path) -> None:
    rule = "k.o: k.cu\n\tnvcc -D%s -c $<\n"
    project(tmp_path, {"Makefile": rule % "OLD", "GNUmakefile": rule % "NEW", "k.cu": ""})
    assert find(tmp_path, "k.cu").flags == ("-DNEW",)


def test_a_build_file_that_cannot_be_read(tmp_path: Path) -> None:
    project(tmp_path, {"Makefile": "# k.cu\n" + "x" * (2 << 20), "k.cu": ""})
    (reason,) = find(tmp_path, "k.cu").left_out
    assert reason.what.startswith("what it says, as it cannot be read (it is larger than ")


SETUPS = {
    "of another system": ("f = ['-DA']\nif sys.platform == 'win32':\n    f.append('-DWIN')\nCUDAExtension('k', ['k.cu'], extra_compile_args={'nvcc': f})", "-DA", []),
    "of the environment": ("f = ['-DA']\nif os.getenv('DEBUG'):\n    f += ['-DDBG']\nCUDAExtension('k', ['k.cu'], extra_compile_args={'nvcc': f})", "-DA", ["-DDBG"]),
    "a dict by its name": ("CUDAExtension('k', ['k.cu'], extra_compile_args=dict(cxx=['-DHOST'], nvcc=['-DA', '-maxrregcount=40']))", "-DA -maxrregcount 40", []),
    "a function": ("CUDAExtension('k', ['k.cu'], extra_compile_args={'nvcc': ['-DA', *more.flags()]})", "-DA", ["extra_compile_args: more.flags()"]),
    "a dict that has the name of its list": ("a = []\na += ['-DA']\na = {'gcc': a, 'nvcc': [*a, '-Xptxas=-v']}\nCUDAExtension('k', ['k.cu'], extra_compile_args=a)", "-DA", []),
    "a text of an unknown part": ("CUDAExtension('k', ['k.cu'], extra_compile_args={'nvcc': ['-DA', '-DN=' + version()]})", "-DA", ["extra_compile_args: '-DN=' + version()"]),
    "format": ("n = 4\nCUDAExtension('k', ['k.cu'], extra_compile_args={'nvcc': ['-D{}={}'.format('A', 'B'), '-DN={}'.format(n), '-D{:x}'.format('C')]})",
               "-DA=B", ["extra_compile_args: '-DN={}'.format(n)", "extra_compile_args: '-D{:x}'.format('C')"]),
    "in a comment": ("# extra: -rdc=true\nCUDAExtension('k', ['k.cu'], extra_compile_args={'nvcc': ['-DC']})", "-DC", []),
}  # fmt: skip


@pytest.mark.parametrize("name", SETUPS)
def test_the_flags_of_a_setup_py(tmp_path: Path, name: str) -> None:
    text, flags, left_out = SETUPS[name]
    project(
        tmp_path,
        {
            "setup.py": f"import os, sys\nfrom torch.utils.cpp_extension import CUDAExtension\n{text}\n",
            "k.cu": "",
        },
    )
    made = find(tmp_path, "k.cu")
    own = " ".join(made.flags).replace("--expt-relaxed-constexpr", "").strip()
    assert (own, [each.what for each in made.left_out]) == (flags, left_out)


@pytest.mark.parametrize("before", ["@", "-@", "$(Q)", "$(AM_V_NVCC)", "${SILENT}", "@$(ECHO_CMD)"])
def test_a_call_that_make_does_not_print(tmp_path: Path, before: str) -> None:
    project(tmp_path, {"Makefile": f"Q = @\nk.o: k.cu\n\t{before}$(NVCC) -DK -c $<\n", "k.cu": ""})
    assert find(tmp_path, "k.cu").flags == ("-DK",)


def test_another_rules_flags_are_not_the_files(tmp_path: Path) -> None:
    text = "CXXFLAGS = -std=c++20\nk.o: k.cu\n\tnvcc -DK -c $<\no.o: o.cu\n\tnvcc -dc $<\n"
    project(tmp_path, {"Makefile": text, "k.cu": ""})
    assert find(tmp_path, "k.cu").flags == ("-DK",)


LOADS = {
    "its flags": ("load(name='e', sources=['k.cpp', 'k.cu'], extra_cuda_cflags=['-O3', '-UN', '--use_fast_math', '-maxrregcount=64', '-Xptxas', '-v,-O1'])", "-UN --use_fast_math -maxrregcount 64 -Xptxas -O1 ", ""),
    "a path of sources": ("here = os.path.dirname(__file__)\nF = ['-DA']\nF += ['-DB']\nload('e', [os.path.join(here, 'k.cu')], extra_cuda_cflags=F, extra_include_paths=[here + '/inc'])", "-DA -DB -IROOT/inc ", ""),
    "of another source": ("load(name='e', sources=['o.cu'], extra_cuda_cflags=['-DO'])\nload(name='f', sources=['k.cu'], extra_cuda_cflags=['-DK'])\n", "-DK ", ""),
    "under a condition": ("F = ['-DA']\nif os.environ.get('FAST'):\n    F.append('--use_fast_math')\nload('e', ['k.cu'], extra_cuda_cflags=F)", "-DA ", "--use_fast_math"),
    "one of two": ("load('e', ['k.cu'], extra_cuda_cflags=['-DA', '--use_fast_math' if fast() else '-O2'])", "-DA ", "--use_fast_math"),
    "once it is needed": ("_e = None\ndef ext():\n    global _e\n    if _e is None:\n        _e = load('e', ['k.cu'], extra_cuda_cflags=['-DA', '--use_fast_math'])\n    return _e\n", "-DA --use_fast_math ", ""),
    "no call of torch's": ("np.load('k.cu')\nprint('k.cu')", "", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", LOADS)
def test_a_call_of_torchs_load_beside_the_file(tmp_path: Path, name: str) -> None:
    text, flags, left_out = LOADS[name]
    project(tmp_path, {"ops.py": f"import os\n{text}\n", "k.cu": '#include "h.h"\n', "inc/h.h": ""})
    made = find(tmp_path, "k.cu")
    own = " ".join(made.flags).replace(str(tmp_path), "ROOT").removesuffix("-IROOT/inc")
    assert own == flags.replace("-IROOT/inc ", "")
    assert [each.what for each in made.left_out] == ([left_out] if left_out else [])


MESON = {
    "a target's": ("executable('a', 'k.cu', 'm.cpp', cuda_args: ['--use_fast_math', '-DA'], cpp_args: '-DHOST')\nexecutable('b', 'o.cu', cuda_args: '-DO')", "--use_fast_math -DA", ""),
    "a name": ("src = files('k.cu')\nargs = ['-DA']\nargs += ['-DB']\nlibrary('a', src, cuda_args: args)", "-DA -DB", ""),
    "of the project": ("add_project_arguments('-DA', '--ftz=true', language: 'cuda')\nadd_project_arguments('-DHOST', language: 'cpp')\nlibrary('a', 'k.cu')", "-DA -ftz true", ""),
    "what Meson alone knows": ("library('a', 'k.cu', cuda_args: ['-DA'] + get_option('more'))", "-DA", "cuda_args: ['-DA'] + get_option('more')"),
    "under a condition": ("a = ['-DA']\nif get_option('debugging')\n  a += '-DDBG'\nendif\nlibrary('k', 'k.cu', cuda_args: a)", "-DA", "what a condition sets of a"),
    "by kwargs": ("library('k', 'k.cu', kwargs: common)", "", "what `kwargs` gives the target"),
    "one of several": ("library('a', s, cuda_args: '-DA')\nlibrary('b', t, cuda_args: '-DB')", "", "the cuda_args of a target, if the file is one of its sources"),
    "a command": ("nvcc = find_program('nvcc')\ncustom_target('k', output: 'k.o', input: 'k.cu', command: [nvcc, '-DA', '@INPUT@', '-o', '@OUTPUT@'])", "-DA", ""),
    "a command in a loop": ("s = {'k' : [d + '/k.cu']}\nf = ['-DB']\nforeach name, cu : s\ncustom_target(name, output: 'k.o', input: cu, command: ['nvcc', '-DA'] + f)\nendforeach", "-DA -DB", ""),
    "a command of another file": ("custom_target('o', output: 'o.o', input: 'o.cu', command: ['nvcc', '-DO', '@INPUT@'])", "", ""),
    "another command": ("xxd = find_program('xxd')\ncustom_target('k', output: 'k.h', input: 'k.cu', command: [xxd, '-DO', '@INPUT@'])", "", "what it gives nvcc for k.cu"),
    "the branch with nvcc": ("if a\nc = find_program('nvcc')\nf = ['-DA']\nif b\nf += '-DB'\nendif\nelse\nc = find_program('clang')\nf = ['-DC']\nendif\ncustom_target('k', input: 'k.cu', command: [c, f, '@INPUT@'])", "-DA", "what a condition sets of f"),
    "a generator": ("g = generator(find_program('nvcc'), output: '@BASENAME@.o', arguments: ['-DA', '@INPUT@'])\no = g.process('k.cu')", "-DA", ""),
    "the same condition": ("if a\nf = ['-DA']\nlibrary('k', 'k.cu', cuda_args: f)\nendif", "-DA", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", MESON)
def test_the_arguments_of_meson(tmp_path: Path, name: str) -> None:
    text, flags, left_out = MESON[name]
    project(tmp_path, {"meson.build": f"project('p', 'cuda')\n{text}\n", "k.cu": ""})
    made = find(tmp_path, "k.cu")
    assert (" ".join(made.flags), [each.what for each in made.left_out]) == (
        flags,
        [left_out] if left_out else [],
    )


XMAKE = {
    "a target's": ('target("b")\n add_files("o.cu")\n add_cuflags("-DO", "-rdc=true")\ntarget("a")\n add_files("*.cu|o.cu")\n add_cuflags("-use_fast_math", "-DK", {force = true})\n add_defines("A=1")', "-use_fast_math -DK -DA=1", []),
    "for all": ('add_defines("ALL")\ntarget("a")\n add_files("**.cu")\n set_languages("c11", "cxx20")\ntarget_end()\nset_languages("c++17")\nadd_cuflags("-DLAST")', "-std c++20 -DALL -DLAST", []),
    "other ways to write it": ("target 'a'\n add_files {'k.cu', \"l.cu\"}\n add_defines([[A]]) -- add_cuflags('-DC')\n --[[ add_defines('C')\n ]] add_cuflags('-DB -DD')", "-DA -DB -DD", []),
    "what only xmake knows": ('local f = "-DF"\ntarget("a")\n add_files("k.cu")\n add_cuflags("-DA", f, "-D" .. x())\n add_includedirs("$(builddir)")', "-DA", ['add_cuflags(f, "-D" .. x())', "add_includedirs('$(builddir)')"]),
    "under a condition": ('target("a")\n add_files("k.cu")\n if is_mode("debug") then\n  add_cuflags("-DG")\n end\n add_defines("A")', "-DA", ["add_cuflags('-DG') under a condition"]),
    "a target under a condition": ('if has_config("a") then\n target("a")\n add_files("k.cu")\n add_defines("A")\nend', "-DA", []),
    "by a script": ('target("a")\n add_files("k.cu")\n on_load(function (target)\n  target:add("cuflags", "-DS")\n end)', "", ["target:add('cuflags', '-DS')"]),
    "its files alone": ('target("a")\n add_files("k.cu", {cuflags = "-DS"})', "", ["add_files('k.cu', {cuflags = \"-DS\"})"]),
    "files that are not known": ('target("a")\n add_files(table.unpack(files))\n add_defines("A")', "", ["what the target a gives its files, if this is one"]),
    "removed": ('target("a")\n add_files("*.cu")\n remove_files("k*")\n add_defines("A")\noption("o")\n add_defines("O")', "", []),
}  # fmt: skip


@pytest.mark.parametrize("name", XMAKE)
def test_the_arguments_of_xmake(tmp_path: Path, name: str) -> None:
    text, flags, left_out = XMAKE[name]
    project(tmp_path, {"xmake.lua": f"{text}\n", "k.cu": ""})
    made = find(tmp_path, "k.cu")
    assert (" ".join(made.flags), [each.what for each in made.left_out]) == (flags, left_out)


def test_the_flags_of_xmake_and_who_names_them(tmp_path: Path) -> None:
    text = 'set_languages("c++20")\ntarget("app")\n  add_files("src/*.cu")\n  add_cuflags("-use_fast_math")\n  add_includedirs("include")\n  add_defines("A=1")\n'
    files = {"xmake.lua": text, "src/k.cu": '#include "h.h"\n', "include/h.h": ""}
    expected = """
        -std c++20 -use_fast_math -DA=1 -Iinclude
        by what was found in ROOT, because there is no compile_commands.json (`xmake project -k compile_commands` writes it)
        -std=c++20: xmake.lua names it
        -use_fast_math: xmake.lua names it
        -DA=1: xmake.lua names it
        include: xmake.lua:5 names it
    """
    check(tmp_path, files, expected)


INCLUDES = {
    "a variable": ("TOP ?= ..\n-include $(TOP)/common.make\n", "-DA", []),
    "an absolute path": ("TOP := $(abspath ..)\ninclude $(TOP)/common.make\n", "-DA", []),
    "where the Makefile is": ("TOP := $(dir $(realpath $(firstword $(MAKEFILE_LIST))))..\ninclude $(TOP)/common.make\n", "-DA", []),
    "of a shell": ("TOP := $(shell cd .. && pwd)\ninclude $(TOP)/common.make\n", "-DA", []),
    "of git": ("TOP := $(shell git rev-parse --show-toplevel)\ninclude $(TOP)/common.make\n", "-DA", []),
    "those that exist": ("include $(wildcard ../*.make)\n", "-DA", []),
    "one that includes another": ("include ../first.mk\n", "-DA", []),
    "one that includes what is beside it": ("include ../beside.mk\n", "-DA", []),
    "a variable that nothing sets": ("include $(CUDA_TOP)/common.make\n", "", ["what `include $(CUDA_TOP)/common.make` adds"]),
    "one that configure makes": ("include ../config.mk\n", "", ["what `include ../config.mk` adds"]),
    "one that need not be": ("-include ../config.mk\n", "", []),
    "dependencies": ("include .depend\ninclude $(OBJECTS:.o=.d)\n", "", []),
    "in a circle": ("include ../circle.mk\n", "-DA", []),
}  # fmt: skip


@pytest.mark.parametrize("name", INCLUDES)
def test_what_a_makefile_includes_that_names_the_source_by_a_pattern(tmp_path: Path, name: str) -> None:
    text, flags, left_out = INCLUDES[name]
    files = {
        "app/Makefile": f"{text}%.o: %.cu\n\tnvcc $(NVCCFLAGS) -c $< -o $@\n",
        "app/k.cu": "",
        "common.make": "NVCCFLAGS = -DA -O3\n",
        "first.mk": "include ../common.make\n",
        "beside.mk": "HERE := $(dir $(lastword $(MAKEFILE_LIST)))\ninclude $(HERE)common.make\n",
        "circle.mk": "include ../circle.mk\ninclude Makefile\ninclude ../common.make\n",
        ".git/HEAD": "",
    }
    project(tmp_path, files)
    made = find(tmp_path, "app/k.cu")
    assert (" ".join(made.flags), [each.what for each in made.left_out]) == (flags, left_out)


@pytest.mark.parametrize(
    ("condition", "flags"),
    [
        ('${CMAKE_VERSION} VERSION_GREATER_EQUAL "3.17.0"', ["-DA"]),
        ("CMAKE_VERSION VERSION_LESS 3.8", ["-DB"]),
        (
            "CMAKE_VERSION VERSION_GREATER 3.28",
            ["what `if(CMAKE_VERSION VERSION_GREATER 3.28)` sets of CMAKE_CUDA_FLAGS"],
        ),
    ],
)
def test_cmake_is_newer_than_a_release_that_does_not_know_cuda_13(
    tmp_path: Path, condition: str, flags: list[str]
) -> None:
    text = f'if({condition})\nset(CMAKE_CUDA_FLAGS "-DA")\nelse()\nset(CMAKE_CUDA_FLAGS "-DB")\nendif()\nadd_library(k k.cu)\n'
    project(tmp_path, {"CMakeLists.txt": text, "k.cu": ""})
    made = find(tmp_path, "k.cu")
    assert [*made.flags, *(each.what for each in made.left_out)][-1:] == flags


@pytest.mark.parametrize(("file", "said"), [("Makefile.am", True), ("Makefile", False)])
def test_flags_that_configure_sets_are_said(tmp_path: Path, file: str, *, said: bool) -> None:
    makefile = "F = -DK $(CUDA_CFLAGS) $(EXTRA)\n.cu.o:\n\t$(AM_V_CC)$(NVCC) $(F) -c -o $@ $<\n"
    project(tmp_path, {"configure.ac": "", file: makefile, "k.cu": ""})
    made = find(tmp_path, "k.cu")
    left_out = ["macros and flags of $(CUDA_CFLAGS), which configure sets"] * said
    assert (made.flags, [each.what for each in made.left_out]) == (("-DK",), left_out)


def test_what_configure_makes_is_said_from_the_makefiles_folder(tmp_path: Path) -> None:
    makefile = "include $(top_builddir)/config.mk\n.cu.o:\n\t$(NVCC) -c $<\n"
    project(tmp_path, {"configure.ac": "", "src/Makefile.am": makefile, "src/k.cu": ""})
    assert [each.what for each in find(tmp_path, "src/k.cu").left_out] == ["what `include ../config.mk` adds"]


def test_what_lets_a_file_compile_stands_in_cmakes_files_beside_it(tmp_path: Path) -> None:
    files = {
        "CMakeLists.txt": "include(${MODEL}/model.cmake)\n",
        "k/model.cmake": 'set(CMAKE_CUDA_FLAGS "--expt-extended-lambda -DOTHER") # --expt-relaxed-constexpr\n',
        "k/k.cu": "",
    }
    project(tmp_path, files)
    assert find(tmp_path, "k/k.cu").flags == ("--expt-extended-lambda",)


def test_every_source_of_a_folder_is_the_makefiles(tmp_path: Path) -> None:
    project(
        tmp_path,
        {
            "Makefile": "SOURCES = $(wildcard *.cu)\napp: $(SOURCES)\n\tnvcc -DA $^ -o $@\n",
            "k.cu": "",
            "m.cu": "",
        },
    )
    made = find(tmp_path, "k.cu")
    assert (made.flags, made.is_source) == (("-DA",), True)


ELSEWHERE = {
    "a Makefile beside the source's folder": ({"build/linux/Makefile": "k.o: ../../src/k.cu\n\tnvcc -DA -I../../far/inc -c $<\n", "far/inc/k.h": ""}, "-DA -Ifar/inc", []),
    "a folder of prerequisites": ({"LinuxMake/Makefile": "VPATH = ../src\nk.o: k.cu\n\tnvcc -DA -c $<\n"}, "-DA -Iinc", []),
    "a pattern of the folder": ({"make/Makefile": "S = $(wildcard ../src/*.cu)\n%.o: ../src/%.cu\n\tnvcc -DA -c $<\n"}, "-DA -Iinc", []),
    "a variable for the folder": ({"make/Makefile": "S = ../src\nk: $(S)/k.cu\n\tnvcc -DA $< -o k\n"}, "-DA -Iinc", []),
    "below one that calls it": ({"Makefile": "all:\n\t$(MAKE) -C make\n", "make/Makefile": "k.o: ../src/k.cu\n\tnvcc -DA -c $<\n"}, "-DA -Iinc", []),
    "not understood": ({"make/Makefile": "# it calls nvcc\nk.o:\n\tpython build.py ../src/k.cu\n"}, "-Iinc", ["what it gives nvcc for k.cu"]),
    "of another file": ({"make/Makefile": "k.o: ../other/k.cu ../src/ok.cu\n\tnvcc -DA -c $<\n", "other/k.cu": ""}, "-Iinc", []),
    "of its own k.cu": ({"src2/Makefile": "k.o: k.cu\n\tnvcc -DA -c $<\n", "src2/k.cu": ""}, "-Iinc", []),
    "one that is needed less": ({"src/Makefile": "k.o: k.cu\n\tnvcc -DK -c $<\n", "make/Makefile": "k.o: ../src/k.cu\n\tnvcc -DA -c $<\n"}, "-DK -Iinc", []),
    "a script": ({"scripts/build.sh": "nvcc -DA -I../far/inc ../src/k.cu\n", "far/inc/k.h": ""}, "-DA -Ifar/inc", []),
    "a script for the top": ({"scripts/build.sh": "nvcc -DA -Ifar/inc src/k.cu\n", "far/inc/k.h": ""}, "-DA -Ifar/inc", []),
    "a script that goes there": ({"scripts/build.sh": "cd ../src\nnvcc -DA k.cu\n"}, "-DA -Iinc", []),
    "a script of Windows": ({"windows/build.bat": "nvcc -DA ..\\src\\k.cu\n"}, "-DA -Iinc", []),
    "a script of Python": ({"tools/build.py": "run(['nvcc', '-DA', f'{TOP}/src/k.cu'])\n"}, "-Iinc", ["what it gives nvcc for k.cu"]),
    "Python that only names it": ({"tools/list.py": "print('src/k.cu')\n"}, "-Iinc", []),
    "a setup.py": ({"python/setup.py": SETUP.replace("k.cu", "../src/k.cu") % "'-DA'"}, "-DA --expt-relaxed-constexpr -Iinc", []),
    "CMake": ({"cmake/CMakeLists.txt": "add_library(k ../src/k.cu)\ntarget_compile_definitions(k PRIVATE A)\n"}, "-DA -Iinc", []),
}  # fmt: skip


@pytest.mark.parametrize("name", ELSEWHERE)
def test_what_compiles_a_file_from_another_folder(tmp_path: Path, name: str) -> None:
    files, flags, left_out = ELSEWHERE[name]
    project(tmp_path, {**files, "src/k.cu": '#include "k.h"\n', "inc/k.h": "", "near/k.h": ""})
    made = find(tmp_path, "src/k.cu")
    own = [flag.replace(f"{tmp_path}/", "") for flag in made.flags]
    assert (" ".join(own), [each.what for each in made.left_out]) == (flags, left_out)


def test_a_path_that_could_be_read_in_many_ways(tmp_path: Path) -> None:
    long = "$aa${bb}%cc%{dd}/" * 2_000 + "x.cu k.cux " + "$aa" * 5_000 + "(" * 5_000 + "k.cu"
    project(tmp_path, {"make/Makefile": f"# nvcc\nF = {long}\n", "src/k.cu": ""})
    assert find(tmp_path, "src/k.cu").flags == ()


def test_the_command_for_a_makefile_in_another_folder(tmp_path: Path) -> None:
    project(tmp_path, {"make/Makefile": "k.o: ../src/k.cu\n\tnvcc -DA -c $<\n", "src/k.cu": ""})
    assert find(tmp_path, "src/k.cu").database_command == "`cd make && bear -- make -B`"


LEFT_OUT = {
    "of a shell": ("V := $(shell git describe)\nF = -DV=$(V) -DK", "-DV=$(shell git describe)"),
    "of a function": ("F = -DK $(call define,A B)", "$(call define,A B)"),
    "of a variable that nothing sets": ("F = -DK -DN=$(N)", "-DN=$(N)"),
    "an architecture": ("F = -DK -gencode arch=compute_$(SM),code=sm_$(SM)", "-gencode arch=compute_$(SM),code=sm_$(SM)"),
    "under a condition": ("ifeq ($(shell nproc),4)\nF += -DFOUR\nendif\nF += -DK", "what `ifeq ($(shell nproc),4)` adds to F"),
    "of a target that needs the file's": ("all: app\napp: F += -DAPP\napp: k.o\nF = -DK", "what `app: F += -DAPP` adds to F"),
    "of a target that may need the file's": ("app: F += -DAPP\napp: $(SOURCES:.cu=.o)\nF = -DK", "what `app: F += -DAPP` adds to F"),
    "of its target under a condition": ("ifeq ($(shell nproc),4)\nk.o: F += -DFOUR\nendif\nF += -DK", "what `ifeq ($(shell nproc),4)` adds to F"),
    "a recipe under a condition": ("k.o: k.cu\nifeq ($(shell nproc),4)\n\t@echo four\n\tnvcc -DFOUR $<\nendif\nF += -DK", "what `ifeq ($(shell nproc),4)` adds to the recipe of k.o"),
    "a rule under a condition": ("ifeq ($(shell nproc),4)\nk.o: k.cu\n\tnvcc -DFOUR $<\nendif\nF += -DK", "what `ifeq ($(shell nproc),4)` adds to the recipe of k.o"),
    "a file of options": ("F = -DK @options", "@options"),
    "another file of options": ("F = -optf /etc/options -DK", "-optf /etc/options"),
    "a file of options by its long name": ("F = --options-file=options -DK", "--options-file=options"),
    "by eval": ("$(foreach s,1,$(eval F += -D$(s)))\nF += -DK", "what `$(eval …)` adds to F"),
    "what a shell would execute": ("F = -DK '-DV=$$(touch x)'", "-DV=$$(touch x)"),
    "what would make figures those of a debugger": ("F = -g -G -DK", "-G"),
    "what CUDA 13 lacks": ("F = -DK -arch=sm_35", "sm_35"),
}  # fmt: skip


@pytest.mark.parametrize("name", LEFT_OUT)
def test_what_a_makefile_says_only_when_it_is_run_is_left_out_and_said(tmp_path: Path, name: str) -> None:
    text, left_out = LEFT_OUT[name]
    project(tmp_path, {"Makefile": f"{text}\nk.o: k.cu\n\tnvcc $(F) $<\n", "options": "-DOPTION", "k.cu": ""})
    made = find(tmp_path, "k.cu")
    why = "has it, and only the build knows its value"
    lacks = "names it, and CUDA 13 and newer have no code for it"
    why = {"sm_35": lacks, "-G": "has it, and figures are of optimized code"}.get(left_out, why)
    assert (made.flags, made.left_out) == (("-DK",), (Reason(left_out, f"Makefile {why}"),))
    assert f"  {left_out}: Makefile {why}" in doctor.compilation_lines("k.cu", made, ())


@pytest.mark.parametrize(
    ("named", "own", "gpu", "figures"),
    [
        (("86",), "9.0", "H100", "sm_86"),
        (("80", "90"), "9.0", "H100", "sm_90"),  # that of the GPU at hand
        (("75", "80"), "9.0", "H100", "sm_80"),
        (("86",), "9.0", "A100", ""),  # which the author named
        ((), "9.0", "H100", ""),
    ],
)
def test_the_architecture_of_figures(named: tuple[str, ...], own: str, gpu: str, figures: str) -> None:
    session = Session(setup=RunSetup(settings=Settings(gpu=gpu)))
    session.open("file:///p/k.cu", 1, "__global__ void k() {}")
    session.files["file:///p/k.cu"].compilation = Compilation(architectures=named)
    frozen = session.freeze("file:///p/k.cu")
    assert frozen
    compiled, run = (job_builder.make(session, frozen, action, "") for action in ("compile", "run"))
    named_by_author = "sm_80" if gpu == "A100" else "sm_90a"
    assert (compiled.architecture, run.architecture) == (figures or named_by_author, named_by_author)


DEEP = {
    "a sum in a condition": "if " + "+".join(["a"] * 600) + ":\n    pass\n",
    "negations": "if " + "not " * 600 + "a:\n    pass\n",
    "a number": "if 0x" + "f" * 5_000 + ":\n    pass\n",
    "a macro's number": "CUDAExtension(name='k', sources=['k.cu'], define_macros=[('N', 0x"
    + "f" * 5_000
    + ")])\n",
    "an architecture": "CUDAExtension(name='k', sources=['k.cu'], extra_compile_args=['-arch=sm_"
    + "9" * 5_000
    + "'])\n",
}


@pytest.mark.parametrize("name", DEEP)
def test_a_setup_py_that_no_project_has(tmp_path: Path, name: str) -> None:
    project(tmp_path, {"setup.py": DEEP[name], "include/x.h": "", "k.cu": "#include <x.h>\n"})
    made = find(tmp_path, "k.cu")
    assert made.architectures == ()
    assert made.missing == {}
    too_deep = name == "a macro's number"
    assert [each.what.partition(":")[0] for each in made.left_out] == ["what it says"] * too_deep


def test_branches_within_branches_are_looked_at_once() -> None:
    text = (
        "x = 0\n"
        + "".join(f"{' ' * at}if a:\n" for at in range(90))
        + " " * 90
        + "y = ["
        + "1, " * 2_000
        + "]\n"
    )
    tree = ast.parse(text)
    assert len(setup_files._doubtful(tree)) > 2_000


@pytest.mark.parametrize(
    ("setup", "flags"),
    [
        ("from setuptools import setup\nsetup(name='p', packages=['p'])\n", "-DA"),
        (SETUP % "'-DB'", "-DB"),
        ("ext = CUDAExtension('k', sources)\n", ""),
    ],
)
def test_a_setup_py_beside_a_makefile(tmp_path: Path, setup: str, flags: str) -> None:
    project(tmp_path, {"setup.py": setup, "Makefile": "%.o: %.cu\n\tnvcc -DA -c $<\n", "k.cu": ""})
    assert " ".join(flag for flag in find(tmp_path, "k.cu").flags if flag.startswith(("-DA", "-DB"))) == flags
