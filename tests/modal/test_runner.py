"""A job's way to a container and back, with Modal's own client and entrypoint on both sides of it.

What the worker says of a GPU is recorded (tests/e2e/recorded_worker.py); compiling is real.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from grpclib import Status

from orbit_lsp.places.places import Places
from orbit_lsp.state.placement import RunSetup
from orbit_lsp.state.session import Session
from orbit_remote.common import messages as c
from orbit_remote.common.requests import Job
from tests.modal.conftest import LIMIT_S, SAXPY, SPEC, Author, states, whys, working
from tests.modal_loopback import images
from tests.modal_loopback.loopback import Loopback
from tests.modal_loopback.world import FINAL

ROOT = Path(__file__).parents[2]


def pids(loopback: Loopback) -> list[int]:
    return [container.pid for container in working(loopback)]


def programs(loopback: Loopback) -> list[str]:
    """What runs in the containers, besides Modal's own process 1 and entrypoint."""
    processes = [psutil.Process(pid) for pid in pids(loopback)]
    names: list[str] = []
    for child in [child for process in processes for child in process.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            if "modal._container_entrypoint" not in child.cmdline():
                names.append(child.name())
    return names


COMPILERS = {"nvcc", "cicc", "cudafe++", "ptxas", "cc1plus"}


async def until_compiling(loopback: Loopback) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not COMPILERS & set(await asyncio.to_thread(programs, loopback)):
            pass


async def test_nvcc_compiles_in_the_container_and_names_the_authors_files(modal, author) -> None:
    item: Author = author()
    finished = await item.finished(item.job("compile"))
    assert finished.outcome == "ok"
    assert [(r.name, r.architecture) for r in finished.resources] == [("saxpy", "sm_90a")]
    assert finished.resources[0].place == c.Place(str(item.folder / "saxpy.cu"), 2, 17, 22)
    assert [each.function.gpu for each in modal.world.but_for("hello")] == [""]  # none was rented


async def test_an_error_in_a_header_stands_in_the_authors_header(modal, author) -> None:
    item: Author = author()
    (item.folder / "scale.cuh").write_text("#define SCALE 2.0f\nint f() { return wrong; }\n")
    events = await item.events(item.job("compile"))
    built = next(event for event in events if isinstance(event, c.Built))
    assert [(p.message, p.place) for p in built.problems if p.place] == [
        ('identifier "wrong" is undefined', c.Place(str(item.folder / "scale.cuh"), 2, 18, 23))
    ]
    assert str(item.folder / "scale.cuh") in built.files


async def test_the_first_run_puts_the_app_there_and_says_so(h100s, author) -> None:
    h100s.forget_kept()
    item: Author = author()
    events = await item.events(item.job())
    assert states(events) == ["syncing", "queued", "starting", "building", "running", "finishing"]
    assert "building the image on Modal, once" in whys(events)
    assert "waiting for an H100 on Modal since" in whys(events)
    finished = events[-1]
    assert isinstance(finished, c.Finished)
    assert finished.outcome == "ok"
    assert finished.launches[0].timing.median == 288_032
    assert [each.function.gpu for each in h100s.world.but_for("hello")] == ["H100!"]
    assert [app.name for app in h100s.world.apps.values()] == [await item.runner.pool.account.name()]


async def test_a_run_stands_in_the_log_of_its_container(h100s, author) -> None:
    item: Author = author()
    await item.finished(item.job(run="r7-abc"))
    said = "".join(line.text for line in h100s.world.logs)
    (name,) = re.findall(r"orbit: (r7-abc-\w+) begins: run of saxpy\.cu\n", said)
    assert f"orbit: {name} ended: ok\n" in said


async def test_output_comes_while_the_program_runs_and_before_the_end(h100s, author) -> None:
    item: Author = author()
    events = await item.events(item.job())
    assert [(e.stream, e.text) for e in events if isinstance(e, c.Output)] == [("stdout", "no error\n")]
    assert {event.run for event in events} == {"r1"}


async def test_the_second_run_goes_to_the_same_container_and_sends_no_file_again(h100s, author) -> None:
    item: Author = author()
    await item.finished(item.job())
    first = pids(h100s)
    again = await item.events(item.job())
    assert pids(h100s) == first
    assert "building" not in whys(again)
    assert "waiting" not in whys(again)  # it is warm
    (session,) = item.runner.sessions()
    assert (session.gpu, session.runs) == ("H100", 2)


async def test_a_warm_click_is_submitted_before_modal_has_answered_a_greeting(h100s, author) -> None:
    """A round trip of the network less."""
    item: Author = author()
    await item.finished(item.job())
    submitted = h100s.world.calls_of["FunctionMap"]
    h100s.slow("ClientHello", lambda world: world.calls_of["FunctionMap"] > submitted)
    again = await item.finished(item.job(run="r2"))
    assert again.outcome == "ok"


@pytest.mark.slow
async def test_a_changed_header_travels_and_a_deleted_one_goes(modal, author) -> None:
    item: Author = author()
    assert (await item.finished(item.job("compile"))).outcome == "ok"
    (item.folder / "scale.cuh").write_text("#define SCALE 3\n")
    assert (await item.finished(item.job("compile"))).outcome == "ok"
    (item.folder / "scale.cuh").unlink()
    failed = await item.finished(item.job("compile"))
    assert failed.outcome == "compile error"


@pytest.mark.slow
async def test_a_container_that_lost_the_files_is_sent_them_again(h100s, author) -> None:
    item: Author = author()
    await item.finished(item.job())
    for path in (h100s.folder / "volumes").rglob("*"):
        if path.is_file():
            path.unlink()
    h100s.idle_out()
    events = await item.events(item.job(text=SAXPY + "// more\n"))
    assert "sending 1 file" in whys(events)
    assert isinstance(events[-1], c.Finished)
    assert events[-1].outcome == "ok"


async def test_every_choice_of_gpu_is_asked_for_so_that_no_other_answers() -> None:
    from orbit_lsp.state import modal_gpus
    from orbit_lsp.state.modal_gpus import NAMES
    from tests.modal_loopback.world import GPUS as MODALS

    assert {modal_gpus.asked(gpu) for gpu in NAMES} <= MODALS
    assert [modal_gpus.asked(gpu) for gpu in ("H100", "H100:2", "RTX PRO 6000:4", "A100-40GB")] == [
        "H100!", "H100!:2", "RTX-PRO-6000:4", "A100-40GB"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("gpu", "name", "right"),
    [
        ("H100", "NVIDIA H100 80GB HBM3", True),
        ("H100:2", "NVIDIA H100 80GB HBM3", True),
        ("H100", "NVIDIA H200", False),
        ("A100-40GB", "NVIDIA A100-SXM4-40GB", True),
        ("A100-40GB", "NVIDIA A100-SXM4-80GB", False),
        ("A100-80GB", "NVIDIA A100 80GB PCIe", True),
        ("L4", "NVIDIA L4", True),
        ("L4", "NVIDIA L40S", False),
        ("T4", "Tesla T4", True),
        ("A10", "NVIDIA A10G", True),
        ("A10", "NVIDIA A100-SXM4-40GB", False),
        ("RTX PRO 6000", "NVIDIA RTX PRO 6000 Blackwell Server Edition", True),
    ],
)
def test_nvml_s_name_answers_for_the_asked_one(gpu: str, name: str, right: bool) -> None:
    from orbit_lsp.state import modal_gpus

    assert modal_gpus.answers(gpu, name) is right


# -- cancelling -------------------------------------------------------------------------------------


async def test_cancel_while_it_runs_ends_the_work_and_keeps_the_container(h100s, author) -> None:
    item: Author = author()
    async with item.until(item.job(text=SAXPY + "// SLOW\n"), "running"):
        before = pids(h100s)
    assert pids(h100s) == before
    assert (await item.finished(item.job())).outcome == "ok"
    assert pids(h100s) == before


@pytest.mark.slow
async def test_cancel_while_it_builds_leaves_no_compiler(modal, author) -> None:
    item: Author = author()
    await item.finished(item.job("compile"))  # the compiler has been asked who it is
    text = f"#include <cub/cub.cuh>\n{SAXPY}"
    async with item.until(item.job("compile", text=text), "building:"):
        await until_compiling(modal)
    names = programs(modal)
    assert not COMPILERS & set(names), names


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rpc", "after", "state"),
    [
        ("VolumeCommit", 0, "waiting for a machine without a GPU"),
        ("VolumeReload", 1, "waiting for an H100"),  # the first is a commit's own, before there is a GPU
    ],
)
async def test_cancel_while_the_volume_is_synchronised_is_not_lost(
    h100s, author, rpc: str, after: int, state: str
) -> None:
    """The word of the cancelling and Modal's answer reach the container together."""
    other, entry = author(), author(compiled=False)
    await other.finished(other.job())
    before = pids(h100s)
    h100s.slow(rpc, lambda world: any(item.interrupted for item in world.alive()), after=after)
    async with entry.until(entry.job(text=SAXPY + "// SLOW\n"), state):
        await asyncio.to_thread(h100s.until_slow, rpc)
    (ended,) = [item for item in h100s.world.inputs.values() if item.id in interrupted(h100s)]
    assert ended.result is not None
    assert ended.result.status == FINAL.GENERIC_STATUS_TERMINATED
    h100s.heal()
    assert (await entry.finished(entry.job())).outcome == "ok"
    assert set(before) <= set(pids(h100s))


def interrupted(loopback: Loopback) -> list[str]:
    """Inputs whose container was told to cancel them."""
    return [name for container in loopback.containers() for name in container.interrupted]


async def test_a_vanished_client_ends_the_work(h100s, author, monkeypatch: pytest.MonkeyPatch) -> None:
    """The signs of life stop, as when the editor's machine is gone; nobody cancels."""
    monkeypatch.setattr("orbit_lsp.runners.modal.spawned.SIGN_S", 3600)
    item: Author = author()
    h100s.do(lambda world: world.container_env.update({"ORBIT_GONE_S": "0.5"}))
    finished = await item.finished(item.job(text=SAXPY + "// SLOW\n"))
    assert finished.outcome == "infrastructure"
    assert finished.failure is not None
    assert "no sign" in finished.failure.message


# -- what goes wrong (faults.py has the rest) -------------------------------------------------------


async def failure(author: Author, job: Job | None = None) -> c.Failure:
    finished = await author.finished(job or author.job())
    assert finished.outcome == "infrastructure"
    assert finished.failure is not None
    return finished.failure


async def test_a_worker_that_dies_is_said_and_started_again(h100s, author) -> None:
    item: Author = author()
    result = await failure(item, item.job(text=SAXPY + "// CRASH\n"))
    assert result.message == "the worker process in the container ended unexpectedly"
    before = pids(h100s)
    assert (await item.finished(item.job())).outcome == "ok"
    assert pids(h100s) == before


async def test_code_that_is_not_mine_runs_restricted_and_answers_at_the_end(h100s, author) -> None:
    item: Author = author(restricted=True)
    events = await item.events(item.job())
    finished = events[-1]
    assert isinstance(finished, c.Finished)
    assert finished.outcome == "ok"
    assert not [event for event in events if isinstance(event, c.Output)]
    (used,) = {
        container.definition.function_name: container.definition
        for container in h100s.world.containers.values()
    }.values()
    assert (used.untrusted, used.block_network, used.single_use_containers) == (True, True, True)
    h100s.until(lambda world: not world.alive())
    assert item.runner.sessions() == []


# -- warm containers --------------------------------------------------------------------------------


async def test_release_ends_the_container_at_once(h100s, author) -> None:
    entry: Author = author()
    await entry.finished(entry.job())
    assert await entry.runner.release("H100")
    h100s.until(lambda world: not world.alive() and all(item.result for item in world.inputs.values()))
    assert len(h100s.world.but_for("hello")) == 1
    assert entry.runner.sessions() == []
    assert not await entry.runner.release("H100")


@pytest.mark.slow
async def test_two_containers_of_one_gpu_are_released_together(h100s, author, tmp_path: Path) -> None:
    item: Author = author()
    slow = SAXPY + "// SLOW\n"
    async with (
        item.until(item.job(text=slow), "running"),
        item.until(item.job(text=slow, run="r2"), "running"),
    ):
        pass
    assert len(item.runner.sessions()) == 2
    trees = await asyncio.to_thread(lambda: list(tmp_path.glob("orbit-ta-*/trees/*/saxpy.cu")))
    assert len(trees) == 2  # neither wrote into the other's
    assert await item.runner.release("H100")
    assert item.runner.sessions() == []
    h100s.until(lambda world: not world.alive())
    assert len(h100s.world.but_for("hello")) == 2


@pytest.mark.slow
async def test_what_compiled_is_released_too_also_beside_what_was_started_and_not_needed(
    modal, author, tmp_path: Path
) -> None:
    item: Author = author()
    homes = {"ORBIT_HOME": str(tmp_path / "orbit-{container}")}  # they work at the same time
    modal.do(lambda world: world.container_env.update(homes))
    modal.limit_capacity(0)
    async with (
        item.until(item.job("compile"), "waiting"),
        item.until(item.job("compile", run="r2"), "waiting"),
    ):
        await asyncio.to_thread(modal.until, lambda world: len(world.inputs) == 2)
        modal.grant_capacity()
        await asyncio.to_thread(modal.until, lambda world: sum(entry.ready for entry in world.alive()) == 2)
    await item.finished(item.job("compile"))  # in one of the two
    await item.runner.close()
    assert item.runner.sessions() == []
    # Modal's count of those at work may be late by the end of the last call: then the other one idles out
    modal.until(lambda world: len(world.alive()) < 2)
    assert len(modal.world.but_for("hello")) == 2


async def test_a_container_that_cannot_be_reached_is_warm_until_its_idle_time(h100s, author) -> None:
    item: Author = author()
    await item.finished(item.job())
    (session,) = item.runner.sessions()
    ends = session.until
    h100s.fail("FunctionMap", Status.INTERNAL, "not now", times=None)
    assert not await item.runner.release("H100")
    assert item.runner.sessions() == [session]
    assert session.until == ends
    h100s.heal()
    assert await item.runner.release("H100")
    h100s.until(lambda world: not world.alive())


async def test_a_container_that_is_gone_already_is_not_started_to_be_released(h100s, author) -> None:
    entry: Author = author()
    await entry.finished(entry.job())
    h100s.limit_capacity(1)
    h100s.idle_out()
    h100s.limit_capacity(0)
    assert not await entry.runner.release("H100")
    h100s.grant_capacity()
    h100s.until(
        lambda world: all(item.result for item in world.inputs.values())
    )  # nobody waits for a container
    assert not working(h100s)


async def test_the_warm_container_of_another_editor_stays(h100s, author) -> None:
    mine, other = author(), author()
    slow = SAXPY + "// SLOW\n"
    async with mine.until(mine.job(text=slow), "running"), other.until(other.job(text=slow), "running"):
        pass
    (kept,) = other.runner.sessions()
    assert await mine.runner.release("H100")
    h100s.until(lambda world: len(world.alive()) == 1)
    assert [container.id for container in working(h100s)] == [kept.container]


async def test_what_is_at_work_is_not_released_under_its_run(h100s, author) -> None:
    item: Author = author()
    async with item.until(item.job(text=SAXPY + "// SLOW\n"), "running"):
        assert not await item.runner.release("H100")
        assert [session.until for session in item.runner.sessions()] == [None]
    assert await item.runner.release("H100")


async def test_closing_the_editor_releases_what_is_warm(h100s, author) -> None:
    item: Author = author()
    await item.finished(item.job())
    await item.runner.close()
    h100s.until(lambda world: not world.alive())


@pytest.mark.slow
async def test_keep_warm_outlives_the_idle_time(h100s, author) -> None:
    item: Author = author()
    await item.finished(item.job())
    await item.runner.keep_warm("H100", keep=True)
    (session,) = item.runner.sessions()
    assert session.warm(session.since + 1e6)
    await item.runner.keep_warm("H100", keep=False)
    assert not item.runner.sessions()[0].warm(session.since + 1e6)


# -- the app ----------------------------------------------------------------------------------------


async def test_our_apps_are_listed_and_stopped_and_others_left_alone(h100s, author) -> None:
    import modal as client

    old, new = author(replace(SPEC, version="0.0.9")), author()
    await client.App("somebody-elses").deploy.aio(name="somebody-elses")
    for item in (old, new):
        await item.runner.pool.account.deploy()
    apps = await new.runner.pool.account.apps()
    assert sorted((app.name.rpartition("-")[0], app.present) for app in apps) == [
        ("orbit-0.0.9", False), ("orbit-0.1.0", True)
    ]  # fmt: skip
    await new.runner.pool.account.stop(next(app for app in apps if not app.present))
    assert [app.name.rpartition("-")[0] for app in await new.runner.pool.account.apps()] == ["orbit-0.1.0"]


async def test_the_image_is_pinned(h100s, author) -> None:
    h100s.forget_kept()
    item: Author = author()
    await item.finished(item.job())
    image = next(iter(h100s.world.containers.values())).definition.image_id
    recipe = images.recipe(h100s.world, image)
    for part in (
        "nvidia/cuda:13.0.1-devel-ubuntu24.04", "torch==2.11.0", "triton==3.6.0", "nvidia-ml-py==", "cuda-core==",
        "nsight-compute-2025.2.1", "cuda-sanitizer-13-0", "cuda-cupti-dev-13-0", "NVIDIA_DRIVER_CAPABILITIES",
        "ln -sf /opt/nvidia/nsight-compute/2025.2.1/ncu /usr/local/bin/ncu",
    ):  # fmt: skip
        assert part in recipe


async def test_the_image_has_the_settings_packages_and_another_app_for_them(h100s, author) -> None:
    h100s.forget_kept()
    plain, more = author(), author(replace(SPEC, pip=("einops==0.8.1",), apt=("libopenblas-dev",)))
    await more.finished(more.job())
    recipe = images.recipe(h100s.world, next(iter(h100s.world.containers.values())).definition.image_id)
    assert "einops==0.8.1" in recipe
    assert "libopenblas-dev" in recipe
    assert await plain.runner.pool.account.name() != await more.runner.pool.account.name()


@pytest.mark.parametrize(
    ("nvcc", "asked", "where"),
    [(None, True, "modal"), (None, False, "local"), ("/usr/bin/nvcc", True, "local")],
)
async def test_compiling_goes_to_modal_only_without_nvcc_and_where_it_may(
    modal, author, nvcc: str | None, asked: bool, where: str
) -> None:
    session = Session(setup=RunSetup(machine=c.Machine("m", c.RESULT_VERSION, "python", "3.12.3", nvcc=nvcc)))
    places = Places(session, print, lambda uris: None)
    places.settings.options = {"modal": {"compile": asked}}
    assert places.settings.configure(None) == ()
    runner = await places.runner_of(author().job("compile"))
    assert runner.name == where
    await places.close()


def test_an_untrusted_workspace_does_not_say_what_is_rented_or_installed() -> None:
    places = Places(Session(), print, lambda uris: None)
    places.settings.options = {"modal": {"idle_s": 60}}
    (complaint,) = places.settings.configure({"modal": {"pip": ["evil"]}})
    assert "the workspace's setting `modal.pip` is ignored" in complaint
    assert (places.settings.now.modal.pip, places.settings.now.modal.idle_s) == ((), 60)
    # a client that merges settings sends the user's own back, with every default
    assert places.settings.configure({"modal": {"idle_s": 60, "pip": [], "apt": []}}) == ()


def test_the_image_has_the_authors_released_versions_of_torch_and_triton() -> None:
    packages = {"torch": "2.13.0+cpu", "triton": "3.6.0"}
    session = Session(
        setup=RunSetup(machine=c.Machine("m", c.RESULT_VERSION, "python", "3.11.7", packages=packages))
    )
    places = Places(session, print, lambda uris: None)
    spec = places.rental.runner().options.spec
    assert (spec.python, spec.torch, spec.triton) == ("3.11", "2.13.0", "3.6.0")
    session.setup.machine = replace(
        session.setup.machine, packages=packages | {"triton": "3.7.0.dev20261101"}
    )
    spec = places.rental._spec()
    assert (spec.python, spec.torch, spec.triton) == ("3.12", "2.11.0", "3.6.0")


def test_a_local_session_never_imports_modal(tmp_path: Path) -> None:
    code = (
        "import asyncio, sys\n"
        "from orbit_lsp.places.places import Places\n"
        "from orbit_lsp.state.session import Session\n"
        "async def main():\n"
        "    session = Session()\n"
        "    around = Places(session, print, lambda uris: None)\n"
        "    around.settings.options = {'runner': 'auto'}\n"
        "    around.settings.configure(None)\n"
        "    await around.look_around()\n"
        "    around.info(None)\n"
        "    around.rental.runner()\n"  # chosen, but nothing is asked of it
        "    await around.close()\n"
        "asyncio.run(main())\n"
        "assert 'modal' not in sys.modules, 'modal was imported'\n"
    )
    run = [sys.executable, "-P", "-c", code]
    env = {
        "PYTHONPATH": f"{ROOT}:{ROOT / 'remote'}", "HOME": str(tmp_path), "PATH": "/usr/bin:/bin",
        "ORBIT_SHARED_WORKER": "no",  # it would outlive the test
    }  # fmt: skip
    done = subprocess.run(run, capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, done.stderr
