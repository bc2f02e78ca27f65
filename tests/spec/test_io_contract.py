"""IOContracts as launch specs: what the specs make on the CPU is what the contracts say, bit for bit where they bring data."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from orbit_lsp.api import io_contract
from orbit_lsp.queue.request import RequestRefusedError
from orbit_lsp.specs import spec_cache
from orbit_lsp.state.session import Session
from orbit_remote.spec import launch_spec
from orbit_remote.spec.values import World
from tests.later import Later
from tests.spec.spec_check import checked

if TYPE_CHECKING:
    import torch
else:
    torch = Later("torch")

SOURCES = {
    "cuda": "__global__ void k({parameters}) {{}}\n",
    "triton": "import triton\n\n\n@triton.jit\ndef k({parameters}):\n    pass\n",
}
TYPES = {"float32": "float*", "float16": "__half*", "bfloat16": "__nv_bfloat16*", "int32": "int*", "int64": "long long*", "uint8": "unsigned char*", "bool": "bool*"}  # fmt: skip
NAN = struct.pack("<4I", 0x7FC00001, 0xFF800000, 0x80000000, 0x00000001)
"""NaN with a payload, -inf, -0 and a denormal."""


def made(folder: Path, language: Any, *tensors: dict[str, Any]) -> list[torch.Tensor]:
    """What a kernel with these tensors as its arguments is given."""
    names = [f"t{at}" for at in range(len(tensors))]
    args = [
        {"name": name, "type": "tensor", "role": "inout", "tensor_spec": spec}
        for name, spec in zip(names, tensors, strict=True)
    ]
    contract = io_contract.IOContract.model_validate(
        {"args": args, "launch": {"grid": {"x": 1}, "block": {"x": 32}}}
    )
    types = [TYPES[spec.get("dtype") or "float32"] for spec in tensors]
    parameters = [
        f"{kind} {name}" if language == "cuda" else name for kind, name in zip(types, names, strict=True)
    ]
    spec = io_contract.with_spec(
        SOURCES[language].format(parameters=", ".join(parameters)), language, "", contract
    )
    for name, content in spec.files.items():
        (folder / name).write_text(content)
    read = checked(spec.text, language)
    assert [fault.message for fault in read.faults] == []
    world = World(language, torch=torch, folder=str(folder))
    values, faults = launch_spec.compute(read.spec, read.signature, launch_spec.SpecPoint(), world)
    assert [fault.message for fault in faults] == []
    return [values[name].data for name in names]  # type: ignore[union-attr]


def packed(data: bytes, *, compress: bool = True, **more: Any) -> dict[str, Any]:
    text = base64.b64encode(zlib.compress(data) if compress else data).decode()
    return {"data_b64": text, "compress": "zlib" if compress else "none", **more}


def safetensors(dtype: str, shape: list[int], data: bytes) -> str:
    head = json.dumps({"w": {"dtype": dtype, "shape": shape, "data_offsets": [0, len(data)]}}).encode()
    return base64.b64encode(len(head).to_bytes(8, "little") + head + data).decode()


@pytest.mark.parametrize("language", SOURCES)
def test_data_arrives_bit_for_bit(tmp_path: Path, language: str) -> None:
    floats, halves, flags, brought = made(
        tmp_path,
        language,
        {"shape": [2, 2], "dtype": "float32", "data": packed(NAN, dtype="float32", shape=[2, 2])},
        {"dtype": "bfloat16", "shape": [3], "data": packed(b"\x80\x7f\x01\x00\xc1\xff", compress=False)},
        {"dtype": "bool", "shape": [3], "data": packed(b"\x00\x01\x01")},
        {
            "dtype": "int64",
            "data": {
                "safetensors_b64": safetensors("I64", [2, 1], struct.pack("<2q", -1, 1 << 62)),
                "key": "w",
            },
        },
    )
    assert (floats.shape, bytes(floats.view(torch.uint8).flatten().tolist())) == ((2, 2), NAN)
    assert (halves.dtype, bytes(halves.view(torch.uint8).tolist())) == (
        torch.bfloat16,
        b"\x80\x7f\x01\x00\xc1\xff",
    )
    assert flags.tolist() == [False, True, True]
    assert (brought.shape, brought.flatten().tolist()) == ((2, 1), [-1, 1 << 62])


@pytest.mark.parametrize("language", SOURCES)
def test_every_initialiser_in_several_types(tmp_path: Path, language: str) -> None:
    inits: list[tuple[dict[str, Any], Any]] = [
        ({"kind": "zeros"}, 0), ({"kind": "ones"}, 1), ({"kind": "full", "fill_value": 3}, 3),
        ({"kind": "arange", "start": 5, "step": 2}, [[5 + 2 * (4 * row + column) for column in range(4)] for row in range(3)]),
    ]  # fmt: skip
    for dtype in ("float32", "float16", "int32"):
        specs = [{"shape": [3, 4], "dtype": dtype, "init": init} for init, _ in inits]
        for tensor, (_, wanted) in zip(made(tmp_path, language, *specs), inits, strict=True):
            assert (str(tensor.dtype), tensor.shape) == (f"torch.{dtype}", (3, 4))
            assert tensor.tolist() == (
                wanted if isinstance(wanted, list) else torch.full((3, 4), wanted).tolist()
            )
    normal, uniform = made(
        tmp_path, language, {"shape": [10_000], "init": {"kind": "randn", "mean": 5, "std": 0.5, "seed": 3}},
        {"shape": [10_000], "dtype": "float16", "init": {"kind": "uniform", "low": -1, "high": 3}},
    )  # fmt: skip
    assert float(normal.mean()) == pytest.approx(5, abs=0.05)
    assert float(normal.std()) == pytest.approx(0.5, abs=0.05)
    assert -1 <= float(uniform.min()) < -0.9 < 2.9 < float(uniform.max()) <= 3


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"shape": [3], "data": packed(bytes(8))}, "the data of x has 8 bytes; [3] of float32 has 12"),
        ({"shape": [3], "data": packed(bytes(1 << 20))}, "the data of x has more bytes"),
        ({"shape": [3], "data": {"data_b64": "AAAA", "compress": "zlib"}}, "the data of x is not in zlib's format"),
        ({"shape": [3], "data": {"data_b64": "%"}}, "the data of x is not in base64"),
        ({"shape": [1 << 40], "data": packed(b"")}, "x is larger than 256 MiB, the limit"),
        ({"shape": [4], "data": packed(bytes(12), shape=[3])}, "io.args: x is float32 [4], and its data is float32 [3]"),
        ({"shape": [], "data": packed(bytes(4))}, "io.args: x is float32 [], and its data"),
        ({"shape": [3], "init": {}, "data": packed(bytes(12))}, "io.args: x has both init and data"),
        ({"shape": [3], "dtype": "float2"}, "io.args: x has the element type 'float2'"),
        ({"shape": [0], "data": packed(b"")}, "io.args: x is float32 [0], and its data is float32 [0]; both must be the same, with at least"),
    ],
)  # fmt: skip
def test_data_that_does_not_fit(spec: dict[str, Any], message: str) -> None:
    args = [{"name": "x", "type": "tensor", "tensor_spec": spec}]
    contract = io_contract.IOContract.model_validate({"args": args, "launch": {"grid": {}, "block": {}}})
    with pytest.raises(RequestRefusedError) as why:
        io_contract.with_spec("__global__ void k(float* x) {}\n", "cuda", "k", contract)
    assert str(why.value).startswith(message)


def test_a_file_that_is_gone_or_of_another_size_is_a_fault_at_its_place(tmp_path: Path) -> None:
    (tmp_path / "x.tensor").write_text(base64.b64encode(zlib.compress(bytes(4))).decode())
    for name, message in (
        ("x.tensor", "x.tensor has 4 bytes; the tensor takes 12"),
        ("y.tensor", "y.tensor cannot be read"),
    ):
        text = f'// orbit: x = from_file("{name}", 3)\n// orbit: launch k<<<1, 3>>>(x)\n__global__ void k(float* x) {{}}\n'
        read = checked(text, "cuda")
        _, faults = launch_spec.compute(
            read.spec,
            read.signature,
            launch_spec.SpecPoint(),
            World("cuda", torch=torch, folder=str(tmp_path)),
        )
        assert message in faults[0].message
        assert faults[0].span.line == 0
    read = checked(
        '// orbit: x = from_file("../x", 3)\n// orbit: launch k<<<1, 3>>>(x)\n__global__ void k(float* x) {}\n',
        "cuda",
    )
    assert "the name of a file in the folder of this one" in read.faults[0].message


def tensor(name: str, role: str = "input", **init: Any) -> dict[str, Any]:
    return {
        "name": name,
        "type": "tensor",
        "role": role,
        "tensor_spec": {"shape": [64, 32], "init": init or None},
    }


CONTRACT = {
    "args": [
        {"name": "n", "type": "int", "value": 2048},
        {"name": "a", "type": "float", "value": 2.5},
        tensor("x", kind="uniform", low=-1, high=3, seed=7),
        tensor("y", "inout", kind="full", fill_value=0.5),
        tensor("out", "output"),
    ],
    "launch": {"grid": {"x": 8}, "block": {"x": 256}, "shared_mem_bytes": 1024},
}


@pytest.mark.parametrize(
    ("source", "language", "lines"),
    [
        (
            "\n__global__ void k(int n, float a, const float* x, float* y, float* out) {}\n",
            "cuda",
            [
                "// orbit: x = rand(64, 32) * 4 + (-1)",
                "// orbit: y = ones(64, 32) * 0.5",
                "// orbit: out = empty(64, 32)",
                "// orbit: seed 7",
                "// orbit: launch k<<<dim3(8, 1, 1), dim3(256, 1, 1), 1024>>>(2048, 2.5, x, y, out)",
            ],
        ),
        (
            "import triton\n\n@triton.jit\ndef k(n, a, x, y, out):\n    pass\n",
            "triton",
            [
                "# orbit: x = rand(64, 32) * 4 + (-1)",
                "# orbit: y = ones(64, 32) * 0.5",
                "# orbit: out = empty(64, 32)",
                "# orbit: seed 7",
                "# orbit: launch k[(8, 1, 1)](2048, 2.5, x, y, out)",
            ],
        ),
    ],
)
def test_an_io_contract_is_a_launch_spec_without_a_mistake(
    source: str, language: Any, lines: list[str]
) -> None:
    spec = io_contract.with_spec(source, language, "", io_contract.IOContract.model_validate(CONTRACT))
    text = spec.text
    assert (spec.kernel, spec.files) == ("k", {})
    assert [line for line in text.split("\n") if " orbit: " in line] == lines
    session = Session()
    suffix = "cu" if language == "cuda" else "py"
    session.open(f"file:///k.{suffix}", 0, text)
    faults = [
        fault.message
        for fault in spec_cache.faults(session, f"file:///k.{suffix}")
        if fault.severity == "error"
    ]
    assert faults == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"launch": None}, "io.launch needs a grid"),
        ({"args": [tensor("x y")]}, "io.args: 'x y' is not a valid name of an argument"),
        (
            {"args": [{"name": "n", "type": "int", "value": "many"}]},
            "io.args: n is 'many'; a scalar needs a number",
        ),
        (
            {"args": [{"name": "x", "type": "tensor"}]},
            "io.args: the tensor x needs a tensor_spec with its shape",
        ),
        ({"args": [tensor("x", kind="magic")]}, "io.args: x cannot be filled by 'magic'"),
        ({"args": [tensor("x", role="thief")]}, "io.args: the role of x is 'thief'"),
    ],
)
def test_an_io_contract_that_cannot_be_run(change: dict[str, Any], message: str) -> None:
    contract = io_contract.IOContract.model_validate(CONTRACT | change)
    with pytest.raises(RequestRefusedError) as why:
        io_contract.with_spec("__global__ void k(float* x) {}\n", "cuda", "k", contract)
    assert str(why.value).startswith(message)


def test_a_meta_argument_of_triton_may_be_a_word() -> None:
    args = [tensor("x"), {"name": "MODE", "type": "str", "value": "ieee", "is_meta": True}]
    contract = io_contract.IOContract.model_validate({"args": args, "launch": {"grid": {}}})
    source = "import triton\nimport triton.language as tl\n\n@triton.jit\ndef k(x, MODE: tl.constexpr):\n    pass\n"
    text = io_contract.with_spec(source, "triton", "k", contract).text
    assert '# orbit: launch k[(1, 1, 1)](x, MODE="ieee")' in text
    session = Session()
    session.open("file:///k.py", 0, text)
    assert [fault.message for fault in spec_cache.faults(session, "file:///k.py")] == []


@pytest.mark.parametrize(
    ("language", "argument", "launch"),
    [
        ("triton", {"type": "str", "value": "relu", "is_meta": True}, '(x, act="relu", n=4)'),
        ("triton", {"type": "str", "value": "relu"}, '(x, act="relu", n=4)'),
        ("triton", {"type": "str", "value": ""}, '(x, act="", n=4)'),
        ("triton", {"type": "int", "value": 3, "is_meta": True}, "(x, act=3, n=4)"),
        ("triton", {"type": "int", "value": 3}, "(x, 3, 4)"),
        ("triton", {"type": "str", "value": 'a"b'}, "act is 'a\"b'; a text that a Triton kernel is given may have letters"),
        ("triton", {"type": "str", "value": 3}, "act is 3, and its type is str; give a text"),
        ("triton", {"type": "str"}, "act is None, and its type is str; give a text"),
        ("triton", {"type": "int", "value": "3"}, "act is '3'; a scalar needs a number or a truth value"),
        ("cuda", {"type": "str", "value": "relu"}, "act is a text, which no CUDA kernel takes"),
    ],
)  # fmt: skip
def test_a_text_is_an_argument(language: Any, argument: dict[str, Any], launch: str) -> None:
    """What follows an argument that goes by name goes by name too."""
    args = [tensor("x"), {"name": "act", **argument}, {"name": "n", "type": "int", "value": 4}]
    contract = io_contract.IOContract.model_validate(CONTRACT | {"args": args})
    source = {
        "triton": "import triton\nimport triton.language as tl\n\n@triton.jit\ndef k(x, act: tl.constexpr, n):\n    pass\n",
        "cuda": "__global__ void k(float* x, const char* act, int n) {}\n",
    }[language]
    if not launch.startswith("("):
        with pytest.raises(RequestRefusedError) as why:
            io_contract.with_spec(source, language, "k", contract)
        assert launch in str(why.value)
        return
    text = io_contract.with_spec(source, language, "k", contract).text
    assert launch in text
    assert [fault.message for fault in checked(text, language).faults] == []


def test_a_word_of_python_names_an_argument_in_cuda() -> None:
    contract = io_contract.IOContract.model_validate(CONTRACT | {"args": [tensor("in"), tensor("is")]})
    text = io_contract.with_spec("__global__ void k(float* in, float* is) {}\n", "cuda", "k", contract).text
    assert [fault.message for fault in checked(text, "cuda").faults] == []
    with pytest.raises(RequestRefusedError, match=r"io\.args: 'in' is not a valid name of an argument"):
        io_contract.with_spec(SOURCES["triton"].format(parameters="a, b"), "triton", "k", contract)


def test_a_kernel_in_a_name_space() -> None:
    source = "namespace a {\n__global__ void k() {}\n}\nnamespace b {\n__global__ void k() {}\n}\n"
    contract = io_contract.IOContract.model_validate(
        {"args": [], "launch": {"grid": {"x": 1}, "block": {"x": 1}}}
    )
    spec = io_contract.with_spec(source, "cuda", "b::k", contract)
    assert spec.kernel == "b::k"
    assert "namespace b {\n// the next 1 lines" in spec.text


def test_a_kernel_in_a_class() -> None:
    source = "import triton\n" + "".join(
        f"class {name}:\n    @triton.jit\n    def k():\n        pass\n" for name in "AB"
    )
    contract = io_contract.IOContract.model_validate({"args": [], "launch": {"grid": {"x": 1}}})
    kernel = io_contract.Kernel(source_code=source, kernel_type="triton", metadata={"kernel_name": "B.k"})
    assert io_contract.with_spec(source, "triton", kernel.kernel_name, contract).kernel == "B.k"
