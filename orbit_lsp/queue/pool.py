"""The places in which jobs run: GPUs of this machine, of hosts reached by ssh and rented ones, and a place that only
compiles.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from orbit_lsp.queue.request import Request, RequestRefusedError
from orbit_lsp.state import modal_gpus, ssh_hosts
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.messages import Machine

COMPILER = "compiler"
_LOCAL = re.compile(r"local:(\d{1,2})(?:-(\d{1,2}))?")
_MOST = 8
_MODAL = re.compile(r"modal:([^*]+?)(?:\*(\d{1,2}))?")
_SSH = re.compile(r"ssh:([^:]+)(?::(\d{1,2}))?")
_RAY = re.compile(r"ray(?::([\w-]{1,40}))?\*(\d{1,3})")


@dataclass(frozen=True, slots=True)
class Slot:
    """A place for one job at a time. `name` is `local:0`, `ssh:gpu1:0`, `modal:H100#2`, `ray#1` or `compiler`.
    `options` are the settings that choose the place. `gpu` is the GPU's name from the pool or NVML, "" if it is not
    known. `absent` is why the place has no GPU; "" while that is not known.
    """

    name: str
    options: tuple[tuple[str, Any], ...] = ()
    gpu: str = ""
    absent: str = ""

    @property
    def local(self) -> bool:
        """Say whether the place has GPUs of this machine."""
        return self.name.startswith("local:")

    @property
    def clustered(self) -> bool:
        """Say whether a node of a Ray cluster has its GPU."""
        return self.name.startswith("ray")

    @property
    def checked(self) -> bool:
        """Say whether the place is one GPU that jobs share in turn: of this machine, of a host or of a cluster. A
        rented GPU is given back instead.
        """
        return self.clustered or bool(re.fullmatch(r"(local|ssh:[^:]+):\d+", self.name))

    def takes(self, request: Request) -> bool:
        if request.action == "compile":
            return self.name == COMPILER
        if self.name == COMPILER:
            return False
        return not request.gpu or self.is_called(request.gpu) or _same(request.gpu, self.gpu)

    def is_called(self, wanted: str) -> bool:
        """Say whether a name means this place, or places like it: `modal:H100` means `modal:H100#2`."""
        return wanted.lower() in (self.name.lower(), self.name.lower().partition("#")[0])


def _same(wanted: str, gpu: str) -> bool:
    """Say whether two names mean the same GPU: `h100` and `NVIDIA H100 80GB HBM3`, `a100 80gb` and `A100-80GB`; but
    not `H100:2` and one H100.
    """
    if modal_gpus.rented(gpu):  # named by the pool, as Modal's are
        return modal_gpus.rented(wanted) == modal_gpus.rented(gpu)
    return wanted.lower() == gpu.lower() or (modal_gpus.count(wanted) == 1 and modal_gpus.means(wanted, gpu))


def parse(text: str) -> list[Slot]:
    """Read the places of `local:0,local:1,modal:H100*4,ray:H100*8`. Raises RequestRefusedError."""
    slots: list[Slot] = []
    for word in filter(None, (part.strip() for part in text.split(","))):
        if local := _LOCAL.fullmatch(word):
            slots.append(_several(int(local[1]), int(local[2])) if local[2] else _local(int(local[1])))
        elif (rented := _MODAL.fullmatch(word)) and (gpu := modal_gpus.rented(rented[1])):
            options = (("runner", "modal"), ("gpu", gpu))
            count = int(rented[2] or 1)
            slots += [Slot(f"modal:{gpu}#{number}", options, gpu) for number in range(1, count + 1)]
        elif rented:
            raise RequestRefusedError(modal_gpus.refusal(rented[1]))
        elif there := _SSH.fullmatch(word):
            slots.append(_of_host(there[1], int(there[2] or 0)))
        elif clustered := _RAY.fullmatch(word):
            kind = clustered[1] or ""
            name = f"ray:{kind}" if kind else "ray"
            slots += [Slot(f"{name}#{number}", (), kind) for number in range(1, int(clustered[2]) + 1)]
        else:
            raise RequestRefusedError(
                f"{word!r:.60} is not a place of a pool; write local:0, ssh:HOST:0, modal:H100*4 or ray*8, with commas between"
            )
    names = [slot.name for slot in slots]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise RequestRefusedError(f"{twice} is in the pool twice")
    if not slots:
        raise RequestRefusedError(
            "the pool names no GPU; write local:0, ssh:HOST:0, modal:H100*4 or ray*8, with commas between"
        )
    return slots


def of_machine(machine: Machine | None, *, rented: str) -> list[Slot]:
    """Return a place for every GPU of this machine. Without one, return the GPU `rented` on Modal if there is an
    account, else a place whose jobs end with the message that there is no GPU.
    """
    if machine and machine.devices:
        return [_local(device.index, device.name) for device in machine.devices]
    return parse(f"modal:{rented}") if rented else named([_local(0)], machine)


def named(slots: Sequence[Slot], machine: Machine | None) -> list[Slot]:
    """Return the places with NVML's names of this machine's GPUs, and with why a place has none."""
    if machine is None:
        return list(slots)
    names = {device.index: device.name for device in machine.devices}
    return [replace(slot, **_looked_up(slot.name, names)) for slot in slots]


def _looked_up(place: str, names: Mapping[int, str]) -> dict[str, str]:
    if not (local := _LOCAL.fullmatch(place)):
        return {}
    wanted = range(int(local[1]), int(local[2] or local[1]) + 1)
    lacking = next((index for index in wanted if index not in names), None)
    if lacking is None:
        return {} if local[2] else {"gpu": names[wanted.start]}
    have = ", ".join(map(str, sorted(names)))
    why = f"this machine has no GPU {lacking}: it has {have}" if have else "this machine has no NVIDIA GPU"
    return {"absent": why}


def _of_host(name: str, index: int) -> Slot:
    """Return the place of a GPU of a machine that is reached by ssh. Raises RequestRefusedError."""
    try:
        host = ssh_hosts.host(name)
    except ValueError as mistake:
        raise RequestRefusedError(str(mistake)) from None
    place = f"{ssh_hosts.PREFIX}{host}"
    return Slot(f"{place}:{index}", (("runner", place), ("device", index)))


def _several(first: int, last: int) -> Slot:
    """Return neighbouring GPUs of this machine as one place, for programs that use them all. Raises
    RequestRefusedError.
    """
    count = last - first + 1
    if not 1 < count <= _MOST:
        raise RequestRefusedError(f"local:{first}-{last} is no place of 2 to {_MOST} GPUs; write local:0-1")
    # of the GPU that is rented, this machine takes the number alone
    options = (("runner", "local"), ("device", first), ("gpu", f"H100:{count}"))
    return Slot(f"local:{first}-{last}", options)


def _local(index: int, gpu: str = "") -> Slot:
    return Slot(f"local:{index}", (("runner", "local"), ("device", index)), gpu)
