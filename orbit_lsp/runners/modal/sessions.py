"""The warm containers that this server has used, and what each has cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from orbit_lsp.runners.modal.costs import RentalCosts
from orbit_lsp.runners.modal.ledger import RentedTime, clock
from orbit_lsp.runners.modal.rates import Price
from orbit_remote.common import messages as c
from orbit_remote.common.lazy_dataclass import dataclass

if TYPE_CHECKING:
    import modal

_UNNAMED = "kept "
_LIFE_S = 86_400.0


@dataclass(slots=True)
class ContainerSession:
    """One container. Times are seconds on the wall clock. `since` is its start, `until` is None during a run. `gpu`
    is "" for one that only compiles.

    `gpu_s` are the seconds of its runs, without idle time, which is billed too. `price` is that of a second, None if
    it is not known.
    """

    gpu: str
    since: float
    until: float | None = None
    runs: int = 0
    gpu_s: float = 0.0
    kept: bool = False
    container: str = ""
    price: Price | None = None

    def warm(self, now: float) -> bool:
        return self.kept or self.until is None or now < self.until

    def usd(self, now: float) -> float | None:
        """Return the cost up to `now`, its idle time included."""
        return self.price.usd_per_s * (now - self.since) if self.price else None


@dataclass(slots=True)
class _RunInContainer:
    gpu: str
    container: str
    began: float
    alone: bool


class ContainerSessions:
    def __init__(
        self, idle_s: float, changed: Callable[[], None], costs: RentalCosts | None = None, limit_s: float = 0, *,
        released: bool = False,
    ) -> None:  # fmt: skip
        """Make the collection. `changed` is called when a container became warm or cold by what was done here.
        `limit_s` is the most that a run may take. `released`: all are released soon, so that waiting costs nothing.
        """
        self._idle_s = idle_s
        self._limit_s = limit_s
        self._released = released
        self._changed = changed
        self._costs = costs or RentalCosts()
        self._containers: dict[str, ContainerSession] = {}
        self._runs: dict[str, _RunInContainer] = {}

    def contact(self, client: modal.Client) -> None:
        """Ask for Modal's prices, because Modal has been reached."""
        self._costs.learn(client)

    def all(self) -> list[ContainerSession]:
        """Return the containers with a GPU that are warm now."""
        now = clock()
        return [container for container in self._containers.values() if container.gpu and container.warm(now)]

    def warm(self, gpu: str) -> bool:
        return any(session.gpu == gpu for session in self.all())

    # -- runs ---------------------------------------------------------------------------------

    def begin(self, gpu: str | None, key: str, answer: Mapping[str, Any], *, alone: bool = False) -> str:
        """Record that the container of the run `key` (`<run>-<unique>`) has spoken. `answer` has its name, its age
        and, after the run, the run's seconds. `alone`: it ends with the run. Return the container's name.
        """
        now = clock()
        gpu = gpu or ""
        container = _name(gpu, answer)
        if (before := self._runs.get(key)) and before.container != container:
            self.lose(before.container)  # it died, and Modal began the run again
        session = self._containers.get(container)
        if session is None or not session.warm(now):
            began = now - _seconds(answer, "age_s")
            session = self._containers[container] = ContainerSession(gpu, began, container=container)
            self._take_over(session)
        else:
            began = now - _seconds(answer, "seconds")
        session.until = None
        session.price = self._costs.price(gpu)
        self._runs[key] = _RunInContainer(gpu, container, began, alone)
        self._write(session, now + self._limit_s + (0 if alone else self._idle_s), key.rpartition("-")[0])
        self._changed()
        return container

    def answered(self, gpu: str | None, key: str, answer: Mapping[str, Any], *, alone: bool) -> None:
        """Record a run's answer. If its events did not come, this is the container's first word."""
        if "finished" in answer and key not in self._runs:
            self.begin(gpu, key, answer, alone=alone)

    def end(self, key: str) -> c.Cost | None:
        """Record that a run is over, and its container free. Return its cost, or None if no container had spoken, or
        it has no GPU.
        """
        run = self._runs.pop(key, None)
        session = self._containers.get(run.container) if run else None
        if run is None or session is None:
            return None
        now = clock()
        seconds = now - run.began
        session.runs += 1
        session.gpu_s += seconds
        session.price = self._costs.price(session.gpu)
        if not any(other.container == run.container for other in self._runs.values()):
            session.until = now if run.alone else now + self._idle_s
            self._write(session, session.until)
        if run.alone:
            del self._containers[run.container]
        self._changed()
        idle_s = None if session.kept or run.alone or self._released else self._idle_s
        return _cost(session.gpu, seconds, session.price, idle_s) if session.gpu else None

    def lose(self, container: str) -> None:
        """A container has ended."""
        if self._containers.pop(container, None):
            self._costs.end(container)
            self._changed()

    # -- containers ---------------------------------------------------------------------------

    def keep(self, gpu: str, keep: bool) -> None:
        now = clock()
        chosen = [session for session in self.all() if session.gpu == gpu]
        if not chosen:
            name = f"{_UNNAMED}{gpu} {now}"  # Modal starts one; its name is known once a run is in it
            price = self._costs.price(gpu)
            self._containers[name] = ContainerSession(
                gpu, now, now + self._idle_s, container=name, price=price
            )
            chosen = [self._containers[name]]
        first, *sessions = chosen
        for kept in [first] if keep else [first, *sessions]:
            kept.kept = keep
            if not keep and kept.until is not None:
                kept.until = now + self._idle_s
            self._write(kept, kept.until)
        self._changed()

    def kept(self, gpu: str) -> bool:
        return any(session.kept for session in self.all() if session.gpu == gpu)

    def idle(self, gpu: str) -> set[str]:
        """Return the names of the GPU's warm containers in which nothing runs."""
        now = clock()
        every = self._containers.values()
        return {
            session.container
            for session in every
            if session.gpu == gpu and session.until is not None and session.warm(now)
        }

    def left(self, gpu: str, container: str) -> None:
        """Record that a container has been sent away. If it had no run, it may be the one that was to be kept."""
        unnamed = (name for name in self.idle(gpu) if name.startswith(_UNNAMED))
        self.lose(container if container in self._containers else next(unnamed, container))

    def _take_over(self, session: ContainerSession) -> None:
        """Take over the container that Modal started because one was to be kept, now that it has a name."""
        for name, container in list(self._containers.items()):
            if container.kept and container.gpu == session.gpu and name.startswith(_UNNAMED):
                session.kept = True
                session.since = min(session.since, container.since)
                del self._containers[name]
                self._costs.end(name, container.since)

    def _write(self, session: ContainerSession, ends: float | None, run: str | None = None) -> None:
        price = session.price
        span = RentedTime(
            session.container, session.gpu, session.since, None if session.kept else ends,
            price.usd_per_s if price else None, price.rates if price else "",
        )  # fmt: skip
        self._costs.put(span, run)


def _name(gpu: str, answer: Mapping[str, Any]) -> str:
    name = answer.get("container")
    return name if isinstance(name, str) and name else f"a container with {gpu or 'no GPU'}"


def _seconds(answer: Mapping[str, Any], name: str) -> float:
    """Return seconds from an answer, at most as long as Modal lets a container live: the ledger counts no impossible
    time.
    """
    value = answer.get(name)
    return float(min(value, _LIFE_S)) if isinstance(value, float | int) and value > 0 else 0.0


def _cost(gpu: str, seconds: float, price: Price | None, idle_s: float | None) -> c.Cost:
    if price is None:
        return c.Cost(gpu, seconds)
    idle = None if idle_s is None else idle_s * price.usd_per_s
    return c.Cost(gpu, seconds, seconds * price.usd_per_s, idle, price.rates)
