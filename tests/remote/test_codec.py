"""Contracts from JSON: what was sent comes back equal, and what is no contract is refused."""

from __future__ import annotations

import dataclasses
import json

import pytest

from orbit_remote.common import codec
from orbit_remote.common import messages as c
from orbit_remote.common.measurements import Telemetry, Timing, Tried
from orbit_remote.common.requests import (
    Cancel,
    ContractStart,
    Driver,
    DriverStart,
    ExecStart,
    Job,
    KernelDefinition,
    ProgramStart,
    SpecStart,
)

FINISHED = c.Finished(
    run="7",
    outcome="runtime error",
    failure=c.Failure("runtime error", "illegal address", place=c.Place("k.py", 3, 5, 9), symbol="add"),
    problems=(c.Problem("error", "no", "triton", notes=(c.Note("called from here", c.Place("k.py", 4)),)),),
    launches=(
        c.Launches("add", "add", (4, 1, 1), (128, 1, 1), Timing(2, 5.0, "in program", samples=(5, 5)), 2,
                   cluster=(2, 1, 1), constants={"BLOCK": "128"}),
    ),
    device=c.Device("H100", memory=80 << 30),
    telemetry=Telemetry(3, sm_clock_mhz=(1.0, 2.0, 3.0)),
    toolchain={"triton": "3.6.0"},
    exit_code=1,
    run_s=0.5,
)  # fmt: skip


@pytest.mark.parametrize("message", [FINISHED, c.Finished("1", "ok"), c.Stage("1", "running", 2.0)])
def test_what_was_sent_comes_back(message):
    assert codec.build(type(message), json.loads(c.encode(message))) == message


@pytest.mark.parametrize("message", [FINISHED, c.Stage("1", "running", 2.0), Cancel("1")])
def test_a_line_has_all_fields_and_the_kind(message):
    fields = {"kind": type(message).__name__.lower()} | dataclasses.asdict(message)
    assert json.loads(c.encode(message)) == json.loads(json.dumps(fields))


JOB = Job("1", "run", "cuda", "/k.cu", "")
DRIVER = Driver("program", "bench.cu", arguments=("4",))


@pytest.mark.parametrize(
    "start",
    [
        ProgramStart(traced=True),
        SpecStart(KernelDefinition("k", "n::k", 0, 1, 1, 9)),
        ContractStart("referee"),
        ExecStart("/w", ("a.py",), ("out/**",)),
        DriverStart(DRIVER, {"a.cu": "text"}, ("t[1]",), True, ("b.cu",)),
    ],
    ids=lambda start: start.through,
)
def test_a_job_comes_back_with_what_starts_its_kernel(start):
    job = dataclasses.replace(JOB, start=start)
    assert codec.decode_request(c.encode(job)) == job


@pytest.mark.parametrize(
    ("start", "error"),
    [
        ({"through": "program", "definition": None}, "not a ProgramStart: 'definition'"),
        ({"through": "driver"}, "not a DriverStart: .*'driver'"),
        ({"through": "luck"}, "'luck' is not a through: it is one of program, spec, contract, exec, driver"),
        ({"through": []}, r"\[\] is not a through"),
        ({}, "None is not a through"),
        ("program", "None is not a through"),
    ],
)
def test_what_starts_no_kernel_is_refused(start, error):
    sent = json.loads(c.encode(JOB)) | {"start": start}
    with pytest.raises(ValueError, match=error):
        codec.decode_request(json.dumps(sent))


def test_what_is_no_message_is_not_sent():
    with pytest.raises(TypeError):
        c.encode(c.Output("1", "stdout", object()))


@pytest.mark.parametrize(
    "samples", [[1, True], [1, 2.5], [1, "2"], [1, None], [1, 1 << 70], [-(1 << 70), 1]], ids=str
)
def test_each_of_many_times_is_an_integer(samples):
    with pytest.raises(ValueError, match="is not int"):
        codec.build(Timing, {"n": 2, "median": 1.0, "label": "", "samples": samples})


def test_an_integer_is_a_float_where_one_is_meant():
    assert codec.build(c.Stage, {"run": "1", "state": "done", "at": 5}).at == 5.0


@pytest.mark.parametrize(
    "change",
    [
        {"outcome": "splendid"},
        {"run": 7},
        {"exit_code": True},
        {"exit_code": "1"},
        {"launches": {}},
        {"launches": [{"symbol": "add"}]},
        {"remarks": "one"},
        {"toolchain": {"triton": 3}},
        {"telemetry": {"samples": 1, "power_w": [1.0, 2.0]}},
        {"strange": 1},
    ],
)
def test_what_is_no_contract_is_refused(change):
    with pytest.raises(ValueError, match=r"not"):
        codec.build(c.Finished, json.loads(c.encode(FINISHED)) | change)


@pytest.mark.parametrize("number", ["1" + "0" * 400, "NaN", "Infinity", "-Infinity", str(1 << 63)])
def test_a_number_that_nothing_can_be_computed_with_is_refused(number: str):
    with pytest.raises(ValueError, match=r"not float"):
        codec.decode_event(codec.read_json(f'{{"kind":"stage","run":"1","state":"done","at":{number}}}'))
    with pytest.raises(ValueError, match=r"not int"):
        codec.build(c.Place, codec.read_json(f'{{"file":"k.cu","line":{number}}}'))


def test_no_number_is_unavailable_where_it_may_be():
    assert codec.build(Tried, {"configuration": "", "median": float("nan")}).median is None


@pytest.mark.parametrize("line", ["[" * 200_000, '{"kind":' * 200_000, "1" * 5_000, "{", "", '{"kind": []}'])
def test_a_line_that_is_no_request_is_one_kind_of_error(line):
    with pytest.raises(ValueError, match=r"^not "):
        codec.decode_request(line)
