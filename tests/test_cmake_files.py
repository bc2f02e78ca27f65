"""What a CMakeLists.txt says of how a file is compiled: read as text, and the same as CMake itself writes."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from orbit_lsp.compilation.database import Databases
from tests.compilation_check import find, project
from tests.e2e.conftest import own_cache
from tests.remote.nvcc_check import needs_nvcc

RELEASE = (
    "if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)\n  set(CMAKE_BUILD_TYPE Release)\nendif()\n"
)
FUNCTION = """
function(my_library name)
  cmake_parse_arguments(ARG "FAST" "TILE" "SOURCES;DEFINES" ${ARGN})
  add_library(${name} ${ARG_SOURCES})
  if(ARG_FAST)
    target_compile_options(${name} PRIVATE -use_fast_math)
  endif()
  target_compile_definitions(${name} PRIVATE TILE=${ARG_TILE} ${ARG_DEFINES})
endfunction()
my_library(kernels FAST TILE 8 SOURCES k.cu DEFINES X Y=2)
"""
CONDITIONS = """
set(V 3.5)
set(L a b)
add_library(lib k.cu)
if(V VERSION_GREATER_EQUAL 3.4 AND (NOT V VERSION_LESS 3.5 OR FALSE))
  target_compile_definitions(lib PRIVATE A)
endif()
if("abc" MATCHES "^a" AND b IN_LIST L AND TARGET lib)
  target_compile_definitions(lib PRIVATE B)
endif()
if(CMAKE_SYSTEM_NAME STREQUAL "Windows" OR CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 11.2)
  target_compile_definitions(lib PRIVATE C)
elseif(2 LESS 10 AND NOT 2 GREATER 10)
  target_compile_definitions(lib PRIVATE D)
else()
  target_compile_definitions(lib PRIVATE E)
endif()
"""
CASES = {
    "the last value": ("set(T 16)\nset(T 32)\nadd_library(lib k.cu)\ntarget_compile_definitions(lib PRIVATE TILE=${T})\n", "-DTILE=32"),
    "an option that is off": ("option(FAST x OFF)\nif(FAST)\ninclude_directories(fast)\nelse()\ninclude_directories(plain)\nendif()\nadd_library(lib k.cu)\n", "-Iplain"),
    "a build type by default": (RELEASE + "add_library(lib k.cu)\ntarget_compile_options(lib PRIVATE $<$<AND:$<CONFIG:Debug>,$<COMPILE_LANGUAGE:CUDA>>:-DDEBUGGING> $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CUDA>>:-use_fast_math>)\n", "-DNDEBUG -use_fast_math"),
    "a build type by another name": ('set(usual RelWithDebInfo)\nif("${CMAKE_BUILD_TYPE}" STREQUAL "")\nset(CMAKE_BUILD_TYPE ${usual})\nendif()\nadd_library(lib k.cu)\ntarget_compile_definitions(lib PRIVATE $<$<CONFIG:Release,RelWithDebInfo>:FAST> $<$<CONFIG:Debug>:SLOW>)\n', "-DFAST -DNDEBUG"),
    "flags of a build type": ('set(CMAKE_BUILD_TYPE Release)\nset(CMAKE_CUDA_FLAGS_RELEASE "${CMAKE_CUDA_FLAGS_RELEASE} -maxrregcount=40")\nset(CMAKE_CUDA_FLAGS_DEBUG -DSLOW)\nadd_library(lib k.cu)\n', "-DNDEBUG -maxrregcount=40"),
    "a function": (FUNCTION, "-DTILE=8 -DX -DY=2 -use_fast_math"),
    "a macro": ("macro(one n)\nadd_library(${n} ${ARGN})\nset(LATER 3)\nendmacro()\none(lib k.cu)\ntarget_compile_definitions(lib PRIVATE L=${LATER})\n", "-DL=3"),
    "a loop": ("foreach(f k.cu other.cu)\nget_filename_component(n ${f} NAME_WE)\nadd_library(of_${n} ${f})\ntarget_compile_definitions(of_${n} PRIVATE F)\nendforeach()\n", "-DF"),
    "a loop over a list": ("set(S k.cu;other.cu)\nadd_library(lib)\nforeach(f IN LISTS S)\ntarget_sources(lib PRIVATE ${f})\nendforeach()\ntarget_compile_definitions(lib PRIVATE F)\nadd_library(o other.cu)\n", "-DF"),
    "what is linked": ("add_library(base INTERFACE)\nadd_library(ns::base ALIAS base)\ntarget_compile_definitions(base INTERFACE B)\ntarget_include_directories(base INTERFACE plain)\nadd_library(lib k.cu)\ntarget_link_libraries(lib PRIVATE ns::base)\n", "-DB -Iplain"),
    "a folder beside it": ("add_subdirectory(inner)\nadd_library(lib k.cu)\ntarget_link_libraries(lib PRIVATE inner_lib)\n", "-DINNER=5"),
    "properties": ('add_library(lib k.cu)\nset_target_properties(lib PROPERTIES CUDA_SEPARABLE_COMPILATION ON COMPILE_DEFINITIONS "P;Q=1")\nset_property(TARGET lib APPEND PROPERTY COMPILE_OPTIONS -use_fast_math)\n', "-DP -DQ=1 -rdc=true -use_fast_math"),
    "device code linked later, for another target": ("add_library(lib k.cu)\nadd_library(o other.cu)\nset_target_properties(o PROPERTIES CUDA_SEPARABLE_COMPILATION ON)\n", ""),
    "device code linked later, for all": ("set(CMAKE_CUDA_SEPARABLE_COMPILATION ON)\nadd_library(lib k.cu)\n", "-rdc=true"),
    "an included file": ("set(X 1)\ninclude(flags.cmake)\nadd_library(lib k.cu)\ntarget_compile_definitions(lib PRIVATE X=${X} ${FROM_INCLUDE})\n", "-DINCLUDED -DX=9"),
    "a value behind an included file": ("include(flags.cmake)\nset(X 2)\nadd_library(lib k.cu)\ntarget_compile_definitions(lib PRIVATE X=${X})\n", "-DX=2"),
    "a name in a name": ("set(A_FLAGS -DNESTED)\nset(W A)\nadd_library(lib k.cu)\ntarget_compile_options(lib PRIVATE ${${W}_FLAGS})\n", "-DNESTED"),
    "conditions": (CONDITIONS, "-DA -DB -DD"),
    "what comes behind a target": ("add_library(lib k.cu)\nadd_compile_definitions(FOR_ALL)\nadd_compile_options(-DTOO_LATE)\n", "-DFOR_ALL"),
    "a value of a function's caller": ("function(f)\nset(P 7 PARENT_SCOPE)\nset(Q 1)\nendfunction()\nf()\nadd_library(lib k.cu)\ntarget_compile_definitions(lib PRIVATE P=${P})\nif(DEFINED Q)\ntarget_compile_definitions(lib PRIVATE Q)\nendif()\n", "-DP=7"),
    "behind a return": ("add_library(lib k.cu)\nif(TRUE)\nreturn()\nendif()\nadd_compile_definitions(NEVER)\n", ""),
    "arithmetic": ('set(H 64)\nmath(EXPR H "${H} * 2 + (7 / 2) % 2")\nadd_library(lib k.cu)\ntarget_compile_definitions(lib PRIVATE H=${H})\n', "-DH=129"),
    "what is linked privately": ("add_library(base INTERFACE)\ntarget_compile_definitions(base INTERFACE BASE)\nadd_library(mid other.cu)\ntarget_compile_definitions(mid PUBLIC MID)\ntarget_link_libraries(mid PRIVATE base)\nadd_library(lib k.cu)\ntarget_link_libraries(lib PRIVATE mid)\n", "-DMID"),
    "a value that is forced": ('set(X 1)\noption(Y "" OFF)\nset(Y ON CACHE BOOL "" FORCE)\nadd_library(lib k.cu)\nif(Y)\ntarget_compile_definitions(lib PRIVATE FORCED)\nendif()\n', "-DFORCED"),
    "properties of a folder": ("set_directory_properties(PROPERTIES COMPILE_DEFINITIONS D=1)\nset_property(DIRECTORY APPEND PROPERTY COMPILE_OPTIONS -maxrregcount=60)\nadd_library(lib k.cu)\n", "-DD=1 -maxrregcount=60"),
    "a property that is replaced": ("add_library(lib k.cu)\ntarget_compile_definitions(lib PUBLIC GONE)\ntarget_compile_options(lib PRIVATE -DOPTION)\nset_target_properties(lib PROPERTIES COMPILE_DEFINITIONS REPLACED=1)\nset_directory_properties(PROPERTIES COMPILE_OPTIONS -DTOO_LATE)\n", "-DOPTION -DREPLACED=1"),
    "a build type that a folder decides": ('set(usual Release)\nif(EXISTS "${CMAKE_CURRENT_SOURCE_DIR}/nowhere")\nset(usual Debug)\nendif()\nif(NOT DEFINED CMAKE_BUILD_TYPE OR CMAKE_BUILD_TYPE STREQUAL "")\nset(CMAKE_BUILD_TYPE "${usual}")\nendif()\nadd_library(lib k.cu)\n', "-DNDEBUG"),
    "properties that are passed on": ("add_library(base INTERFACE)\nset_target_properties(base PROPERTIES INTERFACE_COMPILE_OPTIONS -maxrregcount=88 INTERFACE_COMPILE_DEFINITIONS P)\nadd_library(lib k.cu)\ntarget_link_libraries(lib PRIVATE base)\n", "-DP -maxrregcount=88"),
    "what all targets link": ("add_library(base INTERFACE)\ntarget_compile_definitions(base INTERFACE B)\nlink_libraries(base)\nadd_library(lib k.cu)\n", "-DB"),
    "a loop over files": ("file(GLOB S *.cu)\nlist(LENGTH S n)\nforeach(f ${S})\nget_filename_component(n ${f} NAME_WE)\nadd_library(of_${n} ${f})\ntarget_compile_definitions(of_${n} PRIVATE OF_${n})\nendforeach()\n", "-DOF_k"),
    "a range with steps": ("add_library(lib k.cu)\nforeach(i RANGE 0 8 3)\nif(i EQUAL 3)\ncontinue()\nendif()\ntarget_compile_definitions(lib PRIVATE W${i})\nendforeach()\nforeach(i RANGE 1 5)\nif(i EQUAL 2)\nbreak()\nendif()\ntarget_compile_definitions(lib PRIVATE V${i})\nendforeach()\n", "-DV1 -DW0 -DW6"),
    "what is defined": ('add_library(lib k.cu)\nif(DEFINED CMAKE_CUDA_COMPILER AND NOT DEFINED NOBODY_SET_IT)\ntarget_compile_definitions(lib PRIVATE A)\nendif()\noption(Y "" YES)\nif(Y)\ntarget_compile_definitions(lib PRIVATE B)\nendif()\n', "-DA -DB"),
    "several in one word": ('add_library(lib k.cu)\ntarget_compile_definitions(lib PRIVATE "A=1;B=2")\n', "-DA=1 -DB=2"),
    "libraries of a build type": ("set(CMAKE_BUILD_TYPE Release)\nadd_library(base INTERFACE)\ntarget_compile_definitions(base INTERFACE DEBUGGING)\nadd_library(mid INTERFACE)\ntarget_compile_definitions(mid INTERFACE FAST)\nadd_library(lib k.cu)\ntarget_link_libraries(lib debug base optimized mid)\n", "-DFAST -DNDEBUG"),
    "a return of a macro": ("macro(leave)\nreturn()\nendmacro()\nadd_library(lib k.cu)\nleave()\nadd_compile_definitions(NEVER)\n", ""),
    "a definition that is removed": ("add_definitions(-DA -DB)\nremove_definitions(-DA)\nset(X 1)\nset(X)\nadd_library(lib k.cu)\nif(DEFINED X)\ntarget_compile_definitions(lib PRIVATE X)\nendif()\n", "-DB"),
    "a file that guards itself": ("set(N 0)\ninclude(guarded.cmake)\ninclude(guarded.cmake)\nadd_library(lib k.cu)\ntarget_compile_definitions(lib PRIVATE N=${N})\n", "-DN=1"),
    "another compiler's flags": ("set(CUDA_NVCC_FLAGS -use_fast_math)\nproject(mine LANGUAGES CUDA)\nadd_library(lib k.cu)\n", ""),
    "a command by its name": ("macro(one n)\nadd_library(${n} ${ARGN})\nendmacro()\ncmake_language(CALL one lib k.cu)\ntarget_compile_definitions(lib PRIVATE C)\n", "-DC"),
    "quotes in a value": ('set(V x)\nadd_definitions(-DFOLDER=\\"${V}\\" -DN=4)\nadd_library(lib k.cu)\ntarget_compile_definitions(lib PRIVATE M=\\"m\\" "Q=\\"q\\"")\n', '-DFOLDER="x" -DM="m" -DN=4 -DQ="q"'),
    "a list put together": ('list(APPEND F -DA -DB)\nlist(JOIN F " " J)\nstring(APPEND CMAKE_CUDA_FLAGS " ${J}")\nadd_library(lib k.cu)\n', "-DA -DB"),
}  # fmt: skip
FILES = {
    "k.cu": "__global__ void k() {}\n",
    "other.cu": "",
    "fast/empty.txt": "",
    "plain/empty.txt": "",
    "guarded.cmake": 'include_guard()\nmath(EXPR N "${N} + 1")\n',
    "flags.cmake": "set(FROM_INCLUDE INCLUDED)\nset(X 9)\n",
    "inner/CMakeLists.txt": "add_library(inner_lib STATIC ../other.cu)\ntarget_compile_definitions(inner_lib PUBLIC INNER=5 PRIVATE HIDDEN)\n",
}


def given(folder: Path, flags: tuple[str, ...]) -> str:
    """A command's flags but the architecture and the standard, sorted."""
    words = " ".join(flags).replace(f"{folder}/", "").replace("-maxrregcount ", "-maxrregcount=").split()
    joined = " ".join(words).replace("-rdc true", "-rdc=true").split()
    return " ".join(sorted(word for word in joined if word.startswith(("-D", "-I", "-use", "-max", "-rdc"))))


@pytest.mark.parametrize("name", CASES)
def test_what_a_project_gives_its_file(tmp_path: Path, name: str) -> None:
    text, flags = CASES[name]
    headers = {"fast/h.h": "", "plain/h.h": ""} if "-I" in flags else {}
    source = '#include "h.h"\n' if headers else ""
    project(tmp_path, {**FILES, **headers, "k.cu": source, "CMakeLists.txt": text})
    made = find(tmp_path, "k.cu")
    assert given(tmp_path, made.flags) == flags
    assert made.left_out == ()


# Separate: CMake 3.31.6 gives these too, but 3.25 takes C++20 for what nvcc 13 compiles without a flag.
@pytest.mark.parametrize(
    ("text", "standard"),
    [
        ("set(CMAKE_CXX_STANDARD 20)\nadd_library(lib k.cu)\n", "20"),
        ("add_library(lib k.cu)\ntarget_compile_features(lib PUBLIC cxx_std_20)\n", "20"),
        ("set(CMAKE_CXX_STANDARD 20)\nset(CMAKE_CUDA_STANDARD 17)\nadd_library(lib k.cu)\n", "17"),
        ("set(CMAKE_CUDA_STANDARD 17)\nadd_library(lib k.cu)\ntarget_compile_features(lib PUBLIC cxx_std_20)\n", "17"),
        ("set(CMAKE_CUDA_STANDARD 14)\nadd_library(lib k.cu)\nadd_library(o other.cu)\nset_target_properties(o PROPERTIES CUDA_STANDARD 20)\n", ""),
    ],
    ids=["of C++", "a feature of C++", "CUDA's own first", "CUDA's own before a feature", "older than nvcc's"],
)  # fmt: skip
def test_the_standard(tmp_path: Path, text: str, standard: str) -> None:
    project(tmp_path, {**FILES, "CMakeLists.txt": text})
    flags = " ".join(find(tmp_path, "k.cu").flags).replace("-std ", "-std=").split()
    assert [flag for flag in flags if flag.startswith("-std")] == (
        [f"-std=c++{standard}"] if standard else []
    )


@pytest.mark.slow
@needs_nvcc
@pytest.mark.skipif(not shutil.which("cmake"), reason="needs CMake")
def test_cmake_itself_says_the_same(tmp_path: Path) -> None:
    folders = {f"case{at}": name for at, name in enumerate(CASES)}
    top = "cmake_minimum_required(VERSION 3.20)\nproject(cases LANGUAGES CXX CUDA)\n"
    for folder, name in folders.items():
        # CMake knows each target once
        text = re.sub(
            r"(?<![\w/.$-])(lib|inner_lib|base|mid|kernels|of_\$\{n\}|o)(?![\w./])",
            rf"{folder}_\1",
            CASES[name][0],
        )
        inner = FILES["inner/CMakeLists.txt"].replace("inner_lib", f"{folder}_inner_lib")
        project(tmp_path / folder, {**FILES, "CMakeLists.txt": text, "inner/CMakeLists.txt": inner})
        top += f"add_subdirectory({folder})\n"
    project(tmp_path, {"CMakeLists.txt": top})
    command = [
        "cmake",
        "-S",
        ".",
        "-B",
        "build",
        "-DCMAKE_CUDA_ARCHITECTURES=90",
        "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON",
    ]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=600)
    made: dict[str, str] = {}
    for folder, name in folders.items():
        match = Databases().find(str(tmp_path / folder / "k.cu"), str(tmp_path))
        assert match
        made[name] = given(tmp_path / folder, match.command.flags)
    assert made == {name: flags for name, (_, flags) in CASES.items()}


@pytest.mark.parametrize(
    ("text", "left_out"),
    [
        ("other_peoples_function(lib SOURCES k.cu FAST)", "the flags that `other_peoples_function(…)` gives it"),
        ("set(S k.cu)\nhip_add_it(lib ${S})", "the flags that `hip_add_it(…)` gives it"),
        ("add_library(lib k.cu)\nif(SOMETHING)\nset(CMAKE_CUDA_FLAGS -use_fast_math)\nendif()", "what `if(SOMETHING)` sets of CMAKE_CUDA_FLAGS"),
        ('add_library(lib k.cu)\nset(CMAKE_CUDA_FLAGS_RELEASE "-O3 -DNDEBUG -use_fast_math")', "what CMAKE_CUDA_FLAGS_RELEASE adds with that build type: -use_fast_math"),
        ("add_library(lib k.cu)\nforeach(o ${UNKNOWN})\ntarget_compile_options(lib PRIVATE -D${o})\nendforeach()", "what `foreach(o ${UNKNOWN})` adds by target_compile_options(lib)"),
        ("add_library(lib k.cu)\nset(H 64)\nexecute_process(COMMAND x OUTPUT_VARIABLE H)\ntarget_compile_definitions(lib PRIVATE H=${H})", "-DH=${H}"),
        ("add_library(lib k.cu)\nset(F -DA)\nlist(TRANSFORM F TOLOWER)\ntarget_compile_options(lib PRIVATE -DH=${F})", "-DH=${F}"),
        ("add_library(lib k.cu)\nwhile(X)\ntarget_compile_options(lib PRIVATE -DW)\nendwhile()", "what `while(X)` adds by target_compile_options(lib)"),
        ("if(X)\nset(CMAKE_BUILD_TYPE Release)\nendif()\nadd_library(lib k.cu)\ntarget_compile_definitions(lib PRIVATE $<$<CONFIG:RelWithDebInfo>:R>)", "$<$<CONFIG:RelWithDebInfo>:R>"),
        ("install(FILES k.cu DESTINATION x)\nmessage(k.cu)\nadd_library(lib k.cu)", ""),
    ],
)  # fmt: skip
def test_what_is_not_understood_is_said(tmp_path: Path, text: str, left_out: str) -> None:
    project(tmp_path, {"k.cu": "", "CMakeLists.txt": f"{text}\n"})
    assert [each.what for each in find(tmp_path, "k.cu").left_out] == ([left_out] if left_out else [])


@pytest.mark.parametrize(
    ("text", "tile"),
    [
        ("set(TILE 16)\nset(TILE 32)\n", "32"),
        ("option(WIDE x OFF)\nset(TILE 16)\nif(WIDE)\nset(TILE 32)\nendif()\n", "16"),
        (
            "if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 11)\nset(TILE 8)\nelse()\nset(TILE 64)\nendif()\n",
            "64",
        ),
        ("include(tile.cmake)\n", "128"),
        ("if(UNKNOWN_TO_ALL)\nset(TILE 8)\nelse()\nset(TILE 4)\nendif()\n", "8"),
    ],
)
def test_a_header_from_a_template_has_the_values_that_flags_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, tile: str
) -> None:
    own_cache(monkeypatch, tmp_path)
    files = {
        "k.cu": '#include "config.h"\n',
        "config.h.in": "#define TILE @TILE@\n",
        "tile.cmake": "set(TILE 128)\n",
        "CMakeLists.txt": f"{text}configure_file(config.h.in config.h)\nadd_library(lib k.cu)\ntarget_compile_definitions(lib PRIVATE T=${{TILE}})\n",
    }
    project(tmp_path / "ws", files)
    made = find(tmp_path / "ws", "k.cu")
    (folder,) = [flag.removeprefix("-I") for flag in made.flags if flag.startswith("-I")]
    assert Path(folder, "config.h").read_text() == f"#define TILE {tile}\n"
    assert [flag for flag in made.flags if flag.startswith("-D")] == (
        [f"-DT={tile}"] if "UNKNOWN" not in text else []
    )


def test_folders_without_commands_pass_on_what_they_are_given(tmp_path: Path) -> None:
    files = {
        "CMakeLists.txt": "add_definitions(-DFAST)\nadd_compile_options($<$<COMPILE_LANGUAGE:CUDA>:--use_fast_math>)\nadd_subdirectory(sub)\n",
        "sub/CMakeLists.txt": "add_subdirectory(deep)\n",
        "sub/deep/CMakeLists.txt": "add_library(k k.cu)\n",
        "sub/deep/k.cu": "",
        "sub/bare/CMakeLists.txt": "# nothing\n",
        "sub/bare/k.cu": "",
    }
    project(tmp_path, files)
    assert find(tmp_path, "sub/deep/k.cu").flags == ("-DFAST", "--use_fast_math")
    assert find(tmp_path, "sub/bare/k.cu").flags == ("-DFAST", "--use_fast_math")
