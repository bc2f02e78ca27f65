"""The executable that is made before it is asked for. Builds are stood in for: what is shown is the order."""

import asyncio
from dataclasses import replace

from orbit_remote.common.requests import Job
from orbit_remote.worker.prebuild import Prebuild
from tests.loop_check import settled

SAXPY = Job("r1", "compile", "cuda", "/src/saxpy.cu", "first text", architecture="sm_90a")


def check(expected: list[str], *steps: str) -> None:
    """Steps are `run TEXT`, `save TEXT`, `built`; what is expected is what the builds did."""
    asyncio.run(_follow(expected, steps))


async def _follow(expected: list[str], steps: tuple[str, ...]) -> None:
    messages: list[str] = []
    built = asyncio.Event()

    async def build(job: Job) -> None:
        messages.append(f"build {job.text}")
        try:
            await built.wait()
        except asyncio.CancelledError:
            messages.append(f"gave up {job.text}")
            raise
        messages.append(f"built {job.text}")

    ahead, running = Prebuild(build), []
    for step in steps:
        what, _, text = step.partition(" ")
        job = replace(SAXPY, text=text)
        if what == "run":
            running.append(asyncio.create_task(_run(ahead, job, messages)))
        elif what == "save":
            ahead.compiled(job)
        else:
            built.set()
        await settled()
    await asyncio.gather(*running)
    await ahead.close()
    assert messages == expected


async def _run(ahead: Prebuild, job: Job, message: list[str]) -> None:
    await ahead.join(job)
    message.append(f"run {job.text}")


def test_a_file_that_was_never_run_is_not_built():
    check([], "save one")


def test_a_save_after_a_run_builds():
    check(["run one", "build two", "built two"], "run one", "save two", "built")


def test_a_click_waits_for_the_build_of_its_own_text():
    check(
        ["run one", "build two", "built two", "run two"],
        *("run one", "save two", "run two", "built"),
    )


def test_a_click_on_another_text_ends_the_build_and_does_not_wait():
    check(["run one", "build two", "gave up two", "run three"], "run one", "save two", "run three")


def test_a_second_save_replaces_the_first():
    check(
        ["run one", "build two", "gave up two", "build three", "built three"],
        *("run one", "save two", "save three", "built"),
    )


def test_leaving_ends_what_is_under_way():
    check(["run one", "build two", "gave up two"], "run one", "save two")
