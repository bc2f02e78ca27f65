"""The table of limits: each is obeyed somewhere, at the limit a file is read, one byte past it a sentence refuses it. What
is no file is tried in `tests/hostile/test_limits_kept.py`.

`docs/guide/limits.md` is the same table; `tests/test_docs.py` holds that.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from orbit_remote.common import limits, regular_files
from orbit_remote.common.limits import Limit

ROOT = Path(__file__).resolve().parents[2]
READ_WHOLE = 8 << 20
FILES = {name: limit for name, limit in limits.table().items() if limit.unit == "bytes"}


def sparse(path: Path, size: int) -> Path:
    with path.open("wb") as file:
        file.truncate(size)
    return path


@pytest.mark.parametrize(
    "limit", [limit for limit in FILES.values() if limit.most <= READ_WHOLE], ids=lambda item: item.what
)
def test_a_file_at_the_limit_is_read(limit: Limit, tmp_path: Path) -> None:
    assert len(regular_files.read(sparse(tmp_path / "file", limit.most), limit)) == limit.most


@pytest.mark.parametrize("limit", FILES.values(), ids=FILES)
def test_one_byte_past_the_limit_a_sentence_names_it(limit: Limit, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="larger") as caught:
        regular_files.read(sparse(tmp_path / "file", limit.most + 1), limit)
    assert caught.value.strerror == f"it is larger than {limit.size}, the limit for {limit.what}"


def test_each_limit_is_obeyed_somewhere() -> None:
    code = "\n".join(
        path.read_text(encoding="utf-8")
        for folder in ("orbit_lsp", "remote/orbit_remote")
        for path in (ROOT / folder).rglob("*.py")
        if path.name != "limits.py"
    )
    imported = set(
        re.findall(r"\w+", " ".join(re.findall(r"from orbit_remote\.common\.limits import ([^\n]*)", code)))
    )
    unused = [
        name
        for name in limits.table()
        if name not in imported and not re.search(rf"\blimits\.{name}\b", code)
    ]
    assert not unused


@pytest.mark.parametrize(("name", "limit"), limits.table().items(), ids=limits.table())
def test_each_says_what_becomes_of_the_rest_in_a_sentence(name: str, limit: Limit) -> None:
    assert limit.most > 0, name
    assert re.fullmatch(r"[A-Z`][^|\n]*\.", limit.beyond), limit.beyond
    assert "|" not in limit.what
    assert [limit.what for limit in limits.table().values()].count(limit.what) == 1


def test_the_length_of_a_file_without_a_size_counts_as_it_is_read() -> None:
    with pytest.raises(OSError, match="larger than 4 bytes"):
        regular_files.read(f"/proc/{os.getpid()}/status", Limit("a test", 4, "It is refused."))
