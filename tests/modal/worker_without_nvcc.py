"""The real worker of an author's machine, which finds no CUDA compiler there, as on a laptop with macOS.
Started as the server starts it: `… -P PACKAGE/__main__.py worker OPTIONS`.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(sys.argv[2]).parents[1]))

from orbit_remote.toolchain import nvcc
from orbit_remote.worker import main as worker_main

nvcc.candidates = lambda environment, python=None: iter(())
worker_main.main(sys.argv[4:])
