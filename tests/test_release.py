"""The version is the same everywhere, and one command changes it everywhere; what is pinned suits every Python."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from contextlib import suppress
from importlib import metadata
from pathlib import Path

from packaging.specifiers import SpecifierSet

import orbit_lsp
import orbit_remote

ROOT = Path(__file__).parent.parent
COPIED = (
    "scripts/version.py", "pyproject.toml", "orbit_lsp/__init__.py", "remote/orbit_remote/__init__.py",
    "docs/guide/editors.md", "editors/vscode/package.json", "editors/vscode/package-lock.json", "editors/vscode/README.md",
)  # fmt: skip


def version(folder: Path, *arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, str(folder / "scripts" / "version.py"), *arguments],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode, (done.stdout + done.stderr).strip()


def test_the_version_is_everywhere_that_of_pyproject() -> None:
    assert version(ROOT) == (0, orbit_lsp.__version__)
    assert orbit_remote.__version__ == orbit_lsp.__version__


def test_one_command_writes_it_everywhere_and_a_place_that_differs_is_named(tmp_path: Path) -> None:
    for name in COPIED:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    assert version(tmp_path, "9.8.7") == (0, "9.8.7")
    changed = {name: (tmp_path / name).read_text() for name in COPIED[1:]}
    assert not [
        name
        for name, text in changed.items()
        if re.sub(r"9\.8\.7", orbit_lsp.__version__, text) != (ROOT / name).read_text()
    ]

    module = tmp_path / "orbit_lsp" / "__init__.py"
    module.write_text(module.read_text().replace("9.8.7", "9.8.6"))
    assert version(tmp_path) == (1, "pyproject.toml says 9.8.7, but\norbit_lsp/__init__.py: 9.8.6")
    assert version(tmp_path, "nine")[0] == 1


def test_what_is_pinned_can_be_installed_in_the_oldest_python() -> None:
    """Debian 12 has 3.11.2, and a package may need 3.11.5. What is not installed here is passed over."""
    pins = re.findall(r"^([\w.-]+)==", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    needs: dict[str, str] = {}
    for name in pins:
        with suppress(metadata.PackageNotFoundError):
            needs[name] = metadata.metadata(name).get("Requires-Python") or ""
    assert "pymdown-extensions" in needs
    assert {name: need for name, need in needs.items() if "3.11.2" not in SpecifierSet(need)} == {}
