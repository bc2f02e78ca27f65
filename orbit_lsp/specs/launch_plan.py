"""The way a kernel is run: by the launch spec above it, by its file's program, by a harness, or through a driver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from orbit_lsp.kernels import Kernel
from orbit_lsp.specs import driver_choice, spec_blocks, spec_cache
from orbit_lsp.state.kernel_ids import KernelId
from orbit_lsp.state.session import Session, path_of
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.requests import Driver, KernelDefinition, Through

if TYPE_CHECKING:
    from orbit_remote.spec.launch_spec import EvaluatedSpec
    from orbit_remote.spec.syntax_tree import LaunchSpec
    from orbit_remote.spec.values import Value


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """How a kernel is run. `arguments`, `stdin` and `timeout_s` are None if the spec does not give them; then the
    settings hold.

    `refusal` is why it cannot be run, "" if it can. `swept` says that a name has several values. `lines` is the
    spec's text in the file. `elements` names the element types of the tensors that it passes.
    """

    through: Through = "program"
    definition: KernelDefinition | None = None
    gpu: str = ""
    flags: tuple[str, ...] = ()
    arguments: tuple[str, ...] | None = None
    stdin: str | None = None
    timeout_s: float | None = None
    refusal: str = ""
    swept: bool = False
    lines: str = ""
    elements: tuple[str, ...] = ()
    driver: Driver | None = None


PROGRAM = LaunchPlan()
"""A kernel without a launch spec: its file is run as it is."""
CONTRACT = LaunchPlan("contract")
"""A file that keeps KernelBench's or popcorn's contract."""


DRIVER = LaunchPlan("driver", driver=Driver("script", ""))
"""What all plans have in common that run a kernel through a test, a script or a program of the project: no driver has this name."""


def here_only(driver: Driver) -> str:
    """Return why a program of the project does not run on a rented GPU, and what to do."""
    alone = (
        f"; on a rented GPU its file runs alone: `orbit-lsp run {driver.file}`"
        if driver.file.endswith(".cu")
        else ""
    )
    return (
        f"{driver.id} is built and run on a machine of your own, with a GPU: there, set `orbit.runner` to `local`; "
        f"or write a launch spec{alone}"
    )


def driven(session: Session, uri: str, driver: Driver) -> LaunchPlan:
    """Return the plan to run through a test, a script or a program of a file's project. It is refused if the author
    does not trust the project.
    """
    folder = session.setup.directory(path_of(uri))
    refusal, what = "", "builds" if driver.kind == "program" else "imports"
    if not session.setup.trusts(folder):
        refusal = f"{driver.id} and what it {what} are not run, because {folder} is not trusted"
    elif driver.kind == "program" and session.setup.place() != "local":
        refusal = here_only(driver)
    return LaunchPlan("driver", driver=driver, refusal=refusal)


def of(session: Session, uri: str, kernel: Kernel, target: KernelId | None = None) -> LaunchPlan:
    """Return how the launch spec above a kernel of an open file runs it, as the file stands now. Without a spec, that
    is the file's program, or the driver of `target` (the kernel's name, if known). A pinned driver goes before all of
    these.
    """
    plan = _by_text(session, uri, kernel)
    if target is None or not kernel.launchable:
        return plan
    choose = driver_choice.chosen if plan.through == "program" else driver_choice.pin
    driver = choose(session, target)
    return driven(session, target.uri, driver) if driver else plan


def _by_text(session: Session, uri: str, kernel: Kernel) -> LaunchPlan:
    checked = spec_cache.spec_of(session, uri, kernel, placed=False) if kernel.launchable else None
    if checked is None:
        return PROGRAM
    plans = spec_cache.text_lines(session, uri).plans
    known = plans.get(id(kernel))
    if known is None or known[0] is not kernel or known[1] is not checked:
        known = plans[id(kernel)] = kernel, checked, _of(session, uri, kernel, checked)
    return known[2]


def _of(session: Session, uri: str, kernel: Kernel, checked: EvaluatedSpec) -> LaunchPlan:
    spec = checked.spec
    refusal = spec_cache.refusal(checked) or ""
    block = spec_cache.block_of(session, uri, kernel)
    # a mistake may hide the launch line; the kernel must not run in another way then
    by_spec = bool(spec.launches) or bool(refusal and block and block.launches)
    words = {name: word.values for name, word in spec.words.items()}
    return LaunchPlan(
        through="spec" if by_spec else "program",
        definition=spec_blocks.definition(kernel) if by_spec else None,
        gpu=next(iter(words.get("gpu", ())), ""),
        flags=words.get("flags", ()),
        arguments=words.get("args"),
        stdin=next(iter(words["stdin"]), "") if "stdin" in words else None,
        timeout_s=_amount(checked, "timeout"),
        swept=_is_swept(spec),
        refusal=refusal,
        lines=block.text if block else "",
        elements=_elements(checked.values),
    )


def definition_of(kernel: Kernel) -> KernelDefinition:
    """Return where a kernel stands, in the form of jobs."""
    return spec_blocks.definition(kernel)


def _is_swept(spec: LaunchSpec) -> bool:
    from orbit_remote.spec.launch_spec import swept

    return any(map(swept, spec.assignments))


def _amount(checked: EvaluatedSpec, word: str) -> float | None:
    amount = checked.spec.amounts.get(word)
    if amount is None:
        return None
    from orbit_remote.spec.interpreter import SpecScope, UntunedError, evaluate
    from orbit_remote.spec.syntax_tree import SpecError
    from orbit_remote.spec.values import Scalar, World

    try:
        value = evaluate(amount.value, World(checked.spec.language), SpecScope(checked.values))
    except (SpecError, UntunedError):
        return None  # this is a fault, and reported as one
    return float(value.value) if isinstance(value, Scalar) else None


def _elements(values: Mapping[str, Value]) -> tuple[str, ...]:
    from orbit_remote.spec.values import Tensor, TensorMap

    tensors = [value.tensor if isinstance(value, TensorMap) else value for value in values.values()]
    return tuple(sorted({tensor.dtype.name for tensor in tensors if isinstance(tensor, Tensor)}))
