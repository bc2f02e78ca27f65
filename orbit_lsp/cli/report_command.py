"""`orbit-lsp report`: the last profile of a kernel as a page."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from dataclasses import replace
from pathlib import Path

from orbit_lsp.cli.terminal_text import refused
from orbit_lsp.profile import bottleneck, report_store
from orbit_lsp.profile.report_store import Kept
from orbit_lsp.report import opening, page, profile_report
from orbit_lsp.state.documents import split_lines
from orbit_lsp.state.results import Profiled
from orbit_lsp.state.user_folders import cache_folder
from orbit_lsp.views.profile import profile_hover
from orbit_remote.common import codec
from orbit_remote.common import messages as c


def main(options: argparse.Namespace) -> int:
    try:
        path = str(Path(options.file).resolve())
    except RuntimeError:  # Python 3.12 and older say this of symbolic links
        return refused(
            f"{options.file} cannot be read: it is a symbolic link to itself", as_json=options.json
        )
    found = [
        (one.kernel, read, one)
        for one in report_store.newest(cache_folder() / "profiles", path)
        if options.kernel is None or options.kernel in (one.kernel, one.kernel.rpartition("::")[2])
        if (read := profiled(one)) and read.profiles
    ]
    if not found:
        if not Path(path).exists():
            return refused(
                f"there is no file {options.file}, and no profile of it is kept", as_json=options.json
            )
        of = f"{options.kernel} of {options.file}" if options.kernel else options.file
        made = f"orbit-lsp profile {shlex.quote(options.file)} --kernel {shlex.quote(options.kernel or 'K')}"
        return refused(f"no profile of {of} is kept; `{made}` makes one", as_json=options.json)
    (kernel, newest, as_kept), *older = found
    if options.json:
        print(json.dumps(as_kept.finished, ensure_ascii=False, indent=2))
        return 0
    before = next((one for name, one, _ in older if name == kernel), None)
    made = profile_report.page(replace(newest, before=before), kernel, path)
    try:
        print(_write(made, options.output, f"{Path(path).stem}-{kernel}"))
    except opening.NoReport as why:
        print(str(why).replace("orbit:", "orbit-lsp:", 1), file=sys.stderr)
        return c.EXIT_CODES["infrastructure"]
    if newest.report:
        print(f"in Nsight Compute: {profile_hover.nsight_command(newest.report)}", file=sys.stderr)
    return 0


def profiled(one: Kept) -> Profiled | None:
    """A kept profile as a session has it; None where the file is not what this version writes."""
    try:
        finished = codec.build(c.Finished, one.finished, lenient=True)
    except ValueError:
        return None
    profiles = sorted(
        finished.profiles, key=lambda of: bottleneck.value(of, bottleneck.TIME) or 0.0, reverse=True
    )
    files = {line.file for of in profiles for line in of.lines if Path(line.file) == Path(one.path)}
    return Profiled(
        digest=c.content_hash(one.text.encode(errors="replace")),
        at=one.at,
        finished=finished,
        profiles=tuple(profiles),
        inputs="",
        files={},
        detail="full" if one.detail == "full" else "click",
        texts={file: tuple(split_lines(one.text)) for file in files},
        report=one.report,
        dumps=one.dumps,
    )


def _write(made: page.Page, output: str | None, name: str) -> Path:
    """Raises opening.NoReport."""
    if output is None:
        return opening.put(made, cache_folder() / "reports", name)
    path = Path(output)
    try:
        path.write_text(page.html(made), encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise opening.NoReport(f"orbit: {output} cannot be written: {error.strerror or error}") from None
    return path
