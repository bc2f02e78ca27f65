"""`%orbit locate`: the line on which a GPU kernel of a cell fails or hangs.

Stand-in for the driver: the cell itself writes the dump of an H200 where the driver's variables ask for it, and aborts.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from orbit_remote.child import measured_cells
from orbit_remote.worker.faults.cell_faults import CellFaults
from tests.recordings.crashed import source, unpacked
from tests.test_notebook import Kernel, folder, own, press_until_over

__all__ = ["folder", "own"]

DRIVER = """
import os, signal, shutil
def at(variable): return os.environ[variable].replace("%p", str(os.getpid()))
def driver(dump):
    shutil.copy(dump, at("CUDA_COREDUMP_FILE"))
    os.abort()
"""
OWN_NAME = """
import inspect, json, os
name = inspect.currentframe().f_code.co_filename
cells = map(json.loads, open(os.environ["ORBIT_NOTEBOOK_CELLS"]))
[(number, text)] = [(each["number"], each["text"]) for each in cells if each["file"] == name]
print(number, text.splitlines()[0])
"""
CRASHES = "driver({dump!r})  # the kernel `scale` fails"
HANGS = """
import threading
os.mkfifo(at("CUDA_COREDUMP_PIPE"))
signal.signal(signal.SIGINT, signal.SIG_IGN)
def asked():
    open(at("CUDA_COREDUMP_PIPE"), "rb").read(1)
    driver({dump!r})
threading.Thread(target=asked, daemon=True).start()
print("here", flush=True)
import ctypes; ctypes.CDLL(None).pause()
"""
ENDED = "its variables are gone, so run the notebook from its first cell"


@pytest.mark.skipif(sys.platform != "linux", reason="GPU core dumps are read on Linux only")
@pytest.mark.slow
def test_a_fault_and_a_hang_name_their_lines_after_locate(own: Kernel, folder: Path) -> None:
    said = own.run("%orbit locate").splitlines()
    assert said[1].startswith("the kernel ends with this cell. Run the notebook from its first cell")
    assert own.run("%orbit measure on") == (
        "UsageError: orbit: after `%orbit locate` nothing is timed; run `%orbit end` first"
    )
    assert own.run(OWN_NAME) == "2 import inspect, json, os"  # IPython leaves out the empty first line
    own.run(DRIVER)
    crash = own.run(CRASHES.format(dump=str(unpacked("scale", folder))))
    assert crash.splitlines() == [
        f"KernelEnded: the kernel was ended by signal 6 (SIGABRT); {ENDED}",
        "CUDA_ERROR_INVALID_ADDRESS_SPACE: address of the wrong memory space in a load, in block (15,0,0), threads (160,0,0) to (191,0,0) of scale",
        "/src/crash.cu, line 10",
    ]
    own.run(DRIVER)  # a kernel that names lines again
    hang = own.run(HANGS.format(dump=str(unpacked("halfcluster", folder))), press_until_over(own))
    assert hang.splitlines()[1] == (
        f"KernelEnded: the cell did not stop at the first Interrupt, so the second ended its kernel; {ENDED}"
    )
    assert "blocks of halfcluster" in hang
    assert "waited here for their cluster" in hang
    assert own.run("%orbit end").splitlines()[1].startswith("the kernel ends with this cell")
    assert own.run("import os; print('CUDA_COREDUMP_FILE' in os.environ)") == "False"
    assert list(folder.glob("core*")) == []


def test_a_line_of_a_cell_is_shown_with_its_number_and_its_text(tmp_path: Path) -> None:
    faults = CellFaults(tmp_path / "faults")
    unpacked("scale", tmp_path / "faults").rename(tmp_path / "faults" / "1.core")
    cell = {"file": "/in/another/process/crash.cu", "number": 3, "text": source("scale")}
    (tmp_path / "faults" / "cells").write_text(json.dumps(cell) + "\nno JSON\n{}\n[]\n")
    assert faults.text().splitlines()[1] == f"In[3], line 10: {source('scale').splitlines()[9].strip()}"


def test_a_dump_that_is_cut_is_said(tmp_path: Path) -> None:
    faults = CellFaults(tmp_path / "faults")
    assert faults.text() == ""
    (tmp_path / "faults" / "1.core").write_bytes(b"\x7fELF")
    assert faults.text().startswith("the driver left no usable GPU core dump: ")


def _answers_nothing(**_: Any) -> dict[str, Any]:
    return {}


@pytest.mark.parametrize(
    ("error", "failed"),
    [
        ("CUDA error: an illegal memory access was encountered", True),
        ("Triton Error [CUDA]: misaligned address", True),
        ("CUDA_ERROR_LAUNCH_FAILED: unspecified launch failure", True),
        ("CUDA error: device-side assert triggered\nCompile with `TORCH_USE_CUDA_DSA`", True),
        ("CUDA out of memory. Tried to allocate 2.00 GiB", False),
        ("CUDA error: invalid configuration argument", False),
        ("illegal value", False),
        ("", False),
    ],
)
def test_a_cell_whose_kernel_failed_is_told_of_locate_once(error: str, failed: bool, tmp_path: Path) -> None:
    shown: list[dict[str, Any]] = []
    cells = measured_cells.MeasuredCells(tmp_path, _answers_nothing, shown.append)
    result = type("Result", (), {"error_in_exec": RuntimeError(error) if error else None})()
    cells.after(result)
    cells.after(result)
    expected = (
        [{"text": "orbit: a GPU kernel failed: run `%orbit locate` to find its line"}] if failed else []
    )
    assert shown == expected
