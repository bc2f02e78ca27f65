"""From an edit to its diagnostic, beside clangd and beside nvcc alone; what a kernel needs on every GPU, beside ptxas alone; and
from a click on *Debug* to the first breakpoint.

    python -P bench/edit_to_diagnostic.py [--times 7] [--files PART] [--nvcc-only]

One name is misspelt in a file of one kernel and in one of 20; then the edit is undone. At the keystroke, the front end that waits
answers. At a save, with `compile_on_idle` off, nvcc answers: compared with `nvcc -cubin` on the same text, in turn with it. clangd
knows the flags that the guide's page about it gives. A Triton file is compiled by a command once, then while it is typed.
Medians with the quartiles. `--files` picks those whose title has PART, and `--nvcc-only` the saves.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from orbit_lsp.features import every_gpu
from orbit_remote.toolchain import nvcc

sys.path.insert(0, str(Path(__file__).parent))
from client import Client, Json

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.debugger_client import DebuggerClient

ORBIT = [sys.executable, "-P", "-m", "orbit_lsp"]
CLANGD = [str(Path(sys.executable).with_name("clangd")), "--log=error"]
SETTINGS = {"compile_on_idle": True, "every_gpu": "hover"}
KERNEL = """\
__global__ void k{0}(const {1}* x, {1}* y, int n) {{
  __shared__ {1} tile[256];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  tile[threadIdx.x] = i < n ? x[i] : {1}(0.0f);
  __syncthreads();
  {1} sum = {1}(0.0f);
  for (int j = 0; j < 256; ++j) sum = sum + tile[(threadIdx.x + j) % 256];
  if (i < n) y[i] = sum;
}}
"""
LINE = "  if (i < n) y[i] = sum;"
FILES = {
    "one kernel": KERNEL.format(0, "float") + "int main() { k0<<<1, 256>>>(nullptr, nullptr, 0); }\n",
    "cub, cooperative_groups and mma.h": "#include <cub/cub.cuh>\n#include <cooperative_groups.h>\n#include <mma.h>\n"
    + KERNEL.format(0, "float"),
    "20 kernels, fp16": "#include <cuda_fp16.h>\n" + "".join(KERNEL.format(at, "__half") for at in range(20)),
}
TRITON = """\
import triton
import triton.language as tl

# orbit: n = 100000; x = ones(n); out = empty(n)
# orbit: launch double[(triton.cdiv(n, 1024),)](x, out, n, BLOCK=1024)
# orbit: expect out == x + x
@triton.jit
def double(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, 2 * tl.load(x_ptr + at, mask=at < n), mask=at < n)
"""


def show(name: str, seconds: list[float], more: str = "") -> float:
    low, median, high = statistics.quantiles(seconds, n=4)
    print(f"  {name:<44}{median * 1e3:6.0f} ms ({low * 1e3:.0f} to {high * 1e3:.0f}){more}")
    return median


def compiled(compiler: str, path: Path, text: str) -> float:
    """Seconds of nvcc by itself."""
    path.write_text(text)
    began = time.perf_counter()
    command = [compiler, "-cubin", "-arch=sm_90a", "-o", "/dev/null", str(path)]
    # in a session of its own, as the worker's compilers are: Linux divides a busy processor among sessions
    subprocess.run(command, capture_output=True, check=False, start_new_session=True)
    return time.perf_counter() - began


def is_about(uri: str, word: str) -> Any:
    """Whether a message publishes a diagnostic that names `word`; for the empty word, whether it publishes no error."""

    def wanted(message: Json) -> bool:
        params = message.get("params") or {}
        if message["method"] != "textDocument/publishDiagnostics" or params["uri"] != uri:
            return False
        errors = [each["message"] for each in params["diagnostics"] if each.get("severity") == 1]
        return any(word in error for error in errors) if word else not errors

    return wanted


async def edits(
    command: list[str],
    folder: Path,
    path: Path,
    text: str,
    times: int,
    options: Json | None = None,
    alone: Callable[[str], float] | None = None,
) -> tuple[list[float], list[float]]:
    """Seconds from each edit to the diagnostic of its own word; with `alone`, from its save, and what that then took for
    each text: load that comes and goes is on both.
    """
    client = await Client.start(command, folder, options)
    uri = path.as_uri()
    line = text.splitlines().index(LINE)
    seconds: list[float] = []
    by_itself: list[float] = []
    shown, version = "sum0", 1
    await asyncio.to_thread(path.write_text, text.replace(LINE, LINE.replace("sum", shown), 1))
    try:
        client.notify("initialized", {})
        since = time.perf_counter()
        client.open(path, "cuda")
        await client.until(is_about(uri, shown), since)
        for at in range(1, times + 1):
            for new in ("sum", f"sum{at}"):
                version += 1
                start = {"line": line, "character": LINE.index("sum")}
                end = {"line": line, "character": LINE.index("sum") + len(shown)}
                change = {"range": {"start": start, "end": end}, "text": new}
                document = {"uri": uri, "version": version}
                since = time.perf_counter()
                client.notify(
                    "textDocument/didChange", {"textDocument": document, "contentChanges": [change]}
                )
                now = text.replace(LINE, LINE.replace("sum", new), 1)
                if alone:
                    await asyncio.to_thread(path.write_text, now)
                    since = time.perf_counter()
                    client.notify("textDocument/didSave", {"textDocument": {"uri": uri}})
                arrived, _ = await client.until(is_about(uri, "" if new == "sum" else new), since)
                shown = new
            seconds.append(arrived - since)
            by_itself += [await asyncio.to_thread(alone, now)] if alone else []
    finally:
        await client.stop()
    return seconds, by_itself


async def triton_edits(folder: Path, times: int) -> list[float]:
    """Seconds from each edit of a Triton kernel to the diagnostic of its own word, the pause included."""
    path = folder / "typed.py"
    path.write_text(TRITON)
    client = await Client.start([*ORBIT, "serve"], folder, SETTINGS | {"trusted": True})
    uri, version = path.as_uri(), 1
    seconds: list[float] = []
    try:
        client.notify("initialized", {})
        client.open(path, "python")
        began = time.perf_counter()
        await client.request(
            "workspace/executeCommand", {"command": "orbit.compile", "arguments": [{"uri": uri}]}
        )
        await client.until(lambda heard: "kernel compiled" in str(heard.get("params")), began)
        for at in range(times + 1):
            for new in (f"wrong{at}", "at"):
                version += 1
                text = TRITON.replace("x_ptr + at", f"x_ptr + {new}", 1)
                since = time.perf_counter()
                document = {"uri": uri, "version": version}
                client.notify(
                    "textDocument/didChange", {"textDocument": document, "contentChanges": [{"text": text}]}
                )
                arrived, _ = await client.until(is_about(uri, "" if new == "at" else new), since)
                seconds += [arrived - since] if at and new != "at" else []
    finally:
        await client.stop()
    return seconds


def resources(
    compiler: str, folder: Path, text: str, times: int
) -> tuple[list[float], list[float], list[float]]:
    """Seconds of nvcc's front end, of ptxas alone, and of all architectures with one front end, as the hover's table has it."""
    path = folder / "every.cu"
    path.write_text(text)
    ptx, ptxas = folder / "every.ptx", str(Path(compiler).with_name("ptxas"))
    commands = (
        [compiler, "-ptx", "-lineinfo", "-arch=compute_75", "-o", str(ptx), str(path)],
        [ptxas, "-v", "-arch=sm_90", "-o", "/dev/null", str(ptx)],
        [
            compiler, "-fatbin", "-lineinfo", "-Xptxas", "-v", *every_gpu.passes(text)[0], "-o", str(folder / "every.fatbin"), str(path),
        ],
    )  # fmt: skip
    seconds: tuple[list[float], ...] = ([], [], [])
    for _ in range(times):
        for command, each in zip(commands, seconds, strict=True):
            began = time.perf_counter()
            subprocess.run(command, capture_output=True, check=True, start_new_session=True)
            each.append(time.perf_counter() - began)
    return seconds[0], seconds[1], seconds[2]


async def debugs(folder: Path, times: int) -> list[float]:
    """Seconds from the command to the breakpoint; the first click finds no warm process, and is left out."""
    path = folder / "k.py"
    path.write_text(TRITON)
    client = await Client.start([*ORBIT, "serve"], folder, {})
    seconds: list[float] = []
    try:
        client.notify("initialized", {})
        client.open(path, "python")
        for at in range(times + 1):
            began = time.perf_counter()
            argument = {"uri": path.as_uri(), "kernel": "double"}
            await client.request(
                "workspace/executeCommand", {"command": "orbit.debug", "arguments": [argument]}
            )
            _, message = await client.until(
                lambda heard: "attach a debugger" in str(heard.get("params")), began
            )
            address = re.search(r"([\d.]+):(\d+), within", message["params"]["message"])
            assert address
            debugger = await asyncio.to_thread(DebuggerClient, address[1], int(address[2]))
            await asyncio.to_thread(debugger.attach, str(path), 10)
            await asyncio.to_thread(debugger.stopped)
            seconds += [time.perf_counter() - began] if at else []
            debugger.request("disconnect")
            debugger.close()
            ended = time.perf_counter()
            await client.until(lambda heard: "the debugger has ended" in str(heard.get("params")), ended)
    finally:
        await client.stop()
    return seconds


def of_file(compiler: str, folder: Path, number: int, text: str, times: int, *, saves_only: bool) -> None:
    path, copy = folder / f"k{number}.cu", folder / f"alone{number}.cu"
    saved, alone = asyncio.run(
        edits(
            [*ORBIT, "serve"], folder, path, text, times, SETTINGS | {"compile_on_idle": False},
            lambda now: compiled(compiler, copy, now),
        )
    )  # fmt: skip
    of_nvcc = show("nvcc -cubin alone, with the mistake", alone)
    over = (statistics.median(saved) - 0.03) / of_nvcc
    show("save to diagnostic, orbit-lsp", saved, f"  {over:.2f} x nvcc + 30 ms (target: 1.15)")
    if saves_only:
        return
    show(
        "keystroke to diagnostic, orbit-lsp",
        asyncio.run(edits([*ORBIT, "serve"], folder, path, text, times, SETTINGS))[0],
    )
    if Path(CLANGD[0]).exists():
        show("keystroke to diagnostic, clangd", asyncio.run(edits(CLANGD, folder, path, text, times))[0])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=7)
    parser.add_argument("--files", default="")
    parser.add_argument("--nvcc-only", action="store_true")
    options = parser.parse_args()
    times: int = options.times
    compiler = nvcc.find(None)
    assert isinstance(compiler, nvcc.Nvcc), compiler
    print(f"load of the machine: {os.getloadavg()[0]:.1f}, processors: {os.cpu_count()}")
    with tempfile.TemporaryDirectory(prefix="orbit-") as name:
        folder = Path(name)
        (folder / ".clangd").write_text(
            "CompileFlags:\n  Add: [-xcuda, --cuda-gpu-arch=sm_90, -std=c++17, -nocudalib, --cuda-host-only, "
            f"--cuda-path={compiler.root}]\n"
        )
        for number, (title, text) in enumerate(FILES.items()):
            if options.files in title:
                print(title)
                of_file(compiler.path, folder, number, text, times, saves_only=options.nvcc_only)
        if options.nvcc_only:
            return
        print("a Triton kernel, without a GPU")
        show("edit to diagnostic, orbit-lsp", asyncio.run(triton_edits(folder, times)))
        print("one kernel on seven architectures")
        front, alone, every = resources(compiler.path, folder, FILES["one kernel"], times)
        show("front end (nvcc -ptx)", front)
        ptxas = show("ptxas alone, one architecture", alone)
        after = [each - statistics.median(front) for each in every]
        show(
            "all, after the front end",
            after,
            f"  (target: 9 x ptxas + 100 ms = {(9 * ptxas + 0.1) * 1e3:.0f} ms)",
        )
        print("click on Debug to the first breakpoint (target: 1500 ms)")
        show("launch spec, warm", asyncio.run(debugs(folder, times)))


if __name__ == "__main__":
    main()
