"""Settings: one model, from which docs/guide/settings.md is generated.

They come as initializationOptions and as flags of the command line, which are the user's own word, and as
`workspace/configuration` (section `orbit`), which may be a workspace's. The user's word wins. A workspace that is not
trusted sets only what is declared with `workspace=True`. A value that is not valid is named and its default used; the
others hold.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, cast

T = TypeVar("T")
GPUS = ("T4", "L4", "A10", "A100-40GB", "A100-80GB", "L40S", "RTX PRO 6000", "H100", "H200", "B200")
_GPU = rf"({'|'.join(GPUS)})(:[1-8])?"

EXECUTABLES = ("python", "nvcc")
"""Settings that name a program."""
USERS_ALONE = ("trusted",)
"""Settings that no workspace sets, trusted or not."""
_TYPES: dict[Any, tuple[str, str]] = {
    bool: ("boolean", "true or false"),
    int: ("integer", "a whole number"),
    float: ("number", "a number"),
    str: ("string", "text"),
}
"""A type's name in JSON schema, and in a message."""
_LIMITS = {
    "ge": "minimum",
    "le": "maximum",
    "gt": "exclusiveMinimum",
    "min_length": "minItems",
    "pattern": "pattern",
}


def setting(default: Any, description: str, *, workspace: bool = False, **limits: Any) -> Any:
    """A field of a group of settings. `limits` are `ge`, `le` and `gt` of a number, `min_length` of a list and
    `pattern` of a text or of the texts in a list. `workspace`: one that is not trusted may set it, because it starts
    nothing, spends nothing, deletes nothing and passes nothing on.
    """
    metadata = {"description": description, "limits": limits, "workspace": workspace}
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class Hints:
    """Which inlay hints are shown."""

    static: bool = setting(True, "Registers, shared memory, spills and occupancy.", workspace=True)
    measured: bool = setting(True, "Times and occupancy of the last run.", workspace=True)
    profile: bool = setting(
        True, "What the last profile found, on the kernel's line and on its hot lines.", workspace=True
    )


@dataclass(frozen=True, kw_only=True)
class Lens:
    """The row of lenses above a kernel."""

    parts: tuple[Literal["outcome", "verdict", "run", "profile"], ...] = setting(
        ("outcome", "verdict", "run", "profile"),
        "Parts of the row, in their order: `outcome` is how the last run ended and its time, `verdict` the bottleneck "
        "of the last profile, `run` and `profile` are commands. What is left out is not shown; every command is a "
        "code action too.",
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
    environment: str = setting("", "Modal's environment. Empty: that of Modal's own configuration.")
    pip: tuple[str, ...] = setting((), "Python packages to add to the image; torch and Triton are in it.")
    apt: tuple[str, ...] = setting((), "Ubuntu packages to add to the image.")
    data: tuple[str, ...] = setting(
        (),
        "Data files that a program reads, as patterns from the workspace folder "
        "(`data/*.bin`): they are sent with it. Includes and imports are always sent.",
    )
    files_mib: int = setting(256, "Limit of what is sent with a run, in MiB.", ge=1, le=1 << 20)
    restricted: bool = setting(
        False,
        "The code is not mine: every run gets a container of its own, without network or "
        "access to Modal. Its output comes at the end.",
    )
    keep_warm: bool = setting(
        False,
        "Keep the container of the first run on each GPU until it is released, as "
        "`orbit.keepWarm` does. It is billed all that time.",
    )
    budget_usd: float | None = setting(
        None,
        "Budget of a calendar month (UTC), in dollars. Before a run that may exceed it, or before a GPU is kept warm, "
        "the editor asks; if it cannot ask, the run is refused. null: no limit.",
        ge=0,
    )
    compile: bool = setting(
        False,
        "If this machine has no nvcc, compile on Modal when a file is opened or saved. No GPU is "
        "rented for it.",
    )


@dataclass(frozen=True, kw_only=True)
class Profile:
    """What a profile shows on the lines, and what is kept of it."""

    line_percent: float = setting(
        5,
        "A line shows its share of the kernel's warp samples, and its main stall, from this share on, in percent.",
        workspace=True,
        ge=0,
        le=100,
    )
    excess_percent: float = setting(
        10,
        "A line shows uncoalesced accesses, bank conflicts or local memory from this share of the kernel's "
        "such traffic on, in percent.",
        workspace=True,
        ge=0,
        le=100,
    )
    reports: int = setting(20, "How many of Nsight Compute's own reports are kept.", ge=1, le=1000)
    reports_mib: int = setting(256, "Limit of their total size, in MiB.", ge=1, le=1 << 20)


@dataclass(frozen=True, kw_only=True)
class History:
    """What is kept of runs and profiles over restarts."""

    keep: bool = setting(
        True,
        "Keep every run and profile of a kernel, with the file's text, in the user's state folder: "
        "results are back after a restart, and versions can be compared.",
    )
    mib: int = setting(
        256, "Limit of the history on disk, in MiB; the oldest runs are deleted.", ge=1, le=1 << 16
    )


@dataclass(frozen=True, kw_only=True)
class Live:
    """Kernels that are run again while they are edited."""

    on: Literal["save", "pause"] = setting(
        "save", "When *Live* runs a kernel again: when its file is saved, or when typing has paused."
    )
    pause_ms: int = setting(400, "Length of a pause in typing, in milliseconds.", ge=50, le=60_000)
    idle_s: int = setting(900, "Live ends after this long without a run, in seconds.", ge=1, le=86_400)


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
        120, "Limit of one of these tools, in seconds: under them a kernel runs 10 to 100 times longer.", gt=0
    )
    lens: bool = setting(
        False, "Show *Check memory* as a lens too; it is always a code action.", workspace=True
    )


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Diagnostics of what a kernel costs, by the compiler's figures."""

    spills: Literal["off", "hint", "warning"] = setting(
        "warning", "`register-spills`: registers that are stored in local memory, in bytes.", workspace=True
    )
    local_memory: Literal["off", "hint", "warning"] = setting(
        "hint", "`local-memory`: arrays of a thread that are not in registers.", workspace=True
    )
    shared_memory: Literal["off", "hint", "warning"] = setting(
        "warning", "`shared-memory`: a block needs more than the chosen GPU has.", workspace=True
    )
    block_size: Literal["off", "hint", "warning"] = setting(
        "warning",
        "`block-size`: a block larger than `__launch_bounds__`, its registers or the GPU allow.",
        workspace=True,
    )
    occupancy: Literal["off", "hint", "warning"] = setting(
        "hint",
        "`occupancy-step`: one register or 1 KiB of shared memory less would let another block reside.",
        workspace=True,
    )


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The section `orbit`."""

    gpu: str = setting(
        "H100",
        "GPU to rent from Modal, and to compile for if this machine has none: "
        f"{', '.join(GPUS)}; several of them as in `H100:2`.",
        pattern=_GPU,
    )
    gpus: tuple[str, ...] = setting(
        ("L4", "A100-80GB", "H100", "B200"),
        "GPUs on Modal for *Run on all*.",
        pattern=_GPU,
    )
    runner: Literal["auto", "local", "modal"] = setting(
        "auto",
        "Where kernels run: `local` is this machine's NVIDIA GPU, `modal` a GPU rented from Modal. "
        "`auto`: this machine's if it has one, else Modal if there is a token.",
    )
    modal: Modal = dataclasses.field(default_factory=Modal)
    device: int = setting(0, "Index of this machine's GPU, as NVML counts.", ge=0, le=63)
    python: str = setting(
        "",
        "Python that has your torch and triton. Empty: the environment of the workspace ([which one]"
        "(#which-python), trusted workspaces only), else the one that is active, else the server's own.",
    )
    nvcc: str = setting("", "CUDA compiler. Empty: CUDA_HOME, PATH, then the PyPI wheels.")
    nvcc_flags: tuple[str, ...] = setting(
        (),
        "Flags added to every nvcc call. A workspace that is not trusted may use only -D -U -I "
        "-isystem -std -O -arch -gencode -maxrregcount --use_fast_math and --expt-*.",
        workspace=True,
    )
    compile_commands: str = setting(
        "",
        "The project's `compile_commands.json`, or the folder that holds it, from the workspace folder on. Empty: the "
        "nearest one of the usual places (build folders, the `binaryDir` of CMake's presets, the workspace folder).",
        workspace=True,
    )
    compile_on_save: bool = setting(
        True, "Compile .cu and .cuh files when they are opened and saved.", workspace=True
    )
    compile_on_idle: bool = setting(
        True,
        "Compile a .cu file also once typing in it has paused, for 50 to 500 ms by what its last compile took. Only where "
        "this machine has nvcc, and with `compile_on_save`.",
        workspace=True,
    )
    every_gpu: Literal["idle", "hover", "off"] = setting(
        "idle",
        "When the kernels of an open .cu file are compiled for every GPU that the hover compares: once the machine is "
        "idle after a compile (and for a hover), for a hover alone, or never.",
        workspace=True,
    )
    kernel_macros: tuple[str, ...] = setting(
        (),
        "Macros that mean `__global__` and are defined where the server cannot see them; "
        "well-known ones (CUTLASS_GLOBAL, RAFT_KERNEL, …) are built in.",
        workspace=True,
    )
    arguments: tuple[str, ...] = setting((), "Command-line arguments of the program that a run starts.")
    environment: tuple[str, ...] = setting(
        (), "Names of further environment variables to pass to the program."
    )
    build_timeout_s: float = setting(120, "Limit of one build, in seconds.", gt=0)
    run_timeout_s: float = setting(60, "Limit of one run, in seconds.", gt=0)
    spare_idle_s: float = setting(
        300,
        "How long a prepared Python process (torch imported, CUDA context open) waits for a run "
        "before it ends and gives its GPU memory back, in seconds. 0: none is kept.",
        ge=0,
    )
    shared_worker: bool = setting(
        True,
        "Share one worker - the process that compiles and runs - between this user's editors and commands. false: each "
        "editor and each command starts its own. Linux only.",
    )
    cache_gib: float = setting(2, "Limit of the build cache on disk, in GiB.", ge=0)
    trusted: bool = setting(
        False,
        "The workspace is trusted: all of its settings and any compiler flag of it are used, and its Python is. "
        "Only the user's own settings say so, or `orbit-lsp trust DIR`, which is remembered and counts where this is "
        "not set.",
    )
    doubled_errors: Literal["hide", "show"] = setting(
        "hide",
        "nvcc's error on a line where clangd shows an error about the same names: `hide` nvcc's, or `show` "
        "both. Only in VS Code and Neovim; other editors show both.",
        workspace=True,
    )
    costs: Costs = dataclasses.field(default_factory=Costs)
    lens: Lens = dataclasses.field(default_factory=Lens)
    hints: Hints = dataclasses.field(default_factory=Hints)
    profile: Profile = dataclasses.field(default_factory=Profile)
    live: Live = dataclasses.field(default_factory=Live)
    history: History = dataclasses.field(default_factory=History)
    check_memory: CheckMemory = dataclasses.field(default_factory=CheckMemory)
    log_level: Literal["debug", "info", "warning", "error"] = setting(
        "info", "Level of the server's log (stderr)."
    )


def parse(raw: Any) -> tuple[Settings, tuple[str, ...]]:
    """Settings and a sentence for each value that was not valid; never raises."""
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
    """The types of a group's fields."""
    return typing.get_type_hints(group)


def _group(group: type[T], values: Mapping[str, Any], prefix: str, complaints: list[str]) -> T:
    """A group of settings from what is valid of `values`."""
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
                valid[field.name] = _value(hint, value, field.metadata.get("limits", {}))
        except _UnusableTextError:
            complaints.append(
                f"orbit setting `{name}` holds a NUL character or half a surrogate pair, which no path, argument or "
                "name of a variable can; its default is used"
            )
        except ValueError as error:
            complaints.append(f"orbit setting `{name}`: {error}; its default is used")
    return group(**valid)


class _UnusableTextError(ValueError):
    """A text that no operating system takes."""


def _value(hint: Any, value: Any, limits: Mapping[str, Any]) -> Any:
    """The value as `hint` has it. Raises ValueError with what is wrong with it."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is types.UnionType:
        return None if value is None else _value(arguments[0], value, limits)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise ValueError(f"{value!r:.60} is not a list")
        items = [_value(arguments[0], item, limits) for item in cast("list[Any]", value)]
        if len(items) < limits.get("min_length", 0):
            raise ValueError("it is empty")
        return tuple(dict.fromkeys(items)) if "pattern" in limits else tuple(items)
    if origin is Literal:
        if value not in arguments:
            raise ValueError(f"{value!r:.60} is not one of {', '.join(arguments)}")
        return value
    if (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and hint in (int, float)
        and hint(value) == value
    ):
        value = hint(value)
    if type(value) is not hint:
        raise ValueError(f"{value!r:.60} is not {_TYPES[hint][1] if hint in _TYPES else 'an object'}")
    if hint is str:
        _check_text(str(value), limits)
    else:
        _check_number(value, limits)
    return value


def _check_text(text: str, limits: Mapping[str, Any]) -> None:
    try:
        usable = b"\0" not in text.encode()
    except UnicodeEncodeError:
        usable = False
    if not usable:
        raise _UnusableTextError
    if "pattern" in limits and not re.fullmatch(limits["pattern"], text):
        raise ValueError(f"{text!r:.60} is not one of {', '.join(GPUS)}, with `:2` to `:8` for several")


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
    """The values that hold, setting by setting, and the full names of those of the workspace that do not because it is
    not trusted. The user's word wins, trusted or not; what a workspace sets to what holds anyway is not named.
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
    """Full name -> value; None is what is not set. A group that is no object stands under its own name."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict) and dataclasses.is_dataclass(hints(Settings).get(name)):
            inner = cast("dict[str, Any]", value)
            found |= {f"{name}.{each}": one for each, one in inner.items() if one is not None}
        elif value is not None:
            found[name] = value
    return found


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
    """What a value of a setting comes to, None being its default."""
    found: Any = parse({} if value is None else _nested({name: value}))[0]
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def rows() -> list[tuple[str, Any, dataclasses.Field[Any]]]:
    """Every setting's full name, type and field."""
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
    """docs/guide/settings.md, from the model."""
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

Your own settings come first, whatever a workspace says: in VS Code the user's settings, in other editors
`initializationOptions`, on the command line its options. A folder speaks through `workspace/configuration` (in VS Code its
`.vscode/settings.json`) and `compile_commands.json`. Of a folder that is not trusted only what the last column says is
used, and one message names what was ignored. A folder is trusted if VS Code's workspace trust or your own setting
`trusted` says so, or after `orbit-lsp trust DIR`; the command line has `--trust` for a single command.
"""
_WHICH_PYTHON = """\
## Which Python

Triton files and launch specs run in the first Python of these, in the editor and on the command line:

1. the setting `python`; in VS Code, where that is empty, the environment selected in the Python extension;
2. `UV_PROJECT_ENVIRONMENT`, `.venv` or `venv` of the workspace folder, else of a folder above it in the same git
   repository;
3. the active conda environment (`CONDA_PREFIX`, but not `base`), else the one that `environment.yml` names;
4. the pyenv version of `.python-version`;
5. Poetry's environment of `pyproject.toml`;
6. the active virtual environment (`VIRTUAL_ENV`);
7. the Python that orbit-lsp itself runs in.

What a folder brings along or names is used only if the folder is trusted. `orbit-lsp doctor` and `orbit.info` name the
Python and where it comes from.
"""


def json_schema(hint: Any, field: dataclasses.Field[Any]) -> dict[str, Any]:
    """A setting as JSON schema has it."""
    limits = {_LIMITS[name]: value for name, value in field.metadata["limits"].items()}
    if pattern := limits.pop("pattern", None):
        limits["pattern"] = f"^{pattern}$"
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple:
        of_items = {"pattern": limits.pop("pattern")} if "pattern" in limits else {}
        shape = {"type": "array", "items": _schema_type(arguments[0]) | of_items}
    elif origin is types.UnionType:
        shape = {"type": [_schema_type(arguments[0])["type"], "null"]}
    else:
        shape = _schema_type(hint)
    return shape | limits | {"default": field.default, "description": field.metadata["description"]}


def _schema_type(hint: Any) -> dict[str, Any]:
    if typing.get_origin(hint) is Literal:
        return {"type": "string", "enum": list(typing.get_args(hint))}
    return {"type": _TYPES[hint][0]}
