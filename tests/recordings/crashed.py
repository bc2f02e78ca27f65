"""Runs that failed or hung on an H200 (driver 580.159.04, 2026-11-29): their GPU core dumps, and the reports made of these."""

from __future__ import annotations

import lzma
import tempfile
from pathlib import Path

from orbit_remote.common import messages as c
from orbit_remote.toolchain import gpu_dump
from orbit_remote.worker.faults import fault_report

RECORDED = Path(__file__).parent / "gpu_dumps"
HANGS = ("halfcluster",)


def unpacked(name: str, folder: Path) -> Path:
    path = folder / f"{name}.core"
    path.write_bytes(lzma.decompress((RECORDED / f"{name}.core.xz").read_bytes()))
    return path


def source(name: str) -> str:
    """The program whose kernel `name` failed."""
    return (RECORDED / ("hang.cu" if name in HANGS else "crash.cu")).read_text()


def report(name: str, path: str, run: str = "r") -> c.Finished:
    """The end of the run of the kernel `name`, in the file at `path`."""
    with tempfile.TemporaryDirectory() as folder:
        dump = gpu_dump.read(unpacked(name, Path(folder)))

    def own(file: str) -> str | None:
        return str(Path(path).with_name(Path(file).name)) if file.startswith("/src/") else None

    if name in HANGS:
        failure = c.Failure("timed out", "the run was ended at its limit of 2 s")
        return fault_report.with_standing(c.failed(run, failure), dump, own)
    problem = c.Problem("error", "a kernel failed", "cuda", code=dump.error())
    failure = c.Failure("runtime error", "a kernel failed", "see compute-sanitizer")
    return fault_report.with_fault(c.failed(run, failure, problems=(problem,)), dump, own)
