"""Settings: one model, from which docs/guide/settings.md is generated.

The user's own settings come as initializationOptions and as flags of the command line. `workspace/configuration`
(section `orbit`) may have a workspace's settings. The user's settings win. A workspace that is not trusted sets only
settings that are declared with `workspace=True`. If a value is not valid, it is named and its default is used; the
others hold.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import typing
from collections.abc import Callable, Mapping
from sys import float_info
from typing import Any, Literal, TypeVar, cast

from orbit_lsp.state import modal_gpus, ssh_hosts
from orbit_remote.common.lazy_dataclass import dataclass

T = TypeVar("T")

EXECUTABLES = ("python", "nvcc")
"""Settings that name a program."""
USERS_ALONE = ("trusted",)
"""Settings that no workspace sets, trusted or not."""
_TYPES: dict[Any, str] = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
"""A type's name in a message."""


def setting(
    default: Any,
    description: str,
    *,
    workspace: bool = False,
    read: Callable[[str], str] | None = None,
    mistaken: tuple[Any, str] | None = None,
    **limits: Any,
) -> Any:
    """Declare a field of a group of settings.

    `limits` are `ge`, `le` and `gt` of a number and `min_length` of a list. `read` makes the value from a text, or
    from the texts in a list, and raises ValueError. `workspace`: an untrusted workspace may set it, because it starts
    nothing, spends nothing, deletes nothing and passes nothing on. `mistaken` is used in place of an invalid value if
    the default may spend money or permit what the user meant to forbid; it has the value, and the value in words.
    """
    metadata = {
        "description": description,
        "limits": limits,
        "workspace": workspace,
        "read": read,
        "mistaken": mistaken,
    }
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class Hints:
    """Which inlay hints are shown."""

    static: bool = setting(
        True, "Show registers, shared memory, spills and occupancy on the kernel's line.", workspace=True
    )
    measured: bool = setting(
        True, "Show the times and the occupancy of the last run on the kernel's line.", workspace=True
    )
    profile: bool = setting(
        True, "Show what the last profile found, on the kernel's line and on its hot lines.", workspace=True
    )
    instructions: bool = setting(
        False, "After *Show SASS*, show at each line's end how many instructions it became.", workspace=True
    )


@dataclass(frozen=True, kw_only=True)
class Lens:
    """The row of lenses above a kernel."""

    parts: tuple[Literal["outcome", "verdict", "run", "profile"], ...] = setting(
        ("outcome", "verdict", "run", "profile"),
        "Lenses above a kernel, in their order: `outcome` is how the last run ended and its time, `verdict` the bottleneck "
        "of the last profile, `run` and `profile` are commands. Lenses that are not listed are not shown; every command "
        "is a code action too.",
        workspace=True,
    )


@dataclass(frozen=True, kw_only=True)
class Report:
    """Pages of results."""

    open: Literal["never", "profile", "run"] = setting(
        "never",
        "When a report opens by itself. `never`; `profile`: after every profile; `run`: after every profile and every run.",
        workspace=True,
    )


@dataclass(frozen=True, kw_only=True)
class Modal:
    """GPUs rented from Modal."""

    idle_s: int = setting(
        300,
        "How long a container waits for the next run, in seconds. It is billed while it waits.",
        ge=2,
        le=3600,
    )
    environment: str = setting(
        "", "Name of the environment in Modal. Empty: the one in Modal's own configuration."
    )
    pip: tuple[str, ...] = setting((), "Python packages to add to the image, which has torch and Triton.")
    apt: tuple[str, ...] = setting((), "Ubuntu packages to add to the image.")
    data: tuple[str, ...] = setting(
        (),
        "Data files to send with a program, as patterns relative to the workspace folder "
        "(`data/*.bin`). Includes and imports need no pattern.",
    )
    files_mib: int = setting(256, "Limit of the files sent with a run, in MiB.", ge=1, le=1 << 20)
    restricted: bool = setting(
        False,
        "For code that is not yours: every run gets a container of its own, without network or "
        "access to Modal, and shows its output at the end.",
        mistaken=(True, "every run is restricted"),
    )
    keep_warm: bool = setting(
        False,
        "When a run first uses a type of GPU, keep its container until you release it. The command `orbit.keepWarm` "
        "keeps one for the type that you name. A kept container is billed until you release it or close the editor.",
    )
    budget_usd: float = setting(
        10.0,
        "Budget of a calendar month (UTC), in dollars. Before a run that may exceed it, or before a GPU is kept warm, "
        "the editor asks; if it cannot ask, the run is refused.",
        ge=0,
        mistaken=(0.0, "the budget is 0"),
    )
    compile: bool = setting(
        False,
        "If this machine has no nvcc, compile on Modal when a file is opened or saved. No GPU is "
        "rented for it.",
    )


@dataclass(frozen=True, kw_only=True)
class Ssh:
    """Machines of the author's own that are reached by ssh."""

    hosts: tuple[str, ...] = setting(
        (),
        "Hosts that the command `orbit.chooseGpu` offers, as `ssh` knows them (`gpu1`).",
        read=ssh_hosts.host,
    )
    python: str = setting(
        "",
        "Python on the host that has your torch and triton, as in `~/venv/bin/python`. Empty: `python3`.",
        read=ssh_hosts.program,
    )
    nvcc: str = setting("", "CUDA compiler on the host. Empty: CUDA_HOME, PATH, then the PyPI wheels there.")
    data: tuple[str, ...] = setting(
        (), "Data files to send with a program, as patterns like those of `orbit.modal.data`."
    )
    files_mib: int = setting(256, "Limit of the files sent with a run, in MiB.", ge=1, le=1 << 20)


@dataclass(frozen=True, kw_only=True)
class ProfileSettings:
    """What a profile shows on the lines, and what is kept of it."""

    line_percent: float = setting(
        5,
        "A source line shows its share of the kernel's warp samples, and its main stall reason, if the share is "
        "at least this many percent.",
        workspace=True,
        ge=0,
        le=100,
    )
    excess_percent: float = setting(
        10,
        "A source line shows its uncoalesced accesses, bank conflicts or local-memory traffic if the needless traffic "
        "is at least this many percent of the kernel's traffic of that kind.",
        workspace=True,
        ge=0,
        le=100,
    )
    reports: int = setting(20, "How many of Nsight Compute's own reports are kept.", ge=1, le=1000)
    reports_mib: int = setting(256, "Limit of the total size of these reports, in MiB.", ge=1, le=1 << 20)


@dataclass(frozen=True, kw_only=True)
class History:
    """What is kept of runs and profiles over restarts."""

    keep: bool = setting(
        True,
        "Keep a kernel's runs and profiles, with the file's text, in the user's state folder, so that "
        "results come back after a restart and versions can be compared.",
    )
    mib: int = setting(
        256, "Limit of the history on disk, in MiB; the oldest runs are deleted.", ge=1, le=1 << 16
    )


@dataclass(frozen=True, kw_only=True)
class Live:
    """Kernels that are run again while they are edited."""

    on: Literal["save", "pause"] = setting(
        "save",
        "When [Live](launch-specs.md#live) runs a kernel again. `save`: when its file is saved. `pause`: also when typing "
        "has paused.",
    )
    pause_ms: int = setting(400, "Length of a pause in typing, in milliseconds.", ge=50, le=60_000)
    idle_s: int = setting(900, "*Live* ends after this many seconds without a run.", ge=1, le=86_400)


@dataclass(frozen=True, kw_only=True)
class CheckMemory:
    """compute-sanitizer."""

    tools: tuple[Literal["memcheck", "racecheck", "initcheck", "synccheck"], ...] = setting(
        ("memcheck", "racecheck", "initcheck", "synccheck"),
        "Tools of compute-sanitizer that *Check memory* runs, one after another: invalid addresses, "
        "races in shared memory, reads of unwritten memory, barriers.",
        min_length=1,
    )
    timeout_s: float = setting(
        120,
        "Limit of each of these tools, in seconds. Under them a kernel takes 10 to 100 times as long.",
        gt=0,
    )
    lens: bool = setting(
        False, "Show *Check memory* as a lens too; it is always a code action.", workspace=True
    )


@dataclass(frozen=True, kw_only=True)
class CostSettings:
    """Diagnostics of what a kernel costs, by the compiler's figures."""

    spills: Literal["off", "hint", "warning"] = setting(
        "warning",
        "Severity of the diagnostic `register-spills` (registers that are stored in local memory): `off`, `hint` or `warning`.",
        workspace=True,
    )
    local_memory: Literal["off", "hint", "warning"] = setting(
        "hint",
        "Severity of the diagnostic `local-memory` (an array of a thread is not in registers): `off`, `hint` or `warning`.",
        workspace=True,
    )
    shared_memory: Literal["off", "hint", "warning"] = setting(
        "warning",
        "Severity of the diagnostic `shared-memory` (a block needs more shared memory than the chosen GPU gives to one block): "
        "`off`, `hint` or `warning`.",
        workspace=True,
    )
    block_size: Literal["off", "hint", "warning"] = setting(
        "warning",
        "Severity of the diagnostic `block-size` (a block has more threads than `__launch_bounds__`, the kernel's registers or "
        "the GPU allow): `off`, `hint` or `warning`.",
        workspace=True,
    )
    occupancy: Literal["off", "hint", "warning"] = setting(
        "hint",
        "Severity of the diagnostic `occupancy-step` (with one register less per thread, or 1 KiB less shared memory per block, "
        "one more block would fit on a multiprocessor): `off`, `hint` or `warning`.",
        workspace=True,
    )


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The section `orbit`."""

    gpu: str = setting(
        "H100",
        "GPU to rent from Modal: "
        f"{', '.join(modal_gpus.NAMES)}; also A10G (A10) and A100 (A100-40GB). Files are compiled for it too, unless runs go to this machine's own GPU. On the command line, the option is `--gpu`; commands that run no kernel, such as `compile`, compile for the GPU of `--gpu` even if this machine has another. `H100:2` requests two GPUs; a run on this machine then gets two of its GPUs, whatever their type. Any other NVIDIA GPU or architecture (`RTX 4090`, `sm_89`) "
        "is compiled for, but not rented: a run on Modal is then refused.",
        read=modal_gpus.compiled_for,
        mistaken=("", "no GPU is rented"),
    )
    gpus: tuple[str, ...] = setting(
        ("L4", "A100-80GB", "H100", "B200"),
        "GPUs on Modal for *Run on all*.",
        read=modal_gpus.spelled,
        mistaken=((), "none of them is rented"),
    )
    runner: str = setting(
        "auto",
        "Where kernels run: `local` is this machine's NVIDIA GPU, `modal` a GPU rented from Modal, `ssh:HOST` [a machine of "
        "your own](ssh.md). `auto`: this machine's if it has one, else Modal if there is a token.",
        read=ssh_hosts.place,
        mistaken=("local", "no GPU is rented"),
    )
    modal: Modal = dataclasses.field(default_factory=Modal)
    ssh: Ssh = dataclasses.field(default_factory=Ssh)
    device: int = setting(
        0, "Index of this machine's GPU, in NVML's order (as in `nvidia-smi`).", ge=0, le=63
    )
    python: str = setting(
        "",
        "Python that has your torch and triton. Empty: the first that exists of [this list](#which-python).",
    )
    nvcc: str = setting("", "CUDA compiler. Empty: CUDA_HOME, PATH, then the PyPI wheels.")
    nvcc_flags: tuple[str, ...] = setting(
        (),
        "Flags added to every nvcc call. A workspace that is not trusted may use only -D -U -I "
        "-isystem -std -O -arch -gencode -maxrregcount -Xptxas --use_fast_math and --expt-*.",
        workspace=True,
    )
    compile_commands: str = setting(
        "",
        "The project's `compile_commands.json`, or its folder, relative to the workspace folder. Empty: the "
        "nearest one in the usual places (build folders, the `binaryDir` of CMake's presets, the workspace folder).",
        workspace=True,
    )
    compile_on_save: bool = setting(
        True, "Compile .cu and .cuh files when they are opened and saved.", workspace=True
    )
    compile_on_idle: bool = setting(
        True,
        "Compile a .cu file also when you stop typing. orbit-lsp waits 50 to 500 ms, longer if the last compile was slow. "
        "Needs nvcc on this machine, and `compile_on_save`. A Triton file that was run or compiled before is compiled "
        "too, as long as you edit only the bodies of its kernels; this happens only in a trusted workspace, on a machine without a GPU.",
        workspace=True,
    )
    every_gpu: Literal["idle", "hover", "off"] = setting(
        "idle",
        "When an open file is compiled for every GPU of the hover's table (T4 to B200). `idle`: after each compile, once the machine "
        "is idle. `hover`: when a hover needs it. `off`: never. A Triton file "
        "must first be compiled for the chosen GPU, and once more after an edit; opening or saving it does not compile it.",
        workspace=True,
    )
    kernel_macros: tuple[str, ...] = setting(
        (),
        "Macros that mean `__global__`, if the server does not find their definition. "
        "Well-known ones (CUTLASS_GLOBAL, RAFT_KERNEL, …) are built in.",
        workspace=True,
    )
    arguments: tuple[str, ...] = setting((), "Command-line arguments of the program that a run starts.")
    environment: tuple[str, ...] = setting(
        (),
        "Names of environment variables to pass to the program, in addition to [these](#environment-variables).",
    )
    build_timeout_s: float = setting(120, "Limit of one build, in seconds.", gt=0)
    run_timeout_s: float = setting(60, "Limit of one run, in seconds.", gt=0)
    grade: Literal["author", "referee"] = setting(
        "author",
        "How a `ModelNew` (KernelBench) is measured. `author`: in the process that runs it. `referee`: from another "
        "process, so that it cannot cheat; Linux only, and the reference must be in a separate file "
        "([grades](api.md#grades)).",
    )
    allow: tuple[Literal["libraries", "precision"], ...] = setting(
        (),
        "With the grade `referee`, what a right answer may do and still get a score: `libraries`, leave the work to libraries' "
        "kernels; `precision`, compute in less than the reference's precision.",
    )
    spare_idle_s: float = setting(
        300,
        "How long a prepared Python process (torch imported, CUDA context open) waits for a run "
        "before it ends and frees its GPU memory, in seconds. 0: no process is kept.",
        ge=0,
    )
    shared_worker: bool = setting(
        True,
        "Share one worker between your editors and commands. The worker is the process that compiles and runs. `false`: each "
        "editor and each command starts its own. Linux only.",
    )
    cache_gib: float = setting(2, "Limit of the build cache on disk, in GiB.", ge=0)
    trusted: bool = setting(
        False,
        "Trust the workspace: use all of its settings, any compiler flag and its Python. Only your own settings can "
        "set this. Where it is not set, the folders of `orbit-lsp trust DIR` are trusted.",
    )
    doubled_errors: Literal["hide", "show"] = setting(
        "hide",
        "What to do if clangd and nvcc report an error on the same line about the same names. `hide`: nvcc's error is not "
        "shown. `show`: both are shown. Only for VS Code and Neovim; other editors show both.",
        workspace=True,
    )
    costs: CostSettings = dataclasses.field(default_factory=CostSettings)
    lens: Lens = dataclasses.field(default_factory=Lens)
    hints: Hints = dataclasses.field(default_factory=Hints)
    report: Report = dataclasses.field(default_factory=Report)
    profile: ProfileSettings = dataclasses.field(default_factory=ProfileSettings)
    live: Live = dataclasses.field(default_factory=Live)
    history: History = dataclasses.field(default_factory=History)
    check_memory: CheckMemory = dataclasses.field(default_factory=CheckMemory)
    log_level: Literal["debug", "info", "warning", "error"] = setting(
        "info", "Level of the server's log (stderr): `debug`, `info`, `warning` or `error`."
    )


def parse(raw: Any) -> tuple[Settings, tuple[str, ...]]:
    """Return settings, and a sentence for each value that was not valid. It never raises."""
    values = cast("dict[str, Any]", raw) if isinstance(raw, dict) else {}
    if isinstance(values.get("orbit"), dict):  # some clients send the section inside its own name
        values = cast("dict[str, Any]", values["orbit"])
    if raw and not isinstance(raw, dict):
        return Settings(), ("orbit settings are not an object; the defaults are used",)
    complaints = [
        f"orbit setting `{name.encode('unicode_escape').decode()}` is not known; docs/guide/settings.md lists the names"
        for name in values
        if name not in hints(Settings)
    ]
    return _group(Settings, values, "", complaints), tuple(complaints)


@functools.cache
def hints(group: type[Any]) -> dict[str, Any]:
    """Return the types of a group's fields."""
    return typing.get_type_hints(group)


def _group(group: type[T], values: Mapping[str, Any], prefix: str, complaints: list[str]) -> T:
    """Make a group of settings from the valid values."""
    valid: dict[str, Any] = {}
    for field in dataclasses.fields(cast("Any", group)):
        if field.name not in values:
            continue
        hint, value, name = hints(group)[field.name], values[field.name], prefix + field.name
        try:
            if dataclasses.is_dataclass(hint) and isinstance(value, dict):
                inner = cast("dict[str, Any]", value)
                valid[field.name] = _group(cast("type[Any]", hint), inner, f"{name}.", complaints)
            else:
                valid[field.name] = _value(hint, value, field.metadata)
        except ValueError as error:
            words = f"orbit setting `{name}`: {error}"
            if isinstance(error, _UnusableTextError):
                words = (
                    f"orbit setting `{name}` holds a NUL character or half a surrogate pair, which no path, argument or "
                    "name of a variable can"
                )
            consequence = _DEFAULT
            if mistaken := field.metadata.get("mistaken"):
                valid[field.name], consequence = mistaken[0], f"{_UNTIL}{mistaken[1]}"
            complaints.append(words + consequence)
    return group(**valid)


_DEFAULT = "; its default is used"
_UNTIL = "; until it is corrected, "


def reason(complaint: str) -> str:
    """Return what is wrong with a value, for a caller that then does nothing."""
    return complaint.removesuffix(_DEFAULT).rpartition(_UNTIL)[0] or complaint.removesuffix(_DEFAULT)


class _UnusableTextError(ValueError):
    """A text that no operating system accepts."""


def _value(hint: Any, value: Any, metadata: Mapping[str, Any]) -> Any:
    """Return the value in the type `hint`. Raises ValueError with what is wrong with it."""
    limits, read = metadata.get("limits", {}), metadata.get("read")
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise ValueError(f"{value!r:.60} is not a list")
        items = [_value(arguments[0], item, metadata) for item in cast("list[Any]", value)]
        if len(items) < limits.get("min_length", 0):
            raise ValueError("it is empty")
        return tuple(dict.fromkeys(items)) if read else tuple(items)
    if origin is Literal:
        if value not in arguments:
            raise ValueError(f"{value!r:.60} is not one of {', '.join(arguments)}")
        return value
    if isinstance(value, int | float) and not -float_info.max <= value <= float_info.max:
        raise ValueError("it is not finite, or too large")  # 1e999, or an integer beyond all floats
    if (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and hint in (int, float)
        and hint(value) == value
    ):
        value = hint(value)
    if type(value) is not hint:
        raise ValueError(f"{value!r:.60} is not {_TYPES.get(hint, 'an object')}")
    if hint is str:
        _check_text(str(value))
        return read(str(value)) if read else value
    _check_number(value, limits)
    return value


def _check_text(text: str) -> None:
    try:
        usable = b"\0" not in text.encode()
    except UnicodeEncodeError:
        usable = False
    if not usable:
        raise _UnusableTextError


def _check_number(number: float, limits: Mapping[str, Any]) -> None:
    if "ge" in limits and not number >= limits["ge"]:
        raise ValueError(f"{number:g} is less than {limits['ge']}")
    if "gt" in limits and not number > limits["gt"]:
        raise ValueError(f"{number:g} is not more than {limits['gt']}")
    if "le" in limits and not number <= limits["le"]:
        raise ValueError(f"{number:g} is more than {limits['le']}")


def combined(
    user: Mapping[str, Any], workspace: Mapping[str, Any], *, trusted: bool
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the values that hold, setting by setting, and the full names of the workspace's settings that do not
    hold because it is not trusted. The user's word wins, trusted or not. A setting of the workspace that changes
    nothing is not named.
    """
    own = _leaves(user)
    instead = own | dict.fromkeys(USERS_ALONE, False)
    permitted = {
        name
        for name, _, field in rows()
        if field.metadata["workspace"] or (trusted and name not in USERS_ALONE)
    }
    known = {name for name, _, _ in rows()}
    taken: dict[str, Any] = {}
    ignored: list[str] = []
    for name, value in _leaves(workspace).items():
        if name in permitted or name not in known:  # of a name that is not known `parse` complains
            taken[name] = value
        elif not trusted and _parsed(name, value) != _parsed(name, instead.get(name)):
            ignored.append(name)
    return _nested(taken | own), tuple(ignored)


def _leaves(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return full name -> value, as in `live.on`. Values of None are left out: they are not set. A group whose value is no
    object keeps its own name.
    """
    leaves: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict) and dataclasses.is_dataclass(hints(Settings).get(name)):
            inner = cast("dict[str, Any]", value)
            leaves |= {f"{name}.{each}": value for each, value in inner.items() if value is not None}
        elif value is not None:
            leaves[name] = value
    return leaves


def _nested(leaves: Mapping[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, value in leaves.items():
        group, dot, inner = name.partition(".")
        if dot and dataclasses.is_dataclass(hints(Settings).get(group)):
            held = values.get(group)
            values[group] = (cast("dict[str, Any]", held) if isinstance(held, dict) else {}) | {inner: value}
        elif not isinstance(values.get(name), dict):
            values[name] = value
    return values


def _parsed(name: str, value: Any) -> Any:
    """Return the value of a setting after parsing. None means its default."""
    parsed: Any = parse({} if value is None else _nested({name: value}))[0]
    for part in name.split("."):
        parsed = getattr(parsed, part, None)
    return parsed


def rows() -> list[tuple[str, Any, dataclasses.Field[Any]]]:
    """Return every setting's full name, type and field."""
    every: list[tuple[str, Any, dataclasses.Field[Any]]] = []
    for field in dataclasses.fields(Settings):
        hint = hints(Settings)[field.name]
        if not dataclasses.is_dataclass(hint):
            every.append((field.name, hint, field))
            continue
        of_group = hints(cast("type[Any]", hint))
        every += [
            (f"{field.name}.{inner.name}", of_group[inner.name], inner) for inner in dataclasses.fields(hint)
        ]
    return every


def markdown() -> str:
    """Return docs/guide/settings.md, made from the model."""
    lines = [
        f"| `orbit.{name}` | `{json.dumps(field.default, ensure_ascii=False)}` | {field.metadata['description']} | "
        f"{_who(name, field)} |"
        for name, _, field in rows()
    ]
    head = ["| setting | default | what it does | a workspace may set it |", "|---|---|---|---|"]
    return "\n".join([_ABOUT, *head, *lines, "", _WHICH_PYTHON])


def _who(name: str, field: dataclasses.Field[Any]) -> str:
    if name in USERS_ALONE:
        return "never"
    return "yes" if field.metadata["workspace"] else "if trusted"


_ABOUT = """\
# Settings

Generated by `orbit-lsp settings`; do not edit.

Your own settings override those of the workspace. Your own settings are VS Code's user settings, `initializationOptions` in
other editors, and options and variables on the command line. Settings of the workspace come from `.vscode/settings.json` in VS
Code, and from LSP's `workspace/configuration` in other editors; the command line reads none. Outside VS Code leave out `orbit.`
and nest the names: `{"modal": {"idle_s": 60}}` is `orbit.modal.idle_s`.

If you do not trust the workspace, orbit-lsp uses only its settings marked *yes* in the last column. One message names those that
it ignores. To trust it, use VS Code's workspace trust; elsewhere, your own setting `orbit.trusted` or `orbit-lsp trust DIR`;
`orbit-lsp trust --forget DIR` takes trust back. On the command line, `--trust` makes one command trust the project.
On the command line, trust covers the Python that the folder contains or names, and the compilers and compiler flags that its project's
build files name.

"""
_WHICH_PYTHON = """\
## Which Python

Triton files and launch specs run in the first of these that exists, in the editor and on the command line:

1. the setting `orbit.python`; if it is empty, in VS Code the environment selected in the Python extension;
2. the folder that the variable `UV_PROJECT_ENVIRONMENT` names, or `.venv` or `venv`, in the workspace folder or in a folder
   above it in the same project;
3. the active conda environment (`CONDA_PREFIX`, but not `base`), else the one that `environment.yml` names;
4. the pyenv version of `.python-version`;
5. Poetry's environment of `pyproject.toml`;
6. the active virtual environment (`VIRTUAL_ENV`);
7. the Python that orbit-lsp itself runs in.

orbit-lsp uses a Python that a folder contains or names only if you trust the folder. `orbit-lsp doctor`, and
in an editor the command `orbit.info`, show the Python and why it was chosen.

## Environment variables

A program that orbit-lsp runs gets only these variables of the editor or the shell, and those that `orbit.environment` names, so
that tokens and sockets stay out:

- paths: `PATH`, `HOME`, `TMPDIR`, `TMP`, `TEMP`, `LD_LIBRARY_PATH`, `LIBRARY_PATH`, `CPATH`, `PYTHONPATH`, `VIRTUAL_ENV`,
  `CONDA_PREFIX`
- the user and the terminal: `USER`, `LOGNAME`, `SHELL`, `LANG`, `LANGUAGE`, `TERM`, `TZ`
- all that begin with `LC_`, `XDG_`, `CUDA_`, `NVIDIA_`, `NV_`, `CUDNN_`, `CUBLAS_`, `NCCL_`, `TRITON_`, `TORCH_`, `PYTORCH_`,
  `TORCHINDUCTOR_`, `OMP_`, `MKL_` or `OPENBLAS_`
- `ORBIT_RECORD` ([how launches are recorded](../dev/measuring.md#what-recording-does-to-a-kernel)), `ORBIT_PACKAGES`, and on Windows the
  variables of the system

"""
