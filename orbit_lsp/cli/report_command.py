"""`orbit-lsp report`: the last profile of a kernel as a page."""

from __future__ import annotations

import argparse
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Literal

from orbit_lsp.cli import json_results
from orbit_lsp.cli.terminal_text import refused
from orbit_lsp.profile import bottleneck, report_store
from orbit_lsp.profile.report_store import KeptProfile
from orbit_lsp.report import opening, profile_report
from orbit_lsp.state.documents import split_lines
from orbit_lsp.state.results import Profiled
from orbit_lsp.state.user_folders import cache_folder
from orbit_lsp.views.profile import profile_hover
from orbit_remote.common import codec
from orbit_remote.common import messages as c

_DETAILS: dict[str, Literal["full", "imported"]] = {"full": "full", "imported": "imported"}


def main(options: argparse.Namespace) -> int:
    """Run the command. Return the exit code."""
    if options.source:
        from orbit_lsp.cli.files import report_from

        return report_from.main(options)
    if options.file is None:
        return refused("which file? Give it a .cu or .py file, or a report with --from", as_json=options.json)
    try:
        path = str(Path(options.file).resolve())
    except RuntimeError:  # Python 3.12 and older say this of symbolic links
        return refused(
            f"{options.file} cannot be read: it is a symbolic link to itself", as_json=options.json
        )
    profiles = [
        (kept.kernel, read, kept)
        for kept in report_store.newest(cache_folder() / "profiles", path)
        if options.kernel is None or options.kernel in (kept.kernel, kept.kernel.rpartition("::")[2])
        if (read := profiled(kept)) and read.profiles
    ]
    if not profiles:
        if not Path(path).exists():
            return refused(
                f"there is no file {options.file}, and no profile of it is kept", as_json=options.json
            )
        of = f"{options.kernel} of {options.file}" if options.kernel else options.file
        made = f"orbit-lsp profile {shlex.quote(options.file)} --kernel {shlex.quote(options.kernel or 'K')}"
        return refused(f"no profile of {of} is kept; `{made}` makes one", as_json=options.json)
    (kernel, newest, as_kept), *older = profiles
    if options.json:
        print(json_results.text(as_kept.finished))
        return 0
    before = next((older_profile for name, older_profile, _ in older if name == kernel), None)
    made = profile_report.page(replace(newest, before=before), kernel, path)
    try:
        print(
            opening.write_to(options.output, made, cache_folder() / "reports", f"{Path(path).stem}-{kernel}")
        )
    except opening.NoReportError as why:
        print(str(why).replace("orbit:", "orbit-lsp:", 1), file=sys.stderr)
        return c.EXIT_CODES["infrastructure"]
    if newest.report:
        print(f"in Nsight Compute: {profile_hover.nsight_command(newest.report)}", file=sys.stderr)
    return 0


def profiled(kept: KeptProfile) -> Profiled | None:
    """Return a kept profile in the session's form. Return None if this version did not write the file."""
    try:
        finished = codec.build(c.Finished, kept.finished, lenient=True)
    except ValueError:
        return None
    profiles = sorted(
        finished.profiles, key=lambda of: bottleneck.value(of, bottleneck.TIME) or 0.0, reverse=True
    )
    files = {line.file for of in profiles for line in of.lines if Path(line.file) == Path(kept.path)}
    return Profiled(
        digest=c.content_hash(kept.text.encode(errors="replace")),
        at=kept.at,
        finished=finished,
        profiles=tuple(profiles),
        inputs="",
        files={},
        detail=_DETAILS.get(kept.detail, "click"),
        texts={file: tuple(split_lines(kept.text)) for file in files},
        report=kept.report,
        dumps=kept.dumps,
    )
