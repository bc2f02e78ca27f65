"""`orbit-lsp debug-compile`: one compilation with all of its files, as a folder or a .zip to look at or to send."""

from __future__ import annotations

import argparse
import base64
import dataclasses
import io
import json
import platform
import sys
import tarfile
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from orbit_lsp import __version__
from orbit_lsp.cli import disassemble_command, json_results, terminal_text
from orbit_lsp.cli.terminal_text import UsageError
from orbit_lsp.profile import dump_files, report_store
from orbit_lsp.runs import summary
from orbit_lsp.runs.scheduler import Scheduler
from orbit_lsp.state.documents import split_lines
from orbit_lsp.state.session import Session, path_of
from orbit_remote.common import codec, limits
from orbit_remote.common import messages as c
from orbit_remote.common.plain_text import visible
from orbit_remote.common.requests import Job, Level

_MOST_COLUMNS = 200
"""Of a step of a stack in the terminal: template arguments are thousands of characters; the summary has them whole."""
_AROUND = 2
"""Lines of source shown before and after an error."""

_Problem = tuple[str, c.Problem]


async def run(options: argparse.Namespace, session: Session, runs: Scheduler, uri: str) -> int:
    """Compile the file, write the bundle, print the errors. Returns the exit code. Raises UsageError."""
    if options.arch:
        session.setup.figures_for = disassemble_command.architecture(options.arch)
    file = session.files[uri]
    levels: tuple[Level, ...] = ("ptx", "sass") if file.scan.language == "cuda" else get_args(Level)
    place = _place(options, Path(path_of(uri)).stem)
    started = runs.start("compile", uri, levels=levels, keep=True)
    assert started
    finished = await runs.result(started)
    problems = list(terminal_text.problems(session, uri))
    problems.sort(key=lambda of: of[1].severity != "error")
    files = _files(finished, file.document.text, Path(path_of(uri)).name)
    files |= await _disassembled(files, finished, runs)
    files["summary.md"] = _summary(session, uri, started.job, finished, problems, files).encode()
    files["result.json"] = _result(finished, problems).encode()
    _write(place, files, as_zip=options.zip)
    _print(options, session, uri, finished, problems, place)
    return c.EXIT_CODES[finished.outcome]


def _place(options: argparse.Namespace, stem: str) -> Path:
    """Return where the bundle goes. Nothing that exists is overwritten. Raises UsageError."""
    name = options.output or f"{stem}-debug-{time.strftime('%Y%m%d-%H%M%S')}"
    place = Path(name if not options.zip or name.endswith(".zip") else f"{name}.zip").absolute()
    if place.exists() and not (place.is_dir() and not options.zip and not any(place.iterdir())):
        raise UsageError(f"{place.name} is there already; name another place with --output")
    return place


# -- what is in it ----------------------------------------------------------------------------------


def _files(finished: c.Finished, text: str, name: str) -> dict[str, bytes]:
    """Return the files by their paths in the bundle: the source as it was compiled, the compiler's own files, and
    those of each kernel.
    """
    files: dict[str, bytes] = {f"source/{name}": text.encode("utf-8", "replace")}
    if finished.report:
        with tarfile.open(fileobj=io.BytesIO(report_store.unpack(finished.report))) as tar:
            for entry in tar:
                if entry.isfile() and (content := tar.extractfile(entry)):
                    files[entry.name] = content.read()
    for file_name, dump in zip(dump_files.file_names(finished.dumps), finished.dumps, strict=True):
        files[f"kernels/{file_name}"] = report_store.unpack(dump.text)
    if printed := f"{finished.stdout}{finished.stderr}":
        files["output.log"] = printed.encode("utf-8", "replace")
    return files


async def _disassembled(
    files: Mapping[str, bytes], finished: c.Finished, runs: Scheduler
) -> dict[str, bytes]:
    """Return the SASS of cubins for which the compilation listed none, as with CuTe DSL."""
    if any(dump.level == "sass" for dump in finished.dumps):
        return {}
    listed: dict[str, bytes] = {}
    for name, content in files.items():
        if not name.endswith(".cubin") or len(content) > limits.CUBIN.most:
            continue
        text = base64.b64encode(content).decode("ascii")
        job = Job(runs.new_id(), "disassemble", "cuda", name, text, levels=("sass",))
        answer = await runs.outcome(job)
        for file_name, dump in zip(dump_files.file_names(answer.dumps), answer.dumps, strict=True):
            listed[f"kernels/{file_name}"] = report_store.unpack(dump.text)
        if answer.failure:
            listed[f"{name}.txt"] = f"no SASS: {answer.failure.message}\n{answer.failure.remedy}\n".encode()
    return listed


def _summary(
    session: Session,
    uri: str,
    job: Job,
    finished: c.Finished,
    problems: list[_Problem],
    files: Mapping[str, bytes],
) -> str:
    name = Path(path_of(uri)).name
    verdict = finished.failure.message.partition("\n")[0] if finished.failure else "it compiles"
    parts = [f"# {name}: {verdict}", ""]
    for path, problem in problems:
        lines = summary.problem_lines(problem, path)
        parts += ["```text", *lines[:1], *_excerpt(session, uri, problem), *lines[1:], "```", ""]
    versions = {
        "orbit-lsp": __version__, **finished.toolchain, "architecture": job.architecture or "not named",
        "system": platform.platform(),
    }  # fmt: skip
    parts += ["## Versions", "", "| what | version |", "|---|---|"]
    parts += [f"| {what} | {version} |" for what, version in versions.items()]
    if finished.resources:
        parts += [
            "",
            "## Kernels",
            "",
            "| kernel | registers | shared memory | spills |",
            "|---|---|---|---|",
        ]
        parts += [
            f"| `{of.name}` | {_number(of.registers)} | {_number(of.static_shared)} B | {_number(of.spill_stores)} B |"
            for of in finished.resources
        ]
    if finished.remarks:
        parts += ["", "## Remarks", "", *(f"- {remark}" for remark in finished.remarks)]
    parts += ["", "## Files", "", "| file | bytes |", "|---|---|"]
    parts += [f"| {file} | {len(content):,} |" for file, content in sorted(files.items())]
    return visible("\n".join(parts)) + "\n"


def _number(amount: int | None) -> str:
    return "-" if amount is None else f"{amount:,}"


def _excerpt(session: Session, uri: str, problem: c.Problem) -> list[str]:
    """Return the lines around an error in the file."""
    place = problem.place
    if place is None or place.file != path_of(uri):
        return []
    lines = split_lines(session.files[uri].document.text)
    first, last = max(1, place.line - _AROUND), min(len(lines), place.line + _AROUND)
    return [
        f"{'>' if number == place.line else ' '} {number:>4} | {lines[number - 1].rstrip()}"
        for number in range(first, last + 1)
    ]


def _result(finished: c.Finished, problems: list[_Problem]) -> str:
    whole = dataclasses.replace(
        report_store.emptied(finished), problems=tuple(problem for _, problem in problems)
    )
    return json.dumps(dataclasses.asdict(whole), ensure_ascii=False, indent=2) + "\n"


# -- where it goes, and what is printed -------------------------------------------------------------


def _write(place: Path, files: Mapping[str, bytes], *, as_zip: bool) -> None:
    """Raises UsageError."""
    try:
        if as_zip:
            with zipfile.ZipFile(place, "x", zipfile.ZIP_DEFLATED) as archive:
                for name, content in sorted(files.items()):
                    archive.writestr(f"{place.stem}/{name}", content)
            return
        for name, content in files.items():
            path = place / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    except OSError as error:
        raise UsageError(f"the bundle cannot be written to {place}: {error.strerror or error}") from None


def _print(
    options: argparse.Namespace,
    session: Session,
    uri: str,
    finished: c.Finished,
    problems: list[_Problem],
    place: Path,
) -> None:
    if options.json:
        known: dict[str, Any] = codec.read_json(_result(finished, problems))
        print(json_results.text({"bundle": str(place), **known}))
        return
    for path, problem in problems:
        if problem.severity == "error":
            head, *steps = summary.problem_lines(problem, path)
            print(visible("\n".join([head, *_excerpt(session, uri, problem), *map(_cut, steps)])))
    for remark in finished.remarks:
        print(visible(f"note: {remark}"), file=sys.stderr)
    if finished.failure:
        sentence = terminal_text.unrepeated(session, uri, finished.failure).partition("\n")[0]
        print(visible(f"orbit-lsp: error: {sentence} [{finished.outcome}]"), file=sys.stderr)
        if finished.failure.remedy:
            print(terminal_text.indented(finished.failure.remedy), file=sys.stderr)
    print(visible(str(place)))


def _cut(step: str) -> str:
    """Cut the values of template parameters from a step of a stack."""
    short = step.partition(" [with ")[0]
    short = short if len(short) <= _MOST_COLUMNS else short[:_MOST_COLUMNS] + "…"
    return short if short.endswith("…") or short == step else f"{short} […]"
