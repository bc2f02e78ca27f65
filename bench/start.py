"""What starting costs an editor: to the answer of `initialize`, and to the first lens, beside a trivial pygls server.

    python -P bench/start.py [--times 11]
    python -P bench/start.py [--times 11] --workspace FOLDER FILE    from opening the first file of a workspace to its lenses

In turn, and medians with the quartiles. Processor time, of all threads of the server, is what a busy machine
disturbs least (Linux only). The servers find their modules as bytecode, as `pip install` leaves them, also where the
environment has PYTHONDONTWRITEBYTECODE; a first start, which is not counted, writes it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from client import Client
from lsp import ORBIT, TINY, cuda_file

Costs = dict[tuple[str, str], list[float]]


def processor_s(process: int) -> float:
    """That all threads of a process have used; NaN where the system does not say."""
    try:
        tasks = list(Path(f"/proc/{process}/task").iterdir())
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9
    except OSError:
        return float("nan")


async def once(name: str, command: list[str], folder: Path, costs: Costs) -> None:
    began = time.perf_counter()

    def took(what: str) -> None:
        costs.setdefault((f"{what}, wall", name), []).append(time.perf_counter() - began)
        costs.setdefault((f"{what}, processor", name), []).append(processor_s(client.process.pid))

    client = await Client.start(command, folder, {"compile_on_save": False, "runner": "local"})
    took("initialize answered")
    client.notify("initialized", {})
    uri = (folder / "k.cu").as_uri()
    document = {"uri": uri, "languageId": "cuda", "version": 1, "text": cuda_file(kernels=10, lines=500)}
    client.notify("textDocument/didOpen", {"textDocument": document})
    assert await client.request("textDocument/codeLens", {"textDocument": {"uri": uri}})
    took("first lenses")
    await client.stop()


async def measure(times: int) -> None:
    costs: Costs = {}
    with tempfile.TemporaryDirectory(prefix="orbit-bench-") as name:
        folder = Path(name)
        await once("orbit", ORBIT, folder, {})
        for _ in range(times):
            for server, command in (("tiny", TINY), ("orbit", ORBIT)):
                await once(server, command, folder, costs)
    print(f"{'milliseconds':<34}{'tiny pygls server':>24}{'orbit-lsp':>24}")
    for what in dict.fromkeys(what for what, _ in costs):
        tiny, orbit = costs[what, "tiny"], costs[what, "orbit"]
        ratio = statistics.median(orbit) / statistics.median(tiny)
        print(f"{what:<34}{quartiles(tiny):>24}{quartiles(orbit):>24}   {ratio:.2f} x")


async def first_file(folder: Path, file: Path, times: int) -> None:
    """Each time in a new server with default settings, which has answered a request and knows nothing of the workspace yet."""
    seconds: list[float] = []
    processor: list[float] = []
    for _ in range(times + 1):
        client = await Client.start(ORBIT, folder)
        client.notify("initialized", {})
        await client.request("textDocument/codeLens", {"textDocument": {"uri": "file:///none.cu"}})
        began, used = time.perf_counter(), processor_s(client.process.pid)
        client.open(file, "cuda")
        assert await client.request("textDocument/codeLens", {"textDocument": {"uri": file.as_uri()}})
        seconds.append(time.perf_counter() - began)
        processor.append(processor_s(client.process.pid) - used)
        await client.stop()
    wall, used = quartiles(seconds[1:]), quartiles(processor[1:])
    print(f"from opening {file.name} to its lenses: {wall} ms, processor {used}")


def quartiles(seconds: list[float]) -> str:
    low, middle, high = statistics.quantiles(seconds, n=4)
    return f"{1e3 * middle:.0f} ({1e3 * low:.0f} to {1e3 * high:.0f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--times", type=int, default=11, help="pairs of starts")
    parser.add_argument("--workspace", type=Path)
    parser.add_argument("file", type=Path, nargs="?", help="in the workspace, with a kernel")
    options = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory(prefix="orbit-bench-") as bytecode:
        os.environ["PYTHONPYCACHEPREFIX"] = bytecode
        if options.workspace and options.file:
            asyncio.run(first_file(options.workspace.resolve(), options.file.resolve(), options.times))
        else:
            asyncio.run(measure(options.times))


if __name__ == "__main__":
    main()
