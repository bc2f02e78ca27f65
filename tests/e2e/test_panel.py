"""What stands beside the text in an editor: runs, GPUs, history, output, exports. The GPU side is recorded
(recorded_worker.py): these machines have none.
"""

from __future__ import annotations

import asyncio
import csv
import json
import sys
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from tests.e2e.conftest import Editor
from tests.e2e.test_dumps import content
from tests.e2e.test_history import SAXPY, click, opened, state

__all__ = ["state"]
KERNEL = """
import signal
from pathlib import Path
from orbit_lsp.queue.notebook_sessions import Registered
from orbit_lsp.runners.modal.ledger import Ledger, RentedTime, clock, ledger_file
Ledger(ledger_file).put(RentedTime("ta-1", "H100", clock() - 600, clock() + 600, 0.001, "rates"))
kernel = Registered("H100 on Modal", Path.cwd())
print(kernel._owner.id, flush=True)
signal.pause()
"""


async def panel(editor: Editor) -> dict[str, Any]:
    return plain(await editor.client.protocol.send_request_async("orbit/panel", {}))


def plain(value: Any) -> Any:
    """pygls makes a named tuple of each object whose type it does not know."""
    if hasattr(value, "_asdict"):
        return {name: plain(inner) for name, inner in value._asdict().items()}
    return [plain(each) for each in value] if isinstance(value, list | tuple) else value


async def shown(editor: Editor, suffix: str) -> str:
    """The text of the newest file of that suffix that the editor was asked to open."""
    documents = editor.client.shown_documents
    show_document_paramses = await editor.until(
        lambda: [
            document for document in documents if document.uri.endswith(suffix) and not document.external
        ]
    )
    return content(unquote(urlsplit(show_document_paramses[-1].uri).path))[1]


async def test_the_trees_have_the_run_the_gpu_and_the_history(start, recorded_python) -> None:
    editor = await opened(start, recorded_python)
    before = await panel(editor)
    assert (before["runs"], before["history"], before["done"]) == ([], [], ["gpu", "kernel", "spec"])
    assert before["status"]["text"] == "H100 80GB HBM3"
    assert [(item["label"], item["description"]) for item in before["gpus"]] == [
        ("H100 80GB HBM3", "this machine · runs go here")
    ]
    await click(editor)
    after = await panel(editor)
    (run,), (kernel,) = after["runs"], after["history"]
    assert (run["label"], run["icon"], run["line"], list(run["actions"])) == (
        "Run saxpy",
        "pass",
        5,
        ["report"],
    )
    assert "288 µs" in run["description"]
    assert (kernel["label"], kernel["children"][0]["label"]) == ("saxpy", "288 µs")
    assert after["done"] == ["gpu", "kernel", "run", "spec"]
    assert (
        next(item["label"] for item in after["choices"] if item["now"]) == "H100 80GB HBM3, of this machine"
    )


async def test_the_status_names_what_runs(start, recorded_python) -> None:
    editor = await opened(start, recorded_python, text=SAXPY + "// SLOW\n")
    await editor.command("orbit.run", {"uri": editor.uri, "kernel": "saxpy"})
    status = (await panel(editor))["status"]
    assert (status["text"], status["icon"]) == ("H100 80GB HBM3 · Run saxpy", "sync~spin")
    assert status["tooltip"].endswith("NVIDIA H100 80GB HBM3, of this machine\nRun saxpy")
    await editor.command("orbit.cancel")
    await editor.until(editor.ended)
    assert (await panel(editor))["status"]["text"] == "H100 80GB HBM3"


async def test_a_notebook_kernel_and_a_gpu_of_another_program_are_listed_and_the_kernel_is_ended(
    start, recorded_python, tmp_path: Path
) -> None:
    """The kernel's process is one that registers as a kernel does."""
    editor = await opened(start, recorded_python)
    folder = tmp_path / "work"
    folder.mkdir()
    command = [sys.executable, "-c", KERNEL]
    kernel = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, cwd=folder)
    assert kernel.stdout
    name = (await kernel.stdout.readline()).decode().strip()
    _, notebook, rented = (await panel(editor))["gpus"]
    assert (notebook["label"], notebook["description"]) == (
        "Notebook in work",
        "H100 on Modal · starting · since 0 min",
    )
    assert (rented["label"], rented["description"]) == (
        "H100 on Modal",
        "rented for 10 min · $0.60 · by another program",
    )
    assert notebook["actions"]["release"]["arguments"] == [{"session": name}]
    await editor.command("orbit.release", {"session": name})
    await editor.until(lambda: f"orbit: the notebook kernel in {folder} ended" in editor.messages())
    assert [item["label"] for item in (await panel(editor))["gpus"]] == ["H100 80GB HBM3", "H100 on Modal"]
    await kernel.wait()


@pytest.mark.parametrize("kind", ["csv", "json", "md"])
async def test_the_runs_of_a_kernel_are_exported(start, recorded_python, kind: str) -> None:
    editor = await opened(start, recorded_python)
    target = {"uri": editor.uri, "kernel": "saxpy", "kind": kind}
    await editor.command("orbit.export", target)
    await editor.until(lambda: any("the history has no run of saxpy" in text for text in editor.messages()))
    await click(editor)
    await editor.command("orbit.export", target)
    text = await shown(editor, f".{kind}")
    if kind == "csv":
        (row,) = csv.DictReader(text.splitlines())
        assert (row["outcome"], row["gpu"], row["block"]) == ("ok", "NVIDIA H100 80GB HBM3", "256x1x1")
        assert float(row["time_ns"]) == pytest.approx(288_032)
    elif kind == "json":
        assert json.loads(text)["runs"][0]["time_ns"] == pytest.approx(288_032)
    else:
        assert "| 288 µs" in text


async def test_answers_that_a_client_drops_are_shown(start, recorded_python) -> None:
    """By name: Helix and Kate show no answer of a command."""
    editor = await opened(
        start, recorded_python, name="helix", text="int main() {}\n__global__ void k(int n) {}\n"
    )
    assert await editor.command("orbit.cancel") is False
    await editor.until(lambda: "orbit: nothing is running" in editor.messages())
    await editor.command("orbit.showOutput")
    await editor.until(lambda: "orbit: nothing has been run yet" in editor.messages())
    await editor.command("orbit.run", {"uri": editor.uri, "kernel": "k"})
    await editor.until(editor.ended)
    await editor.command("orbit.showOutput")
    assert "no error\n■ Run k: " in await shown(editor, ".txt")
    await editor.command("orbit.info")
    assert '"name": "local"' in await shown(editor, ".json")
    await editor.command("orbit.live", {"uri": editor.uri, "kernel": "k"})
    await editor.until(lambda: "orbit: live is on for k" in editor.messages())
    await editor.command("orbit.chooseGpu", {"gpu": "L4"})
    await editor.until(
        lambda: (
            "orbit: runs go to NVIDIA H100 80GB HBM3 of this machine; on Modal they would get L4"
            in editor.messages()
        )
    )
