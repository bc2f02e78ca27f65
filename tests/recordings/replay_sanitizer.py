#!/usr/bin/env python3
"""A compute-sanitizer that has no GPU: it writes what the real one wrote on an H100, of programs that are known by name.

The folder it runs in is that of the program's source, which stands in the recordings as /src/sanitizer. The program itself is
not run; how it was called is added to the file `called`. Of one that was not recorded it says what compute-sanitizer 2026.4 says where there is no driver.
"""

import re
import sys
from pathlib import Path

RECORDED = Path(__file__).resolve().parent / "sanitizer" / "h100"
FOUND = 86
"""What it was told to answer where it had found something; by itself it answers what the program does."""
MISSING = "========= COMPUTE-SANITIZER\n========= Error: Target application terminated before first instrumented API call\n"


def main() -> int:
    given = sys.argv[1:]
    if given == ["--version"]:
        print((RECORDED / "version.txt").read_text())
        return 0
    tool, log, records = (given[given.index(name) + 1] for name in ("--tool", "--log-file", "--save"))
    program = Path(given[-1]).stem
    with Path("called").open("a") as file:
        print(*given, file=file)
    text = RECORDED / f"{program}.{tool}.txt"
    if not text.exists():
        Path(log).write_text(MISSING)
        return 255
    Path(log).write_text(here(text))
    xml = text.with_suffix(".xml")
    if xml.exists():
        Path(records).write_text(here(xml))
    ended = re.search(r"\[exit code (\d+)\]\s*$", text.with_suffix(".out").read_text())
    return int(ended[1]) % FOUND if ended else 1


def here(path: Path) -> str:
    return path.read_text().replace("/src/sanitizer/", f"{Path.cwd()}/")


if __name__ == "__main__":
    raise SystemExit(main())
