"""An author's session, action by action, in an editor in a terminal; after each action, what the author was told.

Counted are prompts to press a key, messages that come twice for one action, and warnings or errors that pop up
though nothing is wrong.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tests.editors.home import ALONE, PROFILED, SAXPY
from tests.editors.terminal import Terminal
from tests.editors.test_beside import ADD

PROMPTS = ("Press ENTER", "-- More --")
SPEC = """\
// orbit: n = 1 << 26; x = randn(n); y = randn(n)
// orbit: launch saxpy<<<(n + 255) / 256, 256>>>(n, 2.0f, x, y)
// orbit: expect y == 2 * x + y; bytes 3 * 4 * n
__global__ void saxpy(int n, float a, const float* __restrict__ x, float* __restrict__ y) {
  int v0 = 0;
}
"""
FILES = {
    "saxpy.cu": SAXPY,
    "spec.cu": SPEC,
    "slow.cu": SAXPY + "// SLOW\n",
    "alone.cu": ALONE,
    "memory_bound.cu": PROFILED,
    "wrong.cu": SPEC + "// WRONG\n",
    "crash.cu": SAXPY + "// CRASH\n",
    "moved0.cu": SAXPY,
}


class Screen(Protocol):
    """What an author does in one editor. `told` is the file of told.py."""

    terminal: Terminal
    told: Path

    def opened(self) -> str: ...
    def open(self, name: str, line: int) -> None: ...
    def look(self, line: int) -> None: ...
    def orbit(self, command: str) -> None: ...
    def replace(self, old: str, new: str) -> None: ...
    def undo(self) -> None: ...
    def save(self) -> None: ...
    def hover(self) -> None: ...
    def leave(self) -> None: ...
    def rename(self, new: str) -> None: ...


@dataclass
class Session:
    screen: Screen
    actions: int = 0
    prompts: list[str] = field(default_factory=list[str])
    doubled: list[str] = field(default_factory=list[str])
    popups: list[str] = field(default_factory=list[str])
    problem: bool = False
    """Whether something is wrong now, so that a message of it is due."""

    def told(self) -> list[dict[str, Any]]:
        path = self.screen.told
        lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [line for line in lines if line["kind"] != "diagnostics"]

    def act(self, what: str, do: Callable[[], object], until: Callable[[str], object] | None = None) -> None:
        """Waits until the screen is as it should be, then counts."""
        before = len(self.told())
        do()
        shown = self.screen.terminal.until(lambda shown: asks(shown) or not until or until(shown), what)
        self.actions += 1
        if asks(shown):
            self.prompts.append(f"{what}: {shown.strip()[-200:]}")
            self.screen.terminal.keys("Enter")
        lines = self.told()[before:]
        texts = [line["text"] for line in lines if line["text"]]
        for number, text in enumerate(texts):
            self.doubled += [f"{what}: {text}"] * any(text in other for other in texts[number + 1 :])
        loud = (line for line in lines if line["kind"] != "end" and line["type"] <= 2)
        self.popups += [] if self.problem else [f"{what}: {line['text']}" for line in loud]

    def open(self, name: str, line: int) -> None:
        """And have the kernel of this line be the one that commands are about."""
        self.act(f"open {name}", lambda: self.screen.open(name, line), lambda shown: name in shown)
        self.act("look at the kernel", lambda: self.screen.look(line))

    def run(self, command: str = "run") -> None:
        """To its end, which is a message or the end of a progress."""
        count = self.ends()
        self.act(command, lambda: self.screen.orbit(command), lambda _: self.ends() > count)

    def answered(self, command: str, text: str) -> None:
        """By a message of this text."""
        count = len(self.told())
        self.act(
            command,
            lambda: self.screen.orbit(command),
            lambda _: any(text in line["text"] for line in self.told()[count:]),
        )

    def ends(self) -> int:
        return sum(not line.get("title", "").startswith("Compile") for line in self.told())

    def figures(self) -> str:
        counts = (
            f"{len(self.prompts)} prompts, {len(self.doubled)} doubled messages, {len(self.popups)} pop-ups"
        )
        listed = [f"  {text}" for text in (*self.prompts, *self.doubled, *self.popups)]
        return "\n".join([f"{self.actions} actions: {counts} for what is no problem", *listed])


def asks(shown: str) -> bool:
    return any(prompt in shown for prompt in PROMPTS)


def one_kernel(session: Session) -> None:
    """What every client has to do: run a kernel, show its time and what is wrong where it is, and follow edits."""
    screen, act = session.screen, session.act
    session.open("saxpy.cu", 1)
    session.run()
    act("hover", screen.hover, lambda shown: "occupancy ≤100%" in shown)
    act("close the hover", screen.leave, lambda shown: "occupancy ≤100%" not in shown)
    act("edit", lambda: screen.replace("a * x", "b * x"), lambda shown: "edited since" in shown)
    act("undo", screen.undo, lambda shown: "edited since" not in shown)
    act("break", lambda: screen.replace("a * x", "BUG * x"), lambda shown: "BUG" in shown)
    session.problem = True
    act("save", screen.save, lambda shown: "undefined" in shown or "ndeclared" in shown)
    session.problem = False
    act("fix", screen.undo, lambda shown: "BUG" not in shown)
    act("save", screen.save, lambda shown: "undefined" not in shown and "ndeclared" not in shown)


def work(session: Session, number: int, *, python: bool = False) -> None:
    """One round of an author's work; the files are left as they were found."""
    screen, act, open_ = session.screen, session.act, session.open
    one_kernel(session)

    open_("spec.cu", 4)
    session.run()
    act("edit", lambda: screen.replace(f"v{number} = 0", f"v{number + 1} = 0"))
    act("save", screen.save)
    session.run()
    session.run("compareWith")
    pages = screen.opened()
    act("history", lambda: screen.orbit("history"), lambda _: screen.opened() != pages)

    act("live", lambda: screen.orbit("live"))
    count = session.ends()
    act("edit", lambda: screen.replace(f"v{number + 1} = 0", f"v{number} = 0"))
    act("save, which runs it", screen.save, lambda _: session.ends() > count)
    act("live", lambda: screen.orbit("live"))
    act("edit", lambda: screen.replace(f"v{number} = 0", f"v{number + 1} = 0"))
    act("save", screen.save)
    session.answered("chooseGpu", "on Modal they would get")

    open_("slow.cu", 1)
    act("run", lambda: screen.orbit("run"), lambda shown: "running" in shown)
    count = session.ends()
    act("cancel", lambda: screen.orbit("cancel"), lambda _: session.ends() > count)

    open_("alone.cu", 1)
    act("draft", lambda: screen.orbit("draft"), lambda shown: "orbit: launch scale" in shown)
    session.run()
    act("undo", screen.undo, lambda shown: "orbit: launch" not in shown)

    open_("memory_bound.cu", 4)
    session.run("profile")
    pages = screen.opened()
    act("report", lambda: screen.orbit("openReport"), lambda _: screen.opened() != pages)
    act("output", lambda: screen.orbit("showOutput"), lambda shown: "■ Profile saxpy" in shown)
    act("close the output", screen.leave, lambda shown: "■ Profile saxpy" not in shown)

    session.problem = True
    open_("wrong.cu", 4)
    session.run()
    open_("crash.cu", 1)
    session.run()
    session.problem = False

    open_(f"moved{number}.cu", 1)
    session.run()
    act(
        "rename",
        lambda: screen.rename(f"moved{number + 1}.cu"),
        lambda shown: f"moved{number + 1}.cu" in shown,
    )
    act("look at the kernel", lambda: screen.look(1))
    session.run()
    if python:
        open_("double.py", 11)
        session.run()


def write_files(write: Callable[[str, str], object]) -> None:
    for name, text in {**FILES, "double.py": ADD}.items():
        write(name, text)
