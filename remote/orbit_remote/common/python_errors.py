"""Explains an exception of user code in its own words, at the user's own line."""

from __future__ import annotations

import ast
import functools
import gc
import linecache
import os
import re
import site
import sys
import sysconfig
import traceback
import weakref
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import Any

from orbit_remote import PACKAGE
from orbit_remote.common import limits, regular_files
from orbit_remote.common.launch_records import OF_THE_MACHINE, CudaError
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.messages import Failure, Note, Place, Problem
from orbit_remote.common.packages import missing_modules
from orbit_remote.common.plain_text import plain

_CUDA_WORDS = {
    "illegal memory access": "CUDA_ERROR_ILLEGAL_ADDRESS",
    "busy or unavailable": "CUDA_ERROR_DEVICE_UNAVAILABLE",
    "uncorrectable ECC error": "CUDA_ERROR_ECC_UNCORRECTABLE",
    "uncorrectable NVLink error": "CUDA_ERROR_NVLINK_UNCORRECTABLE",
    "system not yet initialized": "CUDA_ERROR_SYSTEM_NOT_READY",
    "device-side assert": "CUDA_ERROR_ASSERT",
    "misaligned address": "CUDA_ERROR_MISALIGNED_ADDRESS",
    "illegal instruction": "CUDA_ERROR_ILLEGAL_INSTRUCTION",
    "operation not supported on global/shared address space": "CUDA_ERROR_INVALID_ADDRESS_SPACE",
    "invalid program counter": "CUDA_ERROR_INVALID_PC",
    "hardware stack error": "CUDA_ERROR_HARDWARE_STACK_ERROR",
    "unspecified launch failure": "CUDA_ERROR_LAUNCH_FAILED",
    "launch timed out": "CUDA_ERROR_LAUNCH_TIMEOUT",
    "too many resources requested": "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
    "out of memory": "CUDA_ERROR_OUT_OF_MEMORY",
    "no kernel image": "CUDA_ERROR_NO_BINARY_FOR_GPU",
    "invalid argument": "CUDA_ERROR_INVALID_VALUE",
}
"""What torch and triton write (`cudaGetErrorString`) and the error they mean."""

_OF_CUDA = frozenset(("AcceleratorError", "CUDARuntimeError"))
"""What torch and CuPy raise for errors of CUDA alone."""

_NEEDED = ("torch", "triton")
"""Packages of the machine: a Python without them is the machine's fault."""

_REMEDIES = {
    "CUDA_ERROR_ILLEGAL_ADDRESS": "check masks and pointer arithmetic; compute-sanitizer names the access",
    "CUDA_ERROR_ASSERT": "a device_assert failed; its text is in the output",
    "CUDA_ERROR_OUT_OF_MEMORY": "use smaller inputs or a GPU with more memory",
}


@dataclass(frozen=True, slots=True)
class Explained:
    """A failed run, for people. `code` is the CUDA error's name if it was one."""

    failure: Failure
    problems: tuple[Problem, ...]
    code: str | None = None


@dataclass(frozen=True, slots=True)
class ErrorFrame:
    place: Place
    function: str


def explain(error: BaseException, path: str) -> Explained:
    """Explain an exception. `path` is the file that was run. Frames of it and of the user's other files are shown."""
    if isinstance(error, SyntaxError) and error.filename:
        return _syntax_error(error)
    if compilation := _compilation_errors(error):
        return _compilation(error, compilation, path)
    name = type(error).__name__
    if name == "DSLUserCodeError" and error.__cause__ is not None:  # CuTe DSL's, around what a kernel raised
        return explain(error.__cause__, path)
    words = plain(_words(error)).strip()
    place, notes = _frames(error, path)
    if (named := _hashed(error)) is not None:
        return _of_reference(named, words, place, path)
    if isinstance(error, ModuleNotFoundError) and error.name in _NEEDED:
        return _missing(error.name, place, path)
    if isinstance(error, ImportError) and (remedy := missing_modules.remedy(error, path)):
        return _at(f"{name}: {words}", "python", place, notes, remedy=remedy)
    if language := _compiler(error):
        return _refused(error, language, words, place, path)
    if name == "PTXASError":
        return _at(f"{words}", "ptxas", place, notes, category="compile error")
    if name in {"OutOfResources", "AutotunerError", "InterpreterError"}:
        return _at(words, "triton", place, notes)
    if "active drivers (" in words or "Found no NVIDIA driver" in words:
        message = "there is no usable NVIDIA GPU or driver on this machine"
        remedy = "run it on a machine with an NVIDIA GPU"
        return _at(message, "cuda", place, notes, category="infrastructure", remedy=remedy)
    first_line = words.split("\n", 1)[0]
    if (cuda := cuda_error(error)) is not None:
        category, remedy = _of(cuda)
        return _at(f"{cuda}: {first_line}", "cuda", place, notes, category=category, remedy=remedy, code=cuda)
    if isinstance(error, KeyboardInterrupt):
        return _at("interrupted (KeyboardInterrupt)", "program", place, notes)
    if isinstance(error, BlockingIOError) and "fork" in _last_line(error):
        message = "no more processes can be started: the limit of processes is reached"
        return _at(message, "program", place, notes, remedy="start fewer, or wait until some have ended")
    return _at(f"{name}: {words}" if words else name, "program", place, notes)


def _last_line(error: BaseException) -> str:
    """Return the source line that raised it, or "" if that is not known."""
    frames = traceback.extract_tb(error.__traceback__)
    return (frames[-1].line if frames else None) or ""


def _refused(error: BaseException, language: str, words: str, launched: Place | None, path: str) -> Explained:
    """Return what a compiler of another kernel language said, at the lines that it names."""
    notes = (Note("compiled for this launch", launched),) if launched else ()
    if problems := _of_embedded(error, words, path):
        first = problems[0]
        explained = _at(first.message, first.tool, first.place, notes, category="compile error")
        return replace(explained, problems=(*explained.problems, *problems[1:]))
    whole = words
    if language == "numba":  # below it are the lines of source, for a terminal
        words = words.partition('\nFile "')[0].strip() or words
    place = _named_line(whole, path) or launched
    return _at(words, language, place, notes if place != launched else (), category="compile error")


def _missing(module: str, place: Place | None, path: str) -> Explained:
    """Return that the Python lacks what every file of kernels needs: nothing is wrong with the file."""
    if place is None:  # we imported it before the file did
        lines = enumerate(linecache.getlines(path), 1)
        at = next((n for n, line in lines if re.match(rf"\s*(?:import|from)\s+{module}\b", line)), None)
        place = Place(path, at) if at else None
    remedy = missing_modules.install(module)
    message = f"{sys.executable} has no {module}"
    return _at(
        f"{message}: {remedy}", "python", place, (), category="infrastructure", remedy=remedy, words=message
    )


def _words(error: BaseException) -> str:
    """Return what an exception says. Return "" if its own `__str__`, which may be user code, fails."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - whatever it raises
        return ""


def cuda_error(error: BaseException) -> str | None:
    """Return the CUDA error that an exception reports, by the driver's name."""
    words = _words(error)
    name = type(error).__name__
    if name == "OutOfMemoryError":
        return "CUDA_ERROR_OUT_OF_MEMORY"
    if named := re.search(r"\bCUDA_ERROR_[A-Z_]+", words):
        return named[0]
    if "CUDA error" not in words and "[CUDA]" not in words and name not in _OF_CUDA:
        return None
    # torch adds advice to each error, which speaks of device-side assertions
    first = words.partition("\n")[0]
    said = first if any(phrase in first for phrase in _CUDA_WORDS) else words
    return next((code for phrase, code in _CUDA_WORDS.items() if phrase in said), "CUDA error")


def left(code: object) -> tuple[int, Explained | None]:
    """Return what `raise SystemExit(code)` means for a process: its exit status, and why that is a failure."""
    if code is None:
        return 0, None
    status = code & 0xFF if isinstance(code, int) else 1
    if status == 0:
        return 0, None
    words = "" if isinstance(code, int) else f": {code}"
    message = f"the program exited with code {status}{words}"
    return status, Explained(Failure("runtime error", message), ())


def _at(
    message: str, tool: str, place: Place | None, notes: tuple[Note, ...], *,
    category: Any = "runtime error", remedy: str = "", code: str | None = None, words: str = "",
) -> Explained:  # fmt: skip
    """Return a failure with its problem. `words` is the failure's message if the problem's has more, such as its
    remedy.
    """
    failure = Failure(category, words or message, remedy, retryable=code in OF_THE_MACHINE, place=place)
    return Explained(failure, (Problem("error", message, tool, place, code, notes=notes),), code)


def cuda_failure(error: CudaError) -> Explained:
    """Return a failure that the program itself did not report."""
    message = f"{error.name} (reported by {error.function}); the program did not stop for it"
    category, remedy = _of(error.name)
    explained = _at(message, "cuda", None, (), category=category, remedy=remedy, code=error.name)
    return with_cause(explained, error)


def _of(cuda: str) -> tuple[Any, str]:
    """Return whose failure a CUDA error is, and what to do."""
    if cuda in OF_THE_MACHINE:
        return "infrastructure", OF_THE_MACHINE[cuda][1]
    return "runtime error", _REMEDIES.get(cuda, "")


def with_cause(explained: Explained, error: CudaError) -> Explained:
    """Name the kernel that was launched last. That kernel, or one before it, has failed."""
    if error.last_kernel is None:
        return explained
    words = f"; the kernel launched last was {error.last_kernel}"
    failure = replace(explained.failure, message=explained.failure.message + words, symbol=error.last_kernel)
    problems = tuple(
        replace(p, message=p.message + words, symbol=error.last_kernel) for p in explained.problems
    )
    return Explained(failure, problems, explained.code)


def at_kernel(explained: Explained, places: Mapping[str, Place]) -> Explained:
    """Put a failure that names a kernel but no line on the kernel. For any other failure, note where the kernel is."""
    place = places.get(explained.failure.symbol or "")
    if place is None:
        return explained
    note = Note(f"{explained.failure.symbol} is here", place)
    return replace(
        explained,
        failure=replace(explained.failure, place=explained.failure.place or place),
        problems=tuple(
            replace(p, notes=(*p.notes, note)) if p.place else replace(p, place=place)
            for p in explained.problems
        ),
    )


# -- Python -----------------------------------------------------------------------------------------


def _syntax_error(error: SyntaxError) -> Explained:
    """Return a syntax error. Python counts its columns in code points from 1, and an end of 0 is no end."""
    place = None
    if error.filename and error.lineno:
        end = error.end_offset if error.end_lineno == error.lineno and error.end_offset else None
        start = error.offset if error.offset and error.offset > 0 else None
        place = Place(error.filename, error.lineno, start, end if start and end and end > start else None)
    return _at(f"{type(error).__name__}: {error.msg}", "python", place, (), category="compile error")


def _frames(error: BaseException, path: str) -> tuple[Place | None, tuple[Note, ...]]:
    """Return the innermost frame in the user's files, and the way to it from the outside in."""
    frames = list(user_frames(error.__traceback__, path))
    if not frames:
        return None, ()
    notes = tuple(Note(f"called from {f.function}", f.place) for f in reversed(frames[:-1]))
    return frames[-1].place, notes


def user_frames(tb: TracebackType | None, path: str) -> Iterator[ErrorFrame]:
    for frame, line in traceback.walk_tb(tb):
        file = frame.f_code.co_filename
        if not is_users(file, path):
            continue
        yield ErrorFrame(_position(frame.f_code, _lasti(tb, frame), file, line), frame.f_code.co_name)


def _lasti(tb: TracebackType | None, frame: Any) -> int:
    while tb is not None and tb.tb_frame is not frame:
        tb = tb.tb_next
    return tb.tb_lasti if tb is not None else -1


def _position(code: Any, lasti: int, file: str, line: int) -> Place:
    positions = list(code.co_positions())
    if not 0 <= lasti // 2 < len(positions):
        return Place(file, line)
    start, end, column, end_column = positions[lasti // 2]
    if start != line or column is None:
        return Place(file, line)
    text = linecache.getline(file, line)
    stop = points(text, end_column) if end == line else len(text.rstrip("\n"))
    return Place(file, line, points(text, column) + 1, stop + 1)


def points(text: str, offset: int | None) -> int:
    """Return the code points before a UTF-8 byte offset: Python's trees and code objects count bytes."""
    return len(text.encode()[:offset].decode(errors="replace"))


_FOREIGN = tuple(
    str(Path(folder).resolve()) + "/"
    for folder in {
        *(p for k, p in sysconfig.get_paths().items() if k in {"stdlib", "platstdlib", "purelib", "platlib"}),
        *site.getsitepackages(),
        str(PACKAGE),
    }
)


# Packages may lie in a folder that only a .pth file names, such as that of another environment.
_INSTALLED = re.compile(r"[/\\](?:site|dist)-packages[/\\]")


def is_users(file: str, path: str) -> bool:
    if file == path:
        return True
    if not file or file.startswith("<"):
        return False
    real = _real(file)
    return not real.startswith(_FOREIGN) and not _INSTALLED.search(real)


def _real(file: str) -> str:
    """Return a path without links."""
    folder, name = os.path.split(file)
    if not os.path.isabs(folder) or name in ("", ".", ".."):  # noqa: PTH117 - texts, by the thousand
        return os.path.realpath(file)
    return _real_absolute(folder, name)


@functools.lru_cache(maxsize=8192)
def _real_absolute(folder: str, name: str) -> str:
    """Return an absolute path without links. The folder's is cached: each link of a path costs a look at the disk,
    and each job asks about a thousand modules.
    """
    path = os.path.join(_real_folder(folder), name)  # noqa: PTH118
    return os.path.realpath(path) if os.path.islink(path) else path  # noqa: PTH114


@functools.lru_cache(maxsize=4096)
def _real_folder(folder: str) -> str:
    return os.path.realpath(folder)


# -- Triton -----------------------------------------------------------------------------------------


def _compilation_errors(error: BaseException) -> list[Any]:
    """Return the CompilationErrors of a chain, outermost (the kernel) first, innermost (a helper) last."""
    errors = sys.modules.get("triton.compiler.errors")
    chain: list[Any] = []
    at: BaseException | None = error
    while at is not None and errors is not None:
        if isinstance(at, errors.CompilationError):
            chain.append(at)
        at = at.__cause__
    return chain


def _hashed(error: BaseException) -> SimpleNamespace | None:
    """Return the kernel's text and the node that Triton refused while it hashed the kernel, before compiling it."""
    source: str | None = None
    node: Any = None
    at = error.__traceback__
    while at is not None:
        owner: Any = at.tb_frame.f_locals.get("self")
        if type(owner).__name__ == "JITFunction":
            source = owner.src if at.tb_frame.f_code.co_name == "cache_key" else source
        if type(owner).__name__ == "DependenciesFinder":
            node = at.tb_frame.f_locals.get("node", node)
        at = at.tb_next
    if source is None or getattr(node, "lineno", None) is None:
        return None
    return SimpleNamespace(src=source, node=node, error_message="")


def _of_reference(named: SimpleNamespace, words: str, launched: Place | None, path: str) -> Explained:
    if words.startswith("Unsupported function referenced"):
        words = f"{ast.unparse(named.node)} cannot be used in a kernel: it is no function of Triton's, and has no @triton.jit"
    place = _compilation_place(named)
    if place is None or not is_users(place.file, path):
        return _at(words, "triton", launched, (), category="compile error")
    notes = (Note("compiled for this launch", launched),) if launched else ()
    return _at(words, "triton", place, notes, category="compile error")


def static_assert(error: BaseException) -> str | None:
    """Return the words of a `tl.static_assert` that failed, if the error is one."""
    kinds = (
        compilation_error
        for compilation_error in _compilation_errors(error)
        if type(compilation_error).__name__ == "CompileTimeAssertionFailure"
    )
    return next((str(kind.error_message or "") for kind in kinds), None)


def _compilation(error: BaseException, chain: list[Any], path: str) -> Explained:
    message = next((e.error_message for e in reversed(chain) if e.error_message), None)
    if message is None:
        cause = chain[-1].__cause__
        message = str(cause) if cause is not None else type(chain[-1]).__name__
    places = [place for e in chain if (place := _compilation_place(e)) is not None]
    mine = [p for p in places if is_users(p.file, path)]
    place = mine[-1] if mine else None
    notes = [Note("called from here", p) for p in reversed(mine[:-1])]
    if places and places[-1] is not place:  # inside Triton's own library
        notes.insert(0, Note("the error is inside this function", places[-1]))
    launched, _ = _frames(error, path)
    if launched is not None:
        notes.append(Note("compiled for this launch", launched))
    return _at(_plain(message.strip()), "triton", place or launched, tuple(notes), category="compile error")


_RAISED = re.compile(r"""\A\w+\((?P<words>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"),?\)\Z""", re.DOTALL)
_NO_ATTRIBUTE = re.compile(
    r"\A(?P<kind>module|'[\w.]+' object|type object) ?'?(?P<of>[\w.]*)'? has no attribute '(?P<name>\w+)'\Z"
)

_OPERATOR = re.compile(r"\A'(?P<kind>[A-Z]\w*)' object has no attribute '__name__'\Z")
"""Triton fails as it names a node of the syntax tree that it has no operator for."""
_LOOPED = re.compile(r"\A'[A-Z]\w*' object has no attribute 'func'\Z")
"""It takes what a loop iterates over for a call."""
_CALLED = re.compile(r"\Aunhashable type: '(?P<kind>\w+)'\Z")
"""Triton looks a function up before it calls it."""


def _plain(message: str) -> str:
    """Simplify a message. If Python's own rules refuse, Triton's front end shows the `repr` of an exception; its
    words are enough.
    """
    if raised := _RAISED.match(message):
        message = str(ast.literal_eval(raised["words"]))
    if operator := _OPERATOR.match(message):
        return f"Triton does not support the operator {operator['kind']} here"
    if _LOOPED.match(message):
        return "Only `range` and `static_range` iterators are currently supported"
    if message == "StopIteration()":  # Triton reads its arguments before it says so
        return "nested function definition is not supported."
    if called := _CALLED.match(message):
        return f"a value of type {called['kind']} cannot be called"
    if of := _NO_ATTRIBUTE.match(message):
        owner = (
            of["of"] if of["kind"] == "module" else f"a value of type {of['kind'].split()[0].strip(chr(39))}"
        )
        return f"{owner} has no `{of['name']}`"
    return message


def _compilation_place(error: Any) -> Place | None:
    function = _jit_function(error.src)
    node = _named(error)
    if function is None or getattr(node, "lineno", None) is None:
        return None
    file, line, indent = definition(function)
    lines = error.src.split("\n")
    text = lines[node.lineno - 1] if node.lineno <= len(lines) else ""
    column = indent + points(text, node.col_offset) + 1
    one_line = node.end_lineno == node.lineno
    stop = indent + (points(text, node.end_col_offset) if one_line else len(text)) + 1
    return Place(file, line + node.lineno - 1, column, stop)


def _named(error: Any) -> Any:
    """Return the node that an error is about. If Triton misses something while it looks through an `if` for `return`,
    it reports the `if`. It reports a function within a kernel at its arguments, and all of a loop or call if its
    iterator or a keyword is wrong.
    """
    words = str(getattr(error, "error_message", "") or getattr(error, "__cause__", None) or "")
    if isinstance(error.node, ast.For) and re.search(r"Only `range`|has no attribute 'func'", words):
        return error.node.iter
    keyword = re.search(r"unexpected keyword argument '(\w+)'", words)
    if keyword and isinstance(error.node, ast.Call):
        return next((each for each in error.node.keywords if each.arg == keyword[1]), error.node)
    if isinstance(error.node, ast.arg):
        place = error.node.lineno, error.node.col_offset
        for node in ast.walk(ast.parse(error.src)):
            if isinstance(node, ast.FunctionDef) and any(
                (a.lineno, a.col_offset) == place for a in node.args.args
            ):
                return node
    missing = re.search(r"has no attribute '(\w+)'", words)
    if missing is None or not isinstance(error.node, ast.If):
        return error.node
    named = [
        node for node in ast.walk(error.node) if isinstance(node, ast.Attribute) and node.attr == missing[1]
    ]
    return min(named, key=lambda node: (node.lineno, node.col_offset), default=error.node)


def _jit_function(source: str | None) -> Any:
    """Return the JIT function whose source an error carries. The error itself does not say which it was."""
    callable_type = getattr(sys.modules.get("triton.runtime.jit"), "JITFunction", None)
    if source is None or callable_type is None:
        return None
    function = _functions.get(source)  # the same error comes again with other types; a search takes 0.1 s
    if function is None:
        # by type: `isinstance` asks an object for its class, at which some of torch's warn or load
        kept = (o for o in gc.get_objects() if issubclass(type(o), callable_type) and o.src == source)
        if (function := next(kept, None)) is not None:
            _functions[source] = function
    return function


_functions: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
"""JIT functions by their source."""


def definition(function: Any) -> tuple[str, int, int]:
    """Return (file, line of `def`, its indentation) of a JIT function, without its decorators."""
    code = function.fn.__code__
    before = 0
    for before, line in enumerate(function.raw_src):
        if match := re.match(r"(\s*)def\s", line):
            return code.co_filename, code.co_firstlineno + before, len(match[1])
    return code.co_filename, code.co_firstlineno, 0


# -- compilers of Python's other kernel languages: each has its own way to name a line -----------------

_COMPILERS = {
    "numba.": "numba", "warp.": "warp", "helion.": "helion", "cuda.tile.": "cuTile", "cupy.": "CuPy", "tilelang.": "TileLang",
}  # fmt: skip
"""Modules that define errors of a compiler, by how their names begin."""
_RUNNING = frozenset(
    ("CUDARuntimeError", "CUDADriverError", "CudaAPIError", "CudaSupportError", "OutOfMemoryError")
)
_OF_NVCC = re.compile(
    r"^(?P<file>\S[^\n(]*)\((?P<line>\d{1,7})\): (?:catastrophic |fatal )?(?P<severity>error|warning)[^:\n]*: (?P<words>[^\n]+)",
    re.MULTILINE,
)
"""NVRTC's and nvcc's."""
_MOST_PROBLEMS = 20
_NEAR = 40
"""Lines before and after an error that tell which of several equal lines it is at."""


def _compiler(error: BaseException) -> str:
    """Return the language whose compiler refused a kernel with this error, or "" for any other error."""
    kind = type(error)
    if kind is RuntimeError and str(error).startswith("Error building extension"):
        return "nvcc"  # of torch.utils.cpp_extension
    name = next((name for module, name in _COMPILERS.items() if kind.__module__.startswith(module)), "")
    return "" if kind.__name__ in _RUNNING else name


def _named_line(words: str, path: str) -> Place | None:
    """Return the first line of the author's file that an error's words name: `File "k.py", line 8`, `at /a/k.py:8`,
    `k.py (8)`.
    """
    name = re.escape(Path(path).name)
    named = re.search(rf"""(?<![\w.-]){name}["']?(?:, line |:| \()(\d{{1,7}})\b""", words)
    return Place(path, int(named[1])) if named and int(named[1]) > 0 else None


def _of_embedded(error: BaseException, words: str, path: str) -> list[Problem]:
    """Return the errors of CUDA C++ in strings of the author's file, at their lines there."""
    problems: list[Problem] = []
    for match in _OF_NVCC.finditer(words):
        if match["severity"] == "error" and len(problems) < _MOST_PROBLEMS:
            line: int | None = int(match["line"])
            if match["file"] != path:  # `under_profiler` has named the author's file
                source = _source(error, match["file"])
                line = same_line(
                    source, int(match["line"]), [text.rstrip() for text in linecache.getlines(path)]
                )
            if line is not None:
                problems.append(Problem("error", match["words"], "nvcc", Place(path, line)))
    return list(dict.fromkeys(problems))


def _source(error: BaseException, file: str) -> list[str]:
    """Return the lines that were compiled: CuPy's error has them, torch leaves them in a file."""
    text = getattr(error, "source", None)
    if not isinstance(text, str):
        try:
            text = regular_files.text(file.strip(), limits.SOURCE)
        except (OSError, ValueError):
            return []
    return [line.rstrip() for line in text.split("\n")]


def same_line(source: Sequence[str], line: int, lines: Sequence[str]) -> int | None:
    """Return the number in `lines` of a line of `source`. Both count from 1. If the line is repeated, take the one
    whose neighbours match best.
    """
    if not 0 < line <= len(source) or not source[line - 1].strip():
        return None
    at = _positions(lines)
    near = [
        number
        for number in range(max(line - _NEAR, 0), min(line + _NEAR, len(source)))
        if source[number].strip()
    ]
    distances = Counter(there - here for here in near for there in at.get(source[here], ()))
    best = max(at.get(source[line - 1], ()), key=lambda there: distances[there - (line - 1)], default=None)
    return None if best is None else best + 1


def _positions(lines: Sequence[str]) -> dict[str, list[int]]:
    positions: dict[str, list[int]] = {}
    for number, text in enumerate(lines):
        positions.setdefault(text, []).append(number)
    return positions
