"""What a client shows beside the text: status, runs, GPUs and history as trees of items. The client only draws them.

The answer of the request `orbit/panel` is JSON: `status`, the lists `runs`, `gpus` and `history`, `choices` for a
picker of GPUs, and `done`, the steps of a first session that the author has completed. Icons are names of VS Code's
codicons. An item's `command` is for a click; its `actions` are further ones by name.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orbit_lsp import __version__
from orbit_lsp.history.version_groups import grouped
from orbit_lsp.queue import notebook_sessions
from orbit_lsp.runners.modal.ledger import clock, rented_gpus
from orbit_lsp.state import units
from orbit_lsp.state.kernel_ids import KernelId
from orbit_lsp.state.session import path_of
from orbit_lsp.views import version_table

if TYPE_CHECKING:
    from orbit_lsp.history.history_store import HistoryEntry
    from orbit_lsp.server.language_server import OrbitServer
    from orbit_lsp.server.run_log import LoggedRun

_ICONS = {"ok": "pass", "cancelled": "circle-slash", "timed out": "watch", "infrastructure": "warning"}
_SCOPES = re.compile(r"(?:\w+::)+")
"""Namespaces: a side bar shows a time behind a short name alone."""
_RUNS = 500
"""Of a file's history, which are read for the tree."""
_VERSIONS = 12
_BARS = "▁▂▃▄▅▆▇█"

Json = dict[str, Any]


async def content(ls: OrbitServer) -> Json:
    await ls.places.settings.configured.wait()
    return {
        "status": status(ls),
        "runs": [_run(ls, each) for each in reversed(ls.watcher.runs.all())],
        "gpus": gpus(ls)
        + await asyncio.to_thread(_elsewhere, {each.container for each in ls.places.rental.sessions()}),
        "choices": choices(ls),
        "history": await _history(ls),
        "done": sorted(done(ls)),
    }


async def _history(ls: OrbitServer) -> list[Json]:
    """Return the history of each file. It is read again only if a run has ended since, here or in another program."""
    runs_listed: list[Json] = []
    ended = ls.versions.news + sum(bool(each.outcome) for each in ls.watcher.runs.all())
    for uri in list(ls.session.files):
        kernels = {target.key: target for target, _, _ in ls.session.kernels(uri)}
        if not kernels:
            continue
        known = ls.history_items.get(uri)
        if known is None or known[0] != ended:
            entries = await ls.versions.entries(ls.session.path(uri), most=_RUNS)
            by_kernel = {name: [entry for entry in entries if entry.kernel == name] for name in kernels}
            items = [_kernel(kernels[name], kept) for name, kept in by_kernel.items() if kept]
            known = ls.history_items[uri] = (ended, items)
        runs_listed += known[1]
    return runs_listed


def status(ls: OrbitServer) -> Json:
    """Return the status `H100 80GB HBM3 · Run saxpy, 2 more`, and its details: the version, where runs go, each run
    and rented GPU.
    """
    setup, rented = ls.session.setup, ls.places.rental.sessions()
    own = setup.own_gpu()
    running = [each for each in ls.watcher.runs.all() if not each.outcome]
    if setup.place() == "modal":
        gpu = setup.rents()
        text, where = (
            f"{gpu or 'no GPU'} · Modal",
            f"{gpu}, rented from Modal" if gpu else "the setting `gpu` names no GPU of Modal",
        )
    elif own:
        short = own.name.removeprefix("NVIDIA ")
        text, where = f"{setup.host} · {short}" if setup.host else short, f"{own.name}, of {setup.owner}"
    else:
        looked = setup.machine is not None
        text, where = ("no GPU", "no GPU found") if looked else ("orbit-lsp", "looking for a GPU")
        if setup.host and ls.places.unreached:
            text, where = setup.host, ls.places.unreached.message
    icon = "sync~spin" if running else "flame" if rented else "circuit-board"
    if running:
        more = f", {len(running) - 1} more" if len(running) > 1 else ""
        text = f"{text} · {_SCOPES.sub('', running[0].title)}{more}"
    lines = [
        f"orbit-lsp {__version__}",
        where,
        *(each.title for each in running),
        *map(ls.places.rental.session_text, rented),
    ]
    return {"text": text, "icon": icon, "tooltip": "\n".join(lines)}


def _run(ls: OrbitServer, run: LoggedRun) -> Json:
    target = next(iter(sorted(run.targets)), None)
    arguments = _named(target) if target else {"uri": run.uri}
    kernel = ls.session.find(target) if target else None
    actions: dict[str, Json] = {}
    if not run.outcome:
        icon, text = "sync~spin", "running"
        actions["cancel"] = _command("orbit.cancel", arguments)
    else:
        icon, text = _ICONS.get(run.outcome, "error"), run.ending
    if target in ls.session.results.profiles or target in ls.session.results.runs:
        actions["report"] = _command("orbit.openReport", arguments)
    leads = run.uri in ls.session.files or Path(path_of(run.uri)).exists()
    return {
        "label": _SCOPES.sub("", run.title),
        "description": text,
        "tooltip": run.text()[-2000:],
        "icon": icon,
        **({"uri": run.uri, "line": kernel.line if kernel else 0} if leads else {}),
        "actions": actions,
    }


def gpus(ls: OrbitServer) -> list[Json]:
    """Return the GPUs: this machine's, the rented ones with their end and cost, and the one that would be rented."""
    setup = ls.session.setup
    here = setup.own_gpu() if setup.place() == "local" else None
    items: list[Json] = [
        {
            "label": device.name.removeprefix("NVIDIA "),
            "description": f"{setup.owner} · runs go here" if device == here else setup.owner,
            "icon": "pass-filled" if device == here else "circuit-board",
            "command": _command("orbit.chooseGpu", {"gpu": setup.settings.runner if setup.host else "local"}),
        }
        for device in (setup.machine.devices if setup.machine else ())
    ]
    for rented in ls.places.rental.sessions():
        name, _, text = ls.places.rental.session_text(rented).partition(": ")
        actions = {
            "release": _command("orbit.release", {"gpu": rented.gpu}),
            "keep": _command("orbit.keepWarm", {"gpu": rented.gpu, "keep": not rented.kept}),
        }
        items.append({"label": name, "description": text, "icon": "flame", "actions": actions})
    if setup.modal_account and (gpu := setup.rents()):
        chosen = setup.place() == "modal"
        price = ls.places.rental.costs.price(gpu)
        items.append(
            {
                "label": f"Modal: {gpu}",
                "description": " · ".join([price.hourly] * bool(price) + ["runs go here"] * chosen)
                if price
                else "",
                "icon": "pass-filled" if chosen else "cloud",
                "command": _command("orbit.chooseGpu", {"gpu": gpu}),
            }
        )
    return items


def _elsewhere(own: Collection[str]) -> list[Json]:
    """Return this user's notebook kernels, and the GPUs that their other programs have rented. `own` are this
    server's.
    """
    now = clock()
    items: list[Json] = [
        {
            "label": f"Notebook in {Path(kernel.folder).name or kernel.folder}",
            "description": f"{kernel.place} · {kernel.state_text(now)} · since {max(0.0, now - kernel.began) / 60:.0f} min",
            "tooltip": f"{kernel.folder}, process {kernel.pid}",
            "icon": "notebook",
            "actions": {"release": _command("orbit.release", {"session": kernel.id})},
        }
        for kernel in notebook_sessions.running()
    ]
    for span in rented_gpus(now):
        if span.id not in own:
            usd = None if span.usd_per_s is None else (now - span.began) * span.usd_per_s
            cost = [units.money(usd)] if usd is not None else []
            text = " · ".join(
                [f"rented for {max(0.0, now - span.began) / 60:.0f} min", *cost, "by another program"]
            )
            items.append({"label": f"{span.gpu} on Modal", "description": text, "icon": "flame"})
    return items


def choices(ls: OrbitServer) -> list[Json]:
    setup = ls.session.setup
    local = setup.place() == "local"
    now = "local" if local and setup.own_gpu() else setup.settings.gpu
    if setup.host:
        now = setup.settings.runner
    listed = ls.places.gpu_choices(with_own=True)
    return [
        {"label": label, "gpu": gpu, "now": gpu in (now, setup.settings.gpu)} for label, gpu in listed.items()
    ]


def done(ls: OrbitServer) -> set[str]:
    from orbit_lsp.views import kernel_status

    kernels = [known for uri in list(ls.session.files) for known in kernel_status.of(ls.session, uri)]
    steps = {
        "kernel": bool(kernels),
        "spec": any(known.plan.through == "spec" for known in kernels),
        "run": any(result.finished.outcome == "ok" for result in ls.session.results.runs.values()),
        "gpu": ls.session.setup.place() == "modal" or ls.session.setup.own_gpu() is not None,
    }
    return {name for name, reached in steps.items() if reached}


def _kernel(target: KernelId, entries: list[HistoryEntry]) -> Json:
    """Return a kernel with its versions, the newest first. Its times are a line of small bars."""
    rows = version_table.rows(entries)
    times = [row.ns for row in rows if row.ns is not None]
    last = f"{units.time(times[-1])} " if times else ""
    children: list[Json] = []
    for row in reversed(rows[-_VERSIONS:]):
        entry = row.version.runs[-1]
        device = entry.result.finished.device
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.at))
        gpu = device.name.removeprefix("NVIDIA ") if device else ""
        outcome = entry.result.finished.outcome
        children.append(
            {
                "label": units.time(row.ns)
                if row.ns is not None
                else entry.action
                if outcome == "ok"
                else outcome,
                "description": " · ".join(filter(None, (f"version {row.number}", gpu, when))),
                "icon": _ICONS.get(outcome, "error"),
                "command": _command("orbit.history", _named(target)),
            }
        )
    return {
        "label": _SCOPES.sub("", target.key),
        "description": f"{last}{bars(times)} {target.uri.rpartition('/')[2]}",
        "tooltip": f"{target.key}: {len(grouped(entries))} versions, {len(entries)} runs; click for the plot",
        "icon": "graph-line",
        "command": _command("orbit.history", _named(target)),
        "actions": {
            "compare": _command("orbit.compareWith", _named(target)),
            "export": _command("orbit.export", _named(target)),
        },
        "children": children,
    }


def bars(times: list[float]) -> str:
    """Return bars for the last twelve times. The longest is a full bar. A single time has none."""
    shown = times[-_VERSIONS:]
    if len(shown) < 2:
        return ""
    return "".join(_BARS[round((len(_BARS) - 1) * each / max(shown))] for each in shown)


def _named(target: KernelId) -> Json:
    return {"uri": target.uri, "kernel": target.key}


def _command(name: str, argument: Mapping[str, Any]) -> Json:
    return {"command": name, "arguments": [dict(argument)]}
