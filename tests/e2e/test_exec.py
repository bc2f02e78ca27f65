"""`orbit-lsp exec` on this machine, whole: a Python without torch runs the scripts, and there may be no GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from orbit_lsp.cli.exec_command import kernel_table
from orbit_remote.common import measure
from orbit_remote.common import messages as c
from tests import processes_check
from tests.e2e.forks import LIMIT_S, Ended, command
from tests.first_cases import first_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers run on Linux")
PLAIN = os.path.realpath(sys.executable)
"""That of the machine, which has no torch to import."""


def run(folder: Path, *words: str, **environment: str) -> Ended:
    place = {"XDG_CACHE_HOME": str(folder.parent / "cache")}
    return command(
        folder, "exec", "--runner", "local", "--python", PLAIN, *words, environment=place | environment
    )


def finished(folder: Path, *words: str) -> dict:
    return json.loads(run(folder, "--json", *words).stdout)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def test_code_a_file_and_standard_input(folder: Path) -> None:
    (folder / "mine.py").write_text("WHAT = 'a module beside it'\n")
    (folder / "a.py").write_text(
        "import sys, mine\nif __name__ == '__main__': print(sys.argv[1:], mine.WHAT)\n"
    )
    done = run(folder, "-c", "import sys; print(sys.argv[1:])", "--", "x")
    assert (done.returncode, done.stdout) == (0, "['x']\n"), done.stderr
    assert "exit code 0 after " in done.stderr
    done = run(folder, "a.py", "--", "-n", "4")
    assert (done.returncode, done.stdout) == (0, "['-n', '4'] a module beside it\n"), done.stderr
    line = [sys.executable, "-P", "-m", "orbit_lsp", "exec", "-", "--runner", "local", "--python", PLAIN]
    real = subprocess.run(
        line, cwd=folder, input="print(6 * 7)", capture_output=True, text=True, check=False, timeout=LIMIT_S
    )
    assert (real.returncode, real.stdout) == (0, "42\n"), real.stderr


@pytest.mark.parametrize(
    ("code", "status", "outcome"),
    first_of([
        ("raise SystemExit(7)", 7, "runtime error"),
        ("import os; os._exit(9)", 9, "runtime error"),
        ("1 / 0", 1, "runtime error"),
        ("def (", 1, "compile error"),
        ("import os; os.kill(os.getpid(), 9)", 137, "runtime error"),
        ("import sys; sys.exit(0)", 0, "ok"),
    ], 2),
)  # fmt: skip
def test_the_exit_code_is_kept(folder: Path, code: str, status: int, outcome: str) -> None:
    done = run(folder, "--json", "-c", code)
    assert (done.returncode, json.loads(done.stdout)["outcome"]) == (status, outcome)


@pytest.mark.slow
def test_a_program_is_found_beside_the_chosen_python_then_on_path(folder: Path) -> None:
    """As pytest beside a project's Python: that Python runs it, in the copy of the folder."""
    beside, on_path = folder.parent / "env" / "bin", folder.parent / "path"
    for place in (beside, on_path):
        place.mkdir(parents=True)
    (beside / "python").symlink_to(PLAIN)
    (beside / "tool").write_text(
        f"#!{beside}/python\nimport os, sys\nprint(sys.argv[1:], sorted(os.listdir()))\n"
    )
    (on_path / "tool").write_text("#!/bin/sh\necho wrong\n")
    (on_path / "other").write_text('#!/bin/sh\necho "other $1 in $(basename "$PWD"): $(ls)"; exit 3\n')
    (on_path / "work").write_text("#!/bin/sh\necho wrong\n")
    for program in (beside / "tool", *on_path.iterdir()):
        program.chmod(0o755)
    (folder / "test_a.py").write_text("")
    (folder / "work").write_text("#!/bin/sh\necho the folder\n")
    (folder / "work").chmod(0o755)
    path = f"{on_path}{os.pathsep}{os.environ['PATH']}"

    def chosen(*words: str) -> Ended:
        place = {"XDG_CACHE_HOME": str(folder.parent / "cache"), "PATH": path}
        words = ("exec", "--runner", "local", "--python", str(beside / "python"), *words)
        return command(folder, *words, environment=place)

    done = chosen("tool", "--", "-q", "tests")
    assert (done.returncode, done.stdout) == (
        0,
        "['-q', 'tests'] ['_orbit_exec.py', 'test_a.py', 'work']\n",
    ), done.stderr
    done = chosen("--json", "other", "--", "x")
    result = json.loads(done.stdout)
    assert (done.returncode, result["stdout"]) == (3, "other x in work: test_a.py\nwork\n"), done.stderr
    assert chosen("work").stdout == "the folder\n"  # a file of the current folder comes first
    done = chosen("absent")
    assert (done.returncode, done.stderr.partition("absent")[2]) == (
        64,
        ", and no program of that name on PATH or beside the chosen Python\n",
    )


@pytest.mark.slow
def test_any_program(folder: Path) -> None:
    program = folder / "tool"
    program.write_text('#!/bin/sh\necho "$1 in $(basename "$PWD")"; echo "$A" >&2; touch made; exit 3\n')
    done = run(folder, "tool", "--", "here")
    assert (done.returncode, done.stderr) == (
        64,
        "orbit-lsp: error: tool is neither a .py file nor a program; chmod +x makes it a program\n",
    )
    program.chmod(0o755)
    done = run(folder, "tool", "--env", "A=of its own", "--", "here")
    assert (done.returncode, done.stdout) == (3, "here in work\n")
    assert "of its own\n" in done.stderr
    assert not (folder / "made").exists()
    assert run(folder, "tool", "--in-place", "--", "here").returncode == 3
    assert (folder / "made").exists()


def test_variables_are_passed_by_name_only(folder: Path) -> None:
    code = "import os; print(sorted(name for name in os.environ if name.startswith(('MY_', 'MODAL'))))"
    secrets = {"MY_KEY": "1", "MY_OTHER": "2", "MODAL_TOKEN_SECRET": "3"}
    assert run(folder, "-c", code, **secrets).stdout == "[]\n"
    assert (
        run(folder, "-c", code, "--env", "MY_KEY", "--env", "MY_X=1", **secrets).stdout
        == "['MY_KEY', 'MY_X']\n"
    )


def test_files_are_brought_back_and_no_others(folder: Path) -> None:
    (folder / "out").mkdir()
    (folder / "out" / "old").write_text("old")
    code = "import os; open('out/a', 'w').write('new'); open('left', 'w'); os.remove('out/old'); os.symlink('/etc', 'out/b')"
    got = finished(folder, "-c", code, "--bring", "out/**")
    assert got["brought"] == [{"path": "out/a", "size": 3, "content": ""}]
    assert sorted(p.name for p in folder.rglob("*")) == ["a", "old", "out"]
    assert (folder / "out" / "a").read_text() == "new"


def test_a_program_that_deletes_locks_and_fills_its_folder(folder: Path) -> None:
    (folder / "kept").write_text("kept")
    code = (
        "import os, shutil; os.makedirs('locked/in/it'); os.chmod('locked/in', 0); os.chmod('locked', 0)\n"
        "here = os.getcwd(); shutil.rmtree('.', ignore_errors=True); print(here)"
    )
    done = run(folder, "-c", code, "--bring", "**")
    assert done.returncode == 0, done.stderr
    assert [p.name for p in folder.iterdir()] == ["kept"]
    assert not Path(done.stdout.strip()).parent.exists()  # also what was locked


@pytest.mark.slow
def test_what_never_ends_is_ended_with_all_it_started(folder: Path) -> None:
    code = "import os, signal\nif os.fork(): print(os.getpid(), flush=True)\nelse: os.setsid()\nwhile True: signal.pause()"
    done = run(folder, "-c", code, "--limit", "3")
    assert done.returncode == 124
    assert (
        "the run was ended at its limit of 3 s; Python was at _orbit_exec.py:4, in <module> [timed out]\n  raise --limit"
        in done.stderr
    )
    assert not processes_check.command(int(done.stdout))


def test_output_without_end_is_bounded(folder: Path) -> None:
    got = finished(folder, "-c", "for _ in range(3000): print('x' * 9999)")
    assert (got["exit_code"], got["truncated"]) == (0, True)
    assert len(got["stdout"]) < 140_000


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "nothing to run: give a file, -c CODE, or - for code from standard input"),
        (("no.py",), "there is no file no.py"),
        (("k.cu",), "k.cu has to be built first: orbit-lsp run builds and runs it"),
        (("-c", "1", "--mount", "k.cu"), "k.cu is not a folder, so nothing can run in it"),
        (("-c", "1", "--bring", "../x"), "--bring '../x' is not a pattern of files below the folder, as in 'out/**'"),
        (("-c", "1", "--in-place", "--bring", "x"), "--bring has no use with --in-place: files are written to the folder itself"),
        (("-c", "1", "--env", "MODAL_TOKEN_ID"), "--env 'MODAL_TOKEN_ID' is not a variable that a program may get"),
        (("-c", "1", "--env", "NOT_SET_AT_ALL"), "--env NOT_SET_AT_ALL: there is no such variable; --env NOT_SET_AT_ALL=VALUE gives it a value"),
        (("-c", "1", "--on", "H100"), "exec would rent a GPU (H100): add what rented GPUs may cost in a month, as in --budget 20 (dollars)"),
        (("-c", "1", "--limit=-1"), "argument --limit: '-1' is not smoke, candidate, final or a number of seconds"),
        (("-c", "1", "--limit", "quick"), "argument --limit: 'quick' is not smoke, candidate, final or a number of seconds"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_sentence(folder: Path, words: tuple[str, ...], message: str) -> None:
    (folder / "k.cu").write_text("")
    done = run(folder, *words)
    assert (done.returncode, done.stderr.partition("\n")[0]) == (64, f"orbit-lsp: error: {message}")


def test_a_file_has_to_be_in_the_mounted_folder(folder: Path) -> None:
    (folder / "in").mkdir()
    (folder / "a.py").write_text("import os; print(os.listdir())")
    done = run(folder, "a.py", "--mount", "in")
    assert f"a.py is not in {folder / 'in'}; add --mount with a folder that holds it" in done.stderr
    assert run(folder / "in", "../a.py", "--mount", "..").stdout == "['a.py']\n"


@pytest.mark.slow
def test_too_many_files_are_refused_before_anything_runs(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(10_001):
        (folder / str(number)).touch()
    done = run(folder, "-c", "print(1)")
    assert (done.returncode, done.stdout) == (64, "")
    assert f"error: {folder} holds more than 10,000 files" in done.stderr
    assert done.stderr.endswith(
        "Mount a smaller folder, or name files in .orbitignore. --in-place runs without a copy\n"
    )
    assert run(folder, "-c", "print(1)", "--in-place").stdout == "1\n"


def test_the_times_of_its_kernels(folder: Path, recorded_python: str) -> None:
    done = run(folder, "-c", "saxpy()", "--python", recorded_python)
    lines = [" ".join(line.split()) for line in done.stderr.splitlines()[-4:-1]]
    assert lines == [
        "kernels, longest in total first",
        "kernel launches median grid block",
        "saxpy(int, float, const float *, float *) 20 288 µs ±0.2% 262144x1x1 256x1x1",
    ]


def test_a_long_name_leaves_the_numbers_in_sight() -> None:
    name = f"at::native::vectorized_elementwise_kernel<4, {'at::native::Functor<float>, ' * 40}>"
    timing = measure.timing([1000], "in program")
    table = kernel_table([c.Launches("_Z", name, (8, 1, 1), (256, 1, 1), timing, 1)])
    assert [" ".join(line.split()) for line in table.splitlines()][2] == (
        "at::native::vectorized_elementwise_kernel<4, at::native::Fu… 1 1.00 µs 8x1x1 256x1x1"
    )
