"""Code actions that write a launch spec above a kernel that has none."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from lsprotocol import types as lsp

from orbit_lsp.kernels import Kernel
from orbit_lsp.kernels.model import RUNNABLE
from orbit_lsp.specs import spec_cache
from orbit_lsp.state.session import Session
from orbit_lsp.views import positions

if TYPE_CHECKING:
    from orbit_remote.spec.rules import Limits


class Draft(NamedTuple):
    title: str
    edit: lsp.WorkspaceEdit


def actions(
    session: Session, uri: str, first: int, last: int, *, versioned: bool = False
) -> list[lsp.CodeAction]:
    """For the kernels whose definition meets the lines `first` to `last`.

    Without a kind where code actions are all there is: Helix puts those that have one first, above *Run*.
    """
    file = session.files.get(uri)
    kind = lsp.CodeActionKind.RefactorRewrite if session.draws_lenses else lsp.CodeActionKind.Empty
    return [
        lsp.CodeAction(f"{draft.title} ({kernel.name})", kind=kind, edit=draft.edit)
        for kernel in (file.scan.kernels if file else ())
        if kernel.whole.line <= last and first <= kernel.whole.end_line
        for draft in drafts(session, uri, kernel, versioned=versioned)
    ]


def drafts(session: Session, uri: str, kernel: Kernel, *, versioned: bool = False) -> list[Draft]:
    """Specs to begin with, the one from host code first; none where the kernel has one, or nothing can be made up.

    Each is without fault as it stands. `versioned` says that the client takes `documentChanges`.
    """
    file = session.files.get(uri)
    if file is None or kernel.dsl not in RUNNABLE or not kernel.launchable:
        return []
    if spec_cache.spec_of(session, uri, kernel):
        return []
    found: list[Draft] = []
    present = spec_cache.text_lines(session, uri)
    limits = spec_cache.limits(session, uri, kernel)
    key = (spec_cache.target(kernel), limits)
    if key not in present.drafts:
        present.drafts[key] = written(present.lines, kernel, limits)
    for title, statements in present.drafts[key]:
        first = file.document.line(kernel.whole.line)
        text = _above(kernel, statements, first).replace("\n", _line_end(first, file.document.text))
        at = positions.position(session, file.document, kernel.whole.line, 0)
        edit = lsp.TextEdit(lsp.Range(at, at), text)
        if versioned:
            of = lsp.OptionalVersionedTextDocumentIdentifier(uri, version=file.document.version)
            found.append(Draft(title, lsp.WorkspaceEdit(document_changes=[lsp.TextDocumentEdit(of, [edit])])))
        else:
            found.append(Draft(title, lsp.WorkspaceEdit(changes={uri: [edit]})))
    return found


def none(kernel: Kernel) -> str:
    """What to say where nothing can be made up."""
    mark = "//" if kernel.language == "cuda" else "#"
    launch = "<<<grid, block>>>" if kernel.language == "cuda" else "[grid]"
    return (
        f"orbit: no launch spec can be drafted for {kernel.name}, or it has one; "
        f"one begins with `{mark} orbit: launch {kernel.name}{launch}(…)` above it"
    )


def _line_end(line: str, text: str) -> str:
    """A line's own, else that of the file: some clients insert what they get as it is."""
    found = re.search(r"\r\n|\r|\n", line) or re.search(r"\r\n|\r|\n", text)
    return found[0] if found else "\n"


def written(lines: list[str], kernel: Kernel, limits: Limits | None = None) -> list[tuple[str, list[str]]]:
    """Titles and statements of the drafts that have no fault, on the GPU with these limits."""
    from orbit_lsp.drafts import Subject, cuda, host_cuda, host_triton, triton, used
    from orbit_remote.spec.file_context import Surroundings
    from orbit_remote.spec.signature import signature

    of = spec_cache.target(kernel)
    around = Surroundings(lines, of.language)
    header = signature(lines, of, around)
    if header is None:
        return []
    text = around.text
    clean = text.split("\n")
    body = "\n".join(clean[of.name_line : kernel.whole.end_line + 1])
    subject = Subject(kernel.name, header, _body(body[of.name_end :], of.language), text, kernel.bounds)
    found: list[tuple[str, list[str] | None]] = []
    if of.language == "cuda":
        found.append(("Write a launch spec from the launch in this file", host_cuda.draft(subject)))
        found.append(("Write a launch spec from the signature", cuda.draft(subject)))
    else:
        decorators = "\n".join(clean[of.start_line : of.line])
        found.append(
            ("Write a launch spec from the launch in this file", host_triton.draft(subject, "\n".join(lines)))
        )
        found.append(("Write a launch spec from the signature", triton.draft(subject, decorators)))
    kept = [(title, used(one)) for title, one in found if one]
    return [(title, one) for title, one in kept if faultless(lines, kernel, one, limits)]


def _body(text: str, language: str) -> str:
    """What follows the parameters."""
    depth = 0
    for at, character in enumerate(text):
        depth += (character in "([{") - (character in ")]}")
        if character == "{" and depth == 1 and language == "cuda":
            return text[at:]
        if character == ":" and depth == 0 and language == "triton":
            return text[at + 1 :]
    return ""


def faultless(lines: list[str], kernel: Kernel, statements: list[str], limits: Limits | None = None) -> bool:
    """Whether the file with the draft in it has no error there."""
    from orbit_remote.spec import launch_spec

    added = _above(kernel, statements, lines[kernel.whole.line]).split("\n")[:-1]
    start = kernel.whole.line
    of = spec_cache.target(kernel)
    moved = launch_spec.target_of(spec_cache.definition(kernel), of.language, len(added))
    checked = launch_spec.check_lines([*lines[:start], *added, *lines[start:]], moved, limits)
    return not any(one.severity == "error" for one in checked.faults)


_LINE = 110


def _above(kernel: Kernel, statements: list[str], first: str) -> str:
    """Comment lines in the kernel's indentation: short assignments share one, a launch has its own."""
    mark = "//" if kernel.language == "cuda" else "#"
    indentation = re.match(r"[ \t]*", first)
    begin = f"{indentation[0] if indentation else ''}{mark} orbit: "
    made: list[str] = []
    together = ""
    for one in statements:
        alone = one.startswith("launch ")
        if together and (alone or len(begin) + len(together) + 2 + len(one) > _LINE):
            made.append(begin + together)
            together = ""
        together = f"{together}; {one}" if together else one
        if alone:
            made += _folded(begin, one)
            together = ""
    made += [begin + together] if together else []
    return "".join(f"{line}\n" for line in made)


def _folded(begin: str, launch: str) -> list[str]:
    """A long launch goes on in further lines, between its arguments: a bracket is open there."""
    opening = launch.find(">>>(") + 3 if ">>>(" in launch else launch.find("](") + 1
    head, parts = launch[: opening + 1], launch[opening + 1 :].split(", ")
    made: list[str] = []
    line = begin + head
    for at, part in enumerate(parts):
        piece = part + ("," if at + 1 < len(parts) else "")
        if len(line) + len(piece) + 1 > _LINE and at:
            made.append(line.rstrip())
            line = begin + "  "
        line += piece + (" " if at + 1 < len(parts) else "")
    return [*made, line]
