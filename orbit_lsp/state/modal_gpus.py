"""The GPUs that Modal rents, with every name that people, Modal and NVML have for them. Everything that takes a GPU's
name asks here.

A GPU's architecture, rented or not, is in orbit_remote's `architectures`; prices are in `rates`.
"""

from __future__ import annotations

import re

from orbit_remote.common import architectures
from orbit_remote.common.lazy_dataclass import dataclass

MOST = 8
"""GPUs of one run."""


@dataclass(frozen=True, slots=True)
class ModalGpu:
    """A GPU of Modal. `name` is ours, `asked` is how Modal is asked for exactly this GPU, and `rate` is the end of
    its price's name. `nvml` matches NVML's names for it. `most` is how many of them one container gets.
    """

    name: str
    rate: str
    asked: str = ""
    nvml: str = ""
    aliases: tuple[str, ...] = ()
    most: int = MOST


# modal.com/docs/guide/gpu. What Modal's own words would leave open is closed: a plain H100 may be answered by an H200, a
# plain A100 by one with 80 GB. B200+ is such a word too, of two architectures, and is not taken.
_GPUS = (
    ModalGpu("T4", "t4"),
    ModalGpu("L4", "l4"),
    ModalGpu("A10", "a10g", nvml=r"\bA10G?\b", aliases=("A10G",), most=4),
    ModalGpu("A100-40GB", "a100_40gb", nvml=r"\bA100\b.*\b40 ?GB", aliases=("A100",)),
    ModalGpu("A100-80GB", "a100_80gb", nvml=r"\bA100\b.*\b80 ?GB"),
    ModalGpu("L40S", "l40s"),
    ModalGpu("RTX PRO 6000", "rtx6000", asked="RTX-PRO-6000"),
    ModalGpu("H100", "h100", asked="H100!"),
    ModalGpu("H200", "h200"),
    ModalGpu("B200", "b200"),
)
_BY_NAME = {gpu.name: gpu for gpu in _GPUS}
NAMES = tuple(_BY_NAME)


def rented(name: str) -> str:
    """Return our name of a rented GPU: `A100-80GB:2` for `a100 80gb:2`, `RTX PRO 6000` for `rtx-pro-6000`, `A10` for
    `A10G`. Return "" if Modal does not rent it.
    """
    kind, count = _split(name)
    gpu = _known(kind)
    if gpu is None or not 1 <= count <= gpu.most:
        return ""
    return gpu.name if count == 1 else f"{gpu.name}:{count}"


def refusal(name: str) -> str:
    """Return why `name` is not rented, in words that follow a colon."""
    gpu = _known(_split(name)[0])
    if gpu:
        return f"{name!r:.60} is not rented: a container has 1 to {gpu.most} {gpu.name}, as in {gpu.name}:2"
    only = "; `orbit-lsp compile --gpu` compiles for it" if architectures.architecture_for(name) else ""
    return f"{name!r:.60} is not one of the GPUs on Modal: {', '.join(NAMES)}, with `:2` to `:8` for several{only}"


def spelled(name: str) -> str:
    """Return our name of a rented GPU. Raises ValueError."""
    if gpu := rented(name):
        return gpu
    raise ValueError(refusal(name))


def compiled_for(name: str) -> str:
    """Return the name of a rented GPU, of another known GPU, or of a known architecture. Raises ValueError."""
    gpu = rented(name)
    if gpu or (1 <= _split(name)[1] <= MOST and architectures.architecture_for(name)):
        return gpu or name.strip()
    raise ValueError(refusal(name))


def count(name: str) -> int:
    """Return the number of GPUs: 2 for `H100:2`, and 1 for a name without a number."""
    return max(1, _split(name)[1])


def asked(gpu: str) -> str:
    """Return Modal's spelling of a rented GPU: `H100!:2` for `H100:2`. Raises ValueError."""
    kind, colon, number = spelled(gpu).partition(":")
    return (_BY_NAME[kind].asked or kind) + colon + number


def answers(gpu: str, nvml: str) -> bool:
    """Say whether the GPU that NVML calls `nvml` is the one that is rented as `gpu`."""
    known = _BY_NAME[spelled(gpu).partition(":")[0]]
    return re.search(known.nvml or rf"\b{re.escape(known.name)}\b", nvml) is not None


def means(name: str, nvml: str) -> bool:
    """Say whether `name` may mean the GPU that NVML calls `nvml`: `A100`, `rtx-4090`."""
    kind = _split(name)[0]
    words, wanted = _words(nvml), _words(kind)
    if architectures.architecture_for(kind) and f" {wanted} " in f" {words} ":
        return True
    return _known(kind) is not None and answers(kind, nvml)


def rate_name(gpu: str) -> str:
    """Return the end of the name of a GPU's price. For a GPU that is not rented, no price's name ends so."""
    known = _BY_NAME.get(gpu.partition(":")[0])
    return known.rate if known else ""


def _split(name: str) -> tuple[str, int]:
    """Return the name and the number of GPUs: `H100` and 2 for `H100!:2`. The number is 1 without a colon, and 0 if
    no number follows the colon.
    """
    kind, colon, number = name.strip().partition(":")
    count = int(number) if re.fullmatch(r" ?[0-9]", number) else 0
    return kind.strip().removesuffix("!"), count if colon else 1


def _known(kind: str) -> ModalGpu | None:
    words = _words(kind).removeprefix("nvidia ")
    return next((gpu for gpu in _GPUS if words in map(_words, (gpu.name, *gpu.aliases))), None)


def _words(name: str) -> str:
    """Return a name in lower case, with spaces for hyphens and underscores: `rtx pro 6000`. `RTX4090` becomes `rtx
    4090`.
    """
    plain = " ".join(re.split(r"[\s_-]+", name.strip().lower()))
    return re.sub(r"\b(rtx|gtx)(?=\d)", r"\1 ", plain)
