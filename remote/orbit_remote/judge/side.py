"""One side's process: it runs the candidate's code or the reference's, as the judge asks, call by call.

Nothing that this process says is believed by itself. The code that is measured shares it, and can change whatever
stands here. So the judge makes the inputs, keeps the clock and compares the outputs elsewhere. The memory for the
arguments is allocated here, before that code is imported, and the judge writes to it.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import statistics
import sys
import tempfile
import traceback
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final, Literal

from orbit_remote.child import python_job, surroundings
from orbit_remote.child.harness import built_extensions, harness_job, kernelbench, tensor_data
from orbit_remote.child.harness.harness_case import ContractError, described
from orbit_remote.child.user_module import UserFile
from orbit_remote.common import codec, launch_records
from orbit_remote.common import messages as c
from orbit_remote.common.launch_records import LaunchRecord
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.requests import Job
from orbit_remote.judge import arguments, beside, draws, locks, memory
from orbit_remote.judge.beyond import NOISE
from orbit_remote.judge.channel import Channel, ChannelLostError, Message
from orbit_remote.process import process_groups
from orbit_remote.recording import recorder

Role = Literal["candidate", "reference"]
TRITON: Final = "triton"
"""The folder of a side in which Triton builds."""
_WORDS: Final = 4000
_SUMMANDS: Final = 6
_SHOWN: Final = 48
"""How many kernels of a call are reported by name, at most; those that take longest."""


@dataclass(frozen=True, slots=True)
class Orders:
    """What a side is begun with: before any code of others is in the process, and before any job is known. `index` is the
    GPU's, from 0.
    """

    folder: Path
    cache: Path
    device: str
    index: int
    role: Role
    confined_first: bool = True
    """Landlock before CUDA, so that CUDA's own threads are confined too: where CUDA begins under it."""
    waits: bool = False
    """It may wait for its job, so it does what any job needs first."""


@dataclass(frozen=True, slots=True)
class SideTask:
    """The job of a side, which it is given once it has begun."""

    job: Job
    reference: tuple[str, str]
    copied: bool
    """Whether the reference runs as a file of the side's own folder, with the files beside that it names."""
    environment: dict[str, str]
    processes: int
    """How many its user may have."""


class Side:
    """The loop of a side. `page` holds the flags that both processes see."""

    def __init__(self, orders: Orders, channel: Channel, page: mmap.mmap, torch: Any) -> None:
        self._orders = orders
        self._task: SideTask | None = None
        self._channel = channel
        self._page = page
        self._torch = torch
        self._locks = locks.Locks()
        self._memory: Any = None
        self._arena: Any = None
        self._kind: Any = None
        self._model: Any = None
        self._precise: Any = None
        self._source: Any = None
        self._kept: Any = None  # outputs that the judge is still reading
        self._null: list[Any] = []
        self._seeds: draws.Seeds | None = None
        self._draws: draws.Draws | None = None
        self._recorder: Any = recorder.Nothing()

    def serve(self) -> None:
        """Serve until the judge has gone."""
        try:
            self._prepare()
        except Exception as error:  # noqa: BLE001 - whatever the driver raises: nothing of others has run yet
            self._channel.receive()
            self._channel.send(self._unable(error))
            return
        while True:
            message, given = self._channel.receive()
            try:
                answer, own = self._answer(message, given)
            except BaseException as error:  # noqa: BLE001 - whatever the code raises is its result
                # without memory for arguments no code of others has run yet
                answer, own = self._unable(error) if self._arena is None else self._failed(error), ()
            self._channel.send(answer, tuple(own))
            for descriptor in own:
                os.close(descriptor)

    def _unable(self, error: BaseException) -> Message:
        return {"unable": f"{self._orders.role}: {type(error).__name__}: {error}"[:_WORDS]}

    def _prepare(self) -> None:
        """Prepare folders of its own, limits and the recorder. After this, the files of others are out of reach."""
        folder = self._orders.folder
        home = {
            "HOME": ".",
            "TMPDIR": "tmp",
            "TRITON_CACHE_DIR": TRITON,
            "TORCH_EXTENSIONS_DIR": "extensions",
        }
        home |= {
            "CUDA_MPS_PIPE_DIRECTORY": "mps",
            "CUDA_MPS_LOG_DIRECTORY": "mps",
            "CUDA_CACHE_PATH": "cuda",
            "TORCHINDUCTOR_CACHE_DIR": "inductor",
            "XDG_CACHE_HOME": "cache",
        }
        for name, place in home.items():
            (folder / place).mkdir(exist_ok=True)
            os.environ[name] = str(folder / place)
        tempfile.tempdir = os.environ["TMPDIR"]  # the judge's was remembered
        os.chdir(folder)
        process_groups.reap_orphans()  # so all that it starts stays below it, and is stopped with it
        locks.limit(self._locks)
        if self._orders.device == "cuda":
            self._recorder = recorder.begin(self._orders.cache, folder / "launches")
        other_user = locks.become_nobody(self._locks, folder)
        if other_user:
            process_groups.die_with_parent()  # which a change of the user has undone
        if self._orders.confined_first:
            self._confine()
        self._memory = memory.of(self._torch, self._orders.device, self._orders.index)
        if isinstance(self._recorder, recorder.Native):
            self._recorder.record("nothing")
        if isinstance(self._memory, memory.CudaMemory):
            self._memory.see_flags(self._page)
        if not self._orders.confined_first:
            self._confine()
            # threads that CUDA has begun are not confined: only another user's are without the machine's files
            if not other_user and locks.FILES in self._locks.held:
                self._locks.held.remove(locks.FILES)
                self._locks.missing.append(
                    f"{locks.FILES} (CUDA does not begin under Landlock here, so its threads are free)"
                )

        if self._orders.waits and isinstance(self._memory, memory.CudaMemory):
            self._rehearse()

    def _rehearse(self) -> None:
        """Do what the first calls of any job do: CUDA loads each kernel when it is first launched, and Triton compiles its
        part of the driver.
        """
        self._memory.known_kernel()
        few = self._torch.randn(1 << 18, device="cuda")
        self._memory.touch(few.view(self._torch.uint8))
        if self._orders.role == "reference":
            _wide(self._torch, few, NOISE)
        self._memory.wait()
        if self._orders.role == "candidate" and "triton" in sys.modules:
            with contextlib.suppress(Exception):  # a candidate that needs it says what is wrong
                _ = sys.modules["triton"].runtime.driver.active.utils

    def _confine(self) -> None:
        orders = self._orders
        locks.confine(self._locks, [*locks.readable(), str(orders.cache)], [str(orders.folder)])

    @property
    def _given_task(self) -> SideTask:
        assert self._task
        return self._task

    def _begin(self, descriptor: int) -> Message:
        """Take the job that `written` wrote. From here on the environment is the job's, except what was set for this process."""
        with os.fdopen(descriptor, "rb") as file:
            text = file.read().decode("utf-8", "surrogatepass")
        self._task = task = codec.build(SideTask, codec.read_json(text))
        surroundings.become(task.environment)
        locks.limit_processes(task.processes)
        return {"begun": True}

    def _answer(self, message: Message, given: list[int]) -> tuple[Message, tuple[int, ...]]:
        match message["do"]:
            case "prepare":
                return {"prepared": True}, ()
            case "begin":
                return self._begin(given[0]), ()
            case "open":
                return self._open(int(message["size"]))
            case "widen":
                return self._widen(int(message["size"]))
            case "sizes":
                return self._sizes(int(message["room"])), ()
            case "make":
                if self._kind is None:
                    self._import()
                return self._make(int(message["seed"]), message.get("shape") or {}), ()
            case "adopt":
                return {"adopted": self._adopt(int(message["seed"]))}, ()
            case "inputs":
                return self._inputs(int(message["seed"]))
            case "call":
                return self._call(message)
            case "settle":
                self._memory.wait()
                return {"settled": True}, ()
            case "record":
                self._memory.known_kernel()  # its first launch may wait for the GPU
                self._memory.wait()
                return {"records": self._record()}, ()
            case "known":
                return {"ns": self._known_ns()}, ()
            case "answers":
                return self._answers(message)
            case other:
                raise ValueError(f"{other} is no order")

    def _open(self, size: int) -> tuple[Message, tuple[int, ...]]:
        """Allocate memory for the arguments of calls; then set the last of the locks."""
        answer, own = self._widened(size)
        locks.refuse_calls(self._locks)
        return {**answer, "held": self._locks.held, "missing": self._locks.missing}, own

    def _widen(self, size: int) -> tuple[Message, tuple[int, ...]]:
        """Allocate other memory for the arguments, once their sizes are known."""
        try:
            return self._widened(size)
        except OSError as error:
            return self._unable(error), ()

    def _widened(self, size: int) -> tuple[Message, tuple[int, ...]]:
        """Allocate memory of this process's own: a kernel that reads 512 MiB of another process's memory takes up to 14 %
        longer (docs/dev/judge.md).
        """
        region = self._memory.allocate(size)
        self._arena = region.data
        return {"arena": region.handle}, () if region.descriptor is None else (region.descriptor,)

    # -- the code of others -------------------------------------------------------------------------

    def _import(self) -> None:
        job, torch = self._given_task.job, self._torch
        path, text = self._given_task.reference
        file = UserFile(self._reference(), text, str(self._orders.folder), (), job.roots)
        if self._orders.role == "candidate":
            own = UserFile(job.path, job.text, str(self._orders.folder), (), job.roots)
            own.prepare()
            built_extensions.load_from_named()
            self._kind = kernelbench.model_class(
                torch, own.execute(own.module_name()), "ModelNew", Path(job.path).name
            )
            self._source = file.execute(file.module_name())
        else:
            file.prepare()
            self._seeds = draws.Seeds(torch)  # before the file takes the functions that seed by their names
            self._source = file.execute(file.module_name())
            self._kind = kernelbench.model_class(torch, self._source, "Model", Path(path).name)

    def _reference(self) -> str:
        """The path under which the reference's text runs."""
        path = self._given_task.reference[0]
        return str(self._orders.folder / Path(path).name) if self._given_task.copied else path

    def _make(self, seed: int, shape: beside.Shape) -> Message:
        """Make a model, as it is before its first call. `shape` has new values of variables of the reference's module."""
        for name, value in shape.items():
            if not hasattr(self._source, name):
                raise ContractError(f"shapes.py has {name}, which is no variable of the reference")
            setattr(self._source, name, value)
        self._model = None
        self._model = self._made(self._kind, seed)
        self._memory.wait()
        return {"made": True}

    def _adopt(self, seed: int) -> str:
        """Replace the candidate's parameters by Model's, which this process can make itself. Return how they fit."""
        model = kernelbench.model_class(
            self._torch, self._source, "Model", Path(self._given_task.reference[0]).name
        )
        how = kernelbench.adopted(self._torch, self._model, self._made(model, seed))
        self._memory.wait()
        return how

    def _made(self, kind: Any, seed: int) -> Any:
        torch = self._torch
        torch.manual_seed(seed)
        wanted = getattr(self._source, "get_init_inputs", None)
        made: Any = wanted() if callable(wanted) else []
        made = tensor_data.moved(torch, made, self._orders.device)
        if not isinstance(made, list | tuple | dict):
            raise ContractError(
                f"get_init_inputs returns {described(made)}; KernelBench's returns a list of arguments"
            )
        torch.manual_seed(seed)
        with torch.no_grad():
            model = kind(**made) if isinstance(made, dict) else kind(*made)
            return model.to(device=self._orders.device)

    def _sizes(self, room: int) -> Message:
        """Tell how large the arguments of a call are, if that is known before they are drawn, and whether that is too large."""
        get: Any = getattr(self._source, "get_inputs", None)
        if not callable(get):
            raise ContractError("the reference has no function get_inputs that makes the arguments of a call")
        assert self._seeds
        self._draws = draws.Draws(self._torch, self._seeds, get, self._orders.device)
        sizes = self._draws.sizes()
        too_large = _too_large(sizes, room)
        return {"too_large": too_large} if too_large else {"bytes": sum(sizes)}

    def _inputs(self, seed: int) -> tuple[Message, tuple[int, ...]]:
        torch = self._torch
        assert self._draws
        inputs = self._draws.draw(seed)
        tensors: list[Any] = []

        def take(tensor: Any) -> int:
            tensors.append(arguments.dense(torch, tensor))
            return len(tensors) - 1

        packed = arguments.pack(torch, inputs, take)
        answer, own = self._shared(tensors)
        return {"arguments": packed, "how": self._draws.how, **answer}, own

    def _given(self, message: Message) -> Any:
        """Return the arguments of a call, at the place where the judge puts them."""
        leaves = [arguments.claimed(value) for value in message["leaves"]]
        starts = message["starts"]
        tensors = [
            arguments.tensor_in(self._torch, leaf, self._arena[start : start + leaf.room])
            for leaf, start in zip(leaves, starts, strict=True)
        ]
        return arguments.unpack(self._torch, message["arguments"], tensors)

    def _call(self, message: Message) -> tuple[Message, tuple[int, ...]]:
        torch, number, gated = self._torch, int(message["number"]), bool(message["gated"])
        given = self._given(message)
        recording = bool(message.get("record")) and self._record()
        with torch.no_grad():
            draws.seed_torch(torch, int(message["seed"]))
            self._memory.wait()
            placed = self._placed(message)
            if gated:
                self._memory.touch(placed)
                self._memory.wait_for_gate(number)
                self._memory.touch(placed[:1])
                self._memory.tell(memory.BEGUN, number)
                output = self._outputs(given, message)
                self._memory.tell(memory.DONE, number)
            else:
                self._channel.send({"ready": number})
                self._wait_for_go(number)
                if not recording:  # its kernel would be among the candidate's
                    self._memory.touch(placed)
                output = self._outputs(given, message)
                self._memory.wait()
                self._page[4 * memory.DONE : 4 * memory.DONE + 4] = number.to_bytes(4, "little")
        self._kept = output
        answer, own = self._shared([arguments.dense(torch, value) for _, value in output])
        answer["names"] = [name for name, _ in output]
        if recording:
            answer["ran"] = self._recorded()
        return answer, own

    def _placed(self, message: Message) -> Any:
        """The memory that has the arguments."""
        if not message["starts"]:
            return self._arena[:1]
        first, end = message["starts"][0], message["starts"][-1] + message["leaves"][-1]["size"]
        return self._arena[first : max(end, first + 1)]

    def _outputs(self, given: Any, message: Message) -> list[tuple[str, Any]]:
        if message.get("null"):  # what a call costs besides its kernels
            if message.get("known"):
                self._memory.known_kernel()
            return [(str(at), value) for at, value in enumerate(self._null)]
        output = self._model(*given)
        leaves = list(tensor_data.leaves(self._torch, output, "output"))
        if not leaves:
            raise ContractError(
                f"forward returns {described(output)}, which contains no tensor to compare with"
            )
        if self._orders.role == "reference" and not self._null:
            self._null = [value.clone() for _, value in leaves]
        return leaves

    def _wait_for_go(self, number: int) -> None:
        """Wait for the judge's word that the clock runs. It comes as soon as the arguments are in place."""
        while int.from_bytes(self._page[0:4], "little") < number:
            self._memory.pause()

    def _answers(self, message: Message) -> tuple[Message, tuple[int, ...]]:
        """Compute the reference's answer in its own precision, and in double for each of `noises`, on the same arguments."""
        torch, seed = self._torch, int(message["seed"])
        given = self._given(message)
        with torch.no_grad():
            try:  # before its own call, which may change its arguments
                exact = [
                    self._exactly(_wide(torch, given, float(noise)), seed) for noise in message["noises"]
                ]
            except Exception:  # noqa: BLE001 - a model that has no double precision
                exact = []
            draws.seed_torch(torch, seed)
            each = [list(tensor_data.leaves(torch, self._model(*given), "output")), *exact]
        self._memory.wait()
        self._kept = each
        answer, own = self._shared([arguments.dense(torch, value) for output in each for _, value in output])
        answer["names"] = [name for output in each for name, _ in output]
        answer["counts"] = [len(output) for output in each]
        return answer, own

    def _exactly(self, wide: Any, seed: int) -> list[tuple[str, Any]]:
        import copy

        if self._precise is None:
            self._precise = copy.deepcopy(self._model).double()
        draws.seed_torch(self._torch, seed)
        return list(tensor_data.leaves(self._torch, self._precise(*wide), "output"))

    def _shared(self, tensors: list[Any]) -> tuple[Message, tuple[int, ...]]:
        leaves: list[Message] = []
        descriptors: list[int] = []
        for tensor in tensors:
            handle, descriptor = self._memory.share(tensor, len(descriptors))
            (leaf,) = arguments.written([arguments.leaf_of(tensor)])
            leaves.append({**leaf, "at": handle})
            descriptors += [] if descriptor is None else [descriptor]
        return {"leaves": leaves}, tuple(descriptors)

    def _known_ns(self) -> int:
        """Return the length of the known kernel in the recorded calls, which end with it. Return 0 if none was
        recorded.
        """
        self._memory.wait()
        launches = [launch for launch in self._recorder.fresh() if launch.timed]
        self._recorder.record("nothing")
        if not launches:
            return 0
        known = max(launches, key=lambda launch: launch.start_ns).symbol
        return round(
            statistics.median(
                launch.end_ns - launch.start_ns for launch in launches if launch.symbol == known
            )
        )

    # -- what else is reported -----------------------------------------------------------------------

    def _record(self) -> bool:
        return isinstance(self._recorder, recorder.Native) and self._recorder.record("concurrent")

    def _recorded(self) -> Message:
        launches = self._recorder.fresh()
        self._recorder.record("nothing")
        return summed(launches)

    def _failed(self, error: BaseException) -> Message:
        job = self._given_task.job
        place = c.Place(job.path, 1)
        if isinstance(error, arguments.UnfitValueError):
            error = ContractError(str(error))
        if isinstance(error, ContractError):
            failure = c.Failure("runtime error", error.text, error.remedy, place=error.place or place)
            return {"failed": asdict(failure)}
        if isinstance(error, SystemExit | KeyboardInterrupt):
            text = "the program left before it could be checked"
            return {"failed": asdict(c.Failure("runtime error", text, place=place))}
        traceback.print_exception(python_job.users_part(error, job.path))
        path = job.path if self._orders.role == "candidate" else self._reference()
        finished = harness_job.failed_call(replace(job, path=path), error, recorder.Nothing(), place)
        failure = finished.failure or c.Failure("runtime error", type(error).__name__)
        if failure.place and failure.place.file == self._reference():
            failure = replace(failure, place=replace(failure.place, file=self._given_task.reference[0]))
        return {"failed": asdict(replace(failure, message=failure.message[:_WORDS]))}


def written(task: SideTask) -> int:
    """Return a descriptor of a file in memory that holds the task. The caller closes it."""
    descriptor = os.memfd_create("orbit-task")
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.write(json.dumps(asdict(task), ensure_ascii=False).encode("utf-8", "surrogatepass"))
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def summed(launches: Iterable[LaunchRecord]) -> Message:
    """Return the report about a call's launches that `verdict.recorded` reads."""
    launches = sorted(launches, key=lambda launch: launch.start_ns)
    kernels: dict[str, list[int]] = {}
    for launch in launches:
        kernels.setdefault(launch.symbol[:400], []).append(launch.end_ns - launch.start_ns)
    longest = sorted(kernels.items(), key=lambda kernel: -sum(kernel[1]))[:_SHOWN]
    return {
        "kernels": [{"name": name, "count": len(each), "ns": sum(each)} for name, each in longest],
        "busy": launch_records.busy_ns(launches),
        "streams": len({launch.stream for launch in launches}),
    }


def _too_large(sizes: list[int], room: int) -> str:
    """Return why the arguments of a call are refused before they are drawn. Return "" if they are not."""
    if sum(sizes) <= room:
        return ""
    largest = sorted(sizes, reverse=True)
    shown = " + ".join(f"{size / 2**30:.1f}" for size in largest[:_SUMMANDS])
    more = f" + {len(largest) - _SUMMANDS} smaller" if len(largest) > _SUMMANDS else ""
    of = f" ({shown}{more})" if len(largest) > 1 else ""
    return f"the arguments of a call take {sum(sizes) / 2**30:.1f} GiB{of}, and there is room for {room / 2**30:.1f} GiB"


def _wide(torch: Any, value: Any, noise: float) -> Any:
    """Return a value in double precision. With `noise` each number is changed by about this share of itself and of
    the usual size. It does not become negative if none is.
    """
    if isinstance(value, torch.Tensor):
        if not value.is_floating_point():
            return value.clone()
        wide = value.double()
        if not noise or not wide.numel():
            return wide
        more = torch.randn_like(wide) * noise * (wide.abs() + (float(wide.square().mean().sqrt()) or 1.0))
        return wide + (more.abs() if bool((wide >= 0).all()) else more)
    if isinstance(value, list | tuple):
        return [_wide(torch, item, noise) for item in value]  # pyright: ignore[reportUnknownVariableType]
    return value


def run(orders: Orders, channel: Channel, page: mmap.mmap, torch: Any) -> None:
    """Run a side in a forked process; does not return."""
    status = 1
    try:
        Side(orders, channel, page, torch).serve()
    except ChannelLostError:
        status = 0  # the judge has gone
    except BaseException as error:  # noqa: BLE001 - said on the standard error, and by this process's end
        print(f"orbit: a side failed: {type(error).__name__}: {error}", file=sys.stderr)
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(status)  # what is to be done at an exit is the judge's, which was forked with it
