"""Compiles the Triton kernels of a file for an architecture, on a machine that may have no GPU.

Triton compiles without a GPU if it is given types and constants, which only a launch has. A launch spec without an
error gives all of them. So may a launch in the file with the tensors that are made for it (`Job.host_launches`).
Without them, constants are taken from the file: autotune's configurations, defaults, the keywords of a launch in its
text. Types are then assumed: what is loaded from or stored to is a pointer (to fp32, else fp16, else i32; to i32 if
the value becomes a place), the rest is i32. Constants that the file does not tell are assumed last. Everything
assumed is marked, and an error is reported only if it does not depend on it.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import io
import re
import subprocess
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from orbit_remote.child import triton_instances
from orbit_remote.child.triton_assumptions import (
    OPTIONS,
    Configuration,
    assumed_signatures,
    completed,
    configurations_of,
    described,
    foreign,
    layers,
    outermost,
)
from orbit_remote.child.triton_certainty import Certainty
from orbit_remote.child.user_module import UserFile
from orbit_remote.child.without_gpu import for_want_of_a_gpu, import_without_gpu, stand_in_for_the_gpu
from orbit_remote.common import limits, python_errors, regular_files
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.messages import Place, Problem, Resources
from orbit_remote.common.python_errors import Explained
from orbit_remote.common.requests import HostLaunch, Level
from orbit_remote.toolchain import disassembly, dumps, ptxas

if TYPE_CHECKING:
    from orbit_remote.child import triton_spec_compile

_MOST_CONFIGURATIONS = 4
_WARP = 32
_SIZELESS = ("*", "fp", "bf")
"""How the types of arguments begin that do not depend on how large their values are."""
_INTERPRETED = "nothing was compiled: TRITON_INTERPRET is set, by this file or in the environment, so Triton interprets its kernels"
_SPEC = "a launch spec above it does (`orbit-lsp draft` writes one)"


@dataclass(frozen=True, slots=True)
class Compiled:
    """The result. `explained` is set if the file itself could not be imported. `made` is the requested compiler
    output. `supposed` is what Triton says of a kernel with assumed constants or types, which may be what is wrong.
    """

    problems: tuple[Problem, ...] = ()
    resources: tuple[Resources, ...] = ()
    remarks: tuple[str, ...] = ()
    explained: Explained | None = None
    made: tuple[dumps.DumpedInstance, ...] = ()
    supposed: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class _CompileTarget:
    """What to compile for: a compute capability as a number (90), the file at `path`, and the `levels` that are
    wanted of each kernel, which are collected in `made`. `remarks` say what could not be had. `warps` replaces the
    `num_warps` of a launch.
    """

    capability: int
    path: str
    certainty: Certainty
    levels: Sequence[Level] = ()
    warps: int | None = None
    made: list[dumps.DumpedInstance] = field(default_factory=list[dumps.DumpedInstance])
    remarks: list[str] = field(default_factory=list[str])

    @property
    def options(self) -> dict[str, int]:
        """Return the options of Triton's compiler that go before a launch's own."""
        return {} if self.warps is None else {"num_warps": self.warps}


def compile_file(
    file: UserFile,
    architecture: str | None,
    kernel: str | None = None,
    launches: Sequence[HostLaunch] = (),
    levels: Sequence[Level] = (),
    warps: Sequence[int] = (),
) -> Compiled:
    """Import the file, in this process, and compile its kernels; `kernel` limits it to one. Kernels that are not
    autotuned are also compiled with each of `warps`; only the figures of these compilations are kept.

    Importing runs what the file does at its top level. Without a GPU, a statement there that uses one is left out,
    and what needs its names is not compiled.
    """
    capability = int(re.sub(r"\D", "", architecture or "") or 90)
    try:
        # Triton 3.9 says in two long lines what a default will be in 3.10; of a compilation it would say so at each pause in typing
        warnings.filterwarnings("ignore", "TRITON_DEFAULT_FP_FUSION is unset")
        stand_in_for_the_gpu(capability)
        tree = ast.parse(file.text, file.path)
        file.prepare()
        imported = import_without_gpu(file)
    except BaseException as error:  # noqa: BLE001 - user code: anything, SystemExit too
        return Compiled(explained=_unimported(python_errors.explain(error, file.path)))
    namespace = imported.module.__dict__
    target = _CompileTarget(capability, file.path, Certainty(file.text, file.path, tree, namespace), levels)
    remarks = list(imported.remarks)
    # an attempt before, or the file's package with the saved text, may have left functions of the same names
    functions = [each for each in _kernels(file, tree, kernel) if each.fn.__globals__ is namespace]
    if not functions and any(type(each).__name__ == "InterpretedFunction" for each in namespace.values()):
        remarks.append(_INTERPRETED)
    specified = _launch_specs(file, tree)
    by_name = {launch.kernel: launch for launch in launches}
    compiled: list[Compiled] = []
    for each in functions:
        name = each.fn.__name__
        alias = _alias(each, tree, namespace)
        if alias and specified is not None:
            specified = specified.known_as(alias[0], name)
        made = _compile_kernel(each, file, tree, namespace, target, specified, by_name.get(name))
        made = _with_mistakes(made, each, file, tree, specified, by_name.get(name))
        if not (made.resources or made.problems):
            certain = target.certainty.of_text(each)
            made = replace(made, problems=certain or made.supposed)
        made = _named(made, name, alias, file.path)
        kept, lacking = imported.lacking(made.problems)
        if lacking:
            remark = f"{name} was not compiled: {lacking} needs a GPU"
            made = replace(made, problems=kept, remarks=(*made.remarks, remark))
        if imported.failed and made.problems:  # what stands in for an import may have caused them
            remark = f"{name} was not compiled: it may need what could not be imported"
            made = replace(made, problems=(), remarks=(*made.remarks, remark))
        compiled.append(made)
        if made.resources and not _is_tuned(each, namespace):
            for number in {*warps} - {(resources.threads or 0) // _WARP for resources in made.resources}:
                other = replace(target, levels=(), warps=number, remarks=[])
                again = _compile_kernel(each, file, tree, namespace, other, specified, by_name.get(name))
                compiled.append(Compiled(resources=_named(again, name, alias, file.path).resources))
    problems = dict.fromkeys(
        _of_another_version(problem, tree) for each in compiled for problem in each.problems
    )
    if imported.failed and for_want_of_a_gpu(imported.failed):
        words = next(iter(str(imported.failed).splitlines()), "")
        remarks.append(f"what the file imports uses a GPU, and this machine has none: {words}")
    elif imported.failed:
        explained = python_errors.explain(imported.failed, file.path)
        if not any(each.resources for each in compiled):
            return Compiled(explained=_unimported(explained))
        absent = [python_errors.explain(error, file.path) for error in imported.absent]
        texts = {problem.message for each in absent for problem in each.problems}
        problems |= dict.fromkeys(
            replace(problem, severity="warning")
            for problem in explained.problems
            if problem.message not in texts
        )
        problems |= dict.fromkeys(
            replace(problem, severity="warning", message=f"{problem.message}; compiled without it")
            for each in absent
            for problem in each.problems
        )
    resources = tuple(instance for each in compiled for instance in each.resources)
    remarks += [*(text for each in compiled for text in each.remarks), *target.remarks]
    # a kernel that a decorator wraps twice says the same twice
    return Compiled(tuple(problems), resources, tuple(dict.fromkeys(remarks)), made=tuple(target.made))


def _with_mistakes(
    made: Compiled,
    function: Any,
    file: UserFile,
    tree: ast.Module,
    specified: triton_spec_compile.Read | None,
    launch: HostLaunch | None,
) -> Compiled:
    """Add what is wrong in the file's launches of a kernel. Assumed figures are dropped then, because nothing
    launches such a kernel. Figures of its launch spec, or of a correct launch, stay.
    """
    from orbit_remote.spec import launch_mistakes

    name, namespace = function.fn.__name__, function.fn.__globals__
    own = namespace.get(name)
    if own is not function and layers(own)[-1] is not function:  # the name launches something else
        return made
    mistakes = launch_mistakes.of(
        name, function.params, tree, file.text, file.path, namespace.keys(), tuned=own is not function
    )
    if not mistakes:
        return made
    problems = (*made.problems, *(problem for _, problem in mistakes))
    right = launch is not None and launch.line not in {line for line, _ in mistakes}
    if right or (specified is not None and name in specified.launches):
        return replace(made, problems=problems)
    return Compiled(problems)


def _alias(function: Any, tree: ast.Module, namespace: Mapping[str, Any]) -> tuple[str, int] | None:
    """Return name and line of the `k = triton.jit(f)` that makes the kernel, if `f` itself stays a function."""
    if outermost(function, namespace) is namespace.get(function.fn.__name__):
        return None
    from orbit_remote.child.triton_spec_compile import made_by_calls

    for name, node in made_by_calls(tree).items():
        if any(layer is function for layer in layers(namespace.get(name))):
            return name, node.lineno
    return None


def _named(made: Compiled, name: str, alias: tuple[str, int] | None, path: str) -> Compiled:
    """Return the same under the name that the file gives the kernel, at that line."""
    if alias is None:
        return made
    known, line = alias
    resources = tuple(replace(each, name=known, place=Place(path, line)) for each in made.resources)
    remarks = tuple(re.sub(rf"^{re.escape(name)}\b", known, remark) for remark in made.remarks)
    return replace(made, resources=resources, remarks=remarks)


def _of_another_version(problem: Problem, tree: ast.Module) -> Problem:
    """Add the release to a problem: a keyword that a function of Triton lacks may be of another release, and so may a
    kernel with `**meta`.
    """
    if named := re.fullmatch(r"(\w+) is not defined", problem.message):
        return replace(problem, message=problem.message + _of_meta(named[1], problem, tree))
    match = re.fullmatch(r"(\w+)\(\) got an unexpected keyword argument '\w+'", problem.message)
    if match is None or not hasattr(importlib.import_module("triton.language"), match[1]):
        return problem
    version = getattr(importlib.import_module("triton"), "__version__", "")
    return replace(problem, message=f"{problem.message}: Triton {version} has no such parameter")


def _of_meta(name: str, problem: Problem, tree: ast.Module) -> str:
    """Return what to write in place of the `**meta` of a kernel of Triton 1. Return "" if the name is not that."""
    line = problem.place.line if problem.place else 0
    kernel = next(
        (
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef) and node.args.kwarg and node.args.kwarg.arg == name
            if node.lineno <= line <= (node.end_lineno or 0)
        ),
        None,
    )
    if kernel is None:
        return ""
    keys = (
        node.slice.value
        for node in ast.walk(kernel)
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == name
        if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str)
    )
    constant = next(keys, "BLOCK")
    return f": kernels take no `**{name}` since Triton 2: make its constants parameters, `{constant}: tl.constexpr`"


def _is_tuned(function: Any, namespace: Mapping[str, Any]) -> bool:
    return any(getattr(layer, "configs", ()) for layer in layers(outermost(function, namespace)))


def _unimported(explained: Explained) -> Explained:
    """Add what to do about a file whose import fails. If its error has no remedy of its own, say that the file is
    imported.
    """
    failure = explained.failure
    if failure.category != "runtime error" or failure.remedy:
        return explained
    remedy = (
        'compiling a Triton file imports it: put what cannot run here behind `if __name__ == "__main__":`, or compile '
        "it where it can be imported"
    )
    return replace(explained, failure=replace(failure, remedy=remedy))


def _launch_specs(file: UserFile, tree: ast.Module) -> triton_spec_compile.Read | None:
    if "orbit:" not in file.text:
        return None
    from orbit_remote.child import triton_spec_compile

    with contextlib.suppress(ImportError):  # of torch, without which no spec runs either
        return triton_spec_compile.read(file.text, tree)
    return None


def _compile_kernel(
    function: Any,
    file: UserFile,
    tree: ast.Module,
    namespace: Mapping[str, Any],
    target: _CompileTarget,
    specified: triton_spec_compile.Read | None,
    launch: HostLaunch | None,
) -> Compiled:
    """Compile a kernel as its launch spec launches it, else as the file does, else in the configurations that the
    file gives.
    """
    name = function.fn.__name__
    remarks: list[str] = []
    if specified is not None and name in specified.launches:
        source = f"{name}: types and constants of its launch spec"
        outcome = _as_launched(function, specified.launches[name], namespace, target, source)
        if outcome is not None:
            return outcome
        remarks.append(f"{name}: Triton does not take the arguments of its launch spec")
    elif specified is not None and name in specified.faulty:
        remarks.append(
            f"{name}: its launch spec has an error in line {specified.faulty[name]} and was not used"
        )
    known: dict[str, Any] = {}
    tensors: set[str] = set()
    if launch and (outcome := _as_hosted(function, launch, file, tree, namespace, target, known, tensors)):
        if outcome.resources or outcome.problems:
            return outcome
        remarks += outcome.remarks
    if why := _needs_a_run(function):
        return Compiled(remarks=(*remarks, f"{name} was not compiled: {why}"))
    configurations, missing = configurations_of(function, tree, namespace, known, frozenset(tensors))
    if unknown := foreign(function, namespace):
        remarks.append(f"{name}: autotune's configurations set {unknown}, which is no parameter of it")
    if missing:
        outcome = _as_completed(function, configurations[0], missing, target)
        return replace(outcome, remarks=(*remarks, *outcome.remarks))
    if len(configurations) > _MOST_CONFIGURATIONS:
        remarks.append(
            f"{name}: the first {_MOST_CONFIGURATIONS} of {len(configurations)} configurations were compiled"
        )
    resources: list[Resources] = []
    for configuration in configurations[:_MOST_CONFIGURATIONS]:
        outcome = _compile(function, configuration, target)
        if isinstance(outcome, Resources):
            resources.append(outcome)
        elif isinstance(outcome, str):
            return Compiled((), tuple(resources), (*remarks, f"{name} was not compiled: {outcome}"))
        elif configuration.assumed and not target.certainty.of(outcome.problems):
            why = "it does not compile with the sizes and types assumed here"
            supposed = _supposed(outcome, _values(configuration, sorted(configuration.assumed)))
            return Compiled(
                (), tuple(resources), (*remarks, f"{name} was not compiled: {why}"), supposed=supposed
            )
        else:
            return Compiled(outcome.problems, tuple(resources), tuple(remarks))
    remarks.append(f"{name}: {configurations[0].source}; argument types assumed")
    return Compiled((), tuple(resources), tuple(remarks))


def _as_completed(
    function: Any, known: Configuration, missing: Sequence[str], target: _CompileTarget
) -> Compiled:
    """Compile with the first assumed constants that compile. Only certain errors are reported: the assumptions may
    cause others.
    """
    name = function.fn.__name__
    supposed: tuple[Problem, ...] = ()
    for configuration in completed(function, known, missing):
        outcome = _compile(function, configuration, target)
        if isinstance(outcome, Explained) and target.certainty.of(outcome.problems):
            return Compiled(outcome.problems)
        values = _values(configuration, missing)
        if isinstance(outcome, Explained):
            supposed = supposed or _supposed(outcome, values)
        if isinstance(outcome, Resources):
            return Compiled(
                (),
                (outcome,),
                (
                    f"{name}: {values} and argument types assumed; write them in a launch spec above it (`orbit-lsp draft` writes one)",
                ),
            )
    verb = "is" if len(missing) == 1 else "are"
    why = f"the file does not say what {', '.join(missing)} {verb}; {_SPEC}"
    return Compiled(remarks=(f"{name} was not compiled: {why}",), supposed=supposed)


def _values(configuration: Configuration, names: Sequence[str]) -> str:
    return ", ".join(f"{each} = {triton_instances.show(configuration.constants[each])}" for each in names)


def _supposed(explained: Explained, assumed: str) -> tuple[Problem, ...]:
    """Return Triton's first error at its line, as information: the assumption may be what is wrong."""
    return tuple(
        replace(
            problem,
            severity="information",
            message=f"with {assumed or 'types'} assumed, Triton says: {problem.message}",
        )
        for problem in explained.problems[:1]
    )


def _needs_a_run(function: Any) -> str:
    """Return why a kernel cannot be compiled by itself. Return "" if it can."""
    if getattr(function, "is_gluon", bool)():
        return "it is written in Gluon, which is compiled when it runs"
    if blocks := described(function):
        return f"the file does not say which blocks {', '.join(blocks)} describe; {_SPEC}"
    return ""


# -- as a launch spec launches it -------------------------------------------------------------------


def _as_launched(
    function: Any,
    launches: Sequence[triton_spec_compile.SpecifiedLaunch],
    namespace: Mapping[str, Any],
    target: _CompileTarget,
    source: str,
) -> Compiled | None:
    """Compile the first configurations of a kernel's launches. Return None if something other than the compiler
    refuses them.
    """
    from orbit_remote.child import triton_spec_compile

    name = function.fn.__name__
    by_symbol: dict[str, Resources] = {}
    remarks = [source]
    for launch in launches:
        try:
            compiled, every = triton_spec_compile.compile_kernel(
                function, launch, namespace, _MOST_CONFIGURATIONS, target.options
            )
        except Exception as error:  # noqa: BLE001 - Triton raises all kinds, and the user's own hooks do
            explained = python_errors.explain(error, target.path)
            return Compiled(explained.problems) if explained.failure.category == "compile error" else None
        if not compiled:
            remarks.append(f"{name}: no configuration that was tried compiles; {every} more were not tried")
        elif every > len(compiled):
            remarks.append(f"{name}: the first {len(compiled)} of {every} configurations were compiled")
        for made in compiled[: _MOST_CONFIGURATIONS - len(by_symbol)]:
            constants = triton_instances.instance(function, made).constants | _options(made)
            by_symbol[made.hash] = _figures(
                function, made, constants | triton_spec_compile.types(function, made), target
            )
    return Compiled((), tuple(by_symbol.values()), tuple(remarks))


def _as_hosted(
    function: Any,
    launch: HostLaunch,
    file: UserFile,
    tree: ast.Module,
    namespace: Mapping[str, Any],
    target: _CompileTarget,
    known: dict[str, Any],
    tensors: set[str],
) -> Compiled | None:
    """Compile a kernel as the file's own code launches it. Return None if that is impossible, or if only a guess
    makes it compile. An error that may be due to a guess is a remark. `known` gets the constants that are no guess,
    `tensors` the parameters that are tensors.
    """
    from orbit_remote.child import triton_spec_compile

    try:
        launches = triton_spec_compile.of_host(file.text, tree, launch)
    except ImportError:  # of torch
        return None
    if not launches:
        return None
    name = function.fn.__name__
    called = f", called from {launch.caller}" if launch.caller else ""
    source = f"{name}: types and constants as launched on line {launch.line}{called}"
    if launch.guessed:
        source += f"; {', '.join(launch.guessed)} assumed"
    before = len(target.made)
    with triton_spec_compile.reading_alone() if launch.unknown else contextlib.nullcontext():
        outcome = _as_launched(function, launches, namespace, target, source)
    if outcome and not launch.guessed:
        return outcome
    if outcome and outcome.resources and not outcome.problems and not launch.unknown:
        return replace(outcome, resources=tuple(_marked(each, launch) for each in outcome.resources))
    del target.made[before:]
    guesses = triton_spec_compile.guesses(function, launches[0], launch, namespace)
    if outcome and target.certainty.of(outcome.problems, guesses.assumed):
        return outcome
    known |= guesses.known
    tensors |= guesses.tensors
    if outcome and outcome.problems and not launch.unknown:
        return Compiled(remarks=(_doubtful(name, launch, outcome.problems[0]),))
    return None


def _marked(resources: Resources, launch: HostLaunch) -> Resources:
    """Mark what was guessed of a launch."""
    constants = {
        argument: f"{kind} (assumed)"
        if argument in launch.assumed or (argument in launch.sized and not kind.startswith(_SIZELESS))
        else kind
        for argument, kind in resources.constants.items()
    }
    return replace(resources, constants=constants)


def _doubtful(name: str, launch: HostLaunch, problem: Problem) -> str:
    at = f", line {problem.place.line}" if problem.place else ""
    return (
        f"{name}: with {', '.join(launch.guessed)} assumed for the launch on line {launch.line}, Triton says{at}: "
        f"{problem.message.partition(chr(10))[0]}"
    )


# -- by assumption ----------------------------------------------------------------------------------


def _compile(
    function: Any, configuration: Configuration, target: _CompileTarget
) -> Resources | Explained | str:
    """Compile. Return what it uses, its error, or why neither is known: an error that may be due to our assumptions.

    A static_assert is about types and constants, and those are the assumptions.
    """
    failures: list[Explained] = []
    signature: dict[str, str] = {}
    for signature in assumed_signatures(function, configuration):
        try:
            compiled = _triton_compile(function, signature, configuration, target)
        except Exception as error:  # noqa: BLE001 - Triton raises all kinds
            failures.append(python_errors.explain(error, target.path))
            if target.certainty.of(failures[-1].problems):
                return failures[-1]
            if (words := python_errors.static_assert(error)) is not None:
                return f"with the constants and types assumed here a static_assert fails: {words}"
            continue
        return _resources(function, compiled, signature, configuration, target)
    first = failures[0]
    stores = any(
        kind.startswith("*") for kind in signature.values()
    )  # else a helper that nobody calls: any type may be meant
    if stores and all(_but_types(failure) == _but_types(first) for failure in failures):
        return first
    return "it does not compile with the argument types assumed here"


def _but_types(explained: Explained) -> tuple[tuple[Place | None, str], ...]:
    """Return the errors without the types that pointers point to. Two errors that differ only in these types are the same:
    an assumed type does not decide whether a value is a pointer.
    """
    return tuple(
        (
            problem.place,
            re.sub(r"(?<=Unsupported ptr type) .* (?=in )|(?<=pointer<)\w+", " ", problem.message),
        )
        for problem in explained.problems
    )


def _triton_compile(
    function: Any, signature: dict[str, str], configuration: Configuration, target: _CompileTarget
) -> Any:
    compiler: Any = importlib.import_module("triton.compiler")
    backend: Any = importlib.import_module("triton.backends.compiler")
    # what a launch sees too: torch's allocations are aligned, so pointers are divisible by 16
    aligned = {
        (i,): [["tt.divisibility", 16]]
        for i, name in enumerate(function.arg_names)
        if signature[name].startswith("*")
    }
    constants = {
        name: value for name, value in configuration.constants.items() if signature.get(name) == "constexpr"
    }
    source = compiler.ASTSource(function, signature, constants, aligned)
    return compiler.compile(
        source,
        target=backend.GPUTarget("cuda", target.capability, _WARP),
        options={**configuration.options, **target.options},
    )


def _resources(
    function: Any,
    compiled: Any,
    signature: Mapping[str, str],
    configuration: Configuration,
    target: _CompileTarget,
) -> Resources:
    assumed = {name: f"{kind} (assumed)" for name, kind in signature.items() if kind != "constexpr"}
    constants = {
        name: triton_instances.show(value) + (" (assumed)" if name in configuration.assumed else "")
        for name, value in configuration.constants.items()
    }
    return _figures(function, compiled, constants | _options(compiled) | assumed, target)


def _options(compiled: Any) -> dict[str, str]:
    return {o: str(v) for o in OPTIONS if (v := getattr(compiled.metadata, o, None)) is not None}


def _figures(function: Any, compiled: Any, constants: dict[str, str], target: _CompileTarget) -> Resources:
    resources = triton_instances.instance(function, compiled)
    usage = _assembled(compiled, target.capability)
    resources = replace(resources, architecture=_architecture(target.capability), constants=constants)
    if target.levels:
        texts: dict[Level, bytes] = {
            level: text for level in target.levels if (text := _text_of(compiled, level))
        }
        target.made.append(dumps.DumpedInstance(resources.symbol, resources.name, constants, texts))
    if isinstance(usage, str):
        target.remarks.append(f"{function.fn.__name__}: registers and spills are not known: {usage}")
        return resources
    return replace(
        resources,
        registers=usage.registers,
        stack=usage.stack,
        spill_stores=usage.spill_stores,
        spill_loads=usage.spill_loads,
        barriers=usage.barriers,
    )


def _text_of(compiled: Any, level: Level) -> bytes:
    """Return what Triton made of a kernel at one level; its machine code comes from nvdisasm. Return b"" if there is
    none.
    """
    if level != "sass":
        return str(compiled.asm.get(level) or "").encode("utf-8", "surrogateescape")
    code: Any = compiled.asm.get("cubin")
    return (
        disassembly.listing(code, compiled.name).encode("utf-8", "replace")
        if isinstance(code, bytes)
        else b""
    )


def _assembled(compiled: Any, capability: int) -> Resources | str:
    """Return what the assembler says of a kernel, or why that is not known. Triton itself chooses the assembler and
    calls it again, because versions differ in both.
    """
    log = ""
    run: Any = subprocess.run

    def heard(*command: Any, **how: Any) -> Any:
        nonlocal log
        done = run(*command, **how)
        if name := getattr(how.get("stderr"), "name", None):
            log = regular_files.text(name, limits.TOOL_OUTPUT)
        return done

    subprocess.run = heard
    try:
        module: Any = importlib.import_module("triton.compiler.compiler")
        backend = module.make_backend(compiled.metadata.target)
        with contextlib.redirect_stdout(io.StringIO()):  # it prints what it could not assemble
            backend.make_cubin(compiled.asm["ptx"], {}, compiled.metadata, capability)
    except Exception as error:  # noqa: BLE001 - of a Triton that may be of any version
        return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
    finally:
        subprocess.run = run
    return next(iter(ptxas.resources(log)), "Triton's assembler reported none")


def _architecture(capability: int) -> str:
    return f"sm_{capability}a" if capability >= 90 else f"sm_{capability}"


def _kernels(file: UserFile, whole: ast.Module, kernel: str | None) -> list[Any]:
    """Return the file's kernels. A helper (it returns a value, or a kernel calls it) has no launch of its own."""
    functions = [f for f in triton_instances.jit_functions() if f.fn.__code__.co_filename == file.path]
    trees = [(f, ast.parse(f.src)) for f in functions]  # a kernel that Triton refuses has no hash
    called = {
        node.func.id
        for _, tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    launched = {
        node.func.value.id
        for node in ast.walk(whole)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Subscript)
        and isinstance(node.func.value, ast.Name)
    }
    launchable = [
        f
        for f, tree in trees
        if f.fn.__name__ in launched or (f.fn.__name__ not in called and not _returns_a_value(tree.body[0]))
    ]
    return [f for f in launchable if f.fn.__name__ == kernel] or launchable


def _returns_a_value(function: ast.AST) -> bool:
    for node in ast.iter_child_nodes(function):
        if isinstance(node, ast.Return) and node.value is not None:
            return True
        if not isinstance(node, ast.FunctionDef) and _returns_a_value(
            node
        ):  # of a function within, which Triton refuses
            return True
    return False
