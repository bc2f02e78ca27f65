"""The action `profile` without a GPU: recorded reports of an H100, and an `ncu` that is a fake.

The fake is a script: it takes the real command line, runs the program as the real one does, and then does what a
test says - copies a report that the real one recorded, or writes a log in the real one's words.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from orbit_remote import contracts as c
from orbit_remote import machine
from tests.remote import profiling
from tests.remote.nvcc_check import needs_nvcc
from tests.remote.profiling import Bench, hottest

RECORDED = Path(__file__).parent.parent / "recordings" / "profiles"
H100 = c.Device("NVIDIA H100 80GB HBM3", capability="9.0", uuid="GPU-1", driver="580.159.04")
PERMISSION = (
    "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters on "
    "the target device 0. For instructions on enabling permissions and to get more information see "
    "https://developer.nvidia.com/ERR_NVGPUCTRPERM"
)
FAKE = """\
#!{python}
import shutil, subprocess, sys
from pathlib import Path

if sys.argv[1] == "--version":
    print("Version {version} (build 1) (public-release)")
    sys.exit()
with open({calls!r}, "a") as calls:
    calls.write(" ".join(sys.argv[1:]) + "\\n")
options = sys.argv[1:]
report = options[options.index("--export") + 1]
log = Path(options[options.index("--log-file") + 1])
program = options[options.index("--export") + 2 :]
status = subprocess.run(program).returncode
log.write_text({log!r} + (f"==ERROR== The application returned an error code ({{status}}).\\n" if status else ""))
if {recording!r}:
    Path(report).write_bytes(Path({recording!r}).read_bytes()[: {bytes}])
sys.exit(status)
"""
PROGRESS = '==PROF== Profiling "saxpy" - 0 (1/1): 0%....50%....100% - 19 passes\n'
SAXPY = (RECORDED / "memory_bound.cu").read_text()

pytestmark = needs_nvcc


class Faked(Bench):
    """A bench whose `ncu` is the fake."""

    def ncu(
        self, recording: str = "", log: str = PROGRESS, *, version: str = "2025.3.1.0", size: int = 1 << 30
    ) -> None:
        file = self.folder / "bin" / "ncu"
        file.parent.mkdir(exist_ok=True)
        source = str(RECORDED / f"{recording}.ncu-rep") if recording else ""
        text = FAKE.format(
            python=sys.executable,
            version=version,
            calls=str(self.calls),
            log=log,
            recording=source,
            bytes=size,
        )
        file.write_text(text)
        file.chmod(0o755)

    @property
    def calls(self) -> Path:
        return self.folder / "calls"


@pytest.fixture
async def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Faked]:
    monkeypatch.setattr(machine, "device", lambda index: H100)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    found = Faked(tmp_path)
    yield found
    await found.context.close()
    assert not await profiling.left_over(tmp_path)


def saxpy(bench: Faked, text: str = SAXPY, **fields: object) -> c.Job:
    # the recordings were made in /src
    from dataclasses import replace

    job = bench.job(
        "memory_bound.cu",
        text.replace("int main() {", "int main(int count, char**) {\n  if (count) return 0;"),
        "saxpy",
        **fields,
    )
    return replace(job, path="/src/memory_bound.cu", directory=str(bench.folder))


async def test_a_profile(bench: Faked) -> None:
    bench.ncu("memory_bound")
    finished = await bench.profile(saxpy(bench))
    assert (finished.outcome, finished.exit_code) == ("ok", 0), finished.failure
    (profile,) = finished.profiles
    assert (profile.name, profile.tier, profile.grid) == ("saxpy", "counters", (65536, 1, 1))
    assert hottest(profile).line == 7
    assert bench.report(finished).read_bytes() == (RECORDED / "memory_bound.ncu-rep").read_bytes()
    assert [one.state for one in bench.events if isinstance(one, c.Stage)] == ["building", "profiling"]
    assert finished.toolchain["ncu"] == profile.tool == "2025.3.1.0"
