"""Makes the `symbol` statements that give the `__constant__` and `__device__` variables of a captured CUDA kernel's
file their values.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from orbit_remote.child.capture import values
from orbit_remote.child.capture.launch_watch import Form, NotCapturedError
from orbit_remote.child.capture.layouts import layout
from orbit_remote.child.spec import as_captured
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.recording import taken_launch
from orbit_remote.recording.taken_launch import NotTakenError, TakenLaunch
from orbit_remote.spec.cpp_expressions import canonical
from orbit_remote.spec.dtypes import DTYPES, DType, cpp
from orbit_remote.spec.stored_tensors import StoredTensor

_QUALIFIERS: Final = re.compile(
    r"\b(?:static|const|constexpr|volatile|extern|__align__\(\d+\)|alignas\(\d+\))\s*"
)


@dataclass(frozen=True, slots=True)
class SymbolStatements:
    statements: tuple[str, ...] = ()
    stored: tuple[tuple[str, StoredTensor], ...] = ()


def of_launch(
    torch: Any, text: str, launch: TakenLaunch, compiled: Iterable[str], file: str, kernel: str
) -> SymbolStatements:
    """Return the statements of those variables that the compiled file has; `compiled` are its mangled names. Raises
    NotCapturedError.
    """
    declared = taken_launch.declared(text)
    there = set(compiled)
    statements: list[str] = []
    stored: list[tuple[str, StoredTensor]] = []
    for mangled, at in launch.variables.items():
        name = next((each for each in declared if mangled in taken_launch.mangled(each)), "")
        if mangled not in there or not name:
            continue
        dtype = _element(declared[name])
        try:
            content = bytearray(launch.memory(at))
        except NotTakenError as why:
            raise NotCapturedError(str(why)) from None
        if len(content) % dtype.size:
            dtype = DTYPES["uint8"]
        tensor = torch.frombuffer(content, dtype=torch.uint8).view(getattr(torch, dtype.name))
        form = layout(name, Form(dtype.name, tuple(tensor.shape), (1,), 0))
        made = values.pattern(torch, tensor, dtype.name, form)
        if made is None:
            key = f"{kernel}.{name}"
            stored.append((key, as_captured.stored(torch, tensor)))
            made = values.kept(file, key, dtype.name, form)
        value = made.text(str).replace("[", "{").replace("]", "}")
        statements.append(f"symbol {name} = {value}")
    return SymbolStatements(tuple(statements), tuple(stored))


def _element(declared: str) -> DType:
    """Return the element type of a declaration's type. It is bytes if launch specs do not have the type."""
    words = _QUALIFIERS.sub("", declared).split()
    known = None if "*" in declared else cpp(canonical(words) or " ".join(words))
    return known[0] if known else DTYPES["uint8"]
