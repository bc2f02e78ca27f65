"""`orbit-lsp submit`: hands a file to GPU MODE's leaderboards by `popcorn-cli`, and keeps a record of it."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO

from orbit_lsp.cli import json_results
from orbit_lsp.cli.terminal_text import UsageError, refused
from orbit_lsp.history import git
from orbit_lsp.profile import report_folder
from orbit_lsp.state.user_folders import state_folder
from orbit_remote.common import limits, regular_files
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.messages import EXIT_CODES
from orbit_remote.common.plain_text import visible

_DIRECTIVE = re.compile(
    r"^[ \t]*(?:#|//)!POPCORN[ \t]+(leaderboard|gpus?)[ \t]+(\S[^\r\n]*?)[ \t]*$", re.MULTILINE
)
_PROGRAMS = ("popcorn-cli", "popcorn")
_CUSTOM_KERNEL = re.compile(r"^def[ \t]+custom_kernel\b", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Submission:
    """What was handed in and how it went, as `submission.json` has it. `commit` is HEAD, or None outside of git.
    `changed` says whether the file differs from it. `exit_code` is popcorn-cli's own, or None if it was ended at the
    limit.
    """

    file: str
    mode: str
    leaderboard: str
    gpu: str
    time: str
    command: tuple[str, ...]
    commit: str | None = None
    changed: bool | None = None
    checked: bool = False
    exit_code: int | None = None
    timed_out: bool = False
    seconds: float | None = None
    truncated: bool = False


def main(options: argparse.Namespace) -> int:
    """Run the command. Return the exit code."""
    try:
        return _submit(options)
    except UsageError as error:
        return refused(str(error), as_json=options.json)


def _submit(options: argparse.Namespace) -> int:
    path = Path(options.file).absolute()
    try:
        text = regular_files.text(path, limits.SOURCE)
    except FileNotFoundError:
        raise UsageError(f"there is no file {options.file}") from None
    except OSError as error:
        raise UsageError(f"{options.file} cannot be read: {error.strerror}") from None
    leaderboard, gpu = _target(options, text)
    program = next((program_path for name in _PROGRAMS if (program_path := shutil.which(name))), None)
    words = ["submit", "--no-tui", "--leaderboard", leaderboard, "--gpu", gpu, "--mode", options.mode]
    command = (program or _PROGRAMS[0], *words, str(path))
    if options.dry_run:
        print(visible(shlex.join(command)))
        return 0
    if program is None:
        text = "popcorn-cli is not on PATH; see github.com/gpu-mode/popcorn-cli for how to install it and to register"
        print(f"orbit-lsp: error: {text} [infrastructure]", file=sys.stderr)
        return EXIT_CODES["infrastructure"]
    checked = False
    if not options.no_check and _CUSTOM_KERNEL.search(text):
        if code := _check(options):
            text = "nothing was submitted, because the check failed; --no-check submits without one"
            print(f"orbit-lsp: error: {text}", file=sys.stderr)
            return code
        checked = True
    elif not options.no_check:
        print("note: not checked: the file has no custom_kernel that can be checked here", file=sys.stderr)
    if options.mode == "leaderboard" and not options.yes and not _agreed(path.name, leaderboard, gpu):
        print("orbit-lsp: cancelled: nothing was submitted", file=sys.stderr)
        return EXIT_CODES["cancelled"]
    return _hand_in(options, path, text, leaderboard, gpu, command, checked=checked)


def _target(options: argparse.Namespace, text: str) -> tuple[str, str]:
    """Return leaderboard and GPU from the options, else from the file's `#!POPCORN` lines."""
    directives = {name.removesuffix("s"): value for name, value in reversed(_DIRECTIVE.findall(text))}
    leaderboard = options.leaderboard or directives.get("leaderboard", "")
    gpus = (options.gpu or directives.get("gpu", "")).replace(",", " ").replace(";", " ").split()
    if not leaderboard:
        raise UsageError(
            "which leaderboard? Add --leaderboard, or a line `#!POPCORN leaderboard NAME` to the file"
        )
    if not gpus:
        raise UsageError("which GPU? Add --gpu, or a line `#!POPCORN gpu NAME` to the file")
    if len(gpus) > 1:
        raise UsageError(f"the file names several GPUs; add --gpu with one of {', '.join(gpus)}")
    for word in (leaderboard, gpus[0]):
        if word.startswith("-"):
            raise UsageError(f"{word!r} is not the name of a leaderboard or a GPU")
    return leaderboard, gpus[0]


def _check(options: argparse.Namespace) -> int:
    """Check the file by its contract, where runs go. Return the exit code. Its output goes to standard error."""
    from orbit_lsp.cli import arguments, run_command

    with contextlib.redirect_stdout(sys.stderr):
        return run_command.main(arguments.parse(["run", options.file]))


def _agreed(name: str, leaderboard: str, gpu: str) -> bool:
    """Raises UsageError if there is no terminal to ask at."""
    if not sys.stdin.isatty():
        raise UsageError("--mode leaderboard is a ranked submission; add --yes where nobody can be asked")
    print(f"Submit {visible(name)} to {visible(leaderboard)} on {visible(gpu)}, ranked? [y/N] ", end="", file=sys.stderr, flush=True)  # fmt: skip
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _hand_in(
    options: argparse.Namespace,
    path: Path,
    text: str,
    leaderboard: str,
    gpu: str,
    command: tuple[str, ...],
    *,
    checked: bool,
) -> int:
    folder = _folder(options.output, path.stem)
    commit, diff = _versions(path, text)
    (folder / path.name).write_text(text, encoding="utf-8", errors="backslashreplace")
    if diff:
        (folder / "diff.patch").write_text(diff, encoding="utf-8", errors="backslashreplace")
    when = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    began = time.monotonic()
    status, output, truncated = _run(command, path.parent, options.timeout_s)
    (folder / "output.txt").write_bytes(output)
    done = Submission(
        str(path), options.mode, leaderboard, gpu, when, command, commit, None if commit is None else bool(diff), checked,
        status, status is None, round(time.monotonic() - began, 3), truncated,
    )  # fmt: skip
    record = json_results.text(done)
    report_folder.write(folder / "submission.json", record.encode("utf-8", "backslashreplace"))
    if options.json:
        print(record)
    else:
        print(visible(output.decode("utf-8", "replace")).rstrip())
    print(f"the record is in {folder}", file=sys.stderr)
    if status is None:
        text = f"popcorn-cli was ended at the limit of {options.timeout_s:g} s; raise it with --timeout"
        print(f"orbit-lsp: error: {text} [timed out]", file=sys.stderr)
        return EXIT_CODES["timed out"]
    return status if status >= 0 else 128 - status


def _folder(output: str | None, stem: str) -> Path:
    """Make a new folder for a submission."""
    base = Path(output) if output else state_folder() / "submissions"
    name = f"{stem}-{time.strftime('%Y%m%d-%H%M%S')}"
    for number in range(1, 1000):
        folder = base / (name if number == 1 else f"{name}-{number}")
        with contextlib.suppress(FileExistsError):
            folder.mkdir(parents=True, mode=0o700)
            return folder
    raise UsageError(f"{base} is full of submissions of this second")


def _versions(path: Path, text: str) -> tuple[str | None, str]:
    """Return (HEAD's commit, how the file differs from it). The commit is None if there is no git, or the file is not
    in it.
    """
    try:
        head = git.revision(str(path), "HEAD")
    except git.GitError:
        return None, ""
    lines = difflib.unified_diff(
        head.text.splitlines(keepends=True),
        text.splitlines(keepends=True),
        f"a/{head.main}",
        f"b/{head.main}",
    )
    return head.commit, "".join(lines)


def _run(command: tuple[str, ...], folder: Path, limit_s: float) -> tuple[int | None, bytes, bool]:
    """Run a program. Return (exit status, its output, whether that was cut). The status is None if it was ended at
    the limit. It has no terminal and no input, so that a question is an end of file.
    """
    process = subprocess.Popen(
        command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        start_new_session=os.name == "posix",
    )  # fmt: skip
    assert process.stdout
    kept = bytearray()
    cut = threading.Event()
    reader = threading.Thread(target=_read, args=(process.stdout, kept, cut), daemon=True)
    reader.start()
    status: int | None = None
    try:
        status = process.wait(limit_s)
    except subprocess.TimeoutExpired:
        pass
    finally:
        _end(process)
    reader.join(1.0)
    return status, bytes(kept), cut.is_set()


def _read(stream: IO[bytes], kept: bytearray, cut: threading.Event) -> None:
    with contextlib.suppress(OSError, ValueError):
        while chunk := os.read(stream.fileno(), 1 << 16):
            room = max(0, limits.OUTPUT.most - len(kept))
            kept += chunk[:room]
            if len(chunk) > room:
                cut.set()


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process with all that it started."""
    if os.name == "posix":
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait()
