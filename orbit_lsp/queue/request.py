"""What a job asks for, in the form that every door uses, and the rules for it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path, PurePosixPath
from typing import Any, Literal, cast, get_args

from orbit_lsp import kernels
from orbit_lsp.profile.sections import SECTIONS
from orbit_remote.common import architectures, limits, nvcc_flags, regular_files
from orbit_remote.common.contracts import harness_files
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.requests import Grade, Level, Policy

VERSION = 1
"""Of `Request`, and of what a job's record says. Raised when a field changes its meaning."""
MOST_TIMEOUT_S = 3600.0
Action = Literal["run", "profile", "check", "compile", "compare"]
Priority = Literal["high", "normal", "low"]
Detail = Literal["click", "full"]
ACTIONS: tuple[Action, ...] = ("run", "profile", "check", "compile", "compare")
PRIORITIES: tuple[Priority, ...] = ("high", "normal", "low")
DETAILS: tuple[Detail, ...] = ("click", "full")
GRADES: tuple[Grade, ...] = get_args(Grade)
POLICIES: tuple[Policy, ...] = get_args(Policy)
CHECKS = ("memcheck", "racecheck", "initcheck", "synccheck")
_NAME = re.compile(r"[\w.+-]{1,120}")
_SMALL = 1 << 20
_HALF = re.compile("[\ud800-\udfff]")
_KEY = re.compile(r"[\x21-\x7e]{1,200}")


class RequestRefusedError(ValueError):
    """The request cannot become a job. The text is the sentence to show."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One job. `text` is the source and `name` its file's name; `path` is where the author has it, empty where it came as
    text alone: it then stands in a folder of its own, with `files` (paths relative to it -> contents) beside it.

    `kernel` is run by its launch spec; without it a file is run as its program, its contract, or its only launch spec. It is run `through` a
    test, script or program of its project, if that is named: its id, or `auto` for the best one.
    `against` is a file's path or, with `against_text`, the name of a text that `compare` runs in turn with `text`; `path`
    itself for an earlier text of that file.
    `sections` of Nsight Compute are what a `profile` collects; of a `run` it is what a profile after it collects.
    `levels` are those that a `compile` keeps of what the compiler made of `kernel`, or of the only kernel. `gpu` is a place of the pool
    (`local:1`) or a kind of GPU (`H100`), or what a `compile` is for, which any place does; empty for any. Times are seconds. A second request
    with the same `key` gets the first one's job. `grade` is the one asked for: `referee` measures a `ModelNew` from outside its
    process; `allow` names the policies that it does not enforce. A job that has not begun after `wait_limit_s` ends as
    timed out; without one it waits until it is cancelled.
    """

    action: Action = "run"
    name: str
    text: str
    path: str = ""
    files: dict[str, str] = field(default_factory=dict[str, str])
    kernel: str | None = None
    through: str = ""
    against: str = ""
    against_text: str = ""
    gpu: str = ""
    flags: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    timeout_s: float | None = None
    detail: Detail = "click"
    tools: tuple[str, ...] = field(default=(), metadata={"words": CHECKS})
    sections: tuple[str, ...] = ()
    levels: tuple[Level, ...] = ()
    priority: Priority = "normal"
    key: str = ""
    grade: Grade = "author"
    allow: tuple[Policy, ...] = ()
    wait_limit_s: float | None = None
    version: int = VERSION


def decoded(values: Mapping[str, Any]) -> Request:
    """Make a request from the fields that a door was given. In place of `text` and `name` it may name a `file` of
    this machine, whose present text is taken. Lists become tuples, and None counts as absent. Raises
    RequestRefusedError.
    """
    asked: dict[str, Any] = {name: _frozen(value) for name, value in values.items() if value is not None}
    if file := asked.pop("file", ""):
        path, text = read(file)
        asked |= {"name": Path(path).name, "text": text, "path": path}
    asked["kernel"] = asked.get("kernel") or None
    return Request(**asked)


def _frozen(value: Any) -> Any:
    return tuple(cast("list[Any]", value)) if isinstance(value, list) else value


def read(file: str) -> tuple[str, str]:
    """Return the absolute path and the text of a source file. Raises RequestRefusedError."""
    try:
        path = str(Path(file).resolve())
        text = regular_files.text(path, limits.SOURCE)
    except FileNotFoundError:
        raise RequestRefusedError(f"there is no file {file}") from None
    except OSError as error:
        raise RequestRefusedError(f"{file} cannot be read: {error.strerror}") from None
    except (RuntimeError, ValueError):  # a link to itself; no path of this system
        raise RequestRefusedError(f"{file} cannot be read: it is not the path of a file") from None
    if kernels.language_of(path, text) is None:
        raise RequestRefusedError(f"{file} is not a .cu, .cuh or .py file")
    return path, text


def check(request: Request, *, trusted: bool) -> None:
    """Check a request. Raises RequestRefusedError. `trusted` says that the request is the user's own, so any flags
    are allowed.
    """
    if request.version != VERSION:
        raise RequestRefusedError(
            f"the request has version {request.version}, this orbit-lsp knows {VERSION}"
        )
    if request.path and not request.name.isprintable():
        raise RequestRefusedError(
            f"{request.name!r:.60} is not a valid file name: it has a control character; rename it"
        )
    if not request.path and (not _NAME.fullmatch(request.name) or request.name.startswith(".")):
        raise RequestRefusedError(
            f"{request.name!r:.60} is not a valid file name: use letters, digits and . + - _, without folders"
        )
    if kernels.language_of(request.name, request.text) is None:
        raise RequestRefusedError(f"{request.name} is not a .cu, .cuh or .py file")
    if len(request.text.encode("utf-8", "surrogatepass")) > limits.SOURCE.most:
        raise RequestRefusedError(f"{request.name}: {limits.SOURCE.exceeded}")
    if not request.text.strip():
        raise RequestRefusedError(f"{request.name} is empty")
    _check_files(request.files, request.name)
    _check_values(request)
    if not trusted:
        _, refused = nvcc_flags.allowed_flags(request.flags, trusted=False)
        if refused:
            raise RequestRefusedError(f"a compiler flag is not permitted: {refused[0]}")


def _check_files(files: Mapping[str, str], name: str) -> None:
    total = 0
    for path, content in files.items():
        parts = PurePosixPath(path).parts
        plain = all(_NAME.fullmatch(part) and part not in (".", "..") for part in parts)
        if not parts or path.startswith("/") or not plain:
            raise RequestRefusedError(f"{path!r:.80} is not a path below the job's folder")
        if path == name:
            raise RequestRefusedError(f"{path} is both the file of the job and one of the files beside it")
        total += len(content.encode("utf-8", "surrogatepass"))
    if total > limits.SOURCE.most or len(files) > limits.JOB_FILES.most:
        limit = limits.SOURCE if total > limits.SOURCE.most else limits.JOB_FILES
        raise RequestRefusedError(
            f"the files beside {name} are too large or too many: the limit is {limit.size}"
        )


def _check_values(request: Request) -> None:
    if request.action not in ACTIONS:
        raise RequestRefusedError(f"{request.action!r:.40} is not an action; use one of {', '.join(ACTIONS)}")
    if request.grade not in GRADES:
        raise RequestRefusedError(f"{request.grade!r:.40} is not a grade; use {' or '.join(GRADES)}")
    if unknown := [policy for policy in request.allow if policy not in POLICIES]:
        raise RequestRefusedError(f"{unknown[0]!r:.40} is not a policy; use {' or '.join(POLICIES)}")
    if request.priority not in PRIORITIES:
        raise RequestRefusedError(
            f"{request.priority!r:.40} is not a priority; use one of {', '.join(PRIORITIES)}"
        )
    if request.detail not in DETAILS:
        raise RequestRefusedError(
            f"{request.detail!r:.40} is not a detail of a profile; use one of {', '.join(DETAILS)}"
        )
    if request.action == "compare" and not request.against:
        raise RequestRefusedError("compare needs `against`: the other file, or the name of the other text")
    if request.through and request.action not in ("run", "profile", "check"):
        raise RequestRefusedError(f"through is of run, profile and check, not of {request.action}")
    if request.through and not request.path:
        raise RequestRefusedError(
            "a test or script runs in its project: name the kernel's file by its path, not by its text"
        )
    if request.levels and request.action != "compile":
        raise RequestRefusedError(
            f"levels of compiler output are kept of compile alone, not of {request.action}"
        )
    if unknown := [level for level in request.levels if level not in get_args(Level)]:
        raise RequestRefusedError(
            f"{unknown[0]!r:.40} is not a level; use one of {', '.join(get_args(Level))}"
        )
    if request.action == "compile" and request.gpu and not architectures.architecture_for(request.gpu):
        raise RequestRefusedError(
            f"{request.gpu!r:.40} is not a GPU that code can be compiled for; name one as in H100 or sm_90"
        )
    if unknown := [tool for tool in request.tools if tool not in CHECKS]:
        raise RequestRefusedError(f"{unknown[0]!r:.40} is not a tool of a check; use {', '.join(CHECKS)}")
    if unknown := [section for section in request.sections if section not in SECTIONS]:
        raise RequestRefusedError(
            f"{unknown[0]!r:.60} is not a section of Nsight Compute; use some of {', '.join(SECTIONS)}"
        )
    if request.key and not _KEY.fullmatch(request.key):
        raise RequestRefusedError("the key must be up to 200 printable ASCII characters without spaces")
    for name, value, most in (
        ("timeout_s", request.timeout_s, MOST_TIMEOUT_S),
        ("wait_limit_s", request.wait_limit_s, 86400.0),
    ):
        if value is not None and not 0 < value <= most:
            raise RequestRefusedError(
                f"{name} is {value:g}; it must be more than 0 and at most {most:g} seconds"
            )
    words = (
        *request.arguments,
        *request.flags,
        request.kernel or "",
        request.through,
        request.gpu,
        request.against,
        request.path,
    )
    if any("\0" in word for word in words):
        raise RequestRefusedError("an argument or a name holds a zero byte, which no program can be given")
    if any(_HALF.search(word) for word in words):
        raise RequestRefusedError(
            "an argument or a name holds half a surrogate pair, which is not a character"
        )


def builds_ahead(request: Request) -> bool:
    """Say whether a request's kernels may be built before it has its GPU. That is CUDA that came without a place on
    the disk. Large requests are not built: they would stay in memory meanwhile.
    """
    ran = request.action in ("run", "profile", "compare") and not request.path
    size = len(request.text) + sum(map(len, request.files.values()))
    return ran and size <= _SMALL and kernels.language_of(request.name, request.text) == "cuda"


def place(request: Request, folder: Path) -> tuple[str, str]:
    """Return the path of the job's file, and of the file that it is compared with. A text without a path is written
    into `folder`. Raises OSError.
    """
    for name, content in request.files.items():
        regular_files.replace(folder / name, content.encode("utf-8", "surrogatepass"))
    path = request.path
    if not path:
        path = str(folder / request.name)
        regular_files.replace(Path(path), request.text.encode("utf-8", "surrogatepass"))
    against = request.against
    if against and request.against_text:
        against = str(folder / "against" / os.path.basename(request.against))  # noqa: PTH119 - also of a Windows client's path
        regular_files.replace(Path(against), request.against_text.encode("utf-8", "surrogatepass"))
    return path, against


def builds_extension(request: Request) -> bool:
    """Say whether a run of the request may build extensions of torch from its own text, which came without a place on
    the disk.
    """
    runs = request.action in ("run", "profile", "check") and not request.path
    return runs and request.name.endswith(".py") and harness_files.builds_extension(request.text)
