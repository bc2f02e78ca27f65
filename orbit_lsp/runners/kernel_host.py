"""Keeps one notebook's kernels on a machine that others reach, for the packages above."""

from orbit_remote.modal_app.kernel_host import HostProcess, serve

__all__ = ["HostProcess", "serve"]
