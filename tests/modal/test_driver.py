"""A kernel run through a test of its project on a rented GPU: the command, the runner and the container are whole; there is no GPU."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.forks import Ended, command
from tests.modal.conftest import container, told_of_a_gpu
from tests.modal_loopback.fixture import started
from tests.modal_loopback.loopback import Loopback

PLAIN = os.path.realpath(sys.executable)
FILES = {
    "pkg/__init__.py": "",
    "pkg/softmax.py": "try:\n    import triton\nexcept ImportError:\n    class triton:\n        jit = staticmethod(lambda f: f)\n\n@triton.jit\ndef softmax_kernel(x):\n    pass\n\n"
    "def softmax(x):\n    softmax_kernel[(1,)](x)\n",
    "tests/conftest.py": "import pytest\nfrom tests import beside\n\n@pytest.fixture\ndef n():\n    return beside.N\n",
    "tests/__init__.py": "",
    "tests/beside.py": "N = 41\n",
    "tests/test_softmax.py": "import os\nfrom pkg.softmax import softmax\n\n"
    "def test_softmax(n):\n    print('there', n, sorted(os.listdir('tests')))\n    assert n == 42, 'not the answer'\n    softmax(n)\n",
    "pyproject.toml": "[tool.pytest.ini_options]\naddopts = '-s'\n",
    "unrelated.py": "",
}


@pytest.fixture
def modal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Loopback]:
    for name, text in FILES.items():
        path = tmp_path / "work" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    here = container(tmp_path, recorded=False) | {"ORBIT_PYTHON": str(told_of_a_gpu(tmp_path, PLAIN))}
    with started(monkeypatch, tmp_path, here, kept=True) as loopback:
        yield loopback


def run(tmp_path: Path, *words: str) -> Ended:
    line = [
        "run",
        "pkg/softmax.py",
        "--through",
        "auto",
        "--runner",
        "modal",
        "--gpu",
        "H100",
        "--budget",
        "20",
    ]
    return command(tmp_path / "work", *line, "--python", PLAIN, *words)


def test_the_test_and_what_it_needs_travel(modal: Loopback, tmp_path: Path) -> None:
    done = run(tmp_path, "--trust")
    assert done.returncode == 3, done.stderr
    assert "there 41 ['__init__.py', 'beside.py', 'conftest.py', 'test_softmax.py']" in done.stdout
    assert "AssertionError: not the answer" in done.stderr
    assert f"{tmp_path / 'work' / 'tests' / 'test_softmax.py'}:6" in done.stderr


def test_a_folder_that_is_not_trusted_rents_nothing(modal: Loopback, tmp_path: Path) -> None:
    done = run(tmp_path)
    assert done.returncode == 64, done.stderr
    assert "is not trusted" in done.stderr
