"""A process for one job on a `.py`, or one launch spec: from the job's JSON to the lines of its events.

Standard output and error belong to the user's code and are what the process was given. Events go to a descriptor of
their own, one JSON object a line, the last of them `finished`. A process that ends without it has crashed, and its
status says how.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import dataclasses
import gc
import importlib
import json
import os
import re
import socket
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal, TextIO

from orbit_remote import MAIN
from orbit_remote.child import python_job, surroundings, triton_instances
from orbit_remote.child.harness import built_extensions
from orbit_remote.common import codec, limits, regular_files
from orbit_remote.common import messages as c
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.requests import Job, SpecStart
from orbit_remote.process.gpu_nodes import has_gpu
from orbit_remote.recording import first_context, injection, recorder
from orbit_remote.recording.injection import UNKNOWN
from orbit_remote.toolchain.spec_instances import Image

Role = Literal["spare", "driver", "judge", "unrecorded"]
"""What a forked process is for: a job that is recorded, in a CUDA context that waits for it; a driver, which is recorded from its
first context on; a job of the judge; a job that is not recorded and finds no context (`second_look`).
"""
READY = '{"kind":"ready"}\n'
"""What a child says when it can be given a job."""
TIMED = "trying other arguments"
"""What a judge says when it has timed its candidate, in the words of a stage."""
_LEAVING = '{"kind":"leaving","status":'
"""What a child says when nothing of the user's code runs any more: the driver needs 0.15 s to take its context down (H100)."""


def warm_up() -> None:
    """Import what a job will need, and touch no GPU: CUDA does not survive a fork."""
    _import(("triton", "triton.language", "triton.compiler"))
    hashing = threading.Thread(target=_hash_triton)
    hashing.start()
    others = ("torch.profiler", "cuda.core", "cuda.bindings.driver", "orbit_remote.child.spec.spec_job")
    _import(("torch", *others))
    hashing.join()  # no thread survives a fork


def warm_up_further(*, batch: bool) -> None:
    """Do what would delay the first job, and saves every later one time. Triton imports Gluon at its first launch (35
    ms), and each answer looks up which modules are installed (14 ms, on a machine without a GPU). In a `batch`, many
    candidates build extensions.
    """
    with contextlib.suppress(Exception):  # a module of somebody's may fail at anything
        if "triton" in sys.modules:
            _import(("triton.experimental.gluon",))
        if batch:
            built_extensions.keep_setuptools()
        python_job.modules_read("")


def warm_up_for_judges() -> None:
    """Import what torch imports at the first tensor without data (0.6 s). Each side learns the sizes of a draw by
    such tensors.
    """
    _import(("torch.fx.experimental.symbolic_shapes",))


def _import(names: Iterable[str]) -> None:
    for name in names:
        with contextlib.suppress(Exception):  # said by the user's own import, at its line
            importlib.import_module(name)


def _hash_triton() -> None:
    """Compute Triton's hash of its own files, which names each compiled kernel. It takes 0.3 s, mostly without
    Python's lock, and Triton keeps it.
    """
    for name in ("triton.runtime.cache", "triton.compiler.compiler"):  # since 3.5, and before
        with contextlib.suppress(Exception):
            sys.modules[name].triton_key()


def begin_recording(cache: Path, launches: Path, device: int = 0) -> recorder.Recorder:
    """Begin the recorder, then the CUDA context: CUPTI has to be there when CUDA starts."""
    if not has_gpu():
        return recorder.Nothing()
    recording = recorder.begin(cache, launches)
    with contextlib.suppress(Exception):  # a broken GPU is reported by the user's code, not here
        torch = open_context(device)
        if torch is not None and isinstance(recording, recorder.Native) and recording.record("nothing"):
            from orbit_remote.child.spec import spec_job

            try:
                spec_job.rehearse(torch)
            finally:
                recording.record("automatic")
    return recording


def open_context(device: int) -> Any:
    """Return torch, with a CUDA context on its current device. Return None if it is not installed or finds no GPU."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return None
    torch.cuda.set_device(device)
    torch.empty(1, device="cuda")
    torch.cuda.synchronize()
    return torch


def work(order: ChildOrder, events: TextIO, recording: recorder.Recorder) -> Done:
    """Carry out a job and write its events."""
    job = order.job
    if order.environment is not None:
        surroundings.become(order.environment)
    if isinstance(recording, recorder.Native):
        recording.overhead = order.overhead

    def send(event: c.Event) -> None:
        events.write(c.encode(event) + "\n")
        events.flush()

    _standard_streams(job.stdin)
    try:
        if job.action == "calibrate":
            from orbit_remote.child import calibration

            finished = calibration.measure_rates(job)
        elif job.action == "debug":
            from orbit_remote.child import debug_job

            finished = debug_job.debug(job, send)
        elif job.start.through in ("program", "exec", "driver"):
            finished = python_job.run_file(job, send, recording)
        elif job.start.through == "contract":
            from orbit_remote.child.harness import harness_job

            finished = harness_job.check_and_time(job, send, recording)
        else:
            from orbit_remote.child.spec import spec_job

            instead = None
            if isinstance(job.start, SpecStart) and job.start.record:
                from orbit_remote.child.capture import cuda_capturing

                instead = partial(cuda_capturing.captured, job)
            finished = spec_job.run_launch_spec(job, send, recording, order.image, instead)
    except Exception as error:  # noqa: BLE001 - a fault of ours, told as one
        text = f"orbit failed while it ran the file: {type(error).__name__}: {error}"
        traceback.print_exc()
        finished = c.failed(job.run, c.Failure("infrastructure", text, "please report it"))
    if order.compiled:
        triton_instances.keep_compiled(Path(order.compiled))
        finished = dataclasses.replace(finished, remarks=(*finished.remarks, *triton_instances.tuned()))
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()  # it may be killed as soon as it has answered
    send(finished)
    # of the launch spec of a CUDA file nothing stays behind: its code was device code, and went with its module
    no_host_code = job.start.through == "spec" or job.action == "calibrate"
    clean = no_host_code and job.language == "cuda" and finished.outcome in ("ok", "wrong answer")
    return Done(finished.exit_code or 0, clean and isinstance(recording, recorder.Native))


@dataclass(frozen=True, slots=True)
class Done:
    """The end of a job. `status` is the exit status that a process would have had. `clean` says that this process is
    as it was before.
    """

    status: int
    clean: bool


def serve(connection: socket.socket, recording: recorder.Recorder) -> int:
    """Do the jobs that come over a connection, each a line, as long as the process stays clean. Return the last one's
    status.

    Between two launch specs the process stays: ending it takes 0.15 s and a new one 0.5 s (H100).
    """
    with connection.makefile("w", encoding="utf-8", errors="surrogatepass") as out:
        while line := read_line(connection):
            done = work(read_order(line), out, recording)
            if not done.clean:
                return done.status
            out.write(READY)
            out.flush()
            _tidy(recording)
    return 0  # nobody wants it any more


def serve_driver(connection: socket.socket, cache: Path, launches: Path) -> int:
    """Do the one job that comes over a connection, and return its status. What it will need is prepared before it
    comes.
    """
    recording: recorder.Recorder | None = recorder.Nothing()
    if has_gpu():
        recording = recorder.begin_at_first_context(cache, launches)
    _import(("pytest",))
    connection.sendall(READY.encode())
    if not (line := read_line(connection)):
        return 0
    if recording is None:  # nobody would tell of the first context
        first_context.wait(launches)
        recording = recorder.begin(cache, launches)
    with connection.makefile("w", encoding="utf-8", errors="surrogatepass") as out:
        return work(read_order(line), out, recording).status


def _tidy(recording: recorder.Recorder) -> None:
    """Give back the GPU's memory, and begin a new page of the record."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.cuda.empty_cache()
    if isinstance(recording, recorder.Native):
        recording.again()


def read_line(connection: socket.socket) -> bytes:
    """Read a line. Return b"" at the end."""
    line = bytearray()
    while not line.endswith(b"\n"):
        chunk = connection.recv(1 << 16)
        if not chunk:
            return b""
        line += chunk
    return bytes(line)


@dataclass(frozen=True, slots=True)
class ChildOrder:
    """What a child is given to do. `image` is what the launch spec of a `.cu` file launches. `compiled` is the folder
    in which it leaves what Triton made of the kernels, if any. `overhead` is subtracted from the times of a program.
    `environment` are the variables that the job sees, None if the process was started with them. A judge makes its
    files in `folder`, or where temporary files lie.
    """

    job: Job
    image: Image | None = None
    compiled: str = ""
    overhead: injection.Overhead = UNKNOWN
    environment: dict[str, str] | None = None
    folder: str | None = None


def order(
    job: Job,
    image: Image | None = None,
    compiled: str = "",
    overhead: injection.Overhead = UNKNOWN,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> bytes:
    """Encode an order as one line."""
    variables = None if environment is None else dict(environment)
    order = dataclasses.asdict(
        ChildOrder(job, image, compiled, overhead, variables, None if folder is None else str(folder))
    )
    text = json.dumps(order, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass") + b"\n"


def read_order(line: bytes) -> ChildOrder:
    """Raises ValueError for anything else."""
    return codec.build(ChildOrder, codec.read_json(line.decode("utf-8", "surrogatepass")))


def _standard_streams(stdin: str) -> None:
    """Make Python's streams anew, because the descriptors are not those it found when it started.

    Input is a file and not a pipe, so that nobody has to feed it. Output is written line by line: what user code
    prints is seen at once, and is not lost in a crash.
    """
    with tempfile.TemporaryFile() as file:
        file.write(stdin.encode(errors="surrogatepass"))
        file.flush()
        file.seek(0)
        os.dup2(file.fileno(), 0)
    sys.stdin = sys.__stdin__ = open(0, encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115
    sys.stdout, sys.stderr = _writer(1), _writer(2)
    sys.__stdout__, sys.__stderr__ = sys.stdout, sys.stderr


def _writer(descriptor: int) -> TextIO:
    return open(descriptor, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)


def command(
    folder: Path,
    cache: Path,
    job: Job,
    image: Image | None = None,
    compiled: str = "",
    overhead: injection.Overhead = UNKNOWN,
) -> list[str]:
    """Return what starts a process for one job, if none is kept ready. `folder` gets its order, then its `events` and
    the `launches` that it records. `cache` is the recorder's.
    """
    (folder / "order").write_bytes(order(job, image, compiled, overhead))
    return [sys.executable, "-P", str(MAIN), "child", str(folder), str(cache)]


def child_main(arguments: list[str]) -> int:
    """Run a process that was started for one job by `command`. Under a tool no launches are recorded: one process has
    room for only one of the two.
    """
    parser = argparse.ArgumentParser(prog="orbit_remote child")
    parser.add_argument("folder", type=Path)
    parser.add_argument("cache", type=Path)
    options = parser.parse_args(arguments)
    given = read_order(regular_files.read(options.folder / "order", limits.EVENTS))
    warm_up()
    with (options.folder / "events").open("w", encoding="utf-8") as events:
        recording: recorder.Recorder = recorder.UnderTool()
        if given.job.action == "profile":
            with contextlib.suppress(Exception):  # as in `begin_recording`
                open_context(given.job.device)
        elif given.job.action != "sanitize":
            recording = begin_recording(options.cache, options.folder / "launches", given.job.device)
        status = work(given, events, recording).status
    leave(status)
    return status


def leave(status: int, told: socket.socket | None = None) -> None:
    """End as a process does, except for threads that the user's code left running: nobody waits for them. `told` gets
    the status when only the end itself is left.
    """
    with contextlib.suppress(BaseException):
        atexit._run_exitfuncs()  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    if told is not None:
        with contextlib.suppress(OSError):  # the user's code has closed it: the end itself tells
            told.sendall(f"{_LEAVING}{status}}}\n".encode())
    os._exit(status)


def status_of_leaving(line: bytes) -> int | None:
    """Return the exit status of a child that says it is leaving. Return None for any other line."""
    text = line.decode(errors="replace")
    number = text.removeprefix(_LEAVING).removesuffix("}\n")
    return int(number) if text.startswith(_LEAVING) and re.fullmatch(r"-?\d{1,4}", number, re.ASCII) else None


def outcome(folder: Path) -> c.Finished | None:
    """Return the last word of a process that `command` started. Return None if it had none."""
    try:
        lines = regular_files.text(folder / "events", limits.EVENTS).splitlines()
    except OSError:
        return None
    last = decode_event(lines[-1]) if lines else None
    return last if isinstance(last, c.Finished) else None


def decode_event(line: str) -> c.Event | None:
    """Decode an event of a job's process. User code may write there too, so anything else is None."""
    try:
        event = codec.decode_event(codec.read_json(line))
    except ValueError:
        return None
    return event if isinstance(event, c.Stage | c.Debugger | c.Finished) else None
