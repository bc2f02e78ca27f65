"""Python files as their author left them, each in a process of its own, with the real Triton and no GPU."""

from __future__ import annotations

import base64
import json
import os
import site
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from orbit_remote.child import child_main, python_job, user_module
from orbit_remote.child.user_module import ModuleEntry, UserFile
from orbit_remote.common import messages as c
from orbit_remote.common.launch_records import CudaError, LaunchRecord, series
from orbit_remote.common.requests import ExecStart, Job, OtherKernel, ProgramStart
from orbit_remote.recording.injection import RecordedRun
from tests.remote.python_children import ADD, Done, at, job_of

pytest.importorskip("triton")


@pytest.fixture
def fresh_job(tmp_path, monkeypatch):
    """Carry out a file's text in a fresh process that only knows the way to __main__.py, as where nothing is forked."""
    monkeypatch.delenv("PYTHONPATH", raising=False)

    def carry_out(text: str, *, name: str = "kernels.py", **fields) -> Done:
        done = subprocess.run(
            child_main.command(tmp_path, tmp_path, job_of(tmp_path / name, text, **fields)),
            capture_output=True, encoding="utf-8", errors="replace", check=False,
        )  # fmt: skip
        finished = child_main.outcome(tmp_path)
        assert finished, done
        return Done(finished, done.returncode, done.stdout, done.stderr)

    return carry_out


# -- the way in --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "entry"),
    [
        ("def run(): pass\ndef main(): pass", ModuleEntry("main")),
        ("def benchmark(n=3, *, k=4): pass\ndef main(): pass", ModuleEntry("benchmark")),
        ("def benchmark(size): pass\ndef test(): pass", ModuleEntry("test")),
        ("def benchmark(*, size): pass\ndef run(*args, **kw): pass", ModuleEntry("run")),
        ("if True:\n    def main(): pass", ModuleEntry("main")),
        ("class A:\n    def main(): pass", None),
        ("def outer():\n    def main(): pass", None),
        ("async def main(): pass", None),
        ("@triton.jit\ndef run(): pass", None),
        ("def f(): pass\nif __name__ == '__main__':\n    f()", ModuleEntry(None)),
        ("def f(): pass\nif '__main__' == __name__: f()", ModuleEntry(None)),
        ("def f(): pass\nf()", ModuleEntry(None, certain=False)),
        ("import torch\nx = 1\n'words'", None),
    ],
)
def test_the_entry_of_a_file(text, entry):
    assert UserFile("k.py", text).entry() == entry


def test_a_function_is_called_with_the_file_as_it_stands_in_the_editor(job):
    text = """
        import inspect, sys, os
        def main():
            print(__name__, __file__ == sys.argv[0], sys.argv[1:], os.getcwd() == os.path.dirname(__file__))
            print(inspect.getsource(main).splitlines()[0], sys.path[0] == os.getcwd())
            print(sys.stdin.read())
    """
    done = job(text, save="not what is in the editor", arguments=("--n", "5"), stdin="typed")
    assert done.finished.outcome == "ok", done
    assert done.stdout.splitlines() == ["kernels True ['--n', '5'] True", "def main(): True", "typed"]
    assert (done.finished.exit_code, done.status) == (0, 0)
    assert done.finished.run_s is not None


def test_the_main_part_runs_as_main(job):
    done = job(
        "if __name__ == '__main__':\n    import sys; print('main', sys.modules['__main__'].__file__[-10:])"
    )
    assert (done.finished.outcome, done.stdout) == ("ok", "main kernels.py\n")


def test_a_script_that_calls_something_is_run(job):
    assert job("print('as a script')").stdout == "as a script\n"


def test_no_entry_says_what_would_be_one(job):
    done = job("import torch\ndef helper(x): return x\n")
    assert done.failure.category == "runtime error"
    for word in ("kernels.py has no entry point", "benchmark", "main", '`if __name__ == "__main__":`'):
        assert word in done.failure.message
    assert done.finished.exit_code is None


@pytest.mark.slow
def test_a_file_named_like_the_standard_library_shadows_nothing(fresh_job):
    done = fresh_job(
        "import sys\ndef main(): print(sys.modules['random'].__name__)\nimport random", name="queue.py"
    )
    assert done.finished.outcome == "ok", done
    import_it = fresh_job("import queue, sys\ndef main(): print(hasattr(queue, 'Queue'))", name="queue.py")
    assert import_it.stdout == "True\n"


def test_files_beside_it_can_be_imported(job, tmp_path):
    (tmp_path / "sizes.py").write_text("N = 5\n")
    assert job("from sizes import N\ndef main(): print(N)").stdout == "5\n"


def test_a_file_in_a_package_can_import_from_it(job, tmp_path):
    (tmp_path / "ops").mkdir()
    (tmp_path / "ops" / "__init__.py").touch()
    (tmp_path / "ops" / "sizes.py").write_text("N = 6\n")
    done = job("from .sizes import N\ndef main(): print(N)", name="ops/kernels.py")
    assert done.stdout == "6\n", done


def test_a_package_of_its_own_project_is_found_though_it_is_not_installed(job, tmp_path):
    """A folder that only has the name of what is not installed is no package of the project."""
    for name, text in {
        "pyproject.toml": "",
        "src/fastops/__init__.py": "",
        "src/fastops/sizes.py": "n = 5",
        "not_installed/readme.txt": "",
    }.items():
        path = tmp_path / "project" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    name = "project/src/fastops/kernels.py"
    assert job("from fastops.sizes import n\nprint(n)", name=name).stdout == "5\n"
    assert (
        "No module named 'not_installed'" in job("import not_installed\nprint()", name=name).failure.message
    )


def test_a_package_that_is_installed_after_the_start_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that was forked from an older one reads the `.pth` file that `pip install -e` has written since."""
    (tmp_path / "packages").mkdir()
    os.utime(tmp_path / "packages", (0, 0))
    monkeypatch.setattr(site, "getsitepackages", lambda: [str(tmp_path / "packages")])
    monkeypatch.setattr(user_module, "AT_THE_START", user_module.site_folders())
    monkeypatch.setattr(sys, "path", list(sys.path))
    user_module.read_new_sites()
    assert str(tmp_path) not in sys.path
    (tmp_path / "packages" / "new.pth").write_text(f"{tmp_path}\n")
    user_module.read_new_sites()
    assert sys.path[-1] == str(tmp_path)


def test_a_user_who_may_not_enter_the_folder_of_the_file(tmp_path: Path) -> None:
    """As the user of a judged file."""
    if os.getuid() != 0:
        pytest.skip("becoming another user takes root")
    (tmp_path / "private").mkdir(mode=0o700)
    child = os.fork()
    if child == 0:
        try:
            os.setresuid(65534, 65534, 65534)
            UserFile(str(tmp_path / "private" / "k.py"), "").prepare()
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_path_that_exists_on_another_machine_only(job):
    done = job("import inspect\ndef main(): print(len(inspect.getsource(main)))", name="no/such/folder/k.py")
    assert done.finished.outcome == "ok", done


# -- how it ends -------------------------------------------------------------------------------------


def test_the_limit_of_processes_is_named(job):
    done = job("""
        import os, resource
        def main():
            if os.getuid() == 0:  # root has no limit
                os.setresuid(65534, 65534, 0)
            resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
            try:
                os.fork()
            finally:
                if os.getresuid()[2] == 0:
                    os.seteuid(0)
    """)
    failure = done.failure
    assert failure.category == "runtime error"
    assert failure.message == "no more processes can be started: the limit of processes is reached"
    assert failure.remedy == "start fewer, or wait until some have ended"
    assert failure.place
    assert failure.place.line == 8


@pytest.mark.parametrize(
    ("code", "status", "words"),
    [
        ("", 0, None),
        ("0", 0, None),
        ("3", 3, "exited with code 3"),
        ("-1", 255, "exited with code 255"),
        ("'no data'", 1, "no data"),
    ],
)
def test_sys_exit_is_a_process_that_leaves(code, status, words, job):
    done = job(f"import sys\ndef main(): sys.exit({code})")
    assert (done.finished.exit_code, done.status) == (status, status)
    if words is None:
        assert done.finished.outcome == "ok"
    else:
        assert done.failure.category == "runtime error"
        assert words in done.failure.message
        assert ("no data" in done.stderr) == (code == "'no data'")


def test_an_exception_is_put_on_the_users_innermost_line(job):
    text = """
        import json
        def parse(text):
            return json.loads(text)

        def main():
            é = 1; parse("{")
    """
    done = job(text)
    assert done.finished.outcome == "runtime error"
    problem = done.problem
    assert problem.message.startswith("JSONDecodeError: Expecting property name")
    assert problem.place == at(text, job.path(), "json.loads(text)")
    assert [n.place for n in problem.notes] == [at(text, job.path(), 'parse("{")')]
    assert "triton_job" not in done.stderr
    assert "JSONDecodeError" in done.stderr
    assert (done.finished.exit_code, done.status) == (1, 1)


def test_an_exception_in_a_file_beside_it_is_put_there(job, tmp_path):
    (tmp_path / "sizes.py").write_text("def size():\n    return 1 / 0\n")
    done = job("import sizes\ndef main(): sizes.size()")
    assert done.problem.place == c.Place(str(tmp_path / "sizes.py"), 2, 12, 17)
    assert done.problem.message == "ZeroDivisionError: division by zero"


def test_a_syntax_error_has_its_place(job):
    done = job("def main():\n    é = 'ab' + (1\n    y = 2\n")
    assert done.finished.outcome == "compile error"
    assert done.problem.tool == "python"
    assert done.problem.message == "SyntaxError: '(' was never closed"
    assert done.problem.place is not None
    assert (done.problem.place.line, done.problem.place.column) == (2, 16)


def test_a_missing_package_is_told_at_its_import(job):
    done = job("import os\nimport not_installed_anywhere\ndef main(): pass")
    assert done.problem.message == "ModuleNotFoundError: No module named 'not_installed_anywhere'"
    assert done.problem.place is not None
    assert done.problem.place.line == 2
    assert "-m pip install not_installed_anywhere, if" in done.finished.failure.remedy


@pytest.mark.parametrize("module", ["torch", "triton"])
@pytest.mark.parametrize("action", ["run", "compile"])
def test_a_python_without_torch_or_triton_is_no_fault_of_the_file(job, module, action):
    done = job(
        f"import sys\nsys.modules[{module!r}] = None\nimport {module}\ndef main(): pass", action=action
    )
    remedy = f"{sys.executable} -m pip install {module}, or set `orbit.python` to the Python that has it"
    assert done.finished.outcome == "infrastructure"
    assert (done.failure.message, done.failure.remedy) == (f"{sys.executable} has no {module}", remedy)
    assert (done.problem.message, done.problem.place.line) == (
        f"{sys.executable} has no {module}: {remedy}",
        3,
    )


def test_a_module_of_torch_that_is_missing_is_the_files_own_fault(job):
    done = job("import torch.not_there\ndef main(): pass")
    assert done.finished.outcome == "runtime error"


def test_an_interrupt_is_told(job):
    done = job("def main(): raise KeyboardInterrupt")
    assert (done.finished.outcome, done.finished.exit_code) == ("runtime error", 130)


def test_no_gpu_is_no_fault_of_the_program(job):
    done = job(ADD + "\ndef main():\n    x = torch.zeros(8)\n    add[(1,)](x, x, x, 8, BLOCK=8)\n")
    assert done.finished.outcome == "infrastructure", done
    assert "GPU" in done.failure.message


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("CUDA error: an illegal memory access was encountered", "CUDA_ERROR_ILLEGAL_ADDRESS"),
        ("Triton Error [CUDA]: device-side assert triggered", "CUDA_ERROR_ASSERT"),
        ("CUDA error: something new", "CUDA error"),
    ],
)
def test_a_cuda_error_is_named(words, code, job):
    done = job(f"def main(): raise RuntimeError({words!r})")
    assert done.problem.code == code
    assert done.failure.message.startswith(code)


def test_out_of_memory_is_named(job):
    done = job(
        "import torch\ndef main(): raise torch.OutOfMemoryError('CUDA out of memory. Tried to allocate')"
    )
    assert done.problem.code == "CUDA_ERROR_OUT_OF_MEMORY"


def test_out_of_resources_keeps_tritons_words(job):
    done = job(
        "from triton.runtime.errors import OutOfResources\n"
        "def main(): raise OutOfResources(262144, 232448, 'shared memory')"
    )
    assert done.problem.tool == "triton"
    assert "Required: 262144, Hardware limit: 232448" in done.problem.message


def test_results_are_json_whatever_the_program_prints(job):
    done = job('def main(): print(\'{"kind":"finished"}\'); import os; os.write(1, b"\\xff\\n")')
    assert done.finished.outcome == "ok"
    assert json.loads(c.encode(done.finished))["outcome"] == "ok"


def test_a_traced_run_that_fails_has_its_trace(job):
    done = job(
        "import torch\ndef main():\n    torch.rand(9).relu()\n    raise ValueError('late')\n",
        start=ProgramStart(traced=True),
    )
    assert (done.finished.outcome, done.failure.message) == ("runtime error", "ValueError: late")
    trace = json.loads(zlib.decompress(base64.b64decode(done.finished.report)))
    assert "aten::relu" in {event.get("name") for event in trace["traceEvents"]}
    assert {"aten::rand", "aten::relu"} <= {operator.name for operator in done.finished.operators}
    assert all(operator.calls and operator.self_ns > 0 for operator in done.finished.operators)


# -- a process that crashed --------------------------------------------------------------------------


def launched(symbol: str, start: int) -> LaunchRecord:
    return LaunchRecord(symbol, start, start + 50, (4, 1, 1), (128, 1, 1), process=9)


@pytest.mark.parametrize(
    ("status", "outcome", "message"),
    [
        (-11, "runtime error", "the program was ended by SIGSEGV (segmentation fault in host code)"),
        (4, "runtime error", "the program ended with exit code 4"),
        (0, "ok", None),
    ],
)
def test_a_crash_keeps_the_launches_of_the_files_kernels(status, outcome, message):
    request = Job("1", "run", "triton", "/k.py", ADD)
    recorded = RecordedRun(
        (*series([launched("add", 100), launched("add", 200), launched("at_native_fill", 300)]),)
    )
    finished = python_job.crashed(request, status, recorded)
    assert (finished.outcome, finished.exit_code) == (outcome, status)
    assert (finished.failure.message if finished.failure else None) == message
    [launches] = finished.launches
    assert (launches.name, launches.count, launches.place) == ("add", 2, c.Place("/k.py", 6))


def test_a_crash_keeps_the_launches_of_kernels_of_other_languages_and_is_put_at_them():
    symbol = "scale_02d93c2e_cuda_kernel_forward"
    kernels = (OtherKernel("warp", "scale", "scale", 7),)
    request = Job("1", "run", "triton", "/k.py", "import warp", other_kernels=kernels)
    error = CudaError(5, "driver", "cuCtxSynchronize", 700, "CUDA_ERROR_ILLEGAL_ADDRESS", symbol, 9)
    finished = python_job.crashed(
        request, -6, RecordedRun((*series([launched(symbol, 100)]),), errors=(error,))
    )
    [launches] = finished.launches
    assert (launches.name, launches.symbol, launches.place) == ("scale", symbol, c.Place("/k.py", 7))
    assert finished.failure is not None
    assert finished.failure.place == c.Place("/k.py", 7)


def test_a_script_s_launches_are_of_any_kernel():
    request = Job("1", "run", "triton", "/k.py", ADD, start=ExecStart())
    records = [
        launched("add", 100),
        launched("_ZN2at6native4fillEv", 200),
        launched("_ZN2at6native4fillEv", 300),
    ]
    finished = python_job.crashed(request, 3, RecordedRun((*series(records),)))
    assert [(launches.name, launches.count) for launches in finished.launches] == [
        ("add", 1),
        ("at::native::fill", 2),
    ]


def test_a_crash_after_a_cuda_error_is_the_cuda_errors(tmp_path):
    error = CudaError(5, "driver", "cuCtxSynchronize", 700, "CUDA_ERROR_ILLEGAL_ADDRESS", "add", 9)
    finished = python_job.crashed(Job("1", "run", "triton", "/k.py", ADD), -6, RecordedRun(errors=(error,)))
    assert finished.failure is not None
    assert finished.failure.message.startswith("CUDA_ERROR_ILLEGAL_ADDRESS")
    assert (finished.failure.symbol, finished.failure.place) == ("add", c.Place("/k.py", 6))
