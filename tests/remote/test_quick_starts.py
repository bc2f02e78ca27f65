"""What tests put in the place of the product's way to start a program (tests/quick_starts.py) starts it as the product does."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from orbit_remote.process import process_groups
from tests import quick_starts

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere it is not put there")

SEEN = """
import ctypes, os, resource, signal, sys
def asked(what):
    value = ctypes.c_int()
    ctypes.CDLL(None).prctl(what, ctypes.byref(value))
    return value.value
print(asked(2), asked(37), os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid(), os.getcwd(), sys.argv, dict(os.environ))
print([line for line in open("/proc/self/status") if line.startswith("Sig")])
print([resource.getrlimit(kind) for kind in (resource.RLIMIT_DATA, resource.RLIMIT_FSIZE)], sorted(os.listdir("/proc/self/fd")))
"""


async def _seen(folder: Path, memory: int | None) -> bytes:
    command = [sys.executable, "-S", "-E", "-c", SEEN, "a word", ""]
    process = await process_groups.start(command, cwd=folder, env={"A": "b"}, memory=memory)
    out, error = await process.communicate()
    await process_groups.finish(process)
    assert (process.returncode, error) == (0, b"")
    return out


@pytest.mark.parametrize("memory", [None, 1 << 33])
async def test_a_program_sees_no_difference(
    of_the_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory: int | None, real_starts: None
) -> None:
    ignored = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell has it for its background jobs
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    try:
        real = await _seen(tmp_path, memory)
        quick = quick_starts.Starts(quick_starts.built(of_the_run))
        monkeypatch.setattr(asyncio, "create_subprocess_exec", quick)
        assert (await _seen(tmp_path, memory), quick.count) == (real, 1)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        signal.signal(signal.SIGINT, ignored)


@pytest.mark.parametrize(
    "text",
    [None, "no program", "#!/no/such/interpreter\n"],
    ids=["nothing", "a text", "a script without its interpreter"],
)
async def test_what_cannot_start_is_the_same_error(tmp_path: Path, text: str | None) -> None:
    program = tmp_path / "program"
    if text is not None:
        program.write_text(text)
        program.chmod(0o755)
    with pytest.raises(OSError, match=r"program|Exec format error"):
        await process_groups.start([program])
