"""Explains what compilers say in terms of the author's own files.

A missing header is named with what provides it. An error inside a header that is not the author's is shown at the
author's line that leads there.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

from orbit_lsp.compilation import foreign_text, missing, own_macros
from orbit_lsp.compilation.toolkit_headers import LIBRARIES
from orbit_lsp.kernels.cuda.lexer import clean_directive
from orbit_lsp.kernels.cuda.macros import directives
from orbit_lsp.state.compilation import Compilation
from orbit_remote.common import regular_files
from orbit_remote.common.limits import HEADER
from orbit_remote.common.messages import Failure, Note, Place, Problem

_MISSING = re.compile(
    r"(?P<gcc>\S.*?): No such file or directory|cannot open (?:source )?(?:include )?file:? [\"'](?P<edg>[^\"']+)[\"'].*|"
    r"[\"'](?P<clang>[^\"']+)[\"'] file not found|Cannot open include file: '(?P<msvc>[^']+)'.*",
    re.DOTALL,
)
_IS_MISSING = " is not found: "
_MAY_DEFINE = re.compile(r"-D|definitions|macros|what it ")
"""What is left out of a build and may have macros."""
_NAMES_FLAGS = "nvcc_flags = ["
_SEPARATE = "requires separate compilation mode"
_REMOVED = re.compile(
    r'class "cudaDeviceProp" has no member|(?:namespace|class) "(?:thrust|cub)(?:::\w+)*" has no member|'
    r'(?:identifier "(?:texture|cudaBindTexture\w*|cudaUnbindTexture|tex[123]D(?:fetch)?|cudaThread\w+)" is undefined)|'
    r"texture is not a template|"
    r'identifier "(?:cusparse[SDCZ]csr(?:mv|mm2?|gemm2?|sv\w*)|cudaStreamGetCaptureInfo_v2|cuStreamGetCaptureInfo_v2|PFN_\w+|cudaProfilerInitialize|'
    r'cudaBindSurface\w*|cudaSetupArgument|cudaConfigureCall|cudaLaunch|cudaGLSetGLDevice|u?int2float|float2u?int|float_as_int|int_as_float|u?mul(?:hi|24|64hi)|saturate|clz(?:ll)?|popc(?:ll)?|nppi\w+_(?:8u|16u|16s|32s|32f)_\w*[CAP]\dI?R)" is undefined|'
    r"surface is not a template"
)
"""Errors about what CUDA 13 no longer has."""
_OF_DEVICE_SYNC = re.compile(
    r'calling a __host__ function\("cudaDeviceSynchronize"\) from a __(?:global|device)__|identifier "cudaDeviceSynchronize" is undefined in device code'
)
_OF_THRUST = {
    name: header
    for header, names in {
        "binary_search": "binary_search lower_bound upper_bound equal_range", "extrema": "min_element max_element minmax_element",
        "scan": "inclusive_scan exclusive_scan inclusive_scan_by_key exclusive_scan_by_key", "sort": "sort stable_sort sort_by_key stable_sort_by_key",
        "reduce": "reduce reduce_by_key", "gather": "gather gather_if", "scatter": "scatter scatter_if", "copy": "copy copy_if copy_n", "fill": "fill fill_n",
        "transform": "transform transform_if", "sequence": "sequence", "count": "count count_if", "find": "find find_if find_if_not",
        "unique": "unique unique_copy unique_by_key unique_by_key_copy", "remove": "remove remove_if remove_copy remove_copy_if",
        "replace": "replace replace_if replace_copy", "partition": "partition partition_copy stable_partition", "merge": "merge merge_by_key",
        "inner_product": "inner_product", "transform_reduce": "transform_reduce", "for_each": "for_each for_each_n", "tabulate": "tabulate",
        "generate": "generate generate_n", "equal": "equal", "logical": "all_of any_of none_of", "adjacent_difference": "adjacent_difference",
        "set_operations": "set_union set_intersection set_difference", "reverse": "reverse reverse_copy", "swap": "swap_ranges", "mismatch": "mismatch",
    }.items()
    for name in names.split()
}  # fmt: skip
"""The header of each algorithm of Thrust."""
_OF_CUDNN = re.compile(
    r'identifier "(?:CUDNN_CONVOLUTION_(?:FWD|BWD_DATA|BWD_FILTER)_\w+|cudnnGetConvolution\w+Algorithm|cudnnSet\w+_v\d|cudnn\w*RNN\w*)" is undefined'
)
_CHANGED = re.compile(
    r'argument of type ".*" is incompatible with parameter of type "cudaMemLocation"|'
    r'no suitable constructor exists to convert from "(?:const )?\w+" to "cudaMemLocation"|'
    r"too few arguments in function call.*cudaMem(?:PrefetchAsync|Advise)"
)
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
_BROUGHT = re.compile(
    r"[\\/](?:third[-_]?party|externals?|extern|vendor|submodules|deps|cutlass|cub|thrust|cccl|libcudacxx)[\\/]"
)
"""Folders of a project that hold other projects' code."""
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
_MOST_BEFORE = 4
"""Lines before an `#error`, the condition among them."""
_MOST_WORDS, _MOST_TEXT = 500, 200_000
"""Words that a name is compared with, and characters of a text that is searched for them: some 10 ms."""


def explained(
    problems: tuple[Problem, ...], path: str, text: str, compilation: Compilation
) -> tuple[Problem, ...]:
    """Return the same problems for a reader of `path`, whose text is `text`. Problems that only follow from one are
    among its notes.
    """
    placed = [
        _placed(_named(problem, path, text, compilation), path, text, compilation) for problem in problems
    ]
    folded = _folded(_followed_from(placed))
    if not compilation.database and not compilation.database_command:
        folded = _with_macro(folded, path, text, compilation)
    return tuple(_with_build(folded, compilation, text))


def _is_slip(name: str, text: str) -> bool:
    """Say whether a name in small letters is nearly another name of the text, and so is no macro of a build."""
    if name.isupper() or len(text) > _MOST_TEXT:
        return False
    words = {word for word in _WORD.findall(text) if word[0] == name[0] and abs(len(word) - len(name)) < 2}
    from difflib import get_close_matches  # 3 ms, of errors alone

    return bool(get_close_matches(name, sorted(words - {name})[:_MOST_WORDS], 1, 0.75))


def _with_macro(problems: list[Problem], path: str, text: str, compilation: Compilation) -> list[Problem]:
    """Note that the first unknown name may be a macro of a build whose flags nothing writes down. It is a name that a
    header of the project lacks, or one in a file that no build names.
    """
    for at, problem in enumerate(problems):
        place, name = problem.place, _UNDEFINED.search(problem.message)
        if problem.severity != "error" or place is None or name is None:
            continue
        macro, own = name[1], place.file == path
        fragment = own and not _INCLUDE.search(text)  # a file that stands by itself includes what it names
        if own and (compilation.named or not (fragment or macro.isupper())):
            continue
        if not advice(problem) and (fragment or not macro[0].islower()) and not _is_slip(macro, text):
            flag = f'nvcc_flags = ["-D{macro}=<value>"]'
            if own:
                why = "no build file or script of the project names this file: if it is a part of another one, compile that"
                why += f"; for a value, {flag}" if macro.isupper() else ""
            else:
                why = f"if the project's build defines it as a macro, name it too: {flag}"
            advised = f"{problem.message}; {why}"
            return [*problems[:at], replace(problem, message=advised), *problems[at + 1 :]]
    return problems


def _with_build(problems: list[Problem], compilation: Compilation, text: str) -> list[Problem]:
    """Add to the first error that the project's own flags may mend how to get them, or what of them is not known."""
    command = compilation.database_command
    required = _required(problems)
    left_out = [each for each in compilation.left_out if _MAY_DEFINE.search(each.what)]
    at = next(
        (
            at
            for at, each in enumerate(problems)
            if each.severity == "error" and _OF_FLAGS.search(each.message)
        ),
        None,
    )
    if at is None or not (command or left_out or required) or _IS_MISSING in problems[at].message:
        return problems
    if advice(problems[at]) or _NAMES_FLAGS in problems[at].message:
        return problems  # it has a remedy of its own
    if (name := _UNDEFINED.search(problems[at].message)) and _is_slip(name[1], text):
        return problems
    first, line_end, rest = problems[at].message.partition("\n")
    # the command first: editors cut the end
    if command:
        advised = f"{first}; {command} writes the build's flags for orbit-lsp, if it has some for this"
    elif required:
        names = ", ".join(f'"-D{name}=<value>"' for name in required)
        advised = (
            f"{first}; who compiles it defines {', '.join(required)}: name values: nvcc_flags = [{names}]"
        )
    else:
        file, what = left_out[0].why.partition(" has it")[0], left_out[0].what
        which = '"-D<name>=<value>"' if not what.startswith("-") else f'"{what}"'
        advised = f"{first}; {file} has {what}, and only its run knows that: if this needs it, name it: nvcc_flags = [{which}]"
    return [*problems[:at], replace(problems[at], message=f"{advised}{line_end}{rest}"), *problems[at + 1 :]]


def _required(problems: list[Problem]) -> list[str]:
    """Return the macros whose lack the first `#error` is about, as the condition before it says. Reads its file."""
    for problem in problems:
        if problem.severity == "error" and problem.message.startswith("#error") and problem.place:
            try:
                lines = regular_files.text(problem.place.file, HEADER).split("\n")
            except (OSError, ValueError):
                return []
            before = [line for line in lines[: problem.place.line - 1][-_MOST_BEFORE:] if line.strip()]
            condition = before[-1] if before else ""
            if re.match(r"[ \t]*#[ \t]*ifndef[ \t]+\w+[ \t]*$", condition):
                return condition.split()[-1:]
            lacks = re.match(r"[ \t]*#[ \t]*(?:el)?if\b", condition)
            return (
                list(dict.fromkeys(re.findall(r"!\s*defined[ \t]*\(?[ \t]*(\w+)", condition)))
                if lacks
                else []
            )
    return []


def failure_of(failure: Failure, before: tuple[Problem, ...], now: tuple[Problem, ...], name: str) -> Failure:
    """Return the failure that a build's first error made, with the present text and place of the error."""
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


def _named(problem: Problem, path: str, text: str, compilation: Compilation) -> Problem:
    """Return a missing header's problem with its remedy as the first sentence."""
    match = _MISSING.fullmatch(problem.message) if problem.severity == "error" else None
    if match is None:
        advised = (
            foreign_text.advice(problem, path, text)
            or advice(problem)
            or _half(problem, compilation)
            or _put_in(problem, compilation)
        )
        first, line_end, rest = problem.message.partition("\n")
        return replace(problem, message=first + advised + line_end + rest)
    name = next(filter(None, match.groups()))
    why = compilation.missing.get(name) or missing.provider(name, compilation.python)
    if os.path.isabs(name) or re.match(r"[A-Za-z]:[\\/]", name):
        why = missing.of_other_machine(name)
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
    if why.startswith(f"{missing.NOWHERE},") and not compilation.named:
        why = f"{missing.NOWHERE}, and no build file or script of the project names this source: it may be a part of another project, {missing.SETTING}"
    return replace(problem, message=f"{name} is not found: {why}" if why else f"{name} is not found")


def _torch_lacks_cuda(compilation: Compilation) -> bool:
    """Say whether the file is compiled with the headers of a torch that was built without CUDA."""
    folders = [flag for flag in compilation.flags if flag.endswith(("/torch/include", "\\torch\\include"))]
    return bool(folders) and not any(Path(folder, _OF_CUDA).exists() for folder in folders)


def advice(problem: Problem) -> str:
    """Return what to do about an error that a setting or another release mends, "" for any other."""
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
    if "DeprecatedTypeProperties" in problem.message and "ScalarType" in problem.message:
        return "; torch takes no .type() there any more: write .scalar_type()"
    if re.match(r'no instance of overloaded function "atomic\w+" matches', problem.message) and re.search(
        r"argument types are: \((?:volatile )?(?:long|int64_t|long long) \*", problem.message
    ):
        return (
            "; CUDA has no such function of signed 64-bit integers: cast the pointer to unsigned long long*"
        )
    if problem.message.startswith("dynamic exception specifications are not permitted"):
        return "; C++17 has none, and CUDA 13's headers need C++17: write noexcept(false) or nothing, or name an older compiler with the setting `nvcc`"
    if own := re.match(
        r'invalid redeclaration of type name "(u?int(?:_fast|_least)?(?:8|16|32|64|ptr|max)_t)"',
        problem.message,
    ):
        return f"; <cstdint> declares {own[1]}, and CUDA's own headers include it: NVRTC alone needs a declaration, in #ifdef __CUDACC_RTC__"
    if (name := _UNDEFINED.match(problem.message)) and (header := _standard_header(name[1])):
        return f"; it comes with <{header}>: include that"
    if re.match(r'identifier "(?:concept|requires)" is undefined', problem.message):
        return '; it is C++20: set nvcc_flags = ["-std=c++20"]'
    if "version of CUB in your include path is not compatible" in problem.message:
        return "; the project has an old CUB of its own: leave its folder out, as CUDA has CUB itself, or name an older compiler with the setting `nvcc`"
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
    if _OF_DEVICE_SYNC.match(problem.message):
        return "; CUDA 12 and newer have none in device code: give what comes after it to a kernel that is launched into cudaStreamTailLaunch"
    if (name := re.match(r'namespace "thrust" has no member "(\w+)"', problem.message)) and name[
        1
    ] in _OF_THRUST:
        return f"; include <thrust/{_OF_THRUST[name[1]]}.h>, which other headers of CUDA 13 do no more"
    if _CHANGED.search(problem.message):
        return "; CUDA 13 changed it: a device is now a cudaMemLocation, as in cudaMemLocation{cudaMemLocationTypeDevice, 0}. Change the code, or name an older compiler with the setting `nvcc`"
    if _OF_CUDNN.search(problem.message):
        return "; cuDNN 9 has it no more: change the code, or install an older cuDNN"
    if 'incompatible with parameter of type "CUctxCreateParams *"' in problem.message:
        return "; CUDA 13 changed it: cuCtxCreate takes a CUctxCreateParams* before the flags, which may be nullptr. Change the code, or name an older compiler with the setting `nvcc`"
    if _REMOVED.search(problem.message):
        return "; CUDA 13 removed it: change the code, or name an older compiler with the setting `nvcc`"
    return ""


def _put_in(problem: Problem, compilation: Compilation) -> str:
    """Return the remedy for a name that a script of the project replaces or defines before it has the file compiled."""
    name = _UNDEFINED.match(problem.message) if problem.severity == "error" else None
    script = compilation.filled.get(name[1]) if name else None
    if not name or not script:
        return ""
    return f'; {script} puts it in before it has the file compiled: name a value to compile it here: nvcc_flags = ["-D{name[1]}=<value>"]'


def _standard_header(name: str) -> str:
    """Return the header of the C++ standard library that defines a macro or a type, "" for any other name."""
    return next((header for header, names in _STANDARD_NAMES.items() if names.fullmatch(name)), "")


def _half(problem: Problem, compilation: Compilation) -> str:
    """Return the remedy for arithmetic of half precision that torch's own flags forbid. Many an extension's build
    allows it again.
    """
    if (
        problem.severity == "error"
        and _OF_HALF.search(problem.message)
        and _NO_HALF[0] in compilation.flags
        and not any(flag.startswith("-U__CUDA_NO_HALF") for flag in compilation.flags)
    ):
        undefined = ", ".join(f'"-U{flag[2:]}"' for flag in _NO_HALF if flag in compilation.flags)
        return f"; torch's own flags forbid it: where the project's build allows it, set nvcc_flags = [{undefined}]"
    return ""


def _placed(problem: Problem, path: str, text: str, compilation: Compilation) -> Problem:
    """Return an error in somebody else's header at the author's line that leads there, with the header as a note."""
    place, root = problem.place, compilation.root
    if place is None or problem.severity != "error":
        return problem
    if _authors(place.file, path, root):
        if not _BROUGHT.search(place.file[len(root) :]) or advice(problem) or _IS_MISSING in problem.message:
            return problem
        by = including(place.file, path, text)
        return replace(
            problem, message=problem.message + _of_macro(place, by or place, path, text, compilation)
        )
    leading = (note.place for note in problem.notes if note.place and _authors(note.place.file, path, root))
    own = next(leading, None)
    first, line_end, rest = problem.message.partition("\n")
    header, missing_too, _ = first.partition(_IS_MISSING)  # the remedy stands in the message only
    note = Note((header + missing_too).rstrip(": "), place)
    given = own is not None
    own = own or including(place.file, path, text)
    if own is None:
        return problem
    if not missing_too and not advice(problem):
        first += _of_macro(place, own, path, text, compilation) or ("" if given else NOT_YOURS)
    return replace(problem, message=first + line_end + rest, place=own, notes=(note, *problem.notes))


def _of_macro(place: Place, own: Place, path: str, text: str, compilation: Compilation) -> str:
    """Return the author's macro that causes an error in a library's header, if the author's line `own` leads to the
    header. Return "" for none.
    """
    top = own if own.file == path else including(own.file, path, text, quoted=True)
    ends = {path: top.line if top else 0, own.file: own.line}
    return own_macros.blamed(place, path, text, ends, compilation)


def _authors(file: str, path: str, root: str) -> bool:
    if file == path:
        return True
    return bool(root) and Path(file).is_relative_to(root) and not _INSTALLED.search(file[len(root) :])


def including(header: str, path: str, text: str, *, quoted: bool = False) -> Place | None:
    """Return the `#include` of the file that names the header, else the first of the header's own library, else the
    first. `quoted`: prefer one with quotes, which a header of the project has.
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
    """Return (line, text) of every `#include` that is no comment."""
    real = {clean_directive(directive).strip() for directive in directives(text)}
    lines = enumerate(text.split("\n"), 1)
    return [
        (number, line)
        for number, line in lines
        if "#" in line and clean_directive(line.strip()).strip() in real
    ]


def _followed_from(problems: list[Problem]) -> list[Problem]:
    """Make errors in libraries' headers a note of the author's own error that they follow from. Of other errors that
    come after one it is not known whether they follow from it, so only the first error has a remedy.
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
    """Say whether a problem stood in a header that is not the author's."""
    return bool(problem.notes) and problem.message.startswith(problem.notes[0].message)


def _follows(problem: Problem) -> bool:
    """Say whether a problem follows from another: nvcc writes `<error-type>` for what has no type because of another
    error.
    """
    return "<error" in problem.message or any("<error" in note.message for note in problem.notes)


def _folded(problems: list[Problem]) -> list[Problem]:
    """Fold errors at one line that all come from headers that are not the author's into the first of them."""
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
