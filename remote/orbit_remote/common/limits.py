"""How much is read of anything that others wrote: one table, from which docs/guide/limits.md is generated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Unit = Literal["bytes", "characters", "lines", "items"]
_BINARY: Final = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


@dataclass(frozen=True, slots=True)
class Limit:
    """`what` is read up to `most`, in `unit`. `beyond` is a sentence: what becomes of something longer."""

    what: str
    most: int
    beyond: str
    unit: Unit = "bytes"

    @property
    def size(self) -> str:
        """`16 MiB`, `4,000 characters`."""
        if self.unit == "bytes":
            for factor, name in _BINARY:
                if self.most >= factor and self.most % factor == 0:
                    return f"{self.most // factor} {name}"
        return f"{self.most:,} {self.unit}"

    @property
    def exceeded(self) -> str:
        """A sentence about it."""
        return f"it is larger than {self.size}, the limit for {self.what}"


SOURCE: Final = Limit(
    "a source file that is read from the disk",
    64 << 20,
    "The file is not read, and the message names the limit.",
)
HEADER: Final = Limit(
    "a header whose macros may name kernels", 4 << 20, "Macros of that header are not known."
)
QUOTED: Final = Limit(
    "a source file that a compiler's message refers to", 8 << 20, "Places beyond it keep no column."
)
PREPROCESSED: Final = Limit(
    "preprocessor output, which lists the headers of a build", 512 << 20, "The build fails with a message."
)
PTX: Final = Limit("the PTX of a build", 512 << 20, "The build fails with a message.")
HASHED: Final = Limit(
    "a file that a build or a run has read",
    1 << 30,
    "The result does not depend on that file: it does not become stale with it.",
)
DATABASE: Final = Limit(
    "`compile_commands.json`", 64 << 20, "The database is not used, and a message names the limit."
)
SCANNED: Final = Limit(
    "a file that is not open and holds kernels of a run",
    1 << 20,
    "Results of its kernels are not filed under them.",
)
AT_ONCE: Final = Limit(
    "a text that is scanned while its editor waits",
    16 << 10,
    "It is scanned in a thread; answers about that file come later, and no other file waits.",
    "characters",
)
KERNELS: Final = Limit(
    "kernels of a file", 2_000, "The kernels behind the limit get no lens, and a message says so.", "items"
)
MEANINGS: Final = Limit(
    "definitions of one macro in a file", 64, "Further definitions of that name do not make kernels.", "items"
)
PARSED: Final = Limit(
    "a file that travels and whose includes or imports are looked up",
    16 << 20,
    "It travels; what it includes or imports does not, unless something else names it.",
)
TRAVELLING: Final = Limit(
    "a file that travels to another machine", 4 << 30, "The run is refused with a message."
)
REVISION: Final = Limit("a file of a git revision", 4 << 20, "The comparison is refused with a message.")
PROJECT: Final = Limit(
    "a project's file that names its Python, as `pyproject.toml`", 1 << 20, "The file counts as absent."
)
OPTIONS: Final = Limit(
    "a file of compiler options that `compile_commands.json` names", 4 << 20, "Its options are not used."
)
BUILD_FILE: Final = Limit(
    "a build file (`setup.py`, `CMakeLists.txt`, `Makefile`, …)", 4 << 20, "Nothing is taken from it."
)
INCLUDING: Final = Limit(
    "a file whose `#include` lines say where headers are looked for",
    16 << 20,
    "The headers that it includes are not looked for.",
)
IGNORES: Final = Limit(
    "`.gitignore` or `.orbitignore`", 1 << 20, "The patterns behind the limit are not obeyed."
)
TASK: Final = Limit("`task.yml` of a popcorn problem", 1 << 20, "The problem is refused with a message.")
STATE: Final = Limit(
    "a file in which orbit or Modal keeps settings",
    1 << 20,
    "The file counts as absent, and is written anew.",
)
BUILD: Final = Limit(
    "a compiled program, alone or in the build cache", 1 << 30, "It is not kept for the next time."
)
CUBIN: Final = Limit(
    "compiled code that is disassembled", 20 << 20, "The file is not read, and the message names the limit."
)
PROFILE: Final = Limit(
    "a profile that is kept, with the text that was profiled", 128 << 20, "The profile is not shown again."
)
REPORT: Final = Limit("a report of Nsight Compute", 1 << 30, "The profile fails with a message.")
DUMP: Final = Limit(
    "one file of compiler output that is kept with a profile",
    64 << 20,
    "The file is left out, with a remark.",
)
OUTPUT: Final = Limit(
    "what one stream of a compiler prints", 8 << 20, "What stands behind the limit is not read."
)
CELL_OUTPUT: Final = Limit(
    "the output of a notebook's cell", 16 << 20, "What follows is not shown, and a line says so."
)
OUTPUT_LINE: Final = Limit(
    "a line of compiler output", 16 << 10, "What stands behind the limit is not read.", "characters"
)
COMPILER_MEMORY: Final = Limit(
    "the memory of each process of a compiler, or half the machine's where that is less",
    16 << 30,
    "The build fails with a message.",
)
# a thousand findings of compute-sanitizer with their stacks are some 2 MiB
TOOL_LOG: Final = Limit(
    "the log of Nsight Compute or compute-sanitizer", 32 << 20, "What stands behind the limit is not read."
)
LAUNCHES: Final = Limit(
    "the launches of one process of a program, as recorded",
    256 << 20,
    "The launches behind the limit are left out.",
)
EVENTS: Final = Limit("what the process of a job reports", 256 << 20, "The run fails with a message.")

TOOL_OUTPUT: Final = Limit(
    "each output of a tool that is asked for its version or devices", 1 << 20, "What follows is passed over."
)
HISTORY_RUN: Final = Limit(
    "one run in the history, unpacked",
    32 << 20,
    "The run is left out of the history, with a line in the log.",
)
HISTORY_TEXT: Final = Limit(
    "one file's text in the history",
    4 << 20,
    "The version can be compared by its figures, and not run again.",
)
JOB_FILES: Final = Limit(
    "files beside the source of a job", 1_000, "The job is refused with a message.", "items"
)
JOB: Final = Limit(
    "a job's request or its result, unpacked", 256 << 20, "The job cannot be read, and a message says so."
)
MESSAGE: Final = Limit(
    "a message of an editor", 256 << 20, "The server ends, with a line that names the limit."
)


VOLUME: Final = Limit(
    "a build or a compiled kernel that a container keeps", 64 << 20, "It is compiled again."
)


def table() -> dict[str, Limit]:
    """Every limit by its name in this module."""
    return {name: value for name, value in globals().items() if isinstance(value, Limit)}
