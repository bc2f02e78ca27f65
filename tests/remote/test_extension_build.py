"""Python extensions of a project, built for real by setuptools and CMake: a test runs on one that is of the saved files, or not at all."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from orbit_remote.common import measure
from orbit_remote.common import messages as c
from orbit_remote.common.regular_files import file_hash
from orbit_remote.common.requests import Driver, DriverStart, Job
from orbit_remote.recording import registered_kernels
from orbit_remote.worker.programs import extension_build
from tests.driver_layouts import write
from tests.remote.profiling import Bench
from tests.remote.test_drivers_run import run

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the worker runs on Linux")

SETUP = """
from setuptools import Extension, setup
setup(name="scaling", ext_modules=[Extension("scale_ext", ["binding.cpp"])])
"""
PROJECT = {
    "setup.py": SETUP,
    "factor.cuh": "constexpr int FACTOR = 2;\n",
    "scale.cu": '#include "factor.cuh"\nint scaled() { return FACTOR; }\n// __global__ void scale_kernel(float *x) {}\n',
    # nvcc's code registers a kernel by such a text; g++ takes a tenth of nvcc's time
    "binding.cpp": (
        '#include <Python.h>\n#include "scale.cu"\nextern const char registered[] = "_Z12scale_kernelPf";\n'
        "static PyModuleDef scale = {PyModuleDef_HEAD_INIT, registered, nullptr, -1, nullptr};\n"
        "PyMODINIT_FUNC PyInit_scale_ext() { scaled(); return PyModule_Create(&scale); }\n"
    ),
}
TEST = Driver("pytest", "test_scale.py", "test_scale")
BUILD = "python setup.py build_ext --inplace --force"


@pytest.fixture
async def bench(tmp_path: Path, kept: Path) -> AsyncIterator[Bench]:
    (tmp_path / "bench").mkdir()
    made = Bench(tmp_path / "bench", kept)
    yield made
    await made.context.close()
    await made.shared.close()


class Project:
    """A folder with an extension; a test of it is taken as run, since that needs a GPU."""

    def __init__(self, folder: Path, bench: Bench) -> None:
        self.folder, self._bench = folder, bench
        self.texts: dict[str, str] = {}
        """What an editor shows."""
        self.loads: list[Path] = []
        """What the test loads."""
        self.read: dict[str, str] = {}
        """The files that the test reads by itself, by content hash."""
        self.needs = ""
        """The module without which the test ends before its launch, as pytest words it; behind `skip: ` why it is skipped."""
        self.ran = False

    def edit(self, name: str, old: str, new: str, *, age_s: float = 0.0) -> None:
        path = self.folder / name
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))
        if age_s:
            at = path.stat().st_mtime - age_s
            os.utime(path, (at, at))

    async def test(self, **fields: object) -> c.Finished:
        path = self.folder / "scale.cu"
        job = Job(
            "r1", "run", "cuda", str(path), path.read_text(), directory=str(self.folder),
            start=DriverStart(TEST, self.texts), build_timeout_s=300.0,
        )  # fmt: skip
        return await extension_build.with_fresh(replace(job, **fields), self._bench.context, self._run)

    async def _run(self) -> c.Finished:
        self.ran = True
        if self.needs.startswith("skip: ") and not self.libraries():
            why = self.needs.removeprefix("skip: ")
            return c.Finished("r1", "ok", remarks=(f"test_scale.py::test_scale was skipped: {why}",))
        if self.needs and not self.libraries():
            return c.failed("r1", c.Failure("infrastructure", f"could not be collected: {self.needs}"))
        timing = measure.timing([1000], "in program")
        launch = c.Launches("_Z12scale_kernelPf", "scale_kernel(float *)", (1, 1, 1), (1, 1, 1), timing, 1)
        loaded = {str(path): "hash" for path in self.loads}
        return c.Finished("r1", "ok", launches=(launch,), files=loaded | self.read)

    async def says(self) -> str:
        """Whether the test ran, and what is said."""
        self.ran = False
        finished = await self.test()
        words = [finished.outcome, *finished.remarks]
        words += [finished.failure.message, finished.failure.remedy] if finished.failure else []
        said = " | ".join(words).replace(str(self.folder), "FOLDER").replace(sys.executable, "python")
        for library in self.libraries():
            said = said.replace(library.name, "EXT")
        return f"{'ran' if self.ran else 'not run'}: {said}"

    def libraries(self) -> list[Path]:
        return sorted(self.folder.rglob("*.so"))


@pytest.fixture(scope="session")
def built(shared: Path) -> Path:
    """The project with its extension, built once for all tests of this process."""
    folder = shared / f"extension-{os.environ.get('PYTEST_XDIST_WORKER', '')}"
    if not folder.exists():
        write(folder, PROJECT)
        command = [sys.executable, "setup.py", "build_ext", "--inplace"]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder


@pytest.fixture
def project(built: Path, tmp_path: Path, bench: Bench) -> Project:
    shutil.copytree(built, tmp_path / "work", ignore=shutil.ignore_patterns("build"))
    made = Project(tmp_path / "work", bench)
    made.libraries()[0].touch()  # the copies of the sources count as new
    return made


async def test_one_that_is_new_enough_is_left_alone(project: Project) -> None:
    assert await project.says() == "ran: ok"


@pytest.mark.parametrize(
    ("name", "old", "new", "age_s"),
    [("scale.cu", "FACTOR", "FACTOR + 1", 0), ("factor.cuh", "2", "3", 0), ("scale.cu", "FACTOR", "FACTOR + 1", 9e4)],
    ids=["source", "header", "source of an old time"],
)  # fmt: skip
async def test_one_that_is_older_is_rebuilt_and_that_is_said(
    name: str, old: str, new: str, age_s: float, project: Project
) -> None:
    assert await project.says() == "ran: ok"
    project.edit(name, old, new, age_s=age_s)
    assert await project.says() == f"ran: ok | EXT was older than {name} and was rebuilt by `{BUILD}`"
    assert await project.says() == "ran: ok"


async def test_a_compilers_error_stands_at_its_line(project: Project) -> None:
    project.edit("scale.cu", "return FACTOR", "return FACTORS")
    finished = await project.test()
    assert finished.failure
    assert (finished.outcome, project.ran) == ("compile error", False)
    assert finished.failure.place
    assert (Path(finished.failure.place.file).name, finished.failure.place.line) == ("scale.cu", 2)
    assert "EXT was not rebuilt (2 errors): scale.cu:2: " in (await project.says())


async def test_a_build_that_leaves_it_as_it_was(project: Project) -> None:
    (project.folder / "setup.py").write_text("")
    project.edit("factor.cuh", "2", "3")
    assert await project.says() == (
        f"not run: infrastructure | EXT was built before factor.cuh changed, and `{BUILD}` did not build it anew, "
        "so nothing was run | remove EXT and build it"
    )


async def test_unsaved_text_is_to_be_saved_first(project: Project) -> None:
    project.texts = {"factor.cuh": "constexpr int FACTOR = 7;\n"}
    assert await project.says() == (
        "not run: infrastructure | save factor.cuh first: the extension is built from the saved files | nothing was built or run"
    )


async def test_another_copy_than_the_new_one_is_loaded(project: Project) -> None:
    copy = project.folder / "old" / "scale_ext.so"
    copy.parent.mkdir()
    shutil.copy2(project.libraries()[0], copy)
    project.edit("factor.cuh", "2", "3")
    project.loads = [copy]
    said = await project.says()
    assert said.startswith("ran: infrastructure | EXT was older than factor.cuh")
    assert "test_scale.py::test_scale loaded old/EXT, which was built before factor.cuh changed" in said


async def test_the_packages_of_a_virtual_environment_are_not_searched(project: Project) -> None:
    library = project.libraries()[0]
    packages = project.folder / "env" / "lib" / "site-packages"
    packages.mkdir(parents=True)
    library.rename(packages / library.name)
    assert "launched a build that is not known to be of this text of scale.cu" in await project.says()


async def test_what_is_built_for_another_python_is_not_looked_at(project: Project) -> None:
    library = project.libraries()[0]
    library.rename(library.with_name("scale_ext.cpython-27-x86_64-linux-gnu.so"))
    assert (
        "launched a build that is not known to be of this text of scale.cu, so nothing was measured | "
        "build the extension anew: python -m pip install --no-build-isolation --no-deps -e ."
    ) in await project.says()


@pytest.mark.parametrize(
    ("needs", "setup", "said"),
    [
        ("ModuleNotFoundError: No module named 'scale_ext'", SETUP,
         "ran: ok | scale_ext was not built yet, and was built by `python setup.py build_ext --inplace`"),
        ("ImportError: cannot import name 'scale_ext' from partially initialized module 'scaling' (most likely)", SETUP,
         "ran: ok | scaling.scale_ext was not built yet, and was built by `python setup.py build_ext --inplace`"),
        ("skip: could not import 'scale_ext': No module named 'scale_ext'", SETUP,
         "ran: ok | scale_ext was not built yet, and was built by `python setup.py build_ext --inplace`"),
        ("skip: build the extension first", SETUP,
         "ran: ok | scale_ext was not built yet, and was built by `python setup.py build_ext --inplace`"),
        ("test_scale.py ended pytest: run `pip install -e .` first", SETUP,
         "ran: ok | scale_ext was not built yet, and was built by `python setup.py build_ext --inplace`"),
        ("skip: needs two GPUs", "from setuptools import setup\nsetup(name='scale_ext')\n",
         "ran: ok | test_scale.py::test_scale was skipped: needs two GPUs"),
        ("ModuleNotFoundError: No module named 'setuptools_scm'", SETUP,
         "build it: python -m pip install --no-build-isolation --no-deps -e ."),
        ("ModuleNotFoundError: No module named 'scale_ext'", "from setuptools import setup\nsetup(name='scale_ext')\n",
         "build it: python -m pip install --no-build-isolation --no-deps -e ."),
    ],
    ids=["module", "of a package", "importorskip", "skipped in the author's words", "ended in the author's words", "skipped", "another module", "not declared"],
)  # fmt: skip
async def test_an_extension_that_was_never_built(needs: str, setup: str, said: str, project: Project) -> None:
    project.libraries()[0].unlink()
    (project.folder / "setup.py").write_text(setup)
    (project.folder / "test_scale.py").write_text("def test_scale():\n    import scale_ext\n")
    project.needs = needs
    assert (await project.says()).endswith(said)


def test_a_test_names_the_library_that_it_loads(project: Project) -> None:
    (project.folder / "test_scale.py").write_text("import scale_ext\ndef test_scale(): pass\n")
    kernel = project.folder / "scale.cu"
    of_kernel = {"language": "cuda", "path": str(kernel), "text": kernel.read_text()}
    finished, _ = run(project.folder, TEST, job=of_kernel)
    assert [path for path in finished.files if path.endswith(".so")] == [str(project.libraries()[0])]
    assert str(kernel) not in finished.files


READS = """
from pathlib import Path

def test_scale():
    assert Path(__file__).with_name("scale.cu").read_text()
"""


async def test_a_text_that_the_test_compiles_by_itself(project: Project) -> None:
    """As by CuPy or NVRTC: no library has the kernel, and the test has read the file."""
    project.libraries()[0].unlink()
    (project.folder / "test_scale.py").write_text(READS)
    kernel = project.folder / "scale.cu"
    of_kernel = {"language": "cuda", "path": str(kernel), "text": kernel.read_text()}
    finished, _ = await asyncio.to_thread(run, project.folder, TEST, job=of_kernel)
    assert finished.files[str(kernel)] == file_hash(kernel)
    project.read = {str(kernel): finished.files[str(kernel)]}
    assert await project.says() == "ran: ok"
    project.edit("scale.cu", "FACTOR;", "FACTOR + 1;")
    assert "launched a build that is not known to be of this text of scale.cu" in await project.says()


CMAKE_LISTS = """
cmake_minimum_required(VERSION 3.20)
project(scaling LANGUAGES CXX)
add_library(scale_ext MODULE binding.cpp)
set_target_properties(scale_ext PROPERTIES PREFIX "")
"""


@pytest.mark.skipif(not shutil.which("cmake"), reason="needs CMake")
async def test_a_library_of_cmakes_build_folder(project: Project) -> None:
    project.libraries()[0].unlink()
    (project.folder / "CMakeLists.txt").write_text(CMAKE_LISTS)
    project.edit("binding.cpp", '#include <Python.h>\n#include "scale.cu"', '#include "scale.cu"')
    binding = (project.folder / "binding.cpp").read_text().partition("static PyModuleDef")[0]
    (project.folder / "binding.cpp").write_text(binding)
    for command in (["cmake", "-B", "out"], ["cmake", "--build", "out"]):
        await asyncio.to_thread(subprocess.run, command, cwd=project.folder, check=True, capture_output=True)
    assert await project.says() == "ran: ok"
    project.edit("factor.cuh", "2", "3")
    assert "EXT was older than factor.cuh and was rebuilt by `" in await project.says()


MAKEFILE = """
libscale.so: binding.cpp scale.cu
	g++ -shared -fPIC -I{include} -o $@ binding.cpp
"""


@pytest.mark.skipif(not shutil.which("make"), reason="needs make")
async def test_a_library_that_make_builds_and_ctypes_loads(project: Project) -> None:
    project.libraries()[0].unlink()
    (project.folder / "setup.py").unlink()
    (project.folder / "Makefile").write_text(MAKEFILE.format(include=sysconfig.get_path("include")))
    project.needs = (
        f"OSError: {project.folder}/libscale.so: cannot open shared object file: No such file or directory"
    )
    assert (
        re.sub("/.*/make", "make", await project.says())
        == "ran: ok | EXT was not built yet, and was built by `make EXT`"
    )
    project.edit("scale.cu", "FACTOR;", "FACTOR + 1;")
    assert "ran: ok | EXT was older than scale.cu and was rebuilt by `" in await project.says()
    project.edit("factor.cuh", "2", "3")
    assert "EXT was built before factor.cuh changed, and `" in await project.says()


async def test_a_library_that_no_build_makes(project: Project) -> None:
    project.libraries()[0].unlink()
    project.needs = "OSError: ./libfast.so: cannot open shared object file: No such file or directory"
    assert await project.says() == (
        "ran: infrastructure | could not be collected: OSError: ./libfast.so: cannot open shared object file: No such file or directory | "
    )


@pytest.mark.parametrize(
    ("editable", "command"),
    [(True, "--no-build-isolation --no-deps -e ."), (False, "--no-build-isolation --no-deps .")],
)
async def test_one_that_pip_installed_is_installed_again(
    editable: bool, command: str, project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = {"dir_info": {"editable": editable}, "url": project.folder.as_uri()}
    installed(tmp_path / "site", project, said)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), *sys.path])
    (project.folder / "setup.py").write_text("raise SystemExit('this is the build')")
    project.edit("factor.cuh", "2", "3")
    said = await project.says()
    assert f"-m pip install {command}` in FOLDER shows all of it" in said
    assert "scale_ext.so was not rebuilt: " in said


def installed(site: Path, project: Project, said: Mapping[str, object]) -> None:
    """Move the extension into the packages of a Python, as pip does."""
    import json

    information = site / "scaling-1.0.dist-info"
    information.mkdir(parents=True)
    shutil.move(project.libraries()[0], site / "scale_ext.so")
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: scaling\nVersion: 1.0\n")
    (information / "RECORD").write_text("scale_ext.so,,\nscaling-1.0.dist-info/METADATA,,\n")
    (information / "direct_url.json").write_text(json.dumps(said))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("__global__ void scale(float *x) {}", "scale"),
        ("template <int N>\n__global__ void __launch_bounds__(256, 2)\nscale(float *x) {}", "scale"),
        ('__global__ __cluster_dims__(2, 1, 1) void a(int n);\nextern "C" __global__ void b(int n) {}', "a b"),
        ("void host() {}\n#define KERNEL __global__ void\n", ""),
    ],
)  # fmt: skip
def test_the_kernels_of_a_text(text: str, names: str) -> None:
    assert " ".join(sorted(registered_kernels.names(text))) == names


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("nvcc"), reason="needs nvcc")
def test_nvccs_library_has_the_names_of_its_kernels(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text(
        "namespace n { template <int N> __global__ void scale(float *x) { x[0] *= N; } }\n"
        "void launch(float *x) { n::scale<2><<<1, 1>>>(x); }\n"
    )
    command = ["nvcc", "-shared", "-Xcompiler", "-fPIC", "-o", "k.so", "k.cu"]
    subprocess.run(command, cwd=tmp_path, check=True)
    library = str(tmp_path / "k.so")
    assert registered_kernels.has_one(library, frozenset(("scale",)))
    assert not registered_kernels.has_one(library, frozenset(("other_kernel",)))
