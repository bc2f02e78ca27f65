"""A Triton kernel under debugpy: Triton's own interpreter, pydevd and a client of the debug adapter protocol, no GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from orbit_lsp.kernels.python import triton_kernels
from orbit_lsp.specs import launch_plan
from orbit_remote.common import messages as c
from orbit_remote.common.requests import ProgramStart, SpecStart
from tests.debugger_client import DebuggerClient
from tests.remote.python_children import ADD, Children, job_of

SPEC = """# orbit: n = {n}; x = arange(n, dtype=float32); y = ones(n); out = empty(n)
# orbit: launch add[(triton.cdiv(n, 64),)](x, y, out, n, BLOCK=64)
# orbit: expect out == x + y
@triton.jit"""


@dataclass(frozen=True)
class Stop:
    """Where the debugger stopped: the line's text, its variables, and the instance that was announced."""

    line: str
    variables: dict[str, str]
    debugger: c.Debugger


@pytest.fixture
def debug(children: Children, tmp_path: Path) -> Callable[..., list[Stop]]:
    """Each stop of a session whose client has a breakpoint at the line that holds `stop_at`, until it leaves after `most`."""

    def carry_out(
        text: str, stop_at: str = "", most: int = 1, *, by_spec: bool = False, **fields: Any
    ) -> list[Stop]:
        path = tmp_path / "k.py"
        path.write_text(text)
        lines = text.splitlines()
        wanted = [number for number, line in enumerate(lines, 1) if stop_at and stop_at in line]
        stops: list[Stop] = []

        def seen(event: c.Event) -> None:
            if not isinstance(event, c.Debugger):
                return
            client = DebuggerClient(event.host, event.port)
            client.attach(str(path), *wanted)
            for at in range(most):
                frame = client.stopped()
                stops.append(Stop(lines[frame["line"] - 1].strip(), client.variables(frame), event))
                if at + 1 < most:
                    client.proceed()
            client.request("disconnect")
            client.close()

        [kernel] = [kernel for kernel in triton_kernels.scan(text).kernels if kernel.name == "add"]
        definition = launch_plan.definition_of(kernel)
        start = SpecStart(definition) if by_spec else ProgramStart()
        job = job_of(path, text, action="debug", kernel="add", tool_kernel=definition, start=start, **fields)
        finished = children.run(job, seen).finished
        assert finished.outcome == "ok", finished.failure
        return stops

    return carry_out


def spec(n: int, body: str = ADD) -> str:
    return body.replace("@triton.jit", SPEC.format(n=n))


def test_a_breakpoint_is_hit_in_the_first_program_instance(debug):
    [stop] = debug(spec(100), "tl.store", by_spec=True)
    assert stop.line.startswith("tl.store(out_ptr")
    assert stop.debugger.program == (0, 0, 0)
    assert stop.variables["offsets"].startswith("array([ 0,  1,  2")
    assert stop.variables["BLOCK"] == "64"


def test_without_a_breakpoint_it_stops_at_the_first_line(debug):
    [stop] = debug(spec(100), by_spec=True)
    assert stop.line.startswith("offsets = tl.program_id(0)")


def test_only_the_chosen_instance_runs(debug):
    # a second stop would be another program instance
    with pytest.raises(AssertionError, match="closed the connection"):
        debug(spec(1000), "tl.store", most=2, by_spec=True)


LATE = ADD.replace("tl.load(x_ptr + offsets, mask=mask) +", "x * tl.where(offsets == 70, 2, 1) +").replace(
    "    tl.store", "    x = tl.load(x_ptr + offsets, mask=mask)\n    tl.store"
)
"""It adds x[70] twice."""


def test_the_instance_that_writes_the_first_wrong_element(debug):
    [stop] = debug(spec(100, LATE), "tl.store", by_spec=True, instance="wrong")
    assert stop.debugger.program == (1, 0, 0)
    assert stop.debugger.why.startswith("wrong answer: out[70] is 141, expected 71")
    assert stop.variables["offsets"].startswith("array([ 64,  65")


def test_what_a_mask_left_out_is_shown_as_such(debug):
    [stop] = debug(spec(100, LATE), "tl.store", by_spec=True, instance="wrong")
    shown = stop.variables["x"]
    assert shown.startswith("masked_array(data=[64.0, 65.0")
    assert "98.0, 99.0, --, --" in " ".join(shown.split())


def test_a_file_that_is_not_on_disk(children, tmp_path):
    text = spec(100)
    [kernel] = triton_kernels.scan(text).kernels
    definition = launch_plan.definition_of(kernel)
    path = tmp_path / "new.py"
    done = children.run(job_of(path, text, action="debug", start=SpecStart(definition)))
    assert done.failure.message == f"{path} is not on disk, where debuggers look for it"


def test_where_interpreted_checks_pass_it_is_the_first_instance(debug):
    [stop] = debug(spec(100), "tl.store", by_spec=True, instance="wrong")
    assert stop.debugger.program == (0, 0, 0)
    assert stop.debugger.why == "interpreted, every check passes, so this is the first program instance"


PROGRAM = ADD + dedent("""
    def main():
        x = torch.arange(100, device="cuda", dtype=torch.float32)
        out = torch.empty_like(x)
        for _ in range(2):
            add[(triton.cdiv(100, 64),)](x, x, out, 100, BLOCK=64)
        torch.cuda.synchronize()
        assert torch.equal(out, 2 * x)
    """)


def test_a_program_is_stopped_in_one_instance_of_each_launch(debug):
    stops = debug(PROGRAM, "tl.store", most=2)
    assert [stop.variables["offsets"][:14] for stop in stops] == ["array([ 0,  1,"] * 2
