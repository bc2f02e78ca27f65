"""What a warp waits for, in words: the warp states of Nsight Compute's Profiling Guide ("Warp Stall Reasons")."""

from __future__ import annotations

MEANING = {
    "barrier": "waits for the other warps of its block at a barrier",
    "branch resolving": "waits for the target of a branch",
    "dispatch stall": "was ready, but the dispatcher held it back",
    "drain": "waits at its end for stores to leave",
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
    "sleeping": "sleeps, as it was told to",
    "tex throttle": "waits for room in the queue of texture memory",
    "wait": "waits the fixed time between two dependent instructions",
    "warpgroup arrive": "waits for the other warps of its warp group",
}
"""By the name as it is read, with spaces."""
