"""The published JSON schemas of the command line's `--json`, with the contract's version."""

from __future__ import annotations

import json
from typing import Any

from pydantic import TypeAdapter

from orbit_lsp.agents.loop import records
from orbit_lsp.cli import json_results
from orbit_lsp.cli.machine import list_results
from orbit_lsp.cli.submit_command import Submission
from orbit_lsp.report import results_json
from orbit_lsp.state.compilation import Compilation
from orbit_lsp.views.explain.explanations import Explanation
from orbit_remote.common.messages import VERSION, Finished

KINDS: dict[str, Any] = {
    "finished": Finished,
    "compared": results_json.Compared,
    "history": results_json.FileHistory,
    "worker": records.WorkerResult,
    "reviewer": records.ReviewerVerdict,
    "loop": records.LoopSummary,
    "drafts": list[json_results.Draft],
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
}


def text(kind: str = "finished") -> str:
    schema = TypeAdapter(KINDS[kind]).json_schema()
    schema["$id"] = f"urn:orbit-lsp:{kind}:{VERSION}"
    schema["x-version"] = VERSION
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
