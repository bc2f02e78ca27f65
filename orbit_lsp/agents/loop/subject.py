"""The kernel of a loop: its file, and the harness, which is everything else that decides what is measured.

The harness is every other file that a run uses, the flags of the build files, and the part of the kernel's own file
that says what is computed. That part is the launch spec without its `launch` lines, or KernelBench's `Model`,
`get_inputs` and what they use. A worker that changes the harness changes the task.
"""

from __future__ import annotations

import ast
import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from orbit_lsp import closure
from orbit_lsp.engine.engine import Engine, Unwatched
from orbit_lsp.specs import job_builder, spec_cache
from orbit_lsp.specs.launch_plan import LaunchPlan
from orbit_lsp.state import harness
from orbit_lsp.state.kernel_ids import KernelId
from orbit_lsp.state.placement import RunSetup
from orbit_lsp.state.session import Session, uri_of
from orbit_lsp.views import kernel_status
from orbit_remote.common import limits, regular_files
from orbit_remote.common.contracts import harness_files
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.messages import content_hash
from orbit_remote.spec import comment_scanner

_MOST_BYTES = 1 << 30
_REFERENCE = ("Model", "get_inputs", "get_init_inputs")


class NoSubjectError(ValueError):
    """A loop cannot optimise the file or the kernel. The text is the sentence to show."""


@dataclass(frozen=True, slots=True)
class LoopSubject:
    """The kernel of a loop. `path` has no links in it. `name` is the kernel's or the contract's, as in a job's
    request. `checked` says whether anything checks what it computes.
    """

    path: Path
    name: str
    checked: bool

    def content(self) -> bytes:
        """Return the present content of the kernel file. Raises OSError, for a link too."""
        if self.path.is_symlink():
            raise OSError(0, "it is a link now", str(self.path))
        return regular_files.read(self.path, limits.SOURCE)

    def put(self, content: bytes) -> None:
        """Write the kernel file and no other. The file keeps its mode, and readers always find it whole. Raises
        OSError.
        """
        with suppress(OSError):
            if self.content() == content:
                return
        mode = self.path.stat().st_mode & 0o777 if self.path.exists() else 0o644
        handle, temporary = tempfile.mkstemp(
            dir=self.path.parent, prefix=f".{self.path.name}.", suffix=".tmp"
        )
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            Path(temporary).chmod(mode)
            Path(temporary).replace(self.path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise


def text_of(content: bytes) -> str:
    return content.decode("utf-8-sig", "replace")


def subject(file: str, kernel: str | None) -> LoopSubject:
    """Raises NoSubjectError."""
    path = Path(os.path.realpath(file))
    try:
        text = regular_files.text(path, limits.SOURCE)
    except FileNotFoundError:
        raise NoSubjectError(f"there is no file {file}") from None
    except OSError as error:
        raise NoSubjectError(f"{file} cannot be read: {error.strerror}") from None
    session = Session(setup=RunSetup(folders=[str(Path.cwd())]))
    try:
        uri = uri_of(str(path))
    except UnicodeEncodeError:
        raise NoSubjectError(f"{file}: the path is not valid UTF-8, which a job's path has to be") from None
    if session.open(uri, 0, text) is None:
        raise NoSubjectError(f"{file} is not a .cu, .cuh or .py file")
    contract = harness.of(session, uri)
    if contract and kernel in (None, contract.name):
        return LoopSubject(path, contract.name, checked=True)
    known = kernel_status.launchable(session, uri)
    wanted = [target for target in known if kernel in (None, target.key, target.key.rpartition("::")[2])]
    have = ", ".join(target.key for target in known) or "none"
    if not wanted:
        raise NoSubjectError(
            f"there is no kernel {kernel} in {file}; it has: {have}"
            if kernel
            else f"no kernel of {file} can be launched"
        )
    if len(wanted) > 1:
        raise NoSubjectError(f"which kernel? Add --kernel; {file} has: {have}")
    plan = job_builder.plan_of(session, wanted[0])
    if plan.through != "spec":
        raise NoSubjectError(
            f"{wanted[0].key} has no launch spec; write one above it (`orbit-lsp draft` proposes one): the host code of a "
            "program stands in the file that the worker changes, so it cannot be the judge"
        )
    if plan.refusal:
        raise NoSubjectError(f"{wanted[0].key} cannot be run: {plan.refusal}")
    words = {statement.word for statement in _statements(session, wanted[0])}
    return LoopSubject(path, wanted[0].key, checked=bool(words & {"expect", "reference"}))


async def harness_of(subject: LoopSubject, settings: dict[str, Any], start: str, text: str) -> dict[str, str]:
    """Return the present harness with this text of the kernel file: the hash of each part, by its name.

    `start` is the text that the loop began with. Only it decides how the build files say the kernel is compiled,
    because a new `#include` of a library may well bring flags of its own.
    """
    uri = uri_of(str(subject.path))
    session = Session(setup=RunSetup(folders=[str(Path.cwd())]))
    places = Engine(session, Unwatched(), lambda _: None).places
    try:
        places.settings.options = settings
        places.settings.configure(None)
        session.open(uri, 0, start)
        await places.compilations.find(uri)
        compilation = session.files[uri].compilation
        flags = (
            {"the compile command of the build files": _digest("\n".join(compilation.flags))}
            if compilation.flags
            else {}
        )
        session.open(uri, 1, text)
        await places.compilations.find(uri)
        contract = harness.of(session, uri)
        if contract and contract.name == subject.name:
            return flags | _files(session, contract.target) | _reference(text)
        target = KernelId(uri, subject.name)
        if session.find(target) is None:
            return {}
        return flags | _files(session, target) | _spec(session, target)
    finally:
        await places.close()


def changed(before: dict[str, str], now: dict[str, str]) -> str:
    """Return what differs, as the end of a sentence, or "" if nothing does. A text without the kernel fails when it
    is built.
    """
    if not now:
        return ""
    names = [name for name in sorted({*before, *now}) if before.get(name) != now.get(name)]
    if not names:
        return ""
    words = [
        f"{name} {'is new' if name not in before else 'is gone' if name not in now else 'was changed'}"
        for name in names[:3]
    ]
    return ", ".join(words) + (f" and {len(names) - 3} more" if names[3:] else "")


def _files(session: Session, target: KernelId) -> dict[str, str]:
    frozen = session.freeze(target.uri)
    assert frozen
    plan: LaunchPlan = job_builder.plan_of(session, target)
    job = job_builder.make(session, frozen, "run", "", plan)
    tree = closure.closure(
        job, session.setup.folders, data=session.setup.settings.modal.data, limit=_MOST_BYTES
    )
    main = os.path.relpath(job.path, tree.root).replace(os.sep, "/")
    return {name: digest for name, digest in tree.manifest.files.items() if name != main}


def _statements(session: Session, target: KernelId) -> list[comment_scanner.SpecStatement]:
    kernel = session.find(target)
    assert kernel
    language = session.files[target.uri].scan.language
    return comment_scanner.statements(list(spec_cache.pieces_of(session, target.uri, kernel)), language)[0]


def _spec(session: Session, target: KernelId) -> dict[str, str]:
    kept = [
        " ".join("".join(piece.text for piece in statement.pieces).split())
        for statement in _statements(session, target)
        if statement.word != "launch"
    ]
    return {"the launch spec (but for its launch lines)": _digest("\n".join(kept))}


def _reference(text: str) -> dict[str, str]:
    """Return the parts of a KernelBench file's own `Model` and inputs."""
    if not harness_files.has_model(text):
        return {}
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {"the reference in the file": "unreadable"}
    bound: dict[str, list[ast.AST]] = {}
    for statement in tree.body:
        for name, node in _bound(statement):
            bound.setdefault(name, []).append(node)
    needed, parts = list(_REFERENCE), list[str]()
    for name in needed:
        for node in bound.get(name, ()):
            parts.append(f"{name}: {ast.dump(node)}")
            used = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
            needed += sorted(used & set(bound) - set(needed))
    return {"the reference in the file": _digest("\n".join(parts))}


def _bound(statement: ast.stmt) -> Iterator[tuple[str, ast.AST]]:
    """Yield the names that a top-level statement gives a meaning, with what gives it. Attributes are included
    (`Model.forward = …`); an import gives only the one name.
    """
    if isinstance(statement, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
        yield statement.name, statement
        return
    for node in ast.walk(statement):
        if isinstance(node, ast.alias):
            yield (node.asname or node.name).partition(".")[0], node
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
            yield node.id, statement
        elif (
            isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and isinstance(node.value, ast.Name)
        ):
            yield node.value.id, statement


def _digest(text: str) -> str:
    return content_hash(text.encode("utf-8", "surrogatepass"))
