"""How a file of a project is compiled that has a compilation database. Nothing is compiled here."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from orbit_lsp.compilation import headers, projects
from orbit_lsp.compilation.finder import CompilationFinder, CompilationQuestion, root_of
from tests.compilation_check import check, database, entry, find, project


@pytest.mark.parametrize(
    "place",
    ["compile_commands.json", "build/compile_commands.json", "build-release/compile_commands.json",
     "cmake-build-debug/compile_commands.json", "out/build/x64-Release/compile_commands.json", "src/build/compile_commands.json"],
)  # fmt: skip
def test_the_database_lies_in_any_usual_place(tmp_path: Path, place: str) -> None:
    check(
        tmp_path,
        {"src/k.cu": "", place: database(entry("ROOT/src/k.cu"))},
        f"-DA -I include\nas {place} says",
    )


@pytest.mark.parametrize("mark", ["CMakeCache.txt", "meson-info/meson-info.json"])
def test_a_database_in_whatever_folder_a_build_was_configured(tmp_path: Path, mark: str) -> None:
    place = "b/compile_commands.json"
    files = {"src/k.cu": "", f"b/{mark}": "", place: database(entry("ROOT/src/k.cu"))}
    check(tmp_path, files, f"-DA -I include\nas {place} says")


def test_a_link_to_itself_among_the_build_folders_hides_none_of_them(tmp_path: Path) -> None:
    (tmp_path / "build-old").symlink_to("build-old")
    place = "build/compile_commands.json"
    check(
        tmp_path,
        {"src/k.cu": "", place: database(entry("ROOT/src/k.cu"))},
        f"-DA -I include\nas {place} says",
    )


def test_a_database_in_a_binary_dir_of_cmakes_presets(tmp_path: Path) -> None:
    presets = {"configurePresets": [{"name": "fast", "binaryDir": "${sourceDir}/made/${presetName}"}]}
    files = {
        "src/k.cu": "",
        "CMakePresets.json": json.dumps(presets),
        "made/fast/compile_commands.json": database(entry("../../src/k.cu", directory="ROOT/made/fast")),
    }
    check(tmp_path, files, "-DA -I made/include\nas made/fast/compile_commands.json says")


def test_a_link_to_a_database_and_the_newest_of_several(tmp_path: Path) -> None:
    project(tmp_path, {"src/k.cu": "", "elsewhere/db.json": database(entry("ROOT/src/k.cu"))})
    (tmp_path / "compile_commands.json").symlink_to("elsewhere/db.json")
    assert find(tmp_path, "src/k.cu").flags[0] == "-DA"
    project(tmp_path, {"build/compile_commands.json": database(entry("ROOT/src/k.cu", "nvcc -DNEW -c k.cu"))})
    os.utime(tmp_path / "elsewhere/db.json", (1, 1))
    assert find(tmp_path, "src/k.cu").flags == ("-DNEW",)
    assert find(tmp_path, "src/k.cu", database="elsewhere/db.json").flags[0] == "-DA"


def test_a_project_that_was_configured_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("real")
    files = {
        "real/src/k.cu": "",
        "real/build/compile_commands.json": database(
            entry("ROOT/link/src/k.cu", "nvcc -DA -IROOT/link/inc -c k.cu")
        ),
    }
    project(tmp_path, files)
    made = find(tmp_path / "real", "src/k.cu")
    assert (made.flags[0], made.source) == ("-DA", "as build/compile_commands.json says")


def test_a_file_of_the_workspace_is_included_first_without_trust(tmp_path: Path) -> None:
    """As its sources could include it; a file from elsewhere stays out, and so does what would be another option."""
    (tmp_path / "link.h").symlink_to("/etc/hostname")
    command = (
        "nvcc -include ROOT/pre.h -include /etc/hostname -include ROOT/link.h -include ROOT/a,b.h -c k.cu"
    )
    files = {
        "k.cu": "",
        "pre.h": "",
        "a,b.h": "",
        "compile_commands.json": database(entry("ROOT/k.cu", command)),
    }
    project(tmp_path, files)
    made = find(tmp_path, "k.cu")
    assert made.flags == ("-include", f"{tmp_path}/pre.h")
    assert len(made.refused) == 6  # an option and its value each


def test_a_debug_build_of_a_database_says_what_figures_are_of(tmp_path: Path) -> None:
    project(tmp_path, {"k.cu": "", "compile_commands.json": database(entry("ROOT/k.cu", "nvcc -G -c k.cu"))})
    made = find(tmp_path, "k.cu")
    assert made.left_out == (("-G", "compile_commands.json has it, and figures are of optimized code"),)


UNITY = "build/CMakeFiles/k.dir/Unity/unity_0_cu.cu"


@pytest.mark.parametrize(
    ("including", "text"),
    [(UNITY, '#include "ROOT/src/k.cu"\n'), ("src/all.cu", '  #  include "../src/k.cu"\n')],
)
def test_a_source_that_is_compiled_within_another_one(tmp_path: Path, including: str, text: str) -> None:
    files = {
        "src/k.cu": "",
        "src/other.cu": "",
        including: text,
        "build/compile_commands.json": database(
            entry("ROOT/src/other.cu"), entry(f"ROOT/{including}", "nvcc -DUNITY -c x.cu")
        ),
    }
    check(
        tmp_path,
        files,
        f"-DUNITY\nas build/compile_commands.json says of {including}, which includes this file",
    )


def test_a_database_that_is_damaged_says_so(tmp_path: Path) -> None:
    broken = database(entry("ROOT/src/a.cu"))[:-3]
    project(tmp_path, {"src/k.cu": "", "compile_commands.json": broken, "build/compile_commands.json": ""})
    os.utime(tmp_path / "build/compile_commands.json", (1, 1))  # the newest comes first
    assert find(tmp_path, "src/k.cu").source.partition("because ")[2] == (
        "compile_commands.json is not read from line 1 on: its JSON breaks off there, or an entry is too large; "
        "build/compile_commands.json is empty"
    )


def test_a_monorepo_has_a_database_for_each_part(tmp_path: Path) -> None:
    files = {f"{part}/k.cu": "" for part in ("a", "b")}
    files |= {
        f"{part}/build/compile_commands.json": database(entry(f"ROOT/{part}/k.cu", f"nvcc -D{part} -c k.cu"))
        for part in ("a", "b")
    }
    check(tmp_path, files, "-Db\nas b/build/compile_commands.json says", "b/k.cu")


def test_a_header_and_a_new_file_are_compiled_as_the_file_beside_them(tmp_path: Path) -> None:
    files = {
        "src/k.cu": "", "src/h.cuh": "", "include/deep/i.cuh": "",
        "build/compile_commands.json": database(entry("ROOT/src/main.cpp", "g++ -DCPP -c main.cpp"), entry("ROOT/src/k.cu")),
    }  # fmt: skip
    message = "as build/compile_commands.json says of src/k.cu, because it has no entry for this file"
    check(tmp_path, files, f"-DA -I include\n{message}", "src/h.cuh")
    assert find(tmp_path, "include/deep/i.cuh").flags[0] == "-DA"


def test_clang_compiles_it(tmp_path: Path) -> None:
    files = {
        "src/k.cu": "",
        "build/compile_commands.json": database(
            entry("ROOT/src/k.cu", "clang++ -x cuda --cuda-gpu-arch=sm_90 -DA -c k.cu")
        ),
    }
    message = "as build/compile_commands.json says; the project compiles it with clang; here nvcc does"
    check(tmp_path, files, f"-DA -gencode arch=compute_90,code=sm_90\n{message}")


CLANGD = """\
CompileFlags:
  Add: [-DALL=1, --cuda-gpu-arch=sm_90, "-Iinclude"]  # for each file
---
If:
  PathMatch: .*\\.cu
CompileFlags:
  Add:
    - -DOF_CUDA
    - '-std=c++20'
    - -xcuda
---
If:
  PathMatch: [.*\\.h, .*\\.hpp]
CompileFlags: { Add: [-DOF_HEADERS] }
"""


def test_what_the_author_told_clangd(tmp_path: Path) -> None:
    files = {".clangd": CLANGD, "include/a.h": "", "src/k.cu": '#include "a.h"\n'}
    check(tmp_path, files, """
        -DALL=1 -DOF_CUDA -std c++20 -Iinclude
        by what was found in ROOT, because there is no compile_commands.json
        -DALL=1: .clangd names it
        -DOF_CUDA: .clangd names it
        -std=c++20: .clangd names it
        include: .clangd:1 names it
    """)  # fmt: skip


def test_compile_flags_of_clang(tmp_path: Path) -> None:
    files = {
        "compile_flags.txt": "-xcuda\n-D\n-DN=$(touch x)\n-DN=2\n-I\ninclude\n",
        "include/a.h": "",
        "src/k.cu": '#include "a.h"\n',
    }
    check(tmp_path, files, """
        -DN=2 -Iinclude
        by what was found in ROOT, because there is no compile_commands.json
        -DN=2: compile_flags.txt names it
        include: compile_flags.txt:1 names it
    """)  # fmt: skip


@pytest.mark.parametrize(
    ("pattern", "holds"),
    [
        (r".*\.(cu|cuh)", True), (r"src/.*", True), (r".*\.cuh?", True), (r".*\.h", False), ("src/k", False),
        ("[", False), (r"(a+)+\$", False), (r"(.*a){20}", False), (r".*.*.*.*k.cu", False),
    ],
)  # fmt: skip
def test_the_paths_for_which_clangds_flags_are(pattern: str, holds: bool, tmp_path: Path) -> None:
    text = f"If:\n  PathMatch: '{pattern}'\nCompileFlags:\n  Add: [-DYES]\n"
    project(tmp_path, {".clangd": text, "src/k.cu": ""})
    assert ("-DYES" in find(tmp_path, "src/k.cu").flags) == holds


def test_an_expression_of_clangds_that_would_take_years_is_not_tried(tmp_path: Path) -> None:
    name = f"{'a' * 60}.cu"
    project(tmp_path, {".clangd": "If:\n  PathMatch: (a+)+$\nCompileFlags:\n  Add: [-DYES]\n", name: ""})
    assert find(tmp_path, name).flags == ()


def test_a_build_that_names_the_source_counts_more_than_clangds_flags(tmp_path: Path) -> None:
    files = {
        "Makefile": "k: src/k.cu\n\tnvcc -DOF_MAKE -o k src/k.cu\n",
        "compile_flags.txt": "-DOF_CLANGD\n",
        "src/k.cu": "",
    }
    project(tmp_path, files)
    assert find(tmp_path, "src/k.cu").flags == ("-DOF_MAKE",)


def test_an_untrusted_workspaces_command_runs_nothing(tmp_path: Path) -> None:
    command = (
        "nvcc -forward-unknown-to-host-compiler -rdc=true -ccbin=./evil.sh --options-file inc.rsp -c k.cu"
    )
    files = {
        "src/k.cu": "", "build/inc.rsp": "-I../include -Xcompiler=-fplugin=evil.so -DGOOD",
        "build/compile_commands.json": database(entry("ROOT/src/k.cu", command)),
    }  # fmt: skip
    project(tmp_path, files)
    made = find(tmp_path, "src/k.cu")
    assert made.flags == ("-rdc", "true", "-I", f"{tmp_path}/include", "-DGOOD")
    assert [sentence.partition(" is left out")[0] for sentence in made.refused] == [
        "-ccbin=./evil.sh",
        "-Xcompiler=-fplugin=evil.so",
    ]


def test_nothing_outside_of_the_workspace_is_searched(tmp_path: Path) -> None:
    project(
        tmp_path,
        {
            "ws/src/k.cu": '#include "secret.h"\n',
            "elsewhere/secret.h": "",
            "compile_commands.json": database(entry("ROOT/ws/src/k.cu")),
        },
    )
    assert find(tmp_path / "ws", "src/k.cu").flags == ()
    (tmp_path / "ws" / "link").symlink_to("../elsewhere")
    assert find(tmp_path / "ws", "src/k.cu").flags == ()


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (["CMakeLists.txt", "a/CMakeLists.txt"], "ROOT"),
        (["venv/pyvenv.cfg"], "ROOT"),
        (["venv/pyvenv.cfg", "a/CMakeLists.txt"], "ROOT/a"),
        (["venv/pyvenv.cfg", "setup.py", "a/CMakeLists.txt"], "ROOT"),
        ([".gitignore", "a/Makefile"], "ROOT"),
        ([], "ROOT/a/b"),
    ],
    ids=[
        "build files",
        "an environment",
        "an environment of many projects",
        "a project with its environment",
        "an archive of a repository",
        "neither",
    ],
)
def test_the_project_of_a_folder_without_a_repository(
    tmp_path: Path, files: list[str], expected: str
) -> None:
    project(tmp_path, {"a/b/k.cu": "", **dict.fromkeys(files, "")})
    assert projects.project_of(str(tmp_path / "a" / "b")).replace(str(tmp_path), "ROOT") == expected


def test_a_makefile_reaches_as_far_as_what_it_includes(tmp_path: Path) -> None:
    files = {
        "common.mk": "NVCCFLAGS += -Iinclude\n",
        "include/lib.cuh": "",
        "kernels/one/Makefile": "include ../../common.mk\n",
        "kernels/one/k.cu": '#include "lib.cuh"\n',
    }
    project(tmp_path, files)
    path = str(tmp_path / "kernels/one/k.cu")
    made = CompilationFinder().find(CompilationQuestion(path, '#include "lib.cuh"\n', ()))
    assert (made.root, made.missing) == (str(tmp_path), {})


def test_a_file_outside_of_every_workspace_folder_belongs_to_its_repository(tmp_path: Path) -> None:
    project(tmp_path, {"repo/.git/HEAD": "", "repo/a/k.cu": "", "lone/k.cu": ""})
    assert root_of(f"{tmp_path}/repo/a/k.cu", ["/elsewhere"]) == f"{tmp_path}/repo"
    assert root_of(f"{tmp_path}/lone/k.cu", []) == f"{tmp_path}/lone"
    project(tmp_path, {"new/CMakeLists.txt": "", "new/a/CMakeLists.txt": "", "new/a/b/k.cu": ""})
    assert root_of(f"{tmp_path}/new/a/b/k.cu", []) == f"{tmp_path}/new"
    (tmp_path / "new").chmod(0o777)
    assert root_of(f"{tmp_path}/new/a/b/k.cu", []) == f"{tmp_path}/new/a"


def test_a_header_that_comes_is_found_once_the_editor_reports_it(tmp_path: Path) -> None:
    project(tmp_path, {"src/k.cu": '#include "late.h"\n'})
    finder, question = (
        CompilationFinder(),
        CompilationQuestion(str(tmp_path / "src/k.cu"), '#include "late.h"\n', (str(tmp_path),)),
    )
    assert "late.h" in finder.find(question).missing
    project(tmp_path, {"lib/late.h": ""})
    finder.forget(str(tmp_path / "lib/late.h"))
    assert finder.find(question).flags == (f"-I{tmp_path}/lib",)


def test_a_search_that_is_not_complete_says_how_far_it_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(headers, "FOLDERS", 2)
    project(tmp_path, {"a/b/c/x.h": "", "a/k.cu": ""})
    assert "of which 2 folders were searched" in find(tmp_path, "a/k.cu").source


@pytest.mark.parametrize(
    ("command", "flags"),
    [
        ("nvcc -DA -x cu -c ROOT/src/k.cu -o k.o && nvcc -DB -M -x cu ROOT/src/k.cu -MT k.o -o $DEP_FILE", "-DA"),
        ("cd ROOT/other && nvcc -DA -I. -c ROOT/src/k.cu", "-DA -I other"),
        ("mkdir -p out ; nvcc -DA -c ROOT/src/k.cu || true", "-DA"),
        ("echo k && nvcc -DA -c ../src/k.cu", "-DA"),
        ("nvcc --define-macro A --define-macro B=1 --undefine-macro C -c ROOT/src/k.cu", "-DA -DB=1 -UC"),
        ("nvcc --optimize 3 --machine 64 --library-path /x --Werror all-warnings -DA -c ROOT/src/k.cu", "-DA"),
    ],
)  # fmt: skip
def test_a_line_of_several_commands_and_options_by_their_long_names(
    tmp_path: Path, command: str, flags: str
) -> None:
    given = entry("ROOT/src/k.cu", command)
    check(
        tmp_path,
        {"src/k.cu": "", "build/compile_commands.json": database(given)},
        f"{flags}\nas build/compile_commands.json says",
    )
