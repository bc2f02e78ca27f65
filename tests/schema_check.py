"""Whether a text is what its published JSON schema says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from orbit_lsp.cli.reference import schema
from orbit_remote.common.messages import RESULT_VERSION

SCHEMAS = Path(__file__).parent.parent / "docs" / "schema"


def valid(kind: str, text: str) -> Any:
    """What the text holds, once it is as the schema of this kind says, and has exactly its fields."""
    TypeAdapter(schema.KINDS[kind]).validate_json(text, strict=True)
    published = json.loads((SCHEMAS / f"{kind}-{RESULT_VERSION}.json").read_text())
    result = json.loads(text)
    for entry in result if isinstance(result, list) else [result]:
        assert set(entry) == set(_entry(published)["properties"])
    return result


def _entry(published: dict[str, Any]) -> dict[str, Any]:
    """The schema of an object, also where the output is a list of these, or one or a list."""
    known: dict[str, Any] = (published.get("anyOf") or [published])[0]
    known = known.get("items", known)
    return published["$defs"][known["$ref"].rpartition("/")[2]] if "$ref" in known else known
