"""The settings of a command: the editor's, with those that options and environment variables set."""

from __future__ import annotations

import argparse
import os
from typing import Any, cast

from orbit_lsp.cli import relative_places
from orbit_lsp.cli.terminal_text import UsageError
from orbit_lsp.state import modal_gpus, ssh_hosts
from orbit_lsp.state.session import Session
from orbit_remote.common import architectures, codec

_FROM_OPTIONS = ("gpu", "runner", "device", "run_timeout_s", "build_timeout_s")


def of(options: argparse.Namespace, session: Session) -> dict[str, Any]:
    """Return the editor's settings, with those that options set. Raises UsageError."""
    values = {name: getattr(options, name) for name in _FROM_OPTIONS if getattr(options, name) is not None}
    on = (getattr(options, "on", None) or "").split(",")
    values |= programs(options, by_ssh=any(ssh_hosts.host_of(place) for place in (options.runner or "", *on)))
    if options.gpu:
        session.setup.figures_for = _choose_gpu(options, values)
    limit = budget(options)
    if limit is not None or options.command == "exec":  # which rents nothing unless it is told how much
        values["modal"] = {"budget_usd": limit or 0.0}
    if options.command == "check":
        limit = {"timeout_s": options.run_timeout_s} if options.run_timeout_s is not None else {}
        values["check_memory"] = limit | (
            {"tools": list(dict.fromkeys(options.tools))} if options.tools else {}
        )
    if options.nvcc_flags:
        values["nvcc_flags"] = options.nvcc_flags
    word = {"trusted": True} if options.trust else {}
    own = {"arguments": options.arguments} if hasattr(options, "arguments") else {}
    # a command ends before the preview of every GPU is compiled
    return _editors(options) | values | own | word | {"every_gpu": "off"}


def programs(options: argparse.Namespace, *, by_ssh: bool) -> dict[str, Any]:
    """Return the settings of --python and --nvcc. With `by_ssh` they are programs of the host, but those of
    environment variables stay this machine's. Raises UsageError.
    """
    values: dict[str, Any] = {}
    there: dict[str, str] = {}
    for name in ("python", "nvcc"):
        given = getattr(options, name)
        if given and by_ssh and given != os.environ.get(f"ORBIT_{name.upper()}", "").strip():
            try:
                there[name] = ssh_hosts.program(given)
            except ValueError as mistake:
                raise UsageError(f"--{name}: {mistake}") from None
        elif given:
            values[name] = relative_places.program(given)
    return values | ({"ssh": there} if there else {})


def _choose_gpu(options: argparse.Namespace, values: dict[str, Any]) -> str:
    """Put the GPU that is rented into `values`. Return the architecture to compile for if nothing is run, also on a
    machine with a GPU of its own; else return nothing. Raises UsageError. Whether a run can have this machine's own
    GPU by that name is known later (`RunSetup.gpu_refusal`).
    """
    rented = modal_gpus.rented(options.gpu)
    architecture = architectures.architecture_for(rented.partition(":")[0] or options.gpu)
    if rented:
        values["gpu"] = rented
    if options.command not in (
        "compile",
        "disassemble",
        "debug-compile",
        "show",
        "doctor",
        "draft",
    ) or getattr(options, "run", False):
        try:
            (modal_gpus.spelled if options.runner == "modal" else modal_gpus.compiled_for)(options.gpu)
        except ValueError as mistake:
            option = "--on" if getattr(options, "on", None) == options.gpu else "--gpu"
            raise UsageError(f"{option}: {mistake}") from None
        return ""
    if architecture is None:
        raise UsageError(f"{options.gpu!r:.60} is not a known GPU; give its architecture, as in --gpu sm_89")
    if not rented:
        del values["gpu"]
    return architecture


def _editors(options: argparse.Namespace) -> dict[str, Any]:
    """Return what `doctor --settings` says. Raises UsageError."""
    if not (text := getattr(options, "settings", None)):
        return {}
    try:
        values: Any = codec.read_json(text)
    except ValueError as error:
        raise UsageError(f"--settings is not JSON: {error}") from None
    if not isinstance(values, dict):
        raise UsageError("--settings is not a JSON object")
    return cast("dict[str, Any]", values)


def budget(options: argparse.Namespace) -> float | None:
    """Return the budget in dollars of the month. A variable that is not a number is an error, because it was meant as
    a limit.
    """
    if (given := getattr(options, "budget", None)) is not None:
        return given
    amount = os.environ.get("ORBIT_BUDGET_USD", "").strip()
    try:
        return float(amount) if amount else None
    except ValueError:
        raise UsageError(f"ORBIT_BUDGET_USD is {amount!r:.40}, not a number of dollars") from None
