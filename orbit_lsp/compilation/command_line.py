"""Turns one command line of a build into the flags that nvcc needs to compile the same file.

A build's command says more than how a file is read: where outputs go, how warnings look, which of several
architectures are made. Here only what counts is kept, in nvcc's words, whichever compiler the build uses.
"""

from __future__ import annotations

import ntpath
import os
import posixpath
import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Literal

from orbit_remote.common import regular_files
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.limits import OPTIONS
from orbit_remote.common.nvcc_flags import PHASE_VALUES, PHASES

Compiler = Literal["nvcc", "clang", "host"]

_LAUNCHERS = re.compile(
    r"(?:\S*[\\/])?(?:ccache|sccache|buildcache|distcc|icecc|env|time|nice|cmake|launch)(?:\.exe)?|-.*|[A-Za-z_]\w*=.*",
    re.DOTALL,
)
"""Programs that start the compiler, their options, and variables of its environment, whose values may be paths."""
_LAUNCHERS_VALUES = {"env": ("-u", "--unset", "-C", "--chdir"), "nice": ("-n",), "time": ("-f", "-o")}
"""Options of these programs whose value is the next word."""
_CLANG = re.compile(r"clang(?:\+\+)?(?:-\d+)?(?:\.exe)?")
_HOST = re.compile(
    r"(?:[\w.]+-)*(?:g\+\+|gcc|c\+\+|cc|cl|icpx|icpc|icx|nvc\+\+|mpicxx|mpic\+\+)(?:-[\d.]+)?(?:\.exe)?"
)
_SEPARATE = {  # options without meaning here that have a value behind a blank
    "-target", "--target", "-resource-dir", "-Xclang", "-mllvm", "-Xarch_host", "-Xarch_device", "-arch-host",
    "-t", "--threads", "-Xfatbin", "--fatbin-options", "-Xnvlink", "--nvlink-options",
    "-Xlinker", "--linker-options", "-Xarchive", "--archive-options", "-Xcudafe", "-L", "-l", "-B",
    "-diag-suppress", "--diag-suppress", "-diag-warn", "--diag-warn", "-split-compile", "--split-compile", "-cudart",
    "--cudart", "--library", "--library-path", "-m", "--machine", "--optimize", "-cudadevrt", "--cudadevrt", "-diag-error",
    "--diag-error",
}  # fmt: skip
_KEPT = {  # options whose value may stand behind a blank
    "-default-stream", "--default-stream", "-ftz", "--ftz", "-fmad", "--fmad", "-prec-div", "--prec-div", "-prec-sqrt",
    "--prec-sqrt", "-maxrregcount", "--maxrregcount", "-ccbin", "--compiler-bindir",
}  # fmt: skip
_MEANINGLESS = re.compile(
    r"-W.*|-pedantic.*|-pipe|-p?thread|-g\d?|-ggdb\d?|--debug|-lineinfo|--generate-line-info|"
    r"-fPI[CE]|-fpi[ce]|-fvisibility.*|-fdiagnostics.*|-fcolor-diagnostics|-fno-[\w-]+|-fstack-.*|-ffile-prefix.*|"
    r"-fmodules-ts|-fdeps-format=.*|-f(?:data|function)-sections|-fopenmp.*|-march=.*|-mtune=.*|-m\d\d|--machine=.*|"
    r"-forward-unknown-.*|--forward-unknown-.*|-Xcudafe=.*|-Xfatbin=.*|-Xlinker=.*|--?threads=.*|"
    r"-res-usage|--resource-usage|-w|--disable-warnings|-compress-mode=.*|--compress-mode=.*|--?diag-suppress=.*|"
    r"--?[LlB]\S.*|-static.*|--display-error-number|-O[0-3sgz]?"
)
_OF_ASSEMBLER = {"-Xptxas", "--ptxas-options"}
_SILENT_ASSEMBLER = re.compile(
    r"-v|--verbose|-w|-warn-.*|--warn-.*|-Werror|-lineinfo|--generate-line-info|-O3|--opt-level=3|"
)
"""Options of ptxas that decide about no figure."""
_CLANG_ONLY = re.compile(
    r"--cuda-path=.*|--cuda-(?:host|device)-only|--cuda-compile-host-device|-nocudalib|-nocudainc|--no-cuda-.*|"
    r"--target=.*|--driver-mode=.*|-resource-dir=.*|-f(?!atbin|mad).*|-stdlib=.*|--gcc-.*|-Q\w.*"
)
_PATHS = re.compile(r"(-I|-isystem|-iquote|-idirafter|--include-path|--system-include)=?(.*)")
_FIRST = re.compile(r"(-include|--pre-include)=?(.*)")
_OF_HOST = re.compile(r"-D.+|-U.+|-std=.+")
_ARCHITECTURES = {
    "-arch", "--gpu-architecture", "-gencode", "--generate-code", "-code", "--gpu-code",
    "--cuda-gpu-arch", "--offload-arch",
}  # fmt: skip
_TARGET = re.compile(r"(sm|compute|lto)_(\d{1,3}[af]?)")
_BETWEEN = {"&&", "||", ";", "|"}
"""What stands between two commands of a line."""
_OPTION_FILES = {"--options-file", "-optf"}
_NESTED = 4
_MOST_OPTION_FILES = 100
"""Of one command: a file may name itself a thousand times."""


@dataclass(frozen=True, slots=True)
class CompileCommand:
    """A command. `flags` are nvcc's, with absolute folders. `program` is the compiler as the build names it.
    `remarks` say what of the build is compiled in another way here.
    """

    flags: tuple[str, ...]
    compiler: Compiler
    program: str
    remarks: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    """Flags that decide about figures, and are not used: `-G`, because figures are of optimized code."""


def parse(command: Sequence[str] | str, directory: str, path: str) -> CompileCommand:
    """Read the command by which a build, running in `directory`, compiles the file `path`. Reads the option files
    that it names, so call it off the event loop.
    """
    if isinstance(command, str):
        command, directory = _of_file(split(command), directory, path)
    words = list(_expanded(command, directory))
    program, rest = _program(words)
    name = re.split(r"[\\/]", program)[-1]
    compiler: Compiler = "clang" if _CLANG.fullmatch(name) else "host" if _HOST.fullmatch(name) else "nvcc"
    return _OptionReader(compiler, program, directory, path).read(rest)


def split(command: str) -> list[str]:
    """Return the words of a command as a shell has them."""
    try:
        if re.match(r'"?[A-Za-z]:\\', command):
            return [word.strip('"') for word in shlex.split(command, posix=False)]
        return shlex.split(command)
    except ValueError:
        return command.split()


def _of_file(words: list[str], directory: str, path: str) -> tuple[list[str], str]:
    """Return the first of several commands in a line that compiles the file, and the folder to which a `cd` before it
    leads. CMake and make write one more command that looks for dependencies.
    """
    commands: list[list[str]] = [[]]
    for word in words:
        if word in _BETWEEN:
            commands.append([])
        else:
            commands[-1].append(word)
    if len(commands) == 1:
        return words, directory
    name = re.split(r"[\\/]", path)[-1]
    for each in commands:
        if each[:1] == ["cd"] and len(each) == 2:
            directory = absolute(each[1], directory)
        elif any(re.split(r"[\\/]", word)[-1] == name for word in each):
            return each, directory
    return words, directory


def absolute(path: str, directory: str) -> str:
    flavour = ntpath if re.match(r"[A-Za-z]:|\\\\", directory or path) else posixpath
    return flavour.normpath(flavour.join(directory, path))


def same(left: str, right: str) -> bool:
    return os.path.normcase(os.path.normpath(left)) == os.path.normcase(os.path.normpath(right))


def _program(words: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Return the compiler, without the programs that launch it, and its arguments."""
    valued: tuple[str, ...] = ()
    waiting = iter(enumerate(words))
    for at, word in waiting:
        if not _LAUNCHERS.fullmatch(word):
            return word, words[at + 1 :]
        if word in valued:
            next(waiting, None)
        elif not word.startswith("-"):
            valued = _LAUNCHERS_VALUES.get(re.split(r"[\\/]", word)[-1], valued)
    return "", ()


def _expanded(
    words: Sequence[str], directory: str, depth: int = 0, read: list[int] | None = None
) -> Iterator[str]:
    """Yield the words, with the content of option files in the place of their names: CMake writes include folders
    there. `read` has the sizes of the files that were read.
    """
    read = [] if read is None else read
    waiting = iter(words)
    for word in waiting:
        option, joined, value = word.partition("=")
        if option in _OPTION_FILES:
            names = (value if joined else next(waiting, "")).split(",")
        elif word.startswith("@") and len(word) > 1:
            names = [word[1:]]
        else:
            yield word
            continue
        for name in names:
            if not name or depth >= _NESTED or len(read) >= _MOST_OPTION_FILES:
                continue
            read.append(0)
            try:
                text = regular_files.text(absolute(name, directory), OPTIONS)
            except (OSError, ValueError):
                continue
            read[-1] = len(text)
            if sum(read) <= OPTIONS.most:
                yield from _expanded(split(text), directory, depth + 1, read)


class _OptionReader:
    def __init__(self, compiler: Compiler, program: str, directory: str, path: str) -> None:
        self.compiler: Compiler = compiler
        self.program = program
        self.directory = directory
        self.path = path
        self.flags: dict[str, None] = {}
        self.targets: list[str] = []
        self.debug = False

    def read(self, words: Sequence[str]) -> CompileCommand:
        rest = iter(words)
        for word in rest:
            self._take(word, rest)
        remarks: list[str] = []
        if self.compiler == "clang":
            remarks.append("the project compiles it with clang; here nvcc does")
        if self.compiler == "host":
            remarks.append(
                "the command is that of a C++ compiler: its include folders, macros and standard are used"
            )
        flags = (word for flag in self.flags for word in flag.split("\0"))
        left_out = ("-G",) if self.debug else ()
        return CompileCommand(
            (*flags, *self._architectures()), self.compiler, self.program, tuple(remarks), left_out
        )

    def _take(self, word: str, rest: Iterator[str]) -> None:
        option, joined, value = word.partition("=")
        if option in ("-dc", "--device-c", "-fgpu-rdc"):
            self._keep("-rdc=true")
        elif option in ("-rdc", "--relocatable-device-code"):
            self._keep(f"-rdc={value if joined else next(rest, 'true')}")
        elif option in _ARCHITECTURES:
            self.targets.append(value if joined else next(rest, ""))
        elif word in ("-G", "--device-debug"):
            self.debug = self.debug or self.compiler == "nvcc"
        elif option in _OF_ASSEMBLER:
            given = (value if joined else next(rest, "")).split(",")
            if kept := [each for each in given if not _SILENT_ASSEMBLER.fullmatch(each)]:
                self._keep("-Xptxas=" + ",".join(kept))
        elif option in PHASE_VALUES or option in _SEPARATE:
            if not joined:
                next(rest, None)
        elif option in PHASES or word == "--" or re.fullmatch(r"-(?:o|MF|MT|MQ|x)\S+", word):
            return
        elif not word.startswith("-"):
            return  # a file: this one, or one that is compiled beside it
        elif word in ("-Werror", "--Werror") and self.compiler == "nvcc":
            next(rest, None)  # which warnings
        elif self.compiler == "clang" and word == "-ffast-math":
            self._keep("-use_fast_math")
        elif paths := _PATHS.fullmatch(word):
            self._folder(paths[1], paths[2] or next(rest, ""))
        elif first := _FIRST.fullmatch(word):
            name = first[2] or next(rest, "")
            path = absolute(name, self.directory)
            self._keep("-include", path if os.path.isfile(path) else name)
        elif word in ("-D", "-U"):
            self._keep(word + next(rest, ""))
        elif word in ("--define-macro", "--undefine-macro"):
            self._keep(f"{word}={next(rest, '')}")
        elif option in ("-std", "--std"):
            standard = value if joined else next(rest, "")
            self._keep("-std=" + standard.replace("gnu++", "c++"))
        elif option in ("-Xcompiler", "--compiler-options"):
            self._host(value if joined else next(rest, ""))
        elif _MEANINGLESS.fullmatch(word) or (self.compiler == "clang" and _CLANG_ONLY.fullmatch(word)):
            return
        elif option in _KEPT:
            self._keep(f"{option}={value if joined else next(rest, '')}")
        elif self.compiler != "host" or _OF_HOST.fullmatch(word):
            self._keep(word)

    def _keep(self, *words: str) -> None:
        """Keep each option once. An option and its value may be two words; they are one key."""
        self.flags.update({"\0".join(words): None})

    def _folder(self, option: str, value: str) -> None:
        folder = absolute(value, self.directory)
        option = {"--include-path": "-I", "-iquote": "-I"}.get(option, option)
        if option == "-I":
            self._keep(f"-I{folder}")
        else:
            self._keep("-isystem", folder)

    def _host(self, value: str) -> None:
        """Keep the parts of the host compiler's options that say how a file is read."""
        kept = [part for part in value.split(",") if part and not _MEANINGLESS.fullmatch(part)]
        if kept:
            self._keep("-Xcompiler=" + ",".join(kept))

    def _architectures(self) -> list[str]:
        """Return code for each architecture that the build makes code for: PTX alone has no registers to report.
        `native` and `all` leave the choice to us, like a build that names no architecture.
        """
        named = [match.groups() for text in self.targets for match in _TARGET.finditer(text)]
        real = [number for kind, number in named if kind == "sm"] or [number for _, number in named]
        words: list[str] = []
        for number in dict.fromkeys(real):
            words += ["-gencode", f"arch=compute_{number},code=sm_{number}"]
        return words


def year(flag: str) -> int | None:
    """Return the standard that `-std=c++17` asks for: 17. Return None for any other flag."""
    match = re.fullmatch(r"-{1,2}std[= ](?:gnu|c)\+\+(\d\w)", flag)
    return age(match[1]) if match else None


def age(standard: str) -> int:
    """Return a number that orders standards: c++98 is older than c++11; `2a` is a draft of 20."""
    written = {"0x": "11", "1y": "14", "1z": "17", "2a": "20", "2b": "23"}.get(standard, standard)
    number = int(written) if written.isdecimal() else 0  # `-std=c++1H` is a slip of the pen
    return number if number < 90 else 0
