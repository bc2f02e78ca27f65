"""Explains each outcome, exit code, diagnostic, label, counter, stall reason, word of launch specs and setting.

Each has one text: the hover, `orbit-lsp explain` and docs/guide/explain.md show it.
"""

from __future__ import annotations

import difflib
import json
import re
from typing import Literal

from orbit_lsp.state import config
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.messages import EXIT_CODES

Kind = Literal[
    "outcome",
    "CUDA error",
    "ptxas note",
    "diagnostic",
    "label",
    "term",
    "bottleneck",
    "counter",
    "stall reason",
    "launch spec",
    "instruction",
    "loop",
    "gate",
    "setting",
]

OUTCOMES = {
    "ok": "The job did what it was asked to. A program that launched none of its kernels is ok too; the result says so.",
    "compile error": "nvcc, ptxas, the linker or Triton rejected the code, or a launch spec (the comment that says how "
    "to run a kernel) has an error. The errors are diagnostics at their lines.",
    "runtime error": "The program failed: a non-zero exit code, a signal (also SIGKILL), a CUDA error, a failed assertion, out of "
    "memory. If a kernel failed, the program runs once more, and the failure is shown on the line that caused it.",
    "wrong answer": "The kernel ran, but an output differs from its `expect` or `reference`. A diagnostic at the check says "
    "where and by how much. With the grade `referee` (below, under *Terms*), signs of cheating make a wrong answer too.",
    "timed out": "The build, run or wait reached its limit. Raise `orbit.build_timeout_s` (option `--build-timeout`) for "
    "builds, `orbit.run_timeout_s` (option `--timeout`) for runs, or `--wait-limit` for a job's wait for a GPU. Only the command `orbit-lsp exec` exits with 124 instead, like timeout(1).",
    "infrastructure": "The code is not at fault: no GPU, no compiler, a full disk, no network, a refusal by "
    "Modal, or a process of orbit-lsp itself that was killed. The message says what to do. `orbit-lsp doctor` shows what this "
    "machine lacks.",
    "usage": "The command line is wrong: an unknown command or option, or a file that does not exist.",
    "cancelled": "The user cancelled the job. All processes that it started have ended.",
}
"""By outcome, and `usage` for the command line itself."""

DRIVER_REFUSALS = {
    "ERR_NVGPUCTRPERM": "The driver denies this user the GPU's performance counters, so a profile has times only. An administrator permits "
    "them: the line `options nvidia NVreg_RestrictProfilingToAdminUsers=0` in a file of `/etc/modprobe.d/`, then a restart of the machine. In a "
    "container, `--cap-add=SYS_ADMIN`. On rented GPUs, only the provider can.",
}
"""By NVIDIA's name of what the driver forbids."""

DIAGNOSTICS = {
    "launch-spec": "The launch spec has an error or a warning at this column. orbit-lsp checks it against the "
    "kernel's signature while you type, and executes nothing. A spec with an error is not run.",
    "register-spills": "The kernel needs more registers than the compiler may give it, so it stores some values "
    "in local memory (DRAM, through L1) and loads them again. Allow more registers (smaller blocks in "
    "`__launch_bounds__`), or keep fewer values alive.",
    "local-memory": "A per-thread array or variable is not in registers, because its index is known only at run "
    "time or its address is taken. Unroll the loop that indexes it, or put it into shared memory.",
    "local-limit": "Each thread needs more local memory than CUDA gives to one (512 KiB), so each launch fails. Make the thread's array "
    "smaller, or put it into global memory.",
    "shared-memory": "A block needs more shared memory than the chosen GPU gives to one block, so the "
    "launch fails. Use smaller tiles or fewer stages.",
    "block-size": "A block of the launch has more threads than the GPU, the kernel's registers or `__launch_bounds__` allow, "
    "so the launch fails. Launch smaller blocks, or change the bounds.",
    "occupancy-step": "If each thread used one register less, or each block 1 KiB of shared memory less, one more block would "
    "fit on each multiprocessor. Code actions on the signature set `__launch_bounds__`, block size or `num_warps`. More occupancy "
    "is not always faster: measure it.",
    "stands here": "The run was ended at its limit, or by *Where is it?*, while the kernel ran. Then the program ran once more, and these warps stood on "
    "this line. Warps that wait at a barrier wait for the others: look at the line on which those stand.",
    "not launched": "The program ran but did not launch this kernel, so nothing was measured or checked. "
    "Launch it, or write a launch spec above it.",
}
"""By the code that the diagnostic carries."""

LABELS = {
    "⏱": "The time of the last run: the median of several launches.",
    "◔": "The last profile: one launch, counted by the GPU unless the label is `no counters`.",
    "◂": "On a hot line of a profile: its share of the kernel's warp samples, its main stall reason if there is room, and "
    "its problems (`uncoalesced`, `bank conflicts`, `local memory`).",
    "✓": "Every check (`expect`, `reference`) held: once before timing, and once after it with new input data.",
    "✗": "The last run failed, or a check (`expect`, `reference`) did not hold. The lens shows the time of day when it "
    "failed; click it for the reason.",
    "⚠": "Before a reason: the last run was not possible (no GPU, no compiler, an outage). Otherwise, as in "
    "`⚠ spills 48 B`: a warning.",
    "±": "Half the distance between the 20 % and 80 % quantiles, relative to the median. It shows how much "
    "launches differ. Not shown for fewer than 5 launches. `±` alone: two versions differ by no more than noise.",
    "n=": "The number of launches in the median.",
    "under": "As in `under 1 µs`: the launches are too short to be measured by CUPTI, which records them. Give the kernel more work.",
    "in program": "Launches that the program itself makes, with its inputs and its cache state. The median "
    "leaves out the first launch, unless it is the only one.",
    "cold L2": "Before each launch, orbit-lsp reads three times as much data as L2 holds, so that none of the "
    "kernel's data is in L2.",
    "warm L2": "Launches follow each other with nothing in between, so data that fits in L2 is there.",
    "cold or warm": "Which of the two times counts where the kernel is used. Compare with the cold one what a benchmark that flushes L2 says; "
    "with the warm one what a loop over this kernel alone says.",
    "occ": "Occupancy: resident warps of a multiprocessor, as a share of the most it can hold. Before a run it is "
    "what the compiler's figures allow. ≤ means at most: only a profile counts the warps that were really active, and a block size that is "
    "not known yet may allow fewer.",
    "regs": "Registers that the compiler uses for each thread.",
    "shared": "Shared memory of a block, as far as the compiler knows it. Behind an occupancy: shared memory limits it.",
    "instances": "A kernel is compiled once for each set of its template arguments or constexprs. `1 of 2 instances`: until one is "
    "launched, the figures are those of the instance with most registers. The hover has them all.",
    "arguments assumed": "The file does not show all types and constants of the kernel's launch. The figures are for values "
    "that orbit-lsp assumed; the hover lists them. A launch spec gives the real ones.",
    "spills": "Values that do not fit in registers, so the kernel keeps them in local memory. See "
    "`register-spills`.",
    "% of peak": "Share of a peak of the GPU: in a profile NVIDIA's, else from its clock and its widths (memory bus, "
    "arithmetic units).",
    "L2-resident": "The rate exceeds the peak of DRAM, because all data of the launch fits in L2.",
    "memory checked": "compute-sanitizer found no memory fault in the last check.",
    "restricted": "The run had a container of its own on Modal, without network. *Run …, restricted* and "
    "`orbit.modal.restricted` do this, for code that is not yours.",
    "compiling…": "The file is being compiled, as at each save. What stood here before belongs to an earlier text.",
    "edited since": "The number belongs to an earlier version of the kernel, its headers, flags or settings. "
    "Ordinary comments and white space do not count. Undo the edit and the mark disappears.",
    "uncoalesced": "Global accesses of this line move more 32-byte sectors than they would need if coalesced. `25% used`: a quarter would do.",
    "bank conflicts": "Threads of a warp use the same bank, so this line's shared-memory accesses need extra "
    "passes.",
    "local memory": "Per-thread memory in DRAM, cached in L1 and L2: spilled values, or an array that is not in "
    "registers.",
    "no counters": "On a line: the profile has times only. The hover and the command line say why, and how to enable counters.",
    "times only": "In a summary: the same as `no counters`.",
    "inconclusive": "The comparison could not tell which version is faster.",
    "waves": "The number of blocks in the grid, divided by the number that fit on the GPU at the same time.",
}
"""Signs and words on a kernel's line."""

TERMS = {
    "lens": "Text or a command above a kernel; a click runs the command. In editors without lenses the same commands are code "
    "actions.",
    "hint": "Text at the end of a kernel's line: registers, occupancy, and times after a run.",
    "occupancy": "Resident warps of a multiprocessor, as a share of the most it can hold: `occ` on a kernel's line.",
    "assumed": "A value that the compiler needs and that neither the launch spec nor the file gives: a constant (`BLOCK=64 assumed`) or the types "
    "of the arguments. Registers and occupancy are for it. A run, or a launch spec, has the true ones.",
    "budget": "The most that rented GPUs may cost in a calendar month (UTC), in dollars: `orbit.modal.budget_usd`, `--budget` or `ORBIT_BUDGET_USD`. "
    "What counts is what was spent, what is rented now, and for a run that begins all that it may take: the limits of its build and its run, and the idle time of its GPU.",
    "author": "The lower grade of a result's protection from code that cheats: the code ran in the process that measured it, and could "
    "falsify the result. See `orbit.grade`.",
    "referee": "The higher grade: the code ran in a sandboxed process of its own, and was measured and checked from outside. A `.cu` "
    "kernel that runs by its launch spec has this grade without a sandbox. See `orbit.grade`.",
    "policy": "With the grade `referee`, what forbids a score to a right answer: `libraries` (libraries' kernels do the work) or `precision` "
    "(it computes in less than the reference's precision). The outcome is ok. A request or `orbit.allow` can allow either.",
    "launch spec": "A comment above a kernel that says how to run it and what it must compute: `// orbit: …`.",
    "draft": "A launch spec that orbit-lsp writes for a kernel; its guesses are marked.",
    "live": "A mode in which a kernel runs again at each save and, if `orbit.live.on` is `pause`, at each pause in typing. "
    "The code action *Live: run at every save* turns it on.",
    "bottleneck": "What limits a profiled kernel: compute, memory, both (balanced), latency, or a small grid.",
    "worker": "The background process of orbit-lsp that compiles and runs files. `orbit-lsp doctor` lists it, `orbit-lsp stop` ends "
    "it. The worker of a loop is another thing: the agent, script or person that changes the kernel.",
    "job": "A file with its settings, and what to do with it: compile, run, profile, check, compare or "
    "disassemble.",
}
"""Words of the guide and of messages."""

LOOP = {
    "KEEP": "`orbit-lsp loop` ran the change and the best version so far in turn; the change is faster beyond noise. It is "
    "the best version from now on.",
    "REVERT": "The change is not kept: `orbit-lsp loop` puts the best version so far back into the kernel file. The change stays in the "
    "loop's folder.",
    "faster": "A comparison's verdict: the new version took less time in all seven pairs of runs, or in eleven of twelve. In the median of the pairs, "
    "the time is at least 0.5 % less.",
    "slower": "A comparison's verdict: the new version took more time in all seven pairs of runs, or in eleven of twelve. In the median of the pairs, "
    "the time is at least 0.5 % more.",
    "unchanged": "The worker of a loop left the kernel file as it was, so nothing was measured.",
    "failed": "The change of a loop's worker does not compile, fails, gives a wrong answer or takes too long.",
    "withdrawn": "The worker of a loop decided REVERT itself, so nothing was measured.",
    "vetoed": "The change of a loop is faster, but the loop's reviewer (a second agent, script or person) requires a revert.",
    "evidence error": "The worker of a loop changed more than the kernel, or its result is false: its time is not what the loop "
    "measured, it belongs to another iteration, or it names a file outside the iteration's folder.",
    "infrastructure failure": "An iteration of a loop that shows nothing about the change: there was no GPU, or an answer of the worker or the "
    "reviewer is missing or does not match its schema (`orbit-lsp schema worker`, `orbit-lsp schema reviewer`). Three in a row "
    "end the loop.",
}
"""Decisions and outcomes of an iteration."""

GATE = {
    (
        "slower (gate)",
        "exit code 6",
        "6",
    ): "`orbit-lsp gate` found a kernel that takes more time than in the base. The chance that a gate calls an unchanged "
    "kernel slower is at most `--false-alarm`, for all its kernels together.",
    (
        "inconclusive (gate)",
        "exit code 7",
        "7",
    ): "`orbit-lsp gate --fail-inconclusive` could not decide every kernel: too few pairs for their noise, the time "
    "limit, a GPU in a bad state, or a control that differed from itself. Without the option the exit code is 0.",
    (
        "not slower",
    ): "A gate's verdict: the kernel is not slower by as much as `--find`, 2 % unless you say otherwise.",
    (
        "not compared",
    ): "A kernel of a gate that has no base, or that nothing can run. The reason is beside it.",
    (
        "control",
    ): "A kernel that a gate runs against itself, one for ten kernels. If it differs, the machine's times cannot be trusted, and the gate is inconclusive.",
}
"""Of `orbit-lsp gate`, by names."""

BOTTLENECKS = {
    "compute": "The arithmetic units are at 60 % of their peak or more, memory is at a lower share of its peak, and the kernel is not "
    "`balanced`: do less arithmetic, or use tensor cores.",
    "memory": "The memory system is at 60 % of its peak or more, compute is at a lower share of its peak, and the kernel is not "
    "`balanced`: move fewer bytes, or reuse them from cache.",
    "balanced": "The higher of compute and memory is between 60 % and 80 % of its peak, and they are less than 10 points "
    "apart: do less of both.",
    "latency": "Compute and memory are both under 60 % of their peaks, because warps wait. The lens names the main "
    "stall reason.",
    "small grid": "Compute and memory are both under 60 % of their peaks, and the grid has fewer blocks than the "
    "GPU can run at once.",
}

COUNTERS = {
    "gpu__time_duration.sum": ("time of this launch", "From the launch's start to its end on the GPU."),
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": (
        "compute throughput", "The use of the multiprocessors' busiest unit, relative to that unit's peak.",
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
        "tensor cores", "Share of the cycles in which the tensor cores were active.",
    ),
    "sm__warps_active.avg.pct_of_peak_sustained_active": (
        "occupancy, achieved", "Active warps of a multiprocessor, averaged over the launch, relative to the most it can hold.",
    ),
    "sm__maximum_warps_per_active_cycle_pct": (
        "occupancy, theoretical", "The occupancy that registers, shared memory and block size allow.",
    ),
    "launch__registers_per_thread": ("registers per thread", "Registers that the launch allocates for each thread."),
    "launch__waves_per_multiprocessor": (
        "waves per SM", "The number of blocks in the grid, divided by the number that fit on the GPU at the same time.",
    ),
    "launch__shared_mem_per_block_static": ("static shared memory", "Bytes per block that the kernel declares."),
    "launch__shared_mem_per_block_dynamic": ("dynamic shared memory", "Bytes per block that the launch asks for."),
    "l1tex__t_sector_hit_rate.pct": ("L1 hit rate", "Share of the requested sectors that were in L1."),
    "lts__t_sector_hit_rate.pct": ("L2 hit rate", "Share of the requested sectors that were in L2."),
    "lts__t_sectors_srcunit_tex_op_read.sum": ("read from L2 by L1", "32-byte sectors that L1 read from L2."),
    "lts__t_sectors_srcunit_tex_op_write.sum": ("written to L2 by L1", "32-byte sectors that L1 wrote to L2."),
    "dram__bytes_read.sum": ("read from DRAM", "Bytes read from DRAM."),
    "dram__bytes_write.sum": ("written to DRAM", "Bytes written to DRAM, without writes that are still in L2."),
    "dram__bytes.sum.per_second": ("DRAM bandwidth", "Bytes read and written per second."),
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio": (
        "bytes used of a sector, loads", ("The average number of bytes that loads use of each 32-byte sector. Far fewer than 32 means "
        "that most loads are uncoalesced, or that many threads load the same address."),
    ),
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_st.ratio": (
        "bytes used of a sector, stores", ("The average number of bytes that stores use of each 32-byte sector. Far fewer than 32 means "
        "that most stores are uncoalesced."),
    ),
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum": (
        "shared memory bank conflicts", "Extra passes over shared memory because threads of a warp use the same bank.",
    ),
    "derived__local_spilling_requests": ("local memory, spilling requests", "Memory requests for spilled registers."),
    "gpc__cycles_elapsed.avg.per_second": ("SM clock of this launch", "The clock that the multiprocessors ran at."),
    "dram__cycles_elapsed.avg.per_second": ("memory clock of this launch", "The clock that DRAM ran at."),
    "launch__occupancy_limit_registers": ("occupancy limit: registers", "Blocks per multiprocessor that registers allow."),
    "launch__occupancy_limit_shared_mem": ("occupancy limit: shared memory", "Blocks per multiprocessor that shared memory allows."),
    "launch__occupancy_limit_warps": ("occupancy limit: warps", "Blocks per multiprocessor that the number of warps allows."),
    "launch__occupancy_limit_blocks": ("occupancy limit: blocks", "The maximum number of blocks on a multiprocessor."),
    "launch__occupancy_limit_barriers": ("occupancy limit: barriers", "Blocks per multiprocessor that barriers allow."),
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": ("global loads", "32-byte sectors that global loads read through L1."),
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum": ("global stores", "32-byte sectors that global stores wrote through L1."),
    "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum": ("local loads", "32-byte sectors that loads of local memory read."),
    "l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum": ("local stores", "32-byte sectors that stores to local memory wrote."),
    "dram__bytes.sum.peak_sustained": ("DRAM peak", ("Bytes that DRAM can move in a memory cycle. It gives the "
    "roofline its slope.")),
    "sm__cycles_elapsed.avg.per_second": ("SM cycles per second", ("The clock of the multiprocessors, by their own "
    "counter. The roofline multiplies its peaks per cycle by it.")),
    "smsp__cycles_elapsed.avg.per_second": ("SM sub-partition cycles per second", ("The clock of the "
    "multiprocessors' sub-partitions. The roofline multiplies operations per cycle by it.")),
    "smsp__average_warp_latency_per_inst_issued.ratio": (
        "cycles between two instructions", ("Average cycles between two instructions of a warp. The warp states "
        "(stall reasons) are its parts."),
    ),
    "smsp__inst_executed.sum": ("instructions", "Instructions that the launch executed, counted once for each warp."),
    "launch__grid_size": ("grid size", "Blocks of the launch."),
    "launch__block_size": ("block size", "Threads of a block."),
    "smsp__pcsamp_sample_count": ("warp samples", ("How often the profiler sampled what a warp of the kernel was "
    "doing.")),
    "inst_executed": ("instructions", "Instructions of this line, counted once for each warp."),
    "memory_l2_theoretical_sectors_global": (
        "global memory", ("32-byte sectors that this line's global accesses moved, and how many they would need "
        "if coalesced."),
    ),
    "memory_l1_wavefronts_shared": (
        "shared memory", ("Passes of this line's accesses over shared memory, and how many they would need "
        "without bank conflicts."),
    ),
    "memory_l2_theoretical_sectors_local": (
        "local memory", ("32-byte sectors of local memory that this line moved: spills, or arrays that are not in "
        "registers."),
    ),
}  # fmt: skip
"""By NVIDIA's name: (what the hover calls it, what it is)."""

STALLS = {
    "barrier": "waits for the other warps of its block at a barrier",
    "branch resolving": "waits for the target of a branch",
    "dispatch stall": "was ready, but the dispatcher held it back",
    "drain": "waits at its end for its stores to finish",
    "gmma": "waits before a matrix operation of its warp group",
    "imc miss": "waits for a constant that was not in the cache",
    "lg throttle": "waits for room in the queue of global and local memory",
    "long scoreboard": "waits for data of global, local, surface or texture memory",
    "math pipe throttle": "waits for an arithmetic pipe that other warps keep busy",
    "membar": "waits at a memory barrier",
    "mio throttle": "waits for room in the queue of shared memory and special functions",
    "misc": "waits for another reason",
    "no instruction": "waits for its next instruction to be fetched",
    "no instructions": "waits for its next instruction to be fetched; Nsight Compute also calls this `no instruction`",
    "not selected": "could issue; another warp was chosen",
    "selected": "issued an instruction",
    "short scoreboard": "waits for data of shared memory or a special function",
    "sleeping": "sleeps, as the code asked it to",
    "tex throttle": "waits for room in the queue of texture memory",
    "wait": "waits the fixed time between two dependent instructions",
    "warpgroup arrive": "waits for the other warps of its warp group",
}
"""What a warp does in each state, after "Warp Stall Reasons" of Nsight Compute's Profiling Guide; names with spaces."""

REMEDIES = {
    "barrier": "Give its warps equal work, or use smaller blocks.",
    "lg throttle": "Use fewer, wider accesses.",
    "long scoreboard": "Load earlier, reuse data from shared memory, or have more warps.",
    "math pipe throttle": "Use fewer instructions of that pipe.",
    "mio throttle": "Use fewer, wider accesses to shared memory.",
    "short scoreboard": "Avoid bank conflicts, or keep values in registers.",
}
"""What to try against the most frequent stall reasons; for `explain`, as hovers have no room for it."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """An explanation. It is found by its `names`; the first is its title."""

    kind: Kind
    names: tuple[str, ...]
    text: str


def _codes(code: int) -> tuple[str, str]:
    return f"exit code {code}", str(code)


def entries() -> list[Explanation]:
    from orbit_lsp.views.explain.cuda_errors import CUDA_ERRORS
    from orbit_lsp.views.explain.ptxas_notes import PTXAS_NOTES
    from orbit_lsp.views.explain.sass_instructions import CONTROL_CODE, MEANINGS
    from orbit_remote.spec.comment_scanner import PARTS, WORDS  # a server that starts needs no launch specs

    return [
        *(Explanation("outcome", (name, *_codes(EXIT_CODES[name]), *(_codes(124) if name == "timed out" else ())), text) for name, text in OUTCOMES.items()),
        *(Explanation("CUDA error", names, text) for names, text in CUDA_ERRORS.items()),
        *(Explanation("CUDA error", (name,), text) for name, text in DRIVER_REFUSALS.items()),
        *(Explanation("ptxas note", names, text) for names, text in PTXAS_NOTES.items()),
        *(Explanation("diagnostic", (name,), text) for name, text in DIAGNOSTICS.items()),
        *(Explanation("label", (name,), text) for name, text in LABELS.items()),
        *(Explanation("term", (name,), text) for name, text in TERMS.items()),
        *(Explanation("bottleneck", (name,), text) for name, text in BOTTLENECKS.items()),
        *(Explanation("loop", (name,), text) for name, text in LOOP.items()),
        *(Explanation("gate", names, text) for names, text in GATE.items()),
        *(Explanation("counter", (name, title), text) for name, (title, text) in COUNTERS.items()),
        *(Explanation("stall reason", (name,), f"The warp {text}. {REMEDIES.get(name, '')}".strip()) for name, text in STALLS.items()),
        *(Explanation("launch spec", (name,), f"{text[0].upper()}{text[1:]}.") for name, text in (PARTS | WORDS).items()),
        Explanation("instruction", ("control code",), f"{CONTROL_CODE[0].upper()}{CONTROL_CODE[1:]}."),
        *(Explanation("instruction", (name,), f"{text[0].upper()}{text[1:]}.") for name, text in MEANINGS.items()),
        *(Explanation("setting", (f"orbit.{name}", name), _setting(field.default, field.metadata["description"])) for name, _, field in config.rows()),
    ]  # fmt: skip


def _setting(default: object, description: str) -> str:
    return f"{description} Default: {json.dumps(default, ensure_ascii=False)}."


def explain(word: str) -> list[Explanation]:
    """Return everything with this name, exact names first, else the stall reason within a counter's name. Return none
    if there is none.
    """
    wanted = _plain(re.sub(r"^n=\d+$", "n=", word))
    wanted = re.sub(r"^(?:cuda error:? |ptxas )?\(?(c?\d{3,4})\)?$", r"\1", wanted)  # as messages write them
    explanations = [entry for entry in entries() if wanted in map(_plain, entry.names)]
    if not explanations and (stall := re.search(r"issue_stalled_([a-z_]+?)(?:_not_issued|_per_|\.|$)", word)):
        explanations = [
            entry
            for entry in entries()
            if entry.kind == "stall reason" and entry.names[0] == stall[1].replace("_", " ")
        ]
    if not explanations:  # a message as ptxas prints it, whole or in part
        explanations = [
            entry
            for entry in entries()
            if entry.kind == "ptxas note"
            and any(
                name in wanted for name in map(_plain, entry.names) if " " in name or name in wanted.split()
            )
        ]
    if not explanations and "." in word:  # the modifiers of an instruction, as in LDG.E.64
        mnemonic = word.partition(".")[0].casefold()
        explanations = [
            entry
            for entry in entries()
            if entry.kind == "instruction" and entry.names[0].casefold() == mnemonic
        ]
    return explanations


def suggestions(word: str) -> list[str]:
    """Return the names nearest to an unknown word: those that contain it, else those with a similar spelling; five at
    most.
    """
    names = {_plain(name): name for entry in reversed(entries()) for name in reversed(entry.names)}
    wanted = _plain(word)
    inside = [name for plain, name in names.items() if wanted and wanted in plain]
    alike = [names[plain] for plain in difflib.get_close_matches(wanted, names, n=5)]
    return list(dict.fromkeys([*alike, *inside]))[:5]


def _plain(name: str) -> str:
    return " ".join(re.sub(r"[_()-]", " ", name.casefold()).split())
