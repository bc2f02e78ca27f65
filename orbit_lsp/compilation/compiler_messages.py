"""What compilers say, in terms of the author's own files

A header that is missing names itself and what provides it. An error inside a header that is not the author's stands
at the author's line that leads there.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from orbit_lsp.compilation import missing
from orbit_lsp.compilation.toolkit_headers import LIBRARIES
from orbit_lsp.kernels.cuda.lexer import clean_directive
from orbit_lsp.kernels.cuda.macros import directives
from orbit_lsp.state.compilation import Compilation
from orbit_remote.common.messages import Failure, Note, Place, Problem

_MISSING = re.compile(
    r"(?P<gcc>\S.*?): No such file or directory|cannot open (?:source )?(?:include )?file:? [\"'](?P<edg>[^\"']+)[\"'].*|"
    r"[\"'](?P<clang>[^\"']+)[\"'] file not found|Cannot open include file: '(?P<msvc>[^']+)'.*",
    re.DOTALL,
)
_IS_MISSING = " is not found: "
_SEPARATE = "requires separate compilation mode"
_REMOVED = re.compile(
    r'class "cudaDeviceProp" has no member|(?:namespace|class) "(?:thrust|cub)(?:::\w+)*" has no member|'
    r'(?:identifier "(?:texture|cudaBindTexture\w*|cudaUnbindTexture|tex[123]D(?:fetch)?|cudaThread\w+)" is undefined)|'
    r"texture is not a template"
)
"""Errors about what CUDA 13 no longer has."""
NOT_YOURS = (
    "; it is in a library's header: if your code uses it rightly, the project needs another version of it, or other compilers "
    "(settings `nvcc` and `nvcc_flags`, -ccbin)"
)
_OF_FLAGS = re.compile(
    r"is undefined|is not found|has no member|not a template|#error|ambiguous|no instance of|not declared|"
    r'has no storage class or type specifier|name followed by "::" must be'
)
"""Errors that come of a macro, a folder or a standard that the build would have given, as likely as of the code."""
_OTHER_GPU = re.compile(
    r"not supported on \.target|requires (?:PTX ISA )?\.target|cannot be compiled for architecture"
)
_OF_HALF = re.compile(
    r"(?:no suitable (?:constructor|conversion function)|no operator|no instance of|argument of type).*(?:__half|\bhalf|bfloat16)|"
    r'"(?:__half|half|__nv_bfloat16)2?" has no',
    re.DOTALL,
)
_NO_HALF = tuple(
    f"-D__CUDA_NO_{what}__"
    for what in ("HALF_OPERATORS", "HALF_CONVERSIONS", "HALF2_OPERATORS", "BFLOAT16_CONVERSIONS")
)
"""What torch's builder of extensions adds to nvcc's flags."""
_OF_CUDA = "c10/cuda/impl/cuda_cmake_macros.h"
"""A header that a torch with CUDA has, and none without."""
_OF_TORCH = re.compile(r"[\\/]torch[\\/]include[\\/]")
_INCLUDE = re.compile(r'\#\s*(?:include|import)\s*(["<][^">\n]+[">])')
_INSTALLED = re.compile(r"[\\/](?:site-packages|dist-packages|\.venv|venv|\.conda)[\\/]")
_MOST_NOTES = 12
_STANDARD_NAMES = {
    "cfloat": re.compile(r"(?:FLT|DBL|LDBL)_(?:MIN|MAX|EPSILON|DIG|MANT_DIG|TRUE_MIN|(?:MIN|MAX)(?:_10)?_EXP)|FLT_RADIX"),
    "climits": re.compile(r"(?:U?(?:CHAR|INT|LONG|LLONG)|SCHAR|U?SHRT)_(?:MAX|MIN)|CHAR_BIT"),
    "cstdint": re.compile(r"U?INT(?:8|16|32|64|PTR)_(?:MAX|MIN)|SIZE_MAX|u?int(?:8|16|32|64|ptr)_t"),
    "cassert": re.compile(r"assert"),
    "cinttypes": re.compile(r"PR[Iiduxo]{2}(?:8|16|32|64)"),
}  # fmt: skip
_UNDEFINED = re.compile(r'identifier "(\w+)" is undefined')
_WORD = re.compile(r"\b[A-Za-z_]\w*")
_MOST_WORDS, _MOST_TEXT = 500, 200_000
"""Words that a name is compared with, and characters of a text that is searched for them: some 10 ms."""


def explained(
    problems: tuple[Problem, ...], path: str, text: str, compilation: Compilation
) -> tuple[Problem, ...]:
    """The same problems for a reader of `path`, whose text is `text`; what only follows from one is among its notes."""
    placed = [_placed(_named(problem, compilation), path, text, compilation.root) for problem in problems]
    folded = _folded(_followed_from(placed))
    if not compilation.database and not compilation.database_command:
        folded = _with_macro(folded, path, text)
    return tuple(_with_database(folded, compilation.database_command, text))


def _is_slip(name: str, text: str) -> bool:
    """Whether a name in small letters is nearly another one of the text, and so no macro of a build."""
    if name.isupper() or len(text) > _MOST_TEXT:
        return False
    words = {word for word in _WORD.findall(text) if word[0] == name[0] and abs(len(word) - len(name)) < 2}
    from difflib import get_close_matches  # 3 ms, of errors alone

    return bool(get_close_matches(name, sorted(words - {name})[:_MOST_WORDS], 1, 0.75))


def _with_macro(problems: list[Problem], path: str, text: str) -> list[Problem]:
    """The first name that a header of the project lacks may be a macro of a build whose flags nothing writes down."""
    for at, problem in enumerate(problems):
        place, name = problem.place, _UNDEFINED.search(problem.message)
        if problem.severity != "error" or place is None or name is None or place.file == path:
            continue
        if not advice(problem) and not name[1].islower() and not _is_slip(name[1], text):
            advised = (
                f"{problem.message}; if the project's build defines it as a macro, name it too: "
                f'nvcc_flags = ["-D{name[1]}=<value>"]'
            )
            return [*problems[:at], replace(problem, message=advised), *problems[at + 1 :]]
    return problems


def _with_database(problems: list[Problem], command: str, text: str) -> list[Problem]:
    """The first error that the project's own flags may answer says how to get them."""
    at = next(
        (
            at
            for at, each in enumerate(problems)
            if each.severity == "error" and _OF_FLAGS.search(each.message)
        ),
        None,
    )
    if at is None or not command or _IS_MISSING in problems[at].message or advice(problems[at]):
        return problems  # it has a remedy of its own
    if (name := _UNDEFINED.search(problems[at].message)) and _is_slip(name[1], text):
        return problems
    first, line_end, rest = problems[at].message.partition("\n")
    # the command first: editors cut the end
    advised = (
        f"{first}; {command} writes the build's flags for orbit-lsp, if it has some for this{line_end}{rest}"
    )
    return [*problems[:at], replace(problems[at], message=advised), *problems[at + 1 :]]


def failure_of(failure: Failure, before: tuple[Problem, ...], now: tuple[Problem, ...], name: str) -> Failure:
    """The failure that a build's first error made, in the words and at the place that the error has now."""
    errors = [problem for problem in now if problem.severity == "error"]
    first = next((problem for problem in before if problem.severity == "error"), None)
    if first is None or not errors or first == errors[0] or failure.category != "compile error":
        return failure
    count = "1 error" if len(errors) == 1 else f"{len(errors)} errors"
    shown = errors[0]
    where = f"{Path(shown.place.file).name}:{shown.place.line}: " if shown.place else ""
    sentence = shown.message.partition("\n")[0]
    return replace(
        failure, message=f"{name} does not compile ({count}): {where}{sentence}", place=shown.place
    )


def _named(problem: Problem, compilation: Compilation) -> Problem:
    """A missing header with its remedy as the first sentence."""
    match = _MISSING.fullmatch(problem.message) if problem.severity == "error" else None
    if match is None:
        return replace(problem, message=problem.message + (advice(problem) or _half(problem, compilation)))
    name = next(filter(None, match.groups()))
    why = compilation.missing.get(name) or missing.provider(name, compilation.python)
    within = problem.place.file if problem.place else ""
    if (
        why
        and name in (*LIBRARIES, "cudnn.h")
        and _OF_TORCH.search(within)
        and _torch_lacks_cuda(compilation)
    ):
        # the libraries alone do not make torch's headers for CUDA compile
        lacks = missing.provider(_OF_CUDA, compilation.python)
        why = f"torch's headers include it, but {lacks}" if lacks else why
    if compilation.database_command.startswith("`cmake"):  # what configures a project names its folders too
        why = why.replace(
            f"{missing.CONFIGURE}, {missing.SETTING}",
            f"configure the project, {compilation.database_command}",
        )
    return replace(problem, message=f"{name} is not found: {why}" if why else f"{name} is not found")


def _torch_lacks_cuda(compilation: Compilation) -> bool:
    """Whether the file is compiled with the headers of a torch that was built without CUDA."""
    folders = [flag for flag in compilation.flags if flag.endswith(("/torch/include", "\\torch\\include"))]
    return bool(folders) and not any(Path(folder, _OF_CUDA).exists() for folder in folders)


def advice(problem: Problem) -> str:
    """What to do about an error that a setting or another release answers; empty for any other."""
    if problem.severity != "error":
        return ""
    if _SEPARATE in problem.message:
        return '; set nvcc_flags = ["-rdc=true"]'
    if problem.message.startswith("Unresolved extern function"):
        return '; if another file defines it, set nvcc_flags = ["-rdc=true"]'
    if flag := re.search(r"experimental flag '(--[\w-]+)'", problem.message):
        return f' Set nvcc_flags = ["{flag[1]}"].'
    if "requires --extended-lambda" in problem.message:
        return '; set nvcc_flags = ["--extended-lambda"]'
    if old := re.match(
        r'identifier "(__(?:shfl(?:_up|_down|_xor)?|any|all|ballot))" is undefined', problem.message
    ):
        return f"; since CUDA 9 it is {old[1]}_sync, whose first argument is the mask of lanes: 0xffffffff for all"
    if own := re.match(r'function "(atomic\w+)\([^"]*\)" has already been defined', problem.message):
        return f"; CUDA has {own[1]} itself for this GPU: put the project's own in #if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 600"
    if (name := _UNDEFINED.match(problem.message)) and (header := _standard_header(name[1])):
        return f"; it comes with <{header}>: include that"
    if re.match(r'identifier "(?:concept|requires)" is undefined', problem.message):
        return '; it is C++20: set nvcc_flags = ["-std=c++20"]'
    if re.match(r'"nvtx3::\w+" is ambiguous', problem.message):
        return "; CUDA 13 has NVTX's C++ headers itself: remove the project's copy, or name an older compiler with the setting `nvcc`"
    if re.match(r"(?:Call to|Unknown symbol) '_optix_", problem.message):
        return "; it is a device program of OptiX, which OptiX itself assembles when it loads it: the compiler has no figures"
    if _OTHER_GPU.search(problem.message):
        return "; it is for another GPU than the file is compiled for: name that GPU (setting `gpu`, option --gpu)"
    if target := re.match(r"Unsupported gpu architecture '\w+?_(\d+)", problem.message):
        why = (
            "CUDA 13 and newer have no code for it"
            if int(target[1]) < 75
            else "this compiler does not know it"
        )
        return f"; {why}: choose another GPU (setting `gpu`, option --gpu), or name another compiler with the setting `nvcc`"
    if _REMOVED.search(problem.message):
        return "; CUDA 13 removed it: change the code, or name an older compiler with the setting `nvcc`"
    return ""


def _standard_header(name: str) -> str:
    """Return the header of the C++ standard library that defines a macro or a type, "" for any other name."""
    return next((header for header, names in _STANDARD_NAMES.items() if names.fullmatch(name)), "")


def _half(problem: Problem, compilation: Compilation) -> str:
    """Of arithmetic of half precision that torch's own flags forbid: many an extension's build allows it again."""
    if (
        problem.severity == "error"
        and _OF_HALF.search(problem.message)
        and _NO_HALF[0] in compilation.flags
        and not any(flag.startswith("-U__CUDA_NO_HALF") for flag in compilation.flags)
    ):
        undefined = ", ".join(f'"-U{flag[2:]}"' for flag in _NO_HALF if flag in compilation.flags)
        return f"; torch's own flags forbid it: where the project's build allows it, set nvcc_flags = [{undefined}]"
    return ""


def _placed(problem: Problem, path: str, text: str, root: str) -> Problem:
    """An error in somebody else's header at the author's line that leads there, the header as a note."""
    place = problem.place
    if place is None or problem.severity != "error" or _authors(place.file, path, root):
        return problem
    leading = (note.place for note in problem.notes if note.place and _authors(note.place.file, path, root))
    own = next(leading, None)
    first, line_end, rest = problem.message.partition("\n")
    header, missing_too, _ = first.partition(_IS_MISSING)  # the remedy stands in the message only
    note = Note((header + missing_too).rstrip(": "), place)
    if own is None:
        own = including(place.file, path, text)
        first += "" if missing_too or advice(problem) else NOT_YOURS
    if own is None:
        return problem
    return replace(problem, message=first + line_end + rest, place=own, notes=(note, *problem.notes))


def _authors(file: str, path: str, root: str) -> bool:
    if file == path:
        return True
    return bool(root) and Path(file).is_relative_to(root) and not _INSTALLED.search(file[len(root) :])


def including(header: str, path: str, text: str, *, quoted: bool = False) -> Place | None:
    """The `#include` of the file that names the header, else the first of the header's own library, else the first; `quoted`:
    rather one with quotes, as a header of the project has it.
    """
    best: tuple[float, Place] | None = None
    library = Path(header).parts
    for line, directive in _directives(text):
        if match := _INCLUDE.search(directive):
            name = match[1][1:-1]
            names = Path(header).as_posix().endswith("/" + name)
            rank = 2.0 if names else 1.0 if name.partition("/")[0] in library else 0.0
            rank += 0.5 * (quoted and match[1][0] == '"' and not names)
            if best is None or rank > best[0]:
                column = directive.find(match[1])
                best = rank, Place(path, line, column + 1, column + 1 + len(match[1]))
    return best[1] if best else None


def _directives(text: str) -> list[tuple[int, str]]:
    """(line, text) of every `#include` that is no comment."""
    real = {clean_directive(directive).strip() for directive in directives(text)}
    lines = enumerate(text.split("\n"), 1)
    return [
        (number, line)
        for number, line in lines
        if "#" in line and clean_directive(line.strip()).strip() in real
    ]


def _followed_from(problems: list[Problem]) -> list[Problem]:
    """Errors in libraries' headers that only follow from one of the author's own are a note of it. Of others that come after one
    it is not known whether they do: the first error's remedy is the only one.
    """
    own = next(
        (at for at, each in enumerate(problems) if each.severity == "error" and not _was_moved(each)), None
    )
    if own is None or problems[own].place is None:
        return problems
    later = problems[own + 1 :]
    follow = [each for each in later if _was_moved(each) and _follows(each)]
    kept = [
        replace(each, message=each.message.replace(NOT_YOURS, "")) for each in later if each not in follow
    ]
    first = problems[own]
    if follow:
        what = (
            "1 error in a library's header only follows"
            if len(follow) == 1
            else f"{len(follow)} errors in libraries' headers only follow"
        )
        note = Note(f"{what} from it", follow[0].notes[0].place)
        first = replace(first, notes=(*first.notes, note))
    return [*problems[:own], first, *kept]


def _was_moved(problem: Problem) -> bool:
    """Whether it stood in a header that is not the author's."""
    return bool(problem.notes) and problem.message.startswith(problem.notes[0].message)


def _follows(problem: Problem) -> bool:
    """nvcc writes `<error-type>` for what has no type because of another error."""
    return "<error" in problem.message or any("<error" in note.message for note in problem.notes)


def _folded(problems: list[Problem]) -> list[Problem]:
    """Errors at one line that all come out of headers that are not the author's are one, the first."""
    kept: dict[object, Problem] = {}
    for problem in problems:
        inside = _was_moved(problem) and problem.place is not None and problem.notes[0].place is not None
        key: object = (
            (problem.place.file, problem.place.line, problem.tool)
            if inside and problem.place
            else id(problem)
        )
        if key in kept:
            first = kept[key]
            if len(first.notes) < _MOST_NOTES:
                kept[key] = replace(first, notes=(*first.notes, problem.notes[0]))
        else:
            kept[key] = problem
    return list(kept.values())
