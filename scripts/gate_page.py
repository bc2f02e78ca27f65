"""Draw docs/pictures/gate-*.png: the report of a recorded gate as a pull request shows it, and the page of recorded gates.

.venv/bin/python scripts/gate_page.py    # needs chromium

The gates are those of tests/recordings/gates.json: `bench/gate.py story` on an H200, and one of its planted gates.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
sys.path.insert(0, str(ROOT / "scripts"))

from markdown_it import MarkdownIt  # noqa: E402
from profile_page import pictured  # noqa: E402

from orbit_lsp.gate.results import GateResult  # noqa: E402
from orbit_lsp.report import gate_history, gate_report, page  # noqa: E402
from orbit_remote.common import codec  # noqa: E402

RECORDED = ROOT / "tests" / "recordings" / "gates.json"
_COMMENT = """<!doctype html><meta charset="utf-8"><style>{style}
body {{ max-width: 60rem; }} .comment {{ border: 1px solid var(--line); border-radius: 6px; padding: 1rem; }}
.comment p {{ margin: 0 0 1rem; }} .comment table {{ margin-bottom: 1rem; }} sub {{ line-height: 1.6; }}
.comment th, .comment td, .comment td:first-child:not(.number) {{ border: 1px solid var(--line); padding: .35rem .75rem; min-width: 0; }}
code {{ background: var(--soft); padding: .1rem .3rem; border-radius: 4px; }}</style><div class="comment">{text}</div>"""


def gates() -> list[GateResult]:
    """The recorded gates, the oldest first."""
    return [codec.build(GateResult, each, lenient=True) for each in json.loads(RECORDED.read_text())]


def comment(result: GateResult) -> str:
    """The report for a pull request, as a page."""
    text = MarkdownIt("commonmark", {"html": True}).enable("table").render(gate_report.markdown(result))
    return _COMMENT.format(style=page.STYLE, text=text)


def main() -> None:
    every = gates()
    pictured("gate-comment", comment(max(every, key=lambda result: len(result.kernels))), "960,560")
    story = [result for result in every if len(result.kernels) == len(every[0].kernels)]
    pictured("gate-history", page.html(gate_history.page(story, "kernels")), "1000,900")


if __name__ == "__main__":
    main()
