"""Finds the architecture for which a GPU's code is built, in nvcc's spelling."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import lru_cache

# NVIDIA's list of compute capabilities: developer.nvidia.com/cuda-gpus. The first match counts.
_BY_NAME = (
    (r"\bG?B300(?!\d)", "10.3"),  # (?!\d): a name that is longer is another one's, as A1000
    (r"\bG?B200(?!\d)|\bB100(?!\d)", "10.0"),
    (r"\bG?H[12]00(?!\d)|\bH800(?!\d)|\bH20\b", "9.0"),
    (r"\bGB10\b", "12.1"),
    (r"\bThor\b", "11.0"),
    (r"\bOrin\b", "8.7"),
    (r"\bRTX[ -]PRO[ -]\d|\bRTX 50[5-9]0", "12.0"),
    (r"\bL2\b|\bL4\b|\bL20\b|\bL40[SG]?\b|\bRTX 40[5-9]0|\bRTX \d+ (?:\w+ )?Ada", "8.9"),
    (r"\bA100(?!\d)|\bA800(?!\d)|\bA30X?\b|\bCMP 170HX|\bPG50[69]\b", "8.0"),
    (r"\bA10[GM]?\b|\bA16\b|\bA2\b|\bA40\b|\bRTX A\d+|\bRTX 30[5-9]0|\bMX570|\bCMP 90HX", "8.6"),
    (r"\bT4\b|\bT4G\b|\bRTX 20[5-8]0|\bQuadro RTX|\bTITAN RTX|\bGTX 16[356]0", "7.5"),
    (r"\bT(?:[456]\d0|1[02]00|2000)\b|\bMX[45]50|\bCMP [345]0HX|\bQuadro T\d", "7.5"),
    (r"\bXavier\b", "7.2"),
    (r"\bV100(?!\d)|\bTITAN V\b|\bGV100\b", "7.0"),
    (r"\bP100\b|\bGP100\b", "6.0"),
    (
        r"\bP40?\b|\bP6\b|\bQuadro P\d|\bGTX? 10[1-8]0|\bTITAN Xp\b|(?<!GTX )\bTITAN X\b|\bMX[1-3][1-5]0|\bP10[46] 100\b",
        "6.1",
    ),
    (r"\bM4\b|\bM40\b|\bM60?\b|\bQuadro M\d|\bGTX 9[5-8]0|\bGTX TITAN X\b", "5.2"),
)
_TARGETS = ("-arch", "--gpu-architecture", "-gencode", "--generate-code", "-code", "--gpu-code")
_NUMBERED = re.compile(r"(sm|compute|lto)_(\d+[af]?)")
_ASKED = re.compile(r"(?:sm|compute|lto)_\d+[af]?|native|all-major|all")


def architecture_of(capability: str) -> str:
    """Return `sm_90a` for the compute capability `9.0`.

    From 9.0 on it is the architecture-specific variant: without it wgmma, tcgen05 and TMA's newer forms do not
    assemble. Raises ValueError for a text that is no capability.
    """
    match = re.fullmatch(r"\s*(\d+)\.(\d)\s*", capability)
    if not match:
        raise ValueError(f"{capability!r} is not a compute capability such as 9.0")
    return f"sm_{match[1]}{match[2]}{'a' if int(match[1]) >= 9 else ''}"


def named(text: str) -> str | None:
    """Return `sm_90` for `sm_90`, `compute_90` and `90`, and `sm_90a` for `9.0`. Return None for a name that is no
    architecture, such as a GPU's.
    """
    if asked := re.fullmatch(r"(?:(?:sm|compute)_?)?(\d{2,3}[af]?)", text.strip(), re.IGNORECASE):
        return f"sm_{asked[1].lower()}"
    return architecture_of(text) if re.fullmatch(r"\s*\d+\.\d\s*", text) else None


@lru_cache(maxsize=64)
def architecture_for(gpu: str) -> str | None:
    """Return `sm_90a` for `H100` or `NVIDIA H100 80GB HBM3`, `sm_89` for `rtx4090`, an architecture for itself.
    Return None for a GPU whose name is not known here.
    """
    if architecture := named(gpu):
        return architecture
    words = re.sub(r"\b(RTX|GTX)(?=\d)", r"\1 ", re.sub(r"[_-]+", " ", gpu), flags=re.IGNORECASE)
    for text in (gpu, words):
        for name, capability in _BY_NAME:
            if re.search(name, text, re.IGNORECASE):
                return architecture_of(capability)
    return None


def gencode(architecture: str) -> tuple[str, ...]:
    """Return explicit flags for one architecture: `-arch=sm_90a` alone would embed PTX as well."""
    number = architecture.removeprefix("sm_").removeprefix("compute_")
    if not re.fullmatch(r"\d+[af]?", number):
        return (f"-arch={architecture}",)
    return ("-gencode", f"arch=compute_{number},code=sm_{number}")


def without_targets(flags: Sequence[str]) -> tuple[str, ...]:
    """Return the flags without those that name architectures."""
    kept: list[str] = []
    values = iter(flags)
    for flag in values:
        option, joined, _ = flag.partition("=")
        if option not in _TARGETS:
            kept.append(flag)
        elif not joined:
            next(values, "")
    return tuple(kept)


def known_targets(flags: Sequence[str], numbers: Collection[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the flags without the architectures that a compiler lacks, and those architectures (`sm_70`). `numbers`
    are those for which the compiler has code (`90`). A flag that becomes empty is removed.
    """
    kept: list[str] = []
    absent: dict[str, None] = {}
    values = iter(flags)
    for flag in values:
        option, joined, value = flag.partition("=")
        if option not in _TARGETS:
            kept.append(flag)
            continue
        value = value if joined else next(values, "")
        unknown = [match[0] for match in _NUMBERED.finditer(value) if match[2].rstrip("af") not in numbers]
        absent |= dict.fromkeys(f"sm_{each.partition('_')[2]}" for each in unknown)
        made = _without(value, unknown) if unknown else value
        if made:
            kept += [f"{option}={made}"] if joined else [option, made]
    return tuple(kept), tuple(absent)


def _without(value: str, unknown: Sequence[str]) -> str:
    """Return `arch=compute_80,code=[sm_80,sm_70]` without `sm_70`. Return "" if no architecture is left."""
    virtual, _, code = value.rpartition("code=")
    listed = [each for each in code.strip("[]").split(",") if each not in unknown]
    if not listed or any(re.search(rf"{each}\b", virtual) for each in unknown):
        return ""
    text = ",".join(listed)
    return f"{virtual}code=[{text}]" if "code=" in value else text


def for_one(flags: Sequence[str], architecture: str) -> tuple[str, ...]:
    """Return the flags with at most one architecture, whose code a GPU of `architecture` loads. That is the named one
    with the same number, or an older one with the same major number, else none.
    """
    if not asked_for(flags):
        return tuple(flags)
    named = max(_loaded(flags, architecture), key=lambda each: (_number(each), each), default="")
    return (*without_targets(flags), *(gencode(named) if named else ()))


def for_gpu(flags: Sequence[str], architecture: str) -> tuple[str, ...]:
    """Return the flags of a program for a GPU of `architecture`. If the GPU loads the code of none of their
    architectures, they are removed.
    """
    targets = asked_for(flags)
    for_any = not targets or {"native", "all", "all-major"} & set(targets)
    return tuple(flags) if for_any or _loaded(flags, architecture) else without_targets(flags)


def _loaded(flags: Sequence[str], architecture: str) -> list[str]:
    """Return the targets that flags name and whose code a GPU of `architecture` loads."""
    own = _number(architecture)
    return [each for each in asked_for(flags) if _number(each)[:-1] == own[:-1] and _number(each) <= own]


def _number(architecture: str) -> str:
    return re.sub(r"\D", "", architecture)


def asked_for(flags: Sequence[str]) -> tuple[str, ...]:
    """Return the targets that flags name themselves: real ones (`sm_90`) if any is; () for none."""
    listed: list[str] = []
    values = iter(flags)
    for flag in values:
        option, joined, value = flag.partition("=")
        if option in _TARGETS:
            listed += _ASKED.findall(value if joined else next(values, ""))
    real = [a for a in dict.fromkeys(listed) if not a.startswith(("compute_", "lto_"))]
    return tuple(real or dict.fromkeys(listed))
