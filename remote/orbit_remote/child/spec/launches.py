"""The common part of CUDA and Triton launches of a spec."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any, Protocol

from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.measurements import Tried
from orbit_remote.common.messages import Resources
from orbit_remote.counters.profiles import LaunchedCode
from orbit_remote.spec.syntax_tree import SpecSpan
from orbit_remote.spec.values import Tensor

Memory = Callable[[Tensor], Any]
"""From a tensor of the spec to torch's tensor in the memory that kernels get."""


@dataclass(frozen=True, slots=True)
class LaunchFacts:
    """What is known of a kernel once it has been launched. `block` is in threads."""

    symbol: str
    name: str
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    cluster: tuple[int, int, int] | None = None
    dynamic_shared: int | None = None
    resources: Resources | None = None
    constants: dict[str, str] = field(default_factory=dict[str, str])
    tuning: tuple[Tried, ...] = ()


class Ready(Protocol):
    """A launch whose every argument is known."""

    def launch(self) -> None: ...

    def facts(self) -> LaunchFacts:
        """Return the facts. Ask for them after a launch."""
        ...

    def code(self) -> LaunchedCode:
        """Return what the launch runs. Ask for it after a launch."""
        ...


@dataclass(frozen=True, slots=True)
class BoundLaunch:
    """One launch of a spec with its values: the tensors it is given, and whether it may write them."""

    span: SpecSpan
    tensors: tuple[tuple[Tensor, bool], ...]
    ready: Callable[[Memory], Ready]

    @property
    def outputs(self) -> list[str]:
        """Return the tensors that it may write, by the name they are assigned to."""
        storages = [tensor.storage for tensor, writable in self.tensors if writable]
        return list(dict.fromkeys(name for name in storages if name))
