"""Finds KernelBench and popcorn files: where they are, and which of the two a file is."""

from __future__ import annotations

import hashlib
from functools import lru_cache

from orbit_lsp.kernels import Span
from orbit_lsp.state.kernel_ids import KernelId
from orbit_lsp.state.session import Session
from orbit_remote.common import limits
from orbit_remote.common.lazy_dataclass import dataclass

_PREFIX = "contract "


@dataclass(frozen=True, slots=True)
class HarnessEntry:
    """What a contract's file offers. `name` is `ModelNew` or `custom_kernel`. Its results are filed under `target`.
    They hold while `digest`, the hash of the whole text, stays the same.
    """

    name: str
    span: Span
    target: KernelId
    digest: str


def of(session: Session, uri: str) -> HarnessEntry | None:
    """Return the contract of an open file in its present text, which may be broken for a moment."""
    file = session.files.get(uri)
    if file is None or file.cell or file.scan.language != "triton":
        return None
    text = file.document.text
    if len(text) > limits.CONTRACT.most or ("ModelNew" not in text and "custom_kernel" not in text):
        return None  # asked at every lens of every Python file
    return _entry(uri, text)


NONE = "orbit: this file has neither a class ModelNew (KernelBench) nor a function custom_kernel (popcorn)"


def holds(session: Session, target: KernelId) -> bool:
    """Say whether a target is the contract that its file offers."""
    entry = of(session, target.uri)
    return entry is not None and entry.target == target


def at(session: Session, uri: str, line: int) -> KernelId | None:
    """Return the contract whose name stands on `line`."""
    entry = of(session, uri)
    return entry.target if entry and entry.span.line == line else None


def named(target: KernelId) -> str:
    """Return `ModelNew` for a contract's target, "" for a kernel's."""
    return target.key.removeprefix(_PREFIX) if target.key.startswith(_PREFIX) else ""


def digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


@lru_cache(maxsize=32)
def _entry(uri: str, text: str) -> HarnessEntry | None:
    from orbit_remote.common.contracts import (
        harness_files,  # 4 ms, which a command of a .cu file does without
    )

    kept = harness_files.kept(text)
    return _made(uri, text, kept.name, kept.line - 1, kept.column - 1) if kept else None


def _made(uri: str, text: str, name: str, line: int, column: int) -> HarnessEntry:
    span = Span(line, column, line, column + len(name))
    return HarnessEntry(name, span, KernelId(uri, _PREFIX + name), digest(text))
