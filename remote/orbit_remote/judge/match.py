"""The judge's work: calls with new arguments at other addresses, three clocks, every output compared, nothing taken
on trust.

In each round three calls take turns: one of the reference's process that launches one kernel of known length, one of
the candidate, and one of the reference. The first, less that length, is what a call takes besides its kernels. The
candidate's arguments come when its call has been launched and waits for a gate. Its outputs are read here before the
reference computes what was expected. The place in a round must favour no side. So a coin decides in each round with
which call of the reference the candidate's is compared: that one, or one before the candidate's, with the arguments
of the round before.

A side that waits for the GPU within a call cannot wait for a gate. Then, for all sides alike, a call is timed from
the judge's word to the end of everything, with the host's part.
"""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from orbit_remote.child import child_main
from orbit_remote.child.harness import kernelbench
from orbit_remote.child.harness.harness_case import ExplainedCheck
from orbit_remote.common import measure
from orbit_remote.common import messages as c
from orbit_remote.common.contracts.harness_files import AllowedDifference, Domain
from orbit_remote.common.evidence import digests
from orbit_remote.common.requests import Job
from orbit_remote.judge import arguments, beyond, calling, end_of_rounds, memory, verdict
from orbit_remote.judge.beside import Shape
from orbit_remote.judge.beyond import Answered, AskedSides, Beyonds
from orbit_remote.judge.calling import Caller
from orbit_remote.judge.calls import Given, MatchResult, ReferenceCalls, SideCall, samples
from orbit_remote.judge.end_of_rounds import EndOfRounds
from orbit_remote.judge.party import Party, SideFailedError, Times
from orbit_remote.judge.stopwatch import Stopwatch

ARENA_MOST: Final = 16 << 30
_SHARE: Final = 10
"""A side's arguments may take one part of so many of the GPU's free memory."""
_ARENA_LEAST: Final = 1 << 30
_SPARE: Final = 4
"""Times as large as the first draw's arguments is the memory for them, because other draws may have other sizes."""
_WARM: Final = 2
_MORE_S: Final = 1.0
"""Seconds for families of arguments, once each was tried with one argument."""
_BEFORE: Final = {True: 15, False: 5}
"""Calls of calibration before any code of the candidate has run, with a gate and without: there times are believed to 100 µs only."""
_BUDGET: Final = 0.25
"""Share of the run's time limit for rounds, once there are enough of them; at most this long:"""
BUDGET_S: Final = 6.0
_LATE_S: Final = 0.05
_RECORDED: Final = 3


class UnjudgedError(Exception):
    """What was handed in cannot be judged by these means. The sentence says why."""


class Match:
    def __init__(
        self,
        torch: Any,
        own: memory.Memory,
        candidate: Party,
        reference: Party,
        job: Job,
        stage: Callable[[str], None],
        most_s: float = BUDGET_S,
        within: AllowedDifference | None = None,
        domain: Domain = "any",
        coin: random.Random | None = None,
        watch: Stopwatch | None = None,
        shapes: Sequence[Shape] = (),
    ) -> None:
        """Make a match. `coin` decides which call of a round is timed first; no side can foresee it. `shapes` are checked after
        all else, and not timed.
        """
        self._shapes = shapes
        self._coin = coin or random.SystemRandom()
        self._torch = torch
        self._within = within
        self._domain: Domain = domain
        self._memory = own
        self._candidate = candidate
        self._reference = reference
        self._caller = Caller(torch, own, candidate, reference)
        self._stage = stage
        candidate.ends = reference.ends = time.monotonic() + job.run_timeout_s
        self._budget_s = min(most_s, _BUDGET * job.run_timeout_s)
        self._beyond_s = min(BUDGET_S, _BUDGET * job.run_timeout_s)
        self._end = EndOfRounds(self._coin)
        self._waits = False  # whether a call beyond the author's arguments waited for the GPU
        # the candidate's calls, and nanoseconds of putting their arguments in place
        self._own: list[tuple[Times, int]] = []
        self._past: Given | None = None
        # the reference's calls that the candidate's are compared with, one a round
        self._against: list[Times] = []
        self._now = ReferenceCalls()
        self._first = {
            gated: ReferenceCalls() for gated in (True, False)
        }  # while no code of the candidate had run
        self._known_ns = 0
        self._seed = 0  # of the models' parameters
        self._ahead: int | None = None  # the seed of arguments that the reference is drawing
        self._before: list[Any] = []
        self._arguments: tuple[Any, ...] = ()
        self._same_arguments = self._same_answers = True
        self.result = MatchResult(gated=own.gates, on_gpu=own.gates, watch=watch or Stopwatch())

    def judge(self) -> MatchResult:
        """Raises SideFailedError, UnjudgedError."""
        result = self.result
        during = result.watch.during
        self._begin()
        self._stage("checking")
        with during("checks"):
            for _ in range(_WARM):
                if not self._round(gated=False, timed=False) and not (
                    self._adopt() and self._round(gated=False, timed=False)
                ):
                    return result
        free = self._memory.free()
        self._stage("timing")
        with during("rounds"):
            self._rounds(self._memory.gates)
        if self._wrong():
            return result
        result.kept_bytes = max(0, free - self._memory.free())
        if self._same_arguments:
            result.invalid = "get_inputs gives the same arguments whatever the seed: an answer that is kept passes for one that is computed"
        elif self._same_answers:
            result.invalid = "the reference gives the same answer whatever its arguments: a constant passes for a computation"
        self._afterwards()
        return result

    def _begin(self) -> None:
        during = self.result.watch.during
        with during("memory of arguments"):
            self._reference.opened(
                {"do": "open", "size": memory.ALIGNED}, self._memory
            )  # and the last of the locks
        self._seed = seed = secrets.randbits(48)
        self._stage("compiling")
        with during("reference's import"):
            self._reference.ask({"do": "make", "seed": seed})
        with during("memory of arguments"):
            size = self._size()
            self._reference.opened({"do": "widen", "size": size}, self._memory)
            opened = self._candidate.opened({"do": "open", "size": size}, self._memory)
            self.result.held, self.result.missing = tuple(opened["held"]), tuple(opened["missing"])
        if self._memory.gates:
            with during("calibration"):
                self._calibrate()
                # a model may keep something from call to call
                self._reference.ask({"do": "make", "seed": seed})
        with during("candidate's import"):  # only now
            self._candidate.ask({"do": "make", "seed": seed})

    def _size(self) -> int:
        """Return how much memory a side gets for arguments. If a draw's sizes are known, it is not all that there may be,
        because mapping it takes time.
        """
        room = min(ARENA_MOST, self._memory.free() // _SHARE)
        known = self._fit(room)
        return min(room, max(_ARENA_LEAST, _SPARE * known)) if known else room

    def _fit(self, room: int) -> int:
        """Return the bytes of the arguments of a call, 0 if that is not known before a draw. Raises UnjudgedError if they take
        more than `room`.
        """
        answer, _ = self._reference.ask({"do": "sizes", "room": room})
        if "too_large" in answer:
            raise UnjudgedError(f"{answer['too_large']}: take smaller inputs")
        return int(answer["bytes"])

    def _adopt(self) -> bool:
        """Give the candidate the parameters of Model, once, if it made others that these fit. A candidate whose
        answers are right keeps its own, which it may have laid out differently.
        """
        if self.result.adopted or not any(checked.check.elements for checked in self.result.checks):
            return False
        answer, _ = self._candidate.ask({"do": "adopt", "seed": self._seed})
        # its process says so, so it is not believed beyond a known word
        self.result.adopted = kernelbench.ADOPTED.get(str(answer.get("adopted")), "")
        if self.result.adopted:
            self.result.checks = []
        return bool(self.result.adopted)

    def _calibrate(self) -> None:
        """Measure calls of the reference's process while there is no code of the candidate that could keep the GPU
        busy.
        """
        given = self._new_arguments()
        for _ in range(_WARM):
            self._call(self._reference, given, gated=False)  # whose outputs the calls of calibration have
        self._known_ns = self._length_of_known(given)
        for gated, first in self._first.items():
            for _ in range(_BEFORE[gated]):
                first.empty.append(self._empty(given, gated=gated))
                call = self._call(self._reference, given, gated=gated)
                if call.waited:
                    break  # nor will any later call be gated
                first.reference.append(call.times)
                first.placing.append(call.placing_ns)

    # -- rounds -------------------------------------------------------------------------------------

    def _rounds(self, gated: bool) -> None:
        began = time.monotonic()
        late = False
        while not self._end.reached(len(self._own), partial(self._settled, gated), late=late):
            call = self._round(gated=gated, timed=True)
            if call is None:
                return
            if gated and call.waited:
                gated = False
                self._forget(len(self._own))
                continue
            late = time.monotonic() - began > self._budget_s
        self._note(gated)

    def _note(self, gated: bool) -> None:
        """Take the rounds so far as what the verdict is made of."""
        result = self.result
        result.gated, result.rounds = gated, len(self._own)
        result.candidate, result.now, result.before = self._taken(gated)
        result.against = samples(self._against)
        twice = [
            pair for pair in zip(self._against, self._now.reference, strict=True) if pair[0] is not pair[1]
        ]
        result.twice = samples([before for before, _ in twice]), samples([after for _, after in twice])

    def _rounds_again(self) -> None:
        """Time a few more rounds after all the calls since the others ended early. If these take longer, which a candidate
        that counts its calls could arrange, the earlier ones do not count, and rounds go on to the most.
        """
        earlier, gated = len(self._own), self.result.gated
        least = self._end.again(earlier)
        while len(self._own) < least:
            call = self._round(gated=gated, timed=True)
            if call is None:
                return
            if call.waited:
                gated = False
                break
        taken = [times[0] for times, _ in self._own]
        if gated and end_of_rounds.is_as_before(taken, earlier, self._clocks(gated).resolution_ns):
            self._note(gated)
            return
        self._forget(earlier if gated else len(taken))
        self._rounds(gated)

    def _forget(self, rounds: int) -> None:
        """Forget the first so many rounds."""
        for each in (self._own, self._against, self._now.empty, self._now.reference, self._now.placing):
            del each[:rounds]

    def _settled(self, gated: bool) -> bool:
        return end_of_rounds.settled(self._clocks(gated))

    def _clocks(self, gated: bool) -> verdict.Clocks:
        return verdict.clocks(*self._taken(gated))

    def _taken(self, gated: bool) -> tuple[verdict.Samples, verdict.Baseline, verdict.Baseline]:
        """Return the candidate's calls, and those with which `verdict.clocks` compares them."""
        own = samples([times for times, _ in self._own])
        return own, self._now.baseline(), self._first[gated].baseline()

    def _length_of_known(self, given: Given) -> int:
        """Return the nanoseconds of the known kernel in calls like those that are timed: after a pause and with a
        cold L2 it takes longer. Return 0 if kernels cannot be recorded.
        """
        recording, _ = self._reference.ask({"do": "record"})
        if not recording["records"]:
            return 0
        self._caller.known = True
        for _ in range(measure.KNOWN_CALLS):
            self._call(self._reference, given, gated=True, null=True)
        known, _ = self._reference.ask({"do": "known"})
        known_ns = max(0, int(known["ns"]))
        self._caller.known = known_ns > 0
        return known_ns

    def _empty(self, given: Given, *, gated: bool) -> Times:
        """Return, by each clock, what a call of the reference's process takes besides its kernel."""
        flags_ns, gate_ns, verified_ns = self._call(self._reference, given, gated=gated, null=True).times
        known_ns = self._known_ns if gated else 0
        return flags_ns - known_ns, gate_ns - known_ns, verified_ns - known_ns

    def _round(self, *, gated: bool, timed: bool) -> SideCall | None:
        """Call each side once. Return the candidate's call, or None if its answer was wrong."""
        given = self._new_arguments()
        empty = self._empty(given, gated=gated) if timed else None
        first = measure.in_drawn_order((self._candidate, self._reference), self._coin)[0]
        before = None
        waited = False
        if timed and first.reference and self._past:
            # an answer to these arguments must not be there before the candidate's has been read
            earlier = self._call(self._reference, self._past, gated=gated)
            before, waited = earlier.times, earlier.waited
            del earlier  # its outputs take memory that the candidate may need
        self._past = given
        call = self._call(self._candidate, given, gated=gated)
        expected = self._call(self._reference, given, gated=gated)
        call.waited = call.waited or expected.waited or waited
        self._draw_ahead()
        self._compare(call, expected)
        if self._wrong():
            return None
        if empty and not call.waited:
            self._own.append((call.times, call.placing_ns))
            self._now.empty.append(empty)
            self._now.reference.append(expected.times)
            self._against.append(before or expected.times)
            self._now.placing.append(expected.placing_ns)
        self.result.written = sum(output.leaf.size for output in call.outputs)
        return call

    def _call(
        self, party: Party, given: Given, *, gated: bool, null: bool = False, record: bool = False
    ) -> SideCall:
        return self._caller.call(party, given, gated=gated, null=null, record=record)

    def _wrong(self) -> bool:
        return any(not checked.check.passed for checked in self.result.checks)

    def _new_arguments(self) -> Given:
        with self.result.watch.during("draws"):
            return self._drawn()

    def _draw_ahead(self) -> None:
        """Have the next arguments drawn while this process compares. They are the next thing that the reference is asked for."""
        self._ahead = secrets.randbits(48)
        self._reference.send({"do": "inputs", "seed": self._ahead})

    def _drawn(self) -> Given:
        if self._ahead is None:
            self._draw_ahead()
        seed, self._ahead = self._ahead or 0, None
        answer, descriptors = self._reference.receive()
        self.result.how = str(answer.get("how") or "")
        outputs = self._caller.read(self._reference, answer, descriptors)
        contents = tuple(output.data.clone() for output in outputs)
        self._memory.wait()
        if (
            self._same_arguments
            and self._arguments
            and any(
                not bool(self._torch.equal(old, new))
                for old, new in zip(self._arguments, contents, strict=True)
            )
        ):
            self._same_arguments = False
        self._arguments = contents
        # another seed than the arguments': a side knows it before they come, and could make them from theirs
        given = Given(
            answer["arguments"],
            tuple(output.leaf for output in outputs),
            contents,
            secrets.randbits(48),
            seed,
        )
        room = len(self._reference.arena)
        if given.room > room:
            raise UnjudgedError(
                f"the arguments of a call take {given.room >> 20} MiB, and there is room for {room >> 20} MiB"
            )
        return given

    def _compare(self, call: SideCall, expected: SideCall) -> None:
        torch = self._torch
        wanted = [
            (output.name, arguments.tensor_in(torch, output.leaf, output.copy)) for output in expected.outputs
        ]
        if [each.name for each in call.outputs] != [name for name, _ in wanted]:
            counts = [
                f"{len(each)} tensors" if len(each) != 1 else "1 tensor" for each in (call.outputs, wanted)
            ]
            check = c.Check("output of ModelNew == Model", False, actual=counts[0], expected=counts[1])
            self.result.checks = [ExplainedCheck(check, f"output is {counts[0]}, expected {counts[1]}")]
            return
        try:
            pairs = [
                kernelbench.compared(
                    torch, name, arguments.tensor_in(torch, mine.leaf, mine.copy), theirs, self._within
                )
                for mine, (name, theirs) in zip(call.outputs, wanted, strict=True)
            ]
        except arguments.UnfitValueError as error:
            raise SideFailedError(c.Failure("runtime error", f"ModelNew returns {error}"), False) from None
        self.result.checks = pairs
        if (
            self._same_answers
            and self._before
            and not all(
                kernelbench.compared(torch, name, before, now).check.passed
                for before, (name, now) in zip(self._before, wanted, strict=True)
            )
        ):
            self._same_answers = False
        self._before = [tensor for _, tensor in wanted]

    # -- afterwards ---------------------------------------------------------------------------------

    def _afterwards(self) -> None:
        """Check what is checked after the times are taken: precision, arguments beyond the author's, kernels by name,
        late writes, bandwidth.
        """
        result, gated = self.result, self.result.gated
        during = result.watch.during
        self._stage(child_main.TIMED)
        with during("precision"):
            given = self._new_arguments()
            call = self._call(self._candidate, given, gated=gated)
            expected = self._call(self._reference, given, gated=gated)
            self._compare(call, expected)
            self._precision(given, call, expected)
        if self._wrong():
            return
        with during("families"):
            self._beyond(expected, gated)
        if result.beyond.wrong or result.beyond.failed:
            return
        if self._end.early and not result.beyond.gone:
            with during("rounds"):
                self._rounds_again()
                if self._ahead is not None:  # of a round that does not come
                    self._new_arguments()
            if self._wrong():
                return
        self._stage("recording")
        with during("recording and last checks"):
            self._last_looks(given)
        result.late = result.late or self._caller.late
        with during("shapes"):
            for shape in self._shapes if not result.beyond.gone else ():
                if not self._shape(shape):
                    return

    def _shape(self, shape: Shape) -> bool:
        """Check the candidate with another shape of the problem. Return False if it is wrong or fails."""
        result, checks = self.result, self.result.checks
        name = "shape " + ", ".join(f"{name} = {value}" for name, value in shape.items())
        order = {"do": "make", "seed": secrets.randbits(48), "shape": shape}
        try:
            self._reference.ask(order)
            self._fit(len(self._reference.arena))
            given = self._new_arguments()
            try:
                self._candidate.ask(order)
                call = self._call(self._candidate, given, gated=False)
            except SideFailedError as error:
                result.beyond.failed = replace(
                    error.failure, message=f"{error.failure.message} (for the {name})"
                )
                result.shapes.append(c.Attempt(name, "", "it fails"))
                return False
            self._compare(call, self._call(self._reference, given, gated=False))
        except (SideFailedError, UnjudgedError) as error:
            result.shapes.append(c.Attempt(name, "", f"{beyond.LEFT_OUT}{error}"))
            return True
        if self._wrong():
            result.shapes.append(c.Attempt(name, "", "wrong"))
            result.checks = [replace(each, words=f"{each.words}, for the {name}") for each in result.checks]
            return False
        result.shapes.append(c.Attempt(name, "", c.RIGHT))
        result.checks = checks
        return True

    def _digest(self, given: Given, call: SideCall, expected: SideCall) -> None:
        """Note digests of what this comparison compared, and the seeds from which it can be made again."""
        if self.result.digests:
            seeds = {"parameters": self._seed, "arguments": given.drawn, "call": given.seed}
            sides = ([(each.leaf, each.copy) for each in side.outputs] for side in (call, expected))
            tensors = (zip(given.leaves, given.contents, strict=True), *sides)
            known = [
                digests.of_tensors((leaf.dtype, leaf.shape, leaf.strides, data) for leaf, data in each)
                for each in tensors
            ]
            self.result.digests = replace(
                self.result.digests, seeds=seeds, arguments=known[0], outputs=known[1], expected=known[2]
            )

    def _last_looks(self, given: Given) -> None:
        """Check kernels by name, late writes, bandwidth, and a GPU that is kept busy."""
        result = self.result
        if self._memory.gates:
            for _ in range(_RECORDED):
                result.ran.append(self._call(self._candidate, given, gated=False, record=True).ran)
        call = self._call(self._candidate, given, gated=False)
        ended = time.monotonic()
        if not result.beyond.gone:
            expected = self._call(self._reference, given, gated=False)
            self._compare(call, expected)
            self._digest(given, call, expected)
        if self._memory.gates:
            time.sleep(max(0.0, ended + _LATE_S - time.monotonic()))
            if not all(bool((output.data == calling.POISON).all()) for output in call.outputs):
                result.late = "it wrote to its outputs after the call had ended"
            result.bandwidth = memory.bandwidth(self._torch, self._memory)
            result.late = result.late or self._busy()

    def _busy(self) -> str:
        """Return why the candidate is suspected of keeping the GPU busy outside its calls. Return "" if it is not."""
        result, own = self.result, [placing for _, placing in self._own]
        why = verdict.busy(own, self._now.placing, self._first[result.gated].placing)
        if result.gated:
            why = why or verdict.crowded(result.now.reference, result.before.reference)
        return why

    def _precision(self, given: Given, call: SideCall, expected: SideCall) -> None:
        """Check the precision of outputs of `float32`, which both sides have computed from these arguments."""
        singles = [at for at, output in enumerate(expected.outputs) if output.leaf.dtype == "float32"]
        if not singles or self._wrong():
            return
        try:
            _, exact = self._caller.answers(given, (0.0,))
            mine, own = (self._caller.answered(each).tensors for each in (call, expected))
            errors = [
                [arguments.distance(tensors[at], exact.tensors[at]) for at in singles]
                for tensors in (mine, own)
            ]
        except (SideFailedError, ValueError, IndexError):
            return  # a model that has no double precision
        self.result.error, self.result.reference_error = map(max, errors)

    # -- arguments beyond the author's ---------------------------------------------------------------

    def _beyond(self, expected: SideCall, gated: bool) -> None:
        """Ask about arguments beyond the author's. To the candidate each call looks like those that were timed, and
        it cannot know that these are over.
        """
        if self._within and self._within.anything:
            return

        def ask(given: Given) -> Answered:
            call = self._call(self._candidate, given, gated=gated and not self._waits)
            self._waits = self._waits or call.waited
            return self._caller.answered(call)

        by = AskedSides(self._new_arguments, ask, self._caller.answers)
        usual = self._caller.answered(expected)
        beyonds = Beyonds(self._torch, by, usual, self._within, self._domain, self._coin)
        self.result.beyond = beyonds.judge(beyond.limit(self._beyond_s, min(_MORE_S, self._budget_s)))
