"""What can go wrong on the way to a rented GPU and back, what its user then sees, and what stays rented.

    python -m tests.modal.faults           each row done (test_faults.py) and printed
    python -m tests.modal.faults --write   … and the table put into docs/dev/modal-stand-in.md

`…` in a sentence stands for what differs from time to time.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpclib import Status
from modal_proto import api_pb2 as pb

from orbit_remote.common import messages as c
from orbit_remote.common import requests
from tests.modal.desk import HANGS, SAXPY, Desk, program

NUMBERS = "saxpy 288 µs"
PAGE = Path(__file__).parents[2] / "docs" / "dev" / "modal-stand-in.md"
BEGIN, END = "<!-- faults: python -m tests.modal.faults --write -->\n", "<!-- end of faults -->\n"
SLOW = SAXPY + "// SLOW\n"  # of the recorded worker: it runs until it is cancelled


@dataclass(frozen=True)
class Fault:
    """`warm` is how many GPUs stay rented until their idle time. None as `outcome`: nobody is left to see it."""

    what: str
    act: Callable[[Desk], Coroutine[Any, Any, None]]
    outcome: c.Outcome | None
    sees: tuple[str, ...]
    warm: int

    def row(self) -> str:
        seen = "<br>".join(self.sees).replace("|", "\\|").replace("\n", "<br>")
        return f"| {self.what} | {self.outcome or '-'} | {seen or '-'} | {self.remains} |"

    @property
    def remains(self) -> str:
        return (
            "nothing"
            if not self.warm
            else f"{self.warm} GPU, warm"
            if self.warm == 1
            else f"{self.warm} GPUs, warm"
        )


FAULTS: list[Fault] = []


def fault(what: str, outcome: c.Outcome | None, *sees: str, warm: int) -> Callable[[Any], Any]:
    def add(act: Any) -> Any:
        FAULTS.append(Fault(what, act, outcome, sees, warm))
        return act

    return add


# -- reaching Modal ---------------------------------------------------------------------------------


@fault(
    "no token", "infrastructure",
    "there is no Modal token on this machine. `… -m modal token new` makes a token", warm=0,
)  # fmt: skip
async def no_token(desk: Desk) -> None:
    desk.patch.delenv("MODAL_TOKEN_ID")
    await desk.run()


@fault(
    "a token that Modal does not know", "infrastructure",
    "Modal does not accept the token: …. make a token at modal.com/settings/tokens, put it into MODAL_TOKEN_ID and MODAL_TOKEN_SECRET, …", warm=0,
)  # fmt: skip
async def bad_token(desk: Desk) -> None:
    desk.patch.setenv("MODAL_TOKEN_SECRET", "as-wrong")
    await desk.run()


OFFLINE = "Modal did not answer within … s. check this machine's network connection, and status.modal.com"


@fault("the connection is refused", "infrastructure", OFFLINE, warm=0)
async def refused(desk: Desk) -> None:
    desk.modal.refuse_connections()
    await desk.run()
    desk.modal.accept_connections()


@fault("DNS does not know Modal's name", "infrastructure", OFFLINE, warm=0)
async def no_name(desk: Desk) -> None:
    desk.patch.setenv("MODAL_SERVER_URL", "https://modal.invalid")
    await desk.run()


@fault("the network is gone at a later click", "infrastructure", OFFLINE, warm=1)
async def refused_later(desk: Desk) -> None:
    await desk.run()
    desk.modal.refuse_connections()
    desk.patch.setattr("orbit_lsp.runners.modal.deploy.CONTACT_S", 0.5)
    await desk.run()
    desk.modal.accept_connections()
    await desk.until_reached()


@fault("the laptop slept, and its connection leads nowhere", "ok", NUMBERS, warm=1)
async def slept(desk: Desk) -> None:
    desk.patch.setattr("orbit_lsp.runners.modal.deploy.CONTACT_S", 5.0)
    await desk.run()
    desk.modal.silence_connections()
    before = len(desk.ends)
    await desk.run()
    assert [finished.outcome for _, finished in desk.ends[before:]] == ["ok"]


@fault(
    "… in a run, whose further output may be lost, but not its result",
    "ok",
    "ran, no kernel launch was recorded",
    warm=1,
)
async def slept_in_a_run(desk: Desk) -> None:
    go = desk.folder.parent / "go"
    desk.runs_programs()
    waits = f'puts("begun"); fflush(stdout); while (!exists("{go}")) usleep(1000);'
    run = desk.click(program(waits))
    await desk.sees("begun")
    desk.modal.silence_connections()
    go.touch()
    await desk.ended(run)


@fault("somebody deletes the queue of events", "ok", "done at last", warm=1)
async def queue_deleted(desk: Desk) -> None:
    desk.patch.setattr("orbit_lsp.runners.modal.spawned.SIGN_S", 0.5)  # 5
    desk.modal.do(lambda world: world.container_env.update({"ORBIT_GONE_S": "5"}))  # 20
    desk.runs_programs()
    first = desk.click(program('puts("done"); fflush(stdout);'))
    await desk.ended(first)
    desk.modal.expire_queues(named=True)
    slow = program('puts("begun"); fflush(stdout); sleep(7); puts("done at last");')
    assert (await desk.run(slow)).outcome == "ok"
    desk.shown.clear()
    await desk.run(program('puts("begun"); fflush(stdout); puts("done at last");'))
    assert "begun" in "".join(desk.shown)  # through another queue


# -- Modal's own faults -----------------------------------------------------------------------------


@fault("UNAVAILABLE twice, then fine", "ok", NUMBERS, warm=1)
async def unavailable_twice(desk: Desk) -> None:
    await desk.run()
    desk.modal.fail("FunctionMap", Status.UNAVAILABLE, "maintenance", times=2)
    await desk.run()


@fault(
    "UNAVAILABLE for longer",
    "infrastructure",
    "Modal cannot be reached: …. check the network connection",
    warm=0,
)
async def unavailable(desk: Desk) -> None:
    desk.modal.fail("FunctionMap", Status.UNAVAILABLE, "maintenance", times=None)
    await desk.run()


@fault(
    "RESOURCE_EXHAUSTED once", "ok",
    "Modal has no free machine now: too many containers; trying again (1 of 2)", NUMBERS, warm=1,
)  # fmt: skip
async def exhausted_once(desk: Desk) -> None:
    await desk.run()
    desk.modal.fail("FunctionMap", Status.RESOURCE_EXHAUSTED, "too many containers")
    await desk.run()


@fault(
    "RESOURCE_EXHAUSTED for longer", "infrastructure",
    "Modal has no free machine now: too many containers; trying again (2 of 2)",
    "Modal has no free machine now: too many containers. run it again in a minute, or choose another GPU", warm=0,
)  # fmt: skip
async def exhausted(desk: Desk) -> None:
    desk.modal.fail("FunctionMap", Status.RESOURCE_EXHAUSTED, "too many containers", times=None)
    await desk.run()


@fault("Modal throttles, and says when to come back", "ok", NUMBERS, warm=1)
async def throttled(desk: Desk) -> None:
    await desk.run()
    desk.modal.fail("FunctionMap", Status.RESOURCE_EXHAUSTED, "too many requests", times=2, retry_after_s=0.1)
    await desk.run()


@fault(
    "… for longer than 10 s, three times", "infrastructure",
    "Modal takes no more requests now: too many requests; trying again (2 of 2)",
    "Modal takes no more requests now: too many requests. run it again in a minute", warm=0,
)  # fmt: skip
async def throttled_for_long(desk: Desk) -> None:
    desk.patch.setenv("MODAL_MAX_THROTTLE_WAIT", "1")  # 10
    desk.modal.fail(
        "FunctionMap", Status.RESOURCE_EXHAUSTED, "too many requests", times=None, retry_after_s=0.5
    )
    await desk.run()


SPENT = "workspace billing cycle spend limit reached"
SPENT_TOLD = (
    f"the workspace may spend no more on Modal: {SPENT}. modal.com/settings/usage raises the limit; else it ends with "
    "the billing cycle"
)


@fault("the workspace's spend limit is reached", "infrastructure", SPENT_TOLD, warm=0)
async def spent(desk: Desk) -> None:
    before = desk.modal.world.calls_of["FunctionMap"]
    desk.modal.fail("FunctionMap", Status.RESOURCE_EXHAUSTED, SPENT, times=None)
    await desk.run()
    assert desk.modal.world.calls_of["FunctionMap"] == before + 1


@fault("… before the app is there", "infrastructure", SPENT_TOLD, warm=0)
async def spent_before(desk: Desk) -> None:
    desk.modal.forget_kept()
    desk.modal.fail("AppCreate", Status.FAILED_PRECONDITION, SPENT, times=None)
    desk.modal.fail("AppGetOrCreate", Status.FAILED_PRECONDITION, SPENT, times=None)
    await desk.run()


@fault("another laptop puts the same app there at the same time", "ok", NUMBERS, warm=1)
async def app_locked(desk: Desk) -> None:
    desk.modal.forget_kept()
    desk.modal.fail("AppPublish", Status.FAILED_PRECONDITION, "The selected app is locked", times=1)
    await desk.run()


@fault(
    "INTERNAL", "infrastructure",
    "Modal failed: something broke. run it again; see also status.modal.com", warm=0,
)  # fmt: skip
async def internal(desk: Desk) -> None:
    desk.modal.fail("FunctionMap", Status.INTERNAL, "something broke", times=None)
    await desk.run()


@fault(
    "Modal fails a call before it runs", "infrastructure",
    "Modal failed: lost it. run it again; see also status.modal.com", warm=0,
)  # fmt: skip
async def internal_failure(desk: Desk) -> None:
    desk.modal.fail_input(pb.GenericResult.GENERIC_STATUS_INTERNAL_FAILURE, "lost it")
    await desk.run()


@fault("the network drops each call once", "ok", NUMBERS, warm=1)
async def each_call_drops_once(desk: Desk) -> None:
    for rpc in ("ClientHello", "ClassGet", "FunctionBindParams", "FunctionMap", "FunctionGetOutputs", "QueueGetOrCreate",
                "QueuePut", "QueueGet", "FunctionGetTimeRangeStats"):  # fmt: skip
        desk.modal.fail(rpc, Status.UNAVAILABLE, "connection reset")
    await desk.run()


@fault("Modal dies in mid-call and comes back", "ok", "carried on", warm=1)
async def server_dies_and_returns(desk: Desk) -> None:
    go = desk.folder.parent / "go"
    desk.runs_programs()
    waits = f'puts("begun"); fflush(stdout); while (!exists("{go}")) usleep(1000); puts("carried on");'
    run = desk.click(program(waits))
    await desk.sees("begun")
    desk.modal.refuse_connections()
    desk.modal.accept_connections()
    go.touch()
    await desk.ended(run)


@fault("… and stays away for 20 s", "infrastructure",
       "Modal has not answered for … s. check the network connection; the container ends the run by itself", warm=1)  # fmt: skip
async def server_dies(desk: Desk) -> None:
    desk.patch.setattr("orbit_lsp.runners.modal.spawned.SIGN_S", 0.5)  # 5
    desk.modal.do(lambda world: world.container_env.update({"ORBIT_GONE_S": "10"}))  # 20
    desk.runs_programs()
    run = desk.click(HANGS)
    await desk.sees("begun")
    # not before: on a busy machine an answer may take longer than this
    desk.patch.setattr("orbit_lsp.runners.modal.spawned.AWAY_S", 2.0)  # 20
    desk.modal.refuse_connections()
    await desk.ended(run)
    await desk.until_gone(desk.work)
    desk.modal.accept_connections()
    await desk.until_reached()


@fault("Modal's queue is silent", "ok", NUMBERS, warm=1)
async def silent_queue(desk: Desk) -> None:
    desk.modal.silence_queues()
    await desk.run()


@fault("Modal's clock is an hour ahead", "ok", NUMBERS, warm=1)
async def clock_ahead(desk: Desk) -> None:
    desk.modal.skew_clock(3600)
    await desk.run()


@fault("Modal's clock is an hour behind", "ok", NUMBERS, warm=1)
async def clock_behind(desk: Desk) -> None:
    desk.modal.skew_clock(-3600)
    await desk.run()


# -- images and containers --------------------------------------------------------------------------


@fault(
    "the image does not build", "infrastructure",
    "ERROR: No matching distribution found. check the settings `orbit.modal.pip` and `orbit.modal.apt`, which add "
    "packages to the image", warm=0,
)  # fmt: skip
async def image_fails(desk: Desk) -> None:
    desk.modal.fail_build("no-such", "Collecting no-such\nERROR: No matching distribution found\n")
    desk.spec(pip=("no-such",))
    await desk.run()


@fault("the workspace's image builder does not have the author's Python", "infrastructure",
       "the workspace's image builder does not have this Python: Unsupported Python version: '3.14'. …. "
       "modal.com/settings/image-config chooses a newer image builder, the setting `orbit.python` another Python", warm=0)  # fmt: skip
async def old_builder(desk: Desk) -> None:
    desk.modal.do(lambda world: setattr(world, "image_builder", "2024.10"))
    desk.spec(python="3.14")
    await desk.run()


@fault("the workspace's image builder is newer than Modal's client", "infrastructure",
       "Modal's client is of another version than the workspace: …. `… -m pip install --upgrade modal` installs a newer client",
       warm=0)  # fmt: skip
async def new_builder(desk: Desk) -> None:
    desk.modal.forget_kept()
    desk.modal.do(lambda world: setattr(world, "image_builder", "2031.01"))
    await desk.run()


@fault("a run beyond the function's time limit", "timed out",
       "Modal ended the run at the function's time limit. raise the settings `orbit.build_timeout_s` and "
       "`orbit.run_timeout_s`", warm=0)  # fmt: skip
async def time_limit(desk: Desk) -> None:
    desk.spec(timeout_s=2)
    await desk.run(SLOW)


def twice(desk: Desk) -> str:
    """Ends the second time that it is started."""
    first = desk.folder.parent / "first"
    return program(
        f'if (exists("{first}")) {{ puts("done at last"); return 0; }} make("{first}"); '
        'puts("begun"); fflush(stdout); for (;;) pause();'
    )


@fault("a container is killed for want of memory", "ok",
       "its container was lost; the run starts again in another one", "done at last", warm=1)  # fmt: skip
async def killed(desk: Desk) -> None:
    desk.runs_programs()
    run = desk.click(twice(desk))
    await desk.sees("begun")
    await desk.there(desk.modal.kill_containers)
    await desk.ended(run)


async def killed_in_each_attempt(desk: Desk) -> None:
    run = desk.click(SLOW)
    for times in (1, 2, 3):
        await desk.until(lambda times=times: desk.shown.count("running") == times)
        await desk.there(desk.modal.kill_containers)
    await desk.ended(run)


@fault("… every time", "infrastructure",
       "its container was lost 3 times, so the run was ended: did it run out of memory?. use less of the machine's "
       "memory; `modal app logs …` has its output", warm=0)  # fmt: skip
async def killed_always(desk: Desk) -> None:
    await killed_in_each_attempt(desk)
    assert desk.gpus_begun() == 3


@fault("… and Modal does not count containers", "infrastructure",
       "its container was lost 3 times, so the run was ended: did it run out of memory?", warm=0)  # fmt: skip
async def killed_always_uncounted(desk: Desk) -> None:
    desk.modal.fail("FunctionGetTimeRangeStats", Status.UNIMPLEMENTED, "no statistics", times=None)
    await killed_in_each_attempt(desk)
    assert desk.gpus_begun() == 4  # the last is ended at its first word


@fault("the worker in a container cannot be started", "infrastructure",
       "the container could not do the job: FileNotFoundError: …",
       "`modal app logs …` has all of it; report it with that text", warm=0)  # fmt: skip
async def worker_does_not_start(desk: Desk) -> None:
    desk.modal.do(lambda world: world.container_env.update({"ORBIT_HOME": "/proc/nowhere"}))
    desk.compiled = True  # it goes straight to its GPU
    await desk.run()
    assert desk.gpus_begun() == 1


@fault("every container fails as it starts", "infrastructure",
       "3 containers on Modal failed as they started, so no more are rented", "could not convert string to float: 'not a number'",
       "`modal app logs …` has all of it; report it with that text", warm=0)  # fmt: skip
async def containers_do_not_start(desk: Desk) -> None:
    desk.modal.do(
        lambda world: world.container_env.update({"ORBIT_GONE_S": "not a number"})
    )  # read at import
    desk.compiled = True
    await desk.run()
    assert desk.gpus_begun() == 3


@fault("… and Modal's clock is an hour ahead", "infrastructure",
       "3 containers on Modal failed as they started, so no more are rented", warm=0)  # fmt: skip
async def containers_do_not_start_at_another_hour(desk: Desk) -> None:
    desk.modal.skew_clock(3600)
    await containers_do_not_start(desk)


@fault("… and the app was put there just now", "infrastructure",
       "3 containers on Modal failed as they started, so no more are rented", "could not convert string to float: 'not a number'",
       warm=0)  # fmt: skip
async def image_does_not_start(desk: Desk) -> None:
    desk.modal.forget_kept()
    desk.modal.do(lambda world: world.container_env.update({"ORBIT_GONE_S": "not a number"}))
    desk.compiled = True
    await desk.run()
    assert not desk.gpus_begun()
    assert all(app.over for app in desk.modal.world.apps.values())  # the next click tries anew, without a GPU


@fault("a container is preempted", "ok",
       "its container was lost; the run starts again in another one", "done at last", warm=1)  # fmt: skip
async def preempted(desk: Desk) -> None:
    desk.runs_programs()
    run = desk.click(twice(desk))
    await desk.sees("begun")
    await desk.there(desk.modal.preempt_containers)
    await desk.ended(run)


@fault("… four times in a row", "ok",
       "its container was lost; the run starts again in another one", "done at last", warm=1)  # fmt: skip
async def preempted_often(desk: Desk) -> None:
    desk.runs_programs()
    go = desk.folder.parent / "go"
    waits = f'if (exists("{go}")) {{ puts("done at last"); return 0; }} puts("begun"); fflush(stdout); for (;;) pause();'
    run = desk.click(program(waits))
    for times in (1, 2, 3, 4):
        await desk.until(lambda times=times: "".join(desk.shown).count("begun") == times)
        if times == 4:
            go.touch()
        await desk.there(desk.modal.preempt_containers)
    await desk.ended(run)


@fault("the worker in the container dies", "infrastructure",
       "the worker process in the container ended unexpectedly. run it again; `modal app logs` has its output",
       warm=1)  # fmt: skip
async def worker_dies(desk: Desk) -> None:
    await desk.run(SAXPY + "// CRASH\n")


@fault("another GPU than the one asked for", "infrastructure",
       "B200 was asked for, and Modal gave a container with NVIDIA H100 80GB HBM3. run it again; if it stays so, "
       "choose another GPU", warm=1)  # fmt: skip
async def another_gpu(desk: Desk) -> None:
    desk.places.settings.options |= {"gpu": "B200"}
    desk.places.settings.configure(None)
    await desk.run()


@fault("the app was stopped by somebody", "ok", "building the image on Modal, once", NUMBERS, warm=1)
async def stopped_app(desk: Desk) -> None:
    await desk.run()
    account = desk.places.rental.runner().pool.account
    for app in await account.apps():
        await account.stop(app)
    desk.shown.clear()
    await desk.run()


@fault("the app speaks another version of the messages", "infrastructure",
       "the app on Modal speaks version … of the messages, this server version …. `orbit-lsp modal deploy` deploys this "
       "version's app", warm=1)  # fmt: skip
async def another_version(desk: Desk) -> None:
    await desk.run()
    desk.patch.setattr(requests, "VERSION", requests.VERSION + 1)
    await desk.run()


# of each stream 128 KiB are kept, and JSON writes each of these bytes in six
LARGE = program(
    "for (int i = 0; i < 200000; i++) putchar(1); fflush(stdout); "
    "for (int i = 0; i < 200000; i++) fputc(2, stderr);"
)


@fault("a result too large for Modal's return value", "ok", "ran, no kernel launch was recorded", warm=1)
async def large_result(desk: Desk) -> None:
    desk.runs_programs()
    finished = await desk.run(LARGE)
    assert min(len(finished.stdout), len(finished.stderr)) > 2 * 64 << 10


@fault("… and the queue is silent, through which it comes otherwise", "ok",
       "the answer was too large to be sent whole; cut: single samples, stdout", warm=1)  # fmt: skip
async def large_result_alone(desk: Desk) -> None:
    desk.runs_programs()
    desk.modal.silence_queues()
    await desk.run(LARGE)


# -- the author's side ------------------------------------------------------------------------------


@fault("the editor is killed (-9) in mid-run", None, warm=0)
async def client_killed(desk: Desk) -> None:
    desk.runs_programs()
    # twice and more what lies between two signs of life (5 s), so that one that is late on a busy machine counts; not 20
    desk.modal.do(lambda world: world.container_env.update({"ORBIT_GONE_S": "12"}))
    (desk.folder / "saxpy.cu").write_text(HANGS)
    command = ["-P", "-m", "orbit_lsp", "run", "saxpy.cu", "--runner", "modal", "--gpu", "H100"]
    client = await asyncio.create_subprocess_exec(
        sys.executable, *command, cwd=desk.folder, stdout=asyncio.subprocess.PIPE
    )
    assert client.stdout is not None
    assert await client.stdout.readline() == b"begun\n"
    client.send_signal(signal.SIGKILL)
    await client.wait()
    await desk.until_gone(desk.work)
    await desk.there(desk.modal.until, lambda world: not any(item.inputs for item in world.alive()))
    desk.modal.idle_out()


CANCELLED = "cancelled"
BUILDING = "building: without a GPU: compile errors cost no GPU time"


@fault("cancelled before it is sent", "cancelled", CANCELLED, warm=0)
async def cancelled_at_once(desk: Desk) -> None:
    run = desk.click(SLOW)
    assert desk.runs.cancel_run(run.id)
    await desk.ended(run)


@fault(
    "cancelled while the image is built", "cancelled", "building the image on Modal, once", CANCELLED, warm=0
)
async def cancelled_deploying(desk: Desk) -> None:
    desk.modal.forget_kept()
    run = desk.click(SLOW)
    await desk.sees("building the image on Modal, once")
    desk.runs.cancel_run(run.id)
    await desk.ended(run)


@fault(
    "cancelled while it waits for a GPU",
    "cancelled",
    "waiting for an H100 on Modal since …",
    CANCELLED,
    warm=0,
)
async def cancelled_queued(desk: Desk) -> None:
    desk.modal.limit_capacity(1)  # for the machine without a GPU that builds it
    run = desk.click(SLOW)
    await desk.sees("waiting for an H100 on Modal since")
    desk.runs.cancel_run(run.id)
    await desk.ended(run)
    desk.modal.grant_capacity()


@fault(
    "… for which Modal has begun a container",
    "cancelled",
    "waiting for an H100 on Modal since …",
    CANCELLED,
    warm=0,
)
async def cancelled_beginning(desk: Desk) -> None:
    desk.compiled = True
    desk.modal.slow("ContainerHello", lambda world: any(call.over for call in world.function_calls.values()))
    run = desk.click(SLOW)
    await desk.there(desk.modal.until_slow, "ContainerHello")
    desk.runs.cancel_run(run.id)
    await desk.ended(run)
    assert desk.gpus_begun() == 1


@fault("cancelled while it is built", "cancelled", BUILDING, CANCELLED, warm=0)
async def cancelled_building(desk: Desk) -> None:
    desk.runs_programs()
    heavy = "#include <cub/cub.cuh>\n#include <thrust/sort.h>\n#include <thrust/device_vector.h>\n"
    run = desk.click(heavy + HANGS)
    await desk.sees(BUILDING)
    desk.runs.cancel_run(run.id)
    await desk.ended(run)


@fault("cancelled while it runs", "cancelled", "begun", CANCELLED, warm=1)
async def cancelled_running(desk: Desk) -> None:
    desk.runs_programs()
    run = desk.click(HANGS)
    await desk.sees("begun")
    desk.runs.cancel_run(run.id)
    await desk.ended(run)


@fault("… and Modal tells the container late", "cancelled", "begun", CANCELLED, warm=0)
async def cancelled_late_there(desk: Desk) -> None:
    desk.modal.do(lambda world: setattr(world, "heartbeats_held", False))  # it asks every 15 s
    desk.runs_programs()
    run = desk.click(HANGS)
    await desk.sees("begun")
    desk.runs.cancel_run(run.id)
    await desk.ended(run)


@fault("… and Modal does not take the cancelling", "cancelled", "begun", CANCELLED, warm=0)
async def cancel_refused(desk: Desk) -> None:
    desk.runs_programs()
    run = desk.click(HANGS)
    await desk.sees("begun")
    desk.modal.fail("FunctionCallCancel", Status.INVALID_ARGUMENT, "not now")
    desk.runs.cancel_run(run.id)
    await desk.ended(run)


@fault("cancelled after the end", "ok", NUMBERS, warm=1)
async def cancelled_late(desk: Desk) -> None:
    run = desk.click()
    await desk.ended(run)
    assert not desk.runs.cancel_run(run.id)


@fault("two editors on one workspace", "ok", NUMBERS, warm=1)
async def two_editors(desk: Desk) -> None:
    desk.modal.forget_kept()  # both would put it there
    other = Desk(desk.modal, desk.folder, desk.patch, desk.cache)
    mine, other_s = desk.click(), other.click(SAXPY + "// BUG\n")
    assert (await other.ended(other_s)).outcome == "compile error"
    await desk.ended(mine)
    # no two runs of one account have the same name
    assert len({run for run, _ in [*desk.ends, *other.ends]}) == 2
    await other.close()


def markdown() -> str:
    head = "| what goes wrong | outcome | what its user sees | what stays rented |\n|---|---|---|---|\n"
    return head + "".join(f"{item.row()}\n" for item in FAULTS)


def main(arguments: list[str]) -> int:
    import pytest

    took: dict[str, str] = {}

    class Keep:
        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            if report.when == "call" and "[" in report.nodeid:
                took[report.nodeid.partition("[")[2][:-1]] = (
                    f"{'✓' if report.passed else '✗'} {report.duration:4.1f} s"
                )

    failed = pytest.main(["-q", "--no-header", str(Path(__file__).with_name("test_faults.py"))], [Keep()])
    for item in FAULTS:
        print(f"{took.get(item.act.__name__, '✗ not run'):9} {item.what}")
        for line in [
            *"\n".join(item.sees).splitlines(),
            f"({item.outcome or 'nobody is left to see it'}; {item.remains} stays rented)",
        ]:
            print(f"            {line}")
    if "--write" in arguments and not failed:
        before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
        PAGE.write_text(before + BEGIN + markdown() + END + rest.partition(END)[2], encoding="utf-8")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
