"""docs/dev/doors.md: which fields of a request each door takes, as the doors themselves say it."""

from __future__ import annotations

import ast
import dataclasses
import importlib.util
import inspect
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from orbit_lsp.agents import drop_request
from orbit_lsp.cli import arguments
from orbit_lsp.cli.doors import jobs_command
from orbit_lsp.notebook import cell_commands
from orbit_lsp.queue import request as requests
from orbit_lsp.queue.request import Request, RequestRefusedError

PAGE = Path(__file__).parent.parent / "docs" / "dev" / "doors.md"
FIELDS = [field.name for field in dataclasses.fields(Request) if field.name != "version"]
KERNEL = "__global__ void k() {}\n"
OF_AGENTS = {
    "other_file": "against",
    "other_text": "against_text",
    "file": "path",
    "checks": "tools",
    "full": "detail",
}


def by_jobs(folder: Path) -> set[str]:
    """What differs between a submission without options and one with all that are about the job."""
    for name in ("k.cu", "other.cu"):
        (folder / name).write_text(KERNEL)
    file, other = str(folder / "k.cu"), str(folder / "other.cu")
    words = [
        "--action",
        "compare",
        "--kernel",
        "k",
        "--gpu",
        "H100",
        "--flag=-O1",
        "--argument",
        "x",
        "--timeout",
        "7",
        "--through",
        "t.py",
        "--priority",
        "low",
        "--key",
        "key",
        "--wait-limit",
        "9",
        "--full",
        "--section",
        "Occupancy",
        "--tool",
        "memcheck",
        "--level",
        "sass",
        "--grade",
        "referee",
        "--allow",
        "libraries",
        "--against",
    ]
    parser, _ = arguments.parser()
    plain, full = (parser.parse_args(["jobs", "submit", file, *more]) for more in ([], [*words, other]))
    one, two = (jobs_command._request(options, file) for options in (plain, full))
    return {name for name in FIELDS if getattr(one, name) != getattr(two, name)} | {"name", "text", "path"}


async def by_agents() -> set[str]:
    from orbit_lsp.agents import mcp_server

    tools = await mcp_server.server(MagicMock(), budget_usd=0.0).list_tools()
    taken = {name for tool in tools for name in tool.input_schema.get("properties", {})}
    return ({OF_AGENTS.get(name, name) for name in taken} | {"levels"}) & {*FIELDS}


def by_http() -> tuple[set[str], set[str]]:
    """Return the fields that the job API takes, and those that the server's page takes."""
    from orbit_lsp.api import job_routes, page_routes

    return set(job_routes.JobRequest.model_fields), set(page_routes._FIELDS)


def by_drop() -> set[str]:
    plain, _ = drop_request.request("k.cu", KERNEL)
    full, _ = drop_request.request(
        "k.cu", f"// Type: profile\n// Grade: referee\n// Allow: libraries\n{KERNEL}", 7.0
    )
    return {name for name in FIELDS if getattr(plain, name) != getattr(full, name)} | {"name"}


def by_cell() -> set[str]:
    """The priority of a cell is always high."""
    calls = [
        node for node in ast.walk(ast.parse(inspect.getsource(cell_commands))) if isinstance(node, ast.Call)
    ]
    (call,) = [call for call in calls if ast.unparse(call.func) == "Request"]
    return {keyword.arg for keyword in call.keywords if keyword.arg} - {"priority"}


@pytest.mark.skipif(
    not (importlib.util.find_spec("mcp") and importlib.util.find_spec("fastapi")), reason="needs the extras"
)
async def test_the_page_of_doors_says_what_each_door_takes(tmp_path: Path) -> None:
    page = PAGE.read_text(encoding="utf-8")
    rows = [
        [cell.strip(" `") for cell in line.strip("|").split("|")]
        for line in page.splitlines()
        if line.startswith("| `")
    ]
    assert [row[0] for row in rows] == FIELDS
    said = [{row[0] for row in rows if row[column] == "yes"} for column in range(1, 7)]
    api, form = by_http()
    assert said == [by_jobs(tmp_path), await by_agents(), api, form, by_drop(), by_cell()]


def test_one_decoder_makes_requests(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text(KERNEL)
    made = requests.decoded(
        {"file": str(tmp_path / "k.cu"), "flags": ["-O1"], "kernel": "", "timeout_s": None}
    )
    assert made == Request(name="k.cu", text=KERNEL, path=str(tmp_path / "k.cu"), flags=("-O1",))
    assert requests.decoded({"name": "k.cu", "text": KERNEL, "levels": ["sass"]}).levels == ("sass",)
    with pytest.raises(RequestRefusedError, match="there is no file"):
        requests.decoded({"file": str(tmp_path / "absent.cu")})


def test_a_detail_that_there_is_not_is_refused() -> None:
    values: Any = {"name": "k.cu", "text": KERNEL, "detail": "all"}
    with pytest.raises(
        RequestRefusedError, match="'all' is not a detail of a profile; use one of click, full"
    ):
        requests.check(requests.decoded(values), trusted=True)
