"""Makes a job for a runner from a frozen file and the settings."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from orbit_lsp.kernels import CUDA_SUFFIXES, HEADER_SUFFIXES, Kernel, Scan
from orbit_lsp.specs import driver_choice, launch_plan, spec_blocks
from orbit_lsp.specs.launch_plan import PROGRAM, LaunchPlan
from orbit_lsp.state import harness, modal_gpus
from orbit_lsp.state.kernel_ids import KernelId
from orbit_lsp.state.session import Frozen, OpenFile, Session, path_of
from orbit_remote.common import architectures, limits
from orbit_remote.common.requests import (
    Action,
    ContractStart,
    Driver,
    DriverStart,
    HostLaunch,
    Job,
    KernelDefinition,
    OtherKernel,
    ProgramStart,
    SpecStart,
    Start,
)
from orbit_remote.common.symbols import LANGUAGES

if TYPE_CHECKING:
    from orbit_lsp.kernels.python.inline import Inline

_OF_CPP = (*CUDA_SUFFIXES, *HEADER_SUFFIXES, ".cpp", ".cc", ".cxx", ".c")
IN_STRINGS = frozenset(("embedded",))
"""Languages whose kernels a Python file has in strings."""


def make(session: Session, frozen: Frozen, action: Action, run: str, plan: LaunchPlan = PROGRAM) -> Job:
    """Make a job. `plan` says how the kernel is run; a compile needs none."""
    settings = session.setup.settings
    path = path_of(frozen.uri)
    file = session.files.get(frozen.uri)
    through = file.source if file and action == "compile" else None
    inline = inline_of(frozen) if action == "compile" else None
    if inline:
        through = inline.path, inline.text
    by_spec = plan.through != "program"
    arguments = plan.arguments if plan.arguments is not None else tuple(settings.arguments)
    wanted = gpu_of(session, plan)
    gpu = wanted if session.setup.place() == "modal" else None
    return Job(
        run=run,
        action=action,
        language="cuda" if inline else frozen.scan.language,
        path=through[0] if through else path,
        text=through[1] if through else frozen.text,
        kernel=plan.definition.name if plan.definition else None,
        directory=session.setup.directory(path) if plan.driver else session.setup.working_folder(path),
        arguments=_of_driver(plan.driver, settings.arguments) if by_spec else arguments,
        stdin="" if by_spec else plan.stdin or "",
        flags=_flags(session, None if frozen.scan.language == "triton" and not inline else file, plan),
        nvcc=settings.nvcc or (file.compilation.nvcc if file else None),
        architecture=(figures_for(session, file) if file and action == "compile" else "")
        or (architectures.architecture_for(gpu) if gpu else None)
        or session.setup.architecture(),
        device=settings.device,
        build_timeout_s=settings.build_timeout_s,
        run_timeout_s=plan.timeout_s or settings.run_timeout_s,
        gpu=gpu,
        gpus=modal_gpus.count(wanted) if gpu is None else 1,
        start=_start(session, frozen, plan),
        templates=_templates(session, frozen) if action == "compile" and not through else (),
        host_launches=host_launches(frozen.text, frozen.scan, partial(_driver_text, session, frozen.uri))
        if action == "compile"
        else (),
        other_kernels=other_kernels(frozen.scan),
        batch=session.client.batch,
        variables=session.setup.variables,
    )


def _start(session: Session, frozen: Frozen, plan: LaunchPlan) -> Start:
    if plan.driver:
        folder = session.setup.directory(path_of(frozen.uri))
        return DriverStart(plan.driver, _texts(session, frozen, folder, plan.driver))
    if plan.definition:
        return SpecStart(plan.definition)
    if plan.through == "contract":
        settings = session.setup.settings
        return ContractStart(settings.grade, settings.allow if settings.grade == "referee" else ())
    return ProgramStart()


def _of_driver(driver: Driver | None, given: Sequence[str]) -> tuple[str, ...]:
    """Return the arguments of a program of the project: those in its build file or test, else those of the settings."""
    if driver is None or driver.kind != "program":
        return ()
    return driver.arguments or tuple(given)


def _texts(session: Session, frozen: Frozen, folder: str, driver: Driver) -> dict[str, str]:
    """Return the editor's texts of a folder's files, by their paths in it. They are the Python files, except for a
    program, and the C++ files if the kernel is C++.
    """
    suffixes = () if driver.kind == "program" else (".py",)
    suffixes += _OF_CPP if frozen.scan.language == "cuda" else ()
    texts = {uri: file.document.text for uri, file in session.files.items() if not file.cell}
    texts[frozen.uri] = frozen.text
    places = {uri: path_of(uri) for uri in texts}
    return {
        Path(path).relative_to(folder).as_posix(): texts[uri]
        for uri, path in places.items()
        if path.lower().endswith(suffixes) and Path(path).is_relative_to(folder)
    }


def _flags(session: Session, file: OpenFile | None, plan: LaunchPlan) -> tuple[str, ...]:
    """Return the flags. An architecture that the author names for this session goes before those of build files and
    settings.
    """
    of_file = file.compilation.flags if file else ()
    if session.setup.figures_for:
        of_file = architectures.without_targets(of_file)
    return (*of_file, *plan.flags)


def figures_for(session: Session, file: OpenFile) -> str:
    """Return the architecture that figures are for, among those that build files name. It is that of the present GPU
    if it is among them, else the newest. Return "" if the author names one, or the build files name none. A run is
    for its GPU.
    """
    setup = session.setup
    named = file.compilation.architectures
    if not named or setup.gpu_is_named:
        return ""
    at_hand = re.sub(r"\D", "", setup.architecture())
    ours = next((each for each in named if each.rstrip("af") == at_hand), None)
    return f"sm_{ours or max(named, key=lambda each: int(each.rstrip('af')))}"


def inline_of(frozen: Frozen) -> Inline | None:
    """Return the CUDA C++ of a Python file whose kernels are all in strings. Triton kernels are compiled by an import
    instead.
    """
    if not _in_strings(frozen):
        return None
    from orbit_lsp.kernels.python import inline

    return inline.of(frozen.text, path_of(frozen.uri))


def _in_strings(frozen: Frozen) -> bool:
    """Say whether a file is Python but no notebook, and all its kernels are in strings."""
    kernels = frozen.scan.kernels
    return bool(kernels) and all(each.dsl in IN_STRINGS for each in kernels) and frozen.uri.endswith(".py")


def while_running(frozen: Frozen) -> str:
    """Return why a Python file whose kernels are all in strings cannot be compiled, and what to do. Return "" if it
    can.
    """
    if not _in_strings(frozen) or inline_of(frozen):
        return ""
    kernels = frozen.scan.kernels
    names = ", ".join(kernel.name for kernel in kernels[:3]) + (", …" if len(kernels) > 3 else "")
    return (
        f"{names}: compiled only while the program runs, because its text is put together there; "
        f"Run, or `orbit-lsp run {Path(path_of(frozen.uri)).name}`, measures it"
    )


def only_templates(session: Session, uri: str) -> bool:
    """Say whether compiling an open CUDA file by itself makes none of its kernels: each is a template without a
    launch spec.
    """
    frozen = session.freeze(uri)
    if frozen is None or not frozen.scan.kernels or not all(each.template for each in frozen.scan.kernels):
        return False
    return not _templates(session, frozen)


def _templates(session: Session, frozen: Frozen) -> tuple[KernelDefinition, ...]:
    """Return the CUDA templates that have a launch spec without a mistake. The spec says which instances there are."""
    if frozen.scan.language != "cuda" or frozen.uri not in session.files:
        return ()
    kernels = [kernel for kernel in session.files[frozen.uri].scan.kernels if kernel.template]
    launch_plans = [launch_plan.of(session, frozen.uri, kernel) for kernel in kernels]
    return tuple(plan.definition for plan in launch_plans if plan.definition and not plan.refusal)


def other_kernels(scan: Scan) -> tuple[OtherKernel, ...]:
    """Return the kernels of a Python file whose launches are recognized only by their names."""
    return tuple(
        OtherKernel(kernel.dsl, kernel.name, kernel.qualified, kernel.name_span.line + 1)
        for kernel in scan.kernels
        if kernel.dsl in LANGUAGES
    )


def host_launches(
    text: str, scan: Scan, driver_of: Callable[[Kernel], str] = lambda _: ""
) -> tuple[HostLaunch, ...]:
    """Return the launches of Triton kernels in the file's own code. A launch spec goes before them. `driver_of`
    returns the text of the test or script that calls the launching code, which has the values of the arguments; "" if
    no such file is known.
    """
    launched = {launch.kernel for launch in scan.launches}
    kernels = [kernel for kernel in scan.kernels if kernel.dsl == "triton" and kernel.name in launched]
    if not kernels or len(text) > limits.OUTLINED.most:
        return ()
    from orbit_lsp.drafts import guesses, host_triton, triton
    from orbit_remote.spec.comment_scanner import lines_of

    try:
        tree = ast.parse(text)
        lines = lines_of(text)
        launches: list[HostLaunch] = []
        for kernel in kernels:
            subject = guesses.subject(lines, spec_blocks.target(kernel), kernel.whole.end_line)
            body = triton.body_of(subject, tree) if subject else None
            driver = _parsed(driver_of(kernel))
            if subject and body and (launch := host_triton.launch(subject, body, tree, driver)):
                launches.append(launch)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # no Python, or nested beyond reading
        return ()
    return tuple(launches)


def _driver_text(session: Session, uri: str, kernel: Kernel) -> str:
    """Return the text of the test or script in another file that leads to a kernel: from the editor, else as it was
    when the kernel's routes were found.
    """
    target = next((target for target, each, _ in session.kernels(uri) if each.name == kernel.name), None)
    routes = session.routes.get(target) if target else None
    if routes is None or routes.caller is None:
        return ""
    path, text = routes.caller
    open_file = session.files.get(session.uri_for(path))
    return open_file.document.text if open_file else text


def _parsed(text: str) -> tuple[ast.Module, ...]:
    try:
        return (ast.parse(text),) if text and len(text) <= limits.OUTLINED.most else ()
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()


def restricted(session: Session, job: Job, plan: LaunchPlan) -> Job:
    """Send a job to Modal wherever runs go, because only there is code kept apart that is not the author's."""
    gpu = job.gpu or gpu_of(session, plan)
    architecture = architectures.architecture_for(gpu) or job.architecture
    return replace(job, restricted=True, gpu=gpu, architecture=architecture)


def plan_of(session: Session, target: KernelId | None) -> LaunchPlan:
    """Return how a kernel is run. Without a kernel, that is the file's program."""
    if target and harness.named(target):
        return launch_plan.CONTRACT
    kernel = session.find(target) if target else None
    return launch_plan.of(session, target.uri, kernel, target) if target and kernel else PROGRAM


def through_driver(
    session: Session, job: Job, target: KernelId | None, sets: tuple[str, ...], *, repeated: bool
) -> Job:
    """Add to a job the parameter `sets` of its test (else those that are enough for the kernel) or the sources of its
    program. A job without a driver stays as it is.
    """
    start = job.start
    if not isinstance(start, DriverStart):
        return job
    if sets:
        start = replace(start, sets=sets)
    elif target and job.project_program:
        start = replace(start, sources=driver_choice.sources(session, target, start.driver))
    elif target:
        start = replace(start, sets=driver_choice.sets(session, target, start.driver))
    return replace(job, start=replace(start, repeated=repeated))


def under_a_tool(
    session: Session,
    job: Job,
    target: KernelId | None,
    detail: Literal["click", "full"],
    tools: tuple[str, ...],
    sections: tuple[str, ...] = (),
) -> Job:
    """Put a job under Nsight Compute or compute-sanitizer. Then also a job of the file's program names the kernel."""
    kernel = session.find(target) if target else None
    if kernel and job.definition is None:
        job = replace(job, kernel=kernel.name, tool_kernel=launch_plan.definition_of(kernel))
    if job.action == "sanitize":
        wanted = session.setup.settings.check_memory
        job = replace(job, run_timeout_s=wanted.timeout_s)
        tools = tools or tuple(wanted.tools)
    return replace(job, detail=detail, tools=tools, sections=sections)


def debugged(session: Session, job: Job, target: KernelId | None, instance: Literal["first", "wrong"]) -> Job:
    """Put a job under the debugger, on this machine wherever runs go: it needs no GPU, and its debugger is for a
    client here.
    """
    kernel = session.find(target) if target else None
    if kernel and job.definition is None:
        job = replace(job, tool_kernel=launch_plan.definition_of(kernel))
    return replace(job, gpu=None, gpus=1, instance=instance)


def refusal(job: Job, plan: LaunchPlan) -> str:
    """Return why a job cannot run this way, in a sentence. Return "" if it can, and for a compile, which rents
    nothing.
    """
    if plan.refusal or job.gpu is None or job.action == "compile" or modal_gpus.rented(job.gpu):
        return plan.refusal
    if plan.gpu:
        return f"its launch spec asks for a GPU that cannot be rented: {modal_gpus.refusal(plan.gpu)}"
    return f"the setting `gpu` names none that can be rented: {modal_gpus.refusal(job.gpu)}"


def gpu_of(session: Session, plan: LaunchPlan) -> str:
    """Return the GPU that a run on Modal asks for, in Modal's spelling if it is one of Modal's."""
    return modal_gpus.rented(plan.gpu) or plan.gpu or session.setup.settings.gpu


def is_compiled(session: Session, job: Job) -> bool:
    """Say whether a compiler found no mistake in exactly this text, with these flags and headers."""
    file = session.files.get(session.uri_for(job.path))
    if file is None or file.compiled is None:
        return False
    compiled, disk = file.compiled
    same = all(getattr(job, name) == getattr(compiled, name) for name in ("text", "flags", "directory"))
    return same and disk == session.disk.changes
