"""`python -m tests.modal_loopback`: try the product offline. Prints the variables to export, and runs until
standard input ends."""

from __future__ import annotations

import shlex
import sys

from tests.modal_loopback.loopback import Loopback


def main() -> None:
    with Loopback() as loopback:
        for name, value in loopback.env().items():
            print(f"export {name}={shlex.quote(value)}")
        print("# until the end of standard input", flush=True)
        for _ in sys.stdin:
            pass


main()
