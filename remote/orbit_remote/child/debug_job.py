"""Runs a Triton kernel under debugpy in a job's own process, interpreted on the CPU, stopped in one program instance.

With a launch spec, only that instance of its kernel runs; the launches before it run whole. Without one the file's
program runs unchanged, and the debugger sees one instance of each launch.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

from orbit_remote.child import python_job, without_gpu
from orbit_remote.child.spec import triton_backend
from orbit_remote.child.spec.expectation import SpecVerdict, When
from orbit_remote.child.spec.trial import Gpu, MissingPackageError, Trials, load_torch
from orbit_remote.child.triton_interpreter import InstanceEndedError, ProgramInstance, TritonInterpreter
from orbit_remote.child.user_module import UserFile
from orbit_remote.common import messages as c
from orbit_remote.common import python_errors
from orbit_remote.common.packages import installing
from orbit_remote.common.requests import Job
from orbit_remote.spec import launch_spec
from orbit_remote.spec.dtypes import Tolerance
from orbit_remote.spec.launch_spec import SpecPoint
from orbit_remote.spec.syntax_tree import SpecError, SpecSpan

ATTACH_S = 60.0
"""How long a debugger may take to attach."""
SEARCH_S = 30.0
"""How long program instances are interpreted in search of a wrong element."""
_FIRST = ProgramInstance(0, (0, 0, 0))
_LOOPBACK = "127.0.0.1"

Send = Callable[[c.Event], None]


def debug(job: Job, send: Send) -> c.Finished:
    """Do the whole job in this process, which is good for no other afterwards."""
    assert job.definition is not None
    try:
        _check(job)
        interpreter = TritonInterpreter(job.definition.name)
        session = _Session(job, send, interpreter)
        if job.start.through == "spec":
            _debug_spec(job, send, interpreter, session)
        else:
            _debug_program(job, interpreter, session)
    except MissingPackageError as missing:
        return c.failed(job.run, missing.failure)
    except SpecError as error:
        failure = c.Failure("runtime error", f"the launch spec: {error.fault.message}")
        return c.failed(job.run, failure)
    except BaseException as error:  # noqa: BLE001 - whatever user code raises is its result
        explained = python_errors.explain(error, job.path).failure
        at = f" (line {explained.place.line})" if explained.place else ""
        failure = c.Failure(explained.category, f"{explained.message}{at}", explained.remedy)
        return c.failed(job.run, failure)
    return c.ok(job.run, remarks=tuple(session.remarks))


def _check(job: Job) -> None:
    """Raises MissingPackageError."""
    for package in (*c.DEBUGGING, "triton"):
        try:
            importlib.import_module(package)
        except ImportError:
            text = f"debugging a Triton kernel needs {package}, which {sys.executable} lacks"
            raise MissingPackageError(text, installing.remedy(sys.executable, package)) from None
    if not Path(job.path).is_file():
        raise MissingPackageError(f"{job.path} is not on disk, where debuggers look for it", "save it first")


class _Session:
    """debugpy in this process, and the instance that it sees. `remarks` are about that instance."""

    def __init__(self, job: Job, send: Send, interpreter: TritonInterpreter) -> None:
        self._job = job
        self._send = send
        self._interpreter = interpreter
        self._debugpy: Any = importlib.import_module("debugpy")
        self.remarks: list[str] = []

    def attach(self, instance: ProgramInstance, remark: str = "") -> None:
        """Wait for a client. Raises MissingPackageError if debugpy is missing or no client attaches in time."""
        assert self._job.definition is not None
        self.remarks += [remark] if remark else []
        host, port = self._debugpy.listen((_LOOPBACK, 0), in_process_debug_adapter=True)
        if not port:
            remedy = installing.remedy(sys.executable, "debugpy>=1.8.22")
            raise MissingPackageError("the debugger needs debugpy 1.8.22 or newer", remedy)
        self._send(c.Debugger(self._job.run, host, port, self._job.definition.name, instance.program, remark))
        wait = self._debugpy.wait_for_client
        patience = threading.Timer(ATTACH_S, lambda: wait.cancel())  # noqa: PLW0108 - another function once it waits
        patience.daemon = True
        patience.start()
        wait()
        patience.cancel()
        if not self.attached:
            raise MissingPackageError(
                f"no debugger attached within {ATTACH_S:g} s", "start it again, then attach"
            )
        self._send(c.Stage(self._job.run, "running", time.time(), "a debugger is attached"))

    @property
    def attached(self) -> bool:
        return bool(self._debugpy.is_client_connected())

    def run(self, function: Any, call: Callable[[], None]) -> None:
        """Run an instance that the debugger sees. It stops there, at the first line if nothing else stops it."""
        self._debugpy.trace_this_thread(True)
        _stop_at_start(function.__code__)
        call()

    @contextlib.contextmanager
    def untraced(self) -> Generator[None]:
        self._debugpy.trace_this_thread(False)
        try:
            yield
        finally:
            self._debugpy.trace_this_thread(True)


def _stop_at_start(code: Any) -> None:
    """Set a breakpoint at the first statement of a function if its author has set none. It is pydevd's own, because a
    client that attaches cannot ask to be stopped on entry.
    """
    with contextlib.suppress(
        Exception
    ):  # without it the debugger stops only at breakpoints that its user sets
        pydevd: Any = importlib.import_module("pydevd")
        files: Any = importlib.import_module("pydevd_file_utils")
        api: Any = importlib.import_module("_pydevd_bundle.pydevd_api").PyDevdAPI()
        debugger = pydevd.get_global_debugger()
        lines = sorted({line for *_, line in code.co_lines() if line and line > code.co_firstlineno})
        path = files.get_abs_path_real_path_and_base_from_file(code.co_filename)[1]
        known = [
            line
            for file in (path, code.co_filename)
            for line in debugger.breakpoints.get(file, {})
            if lines[0] <= line <= lines[-1]
        ]
        if not known:
            api.add_breakpoint(
                debugger,
                code.co_filename,
                "python-line",
                0,
                lines[0],
                None,
                "None",
                None,
                "NONE",
                None,
                False,
            )


# -- a launch spec ----------------------------------------------------------------------------------


class InterpreterMemory(Gpu):
    """The memory that an interpreted kernel gets."""

    device = "cpu"

    def free(self) -> int:
        with contextlib.suppress(ValueError, OSError, AttributeError):
            return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
        return 1 << 30

    def synchronize(self) -> None:
        pass


class _FirstWrong(SpecVerdict):
    """Remembers where in memory the first element lies that a check found wrong."""

    address: int | None = None

    def _compared(
        self,
        name: str,
        what: str,
        span: SpecSpan,
        actual: Any,
        expected: Any,
        allowed: Tolerance,
        point: SpecPoint,
        when: When,
    ) -> c.Check:
        check = super()._compared(name, what, span, actual, expected, allowed, point, when)
        if not check.passed and check.differing and self.address is None:
            steps = zip(check.index, actual.stride(), strict=False)
            offset = sum(index * step for index, step in steps)
            self.address = int(actual.data_ptr()) + offset * int(actual.element_size())
        return check


def _debug_spec(job: Job, send: Send, interpreter: TritonInterpreter, session: _Session) -> None:
    from orbit_remote.child.spec import spec_job

    assert job.definition is not None
    torch = load_torch(job, "debugging makes its inputs with", "cpu")
    checked = spec_job.checked_spec(job)
    backend = triton_backend.Triton(torch, job)
    host = InterpreterMemory(torch)
    trials = Trials(checked, job, backend, host)
    points, _ = launch_spec.points(checked.spec)
    point, instance, remark = points[0], _FIRST, ""
    if job.instance == "wrong":
        verdict = _FirstWrong(job, checked.spec, backend, host)
        search = _WriterSearch(job, send, interpreter, trials, verdict)
        point, instance, remark = search.first_wrong(points)
    trial = trials.make(point, 0)
    session.attach(instance, remark)

    def enter(function: Any, at: ProgramInstance, call: Callable[[], None]) -> None:
        if at == instance:
            session.run(function, call)
            raise InstanceEndedError
        if at.launch < instance.launch:
            with session.untraced():
                call()

    interpreter.enter = enter
    interpreter.record_writes(False)
    with contextlib.suppress(InstanceEndedError):
        trial.launch()


class _WriterSearch:
    """Searches for the program instance that writes the first wrong element."""

    def __init__(
        self, job: Job, send: Send, interpreter: TritonInterpreter, trials: Trials, verdict: _FirstWrong
    ) -> None:
        self._job = job
        self._send = send
        self._interpreter = interpreter
        self._trials = trials
        self._verdict = verdict

    def first_wrong(self, points: list[SpecPoint]) -> tuple[SpecPoint, ProgramInstance, str]:
        """Return the set of values, the instance, and a remark about it."""
        limit = time.monotonic() + SEARCH_S

        def enter(_: Any, __: ProgramInstance, call: Callable[[], None]) -> None:
            if time.monotonic() > limit:
                raise _Late
            call()

        self._interpreter.enter = enter
        for at, point in enumerate(points):
            why = f"looking for the first wrong element ({at + 1} of {len(points)})"
            self._send(c.Stage(self._job.run, "running", time.time(), why))
            trial = self._trials.make(point, 0)
            self._interpreter.record_writes(True)
            try:
                _, sound = self._verdict.check(trial, point, "first")
            except _Late:
                text = f"no wrong element was found in {SEARCH_S:g} s, so this is the first program instance"
                return points[0], _FIRST, f"{text}; a `case` with small values is searched faster"
            if not sound:
                return point, *self._instance()
        return points[0], _FIRST, "interpreted, every check passes, so this is the first program instance"

    def _instance(self) -> tuple[ProgramInstance, str]:
        message = self._verdict.failure.message if self._verdict.failure else ""
        address = self._verdict.address
        writer = None if address is None else self._interpreter.writer(address)
        if writer is None:
            return _FIRST, f"{message}; no program instance writes there, so this is the first"
        return writer, message


class _Late(BaseException):
    """The search takes too long. No handler of the user's or of Triton's stops it."""


# -- a program --------------------------------------------------------------------------------------


def _debug_program(job: Job, interpreter: TritonInterpreter, session: _Session) -> None:
    file = UserFile(job.path, job.text, job.directory, job.arguments, job.roots)
    entry = file.entry()
    if entry is None:
        raise MissingPackageError(
            python_job.no_entry(file).failure.message, "write a launch spec above the kernel"
        )
    file.prepare()
    session.attach(_FIRST)

    def enter(function: Any, at: ProgramInstance, call: Callable[[], None]) -> None:
        if not session.attached:  # its author has left: nobody waits for the rest
            raise InstanceEndedError
        if at.program == _FIRST.program:
            session.run(function, call)
        else:
            with session.untraced():
                call()

    interpreter.enter = enter
    with contextlib.suppress(InstanceEndedError, SystemExit), without_gpu.cuda_means_cpu():
        file.way_in(entry)()
