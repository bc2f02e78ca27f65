"""No keystroke asks the disk for anything on the event loop: whoever types does not wait for a network file system."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.remote.nvcc_check import needs_nvcc
from tests.stdio_server import StdioServer

WATCHED = Path(__file__).parent / "watched_server.py"
CUDA = "__global__ void k(int *p) {\n    *p = 1;\n}\n"
TRITON = "import triton\n\n\n@triton.jit\ndef k(x):\n    pass\n"


class Typist:
    def __init__(self, folder: Path, name: str, text: str) -> None:
        self.server = StdioServer([sys.executable, "-P", str(WATCHED)], folder, subprocess.PIPE)
        self.uri, self.version = (folder / name).as_uri(), 1
        (folder / name).write_text(text)
        self.server.open(folder.as_uri(), self.uri, text)

    def said(self, name: str) -> Any:
        """The next line of standard error with that name."""
        assert self.server.process.stderr
        for line in self.server.process.stderr:
            if line.startswith(b"{") and name in (said := json.loads(line)):
                return said[name]
        raise AssertionError("the server has ended")

    def types(self, line: int, text: str) -> None:
        self.version += 1
        document = {"uri": self.uri, "version": self.version}
        place = {"line": line, "character": 0}
        change = {"range": {"start": place, "end": place}, "text": text}
        self.server.send("textDocument/didChange", {"textDocument": document, "contentChanges": [change]})

    def looks(self) -> None:
        """As an editor does after an edit."""
        document = {"textDocument": {"uri": self.uri}}
        whole = {"start": {"line": 0, "character": 0}, "end": {"line": 99, "character": 0}}
        self.server.ask("textDocument/codeLens", document)
        self.server.ask("textDocument/inlayHint", document | {"range": whole})

    def reads(self) -> list[Any]:
        """What the event loop has asked of the disk since the second edit."""
        self.server.send("textDocument/didClose", {"textDocument": {"uri": self.uri}})
        reads = self.said("reads")
        self.server.leave()
        return reads


@needs_nvcc
def test_a_keystroke_in_a_cuda_file_and_the_compile_after_it_read_nothing(tmp_path: Path) -> None:
    typist = Typist(tmp_path, "k.cu", CUDA)
    assert typist.said("event") == "agrees"
    for _ in range(2):
        typist.types(1, " ")
        assert typist.said("event") in ("checked", "agrees")
        typist.looks()
    typist.types(1, "wrong;\n")
    typist.server.until(lambda message: 'identifier \\"wrong\\"' in json.dumps(message))
    assert typist.reads() == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("k.py", TRITON),
        pytest.param("k.cuh", CUDA, marks=pytest.mark.slow),
        pytest.param("k.h", CUDA, marks=pytest.mark.slow),
        pytest.param("k.cu", f"// orbit: launch k<<<1, 1>>>(p)\n{CUDA}", marks=pytest.mark.slow),
    ],
)
def test_a_keystroke_in_any_file_reads_nothing(tmp_path: Path, name: str, text: str) -> None:
    typist = Typist(tmp_path, name, text)
    typist.looks()
    for _ in range(3):
        typist.types(1, "\n")
        typist.looks()
    # the first compile may begin behind the second edit, and starts the worker
    assert [read for read in typist.reads() if read[3]] == []
