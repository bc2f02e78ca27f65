"""The published JSON schemas of the command line's `--json`, with the contract's version."""

from __future__ import annotations

import json

from pydantic import TypeAdapter

from orbit_lsp.agents.loop import records
from orbit_lsp.report import results_json
from orbit_remote.common.messages import VERSION, Finished

KINDS: dict[str, type] = {
    "finished": Finished,
    "compared": results_json.Compared,
    "history": results_json.FileHistory,
    "worker": records.WorkerResult,
    "reviewer": records.ReviewerVerdict,
    "loop": records.LoopSummary,
}


def text(kind: str = "finished") -> str:
    schema = TypeAdapter(KINDS[kind]).json_schema()
    schema["$id"] = f"urn:orbit-lsp:{kind}:{VERSION}"
    schema["x-version"] = VERSION
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
