"""What the fuzzer tries: inputs that are nearly right, by hypothesis."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from hypothesis import strategies as st

from orbit_remote.common import messages as c
from orbit_remote.common.measurements import AgainstReference, Metric
from orbit_remote.common.messages import RESULT_VERSION
from tests.hostile import targets
from tests.random_cases import ENCODABLE
from tests.test_history import entry

Case = st.SearchStrategy[bytes]

STRANGE: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from(
        [
            None, True, -1, 0, 1 << 31, 1 << 63, 1 << 70, 1 << 1100, 0.5, float("nan"), float("inf"), -float("inf"), 1e308, "",
            "\x00", "\x1b[31m", "\ud800", "a" * 5000, "../../etc/passwd", "file:///dev/zero", "file://[", "é" * 50,
            [], {}, [[]], [None], {"a": {}}, "9" * 5000,
        ]
    ),
    st.text(ENCODABLE, max_size=20),
    st.integers(),
    st.floats(),
)  # fmt: skip
"""Values that are of another kind than was meant, or as large as one can be."""


def packed(value: Any) -> bytes:
    return json.dumps(value).encode()


@st.composite
def changed(draw: st.DrawFn, value: Any) -> Any:
    """JSON with up to four of its parts replaced, removed, doubled or renamed."""
    value = json.loads(json.dumps(value))
    for _ in range(draw(st.integers(0, 4))):
        at: Any = value
        while at and isinstance(at, dict | list):
            inside = cast("dict[Any, Any]", at)  # or a list, by its indices
            names: list[Any] = sorted(inside) if isinstance(at, dict) else list(range(len(inside)))
            name = draw(st.sampled_from(names))
            if not (isinstance(inside[name], dict | list) and inside[name]) or draw(st.integers(0, 3)) == 0:
                _change(draw, inside, name)
                break
            at = inside[name]
    return value


def _change(draw: st.DrawFn, inside: dict[Any, Any], name: Any) -> None:
    what = draw(st.integers(0, 5))
    if what == 0:
        del inside[name]
    elif what == 1 and isinstance(name, str):
        inside[draw(st.text(ENCODABLE, max_size=8))] = inside.pop(name)
    else:
        inside[name] = draw(STRANGE)


@st.composite
def spliced(draw: st.DrawFn, lines: Sequence[str], words: Sequence[str]) -> str:
    """Lines in some order, with words, numbers and characters put into them or taken out."""
    text: list[str] = []
    for chosen in draw(st.lists(st.sampled_from(lines), max_size=12)):
        line = chosen
        for _ in range(draw(st.integers(0, 3))):
            at = draw(st.integers(0, len(line)))
            end = min(len(line), at + draw(st.integers(0, 6)))
            put = draw(
                st.one_of(
                    st.just(""),
                    st.sampled_from(words),
                    st.integers().map(str),
                    st.characters(),
                    st.text(ENCODABLE, max_size=4),
                )
            )
            line = line[:at] + put * draw(st.sampled_from([1, 1, 1, 1, 2, 300])) + line[end:]
        text.append(line)
    return draw(st.sampled_from(["\n", "\n", "\n", "\r\n", "\r", " "])).join(text)


# -- messages ---------------------------------------------------------------------------------------

URI = "file:///src/k.cu"
_DOCUMENT = {"textDocument": {"uri": URI}}
_AT = {**_DOCUMENT, "position": {"line": 1, "character": 4}}
_RANGE = {"start": {"line": 0, "character": 0}, "end": {"line": 3, "character": 0}}
_TEXT = "// orbit: n = 4\n// orbit: launch k<<<1, 32>>>(n)\n__global__ void k(int n) {}\n"
_OPEN = {"textDocument": {"uri": URI, "languageId": "cuda-cpp", "version": 1, "text": _TEXT}}
_CHANGE = {"textDocument": {"uri": URI, "version": 2}, "contentChanges": [{"range": _RANGE, "text": "x"}]}
_PARAMS: dict[str, Any] = {
    "textDocument/didOpen": _OPEN,
    "textDocument/didChange": _CHANGE,
    "textDocument/didClose": _DOCUMENT,
    "textDocument/didSave": _DOCUMENT,
    "textDocument/hover": _AT,
    "textDocument/completion": _AT,
    "textDocument/codeLens": _DOCUMENT,
    "textDocument/inlayHint": {**_DOCUMENT, "range": _RANGE},
    "textDocument/codeAction": {**_DOCUMENT, "range": _RANGE, "context": {"diagnostics": []}},
    "workspace/executeCommand": {"command": "orbit.info", "arguments": [{"uri": URI, "kernel": "k"}]},
    "workspace/didChangeConfiguration": {"settings": {"orbit": {"gpu": "H100"}}},
    "workspace/didChangeWatchedFiles": {"changes": [{"uri": URI, "type": 1}]},
    "$/cancelRequest": {"id": 3},
    "$/setTrace": {"value": "off"},
    "window/workDoneProgress/cancel": {"token": "x"},
}
_HELLO: dict[str, Any] = {
    "id": 0,
    "method": "initialize",
    "params": {"capabilities": {}, "rootUri": "file:///src"},
}


@st.composite
def frame(draw: st.DrawFn, body: bytes) -> bytes:
    length = draw(st.sampled_from([len(body)] * 30 + [len(body) + 1, len(body) - 1, 0, -1, 1 << 40]))
    name = draw(
        st.sampled_from(["Content-Length"] * 5 + ["content-length", "CONTENT-LENGTH ", "Content-Type"])
    )
    end = draw(st.sampled_from(["\r\n"] * 5 + ["\n", "\r\n\r\n"]))
    return f"{name}: {length}{end}{end}".encode() + body


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    stream = draw(frame(packed({"jsonrpc": "2.0", **draw(st.one_of(st.just(_HELLO), changed(_HELLO)))})))
    for number in range(1, draw(st.integers(2, 25))):
        method = draw(st.sampled_from(sorted(_PARAMS)))
        message: Any = {"jsonrpc": "2.0", "method": method, "params": _PARAMS[method]}
        if draw(st.booleans()):
            message["id"] = number
        message = draw(st.one_of(st.just(message), changed(message)))
        body = draw(
            st.one_of(
                st.just(packed(message)), st.just(packed(message)), st.just(packed([message])), st.just(packed(message)[:-3]),
                st.binary(max_size=20), st.just(b"[" * 100_000), st.just(packed(message).replace(b"k", b"\xff")),
            )
        )  # fmt: skip
        stream += draw(frame(body))
    last = [
        {"id": 99, "method": "shutdown"},
        {"id": 100, "method": "textDocument/hover", "params": _AT},
        {"method": "exit"},
    ]
    for message in draw(st.lists(st.sampled_from(last), max_size=4)):
        stream += draw(frame(packed({"jsonrpc": "2.0", **message})))
    return stream


# -- launch specs -----------------------------------------------------------------------------------

_SPEC = """\
n = 1 << 26
x = randn(n); y = randn(n); a = 2.0f
launch k<<<(n + 255) / 256, 256>>>(n, a, x, y)
launch k[(triton.cdiv(n, BLOCK),)](x, y, n, BLOCK=1024, num_warps=4)
launch k<32><<<dim3(64, 64), dim3(32, 32), 0>>>(n, a, x, y)
expect y == a * x + y within 1e-3, 1e-5
bytes 3 * 4 * n; flops 2 * n
n = sweep(1, 2, 3)
case tail: n = 1000003
reference softmax(x)
flags -O3 -lcublas; gpu H100; seed 3; iterations 10; timeout 5
x = randn(n, n, dtype=float16).T.contiguous()[1:, ::2]
x = zeros((1 << 40, 1 << 40)); y = x + x
grid = lambda META: (triton.cdiv(n, META['BLOCK']),)
""".splitlines()
_WORDS = [
    "(", ")", "[", "]", "{", "<<<", ">>>", "<<", "**", "/", "%", "0", "1e999", "-", "~", "!", "?", ":", ";", ",", "==", "'",
    '"', "\\", "sweep", "case", "launch", "expect", "randn", "arange(", "reshape(", "view(", "sizeof(float)", "x.shape",
    "x.stride()", "1 << 62", "(int)", "lambda", "0x", "1'000", "9" * 400, "\x1b[31m", "\x00", "\u2028", "\N{LATIN SMALL LETTER E WITH ACUTE}",
]  # fmt: skip


@st.composite
def specs(draw: st.DrawFn) -> bytes:
    python = draw(st.booleans())
    mark = "#" if python else "//"
    spec = draw(spliced(_SPEC, _WORDS)).replace("\n", f"\n{mark} orbit: ")
    if python:
        kernel = "@triton.jit\ndef k(x, y, n, BLOCK: tl.constexpr):\n    pass\n"
        return f"import triton\nimport triton.language as tl\n\n# orbit: {spec}\n{kernel}".encode(
            "utf-8", "surrogatepass"
        )
    header = draw(spliced(["__global__ void k(int n, float a, const float* x, float* y) {}"], _WORDS))
    return f"// orbit: {spec}\n{header}\n".encode("utf-8", "surrogatepass")


# -- compiler output --------------------------------------------------------------------------------

_OUTPUT = """\
/src/k.cu(3): error: identifier "a" is undefined
/src/k.cu(3): error #20: identifier "a" is undefined
    y[0] = a * x[0];
           ^
          detected during instantiation of "void k<T>(T *) [with T=float]" at line 4
k.cuh(7): warning #177-D: variable "t" was declared but never referenced
Remark: The warnings can be suppressed with "-diag-suppress <warning-number>"
1 error detected in the compilation of "/src/k.cu".
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z5saxpyifPKfPf' for 'sm_90a'
ptxas info    : Function properties for _Z5saxpyifPKfPf
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 12 registers, used 0 barriers, 380 bytes cmem[0]
ptxas /tmp/x.ptx, line 12; error   : Arguments mismatch for instruction 'add'
ptxas fatal   : Unresolved extern function '_Z1fv'
nvlink error   : Undefined reference to '_Z1fv' in '/tmp/x.o'
/usr/bin/ld: /tmp/tmpxft_0001_0000-11_k.o: in function `main':
tmpxft_0001_0000-6_k.cudafe1.cpp:(.text+0x1a): undefined reference to `f()'
In file included from /src/k.cu:1:
/src/k.cuh:3:10: fatal error: x.h: No such file or directory
k.cu: In function 'void f()':
k.cu:3:5: error: 'y' was not declared in this scope; did you mean 'x'?
nvcc fatal   : Unknown option '--x'
Killed
Segmentation fault (core dumped)
==PROF== Connected to process 123 (/src/k)
==PROF== Profiling "saxpy" - 0: 0%....50%....100% - 8 passes
==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters
==PROF== Disconnected from process 123
.version 9.0
.target sm_90a
.file 1 "/src/k.cu"
.visible .entry _Z5saxpyifPKfPf(
.param .u32 _Z5saxpyifPKfPf_param_0
.maxntid 256, 1, 1
.loc 1 3 5, function_name $L__info_string0, inlined_at 1 4 2
$L__info_string0:
.b8 95,90,49,102,0
""".splitlines()
_OUTPUT_WORDS = ["(", ")", ":", '"', "'", "^", "\t", "\x1b[01;31m", "\x1b]0;x\x07", "\x9b", "\x00", "\x7f", "error", "k.cu(99999999999999999999)", " at line ", "[with T=", "<", ">", "_Z", "\r"]  # fmt: skip
compiler_output = spliced(_OUTPUT, _OUTPUT_WORDS).map(lambda text: text.encode("utf-8", "replace"))

# -- reports ----------------------------------------------------------------------------------------

_PROFILE = c.Profile(
    "_Z5saxpyifPKfPf",
    "saxpy",
    "counters",
    metrics={"gpu__time_duration.sum": Metric("gpu__time_duration.sum", 1.0, "ns")},
)
_FINISHED = json.loads(json.dumps(dataclasses.asdict(entry(1).result.finished)))
_KEPT = {
    "version": RESULT_VERSION, "path": "/src/k.cu", "kernel": "saxpy", "at": 1e9, "text": targets.SOURCE, "detail": "click",
    "finished": {**_FINISHED, "profiles": [json.loads(json.dumps(dataclasses.asdict(_PROFILE)))]},
}  # fmt: skip
_EVENT = {"kind": "finished", **_FINISHED}
_DATABASE = [
    {
        "file": "/src/k.cu",
        "directory": "/work",
        "command": 'nvcc -DN=4 -I "a b" -c k.cu',
        "arguments": ["nvcc", "k.cu"],
    }
]
_TASK = """\
lang: "py"
description: |
  Sum a vector
config:
  main: "eval.py"
files:
  - {"name": "submission.py", "source": "@SUBMISSION@"}
tests:
  - {"size": 1023, "seed": 4242}
  - size: 1024
    seed: 5
benchmarks: [{"size": 1}]
ranked_by: geom
""".splitlines()
_XML = """\
<?xml version="1.0"?>
<ComputeSanitizerOutput>
<record><kind>Memcheck</kind><level>Error</level>
<what><text>Invalid __global__ write of size 4 bytes</text><size>4</size><accessSize>4</accessSize></what>
<where><func>saxpy</func><offset>0x70</offset></where>
<hostStack><saveLocation>x</saveLocation><frame><func>main</func><module>a.out</module></frame></hostStack>
<thread><x>1</x><y>0</y><z>0</z></thread><block><x>1</x></block>
</record>
</ComputeSanitizerOutput>
========= Invalid __global__ write of size 4 bytes
=========     at saxpy(int, float)+0x70 in /src/k.cu:3
=========     by thread (1,0,0) in block (0,0,0)
=========     Address 0x7f is out of bounds
========= ERROR SUMMARY: 1 error
<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]>
&b;
""".splitlines()
_JSONL = """\
{"version": 1, "pid": 12, "start": 1, "recording": true}
["launch", 1, "_Z5saxpy", 0, 100, 200, 4, 1, 1, 256, 1, 1, 0, 0, 16]
["error", 1, 700, "cudaLaunchKernel"]
["end"]
""".splitlines()
_ELF = b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x02\x00\xbe\x00\x01\x00\x00\x00" + bytes(200)


@st.composite
def _cubin(draw: st.DrawFn) -> bytes:
    content = bytearray(_ELF)
    for _ in range(draw(st.integers(0, 12))):
        content[draw(st.integers(16, len(content) - 1))] = draw(st.integers(0, 255))
    return bytes(content)


reports: Case = st.one_of(
    changed(_KEPT).map(packed),
    changed(_EVENT).map(packed),
    changed(_DATABASE).map(packed),
    spliced(_TASK, ["{", "}", "[", "]", ":", "-", '"', "  ", "|", "&x", "*x", "!!"]).map(
        lambda text: text.encode("utf-8", "replace")
    ),
    spliced(_XML, ["<", ">", "&", "&#27;", "</record>", "<frame>", "=========", "0x"]).map(
        lambda text: text.encode("utf-8", "replace")
    ),
    spliced(_JSONL, ["[", "]", ",", "null", "1e999", '"']).map(lambda text: text.encode("utf-8", "replace")),
    _cubin(),
    st.binary(max_size=300),
)

# -- events of a worker or a container --------------------------------------------------------------

_AT_K = c.Place("/src/k.cu", 5, 3, 7)
_RESOURCES = c.Resources(
    "_Z5saxpyifPKfPf", "saxpy", "sm_90a", registers=20, static_shared=16, spill_loads=8, place=_AT_K
)
_PROBLEM = c.Problem("error", "a is undefined", "nvcc", _AT_K, "#20", "saxpy", (c.Note("here", _AT_K),))
_RICH = dataclasses.replace(
    entry(1).result.finished, problems=(_PROBLEM,), resources=(_RESOURCES,), cost=c.Cost("H100", 3.0, 0.1, 0.2, "rates"),
    profiles=(dataclasses.replace(_PROFILE, place=_AT_K, grid=(8, 1, 1), block=(256, 1, 1)),), exit_code=0, build_s=1.0, run_s=1.0,
    points=(dataclasses.replace(entry(1).result.finished.points[0], flops=2.0, footprint=9, versus=AgainstReference("r", "faster", 1.1)),) * 2,
)  # fmt: skip
_EVENTS: list[Any] = [
    c.Stage("r1", "running", 1.0, "why"),
    c.Built("r1", (_PROBLEM,), (_RESOURCES,), {"/src/a.cuh": "00"}, 1.0),
    c.Output("r1", "stdout", "text"),
    c.Launched("r1", _RICH.launches),
    dataclasses.replace(_RICH, launches=tuple(dataclasses.replace(each, timing=dataclasses.replace(each.timing, samples=(1, 2))) for each in _RICH.launches)),
]  # fmt: skip
events: Case = st.tuples(*(changed(json.loads(c.encode(event))).map(packed) for event in _EVENTS)).map(
    b"\n".join
)

# -- databases --------------------------------------------------------------------------------------

_COLUMNS = {
    "runs": ["id", "at", "path", "kernel", "action", "digest", "inputs", "text", "said"],
    "texts": ["hash", "body"],
    "spans": ["id", "holder", "gpu", "began", "ends", "usd_per_s", "rates", "waits"],
}
_BLOBS = st.sampled_from(["hex:", "hex:00", "hex:789c030000000001", "hex:789cabae05000175f9", "hex:ff"])


@st.composite
def databases(draw: st.DrawFn) -> bytes:
    recipe: dict[str, Any] = {
        table: [
            [
                draw(st.sampled_from(columns)),
                draw(st.one_of(_BLOBS, STRANGE.filter(lambda v: not isinstance(v, list | dict)))),
            ]
            for _ in range(draw(st.integers(0, 2)))
        ]
        for table, columns in _COLUMNS.items()
    }
    if draw(st.integers(0, 3)) == 0:
        recipe["bytes"] = draw(st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), max_size=6))
    return packed(recipe)


_LAYOUTS = [
    path.read_text() for path in sorted((Path(__file__).parents[1] / "projects" / "drivers").glob("*.txt"))
]
_PARTS = [
    "", "(", "{", "}", "[", '"', "'''", '"""', "\\", "#", "\0", "\ud800", "\x1b[31m", "\n", "\n\t", "import ", "from . import *\n", "def ",
    "class Test(", "@", "__all__ = [", "getattr(", "__name__ == '__main__'", 'm.def("a", &', "#if 0\n", "\n=== setup.py\n", "MAPPING = {",
    "[pytest]\npython_files = [!", "(" * 3000, "a." * 3000, "…",
]  # fmt: skip


@st.composite
def drivers(draw: st.DrawFn) -> bytes:
    """A project of tests/projects/drivers in which some parts are others."""
    text = draw(st.sampled_from(_LAYOUTS))
    for _ in range(draw(st.integers(0, 8))):
        at = draw(st.integers(0, len(text)))
        end = min(len(text), at + draw(st.sampled_from([0, 1, 8, 80])))
        text = text[:at] + draw(st.one_of(st.sampled_from(_PARTS), st.characters())) + text[end:]
    return text.encode("utf-8", "surrogatepass")


INPUTS: dict[str, Case] = {
    "messages": messages(),
    "specs": specs(),
    "compiler-output": compiler_output,
    "events": events,
    "reports": reports,
    "databases": databases(),
    "drivers": drivers(),
}
