"""One call of a side: its arguments are put in place, its gate is opened, three clocks run, and its outputs are read and copied."""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import time
from collections.abc import Sequence
from typing import Any, Final, cast

from orbit_remote.common import messages as c
from orbit_remote.judge import arguments, memory
from orbit_remote.judge.beyond import Answered
from orbit_remote.judge.calls import Given, ReturnedTensor, SideCall
from orbit_remote.judge.channel import Message
from orbit_remote.judge.party import GATE_S, Party, SideFailedError

_SAMPLED: Final = 1024
_ROAM: Final = 32 << 20
"""Within so many bytes the place of the arguments varies. The read before the gate (`Memory.touch`) makes their pages known to the GPU,
and pages that it knew in the call before are still known behind the gate."""
POISON: Final = 0xFF


class Caller:
    """Calls both sides of a match. Neither is believed: this process keeps the clocks, and reads the outputs."""

    def __init__(self, torch: Any, own: memory.Memory, candidate: Party, reference: Party) -> None:
        self._torch = torch
        self._memory = own
        self._candidate = candidate
        self._reference = reference
        self.known = False
        """Whether the calls of calibration launch the known kernel."""
        self.late = ""
        """Why the candidate is suspected of working on after a call."""

    def call(
        self, party: Party, given: Given, *, gated: bool, null: bool = False, record: bool = False
    ) -> SideCall:
        with self._candidate.still() if party.reference else contextlib.nullcontext():
            return self._called(party, given, gated=gated, null=null, record=record)

    def _called(self, party: Party, given: Given, *, gated: bool, null: bool, record: bool) -> SideCall:
        party.number += 1
        what = _order(party, given)
        party.send({
            "do": "call", "number": party.number, "gated": gated, "null": null, "known": gated and self.known, "record": record, **what,
        })  # fmt: skip
        answer: Message | None = None
        descriptors: list[int] = []
        if gated:
            try:
                answer, descriptors = party.receive(min(GATE_S, party.left()))
            except TimeoutError:
                answer = None
        else:
            party.receive()  # it is ready
        waited = gated and answer is None
        outputs = self.read(party, answer, descriptors) if answer and self._memory.gates else []
        sampled = [self._places(output) for output in outputs]
        self._memory.wait()
        placing = time.perf_counter_ns()
        _place(party, given, what["starts"])
        self._memory.flush()
        self._memory.wait()
        began = time.perf_counter_ns()
        placing_ns = began - placing
        party.page[0:4] = party.number.to_bytes(4, "little")
        begun = (
            party.until(memory.BEGUN, self._memory.pause, answered=True)
            if gated and answer is not None
            else None
        )
        ended = (
            party.until(memory.DONE, self._memory.pause, answered=answer is not None)
            or time.perf_counter_ns()
        )
        if answer is None:
            answer, descriptors = party.receive()
        if not outputs:
            outputs = self.read(party, answer, descriptors)
            sampled = [self._places(output) for output in outputs]
        taken = [
            self._torch.index_select(each.data, 0, at).cpu() if each.leaf.size else None
            for each, at in zip(outputs, sampled, strict=True)
        ]
        self._memory.wait()
        times = (ended - (begun or began), ended - began, time.perf_counter_ns() - began)
        if not null:
            self._keep(party, outputs, sampled, taken)
        return SideCall(times, placing_ns, outputs, answer.get("ran"), waited)

    def _places(self, output: ReturnedTensor) -> Any:
        if not output.leaf.size:
            return None
        return self._torch.randint(output.leaf.size, (_SAMPLED,), device=self._memory.device)

    def _keep(
        self,
        party: Party,
        outputs: Sequence[ReturnedTensor],
        sampled: Sequence[Any],
        taken: Sequence[Any],
    ) -> None:
        """Keep own copies of the outputs. Then poison their memory, so that no call finds an earlier one's answer."""
        for output, at, values in zip(outputs, sampled, taken, strict=True):
            output.copy = output.data.clone()
            if (
                not party.reference
                and values is not None
                and not bool((output.copy[at].cpu() == values).all())
            ):
                self.late = "its outputs changed after it had said that they were complete"
        self._memory.wait()
        if not party.reference:
            for output in outputs:
                output.data.fill_(POISON)
        self._memory.wait()

    def read(self, party: Party, answer: Message, descriptors: list[int]) -> list[ReturnedTensor]:
        names: list[Any] = [*answer["names"]] if isinstance(answer.get("names"), list) else []
        claims: Any = answer.get("leaves")
        if not isinstance(claims, list) or len(cast("list[Any]", claims)) > 256:
            raise SideFailedError(
                c.Failure("runtime error", f"{party.name} returned what is not understood"), party.reference
            )
        outputs: list[ReturnedTensor] = []
        try:
            for number, claim in enumerate(cast("list[Message]", claims)):
                leaf = arguments.claimed(claim)
                name = str(names[number])[:200] if number < len(names) else f"output[{number}]"
                at: Any = claim.get("at")
                handle = cast("memory.Handle", at) if isinstance(at, dict) else {}
                outputs.append(
                    ReturnedTensor(name, leaf, self._memory.shared(handle, leaf.size, descriptors))
                )
        except (arguments.UnfitValueError, memory.HandleError, OSError) as error:
            raise SideFailedError(
                c.Failure("runtime error", f"{party.name} returned {error}"), party.reference
            ) from None
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
            descriptors.clear()
        return outputs

    def answered(self, call: SideCall) -> Answered:
        """Return the judge's copies of a call's outputs. Raises SideFailedError for outputs of the candidate that are
        no tensors.
        """
        names = tuple(output.name for output in call.outputs)
        try:
            return Answered(
                names,
                tuple(arguments.tensor_in(self._torch, output.leaf, output.copy) for output in call.outputs),
            )
        except arguments.UnfitValueError as error:
            raise SideFailedError(c.Failure("runtime error", f"ModelNew returns {error}"), False) from None

    def answers(self, given: Given, noises: Sequence[float]) -> list[Answered]:
        """Return the reference's answer to arguments, and those in double precision to arguments that are changed by each of
        the shares `noises`; none of these if it does not run in double precision. No time is taken. Raises SideFailedError.
        """
        party = self._reference
        with self._candidate.still():
            what = _order(party, given)
            _place(party, given, what["starts"])
            self._memory.wait()
            answer, descriptors = party.ask({"do": "answers", "noises": [*noises], **what})
            outputs = self.read(party, answer, descriptors)
            for output in outputs:
                output.copy = output.data.clone()
            self._memory.wait()
        each = iter(outputs)
        sides = [list(itertools.islice(each, count)) for count in answer["counts"]]
        return [self.answered(SideCall((0, 0, 0), 0, side)) for side in sides]


def _order(party: Party, given: Given) -> Message:
    """Return how a side is told its arguments. Their place is drawn for each call."""
    steps = min(len(party.arena) - given.room, _ROAM) // memory.ALIGNED
    start = secrets.randbelow(steps + 1) * memory.ALIGNED
    return {
        "seed": given.seed, "arguments": given.packed, "leaves": arguments.written(given.leaves),
        "starts": arguments.starts(start, given.leaves),
    }  # fmt: skip


def _place(party: Party, given: Given, starts: Sequence[int]) -> None:
    for content, at, leaf in zip(given.contents, starts, given.leaves, strict=True):
        party.arena[at : at + leaf.size].copy_(content)
