"""A draft for a Triton kernel from its signature, its body telling which parameters are addresses."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace

from orbit_lsp.drafts import Subject, names
from orbit_lsp.drafts.names import Sizes

_POINTER = re.compile(r"_?ptrs?\d*$|_?pointer\d*$|^p_|^ptr_", re.IGNORECASE)
_ACCESS = re.compile(r"\btl\s*\.\s*(load|store|atomic_\w+|make_block_ptr|make_tensor_descriptor)\s*\(\s*")
_ASSIGNED = re.compile(r"^[ \t]*(\w+)\s*(?::[^=\n]+)?(?:\+)?=(?!=)\s*([^\n]+)", re.MULTILINE)
_WORD = re.compile(r"[A-Za-z_]\w*")
_PROGRAM = re.compile(r"\bprogram_id\s*\(\s*(?:axis\s*=\s*)?(\d)")
_DESCRIPTOR = r"\b{name}\s*\.\s*(?:load|store|gather|scatter|block_shape)\b"
_TUNED = re.compile(r"['\"](\w+)['\"]\s*:")
_INDEX = re.compile(r"(?:^|_)(?:idx|index|indices|labels?|targets?|tokens?|ids)(?:_|$)", re.IGNORECASE)
_SMS = re.compile(r"^(?:NUM_?SMS?|NUM_PROGRAMS)$", re.IGNORECASE)
_NARROW = re.compile(r"\.to\s*\(\s*tl\s*\.\s*(float16|bfloat16)\s*\)")
_CONFIG = re.compile(r"\bConfig\s*\(\s*(?:kwargs\s*=\s*)?\{([^{}]*)\}")
_WIDTH = re.compile(r"^(?:HEAD_?DIM|BLOCK_DMODEL|D_?HEAD|HEAD_SIZE|WIDTH|D)$", re.IGNORECASE)
_REAL = re.compile(r"^(?:eps\w*|scale\w*|\w+_scale|alpha|beta|p|prob|dropout\w*|lr|\w+_lr|weight_decay|momentum|temperature)$", re.IGNORECASE)  # fmt: skip


def draft(subject: Subject, decorators: str) -> list[str] | None:
    """The statements of a spec. `decorators` is the text above `def`: what it tunes, the launch leaves out."""
    header = subject.header
    if any(one.refused for one in header.parameters):
        return None
    described = descriptors(subject)
    pointers = addresses(subject) - described
    tuned = tuned_by(subject, decorators) if header.tuned else set[str]()
    constants = [one for one in header.parameters if one.kind == "constexpr" and one.name not in tuned]
    found = sizes_of(subject, tuned)
    assigned = [f"{name} = {value}" for name, value in found.named.items()]
    for one in header.parameters:
        if one.name in described:
            assigned.append(f"{one.name} = {descriptor(one.name, subject, found)}")
        elif one.name in pointers:
            assigned.append(f"{one.name} = {tensor(one.name, subject, found, pointers)}")
        elif one.kind != "constexpr" and one.name not in found.named and not one.optional:
            value = (
                names.real(one.name, double=True) if _REAL.match(one.name) else names.integer(one.name, found)
            )
            assigned.append(f"{one.name} = {value}")
    places = [one.name for one in header.parameters if one.kind != "constexpr" and not one.optional]
    arguments = [name if by_place(name, subject) else f"{name}={name}" for name in places]
    blocks: dict[str, str] = {}
    for one in constants:
        if one.name in found.named:
            arguments.append(f"{one.name}={one.name}")
        elif not one.optional:
            blocks[one.name] = constant(one.name, subject, found)
            arguments.append(f"{one.name}={blocks[one.name]}")
    if not header.tuned:
        arguments.append("num_warps=4")
    grid = gridded(subject, found, {**dict.fromkeys(tuned, ""), **_defaults(subject), **blocks})
    return [*assigned, f"launch {subject.name}[{grid}]({', '.join(arguments)})"]


def tuned_by(subject: Subject, decorators: str) -> set[str]:
    """Constants that the decorators give: named in them, or in the configurations that stand elsewhere in the file."""
    found = set(_TUNED.findall(decorators))
    if "autotune" in decorators and not _CONFIG.search(decorators):
        found |= {name for one in _CONFIG.findall(subject.text) for name in _TUNED.findall(one)}
    return found


def sizes_of(subject: Subject, tuned: Collection[str] = ()) -> Sizes:
    """What its integers say, constexprs among them that are no blocks."""
    parameters = subject.header.parameters
    reached = addresses(subject) | descriptors(subject)
    integers = [
        one.name
        for one in parameters
        if one.kind != "constexpr" and one.name not in reached and not _REAL.match(one.name)
    ]
    constants = [
        one for one in parameters if one.kind == "constexpr" and one.name not in tuned and not one.optional
    ]
    sized = [one.name for one in constants if not is_block(one.name, subject) and names.extent(one.name)]
    row = _row(subject, [*integers, *sized])
    found = names.sizes([*integers, *sized], [one.name for one in parameters], row)
    width = next((one.name for one in constants if _WIDTH.search(one.name)), "")
    several = any(int(one) > 0 for one in _PROGRAM.findall(subject.body))
    if width and width not in found.named and not found.free:
        if len(found.shape) == 3:  # batch, heads, sequence
            named = {**found.named, width: "64"}
            return replace(found, named=named, shape=(*found.shape, width), attention=True)
        if len(found.shape) == 1 and several and "heads" not in integers:
            (length,) = found.shape
            named = {"heads": "8", length: "1024", width: "64"}
            return Sizes(named, ("heads", length, width), attention=True)
    return names.squared(found) if several else found


def _row(subject: Subject, integers: list[str]) -> str:
    """The size of a row, where a program takes one: its number is multiplied by that size or by a step."""
    factors = _factors_of_program(subject)
    if any(is_block(one, subject) and one not in integers for one in factors):
        return ""
    extents = [one for one in integers if names.extent(one)]
    steps = any("stride" in one.lower() for one in factors)
    return extents[0] if len(extents) == 1 and (extents[0] in factors or steps) else ""


def _takes_rows(subject: Subject) -> bool:
    """Whether a program's number is multiplied by steps alone, not by how much it takes."""
    factors = _factors_of_program(subject)
    return any("stride" in one.lower() for one in factors) and not any(
        is_block(one, subject) for one in factors
    )


def _factors_of_program(subject: Subject) -> set[str]:
    """Names that a program's number is multiplied by."""
    named = "|".join(re.findall(r"\b(\w+)\s*=\s*tl\s*\.\s*program_id\s*\([^()]*\)", subject.body))
    product = re.compile(rf"\b(?:{named})\s*\*\s*(\w+)|\b(\w+)\s*\*\s*(?:{named})\b") if named else None
    return {one[1] or one[2] for one in product.finditer(subject.body)} if product else set[str]()


def _defaults(subject: Subject) -> dict[str, str]:
    """Constexprs that a launch leaves out, with the numbers they have then."""
    pairs = re.findall(r"\b(\w+)\s*:\s*[\w.]*constexpr\s*=\s*(\d+)", subject.header.text)
    return {name: value for name, value in pairs if is_block(name, subject)}


def descriptor(name: str, subject: Subject, found: Sizes) -> str:
    """A descriptor on this side: of a product of matrices, the blocks that the constants name."""
    if not found.matrices:
        return "TensorDescriptor.from_tensor(randn(1024, 1024, dtype=float16), [64, 64])"
    m, n, k = found.matrices
    inputs = [one.name for one in subject.header.parameters if one.name in descriptors(subject) and not _stores(one.name, subject)]  # fmt: skip
    place = inputs.index(name) if name in inputs else 2
    read = re.search(rf"\b{re.escape(name)}\s*\.\s*load\s*\(\s*\[([^,\]]*)", subject.body)
    k_first = read is not None and re.search(r"k\b|k_|start", read[1], re.IGNORECASE) is not None
    other = m if place == 0 else n
    shape = (m, n) if place > 1 else (k, other) if k_first else (other, k)
    constants = [one.name for one in subject.header.parameters if one.kind == "constexpr"]
    blocks = [
        _block_for(one.lower()[-1], [each for each in constants if is_block(each, subject)]) for one in shape
    ]
    block = ", ".join(constant(one, subject, found) if one else "64" for one in blocks)
    return f"TensorDescriptor.from_tensor(randn({', '.join(shape)}, dtype=float16), [{block}])"


def _stores(name: str, subject: Subject) -> bool:
    return re.search(rf"\b{re.escape(name)}\s*\.\s*store\b", subject.body) is not None


def descriptors(subject: Subject) -> set[str]:
    """Parameters that are host-side tensor descriptors: they are asked to load and store themselves."""
    found = [one.name for one in subject.header.parameters if one.kind != "constexpr"]
    return {name for name in found if re.search(_DESCRIPTOR.format(name=re.escape(name)), subject.body)}


def number(name: str, found: Sizes) -> str:
    """A value for a number that is no size."""
    return names.real(name, double=True) if _REAL.match(name) else names.integer(name, found)


def by_place(name: str, subject: Subject) -> bool:
    """Whether everything before it is given by its place too."""
    for one in subject.header.parameters:
        if one.name == name:
            return True
        if one.kind == "constexpr" or one.optional:
            return False
    return False


def block_like(name: str) -> bool:
    return bool(
        re.search(
            r"block|tile|group|num_warps|stages|chunk|^b[a-z]$|split|unroll|even|vec", name, re.IGNORECASE
        )
    )


def is_block(name: str, subject: Subject) -> bool:
    """A power of 2 that a program handles at once: by its name, or because a range of that length is made."""
    return block_like(name) or bool(re.search(rf"\barange\(\s*0\s*,\s*{re.escape(name)}\s*\)", subject.body))


def addresses(subject: Subject) -> set[str]:
    """The parameters that are loaded from or stored to, followed back through the assignments of the body."""
    parameters = {one.name for one in subject.header.parameters if one.kind != "constexpr"}
    body = subject.body
    reached: set[str] = set()
    for access in _ACCESS.finditer(body):
        reached |= set(_factors(_first_argument(body[access.end() : access.end() + 400])))
    assignments = [(found[1], found[2]) for found in _ASSIGNED.finditer(body)]
    for _ in range(6):
        before = len(reached)
        for name, value in assignments:
            if name in reached:
                reached |= set(_factors(value))
        if len(reached) == before:
            break
    found = {name for name in parameters & reached if not names.extent(name) or _POINTER.search(name)}
    found -= {name for name in found if re.search(r"stride|offset|(?:^|_)(?:size|len)", name, re.IGNORECASE)}
    named = {name for name in parameters if _POINTER.search(name)}
    return found | named | (parameters & _first_words(body, assignments))


def _first_words(body: str, assignments: list[tuple[str, str]]) -> set[str]:
    """What addresses begin with, whatever its name: an offset is added to an address, not the other way round."""
    arguments = [body[access.end() : access.end() + 200] for access in _ACCESS.finditer(body)]
    reached = {found[0] for text in arguments if (found := _WORD.match(text))}
    for _ in range(6):
        more = {found[0] for name, value in assignments if name in reached and (found := _WORD.match(value))}
        if more <= reached:
            break
        reached |= more
    return reached


def _first_argument(text: str) -> str:
    depth = 0
    for at, character in enumerate(text):
        depth += (character in "([{") - (character in ")]}")
        if depth < 0 or (depth == 0 and character == ","):
            return text[:at]
    return text


def _factors(text: str) -> list[str]:
    """Names that are added, not multiplied or compared: what an address can begin with."""
    text = re.sub(r"#.*", "", text)
    found: list[str] = []
    for match in _WORD.finditer(text):
        before, after = text[: match.start()].rstrip()[-1:], text[match.end() :].lstrip()[:1]
        if before in ("*", "/", "%", "<", ".", ">") or after in ("*", "/", "%", "<", ">", "=", ".", "("):
            continue
        found.append(match[0])
    return found


# -- arguments ---------------------------------------------------------------------------------------


def tensor(name: str, subject: Subject, found: Sizes, pointers: set[str]) -> str:
    shape = found.shape
    if found.matrices:
        m, n, k = found.matrices
        inputs = [
            one.name
            for one in subject.header.parameters
            if one.name in pointers and not stored(one.name, subject)
        ]
        place = inputs.index(name) if name in inputs else -1
        shape = (m, k) if place == 0 else (k, n) if place == 1 else (m, n)
    size = ", ".join(shape)
    typed = (
        f", dtype={narrow[1]}"
        if "tl.dot(" in subject.body and (narrow := _NARROW.search(subject.body))
        else ""
    )
    if re.search(rf"\batomic_\w+\s*\(\s*{re.escape(name)}\b", subject.body):
        return f"zeros({size})"
    if stored(name, subject):
        return f"empty({size}{typed})" if not loaded(name, subject) else f"randn({size}{typed})"
    if re.search(r"indptr|cu_?seq|crow", name, re.IGNORECASE):
        return f"arange({shape[0]} + 1)"
    if _INDEX.search(name) or _indexes(name, subject):
        return f"randint(0, {shape[-1]}, ({size}{',' * (len(shape) == 1)}))"
    return f"randn({size}{typed})"


def _indexes(name: str, subject: Subject) -> bool:
    """Whether what is loaded from it becomes a part of another address."""
    body = subject.body
    found = {
        target
        for target, value in _ASSIGNED.findall(body)
        if re.match(rf"tl\s*\.\s*load\s*\(\s*{re.escape(name)}\b", value)
    }
    return any(
        found & set(_WORD.findall(_first_argument(body[access.end() : access.end() + 400])))
        for access in _ACCESS.finditer(body)
    )


def stored(name: str, subject: Subject) -> bool:
    return _reaches(name, subject, ("store", "atomic"))


def loaded(name: str, subject: Subject) -> bool:
    return _reaches(name, subject, ("load", "make_"))


def _reaches(name: str, subject: Subject, kinds: tuple[str, ...]) -> bool:
    """Whether an access of one of these kinds has an address that this name leads to."""
    body = subject.body
    derived = {name}
    assignments = [(found[1], found[2]) for found in _ASSIGNED.finditer(body)]
    for _ in range(6):
        before = len(derived)
        derived |= {
            target
            for target, value in assignments
            if not _ACCESS.match(value) and derived & set(_factors(value))
        }
        derived |= {
            target
            for target, value in assignments
            if re.search(rf"make_\w+\(\s*(?:base\s*=\s*)?{re.escape(name)}\b", value)
        }
        if len(derived) == before:
            break
    return any(
        access[1].startswith(kinds)
        and derived & set(_WORD.findall(_first_argument(body[access.end() : access.end() + 400])))
        for access in _ACCESS.finditer(body)
    )


def constant(name: str, subject: Subject, found: Sizes) -> str:
    """A value for a constexpr."""
    lowered = name.lower()
    if _SMS.search(name):
        return "132"
    if re.match(
        r"(?:is|has|use|even|do|with|causal|apply|store|add|no|not|enable|input|output)_|causal|^even",
        lowered,
    ):
        return "True"
    if not is_block(name, subject):
        return "'relu'" if lowered == "activation" and not _compared(name, subject) else f"'{_compared(name, subject)}'" if _compared(name, subject) else "1" if "stride" in lowered else "64" if re.search("dim|head|^d$", lowered) else "1"  # fmt: skip
    if re.search(r"group|split|unroll|vec|stages", lowered):
        return "8" if "group" in lowered else "1"
    if re.search(r"(?:_|^|b)k$", lowered):
        return "32"
    dimensions = len({int(one) for one in _PROGRAM.findall(subject.body)})
    blocks = [
        one.name
        for one in subject.header.parameters
        if one.kind == "constexpr" and is_block(one.name, subject)
    ]
    whole = [one for one in blocks if not re.search(r"group|split|stages", one, re.IGNORECASE)]
    if len(whole) > 1 or dimensions > 1:
        return "64" if len(whole) < 3 or not lowered.endswith("k") else "32"
    return f"triton.next_power_of_2({found.shape[-1]})" if len(found.shape) > 1 else "1024"


def _compared(name: str, subject: Subject) -> str:
    """The text that a constexpr is compared with."""
    found = re.search(rf"\b{re.escape(name)}\s*==\s*['\"](\w+)['\"]", subject.body)
    return found[1] if found else ""


# -- the grid ----------------------------------------------------------------------------------------


def gridded(subject: Subject, found: Sizes, blocks: dict[str, str]) -> str:
    """A program for every block of what the constants divide, a row where they take rows whole."""
    axes = max((int(one) for one in _PROGRAM.findall(subject.body)), default=0) + 1
    shape = list(found.shape)
    division = [
        one
        for one in blocks
        if not re.search(r"group|split|stages|vec|even|unroll", one, re.IGNORECASE) and is_block(one, subject)
    ]
    tuned = [one for one in division if not blocks[one]]
    meta = "META" if tuned else ""

    def over(extent: str, block: str) -> str:
        value = f"{meta}['{block}']" if block in tuned else blocks[block]
        return f"triton.cdiv({extent}, {value})"

    if persistent := next((blocks[one] for one in blocks if _SMS.search(one) and blocks[one]), ""):
        extents = [persistent, "1", "1"][:axes]
    elif found.matrices:
        m, n, _ = found.matrices
        first, second = _block_for("m", division), _block_for("n", division)
        parts = [over(m, first) if first else m, over(n, second) if second else n]
        extents = parts[:axes] if axes > 1 else [" * ".join(parts)]
    elif found.attention and axes > 1 and division:  # blocks of queries, and heads
        extents = [over(shape[-2], division[0]), " * ".join(shape[:-2]), "1"][:axes]
    elif descriptors(subject) and not division:
        extents = ["1024 // 64"] * axes
    elif len(shape) > 1:
        whole = [one for one in division if blocks[one].startswith("triton.next_power_of_2")]
        if whole or not division or (axes == 1 and _takes_rows(subject)):
            extents = [" * ".join(shape[:-1])] if axes == 1 else [shape[-2], *shape[:-2], "1"][:axes]
        else:
            last = over(shape[-1], division[-1])
            first = over(shape[-2], division[0]) if len(division) > 1 else shape[-2]
            extents = (
                [" * ".join([*shape[:-2], first, last])]
                if axes == 1
                else [first, last, *shape[:-2], "1"][:axes]
            )
    else:
        extents = [over(found.total, division[0]) if division else found.total, "1", "1"][:axes]
    extents += ["1"] * (axes - len(extents))
    inner = f"({', '.join(extents)}{',' if len(extents) == 1 else ''})"
    return f"lambda META: {inner}" if meta else inner


def _block_for(letter: str, blocks: list[str]) -> str:
    ends = re.compile(rf"(?:_|^|b){letter}$", re.IGNORECASE)
    return next((one for one in blocks if ends.search(one)), "")
