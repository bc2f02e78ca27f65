"""Handles a `.cu` file that holds no CUDA C++: what its first line shows it to be, and what to do."""

from __future__ import annotations

import re

from orbit_remote.common.messages import Problem

TEMPLATE = "the file is a template, as of Jinja: compile what the program that fills it in writes"
_KINDS = (
    (r"version https://git-lfs\.", "the file is a pointer of Git LFS, and its content is not here: git lfs pull"),
    (r"<(?:!doctype|html|\?xml)\b", "the file is a page of HTML or XML, as from a wrong address: download the source itself"),
    (r"\.version\s+\d", "the file is PTX, which ptxas assembles: call it .ptx"),
    (r"(?:import|from)\s+[\w.]+(?:\s+(?:import|as)\s[^;]*)?$", "the file is Python: call it .py"),
    (r"<{7}(?:\s|$)", "a merge left both of its sides here: choose one"),
    (r"\{\{|\{%", TEMPLATE),
    (r"\.{1,2}/[\w./+-]+$", "the file is a link that git wrote as text: git config core.symlinks true, and check the file out again"),
)  # fmt: skip
_LEXICAL = re.compile(r"unrecognized token|invalid preprocessing directive #\W")
_OF_CUDA = re.compile(
    r"__global__|__device__|__host__|^[ \t]*#[ \t]*(?:include|define|ifn?def)\b", re.MULTILINE
)


def advice(problem: Problem, path: str, text: str) -> str:
    """Return the advice for an error at the first line of a file whose text is no CUDA C++. Return "" for any other
    error.
    """
    lines = (
        each for each in enumerate(text.split("\n"), 1) if each[1].strip() and not each[1].startswith("//")
    )
    number, first = next(lines, (0, ""))
    place = problem.place
    if problem.severity != "error" or place is None or (place.file, place.line) != (path, number):
        return ""
    for pattern, sentence in _KINDS:
        if re.match(pattern, first.strip(), re.IGNORECASE):
            return f"; {sentence}"
    if _LEXICAL.match(problem.message) and not _OF_CUDA.search(text):
        return "; the file is no CUDA C++ but text of another language: give it another ending"
    return ""
