"""The real worker of an author's machine, which finds no CUDA compiler there, as on a laptop with macOS.
Started as the server starts it: `… -P PACKAGE/__main__.py worker OPTIONS`.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(sys.argv[2]).parents[1]))

from orbit_remote import nvcc, worker

nvcc.candidates = lambda environment, python=None: iter(())
worker.main(sys.argv[4:])
