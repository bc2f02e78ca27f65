"""What the compiler made of a job's kernel. It is kept with the result, and shown as text, whole or its beginning."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from orbit_lsp.profile import dump_files, listing
from orbit_lsp.queue.job_store import Code, CodeLine
from orbit_lsp.runs import disassembly
from orbit_remote.common import messages as c

_MARGIN = "        "


def of(finished: c.Finished, architecture: str, corrected: Callable[[str], str]) -> tuple[Code, ...]:
    """Return the code of each instance, while the source files are there. `corrected` puts their present names into a
    text.
    """
    sources = disassembly.ListedSources()
    return tuple(
        Code(
            dump_files.instance(made.dump),
            made.dump.level,
            architecture,
            len(made.instructions) or len(made.text.splitlines()),
            _by_line(made.instructions, sources.of(made.instructions))
            or (CodeLine("", None, "", "", tuple(made.text.splitlines())),),
        )
        for made in disassembly.made(finished, corrected)
    )


def _by_line(
    instructions: Sequence[listing.ListedInstruction], sources: Mapping[str, Sequence[str]]
) -> tuple[CodeLine, ...]:
    groups = itertools.groupby(instructions, lambda each: (each.file, each.line, each.inner))
    lines: list[CodeLine] = []
    for (file, line, inner), group in groups:
        own = sources.get(file, ())
        source = own[line - 1].strip() if line and line <= len(own) else ""
        code = tuple(
            "  ".join(filter(None, (f"/*{each.offset:04x}*/", each.control, each.text))) for each in group
        )
        lines.append(CodeLine(file, line, inner.removeprefix(", in "), source, code))
    return tuple(lines)


def beginning(codes: Sequence[Code], most: int) -> tuple[Code, ...]:
    """Return the first `most` lines of the text of all instances."""
    kept: list[Code] = []
    for code in codes:
        most -= 1  # its heading
        lines: list[CodeLine] = []
        for line in code.lines:
            most -= 1 if line.line else 0
            if most <= 0:
                break
            lines.append(replace(line, code=line.code[:most]))
            most -= len(lines[-1].code)
        if not lines:
            break
        kept.append(replace(code, lines=tuple(lines)))
    return tuple(kept)


def text(codes: Sequence[Code]) -> list[str]:
    """Return `// SASS of saxpy(int), sm_90a: 24 instructions`, then each line of the source with its instructions."""
    lines: list[str] = []
    for code in codes:
        unit = "instructions" if code.level == "sass" else "lines"
        where = f", {code.architecture}" if code.architecture else ""
        lines.append(f"// {dump_files.TITLES[code.level]} of {code.kernel}{where}: {code.length} {unit}")
        for line in code.lines:
            if line.line:
                place = f"// {line.file}:{line.line}" + (f", in {line.inner}" if line.inner else "")
                lines.append(f"{place}    {line.source}".rstrip())
            lines += [_MARGIN + each if code.level == "sass" else each for each in line.code]
    return lines
