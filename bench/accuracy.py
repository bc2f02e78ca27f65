"""Whether the times of launch specs are true: against ncu, and click after click.

    python -P bench/accuracy.py [--only NAME …] [--clicks 10] [--out FILE]

Sixteen kernels of examples/, most of 100 µs and more, each clicked ten times in a row on a warm worker: the median over the
clicks of each click's median stands against ncu's `gpu__time_duration.sum`, cold L2 against `--cache-control all`, warm against
`none`, clocks left alone by both.

ncu cannot look into the worker's child, where CUPTI records already. It gets a process of its own instead
(`--drive`, below): the same spec evaluated by the same interpreter, so that inputs, grid and arguments are the
same; the kernel compiled with the same flags and launched through cuda-core, or by Triton as it would be anyway; what the
kernel may write and does read is put back before every launch. Only launches between start and stop of
the profiler count, of a spec with several launches the first of each round, as the run's first.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import ctypes
import importlib.util
import io
import math
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from spec_job import job, kernel_of, run

from orbit_remote.common import measure, symbols
from orbit_remote.common import messages as c
from orbit_remote.spec import launch_spec
from orbit_remote.spec.comment_scanner import SpecTarget
from orbit_remote.spec.interpreter import SpecScope, evaluate, grid
from orbit_remote.spec.signature import Parameter, Signature
from orbit_remote.spec.syntax_tree import SpecLaunch
from orbit_remote.spec.values import Dim3, Scalar, Tensor, TensorMap, Value, World

EXAMPLES = Path(__file__).parent.parent / "examples"
KERNELS = (
    ("elementwise.cu", "saxpy"), ("elementwise.cu", "gelu_bf16"), ("transpose.cu", "transpose"), ("reduction.cu", "reduce_sum"),
    ("scan.cu", "inclusive_scan"), ("softmax.cu", "softmax"), ("layer_norm.cu", "layer_norm"), ("histogram.cu", "histogram"),
    ("matmul.cu", "matmul"), ("tensor_core_matmul.cu", "wmma_matmul"), ("stencil.cu", "heat"), ("bitonic_sort.cu", "bitonic_sort"),
    ("online_softmax.py", "online_softmax"), ("fp8_quantize.py", "quantize"), ("matmul_descriptor.py", "matmul_descriptor"),
    ("flash_attention.py", "attention"),
)  # fmt: skip
WARM_UP = 5
ROUNDS = 21
TIME = "gpu__time_duration.sum"
CLOCK = "gpc__cycles_elapsed.avg.per_second"
WITHIN = 0.03
APART = 0.005


# -- the launches that ncu looks at ---------------------------------------------------------------------


class Driven:
    """A spec's first point on the GPU: its tensors, and its launches as functions."""

    def __init__(self, path: Path, name: str) -> None:
        import torch

        self.torch = torch
        self.path, self.name = path, name
        text = path.read_text(encoding="utf-8")
        kernel = kernel_of(text, path, name)
        spot = kernel.name_span
        language = "cuda" if path.suffix == ".cu" else "triton"
        target = SpecTarget(name, language, kernel.whole.line, kernel.line, spot.line, spot.end_column)
        checked = launch_spec.check(text, target)
        assert checked.signature is not None
        assert not checked.faults, checked.faults
        self.header: Signature = checked.signature
        self.world = World(language, torch=torch, device="cuda")
        (first, *_), _ = launch_spec.points(checked.spec)
        self.values, faults = launch_spec.compute(checked.spec, self.header, first, self.world)
        assert not faults, faults
        self.scope = SpecScope(self.values)
        make = self._cuda if language == "cuda" else self._triton
        self.launches: list[Callable[[], object]] = [make(launch) for launch in checked.spec.launches]
        written = {
            argument.name
            for launch in checked.spec.launches
            for parameter, argument in zip(self.header.parameters, launch.arguments, strict=False)
            if parameter.writable and hasattr(argument, "name")
        }
        self.restored = [
            (value.data, value.data.clone())
            for name, value in self.values.items()
            if name in written and isinstance(value, Tensor) and not value.unset and language == "cuda"
        ]

    def round(self) -> None:
        for data, before in self.restored:
            data.copy_(before)
        for launch in self.launches:
            launch()

    def _value(self, node: Any) -> Value:
        return evaluate(node, self.world, self.scope)

    def _cuda(self, item: SpecLaunch) -> Callable[[], object]:
        from cuda.bindings import driver
        from cuda.core import Device, LaunchConfig, ObjectCode, launch

        device = Device()
        device.set_current()
        major, minor = device.compute_capability
        cubin, symbol = self._compiled(item, f"sm_{major}{minor}{'a' if major >= 9 else ''}")
        kernel = ObjectCode.from_cubin(cubin).get_kernel(symbol)
        shared = self._value(item.shared) if item.shared else None
        size = int(shared.value) if isinstance(shared, Scalar) else 0
        if size > 48 << 10:
            attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            (error,) = driver.cuKernelSetAttribute(attribute, size, kernel.handle, device.device_id)
            assert not error, error
        config = LaunchConfig(
            grid=_triple(self._value(item.grid)), block=_triple(self._value(item.block)), shmem_size=size
        )
        pairs = zip(self.header.parameters, item.arguments, strict=True)
        arguments = [_argument(parameter, self._value(node)) for parameter, node in pairs]
        return lambda: launch(device.default_stream, config, kernel, *arguments)

    def _compiled(self, launch: SpecLaunch, architecture: str) -> tuple[bytes, str]:
        templates = f"<{', '.join(each.text for each in launch.templates)}>" if launch.templates else ""
        instance = f"\nauto* orbit_instance = &{self.name}{templates};\n" if templates else ""
        with tempfile.TemporaryDirectory() as scratch:
            source, cubin = Path(scratch) / "kernel.cu", Path(scratch) / "kernel.cubin"
            source.write_text(self.path.read_text(encoding="utf-8") + instance, encoding="utf-8")
            gencode = f"arch={architecture.replace('sm', 'compute')},code={architecture}"
            subprocess.run(
                ["nvcc", "-O3", "-lineinfo", "-gencode", gencode, "-cubin", "-o", str(cubin), str(source)],
                check=True, cwd=self.path.parent,
            )  # fmt: skip
            code = cubin.read_bytes()
            names = [name.decode() for name in re.findall(rb"\0\.text\.(\w+)\0", code)]
            symbol = next(name for name in names if symbols.base_name(name) == self.name)
            return code, symbol

    def _triton(self, launch: SpecLaunch) -> Callable[[], object]:
        made = importlib.util.spec_from_file_location(self.path.stem, self.path)
        assert made
        assert made.loader
        module = importlib.util.module_from_spec(made)
        made.loader.exec_module(module)
        keywords = {each.name: self._value(each.value) for each in launch.keywords}
        positional = [self._value(node) for node in launch.arguments]
        assert launch.grid is not None
        size = _python(grid(launch.grid, self.world, self.scope, keywords, tuned=False))
        given = [_python(value) for value in positional]
        named = {name: _python(value) for name, value in keywords.items()}
        kernel = getattr(module, self.name)[size]
        return lambda: kernel(*given, **named)


def _triple(value: Value) -> tuple[int, ...]:
    if isinstance(value, Dim3):
        return value.x, value.y, value.z
    assert isinstance(value, Scalar)
    return (int(value.value),)


_C = {
    "int32": ctypes.c_int32, "uint32": ctypes.c_uint32, "int64": ctypes.c_int64, "uint64": ctypes.c_uint64,
    "float32": ctypes.c_float, "float64": ctypes.c_double, "bool": ctypes.c_bool,
}  # fmt: skip


def _argument(parameter: Parameter, value: Value) -> Any:
    if isinstance(value, Tensor):
        return value.data.data_ptr()
    assert isinstance(value, Scalar)
    return _C[parameter.element](value.value)


def _python(value: Value) -> Any:
    match value:
        case Scalar():
            return value.value
        case Tensor():
            return value.data
        case TensorMap():
            from triton.tools.tensor_descriptor import TensorDescriptor

            return TensorDescriptor.from_tensor(value.tensor.data, list(value.box))
        case tuple():
            return tuple(_python(item) for item in value)
        case _:
            return value


def drive(chosen: list[tuple[str, str]]) -> None:
    for file, name in chosen:
        driven = Driven(EXAMPLES / file, name)
        for _ in range(WARM_UP):
            driven.round()
        driven.torch.cuda.synchronize()
        driven.torch.cuda.profiler.start()
        for _ in range(ROUNDS):
            driven.round()
        driven.torch.cuda.synchronize()
        driven.torch.cuda.profiler.stop()
        torch = driven.torch
        del driven
        torch.cuda.empty_cache()


@dataclass(frozen=True, slots=True)
class Seen:
    """Medians over the first launch of every round: its time in ns, and the clock it ran at in MHz."""

    time: float
    clock: float


def ncu(chosen: list[tuple[str, str]], cache: str) -> dict[str, Seen]:
    """By kernel."""
    names = "|".join(name for _, name in chosen)
    done = subprocess.run(
        ["ncu", "--cache-control", cache, "--clock-control", "none", "--profile-from-start", "off",
         "-k", f"regex:^({names})$", "--metrics", f"{TIME},{CLOCK}", "--csv", "--page", "raw",
         "--print-units", "base", sys.executable, "-P", __file__, "--drive", "--only", *(name for _, name in chosen)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if '"ID"' not in done.stdout:
        raise SystemExit(f"ncu gave no table (exit {done.returncode}): {(done.stdout + done.stderr)[-2000:]}")
    table = list(csv.DictReader(io.StringIO(done.stdout[done.stdout.index('"ID"') :])))
    seens: dict[str, Seen] = {}
    for _, name in chosen:
        # the first row is the units
        rows = [row for row in table[1:] if row.get(TIME) and _base(row["Kernel Name"]) == name]
        assert rows, f"ncu saw no launch of {name}: {sorted({row['Kernel Name'] for row in table[1:]})}"
        assert len(rows) % ROUNDS == 0, f"{len(rows)} launches of {name} in {ROUNDS} rounds"
        firsts = rows[:: len(rows) // ROUNDS]
        time, clock = (
            statistics.median(float(row[what].replace(",", "")) for row in firsts) for what in (TIME, CLOCK)
        )
        seens[name] = Seen(time, clock / 1e6)
    return seens


def _base(kernel: str) -> str:
    """`void ns::tiled<(int)32>(float *)` as ncu writes it -> `tiled`."""
    match = re.match(r"(?:void )?([\w:]+)", kernel)
    return match[1].rpartition("::")[2] if match else kernel


# -- ours, and the table ---------------------------------------------------------------------------------


async def clicks(chosen: list[tuple[str, str]], count: int) -> dict[str, list[c.Launches]]:
    """The first launch of each click's first point, by kernel."""
    from orbit_lsp.runners.local import LocalOptions, LocalRunner

    runner = LocalRunner(LocalOptions(python=sys.executable))
    launcheseses: dict[str, list[c.Launches]] = {}
    try:
        for file, name in chosen:
            for _ in range(count + 1):
                ended = await run(runner, job(EXAMPLES / file, name))
                if ended.outcome != "ok" or not ended.launches:
                    raise SystemExit(f"{name}: {ended.outcome}: {ended.failure}")
                launcheseses.setdefault(name, []).append(ended.launches[0])
            print(f"{name}: {launcheseses[name][-1].timing.median / 1e3:.1f} µs", file=sys.stderr, flush=True)
    finally:
        await runner.close()
    return {
        name: every[1:] for name, every in launcheseses.items()
    }  # the first click builds, on a GPU that was idle


def report(chosen: list[tuple[str, str]], count: int) -> str:
    ours = asyncio.run(clicks(chosen, count))
    theirs = {cache: ncu(chosen, cache) for cache in ("all", "none")}
    rows = [
        "| kernel | cold: ours | ncu | off | warm: ours | ncu | off | SM clock: ours | ncu | clicks: spread | range |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    beyond: list[str] = []
    for _, name in chosen:
        cold = [our.timing.median for our in ours[name]]
        warm = [our.warm.median for our in ours[name] if our.warm]
        clock = statistics.median(our.timing.sm_clock_mhz or math.nan for our in ours[name])
        cells = [name]
        for what, times, seen in (("cold", cold, theirs["all"][name]), ("warm", warm, theirs["none"][name])):
            middle = statistics.median(times) if times else math.nan
            off = middle / seen.time - 1
            cells += [f"{middle / 1e3:.1f} µs", f"{seen.time / 1e3:.1f} µs", f"{100 * off:+.1f}%"]
            if abs(off) > WITHIN:
                cycles = middle * clock / (seen.time * seen.clock) - 1
                beyond.append(f"{name} {what} {100 * off:+.1f} % in time, {100 * cycles:+.1f} % in cycles")
        between = measure.timing([round(item) for item in cold], "")
        apart = (max(cold) - min(cold)) / between.median
        spread = between.spread or math.nan
        cells += [
            f"{clock:.0f} MHz",
            f"{theirs['all'][name].clock:.0f} MHz",
            f"{100 * spread:.2f}%",
            f"{100 * apart:.2f}%",
        ]
        if spread > APART or apart > APART:
            each = ", ".join(
                f"{our.timing.median / 1e3:.1f} ({our.timing.sm_clock_mhz or 0:.0f})" for our in ours[name]
            )
            beyond.append(f"{name}'s clicks, in µs (MHz): {each}")
        rows.append(f"| {' | '.join(cells)} |")
    about = (
        f"Ours: the median over {count} clicks of each click's median. ncu: `gpu__time_duration.sum`, median of {ROUNDS}, "
        "`--clock-control none`, `--cache-control all` (cold) and `none` (warm). SM clocks: while the kernel ran with a cold "
        f"L2, of ncu `{CLOCK}`. Of the clicks' cold medians: the spread, as everywhere half the distance of their 20 % and "
        "80 % quantiles over their median, and highest less lowest. Targets: within 3 %, spread within 0.5 %."
    )
    listed = [f"- {name}" for name in beyond]
    head = f"## Launch specs against ncu, {len(chosen)} kernels"
    return "\n".join(
        [head, "", about, "", *rows, "", "Beyond 3 %, or a range beyond 0.5 %:", "", *(listed or ["- none"])]
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--drive", action="store_true", help="be the process that ncu looks at")
    parser.add_argument("--only", nargs="+", default=[name for _, name in KERNELS], metavar="NAME")
    parser.add_argument("--clicks", type=int, default=10)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    chosen = [item for item in KERNELS if item[1] in options.only]
    if options.drive:
        drive(chosen)
        return
    text = report(chosen, options.clicks)
    print(text)
    if options.out:
        options.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
