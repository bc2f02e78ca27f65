"""How long a kernel with a launch spec takes from the click to the number: docs/dev/results/measurements.md's rows for specs.

    python -P bench/spec_latency.py [--out FILE]

One small CUDA file, one kernel of about 100 µs, in an editor's place the language client of this folder. A click
includes building, the check against what is expected, timing, and the check on other data after it. The compile alone is
nvcc to a cubin with the flags that we use, in turn with the clicks.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from client import Client, Json

SERVER = [sys.executable, "-P", "-m", "orbit_lsp"]
LIVE = "orbit.live"
FILES = 5
CLICKS = 10
EDITS = 10
IDLE_S = 2.0
"""After opening: time in which the worker and its spare child become warm, as while an author reads."""
TO_SAVE_S = 0.3
"""From the last key to the keys that save, as an author has to find them; Live begins to build meanwhile."""

KERNEL = """\
// orbit: n = 24000000; a = 2.0f
// orbit: x = randn(n); y = randn(n)
// orbit: launch saxpy<<<(n + 255) / 256, 256>>>(n, a, x, y)
// orbit: expect y == a * x + y
// orbit: bytes 3 * sizeof(float) * n
__global__ void saxpy(int n, float a, const float* x, float* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}
"""
SIGNATURE, BODY = 5, 6
"""The lines of the kernel's name and of its first statement, from 0."""


class Editor:
    """One session with the server, and the files opened in it."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.versions: dict[str, int] = {}

    def open(self, file: Path) -> str:
        file.write_text(KERNEL, encoding="utf-8")
        self.client.open(file, "cuda-cpp")
        self.versions[file.as_uri()] = 1
        return file.as_uri()

    def edit(self, uri: str) -> None:
        """Another statement at the start of the body; what the kernel computes stays."""
        self.versions[uri] += 1
        version = self.versions[uri]
        where = {"line": BODY, "character": 0}
        change = {
            "range": {"start": where, "end": where},
            "text": f"  volatile int edit_{version} = {version};\n",
        }
        document = {"uri": uri, "version": version}
        self.client.notify("textDocument/didChange", {"textDocument": document, "contentChanges": [change]})

    def save(self, uri: str) -> None:
        self.client.notify("textDocument/didSave", {"textDocument": {"uri": uri}})

    async def hints(self, uri: str) -> list[str]:
        lines = {"start": {"line": 0, "character": 0}, "end": {"line": SIGNATURE + 1, "character": 0}}
        result = await self.client.request(
            "textDocument/inlayHint", {"textDocument": {"uri": uri}, "range": lines}
        )
        return [item["label"] for item in result or []]

    async def click(self, uri: str) -> float:
        """Seconds from the command to the end of its progress, which is when the number is on the line."""
        began = time.perf_counter()
        target = {"uri": uri, "kernel": "saxpy"}
        await self.client.request("workspace/executeCommand", {"command": "orbit.run", "arguments": [target]})

        def ended(message: Json) -> bool:
            if message["method"] != "$/progress" or not message["params"]["token"].startswith("orbit/run "):
                return False  # the file is compiled at the same time, when it was opened or saved
            return message["params"]["value"].get("kind") == "end"

        arrived, message = await self.client.until(ended, began)
        if not _measured(await self.hints(uri)):
            raise SystemExit(f"the click failed: {message['params']['value'].get('message', '')}")
        return arrived - began

    async def number(self, uri: str, began: float) -> float:
        """Seconds until the line carries a number of the present text."""
        since = began
        while not _measured(await self.hints(uri)):
            since, _ = await self.client.until(
                lambda message: message["method"] == "workspace/inlayHint/refresh", since
            )
            since += 1e-9
        return time.perf_counter() - began


def _measured(labels: list[str]) -> bool:
    return any(label.startswith("⏱") and "µs" in label and "edited since" not in label for label in labels)


def compile_alone(file: Path, architecture: str) -> float:
    gencode = f"arch=compute_{architecture},code=sm_{architecture}"
    began = time.perf_counter()
    subprocess.run(
        ["nvcc", "-O3", "-lineinfo", "-gencode", gencode, "-cubin", "-o", f"{file}.cubin", str(file)],
        check=True, capture_output=True,
    )  # fmt: skip
    return time.perf_counter() - began


def architecture() -> str:
    done = subprocess.run([*SERVER, "doctor", "--json"], capture_output=True, text=True, check=False)
    devices = json.loads(done.stdout)["devices"]
    if not devices:
        raise SystemExit("spec_latency needs an NVIDIA GPU")
    capability = devices[0]["capability"]
    return capability.replace(".", "") + ("a" if int(capability.partition(".")[0]) >= 9 else "")


async def measure(folder: Path) -> list[str]:
    options = {"python": sys.executable, "run_timeout_s": 60}
    environment = os.environ | {"XDG_CACHE_HOME": str(folder / "cache")}
    client = await Client.start(SERVER, folder, options, environment)
    client.notify("initialized", {})
    editor = Editor(client)
    target = architecture()

    await editor.click(editor.open(folder / "warm_up.cu"))  # the machine: files of CUDA and torch read once
    first: list[float] = []
    compiling: list[float] = []
    for number in range(FILES):
        file = folder / f"saxpy_{number}.cu"
        uri = editor.open(file)
        editor.edit(uri)  # another text than any before, not compiled yet
        await asyncio.sleep(IDLE_S)
        first.append(await editor.click(uri))
        compiling.append(compile_alone(file, target))
    again = [await editor.click(uri) for _ in range(CLICKS)]
    edited: list[float] = []
    for _ in range(EDITS):
        editor.edit(uri)
        edited.append(await editor.click(uri))

    alone = statistics.median(compiling)
    rows = [
        ("nvcc by itself, to a cubin", alone, ""),
        ("first click on a file, warm worker, check included", statistics.median(first), f"<= {1e3 * (1.1 * alone + 0.4):.0f} ms (1.1 x the compile alone + 400 ms)"),
        ("unchanged click", statistics.median(again), "<= 250 ms"),
        ("click straight after an edit", statistics.median(edited), ""),
    ]  # fmt: skip
    if LIVE in client.capabilities.get("executeCommandProvider", {}).get("commands", []):
        for pause in (0.0, TO_SAVE_S):
            after = f"{1e3 * pause:.0f} ms after the last key" if pause else "straight after an edit"
            rows.append(
                (f"Live: from a save {after} to the new number", await live(editor, uri, pause), "<= 500 ms")
            )
    else:
        print(f"the server offers no {LIVE}", file=sys.stderr)
    await client.stop()
    return [f"| {what} | {1e3 * seconds:.0f} ms | {goal} |" for what, seconds, goal in rows]


async def live(editor: Editor, uri: str, pause: float) -> float:
    target = {"uri": uri, "kernel": "saxpy"}
    await editor.client.request("workspace/executeCommand", {"command": LIVE, "arguments": [target]})
    times: list[float] = []
    for _ in range(EDITS):
        await editor.number(uri, time.perf_counter())
        await asyncio.sleep(IDLE_S)
        editor.edit(uri)
        await asyncio.sleep(pause)
        began = time.perf_counter()
        editor.save(uri)
        times.append(await editor.number(uri, began))
    await editor.client.request("workspace/executeCommand", {"command": LIVE, "arguments": [target]})
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path)
    parser.add_argument("--quick", action="store_true", help="fewer of each")
    options = parser.parse_args()
    global FILES, CLICKS, EDITS
    if options.quick:
        FILES, CLICKS, EDITS = 3, 5, 4
    with tempfile.TemporaryDirectory() as folder:
        rows = asyncio.run(measure(Path(folder)))
    table = "\n".join([
        "## A click on a kernel with a launch spec (saxpy over 24 000 000 floats)",
        "",
        f"Medians; {FILES} files, {CLICKS} clicks and {EDITS} edits each.",
        "",
        "| what | median | target |",
        "|---|---|---|",
        *rows,
    ])  # fmt: skip
    print(table)
    if options.out:
        options.out.write_text(table + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
