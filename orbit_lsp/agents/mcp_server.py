"""The engine as tools for coding agents, over the Model Context Protocol: `orbit-lsp mcp`, and /mcp of `orbit-lsp
api`.

Each answer has structured content for programs and a short text for a model. The command line that started the server
sets the limit of spending: no tool changes it.
"""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import contextmanager, suppress
from typing import Annotated, Any, Literal, TextIO, TypeVar, cast, get_args, get_origin, get_type_hints

import anyio
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ResourceError, ToolError
from mcp.server.stdio import stdio_server
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types import CallToolResult, TextContent
from pydantic import Field
from starlette.applications import Starlette

from orbit_lsp import __version__
from orbit_lsp.agents import mcp_answers, message_lines
from orbit_lsp.agents.mcp_answers import JobAnswer
from orbit_lsp.queue import compiled_code, result_text
from orbit_lsp.queue import request as requests
from orbit_lsp.queue.job_queue import JobQueue
from orbit_lsp.queue.job_store import Result, StoredJob, StoreError
from orbit_lsp.queue.request import Request, RequestRefusedError
from orbit_lsp.state import units
from orbit_remote.common import limits, regular_files
from orbit_remote.common import requests as worker_requests
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.plain_text import visible

_LINES = 70
_CODE_LINES = 150
"""Of what a compiler made: a kernel of a screen has some 40 instructions."""
_WAIT_S = 50.0
"""Less than the minute after which many clients give a call up."""
_MOST_WAIT_S = 600.0
_IDLE_S = 600.0
"""As `limits.AGENT_SESSIONS` says. A session has some 40 KB, and many a client never ends its own."""

INSTRUCTIONS = """\
Run, profile, check and compare CUDA and Triton kernels on real GPUs. {sources} A kernel \
without host code runs by the launch spec in the comments above it: `// orbit: n = 1 << 20; x = randn(n); y = empty(n)` and \
`// orbit: launch k<<<(n + 255) / 256, 256>>>(n, x, y)` and `// orbit: expect y == x`. Times are device times of the GPU's own \
records, never printed ones; a number that is not known is absent. A call waits at most wait_s seconds; then it returns the job's \
id, and `job` waits on. Cancelling a call ends the work."""

_BY_PATH = "Give `file` (a path) or `text` with `name`."
_BY_TEXT = "Give `text` with `name`: this server reads none of its own files for a client."

# the SDK makes its schemas from classes without slots


@dataclass(frozen=True)
class PoolPlace:
    """One GPU of the pool; `gpu` is empty where its name is not known yet, `job` where it is free. `aside` is why it takes no
    job; empty where it does. `absent` is why there is no GPU: only compiling works then.
    """

    name: str
    gpu: str
    job: str
    aside: str = ""
    absent: str = ""

    @property
    def state(self) -> str:
        if self.aside:
            return f"set aside: {self.aside}"
        return f"runs job {self.job}" if self.job else self.absent or "free"


@dataclass(frozen=True)
class PoolAnswer:
    places: tuple[PoolPlace, ...]
    waiting: int
    budget_usd: float
    """What rented GPUs may cost in this calendar month; only who started the server can change it."""


Answer = Annotated[CallToolResult, JobAnswer]
_Tool = TypeVar("_Tool", bound=Callable[..., Coroutine[Any, Any, Any]])


def _one_of(words: Sequence[str]) -> Any:
    """Return the field of a word that the queue checks, with one sentence. The SDK's own complaint would be four
    lines.
    """
    return Field(json_schema_extra={"enum": list(words)})


Check = Annotated[str, _one_of(requests.CHECKS)]
Level = Annotated[str, _one_of(get_args(worker_requests.Level))]
_NAMES = {"path": "file", "against": "other_file", "against_text": "other_text"}
"""A field of a request -> the name that agents give it: a file is named by its path alone."""
_NOT_BY_AGENTS = {"files", "version"}
_SOURCE = "file text name kernel gpu"


def _parameter(field: dataclasses.Field[Any], hint: Any) -> inspect.Parameter:
    """Return the parameter of a tool for a field of a request: a list for a tuple, a word for one of several."""
    several, default = get_origin(hint) is tuple, field.default
    kind = get_args(hint)[0] if several else hint
    words = get_args(kind) if get_origin(kind) is Literal else field.metadata.get("words", ())
    if words:
        kind = Annotated[str, _one_of(words)]
    if several:
        kind, default = list[kind] | None, None
    elif default is dataclasses.MISSING or kind == str | None:
        kind, default = str, ""
    name = _NAMES.get(field.name, field.name)
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


_HINTS = get_type_hints(Request)
_PARAMETERS = {
    made.name: made
    for field in dataclasses.fields(Request)
    if field.name not in _NOT_BY_AGENTS
    for made in [_parameter(field, _HINTS[field.name])]
}
"""The fields of a request by the names that agents give them."""


def _taking(fields: str, **defaults: str) -> Callable[[_Tool], _Tool]:
    """Give a tool parameters for fields of a request, besides its own. The SDK makes its schema from them."""

    def give(tool: _Tool) -> _Tool:
        context, *own = inspect.signature(tool, eval_str=True).parameters.values()
        taken = [_PARAMETERS[name] for name in fields.split()]
        taken = [each.replace(default=defaults.get(each.name, each.default)) for each in taken]
        own = [each.replace(kind=each.KEYWORD_ONLY) for each in own if each.kind is not each.VAR_KEYWORD]
        made = inspect.Signature([context, *taken, *own], return_annotation=Answer)
        tool.__dict__["__signature__"] = made
        tool.__annotations__ = {each.name: each.annotation for each in made.parameters.values()}
        return tool

    return give


@contextmanager
def _told(kind: type[Exception]) -> Generator[None]:
    """Turn a record that cannot be used into an error of the protocol."""
    try:
        yield
    except StoreError as why:
        raise kind(str(why)) from None


class _Tools:
    """The common part of the tools."""

    def __init__(self, queue: JobQueue, budget_usd: float, *, reads_files: bool) -> None:
        self.queue = queue
        self._budget = budget_usd
        self._reads_files = reads_files

    async def carry(self, context: Context[Any], wait_s: float, **asked: Any) -> Answer:
        """Submit a job and wait for it."""
        try:
            with _told(ToolError):
                job = await self.queue.submit(await asyncio.to_thread(_request, asked, self._reads_files))
        except RequestRefusedError as why:
            raise ToolError(str(why)) from None
        return await self.waited(context, job, wait_s)

    async def waited(self, context: Context[Any], job: StoredJob, wait_s: float) -> Answer:
        """Return the job once it is over, or as it is after `wait_s`. If the call is cancelled, the job ends."""
        step = 0
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(min(max(wait_s, 0), _MOST_WAIT_S)):
                    async for followed in self.queue.follow(job.id):
                        job = followed.job
                        step += 1
                        await context.report_progress(step, None, result_text.line(job, followed.position))
        except asyncio.CancelledError:
            with anyio.CancelScope(shield=True):
                await self.queue.cancel(job.id)
            raise
        return await self.answer(job.id)

    async def answer(self, job: str) -> Answer:
        with _told(ToolError):
            followed = await self.queue.job(job)
            if followed is None:
                raise ToolError(f"there is no job {job!r:.40}")
            known = followed.job
            result = await asyncio.to_thread(result_text.result_of, self.queue.store, known)
        code = compiled_code.beginning(result.code if result else (), _CODE_LINES)
        waits = followed.predicted.wait_s if followed.predicted else None
        answer = mcp_answers.of_job(known, followed.position, result, code, waits)
        lines = result_text.lines(known, result, followed.position, with_code=False)
        if len(lines) > _LINES:
            more = len(lines) - _LINES
            lines = [*lines[:_LINES], f"({more} more lines: resource orbit://job/{known.id}/text)"]
        if result and result.code:
            shown = compiled_code.text(code)
            lines += map(visible, shown)
            if more := len(compiled_code.text(result.code)) - len(shown):
                lines.append(f"({more} more lines: resource orbit://job/{known.id}/code)")
        if not known.over:
            lines.append(
                f'not over yet: call the tool `job` with id "{known.id}" to wait on, or with cancel to end it'
            )
        return CallToolResult(
            content=[TextContent(type="text", text="\n".join(lines))],
            structured_content=_plain(answer),
            is_error=known.outcome not in (None, "ok"),
        )

    def pool(self) -> PoolAnswer:
        places = tuple(
            PoolPlace(
                place["name"] or "",
                place["gpu"] or "",
                place["job"] or "",
                place["aside"] or "",
                place.get("absent") or "",
            )
            for place in self.queue.places()
        )
        return PoolAnswer(places, self.queue.waiting(), self._budget)


class _Server(MCPServer[Any]):
    """A server that refuses arguments that a tool does not have. The SDK drops them, so a misspelled one would do
    nothing.
    """

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> Any:
        for tool in await self.list_tools():
            known = list(tool.input_schema.get("properties", {}))
            unknown = [each for each in arguments if each not in known]
            if tool.name == name and unknown:
                more = f" and {len(unknown) - 1:,} more" if len(unknown) > 1 else ""
                have = ", ".join(known) or "none"
                raise ToolError(f"{name} has no argument {unknown[0]!r:.60}{more}; its arguments: {have}")
        return await super().call_tool(name, arguments, context)


def server(queue: JobQueue, *, budget_usd: float, reads_files: bool = True) -> MCPServer[Any]:
    """Make the server over a queue that takes jobs. `budget_usd` is only shown. `reads_files`: its client is a
    program of the user who started it, and may name files.
    """
    sources = _BY_PATH if reads_files else _BY_TEXT
    made = _Server(
        "orbit-lsp",
        instructions=INSTRUCTIONS.format(sources=sources),
        version=__version__,
        log_level="WARNING",
    )
    tools = _Tools(queue, budget_usd, reads_files=reads_files)
    _measuring(made, tools)
    _compiling(made, tools)
    _following(made, tools)
    _resources(made, queue)
    return made


async def over_stdio(queue: JobQueue, *, budget_usd: float) -> None:
    """Serve the program that started this process, until its standard input ends."""
    lowlevel = server(queue, budget_usd=budget_usd)._lowlevel_server  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - its own run_stdio_async reads without a bound
    with message_lines.standard_input() as lines:
        async with stdio_server(anyio.wrap_file(cast("TextIO", lines))) as (reading, writing):
            await lowlevel.run(reading, writing, lowlevel.create_initialization_options())


def over_http(queue: JobQueue, *, budget_usd: float, idle_s: float = _IDLE_S) -> Starlette:
    """Serve the same tools at /mcp. The server that has this app's routes decides who may call them. A session
    without a request for `idle_s` seconds ends; a call that waits for its job is a request.
    """
    return server(queue, budget_usd=budget_usd, reads_files=False).streamable_http_app(
        max_request_body_size=limits.BODY.most,
        max_sessions=limits.AGENT_SESSIONS.most,
        session_idle_timeout=idle_s,
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )


def _measuring(made: MCPServer[Any], tools: _Tools) -> None:
    @made.tool()
    @_taking(f"{_SOURCE} flags arguments timeout_s priority key grade allow through")
    async def run(ctx: Context[Any], wait_s: float = _WAIT_S, **asked: Any) -> Answer:
        """Build a file, run it on a GPU, check its results and time every kernel on the device.

        Without `kernel`: the file's main, its KernelBench or popcorn contract, or its only launch spec.
        `through` runs the kernel by a test or script of its project that launches it: `auto` takes the best one.
        `grade` referee measures a ModelNew from outside its process, and looks for cheats. `allow` names policies that it does not enforce.
        """
        return await tools.carry(ctx, wait_s, action="run", **asked)

    @made.tool()
    @_taking(f"{_SOURCE} flags timeout_s priority through")
    async def profile(ctx: Context[Any], full: bool = False, wait_s: float = _WAIT_S, **asked: Any) -> Answer:
        """Count what the hardware does in one launch: the bottleneck, the hot lines with their stalls, what to try.

        `full` collects every section of Nsight Compute and takes longer. Without permission to read counters: times, and why.
        """
        return await tools.carry(ctx, wait_s, action="profile", detail="full" if full else "click", **asked)

    @made.tool()
    @_taking(f"{_SOURCE} flags timeout_s through")
    async def check(
        ctx: Context[Any],
        checks: list[Check] | None = None,
        compile_only: bool = False,
        wait_s: float = _WAIT_S,
        **asked: Any,
    ) -> Answer:
        """Find memory faults and races with compute-sanitizer, at their lines; all four checks by default.

        With `compile_only` nothing runs and no GPU is needed: compiler errors, registers, shared memory, spills, occupancy.
        """
        action = "compile" if compile_only else "check"
        return await tools.carry(ctx, wait_s, action=action, tools=checks, **asked)

    @made.tool()
    @_taking(f"{_SOURCE} other_file other_text flags timeout_s grade")
    async def compare(ctx: Context[Any], wait_s: float = _WAIT_S, **asked: Any) -> Answer:
        """Which is faster: a kernel, or the kernel of the same name in another file? Both run in turn until one is known to be
        faster, or no difference can be shown. The verdict has an interval of 95 %.
        """
        return await tools.carry(ctx, wait_s, action="compare", **asked)


def _compiling(made: MCPServer[Any], tools: _Tools) -> None:
    @made.tool()
    @_taking(f"{_SOURCE} flags")
    async def disassemble(
        ctx: Context[Any], level: Level = "sass", wait_s: float = _WAIT_S, **asked: Any
    ) -> Answer:
        """What the compiler makes of a kernel: its SASS below the lines of its source, without a run and without a GPU.

        `gpu` is compiled for (H100, sm_90). `level` may be ptx; of Triton ttir, ttgir or llir, and the file is imported.
        """
        return await tools.carry(ctx, wait_s, action="compile", levels=[level], **asked)


def _following(made: MCPServer[Any], common: _Tools) -> None:
    @made.tool()
    @_taking(" ".join(_PARAMETERS), priority="low")
    async def submit(ctx: Context[Any], **asked: Any) -> Answer:
        """Hand in a job and return at once with its id; the tool `job` waits for it. The same `key` is the same job.

        `tools` are of check, `detail` and `sections` (of Nsight Compute) of profile, `levels` of compile: what it keeps of a kernel.
        """
        return await common.carry(ctx, 0, **asked)

    @made.tool()
    async def job(ctx: Context[Any], id: str, wait_s: float = _WAIT_S, cancel: bool = False) -> Answer:  # noqa: A002 - the tool's own word
        """A job by its id: wait for it, or cancel it. A wait that is cancelled leaves the job running."""
        with _told(ToolError):
            known = await common.queue.job(id)
            if known is None:
                raise ToolError(f"there is no job {id!r:.40}")
            if cancel:
                await common.queue.cancel(known.job.id)
                return await common.answer(known.job.id)
        step = 0
        with suppress(TimeoutError):
            async with asyncio.timeout(min(max(wait_s, 0), _MOST_WAIT_S)):
                async for followed in common.queue.follow(known.job.id):
                    step += 1
                    await ctx.report_progress(step, None, result_text.line(followed.job, followed.position))
        return await common.answer(known.job.id)

    @made.tool()
    async def gpus() -> Annotated[CallToolResult, PoolAnswer]:
        """Which GPUs jobs can run on, what runs there now, how many jobs wait, and what renting may cost this month."""
        pool = common.pool()
        lines = [
            f"{place.name}  {place.gpu or ('no GPU' if place.absent else 'name not known yet')}  {place.state}"
            for place in pool.places
        ]
        lines += [
            f"{pool.waiting} jobs wait",
            f"budget for rented GPUs: {units.money(pool.budget_usd)} this month",
        ]
        return CallToolResult(
            content=[TextContent(type="text", text="\n".join(lines))], structured_content=_plain(pool)
        )


def _resources(made: MCPServer[Any], queue: JobQueue) -> None:
    async def known(job: str) -> tuple[StoredJob, Result | None]:
        with _told(ResourceError):
            if (followed := await queue.job(job)) is None:
                raise ResourceError(f"there is no job {job!r:.40}")
            return followed.job, await asyncio.to_thread(result_text.result_of, queue.store, followed.job)

    @made.resource(
        "orbit://job/{job}/text", mime_type="text/plain", description="Everything known about a job, as text."
    )
    async def text(job: str) -> str:
        return "\n".join(result_text.lines(*await known(job)))

    @made.resource(
        "orbit://job/{job}/log", mime_type="text/plain", description="What the job's program printed."
    )
    async def output(job: str) -> str:
        _, result = await known(job)
        return f"{result.finished.stdout}{result.finished.stderr}" if result else ""

    @made.resource(
        "orbit://job/{job}/code",
        mime_type="text/plain",
        description="What the compiler made of a kernel: the whole of what `disassemble` shows.",
    )
    async def code(job: str) -> str:
        _, result = await known(job)
        if not result or not result.code:
            raise ResourceError(f"job {job} has no compiled code: the tool `disassemble` keeps it")
        return visible("\n".join(compiled_code.text(result.code)))

    @made.resource(
        "orbit://job/{job}/record", mime_type="application/json", description="The whole record of a job."
    )
    async def record(job: str) -> dict[str, Any]:
        await known(job)
        with _told(ResourceError):
            followed = await queue.job(job)
            assert followed
            return await asyncio.to_thread(result_text.as_json, queue.store, followed)

    @made.resource(
        "orbit://report/{job}",
        mime_type="text/html",
        description="The report of a run or a profile, as a page.",
    )
    async def report(job: str) -> str:
        _, result = await known(job)
        if not result or not result.report:
            raise ResourceError(f"job {job} has no report; a profile has one, and a run by a launch spec")
        try:
            return await asyncio.to_thread(regular_files.text, result.report, limits.PROFILE)
        except OSError as error:
            raise ResourceError(f"the report is gone: {error.strerror}") from None


# -- from and to the queue --------------------------------------------------------------------------


def _request(asked: dict[str, Any], reads_files: bool) -> Request:
    """Raises RequestRefusedError."""
    file, text, name = asked.pop("file"), asked.pop("text"), asked.pop("name") or "kernel.cu"
    other_file, other_text = asked.pop("other_file", ""), asked.pop("other_text", "")
    if not reads_files and (file or other_file):
        raise RequestRefusedError(
            "this server reads no files of its own machine: give `text` and `name`, or `other_text`"
        )
    if bool(file) == bool(text):
        raise RequestRefusedError("give either `file`, a path, or `text` with `name`")
    if asked["action"] == "compare":
        if bool(other_file) == bool(other_text):
            raise RequestRefusedError("give either `other_file` or `other_text` to compare with")
        asked |= {
            "against": requests.read(other_file)[0] if other_file else (file or name),
            "against_text": other_text,
        }
    elif other_file or other_text:
        raise RequestRefusedError(
            f"`other_file` and `other_text` are for compare: leave them out, or use it instead of {asked['action']}"
        )
    return requests.decoded(asked | ({"file": file} if file else {"name": name, "text": text}))


def _plain(value: Any) -> Any:
    """A dataclass as JSON."""
    return dataclasses.asdict(value)
