"""The version: it stands in pyproject.toml, and wherever else a program needs it in a file of its own.

python3 scripts/version.py           say it; fail where a place says another
python3 scripts/version.py 0.2.0     write it everywhere

Standard library only.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NUMBER = r"\d+\.\d+\.\d+"
PLACES = {
    "pyproject.toml": rf'(?m)^version = "({NUMBER})"$',
    "orbit_lsp/__init__.py": rf'__version__ = "({NUMBER})"',
    "remote/orbit_remote/__init__.py": rf'__version__ = "({NUMBER})"',
    "editors/vscode/package.json": rf'(?m)^  "version": "({NUMBER})"',
    # of the extension itself, which stands twice at its head; further down are those of its dependencies
    "editors/vscode/package-lock.json": rf'"name": "orbit-lsp",\s+"version": "({NUMBER})"',
    "editors/vscode/README.md": rf"orbit-lsp-({NUMBER})\.vsix",
    "docs/guide/editors.md": rf"orbit-lsp-({NUMBER})\.vsix",
}
"""File -> what finds the version in it; the first is the one that counts."""


def said() -> dict[str, set[str]]:
    """What each place says; an empty set where it says nothing."""
    return {
        name: set(re.findall(pattern, (ROOT / name).read_text(encoding="utf-8")))
        for name, pattern in PLACES.items()
    }


def write(version: str) -> None:
    for name, pattern in PLACES.items():
        path = ROOT / name
        text = path.read_text(encoding="utf-8")
        whole = re.compile(pattern)
        path.write_text(whole.sub(lambda match: match[0].replace(match[1], version), text), encoding="utf-8")


def main() -> None:
    if len(sys.argv) > 2 or (len(sys.argv) == 2 and not re.fullmatch(NUMBER, sys.argv[1])):
        sys.exit("usage: scripts/version.py [MAJOR.MINOR.PATCH]")
    if len(sys.argv) == 2:
        write(sys.argv[1])
    result = said()
    first = result["pyproject.toml"]
    wrong = [f"{name}: {', '.join(sorted(ones)) or 'none'}" for name, ones in result.items() if ones != first]
    if wrong:
        sys.exit(f"pyproject.toml says {', '.join(first)}, but\n" + "\n".join(wrong))
    print(*first)


if __name__ == "__main__":
    main()
