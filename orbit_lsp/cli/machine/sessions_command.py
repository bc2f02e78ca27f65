"""`orbit-lsp sessions`: lists running notebook kernels and rented containers, and ends a kernel."""

from __future__ import annotations

import argparse
import time

from orbit_lsp.cli import json_results
from orbit_lsp.cli.machine.list_results import EndedSessions, RentedGpu, Sessions
from orbit_lsp.cli.terminal_text import refused
from orbit_lsp.queue import notebook_sessions
from orbit_lsp.queue.notebook_sessions import Running
from orbit_lsp.runners.modal.ledger import RentedTime, clock, rented_gpus
from orbit_lsp.state import units
from orbit_remote.common import messages as c
from orbit_remote.common.plain_text import visible


def main(options: argparse.Namespace) -> int:
    kernels = notebook_sessions.running()
    if options.what == "list":
        return _list(kernels, options)
    if not options.name:
        return refused("orbit-lsp sessions end needs the id of a kernel, or all", as_json=options.json)
    chosen = [each for each in kernels if options.name in ("all", each.id)]
    if not chosen and options.name != "all":
        text = (
            f"there is no notebook kernel {options.name!r:.60}; `orbit-lsp sessions list` has them. A container ends with "
            "its kernel or its editor, and `orbit-lsp modal stop` ends them all"
        )
        return refused(text, as_json=options.json)
    ended = [each for each in chosen if notebook_sessions.end(each)]
    if options.json:
        print(json_results.text(EndedSessions(tuple(each.id for each in ended))))
    else:
        print("\n".join(f"ended {each.id}" for each in ended) or "no notebook kernel runs")
    left = [each.id for each in chosen if each not in ended]
    if left and not options.json:
        print(f"still there: {', '.join(left)}")
    return c.EXIT_CODES["infrastructure"] if left else 0


def _list(kernels: list[Running], options: argparse.Namespace) -> int:
    now = clock()
    containers = rented_gpus(now)
    if options.json:
        rented = tuple(RentedGpu(span.id, span.gpu, span.began, _usd(span, now)) for span in containers)
        print(json_results.text(Sessions(tuple(kernels), rented)))
        return 0
    lines = [_kernel_line(each, time.time()) for each in kernels]
    lines += [_container_line(span, now) for span in containers]
    print("\n".join(map(visible, lines)) or "no notebook kernel runs, and no GPU is rented")
    return 0


def _kernel_line(kernel: Running, now: float) -> str:
    cells = f"{kernel.cells} cell{'s' * (kernel.cells != 1)}"
    return f"{kernel.id}  {kernel.place}  {kernel.state_text(now)}, {cells}, since {_minutes(now - kernel.began)}  {kernel.folder}"


def _container_line(span: RentedTime, now: float) -> str:
    usd = _usd(span, now)
    cost = f"{units.money(usd)} so far" if usd is not None else "its price is not known"
    return f"{span.id}  {span.gpu} on Modal  rented for {_minutes(now - span.began)}, {cost}"


def _usd(span: RentedTime, now: float) -> float | None:
    # another program's clock may be ahead of this one's
    return None if span.usd_per_s is None else max(0.0, now - span.began) * span.usd_per_s


def _minutes(seconds: float) -> str:
    return f"{max(0.0, seconds) / 60:.0f} min"
