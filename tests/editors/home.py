"""A home folder of an author: a workspace, `orbit-lsp` on PATH, and a recorded H100 as its GPU.

The server is the real one (patient_server.py); its GPU side is tests/e2e/recorded_worker.py, because these machines have no GPU.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SERVER = f'exec {shlex.quote(sys.executable)} -P {shlex.quote(str(Path(__file__).parent / "patient_server.py"))} "$@"'
SAXPY = """\
__global__ void saxpy(int n, float a, const float* x, float* y) {
  y[n] = a * x[n];
}
int main() { saxpy<<<1, 256>>>(0, 1, 0, 0); }
"""
ALONE = """\
__global__ void scale(int n, float a, float* x) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] *= a;
}
"""
HEADER = ALONE.replace("int n", "Count n")
"""Of a header: it compiles through SOURCE alone."""
SOURCE = 'using Count = int;\n#include "scale.hpp"\n'
PROFILED = (ROOT / "tests" / "recordings" / "profiles" / "memory_bound.cu").read_text()
"""Run and profiled on an H100 in one session; the recorded one says the same."""
RUN_TIME = "73.4 µs"
PROFILE_TIME = "70.7 µs"
"""Of PROFILED: the median of its run, and the launch that was profiled."""
TIME = "288 µs"
"""What the recorded H100 says of every other program."""


def outside_environments(path: str) -> list[str]:
    """The folders of a PATH but those of virtual environments, in whose packages a type checker would look."""
    return [part for part in path.split(os.pathsep) if not (Path(part).parent / "pyvenv.cfg").exists()]


class Home:
    """`server` is what the shell runs as `orbit-lsp`; `beside` are further programs to have on PATH."""

    def __init__(self, folder: Path, *, server: str = SERVER, beside: tuple[Path, ...] = ()) -> None:
        self.folder = folder
        self.workspace = folder / "workspace"
        (self.workspace / ".git").mkdir(parents=True)
        (folder / "bin").mkdir()
        worker = ROOT / "tests" / "e2e" / "recorded_worker.py"
        self.python = self.program(
            "recorded-python", f'exec {shlex.quote(sys.executable)} {shlex.quote(str(worker))} "$@"'
        )
        self.program("orbit-lsp", server)
        for path in beside:
            (folder / "bin" / path.name).symlink_to(path)
        self.environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("NVIM", "XDG_", "MODAL_", "TMUX", "VIRTUAL_ENV"))
        } | {
            "HOME": str(folder),
            "PATH": os.pathsep.join([str(folder / "bin"), *outside_environments(os.environ["PATH"])]),
            "DISPLAY": ":0",  # a browser is offered only where it can have a window
            "PYTHONPATH": f"{ROOT / 'remote'}{os.pathsep}{ROOT}",
        }
        for kind in ("config", "data", "state", "cache"):
            self.environment[f"XDG_{kind.upper()}_HOME"] = str(folder / kind)

    def program(self, name: str, script: str) -> Path:
        path = self.folder / "bin" / name
        path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        path.chmod(0o755)
        return path

    def write(self, name: str, text: str) -> Path:
        """A file of the workspace."""
        path = self.workspace / name
        path.write_text(text, encoding="utf-8")
        return path

    def opened(self) -> str:
        """What was handed to a browser, where that writes it to `~/opened`."""
        path = self.folder / "opened"
        return path.read_text() if path.exists() else ""

    def configure(self, name: str, text: str) -> Path:
        """A file of an editor's configuration, such as `helix/config.toml`."""
        path = self.folder / "config" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path
