"""The server's commands: what lenses, code actions and palettes send.

Each command is answered at once and works in tasks. `handlers` registers the commands in `COMMANDS`.
"""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import json
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, cast

from lsprotocol import types as lsp

from orbit_lsp.features.live import LiveRuns
from orbit_lsp.profile import report_store
from orbit_lsp.queue import notebook_sessions
from orbit_lsp.runners.modal.spending import CannotAskError, steps
from orbit_lsp.runs import summary
from orbit_lsp.runs.scheduler import Action, Run
from orbit_lsp.server import shown_files, trust_questions
from orbit_lsp.server.language_server import OrbitServer
from orbit_lsp.specs import driver_choice, job_builder
from orbit_lsp.state import harness, modal_gpus, user_folders
from orbit_lsp.state.kernel_ids import KernelId
from orbit_lsp.state.session import path_of
from orbit_lsp.views import gpu_table, kernel_commands
from orbit_lsp.views.profile import profile_hover
from orbit_lsp.views.spec import spec_drafts
from orbit_lsp.views.tables import render
from orbit_remote.common.lazy_dataclass import dataclass


class WrongArgumentError(ValueError):
    """A client sent arguments that the command does not take. The text follows the command's name, and says what to
    send.
    """


@dataclass(frozen=True, slots=True)
class CommandArgument:
    """The argument of a command, an object; a field that a client leaves out is None."""

    uri: str | None = None
    kernel: str | None = None
    through: str | None = None
    """`program`: the file's own program is run, whatever the launch spec says. Else the id of a test, script or program of the project."""
    detail: str | None = None
    what: str | None = None
    kind: str | None = None
    against: str | None = None
    """`with` on the wire."""
    show: str | None = None
    gpu: str | None = None
    session: str | None = None
    gpus: tuple[str, ...] | None = None
    line: int | None = None
    launch: int | None = None
    keep: bool = True
    repeated: bool = False
    """Whether a test or a script runs several times, for a median."""
    empty: bool = False
    """There is no argument at all: Helix sends none."""

    @classmethod
    def of(cls, arguments: Sequence[Any]) -> CommandArgument:
        """Raises WrongArgumentError: to guess what was meant could run another kernel."""
        first: Any = arguments[0] if arguments else None
        if len(arguments) > 1 or not isinstance(first or {}, dict):  # an empty table of Lua is sent as a list
            raise WrongArgumentError("takes one JSON object, as {uri, kernel}, or no argument")
        sent = {
            name: value for name, value in cast("dict[str, Any]", first or {}).items() if value is not None
        }
        for name, (kind, said) in _SHAPES.items():
            if not isinstance(sent.get(name, kind()), kind):
                raise WrongArgumentError(f"takes {said} as `{name}`")
        if "kernel" in sent and "uri" not in sent:
            raise WrongArgumentError("takes the `uri` of its file with a `kernel`")
        values = {name: sent[name] for name in _SHAPES if name in sent and name not in ("with", "gpus")}
        gpus = sent.get("gpus")
        return cls(
            **values,
            against=sent.get("with"),
            gpus=None if gpus is None else tuple(map(str, gpus)),
            empty=not arguments,
        )


_SHAPES: dict[str, tuple[type, str]] = {
    **dict.fromkeys(
        ("uri", "kernel", "through", "detail", "what", "kind", "with", "show", "gpu", "session"),
        (str, "a text"),
    ),
    "gpus": (list, "a list of texts"),
    "line": (int, "a number"),
    "launch": (int, "a number"),
    "keep": (bool, "true or false"),
    "repeated": (bool, "true or false"),
}
"""The fields of a command's argument, by their names on the wire."""


Command = Callable[..., Any]
COMMANDS: dict[str, Command] = {}
"""By name; each takes the server and the client's arguments."""


RUN_BY_NOTEBOOK = (
    "orbit: a kernel in a notebook's cell is run by its cell: run that with one of orbit-lsp's kernels, and the result is "
    "shown here"
)


MAY_RENT = frozenset(("orbit.run", "orbit.profile", "orbit.checkMemory", "orbit.test"))
"""What a click rents a GPU for, although its lens may have said that there is none."""


def command(name: str) -> Callable[[Callable[[OrbitServer, CommandArgument], Any]], Command]:
    """Register `function(server, argument)`; what it returns is the answer. It may not wait."""

    def register(function: Callable[[OrbitServer, CommandArgument], Any]) -> Command:
        if inspect.iscoroutinefunction(function):
            raise TypeError(f"{name} waits, but commands are answered at once: spawn what takes long")

        def answer(ls: OrbitServer, *arguments: Any) -> Any:
            ls.look_for_account()
            if ls.rents_unsaid and name in MAY_RENT:
                ls.rents_unsaid = False
                ls.watcher.message(
                    f"{ls.places.gpu_text()}: a token was found. Nothing was run yet: click again"
                )
                return None
            try:
                argument = CommandArgument.of(arguments)
            except WrongArgumentError as error:
                ls.watcher.message(f"orbit: {name} {error}", lsp.MessageType.Warning)
                return None
            return function(ls, argument)

        COMMANDS[name] = answer
        return function

    return register


def kernel_command(name: str) -> Callable[[Callable[[OrbitServer, KernelId, CommandArgument], Any]], Command]:
    """Register `function(server, kernel, argument)` as a command. It is not called if no kernel can be meant."""

    def register(function: Callable[[OrbitServer, KernelId, CommandArgument], Any]) -> Command:
        def answer(ls: OrbitServer, argument: CommandArgument) -> Any:
            target = targeted(ls, argument)
            if target and name not in kernel_commands.OF_CELLS and (why := unbuildable(ls, target.uri)):
                ls.watcher.message(why, lsp.MessageType.Warning)
                return None
            return function(ls, target, argument) if target else None

        command(name)(answer)
        return function

    return register


def unbuildable(ls: OrbitServer, uri: str) -> str:
    """Return why a file cannot be compiled or run, in a sentence. Return "" if it can."""
    file = ls.session.files.get(uri)
    if file is None or file.builds:
        return ""
    if file.cell:
        return RUN_BY_NOTEBOOK
    suffix = ".cu" if file.scan.language == "cuda" else ".py"
    name = path_of(uri).rpartition("/")[2] or "this text"
    return f"orbit: {name} can be compiled and run once it is saved in a file whose name ends in {suffix}"


def once_configured(ls: OrbitServer, start: Callable[[], Run | None]) -> dict[str, str] | None:
    """Start a run at once and return its name. Return None if there is no run, or if settings or the file's flags are
    still on their way. In that case it starts when they have come: the settings say where to run.
    """
    if not ls.places.settings.configured.is_set() or ls.places.compilations.finding.locked():
        ls.spawn(start_configured(ls, start), "click before the settings")
        return None
    started = begin(ls, start)
    return {"run": started.id} if started else None


async def start_configured(ls: OrbitServer, start: Callable[[], Run | None]) -> None:
    await ls.places.settings.configured.wait()
    async with ls.places.compilations.finding:
        begin(ls, start)


def begin(ls: OrbitServer, start: Callable[[], Run | None]) -> Run | None:
    """Start a run. Tell the author if it joined another one, because that changes nothing that an author sees."""
    before = {run.id for run in ls.runs.under_way()}
    started = start()
    if started and started.id in before and started.action != "compile":
        ls.watcher.message(f"orbit: {started.title}: it is under way already")
    return started


@kernel_command("orbit.run")
def run(ls: OrbitServer, target: KernelId, argument: CommandArgument) -> dict[str, str] | None:
    """Run what launches a kernel, {uri, kernel, through, repeated}, and measure every launch; `repeated`: run its test or script
    several times, so that the median of a kernel that it launches once is known.
    """
    return started(ls, target, argument, "run", repeated=argument.repeated)


def started(
    ls: OrbitServer, target: KernelId, argument: CommandArgument, action: Action, **more: Any
) -> dict[str, str] | None:
    """Start a run of a kernel by what the argument names. For a driver of the project, first ask whether its folder
    is trusted.
    """
    program = argument.through == "program"
    driver = driver_choice.named(ls.session, target, argument.through or "")
    if argument.through and not (program or driver):
        text = f"orbit: {argument.through} is not known to launch {target.key}"
        ls.watcher.message(text, lsp.MessageType.Warning)
        return None

    def start() -> Run | None:
        return ls.runs.start(action, target.uri, target, program=program, driver=driver, **more)

    folder = ls.session.setup.directory(path_of(target.uri))
    used = driver or (None if program else job_builder.plan_of(ls.session, target).driver)
    if used is None:
        return once_configured(ls, start)

    def start_driver() -> Run | None:
        if not driver and ls.session.setup.lacks_gpu():  # who names it may want to see it pass on a CPU
            ls.watcher.lacking_gpu(ls.places.no_gpu(used))
            return None
        return start()

    if ls.session.setup.trusts(folder):
        return once_configured(ls, start_driver)
    asking = trust_questions.before_driver(ls, folder, used.id, lambda: once_configured(ls, start_driver))
    ls.spawn(asking, "trust")
    return None


@kernel_command("orbit.profile")
def profile(ls: OrbitServer, target: KernelId, argument: CommandArgument) -> dict[str, str] | None:
    """Count what the hardware does in one launch of a kernel, {uri, kernel, detail, through}, line by line; `detail`
    is `click` or `full`.
    """
    return started(ls, target, argument, "profile", detail="full" if argument.detail == "full" else "click")


@kernel_command("orbit.checkMemory")
def check_memory(ls: OrbitServer, target: KernelId, argument: CommandArgument) -> dict[str, str] | None:
    """Run what launches a kernel, {uri, kernel}, under the tools of compute-sanitizer that the settings name."""
    return started(ls, target, argument, "sanitize")


@kernel_command("orbit.debug")
def debug(ls: OrbitServer, target: KernelId, argument: CommandArgument) -> dict[str, str] | None:
    """Debug a Triton kernel, {uri, kernel, what}, in Triton's interpreter on this machine, without a GPU: its first program
    instance, or the one that writes the first `wrong` element.
    """
    kernel = ls.session.find(target)
    if kernel is None or kernel.dsl != "triton":
        ls.watcher.message(
            f"orbit: {target.key} cannot be debugged: only Triton kernels can", lsp.MessageType.Warning
        )
        return None
    if ls.places.settings.now.modal.restricted:
        text = "orbit: debugging runs the file on this machine, which `orbit.modal.restricted` rules out"
        ls.watcher.message(text, lsp.MessageType.Warning)
        return None
    instance = "wrong" if argument.what == "wrong" else "first"
    return once_configured(ls, lambda: ls.runs.start("debug", target.uri, target, instance=instance))


@command("orbit.test")
def test(ls: OrbitServer, argument: CommandArgument) -> dict[str, str] | None:
    """Test and time what a file, {uri}, offers by KernelBench's or popcorn's contract."""
    uri = argument.uri or (ls.looked_at.uri if ls.looked_at else "")
    entry = harness.of(ls.session, uri)
    if entry is None:
        ls.watcher.message(harness.NONE, lsp.MessageType.Warning)
        return None
    if why := unbuildable(ls, uri):
        ls.watcher.message(why, lsp.MessageType.Warning)
        return None
    return once_configured(ls, lambda: ls.runs.start("run", uri, entry.target))


@kernel_command("orbit.pinDriver")
def pin_driver(ls: OrbitServer, target: KernelId, argument: CommandArgument) -> None:
    """Let clicks on a kernel, {uri, kernel, through}, take a test, a script or a program of the project, or without `through` none in particular."""
    driver = driver_choice.named(ls.session, target, argument.through or "")
    if argument.through and driver is None:
        text = f"orbit: {argument.through} is not known to launch {target.key}"
        ls.watcher.message(text, lsp.MessageType.Warning)
        return
    ls.versions.pin(target, driver)
    if not ls.session.client.draws_lenses or argument.empty:
        chosen = f"runs through {driver.id}" if driver else "has no driver of your choice"
        ls.watcher.message(f"orbit: {target.key} {chosen} from now on")


@kernel_command("orbit.forgetDrivers")
def forget_drivers(ls: OrbitServer, target: KernelId, _: CommandArgument) -> None:
    """Forget what runs have shown of the tests, scripts and programs that launch a kernel, {uri, kernel}."""
    ls.versions.forget_drivers(target)
    ls.watcher.message(f"orbit: what runs had shown of the drivers of {target.key} is forgotten")


@kernel_command("orbit.draft")
def draft(ls: OrbitServer, target: KernelId, _: CommandArgument) -> None:
    """Write a launch spec above a kernel, {uri, kernel}, that has none."""
    ls.spawn(write_draft(ls, target), "draft")


async def write_draft(ls: OrbitServer, target: KernelId) -> None:
    if kernel := ls.session.find(target):
        await spec_drafts.prepare(ls.session, target.uri, kernel.whole.line, kernel.whole.line)
    if (kernel := ls.session.find(target)) is None:
        return
    drafts = spec_drafts.drafts(ls.session, target.uri, kernel, versioned=ls.takes_versions)
    if not drafts:
        ls.watcher.message(spec_drafts.none(ls.session, target.uri, kernel), lsp.MessageType.Warning)
        return
    drafted = drafts[0]
    workspace = ls.client_capabilities.workspace
    if not (workspace and workspace.apply_edit):
        ls.watcher.message(
            f"orbit: this editor does not support edits from a server; use the code action `{drafted.title}`"
        )
        return
    answer = await ls.workspace_apply_edit_async(lsp.ApplyWorkspaceEditParams(drafted.edit, drafted.title))
    if not answer.applied:
        ls.watcher.message(
            f"orbit: the editor rejected the draft: {answer.failure_reason or 'no reason given'}"
        )


@kernel_command("orbit.live")
def live(ls: OrbitServer, target: KernelId, _: CommandArgument) -> bool | None:
    """Run a kernel, {uri, kernel}, again at every save, or stop doing so; whether it does now."""
    on = ls.features.of(LiveRuns).toggle(target)
    if not ls.session.client.shows_answers:
        ls.watcher.message(f"orbit: live is {'on' if on else 'off'} for {target.key}")
    return on


@kernel_command("orbit.openReport")
def open_report(ls: OrbitServer, target: KernelId, argument: CommandArgument) -> None:
    """Show a kernel's last result, {uri, kernel, what}, in a browser: `what` is `run` or `profile`,
    default the newer one; `nsight` says where the file for Nsight Compute lies.
    """
    if argument.what == "nsight":
        ls.spawn(tell_nsight(ls, target), "Nsight Compute")
    else:
        ls.spawn(shown_files.result(ls, target, argument.what), "report")


@kernel_command("orbit.showFailure")
def show_failure(ls: OrbitServer, target: KernelId, _: CommandArgument) -> None:
    """Say in a message why the last run of a kernel, {uri, kernel}, failed, and what to do."""
    known = ls.session.results.failures.get(target)
    if known is None:
        ls.watcher.message(f"orbit: the last run of {target.key} did not fail")
        return
    failure = known.failure
    text = summary.explained(failure) if failure else known.outcome
    ls.watcher.message(f"orbit: {target.key}: {text}", lsp.MessageType.Warning)


async def tell_nsight(ls: OrbitServer, target: KernelId) -> None:
    """The window of Nsight Compute belongs on the author's screen, which need not be this machine's."""
    profiled = ls.session.results.profiles.get(target)
    report = profiled.report if profiled else None
    if profiled and report is None:  # it was made before the server started
        folder, path = user_folders.profile_folder(), path_of(target.uri)
        kept = await asyncio.to_thread(report_store.of_time, folder, path, target.key, profiled.at)
        report = kept.report if kept else None
    if report and report.exists():
        ls.watcher.message(
            f"orbit: Nsight Compute opens the profile with: {profile_hover.nsight_command(report)}"
        )
    elif profiled:
        text = f"orbit: the report of this profile of {target.key} is no longer kept; profile it again"
        ls.watcher.message(text, lsp.MessageType.Warning)
    else:
        text = f"orbit: there is no profile of {target.key}; profile it first"
        ls.watcher.message(text, lsp.MessageType.Warning)


@kernel_command("orbit.runRestricted")
def run_restricted(ls: OrbitServer, target: KernelId, _: CommandArgument) -> dict[str, str] | None:
    """Run code that is not the author's, {uri, kernel}: on Modal, in a container for it alone."""
    return once_configured(ls, lambda: start_restricted(ls, target))


def start_restricted(ls: OrbitServer, target: KernelId) -> Run | None:
    if not ls.session.setup.modal_account:
        ls.watcher.message(NO_SANDBOX + steps(ls.session.setup), lsp.MessageType.Warning)
        return None
    return ls.runs.start("run", target.uri, target, restricted=True)


@kernel_command("orbit.locate")
def locate(ls: OrbitServer, target: KernelId, argument: CommandArgument) -> bool:
    """End the run of a kernel, {uri, kernel}, to see where its warps stand."""
    del argument
    if ls.runs.locate(target):
        return True
    where = (
        f"orbit: {target.key} is not running on this machine's GPU, so where its warps stand cannot be seen"
    )
    ls.watcher.message(where)
    return False


@command("orbit.cancel")
def cancel(ls: OrbitServer, argument: CommandArgument) -> bool:
    """Cancel the run of a kernel, {uri, kernel}, or all runs if no kernel is named."""
    target = None if argument.empty else targeted(ls, argument)
    cancelled = ls.runs.cancel_all() if argument.empty else target is not None and ls.runs.cancel(target)
    if not cancelled and (argument.empty or target):
        ls.watcher.message(
            "orbit: nothing is running" if target is None else f"orbit: {target.key} is not running"
        )
    return cancelled


@command("orbit.compile")
def compile_file(ls: OrbitServer, argument: CommandArgument) -> dict[str, str] | None:
    """Compile a file, {uri}: for Triton this imports the module, so it is never done unasked."""
    uri = argument.uri or (ls.looked_at.uri if ls.looked_at else None)
    if uri is None or uri not in ls.session.files:
        ls.watcher.message(NO_FILE, lsp.MessageType.Warning)
        return None
    if why := unbuildable(ls, uri):
        ls.watcher.message(why, lsp.MessageType.Warning)
        return None
    folder, scan = ls.session.setup.directory(path_of(uri)), ls.session.files[uri].scan
    imports = any(kernel.dsl == "triton" for kernel in scan.kernels)

    def start() -> dict[str, str] | None:
        return once_configured(ls, lambda: start_compile(ls, uri))

    if not imports or ls.session.setup.trusts(folder):
        return start()
    ls.spawn(trust_questions.before_import(ls, folder, Path(path_of(uri)).name, start), "trust")
    return None


def start_compile(ls: OrbitServer, uri: str) -> Run | None:
    if started := ls.runs.start("compile", uri):
        ls.watcher.asked(started)
    return started


@kernel_command("orbit.runOnAll")
def run_on_all(ls: OrbitServer, target: KernelId, argument: CommandArgument) -> dict[str, str] | None:
    """Run a kernel, {uri, kernel, gpus}, on several GPUs on Modal side by side; default: `orbit.gpus`."""
    return once_configured(ls, lambda: start_on_all(ls, target, argument.gpus))


def start_on_all(ls: OrbitServer, target: KernelId, named: Sequence[str] | None) -> Run | None:
    try:
        gpus = [modal_gpus.spelled(gpu) for gpu in (ls.places.settings.now.gpus if named is None else named)]
    except ValueError as mistake:
        ls.watcher.message(f"orbit: {mistake}", lsp.MessageType.Warning)
        return None
    if not gpus:
        why = "no GPU is named" if named is not None else "the setting `gpus` names no GPU that is rented"
        ls.watcher.message(
            f"orbit: {why}; name some of {', '.join(modal_gpus.NAMES)}", lsp.MessageType.Warning
        )
        return None
    started = ls.multi_gpu.start(target.uri, target, gpus)
    if started:
        ls.spawn(tell_comparison(ls, started.task, target), "tell comparison")
    return started


async def tell_comparison(ls: OrbitServer, task: asyncio.Task[Any] | None, target: KernelId) -> None:
    """Write the comparison's table to the log. The hover shows it too."""
    if task:
        await asyncio.wait([task])
    if comparison := ls.session.results.multi_gpu.get(target):
        table = gpu_table.table(comparison, target.key, time.time(), stale=False)
        ls.watcher.table(render([table], markdown=False))


@command("orbit.chooseGpu")
def choose_gpu(ls: OrbitServer, argument: CommandArgument) -> None:
    """Rent this GPU, {gpu}, for runs from now on; the author is asked where none is named."""
    ls.spawn(choose(ls, argument.gpu), "choose GPU")


async def choose(ls: OrbitServer, gpu: str | None = None) -> None:
    if gpu is None:
        choices = ls.places.gpu_choices(with_own=True)
        setup = ls.session.setup
        where = "" if setup.host or setup.settings.ssh.hosts else " on Modal"
        question = f"orbit: which GPU{where}? Now {setup.host or setup.rents() or 'none'}{ls.places.rental.rates_text()}"
        try:
            answer = await ls.watcher.ask(question, tuple(choices))
        except CannotAskError:
            ls.watcher.message(NO_CHOICE, lsp.MessageType.Warning)
            return
        if answer not in choices:
            return
        gpu = choices[answer]
    if mistake := ls.places.choose_gpu(gpu):
        ls.watcher.message(mistake, lsp.MessageType.Warning)
        return
    ls.watcher.message(ls.places.gpu_text())
    for uri in list(ls.session.files):
        ls.compile_quietly(uri)
    ls.watcher.changed(set(ls.session.files))


NO_CHOICE = (
    "orbit: this editor cannot show a choice: use one of the code actions `Modal GPU: use …` on a kernel, or "
    "set `orbit.gpu`"
)


@command("orbit.sessions")
def sessions(ls: OrbitServer, argument: CommandArgument) -> list[dict[str, Any]]:
    """Show and return the containers on Modal that this server keeps warm."""
    del argument
    held = ls.places.rental.sessions()
    text = "; ".join(map(ls.places.rental.session_text, held))
    ls.watcher.message(text or "orbit: no GPU is rented now")
    return [dataclasses.asdict(session) for session in held]


@command("orbit.keepWarm")
def keep_warm(ls: OrbitServer, argument: CommandArgument) -> None:
    """Keep a container of a GPU, {gpu, keep}, until it is released; default: the settings' GPU, true."""
    gpu = argument.gpu or ls.places.settings.now.gpu
    ls.spawn(keep_or_release(ls, ls.places.rental.keep_warm(gpu, keep=argument.keep)), "keep warm")


@command("orbit.release")
def release(ls: OrbitServer, argument: CommandArgument) -> None:
    """End the warm container of a GPU, {gpu}, or all of them, or a notebook kernel, {session}, at once."""
    if argument.session is not None:
        ls.spawn(keep_or_release(ls, _end_notebook(argument.session)), "end a notebook kernel")
        return
    ls.spawn(keep_or_release(ls, ls.places.rental.release(argument.gpu)), "release")


async def _end_notebook(name: str) -> str:
    for kernel in notebook_sessions.running():
        if kernel.id == name:
            ended = await asyncio.to_thread(notebook_sessions.end, kernel)
            return f"orbit: the notebook kernel in {kernel.folder} {'ended' if ended else 'did not end'}"
    return "orbit: this notebook kernel has ended already"


async def keep_or_release(ls: OrbitServer, work: Coroutine[Any, Any, str]) -> None:
    ls.watcher.message(await work)


@command("orbit.info")
def info(ls: OrbitServer, argument: CommandArgument) -> dict[str, Any]:
    """Versions, encoding, capabilities, settings, runner: what a report of a fault should carry."""
    del argument
    answer = ls.places.info(ls.client_capabilities)
    if not ls.session.client.shows_answers:
        text = json.dumps(answer, indent=2, ensure_ascii=False, default=str) + "\n"
        ls.spawn(shown_files.written(ls, "orbit-info", "json", text, "what is known of this server"), "info")
    return answer


NO_SANDBOX = "orbit: code that is not yours runs only on Modal: "
NO_FILE = "orbit: which file? Put the cursor into one, hover or open its code actions, then try again"
NO_TARGET = "orbit: which kernel? Put the cursor on one, hover or open its code actions, then try again"


def targeted(ls: OrbitServer, argument: CommandArgument) -> KernelId | None:
    """Return the kernel that a command is about. Helix sends no arguments: then it is the one last looked at, in the
    file if one is named.
    """
    given = KernelId(argument.uri, argument.kernel) if argument.uri and argument.kernel else None
    looked_at = (
        ls.looked_at if not argument.uri or (ls.looked_at and ls.looked_at.uri == argument.uri) else None
    )
    target = given or looked_at
    if target is None:
        ls.watcher.message(NO_TARGET, lsp.MessageType.Warning)
    elif ls.session.find(target) is None and not harness.holds(ls.session, target):
        name = path_of(target.uri).rpartition("/")[2]
        gone = f"{name} is not open: open it, or the file that it is now"
        text = (
            f"orbit: {target.key} is no longer in {name}"
            if target.uri in ls.session.files
            else f"orbit: {gone}"
        )
        ls.watcher.message(text, lsp.MessageType.Warning)
        return None
    ls.looked_at = target or ls.looked_at  # a click is a look
    return target
