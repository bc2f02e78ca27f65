"""The pause after which a file is compiled while it is typed."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from orbit_lsp.features.idle_compile import IdleCompile, pause_s
from orbit_lsp.state.documents import TextChange
from orbit_lsp.state.kernel_ids import KernelId
from orbit_lsp.state.placement import RunSetup
from orbit_lsp.state.session import Session
from orbit_remote.common import messages as c
from tests.settings_check import settings_of_values

KERNEL = "__global__ void k(float* x) {}\n"
HERE = c.Machine("p", 1, "python", "3.11", nvcc="/opt/cuda/bin/nvcc")


@pytest.mark.parametrize(("compile_s", "pause"), [(None, 0.5), (0.1, 0.05), (1.0, 0.25), (30.0, 0.5)])
def test_the_pause_follows_what_the_file_costs(compile_s, pause) -> None:
    assert pause_s(compile_s) == pause


class Runs:
    """A scheduler that only notes what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def start(self, action: str, uri: str) -> Runs:
        self.asked.append(f"{action} {uri}")
        self.id = f"r{len(self.asked)}"
        return self

    def cancel_run(self, run: str) -> None:
        self.asked.append(f"cancel {run}")


@pytest.mark.parametrize(
    ("uri", "settings", "machine", "live", "waits"),
    [
        ("file:///k.cu", {}, HERE, False, True),
        ("file:///k.cu", {"compile_on_idle": False}, HERE, False, False),
        ("file:///k.cu", {"compile_on_save": False}, HERE, False, False),
        ("file:///k.cu", {}, None, False, False),
        ("file:///k.cu", {}, HERE, True, False),
        ("file:///k.cuh", {}, HERE, False, False),
    ],
    ids=["a .cu file", "turned off", "nothing is compiled", "no nvcc here", "Live builds it", "a header"],
)
async def test_what_is_compiled_while_it_is_typed(uri, settings, machine, live, waits) -> None:
    session = Session(setup=RunSetup(settings=settings_of_values(settings), machine=machine))
    session.open(uri, 1, KERNEL)
    if live:
        session.live.add(KernelId(uri, "k"))
    idle = IdleCompile(session, Runs())  # type: ignore[arg-type]
    idle.edited(uri)
    assert (uri in idle._pauses) == waits
    idle.shutdown()


async def test_a_newer_edit_ends_the_older_compile() -> None:
    uri, runs = "file:///k.cu", Runs()
    session = Session(setup=RunSetup(machine=HERE))
    session.open(uri, 1, KERNEL)
    idle = IdleCompile(session, runs)  # type: ignore[arg-type]
    idle._paused(uri)
    idle.edited(uri)
    idle.shutdown()
    assert runs.asked == [f"compile {uri}", "cancel r1"]


TRITON = """\
import triton
import triton.language as tl

@triton.jit
def k(x, BLOCK: tl.constexpr = 8):
    tl.store(x, BLOCK)
"""


@pytest.mark.parametrize(
    ("old", "new", "settings", "devices", "compiles"),
    [
        ("tl.store(x, BLOCK)", "tl.stor(x)", {"trusted": True}, (), True),
        ("", "# a comment\n", {"trusted": True}, (), True),
        ("tl.store(x, BLOCK)", "tl.stor(x)", {}, (), False),
        ("tl.store(x, BLOCK)", "tl.stor(x)", {"trusted": True}, (c.Device("H100", 0, "9.0"),), False),
        ("tl.store(x, BLOCK)", "tl.stor(x", {"trusted": True}, (), False),
        ("= 8", "= print()", {"trusted": True}, (), False),
        ("@triton.jit", "@print\n@triton.jit", {"trusted": True}, (), False),
        ("@triton.jit", "", {"trusted": True}, (), False),
        ("import triton\n", "import triton\nprint()\n", {"trusted": True}, (), False),
    ],
    ids=[
        "a kernel's body", "a comment", "no trust", "a GPU", "not Python", "a default", "a decorator", "no kernel any more",
        "the top level",
    ],
)  # fmt: skip
async def test_typing_in_a_triton_file_runs_only_what_a_command_has_run(
    old, new, settings, devices, compiles
) -> None:
    uri, runs = "file:///k.py", Runs()
    machine = c.Machine("p", 1, "python", "3.11", packages={"triton": "3.6.0"}, devices=devices)
    session = Session(setup=RunSetup(settings=settings_of_values(settings), machine=machine))
    session.open(uri, 1, TRITON)
    idle = IdleCompile(session, runs)  # type: ignore[arg-type]

    def typed() -> None:
        idle.edited(uri)
        if uri in idle._pauses:
            idle._paused(uri)

    typed()
    assert runs.asked == []
    frozen = session.freeze(uri)
    idle.run_ended(
        SimpleNamespace(
            frozen=frozen,
            job=SimpleNamespace(language="triton"),
            action="compile",
            finished=c.Finished("r", "ok", build_s=0.2),
        )
    )
    session.change(uri, 2, [TextChange(None, None, TRITON.replace(old, new, 1) if old else new + TRITON)])
    typed()
    assert runs.asked == ([f"compile {uri}"] if compiles else [])
    may = settings == {"trusted": True} and not devices
    assert session.files[uri].runs_otherwise == (may and not compiles)  # then *Compile* is offered
    idle.run_ended(
        SimpleNamespace(
            frozen=frozen,
            job=SimpleNamespace(language="triton"),
            action="compile",
            finished=c.Finished("r", "cancelled"),
        )
    )
    typed()
    assert len(runs.asked) == (3 if compiles else 0)  # cancelled, and begun again
    idle.changed_on_disk({"file:///helpers.py"}, set())
    typed()
    assert len(runs.asked) == (4 if compiles else 0)  # cancelled, and not begun again
    idle.shutdown()
