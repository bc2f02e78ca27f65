"""Settings: one model, from which docs/guide/settings.md is generated.

They come as initializationOptions, as `workspace/configuration` (section `orbit`) and as flags of
the command line. A value that is not valid is named and its default used; the others hold.
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
"""Settings that name a program: a workspace may set them only when it is trusted."""
RENTING = ("modal",)
"""Settings that say what is rented and what is installed there: the same rule."""
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


def setting(default: Any, description: str, **limits: Any) -> Any:
    """A field of a group of settings. `limits` are `ge`, `le` and `gt` of a number, `min_length` of a list and
    `pattern` of a text or of the texts in a list.
    """
    return dataclasses.field(default=default, metadata={"description": description, "limits": limits})


@dataclass(frozen=True, kw_only=True)
class Hints:
    """Which inlay hints are shown."""

    static: bool = setting(True, "Registers, shared memory, spills and occupancy.")
    measured: bool = setting(True, "Times and occupancy of the last run.")
    profile: bool = setting(True, "What the last profile found, on the kernel's line and on its hot lines.")


@dataclass(frozen=True, kw_only=True)
class Modal:
    """GPUs rented from Modal."""

    idle_s: int = setting(
        300,
        "How long a container waits for another run before it ends, in seconds; it is billed while it waits.",
        ge=2,
        le=3600,
    )
    environment: str = setting(
        "", "Modal's environment. Empty: the one that Modal's own configuration names."
    )
    pip: tuple[str, ...] = setting((), "Packages for Python that the image has besides torch and Triton.")
    apt: tuple[str, ...] = setting((), "Ubuntu packages that the image has besides.")
    data: tuple[str, ...] = setting(
        (),
        "Data files that a program reads, as patterns from the workspace folder "
        "(`data/*.bin`): they travel with it. Includes and imports do so by themselves.",
    )
    files_mib: int = setting(256, "What may travel with one run, in MiB.", ge=1, le=1 << 20)
    restricted: bool = setting(
        False,
        "The code is not mine: every run gets a container of its own, without network and "
        "without access to Modal, and its output comes at the end.",
    )
    keep_warm: bool = setting(
        False,
        "Keep the container of the first run on each GPU until it is released, as "
        "`orbit.keepWarm` does: it is billed all the while.",
    )
    budget_usd: float | None = setting(
        None,
        "Dollars that a calendar month (UTC) may cost. A run that may pass it is asked about "
        "first, or refused where the editor cannot ask. null: no limit.",
        ge=0,
    )
    compile: bool = setting(
        False,
        "Where this machine has no nvcc, compile on Modal (no GPU is rented for it) whenever a "
        "file is opened and saved.",
    )


@dataclass(frozen=True, kw_only=True)
class Profile:
    """What a profile shows on the lines, and what is kept of it."""

    line_percent: float = setting(
        5,
        "A line says its share of the kernel's warp samples, and its main stall, from this on, in per cent.",
        ge=0,
        le=100,
    )
    excess_percent: float = setting(
        10,
        "A line says that its global accesses are uncoalesced, that its shared memory has bank conflicts "
        "or that it uses local memory where that is at least this share of all such traffic of the kernel, in per cent.",
        ge=0,
        le=100,
    )
    reports: int = setting(20, "How many of Nsight Compute's own reports are kept.", ge=1, le=1000)
    reports_mib: int = setting(256, "How much room they may take together, in MiB.", ge=1, le=1 << 20)


@dataclass(frozen=True, kw_only=True)
class History:
    """What is kept of runs and profiles over restarts."""

    keep: bool = setting(
        True,
        "Keep every run and profile of a kernel, with the file's text, in the user's state folder: "
        "results are back after a restart, and versions can be compared.",
    )
    mib: int = setting(256, "What the history may take on disk, in MiB: the oldest goes.", ge=1, le=1 << 16)


@dataclass(frozen=True, kw_only=True)
class Live:
    """Kernels that are run again while they are edited."""

    on: Literal["save", "pause"] = setting(
        "save", "When *Live* runs a kernel again: when its file is saved, or when typing has paused."
    )
    pause_ms: int = setting(400, "How long a pause in typing is, in milliseconds.", ge=50, le=60_000)
    idle_s: int = setting(
        900, "Live ends by itself when nothing has been run for this long, in seconds.", ge=1, le=86_400
    )


@dataclass(frozen=True, kw_only=True)
class CheckMemory:
    """compute-sanitizer."""

    tools: tuple[Literal["memcheck", "racecheck", "initcheck", "synccheck"], ...] = setting(
        ("memcheck", "racecheck", "initcheck", "synccheck"),
        "Tools of compute-sanitizer that *Check memory* runs, one after another: addresses, races over "
        "shared memory, reads of what nobody has written, barriers.",
        min_length=1,
    )
    timeout_s: float = setting(
        120, "Limit of one of these tools, in seconds: under them a kernel runs 10 to 100 times longer.", gt=0
    )
    lens: bool = setting(False, "A lens for it; the code action is always there.")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The section `orbit`."""

    gpu: str = setting(
        "H100",
        "GPU that runs on Modal get, and that static figures are computed for where this "
        f"machine has none of its own: {', '.join(GPUS)}; several of them as in `H100:2`.",
        pattern=_GPU,
    )
    gpus: tuple[str, ...] = setting(
        ("L4", "A100-80GB", "H100", "B200"),
        "GPUs on Modal that *Run on all* runs a kernel on side by side.",
        pattern=_GPU,
    )
    runner: Literal["auto", "local", "modal"] = setting(
        "auto",
        "Where kernels run: `local` is this machine's own NVIDIA GPU, `modal` one rented from "
        "Modal. `auto`: this machine's own where it has one, else Modal where there is a token for it.",
    )
    modal: Modal = dataclasses.field(default_factory=Modal)
    device: int = setting(0, "Index of this machine's GPU, as NVML counts.", ge=0, le=63)
    python: str = setting(
        "",
        "Python that holds your torch and triton. Empty: the workspace's virtual environment "
        "(`.venv` or `venv`, trusted workspaces only), else the server's own.",
    )
    nvcc: str = setting("", "CUDA compiler. Empty: CUDA_HOME, PATH, then the PyPI wheels.")
    nvcc_flags: tuple[str, ...] = setting(
        (),
        "Flags added to every nvcc call. A workspace that is not trusted may use only -D -U -I "
        "-isystem -std -O -arch -gencode -maxrregcount --use_fast_math and --expt-*.",
    )
    compile_on_save: bool = setting(True, "Compile .cu and .cuh files when they are opened and saved.")
    kernel_macros: tuple[str, ...] = setting(
        (),
        "Macros that stand for `__global__` and are defined where the server cannot see them; "
        "well-known ones (CUTLASS_GLOBAL, RAFT_KERNEL, …) are built in.",
    )
    arguments: tuple[str, ...] = setting((), "Command-line arguments of the program that a run starts.")
    environment: tuple[str, ...] = setting(
        (), "Names of environment variables passed to the program besides the usual ones."
    )
    build_timeout_s: float = setting(120, "Limit of one build, in seconds.", gt=0)
    run_timeout_s: float = setting(60, "Limit of one run, in seconds.", gt=0)
    spare_idle_s: float = setting(
        300,
        "How long a prepared Python child (torch imported, CUDA context open) waits for a run "
        "before it ends and gives its GPU memory back, in seconds. 0: none is kept.",
        ge=0,
    )
    cache_gib: float = setting(2, "Bound of the build cache on disk, in GiB.", ge=0)
    trusted: bool = setting(
        False,
        "The workspace is trusted: its settings may name programs and any compiler flag, and "
        "its virtual environment is used.",
    )
    doubled_errors: Literal["hide", "show"] = setting(
        "hide",
        "nvcc's error on a line where clangd shows an error about the same names: `hide` nvcc's, or `show` "
        "both. The editor's own part does it, in VS Code and Neovim; other editors show both.",
    )
    hints: Hints = dataclasses.field(default_factory=Hints)
    profile: Profile = dataclasses.field(default_factory=Profile)
    live: Live = dataclasses.field(default_factory=Live)
    history: History = dataclasses.field(default_factory=History)
    check_memory: CheckMemory = dataclasses.field(default_factory=CheckMemory)
    log_level: Literal["debug", "info", "warning", "error"] = setting(
        "info", "How much the server's log (stderr) says."
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
            raise ValueError(f"{value!r:.60} is none of {', '.join(arguments)}")
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
        raise ValueError(f"{text!r:.60} is none of {', '.join(GPUS)}, with `:2` to `:8` for several")


def _check_number(number: float, limits: Mapping[str, Any]) -> None:
    if "ge" in limits and not number >= limits["ge"]:
        raise ValueError(f"{number:g} is less than {limits['ge']}")
    if "gt" in limits and not number > limits["gt"]:
        raise ValueError(f"{number:g} is not more than {limits['gt']}")
    if "le" in limits and not number <= limits["le"]:
        raise ValueError(f"{number:g} is more than {limits['le']}")


def same(name: str, value: Any, other: Any) -> bool:
    """Whether two values of a setting come to the same, None being its default."""
    given, instead = ({} if each is None else {name: each} for each in (value, other))
    return getattr(parse(given)[0], name) == getattr(parse(instead)[0], name)


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
        f"| `orbit.{name}` | `{json.dumps(field.default, ensure_ascii=False)}` | {field.metadata['description']} |"
        for name, _, field in rows()
    ]
    head = ["# Settings", "", "Generated by `orbit-lsp settings`; do not edit.", ""]
    return "\n".join([*head, "| setting | default | what it does |", "|---|---|---|", *lines, ""])


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
