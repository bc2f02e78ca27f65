"""What jobs, kernel, sessions, stop and modal print with `--json`: published as JSON schemas."""

from __future__ import annotations

from orbit_lsp.cli.json_results import Reason
from orbit_lsp.queue.job_store import Result
from orbit_lsp.queue.notebook_sessions import Running
from orbit_lsp.runners.modal.ledger import Month
from orbit_remote.common import messages as c
from orbit_remote.common.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedJob:
    """A job. Times are seconds since 1970. `outcome` is null until it has ended. `slot` is where it runs or ran.
    `why` is what it waits for. `position` is how many jobs are before it, `waited_s` how long it waited until it
    began. While it waits, `predicted_wait_s` is how long it still will. `predictions_good` is the share of the
    earlier `predictions` that were within 25 % or 2 s.
    """

    version: int
    id: str
    door: str
    state: c.State
    why: str
    outcome: c.Outcome | None
    summary: str
    action: str
    file: str
    kernel: str | None
    gpu: str
    slot: str
    priority: str
    key: str
    submitted: float
    started: float | None
    ended: float | None
    cancelling: bool
    position: int | None
    waited_s: float | None
    predicted_wait_s: float | None
    predictions_good: float | None
    predictions: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownJob(ListedJob):
    """A listed job with its result, which is null until it has ended, and with how well its result is protected from
    code that cheats. `score` is the time of a judged candidate in milliseconds. It is null if `policy` forbids a
    score to a right answer.
    """

    grade: str | None
    grade_why: str | None
    score: float | None
    policy: str | None
    policy_why: str | None
    result: Result | None


@dataclass(frozen=True, slots=True)
class PrunedJobs:
    """`removed` is how many records were removed."""

    removed: int


@dataclass(frozen=True, slots=True)
class NotebookKernel:
    """A kernel in Jupyter's menus: its name there, and the folder of its kernelspec."""

    name: str
    title: str
    folder: str


@dataclass(frozen=True, slots=True)
class RentedGpu:
    """`began` is in seconds since 1970. `usd` is the cost so far, or null if the price is not known."""

    id: str
    gpu: str
    began: float
    usd: float | None


@dataclass(frozen=True, slots=True)
class Sessions:
    """Running notebook kernels, and rented GPUs."""

    kernels: tuple[Running, ...]
    containers: tuple[RentedGpu, ...]


@dataclass(frozen=True, slots=True)
class EndedSessions:
    """The ids of the kernels that were ended."""

    ended: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StoppedWorkers:
    """The process ids of the workers that were stopped."""

    stopped: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ModalApp:
    """An app of orbit-lsp on Modal; `present` marks that of this version."""

    name: str
    id: str
    present: bool


@dataclass(frozen=True, slots=True)
class ModalPrice:
    """Dollars for a container with a GPU: an hour, a first run, and the idle time after a run in an editor. `rates` says whose prices these are."""

    gpu: str
    usd_per_h: float
    first_run_usd: float
    idle_usd: float
    rates: str


@dataclass(frozen=True, slots=True)
class ModalStatus:
    """`token` says where the token was found. `app` is the app's name for this version, or null if Modal was not
    reached. `month` is null if it has no record. `failure` says why Modal cannot be used. Then `apps` is empty.
    """

    token: str | None
    app: str | None
    apps: tuple[ModalApp, ...]
    month: Month | None
    prices: tuple[ModalPrice, ...]
    budget_usd: float
    failure: Reason | None = None
