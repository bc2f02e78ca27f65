"""The real worker in its own package, told that its machine has an H100: programs are built and run for real,
in a container that has no GPU. Started as a container starts its Python:
`… -P PACKAGE/__main__.py worker --cache FOLDER`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(sys.argv[2]).parents[1]))

from orbit_remote.common import messages as c
from orbit_remote.worker import lease, probe
from orbit_remote.worker import main as worker_main

DEVICE = c.Device("NVIDIA H100 80GB HBM3", 0, "9.0", driver="580.159.04", multiprocessors=132)

probe.all_devices = lambda: (DEVICE,)
# a container has a /tmp of its own, and a GPU that no other container waits for
lease.EVERYBODYS = Path(sys.argv[2]).parents[1] / f"gpu-{os.getpid()}"
worker_main.main(sys.argv[4:])
