"""Commands of a project's own build, run in its folder: their progress, and why one failed, from what the tools said."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from orbit_remote.common import limits, plain_text, regular_files
from orbit_remote.common import messages as c
from orbit_remote.common.requests import Job
from orbit_remote.process import client_environment, program
from orbit_remote.toolchain import diagnostics
from orbit_remote.worker.context import WorkerContext

_PROGRESS = re.compile(r"^\[ *(\d+%|\d+/\d+)\] ", re.MULTILINE)
_OF_TOOLS = re.compile(
    r"^(?:g?make(?:\[\d+\])?: .*|FAILED: .*|ninja: .*|\[ *(?:\d+%|\d+/\d+)\] .*|-- .*|.* -[co] \S.*|Scanning dependencies.*|"
    r"Consolidate compiler.*|INFO: .*|Change Dir: .*|Run Build Command.*)$",
    re.MULTILINE,
)
"""Lines of make, ninja and CMake, and the commands that they print: no words of a compiler."""
_CMAKE_ERROR = re.compile(
    r"^CMake Error(?: at (?P<file>[^\n:]+):(?P<line>\d+)(?: \([^)\n]*\))?)?:?[ \t]*(?P<words>[^\n]*(?:\n(?:[ \t]+[^\n]*|(?=\n)))*)",
    re.MULTILINE,
)
_MESON_ERROR = re.compile(
    r"^(?P<file>[^\n:]+):(?P<line>\d+):(?P<column>\d+): ERROR: (?P<words>[^\n]*)", re.MULTILINE
)
_NO_RULE = re.compile(
    r"^(?:g?make(?:\[\d+\])?: \*\*\*|ninja: (?:error|fatal):) (?P<words>[^\n]*)", re.MULTILINE
)
_NOT_STARTED = re.compile(
    r"^(?:g?make(?:\[\d+\])?: |\S*sh: (?:line )?(?:\d+: )?)(?P<program>[^\s:*]+): "
    r"(?:No such file or directory|(?:command )?not found)$",
    re.MULTILINE,
)
_NO_ARCHITECTURE = re.compile(r"Unsupported gpu architecture '(\w+)'")
_LONGEST = 300


class NotBuiltError(Exception):
    """There is no program to run. `failure` says why; `problems` are the compiler's."""

    def __init__(self, failure: c.Failure, problems: tuple[c.Problem, ...] = ()) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.problems = problems


class BuildCommands:
    """Runs commands of the build of a project in `folder`, for one job."""

    def __init__(self, job: Job, context: WorkerContext, folder: str) -> None:
        self._job, self._context, self._folder = job, context, folder
        self.compiler = ""
        """The nvcc that a file's own program would be compiled with, "" for none."""

    async def run(self, command: Sequence[str], failed: str) -> None:
        """Run a command of the build. If it fails, its output is the reason. Raises NotBuiltError, OSError."""
        limit = self._job.build_timeout_s
        ended = await program.run(
            command,
            cwd=self._folder,
            env=self.environment(),
            stdin="",
            timeout_s=limit,
            started=self._context.groups(self._job),
            output=self._progress(),
        )
        if ended.status is None:
            text = f"{failed}: {shlex.join(command)} took longer than the limit of {limit:g} s"
            remedy = "build the project once yourself, or raise the setting `orbit.build_timeout_s` (option --build-timeout)"
            raise NotBuiltError(c.Failure("timed out", text, remedy))
        if ended.status:
            said = plain_text.plain(f"{ended.stderr}\n"), plain_text.plain(ended.stdout)
            failure, problems = await asyncio.to_thread(self._why, said, command, failed)
            raise NotBuiltError(failure, problems)

    def environment(self) -> Mapping[str, str]:
        """Return the author's environment. What is compiled gets line information, and messages are in English. An
        editor that a desktop started often has no nvcc on its path, which a shell has.
        """
        known = {k: v for k, v in client_environment.current().items() if k not in ("LC_ALL", "LANGUAGE")}
        flags = known.get("NVCC_APPEND_FLAGS", "")
        flags = flags if "-lineinfo" in flags else f"{flags} -lineinfo".strip()
        compiler = {"CUDACXX": self._job.nvcc} if self._job.nvcc else {}
        if self.compiler and not client_environment.which("nvcc"):
            known["PATH"] = os.pathsep.join((known.get("PATH", os.defpath), os.path.dirname(self.compiler)))
        return known | compiler | {"NVCC_APPEND_FLAGS": flags, "LC_MESSAGES": "C"}

    def _progress(self) -> Callable[[program.Stream, str], None]:
        """Return what shows how far make or ninja is."""

        def show(_: program.Stream, text: str) -> None:
            if steps := _PROGRESS.findall(text):
                self._context.stage(self._job, "building", steps[-1].replace("/", " of "))

        return show

    def _why(
        self, streams: tuple[str, str], command: Sequence[str], failed: str
    ) -> tuple[c.Failure, tuple[c.Problem, ...]]:
        """Return why a command of the build failed, and the compiler's messages. `streams` are standard error and
        output.
        """
        said = "".join(streams)
        if Path(command[0]).stem == "cmake" and command[1:2] != ["--build"]:
            return self._of_cmake(said, failed)
        words = _OF_TOOLS.sub("", said)
        known = diagnostics.DiagnosticContext(self._job.path, _text_of, self._folder)
        problems = diagnostics.parse(words, known)
        errors = [each for each in problems if each.severity == "error"]
        # a linker has no line to name; a line of nobody's says too little to be a compiler's
        placed = next((each for each in errors if each.place), None)
        first = placed or next((each for each in errors if each.tool == "ld"), None)
        if first:
            where = f"{Path(first.place.file).name}:{first.place.line}: " if first.place else ""
            count = "1 error" if len(errors) == 1 else f"{len(errors)} errors"
            message = f"{failed} ({count}): {where}{first.message.partition(chr(10))[0]}"
            return c.Failure("compile error", message, place=first.place, symbol=first.symbol), problems
        if meson := _MESON_ERROR.search(said):
            file = os.path.normpath(os.path.join(self._folder, meson["file"]))
            place = c.Place(file, int(meson["line"]), int(meson["column"]) + 1)
            problem = c.Problem("error", meson["words"], "meson", place)
            return c.Failure("infrastructure", f"{failed}: {meson['words']}", place=place), (problem,)
        if _CMAKE_ERROR.search(said):
            return self._of_cmake(said, failed)
        remedy = f"`{shlex.join(command)}` in {self._folder} shows all of it"
        if absent := _NOT_STARTED.search(streams[0]):
            here = (
                f"; nvcc is {self.compiler}" if self.compiler and absent["program"].endswith("nvcc") else ""
            )
            remedy = f"correct its path in the build file or install it{here}"
            return c.Failure(
                "infrastructure", f"{failed}: there is no {absent['program']}, which it starts", remedy
            ), ()
        if unknown := _NO_ARCHITECTURE.search(said):
            remedy = f"name an architecture in the build file that this nvcc knows{f', such as {self._job.architecture}' if self._job.architecture else ''}"
            return c.Failure("infrastructure", f"{failed}: nvcc has no code for {unknown[1]}", remedy), ()
        rule = _NO_RULE.search(said)
        last_error, last_line = (_last_line(_OF_TOOLS.sub("", text)) for text in (streams[0], said))
        stopped = ": ".join(filter(None, (rule["words"], last_error))) if rule else last_line
        reason = (errors[0].message if errors else stopped).strip()[:_LONGEST]
        return c.Failure("infrastructure", f"{failed}: {reason or 'the build does not say why'}", remedy), ()

    def _of_cmake(self, said: str, failed: str) -> tuple[c.Failure, tuple[c.Problem, ...]]:
        match = _CMAKE_ERROR.search(said)
        if match is None:
            last = _last_line(said)[:_LONGEST] or "it does not say why"
            return c.Failure("infrastructure", f"{failed}: {last}"), ()
        # without a place it is followed by lines that are not indented
        text = match["words"] if match["file"] else said[match.start("words") :].partition("\n\n")[0]
        words = " ".join(text.split())[:_LONGEST]
        place = None
        if match["file"]:
            place = c.Place(os.path.normpath(os.path.join(self._folder, match["file"])), int(match["line"]))
        problem = (c.Problem("error", words, "cmake", place),) if place else ()
        return c.Failure("infrastructure", f"{failed}: {words}", place=place), problem


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


def _text_of(file: str) -> str | None:
    try:
        return regular_files.head(file, limits.QUOTED).decode("utf-8", "replace")
    except (OSError, ValueError):
        return None
