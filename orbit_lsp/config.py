"""Settings: one model, from which docs/settings.md is generated.

They come as initializationOptions, as `workspace/configuration` (section `orbit`) and as flags of
the command line. A value that is not valid is named and its default used; the others hold.
"""

from __future__ import annotations

from typing import Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

Gpu = Literal[
    "T4", "L4", "A10", "A100-40GB", "A100-80GB", "L40S", "RTX PRO 6000", "H100", "H200", "B200"
]  # fmt: skip

EXECUTABLES = ("python", "nvcc")
"""Settings that name a program: a workspace may set them only when it is trusted."""


class Hints(BaseModel):
    """Which inlay hints are shown."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    static: bool = Field(default=True, description="Registers, shared memory, spills and occupancy.")
    measured: bool = Field(default=True, description="Times and occupancy of the last run.")


class Settings(BaseModel):
    """The section `orbit`."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    gpu: Gpu = Field(
        default="H100",
        description="GPU that static figures are computed for where this machine has none of its own, "
        "and the name on the lens.",
    )
    runner: Literal["auto", "local"] = Field(
        default="auto", description="Where kernels run: `local` is this machine's own NVIDIA GPU."
    )
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
    hints: Hints = Field(default_factory=Hints, description="Which inlay hints are shown.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="How much the server's log (stderr) says."
    )


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
                complaints.append(f"orbit setting `{where}`: {mistake['msg']}; its default is used")
            wrong = {str(mistake["loc"][0]) for mistake in error.errors()}
            values = {name: value for name, value in values.items() if name not in wrong}
    return Settings(), tuple(complaints)


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
                rows.append(
                    f"| `orbit.{name}.{inner}` | `{_literal(detail.default)}` | {detail.description} |"
                )
            continue
        default = info.get_default(call_default_factory=True)
        rows.append(f"| `orbit.{name}` | `{_literal(default)}` | {info.description} |")
    return "\n".join(["# Settings", "", "Generated by `orbit-lsp settings`; do not edit.", "", *rows, ""])


def _literal(value: Any) -> str:
    import json

    return json.dumps(value, ensure_ascii=False)
