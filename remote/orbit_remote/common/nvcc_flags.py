"""Decides which compiler flags of a workspace are used.

nvcc puts its arguments, file names and even the current folder into a command line for a shell and escapes neither
`$` nor the backquote: a macro value of `$(…)` is executed. GCC in turn expands a word that begins with `@` into the
contents of a file. An untrusted workspace gets neither.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence

NOT_TRUSTED = "this workspace is not trusted"
"""In every sentence about a flag that trust would permit."""
_NO_WORD = re.compile("[\0\ud800-\udfff]")
"""What a database may hold in JSON, and no argument of a program can."""
_SHELL_ACTIVE = re.compile(r"[$`\\\n\r\x00]") if os.name == "posix" else re.compile(r'[%"\n\r\x00]')
_SEARCH = r'(?![-@])[^,"]+(?:,(?![-@])[^,"]+)*'
_OF_PTXAS = (
    r"(?:-v|--verbose|-O[0-3]|--opt-level=[0-3]|-w|--?warn-[a-z-]+|--?d[ls]cm=\w+|--?def-(?:load|store)-cache=\w+|"
    r"--?maxrregcount=\d{1,3}|--?fmad=(?:true|false)|--?allow-expensive-optimizations=(?:true|false)|--?disable-optimizer-constants)"
)
"""Options of ptxas that name no file."""
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
    "-rdc": (("--relocatable-device-code",), False, r"true|false"),
    "-default-stream": (("--default-stream",), False, r"legacy|null|per-thread"),
    "-ftz": (("--ftz",), False, r"true|false"),
    "-fmad": (("--fmad",), False, r"true|false"),
    "-prec-div": (("--prec-div",), False, r"true|false"),
    "-prec-sqrt": (("--prec-sqrt",), False, r"true|false"),
    "-Xptxas": (("--ptxas-options",), False, rf"{_OF_PTXAS}(?:,{_OF_PTXAS})*"),
}
_SWITCHES = {"-use_fast_math", "--use_fast_math", "-extended-lambda", "--extended-lambda"}
PHASES = {
    "-c", "--compile", "-dc", "--device-c", "-dw", "--device-w", "-dlink", "--device-link", "-E", "--preprocess",
    "-M", "--generate-dependencies", "-MM", "--generate-nonsystem-dependencies", "-MD", "-MMD", "-MP", "-ptx", "--ptx",
    "-cubin", "--cubin", "-fatbin", "--fatbin", "-ltoir", "--ltoir", "-lib", "--lib", "-shared", "--shared", "-run",
    "--run", "-keep", "--keep", "-save-temps", "--save-temps", "-clean", "--clean-targets", "-dryrun", "--dryrun",
    "-optix-ir", "--optix-ir", "-cuda", "--cuda", "-time", "--time", "--generate-dependencies-with-compile",
    "--generate-nonsystem-dependencies-with-compile", "--generate-dependency-targets",
}  # fmt: skip
PHASE_VALUES = {
    "-o", "--output-file", "-odir", "--output-directory", "-MF", "--dependency-output", "-MT", "-MQ",
    "--dependency-target-name", "-keep-dir", "--keep-dir", "-x", "--x", "-run-args", "--run-args",
}  # fmt: skip


def is_shell_active(text: str) -> bool:
    """Say whether the shell that nvcc starts would see more than text."""
    return bool(_SHELL_ACTIVE.search(text))


def allowed_flags(flags: Sequence[str], trusted: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the flags that are used, and one sentence for each that is not.

    An untrusted workspace may only use flags that cannot start a program or read options from a file. Flags that
    choose what nvcc produces are ours, trusted or not.
    """
    kept: list[str] = []
    refused = [
        f"{flag!r} is left out: no program can be given such characters."
        for flag in flags
        if _NO_WORD.search(flag)
    ]
    words = iter([flag for flag in flags if not _NO_WORD.search(flag)])
    for flag in words:
        option, joined, _ = flag.partition("=")
        if option in PHASES or option in PHASE_VALUES:
            value = f" {next(words, '')}" if option in PHASE_VALUES and not joined else ""
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
