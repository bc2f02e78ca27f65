"""Records the launches of Triton kernels in a notebook's cell while it runs, and shows them as a table below the
cell's output.

Recording begins with the first cell that names Triton or has it imported: until then a notebook runs as it would
without us.
"""

from __future__ import annotations

import contextlib
import importlib
import linecache
import os
import re
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from orbit_remote.child import child_main, python_job, triton_instances
from orbit_remote.common import codec, measure, python_errors
from orbit_remote.common.messages import Device, Finished, Launches, Resources
from orbit_remote.process.client_environment import NOTEBOOK_CACHE
from orbit_remote.recording import injection, recorder
from orbit_remote.recording.injection import UNKNOWN, Overhead
from orbit_remote.recording.recorder import Native

_LIMIT = 1_000_000
"""Launches that are recorded of one cell (cupti/injection.cpp)."""
_LONGEST = 1 << 20
"""Characters of cells that are sent for the history."""
_INDUCTOR = "torchinductor"
"""In the paths of kernels that torch.compile wrote."""

_FAILED = re.compile(
    r"(?i)(?:cuda.?error|\[CUDA\]).*?(?:illegal|misaligned|invalid.(?:address|pc|program counter)|launch.fail|unspecified launch|"
    r"hardware.stack|device.side assert|error_assert)",
    re.DOTALL,
)
"""What torch, Triton, CuPy and Numba say of a kernel that failed."""
_LOCATE = "orbit: a GPU kernel failed: run `%orbit locate` to find its line"

Ask = Callable[..., dict[str, Any]]
Show = Callable[[dict[str, Any]], None]


class MeasuredCells:
    def __init__(self, folder: Path, ask: Ask, show: Show) -> None:
        """Make the recorder. `folder` gets the records. `ask` asks the keeper and the relaying process; `show`
        displays an answer.
        """
        self._folder = folder
        self._ask = ask
        self._show = show
        self.on = True
        """`%orbit measure`: whether cells are to be measured."""
        self._tried = False
        self._told = False
        self._native: Native | None = None
        self._tuning: python_job.Tuning | None = None
        self._stack = ExitStack()
        self._overhead: Overhead | None = None

    def register(self, shell: Any) -> None:
        shell.events.register("pre_run_cell", self.before)
        shell.events.register("post_run_cell", self.after)

    def before(self, info: Any) -> None:
        if not self.on:
            return
        if not self._tried and _uses_triton(str(info.raw_cell)):
            self._tried = True
            self._begin()
        if self._native and not self._native.record("automatic"):
            self._stop("a cell started a profiler of its own")

    def after(self, result: Any) -> None:
        """Wait for the cell's kernels after the cell: their times belong to it."""
        if not self._told and _FAILED.search(str(getattr(result, "error_in_exec", None) or "")):
            self._told = True
            self._show({"text": _LOCATE})
        if self._native is None:
            return
        if not self.on:  # since this cell
            self._native.record("nothing")
            self._native.forget()
            return
        try:
            python_job.synchronise()
        except Exception:  # noqa: BLE001 - the context is lost, and the next CUDA call of a cell reports it
            self._stop("a GPU kernel failed, and CUDA with it")
            if not self._told:
                self._told = True
                self._show({"text": _LOCATE})
            return
        if not self._native.record("nothing"):
            self._stop("a cell started a profiler of its own")
            return
        if finished := self._measured(self._native):
            self._show(self._ask(do="measured", finished=asdict(finished), texts=_cells(finished)))
        self._native.forget()

    # -- recording ----------------------------------------------------------------------------

    def _begin(self) -> None:
        if not child_main.has_gpu():
            return
        with contextlib.suppress(
            ImportError
        ):  # its CUPTI is the one to use, and the cell will import it anyway
            importlib.import_module("torch")
        cache = Path(os.environ.get(NOTEBOOK_CACHE) or self._folder)
        try:
            self._native = recorder.begin_native(cache, self._folder / "launches")
        except (injection.RecorderUnavailableError, OSError) as error:
            self._show({"text": f"orbit: the Triton kernels of cells are not measured: {error}"})
            return
        self._tuning = self._stack.enter_context(python_job.autotuning(self._native))

    def _stop(self, why: str) -> None:
        assert self._native
        self._native.end()
        self._native = None
        self._stack.close()
        text = f"orbit: Triton kernels are not measured until you restart the notebook's kernel: {why}"
        self._show({"text": text})

    # -- what was recorded --------------------------------------------------------------------

    def _measured(self, native: Native) -> Finished | None:
        """Return the measurements. Return None if the cell launched no Triton kernel that its author wrote."""
        native.overhead = self._known_overhead()
        recorded = native.recorded().since(0)  # without remarks on how the process ended: it has not
        if not recorded.series:
            return None
        assert self._tuning
        series, tuned = self._tuning.without(recorded.series)
        self._tuning.spans.clear()
        known = [each for each in triton_instances.instances() if _is_authors(each)]
        matched = triton_instances.match(series, known)
        if not matched.launches and not matched.unclear:
            return None
        remarks = [
            *recorded.remarks,
            *matched.unclear,
            *measure.remarks([each for each, _ in matched.launches]),
        ]
        if tuned:
            remarks.append(f"{python_job.launches_text(tuned)} made while autotuning are not in the times")
        if sum(each.count for each in recorded.series) >= _LIMIT:
            remarks.append(f"the launches after the first {_LIMIT:,} were not recorded")
        launches = tuple(_short(each) for each in python_job.grouped(matched.launches))
        named = {each.symbol for each in launches}
        return Finished(
            "cell",
            "ok",
            launches=launches,
            resources=tuple(each for each in known if each.symbol in named),
            device=_device(),
            toolchain=triton_instances.toolchain(),
            remarks=tuple(dict.fromkeys(remarks)),
        )

    def _known_overhead(self) -> Overhead:
        """Return what recording adds to a launch. The keeper knows it, or measures it while this cell has the GPU for
        itself.
        """
        if self._overhead is None:
            answer = self._ask(do="overhead")
            with contextlib.suppress(ValueError):
                known = codec.build(Overhead, answer.get("overhead"))
                self._overhead = known if known != UNKNOWN else None
        return self._overhead or UNKNOWN


def _uses_triton(text: str) -> bool:
    return "triton" in text or "triton" in sys.modules


def _is_authors(resources: Resources) -> bool:
    file = resources.place.file if resources.place else ""
    return python_errors.is_users(file, "") and _INDUCTOR not in file


def _short(launches: Launches) -> Launches:
    return replace(launches, timing=replace(launches.timing, samples=()))


def _cells(finished: Finished) -> dict[str, str]:
    """Return the texts of the cells that define the kernels, by the names that IPython gives them."""
    files = {each.place.file for each in finished.launches if each.place}
    known = {file: linecache.cache.get(file, ()) for file in files}
    texts = {file: "".join(entry[2]) for file, entry in known.items() if len(entry) == 4 and entry[1] is None}
    return texts if sum(map(len, texts.values())) <= _LONGEST else {}


def _device() -> Device | None:
    """Return the current GPU, with torch's name for it."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    known = torch.cuda.get_device_properties(torch.cuda.current_device())
    return Device(str(known.name), capability=f"{known.major}.{known.minor}")
