"""Limits of everything that is read from files, compilers and programs: one table, from which
docs/guide/limits.md is generated.
"""

from __future__ import annotations

from typing import Final, Literal

from orbit_remote.common.lazy_dataclass import dataclass

Unit = Literal["bytes", "characters", "lines", "items"]
_BINARY: Final = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit. `what` is read up to `most`, in `unit`. `beyond` is a sentence on what becomes of something longer."""

    what: str
    most: int
    beyond: str
    unit: Unit = "bytes"

    @property
    def size(self) -> str:
        """Return the size: `16 MiB`, `4,000 characters`."""
        if self.unit == "bytes":
            for factor, name in _BINARY:
                if self.most >= factor and self.most % factor == 0:
                    return f"{self.most // factor} {name}"
        return f"{self.most:,} {self.unit}"

    @property
    def exceeded(self) -> str:
        """Return a clause that says how the limit is exceeded."""
        return f"it is larger than {self.size}, the limit for {self.what}"


SOURCE: Final = Limit(
    "a source file that is read from the disk",
    64 << 20,
    "The file is not read, and the message names the limit.",
)
HEADER: Final = Limit(
    "a header that is searched for macros, because a macro can stand for `__global__` or for a kernel's name",
    4 << 20,
    "Macros of that header are not known.",
)
OPENED: Final = Limit(
    "a file that is open in an editor",
    5 << 20,
    "The file is left alone until it is opened again, and a message says so.",
    "characters",
)
OPENED_LINES: Final = Limit(
    "the lines of a file that is open in an editor",
    1 << 20,
    "The file is left alone until it is opened again, and a message says so.",
    "lines",
)
# a token takes 130 bytes
QUOTED: Final = Limit(
    "a source file that a compiler's message refers to",
    1 << 20,
    "Messages about text after the limit have no column, and errors come after a pause in typing.",
)
PREPROCESSED: Final = Limit(
    "preprocessor output, which lists the headers of a build", 512 << 20, "The build fails with a message."
)
PTX: Final = Limit("the PTX of a build", 512 << 20, "The build fails with a message.")
FRONT_ENDS: Final = Limit(
    "CUDA files whose parsed headers stay in memory for 10 minutes after an edit, for errors at each keystroke (60 MiB of memory each; 450 MiB with cub)",
    2,
    "The file that was edited least recently is dropped: until its headers are parsed again, its errors come after a pause in typing.",
    "items",
)
HASHED: Final = Limit(
    "a file that a build or a run has read",
    1 << 30,
    "A change of that file does not mark the result `edited since`.",
)
DATABASE: Final = Limit(
    "`compile_commands.json`", 64 << 20, "The database is not used, and a message names the limit."
)
SCANNED: Final = Limit(
    "a file with kernels that a run launched, if the file is not open in the editor",
    1 << 20,
    "The results for its kernels are not kept.",
)
AT_ONCE: Final = Limit(
    "a file that is searched for kernels at once, at each edit",
    16 << 10,
    "It is searched in the background: lenses and hovers of that file come a little later.",
    "characters",
)
KERNELS: Final = Limit(
    "kernels of a file", 2_000, "The kernels after the limit get no lens, and a message says so.", "items"
)
KERNEL_LINE: Final = Limit(
    "a line on which a kernel begins",
    16 << 10,
    "Kernels that begin after the limit are not found.",
    "characters",
)
MEANINGS: Final = Limit(
    "definitions of one macro in a file", 64, "Kernels that need a further definition are not found.", "items"
)
# a parser takes 240 bytes for a character that is no Python
STATEMENT: Final = Limit(
    "a top-level statement of a Python file, such as a function or a class",
    1 << 18,
    "Kernels in it are not found, and a message says so.",
    "characters",
)
# a kernel takes 6 KiB
STATEMENTS: Final = Limit(
    "the statements of a Python file",
    40_000,
    "Kernels after the limit are not found, and a message says so.",
    "items",
)
DECLARATIONS: Final = Limit(
    "the declarations of a CUDA file; several short ones in a row may count as one",
    100_000,
    "Kernels after the limit are not found, and a message says so.",
    "items",
)
PARSED: Final = Limit(
    "a source file that is sent to another machine and searched for includes and imports",
    16 << 20,
    "It is sent, but not searched: files that only it includes or imports are missing.",
)
TRAVELLING: Final = Limit(
    "a file that is sent to another machine", 4 << 30, "The run is refused with a message."
)
REVISION: Final = Limit("a file of a git revision", 4 << 20, "The comparison is refused with a message.")
PROJECT: Final = Limit(
    "a project's file that names its Python, such as `pyproject.toml`",
    1 << 20,
    "The file is treated as absent.",
)
OPTIONS: Final = Limit(
    "files of compiler options that one command of `compile_commands.json` names, together",
    1 << 20,
    "The options after the limit are not used.",
)
BUILD_FILE: Final = Limit(
    "a build file (`CMakeLists.txt`, `Makefile`, …)", 1 << 20, "Nothing is taken from it."
)
INCLUDING: Final = Limit(
    "a file whose `#include` lines orbit-lsp follows, to infer compiler flags",
    16 << 20,
    "No flags are inferred from what it includes.",
)
DRIVER_FILE: Final = Limit(
    "a Python file that may drive a kernel",
    1 << 20,
    "`drivers` ignores it.",
)
IGNORES: Final = Limit("`.gitignore` or `.orbitignore`", 1 << 20, "The patterns after the limit are ignored.")
CONTRACT: Final = Limit(
    "a Python file in the form of KernelBench or popcorn",
    1 << 18,
    "It is treated as an ordinary Python file.",
    "characters",
)
OUTLINED: Final = Limit(
    "code that is read as a whole: for drafts of launch specs, `setup.py` and syntax errors",
    1 << 17,
    "Drafts use the kernel alone, nothing is taken from the `setup.py`, and syntax errors appear at the run.",
    "characters",
)
TASK: Final = Limit("`task.yml` of a popcorn problem", 1 << 20, "The problem is refused with a message.")
STATE: Final = Limit(
    "a small file that orbit-lsp keeps (trusted folders, measured GPU rates), and Modal's `.modal.toml`",
    1 << 20,
    "The file is treated as absent. orbit-lsp never writes `.modal.toml`.",
)
LOOP_JOURNAL: Final = Limit(
    "the journal of `orbit-lsp loop`", 64 << 20, "The loop is refused; `--fresh-start` begins anew."
)
LOOP_ANSWER: Final = Limit(
    "`worker_result.json` and `reviewer_verdict.json` of `orbit-lsp loop`",
    1 << 20,
    "The iteration is an infrastructure failure.",
)
BUILD: Final = Limit(
    "a compiled program, or an entry of the build cache", 1 << 30, "It is not kept for the next time."
)
CUBIN: Final = Limit(
    "compiled code that is disassembled", 20 << 20, "The file is not read, and the message names the limit."
)
PROFILE: Final = Limit(
    "a kept profile with its source text", 128 << 20, "The profile is not shown after a restart."
)
REPORT: Final = Limit("a report of Nsight Compute", 1 << 30, "The profile fails with a message.")
IMPORTED: Final = Limit(
    "a report that `report --from` is given",
    256 << 20,
    "The report is not read, and the message names the limit.",
)
NCU_CSV: Final = Limit(
    "a CSV page of Nsight Compute", 64 << 20, "The page is not read, and the message names the limit."
)
IMPORTED_LAUNCHES: Final = Limit(
    "launches in a report or CSV page that `report --from` is given",
    100,
    "The launches after the limit are left out, with a remark.",
    "items",
)
KEPT: Final = Limit(
    "the files of one compilation in a bundle of `orbit-lsp debug-compile`",
    256 << 20,
    "The files after the limit are left out, with a remark.",
)
DUMP: Final = Limit(
    "one file of compiler output that is kept with a profile",
    64 << 20,
    "The file is left out, with a remark.",
)
OUTPUT: Final = Limit("what one stream of a compiler prints", 8 << 20, "What follows is not read.")
CELL_OUTPUT: Final = Limit(
    "the output of a notebook's cell", 16 << 20, "What follows is not shown, and a line says so."
)
OUTPUT_LINE: Final = Limit("a line of compiler output", 16 << 10, "What follows is not read.", "characters")
COMPILER_MEMORY: Final = Limit(
    "the memory of each compiler process (or half of the machine's memory, if that is less)",
    16 << 30,
    "The build fails with a message.",
)
COMPILER_FILE: Final = Limit("a file that a compiler writes", 1 << 30, "The build fails with a message.")
# a thousand findings of compute-sanitizer with their stacks are some 2 MiB
TOOL_LOG: Final = Limit(
    "the log of Nsight Compute or compute-sanitizer, and the list of a project's tests",
    32 << 20,
    "What follows is not read.",
)
LAUNCHES: Final = Limit(
    "the launches of one process of a program, as recorded",
    256 << 20,
    "The launches after the limit are left out.",
)
TRACE: Final = Limit("a trace of torch.profiler", 256 << 20, "The trace is not kept, and a note says so.")
GPU_DUMP: Final = Limit(
    "a GPU core dump, from which the line of a crash is read (the largest seen, of 8,448 warps, had 121 MiB)",
    1 << 30,
    "The dump is not read, a remark says so, and the crash is shown on its kernel.",
)
EVENTS: Final = Limit(
    "the results and messages that the process of a job sends to orbit-lsp",
    256 << 20,
    "The run fails with a message.",
)

TOOL_OUTPUT: Final = Limit(
    "the output of a tool that reports its version or devices", 1 << 20, "What follows is ignored."
)
HISTORY_RUN: Final = Limit(
    "one run in the history, unpacked",
    32 << 20,
    "The run is left out of the history, with a line in the log.",
)
HISTORY_TEXT: Final = Limit(
    "one file's text in the history",
    4 << 20,
    "The version's numbers can be compared, but it cannot be run again.",
)
JOB_FILES: Final = Limit(
    "files beside the source of a job", 1_000, "The job is refused with a message.", "items"
)
BROUGHT: Final = Limit(
    "all files together that `exec --bring` brings back",
    64 << 20,
    "The files after the limit are not brought back, and a note says so.",
)
BROUGHT_FILES: Final = Limit(
    "files that `exec --bring` brings back",
    1_000,
    "The files after the limit are not brought back, and a note says so.",
    "items",
)
JOB: Final = Limit(
    "a job's request or its result, unpacked", 256 << 20, "The job cannot be read, and a message says so."
)
BODY: Final = Limit(
    "the body of a request to `orbit-lsp api`", 16 << 20, "The answer is 413, and names the limit."
)
TENSOR: Final = Limit(
    "a tensor in a request to `orbit-lsp api`, unpacked", 256 << 20, "The request is refused with a message."
)
STORED: Final = Limit(
    "a file of captured tensors that a launch spec loads",
    256 << 20,
    "The run fails with a message; a capture that would write more is refused.",
)
CAPTURED: Final = Limit(
    "the arguments of a launch that is captured", 4 << 30, "The capture is refused with a message."
)
NOTEBOOKS: Final = Limit(
    "notebook kernels that `orbit-lsp api` keeps at the same time",
    16,
    "The answer is 503, and a cell says so.",
    "items",
)
VALUES: Final = Limit(
    "names and values of a JSON message to `orbit-lsp api` or `orbit-lsp mcp`",
    30_000,
    "The message is refused before it is read.",
    "items",
)
BODIES: Final = Limit(
    "the bodies of all requests that `orbit-lsp api` handles at the same time",
    128 << 20,
    "The answer is 503; try again after a second.",
)
MESSAGE: Final = Limit(
    "one LSP message from an editor",
    16 << 20,
    "If it opens a file, orbit-lsp ignores that file. Otherwise the server ends. The log names the limit.",
)
AGENT_MESSAGE: Final = Limit(
    "one message of an agent to `orbit-lsp mcp`",
    16 << 20,
    "The message is ignored, and answered with an error.",
)
AGENT_SESSIONS: Final = Limit(
    "sessions of agents at `/mcp` of `orbit-lsp api`; one ends when no request of it came for 10 minutes",
    1_000,
    "The answer to another one is 503: too many open sessions.",
    "items",
)
VOLUME: Final = Limit("a build or compiled kernel that a container keeps", 64 << 20, "It is compiled again.")


def table() -> dict[str, Limit]:
    """Return every limit by its name in this module."""
    return {name: value for name, value in globals().items() if isinstance(value, Limit)}
