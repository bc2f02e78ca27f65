"""The judge's process: it judges a job's KernelBench file against its reference. Each side is forked, locked and
asked call by call.

This process runs no code of either side. It is forked from the worker's template, which has imported torch, so that
it and its sides begin in milliseconds. CUDA begins later in each process, because it does not survive a fork.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from orbit_remote.child import child_main, surroundings, triton_instances
from orbit_remote.child.spec.trial import MissingPackageError, load_torch
from orbit_remote.common import content_store, limits, measure, regular_files
from orbit_remote.common import messages as c
from orbit_remote.common.contracts import harness_files
from orbit_remote.common.evidence import digests, sign_bets
from orbit_remote.common.measurements import AgainstReference, Digests, SameCode
from orbit_remote.common.requests import ContractStart, Job
from orbit_remote.judge import beside, beyond, locks, side, verdict
from orbit_remote.judge.calls import MatchResult
from orbit_remote.judge.match import BUDGET_S, Match, UnjudgedError
from orbit_remote.judge.party import SideFailedError
from orbit_remote.judge.prepared import PreparedSides
from orbit_remote.toolchain import elf

Send = Callable[[c.Event], None]
_KERNELS: Final = 256
"""Files of Triton's with machine code that are looked at."""


def waiting(place: dict[str, Any], cache: Path) -> PreparedSides:
    """Prepare sides before their job, as the template was asked to. Raises what torch and the driver raise."""
    return PreparedSides.waiting(Path(place["folder"]), cache, str(place["device"]), int(place["index"]))


def serve(
    connection: socket.socket,
    cache: Path,
    waiting: PreparedSides | None = None,
    most_s: float = BUDGET_S,
) -> int:
    """The one job that comes over a connection, in a process that has imported torch; its exit status. Sides may be `waiting`,
    else this process has not begun CUDA. No side has the connection. `most_s` is that of `judge`.
    """
    line = child_main.read_line(connection)
    if not line:
        return 0  # nobody wants it any more
    order = child_main.read_order(line)
    surroundings.become(order.environment or {})

    def send(event: c.Event) -> None:
        connection.sendall(f"{c.encode(event)}\n".encode("utf-8", "surrogatepass"))

    try:
        device = waiting.device if waiting else "cuda"
        finished = judge(order.job, send, cache, device, most_s, order.folder, waiting)
    except OSError as error:
        if waiting is None:
            return _by_author(order.job, send, cache, str(error))
        text = f"what a judge had ready on the GPU cannot be used any more: {error}"
        failure = c.Failure("infrastructure", text, "submit it again", retryable=True)
        finished = c.failed(order.job.run, failure)
    send(finished)
    return 0


def _by_author(job: Job, send: Send, cache: Path, error: str) -> int:
    """Do the same job in a new process, with the grade `author`: CUDA may have begun in this one. The answer says why
    there was no referee.
    """
    why = f"author: the candidate's code shared the process that measured it, because this machine cannot judge from outside: {error}"
    with content_store.temporary("orbit-job-") as folder:
        command = child_main.command(folder, cache, replace(job, start=ContractStart()))
        status = subprocess.run(command, check=False).returncode
        events = b""
        with contextlib.suppress(OSError):
            events = regular_files.read(Path(folder) / "events", limits.EVENTS)
        for line in events.decode("utf-8", "replace").splitlines():
            event = child_main.decode_event(line)
            if isinstance(event, c.Finished):
                event = replace(event, judged=c.Judged("author", why))
            if event:
                send(event)
    if status < 0:
        os.kill(os.getpid(), -status)
    return status


def judge(
    job: Job,
    send: Send,
    cache: Path,
    device: str = "cuda",
    most_s: float = BUDGET_S,
    within: str | None = None,
    waiting: PreparedSides | None = None,
) -> c.Finished:
    """The whole job; rounds end after `most_s` seconds, once there are enough of them. On the device `cpu`, which tests use
    that have no GPU, there are no gates and no records. The sides' folders are made `within` this folder, if none are `waiting`. Raises
    OSError where the judge's means are not there: CUDA IPC, stream memory operations.
    """
    began = time.perf_counter()
    kept = harness_files.kept(job.text)
    place = c.Place(job.path, kept.line, kept.column, kept.end_column) if kept else c.Place(job.path, 1)
    refusal = _unfit(job, kept)
    if refusal:
        return c.failed(job.run, c.Failure("runtime error", refusal, place=place))
    path = harness_files.model_file(Path(job.path))
    assert path
    reference = (str(path), regular_files.text(path, limits.SOURCE))

    def stage(why: str) -> None:
        send(c.Stage(job.run, "running", time.time(), why))

    with content_store.temporary("orbit-judge-", within) as folder:
        sides = waiting or PreparedSides(folder, cache, device, job.device)
        try:
            with sides:
                finished = _between(job, reference, sides, device, stage, place, most_s, begun=bool(waiting))
        except MissingPackageError as error:
            finished = c.failed(job.run, error.failure)
        except UnjudgedError as error:
            finished = c.failed(job.run, c.Failure("runtime error", str(error), place=place))
        if (judged := finished.judged) and judged.digests:
            known = replace(judged.digests, code=machine_code(sides.folder / "candidate" / side.TRITON))
            finished = replace(finished, judged=replace(judged, digests=known))
    return replace(finished, run_s=time.perf_counter() - began, toolchain=triton_instances.toolchain())


def machine_code(folder: Path) -> dict[str, str]:
    """Return digests of the machine code of the kernels that Triton has left in a folder, by name. The candidate's process
    wrote there, and has ended.
    """
    found: dict[str, str] = {}
    for path in sorted(folder.glob("*/*.cubin"))[:_KERNELS]:
        with contextlib.suppress(OSError, ValueError):
            cubin = elf.Cubin(regular_files.read(path, limits.CUBIN))
            for name in cubin.functions():
                found.setdefault(name, digests.of_bytes(cubin.section(f".text.{name}")))
    return found


def _unfit(job: Job, kept: harness_files.KeptContract | None) -> str:
    """Return why there is nothing to judge. Return "" if there is."""
    if kept is None or kept.kind != "kernelbench":
        return "a referee judges a file with ModelNew (KernelBench's contract); this one has none"
    path = harness_files.model_file(Path(job.path))
    if path is None:
        return "a referee needs the reference in a file of its own: put Model and get_inputs beside it, not into the candidate's file"
    try:
        harness_files.domain(regular_files.text(str(path), limits.SOURCE))
    except ValueError as why:
        return f"{path.name}: {why}"
    return ""


def _between(
    job: Job,
    reference: tuple[str, str],
    sides: PreparedSides,
    device: str,
    stage: Callable[[str], None],
    place: c.Place,
    most_s: float,
    *,
    begun: bool,
) -> c.Finished:
    if not begun:
        sides.begin()
        load_torch(job, "a referee needs", device)
        sides.open_contexts()
    contest = Match(
        sides.torch, sides.memory, sides.candidate, sides.reference, job, stage, most_s,
        harness_files.within(reference[1]), harness_files.domain(reference[1]), watch=sides.watch,
        shapes=beside.stated_shapes(Path(reference[0])),
    )  # fmt: skip
    try:
        sides.give(job, reference, dict(os.environ))
        texts = digests.of_text(job.text), digests.of_text(reference[1])
        contest.result.digests = Digests(*texts, sides.files, sides.built)
        result = contest.judge()
    except SideFailedError as error:
        return _failed(job, error, contest.result, place)
    return _finished(job, result, place)


# -- the report -------------------------------------------------------------------------------------


def _failed(job: Job, error: SideFailedError, result: MatchResult, place: c.Place) -> c.Finished:
    failure = error.failure
    if error.reference:
        text = f"invalid reference: {failure.message}"
        failure = replace(
            failure,
            category="infrastructure" if failure.category == "infrastructure" else "runtime error",
            message=text,
        )
    failure = failure if failure.place else replace(failure, place=place)
    return c.failed(job.run, failure, judged=_judged(result))


def _grade(result: MatchResult) -> tuple[str, str]:
    if any(not any(text.startswith(need) for text in result.held) for need in locks.NEEDED):
        why = (
            "; ".join(text for text in result.missing if text.startswith(locks.NEEDED))
            or "it did not come to that"
        )
        return "author", f"author: the candidate's process could not be locked: {why}"
    return "referee", (
        "referee: the candidate ran in a locked process of its own; arguments, clock and comparison were outside it, and every "
        "timed call had new arguments and a checked answer"
    )


def _judged(result: MatchResult, **known: Any) -> c.Judged:
    grade, why = _grade(result)
    return c.Judged(
        "referee" if grade == "referee" else "author",
        why,
        locks=result.held,
        unlocked=result.missing,
        beyond=(*result.beyond.tried, *result.shapes),
        digests=result.digests,
        stages={name: round(taken, 4) for name, taken in result.watch.seconds.items()},
        **known,
    )


def _finished(job: Job, result: MatchResult, place: c.Place) -> c.Finished:
    checks = tuple(replace(checked.check, place=place) for checked in result.checks)
    if result.beyond.wrong:
        check = result.beyond.check or c.Check("output of ModelNew == Model", False)
        checks = (*checks, replace(check, place=place))
    point = c.Point({"version": "ModelNew"}, "", (), checks)
    wrong = next((checked for checked in result.checks if not checked.check.passed), None)
    if result.beyond.failed:
        return c.failed(
            job.run, replace(result.beyond.failed, place=result.beyond.failed.place or place), points=(point,), judged=_judged(result)
        )  # fmt: skip
    if wrong is not None or result.beyond.wrong:
        text = f"wrong answer: {wrong.words if wrong else result.beyond.wrong}"
        return c.failed(
            job.run, c.Failure("wrong answer", text, place=place), points=(point,), judged=_judged(result),
            problems=(c.Problem("error", text, "orbit", place),),
        )  # fmt: skip
    if result.invalid:
        return c.failed(
            job.run,
            c.Failure("runtime error", f"invalid reference: {result.invalid}", place=place),
            points=(point,),
            judged=_judged(result),
        )
    seen = _seen(result, harness_files.brings_kernels(job.text))
    suspicious = verdict.suspicion(seen)
    allow = job.start.allow if isinstance(job.start, ContractStart) else ()
    known = replace(_known(result, seen, suspicious), policies=verdict.policies(seen, allow))
    if suspicious:
        text = f"the result is suspicious: {suspicious}"
        return c.failed(
            job.run, c.Failure("wrong answer", text, place=place), points=(point,), judged=known,
            problems=(c.Problem("error", text, "orbit", place),),
        )  # fmt: skip
    return _scored(job, result, point, known, seen.clocks.from_gate)


def _least_ns(result: MatchResult) -> float:
    if not result.on_gpu:
        return verdict.NO_GPU_NS
    return verdict.RESOLUTION_NS if result.gated else verdict.HOST_NS


def _seen(result: MatchResult, own_kernels: bool) -> verdict.MatchEvidence:
    timed = verdict.clocks(result.candidate, result.now, result.before, _least_ns(result))
    recorded = verdict.shortest([call for call in map(verdict.recorded, result.ran) if call])
    return verdict.MatchEvidence(
        timed, recorded, bool(result.ran), verdict.least_ns(result.written, result.bandwidth), result.error,
        result.reference_error, own_kernels=own_kernels, late=result.late,
    )  # fmt: skip


def _known(result: MatchResult, seen: verdict.MatchEvidence, suspicious: str) -> c.Judged:
    ran = seen.recorded
    return _judged(
        result,
        suspicious=suspicious,
        rounds=result.rounds,
        flag_ns=seen.clocks.flag_ns,
        verified_ns=seen.clocks.verified_ns,
        resolution_ns=seen.clocks.resolution_ns,
        host_included=not result.gated,
        clock="host" if not result.gated else "gate" if seen.clocks.from_gate else "flags",
        recorded_ns=ran.busy_ns if ran else None,
        own_share=ran.own_share if ran else None,
        streams=ran.streams if ran else None,
        kernels=ran.kernels if ran else (),
        kept_bytes=result.kept_bytes,
        error=result.error,
        reference_error=result.reference_error,
        control=control(result, from_gate=seen.clocks.from_gate),
    )


def control(result: MatchResult, *, from_gate: bool) -> SameCode:
    """Return the reference against itself. Its calls before the candidate's and after it are pairs of the same rounds."""
    before, after = (_times(result, side, from_gate) for side in result.twice)
    return sign_bets.same_code([later / earlier for earlier, later in zip(before, after, strict=True)])


def _times(result: MatchResult, samples: verdict.Samples, from_gate: bool) -> list[int]:
    """Return the nanoseconds of calls, by the clock that is the score, less what a call takes besides its kernels."""
    empty = verdict.overhead_ns(result.now, result.before, _least_ns(result), from_gate=from_gate)
    return [max(1, round(taken - empty)) for taken in samples.score(from_gate=from_gate)]


def _of_shapes(result: MatchResult) -> str:
    right = [tried for tried in result.shapes if tried.answer == c.RIGHT]
    left = "; ".join(f"{tried.family} ({tried.answer})" for tried in result.shapes if tried.answer != c.RIGHT)
    if not result.shapes:
        return ""
    return f"right for {len(right)} of {len(result.shapes)} shapes of shapes.py, which are not timed" + (
        f"; {left}" if left else ""
    )


def _scored(job: Job, result: MatchResult, point: c.Point, known: c.Judged, from_gate: bool) -> c.Finished:
    kind = "cold L2" if result.gated else "host included"
    launches: list[c.Launches] = []
    both: list[list[int]] = []
    remarks = [
        text
        for text in (result.how, result.adopted, beyond.words(result.beyond.tried), _of_shapes(result))
        if text
    ]
    for name, samples in (("ModelNew", result.candidate), ("Model", result.against)):
        empty = verdict.overhead_ns(result.now, result.before, _least_ns(result), from_gate=from_gate)
        clock = f"the judge's clock, less the {empty / 1000:.2f} µs that a call takes beside its kernels"
        each = _times(result, samples, from_gate)
        timing = measure.timing(each, f"{kind}, n={len(each)}", clock=clock)
        launches.append(c.Launches(name, name, (0, 0, 0), (0, 0, 0), timing, len(each)))
        both.append(each)
    compared = measure.compare(both[1], both[0])
    versus = (
        AgainstReference(
            "Model", compared.verdict, compared.ratio, compared.low, compared.high, compared.pairs
        )
        if compared
        else None
    )
    mine = replace(point, launches=(launches[0],), versus=versus)
    theirs = c.Point({"version": "Model"}, "", (launches[1],))
    remarks += [
        f"policy {found.name}, allowed by the request: {found.why}"
        for found in known.policies
        if found.allowed
    ]
    if known.policy:
        remarks.append(f"no score: {known.policy.why}")
        return c.ok(job.run, points=(point, theirs), judged=known, remarks=tuple(remarks))
    if not result.gated:
        remarks.append(
            "the candidate or the reference waits for the GPU within a call, so the times include work of the host"
        )
    elif from_gate:
        remarks.append(
            "the clocks do not agree about when the candidate's calls begin, so the times begin at the judge's gate: less precise by microseconds"
        )
    if known.control and known.control.red:
        remarks.append(
            f"the reference itself takes {known.control.ratio:.3f} times as long after the candidate's calls as before: "
            "differences of this size mean nothing"
        )
    if known.own_share == 0:
        libraries = ", ".join(dict.fromkeys(kernel.library for kernel in known.kernels))
        remarks.append(f"all of its GPU time is in kernels of libraries: {libraries}")
    return c.ok(job.run, points=(mine, theirs), launches=(launches[0],), judged=known, remarks=tuple(remarks))
