"""On the path of containers: a developer's editable install must not stand in for a file that was never uploaded."""

import pathlib
import site
import sys

for folder in site.getsitepackages():
    for listed in pathlib.Path(folder).glob("*.pth"):
        for line in listed.read_text().splitlines():
            if line in sys.path:
                sys.path.remove(line)
