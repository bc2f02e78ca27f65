"""Finding nvcc, with small scripts in its place: which one is taken, and what is said when it does not work."""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from orbit_remote.common.messages import Failure
from orbit_remote.process import disk_space
from orbit_remote.toolchain import nvcc
from tests import recorder_builds
from tests.processes_check import LIMIT_S

pytestmark = pytest.mark.skipif(
    os.name != "posix" or sys.platform == "darwin", reason="scripts stand in for nvcc"
)

ANSWERS = """#!/bin/sh
case "$1" in
--version) echo "Cuda compilation tools, release 13.0, V13.0.88" ;;
*) echo "#$ TOP=/opt/real/bin/.." >&2 ;;
esac
"""


def script(path: Path, text: str, mode: int = 0o755) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine with a host compiler, the system's tools and no CUDA."""
    for tool in ("gcc", "g++"):
        script(tmp_path / "bin" / tool, "#!/bin/sh\necho 'g++ (Test) 12.2.0'\n")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.delenv("CUDA_PATH", raising=False)
    monkeypatch.setattr(nvcc, "SYSTEM", tmp_path / "usr-local-cuda")
    monkeypatch.setattr(nvcc, "site_packages", lambda python: [Path(python)] if python else [])
    return tmp_path


def test_the_order_of_preference(machine, monkeypatch):
    wheel = script(machine / "site-packages/nvidia/cu13/bin/nvcc", ANSWERS)
    assert isinstance(nvcc.find(python=str(machine / "site-packages")), Failure)  # one wheel of several
    script(machine / "site-packages/nvidia/cu13/include/cuda_runtime.h", "")
    script(machine / "site-packages/nvidia/cu13/nvvm/bin/cicc", "")
    result = nvcc.find(python=str(machine / "site-packages"))
    assert result == nvcc.Nvcc(
        str(wheel), "13.0.88", "/opt/real", str(machine / "bin/g++"), "g++ (Test) 12.2.0"
    )  # fmt: skip
    places = [
        machine / "usr-local-cuda/bin/nvcc",
        machine / "bin/nvcc",
        machine / "path/bin/nvcc",
        machine / "home/bin/nvcc",
    ]
    monkeypatch.setenv("CUDA_HOME", str(machine / "home"))
    monkeypatch.setenv("CUDA_PATH", str(machine / "path"))
    for place in places:  # each comes before the ones already there
        script(place, ANSWERS)
        assert nvcc.find(python=str(machine / "site-packages")).path == str(place)
    setting = script(machine / "mine/nvcc-wrapper", ANSWERS)
    assert nvcc.find(str(setting)).path == str(setting)
    assert nvcc.find(str(machine / "home")).path == str(places[-1])
    assert nvcc.find("nvcc").path == str(machine / "bin/nvcc")


def failure(machine: Path, text: str, mode: int = 0o755) -> Failure:
    result = nvcc.find(str(script(machine / "nvcc", text, mode)))
    assert isinstance(result, Failure)
    assert result.category == "infrastructure"
    assert result.remedy
    return result


def test_none_at_all(machine):
    result = nvcc.find()
    assert isinstance(result, Failure)
    assert result.message == "no CUDA compiler (nvcc) was found"
    assert "-m pip install 'cuda-toolkit[" in result.remedy


def test_a_setting_that_names_nothing_is_not_replaced_by_another(machine):
    script(machine / "bin/nvcc", ANSWERS)
    result = nvcc.find(str(machine / "nowhere"))
    assert isinstance(result, Failure)
    assert str(machine / "nowhere") in result.message


def test_not_executable(machine):
    result = failure(machine, ANSWERS, 0o644)
    assert result.message.endswith("is not executable")
    assert result.remedy == f"chmod +x {machine / 'nvcc'}"


def test_not_a_program(machine):
    assert "cannot be started" in failure(machine, "\x7fELF nonsense").message


def test_fails(machine):
    result = failure(machine, "#!/bin/sh\necho 'libfoo.so is missing' >&2\nexit 127\n")
    assert "status 127: libfoo.so is missing" in result.message


def test_says_nothing(machine):
    assert "it said nothing" in failure(machine, "#!/bin/sh\nexit 0\n").message


def test_hangs_and_leaves_nothing_behind(machine, monkeypatch):
    os.mkfifo(machine / "alive")
    reader = os.open(machine / "alive", os.O_RDONLY | os.O_NONBLOCK)
    wait = subprocess.Popen.wait

    def limited(process, timeout=None):
        """The limit is reached as soon as the script hangs."""
        if timeout is not None:
            assert timeout == nvcc.PROBE_LIMIT_S
            assert select.select([reader], [], [], LIMIT_S)[0], "the script did not begin"
            timeout = 0.0
        return wait(process, timeout)

    monkeypatch.setattr(subprocess.Popen, "wait", limited)
    # a grandchild that would outlive the script
    result = failure(
        machine, f"#!/bin/sh\n(echo started; exec /bin/sleep 1000) > {machine / 'alive'} &\nwait\n"
    )
    assert "did not answer within 20 s" in result.message
    assert os.read(reader, 100) == b"started\n"
    assert select.select([reader], [], [], LIMIT_S)[0]  # killed, it is gone as soon as the kernel gets to it
    assert os.read(reader, 100) == b""  # no writer is left
    os.close(reader)


def test_no_host_compiler(machine):
    (machine / "bin/g++").unlink()
    result = failure(machine, ANSWERS)
    assert result.message == "nvcc needs a C++ compiler beside it, and there is no g++ on PATH"
    script(machine / "bin/apt-get", "#!/bin/sh\n")
    assert failure(machine, ANSWERS).remedy == "sudo apt-get install g++"


def test_a_host_compiler_nvcc_cannot_use(machine):
    text = ANSWERS.replace(
        'echo "#$', 'echo "nvcc fatal   : Failed to preprocess host compiler properties." >&2; echo "#$'
    )
    assert "Failed to preprocess host compiler properties." in failure(machine, text).message


def test_a_full_temporary_folder_is_not_blamed_on_the_host_compiler(machine, monkeypatch):
    """The words are nvcc 13.0's and g++ 12's with such a TMPDIR; that it is full is pretended."""
    monkeypatch.setenv("TMPDIR", "/full")
    monkeypatch.setattr(disk_space, "full", lambda folder: folder == Path("/full"))
    text = ANSWERS.replace(
        'echo "#$', 'echo "nvcc fatal   : Failed to preprocess host compiler properties." >&2; echo "#$'
    )
    result = failure(machine, text)
    assert result.message == "there is no space left in /full, where nvcc and g++ write their temporary files"
    assert "TMPDIR" in result.remedy


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which("nvcc") is None
    or subprocess.run(["unshare", "-rm", "mount", "-t", "tmpfs", "none", "/mnt"], check=False).returncode
    != 0,
    reason="a file system that is full needs nvcc and the right to mount one",
)
def test_a_file_system_that_is_full(tmp_path):
    code = (
        "from orbit_remote.recording import injection\nfrom orbit_remote.toolchain import nvcc\nfrom pathlib import Path\nprint(nvcc.find().message)\n"
        "try: injection.build(Path('ours'), injection.find())\nexcept injection.RecorderUnavailableError as e: print(e.message)\n"
    )
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", f'mount -t tmpfs -o size=64k none {tmp_path}; cat /dev/zero >{tmp_path}/all; exec "$2" -c "$1"', "sh", code, sys.executable],
        env=os.environ | {"TMPDIR": str(tmp_path), "PATH": recorder_builds.real_path()}, cwd=tmp_path.parent, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.splitlines() == [
        f"there is no space left in {tmp_path}, where nvcc and g++ write their temporary files",
        f"launches cannot be measured: there is no space left in {tmp_path} to compile the launch recorder",
    ], done.stderr


def test_macos(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    result = nvcc.find()
    assert isinstance(result, Failure)
    assert result.message.startswith("there is no CUDA compiler for macOS")
    assert "Linux" in result.remedy


def test_asked_once_until_it_changes(machine):
    log = machine / "log"
    path = script(machine / "nvcc", ANSWERS.replace("#!/bin/sh\n", f"#!/bin/sh\necho $1 >> {log}\n"))
    first = nvcc.find(str(path))
    assert nvcc.find(str(path)) is first
    assert log.read_text().count("--version") == 1
    script(path, path.read_text().replace("13.0.88", "13.1.99"))
    os.utime(path, ns=(1, 1))
    assert nvcc.find(str(path)).version == "13.1.99"
