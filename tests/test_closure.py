"""Which files travel with a job: a folder of texts in, the places that the tree has out."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbit_lsp.closure import Closure, absolute_flags, closure, imports, includes
from orbit_remote.common.content_store import ContentStore
from orbit_remote.common.messages import content_hash
from orbit_remote.common.requests import Job, Manifest
from tests.closure_check import LIMIT, find, refusal, remarks, travels, write
from tests.remote.nvcc_check import needs_nvcc


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


# -- what a CUDA file includes ------------------------------------------------------------------------

HEADERS = {
    "src/a.cuh": "",
    "inc/b.cuh": "",
    "inc/c.cuh": "",
    "sys/d.cuh": "",
    "src/sub/e.cuh": '#include "../a.cuh"',
}


@pytest.mark.parametrize(
    ("text", "flags", "expected"),
    [
        ('#include "a.cuh"', (), ["src/a.cuh"]),
        ('#include "sub/e.cuh"', (), ["src/a.cuh", "src/sub/e.cuh"]),
        ('#include "../inc/b.cuh"', (), ["inc/b.cuh"]),
        ("#include <a.cuh>", (), []),
        ("#include <b.cuh>", ("-I", "inc"), ["inc/b.cuh"]),
        ("#include <b.cuh>\n#include <d.cuh>", ("-Iinc,sys",), ["inc/b.cuh", "sys/d.cuh"]),
        ('#include "b.cuh"', ("--include-path=inc",), ["inc/b.cuh"]),
        ("#include <d.cuh>", ("-isystem", "sys"), ["sys/d.cuh"]),
        ('#include "d.cuh"', ("-Xcompiler", "-iquote", "-Xcompiler", "sys"), ["sys/d.cuh"]),
        ('#include "d.cuh"', ("-Xcompiler=-iquote,sys",), ["sys/d.cuh"]),
        ("#include <d.cuh>", ("-Xcompiler", "-iquote,sys"), []),
        ("", ("-include", "inc/b.cuh"), ["inc/b.cuh"]),
        ("", ("-I", "inc", "-include", "b.cuh"), ["inc/b.cuh"]),
        ("  #  include /* why */ <b.cuh> // so", ("-I", "inc"), ["inc/b.cuh"]),
        ('#inc\\\nlude "a.\\\ncuh"', (), []),  # a name over two lines is beyond the scan, and beyond people
        ('// #include "a.cuh"\n/*\n#include "a.cuh"\n*/ const char* s = R"(\n#include "a.cuh"\n)";', (), []),
        ('#if 0\n#include "a.cuh"\n#else\n#include "sub/e.cuh"\n#endif', (), ["src/a.cuh", "src/sub/e.cuh"]),
        ('#if 0\n#include "a.cuh"\n#endif', (), []),
        ('#ifdef NEVER_MIND\n#include "a.cuh"\n#endif', (), ["src/a.cuh"]),
        ('#include <cuda_runtime.h>\n#include <vector>\n#include "none.h"', (), []),
        ('#define H "a.cuh"\n#include H', (), ["src/a.cuh"]),
        ('#ifdef A\n#define H "a.cuh"\n#else\n#define H <b.cuh>\n#endif\n#include H', ("-Iinc",), ["inc/b.cuh", "src/a.cuh"]),
        ("#include H", ('-DH="a.cuh"',), ["src/a.cuh"]),
        ("#include H", ("-D", "H=G", '-DG=\\"a.cuh\\"'), ["src/a.cuh"]),
        ("#include <b.cuh>", ("-I", "nowhere", "-I", "/usr/include", "-Iinc"), ["inc/b.cuh"]),
        ("", ("inc/c.cuh", "-gencode", "arch=compute_90a,code=sm_90a"), ["inc/c.cuh"]),
    ],
)  # fmt: skip
def test_includes_are_found_as_nvcc_finds_them(
    project: Path, text: str, flags: tuple[str, ...], expected: list[str]
) -> None:
    write(project, HEADERS)
    assert travels(project, "src/k.cu", text, flags=flags) == expected


def test_the_first_place_that_has_it_wins_and_include_next_takes_them_all(project: Path) -> None:
    write(project, {"src/h.cuh": "", "one/h.cuh": "", "two/h.cuh": ""})
    flags = ("-Ione", "-Itwo")
    assert travels(project, "src/k.cu", '#include "h.cuh"', flags=flags) == ["src/h.cuh"]
    assert travels(project, "src/k.cu", "#include <h.cuh>", flags=flags) == ["one/h.cuh"]
    (project / "one/h.cuh").write_text("#include_next <h.cuh>")
    assert travels(project, "src/k.cu", "#include <h.cuh>", flags=flags) == ["one/h.cuh", "two/h.cuh"]


def test_headers_that_include_each_other_end(project: Path) -> None:
    write(project, {"a.cuh": '#include "b.cuh"', "b.cuh": '#include "a.cuh"\n#include "k.cu"', "k.cu": ""})
    assert travels(project, "k.cu", '#include "a.cuh"') == ["a.cuh", "b.cuh"]


def test_a_macro_whose_meaning_is_found_in_a_header_of_that_meaning(project: Path) -> None:
    write(project, {"a.cuh": "#define NEXT <deep/b.cuh>", "deep/b.cuh": '#define MORE "c.cuh"', "c.cuh": ""})
    text = '#include MORE\n#include NEXT\n#include "a.cuh"'
    assert travels(project, "k.cu", text, flags=("-I.",)) == ["a.cuh", "c.cuh", "deep/b.cuh"]


def test_a_toolkit_in_the_workspace_stays(project: Path) -> None:
    write(project, {"venv/cuda/crt/host_config.h": "", "venv/cuda/cuda_runtime.h": ""})
    assert travels(project, "k.cu", "#include <cuda_runtime.h>", flags=("-Ivenv/cuda",)) == []


def test_files_that_an_earlier_build_read_travel_too(project: Path) -> None:
    write(project, {"gen/x.cuh": '#include "y.cuh"', "gen/y.cuh": ""})
    read = (str(project / "gen/x.cuh"), "/usr/include/stdio.h", "/elsewhere/z.h", str(project / "gone.h"))
    assert travels(project, "k.cu", "", read=read) == ["gen/x.cuh", "gen/y.cuh"]


def test_what_a_contract_needs_travels_although_nothing_imports_it(tmp_path: Path) -> None:
    """popcorn's problem above a submission, and KernelBench's model beside one; their own imports too."""
    task = "files:\n  - {name: utils.py, source: ../utils.py}\ntests:\n  - {n: 1}\n"
    write(tmp_path, {
        "utils.py": "", "norm/task.yml": task, "norm/reference.py": "import shapes", "norm/shapes.py": "", "other/reference.py": "",
        "norm/mine/submission.py": "def custom_kernel(data): return data",
        "x.py": "class Model: pass", "x_new.py": "class ModelNew: pass",
    })  # fmt: skip
    needed = travels(tmp_path, "norm/mine/submission.py", contract=True)
    assert needed == ["norm/reference.py", "norm/shapes.py", "norm/task.yml", "utils.py"]
    assert travels(tmp_path, "x_new.py", contract=True) == ["x.py"]
    assert travels(tmp_path, "x_new.py") == []


def test_the_edited_text_of_the_main_file_travels_and_the_saved_text_of_others(project: Path) -> None:
    write(project, {"k.cu": "saved", "a.cuh": "header"})
    result = find(project, "k.cu", 'edited\n#include "a.cuh"')
    assert result.contents == {
        content_hash(b'edited\n#include "a.cuh"'): b'edited\n#include "a.cuh"',
        content_hash(b"header"): project / "a.cuh",
    }
    assert result.bytes == len('edited\n#include "a.cuh"header')
    (project / "k.cu").unlink()
    assert travels(project, "k.cu", '#include "a.cuh"') == ["a.cuh"]


# -- outside of the workspace -------------------------------------------------------------------------


def test_a_named_folder_outside_has_a_place_of_its_own(tmp_path: Path, project: Path) -> None:
    write(tmp_path, {"my lib/top.cuh": '#include "in/deep.cuh"', "my lib/in/deep.cuh": "", "my lib/unused.cuh": "",
                     "other/o.cuh": ""})  # fmt: skip
    flags = (f"-I{tmp_path}/my lib", "-isystem", "../other")
    result = find(project, "k.cu", "#include <top.cuh>\n#include <o.cuh>", flags=flags)
    assert sorted(result.manifest.files) == [
        ".orbit-outside/0-my_lib/in/deep.cuh", ".orbit-outside/0-my_lib/top.cuh", ".orbit-outside/1-other/o.cuh", "k.cu",
    ]  # fmt: skip
    assert result.mapped == {
        f"{tmp_path}/my lib": ".orbit-outside/0-my_lib",
        f"{tmp_path}/other": ".orbit-outside/1-other",
    }
    job = Job("1", "run", "cuda", str(project / "k.cu"), "", directory=str(project), flags=flags)
    assert absolute_flags(job) == (f"-I{tmp_path}/my lib", "-isystem", f"{tmp_path}/other")


def test_what_else_lies_outside_is_refused(tmp_path: Path, project: Path) -> None:
    write(tmp_path, {"common/x.cuh": "", "lib/y.cuh": '#include "../common/x.cuh"'})
    message = f"{tmp_path}/common/x.cuh is needed and lies outside of the workspace folder ~: open a folder"
    assert refusal(project, "k.cu", '#include "../common/x.cuh"').startswith(message)
    assert refusal(project, "k.cu", "#include <y.cuh>", flags=("-I../lib",)).startswith(message)
    assert travels(project, "k.cu", '#include "../common/is_not_there.cuh"') == []


def test_links_that_lead_outside_are_refused_and_others_are_files(tmp_path: Path, project: Path) -> None:
    write(tmp_path, {"secret": "", "project/real.cuh": "", "far/f.cuh": ""})
    (project / "near.cuh").symlink_to("real.cuh")
    (project / "out.cuh").symlink_to("../secret")
    (project / "folder").symlink_to("../far")
    assert travels(project, "k.cu", '#include "near.cuh"') == ["near.cuh"]
    out = "leads out of the workspace folder ~ and is not sent: put a copy in its place."
    assert refusal(project, "k.cu", '#include "out.cuh"') == f"out.cuh {out}"
    assert refusal(project, "k.cu", '#include "folder/f.cuh"') == f"folder/f.cuh {out}"
    assert remarks(project, "k.cu", "", data=("out.*", "folder")) == [f"out.cuh {out}", f"folder {out}"]
    named = find(project, "k.cu", '#include "folder/f.cuh"', flags=("-I../far",))
    assert sorted(named.manifest.files) == ["folder/f.cuh", "k.cu"]


def test_a_link_in_a_circle_is_no_file(project: Path) -> None:
    (project / "a.cuh").symlink_to("a.cuh")
    assert travels(project, "k.cu", '#include "a.cuh"') == []


def test_the_root_may_itself_be_reached_through_a_link(tmp_path: Path, project: Path) -> None:
    write(project, {"a.cuh": ""})
    (tmp_path / "linked").symlink_to(project)
    assert travels(tmp_path / "linked", "k.cu", '#include "a.cuh"') == ["a.cuh"]


def test_a_home_folder_is_no_include_folder(tmp_path: Path, project: Path, monkeypatch) -> None:
    """A workspace that is not trusted may set -I; it must not send keys away with it."""
    write(tmp_path, {"home/.ssh/id": "key", "home/lib/.hidden/x.h": "", "home/.local/include/ok.h": ""})
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for folder, name in (("/", f"{tmp_path}/home/.ssh/id"), ("../home", ".ssh/id"), ("../home/.ssh", "id")):
        (message,) = remarks(project, "k.cu", f"#include <{name.lstrip('/')}>", flags=("-I", folder))
        assert message.startswith("Nothing is sent from the include folder ")
    assert "hidden files from outside of the workspace are not sent" in refusal(
        project, "k.cu", "#include <.hidden/x.h>", flags=("-I../home/lib",)
    )
    result = find(project, "k.cu", "#include <ok.h>", flags=("-I../home/.local/include",))
    assert ".orbit-outside/0-include/ok.h" in result.manifest.files


def test_an_absolute_path_is_remarked_on(project: Path) -> None:
    write(project, {"a.cuh": ""})
    (message,) = remarks(project, "k.cu", f'#include "{project}/a.cuh"')
    assert message == (
        "k.cu includes ~/a.cuh by its absolute path, which another machine does not have; "
        "include it relative to a folder."
    )


def test_the_root_is_the_innermost_workspace_folder_else_the_files_own(tmp_path: Path) -> None:
    write(
        tmp_path,
        {"one/two/src/k.cu": "", "pack/__init__.py": "", "pack/in/__init__.py": "", "pack/in/k.py": ""},
    )
    outer, inner = str(tmp_path / "one"), str(tmp_path / "one/two")
    assert find(tmp_path / "one/two/src", "k.cu", folders=[outer, inner + "/"]).root == inner
    assert find(tmp_path / "one/two/src", "k.cu", folders=[str(tmp_path / "on")]).root == f"{inner}/src"
    package = find(tmp_path / "pack/in", "k.py", folders=[])
    assert (package.root, "pack/in/k.py" in package.manifest.files) == (str(tmp_path), True)


# -- what a Python file imports -----------------------------------------------------------------------

MODULES = {
    "app/near.py": "import app.other",
    "app/other.py": "",
    "ops/__init__.py": "from .inner import f",
    "ops/inner.py": "f = 1",
    "ops/lazy/__init__.py": "",
    "ops/lazy/deep.py": "",
    "ops/stars/__init__.py": "__all__ = ['one', 'two']; two = 2",
    "ops/stars/one.py": "",
    "spread/part/leaf.py": "",
    "src/library/__init__.py": "import library.core",
    "src/library/core.py": "",
    "top.py": "",
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import near", ["app/near.py", "app/other.py"]),
        ("import top as t, os, torch, triton.language as tl", ["top.py"]),
        ("import ops", ["ops/__init__.py", "ops/inner.py"]),
        ("import ops.lazy.deep", ["ops/__init__.py", "ops/inner.py", "ops/lazy/__init__.py", "ops/lazy/deep.py"]),
        ("from ops.lazy import deep, nothing", ["ops/__init__.py", "ops/inner.py", "ops/lazy/__init__.py", "ops/lazy/deep.py"]),
        ("from ops import (lazy as l)", ["ops/__init__.py", "ops/inner.py", "ops/lazy/__init__.py"]),
        ("from ops.stars import *", ["ops/__init__.py", "ops/inner.py", "ops/stars/__init__.py", "ops/stars/one.py"]),
        ("import spread.part.leaf", ["spread/part/leaf.py"]),
        ("from spread.part import leaf", ["spread/part/leaf.py"]),
        ("from library import x", ["src/library/__init__.py", "src/library/core.py"]),
        ("from . import near", ["app/near.py", "app/other.py"]),
        ("from .near import x", ["app/near.py", "app/other.py"]),
        ("from ..ops.lazy import deep", ["ops/__init__.py", "ops/inner.py", "ops/lazy/__init__.py", "ops/lazy/deep.py"]),
        ("def f():\n    try:\n        import top\n    except ImportError: pass", ["top.py"]),
        ("import importlib\nimportlib.import_module('top')", ["top.py"]),
        ("from importlib import import_module as im, import_module\nimport_module('.near', package=__package__)", ["app/near.py", "app/other.py"]),
        ("__import__('top')", ["top.py"]),
        ("s = 'import top'  # import top", []),
        ("import top\ndef broken(:\n    from .near import x\n", ["app/near.py", "app/other.py", "top.py"]),
        ("import k", []),
        ("", []),
    ],
)  # fmt: skip
def test_imports_are_found_in_the_workspace(project: Path, text: str, expected: list[str]) -> None:
    write(project, MODULES)
    assert travels(project, "app/k.py", text) == expected


def test_a_file_in_a_package_brings_the_packages_around_it(project: Path) -> None:
    write(
        project,
        {
            "p/__init__.py": "import side",
            "p/q/__init__.py": "",
            "p/q/a.py": "",
            "side.py": "",
            "p/side.py": "",
        },
    )
    assert travels(project, "p/q/k.py", "from . import a") == [
        "p/__init__.py",
        "p/q/__init__.py",
        "p/q/a.py",
        "side.py",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import beside", []),  # where Python looks anyway
        ("import packed", ["src"]),
        ("from packed.inner import x", ["src"]),
        ("import pathed", ["python"]),
        ("import packed, pathed", ["src", "python"]),
        ("from . import beside", []),
        ("import numpy", []),
    ],
)
def test_python_is_told_where_else_to_look(tmp_path: Path, text: str, expected: list[str]) -> None:
    names = ["a/beside.py", "src/packed/__init__.py", "src/packed/inner.py", "python/pathed.py"]
    write(tmp_path, dict.fromkeys(names, "") | {"a/k.py": text})
    job = Job("1", "run", "triton", str(tmp_path / "a/k.py"), text, directory=str(tmp_path / "a"))
    path = (str(tmp_path / "python"), "/usr/lib/python3")
    result = closure(job, [str(tmp_path)], data=(), limit=LIMIT, python_path=path)
    assert result.roots == tuple(str(tmp_path / place) for place in expected)


def test_a_file_that_changes_the_path_may_import_from_any_folder_above_it(project: Path) -> None:
    write(project, {"kernels/shared.py": "", "kernels/deep/er/x": ""})
    plain = "import shared"
    assert travels(project, "kernels/deep/er/k.py", plain) == []
    change = "import sys, os\nsys.path.append(os.path.join(os.path.dirname(__file__), '../..'))\n"
    assert travels(project, "kernels/deep/er/k.py", change + plain) == ["kernels/shared.py"]


def test_what_is_known_only_at_run_time_is_said(project: Path) -> None:
    write(project, {"top.py": ""})
    text = "import importlib, runpy\nimportlib.import_module(name)\n__import__(f'{x}')\nrunpy.run_path('top.py')\n"
    assert remarks(project, "k.py", text) == [
        (
            "k.py imports modules whose names are known only when it runs (line 2, 3, 4); if they are in the "
            "workspace, name their files in the setting `data`."
        )
    ]


def test_compiled_modules_stay_and_imports_from_above_are_refused(tmp_path: Path, project: Path) -> None:
    write(tmp_path, {"project/_C.cpython-311-x86_64-linux-gnu.so": "", "above.py": ""})
    assert remarks(project, "k.py", "import _C") == [
        "_C.cpython-311-x86_64-linux-gnu.so is not sent: it was compiled for this machine and its Python."
    ]
    assert "above.py is needed and lies outside" in refusal(project, "k.py", "from ..above import x")
    assert travels(project, "k.py", "from ..nowhere import x\nfrom ....nowhere import y") == []


def test_module_names_made_to_leave_the_workspace_do_not(tmp_path: Path, project: Path) -> None:
    write(tmp_path, {"secret.py": "", "project/p/__init__.py": "__all__ = ['../../secret', '/etc/passwd']"})
    text = (
        "import importlib\nfrom p import *\nimportlib.import_module('/etc/passwd')\n__import__('../secret')"
    )
    assert travels(project, "k.py", text) == ["p/__init__.py"]


def test_brackets_without_end_and_long_comments_do_not_hold_a_click_up(project: Path) -> None:
    write(project, {"top.py": ""})
    assert travels(project, "k.py", "import top\n__all__ = " + "(" * 400_000) == ["top.py"]
    assert travels(project, "k.py", "# a\n" * 100_000 + "   \\\n" * 100_000 + "\nimport top") == ["top.py"]


# -- bounds -------------------------------------------------------------------------------------------


def test_too_large_is_said_with_sizes_and_names(project: Path) -> None:
    write(
        project,
        {"data/big.bin": "x" * 5000, "data/mid.bin": "y" * 3000, "data/s.bin": "z", "a.cuh": "a" * 100},
    )
    assert refusal(project, "k.cu", '#include "a.cuh"', data=("data",), limit=6000) == (
        "the files that k.cu needs come to 7.93 KiB in 5 files, more than the limit of 5.86 KiB; the largest are "
        "data/big.bin (4.88 KiB), data/mid.bin (2.93 KiB), a.cuh (100 B). Narrow the setting `data`, or name files in "
        ".orbitignore."
    )


def test_too_many_files_is_said(project: Path) -> None:
    (project / "data").mkdir()
    for n in range(10_001):
        (project / "data" / str(n)).touch()
    assert refusal(project, "k.cu", "", data=("data",)).startswith(
        "k.cu needs more than 10,000 files (0 B so far)"
    )


def test_a_file_without_end_is_no_data(project: Path) -> None:
    os.mkfifo(project / "pipe.cuh")
    (project / "zero").symlink_to("/dev/zero")
    assert (
        "zero leads out of the workspace"
        in remarks(project, "k.cu", '#include "pipe.cuh"', data=("zero",))[0]
    )


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such names")
def test_names_that_cannot_travel_get_a_sentence(project: Path) -> None:
    for name in (b"\xff.bin", b"back\\slash.bin"):
        Path(os.fsdecode(os.fsencode(project) + b"/" + name)).touch()
    write(project, {"fine.bin": "", "A.bin": "", "a.bin": ""})
    result = find(project, "k.cu", "", data=("*.bin",))
    assert sorted(result.manifest.files) == ["A.bin", "a.bin", "fine.bin", "k.cu"]
    assert sorted(result.remarks) == [
        "A.bin and a.bin differ in case only, which not every system can keep apart.",
        "\\udcff.bin is not UTF-8 and is not sent.",
        "back\\slash.bin holds a backslash or a NUL and is not sent.",
    ]


@pytest.mark.parametrize(
    "path", ["k\0.cu", "/tmp/back\\slash.cu", "/tmp/\udcff.cu", "untitled:Untitled-1", "", "/", "k.cu"]
)
def test_a_path_that_is_strange_is_no_exception(path: str) -> None:
    job = Job(
        "1",
        "run",
        "cuda",
        path,
        '#include "\0"\n#include "no\\where.h"',
        flags=("-I", "\0", "-include", "\0", "\0"),
    )
    result = closure(job, ["\0", "", "relative"], data=("\0", "a\0b/*"), limit=LIMIT, read=("\0", "", "x"))
    assert result.refusal or len(result.manifest.files) == 1


def test_what_lies_where_files_from_elsewhere_go_does_not_travel(project: Path) -> None:
    write(project, {".orbit-outside/0-x/a.cuh": ""})
    (message,) = remarks(project, "k.cu", '#include ".orbit-outside/0-x/a.cuh"')
    assert message.startswith(".orbit-outside/0-x/a.cuh is not sent: ")


@given(st.text(alphabet='#include <>"/\\.\n\tdefi 0a\0é', max_size=80), st.lists(st.sampled_from(["-I", "-I.", "-Xcompiler", "-include", "x", "-D", "=", ",", "-isystem=/", "-iquote"]), max_size=5))  # fmt: skip
def test_no_text_and_no_flags_are_an_exception(text: str, flags: list[str]) -> None:
    for language, name in (("cuda", "/nowhere/k.cu"), ("triton", "/nowhere/k.py")):
        job = Job("1", "run", language, name, text, flags=tuple(flags))
        assert closure(job, [], data=(), limit=LIMIT).root == "/nowhere"


@given(st.binary(max_size=200))
def test_no_bytes_are_an_exception(content: bytes) -> None:
    includes.parse(content)
    imports.parse(content)


# -- what changes between two clicks ------------------------------------------------------------------


def test_a_header_rewritten_at_once_with_the_same_size_and_times_is_seen(project: Path) -> None:
    write(project, {"a.cuh": '#include "x.h"', "x.h": "", "y.h": ""})
    assert travels(project, "k.cu", '#include "a.cuh"') == ["a.cuh", "x.h"]
    before = (project / "a.cuh").stat()
    (project / "a.cuh").write_text('#include "y.h"')
    os.utime(project / "a.cuh", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert travels(project, "k.cu", '#include "a.cuh"') == ["a.cuh", "y.h"]


def test_files_that_come_and_go(project: Path) -> None:
    text = '#include "a.cuh"'
    assert travels(project, "k.cu", text) == []
    write(project, {"a.cuh": ""})
    assert travels(project, "k.cu", text) == ["a.cuh"]
    (project / "a.cuh").unlink()
    assert travels(project, "k.cu", text) == []


# -- the other side: what travels is enough -----------------------------------------------------------


def arrive(closure: Closure, tmp_path: Path) -> Path:
    """The closure as a tree of its own, through a store, with the author's folders gone."""
    store, tree = ContentStore(tmp_path / "store", LIMIT), tmp_path / "tree"
    for digest in store.missing(closure.manifest):
        content = closure.contents[digest]
        store.put(digest, content if isinstance(content, bytes) else content.read_bytes())
    store.materialise(closure.manifest, tree)
    shutil.rmtree(closure.root)
    for folder in closure.mapped:
        shutil.rmtree(folder)
    return tree


@needs_nvcc
def test_nvcc_reads_in_the_tree_what_it_reads_at_home(tmp_path: Path, project: Path) -> None:
    write(tmp_path, {
        "project/src/k.cu": '#include "near.cuh"\n#include <lib/top.cuh>\n#include <gen.cuh>\n#include CONFIG\n'
                            "#include <vector>\n__global__ void k(float* x) { *x = near() + top() + gen() + config(); }",
        "project/src/near.cuh": "#pragma once\n#include <empty/../inner.cuh>\n__device__ float near() { return inner(); }",
        "project/inc/inner.cuh": "#pragma once\n__device__ inline float inner() { return 1; }",
        "project/inc/empty/unused.cuh": "",
        "project/src/config.h": "__device__ float config() { return FROM_FORCED; }",
        "project/forced.h": "#define FROM_FORCED 4",
        "project/build/gen.cuh": "__device__ float gen() { return 2; }",
        "project/.gitignore": "build/",
        "library/lib/top.cuh": '#include "detail/../impl.cuh"\n',
        "library/lib/impl.cuh": "#include_next <lib/impl.cuh>\n",
        "second/lib/impl.cuh": "__device__ float top() { return 3; }",
    })  # fmt: skip
    (tmp_path / "library/lib/detail").mkdir()
    flags = (
        "-I",
        "inc,build",
        f"-I{tmp_path}/library",
        "-I../second",
        '-DCONFIG="config.h"',
        "-include",
        "forced.h",
    )
    job = Job("1", "compile", "cuda", str(project / "src/k.cu"), (project / "src/k.cu").read_text(),
              directory=str(project), flags=flags)  # fmt: skip
    home = dependencies(absolute_flags(job), project, "src/k.cu", str(tmp_path))
    result = closure(job, [str(project)], data=(), limit=LIMIT)
    assert (result.refusal, result.remarks) == (None, ())
    folders = {result.root: ""} | result.mapped
    places = {f"{folders[folder]}/{path.removeprefix(folder + '/')}".lstrip("/")
              for path in home for folder in folders if path.startswith(folder + "/")}  # fmt: skip
    assert {name for name in result.manifest.files if not name.endswith(".orbit-folder")} == places
    tree = arrive(result, tmp_path)
    moved = list(absolute_flags(job))
    for folder, place in folders.items():
        moved = [flag.replace(folder, str(tree / place)) for flag in moved]
    away = dependencies(tuple(moved), tree, "src/k.cu", str(tree))
    assert {path.removeprefix(f"{tree}/") for path in away} == places


def dependencies(flags: tuple[str, ...], directory: Path, source: str, below: str) -> set[str]:
    """The files below a folder that nvcc says it reads."""
    words = [flag.replace('"', '\\"') for flag in flags]  # nvcc hands them to a shell
    answer = subprocess.run(
        ["nvcc", "-M", *words, source], cwd=directory, capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stderr
    names = answer.stdout.partition(":")[2].replace("\\\n", " ").split()
    paths = {os.path.normpath(directory / name) for name in names}
    return {path for path in paths if path.startswith(below)}


def test_python_imports_in_the_tree_what_it_imports_at_home(tmp_path: Path, project: Path) -> None:
    text = "import near, ops.lazy.deep, spread.part.leaf\nfrom ops.stars import *\nprint(sorted(m for m in sys.modules if m.split('.')[0] in {'near', 'ops', 'spread', 'app'}))"  # fmt: skip
    write(project, MODULES | {"app/k.py": f"import sys\n{text}"})

    def run(folder: Path) -> str:
        return subprocess.run(
            [sys.executable, "app/k.py"], cwd=folder, env={"PYTHONPATH": str(folder)},
            capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip

    home = run(project)
    assert "ops.stars" in home
    write(project, {"ops/unused.py": ""})
    assert run(arrive(find(project, "app/k.py"), tmp_path)) == home


def test_a_closure_that_is_refused_has_no_files(tmp_path: Path, project: Path) -> None:
    write(tmp_path, {"x.cuh": ""})
    result = find(project, "k.cu", '#include "../x.cuh"')
    assert (result.manifest, result.contents, result.bytes) == (Manifest(result.manifest.root), {}, 0)
