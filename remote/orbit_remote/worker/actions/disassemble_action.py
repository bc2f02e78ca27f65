"""Returns PTX and SASS of kernels that were compiled and not run: of a build, or of a file of compiled code."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import sys
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from orbit_remote.common import messages as c
from orbit_remote.common import symbols
from orbit_remote.common.requests import Job, Level
from orbit_remote.process import process_groups
from orbit_remote.toolchain import build, disassembly, dumps, elf, nvcc
from orbit_remote.toolchain.build_cache import Cache, CachedBuild
from orbit_remote.toolchain.dumps import DumpedInstance
from orbit_remote.toolchain.elf import Cubin
from orbit_remote.worker.actions import builds
from orbit_remote.worker.context import WorkerContext

_MOST_KERNELS = 64
_CACHE_FORMAT = "sass 2"


async def of_build(job: Job, built: build.BuildResult, context: WorkerContext) -> c.Finished:
    """Return a compilation's end with what `job.levels` asks for, of `job.kernel` or else of all kernels."""
    finished = builds.finished(job, built)
    kernels = [
        resource
        for resource in built.built.resources
        if job.kernel in (None, symbols.base_name(symbols.short_name(resource.symbol)))
    ]
    if (built.cubin is None or built.cubin.suffix != ".cubin") and job.keep:
        return finished  # its files are there, of every architecture
    if built.cubin is None or built.cubin.suffix != ".cubin":
        text = "the compiler flags name several architectures, and a listing is of one"
        return c.failed(job.run, c.Failure("compile error", text, "remove all but one of them"))
    sass: dict[str, str] | c.Failure = {}
    if "sass" in job.levels:
        code = await asyncio.to_thread(built.cubin.read_bytes)
        sass = await _listings(job, context, built.cubin, code, [kernel.symbol for kernel in kernels])
        if isinstance(sass, c.Failure) and job.keep:
            finished = replace(finished, remarks=(*finished.remarks, f"no SASS: {sass.message}"))
            sass = {}
        elif isinstance(sass, c.Failure):
            return c.failed(job.run, sass, resources=finished.resources, toolchain=finished.toolchain)
    made: list[DumpedInstance] = []
    for resources in kernels:
        texts: dict[Level, bytes] = {}
        if "ptx" in job.levels and (ptx := disassembly.ptx_of(built.ptx, resources.symbol)):
            texts["ptx"] = ptx.encode("utf-8", "replace")
        if listing := sass.get(resources.symbol):
            texts["sass"] = listing.encode("utf-8", "replace")
        made.append(DumpedInstance(resources.symbol, resources.name, {}, texts))
    return _with(finished, made)


async def of_file(job: Job, context: WorkerContext) -> c.Finished:
    """Return the SASS of every kernel in the cubins that a file holds."""
    name = Path(job.path).name
    try:
        content = base64.b64decode(job.text, validate=True)
    except (binascii.Error, ValueError):
        return c.failed(
            job.run, c.Failure("infrastructure", f"{name} came damaged", "try again", retryable=True)
        )
    images = list(elf.images(content))
    if not images:
        remedy = "extract its cubins with `cuobjdump -xelf all FILE`, and pass one of them"
        return c.failed(
            job.run, c.Failure("compile error", f"{name} holds no cubin that can be read", remedy)
        )
    made: list[DumpedInstance] = []
    async with context.scratch() as scratch:
        for number, code in enumerate(images):
            path = scratch / f"{number}.cubin"
            path.write_bytes(code)
            listings = await _listings(job, context, path, code, None)
            if isinstance(listings, c.Failure):
                return c.failed(job.run, replace(listings, message=listings.message.replace(path.name, name)))
            kernels = set(Cubin(code).functions())
            made += [
                DumpedInstance(
                    symbol, symbols.demangle(symbol), {}, {"sass": text.encode("utf-8", "replace")}
                )
                for symbol, text in listings.items()
                if symbol in kernels
            ]
    return _with(
        c.ok(job.run),
        [
            code_made
            for code_made in made
            if job.kernel in (None, code_made.symbol, symbols.base_name(code_made.name))
        ],
    )


def _with(finished: c.Finished, made: Sequence[DumpedInstance]) -> c.Finished:
    remarks: list[str] = list(finished.remarks)
    if len(made) > _MOST_KERNELS:
        remarks.append(f"{_MOST_KERNELS} of {len(made)} kernels are listed; name one of them with --kernel")
    packed = dumps.packed(made[:_MOST_KERNELS], remarks)
    return replace(finished, dumps=packed, remarks=tuple(remarks))


async def _listings(
    job: Job, context: WorkerContext, path: Path, code: bytes, wanted: Collection[str] | None
) -> dict[str, str] | c.Failure:
    """Return listings by mangled name. They come from the cache if the same code was listed before."""
    compiler = await asyncio.to_thread(nvcc.find, job.nvcc)
    root = None if isinstance(compiler, c.Failure) else compiler.root
    tool = disassembly.find(root, (None, sys.executable, context.author_python))
    if isinstance(tool, c.Failure):
        return tool
    key = await asyncio.to_thread(_key, tool, code, wanted)
    if (kept := await asyncio.to_thread(context.cache.load, key)) is not None:
        return {str(name): str(text) for name, text in kept.record.items()}
    try:
        status, output, errors = await process_groups.communicate(
            disassembly.command(tool, path),
            timeout_s=disassembly.LIMIT_S,
            env=context.environment(),
            started=context.groups(job),
            limit=disassembly.MOST_OUTPUT,
        )
    except TimeoutError:
        text = f"nvdisasm took longer than {disassembly.LIMIT_S:g} s and was ended"
        return c.Failure("timed out", text, "disassemble a smaller file")
    if status != 0:
        return disassembly.refused(status, errors or output, path.name)
    try:
        texts = await asyncio.to_thread(disassembly.listings, code, output, wanted)
    except ValueError as error:
        return disassembly.refused(status, str(error), path.name)
    await asyncio.to_thread(_keep, context.cache, key, texts)
    return texts


def _key(tool: str, code: bytes, wanted: Collection[str] | None) -> str:
    parts = [_CACHE_FORMAT, tool, Path(tool).stat().st_mtime_ns, None if wanted is None else sorted(wanted)]
    return c.content_hash(json.dumps(parts).encode() + code)


def _keep(cache: Cache, key: str, texts: dict[str, str]) -> None:
    try:
        cache.store(key, CachedBuild(texts, b"", {}))
    except OSError:  # it is made again the next time
        return
