"""run, profile, check, compile, disassemble, exec, show and doctor: the editor's engine with a terminal as its watcher."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TextIO

from orbit_lsp.cli import command_settings, json_results, terminal_text
from orbit_lsp.cli.arguments import did_you_mean
from orbit_lsp.cli.terminal_text import UsageError, only_kernel
from orbit_lsp.cli.terminal_watcher import TerminalWatcher
from orbit_lsp.engine.engine import Engine, Unwatched
from orbit_lsp.kernels import BY_TEXT_SUFFIXES, HEADER_SUFFIXES, language_of
from orbit_lsp.places.places import Places
from orbit_lsp.profile import dump_files
from orbit_lsp.runs import driver_search, summary
from orbit_lsp.runs.scheduler import BY_WORD, Action, Scheduler
from orbit_lsp.specs import job_builder, spec_cache
from orbit_lsp.state import harness, modal_gpus, ssh_hosts, user_folders
from orbit_lsp.state.kernel_ids import KernelId
from orbit_lsp.state.placement import RunSetup
from orbit_lsp.state.session import ClientAbilities, Frozen, Session, path_of, uri_of
from orbit_lsp.views import kernel_status
from orbit_remote.common import architectures, limits, regular_files
from orbit_remote.common import messages as c
from orbit_remote.common.plain_text import visible


def main(options: argparse.Namespace) -> int:
    """Run the command. Return the exit code."""
    try:
        return asyncio.run(_history(options) if options.command == "history" else _main(options))
    except UsageError as error:
        return terminal_text.refused(str(error), as_json=options.json)
    except KeyboardInterrupt:
        print("orbit-lsp: cancelled", file=sys.stderr)
        return c.EXIT_CODES["cancelled"]


async def _main(options: argparse.Namespace) -> int:
    if options.command == "exec":
        from orbit_lsp.cli import exec_command

        exec_command.settle(options)
    session = Session(setup=_setup(options), client=ClientAbilities(name=f"orbit-lsp {options.command}"))
    # what is printed while a bundle is made stands in the bundle
    watcher = TerminalWatcher(quiet=options.json or options.command == "debug-compile")
    remedy = "add --over-budget, or raise --budget"
    engine = Engine(session, watcher, terminal_text.warn, remedy=remedy)
    places, runs = engine.places, engine.runs
    if options.over_budget:
        places.rental.budget.lifted = True
    places.settings.options = command_settings.of(options, session)
    places.settings.trust_once, places.settings.of_command = "add --trust", True
    if complaints := places.settings.configure(None):
        from orbit_lsp.state import config

        raise UsageError(config.reason(complaints[0]))
    if _measures(options):
        engine.file_runs()
        watcher.when_begun = lambda run: engine.history.read_ahead(run.frozen.uri)
    if hasattr(signal, "SIGQUIT"):  # Ctrl-\\ asks Java's and Go's programs the same
        asyncio.get_running_loop().add_signal_handler(signal.SIGQUIT, lambda: _locate(runs))
    try:
        return await _answer(options, engine, watcher)
    finally:
        await engine.close()


def _locate(runs: Scheduler) -> None:
    if not runs.locate():
        terminal_text.warn("where warps stand can be seen of a run on this machine's GPU only")


async def _answer(options: argparse.Namespace, engine: Engine, watcher: TerminalWatcher) -> int:
    """Do what the command asks for, and return its exit code."""
    session, places, runs = engine.session, engine.places, engine.runs
    if options.command == "doctor":
        from orbit_lsp.cli.machine import doctor_command

        if options.file:
            uri = _open(session, options.file)
            return await doctor_command.of_file(session, places, uri, options.file, as_json=options.json)
        _say_ignored(session, places, None)
        return await doctor_command.of_machine(session, places, as_json=options.json)
    if options.command == "exec":
        from orbit_lsp.cli import exec_command

        return await exec_command.run(options, engine, watcher)
    if options.command == "capture":
        from orbit_lsp.cli.files import capture_command

        return await capture_command.run(options, engine, watcher)
    if getattr(options, "through", None):
        from orbit_lsp.cli.files import through_command

        action = BY_WORD[options.command]
        report = partial(_report, session, action=action, sweep=False)
        if not await through_command.is_alone(options, engine):
            return await through_command.run(options, engine, action, report)
        options.through = None
    if options.command == "gate":
        from orbit_lsp.cli import gate_command

        return await gate_command.run(options, engine, watcher)
    if options.command == "trace":
        from orbit_lsp.cli.files import trace_command

        uri = _open(session, options.file)
        _say_ignored(session, places, uri)
        return await trace_command.run(options, engine, watcher, uri)
    if options.command == "compare":
        uri = await _opened(options, session, places)
        target = _target(session, uri, options.kernel)
        from orbit_lsp.cli import history_command

        return await history_command.compare(options, engine, watcher, uri, target)
    if options.command in ("disassemble", "debug-compile"):
        from orbit_lsp.cli import disassemble_command

        if options.command == "disassemble" and disassemble_command.is_compiled(options.file):
            return await disassemble_command.compiled_code(options, runs)
        uri = _open(session, options.file)
        places.begin_looking(warm=_compiler_process(session, uri))
        await _find_compilation(options, session, places, uri)
        if not _by_nvcc(session, uri):  # of Triton, a test or script also says with which types and sizes
            await driver_search.look(session, uri, user_folders.driver_index, engine.history.learn)
        if not (options.arch or options.gpu):
            await places.looked()
        if options.command == "debug-compile":
            from orbit_lsp.cli.files import debug_compile

            return await debug_compile.run(options, session, runs, uri)
        target = _target(session, uri, options.kernel)
        return await disassemble_command.source(options, session, engine.history, runs, uri, target)
    return await _file(options, engine)


async def _opened(options: argparse.Namespace, session: Session, places: Places) -> str:
    """Open the command's file, with what its compilation needs, and report what is ignored there. Return its URI."""
    uri = _open(session, options.file)
    await _find_compilation(options, session, places, uri)
    return uri


async def _find_compilation(options: argparse.Namespace, session: Session, places: Places, uri: str) -> None:
    """Raises UsageError for a header that has no kernel with what its include folders define, either."""
    for refused in await places.compilations.find(uri):
        terminal_text.warn(refused)
    _say_ignored(session, places, uri)
    if options.file.lower().endswith(HEADER_SUFFIXES) and not session.kernels(uri):
        raise UsageError(f"{options.file} is a header without a kernel")


def _measures(options: argparse.Namespace) -> bool:
    """Say whether the command uses what the history keeps."""
    return options.command in ("run", "capture", "profile", "compare", "gate", "disassemble") or getattr(
        options, "run", False
    )


def _say_ignored(session: Session, places: Places, uri: str | None) -> None:
    """Say which Pythons are not started, if a Python is needed."""
    if uri and _by_nvcc(session, uri) and not _by_spec(session, uri):
        return
    if sentence := places.python.ignored():
        terminal_text.warn(sentence)


async def _history(options: argparse.Namespace) -> int:
    """Run the history command, which needs no GPU, no compiler and no settings. Return the exit code."""
    session = Session(setup=_setup(options))
    engine = Engine(session, Unwatched(), terminal_text.warn)
    try:
        from orbit_lsp.cli import history_command

        return await history_command.history(options, engine.history, _with_history(session, options.file))
    finally:
        await engine.close()


def _with_history(session: Session, name: str) -> str:
    """Open a file or a notebook, and return its URI. Raises UsageError."""
    if not name.lower().endswith(".ipynb"):
        return _open(session, name)
    try:
        return uri_of(str(Path(name).resolve()))
    except (OSError, RuntimeError, ValueError):
        raise UsageError(f"{name} is not the path of a file") from None


def _setup(options: argparse.Namespace) -> RunSetup:
    """Make the setup.

    The workspace is the current folder if that holds the file, unless it is the root of a disk or a home folder.
    Otherwise the workspace is the file's project. It is also the project if a test or program of the project runs, or
    if a folder is shown; a folder without a project is its own.
    """
    try:
        here = str(Path.cwd())
    except FileNotFoundError:  # it has been deleted
        here = ""
    folder, setup = here, RunSetup()
    if options.command == "gate":
        options.file = (options.paths or [os.curdir])[0]
    if options.file and options.command not in ("exec", "history"):
        from orbit_lsp.closure.tree import below, is_private
        from orbit_lsp.compilation.projects import marked

        path = os.path.normpath(Path(here, options.file))
        own = path if _is_folder(path) else str(Path(path).parent)
        project = marked(own)
        setup.project = project or ""
        if getattr(options, "through", None) or (options.command == "show" and own == path):
            folder = project or own
        elif project and below(here, project) is None and (is_private(here) or below(path, here) is None):
            folder = project
    setup.folders = [folder] if folder else []
    setup.standing = here
    return setup


async def _file(options: argparse.Namespace, engine: Engine) -> int:
    """Run one of run, profile, check, compile and show. Return the exit code. Raises UsageError."""
    session, places, runs = engine.session, engine.places, engine.runs
    if options.command == "show" and not options.run and _is_folder(options.file):
        from orbit_lsp.cli.files import folder_listing

        return await folder_listing.show(options.file, engine, as_json=options.json)
    uri = _open(session, options.file)
    if options.command == "draft":
        from orbit_lsp.cli import draft_command

        return draft_command.run(session, uri, _target(session, uri, options.kernel), as_json=options.json)
    action: Action = BY_WORD.get(options.command, "run" if getattr(options, "run", False) else "compile")
    # compiling Triton imports the module: only `compile` and `run` do
    listed = options.command == "show" and action == "compile" and not _by_nvcc(session, uri)
    if looks := options.gpu is None or action != "compile":
        # the worker answers while we search
        places.begin_looking(warm=_compiler_process(session, uri) if options.command == "compile" else "")
    await _find_compilation(options, session, places, uri)
    frozen = session.freeze(uri)
    if frozen and options.command == "compile" and (why := job_builder.while_running(frozen)):
        raise UsageError(why)
    dump = _dump_folder(options)
    target, targets = _chosen(options, session, uri, action)
    if options.command == "show" or (options.command == "compile" and not _by_nvcc(session, uri)):
        # of Triton, a test or script also says with which types and sizes
        await driver_search.look(session, uri, user_folders.driver_index, engine.history.learn)
    elif action != "compile":
        from orbit_lsp.cli.files import through_command

        await through_command.refuse_alone(options, engine, uri, target)
    if listed:
        if looks:
            await places.looked()
        _file_syntax(session, uri)
        return _shown(options, session, uri)
    on = getattr(options, "on", None)
    named = [name.strip() for name in on.split(",")] if on else []
    try:
        gpus = list(dict.fromkeys(map(_gpu_of_several, named)))
    except ValueError as mistake:
        raise UsageError(f"--on: {mistake}") from None
    if looks:
        await places.looked()
    if action != "compile" and not gpus:
        terminal_text.check_gpu(session, options.gpu)
    if gpus:
        from orbit_lsp.cli import gpus_command

        watcher = TerminalWatcher(quiet=options.json)
        return await gpus_command.run(engine, watcher, uri, targets, gpus, as_json=options.json)
    code = 0
    finished: c.Finished | None = None
    for each in targets:
        finished, made = await _perform(runs, action, uri, each, full=getattr(options, "full", False))
        if action == "compile":
            finished = _with_limits(_with_specs(finished, session, uri), session, uri)
        code = code or c.EXIT_CODES[finished.outcome]
        if options.json:
            every = tuple(problem for _, problem in terminal_text.problems(session, uri))
            remarks = session.files[uri].compilation.remarks if action == "compile" else ()
            shown = replace(finished, problems=every, remarks=(*finished.remarks, *remarks))
            print(json_results.text(shown))
        elif options.command != "show":
            # a program is of all its kernels
            only = target or (each if each in _by_spec(session, uri) else None)
            _report(session, uri, only, finished, action, sweep=getattr(options, "sweep", False))
        elif finished.failure and (
            options.run or finished.outcome != "compile error"
        ):  # errors stand at their lines
            _line(
                sys.stderr,
                f"orbit-lsp: error: {finished.failure.message} [{finished.outcome}]",
                finished.failure.remedy,
            )
        if dump:
            _dump(finished, made, dump)
    if options.command == "show" and not options.json:
        _shown(options, session, uri, finished)
    return code if options.command != "show" or options.run else 0


def _gpu_of_several(name: str) -> str:
    """Return a GPU of `--on`: rented, or of a host. Raises ValueError."""
    if name.startswith(ssh_hosts.PREFIX):
        return ssh_hosts.place(name)
    try:
        return modal_gpus.spelled(name)
    except ValueError as mistake:
        if architectures.architecture_for(name) or ":" in name:
            raise
        raise ValueError(f"{mistake}; a machine of your own is {ssh_hosts.PREFIX}{name}") from None


def _with_limits(finished: c.Finished, session: Session, uri: str) -> c.Finished:
    """Add remarks on what a compile leaves out: a file with a `main` is not linked, a template needs its arguments."""
    scan, source = session.files[uri].scan, session.files[uri].source
    if finished.outcome == "ok" and (why := summary.only_helpers(finished, scan.kernels)):
        return replace(finished, remarks=(*finished.remarks, why))
    if scan.language != "cuda" or finished.outcome != "ok":
        return finished
    from orbit_lsp.views.compiler import kernel_costs

    remarks = (*finished.remarks, *kernel_costs.warnings(session, uri))
    if source:
        remarks += (f"compiled through {terminal_text.relative(source[0])}, which includes it",)
    if "main" in scan.entries:
        remarks += ("compile does not look for link errors; orbit-lsp run links the program",)
    return replace(finished, remarks=(*remarks, *kernel_status.reasons(session, uri)))


def _of_import(frozen: Frozen) -> bool:
    """Say whether a file has kernels that an import compiles."""
    return any(kernel.dsl == "triton" for kernel in frozen.scan.kernels)


def _compiler_process(session: Session, uri: str) -> str:
    """Return the language of the process that compiles a file, if its imports (torch and Triton) take a second."""
    return "" if _by_nvcc(session, uri) else "triton"


def _by_nvcc(session: Session, uri: str) -> bool:
    """Say whether compiling the file imports nothing."""
    frozen = session.freeze(uri)
    return frozen is not None and bool(frozen.scan.language == "cuda" or job_builder.inline_of(frozen))


def _dump_folder(options: argparse.Namespace) -> Path | None:
    dump = Path(options.dump) if getattr(options, "dump", None) else None
    if dump and dump.exists() and not dump.is_dir():
        raise UsageError(f"{dump} is not a folder, so nothing can be dumped there")
    return dump


def _chosen(
    options: argparse.Namespace, session: Session, uri: str, action: Action
) -> tuple[KernelId | None, list[KernelId | None]]:
    """Return the kernel that is named, and all that is run."""
    target = _target(session, uri, getattr(options, "kernel", None))
    if action == "profile":
        target = target or only_kernel(kernel_status.launchable(session, uri))
    targets = _targets(session, uri, target, action)
    if getattr(options, "sweep", False):
        targets = _swept(session, uri, targets)
    if options.json and len(targets) > 1 and not getattr(options, "on", None):
        names = ", ".join(each.key for each in targets if each)
        raise UsageError(
            f"--json prints one run, and this file has the launch specs of {names}; add --kernel"
        )
    return target, targets


def _is_folder(name: str) -> bool:
    return Path(name).is_dir()


def _file_syntax(session: Session, uri: str) -> None:
    """File the syntax error of a Python file that is not compiled, as an editor does while its author types."""
    from orbit_lsp.runners import refusals
    from orbit_lsp.runs import result_filing

    frozen, machine = session.freeze(uri), session.setup.machine
    if frozen and machine:
        explained = refusals.explained_syntax(frozen.text, path_of(uri), machine.python_version)
        result_filing.syntax(session, frozen, explained.problems if explained else ())


def _shown(
    options: argparse.Namespace, session: Session, uri: str, finished: c.Finished | None = None
) -> int:
    if options.json:
        print("null")
        return 0
    color = options.color == "always" or (options.color == "auto" and terminal_text.escapes(sys.stdout))
    from orbit_lsp.cli import source_listing
    from orbit_lsp.views import labels

    print("\n".join(source_listing.lines(session, uri, color=color)))
    if (source := session.files[uri].source) and session.files[uri].scan.kernels:
        _note(f"compiled through {terminal_text.relative(source[0])}, which includes it")
    frozen = session.freeze(uri)
    if frozen and (why := job_builder.while_running(frozen)):
        _note(why)
    elif frozen and _of_import(frozen):
        _note(
            "show has no figures and no compiler errors of Triton kernels, because compiling them imports the file. "
            f"They are printed by orbit-lsp compile {options.file}; after a run, by show --run"
        )
    else:
        for line in kernel_status.reasons(session, uri):
            _note(line)
    if session.files[uri].scan.language == "cuda":
        from orbit_lsp.cli.files import header_kernels

        for known in header_kernels.of(session, uri):
            hint = labels.hint(session, known.target.uri, known)
            _note(f"with it, {header_kernels.place(known)} is compiled: {known.kernel.name}   {hint}")
        for line in header_kernels.made_by_macros(session, uri, finished) if finished else ():
            _note(line)
    return 0


def _note(text: str) -> None:
    print(visible(f"note: {text}"), file=sys.stderr)


def _targets(session: Session, uri: str, target: KernelId | None, action: Action) -> list[KernelId | None]:
    """Return what is run: the kernel that is named, else the program, else every kernel that has a launch spec.

    If the file has a spec without a launch, it says how the program is run.
    """
    if target or action == "compile":
        return [target]
    if session.files[uri].scan.entries:
        kernel_ids = [
            status.target
            for status in kernel_status.of(session, uri)
            if status.plan.lines and not status.plan.definition
        ]
        return [kernel_ids[0] if len(kernel_ids) == 1 else None]
    checked = harness.of(session, uri)
    return [*([checked.target] if checked else []), *_by_spec(session, uri)] or [None]


def _by_spec(session: Session, uri: str) -> list[KernelId]:
    return [status.target for status in kernel_status.of(session, uri) if status.plan.through == "spec"]


def _swept(session: Session, uri: str, targets: list[KernelId | None]) -> list[KernelId | None]:
    """Return those of `targets` whose launch specs have a sweep."""
    wanted = _by_spec(session, uri) if targets == [None] else [target for target in targets if target]
    swept = [
        status for status in kernel_status.of(session, uri) if status.target in wanted and status.plan.swept
    ]
    if not swept:
        raise UsageError("no launch spec of this file has a sweep, as in `n = sweep(1 << 20, 1 << 24)`")
    return [status.target for status in swept]


def _open(session: Session, name: str) -> str:
    try:
        path = Path(name).resolve()
        uri = uri_of(str(path))
        by_text = str(path).lower().endswith(BY_TEXT_SUFFIXES)
        if language_of(str(path)) is None and not by_text:
            raise UsageError(f"{name} is not a .cu, .cuh or .py file")
        text = regular_files.text(path, limits.SOURCE)
        if by_text and language_of(str(path), text) is None:
            what = "a header" if str(path).lower().endswith(HEADER_SUFFIXES) else "a C++ file"
            raise UsageError(f"{name} is {what} without a kernel")
    except FileNotFoundError:
        raise UsageError(f"there is no file {name}") from None
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror}") from None
    except UnicodeEncodeError:
        raise UsageError(f"{name}: the path is not valid UTF-8, which a job's path has to be") from None
    except RuntimeError:  # Python 3.12 and older say this of symbolic links
        raise UsageError(f"{name} cannot be read: it is a symbolic link to itself") from None
    session.open(uri, 0, text)
    return uri


def _target(session: Session, uri: str, name: str | None) -> KernelId | None:
    if name is None:
        return None
    known = [kernel for kernel, _, _ in session.kernels(uri)]
    if (checked := harness.of(session, uri)) and checked.name == name:
        return checked.target
    for target in known:
        if target.key == name or target.key.rpartition("::")[2] == name:
            return target
    names = [known_target.key for known_target in known]
    raise UsageError(
        f"there is no kernel {name} in this file; it has: {', '.join(names) or 'none'}{did_you_mean(name, names)}"
    )


async def _perform(
    runs: Scheduler, action: Action, uri: str, target: KernelId | None, *, full: bool = False
) -> tuple[c.Finished, Path | None]:
    """Run an action. Return its end, and the folder of what the compiler made, if that is kept."""
    run = runs.start(action, uri, target, detail="full" if full else "click")
    assert run is not None
    try:
        return await runs.result(run), run.dumps
    finally:
        if run.report:
            print(f"the report is kept; Nsight Compute opens it: ncu-ui {run.report}", file=sys.stderr)


def _dump(finished: c.Finished, made: Path | None, to: Path) -> None:
    """Write what the compiler made to a folder. Raises OSError if it cannot be written there."""
    if made is None:
        print("orbit-lsp: warning: nothing to dump: the profile contains no compiled code", file=sys.stderr)
    else:
        print(f"in {to}: {', '.join(dump_files.copy(finished, made, to))}", file=sys.stderr)


def _with_specs(finished: c.Finished, session: Session, uri: str) -> c.Finished:
    """Add to a compilation what is wrong with the file's launch specs: no compiler reads them."""
    errors = [fault for fault in spec_cache.faults(session, uri) if fault.severity == "error"]
    if not errors or finished.outcome != "ok":
        return finished
    line, column = errors[0].span.line + 1, errors[0].span.column + 1
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    text = f"line {line}, in the launch spec: {errors[0].message}{more}"
    failure = c.Failure("compile error", text, place=c.Place(path_of(uri), line, column))
    return replace(finished, outcome="compile error", failure=failure)


# -- what is printed --------------------------------------------------------------------------------


def _report(
    session: Session,
    uri: str,
    target: KernelId | None,
    finished: c.Finished | None,
    action: Action,
    *,
    sweep: bool,
) -> None:
    from orbit_lsp.cli.files import header_kernels
    from orbit_lsp.views import harness_view, kernel_tables, tables  # 15 ms that --json does without

    for line in terminal_text.problem_lines(session, uri):
        print(visible(line))
    in_headers = header_kernels.of(session, uri) if action in ("compile", "run") and not target else []
    for known in (*kernel_status.of(session, uri), *in_headers):
        if target and known.target != target:
            continue
        sections = kernel_tables.content(session, known.target.uri, known, time.time())
        if sweep:
            sections = [section for section in sections if isinstance(section, tables.Table)]
        if known.target.uri != uri:
            sections = [
                section
                for section in sections
                if not isinstance(section, tuple) or section[0] != kernel_tables.HOW_COMPILED
            ]
        if sections:
            if known.target.uri != uri:
                print(visible(f"in {header_kernels.place(known)}:"))
            print(visible(tables.render(sections, markdown=False)), end="\n\n")
    if (checked := kernel_status.harness_status(session, uri)) and checked.result and not sweep:
        title = f"{checked.entry.name}: {harness_view.text(checked.result)}"
        rows = harness_view.rows(checked.result) + kernel_tables.run_rows(checked.result.finished)
        print(visible(tables.render([(title, rows)], markdown=False)), end="\n\n")
    for remark in finished.remarks if finished else ():
        _note(remark)
    if finished and finished.outcome != "ok" and finished.failure:
        failure = finished.failure
        _line(
            sys.stderr,
            f"orbit-lsp: error: {terminal_text.unrepeated(session, uri, failure)} [{finished.outcome}]",
            failure.remedy,
        )
    elif (
        finished
        and finished.outcome == "ok"
        and not (session.kernels(uri) or in_headers or harness.of(session, uri) or finished.resources)
    ):
        print("no kernel in this file")
    elif finished:
        compiled = action == "compile"
        ok = "" if compiled and not finished.resources else "ok: "
        more = header_kernels.unseen(session, uri, finished) if compiled else ""
        print(visible(f"{ok}{summary.one_line(finished, compiled_only=compiled)}{more}"), file=sys.stderr)


def _line(stream: TextIO, text: str, remedy: str) -> None:
    print(visible(text) + (f"\n{terminal_text.indented(remedy)}" if remedy else ""), file=stream)
