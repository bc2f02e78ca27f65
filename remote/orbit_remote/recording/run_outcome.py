"""Decides the outcome of a program's run: its exit, CUDA's errors, and the line that they belong to.

The exit status and CUDA's own answers decide, never what the program prints. Only one thing is read from its error
stream, if the driver reported a failed device assertion: the line on which the CUDA runtime names it.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from orbit_remote.common import symbols as symbols_of
from orbit_remote.common.launch_records import OF_THE_MACHINE, CudaError
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.messages import Failure, Note, Outcome, Place, Problem, Resources
from orbit_remote.common.requests import Job
from orbit_remote.process.program import EndedProgram
from orbit_remote.recording.injection import RecordedRun

_ASSERT = re.compile(
    r"^(?P<file>.+?):(?P<line>\d+): (?P<function>.+?): "
    r"block: \[(?P<block>\d+,\d+,\d+)\], thread: \[(?P<thread>\d+,\d+,\d+)\] Assertion `(?P<what>.*)` failed\.$",
    re.MULTILINE,
)

_WORDS = {
    "CUDA_ERROR_ILLEGAL_ADDRESS": "a kernel read or wrote an address outside its memory",
    "CUDA_ERROR_MISALIGNED_ADDRESS": "a kernel read or wrote an address that is not aligned for its type",
    "CUDA_ERROR_INVALID_ADDRESS_SPACE": "a kernel used an address of the wrong memory space",
    "CUDA_ERROR_ILLEGAL_INSTRUCTION": "a kernel executed an illegal instruction",
    "CUDA_ERROR_INVALID_PC": "a kernel jumped to an address without code",
    "CUDA_ERROR_HARDWARE_STACK_ERROR": "a kernel's call stack overflowed or was corrupted",
    "CUDA_ERROR_LAUNCH_FAILED": "a kernel failed while it ran",
    "CUDA_ERROR_LAUNCH_TIMEOUT": "a kernel ran longer than the driver allows on a GPU with a display",
    "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES": "a launch asks for more registers or threads than a block can have",
    "CUDA_ERROR_OUT_OF_MEMORY": "the GPU does not have enough free memory",
    "CUDA_ERROR_ASSERT": "a device assertion failed",
    "CUDA_ERROR_NO_BINARY_FOR_GPU": "the program contains no code for this GPU's architecture",
    "CUDA_ERROR_INVALID_VALUE": "a call got an argument that is out of its range",
    "cudaErrorInvalidConfiguration": "a launch has a grid or block that this GPU cannot run",
}
_REMEDIES = {
    "CUDA_ERROR_OUT_OF_MEMORY": "allocate less, or free what other programs hold on this GPU",
    "CUDA_ERROR_NO_BINARY_FOR_GPU": "leave the architecture to orbit, or name this GPU's in the flags",
    "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES": "use a smaller block or __launch_bounds__",
    "cudaErrorInvalidConfiguration": "check the grid, at most 1024 threads a block, and the shared memory",
}
_SAME_CALL_NS = 1_000_000
# errors that a correct program meets and handles
_HARMLESS = frozenset(
    {"CUDA_ERROR_NOT_READY", "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "CUDA_ERROR_NOT_SUPPORTED"}
)


@dataclass(frozen=True, slots=True)
class RunVerdict:
    outcome: Outcome
    failure: Failure | None = None
    problems: tuple[Problem, ...] = ()
    remarks: tuple[str, ...] = ()


def of_program(
    job: Job,
    ended: EndedProgram,
    recorded: RecordedRun | None,
    symbols: Mapping[str, Resources],
    name: str = "main",
) -> RunVerdict:
    """Return the verdict on a program. `symbols` are its kernels by mangled name, `name` is the program's name for
    people.
    """
    if ended.failure:
        return RunVerdict(ended.failure.category, ended.failure)
    if ended.status is None:
        return _timed_out(job, recorded, symbols)
    errors = [e for e in recorded.errors if e.name not in _HARMLESS] if recorded else []
    fatal = next((e for e in errors if e.fatal), None)
    if ended.status == 0 and not fatal:
        remarks = tuple(
            dict.fromkeys(f"{e.function} answered {e.name}; the program continued" for e in errors)
        )
        return RunVerdict("ok", remarks=remarks[:8])
    how = how_it_ended(ended.status, name)
    error = fatal or _first(errors)
    if error is None:
        return RunVerdict("runtime error", Failure("runtime error", how, _remedy(ended.status)))
    return _cuda(job, ended, error, how, symbols)


def named(recorded: RecordedRun) -> dict[str, Resources]:
    """Return the kernels that were launched, by mangled name, for a program of which nothing else is known."""
    names = {series.launch.symbol for series in recorded.series}
    return {name: Resources(name, symbols_of.short_name(name), "") for name in names}


def _first(errors: Sequence[CudaError]) -> CudaError | None:
    """Return the first error, in the runtime's words if the same call failed in runtime and driver."""
    if not errors:
        return None
    first = errors[0]
    same_call = (e for e in errors[1:] if e.time_ns - first.time_ns < _SAME_CALL_NS)
    return next((e for e in same_call if e.api == "runtime"), first)


def _cuda(
    job: Job, ended: EndedProgram, error: CudaError, how: str, symbols: Mapping[str, Resources]
) -> RunVerdict:
    # a launch that no block of this GPU fits is an invalid value to the driver
    of_launch = error.name == "CUDA_ERROR_INVALID_VALUE" and "Launch" in error.function
    name = "cudaErrorInvalidConfiguration" if of_launch else error.name
    words = _WORDS.get(name, "a CUDA call failed")
    if error.name in OF_THE_MACHINE:
        words, remedy = OF_THE_MACHINE[error.name]
        text = f"{error.name}: {words} ({error.function}); {how}"
        return RunVerdict("infrastructure", Failure("infrastructure", text, remedy, retryable=True))
    message = f"{error.name}: {words} ({error.function}); {how}"
    kernel = symbols.get(error.last_kernel or "")
    place, notes = kernel.place if kernel else None, ()
    if error.name == "CUDA_ERROR_ASSERT" and (asserted := assertion(job, ended.stderr)):
        place, asserted_text = asserted
        message = f"{asserted_text}; {how}"
    elif kernel:
        notes = (Note(f"the kernel launched last was {kernel.name}", kernel.place),)
    failure = Failure(
        "runtime error", message, _REMEDIES.get(name, ""), place=place, symbol=error.last_kernel
    )
    if kernel and not notes and place is None:
        place = kernel.place
    problem = Problem("error", message, "cuda", place, error.name, error.last_kernel, notes)
    return RunVerdict("runtime error", failure, (problem,))


def assertion(job: Job, stderr: str) -> tuple[Place, str] | None:
    """Return where a device assertion failed, and how, as the CUDA runtime printed it."""
    match = _ASSERT.search(stderr)
    if match is None:
        return None
    sentence = f"device assertion `{match['what']}` failed, first in block ({match['block']}), thread ({match['thread']})"
    return Place(_resolve(match["file"], job), int(match["line"])), sentence


def _timed_out(job: Job, recorded: RecordedRun | None, symbols: Mapping[str, Resources]) -> RunVerdict:
    message = f"the run was ended at its limit of {job.run_timeout_s:g} s"
    symbol = None
    if recorded and recorded.unfinished:
        symbol = list(recorded.unfinished)[-1]
        name = symbols[symbol].name if symbol in symbols else symbol
        message += f" while {name} was still running"
    return RunVerdict(
        "timed out",
        Failure("timed out", message, "raise the setting `orbit.run_timeout_s` (option --timeout), or look for an endless loop",
                symbol=symbol),
    )  # fmt: skip


def how_it_ended(status: int, name: str) -> str:
    """Return how a program ended. `status` is an exit code from 0, or minus the number of a signal."""
    if status >= 0:
        return f"{name} ended with exit code {status}"
    try:
        number = signal.Signals(-status)
        text = {
            "SIGSEGV": "segmentation fault in host code",
            "SIGABRT": "abort",
            "SIGKILL": "killed; out of host memory, or by someone",
            "SIGFPE": "arithmetic fault in host code",
            "SIGBUS": "bus error in host code",
            "SIGILL": "illegal instruction in host code",
        }.get(number.name, number.name)
        return f"{name} was ended by {number.name} ({text})"
    except ValueError:
        return f"{name} was ended by signal {-status}"


def _remedy(status: int) -> str:
    return "" if status < 0 else "its output is in the log"


def _resolve(file: str, job: Job) -> str:
    """Return a path that a runtime prints as an absolute one: it may be relative to where the compiler ran."""
    if Path(file).is_absolute():
        return file
    if Path(file).name == Path(job.path).name:
        return job.path
    return str(Path(job.path).parent / file)
