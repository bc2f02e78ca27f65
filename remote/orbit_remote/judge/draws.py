"""Draws arguments by a reference's `get_inputs`, new ones in each call, in the process of the reference.

Authors seed generators in `get_inputs`, so that their own runs repeat. Here each such seed is mixed with the judge's:
draws differ, and what was seeded alike within a draw is still alike. A draw is made on the GPU under the author's own
calls, if they work there. One on the CPU that takes long is made twice; later draws take each element from one of the
two at random. So ranges, masks and types stay.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import random
import time
from collections.abc import Callable, Generator
from typing import Any, Final, cast

from orbit_remote.child.harness import tensor_data
from orbit_remote.child.harness.harness_case import ContractError, described

SLOW_S: Final = 1.0
"""A draw on the CPU that takes longer is not made for each call."""
_FEW: Final = 1024
"""Elements of a tensor of integers, which may be offsets, that are not mixed with others."""
_BIT_GENERATORS: Final = ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")


class Seeds:
    """Replaces the functions that seed torch, numpy and random. Within a draw they mix their argument with the draw's
    own seed.
    """

    def __init__(self, torch: Any) -> None:
        self.drawing: int | None = None
        """The seed of the draw under way; None outside one, where every function is as ever."""
        self.device = "cpu"
        self._torch = torch
        self._numpy: Any = None
        with contextlib.suppress(ImportError):
            self._numpy = importlib.import_module("numpy")
        self._plain = {"random": random.seed}
        self._replace_torch()
        self._replace_random()
        if self._numpy:
            self._plain["numpy"] = self._numpy.random.seed
            self._replace_numpy()

    @contextlib.contextmanager
    def of(self, seed: int, device: str) -> Generator[None]:
        """Make a draw from `seed`, whose generators are on `device`."""
        seed_torch(self._torch, seed)
        self._plain["random"](seed)
        if self._numpy:
            self._plain["numpy"](seed % (1 << 32))
        self.drawing, self.device = seed, device
        try:
            yield
        finally:
            self.drawing = None

    def mixed(self, own: Any) -> Any:
        """Return the author's seed mixed with the draw's, below 2^32. Return the author's alone outside a draw, and
        if there is none.
        """
        if self.drawing is None or own is None:
            return own
        return int.from_bytes(hashlib.blake2b(f"{self.drawing} {own!r}".encode(), digest_size=4).digest())

    def _seeding(self, module: Any, name: str) -> None:
        plain = getattr(module, name)

        def seeded(seed: Any = None, *more: Any, **named: Any) -> Any:
            given = [] if seed is None else [self.mixed(seed)]
            return plain(*given, *more, **named)

        setattr(module, name, seeded)

    def _replace_torch(self) -> None:
        torch, seeds = self._torch, self
        for module in (torch, torch.random):
            self._seeding(module, "manual_seed")
        for name in ("manual_seed", "manual_seed_all"):
            self._seeding(torch.cuda, name)
        kind = torch.Generator

        class Generator(kind):
            def __new__(cls, device: Any = None) -> Any:
                if seeds.drawing is not None:
                    device = seeds.device
                made: Any = kind.__new__(cls, device=device or "cpu")
                if seeds.drawing is not None:
                    made.manual_seed("new")
                return made

            def manual_seed(self, seed: Any) -> Any:
                return kind.manual_seed(self, seeds.mixed(seed))

        torch.Generator = Generator

    def _replace_random(self) -> None:
        seeds = self
        self._seeding(random, "seed")

        class Random(random.Random):
            def seed(self, a: Any = None, version: int = 2) -> None:
                super().seed(seeds.mixed(a), version)

        random.Random = Random  # pyright: ignore[reportAttributeAccessIssue]

    def _replace_numpy(self) -> None:
        numpy, seeds = self._numpy, self
        self._seeding(numpy.random, "seed")
        self._seeding(numpy.random, "default_rng")
        for name in (*_BIT_GENERATORS, "RandomState"):
            if (kind := getattr(numpy.random, name, None)) is not None:
                setattr(numpy.random, name, _seeded(kind, seeds))


def seed_torch(torch: Any, seed: int) -> None:
    """Seed the generators of the host and of this process's GPU. `torch.manual_seed` asks for every kind of device first."""
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():
        torch.cuda.default_generators[torch.cuda.current_device()].manual_seed(seed)


def _seeded(kind: Any, seeds: Seeds) -> Any:
    class Seeded(kind):
        def __init__(self, seed: Any = None) -> None:
            kind.__init__(self, seeds.mixed(seed))

    return Seeded


class Draws:
    """The draws of one `get_inputs`, on `device`."""

    def __init__(self, torch: Any, seeds: Seeds, get: Callable[[], Any], device: str) -> None:
        self._torch = torch
        self._seeds = seeds
        self._get = get
        self._device = device
        self._on_gpu = device != "cpu"
        self._bases: list[list[Any]] = []
        self.how = ""
        """How draws are made that are not the author's own calls in each call; empty where they are."""

    def sizes(self) -> list[int]:
        """Return the bytes of each tensor of a draw, without drawing one. Return none if the author's calls need
        values.
        """
        try:
            with self._seeds.of(0, "cpu"), _placed(self._torch, "meta"):
                drawn = self._get()
            return [
                leaf.numel() * leaf.element_size() for _, leaf in tensor_data.leaves(self._torch, drawn, "")
            ]
        except Exception:  # noqa: BLE001 - whatever the author's code raises without values
            return []

    def draw(self, seed: int) -> list[Any]:
        """Raises ContractError, and what the author's code raises."""
        if len(self._bases) == 2:
            return self._mixed(seed)
        if self._on_gpu:
            try:
                with self._seeds.of(seed, self._device), _placed(self._torch, self._device):
                    return self._listed(self._get())
            except ContractError:
                raise
            except Exception:  # noqa: BLE001 - it may count on the host's memory; if it is wrong, it is wrong again below
                self._on_gpu = False
        began = time.perf_counter()
        with self._seeds.of(seed, "cpu"):
            drawn = self._listed(self._get())
        if time.perf_counter() - began > SLOW_S:
            self._keep(drawn)
        return drawn

    def _keep(self, drawn: list[Any]) -> None:
        """Keep a draw for later ones, if two draws have the same form, and differ."""
        if self._bases and not tensor_data.fits(self._torch, self._bases[0], drawn):
            self._bases.clear()
        self._bases.append(tensor_data.cloned(self._torch, drawn))
        if len(self._bases) == 2:
            self.how = "draws take long on the CPU: each takes its elements from one of two draws at random"

    def _mixed(self, seed: int) -> list[Any]:
        torch = self._torch
        first, second = ([leaf for _, leaf in tensor_data.leaves(torch, base, "")] for base in self._bases)
        generator = torch.Generator(device=first[0].device if first else "cpu").manual_seed(seed)
        made = iter([mix(torch, one, other, generator) for one, other in zip(first, second, strict=True)])
        return cast("list[Any]", tensor_data.mapped(torch, self._bases[0], lambda _: next(made)))

    def _listed(self, drawn: Any) -> list[Any]:
        if not isinstance(drawn, list | tuple):
            raise ContractError(
                f"get_inputs returns {described(drawn)}; KernelBench's returns a list of arguments"
            )
        return cast("list[Any]", tensor_data.moved(self._torch, list(cast("list[Any]", drawn)), self._device))


def mix(torch: Any, one: Any, other: Any, generator: Any) -> Any:
    """Return each element from one of two tensors at random. Integers that may be offsets, sizes or a permutation
    come from only one of them.
    """

    def coin(shape: Any) -> Any:
        return torch.randint(0, 2, shape, generator=generator, device=one.device).bool()

    if not one.is_floating_point() and not one.is_complex() and not _scattered(torch, one):
        return (one if bool(coin(())) else other).clone()
    return torch.where(coin(one.shape), one, other)


def _scattered(torch: Any, tensor: Any) -> bool:
    """Whether integers have no order, and repeat."""
    flat = tensor.reshape(-1)
    if flat.numel() <= _FEW or tensor.dtype == torch.bool:
        return tensor.dtype == torch.bool
    ordered = bool((flat[1:] >= flat[:-1]).all()) or bool((flat[1:] <= flat[:-1]).all())
    return not ordered and torch.unique(flat).numel() < flat.numel()


def _placed(torch: Any, device: str) -> Any:
    """Return a context in which tensors are made on `device`, even if the author names another one."""
    mode: Any = importlib.import_module("torch.overrides").TorchFunctionMode
    makers: Any = getattr(importlib.import_module("torch.utils._device"), "_device_constructors")()  # noqa: B009 - a private name

    class MadeOnDevice(mode):
        def __torch_function__(self, function: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
            named = dict(kwargs or {})
            if function in makers:
                named["device"] = torch.device(device)
                named.pop("pin_memory", None)
                if device == "meta":
                    named.pop("generator", None)
            return function(*args, **named)

    return MadeOnDevice()
