"""The published JSON schema of what a finished job says, with the contract's version."""

from __future__ import annotations

import json

from pydantic import TypeAdapter

from orbit_remote.contracts import VERSION, Finished


def text() -> str:
    schema = TypeAdapter(Finished).json_schema()
    schema["$id"] = f"urn:orbit-lsp:finished:{VERSION}"
    schema["x-version"] = VERSION
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
