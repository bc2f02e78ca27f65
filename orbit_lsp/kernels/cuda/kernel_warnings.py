"""Static checks of a CUDA text: faults that its tokens show.

A check is silent if a fact is not certain. The remaining warnings were right on published kernels
(`bench/kernel_warnings.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, Literal, NamedTuple

from orbit_lsp.kernels.cuda import double_literals
from orbit_lsp.kernels.cuda.functions import CudaFunction, CudaText, named
from orbit_lsp.kernels.cuda.lexer import IDENTIFIER
from orbit_lsp.kernels.cuda.thread_values import ASSIGNS, ThreadValues
from orbit_lsp.kernels.model import Scan

Check = Literal["bounds", "barrier", "launch", "types"]
MOST_CHARACTERS: Final = 1 << 20
"""Of a text that is checked."""

_INTEGERS: Final = frozenset(
    [
        "int",
        "unsigned",
        "long",
        "short",
        "size_t",
        "ssize_t",
        "ptrdiff_t",
        "uint",
        "int32_t",
        "uint32_t",
        "int64_t",
        "uint64_t",
    ]
)
_SIZES: Final = frozenset(["n", "size", "len", "length", "count", "num", "total", "numel", "elements"])
_ROUNDS_UP: Final = ("ceil", "divup", "div_up", "cdiv", "roundup", "round_up")
_FURTHEST: Final = 100
"""How many tokens of a declaration, a statement or a launch are looked at."""
_MOST_LAUNCHES: Final = 2_000
_MOST_VALUES: Final = 16
_MOST_SHARED: Final = 64
_MOST_CALLERS: Final = 64
_WAITS: Final = ("sync", "barrier", "bar_", "wait", "fence", "arrive")
_MAY_WAIT: Final = ("reduce", "scan", "sort", "exchange")
"""In names of functions: libraries' that wait for all threads have them."""
_LOOKS: Final = ("check", "err", "sync", "assert", "safe", "success", "status", "catch", "fail", "verify")
"""In names of what may look at errors."""


class KernelWarning(NamedTuple):
    """A warning. `line` counts from 0. `function` is the kernel, or the function of the host, that it is about."""

    check: Check
    line: int
    function: str
    message: str


def warnings(text: str, scan: Scan) -> list[KernelWarning]:
    """Return the warnings in the order of their lines: the first of each check in a function. Never raises."""
    if scan.language != "cuda" or len(text) > MOST_CHARACTERS:
        return []
    code = CudaText(text)
    kernels = [function for kernel in scan.kernels if (function := code.kernel(kernel))]
    functions = list(code.functions())
    host = [function for function in functions if not function.on_device]
    device = {function.body[0].start: function for function in (*functions, *kernels) if function.body}
    every = [
        *_bounds(code, kernels, host),
        *_barriers(code, kernels, functions),
        *_launches(code, host),
        *_types(code, [function for function in device.values() if function.on_device]),
    ]
    return sorted(every, key=lambda warning: warning.line)


# -- bounds -------------------------------------------------------------------------------------------


def _bounds(
    code: CudaText, kernels: Sequence[CudaFunction], host: Sequence[CudaFunction]
) -> Iterator[KernelWarning]:
    """Yield writes at an index that nothing compares, if threads beyond the end must be expected.

    That is so if the grid of the launch is rounded up, or if there is no launch and nothing uses the size. Otherwise
    a kernel whose grid fits exactly would be accused.
    """
    names = Counter(kernel.name for kernel in kernels)
    grids = _grids(host)
    for kernel in kernels:
        sizes = _integers(kernel)
        values = ThreadValues(kernel.body)
        if not sizes or any(_may_compare(code, values.words, at) for at in range(len(values.words))):
            continue
        if values.are_compared():
            continue
        unused = [name for name in sizes if name not in values.words and _is_size(name)]
        rounded = grids.get(kernel.name)
        if names[kernel.name] > 1 or rounded is False or (rounded is None and not unused):
            continue
        pointers = _pointers(kernel)
        for at, name, index in values.writes():
            if name in pointers and name not in values.assigned and values.is_global(index):
                why = "its grid is rounded up" if rounded else f"its parameter {unused[0]} is not used"
                message = f"{kernel.name} writes {name}[…] at an index that it compares with nothing, and {why}: threads beyond the end would write there"
                yield KernelWarning("bounds", code.line(kernel.body[at]), kernel.name, message)
                break


def _may_compare(code: CudaText, words: Sequence[str], at: int) -> bool:
    """Say whether a macro is called there, which may compare."""
    word = words[at]
    if words[at + 1 : at + 2] != ["("]:
        return word in code.macros and "return" in code.macros[word].body
    return word in code.macros or (word.isupper() and len(word) > 3)


def _is_size(name: str) -> bool:
    return not _SIZES.isdisjoint(name.lower().split("_"))


def _grids(host: Sequence[CudaFunction]) -> dict[str, bool]:
    """Return the kernels that are launched, and whether with more threads than there are elements: `(n + 255)

    256` blocks.
    """
    grids: dict[str, bool] = {}
    looked_at = 0
    for function in host:
        words = function.words
        values: dict[str, int] = {}
        for at, word in enumerate(words):
            if word in {"=", "(", "{"} and at and (word == "=" or words[max(0, at - 2)] == "dim3"):
                values[words[at - 1]] = at + 1
            elif _is_launch(function, at):
                looked_at += 1
                name = _launched(words, at)
                rounded = looked_at < _MOST_LAUNCHES and _is_rounded_up(words, at + 3, values)
                grids[name] = grids.get(name, False) or rounded
    return grids


def _is_rounded_up(words: Sequence[str], grid: int, values: Mapping[str, int]) -> bool:
    """Say whether the grid there, or a variable that it is made of, is rounded up."""
    parts = [_until_comma(words, grid)]
    known: set[str] = set()
    for part in parts:  # it grows
        for word in part:
            if word in values and word not in known and len(parts) < _MOST_VALUES:
                known.add(word)
                parts.append(_statement(words, values[word]))
    # a quotient that is divided again may be a size that was rounded up itself, with memory for it
    quotients = {name for name in known if "/" in _statement(words, values[name])}
    if any("/" in part and not quotients.isdisjoint(part) for part in parts):
        return False
    return any(_rounds_up(part) for part in parts)


def _statement(words: Sequence[str], start: int) -> list[str]:
    part: list[str] = []
    for word in islice(words, start, start + _FURTHEST):
        if word == ";":
            break
        part.append(word)
    return part


def _until_comma(words: Sequence[str], start: int) -> list[str]:
    part: list[str] = []
    depth = 0
    for word in islice(words, start, start + _FURTHEST):
        depth += (word in {"(", "{", "["}) - (word in {")", "}", "]"})
        if (word == "," and depth == 0) or word == ";" or depth < 0:
            break
        part.append(word)
    return part


def _rounds_up(words: Sequence[str]) -> bool:
    for at, word in enumerate(words):
        if any(part in word.lower() for part in _ROUNDS_UP):
            return True
        if word == "/" and words[max(0, at - 1) : at] == [")"]:
            if words[max(0, at - 3) : at - 1] == ["-", "1"]:
                return True
            size, *behind = words[at - 2], *words[at + 1 : at + 2]
            if (
                words[max(0, at - 3) : at - 2] == ["+"]
                and size.isdecimal()
                and [str(int(size) + 1)] == behind
            ):
                return True
    return False


def _integers(kernel: CudaFunction) -> list[str]:
    """Return the parameters that are integers."""
    return [
        name
        for part in kernel.parameter_list()
        if _INTEGERS & {*part} and not {"*", "&", "[", "<"} & {*part} and (name := named(part))
    ]


def _pointers(kernel: CudaFunction) -> set[str]:
    return {
        named(part) for part in kernel.parameter_list() if ("*" in part or "[" in part) and "(" not in part
    }


# -- barriers -----------------------------------------------------------------------------------------


def _barriers(
    code: CudaText, kernels: Sequence[CudaFunction], functions: Sequence[CudaFunction]
) -> Iterator[KernelWarning]:
    """Yield shared memory through which threads exchange data, in kernels without a barrier of any kind."""
    waiting = {name for name, macro in code.macros.items() if _waits([macro.body])}
    waiting |= _callers_of(functions, lambda words: _waits(words) or not waiting.isdisjoint(words))
    for kernel in kernels:
        values = ThreadValues(kernel.body)
        shared = _shared(values.words)
        if not shared or _waits(values.words) or not waiting.isdisjoint(values.words):
            continue
        for name in shared[:_MOST_SHARED]:
            if (at := _read_of_others(values, name)) >= 0:
                message = (
                    f"{kernel.name} reads {name}[…], which other threads write, and has no __syncthreads()"
                )
                yield KernelWarning("barrier", code.line(kernel.body[at]), kernel.name, message)
                break


def _waits(words: Iterable[str]) -> bool:
    before = ""
    for word in words:
        if any(part in word.lower() for part in _WAITS):
            return True
        if word in {"(", "<", ".", "::"} and any(part in before.lower() for part in _MAY_WAIT):
            return True
        before = word
    return False


def _shared(words: Sequence[str]) -> list[str]:
    """Return the arrays that are declared `__shared__`, except `volatile` ones: code of one warp relied on these."""
    names: list[str] = []
    for at, word in enumerate(words):
        if word == "__shared__":
            part = _statement(words, at)
            if "volatile" not in part and "volatile" not in words[max(0, at - 2) : at] and "[" in part[1:]:
                names.append(part[part.index("[") - 1])
    return names


def _read_of_others(values: ThreadValues, name: str) -> int:
    """Return where every thread reads an element that depends on no thread, while each writes its own. Return -1 if
    that is not certain.
    """
    words = values.words
    written = False
    read = -1
    for at, word in enumerate(words):
        if word != name or "__shared__" in words[max(0, at - 6) : at]:
            continue
        if words[at + 1 : at + 2] != ["["]:
            return -1  # its address goes elsewhere
        end = at + 1
        mine = False
        while words[end : end + 1] == ["["]:
            close = values.closing.get(end, end)
            mine = mine or values.of_thread(words[end + 1 : close])
            end = close + 1
        assigns = words[end : end + 1] and words[end] in ASSIGNS
        if assigns and not mine:
            return -1  # one thread may do all of it
        written = written or bool(assigns)
        if not assigns and not mine and read < 0:
            read = at
    return read if written else -1


def _callers_of(functions: Sequence[CudaFunction], has: Callable[[Sequence[str]], bool]) -> set[str]:
    """Return the names of the functions that have the property `has`, or that call one which has it."""
    calls: dict[str, set[str]] = {}
    waiting: list[str] = []
    for function in functions:
        for word in set(function.words):
            calls.setdefault(word, set()).add(function.name)
        if has(function.words):
            waiting.append(function.name)
    reached = set(waiting)
    while waiting:
        for caller in calls.get(waiting.pop(), ()):
            if caller not in reached:
                reached.add(caller)
                waiting.append(caller)
    return reached


# -- launches -----------------------------------------------------------------------------------------


def _launches(code: CudaText, host: Sequence[CudaFunction]) -> Iterator[KernelWarning]:
    looks = _Looks(code, host)
    for function in host:
        for at in range(len(function.words)):
            if (
                _is_launch(function, at)
                and looks.start(function, at) > looks.last(function)
                and not looks.may_follow(function)
            ):
                launched = _launched(function.words, at) or "a kernel"
                message = (
                    f"nothing behind the launch of {launched} in {function.name} looks at cudaGetLastError(): a launch that fails goes "
                    "unnoticed"
                )
                yield KernelWarning("launch", code.line(function.body[at]), function.name, message)
                break


class _Looks:
    """Where functions of the host check for errors, directly or through functions that they call."""

    def __init__(self, code: CudaText, host: Sequence[CudaFunction]) -> None:
        self._code = code
        self._checking = {name for name, macro in code.macros.items() if _is_look(macro.body)}
        self._last: dict[int, int] = {}
        self._callers: dict[str, dict[int, tuple[CudaFunction, int]]] = {}
        """With the first call in each."""
        self._passed: set[str] = set()
        """Whoever gets these calls them."""
        names = {function.name for function in host}
        for function in host:
            for at, word in enumerate(function.words):
                if word in names and function.words[at + 1 : at + 2] not in (["("], ["<"]):
                    self._passed.add(word)
                elif word in names and word != function.name:
                    self._callers.setdefault(word, {}).setdefault(id(function), (function, at))
        self._starts: dict[int, Sequence[int]] = {}

    def start(self, function: CudaFunction, at: int) -> int:
        """Return the start of the statement at `at`, as in `_starts`."""
        if id(function) not in self._starts:
            self._starts[id(function)] = _starts(function.words)
        return self._starts[id(function)][at]

    def last(self, function: CudaFunction) -> int:
        """Return the place of the last check, or -1 if nothing checks."""
        if id(function) not in self._last:
            words = function.words
            at = len(words) - 1
            while at >= 0 and not self._is_look(words, at):
                at -= 1
            self._last[id(function)] = at
        return self._last[id(function)]

    def _is_look(self, words: Sequence[str], at: int) -> bool:
        word = words[at]
        if _is_look(word) or word in self._checking:
            return True
        # a macro of a header is given what a call of CUDA returned: it may look at more
        given = words[at + 1 : at + 3]
        return (
            word.isupper()
            and given[:1] == ["("]
            and given[-1].startswith(("cuda", "cublas"))
            and word not in self._code.macros
        )

    def may_follow(self, function: CudaFunction) -> bool:
        """Say whether a check may follow a call. Certainly none does if all callers are known, up to `main` or to
        what Python calls.
        """
        waiting = [function]
        known = {function.name}
        while waiting:
            called = waiting.pop()
            callers = self._callers.get(called.name, {}).values()
            open_end = called.name != "main" and not any(token.text == "Tensor" for token in called.head)
            if (
                called.name in self._passed
                or (open_end and not callers)
                or len(callers) + len(known) > _MOST_CALLERS
            ):
                return True
            for caller, at in callers:
                if self.last(caller) >= self.start(caller, at):
                    return True
                if caller.name not in known:
                    known.add(caller.name)
                    waiting.append(caller)
        return False


def _is_launch(function: CudaFunction, at: int) -> bool:
    """Say whether `<<<` stands there, or `<< <` as some formatters write it."""
    if function.words[at] != "<" or function.words[at : at + 3] != ["<", "<", "<"]:
        return False
    return function.body[at + 1].start == function.body[at].end


def _launched(words: Sequence[str], at: int) -> str:
    """Return the kernel whose `<<<` stands there, or "" for one that is an expression."""
    at -= 1
    if at >= 0 and words[at] == ">":
        depth = 0
        for opening in range(at, max(-1, at - _FURTHEST), -1):
            depth += (words[opening] == ">") - (words[opening] == "<")
            if depth == 0:
                at = opening - 1
                break
    return words[at] if at >= 0 and IDENTIFIER.match(words[at]) else ""


def _starts(words: Sequence[str]) -> list[int]:
    """Return, for each word, where its statement starts in the function's own braces. A loop is one statement, and
    its content repeats.
    """
    starts: list[int] = []
    start = depth = 0
    for at, word in enumerate(words):
        starts.append(start)
        depth += (word == "{") - (word == "}")
        if depth == 0 and word in {";", "}"}:
            start = at + 1
    return starts


def _is_look(word: str) -> bool:
    word = word.lower().replace("async", "")
    return any(part in word for part in _LOOKS)


# -- types --------------------------------------------------------------------------------------------


def _types(code: CudaText, functions: Sequence[CudaFunction]) -> Iterator[KernelWarning]:
    for function in functions:
        if (literal := double_literals.first(function)) is not None:
            at, other = literal
            word = function.words[at]
            message = f"{word} is a double, so {function.name} computes with {other} in double precision; {word}f is a float"
            yield KernelWarning("types", code.line(function.body[at]), function.name, message)
