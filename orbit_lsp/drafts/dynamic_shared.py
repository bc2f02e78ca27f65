"""The dynamic shared memory of a CUDA kernel: declared in its body, at file scope, or in a function that it calls."""

from __future__ import annotations

import re

from orbit_lsp.drafts.scopes import Body, bodies
from orbit_remote.spec.file_context import bracketed

_ALIGNED = r"(?:(?:__align__|alignas)\s*\([^()]*(?:\([^()]*\))?[^()]*\)\s*)?"
_DECLARED = re.compile(
    rf"\bextern\s+{_ALIGNED}__shared__\s+{_ALIGNED}((?:[\w:]+\s+){{0,6}}?[\w:]+)\s+{_ALIGNED}(\w+)\s*\[\s*\]"
)
_CALLED = re.compile(r"\b([A-Za-z_]\w*)\s*(?:<[^<>;(){}]*>)?\s*\(")
_DEEPEST = 6


def element(body: str, text: str) -> str | None:
    """The type of the elements of the `extern __shared__` array that a kernel with this body uses; None where it uses
    none. `text` is the whole file; neither has comments or strings.
    """
    every = bodies(text)
    at_file_scope = {
        found[2]: found[1]
        for found in _DECLARED.finditer(text)
        if not any(one.start < found.start() < one.end for one in every)
    }
    todo, seen = [body], {""}
    for _ in range(_DEEPEST):
        called: set[str] = set()
        for code in todo:
            if own := _DECLARED.search(code):
                return own[1].strip()
            for name, kind in at_file_scope.items():
                if re.search(rf"\b{re.escape(name)}\b", code):
                    return kind.strip()
            called |= set(_CALLED.findall(code))
        todo = [found for name in called - seen for found in _bodies(name, text, every)]
        seen |= called
    return None


def _bodies(name: str, text: str, every: list[Body]) -> list[str]:
    """The bodies of the file's functions of this name."""
    found: list[str] = []
    for one in re.finditer(rf"\b{re.escape(name)}\s*(?=\()", text):
        inner = bracketed(text[one.end() : one.end() + 4000])
        after = one.end() + len(inner) + 2 if inner is not None else len(text)
        found += [
            text[b.start : b.end]
            for b in every
            if b.start >= after and not re.search(r"[;{}(]", text[after : b.start])
        ]
    return found
