"""Finds compute-sanitizer on this machine, and runs one of its tools over one program."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from orbit_remote.common import limits, plain_text, regular_files
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.messages import Failure
from orbit_remote.common.packages import installing
from orbit_remote.process import client_environment, process_groups, program, tool_output
from orbit_remote.toolchain import nvcc

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
_NAME = "compute-sanitizer.exe" if os.name == "nt" else "compute-sanitizer"
_PLACES = (f"bin/{_NAME}", f"compute-sanitizer/{_NAME}")
_VERSION = re.compile(r"^Version (\d+(?:\.\d+)+)", re.MULTILINE)
_ASK_S = 20.0
_PRINTED = 1000
"""Findings that one tool reports at most; 100 by itself, which one faulty line of a kernel uses up."""
_SUMMARY = re.compile(r"^=+ (?:ERROR|RACECHECK) SUMMARY: ", re.MULTILINE)
_SAID = re.compile(
    r"^=+ (?:Error: |Target application |Internal Sanitizer Error: )?(?P<text>\S.*)$", re.MULTILINE
)
_NO_CUDA = "terminated before first instrumented API call"
_REFUSALS = (
    (re.compile(r"unsupported device|device (?:is )?not supported", re.IGNORECASE),
     "compute-sanitizer does not support this GPU here",
     "containers of gVisor, as Modal's are, and virtual GPUs may withhold what it needs: use a machine of your own"),
    (re.compile(r"No attachable process found|Failed to find attachable processes"),
     "compute-sanitizer could not attach to the program", "debuggers may be forbidden here (ptrace, seccomp)"),
    (re.compile(r"Unable to find injection library"),
     "this compute-sanitizer is incomplete: its injection library is missing", "reinstall the CUDA toolkit"),
    (re.compile(r"insufficient permissions|ERR_NVGPUCTRPERM|Process requires administrator", re.IGNORECASE),
     "the driver does not permit compute-sanitizer here", "ask whoever administers this machine"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sanitizer:
    path: str
    version: str


@dataclass(frozen=True, slots=True)
class CheckedProgram:
    """One tool over one program. `log` is its text and `records` its XML, "" if it wrote none. `refused` says why it
    could not check, `ended` how the program ended under it.
    """

    tool: str
    ended: program.EndedProgram
    log: str
    records: str
    refused: Failure | None = None

    @property
    def uses_cuda(self) -> bool:
        return _NO_CUDA not in self.log

    @property
    def complete(self) -> bool:
        """Say whether it checked the whole run: then its last line is a summary."""
        return self.ended.status is not None and _SUMMARY.search(self.log) is not None


def find(compiler: str | None = None) -> Sanitizer | Failure:
    """Return the first of: PATH, CUDA_HOME, beside the CUDA compiler, /usr/local/cuda, NVIDIA's wheel. It blocks for
    about 100 ms the first time.
    """
    path = next(_candidates(compiler), None)
    if path is None:
        return Failure(
            "infrastructure",
            "compute-sanitizer was not found",
            "install NVIDIA's CUDA toolkit or its package cuda-sanitizer, or: "
            + installing.remedy(
                sys.executable, "nvidia-cuda-sanitizer-api", environment=client_environment.current()
            ),
        )
    try:
        output = _about(str(path), path.stat().st_mtime_ns)
    except (OSError, subprocess.TimeoutExpired) as error:
        output = str(error)
    if not (version := _VERSION.search(output)):
        first = next(iter(output.strip().splitlines()), "it says nothing")
        return Failure("infrastructure", f"{path} does not work: {first}", "reinstall the CUDA toolkit")
    return Sanitizer(str(path), version[1])


@lru_cache
def _about(path: str, changed: int) -> str:  # noqa: ARG001 - one that was replaced is asked again
    """Return what the tool prints about itself. Raises OSError and TimeoutExpired; then nothing is cached."""
    asked = tool_output.ask([path, "--version"], timeout_s=_ASK_S)
    return plain_text.plain(asked.stdout + asked.stderr)


def _candidates(compiler: str | None) -> Iterator[Path]:
    if on_path := client_environment.which(_NAME):
        yield Path(on_path)
    roots = [
        Path(root) for name in ("CUDA_HOME", "CUDA_PATH") if (root := client_environment.current().get(name))
    ]
    known = nvcc.find(compiler)
    roots += [] if isinstance(known, Failure) else [Path(known.root)]
    roots += [
        nvcc.SYSTEM,
        *(root for folder in nvcc.site_packages() for root in folder.glob("nvidia/cu1[3-9]")),
    ]
    for root in roots:
        for place in _PLACES:
            if (path := root / place).is_file():
                yield path


async def check(
    sanitizer: Sanitizer,
    tool: str,
    command: Sequence[str],
    *,
    scratch: Path,
    cwd: str,
    env: Mapping[str, str],
    stdin: str,
    timeout_s: float,
    started: process_groups.Started,
    output: program.Output,
    options: Sequence[str] = (),
) -> CheckedProgram:
    """Run `command` under one tool. When it returns, cancelled or not, no process of it is left. Raises OSError if it
    cannot be started.
    """
    log, records = scratch / f"{tool}.txt", scratch / f"{tool}.xml"
    ended = await program.run(
        [
            sanitizer.path, "--tool", tool, "--target-processes", "all", "--print-limit", str(_PRINTED),
            "--strip-paths", "no", "--log-file", str(log), "--xml", "--save", str(records), *options, *command,
        ],
        cwd=cwd, env=env, stdin=stdin, timeout_s=timeout_s, started=started, output=output,
    )  # fmt: skip
    text = _read(log)
    return CheckedProgram(tool, ended, text, _read(records), _refused(sanitizer, tool, ended, text))


def _read(path: Path) -> str:
    try:
        return regular_files.head(path, limits.TOOL_LOG).decode("utf-8", "replace")
    except OSError:
        return ""


def _refused(sanitizer: Sanitizer, tool: str, ended: program.EndedProgram, log: str) -> Failure | None:
    if ended.status is None:
        return None
    for pattern, message, remedy in _REFUSALS:
        if match := pattern.search(log) or pattern.search(ended.stderr):
            return Failure("infrastructure", f"{message} ({tool}: {match[0]})", remedy)
    if _SUMMARY.search(log) or _NO_CUDA in log:
        return None
    complaints = [
        matched["text"] for matched in _SAID.finditer(log) if matched["text"] != "COMPUTE-SANITIZER"
    ]
    last = (
        complaints[-1]
        if complaints
        else next(iter(reversed((ended.stderr or ended.stdout).strip().splitlines())), "")
    )
    why = f": {last}" if last else f", with exit code {ended.status}"
    return Failure(
        "infrastructure",
        f"compute-sanitizer {sanitizer.version} ended before its {tool} had checked anything{why}",
    )
