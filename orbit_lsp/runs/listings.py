"""What the compiler made of the kernels of a file, written for an editor to show, with what changed since the last
time.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from orbit_lsp.profile import bottleneck, dump_files, listing, report_folder, report_store
from orbit_lsp.runs import result_filing
from orbit_lsp.runs.scheduler import Run
from orbit_lsp.state import line_map, units
from orbit_lsp.state.documents import split_lines
from orbit_lsp.state.kernel_ids import KernelId, identify
from orbit_lsp.state.results import Listing
from orbit_lsp.state.session import Session, path_of
from orbit_remote.common import messages as c
from orbit_remote.common.requests import Level

_READ_ONLY = 0o444


def file(session: Session, run: Run, folder: Path) -> set[tuple[KernelId, Level]]:
    """Write the listings that somebody looks at, and return which they are. Raises OSError."""
    finished = run.finished
    assert finished
    find = result_filing.kernel_of(session, run.frozen)
    places = {
        resource.symbol: resource.place
        for resource in finished.resources or (run.built.resources if run.built else ())
    }
    made: dict[tuple[KernelId, Level], list[c.Dump]] = defaultdict(list)
    for dump in finished.dumps:
        target = find(places.get(dump.symbol), dump.name)
        if target and (target, dump.level) in session.results.listings:
            made[target, dump.level].append(dump)
    lines = tuple(split_lines(run.frozen.text))
    for key, dumps in made.items():
        before = session.results.listings.get(key)
        texts = {
            (dump.symbol, dump.instance): report_store.unpack(dump.text).decode("utf-8", "replace")
            for dump in dumps
        }
        measured = _measured(session, run, key[0], lines)
        text = _text(key[0], dumps, texts, before.texts if before else {}, lines, measured)
        path = folder / _name(*key)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        report_folder.write(path, text.encode("utf-8", "replace")).chmod(_READ_ONLY)
        session.results.listings[key] = Listing(texts, lines, path)
    return set(made)


def _name(target: KernelId, level: Level) -> str:
    """Return a file name that is unique to the kernel and its file, and the same at each save: an editor reads the
    file again.
    """
    stem = (
        re.sub(r"[^\w.-]+", "-", f"{Path(path_of(target.uri)).stem}-{target.key}")[:80].strip("-.")
        or "kernel"
    )
    return f"{stem}-{c.content_hash(target.uri.encode(errors='replace'))[:8]}.{level}"


def shown_name(uri: str) -> str:
    """Return the name of the file that a listing belongs to. In half of a window, a whole path would leave no room
    for the source.
    """
    return Path(path_of(uri)).name


def _text(
    target: KernelId,
    dumps: list[c.Dump],
    texts: Mapping[tuple[str, int], str],
    before: Mapping[tuple[str, int], str],
    lines: tuple[str, ...],
    measured: Mapping[tuple[str, int], str],
) -> str:
    parts: list[str] = []
    path = path_of(target.uri)
    for dump in dumps:
        key = dump.symbol, dump.instance
        head = f"// {dump_files.TITLES[dump.level]} of {dump_files.instance(dump)}"
        now = listing.read(texts[key]) if dump.level == "sass" else ()
        if not now:
            parts.append(f"{head}\n{texts[key]}")
            continue
        old = listing.read(before[key]) if key in before else None
        if old is None:
            changes = [listing.ListingChange(" ", instruction) for instruction in now]
        else:
            changes = listing.compare(old, now)
            head += f"\n// {len(old)} -> {len(now)} instructions since the last time; + is new, - is gone"
        names = {path: shown_name(target.uri)}
        shown = listing.text(changes, {path: lines}, marked=old is not None, measured=measured, names=names)
        parts.append(f"{head}\n{shown}\n")
    return "\n".join(parts)


def _measured(
    session: Session, run: Run, target: KernelId, lines: Sequence[str]
) -> dict[tuple[str, int], str]:
    """Return notes such as `◂ 74% · long scoreboard` for the lines that a profile has sampled, by file and line of
    the text that was compiled.
    """
    profiled, path = session.results.profiles.get(target), path_of(target.uri)
    profile = profiled.main if profiled else None
    if profiled is None or profile is None:
        return {}
    digests = {each: digest for each, _, digest in identify(run.frozen.uri, run.frozen.scan)}
    mark = () if digests.get(target) == profiled.digest else ("edited since",)
    sampled = [line for line in profile.lines if line.file == path and line.samples]
    now = line_map.places(profiled.texts.get(path, ()), lines, [line.line - 1 for line in sampled])
    measured: dict[tuple[str, int], str] = {}
    for line in sampled:
        share, place = bottleneck.share(line, profile), now.get(line.line - 1)
        if share is not None and place is not None:
            stall = bottleneck.main_stall(line.stalls)
            parts = (units.percent(share), *(stall[:1] if stall else ()), *mark)
            measured[path, place + 1] = "◂ " + " · ".join(parts)
    return measured
