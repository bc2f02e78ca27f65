"""What mkdocs.yml adds to MkDocs: links to files of the repository that are not part of the site become their text and path."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
_FENCED = re.compile(r"(^ *```.*?^ *```$)", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((\.\./[^)#\s]+)(?:#[^)\s]*)?\)")


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    folder = Path(config.docs_dir) / Path(page.file.src_uri).parent
    parts = _FENCED.split(markdown)
    parts[::2] = [
        _LINK.sub(lambda match: _outside(match, folder, Path(config.docs_dir)), part) for part in parts[::2]
    ]
    return "".join(parts)


def _outside(match: re.Match[str], folder: Path, docs: Path) -> str:
    """The link as it is where it stays in docs/ or leads nowhere (MkDocs reports that), else its text and the file's path."""
    path = (folder / match[2]).resolve()
    if path.is_relative_to(docs) or not path.exists() or not path.is_relative_to(ROOT):
        return match[0]
    name = path.relative_to(ROOT).as_posix()
    return match[1] if match[1].strip("`") in name else f"{match[1]} (`{name}`)"
