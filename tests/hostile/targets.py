"""What others write, and what reads it: a target takes bytes, and fails where they do harm.

Harm is an exception that escapes, a control character in what an author reads, and - `Meter` in fuzz.py looks at
it - time or memory without a bound.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import resource
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, cast

from orbit_lsp.cli import report_command, source_listing, terminal_text
from orbit_lsp.compilation.database import Databases
from orbit_lsp.drivers.finder import DriverFinder
from orbit_lsp.history.history_store import HistoryStore
from orbit_lsp.kernels import tracker
from orbit_lsp.profile import report_store
from orbit_lsp.report import page, profile_report
from orbit_lsp.runners.modal.ledger import Ledger, RentedTime
from orbit_lsp.runs import scheduler, summary
from orbit_lsp.server import handlers
from orbit_lsp.specs import job_builder, spec_cache
from orbit_lsp.state.results import Problems
from orbit_lsp.state.session import Session
from orbit_lsp.views import diagnostics as diagnostic_view
from orbit_lsp.views import hints, hover, lenses
from orbit_remote.common import codec, plain_text
from orbit_remote.common import messages as c
from orbit_remote.common.contracts import popcorn_task
from orbit_remote.common.requests import Job
from orbit_remote.ncu.ncu_log import Log
from orbit_remote.recording import injection
from orbit_remote.sanitizer import sanitizer_findings, sanitizer_records
from orbit_remote.spec import launch_spec
from orbit_remote.toolchain import diagnostics, elf, ptx, ptxas
from orbit_remote.toolchain.build_cache import Cache, CachedBuild
from tests.test_history import entry

CPU_S = 20
"""Of one input: none that was tried takes a tenth of it."""
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def printed(texts: Iterable[object]) -> None:
    for text in texts:
        match = CONTROL.search(str(text))
        assert match is None, f"{match!r} is shown to the author, in {str(text)[:200]!r}"


# -- messages of an editor --------------------------------------------------------------------------


def messages(stream: bytes) -> None:
    """A server, forked, that reads these bytes and then the end of its input."""
    with (
        tempfile.TemporaryFile() as stdin,
        tempfile.TemporaryFile() as stdout,
        tempfile.TemporaryFile() as stderr,
    ):
        stdin.write(stream)
        stdin.seek(0)
        sys.stdout.flush()
        sys.stderr.flush()
        if not (child := os.fork()):
            status = 99
            try:
                resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
                for number, file in enumerate((stdin, stdout, stderr)):
                    os.dup2(file.fileno(), number)
                sys.stdin, sys.stdout, sys.stderr = (
                    open(number, mode, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
                    for number, mode in enumerate(("r", "w", "w"))
                )
                import logging

                logging.getLogger().handlers.clear()
                status = handlers.serve()
                sys.stderr.flush()
            finally:
                os._exit(status)
        _, status = os.waitpid(child, 0)
        texts: list[str] = []
        for file in (stdout, stderr):
            file.seek(0)
            texts.append(file.read().decode("utf-8"))
    answers, log = texts
    assert "Traceback" not in log, log[-3000:]
    assert os.waitstatus_to_exitcode(status) in (0, 1), (os.waitstatus_to_exitcode(status), log[-3000:])
    printed(log.splitlines())
    assert len(log) < 100_000
    for answer in re.split(r"Content-Length: \d+\r\n(?:Content-Type: [^\r]*\r\n)?\r\n", answers):
        if answer:
            message = json.loads(answer)
            assert message.get("error", {}).get("code") != -32602 or "Traceback" not in answer


# -- launch specs -----------------------------------------------------------------------------------


def specs(source: bytes) -> None:
    """A file, `.py` where it says so in its first line."""
    text = source.decode("utf-8", "surrogatepass")
    uri = "file:///src/k.py" if text.startswith("import triton") else "file:///src/k.cu"
    session = Session()
    file = session.open(uri, 1, text)
    if file is None:
        return
    printed(fault.message for fault in spec_cache.faults(session, uri))
    printed(diagnostic.message for diagnostic in diagnostic_view.diagnostics(session, uri))
    lenses.lenses(session, uri)
    hints.hints(session, uri, 0, 1 << 20)
    for kernel in file.scan.kernels:
        spec_cache.shape(session, uri, kernel)
        if checked := spec_cache.spec_of(session, uri, kernel, placed=False):
            spec_cache.refusal(checked)
            points, faults = launch_spec.points(checked.spec) if checked.spec else ([], [])
            printed(fault.message for fault in faults)
            assert len(points) < 100_000


# -- compiler output --------------------------------------------------------------------------------

SOURCE = '#include "k.cuh"\n__global__ void saxpy(int n, float a, const float* x, float* y) {\n  y[0] = a * x[0];\n}\n'


def compiler_output(output: bytes) -> None:
    text = plain_text.plain(output.decode("utf-8", "replace"))
    modules = (ptx.read(text),)
    context = diagnostics.DiagnosticContext(
        "/src/k.cu", lambda _: SOURCE, "/src", scratch="/tmp/orbit-x", ptx=modules
    )
    problems = [
        problem for failed in (False, True) for problem in diagnostics.parse(text, context, failed=failed)
    ]
    used = ptxas.resources(text, modules, context.named)
    session = Session()
    session.open("file:///src/k.cu", 1, SOURCE)
    session.results.keep_problems("nvcc", {"file:///src/k.cu": Problems(1, tuple(problems))})
    printed(terminal_text.problem_lines(session, "file:///src/k.cu"))
    printed(diagnostic.message for diagnostic in diagnostic_view.diagnostics(session, "file:///src/k.cu"))
    printed(resources.name for resources in used)
    failure = c.Failure("compile error", problems[0].message if problems else "x")
    printed([summary.one_line(c.Finished("r1", "compile error", failure), compiled_only=True)])
    log = Log(plain_text.plain(text))
    printed((log.status, log.ended_it, log.profiled, *log.launched, *log.errors))
    if log.refusal:
        printed([log.refusal.sentence])


# -- events of a worker or a container --------------------------------------------------------------

SPEC = f"// orbit: n = 8; x = randn(n); y = randn(n)\n// orbit: launch saxpy<<<1, 256>>>(n, 2.0f, x, y)\n// orbit: bytes 12 * n\n{SOURCE}"


def events(lines: bytes) -> None:
    """A job's events, a line each, as a worker or a rented container sends them, and all that is shown of them."""
    uri = "file:///src/k.cu"
    session = Session()
    session.open(uri, 1, SPEC)
    frozen = session.freeze(uri)
    assert frozen
    targets = {target for target, _, _ in session.kernels(uri)}
    for action in ("run", "profile", "compile"):
        job = job_builder.make(
            session, frozen, action, "r1", job_builder.plan_of(session, next(iter(targets)))
        )
        work = scheduler._OneJob(  # pyright: ignore[reportPrivateUsage]
            scheduler.Run("r1", action, frozen, job, set(targets)), session, _no_runner, _Nobody(), None,
            lambda run, state, why: None, lambda failure: failure,
        )  # fmt: skip
        for line in lines.split(b"\n"):
            with suppress(ValueError):
                work._take(codec.decode_event(codec.read_json(line)))  # pyright: ignore[reportPrivateUsage]
        finished, _ = work.end(None)
        json.dumps(dataclasses.asdict(finished))
        summary.one_line(finished, compiled_only=action == "compile")
    diagnostic_view.diagnostics(session, uri)
    lenses.lenses(session, uri)
    hints.hints(session, uri, 0, 1 << 20)
    for line in range(len(SPEC.splitlines())):
        for markdown in (False, True):
            hover.hover(session, uri, line, markdown=markdown)
    printed(source_listing.lines(session, uri, color=False))
    for profiled in session.results.profiles.values():
        if profiled.profiles:
            page.html(profile_report.page(profiled, "saxpy", "/src/k.cu"))


async def _no_runner(job: Job) -> Any:
    raise OSError(job.run)


class _Nobody:
    """A watcher who looks at nothing."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None


# -- reports ----------------------------------------------------------------------------------------


def reports(content: bytes) -> None:
    """A kept profile, an event, findings of compute-sanitizer, recorded launches, a cubin, a `task.yml`, flags: the
    same bytes as each of them.
    """
    text = content.decode("utf-8", "replace")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "a.json").write_bytes(content)
        (folder / "1.jsonl").write_bytes(content)
        for kept in report_store.newest(folder, "/src/k.cu"):
            if (profiled := report_command.profiled(kept)) and profiled.profiles:
                page.html(profile_report.page(profiled, kept.kernel, kept.path))
        injection.read(folder)
        Databases().find("/src/k.cu", "/src", str(folder / "a.json"))
    for record in sanitizer_records.read(text, text):
        sanitizer_findings.problems("memcheck", [record], lambda name: name)
    with suppress(popcorn_task.TaskError):
        popcorn_task.read(text)
    for image in elf.images(content):
        with suppress(ValueError):
            cubin = elf.Cubin(image)
            printed(variable.size for variable in cubin.variables())
    try:
        event = codec.decode_event(json.loads(text))
    except (ValueError, RecursionError):
        return
    if isinstance(event, c.Finished):
        printed([summary.one_line(event, compiled_only=False)])


# -- databases --------------------------------------------------------------------------------------


def databases(recipe: bytes) -> None:
    """`{"runs": [[column, value], …], "spans": […], "texts": […], "bytes": [[place, byte], …]}`: what is changed in
    a history, a ledger and a build cache that are right.
    """
    changes = cast("dict[str, list[list[Any]]]", json.loads(recipe))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        history, rented = folder / "history.sqlite", folder / "rented.sqlite"
        store, ledger, cache = HistoryStore(lambda: history), Ledger(lambda: rented), Cache(folder / "builds")
        store.keep(entry(1), SOURCE)
        ledger.put(RentedTime("ta-1", "H100", 1e9, 1e9 + 100, 0.001, "x"))
        cache.store("00", CachedBuild({"problems": []}, b"cubin", {"/src/k.cuh": "00"}))
        _change(history, "runs", changes.get("runs", []))
        _change(history, "texts", changes.get("texts", []))
        _change(rented, "spans", changes.get("spans", []))
        for path in (history, rented, *(folder / "builds").iterdir()):
            _overwrite(path, changes.get("bytes", []))
        for result in store.entries("/src/saxpy.cu"):
            store.text(result.text or "")
            printed([summary.one_line(result.result.finished, compiled_only=False)])
        store.kernels("/src/saxpy.cu")
        store.keep(entry(2), SOURCE)
        ledger.month(1e9 + 50)
        ledger.reserve([RentedTime("r1", "H100", 1e9, 1e9 + 10, 0.001)], 5.0, 1e9)
        ledger.close()
        cache.load("00")
        printed((*store.complaints(), *ledger.complaints()))


def _change(path: Path, table: str, values: list[list[Any]]) -> None:
    with closing(sqlite3.connect(path)) as file, file:
        for column, value in values:
            stored = (
                bytes.fromhex(value[4:]) if isinstance(value, str) and value.startswith("hex:") else value
            )
            with suppress(sqlite3.Error, OverflowError, UnicodeEncodeError):
                file.execute(f'update {table} set "{column}" = ?', (stored,))


def _overwrite(path: Path, places: list[list[Any]]) -> None:
    content = bytearray(path.read_bytes())
    for place, byte in places:
        if content:
            content[place % len(content)] = byte
    path.write_bytes(content)


# -- projects ---------------------------------------------------------------------------------------


def drivers(project: bytes) -> None:
    """A project as one text: `=== path` begins a file."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in ("\n" + project.decode("utf-8", "surrogatepass")).split("\n=== ")[1:]:
            place, _, text = part.partition("\n")
            if re.fullmatch(r"(?:\w+/){0,4}\.?\w[\w.]*", place, re.ASCII):
                path = folder / place
                with suppress(OSError):  # a file is where a folder should be
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(text.encode("utf-8", "surrogatepass"))
        finder = DriverFinder(name, lambda: folder / "drivers.sqlite")
        finder.refresh()
        for place in (*finder.index.files, *finder.index.places("", (".cu",))):
            scan = tracker("triton" if place.endswith(".py") else "cuda").scan(finder.index.text(place))
            for kernel in scan.kernels[:20]:
                found = finder.routes(finder.index.path(place), kernel.qualified)
                assert found.routes or found.reason
                printed((found.reason, *(each.driver.id for each in found.routes)))


TARGETS: dict[str, Callable[[bytes], None]] = {
    "messages": messages,
    "specs": specs,
    "compiler-output": compiler_output,
    "events": events,
    "reports": reports,
    "databases": databases,
    "drivers": drivers,
}
