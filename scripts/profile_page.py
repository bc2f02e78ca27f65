"""Write the renderings of docs/guide/profile.md, from the recordings in tests/recordings/profiles.

.venv/bin/python scripts/profile_page.py
.venv/bin/python scripts/profile_page.py --screenshots    # also docs/pictures/profile-report-*.png and server-page-*.png; needs chromium
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from orbit_lsp.cli import source_listing  # noqa: E402
from orbit_lsp.profile import bottleneck  # noqa: E402
from orbit_lsp.report import page, profile_report  # noqa: E402
from orbit_lsp.views import hover  # noqa: E402
from orbit_remote.common import messages as c  # noqa: E402
from tests import recorded_profiles as recorded  # noqa: E402
from tests.editors import test_page_layout  # noqa: E402
from tests.recordings import profiled  # noqa: E402

PAGE = ROOT / "docs" / "guide" / "profile.md"
PICTURES = ROOT / "docs" / "pictures"
_MARKED = re.compile(r"(<!-- recorded: (?P<what>[^>]+) -->\n).*?(<!-- end -->)", re.DOTALL)
_COLUMNS = 160
_RECORDED = datetime(2026, 11, 21, 18, 45, tzinfo=UTC).timestamp()
"""When the recording was committed; a report of Nsight Compute has no date."""


def text() -> str:
    """The page with today's renderings."""
    return _MARKED.sub(lambda match: match[1] + rendered(match["what"].split()) + match[3], PAGE.read_text())


def rendered(words: list[str]) -> str:
    match words:
        case ["show", name, first, last]:
            return code(_shown(recorded.profiled(name), int(first), int(last)))
        case ["line", name, line]:
            return code(_hover(recorded.profiled(name), int(line)))
        case ["hover", name, most]:
            bench = recorded.profiled(name)
            (target,) = bench.session.results.profiles
            kernel = next(
                kernel for result, kernel, _ in bench.session.kernels(bench.uri) if result == target
            )
            return code(
                "\n".join([*_hover(bench, kernel.name_span.line + 1).splitlines()[: int(most)], "  …"])
            )
        case ["verdicts"]:
            return "\n".join(["", "| program | bottleneck in its lens |", "|---|---|", *verdicts(), "", ""])
        case ["sass", name, most]:
            return code("\n".join(recorded.sass(name).splitlines()[: int(most)]))
        case ["refused"]:
            return code(refused())
        case _:
            raise ValueError(f"nothing is called {' '.join(words)}")


def code(text: str) -> str:
    lines = [line if len(line) <= _COLUMNS else line[: _COLUMNS - 1] + "…" for line in text.splitlines()]
    return "\n".join(["", "```text", *lines, "```", "", ""])


def verdicts() -> list[str]:
    rows: list[str] = []
    for name in recorded.NAMES:
        verdict = bottleneck.verdict(recorded.profile(name))
        if "." not in name and name != "without_lines" and verdict:
            source = recorded.source_of(name)
            place = f"../../tests/recordings/profiles/{source.name}"
            rows.append(f"| [{source.name}]({place}) | `{verdict.text}` |")
    return rows


def refused() -> str:
    bench = recorded.Profiling(profiled.RAN)
    why = (
        "ncu may not read this GPU's counters (ERR_NVGPUCTRPERM); an administrator permits them with "
        "NVreg_RestrictProfilingToAdminUsers=0"
    )
    ran = profiled.run("/src/memory_bound.cu")
    (launches,) = ran.launches
    profile = c.Profile(
        launches.symbol, launches.name, "times", why, grid=launches.grid, block=launches.block
    )
    bench.file(replace(ran, profiles=(profile,)))
    return _shown(bench, 4, 8)


def _shown(bench: recorded.Profiling, first: int, last: int) -> str:
    lines = source_listing.lines(bench.session, bench.uri, color=False)
    number = re.compile(r" *(\d+) ?")
    kept: list[str] = []
    for at, line in enumerate(lines):
        below = number.match(lines[at + 1]) if "▶" in line and at + 1 < len(lines) else None
        match = below or number.match(line)
        if match and first <= int(match[1]) <= last:
            kept.append(line)
    return "\n".join(kept)


def _hover(bench: recorded.Profiling, line: int) -> str:
    result = hover.hover(bench.session, bench.uri, line - 1, markdown=False)
    assert result
    return result.contents.value  # type: ignore[union-attr]


def screenshots() -> None:
    bench = recorded.Profiling("spilling")
    profiled = bench.file(recorded.finished("spilling"))
    (target,) = bench.session.results.profiles
    report = profile_report.page(replace(profiled, at=_RECORDED), target.key, "/src/spilling.cu")
    overview = test_page_layout.pages()["overview"]
    for name in (test_page_layout.LONG, test_page_layout.LONG[:60]):
        overview = overview.replace(name, "tile")
    for name, html in (("profile-report", page.html(report)), ("server-page", overview)):
        pictured(name, html)


def pictured(name: str, html: str, size: str = "1000,900") -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "page.html"
        file.write_text(html)
        for scheme, number in (("dark", 0), ("light", 1)):
            picture = PICTURES / f"{name}-{scheme}.png"
            subprocess.run(
                ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--window-size={size}",
                 f"--blink-settings=preferredColorScheme={number}", f"--user-data-dir={folder}/user",
                 f"--screenshot={picture}", file.as_uri()],
                check=True, capture_output=True,
            )  # fmt: skip
            sys.stdout.write(f"{picture.relative_to(ROOT)}\n")


def main() -> None:
    PAGE.write_text(text())
    sys.stdout.write(f"{PAGE.relative_to(ROOT)}\n")
    if "--screenshots" in sys.argv:
        screenshots()


if __name__ == "__main__":
    main()
