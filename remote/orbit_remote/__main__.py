"""Starts orbit_remote in a Python that has not installed it: `python -P …/orbit_remote/__main__.py ROLE`.

The user's Python holds their torch and triton, and perhaps packages named like ours or like those
we depend on. Nothing of ours goes on its path: this file registers the one package it stands in, and
`-P` keeps the package's folder itself (where `python FILE` would put it) off the path too.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path

ROLES = {
    "worker": ("worker.main", "main"),
    "devices": ("worker.probe", "list_devices"),
    "template": ("worker.zygote", "main"),
    "child": ("child.child_main", "child_main"),
    "extensions": ("judge.build_ahead", "main"),
    "overhead": ("recording.overhead", "main"),
    "keeper": ("worker.keeper", "main"),
    "cells": ("child.notebook_kernel", "main"),
    "relay": ("ssh_host.relay", "main"),
    "proxy": ("ssh_host.proxy", "main"),
    "notebook": ("ssh_host.notebooks", "main"),
    "leave": ("ssh_host.leave", "main"),
    "reports": ("ncu.report_process", "main"),
}
"""Role -> (module, function); the function takes what is left of the command line."""


def register() -> None:
    """Make `orbit_remote` importable from the folder this file stands in, and nothing else."""
    if "orbit_remote" in sys.modules:
        return
    folder = Path(__file__).resolve().parent
    module_spec = importlib.util.spec_from_file_location(
        "orbit_remote", folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert module_spec is not None
    assert module_spec.loader is not None
    package = importlib.util.module_from_spec(module_spec)
    sys.modules["orbit_remote"] = package
    module_spec.loader.exec_module(package)


def main() -> int:
    if len(sys.argv) < 2 or sys.argv[1] not in ROLES:
        print(f"usage: __main__.py {{{'|'.join(ROLES)}}} …", file=sys.stderr)
        return 64
    register()
    module, function = ROLES[sys.argv[1]]
    return int(getattr(importlib.import_module(f"orbit_remote.{module}"), function)(sys.argv[2:]) or 0)


if __name__ == "__main__":
    sys.exit(main())
