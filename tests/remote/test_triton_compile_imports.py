"""What is imported where a Triton file is compiled without a GPU, and what is said of an import that needs one or is missing."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest

from orbit_remote.common import python_errors
from tests.remote.python_children import ADD, HEAD, compile_one
from tests.remote.test_triton_compile_launched import COPY


def test_what_asks_the_gpu_while_the_file_is_imported_is_left_out(check_compiled):
    check_compiled(
        """
        PROPERTIES = triton.runtime.driver.active.utils.get_device_properties(0)
        SMS = PROPERTIES["multiprocessor_count"]
        x = torch.zeros(8, device="cuda")
        NEW = torch.cuda.get_device_capability()[0] >= 9

        @triton.jit
        def uses(x):
            tl.store(x, SMS)
        """
        + textwrap.indent(COPY, " " * 8)
        + """
        if NEW:
            copy[(SMS,)](x, x, 8, BLOCK=64)
        """,
        """
        copy: BLOCK 64; num_warps 4; x *fp32 (assumed); y *fp32 (assumed); n i32 (assumed)
        (the file uses the GPU while it is imported (lines 5, 6, 7, 19), and this machine has none; without it nothing is known of PROPERTIES, SMS, x)
        (uses was not compiled: SMS needs a GPU)
        (copy: constants as launched on line 20; argument types assumed)
        """,
    )


def test_what_follows_from_a_statement_that_was_left_out_is_no_error(job):
    text = HEAD + textwrap.dedent("""
        START = torch.cuda.Event(enable_timing=True)
        sizes = []
        for n in (64, 128):
            sizes.append(torch.zeros(n, device="cuda").numel())
        LARGEST = sizes[0]

        @triton.jit
        def k(x):
            tl.store(x, 1)
    """)
    finished = job(text, action="compile").finished
    assert ([each.name for each in finished.resources], finished.problems) == (["k"], ())
    assert "(lines 5, 7, 9), and this machine has none" in finished.remarks[0]
    wrong = job(text + "torch.zeroes(3)\n", action="compile").finished
    assert "has no attribute 'zeroes'" in wrong.problems[0].message


def test_what_an_import_that_asks_the_gpu_would_have_given_is_unknown(job, tmp_path):
    (tmp_path / "machine.py").write_text("import torch\nHOPPER = 'H100' in torch.cuda.get_device_name(0)\n")
    text = "from machine import HOPPER\nWARPS = 4 if HOPPER else 8\n" + ADD.replace(
        "tl.constexpr", "tl.constexpr = 64"
    )
    done = job(text, action="compile")
    assert compile_one(done).name == "add"
    assert any("nothing is known of HOPPER, WARPS" in remark for remark in done.finished.remarks)


def test_a_folder_of_a_package_needs_no_init(job, tmp_path):
    (tmp_path / "ops" / "inner").mkdir(parents=True)
    (tmp_path / "ops" / "__init__.py").write_text("BLOCK = tuple('a')")
    (tmp_path / "ops" / "inner" / "sizes.py").write_text("from .. import BLOCK\n")
    text = "from .sizes import BLOCK\nassert BLOCK == ('a',)\n" + ADD.replace("tl.program_id", "tl.programme")
    assert (
        job(text, name="ops/inner/k.py", action="compile").problem.message
        == "triton.language has no `programme`"
    )


def test_the_saved_text_that_a_package_imports_is_not_compiled(job, tmp_path):
    (tmp_path / "ops").mkdir()
    (tmp_path / "ops" / "__init__.py").write_text("from .k import add\n")
    (tmp_path / "ops" / "sizes.py").write_text("BLOCK = 64\n")
    saved = "from .sizes import BLOCK\n" + ADD
    text = "from .sizes import BLOCK\n" + ADD.replace("tl.program_id(0)", "tl.program_idd(0)")
    (tmp_path / "ops" / "k.py").write_text(saved)
    assert "program_idd" in job(text, name="ops/k.py", action="compile").problem.message


def test_names_of_a_star_that_is_not_installed_are_no_error(job):
    text = "from nowhere_at_all import *\nSETTINGS = Settings(3)\n" + ADD.replace(
        "tl.constexpr", "tl.constexpr = 64"
    )
    finished = job(text, action="compile").finished
    assert [each.name for each in finished.resources] == ["add"]
    assert [each.message for each in finished.problems if each.severity == "error"] == []


def test_a_package_whose_import_of_the_saved_text_needs_a_gpu(job, tmp_path):
    (tmp_path / "ops").mkdir()
    (tmp_path / "ops" / "__init__.py").write_text("from .k import add\n")
    (tmp_path / "ops" / "sizes.py").write_text("BLOCK = 64\n")
    text = "from .sizes import BLOCK\n" + ADD.replace("tl.constexpr", "tl.constexpr = 64")
    text += "x = torch.zeros(1, device='cuda')\n"
    (tmp_path / "ops" / "k.py").write_text(text)
    finished = job(text, name="ops/k.py", action="compile").finished
    assert ([each.name for each in finished.resources], finished.problems) == (["add"], ())


def test_a_package_that_needs_a_gpu_is_no_warning(job, tmp_path):
    (tmp_path / "ops").mkdir()
    (tmp_path / "ops" / "__init__.py").write_text("import torch\ntorch.zeros(1, device='cuda')\n")
    (tmp_path / "ops" / "sizes.py").write_text("BLOCK = 64\n")
    text = (
        "from .sizes import BLOCK\n"
        + ADD
        + "SIZE = 64\ndef main(x):\n    add[(4,)](x, x, x, 9, BLOCK=SIZE)\n"
    )
    finished = job(text, name="ops/k.py", action="compile").finished
    assert ([each.name for each in finished.resources], finished.problems) == (["add"], ())
    assert "what the file imports uses a GPU, and this machine has none: " in finished.remarks[1]


@pytest.mark.parametrize(
    ("file", "error", "remedy"),
    [
        ("src/fastops/__init__.py", ModuleNotFoundError("no", name="fastops"), "fastops is a package of this project: "),
        ("fastops.py", ImportError("no _C", name="fastops"), "fastops is a package of this project: "),
        ("other.py", ModuleNotFoundError("no", name="cutlass"), f"{sys.executable} -m pip install nvidia-cutlass-dsl, "),
        ("other.py", ModuleNotFoundError("no", name="cuda.tile"), f"{sys.executable} -m pip install 'cuda-tile[tileiras]', "),
        ("other.py", ModuleNotFoundError("no", name="json.fast"), "this file needs another version of json than "),
    ],
)  # fmt: skip
def test_what_provides_an_import_that_is_missing(
    tmp_path: Path, file: str, error: ImportError, remedy: str
) -> None:
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text("")
    problem = python_errors.explain(error, str(tmp_path / "tests" / "k.py"))
    assert problem.failure.remedy.startswith(remedy)


@pytest.mark.parametrize(
    ("file", "users"),
    [
        ("/home/me/kernels/scale.py", True),
        ("/home/me/kernels/.venv/lib/python3.12/site-packages/torch/nn/modules/linear.py", False),
        ("/usr/lib/python3/dist-packages/numpy/__init__.py", False),
        (r"C:\me\.venv\Lib\site-packages\torch\__init__.py", False),
        ("<string>", False),
    ],
)
def test_what_is_installed_is_not_the_users_wherever_it_lies(file: str, users: bool) -> None:
    assert python_errors.is_users(file, "/home/me/kernels/k.py") == users


def test_a_file_that_has_its_kernels_interpreted_says_why_nothing_is_compiled(job):
    text = (
        'import os\nos.environ["TRITON_INTERPRET"] = "1"\n'
        + HEAD
        + "@triton.jit\ndef k(x):\n    tl.store(x, 1.0)\n"
    )
    finished = job(text, action="compile").finished
    assert finished.resources == ()
    assert "TRITON_INTERPRET is set" in finished.remarks[0]


def test_a_compilation_does_nothing_that_takes_seconds(job):
    """torch's own compiler is not imported, and Triton's hash of its files comes from the template, but for its first child."""
    text = f"""
import atexit, sys
import triton
import triton.language as tl
from triton.runtime import cache
print("hashed before:", cache.triton_key.cache_info().currsize)
atexit.register(lambda: print("imported:", "torch._dynamo" in sys.modules))
# orbit: n = 1 << 20; x = randn(n); y = empty_like(x)
# orbit: launch copy[(triton.cdiv(n, 512),)](x, y, n, BLOCK=512){COPY}"""
    first, second = job(text, action="compile"), job(text, action="compile")
    assert first.finished.resources
    assert second.stdout.split("\n")[:2] == ["hashed before: 1", "imported: False"]
