"""Whether an installed orbit-lsp works: its version, its compiler's figures, a lens over LSP, a clean end.

python3 scripts/smoke.py PROGRAM VERSION

Standard library only, and nothing of the clone: what is tried is what was installed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, Any

LIMIT_S = 120
SOURCE = """\
// orbit: n = 1 << 20; x = randn(n); y = randn(n)
// orbit: launch saxpy<<<(n + 255) / 256, 256>>>(n, 2.0f, x, y)
__global__ void saxpy(int n, float a, const float* x, float* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}
"""


def main() -> None:
    program, version = sys.argv[1:]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    with tempfile.TemporaryDirectory(prefix="orbit-smoke-") as folder:
        environment["HOME"] = environment["XDG_CACHE_HOME"] = environment["XDG_STATE_HOME"] = folder
        source = Path(folder, "saxpy.cu")
        source.write_text(SOURCE, encoding="utf-8")

        def ask(*arguments: str) -> str:
            done = subprocess.run(
                [program, *arguments], cwd=folder, env=environment, text=True, encoding="utf-8", timeout=LIMIT_S,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
            )  # fmt: skip
            if done.returncode:
                sys.exit(f"{' '.join(arguments)}: exit code {done.returncode}\n{done.stdout}")
            return done.stdout

        message = ask("--version")
        if message.split() != ["orbit-lsp", version]:
            sys.exit(f"--version says {message.strip()!r}, not orbit-lsp {version}")
        figures = ask("compile", "saxpy.cu")
        if "reg" not in figures:
            sys.exit(f"compile says no registers:\n{figures}")
        titles = lenses(program, source, environment)
        if not any("Run" in title for title in titles):
            sys.exit(f"no lens to run the kernel, but {titles}")
        print(f"{message.strip()}: compiles, {titles[0]!r}, ends cleanly")


def lenses(program: str, source: Path, environment: dict[str, str]) -> list[str]:
    """The titles of the lenses of a file, from a server that is started and ended for it."""
    server = subprocess.Popen(
        [program], cwd=source.parent, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert server.stdin
    assert server.stdout
    try:
        folder = {"uri": source.parent.as_uri(), "name": "smoke"}
        opened = {"uri": source.as_uri(), "languageId": "cuda", "version": 1, "text": SOURCE}
        ask(
            server,
            1,
            "initialize",
            {"processId": None, "capabilities": {}, "rootUri": None, "workspaceFolders": [folder]},
        )
        say(server.stdin, {"method": "initialized", "params": {}})
        say(server.stdin, {"method": "textDocument/didOpen", "params": {"textDocument": opened}})
        answer = ask(server, 2, "textDocument/codeLens", {"textDocument": {"uri": source.as_uri()}})
        ask(server, 3, "shutdown", None)
        say(server.stdin, {"method": "exit"})
        if code := server.wait(LIMIT_S):
            sys.exit(f"the server ended with {code}")
        return [lens["command"]["title"] for lens in answer]
    finally:
        server.kill()


def ask(server: subprocess.Popen[bytes], number: int, method: str, params: Any) -> Any:
    assert server.stdin
    assert server.stdout
    say(server.stdin, {"id": number, "method": method, "params": params})
    while (message := hear(server.stdout)).get("id") != number or "method" in message:
        pass
    if "error" in message:
        sys.exit(f"{method}: {message['error']}")
    return message["result"]


def say(stream: IO[bytes], message: dict[str, Any]) -> None:
    body = json.dumps({"jsonrpc": "2.0", **message}).encode()
    stream.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
    stream.flush()


def hear(stream: IO[bytes]) -> dict[str, Any]:
    length = 0
    while line := stream.readline().strip():
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    if not length:
        sys.exit("the server has ended its output")
    return json.loads(stream.read(length))


if __name__ == "__main__":
    main()
