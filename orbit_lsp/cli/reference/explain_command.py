"""`orbit-lsp explain WORD`: what an outcome, exit code, diagnostic, label, counter, stall reason or setting means."""

from __future__ import annotations

import argparse
import textwrap

from orbit_lsp.cli import json_results
from orbit_lsp.views.explain import explanations


def main(options: argparse.Namespace) -> int:
    """Run the command. Return the exit code."""
    word = " ".join(options.word)
    entries = explanations.explain(word) if word else explanations.entries()
    if not entries:
        from orbit_lsp.cli.terminal_text import refused

        nearest = explanations.suggestions(word)
        hint = f"Did you mean {', '.join(nearest)}?" if nearest else "`orbit-lsp explain` lists the words."
        return refused(f"{word!r} is not a word that can be explained. {hint}", as_json=options.json)
    if options.json:
        print(
            json_results.text(
                [
                    {"kind": explanation.kind, "names": explanation.names, "text": explanation.text}
                    for explanation in entries
                ]
            )
        )
    elif word:
        print("\n\n".join(map(_paragraph, entries)))
    else:
        for kind in dict.fromkeys(explanation.kind for explanation in entries):
            names = ", ".join(explanation.names[0] for explanation in entries if explanation.kind == kind)
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


def _paragraph(explanation: explanations.Explanation) -> str:
    more_names = ", ".join(
        name for name in explanation.names[1:] if not name.isdigit()
    )  # `exit code 5`, and not 5 again
    head = f"{explanation.names[0]} ({explanation.kind}{': ' + more_names if more_names else ''})"
    return (
        head
        + "\n"
        + textwrap.fill(
            explanation.text,
            100,
            initial_indent="  ",
            subsequent_indent="  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
    )
