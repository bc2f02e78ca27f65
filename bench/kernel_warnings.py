"""The static checks of `orbit-lsp watch` on published kernels: how often does each warn, and of what?

    python -P bench/kernel_warnings.py FOLDER... [--quiet]

Reads the .cu and .cuh files of the folders. Prints each warning as `file:line: check: …`, to be read against its source, then by check
how many there are and how many per 1,000 kernels; and the time that the checks took, with the slowest text.
A file that is there twice, byte for byte, counts once.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from pathlib import Path

from orbit_lsp import kernels
from orbit_lsp.kernels.cuda import cuda_kernels, kernel_warnings


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--quiet", action="store_true", help="the figures alone")
    options = parser.parse_args()
    known = set[bytes]()
    by_check: Counter[str] = Counter({"bounds": 0, "barrier": 0, "launch": 0, "types": 0})
    texts = count = size = 0
    total, slowest = 0.0, (0.0, "")
    for folder in options.folders:
        for path in sorted(folder.rglob("*")):
            if (
                not path.is_file()
                or kernels.language_of(path.name) != "cuda"
                or (raw := path.read_bytes()) in known
            ):
                continue
            known.add(raw)
            text = raw.decode("utf-8", "replace")
            scan = cuda_kernels.scan(text)
            began = time.process_time()
            warnings = kernel_warnings.warnings(text, scan)
            took = time.process_time() - began
            texts, count, size, total = texts + 1, count + len(scan.kernels), size + len(text), total + took
            slowest = max(slowest, (took, f"{path}, {len(text):,} characters"))
            for warning in warnings:
                by_check[warning.check] += 1
                if not options.quiet:
                    print(f"{path}:{warning.line + 1}: {warning.check}: {warning.message}")
    print(f"{texts:,} texts, {count:,} kernels, {size / 1e6:.1f} million characters")
    for check, number in by_check.items():
        print(f"{check}: {number} warnings, {1000 * number / max(1, count):.1f} per 1,000 kernels")
    print(f"{total:.1f} s for all; the slowest {slowest[0]:.2f} s: {slowest[1]}")


if __name__ == "__main__":
    main()
