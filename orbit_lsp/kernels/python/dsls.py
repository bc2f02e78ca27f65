"""The kernel languages of Python: what turns a function into a kernel of each."""

from __future__ import annotations

import re

MAKERS = {
    "triton.jit": "triton",
    "triton.JITFunction": "triton",
    "triton.runtime.JITFunction": "triton",
    "triton.runtime.jit": "triton",
    "triton.runtime.jit.jit": "triton",
    "triton.runtime.jit.JITFunction": "triton",
    "triton.experimental.gluon.jit": "gluon",
    "triton.experimental.gluon._runtime.jit": "gluon",
    "triton.experimental.gluon._runtime.GluonJITFunction": "gluon",
    "numba.cuda.jit": "numba",
    "helion.kernel": "helion",
    "helion.jit": "helion",
    "cutlass.cute.kernel": "cute",
    "tilelang.jit": "tilelang",
    "tilelang.language.prim_func": "tilelang",
    "warp.kernel": "warp",
    "cuda.tile.kernel": "cutile",
    "cupyx.jit.rawkernel": "cupy",
    "taichi.kernel": "taichi",
}
"""Dotted path of a decorator (or of a class whose call wraps a function) -> language."""

WRAPPERS = frozenset(
    f"triton{module}.{name}"
    for module in ("", ".runtime", ".runtime.autotuner")
    for name in ("autotune", "heuristics", "Autotuner", "Heuristics")
)
"""What takes a Triton kernel and gives one that only the host can launch."""

RELATIVE = {
    "runtime.jit": "triton.runtime.jit",
    "_runtime": "triton.experimental.gluon._runtime",
}
"""How the packages themselves import what they make kernels with: `from ..runtime.jit import jit`."""

MAKER_WORD = re.compile(
    rb"\b(?:"
    + "|".join(sorted({path.rpartition(".")[2] for path in (*MAKERS, *WRAPPERS)})).encode()
    + rb")\b"
)
"""A text without such a word makes no kernel, unless it calls a name that was bound to a maker elsewhere."""
