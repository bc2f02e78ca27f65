"""The library whose kernels a test or script in Python launches, an extension or one that ctypes loads: built anew by its project's own
command where it is older than the sources or was never built, and refused where it stays older
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import sys
import sysconfig
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from orbit_remote.common import codec, limits, regular_files, symbols
from orbit_remote.common import messages as c
from orbit_remote.common.configured import cmake_folder
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.packages import installing
from orbit_remote.common.requests import DriverStart, Job
from orbit_remote.process import client_environment
from orbit_remote.recording import registered_kernels
from orbit_remote.toolchain import nvcc
from orbit_remote.worker.context import WorkerContext
from orbit_remote.worker.programs import freshness, sources
from orbit_remote.worker.programs.build_commands import BuildCommands, NotBuiltError
from orbit_remote.worker.programs.project_build import include_folders, shown
from orbit_remote.worker.programs.sources import ProgramSources

_SETUP = "setup.py"
_MAKEFILES = ("GNUmakefile", "makefile", "Makefile")
_IN_PLACE = (_SETUP, "build_ext", "--inplace")
_ABSENT_LIBRARY = re.compile(r"([^\s:'\"]+\.so[\w.]*): cannot open shared object file: No such file")
"""What the dynamic linker says through ctypes of a library that is not there."""
_SKIPPED = " was skipped: "
"""In the remark of a run whose test was skipped."""
_ENDED = " ended pytest: "
"""In the message of a run whose test file ended when it was imported, with the author's words behind."""
_EXTENSION = re.compile(r"Extension\s{0,9}\(\s{0,99}(?:name\s{0,9}=\s{0,9})?[\"']([\w.]{1,200})[\"']")
_OTHER_PYTHON = re.compile(r"\.(?:cpython|pypy|cp)-?\d+")


@dataclass(frozen=True, slots=True)
class _Library:
    """A library that has kernels of the file. `late` are the files that have changed since it was built."""

    path: str
    late: tuple[str, ...]


async def with_fresh(
    job: Job, context: WorkerContext, act: Callable[[], Awaitable[c.Finished]]
) -> c.Finished:
    """Do what the job asks for with an extension that is known to be built from the saved files."""
    work = _ExtensionWork(job, context)
    try:
        await work.prepare()
        finished = await act()
        if await work.build_absent(finished):
            finished = await act()
        return await asyncio.to_thread(work.checked, finished)
    except NotBuiltError as why:
        return replace(c.failed(job.run, why.failure), problems=why.problems)


class _ExtensionWork:
    """The work on one job's extension."""

    def __init__(self, job: Job, context: WorkerContext) -> None:
        assert isinstance(job.start, DriverStart)
        self._job, self._context, self._start = job, context, job.start
        self._root = os.path.normpath(job.directory or os.path.dirname(job.path))
        self._names = registered_kernels.names(job.text)
        self._remark = ""
        """What was built for the run, and why."""
        self._built: list[_Library] = []
        """Those that the project and its installed copy have, before the run."""

    async def prepare(self) -> None:
        """Build the extension anew if every library that has the kernels is too old. Raises NotBuiltError, OSError."""
        read = await asyncio.to_thread(self._read)
        if place := sources.unsaved(read, self._root, self._start.texts):
            message = f"save {place} first: the extension is built from the saved files"
            raise NotBuiltError(c.Failure("infrastructure", message, "nothing was built or run"))
        self._built = await asyncio.to_thread(self._libraries, read)
        if not self._built or any(not each.late for each in self._built):
            return
        old = max(self._built, key=lambda each: os.stat(each.path).st_mtime_ns)
        folder, command = await asyncio.to_thread(self._command, old.path)
        if not command:
            return
        name = self._place(old.path)
        await self._build(folder, command, f"rebuilding {name}", f"{name} was not rebuilt")
        if all(each.late for each in self._built):
            late = next((each.late for each in self._built if each.path == old.path), old.late)
            text = f"{name} was built before {shown(late, self._root)} changed, and `{shlex.join(command)}` did not build it anew"
            raise NotBuiltError(
                c.Failure("infrastructure", f"{text}, so nothing was run", f"remove {name} and build it")
            )
        self._remark = (
            f"{name} was older than {shown(old.late, self._root)} and was rebuilt by `{shlex.join(command)}`"
        )

    async def build_absent(self, finished: c.Finished) -> bool:
        """Build the library if the run ended, or its test was skipped, because it was never built, and return whether
        it was built now. Raises NotBuiltError, OSError.

        A library that ctypes loads is built by its Makefile or in its configured build folder, a module by the project's setup.py,
        which builds in its own folder; what pip would install is left to the author.
        """
        skipped = "\n".join(each for each in finished.remarks if _SKIPPED in each and not finished.launches)
        message = finished.failure.message if finished.failure else skipped
        if self._built or not message:
            return False
        name, folder, command = await asyncio.to_thread(self._absent, message)
        if not command:
            return False
        await self._build(folder, command, f"{name} was never built: building it", f"{name} was not built")
        self._remark = f"{name} was not built yet, and was built by `{shlex.join(command)}`"
        return True

    def _absent(self, message: str) -> tuple[str, str, list[str]]:
        """Return the name of the library that a message misses, and the folder and the command that make it. The command
        is empty if none is known. Takes time.
        """
        if found := _ABSENT_LIBRARY.search(message):
            library = os.path.normpath(os.path.join(self._job.working_folder or self._root, found[1]))
            inside = library.startswith(self._root + os.sep)
            folder, command = self._build_command(library) if inside else ("", [])
            return self._place(library), folder, command
        folder = self._setup_folder()
        name = _absent_module(message)
        if not name and (
            _SKIPPED in message or _ENDED in message
        ):  # in the author's words: the test may say which module it needs
            text = _text(os.path.join(self._root, *self._start.driver.file.split("/")))
            declared = _EXTENSION.findall(_text(os.path.join(folder, _SETUP))) if folder else []
            name = next((each for each in declared if re.search(rf"\b{re.escape(each)}\b", text)), "")
        return name, folder, [sys.executable, *_IN_PLACE] if name and _declares(folder, name) else []

    async def _build(self, folder: str, command: Sequence[str], what: str, failed: str) -> None:
        """Run the project's command in a folder, and look again at what was built. Raises NotBuiltError, OSError."""
        compiler = await asyncio.to_thread(nvcc.find, self._job.nvcc)
        build = BuildCommands(self._job, self._context, folder)
        build.compiler = "" if isinstance(compiler, c.Failure) else compiler.path
        async with self._context.alone(("project", self._root)), self._context.build(self._job):
            self._context.stage(self._job, "building", f"{what}: {shlex.join(command)}")
            await build.run(command, failed)
        self._built = await asyncio.to_thread(self._libraries, await asyncio.to_thread(self._read))

    def checked(self, finished: c.Finished) -> c.Finished:
        """Return the end of the run. The run is refused if an extension that it loaded is older than the sources.
        Takes time.
        """
        if self._remark:
            finished = replace(finished, remarks=(self._remark, *finished.remarks))
        if not self._built and finished.failure and _absent_module(finished.failure.message):
            _, command = self._command("")
            remedy = f"if that is the project's extension, build it: {shlex.join(command)}" if command else ""
            return replace(
                finished, failure=replace(finished.failure, remedy=remedy or finished.failure.remedy)
            )
        if not any(symbols.base_name(each.symbol) in self._names for each in finished.launches):
            return finished
        read = self._read()
        files = finished.files | {path: each.hash for path, each in read.files.items()}
        loaded = [
            path
            for path in finished.files
            if path.endswith(registered_kernels.LIBRARIES) and self._has_kernels(path)
        ]
        libraries = [self._library(path, read) for path in loaded] or self._built
        saved = read.files.get(os.path.normpath(self._job.path))
        if not loaded and saved and finished.files.get(self._job.path) == saved.hash:
            return replace(finished, files=files)  # the driver compiled the text that it read
        if any(not each.late for each in libraries):
            return replace(finished, files=files)
        name = Path(self._job.path).name
        if libraries:
            place, late = self._place(libraries[0].path), shown(libraries[0].late, self._root)
            text = f"{self._start.driver.id} loaded {place}, which was built before {late} changed, so nothing was measured"
        else:
            text = f"{self._start.driver.id} launched a build that is not known to be of this text of {name}, so nothing was measured"
        _, command = self._command(libraries[0].path if libraries else "")
        remedy = f"build the extension anew: {shlex.join(command)}" if command else "build the extension anew"
        return replace(finished, outcome="infrastructure", failure=c.Failure("infrastructure", text, remedy))

    # -- what there is ------------------------------------------------------------------------------

    def _read(self) -> ProgramSources:
        """Return the kernel's file and what it includes of the project."""
        return sources.read(self._root, (self._job.path,), include_folders(self._job.flags, self._root))

    def _libraries(self, read: ProgramSources) -> list[_Library]:
        here = sources.listed(self._root, registered_kernels.LIBRARIES, built=True)
        paths = dict.fromkeys((*here, *(path for path, _ in _installed(self._root))))
        tag = sysconfig.get_config_var("SOABI") or ""
        return [
            self._library(path, read)
            for path in paths
            if (tag in path or not _OTHER_PYTHON.search(os.path.basename(path))) and self._has_kernels(path)
        ]

    def _library(self, path: str, read: ProgramSources) -> _Library:
        try:
            late = freshness.not_rebuilt(path, (self._job.path,), read, "", self._context.home / "projects")
        except OSError:  # it was removed meanwhile
            late = [self._job.path]
        return _Library(path, tuple(late))

    def _has_kernels(self, path: str) -> bool:
        return registered_kernels.has_one(path, self._names)

    def _place(self, path: str) -> str:
        return os.path.relpath(path, self._root) if path.startswith(self._root + os.sep) else path

    # -- how it is built ----------------------------------------------------------------------------

    def _command(self, library: str) -> tuple[str, list[str]]:
        """Return the folder and the command that make a library; an empty command where none is known. Takes time."""
        inside = library.startswith(self._root + os.sep)
        folder, command = self._build_command(library) if inside else ("", [])
        if folder:
            return folder, command
        folder = self._setup_folder()
        if not folder:
            return "", []
        if inside and os.path.isfile(os.path.join(folder, _SETUP)):
            # forced, since setuptools does not look at headers; ninja still compiles only what changed
            return folder, [sys.executable, *_IN_PLACE, "--force"]
        words = shlex.split(installing.installer(sys.executable, client_environment.current()))
        if "&&" in words or "pip" not in words:
            return folder, []
        editable = inside or not library or dict(_installed(self._root)).get(library, False)
        return folder, [*words, "--no-build-isolation", "--no-deps", *(["-e"] if editable else []), "."]

    def _build_command(self, library: str) -> tuple[str, list[str]]:
        """Return the folder and the command of the build that makes a library of the project: CMake's configured folder around it, or
        the nearest Makefile that names it. Takes time.
        """
        for folder in _above(library, self._root):
            if cmake_folder.is_configured(folder):
                cmake = client_environment.which("cmake")
                return folder, [
                    cmake,
                    "--build",
                    folder,
                    "--parallel",
                    str(os.cpu_count() or 1),
                ] if cmake else []
        name = os.path.basename(library)
        if _OTHER_PYTHON.search(name):  # it has the name that setuptools gives
            return "", []
        stem = re.compile(rf"\b(?:lib)?{re.escape(name.partition('.')[0].removeprefix('lib'))}\b")
        for folder in dict.fromkeys((*_above(library, self._root), *_above(self._job.path, self._root))):
            text = next((text for each in _MAKEFILES if (text := _text(os.path.join(folder, each)))), "")
            if name in text or ("nvcc" in text.lower() and stem.search(text)):
                make = client_environment.which("make") or client_environment.which("gmake")
                target = os.path.relpath(library, folder)
                return folder, [make, *([target] if target in text else [])] if make else []
        return "", []

    def _setup_folder(self) -> str:
        """Return the nearest folder above the file that pip can install, or "" if there is none."""
        return next(
            (
                each
                for each in _above(self._job.path, self._root)
                if any(os.path.isfile(os.path.join(each, name)) for name in (_SETUP, "pyproject.toml"))
            ),
            "",
        )


def _text(path: str) -> str:
    """Return the text of a file; empty if it cannot be read. Takes time."""
    try:
        return regular_files.text(path, limits.SOURCE)
    except (OSError, ValueError):
        return ""


def _absent_module(message: str) -> str:
    """Return the name of the module that an import did not find, or "" if the message is about something else."""
    if found := re.search(r"No module named '([\w.]+)'", message):
        return found[1]
    found = re.search(
        r"cannot import name '(\w+)' from (?:partially initialized module )?'([\w.]+)'", message
    )
    return f"{found[2]}.{found[1]}" if found else ""


def _declares(folder: str, name: str) -> bool:
    """Return whether the setup.py of a folder makes an extension that is imported by this name. Takes time."""
    text = _text(os.path.join(folder, _SETUP)) if folder else ""
    module = re.escape(name.rpartition(".")[2])
    return bool(re.search(rf"Extension\s*\(\s*(?:name\s*=\s*)?f?[\"'](?:[^\"']*\.)?{module}[\"']", text))


def _above(path: str, root: str) -> Iterator[str]:
    """Yield the folders of a path, from its own to the project's."""
    folder = os.path.dirname(path)
    while folder.startswith(root):
        yield folder
        if folder == root:
            return
        folder = os.path.dirname(folder)


def _installed(root: str) -> Iterator[tuple[str, bool]]:
    """Yield the libraries that this Python has installed from a folder of the project, each with whether that is an
    editable install (PEP 610, direct_url.json).
    """
    for each in metadata.distributions():
        try:
            origin: Any = codec.read_json(each.read_text("direct_url.json") or "{}")
            folder = os.path.normpath(unquote(urlsplit(str(origin["url"])).path))
            editable = bool(origin.get("dir_info", {}).get("editable"))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue
        if folder == root or folder.startswith(root + os.sep):
            for file in _files(each):
                yield str(file), editable


def _files(distribution: metadata.Distribution) -> Sequence[str]:
    return [
        os.path.normpath(str(distribution.locate_file(file)))
        for file in distribution.files or ()
        if str(file).endswith(registered_kernels.LIBRARIES)
    ]
