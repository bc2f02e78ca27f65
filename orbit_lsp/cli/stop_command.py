"""`orbit-lsp stop`: end the workers that this user's editors and commands share."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys

from orbit_lsp.runners import shared_worker

INFRASTRUCTURE = 5


def main(options: argparse.Namespace) -> int:
    try:
        ended = asyncio.run(shared_worker.stop())
    except shared_worker.WorkerError as error:
        print(f"orbit-lsp: error: {error}", file=sys.stderr)
        return INFRASTRUCTURE
    if options.json:
        print(json.dumps({"stopped": ended}))
    elif ended:
        print(f"stopped {len(ended)} worker{'s' * (len(ended) > 1)}: process {', '.join(map(str, ended))}")
    else:
        print("no worker runs")
    return 0
