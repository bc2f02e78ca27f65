"""`orbit-lsp doctor`: reports what works on this machine, or how a file is compiled."""

from __future__ import annotations

import dataclasses
import sys
import time
from dataclasses import replace

from orbit_lsp.cli import json_results, terminal_text
from orbit_lsp.cli.machine import doctor
from orbit_lsp.cli.terminal_text import UsageError
from orbit_lsp.places import python_choice
from orbit_lsp.places.places import Places
from orbit_lsp.runners import shared_worker
from orbit_lsp.specs import job_builder
from orbit_lsp.state.session import Session
from orbit_remote.common import architectures
from orbit_remote.common import messages as c
from orbit_remote.common.plain_text import visible


async def of_file(session: Session, places: Places, uri: str, name: str, *, as_json: bool) -> int:
    """Report how an open CUDA file, or the CUDA C++ in a Python file, is compiled, and why. Raises UsageError."""
    frozen = session.freeze(uri)
    assert frozen
    if why := job_builder.while_running(frozen):
        raise UsageError(why)
    if frozen.scan.language != "cuda" and not job_builder.inline_of(frozen):
        raise UsageError(
            f"{name} is not a CUDA file; orbit-lsp doctor without a file checks Python and Triton"
        )
    refused = await places.compilations.find(uri)
    compilation = session.files[uri].compilation
    if asked := session.setup.figures_for or job_builder.figures_for(session, session.files[uri]):
        flags = (*architectures.without_targets(compilation.flags), *architectures.gencode(asked))
        compilation = dataclasses.replace(compilation, flags=flags)
    source = session.files[uri].source
    through = terminal_text.relative(source[0]) if source else ""
    if as_json:
        print(json_results.text(compilation))
        return 0
    print(visible("\n".join(doctor.compilation_lines(name, compilation, refused, through))))
    return 0


async def of_machine(session: Session, places: Places, *, as_json: bool) -> int:
    """Report what works on this machine, and what does not."""
    await places.look_around()
    machine = session.setup.machine
    host = session.setup.host
    if machine is None:
        why, remedy = f"{places.python.path} cannot be started as a worker", "set `orbit.python`"
        if unreached := places.unreached:
            why, remedy = unreached.message, unreached.remedy
        if as_json:
            print(json_results.failure("infrastructure", why, remedy))
        text = f"✗ {host or 'worker':<9} {why}; {remedy}"
        print(text, file=sys.stderr if as_json else sys.stdout)
        return c.EXIT_CODES["infrastructure"]
    failure = await doctor.compiler_failure(places.runner(), machine)
    compiles_on_modal = places.compiles_on_modal()
    compiles = (machine.nvcc and failure is None) or compiles_on_modal
    code = 0 if compiles else c.EXIT_CODES["infrastructure"]
    if as_json:
        whole = replace(machine, problems=(*machine.problems, *([failure] if failure else [])))
        workers = {"workers": [dataclasses.asdict(worker) for worker in await shared_worker.running()]}
        print(json_results.text(dataclasses.asdict(whole) | workers))
        return code
    text = doctor.lines(
        session.setup,
        machine,
        compiles_on_modal=compiles_on_modal,
        compiler=failure,
        python_from="" if host else places.python.choice().why,
        untrusted="" if host else places.python.remedy(),
        conda="" if host else python_choice.not_created(session.setup.folders),
        workers=()
        if host
        else doctor.worker_lines(
            await shared_worker.running(), machine.python, session.client.name, time.time()
        ),
    )
    print("\n".join(text))
    return code
