"""The compiler flags of a workspace that are used, and those of a compilation database.

nvcc puts its arguments, file names and even the current folder into a command line for a shell and
escapes neither `$` nor the backquote: a macro value of `$(…)` is executed. GCC in turn expands a
word that begins with `@` into the contents of a file. An untrusted workspace gets neither.
"""

from __future__ import annotations

import json
import ntpath
import os
import posixpath
import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Any, cast

NOT_TRUSTED = "this workspace is not trusted"
"""In every sentence about a flag that trust would permit."""
_SHELL_ACTIVE = re.compile(r"[$`\\\n\r\x00]") if os.name == "posix" else re.compile(r'[%"\n\r\x00]')
_SEARCH = r'(?![-@])[^,"]+(?:,(?![-@])[^,"]+)*'
# canonical name -> (other spellings, may the value be glued to it, what its value must look like)
_TAKEN: dict[str, tuple[tuple[str, ...], bool, str]] = {
    "-D": (("--define-macro",), True, r"[A-Za-z_]\w*(?:\([\w, .]*\))?(?:=(?!@)(?:(?!,[-@]).)*)?"),
    "-U": (("--undefine-macro",), True, r"[A-Za-z_]\w*"),
    "-I": (("--include-path",), True, _SEARCH),
    "-isystem": (("--system-include",), False, _SEARCH),
    "-std": (("--std",), False, r"(?:c|gnu)\+\+\d\w"),
    "-O": (("--optimize",), True, r"[0-3]"),
    "-arch": (("--gpu-architecture",), False, r"(?:sm|compute)_\d+[af]?|native|all-major|all"),
    "-gencode": (("--generate-code",), False, r"arch=compute_\d+[af]?,code=\[?[\w,]+\]?"),
    "-maxrregcount": (("--maxrregcount",), False, r"\d{1,3}"),
}
_SWITCHES = {"-use_fast_math", "--use_fast_math"}
_PHASES = {
    "-c", "--compile", "-dc", "--device-c", "-dw", "--device-w", "-dlink", "--device-link", "-E", "--preprocess",
    "-M", "--generate-dependencies", "-MM", "--generate-nonsystem-dependencies", "-MD", "-MMD", "-MP", "-ptx", "--ptx",
    "-cubin", "--cubin", "-fatbin", "--fatbin", "-ltoir", "--ltoir", "-lib", "--lib", "-shared", "--shared", "-run",
    "--run", "-keep", "--keep", "-save-temps", "--save-temps", "-clean", "--clean-targets", "-dryrun", "--dryrun",
    "-optix-ir", "--optix-ir", "-cuda", "--cuda", "-time", "--time", "--generate-dependencies-with-compile",
    "--generate-nonsystem-dependencies-with-compile", "--generate-dependency-targets",
}  # fmt: skip
_PHASE_VALUES = {
    "-o", "--output-file", "-odir", "--output-directory", "-MF", "--dependency-output", "-MT", "-MQ",
    "--dependency-target-name", "-keep-dir", "--keep-dir", "-x", "--x", "-run-args", "--run-args",
}  # fmt: skip


def is_shell_active(text: str) -> bool:
    """Whether the shell that nvcc starts would see more than text."""
    return bool(_SHELL_ACTIVE.search(text))


def allowed_flags(flags: Sequence[str], trusted: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The flags that are used, and one sentence for each that is not.

    From an untrusted workspace only flags that cannot start a program or read options from a file
    are taken. Flags that choose what nvcc produces are ours, trusted or not.
    """
    kept: list[str] = []
    refused: list[str] = []
    words = iter(flags)
    for flag in words:
        option, joined, _ = flag.partition("=")
        if option in _PHASES or option in _PHASE_VALUES:
            value = f" {next(words, '')}" if option in _PHASE_VALUES and not joined else ""
            refused.append(
                f"{flag}{value} is left out: what is produced, and where, is decided by the action."
            )
        elif trusted:
            kept.append(flag)
        else:
            taken, why = _untrusted(flag, words)
            kept += taken
            refused += why
    return tuple(kept), tuple(refused)


def _untrusted(flag: str, words: Iterator[str]) -> tuple[list[str], list[str]]:
    if flag in _SWITCHES or re.fullmatch(r"--?expt-[a-z-]+", flag):
        return [flag], []
    for short, (longer, glued, pattern) in _TAKEN.items():
        for name in (short, *longer):
            if flag == name:
                value = next(words, "")
            elif flag.startswith(name + "="):
                value = flag[len(name) + 1 :]
            elif glued and name == short and flag.startswith(name):
                value = flag[len(name) :]
            else:
                continue
            if re.fullmatch(pattern, value) and not is_shell_active(value):
                return ([f"{short}{value}"] if short in ("-D", "-U", "-O") else [short, value]), []
            if short == "-O":
                break  # some other flag that begins with -O
            return [], [f"{short} {value!r} is left out: {NOT_TRUSTED}, and may not set such a value."]
    return [], [
        f"{flag} is left out: {NOT_TRUSTED}, and the flag is not among those that cannot run a program."
    ]


# -- compile_commands.json --------------------------------------------------------------------------

_CLANG_VALUES = {"-target", "--target", "-resource-dir", "-Xclang", "-mllvm", "-Xarch_host", "-Xarch_device"}
_CLANG_ONLY = re.compile(
    r"--cuda-path=.*|--cuda-(?:host|device)-only|--cuda-compile-host-device|-nocudalib|-nocudainc|--no-cuda-.*|"
    r"--target=.*|--driver-mode=.*|-resource-dir=.*|-f(?!atbin|mad).*|-W[^,]*|-pedantic.*|-pipe|-march=.*|-mtune=.*|"
    r"-fcolor-diagnostics|-stdlib=.*"
)
_CLANG_WORDS = re.compile(r"(?:^|[\\/])clang(?:\+\+)?(?:-\d+)?(?:\.exe)?$")
_PATHS = re.compile(r"(-I|-isystem|--include-path|--system-include|-include|--pre-include)=?(.*)")


def flags_for(path: str, database: str) -> tuple[str, ...] | None:
    """The flags for nvcc of a file from the text of `compile_commands.json`; None where it does not say.

    Relative include folders come back absolute. What names outputs, dependencies or the file itself
    is gone, and what only clang understands is translated or gone.
    """
    try:
        entries: Any = json.loads(database)
    except ValueError:
        return None
    if not isinstance(entries, list):
        return None
    for entry in cast("list[Any]", entries):
        if not isinstance(entry, dict):
            continue
        record = cast("dict[str, Any]", entry)
        directory, file = str(record.get("directory", "")), str(record.get("file", ""))
        if _same(_absolute(file, directory), path):
            words = record.get("arguments")
            if not isinstance(words, list):
                words = _split(str(record.get("command", "")))
            return _translated([str(w) for w in cast("list[Any]", words)], directory, path)
    return None


def _absolute(path: str, directory: str) -> str:
    flavour = ntpath if re.match(r"[A-Za-z]:|\\\\", directory or path) else posixpath
    return flavour.normpath(flavour.join(directory, path))


def _same(left: str, right: str) -> bool:
    return os.path.normcase(os.path.normpath(left)) == os.path.normcase(os.path.normpath(right))


def _split(command: str) -> list[str]:
    try:
        if re.match(r'"?[A-Za-z]:\\', command):
            return [w.strip('"') for w in shlex.split(command, posix=False)]
        return shlex.split(command)
    except ValueError:
        return command.split()


def _translated(words: list[str], directory: str, path: str) -> tuple[str, ...]:
    start = next((i for i, w in enumerate(words) if w.startswith("-")), len(words))
    clang = any(_CLANG_WORDS.search(w) for w in words[:start])
    rest = iter(words[start:])
    flags: list[str] = []
    targets: list[str] = []
    for word in rest:
        option, joined, value = word.partition("=")
        if option in _PHASES or word == "--":
            continue
        if option in _PHASE_VALUES or (clang and option in _CLANG_VALUES):
            if not joined:
                next(rest, None)
        elif re.fullmatch(r"-(?:o|MF|MT|MQ|x)\S+", word) or (
            not word.startswith("-") and _same(_absolute(word, directory), path)
        ):
            continue
        elif option in ("--cuda-gpu-arch", "--offload-arch"):
            targets += [v for v in value.split(",") if re.fullmatch(r"sm_\d+[af]?", v)]
        elif clang and word == "-ffast-math":
            flags.append("-use_fast_math")
        elif clang and _CLANG_ONLY.fullmatch(word):
            continue
        elif found := _PATHS.fullmatch(word):
            name, folder = found.groups()
            folder = _absolute(folder or next(rest, ""), directory)
            flags += [f"-I{folder}"] if name == "-I" else [name, folder]
        else:
            flags.append(word)
    for target in targets:
        number = target.removeprefix("sm_")
        flags += ["-gencode", f"arch=compute_{number},code=sm_{number}"]
    return tuple(flags)
