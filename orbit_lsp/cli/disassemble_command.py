"""`orbit-lsp disassemble`: what the compiler made of a kernel, as text or JSON; nothing is run."""

from __future__ import annotations

import argparse
import base64
import difflib
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from orbit_lsp.cli import json_results, terminal_text
from orbit_lsp.cli.terminal_text import UsageError
from orbit_lsp.history import variants
from orbit_lsp.history.history_tracker import HistoryTracker
from orbit_lsp.profile import dump_files, listing
from orbit_lsp.runs import disassembly
from orbit_lsp.runs.disassembly import DisassembledInstance, ListedSources
from orbit_lsp.runs.scheduler import Scheduler
from orbit_lsp.state.kernel_ids import KernelId
from orbit_lsp.state.session import Session
from orbit_lsp.views.explain import sass_instructions
from orbit_remote.common import architectures, limits, regular_files
from orbit_remote.common import messages as c
from orbit_remote.common.plain_text import visible
from orbit_remote.common.requests import Job, Level

_COMPILED = (".cubin", ".fatbin", ".o", ".so", ".ncu-rep")


def is_compiled(name: str) -> bool:
    return name.lower().endswith(_COMPILED)


def compiled_job(options: argparse.Namespace, run: str) -> Job:
    """Disassemble a cubin, or the cubins in another file. Return the exit code. Raises UsageError."""
    if options.level != "sass":
        raise UsageError(f"compiled code holds no {options.level} that can be read; use --level sass")
    if options.against:
        raise UsageError("--against needs a source file, because it compiles both versions")
    path = str(Path(options.file).absolute())
    try:
        content = regular_files.read(path, limits.CUBIN)
    except FileNotFoundError:
        raise UsageError(f"there is no file {options.file}") from None
    except OSError as error:
        raise UsageError(f"{options.file} cannot be read: {error.strerror}") from None
    text = base64.b64encode(content).decode("ascii")
    return Job(run, "disassemble", "cuda", path, text, kernel=options.kernel, levels=("sass",))


async def compiled_code(options: argparse.Namespace, runs: Scheduler) -> int:
    """Disassemble a kernel of a source file. Return the exit code. Raises UsageError."""
    finished = await runs.outcome(compiled_job(options, runs.new_id()))
    if finished.outcome == "ok" and not finished.dumps:
        of = f" {options.kernel}" if options.kernel else ""
        raise UsageError(f"{options.file} has no kernel{of}")
    return _print_result(options, finished, disassembly.made(finished), None, "")


async def source(
    options: argparse.Namespace,
    session: Session,
    versions: HistoryTracker,
    runs: Scheduler,
    uri: str,
    target: KernelId | None,
) -> int:
    """Of a kernel of a source file. Returns the exit code. Raises UsageError."""
    kernels = [target for target, kernel, _ in session.kernels(uri) if kernel.launchable]
    kernel = target or terminal_text.only_kernel(kernels)
    if why := disassembly.refusal(session, kernel, options.level):
        raise UsageError(why)
    if options.arch:
        session.setup.figures_for = architecture(options.arch)
    levels: tuple[Level, ...] = (options.level,)
    run = runs.start("compile", uri, kernel, levels=levels, only=True)
    assert run
    finished = await runs.result(run)
    if finished.outcome != "ok":
        for line in terminal_text.problem_lines(session, uri):
            print(visible(line), file=sys.stderr if options.json else sys.stdout)
        assert finished.failure
        shown = terminal_text.unrepeated(session, uri, finished.failure)
        problems = tuple(problem for _, problem in terminal_text.problems(session, uri))
        return _failed(options, finished, shown, problems)
    made = disassembly.made(finished)
    if not made:
        return _failed(options, disassembly.none(finished, kernel, options.level))
    if not options.against:
        return _print_result(options, finished, made, None, disassembly.architecture_of(finished, run.job))
    from orbit_lsp.cli.history_command import file_or_revision

    with tempfile.TemporaryDirectory(prefix="orbit-lsp-") as folder:
        try:
            now = variants.now(session, kernel, "compile")
            other = await variants.against(
                session, versions, now, file_or_revision(options.against), Path(folder)
            )
        except variants.NoVariantError as why:
            raise UsageError(str(why)) from None
        job = replace(other.job, run=runs.new_id(), levels=levels, kernel=run.job.kernel)
        before = await runs.outcome(job)
    for remark in other.remarks:
        print(visible(f"note: {remark}"), file=sys.stderr)
    if before.outcome != "ok" or not before.dumps:
        failure = before.failure or disassembly.none(before, kernel, options.level).failure
        assert failure
        text = f"{other.name}: {failure.message}"
        return _failed(options, c.failed(before.run, replace(failure, message=text)))
    return _print_result(
        options,
        finished,
        made,
        (other.name, disassembly.made(before)),
        disassembly.architecture_of(finished, run.job),
    )


def architecture(name: str) -> str:
    """Raises UsageError."""
    if known := architectures.architecture_for(name):
        return known
    raise UsageError(f"{name!r:.40} is not an architecture, as in --arch sm_90")


def _failed(
    options: argparse.Namespace, finished: c.Finished, shown: str = "", problems: Sequence[c.Problem] = ()
) -> int:
    """Report a failure. `shown` is the sentence in the terminal, below what was printed; `problems` are in the JSON."""
    assert finished.failure
    failure = finished.failure
    if options.json:
        print(json_results.failure(failure.category, failure.message, failure.remedy, problems))
    print(visible(f"orbit-lsp: error: {shown or failure.message} [{finished.outcome}]"), file=sys.stderr)
    if failure.remedy:
        print(terminal_text.indented(failure.remedy), file=sys.stderr)
    return c.EXIT_CODES[finished.outcome]


# -- what is printed --------------------------------------------------------------------------------


def _print_result(
    options: argparse.Namespace,
    finished: c.Finished,
    made: Sequence[DisassembledInstance],
    before: tuple[str, Sequence[DisassembledInstance]] | None,
    architecture: str,
) -> int:
    if finished.outcome != "ok":
        return _failed(options, finished)
    for remark in finished.remarks:
        print(visible(f"note: {remark}"), file=sys.stderr)
    pairs = _paired(made, before[1] if before else ())
    if options.json:
        answer = json_results.Disassembly(
            file=str(Path(options.file).absolute()),
            level=options.level,
            architecture=architecture or None,
            against=before[0] if before else None,
            instances=tuple(_instance(pair, of) for pair, of in pairs),
            toolchain=finished.toolchain,
            remarks=finished.remarks,
        )
        print(json_results.text(answer))
        return 0
    sources = ListedSources()
    for listing_made, of in pairs:
        head = f"{dump_files.TITLES[listing_made.dump.level]} of {dump_files.instance(listing_made.dump)}"
        head += f", {architecture}" if architecture else ""
        head += f", against {before[0]}" if before else ""
        print(visible(f"// {head}"))
        if listing_made.instructions and all(each.line is None for each in listing_made.instructions):
            print("// no source lines: it was compiled without line information")
        text = _changed(listing_made, of, sources) if before else _listed(listing_made, sources)
        print(visible(terminal_text.relative(text)), end="\n\n")
        if options.explain and listing_made.instructions:
            print("\n".join(_explained(listing_made.instructions)), end="\n\n")
    return 0


def _listed(made: DisassembledInstance, sources: ListedSources) -> str:
    if not made.instructions:
        return made.text.rstrip()
    changes = [listing.ListingChange(" ", each) for each in made.instructions]
    return listing.text(changes, sources.of(made.instructions), marked=False)


def _changed(made: DisassembledInstance, of: DisassembledInstance | None, sources: ListedSources) -> str:
    """Return the instructions, or the lines of another level, that differ from the other version, and how many."""
    if of is None:
        return "// the other version has no such instance"
    if not made.instructions:
        return _difference(of.text, made.text)
    changes = listing.compare(of.instructions, made.instructions)
    moved = ", ".join(
        f"{name} {then} -> {now}"
        for name, then, now in listing.counts(of.instructions, made.instructions)[:12]
    )
    total = f"// {len(of.instructions)} -> {len(made.instructions)} instructions"
    if all(change.mark == " " for change in changes):
        return f"{total}: no difference"
    text = listing.text(listing.near(changes), sources.of(made.instructions), marked=True)
    return "\n".join([total + (f": {moved}" if moved else ""), text])


def _difference(before: str, now: str) -> str:
    lines = difflib.unified_diff(before.splitlines(), now.splitlines(), "before", "now", lineterm="")
    return "\n".join(lines) or "// no difference"


def _paired(
    made: Sequence[DisassembledInstance], before: Sequence[DisassembledInstance]
) -> list[tuple[DisassembledInstance, DisassembledInstance | None]]:
    """Pair each instance with the same instance of the other version: by its symbol and number, else with the only
    one there is.
    """
    named = {(made.dump.symbol, made.dump.instance): made for made in before}
    only = before[0] if len(before) == len(made) == 1 else None
    return [
        (listing_made, named.get((listing_made.dump.symbol, listing_made.dump.instance), only))
        for listing_made in made
    ]


def _explained(instructions: Sequence[listing.ListedInstruction]) -> list[str]:
    names = sorted({instruction.mnemonic.partition(".")[0] for instruction in instructions})
    meanings = [(name, sass_instructions.meaning(name)) for name in names]
    lines = [f"// {name:<12}{text}" for name, text in meanings if text]
    return [*lines, f"// {'control code':<12} {sass_instructions.CONTROL_CODE}"]


def _instance(made: DisassembledInstance, of: DisassembledInstance | None) -> json_results.Instance:
    instructions = tuple(json_results.Instruction(**_fields(each)) for each in made.instructions)
    changes = None
    if of is not None:
        changes = tuple(
            json_results.Change(change.mark, **_fields(change.instruction))
            for change in listing.compare(of.instructions, made.instructions)
            if change.mark != " "
        )
    dump = made.dump
    return json_results.Instance(dump.symbol, dump.name, dump.constants, made.text, instructions, changes)


def _fields(instruction: listing.ListedInstruction) -> dict[str, Any]:
    return {
        "offset": instruction.offset, "control": instruction.control or None, "text": instruction.text, "file": instruction.file or None, "line": instruction.line,
    }  # fmt: skip
