"""Which architecture a GPU's code is built for, in nvcc's spelling."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

# NVIDIA's list of compute capabilities: developer.nvidia.com/cuda-gpus. The first match counts.
_BY_NAME = (
    (r"\bB300|\bGB300", "10.3"),
    (r"\bG?B200|\bB100", "10.0"),
    (r"\bG?H[12]00|\bH800|\bH20\b|\bGH200", "9.0"),
    (r"\bGB10\b", "12.1"),
    (r"\bThor\b", "11.0"),
    (r"\bOrin\b", "8.7"),
    (r"\bRTX[ -]PRO[ -]\d|\bRTX 50[5-9]0", "12.0"),
    (r"\bL2\b|\bL4\b|\bL20\b|\bL40S?\b|\bRTX 40[5-9]0|\bRTX \d+ Ada", "8.9"),
    (r"\bA100|\bA800|\bA30\b", "8.0"),
    (r"\bA10G?\b|\bA16\b|\bA2\b|\bA40\b|\bRTX A\d000|\bRTX 30[5-9]0", "8.6"),
    (r"\bT4\b|\bT4G\b|\bRTX 20[5-8]0|\bQuadro RTX|\bTITAN RTX|\bGTX 16[356]0", "7.5"),
    (r"\bV100|\bTITAN V\b", "7.0"),
)
_TARGETS = ("-arch", "--gpu-architecture", "-gencode", "--generate-code", "-code", "--gpu-code")
_ASKED = re.compile(r"(?:sm|compute|lto)_\d+[af]?|native|all-major|all")


def architecture_of(capability: str) -> str:
    """`sm_90a` for the compute capability `9.0`.

    From 9.0 on the architecture-specific variant is meant: without it wgmma, tcgen05 and TMA's newer
    forms do not assemble. Raises ValueError for what is no capability.
    """
    match = re.fullmatch(r"\s*(\d+)\.(\d)\s*", capability)
    if not match:
        raise ValueError(f"{capability!r} is not a compute capability such as 9.0")
    return f"sm_{match[1]}{match[2]}{'a' if int(match[1]) >= 9 else ''}"


@lru_cache(maxsize=64)
def architecture_for(gpu: str) -> str | None:
    """`sm_90a` for `H100` or `NVIDIA H100 80GB HBM3`, `sm_89` for `rtx4090`, an architecture for itself; None for a GPU
    whose name is not known here.
    """
    if asked := re.fullmatch(r"(?:sm|compute)_?(\d{2,3}[af]?)", gpu.strip(), re.IGNORECASE):
        return f"sm_{asked[1].lower()}"
    words = re.sub(r"\b(RTX|GTX)(?=\d)", r"\1 ", re.sub(r"[_-]+", " ", gpu), flags=re.IGNORECASE)
    for text in (gpu, words):
        for name, capability in _BY_NAME:
            if re.search(name, text, re.IGNORECASE):
                return architecture_of(capability)
    return None


def gencode(architecture: str) -> tuple[str, ...]:
    """Explicit flags for one architecture: `-arch=sm_90a` alone would embed PTX as well."""
    number = architecture.removeprefix("sm_").removeprefix("compute_")
    if not re.fullmatch(r"\d+[af]?", number):
        return (f"-arch={architecture}",)
    return ("-gencode", f"arch=compute_{number},code=sm_{number}")


def without_targets(flags: Sequence[str]) -> tuple[str, ...]:
    """The flags but those that name architectures."""
    kept: list[str] = []
    values = iter(flags)
    for flag in values:
        option, joined, _ = flag.partition("=")
        if option not in _TARGETS:
            kept.append(flag)
        elif not joined:
            next(values, "")
    return tuple(kept)


def asked_for(flags: Sequence[str]) -> tuple[str, ...]:
    """The targets that flags name themselves, real ones (`sm_90`) where any is; () for none."""
    listed: list[str] = []
    values = iter(flags)
    for flag in values:
        option, joined, value = flag.partition("=")
        if option in _TARGETS:
            listed += _ASKED.findall(value if joined else next(values, ""))
    real = [a for a in dict.fromkeys(listed) if not a.startswith(("compute_", "lto_"))]
    return tuple(real or dict.fromkeys(listed))
