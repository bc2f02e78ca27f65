"""From a frozen file and the settings to a job for a runner."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from orbit_lsp.specs import launch_plan
from orbit_lsp.specs.launch_plan import PROGRAM, Recipe
from orbit_lsp.state import harness
from orbit_lsp.state.session import Frozen, KernelId, Session, path_of
from orbit_remote.common import architectures
from orbit_remote.common import messages as c

if TYPE_CHECKING:
    from orbit_lsp.state.config import Settings


def place(session: Session) -> Literal["local", "modal"]:
    """Where runs go: as the settings say, or as what this machine has lets them."""
    wanted = settings_of(session).runner
    if wanted != "auto":
        return wanted
    return "local" if own_gpu(session) or not session.modal_account else "modal"


def architecture(session: Session) -> str:
    """What static figures are compiled for: this machine's own GPU where runs go there, else the one of
    the settings.
    """
    own = own_gpu(session) if place(session) == "local" else None
    if own and own.capability:
        return architectures.architecture_of(own.capability)
    return architectures.architecture_for(own.name if own else settings_of(session).gpu) or "sm_90a"


def own_gpu(session: Session) -> c.Device | None:
    """The GPU of this machine that runs go to, None where it has none."""
    devices = session.machine.devices if session.machine else ()
    wanted = session.settings.device if session.settings else 0
    return next((device for device in devices if device.index == wanted), None)


def make(session: Session, frozen: Frozen, action: c.Action, run: str, recipe: Recipe = PROGRAM) -> c.Job:
    """`recipe` is how the kernel that was asked for is run; a compile needs none."""
    settings = settings_of(session)
    path = path_of(frozen.uri)
    by_spec = recipe.through != "program"
    arguments = recipe.arguments if recipe.arguments is not None else tuple(settings.arguments)
    gpu = gpu_of(session, recipe) if place(session) == "modal" else None
    return c.Job(
        run=run,
        action=action,
        language=frozen.scan.language,
        path=path,
        text=frozen.text,
        kernel=recipe.definition.name if recipe.definition else None,
        directory=directory(session, path),
        arguments=() if by_spec else arguments,
        stdin="" if by_spec else recipe.stdin or "",
        flags=(*session.flags_for(path), *recipe.flags),
        nvcc=settings.nvcc or None,
        architecture=(architectures.architecture_for(gpu) if gpu else None) or architecture(session),
        device=settings.device,
        build_timeout_s=settings.build_timeout_s,
        run_timeout_s=recipe.timeout_s or settings.run_timeout_s,
        gpu=gpu,
        through=recipe.through,
        definition=recipe.definition,
        templates=_templates(session, frozen) if action == "compile" else (),
    )


def _templates(session: Session, frozen: Frozen) -> tuple[c.Definition, ...]:
    """The CUDA templates that have a launch spec without a mistake: it says which instances there are."""
    if frozen.scan.language != "cuda" or frozen.uri not in session.files:
        return ()
    kernels = [one for one in session.files[frozen.uri].scan.kernels if one.template]
    found = [launch_plan.of(session, frozen.uri, one) for one in kernels]
    return tuple(one.definition for one in found if one.definition and not one.refusal)


def restricted(session: Session, job: c.Job, recipe: Recipe) -> c.Job:
    """The same on Modal wherever runs go, because there alone code that is not the author's is kept apart."""
    gpu = job.gpu or gpu_of(session, recipe)
    architecture = architectures.architecture_for(gpu) or job.architecture
    return replace(job, restricted=True, gpu=gpu, architecture=architecture)


def recipe_of(session: Session, target: KernelId | None) -> Recipe:
    """How a kernel is run; the file's program where none is named."""
    if target and harness.named(target):
        return launch_plan.CONTRACT
    kernel = session.find(target) if target else None
    return launch_plan.of(session, target.uri, kernel) if target and kernel else PROGRAM


def under_a_tool(
    session: Session,
    job: c.Job,
    target: KernelId | None,
    detail: Literal["click", "full"],
    tools: tuple[str, ...],
) -> c.Job:
    """The same under Nsight Compute or compute-sanitizer: a job of the file's program, too, then names the kernel."""
    kernel = session.find(target) if target else None
    if kernel and job.definition is None:
        job = replace(job, kernel=kernel.name, definition=launch_plan.definition_of(kernel))
    if job.action == "sanitize":
        wanted = settings_of(session).check_memory
        job = replace(job, run_timeout_s=wanted.timeout_s)
        tools = tools or tuple(wanted.tools)
    return replace(job, detail=detail, tools=tools)


def refusal(session: Session, recipe: Recipe) -> str:
    """Why a kernel cannot be run this way, in a sentence; empty where it can."""
    if not recipe.refusal and recipe.gpu and place(session) == "modal" and not rented(recipe.gpu):
        return f"its launch spec asks for gpu {recipe.gpu}, which is none of {', '.join(gpus())}"
    return recipe.refusal


def gpu_of(session: Session, recipe: Recipe) -> str:
    """The GPU on Modal that a run asks for, as the settings spell it."""
    return rented(recipe.gpu) or settings_of(session).gpu


def rented(name: str) -> str:
    """`A100-80GB:2` for `a100-80gb:2`, `RTX PRO 6000` for `RTX-PRO-6000`; empty for what is not known."""
    kind, colon, count = name.rstrip("!").replace("!:", ":").partition(":")
    if colon and not re.fullmatch(r"[1-8]", count):
        return ""
    spelled = next((one for one in gpus() if one.replace(" ", "-").lower() == kind.lower()), "")
    return spelled and spelled + (colon + count if count != "1" else "")


def gpus() -> tuple[str, ...]:
    """What Modal has, as the settings spell it."""
    from orbit_lsp.state.config import GPUS

    return GPUS


def settings_of(session: Session) -> Settings:
    if session.settings is None:
        from orbit_lsp.state.config import Settings

        session.settings = Settings()
    return session.settings


def directory(session: Session, path: str) -> str:
    """Where a program runs: the innermost workspace folder that holds the file, else its own folder."""
    holding = [folder for folder in session.folders if Path(path).is_relative_to(folder)]
    return max(holding, key=len, default=str(Path(path).parent))


def is_compiled(session: Session, job: c.Job) -> bool:
    """Whether a compiler has found no mistake in just this text, with these flags and headers."""
    if job.path not in session.compiled:
        return False
    compiled, disk = session.compiled[job.path]
    same = all(getattr(job, name) == getattr(compiled, name) for name in ("text", "flags", "directory"))
    return same and disk == session.disk
