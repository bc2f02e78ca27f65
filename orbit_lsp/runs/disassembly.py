"""What the compiler made of a kernel that is compiled and not run, from a finished job."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from orbit_lsp.kernels.model import SPECIFIED
from orbit_lsp.profile import listing, report_store
from orbit_lsp.specs import job_builder
from orbit_lsp.state.documents import split_lines
from orbit_lsp.state.kernel_ids import KernelId
from orbit_lsp.state.session import Session
from orbit_remote.common import limits, regular_files
from orbit_remote.common import messages as c
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.requests import Job, Level


@dataclass(frozen=True, slots=True)
class DisassembledInstance:
    """What the compiler made of one instance of a kernel. `instructions` are those of SASS."""

    dump: c.Dump
    text: str
    instructions: tuple[listing.ListedInstruction, ...]


class ListedSources:
    """The lines of the files that listings name, read once."""

    def __init__(self) -> None:
        self._read: dict[str, Sequence[str]] = {}

    def of(self, instructions: Sequence[listing.ListedInstruction]) -> dict[str, Sequence[str]]:
        for file in {instruction.file for instruction in instructions if instruction.file} - set(self._read):
            try:
                self._read[file] = split_lines(regular_files.text(file, limits.SOURCE))
            except (OSError, ValueError):
                self._read[file] = ()
        return self._read


def refusal(session: Session, kernel: KernelId, level: Level) -> str:
    """Return why a kernel can have no disassembly. Return "" if it can."""
    file, known, frozen = session.files[kernel.uri], session.find(kernel), session.freeze(kernel.uri)
    in_string = frozen is not None and job_builder.inline_of(frozen) is not None
    if known and known.dsl not in SPECIFIED and not in_string:
        return f"{known.name} is compiled only while its program runs: profile it, then open its SASS"
    if (file.scan.language == "cuda" or in_string) and level in ("ttir", "ttgir", "llir"):
        return f"{level} exists only for Triton kernels; a CUDA kernel has ptx and sass"
    return ""


def made(finished: c.Finished, corrected: Callable[[str], str] = str) -> list[DisassembledInstance]:
    """Return the instances of a finished job. `corrected` is applied to each text before it is read."""
    instances: list[DisassembledInstance] = []
    for dump in finished.dumps:
        text = corrected(report_store.unpack(dump.text).decode("utf-8", "replace"))
        instances.append(DisassembledInstance(dump, text, listing.read(text) if dump.level == "sass" else ()))
    return instances


def none(finished: c.Finished, kernel: KernelId, level: str) -> c.Finished:
    """Return the end of a compilation that succeeded and made nothing of the kernel."""
    why = (
        "; ".join(finished.remarks)
        or "the compiler generated no code for it: a template needs a launch spec or an instantiation"
    )
    return c.failed(finished.run, c.Failure("compile error", f"there is no {level} of {kernel.key}: {why}"))


def architecture_of(finished: c.Finished, job: Job) -> str:
    return next(
        (resource.architecture for resource in finished.resources if resource.architecture),
        job.architecture or "",
    )
