"""The evaluation server's page in a headless Chromium: how wide it is, and that its live part is live."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from orbit_lsp.api import http_app, page
from orbit_lsp.api.guard import RequestLimits
from orbit_lsp.queue import pool
from orbit_lsp.queue.job_queue import Followed, JobQueue
from orbit_lsp.queue.job_store import JobStore, StoredJob
from orbit_lsp.queue.request import Request
from tests.e2e.forks import LIMIT_S
from tests.editors.test_report_layout import WIDTHS, chromium, dumped, measured

LONG = "a_kernel_with_a_name_that_no_table_was_made_for_" * 8


def jobs() -> list[Followed]:
    rows = [
        ("ok", "done", "288 µs, 1 check passed", "saxpy", None),
        ("compile error", "done", f'compile error: identifier "{LONG}" is undefined', LONG, None),
        (None, "running", "", "softmax", None),
        (None, "queued", "", "matmul", 3),
    ]
    return [
        Followed(
            StoredJob(
                f"{number:016x}", "api", state, "", outcome, summary, "run", f"{kernel[:60]}.cu", kernel, "", "local:0", "normal",
                "", 1_795_400_000.0 + number, None, None, "",
            ),  # type: ignore[arg-type]
            position,
        )
        for number, (outcome, state, summary, kernel, position) in enumerate(rows, 1)
    ]  # fmt: skip


def pages() -> dict[str, str]:
    aside = "a copy of 64 MiB takes 80.0 µs, and took 50.0 µs when the server started"
    gpu = "NVIDIA H100 80GB HBM3"
    places = [
        {"name": "local:0", "gpu": gpu, "job": f"{3:016x}", "aside": None},
        {"name": "local:1", "gpu": gpu, "job": None, "aside": aside},
    ]
    known = jobs()
    lines = ["wrong answer: out is 1.0", "a line that goes on " * 40]
    return {
        "overview": page.overview(places, 1, known, {}),
        "refused": page.overview([], 0, [], {"text": LONG, "name": LONG}, f"{LONG} is not a valid file name"),
        "job": page.job(known[1], lines, report=True),
        "sign-in": page.sign_in(wrong=True),
    }


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    return measured(pages(), tmp_path_factory.mktemp("pages"))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["overview", "refused", "job", "sign-in"])
def test_a_page_is_never_wider_than_its_window(
    name: str, width: int, layout: dict[str, dict[str, Any]]
) -> None:
    assert layout[f"{name} {width}"]["wide"] <= width


_CONTRAST = """
<script>
addEventListener('load', () => {
  const light = ([red, green, blue]) => {
    const linear = [red, green, blue].map((part) => part / 255)
      .map((part) => (part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  };
  const parts = (color) => color.match(/[\\d.]+/g).map(Number);
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const color = parts(getComputedStyle(at).backgroundColor);
      if (color.length < 4 || color[3] > 0) return color;
    }
    return parts(getComputedStyle(document.documentElement).backgroundColor);
  };
  const seen = [...document.querySelectorAll('body, body *')]
    .filter((element) => [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim()))
    .filter((element) => !element.matches('script, style, option'))
    .map((element) => {
      const [text, behind] = [light(parts(getComputedStyle(element).color)), light(ground(element))];
      return [element.tagName, (Math.max(text, behind) + 0.05) / (Math.min(text, behind) + 0.05)];
    });
  document.body.textContent = JSON.stringify({dark: light(ground(document.body)) < 0.2, seen});
});
</script>
"""


@pytest.mark.parametrize("scheme", ["dark", "light"])
@pytest.mark.parametrize("name", ["overview", "refused", "job", "sign-in"])
def test_a_page_is_readable_in_dark_and_in_light(name: str, scheme: str, tmp_path: Path) -> None:
    """Each text has the contrast to its background that WCAG 2 asks for at level AA: 4.5."""
    file = tmp_path / "page.html"
    file.write_text(pages()[name].replace("</body>", f"{_CONTRAST}</body>"), encoding="utf-8")
    shown = dumped(file, f"--blink-settings=preferredColorScheme={int(scheme == 'light')}")
    assert shown["dark"] is (scheme == "dark")
    assert len(shown["seen"]) > 3
    assert [element for element in shown["seen"] if element[1] < 4.5] == []


async def test_the_live_part_fetches_the_page_when_a_job_changes(tmp_path: Path) -> None:
    """What the browser asks for shows that its script ran, under the page's policy."""

    class Fails:
        async def ready(self) -> str:
            return ""

        async def perform(self, *_: Any) -> Any:
            raise OSError("no engine")

        async def close(self) -> None: ...

    program = chromium()
    queue = JobQueue(JobStore(tmp_path / "jobs.sqlite"), pool.parse("local:0"), lambda _: Fails(), "api")
    await queue.start()
    inner = http_app.app(queue, RequestLimits(), ["127.0.0.1"])
    asked: Counter[str] = Counter()
    more = asyncio.Condition()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            async with more:
                asked[scope["path"]] += 1
                more.notify_all()
        await inner(scope, receive, send)

    async def until(path: str, times: int) -> None:
        async with more:
            await more.wait_for(lambda: asked[path] >= times)

    served = uvicorn.Server(config := uvicorn.Config(app, port=0, ws="none", log_level="critical"))
    with config.bind_socket() as socket:
        serving = asyncio.create_task(served.serve([socket]))
        browser = await asyncio.create_subprocess_exec(
            program, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/user",
            "--remote-debugging-port=0", f"http://127.0.0.1:{socket.getsockname()[1]}/",
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        try:
            async with asyncio.timeout(LIMIT_S):
                await until("/page/live", 1)
                await until("/", 2)
                seen = asked["/"]
                job = await queue.submit(Request(name="k.cu", text="__global__ void k() {}"))
                await until("/", seen + 1)
                await queue.wait(job.id)
        finally:
            browser.kill()
            await browser.wait()
            served.force_exit = served.should_exit = True
            await serving
            await queue.close()
