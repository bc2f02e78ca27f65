"""The published JSON schemas of the command line's `--json`, with the contract's version."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pydantic import TypeAdapter

from orbit_lsp.agents.loop import records
from orbit_lsp.cli import json_results
from orbit_lsp.cli.command_options import SCHEMA_OF
from orbit_lsp.cli.machine import list_results
from orbit_lsp.cli.submit_command import Submission
from orbit_lsp.gate.results import GateResult
from orbit_lsp.report import results_json
from orbit_lsp.state.compilation import Compilation
from orbit_lsp.views.explain.explanations import Explanation
from orbit_remote.common.messages import RESULT_VERSION, Finished

KINDS: dict[str, Any] = {
    "finished": Finished,
    "compared": results_json.Compared,
    "gate": GateResult,
    "history": results_json.FileHistory,
    "worker": records.WorkerResult,
    "reviewer": records.ReviewerVerdict,
    "loop": records.LoopSummary,
    "drafts": list[json_results.Draft],
    "drivers": json_results.DriverList,
    "trace": json_results.Trace,
    "disassembly": json_results.Disassembly,
    "bundle": json_results.Bundle,
    "submission": Submission,
    "explanations": list[Explanation],
    "machine": json_results.Machine,
    "compilation": Compilation,
    "jobs": list[list_results.ListedJob],
    "job": list_results.ShownJob | list[list_results.ShownJob],
    "pruned": list_results.PrunedJobs,
    "kernels": list[list_results.NotebookKernel],
    "kernel": list_results.NotebookKernel,
    "sessions": list_results.Sessions,
    "ended": list_results.EndedSessions,
    "stopped": list_results.StoppedWorkers,
    "modal": list_results.ModalStatus,
    "failure": json_results.Failed,
}


_ALSO: dict[str, tuple[Any, ...]] = {
    "run": (list[json_results.OnGpus], list[Finished]),
    "doctor": (Compilation,),
}
"""Further results that commands print: a run on several GPUs, `doctor FILE`."""
_READ = ("worker", "reviewer")
"""Files that others write for a loop; all else is printed, with the version of the contract."""


def text(kind: str = "finished") -> str:
    """Return the schema of a kind of result, or of all that a command may print."""
    result = KINDS[SCHEMA_OF.get(kind, kind)]
    if kind in SCHEMA_OF:
        result = result | json_results.Failed
    for also in _ALSO.get(kind, ()):
        result = result | also
    schema = TypeAdapter(result).json_schema()
    if kind not in _READ:
        for properties in _printed(schema, schema.get("$defs", {})):
            properties.setdefault(
                "version", {"default": RESULT_VERSION, "title": "Version", "type": "integer"}
            )
    schema["$id"] = f"urn:orbit-lsp:{kind}:{RESULT_VERSION}"
    schema["x-version"] = RESULT_VERSION
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _printed(schema: dict[str, Any], defined: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the properties of each object that is printed by itself or in a list."""
    if "$ref" in schema:
        schema = defined[schema["$ref"].rpartition("/")[2]]
    if "properties" in schema:
        yield schema["properties"]
    for part in (*schema.get("anyOf", ()), *([schema["items"]] if "items" in schema else [])):
        yield from _printed(part, defined)
