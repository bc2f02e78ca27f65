"""Where things stand on a report's page, measured in a headless Chromium: at the width of a side panel, and of a browser."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from orbit_lsp.report import page, profile_report, sweep_report
from tests.recorded_profiles import NAMES, profiled
from tests.test_report import swept

SCREEN = 900
WIDTHS = (600, 1280)
_MEASURE = """
<script>
addEventListener('load', () => {
  const rect = (document, selector) => {
    const boxes = document.querySelector(selector)?.getBoundingClientRect();
    return boxes ? [boxes.left, boxes.top, boxes.right, boxes.bottom].map(Math.round) : null;
  };
  const seen = [...document.querySelectorAll('iframe')].map(({ title, contentDocument: page }) => [title, {
    wide: page.documentElement.scrollWidth,
    high: page.documentElement.scrollHeight,
    answer: rect(page, '.answer'),
    source: rect(page, '.lines'),
    roofline: rect(page, 'figure svg[aria-label^="Roofline"]'),
    plot: rect(page, 'figure svg'),
    open: page.querySelectorAll('details[open]').length,
    folded: [...page.querySelectorAll('summary')].map((one) => one.textContent),
  }]);
  document.body.textContent = JSON.stringify(Object.fromEntries(seen));
});
</script>
"""


def chromium() -> str:
    name = os.environ.get("ORBIT_CHROMIUM") or shutil.which("chromium")
    if name is None:
        if "ORBIT_EDITORS" in os.environ:
            pytest.fail("there is no Chromium: scripts/editors install")
        pytest.skip("lays out pages in the real Chromium: scripts/editors install")
    return name


def measured(pages: dict[str, str], folder: Path) -> dict[str, dict[str, Any]]:
    """Every page at every width, by `NAME WIDTH`."""
    frames = "".join(
        f'<iframe title="{name} {width}" width="{width}" height="{SCREEN}" style="border: 0" '
        f'srcdoc="{html.escape(text)}"></iframe>'
        for name, text in pages.items()
        for width in WIDTHS
    )
    file = folder / "pages.html"
    file.write_text(f'<!doctype html><meta charset="utf-8"><body>{frames}{_MEASURE}', encoding="utf-8")
    return dumped(file)


def dumped(file: Path, *options: str) -> dict[str, Any]:
    """What the page's script leaves as its body, as JSON."""
    command = [
        chromium(), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={file.parent}/user", *options, "--dump-dom",
        file.as_uri(),
    ]  # fmt: skip
    shown = subprocess.run(command, capture_output=True, text=True, check=True, encoding="utf-8").stdout
    body = re.search(r"<body>(\{.*\})</body>", shown, re.DOTALL)
    assert body, shown[:500]
    return json.loads(html.unescape(body[1]))


def profile_page(name: str) -> str:
    bench = profiled(name)
    ((target, known),) = bench.session.results.profiles.items()
    return page.html(profile_report.page(known, target.key, f"/home/author/kernels/{name}.cu"))


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    spec = swept(*range(16, 27))
    run = page.html(
        sweep_report.page(spec.session.results.runs[spec.key], "saxpy", "/home/author/kernels/saxpy.cu")
    )
    pages = {name: profile_page(name) for name in NAMES}
    return measured({**pages, "run": run}, tmp_path_factory.mktemp("pages"))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", [*NAMES, "run"])
def test_a_report_is_at_most_three_screens_high_and_never_wider_than_one(
    name: str, width: int, layout: dict[str, dict[str, Any]]
) -> None:
    boxes = layout[f"{name} {width}"]
    assert boxes["high"] <= 3 * SCREEN
    assert boxes["wide"] <= width
    assert boxes["open"] == 0


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", NAMES)
def test_verdict_source_and_roofline_are_on_the_first_screen(
    name: str, width: int, layout: dict[str, dict[str, Any]]
) -> None:
    boxes = layout[f"{name} {width}"]
    parts = {part: boxes[part] for part in ("answer", "source", "roofline") if boxes[part]}
    assert {part: bottom for part, (_, _, _, bottom) in parts.items() if bottom > SCREEN} == {}
    assert "answer" in parts
    assert ("source" in parts) is (name not in ("without_lines", "memory_bound.basic"))
    assert {"Speed of light and launch", "Where it comes from"} <= set(boxes["folded"])
