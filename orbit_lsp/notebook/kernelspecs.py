"""The entries in Jupyter's kernel pickers that start our kernel: writes, lists and removes them."""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel

from orbit_remote.common.lazy_dataclass import dataclass

_MARK = "orbit"
_PREFIX = "orbit-"


class KernelspecError(ValueError):
    """The text is the sentence to say."""


@dataclass(frozen=True, slots=True)
class InstalledKernelspec:
    name: str
    title: str
    folder: str
    command: str


def install(
    name: str, options: Sequence[str], on: str = "local", where: str = "this GPU"
) -> InstalledKernelspec:
    """Write a kernelspec into the user's data folder of Jupyter. It replaces one of the same name. Its cells run `on`
    this machine or another (`modal:H100`), which `where` names for people. `options` are given to `orbit-lsp kernel
    run`. Raises KernelspecError and OSError.
    """
    label = " ".join(name.split())
    slug = re.sub(r"[^a-z0-9._-]+", "-", label.lower()).strip("-.")
    if name and not slug:
        raise KernelspecError(
            f"{name!r:.60} has no letter or digit that a kernel's name can have; give another --name"
        )
    place = re.sub(r"[^a-z0-9]+", "-", on.lower()).strip("-")
    identifier = f"{_PREFIX}{slug or place}"
    title = f"Orbit: {label or where}"
    spec = {
        "argv": [
            sys.executable, "-P", "-m", "orbit_lsp", "kernel", "run",
            *("--connection-file", "{connection_file}"), *options,
        ],
        "display_name": title,
        "language": "python",
        "interrupt_mode": "message",
        "metadata": {"debugger": True, _MARK: {"on": on}},
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as made:
        (Path(made) / "kernel.json").write_text(json.dumps(spec, indent=1) + "\n")
        folder = KernelSpecManager().install_kernel_spec(made, identifier, user=True)
    return InstalledKernelspec(identifier, title, folder, " ".join(spec["argv"]))


def installed() -> list[InstalledKernelspec]:
    """Return our kernelspecs, by name."""
    manager = KernelSpecManager()
    ours: list[InstalledKernelspec] = []
    for name, place in sorted(manager.find_kernel_specs().items()):
        try:
            spec = manager.get_kernel_spec(name)
        except (NoSuchKernel, ValueError, OSError):  # another's, and broken
            continue
        if _MARK in spec.metadata:
            ours.append(InstalledKernelspec(name, spec.display_name, place, " ".join(spec.argv)))
    return ours


def remove(name: str) -> InstalledKernelspec:
    """Raises KernelspecError and OSError."""
    ours = installed()
    for each in ours:
        if name in (each.name, each.title):
            KernelSpecManager(ensure_native_kernel=False).remove_kernel_spec(each.name)
            return each
    have = ", ".join(each.name for each in ours) or "none"
    raise KernelspecError(f"there is no kernel {name!r:.60} of orbit-lsp; installed: {have}")
