"""No dead buttons: whatever lens, code action, item of a list or command an author can press, in every state that a kernel can be
in, does something or says at once why not. The GPU side is recorded (recorded_worker.py): these machines have none.

What each did is in docs/dev/buttons.json, from which scripts/generate.py makes the table of docs/dev/buttons.md. ORBIT_CAPTURES=write
writes it anew, for a person to read.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
from lsprotocol import types as lsp

from orbit_lsp.server.handlers import COMMANDS
from tests.e2e import conftest
from tests.e2e.conftest import Editor
from tests.e2e.test_ab_compare import committed
from tests.e2e.test_history import close
from tests.e2e.test_panel import panel
from tests.e2e.test_run import named_gpu
from tests.e2e.test_spec_runs import KERNEL, SPEC
from tests.modal.conftest import h100s
from tests.modal_loopback.loopback import Loopback

__all__ = ["h100s"]
SEEN = Path(__file__).parents[2] / "docs" / "dev" / "buttons.json"
SAXPY = SPEC + KERNEL
PROFILED = (Path(__file__).parents[1] / "recordings" / "profiles" / "memory_bound.cu").read_text()
LINE = 5
"""Of the kernel in SAXPY."""
STARTS = (
    "live",
    "run",
    "profile",
    "checkMemory",
    "debug",
    "check",
    "runOnAll",
    "runRestricted",
    "compile",
    "disassemble",
    "compareWith",
)
"""What changes the state is pressed last."""
ENDS = ("cancel", "release")


Button = tuple[str, tuple[Any, ...]]
"""A command and its arguments."""


class Author:
    """Presses buttons, and sees what comes of each. `ready` brings about the state again before each."""

    def __init__(self, editor: Editor, line: int = LINE) -> None:
        self.editor, self.line = editor, line
        self.ready: Callable[[], Awaitable[object]] = self.lenses
        self.asked: list[str] = []
        self.edits: list[str] = []

        @editor.client.feature(lsp.WINDOW_SHOW_MESSAGE_REQUEST)
        def _(params: lsp.ShowMessageRequestParams) -> None:
            self.asked.append(params.message)

        @editor.client.feature(lsp.WORKSPACE_APPLY_EDIT)
        def _(params: lsp.ApplyWorkspaceEditParams) -> lsp.ApplyWorkspaceEditResult:
            self.edits.append(params.label or "an edit")
            return lsp.ApplyWorkspaceEditResult(applied=True)

    async def lenses(self) -> list[str]:
        """Without what changes by itself: seconds, until when a GPU is warm, what that costs."""
        titles = [lens.command.title for lens in await self.editor.lenses() if lens.command]
        return [re.sub(r"\d+ s\b|\d\d:\d\d|\$[\d.]+", "…", title) for title in titles]

    async def offered(self) -> dict[str, Button]:
        """Lenses, code actions, and items of the lists beside the text with their buttons, each once by its name."""
        commands = [lens.command for lens in await self.editor.lenses() if lens.command]
        commands += await self.editor.actions(self.line)
        buttons = [
            (command.command, tuple(plain_argument(each) for each in command.arguments or ()))
            for command in commands
        ]
        beside = await panel(self.editor)
        items = [*beside["runs"], *beside["gpus"], *beside["history"]]
        items += [child for item in items for child in item.get("children", ())]
        actions = [item.get("command") for item in items] + [
            action for item in items for action in item.get("actions", {}).values()
        ]
        buttons += [(action["command"], tuple(action.get("arguments", ()))) for action in actions if action]
        return {named(*button): button for button in buttons}

    async def run(self, name: str = "orbit.run") -> None:
        count = len(self.editor.ended())
        await self.editor.command(name, self.target())
        await self.editor.until(lambda: len(self.editor.ended()) > count)

    @property
    def slow(self) -> bool:
        return "SLOW" in (self.editor.folder / self.editor.uri.rpartition("/")[2]).read_text()

    def target(self) -> dict[str, str]:
        return {"uri": self.editor.uri, "kernel": "saxpy"}

    def counts(self) -> dict[str, int]:
        shown = self.editor.client.shown_documents
        return {
            "asks": len(self.asked),
            "a page": sum(bool(document.external) for document in shown),
            "a text": sum(not document.external for document in shown),
            "an edit": len(self.edits),
            "runs": len(self.editor.tokens()),
            "ends it": len(self.editor.ended()),
        }

    async def press(self, name: str, *arguments: Any) -> str:
        """What an author sees of it."""
        await self.ready()
        before, messages, lenses = self.counts(), len(self.editor.messages()), await self.lenses()
        answer = await self.editor.command(name, *arguments)

        def shown() -> list[str]:
            after = self.counts()
            effects = [effect for effect in after if after[effect] > before[effect]]
            if name not in ("orbit.cancel", "orbit.locate") and "ends it" in effects:  # by `settle`
                effects.remove("ends it")
            said = dict.fromkeys(map(plain, self.editor.messages()[messages:]))
            if self.slow:  # to `settle`, where the run had just ended
                said.pop("saxpy is not running", None)
            effects += [f"“{message}”" for message in said]
            return ["a text"] if name == "orbit.info" and answer else effects

        async def something() -> bool:
            return bool(shown()) or await self.lenses() != lenses

        await self.editor.asked_until(something, bool)
        # `settle` cancels a program that would never end; a run on every GPU may not have given its message by then
        if name in ("orbit.release", "orbit.keepWarm") or (name == "orbit.runOnAll" and self.slow):
            await self.editor.until(
                lambda: len(self.editor.messages()) > messages or self.counts()["asks"] > before["asks"]
            )
        if name == "orbit.disassemble":  # the lens says that it compiles, and the text comes after that
            await self.editor.until(shown)
        await self.settle()
        return ", ".join(shown()) or "the lens"

    async def settle(self) -> None:
        """What a press started has ended, so that it is not taken for what the next one does."""
        reports = self.editor.client.progress_reports
        while bars := [token for token, steps in reports.items() if not ended(steps)]:
            if self.slow:
                await self.editor.command("orbit.cancel", self.target())
            await self.editor.until(lambda bars=bars: all(ended(reports[token]) for token in bars))
        heard = -1
        while heard != self.editor.heard:
            heard = self.editor.heard
            await panel(self.editor)


def ended(steps: list[Any]) -> bool:
    return bool(steps) and isinstance(steps[-1], lsp.WorkDoneProgressEnd)


def plain_argument(argument: Any) -> Any:
    return argument._asdict() if hasattr(argument, "_asdict") else argument


def named(command: str, arguments: tuple[Any, ...]) -> str:
    """`openReport what=run`."""
    extra = {
        key: value
        for argument in arguments
        for key, value in argument.items()
        if key not in ("uri", "kernel", "line")
    }
    return " ".join(
        [command.removeprefix("orbit."), *(f"{key}={value}" for key, value in sorted(extra.items()))]
    )


def plain(message: str) -> str:
    """Without what differs from one machine to the next."""
    text = re.sub(r"\S*/(?=[\w.-]+)", "…/", message.removeprefix("orbit: "))
    return re.sub(r"\d{4}-\d\d-\d\d( \d\d:\d\d(:\d\d)?)?|\d{8}-\d{6}(-\d+)?|[\d.]+ s\b|\$[\d.]+", "…", text)


# -- the states ---------------------------------------------------------------------------------------

Start = Callable[..., Awaitable[Editor]]


async def opened(
    start: Start, python: str, text: str = SAXPY, *, git: bool = True, **settings: Any
) -> Author:
    editor = await start("vscode", python=python, compile_on_save=False, **settings)
    if git:
        committed(editor.folder, saxpy_cu=text)
    editor.open("saxpy.cu", text)
    author = Author(
        editor, next(number for number, line in enumerate(text.split("\n")) if "__global__" in line)
    )
    await author.lenses()
    return author


async def never_run(start: Start, python: str) -> Author:
    author = await opened(start, python)
    await named_gpu(author.editor)
    return author


async def running(start: Start, python: str) -> Author:
    author = await opened(start, python, SAXPY + "// SLOW\n")
    await named_gpu(author.editor)

    async def again() -> None:
        await author.editor.command("orbit.run", author.target())
        await author.editor.asked_until(
            author.lenses, lambda titles: any("running" in title for title in titles)
        )

    author.ready = again
    await again()
    return author


async def failed(start: Start, python: str) -> Author:
    author = await opened(start, python, SAXPY + "// CRASH\n".replace("CRASH", "BUG"))
    await author.editor.command("orbit.run", author.target())
    await author.editor.until(author.editor.ended)
    return author


async def wrong(start: Start, python: str) -> Author:
    author = await opened(start, python, SAXPY + "// WRONG\n")
    await author.run()
    return author


async def profiled(start: Start, python: str) -> Author:
    author = await opened(start, python, PROFILED)
    await author.run()
    await author.run("orbit.profile")
    return author


async def no_git(start: Start, python: str) -> Author:
    author = await opened(start, python, git=False)
    await author.run()
    return author


def without_gpu(python: Path) -> str:
    script = python.with_name("without-gpu")
    script.write_text(python.read_text().replace('"$@"', '"$@" --no-gpu'))
    script.chmod(0o755)
    return str(script)


async def no_gpu(start: Start, python: str) -> Author:
    author = await opened(start, without_gpu(Path(python)))
    await author.editor.asked_until(
        author.lenses, lambda titles: any("choose a GPU" in title for title in titles)
    )
    return author


async def rented(start: Start, python: str) -> Author:
    del python
    author = await opened(start, "", runner="modal")
    await author.run()
    return author


async def renamed(start: Start, python: str) -> Author:
    author = await opened(start, python)
    await author.run()
    return author


STATES = {
    "never run": never_run,
    "running": running,
    "does not compile": failed,
    "wrong answer": wrong,
    "profiled": profiled,
    "no git": no_git,
    "no GPU": no_gpu,
    "file renamed": renamed,
    "its old name": renamed,
    "kernel removed": renamed,
    "file closed": renamed,
}


def rename(author: Author) -> None:
    editor = author.editor
    old = editor.uri
    (editor.folder / "saxpy.cu").rename(editor.folder / "renamed.cu")
    close(editor)
    new = (editor.folder / "renamed.cu").as_uri()
    editor.client.workspace_did_rename_files(lsp.RenameFilesParams([lsp.FileRename(old, new)]))
    editor.open("renamed.cu", SAXPY)


def remove(author: Author) -> None:
    """The kernel, of which nothing is left but its launch spec."""
    author.editor.edit(LINE, 0, len(KERNEL.split("\n")[0]), "void nothing() {")


async def every_button(state: str, author: Author) -> dict[str, str]:
    buttons = await author.offered()
    await author.editor.hover(author.line, 18)  # commands without arguments are about this kernel
    by_name = {f"by name: {name.removeprefix('orbit.')}": (name, ()) for name in COMMANDS}
    if state == "file renamed":
        rename(author)
        buttons = await author.offered()
    if state == "its old name":  # which an editor may show for a moment
        rename(author)
        by_name = {}
    if state == "file closed":  # its runs are in the lists still
        close(author.editor)
        by_name = {}
    if state == "kernel removed":
        remove(author)
        by_name = {}

    def late(name: str) -> tuple[bool, bool]:
        word = name.removeprefix("by name: ").partition(" ")[0]
        return word in STARTS, word in ENDS

    every = buttons | by_name
    return {name: await author.press(every[name][0], *every[name][1]) for name in sorted(every, key=late)}


@pytest.fixture
def shows_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """As our extension for VS Code does."""
    offered = attrs.evolve(
        conftest.capabilities("vscode"), experimental={"orbit": {"output": True, "reports": True}}
    )
    monkeypatch.setattr(conftest, "capabilities", lambda _: offered)


@pytest.mark.slow
@pytest.mark.parametrize("state", STATES)
@pytest.mark.usefixtures("shows_reports")
async def test_every_button_does_something_or_says_why(
    start: Start, recorded_python: str, state: str
) -> None:
    check(state, await every_button(state, await STATES[state](start, recorded_python)))


@pytest.mark.slow
@pytest.mark.usefixtures("shows_reports")
async def test_with_a_rented_gpu(start: Start, h100s: Loopback) -> None:
    check("rented GPU", await every_button("rented GPU", await rented(start, "")))


def check(state: str, seen: dict[str, str]) -> None:
    known: dict[str, dict[str, str]] = json.loads(SEEN.read_text()) if SEEN.exists() else {}
    if "ORBIT_CAPTURES" in os.environ:
        known[state] = dict(sorted(seen.items()))
        SEEN.write_text(json.dumps(known, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    assert known[state] == seen
