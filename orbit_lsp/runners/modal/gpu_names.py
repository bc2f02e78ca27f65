"""GPUs as settings, Modal and NVML name them."""

from __future__ import annotations

import re

# what Modal's own words would leave open is closed: a plain H100 may be answered by an H200, a plain
# A100 by one with 80 GB (modal.com/docs/guide/gpu)
_ASKED = {"H100": "H100!", "RTX PRO 6000": "RTX-PRO-6000"}
_NAMES = {
    "A10": r"\bA10G?\b",
    "A100-40GB": r"\bA100\b.*\b40 ?GB",
    "A100-80GB": r"\bA100\b.*\b80 ?GB",
    "RTX PRO 6000": r"\bRTX PRO 6000\b",
}


def asked(gpu: str) -> str:
    """Modal's spelling of a setting: `H100:2` -> `H100!:2`."""
    name, colon, count = gpu.partition(":")
    return _ASKED.get(name, name) + colon + count


def answers(gpu: str, name: str) -> bool:
    """Whether the GPU that NVML calls `name` is the one that the setting asks for."""
    kind = gpu.partition(":")[0]
    return re.search(_NAMES.get(kind, rf"\b{re.escape(kind)}\b"), name) is not None
