"""Finds the errors of a `.cu` file within a keystroke: nvcc's own front end (cicc) waits with the headers of the file
parsed.

nvcc has gcc preprocess a file and gives the text to cicc. Here the file is divided behind its last `#include`. cicc
reads the first part, the head, and waits (`warm_cicc.cpp`). For each check a fork of it reads the rest. Program,
flags and text are nvcc's, so the errors are too. Linux only.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from orbit_remote.common import limits, regular_files
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.messages import Built, Problem
from orbit_remote.common.requests import Job
from orbit_remote.process import client_environment, process_groups, tool_output
from orbit_remote.toolchain import build, diagnostics, nvcc
from orbit_remote.toolchain.build import NvccCall
from orbit_remote.toolchain.nvcc import Nvcc

_SOURCE = Path(__file__).with_name("warm_cicc.cpp")
_FLAGS = ("-std=c++17", "-O2", "-fPIC", "-shared", "-static-libstdc++", "-static-libgcc")
_START_S = 60.0
_CHECK_S = 10.0
_IDLE_S = 600.0
_MOST_COUNTED = 10_000
_DIRECTIVE = re.compile(r"[ \t]*#[ \t]*(\w+)")
_MOST_EDITED = 8
"""Lines that differ from those of the last check, where it is known without gcc what becomes of them."""
_NUMBERED = re.compile(rb"# (\d+) ")
_DEFINED = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", re.MULTILINE)
_WORD = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
_NOT_PLAIN = re.compile(r"""[#"'\\?$@`]|//|/\*|\*/|%:|^\s*\(""")
"""A `(` may be the arguments of a macro that the line before ends with."""
_BUILT_IN = frozenset(
    {
        *(
            "__LINE__",
            "__FILE__",
            "__FILE_NAME__",
            "__BASE_FILE__",
            "__COUNTER__",
            "__INCLUDE_LEVEL__",
            "_Pragma",
            "defined",
        ),
        *("__DATE__", "__TIME__", "__TIMESTAMP__", "__has_include", "__has_include_next", "__has_attribute"),
        *("__has_cpp_attribute", "__has_builtin", "__has_feature"),
    }
)
_OPENS, _CLOSES = ("if", "ifdef", "ifndef"), ("endif",)
_INCLUDES = ("include", "include_next", "import")
_MARKER = re.compile(rb"# \d+ .*|\s*")
_MARKED_FILE = re.compile(rb'^# \d+ "([^"<\n][^"\n]*)"', re.MULTILINE)
_VARIABLE = re.compile(r"#\$ (PATH|LD_LIBRARY_PATH|CICC_PATH|NVVMIR_LIBRARY_DIR)=(.*)")
_READ = b"\n<read>\n"
_ENDED = re.compile(rb"\n<exit \d+>\n\Z")
_ERROR = re.compile(rb": (?:catastrophic )?error(?: #\d+(?:-D)?)?: ")


_Key = tuple[Any, ...]
log = logging.getLogger("orbit.front_end")


class FrontEndUnavailableError(Exception):
    """This file cannot be checked in this way: it is another platform, another compiler, or a source that cannot be
    divided.
    """


def divided(text: str) -> tuple[str, str]:
    """Return the text up to its last `#include`, and the rest. No `#if` that begins in the first part ends in the
    second.
    """
    lines = text.splitlines(keepends=True)
    depth, head, included = 0, 0, False
    for number, line in enumerate(lines, 1):
        word = match[1] if (match := _DIRECTIVE.match(line)) else ""
        depth += (word in _OPENS) - (word in _CLOSES)
        included |= word in _INCLUDES
        if included and depth <= 0:
            head, included = number, False
    if included:
        head = len(lines)
    return "".join(lines[:head]), "".join(lines[head:])


@dataclass(frozen=True, slots=True)
class _Plan:
    """The two commands with which nvcc reads the device code of a file, and the variables that it sets for them."""

    preprocess: tuple[str, ...]
    parse: tuple[str, ...]
    variables: dict[str, str]

    @property
    def expanded(self) -> str:
        """Return the file that the first command writes and the second one reads."""
        return self.preprocess[-1]


def _plan(dry_run: str) -> _Plan:
    """Raises FrontEndUnavailableError where nvcc does something else, as for several architectures."""
    lines = dry_run.splitlines()
    variables = {match[1]: match[2] for line in lines if (match := _VARIABLE.fullmatch(line))}
    words = [
        shlex.split(line[3:].replace("$CICC_PATH", variables.get("CICC_PATH", "")))
        for line in lines
        if line.startswith("#$ ") and ("cicc" in line or " -E " in line) and not _VARIABLE.match(line)
    ]
    parses = [each for each in words if Path(each[0]).name == "cicc"]
    if len(parses) != 1:
        raise FrontEndUnavailableError
    preprocesses = [each for each in words if "-E" in each and each[-2] == "-o" and each[-1] in parses[0]]
    if len(preprocesses) != 1:
        raise FrontEndUnavailableError
    return _Plan(tuple(preprocesses[0]), tuple(parses[0]), variables)


def _spaced(line: str) -> bytes:
    """Return a line with gcc's spaces: one for each character before the first word, then one between two words."""
    words = line.split()
    return (" " * (len(line) - len(line.lstrip())) + " ".join(words)).encode() if words else b""


class _Rest:
    """The rest of a file and what gcc made of it. A new version of some of its lines need not go through gcc again."""

    def __init__(self, text: str, expanded: bytes, first: int, macros: frozenset[str]) -> None:
        """Make a rest. `text` begins in line `first` of its file; `macros` are those that the head has defined."""
        self._lines = text.split("\n")
        self._expanded = expanded.split(b"\n")
        self._first = first
        self._macros = macros | frozenset(_DEFINED.findall(text)) | _BUILT_IN
        self._at: dict[int, int] = {}
        number = 0
        for at, line in enumerate(self._expanded):
            if match := _NUMBERED.match(line):
                number = int(match[1])
            else:
                self._at[number] = at
                number += 1

    @property
    def expanded(self) -> bytes:
        return b"\n".join(self._expanded)

    def edited(self, text: str) -> bool:
        """Take over the lines that are new in `text`. Return whether their expansion is beyond doubt. It is if old
        and new lines hold no macro, comment, directive or string, and gcc has not changed the old ones.
        """
        lines = text.split("\n")
        changed = [at for at, (old, new) in enumerate(zip(self._lines, lines, strict=False)) if old != new]
        if len(lines) != len(self._lines) or len(changed) > _MOST_EDITED:
            return False
        for at in changed:
            place = self._at.get(self._first + at)
            shown = b"" if place is None else self._expanded[place]
            if not (
                self._is_plain(lines[at])
                and self._is_plain(self._lines[at])
                and shown == _spaced(self._lines[at]) != b""
            ):
                return False
        for at in changed:
            self._expanded[self._at[self._first + at]] = _spaced(lines[at])
        self._lines = lines
        return True

    def _is_plain(self, line: str) -> bool:
        if _NOT_PLAIN.search(line) or not line.isascii():
            return False
        return self._macros.isdisjoint(_WORD.findall(line))


class FrontEnd:
    """cicc with the head of one file parsed. Raises FrontEndUnavailableError if that is impossible."""

    def __init__(self, call: NvccCall, started: process_groups.Started) -> None:
        self.call = call
        self._head, _ = divided(call.job.text)
        self._started = started
        self._socket = str(call.work / "s")
        self._macros = call.work / "macros.h"
        self._environment = call.environment()
        self._preprocess: tuple[str, ...] = ()
        self._process: asyncio.subprocess.Process | None = None
        self._ending: set[asyncio.Task[int]] = set()
        self._defined: frozenset[str] = frozenset()
        self._rest: _Rest | None = None
        self._of_head = ""
        """cicc's messages about the head."""
        self._files: dict[str, tuple[int, int]] = {}

    async def start(self, shim: Path) -> None:
        """Parse the head of the job's text."""
        call, text, edited = self.call, self.call.job.text, self.call.work / "edited"
        if sys.platform != "linux" or call.refusal():
            raise FrontEndUnavailableError
        edited.mkdir()
        source = edited / "kernel.cu"
        _, _, commands = await self._run([*call.command(str(source), staged=True), "--dryrun"])
        plan = _plan(commands.decode(errors="replace"))
        self._environment |= plan.variables
        self._preprocess = self._of_tail(plan, source)
        first = call.line_directive(1)
        # the rest continues with the head's __COUNTER__; an unfinished comment in the head would hide it
        await asyncio.to_thread(source.write_text, f"{first}{self._head}\n__COUNTER__\n", "utf-8")
        await self._must(plan.preprocess)
        await self._must([*plan.preprocess[:-2], "-dM", "-o", str(self._macros)])
        head, count = await asyncio.to_thread(self._read_head, Path(plan.expanded))
        await asyncio.to_thread(source.write_text, first + text, "utf-8")
        await self._must(plan.preprocess)
        whole = await asyncio.to_thread(regular_files.read, plan.expanded, limits.PREPROCESSED)
        macros = await asyncio.to_thread(regular_files.text, self._macros, limits.PREPROCESSED)
        self._defined = frozenset(_DEFINED.findall(macros))
        counted = macros + "#if __COUNTER__\n#endif\n" * count
        await asyncio.to_thread(self._macros.write_text, counted, "utf-8", "surrogateescape")
        rest = await self._expanded(text)
        if await asyncio.to_thread(lambda: _tokens(head) + _tokens(rest) != _tokens(whole)):
            raise FrontEndUnavailableError
        await asyncio.to_thread(Path(plan.expanded).write_bytes, head)
        await self._warm(plan, shim)

    async def messages(self, text: str) -> str | None:
        """Return what cicc says of the device code of `text`, which has the same head. Return None if that is not
        known.
        """
        rest = await self._expanded(text)
        if rest is None or not self._is_fresh():
            return None
        process, output = 0, bytearray()
        try:
            async with asyncio.timeout(_CHECK_S):
                reader, writer = await asyncio.open_unix_connection(self._socket)
                try:
                    process = int((await reader.readline()).split()[1].rstrip(b">"))
                    writer.write(rest)
                    writer.write_eof()
                    while chunk := await reader.read(1 << 16):
                        output += chunk[: max(0, limits.OUTPUT.most - len(output))]
                        if _READ in output and _ERROR.search(output):
                            break  # with errors of its own, a source's templates are not worth the wait
                    else:
                        process = 0
                finally:
                    writer.close()
        except (OSError, TimeoutError, ValueError, IndexError):
            return None
        finally:
            if process:
                with contextlib.suppress(OSError):
                    os.kill(process, signal.SIGKILL)
        if not process and not _ENDED.search(output):
            return None
        output = _ENDED.sub(b"", output).replace(_READ, b"")
        return f"{self._of_head}\n{output.decode(errors='replace')}"

    async def close(self) -> None:
        if process := self._process:
            self._process = None
            await asyncio.shield(process_groups.finish(process))
            self._started(process.pid, False)
        await asyncio.gather(*self._ending, return_exceptions=True)
        await asyncio.to_thread(shutil.rmtree, self.call.work, ignore_errors=True)

    def _of_tail(self, plan: _Plan, source: Path) -> tuple[str, ...]:
        """Return the command that preprocesses the rest of the file, from standard input to standard output."""
        words = list(plan.preprocess[:-2])
        while "-include" in words:
            at = words.index("-include")
            del words[at : at + 2]
        words[words.index(str(source))] = "-"
        return (*words, "-w", "-imacros", str(self._macros))

    def _read_head(self, path: Path) -> tuple[bytes, int]:
        expanded = regular_files.read(path, limits.PREPROCESSED)
        head, _, count = expanded.rstrip().rpartition(b"\n")
        if not count.isdigit() or int(count) > _MOST_COUNTED:
            raise FrontEndUnavailableError
        own = {self.call.path, str(self.call.work / "edited" / "kernel.cu")}
        for name in {os.fsdecode(name) for name in _MARKED_FILE.findall(head)} - own:
            with contextlib.suppress(OSError):
                state = Path(self.call.directory, name).stat()
                self._files[name] = state.st_mtime_ns, state.st_size
        return head + b"\n", int(count)

    def _is_fresh(self) -> bool:
        """Say whether the headers are those that were parsed."""
        try:
            return all(
                (state.st_mtime_ns, state.st_size) == known
                for name, known in self._files.items()
                for state in (os.stat(os.path.join(self.call.directory, name)),)  # noqa: PTH116, PTH118 - a thousand of them
            )
        except OSError:
            return False

    async def _expanded(self, text: str) -> bytes | None:
        """Return the rest of `text` preprocessed. Return None if gcc refuses it, or its macros need more than the
        head's.
        """
        rest = text[len(self._head) :]
        if self._rest and self._rest.edited(rest):
            return self._rest.expanded
        if "pop_macro" in rest:
            return None
        first = self._head.count("\n") + 1
        given = (self.call.line_directive(first) + rest).encode("utf-8", "replace")
        status, out, _ = await self._run(self._preprocess, given)
        if status != 0:
            return None
        self._rest = _Rest(rest, out, first, self._defined)
        return out

    async def _must(self, command: Sequence[str]) -> None:
        if (await self._run(command))[0] != 0:
            raise FrontEndUnavailableError

    async def _run(self, command: Sequence[str], given: bytes = b"") -> tuple[int, bytes, bytes]:
        """Run one of nvcc's programs, and return (status, output, messages)."""
        process = await process_groups.start(
            command,
            cwd=self.call.directory,
            env=self._environment,
            stdin=asyncio.subprocess.PIPE,
            memory=build.compiler_memory(),
        )
        try:
            async with asyncio.timeout(_START_S):
                out, err = await process.communicate(given)
                status = await process.wait()
        finally:
            ending = asyncio.create_task(process_groups.finish(process), name="front end")
            self._ending.add(ending)  # looks through all processes: nobody waits for that
            ending.add_done_callback(self._ending.discard)
        return status, out, err

    async def _warm(self, plan: _Plan, shim: Path) -> None:
        """Start cicc, and wait until it has read the beginning of its input."""
        variables = {"LD_PRELOAD": str(shim), "ORBIT_HEAD": plan.expanded, "ORBIT_SOCKET": self._socket}
        self._process = process = await process_groups.start(
            [plan.parse[0], "--no_code_gen", *plan.parse[1:]],
            cwd=self.call.directory,
            env=self._environment | variables,
            stderr=asyncio.subprocess.STDOUT,
            memory=build.compiler_memory(),
        )
        self._started(process.pid, True)
        assert process.stdout is not None
        with contextlib.suppress(asyncio.LimitOverrunError, asyncio.IncompleteReadError, TimeoutError):
            async with asyncio.timeout(_START_S):
                output = await process.stdout.readuntil(b"\n<ready>\n")
                self._of_head = output.removesuffix(b"\n<ready>\n").decode(errors="replace")
                return
        raise FrontEndUnavailableError


def _tokens(expanded: bytes | None) -> bytes:
    """Return the text without white space and line markers. Markers around a system header's macro are lost in the
    rest.
    """
    lines = (line for line in (expanded or b"").splitlines() if not _MARKER.fullmatch(line))
    return b"".join(lines).translate(None, b" \t\f\v\r")


class FrontEnds:
    """The front ends that wait, for the files that were checked last."""

    def __init__(self, cache: Path, folder: Path) -> None:
        """Make the front ends. `cache` is the folder for the library that is loaded into cicc, which is compiled
        once. `folder` is for temporary files.
        """
        self._cache = cache
        self._folder = folder
        self._waiting: dict[_Key, asyncio.Task[FrontEnd | None]] = {}
        self._ends: dict[_Key, asyncio.TimerHandle] = {}
        self._ending: set[asyncio.Task[None]] = set()

    async def check(
        self, job: Job, architecture: str, started: process_groups.Started, *, start: bool
    ) -> Built:
        """Return what cicc says of a file. It is not `complete` if that is not known. Only with `start` a front end
        is started, and waited for.
        """
        unknown = Built(job.run, complete=False)
        compiler = await asyncio.to_thread(nvcc.find, job.nvcc) if start else None
        job = replace(job, text=job.text.removeprefix("\ufeff"))
        head, _ = divided(job.text)
        state = tuple(client_environment.current().get(name) for name in build.STATE)
        key = (job.path, job.directory, job.flags, job.nvcc, architecture, head, state)
        if start and key not in self._waiting and isinstance(compiler, nvcc.Nvcc):
            starting = _started(job, compiler, architecture, self._cache, self._folder, started)
            self._waiting[key] = asyncio.create_task(starting, name="front end")
        task = self._waiting.get(key)
        if task is None or not (start or task.done()):
            return unknown
        self._use(key)
        front_end = await asyncio.shield(task)
        messages = await front_end.messages(job.text) if front_end else None
        if front_end is None or messages is None:
            if start and front_end:  # its headers have changed, or it has ended
                self._end(key)
            return unknown
        context = front_end.call.of(job).context()
        return Built(job.run, _certain(await asyncio.to_thread(diagnostics.parse, messages, context)))

    async def close(self) -> None:
        for key in list(self._waiting):
            self._end(key)
        await asyncio.gather(*self._ending, return_exceptions=True)

    def _use(self, key: _Key) -> None:
        self._waiting[key] = self._waiting.pop(key)
        if timer := self._ends.pop(key, None):
            timer.cancel()
        self._ends[key] = asyncio.get_running_loop().call_later(_IDLE_S, self._end, key)
        for old in list(self._waiting)[: -limits.FRONT_ENDS.most]:
            self._end(old)

    def _end(self, key: _Key) -> None:
        if timer := self._ends.pop(key, None):
            timer.cancel()
        if waiting := self._waiting.pop(key, None):
            task = asyncio.create_task(_ended(waiting), name="front end")
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)


async def _started(
    job: Job, compiler: Nvcc, architecture: str, cache: Path, folder: Path, started: process_groups.Started
) -> FrontEnd | None:
    """Start a front end. Return None if this file cannot be checked in this way."""
    await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=folder))
    front_end: FrontEnd | None = None
    try:
        front_end = FrontEnd(NvccCall(job, compiler, architecture, work, work), started)
        await front_end.start(await asyncio.to_thread(_shim, cache))
    except (FrontEndUnavailableError, OSError, TimeoutError, ValueError):
        log.info("errors in %s are shown by nvcc alone", job.path)
    except asyncio.CancelledError:
        await (front_end.close() if front_end else asyncio.sleep(0))
        raise
    else:
        return front_end
    await (front_end.close() if front_end else asyncio.to_thread(shutil.rmtree, work, ignore_errors=True))
    return None


def _certain(problems: Sequence[Problem]) -> tuple[Problem, ...]:
    """Return the problems up to the first error that is not an undefined name. Where cicc goes on behind it depends
    on line markers, and nvcc's text has more of them around macros of system headers.
    """
    for at, problem in enumerate(problems, 1):
        if problem.severity == "error" and not problem.message.endswith(" is undefined"):
            return tuple(problems[:at])
    return tuple(problems)


async def _ended(waiting: asyncio.Task[FrontEnd | None]) -> None:
    waiting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        if front_end := await waiting:
            await front_end.close()


def _shim(cache: Path) -> Path:
    """Return the library that is loaded into cicc. It is compiled unless `cache` has it. Raises
    FrontEndUnavailableError and OSError.
    """
    text = regular_files.read(_SOURCE, limits.SOURCE)
    target = cache / f"warm_cicc-{hashlib.sha256(text).hexdigest()[:20]}.so"
    if not target.is_file():
        compiler = client_environment.which("g++")
        cache.mkdir(parents=True, exist_ok=True)
        # a name of our own and then a rename: another process may build or load the same at this moment
        with tempfile.TemporaryDirectory(dir=cache) as name:
            made = Path(name, "made.so")
            command = [compiler or "g++", *_FLAGS, "-o", str(made), str(_SOURCE), "-ldl"]
            try:
                done = tool_output.ask(command, timeout_s=_START_S)
            except subprocess.TimeoutExpired:
                raise FrontEndUnavailableError from None
            if done.status != 0:
                raise FrontEndUnavailableError
            made.replace(target)
    return target
