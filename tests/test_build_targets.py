"""What BUILD files and CMakeLists.txt tell of the target that has a file: its macros, its options, its architectures, its presets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orbit_lsp.compilation.build_systems.cmake import declarations
from tests.compilation_check import SETUP, find, project

BAZEL = {
    "WORKSPACE": "",
    "kernels/gray.cu": '#include "lib/math/pixel.h"\n#include <far.h>\n',
    "lib/math/pixel.h": "",
    "lib/far/inc/far.h": "",
    "lib/far/BUILD": "cc_library(name = 'far', defines = ['FAR'], local_defines = ['NOT_PASSED_ON'], includes = ['inc'])\n",
    "lib/math/BUILD.bazel": "D = ['PIXEL=4']\ncc_library(name = 'math', defines = D, copts = ['-DALONE'], deps = ['//lib/far'])\n",
}
LIBRARY = (
    "cuda_library(name = 'gray', srcs = ['gray.cu'], deps = ['//lib/math', ':gone', '@nowhere//:x'], %s)\n"
)
LIBRARIES = {
    "its own and those passed on": (LIBRARY % "copts = ['--use_fast_math'], defines = ['R=0.299f'], local_defines = ['L']", "--use_fast_math -DL -DR=0.299f -DPIXEL=4 -DFAR", ()),
    "of two": ("cc_library(name = 'a', srcs = ['other.cc'], defines = ['OTHER'])\n" + LIBRARY % "", "-DPIXEL=4 -DFAR", ()),
    "a pattern": ("cuda_library(name = 'a', srcs = glob(['*.cu']), defines = ['A'] + ['B'])\n", "-DA -DB", ()),
    "not one whose pattern excludes it": ("cuda_library(name = 'o', srcs = glob(['*.cu'], exclude = ['gray.*']), copts = ['-DO'])\ncuda_library(name = 'p', srcs = glob(include = ['**'], exclude = ['*.h'] + ['**/gray.cu']), copts = ['-DP'])\ncuda_library(name = 'a', srcs = ['gray.cu'], copts = ['-DA'])\n", "-DA", ()),
    "one whose pattern excludes others": ("cuda_library(name = 'a', srcs = glob(['**/*.cu'], exclude = ['*/*.cu', 'gray_*.cu']), copts = ['-DA'])\n", "-DA", ()),
    "a name that is too long": ("cuda_library(name = 'a', srcs = ['gray.cu'], copts = ['-DA'], deps = ['//%s:x'])\n" % ("a" * 300), "-DA", ()),
    "a number that is too long": ("cuda_library(name = 'a', srcs = ['gray.cu'], copts = ['-DA'] + 0x%s)\n" % ("f" * 5_000), "-DA", ("copts = …",)),
    "files of options": (LIBRARY % "copts = ['-DA', '@WORKSPACE', '--options-file', '/etc/passwd', '-optf=x']", "-DA -DPIXEL=4 -DFAR", ("@WORKSPACE", "--options-file /etc/passwd", "-optf=x")),
    "a choice of Bazel's": (LIBRARY % "copts = ['-DA'] + select({'//:x': ['-DX']})", "-DA -DPIXEL=4 -DFAR", ("copts = select({'//:x': ['-DX']})",)),
    "a variable of Bazel's": (LIBRARY % "copts = ['-DDIR=$(BINDIR)']", "-DPIXEL=4 -DFAR", ("-DDIR=$(BINDIR)",)),
    "device code that is linked later": (LIBRARY % "rdc = True", "-DPIXEL=4 -DFAR -rdc true", ()),
    "objects of device code": ("cuda_objects(name = 'o', srcs = ['gray.cu'], deps = ['//lib/math'])\n" + LIBRARY % "", "-DPIXEL=4 -DFAR -rdc true", ()),
    "device code that is not": (LIBRARY % "rdc = False", "-DPIXEL=4 -DFAR", ()),
    "device code that Bazel decides about": (LIBRARY % "rdc = select({'//:x': True})", "-DPIXEL=4 -DFAR", ("rdc = select({'//:x': True})",)),
    "an architecture": (LIBRARY % "copts = ['-gencode', 'arch=compute_86,code=sm_86', '-Ilib']", "-DPIXEL=4 -DFAR", ()),
    "no Python": ("cuda_library(name = = 'a', srcs = ['gray.cu'])\n", "", ("what it gives nvcc for gray.cu",)),
}  # fmt: skip


@pytest.mark.parametrize("name", LIBRARIES)
def test_the_library_of_bazel_that_has_a_file(tmp_path: Path, name: str) -> None:
    build, flags, left_out = LIBRARIES[name]
    project(tmp_path, {**BAZEL, "kernels/BUILD": build})
    made = find(tmp_path, "kernels/gray.cu")
    assert " ".join(flag for flag in made.flags if not flag.startswith("-I")) == flags
    assert tuple(reason.what for reason in made.left_out) == left_out
    assert f"-I{tmp_path}/lib/far/inc" in made.flags
    assert made.missing == {}
    assert made.architectures == (("86",) if name == "an architecture" else ())


TARGETS = {
    "its own target's": ("add_library(k src/k.cu)\nadd_library(o src/o.cu)\ntarget_compile_definitions(k PRIVATE A B=2)\ntarget_compile_definitions(o PRIVATE O)\n", "-DA -DB=2"),
    "of all": ("add_compile_definitions(A -DB=2)\nadd_compile_options(--use_fast_math -Wall)\n", "-DA -DB=2 --use_fast_math"),
    "of CUDA": ("add_library(k src/k.cu)\ntarget_compile_options(k PUBLIC $<$<COMPILE_LANGUAGE:CUDA>:-DA --use_fast_math> $<$<COMPILE_LANGUAGE:CXX>:-DHOST> $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<NOT:$<CONFIG:Debug>>>:-DB=256>)\n", "-DA --use_fast_math -DB=256"),
    "a macro of CUDA": ("add_library(k src/k.cu)\ntarget_compile_definitions(k PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:A> $<$<COMPILE_LANGUAGE:CXX>:HOST>)\n", "-DA"),
    "what a library passes on": ("add_library(k src/k.cu)\nadd_library(base INTERFACE)\ntarget_compile_definitions(base INTERFACE A PRIVATE OWN)\ntarget_link_libraries(k PRIVATE base)\ntarget_compile_definitions(k INTERFACE OTHERS)\n", "-DA"),
    "the only target's": ("file(GLOB_RECURSE S CONFIGURE_DEPENDS src/*.cu)\nadd_executable(k ${S})\ntarget_compile_definitions(k PRIVATE A)\n", "-DA"),
    "a pattern of one of two": ("file(GLOB S src/*.cu)\nadd_executable(k ${S})\nadd_executable(o o.cu)\ntarget_compile_definitions(k PRIVATE A)\ntarget_compile_definitions(o PRIVATE O)\n", "-DA"),
    "of variables": ("project(p)\nset(N 4)\nset(D A N=${N})\nlist(APPEND D B)\nadd_library(${PROJECT_NAME} src/k.cu)\ntarget_compile_definitions(p PRIVATE ${D})\n", "-DA -DN=4 -DB"),
    "nvcc's flags": ('set(CMAKE_CUDA_FLAGS "${CMAKE_CUDA_FLAGS} --use_fast_math")\nstring(APPEND CMAKE_CUDA_FLAGS " -DA -Xcompiler -Wall")\n', "--use_fast_math -DA"),
    "options as they are by default": ("option(FAST x ON)\noption(SLOW x OFF)\nif(FAST)\nadd_compile_definitions(A)\nelseif(SLOW)\nadd_compile_definitions(S)\nendif()\nif(NOT SLOW)\nadd_compile_definitions(B)\nendif()\nif(WIN32)\nadd_compile_definitions(W)\nendif()\n", "-DA -DB"),
    "of the source": ('add_library(k src/k.cu)\nset_source_files_properties(src/k.cu PROPERTIES COMPILE_DEFINITIONS "A;B" COMPILE_FLAGS "--use_fast_math")\nset_source_files_properties(src/o.cu PROPERTIES COMPILE_DEFINITIONS O)\n', "--use_fast_math -DA -DB"),
    "of a folder above": ("add_compile_definitions(A)\nset(B 2)\nadd_subdirectory(src)\nadd_compile_definitions(LATER)\nset(B 3)\n", "-DA -DB=2"),
    "an option with CUDA in its name": ("option(MY_CUDA_FAST_MATH x OFF)\nif(MY_CUDA_FAST_MATH)\nadd_compile_definitions(FAST)\nendif()\noption(WITH_CUDA x OFF)\nif(WITH_CUDA)\nadd_compile_definitions(A)\nendif()\n", "-DA"),
    "a name with a hyphen": ("option(X-LARGE x ON)\nadd_definitions(-DX=${X-LARGE})\n", "-DX=ON"),
    "an option with GPU in its name": ("option(P_WITH_GPU x OFF)\nif(P_WITH_GPU)\nset(CMAKE_CUDA_FLAGS -DA)\nendif()\n", "-DA"),
    "comments": ('add_library(k src/k.cu) # the (only one\ntarget_compile_definitions(k PRIVATE A # USE_SLOW was removed\n)\n#[[ add_compile_definitions(OLD)\nadd_compile_definitions(OLD2) ]]\n#[=[ x ]] add_compile_definitions(OLD3)\n]=]\nadd_compile_definitions("URL=a#b")\n', "-DURL=a#b -DA"),
    "brackets in quotes": ('message("smile :(")\nadd_compile_definitions(A)\n', "-DA"),
    "quotes in quotes": ('add_library(k src/k.cu)\ntarget_compile_definitions(k PRIVATE "NAME=\\"x y\\"" A)\n', '-DNAME="x y" -DA'),
    "not, many times": ("if(" + "NOT " * 2_000 + "CMAKE_CUDA_COMPILER)\nadd_compile_definitions(A)\nendif()\n", "-DA"),
    "a file of options": ("add_compile_options(@/etc/hostname --options-file=/etc/hostname -DA)\n", "-DA"),
    "a bracket of a condition": ("if((A AND B) OR C)\nadd_compile_definitions(X)\nendif()\nadd_compile_definitions(A)\n", "-DA"),
}  # fmt: skip


@pytest.mark.parametrize("name", TARGETS)
def test_the_macros_and_options_that_cmake_gives_a_file(tmp_path: Path, name: str) -> None:
    text, flags = TARGETS[name]
    project(tmp_path, {"CMakeLists.txt": text, "src/k.cu": ""})
    if "folder" in name:
        project(tmp_path, {"src/CMakeLists.txt": "add_compile_definitions(B=${B})\n"})
    made = find(tmp_path, "src/k.cu")
    assert " ".join(made.flags) == flags
    assert [each.what for each in made.left_out] == ["what `if((A AND B) OR C)` adds by add_compile_definitions"] * ("bracket of" in name)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "left_out"),
    [
        ("target_compile_definitions(k PRIVATE A N=${N})", "-DN=${N}"),
        ("target_compile_options(k PRIVATE -DA $<$<CONFIG:Release>:-DR> $<$<CONFIG:Release>:-O3> ${WARNINGS})", "$<$<CONFIG:Release>:-DR>"),
        ("add_compile_definitions(A)\nif(CMAKE_BUILD_TYPE STREQUAL Debug)\ntarget_compile_definitions(k PRIVATE D)\nendif()", "what `if(CMAKE_BUILD_TYPE STREQUAL Debug)` adds by target_compile_definitions(k)"),
        ("add_compile_definitions(A)\nfunction(f t)\ntarget_compile_definitions(${t} PRIVATE D)\nendfunction()", ""),
        ("add_compile_definitions(A)\nset(CMAKE_CUDA_COMPILER /opt/cuda-12.8/bin/nvcc)", "set(CMAKE_CUDA_COMPILER /opt/cuda-12.8/bin/nvcc)"),
        ("add_compile_definitions(A)\nadd_library(o2 ${ALL})\ntarget_compile_definitions(o2 PRIVATE O)", ""),
    ],
)  # fmt: skip
def test_what_only_cmake_knows_is_left_out_and_said(tmp_path: Path, text: str, left_out: str) -> None:
    project(tmp_path, {"CMakeLists.txt": f"add_library(k k.cu)\n{text}\n", "k.cu": ""})
    made = find(tmp_path, "k.cu")
    assert made.flags == ("-DA",)
    assert [each.what for each in made.left_out] == ([left_out] if left_out else [])


def test_a_command_that_is_too_long_is_said(tmp_path: Path) -> None:
    text = f"set(S {'a.cc ' * 8_000})\nadd_compile_definitions(A)\n"
    project(tmp_path, {"CMakeLists.txt": text, "k.cu": ""})
    made = find(tmp_path, "k.cu")
    assert made.flags == ("-DA",)
    assert [each.what for each in made.left_out] == ["what set has after its first 20,000 characters"]


def test_a_variable_that_is_used_for_ever_ends(tmp_path: Path) -> None:
    text = f"set(X {'a' * 19_000})\n" + "add_definitions(${X})\n" * 2_000
    read = declarations.read([str(tmp_path / "CMakeLists.txt")], str(tmp_path / "k.cu"), lambda _: text)
    assert sum(len(word) for word, _ in read.words) < 1 << 21


def test_macros_of_targets_that_may_not_have_the_file_are_said(tmp_path: Path) -> None:
    build = "add_library(a ${S})\nadd_library(b ${S})\ntarget_compile_definitions(a PRIVATE A)\n"
    project(tmp_path, {"CMakeLists.txt": build, "k.cu": ""})
    made = find(tmp_path, "k.cu")
    assert made.flags == ()
    assert [each.what for each in made.left_out] == ["macros of a, if the file is one of its sources"]


PRESET = '{"configurePresets": [{"name": "base", "hidden": true, "cacheVariables": {"CMAKE_CUDA_ARCHITECTURES": {"value": "86"}}}, {"name": "a", "inherits": "base"}, {"name": "b", "cacheVariables": {"CMAKE_CUDA_ARCHITECTURES": "75"}}]}'
NAMED = {
    "for all": ({"CMakeLists.txt": "set(CMAKE_CUDA_ARCHITECTURES 80-real 86)\n"}, ("80", "86")),
    "as a default": ({"CMakeLists.txt": 'if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)\n  set(CMAKE_CUDA_ARCHITECTURES "75;90a")\nendif()\n'}, ("75", "90a")),
    "by a preset": ({"CMakeLists.txt": "if(NOT CMAKE_CUDA_ARCHITECTURES)\nset(CMAKE_CUDA_ARCHITECTURES 75)\nendif()\n", "CMakePresets.json": PRESET}, ("86",)),
    "for its target": ({"CMakeLists.txt": "set(CMAKE_CUDA_ARCHITECTURES 80)\nadd_library(k k.cu)\nset_target_properties(k PROPERTIES CUDA_SEPARABLE_COMPILATION OFF CUDA_ARCHITECTURES 86 FOLDER x)\n"}, ("86",)),
    "for its target by property": ({"CMakeLists.txt": "add_library(k k.cu)\nset_property(TARGET k PROPERTY CUDA_ARCHITECTURES 86 89)\n"}, ("86", "89")),
    "for another target": ({"CMakeLists.txt": "add_library(k k.cu)\nadd_library(o o.cu)\nset_target_properties(o PROPERTIES CUDA_ARCHITECTURES 86)\n"}, ()),
    "that of the machine": ({"CMakeLists.txt": "set(CMAKE_CUDA_ARCHITECTURES native)\n"}, ()),
    "by nvcc's flags": ({"CMakeLists.txt": 'set(CMAKE_CUDA_FLAGS "-gencode arch=compute_86,code=sm_86")\n'}, ("86",)),
    "by a setup.py": ({"setup.py": SETUP % "'-O3', '-gencode=arch=compute_80,code=sm_80', '-gencode', 'arch=compute_86,code=sm_86'"}, ("80", "86")),
    "by a setup.py, in short": ({"setup.py": SETUP % "'-arch=sm_86'"}, ("86",)),
}  # fmt: skip


@pytest.mark.parametrize("name", NAMED)
def test_architectures_that_a_build_file_names(tmp_path: Path, name: str) -> None:
    files, architectures = NAMED[name]
    project(tmp_path, {**files, "k.cu": ""})
    assert find(tmp_path, "k.cu").architectures == architectures


@pytest.mark.parametrize(
    ("presets", "flag"),
    [
        ({"cpu": {"P_ENABLE_CUDA": "OFF", "N": "1"}, "gpu": {"P_ENABLE_CUDA": True, "N": "2"}}, "-DN=2"),
        ({"cpu": {"N": "1"}, "gpu": {"CMAKE_CUDA_ARCHITECTURES": "86", "N": "2"}}, "-DN=2"),
        ({"cpu": {"P_ENABLE_CUDA": "OFF", "N": "1"}, "default": {"N": "2"}}, "-DN=2"),
        ({"a": {"N": "1"}, "b": {"N": "2"}}, "-DN=1"),
        ({"a": {"N": "${sourceDirName}/${presetName}/${dollar}"}}, "-DN=p/a/${dollar}"),
    ],
)
def test_the_preset_that_asks_for_cuda(
    tmp_path: Path, presets: dict[str, dict[str, object]], flag: str
) -> None:
    listed = [{"name": name, "cacheVariables": values} for name, values in presets.items()]
    files = {
        "CMakePresets.json": json.dumps({"configurePresets": listed}),
        "CMakeLists.txt": "add_library(k k.cu)\ntarget_compile_definitions(k PRIVATE N=${N})\n",
        "k.cu": "",
    }
    project(tmp_path / "p", files)
    made = find(tmp_path / "p", "k.cu")
    assert [*made.flags, *(each.what for each in made.left_out)] == [flag]


@pytest.mark.parametrize("flag", ["-fsanitize=address", "--allow-unsupported-compiler", "-mfma"])
def test_a_flag_of_the_host_compiler_decides_about_no_figure(tmp_path: Path, flag: str) -> None:
    project(tmp_path, {"Makefile": f"k.o: k.cu\n\tnvcc -DA {flag} -c $<\n", "k.cu": ""})
    made = find(tmp_path, "k.cu")
    assert (made.flags, made.left_out) == (("-DA",), ())


@pytest.mark.parametrize(
    ("files", "standing", "command"),
    [
        (("CMakeLists.txt", "src/CMakeLists.txt"), ".", "cmake -S . -B build"),
        (("CMakeLists.txt", "src/CMakeLists.txt"), "src", "cmake -S .. -B ../build"),
        (("src/CMakeLists.txt",), ".", "cmake -S src -B src/build"),
        (("src/CMakeLists.txt",), "src", "cmake -S . -B build"),
        (("Makefile",), "src", "cd .. && bear -- make -B"),
        (("src/Makefile", "Makefile"), ".", "cd src && bear -- make -B"),
        (("src/meson.build", "meson.build"), "src", "cd .. && meson setup build"),
    ],
)
def test_the_command_that_writes_a_database_is_for_the_folder_in_which_the_author_stands(
    tmp_path: Path, files: tuple[str, ...], standing: str, command: str
) -> None:
    project(
        tmp_path, {**{name: "k.o: src/k.cu\n" * name.endswith("Makefile") for name in files}, "src/k.cu": ""}
    )
    made = find(tmp_path, "src/k.cu", standing=str(tmp_path / standing))
    assert made.database_command.strip("`").removesuffix(" -DCMAKE_EXPORT_COMPILE_COMMANDS=ON") == command


@pytest.mark.parametrize(
    ("option", "switched"),
    [
        ('option(USE_CUDA "" OFF)', " -DUSE_CUDA=ON"),
        ('option(P_WITH_GPU\n  "With (or without) GPU")', " -DP_WITH_GPU=ON"),
        ("if(USE_CUDA_TOOLKIT)\nendif()", " -DUSE_CUDA_TOOLKIT=ON"),
        ("set(WITH_CUDA ON)\nif(WITH_CUDA)\nendif()", ""),
        ('option(USE_CUDA "" ON)', ""),
        ('option(CUDA_FAST "" OFF)', ""),
        ('# option(USE_CUDA "" OFF)', ""),
    ],
)
def test_the_command_for_a_database_switches_cuda_on(tmp_path: Path, option: str, switched: str) -> None:
    project(tmp_path, {"CMakeLists.txt": f"project(p)\n{option}\nadd_library(k k.cu)\n", "k.cu": ""})
    command = find(tmp_path, "k.cu").database_command.strip("`")
    assert command == f"cmake -S . -B build -DCMAKE_EXPORT_COMPILE_COMMANDS=ON{switched}"


@pytest.mark.parametrize(("made_by", "written"), [("cuda_add_library", False), ("add_library", True)])
def test_no_database_of_cmake_has_what_find_cuda_compiles(
    tmp_path: Path, made_by: str, *, written: bool
) -> None:
    project(tmp_path, {"CMakeLists.txt": f"project(p)\n{made_by}(k k.cu)\n", "k.cu": ""})
    assert bool(find(tmp_path, "k.cu").database_command) == written
