"""What the server costs an editor, beside a trivial pygls server and clangd, in one run.

    python -P bench/lsp.py [--quick]

Milliseconds of a client's wall clock. The files are generated: 10,000 lines, 100 kernels.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from client import Client, Json

ORBIT = [sys.executable, "-P", "-m", "orbit_lsp"]
TINY = [sys.executable, "-P", str(Path(__file__).parent / "tiny_server.py")]
CLANGD = Path(sys.executable).with_name("clangd")

CUDA = """\
// kernel {0}
__global__ void k{0}(int n, float a, const float* x, float* y) {{
  int i = blockIdx.x * blockDim.x + threadIdx.x;
{1}
  if (i < n) y[i] = a * x[i] + y[i];
}}
"""
TRITON = """\
@triton.jit
def k{0}(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
{1}
    tl.store(y + i, tl.load(x + i, mask=i < n), mask=i < n)


"""


def cuda_file(kernels: int = 100, lines: int = 10_000) -> str:
    body = "\n".join(f"  a += {number}.0f * n;" for number in range(lines // kernels - 5))
    return (
        "".join(CUDA.format(number, body) for number in range(kernels))
        + "int main() { k0<<<1, 256>>>(0, 0, 0, 0); }\n"
    )


def triton_file(kernels: int = 100, lines: int = 10_000) -> str:
    body = "\n".join(f"    n += {number}" for number in range(lines // kernels - 6))
    head = "import triton\nimport triton.language as tl\n\n\n"
    return head + "".join(TRITON.format(number, body) for number in range(kernels))


def summary(seconds: list[float]) -> str:
    ordered = sorted(1e3 * s for s in seconds)
    return (
        f"{statistics.median(ordered):7.2f} {ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]:7.2f}"
    )


def row(name: str, *cells: object) -> None:
    print(f"  {name:<34}" + "  ".join(str(cell) for cell in cells), flush=True)


class Typist:
    """Types and takes away a character in a kernel in the middle of the file, and asks at once."""

    def __init__(self, client: Client, path: Path, line: int) -> None:
        self.client, self.uri, self.line, self.version = client, path.as_uri(), line, 1

    def type(self) -> None:
        self.version += 1
        taking = self.version % 2
        where = {
            "start": {"line": self.line, "character": 2},
            "end": {"line": self.line, "character": 2 + taking},
        }
        change = {"range": where, "text": "" if taking else "1"}
        self.client.notify(
            "textDocument/didChange",
            {"textDocument": {"uri": self.uri, "version": self.version}, "contentChanges": [change]},
        )

    async def ask(self, method: str) -> Any:
        params: Json = {"textDocument": {"uri": self.uri}}
        if method == "hover":
            params["position"] = {"line": self.line, "character": 4}
        if method == "inlayHint":
            top = max(0, self.line - 30)
            params["range"] = {
                "start": {"line": top, "character": 0},
                "end": {"line": top + 60, "character": 0},
            }
        return await self.client.request(f"textDocument/{method}", params)


async def timed(work: Callable[[], Awaitable[Any]], times: int) -> list[float]:
    results: list[float] = []
    for _ in range(times):
        began = time.perf_counter()
        await work()
        results.append(time.perf_counter() - began)
    return results


async def right_after_an_edit(folder: Path, times: int) -> None:
    print(
        "\nright after an edit, 10,000 lines            median    p99   (target: tiny + 5 median, p99 <= 40)"
    )
    for name, text, language in (("big.cu", cuda_file(), "cuda-cpp"), ("big.py", triton_file(), "python")):
        path = folder / name
        path.write_text(text)
        servers = {"tiny": TINY, "orbit": ORBIT}
        if name.endswith(".cu") and CLANGD.exists():
            servers["clangd"] = [str(CLANGD), "--log=error"]
        for server, command in servers.items():
            client = await Client.start(command, folder, {"compile_on_save": False})
            client.notify("initialized", {})
            client.open(path, language)
            typist = Typist(client, path, 5020)
            for method in ("codeLens", "inlayHint", "hover"):
                if not client.capabilities.get(f"{method}Provider"):
                    continue

                async def edit_and_ask(method: str = method, typist: Typist = typist) -> None:
                    typist.type()
                    await typist.ask(method)

                await timed(edit_and_ask, 5)
                row(
                    f"{name} {method}, {server}",
                    summary(await timed(edit_and_ask, times if server != "clangd" else times // 10)),
                )
            await client.stop()


async def on_the_loop(folder: Path) -> None:
    """How long an edit and the scan that it calls for keep the loop: edits with an answer, against the answer alone."""
    print("\nedit and scan, 10,000 lines, on the loop     mean          (target: <= 5)")
    for name, language in (("big.cu", "cuda-cpp"), ("big.py", "python")):
        client = await Client.start(ORBIT, folder, {"compile_on_save": False})
        client.notify("initialized", {})
        client.open(folder / name, language)
        typist = Typist(client, folder / name, 5020)
        await typist.ask("hover")

        async def edit_and_ask(typist: Typist = typist) -> None:
            typist.type()
            await typist.ask("hover")

        edited = await timed(edit_and_ask, 100)
        alone = await timed(lambda typist=typist: typist.ask("hover"), 100)
        row(name, f"{1e3 * (statistics.mean(edited) - statistics.mean(alone)):7.2f}")
        await client.stop()


async def memory(folder: Path) -> None:
    print("\nresident memory of the server, MiB                       (targets: 70, 150, 2)")
    client = await Client.start(ORBIT, folder, {"compile_on_save": False})
    client.notify("initialized", {})
    await client.request("workspace/executeCommand", {"command": "orbit.info", "arguments": []})
    row("idle", f"{client.memory_mib():7.1f}")
    small = cuda_file(4, 200)
    for number in range(1000):
        path = folder / f"many{number}.cu"
        path.write_text(small.replace("k0", f"first{number}"))
        client.open(path, "cuda-cpp")
    await client.request("textDocument/codeLens", {"textDocument": {"uri": (folder / "many999.cu").as_uri()}})
    row("1,000 open files of 200 lines", f"{client.memory_mib():7.1f}")
    typist = Typist(client, folder / "many500.cu", 20)
    for _ in range(500):
        typist.type()
    await typist.ask("codeLens")
    before = client.memory_mib()
    for _ in range(5000):
        typist.type()
    await typist.ask("codeLens")
    row("growth over 5,000 edits", f"{client.memory_mib() - before:7.1f}")
    await client.stop()


async def save_to_diagnostic(folder: Path, times: int) -> None:
    if shutil.which("nvcc") is None:
        return
    print("\nsave to compile diagnostic                   median    p99   (target: <= 1.15 x nvcc + 50)")
    path = folder / "save.cu"
    client = await Client.start(ORBIT, folder, {})
    client.notify("initialized", {})
    path.write_text("int first;\n")
    client.open(path, "cuda-cpp")
    version, alone, saved = 1, [], []
    for number in range(times):
        text = f"__global__ void k(float* x) {{ x[0] = wrong_{number}; }}\n" + cuda_file(20, 400)
        version += 1
        path.write_text(text)
        began = time.perf_counter()
        command = [
            "nvcc",
            "-cubin",
            "-lineinfo",
            "-gencode",
            "arch=compute_90a,code=sm_90a",
            "-o",
            "/dev/null",
            str(path),
        ]
        await asyncio.to_thread(subprocess.run, command, capture_output=True, check=False)
        alone.append(time.perf_counter() - began)
        client.notify(
            "textDocument/didChange",
            {"textDocument": {"uri": path.as_uri(), "version": version}, "contentChanges": [{"text": text}]},
        )
        began = time.perf_counter()
        client.notify("textDocument/didSave", {"textDocument": {"uri": path.as_uri()}})

        def told(message: Json, number: int = number) -> bool:
            return message["method"] == "textDocument/publishDiagnostics" and f"wrong_{number}" in str(
                message["params"]
            )

        arrived, _ = await client.until(told, began)
        saved.append(arrived - began)
    await client.stop()
    nvcc, ours = statistics.median(alone), statistics.median(saved)
    row("nvcc -cubin alone", summary(alone))
    row(
        "save to diagnostic",
        summary(saved),
        f"{ours / nvcc:.2f} x nvcc; {1e3 * (ours - 1.15 * nvcc):+.0f} ms from 1.15 x",
    )


async def measure(times: int) -> None:
    with tempfile.TemporaryDirectory(prefix="orbit-bench-") as name:
        folder = Path(name)
        await right_after_an_edit(folder, times)
        await on_the_loop(folder)
        await memory(folder)
        await save_to_diagnostic(folder, max(4, times // 15))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer repeats")
    options = parser.parse_args()
    asyncio.run(measure(40 if options.quick else 200))


if __name__ == "__main__":
    main()
