"""ptxas' remarks on a kernel while it assembles it. Each note has its code, and the words by which it is recognised."""

from __future__ import annotations

_SERIAL = "Each `wgmma.mma_async` of the function waits for the one before it, so tensor cores idle: "

PTXAS_NOTES = {
    ("C7504", "'setmaxnreg' ignored to maintain compatibility across compilation units"): (
        "`setmaxnreg` has no effect, because the file is compiled with `-rdc=true` (or `-dc`) and other files may call it. Compile "
        "this kernel without."
    ),
    ("'setmaxnreg' ignored to allow debugging",): "`setmaxnreg` has no effect under `-G`. Compile without it.",
    ("C7506", "'setmaxnreg' ignored to maintain compatibility into 'extern' call"): (
        "`setmaxnreg` has no effect, because the kernel calls a function that is not inlined and whose registers are not known: "
        "one of another file, or of the device runtime."
    ),
    ("C7507", "'setmaxnreg' ignored to maintain minimum register requirements"): (
        "`setmaxnreg` has no effect, because the code behind it needs more registers than it asks for. Ask for more, or have this "
        "warp group do less."
    ),
    ("C7508", "'setmaxnreg' ignored; unable to determine register count at entry"): (
        "`setmaxnreg` has no effect, because the registers that the kernel begins with are not fixed. Give it "
        "`__launch_bounds__(threads, blocks)`."
    ),
    ("C7509", "wgmma.mma_async instructions are serialized due to the presence of Extern calls"): (
        f"{_SERIAL}the function calls one that is not known here. Define it in this file, so that it can be inlined."
    ),
    ("C7510", "wgmma.mma_async instructions are serialized due to wgmma pipeline crossing function boundary"): (
        f"{_SERIAL}a call stands between the first and the wait for the last. Have the function inlined (`__forceinline__`), also lambdas."
    ),
    ("C7511", "wgmma.mma_async instructions are serialized due to insufficient register resources for the wgmma pipeline"): (
        f"{_SERIAL}the accumulators that are under way do not fit into registers. Use smaller tiles, more warp groups or fewer "
        "accumulators."
    ),
    ("C7512", "wgmma.mma_async instructions are serialized due to insufficient register resources for the function"): (
        f"{_SERIAL}the function needs more registers than a thread may have. Use smaller tiles, more warp groups, or launch bounds that "
        "allow more registers."
    ),
    ("C7513", "non wgmma instructions defining input registers of a wgmma"): (
        f"{_SERIAL}registers that an instruction under way reads are written before it is waited for. Write them before "
        "`wgmma.fence`, or after `wgmma.wait_group`."
    ),
    ("C7514", "non wgmma instructions reading accumulator registers of a wgmma"): (
        f"{_SERIAL}accumulators are read before `wgmma.wait_group`. Wait first; keep each accumulator in registers of its own, with "
        "indices known at compile time."
    ),
    ("C7515", "non wgmma instructions defining accumulator registers of a wgmma"): (
        f"{_SERIAL}accumulators are written while the instructions are under way. Set them before `wgmma.fence`, or begin with scale-d 0."
    ),
    ("wgmma.mma_async instructions are serialized due to ill formed pipeline stage",): (
        f"{_SERIAL}fence, `wgmma.mma_async`, commit and wait do not follow each other in this order on every path."
    ),
    ("C7517", "warpgroup.wait is injected"): (
        "ptxas waits for `wgmma` here, because its results are used and the code does not wait. Put `wgmma.wait_group` before the use, "
        "and use nothing of an accumulator while it is under way."
    ),
    ("C7518", "program dependence on compiler-inserted WG.DP in divergent path"): (
        f"{_SERIAL}a wait would be needed where the warps of the group may go different ways. Keep `wgmma` out of such branches."
    ),
    ("C7519", "warpgroup.arrive is injected"): (
        "ptxas adds a `wgmma.fence` here, because registers that `wgmma` uses were written since the last one. Put one "
        "`wgmma.fence` behind those writes, before the first `wgmma.mma_async`."
    ),
    ("C7520", "program dependence on compiler-inserted WG.AR in divergent path"): (
        f"{_SERIAL}a fence would be needed where the warps of the group may go different ways. Keep `wgmma` out of such branches."
    ),
    ("Stack size for entry function cannot be statically determined",): (
        "The kernel is recursive or calls through pointers, so the size of a thread's stack is not known. If it overflows, "
        "`cudaDeviceSetLimit(cudaLimitStackSize, …)` gives more."
    ),
    (".minnctapersm will be ignored",): (
        "The second value of `__launch_bounds__` asks for more threads on a multiprocessor than this GPU holds, so it has no effect."
    ),
    ("Unresolved extern function",): (
        "A device function is declared and called, but not defined in this file. If another file defines it, compile with `-rdc=true` "
        "(`orbit.nvcc_flags`), or include its definition."
    ),
    ("Not a name of any known instruction",): (
        "`asm` has an instruction that this assembler does not know: it is misspelt, or newer than the toolkit."
    ),
    ("not supported on .target",): (
        "`asm` or an intrinsic has an instruction that the GPU does not have. Some need an architecture with its letter (`sm_90a`)."
    ),
    ("uses too much shared data",): (
        "The kernel declares more static shared memory than a block may have, which the message ends with. Declare it `extern __shared__`, and ask for more "
        "with `cudaFuncAttributeMaxDynamicSharedMemorySize`."
    ),
}  # fmt: skip
"""By the code, where the note has one, and its words."""
