"""Finds errors of a job before a runner is asked."""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING

from orbit_lsp.specs import launch_plan
from orbit_lsp.state import modal_gpus
from orbit_remote.common import limits
from orbit_remote.common import messages as c
from orbit_remote.common.requests import Job

if TYPE_CHECKING:
    from orbit_remote.common.python_errors import Explained


def no_path(job: Job) -> c.Failure | None:
    """Refuse a path that no file can have: a URI can spell such names. No system call accepts them, and each fails in
    its own words.
    """
    for what, name in (("file", job.path), ("folder", job.directory or "")):
        try:
            if b"\0" not in name.encode():
                continue
        except UnicodeEncodeError:
            pass
        shown = name.encode("unicode_escape").decode()
        return c.Failure(
            "infrastructure",
            f"the {what} name {shown} holds a NUL character or half a surrogate pair",
            "rename it",
        )
    return None


def no_gpu(job: Job) -> c.Failure | None:
    """Refuse a GPU that Modal does not have: nothing is rented in its place."""
    if job.gpu is None or job.action in ("compile", "build") or modal_gpus.rented(job.gpu):
        return None
    return c.Failure("infrastructure", modal_gpus.refusal(job.gpu), "name one of these")


def no_sources(job: Job) -> c.Failure | None:
    """Refuse a program of the project: it needs all that its build reads, which is not sent."""
    driver = job.project_program
    return (
        c.Failure("infrastructure", launch_plan.here_only(driver), "nothing was rented") if driver else None
    )


def syntax_error(job: Job, python: str) -> c.Finished | None:
    """Return the answer to a Python file that `python`, a version such as `3.12`, cannot read. Nothing of the file
    runs.

    No more is checked. Whatever else Triton may refuse shows only when the module is imported and its kernels are
    launched, because their types and constants are those of the launch. An importing machine without a GPU would
    refuse correct files that make tensors at their top level.
    """
    explained = explained_syntax(job.text, job.path, python)
    return c.failed(job.run, explained.failure, problems=explained.problems) if explained else None


def explained_syntax(text: str, path: str, python: str) -> Explained | None:
    """Return the first syntax error of a Python file that `python`, a version such as `3.12`, runs. Return None if it
    has none, or that is not known.
    """
    if sys.version_info[:2] < tuple(map(int, python.split(".")[:2])) or len(text) > limits.OUTLINED.most:
        return None  # newer syntax than ours is no mistake
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(text, path, "exec", dont_inherit=True)
    except SyntaxError as error:
        from orbit_remote.common.python_errors import explain

        return explain(error, path)
    except (ValueError, RecursionError, MemoryError):  # a NUL, or deeper than this parser goes
        return None
    return None
