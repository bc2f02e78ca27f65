"""Finds KernelBench and popcorn files: which of the two, and the files beside them.

Both are found from the text alone. KernelBench: a class `ModelNew` that replaces the class `Model` of a reference
(github.com/ScalingIntelligence/KernelBench). popcorn: a function `custom_kernel(data)`, with `reference.py` and
`task.yml` beside it (github.com/gpu-mode/reference-kernels).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Literal, cast, get_args

from orbit_remote.common.contracts import popcorn_task
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.limits import CONTRACT

TASK: Final = "task.yml"
REFERENCE: Final = "reference.py"

Kind = Literal["kernelbench", "popcorn"]
_NAME: Final = re.compile(r"\w+")
_TOKENS: Final = re.compile(
    r"""
    \#[^\n]*
    | \"\"\"(?:\\.|"(?!"")|[^"\\]++)*+(?:\"\"\"|\Z) | '''(?:\\.|'(?!'')|[^'\\]++)*+(?:'''|\Z)
    | "(?:\\.|[^"\\\n]++)*+"? | '(?:\\.|[^'\\\n]++)*+'?
    | ^(?:class|def|async[ \t]+def)[ \t]+(?P<defined>\w+)
    | ^(?P<assigned>\w+)[ \t]*(?::[^=\n]*)?=(?!=)
    | ^(?:from[ \t][^\n;#]*?[ \t]import|import)\b[ \t]*(?P<imported>\([^)]*\)|[^\n;#]*)
    """,
    re.MULTILINE | re.DOTALL | re.VERBOSE,
)
_ENTRIES: Final[tuple[tuple[Kind, str], ...]] = (("kernelbench", "ModelNew"), ("popcorn", "custom_kernel"))


@dataclass(frozen=True, slots=True)
class KeptContract:
    """The contract that a text keeps, and the place of the name that others call: `line`, `column` from 1,
    `end_column` exclusive, in code points.
    """

    kind: Kind
    name: str
    line: int
    column: int
    end_column: int


_WITHIN: Final = re.compile(
    r"^# tolerance: rtol (?P<rtol>\S+), atol (?P<atol>\S+)(?:, matched (?P<matched>\S+))?(?:, cap (?P<cap>\S+))?[ \t]*$",
    re.MULTILINE,
)


_ANYTHING: Final = 1e30


@dataclass(frozen=True, slots=True)
class AllowedDifference:
    """What a reference allows. The share `matched` of an output's elements has to lie within `atol + rtol *
    |expected|`, and no element further than `cap` from the expected value.
    """

    rtol: float
    atol: float
    matched: float = 1.0
    cap: float | None = None

    @property
    def anything(self) -> bool:
        """Say whether any number is right, as for a source that is measured by itself."""
        return self.rtol >= _ANYTHING

    @property
    def line(self) -> str:
        """Return the line that states it in the text of a reference."""
        cap = "" if self.cap is None else f", cap {self.cap!r}"
        return f"# tolerance: rtol {self.rtol!r}, atol {self.atol!r}, matched {self.matched!r}{cap}"


ANYTHING: Final = AllowedDifference(_ANYTHING, _ANYTHING)


def within(reference: str) -> AllowedDifference | None:
    """Return the tolerance that a reference's text states in a comment of its own line. Return None if it states none
    that can be read.
    """
    stated = _WITHIN.search(reference)
    if stated is None:
        return None
    try:
        numbers = {name: float(value) for name, value in stated.groupdict().items() if value is not None}
    except ValueError:
        return None
    return (
        AllowedDifference(**numbers)
        if all(0 <= number < float("inf") for number in numbers.values())
        else None
    )


Domain = Literal["any", "nonnegative", "positive", "unit", "drawn"]
"""What arguments a reference is defined for: any numbers, from 0, above 0, from 0 to 1, or such as its `get_inputs` draws."""
_DOMAIN: Final = re.compile(r"^# inputs: (\S+)[ \t]*$", re.MULTILINE)


def domain(reference: str) -> Domain:
    """Return the domain that a reference's text states in a comment of its own line, `# inputs: positive`. Raises
    ValueError for another word.
    """
    stated = _DOMAIN.search(reference)
    word = stated[1] if stated else "any"
    if word not in get_args(Domain):
        raise ValueError(
            f"`# inputs: {word:.40}` is not understood; write one of {', '.join(get_args(Domain))}"
        )
    return cast("Domain", word)


def domain_line(domain: Domain) -> str:
    """Return the line of a reference's text that states the domain. Return "" if no line is needed."""
    return "" if domain == "any" else f"# inputs: {domain}"


def kept(text: str) -> KeptContract | None:
    """Return the contract of a text. Return None for a text that keeps none, or that is longer than
    `limits.CONTRACT`.
    """
    first: dict[str, _Bound] = {}
    for bound in _bound(text, tuple(name for _, name in _ENTRIES)):
        first.setdefault(bound.name, bound)
    for kind, name in _ENTRIES:
        if at := first.get(name):
            return KeptContract(kind, name, at.line, at.column, at.column + len(name))
    return None


def has_model(text: str) -> bool:
    """Say whether a text with `ModelNew` has its own reference: `Model` and `get_inputs`, defined or imported."""
    names = {bound.name for bound in _bound(text, ("Model", "get_inputs", "*"))}
    return {"Model", "get_inputs"} <= names or "*" in names


def binds(text: str, name: str) -> bool:
    """Say whether a top-level statement of the text defines, assigns or imports the name, as far as the text shows."""
    return any(bound.name in (name, "*") for bound in _bound(text, (name, "*")))


def brings_kernels(text: str) -> bool:
    """Say whether a text names anything with which own kernels are written. Otherwise it only uses a library."""
    return (
        re.search(
            r"triton|load_inline|cpp_extension|__global__|cuda\.core|cupy|numba|cutlass|cute|tilelang|torch\.compile",
            text,
        )
        is not None
    )


@dataclass(frozen=True, slots=True)
class _Bound:
    """A name that a top-level statement binds, and where, counted from 1."""

    name: str
    line: int
    column: int


def _bound(text: str, names: Sequence[str]) -> Iterator[_Bound]:
    """Yield where these names are bound at the top level, in their order. The text is read without a parser, which
    takes seconds and a thousand times the memory of a hostile text, and returns nothing for a text that is being
    typed.
    """
    if len(text) > CONTRACT.most or not any(name in text for name in names):
        return
    for token in _TOKENS.finditer(text):
        statement = token["defined"] or token["assigned"] or token["imported"]
        if not statement:
            continue
        start = token.start(token.lastgroup or 0)
        for word in (
            re.finditer(r"[^\W\d]\w*|\*", statement) if token["imported"] else (_NAME.match(statement),)
        ):
            if word and word[0] in names and not _renamed(statement, word):
                at = start + word.start()
                line = text.count("\n", 0, at) + 1
                yield _Bound(word[0], line, at - (text.rfind("\n", 0, at) + 1) + 1)


def _renamed(statement: str, word: re.Match[str]) -> bool:
    """Say whether an import gives it another name."""
    return re.match(r"\s+as\b", statement[word.end() :]) is not None


def model_files(path: Path) -> tuple[Path, ...]:
    """Return where `Model` may lie for a file that has only `ModelNew`, the likeliest first.

    KernelBench names its own examples `model_new_ex_add.py` beside `model_ex_add.py`.
    """
    stem = path.stem
    names = [
        stem.replace("model_new", "model", 1) if "model_new" in stem else "",
        re.sub(r"_(new|kernel|solution|optimized|triton|cuda)$", "", stem),
        re.sub(r"_(new|kernel|solution|optimized|triton|cuda)$", "_ref", stem),
        "reference",
        "model",
    ]
    return tuple(path.with_name(f"{name}.py") for name in dict.fromkeys(names) if name and name != stem)


def model_file(path: Path) -> Path | None:
    """Return the first of `model_files` that is there."""
    return next((candidate for candidate in model_files(path) if candidate.is_file()), None)


def problem_folder(path: Path) -> Path:
    """Return the folder of task.yml: that of the submission, or up to two folders above it, as in
    `solutions/correct/`.
    """
    folders = (path.parent, *path.parent.parents[:2])
    return next((folder for folder in folders if (folder / TASK).is_file()), path.parent)


def listed(folder: Path, task: popcorn_task.Task) -> dict[str, Path]:
    """Return the modules that task.yml lists, by the names under which they are imported. `utils` may lie elsewhere."""
    return {
        name.removesuffix(".py"): folder / source
        for name, source in task.files.items()
        if name.endswith(".py") and source != popcorn_task.SUBMISSION and name != "eval.py"
    }


def companions(path: Path, text: str) -> tuple[Path, ...]:
    """Return the files that a contract needs, even if no import of `text` shows it. Reads task.yml; raises nothing."""
    contract = kept(text)
    if contract is None:
        return ()
    if contract.kind == "kernelbench":
        model = None if has_model(text) else model_file(path)
        return (model,) if model else ()
    folder = problem_folder(path)
    places = [folder / name for name in (TASK, REFERENCE, "task.py", "utils.py")]
    try:
        task = popcorn_task.of_file(folder / TASK)
        places += listed(folder, task).values()
    except (OSError, ValueError, popcorn_task.TaskError):
        pass  # said when it is run
    existing = {place.resolve(): None for place in places if place.is_file()}
    return tuple(existing)


# -- extensions of torch ----------------------------------------------------------------------------

EXTENSIONS = "ORBIT_EXTENSIONS"
"""The variable that names the folder of the extensions that were built before a job."""
ARCHITECTURES = "TORCH_CUDA_ARCH_LIST"
"""torch's variable for what it compiles extensions for; without it, for the GPUs that it sees."""


def builds_extension(text: str) -> bool:
    """Say whether a Python file may build an extension when it is imported."""
    return bool(re.search(r"\b(?:load_inline|cpp_extension)\b", text))
