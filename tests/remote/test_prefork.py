"""Warm spares with the real torch and triton, without a GPU: what a job sees, and that nothing outlives."""

from __future__ import annotations

import asyncio
import gc
import importlib.util
import os
import signal
import socket
import sys
import textwrap
from pathlib import Path

import psutil
import pytest
import pytest_asyncio

from orbit_remote import PACKAGE
from orbit_remote.child import child_main
from orbit_remote.common import messages as c
from orbit_remote.common.requests import Job
from orbit_remote.judge import judge_main
from orbit_remote.process import process_groups, program
from orbit_remote.worker import children, context, prefork
from orbit_remote.worker.actions import python_action
from tests import cheats
from tests.processes_check import ended, is_alive

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="no torch here"),
    pytest.mark.skipif(sys.platform != "linux", reason="spares are forked on Linux only"),
    pytest.mark.asyncio(loop_scope="module"),
]

ENV = program.environment(os.environ)


def job(text: str, **fields) -> Job:
    return Job("1", "run", "triton", "/no/such/folder/kernels.py", textwrap.dedent(text), **fields)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pool(tmp_path_factory):
    """One of all tests that leave its template alive, which takes seconds to start."""
    cache = tmp_path_factory.mktemp("cache")
    pool = prefork.PreforkPool(cache=cache, scratches=cache)
    yield pool
    await pool.close()


@pytest.fixture
def quick(tmp_path):
    """An environment without torch and Triton, where a template starts ten times as fast: for tests of processes alone."""
    for name in ("torch.py", "triton.py"):
        (tmp_path / name).write_text("raise ImportError\n")
    return {**ENV, "PYTHONPATH": str(tmp_path)}


@pytest_asyncio.fixture(loop_scope="module")
async def own_pool(tmp_path):
    pool = prefork.PreforkPool(cache=tmp_path, scratches=tmp_path)
    yield pool
    await pool.close()


async def finish(child: children.Child) -> tuple[int, c.Finished | None, str, str]:
    """(status, result, stdout, stderr) of a child that ends by itself."""
    out, err = asyncio.ensure_future(child.stdout.read()), asyncio.ensure_future(child.stderr.read())
    events = [event async for event in child.events()]
    status = await child.wait()
    await child.close()
    result = events[-1] if events and isinstance(events[-1], c.Finished) else None
    return status, result, (await out).decode(), (await err).decode()


async def run(
    pool: prefork.PreforkPool, text: str, env=ENV, **fields
) -> tuple[int, c.Finished | None, str, str]:
    return await finish(await pool.take(job(text, **fields), env))


async def test_a_job_runs_in_a_process_that_has_torch_already(pool):
    text = """
        import sys, os
        warm = {name for name in ("torch", "triton") if name in sys.modules}
        import torch
        def main():
            print(sorted(warm), os.getpgrp() == os.getpid(), sys.stdin.read(), sys.argv[1:])
            print("to stderr", file=sys.stderr)
    """
    status, result, out, err = await run(pool, text, stdin="typed", arguments=("--n",))
    assert (status, out, err) == (0, "['torch', 'triton'] True typed ['--n']\n", "to stderr\n")
    assert result is not None
    assert result.outcome == "ok"


async def test_a_judge_is_forked_from_the_template_too(pool, tmp_path):
    await pool.prepare(ENV)
    spare = pool.waiting
    child = await pool.take(cheats.job_of(tmp_path, cheats.HONEST.text("cpu")), ENV)
    assert psutil.Process(child.pid).ppid() == psutil.Process(spare).ppid()
    status, result, _, _ = await finish(child)
    assert status == 0
    assert result is not None
    import torch

    if not torch.cuda.is_available():
        assert result.outcome == "infrastructure"
        assert "finds no GPU" in result.failure.message
    assert pool.waiting == spare


@pytest.mark.slow
async def test_where_there_is_no_referee_the_job_is_an_authors(tmp_path, monkeypatch):
    ours, theirs = socket.socketpair()
    refused = OSError("no stream memory operations")
    with ours, theirs:
        ours.sendall(child_main.order(cheats.job_of(tmp_path, cheats.HONEST.text("cpu")), environment=ENV))
        with monkeypatch.context() as patch:
            patch.setattr(judge_main, "judge", lambda *_, **__: (_ for _ in ()).throw(refused))
            pid = os.fork()
            if pid == 0:
                os._exit(judge_main.serve(theirs, tmp_path))
        theirs.close()
        events = await asyncio.to_thread(lambda: list(ours.makefile()))
        assert os.waitpid(pid, 0)[1] == 0  # noqa: ASYNC222 - it has closed its end
    result = child_main.decode_event(events[-1])
    assert isinstance(result, c.Finished)
    assert result.judged
    assert (result.judged.grade, result.judged.why.rpartition(", ")[2]) == (
        "author",
        "because this machine cannot judge from outside: no stream memory operations",
    )


async def test_the_next_spare_comes_when_a_job_measures_nothing_more(own_pool, quick):
    child = await own_pool.take(job("import time\ndef main(): time.sleep(600)"), quick)
    assert own_pool.waiting is None
    own_pool.measured(child)
    await asyncio.gather(*own_pool._renewing)
    assert own_pool.waiting not in (None, child.pid)
    child.kill()
    assert await child.wait() == -signal.SIGKILL
    await child.close()


async def test_in_a_batch_the_next_spares_wait_before_a_job_is_over(own_pool, quick):
    child = await own_pool.take(job("import time\ndef main(): time.sleep(600)"), quick, ahead=True)
    await asyncio.gather(*own_pool._renewing)
    spares = list(own_pool._spares)
    await asyncio.gather(*(spare.ready() for spare in spares))
    assert len(spares) == 3
    child.kill()
    own_pool.let_go(child)
    alone = await own_pool.take(job("import time\ndef main(): time.sleep(600)"), quick)
    assert alone is spares[0]
    assert [is_alive(spare.pid) for spare in spares] == [True, False, False]
    await alone.close()


async def test_events_come_while_the_job_runs(pool):
    child = await pool.take(job("import time\ndef main(): time.sleep(600)"), ENV)
    events = child.events()
    first = await anext(events)
    assert isinstance(first, c.Stage)
    assert first.state == "running"
    child.kill()
    assert [event async for event in events] == []
    assert await child.wait() == -signal.SIGKILL
    await child.close()


async def test_every_job_has_a_process_of_its_own_and_a_spare_is_renewed(pool):
    await pool.prepare(ENV)
    first = pool.waiting
    child = await pool.take(job("kept = 1\ndef main(): pass"), ENV)
    assert child.pid == first
    await finish(child)
    await pool.prepare(ENV)
    second = pool.waiting
    assert second != first
    status, _, out, _ = await run(pool, "def main(): print('kept' in globals())")
    assert (status, out) == (0, "False\n")


async def test_a_spare_that_is_in_the_way_is_ended_when_free_returns(own_pool, quick):
    await own_pool.free()
    await own_pool.prepare(quick)
    pid = own_pool.waiting
    await own_pool.free()
    assert not psutil.pid_exists(pid)
    assert own_pool.waiting is None
    await own_pool.prepare(quick)
    assert own_pool.waiting != pid


async def test_a_crash_ends_its_own_process_alone(pool):
    sleeper = await pool.take(job("import time\ndef main(): time.sleep(600)"), ENV)
    crash = "import os, signal\ndef main():\n    print('before')\n    os.kill(os.getpid(), signal.SIGSEGV)"
    status, result, out, _ = await run(pool, crash)
    assert (status, result, out) == (-signal.SIGSEGV, None, "before\n")
    assert psutil.pid_exists(sleeper.pid)
    status, _, out, _ = await run(pool, "def main(): print('still here')")
    assert (status, out) == (0, "still here\n")
    sleeper.kill()
    assert await sleeper.wait() == -signal.SIGKILL
    await sleeper.close()


@pytest.mark.parametrize(
    ("end", "status"), [("sys.exit(3)", 3), ("os._exit(4)", 4), ("1 / 0", 1), ("os.abort()", -6)]
)
async def test_the_exit_status_is_the_programs(end, status, pool):
    assert (await run(pool, f"import os, sys\ndef main(): {end}"))[0] == status


@pytest.mark.parametrize(
    ("end", "tells"),
    [("sys.exit(3)", 3), ("1 / 0", 1), ("os._exit(4)", None), ("os.closerange(3, 99)", None)],
)
async def test_a_child_tells_its_status_when_only_its_end_is_left(end, tells, own_pool, quick):
    text = f"import atexit, os, sys\ndef main():\n    atexit.register(print, 'at exit')\n    {end}"
    child = await own_pool.take(job(text), quick)
    async for _ in child.events():
        pass
    assert await child.afterwards() == tells
    if tells is not None:
        assert await child.stdout.readline() == b"at exit\n"
    await child.wait()
    await child.close()


async def test_an_answer_does_not_wait_for_the_end_of_its_process(tmp_path, quick, monkeypatch):
    """The driver takes a context down in 0.15 s; the lease is held until then."""
    may_end, closed = asyncio.Event(), []
    close = children.Forked.close

    async def late(child):
        await may_end.wait()
        await close(child)
        closed.append(child.pid)

    monkeypatch.setattr(children.Forked, "close", late)
    shared = context.Shared(tmp_path)
    client = context.WorkerClient(lambda _: None, quick)
    work = python_action.follow(
        job("def main(): print('done')"), context.WorkerContext(shared, client, asyncio.sleep), None
    )
    finished = await work
    assert (finished.outcome, finished.exit_code, finished.stdout) == ("ok", 0, "done\n")
    assert not closed
    may_end.set()
    await shared.close()
    assert closed  # a spare may be among them


async def test_exit_handlers_run(pool):
    _, _, out, _ = await run(pool, "import atexit\ndef main(): atexit.register(print, 'at exit')")
    assert out == "at exit\n"


async def test_what_a_job_started_ends_with_it(pool):
    text = "import subprocess\ndef main(): print(subprocess.Popen(['sleep', '600']).pid)"
    _, result, out, _ = await run(pool, text)
    assert result is not None
    await ended(int(out))


async def test_kill_ends_what_a_job_started(pool):
    text = "import subprocess, time\ndef main():\n    print(subprocess.Popen(['sleep', '600']).pid)\n    time.sleep(600)"
    child = await pool.take(job(text), ENV)
    grandchild = int(await child.stdout.readline())
    child.kill()
    assert await child.wait() == -signal.SIGKILL
    await ended(grandchild)
    await child.close()


DAEMON = """
import os, time
def daemon():
    near, far = os.pipe()
    if os.fork():
        return int(os.read(near, 32))
    os.setsid()
    if os.fork():
        os._exit(0)
    os.setsid()
    os.write(far, str(os.getpid()).encode())
    time.sleep(600)
"""


@pytest.mark.parametrize("end", ["return", "os._exit(5)", "os.abort()", "sys.exit(2)"])
async def test_a_daemon_of_a_job_ends_with_it(end, pool):
    child = await pool.take(job(f"import sys\n{DAEMON}\ndef main():\n    print(daemon())\n    {end}"), ENV)
    daemon = int(await child.stdout.readline())
    assert [event async for event in child.events()]
    await child.wait()
    assert not is_alive(daemon)
    await child.close()


async def test_kill_ends_a_jobs_daemon_and_no_other_jobs(pool):
    text = DAEMON + "\ndef main():\n    print(daemon())\n    time.sleep(600)"
    item, other = await pool.take(job(text), ENV), await pool.take(job(text), ENV)
    daemon, remaining = int(await item.stdout.readline()), int(await other.stdout.readline())
    item.kill()
    assert await item.wait() == -signal.SIGKILL
    assert (is_alive(daemon), is_alive(remaining), is_alive(other.pid)) == (False, True, True)
    other.kill()
    await other.wait()
    assert not is_alive(remaining)
    await item.close()
    await other.close()


FORKS = """
import subprocess, sys, time
FORKER = '''
import os, time
count = 0
try:
    while count < {most}:
        if os.fork() == 0:
            if count % 2:
                os.setsid()
            time.sleep(600)
            os._exit(0)
        count += 1
except OSError:  # a limit of this machine
    pass
print(count, flush=True)
time.sleep(600)
'''
def main():
    forker = subprocess.Popen([sys.executable, "-SIc", FORKER], stdout=subprocess.PIPE)  # forks faster than a large process
    print(int(forker.stdout.readline()), flush=True)
    {end}
"""


@pytest.mark.parametrize(
    ("most", "end"),
    [
        (300, "time.sleep(600)"),
        pytest.param(300, "return", marks=pytest.mark.slow),
        pytest.param(3_000, "time.sleep(600)", marks=pytest.mark.slow),
    ],
)
async def test_thousands_of_processes_of_a_job_end_with_it(most, end, own_pool, quick):
    child = await own_pool.take(job(FORKS.format(most=most, end=end)), quick)
    template = psutil.Process(child.pid).parent()
    assert int(await child.stdout.readline()) > 100
    if end != "return":
        child.kill()
    await child.wait()
    await own_pool.prepare(quick)  # the next spare is known by its number
    assert [process.pid for process in template.children(recursive=True)] == [own_pool.waiting]
    await child.close()
    _, _, out, _ = await run(own_pool, "def main(): print('the next')", quick)
    assert out == "the next\n"


async def test_a_template_that_dies_is_replaced(own_pool, quick):
    await own_pool.prepare(quick)
    spare = own_pool.waiting
    template = psutil.Process(spare).ppid()
    os.kill(template, signal.SIGKILL)
    await ended(template, spare)
    status, _, out, _ = await run(own_pool, "def main(): print('anew')", quick)
    assert (status, out) == (0, "anew\n")


@pytest.mark.parametrize(
    "stop", ["os.kill(os.getppid(), signal.SIGSTOP)", "ctypes.CDLL(None).ptrace(16, os.getppid(), 0, 0)"]
)
async def test_a_template_that_a_job_stops_goes_on(stop, own_pool, quick):
    text = f"import ctypes, os, signal\ndef main():\n    {stop}\n    os._exit(3)"
    status, _, _, _ = await run(own_pool, text, quick)
    assert status == 3
    status, _, out, _ = await run(own_pool, "def main(): print('the next job')", quick)
    assert (status, out) == (0, "the next job\n")


async def test_a_job_that_cannot_be_handed_over_leaves_no_process_and_no_folder(own_pool, quick, monkeypatch):
    async def begin(self, order):
        raise OSError("nobody listens")

    await own_pool.prepare(quick)
    (spare,) = own_pool._spares
    monkeypatch.setattr(children.Forked, "begin", begin)
    with pytest.raises(OSError, match="nobody listens"):
        await own_pool.take(job("pass"), quick)
    await own_pool.free()
    assert not spare.alive
    assert not spare.launches.exists()


async def test_another_environment_is_another_template(own_pool, quick):
    text = "import os\ndef main(): print(os.environ.get('TRITON_DEBUG'))"
    _, _, out, _ = await run(own_pool, text, quick)
    assert out == "None\n"
    _, _, out, _ = await run(own_pool, text, {**quick, "TRITON_DEBUG": "1"})
    assert out == "1\n"


async def test_a_job_sees_its_own_clients_variables_and_a_warm_process_serves_both(own_pool, quick):
    text = """
        import os, tempfile
        def main():
            print(*map(os.environ.get, ("TERM", "PATH", "OURS")), tempfile.gettempdir())
            print(os.getppid())
    """
    clients = [
        {"TERM": "xterm", "PATH": "/editor", "OURS": "/built"},
        {"PATH": "/shell", "TMPDIR": "/dev/shm"},
    ]
    variables, templates = [], set()
    for client in clients:
        _, _, out, _ = await run(own_pool, text, {"PYTHONPATH": quick["PYTHONPATH"], **client})
        line, template = out.splitlines()
        variables.append(line)
        templates.add(template)
    assert variables == ["xterm /editor /built /tmp", "None /shell None /dev/shm"]
    assert len(templates) == 1


async def test_an_idle_spare_is_ended_and_the_template_stays(own_pool, quick):
    status, _, _, _ = await run(own_pool, "def main(): pass", quick)
    assert status == 0
    await own_pool.prepare(quick)
    spare = own_pool.waiting
    template = psutil.Process(spare).ppid()
    own_pool.idle_s = 0.0
    await own_pool.prepare(quick)
    await ended(spare)
    assert own_pool.waiting is None
    assert is_alive(template)


async def test_close_ends_everything(own_pool, quick):
    child = await own_pool.take(job("import time\ndef main(): time.sleep(600)"), quick)
    template = psutil.Process(child.pid).ppid()
    await own_pool.close()
    await ended(child.pid, template)
    with pytest.raises(OSError, match="is ending"):
        await own_pool.take(job("def main(): pass"), quick)


async def test_a_job_of_megabytes_and_a_result_of_megabytes(pool):
    text = "words = '" + "x" * 3_000_000 + "'\ndef main(): raise ValueError(words)"
    status, result, _, _ = await run(pool, text)
    assert status == 1
    assert result is not None
    assert len(result.problems[0].message) > 3_000_000


WORKER = """
import asyncio, os, sys
from pathlib import Path
from orbit_remote.common.requests import Job
from orbit_remote.worker import prefork

async def main():
    pool = prefork.PreforkPool(cache=Path(sys.argv[1]))
    text = "import subprocess, time\\ndef main():\\n    print(subprocess.Popen(['sleep', '600'], start_new_session=True).pid)\\n    time.sleep(600)"
    child = await pool.take(Job("1", "run", "triton", "/k.py", text), os.environ)
    print(child.pid, int(await child.stdout.readline()), flush=True)
    await child.wait()

asyncio.run(main())
"""


async def test_nothing_is_left_when_the_worker_is_killed(tmp_path, quick):
    path = os.pathsep.join([quick["PYTHONPATH"], str(PACKAGE.parent)])
    worker = await process_groups.start(
        [sys.executable, "-c", WORKER, str(tmp_path)], env=quick | {"PYTHONPATH": path}, stderr=None
    )
    assert worker.stdout is not None
    child, grandchild = map(int, (await worker.stdout.readline()).split())
    template = psutil.Process(child).ppid()
    os.kill(worker.pid, signal.SIGKILL)
    await worker.wait()
    await ended(child, grandchild, template)


async def test_where_nothing_can_be_forked_a_job_has_a_fresh_process(own_pool, quick, monkeypatch):
    monkeypatch.setattr(prefork, "FORKS", False)
    await own_pool.prepare(quick)
    text = "import sys\ndef main(): print('fresh'); sys.exit(3)"
    status, result, out, _ = await run(own_pool, text, quick)
    assert (status, out) == (3, "fresh\n")
    assert result is not None
    assert result.exit_code == 3
    child = await own_pool.take(job("import time\ndef main():\n    print('x')\n    time.sleep(600)"), quick)
    await child.stdout.readline()
    child.kill()
    assert await child.wait() == -signal.SIGKILL
    await child.close()


def descriptors() -> int:
    gc.collect()  # those of other tests
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@pytest.mark.slow
async def test_no_descriptor_of_ours_is_left_open(pool):
    await run(pool, "def main(): pass")
    await pool.prepare(ENV)
    before = descriptors()
    for _ in range(3):
        await run(pool, "def main(): pass")
        await pool.prepare(ENV)
    assert descriptors() <= before
