"""Settings: one model, from which docs/settings.md is generated.

They come as initializationOptions, as `workspace/configuration` (section `orbit`) and as flags of
the command line. A value that is not valid is named and its default used; the others hold.
"""

from __future__ import annotations

import re
from typing import Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic.fields import FieldInfo

GPUS = ("T4", "L4", "A10", "A100-40GB", "A100-80GB", "L40S", "RTX PRO 6000", "H100", "H200", "B200")
_GPU = rf"({'|'.join(GPUS)})(:[1-8])?"

EXECUTABLES = ("python", "nvcc")
"""Settings that name a program: a workspace may set them only when it is trusted."""
RENTING = ("modal",)
"""Settings that say what is rented and what is installed there: the same rule."""


class Hints(BaseModel):
    """Which inlay hints are shown."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    static: bool = Field(default=True, description="Registers, shared memory, spills and occupancy.")
    measured: bool = Field(default=True, description="Times and occupancy of the last run.")
    profile: bool = Field(
        default=True, description="What the last profile found, on the kernel's line and on its hot lines."
    )


class Modal(BaseModel):
    """GPUs rented from Modal."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    idle_s: int = Field(
        default=300,
        ge=2,
        le=3600,
        description="How long a container waits for another run before it ends, in seconds; it is billed "
        "while it waits.",
    )
    environment: str = Field(
        default="", description="Modal's environment. Empty: the one that Modal's own configuration names."
    )
    pip: list[str] = Field(
        default_factory=list, description="Packages for Python that the image has besides torch and Triton."
    )
    apt: list[str] = Field(default_factory=list, description="Ubuntu packages that the image has besides.")
    data: list[str] = Field(
        default_factory=list,
        description="Data files that a program reads, as patterns from the workspace folder "
        "(`data/*.bin`): they travel with it. Includes and imports do so by themselves.",
    )
    files_mib: int = Field(default=256, ge=1, le=1 << 20, description="What may travel with one run, in MiB.")
    restricted: bool = Field(
        default=False,
        description="The code is not mine: every run gets a container of its own, without network and "
        "without access to Modal, and its output comes at the end.",
    )
    keep_warm: bool = Field(
        default=False,
        description="Keep the container of the first run on each GPU until it is released, as "
        "`orbit.keepWarm` does: it is billed all the while.",
    )
    budget_usd: float | None = Field(
        default=None,
        ge=0,
        description="Dollars that a calendar month (UTC) may cost. A run that may pass it is asked about "
        "first, or refused where the editor cannot ask. null: no limit.",
    )
    compile: bool = Field(
        default=False,
        description="Where this machine has no nvcc, compile on Modal (no GPU is rented for it) whenever a "
        "file is opened and saved.",
    )


class Profile(BaseModel):
    """What a profile shows on the lines, and what is kept of it."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    line_percent: float = Field(
        default=5,
        ge=0,
        le=100,
        description="A line says its share of the kernel's warp samples, and its main stall, from this on, in per "
        "cent.",
    )
    excess_percent: float = Field(
        default=10,
        ge=0,
        le=100,
        description="A line says that its global accesses are uncoalesced, that its shared memory has bank conflicts "
        "or that it uses local memory where that is at least this share of all such traffic of the kernel, in per cent.",
    )
    reports: int = Field(
        default=20, ge=1, le=1000, description="How many of Nsight Compute's own reports are kept."
    )
    reports_mib: int = Field(
        default=256, ge=1, le=1 << 20, description="How much room they may take together, in MiB."
    )


class History(BaseModel):
    """What is kept of runs and profiles over restarts."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    keep: bool = Field(
        default=True,
        description="Keep every run and profile of a kernel, with the file's text, in the user's state folder: "
        "results are back after a restart, and versions can be compared.",
    )
    mib: int = Field(
        default=256,
        ge=1,
        le=1 << 16,
        description="What the history may take on disk, in MiB: the oldest goes.",
    )


class Live(BaseModel):
    """Kernels that are run again while they are edited."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    on: Literal["save", "pause"] = Field(
        default="save",
        description="When *Live* runs a kernel again: when its file is saved, or when typing has paused.",
    )
    pause_ms: int = Field(
        default=400, ge=50, le=60_000, description="How long a pause in typing is, in milliseconds."
    )
    idle_s: int = Field(
        default=900,
        ge=1,
        le=86_400,
        description="Live ends by itself when nothing has been run for this long, in seconds.",
    )


class CheckMemory(BaseModel):
    """compute-sanitizer."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    tools: list[Literal["memcheck", "racecheck", "initcheck", "synccheck"]] = Field(
        default_factory=lambda: ["memcheck", "racecheck", "initcheck", "synccheck"],
        min_length=1,
        description="Tools of compute-sanitizer that *Check memory* runs, one after another: addresses, races over "
        "shared memory, reads of what nobody has written, barriers.",
    )
    timeout_s: float = Field(
        default=120,
        gt=0,
        description="Limit of one of these tools, in seconds: under them a kernel runs 10 to 100 times longer.",
    )
    lens: bool = Field(default=False, description="A lens for it; the code action is always there.")


class Settings(BaseModel):
    """The section `orbit`."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    gpu: str = Field(
        default="H100",
        description="GPU that runs on Modal get, and that static figures are computed for where this "
        f"machine has none of its own: {', '.join(GPUS)}; several of them as in `H100:2`.",
        json_schema_extra={"pattern": f"^{_GPU}$"},
    )
    gpus: list[str] = Field(
        default_factory=lambda: ["L4", "A100-80GB", "H100", "B200"],
        description="GPUs on Modal that *Run on all* runs a kernel on side by side.",
        json_schema_extra={"items": {"type": "string", "pattern": f"^{_GPU}$"}},
    )
    runner: Literal["auto", "local", "modal"] = Field(
        default="auto",
        description="Where kernels run: `local` is this machine's own NVIDIA GPU, `modal` one rented from "
        "Modal. `auto`: this machine's own where it has one, else Modal where there is a token for it.",
    )
    modal: Modal = Field(default_factory=Modal, description="GPUs rented from Modal.")
    device: int = Field(default=0, ge=0, le=63, description="Index of this machine's GPU, as NVML counts.")
    python: str = Field(
        default="",
        description="Python that holds your torch and triton. Empty: the workspace's virtual environment "
        "(`.venv` or `venv`, trusted workspaces only), else the server's own.",
    )
    nvcc: str = Field(default="", description="CUDA compiler. Empty: CUDA_HOME, PATH, then the PyPI wheels.")
    nvcc_flags: list[str] = Field(
        default_factory=list,
        description="Flags added to every nvcc call. A workspace that is not trusted may use only -D -U -I "
        "-isystem -std -O -arch -gencode -maxrregcount --use_fast_math and --expt-*.",
    )
    compile_on_save: bool = Field(
        default=True, description="Compile .cu and .cuh files when they are opened and saved."
    )
    kernel_macros: list[str] = Field(
        default_factory=list,
        description="Macros that stand for `__global__` and are defined where the server cannot see them; "
        "well-known ones (CUTLASS_GLOBAL, RAFT_KERNEL, …) are built in.",
    )
    arguments: list[str] = Field(
        default_factory=list, description="Command-line arguments of the program that a run starts."
    )
    environment: list[str] = Field(
        default_factory=list,
        description="Names of environment variables passed to the program besides the usual ones.",
    )
    build_timeout_s: float = Field(default=120, gt=0, description="Limit of one build, in seconds.")
    run_timeout_s: float = Field(default=60, gt=0, description="Limit of one run, in seconds.")
    spare_idle_s: float = Field(
        default=300,
        ge=0,
        description="How long a prepared Python child (torch imported, CUDA context open) waits for a run "
        "before it ends and gives its GPU memory back, in seconds. 0: none is kept.",
    )
    cache_gib: float = Field(default=2, ge=0, description="Bound of the build cache on disk, in GiB.")
    trusted: bool = Field(
        default=False,
        description="The workspace is trusted: its settings may name programs and any compiler flag, and "
        "its virtual environment is used.",
    )
    doubled_errors: Literal["hide", "show"] = Field(
        default="hide",
        description="nvcc's error on a line where clangd shows an error about the same names: `hide` nvcc's, or `show` "
        "both. The editor's own part does it, in VS Code and Neovim; other editors show both.",
    )
    hints: Hints = Field(default_factory=Hints, description="Which inlay hints are shown.")
    profile: Profile = Field(
        default_factory=Profile, description="What a profile shows on the lines, and what is kept of it."
    )
    live: Live = Field(default_factory=Live, description="Kernels that are run again while they are edited.")
    history: History = Field(
        default_factory=History, description="What is kept of runs and profiles over restarts."
    )
    check_memory: CheckMemory = Field(default_factory=CheckMemory, description="compute-sanitizer.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="How much the server's log (stderr) says."
    )

    @field_validator("gpu")
    @classmethod
    def _known_gpu(cls, gpu: str) -> str:
        if not re.fullmatch(_GPU, gpu):
            raise ValueError(f"{gpu!r:.60} is none of {', '.join(GPUS)}, with `:2` to `:8` for several")
        return gpu

    @field_validator("gpus")
    @classmethod
    def _known_gpus(cls, gpus: list[str]) -> list[str]:
        return [cls._known_gpu(gpu) for gpu in dict.fromkeys(gpus)]


def parse(raw: Any) -> tuple[Settings, tuple[str, ...]]:
    """Settings and a sentence for each value that was not valid; never raises."""
    values = cast("dict[str, Any]", raw) if isinstance(raw, dict) else {}
    if isinstance(values.get("orbit"), dict):  # some clients send the section inside its own name
        values = cast("dict[str, Any]", values["orbit"])
    if raw and not isinstance(raw, dict):
        return Settings(), ("orbit settings are not an object; the defaults are used",)
    complaints = [
        f"orbit setting `{name.encode('unicode_escape').decode()}` is not known; docs/settings.md lists the names"
        for name in values
        if name not in Settings.model_fields
    ]
    no_text = [
        name for name, value in values.items() if name in Settings.model_fields and not _is_text(value)
    ]
    complaints += [
        f"orbit setting `{name}` holds a NUL character or half a surrogate pair, which no path, argument or "
        "name of a variable can; its default is used"
        for name in no_text
    ]
    values = {name: value for name, value in values.items() if name not in no_text}
    for _ in range(len(values) + 1):
        try:
            return Settings.model_validate(values), tuple(complaints)
        except ValidationError as error:
            for mistake in error.errors():
                where = ".".join(map(str, mistake["loc"]))
                complaints.append(
                    f"orbit setting `{where}`: {mistake['msg'].removeprefix('Value error, ')}; its default is used"
                )
            wrong = {str(mistake["loc"][0]) for mistake in error.errors()}
            values = {name: value for name, value in values.items() if name not in wrong}
    return Settings(), tuple(complaints)


def same(name: str, value: Any, other: Any) -> bool:
    """Whether two values of a setting come to the same, None being its default."""
    given, instead = ({} if one is None else {name: one} for one in (value, other))
    return getattr(parse(given)[0], name) == getattr(parse(instead)[0], name)


def _is_text(value: Any) -> bool:
    """Whether an operating system can be given the strings in a value of JSON."""
    if isinstance(value, str):
        try:
            return b"\0" not in value.encode()
        except UnicodeEncodeError:
            return False
    if isinstance(value, list):
        return all(map(_is_text, cast("list[Any]", value)))
    return True


def markdown() -> str:
    """docs/settings.md, from the model."""
    rows = ["| setting | default | what it does |", "|---|---|---|"]
    for name, info in Settings.model_fields.items():
        if isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel):
            for inner, detail in info.annotation.model_fields.items():
                rows.append(_row(f"{name}.{inner}", detail))
            continue
        rows.append(_row(name, info))
    return "\n".join(["# Settings", "", "Generated by `orbit-lsp settings`; do not edit.", "", *rows, ""])


def _row(name: str, info: FieldInfo) -> str:
    default = _literal(info.get_default(call_default_factory=True))
    return f"| `orbit.{name}` | `{default}` | {info.description} |"


def _literal(value: Any) -> str:
    import json

    return json.dumps(value, ensure_ascii=False)
