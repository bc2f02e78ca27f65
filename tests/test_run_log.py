"""What runs print and how they end, as a client's log of runs gets it, and as a file has it."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from orbit_lsp.server.run_log import RunLog
from orbit_lsp.server.shown_files import browser_at_hand
from orbit_lsp.state.kernel_ids import KernelId

SAXPY = KernelId("file:///k.cu", "saxpy")


def a_run(name: str) -> Any:
    return SimpleNamespace(
        id=name,
        title=f"Run {name}",
        targets={SAXPY._replace(key=name)},
        frozen=SimpleNamespace(uri=SAXPY.uri),
    )


def logged(*steps: str) -> str:
    """`saxpy` begins a run or goes on with it, `saxpy: text` prints, `saxpy!` ends it."""
    log, runs, text = RunLog(), dict[str, Any](), ""
    for step in steps:
        name, prints, words = step.partition(":")
        run = runs.setdefault(name.rstrip("!"), a_run(name.rstrip("!")))
        if name.endswith("!"):
            text += log.end(run, "ok", "288 µs")
        else:
            text += log.output(run, words) if prints else log.begin(run)
    return re.sub(r"\d\d:\d\d:\d\d ", "", text)


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        (("saxpy", "saxpy:no error\n", "saxpy!"), "▶ Run saxpy\nno error\n■ Run saxpy: 288 µs\n"),
        (("saxpy", "saxpy:no end", "saxpy!"), "▶ Run saxpy\nno end\n■ Run saxpy: 288 µs\n"),
        (("saxpy", "saxpy:a", "saxpy:b\n"), "▶ Run saxpy\nab\n"),
        # two at once: whose words they are
        (("saxpy", "gemm", "saxpy:a\n", "gemm:b"), "▶ Run saxpy\n▶ Run gemm\n▶ Run saxpy\na\n▶ Run gemm\nb"),
        (("saxpy", "saxpy:a", "gemm"), "▶ Run saxpy\na\n▶ Run gemm\n"),
        # refused before it began
        (("saxpy!",), "▶ Run saxpy\n■ Run saxpy: 288 µs\n"),
        (("saxpy", "saxpy:\x1b[31mred\x1b[0m\n"), "▶ Run saxpy\nred\n"),
    ],
)
def test_a_log_says_whose_words_they_are(steps: tuple[str, ...], text: str) -> None:
    assert logged(*steps) == text


def test_what_a_run_prints_is_bounded() -> None:
    log, run = RunLog(), a_run("saxpy")
    log.begin(run)
    for number in range(5000):
        log.output(run, f"{number:099}\n")
    (kept,) = log.of(SAXPY)
    assert "only the last 262,144 characters are kept" in kept.text()
    assert len(kept.text()) < 263_000
    assert kept.text().endswith("4999\n")


@pytest.mark.parametrize(
    ("platform", "environment", "browser"),
    [
        ("linux", {"DISPLAY": ":0"}, True),
        ("linux", {"WAYLAND_DISPLAY": "wayland-0"}, True),
        ("linux", {"SSH_CONNECTION": "1 2 3 4"}, False),
        ("linux", {"DISPLAY": "localhost:10.0", "SSH_CONNECTION": "1 2 3 4"}, True),  # ssh -X
        ("linux", {}, False),
        ("linux", {"WSL_DISTRO_NAME": "Debian"}, True),
        ("darwin", {}, True),
        ("darwin", {"SSH_CONNECTION": "1 2 3 4"}, False),
        ("win32", {}, True),
    ],
)
def test_a_browser_is_offered_where_it_can_have_a_window(
    platform: str, environment: dict[str, str], browser: bool
) -> None:
    assert browser_at_hand(environment, platform) is browser
