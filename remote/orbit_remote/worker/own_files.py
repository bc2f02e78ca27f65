"""Decides which files that a tool names are the author's."""

from __future__ import annotations

import os
from pathlib import Path

from orbit_remote.common import messages as c
from orbit_remote.common import python_errors
from orbit_remote.common.requests import Job
from orbit_remote.sanitizer.sanitizer_findings import Own


def of_build(job: Job, built: c.Built) -> Own:
    """Return the rule for a build: the files that the compiler read and that are not its own."""
    known = {os.path.realpath(file): file for file in (*built.files, job.path)}
    folder = job.working_folder

    def own(file: str) -> str | None:
        return known.get(os.path.realpath(os.path.join(folder, file)))  # noqa: PTH118 - texts, by the thousand

    return own


def read(job: Job, built: c.Built) -> dict[str, str]:
    """Return the files of a program of the project by content hash, without the file that was asked for. For a file's
    own program the event of its build has named them.
    """
    return (
        {path: known for path, known in built.files.items() if path != job.path}
        if job.project_program
        else {}
    )


def of_python(job: Job) -> Own:
    """Return the rule for Python: the files that are no part of Python, of a toolkit or of an installed package."""

    def own(file: str) -> str | None:
        return file if python_errors.is_users(file, job.path) else None

    return own


def of_program(job: Job) -> Own:
    """Return the rule for a program that somebody else has built: the files that are here and belong to no system or
    toolkit.
    """
    folder = job.working_folder

    def own(file: str) -> str | None:
        path = os.path.realpath(os.path.join(folder, file))  # noqa: PTH118
        foreign = path.startswith(("/usr/", "/opt/")) or "/include/c++/" in path
        return (
            path if not foreign and python_errors.is_users(path, job.path) and Path(path).is_file() else None
        )

    return own
