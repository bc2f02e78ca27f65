"""Write what is generated from the code: docs/settings.md, docs/schema/, VS Code's settings.

.venv/bin/python scripts/generate.py
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from orbit_lsp import config, schema
from orbit_remote.contracts import VERSION

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "editors" / "vscode" / "package.json"
SERVER_PATH = {
    "type": "string",
    "default": "",
    "markdownDescription": "The `orbit-lsp` to start. Empty: that of the selected Python environment "
    "(trusted workspaces only), else the one on PATH.",
    "scope": "machine-overridable",
}


def files() -> dict[Path, str]:
    """Every generated file's content."""
    return {
        ROOT / "docs" / "settings.md": config.markdown(),
        ROOT / "docs" / "schema" / f"finished-{VERSION}.json": schema.text(),
        PACKAGE: package(PACKAGE.read_text(encoding="utf-8")),
    }


def package(text: str) -> str:
    """package.json with the settings of the model; `trusted` is VS Code's own to say."""
    manifest: dict[str, Any] = json.loads(text)
    settings = {"orbit.serverPath": SERVER_PATH} | properties(config.Settings, "orbit")
    del settings["orbit.trusted"]
    manifest["contributes"]["configuration"]["properties"] = settings
    restricted = ["orbit.serverPath", *(f"orbit.{name}" for name in config.EXECUTABLES)]
    restricted += [
        name for name in settings if name.startswith(tuple(f"orbit.{one}." for one in config.RENTING))
    ]
    manifest["capabilities"]["untrustedWorkspaces"]["restrictedConfigurations"] = restricted
    return json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"


def properties(model: type[BaseModel], section: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    described = model.model_json_schema()["properties"]
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            found |= properties(kind, f"{section}.{name}")
            continue
        entry = {key: value for key, value in described[name].items() if key not in ("title", "description")}
        entry["default"] = field.get_default(call_default_factory=True)
        entry["markdownDescription"] = field.description
        if name in config.EXECUTABLES:
            entry["scope"] = "machine-overridable"
        found[f"{section}.{name}"] = entry
    return found


def main() -> None:
    for path, text in files().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        sys.stdout.write(f"{path.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main()
