"""The unmodified Modal client against the control plane of this folder, with real container processes."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import queue as std_queue
import select
import shutil
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from types import ModuleType
from typing import Any

import modal
import modal.exception
import pytest
from grpclib import Status
from modal_proto import api_pb2 as pb

from tests.modal_loopback.fixture import started
from tests.modal_loopback.loopback import LIMIT_S, Loopback
from tests.modal_loopback.world import FINAL

APPS = Path(__file__).parent / "apps"
MiB = 1 << 20


@pytest.fixture
def small(modal_loopback: Loopback, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The small app, deployed; loaded anew, because its objects remember where they were deployed."""
    return deployed(monkeypatch)


def deployed(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(sys, "path", [str(APPS), *sys.path])
    monkeypatch.delitem(sys.modules, "small_app", raising=False)
    module = importlib.import_module("small_app")
    module.app.deploy(name="small")
    return module


def session(name: str = "Session", **options: Any) -> Any:
    cls = modal.Cls.from_name("small", name)
    return (cls.with_options(**options) if options else cls)()


@contextlib.contextmanager
def queue() -> Generator[Any]:
    with modal.Queue.ephemeral() as made:
        yield made


def gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def modal_cli(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "modal", *arguments],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    return done.stdout + done.stderr


# calls and their containers


def test_the_second_call_meets_the_first_ones_container(small: ModuleType) -> None:
    first, second = session().count.remote("a"), session().count.remote("b")
    assert (first["calls"], second["calls"]) == (1, 2)
    assert first["task"] == second["task"]
    assert second["payload"] == "b"


def test_each_option_set_has_containers_of_its_own(small: ModuleType, modal_loopback: Loopback) -> None:
    tasks = {session().count.remote()["task"], session(gpu="H100!", timeout=30).count.remote()["task"]}
    assert len(tasks) == 2
    assert session(gpu="H100!", timeout=30).count.remote()["calls"] == 2
    assert sorted(container.function.gpu for container in modal_loopback.containers()) == ["H100!", "T4"]
    strict = next(container for container in modal_loopback.containers() if container.function.gpu == "H100!")
    assert strict.definition.timeout_secs == 30


@pytest.mark.parametrize("fresh", [False, True])
def test_a_container_sees_what_was_uploaded_and_what_modal_gives_it(
    small: ModuleType, modal_loopback: Loopback, fresh: bool
) -> None:
    """Whether it is forked, or its process is started for it."""
    modal_loopback.do(lambda world: setattr(world, "fresh_processes", fresh))
    about = session().about.remote()
    environ = about["environ"]
    assert about["remote"]
    assert about["file"] == environ["HOME"] + "/small_app.py" != small.__file__
    assert environ["WORD"] == "open"
    assert environ["SMALL_CACHE"] == environ["LOOPBACK_VOLUME_CACHE"] + "/kernels"
    assert environ["MODAL_IS_REMOTE"] == "1"
    assert "MODAL_TOKEN_SECRET" not in environ
    assert str(Path(__file__).parents[2]) not in about["path"]
    assert about["path"][0] == environ["HOME"]
    assert [Path(about["argv"][0]).name, *about["argv"][1:]] == ["_container_entrypoint.py"]
    assert ("-m" in about["original"]) == fresh
    assert about["interrupted"] == "default_int_handler"


def test_a_test_can_give_containers_variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with started(monkeypatch, tmp_path, {"STAND_IN": "recorded", "PYTHONWARNINGS": "ignore::UserWarning"}):
        deployed(monkeypatch)
        about = session().about.remote()
        assert about["environ"]["STAND_IN"] == "recorded"
        assert "-m" in about["original"]  # Python reads such a variable as it starts: it was not forked


def test_a_volume_outlives_its_container(small: ModuleType, modal_loopback: Loopback) -> None:
    assert session().note.remote("first") == ""
    modal_loopback.idle_out()
    assert session().note.remote("second") == "first"


def test_a_function_without_a_gpu_sees_none(small: ModuleType) -> None:
    assert small.plain.remote("hidden:") == "hidden: ''"


def test_an_unknown_gpu_is_refused(small: ModuleType) -> None:
    with pytest.raises(modal.exception.InvalidError, match="H9000"):
        session(gpu="H9000").count.remote()


def test_three_mebibytes_travel_through_blobs_both_ways(small: ModuleType, modal_loopback: Loopback) -> None:
    sent = os.urandom(3 * MiB)
    assert session().count.remote(sent)["payload"] == sent
    assert modal_loopback.world.calls_of["BlobCreate"] == 2
    modal_loopback.limit_blobs(2 * MiB)
    with pytest.raises(modal.exception.Error, match="more than the 2097152 allowed"):
        session().count.remote(sent)


def test_a_result_too_large_is_refused(small: ModuleType, modal_loopback: Loopback) -> None:
    modal_loopback.limit_blobs(2 * MiB)
    with pytest.raises(modal.exception.Error, match="more than the 2097152 allowed"):
        session().large.remote(3 * MiB)


def test_a_generator_yields_and_its_container_logs(small: ModuleType, modal_loopback: Loopback) -> None:
    assert list(session().steps.remote_gen(5)) == [0, 1, 2, 3, 4]
    modal_loopback.until(lambda world: "counting" in "".join(line.text for line in world.logs))


def test_many_inputs_of_one_call(small: ModuleType) -> None:
    words = list("abcdefgh")
    assert list(small.plain.map(words)) == [f"{word} ''" for word in words]


# the end of containers


def test_an_idle_container_ends_in_good_order(small: ModuleType, modal_loopback: Loopback) -> None:
    first = session().count.remote()["task"]
    modal_loopback.idle_out()
    assert modal_loopback.containers() == []
    assert "left in good order" in "".join(line.text for line in modal_loopback.world.logs)
    assert session().count.remote()["task"] != first


def test_a_scaledown_window_passes(small: ModuleType, modal_loopback: Loopback) -> None:
    session(scaledown_window=2).count.remote()
    modal_loopback.until(lambda world: not world.alive())


def test_kept_warm_by_the_autoscaler(small: ModuleType, modal_loopback: Loopback) -> None:
    scaler = session(scaledown_window=2).count.autoscaler
    scaler.update(min_containers=1)
    modal_loopback.until(lambda world: [container for container in world.alive() if container.ready])
    scaler.update(min_containers=0)
    modal_loopback.until(lambda world: not world.alive())


def test_deploying_again_replaces_idle_containers(small: ModuleType, modal_loopback: Loopback) -> None:
    session().count.remote()
    (old,) = modal_loopback.containers()
    small.app.deploy(name="small")
    modal_loopback.until(lambda world: old.gone)
    assert session().count.remote()["calls"] == 1


def test_a_crashed_input_runs_again_elsewhere(small: ModuleType) -> None:
    with queue() as answer:
        assert session().crash.remote(answer, 2) == 2


def test_an_input_that_always_crashes_begins_again_until_it_is_cancelled(
    small: ModuleType, modal_loopback: Loopback
) -> None:
    modal_loopback.do(lambda world: setattr(world, "backoff_s", 0.001))
    with queue() as answer:
        crash = session().crash
        call = crash.spawn(answer, 99)
        modal_loopback.until(lambda world: len(world.containers) > 6)
        call.cancel()
        with pytest.raises(modal.exception.RemoteError):
            call.get()
        modal_loopback.idle_out()  # one may have begun that found the input cancelled
        stats = crash.stats()
        assert stats.container_started_count == len(modal_loopback.world.containers)
        assert stats.container_error_count >= 6


def test_an_input_that_always_crashes_fails_in_the_end_where_its_app_is_not_deployed(
    small: ModuleType,
) -> None:
    with queue() as answer, small.app.run():
        with pytest.raises(modal.exception.RemoteError, match="exit code: 137"):
            small.Session().crash.remote(answer, 99)
        assert answer.len() == 3  # crash_limit of 2 and the first


def test_retries_run_a_failed_input_again(small: ModuleType) -> None:
    with queue() as answer:
        assert session(retries=2).fail.remote(answer, 2) == 2
    with queue() as answer, pytest.raises(ValueError, match="not yet"):
        session(retries=1).fail.remote(answer, 2)


@pytest.mark.parametrize("end", [Loopback.kill_containers, Loopback.preempt_containers])
def test_whoever_ends_a_container_ends_all_in_it_and_its_input_starts_again(
    small: ModuleType, modal_loopback: Loopback, end: Callable[[Loopback], None]
) -> None:
    with queue() as answer:
        call = session().wait.spawn(answer)
        first = answer.get(timeout=LIMIT_S)
        end(modal_loopback)
        assert gone(first[0])
        assert gone(first[1])
        assert answer.get(timeout=LIMIT_S) != first
        call.cancel(terminate_containers=True)


def test_a_call_over_its_functions_time_limit(small: ModuleType, modal_loopback: Loopback) -> None:
    with queue() as answer:
        with pytest.raises(modal.exception.FunctionTimeoutError, match="timeout of 1s"):
            session(timeout=1).wait.remote(answer)
        assert gone(answer.get()[1])


def test_a_container_that_cannot_begin(small: ModuleType) -> None:
    with small.app.run(), pytest.raises(RuntimeError, match="no driver"):
        small.Broken().use.remote()


def test_a_container_of_a_deployed_app_that_cannot_begin_is_begun_again(
    small: ModuleType, modal_loopback: Loopback
) -> None:
    modal_loopback.do(lambda world: setattr(world, "backoff_s", 0.001))
    use = session("Broken").use
    call = use.spawn()
    modal_loopback.until(lambda world: sum(container.gone for container in world.containers.values()) > 6)
    with pytest.raises(TimeoutError):
        call.get(timeout=0)
    assert "no driver" in "".join(entry.message for entry in use.logs.tail(20))
    call.cancel()


# cancelling


def test_cancelled_before_there_is_a_container(small: ModuleType, modal_loopback: Loopback) -> None:
    modal_loopback.limit_capacity(0)
    call = session().count.spawn()
    call.cancel()
    with pytest.raises(modal.exception.RemoteError):
        call.get(timeout=LIMIT_S)
    modal_loopback.grant_capacity()
    assert session().count.remote()["calls"] == 1


def test_a_running_call_is_interrupted_and_its_container_stays(
    small: ModuleType, modal_loopback: Loopback
) -> None:
    with queue() as answer:
        call = session().wait.spawn(answer)
        answer.get(timeout=LIMIT_S)
        (container,) = modal_loopback.containers()
        call.cancel()
        with pytest.raises(modal.exception.RemoteError):
            call.get(timeout=LIMIT_S)
        assert session().count.remote()["task"] == container.id


def test_a_call_is_cancelled_by_its_id_alone(small: ModuleType) -> None:
    with queue() as answer:
        call = session().wait.spawn(answer)
        answer.get(timeout=LIMIT_S)
        modal.FunctionCall.from_id(call.object_id).cancel()
        with pytest.raises(modal.exception.RemoteError):
            call.get(timeout=LIMIT_S)


def test_cancelling_with_the_container_leaves_nothing_of_it(
    small: ModuleType, modal_loopback: Loopback
) -> None:
    with queue() as answer:
        call = session().wait.spawn(answer)
        pids = answer.get(timeout=LIMIT_S)
        call.cancel(terminate_containers=True)
        with pytest.raises(modal.exception.RemoteError):
            call.get(timeout=LIMIT_S)
        modal_loopback.until(lambda world: not world.alive())
        assert all(gone(pid) for pid in pids)


# queues


def test_events_stream_through_a_queue_and_name_their_call(small: ModuleType) -> None:
    with queue() as answer:
        call = session().follow.spawn(answer, 5)
        assert answer.get(partition="run", timeout=LIMIT_S) == call.object_id
        assert [answer.get(partition="run", timeout=LIMIT_S) for _ in range(5)] == [0, 1, 2, 3, 4]
        assert call.get(timeout=LIMIT_S) == 5


def test_queues_have_partitions_names_and_limits(modal_loopback: Loopback) -> None:
    made = modal.Queue.from_name("named", create_if_missing=True)
    made.put_many([1, 2, 3], partition="a")
    made.put(9)
    same = modal.Queue.from_name("named")
    assert (same.len(), same.len(partition="a"), same.len(total=True)) == (1, 3, 4)
    assert same.get_many(10, partition="a", block=False) == [1, 2, 3]
    assert same.get(block=False, partition="a") is None
    with pytest.raises(modal.exception.InvalidError, match="1048576"):
        made.put(b"x" * (MiB + 1))
    made.put_many(list(range(5_000)), partition="full")
    with pytest.raises(std_queue.Full):
        made.put(5_000, partition="full", block=False)
    with pytest.raises(modal.exception.NotFoundError):
        modal.Queue.from_name("unknown").len()


def test_a_queue_may_stay_silent(modal_loopback: Loopback) -> None:
    with queue() as answer:
        answer.put("heard")
        modal_loopback.silence_queues()
        with pytest.raises(std_queue.Empty):
            answer.get(timeout=0.1)
        modal_loopback.silence_queues(silent=False)
        assert answer.get() == "heard"


def test_a_restricted_function_is_refused_a_queue_and_used_once(
    small: ModuleType, modal_loopback: Loopback
) -> None:
    with queue() as answer:
        with pytest.raises(modal.exception.PermissionDeniedError, match="QueuePut"):
            small.restricted.remote(answer)
        assert answer.len() == 0
    assert small.restricted.remote(None) != small.restricted.remote(None)
    made = [container.definition for container in modal_loopback.world.containers.values()]
    assert all(function.block_network for function in made)


# what goes wrong


def test_a_token_must_be_known(modal_loopback: Loopback, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODAL_TOKEN_SECRET", "as-wrong")
    with pytest.raises(modal.exception.AuthError, match="malformed or unknown"):
        modal.Queue.from_name("any", create_if_missing=True).len()
    monkeypatch.delenv("MODAL_TOKEN_ID")
    monkeypatch.delenv("MODAL_TOKEN_SECRET")
    monkeypatch.setattr("modal.client._Client._client_from_env", None)
    with pytest.raises(modal.exception.AuthError, match="Token missing"):
        modal.Queue.from_name("other", create_if_missing=True).len()


def test_an_rpc_fails_as_often_as_it_is_told_to(modal_loopback: Loopback) -> None:
    result = modal.Queue.from_name("any", create_if_missing=True).hydrate()
    modal_loopback.fail("QueueLen", Status.FAILED_PRECONDITION, "app is locked", times=2)
    for _ in range(2):
        with pytest.raises(modal.exception.ConflictError, match="app is locked"):
            result.len()
    assert result.len() == 0


def test_throttled_for_a_moment(modal_loopback: Loopback) -> None:
    result = modal.Queue.from_name("any", create_if_missing=True).hydrate()
    modal_loopback.fail("QueueLen", Status.RESOURCE_EXHAUSTED, "slow down", retry_after_s=0.01)
    assert result.len() == 0
    assert modal_loopback.world.calls_of["QueueLen"] == 2


def test_refused_connections_and_their_return(small: ModuleType, modal_loopback: Loopback) -> None:
    assert session().count.remote()["calls"] == 1
    modal_loopback.refuse_connections()
    waiting = session().count.spawn

    async def refused() -> None:
        await asyncio.wait_for(waiting.aio(), 0.5)

    with pytest.raises(TimeoutError):  # the client itself gives up after a minute
        asyncio.run(refused())
    modal_loopback.accept_connections()
    assert session().count.remote()["calls"] >= 2


def test_the_server_dies_during_a_call_and_comes_back(small: ModuleType, modal_loopback: Loopback) -> None:
    with queue() as answer:
        call = session().follow.spawn(answer, 1)
        modal_loopback.die_during("FunctionGetOutputs")
        with pytest.raises((TimeoutError, modal.exception.ConnectionError)):
            asyncio.run(asyncio.wait_for(call.get.aio(), 1))
        modal_loopback.accept_connections()
        assert call.get(timeout=LIMIT_S) == 1


def test_an_internal_failure_of_modals(small: ModuleType, modal_loopback: Loopback) -> None:
    modal_loopback.fail_input(FINAL.GENERIC_STATUS_INTERNAL_FAILURE, "worker lost")
    with pytest.raises(modal.exception.InternalFailure):
        session().count.remote()
    assert session().count.remote()["calls"] == 1


def test_an_image_that_does_not_build_says_why(
    modal_loopback: Loopback, capsys: pytest.CaptureFixture[str]
) -> None:
    modal_loopback.fail_build("nonesuch", "ERROR: No matching distribution found for nonesuch\n")
    app = modal.App("broken", image=modal.Image.debian_slim().pip_install("nonesuch"), include_source=False)
    app.function(serialized=True)(gone)
    with pytest.raises(modal.exception.ImageBuildError), modal.enable_output():
        app.deploy()
    assert "No matching distribution found for nonesuch" in capsys.readouterr().out
    app.deploy()


def test_inputs_wait_for_capacity(small: ModuleType, modal_loopback: Loopback) -> None:
    modal_loopback.limit_capacity(0)
    call = session().count.spawn()
    with pytest.raises(TimeoutError):
        call.get(timeout=0)
    assert session().count.get_current_stats().backlog == 1
    modal_loopback.grant_capacity(1)
    assert call.get(timeout=LIMIT_S)["calls"] == 1


def test_a_clock_that_is_an_hour_ahead(modal_loopback: Loopback, small: ModuleType) -> None:
    modal_loopback.skew_clock(3600)
    session().count.remote()
    (container,) = modal_loopback.containers()
    assert container.started - Path(f"/proc/{container.pid}").stat().st_ctime > 3500
    assert session().count.remote()["calls"] == 2


# the workspace


@pytest.mark.slow
def test_the_modal_command_lists_and_stops(small: ModuleType, modal_loopback: Loopback) -> None:
    session().count.remote()
    assert "small" in modal_cli("app", "list", "--json")
    (container,) = modal_loopback.containers()
    assert container.id in modal_cli("container", "list", "--json")
    assert "loopback" in modal_cli("token", "info")
    modal_cli("app", "stop", "small", "--yes")
    modal_loopback.until(lambda world: container.gone)
    with pytest.raises(modal.exception.NotFoundError):
        modal.Cls.from_name("small", "Session").hydrate()


def test_prices_are_those_that_a_test_gave(modal_loopback: Loopback) -> None:
    modal_loopback.set_rates({"GPU_H100": "0.001097"})
    rates = modal.Workspace.from_context().billing.rates()
    assert str(rates["GPU_H100"]) == "0.001097"


def test_an_ephemeral_app_ends_with_its_client(modal_loopback: Loopback) -> None:
    app = modal.App("short", include_source=False)

    def doubled(number: int) -> int:
        return 2 * number

    double: Any = app.function(serialized=True)(doubled)
    with app.run():
        assert double.remote(21) == 42
    modal_loopback.until(lambda world: not world.alive())
    assert [app.state for app in modal_loopback.world.apps.values()] == [pb.APP_STATE_STOPPED]


def test_an_rpc_that_nobody_answers_raises_the_alarm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def use() -> None:
        with started(monkeypatch, tmp_path):
            modal.Dict.from_name("any", create_if_missing=True).len()

    with pytest.raises(modal.exception.UnimplementedError, match="DictGetOrCreate"):
        use()

    def hide() -> None:
        with started(monkeypatch, tmp_path), pytest.raises(modal.exception.UnimplementedError):
            modal.Dict.from_name("any", create_if_missing=True).len()

    with pytest.raises(AssertionError, match=r"lacks.*DictGetOrCreate"):
        hide()


def command_line() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.modal_loopback"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )


def test_the_command_line_runs_until_its_input_ends() -> None:
    with command_line() as running:
        message, _ = running.communicate("", timeout=LIMIT_S)
    assert running.returncode == 0
    assert "export MODAL_SERVER_URL=http://127.0.0.1:" in message


def test_no_container_outlives_a_control_plane_that_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("modal.client._Client._client_from_env", None)
    with command_line() as running:
        assert running.stdout
        while (line := running.stdout.readline()).startswith("export "):
            name, _, value = line.removeprefix("export ").strip().partition("=")
            monkeypatch.setenv(name, value)
        deployed(monkeypatch)
        answer = modal.Queue.from_name("told", create_if_missing=True).hydrate()
        session().wait.spawn(answer)
        pids: Any = answer.get(timeout=LIMIT_S)
        watched = [os.pidfd_open(pid) for pid in pids]
        running.kill()
        for end in watched:  # readable once the process has ended
            assert select.select([end], [], [], LIMIT_S)[0]
            os.close(end)
    shutil.rmtree(Path(os.environ["MODAL_CONFIG_PATH"]).parent)
