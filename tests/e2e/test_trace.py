"""`orbit-lsp trace` on a machine without a GPU: torch.profiler records what the CPU does."""

from __future__ import annotations

import gzip
import json
import os
import re
import sys
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from orbit_lsp.cli.json_results import Trace
from tests.e2e.forks import Ended, command

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers run on Linux")
FILE = """\
import torch

def main():
    for _ in range(3):
        torch.rand(64, 64).relu()
    print("done")
"""


def trace(folder: Path, *words: str) -> Ended:
    return command(
        folder, "trace", *words, "--runner", "local", environment={"XDG_CACHE_HOME": str(folder / "cache")}
    )


@pytest.mark.slow
def test_a_trace_is_kept_and_its_operators_are_a_table(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "t.py").write_text(FILE)
    done = trace(tmp_path, "t.py", "--python", sys.executable)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(
        "done\noperators on the CPU, longest first, without the operators that they call\n"
    )
    assert re.search(r"^  aten::clamp_min +3 +[\d.]+ [µm]s$", done.stdout, re.MULTILINE), done.stdout
    kept = re.search(r"open ui.perfetto.dev in a browser, and there this file: (.*)\n", done.stderr)
    assert kept, done.stderr
    assert Path(kept[1]).parent == tmp_path / "cache" / "orbit-lsp" / "reports"
    events = json.loads(gzip.decompress(Path(kept[1]).read_bytes()))["traceEvents"]
    assert [event["name"] for event in events if event.get("cat") == "cpu_op"].count("aten::relu") == 3


def test_what_cannot_be_traced(tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text("print(1)\n")
    (tmp_path / "k.cu").write_text("int main() {}\n")
    done = trace(tmp_path, "t.py", "--python", os.path.realpath(sys.executable))
    assert done.returncode == 5
    assert done.stderr.endswith(
        "error: a trace needs torch.profiler, and this Python has no torch [infrastructure]\n"
        "  install torch there, or choose a Python with --python\n"
    )
    text = trace(tmp_path, "t.py", "--python", os.path.realpath(sys.executable), "--json").stdout
    answer = TypeAdapter(Trace).validate_json(text, strict=True)
    assert (answer.trace, answer.finished.outcome) == (None, "infrastructure")
    done = trace(tmp_path, "k.cu")
    assert (done.returncode, done.stderr) == (
        64,
        "orbit-lsp: error: k.cu is not a Python file: torch.profiler traces Python files only\n",
    )
