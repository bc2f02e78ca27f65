"""Keep GPU core dumps as recordings for the tests: `record_dumps.py DUMP OUT.core.xz`, on any machine.

The programs are tests/recordings/gpu_dumps/*.cu, built in /src by `nvcc -O3 -lineinfo -arch=sm_90` and run on a machine with
a GPU with the variables of `orbit_remote/worker/second_look.py`. Code in the dump that is not the program's, such as the
driver's own copies, is overwritten with zeros: it is not ours to give away.
"""

from __future__ import annotations

import lzma
import sys
from pathlib import Path

from orbit_remote.toolchain.elf import HEADER, SECTION

IMAGE = 0x80000007


def scrubbed(content: bytearray, own: bytes) -> bytearray:
    """The dump without the code of modules in which the text `own` does not occur."""
    header = HEADER.unpack_from(content)
    begin, size, count = int(header[6]), int(header[11]), int(header[12])
    count = count or int(SECTION.unpack_from(content, begin)[5])
    for number in range(count):
        section = SECTION.unpack_from(content, begin + number * size)
        if section[1] == IMAGE:
            at, length = section[4], section[5]
            if own not in content[at : at + length]:
                content[at : at + length] = bytes(length)
    return content


def main() -> None:
    dump, out = map(Path, sys.argv[1:])
    content = scrubbed(bytearray(dump.read_bytes()), b".cu\0")
    out.write_bytes(lzma.compress(content, preset=9))


if __name__ == "__main__":
    main()
