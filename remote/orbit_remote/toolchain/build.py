"""One nvcc call: from a job to an executable or a cubin, its problems and what its kernels use."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import os
import re
import shlex
import shutil
import tempfile
import time
import zlib
from collections.abc import Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from orbit_remote.common import architectures, codec, limits, plain_text, regular_files
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.messages import Built, Failure, Problem, Resources, content_hash
from orbit_remote.common.nvcc_flags import allowed_flags, is_shell_active
from orbit_remote.common.requests import Job
from orbit_remote.process import client_environment, disk_space, process_groups
from orbit_remote.process.process_groups import Started
from orbit_remote.toolchain import diagnostics, host_diagnostics, kept_files, nvcc, ptx, ptxas
from orbit_remote.toolchain.build_cache import Cache, CachedBuild
from orbit_remote.toolchain.nvcc import Nvcc

_CACHE_FORMAT = 1
_SOURCES = (".cu", ".c", ".cc", ".cpp", ".cxx")
"""Names among the flags that are further sources."""
_MOST_PTX = 8 << 20  # characters of it that are kept with a build
STATE = (  # environment variables that change what nvcc and the host compiler do
    "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_CCBIN", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH",
    "INCLUDE", "LIBRARY_PATH", "LIB", "PATH",
)  # fmt: skip
# no ^: 5 times faster
_LINE_MARKER = re.compile(rb'\n#(?:line)? \d+ "((?:[^"\\\n]|\\.)[^"\\\n]*(?:\\.[^"\\\n]*)*)"')
_SAFE_FOLDER = re.compile(r"[\w./+@%=:-]+", re.ASCII)
_DIED = re.compile(
    r"'(?P<program>[\w+.-]+)' died due to signal (?P<signal>\d+)|"
    r"(?P<name>Killed|Segmentation fault|Aborted|Terminated) signal terminated program (?P<victim>[\w+.-]+)"
)
_SIGNALS = {"Killed": 9, "Segmentation fault": 11, "Aborted": 6, "Terminated": 15}
_UNSAID = re.compile(r"^nvcc fatal\s+: (?:Failed to preprocess|Could not open output file)", re.MULTILINE)
"""What nvcc says where it cannot write its temporary files, without saying why."""
_OPAQUE_FLAG = re.compile(
    r"@.*|-optf|--options-file.*|-L.*|--library-path.*|[^-].*\.(?:o|a|so|obj|lib|cu|cpp|cc|cxx|c)"
)


@dataclass(frozen=True, slots=True)
class BuildResult:
    """What a build left: `executable` for a run, `cubin` for a compile. It left neither if `failure` says why."""

    built: Built
    executable: Path | None = None
    cubin: Path | None = None
    failure: Failure | None = None
    toolchain: dict[str, str] = field(default_factory=dict[str, str])
    remarks: tuple[str, ...] = ()
    ptx: str = ""
    """What was assembled, where it is one text and none of several MiB."""
    kept: str = ""
    """The files of a build that is to keep them, packed (`kept_files`)."""
    job: Job | None = None
    """The job with what is known of its program only now: arguments, folder and variables of the project's own test."""


async def build(
    job: Job,
    *,
    architecture: str,
    started: Started,
    cache: Cache,
    scratch: Path,
    intermediates: Path | None = None,
) -> BuildResult:
    """Compile `job.text` as if it were the file at `job.path`, or take the result from the cache.

    `scratch` receives the executable or cubin. The compiler's temporary files lie in a folder under `intermediates`
    (else `scratch`) while the build runs. Raises CancelledError, with the compiler gone, when cancelled; any other
    failure is in the result.
    """
    begin = time.monotonic()
    compiler = await asyncio.to_thread(nvcc.find, job.nvcc)
    if not isinstance(compiler, Failure) and architectures.asked_for(job.flags):
        await asyncio.to_thread(nvcc.numbers, compiler)  # kept: NvccCall need not wait for it
    if isinstance(compiler, Failure):
        return BuildResult(Built(job.run, complete=False), failure=compiler)
    try:
        work = Path(tempfile.mkdtemp(prefix="build-", dir=intermediates or scratch))
    except OSError as error:
        return BuildResult(
            Built(job.run, complete=False), failure=_no_room(error), toolchain=compiler.toolchain
        )
    try:
        own = NvccCall(job, compiler, architecture, work, scratch)
        result = await own.result(cache, started)
    except OSError as error:
        result = BuildResult(Built(job.run, complete=False), failure=_no_room(error))
    finally:
        await asyncio.shield(asyncio.to_thread(shutil.rmtree, work, ignore_errors=True))
    built = replace(result.built, seconds=time.monotonic() - begin)
    return replace(result, built=built, toolchain=compiler.toolchain)


class NvccCall:
    """How nvcc is called for a job: its command, folders and environment, and how its output is read."""

    def __init__(self, job: Job, compiler: Nvcc, architecture: str, work: Path, scratch: Path) -> None:
        self.job = job
        self.compiler = compiler
        self.architecture = architecture
        self.work = work
        self.link = work / "beside"  # another name of the file's folder, where its own cannot be passed
        self.flags, self.remarks = allowed_flags(job.flags, trusted=True)
        self.path = str(Path(job.path).absolute())
        self.folder = str(Path(self.path).parent)
        wanted = Path(job.directory or self.folder)
        self.directory = str(wanted if wanted.is_dir() else work)
        targets = architectures.asked_for(self.flags)
        if targets and (known := nvcc.numbers(compiler)):
            self.flags, absent = architectures.known_targets(self.flags, known)
            targets = architectures.asked_for(self.flags)
            if absent:
                made = ", ".join(targets) or architecture
                remark = f"nvcc {compiler.version} has no code for {', '.join(absent)}, which the flags name: compiled for {made}"
                self.remarks = (*self.remarks, remark)
        self.target = () if targets else architectures.gencode(architecture)
        self.many = len(targets) > 1 or targets in (("all",), ("all-major",))
        roots = {compiler.root, os.path.realpath(compiler.root)} - {"/usr"}
        self.toolchain_folders = tuple(r + os.sep for r in (*roots, "/usr/include", "/usr/lib/gcc"))
        self.running = job.action != "compile"
        self._remedy = ""
        """What to do about what the linker did not find."""
        stem = re.sub(r"[^\w.+-]", "_", Path(self.path).stem, flags=re.ASCII) or "kernel"
        self.output = scratch / (
            f"{stem}.exe" if self.running else f"{stem}.fatbin" if self.many else f"{stem}.cubin"
        )

    def of(self, job: Job) -> NvccCall:
        """Return the same call for another text."""
        return NvccCall(job, self.compiler, self.architecture, self.work, self.work)

    async def result(self, cache: Cache, started: Started) -> BuildResult:
        if failure := self.refusal():
            return BuildResult(Built(self.job.run, complete=False), failure=failure)
        opaque = self.job.keep or any(_OPAQUE_FLAG.fullmatch(flag) for flag in self.flags)
        key = None if opaque else self._key()
        if key and (entry := await asyncio.to_thread(cache.load, key)):
            with contextlib.suppress(LookupError, TypeError, ValueError):  # written by another version
                return await asyncio.to_thread(self._from_cache, entry)
        made = await self._compile(started)
        if made.failure or key is None:
            return made
        try:
            await asyncio.to_thread(self._store, cache, key, made)
        except OSError as error:
            reason = error.strerror or str(error)
            return replace(
                made, remarks=(*made.remarks, f"the build could not be kept for the next time: {reason}")
            )
        return made

    def refusal(self) -> Failure | None:
        for name in (self.path, self.directory, str(self.work), self.compiler.path):
            if is_shell_active(name) or '"' in name:  # nvcc escapes quotes in flags, not in names
                return Failure(
                    "infrastructure",
                    f"{name}: nvcc hands this name to a shell, which would execute a part of it",
                    'rename it: $, `, \\, " and line ends cannot be in the path of a CUDA file',
                )
        return None

    # -- compiling ----------------------------------------------------------------------------------

    async def _compile(self, started: Started) -> BuildResult:
        source, staged = await asyncio.to_thread(self._source)
        limit = self.job.build_timeout_s
        command = self.command(source, staged=staged)
        try:
            status, out, err = await self._call(command, started)
            if status and (linked := await self._linked(f"{out}\n{err}", started)):
                status, out, err = (
                    0,
                    host_diagnostics.without_linker(out),
                    host_diagnostics.without_linker(err),
                )
                self.remarks = (*self.remarks, linked)
        except TimeoutError:
            failure = Failure(
                "timed out",
                f"compiling {Path(self.path).name} took longer than the limit of {limit:g} s",
                "raise the setting `orbit.build_timeout_s` (option --build-timeout)",
            )
            return BuildResult(Built(self.job.run, complete=False), failure=failure)
        made = await asyncio.to_thread(self._read, status, f"{out}\n{err}", source if staged else None)
        if not self.job.keep:
            return made
        texts = {
            "command.txt": f"cd {shlex.quote(self.directory)}\n{shlex.join(command)}\n",
            "compiler.log": f"{out}\n{err}".strip() + "\n",
        }
        kept = await asyncio.to_thread(kept_files.packed, texts, kept_files.of_nvcc(self.work, self.output))
        return replace(made, kept=kept.archive, remarks=(*made.remarks, *kept.remarks))

    async def _call(self, command: Sequence[str], started: Started) -> tuple[int, str, str]:
        """Raises TimeoutError."""
        return await process_groups.communicate(
            command,
            timeout_s=self.job.build_timeout_s,
            cwd=Path(self.directory),
            env=self.environment(),
            started=started,
            memory=compiler_memory(),
        )

    async def _linked(self, output: str, started: Started) -> str:
        """Link again with the libraries of CUDA whose functions the linker did not find. Return what to say of it, ""
        if that was not the fault, or did not help. The author of a file that is compiled by hand remembers its
        `-lcublas`. Raises TimeoutError.
        """
        missing = host_diagnostics.missing_libraries(output) if self.running else ()
        compiled = [str(path) for path in self.work.glob("*.o") if not path.stem.endswith("_dlink")]
        flags = [flag for flag in self.flags if not flag.endswith(_SOURCES)]
        if not missing or len(compiled) != 1 + len(self.flags) - len(flags):
            return ""
        words = [word for flag in missing for word in self._library(flag)]
        command = [self.compiler.path, *self.target, *flags, "-o", str(self.output), *compiled, *words]
        status, _, _ = await self._call(command, started)
        if status:
            self._remedy = f"it calls functions of {shlex.join(missing)}: install that library, or name its folder with -L in `orbit: flags`"
        return "" if status else f"linked with {shlex.join(missing)}, whose functions it calls"

    def _library(self, flag: str) -> list[str]:
        """Return the flags for a library. The packages of PyPI have no `libcublas.so`, which `-lcublas` looks for,
        but only the `libcublas.so.13` that programs load.
        """
        folder = Path(self.compiler.root, "lib")
        name = f"lib{flag.removeprefix('-l')}.so"
        versions = (
            sorted(folder.glob(f"{name}.*")) if flag.startswith("-l") and not (folder / name).exists() else []
        )
        return (
            [f"-L{folder}", f"-l:{versions[-1].name}", "-Xlinker", f"-rpath={folder}"] if versions else [flag]
        )

    def _source(self) -> tuple[str, bool]:
        """Return the file to compile, and whether it is a copy of the editor's text."""
        try:
            saved: str | None = regular_files.read(self.path, limits.SOURCE).decode("utf-8-sig")
        except (OSError, ValueError):
            saved = None
        text = self.job.text.removeprefix("\ufeff")
        if saved == text:
            return self.path, False
        name = Path(self.path).name
        copy = self.work / "edited" / (name if re.fullmatch(r"[\w.+-]+", name, re.ASCII) else "kernel.cu")
        copy.parent.mkdir()
        copy.write_bytes(f"{self.line_directive(1)}{text}".encode("utf-8", "replace"))
        return str(copy), True

    def line_directive(self, line: int) -> str:
        """Return the directive that makes the text after it that of the author's file, from `line` on."""
        shown = self.path.replace("\\", "\\\\").replace('"', '\\"')
        return f'#line {line} "{shown}"\n'

    def command(self, source: str, *, staged: bool) -> list[str]:
        command = [self.compiler.path]
        if self.running:
            command += [] if any(re.fullmatch(r"-O.*|--optimize.*|-G|-g", f) for f in self.flags) else ["-O3"]
        else:
            command.append("-fatbin" if self.many else "-cubin")
        if not {"-G", "--device-debug"} & set(self.flags):
            command.append("-lineinfo")
        if self.running and not any(re.match(r"-t\b|--threads\b", flag) for flag in self.flags):
            # host and device passes side by side: 1.35 s instead of 1.60 s on 16 cores, no loss on two
            command += ["-t", str(min(4, os.cpu_count() or 1))]
        command += ["-Xptxas", "-v", *self.target, "--keep", "--keep-dir", str(self.work)]
        if staged:
            command += self._beside()
        libraries = Path(self.compiler.root, "lib")
        if self.running and (libraries / "libcudart_static.a").is_file():
            command += ["-L", str(libraries)]  # the PyPI wheels have no lib64, where nvcc looks
        return [*command, *self.flags, "-x", "cu", "-o", str(self.output), source]

    def _beside(self) -> list[str]:
        """Return flags by which a copy finds the headers beside the original first, as `#include "…"` does."""
        if os.name == "posix":
            for folder in (self.folder, str(self.link)):
                if _SAFE_FOLDER.fullmatch(folder):  # -Xcompiler reaches the shell unquoted
                    if folder != self.folder:
                        self.link.symlink_to(self.folder)
                    return ["-Xcompiler", "-iquote", "-Xcompiler", folder]
        return ["-I", self.folder]  # MSVC has no -iquote; the price is that <name> looks here too

    def environment(self) -> dict[str, str]:
        """Return the environment of the tools. Their temporary files lie in a folder that is removed, and their
        messages are in English.
        """
        environment = {
            k: v for k, v in client_environment.current().items() if k not in ("LC_ALL", "LANGUAGE")
        }
        return environment | {
            "TMPDIR": str(self.work), "TMP": str(self.work), "TEMP": str(self.work),
            "LC_MESSAGES": "C", "LC_CTYPE": "C.UTF-8",
        }  # fmt: skip

    # -- reading the result -------------------------------------------------------------------------

    def _read(self, status: int, output: str, staged: str | None) -> BuildResult:
        output = plain_text.plain(output)
        texts = [regular_files.text(p, limits.PTX) for p in sorted(self.work.glob("*.ptx"))]
        modules = tuple(map(ptx.read, texts))
        context = self.context(staged, modules)
        files = {self.job.path: content_hash(self.job.text.encode("utf-8", "replace"))} | self._headers(
            context
        )
        name = Path(self.path).name
        failure = (
            _out_of_memory(status, output, name)
            or _too_large(status, output, name)
            or _outage(status, output, name)
            or self._no_space(status, output)
        )
        problems = () if failure else diagnostics.parse(output, context, failed=status != 0)
        if not failure and status != 0:
            problems, failure = self._refused(problems)
        elif not failure and not (self.output.is_file() and self.output.stat().st_size):
            failure = Failure(
                "infrastructure",
                f"{self.compiler.path} ended with status 0 and wrote no {self.output.name}",
                "remove a flag that keeps nvcc from compiling, as --dryrun, or reinstall the CUDA toolkit",
            )
        used = ptxas.resources(output, modules, lambda p, n: context.named(context.place(p.file, p.line), n))
        complete = failure is None or failure.category == "compile error"
        built = Built(self.job.run, problems, used, files, complete=complete)
        if failure:
            return BuildResult(built, failure=failure, remarks=self.remarks)
        return self._made(built, texts[0] if len(texts) == 1 and len(texts[0]) <= _MOST_PTX else "")

    def context(
        self, staged: str | None = None, modules: tuple[ptx.Ptx, ...] = ()
    ) -> diagnostics.DiagnosticContext:
        """Return what a reader of the compiler's output must know. `staged` is the copy that was compiled, if there
        was one.
        """
        return diagnostics.DiagnosticContext(
            self.job.path,
            self._text_of,
            self.directory,
            {self.path: self.job.path} | ({staged: self.job.path} if staged else {}),
            str(self.work),
            {f"{self.link}{os.sep}": f"{self.folder}{os.sep}"},
            modules,
        )

    def _no_space(self, status: int, output: str) -> Failure | None:
        """Return the failure that the compilers could not write. Their last words are about something else."""
        match = disk_space.SAID.search(output)
        if status == 0 or not (match or _UNSAID.search(output)):
            return None
        folders = (self.work.parent, self.output.parent)
        folder = next(
            (folder for folder in folders if disk_space.full(folder)), folders[0] if match else None
        )
        if folder is None:
            return None
        name = Path(self.path).name
        message = f"there is no space left in {folder}, so {name} could not be compiled"
        return Failure("infrastructure", message, "free some space there and try again")

    def _made(self, built: Built, text: str) -> BuildResult:
        if self.running:
            return BuildResult(built, executable=self.output, remarks=self.remarks, ptx=text)
        return BuildResult(built, cubin=self.output, remarks=self.remarks, ptx=text)

    def _text_of(self, file: str) -> str | None:
        if file == self.job.path:
            return self.job.text
        try:
            return regular_files.head(file, limits.QUOTED).decode("utf-8", "replace")
        except (OSError, ValueError):
            return None

    def _headers(self, context: diagnostics.DiagnosticContext) -> dict[str, str]:
        """Return every file that the preprocessor read, except the toolchain's own, by content.

        The line markers of the kept preprocessor output name them; `-MD` would cost another preprocessor run.
        """
        names: set[bytes] = set()
        for expanded in self.work.glob("*.ii"):
            names |= set(_LINE_MARKER.findall(regular_files.read(expanded, limits.PREPROCESSED)))
        digests: dict[str, str] = {}
        for name in names:
            text = re.sub(r"\\(.)", r"\1", name.decode("utf-8", "surrogateescape"))
            path = context.file(text)
            if text.startswith("<") or path == self.job.path or self._is_toolchain(path):
                continue
            if digest := regular_files.file_hash(path):
                digests[path] = digest
        return digests

    def _is_toolchain(self, path: str) -> bool:
        return path.startswith(self.toolchain_folders)

    def _refused(self, problems: tuple[Problem, ...]) -> tuple[tuple[Problem, ...], Failure]:
        name = Path(self.path).name
        no_main = [p for p in problems if p.tool == "ld" and re.search(r"undefined .*\bmain\b", p.message)]
        rest = tuple(p for p in problems if p not in no_main)
        errors = [p for p in rest if p.severity == "error"]
        if no_main and not errors:
            return rest, Failure(
                "compile error",
                f"{name} has no main, so there is nothing to run",
                "add a main that launches the kernel",
            )
        first = errors[0]
        where = f"{Path(first.place.file).name}:{first.place.line}: " if first.place else ""
        count = "1 error" if len(errors) == 1 else f"{len(errors)} errors"
        summary = first.message.partition("\n")[0]
        message = f"{name} does not compile ({count}): {where}{summary}"
        return rest, Failure("compile error", message, self._remedy, place=first.place, symbol=first.symbol)

    # -- the cache ----------------------------------------------------------------------------------

    def _key(self) -> str:
        """Return everything that decides the result and is known before compiling."""
        parts: list[Any] = [
            _CACHE_FORMAT, "run" if self.running else "compile", self.job.path, self.directory, content_hash(self.job.text.encode("utf-8", "replace")),
            self.flags, self.target, self.compiler.path, self.compiler.version, self.compiler.host_compiler,
            self.compiler.host_version, [client_environment.current().get(name) for name in STATE],
        ]  # fmt: skip
        return content_hash(repr(parts).encode("utf-8", "surrogateescape"))

    def _store(self, cache: Cache, key: str, made: BuildResult) -> None:
        record = {
            "problems": [dataclasses.asdict(p) for p in made.built.problems],
            "resources": [dataclasses.asdict(r) for r in made.built.resources],
            "ptx": base64.b64encode(zlib.compress(made.ptx.encode("utf-8", "replace"), 1)).decode("ascii"),
        }
        headers = {p: h for p, h in made.built.files.items() if p != self.job.path}
        cache.store(key, CachedBuild(record, regular_files.read(self.output, limits.BUILD), headers))

    def _from_cache(self, entry: CachedBuild) -> BuildResult:
        self.output.write_bytes(entry.artifact)
        if self.running:
            self.output.chmod(0o755)
        built = Built(
            self.job.run,
            tuple(codec.build(Problem, p) for p in entry.record["problems"]),
            tuple(codec.build(Resources, r) for r in entry.record["resources"]),
            {self.job.path: content_hash(self.job.text.encode("utf-8", "replace"))} | entry.files,
            cached=True,
        )
        packed = entry.record.get("ptx", "")  # entries of older versions have none
        return self._made(
            built, codec.inflate(base64.b64decode(packed), limits.PTX).decode("utf-8") if packed else ""
        )


_OUT_OF_MEMORY = re.compile(
    r"out of memory allocating|virtual memory exhausted|std::bad_alloc|[Cc]annot allocate memory|Memory allocation failure"
)


_TOO_LARGE = re.compile(r"File size limit exceeded|died due to signal 25\b|File too large")
"""SIGXFSZ, or the error in its place."""


def compiler_memory() -> int:
    """Return the bytes that each process of a compiler may have."""
    most = limits.COMPILER_MEMORY.most
    if hasattr(os, "sysconf"):
        most = min(most, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2)
    return most


def _out_of_memory(status: int, output: str, name: str) -> Failure | None:
    if status == 0 or not _OUT_OF_MEMORY.search(output):
        return None
    size = f"{compiler_memory() / (1 << 30):.3g} GiB"
    text = f"compiling {name} needed more than {size} of memory, the limit for a compiler"
    return Failure("infrastructure", text, "include less, or split the file")


def _too_large(status: int, output: str, name: str) -> Failure | None:
    if status == 0 or not _TOO_LARGE.search(output):
        return None
    text = f"compiling {name} wrote a file larger than {limits.COMPILER_FILE.size}, the limit for a compiler"
    return Failure("infrastructure", text, "include less, or split the file")


def _outage(status: int, output: str, name: str) -> Failure | None:
    """Return a failure that is not the author's fault: a compiler was killed or crashed."""
    died = _DIED.search(output)
    shell = 128 < status < 160  # nvcc starts its parts through a shell, which adds 128 to their signal
    if status < 0 or died or shell:
        program = (died["program"] or died["victim"]) if died else ("a part of nvcc" if shell else "nvcc")
        number = (
            int(died["signal"] or _SIGNALS[died["name"]]) if died else (status - 128 if shell else -status)
        )
        killed = number in (9, 15)
        return Failure(
            "infrastructure",
            f"{program} {'was killed' if killed else 'crashed'} (signal {number}) while it compiled {name}",
            "free some memory and try again"
            if killed
            else "a bug of the compiler: try another nvcc, or change the code",
            retryable=killed,
        )
    return None


def _no_room(error: OSError) -> Failure:
    reason = error.strerror or str(error)
    where = f" ({error.filename})" if error.filename else ""
    return Failure(
        "infrastructure",
        f"the build could not write or start a file: {reason}{where}",
        "free some space and try again",
    )
