"""What is done before a GPU is rented: a mistake costs none, and what was built is not built again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orbit_lsp.runners import refusals
from orbit_lsp.specs import job_builder
from orbit_lsp.state.session import Session
from orbit_remote.common import messages as c
from orbit_remote.common.requests import Job
from tests.e2e.conftest import Editor
from tests.e2e.test_run import SOURCE
from tests.modal.conftest import SAXPY, SPEC, Author, click_run, gpus, states, told_of_a_gpu, whys
from tests.modal.test_runner import COMPILERS, programs, until_compiling
from tests.modal_loopback.loopback import Loopback

HELLO = '#include <cstdio>\nint main() { std::puts("hello"); }\n'


def rented(loopback: Loopback) -> list[str]:
    """The GPU of every container that there has been, "" for none, but for those that say that the image starts."""
    return [container.function.gpu for container in loopback.world.but_for("hello")]


@pytest.mark.slow
async def test_a_mistake_in_a_cold_click_costs_no_gpu(modal, author) -> None:
    item: Author = author(compiled=False)
    events = await item.events(item.job(text=SAXPY.replace("x[n]", "z[n]")))
    finished = events[-1]
    assert isinstance(finished, c.Finished)
    assert finished.outcome == "compile error"
    built = next(event for event in events if isinstance(event, c.Built))
    assert [problem.message for problem in built.problems] == ['identifier "z" is undefined']
    assert states(events) == ["syncing", "queued", "starting", "building"]
    assert "without a GPU" in whys(events)
    assert rented(modal) == [""]


async def test_a_cold_click_says_where_it_is(h100s, author) -> None:
    h100s.forget_kept()
    item: Author = author(compiled=False)
    events = await item.events(item.job())
    messages = [
        f"{e.state}: {e.why}".rpartition(" since ")[0] or f"{e.state}: {e.why}"
        for e in events
        if isinstance(e, c.Stage)
    ]
    assert messages[messages.index("starting: the container is there") :] == [
        "starting: the container is there",
        "building: without a GPU: compile errors cost no GPU time",
        "syncing: collecting its files",
        "queued: waiting for an H100 on Modal",
        "starting: the container is there",
        "building: ",
        "running: ",
        "finishing: ",
    ]
    assert sorted(rented(h100s)) == ["", "H100!"]
    assert sum(isinstance(event, c.Finished) for event in events) == 1


@pytest.mark.slow
async def test_the_rented_container_takes_the_build_over(modal, author, tmp_path: Path) -> None:
    """Real builds in two containers that share nothing but the volume; there is no GPU in either."""
    item: Author = author(compiled=False)
    python = {"ORBIT_PYTHON": str(told_of_a_gpu(tmp_path)), "ORBIT_CACHE": str(tmp_path / "first")}
    modal.do(lambda world: world.container_env.update(python))
    modal.limit_capacity(1)
    events: list[c.Event] = []
    async for event in item.runner.run(item.job(text=HELLO)):
        events.append(event)
        if isinstance(event, c.Stage) and "waiting for an H100" in event.why:
            modal.do(lambda world: world.container_env.update({"ORBIT_CACHE": str(tmp_path / "second")}))
            modal.grant_capacity()
    finished = events[-1]
    assert isinstance(finished, c.Finished)
    assert (finished.outcome, finished.stdout) == ("ok", "hello\n")
    assert [event.cached for event in events if isinstance(event, c.Built)] == [False, True]
    assert rented(modal) == ["", "H100!"]
    assert len(list((tmp_path / "second" / "builds").glob("*.build"))) == 1


@pytest.mark.slow
async def test_a_warm_gpu_is_gone_to_at_once(h100s, author) -> None:
    item: Author = author(compiled=False)
    await item.finished(item.job())
    again = await item.events(item.job(text=SAXPY + "// other\n"))
    assert "without a GPU" not in whys(again)
    assert sorted(rented(h100s)) == ["", "H100!"]


@pytest.mark.slow
async def test_a_container_that_was_warm_before_looks_at_the_volume_again(h100s, author) -> None:
    """It belongs to another editor window: this one knows of none."""
    other, item = author(), author(compiled=False)
    await other.finished(other.job())
    assert "VolumeReload" not in h100s.world.calls_of
    await item.finished(item.job(text=SAXPY + "// more\n"))
    assert sorted(rented(h100s)) == ["", "H100!"]
    counted = h100s.world.calls_of  # a commit reloads by itself
    assert (counted["VolumeCommit"], counted["VolumeReload"]) == (1, 2)


@pytest.mark.slow
async def test_a_build_for_another_gpu_is_for_its_architecture(modal, author) -> None:
    item: Author = author(compiled=False)
    mistaken = SAXPY.replace("x[n]", "z[n]").replace("saxpy(int", "saxpy_on(int")
    events = await item.events(
        item.job(text="#if __CUDA_ARCH__ == 800\n#error for an A100\n#endif\n" + mistaken, gpu="A100-40GB")
    )
    built = next(event for event in events if isinstance(event, c.Built))
    assert "#error for an A100" in built.problems[0].message


async def test_code_that_is_not_mine_is_built_where_it_runs(h100s, author) -> None:
    item: Author = author(compiled=False, restricted=True)
    assert (await item.finished(item.job())).outcome == "ok"
    assert rented(h100s) == ["H100!"]


async def test_cancelled_while_it_builds_it_rents_nothing(modal, author) -> None:
    item: Author = author(compiled=False)
    await item.finished(item.job("compile"))  # the compiler has been asked who it is
    async with item.until(item.job(text=f"#include <cub/cub.cuh>\n{SAXPY}"), "building:"):
        await until_compiling(modal)
    assert not COMPILERS & set(programs(modal))
    assert rented(modal) == [""]


@pytest.mark.slow
async def test_closing_the_editor_releases_what_compiled(modal, author) -> None:
    item: Author = author()
    await item.finished(item.job("compile"))
    await item.runner.close()
    modal.until(lambda world: not world.alive())


@pytest.mark.slow
async def test_what_nvcc_here_has_just_found_right_goes_straight_to_its_gpu(h100s, start) -> None:
    editor: Editor = await start("vscode", runner="modal")
    editor.open("saxpy.cu", SOURCE)
    await editor.until(lambda: editor.refreshed)  # compiled here, when it was opened
    await editor.asked_until(editor.hints, bool)
    await click_run(editor)
    await editor.until(lambda: any("288 µs" in item for item in editor.ended()))
    assert rented(h100s) == gpus(h100s) == ["H100!"]


def test_what_counts_as_just_compiled() -> None:
    job = Job("r1", "compile", "cuda", "/k/saxpy.cu", SAXPY, directory="/k", flags=("-O2",), gpu="H100")
    session = Session()
    session.open("file:///k/saxpy.cu", 1, SAXPY)
    click = Job("r2", "run", "cuda", "/k/saxpy.cu", SAXPY, directory="/k", flags=("-O2",), gpu="B200")
    assert not job_builder.is_compiled(session, click)
    session.files["file:///k/saxpy.cu"].compiled = (job, session.disk.changes)
    assert job_builder.is_compiled(session, click)
    assert not job_builder.is_compiled(session, replace(click, text=SAXPY + " "))
    assert not job_builder.is_compiled(session, replace(click, flags=()))
    session.disk.changes += 1  # a header was saved
    assert not job_builder.is_compiled(session, click)


# -- what nobody needs to be asked about ------------------------------------------------------------


async def test_python_that_python_cannot_read_goes_nowhere(h100s, author) -> None:
    item: Author = author(replace(SPEC, python="3.11"))
    finished = await item.finished(item.job(text="x = 1\nif x\n    pass\n", path="add.py", language="triton"))
    assert finished.outcome == "compile error"
    assert finished.failure is not None
    assert finished.failure.message == "SyntaxError: expected ':'"
    assert [problem.place for problem in finished.problems] == [c.Place(str(item.folder / "add.py"), 2, 5)]
    assert not h100s.world.calls_of


@pytest.mark.parametrize("text", ["import nothing_that_exists\n", "print('\0')\n", "(" * 10_000, "1 is 1\n"])
def test_only_python_s_own_grammar_is_judged_here(text: str) -> None:
    job = Job("r1", "run", "triton", "/k/add.py", text)
    finished = refusals.syntax_error(job, "3.11")
    assert finished is None or "SyntaxError" in str(finished.failure)


def test_a_newer_python_is_not_judged_by_an_older_one() -> None:
    job = Job("r1", "run", "triton", "/k/add.py", "if x\n")
    assert refusals.syntax_error(job, "3.11") is not None
    assert refusals.syntax_error(job, "3.99") is None


@pytest.mark.parametrize("path", ["/k/a\0.cu", "/k/a\ud800.cu"])
async def test_a_name_that_no_file_has(modal, author, path: str) -> None:
    item: Author = author()
    finished = await item.finished(Job("r1", "run", "cuda", path, SAXPY, gpu="H100"))
    assert finished.failure is not None
    assert "holds a NUL character or half a surrogate pair" in finished.failure.message
    assert not modal.world.calls_of
