"""A CUDA launch's bytes in, a launch spec's text out; and how long its arrays are, with a kernel of Python's in place of the GPU's."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from orbit_remote.child.capture import (
    capturing,
    cuda_arguments,
    cuda_capturing,
    cuda_extents,
    cuda_variables,
    values,
)
from orbit_remote.child.capture.cuda_spec_text import CudaForm, CudaSpecText
from orbit_remote.child.capture.launch_watch import Block, Copies, Form, NotCapturedError, WatchedLaunch
from orbit_remote.child.capture.layouts import layout
from orbit_remote.child.capture.values import TensorRecipe
from orbit_remote.child.debug_job import InterpreterMemory
from orbit_remote.child.spec.launches import BoundLaunch
from orbit_remote.common import codec, limits
from orbit_remote.common import messages as c
from orbit_remote.common.requests import Driver, DriverStart, Job, KernelDefinition, SpecStart
from orbit_remote.recording.taken_launch import TakenLaunch, TakenRange
from orbit_remote.spec import launch_spec, stored_tensors
from orbit_remote.spec.comment_scanner import SpecTarget
from orbit_remote.spec.interpreter import SpecScope, evaluate
from orbit_remote.spec.signature import Signature
from orbit_remote.spec.syntax_tree import Assignment, SpecLaunch
from orbit_remote.spec.values import Tensor, Value, World
from orbit_remote.worker.actions import capture_action
from tests.later import Later

if TYPE_CHECKING:
    import torch
else:
    torch = Later("torch")

A, B, C = 0x7F0000000000, 0x7F0000100000, 0x7F0000200000
"""Where arrays begin."""


def header(signature: str) -> Signature:
    text = f"{signature} {{ }}"
    return launch_spec.check(
        text, SpecTarget("k", "cuda", 0, 0, 0, text.index(" k(") + 2)
    ).signature or Signature("cuda", "k", ())


def launch(
    arguments: list[bytes],
    ranges: dict[int, int],
    *,
    grid: tuple[int, int, int] = (4, 1, 1),
    block: tuple[int, int, int] = (256, 1, 1),
) -> TakenLaunch:
    """`ranges` are the bytes of the allocations that begin at an address."""
    known = tuple(TakenRange(base, base, size, "device", changed=True) for base, size in ranges.items())
    places: list[tuple[int, int]] = []
    pointers: list[tuple[int, int, int]] = []
    for number, data in enumerate(arguments):
        places.append((sum(map(len, arguments[:number])), len(data)))
        for inner in range(0, len(data) - 7, 8):
            address = int.from_bytes(data[inner : inner + 8], "little")
            pointers += [
                (number, inner, at) for at, each in enumerate(known) if each.begin <= address < each.end
            ]
    return TakenLaunch(
        "/nowhere", "k", 1, grid, block, 0, cooperative=False, cluster=None, parameters=tuple(places), arguments=b"".join(arguments),
        pointers=tuple(pointers), ranges=known, variables={},
    )  # fmt: skip


def pointer(address: int) -> bytes:
    return address.to_bytes(8, "little")


def text_of(signature: str, taken: TakenLaunch) -> str:
    """The launch spec with arrays of random numbers."""
    parameters = cuda_arguments.signature_of(header(signature), "").parameters
    arguments = cuda_arguments.read(taken, parameters)
    kernel = type("Kernel", (), {"arg_names": [each.name for each in parameters], "params": ()})
    launched = WatchedLaunch(kernel, taken.grid, None, dict(arguments.values), {}, (), 1, None)
    tensors = {
        name: TensorRecipe("random", "randn({})", form.dtype, layout(name, form))
        for name, form in launched.forms.items()
    }
    form = CudaForm("k", taken.block, taken.shared, taken.cluster, taken.cooperative, parameters)
    statements = CudaSpecText(launched, tensors, {}, form).statements()
    spec = "".join(f"// orbit: {each}\n" for each in statements)
    text = f"{spec}{signature} {{ }}"
    number = spec.count("\n")
    checked = launch_spec.check(
        text, SpecTarget("k", "cuda", number, number, number, signature.index(" k(") + 2)
    )
    assert [fault.message for fault in checked.faults if fault.severity == "error"] == []
    return "; ".join(statements)


def test_sizes_have_the_names_of_parameters_and_the_grid_covers_them() -> None:
    taken = launch(
        [struct.pack("<i", 1000), struct.pack("<f", 0.1), pointer(A), pointer(B)], {A: 4000, B: 4000}
    )
    assert text_of("__global__ void k(int n, float a, const float* x, float* y)", taken) == (
        "n = 1000; x = randn(n); y = randn(n); launch k<<<(n + 255) / 256, 256>>>(n, 0.1f, x, y)"
    )


def test_a_size_may_be_a_product_and_the_grid_has_two_dimensions() -> None:
    numbers = [struct.pack("<i", each) for each in (300, 500)]
    taken = launch([pointer(A), *numbers], {A: 600000}, grid=(16, 38, 1), block=(32, 8, 1))
    assert text_of("__global__ void k(float* out, int rows, int cols)", taken) == (
        "rows = 300; cols = 500; out = randn(rows * cols); "
        "launch k<<<dim3((cols + 31) / 32, (rows + 7) / 8), dim3(32, 8)>>>(out, rows, cols)"
    )


def test_numbers_are_written_in_the_type_of_their_parameter() -> None:
    half, brain = struct.pack("<e", 0.333251953125), b"\x80\x3f"
    numbers = [
        struct.pack("<d", 0.1),
        half,
        brain,
        b"\1",
        struct.pack("<Q", 1 << 63),
        struct.pack("<q", -5),
        struct.pack("<f", float("-inf")),
    ]
    taken = launch([*numbers, pointer(A)], {A: 40})
    signature = "__global__ void k(double d, __half h, __nv_bfloat16 b, bool t, unsigned long u, long i, float f, float* x)"
    assert text_of(signature, taken).endswith(
        "(0.1, 0.3333, 1.0, true, 9223372036854775808ull, -5, -INFINITY, x)"
    )


def test_a_size_beyond_int_is_no_shift_and_no_product() -> None:
    numbers = [struct.pack("<q", 1 << 32), struct.pack("<i", 1 << 16)]
    taken = launch([pointer(A), *numbers], {A: 1 << 34})
    assert text_of("__global__ void k(float* x, long n, int m)", taken) == (
        "n = 4294967296; x = randn(n); launch k<<<4, 256>>>(x, n, 65536)"
    )


def test_an_array_ends_where_the_next_one_of_its_allocation_begins() -> None:
    taken = launch([pointer(A), pointer(A + 400), pointer(0)], {A: 1000})
    values = cuda_arguments.read(
        taken, header("__global__ void k(float* x, double* y, int* z)").parameters
    ).values
    assert values == {
        "x": Form("float32", (100,), (1,), A),
        "y": Form("float64", (75,), (1,), A + 400),
        "z": None,
    }


def test_arrays_of_vectors_are_of_their_elements_and_void_is_bytes() -> None:
    taken = launch([pointer(A), pointer(B)], {A: 64, B: 10})
    values = cuda_arguments.read(taken, header("__global__ void k(float4* x, void* y)").parameters).values
    assert [values[name].shape for name in "xy"] == [(16,), (10,)]  # type: ignore[union-attr]


def test_a_parameter_whose_name_is_a_function_of_launch_specs_gets_another() -> None:
    taken = launch([pointer(A), pointer(B)], {A: 40, B: 40})
    assert text_of("__global__ void k(float* sum, const float*)", taken).endswith(
        "launch k<<<4, 256>>>(sum_, p1)"
    )


@pytest.mark.parametrize(
    ("signature", "arguments", "why"),
    [
        (
            "__global__ void k(Params p, int n)",
            [pointer(A) * 2, b"\0" * 4],
            "p is a struct that has pointers in it",
        ),
        ("__global__ void k(Params p)", [b"\0" * 12], "'p' is a Params by value"),
        ("__global__ void k(unsigned long at)", [pointer(A + 8)], "at is an address of memory"),
        ("__global__ void k(float* x)", [pointer(C)], "x points to memory that the driver does not know"),
        (
            "__global__ void k(float* x, int n)",
            [pointer(A)],
            "launched with 1 arguments, and its text has 2 parameters",
        ),
        ("__global__ void k(float** x)", [pointer(A)], "'x' points to pointers"),
    ],
)
def test_what_a_launch_spec_cannot_pass_is_refused_in_a_sentence(
    signature: str, arguments: list[bytes], why: str
) -> None:
    with pytest.raises(NotCapturedError, match=why.replace("(", r"\(")):
        cuda_arguments.read(
            launch(arguments, {A: 64}), cuda_arguments.signature_of(header(signature), "").parameters
        )


@pytest.mark.parametrize(
    ("symbol", "templates", "types"),
    [
        ("_Z5saxpyifPKfPf", "", "int, float, float const*, float*"),
        ("_Z5tiledILi32EfLb1EEvPKT0_i", "<32, float, true>", "float const*, int"),
        ("_ZN2ns1kI6__halfEEvPT_j", "<__half>", "__half*, unsigned int"),
        ("saxpy", "", ""),
    ],
)
def test_an_instance_is_known_by_its_mangled_name(symbol: str, templates: str, types: str) -> None:
    assert cuda_arguments.instance(symbol) == (templates, types)


# -- lengths, by launching ----------------------------------------------------------------------------


class OnCpu:
    """A kernel of Python's; its arrays are tensors on the CPU."""

    params = ()

    def __init__(self, names: list[str], body: Callable[..., None]) -> None:
        self.arg_names = names
        self._body = body

    def run(self, *, grid: Any, warmup: bool, **given: Any) -> None:
        del grid, warmup
        self._body(**given)


def lengths(body: Callable[..., None], **arguments: Any) -> dict[str, int]:
    """How long arrays of 4,096 floats are found to be."""
    tensors = {name: each for name, each in arguments.items() if not isinstance(each, int)}
    places = {name: A + at * 0x10000 for at, name in enumerate(tensors)}
    blocks = tuple(Block(places[name], each.view(torch.uint8)) for name, each in tensors.items())
    kinds = {name: str(each.dtype).removeprefix("torch.") for name, each in tensors.items()}
    forms = {name: Form(kinds[name], tuple(each.shape), (1,), places[name]) for name, each in tensors.items()}
    taken = WatchedLaunch(
        OnCpu(list(arguments), body), (4, 1, 1), None, arguments | forms, {}, blocks, 1, torch.device("cpu")
    )
    after = Copies(torch, taken)
    after.launch()
    bounded, _ = cuda_extents.bounded(torch, taken, (256, 1, 1), after, lambda: None)
    return {name: form.shape[0] for name, form in bounded.forms.items()}


def test_an_array_is_as_long_as_the_results_depend_on_it() -> None:
    def rows(x: Any, w: Any, out: Any, n: int, m: int) -> None:
        out[:n] = (x[: n * m].reshape(n, m) * w[:m]).sum(1)

    floats = [torch.randn(4096) for _ in range(3)]
    assert lengths(rows, x=floats[0], w=floats[1], out=floats[2], n=30, m=50) == {
        "x": 1500,
        "w": 50,
        "out": 30,
    }


def test_a_maximum_does_not_hide_what_is_read_behind() -> None:
    def maximum(x: Any, out: Any, n: int) -> None:
        out[0] = x[: 2 * n][~x[: 2 * n].isnan()].max()

    assert lengths(maximum, x=torch.randn(4096), out=torch.zeros(1), n=100)["x"] == 200


def test_indices_stay_indices() -> None:
    def gather(table: Any, ids: Any, out: Any, n: int) -> None:
        out[:n] = table[ids.long()][:n]  # an index beyond the table fails

    found = lengths(
        gather,
        table=torch.randn(64),
        ids=torch.randint(0, 64, (4096,), dtype=torch.int32),
        out=torch.zeros(4096),
        n=500,
    )
    assert (found["ids"], found["out"]) == (500, 500)


# -- the whole way, with a kernel of Python's ----------------------------------------------------------


class OnCpuReady:
    """A launch whose arguments are known."""

    def __init__(self, launch: Callable[[], None]) -> None:
        self.launch = launch


class PythonKernels:
    """A compiled file whose one kernel is a function of Python's on tensors of the CPU."""

    def __init__(self, signature: str, body: Callable[..., None], variables: list[str]) -> None:
        self._header = header(signature)
        self._body = body
        self._variables = variables
        self.set: dict[str, Any] = {}

    def signature(self, launch: SpecLaunch, values: Mapping[str, Value]) -> Signature:
        del launch, values
        return self._header

    def bind(self, launch: SpecLaunch, values: Mapping[str, Value], world: World) -> BoundLaunch:
        given = [evaluate(node, world, SpecScope(values)) for node in launch.arguments]
        pairs = list(zip(self._header.parameters, given, strict=True))

        def ready(memory: Callable[[Tensor], Any]) -> Any:
            passed = [memory(each) if isinstance(each, Tensor) else each.value for each in given if each]  # type: ignore[union-attr]

            return OnCpuReady(partial(self._body, self.set, *passed))

        tensors = tuple((each, parameter.writable) for parameter, each in pairs if isinstance(each, Tensor))
        return BoundLaunch(launch.span, tensors, ready)

    def set_symbol(self, assignment: Assignment, values: Mapping[str, Value], world: World) -> None:
        value = evaluate(assignment.value, world, SpecScope(values))
        assert isinstance(value, Tensor)
        self.set[assignment.name.name] = value.data

    def tunes(self, launch: SpecLaunch) -> bool:
        del launch
        return False

    def results(self, reference: Any, values: Any, world: Any) -> tuple[Any, ...]:
        raise NotImplementedError

    def variables(self) -> list[str]:
        return self._variables


def captured(
    folder: Path,
    source: str,
    symbol: str,
    body: Callable[..., None],
    *arguments: Any,
    variables: dict[str, Any] | None = None,
) -> c.Captured:
    """What is made of a launch in a program: `arguments` are bytes and tensors, each of an allocation; `source` ends with the kernel."""
    known = variables or {}
    places = {at: A + at * 0x1000000 for at, each in enumerate(arguments) if not isinstance(each, bytes)}
    ranges = {
        places[at]: each.numel() * each.element_size() for at, each in enumerate(arguments) if at in places
    }
    launched = launch(
        [each if isinstance(each, bytes) else pointer(places[at]) for at, each in enumerate(arguments)],
        ranges,
    )
    tensors = [each for each in arguments if not isinstance(each, bytes)]
    before = [each.clone() for each in tensors]
    unpacked = [struct.unpack("<i", each)[0] if isinstance(each, bytes) else each for each in arguments]
    body(dict(known), *unpacked)
    for at, (first, second) in enumerate(zip(before, tensors, strict=True)):
        (folder / f"before-{at}").write_bytes(first.numpy().tobytes())
        (folder / f"after-{at}").write_bytes(second.numpy().tobytes())
    more = tuple(
        TakenRange(C, C, each.numel() * each.element_size(), "variable", changed=False)
        for each in known.values()
    )
    for at, each in enumerate(known.values(), len(tensors)):
        (folder / f"before-{at}").write_bytes(each.numpy().tobytes())
    names = {name: at for at, name in enumerate(known, len(tensors))}
    launched = replace(
        launched, folder=str(folder), symbol=symbol, ranges=(*launched.ranges, *more), variables=names
    )
    line = source.count("\n")
    definition = KernelDefinition(
        "k", "k", line, line, line, source.rindex(" k(") + 2 - source.rindex("\n") - 1 if line else 0
    )
    job = Job(
        "r",
        "run",
        "cuda",
        "/project/k.cu",
        source,
        tool_kernel=definition,
        start=DriverStart(Driver("program", "k.cu")),
    )
    text, moved = capturing.above(job, capture_action.first_statements(job, launched))
    job = replace(job, text=text, tool_kernel=None, start=SpecStart(moved))
    checked = launch_spec.check(text, launch_spec.target_of(moved, "cuda"))
    assert [fault.message for fault in checked.faults] == []
    kernels = PythonKernels(source[source.rindex("\n") + 1 :].removesuffix(" { }"), body, list(known))
    return capturing.without_failing(
        job,
        lambda: cuda_capturing.of_launch(torch, job, kernels, checked, InterpreterMemory(torch), launched),
    )


def test_a_launch_becomes_a_launch_spec_with_what_the_kernel_wrote(tmp_path: Path) -> None:
    def saxpy(_: Any, n: int, x: Any, y: Any) -> None:
        y[:n] += 2 * x[:n]

    source = "#include <cstdio>\n__global__ void k(int n, const float* x, float* y) { }"
    x, y = torch.randn(1000), torch.randn(1000)
    made = captured(tmp_path, source, "_Z1kiPKfPf", saxpy, struct.pack("<i", 1000), x, y)
    assert (made.why, made.random, made.kept) == ("", ("x", "y"), ())
    assert made.statements == (
        "n = 1000", "x = randn(n)", "y = randn(n)", "launch k<<<(n + 255) / 256, 256>>>(n, x, y)",
        'expect y == load("k.orbit.safetensors", "k.y") as captured',
    )  # fmt: skip
    stored = stored_tensors.of_bytes(codec.unpacked(made.data, limits.STORED))
    assert stored.tensor("k.y").shape == (1000,)


def test_a_kernel_that_reads_a_variable_has_it_in_its_launch_spec(tmp_path: Path) -> None:
    def scaled(variables: dict[str, Any], x: Any, n: int) -> None:
        x[:n] = torch.arange(n) * variables.get("coef", torch.zeros(2))[1]

    source = "__constant__ float coef[2];\n__global__ void k(float* x, int n) { }"
    known = {"coef": torch.tensor([0.5, 3.0])}
    made = captured(
        tmp_path, source, "_Z1kPfi", scaled, torch.zeros(300), struct.pack("<i", 300), variables=known
    )
    assert (made.why, made.statements[:3]) == (
        "", ("symbol coef = tensor({0.5, 3}, dtype=float32)", "n = 300", "x = empty(n)")
    )  # fmt: skip


def test_a_kernel_that_depends_on_something_else_is_refused(tmp_path: Path) -> None:
    launches = 0

    def counting(_: Any, x: Any) -> None:
        nonlocal launches
        launches += 1
        x[0] = launches

    made = captured(tmp_path, "\n__global__ void k(float* x) { }", "_Z1kPf", counting, torch.zeros(4))
    assert made.why.startswith(
        "launched again by itself it writes something else to x: it depends on more than its arguments"
    )


def test_memory_of_a_struct_that_holds_addresses_is_refused(tmp_path: Path) -> None:
    def linked(_: Any, nodes: Any, out: Any) -> None:
        out[0] = nodes.sum()

    nodes = torch.tensor([0, A + 16, 0], dtype=torch.int64).view(torch.uint8)
    made = captured(
        tmp_path,
        "\n__global__ void k(const Node* nodes, float* out) { }",
        "_Z1kPK4NodePf",
        linked,
        nodes,
        torch.zeros(1),
    )
    assert made.why == "nodes holds addresses of memory, which a launch spec cannot describe"


# -- variables ----------------------------------------------------------------------------------------


def test_variables_of_the_file_are_set_to_what_they_were(tmp_path: Path) -> None:
    text = "__constant__ float coef[3];\nstatic __device__ int total = 0;\n__constant__ double table[40];\n__device__ float* where;\n"
    content = [
        struct.pack("<3f", 0.25, 0.5, 0.25),
        struct.pack("<i", 7),
        struct.pack("<40d", *range(40)),
        bytes(8),
    ]
    ranges = tuple(TakenRange(A, A, len(each), "variable", changed=False) for each in content)
    for at, each in enumerate(content):
        (tmp_path / f"before-{at}").write_bytes(each)
    names = {"coef": 0, "_ZL5total": 1, "table": 2, "unused": 3}
    taken = TakenLaunch(
        str(tmp_path), "k", 1, (1, 1, 1), (1, 1, 1), 0, cooperative=False, cluster=None, parameters=(), arguments=b"", pointers=(),
        ranges=ranges, variables=names,
    )  # fmt: skip
    found = cuda_variables.of_launch(
        torch, text, taken, ["coef", "_ZL5total", "table"], "k.orbit.safetensors", "k"
    )
    assert found.statements == (
        "symbol coef = tensor({0.25, 0.5, 0.25}, dtype=float32)",
        "symbol total = full((1,), 7, dtype=int32)",
        'symbol table = load("k.orbit.safetensors", "k.table", 40, dtype=float64)',
    )
    assert [key for key, _ in found.stored] == ["k.table"]


def test_values_of_unsigned_integers_are_patterns_too() -> None:
    tensor = torch.full((9,), 3_000_000_000, dtype=torch.int64).to(torch.uint32)
    made = values.pattern(torch, tensor, "uint32", layout("x", Form("uint32", (9,), (1,), A)))
    assert made
    assert made.text(str) == "full((9,), 3000000000, dtype=uint32)"
