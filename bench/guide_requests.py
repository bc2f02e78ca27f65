"""The example requests of a guide in Markdown, sent by `curl` to an evaluation server as they stand there.

    python -P bench/guide_requests.py GUIDE.md [GUIDE.md ...] --server http://127.0.0.1:8421

Read are `curl` commands of shell blocks with a body, and `requests.post(..., json={...})` of Python blocks. Only the server's address
is replaced. One line for each: the route, the status, and what the answer says.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

_BLOCK: Final = re.compile(r"^```(bash|sh|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def requests(text: str) -> Iterator[tuple[str, str]]:
    """Routes with bodies."""
    for language, block in _BLOCK.findall(text):
        yield from _of_python(block) if language == "python" else _of_shell(block)


def _of_shell(block: str) -> Iterator[tuple[str, str]]:
    for command in re.split(r"^(?=curl )", block, flags=re.MULTILINE):
        if not command.startswith("curl "):
            continue
        words = shlex.split(command.replace("\\\n", " "), comments=True)
        address = next(word for word in words if word.startswith("http"))
        if "-d" in words:
            yield re.sub(r"^https?://[^/]*", "", address), words[words.index("-d") + 1]


def _of_python(block: str) -> Iterator[tuple[str, str]]:
    try:
        tree = ast.parse(block)
    except SyntaxError:  # a part of a program
        return
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call) or not ast.unparse(call.func).endswith(".post") or not call.args:
            continue
        for word in call.keywords:
            if word.arg == "json":
                try:
                    route, body = (ast.literal_eval(node) for node in (call.args[0], word.value))
                except ValueError:  # of variables
                    continue
                yield re.sub(r"^https?://[^/]*", "", str(route)), json.dumps(body)


def answered(server: str, route: str, body: str) -> tuple[str, dict[str, Any]]:
    command = ["curl", "-s", "-w", "\n%{http_code}", "-X", "POST", f"{server}{route}"]
    command += ["-H", "Content-Type: application/json", "-d", "@-"]
    done = subprocess.run(command, input=body, capture_output=True, text=True, check=True)
    text, _, status = done.stdout.rpartition("\n")
    return status, json.loads(text)


def line(answer: dict[str, Any]) -> str:
    if "kernel_exec_result" not in answer:
        return str(answer.get("error", answer))
    result: dict[str, Any] = answer["kernel_exec_result"]
    reference: dict[str, Any] = answer["ref_runtime"] or {}
    known: dict[str, Any] = {
        "compiled": result["compiled"],
        "correct": result["correctness"],
        "ms": result["runtime"],
        "reference ms": reference.get("mean"),
        "trials": result["metadata"]["num_trials"],
        "grade": answer["grade"],
        "error": result["compilation_error"] or result["validation_error"],
    }
    return ", ".join(f"{name} {value}" for name, value in known.items() if value is not None)


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("guides", nargs="+", type=Path)
    options.add_argument("--server", default="http://127.0.0.1:8421")
    chosen = options.parse_args()
    for guide in chosen.guides:
        for route, body in requests(guide.read_text()):
            status, answer = answered(chosen.server, route, body)
            print(f"{guide.name} {route} {status}: {line(answer)}", flush=True)


if __name__ == "__main__":
    main()
