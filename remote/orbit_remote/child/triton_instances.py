"""Finds the instances that Triton compiled in this process, and the instance of each launch."""

from __future__ import annotations

import dataclasses
import gc
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast, get_args

from orbit_remote.common.launch_records import LaunchRecord, LaunchSeries
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.messages import Place, Resources
from orbit_remote.common.python_errors import definition
from orbit_remote.common.requests import Level

_WARP = 32
_COPIES = "torch._inductor.runtime.triton_heuristics"
"""What torch.compile launches kernels with, also its copies of the author's."""


def jit_functions() -> list[Any]:
    """Return every @triton.jit function alive, in the order of their definition.

    They come from the garbage collector. A hook would be lost when the user's code sets its own, and would have to be
    there before the first kernel. Once, after the run, it costs some tens of milliseconds.
    """
    kind = getattr(sys.modules.get("triton.runtime.jit"), "JITFunction", None)
    if kind is None:
        return []
    # by type: `isinstance` asks an object for its class, at which some of torch's warn or load
    functions: list[Any] = [o for o in gc.get_objects() if issubclass(type(o), kind)]
    # torch.compile drops the Python function of those that it makes
    functions = [function for function in functions if function.fn is not None]
    return sorted(functions, key=lambda f: (f.fn.__code__.co_filename, f.fn.__code__.co_firstlineno))


def copied(known: Iterable[Resources], folder: str) -> set[str]:
    """Return the names of the functions in a folder of which torch.compile may have launched copies: they have no
    instance of their own.
    """
    if _COPIES not in sys.modules:
        return set()
    with_instance = {resources.symbol for resources in known}
    of_folder = (f for f in jit_functions() if Path(definition(f)[0]).is_relative_to(folder))
    return {function.fn.__name__ for function in of_folder} - with_instance


def instances() -> list[Resources]:
    known = _instances()
    if _namesakes(known):  # an earlier definition may wait for the garbage collector
        gc.collect()
        known = _instances()
    return known


def unload() -> None:
    """Make Triton load every kernel anew at its next launch. The compiled ones are on the disk."""
    for function in jit_functions():
        getattr(function, "device_caches", {}).clear()


def _instances() -> list[Resources]:
    return [instance(f, compiled) for f in jit_functions() for compiled in _compiled(f)]


def _namesakes(known: Iterable[Resources]) -> bool:
    """Say whether two functions have one name."""
    places: dict[str, set[Place | None]] = {}
    for each in known:
        places.setdefault(each.symbol, set()).add(each.place)
    return any(len(of_name) > 1 for of_name in places.values())


def instance(function: Any, compiled: Any) -> Resources:
    """Return one compiled kernel: a JIT function with its constants and types fixed."""
    file, line, _ = definition(function)
    metadata = compiled.metadata
    local = getattr(compiled, "n_spills", None)
    return Resources(
        symbol=compiled.name,
        name=function.fn.__name__,
        architecture=f"sm_{metadata.target.arch}",
        registers=getattr(compiled, "n_regs", None) or None,
        static_shared=0 if metadata.shared is not None else None,
        dynamic_shared=metadata.shared,
        # Triton calls a quarter of the local memory "spills"; what of it is spilled is not known here
        stack=local * 4 if isinstance(local, int) else None,
        threads=metadata.num_warps * _WARP,
        place=Place(file, line),
        constants=dict(_constants(function, compiled)),
    )


def keep_compiled(folder: Path) -> None:
    """Keep what Triton made of every instance that was compiled here, with comments. Each has a `.json` that says
    which it is, and a file of the same name for each level and for its machine code (`.cubin`).
    """
    seen: set[Any] = set()
    for function in jit_functions():
        for compiled in _compiled(function):
            code = compiled.asm.get("cubin", compiled.asm.get("ptx"))
            if code is None or code in seen:
                continue
            base = f"{len(seen)}-{compiled.name[:64]}"
            seen.add(code)
            for level in (*get_args(Level), "cubin"):
                content = compiled.asm.get(level)  # `[level]` would make Triton disassemble
                if isinstance(content, str):
                    content = content.encode("utf-8", "surrogateescape")
                if isinstance(content, bytes):
                    (folder / f"{base}.{level}").write_bytes(content)
            record = dataclasses.asdict(instance(function, compiled))
            (folder / f"{base}.json").write_text(json.dumps(record), "utf-8")


def tuned() -> list[str]:
    """Return what autotuning chose in this process, a sentence for each kernel."""
    kind = getattr(sys.modules.get("triton.runtime.autotuner"), "Autotuner", None)
    tuners = [] if kind is None else [o for o in gc.get_objects() if issubclass(type(o), kind)]
    trials = [
        (getattr(tuner.base_fn, "__name__", "a kernel"), getattr(tuner, "best_config", None))
        for tuner in tuners
    ]
    return [f"autotuning chose {config} for {name}" for name, config in trials if config is not None]


def _compiled(function: Any) -> Iterator[Any]:
    """Yield the kernels in a function's own cache. Its layout is Triton's and has changed before."""
    for per_device in getattr(function, "device_caches", {}).values():
        kernels: dict[Any, Any] = cast("Any", per_device)[0] if isinstance(per_device, tuple) else per_device
        for compiled in kernels.values():
            yield compiled.result() if hasattr(compiled, "result") else compiled


def _constants(function: Any, compiled: Any) -> Iterator[tuple[str, str]]:
    values: dict[Any, Any] = getattr(compiled.src, "constants", None) or {}
    for parameter in function.params:
        if parameter.is_constexpr and (parameter.num,) in values:
            yield parameter.name, show(values[parameter.num,])
    for option in ("num_warps", "num_stages", "num_ctas", "maxnreg"):
        value = getattr(compiled.metadata, option, None)
        if value is not None and not (option == "num_ctas" and value == 1):
            yield option, str(value)


def show(value: Any) -> str:
    """Return a constant as its author would write it."""
    if hasattr(value, "fn") and hasattr(value.fn, "__name__"):  # a JIT function passed as a constant
        return value.fn.__name__
    return str(value) if type(value).__module__.startswith("triton") else repr(value)


@dataclass(frozen=True, slots=True)
class Matched:
    """Launches by their instance. `not_triton` counts those that are not Triton's: torch's and libraries'. `unclear`
    are remarks on those that may be of one or another function.
    """

    launches: tuple[tuple[LaunchSeries, Resources], ...]
    not_triton: int
    unclear: tuple[str, ...] = ()


def match(series: Iterable[LaunchSeries], known: Sequence[Resources]) -> Matched:
    """Match launches with instances: by name, then by what a record says of an instance: threads, shared memory,
    registers.

    If several instances of a name still fit, only the constants that they share are stated. If they are of different
    functions, nobody knows which was launched.
    """
    by_symbol: dict[str, list[Resources]] = {}
    for resources in known:
        by_symbol.setdefault(resources.symbol, []).append(resources)
    launches: list[tuple[LaunchSeries, Resources]] = []
    not_triton = 0
    unclear: dict[str, None] = {}
    for same in series:
        candidates = by_symbol.get(same.launch.symbol, [])
        if not candidates:
            not_triton += same.count
            continue
        fitting = [c for c in candidates if _fits(c, same.launch)] or candidates
        if len({c.place for c in fitting}) > 1:
            unclear[_unclear(fitting)] = None
        else:
            launches.append((same, _common(fitting)))
    return Matched(tuple(launches), not_triton, tuple(unclear))


def _unclear(candidates: Sequence[Resources]) -> str:
    places = dict.fromkeys(f"{Path(c.place.file).name}:{c.place.line}" for c in candidates if c.place)
    return (
        f"the kernels at {' and '.join(places)} have one name, {candidates[0].name}: which of them was launched is not known. "
        "Give them names of their own"
    )


def _fits(resources: Resources, record: LaunchRecord) -> bool:
    if (
        resources.threads is not None
        and resources.threads != record.block[0] * record.block[1] * record.block[2]
    ):
        return False
    shared = (record.static_shared or 0) + (record.dynamic_shared or 0)
    if None not in (record.dynamic_shared, resources.dynamic_shared) and shared != resources.dynamic_shared:
        return False
    # CUPTI gives registers as allocated, in steps of eight a thread
    pair = resources.registers, record.registers
    return None in pair or -(-(resources.registers or 0) // 8) * 8 == -(-(record.registers or 0) // 8) * 8


def _common(candidates: Sequence[Resources]) -> Resources:
    shared = set(candidates[0].constants.items()).intersection(*(c.constants.items() for c in candidates))
    first = candidates[0]
    return replace(first, constants={k: v for k, v in first.constants.items() if (k, v) in shared})


def toolchain() -> dict[str, str]:
    """Return the versions that made a result."""
    versions = {"python": ".".join(map(str, sys.version_info[:3]))}
    for name in ("torch", "triton"):
        if (version := getattr(sys.modules.get(name), "__version__", None)) is not None:
            versions[name] = str(version)
    cuda = getattr(getattr(sys.modules.get("torch"), "version", None), "cuda", None)
    return versions | ({"cuda": str(cuda)} if cuda else {})
