"""What the instructions of NVIDIA's GPUs do, a line each, in our words, after the tables of "CUDA Binary Utilities".

The tables say what each mnemonic is for. They do not document modifiers (`.E`, `.64`, `.GE`) and operands.
"""

from __future__ import annotations

CONTROL_CODE = (
    "the scheduling bits before an instruction, as CuAssembler writes them: `B--2---` waits for scoreboard 2, `R1` "
    "releases scoreboard 1 when the operands are read, `W0` releases scoreboard 0 when the result is written, `Y` lets the warp yield, "
    "`S02` stalls it for 2 cycles"
)

_TABLE = """
FADD adds fp32
FADD2 adds two packed pairs of fp32, element by element
FADD32I adds fp32 and a constant
FCHK checks whether an fp32 division needs its slow path
FFMA multiplies and adds fp32 in one rounding
FFMA2 multiplies and adds packed pairs of fp32, element by element
FFMA32I multiplies and adds fp32 with a constant
FHADD adds fp32 and fp16
FHFMA multiplies and adds fp32 and fp16
FMNMX takes the minimum or maximum of fp32
FMNMX3 takes the minimum or maximum of three fp32
FMUL multiplies fp32
FMUL2 multiplies two packed pairs of fp32, element by element
FMUL32I multiplies fp32 and a constant
FRND rounds a floating-point number to an integral one
FSEL chooses one of two fp32 by a predicate
FSET compares fp32 and writes a number
FSETP compares fp32 and writes predicates
FSWZADD adds fp32 of neighbouring lanes, as derivatives need
MUFU computes a reciprocal, square root, exponential, logarithm or sine on the special function unit, approximately
HADD2 adds two packed pairs of fp16, element by element
HADD2_32I adds two packed pairs of fp16, one of them constant
HFMA2 multiplies and adds packed pairs of fp16, element by element
HFMA2_32I multiplies and adds packed pairs of fp16, one of them constant
HMMA multiplies matrices of fp16, bf16 or tf32 on the tensor cores
HMNMX2 takes the minimum or maximum of two packed pairs of fp16
HMUL2 multiplies two packed pairs of fp16, element by element
HMUL2_32I multiplies two packed pairs of fp16, one of them constant
HSET2 compares two packed pairs of fp16 and writes numbers
HSETP2 compares two packed pairs of fp16 and writes predicates
DADD adds fp64
DFMA multiplies and adds fp64 in one rounding
DMMA multiplies matrices of fp64 on the tensor cores
DMUL multiplies fp64
DSETP compares fp64 and writes predicates
BMMA multiplies matrices of single bits on the tensor cores
BMSK makes a mask of consecutive bits
BREV reverses the bits of a register
FLO finds the highest set bit
IABS takes the absolute value of an integer
IADD adds integers
IADD3 adds three integers
IADD32I adds an integer and a constant
IDP sums the products of pairs of 8- or 16-bit integers
IDP4A sums the products of four pairs of 8-bit integers
IMAD multiplies and adds integers; `IMAD.MOV` copies a register on the multiply pipe
IMMA multiplies matrices of integers on the tensor cores
IMNMX takes the minimum or maximum of integers
IMUL multiplies integers
IMUL32I multiplies an integer and a constant
ISCADD shifts an integer and adds another
ISETP compares integers and writes predicates
LEA computes an address: shifts one operand and adds another
LOP combines two operands by a logic operation
LOP3 combines three operands by any logic operation, given as a table of 8 bits
LOP32I combines an operand and a constant by a logic operation
POPC counts set bits
SHF shifts a pair of registers
SHL shifts left
SHR shifts right
VABSDIFF takes the absolute difference of integers
VABSDIFF4 takes the absolute difference of four packed 8-bit integers
VIADD adds integers
VIADDMNMX adds integers, and takes the minimum or maximum with another
VIMNMX takes the minimum or maximum of integers
VIMNMX3 takes the minimum or maximum of three integers
VHMNMX takes the minimum or maximum of three packed fp16 pairs
F2F converts between floating-point types
F2FP converts fp32 to packed narrower types
F2I converts floating point to integer
F2IP converts fp32 to packed integers
I2F converts integer to floating point
I2FP converts integer to fp32
I2I converts between integer types
I2IP converts and packs integers
MOV copies a register or a constant
MOV32I copies a constant
MOVM moves a matrix between lanes, transposed
PRMT picks bytes of two registers
SEL chooses one of two registers by a predicate
SGXT extends the sign of a bit field
SHFL reads a register of another lane of the warp
PLOP3 combines three predicates by any logic operation
PSETP combines predicates
P2R copies predicates into a register
R2P copies a register into predicates
FENCE orders memory operations of different proxies, for example generic accesses and TMA
LD loads from a generic address
LDC loads from constant memory, where kernel arguments are
LDG loads from global memory
LDGDEPBAR makes a barrier of the asynchronous copies so far, for DEPBAR to wait on
LDGMC loads the values at a multicast address from several GPUs, reduced to one (multimem.ld_reduce)
LDGSTS copies from global to shared memory, asynchronously
LDL loads from local memory: spilled registers, arrays of a thread
LDS loads from shared memory
LDSM loads matrices from shared memory, as tensor cores take them
LDT loads a matrix from tensor memory to registers
LDTM loads a matrix from tensor memory to registers
STSM stores matrices to shared memory
ST stores to a generic address
STG stores to global memory
STL stores to local memory: spilled registers, arrays of a thread
STS stores to shared memory
STT stores a matrix to tensor memory
STTM stores a matrix to tensor memory
STAS stores to shared memory of the cluster, asynchronously
SYNCS synchronises with a barrier in shared memory (mbarrier)
MATCH finds lanes that hold the same value
QSPC asks which memory an address is in
ATOM does an atomic operation on a generic address, and returns the old value
ATOMS does an atomic operation on shared memory
ATOMG does an atomic operation on global memory, and returns the old value
REDAS does an atomic operation without a result on shared memory of the cluster, asynchronously
REDG does an atomic operation on global memory, and does not return the old value
RED does an atomic operation on memory, and does not return the old value
CCTL controls a cache: prefetches or invalidates
CCTLL controls the cache of local memory
CCTLT controls the cache of textures
ERRBAR waits until errors of memory operations are known
MEMBAR makes earlier writes visible to other threads before later memory operations
LEPC loads the address of this instruction
PREEXIT lets a dependent kernel start before this one ends
ACQBULK waits for the previous kernel, in a dependent launch
CGAERRBAR waits until errors of the cluster are known
ENDCOLLECTIVE ends a part of the code that lanes enter together
BAR synchronises the threads of a block
ARRIVES arrives at a barrier in shared memory when asynchronous copies are done
B2R copies a barrier into a register
BMOV copies a convergence barrier
BPT stops at a breakpoint or a trap
BRA jumps
BREAK leaves a convergence barrier
BRX jumps to an address in a register
BRXU jumps to an address in a uniform register
BSSY sets a convergence barrier: where diverged threads will meet again
BSYNC waits at a convergence barrier for diverged threads
CALL calls a function
DEPBAR waits until a scoreboard has at most N operations left; N is an operand
ELECT chooses one lane of the warp
EXIT ends the thread
JMP jumps to an absolute address
JMX jumps to an absolute address in a register
JMXU jumps to an absolute address in a uniform register
KILL ends the thread, in graphics
NANOSLEEP waits some nanoseconds
NOP does nothing
RET returns from a function
RPCMOV copies the return address
WARPSYNC waits for the named lanes of the warp
WARPSYNCALL waits for all lanes of the warp
YIELD lets other threads of the warp run
CS2R copies a special register, such as the clock or zero, in few cycles
S2R copies a special register, such as threadIdx, into a register
S2UR copies a special register, such as blockIdx, into a uniform register
SETCTAID sets the block's index
SETLMEMBASE sets the base of local memory
SETMAXREG changes how many registers the warp has
USETMAXREG changes how many registers the warp has
VOTE asks whether a predicate holds in the lanes of the warp
VOTEU writes to a uniform register whether a predicate holds in the lanes
PMTRIG triggers a performance monitor
R2B copies a register into a barrier
R2UR copies a register into a uniform register
REDUX reduces a value over the lanes of the warp
CREDUX reduces a value over the lanes of the warp
GETLMEMBASE reads the base of local memory
IDE enables or disables interrupts
SUATOM does an atomic operation on a surface
SULD loads from a surface
SURED does an atomic operation without a result on a surface
SUST stores to a surface
TEX reads a texture
TLD reads a texture without filtering
TLD4 reads four texels of a texture
TMML asks for the mipmap level of a texture
TXD reads a texture with derivatives
TXQ asks for properties of a texture
WARPGROUP orders the matrix operations of a warp group
WARPGROUPSET sets the counters of a warp group
BGMMA multiplies matrices of single bits from shared memory, by a warp group (wgmma)
HGMMA multiplies matrices of fp16, bf16 or tf32 from shared memory, by a warp group (wgmma)
IGMMA multiplies matrices of integers from shared memory, by a warp group (wgmma)
QGMMA multiplies matrices of fp8 from shared memory, by a warp group (wgmma)
QMMA multiplies matrices of fp8 on the tensor cores
OMMA multiplies matrices of fp4 on the tensor cores
UTCBAR signals a barrier when tensor core operations are done (tcgen05.commit)
UTCHMMA multiplies matrices of fp16, bf16 or tf32 into tensor memory (tcgen05.mma)
UTCIMMA multiplies matrices of integers into tensor memory (tcgen05.mma)
UTCOMMA multiplies matrices of fp4 into tensor memory (tcgen05.mma)
UTCQMMA multiplies matrices of fp8 into tensor memory (tcgen05.mma)
UTCATOMSWS allocates or frees tensor memory (tcgen05.alloc)
UTCCP copies from shared to tensor memory (tcgen05.cp)
UTCSHIFT shifts rows of tensor memory (tcgen05.shift)
UBLKCP copies a block of memory, asynchronously (cp.async.bulk)
UBLKPF prefetches a block of memory into L2
UBLKRED reduces a block of memory, asynchronously
UTMACCTL controls the cache of TMA descriptors
UTMACMDFLUSH closes a group of TMA stores
UTMALDG loads a tile from global to shared memory by TMA
UTMALST stores tiles by TMA
UTMAPF prefetches a tile into L2 by TMA
UTMAREDG reduces a tile into global memory by TMA
UTMASTG stores a tile from shared to global memory by TMA
UCGABAR_ARV arrives at the barrier of the cluster
UCGABAR_WAIT waits at the barrier of the cluster
UBMSK makes a mask of consecutive bits, once for the whole warp
UBREV reverses bits, once for the whole warp
UCLEA computes an address of constant memory, once for the whole warp
UF2FP converts fp32 to packed narrower types, once for the whole warp
UFADD adds fp32, once for the whole warp
UFFMA multiplies and adds fp32, once for the whole warp
UFLO finds the highest set bit, once for the whole warp
UFMUL multiplies fp32, once for the whole warp
UFSEL chooses one of two fp32, once for the whole warp
UFSETP compares fp32, once for the whole warp
UI2F converts integer to floating point, once for the whole warp
UIADD3 adds three integers, once for the whole warp
UIMAD multiplies and adds integers, once for the whole warp
UISETP compares integers, once for the whole warp
ULDC loads from constant memory into a uniform register, once for the whole warp
ULEA computes an address, once for the whole warp
ULOP combines two operands by a logic operation, once for the whole warp
ULOP3 combines three operands by any logic operation, once for the whole warp
UMOV copies into a uniform register, once for the whole warp
UP2UR copies uniform predicates into a uniform register
UPLOP3 combines three uniform predicates by any logic operation
UPOPC counts set bits, once for the whole warp
UPRMT picks bytes, once for the whole warp
UR2UP copies a uniform register into uniform predicates
UREDGR does an atomic operation without a result on global memory, once for the whole warp
USEL chooses one of two uniform registers
USGXT extends a sign, once for the whole warp
USHF shifts, once for the whole warp
USHL shifts left, once for the whole warp
USHR shifts right, once for the whole warp
UVIMNMX takes the minimum or maximum of integers, once for the whole warp
UVIADD adds integers, once for the whole warp
UVOTE asks whether a predicate holds, once for the whole warp
"""

MEANINGS: dict[str, str] = {name: meaning for name, _, meaning in (line.partition(" ") for line in _TABLE.split("\n") if line)}  # fmt: skip
"""By mnemonic without modifiers: a verb and what it is about."""


def meaning(mnemonic: str) -> str:
    """Return the meaning of a mnemonic, the same for `LDG.E.64` as for `LDG`. Return "" if the tables do not have it."""
    return MEANINGS.get(mnemonic.partition(".")[0].upper(), "")
