"""`orbit-lsp explain WORD`: what an outcome, exit code, diagnostic, label, counter, stall reason or setting means."""

from __future__ import annotations

import argparse
import json
import sys
import textwrap

from orbit_lsp.state import explanations
from orbit_remote.common.messages import EXIT_CODES


def main(options: argparse.Namespace) -> int:
    word = " ".join(options.word)
    found = explanations.explain(word) if word else explanations.entries()
    if not found:
        nearest = explanations.suggestions(word)
        hint = f"Did you mean {', '.join(nearest)}?" if nearest else "`orbit-lsp explain` lists the words."
        print(f"orbit-lsp: error: {word!r} is not a word that can be explained. {hint}", file=sys.stderr)
        return EXIT_CODES["usage"]
    if options.json:
        print(
            json.dumps(
                [{"kind": one.kind, "names": one.names, "text": one.text} for one in found],
                indent=2,
                ensure_ascii=False,
            )
        )
    elif word:
        print("\n\n".join(map(_paragraph, found)))
    else:
        for kind in dict.fromkeys(one.kind for one in found):
            names = ", ".join(one.names[0] for one in found if one.kind == kind)
            print(
                textwrap.fill(
                    f"{kind}: {names}",
                    100,
                    subsequent_indent="  ",
                    break_long_words=False,
                    break_on_hyphens=False,
                )
            )
    return 0


def _paragraph(one: explanations.Explanation) -> str:
    others = ", ".join(one.names[1:])
    head = f"{one.names[0]} ({one.kind}{': ' + others if others else ''})"
    return (
        head
        + "\n"
        + textwrap.fill(one.text, 100, initial_indent="  ", subsequent_indent="  ", break_long_words=False)
    )
