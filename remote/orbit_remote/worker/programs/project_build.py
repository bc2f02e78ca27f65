"""A program of a project, built by the project's own CMake or make, and refused where that did not build it of the saved text"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from orbit_remote.common import limits, plain_text, regular_files
from orbit_remote.common import messages as c
from orbit_remote.process import client_environment, program
from orbit_remote.toolchain import build, diagnostics, nvcc
from orbit_remote.worker.context import Context
from orbit_remote.worker.programs import cmake_folder, freshness, sources
from orbit_remote.worker.programs.sources import Sources

_PROGRESS = re.compile(r"^\[ *(\d+%|\d+/\d+)\] ", re.MULTILINE)
_OF_TOOLS = re.compile(
    r"^(?:g?make(?:\[\d+\])?: .*|FAILED: .*|ninja: .*|\[ *(?:\d+%|\d+/\d+)\] .*|-- .*|.* -[co] \S.*|Scanning dependencies.*|"
    r"Consolidate compiler.*|Change Dir: .*|Run Build Command.*)$",
    re.MULTILINE,
)
"""Lines of make, ninja and CMake, and the commands that they print: no words of a compiler."""
_CMAKE_ERROR = re.compile(
    r"^CMake Error(?: at (?P<file>[^\n:]+):(?P<line>\d+)(?: \([^)\n]*\))?)?:?[ \t]*(?P<words>[^\n]*(?:\n(?:[ \t]+[^\n]*|(?=\n)))*)",
    re.MULTILINE,
)
_NO_RULE = re.compile(
    r"^(?:g?make(?:\[\d+\])?: \*\*\*|ninja: (?:error|fatal):) (?P<words>[^\n]*)", re.MULTILINE
)
_LONGEST = 300


class NotBuiltError(Exception):
    """Why there is no program to run: `failure` says it; `problems` are the compiler's."""

    def __init__(self, failure: c.Failure, problems: tuple[c.Problem, ...] = ()) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.problems = problems


async def built(job: c.Job, context: Context, architecture: str) -> build.Build:
    """Build the program of a job by what its project builds it with; everything that goes wrong is in the result."""
    begin = time.monotonic()
    work = _Work(job, context, architecture)
    try:
        made = await work.built()
    except NotBuiltError as why:
        made = build.Build(c.Built(job.run, why.problems, complete=False), failure=why.failure)
    except OSError as error:
        text = f"the program could not be built: {error.strerror or error}{f' ({error.filename})' if error.filename else ''}"
        made = build.Build(c.Built(job.run, complete=False), failure=c.Failure("infrastructure", text))
    return replace(made, built=replace(made.built, seconds=time.monotonic() - begin))


def alone(job: c.Job) -> c.Job | c.Failure:
    """Return the job of a program that nvcc makes of one file: as if that file had been asked for. Takes time."""
    assert job.driver
    read = _read(job)
    if unsaved := _unsaved(job, read):
        return unsaved
    path = _main(job)
    try:
        text = regular_files.text(path, limits.SOURCE)
    except (OSError, ValueError) as error:
        return c.Failure("infrastructure", f"{job.driver.file} cannot be read: {error}")
    folders = [part for folder in read.folders for part in ("-I", folder)]
    return replace(job, path=path, text=text, flags=(*job.flags, *folders))


def _main(job: c.Job) -> str:
    assert job.driver
    return os.path.join(job.directory or "", *job.driver.file.split("/"))


def _read(job: c.Job) -> Sources:
    """The files of a program: its main, the kernel's file, its other sources as far as they are known, and what all of them include."""
    root = job.directory or os.path.dirname(job.path)
    starts = (job.path, _main(job), *(os.path.join(root, *each.split("/")) for each in job.sources))
    return sources.read(root, starts, include_folders(job.flags, root))


def include_folders(flags: Sequence[str], directory: str) -> list[str]:
    """The folders that flags of nvcc name for headers."""
    folders: list[str] = []
    words = iter(flags)
    for word in words:
        if word in ("-I", "-isystem", "--include-path"):
            folders.append(next(words, ""))
        elif word.startswith("-I"):
            folders.append(word[2:])
    return [os.path.normpath(os.path.join(directory, each)) for each in folders if each]


def _unsaved(job: c.Job, read: Sources) -> c.Failure | None:
    """A build reads files from the disk: what an editor shows and has not saved would not be what is measured."""
    assert job.driver
    for place, text in sorted(job.texts.items()):
        path = os.path.join(job.directory or "", *place.split("/"))
        hashed = c.content_hash(text.encode("utf-8", "replace"))
        known = read.files.get(path)
        if known and known.hash != hashed and not _same_text(path, text):
            message = f"save {place} first: {job.driver.short} is built from the saved files"
            return c.Failure("infrastructure", message, "nothing was built or run", place=None)
    return None


def _same_text(path: str, text: str) -> bool:
    """Whether they differ in nothing but the ends of lines and a byte order mark, which editors keep to themselves."""
    try:
        saved = regular_files.read(path, limits.SOURCE).decode("utf-8-sig", "replace")
    except (OSError, ValueError):
        return False
    return saved.replace("\r\n", "\n") == text.removeprefix("\ufeff").replace("\r\n", "\n")


class _Work:
    """One build."""

    def __init__(self, job: c.Job, context: Context, architecture: str) -> None:
        assert job.driver
        self._job, self._context, self._driver = job, context, job.driver
        self._architecture = architecture
        self._folder = job.working_folder
        self._remarks: list[str] = []
        self._compiler = ""
        """The nvcc that a file's own program would be compiled with, "" for none."""

    async def built(self) -> build.Build:
        """Raises NotBuiltError, OSError."""
        before = await asyncio.to_thread(_read, self._job)
        if unsaved := _unsaved(self._job, before):
            raise NotBuiltError(unsaved)
        compiler = await asyncio.to_thread(nvcc.find, self._job.nvcc)
        self._compiler = "" if isinstance(compiler, c.Failure) else compiler.path
        make = self._by_cmake if self._driver.tool == "cmake" else self._by_make
        async with self._context.alone(("project", self._folder)):
            executable, objects, own = await make()
        return await asyncio.to_thread(self._checked, before, executable, objects, own)

    # -- CMake --------------------------------------------------------------------------------------

    async def _by_cmake(self) -> tuple[str, str, tuple[str, ...]]:
        """The executable, the folder that has its objects, and its sources."""
        cmake = client_environment.which("cmake")
        if cmake is None:
            text = f"{self._driver.short} is built by CMake, which is not on the path"
            raise NotBuiltError(c.Failure("infrastructure", text, "install cmake, as by apt or pip"))
        configured = await asyncio.to_thread(cmake_folder.existing, self._folder)
        self._remarks += configured.remarks
        folder = configured.folder or self._own_folder()
        answered = await asyncio.to_thread(cmake_folder.ask, folder)
        if not configured.folder and not cmake_folder.is_configured(folder):
            self._context.stage(
                self._job, "building", "configuring the project, for the first time in a folder of orbit-lsp"
            )
            self._remarks.append(
                f"the project has no build folder, so it was built in {folder}, as Release for {self._architecture}"
            )
            await asyncio.to_thread(cmake_folder.keep_few, self._context.home / "projects", folder)
            await self._told(
                [cmake, "-S", self._folder, "-B", folder, *self._options()],
                "CMake could not configure the project",
            )
        elif not answered:
            await self._told([cmake, folder], "CMake could not configure the project")
        model = await asyncio.to_thread(cmake_folder.codemodel, folder)
        wanted = self._program(model)
        try:
            await self._by_target(cmake, folder, wanted.name, model)
        except NotBuiltError:
            model = await asyncio.to_thread(cmake_folder.codemodel, folder)
            renamed = self._program(model)  # the build has configured the project anew
            if renamed.name == wanted.name:
                raise
            await self._by_target(cmake, folder, renamed.name, model)
        made = self._program(await asyncio.to_thread(cmake_folder.codemodel, folder))
        return made.file, folder, made.sources

    async def _by_target(
        self, cmake: str, folder: str, name: str, model: cmake_folder.Codemodel | None
    ) -> None:
        command = [cmake, "--build", folder, "--target", name, "--parallel", str(os.cpu_count() or 1)]
        command += ["--config", model.configuration] if model and model.configuration else []
        await self._told(command, f"{name} was not built")

    def _own_folder(self) -> str:
        key = c.content_hash(
            f"{self._folder}\n{self._architecture}\n{self._job.nvcc}".encode("utf-8", "surrogateescape")
        )
        name = re.sub(r"[^\w.-]", "_", os.path.basename(self._folder))
        return str(self._context.home / "projects" / f"{name}-{key[:12]}")

    def _options(self) -> list[str]:
        """What a first configuration is given; what the project itself sets goes before."""
        number = re.sub(r"^sm_", "", self._architecture)
        options = ["-DCMAKE_BUILD_TYPE=Release", f"-DCMAKE_CUDA_ARCHITECTURES={number}"]
        named = "CMAKE_GENERATOR" in client_environment.current()
        return options if named or not client_environment.which("ninja") else [*options, "-G", "Ninja"]

    def _program(self, model: cmake_folder.Codemodel | None) -> cmake_folder.CMakeProgram:
        """What CMake says of the program that the texts named; by its source where its name is made up by CMake."""
        programs = model.programs if model else ()
        main = os.path.realpath(_main(self._job))
        for each in programs:
            if each.name == self._driver.name:
                return each
        for each in programs:
            if any(os.path.realpath(source) == main for source in each.sources):
                return each
        names = ", ".join(each.name for each in programs[:8])
        text = f"CMake's project in {self._folder} makes no program {self._driver.name}, as it is configured"
        remedy = (
            f"turn on the option that adds it; the programs are {names}"
            if names
            else "turn on the option that adds it"
        )
        raise NotBuiltError(c.Failure("infrastructure", text, remedy))

    # -- make ---------------------------------------------------------------------------------------

    async def _by_make(self) -> tuple[str, str, tuple[str, ...]]:
        make = client_environment.which("make") or client_environment.which("gmake")
        if make is None:
            text = f"{self._driver.short} is built by make, which is not on the path"
            raise NotBuiltError(c.Failure("infrastructure", text, "install make"))
        await self._told([make, self._driver.name], f"{self._driver.name} was not built")
        return str(Path(self._folder, self._driver.output)), self._folder, ()

    # -- both ---------------------------------------------------------------------------------------

    async def _told(self, command: Sequence[str], failed: str) -> None:
        """Run a command of the build; what it says where it fails is the reason. Raises NotBuiltError, OSError."""
        limit = self._job.build_timeout_s
        ended = await program.run(
            command,
            cwd=self._folder,
            env=self._environment(),
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
            said = plain_text.plain(f"{ended.stderr}\n{ended.stdout}")
            failure, problems = await asyncio.to_thread(self._why, said, command, failed)
            raise NotBuiltError(failure, problems)

    def _environment(self) -> Mapping[str, str]:
        """The author's, with lines in what is compiled anyway, and messages in English. An editor that a desktop started often has
        no nvcc on its path, which a shell has.
        """
        known = {k: v for k, v in client_environment.current().items() if k not in ("LC_ALL", "LANGUAGE")}
        flags = known.get("NVCC_APPEND_FLAGS", "")
        flags = flags if "-lineinfo" in flags else f"{flags} -lineinfo".strip()
        compiler = {"CUDACXX": self._job.nvcc} if self._job.nvcc else {}
        if self._compiler and not client_environment.which("nvcc"):
            known["PATH"] = os.pathsep.join((known.get("PATH", os.defpath), os.path.dirname(self._compiler)))
        return known | compiler | {"NVCC_APPEND_FLAGS": flags, "LC_MESSAGES": "C"}

    def _progress(self) -> Callable[[program.Stream, str], None]:
        """What shows how far make or ninja is."""

        def show(_: program.Stream, text: str) -> None:
            if steps := _PROGRESS.findall(text):
                self._context.stage(self._job, "building", steps[-1].replace("/", " of "))

        return show

    def _why(self, said: str, command: Sequence[str], failed: str) -> tuple[c.Failure, tuple[c.Problem, ...]]:
        """The reason why a command of the build failed, and the compiler's messages."""
        if command[1:2] != ["--build"] and self._driver.tool == "cmake":
            return self._of_cmake(said, failed)
        words = _OF_TOOLS.sub("", said)
        known = diagnostics.Context(self._job.path, _text_of, self._folder)
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
        if _CMAKE_ERROR.search(said):
            return self._of_cmake(said, failed)
        rule = _NO_RULE.search(said)
        last = next((line for line in reversed(words.splitlines()) if line.strip()), "")
        reason = (errors[0].message if errors else rule["words"] if rule else last).strip()[:_LONGEST]
        remedy = f"`{shlex.join(command)}` in {self._folder} shows all of it"
        return c.Failure("infrastructure", f"{failed}: {reason or 'the build does not say why'}", remedy), ()

    def _of_cmake(self, said: str, failed: str) -> tuple[c.Failure, tuple[c.Problem, ...]]:
        match = _CMAKE_ERROR.search(said)
        if match is None:
            last = next((line for line in reversed(said.splitlines()) if line.strip()), "it does not say why")
            return c.Failure("infrastructure", f"{failed}: {last.strip()[:_LONGEST]}"), ()
        # without a place it is followed by lines that are not indented
        text = match["words"] if match["file"] else said[match.start("words") :].partition("\n\n")[0]
        words = " ".join(text.split())[:_LONGEST]
        place = None
        if match["file"]:
            place = c.Place(os.path.normpath(os.path.join(self._folder, match["file"])), int(match["line"]))
        problem = (c.Problem("error", words, "cmake", place),) if place else ()
        return c.Failure("infrastructure", f"{failed}: {words}", place=place), problem

    # -- what was built -----------------------------------------------------------------------------

    def _checked(self, before: Sources, executable: str, objects: str, own: tuple[str, ...]) -> build.Build:
        """The build, if its executable is of the files as they are. Raises NotBuiltError, OSError."""
        name, root = self._driver.short, self._job.directory or ""
        if not os.path.isfile(executable) or not os.access(executable, os.X_OK):
            text = f"the build ended well and left no program {executable}"
            raise NotBuiltError(c.Failure("infrastructure", text, "correct what the build file calls it"))
        read = sources.read(root, (*before.files, *own), include_folders(self._job.flags, root))
        main = _main(self._job)
        candidates = own or read.files
        including = [
            unit for unit in candidates if _is_unit(unit) and self._job.path in read.closure((unit,))
        ]
        units = dict.fromkeys((main, self._job.path, *including))
        watched = before.closure(units)
        if edited := [
            path
            for path in watched
            if path not in read.files or read.files[path].hash != before.files[path].hash
        ]:
            text = f"{_shown(edited, root)} changed while {name} was built, so it was not run"
            raise NotBuiltError(c.Failure("infrastructure", text, "run it again", retryable=True))
        late = freshness.not_rebuilt(
            executable,
            [unit for unit in units if unit in read.files],
            read,
            objects,
            self._context.home / "projects",
        )
        if late:
            ahead = [path for path in late if freshness.in_the_future(path, read)]
            why = (
                "was saved by a clock that is ahead of this one"
                if ahead
                else f"has changed and the build did not compile {name} anew"
            )
            text = f"{_shown(ahead or late, root)} {why}, so it was not run"
            raise NotBuiltError(c.Failure("infrastructure", text, self._remedy(objects, late)))
        files = {path: each.hash for path, each in read.files.items()}
        return build.Build(
            c.Built(self._job.run, files=files), Path(executable), remarks=tuple(dict.fromkeys(self._remarks))
        )

    def _remedy(self, objects: str, late: Sequence[str]) -> str:
        if self._driver.tool == "cmake":
            command = f"cmake --build {shlex.quote(objects)} --target {shlex.quote(self._driver.name)} --clean-first"
            return f"build it anew: {command}"
        command = f"make -C {shlex.quote(self._folder)} -B {shlex.quote(self._driver.name)}"
        headers = [os.path.basename(each) for each in late if not _is_unit(each)]
        rule = f", and name {headers[0]} among what it needs in the Makefile" if headers else ""
        return f"build it anew: {command}{rule}"


def _is_unit(path: str) -> bool:
    return path.lower().endswith((".cu", ".cpp", ".cc", ".cxx", ".c"))


def _shown(paths: Sequence[str], root: str) -> str:
    names = [os.path.relpath(path, root) if path.startswith(root) else path for path in paths[:3]]
    return ", ".join(names)


def _text_of(file: str) -> str | None:
    try:
        return regular_files.head(file, limits.QUOTED).decode("utf-8", "replace")
    except (OSError, ValueError):
        return None
