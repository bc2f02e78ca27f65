"""What each outcome, exit code, diagnostic, label, counter, stall reason, word of launch specs and setting means.

One text each: the hover, `orbit-lsp explain` and docs/guide/explain.md show it.
"""

from __future__ import annotations

import difflib
import json
import re
from dataclasses import dataclass
from typing import Literal

from orbit_lsp.state import config
from orbit_remote.common.messages import EXIT_CODES

Kind = Literal[
    "outcome",
    "diagnostic",
    "label",
    "bottleneck",
    "counter",
    "stall reason",
    "launch spec",
    "instruction",
    "setting",
]

OUTCOMES = {
    "ok": "The job did what it was asked to. A program that launched none of its kernels is ok too; the result says so.",
    "compile error": "nvcc, ptxas, the linker or Triton rejected the code, or a launch spec has an error. "
    "The errors are diagnostics at their lines.",
    "runtime error": "The program failed: a non-zero exit code, a signal, a CUDA error, a failed assertion, out of "
    "memory. `orbit-lsp check` finds the line of an illegal memory access.",
    "wrong answer": "The kernel ran, and an `expect` or `reference` of its launch spec does not hold. The diagnostic on "
    "that line says where and by how much.",
    "timed out": "The build or the run reached its limit. Raise `orbit.build_timeout_s` or `orbit.run_timeout_s` "
    "(`--timeout`).",
    "infrastructure": "Not the code's fault: no GPU, no compiler, a full disk, no network, a refusal by Modal. The message "
    "says what to do; `orbit-lsp doctor` shows what this machine lacks.",
    "usage": "Wrong use of the command line: an unknown command or option, or a file that does not exist.",
    "cancelled": "Cancelled by the user. Everything that the job started has ended.",
}
"""By outcome, and `usage` for the command line itself."""

DIAGNOSTICS = {
    "launch-spec": "A launch spec has an error or a warning at this column. It is checked while you type, against the "
    "kernel's signature; nothing is executed. A spec with an error is not run.",
    "register-spills": "The kernel needs more registers than it may have, so some are stored in local memory (DRAM, through "
    "L1) and loaded again. Allow more registers (smaller blocks in `__launch_bounds__`), or keep fewer values alive.",
    "local-memory": "An array or variable of each thread is not in registers: it is indexed by a value known only at run "
    "time, or its address is taken. Unroll the loop that indexes it, or put it into shared memory.",
    "shared-memory": "A block needs more shared memory than a block can have on the GPU that the file is compiled for. "
    "Triton compiles such a kernel; its launch then fails.",
    "block-size": "The launch in the file or its launch spec has more threads than `__launch_bounds__`, the kernel's "
    "registers or the GPU allow, so it fails. Launch smaller blocks, or change the bounds.",
    "occupancy-step": "The kernel is just over a step: with one register or 1 KiB of shared memory less, one more block "
    "fits on each multiprocessor. More occupancy is not always faster: measure it.",
    "not launched": "The program ran, but launched no instance of this kernel, so nothing was measured or checked. "
    "Launch it, or write a launch spec above it.",
}
"""By the code that the diagnostic carries."""

TURNED_OFF = {
    "launch-spec": ("error or warning", "change or delete the `orbit:` comment"),
    "not launched": ("information", "run a memory check of a kernel that is launched"),
    "register-spills": ("warning", "`orbit.costs.spills`"),
    "local-memory": ("hint", "`orbit.costs.local_memory`"),
    "shared-memory": ("warning", "`orbit.costs.shared_memory`"),
    "block-size": ("warning", "`orbit.costs.block_size`"),
    "occupancy-step": ("hint", "`orbit.costs.occupancy`"),
}
"""By the code of a diagnostic of ours: (its severity, what turns it off)."""

LABELS = {
    "⏱": "The time of the last run: the median of several launches.",
    "◔": "The last profile: one launch, counted by Nsight Compute.",
    "◂": "On a hot line of a profile: its share of the kernel's warp samples, and the main stall reason.",
    "✓": "Every `expect` held, before timing and again with other data after it.",
    "✗": "The last run failed, at this time of day; or an `expect` did not hold. A click on the lens says more.",
    "⚠": "The last run could not be made: no GPU, no compiler, an outage. Or a number to look at, such as spills.",
    "±": "Half the distance between the 20 % and 80 % quantiles, relative to the median: how much launches differ.",
    "in program": "Launches that the program itself makes, with its inputs and its cache state. The first launch is not "
    "in the median.",
    "cold L2": "Before each launch, data of three times the size of L2 is read, so that none of the kernel's data is in L2.",
    "warm L2": "Launched again without anything in between: what fits in L2 is there.",
    "occ": "Occupancy: resident warps of a multiprocessor, as a share of the most it can hold. ≤ means theoretical; only "
    "a profile counts the warps that were really active.",
    "% of peak": "Share of the peak that follows from the GPU's own clock and bus width.",
    "L2-resident": "The rate is above the memory's peak because all data of the launch fits in L2.",
    "edited since": "The number belongs to an earlier version of the kernel, its headers, flags or settings. Comments and "
    "white space do not count. Undo the edit and the mark goes.",
    "uncoalesced": "Global accesses of this line move more 32-byte sectors than they use.",
    "bank conflicts": "Shared-memory accesses of this line need more passes than they would without conflicts.",
    "local memory": "Per-thread memory in DRAM: registers that spill, or an array that is not in registers.",
    "times only": "A profile without hardware counters. The hover says what refused them and how to enable them.",
    "inconclusive": "The comparison could not tell which version is faster.",
    "waves": "The grid's blocks, over the blocks that fit on the GPU at the same time.",
}
"""Signs and words on a kernel's line."""

BOTTLENECKS = {
    "compute": "The arithmetic units are closer to their peak than memory: do less arithmetic, or use tensor cores.",
    "memory": "The memory system is closer to its peak than compute: move fewer bytes, or reuse them from cache.",
    "balanced": "Compute and memory are both near their peaks, within 10 points of each other.",
    "latency": "Compute and memory are both under 60 % of their peaks: warps wait. The main stall reason is named.",
    "small grid": "The grid has fewer blocks than the GPU can run at once, so part of the GPU is idle.",
}

COUNTERS = {
    "gpu__time_duration.sum": ("time of this launch", "From the launch's start to its end on the GPU."),
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": (
        "compute throughput", "The busiest part of the multiprocessors, relative to its peak.",
    ),
    "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed": (
        "memory throughput", "The busiest part of the memory system (L1, L2, DRAM), relative to its peak.",
    ),
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": (
        "DRAM throughput", "DRAM traffic, relative to DRAM's peak.",
    ),
    "lts__throughput.avg.pct_of_peak_sustained_elapsed": (
        "L2 throughput", "The busiest part of the L2 cache, relative to its peak.",
    ),
    "l1tex__throughput.avg.pct_of_peak_sustained_active": (
        "L1 throughput", "The busiest part of L1 and shared memory, relative to its peak.",
    ),
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed": (
        "tensor cores", "Cycles in which the tensor cores were active.",
    ),
    "sm__warps_active.avg.pct_of_peak_sustained_active": (
        "occupancy, achieved", "Active warps of a multiprocessor, averaged over the launch, relative to the most it can hold.",
    ),
    "sm__maximum_warps_per_active_cycle_pct": (
        "occupancy, theoretical", "What registers, shared memory and block size allow at most.",
    ),
    "launch__registers_per_thread": ("registers per thread", "Registers that the launch allocates for each thread."),
    "launch__waves_per_multiprocessor": (
        "waves per SM", "The grid's blocks, over the blocks that fit on the GPU at the same time.",
    ),
    "launch__shared_mem_per_block_static": ("static shared memory", "Declared in the kernel, for each block."),
    "launch__shared_mem_per_block_dynamic": ("dynamic shared memory", "Given at the launch, for each block."),
    "l1tex__t_sector_hit_rate.pct": ("L1 hit rate", "Sectors found in L1, of those asked for."),
    "lts__t_sector_hit_rate.pct": ("L2 hit rate", "Sectors found in L2, of those asked for."),
    "lts__t_sectors_srcunit_tex_op_read.sum": ("read from L2 by L1", "32-byte sectors that L1 read from L2."),
    "lts__t_sectors_srcunit_tex_op_write.sum": ("written to L2 by L1", "32-byte sectors that L1 wrote to L2."),
    "dram__bytes_read.sum": ("read from DRAM", "Bytes read from DRAM."),
    "dram__bytes_write.sum": ("written to DRAM", "Bytes written to DRAM. What stays in L2 is not in it."),
    "dram__bytes.sum.per_second": ("DRAM bandwidth", "Bytes read and written per second."),
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio": (
        "bytes used of a sector, loads", "Of the 32 bytes of a sector. Fewer means uncoalesced loads.",
    ),
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_st.ratio": (
        "bytes used of a sector, stores", "Of the 32 bytes of a sector. Fewer means uncoalesced stores.",
    ),
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum": (
        "shared memory bank conflicts", "Extra passes over shared memory because threads of a warp use the same bank.",
    ),
    "derived__local_spilling_requests": ("local memory, spilling requests", "Memory requests for registers that spill."),
    "gpc__cycles_elapsed.avg.per_second": ("SM clock of this launch", "The clock that the multiprocessors ran at."),
    "dram__cycles_elapsed.avg.per_second": ("memory clock of this launch", "The clock that DRAM ran at."),
    "launch__occupancy_limit_registers": ("registers", "Blocks per multiprocessor that registers allow."),
    "launch__occupancy_limit_shared_mem": ("shared memory", "Blocks per multiprocessor that shared memory allows."),
    "launch__occupancy_limit_warps": ("warps", "Blocks per multiprocessor that the number of warps allows."),
    "launch__occupancy_limit_blocks": ("blocks", "The most blocks that a multiprocessor holds."),
    "launch__occupancy_limit_barriers": ("barriers", "Blocks per multiprocessor that barriers allow."),
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": ("global loads", "32-byte sectors that global loads read through L1."),
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum": ("global stores", "32-byte sectors that global stores wrote through L1."),
    "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum": ("local loads", "32-byte sectors that loads of local memory read."),
    "l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum": ("local stores", "32-byte sectors that stores to local memory wrote."),
    "dram__bytes.sum.peak_sustained": ("DRAM peak", "Bytes that DRAM can move in a memory cycle: the roofline's slope."),
    "sm__cycles_elapsed.avg.per_second": ("SM cycles per second", "Turns the roofline's peaks per cycle into peaks per second."),
    "smsp__cycles_elapsed.avg.per_second": ("SM sub-partition cycles per second", "Turns operations per cycle into operations per second."),
    "smsp__average_warp_latency_per_inst_issued.ratio": (
        "cycles between two instructions", "Of a warp, on average. The warp states divide it.",
    ),
    "smsp__inst_executed.sum": ("instructions", "Instructions that the launch executed, counted once for each warp."),
    "launch__grid_size": ("grid size", "Blocks of the launch."),
    "launch__block_size": ("block size", "Threads of a block."),
    "smsp__pcsamp_sample_count": ("warp samples", "Samples of what the kernel's warps were doing."),
    "inst_executed": ("instructions", "Instructions of this line, counted once for each warp."),
    "memory_l2_theoretical_sectors_global": (
        "global memory", "32-byte sectors that this line's global accesses moved, and how many would do.",
    ),
    "memory_l1_wavefronts_shared": (
        "shared memory", "Passes over shared memory by this line, and how many would do without bank conflicts.",
    ),
    "memory_l2_theoretical_sectors_local": (
        "local memory", "32-byte sectors of local memory by this line: spills, or arrays that are not in registers.",
    ),
}  # fmt: skip
"""By NVIDIA's name: (what the hover calls it, what it is)."""

STALLS = {
    "barrier": "waits for the other warps of its block at a barrier",
    "branch resolving": "waits for the target of a branch",
    "dispatch stall": "was ready, but the dispatcher held it back",
    "drain": "waits at its end for its stores to finish",
    "gmma": "waits for the tensor cores' registers",
    "imc miss": "waits for a constant that was not in the cache",
    "lg throttle": "waits for room in the queue of global and local memory",
    "long scoreboard": "waits for data of global, local, surface or texture memory",
    "math pipe throttle": "waits for a pipe that other warps keep busy",
    "membar": "waits at a memory barrier",
    "mio throttle": "waits for room in the queue of shared memory and special functions",
    "misc": "waits for another reason",
    "no instruction": "waits for its next instruction to be fetched",
    "no instructions": "waits for its next instruction to be fetched",
    "not selected": "could issue, another warp was chosen",
    "selected": "issued an instruction",
    "short scoreboard": "waits for data of shared memory or a special function",
    "sleeping": "sleeps, as the code asked it to",
    "tex throttle": "waits for room in the queue of texture memory",
    "wait": "waits the fixed time between two dependent instructions",
    "warpgroup arrive": "waits for the other warps of its warp group",
}
"""What a warp does in each state, after "Warp Stall Reasons" of Nsight Compute's Profiling Guide; names with spaces."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """`names` are what it is found by, the first is its title."""

    kind: Kind
    names: tuple[str, ...]
    text: str


def entries() -> list[Explanation]:
    from orbit_lsp.state.sass_instructions import CONTROL_CODE, MEANINGS
    from orbit_remote.spec.comment_scanner import PARTS, WORDS  # a server that starts needs no launch specs

    return [
        *(Explanation("outcome", (name, f"exit code {EXIT_CODES[name]}", str(EXIT_CODES[name])), text) for name, text in OUTCOMES.items()),
        *(Explanation("diagnostic", (name,), text) for name, text in DIAGNOSTICS.items()),
        *(Explanation("label", (name,), text) for name, text in LABELS.items()),
        *(Explanation("bottleneck", (name,), text) for name, text in BOTTLENECKS.items()),
        *(Explanation("counter", (name, title), text) for name, (title, text) in COUNTERS.items()),
        *(Explanation("stall reason", (name,), f"The warp {text}.") for name, text in STALLS.items()),
        *(Explanation("launch spec", (name,), f"{text[0].upper()}{text[1:]}.") for name, text in (PARTS | WORDS).items()),
        Explanation("instruction", ("control code",), f"{CONTROL_CODE[0].upper()}{CONTROL_CODE[1:]}."),
        *(Explanation("instruction", (name,), f"{text[0].upper()}{text[1:]}.") for name, text in MEANINGS.items()),
        *(Explanation("setting", (f"orbit.{name}", name), _setting(field.default, field.metadata["description"])) for name, _, field in config.rows()),
    ]  # fmt: skip


def _setting(default: object, description: str) -> str:
    return f"{description} Default: {json.dumps(default, ensure_ascii=False)}."


def explain(word: str) -> list[Explanation]:
    """Everything of this name: exact names first, else the stall reason within a counter's name; empty where there is none."""
    wanted = _plain(word)
    found = [entry for entry in entries() if wanted in map(_plain, entry.names)]
    if not found and (stall := re.search(r"issue_stalled_([a-z_]+?)(?:_not_issued|_per_|\.|$)", word)):
        found = [
            entry
            for entry in entries()
            if entry.kind == "stall reason" and entry.names[0] == stall[1].replace("_", " ")
        ]
    if not found and "." in word:  # the modifiers of an instruction, as in LDG.E.64
        mnemonic = word.partition(".")[0].casefold()
        found = [
            one for one in entries() if one.kind == "instruction" and one.names[0].casefold() == mnemonic
        ]
    return found


def suggestions(word: str) -> list[str]:
    """The names nearest to an unknown word: those that contain it, else those that are spelled alike; five at most."""
    names = {_plain(name): name for entry in reversed(entries()) for name in reversed(entry.names)}
    wanted = _plain(word)
    inside = [name for plain, name in names.items() if wanted and wanted in plain]
    alike = [names[plain] for plain in difflib.get_close_matches(wanted, names, n=5)]
    return list(dict.fromkeys([*alike, *inside]))[:5]


def _plain(name: str) -> str:
    return " ".join(re.sub(r"[_-]", " ", name.casefold()).split())


def markdown() -> str:
    """docs/guide/explain.md: every text but those of settings, which have a page."""
    lines = [
        "# What each word means",
        "",
        "Generated from what `orbit-lsp explain WORD` prints. Settings have [a page of their own](settings.md).",
    ]
    heads = {
        "outcome": ("Outcomes and exit codes", "outcome | exit code"),
        "diagnostic": ("Diagnostics of orbit-lsp", "code"),
        "label": ("On a kernel's line", "label"),
        "bottleneck": ("Bottlenecks", "bottleneck"),
        "stall reason": ("Stall reasons", "reason"),
        "launch spec": ("Words of launch specs", "word"),
        "counter": ("Counters", "title | counter"),
        "instruction": ("Instructions (SASS)", "instruction"),
    }
    for kind, (title, columns) in heads.items():
        lines += ["", f"## {title}", "", f"| {columns} | means |", "|---" * (columns.count("|") + 2) + "|"]
        lines += [_row(entry) for entry in entries() if entry.kind == kind]
    return "\n".join([*lines, ""])


def diagnostics_markdown() -> str:
    """docs/guide/diagnostics.md: every diagnostic that orbit-lsp itself makes, and what turns it off."""
    rows = [
        f"| `{code}` | {TURNED_OFF[code][0]} | {text} | {TURNED_OFF[code][1]} |"
        for code, text in DIAGNOSTICS.items()
    ]
    return "\n".join([_DIAGNOSTICS_PAGE, *rows, ""])


_DIAGNOSTICS_PAGE = """\
# Diagnostics

Generated from the texts of `orbit-lsp explain`; do not edit.

The source of a diagnostic says who made it.

| source | made by | turned off by |
|---|---|---|
| `nvcc`, `ptxas`, `nvlink`, `ld`, `host compiler` | the CUDA compiler, when a file is opened or saved, or typing pauses; in its own words, with its number | `orbit.compile_on_save`, `orbit.compile_on_idle`; a warning also by `-diag-suppress` in `orbit.nvcc_flags` |
| `triton`, `python` | Triton's compiler or the import of the file, on command | the next compile or run |
| `cuda`, `program` | the last run: a CUDA error, a failed assertion, an exception | the next run |
| `orbit` | orbit-lsp itself: the codes below; without a code, that a run failed or that a file has too many kernels; in editors that cannot redraw hints, the hints themselves | as below; `orbit.hints` |

Warnings about what nothing uses and about what is deprecated are tagged, so that an editor can fade them or strike them
through. Instantiations, includes and candidates are related information: in most editors a list of links.

## Codes of orbit-lsp

Settings of `orbit.costs` take `off`, `hint` or `warning`. Costs are shown for the compiler's figures of the present text.

| code | severity | means | turned off by |
|---|---|---|---|"""


def _row(entry: Explanation) -> str:
    text = entry.text.replace("|", "\\|")
    match entry.kind:
        case "outcome":
            return f"| {entry.names[0]} | {entry.names[2]} | {text} |"
        case "counter":
            return f"| {entry.names[1]} | `{entry.names[0]}` | {text} |"
        case _:
            return f"| `{entry.names[0]}` | {text} |"
