"""What becomes of a cell's launches in the history: which kernels they are of, and under which notebook."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import pytest

from orbit_lsp.history.history_store import HistoryStore
from orbit_lsp.notebook.cell_commands import CellCommands
from orbit_lsp.notebook.cell_history import entries
from orbit_lsp.notebook.served import Served
from orbit_lsp.queue.request import Action
from orbit_lsp.runners.api_client import EvaluationServer
from orbit_lsp.state.user_folders import state_folder
from orbit_remote.common import messages as c
from orbit_remote.common.measurements import Timing

CUDA = """%%cuda
// orbit: n = 1 << 20; x = randn(n)
// orbit: launch first<<<n / 256, 256>>>(x)
__global__ void first(float* x) {}
template <typename T> __global__ void second(T* x) {}
"""
TRITON = "@triton.jit\ndef first(x): pass\n\n@triton.jit\ndef second(x): pass\n"


def launches(name: str, *, file: str = "", line: int = 0) -> c.Launches:
    place = c.Place(file, line) if file else None
    return c.Launches(name, name, (1, 1, 1), (256, 1, 1), Timing(50, 1000.0, "cold L2"), 50, place=place)


def finished(*made: c.Launches, **more: Any) -> c.Finished:
    return c.Finished("1", "ok", launches=made, **more)


@pytest.mark.parametrize(
    ("text", "made", "kept"),
    [
        (CUDA, [launches("first")], [("first", "spec", 1)]),
        (CUDA, [launches("second<float>"), launches("second<int>")], [("second", "program", 2)]),
        (CUDA, [launches("cub::DeviceScan")], []),
        (TRITON, [launches("a", file="/nb.ipynb", line=2), launches("b", file="/nb.ipynb", line=5)], [("first", "program", 1), ("second", "program", 1)]),
        (TRITON, [launches("third", file="/tmp/other.py", line=2)], []),
        ("%%bash\nls", [launches("first")], []),
        ("", [launches("first")], []),
    ],
)  # fmt: skip
def test_the_kernels_that_a_cells_launches_are_of(
    text: str, made: list[c.Launches], kept: list[tuple[str, str, int]]
) -> None:
    filed = entries("/nb.ipynb", "run", finished(*made), text)
    assert [(each.kernel, each.result.through, len(each.result.launches)) for each in filed] == kept
    assert all((each.path, each.action) == ("/nb.ipynb", "run") for each in filed)


def test_a_profile_is_one_of_the_kernels_that_were_counted() -> None:
    counted = c.Profile("first", "first", "counters")
    filed = entries("/nb.ipynb", "profile", finished(launches("second"), profiles=(counted,)), CUDA)
    assert [(each.kernel, each.action, len(each.result.finished.profiles)) for each in filed] == [
        ("first", "profile", 1)
    ]


class Answering(Served):
    """Stands in for a server with a GPU: each job is answered with this result, as its record has it."""

    def __init__(self, folder: Path, result: dict[str, Any]) -> None:
        super().__init__(EvaluationServer("http://127.0.0.1:1"), folder, "never")
        self._result = result

    async def job(self, action: Action, name: str, kernel: str | None, text: str) -> dict[str, Any]:
        return {"outcome": "ok", "summary": "first 1 µs", "text": "id\nfirst 1 µs", "result": self._result}


@pytest.mark.parametrize(
    ("result", "kept"),
    [
        ({"finished": json.loads(json.dumps(asdict(finished(launches("first")))))}, ["first"]),
        ({"finished": {"run": 7}}, []),
        ({}, []),
    ],
    ids=["its own version", "another version", "none"],
)
async def test_a_servers_result_is_in_the_history_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, result: dict[str, Any], kept: list[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("ORBIT_API_TOKEN", "token")
    commands = CellCommands(cast("Any", None), "", tmp_path, far=cast("Any", Answering(tmp_path, result)))
    asked = {
        "do": "cuda",
        "words": [],
        "text": CUDA.partition("\n")[2],
        "notebook": str(tmp_path / "nb.ipynb"),
    }
    assert "first 1 µs" in (await commands.answer(asked))["text"]
    store = HistoryStore(lambda: state_folder() / "history.sqlite")
    assert store.kernels(str(tmp_path / "nb.ipynb")) == kept
