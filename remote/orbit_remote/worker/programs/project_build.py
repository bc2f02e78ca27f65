"""A program of a project. The project's own CMake, Meson or make builds it. It is refused if it was not built from
the saved text.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from orbit_remote.common import limits, regular_files
from orbit_remote.common import messages as c
from orbit_remote.common.configured import build_folders, cmake_folder, meson_folder
from orbit_remote.common.configured.cmake_folder import ProjectProgram
from orbit_remote.common.requests import DriverStart, Job
from orbit_remote.process import client_environment
from orbit_remote.toolchain import build, nvcc
from orbit_remote.worker.context import WorkerContext
from orbit_remote.worker.programs import freshness, project_tests, sources
from orbit_remote.worker.programs.build_commands import BuildCommands, NotBuiltError
from orbit_remote.worker.programs.project_tests import ProjectTest
from orbit_remote.worker.programs.sources import ProgramSources


async def built(job: Job, context: WorkerContext, architecture: str) -> build.BuildResult:
    """Build the program of a job with the project's build system. Any failure is in the result."""
    begin = time.monotonic()
    work = _ProjectWork(job, context, architecture)
    try:
        made = await work.built()
    except NotBuiltError as why:
        made = build.BuildResult(c.Built(job.run, why.problems, complete=False), failure=why.failure)
    except OSError as error:
        text = f"the program could not be built: {error.strerror or error}{f' ({error.filename})' if error.filename else ''}"
        made = build.BuildResult(c.Built(job.run, complete=False), failure=c.Failure("infrastructure", text))
    return replace(made, built=replace(made.built, seconds=time.monotonic() - begin))


def _start(job: Job) -> DriverStart:
    assert isinstance(job.start, DriverStart)
    return job.start


def alone(job: Job) -> Job | c.Failure:
    """Return the job of a program that nvcc makes from its sources, as if the one with `main` had been asked for.
    Takes time.
    """
    read = _read(job)
    if unsaved := _unsaved(job, read):
        return unsaved
    path = _main(job)
    try:
        text = regular_files.text(path, limits.SOURCE)
    except (OSError, ValueError) as error:
        return c.Failure("infrastructure", f"{_start(job).driver.file} cannot be read: {error}")
    folders = [part for folder in read.folders for part in ("-I", folder)]
    root = job.directory or os.path.dirname(job.path)
    sources_beside = [os.path.join(root, *each.split("/")) for each in _start(job).sources]
    return replace(
        job,
        path=path,
        text=text,
        flags=(*job.flags, *folders, *(each for each in sources_beside if each != path)),
    )


def _main(job: Job) -> str:
    return os.path.join(job.directory or "", *_start(job).driver.file.split("/"))


def _read(job: Job) -> ProgramSources:
    """Return the files of a program: its main, the kernel's file, its other sources as far as they are known, and
    what all of them include.
    """
    root = job.directory or os.path.dirname(job.path)
    starts = (job.path, _main(job), *(os.path.join(root, *each.split("/")) for each in _start(job).sources))
    return sources.read(root, starts, include_folders(job.flags, root))


def include_folders(flags: Sequence[str], directory: str) -> list[str]:
    """Return the folders for headers that flags of nvcc name."""
    folders: list[str] = []
    words = iter(flags)
    for word in words:
        if word in ("-I", "-isystem", "--include-path"):
            folders.append(next(words, ""))
        elif word.startswith("-I"):
            folders.append(word[2:])
    return [os.path.normpath(os.path.join(directory, each)) for each in folders if each]


def _unsaved(job: Job, read: ProgramSources) -> c.Failure | None:
    """Refuse unsaved text. A build reads files from the disk, so what an editor shows and has not saved would not be
    measured.
    """
    start = _start(job)
    place = sources.unsaved(read, job.directory or "", start.texts)
    if place is None:
        return None
    message = f"save {place} first: {start.driver.short} is built from the saved files"
    return c.Failure("infrastructure", message, "nothing was built or run", place=None)


class _ProjectWork:
    """The work of one build."""

    def __init__(self, job: Job, context: WorkerContext, architecture: str) -> None:
        self._job, self._context, self._driver = job, context, _start(job).driver
        self._architecture = architecture
        self._folder = job.working_folder
        self._configuration = ""
        """CMake's, of the program; empty where the generator has but one."""
        self._remarks: list[str] = []
        self._commands = BuildCommands(job, context, self._folder)

    async def built(self) -> build.BuildResult:
        """Raises NotBuiltError, OSError."""
        before = await asyncio.to_thread(_read, self._job)
        if unsaved := _unsaved(self._job, before):
            raise NotBuiltError(unsaved)
        compiler = await asyncio.to_thread(nvcc.find, self._job.nvcc)
        self._commands.compiler = "" if isinstance(compiler, c.Failure) else compiler.path
        ways = {"cmake": self._by_cmake, "meson": self._by_meson}
        make = ways.get(self._driver.tool, self._by_make)
        async with self._context.alone(("project", self._folder)):
            executable, objects, own = await make()
        made = await asyncio.to_thread(self._checked, before, executable, objects, own)
        test = project_tests.chosen(
            await asyncio.to_thread(self._tests, executable, objects), self._job.arguments
        )
        return self._as_tested(made, test) if test else made

    def _tests(self, executable: str, folder: str) -> list[ProjectTest]:
        """Return the project's own tests of the program."""
        if self._driver.tool == "cmake":
            return project_tests.of_cmake(folder, self._configuration, executable)
        return project_tests.of_meson(folder, executable) if self._driver.tool == "meson" else []

    def _as_tested(self, made: build.BuildResult, test: ProjectTest) -> build.BuildResult:
        """Return the build with a job that runs the program as a test of the project does. Arguments of the author's
        go before those of the test.
        """
        job, start = self._job, _start(self._job)
        arguments = job.arguments or test.arguments
        job = replace(
            job, arguments=arguments, variables=(*job.variables, *test.variables),
            start=replace(start, runs_in=test.folder),
        )  # fmt: skip
        how = shlex.join([self._driver.short, *arguments])
        remark = f"run as the project's test {test.name} runs it: {how}, in {test.folder}"
        return replace(made, job=job, remarks=(*made.remarks, remark))

    # -- CMake --------------------------------------------------------------------------------------

    async def _by_cmake(self) -> tuple[str, str, tuple[str, ...]]:
        """Return the executable, the folder of its objects, and its sources."""
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
            options = await asyncio.to_thread(self._repeated, folder)
            if not options:
                options = self._options()
                self._remarks.append(
                    f"the project has no build folder, so it was built in {folder}, as Release for {self._architecture}"
                )
            await asyncio.to_thread(build_folders.keep_few, self._context.home / "projects", folder)
            await self._commands.run(
                [cmake, "-S", self._folder, "-B", folder, *options],
                "CMake could not configure the project",
            )
        elif not answered:
            await self._commands.run([cmake, folder], "CMake could not configure the project")
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
        model = await asyncio.to_thread(cmake_folder.codemodel, folder)
        self._configuration = model.configuration if model else ""
        made = self._program(model)
        return made.file, folder, made.sources

    async def _by_target(
        self, cmake: str, folder: str, name: str, model: cmake_folder.Codemodel | None
    ) -> None:
        command = [cmake, "--build", folder, "--target", name, "--parallel", str(os.cpu_count() or 1)]
        command += ["--config", model.configuration] if model and model.configuration else []
        await self._commands.run(command, f"{name} was not built")

    def _repeated(self, folder: str) -> list[str]:
        """Return the options of the copy of the project that this one is built as; none if that was not configured."""
        if not (other := _start(self._job).built_as):
            return []
        source = os.path.join(other, self._driver.folder) if self._driver.folder else other
        configured = cmake_folder.existing(source).folder
        return cmake_folder.settings(configured, source, folder, self._folder) if configured else []

    def _own_folder(self) -> str:
        if _start(self._job).built_as:  # a copy that does not last, and its build with it
            return os.path.join(self._folder, "build-of-orbit-lsp")
        key = c.content_hash(
            f"{self._folder}\n{self._architecture}\n{self._job.nvcc}".encode("utf-8", "surrogateescape")
        )
        name = re.sub(r"[^\w.-]", "_", os.path.basename(self._folder))
        return str(self._context.home / "projects" / f"{name}-{key[:12]}")

    def _options(self) -> list[str]:
        """Return the options of a first configuration. What the project itself sets goes before."""
        number = re.sub(r"^sm_", "", self._architecture)
        options = ["-DCMAKE_BUILD_TYPE=Release", f"-DCMAKE_CUDA_ARCHITECTURES={number}"]
        named = "CMAKE_GENERATOR" in client_environment.current()
        return options if named or not client_environment.which("ninja") else [*options, "-G", "Ninja"]

    def _program(self, model: cmake_folder.Codemodel | None) -> ProjectProgram:
        """Return what CMake says of the program that the texts named. If CMake made up its name, it is found by its
        source.
        """
        return self._one_of(model.programs if model else (), "CMake")

    def _one_of(self, programs: Sequence[ProjectProgram], system: str) -> ProjectProgram:
        main = os.path.realpath(_main(self._job))
        for each in programs:
            if each.name == self._driver.name:
                return each
        for each in programs:
            if any(os.path.realpath(source) == main for source in each.sources):
                return each
        names = ", ".join(each.name for each in programs[:8])
        text = (
            f"{system}'s project in {self._folder} makes no program {self._driver.name}, as it is configured"
        )
        remedy = (
            f"turn on the option that adds it; the programs are {names}"
            if names
            else "turn on the option that adds it"
        )
        raise NotBuiltError(c.Failure("infrastructure", text, remedy))

    # -- Meson --------------------------------------------------------------------------------------

    async def _by_meson(self) -> tuple[str, str, tuple[str, ...]]:
        """Return the executable, and the folder of its objects. Meson does not say which sources its libraries have."""
        meson = client_environment.which("meson")
        if meson is None:
            text = f"{self._driver.short} is built by Meson, which is not on the path"
            raise NotBuiltError(c.Failure("infrastructure", text, "install meson, as by apt or pip"))
        configured = await asyncio.to_thread(meson_folder.existing, self._folder)
        self._remarks += configured.remarks
        folder = configured.folder or self._own_folder()
        if not configured.folder and not meson_folder.is_set_up(folder):
            self._context.stage(
                self._job, "building", "setting the project up, for the first time in a folder of orbit-lsp"
            )
            self._remarks.append(f"the project has no build folder, so it was built in {folder}, as release")
            await asyncio.to_thread(build_folders.keep_few, self._context.home / "projects", folder)
            command = [meson, "setup", "--buildtype=release", folder, self._folder]
            await self._commands.run(command, "Meson could not set the project up")
        wanted = self._one_of(await asyncio.to_thread(meson_folder.programs, folder), "Meson")
        await self._commands.run(
            [meson, "compile", "-C", folder, f"{wanted.name}:executable"], f"{wanted.name} was not built"
        )
        made = self._one_of(await asyncio.to_thread(meson_folder.programs, folder), "Meson")
        return made.file, folder, ()

    # -- make ---------------------------------------------------------------------------------------

    async def _by_make(self) -> tuple[str, str, tuple[str, ...]]:
        make = client_environment.which("make") or client_environment.which("gmake")
        if make is None:
            text = f"{self._driver.short} is built by make, which is not on the path"
            raise NotBuiltError(c.Failure("infrastructure", text, "install make"))
        await self._commands.run([make, self._driver.name], f"{self._driver.name} was not built")
        return str(Path(self._folder, self._driver.output)), self._folder, ()

    # -- what was built -----------------------------------------------------------------------------

    def _checked(
        self, before: ProgramSources, executable: str, objects: str, own: tuple[str, ...]
    ) -> build.BuildResult:
        """Return the build, if its executable is of the present files. Raises NotBuiltError, OSError."""
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
            text = f"{shown(edited, root)} changed while {name} was built, so it was not run"
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
            text = f"{shown(ahead or late, root)} {why}, so it was not run"
            raise NotBuiltError(c.Failure("infrastructure", text, self._remedy(objects, late)))
        files = {path: each.hash for path, each in read.files.items()}
        return build.BuildResult(
            c.Built(self._job.run, files=files), Path(executable), remarks=tuple(dict.fromkeys(self._remarks))
        )

    def _remedy(self, objects: str, late: Sequence[str]) -> str:
        if self._driver.tool == "cmake":
            command = f"cmake --build {shlex.quote(objects)} --target {shlex.quote(self._driver.name)} --clean-first"
            return f"build it anew: {command}"
        if self._driver.tool == "meson":
            folder = shlex.quote(objects)
            return f"build it anew: meson compile -C {folder} --clean && meson compile -C {folder}"
        command = f"make -C {shlex.quote(self._folder)} -B {shlex.quote(self._driver.name)}"
        headers = [os.path.basename(each) for each in late if not _is_unit(each)]
        rule = f", and name {headers[0]} among what it needs in the Makefile" if headers else ""
        return f"build it anew: {command}{rule}"


def _is_unit(path: str) -> bool:
    return path.lower().endswith((".cu", ".cpp", ".cc", ".cxx", ".c"))


def shown(paths: Sequence[str], root: str) -> str:
    """Return the first paths as a sentence names them. Those in the project's folder are relative to it."""
    names = [os.path.relpath(path, root) if path.startswith(root) else path for path in paths[:3]]
    return ", ".join(names)
