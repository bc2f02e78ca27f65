"""`orbit-lsp kernel install --on ssh:HOST`: a real ipykernel on the host of a real sshd."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli_check import orbit
from tests.remote.nvcc_check import needs_nvcc
from tests.ssh.host import Host
from tests.test_notebook import Kernel, press_once

pytestmark = pytest.mark.slow
AGAIN = "its variables are gone, so run the notebook from its first cell"


@pytest.fixture
def folder(host: Host, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("JUPYTER_DATA_DIR", "XDG_STATE_HOME", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(host.folder / name.lower()))
    made = host.folder / "work"
    made.mkdir()
    return made


@pytest.fixture
def kernels(host: Host, folder: Path) -> Iterator[Callable[[], Kernel]]:
    made: list[Kernel] = []

    def make() -> Kernel:
        made.append(Kernel(folder, "--on", "ssh:gpu1", "--python", str(host.python), name="orbit-ssh-gpu1"))
        return made[-1]

    yield make
    for each in made:
        each.close()


def without_notices(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.startswith("orbit: "))


@needs_nvcc
@pytest.mark.usefixtures("first_connection")
def test_cells_run_on_the_host(host: Host, folder: Path, kernels: Callable[[], Kernel]) -> None:
    kernel = kernels()
    (folder / "tool.py").write_text("answer = 42")
    first = kernel.run("import tool; tool.answer")
    assert "orbit: setting up orbit-lsp on gpu1" in first
    assert without_notices(first) == "[text/plain]\n42"
    assert str(host.cache / "orbit-lsp" / "ssh" / "notebooks") in kernel.run("import os; print(os.getcwd())")
    (folder / "tool.py").write_text("answer = 7")
    assert kernel.run("import importlib; importlib.reload(tool).answer") == "[text/plain]\n7"
    interrupt = kernel.manager.interrupt_kernel
    assert kernel.run("x = 1; print('on')\nwhile True: pass", press_once(interrupt)).split() == [
        "on",
        "KeyboardInterrupt:",
    ]
    host.drop_links()
    assert without_notices(kernel.run("x")) == "[text/plain]\n1"
    status = kernel.run("%orbit status")
    assert "place    ssh:gpu1" in status
    assert f"python   {host.python}" in status
    assert "gpu1 has no NVIDIA GPU" in kernel.run("%orbit gpu")
    kernel.run("open('out.txt', 'w').write('from there')")
    assert "out.txt: 10 B" in kernel.run("%orbit bring out.txt")
    assert (folder / "out.txt").read_text() == "from there"
    assert "registers" in kernel.run("%%cuda --compile\n__global__ void k(int* x) { x[0] = 1; }")
    kernel.manager.restart_kernel()
    kernel.client.wait_for_ready(timeout=60)
    assert without_notices(kernel.run("import os; os.path.exists('out.txt')")) == "[text/plain]\nTrue"
    assert "ssh:gpu1" in orbit(folder, "sessions", "list")[1]
    code, _, err = orbit(folder, "stop", "--on", "ssh:gpu1")
    assert code == 64
    assert "1 job or notebook kernel on gpu1 would be ended; --yes stops all the same" in err
    cell = kernel.send("print('on', flush=True)\nimport threading\nthreading.Event().wait()")

    def stop(_: str) -> None:
        orbit(folder, "stop", "--on", "ssh:gpu1", "--yes")

    assert without_notices(kernel.outputs(cell, stop)) == f"on\nKernelEnded: it was ended on gpu1; {AGAIN}"
    assert host.processes() == []
    assert not (host.cache / "orbit-lsp" / "ssh").exists()


def test_a_host_that_is_off_and_a_python_without_ipykernel(host: Host, kernels: Callable[[], Kernel]) -> None:
    host.stop()
    kernel = kernels()
    off = (
        "gpu1 takes no ssh connections; check that the machine is on and that `ssh gpu1` works in a terminal"
    )
    assert without_notices(kernel.run("1")).startswith(f"KernelEnded: {off}")
    host.start()
    (host.folder / "sitecustomize.py").write_text("import sys; sys.modules['ipykernel'] = None\n")
    host.login(f"export PYTHONPATH={host.folder}")
    assert re.match(r"KernelEnded: on gpu1: \S+ has no ipykernel: run `", without_notices(kernel.run("1")))
