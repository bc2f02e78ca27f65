"""The published JSON schemas of the command line's `--json`, with the contract's version."""

from __future__ import annotations

import json

from pydantic import TypeAdapter

from orbit_lsp.cli import json_output
from orbit_remote.common.messages import VERSION, Finished

KINDS: dict[str, type] = {
    "finished": Finished,
    "compared": json_output.Compared,
    "history": json_output.FileHistory,
}


def text(kind: str = "finished") -> str:
    schema = TypeAdapter(KINDS[kind]).json_schema()
    schema["$id"] = f"urn:orbit-lsp:{kind}:{VERSION}"
    schema["x-version"] = VERSION
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
